//! The story of one message, or of the brokers alone, out of all histories of a run, in the order of time: for whoever looks for a cause.

use packhorse_history::{Event, MessageId, Source};

/// The lines: time in µs, whose book, what. Of one message, or of one whole book.
pub fn story(files: &[(String, Vec<u8>)], about: Option<MessageId>, book: &str) -> Vec<String> {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for (name, bytes) in files {
        let Ok(Some(mut source)) = Source::open(name.clone(), bytes.as_slice()) else { continue };
        // Links of this book that have had the message.
        while let Ok(true) = source.advance() {
            let Ok(event) = source.event() else { break };
            let concerns = match event {
                _ if name == book => true,
                Event::Gauge { kind, .. } => kind.ends_with("rest"),
                Event::Node { .. } | Event::Fault { .. } | Event::Survey { .. } | Event::Drained { .. } => true,
                Event::Purge { .. } | Event::Move { .. } => true,
                Event::Counters { .. } | Event::Host { .. } | Event::Tick => false,
                Event::Attach { .. } | Event::Detach { .. } => about.is_some(),
                _ => about.is_some() && message_of(&event) == about,
            };
            if concerns {
                let (at, line) = (source.at_ns(), source.line());
                lines.push((at, format!("{:>12.3} {name}:{line} {event:?}", at as f64 / 1000.0)));
            }
        }
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

fn message_of(event: &Event<'_>) -> Option<MessageId> {
    match *event {
        Event::Send { message, .. }
        | Event::SentOk { message }
        | Event::SentRejected { message, .. }
        | Event::SentUnknown { message }
        | Event::Recv { message, .. }
        | Event::Ack { message, .. }
        | Event::Release { message, .. }
        | Event::Reject { message, .. }
        | Event::Modified { message, .. }
        | Event::Expired { message }
        | Event::Dlq { message, .. }
        | Event::Damaged { message }
        | Event::Present { message, .. }
        | Event::Browsed { message, .. } => Some(message),
        _ => None,
    }
}
