//! Operators at work: their commands go to the brokers while clients work and things go wrong, their answers come when they are durable.
//! What dies with its broker has no answer, and nobody knows whether it happened.

use super::{Due, World};
use crate::books::queue_name;
use crate::draw::Draw;
use crate::operator::{Act, Deed};
use packhorse_broker::{Command, QueuePatch, Reply};
use packhorse_history::Event;
use packhorse_model::{OnFull, QueueLimits, ShardId};
use std::collections::{BTreeMap, BTreeSet};

/// An act whose broker does not run is put off by so much.
const PUT_OFF_US: u64 = 20_000;

/// What a command without an answer is about.
#[derive(Clone, Debug)]
struct Asked {
    host: usize,
    /// How the history tells it, without its answer.
    told: Option<Told>,
    /// Limits that are lifted with it.
    lifts: Option<(usize, String)>,
}

/// An operation of the history.
#[derive(Clone, Debug)]
struct Told {
    operation: u64,
    queue: String,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Purge,
    Delete,
    Move(String),
}

/// See the module.
#[derive(Default)]
pub(super) struct Operators {
    /// By descending time.
    pub(super) acts: Vec<Act>,
    asked: BTreeMap<u64, Asked>,
    /// Queues with limits, by broker.
    limited: BTreeSet<(usize, String)>,
    operations: u64,
    /// The commands that are being given: what is refused at once was not begun.
    pub(super) asking: Vec<u64>,
}

impl Operators {
    pub(super) fn new(acts: Vec<Act>) -> Operators {
        Operators { acts, ..Operators::default() }
    }

    /// Nothing is to come, nothing is under way, nothing has limits.
    pub(super) fn are_done(&self) -> bool {
        self.acts.is_empty() && self.asked.is_empty() && self.limited.is_empty()
    }

    /// A broker has ended: nobody gets an answer.
    pub(super) fn ended(&mut self, host: usize) {
        self.asked.retain(|_, asked| asked.host != host);
    }
}

impl World {
    pub(super) fn arm_operators(&mut self) {
        if let Some(act) = self.operators.acts.last() {
            self.at(act.at_us, Due::Operator);
        }
    }

    pub(super) fn next_act(&mut self) {
        let Some(act) = self.operators.acts.last().copied() else { return };
        let life = self.hosts[act.host].life.as_ref();
        if life.is_none_or(|life| life.paused || life.stopping.is_some()) {
            self.at(self.now_us + PUT_OFF_US, Due::Operator);
            return;
        }
        self.operators.acts.pop();
        self.carry(act);
        self.arm_operators();
    }

    fn carry(&mut self, act: Act) {
        let Act { host, deed, dice, .. } = act;
        let mut draw = Draw::new(dice, 1);
        let queues = self.hosts[host].setup.queues.clone();
        let queue = queues[draw.below(queues.len())].clone();
        match deed {
            Deed::Purge => self.operate(host, &mut draw, &queue, What::Purge),
            Deed::Delete => self.operate(host, &mut draw, &queue, What::Delete),
            Deed::DeleteDeadLetters => self.operate(host, &mut draw, "DLQ", What::Delete),
            Deed::Move if queues.len() > 1 => {
                let to = draw.range(1, queues.len() as u64 - 1) as usize;
                let from = draw.below(to);
                self.operate(host, &mut draw, &queues[from].clone(), What::Move(queues[to].clone()));
                if draw.chance(25) {
                    // Some are offered to the other queue just now.
                    let (at_us, deed) = (self.now_us + draw.range(1, 120), Deed::DeleteSource(from));
                    self.operators.acts.push(Act { at_us, deed, dice: draw.next(), ..act });
                }
            }
            Deed::DeleteSource(queue) => self.operate(host, &mut draw, &queues[queue].clone(), What::Delete),
            Deed::Move => self.operate(host, &mut draw, &queue, What::Purge),
            Deed::Limit => {
                let on_full = match draw.range(0, 3) {
                    0 => OnFull::Block,
                    1 => OnFull::Reject,
                    _ if act.drops => OnFull::DropOldest,
                    2 => OnFull::Block,
                    _ => OnFull::Reject,
                };
                let messages = draw.chance(70).then(|| draw.range(1, 60));
                let bytes = (messages.is_none() || draw.chance(30)).then(|| draw.range(1_000, 40_000));
                self.limit(host, &mut draw, &queue, QueueLimits { max_messages: messages, max_bytes: bytes, on_full });
            }
            Deed::LimitDeadLetters => {
                let on_full = if draw.chance(50) { OnFull::Block } else { OnFull::Reject };
                // Only bytes count there: so few that it takes nothing, or a few messages.
                let bytes = if draw.chance(50) { 1 } else { draw.range(100, 1_500) };
                let limits = QueueLimits { max_messages: None, max_bytes: Some(bytes), on_full };
                self.limit(host, &mut draw, "DLQ", limits);
            }
            Deed::Create => {
                let name = queue.clone();
                let asked = Asked { host, told: None, lifts: None };
                self.command(&mut draw, asked, Command::QueuePut { name, patch: QueuePatch::default() });
            }
        }
    }

