//! Each kind of fault between a client and a server of this process. `calm` ends what lasts, so that no test waits for a clock.

use super::{Fault, Felt, Kind, Proxy, Way};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// What must come at last.
const PATIENCE: Duration = Duration::from_secs(20);
/// What must not come: so long is listened for it.
const SILENCE: Duration = Duration::from_millis(30);
/// A fault that is ended by `calm`.
const LONG: Duration = Duration::from_secs(60);

struct Net {
    server: TcpListener,
    proxy: Proxy,
}

impl Net {
    fn new() -> Net {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap(), 2).unwrap();
        Net { server, proxy }
    }

    /// Both ends of a new connection through the first door.
    fn join(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.proxy.door(0)).unwrap();
        let (server, _) = self.server.accept().unwrap();
        [&client, &server].into_iter().for_each(|end| end.set_read_timeout(Some(PATIENCE)).unwrap());
        (client, server)
    }

    /// The same, and enough has gone both ways for a fault.
    fn work(&self) -> (TcpStream, TcpStream) {
        let (mut client, mut server) = self.join();
        client.write_all(&[1; 700]).unwrap();
        assert_eq!(take(&mut server, 700), [1; 700]);
        server.write_all(&[2; 300]).unwrap();
        assert_eq!(take(&mut client, 300), [2; 300]);
        (client, server)
    }

    fn begin(&self, kind: Kind, time: Duration, late: Duration, rude: bool) -> Receiver<Felt> {
        self.proxy.begin(0, Fault { kind, time, late, at: 2, rude })
    }
}

fn take(from: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes).unwrap();
    bytes
}

fn hears_nothing(end: &mut TcpStream) {
    end.set_read_timeout(Some(SILENCE)).unwrap();
    let heard = end.read(&mut [0; 10]).map_err(|e| e.kind());
    assert!(matches!(heard, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{heard:?}");
    end.set_read_timeout(Some(PATIENCE)).unwrap();
}

fn is_reset(end: &mut TcpStream) {
    let heard = end.read(&mut [0; 10]).map_err(|e| e.kind());
    assert_eq!(heard, Err(ErrorKind::ConnectionReset));
}

/// All bytes until the end.
fn rest(end: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    end.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn bytes_and_ends_are_passed_on() {
    let net = Net::new();
    let (mut client, mut server) = net.join();
    let text: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&text).unwrap());
        assert!(take(&mut server, text.len()) == text);
    });
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(rest(&mut server).is_empty());
    server.write_all(b"still").unwrap();
    drop(server);
    assert_eq!(rest(&mut client), b"still");
    let felt = net.begin(Kind::Reset, LONG, LONG, true).recv();
    assert_eq!(felt, Ok(Felt::default()), "there is no connection any more");
    let Net { server, proxy } = net;
    drop(server);
    is_reset(&mut TcpStream::connect(proxy.door(1)).unwrap());
}

#[test]
fn a_blackhole_holds_one_way_back_and_heals() {
    let net = Net::new();
    for way in [Way::ToBroker, Way::ToClient] {
        let (mut client, mut server) = net.work();
        let felt = net.begin(Kind::Blackhole(way), LONG, LONG, false);
        let (from, to) = if way == Way::ToBroker { (&mut client, &mut server) } else { (&mut server, &mut client) };
        from.write_all(b"held back").unwrap();
        to.write_all(b"goes").unwrap();
        assert_eq!(take(from, 4), b"goes");
        hears_nothing(to);
        net.proxy.calm();
        assert_eq!(take(to, 9), b"held back");
        assert_eq!(felt.recv(), Ok(Felt { done: true, bytes: 9 }));
    }
}

#[test]
fn a_blackhole_may_end_in_a_reset() {
    let net = Net::new();
    let (mut client, mut server) = net.work();
    let felt = net.begin(Kind::Blackhole(Way::ToClient), Duration::from_millis(40), LONG, true);
    server.write_all(b"lost").unwrap();
    is_reset(&mut client);
    is_reset(&mut server);
    assert_eq!(felt.recv(), Ok(Felt { done: true, bytes: 4 }));
}

#[test]
fn a_reset_reaches_both_ends() {
    let net = Net::new();
    let (mut client, mut server) = net.work();
    let felt = net.begin(Kind::Reset, LONG, LONG, false);
    is_reset(&mut client);
    is_reset(&mut server);
    assert!(felt.recv().unwrap().done);
}

