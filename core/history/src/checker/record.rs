//! Takes events in, one file after the other by time, and keeps what judging needs. What depends on more than one process is judged at
//! the end; here only what one file's own order shows (I5 on one link), and what is wrong with the history itself.

use super::Options;
use super::brokers::Brokers;
use super::browse::{Browsed, Browser};
use super::consumers::{Consumers, Detached};
use super::messages::{Answer, End, Messages, NONE, Place, Receipt, Sent, unseen};
use super::operators::{Operations, What};
use super::queues::{Queues, Reading, Unread};
use super::transactions::{Transactions, Wish};
use crate::event::{BrokerChange, Event, Header, MessageId};
use crate::report::Totals;
use packhorse_model::{Map, Seed};
use std::collections::BTreeMap;

/// What is known of one file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) process: String,
    pub(crate) incarnation: u32,
    pub(crate) ended: bool,
    pub(crate) ticks: u64,
    pub(crate) consumes: bool,
    /// When the next life of the process began: nothing of this one is under way any more.
    pub(crate) followed_at: Option<u64>,
    begun: bool,
    consumers: Vec<u32>,
}

/// A delivery that came after one of a message sent later, on the same link, and as if for the first time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disorder {
    pub(crate) message: MessageId,
    pub(crate) receipt: u32,
    pub(crate) earlier: u32,
}

/// A look into all queues of all brokers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survey {
    pub(crate) at: u64,
    pub(crate) place: Place,
    pub(crate) complete: bool,
}

/// A message found by a survey.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) message: MessageId,
    pub(crate) survey: u32,
    pub(crate) place: Place,
    pub(crate) queue: u32,
}

/// More of something than settings allow.
#[derive(Debug)]
pub(crate) struct Excess {
    pub(crate) place: Place,
    pub(crate) kind: String,
    pub(crate) target: String,
    pub(crate) value: u64,
    pub(crate) most: u64,
}

/// Everything that was recorded.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) options: Options,
    pub(crate) files: Vec<File>,
    pub(crate) messages: Messages,
    pub(crate) consumers: Consumers,
    pub(crate) queues: Queues,
    pub(crate) brokers: Brokers,
    pub(crate) operations: Operations,
    pub(crate) transactions: Transactions,
    pub(crate) browsers: BTreeMap<u32, Browser>,
    /// In the order of each link.
    pub(crate) browsed: Vec<Browsed>,
    pub(crate) surveys: Vec<Survey>,
    /// By message once all is read.
    pub(crate) found: Vec<Found>,
    pub(crate) gauges: u64,
    pub(crate) excesses: Vec<Excess>,
    pub(crate) disorders: Vec<Disorder>,
    /// The same of priorities: one of a lower one came earlier on the same link, although this one was ready.
    pub(crate) inversions: Vec<Disorder>,
    /// Deliveries whose bodies said nothing usable.
    pub(crate) unreadable: Vec<(Place, bool, u32)>,
    pub(crate) totals: Totals,
    /// The highest sequence that a link got, by (link, producer, queue to which it was sent, priority).
    highest: Map<(u32, u32, u32, u8), (u64, u32)>,
    alive: Vec<u64>,
    /// The newest life of each process.
    newest: BTreeMap<String, u32>,
}

impl Record {
    pub(crate) fn new(options: Options) -> Record {
        Record {
            options,
            files: Vec::new(),
            messages: Messages::new(),
            consumers: Consumers::new(),
            queues: Queues::new(),
            brokers: Brokers::default(),
            operations: Operations::default(),
            transactions: Transactions::new(),
            browsers: BTreeMap::new(),
            browsed: Vec::new(),
            surveys: Vec::new(),
            found: Vec::new(),
            gauges: 0,
            excesses: Vec::new(),
            disorders: Vec::new(),
            inversions: Vec::new(),
            unreadable: Vec::new(),
            totals: Totals::default(),
            highest: Seed::fixed(5).map(),
            alive: Vec::new(),
            newest: BTreeMap::new(),
        }
    }

