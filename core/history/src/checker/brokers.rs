//! The brokers of a run: which are up, when each ended, what is wrong with which on purpose.
//!
//! Where only one is spoken of it is number 0, which stands for all: what happens to it concerns every queue, and a queue of which
//! nobody says whose it is is concerned by everything.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct Broker {
    up: bool,
    /// When it ended, ascending.
    ends: Vec<u64>,
    faults: u32,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Brokers {
    all: Vec<Broker>,
    by_name: BTreeMap<String, u32>,
    /// Kind and target, and whom it concerns.
    faults: BTreeMap<(String, String), u32>,
}

impl Default for Brokers {
    fn default() -> Brokers {
        let (by_name, faults) = (BTreeMap::new(), BTreeMap::new());
        Brokers { all: vec![Broker { up: true, ends: Vec::new(), faults: 0 }], by_name, faults }
    }
}

impl Brokers {
    /// Stands for every broker.
    pub(crate) const ALL: u32 = 0;

    /// Whether what happens to `broker` concerns a queue of `other`.
    pub(crate) fn concerns(broker: u32, other: u32) -> bool {
        broker == other || broker == Brokers::ALL || other == Brokers::ALL
    }

    /// The number of the broker with this name.
    pub(crate) fn index(&mut self, name: &str) -> u32 {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let index = self.all.len() as u32;
        self.all.push(Broker { up: true, ends: Vec::new(), faults: 0 });
        self.by_name.insert(name.to_owned(), index);
        index
    }

    /// The broker of this name; all of them, if it is none's.
    pub(crate) fn find(&self, name: &str) -> u32 {
        self.by_name.get(name).copied().unwrap_or(Brokers::ALL)
    }

    /// It has started or ended.
    pub(crate) fn changed(&mut self, broker: u32, up: bool, at: u64) {
        let broker = &mut self.all[broker as usize];
        broker.up = up;
        if !up {
            broker.ends.push(at);
        }
    }

    /// A fault begins or is over.
    pub(crate) fn fault(&mut self, kind: &str, target: &str, start: bool) {
        let fault = (kind.to_owned(), target.to_owned());
        if start {
            let whom = self.find(target);
            if self.faults.insert(fault, whom).is_none() {
                self.all[whom as usize].faults += 1;
            }
        } else if let Some(whom) = self.faults.remove(&fault) {
            self.all[whom as usize].faults -= 1;
        }
    }

    fn concerned(&self, broker: u32) -> impl Iterator<Item = &Broker> {
        let all = self.all.iter().enumerate();
        all.filter(move |(index, _)| Brokers::concerns(*index as u32, broker)).map(|(_, broker)| broker)
    }

    /// Whether a broker is up and nothing is wrong with it on purpose.
    pub(crate) fn is_well(&self, broker: u32) -> bool {
        self.concerned(broker).all(|broker| broker.up && broker.faults == 0)
    }

    /// When it ended last; links from before that are dead.
    pub(crate) fn born(&self, broker: u32) -> u64 {
        self.concerned(broker).filter_map(|broker| broker.ends.last().copied()).max().unwrap_or(0)
    }

    /// Whether it has ended at all.
    pub(crate) fn has_ended(&self, broker: u32) -> bool {
        self.concerned(broker).any(|broker| !broker.ends.is_empty())
    }

    /// When it ended first, not before `from`.
    pub(crate) fn first_end(&self, broker: u32, from: u64) -> Option<u64> {
        self.concerned(broker).flat_map(|broker| &broker.ends).copied().filter(|at| *at >= from).min()
    }

    /// Whether it ended in this time, both ends included.
    pub(crate) fn ended_between(&self, broker: u32, from: u64, to: u64) -> bool {
        self.concerned(broker).any(|broker| broker.ends.iter().any(|at| (from..=to).contains(at)))
    }
}
