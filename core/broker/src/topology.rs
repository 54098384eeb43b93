//! Changes of the directory: queues come and go. Shard 0 draws ids and creates, a queue's owner deletes, both by a record in
//! their batch; when it is durable every shard learns of it by mail, the owner first, so that no request meets an owner that
//! does not know its queue. Operators' commands (`admin.rs`) are carried out here too.

use crate::admin::{By, Command, ListPage, QueuePatch, QueueReport, Refusal, RefusalKind, Reply};
use crate::io::{Effect, Level};
use crate::mail::{Answer, Body, LinkRef, ReportAs};
use crate::queues::{Due, Queues};
use packhorse_model::{EntryKey, Map, QueueId, QueueName, QueueSettings, Seed, Sequence, ShardId};
use packhorse_queue::Input;
use packhorse_store::Op;

/// Numbers that may be drawn from a new queue before the next [`Op::Reserve`].
const FIRST_RESERVE: Sequence = 1 << 20;

/// A change that is due when its record is durable.
#[derive(Debug)]
pub(crate) enum Change {
    Created { id: QueueId, name: QueueName, settings: QueueSettings },
    Deleted { id: QueueId, admin: u64, messages: u64 },
    Changed { id: QueueId, admin: u64, settings: QueueSettings },
}

/// Who waits for a queue to exist.
#[derive(Debug)]
enum Waiter {
    Link(LinkRef),
    DeadLetter(EntryKey),
    /// An operator's command that needs the queue.
    Command {
        id: u64,
        command: Command,
    },
    /// An operator's command. `made`: it is the one that creates the queue.
    Admin {
        id: u64,
        made: bool,
        settings: QueueSettings,
    },
}

/// What a shard keeps for its part in changes.
#[derive(Debug)]
pub(crate) struct Topology {
    /// Shard 0: the next queue's id.
    next_id: QueueId,
    /// Shard 0: creations whose record is not durable yet.
    creating: Map<QueueName, ()>,
    waiting: Map<QueueName, Vec<Waiter>>,
}

impl Topology {
    pub(crate) fn new(seed: Seed) -> Topology {
        Topology { next_id: QueueId(1), creating: seed.map(), waiting: seed.map() }
    }

    /// Ids below this one have been used.
    pub(crate) fn used(&mut self, next: QueueId) {
        self.next_id = self.next_id.max(next);
    }
}

pub(crate) fn refused(kind: RefusalKind, code: &'static str, detail: String) -> Reply {
    Reply::Refused(Refusal { kind, code, detail })
}

pub(crate) fn not_found(name: &str) -> Reply {
    refused(RefusalKind::NotFound, "queue-not-found", format!("there is no queue \"{name}\""))
}

impl Queues {
    /// A link waits until this queue exists; it is created if need be.
    pub(crate) fn want_queue(&mut self, name: QueueName, link: LinkRef) {
        self.want(name, Waiter::Link(link));
    }

    /// An entry waits until its dead-letter queue exists.
    pub(crate) fn want_dead_letter_queue(&mut self, name: &str, from: EntryKey) {
        match QueueName::new(name) {
            Ok(name) => self.want(name, Waiter::DeadLetter(from)),
            Err(error) => {
                self.log(Level::Error, None, format!("dead-letter queue \"{name}\" cannot be created: {error}"));
                self.relocate_again(from, false);
            }
        }
    }

    /// An operator's command waits until this queue exists.
    pub(crate) fn want_queue_for(&mut self, name: QueueName, id: u64, command: Command) {
        self.want(name, Waiter::Command { id, command });
    }

    fn want(&mut self, name: QueueName, waiter: Waiter) {
        let waiting = self.topology.waiting.entry(name.clone()).or_default();
        waiting.push(waiter);
        if waiting.len() > 1 {
            return;
        }
        let settings = self.default_settings();
        if self.shard == ShardId(0) {
            self.create(name, settings);
        } else {
            self.mail(ShardId(0), Body::Want { name, settings });
        }
    }

    /// Settings of a queue that nobody declared.
    fn default_settings(&self) -> QueueSettings {
        QueueSettings { delivery_limit: self.config.delivery_limit, ..QueueSettings::default() }
    }

