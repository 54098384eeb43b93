//! Two engines over a pipe that is cut anywhere: the results are equal.

use packhorse_amqp10::codec::*;

use crate::world::*;

/// Where the pipe is cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Nowhere: what was written in a turn arrives at once.
    Whole,
    /// After every so many bytes.
    Every(usize),
    /// Once in the client's stream, at this byte.
    ClientAt(u64),
    /// Once in the server's stream, at this byte.
    ServerAt(u64),
    /// At random places.
    Random(u64),
}

/// A small generator for the tests.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
}

const LINKS: [(&str, usize, Role, SenderSettleMode, ReceiverSettleMode); 5] = [
    ("a", 0, Role::Sender, SenderSettleMode::Mixed, ReceiverSettleMode::First),
    ("b", 0, Role::Receiver, SenderSettleMode::Unsettled, ReceiverSettleMode::Second),
    ("c", 1, Role::Sender, SenderSettleMode::Unsettled, ReceiverSettleMode::Second),
    ("d", 1, Role::Receiver, SenderSettleMode::Settled, ReceiverSettleMode::First),
    ("e", 1, Role::Receiver, SenderSettleMode::Mixed, ReceiverSettleMode::First),
];

/// What must not depend on the cut: for each link, the messages in order and what became of them.
type Result = Vec<(String, Vec<u64>, Vec<(u64, String)>)>;

/// Runs `count` messages over five links. Which goes when is drawn from `seed`; so are sizes and answers.
fn run(count: u64, seed: u64, sizes: u64, cut: Cut) -> (Result, u64, u64) {
    let mut world = World::new(600, 512, 16);
    for (name, session, role, snd, rcv) in LINKS {
        world.client.attach(session, name, role, snd, rcv);
    }
    // Each link has its own messages, so that the order on it does not depend on the turns.
    let mut todo: Vec<(usize, Vec<(u64, usize)>)> = Vec::new();
    let mut draw = Draw(seed | 1);
    for (index, _) in LINKS.iter().enumerate() {
        let mine = (0..count).map(|_| (world.number(), draw.below(sizes) as usize)).collect::<Vec<_>>();
        todo.push((index, mine.into_iter().rev().collect()));
    }
    let mut cutter = Draw(match cut {
        Cut::Random(seed) => seed | 1,
        _ => 1,
    });
    let mut positions = [0u64; 2];
    loop {
        let mut moved = false;
        for (index, mine) in &mut todo {
            let (name, _, role, ..) = LINKS[*index];
            let side = world.side(role == Role::Receiver);
            for _ in 0..4 {
                let Some((number, len)) = mine.last().copied() else { break };
                let busy = side.ends.get(name).is_some_and(|end| end.stream.is_some());
                if busy {
                    moved |= side.chunk(name, 700);
                    continue;
                }
                let streamed = number % 3 == 0;
                let went = if streamed {
                    side.begin_stream(name, number, len)
                } else {
                    side.send(name, number, len, number % 5 == 0)
                };
                if went {
                    mine.pop();
                    moved = true;
                } else if !streamed && side.begin_stream(name, number, len) {
                    // It does not fit the window in one go.
                    mine.pop();
                    moved = true;
                }
            }
            if mine.is_empty() {
                moved |= side.chunk(name, usize::MAX);
            }
        }
        for server in [false, true] {
            let side = world.side(server);
            let names: Vec<String> = side.ends.keys().cloned().collect();
            for name in names {
                let end = &side.ends[&name];
                if end.role == Role::Receiver && end.attached && side.conn.credit(end.id) < 3 {
                    side.grant(&name, 7);
                    moved = true;
                }
                // Answers follow from the message, not from the moment.
                while let Some((id, _)) = side.ends[&name].waiting.iter().find(|(_, told)| !told) {
                    let at = side.ends[&name].waiting.iter().position(|w| w.0 == *id).unwrap();
                    let unanswered = side.ends[&name].got.len();
                    side.settle(&name, at, unanswered);
                }
            }
            side.flush();
        }
        for from_server in [false, true] {
            let wire = world.side(from_server).wire.len();
            let mut left = wire;
            while left > 0 {
                let position = positions[usize::from(from_server)];
                let step = match cut {
                    Cut::Whole => left,
                    Cut::Every(n) => n,
                    Cut::ClientAt(at) if !from_server && position < at => (at - position) as usize,
                    Cut::ServerAt(at) if from_server && position < at => (at - position) as usize,
                    Cut::ClientAt(_) | Cut::ServerAt(_) => left,
                    Cut::Random(_) => 1 + cutter.below(1 + cutter.0 % 97) as usize,
                };
                let step = step.min(left);
                world.pump(from_server, step);
                // What the receiver says in between goes out at once, so that answers cross.
                world.side(!from_server).flush();
                positions[usize::from(from_server)] += step as u64;
                left -= step;
                moved = true;
            }
        }
        if !moved && todo.iter().all(|(_, mine)| mine.is_empty()) {
            break;
        }
        assert!(
            moved,
            "nothing moves and {} messages are left",
            todo.iter().map(|(_, mine)| mine.len()).sum::<usize>()
        );
    }
    world.settle_down();
    world.check_agreement();
    let mut result = Vec::new();
    for (name, _, role, ..) in LINKS {
        let (sender, receiver) =
            if role == Role::Sender { (&world.client, &world.server) } else { (&world.server, &world.client) };
        let (sender, receiver) = (&sender.ends[name], &receiver.ends[name]);
        assert_eq!(sender.sent, receiver.got, "all of {name}, once, in order");
        assert!(
            sender.out.is_empty() && receiver.waiting.is_empty(),
            "{name}: {:?} {:?}",
            sender.out,
            receiver.waiting
        );
        let fates = sender.fate.iter().map(|(number, fate)| (*number, format!("{fate:?}"))).collect();
        result.push((name.to_owned(), receiver.got.clone(), fates));
    }
    (result, world.client.bytes_out, world.server.bytes_out)
}

/// The part that must be equal: messages in order. (What becomes of them is drawn when they are seen, and that depends on
/// the turns; it is compared within a run, at both ends.)
fn order(result: &Result) -> Vec<(String, Vec<u64>)> {
    result.iter().map(|(name, got, _)| (name.clone(), got.clone())).collect()
}

#[test]
fn thousands_of_messages_arrive_once_and_in_order_however_the_bytes_are_cut() {
    let (whole, ..) = run(600, 42, 2000, Cut::Whole);
    assert_eq!(whole.iter().map(|(_, got, _)| got.len()).sum::<usize>(), 3000);
    for cut in [Cut::Every(1), Cut::Every(7), Cut::Every(4096), Cut::Random(1), Cut::Random(2), Cut::Random(3)] {
        let (result, ..) = run(600, 42, 2000, cut);
        assert_eq!(order(&result), order(&whole), "{cut:?}");
    }
}

#[test]
fn every_byte_may_be_the_last_of_a_read() {
    let (whole, client_bytes, server_bytes) = run(4, 7, 900, Cut::Whole);
    for at in 1..client_bytes {
        let (result, ..) = run(4, 7, 900, Cut::ClientAt(at));
        assert_eq!(order(&result), order(&whole), "client's stream cut at {at}");
    }
    for at in 1..server_bytes {
        let (result, ..) = run(4, 7, 900, Cut::ServerAt(at));
        assert_eq!(order(&result), order(&whole), "server's stream cut at {at}");
    }
}

#[test]
fn the_same_run_twice_gives_the_same_bytes() {
    assert_eq!(run(100, 9, 1500, Cut::Random(5)), run(100, 9, 1500, Cut::Random(5)));
}
