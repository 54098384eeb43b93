//! Operators' commands that take more than one turn: who waits for what. Must not know how a queue does it.

use super::{Due, Queues};
use crate::admin::{Command, RefusalKind, Reply};
use crate::mail::Body;
use crate::topology::{not_found, refused};
use packhorse_model::QueueId;
use packhorse_queue::Input;
use packhorse_store::Ticket;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Purges under way and their queues, by the commands' ids.
    purges: BTreeMap<u64, QueueId>,
    /// The broker is stopping: nothing is begun any more.
    stopping: bool,
}

impl Queues {
    /// Carries out a command that takes its time, here or where its queue is.
    pub(crate) fn long_command(&mut self, id: u64, command: Command) {
        if self.commands.stopping {
            self.reply(id, stopping(0));
            return;
        }
        let Some(name) = command.queue() else { return };
        let Some(known) = self.directory.by_name(name) else {
            let reply = not_found(name);
            self.reply(id, reply);
            return;
        };
        if known.owner != self.shard {
            self.mail(known.owner, Body::Admin { id, command });
            return;
        }
        let queue = known.id;
        let Some(slot) = self.slot(queue) else {
            let reply = not_found(name);
            self.reply(id, reply);
            return;
        };
        match command {
            Command::QueuePurge { .. } => {
                self.commands.purges.insert(id, queue);
                self.tell(slot, Input::Purge { token: id });
            }
            _ => self.not_yet(id),
        }
    }

    pub(crate) fn not_yet(&mut self, id: u64) {
        let detail = "this is not implemented yet".to_string();
        self.reply(id, refused(RefusalKind::Unavailable, "not-implemented", detail));
    }

    /// A queue has removed what an operator wanted gone.
    pub(super) fn purged(&mut self, id: u64, messages: u64) {
        if self.commands.purges.remove(&id).is_some() {
            self.reply_when_durable(id, Reply::Purged { messages });
        }
    }

    /// Answers a command when everything that was done so far is durable.
    fn reply_when_durable(&mut self, id: u64, reply: Reply) {
        let after = if self.batch.is_empty() { Ticket(self.ticket.0 - 1) } else { self.ticket };
        if after <= self.due.durable() {
            self.reply(id, reply);
            return;
        }
        if after == self.ticket {
            self.batch.require_flush();
        }
        self.due.wait(after, Due::Command { id, reply });
    }

    /// A queue is gone, and with it what was to be done there.
    pub(super) fn forget_commands(&mut self, queue: QueueId) {
        for (id, _) in self.commands.purges.extract_if(.., |_, of| *of == queue).collect::<Vec<_>>() {
            let detail = "the queue was deleted before it was purged".to_string();
            self.reply(id, refused(RefusalKind::NotFound, "queue-not-found", detail));
        }
    }

    /// The broker is stopping: whoever waits is told.
    pub(crate) fn stop_commands(&mut self) {
        self.commands.stopping = true;
        for (id, _) in std::mem::take(&mut self.commands.purges) {
            self.reply(id, stopping(0));
        }
    }
}

/// What waits is refused when the broker stops; `done` of the messages were reached.
fn stopping(done: u64) -> Reply {
    let detail = format!("the broker is stopping; {done} messages were reached before");
    refused(RefusalKind::Unavailable, "broker-stopping", detail)
}
