//! Sessions: channels, the two windows, `begin`, `end`, and `flow` (whose link part is in `link`).
//!
//! Owns transfer-ids and windows. The window counts transfer frames, not deliveries.

use alloc::format;

use super::connection::Connection;
use super::deliveries::Deliveries;
use super::emit::{Emit, Kind};
use super::event::Fault;
use super::serial::Serial;
use super::settle::{InDelivery, OutDelivery, PendingRange};
use super::slab::SmallMap;
use super::tags::Tags;
use super::terms::Misuse;
use super::{LinkId, SessionId};
use crate::codec::{Begin, End, Error, Flow, Role};

/// What we say of our own outgoing window: advice without weight (amqp10 2.5.6), large so that nobody waits for it.
pub(crate) const OUTGOING_WINDOW: u32 = 0x7fff_ffff;

/// One session, from the first `begin` to the second `end`.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) token: u64,
    pub(crate) channel: u16,
    pub(crate) peer_channel: Option<u16>,
    pub(crate) end_sent: bool,
    pub(crate) end_seen: bool,
    /// Id of our next transfer frame. Ours start at 0.
    pub(crate) next_out: Serial,
    /// Frames we may send.
    pub(crate) peer_window: u32,
    pub(crate) next_delivery: Serial,
    /// Id of the peer's next transfer frame; none before its `begin`.
    pub(crate) next_in: Option<Serial>,
    /// Frames the peer may still send.
    pub(crate) window_left: u32,
    pub(crate) flow_due: bool,
    pub(crate) dirty: bool,
    pub(crate) handles_in: SmallMap<LinkId>,
    pub(crate) handles_out: SmallMap<LinkId>,
    pub(crate) peer_handle_max: u32,
    pub(crate) outgoing: Deliveries<OutDelivery>,
    pub(crate) incoming: Deliveries<InDelivery>,
    pub(crate) tags: Tags,
    /// Dispositions not yet out, by our role.
    pub(crate) ranges: [PendingRange; 2],
}

impl Session {
    fn new(id: SessionId, channel: u16, token: u64, window: u32) -> Self {
        Self {
            id,
            token,
            channel,
            peer_channel: None,
            end_sent: false,
            end_seen: false,
            next_out: Serial(0),
            peer_window: 0,
            next_delivery: Serial(0),
            next_in: None,
            window_left: window,
            flow_due: false,
            dirty: false,
            handles_in: SmallMap::default(),
            handles_out: SmallMap::default(),
            peer_handle_max: u32::MAX,
            outgoing: Deliveries::default(),
            incoming: Deliveries::default(),
            tags: Tags::default(),
            ranges: [PendingRange::default(), PendingRange::default()],
        }
    }

    fn peer_began(&mut self, channel: u16, begin: &Begin<'_>) {
        self.peer_channel = Some(channel);
        self.next_in = Some(Serial(begin.next_outgoing_id));
        //= amqp10 2.5.6 (before their first flow, their next-incoming-id is our first id)
        self.peer_window = window(begin.incoming_window, Serial(0), self.next_out);
        self.peer_handle_max = begin.handle_max;
    }

    /// Whether both sides have begun and neither has ended.
    pub(crate) fn live(&self) -> bool {
        self.next_in.is_some() && !self.end_sent && !self.end_seen
    }
}

/// Frames that may be sent: their next-incoming-id + their incoming-window − our next-outgoing-id, where a negative
/// number counts as 0.
///
//= amqp10 2.5.6
fn window(incoming_window: u32, next_incoming: Serial, next_outgoing: Serial) -> u32 {
    let left = i64::from(incoming_window) - i64::from(next_outgoing.distance(next_incoming));
    u32::try_from(left.max(0)).unwrap_or(u32::MAX)
}

impl Connection {
    /// Begins a session; its links may be attached at once. `token` is the caller's number for it.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotOpen`], [`Misuse::Full`] (no channel that both sides take, or `Limits::sessions` reached).
    pub fn begin(&mut self, token: u64) -> Result<SessionId, Misuse> {
        if !self.usable() {
            return Err(Misuse::NotOpen);
        }
        let id = self.new_session(token).ok_or(Misuse::Full)?;
        self.send_begin(id, None);
        Ok(id)
    }

