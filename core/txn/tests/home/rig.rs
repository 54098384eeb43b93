//! A home among simulated queues and a simulated store, whose every step can be held back. What it does to queues is judged here by the
//! log alone: nothing is applied before its record is durable, nothing is undone whose record may become durable.

use packhorse_model::{BrokerId, ClientSession, ConnectionId, Now, QueueId, ShardId, Token, TxnId, Xid};
use packhorse_store::Ticket;
use packhorse_txn::state::Verb;
use packhorse_txn::{
    Act, Audit, Cause, Code, Config, Control, Decision, Effect, Gathered, Heuristic, Home, Input, LostPart, NoWork,
    Part, Purpose, Record, Recovered, RecoveredBranch, Reply, ReplyTo, Resolution, Scan, SessionEffect, SessionInput,
    Sessions, SessionsConfig, Start, Turn, TxStatus, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// Ids of operations; odd ones do not survive a crash.
pub(crate) type Ops = Vec<u64>;

pub(crate) const BROKER: BrokerId = BrokerId([7; 16]);
pub(crate) const SESSION: ClientSession = ClientSession([9; 16]);

/// Connection and number of two controls.
pub(crate) const A: (u64, u32) = (1, 0);
pub(crate) const B: (u64, u32) = (2, 0);

pub(crate) fn world() -> World {
    World::new(|_| {})
}

pub(crate) fn lose(world: &mut World, connection: u64) {
    world.handle(Input::ConnectionLost { connection: ConnectionId(connection) });
}

pub(crate) fn control(connection: u64, number: u32) -> Control {
    Control { connection: ConnectionId(connection), number, shard: ShardId((connection % 2) as u16) }
}

pub(crate) fn xid(n: u8) -> Xid {
    Xid::new(1, &[n], &[1]).unwrap()
}

/// On the way between the home and others.
#[derive(Clone, Debug)]
pub(crate) enum Flight {
    Operations { txn: TxnId, queue: QueueId, ops: Ops },
    Gather { txn: TxnId, queue: QueueId, operations: u64 },
    Admit { txn: TxnId, session: ClientSession, counter: u64 },
}

/// A transaction's part in a queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Staged {
    pub(crate) ops: Ops,
    /// It was handed over: nothing is added to it any more.
    pub(crate) closed: bool,
    pub(crate) failed: Option<Cause>,
}

/// What the log says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    pub(crate) branches: BTreeMap<Xid, (RecoveredBranch, BTreeMap<QueueId, Ops>)>,
    pub(crate) completed: Vec<(Xid, Decision, u64)>,
    pub(crate) committed: BTreeSet<u64>,
    pub(crate) counters: BTreeSet<u64>,
}

pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) home: Home<Ops>,
    pub(crate) sessions: Sessions,
    pub(crate) ms: u64,
    pub(crate) log: Vec<(u64, Record<Ops>)>,
    pub(crate) written: u64,
    pub(crate) durable: u64,
    pub(crate) flights: Vec<Flight>,
    pub(crate) parts: BTreeMap<(TxnId, QueueId), Staged>,
    /// Operations that the home told to drop, or to undo, less those that came and were: see `core/queue`.
    pub(crate) owed: BTreeMap<(TxnId, QueueId), i64>,
    /// Operations that the home refused.
    pub(crate) refused_ops: BTreeSet<u64>,
    pub(crate) applied: Vec<(TxnId, QueueId, Resolution, Ops)>,
    pub(crate) replies: BTreeMap<u32, Reply>,
    pub(crate) asked: BTreeMap<u32, (Xid, Verb)>,
    pub(crate) refused: Vec<NoWork>,
    pub(crate) statuses: Vec<TxStatus>,
    pub(crate) closed: u32,
    pub(crate) audits: Vec<Audit>,
    pub(crate) volatile_lost: Vec<u64>,
    pub(crate) questions: u32,
    pub(crate) ops: u64,
}

