//! Nouns of the broker: ids, message heads, addresses, outcomes, time. No behaviour beyond what a noun needs to be valid.
//! And the maps that all of core uses.
//!
//! Must not know: anything else. Everything in `core/` may import it.
#![no_std]

extern crate alloc;

mod address;
mod content;
mod ids;
mod map;
mod outcome;
mod planted;
mod producer;
mod recent;
mod settings;
mod time;
mod transaction;
mod xid;

pub use address::{Address, AddressError, NAME_LIMIT_BYTES, QueueName};
pub use content::{Content, ContentFormat, DeadLetter, Head, HeadFlags, Overlay, Reason, Resident};
pub use ids::{ConnectionId, EntryKey, LargeId, QueueId, Sequence, ShardId};
pub use map::{Map, Seed};
pub use outcome::Outcome;
#[cfg(feature = "planted")]
pub use planted::choose as choose_planted;
pub use planted::{Planted, planted};
pub use producer::{DuplicateId, Identity, IdentityKey, Numbered, ProducerId};
pub use recent::Recent;
pub use settings::{OnFull, QueueLimits, QueueSettings};
pub use time::Now;
pub use transaction::{BrokerId, ClientSession, Purpose, Resolution, Token, TxnId};
pub use xid::{PART_LIMIT_BYTES as XID_PART_LIMIT_BYTES, Xid, XidError};
