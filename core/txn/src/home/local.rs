//! Local transactions, and the ends of transactions that a client knows by id.

use super::{Ask, Going, Home, Txn, undo};
use crate::state::{State, Verb};
use crate::{Cause, Effect, Purpose, Reply, ReplyTo, Turn};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use packhorse_model::{Token, TxnId};

impl<P> Home<P> {
    pub(super) fn declare(&mut self, to: ReplyTo, client: Arc<str>, turn: &Turn, out: &mut Vec<Effect<P>>) {
        if let Err(reply) = self.room_for(to.control.connection) {
            out.push(Effect::Reply { to, reply });
            return;
        }
        let id = self.draw();
        let mut txn = Txn::new(None, client, State::Associated, turn.now.wall_ms, turn.broker_ms);
        txn.controls.push((to.control, true));
        txn.connections.push(to.control.connection);
        if self.config.local_timeout_ms > 0 {
            let at = turn.now.mono_us.saturating_add(self.config.local_timeout_ms.saturating_mul(1000));
            txn.deadline = Some(at);
            self.deadlines.insert((at, id));
        }
        self.txns.insert(id, txn);
        self.owners.insert((to.control.connection, id));
        out.push(Effect::Reply { to, reply: Reply::Declared(id) });
    }

    pub(super) fn discharge(
        &mut self,
        to: ReplyTo,
        id: TxnId,
        fail: bool,
        token: Option<Token>,
        turn: &Turn,
        out: &mut Vec<Effect<P>>,
    ) {
        let Some(txn) = self.txns.get_mut(&id).filter(|txn| txn.controls.contains(&(to.control, true))) else {
            out.push(Effect::Reply { to, reply: Reply::Unknown });
            return;
        };
        if let Some(xid) = txn.xid.clone() {
            let verb = if fail { Verb::Rollback } else { Verb::CommitOnePhase };
            let control = to.control;
            for (to, verb) in [(None, Verb::End), (Some(to), verb)] {
                self.ask(xid.clone(), Ask::Xa { to, control, verb, start: None }, turn, out);
            }
            return;
        }
        match txn.state {
            State::Associated if fail => {
                self.drop_local(id, out);
                out.push(Effect::Reply { to, reply: Reply::RolledBack(Cause::Asked) });
            }
            State::Associated if txn.cause.is_none() => {
                txn.state = State::Committing;
                let mut going = Going::new(super::Goal::Commit, Some(to));
                if let Some(Token { session, counter, .. }) = token {
                    going.token = token;
                    going.admission = true;
                    out.push(Effect::Admit { txn: id, counter, session });
                }
                txn.going = Some(Box::new(going));
                self.stop_clock(id);
                self.gather(id, Purpose::Commit, turn, out);
            }
            State::Associated | State::RollbackOnly => {
                let cause = txn.cause.unwrap_or(Cause::OperationFailed);
                self.drop_local(id, out);
                out.push(Effect::Reply { to, reply: Reply::RolledBack(cause) });
            }
            // It is being committed already: for the asker there is none any more.
            _ => out.push(Effect::Reply { to, reply: Reply::Unknown }),
        }
    }

    /// Rolls back a local transaction that is not being committed.
    pub(super) fn drop_local(&mut self, id: TxnId, out: &mut Vec<Effect<P>>) {
        if let Some(mut txn) = self.take(id) {
            undo(id, &mut txn, out);
        }
    }
}