    /// Shard 0: writes a queue's record, unless that is under way or done. Answer: whether it was written now.
    pub(crate) fn create(&mut self, name: QueueName, settings: QueueSettings) -> bool {
        if let Some(known) = self.directory.by_name(name.as_str()).cloned() {
            // A shard asked before it heard of it; what the owner told it was under way then.
            if known.owner == self.shard {
                self.exists(known.id, known.name, known.settings);
            }
            return false;
        }
        if self.topology.creating.insert(name.clone(), ()).is_some() {
            return false;
        }
        let id = self.topology.next_id;
        self.topology.next_id = QueueId(id.0 + 1);
        self.batch.push(Op::QueueCreate {
            id,
            name: name.clone(),
            settings: settings.clone(),
            reserved: FIRST_RESERVE,
        });
        self.due.wait(self.ticket, Due::Topology(Change::Created { id, name, settings }));
        true
    }

    /// A change is durable.
    pub(crate) fn changed(&mut self, change: Change) {
        match change {
            Change::Created { id, name, settings } => {
                // The name stays in `creating` until the owner has said that the queue exists.
                let owner = id.owner(self.config.shards);
                if owner == self.shard {
                    self.own(id, name, settings);
                } else {
                    self.mail(owner, Body::Own { id, name, settings });
                }
            }
            Change::Deleted { id, admin, messages } => {
                self.gone(id);
                self.reply(admin, Reply::Deleted { messages });
            }
            Change::Changed { id, admin, settings } => {
                self.mail_others(|| Body::Changed { id, settings: settings.clone() });
                self.settings_changed(id, settings);
                self.report(admin, id, ReportAs::Changed);
            }
        }
    }

    /// The owner of a new queue: it can be used from now on, everywhere.
    pub(crate) fn own(&mut self, id: QueueId, name: QueueName, settings: QueueSettings) {
        let queue = self.new_queue(id, name.clone(), settings.clone(), 1, FIRST_RESERVE);
        self.insert(id, queue);
        self.log(Level::Info, None, format!("queue \"{name}\" created (id {id})"));
        self.mail_others(|| Body::Exists { id, name: name.clone(), settings: settings.clone() });
        self.exists(id, name, settings);
    }

    /// The queue is known here from now on: who waited for it goes on.
    pub(crate) fn exists(&mut self, id: QueueId, name: QueueName, settings: QueueSettings) {
        self.topology.creating.remove(&name);
        if self.directory.by_id(id).is_none() {
            let names_dead_letters = settings.dead_letter.is_some();
            self.directory.insert(id, name.clone(), settings);
            if names_dead_letters {
                self.appoint_dead_letter_queues();
            }
        }
        for waiter in self.topology.waiting.remove(&name).unwrap_or_default() {
            match waiter {
                Waiter::Link(link) => self.resumed.push(link),
                Waiter::DeadLetter(from) => self.relocate_again(from, true),
                Waiter::Command { id, command } => self.command(id, command),
                Waiter::Admin { id: admin, made: true, .. } => self.report(admin, id, ReportAs::Created { new: true }),
                Waiter::Admin { id: admin, settings, .. } => self.put_existing(admin, id, &settings),
            }
        }
    }

    /// The queue is gone: forget it. All others hear of it from shard 0, so that a name wanted again after that is free there.
    pub(crate) fn gone(&mut self, id: QueueId) {
        let Some(known) = self.directory.remove(id) else { return };
        if self.shard == ShardId(0) {
            self.mail_others(|| Body::Gone { id });
        } else if known.owner == self.shard {
            self.mail(ShardId(0), Body::Gone { id });
        }
        if known.owner == self.shard {
            self.log(Level::Info, None, format!("queue \"{}\" deleted (id {id})", known.name));
        }
        self.remove(id);
        self.deleted.push(id);
    }

    /// A queue has other settings, durably: links learn it.
    pub(crate) fn settings_changed(&mut self, id: QueueId, settings: QueueSettings) {
        self.directory.change(id, settings);
        self.changed.push(id);
    }

    // ---- operators ----

    pub(crate) fn reply(&mut self, id: u64, reply: Reply) {
        self.out.push(Effect::AdminReply { id, reply: Box::new(reply) });
    }

