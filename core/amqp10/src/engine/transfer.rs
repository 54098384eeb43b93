//! Deliveries that come: one event per `transfer` frame, payload never joined.
//!
//! Owns the rules between the frames of one delivery, and the count against the credit we gave.

use alloc::format;

use super::LinkId;
use super::connection::Connection;
use super::emit::{Emit, Kind, Part, TransferKind, TransferState};
use super::event::Fault;
use super::link::{LinkState, shown};
use super::serial::Serial;
use super::settle::InDelivery;
use super::tags;
use crate::codec::{ReceiverSettleMode, Role, SenderSettleMode, Transfer};

/// The longest delivery-tag.
///
//= amqp10 2.8.7
pub(crate) const TAG_MAX: usize = 32;

/// A delivery of which more frames come.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) id: Serial,
    tag: [u8; TAG_MAX],
    tag_len: u8,
    format: u32,
    settled: bool,
    settle_first: bool,
    /// It resumes what we do not know: passed over.
    ignored: bool,
    /// Payload so far.
    size: u64,
}

/// What is wrong with a transfer; the link pays for it.
type Checked<T> = Result<T, Fault>;

fn invalid(text: impl Into<alloc::borrow::Cow<'static, str>>) -> Fault {
    Fault::new("amqp:invalid-field", text)
}

impl Connection {
    //= amqp10 2.7.5
    pub(crate) fn on_transfer(
        &mut self,
        channel: u16,
        transfer: &Transfer<'_>,
        payload: &[u8],
        frame: &[u8],
        body: &[u8],
    ) -> Result<Option<Emit>, Fault> {
        let session = self.session_on(channel, "transfer")?;
        let Some(found) = self.link_on(session, channel, transfer.handle, "transfer")? else { return Ok(None) };
        if let Err(fault) = self.count_incoming(session) {
            return Ok(self.fail_session(session, fault));
        }
        let id = match found {
            Ok(id) => id,
            Err(fault) => return Ok(self.fail_session(session, fault)),
        };
        let Some(link) = self.link(id) else { return Ok(None) };
        if link.detach_sent.is_some() {
            //= ^ after our detach, what is in flight on the link is dropped
            return Ok(None);
        }
        match self.receive(id, transfer, payload, frame) {
            Ok(Some(kind)) => Ok(Some(Emit::framed(Kind::Transfer(kind), frame, body))),
            Ok(None) => Ok(None),
            Err(fault) => Ok(self.fail_link(id, fault)),
        }
    }

    fn receive(
        &mut self,
        id: LinkId,
        transfer: &Transfer<'_>,
        payload: &[u8],
        frame: &[u8],
    ) -> Checked<Option<TransferKind>> {
        let seed = self.set.seed;
        let link = self.links.get_mut(id.index, id.generation).expect("looked up by the caller");
        let session =
            self.sessions.get_mut(link.session.index, link.session.generation).expect("links die with their session");
        if link.role == Role::Sender {
            return Err(Fault::new("amqp:not-allowed", "a transfer on a link whose receiver sends it"));
        }
        let last = transfer.aborted || !transfer.more;
        let first = link.incoming.is_none();
        let mut delivery = match link.incoming.take() {
            Some(mut delivery) => {
                delivery.goes_on(transfer)?;
                delivery
            }
            None => {
                //= amqp10 2.6.7 (a fault only where the credit was never granted)
                if link.state == LinkState::Asked || !link.delivery_count.before(link.limit) {
                    return Err(Fault::new(
                        "amqp:link:transfer-limit-exceeded",
                        format!("a delivery on link \"{}\" past all credit that was granted", shown(&link.name)),
                    ));
                }
                if link.peer_incomplete && !transfer.resume {
                    //= amqp10 2.7.3 (incomplete-unsettled: only resumes)
                    return Err(Fault::new(
                        "amqp:not-allowed",
                        "a new delivery on a link attached with incomplete-unsettled",
                    ));
                }
                let delivery = Incoming::begin(transfer, link.rcv_mode)?;
                if session.incoming.get(delivery.id).is_some() {
                    return Err(invalid(format!("delivery-id {} is in use", delivery.id.0)));
                }
                let hash = tags::hash(seed, id.index, delivery.tag());
                let (incoming, tag) = (&session.incoming, delivery.tag());
                let same = |held: Serial| {
                    incoming
                        .get(held)
                        .is_some_and(|held| held.link == id && held.tag[..usize::from(held.tag_len)] == *tag)
                };
                if session.tags.find(hash, same).is_some() {
                    return Err(Fault::new("amqp:not-allowed", "a delivery-tag of an unsettled delivery came again"));
                }
                link.delivery_count = link.delivery_count.plus(1);
                let kept = !(last && delivery.settled);
                if kept && !transfer.aborted && !delivery.ignored {
                    debug_assert_eq!(session.tags.len(), session.incoming.len(), "a tag for each delivery");
                    link.had_unsettled = true;
                    session.tags.insert(hash, delivery.id);
                    session.incoming.insert(
                        delivery.id,
                        InDelivery {
                            link: id,
                            link_token: link.token,
                            token: 0,
                            tag: delivery.tag,
                            tag_len: delivery.tag_len,
                            tag_hash: hash,
                        },
                    );
                }
                delivery
            }
        };
        // On a fault the link is closed, and its deliveries are forgotten with it.
        delivery.check_frame(transfer, payload, last, link.snd_mode, link.our_max)?;
        let ignored = delivery.ignored;
        let kind = TransferKind {
            link: id,
            token: link.token,
            delivery_id: delivery.id.0,
            tag: if first {
                transfer.delivery_tag.map_or_else(Part::default, |tag| Part::of(frame, tag))
            } else {
                Part::default()
            },
            format: delivery.format,
            settled: delivery.settled,
            first,
            last,
            aborted: transfer.aborted,
            resume: transfer.resume,
            batchable: transfer.batchable,
            settle_first: delivery.settle_first,
            state: TransferState::of(transfer, frame),
            //= amqp10 2.7.5 (aborted beats more and payload)
            payload: if transfer.aborted { Part::default() } else { Part::of(frame, payload) },
        };
        if last {
            if delivery.settled || transfer.aborted {
                session.forget_incoming(delivery.id);
            }
            let drained = link.drain_answered().then_some(link.token);
            if link.flow_due {
                self.mark_link(id);
            }
            if let Some(token) = drained {
                self.pending.push_back(Emit::bare(Kind::Drained { link: id, token }));
            }
        } else {
            link.incoming = Some(delivery);
        }
        //= amqp10 2.7.5 (a resumed delivery that is not in our unsettled map, and we keep none, is ignored)
        Ok((!ignored).then_some(kind))
    }
}

