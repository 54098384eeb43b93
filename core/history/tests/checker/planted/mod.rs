//! One planted history for each invariant that breaks just it, and near misses that break nothing.

mod accounting;
mod atomicity;
mod bounds;
mod commit_order;
mod counts;
mod damaged_on_purpose;
mod duplicate;
mod lost;
mod not_here;
mod order;
mod outcomes;
mod phantom;
mod place;
mod prepared;
mod priorities;
mod several_brokers;
mod silent_duplicate;
mod stuck;

use super::story::*;
use packhorse_history::{Counters, Event, MessageId, XaVerb};

const NOTHING: [(&str, u64); 0] = [];

/// Two consumers with credit for 10 each, in processes 1 and 2.
fn two_consumers() -> Story {
    let story = Story::of(3).at(1, 1, attach(1)).at(1, 1, credit(1, 10));
    story.at(1, 2, attach(2)).at(1, 2, credit(2, 10))
}
