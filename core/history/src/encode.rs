//! An event as a list of fields: which it has and in what order, the same for each format.
//!
//! Must not know: how a field looks in a file.

use crate::event::{BrokerChange, Event, Header, MessageId, XaVerb};
use crate::words::{Key, Kind};

/// The version of the history format that this crate writes; it reads this one and those before it.
pub const VERSION: u32 = 4;

/// Takes fields.
pub(crate) trait Encoder {
    fn number(&mut self, key: Key, number: u64);
    fn signed(&mut self, key: Key, number: Option<i64>);
    fn flag(&mut self, key: Key, flag: bool);
    fn text(&mut self, key: Key, text: &str);

    fn number_unless_0(&mut self, key: Key, number: u64) {
        if number != 0 {
            self.number(key, number);
        }
    }

    fn flag_if(&mut self, key: Key, flag: bool) {
        if flag {
            self.flag(key, true);
        }
    }
}

/// Puts the fields of a header, after its version.
pub(crate) fn header(out: &mut impl Encoder, header: &Header) {
    out.number(Key::PackhorseHistory, u64::from(VERSION));
    out.text(Key::Run, &format!("{:016x}", header.run));
    out.text(Key::Process, &header.process);
    out.number(Key::Pid, u64::from(header.pid));
    out.number(Key::Incarnation, u64::from(header.incarnation));
    out.text(Key::Clock, &header.clock);
    out.number(Key::MonoNs, header.mono_ns);
    out.number(Key::WallNs, header.wall_ns);
}

/// Puts the fields of an event, in the order in which they are written.
pub(crate) fn fields(out: &mut impl Encoder, event: &Event<'_>) {
    match *event {
        Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms, delay_ms, priority, tx } => {
            put_message(out, message);
            out.text(Key::Queue, queue);
            out.number(Key::SizeBytes, u64::from(size_bytes));
            out.number(Key::Crc, u64::from(crc));
            out.flag(Key::Persistent, persistent);
            out.number_unless_0(Key::TtlMs, ttl_ms);
            out.number_unless_0(Key::DelayMs, delay_ms);
            out.number(Key::Priority, u64::from(priority));
            put_tx(out, tx);
        }
        Event::SentOk { message }
        | Event::SentUnknown { message }
        | Event::Expired { message }
        | Event::Damaged { message } => put_message(out, message),
        Event::SentRejected { message, reason } | Event::Dlq { message, reason } => {
            put_message(out, message);
            out.text(Key::Reason, reason);
        }
        Event::Attach { consumer, queue, presettled, filtered } => {
            out.number(Key::Consumer, u64::from(consumer));
            out.text(Key::Queue, queue);
            out.flag_if(Key::Presettled, presettled);
            out.flag_if(Key::Filtered, filtered);
        }
        Event::Credit { consumer, credit } => {
            out.number(Key::Consumer, u64::from(consumer));
            out.number(Key::Credit, u64::from(credit));
        }
        Event::Recv { message, consumer, queue, delivery_count, redelivered, crc_ok, tx } => {
            put_message(out, message);
            out.number(Key::Consumer, u64::from(consumer));
            out.text(Key::Queue, queue);
            out.number(Key::DeliveryCount, u64::from(delivery_count));
            out.flag(Key::Redelivered, redelivered);
            out.flag(Key::CrcOk, crc_ok);
            put_tx(out, tx);
        }
        Event::Ack { message, consumer, confirmed, tx } => {
            put_message(out, message);
            out.number(Key::Consumer, u64::from(consumer));
            out.flag_if(Key::Confirmed, confirmed);
            put_tx(out, tx);
        }
        Event::Release { message, consumer, tx } | Event::Reject { message, consumer, tx } => {
            put_message(out, message);
            out.number(Key::Consumer, u64::from(consumer));
            put_tx(out, tx);
        }
        Event::Modified { message, consumer, delivery_failed, undeliverable_here, tx } => {
            put_message(out, message);
            out.number(Key::Consumer, u64::from(consumer));
            out.flag_if(Key::DeliveryFailed, delivery_failed);
            out.flag_if(Key::UndeliverableHere, undeliverable_here);
            put_tx(out, tx);
        }
        Event::Detach { consumer, orderly, confirmed } => {
            out.number(Key::Consumer, u64::from(consumer));
            out.flag(Key::Orderly, orderly);
            out.flag_if(Key::Confirmed, confirmed);
        }
        Event::Detached { consumer } => out.number(Key::Consumer, u64::from(consumer)),
        Event::Drained { queue } => out.text(Key::Queue, queue),
        Event::Counters { queue, counters } => {
            out.text(Key::Queue, queue);
            out.flag(Key::Quiet, counters.quiet);
            out.signed(Key::Depth, counters.depth);
            out.signed(Key::Ready, counters.ready);
            out.signed(Key::Acquired, counters.acquired);
            out.signed(Key::Enqueued, counters.enqueued);
            out.signed(Key::Acknowledged, counters.acknowledged);
            out.signed(Key::DeadLettered, counters.dead_lettered);
        }
        Event::Broker { change } => put_change(out, change),
        Event::Node { broker, change } => {
            out.text(Key::Broker, broker);
            put_change(out, change);
        }
        Event::Host { queue, broker } => {
            out.text(Key::Queue, queue);
            out.text(Key::Broker, broker);
        }
        Event::Survey { start } => out.flag(Key::Start, start),
        Event::Present { message, queue } => {
            put_message(out, message);
            out.text(Key::Queue, queue);
        }
        Event::Gauge { kind, target, value, most } => {
            out.text(Key::Kind, kind);
            out.text(Key::Target, target);
            out.number(Key::Value, value);
            out.number(Key::Most, most);
        }
        Event::Purge { operation, queue, deletes, messages } => {
            out.number(Key::Operation, operation);
            out.text(Key::Queue, queue);
            out.flag_if(Key::Deletes, deletes);
            put_messages(out, messages);
        }
        Event::Move { operation, queue, target, messages } => {
            out.number(Key::Operation, operation);
            out.text(Key::Queue, queue);
            out.text(Key::Target, target);
            put_messages(out, messages);
        }
        Event::Browser { consumer, queue } => {
            out.number(Key::Consumer, u64::from(consumer));
            out.text(Key::Queue, queue);
        }
        Event::Browsed { message, consumer, crc_ok } => {
            put_message(out, message);
            out.number(Key::Consumer, u64::from(consumer));
            out.flag(Key::CrcOk, crc_ok);
        }
        Event::Fault { kind, target, start } => {
            out.text(Key::Kind, kind);
            out.text(Key::Target, target);
            out.flag(Key::Start, start);
        }
        Event::Tick | Event::End => {}
        Event::Clock { wall_ns } => out.number(Key::WallNs, wall_ns),
        Event::TxBegin { tx, xid, broker } => {
            out.number(Key::Tx, tx);
            put_text(out, Key::Xid, xid);
            put_text(out, Key::Broker, broker);
        }
        Event::CommitSent { tx } | Event::CommitOk { tx } | Event::CommitUnknown { tx } | Event::RollbackOk { tx } => {
            out.number(Key::Tx, tx)
        }
        Event::Xa { xid, code, .. } => {
            out.text(Key::Xid, xid);
            out.signed(Key::Code, code.map(i64::from));
        }
        Event::RecoverList { xids, broker } => {
            put_text(out, Key::Xids, xids);
            put_text(out, Key::Broker, broker);
        }
        Event::Decide { xid, commit, code } => {
            out.text(Key::Xid, xid);
            out.flag(Key::Commit, commit);
            out.signed(Key::Code, code.map(i64::from));
        }
    }
}

