//! Operators at work: their commands go to the brokers while clients work and things go wrong, their answers come when they are durable.
//! What dies with its broker has no answer, and nobody knows whether it happened.

use super::{Due, World};
use crate::books::queue_name;
use crate::draw::Draw;
use crate::operator::{Act, Deed};
use packhorse_broker::{By, Command, QueuePatch, RefusalKind, Reply, TxAct, TxState};
use packhorse_history::Event;
use packhorse_model::{OnFull, QueueLimits, ShardId};
use std::collections::{BTreeMap, BTreeSet};

/// Between two looks whether something is in doubt.
const LOOK_AGAIN_US: u64 = 15_000;

/// An act whose broker does not run is put off by so much.
const PUT_OFF_US: u64 = 20_000;

/// What a command without an answer is about.
#[derive(Clone, Debug)]
struct Asked {
    host: usize,
    /// How the history tells it, without its answer.
    told: Option<Told>,
    /// The limits that it is about.
    limits: Option<Limiting>,
    /// A branch that is decided: its name, and whether it is committed.
    decides: Option<(String, bool)>,
}

/// A change of a queue's limits that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limiting {
    queue: Limited,
    /// It takes them away, and none were given since it was asked for.
    lifts: bool,
}

/// A broker's number, and the name of a queue there.
type Limited = (usize, String);

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
    limited: BTreeSet<Limited>,
    /// Queues with limits that were not there when these were to be lifted. Whatever ended them may not be safe: then the next start finds
    /// them, and their limits.
    gone: BTreeSet<Limited>,
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
        let here = |queue: &Limited| queue.0 == host;
        self.limited.extend(self.gone.iter().filter(|queue| here(queue)).cloned());
        self.gone.retain(|queue| !here(queue));
    }

    /// A queue is given limits. Whatever is to lift earlier ones, and was not answered yet, says nothing of these.
    fn limits(&mut self, queue: Limited) -> Limiting {
        for limiting in self.asked.values_mut().filter_map(|asked| asked.limits.as_mut()) {
            if limiting.queue == queue {
                limiting.lifts = false;
            }
        }
        self.gone.remove(&queue);
        self.limited.insert(queue.clone());
        Limiting { queue, lifts: false }
    }

    /// The queues of a broker whose limits can be lifted: none of their changes is under way, for commands may go by different shards and
    /// overtake each other.
    fn to_lift(&self, host: usize) -> Vec<Limiting> {
        let under_way = |queue: &Limited| {
            self.asked.values().any(|asked| asked.limits.as_ref().is_some_and(|limiting| limiting.queue == *queue))
        };
        let liftable = self.limited.iter().filter(|queue| queue.0 == host && !under_way(queue));
        liftable.map(|queue| Limiting { queue: queue.clone(), lifts: true }).collect()
    }

    /// A change of limits is done.
    fn changed(&mut self, limiting: &Limiting) {
        if limiting.lifts {
            self.limited.remove(&limiting.queue);
        }
    }

    /// The queue whose limits were to be changed is not there, and so it has none, as long as its broker lives.
    fn not_there(&mut self, limiting: &Limiting) {
        if limiting.lifts && self.limited.remove(&limiting.queue) {
            self.gone.insert(limiting.queue.clone());
        }
    }
}

