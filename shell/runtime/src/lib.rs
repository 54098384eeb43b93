//! The process around the broker: configuration, clock, logs, signals, shard threads, readiness, exit codes.
//!
//! Must not know protocols or queues' rules: it moves inputs and effects between shards and the outside.

mod clock;
mod config;
mod exit;
#[cfg(feature = "failpoints")]
mod failpoints;
mod load;
mod logging;
mod ready;
mod serve;
mod settings;
mod signals;

pub use config::{LogFormat, ServeConfig};
pub use exit::ExitReason;
pub use load::{Effective, Flags, Mistake, Origin};
pub use serve::serve;
pub use settings::{Kind, SETTINGS, Setting, Value};
