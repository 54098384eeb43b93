//! Random verbs, losses, timeouts and crashes against a naive model; and the same with everything held back at random, judged by the log.

use crate::rig::{World, control, xid};
use packhorse_model::{ConnectionId, QueueId, TxnId, Xid};
use packhorse_txn::state::Verb;
use packhorse_txn::{Act, Cause, Code, Control, Input, Reply, TxStatus};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    Verb(u8, u8, Verb),
    Work(u8, u8, bool),
    Fail(u8),
    LoseConnection(u8),
    LoseControl(u8),
    Pass(u16),
    Operate(u8, u8),
    Declare(u8),
    Discharge(u8, bool, bool),
    Status(u8),
    Crash,
    Arrive(u8),
    Flush(u8),
    Space(bool),
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        6 => Just(Verb::Start),
        2 => Just(Verb::Join),
        2 => Just(Verb::Resume),
        6 => Just(Verb::End),
        2 => Just(Verb::Suspend),
        1 => Just(Verb::Fail),
        6 => Just(Verb::Prepare),
        4 => Just(Verb::Commit),
        2 => Just(Verb::CommitOnePhase),
        3 => Just(Verb::Rollback),
        2 => Just(Verb::Forget),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0..4u8, 0..3u8, verb()).prop_map(|(who, x, verb)| Step::Verb(who, x, verb)),
        10 => (0..4u8, 0..3u8, any::<bool>()).prop_map(|(who, x, volatile)| Step::Work(who, x, volatile)),
        1 => (0..3u8).prop_map(Step::Fail),
        1 => (0..4u8).prop_map(Step::LoseConnection),
        1 => (0..4u8).prop_map(Step::LoseControl),
        2 => (1..3_000u16).prop_map(Step::Pass),
        3 => (0..3u8, 0..5u8).prop_map(|(x, act)| Step::Operate(x, act)),
        2 => (0..4u8).prop_map(Step::Declare),
        3 => (0..8u8, any::<bool>(), any::<bool>()).prop_map(|(n, fail, token)| Step::Discharge(n, fail, token)),
        1 => (0..8u8).prop_map(Step::Status),
        1 => Just(Step::Crash),
        20 => any::<u8>().prop_map(Step::Arrive),
        8 => any::<u8>().prop_map(Step::Flush),
        1 => any::<bool>().prop_map(Step::Space),
    ]
}

/// Four controls on two connections.
fn who(n: u8) -> Control {
    control(u64::from(n / 2) + 1, u32::from(n))
}

fn act(n: u8) -> Act {
    match n {
        0 => Act::Commit,
        1 => Act::Rollback,
        2 => Act::Forget,
        queue => Act::Force(QueueId(u64::from(queue) - 2)),
    }
}

const TIMEOUT_MS: u64 = 5_000;
const MEMORY_MS: u64 = 60_000;

/// A branch as a person would note it down.
#[derive(Clone, Debug, Default)]
struct Note {
    works: BTreeSet<Control>,
    rests: BTreeSet<Control>,
    /// Who is taken for a stranger that ends or resumes a suspended branch: the first that came to rest.
    order: Vec<Control>,
    connections: BTreeSet<ConnectionId>,
    queues: BTreeSet<u64>,
    failed: Option<Code>,
    /// Undone already, with this code.
    undone: Option<Code>,
    until_ms: u64,
    in_doubt: bool,
    force: bool,
    decided: Option<Code>,
}

#[derive(Clone, Debug, Default)]
struct Book {
    branches: BTreeMap<Xid, Note>,
    /// Outcome: nothing for committed, the code of what was rolled back; whether a crash leaves it; since when.
    ended: BTreeMap<Xid, (Option<Code>, bool, u64)>,
    full: bool,
    ms: u64,
}

impl Book {
    fn end(&mut self, x: &Xid, how: Option<Code>, durable: bool) {
        self.branches.remove(x);
        self.ended.insert(x.clone(), (how, durable, self.ms));
    }

