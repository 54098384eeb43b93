//! What scripts say of transactions: clients that ask a coordinator, the log of whoever manages branches, operators who decide.

use super::{HOST, Receiver, Script, Sender, Who};
use crate::books::{host_name, queue_name};
use crate::client::{Branch as Name, Desk, Order, Question, Queue, Role, Said, Scripted, Subject, Tx, Verb};
use crate::draw::Draw;
use crate::message::Shape;
use packhorse_broker::{By, Command, Input, Reply, TxAct};
use packhorse_client_core::transaction::{TxOutcome, flags};
use packhorse_client_core::{Commits, Verdict};
use packhorse_history::Event;
use packhorse_model::{ShardId, Xid};
use std::collections::BTreeMap;

/// Branches on one page of a list.
const PAGE: u32 = 2;

/// A client's link to the coordinator: a thread of control of XA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    who: Who,
    at: usize,
}

/// A branch, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch(Subject);

/// What a manager of branches knows of one, by the answers that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Prepare was asked for, and there is no answer.
    Asked,
    /// Prepare was answered with `XA_OK`.
    Prepared,
    /// A decision was asked for (true: commit), and there is no answer.
    Deciding(bool),
    /// That was answered.
    Decided(bool),
    /// An operator has decided it, and it is not forgotten.
    Heuristic,
    /// A forget was asked for, and there is no answer.
    Forgetting,
    /// The broker has it no more.
    Gone,
}

/// The log of whoever manages branches: what was asked and answered, and nothing of the broker's own lists.
#[derive(Debug, Default)]
pub(super) struct Log(BTreeMap<Name, Heard>);

impl Log {
    fn asks(&mut self, name: &Name, verb: Verb) {
        let heard = match verb {
            Verb::Prepare if self.0.get(name).is_none_or(|heard| *heard == Heard::Gone) => Heard::Asked,
            Verb::Commit { one_phase: false } | Verb::Rollback
                if matches!(self.0.get(name), Some(Heard::Asked | Heard::Prepared | Heard::Deciding(_))) =>
            {
                Heard::Deciding(verb != Verb::Rollback)
            }
            Verb::Forget if self.0.get(name) == Some(&Heard::Heuristic) => Heard::Forgetting,
            _ => return,
        };
        self.0.insert(name.clone(), heard);
    }

    fn hears(&mut self, name: &Name, verb: Verb, code: i32) {
        let known = self.0.get(name).copied();
        let heard = match (verb, code, known) {
            (Verb::Prepare, 0, Some(Heard::Asked)) => Heard::Prepared,
            (Verb::Prepare, 3 | -4 | 100..=107, Some(Heard::Asked)) => Heard::Gone,
            (Verb::Commit { .. } | Verb::Rollback, 0, Some(Heard::Deciding(commit))) => Heard::Decided(commit),
            (Verb::Commit { .. } | Verb::Rollback, -4 | 100..=107, Some(Heard::Deciding(_))) => Heard::Gone,
            (Verb::Commit { .. } | Verb::Rollback, 5..=8, Some(_)) => Heard::Heuristic,
            // It is as it was.
            (Verb::Commit { .. } | Verb::Rollback, _, Some(Heard::Deciding(_))) => Heard::Prepared,
            (Verb::Forget, 0 | -4, Some(_)) => Heard::Gone,
            _ => return,
        };
        self.0.insert(name.clone(), heard);
    }

    /// A line for each difference to what a broker lists.
    fn judge(&self, listed: &[Name]) -> Vec<String> {
        let surely = |heard: &Heard| matches!(heard, Heard::Prepared | Heard::Heuristic);
        let missing = self.0.iter().filter(|(name, heard)| surely(heard) && !listed.contains(name));
        let mut wrong: Vec<String> =
            missing.map(|(name, heard)| format!("{} is {heard:?}, and is not listed", name.name())).collect();
        for name in listed {
            match self.0.get(name) {
                Some(Heard::Decided(_) | Heard::Gone) | None => {
                    wrong.push(format!("{} is listed, and is {:?}", name.name(), self.0.get(name)));
                }
                Some(_) => {}
            }
        }
        wrong
    }
}

impl Script {
    // ---- names ----

    /// A branch that nobody has begun.
    pub fn branch(&mut self) -> Branch {
        let tx = self.world.books.tx();
        let name = Name::new(tx, HOST);
        let (xid, broker) = (name.name(), host_name(HOST));
        let book = self.world.book;
        self.world.books.put(book, &Event::TxBegin { tx, xid: Some(&xid), broker: Some(&broker) });
        Branch(Subject { name, tx: Some(tx) })
    }

