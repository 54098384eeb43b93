//! A model check of dispatch, acknowledge, return, disconnect and crash: two consumers, up to three messages, every order in which
//! these can happen, every flush between them.
//!
//! What is checked is no copy of the rules but the queue itself over the store in memory: a state of the model is the way to
//! it, walked again from the start, and two ways that lead to the same queue, store and clients are one state. So whatever is wrong in
//! `packhorse_queue::entry::transition`, or in what a queue makes of it, is found, with a way that leads there.

#[expect(dead_code, reason = "scenarios use the rest of it")]
mod rig;

use packhorse_model::Outcome;
use packhorse_queue::ConsumerId;
use packhorse_store::Ticket;
use rig::{DLQ, Got, Q, Rig, seen};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher};
use std::fmt::Write;
use std::hash::{Hash, Hasher};

/// How much may happen on a way.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    messages: u64,
    /// Messages of a higher priority among them: the last ones.
    urgent: u64,
    returns: u32,
    lost: u32,
    crashes: u32,
}

/// A wrong rule, planted to show that it would be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// A start does not tell what may have been delivered before.
    StartForgetsMarks,
    /// A delivery comes to the other consumer as well.
    BothGetIt,
    /// An acknowledgement does not reach the queue.
    AcknowledgementIsLost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Send,
    /// The oldest batch that is not durable becomes so.
    Flush,
    Acknowledge(usize, u64),
    Release(usize, u64),
    Fail(usize, u64),
    /// A consumer's connection is cut, and it comes back.
    Lose(usize),
    /// The process is killed. So many batches that were not durable survive, at most.
    Crash(u64),
}

/// What clients have seen, and what they were promised.
#[derive(Clone, Debug, Default, Hash)]
struct Seen {
    sent: u64,
    returns: u32,
    lost: u32,
    crashes: u32,
    /// Who holds what.
    held: BTreeMap<u64, BTreeSet<usize>>,
    /// The producer was told that it is safe.
    confirmed: BTreeSet<u64>,
    /// An acknowledgement was sent; it was told to be safe.
    acknowledged: BTreeSet<u64>,
    settled: BTreeSet<u64>,
    /// Deliveries that ended otherwise than unseen or acknowledged.
    ends: BTreeMap<u64, u32>,
    /// By priority, the highest number that was delivered in this run.
    latest: BTreeMap<u8, u64>,
    /// The first promise that was broken.
    broken: Option<&'static str>,
}

/// One way through the model, at its end.
struct World {
    rig: Rig,
    bounds: Bounds,
    planted: Planted,
    seen: Seen,
    consumers: [ConsumerId; 2],
    next_consumer: u64,
    open: BTreeMap<(usize, u64), Got>,
    /// Numbers, and tickets of what will make them safe.
    sending: Vec<(u64, Ticket)>,
    settling: Vec<(u64, Ticket)>,
    returned: BTreeSet<u64>,
}

impl World {
    fn new(bounds: Bounds, planted: Planted) -> World {
        let mut world = World {
            rig: Rig::new(0),
            bounds,
            planted,
            seen: Seen::default(),
            consumers: [ConsumerId(0); 2],
            next_consumer: 1,
            open: BTreeMap::new(),
            sending: Vec::new(),
            settling: Vec::new(),
            returned: BTreeSet::new(),
        };
        world.come(0);
        world.come(1);
        world.listen();
        world
    }

    fn come(&mut self, who: usize) {
        self.consumers[who] = self.rig.subscribe(Q, self.next_consumer);
        self.next_consumer += 1;
        self.credit(who);
    }

    /// A consumer takes so many at a time: less than there is, so that they compete, and one of them may hold two.
    fn credit(&mut self, who: usize) {
        let held = self.open.keys().filter(|(by, _)| *by == who).count() as u64;
        self.rig.credit(Q, self.consumers[who], [2, 1][who] - held);
    }

