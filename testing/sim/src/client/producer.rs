//! A producing client: sends on its links as fast as its pace, windows and credit allow, and ends them in order now and then.

use super::outlet::Out;
use super::{Around, Line, Lost};
use crate::draw::Draw;
use packhorse_client_core::Event as Told;

/// See the module.
pub(crate) struct Producer {
    outs: Vec<Out>,
    draw: Draw,
    /// Messages for each link in a burst, and µs between two.
    burst: u64,
    beat_us: u64,
    left: u64,
    next_beat: u64,
    /// When it closes its connection in order, and comes back.
    mischief_at: u64,
    mischief_every: u64,
}

impl Producer {
    pub(crate) fn new(outs: Vec<Out>, draw: Draw, burst: u64, beat_us: u64, mischief_every: u64) -> Producer {
        Producer { outs, draw, burst, beat_us, left: 0, next_beat: 0, mischief_at: mischief_every, mischief_every }
    }

    pub(super) fn on(&mut self, line: &mut Line, event: Told<'_>, around: &mut Around<'_>) -> Result<(), Lost> {
        match event {
            Told::Opened(_) => {
                let Some(session) = line.session else { return Ok(()) };
                for (token, out) in self.outs.iter_mut().enumerate() {
                    out.attach(&mut line.client, session, token as u64, around)?;
                }
            }
            Told::Outcomes { state } => {
                let reason = match state {
                    Some(packhorse_client_core::codec::DeliveryState::Rejected(rejected)) => {
                        rejected.error.map_or("", |error| error.condition)
                    }
                    _ => "not taken",
                };
                for outcome in line.client.outcomes() {
                    let out = &mut self.outs[outcome.link_token as usize];
                    if out.link.is_some() {
                        out.answered(outcome.token, outcome.state, reason, around);
                    }
                }
            }
            Told::LinkLost(lost) => return Err(format!("the broker ended a producer's link: {}", lost.reason)),
            Told::SessionLost { reason, .. } => return Err(format!("the broker ended a session: {reason}")),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn act(&mut self, line: &mut Line, leaving: bool, around: &mut Around<'_>) -> Result<(), Lost> {
        if around.now_us >= self.next_beat {
            self.next_beat = around.now_us + self.draw.range(self.beat_us / 2, self.beat_us * 3 / 2);
            self.left = self.draw.range(1, self.burst * 2);
        }
        let mut most = self.left;
        for out in &mut self.outs {
            most = most.min(self.left - out.send(&mut line.client, self.left, &mut self.draw, around)?);
        }
        self.left = most;
        let answered = self.outs.iter().all(|out| out.unconfirmed() == 0);
        if leaving && (answered || !self.outs.iter().all(Out::is_sent)) {
            self.close(line, around)?;
        } else if around.now_us >= self.mischief_at {
            self.mischief_at = around.now_us + self.draw.range(self.mischief_every / 2, self.mischief_every * 2);
            self.close(line, around)?;
        }
        Ok(())
    }

    fn close(&mut self, line: &mut Line, around: &mut Around<'_>) -> Result<(), Lost> {
        for out in &mut self.outs {
            out.lost(around);
        }
        line.close(around)
    }

    pub(super) fn lost(&mut self, around: &mut Around<'_>) {
        for out in &mut self.outs {
            out.lost(around);
        }
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        (!self.outs.iter().all(Out::is_sent)).then_some(self.next_beat)
    }

    /// There is more to send on each link.
    pub(crate) fn more(&mut self, messages: u64) {
        self.outs.iter_mut().for_each(|out| out.more(messages));
    }

    pub(super) fn unconfirmed(&self) -> u64 {
        self.outs.iter().map(Out::unconfirmed).sum()
    }

    pub(super) fn is_done(&self) -> bool {
        self.outs.iter().all(|out| out.is_sent() && out.unconfirmed() == 0)
    }
}