    /// A name of which the history is told nothing; nothing may be prepared under it.
    pub fn unrecorded(&self, format: i32, global: &[u8], qualifier: &[u8]) -> Branch {
        let name = Name { format, global: global.to_vec(), qualifier: qualifier.to_vec() };
        Branch(Subject { name, tx: None })
    }

    /// The same name, of which the history is told nothing more.
    pub fn again(&self, branch: &Branch) -> Branch {
        Branch(Subject { tx: None, ..branch.0.clone() })
    }

    // ---- clients ----

    /// A client whose commits have names: those of this session, the next one with this number.
    pub fn client_of(&mut self, session: [u8; 16], next: u64) -> Who {
        let number = self.world.people.len();
        let dice = Draw::new(self.world.seed, 1_000 + number as u64);
        let role = Role::Script(Scripted::new(dice, Some(Commits { session, next })));
        let at = self.world.now_us + 1;
        self.world.join(HOST, role, at);
        Who(number)
    }

    /// A link of a client to the coordinator.
    pub fn control(&mut self, who: Who) -> Control {
        let at = self.orders(who, |order| matches!(order, Order::Control)) + self.scripted(who).desks.len();
        self.order(who, Order::Control);
        Control { who, at }
    }

    /// A new client's link to the coordinator.
    pub fn manager(&mut self) -> Control {
        let who = self.client();
        self.control(who)
    }

    fn desk(&self, control: Control) -> Option<&Desk> {
        self.scripted(control.who).desks.get(control.at)
    }

    /// The client of a link to the coordinator.
    pub fn client_of_control(&self, control: Control) -> Who {
        control.who
    }

    /// Asks, and waits. `None`: the connection ended before the answer.
    fn asked(&mut self, control: Control, question: Question) -> Option<Said> {
        let before = self.answers(control);
        self.order(control.who, Order::Ask { control: control.at, question });
        self.until("a coordinator answers", |script| script.answers(control) > before || !script.is_there(control.who));
        self.desk(control).and_then(|desk| desk.answers.get(before)).cloned()
    }

    fn answers(&self, control: Control) -> usize {
        self.desk(control).map_or(0, |desk| desk.answers.len())
    }

    fn verb(&mut self, control: Control, branch: &Branch, verb: Verb) -> Option<i32> {
        let before = self.answers(control);
        self.post(control, branch, verb);
        self.until("a coordinator answers", |script| script.answers(control) > before || !script.is_there(control.who));
        let said = self.desk(control).and_then(|desk| desk.answers.get(before)).cloned()?;
        let code = match said {
            Said::Declared(_) => 0,
            Said::Code(code, ..) => code,
            other => self.give_up(&format!("a coordinator says {other:?} to {verb:?}")),
        };
        self.log.hears(&branch.0.name, verb, code);
        Some(code)
    }

    /// Asks, and does not wait.
    fn post(&mut self, control: Control, branch: &Branch, verb: Verb) {
        self.log.asks(&branch.0.name, verb);
        let question = Question::Branch(branch.0.clone(), verb);
        self.order(control.who, Order::Ask { control: control.at, question });
    }

    /// `xa_start` with these flags: the code; then there is [`Script::tx`].
    pub fn start(&mut self, control: Control, branch: &Branch, flags: u32) -> Option<i32> {
        self.verb(control, branch, Verb::Start { flags, timeout_ms: 0 })
    }

    /// A branch begins, with a timeout.
    pub fn start_for(&mut self, control: Control, branch: &Branch, timeout_ms: u64) -> Option<i32> {
        self.verb(control, branch, Verb::Start { flags: flags::NONE, timeout_ms })
    }

    /// A branch begins that is new; to work in it.
    pub fn begin(&mut self, control: Control, branch: &Branch) -> Tx {
        assert_eq!(self.start(control, branch, flags::NONE), Some(0), "a branch begins");
        self.tx(control)
    }

    /// What was started or declared last, to work in it.
    pub fn tx(&self, control: Control) -> Tx {
        self.desk(control).and_then(|desk| desk.txs.last()).expect("something was started").clone()
    }

    /// `xa_end` with these flags.
    pub fn end(&mut self, control: Control, branch: &Branch, flags: u32) -> Option<i32> {
        self.verb(control, branch, Verb::End(flags))
    }

    /// `xa_prepare`
    pub fn prepare(&mut self, control: Control, branch: &Branch) -> Option<i32> {
        self.verb(control, branch, Verb::Prepare)
    }

    /// `xa_commit` of two phases, or `xa_rollback`.
    pub fn decide_branch(&mut self, control: Control, branch: &Branch, commit: bool) -> Option<i32> {
        if commit { self.commit(control, branch) } else { self.rollback(control, branch) }
    }

