//! Messages as clients make and read them: bodies that say whose they are (`core/history`), in one data section.

use crate::books::RUN;
use crate::draw::Draw;
use packhorse_amqp10::Limits;
use packhorse_amqp10::message::{BodySection, MessageView};
use packhorse_client_core::{Body, Draft};
use packhorse_history::{MessageId, body};

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the body, at least 40.
    pub size: usize,
    /// To outlive the process.
    pub persistent: bool,
    /// 0 to 9.
    pub priority: u8,
    /// Nobody waits for a confirm.
    pub settled: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { size: 100, persistent: true, priority: 4, settled: false }
    }
}

/// What a producer likes to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Percent that are not persistent.
    pub(crate) volatile: u64,
    /// Percent that have a priority of their own.
    pub(crate) priorities: u64,
    /// Percent that are sent settled.
    pub(crate) settled: u64,
    /// So many messages of more than 1 MiB are left to be sent.
    pub(crate) huge: u32,
}

impl Habits {
    pub(crate) fn draw(&mut self, draw: &mut Draw) -> Shape {
        let size = match draw.range(0, 999) {
            0..700 => draw.range(40, 200),
            700..920 => draw.range(200, 1500),
            920..990 => draw.range(1500, 6000),
            990..995 => draw.range(6000, 40_000),
            995 | 996 => draw.range(64 << 10, 140 << 10),
            _ if self.huge > 0 => {
                self.huge -= 1;
                draw.range((1 << 20) + 1, 1_300_000)
            }
            _ => 40,
        };
        Shape {
            size: size as usize,
            persistent: !draw.chance(self.volatile),
            priority: if draw.chance(self.priorities) { draw.range(0, 9) as u8 } else { 4 },
            settled: draw.chance(self.settled),
        }
    }
}

/// Room to make messages in.
#[derive(Debug, Default)]
pub(crate) struct Press {
    body: Vec<u8>,
    pub(crate) encoded: Vec<u8>,
}

impl Press {
    /// Makes a message in `encoded`, with its name as duplicate id if it is to be `identified`; answers the sum of its filler.
    pub(crate) fn make(&mut self, id: MessageId, shape: Shape, identified: bool) -> u32 {
        self.body.clear();
        self.body.resize(shape.size, 0);
        let crc = body::fill(RUN, id, &mut self.body).expect("no body is shorter than the least");
        self.encoded.clear();
        let mut draft = Draft::new(Body::Data(&self.body));
        draft.durable = Some(shape.persistent);
        draft.priority = (shape.priority != 4).then_some(shape.priority);
        let name = if identified { id.to_string() } else { String::new() };
        let properties = [(DUPLICATE_ID, name.as_str())];
        if identified {
            draft.application = &properties;
        }
        draft.encode(&mut self.encoded);
        crc
    }
}

/// What a consumer reads of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) id: MessageId,
    /// As its sender made it.
    pub(crate) whole: bool,
    pub(crate) count: u32,
}

impl Seen {
    pub(crate) fn of(bytes: &[u8]) -> Seen {
        let nothing = Seen { id: MessageId::NONE, whole: false, count: 0 };
        let Ok(view) = MessageView::parse(bytes, &Limits::default()) else { return nothing };
        let count = view.header().delivery_count.unwrap_or(0);
        let Some(BodySection::Data(body)) = view.body().next() else { return nothing };
        let (id, whole) = body::check(RUN, body).for_recv();
        Seen { id, whole, count }
    }
}

/// The property that a message of a client of others has its duplicate id in.
const DUPLICATE_ID: &str = "_AMQ_DUPL_ID";

/// Bytes of the sections in front of the body at `at` that are stored and summed with it: the head of its own, and the section with its
/// duplicate id if it has one. (The header is not: its record has it.)
pub(crate) fn sections_before(bytes: &[u8], at: usize) -> usize {
    let head = |wide: usize| at.checked_sub(wide).filter(|from| bytes[*from..].starts_with(&[0x00, 0x53, 0x75]));
    let Some(data) = head(5).or_else(|| head(8)) else { return 0 };
    let is_whole = |from: &usize| {
        let section = &bytes[*from..data];
        section.starts_with(&[0x00, 0x53, 0x74, 0xc1]) && usize::from(section[4]) == section.len() - 5
    };
    // Its map is a short one.
    let properties = (5..=data.min(260)).map(|length| data - length).find(is_whole);
    at - properties.unwrap_or(data)
}

/// Messages whose bodies lie whole in these bytes: first byte of the body and its name.
pub(crate) fn find_bodies(bytes: &[u8], mut found: impl FnMut(usize, usize, MessageId)) {
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|byte| *byte == b'p') {
        at += next;
        if bytes[at..].starts_with(b"phb1") && at + 40 <= bytes.len() {
            let filler = u64::from_le_bytes(bytes[at + 28..at + 36].try_into().expect("eight bytes")) as usize;
            let end = at.saturating_add(40).saturating_add(filler).min(bytes.len());
            match body::check(RUN, &bytes[at..end]) {
                body::Checked::Intact(id) | body::Checked::Corrupt(id) => found(at, 40 + filler, id),
                _ => {}
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_in_front_of_a_body_is_known_to_the_byte() {
        let mut press = Press::default();
        for identified in [false, true] {
            for size in [40, 87, 255, 256, 5_000] {
                let id = MessageId { producer: 5, sequence: 391 };
                let shape = Shape { size, priority: 4, persistent: true, settled: false };
                press.make(id, shape, identified);
                let view = MessageView::parse(&press.encoded, &Limits::default()).expect("it was just made");
                let header = view.bare().as_ptr() as usize - press.encoded.as_ptr() as usize;
                // Whatever stands before it.
                let bytes = [b"something else".as_slice(), &press.encoded[header..]].concat();
                let mut found = Vec::new();
                find_bodies(&bytes, |at, length, id| found.push((sections_before(&bytes, at), at, length, id)));
                let front = press.encoded.len() - header - size;
                assert_eq!(found, [(front, 14 + front, size, id)]);
            }
        }
    }
}
