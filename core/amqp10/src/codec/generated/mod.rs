//! The composite and restricted types of the standard, a file for each of its parts; all but this one are made by `cargo xtask codegen`.

mod choices;
mod messaging;
mod performatives;
mod security;
mod transactions;
mod transport;

pub use choices::*;
pub use messaging::*;
pub use performatives::*;
pub use security::*;
pub use transactions::*;
pub use transport::*;