    fn operate(&mut self, host: usize, draw: &mut Draw, name: &str, what: What) {
        self.operators.operations += 1;
        let told = Told { operation: self.operators.operations, queue: queue_name(host, name), what: what.clone() };
        self.tell_operation(host, &told, None);
        let name = name.to_owned();
        let command = match what {
            What::Purge => Command::QueuePurge { name },
            What::Delete => Command::QueueDelete { name, force: draw.chance(85) },
            What::Move(to) => {
                let limit = [1, 5, 30, 300, u64::MAX][draw.below(5)];
                Command::QueueMove { from: name, to, limit }
            }
        };
        self.command(draw, Asked { host, told: Some(told), lifts: None }, command);
    }

    fn limit(&mut self, host: usize, draw: &mut Draw, name: &str, limits: QueueLimits) {
        self.operators.limited.insert((host, name.to_owned()));
        let command = Command::QueueChange { name: name.to_owned(), limits };
        self.command(draw, Asked { host, told: None, lifts: None }, command);
        let lift_at = self.now_us + draw.range(50_000, 700_000);
        self.at(lift_at, Due::Lift(host));
    }

    /// Takes all limits of a broker's queues away, as far as that is not under way.
    pub(super) fn lift(&mut self, host: usize) {
        let life = self.hosts[host].life.as_ref();
        if life.is_none_or(|life| life.paused || life.stopping.is_some()) {
            return;
        }
        let under_way =
            |lift: &(usize, String)| self.operators.asked.values().any(|one| one.lifts.as_ref() == Some(lift));
        let limited = self.operators.limited.iter().filter(|limited| limited.0 == host && !under_way(limited));
        let limited: Vec<(usize, String)> = limited.cloned().collect();
        let mut draw = Draw::new(self.seed, 9_000 + self.asked);
        for one in limited {
            let command = Command::QueueChange { name: one.1.clone(), limits: QueueLimits::default() };
            self.command(&mut draw, Asked { host, told: None, lifts: Some(one) }, command);
        }
    }

    /// Everything is to come to its end: no limits any more.
    pub(super) fn lift_all(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.lift(host));
    }

    /// Gives a command to one of a broker's shards. The answer comes now or later.
    fn command(&mut self, draw: &mut Draw, asked: Asked, command: Command) {
        let host = asked.host;
        let shard = ShardId(draw.below(usize::from(self.hosts[host].setup.shards)) as u16);
        self.asked += 1;
        let id = self.asked;
        self.note(|_| format!("operator asks {id}: {command:?}"));
        self.operators.asked.insert(id, asked);
        if let Some(life) = &mut self.hosts[host].life {
            // In the next turn, behind what clients said: what that sets off is under way when the command comes.
            life.commands.push((shard, id, command));
        }
        self.want_turn(host, [1, 2, 3, 300][draw.below(4)]);
    }

    /// An answer came. True: it is an operator's.
    pub(super) fn operator_answered(&mut self, id: u64, reply: &Reply) -> bool {
        let Some(asked) = self.operators.asked.remove(&id) else { return false };
        self.note(|_| format!("operator hears of {id}: {reply:?}"));
        if let Some(told) = &asked.told {
            match reply {
                Reply::Purged { messages } | Reply::Moved { messages } | Reply::Deleted { messages } => {
                    self.tell_operation(asked.host, told, Some(*messages));
                }
                // What is refused later leaves open how much was done: the broker stopped, the queue was deleted.
                Reply::Refused(_) if self.operators.asking.contains(&id) => {
                    self.tell_operation(asked.host, told, Some(0));
                }
                _ => {}
            }
        }
        if let Some(lifts) = &asked.lifts {
            match reply {
                Reply::Changed { .. } => {
                    self.operators.limited.remove(lifts);
                }
                // A queue that is not there has no limits.
                Reply::Refused(refusal) if refusal.code == "queue-not-found" => {
                    self.operators.limited.remove(lifts);
                }
                _ => {}
            }
        }
        true
    }

    fn tell_operation(&mut self, host: usize, told: &Told, messages: Option<u64>) {
        let (operation, queue) = (told.operation, told.queue.as_str());
        match &told.what {
            What::Purge => self.books.put(self.book, &Event::Purge { operation, queue, deletes: false, messages }),
            What::Delete => self.books.put(self.book, &Event::Purge { operation, queue, deletes: true, messages }),
            What::Move(target) => {
                let target = &queue_name(host, target);
                self.books.put(self.book, &Event::Move { operation, queue, target, messages });
            }
        }
    }
}
