//! One cell of the matrix while it runs: the client, the broker, a queue of its own, and the checks all rows share.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use crate::{
    broker::{self, Broker},
    client::{Client, Recipe},
    table::Kind,
};

/// What a row's function ends with: `Err` says what was wanted and what came.
pub(crate) type Check<T = ()> = Result<T, String>;

/// The number of messages of a cell, unless their bodies are 1 MiB and more.
pub(crate) const MANY: u64 = 500;

/// How long counters may take to show what was done, and a receive may wait while there should be messages: bounds a
/// fault, measures nothing.
pub(crate) const PATIENCE_MS: u64 = 20_000;

/// How long a receive waits where nothing may come: the longer, the surer, and every cell that does so pays it.
pub(crate) const QUIET_MS: u64 = 250;

/// A message as the client told it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arrived {
    pub(crate) number: i64,
    pub(crate) size: u64,
    pub(crate) sha: String,
    pub(crate) durable: bool,
    /// Delivery-count, 0 the first time.
    pub(crate) count: u64,
    /// Whether the client calls it redelivered, where it has a word for that beside the count.
    pub(crate) redelivered: Option<bool>,
}

/// Messages to send.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) from: u64,
    pub(crate) count: u64,
    pub(crate) size: u64,
    /// The header's field; `None` leaves it to the client.
    pub(crate) durable: Option<bool>,
    /// Most messages without an outcome; 0 is all of them.
    pub(crate) window: u64,
    /// With duplicate ids that their numbers make.
    pub(crate) ids: bool,
}

impl Batch {
    /// `count` durable messages of 1 KiB, numbered from 0.
    pub(crate) fn of(count: u64) -> Batch {
        Batch { from: 0, count, size: 1024, durable: Some(true), window: 0, ids: false }
    }
}

/// One cell while it runs.
pub(crate) struct Cell<'a> {
    pub(crate) kind: Kind,
    pub(crate) client: &'a mut Client,
    pub(crate) recipe: &'a Recipe,
    pub(crate) broker: &'a mut Broker,
    /// The name of the cell's own queue.
    pub(crate) queue: String,
    /// Taken by the cells that look into the dead-letter queue, which all share.
    pub(crate) dead_letters: &'a Mutex<()>,
}