    /// A file that will be read; answers its index.
    pub(crate) fn add_file(&mut self, name: &str, header: &Header) -> usize {
        self.files.push(File {
            name: name.to_owned(),
            process: header.process.clone(),
            incarnation: header.incarnation,
            ended: false,
            ticks: 0,
            consumes: false,
            followed_at: None,
            begun: false,
            consumers: Vec::new(),
        });
        self.alive.push(0);
        self.files.len() - 1
    }

    /// The process of this file begins: what its earlier lives held is free.
    pub(crate) fn begin(&mut self, file: usize, at: u64) -> Result<(), String> {
        let (process, incarnation) = (self.files[file].process.clone(), self.files[file].incarnation);
        self.files[file].begun = true;
        let Some(before) = self.newest.insert(process.clone(), incarnation) else { return Ok(()) };
        if before >= incarnation {
            return Err(format!(
                "process {process} already began its life {before}; this file is of life {incarnation}"
            ));
        }
        let earlier: Vec<usize> = (0..self.files.len())
            .filter(|&other| {
                let other = &self.files[other];
                other.begun && other.process == process && other.incarnation < incarnation
            })
            .collect();
        for other in earlier {
            self.files[other].followed_at.get_or_insert(at);
            self.close_links(other, at);
        }
        Ok(())
    }

    fn close_links(&mut self, file: usize, at: u64) {
        for consumer in std::mem::take(&mut self.files[file].consumers) {
            if self.consumers.get(consumer).detached.is_none() {
                self.detach(consumer, at, false);
            }
        }
    }

