//! Takes everything out of the last queue when nobody else works: what is there is counted by origin, and told to the history.

use super::super::clock::now_ns;
use super::super::diary::Diary;
use super::super::message::Seen;
use super::OUT;
use crate::load::misuse;
use crate::wire::{Broken, Wire};
use packhorse_client_core::{Event as Told, Joiner, ReceiverOptions, Verdict};
use packhorse_history::{Event, MessageId};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const CREDIT: u32 = 1_000;
const TURN: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes what the queue has, `depth` messages; by origin, how often it came.
pub(super) fn take(
    to: SocketAddr,
    run: u64,
    consumer: u32,
    depth: u64,
    diary: &mut Diary,
) -> Result<HashMap<u64, u32>, String> {
    drain(to, run, consumer, depth, diary).map_err(|broken| format!("taking what is in {OUT}: {broken:?}"))
}

fn drain(to: SocketAddr, run: u64, consumer: u32, depth: u64, diary: &mut Diary) -> Result<HashMap<u64, u32>, Broken> {
    let (mut wire, session) = Wire::open(to, "sink")?;
    let mut put = |event: Event<'_>| diary.put(now_ns(), &event).map_err(Broken::Refused);
    put(Event::Attach { consumer, queue: OUT, presettled: false, filtered: false })?;
    put(Event::Credit { consumer, credit: CREDIT })?;
    let options = ReceiverOptions { name: "in", address: OUT, presettled: false, credit: CREDIT, token: 0 };
    let link = wire.client.careful_receiver(session, &options).map_err(misuse)?;
    let mut joiner = Joiner::default();
    let mut origins: HashMap<u64, u32> = HashMap::new();
    let mut asked: HashMap<u32, MessageId> = HashMap::new();
    let (mut answered, mut last) = (0, Instant::now());
    while answered < depth {
        // What was acknowledged is in the history before it goes out.
        diary.flush().map_err(Broken::Refused)?;
        wire.turn(TURN, |client, event| {
            match event {
                Told::Message(transfer) => {
                    let Some(bytes) = joiner.push(&transfer) else { return Ok(()) };
                    let Seen { message, whole, count, origin, .. } = Seen::of(run, bytes);
                    let received = Event::Recv {
                        message,
                        consumer,
                        queue: OUT,
                        delivery_count: count,
                        redelivered: count > 0,
                        crc_ok: whole,
                        tx: None,
                    };
                    diary.put(now_ns(), &received).map_err(Broken::Refused)?;
                    let origin = origin.ok_or_else(|| Broken::Refused(format!("{message} has no origin")))?;
                    *origins.entry(origin).or_default() += 1;
                    let accepted = Event::Ack { message, consumer, confirmed: false, tx: None };
                    diary.put(now_ns(), &accepted).map_err(Broken::Refused)?;
                    asked.insert(transfer.delivery_id, message);
                    client.decide(link, transfer.delivery_id, Verdict::Accept).map_err(misuse)?;
                }
                Told::Confirmed => {
                    for outcome in client.outcomes() {
                        if let Some(message) = asked.remove(&outcome.delivery_id) {
                            let done = Event::Ack { message, consumer, confirmed: true, tx: None };
                            diary.put(now_ns(), &done).map_err(Broken::Refused)?;
                            answered += 1;
                            last = Instant::now();
                        }
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        if last.elapsed() > PATIENCE {
            return Err(Broken::Refused(format!("{answered} of {depth} came, and no more for a minute")));
        }
        if wire.client.credit(link) <= CREDIT / 2 {
            diary.put(now_ns(), &Event::Credit { consumer, credit: CREDIT }).map_err(Broken::Refused)?;
            wire.client.grant(link, CREDIT).map_err(misuse)?;
        }
    }
    diary.put(now_ns(), &Event::Detach { consumer, orderly: true, confirmed: false }).map_err(Broken::Refused)?;
    diary.flush().map_err(Broken::Refused)?;
    wire.close()?;
    Ok(origins)
}