impl Cell<'_> {
    pub(crate) fn call(&mut self, command: Json) -> Check<Json> {
        self.client.call(&command)
    }

    /// Connects as `c` with session `s`, anonymously.
    pub(crate) fn open(&mut self) -> Check {
        self.connect(self.broker.amqp(), None)?;
        self.call(json!({"do": "session", "connection": "c", "session": "s"})).map(|_| ())
    }

    /// Connects as `c`, with PLAIN where a user is given.
    pub(crate) fn connect(&mut self, to: SocketAddr, user: Option<&str>) -> Check {
        let mut command = json!({"do": "connect", "connection": "c", "host": to.ip().to_string(), "port": to.port()});
        if let Some(user) = user {
            command["user"] = json!(user);
            command["password"] = json!("guest");
        }
        self.call(command).map(|_| ())
    }

    /// Attaches sender `link` on session `s` to the cell's queue.
    pub(crate) fn sender(&mut self, link: &str, settle: &str) -> Check {
        let queue = self.queue.clone();
        self.call(json!({"do": "sender", "session": "s", "link": link, "address": queue, "settle": settle})).map(|_| ())
    }

    /// Attaches receiver `link` on session `s` to the cell's queue, which lets `prefetch` messages come.
    pub(crate) fn receiver(&mut self, link: &str, settle: &str, prefetch: u64) -> Check {
        let queue = self.queue.clone();
        self.receiver_of(&queue, link, settle, prefetch)
    }

    /// As [`Cell::receiver`], of any queue.
    pub(crate) fn receiver_of(&mut self, queue: &str, link: &str, settle: &str, prefetch: u64) -> Check {
        let command = json!({"do": "receiver", "session": "s", "link": link, "address": queue, "settle": settle, "prefetch": prefetch});
        self.call(command).map(|_| ())
    }

    /// As [`Cell::receiver`], one that only looks: its source asks for copies, and the broker's answer agrees.
    pub(crate) fn browser(&mut self, link: &str, prefetch: u64) -> Check {
        let command = json!({"do": "receiver", "session": "s", "link": link, "address": self.queue, "prefetch": prefetch, "browse": true});
        match self.call(command)?["distribution_mode"].as_str() {
            Some("copy") => Ok(()),
            None if !self.kind.shows_the_answer_to_an_attach() => Ok(()),
            other => Err(format!("the answer to an attach for copies says {other:?}")),
        }
    }

    /// A receiver with exactly `credit`, where the client lets credit be given by hand, and with that prefetch where not.
    pub(crate) fn receiver_with_credit(&mut self, link: &str, credit: u64) -> Check {
        if self.kind.grants_credit() {
            self.receiver(link, "", 0)?;
            self.call(json!({"do": "credit", "link": link, "count": credit})).map(|_| ())
        } else {
            self.receiver(link, "", credit)
        }
    }

    /// Sends and expects every message accepted.
    pub(crate) fn send(&mut self, link: &str, batch: Batch) -> Check {
        let answer = self.call(send_command(link, batch))?;
        if answer["accepted"].as_u64() == Some(batch.count) {
            Ok(())
        } else {
            Err(format!("{} of {} accepted, others: {}", answer["accepted"], batch.count, answer["others"]))
        }
    }

    /// Attaches a sender, sends, detaches.
    pub(crate) fn fill(&mut self, batch: Batch) -> Check {
        self.sender("fill", "")?;
        self.send("fill", batch)?;
        self.detach("fill")
    }

    /// Detaches (closes) a link.
    pub(crate) fn detach(&mut self, link: &str) -> Check {
        self.call(json!({"do": "detach", "link": link})).map(|_| ())
    }

    /// Receives up to `count` and gives each the outcome; comes back early when nothing came for `wait_ms`.
    pub(crate) fn receive_within(
        &mut self,
        link: &str,
        count: u64,
        outcome: &str,
        wait_ms: u64,
    ) -> Check<Vec<Arrived>> {
        self.receive_so(
            json!({"do": "receive", "link": link, "count": count, "settle": outcome, "timeout_ms": wait_ms}),
        )
    }

    /// As a `receive` command says.
    pub(crate) fn receive_so(&mut self, command: Json) -> Check<Vec<Arrived>> {
        self.call(command)?["messages"].as_array().into_iter().flatten().map(arrived).collect()
    }

    /// Receives exactly `count`.
    pub(crate) fn receive(&mut self, link: &str, count: u64, outcome: &str) -> Check<Vec<Arrived>> {
        let messages = self.receive_within(link, count, outcome, PATIENCE_MS)?;
        if messages.len() as u64 == count {
            Ok(messages)
        } else {
            Err(format!("{} of {count} messages came{}", messages.len(), self.whereabouts()))
        }
    }

    /// Expects that nothing comes.
    pub(crate) fn receive_nothing(&mut self, link: &str) -> Check {
        match self.receive_within(link, 1, "accept", QUIET_MS)?.first() {
            None => Ok(()),
            Some(message) => Err(format!("message {} came, none was to come", message.number)),
        }
    }

    /// Waits until the queue's counters are as told; without HTTP there are none to compare.
    pub(crate) fn counters(&self, wanted: &[(&str, u64)]) -> Check {
        self.counters_of(&self.queue, wanted)
    }

    /// As [`Cell::counters`], of any queue.
    pub(crate) fn counters_of(&self, queue: &str, wanted: &[(&str, u64)]) -> Check {
        let end = Instant::now() + Duration::from_millis(PATIENCE_MS);
        let mut pause = Duration::from_millis(2);
        loop {
            let Some((status, facts)) = self.broker.get(&format!("/api/v1/queues/{queue}"))? else { return Ok(()) };
            let differing: Vec<String> = wanted
                .iter()
                .filter(|(name, value)| facts[*name].as_u64() != Some(*value))
                .map(|(name, value)| format!("{name} is {}, wanted {value}", facts[*name]))
                .collect();
            if status == 200 && differing.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("counters of {queue} (status {status}): {}", differing.join(", ")));
            }
            // Settlements without a reply show up when the broker has read them; it tells nobody.
            broker::pause(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// The depth of a queue; 0 of one that is not there.
    pub(crate) fn depth_of(&self, queue: &str) -> Check<u64> {
        match self.broker.get(&format!("/api/v1/queues/{queue}"))? {
            Some((200, facts)) => facts["depth"].as_u64().ok_or_else(|| format!("no depth in {facts}")),
            Some((404, _)) => Ok(0),
            other => Err(format!("queue {queue}: {other:?}")),
        }
    }

    /// Kills the broker `delay_ms` after the client was told to do something, and answers what the client says of it.
    pub(crate) fn killed_amid(&mut self, command: &Json, delay_ms: u64) -> Check<Check<Json>> {
        let (client, broker) = (&mut *self.client, &mut *self.broker);
        std::thread::scope(|scope| {
            let killer = scope.spawn(move || {
                // When the client writes to its socket cannot be seen from here, so callers try several delays.
                broker::pause(Duration::from_millis(delay_ms));
                broker.kill()
            });
            let answer = client.call(command);
            killer.join().unwrap_or(Err("the killing thread died".into())).map(|()| answer)
        })
    }

    /// After all were sent and acknowledged: nothing left, everything counted once.
    pub(crate) fn counters_at_rest(&self, messages: u64) -> Check {
        self.counters(&[
            ("ready", 0),
            ("acquired", 0),
            ("depth", 0),
            ("enqueued_total", messages),
            ("acknowledged_total", messages),
            ("dead_lettered_total", 0),
        ])
    }

    fn whereabouts(&self) -> String {
        match self.broker.get(&format!("/api/v1/queues/{}", self.queue)) {
            Ok(Some((200, facts))) => {
                let names =
                    ["ready", "acquired", "depth", "credit", "consumers", "enqueued_total", "acknowledged_total"];
                format!("; counters: {}", names.map(|name| format!("{name} {}", facts[name])).join(", "))
            }
            _ => String::new(),
        }
    }
}

