//! Whether a message is one of this run, and whole.

use super::options::Bench;
use crate::End;
use packhorse_client_core::{Body, BodySection, Draft, Limits, MessageView};
use packhorse_history::body::{self, Checked};

/// What all messages of a run have in common.
pub(super) struct Intact {
    run: u64,
    size: usize,
    /// What stands before the body in a message as it was sent: the head of the data section.
    prefix: Vec<u8>,
}

impl Intact {
    pub(super) fn new(bench: &Bench, run: u64) -> Intact {
        let mut prefix = Vec::new();
        Draft::new(Body::Data(&vec![0; bench.size])).encode(&mut prefix);
        prefix.truncate(prefix.len() - bench.size);
        Intact { run, size: bench.size, prefix }
    }

    /// Whose the message is, and whether it is whole.
    pub(super) fn check(&self, bytes: &[u8]) -> Checked {
        // As we send them, the body is the end; a broker that adds a footer, or another size, takes the longer way.
        let at = bytes.len().saturating_sub(self.size);
        if bytes[..at].ends_with(&self.prefix) {
            let checked = body::check(self.run, &bytes[at..]);
            if matches!(checked, Checked::Intact(_)) {
                return checked;
            }
        }
        let limits = Limits { message_head_bytes: u32::MAX, ..Limits::default() };
        let Ok(view) = MessageView::parse(bytes, &limits) else { return Checked::Unreadable };
        match view.body().next() {
            Some(BodySection::Data(data)) => match body::check(self.run, data) {
                // Whole, and yet not of the size that was sent: two bodies in one, or a section too many.
                Checked::Intact(message) if data.len() != self.size => Checked::Corrupt(message),
                checked => checked,
            },
            _ => Checked::Unreadable,
        }
    }
}

/// A queue has messages of somebody else.
pub(super) fn not_empty(queue: &str) -> End {
    End::Refused(format!(
        "{queue} holds messages that this run did not send (they stay there): use an empty queue, or delete this one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use packhorse_history::MessageId;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    #[test]
    fn a_message_is_checked_with_whatever_stands_around_its_body() {
        let bench = Line::parse_from(["bench", "--size", "100"]).bench;
        let intact = Intact::new(&bench, 5);
        let message = MessageId::new(3, 4);
        let mut body = [0; 100];
        body::fill(5, message, &mut body).unwrap();
        let encode = |draft: Draft<'_>| {
            let mut bytes = Vec::new();
            draft.encode(&mut bytes);
            bytes
        };
        let plain = encode(Draft { durable: Some(true), ..Draft::new(Body::Data(&body)) });
        assert_eq!(intact.check(&plain), Checked::Intact(message));
        let footer = [&plain[..], &[0x00, 0x53, 0x78, 0xc1, 0x01, 0x00]].concat();
        assert_eq!(intact.check(&footer), Checked::Intact(message));
        let mut changed = plain.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(intact.check(&changed), Checked::Corrupt(message));
        let mut longer = [0; 120];
        body::fill(5, message, &mut longer).unwrap();
        assert_eq!(intact.check(&encode(Draft::new(Body::Data(&longer)))), Checked::Corrupt(message));
        body::fill(6, message, &mut body).unwrap();
        assert_eq!(intact.check(&encode(Draft::new(Body::Data(&body)))), Checked::OtherRun(6));
        assert_eq!(intact.check(&encode(Draft::new(Body::Text("hello")))), Checked::Unreadable);
        assert_eq!(intact.check(b""), Checked::Unreadable);
    }
}
