//! Seeded random workloads: several clients, all outcomes, disconnects, thefts, slow peers, a store that is sometimes late, crashes.
//! Nothing confirmed is lost, nothing comes again after it was taken, every counter adds up, and in the end everything drains.
//! (Order is looked at where it can be told from outside: `confirms`, `large`, `crash`.)

use crate::world::{C, Msg, ReceiverTerms, SenderTerms, World, each_with};
use packhorse_amqp10::codec::{DeliveryState, ReceiverSettleMode, SenderSettleMode};
use packhorse_broker::Counters;
use std::collections::{BTreeMap, BTreeSet};

const QUEUES: [&str; 3] = ["a", "b", "c"];
const ALL: [&str; 4] = ["a", "b", "c", "DLQ"];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn pick<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.roll(things.len() as u64) as usize]
    }
}

/// A message that a producer sent.
struct Sent {
    queue: usize,
    durable: bool,
    /// Client, link, token; none any more after a crash.
    by: Option<(C, usize, u64)>,
}

/// A message that a client accepted.
struct Taken {
    number: u64,
    client: C,
    link: usize,
    at: usize,
    step: usize,
}

#[derive(Default)]
struct Book {
    sent: Vec<Sent>,
    taken: Vec<Taken>,
    /// Every delivery that a client saw: message, step, client, link.
    seen: Vec<(u64, usize, C, usize)>,
    /// What came settled.
    settled: BTreeSet<u64>,
    /// Clients that were cut off.
    killed: BTreeSet<usize>,
    /// What must be there, or have been taken.
    confirmed: BTreeSet<u64>,
    /// What may have been taken.
    maybe: BTreeSet<u64>,
    step: usize,
    crashed: bool,
}

struct Hand {
    client: C,
    /// Link and queue.
    senders: Vec<(usize, usize)>,
    receivers: Vec<(usize, usize)>,
    /// Entries of diaries looked at so far, by receiver.
    read: BTreeMap<usize, usize>,
}

struct Play {
    dice: Dice,
    book: Book,
    hands: Vec<Hand>,
}

impl Play {
    fn hand(&mut self, world: &mut World) {
        let container = format!("container {}", self.dice.roll(3));
        let client = match self.dice.roll(4) {
            0 => world.narrow_client(&container, 1 + self.dice.roll(6) as u32, 512),
            _ => world.client_at(self.dice.roll(2) as usize, &container),
        };
        self.hands.push(Hand { client, senders: Vec::new(), receivers: Vec::new(), read: BTreeMap::new() });
    }

    fn step(&mut self, world: &mut World) {
        self.book.step += 1;
        if self.hands.len() < 3 {
            self.hand(world);
        }
        let at = self.dice.roll(self.hands.len() as u64) as usize;
        match self.dice.roll(40) {
            0..=1 => self.attach_sender(world, at),
            2..=3 => self.attach_receiver(world, at),
            4..=15 => self.send(world, at),
            16..=27 => self.decide(world, at),
            28..=30 => self.credit(world, at),
            31 => self.detach(world, at),
            32 if self.dice.roll(4) == 0 => self.lose(world, at),
            33 if self.hands.len() < 6 => self.hand(world),
            34 => world.hold_store(),
            35 => world.flush(),
            36 => world.free_store(),
            37 => {
                let room = if self.dice.roll(2) == 0 { usize::MAX } else { self.dice.roll(20_000) as usize };
                let pipe = world.pipe_of(self.hands[at].client);
                pipe.room = room;
            }
            _ => {
                for _ in 0..self.dice.roll(6) {
                    world.turn();
                }
            }
        }
        self.look(world);
    }

    fn attach_sender(&mut self, world: &mut World, at: usize) {
        let hand = &mut self.hands[at];
        if hand.senders.len() >= 4 {
            return;
        }
        let queue = self.dice.roll(3) as usize;
        let rcv = self.dice.pick(&[ReceiverSettleMode::First, ReceiverSettleMode::Second]);
        let name = format!("s{} {}", hand.senders.len(), world[hand.client].links.len());
        let terms = SenderTerms { rcv, ..SenderTerms::default() };
        let link = world[hand.client].sender_with(0, &name, QUEUES[queue], terms);
        hand.senders.push((link, queue));
    }

    fn attach_receiver(&mut self, world: &mut World, at: usize) {
        let hand = &mut self.hands[at];
        if hand.receivers.len() >= 4 {
            return;
        }
        let queue = self.dice.roll(4) as usize;
        // Only from this queue, for what is given away settled may get lost.
        let snd = if ALL[queue] == "c" && self.dice.roll(2) == 0 {
            SenderSettleMode::Settled
        } else {
            SenderSettleMode::Unsettled
        };
        let rcv = self.dice.pick(&[ReceiverSettleMode::First, ReceiverSettleMode::Second]);
        let name = format!("r{}", self.dice.roll(3));
        let taken = hand.receivers.iter().any(|(link, _)| world[hand.client].links[*link].name == name);
        if taken {
            return;
        }
        let terms = ReceiverTerms { snd, rcv, credit: self.dice.roll(30) as u32, ..ReceiverTerms::default() };
        let link = world[hand.client].receiver_with(0, &name, ALL[queue], terms);
        hand.receivers.push((link, queue));
    }