/// Who decides what is in doubt, and why.
fn insists() -> By {
    By { who: "operator".into(), reason: "by the dice".into() }
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
                let asked = Asked { host, told: None, decides: None, limits: None };
                self.command(&mut draw, asked, Command::QueuePut { name, patch: QueuePatch::default() });
            }
            Deed::Decide(tries) => self.decide(act, tries, &mut draw),
        }
    }

    fn operate(&mut self, host: usize, draw: &mut Draw, name: &str, what: What) {
        self.operators.operations += 1;
        let told = Told { operation: self.operators.operations, queue: queue_name(host, name), what: what.clone() };
        self.tell_operation(host, &told, None);
        let name = name.to_owned();
        // Some insist, whatever is in doubt there.
        let by = draw.chance(50).then(insists);
        let command = match what {
            What::Purge => Command::QueuePurge { name, by },
            What::Delete => Command::QueueDelete { name, force: draw.chance(85), by },
            What::Move(to) => {
                let limit = [1, 5, 30, 300, u64::MAX][draw.below(5)];
                Command::QueueMove { from: name, to, limit }
            }
        };
        self.command(draw, Asked { host, told: Some(told), decides: None, limits: None }, command);
    }

    /// Decides a branch in doubt, or looks again later.
    fn decide(&mut self, act: Act, tries: u32, draw: &mut Draw) {
        let host = act.host;
        let all = Command::TxList { after: None, states: vec![TxState::Prepared], limit: 100 };
        let there = match self.ask(host, 0, all) {
            Some(Reply::Transactions(page)) => page.transactions,
            _ => Vec::new(),
        };
        let xids: Vec<_> = there.into_iter().filter_map(|branch| branch.view.xid).collect();
        if xids.is_empty() {
            if tries > 0 {
                let (at_us, deed) = (self.now_us + LOOK_AGAIN_US, Deed::Decide(tries - 1));
                self.operators.acts.push(Act { at_us, deed, ..act });
                self.operators.acts.sort_by_key(|act| std::cmp::Reverse(act.at_us));
            }
            return;
        }
        let (xid, commit) = (xids[draw.below(xids.len())].clone(), draw.chance(50));
        let name = xid.to_string();
        self.books.put(self.book, &Event::Decide { xid: &name, commit, code: None });
        let verb = if commit { TxAct::Commit } else { TxAct::Rollback };
        let asked = Asked { host, told: None, decides: Some((name, commit)), limits: None };
        self.command(draw, asked, Command::TxDecide { xid, act: verb, by: insists() });
    }

    fn limit(&mut self, host: usize, draw: &mut Draw, name: &str, limits: QueueLimits) {
        let limiting = self.operators.limits((host, name.to_owned()));
        let command = Command::QueueChange { name: name.to_owned(), limits };
        self.command(draw, Asked { host, told: None, decides: None, limits: Some(limiting) }, command);
        let lift_at = self.now_us + draw.range(50_000, 700_000);
        self.at(lift_at, Due::Lift(host));
    }

    /// Takes all limits of a broker's queues away, as far as that is not under way.
    pub(super) fn lift(&mut self, host: usize) {
        let life = self.hosts[host].life.as_ref();
        if life.is_none_or(|life| life.paused || life.stopping.is_some()) {
            return;
        }
        let mut draw = Draw::new(self.seed, 9_000 + self.asked);
        for limiting in self.operators.to_lift(host) {
            let command = Command::QueueChange { name: limiting.queue.1.clone(), limits: QueueLimits::default() };
            self.command(&mut draw, Asked { host, told: None, decides: None, limits: Some(limiting) }, command);
        }
    }

    /// Everything is to come to its end: no limits any more.
    pub(super) fn lift_all(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.lift(host));
    }

    /// Gives a command to one of a broker's shards. The answer comes now or later.
    fn command(&mut self, draw: &mut Draw, asked: Asked, command: Command) {
        let host = asked.host;
        let shard = draw.below(usize::from(self.hosts[host].setup.shards)) as u16;
        // The home of all branches.
        let shard = ShardId(if asked.decides.is_some() { 0 } else { shard });
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
        if let Some((xid, commit)) = &asked.decides {
            let code = match reply {
                Reply::Decided { .. } => Some(0),
                // What is unavailable is not known, or stays as it is.
                Reply::Refused(refusal) if refusal.kind != RefusalKind::Unavailable => Some(-6),
                _ => None,
            };
            if code.is_some() {
                self.books.put(self.book, &Event::Decide { xid, commit: *commit, code });
            }
        }
        if let Some(limiting) = &asked.limits {
            match reply {
                Reply::Changed { .. } => self.operators.changed(limiting),
                Reply::Refused(refusal) if refusal.code == "queue-not-found" => self.operators.not_there(limiting),
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

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD_LETTERS: &str = "DLQ";

    fn ask(operators: &mut Operators, id: u64, limiting: Limiting) {
        operators.asked.insert(id, Asked { host: 0, told: None, decides: None, limits: Some(limiting) });
    }

    fn answer(operators: &mut Operators, id: u64) {
        let asked = operators.asked.remove(&id).expect("it was asked");
        operators.changed(&asked.limits.expect("it is about limits"));
    }

    /// Seeds 2943, 3189, 3645, 4836 and 5868: on a disk that stood still a lift was answered after the next limits had been given, and a
    /// dead-letter queue took nothing for ever.
    #[test]
    fn limits_that_were_given_while_others_were_being_lifted_are_lifted_as_well() {
        let mut operators = Operators::default();
        let limits = operators.limits((0, DEAD_LETTERS.into()));
        ask(&mut operators, 1, limits);
        answer(&mut operators, 1);
        let lift = operators.to_lift(0);
        assert_eq!(lift.len(), 1);
        ask(&mut operators, 2, lift[0].clone());
        let again = operators.limits((0, DEAD_LETTERS.into()));
        ask(&mut operators, 3, again);
        answer(&mut operators, 2);
        assert!(!operators.are_done(), "the limits given last are still there");
        answer(&mut operators, 3);
        let lift = operators.to_lift(0);
        assert_eq!(lift.len(), 1);
        ask(&mut operators, 4, lift[0].clone());
        answer(&mut operators, 4);
        assert!(operators.are_done());
    }

    /// Seed 7392 of d9a4e2c: a queue was ended, which was not safe on a full disk, its limits could not be lifted for it was not there, and
    /// the next start found both; its producers waited for ever.
    #[test]
    fn limits_of_a_queue_that_is_not_there_are_lifted_if_the_next_start_may_find_it() {
        let mut operators = Operators::default();
        for host in [0, 1] {
            let queue = (host, DEAD_LETTERS.to_owned());
            let limits = operators.limits(queue);
            operators.changed(&limits);
            let lift = operators.to_lift(host);
            operators.not_there(&lift[0]);
        }
        assert!(operators.are_done());
        operators.ended(0);
        assert!(!operators.are_done(), "it may be there again");
        assert_eq!((operators.to_lift(0).len(), operators.to_lift(1).len()), (1, 0));
        let lift = operators.to_lift(0);
        operators.changed(&lift[0]);
        assert!(operators.are_done());
        operators.ended(0);
        assert!(operators.are_done(), "it was lifted for good");
    }

    #[test]
    fn limits_are_not_lifted_before_they_are_there() {
        let mut operators = Operators::default();
        let limits = operators.limits((0, DEAD_LETTERS.into()));
        ask(&mut operators, 1, limits);
        assert_eq!(operators.to_lift(0), [], "a lift that goes by another shard may come first");
        answer(&mut operators, 1);
        assert_eq!(operators.to_lift(1), [], "another broker's");
        assert_eq!(operators.to_lift(0).len(), 1);
    }
}