    /// Takes an event. Err: it contradicts what its own recorder said before.
    pub(crate) fn event(&mut self, file: usize, line: u64, at: u64, event: &Event<'_>) -> Result<(), String> {
        self.totals.events += 1;
        let place = Place::new(file, line);
        match *event {
            Event::Send { message, queue, persistent, ttl_ms, delay_ms, priority, tx, .. } => {
                self.totals.sent += 1;
                let queue = self.queues.index(queue, at);
                let sent = Sent {
                    sequence: message.sequence,
                    at,
                    place,
                    answer_at: 0,
                    answer_place: Place::default(),
                    queue,
                    seen: unseen(),
                    answer: Answer::Unknown,
                    priority,
                    persistent,
                    ttl: ttl_ms != 0,
                    delayed: delay_ms != 0,
                    tx: tx.map_or(NONE, |tx| self.transactions.index(tx)),
                    damaged_at: None,
                    again: false,
                };
                self.messages.send(message.producer, sent).map_err(|before| {
                    format!("producer {} sends {} after {before}: sequences ascend", message.producer, message.sequence)
                })
            }
            Event::SentOk { message } => self.answered(message, Answer::Confirmed, at, place),
            Event::SentRejected { message, .. } => self.answered(message, Answer::Refused, at, place),
            Event::SentUnknown { message } => self.answered(message, Answer::Unknown, at, place),
            Event::Attach { consumer, queue, presettled, filtered } => {
                if self.consumers.find(consumer).is_some() || self.browsers.contains_key(&consumer) {
                    return Err(format!("consumer {consumer} attaches again; each link has a number of its own"));
                }
                let queue = self.queues.index(queue, at);
                let index = self.attach(consumer, file, queue, at, at);
                let link = self.consumers.get_mut(index);
                link.presettled = presettled;
                link.filtered = filtered;
                self.queues.get_mut(queue).filtered |= filtered;
                Ok(())
            }
            Event::Credit { consumer, credit } => {
                let index = self.link(consumer, file)?;
                let link = self.consumers.get(index);
                let (queue, before) = (link.queue, link.credit().unwrap_or(0));
                if (before == 0) != (credit == 0) {
                    self.interrupt(queue, at);
                }
                self.consumers.get_mut(index).grant(credit, at, place);
                Ok(())
            }
            Event::Recv { message, consumer, queue, delivery_count, redelivered, crc_ok, .. } => {
                let queue = self.queues.index(queue, at);
                let index = match self.consumers.find(consumer) {
                    Some(_) => self.link(consumer, file)?,
                    None => self.attach(consumer, file, queue, at, 0),
                };
                let mut receipt = Receipt::new(at, 0, place, index, queue);
                receipt.count = delivery_count;
                receipt.redelivered = redelivered;
                receipt.crc_ok = crc_ok;
                self.receive(message, receipt);
                Ok(())
            }
            Event::Ack { message, consumer, confirmed, tx } => {
                if confirmed {
                    return self.acknowledgement_confirmed(message, consumer, at, place);
                }
                self.totals.acknowledged += 1;
                let Some(tx) = tx else {
                    return self.settled(message, consumer, End::Acknowledged, at, place).map(drop);
                };
                let tx = self.transactions.index(tx);
                if let Some(receipt) = self.settled(message, consumer, End::AcknowledgedInTx, at, place)? {
                    receipt.tx = tx;
                }
                Ok(())
            }
            Event::Release { message, consumer, tx } => {
                self.returned(message, consumer, (End::GivenBack, tx), at, place)
            }
            Event::Reject { message, consumer, tx } => self.returned(message, consumer, (End::Rejected, tx), at, place),
            Event::Modified { message, consumer, delivery_failed, undeliverable_here, tx } => {
                let end = match (delivery_failed, undeliverable_here) {
                    (true, _) => End::Failed,
                    (false, true) => End::Declined,
                    (false, false) => End::GivenBack,
                };
                self.returned(message, consumer, (end, tx), at, place)?;
                if undeliverable_here {
                    self.not_here(message, consumer);
                }
                Ok(())
            }
            Event::Detach { consumer, confirmed: true, .. } => {
                let index = self.link(consumer, file)?;
                let link = self.consumers.get_mut(index);
                let Some(Detached { at: asked_at, orderly: true, answered, answered_at }) = &mut link.detached else {
                    return Err(format!("an answer to consumer {consumer}, which has not asked for its end"));
                };
                // Everything that was sent to it is recorded.
                (*answered, *answered_at) = (true, at);
                let at = *asked_at;
                let queue = self.queues.get_mut(link.queue);
                queue.unread.retain(|unread| unread.consumer != index);
                queue.presettled_lost.retain(|(from, _)| *from != at);
                Ok(())
            }
            Event::Detach { consumer, orderly, confirmed: false } => {
                let index = self.link(consumer, file)?;
                if self.consumers.get(index).detached.is_some() {
                    return Err(format!("consumer {consumer} has been detached before"));
                }
                self.detach(index, at, orderly);
                Ok(())
            }
            Event::Detached { consumer } => {
                let index = self.link(consumer, file)?;
                let link = self.consumers.get_mut(index);
                let Some(detached) = link.detached.as_mut().filter(|detached| detached.orderly) else {
                    return Err(format!("an answer to consumer {consumer}, which has not asked for its end"));
                };
                (detached.answered, detached.answered_at) = (true, at);
                let queue = self.queues.get_mut(link.queue);
                if let Some(unread) = queue.unread.iter_mut().rev().find(|unread| unread.consumer == index) {
                    unread.over_at = at;
                }
                Ok(())
            }
            Event::Expired { message } => {
                self.totals.expired += 1;
                self.messages.found(message, at, place, false);
                Ok(())
            }
            Event::Dlq { message, .. } => {
                self.totals.dead_lettered += 1;
                self.messages.found(message, at, place, true);
                Ok(())
            }
            Event::Drained { queue } => {
                let queue = self.queues.index(queue, at);
                self.queues.get_mut(queue).drained.push((at, place));
                Ok(())
            }
            Event::Counters { queue, counters } => {
                let index = self.queues.index(queue, at);
                let after_end = self.brokers.has_ended(self.queues.get(index).broker);
                let queue = self.queues.get_mut(index);
                let unattended = queue.attached.is_empty();
                queue.readings.push(Reading { at, place, counters, unattended, after_end });
                Ok(())
            }
            Event::Broker { change } => {
                self.changed(Brokers::ALL, change, at);
                Ok(())
            }
            Event::Node { broker, change } => {
                let broker = self.brokers.index(broker);
                self.changed(broker, change, at);
                Ok(())
            }
            Event::Host { queue, broker } => {
                let broker = self.brokers.index(broker);
                let queue = self.queues.index(queue, at);
                self.queues.get_mut(queue).broker = broker;
                Ok(())
            }
            Event::Fault { kind, target, start } => {
                self.interrupt_all(self.brokers.find(target), at);
                self.brokers.fault(kind, target, start);
                Ok(())
            }
            Event::Damaged { message } => match self.messages.sent_mut(message) {
                Some(sent) => {
                    sent.damaged_at.get_or_insert(at);
                    Ok(())
                }
                None => Err(format!("message {message} is damaged, which has not been sent")),
            },
            Event::Survey { start: true } => {
                self.surveys.push(Survey { at, place, complete: false });
                Ok(())
            }
            Event::Survey { start: false } => match self.surveys.last_mut().filter(|survey| !survey.complete) {
                Some(survey) => {
                    survey.complete = true;
                    Ok(())
                }
                None => Err("the end of a survey that has not begun".to_owned()),
            },
            Event::Present { message, queue } => {
                if self.surveys.last().is_none_or(|survey| survey.complete) {
                    return Err(format!("message {message} is found while there is no survey"));
                }
                let (survey, queue) = (self.surveys.len() as u32 - 1, self.queues.index(queue, at));
                self.found.push(Found { message, survey, place, queue });
                Ok(())
            }
            Event::Purge { operation, queue, deletes, messages } => {
                let what = if deletes { What::Delete } else { What::Purge };
                self.operation(operation, what, queue, messages, at, place)
            }
            Event::Move { operation, queue, target, messages } => {
                let target = self.queues.index(target, at);
                self.interrupt(target, at);
                self.operation(operation, What::Move(target), queue, messages, at, place)
            }
            Event::Browser { consumer, queue } => {
                let queue = self.queues.index(queue, at);
                let browser = Browser { at, place, queue, file: file as u32 };
                if self.consumers.find(consumer).is_some() || self.browsers.insert(consumer, browser).is_some() {
                    return Err(format!("browser {consumer} attaches again; each link has a number of its own"));
                }
                Ok(())
            }
            Event::Browsed { message, consumer, crc_ok } => {
                if self.browsers.get(&consumer).is_none_or(|browser| browser.file as usize != file) {
                    return Err(format!("browser {consumer} has not attached here"));
                }
                self.browsed.push(Browsed { message, consumer, at, place, crc_ok });
                Ok(())
            }
            Event::Gauge { kind, target, value, most } => {
                self.gauges += 1;
                if value > most {
                    let (kind, target) = (kind.to_owned(), target.to_owned());
                    self.excesses.push(Excess { place, kind, target, value, most });
                }
                Ok(())
            }
            Event::Tick => {
                self.alive[file] = at;
                self.files[file].ticks += 1;
                Ok(())
            }
            Event::Clock { .. } => Ok(()),
            Event::End => {
                self.files[file].ended = true;
                self.close_links(file, at);
                Ok(())
            }
            Event::TxBegin { tx, xid, broker } => {
                self.totals.transactions += 1;
                let broker = broker.map_or(Brokers::ALL, |broker| self.brokers.index(broker));
                self.transactions.begin(tx, xid, broker, (at, place))
            }
            Event::CommitSent { tx } => self.transactions.commit_sent(tx, (at, place)),
            Event::CommitOk { tx } => self.transactions.answered(tx, Some(true), (at, place)),
            Event::CommitUnknown { tx } => self.transactions.answered(tx, None, (at, place)),
            Event::RollbackOk { tx } => self.transactions.answered(tx, Some(false), (at, place)),
            Event::Xa { verb, xid, code } => self.transactions.xa(xid, Wish::from(verb), code, (at, place)),
            Event::RecoverList { xids, broker } => {
                let broker = broker.map_or(Brokers::ALL, |broker| self.brokers.index(broker));
                self.transactions.list(xids, broker, (at, place))
            }
            Event::Decide { xid, commit, code } => {
                self.transactions.xa(xid, Wish::Decide { commit }, code, (at, place))
            }
        }
    }