    fn time(&mut self) {
        for note in self.branches.values_mut() {
            if !note.in_doubt && note.decided.is_none() && note.undone.is_none() && note.until_ms <= self.ms {
                note.undone = Some(Code::RolledBackTimeout);
            }
        }
    }

    fn lose(&mut self, lost: impl Fn(&Control) -> bool, connection: Option<ConnectionId>) {
        for (x, mut note) in self.branches.clone() {
            let had = note.works.iter().chain(&note.rests).any(&lost);
            let concerned = had || connection.is_some_and(|c| note.connections.contains(&c));
            if note.in_doubt || note.decided.is_some() || !concerned {
                continue;
            }
            note.works.retain(|c| !lost(c));
            note.rests.retain(|c| !lost(c));
            note.order.retain(|c| !lost(c));
            note.connections.retain(|c| Some(*c) != connection);
            let code = *note.undone.get_or_insert(Code::RolledBackCommunication);
            if note.works.is_empty() && note.rests.is_empty() {
                self.end(&x, Some(code), false);
            } else {
                self.branches.insert(x, note);
            }
        }
    }

    fn crash(&mut self) {
        self.branches.retain(|_, note| note.in_doubt || note.decided.is_some());
        self.ended.retain(|_, (_, durable, _)| *durable);
        self.full = false;
    }

    fn ask(&mut self, c: Control, x: &Xid, verb: Verb) -> Code {
        let busy = self.branches.values().any(|note| note.works.contains(&c));
        if matches!(verb, Verb::Start | Verb::Join | Verb::Resume) && busy {
            return Code::Protocol;
        }
        let Some(mut note) = self.branches.remove(x) else { return self.ask_nothing(c, x, verb) };
        let idle = note.works.is_empty() && note.rests.is_empty();
        let suspended = note.works.is_empty() && !note.rests.is_empty();
        let unprepared = !note.in_doubt && note.decided.is_none();
        let mut gone = None;
        let code = if let Some(code) = note.decided {
            match verb {
                Verb::Start => Code::Duplicate,
                Verb::Commit | Verb::Rollback => code,
                Verb::Forget => return Code::Ok,
                _ => Code::Protocol,
            }
        } else if note.in_doubt {
            match verb {
                Verb::Start => Code::Duplicate,
                Verb::Prepare => Code::Ok,
                Verb::Commit if self.full => Code::Retry,
                Verb::Commit | Verb::Rollback if note.force => {
                    note.decided = Some(Code::HeuristicMixed);
                    Code::HeuristicMixed
                }
                Verb::Commit => {
                    gone = Some((None, true));
                    Code::Ok
                }
                Verb::Rollback => {
                    gone = Some((Some(Code::RolledBack), true));
                    Code::Ok
                }
                _ => Code::Protocol,
            }
        } else if let Some(code) = note.undone {
            match verb {
                Verb::Start => Code::Duplicate,
                Verb::End | Verb::Suspend | Verb::Fail => {
                    note.works.remove(&c);
                    note.rests.remove(&c);
                    code
                }
                Verb::Join | Verb::Resume => code,
                Verb::Prepare | Verb::CommitOnePhase => {
                    gone = Some((Some(code), false));
                    code
                }
                Verb::Rollback => {
                    gone = Some((Some(code), false));
                    Code::Ok
                }
                _ => Code::Protocol,
            }
        } else {
            // Whose association it is: one's own, or of a suspended branch anybody's.
            let whose = if note.works.contains(&c) || note.rests.contains(&c) {
                Some(c)
            } else if suspended {
                note.order.iter().find(|o| note.rests.contains(o)).copied()
            } else {
                None
            };
            match verb {
                Verb::Start => Code::Duplicate,
                Verb::Join if !suspended => {
                    note.join(c);
                    Code::Ok
                }
                Verb::Resume if suspended => {
                    note.leave(whose.unwrap());
                    note.join(c);
                    Code::Ok
                }
                Verb::End if let Some(whose) = whose => {
                    note.leave(whose);
                    Code::Ok
                }
                Verb::Suspend if note.works.contains(&c) => {
                    note.leave(c);
                    note.rests.insert(c);
                    note.order.push(c);
                    Code::Ok
                }
                Verb::Fail if let Some(whose) = whose => {
                    note.leave(whose);
                    note.undone = Some(Code::RolledBack);
                    Code::Ok
                }
                Verb::Prepare | Verb::CommitOnePhase if idle && note.failed.is_some() => {
                    gone = Some((note.failed, false));
                    note.failed.unwrap()
                }
                Verb::Prepare if idle && note.queues.is_empty() => return Code::ReadOnly,
                Verb::Prepare if idle => {
                    note.in_doubt = true;
                    note.connections.clear();
                    Code::Ok
                }
                Verb::CommitOnePhase if idle => {
                    gone = Some((None, !note.queues.is_empty()));
                    Code::Ok
                }
                Verb::Rollback if idle => {
                    gone = Some((Some(Code::RolledBack), false));
                    Code::Ok
                }
                _ => Code::Protocol,
            }
        };
        assert!(unprepared || note.undone.is_none());
        match gone {
            Some((how, durable)) => self.end(x, how, durable),
            None => drop(self.branches.insert(x.clone(), note)),
        }
        code
    }

