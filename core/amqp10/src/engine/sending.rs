//! Deliveries that go: whole messages in one call, large ones in chunks, split to the peer's frames and window.
//!
//! Owns delivery-ids, tags of our choice, and the count against credit and window. Which link goes next is the caller's turn.

use alloc::vec::Vec;
use core::mem;

use super::connection::Connection;
use super::link::{Link, LinkState};
use super::output::SHARE_FROM_BYTES;
use super::serial::Serial;
use super::session::Session;
use super::settle::OutDelivery;
use super::terms::{Misuse, Piece, SendParams, Sent};
use super::transfer::TAG_MAX;
use super::{LinkId, SessionId};
use crate::codec::{DeliveryState, FrameHeader, FrameKind, Role, SenderSettleMode, Transfer, Value};

/// The largest frame of a streamed delivery: other links get their turn in between.
const STREAM_FRAME: usize = 256 * 1024;

/// Bytes of a frame around the payload: a bound for the first frame without state, and for the others.
const FIRST_OVERHEAD: usize = 96;
const NEXT_OVERHEAD: usize = 32;

/// A delivery under way in chunks.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Drawn with its first frame, so that ids follow each other on the wire.
    pub(crate) id: Option<Serial>,
    token: u64,
    tag: [u8; TAG_MAX],
    /// 0: the engine chooses.
    tag_len: u8,
    settled: bool,
    format: u32,
    batchable: bool,
    resume: bool,
    /// The encoded state, until the first frame.
    state: Vec<u8>,
    size: u64,
    /// Given up; the frame that says so waits for the window.
    aborted: bool,
}

impl Outgoing {
    /// Whether a frame is out.
    pub(crate) fn begun(&self) -> bool {
        self.id.is_some()
    }
}

/// A place in a list of pieces.
struct Pieces<'p> {
    pieces: &'p [Piece<'p>],
    offset: usize,
    left: usize,
}

impl<'p> Pieces<'p> {
    fn new(pieces: &'p [Piece<'p>]) -> Self {
        Self { pieces, offset: 0, left: pieces.iter().map(Piece::len).sum() }
    }
}

impl Connection {
    fn sending(&self, id: LinkId) -> Result<(&Link, &Session), Misuse> {
        if !self.usable() {
            return Err(Misuse::NotOpen);
        }
        let link = self.link(id).filter(|link| link.detach_sent.is_none()).ok_or(Misuse::NoLink)?;
        if link.role != Role::Sender {
            return Err(Misuse::WrongRole);
        }
        if link.state != LinkState::Attached || link.detach_seen.is_some() {
            return Err(Misuse::WrongState);
        }
        let session = self.session(link.session).filter(|session| session.live()).ok_or(Misuse::NoSession)?;
        Ok((link, session))
    }

    /// Whether a delivery can be begun on a sending link now: attached, credit, no other delivery under way on it, window
    /// of the session, room in the output and among the unsettled.
    #[must_use]
    pub fn sendable(&self, link: LinkId) -> bool {
        self.sending(link).is_ok_and(|(link, session)| {
            link.credit > 0
                && link.outgoing.is_none()
                && session.peer_window > 0
                && session.outgoing.len() < self.set.limits.unsettled as usize
                && self.output_room()
        })
    }

    /// Whether the output is below its limit: above, nothing is sendable on any link.
    #[must_use]
    pub fn output_room(&self) -> bool {
        self.out.len() < self.set.limits.output_bytes
    }

    /// Whether the frames of a message of `len` bytes fit the session's window now, so that `send` takes it. Otherwise send
    /// it in chunks.
    #[must_use]
    pub fn fits(&self, link: LinkId, len: usize) -> bool {
        self.sending(link).is_ok_and(|(_, session)| self.frames(len, FIRST_OVERHEAD) <= session.peer_window as usize)
    }

    /// How many frames a payload takes at most.
    fn frames(&self, len: usize, first_overhead: usize) -> usize {
        let frame = self.peer_frame as usize;
        let first = frame.saturating_sub(first_overhead);
        1 + len.saturating_sub(first).div_ceil(frame - NEXT_OVERHEAD)
    }

