//! A consuming client: holds deliveries, ends them in every way there is, ends its links in every way there is, reads slowly or not at
//! all for a while, says of deliveries what it said before.

pub(crate) use super::intake::Use;
use super::intake::{In, Standing};
use super::{Around, Line, Lost, misuse};
use crate::draw::Draw;
use packhorse_client_core::Event as Told;
use packhorse_client_core::codec::{DeliveryState, Disposition, FrameHeader, FrameKind, Role};

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug)]
enum Mischief {
    /// The connection is closed in order, with deliveries open.
    Close,
    /// The session is ended in order, with deliveries open.
    EndSession,
    /// A link is ended in order, after what is on its way has come, with deliveries open.
    Drain(usize),
    /// A link is ended in order while deliveries are on their way.
    Detach(usize),
    /// Nothing is read for so many µs.
    Sleep(u64),
    /// Deliveries that are over, or never were, are settled.
    Settle(usize),
}

/// See the module.
pub(crate) struct Consumer {
    ins: Vec<In>,
    purpose: Use,
    draw: Draw,
    /// From now on it does no mischief and accepts everything.
    pub(crate) calm: bool,
    mischief_at: u64,
    mischief_every: u64,
    /// The session's channel is 0, as of the first of a connection.
    first_session: bool,
    /// A survey saw everything.
    pub(crate) surveyed: bool,
}

impl Consumer {
    pub(crate) fn new(ins: Vec<In>, purpose: Use, draw: Draw, mischief_every: u64) -> Consumer {
        Consumer {
            ins,
            purpose,
            draw,
            calm: false,
            mischief_at: mischief_every,
            mischief_every,
            first_session: true,
            surveyed: false,
        }
    }

    pub(super) fn on(&mut self, line: &mut Line, event: Told<'_>, around: &mut Around<'_>) -> Result<(), Lost> {
        match event {
            Told::Opened(_) => self.first_session = true,
            Told::Attached { token, .. } => self.ins[token as usize].stands(),
            Told::Message(transfer) => {
                self.ins[transfer.token as usize].receive(&transfer, &mut self.draw, around);
            }
            Told::Drained { token, .. } => self.ins[token as usize].drained(around),
            Told::Confirmed => {
                for outcome in line.client.outcomes() {
                    let at = around.books.stamp();
                    self.ins[outcome.link_token as usize].confirmed(at, outcome.delivery_id, around);
                }
            }
            Told::LinkLost(lost) => {
                let input = &mut self.ins[lost.token as usize];
                if !matches!(input.standing, Standing::Ending | Standing::Closing) {
                    return Err(format!("the broker ended a consumer's link: {}", lost.reason));
                }
                input.ended(&lost.reason, around);
            }
            Told::Closed { reason } => {
                for input in self.ins.iter_mut().filter(|input| input.standing == Standing::Closing) {
                    input.ended(&reason, around);
                }
            }
            Told::SessionLost { reason, .. } => {
                if self.ins.iter().any(|input| !matches!(input.standing, Standing::None | Standing::Closing)) {
                    return Err("the broker ended a session".into());
                }
                for input in &mut self.ins {
                    input.ended(&reason, around);
                }
                self.first_session = false;
                line.begin()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Answers until when it reads nothing.
    pub(super) fn act(&mut self, line: &mut Line, leaving: bool, around: &mut Around<'_>) -> Result<u64, Lost> {
        if !leaving && !self.calm && around.now_us >= self.mischief_at {
            self.mischief_at = around.now_us + self.draw.range(self.mischief_every / 2, self.mischief_every * 2);
            if let Some(until) = self.mischief(line, around)? {
                return Ok(until);
            }
            if line.closing {
                return Ok(0);
            }
        }
        let Some(session) = line.session else { return Ok(0) };
        for (token, input) in self.ins.iter_mut().enumerate() {
            match input.standing {
                Standing::None if !leaving && !self.surveyed => {
                    input.attach(&mut line.client, session, token as u64, around)?;
                }
                Standing::Up if self.purpose == Use::Survey => input.drain(&mut line.client)?,
                Standing::Up => {
                    input.settle(&mut line.client, self.calm, &mut self.draw, around)?;
                    if leaving && input.is_answered() {
                        input.drain(&mut line.client)?;
                    } else if !leaving {
                        input.grant(&mut line.client, around)?;
                    }
                }
                Standing::Drained if self.purpose != Use::Survey => input.detach(&mut line.client, around)?,
                _ => {}
            }
        }
        if self.purpose == Use::Survey && self.ins.iter().all(|input| input.standing == Standing::Drained) {
            self.surveyed = true;
            for input in &mut self.ins {
                input.detach(&mut line.client, around)?;
            }
        }
        if (leaving || self.surveyed) && self.ins.iter().all(|input| input.standing == Standing::None) {
            line.close(around)?;
        }
        Ok(0)
    }

    fn mischief(&mut self, line: &mut Line, around: &mut Around<'_>) -> Result<Option<u64>, Lost> {
        let which = self.draw.below(self.ins.len());
        let mischief = match self.draw.range(0, 11) {
            0 => Mischief::Close,
            1 => Mischief::EndSession,
            2 | 3 => Mischief::Drain(which),
            4 | 5 => Mischief::Detach(which),
            6..=8 => Mischief::Sleep(self.draw.range(2_000, 500_000)),
            _ => Mischief::Settle(which),
        };
        match mischief {
            Mischief::Close => {
                for input in &mut self.ins {
                    input.ends(true, around);
                }
                line.close(around)?;
            }
            Mischief::EndSession => {
                if let Some(session) = line.session.take() {
                    for input in &mut self.ins {
                        input.ends(true, around);
                    }
                    line.client.end(session).map_err(misuse)?;
                }
            }
            Mischief::Drain(which) => self.ins[which].drain(&mut line.client)?,
            Mischief::Detach(which) => self.ins[which].detach(&mut line.client, around)?,
            Mischief::Sleep(us) => return Ok(Some(around.now_us + us)),
            Mischief::Settle(which) if self.first_session => {
                let stale: Vec<u32> = self.ins[which].stale.iter().copied().collect();
                let first = match stale.len() {
                    // One that never was.
                    0 => 1 << 30,
                    many => stale[self.draw.below(many)],
                };
                let accepted = self.draw.chance(50);
                let disposition = Disposition {
                    role: Role::Receiver,
                    first,
                    last: Some(first),
                    settled: self.draw.chance(80),
                    state: Some(if accepted { DeliveryState::Accepted } else { DeliveryState::Released }),
                    batchable: false,
                };
                FrameHeader::encode(&mut line.raw, FrameKind::Amqp, 0, |out| disposition.encode(out));
            }
            Mischief::Settle(_) => {}
        }
        Ok(None)
    }

    pub(super) fn lost(&mut self, around: &mut Around<'_>) {
        for input in &mut self.ins {
            input.ends(false, around);
            input.standing = Standing::None;
            input.stale.clear();
        }
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        let settles = self.ins.iter().filter_map(|input| input.settle_at).min();
        let mischief = (!self.calm && self.purpose == Use::Consume).then_some(self.mischief_at);
        [settles, mischief].into_iter().flatten().min()
    }

    pub(super) fn open(&self) -> u64 {
        self.ins.iter().map(In::open).sum()
    }
}
