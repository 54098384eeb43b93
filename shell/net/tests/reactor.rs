//! The loop over real sockets, with a puppet in the place of the shard: it obeys lines that the test sends.

use packhorse_broker::{Command, Effect, Input, Level, Lost, Reply};
use packhorse_model::{ConnectionId, Now, ShardId};
use packhorse_net::{Bound, Host, Limits, Machine, Mailbox, Post, Reactor, doors};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// What a puppet keeps of a connection.
#[derive(Default)]
struct Strings {
    line: Vec<u8>,
    received: usize,
    output: Vec<Vec<u8>>,
    resume_at: Option<u64>,
}

/// Obeys lines: `echo X`, `big N` (N bytes), `pause` (reads on 20 ms later), `count` (bytes received), `close`.
struct Puppet {
    connections: BTreeMap<u64, Strings>,
    turns: Arc<AtomicU64>,
    told: mpsc::Sender<String>,
    stopping: bool,
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i / 7 + i / 65_536) as u8).collect()
}

impl Puppet {
    fn obey(&mut self, id: u64, line: &str, now: Now, out: &mut Vec<Effect>) {
        let connection = ConnectionId(id);
        let strings = self.connections.get_mut(&id).unwrap();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let said = match verb {
            "echo" => format!("{rest}\n").into_bytes(),
            "big" => pattern(rest.parse().unwrap()),
            "count" => format!("{}\n", strings.received).into_bytes(),
            "pause" => {
                strings.resume_at = Some(now.mono_us + 20_000);
                out.push(Effect::Reading { connection, paused: true });
                b"paused\n".to_vec()
            }
            "close" => {
                out.push(Effect::Close { connection });
                b"bye\n".to_vec()
            }
            "junk" => Vec::new(),
            other => panic!("{other}"),
        };
        for piece in said.chunks(10_000) {
            strings.output.push(piece.to_vec());
        }
        out.push(Effect::Output { connection });
        out.push(Effect::Output { connection });
    }
}

impl Machine for Puppet {
    fn handle(&mut self, input: Input<'_>, now: Now, out: &mut Vec<Effect>) {
        match input {
            Input::Accepted { connection, endpoint } => {
                assert!(endpoint.loopback);
                self.connections.insert(connection.0, Strings::default());
            }
            Input::Received { connection, bytes } => {
                let strings = self.connections.get_mut(&connection.0).unwrap();
                strings.received += bytes.len();
                strings.line.extend_from_slice(bytes);
                while let Some(end) = self.connections[&connection.0].line.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = self.connections.get_mut(&connection.0).unwrap().line.drain(..=end).collect();
                    self.obey(connection.0, std::str::from_utf8(&line[..end]).unwrap(), now, out);
                }
            }
            Input::Lost { connection, how } => {
                let how = if how == Lost::Eof { "eof" } else { "error" };
                let received = self.connections.get(&connection.0).map_or(0, |s| s.received);
                self.told.send(format!("lost {how} after {received}")).unwrap();
            }
            Input::Admin { id, command } => {
                assert_eq!(command, Command::Status);
                out.push(Effect::AdminReply { id, reply: Box::new(Reply::Deleted { messages: id }) });
            }
            Input::Mail(_) => unreachable!("puppets write no letters"),
            Input::Stop => self.stopping = true,
        }
    }

    fn end_turn(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        for (id, strings) in &mut self.connections {
            if strings.resume_at.is_some_and(|at| at <= now.mono_us) {
                strings.resume_at = None;
                out.push(Effect::Reading { connection: ConnectionId(*id), paused: false });
            }
        }
        if std::mem::take(&mut self.stopping) {
            for id in self.connections.keys() {
                out.push(Effect::Close { connection: ConnectionId(*id) });
            }
            out.push(Effect::Stopped);
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        self.connections.values().filter_map(|s| s.resume_at).min()
    }

    fn output<'a>(&'a self, connection: ConnectionId, slices: &mut [IoSlice<'a>]) -> usize {
        let pieces = self.connections.get(&connection.0).into_iter().flat_map(|s| &s.output);
        pieces.zip(slices).map(|(piece, slice)| *slice = IoSlice::new(piece)).count()
    }

    fn written(&mut self, connection: ConnectionId, mut bytes: usize) {
        let output = &mut self.connections.get_mut(&connection.0).unwrap().output;
        while bytes > 0 {
            let n = bytes.min(output[0].len());
            output[0].drain(..n);
            bytes -= n;
            if output[0].is_empty() {
                output.remove(0);
            }
        }
    }
}

struct Process {
    start: Instant,
    told: Mutex<mpsc::Sender<String>>,
}

