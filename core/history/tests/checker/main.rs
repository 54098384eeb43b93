//! The checker from outside: planted histories, a reference broker, files as they are found after a kill.

mod binary;
mod format;
mod operators;
mod planted;
mod property;
mod reference;
mod story;
mod transacted;
mod transacted_reference;
mod world;
