//! The management API: `/api/v1/…`, `/healthz`, `/readyz`, over HTTP/1.1 on a thread of its own.
//!
//! Renders commands and replies of `packhorse-broker` as JSON; a command goes to a shard's mailbox and its reply wakes a
//! one-shot. Must not know the journal, sockets of AMQP, or any rule about queues: those are the shards'.

mod api;
#[cfg(feature = "failpoints")]
mod failpoints;
mod gateway;
mod metrics;
mod node;
mod patient;
mod problem;
mod render;
mod server;
mod transactions;

#[cfg(feature = "failpoints")]
pub use failpoints::Failpoints;
pub use gateway::{Gateway, NoAnswer};
pub use node::{Node, Phase};
pub use server::{HttpLimits, Server};

/// The description of the API, an OpenAPI 3.1 document in JSON.
pub fn openapi() -> serde_json::Value {
    let mut document: serde_json::Value = serde_json::from_str(include_str!("openapi.json")).expect("a test parses it");
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    document
}
