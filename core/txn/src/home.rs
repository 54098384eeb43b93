//! A home: the transactions of one shard, and what happens to them.

mod branch;
mod local;
mod planted;
mod steps;
mod view;

pub use view::{Page, Stats, View};

use crate::memory::Memory;
use crate::parts::Parts;
use crate::state::{State, Verb};
use crate::{
    Audit, Cause, Config, Control, Effect, Heuristic, Input, Limit, LostPart, NoWork, Part, Recovered, RecoveredBranch,
    Refusal, Reply, ReplyTo, Resolution, Start, Turn, Work,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use packhorse_model::{BrokerId, ConnectionId, QueueId, Recent, ShardId, Token, TxnId, Xid};
use packhorse_store::Ticket;

/// The transactions whose state this shard keeps. `P` is a queue's part of a record: its operations with their bodies.
#[derive(Debug)]
pub struct Home<P> {
    config: Config,
    /// The number of the latest transaction.
    last: u64,
    txns: Recent<TxnId, Txn<P>>,
    names: BTreeMap<Xid, TxnId>,
    /// Connections that work or worked in what is not prepared.
    owners: BTreeSet<(ConnectionId, TxnId)>,
    /// Connections whose starts, joins or resumes wait for a branch that is on its way.
    knocking: BTreeSet<(ConnectionId, TxnId)>,
    /// The branch that a control works in.
    active: BTreeMap<Control, TxnId>,
    deadlines: BTreeSet<(u64, TxnId)>,
    /// Records written, in the order of their tickets.
    flushing: VecDeque<(Ticket, TxnId)>,
    memory: Memory,
    /// Where a control's `recover` goes on: after this one.
    scans: BTreeMap<Control, Option<Xid>>,
    full: bool,
    failed: bool,
    /// Operators' decisions since the start.
    heuristics: u64,
}

/// A transaction.
#[derive(Debug)]
struct Txn<P> {
    /// Of a branch. A local transaction has none; it knows the states associated (open), rollback-only and committing.
    xid: Option<Xid>,
    client: Arc<str>,
    state: State,
    /// Why it cannot be committed.
    cause: Option<Cause>,
    parts: Parts,
    /// Sum over the parts, as long as work is taken.
    staged_bytes: u64,
    /// Associations; true: active. Of a local transaction, who declared it.
    controls: Vec<(Control, bool)>,
    /// Connections that work or worked in it, until it is prepared.
    connections: Vec<ConnectionId>,
    deadline: Option<u64>,
    /// Wall clock and broker time of its start, or its prepare.
    wall_ms: i64,
    at_ms: u64,
    going: Option<Box<Going<P>>>,
    waiting: VecDeque<Ask>,
    lost: Vec<LostPart>,
    volatile: u64,
    /// It is from before this start, so that what is volatile in it is lost.
    recovered: bool,
    decided: Option<Box<Audit>>,
}

/// What a transaction on its way is on the way to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Start,
    Prepare,
    Commit,
    DecideCommit,
    DecideRollback,
    Force(QueueId),
    Forget,
}

#[derive(Debug)]
struct Going<P> {
    goal: Goal,
    to: Option<ReplyTo>,
    /// The operator whose decision it is.
    by: Option<Box<Audit>>,
    /// Queues that have not handed over their parts.
    pending: BTreeSet<QueueId>,
    /// The table of client sessions has not answered.
    admission: bool,
    token: Option<Token>,
    parts: Vec<(QueueId, P)>,
    persistent: bool,
    volatile: u64,
    written: bool,
}

/// A question to a branch, which may have to wait.
#[derive(Clone, Debug)]
enum Ask {
    Xa { to: Option<ReplyTo>, control: Control, verb: Verb, start: Option<Start> },
    Operate { to: ReplyTo, audit: Box<Audit> },
    Lose(Lost),
    Timeout,
}

/// Who is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Connection(ConnectionId),
    Control(Control),
}

impl Lost {
    fn takes(self, control: &Control) -> bool {
        match self {
            Lost::Connection(connection) => control.connection == connection,
            Lost::Control(lost) => *control == lost,
        }
    }

    fn connection(self) -> ConnectionId {
        match self {
            Lost::Connection(connection) => connection,
            Lost::Control(control) => control.connection,
        }
    }
}

impl<P> Home<P> {
    /// A home without transactions.
    #[must_use]
    pub fn new(config: Config) -> Home<P> {
        Home {
            config,
            last: 0,
            txns: Recent::new(),
            names: BTreeMap::new(),
            owners: BTreeSet::new(),
            knocking: BTreeSet::new(),
            active: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            flushing: VecDeque::new(),
            memory: Memory::new(config.memory_ms, config.memory_max),
            scans: BTreeMap::new(),
            full: false,
            failed: false,
            heuristics: 0,
        }
    }

