//! What a world came to: broken promises, what happened, what was hit.

use crate::coverage::Coverage;
use crate::fault::Kind;
use std::fmt;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// `I1` to `I12` of the checker; `start`, `exit`, `liveness`, `audit`, `protocol`, `history`, `panic` of the world.
    pub code: String,
    /// In words.
    pub what: String,
}

impl Breach {
    pub(crate) fn new(code: &str, what: String) -> Breach {
        Breach { code: code.to_owned(), what }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The checker's sentences begin with their code.
        if self.what.starts_with(&self.code) {
            f.write_str(&self.what)
        } else {
            write!(f, "{}: {}", self.code, self.what)
        }
    }
}

/// What happened in a world, or in many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events of all histories.
    pub events: u64,
    /// Messages sent.
    pub sent: u64,
    /// Of those, confirmed.
    pub confirmed: u64,
    /// Deliveries seen.
    pub received: u64,
    /// Acknowledgements told.
    pub acknowledged: u64,
    /// Dead letters seen.
    pub dead_letters: u64,
    /// Starts of brokers.
    pub starts: u64,
    /// Connections.
    pub connections: u64,
    /// Turns of brokers.
    pub turns: u64,
    /// Steps of the world.
    pub steps: u64,
    /// Virtual time, µs.
    pub virtual_us: u64,
}

impl Totals {
    /// How many numbers these are.
    pub(crate) const COUNT: usize = 11;

    /// Each of them, in order.
    fn each(&mut self) -> [&mut u64; Totals::COUNT] {
        let Totals { events, sent, confirmed, received, acknowledged, dead_letters, .. } = self;
        let Totals { starts, connections, turns, steps, virtual_us, .. } = self;
        [events, sent, confirmed, received, acknowledged, dead_letters, starts, connections, turns, steps, virtual_us]
    }

    /// As they stand, in order.
    pub(crate) fn values(mut self) -> [u64; Totals::COUNT] {
        self.each().map(|value| *value)
    }

    /// Out of their values.
    pub(crate) fn of(values: [u64; Totals::COUNT]) -> Totals {
        let mut totals = Totals::default();
        totals.each().into_iter().zip(values).for_each(|(slot, value)| *slot = value);
        totals
    }

    /// Of both.
    pub(crate) fn add(&mut self, other: &Totals) {
        self.each().into_iter().zip(other.values()).for_each(|(sum, value)| *sum += value);
    }
}

/// A fault that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurred {
    /// Its number in the plan: what `Settings::faults` takes.
    pub number: u32,
    /// When, virtual µs.
    pub at_us: u64,
    /// What.
    pub kind: Kind,
    /// Which broker.
    pub host: String,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Equal runs have equal digests.
    pub digest: u64,
    /// What happened.
    pub totals: Totals,
    /// Promises broken; must be empty.
    pub breaches: Vec<Breach>,
    /// Faults that hit work in flight, by kind.
    pub hits: [u64; Kind::COUNT],
    /// Transitions by fault.
    pub coverage: Coverage,
    /// The faults that were carried out, in order.
    pub faults: Vec<Occurred>,
    /// The histories: name and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// If asked for: time in µs, and what a broker logged or why a connection ended.
    pub notes: Vec<(u64, String)>,
}
