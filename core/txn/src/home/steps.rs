//! The three steps of a decision: gather the parts, write one record, apply.

use super::{Ask, Goal, Going, Home, Txn, apply, undo};
use crate::parts::Parts;
use crate::state::State;
use crate::{
    Act, Audit, Cause, Code, Completed, Decision, Effect, Gathered, Heuristic, LostPart, Purpose, Record, Reply,
    ReplyTo, Resolution, Turn,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use packhorse_model::{QueueId, Token, TxnId, Xid};

impl<P> Going<P> {
    pub(super) fn new(goal: Goal, to: Option<ReplyTo>) -> Going<P> {
        Going {
            goal,
            to,
            by: None,
            pending: BTreeSet::new(),
            admission: false,
            token: None,
            parts: Vec::new(),
            persistent: false,
            volatile: 0,
            written: false,
        }
    }

    /// Told to the table of client sessions when a commit with a token ends.
    fn ended(&self, committed: bool) -> Option<Effect<P>> {
        let Token { session, counter, .. } = self.token?;
        Some(Effect::Ended { counter, session, committed })
    }
}

impl<P> Home<P> {
    /// Asks all queues for their parts.
    pub(super) fn gather(&mut self, id: TxnId, purpose: Purpose, turn: &Turn, out: &mut Vec<Effect<P>>) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        let Some(going) = txn.going.as_mut() else { return };
        going.pending = txn.parts.keys().copied().collect();
        out.extend(txn.parts.iter().map(|(queue, part)| Effect::Gather {
            txn: id,
            queue: *queue,
            operations: part.operations(),
            purpose,
        }));
        self.gathered_all(id, turn, out);
    }

    pub(super) fn gathered(
        &mut self,
        id: TxnId,
        queue: QueueId,
        answer: Gathered<P>,
        turn: &Turn,
        out: &mut Vec<Effect<P>>,
    ) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        let Some(going) = txn.going.as_mut() else { return };
        if !going.pending.remove(&queue) {
            return;
        }
        match answer {
            Gathered::Ready { part, persistent, volatile } => {
                going.parts.push((queue, part));
                going.persistent |= persistent;
                going.volatile += volatile;
            }
            Gathered::Failed(cause) => drop(txn.cause.get_or_insert(cause)),
            Gathered::Gone if going.goal == Goal::DecideCommit => {
                txn.parts.remove(&queue);
                let reason = String::from("the queue is gone, and its part of the branch with it");
                txn.lost.push(LostPart { queue, who: String::from("broker"), reason, wall_ms: turn.now.wall_ms });
            }
            Gathered::Gone => {
                txn.parts.remove(&queue);
                txn.cause.get_or_insert(Cause::QueueGone);
            }
        }
        self.gathered_all(id, turn, out);
    }

    pub(super) fn admitted(&mut self, id: TxnId, granted: bool, turn: &Turn, out: &mut Vec<Effect<P>>) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        let Some(going) = txn.going.as_mut().filter(|going| going.admission) else { return };
        going.admission = false;
        if !granted {
            going.token = None;
            txn.cause.get_or_insert(Cause::Fenced);
        }
        self.gathered_all(id, turn, out);
    }

    /// If everything is there, goes on to the record, or, if something failed, undoes it all.
    fn gathered_all(&mut self, id: TxnId, turn: &Turn, out: &mut Vec<Effect<P>>) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        let Some(going) = txn.going.as_mut() else { return };
        if !going.pending.is_empty() || going.admission || going.written {
            return;
        }
        going.parts.sort_by_key(|(queue, _)| *queue);
        if going.goal == Goal::Prepare {
            txn.volatile = going.volatile;
        }
        if let (Goal::Prepare | Goal::Commit, Some(cause)) = (going.goal, txn.cause) {
            out.extend(going.ended(false));
            let to = going.to;
            let Some(mut txn) = self.take(id) else { return };
            undo(id, &mut txn, out);
            out.extend(to.map(|to| match txn.xid {
                Some(_) => Effect::Reply { to, reply: Reply::Code(cause.code()) },
                None => Effect::Reply { to, reply: Reply::RolledBack(cause) },
            }));
            if let Some(xid) = &txn.xid {
                self.memory.put(xid.clone(), Completed::RolledBack(cause), turn.broker_ms, false);
            }
            self.ask_waiting(id, txn.xid, txn.waiting, turn, out);
            return;
        }
        let nothing_to_keep = txn.xid.is_none() && !going.persistent && going.token.is_none();
        if going.goal == Goal::Commit && nothing_to_keep {
            going.written = true;
            self.finish(id, turn, out);
        } else {
            self.write(id, turn, out);
        }
    }

    /// Writes the record. From here on nothing is undone.
    pub(super) fn write(&mut self, id: TxnId, turn: &Turn, out: &mut Vec<Effect<P>>) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        let Some(mut going) = txn.going.take() else { return };
        let record = txn.record(id, &mut going, turn);
        going.written = true;
        txn.going = Some(going);
        self.flushing.push_back((turn.ticket, id));
        out.push(Effect::Write(Box::new(record)));
    }

    /// The record is durable, or none was needed.
    pub(super) fn finish(&mut self, id: TxnId, turn: &Turn, out: &mut Vec<Effect<P>>) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        let Some(going) = txn.going.take() else { return };
        let Going { goal, to, by, .. } = &*going;
        let mixed = !txn.lost.is_empty();
        let mut code = Code::Ok;
        match goal {
            Goal::Start => {
                txn.state = State::Associated;
                self.deadlines.extend(txn.deadline.map(|at| (at, id)));
                out.extend(to.map(|to| Effect::Reply { to, reply: Reply::Started(id) }));
                self.go_on(id, turn, out);
                return;
            }
            Goal::Prepare => {
                txn.state = State::Prepared;
                (txn.wall_ms, txn.at_ms) = (turn.now.wall_ms, turn.broker_ms);
                apply(id, txn.parts.clone(), Resolution::Prepared, out);
                self.release(id);
            }
            Goal::Commit => {
                apply(id, core::mem::take(&mut txn.parts), Resolution::Commit, out);
                out.extend(going.ended(true));
                txn.state = State::None;
            }
            Goal::DecideCommit | Goal::DecideRollback => {
                let commits = *goal == Goal::DecideCommit;
                let resolution = if commits { Resolution::Commit } else { Resolution::Rollback };
                apply(id, txn.parts.clone(), resolution, out);
                if commits && let Some(xid) = txn.xid.as_ref().filter(|_| txn.volatile > 0 && txn.recovered) {
                    out.push(Effect::VolatileLost { xid: xid.clone(), count: txn.volatile });
                }
                txn.state = match (by.is_some(), mixed, commits) {
                    (_, true, _) => State::HeuristicMixed,
                    (false, false, _) => State::None,
                    (true, false, true) => State::HeuristicCommitted,
                    (true, false, false) => State::HeuristicRolledBack,
                };
                if by.is_none() && mixed {
                    code = Code::HeuristicMixed;
                }
            }
            Goal::Force(queue) => {
                let part = txn.parts.remove(queue).unwrap_or_default();
                apply(id, Parts::from([(*queue, part)]), Resolution::Rollback, out);
                txn.state = if txn.parts.is_empty() { State::HeuristicRolledBack } else { State::Prepared };
                if let Some(audit) = by {
                    let Audit { who, reason, wall_ms, .. } = (**audit).clone();
                    txn.lost.push(LostPart { queue: *queue, who, reason, wall_ms });
                }
            }
            Goal::Forget => txn.state = State::None,
        }
        if let Some(audit) = going.by.clone() {
            self.heuristics += u64::from(audit.act != Act::Forget);
            out.push(Effect::Audit(audit.clone()));
            if let Some(txn) = self.txns.get_mut(&id) {
                txn.decided = Some(audit);
            }
        }
        let (to, goal) = (going.to, going.goal);
        let Some(txn) = self.txns.get(&id) else { return };
        let local = txn.xid.is_none();
        if txn.state == State::None {
            let Some(txn) = self.take(id) else { return };
            let how = match goal {
                Goal::Commit | Goal::DecideCommit => Some(Decision::Commit),
                Goal::DecideRollback => Some(Decision::Rollback),
                _ => None,
            };
            if let (Some(xid), Some(how)) = (&txn.xid, how) {
                self.memory.put(xid.clone(), how.into(), turn.broker_ms, true);
            }
            let reply = if local { Reply::Committed } else { Reply::Code(code) };
            out.extend(to.map(|to| Effect::Reply { to, reply }));
            self.ask_waiting(id, txn.xid, txn.waiting, turn, out);
        } else {
            out.extend(to.map(|to| Effect::Reply { to, reply: Reply::Code(code) }));
            self.go_on(id, turn, out);
        }
    }

    /// What waited for this transaction is asked now.
    fn go_on(&mut self, id: TxnId, turn: &Turn, out: &mut Vec<Effect<P>>) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        let (xid, waiting) = (txn.xid.clone(), core::mem::take(&mut txn.waiting));
        self.ask_waiting(id, xid, waiting, turn, out);
    }

    /// Asks, in order, what waited for this transaction, which may be gone.
    fn ask_waiting(
        &mut self,
        id: TxnId,
        xid: Option<Xid>,
        waiting: VecDeque<Ask>,
        turn: &Turn,
        out: &mut Vec<Effect<P>>,
    ) {
        let Some(xid) = xid else { return };
        for control in waiting.iter().filter_map(Ask::comes_in) {
            self.knocking.remove(&(control.connection, id));
        }
        for ask in waiting {
            self.ask(xid.clone(), ask, turn, out);
        }
    }
}