    /// Carries out a command, here or where it belongs. `Status` is the shard's.
    pub(crate) fn command(&mut self, id: u64, command: Command) {
        match command {
            Command::Status => unreachable!("the shard answers this itself"),
            Command::QueueList { after, limit } => {
                let known: Vec<_> = self
                    .directory
                    .owned(self.shard, after.as_deref())
                    // One that is being deleted is not there any more.
                    .filter(|known| self.slot(known.id).is_some())
                    .take(limit.saturating_add(1))
                    .map(|known| known.id)
                    .collect();
                let more = known.len() > limit;
                let queues = known.into_iter().take(limit).filter_map(|id| self.queue_report(id)).collect();
                self.reply(id, Reply::Queues(ListPage { queues, more }));
            }
            Command::QueueGet { name } => match self.directory.by_name(&name).map(|known| known.id) {
                Some(queue) => self.report(id, queue, ReportAs::Queue),
                None => self.reply(id, not_found(&name)),
            },
            Command::QueuePut { name, patch } => self.put(id, &name, &patch),
            Command::QueueDelete { name, force, by } => self.delete(id, &name, force, by),
            Command::QueuePurge { .. } | Command::QueueMove { .. } | Command::QueueChange { .. } => {
                self.long_command(id, command);
            }
            Command::TxList { .. }
            | Command::TxLocals { .. }
            | Command::TxShow { .. }
            | Command::TxPart { .. }
            | Command::TxDecide { .. } => self.transaction_command(id, command),
        }
    }

    fn queue_report(&self, id: QueueId) -> Option<QueueReport> {
        let slot = self.slot(id)?;
        let queue = &self.held[slot as usize].queue;
        let oldest = queue.stats().oldest_arrived_ms;
        Some(QueueReport {
            id,
            name: queue.name().as_str().to_string(),
            settings: queue.settings().clone(),
            shard: self.shard.0,
            counters: self.counters(slot),
            oldest_age_ms: oldest.map(|at| self.broker_ms().saturating_sub(at)),
            full: queue.full(),
        })
    }

    /// Tells an operator of a queue, here or where it is.
    pub(crate) fn report(&mut self, id: u64, queue: QueueId, report: ReportAs) {
        let owner = queue.owner(self.config.shards);
        if owner != self.shard {
            self.mail(owner, Body::Report { id, queue, report });
            return;
        }
        let reply = match (self.queue_report(queue), report) {
            (Some(report), ReportAs::Queue) => Reply::Queue(Box::new(report)),
            (Some(queue), ReportAs::Created { new }) => Reply::Created { queue: Box::new(queue), new },
            (Some(queue), ReportAs::Changed) => Reply::Changed { queue: Box::new(queue) },
            // It is being deleted; its name is taken until that is durable.
            (None, report) => {
                let id = format!("id {queue}");
                let name = self.directory.by_id(queue).map_or(id, |known| known.name.to_string());
                match report {
                    ReportAs::Queue | ReportAs::Changed => not_found(&name),
                    ReportAs::Created { .. } => {
                        let detail = format!("queue \"{name}\" is just being deleted; try again");
                        refused(RefusalKind::Conflict, "queue-in-use", detail)
                    }
                }
            }
        };
        self.reply(id, reply);
    }

    fn put(&mut self, id: u64, name: &str, patch: &QueuePatch) {
        if self.shard != ShardId(0) {
            let command = Command::QueuePut { name: name.into(), patch: patch.clone() };
            self.mail(ShardId(0), Body::Admin { id, command });
            return;
        }
        let parsed = QueueName::new(name).and_then(|name| {
            let dead_letter = patch.dead_letter.as_deref().map(QueueName::new).transpose()?;
            Ok((name, dead_letter))
        });
        let (name, dead_letter) = match parsed {
            Ok(names) => names,
            Err(error) => {
                self.reply(id, refused(RefusalKind::Invalid, "invalid-name", error.to_string()));
                return;
            }
        };
        let defaults = self.default_settings();
        let settings = QueueSettings {
            default_durable: patch.default_durable.unwrap_or(defaults.default_durable),
            delivery_limit: patch.max_deliveries.unwrap_or(defaults.delivery_limit),
            dead_letter,
            limits: patch.limits.unwrap_or(defaults.limits),
        };
        if let Some(known) = self.directory.by_name(name.as_str()) {
            self.put_existing(id, known.id, &settings);
            return;
        }
        let made = self.create(name.clone(), settings.clone());
        self.topology.waiting.entry(name).or_default().push(Waiter::Admin { id, made, settings });
    }