    fn send(&mut self, world: &mut World, at: usize) {
        let hand = &self.hands[at];
        if hand.senders.is_empty() {
            return;
        }
        let (link, queue) = self.dice.pick(&hand.senders);
        for _ in 0..1 + self.dice.roll(8) {
            let number = self.book.sent.len() as u64;
            let durable = self.dice.roll(3) > 0;
            let priority = self.dice.pick(&[4, 4, 4, 9, 0]);
            let length = match self.dice.roll(60) {
                0 => 1_200_000,
                1..=6 => 20_000,
                _ => 8 + self.dice.roll(600) as usize,
            };
            let message = Msg::new(number).durable(durable).priority(priority).length(length);
            let token = world[hand.client].send(link, message.bytes());
            let client = hand.client;
            self.book.sent.push(Sent { queue, durable, by: Some((client, link, token)) });
        }
    }

    fn credit(&mut self, world: &mut World, at: usize) {
        let hand = &self.hands[at];
        if hand.receivers.is_empty() {
            return;
        }
        let (link, _) = self.dice.pick(&hand.receivers);
        if world[hand.client].links[link].ended.is_some() || !world[hand.client].links[link].attached {
            return;
        }
        match self.dice.roll(4) {
            0 => world[hand.client].drain(link),
            _ => world[hand.client].credit(link, self.dice.roll(50) as u32),
        }
    }

    fn decide(&mut self, world: &mut World, at: usize) {
        let client = self.hands[at].client;
        for (link, _) in self.hands[at].receivers.clone() {
            if !world[client].links[link].attached {
                continue;
            }
            let open: Vec<usize> = (0..world[client].links[link].got.len())
                .filter(|at| world[client].links[link].got[*at].open())
                .collect();
            for at in open {
                let number = world[client].links[link].got[at].number();
                match self.dice.roll(14) {
                    0..=6 => {
                        let settled = self.dice.roll(3) > 0;
                        world[client].decide(link, at, Some(DeliveryState::Accepted), settled);
                        let step = self.book.step;
                        self.book.taken.push(Taken { number, client, link, at, step });
                    }
                    7 => world[client].release(link, at),
                    8 => world[client].modify(link, at, true, false, &[("x-opt-try", "again")]),
                    9 => world[client].modify(link, at, false, true, &[]),
                    10 => world[client].reject(link, at, "test:rejected", "by chance"),
                    11 => world[client].decide(link, at, None, true),
                    _ => {}
                }
            }
        }
    }

    fn detach(&mut self, world: &mut World, at: usize) {
        let hand = &mut self.hands[at];
        if hand.receivers.is_empty() {
            return;
        }
        let place = self.dice.roll(hand.receivers.len() as u64) as usize;
        let (link, _) = hand.receivers[place];
        if world[hand.client].links[link].attached {
            let closed = self.dice.roll(2) == 0;
            world[hand.client].detach(link, closed);
            world[hand.client].links[link].attached = false;
        }
    }

    fn lose(&mut self, world: &mut World, at: usize) {
        self.look(world);
        let client = self.hands[at].client;
        match self.dice.roll(3) {
            0 => {
                world.pipe_of(client).room = usize::MAX;
                world.free_store();
                world[client].close();
                world.run();
                self.look(world);
            }
            _ => {
                self.book.killed.insert(client.0);
                world.kill(client);
            }
        }
        self.hands.remove(at);
    }

    /// Reads what came since the last look.
    fn look(&mut self, world: &mut World) {
        for hand in &mut self.hands {
            hand.receivers.retain(|(link, queue)| {
                let diary = &world[hand.client].links[*link];
                let from = hand.read.entry(*link).or_default();
                let whole = diary.got.iter().skip(*from).take_while(|got| got.whole);
                let mut count = 0;
                for got in whole {
                    count += 1;
                    if got.aborted {
                        continue;
                    }
                    let number = got.number();
                    let sent = &self.book.sent[number as usize];
                    let dead = got.annotation("x-opt-packhorse-reason").is_some();
                    assert_eq!(ALL[*queue] == "DLQ", dead, "message {number} is in its place");
                    assert!(dead || sent.queue == *queue);
                    self.book.seen.push((number, self.book.step, hand.client, *link));
                    if got.settled {
                        self.book.settled.insert(number);
                    }
                }
                *from += count;
                diary.ended.is_none()
            });
            hand.senders.retain(|(link, _)| world[hand.client].links[*link].ended.is_none());
        }
    }

    /// Notes what was confirmed so far.
    fn note_confirmed(&mut self, world: &World) {
        for (number, sent) in self.book.sent.iter().enumerate() {
            let Some((client, link, token)) = sent.by else { continue };
            let outcomes = world[client].links[link].outcomes.iter().filter(|(of, _)| *of == token);
            for (_, state) in outcomes {
                assert_eq!(state, "accepted", "nothing is refused");
                self.book.confirmed.insert(number as u64);
            }
        }
    }