impl World {
    pub(crate) fn new(change: impl FnOnce(&mut Config)) -> World {
        let mut config = Config::new(ShardId(0), 1, BROKER);
        change(&mut config);
        World {
            home: Home::new(config),
            sessions: Sessions::new(SessionsConfig::new(BROKER)),
            config,
            ms: 1_000,
            log: Vec::new(),
            written: 0,
            durable: 0,
            flights: Vec::new(),
            parts: BTreeMap::new(),
            owed: BTreeMap::new(),
            refused_ops: BTreeSet::new(),
            applied: Vec::new(),
            replies: BTreeMap::new(),
            asked: BTreeMap::new(),
            refused: Vec::new(),
            statuses: Vec::new(),
            closed: 0,
            audits: Vec::new(),
            volatile_lost: Vec::new(),
            questions: 0,
            ops: 0,
        }
    }

    fn turn(&self) -> Turn {
        let now = Now { mono_us: self.ms * 1000, wall_ms: self.ms as i64 };
        Turn { now, broker_ms: self.ms, ticket: Ticket(self.written + 1) }
    }

    pub(crate) fn handle(&mut self, input: Input<Ops>) {
        let mut out = Vec::new();
        self.home.handle(input, &self.turn(), &mut out);
        if out.iter().any(|effect| matches!(effect, Effect::Write(_))) {
            self.written += 1;
        }
        for effect in out {
            self.take(effect);
        }
    }

    fn take(&mut self, effect: Effect<Ops>) {
        match effect {
            Effect::Reply { to, reply } => {
                self.judge(to.question, &reply);
                assert!(self.replies.insert(to.question, reply).is_none(), "one answer to a question");
            }
            Effect::Refused { why, .. } => self.refused.push(why),
            Effect::Gather { txn, queue, operations, purpose } => {
                let there = purpose != Purpose::Decide || self.parts.contains_key(&(txn, queue));
                assert!(there, "numbers are asked for of a queue that has no part of {txn}");
                self.flights.push(Flight::Gather { txn, queue, operations });
            }
            Effect::Admit { txn, counter, session } => self.flights.push(Flight::Admit { txn, session, counter }),
            Effect::Ended { counter, session, committed } => {
                self.session(SessionInput::Ended { session, counter, committed });
            }
            Effect::Write(record) => self.log.push((self.written, *record)),
            Effect::Apply { txn, queue, operations, resolution } => self.apply(txn, queue, operations, resolution),
            Effect::Drop { txn, queue, operations } => {
                let open = self.parts.get(&(txn, queue)).is_some_and(|staged| !staged.closed);
                let undone = if open { self.parts.remove(&(txn, queue)).unwrap_or_default().ops } else { Ops::new() };
                self.owe(txn, queue, operations as i64 - undone.len() as i64);
            }
            Effect::Audit(audit) => self.audits.push(*audit),
            Effect::VolatileLost { count, .. } => self.volatile_lost.push(count),
        }
    }

    /// What the log says of a transaction's decision: whether there is one, and whether it is durable.
    fn decision(&self, txn: TxnId, queue: QueueId) -> (bool, Option<(Decision, bool)>) {
        let mut names = BTreeSet::new();
        let (mut prepared, mut decided) = (false, None);
        for (ticket, record) in &self.log {
            let durable = *ticket <= self.durable;
            match record {
                Record::Commit { txn: t, .. } if *t == txn => decided = Some((Decision::Commit, durable)),
                Record::Prepare { txn: t, xid, .. } if *t == txn => {
                    prepared = durable;
                    names.insert(xid.clone());
                }
                Record::Decide { xid, decision, .. } if names.contains(xid) => decided = Some((*decision, durable)),
                // The part in another queue is not concerned.
                Record::Heuristic { xid, outcome: Heuristic::PartRolledBack(q), .. }
                    if names.contains(xid) && *q != queue => {}
                Record::Heuristic { xid, decision, .. } if names.contains(xid) => {
                    decided = Some((*decision, durable));
                }
                Record::Forget { xid } => drop(names.remove(xid)),
                _ => {}
            }
        }
        (prepared, decided)
    }