impl Host for Process {
    fn now(&self) -> Now {
        Now { mono_us: self.start.elapsed().as_micros() as u64, wall_ms: 0 }
    }

    fn reply(&self, id: u64, reply: Reply) {
        self.told.lock().unwrap().send(format!("reply {id} {reply:?}")).unwrap();
    }

    fn log(&self, _: ShardId, _: Level, _: Option<ConnectionId>, text: &str) {
        self.told.lock().unwrap().send(format!("log {text}")).unwrap();
    }

    fn stopped(&self, shard: ShardId) {
        self.told.lock().unwrap().send(format!("stopped {}", shard.0)).unwrap();
    }

    fn store_failed(&self, what: &str) {
        panic!("{what}");
    }
}

struct World {
    address: SocketAddr,
    told: mpsc::Receiver<String>,
    turns: Arc<AtomicU64>,
    mailboxes: Arc<[Arc<Mailbox>]>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

const LIMITS: Limits = Limits { connections: 1000, linger: Duration::from_millis(200) };

fn world(shards: u16, limits: Limits) -> World {
    let (tell, told) = mpsc::channel();
    let turns = Arc::new(AtomicU64::new(0));
    let host = Arc::new(Process { start: Instant::now(), told: Mutex::new(tell.clone()) });
    let doors = doors(shards).unwrap();
    let mailboxes = doors[0].mailboxes();
    let threads = doors
        .into_iter()
        .map(|door| {
            let puppet =
                Puppet { connections: BTreeMap::new(), turns: Arc::clone(&turns), told: tell.clone(), stopping: false };
            let reactor = Reactor::new(door, puppet, Arc::clone(&host), limits);
            std::thread::spawn(move || reactor.run().unwrap())
        })
        .collect();
    let bound = Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = bound.address();
    mailboxes[0].post(Post::Listen(vec![bound.listen().unwrap()]));
    World { address, told, turns, mailboxes, threads }
}

impl World {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        // A failing test ends, it does not hang.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn told(&self) -> String {
        self.told.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    fn stop(self) {
        for mailbox in &self.mailboxes[..] {
            mailbox.post(Post::Stop);
        }
        let mut stopped = 0;
        while stopped < self.threads.len() {
            stopped += usize::from(self.told().starts_with("stopped"));
        }
        for mailbox in &self.mailboxes[..] {
            mailbox.post(Post::Exit);
        }
        for thread in self.threads {
            thread.join().unwrap();
        }
        assert!(TcpStream::connect(self.address).is_err());
    }
}

fn line(stream: &TcpStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        (&mut &*stream).read_exact(&mut byte).unwrap();
        if byte[0] == b'\n' {
            return String::from_utf8(line).unwrap();
        }
        line.push(byte[0]);
    }
}

#[test]
fn many_connections_are_dealt_to_all_shards_and_answered() {
    for shards in [1, 2] {
        let world = world(shards, LIMITS);
        let streams: Vec<_> = (0..300).map(|_| world.connect()).collect();
        for round in 0..3 {
            for (n, mut stream) in streams.iter().enumerate() {
                stream.write_all(format!("echo {round} {n}\n").as_bytes()).unwrap();
            }
            for (n, stream) in streams.iter().enumerate() {
                assert_eq!(line(stream), format!("{round} {n}"));
            }
        }
        world.stop();
        // The orderly stop has closed every one of them.
        for mut stream in streams {
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    }
}

#[test]
fn partial_writes_go_on_when_the_peer_reads_again() {
    let world = world(1, LIMITS);
    let mut slow = world.connect();
    let bytes = 12 << 20;
    slow.write_all(format!("big {bytes}\necho end\n").as_bytes()).unwrap();
    // While it does not read, others are served.
    let mut other = world.connect();
    other.write_all(b"echo hello\n").unwrap();
    assert_eq!(line(&other), "hello");
    let mut all = vec![0; bytes];
    slow.read_exact(&mut all).unwrap();
    assert!(all == pattern(bytes), "bytes in order");
    assert_eq!(line(&slow), "end");
    world.stop();
}

#[test]
fn everything_before_the_end_of_the_stream_counts_and_is_answered() {
    let world = world(1, LIMITS);
    let mut stream = world.connect();
    let junk = format!("junk {}\n", "x".repeat(700_000));
    let writer = {
        let mut stream = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            stream.write_all(junk.as_bytes()).unwrap();
            stream.write_all(b"count\n").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        })
    };
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "700012\n");
    writer.join().unwrap();
    assert_eq!(world.told(), "lost eof after 700012");
    world.stop();
}

