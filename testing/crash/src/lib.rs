//! Tools for tests of the real process: a broker that is started, watched and killed, well-behaved clients that keep books,
//! and peers that speak bytes.
//!
//! A driver only: it knows the broker as its users do, by command line, AMQP, HTTP, exit codes and what the system says of
//! the process. What goes in is drawn from seeds; a test that fails says how to run it again.

mod books;
mod broker;
pub mod frames;
pub mod harness;
mod load;
pub mod mutate;
mod pair;
mod peer;
pub mod planted;
pub mod power;
pub mod proxy;
mod random;
mod reader;
mod segments;
mod short;
pub mod transact;
mod wire;

pub use books::{Books, Receipt};
pub use broker::{Broker, Ended, serve};
pub use load::{Again, Consumer, Producer};
pub use pair::Pair;
pub use peer::{Heard, OPEN, Peer};
pub use random::Random;
pub use reader::{Read, Reader};
pub use segments::{Place, Segments};
pub use short::Short;
pub use wire::{Broken, Wire};