    /// The broker dies and comes back.
    fn crash(&mut self, world: &mut World) {
        self.look(world);
        self.note_confirmed(world);
        let book = &mut self.book;
        let sent = &book.sent;
        book.confirmed.retain(|number| sent[*number as usize].durable);
        // Whatever was taken before may have been told too late; what became durable is gone for good, and counts below.
        book.maybe.extend(book.taken.drain(..).map(|taken| taken.number));
        book.seen.clear();
        book.killed.clear();
        book.sent.iter_mut().for_each(|sent| sent.by = None);
        book.crashed = true;
        self.hands.clear();
        world.crash(self.dice.roll(1000));
    }

    /// Everything comes to rest; then all that was confirmed is either taken or still there.
    fn end(&mut self, world: &mut World) {
        world.free_store();
        for hand in &self.hands {
            world.pipe_of(hand.client).room = usize::MAX;
        }
        world.run();
        self.look(world);
        world.audit();
        self.note_confirmed(world);
        let mut read = BTreeSet::new();
        let stolen = |world: &World, client: C, link: usize| {
            world[client].links[link].ended.as_deref().is_some_and(|condition| !condition.is_empty())
        };
        // An acceptance counts for sure where we were told so, or where its link lived on.
        let mut sure = BTreeMap::new();
        for taken in &self.book.taken {
            let got = &world[taken.client].links[taken.link].got[taken.at];
            let lived = !stolen(world, taken.client, taken.link) && !self.book.killed.contains(&taken.client.0);
            if got.settled_later || lived {
                sure.insert(taken.number, taken.step);
            } else {
                self.book.maybe.insert(taken.number);
            }
        }
        for (number, step, client, link) in &self.book.seen {
            // What was on its way to a link that was stolen may be seen late.
            let again = sure.get(number).is_some_and(|taken| step > taken) && !stolen(world, *client, *link);
            assert!(!again, "message {number} came again after it was taken");
        }
        for hand in std::mem::take(&mut self.hands) {
            world[hand.client].close();
        }
        world.run();
        let counters = sum(world);
        assert_eq!((counters.acquired, counters.consumers, counters.credit, counters.staged), (0, 0, 0, 0));
        assert_eq!(
            counters.depth,
            counters.ready,
            "{counters:?} {:?}",
            world.logs.iter().filter(|l| l.0 > packhorse_broker::Level::Info).collect::<Vec<_>>()
        );
        let reader = world.client("the last");
        for queue in ALL {
            let r = world[reader].receiver(queue, 100_000);
            let mut seen = 0;
            loop {
                world.run();
                let numbers = world[reader].numbers(r);
                if numbers.len() == seen {
                    break;
                }
                for number in &numbers[seen..] {
                    assert!(!sure.contains_key(number), "message {number} was taken");
                    assert!(read.insert(*number), "message {number} is there twice");
                }
                seen = numbers.len();
                // What a crash was blamed on goes alone: the next one comes when it is settled.
                world[reader].accept_all(r);
            }
        }
        for number in &self.book.confirmed {
            let taken = sure.contains_key(number) || self.book.maybe.contains(number);
            let there = taken || read.contains(number);
            let given_away = QUEUES[self.book.sent[*number as usize].queue] == "c";
            assert!(there || given_away, "message {number} was confirmed and is lost");
        }
        let counters = sum(world);
        assert_eq!(counters.depth, 0, "everything drains");
        if !self.book.crashed {
            assert_eq!(counters.enqueued_total, counters.acknowledged_total + counters.dead_lettered_total);
        }
        assert_eq!(counters.bytes, 0);
    }
}

fn sum(world: &mut World) -> Counters {
    let mut sum = Counters::default();
    for queue in ALL {
        if world.exists(queue) {
            sum.add(&world.queue(queue).counters);
        }
    }
    sum
}

fn play(world: &mut World, seed: u64, steps: usize, crash_every: usize) {
    let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut play = Play { dice, book: Book::default(), hands: Vec::new() };
    for step in 1..=steps {
        play.step(world);
        if step % crash_every == 0 {
            play.crash(world);
        }
    }
    play.end(world);
}

#[test]
fn nothing_is_lost_doubled_or_stuck() {
    for seed in 1..=12 {
        eprintln!("seed {seed}");
        each_with(|config| config.delivery_limit = 4, |world| play(world, seed, 300, usize::MAX));
    }
}

#[test]
fn nor_with_little_memory_and_output() {
    for seed in 201..=208 {
        eprintln!("seed {seed}");
        each_with(
            |config| {
                config.memory_bytes = 32 << 10;
                config.max_output_bytes = 64 << 10;
            },
            |world| play(world, seed, 300, usize::MAX),
        );
    }
}

#[test]
fn nor_over_crashes() {
    for seed in 401..=408 {
        eprintln!("seed {seed}");
        each_with(|config| config.memory_bytes = 256 << 10, |world| play(world, seed, 300, 70));
    }
}