    fn apply(&mut self, txn: TxnId, queue: QueueId, operations: u64, resolution: Resolution) {
        let (prepared, decided) = self.decision(txn, queue);
        let writes = self.log.iter().any(|(_, r)| matches!(r, Record::Prepare { txn: t, .. } if *t == txn));
        let mut staged = self.parts.remove(&(txn, queue)).unwrap_or_default();
        match resolution {
            Resolution::Prepared => {
                self.parts.insert((txn, queue), staged);
                assert!(prepared && decided.is_none(), "told to be prepared before that is durable");
                return;
            }
            Resolution::Commit => {
                let needless = decided.is_none() && !writes && staged.ops.iter().all(|op| op % 2 == 1);
                assert!(needless || decided == Some((Decision::Commit, true)), "committed without a durable record");
                assert_eq!(staged.ops.len() as u64, operations, "committed before all of it is there");
                assert!(staged.ops.iter().all(|op| !self.refused_ops.contains(op)), "committed what was refused");
            }
            Resolution::Rollback => {
                let told = decided == Some((Decision::Rollback, true));
                assert!(told || decided.is_none() && !writes, "undone, and its record may become durable: {decided:?}");
                self.owe(txn, queue, operations as i64 - staged.ops.len() as i64);
            }
        }
        let ops = std::mem::take(&mut staged.ops);
        self.applied.push((txn, queue, resolution, ops));
    }

    fn owe(&mut self, txn: TxnId, queue: QueueId, operations: i64) {
        let owed = self.owed.entry((txn, queue)).or_default();
        *owed += operations;
        if *owed == 0 {
            self.owed.remove(&(txn, queue));
        }
    }

    /// An answer is never ahead of the log.
    fn judge(&self, question: u32, reply: &Reply) {
        let Some((xid, verb)) = self.asked.get(&question) else { return };
        let stored = self.stored(self.durable);
        let completed = |how| stored.completed.iter().any(|(x, d, _)| x == xid && *d == how);
        match (verb, reply) {
            (Verb::Prepare, Reply::Code(Code::Ok)) => {
                assert!(stored.branches.contains_key(xid), "prepared, and the log does not know");
            }
            (Verb::Commit | Verb::CommitOnePhase, Reply::Code(Code::Ok)) => {
                assert!(!stored.branches.contains_key(xid), "committed, and the log has it in doubt");
                assert!(!completed(Decision::Rollback), "committed, and the log has it rolled back");
            }
            (Verb::Rollback, Reply::Code(Code::Ok)) => {
                assert!(!stored.branches.contains_key(xid), "rolled back, and the log has it in doubt");
                assert!(!completed(Decision::Commit), "rolled back, and the log has it committed");
            }
            (Verb::Forget, Reply::Code(Code::Ok)) => {
                assert!(!stored.branches.contains_key(xid), "forgotten, and a start would bring it back");
            }
            _ => {}
        }
    }

    fn session(&mut self, input: SessionInput) {
        let mut out = Vec::new();
        self.sessions.handle(input, self.ms, &mut out);
        for effect in out {
            match effect {
                SessionEffect::Admitted { txn, granted } => self.handle(Input::Admitted { txn, granted }),
                SessionEffect::CloseOthers { .. } => self.closed += 1,
                SessionEffect::Status { status, .. } => self.statuses.push(status),
            }
        }
    }

    pub(crate) fn status(&mut self, counter: u64) {
        let to = self.to(control(99, 0));
        let token = Token { broker: BROKER, session: SESSION, counter };
        self.session(SessionInput::Status { to, token });
    }

    pub(crate) fn open_session(&mut self, next: u64) {
        self.session(SessionInput::Open { session: SESSION, next });
    }

