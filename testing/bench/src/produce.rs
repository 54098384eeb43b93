//! A producer: numbered messages, so many unconfirmed at a time, until all are confirmed.

use crate::Load;
use crate::link::Link;
use crate::message;
use packhorse_client_core::{Body, Decision, Draft, Piece, SenderOptions, SenderSettleMode};
use serde_json::json;
use std::time::Instant;

/// Runs a producer; one line of JSON at the end.
pub(crate) fn run(load: &Load) -> Result<(), String> {
    let size = load.size.max(message::HEAD_BYTES);
    let (mut link, session) = Link::open(&load.amqp, "producer")?;
    let options =
        SenderOptions { name: "produce", address: Some(&load.queue), settle: SenderSettleMode::Mixed, token: 0 };
    let sender = link.client.sender(session, &options).map_err(|e| e.to_string())?;
    let mut body = vec![0; size];
    let mut encoded = Vec::with_capacity(size + 64);
    let (mut sent, mut confirmed) = (0, 0);
    // Times of sending of what is unconfirmed, by number modulo the window.
    let mut times = vec![0u64; load.window as usize];
    let mut waits_us: Vec<u32> = Vec::with_capacity(load.count.min(4 << 20) as usize);
    let start = Instant::now();
    while confirmed < load.count {
        while sent < load.count && sent - confirmed < u64::from(load.window) && link.client.sendable(sender) {
            let now = link.now_ns();
            message::fill(&mut body, sent, now);
            encoded.clear();
            Draft { durable: Some(load.durable), ..Draft::new(Body::Data(&body)) }.encode(&mut encoded);
            times[(sent % u64::from(load.window)) as usize] = now;
            link.client.send(sender, sent, false, &[Piece::Copy(&encoded)]).map_err(|e| e.to_string())?;
            sent += 1;
        }
        let now_ns = link.now_ns();
        link.turn(|client, event| {
            if let packhorse_client_core::Event::Outcomes { .. } = event {
                for outcome in client.outcomes() {
                    if outcome.state != Decision::Accepted {
                        return Err(format!("message {} got the outcome {:?}", outcome.token, outcome.state));
                    }
                    confirmed += 1;
                    let at = times[(outcome.token % times.len() as u64) as usize];
                    if waits_us.len() < waits_us.capacity() {
                        waits_us.push((now_ns.saturating_sub(at) / 1000) as u32);
                    }
                }
            }
            Ok(())
        })?;
    }
    let seconds = start.elapsed().as_secs_f64();
    waits_us.sort_unstable();
    let at = |q: f64| waits_us.get(((waits_us.len() as f64 - 1.0) * q) as usize).copied().unwrap_or(0);
    println!(
        "{}",
        json!({ "confirmed": confirmed, "seconds": seconds, "per_second": confirmed as f64 / seconds,
                "confirm_us": { "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1.0) } })
    );
    link.close()
}
