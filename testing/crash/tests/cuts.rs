//! A session cut after each of its bytes, those of the client and those of the broker: the broker lives, nothing that was confirmed
//! is lost or comes twice, nobody else notices.

use packhorse_crash::proxy::{Proxy, Way};
use packhorse_crash::{Broker, Consumer, Pair, Short};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// More than a session has, so that a test which never ends is noticed.
const MOST: u64 = 5_000;
/// A session has more bytes than this each way: login, session, two links, a message each way, ends.
const LEAST: u64 = 400;

/// Cuts after 0, 1, 2 … bytes of this way, until a session is over before that. Answers how many cuts there were.
fn cut_everywhere(proxy: &Proxy, door: usize, way: Way, client: &mut Short) -> u64 {
    for cut in 0..MOST * 2 {
        // Each byte twice: the end to which they went hears an end, or a reset.
        let (bytes, rude) = (cut / 2, cut % 2 == 1);
        let felt = proxy.cut_next(door, way, bytes, rude);
        let end = client.session(proxy.door(door));
        let felt = felt.recv_timeout(Duration::from_secs(60)).expect("the proxy answers when the connection is over");
        if !felt.done {
            end.expect("nothing was done to it");
            return cut;
        }
    }
    panic!("a session has {MOST} bytes");
}

#[test]
fn a_session_is_cut_after_each_of_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(dir.path(), &[]);
    let pair = Pair::start(broker.amqp());
    pair.goes_on().unwrap();
    let proxy = Proxy::start(broker.amqp(), 2).unwrap();
    let before = broker.descriptors();
    let mut clients =
        [(Way::ToBroker, Short::new(1, "cut-to-broker")), (Way::ToClient, Short::new(2, "cut-to-client"))];
    std::thread::scope(|scope| {
        let threads = clients.iter_mut().enumerate().map(|(door, (way, client))| {
            let (way, proxy) = (*way, &proxy);
            scope.spawn(move || cut_everywhere(proxy, door, way, client))
        });
        for thread in threads.collect::<Vec<_>>() {
            let cuts = thread.join().unwrap();
            assert!(cuts > LEAST * 2, "{cuts} cuts");
            pair.goes_on().unwrap();
        }
    });
    broker.until("connections go back to the pair's two", |broker| broker.status()["connections"] == 2);
    // The journal opens a few files more as it grows.
    assert!(broker.descriptors() <= before + 8, "{} descriptors, {before} before", broker.descriptors());
    assert!(broker.alive());
    assert_eq!(pair.finish().unwrap().judge(), Vec::<String>::new());
    for (way, client) in &mut clients {
        let mut rest = Consumer::new(client.queue, 100);
        (rest.life, rest.received) = (u32::MAX, std::mem::take(&mut client.books.received));
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let drain = scope.spawn(|| rest.run(broker.amqp(), &stop, &count));
            broker.until("all that is left is taken", |broker| broker.queue(client.queue)["depth"] == 0);
            stop.store(true, Ordering::Relaxed);
            drain.join().unwrap().unwrap();
        });
        client.books.received = rest.received;
        assert!(
            client.books.confirmed() > 0 && client.books.sent[&client.id].contains(&false),
            "{way:?}: cuts met sends"
        );
        let mut wrong = client.books.judge();
        // A connection that was reset may still hold a message while the next one takes the one behind.
        wrong.retain(|line| !line.starts_with("order"));
        assert_eq!(wrong, Vec::<String>::new(), "{way:?}");
    }
    let log = broker.log();
    assert!(!log.contains(" ERROR "), "{log}");
}
