//! What the histories of a run say beside violations: how much was in flight at each kill, and how much was there to judge.

use packhorse_history::{Event, HistoryError, Source, XaVerb};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// A kill counts from so many sends without an answer.
pub const UNCONFIRMED_LEAST: u64 = 200;
/// And from so many deliveries without a confirmed end.
pub const UNACKNOWLEDGED_LEAST: u64 = 200;

/// What was in flight at one kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Sends without an answer, on links that get answers.
    pub unconfirmed: u64,
    /// Deliveries without an end, or without the answer to an acknowledgement where answers are asked for.
    pub unacknowledged: u64,
    /// Transactions whose prepare, commit or rollback is asked for and not answered.
    pub deciding: u64,
    /// Branches that are prepared, as their managers know, and not decided.
    pub in_doubt: u64,
}

impl InFlight {
    /// Whether a kill then tells anything.
    pub fn counts(&self) -> bool {
        self.unconfirmed >= UNCONFIRMED_LEAST && self.unacknowledged >= UNACKNOWLEDGED_LEAST
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By kill, in order.
    pub kills: Vec<InFlight>,
    /// Persistent messages that were confirmed, those sent in transactions by the answer to these.
    pub confirmed_persistent: u64,
    /// Deliveries that were flagged.
    pub redelivered: u64,
    /// Commits of local transactions that were answered with a yes, also afterwards.
    pub committed: u64,
    /// Commits and rollbacks of branches that were answered with a yes.
    pub decided: u64,
}

/// A producing link while its file is read.
#[derive(Default)]
struct Sender {
    open: u64,
    answered: bool,
    volatile: HashSet<u64>,
    /// Without an answer when a connection died; they may be sent again.
    lost: HashSet<u64>,
    at_kills: Vec<(usize, u64)>,
}

impl Sender {
    /// A message has an answer. It is not in flight any more, if it was not given up for lost before.
    fn answer(&mut self, sequence: u64) {
        if !self.lost.remove(&sequence) {
            self.open = self.open.saturating_sub(1);
        }
    }
}

/// A consuming link.
#[derive(Default)]
struct Receiver {
    open: u64,
    asked: u64,
    answered: bool,
    at_kills: Vec<(usize, u64, u64)>,
}

/// The transactions of one file.
#[derive(Default)]
struct Transactions {
    /// Of each persistent messages, by its number.
    sent: HashMap<u64, u64>,
    /// Numbers of branches.
    branches: HashMap<String, u64>,
    /// Local transactions, and branches, whose end is asked for and not answered on this connection.
    committing: HashSet<u64>,
    asked: HashSet<String>,
    in_doubt: HashSet<String>,
    at_kills: Vec<(usize, u64, u64)>,
}

impl Transactions {
    /// Takes what concerns transactions. The persistent messages that are confirmed by it.
    fn take(&mut self, event: &Event<'_>, tally: &mut Tally) -> u64 {
        match *event {
            Event::TxBegin { tx, xid: Some(xid), .. } => {
                self.branches.insert(xid.to_owned(), tx);
            }
            Event::Send { persistent: true, tx: Some(tx), .. } => *self.sent.entry(tx).or_default() += 1,
            Event::CommitSent { tx } => {
                self.committing.insert(tx);
            }
            Event::CommitUnknown { tx } => {
                self.committing.remove(&tx);
            }
            Event::RollbackOk { tx } => {
                self.committing.remove(&tx);
                self.sent.remove(&tx);
            }
            Event::CommitOk { tx } => {
                self.committing.remove(&tx);
                tally.committed += 1;
                return self.sent.remove(&tx).unwrap_or(0);
            }
            Event::Xa { verb: XaVerb::Prepare | XaVerb::Commit | XaVerb::Rollback, xid, code: None } => {
                self.asked.insert(xid.to_owned());
            }
            Event::Xa { verb: XaVerb::Prepare, xid, code: Some(code) } => {
                self.asked.remove(xid);
                if code == 0 {
                    self.in_doubt.insert(xid.to_owned());
                }
            }
            Event::Xa { verb: verb @ (XaVerb::Commit | XaVerb::Rollback), xid, code: Some(code) } => {
                self.asked.remove(xid);
                if code == 0 {
                    self.in_doubt.remove(xid);
                    tally.decided += 1;
                    let sent = self.branches.get(xid).and_then(|tx| self.sent.remove(tx));
                    return sent.filter(|_| verb == XaVerb::Commit).unwrap_or(0);
                }
            }
            // The connection is gone: what has no answer will have none.
            Event::Detach { .. } => self.asked.clear(),
            _ => {}
        }
        0
    }