    fn new_session(&mut self, token: u64) -> Option<SessionId> {
        if self.sessions.len() >= self.set.limits.sessions as usize {
            return None;
        }
        let max = self.peer_channel_max.min(self.set.limits.channel_max);
        let channel = self.channels_out.lowest_free(u32::from(max))? as u16;
        let window = self.set.incoming_window;
        let (index, generation) = self
            .sessions
            .insert_with(|index, generation| Session::new(SessionId { index, generation }, channel, token, window));
        let id = SessionId { index, generation };
        self.channels_out.insert(u32::from(channel), id);
        Some(id)
    }

    fn send_begin(&mut self, id: SessionId, remote_channel: Option<u16>) {
        let window = self.set.incoming_window;
        let handle_max = self.set.limits.handle_max;
        let Some(session) = self.sessions.get(id.index, id.generation) else { return };
        let begin = Begin {
            remote_channel,
            next_outgoing_id: session.next_out.0,
            incoming_window: window,
            outgoing_window: OUTGOING_WINDOW,
            handle_max,
            ..Begin::default()
        };
        let channel = session.channel;
        self.frame(channel, |out| begin.encode(out));
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id.index, id.generation)
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.index, id.generation)
    }

    /// The session on a channel of the peer's.
    pub(crate) fn session_on(&self, channel: u16, what: &str) -> Result<SessionId, Fault> {
        self.channels_in.get(u32::from(channel)).ok_or_else(|| {
            if channel > self.set.limits.channel_max {
                return channel_too_high(channel, self.set.limits.channel_max);
            }
            Fault::new("amqp:not-allowed", format!("{what} on channel {channel}, where no session was begun"))
        })
    }

    /// Sets the caller's number for a session.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoSession`].
    pub fn set_session_token(&mut self, session: SessionId, token: u64) -> Result<(), Misuse> {
        self.session_mut(session).ok_or(Misuse::NoSession)?.token = token;
        Ok(())
    }

    /// The caller's number for a session; 0 if it began by the peer and none was set.
    #[must_use]
    pub fn session_token(&self, session: SessionId) -> Option<u64> {
        self.session(session).map(|session| session.token)
    }

    /// Transfer frames that the session may send now. Its links share them by the turns that the caller gives them.
    #[must_use]
    pub fn session_window(&self, session: SessionId) -> u32 {
        self.session(session).filter(|session| session.live()).map_or(0, |session| session.peer_window)
    }

    /// How many deliveries the peer has not settled: those that we sent (`Role::Sender`) or received.
    #[must_use]
    pub fn unsettled(&self, session: SessionId, role: Role) -> usize {
        self.session(session).map_or(0, |session| match role {
            Role::Sender => session.outgoing.len(),
            Role::Receiver => session.incoming.len(),
        })
    }

    /// Asks the peer to answer at once with the state of the session: a sign of life.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoSession`].
    pub fn probe(&mut self, session: SessionId) -> Result<(), Misuse> {
        if !self.usable() || !self.session(session).is_some_and(Session::live) {
            return Err(Misuse::NoSession);
        }
        self.send_flow(session, None, true);
        Ok(())
    }

    //= amqp10 2.5.1
    pub(crate) fn on_begin(
        &mut self,
        channel: u16,
        begin: &Begin<'_>,
        frame: &[u8],
        body: &[u8],
    ) -> Result<Option<Emit>, Fault> {
        if channel > self.set.limits.channel_max {
            return Err(channel_too_high(channel, self.set.limits.channel_max));
        }
        if self.channels_in.get(u32::from(channel)).is_some() {
            return Err(Fault::new("amqp:illegal-state", format!("begin on channel {channel}, where a session is")));
        }
        if let Some(remote) = begin.remote_channel {
            let id = self.channels_out.get(u32::from(remote));
            let session = id.and_then(|id| self.session_mut(id)).filter(|session| session.next_in.is_none());
            let Some(session) = session else {
                return Err(Fault::new(
                    "amqp:invalid-field",
                    format!("begin with remote-channel {remote}, where nothing waits for an answer"),
                ));
            };
            session.peer_began(channel, begin);
            let (id, ended) = (session.id, session.end_sent);
            self.channels_in.insert(u32::from(channel), id);
            if ended {
                return Ok(None);
            }
            return Ok(Some(Emit::framed(Kind::SessionBegun { session: id, by_peer: false }, frame, body)));
        }
        let Some(id) = self.new_session(0) else {
            return Err(Fault::new(
                "amqp:resource-limit-exceeded",
                format!("begin on channel {channel}: {} sessions are open, no more are taken", self.sessions.len()),
            ));
        };
        self.channels_in.insert(u32::from(channel), id);
        if let Some(session) = self.session_mut(id) {
            session.peer_began(channel, begin);
        }
        self.send_begin(id, Some(channel));
        Ok(Some(Emit::framed(Kind::SessionBegun { session: id, by_peer: true }, frame, body)))
    }

    /// Ends a session with all its links, in answer to the peer's `end` or by our own wish; what was settled goes out
    /// before. The id is dead afterwards.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoSession`].
    pub fn end(&mut self, session: SessionId, error: Option<&Error<'_>>) -> Result<(), Misuse> {
        if self.session(session).is_none_or(|session| session.end_sent) {
            return Err(Misuse::NoSession);
        }
        if !self.usable() {
            return Err(Misuse::NotOpen);
        }
        self.end_session(session, error);
        Ok(())
    }

    /// Sends our `end` and forgets the links.
    fn end_session(&mut self, id: SessionId, error: Option<&Error<'_>>) {
        self.flush_session(id, false);
        let Some(session) = self.session_mut(id) else { return };
        let channel = session.channel;
        session.end_sent = true;
        session.outgoing = Deliveries::default();
        session.incoming = Deliveries::default();
        session.tags = Tags::default();
        let over = session.end_seen;
        if !self.try_frame(channel, |out| End { error: error.copied() }.encode(out)) {
            let bare = error.map(|error| Error { condition: error.condition, description: None, info: None });
            self.frame(channel, |out| End { error: bare }.encode(out));
        }
        self.forget_links(id);
        if over {
            self.forget_session(id);
        }
    }

    /// Ends a session for a fault of the peer's.
    pub(crate) fn fail_session(&mut self, id: SessionId, fault: Fault) -> Option<Emit> {
        let token = self.session(id)?.token;
        let error = Error { condition: fault.condition, description: Some(&fault.sentence), info: None };
        self.end_session(id, Some(&error));
        Some(Emit::bare(Kind::SessionFailed { session: id, token, fault }))
    }

    /// Both `end`s are out: channel and id are free.
    fn forget_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(id.index, id.generation) else { return };
        self.channels_out.remove(u32::from(session.channel));
        if let Some(channel) = session.peer_channel {
            self.channels_in.remove(u32::from(channel));
        }
    }

    //= amqp10 2.5.2
    pub(crate) fn on_end(
        &mut self,
        channel: u16,
        _end: &End<'_>,
        frame: &[u8],
        body: &[u8],
    ) -> Result<Option<Emit>, Fault> {
        let id = self.session_on(channel, "end")?;
        let Some(session) = self.session_mut(id) else { return Ok(None) };
        if session.end_seen {
            return Err(Fault::new(
                "amqp:not-allowed",
                format!("end on channel {channel}, where the session was ended"),
            ));
        }
        session.end_seen = true;
        let (token, answered) = (session.token, session.end_sent);
        if answered {
            // The ends crossed, or this answers ours: no second one.
            self.forget_session(id);
        }
        Ok(Some(Emit::framed(Kind::SessionEnded { session: id, token, answered }, frame, body)))
    }

    //= amqp10 2.7.4
    pub(crate) fn on_flow(
        &mut self,
        channel: u16,
        flow: &Flow<'_>,
        frame: &[u8],
        body: &[u8],
    ) -> Result<Option<Emit>, Fault> {
        let id = self.session_on(channel, "flow")?;
        let Some(session) = self.session_mut(id) else { return Ok(None) };
        if session.end_sent {
            return Ok(None);
        }
        if session.end_seen {
            return Err(after_end(channel, "flow"));
        }
        let link = match flow.handle {
            None => None,
            Some(handle) => match session.handles_in.get(handle) {
                Some(link) => Some(link),
                None => return Ok(self.fail_session(id, unattached(handle, "flow"))),
            },
        };
        let was_shut = session.peer_window == 0;
        //= amqp10 2.5.6 (null: our first id)
        let seen = Serial(flow.next_incoming_id.unwrap_or(0));
        session.peer_window = window(flow.incoming_window, seen, session.next_out);
        let window_opened = was_shut && session.peer_window > 0;
        let theirs = Serial(flow.next_outgoing_id);
        if session.next_in != Some(theirs) {
            // Copied, not checked; since their idea of our window moved with it, they get ours anew.
            session.next_in = Some(theirs);
            session.flow_due = true;
        }
        if flow.echo && link.is_none() {
            session.flow_due = true;
        }
        let (due, token) = (session.flow_due, session.token);
        if due {
            self.mark_session(id);
        }
        if window_opened {
            self.send_owed_aborts(id);
        }
        match link {
            Some(link) => self.on_link_flow(id, link, flow, window_opened, frame, body),
            None => Ok(Some(Emit::framed(Kind::SessionFlow { session: id, token, window_opened }, frame, body))),
        }
    }

    /// Puts a session on the list of those that `flush` looks at.
    pub(crate) fn mark_session(&mut self, id: SessionId) {
        if let Some(session) = self.session_mut(id)
            && !session.dirty
        {
            session.dirty = true;
            self.dirty_sessions.push(id);
        }
    }

    /// Writes a `flow`, with the state of a link or without.
    pub(crate) fn send_flow(&mut self, id: SessionId, link: Option<LinkId>, echo: bool) {
        let window = self.set.incoming_window;
        let Some(session) = self.session_mut(id) else { return };
        session.window_left = window;
        session.flow_due = false;
        let mut flow = Flow {
            next_incoming_id: session.next_in.map(|id| id.0),
            incoming_window: window,
            next_outgoing_id: session.next_out.0,
            outgoing_window: OUTGOING_WINDOW,
            echo,
            ..Flow::default()
        };
        let channel = session.channel;
        if let Some(link) = link {
            let Some(link) = self.link_mut(link) else { return };
            link.describe(&mut flow);
        }
        self.frame(channel, |out| flow.encode(out));
    }

    /// Counts a transfer frame against our window.
    ///
    //= amqp10 2.5.6
    pub(crate) fn count_incoming(&mut self, id: SessionId) -> Result<(), Fault> {
        let full = self.set.incoming_window;
        let Some(session) = self.session_mut(id) else { return Ok(()) };
        if session.window_left == 0 {
            return Err(Fault::new(
                "amqp:session:window-violation",
                format!("a transfer past the incoming-window of {full} frames"),
            ));
        }
        session.window_left -= 1;
        session.next_in = session.next_in.map(|id| id.plus(1));
        //= ^ refreshed when half used, never withheld because of one link
        if session.window_left <= full / 2 && !session.flow_due {
            session.flow_due = true;
            self.mark_session(id);
        }
        Ok(())
    }

    /// Writes everything that waits: dispositions first, then flows.
    pub(crate) fn flush_pending(&mut self) {
        let mut sessions = core::mem::take(&mut self.dirty_sessions);
        let mut links = core::mem::take(&mut self.dirty_links);
        for id in &sessions {
            self.flush_ranges(*id);
        }
        for id in links.drain(..) {
            self.flush_link(id);
        }
        for id in sessions.drain(..) {
            self.flush_session(id, true);
        }
        // The lists keep their room; what was marked meanwhile stays marked.
        if self.dirty_sessions.is_empty() {
            self.dirty_sessions = sessions;
        }
        links.append(&mut self.dirty_links);
        self.dirty_links = links;
    }

    /// Writes a session's dispositions, and its own `flow` if it is due and `flow` says so.
    fn flush_session(&mut self, id: SessionId, flow: bool) {
        self.flush_ranges(id);
        let Some(session) = self.session_mut(id) else { return };
        if flow {
            session.dirty = false;
            let due = session.flow_due && session.next_in.is_some() && !session.end_sent && !session.end_seen;
            if due {
                self.send_flow(id, None, false);
            }
        }
    }
}