    fn priority(&self, number: u64) -> u8 {
        if number + self.bounds.urgent >= self.bounds.messages { 9 } else { 4 }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send => {
                let number = self.seen.sent;
                self.seen.sent += 1;
                self.sending.push((number, self.rig.ticket()));
                self.rig.send(Q, number, self.priority(number), true);
            }
            Action::Flush => drop(self.rig.flush_one()),
            Action::Acknowledge(who, number) => {
                let got = self.let_go(who, number);
                self.seen.acknowledged.insert(number);
                self.settling.push((number, self.rig.ticket()));
                if self.planted != Planted::AcknowledgementIsLost {
                    self.rig.settle(&got, Outcome::Acknowledge);
                }
                self.credit(who);
            }
            Action::Release(who, number) | Action::Fail(who, number) => {
                let got = self.let_go(who, number);
                self.seen.returns += 1;
                self.returned.insert(number);
                let failed = action == Action::Fail(who, number);
                if failed {
                    *self.seen.ends.entry(number).or_default() += 1;
                }
                self.rig.settle(&got, if failed { seen() } else { Outcome::ReturnUnseen });
                self.credit(who);
            }
            Action::Lose(who) => {
                self.seen.lost += 1;
                let held: Vec<u64> = self.open.keys().filter(|(by, _)| *by == who).map(|(_, number)| *number).collect();
                for number in held {
                    self.let_go(who, number);
                    self.returned.insert(number);
                    *self.seen.ends.entry(number).or_default() += 1;
                }
                self.rig.unsubscribe(Q, self.consumers[who], true);
                self.come(who);
            }
            Action::Crash(seed) => self.crash(seed),
        }
        self.rig.turns();
        self.listen();
    }

    fn let_go(&mut self, who: usize, number: u64) -> Got {
        self.seen.held.get_mut(&number).expect("it is held").remove(&who);
        self.open.remove(&(who, number)).expect("it is held")
    }

    fn crash(&mut self, seed: u64) {
        self.seen.crashes += 1;
        for ((who, number), _) in std::mem::take(&mut self.open) {
            self.seen.held.get_mut(&number).expect("it is held").remove(&who);
            *self.seen.ends.entry(number).or_default() += 1;
        }
        // Whether it survived is not known to anybody; if it did, it is the same message.
        self.sending.clear();
        self.settling.clear();
        self.returned.clear();
        self.seen.latest.clear();
        let rig = std::mem::replace(&mut self.rig, Rig::new(0));
        self.rig = rig.crash_with(seed, |entry| {
            if self.planted == Planted::StartForgetsMarks {
                (entry.deliveries, entry.suspect) = (0, None);
            }
        });
        self.come(0);
        self.come(1);
    }

    fn broken(&mut self, what: &'static str) {
        self.seen.broken.get_or_insert(what);
    }

    /// Looks at what came and what is safe now.
    fn listen(&mut self) {
        let durable = self.rig.durable;
        let came = [0, 1].map(|who| self.rig.take(self.consumers[who]).into_iter().map(move |got| (who, got)));
        let mut came: Vec<(usize, Got)> = came.into_iter().flatten().collect();
        // As they were given.
        came.sort_by_key(|(_, got)| got.key.epoch);
        for (who, got) in came {
            self.delivered(who, &got);
            if self.planted == Planted::BothGetIt {
                self.delivered(1 - who, &got);
            }
        }
        let safe = |waiting: &mut Vec<(u64, Ticket)>| {
            let (now, later) = waiting.iter().partition(|(_, ticket)| *ticket <= durable);
            *waiting = later;
            let now: Vec<(u64, Ticket)> = now;
            now.into_iter().map(|(number, _)| number)
        };
        self.seen.confirmed.extend(safe(&mut self.sending));
        self.seen.settled.extend(safe(&mut self.settling));
    }

    fn delivered(&mut self, who: usize, got: &Got) {
        let number = got.number();
        let level = self.priority(number);
        if self.seen.held.get(&number).is_some_and(|held| !held.is_empty()) {
            self.broken(HOLDERS);
        }
        if self.seen.settled.contains(&number) {
            self.broken(SETTLED);
        }
        if got.deliveries < self.seen.ends.get(&number).copied().unwrap_or(0) {
            self.broken(FLAGGED);
        }
        let latest = self.seen.latest.entry(level).or_insert(number);
        if *latest > number && !self.returned.contains(&number) {
            self.broken(ORDER);
        }
        let latest = self.seen.latest.get_mut(&level).expect("it was just there");
        *latest = number.max(*latest);
        self.seen.held.entry(number).or_default().insert(who);
        self.open.insert((who, number), got.clone());
    }

    fn actions(&self, out: &mut Vec<Action>) {
        let Bounds { messages, returns, lost, crashes, .. } = self.bounds;
        if self.seen.sent < messages {
            out.push(Action::Send);
        }
        if self.rig.durable.next() < self.rig.ticket() {
            out.push(Action::Flush);
        }
        for (who, number) in self.open.keys() {
            out.push(Action::Acknowledge(*who, *number));
            if self.seen.returns < returns {
                out.extend([Action::Release(*who, *number), Action::Fail(*who, *number)]);
            }
        }
        if self.seen.lost < lost {
            let busy = |who| self.open.keys().any(|(by, _)| *by == who);
            out.extend([0, 1].into_iter().filter(|who| busy(*who)).map(Action::Lose));
        }
        if self.seen.crashes < crashes {
            let unsafe_batches = self.rig.ticket().0 - self.rig.durable.0 - 1;
            out.extend((0..=unsafe_batches.min(2)).map(Action::Crash));
        }
    }

    /// Both consumers go, and another one reads what is left: all that was confirmed and not acknowledged, once, and then nothing is
    /// left.
    fn end(mut self) -> Option<&'static str> {
        for who in 0..2 {
            self.rig.unsubscribe(Q, self.consumers[who], false);
        }
        self.open.clear();
        self.rig.flush();
        let last = self.rig.subscribe(Q, self.next_consumer);
        let mut left: BTreeMap<u64, u32> = BTreeMap::new();
        self.rig.credit(Q, last, 100);
        for _ in 0..20 {
            self.rig.pass(100);
            for got in self.rig.take(last) {
                *left.entry(got.number()).or_default() += 1;
                self.rig.settle(&got, Outcome::Acknowledge);
            }
        }
        self.rig.flush();
        let depth = self.rig.queue(Q).stats().depth + self.rig.queue(DLQ).stats().depth;
        let lost = self.seen.confirmed.iter().any(|n| !self.seen.acknowledged.contains(n) && !left.contains_key(n));
        let back = self.seen.settled.iter().any(|n| left.contains_key(n));
        let twice = left.values().any(|count| *count != 1);
        match (lost, back, twice || depth > 0) {
            (true, ..) => Some(LOST),
            (_, true, _) => Some(SETTLED),
            (.., true) => Some(LEFT),
            _ => None,
        }
    }
}

