//! The AMQP 1.0 front end: a connection's links, between the protocol engine and queues.
//!
//! `connection` (login, events, end), `attach` (links come), `producer` (messages in), `consumer` (messages out), `coordinator`
//! (transactions begin and end), `verdicts` (what homes answer), `transacted` (work in transactions), `open_txns` (which there
//! are), `render` (words), `link` (what is kept). Must not know the store or other connections.

mod attach;
mod connection;
mod consumer;
mod coordinator;
mod link;
mod open_txns;
mod producer;
pub(crate) mod render;
mod transacted;
mod verdicts;

pub(crate) use connection::Connection;