fn put_message(out: &mut impl Encoder, message: MessageId) {
    out.number(Key::Producer, u64::from(message.producer));
    out.number(Key::Sequence, message.sequence);
}

fn put_change(out: &mut impl Encoder, change: BrokerChange) {
    match change {
        BrokerChange::Start => out.text(Key::Change, "start"),
        BrokerChange::Kill => out.text(Key::Change, "kill"),
        BrokerChange::Exit(code) => {
            out.text(Key::Change, "exit");
            out.signed(Key::Code, code.map(i64::from));
        }
    }
}

fn put_messages(out: &mut impl Encoder, messages: Option<u64>) {
    if let Some(messages) = messages {
        out.number(Key::Messages, messages);
    }
}

fn put_text(out: &mut impl Encoder, key: Key, text: Option<&str>) {
    if let Some(text) = text {
        out.text(key, text);
    }
}

fn put_tx(out: &mut impl Encoder, tx: Option<u64>) {
    if let Some(tx) = tx {
        out.number(Key::Tx, tx);
    }
}

/// What kind of event it is.
pub(crate) fn kind(event: &Event<'_>) -> Kind {
    match event {
        Event::Send { .. } => Kind::Send,
        Event::SentOk { .. } => Kind::SentOk,
        Event::SentRejected { .. } => Kind::SentRejected,
        Event::SentUnknown { .. } => Kind::SentUnknown,
        Event::Attach { .. } => Kind::Attach,
        Event::Credit { .. } => Kind::Credit,
        Event::Recv { .. } => Kind::Recv,
        Event::Ack { .. } => Kind::Ack,
        Event::Release { .. } => Kind::Release,
        Event::Reject { .. } => Kind::Reject,
        Event::Modified { .. } => Kind::Modified,
        Event::Detach { .. } => Kind::Detach,
        Event::Expired { .. } => Kind::Expired,
        Event::Dlq { .. } => Kind::Dlq,
        Event::Drained { .. } => Kind::Drained,
        Event::Counters { .. } => Kind::Counters,
        Event::Broker { .. } => Kind::Broker,
        Event::Fault { .. } => Kind::Fault,
        Event::Tick => Kind::Tick,
        Event::Clock { .. } => Kind::Clock,
        Event::End => Kind::End,
        Event::TxBegin { .. } => Kind::TxBegin,
        Event::CommitSent { .. } => Kind::CommitSent,
        Event::CommitOk { .. } => Kind::CommitOk,
        Event::CommitUnknown { .. } => Kind::CommitUnknown,
        Event::RollbackOk { .. } => Kind::RollbackOk,
        Event::Xa { verb, .. } => match verb {
            XaVerb::Start => Kind::XaStart,
            XaVerb::End => Kind::XaEnd,
            XaVerb::Prepare => Kind::XaPrepare,
            XaVerb::Commit => Kind::XaCommit,
            XaVerb::Rollback => Kind::XaRollback,
            XaVerb::Forget => Kind::XaForget,
        },
        Event::RecoverList { .. } => Kind::RecoverList,
        Event::Node { .. } => Kind::Node,
        Event::Host { .. } => Kind::Host,
        Event::Damaged { .. } => Kind::Damaged,
        Event::Survey { .. } => Kind::Survey,
        Event::Present { .. } => Kind::Present,
        Event::Gauge { .. } => Kind::Gauge,
        Event::Detached { .. } => Kind::Detached,
        Event::Purge { .. } => Kind::Purge,
        Event::Move { .. } => Kind::Move,
        Event::Browser { .. } => Kind::Browser,
        Event::Browsed { .. } => Kind::Browsed,
        Event::Decide { .. } => Kind::Decide,
    }
}
