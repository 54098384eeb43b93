//! The kill harness: clients in processes of their own live through many lives of a broker, and a checker that knows only what they
//! saw judges.
//!
//! A [`Plan`] is drawn from a seed; [`run`] carries it out with a [`Death`]; a [`Campaign`] makes runs until enough kills
//! count. Must not know the broker but by command line, AMQP, HTTP, exit codes, signals, and the number in a checkpoint's file.

mod campaign;
mod canary;
mod checkpoints;
mod clock;
mod consumer;
mod dead_letters;
mod diary;
mod fleet;
mod flow;
mod http;
mod intake;
mod line;
mod message;
mod network;
mod options;
mod orders;
mod plan;
mod process;
mod producer;
mod report;
mod run;
mod tally;
mod transactor;
pub mod transform;

pub use campaign::{Campaign, Verdict};
pub use clock::{now_ns, pause};
pub use consumer::run as consume;
pub use network::Hits;
pub use options::ClientOptions;
pub use plan::{Clients, Plan, is_foreign};
pub use process::{Broker, Death, KillNine, Setup};
pub use producer::run as produce;
pub use run::{Outcome, run};
pub use tally::{InFlight, Tally, UNACKNOWLEDGED_LEAST, UNCONFIRMED_LEAST};
pub use transactor::{manage, transact};
