//! Byte streams between clients and the broker: delayed, cut into any pieces, in order per direction, and broken on command.

use crate::draw::Draw;
use std::collections::BTreeMap;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    ToBroker,
    ToClient,
}

/// What arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Bytes(Vec<u8>),
    /// The other side closed, or the stream was cut.
    End,
}

/// All streams, by the connection's number.
#[derive(Debug)]
pub(crate) struct Pipes {
    draw: Draw,
    /// By time, then by the order of sending.
    flying: BTreeMap<(u64, u64), (u64, Way, Arrival)>,
    sent: u64,
    /// When the last piece of a direction arrives: nothing overtakes it.
    last: BTreeMap<(u64, Way), u64>,
}

impl Pipes {
    pub(crate) fn new(seed: u64) -> Pipes {
        Pipes { draw: Draw::new(seed, 1), flying: BTreeMap::new(), sent: 0, last: BTreeMap::new() }
    }

    /// Sends bytes, in pieces.
    pub(crate) fn send(&mut self, now_us: u64, connection: u64, way: Way, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let most = match self.draw.range(0, 9) {
                0 => 1,
                1 | 2 => 32,
                3 | 4 => 512,
                _ => 64 << 10,
            };
            let (piece, rest) = bytes.split_at(bytes.len().min(self.draw.range(1, most) as usize));
            self.put(now_us, connection, way, Arrival::Bytes(piece.to_vec()));
            bytes = rest;
        }
    }

    /// Ends a direction behind what was sent.
    pub(crate) fn end(&mut self, now_us: u64, connection: u64, way: Way) {
        self.put(now_us, connection, way, Arrival::End);
    }

    /// Cuts a stream both ways: what is under way is lost.
    pub(crate) fn cut(&mut self, now_us: u64, connection: u64) {
        self.flying.retain(|_, (of, ..)| *of != connection);
        self.last.retain(|(of, _), _| *of != connection);
        self.put(now_us, connection, Way::ToBroker, Arrival::End);
        self.put(now_us, connection, Way::ToClient, Arrival::End);
    }

    fn put(&mut self, now_us: u64, connection: u64, way: Way, arrival: Arrival) {
        let delay = if self.draw.chance(5) { self.draw.range(1_000, 20_000) } else { self.draw.range(20, 300) };
        let last = self.last.entry((connection, way)).or_default();
        let at = (now_us + delay).max(*last);
        *last = at;
        self.sent += 1;
        self.flying.insert((at, self.sent), (connection, way, arrival));
    }

    /// When the next piece arrives.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.flying.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next piece that has arrived by now.
    pub(crate) fn take(&mut self, now_us: u64) -> Option<(u64, Way, Arrival)> {
        let entry = self.flying.first_entry()?;
        (entry.key().0 <= now_us).then(|| entry.remove())
    }

    /// Forgets everything: the broker's process is gone, all its streams end.
    pub(crate) fn clear(&mut self) {
        self.flying.clear();
        self.last.clear();
    }
}
