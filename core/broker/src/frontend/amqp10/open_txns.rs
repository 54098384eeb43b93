//! The transactions that a connection works in, as its client knows them: ids on the wire, questions that wait for an answer,
//! and what the end of a transaction will do here. The transactions themselves are at their homes (`packhorse_txn`).
//!
//! An id on the wire is a transaction's id and an *epoch*: a number drawn when the client was told of it. What comes under an
//! epoch that is over finds nothing, even if the same branch is worked in again. Must not know the engine or queues.

use super::link::{Consumer, InTxn};
use packhorse_amqp10::engine::SessionId;
use packhorse_model::{Outcome, QueueId, TxnId, Xid};
use packhorse_queue::DeliveryKey;
use packhorse_txn::state::Verb;
use std::collections::BTreeMap;

/// A transaction's id on the wire: AMQP allows 32 bytes.
pub(super) type WireId = [u8; TxnId::BYTES + 8];

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OpenTxns {
    last_epoch: u64,
    last_question: u32,
    /// By epoch.
    open: BTreeMap<u64, Open>,
    /// The id that was resolved last, and its epoch: most work in a transaction follows other work in it.
    resolved: Option<(WireId, u64)>,
    questions: BTreeMap<u32, Question>,
    /// What waits for the outcome of branches in which the work here has ended.
    ended: BTreeMap<Xid, Vec<Held>>,
}

/// A transaction that is worked in.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) txn: TxnId,
    /// The link to the coordinator by which it was begun.
    pub(super) control: u64,
    /// Of a branch.
    pub(super) xid: Option<Xid>,
    /// Its end was asked for: it takes no work any more.
    pub(super) closed: bool,
    /// Something was done in it.
    pub(super) worked: bool,
    pub(super) held: Vec<Held>,
}

/// A delivery whose end depends on the end of a transaction.
#[derive(Debug)]
pub(super) struct Held {
    /// The consumer's link.
    pub(super) link: u64,
    pub(super) session: SessionId,
    pub(super) delivery: u32,
    /// Its place among the unsettled ones of the link; none: the client has settled it.
    pub(super) place: Option<usize>,
    pub(super) queue: QueueId,
    pub(super) key: DeliveryKey,
    pub(super) what: What,
}

/// What the client said of it.
#[derive(Debug)]
pub(super) enum What {
    /// An outcome. The queue knows it.
    Settled,
    /// An outcome that came too late for the transaction. It happens when that is committed.
    Outcome(Outcome),
    /// Nothing; it was acquired in the transaction. If something is said later, that is held as well, and holds.
    Acquired,
}

/// What was asked of a home.
#[derive(Debug)]
pub(super) struct Question {
    /// The link to the coordinator, and the delivery that asked.
    pub(super) link: u64,
    pub(super) delivery: u32,
    pub(super) ask: Ask,
}

/// See [`Question`].
#[derive(Debug)]
pub(super) enum Ask {
    Declare,
    Start { xid: Xid },
    Discharge { epoch: u64, fail: bool },
    End { xid: Xid, epoch: Option<u64> },
    Decide { xid: Xid, verb: Verb },
    Recover,
    Status,
}

impl OpenTxns {
    /// A transaction can be worked in from now on.
    pub(super) fn insert(&mut self, txn: TxnId, control: u64, xid: Option<Xid>) -> WireId {
        self.last_epoch += 1;
        let open = Open { txn, control, xid, closed: false, worked: false, held: Vec::new() };
        self.open.insert(self.last_epoch, open);
        wire_id(txn, self.last_epoch)
    }

    /// The epoch of an id on the wire, while it takes work.
    #[inline]
    pub(super) fn resolve(&mut self, id: &[u8]) -> Option<u64> {
        match &self.resolved {
            Some((last, epoch)) if id == last => Some(*epoch),
            _ => self.look_for(id),
        }
    }

    fn look_for(&mut self, id: &[u8]) -> Option<u64> {
        let id: WireId = id.try_into().ok()?;
        let (_, epoch) = id.split_last_chunk::<8>()?;
        let epoch = u64::from_be_bytes(*epoch);
        let open = self.open.get(&epoch).filter(|open| !open.closed)?;
        if wire_id(open.txn, epoch) != id {
            return None;
        }
        self.resolved = Some((id, epoch));
        Some(epoch)
    }

    /// The transaction, while it takes work.
    pub(super) fn working(&mut self, epoch: u64) -> Option<&mut Open> {
        self.open.get_mut(&epoch).filter(|open| !open.closed)
    }

    /// All that take work.
    pub(super) fn working_all(&self) -> Vec<TxnId> {
        self.open.values().filter(|open| !open.closed).map(|open| open.txn).collect()
    }

    pub(super) fn get(&self, epoch: u64) -> Option<&Open> {
        self.open.get(&epoch)
    }

    pub(super) fn get_mut(&mut self, epoch: u64) -> Option<&mut Open> {
        self.open.get_mut(&epoch)
    }

