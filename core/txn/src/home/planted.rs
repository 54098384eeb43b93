//! Faults planted in a home on purpose (`core/model/src/planted.rs`): what becomes of a branch in doubt that nobody decides.
//!
//! Without the feature `planted` nothing of this is in the program. The store is told nothing, so a start brings the branch back.

use super::{Effect, Home, Turn, apply};
use crate::Cause;
use crate::memory::Completed;
use crate::state::State;
use alloc::vec::Vec;
use packhorse_model::{Planted, Resolution, Xid, planted};

impl<P> Home<P> {
    /// Time passes: a branch that is in doubt is rolled back.
    #[inline]
    pub(super) fn plant_timeout(&mut self, turn: &Turn, out: &mut Vec<Effect<P>>) {
        if planted(Planted::TimeOutPrepared)
            && let Some(xid) = self.drop_in_doubt(out)
        {
            self.memory.put(xid, Completed::RolledBack(Cause::Timeout), turn.broker_ms, false);
        }
    }

    /// A connection is lost: a branch in doubt goes with it.
    #[inline]
    pub(super) fn plant_loss(&mut self, out: &mut Vec<Effect<P>>) {
        if planted(Planted::ForgetBranch) {
            self.drop_in_doubt(out);
        }
    }

    fn drop_in_doubt(&mut self, out: &mut Vec<Effect<P>>) -> Option<Xid> {
        let (id, txn) = self.txns.iter().find(|(_, txn)| txn.state == State::Prepared)?;
        let (id, parts) = (*id, txn.parts.clone());
        apply(id, parts, Resolution::Rollback, out);
        self.take(id)?.xid
    }
}
