//! Commands about queues in which branches in doubt have work: they are refused, or, with a name and a reason, that work is rolled
//! back first. The branches themselves stay in doubt where they have work in other queues too.

use super::Question;
use crate::admin::{By, Command, RefusalKind};
use crate::mail::Body;
use crate::queues::Queues;
use crate::topology::refused;
use crate::transactions::REGISTRY;
use packhorse_model::{QueueId, TxnId, Xid};
use packhorse_txn::state::State;
use packhorse_txn::{Act, Code};

/// Xids that an error names.
const NAMED: usize = 5;

/// A command that waits.
#[derive(Debug)]
pub(super) struct Forced {
    queue: QueueId,
    command: Command,
    /// Branches that have not been answered for.
    left: usize,
    /// Those whose part is rolled back.
    done: usize,
    /// The latest that was refused.
    failed: Option<(Xid, Code)>,
}

impl Queues {
    /// A command for a queue of ours in which these branches have work.
    pub(crate) fn in_doubt(&mut self, id: u64, queue: QueueId, command: Command) {
        let Some(slot) = self.slot(queue) else { return };
        let txns: Vec<TxnId> = self.held[slot as usize].queue.prepared().collect();
        if self.shard == REGISTRY {
            self.on_in_doubt(id, queue, &txns, command);
        } else {
            self.mail(REGISTRY, Body::InDoubt { id, queue, txns, command });
        }
    }

    /// At the home of branches: their parts in this queue are rolled back, if somebody says who and why.
    pub(crate) fn on_in_doubt(&mut self, id: u64, queue: QueueId, txns: &[TxnId], command: Command) {
        let broker_ms = self.broker_ms();
        let xids: Vec<Xid> = txns
            .iter()
            .filter_map(|txn| self.transactions.home.view(*txn, broker_ms))
            .filter(|view| matches!(view.state, State::Prepared | State::Deciding))
            .filter(|view| view.parts.iter().any(|(of, _)| *of == queue))
            .filter_map(|view| view.xid)
            .collect();
        let name = command.named().to_string();
        if xids.is_empty() {
            let detail = format!("the work of a branch in queue \"{name}\" is just being ended; try again");
            self.reply(id, refused(RefusalKind::Conflict, "queue-in-doubt", detail));
            return;
        }
        let by = command.by().filter(|by| !by.who.trim().is_empty() && !by.reason.trim().is_empty()).cloned();
        let Some(By { who, reason }) = by else {
            let named: Vec<String> = xids.iter().take(NAMED).map(Xid::to_string).collect();
            let more = if xids.len() > NAMED { ", …" } else { "" };
            let detail = format!(
                "queue \"{name}\" holds work of {} branches in doubt ({}{more}); decide them first, or force it and give a reason: \
                 their work in this queue is rolled back then, and may be committed elsewhere",
                xids.len(),
                named.join(", ")
            );
            self.reply(id, refused(RefusalKind::Conflict, "queue-in-doubt", detail));
            return;
        };
        // The name stands in the reason, for the queue may be gone when that is read.
        let reason = match command {
            Command::QueueDelete { .. } => format!("queue \"{name}\" deleted: {reason}"),
            _ => format!("queue \"{name}\" purged: {reason}"),
        };
        let forced = Forced { queue, command, left: xids.len(), done: 0, failed: None };
        self.transactions.operators.forced.insert(id, forced);
        for xid in xids {
            let question = Question::Force { id, xid: xid.clone() };
            self.operate(question, xid, Act::Force(queue), who.clone(), reason.clone());
        }
    }

    /// A part is rolled back for a command, or cannot be.
    pub(super) fn forced_answered(&mut self, id: u64, xid: Xid, code: Code) {
        let Some(forced) = self.transactions.operators.forced.get_mut(&id) else { return };
        forced.left -= 1;
        match code {
            Code::Ok => forced.done += 1,
            code => forced.failed = Some((xid, code)),
        }
        if forced.left > 0 {
            return;
        }
        let Some(Forced { queue, command, done, failed, .. }) = self.transactions.operators.forced.remove(&id) else {
            return;
        };
        // One that was decided meanwhile needs no force. If nothing could be done, asking again would not end.
        if let Some((xid, code)) = failed.filter(|(_, code)| done == 0 && *code != Code::NotThere) {
            let name = command.named();
            let detail = format!("queue \"{name}\": the work of branch {xid} in it could not be rolled back ({code})");
            self.reply(id, refused(RefusalKind::Conflict, "queue-in-doubt", detail));
            return;
        }
        // What the home has said to the queue is there before this.
        let owner = queue.owner(self.config.shards);
        if owner == self.shard {
            self.command_again(id, command);
        } else {
            self.mail(owner, Body::Admin { id, command });
        }
    }
}