    /// A delivery goes out for credit of this transaction; the id to say so. None: it takes no work any more.
    pub(super) fn acquired(
        &mut self,
        epoch: u64,
        (link, session): (u64, SessionId),
        consumer: &mut Consumer,
        place: usize,
        key: DeliveryKey,
    ) -> Option<WireId> {
        let open = self.working(epoch)?;
        consumer.in_txn.insert(place, InTxn { epoch, said: false });
        // It has no number on the wire yet, and needs none: nothing is said about what becomes of the acquisition.
        let (delivery, what) = (0, What::Acquired);
        open.held.push(Held { link, session, delivery, place: Some(place), queue: consumer.queue, key, what });
        Some(wire_id(open.txn, epoch))
    }

    /// It takes no work any more, for its end is asked for.
    pub(super) fn close(&mut self, epoch: u64) {
        self.resolved = None;
        if let Some(open) = self.open.get_mut(&epoch) {
            open.closed = true;
        }
    }

    /// It is over here.
    pub(super) fn remove(&mut self, epoch: u64) -> Option<Open> {
        self.resolved = None;
        self.open.remove(&epoch)
    }

    /// The epoch in which this link to the coordinator works in a branch.
    pub(super) fn of_branch(&self, control: u64, xid: &Xid) -> Option<u64> {
        self.open
            .iter()
            .find(|(_, open)| open.control == control && !open.closed && open.xid.as_ref() == Some(xid))
            .map(|(epoch, _)| *epoch)
    }

    /// Whether this link to the coordinator has a local transaction with work in it.
    pub(super) fn local_work(&self, control: u64) -> bool {
        self.open.values().any(|open| open.control == control && open.xid.is_none() && open.worked)
    }

    /// Takes out what a link to the coordinator began and nobody has asked to end.
    pub(super) fn lose(&mut self, control: u64) -> Vec<(u64, Open)> {
        self.resolved = None;
        let lost: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, open)| open.control == control && !open.closed)
            .map(|(epoch, _)| *epoch)
            .collect();
        lost.into_iter().filter_map(|epoch| Some((epoch, self.open.remove(&epoch)?))).collect()
    }

    /// The work in a branch has ended here: what is held waits for its outcome.
    pub(super) fn wait_for(&mut self, xid: Xid, held: Vec<Held>) {
        if !held.is_empty() {
            self.ended.entry(xid).or_default().extend(held);
        }
    }

    /// What waited for this branch.
    pub(super) fn take_ended(&mut self, xid: &Xid) -> Vec<Held> {
        self.ended.remove(xid).unwrap_or_default()
    }

    /// Puts down a question; its number.
    pub(super) fn ask(&mut self, question: Question) -> u32 {
        self.last_question = self.last_question.wrapping_add(1);
        self.questions.insert(self.last_question, question);
        self.last_question
    }

    pub(super) fn answered(&mut self, question: u32) -> Option<Question> {
        self.questions.remove(&question)
    }

    /// Whether nothing is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.questions.is_empty() && self.ended.is_empty()
    }
}

/// The id on the wire of a transaction that was told of with this epoch.
pub(super) fn wire_id(txn: TxnId, epoch: u64) -> WireId {
    let mut id = [0; TxnId::BYTES + 8];
    id[..TxnId::BYTES].copy_from_slice(&txn.to_bytes());
    id[TxnId::BYTES..].copy_from_slice(&epoch.to_be_bytes());
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_model::ShardId;

    const TXN: TxnId = TxnId { run: 3, number: 5, home: ShardId(1) };

    #[test]
    fn an_id_is_good_while_its_epoch_is() {
        let mut txns = OpenTxns::default();
        let first = txns.insert(TXN, 1, None);
        assert!(first.len() <= 32, "the standard's limit");
        let epoch = txns.resolve(&first).unwrap();
        assert_eq!(txns.resolve(&first), Some(epoch), "again");
        for cut in 0..first.len() {
            assert_eq!(txns.resolve(&first[..cut]), None);
            let mut other = first;
            other[cut] ^= 1;
            assert_eq!(txns.resolve(&other), None, "byte {cut}");
        }
        txns.close(epoch);
        assert_eq!(txns.resolve(&first), None);
        assert!(txns.working(epoch).is_none() && txns.get(epoch).is_some());
        txns.remove(epoch);
        let second = txns.insert(TXN, 1, None);
        assert_eq!((txns.resolve(&first), txns.resolve(&second)), (None, Some(epoch + 1)), "the same, worked in again");
    }

    #[test]
    fn a_link_that_goes_takes_its_own_and_leaves_what_is_being_ended() {
        let mut txns = OpenTxns::default();
        let mine = txns.insert(TXN, 1, None);
        let ending = txns.insert(TxnId { number: 6, ..TXN }, 1, None);
        let other = txns.insert(TxnId { number: 7, ..TXN }, 2, None);
        let epoch = txns.resolve(&ending).unwrap();
        txns.close(epoch);
        assert!(txns.resolve(&mine).is_some());
        let lost: Vec<u64> = txns.lose(1).iter().map(|(_, open)| open.txn.number).collect();
        assert_eq!(lost, [5]);
        assert_eq!(txns.resolve(&mine), None);
        assert!(txns.resolve(&other).is_some() && !txns.is_empty());
    }
}