    /// Whether these parameters may be used on the link.
    fn check_params(&self, link: &Link, params: &SendParams<'_>) -> Result<(), Misuse> {
        if params.tag.is_some_and(|tag| tag.is_empty() || tag.len() > TAG_MAX) {
            return Err(Misuse::BadTag);
        }
        if let Some(state) = params.state
            && !state.is_short()
        {
            let mut encoded = Vec::new();
            state.encode(&mut encoded);
            if encoded.len() + FIRST_OVERHEAD > self.peer_frame as usize {
                return Err(Misuse::TooLarge);
            }
        }
        match (link.snd_mode, params.settled) {
            //= amqp10 2.7.5
            (SenderSettleMode::Unsettled, true) | (SenderSettleMode::Settled, false) => Err(Misuse::SettleMode),
            _ => Ok(()),
        }
    }

    /// Sends a whole message: its bytes are the pieces one after the other. Returns the delivery-id. Unless settled, its
    /// [`super::DeliveryOutcome`] follows.
    ///
    /// # Errors
    ///
    /// Nothing was sent: [`Misuse::NotSendable`] (see [`Self::sendable`] and [`Self::fits`]), [`Misuse::TooLarge`],
    /// [`Misuse::SettleMode`], [`Misuse::BadTag`], [`Misuse::NoLink`], [`Misuse::NoSession`], [`Misuse::NotOpen`],
    /// [`Misuse::WrongRole`], [`Misuse::WrongState`] (not attached).
    pub fn send(&mut self, link: LinkId, params: &SendParams<'_>, pieces: &[Piece<'_>]) -> Result<u32, Misuse> {
        let (ours, session) = self.sending(link)?;
        self.check_params(ours, params)?;
        let mut pieces = Pieces::new(pieces);
        if ours.peer_max > 0 && pieces.left as u64 > ours.peer_max {
            return Err(Misuse::TooLarge);
        }
        if !self.sendable(link) {
            return Err(Misuse::NotSendable);
        }
        let overhead = match params.state {
            None => FIRST_OVERHEAD,
            Some(state) if state.is_short() => FIRST_OVERHEAD + DeliveryState::SHORT_BYTES,
            // Bounded by the peer's smallest frame, not by a constant.
            Some(_) => self.peer_frame as usize,
        };
        let single = pieces.left + overhead <= self.peer_frame as usize;
        if !single && self.frames(pieces.left, overhead) > session.peer_window as usize {
            return Err(Misuse::NotSendable);
        }
        let (session, handle, link_token) = (ours.session, ours.handle, ours.token);
        let id = session_next_delivery(self, session);
        let auto = id.0.to_be_bytes();
        let mut transfer = Transfer {
            handle,
            delivery_id: Some(id.0),
            delivery_tag: Some(params.tag.unwrap_or(&auto)),
            message_format: Some(params.format),
            settled: Some(params.settled),
            state: params.state.copied(),
            resume: params.resume,
            batchable: params.batchable,
            ..Transfer::default()
        };
        loop {
            let sent = self.write_transfer(session, &transfer, &mut pieces, true, usize::MAX);
            debug_assert!(sent.is_some(), "the window was counted");
            if sent != Some(false) {
                break;
            }
            // Not needed there, but some receivers look at it.
            transfer = Transfer { handle, delivery_id: Some(id.0), ..Transfer::default() };
        }
        if let Some(link) = self.link_mut(link) {
            link.credit -= 1;
            link.delivery_count = link.delivery_count.plus(1);
            link.had_unsettled |= !params.settled;
        }
        if !params.settled
            && let Some(session) = self.session_mut(session)
        {
            session.outgoing.insert(id, OutDelivery { link, link_token, token: params.token, decided: None });
        }
        Ok(id.0)
    }

    /// Writes one frame with as much of the pieces as it takes, up to `most` bytes; `last` says that nothing follows them.
    /// Tells whether the delivery is complete with it; none: no window.
    fn write_transfer(
        &mut self,
        id: SessionId,
        transfer: &Transfer<'_>,
        pieces: &mut Pieces<'_>,
        last: bool,
        most: usize,
    ) -> Option<bool> {
        let max = self.peer_frame as usize;
        let session = self.session_mut(id)?;
        if session.peer_window == 0 {
            return None;
        }
        session.peer_window -= 1;
        session.next_out = session.next_out.plus(1);
        let channel = session.channel;
        let start = self.out.position();
        let mut complete = last && pieces.left <= most;
        let mut room;
        loop {
            let tail = self.out.tail();
            FrameHeader::begin(tail, FrameKind::Amqp, channel);
            Transfer { more: !complete, ..*transfer }.encode(tail);
            room = max.saturating_sub(tail.len() - start).min(most);
            if complete && pieces.left > room {
                complete = false;
                self.out.truncate(start);
                continue;
            }
            break;
        }
        let payload = pieces.left.min(room);
        let size = self.out.position() - start + payload;
        self.out.patch_u32(start, size as u32);
        self.write_pieces(pieces, payload);
        self.wrote = true;
        Some(complete)
    }

    fn write_pieces(&mut self, pieces: &mut Pieces<'_>, mut n: usize) {
        pieces.left -= n;
        while n > 0 {
            let Some(piece) = pieces.pieces.first() else { return };
            let step = (piece.len() - pieces.offset).min(n);
            let range = pieces.offset..pieces.offset + step;
            match piece {
                Piece::Copy(bytes) => self.out.copy(&bytes[range]),
                Piece::Share(bytes) if step >= SHARE_FROM_BYTES => self.out.share(bytes.slice(range)),
                Piece::Share(bytes) => self.out.copy(&bytes[range]),
            }
            n -= step;
            pieces.offset += step;
            if pieces.offset == piece.len() {
                pieces.pieces = &pieces.pieces[1..];
                pieces.offset = 0;
            }
        }
    }

    /// Begins a delivery whose bytes come by [`Self::send_chunk`]: a large message, or one that does not fit the window.
    /// It takes its credit now, its delivery-id with its first frame.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], except for its size.
    pub fn begin_delivery(&mut self, link: LinkId, params: &SendParams<'_>) -> Result<(), Misuse> {
        let (ours, session) = self.sending(link)?;
        self.check_params(ours, params)?;
        let room = session.outgoing.len() < self.set.limits.unsettled as usize;
        if ours.credit <= 0 || ours.outgoing.is_some() || !room {
            return Err(Misuse::NotSendable);
        }
        let mut tag = [0; TAG_MAX];
        let given = params.tag.unwrap_or_default();
        tag[..given.len()].copy_from_slice(given);
        let mut state = Vec::new();
        if let Some(given) = params.state {
            given.encode(&mut state);
        }
        let ours = self.link_mut(link).ok_or(Misuse::NoLink)?;
        ours.credit -= 1;
        ours.delivery_count = ours.delivery_count.plus(1);
        ours.outgoing = Some(Outgoing {
            id: None,
            token: params.token,
            tag,
            tag_len: given.len() as u8,
            settled: params.settled,
            format: params.format,
            batchable: params.batchable,
            resume: params.resume,
            state,
            size: 0,
            aborted: false,
        });
        Ok(())
    }

    /// Sends bytes of the delivery begun on the link, as far as window and output allow; `last`: nothing follows them.
    /// Give the rest again when there is room. Full frames use the window best: prefer chunks of many frames.
    ///
    /// # Errors
    ///
    /// [`Misuse::WrongState`] (no delivery begun), [`Misuse::TooLarge`] (past the peer's `max-message-size`: abort it), and as
    /// [`Self::send`] for the link.
    pub fn send_chunk(&mut self, link: LinkId, chunk: Piece<'_>, last: bool) -> Result<Sent, Misuse> {
        let (ours, _) = self.sending(link)?;
        let (session, handle, link_token) = (ours.session, ours.handle, ours.token);
        let Some(outgoing) = ours.outgoing.as_ref().filter(|outgoing| !outgoing.aborted) else {
            return Err(Misuse::WrongState);
        };
        if ours.peer_max > 0 && outgoing.size + chunk.len() as u64 > ours.peer_max {
            return Err(Misuse::TooLarge);
        }
        let one = [chunk];
        let mut pieces = Pieces::new(&one);
        let len = pieces.left;
        let mut done = false;
        while !done && (pieces.left > 0 || last) && self.output_room() && self.session_window(session) > 0 {
            let complete =
                match self.link(link).and_then(|link| link.outgoing.as_ref()).and_then(|outgoing| outgoing.id) {
                    Some(id) => {
                        let transfer = Transfer { handle, delivery_id: Some(id.0), ..Transfer::default() };
                        self.write_transfer(session, &transfer, &mut pieces, last, STREAM_FRAME)
                    }
                    None => self.first_frame(link, session, handle, link_token, &mut pieces, last),
                };
            done = complete == Some(true);
        }
        let consumed = len - pieces.left;
        if let Some(ours) = self.link_mut(link) {
            if let Some(outgoing) = &mut ours.outgoing {
                outgoing.size += consumed as u64;
            }
            if done {
                ours.outgoing = None;
                if ours.flow_due {
                    self.mark_link(link);
                }
            }
        }
        Ok(Sent { consumed, done })
    }

    fn first_frame(
        &mut self,
        link: LinkId,
        session: SessionId,
        handle: u32,
        link_token: u64,
        pieces: &mut Pieces<'_>,
        last: bool,
    ) -> Option<bool> {
        let limits = self.set.limits;
        let mut outgoing = self.link_mut(link)?.outgoing.take()?;
        let id = session_next_delivery(self, session);
        let auto = id.0.to_be_bytes();
        let tag = match outgoing.tag_len {
            0 => &auto[..],
            len => &outgoing.tag[..usize::from(len)],
        };
        let encoded = mem::take(&mut outgoing.state);
        let state = Value::from_encoded(&encoded, &limits).ok();
        let transfer = Transfer {
            handle,
            delivery_id: Some(id.0),
            delivery_tag: Some(tag),
            message_format: Some(outgoing.format),
            settled: Some(outgoing.settled),
            state: state.and_then(|value| DeliveryState::from_value(value, &limits).ok()),
            resume: outgoing.resume,
            batchable: outgoing.batchable,
            ..Transfer::default()
        };
        let complete = self.write_transfer(session, &transfer, pieces, last, STREAM_FRAME);
        outgoing.id = Some(id);
        let (settled, token) = (outgoing.settled, outgoing.token);
        let ours = self.link_mut(link)?;
        ours.outgoing = Some(outgoing);
        ours.had_unsettled |= !settled;
        if !settled && let Some(session) = self.session_mut(session) {
            session.outgoing.insert(id, OutDelivery { link, link_token, token, decided: None });
        }
        complete
    }

    /// Gives up the delivery begun on the link: it counts as settled and gets no outcome. If a frame of it is out, the peer
    /// is told, as soon as the window allows.
    ///
    /// # Errors
    ///
    /// [`Misuse::WrongState`] (no delivery begun), and as [`Self::send`] for the link.
    pub fn abort_delivery(&mut self, link: LinkId) -> Result<(), Misuse> {
        let session = self.sending(link)?.0.session;
        let ours = self.link_mut(link).ok_or(Misuse::NoLink)?;
        let Some(outgoing) = ours.outgoing.as_mut().filter(|outgoing| !outgoing.aborted) else {
            return Err(Misuse::WrongState);
        };
        let Some(delivery) = outgoing.id else {
            // The peer never heard of it.
            ours.outgoing = None;
            ours.credit += 1;
            ours.delivery_count = ours.delivery_count.minus(1);
            return Ok(());
        };
        outgoing.aborted = true;
        if let Some(session) = self.session_mut(session) {
            session.outgoing.remove(delivery);
        }
        if !self.send_abort(link) {
            self.owed_aborts += 1;
        }
        Ok(())
    }

    /// Writes the frame that aborts, if the window allows. Tells whether it did.
    fn send_abort(&mut self, id: LinkId) -> bool {
        let Some(link) = self.link(id) else { return true };
        let Some(outgoing) = link.outgoing.as_ref().filter(|outgoing| outgoing.aborted) else { return true };
        let delivery_id = outgoing.id.map(|id| id.0);
        let transfer = Transfer { handle: link.handle, delivery_id, aborted: true, ..Transfer::default() };
        let session = link.session;
        if self.write_transfer(session, &transfer, &mut Pieces::new(&[]), true, 0).is_none() {
            return false;
        }
        if let Some(link) = self.link_mut(id) {
            link.outgoing = None;
            if link.flow_due {
                self.mark_link(id);
            }
        }
        true
    }

    /// The window of a session has opened: aborts that waited for it go first.
    pub(crate) fn send_owed_aborts(&mut self, session: SessionId) {
        if self.owed_aborts == 0 {
            return;
        }
        let owed = |link: &Link| link.outgoing.as_ref().is_some_and(|outgoing| outgoing.aborted);
        let due: Vec<LinkId> = self.links.iter().filter(|link| owed(link)).map(|link| link.id).collect();
        self.owed_aborts = 0;
        for id in due {
            let here = self.link(id).is_some_and(|link| link.session == session);
            if !here || !self.send_abort(id) {
                self.owed_aborts += 1;
            }
        }
    }
}

fn session_next_delivery(conn: &mut Connection, id: SessionId) -> Serial {
    conn.session_mut(id).map(|session| session.next_delivery.take()).unwrap_or_default()
}