    /// All files are read: silence that goes on counts as well.
    pub(crate) fn finish(&mut self) {
        let last = self.alive.iter().copied().max().unwrap_or(0);
        self.interrupt_all(Brokers::ALL, last);
        self.queues.finish();
        self.operations.finish(&self.brokers, &self.queues);
        self.transactions.finish(&mut self.messages, &mut self.totals, self.options.slack_ns);
        self.found.sort_by_key(|found| (found.message, found.survey, found.place));
    }

    fn operation(
        &mut self,
        id: u64,
        what: What,
        queue: &str,
        messages: Option<u64>,
        at: u64,
        place: Place,
    ) -> Result<(), String> {
        let queue = self.queues.index(queue, at);
        self.interrupt(queue, at);
        match messages {
            None => self.operations.begin(id, what, queue, at, place),
            Some(messages) => self.operations.answer(id, what, queue, at, messages),
        }
    }

    fn changed(&mut self, broker: u32, change: BrokerChange, at: u64) {
        self.interrupt_all(broker, at);
        self.totals.broker_ends += u64::from(change != BrokerChange::Start);
        self.brokers.changed(broker, change == BrokerChange::Start, at);
    }

    fn answered(&mut self, message: MessageId, answer: Answer, at: u64, place: Place) -> Result<(), String> {
        let Some(sent) = self.messages.sent_mut(message) else {
            return Err(format!("an answer for message {message}, which has not been sent"));
        };
        if sent.answer_place.is_some() {
            if sent.answer != Answer::Unknown {
                return Err(format!("a second answer for message {message}"));
            }
            sent.again = true;
        }
        if answer == Answer::Refused {
            self.queues.get_mut(sent.queue).refuses = true;
        }
        (sent.answer, sent.answer_at, sent.answer_place) = (answer, at, place);
        match answer {
            // What the answer to a send in a transaction says is not that it is there.
            Answer::Confirmed if sent.in_tx() => {}
            Answer::Confirmed => self.totals.confirmed += 1,
            Answer::Refused => self.totals.refused += 1,
            Answer::Unknown | Answer::RolledBack => {}
        }
        Ok(())
    }