/// The `send` command for a batch.
pub(crate) fn send_command(link: &str, batch: Batch) -> Json {
    json!({"do": "send", "link": link, "from": batch.from, "count": batch.count, "size": batch.size, "durable": batch.durable, "window": batch.window, "ids": batch.ids})
}

/// A message as a client tells it.
pub(crate) fn arrived(told: &Json) -> Check<Arrived> {
    let (Some(number), Some(size), Some(sha), Some(durable), Some(count)) = (
        told["n"].as_i64(),
        told["size"].as_u64(),
        told["sha"].as_str(),
        told["durable"].as_bool(),
        told["count"].as_u64(),
    ) else {
        return Err(format!("not a message: {told}"));
    };
    let redelivered = told["redelivered"].as_bool();
    Ok(Arrived { number, size, sha: sha.to_owned(), durable, count, redelivered })
}

/// Expects exactly the messages numbered `from..from + messages.len()`, in order, bodies as they were filled.
pub(crate) fn in_order(messages: &[Arrived], from: u64, size: u64) -> Check {
    for (wanted, message) in (from..).zip(messages) {
        if message.number != wanted as i64 {
            return Err(format!("message {} came where {wanted} was due", message.number));
        }
        same_body(message, size)?;
    }
    Ok(())
}

/// Expects the body of the message's own number and this size.
pub(crate) fn same_body(message: &Arrived, size: u64) -> Check {
    if message.size != size {
        return Err(format!("message {} has {} bytes, sent were {size}", message.number, message.size));
    }
    if message.sha != body_sha(message.number as u64, size) {
        return Err(format!("message {}: the body of {size} bytes is not what was sent", message.number));
    }
    Ok(())
}

/// Expects this delivery-count on every message.
pub(crate) fn all_counted(messages: &[Arrived], count: u64) -> Check {
    let wrong = |message: &&Arrived| {
        message.count != count || message.redelivered.is_some_and(|redelivered| redelivered != (count > 0))
    };
    match messages.iter().find(wrong) {
        None => Ok(()),
        Some(Arrived { number, count: told, redelivered, .. }) => {
            Err(format!("message {number} has delivery-count {told}, redelivered {redelivered:?}; wanted {count}"))
        }
    }
}

/// SHA-256 of the body that every client fills for `number`: byte j of each block of 251 is ((j + 31 n) * 7 + 13) mod 251.
fn body_sha(number: u64, size: u64) -> String {
    static KNOWN: Mutex<Option<HashMap<(u64, u64), String>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .get_or_insert_default()
        .entry((number, size))
        .or_insert_with(|| {
            let block: Vec<u8> = (0..251).map(|j| (((j + 31 * number) * 7 + 13) % 251) as u8).collect();
            // Hashed in strides of whole blocks, for 100 MiB of blocks of 251 bytes would be slow.
            let stride = block.repeat(64);
            let mut hash = Sha256::new();
            let mut left = size as usize;
            while left > 0 {
                let part = left.min(stride.len());
                hash.update(&stride[..part]);
                left -= part;
            }
            hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
        })
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u64, size: u64) -> Arrived {
        Arrived { number: number as i64, size, sha: body_sha(number, size), durable: true, count: 0, redelivered: None }
    }

    #[test]
    fn a_body_of_no_bytes_has_the_hash_of_nothing() {
        assert_eq!(body_sha(3, 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn a_gap_a_swap_and_a_changed_body_are_each_found() {
        let good: Vec<Arrived> = (0..4).map(|number| message(number, 1000)).collect();
        assert_eq!(in_order(&good, 0, 1000), Ok(()));
        assert!(in_order(&[good[0].clone(), good[2].clone()], 0, 1000).is_err());
        assert!(in_order(&[good[1].clone(), good[0].clone()], 0, 1000).is_err());
        let mut changed = good.clone();
        changed[2].sha = body_sha(3, 1000);
        assert!(in_order(&changed, 0, 1000).is_err());
        assert!(in_order(&good, 0, 999).is_err());
    }
}
