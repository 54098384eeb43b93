//! Links: attach, its answer and refusal, detach.
//!
//! Owns names, handles and the state of one link endpoint. What travels over a link is in `transfer` and `sending`.

mod credit;

use alloc::format;
use alloc::sync::Arc;

use super::connection::{Connection, role_index};
use super::emit::{Emit, Kind};
use super::event::{Decision, Fault};
use super::sending::Outgoing;
use super::serial::Serial;
use super::session::{after_end, unattached};
use super::settle::{Outcomes, decision_of};
use super::terms::{LinkReply, Misuse};
use super::transfer::Incoming;
use super::{LinkId, SessionId};
use crate::codec::{Attach, Detach, Error, Flow, Map, ReceiverSettleMode, Role, SenderSettleMode, Source};

/// How far a link has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Our `attach` is out, the peer's is awaited.
    Asking,
    /// The peer's `attach` came, ours is awaited from the caller.
    Asked,
    /// Both are out.
    Attached,
}

/// One link endpoint, from the first `attach` to the second `detach`.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) token: u64,
    pub(crate) session: SessionId,
    /// What we are.
    pub(crate) role: Role,
    pub(crate) name: Arc<str>,
    pub(crate) state: LinkState,
    pub(crate) handle: u32,
    pub(crate) peer_handle: Option<u32>,
    /// Our `detach`, and whether it closed.
    pub(crate) detach_sent: Option<bool>,
    /// The peer's `detach`, and whether it closed.
    pub(crate) detach_seen: Option<bool>,
    /// Whether our `attach` had our terminus: then a null one in the answer is a refusal.
    had_terminus: bool,
    /// Whether the peer's `attach` had an unsettled map.
    peer_unsettled: bool,
    /// Receiver: the peer's map was not all of it: before it attaches again, it may only resume.
    pub(crate) peer_incomplete: bool,
    pub(crate) snd_mode: SenderSettleMode,
    pub(crate) rcv_mode: ReceiverSettleMode,
    /// The largest message the peer takes; 0 = no limit.
    pub(crate) peer_max: u64,
    /// The largest message we take; 0 = no limit.
    pub(crate) our_max: u64,
    /// Of the deliveries on this link so far, the peer's word included.
    pub(crate) delivery_count: Serial,
    /// Sender: deliveries we may send; below 0 where the peer lowered it beneath what was sent already.
    pub(crate) credit: i64,
    /// Sender: the peer wants the credit used up. Receiver: we do.
    pub(crate) drain: bool,
    /// Receiver: whether the peer was told so.
    pub(crate) drain_told: bool,
    /// Sender: deliveries that could be sent, a hint for the peer.
    available: u32,
    /// Receiver: the delivery-count at which the credit given last ends.
    granted_to: Serial,
    /// Receiver: the furthest that any credit told ever went.
    pub(crate) limit: Serial,
    pub(crate) flow_due: bool,
    dirty: bool,
    /// Whether anything unsettled ever went over it: without, its end needs no search.
    pub(crate) had_unsettled: bool,
    pub(crate) incoming: Option<Incoming>,
    pub(crate) outgoing: Option<Outgoing>,
    /// Sender: what the source's outcomes are.
    pub(crate) outcomes: Outcomes,
}

impl Link {
    fn new(id: LinkId, session: SessionId, role: Role, name: Arc<str>, handle: u32) -> Self {
        Self {
            id,
            token: 0,
            session,
            role,
            name,
            state: LinkState::Asked,
            handle,
            peer_handle: None,
            detach_sent: None,
            detach_seen: None,
            had_terminus: false,
            peer_unsettled: false,
            peer_incomplete: false,
            snd_mode: SenderSettleMode::Mixed,
            rcv_mode: ReceiverSettleMode::First,
            peer_max: 0,
            our_max: 0,
            delivery_count: Serial(0),
            credit: 0,
            drain: false,
            drain_told: false,
            available: 0,
            granted_to: Serial(0),
            limit: Serial(0),
            flow_due: false,
            dirty: false,
            had_unsettled: false,
            incoming: None,
            outgoing: None,
            outcomes: Outcomes::default(),
        }
    }

