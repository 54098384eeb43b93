//! The AMQP 1.0 front end: a connection's links, between the protocol engine and queues.
//!
//! `connection` (login, events, end), `attach` (links come), `producer` (messages in), `consumer` (messages out), `render`
//! (words), `link` (what is kept). Must not know the store or other connections.

mod attach;
mod connection;
mod consumer;
mod link;
mod producer;
pub(crate) mod render;

pub(crate) use connection::Connection;