const HOLDERS: &str = "nobody holds what another one holds";
const SETTLED: &str = "what was acknowledged, and told so, does not come again";
const FLAGGED: &str = "each delivery that came to an end before is told with the next one";
const ORDER: &str = "what did not come back comes in order, for each priority";
const LOST: &str = "what was confirmed is consumed or can be";
const LEFT: &str = "in the end each comes once, and nothing is left";

/// A way, and what it led to.
#[derive(Clone, Debug)]
struct Way {
    actions: Vec<Action>,
    /// Of the queue, the store and the clients.
    print: u64,
    next: Vec<Action>,
    broken: Option<&'static str>,
}

impl PartialEq for Way {
    fn eq(&self, other: &Way) -> bool {
        self.print == other.print
    }
}

impl Eq for Way {}

impl Hash for Way {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}

struct Print(DefaultHasher);

impl Write for Print {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Dispatch {
    bounds: Bounds,
    planted: Planted,
}

impl Dispatch {
    fn walk(&self, actions: &[Action]) -> World {
        let mut world = World::new(self.bounds, self.planted);
        actions.iter().for_each(|action| world.act(*action));
        world
    }

    fn way(&self, actions: Vec<Action>) -> Way {
        let world = self.walk(&actions);
        let mut print = Print(DefaultHasher::new());
        world.rig.write_all(&mut print).expect("a hasher takes all text");
        world.seen.hash(&mut print.0);
        world.returned.hash(&mut print.0);
        write!(print, "{:?} {:?}", world.sending, world.settling).expect("a hasher takes all text");
        let mut next = Vec::new();
        world.actions(&mut next);
        let broken = world.seen.broken.or_else(|| world.end());
        // Nothing is learned from what follows a broken promise.
        next.retain(|_| broken.is_none());
        Way { actions, print: print.0.finish(), next, broken }
    }
}

fn keeps(what: &'static str) -> Property<Dispatch> {
    let condition: fn(&Dispatch, &Way) -> bool = match what {
        HOLDERS => |_, way| way.broken != Some(HOLDERS),
        SETTLED => |_, way| way.broken != Some(SETTLED),
        FLAGGED => |_, way| way.broken != Some(FLAGGED),
        ORDER => |_, way| way.broken != Some(ORDER),
        LOST => |_, way| way.broken != Some(LOST),
        _ => |_, way| way.broken != Some(LEFT),
    };
    Property::always(what, condition)
}

impl Model for Dispatch {
    type State = Way;
    type Action = Action;