    /// Takes over what the peer's `attach` says.
    fn peer_attached(&mut self, attach: &Attach<'_>) {
        self.peer_handle = Some(attach.handle);
        self.peer_unsettled = attach.unsettled.is_some();
        self.peer_incomplete = attach.incomplete_unsettled;
        self.peer_max = attach.max_message_size.unwrap_or(0);
        match self.role {
            //= amqp10 2.7.3 (snd-settle-mode belongs to the sender, rcv-settle-mode to the receiver)
            Role::Sender => self.rcv_mode = attach.rcv_settle_mode,
            Role::Receiver => {
                self.snd_mode = attach.snd_settle_mode;
                let count = Serial(attach.initial_delivery_count.unwrap_or(0));
                // Credit may have been told before the count was known: it counts from here.
                self.granted_to = count.plus(self.granted_to.since(self.delivery_count));
                self.limit = count.plus(self.limit.since(self.delivery_count));
                self.delivery_count = count;
            }
        }
    }

    fn takes_source(&mut self, source: Option<&Source<'_>>) {
        if self.role == Role::Sender {
            self.outcomes = source.map(Outcomes::of).unwrap_or_default();
        }
    }

    /// Neither side has detached and both have attached.
    pub(crate) fn live(&self) -> bool {
        self.state == LinkState::Attached && self.detach_sent.is_none() && self.detach_seen.is_none()
    }

    /// Receiver: credit that the peer has not used.
    pub(crate) fn credit_left(&self) -> u32 {
        match self.role {
            Role::Sender => u32::try_from(self.credit.max(0)).unwrap_or(u32::MAX),
            Role::Receiver => u32::try_from(self.granted_to.distance(self.delivery_count)).unwrap_or(0),
        }
    }

    /// Receiver: whether a drain that was told has left no credit; tells so once.
    pub(crate) fn drain_answered(&mut self) -> bool {
        let answered = self.drain && self.drain_told && self.credit_left() == 0;
        if answered {
            self.drain = false;
            self.drain_told = false;
        }
        answered
    }

    /// Whether a delivery is under way, in the midst of which we send no `flow` for the link.
    fn midway(&self) -> bool {
        self.incoming.is_some() || self.outgoing.as_ref().is_some_and(Outgoing::begun)
    }

    /// Fills the link fields of a `flow` that goes out now.
    ///
    //= amqp10 2.7.4
    pub(crate) fn describe(&mut self, flow: &mut Flow<'_>) {
        self.flow_due = false;
        flow.handle = Some(self.handle);
        let credit = self.credit_left();
        flow.link_credit = Some(credit);
        match self.role {
            Role::Sender => {
                flow.delivery_count = Some(self.delivery_count.0);
                flow.available = Some(self.available);
                // Never drain with credit left: one client fails on it.
                flow.drain = self.drain && credit == 0;
            }
            Role::Receiver => {
                // Before the peer's attach its count is unknown (2.7.4: null then).
                flow.delivery_count = self.peer_handle.map(|_| self.delivery_count.0);
                flow.drain = self.drain;
                self.drain_told = self.drain;
                if self.granted_to.after(self.limit) {
                    self.limit = self.granted_to;
                }
            }
        }
    }
}

impl Connection {
    pub(crate) fn link(&self, id: LinkId) -> Option<&Link> {
        self.links.get(id.index, id.generation)
    }