fn channel_too_high(channel: u16, max: u16) -> Fault {
    Fault::new("amqp:connection:framing-error", format!("a frame on channel {channel}: channel-max is {max}"))
}

/// A frame on a session behind the peer's own `end`.
pub(crate) fn after_end(channel: u16, what: &str) -> Fault {
    Fault::new("amqp:not-allowed", format!("{what} on channel {channel}, where the session was ended"))
}

/// A frame for a handle that names no link.
///
//= amqp10 2.8.17
pub(crate) fn unattached(handle: u32, what: &str) -> Fault {
    Fault::new("amqp:session:unattached-handle", format!("{what} on handle {handle}, where no link is attached"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r2_5_6_the_window_is_serial_and_never_negative() {
        assert_eq!(window(10, Serial(0), Serial(0)), 10);
        assert_eq!(window(10, Serial(5), Serial(8)), 7);
        assert_eq!(window(2, Serial(5), Serial(8)), 0);
        assert_eq!(window(10, Serial(u32::MAX), Serial(1)), 8);
        assert_eq!(window(0x7fff_ffff, Serial(0x8000_0005), Serial(0x8000_0007)), 0x7fff_fffd);
        assert_eq!(window(u32::MAX, Serial(0), Serial(0)), u32::MAX);
        assert_eq!(window(u32::MAX, Serial(7), Serial(3)), u32::MAX);
    }
}