#[test]
fn a_reset_is_told_and_frees_the_place() {
    let world = world(1, Limits { connections: 1, ..LIMITS });
    let mut stream = world.connect();
    stream.write_all(b"echo here\n").unwrap();
    assert_eq!(line(&stream), "here");
    // The house is full: the next is closed at once, and the log says why.
    assert_eq!(world.connect().read(&mut [0]).unwrap_or(0), 0);
    assert!(world.told().contains("amqp.max_connections = 1 are open"));
    reset(stream);
    assert!(world.told().starts_with("lost "));
    let served = (0..10_000).any(|_| {
        let mut next = world.connect();
        let mut reply = String::new();
        next.write_all(b"echo again\n").is_ok()
            && BufReader::new(next).read_line(&mut reply).is_ok()
            && reply == "again\n"
    });
    assert!(served);
    world.stop();
}

/// Ends a connection by a reset: what is unread makes the system send one.
fn reset(mut stream: TcpStream) {
    stream.write_all(b"echo unread\n").unwrap();
    stream.peek(&mut [0]).unwrap();
    drop(stream);
}

#[test]
fn a_paused_peer_that_resets_is_told_too() {
    let world = world(1, LIMITS);
    let mut stream = world.connect();
    stream.write_all(b"pause\n").unwrap();
    stream.peek(&mut [0]).unwrap();
    drop(stream);
    assert!(world.told().starts_with("lost "));
    world.stop();
}

#[test]
fn reading_goes_on_after_a_pause() {
    let world = world(1, LIMITS);
    let mut stream = world.connect();
    stream.write_all(b"pause\n").unwrap();
    assert_eq!(line(&stream), "paused");
    // Comes while nobody reads; the poll tells of it once only.
    stream.write_all(b"echo later\n").unwrap();
    assert_eq!(line(&stream), "later");
    world.stop();
}

#[test]
fn closing_sends_what_is_left_first() {
    let world = world(1, Limits { linger: Duration::from_secs(20), ..LIMITS });
    let mut stream = world.connect();
    let bytes = 3 << 20;
    // Bytes that come after the close are dropped and do not cost the peer what we sent last.
    stream.write_all(format!("big {bytes}\nclose\necho {}\n", "y".repeat(20_000)).as_bytes()).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all[..bytes] == pattern(bytes));
    assert!(all[bytes..].starts_with(b"bye\n"));
    drop(stream);
    world.stop();
}

#[test]
fn a_peer_that_does_not_take_the_end_is_cut_after_the_linger() {
    let world = world(1, Limits { connections: 1, ..LIMITS });
    let mut stream = world.connect();
    stream.write_all(b"big 8000000\nclose\n").unwrap();
    // There is room again although this peer never reads and never closes.
    let served = (0..100_000).any(|_| {
        let mut next = world.connect();
        let mut reply = String::new();
        next.write_all(b"echo in\n").is_ok() && BufReader::new(next).read_line(&mut reply).is_ok() && reply == "in\n"
    });
    assert!(served);
    drop(stream);
    world.stop();
}

#[test]
fn a_flood_does_not_starve_others() {
    let world = world(1, LIMITS);
    let flood: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = world.connect();
            std::thread::spawn(move || {
                let junk = format!("junk {}\n", "z".repeat(60_000));
                while stream.write_all(junk.as_bytes()).is_ok() {}
            })
        })
        .collect();
    let mut stream = world.connect();
    for n in 0..50 {
        stream.write_all(format!("echo {n}\n").as_bytes()).unwrap();
        assert_eq!(line(&stream), n.to_string());
    }
    world.stop();
    for thread in flood {
        thread.join().unwrap();
    }
}

#[test]
fn commands_and_wake_ups_reach_the_machine_and_idleness_costs_no_turns() {
    let world = world(2, LIMITS);
    let idle = world.connect();
    world.mailboxes[1].post(Post::Admin { id: 7, command: Command::Status });
    assert_eq!(world.told(), "reply 7 Deleted { messages: 7 }");
    // Settles: the turns of the start are over when none comes for a while. A sleep, for there is nothing to wait for.
    let mut before = world.turns.load(Ordering::Relaxed);
    loop {
        #[expect(clippy::disallowed_methods, reason = "that nothing happens can only be seen over a time")]
        std::thread::sleep(Duration::from_millis(100));
        let after = world.turns.load(Ordering::Relaxed);
        if after == before {
            break;
        }
        assert!(after < before + 50, "busy while idle");
        before = after;
    }
    world.mailboxes[0].wake();
    while world.turns.load(Ordering::Relaxed) == before {
        std::thread::yield_now();
    }
    drop(idle);
    world.stop();
}