    pub(crate) fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id.index, id.generation)
    }

    /// A link that commands may change, and its session.
    fn usable_link(&mut self, id: LinkId) -> Result<&mut Link, Misuse> {
        if !self.usable() {
            return Err(Misuse::NotOpen);
        }
        let link = self.links.get_mut(id.index, id.generation).ok_or(Misuse::NoLink)?;
        if link.detach_sent.is_some() { Err(Misuse::NoLink) } else { Ok(link) }
    }

    /// Sets the caller's number for a link.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoLink`].
    pub fn set_link_token(&mut self, link: LinkId, token: u64) -> Result<(), Misuse> {
        self.link_mut(link).ok_or(Misuse::NoLink)?.token = token;
        Ok(())
    }

    /// The caller's number for a link.
    #[must_use]
    pub fn link_token(&self, link: LinkId) -> Option<u64> {
        self.link(link).map(|link| link.token)
    }

    /// The session of a link.
    #[must_use]
    pub fn link_session(&self, link: LinkId) -> Option<SessionId> {
        self.link(link).map(|link| link.session)
    }

    /// What we are on a link.
    #[must_use]
    pub fn link_role(&self, link: LinkId) -> Option<Role> {
        self.link(link).map(|link| link.role)
    }

    /// The name of a link.
    #[must_use]
    pub fn link_name(&self, link: LinkId) -> Option<&str> {
        self.link(link).map(|link| &*link.name)
    }

    /// The settle modes of a link, as both sides agreed (each states its own).
    #[must_use]
    pub fn settle_modes(&self, link: LinkId) -> Option<(SenderSettleMode, ReceiverSettleMode)> {
        self.link(link).map(|link| (link.snd_mode, link.rcv_mode))
    }

    /// The largest message that the peer takes on a link, in bytes; 0 = no limit.
    #[must_use]
    pub fn peer_max_message_size(&self, link: LinkId) -> Option<u64> {
        self.link(link).map(|link| link.peer_max)
    }

    /// Credit not used up: on a sending link what we may send, on a receiving one what the peer may.
    #[must_use]
    pub fn credit(&self, link: LinkId) -> u32 {
        self.link(link).map_or(0, Link::credit_left)
    }

    /// The delivery-count of a link.
    #[must_use]
    pub fn delivery_count(&self, link: LinkId) -> Option<u32> {
        self.link(link).map(|link| link.delivery_count.0)
    }

    /// Whether a drain is not answered: on a sending link the peer's, until `drained`; on a receiving one ours.
    #[must_use]
    pub fn draining(&self, link: LinkId) -> bool {
        self.link(link).is_some_and(|link| link.drain)
    }

    /// Attaches a link. Name, role, termini, settle modes and all else stand in `attach`; handle and (for a sender)
    /// `initial-delivery-count` 0 are added. The peer answers by [`super::Event::Attach`]. On a receiving link credit may be
    /// granted at once. `token` is the caller's number for the link.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotOpen`], [`Misuse::NoSession`], [`Misuse::NameInUse`], [`Misuse::Full`], [`Misuse::FrameTooSmall`].
    pub fn attach(&mut self, session: SessionId, attach: &Attach<'_>, token: u64) -> Result<LinkId, Misuse> {
        if !self.usable() {
            return Err(Misuse::NotOpen);
        }
        if !self.session(session).is_some_and(|session| !session.end_sent && !session.end_seen) {
            return Err(Misuse::NoSession);
        }
        if self.names[role_index(attach.role)].contains_key(attach.name) {
            return Err(Misuse::NameInUse);
        }
        let id = self.new_link(session, attach.role, attach.name).ok_or(Misuse::Full)?;
        let mut ours = *attach;
        if let Some(link) = self.link_mut(id) {
            ours.handle = link.handle;
            link.token = token;
            link.state = LinkState::Asking;
            link.had_terminus = match attach.role {
                Role::Sender => attach.target.is_some(),
                Role::Receiver => attach.source.is_some(),
            };
            link.snd_mode = attach.snd_settle_mode;
            link.rcv_mode = attach.rcv_settle_mode;
            link.our_max = attach.max_message_size.unwrap_or(0);
            link.takes_source(attach.source.as_ref());
        }
        ours.initial_delivery_count = (attach.role == Role::Sender).then_some(0);
        if self.send_attach(session, &ours) {
            Ok(id)
        } else {
            self.too_small(session);
            Err(Misuse::FrameTooSmall)
        }
    }

    fn new_link(&mut self, session: SessionId, role: Role, name: &str) -> Option<LinkId> {
        if self.links.len() >= self.set.limits.links as usize {
            return None;
        }
        let holder = self.session(session)?;
        let handle = holder.handles_out.lowest_free(holder.peer_handle_max)?;
        let name: Arc<str> = Arc::from(name);
        let kept = Arc::clone(&name);
        let (index, generation) = self
            .links
            .insert_with(|index, generation| Link::new(LinkId { index, generation }, session, role, kept, handle));
        let id = LinkId { index, generation };
        self.names[role_index(role)].insert(name, id);
        if let Some(session) = self.session_mut(session) {
            session.handles_out.insert(handle, id);
        }
        Some(id)
    }

    fn send_attach(&mut self, session: SessionId, attach: &Attach<'_>) -> bool {
        let Some(channel) = self.session(session).map(|session| session.channel) else { return false };
        self.try_frame(channel, |out| attach.encode(out))
    }

    /// Ends a session because a frame of ours does not fit the peer's `max-frame-size`.
    ///
    //= amqp10 2.8.17
    fn too_small(&mut self, session: SessionId) {
        let text = format!("a frame of ours needs more than the max-frame-size of {}", self.peer_frame);
        if let Some(emit) = self.fail_session(session, Fault::new("amqp:session:frame-size-too-small", text)) {
            self.pending.push_back(emit);
        }
    }

    /// Accepts the link of [`super::Event::Attach`]. On a receiving link `grant` credit then.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoLink`], [`Misuse::WrongState`] (accepted or refused already, or the peer has detached meanwhile),
    /// [`Misuse::FrameTooSmall`].
    pub fn accept_link(&mut self, link: LinkId, reply: &LinkReply<'_>) -> Result<(), Misuse> {
        let ours = self.usable_link(link)?;
        if ours.state != LinkState::Asked || ours.detach_seen.is_some() {
            return Err(Misuse::WrongState);
        }
        ours.state = LinkState::Attached;
        ours.snd_mode = reply.snd_settle_mode.unwrap_or(ours.snd_mode);
        ours.rcv_mode = reply.rcv_settle_mode.unwrap_or(ours.rcv_mode);
        ours.our_max = reply.max_message_size;
        ours.takes_source(reply.source.as_ref());
        let name = Arc::clone(&ours.name);
        let session = ours.session;
        let attach = Attach {
            name: &name,
            handle: ours.handle,
            role: ours.role,
            snd_settle_mode: ours.snd_mode,
            rcv_settle_mode: ours.rcv_mode,
            source: reply.source,
            target: reply.target,
            //= amqp10 2.6.13 ^ (none kept: an empty map, which is honest)
            unsettled: (reply.empty_unsettled && ours.peer_unsettled).then(Map::default),
            incomplete_unsettled: false,
            initial_delivery_count: (ours.role == Role::Sender).then_some(0),
            max_message_size: Some(reply.max_message_size).filter(|size| *size > 0),
            offered_capabilities: reply.offered_capabilities,
            desired_capabilities: reply.desired_capabilities,
            properties: reply.properties,
        };
        if self.send_attach(session, &attach) {
            Ok(())
        } else {
            self.too_small(session);
            Err(Misuse::FrameTooSmall)
        }
    }

    /// Refuses the link of [`super::Event::Attach`]: an `attach` without our terminus, at once a closing `detach` with the
    /// error. What the peer has sent on it meanwhile is dropped.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoLink`], [`Misuse::WrongState`] (accepted or refused already).
    ///
    //= amqp10 2.6.3
    pub fn refuse_link(&mut self, link: LinkId, error: &Error<'_>) -> Result<(), Misuse> {
        if self.usable_link(link)?.state != LinkState::Asked {
            return Err(Misuse::WrongState);
        }
        self.send_detach(link, true, Some(error));
        Ok(())
    }

    /// Detaches a link, in answer to the peer's `detach` (with the same `closed`) or by our own wish; what was settled goes
    /// out before. `closed` ends the terminus too, otherwise the link is only suspended. A delivery of ours under way counts
    /// as aborted. What the peer still sends on the link is dropped.
    ///
    /// The id takes no more commands; with `closed` its deliveries are forgotten.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoLink`].
    ///
    //= amqp10 2.6.6
    pub fn detach(&mut self, link: LinkId, closed: bool, error: Option<&Error<'_>>) -> Result<(), Misuse> {
        self.usable_link(link)?;
        self.send_detach(link, closed, error);
        Ok(())
    }

    /// Detaches a link whose name the same container attached again: a closing `detach` with `amqp:link:stolen`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoLink`].
    ///
    //= amqp10 2.6.1
    pub fn steal(&mut self, link: LinkId) -> Result<(), Misuse> {
        self.detach(link, true, Some(&STOLEN))
    }

    fn send_detach(&mut self, id: LinkId, closed: bool, error: Option<&Error<'_>>) {
        let Some(link) = self.links.get_mut(id.index, id.generation) else { return };
        let (session, handle, role) = (link.session, link.handle, link.role);
        if link.state == LinkState::Asked {
            // Sequence 3. The sender's count is told here too (2.7.3).
            let name = Arc::clone(&link.name);
            link.state = LinkState::Attached;
            let attach = Attach {
                name: &name,
                handle,
                role,
                snd_settle_mode: link.snd_mode,
                rcv_settle_mode: link.rcv_mode,
                initial_delivery_count: (role == Role::Sender).then_some(0),
                ..Attach::default()
            };
            if !self.send_attach(session, &attach) {
                self.too_small(session);
                return;
            }
        }
        //= ^ dispositions go out before our `detach`, never after
        self.flush_ranges(session);
        let Some(link) = self.links.get_mut(id.index, id.generation) else { return };
        link.detach_sent = Some(closed);
        let halves = (link.incoming.take().map(|d| d.id), link.outgoing.take().and_then(|d| d.id));
        let (over, search) = (link.detach_seen.is_some(), link.had_unsettled);
        if let Some(session) = self.sessions.get_mut(session.index, session.generation) {
            if let Some(delivery) = halves.0 {
                session.forget_incoming(delivery);
            }
            if let Some(delivery) = halves.1 {
                session.outgoing.remove(delivery);
            }
            if closed && search {
                session.forget_deliveries(id);
            }
        }
        if self.link(id).is_some_and(|link| link.state != LinkState::Asking) {
            self.forget_name(id);
        }
        let Some(channel) = self.session(session).map(|session| session.channel) else { return };
        if !self.try_frame(channel, |out| Detach { handle, closed, error: error.copied() }.encode(out)) {
            let bare = error.map(|error| Error { condition: error.condition, description: None, info: None });
            self.frame(channel, |out| Detach { handle, closed, error: bare }.encode(out));
        }
        if over {
            self.forget_link(id);
        }
    }

    /// Detaches a link for a fault of the peer's.
    pub(crate) fn fail_link(&mut self, id: LinkId, fault: Fault) -> Option<Emit> {
        let link = self.link(id)?;
        if link.detach_sent.is_some() {
            return None;
        }
        let token = link.token;
        let error = Error { condition: fault.condition, description: Some(&fault.sentence), info: None };
        self.send_detach(id, true, Some(&error));
        Some(Emit::bare(Kind::LinkFailed { link: id, token, fault }))
    }

    fn forget_name(&mut self, id: LinkId) {
        let Some(link) = self.links.get(id.index, id.generation) else { return };
        let names = &mut self.names[role_index(link.role)];
        if names.get(&link.name) == Some(&id) {
            names.remove(&link.name);
        }
    }

    /// Both `detach`es are out: handles and id are free.
    fn forget_link(&mut self, id: LinkId) {
        self.forget_name(id);
        let Some(link) = self.links.remove(id.index, id.generation) else { return };
        if let Some(session) = self.sessions.get_mut(link.session.index, link.session.generation) {
            session.handles_out.remove(link.handle);
            if let Some(handle) = link.peer_handle {
                session.handles_in.remove(handle);
            }
            if link.detach_seen == Some(true) && link.had_unsettled {
                session.forget_deliveries(id);
            }
        }
    }

    /// The session is over for us: its links are.
    pub(crate) fn forget_links(&mut self, session: SessionId) {
        loop {
            let next = self.session(session).and_then(|session| session.handles_out.values().next());
            let Some(link) = next else { break };
            self.forget_link(link);
        }
    }

    /// Forgets the deliveries of a link that was detached without being closed; until then the peer's dispositions for
    /// them are still told. (Those of a closed link are forgotten anyway.)
    pub fn forget_deliveries(&mut self, session: SessionId, link: LinkId) {
        if let Some(session) = self.session_mut(session) {
            session.forget_deliveries(link);
        }
    }

    //= amqp10 2.6.3, 2.7.3
    pub(crate) fn on_attach(
        &mut self,
        channel: u16,
        attach: &Attach<'_>,
        frame: &[u8],
        body: &[u8],
    ) -> Result<Option<Emit>, Fault> {
        let session = self.session_on(channel, "attach")?;
        let Some(holder) = self.session(session) else { return Ok(None) };
        if holder.end_sent {
            return Ok(None);
        }
        if holder.end_seen {
            return Err(after_end(channel, "attach"));
        }
        let handle = attach.handle;
        if handle > self.set.limits.handle_max {
            return Err(Fault::new(
                "amqp:connection:framing-error",
                format!("attach on handle {handle}: handle-max is {}", self.set.limits.handle_max),
            ));
        }
        if holder.handles_in.get(handle).is_some() {
            return Err(Fault::new(
                "amqp:session:handle-in-use",
                format!("attach on handle {handle}, where a link is attached"),
            ));
        }
        let role = match attach.role {
            Role::Sender => Role::Receiver,
            Role::Receiver => Role::Sender,
        };
        let known = self.names[role_index(role)].get(attach.name).copied();
        let answers = |link: &Link| link.state == LinkState::Asking && link.session == session;
        if let Some(id) = known
            && self.link(id).is_some_and(answers)
        {
            return Ok(self.on_answer(id, attach, frame, body));
        }
        let stolen = known;
        if let Some(old) = known {
            self.send_detach(old, true, Some(&STOLEN));
            self.forget_name(old);
        }
        let Some(id) = self.new_link(session, role, attach.name) else {
            let text = format!("{} links are attached, no more are taken", self.links.len());
            return Ok(self.fail_session(session, Fault::new("amqp:resource-limit-exceeded", text)));
        };
        self.bind_handle(session, handle, id);
        if let Some(link) = self.link_mut(id) {
            link.snd_mode = attach.snd_settle_mode;
            link.rcv_mode = attach.rcv_settle_mode;
            link.peer_attached(attach);
        }
        if role == Role::Receiver && attach.initial_delivery_count.is_none() {
            // Refused before the caller heard of it.
            let text = format!("attach of sender \"{}\" without initial-delivery-count", shown(attach.name));
            self.fail_link(id, Fault::new("amqp:invalid-field", text));
            return Ok(None);
        }
        if attach.name.len() > self.set.limits.link_name_bytes {
            let (len, limit) = (attach.name.len(), self.set.limits.link_name_bytes);
            let text = format!("a link name of {len} bytes: at most {limit} are taken");
            self.fail_link(id, Fault::new("amqp:resource-limit-exceeded", text));
            if let Some(link) = self.link_mut(id) {
                // Until the peer detaches, the place is taken, but not the name's memory.
                link.name = Arc::from("");
            }
            return Ok(None);
        }
        let kind = Kind::Attach { session, link: id, token: 0, role, answer: false, refused: false, stolen };
        Ok(Some(Emit::framed(kind, frame, body)))
    }

    fn bind_handle(&mut self, session: SessionId, handle: u32, link: LinkId) {
        if let Some(session) = self.session_mut(session) {
            session.handles_in.insert(handle, link);
        }
    }

    fn on_answer(&mut self, id: LinkId, attach: &Attach<'_>, frame: &[u8], body: &[u8]) -> Option<Emit> {
        let link = self.link_mut(id)?;
        link.state = LinkState::Attached;
        link.peer_attached(attach);
        let (session, token, role) = (link.session, link.token, link.role);
        let refused = link.had_terminus
            && match role {
                Role::Sender => attach.target.is_none(),
                Role::Receiver => attach.source.is_none(),
            };
        if role == Role::Receiver && link.granted_to != link.delivery_count {
            // Credit told before the count was known is told again with it.
            link.flow_due = true;
        }
        let (due, gone) = (link.flow_due, link.detach_sent.is_some());
        self.bind_handle(session, attach.handle, id);
        if gone {
            self.forget_name(id);
            return None;
        }
        if role == Role::Receiver && attach.initial_delivery_count.is_none() && !refused {
            let text = format!("attach of sender \"{}\" without initial-delivery-count", shown(attach.name));
            return self.fail_link(id, Fault::new("amqp:invalid-field", text));
        }
        if due && !refused {
            self.mark_link(id);
        }
        let kind = Kind::Attach { session, link: id, token, role, answer: true, refused, stolen: None };
        Some(Emit::framed(kind, frame, body))
    }

    //= amqp10 2.6.6, 2.7.7
    pub(crate) fn on_detach(
        &mut self,
        channel: u16,
        detach: &Detach<'_>,
        frame: &[u8],
        body: &[u8],
    ) -> Result<Option<Emit>, Fault> {
        let session = self.session_on(channel, "detach")?;
        let Some(id) = self.link_on(session, channel, detach.handle, "detach")? else { return Ok(None) };
        let id = match id {
            Ok(id) => id,
            Err(fault) => return Ok(self.fail_session(session, fault)),
        };
        let Some(link) = self.link_mut(id) else { return Ok(None) };
        link.detach_seen = Some(detach.closed);
        let (token, answered) = (link.token, link.detach_sent.is_some());
        let half = link.incoming.take().map(|delivery| delivery.id);
        let midway = half.is_some();
        if let Some(delivery) = half
            && let Some(session) = self.session_mut(session)
        {
            //= ^ detach midway = aborted
            session.forget_incoming(delivery);
        }
        if answered {
            self.forget_link(id);
        } else {
            self.forget_name(id);
        }
        Ok(Some(Emit::framed(Kind::Detached { link: id, token, answered, midway }, frame, body)))
    }

    /// The link on a handle of the peer's. None: the session drops all it gets.
    pub(crate) fn link_on(
        &self,
        session: SessionId,
        channel: u16,
        handle: u32,
        what: &str,
    ) -> Result<Option<Result<LinkId, Fault>>, Fault> {
        let Some(holder) = self.session(session) else { return Ok(None) };
        if holder.end_sent {
            return Ok(None);
        }
        if holder.end_seen {
            return Err(after_end(channel, what));
        }
        let attached = |id: &LinkId| self.link(*id).is_some_and(|link| link.detach_seen.is_none());
        Ok(Some(holder.handles_in.get(handle).filter(attached).ok_or_else(|| unattached(handle, what))))
    }
}

const STOLEN: Error<'static> = Error {
    condition: "amqp:link:stolen",
    description: Some("the same container attached a link of this name again"),
    info: None,
};

/// A peer's name in one of our sentences: not more of it than a line takes.
pub(crate) fn shown(name: &str) -> &str {
    match name.char_indices().nth(64) {
        Some((end, _)) => &name[..end],
        None => name,
    }
}

impl Outcomes {
    /// What a source says.
    pub(crate) fn of(source: &Source<'_>) -> Self {
        let default = source.default_outcome.map_or(Decision::Released, |outcome| decision_of(Some(&outcome.into())));
        Self::new(default, &source.outcomes)
    }
}
