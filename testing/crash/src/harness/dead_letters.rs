//! Reads the dead-letter queue to its end, as the last consumer of a run.

use super::clock::now_ns;
use super::diary::Diary;
use super::line::{Line, Lost, READ_BYTES, Read};
use super::message::Seen;
use super::process::Broker;
use packhorse_client_core::{Client, Event as Told, Joiner, LinkId, ReceiverOptions, SessionId, Verdict};
use packhorse_history::Event;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The name of the queue.
pub(super) const NAME: &str = "DLQ";
const CREDIT: u32 = 500;
const NAP: Duration = Duration::from_millis(10);

/// A dead letter: what it is about, if it says that, and why it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeadLetter {
    pub(super) origin: Option<u64>,
    pub(super) reason: String,
}

/// Accepts and records everything in the queue, until the broker says that it is empty.
pub(super) fn read(
    to: SocketAddr,
    broker: &Broker,
    run: u64,
    diary: &mut Diary,
    patience: Duration,
) -> Result<Vec<DeadLetter>, String> {
    let until = Instant::now() + patience;
    let mut found = Vec::new();
    let mut attached = None;
    loop {
        // The time before the question.
        let at = now_ns();
        let depth = broker.queue(NAME)?.map_or(Some(0), |queue| queue["depth"].as_u64());
        if depth == Some(0) {
            diary.put(at, &Event::Drained { queue: NAME })?;
            diary.flush()?;
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(format!("{NAME} still holds {depth:?} messages after {} s", patience.as_secs()));
        }
        let reader = match &mut attached {
            Some(reader) => reader,
            None => attached.insert(Reader::attach(to)?),
        };
        reader.turn(run, diary, &mut found)?;
        diary.flush()?;
    }
}

struct Reader {
    line: Line,
    buffer: Vec<u8>,
    joiner: Joiner,
    link: Option<LinkId>,
    session: Option<SessionId>,
}

impl Reader {
    fn attach(to: SocketAddr) -> Result<Reader, Lost> {
        let line = Line::open(to, "dead-letters")?;
        Ok(Reader { line, buffer: vec![0; READ_BYTES], joiner: Joiner::default(), link: None, session: None })
    }

    /// Takes what has come; waits a little for it.
    fn turn(&mut self, run: u64, diary: &mut Diary, found: &mut Vec<DeadLetter>) -> Result<(), Lost> {
        let Reader { line, buffer, joiner, link, session } = self;
        let read = line.read(buffer, |client: &mut Client, event| {
            match event {
                Told::Opened(_) => *session = Some(client.begin(0).map_err(|e| e.to_string())?),
                Told::Message(transfer) => {
                    let delivery = transfer.delivery_id;
                    let Some(bytes) = joiner.push(&transfer) else { return Ok(()) };
                    let Seen { message, whole, reason, origin, .. } = Seen::of(run, bytes);
                    if !whole {
                        return Err(format!("{NAME} holds a message that is not as it was sent: {message}"));
                    }
                    diary.put(now_ns(), &Event::Dlq { message, reason: &reason })?;
                    found.push(DeadLetter { origin, reason });
                    client.settle(transfer.link, delivery, Verdict::Accept).map_err(|e| e.to_string())?;
                }
                Told::LinkLost(lost) => return Err(format!("{NAME}: {}", lost.reason)),
                _ => {}
            }
            Ok(())
        })?;
        let client = &mut line.client;
        match (*link, *session) {
            (None, Some(session)) => {
                let options =
                    ReceiverOptions { name: "in", address: NAME, presettled: false, credit: CREDIT, token: 0 };
                *link = Some(client.receiver(session, &options).map_err(|e| e.to_string())?);
            }
            (Some(link), _) if client.credit(link) <= CREDIT / 2 => {
                client.grant(link, CREDIT).map_err(|e| e.to_string())?;
            }
            _ => {}
        }
        // What was found is in the history before it is accepted.
        diary.flush()?;
        let written = line.write()?;
        line.tick()?;
        if read == Read::All {
            line.wait_for_socket(!written, NAP);
        }
        Ok(())
    }
}
