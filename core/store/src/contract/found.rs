//! What a start of a store finds, gathered and compared, and what must be so of whatever is found.
//!
//! Must not know: the rules.

use super::StoreUnderTest;
use crate::{Figures, Recovered, RecoveredBranch, RecoveredEntry, RecoveredProducer, RecoveredSession, RecoveredWork};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use packhorse_model::{
    ClientSession, Content, DuplicateId, EntryKey, ProducerId, QueueId, QueueName, QueueSettings, Resident, Sequence,
    ShardId, TxnId, Xid,
};

/// All that a start finds, over all shards.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) queues: BTreeMap<QueueId, (QueueName, QueueSettings, Sequence, Sequence)>,
    pub(super) next_queue: u64,
    pub(super) entries: BTreeMap<EntryKey, RecoveredEntry>,
    pub(super) parts: BTreeMap<(TxnId, QueueId), Vec<RecoveredWork>>,
    pub(super) branches: BTreeMap<Xid, RecoveredBranch>,
    pub(super) completed: Vec<(Xid, bool, u64)>,
    pub(super) sessions: BTreeMap<ClientSession, RecoveredSession>,
    pub(super) producers: BTreeMap<(QueueId, ProducerId), RecoveredProducer>,
    pub(super) ids: BTreeMap<(QueueId, DuplicateId), u64>,
}

impl Found {
    pub(super) fn entry(&self, queue: QueueId, sequence: Sequence) -> &RecoveredEntry {
        self.entries.get(&EntryKey { queue, sequence }).expect("the entry is recovered")
    }

    pub(super) fn sequences(&self, queue: QueueId) -> Vec<Sequence> {
        self.entries.keys().filter(|k| k.queue == queue).map(|k| k.sequence).collect()
    }

    pub(super) fn add(&mut self, thing: Recovered) {
        match thing {
            Recovered::Queue { id, name, settings, next, reserved } => {
                self.queues.insert(id, (name, settings, next, reserved));
            }
            Recovered::NextQueueId(id) => self.next_queue = id.0,
            Recovered::Entry(entry) => {
                let same = self.entries.insert(entry.key, *entry);
                assert!(same.is_none(), "an entry comes once");
            }
            Recovered::BranchOp(op) => self.parts.entry((op.txn, op.queue)).or_default().push(op.op),
            Recovered::Branch(branch) => {
                let same = self.branches.insert(branch.xid.clone(), *branch);
                assert!(same.is_none(), "a branch comes once");
            }
            Recovered::Completed { xid, committed, at_ms } => self.completed.push((xid, committed, at_ms)),
            Recovered::Producer(producer) => {
                let same = self.producers.insert((producer.queue, producer.producer), *producer);
                assert!(same.is_none(), "a producer comes once");
            }
            Recovered::DuplicateId { queue, id, at_ms } => {
                let same = self.ids.insert((queue, id), at_ms);
                assert!(same.is_none(), "an id comes once");
            }
            Recovered::Session(session) => {
                let same = self.sessions.insert(session.session, *session);
                assert!(same.is_none(), "a session comes once");
            }
        }
    }

    /// What must be so of whatever is found.
    pub(super) fn check(&self) {
        for (id, (.., next, reserved)) in &self.queues {
            assert!(next < reserved, "queue {id} may draw numbers");
            assert!(self.sequences(*id).iter().all(|s| s < next), "queue {id} draws no number twice");
        }
        assert!(self.ids.keys().all(|(queue, _)| self.queues.contains_key(queue)), "an id is its queue's");
        for ((queue, _), producer) in &self.producers {
            assert!(self.queues.contains_key(queue), "a producer is its queue's");
            let runs = producer.runs.iter();
            assert!(runs.clone().all(|(first, last)| producer.floor <= *first && first <= last));
            assert!(runs.is_sorted_by(|before, run| before.1 < run.0 - 1), "runs are apart");
        }
        let mut told: Vec<(TxnId, QueueId)> = Vec::new();
        for branch in self.branches.values() {
            for (queue, figures) in &branch.parts {
                let part = self.parts.get(&(branch.txn, *queue)).expect("a part that has figures is told");
                assert_eq!(figures_of(part), *figures, "figures of {}'s part in queue {queue}", branch.xid);
                told.push((branch.txn, *queue));
            }
            assert!(branch.parts.is_sorted_by_key(|(queue, _)| *queue), "parts come in the order of queues");
            assert!(branch.decided.is_none() || branch.parts.is_empty(), "what is decided has no contents");
        }
        assert!(self.parts.keys().all(|part| told.contains(part)), "what is told of a part is a branch's");
        let mut held = BTreeMap::new();
        for ((txn, queue), part) in &self.parts {
            for work in part {
                if let RecoveredWork::Acknowledge { sequence, .. } = *work {
                    assert_eq!(self.entry(*queue, sequence).suspect, None, "what is held is not a suspect");
                    assert_eq!(held.insert((queue, sequence), txn), None, "an entry is in one branch");
                }
            }
        }
        assert!(
            self.completed.is_sorted_by_key(|(_, _, at_ms)| *at_ms),
            "completed ones come in the order of their times"
        );
    }
}

/// Content that a start tells of: not in memory.
pub(super) fn not_in_memory(length: usize) -> Content {
    Content::Body(Resident { buffer: 0, offset: 0, length: length as u32 })
}

pub(super) fn figures_of(part: &[RecoveredWork]) -> Figures {
    let mut figures = Figures::default();
    for work in part {
        match work {
            RecoveredWork::Enqueue { content, .. } => {
                figures.adds += 1;
                figures.bytes += content.length();
            }
            RecoveredWork::Acknowledge { .. } => figures.removes += 1,
            RecoveredWork::Number { .. } | RecoveredWork::DuplicateId(_) => {}
        }
    }
    figures
}

/// Whose a recovered thing is, and its place in the order of recovery.
pub(super) fn kind(thing: &Recovered) -> (u8, Option<QueueId>) {
    match thing {
        Recovered::Queue { .. } | Recovered::NextQueueId(_) => (0, None),
        Recovered::Entry(entry) => (1, Some(entry.key.queue)),
        Recovered::BranchOp(op) => (2, Some(op.queue)),
        Recovered::Producer(producer) => (3, Some(producer.queue)),
        Recovered::DuplicateId { queue, .. } => (4, Some(*queue)),
        Recovered::Branch(_) => (5, None),
        Recovered::Completed { .. } => (6, None),
        Recovered::Session(_) => (7, None),
    }
}

pub(super) fn recover<S: StoreUnderTest>(store: &mut S, shards: u16) -> Found {
    let mut found = Found::default();
    for shard in 0..shards {
        let mut all = Vec::new();
        while store.handle(ShardId(shard)).recover(7, &mut all) {}
        assert!(all.iter().map(|thing| kind(thing).0).is_sorted(), "each kind comes in its turn");
        let entries: Vec<EntryKey> =
            all.iter().filter_map(|r| if let Recovered::Entry(e) = r { Some(e.key) } else { None }).collect();
        assert!(entries.is_sorted_by(|a, b| a < b), "a queue's entries come in ascending order");
        let queues = found.queues.len();
        found.queues.clear();
        for thing in all {
            match kind(&thing) {
                (_, Some(queue)) => assert_eq!(queue.owner(shards), ShardId(shard), "a thing is its queue's owner's"),
                (0, None) => {}
                (_, None) => assert_eq!(shard, 0, "what is of the whole store is told to shard 0"),
            }
            found.add(thing);
        }
        assert!(shard == 0 || found.queues.len() == queues, "every shard has each queue");
    }
    found.check();
    found
}