    fn init_states(&self) -> Vec<Way> {
        vec![self.way(Vec::new())]
    }

    fn actions(&self, way: &Way, actions: &mut Vec<Action>) {
        actions.extend(&way.next);
    }

    fn next_state(&self, way: &Way, action: Action) -> Option<Way> {
        Some(self.way([&way.actions[..], &[action]].concat()))
    }

    fn properties(&self) -> Vec<Property<Dispatch>> {
        let mut all: Vec<_> = [HOLDERS, SETTLED, FLAGGED, ORDER, LOST, LEFT].map(keeps).into();
        // That the bounds leave room for what matters.
        if self.bounds.messages > 1 {
            all.push(Property::sometimes("both hold something", |_, way: &Way| {
                [0, 1].iter().all(|who| way.next.iter().any(|a| matches!(a, Action::Acknowledge(w, _) if w == who)))
            }));
        }
        if self.bounds.crashes > 0 {
            all.push(Property::sometimes("a crash comes right after a return", |_, way: &Way| {
                matches!(way.actions[..], [.., Action::Fail(..), Action::Crash(_)])
            }));
        }
        all
    }
}

fn check(bounds: Bounds) -> usize {
    let checker = Dispatch { bounds, planted: Planted::Nothing }.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    println!("{bounds:?}: {} unique states", checker.unique_state_count());
    checker.unique_state_count()
}

#[test]
fn three_messages_and_no_end_of_the_process() {
    let states = check(Bounds { messages: 3, urgent: 1, returns: 1, lost: 1, crashes: 0 });
    assert!(states > 1_000, "{states}");
}

#[test]
fn two_messages_and_a_crash() {
    let states = check(Bounds { messages: 2, urgent: 0, returns: 1, lost: 1, crashes: 1 });
    assert!(states > 1_000, "{states}");
}

#[test]
fn one_message_and_three_crashes() {
    let states = check(Bounds { messages: 1, urgent: 0, returns: 1, lost: 1, crashes: 3 });
    assert!(states > 100, "{states}");
}

/// A way whose last step breaks a promise.
fn counterexample(planted: Planted) -> Option<(&'static str, Vec<Action>)> {
    let bounds = Bounds { messages: 2, urgent: 0, returns: 1, lost: 0, crashes: 1 };
    let checker = Dispatch { bounds, planted }.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut found: Vec<_> = checker.discoveries().into_iter().collect();
    found.retain(|(what, _)| [HOLDERS, SETTLED, FLAGGED, ORDER, LOST, LEFT].contains(what));
    found.into_iter().map(|(what, path)| (what, path.into_actions())).min_by_key(|(_, actions)| actions.len())
}

#[test]
fn a_wrong_rule_is_found() {
    let (what, actions) = counterexample(Planted::StartForgetsMarks).expect("it is found");
    assert_eq!(what, FLAGGED);
    assert!(actions.iter().any(|a| matches!(a, Action::Crash(_))), "{actions:?}");
    let (what, actions) = counterexample(Planted::BothGetIt).expect("it is found");
    assert!(what == HOLDERS && actions.ends_with(&[Action::Flush]), "{what} by {actions:?}");
    let (what, actions) = counterexample(Planted::AcknowledgementIsLost).expect("it is found");
    assert!([SETTLED, LEFT].contains(&what), "{what}");
    assert!(actions.iter().any(|a| matches!(a, Action::Acknowledge(..))), "{actions:?}");
    assert_eq!(counterexample(Planted::Nothing), None);
}
