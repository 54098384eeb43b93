//! Branches: what is asked of them, and what the table's answer means here.

use super::{Ask, Goal, Going, Home, Lost, Page, Txn, answer, undo};
use crate::state::{Deed, Facts, Mine, State, Step, Verb, transition};
use crate::{Act, Audit, Cause, Code, Control, Effect, Limit, Purpose, Refusal, Reply, ReplyTo, Scan, Start, Turn};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};
use packhorse_model::{TxnId, Xid};

/// XA's flags of `recover`.
const START_SCAN: u32 = 0x0100_0000;
const END_SCAN: u32 = 0x0080_0000;

impl Ask {
    fn verb(&self) -> Verb {
        match self {
            Ask::Xa { verb, .. } => *verb,
            Ask::Operate { audit, .. } => match audit.act {
                Act::Commit => Verb::OperatorCommit,
                Act::Rollback => Verb::OperatorRollback,
                Act::Forget => Verb::OperatorForget,
                Act::Force(_) => Verb::Force,
            },
            Ask::Lose(_) => Verb::Lose,
            Ask::Timeout => Verb::Timeout,
        }
    }

    pub(super) fn to(&self) -> Option<ReplyTo> {
        match self {
            Ask::Xa { to, .. } => *to,
            Ask::Operate { to, .. } => Some(*to),
            Ask::Lose(_) | Ask::Timeout => None,
        }
    }

    fn control(&self) -> Option<Control> {
        match self {
            Ask::Xa { control, .. } => Some(*control),
            _ => None,
        }
    }

    /// Who would work in the branch, if this is answered with yes.
    pub(super) fn comes_in(&self) -> Option<Control> {
        match self {
            Ask::Xa { control, verb: Verb::Start | Verb::Join | Verb::Resume, .. } => Some(*control),
            _ => None,
        }
    }

    fn into_audit(self) -> Option<Box<Audit>> {
        match self {
            Ask::Operate { audit, .. } => Some(audit),
            _ => None,
        }
    }
}

impl<P> Home<P> {
    /// Asks a branch, or lets the question wait while it is on its way.
    pub(super) fn ask(&mut self, xid: Xid, ask: Ask, turn: &Turn, out: &mut Vec<Effect<P>>) {
        let id = self.names.get(&xid).copied();
        let state = id.and_then(|id| self.txns.get(&id)).map_or(State::None, |txn| txn.state);
        if !state.on_its_way() {
            // A loss may have waited for the end of one branch, and meet the next one of that name.
            if let (Ask::Lose(lost), Some(id)) = (&ask, id)
                && !self.disown(id, *lost)
            {
                return;
            }
            if let Err(reply) = self.may_start(id, &ask) {
                out.extend(ask.to().map(|to| Effect::Reply { to, reply }));
                return;
            }
        }
        let chosen = id.and_then(|id| self.association(id, &ask));
        let facts = self.facts(id, &xid, &ask, chosen, turn);
        match transition(state, ask.verb(), &facts) {
            Some(step) => self.carry_out(xid, id, ask, chosen, step, turn, out),
            None => {
                let Some(id) = id else { return };
                let Some(txn) = self.txns.get_mut(&id) else { return };
                let (value, wanted) = (u64::from(self.config.waiting_max), txn.waiting.len() as u64 + 1);
                if let (Some(to), true) = (ask.to(), wanted > value) {
                    let refusal = Refusal { limit: Limit::Waiting, value, wanted, txn: Some(id) };
                    out.push(Effect::Reply { to, reply: Reply::Refused(Box::new(refusal)) });
                } else {
                    self.knocking.extend(ask.comes_in().map(|control| (control.connection, id)));
                    txn.waiting.push_back(ask);
                }
            }
        }
    }

    /// What forbids a start, join or resume, whatever the branch's state.
    fn may_start(&self, id: Option<TxnId>, ask: &Ask) -> Result<(), Reply> {
        let Ask::Xa { control, verb, start: Some(start), .. } = ask else { return Ok(()) };
        if start.local_work {
            return Err(Reply::Code(Code::Outside));
        }
        if self.active.contains_key(control) {
            return Err(Reply::Code(Code::Protocol));
        }
        let begins = id.is_none() && *verb == Verb::Start;
        let joins = id.is_some_and(|id| *verb != Verb::Start && !self.owners.contains(&(control.connection, id)));
        if begins || joins {
            self.room_for(control.connection)?;
        }
        let (value, wanted) = (u64::from(self.config.branches_max), self.names.len() as u64 + 1);
        if begins && wanted > value {
            return Err(Reply::Refused(Box::new(Refusal { limit: Limit::Branches, value, wanted, txn: None })));
        }
        Ok(())
    }