    /// An operator wants a queue with these settings that exists already.
    fn put_existing(&mut self, id: u64, queue: QueueId, settings: &QueueSettings) {
        let Some(known) = self.directory.by_id(queue) else { return };
        match difference(&known.settings, settings) {
            None => self.report(id, queue, ReportAs::Created { new: false }),
            Some(difference) => {
                let detail = format!("queue \"{}\" exists with other settings: {difference}", known.name);
                self.reply(id, refused(RefusalKind::Conflict, "queue-exists", detail));
            }
        }
    }

    fn delete(&mut self, id: u64, name: &str, force: bool, by: Option<By>) {
        let Some(known) = self.directory.by_name(name).cloned() else {
            self.reply(id, not_found(name));
            return;
        };
        if known.owner != self.shard {
            self.mail(known.owner, Body::Admin { id, command: Command::QueueDelete { name: name.into(), force, by } });
            return;
        }
        let Some(slot) = self.slot(known.id) else {
            self.reply(id, not_found(name));
            return;
        };
        if self.held[slot as usize].queue.in_doubt() {
            let by = by.filter(|_| force);
            self.in_doubt(id, known.id, Command::QueueDelete { name: name.into(), force, by });
            return;
        }
        let counters = self.counters(slot);
        let messages = counters.depth + counters.staged - self.held[slot as usize].queue.rolling_back();
        if !force && (messages > 0 || counters.consumers > 0) {
            let detail = format!(
                "queue \"{name}\" holds {messages} messages and has {} consumers; delete with force to lose them",
                counters.consumers
            );
            self.reply(id, refused(RefusalKind::Conflict, "queue-in-use", detail));
            return;
        }
        if self.hands_over(known.id) {
            self.delete_later(known.id, id, name.into(), by);
            return;
        }
        // The queue writes the record, and is no more: nothing may follow that. Its name is free when the record is durable.
        self.tell(slot, Input::Delete);
        self.remove(known.id);
        self.batch.require_flush();
        self.due.wait(self.ticket, Due::Topology(Change::Deleted { id: known.id, admin: id, messages }));
    }

    // ---- links ----

    /// Tells a link that it was stolen: it is to give way.
    pub(crate) fn steal(&mut self, old: LinkRef) {
        let why = "another connection of the same container attached a link of this name".to_string();
        self.answer(old, Answer::Ended { condition: "amqp:link:stolen", why });
    }
}

/// What differs, in an operator's words.
fn difference(is: &QueueSettings, asked: &QueueSettings) -> Option<String> {
    let none = || "none".to_string();
    let name = |n: &Option<QueueName>| n.as_ref().map_or_else(none, |n| n.to_string());
    if is.delivery_limit != asked.delivery_limit {
        return Some(format!("max_deliveries is {}, asked for {}", is.delivery_limit, asked.delivery_limit));
    }
    if is.default_durable != asked.default_durable {
        return Some(format!("default_durable is {}, asked for {}", is.default_durable, asked.default_durable));
    }
    if is.dead_letter != asked.dead_letter {
        return Some(format!("dead_letter is {}, asked for {}", name(&is.dead_letter), name(&asked.dead_letter)));
    }
    let limit = |limit: Option<u64>| limit.map_or_else(none, |n| n.to_string());
    let (is, asked) = (&is.limits, &asked.limits);
    if is.max_messages != asked.max_messages {
        let (is, asked) = (limit(is.max_messages), limit(asked.max_messages));
        return Some(format!("max_messages is {is}, asked for {asked}"));
    }
    if is.max_bytes != asked.max_bytes {
        return Some(format!("max_bytes is {}, asked for {}", limit(is.max_bytes), limit(asked.max_bytes)));
    }
    if is.on_full != asked.on_full {
        return Some(format!("full is {}, asked for {}", is.on_full.as_str(), asked.on_full.as_str()));
    }
    None
}
