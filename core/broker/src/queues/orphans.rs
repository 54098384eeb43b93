//! Whole deliveries whose link is gone before their files are synced. What came before the end of a connection counts, and
//! keeps its order: they go into their queue when it is their turn. Nobody is told; nobody is there.

use super::Queues;
use crate::mail::{Behind, LinkRef};
use packhorse_model::{LargeId, QueueId};
use std::collections::VecDeque;

/// The deliveries of one link, in order; the first one's file is not synced yet.
#[derive(Debug)]
pub(super) struct Orphan {
    queue: QueueId,
    from: LinkRef,
    behind: VecDeque<Behind>,
}

impl Queues {
    /// A link is gone and leaves these.
    pub(crate) fn adopt(&mut self, queue: QueueId, from: LinkRef, behind: VecDeque<Behind>) {
        self.orphans.push(Orphan { queue, from, behind });
    }

    /// A file is synced whose link is gone.
    pub(crate) fn orphan_synced(&mut self, file: LargeId) {
        let Some(at) = self.orphans.iter().position(|o| o.behind.iter().any(|b| b.is_file(file))) else { return };
        let mut orphan = self.orphans.swap_remove(at);
        if let Some(behind) = orphan.behind.iter_mut().find(|b| b.is_file(file)) {
            behind.unsynced = false;
        }
        while let Some(next) = orphan.behind.pop_front_if(|b| !b.unsynced) {
            self.enqueue_behind(orphan.queue, orphan.from, next);
        }
        if !orphan.behind.is_empty() {
            self.orphans.push(orphan);
        }
    }

    /// Whether a delivery still waits for its file.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }
}