    /// Lets one thing that is on the way arrive; false: it must wait for another.
    pub(crate) fn arrive(&mut self, at: usize) -> bool {
        match self.flights[at].clone() {
            Flight::Operations { txn, queue, ops } => {
                self.flights.remove(at);
                for op in ops {
                    let closed = self.parts.get(&(txn, queue)).is_some_and(|staged| staged.closed);
                    if closed || self.owed.contains_key(&(txn, queue)) {
                        self.owe(txn, queue, -1);
                    } else {
                        self.parts.entry((txn, queue)).or_default().ops.push(op);
                    }
                }
            }
            Flight::Gather { txn, queue, operations } => {
                let staged = self.parts.entry((txn, queue)).or_default();
                if (staged.ops.len() as u64) < operations {
                    return false;
                }
                staged.closed = true;
                self.flights.remove(at);
                let part: Ops = staged.ops.iter().copied().filter(|op| op % 2 == 0).collect();
                let answer = match staged.failed {
                    Some(cause) => Gathered::Failed(cause),
                    None => Gathered::Ready {
                        persistent: !part.is_empty(),
                        volatile: (staged.ops.len() - part.len()) as u64,
                        part,
                    },
                };
                self.handle(Input::Gathered { txn, queue, answer });
            }
            Flight::Admit { txn, session, counter } => {
                self.flights.remove(at);
                self.session(SessionInput::Admit { txn, session, counter });
            }
        }
        true
    }

    pub(crate) fn flush(&mut self, up_to: u64) {
        self.durable = self.durable.max(up_to.min(self.written));
        self.handle(Input::Durable { up_to: Ticket(self.durable) });
    }

    /// Everything arrives, nothing flushes.
    pub(crate) fn settle(&mut self) {
        let mut at = 0;
        while at < self.flights.len() {
            at = if self.arrive(at) { 0 } else { at + 1 };
        }
    }

    /// Everything arrives and flushes.
    pub(crate) fn pump(&mut self) {
        loop {
            self.settle();
            if self.durable == self.written {
                break;
            }
            self.flush(self.written);
        }
        assert!(self.flights.is_empty(), "nothing waits for ever");
    }

    pub(crate) fn to(&mut self, control: Control) -> ReplyTo {
        self.questions += 1;
        ReplyTo { control, question: self.questions }
    }

    /// Asks, without waiting.
    pub(crate) fn ask(&mut self, control: Control, xid: &Xid, verb: Verb, timeout_ms: u64) -> u32 {
        let to = self.to(control);
        self.asked.insert(to.question, (xid.clone(), verb));
        let start = matches!(verb, Verb::Start | Verb::Join | Verb::Resume);
        let start = start.then(|| Start { timeout_ms, local_work: false, client: "test".into() });
        self.handle(Input::Xa { to, xid: xid.clone(), verb, start });
        to.question
    }

    /// Asks, and lets everything go on until it is answered.
    pub(crate) fn xa(&mut self, control: Control, xid: &Xid, verb: Verb) -> Code {
        let question = self.ask(control, xid, verb, 0);
        self.pump();
        self.code(question)
    }

    pub(crate) fn code(&self, question: u32) -> Code {
        self.replies.get(&question).expect("whoever reads a code has let its question be answered").code()
    }

    pub(crate) fn operate(&mut self, xid: &Xid, act: Act) -> Code {
        let question = self.operate_later(xid, act);
        self.pump();
        self.code(question)
    }

    pub(crate) fn operate_later(&mut self, xid: &Xid, act: Act) -> u32 {
        let to = self.to(control(77, 0));
        self.handle(Input::Operate { to, xid: xid.clone(), act, who: "ann".into(), reason: "stuck".into() });
        to.question
    }

    /// So many persistent operations in a queue.
    pub(crate) fn work(&mut self, control: Control, txn: TxnId, queue: u64, count: u64) -> Ops {
        self.work_with(control, txn, queue, count, false)
    }

    pub(crate) fn work_with(&mut self, control: Control, txn: TxnId, queue: u64, count: u64, volatile: bool) -> Ops {
        let queue = QueueId(queue);
        let ops: Ops = (0..count).map(|n| (self.ops + n) * 2 + u64::from(volatile)).collect();
        self.ops += count;
        let part = Part { adds: count, removes: 0, bytes: count * 10 };
        self.flights.push(Flight::Operations { txn, queue, ops: ops.clone() });
        let refused = self.refused.len();
        self.handle(Input::Work(Work { txn, control, queue, part, sent: true }));
        if self.refused.len() > refused {
            self.refused_ops.extend(&ops);
        }
        ops
    }

