//! Credit of links in both directions, and the `flow` that tells it.
//!
//! Must not know: names, termini, what is sent for the credit.

use super::{Link, LinkState};
use crate::codec::{Flow, Role};
use crate::engine::connection::Connection;
use crate::engine::emit::{Emit, Kind};
use crate::engine::event::Fault;
use crate::engine::serial::Serial;
use crate::engine::session::{Session, unattached};
use crate::engine::terms::Misuse;
use crate::engine::{LinkId, SessionId};

/// The largest credit that is told: half the range of serial numbers would be ambiguous.
const CREDIT_MAX: u32 = 0x7fff_ffff;

impl Connection {
    /// The link part of a `flow`.
    pub(crate) fn on_link_flow(
        &mut self,
        session: SessionId,
        id: LinkId,
        flow: &Flow<'_>,
        window_opened: bool,
        frame: &[u8],
        body: &[u8],
    ) -> Result<Option<Emit>, Fault> {
        let Some(link) = self.link_mut(id) else { return Ok(None) };
        if link.detach_seen.is_some() {
            let handle = flow.handle.unwrap_or_default();
            return Ok(self.fail_session(session, unattached(handle, "flow")));
        }
        if link.detach_sent.is_some() {
            // The window may have moved all the same.
            let token = self.session(session).map_or(0, |session| session.token);
            let told =
                window_opened.then(|| Emit::framed(Kind::SessionFlow { session, token, window_opened }, frame, body));
            return Ok(told);
        }
        let kind = match link.role {
            Role::Sender => {
                if let Some(credit) = flow.link_credit {
                    //= amqp10 2.6.7 (null: our initial-delivery-count, which is 0)
                    let counted = Serial(flow.delivery_count.unwrap_or(0));
                    link.credit = i64::from(credit) - i64::from(link.delivery_count.distance(counted));
                }
                link.drain = flow.drain;
                Kind::Credit {
                    link: id,
                    token: link.token,
                    credit: link.credit_left(),
                    drain: link.drain,
                    window_opened,
                }
            }
            Role::Receiver => {
                // Only forwards: amid a delivery some senders have not counted it yet.
                if let Some(count) = flow.delivery_count
                    && Serial(count).after(link.delivery_count)
                {
                    link.delivery_count = Serial(count);
                    if link.delivery_count.after(link.limit) {
                        link.limit = link.delivery_count;
                    }
                }
                let drained = link.drain_answered();
                let available = flow.available.unwrap_or(0);
                Kind::SenderFlow { link: id, token: link.token, available, drained, window_opened }
            }
        };
        if flow.echo {
            link.flow_due = true;
            self.mark_link(id);
        }
        Ok(Some(Emit::framed(kind, frame, body)))
    }

    pub(crate) fn mark_link(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id.index, id.generation)
            && !link.dirty
        {
            link.dirty = true;
            self.dirty_links.push(id);
        }
    }

    /// Writes the `flow` of a link if it is due and no delivery is under way.
    pub(crate) fn flush_link(&mut self, id: LinkId) {
        let Some(link) = self.link_mut(id) else { return };
        link.dirty = false;
        // Amid a delivery it waits for the end: some peers count at the first frame, some at the last. That end marks
        // the link again.
        let due = link.flow_due && !link.midway() && link.detach_sent.is_none() && link.detach_seen.is_none();
        let session = link.session;
        if due && self.session(session).is_some_and(|session| !session.end_seen && !session.end_sent) {
            self.send_flow(session, Some(id), false);
        }
    }

    /// Receiving link: lets the peer send `credit` deliveries from now on, in place of what it was given before. The
    /// `flow` goes out with `flush`, never amid a delivery of several frames.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoLink`], [`Misuse::WrongRole`], [`Misuse::WrongState`] (not accepted yet, or detached by the peer).
    pub fn grant(&mut self, link: LinkId, credit: u32) -> Result<(), Misuse> {
        let ours = self.receiving(link)?;
        ours.granted_to = ours.delivery_count.plus(credit.min(CREDIT_MAX));
        ours.drain = false;
        ours.drain_told = false;
        ours.flow_due = true;
        self.mark_link(link);
        Ok(())
    }

    /// Receiving link: asks the peer to use up the credit it has with what is ready, and to give back the rest. The
    /// answer is [`crate::engine::Event::SenderFlow`] with `drained`, or [`crate::engine::Event::Drained`].
    ///
    /// # Errors
    ///
    /// As [`Self::grant`].
    pub fn drain(&mut self, link: LinkId) -> Result<(), Misuse> {
        let ours = self.receiving(link)?;
        ours.drain = true;
        ours.drain_told = false;
        ours.flow_due = true;
        self.mark_link(link);
        Ok(())
    }

    fn receiving(&mut self, id: LinkId) -> Result<&mut Link, Misuse> {
        let link = self.usable_link(id)?;
        if link.role != Role::Receiver {
            Err(Misuse::WrongRole)
        } else if link.state == LinkState::Asked || link.detach_seen.is_some() {
            Err(Misuse::WrongState)
        } else {
            Ok(link)
        }
    }

    /// Sending link: how many deliveries are ready, a hint told with the next `flow`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoLink`], [`Misuse::WrongRole`].
    pub fn set_available(&mut self, link: LinkId, available: u32) -> Result<(), Misuse> {
        let ours = self.usable_link(link)?;
        if ours.role != Role::Sender {
            return Err(Misuse::WrongRole);
        }
        ours.available = available;
        Ok(())
    }

    /// Sending link: everything ready was sent, the rest of the credit is given back, and the `flow` that says so is queued
    /// at once. Call it when [`crate::engine::Event::Credit`] had `drain`, with credit 0 too.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoLink`], [`Misuse::WrongRole`], [`Misuse::WrongState`] (not attached, or amid a delivery).
    ///
    //= amqp10 2.6.7
    pub fn drained(&mut self, link: LinkId) -> Result<(), Misuse> {
        let ours = self.usable_link(link)?;
        if ours.role != Role::Sender {
            return Err(Misuse::WrongRole);
        }
        if !ours.live() || ours.outgoing.is_some() {
            return Err(Misuse::WrongState);
        }
        let rest = ours.credit_left();
        ours.delivery_count = ours.delivery_count.plus(rest);
        ours.credit -= i64::from(rest);
        let session = ours.session;
        if self.session(session).is_some_and(Session::live) {
            self.send_flow(session, Some(link), false);
        }
        if let Some(link) = self.link_mut(link) {
            link.drain = false;
        }
        Ok(())
    }
}
