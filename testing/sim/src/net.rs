//! Byte streams between clients and brokers: delayed, cut into any pieces, in order per direction, with room for so many bytes, and
//! broken on command. A side that is gone without a word takes no bytes and sends none.
//!
//! Owns what is under way. Must not know who is at the ends.

use crate::draw::Draw;
use std::collections::VecDeque;

/// Bytes that a direction holds before whoever sends has to wait.
const ROOM_BYTES: usize = 192 << 10;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToBroker = 0,
    ToClient = 1,
}

impl Way {
    pub(crate) fn other(self) -> Way {
        match self {
            Way::ToBroker => Way::ToClient,
            Way::ToClient => Way::ToBroker,
        }
    }
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    End,
}

#[derive(Debug, Default)]
struct Direction {
    /// By time of arrival, ascending.
    flying: VecDeque<(u64, Piece)>,
    /// Bytes sent and not yet read.
    held: usize,
    /// Read when whoever is there reads: arrived.
    inbox: Vec<u8>,
    ended: bool,
    last_at: u64,
    /// Nothing arrives before.
    hole_until: u64,
    slow_until: u64,
    slow_by: u64,
    /// So many bytes come one by one.
    single: usize,
    /// Who reads is gone: bytes are taken by nobody.
    deaf: bool,
    /// Who sends is gone or has ended.
    mute: bool,
    /// Who sends waits for room.
    waiting: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) client: usize,
    pub(crate) host: usize,
    pub(crate) shard: u16,
    /// The broker's process that has it: its number of starts.
    pub(crate) life: u32,
    /// The broker does not know it (any more).
    pub(crate) forgotten: bool,
    /// The client does not know it (any more).
    pub(crate) left: bool,
    /// The broker was told of it.
    pub(crate) accepted: bool,
    /// The broker does not read it for a while.
    pub(crate) stopped: bool,
    /// The broker closes it.
    pub(crate) closing: bool,
    /// The machine at the other end lost its power: it says so when it is up again.
    pub(crate) ghost: bool,
    ways: [Direction; 2],
}

/// All streams, by number; a number is not used again.
#[derive(Debug)]
pub(crate) struct Net {
    draw: Draw,
    streams: Vec<Stream>,
    spare: Vec<Vec<u8>>,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Net {
        Net { draw: Draw::new(seed, 1), streams: Vec::new(), spare: Vec::new() }
    }

    pub(crate) fn open(&mut self, client: usize, host: usize, shard: u16, life: u32) -> usize {
        let ways = [Direction::default(), Direction::default()];
        let (forgotten, left, accepted, stopped, closing, ghost) = (false, false, false, false, false, false);
        let stream = Stream { client, host, shard, life, forgotten, left, accepted, stopped, closing, ghost, ways };
        self.streams.push(stream);
        self.streams.len() - 1
    }

    pub(crate) fn get(&self, stream: usize) -> &Stream {
        &self.streams[stream]
    }

    pub(crate) fn get_mut(&mut self, stream: usize) -> &mut Stream {
        &mut self.streams[stream]
    }

    pub(crate) fn count(&self) -> usize {
        self.streams.len()
    }

    /// So many bytes can be sent now.
    pub(crate) fn room(&mut self, stream: usize, way: Way) -> usize {
        let direction = &mut self.streams[stream].ways[way as usize];
        if direction.mute { usize::MAX } else { ROOM_BYTES.saturating_sub(direction.held) }
    }

    /// Whoever sends wants to know of room.
    pub(crate) fn wait(&mut self, stream: usize, way: Way) {
        self.streams[stream].ways[way as usize].waiting = true;
    }

