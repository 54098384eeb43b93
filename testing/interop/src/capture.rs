//! Keeps short sessions of foreign clients as vectors: the bytes of both directions, recorded between client and broker.
//! The protocol engine's tests replay them (`core/amqp10/tests/vectors.rs`).

use std::{fs, path::Path};

use serde_json::{Value as Json, json};

use crate::{
    broker::Broker,
    client::{Client, Recipe},
    recorder::Recorder,
    specs::{self, Spec},
    table::Kind,
};

/// Records one session of `kind` into `folder/NAME/{from-client,from-broker}.bin`; gives the number of bytes.
pub(crate) fn session(kind: Kind, recipe: &Recipe, broker: &Broker, folder: &Path) -> Result<usize, String> {
    let recorder = Recorder::start(broker.amqp())?;
    let mut client = Client::start(recipe)?;
    talk(kind, &mut client, recorder.port())?;
    let recording = recorder.recordings().into_iter().next().ok_or("nothing was recorded")?;
    let folder = folder.join(kind.name());
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    for (name, bytes) in [("from-client.bin", &recording.from_client), ("from-broker.bin", &recording.from_broker)] {
        fs::write(folder.join(name), bytes).map_err(|error| error.to_string())?;
    }
    Ok(recording.from_client.len() + recording.from_broker.len())
}

/// Login, links, messages of different kinds, each outcome, a drain, and an orderly end.
fn talk(kind: Kind, client: &mut Client, port: u16) -> Result<(), String> {
    let mut call = |command: Json| client.call(&command);
    let queue = format!("vectors.{}", kind.name());
    call(
        json!({"do": "connect", "connection": "c", "host": "127.0.0.1", "port": port, "user": "guest", "password": "guest"}),
    )?;
    call(json!({"do": "session", "connection": "c", "session": "s"}))?;
    call(json!({"do": "sender", "session": "s", "link": "out", "address": queue}))?;
    let messages = messages(kind);
    call(json!({"do": "send_specs", "link": "out", "messages": messages}))?;
    call(json!({"do": "send", "link": "out", "count": 6, "size": 300, "durable": false}))?;
    call(
        json!({"do": "receiver", "session": "s", "link": "in", "address": queue, "prefetch": if kind.grants_credit() { 0 } else { 1 }}),
    )?;
    if kind.grants_credit() {
        call(json!({"do": "credit", "link": "in", "count": messages.len() + 10}))?;
    }
    let receive = |count: usize, outcome: &str| json!({"do": "receive", "link": "in", "count": count, "settle": outcome, "timeout_ms": 5000});
    call(receive(messages.len(), "accept"))?;
    if kind.grants_credit() {
        call(json!({"do": "drain", "link": "in"}))?;
        call(json!({"do": "credit", "link": "in", "count": 10}))?;
    }
    for outcome in ["reject", "release", "fail", "undeliverable"] {
        call(receive(1, outcome))?;
    }
    call(receive(4, "accept"))?;
    call(json!({"do": "detach", "link": "in"}))?;
    call(json!({"do": "detach", "link": "out"}))?;
    call(json!({"do": "end", "session": "s"}))?;
    call(json!({"do": "close", "connection": "c"}))?;
    Ok(())
}

/// One of every third kind that this client can say, and the one with most sections.
fn messages(kind: Kind) -> Vec<Json> {
    let all: Vec<Spec> =
        specs::sections().into_iter().chain(specs::types()).filter(|spec| specs::expressible(kind, spec)).collect();
    all.iter().step_by(3).map(|spec| spec.message.clone()).collect()
}
