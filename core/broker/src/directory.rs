//! The directory: which queue has a name, and which shard owns it. Each shard has a whole copy, read on its own thread;
//! shard 0 decides on changes (`topology.rs`), every shard learns them by mail.

use packhorse_model::{Map, QueueId, QueueName, QueueSettings, Seed, ShardId};
use std::collections::BTreeMap;

/// What every shard knows of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) id: QueueId,
    pub(crate) name: QueueName,
    pub(crate) owner: ShardId,
    pub(crate) settings: QueueSettings,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Directory {
    shards: u16,
    by_name: BTreeMap<QueueName, QueueId>,
    by_id: Map<QueueId, Known>,
}

impl Directory {
    pub(crate) fn new(shards: u16, seed: Seed) -> Directory {
        Directory { shards, by_name: BTreeMap::new(), by_id: seed.map() }
    }

    /// The node's secret hasher.
    pub(crate) fn hasher(&self) -> &Seed {
        self.by_id.hasher()
    }

    pub(crate) fn insert(&mut self, id: QueueId, name: QueueName, settings: QueueSettings) {
        self.by_name.insert(name.clone(), id);
        self.by_id.insert(id, Known { id, name, owner: id.owner(self.shards), settings });
    }

    /// Other settings from now on, unless it is gone.
    pub(crate) fn change(&mut self, id: QueueId, settings: QueueSettings) {
        if let Some(known) = self.by_id.get_mut(&id) {
            known.settings = settings;
        }
    }

    pub(crate) fn remove(&mut self, id: QueueId) -> Option<Known> {
        let known = self.by_id.remove(&id)?;
        // The name may belong to a younger queue by now.
        if self.by_name.get(&known.name) == Some(&id) {
            self.by_name.remove(&known.name);
        }
        Some(known)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Known> {
        self.by_id.get(self.by_name.get(name)?)
    }

    pub(crate) fn by_id(&self, id: QueueId) -> Option<&Known> {
        self.by_id.get(&id)
    }

    /// Whether some queue names this one as its dead-letter queue.
    pub(crate) fn names_dead_letter(&self, name: &str) -> bool {
        self.by_id.values().any(|known| known.settings.dead_letter.as_ref().is_some_and(|n| n.as_str() == name))
    }

    /// Names of all queues that some queue names as its dead-letter queue.
    pub(crate) fn dead_letter_names(&self) -> impl Iterator<Item = &str> {
        self.by_id.values().filter_map(|known| known.settings.dead_letter.as_ref()).map(QueueName::as_str)
    }

    /// Queues owned by `owner` in the order of names, after the name `after`.
    pub(crate) fn owned<'d>(&'d self, owner: ShardId, after: Option<&'d str>) -> impl Iterator<Item = &'d Known> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name
            .range::<str, _>((from, Bound::Unbounded))
            .filter_map(|(_, id)| self.by_id.get(id))
            .filter(move |known| known.owner == owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> QueueName {
        QueueName::new(text).unwrap()
    }

    #[test]
    fn pages_go_by_name_and_owner() {
        let mut directory = Directory::new(2, Seed::fixed(1));
        for (id, text) in [(1, "c"), (2, "a"), (3, "b"), (5, "d")] {
            directory.insert(QueueId(id), name(text), QueueSettings::default());
        }
        let page = |after| -> Vec<_> { directory.owned(ShardId(1), after).map(|k| k.name.as_str()).collect() };
        assert_eq!(page(None), ["b", "c", "d"]);
        assert_eq!(page(Some("b")), ["c", "d"]);
        assert_eq!(page(Some("a")), ["b", "c", "d"]);
    }

    #[test]
    fn a_name_declared_again_is_another_queue() {
        let mut directory = Directory::new(1, Seed::fixed(1));
        directory.insert(QueueId(1), name("q"), QueueSettings::default());
        directory.insert(QueueId(2), name("q"), QueueSettings::default());
        directory.remove(QueueId(1));
        assert_eq!(directory.by_name("q").map(|k| k.id), Some(QueueId(2)));
        assert_eq!(directory.by_id(QueueId(1)), None);
    }
}