    pub(crate) fn fail_at(&mut self, txn: TxnId, queue: u64, cause: Cause) {
        self.parts.entry((txn, QueueId(queue))).or_default().failed = Some(cause);
    }

    pub(crate) fn txn(&self, xid: &Xid) -> TxnId {
        self.home.branch(xid, self.ms).expect("the branch was begun").txn
    }

    /// A branch that a control works in, with that much work in queues 1 and 2.
    pub(crate) fn working(&mut self, control: Control, xid: &Xid) -> (TxnId, Ops) {
        assert_eq!(self.xa(control, xid, Verb::Start), Code::Ok);
        let txn = self.txn(xid);
        let mut ops = self.work(control, txn, 1, 2);
        ops.extend(self.work(control, txn, 2, 1));
        (txn, ops)
    }

    pub(crate) fn prepared(&mut self, control: Control, xid: &Xid) -> (TxnId, Ops) {
        let (txn, ops) = self.working(control, xid);
        assert_eq!(self.xa(control, xid, Verb::End), Code::Ok);
        assert_eq!(self.xa(control, xid, Verb::Prepare), Code::Ok);
        (txn, ops)
    }

    pub(crate) fn declare(&mut self, control: Control) -> TxnId {
        let to = self.to(control);
        self.handle(Input::Declare { to, client: "test".into() });
        match self.replies.get(&to.question) {
            Some(Reply::Declared(txn)) => *txn,
            other => panic!(
                "a connection below its limit of {} open transactions may begin one, and the home says so at once, for nothing is \
                 written; it said {other:?}",
                self.config.open_per_connection_max
            ),
        }
    }

    pub(crate) fn discharge(&mut self, control: Control, txn: TxnId, fail: bool, counter: Option<u64>) -> u32 {
        let to = self.to(control);
        let token = counter.map(|counter| Token { broker: BROKER, session: SESSION, counter });
        self.handle(Input::Discharge { to, txn, fail, token });
        to.question
    }

    pub(crate) fn commit(&mut self, control: Control, txn: TxnId) -> Reply {
        let question = self.discharge(control, txn, false, None);
        self.pump();
        self.replies[&question].clone()
    }

    /// What `recover` lists, in pages of so many.
    pub(crate) fn recover(&mut self, max: u32) -> Vec<Xid> {
        let who = control(55, 0);
        let mut all = Vec::new();
        let mut flags = 0x0100_0000;
        loop {
            let to = self.to(who);
            self.handle(Input::Recover { to, scan: Scan::Flags(flags), max });
            let Some(Reply::Xids(page)) = self.replies.get(&to.question) else {
                panic!("a scan that was begun is answered at once: {:?}", self.replies.get(&to.question))
            };
            assert!(page.xids.len() <= max as usize);
            all.extend(page.xids.iter().cloned());
            if !page.more {
                return all;
            }
            assert_eq!(page.xids.len(), max as usize, "a page is full when there are more");
            flags = 0;
        }
    }

    pub(crate) fn rolled_back(&self, txn: TxnId) -> bool {
        let mut outcomes = self.applied.iter().filter(|(t, ..)| *t == txn).map(|(_, _, outcome, _)| *outcome);
        outcomes.next() == Some(Resolution::Rollback) && outcomes.all(|outcome| outcome == Resolution::Rollback)
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.ms += ms;
        self.handle(Input::Tick);
    }

    /// What the log up to there says. A store's fold does the same.
    pub(crate) fn stored(&self, up_to: u64) -> Stored {
        let mut all = Stored::default();
        for (_, record) in self.log.iter().filter(|(ticket, _)| *ticket <= up_to) {
            all.fold(record);
        }
        all
    }