    fn link(&self, consumer: u32, file: usize) -> Result<u32, String> {
        let Some(index) = self.consumers.find(consumer) else {
            return Err(format!("consumer {consumer} has neither attached nor received"));
        };
        let other = self.consumers.get(index).file as usize;
        if other != file {
            return Err(format!(
                "consumer {consumer} is also in {}; its number must be its own",
                self.files[other].name
            ));
        }
        Ok(index)
    }

    fn attach(&mut self, consumer: u32, file: usize, queue: u32, at: u64, attached_at: u64) -> u32 {
        self.interrupt(queue, at);
        let index = self.consumers.add(consumer, file as u32, queue, attached_at);
        self.queues.get_mut(queue).attached.push(index);
        self.files[file].consumers.push(index);
        self.files[file].consumes = true;
        index
    }

    fn detach(&mut self, index: u32, at: u64, orderly: bool) {
        let queue = self.consumers.get(index).queue;
        self.interrupt(queue, at);
        let link = self.consumers.get_mut(index);
        link.detached = Some(Detached { at, orderly, answered: false, answered_at: 0 });
        let queue = self.queues.get_mut(queue);
        queue.attached.retain(|other| *other != index);
        // It died with its broker; or nobody knows when that noticed.
        let died = self.brokers.ended_between(queue.broker, link.attached_at, at + self.options.slack_ns);
        let over_at = if died { at } else { at + self.options.unaware_ns };
        if orderly && link.may_get_more() {
            queue.unread.push(Unread { consumer: index, attached_at: link.attached_at, detached_at: at, over_at });
        }
        if link.presettled && (!orderly || link.may_get_more()) {
            queue.presettled_lost.push((at, over_at));
        }
    }