    /// `isSameRM`: whether that broker is this one.
    #[must_use]
    pub fn is_same(&self, broker: BrokerId) -> bool {
        self.config.broker == broker
    }

    /// When [`Home::handle`] must be called at the latest, monotonic µs. To be read after each call of it.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Takes in what happened.
    pub fn handle(&mut self, input: Input<P>, turn: &Turn, out: &mut Vec<Effect<P>>) {
        if self.failed {
            refuse_all(&input, out);
            return;
        }
        self.memory.expire(turn.broker_ms);
        self.time_out(turn, out);
        match input {
            Input::Declare { to, client } => self.declare(to, client, turn, out),
            Input::Discharge { to, txn, fail, token } => self.discharge(to, txn, fail, token, turn, out),
            Input::Xa { to, xid, verb, start } => match verb {
                Verb::Start | Verb::Join | Verb::Resume if start.is_none() => answer(to, crate::Code::Invalid, out),
                Verb::OperatorCommit
                | Verb::OperatorRollback
                | Verb::OperatorForget
                | Verb::Force
                | Verb::Lose
                | Verb::Timeout => answer(to, crate::Code::Invalid, out),
                _ => self.ask(xid, Ask::Xa { to: Some(to), control: to.control, verb, start }, turn, out),
            },
            Input::Recover { to, scan, max } => self.recover(to, scan, max, out),
            Input::Work(work) => self.work(work, out),
            Input::Failed { txn, cause } => self.poison(txn, cause),
            Input::Gathered { txn, queue, answer } => self.gathered(txn, queue, answer, turn, out),
            Input::Admitted { txn, granted } => self.admitted(txn, granted, turn, out),
            Input::Durable { up_to } => {
                while self.flushing.front().is_some_and(|(ticket, _)| *ticket <= up_to) {
                    let Some((_, txn)) = self.flushing.pop_front() else { break };
                    self.finish(txn, turn, out);
                }
            }
            Input::StoreFailed => self.fail(out),
            Input::Space { full } => self.full = full,
            Input::ControlLost { control } => self.lose(Lost::Control(control), turn, out),
            Input::ConnectionLost { connection } => {
                self.lose(Lost::Connection(connection), turn, out);
                self.plant_loss(out);
            }
            Input::Operate { to, xid, act, who, reason } => {
                if who.trim().is_empty() || reason.trim().is_empty() {
                    answer(to, crate::Code::Invalid, out);
                    return;
                }
                let audit = Box::new(Audit { xid: xid.clone(), act, who, reason, wall_ms: turn.now.wall_ms });
                self.ask(xid, Ask::Operate { to, audit }, turn, out);
            }
            Input::Recovered(recovered) => self.recovered(*recovered),
            Input::Tick => {}
        }
    }

    /// Deadlines that have come.
    fn time_out(&mut self, turn: &Turn, out: &mut Vec<Effect<P>>) {
        self.plant_timeout(turn, out);
        while let Some(&(at, id)) = self.deadlines.first().filter(|(at, _)| *at <= turn.now.mono_us) {
            self.deadlines.remove(&(at, id));
            let Some(txn) = self.txns.get_mut(&id) else { continue };
            txn.deadline = None;
            match txn.xid.clone() {
                Some(xid) => self.ask(xid, Ask::Timeout, turn, out),
                None => self.doom(id, Cause::Timeout, out),
            }
        }
    }

    /// The next transaction's id.
    fn draw(&mut self) -> TxnId {
        self.last += 1;
        TxnId { run: self.config.run, number: self.last, home: self.config.shard }
    }

    /// Whether this connection may have one more open transaction.
    fn room_for(&self, connection: ConnectionId) -> Result<(), Reply> {
        let value = u64::from(self.config.open_per_connection_max);
        let wanted = of_connection(&self.owners, connection).count() as u64 + 1;
        let limit = Limit::OpenPerConnection;
        if wanted > value {
            return Err(Reply::Refused(Box::new(Refusal { limit, value, wanted, txn: None })));
        }
        Ok(())
    }

    /// Takes in work with nothing that follows from it, as most of it is. False: nothing was changed, and [`Home::handle`] is to be told.
    #[inline]
    #[must_use]
    pub fn takes(&mut self, work: &Work, mono_us: u64) -> bool {
        let due = self.deadlines.first().is_some_and(|(at, _)| *at <= mono_us);
        !due && !self.failed && self.took(work)
    }

    #[inline]
    fn took(&mut self, work: &Work) -> bool {
        let Some(txn) = self.txns.get_mut(&work.txn) else { return false };
        let wanted = txn.staged_bytes.saturating_add(work.part.bytes);
        let may = txn.state == State::Associated && txn.controls.contains(&(work.control, true));
        if !may || wanted > self.config.staged_bytes_max {
            return false;
        }
        match txn.parts.get_mut(&work.queue) {
            Some(part) => *part += work.part,
            None => drop(txn.parts.insert(work.queue, work.part)),
        }
        txn.staged_bytes = wanted;
        true
    }