    /// `xa_commit`, the second of two phases.
    pub fn commit(&mut self, control: Control, branch: &Branch) -> Option<i32> {
        self.verb(control, branch, Verb::Commit { one_phase: false })
    }

    /// `xa_commit(TMONEPHASE)`
    pub fn commit_one_phase(&mut self, control: Control, branch: &Branch) -> Option<i32> {
        self.verb(control, branch, Verb::Commit { one_phase: true })
    }

    /// `xa_rollback`
    pub fn rollback(&mut self, control: Control, branch: &Branch) -> Option<i32> {
        self.verb(control, branch, Verb::Rollback)
    }

    /// `xa_forget`
    pub fn forget(&mut self, control: Control, branch: &Branch) -> Option<i32> {
        self.verb(control, branch, Verb::Forget)
    }

    /// `xa_recover`, all pages. It is compared with the log of what all managers of this script were answered.
    ///
    /// # Panics
    /// If it is not what they know.
    pub fn recover(&mut self, control: Control) -> Vec<Branch> {
        let said = self.asked(control, Question::Recover { page: PAGE });
        let Some(Said::Code(0, listed, _)) = said else { self.give_up(&format!("recover is answered with {said:?}")) };
        let wrong = self.log.judge(&listed);
        if !wrong.is_empty() {
            self.give_up(&format!("recover: {wrong:#?}"));
        }
        let tx = |name: &Name| <[u8; 8]>::try_from(name.global.as_slice()).ok().map(u64::from_be_bytes);
        listed.into_iter().map(|name| Branch(Subject { tx: tx(&name), name })).collect()
    }

    /// What the managers of this script know of a branch that they asked to prepare.
    pub fn heard(&self, branch: &Branch) -> Option<Heard> {
        self.log.0.get(&branch.0.name).copied()
    }

    // ---- verbs whose answers nobody waits for ----

    /// A branch begins.
    pub fn post_start(&mut self, control: Control, branch: &Branch) {
        self.post(control, branch, Verb::Start { flags: flags::NONE, timeout_ms: 0 });
    }

    /// `xa_end(TMSUCCESS)`
    pub fn post_end(&mut self, control: Control, branch: &Branch) {
        self.post(control, branch, Verb::End(flags::SUCCESS));
    }

    /// `xa_prepare`
    pub fn post_prepare(&mut self, control: Control, branch: &Branch) {
        self.post(control, branch, Verb::Prepare);
    }

    /// `xa_commit` of two phases, or `xa_rollback`.
    pub fn post_decision(&mut self, control: Control, branch: &Branch, commit: bool) {
        self.post(control, branch, if commit { Verb::Commit { one_phase: false } } else { Verb::Rollback });
    }

    /// `xa_forget`
    pub fn post_forget(&mut self, control: Control, branch: &Branch) {
        self.post(control, branch, Verb::Forget);
    }

    // ---- local transactions ----

    /// Begins a local transaction.
    pub fn declare(&mut self, control: Control) -> Tx {
        let tx = self.world.books.tx();
        let said = self.asked(control, Question::Declare(tx));
        assert!(matches!(said, Some(Said::Declared(_))), "{said:?}");
        self.tx(control)
    }

    /// Commits it under this number of its client's session. `None`: the connection ended before the answer; false: it was refused.
    pub fn commit_as(&mut self, control: Control, tx: &Tx, counter: u64) -> Option<bool> {
        let said = self.asked(control, Question::CommitAs(tx.clone(), counter))?;
        Some(said == Said::Done)
    }

    /// What became of the commit of this number, of this transaction.
    pub fn status(&mut self, control: Control, tx: &Tx, counter: u64) -> TxOutcome {
        match self.asked(control, Question::Status { tx: tx.number, counter }) {
            Some(Said::Became(outcome)) => outcome,
            other => self.give_up(&format!("the status of a commit is {other:?}")),
        }
    }

    // ---- work ----

    /// Sends so many ordinary messages in a transaction.
    pub fn send_in(&mut self, tx: &Tx, sender: Sender, count: u64) {
        for _ in 0..count {
            self.send_shaped_in(tx, sender, Shape::default());
        }
    }

    /// Sends a message of this shape in a transaction.
    pub fn send_shaped_in(&mut self, tx: &Tx, sender: Sender, shape: Shape) {
        self.order(sender.who, Order::Send { out: sender.out, shape, tx: Some(tx.clone()) });
    }

    /// Sends something in a transaction that no broker can read.
    pub fn spoil(&mut self, tx: &Tx, sender: Sender) {
        self.order(sender.who, Order::Spoil { out: sender.out, tx: tx.clone() });
    }