#[test]
fn of_a_half_open_connection_one_end_hears_nothing() {
    let net = Net::new();
    for kind in [Kind::HalfOpenClient, Kind::HalfOpenBroker] {
        let (mut client, mut server) = net.work();
        let felt = net.begin(kind, LONG, LONG, false);
        let (left, gone) =
            if kind == Kind::HalfOpenClient { (&mut client, &mut server) } else { (&mut server, &mut client) };
        is_reset(gone);
        left.write_all(b"is anybody there?").unwrap();
        hears_nothing(left);
        net.proxy.calm();
        is_reset(left);
        assert!(felt.recv().unwrap().done);
    }
}

#[test]
fn what_an_old_connection_had_sent_comes_when_the_next_one_works() {
    let net = Net::new();
    for rude in [false, true] {
        let (mut client, mut old) = net.work();
        let felt = net.begin(Kind::OldAlive, LONG, Duration::from_millis(300), rude);
        client.write_all(&[7; 5_000]).unwrap();
        let mut heard = [0; 10];
        assert!(matches!(client.read(&mut heard), Ok(0) | Err(_)), "it is cut");
        hears_nothing(&mut old);
        old.write_all(b"to nobody").unwrap();
        let _next = net.work();
        assert!(rest(&mut old) == [7; 5_000]);
        drop(old);
        assert_eq!(felt.recv(), Ok(Felt { done: true, bytes: 5_000 }));
    }
}

#[test]
fn bytes_go_alone() {
    let net = Net::new();
    let (mut client, mut server) = net.work();
    let felt = net.begin(Kind::OneByte, LONG, LONG, false);
    client.write_all(&[3; 500]).unwrap();
    take(&mut server, 500);
    net.proxy.calm();
    let felt = felt.recv().unwrap();
    assert!(felt.done && felt.bytes >= 499, "{felt:?}");
}

#[test]
fn bytes_are_late_and_in_order() {
    let net = Net::new();
    let (mut client, mut server) = net.work();
    let late = Duration::from_millis(40);
    let felt = net.begin(Kind::Delay, LONG, late, false);
    let begin = Instant::now();
    let text: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&text).unwrap());
        assert!(take(&mut server, text.len()) == text);
    });
    assert!(begin.elapsed() >= late);
    net.proxy.calm();
    assert_eq!(felt.recv(), Ok(Felt { done: true, bytes: 200_000 }));
}

#[test]
fn the_next_connection_is_cut_at_the_byte_that_was_named() {
    let net = Net::new();
    let text: Vec<u8> = (0..30).collect();
    for bytes in 0..30 {
        for way in [Way::ToBroker, Way::ToClient] {
            let felt = net.proxy.cut_next(0, way, bytes, false);
            let (mut client, mut server) = net.join();
            let (from, to) = if way == Way::ToBroker { (&mut client, &mut server) } else { (&mut server, &mut client) };
            // It may be reset already.
            let _ = from.write_all(&text);
            assert_eq!(rest(to), text[..bytes as usize]);
            to.shutdown(std::net::Shutdown::Both).unwrap();
            assert!(matches!(from.read(&mut [0; 10]), Ok(0) | Err(_)));
            assert_eq!(felt.recv(), Ok(Felt { done: true, bytes }));
        }
    }
    let felt = net.proxy.cut_next(0, Way::ToBroker, 500, false);
    let (mut client, server) = net.join();
    client.write_all(&text).unwrap();
    drop((client, server));
    assert_eq!(felt.recv(), Ok(Felt::default()), "it ended before");
}

#[test]
fn a_frame_is_cut_inside() {
    let net = Net::new();
    for way in [Way::ToBroker, Way::ToClient] {
        let (mut client, mut server) = net.join();
        let (from, to) = if way == Way::ToBroker { (&mut client, &mut server) } else { (&mut server, &mut client) };
        let frame = |size: u32| [&size.to_be_bytes()[..], &vec![9; size as usize - 4]].concat();
        let begun = [frame(300), frame(100)[..50].to_vec()].concat();
        from.write_all(&begun).unwrap();
        take(to, begun.len());
        to.write_all(&begun).unwrap();
        take(from, begun.len());
        let felt = net.begin(Kind::Cut(way), LONG, LONG, false);
        // The one that has begun is left alone.
        from.write_all(&frame(100)[50..]).unwrap();
        from.write_all(&frame(40)).unwrap();
        assert_eq!(rest(to), [&frame(100)[50..], &frame(40)[..3]].concat());
        assert_eq!(felt.recv(), Ok(Felt { done: true, bytes: 403 }));
    }
}