    fn work(&mut self, work: Work, out: &mut Vec<Effect<P>>) {
        if self.took(&work) {
            return;
        }
        let Work { txn: id, control, queue, part, sent } = work;
        let why = match self.txns.get_mut(&id) {
            Some(txn) if txn.controls.contains(&(control, true)) => match txn.state {
                State::Associated => {
                    let (value, wanted) = (self.config.staged_bytes_max, txn.staged_bytes.saturating_add(part.bytes));
                    let limit = Limit::StagedBytes;
                    self.doom(id, Cause::Limit(limit), out);
                    NoWork::Limit(Box::new(Refusal { limit, value, wanted, txn: Some(id) }))
                }
                State::RollbackOnly => NoWork::RolledBack(txn.cause.unwrap_or(Cause::OperationFailed)),
                _ => NoWork::Unknown,
            },
            _ => NoWork::Unknown,
        };
        if sent {
            self.refuse_sent(id, queue, part, out);
        }
        out.push(Effect::Refused { control, txn: id, why });
    }

    /// Work that was refused comes to its queue all the same. A queue counts operations and cannot tell these from those that were taken,
    /// so where more may be on their way there, or be waited for, the transaction ends with them: counted in, it can only be undone.
    fn refuse_sent(&mut self, id: TxnId, queue: QueueId, part: Part, out: &mut Vec<Effect<P>>) {
        match self.txns.get_mut(&id).filter(|txn| txn.is_undecided()) {
            Some(txn) => {
                *txn.parts.entry(queue).or_default() += part;
                let cause = *txn.cause.get_or_insert(Cause::OperationFailed);
                self.doom(id, cause, out);
            }
            None => out.push(Effect::Drop { txn: id, queue, operations: part.operations() }),
        }
    }

    /// Something in it failed. What has promised its part cannot fail any more.
    fn poison(&mut self, id: TxnId, cause: Cause) {
        if let Some(txn) = self.txns.get_mut(&id).filter(|txn| txn.is_undecided()) {
            txn.cause.get_or_insert(cause);
        }
    }

    /// Undoes an open transaction at once; it can only be rolled back from now on.
    fn doom(&mut self, id: TxnId, cause: Cause, out: &mut Vec<Effect<P>>) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        if !matches!(txn.state, State::Associated | State::Suspended | State::Idle) {
            return;
        }
        txn.state = State::RollbackOnly;
        txn.cause = Some(cause);
        undo(id, txn, out);
        self.stop_clock(id);
    }

    fn stop_clock(&mut self, id: TxnId) {
        if let Some(at) = self.txns.get_mut(&id).and_then(|txn| txn.deadline.take()) {
            self.deadlines.remove(&(at, id));
        }
    }

    /// Takes out what has ended, with all that points to it.
    fn take(&mut self, id: TxnId) -> Option<Txn<P>> {
        self.stop_clock(id);
        self.release(id);
        let txn = self.txns.remove(&id)?;
        if let Some(xid) = &txn.xid {
            self.names.remove(xid);
        }
        Some(txn)
    }

    /// No connection has to do with it any more.
    fn release(&mut self, id: TxnId) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        for connection in txn.connections.drain(..) {
            self.owners.remove(&(connection, id));
        }
        for (control, _) in txn.controls.drain(..) {
            if self.active.get(&control) == Some(&id) {
                self.active.remove(&control);
            }
        }
    }

    fn lose(&mut self, lost: Lost, turn: &Turn, out: &mut Vec<Effect<P>>) {
        self.scans.retain(|control, _| !lost.takes(control));
        self.turn_away(lost);
        let ids: Vec<TxnId> = of_connection(&self.owners, lost.connection()).collect();
        for id in ids {
            let Some(txn) = self.txns.get(&id) else { continue };
            let associated = txn.controls.iter().any(|(control, _)| lost.takes(control));
            match (&txn.xid, lost) {
                // A session that has ended its work in it may go; its connection may not.
                (Some(_), Lost::Control(_)) if !associated => {}
                (Some(xid), _) => self.ask(xid.clone(), Ask::Lose(lost), turn, out),
                (None, _) if associated && txn.state != State::Committing => self.drop_local(id, out),
                (None, _) => {}
            }
        }
    }

    /// Who is lost must not come into a branch afterwards, for nobody would tell of the loss again.
    fn turn_away(&mut self, lost: Lost) {
        let connection = lost.connection();
        let ids: Vec<TxnId> = of_connection(&self.knocking, connection).collect();
        for id in ids {
            let Some(txn) = self.txns.get_mut(&id) else { continue };
            txn.waiting.retain(|ask| ask.comes_in().is_none_or(|control| !lost.takes(&control)));
            let another = txn.waiting.iter().filter_map(Ask::comes_in).any(|control| control.connection == connection);
            if !another {
                self.knocking.remove(&(connection, id));
            }
        }
    }

    /// The store has failed.
    fn fail(&mut self, out: &mut Vec<Effect<P>>) {
        self.failed = true;
        self.deadlines.clear();
        let all: Vec<TxnId> = self.txns.keys().copied().collect();
        for id in all {
            let Some(txn) = self.txns.get_mut(&id) else { continue };
            let first = txn.going.take().and_then(|going| going.to);
            let others = txn.waiting.drain(..).filter_map(|ask| ask.to());
            out.extend(first.into_iter().chain(others).map(|to| Effect::Reply { to, reply: Reply::InDoubt }));
        }
    }

    fn recovered(&mut self, recovered: Recovered) {
        match recovered {
            Recovered::Completed { xid, decision, at_ms } => {
                self.memory.put(xid, decision.into(), at_ms, true);
            }
            Recovered::Branch(branch) => {
                let RecoveredBranch { txn, xid, client, wall_ms, at_ms, parts, lost, volatile, decided } = branch;
                let (state, decided) = match decided {
                    None => (State::Prepared, None),
                    Some((Heuristic::PartRolledBack(_), audit)) => (State::Prepared, Some(audit)),
                    Some((Heuristic::Committed, audit)) => (State::HeuristicCommitted, Some(audit)),
                    Some((Heuristic::RolledBack, audit)) => (State::HeuristicRolledBack, Some(audit)),
                    Some((Heuristic::Mixed, audit)) => (State::HeuristicMixed, Some(audit)),
                };
                self.names.insert(xid.clone(), txn);
                let branch = Txn {
                    xid: Some(xid),
                    parts: parts.into_iter().collect(),
                    lost,
                    volatile,
                    recovered: true,
                    decided,
                    ..Txn::new(None, client, state, wall_ms, at_ms)
                };
                self.txns.insert(txn, branch);
            }
        }
    }
}

