//! What operators do to the queues of brokers: which acts a seed has, each with its time. They belong to some seeds only, so that worlds in
//! which nothing but clients takes messages remain.

use crate::draw::Draw;
use crate::host::Setup;

/// One act.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    pub(crate) at_us: u64,
    pub(crate) host: usize,
    pub(crate) deed: Deed,
    /// Its own dice.
    pub(crate) dice: u64,
    /// Full queues of this world may drop their oldest.
    pub(crate) drops: bool,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// All that nobody holds goes.
    Purge,
    /// The queue goes with everything in it; the next link makes it again.
    Delete,
    /// The dead-letter queue goes.
    DeleteDeadLetters,
    /// Ready messages go to another queue; never back, so that their order can be judged.
    Move,
    /// The same of the queue of this number: it is deleted while messages are being moved out of it.
    DeleteSource(usize),
    /// A queue gets limits, and loses them after a while.
    Limit,
    /// The dead-letter queue takes only a few for a while.
    LimitDeadLetters,
    /// A queue is made that is there, or not.
    Create,
    /// A branch in doubt is decided, if there is one; else later, so many times.
    Decide(u32),
}

/// The acts of a seed, by descending time: the next is the last.
pub(crate) fn acts(seed: u64, hosts: &[Setup], work_us: u64) -> Vec<Act> {
    let mut acts = if has_operators(seed) { deeds(seed, hosts, work_us) } else { Vec::new() };
    let mut draw = Draw::new(seed, 7);
    let most = draw.range(0, 5);
    acts.extend((0..most).map(|_| {
        let (host, at_us) = (draw.below(hosts.len()), draw.range(100_000, work_us));
        Act { at_us, host, deed: Deed::Decide(40), dice: draw.next(), drops: false }
    }));
    acts.sort_by_key(|act| std::cmp::Reverse(act.at_us));
    acts
}

/// What is done to queues.
fn deeds(seed: u64, hosts: &[Setup], work_us: u64) -> Vec<Act> {
    let mut draw = Draw::new(seed, 6);
    // A message that was never delivered can be a dead letter only if a full queue drops: then nothing else takes dead letters away,
    // for nobody could say what they were.
    let drops = draw.chance(50);
    let mut acts: Vec<Act> = (0..draw.range(6, 16))
        .map(|_| {
            let deed = match draw.range(0, 19) {
                0..=3 => Deed::Purge,
                4 | 5 => Deed::Delete,
                6 | 7 if !drops => Deed::DeleteDeadLetters,
                6..=11 => Deed::Move,
                12..=15 => Deed::Limit,
                16..=18 => Deed::LimitDeadLetters,
                _ => Deed::Create,
            };
            let (host, at_us) = (draw.below(hosts.len()), draw.range(60_000, work_us));
            Act { at_us, host, deed, dice: draw.next(), drops }
        })
        .collect();
    acts.sort_by_key(|act| std::cmp::Reverse(act.at_us));
    acts
}

/// Whether a seed has them.
pub(crate) fn has_operators(seed: u64) -> bool {
    seed.is_multiple_of(3)
}

/// Whether a seed may have browsers.
pub(crate) fn has_browsers(seed: u64) -> bool {
    seed % 3 != 1
}
