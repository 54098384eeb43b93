//! A client that breaks rules: frames that mean nothing, claims on what is not its own, bytes of the dice. It has no messages of its own,
//! so nobody else may notice it.

use super::{Around, Line, Lost, Queue, misuse};
use crate::draw::Draw;
use packhorse_client_core::codec::{
    Attach, AttachTarget, DeliveryState, Detach, Disposition, Flow, FrameHeader, FrameKind, Role, Source, Target,
    Transfer,
};
use packhorse_client_core::{ReceiverOptions, SenderOptions, SenderSettleMode};

/// See the module.
pub(crate) struct Hostile {
    queue: Queue,
    draw: Draw,
    next_at: u64,
    attached: bool,
}

impl Hostile {
    pub(crate) fn new(queue: Queue, draw: Draw) -> Hostile {
        Hostile { queue, draw, next_at: 0, attached: false }
    }

    pub(super) fn act(&mut self, line: &mut Line, leaving: bool, around: &mut Around<'_>) -> Result<(), Lost> {
        if leaving {
            // Whatever it said before: it goes.
            return line.close(around);
        }
        if around.now_us < self.next_at {
            return Ok(());
        }
        self.next_at = around.now_us + self.draw.range(20_000, 200_000);
        let Some(session) = line.session else { return Ok(()) };
        if !self.attached {
            self.attached = true;
            let (name, address) = ("hostile", &self.queue.name);
            if self.draw.chance(50) {
                let options = SenderOptions { name, address: Some(address), settle: SenderSettleMode::Mixed, token: 0 };
                line.client.sender(session, &options).map_err(misuse)?;
            } else {
                let options = ReceiverOptions { name, address, presettled: false, credit: 0, token: 0 };
                line.client.receiver(session, &options).map_err(misuse)?;
            }
            return Ok(());
        }
        self.say(&mut line.raw);
        Ok(())
    }

    fn say(&mut self, raw: &mut Vec<u8>) {
        let draw = &mut self.draw;
        let handle = draw.range(1, 70_000) as u32;
        let mut amqp = |channel: u16, fill: &dyn Fn(&mut Vec<u8>)| {
            FrameHeader::encode(raw, FrameKind::Amqp, channel, |out| fill(out));
        };
        match draw.range(0, 9) {
            0 | 1 => {
                // Of deliveries that others have.
                let (first, last) = (draw.range(0, 50) as u32, draw.range(50, u64::from(u32::MAX / 2)) as u32);
                let state = Some(DeliveryState::Accepted);
                let (role, settled) = (if draw.chance(70) { Role::Receiver } else { Role::Sender }, draw.chance(70));
                let claim = Disposition { role, first, last: Some(last), settled, state, batchable: false };
                amqp(0, &|out| claim.encode(out));
            }
            2 => {
                let transfer =
                    Transfer { handle, delivery_id: Some(7), delivery_tag: Some(b"x"), ..Transfer::default() };
                amqp(0, &|out| {
                    transfer.encode(out);
                    out.extend_from_slice(b"no message at all");
                });
            }
            3 => amqp(0, &|out| Detach { handle, closed: true, error: None }.encode(out)),
            4 => {
                let flow = Flow { handle: Some(handle), link_credit: Some(5), ..Flow::default() };
                amqp(0, &|out| flow.encode(out));
            }
            5 => {
                let channel = draw.range(1, 2_000) as u16;
                amqp(channel, &|out| Detach { handle, closed: true, error: None }.encode(out));
            }
            6 => {
                // The same name again, without an end to it; or one without an address.
                let attach = Attach {
                    name: "hostile",
                    handle,
                    role: Role::Receiver,
                    source: Some(Source::default()),
                    target: Some(AttachTarget::Target(Target::default())),
                    ..Attach::default()
                };
                amqp(0, &|out| attach.encode(out));
            }
            7 => raw.extend_from_slice(&[0, 0, 0, 3, 2, 0, 0, 0]),
            8 => raw.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff, 2, 0, 0, 0]),
            _ => {
                for _ in 0..draw.range(1, 200) {
                    raw.push(draw.next() as u8);
                }
            }
        }
    }

    pub(super) fn lost(&mut self) {
        self.attached = false;
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        Some(self.next_at)
    }
}
