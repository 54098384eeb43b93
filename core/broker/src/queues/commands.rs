//! Operators' commands that take more than one turn: who waits for what. Must not know how a queue does it.

use super::{Due, Queues};
use crate::admin::{By, Command, RefusalKind, Reply};
use crate::mail::Body;
use crate::topology::{Change, not_found, refused};
use packhorse_model::{QueueId, QueueName, QueueSettings, ShardId};
use packhorse_queue::Input;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Purges under way and their queues, by the commands' ids.
    purges: BTreeMap<u64, QueueId>,
    /// Moves under way, by the commands' ids.
    moves: BTreeMap<u64, Moving>,
    /// Queues to be deleted once records on their way to the disk have arrived that name work of transactions in them.
    deletes: Vec<Deleting>,
    /// Commands that had to wait and go on now.
    again: Vec<(u64, Command)>,
    /// The broker is stopping: nothing is begun any more.
    stopping: bool,
}

/// A queue that is to be deleted by force.
#[derive(Debug)]
struct Deleting {
    queue: QueueId,
    id: u64,
    name: String,
    by: Option<By>,
}

/// A move under way.
#[derive(Clone, Copy, Debug)]
struct Moving {
    from: QueueId,
    to: QueueId,
    /// Messages so far.
    moved: u64,
    /// The other queue could not take one.
    failed: bool,
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
            Command::QueuePurge { .. } if self.held[slot as usize].queue.in_doubt() => {
                self.in_doubt(id, queue, command)
            }
            Command::QueuePurge { .. } => {
                self.commands.purges.insert(id, queue);
                self.tell(slot, Input::Purge { token: id });
            }
            Command::QueueMove { from, to, limit } => self.begin_move(id, slot, from, to, limit),
            Command::QueueChange { limits, .. } => {
                let settings = QueueSettings { limits, ..self.held[slot as usize].queue.settings().clone() };
                self.tell(slot, Input::Settings(settings.clone()));
                self.batch.require_flush();
                let change = Change::Changed { id: queue, admin: id, settings };
                self.due.wait(self.ticket, Due::Topology(change));
            }
            _ => unreachable!("it names no queue"),
        }
    }

    fn begin_move(&mut self, id: u64, slot: u32, from: String, to: String, limit: u64) {
        let name = match QueueName::new(&to) {
            Ok(name) => name,
            Err(error) => {
                self.reply(id, refused(RefusalKind::Invalid, "invalid-name", error.to_string()));
                return;
            }
        };
        let queue = self.held[slot as usize].id;
        let Some(target) = self.directory.by_name(&to).map(|known| known.id) else {
            if self.config.auto_create {
                self.want_queue_for(name, id, Command::QueueMove { from, to, limit });
            } else {
                self.reply(id, not_found(&to));
            }
            return;
        };
        if target == queue {
            let detail = format!("queue \"{from}\" cannot be moved to itself; name another queue");
            self.reply(id, refused(RefusalKind::Invalid, "same-queue", detail));
            return;
        }
        self.commands.moves.insert(id, Moving { from: queue, to: target, moved: 0, failed: false });
        let strip_ttl = to == self.config.dead_letter_queue || self.directory.names_dead_letter(&to);
        self.tell(slot, Input::Move { token: id, limit, strip_ttl });
    }

    /// Where the messages of a move go; `None`: it is over, or the queue is gone.
    pub(super) fn move_target(&self, token: u64) -> Option<(QueueId, ShardId)> {
        let moving = self.commands.moves.get(&token)?;
        self.directory.by_id(moving.to).map(|known| (known.id, known.owner))
    }

    /// A message of a move is in the other queue, or cannot be.
    pub(super) fn move_answered(&mut self, token: u64, moved: bool) {
        if let Some(moving) = self.commands.moves.get_mut(&token) {
            moving.moved += u64::from(moved);
            moving.failed |= !moved;
        }
    }

    /// A queue has moved what an operator wanted moved, or as much of it as the other queue takes.
    pub(super) fn moved(&mut self, id: u64, messages: u64) {
        let Some(moving) = self.commands.moves.remove(&id) else { return };
        let reply = match self.directory.by_id(moving.to).map(|known| known.name.clone()) {
            Some(name) if moving.failed && messages == 0 => {
                let detail = format!("queue \"{name}\" takes no message: it is full, or just being deleted");
                refused(RefusalKind::Conflict, "queue-full", detail)
            }
            None if moving.failed && messages == 0 => {
                let detail = "the queue to move to was deleted".to_string();
                refused(RefusalKind::NotFound, "queue-not-found", detail)
            }
            _ => Reply::Moved { messages },
        };
        self.reply_when_durable(id, reply);
    }

    /// A queue has removed what an operator wanted gone.
    pub(super) fn purged(&mut self, id: u64, messages: u64) {
        if self.commands.purges.remove(&id).is_some() {
            self.reply_when_durable(id, Reply::Purged { messages });
        }
    }

    /// A queue is to be deleted by force, once no record is on its way that names work in it.
    pub(crate) fn delete_later(&mut self, queue: QueueId, id: u64, name: String, by: Option<By>) {
        self.commands.deletes.push(Deleting { queue, id, name, by });
    }

    /// Carries out a command again that had to wait, as soon as nothing else is under way: it may be that a queue goes.
    pub(crate) fn command_again(&mut self, id: u64, command: Command) {
        self.commands.again.push((id, command));
    }

    /// Whether commands may go on.
    pub(crate) fn has_commands(&self) -> bool {
        let mut deletes = self.commands.deletes.iter();
        !self.commands.again.is_empty() || deletes.any(|deleting| !self.hands_over(deleting.queue))
    }

    /// Goes on with commands that had to wait.
    pub(crate) fn go_on_with_commands(&mut self) {
        if !self.has_commands() {
            return;
        }
        let staged = &self.staged;
        let due = self.commands.deletes.extract_if(.., |deleting| !staged.hands_over(deleting.queue));
        let deletes = due.map(|Deleting { id, name, by, .. }| (id, Command::QueueDelete { name, force: true, by }));
        let mut commands: Vec<_> = deletes.collect();
        commands.append(&mut self.commands.again);
        for (id, command) in commands {
            self.command(id, command);
        }
    }

    /// Whether the broker is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.commands.stopping
    }

    /// Answers a command when everything that was done so far is durable.
    fn reply_when_durable(&mut self, id: u64, reply: Reply) {
        let after = self.last_ticket();
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
        for (id, Moving { moved, .. }) in
            self.commands.moves.extract_if(.., |_, moving| moving.from == queue).collect::<Vec<_>>()
        {
            let detail = format!("the queue was deleted when {moved} of its messages had been moved");
            self.reply(id, refused(RefusalKind::NotFound, "queue-not-found", detail));
        }
    }

    /// The broker is stopping: whoever waits is told.
    pub(crate) fn stop_commands(&mut self) {
        self.commands.stopping = true;
        for (id, _) in std::mem::take(&mut self.commands.purges) {
            self.reply(id, stopping(0));
        }
        for (id, moving) in std::mem::take(&mut self.commands.moves) {
            self.reply(id, stopping(moving.moved));
        }
        for deleting in std::mem::take(&mut self.commands.deletes) {
            self.reply(deleting.id, stopping(0));
        }
        for (id, _) in std::mem::take(&mut self.commands.again) {
            self.reply(id, stopping(0));
        }
        self.stop_operators();
    }
}

/// What waits is refused when the broker stops; `done` of the messages were reached.
fn stopping(done: u64) -> Reply {
    let detail = format!("the broker is stopping; {done} messages were reached before");
    refused(RefusalKind::Unavailable, "broker-stopping", detail)
}