    fn ask_nothing(&mut self, c: Control, x: &Xid, verb: Verb) -> Code {
        let ended = self.ended.get(x).filter(|(_, _, at)| at + MEMORY_MS > self.ms).map(|(how, ..)| *how);
        match (verb, ended) {
            (Verb::Start, _) => {
                self.ended.remove(x);
                let mut note = Note { until_ms: self.ms + TIMEOUT_MS, ..Note::default() };
                note.join(c);
                self.branches.insert(x.clone(), note);
                Code::Ok
            }
            (Verb::Commit | Verb::CommitOnePhase, Some(None)) => Code::Ok,
            (Verb::Prepare | Verb::CommitOnePhase, Some(Some(code))) => code,
            (Verb::Rollback, Some(Some(_))) => Code::Ok,
            _ => Code::NotThere,
        }
    }

    fn operate(&mut self, x: &Xid, act: Act) -> Code {
        let Some(note) = self.branches.get_mut(x) else { return Code::NotThere };
        match (act, note.decided) {
            (Act::Force(queue), None) if note.in_doubt && note.queues.remove(&queue.0) => {
                if note.queues.is_empty() {
                    (note.in_doubt, note.decided) = (false, Some(Code::HeuristicRolledBack));
                }
                note.force = true;
                Code::Ok
            }
            (Act::Force(_), _) => Code::NotThere,
            (Act::Forget, Some(_)) => {
                self.branches.remove(x);
                Code::Ok
            }
            (_, Some(code)) => code,
            (Act::Commit | Act::Rollback, None) if note.in_doubt => {
                note.in_doubt = false;
                note.decided = Some(match act {
                    _ if note.force => Code::HeuristicMixed,
                    Act::Commit => Code::HeuristicCommitted,
                    _ => Code::HeuristicRolledBack,
                });
                Code::Ok
            }
            _ => Code::Protocol,
        }
    }

    fn listed(&self) -> Vec<Xid> {
        let listed = |note: &Note| note.in_doubt || note.decided.is_some();
        self.branches.iter().filter(|(_, note)| listed(note)).map(|(x, _)| x.clone()).collect()
    }
}

impl Note {
    fn join(&mut self, c: Control) {
        self.leave(c);
        self.works.insert(c);
        self.order.push(c);
        self.connections.insert(c.connection);
    }

    fn leave(&mut self, c: Control) {
        self.works.remove(&c);
        self.rests.remove(&c);
        self.order.retain(|o| *o != c);
    }
}