impl Incoming {
    fn begin(transfer: &Transfer<'_>, mode: ReceiverSettleMode) -> Checked<Self> {
        let id = transfer.delivery_id.ok_or_else(|| invalid("a delivery's first transfer without delivery-id"))?;
        let given = transfer.delivery_tag.ok_or_else(|| invalid("a delivery's first transfer without delivery-tag"))?;
        if given.len() > TAG_MAX {
            let text = format!("a delivery-tag of {} bytes: at most {TAG_MAX} are allowed", given.len());
            return Err(Fault::new("amqp:not-allowed", text));
        }
        let mut tag = [0; TAG_MAX];
        tag[..given.len()].copy_from_slice(given);
        let mut delivery = Self {
            id: Serial(id),
            tag,
            tag_len: given.len() as u8,
            //= ^ no message-format means 0
            format: transfer.message_format.unwrap_or(0),
            settled: false,
            settle_first: mode == ReceiverSettleMode::First,
            ignored: transfer.resume,
            size: 0,
        };
        delivery.settle_by(transfer)?;
        Ok(delivery)
    }

    fn tag(&self) -> &[u8] {
        &self.tag[..usize::from(self.tag_len)]
    }

    /// A further frame: it says the same as the first, or nothing.
    fn goes_on(&mut self, transfer: &Transfer<'_>) -> Checked<()> {
        if let Some(id) = transfer.delivery_id
            && Serial(id) != self.id
        {
            return Err(invalid(format!("delivery-id {id} amid delivery {}", self.id.0)));
        }
        if transfer.delivery_tag.is_some_and(|tag| tag != self.tag()) {
            return Err(invalid(format!("another delivery-tag amid delivery {}", self.id.0)));
        }
        if let Some(format) = transfer.message_format
            && format != self.format
        {
            return Err(invalid(format!("message-format {format} amid a delivery of format {}", self.format)));
        }
        self.settle_by(transfer)
    }

    fn settle_by(&mut self, transfer: &Transfer<'_>) -> Checked<()> {
        match transfer.settled {
            Some(true) => self.settled = true,
            Some(false) if self.settled && !transfer.aborted => {
                return Err(invalid(format!("delivery {} was settled and is not any more", self.id.0)));
            }
            _ => {}
        }
        match transfer.rcv_settle_mode {
            Some(ReceiverSettleMode::First) => self.settle_first = true,
            Some(ReceiverSettleMode::Second) if self.settle_first => {
                return Err(invalid("rcv-settle-mode second on a link or delivery of mode first"));
            }
            _ => {}
        }
        Ok(())
    }

    fn check_frame(
        &mut self,
        transfer: &Transfer<'_>,
        payload: &[u8],
        last: bool,
        mode: SenderSettleMode,
        max: u64,
    ) -> Checked<()> {
        if transfer.aborted {
            return Ok(());
        }
        match mode {
            SenderSettleMode::Unsettled if self.settled => {
                return Err(invalid("a settled transfer on a link of snd-settle-mode unsettled"));
            }
            SenderSettleMode::Settled if last && !self.settled => {
                return Err(invalid("an unsettled delivery on a link of snd-settle-mode settled"));
            }
            _ => {}
        }
        self.size += payload.len() as u64;
        if max > 0 && self.size > max {
            return Err(Fault::new(
                "amqp:link:message-size-exceeded",
                format!("a message of {} bytes so far: max-message-size is {max}", self.size),
            ));
        }
        Ok(())
    }
}