/// The transactions that go with this connection.
fn of_connection(
    pairs: &BTreeSet<(ConnectionId, TxnId)>,
    connection: ConnectionId,
) -> impl Iterator<Item = TxnId> + '_ {
    let first = TxnId { run: 0, number: 0, home: ShardId(0) };
    let last = TxnId { run: u64::MAX, number: u64::MAX, home: ShardId(u16::MAX) };
    pairs.range((connection, first)..=(connection, last)).map(|(_, id)| *id)
}

impl<P> Txn<P> {
    fn new(xid: Option<Xid>, client: Arc<str>, state: State, wall_ms: i64, at_ms: u64) -> Txn<P> {
        Txn {
            xid,
            client,
            state,
            cause: None,
            parts: Parts::new(),
            staged_bytes: 0,
            controls: Vec::new(),
            connections: Vec::new(),
            deadline: None,
            wall_ms,
            at_ms,
            going: None,
            waiting: VecDeque::new(),
            lost: Vec::new(),
            volatile: 0,
            recovered: false,
            decided: None,
        }
    }

    /// Whether it may still come out either way: no record is written that says how.
    fn is_undecided(&self) -> bool {
        match self.state {
            State::Starting | State::Associated | State::Suspended | State::Idle => true,
            State::Preparing | State::Committing => self.going.as_ref().is_some_and(|going| !going.written),
            _ => false,
        }
    }
}

/// Tells all parts to be undone; there are none afterwards.
fn undo<P>(id: TxnId, txn: &mut Txn<P>, out: &mut Vec<Effect<P>>) {
    txn.staged_bytes = 0;
    apply(id, core::mem::take(&mut txn.parts), Resolution::Rollback, out);
}

fn apply<P>(txn: TxnId, parts: Parts, resolution: Resolution, out: &mut Vec<Effect<P>>) {
    out.extend(parts.into_iter().map(|(queue, part)| Effect::Apply {
        txn,
        queue,
        operations: part.operations(),
        resolution,
    }));
}

fn answer<P>(to: ReplyTo, code: crate::Code, out: &mut Vec<Effect<P>>) {
    out.push(Effect::Reply { to, reply: Reply::Code(code) });
}

/// The store has failed: nothing is done any more, and nobody is left without an answer.
fn refuse_all<P>(input: &Input<P>, out: &mut Vec<Effect<P>>) {
    match input {
        Input::Declare { to, .. }
        | Input::Discharge { to, .. }
        | Input::Xa { to, .. }
        | Input::Recover { to, .. }
        | Input::Operate { to, .. } => out.push(Effect::Reply { to: *to, reply: Reply::InDoubt }),
        _ => {}
    }
}