fn new_world() -> World {
    World::new(|config| {
        config.branch_timeout_ms = TIMEOUT_MS;
        config.memory_ms = MEMORY_MS;
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// One thing after the other: every code is the model's, and `recover` lists the model's set.
    #[test]
    fn verbs_are_answered_as_the_model_says(steps in prop::collection::vec(step(), 1..120)) {
        let (mut world, mut book) = (new_world(), Book { ms: 1_000, ..Book::default() });
        for step in steps {
            match step {
                Step::Verb(c, x, verb) => {
                    let said = world.xa(who(c), &xid(x), verb);
                    prop_assert_eq!(said, book.ask(who(c), &xid(x), verb), "{:?} {} {:?}", who(c), xid(x), verb);
                }
                Step::Work(c, x, _) => {
                    let Some(note) = book.branches.get_mut(&xid(x)) else { continue };
                    let txn = world.txn(&xid(x));
                    let queue = u64::from(c % 2) + 1;
                    let refused = world.refused.len();
                    world.work(who(c), txn, queue, 1);
                    world.pump();
                    let takes = note.works.contains(&who(c)) && note.undone.is_none();
                    prop_assert_eq!(world.refused.len() == refused, takes);
                    if takes {
                        note.queues.insert(queue);
                    } else if !note.in_doubt && note.decided.is_none() {
                        // It is with its queue all the same, and ends with the branch.
                        note.undone.get_or_insert(note.failed.unwrap_or(Cause::OperationFailed.code()));
                    }
                }
                Step::Fail(x) => {
                    let Some(note) = book.branches.get_mut(&xid(x)) else { continue };
                    let txn = world.txn(&xid(x));
                    world.handle(Input::Failed { txn, cause: Cause::Stale });
                    note.failed = Some(Code::RolledBackIntegrity);
                }
                Step::LoseConnection(c) => {
                    let connection = who(c).connection;
                    world.handle(Input::ConnectionLost { connection });
                    book.lose(|c| c.connection == connection, Some(connection));
                }
                Step::LoseControl(c) => {
                    world.handle(Input::ControlLost { control: who(c) });
                    book.lose(|lost| *lost == who(c), None);
                }
                Step::Pass(ms) => {
                    world.pass(u64::from(ms));
                    book.ms += u64::from(ms);
                    book.time();
                }
                Step::Operate(x, n) => {
                    prop_assert_eq!(world.operate(&xid(x), act(n)), book.operate(&xid(x), act(n)));
                }
                Step::Space(full) => {
                    world.handle(Input::Space { full });
                    book.full = full;
                }
                Step::Crash => {
                    world.crash();
                    book.crash();
                }
                _ => continue,
            }
            prop_assert_eq!(world.recover(2), book.listed());
        }
    }

    /// Everything is held back at random. The rig judges each effect and answer by the log (`rig.rs`); here it is judged that
    /// `recover` is what the durable log says, at all times, that local commits told are in it, and that everything comes to rest.
    #[test]
    fn nothing_is_told_or_done_ahead_of_the_log(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = new_world();
        world.open_session(1);
        let mut locals: Vec<(Control, TxnId, Vec<u64>)> = Vec::new();
        let mut commits: Vec<(u32, Vec<u64>)> = Vec::new();
        let mut counter = 0;
        for step in steps {
            match step {
                Step::Verb(c, x, verb) => drop(world.ask(who(c), &xid(x), verb, 0)),
                Step::Work(c, x, volatile) => {
                    let queue = u64::from(x) + 1;
                    if let Some(view) = world.home.branch(&xid(x), world.ms) {
                        world.work_with(who(c), view.txn, queue, 2, volatile);
                    }
                    if let Some((control, txn, ops)) = locals.get_mut(usize::from(c)) {
                        let refused = world.refused.len();
                        let work = world.work_with(*control, *txn, queue, 2, volatile);
                        if world.refused.len() == refused && !volatile {
                            ops.extend(work);
                        }
                    }
                }
                Step::Fail(x) => {
                    if let Some(view) = world.home.branch(&xid(x), world.ms) {
                        world.handle(Input::Failed { txn: view.txn, cause: Cause::Full });
                    }
                }
                Step::LoseConnection(c) => world.handle(Input::ConnectionLost { connection: who(c).connection }),
                Step::LoseControl(c) => world.handle(Input::ControlLost { control: who(c) }),
                Step::Pass(ms) => world.pass(u64::from(ms)),
                Step::Operate(x, n) => drop(world.operate_later(&xid(x), act(n))),
                Step::Declare(c) => {
                    let txn = world.declare(who(c));
                    locals.push((who(c), txn, Vec::new()));
                }
                Step::Discharge(n, fail, token) if !locals.is_empty() => {
                    let (control, txn, ops) = locals.remove(usize::from(n) % locals.len());
                    counter += u64::from(token);
                    let question = world.discharge(control, txn, fail, token.then_some(counter));
                    commits.push((question, ops));
                }
                Step::Discharge(..) => {}
                Step::Status(n) => world.status(u64::from(n)),
                Step::Space(full) => world.handle(Input::Space { full }),
                Step::Crash => {
                    world.crash();
                    locals.clear();
                    world.open_session(counter + 1);
                }
                Step::Arrive(n) => {
                    if !world.flights.is_empty() {
                        world.arrive(usize::from(n) % world.flights.len());
                    }
                }
                Step::Flush(n) => world.flush(world.durable + u64::from(n % 4)),
            }
            let durable: Vec<Xid> = world.stored(world.durable).branches.into_keys().collect();
            prop_assert_eq!(world.recover(2), durable);
            let committed = world.stored(world.durable).committed;
            prop_assert!(world.refused_ops.is_disjoint(&committed), "committed what was refused");
            for (question, ops) in &commits {
                match world.replies.get(question) {
                    Some(Reply::Committed) => prop_assert!(ops.iter().all(|op| committed.contains(op))),
                    Some(_) => prop_assert!(ops.iter().all(|op| !committed.contains(op))),
                    None => {}
                }
            }
        }
        world.pump();
        for connection in [1, 2] {
            world.handle(Input::ConnectionLost { connection: ConnectionId(connection) });
        }
        world.pump();
        // What is left is what the log has in doubt or decided, and nothing of others is left anywhere.
        let stats = world.home.stats(world.ms);
        prop_assert_eq!((stats.local, stats.branches as usize), (0, world.recover(100).len()));
        let doubtful: BTreeSet<TxnId> = world.home.branches(None, 100, world.ms).iter().map(|view| view.txn).collect();
        prop_assert!(world.parts.keys().all(|(txn, _)| doubtful.contains(txn)), "{:?}", world.parts);
        prop_assert!(world.owed.is_empty(), "every operation came, and was named once: {:?}", world.owed);
        prop_assert_eq!(world.home.next_deadline(), None);
    }

    /// Of a commit that is asked about, both sides hear the same.
    #[test]
    fn a_status_agrees_with_the_commit(
        order in prop::collection::vec((0..3u8, any::<u8>()), 1..20),
        crash in any::<bool>(),
    ) {
        let mut world = new_world();
        world.open_session(1);
        let a = control(1, 0);
        let txn = world.declare(a);
        let ops = world.work(a, txn, 1, 2);
        let mut question = None;
        for (what, n) in order {
            match what {
                0 if question.is_none() => question = Some(world.discharge(a, txn, false, Some(5))),
                1 if world.statuses.is_empty() => world.status(5),
                _ if !world.flights.is_empty() => drop(world.arrive(usize::from(n) % world.flights.len())),
                _ => world.flush(world.durable + u64::from(n % 2)),
            }
        }
        if crash {
            let told = world.statuses.clone();
            world.crash();
            world.status(5);
            // A session whose first commit died with the process is not known: neither.
            let now = *world.statuses.last().unwrap();
            let consistent = told.first().is_none_or(|told| now == *told || (*told, now) == (TxStatus::RolledBack, TxStatus::Expired));
            prop_assert!(consistent, "{:?} then {:?}", told, now);
            prop_assert_eq!(now == TxStatus::Committed, ops.iter().all(|op| world.stored(world.durable).committed.contains(op)));
            return Ok(());
        }
        let question = question.unwrap_or_else(|| world.discharge(a, txn, false, Some(5)));
        world.pump();
        world.status(5);
        let committed = world.replies[&question] == Reply::Committed;
        let expected = if committed { TxStatus::Committed } else { TxStatus::RolledBack };
        prop_assert!(world.statuses.iter().all(|status| *status == expected), "{:?}", world.statuses);
    }
}