    /// The process dies; what is not durable never was.
    pub(crate) fn crash(&mut self) {
        let stored = self.stored(self.durable);
        self.log.retain(|(ticket, _)| *ticket <= self.durable);
        self.written = self.durable;
        self.flights.clear();
        self.parts.clear();
        self.owed.clear();
        self.config.run += 1;
        self.home = Home::new(self.config);
        self.sessions = Sessions::new(SessionsConfig::new(BROKER));
        for (branch, ops) in stored.branches.into_values() {
            let decided = !matches!(branch.decided, None | Some((Heuristic::PartRolledBack(_), _)));
            for (queue, ops) in ops {
                if !decided {
                    self.parts.insert((branch.txn, queue), Staged { ops, closed: true, failed: None });
                }
            }
            self.handle(Input::Recovered(Box::new(Recovered::Branch(branch))));
        }
        for (xid, decision, at_ms) in stored.completed {
            self.handle(Input::Recovered(Box::new(Recovered::Completed { xid, decision, at_ms })));
        }
        if !stored.counters.is_empty() {
            let runs = stored.counters.iter().map(|n| (*n, *n)).collect();
            self.session(SessionInput::Recovered { session: SESSION, floor: 0, runs, used_ms: self.ms });
        }
    }
}

impl Stored {
    fn complete(&mut self, xid: &Xid, decision: Decision, at_ms: u64) {
        self.completed.retain(|(x, ..)| x != xid);
        self.completed.push((xid.clone(), decision, at_ms));
    }

    fn fold(&mut self, record: &Record<Ops>) {
        match record {
            Record::Commit { parts, token, xid, at_ms, .. } => {
                self.committed.extend(parts.iter().flat_map(|(_, ops)| ops));
                self.counters.extend(token.map(|token| token.counter));
                if let Some(xid) = xid {
                    self.complete(xid, Decision::Commit, *at_ms);
                }
            }
            Record::Prepare { txn, xid, parts, figures, client, wall_ms, at_ms } => {
                let mut volatile = 0;
                let figures = figures.iter().filter_map(|(queue, part)| {
                    let (_, ops) = parts.iter().find(|(q, _)| q == queue).unwrap();
                    volatile += part.operations() - ops.len() as u64;
                    let adds = ops.len() as u64;
                    (adds > 0).then_some((*queue, Part { adds, removes: 0, bytes: adds * 10 }))
                });
                let figures = figures.collect();
                let branch = RecoveredBranch {
                    txn: *txn,
                    xid: xid.clone(),
                    client: client.clone(),
                    wall_ms: *wall_ms,
                    at_ms: *at_ms,
                    parts: figures,
                    lost: Vec::new(),
                    volatile,
                    decided: None,
                };
                let ops = parts.iter().filter(|(_, ops)| !ops.is_empty()).cloned().collect();
                let before = self.branches.insert(xid.clone(), (branch, ops));
                assert!(before.is_none(), "an xid is prepared once");
            }
            Record::Decide { xid, decision, parts, at_ms } => {
                let (_, ops) = self.branches.remove(xid).expect("what is decided was prepared");
                if *decision == Decision::Commit {
                    for (queue, ops) in &ops {
                        assert!(parts.iter().any(|(q, drawn)| q == queue && drawn == ops), "numbers for all of it");
                    }
                    self.committed.extend(ops.values().flatten());
                }
                self.complete(xid, *decision, *at_ms);
            }
            Record::Heuristic { xid, outcome, decision, who, reason, wall_ms, .. } => {
                let (branch, ops) = self.branches.get_mut(xid).expect("what is decided was prepared");
                let (who, reason, wall_ms) = (who.clone(), reason.clone(), *wall_ms);
                let act = match (outcome, decision) {
                    (Heuristic::PartRolledBack(queue), _) => {
                        branch.parts.retain(|(q, _)| q != queue);
                        ops.remove(queue);
                        let (who, reason) = (who.clone(), reason.clone());
                        branch.lost.push(LostPart { queue: *queue, who, reason, wall_ms });
                        Act::Force(*queue)
                    }
                    (_, Decision::Commit) => {
                        self.committed.extend(ops.values().flatten());
                        Act::Commit
                    }
                    (_, Decision::Rollback) => Act::Rollback,
                };
                let audit = Audit { xid: xid.clone(), act, who, reason, wall_ms };
                branch.decided = Some((*outcome, Box::new(audit)));
            }
            Record::Forget { xid } => {
                self.branches.remove(xid);
                self.completed.retain(|(x, ..)| x != xid);
            }
        }
    }
}