    fn at_kill(&mut self, kill: usize) {
        let deciding = (self.committing.len() + self.asked.len()) as u64;
        // Of those, the answer may be one that nobody saw.
        let in_doubt = self.in_doubt.difference(&self.asked).count() as u64;
        self.at_kills.push((kill, deciding, in_doubt));
    }
}

impl Tally {
    /// Reads the files. `kills`: when the broker was killed, ascending.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a Path>, kills: &[u64]) -> Result<Tally, String> {
        let mut tally = Tally { kills: vec![InFlight::default(); kills.len()], ..Tally::default() };
        for path in files {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|e| format!("{name}: {e}"))?;
            tally.add(name, BufReader::with_capacity(1 << 16, file), kills).map_err(|e| e.to_string())?;
        }
        Ok(tally)
    }

    fn add(&mut self, name: String, reader: impl std::io::BufRead, kills: &[u64]) -> Result<(), HistoryError> {
        let Some(mut source) = Source::open(name, reader)? else { return Ok(()) };
        let mut senders: BTreeMap<u32, Sender> = BTreeMap::new();
        let mut receivers: BTreeMap<u32, Receiver> = BTreeMap::new();
        let mut transactions = Transactions::default();
        let mut next = 0;
        while source.advance()? {
            while next < kills.len() && source.at_ns() > kills[next] {
                senders.values_mut().filter(|one| one.open > 0).for_each(|one| one.at_kills.push((next, one.open)));
                let receivers = receivers.values_mut().filter(|one| one.open + one.asked > 0);
                receivers.for_each(|one| one.at_kills.push((next, one.open, one.asked)));
                transactions.at_kill(next);
                next += 1;
            }
            let event = source.event()?;
            self.confirmed_persistent += transactions.take(&event, self);
            match event {
                Event::Send { message, persistent, .. } => {
                    let sender = senders.entry(message.producer).or_default();
                    sender.open += 1;
                    if !persistent {
                        sender.volatile.insert(message.sequence);
                    }
                }
                Event::SentOk { message } => {
                    let sender = senders.entry(message.producer).or_default();
                    sender.answer(message.sequence);
                    sender.answered = true;
                    self.confirmed_persistent += u64::from(!sender.volatile.remove(&message.sequence));
                }
                Event::SentRejected { message, .. } => {
                    senders.entry(message.producer).or_default().answer(message.sequence);
                }
                Event::SentUnknown { message } => {
                    let sender = senders.entry(message.producer).or_default();
                    sender.answer(message.sequence);
                    sender.lost.insert(message.sequence);
                }
                Event::Recv { consumer, redelivered, .. } => {
                    receivers.entry(consumer).or_default().open += 1;
                    self.redelivered += u64::from(redelivered);
                }
                Event::Ack { consumer, confirmed, .. } => {
                    let receiver = receivers.entry(consumer).or_default();
                    if confirmed {
                        receiver.asked = receiver.asked.saturating_sub(1);
                        receiver.answered = true;
                    } else {
                        receiver.open = receiver.open.saturating_sub(1);
                        receiver.asked += 1;
                    }
                }
                Event::Release { consumer, .. } | Event::Reject { consumer, .. } | Event::Modified { consumer, .. } => {
                    let receiver = receivers.entry(consumer).or_default();
                    receiver.open = receiver.open.saturating_sub(1);
                }
                Event::Detach { consumer, .. } => {
                    let receiver = receivers.entry(consumer).or_default();
                    (receiver.open, receiver.asked) = (0, 0);
                }
                _ => {}
            }
        }
        for sender in senders.into_values().filter(|sender| sender.answered) {
            sender.at_kills.iter().for_each(|(kill, open)| self.kills[*kill].unconfirmed += open);
        }
        for (kill, deciding, in_doubt) in transactions.at_kills {
            self.kills[kill].deciding += deciding;
            self.kills[kill].in_doubt += in_doubt;
        }
        for receiver in receivers.into_values() {
            for (kill, open, asked) in receiver.at_kills {
                self.kills[kill].unacknowledged += open + if receiver.answered { asked } else { 0 };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_history::{Header, JsonlWriter, MessageId};

    fn history(events: &[(u64, Event<'_>)]) -> Vec<u8> {
        let header =
            Header { run: 1, process: "p".into(), pid: 1, incarnation: 0, clock: "c".into(), mono_ns: 0, wall_ns: 0 };
        let mut writer = JsonlWriter::new(Vec::new(), &header).unwrap();
        events.iter().for_each(|(at, event)| writer.put(*at, event).unwrap());
        writer.into_inner().unwrap()
    }

    fn tally(events: &[(u64, Event<'_>)], kills: &[u64]) -> Tally {
        let mut tally = Tally { kills: vec![InFlight::default(); kills.len()], ..Tally::default() };
        tally.add("p".into(), &history(events)[..], kills).unwrap();
        tally
    }

    fn send(producer: u32, sequence: u64, persistent: bool) -> Event<'static> {
        let message = MessageId::new(producer, sequence);
        let (queue, size_bytes, crc) = ("q", 16, 0);
        Event::Send { message, queue, size_bytes, crc, persistent, ttl_ms: 0, delay_ms: 0, priority: 4, tx: None }
    }

    #[test]
    fn sends_are_in_flight_until_they_are_answered_or_nobody_will() {
        let id = |sequence| MessageId::new(1, sequence);
        let events = [
            (10, send(1, 0, true)),
            (11, send(1, 1, false)),
            (12, send(1, 2, true)),
            (20, Event::SentOk { message: id(0) }),
            (21, Event::SentOk { message: id(1) }),
            (30, Event::SentUnknown { message: id(2) }),
            // A link that never gets an answer sends pre-settled: nothing of it is unconfirmed.
            (31, send(2, 0, true)),
            // One that was given up is sent again, and answered: another one is still in flight.
            (32, send(1, 3, true)),
            (33, Event::SentOk { message: id(2) }),
            (50, Event::Tick),
        ];
        let tally = tally(&events, &[5, 15, 25, 40]);
        let unconfirmed: Vec<u64> = tally.kills.iter().map(|kill| kill.unconfirmed).collect();
        assert_eq!(unconfirmed, [0, 3, 1, 1]);
        assert_eq!(tally.confirmed_persistent, 2);
    }

    #[test]
    fn deliveries_are_in_flight_until_their_acknowledgement_is_answered_where_answers_are_asked_for() {
        let recv = |consumer, sequence, redelivered| Event::Recv {
            message: MessageId::new(1, sequence),
            consumer,
            queue: "q",
            delivery_count: redelivered,
            redelivered: redelivered > 0,
            crc_ok: true,
            tx: None,
        };
        let ack = |consumer, sequence, confirmed| Event::Ack {
            message: MessageId::new(1, sequence),
            consumer,
            confirmed,
            tx: None,
        };
        let events = [
            (10, recv(1, 0, 0)),
            (10, recv(1, 1, 1)),
            (10, recv(2, 2, 0)),
            (10, recv(2, 3, 0)),
            (20, ack(1, 0, false)),
            (20, ack(2, 2, false)),
            (30, ack(1, 0, true)),
            (40, Event::Release { message: MessageId::new(1, 1), consumer: 1, tx: None }),
            (50, Event::Detach { consumer: 2, orderly: false, confirmed: false }),
            (60, Event::Tick),
        ];
        let tally = tally(&events, &[15, 25, 35, 45, 55]);
        let unacknowledged: Vec<u64> = tally.kills.iter().map(|kill| kill.unacknowledged).collect();
        assert_eq!(unacknowledged, [4, 3, 2, 1, 0]);
        assert_eq!(tally.redelivered, 1);
    }

    #[test]
    fn transactions_are_in_flight_from_the_question_to_the_answer_and_in_doubt_until_they_are_decided() {
        let xa = |verb, code| Event::Xa { verb, xid: "1:aa:bb", code };
        let begin = |tx, xid| Event::TxBegin { tx, xid, broker: None };
        let Event::Send { message, queue, size_bytes, crc, .. } = send(1, 0, true) else { unreachable!() };
        let sent = |sequence, persistent, tx| Event::Send {
            message: MessageId { sequence, ..message },
            queue,
            size_bytes,
            crc,
            persistent,
            ttl_ms: 0,
            delay_ms: 0,
            priority: 4,
            tx: Some(tx),
        };
        let gone = Event::Detach { consumer: 1, orderly: false, confirmed: false };
        let events = [
            (10, begin(1, None)),
            (11, sent(0, true, 1)),
            (12, sent(1, false, 1)),
            (20, Event::CommitSent { tx: 1 }),
            (30, Event::CommitUnknown { tx: 1 }),
            (40, Event::CommitOk { tx: 1 }),
            (50, begin(2, Some("1:aa:bb"))),
            (51, sent(2, true, 2)),
            (60, xa(XaVerb::Prepare, None)),
            (70, xa(XaVerb::Prepare, Some(0))),
            (80, xa(XaVerb::Commit, None)),
            (90, gone),
            (100, xa(XaVerb::Commit, None)),
            (101, xa(XaVerb::Commit, Some(0))),
            (110, begin(3, None)),
            (111, sent(3, true, 3)),
            (120, Event::RollbackOk { tx: 3 }),
            (130, Event::Tick),
        ];
        let tally = tally(&events, &[15, 25, 35, 65, 75, 85, 95, 105]);
        let seen: Vec<(u64, u64)> = tally.kills.iter().map(|kill| (kill.deciding, kill.in_doubt)).collect();
        assert_eq!(seen, [(0, 0), (1, 0), (0, 0), (1, 0), (0, 1), (1, 0), (0, 1), (0, 0)]);
        assert_eq!((tally.confirmed_persistent, tally.committed, tally.decided), (2, 1, 1));
    }

    #[test]
    fn a_kill_counts_from_two_hundred_on_both_sides() {
        let at = |unconfirmed, unacknowledged| InFlight { unconfirmed, unacknowledged, ..InFlight::default() }.counts();
        assert!(at(200, 200) && !at(199, 5_000) && !at(5_000, 199));
    }
}