    /// Acknowledges a delivery in a transaction.
    pub fn accept_in(&mut self, tx: &Tx, receiver: Receiver, delivery: u32) {
        let (tx, verdict) = (Some(tx.clone()), Verdict::Accept);
        self.order(receiver.who, Order::Decide { input: receiver.input, delivery, verdict, tx });
    }

    /// Says of a delivery, whether it is there or not, that it is accepted in a transaction.
    pub fn claim_in(&mut self, tx: &Tx, who: Who, delivery: u32) {
        self.order(who, Order::Claim { delivery, accept: true, tx: Some(tx.clone()) });
    }

    // ---- what is there ----

    /// What a new browsing link is shown, by producing link and number.
    pub fn browse(&mut self, queue: &str) -> Vec<(u32, u64)> {
        let who = self.client();
        self.order(who, Order::Browse(Queue::new(HOST, queue)));
        self.rest();
        let seen = self.scripted(who).shown[0].seen.clone();
        self.close(who);
        self.until("a browser leaves", |script| !script.is_there(who));
        seen
    }

    /// The number of a producing link in the history, as [`crate::Got`] has it; the link stands.
    pub fn number_of(&self, sender: Sender) -> u32 {
        self.scripted(sender.who).producer(sender.out).expect("the link stands")
    }

    /// Of a queue: `ready`, `prepared_in`, `prepared_out`, `depth`; nothing of one that is not there.
    pub fn counts(&mut self, queue: &str) -> [u64; 4] {
        self.queue(queue).map_or([0; 4], |queue| {
            let counters = queue.counters;
            [counters.ready, counters.prepared_in, counters.prepared_out, counters.depth]
        })
    }

    // ---- operators ----

    /// Gives a command to the broker. `None`: it ended before the answer.
    pub fn operate(&mut self, command: Command) -> Option<Reply> {
        // The answer comes when it is durable.
        self.world.asked += 1;
        let (id, now) = (self.world.asked, self.world.hosts[HOST].now(self.world.now_us));
        let (mut effects, starts) = (Vec::new(), self.starts());
        let Some(life) = &mut self.world.hosts[HOST].life else { self.give_up("the broker does not run") };
        life.node.turn([(ShardId(0), Input::Admin { id, command })], now, &mut effects);
        self.world.obey(HOST, &mut effects);
        self.world.advance(HOST);
        let answer = |script: &Script| script.world.replies.iter().position(|(of, _)| *of == id);
        self.until("an operator is answered", |script| {
            answer(script).is_some() || script.starts() > starts || !script.is_running()
        });
        answer(self).map(|at| self.world.replies.swap_remove(at).1)
    }

    /// An operator decides a branch. `None`: the broker ended before the answer; false: it was refused.
    pub fn decide_by_operator(&mut self, branch: &Branch, commit: bool) -> Option<bool> {
        let (xid, book) = (branch.0.name.name(), self.world.book);
        self.world.books.put(book, &Event::Decide { xid: &xid, commit, code: None });
        let act = if commit { TxAct::Commit } else { TxAct::Rollback };
        let name = Xid::parse(&xid).expect("it is one");
        let reply = self.operate(Command::TxDecide { xid: name, act, by: insists() })?;
        let done = matches!(reply, Reply::Decided { .. });
        let code = Some(if done { 0 } else { -6 });
        self.world.books.put(book, &Event::Decide { xid: &xid, commit, code });
        if done {
            self.log.0.insert(branch.0.name.clone(), Heard::Heuristic);
        }
        Some(done)
    }

    /// An operator deletes a queue, whatever it holds; with `insists` even if branches in doubt have work in it. Err: the code of the
    /// refusal.
    pub fn delete(&mut self, queue: &str, by_force: bool) -> Result<u64, &'static str> {
        self.operations += 1;
        let (operation, full, book) = (self.operations, queue_name(HOST, queue), self.world.book);
        let event = |messages| Event::Purge { operation, queue: &full, deletes: true, messages };
        self.world.books.put(book, &event(None));
        let by = by_force.then(insists);
        let reply = self.operate(Command::QueueDelete { name: queue.to_owned(), force: by_force, by });
        let answer = match reply {
            Some(Reply::Deleted { messages }) => Ok(messages),
            Some(Reply::Refused(refusal)) => Err(refusal.code),
            other => self.give_up(&format!("a deletion is answered with {other:?}")),
        };
        self.world.books.put(book, &event(Some(answer.unwrap_or(0))));
        answer
    }
}

fn insists() -> By {
    By { who: "operator".into(), reason: "as the script says".into() }
}