    fn receive(&mut self, message: MessageId, mut receipt: Receipt) {
        self.totals.received += 1;
        self.interrupt(receipt.queue, receipt.at);
        let link = self.consumers.get_mut(receipt.consumer);
        receipt.from = link.receive();
        if link.presettled {
            receipt.end = End::Acknowledged;
            (receipt.end_at, receipt.end_place) = (receipt.at, receipt.place);
        }
        if message == MessageId::NONE {
            self.unreadable.push((receipt.place, receipt.crc_ok, receipt.queue));
            return;
        }
        let index = self.messages.receive(message, receipt);
        let Some(sent) = self.messages.sent_mut(message) else { return };
        if sent.in_tx() || sent.delayed {
            return;
        }
        let (priority, answer, answer_at) = (sent.priority.min(9), sent.answer, sent.answer_at);
        let link = self.consumers.get_mut(receipt.consumer);
        if sent.persistent && answer == Answer::Confirmed && receipt.is_unflagged() {
            let ready_at = answer_at.saturating_add(self.options.slack_ns);
            if let Some(earlier) = link.lower_after(priority, ready_at) {
                self.inversions.push(Disorder { message, receipt: index, earlier });
            }
        }
        link.came(priority, receipt.from, index);
        let key = (receipt.consumer, message.producer, sent.queue, sent.priority);
        let highest = self.highest.entry(key).or_insert((message.sequence, index));
        if message.sequence > highest.0 {
            *highest = (message.sequence, index);
        } else if message.sequence < highest.0 && receipt.is_unflagged() {
            self.disorders.push(Disorder { message, receipt: index, earlier: highest.1 });
        }
    }

    /// How a delivery ended; answers it, if its message is known.
    fn settled(
        &mut self,
        message: MessageId,
        consumer: u32,
        end: End,
        at: u64,
        place: Place,
    ) -> Result<Option<&mut Receipt>, String> {
        if message == MessageId::NONE {
            return Ok(None);
        }
        let index = self.consumers.find(consumer);
        let receipt = index.and_then(|index| self.messages.newest(message, index, |receipt| receipt.end == End::Open));
        let Some(receipt) = receipt else {
            return Err(format!("consumer {consumer} settles message {message}, which it does not hold"));
        };
        (receipt.end, receipt.end_at, receipt.end_place) = (end, at, place);
        Ok(Some(receipt))
    }

    /// It was not acknowledged; perhaps in a transaction.
    fn returned(
        &mut self,
        message: MessageId,
        consumer: u32,
        (end, tx): (End, Option<u64>),
        at: u64,
        place: Place,
    ) -> Result<(), String> {
        let tx = tx.map(|tx| self.transactions.index(tx));
        if let Some(receipt) = self.settled(message, consumer, end, at, place)? {
            receipt.returned_in = tx.unwrap_or(NONE);
        }
        Ok(())
    }

    /// What was given back last on this link is not to come there again.
    fn not_here(&mut self, message: MessageId, consumer: u32) {
        let index = self.consumers.find(consumer);
        let receipt = index.and_then(|index| self.messages.newest(message, index, |receipt| receipt.end != End::Open));
        if let Some(receipt) = receipt {
            receipt.not_here = true;
        }
    }

    fn acknowledgement_confirmed(
        &mut self,
        message: MessageId,
        consumer: u32,
        at: u64,
        place: Place,
    ) -> Result<(), String> {
        if message == MessageId::NONE {
            return Ok(());
        }
        let index = self.consumers.find(consumer);
        let acknowledged = |receipt: &Receipt| {
            matches!(receipt.end, End::Acknowledged | End::AcknowledgedInTx) && !receipt.is_confirmed()
        };
        let receipt = index.and_then(|index| self.messages.newest(message, index, acknowledged));
        let Some(receipt) = receipt else {
            return Err(format!("an answer to consumer {consumer}, which has not acknowledged message {message}"));
        };
        (receipt.confirm_at, receipt.confirm_place) = (at, place);
        self.totals.acknowledged_confirmed += u64::from(receipt.tx == NONE);
        Ok(())
    }

    /// The first time from `at` on at which all was quiet, whatever queue was looked at.
    pub(crate) fn quiet_after(&self, at: u64) -> Option<u64> {
        self.queues.all.iter().filter_map(|queue| queue.quiet_after(at)).min()
    }

    fn interrupt(&mut self, queue: u32, now: u64) {
        let queue = self.queues.get_mut(queue);
        let up = self.brokers.is_well(queue.broker);
        let born = self.brokers.born(queue.broker);
        queue.interrupt(now, self.options.stuck_ns, &self.consumers, &self.alive, up, born);
    }

    /// The same for all queues of a broker.
    fn interrupt_all(&mut self, broker: u32, now: u64) {
        for queue in 0..self.queues.all.len() as u32 {
            if Brokers::concerns(broker, self.queues.get(queue).broker) {
                self.interrupt(queue, now);
            }
        }
    }
}
