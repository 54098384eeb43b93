//! A consumer: takes numbered messages, checks that each comes once, whole and in order, and accepts each.

use crate::Load;
use crate::link::Link;
use crate::message;
use packhorse_client_core::{Event, Joiner, ReceiverOptions, Verdict};
use serde_json::json;
use std::time::Instant;

/// Runs a consumer; one line of JSON at the end.
pub(crate) fn run(load: &Load) -> Result<(), String> {
    let (mut link, session) = Link::open(&load.amqp, "consumer")?;
    let options =
        ReceiverOptions { name: "consume", address: &load.queue, presettled: false, credit: load.window, token: 0 };
    let receiver = link.client.receiver(session, &options).map_err(|e| e.to_string())?;
    let mut joiner = Joiner::default();
    let mut next = 0;
    let mut first = None;
    while next < load.count {
        link.turn(|client, event| {
            let Event::Message(transfer) = event else { return Ok(()) };
            let delivery = transfer.delivery_id;
            let Some(bytes) = joiner.push(&transfer) else { return Ok(()) };
            first.get_or_insert_with(Instant::now);
            let body = bytes.len().checked_sub(load.size).map(|from| &bytes[from..]);
            let (number, _) = message::check(body.ok_or("a message shorter than its body")?)?;
            if number != next {
                return Err(format!("message {number} came when {next} was due"));
            }
            next += 1;
            client.settle(receiver, delivery, Verdict::Accept).map_err(|e| e.to_string())?;
            Ok(())
        })?;
        if link.client.credit(receiver) <= load.window / 2 {
            link.client.grant(receiver, load.window).map_err(|e| e.to_string())?;
        }
    }
    let seconds = first.map_or(0.0, |at| at.elapsed().as_secs_f64());
    println!("{}", json!({ "received": next, "seconds": seconds, "per_second": next as f64 / seconds }));
    link.close()
}