    /// The lost ones are not associated with it any more. Whether they had to do with it.
    fn disown(&mut self, id: TxnId, lost: Lost) -> bool {
        let Some(txn) = self.txns.get_mut(&id) else { return false };
        let (active, before) = (&mut self.active, txn.controls.len());
        txn.controls.retain(|(control, _)| {
            let stays = !lost.takes(control);
            if !stays && active.get(control) == Some(&id) {
                active.remove(control);
            }
            stays
        });
        if let Lost::Connection(connection) = lost {
            txn.connections.retain(|c| *c != connection);
            return self.owners.remove(&(connection, id));
        }
        txn.controls.len() < before
    }

    /// The association that a verb is about: the asker's own, or of a suspended branch anybody's.
    fn association(&self, id: TxnId, ask: &Ask) -> Option<(Control, bool)> {
        let (txn, control) = (self.txns.get(&id)?, ask.control()?);
        let own = txn.controls.iter().find(|(c, _)| *c == control);
        let anybodys = || txn.controls.first().filter(|_| txn.state == State::Suspended);
        own.or_else(anybodys).copied()
    }

    fn facts(&self, id: Option<TxnId>, xid: &Xid, ask: &Ask, chosen: Option<(Control, bool)>, turn: &Turn) -> Facts {
        let Some(txn) = id.and_then(|id| self.txns.get(&id)) else {
            let memory = self.memory.get(xid, turn.broker_ms);
            return Facts { memory, memory_durable: self.memory.is_durable(xid), ..Facts::default() };
        };
        let others =
            |active| txn.controls.iter().any(|(c, a)| *a == active && chosen.is_none_or(|(chosen, _)| *c != chosen));
        Facts {
            mine: match chosen {
                None => Mine::None,
                Some((_, true)) => Mine::Active,
                Some((_, false)) => Mine::Suspended,
            },
            others_active: others(true),
            others_suspended: others(false),
            work: !txn.parts.is_empty(),
            cause: txn.cause,
            full: self.full,
            has_part: matches!(ask, Ask::Operate { audit, .. }
                if matches!(audit.act, Act::Force(queue) if txn.parts.contains_key(&queue))),
            ..Facts::default()
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one caller, which has just found all of it out")]
    fn carry_out(
        &mut self,
        xid: Xid,
        id: Option<TxnId>,
        ask: Ask,
        chosen: Option<(Control, bool)>,
        step: Step,
        turn: &Turn,
        out: &mut Vec<Effect<P>>,
    ) {
        let (verb, to) = (ask.verb(), ask.to());
        let Some(id) = id else {
            if let (Deed::Begin, Ask::Xa { control, start: Some(start), .. }) = (step.deed, ask) {
                self.begin(xid, to, control, &start, step.to, turn, out);
            } else if let (Some(to), Some(code)) = (to, step.code) {
                answer(to, code, out);
            }
            return;
        };
        let Some(txn) = self.txns.get_mut(&id) else { return };
        txn.state = step.to;
        match step.deed {
            Deed::Nothing | Deed::Begin => {}
            Deed::Associate => {
                if let Some(control) = ask.control() {
                    // One's own association is replaced; a resume takes the place of what was suspended.
                    let replaced = chosen.map_or(control, |(chosen, _)| chosen);
                    txn.controls.retain(|(c, _)| *c != replaced);
                    txn.controls.push((control, true));
                    if !txn.connections.contains(&control.connection) {
                        txn.connections.push(control.connection);
                        self.owners.insert((control.connection, id));
                    }
                    self.active.insert(control, id);
                }
                out.extend(to.map(|to| Effect::Reply { to, reply: Reply::Started(id) }));
                return;
            }
            Deed::Disassociate | Deed::Suspend | Deed::Undo => {
                if let Some((chosen, _)) = chosen {
                    if self.active.get(&chosen) == Some(&id) {
                        self.active.remove(&chosen);
                    }
                    txn.controls.retain(|(c, _)| *c != chosen);
                    if step.deed == Deed::Suspend {
                        txn.controls.push((chosen, false));
                    }
                }
                if step.deed == Deed::Undo {
                    undo(id, txn, out);
                    match verb {
                        Verb::Fail => txn.cause = Some(Cause::WorkFailed),
                        Verb::Lose => txn.cause = Some(Cause::Lost),
                        Verb::Timeout => txn.cause = Some(Cause::Timeout),
                        _ => {}
                    }
                }
            }
            Deed::Gather(purpose) => {
                let goal = match purpose {
                    Purpose::Prepare => Goal::Prepare,
                    Purpose::Commit => Goal::Commit,
                    Purpose::Decide => Goal::DecideCommit,
                };
                txn.going = Some(Box::new(Going { by: ask.into_audit(), ..Going::new(goal, to) }));
                self.stop_clock(id);
                self.gather(id, purpose, turn, out);
                return;
            }
            Deed::Write => {
                let goal = match (verb, &ask) {
                    (Verb::Force, Ask::Operate { audit, .. }) if let Act::Force(queue) = audit.act => {
                        Goal::Force(queue)
                    }
                    (Verb::Forget | Verb::OperatorForget, _) => Goal::Forget,
                    _ => Goal::DecideRollback,
                };
                txn.going = Some(Box::new(Going { by: ask.into_audit(), ..Going::new(goal, to) }));
                self.write(id, turn, out);
                return;
            }
        }
        if step.to == State::RollbackOnly {
            self.stop_clock(id);
        }
        if step.to == State::None {
            self.take(id);
            if let Some(how) = step.remember {
                self.memory.put(xid, how, turn.broker_ms, false);
            }
        }
        if let (Some(to), Some(code)) = (to, step.code) {
            answer(to, code, out);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one caller, which has just found all of it out")]
    fn begin(
        &mut self,
        xid: Xid,
        to: Option<ReplyTo>,
        control: Control,
        start: &Start,
        state: State,
        turn: &Turn,
        out: &mut Vec<Effect<P>>,
    ) {
        let id = self.draw();
        let mut txn = Txn::new(Some(xid.clone()), start.client.clone(), state, turn.now.wall_ms, turn.broker_ms);
        txn.controls.push((control, true));
        txn.connections.push(control.connection);
        let longest = self.config.branch_timeout_max_ms;
        let asked = if start.timeout_ms > 0 { start.timeout_ms } else { self.config.branch_timeout_ms };
        let timeout = match (asked, longest) {
            (asked, 0) => asked,
            (0, longest) => longest,
            (asked, longest) => asked.min(longest),
        };
        if timeout > 0 {
            let at = turn.now.mono_us.saturating_add(timeout.saturating_mul(1000));
            txn.deadline = Some(at);
            if state != State::Starting {
                self.deadlines.insert((at, id));
            }
        }
        self.active.insert(control, id);
        self.owners.insert((control.connection, id));
        self.names.insert(xid.clone(), id);
        self.memory.remove(&xid);
        if state == State::Starting {
            txn.going = Some(Box::new(Going::new(Goal::Start, to)));
            self.txns.insert(id, txn);
            self.write(id, turn, out);
        } else {
            self.txns.insert(id, txn);
            out.extend(to.map(|to| Effect::Reply { to, reply: Reply::Started(id) }));
        }
    }

    pub(super) fn recover(&mut self, to: ReplyTo, scan: Scan, max: u32, out: &mut Vec<Effect<P>>) {
        let (after, keeps) = match scan {
            Scan::After(after) => (after, None),
            Scan::Flags(flags) => {
                let open = self.scans.get(&to.control).cloned();
                let after = if flags & START_SCAN != 0 { Some(None) } else { open };
                let Some(after) = after.filter(|_| flags & !(START_SCAN | END_SCAN) == 0) else {
                    answer(to, Code::Invalid, out);
                    return;
                };
                (after, Some(flags & END_SCAN == 0))
            }
        };
        let page = self.page(after.as_ref(), max);
        match keeps {
            Some(true) => drop(self.scans.insert(to.control, page.xids.last().cloned().or(after))),
            Some(false) => drop(self.scans.remove(&to.control)),
            None => {}
        }
        out.push(Effect::Reply { to, reply: Reply::Xids(Box::new(page)) });
    }

    /// The xids after this one that `recover` lists.
    fn page(&self, after: Option<&Xid>, max: u32) -> Page {
        let from = after.map_or(Unbounded, Excluded);
        let listed = |id: &TxnId| self.txns.get(id).is_some_and(|txn| txn.state.listed());
        let mut found = self.names.range((from, Unbounded)).filter(|(_, id)| listed(id)).map(|(xid, _)| xid);
        let xids = found.by_ref().take(max.max(1) as usize).cloned().collect();
        Page { xids, more: found.next().is_some() }
    }
}