impl<P> Txn<P> {
    /// The record of what it is on its way to.
    fn record(&self, txn: TxnId, going: &mut Going<P>, turn: &Turn) -> Record<P> {
        let (at_ms, wall_ms) = (turn.broker_ms, turn.now.wall_ms);
        let parts = core::mem::take(&mut going.parts);
        let Some(xid) = self.xid.clone() else {
            return Record::Commit { txn, parts, token: going.token, xid: None, at_ms };
        };
        let (decision, mut outcome) = match going.goal {
            Goal::Start | Goal::Forget => return Record::Forget { xid },
            Goal::Commit => return Record::Commit { txn, parts, token: None, xid: Some(xid), at_ms },
            Goal::Prepare => {
                let figures = self.parts.iter().map(|(queue, part)| (*queue, *part)).collect();
                let client = self.client.clone();
                return Record::Prepare { txn, xid, parts, figures, client, wall_ms, at_ms };
            }
            Goal::DecideCommit => (Decision::Commit, Heuristic::Committed),
            Goal::DecideRollback => (Decision::Rollback, Heuristic::RolledBack),
            Goal::Force(_) if self.parts.len() == 1 => (Decision::Rollback, Heuristic::RolledBack),
            Goal::Force(queue) => (Decision::Rollback, Heuristic::PartRolledBack(queue)),
        };
        let (who, reason) = match (&going.by, self.lost.last()) {
            (Some(audit), _) => (audit.who.clone(), audit.reason.clone()),
            (None, Some(lost)) => (lost.who.clone(), lost.reason.clone()),
            (None, None) => return Record::Decide { xid, decision, parts, at_ms },
        };
        if !self.lost.is_empty() && matches!(going.goal, Goal::DecideCommit | Goal::DecideRollback) {
            outcome = Heuristic::Mixed;
        }
        Record::Heuristic { xid, outcome, decision, parts, who, reason, wall_ms, at_ms }
    }
}
