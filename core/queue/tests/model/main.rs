//! The queue against a naive model: random lives of a queue, every answer and every effect judged by the rules of
//! `spec/entry.md`. The model keeps one map and looks at all of it each time; it shares no code with the queue.

mod admin;
mod check;
mod inputs;
mod outcomes;
mod parts;
mod turn;

use admin::{Browser, Mover};
use bytes::Bytes;
use packhorse_model::{
    Content, ContentFormat, EntryKey, Head, HeadFlags, Now, OnFull, Outcome, Overlay, QueueId, QueueLimits, QueueName,
    QueueSettings, Reason, Resident,
};
use packhorse_queue::{Answer, ConsumerId, DeliveryKey, Effect, Enqueue, Input, Limit, Queue, Relocation, Turn};
use packhorse_store::{Batch, Blame, Body, Load, Loaded, LoadedBody, Op, PASSED, RecoveredEntry, Stored, Ticket};
use parts::{Ending, Part};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const LIMIT: u32 = 3;
const ID: QueueId = QueueId(1);
const RETRY_US: u64 = 1_000_000;
/// So long all others wait for suspects that were blamed before; and if they had passed once when the next crash came.
const PROBATION_US: u64 = 100_000;
const LONG_PROBATION_US: u64 = 400_000;
/// In this time all that have credit get their turn.
const ROUND_US: u64 = 600_000;
/// One that had passed so often does not pass any more.
const PASSES: u32 = 2;
/// So many that were blamed once are on probation together.
const GROUP: u64 = 32;
/// A suspect's mark older than so many seconds is made again.
const FRESH_S: u64 = 2;
/// Blamed so often a suspect is given to nobody.
const CRASHES: u32 = 3;
/// Broker time at the start.
const STARTED_MS: u64 = 70_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    /// Until this ticket is durable; `None`: until it arrives from elsewhere.
    Staged(Option<u64>),
    Ready,
    Acquired(u64, DeliveryKey),
    /// On its way to the dead-letter queue; `retry` is set between two offers.
    Doomed {
        key: DeliveryKey,
        scheduled: bool,
        retry: Option<u64>,
    },
    /// Acknowledged in a transaction.
    Removing,
    Damaged,
}

#[derive(Debug)]
struct Entry {
    level: u8,
    persistent: bool,
    /// The store has its body.
    stored: bool,
    state: Is,
    buffer: u64,
    length: u64,
    arrived: u64,
    deliveries: u32,
    attempts: u32,
    /// Not given before this ticket is durable.
    held: Option<u64>,
    refused_by: BTreeSet<u64>,
    overlay: Option<Vec<u8>>,
    /// How often it was blamed, and had passed, of a suspect.
    suspect: Option<(u32, u32)>,
    /// When its own mark became durable.
    marked_us: Option<u64>,
    quarantined: bool,
    /// The operator's move that takes it.
    moved_by: Option<u64>,
}

#[derive(Debug, Default)]
struct Consumer {
    pre_settled: bool,
    limit: u64,
    given: u64,
    /// What it holds, oldest first.
    held: VecDeque<u64>,
    /// Something was ever kept from it.
    choosy: bool,
}

#[derive(Debug)]
struct Leaving {
    id: u64,
    lost: bool,
    oldest_is_back: bool,
    held: VecDeque<u64>,
    choosy: bool,
}

#[derive(Debug, Default, PartialEq)]
struct Totals {
    enqueued: u64,
    acknowledged: u64,
    redelivered: u64,
    dead_lettered: u64,
    purged: u64,
    moved: u64,
}

/// How an entry comes back.
#[derive(Clone, Copy, PartialEq)]
enum Back {
    Unseen,
    Modified,
    Seen,
    Lost,
}

/// What a turn must have brought.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    enqueued: Vec<(u64, bool)>,
    acknowledged: BTreeSet<u64>,
    redelivered: Vec<(u64, u32, u32, bool)>,
    /// From, to, time to live, deliveries.
    relocated: Vec<(u64, u64, u32, u32)>,
    offers: Vec<(u64, Reason, u32)>,
    damaged: Vec<u64>,
    /// Transactions of which something goes ahead, or that was dropped.
    ahead: Vec<(u64, bool)>,
}

/// The queue, the model, and the world around both.
struct World {
    queue: Queue,
    dead_letters: bool,
    /// Some bodies are in memory only; then nothing is purged, for the model sees purges by their records.
    unstored: bool,
    entries: BTreeMap<u64, Entry>,
    consumers: BTreeMap<u64, Consumer>,
    leaving: VecDeque<Leaving>,
    next_consumer: u64,
    next: u64,
    keys: Vec<DeliveryKey>,
    loads: Vec<Load>,
    totals: Totals,
    now_us: u64,
    ticket: u64,
    durable: u64,
    volatile: u64,
    buffer: u64,
    oldest_resident: u64,
    reserved: u64,
    reserving: Option<(u64, u64)>,
    marks: BTreeSet<u64>,
    marking: Vec<(u64, u64)>,
    /// Those that were blamed and marked together last.
    group: BTreeSet<u64>,
    /// All others wait for these, with the broker time of their deliveries, until then at most.
    probation: BTreeMap<u64, u64>,
    until_us: u64,
    /// That time has come: they pass when something else is to go.
    over: bool,
    /// Token, first number not meant, entries purged.
    purges: VecDeque<(u64, u64, u64)>,
    limits: QueueLimits,
    /// The dead-letter queue took nothing the last time.
    jammed: bool,
    moves: VecDeque<Mover>,
    /// Moves that were asked for.
    asked: u64,
    /// Offers of this dispatch for what nobody held.
    fresh: BTreeSet<DeliveryKey>,
    browsers: BTreeMap<u64, Browser>,
    parts: BTreeMap<u64, Part>,
    next_txn: u64,
    /// Transactions of which so many operations are to be dropped when they come.
    dead: BTreeMap<u64, i64>,
    ending: VecDeque<Ending>,
    batch: Batch,
    out: Vec<Effect>,
    expected: Expected,
}

fn nth<T>(items: Vec<T>, n: u32) -> Option<T> {
    let count = items.len();
    items.into_iter().nth(n as usize % count.max(1))
}

/// Half of all queues have some.
fn limits((any, a, b): (bool, u8, u8)) -> QueueLimits {
    let limit = |n: u8| (!n.is_multiple_of(3)).then(|| u64::from(n));
    let on_full = [OnFull::Block, OnFull::Reject, OnFull::DropOldest][usize::from(a) % 3];
    if any {
        QueueLimits { max_messages: limit(a / 3 % 12), max_bytes: limit(b), on_full }
    } else {
        QueueLimits::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_is_what_the_model_says(
        start in 0u64..600,
        scarce in any::<bool>(),
        dead_letters in any::<bool>(),
        unstored in any::<bool>(),
        limited in any::<(bool, u8, u8)>(),
        before in prop::collection::vec(any::<u8>(), 0..9),
        steps in prop::collection::vec(any::<u32>(), 1..48),
    ) {
        let reserved = if scarce { start + 4 } else { start + (1 << 20) };
        let start = start + before.len() as u64;
        let reserved = reserved + before.len() as u64;
        let mut world = World::new(start, reserved, dead_letters, unstored, limits(limited));
        world.recover(&before);
        for step in steps {
            world.step(step);
        }
        world.come_to_rest();
    }
}