    /// A buffer to fill and send.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < 64 && buffer.capacity() <= 256 << 10 {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Sends bytes. Answers when something arrives that way next.
    pub(crate) fn send(&mut self, now_us: u64, stream: usize, way: Way, bytes: Vec<u8>) -> Option<u64> {
        let direction = &mut self.streams[stream].ways[way as usize];
        if direction.mute || bytes.is_empty() {
            self.keep(bytes);
            return None;
        }
        direction.held += bytes.len();
        // Mostly as it was written, sometimes in pieces.
        let most = match direction.single {
            0 if self.draw.chance(6) => self.draw.range(1, 3000) as usize,
            0 => usize::MAX,
            _ => 1,
        };
        if most >= bytes.len() {
            return self.put(now_us, stream, way, Piece::Bytes(bytes));
        }
        let mut first = None;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let single = &mut self.streams[stream].ways[way as usize].single;
            let n = if most > 1 {
                self.draw.range(1, most as u64) as usize
            } else if *single > 0 {
                *single -= 1;
                1
            } else {
                usize::MAX
            };
            let (piece, others) = rest.split_at(n.min(rest.len()));
            rest = others;
            let mut copy = self.buffer();
            copy.extend_from_slice(piece);
            let at = self.put(now_us, stream, way, Piece::Bytes(copy));
            first = first.or(at);
        }
        self.keep(bytes);
        first
    }

    /// Ends a direction behind what was sent.
    pub(crate) fn end(&mut self, now_us: u64, stream: usize, way: Way) -> Option<u64> {
        if self.streams[stream].ways[way as usize].mute {
            return None;
        }
        let at = self.put(now_us, stream, way, Piece::End);
        self.streams[stream].ways[way as usize].mute = true;
        at
    }

    fn put(&mut self, now_us: u64, stream: usize, way: Way, piece: Piece) -> Option<u64> {
        let Net { draw, streams, .. } = self;
        let direction = &mut streams[stream].ways[way as usize];
        let mut delay = if draw.chance(4) { draw.range(500, 8_000) } else { draw.range(20, 250) };
        if now_us < direction.slow_until {
            delay += direction.slow_by;
        }
        let at = (now_us + delay).max(direction.last_at).max(direction.hole_until);
        direction.last_at = at;
        let idle = direction.flying.is_empty();
        direction.flying.push_back((at, piece));
        idle.then_some(at)
    }

    /// Takes what has arrived by now into the inbox. Answers when more arrives, and whether anything has.
    pub(crate) fn arrive(&mut self, now_us: u64, stream: usize, way: Way) -> (Option<u64>, bool) {
        let mut some = false;
        loop {
            let direction = &mut self.streams[stream].ways[way as usize];
            let hole = direction.hole_until;
            match direction.flying.front() {
                Some((at, _)) if (*at).max(hole) <= now_us => {}
                other => return (other.map(|(at, _)| (*at).max(hole)), some),
            }
            some = true;
            match direction.flying.pop_front() {
                Some((_, Piece::Bytes(bytes))) => {
                    if direction.deaf {
                        continue;
                    }
                    if direction.inbox.is_empty() {
                        let old = std::mem::replace(&mut direction.inbox, bytes);
                        self.keep(old);
                    } else {
                        direction.inbox.extend_from_slice(&bytes);
                        self.keep(bytes);
                    }
                }
                Some((_, Piece::End)) => direction.ended |= !direction.deaf,
                None => {}
            }
        }
    }

    /// Nothing is under way in this direction.
    pub(crate) fn is_idle(&self, stream: usize, way: Way) -> bool {
        self.streams[stream].ways[way as usize].flying.is_empty()
    }

    /// Bytes that have arrived and were not read.
    pub(crate) fn inbox(&self, stream: usize, way: Way) -> &[u8] {
        &self.streams[stream].ways[way as usize].inbox
    }

    /// Nothing more comes that way, once the inbox is read.
    pub(crate) fn is_ended(&self, stream: usize, way: Way) -> bool {
        self.streams[stream].ways[way as usize].ended
    }

    /// The inbox was read. True: whoever sends waits for room, and has some.
    pub(crate) fn read(&mut self, stream: usize, way: Way) -> bool {
        let direction = &mut self.streams[stream].ways[way as usize];
        direction.held -= direction.inbox.len();
        direction.inbox.clear();
        if direction.inbox.capacity() > 256 << 10 {
            direction.inbox = Vec::new();
        }
        std::mem::take(&mut direction.waiting)
    }

    /// A cut: what is under way is lost, both sides learn that it is over.
    pub(crate) fn cut(&mut self, now_us: u64, stream: usize) -> [Option<u64>; 2] {
        [Way::ToBroker, Way::ToClient].map(|way| {
            let direction = &mut self.streams[stream].ways[way as usize];
            direction.flying.clear();
            direction.mute = false;
            direction.hole_until = direction.hole_until.min(now_us);
            self.end(now_us, stream, way)
        })
    }

    /// One side is gone without a word: it takes nothing and sends nothing any more. What it sent before arrives, unless `at_once`.
    pub(crate) fn vanish(&mut self, stream: usize, reads: Way, at_once: bool) {
        let ways = &mut self.streams[stream].ways;
        let deaf = &mut ways[reads as usize];
        deaf.deaf = true;
        deaf.inbox.clear();
        let mute = &mut ways[reads.other() as usize];
        mute.mute = true;
        if at_once {
            mute.flying.clear();
        }
    }

    /// Whoever reads that way learns at once that nothing more comes.
    pub(crate) fn hear_end(&mut self, stream: usize, way: Way) {
        self.streams[stream].ways[way as usize].ended = true;
    }

    /// For a while everything takes longer.
    pub(crate) fn slow(&mut self, stream: usize, until_us: u64, by_us: u64) {
        for direction in &mut self.streams[stream].ways {
            (direction.slow_until, direction.slow_by) = (until_us, by_us);
        }
    }

    /// Nothing arrives that way until then.
    pub(crate) fn hole(&mut self, stream: usize, way: Way, until_us: u64) {
        let direction = &mut self.streams[stream].ways[way as usize];
        direction.hole_until = direction.hole_until.max(until_us);
    }

    /// The next bytes come one by one.
    pub(crate) fn single(&mut self, stream: usize, bytes: usize) {
        for direction in &mut self.streams[stream].ways {
            direction.single = bytes;
        }
    }
}
