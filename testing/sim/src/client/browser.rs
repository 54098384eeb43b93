//! A client that browses: its links show what is in a queue and take nothing. It ends them and comes back, for a link that stays sees only
//! what comes behind.

use super::{Around, Line, Lost, Queue, known, misuse};
use crate::draw::Draw;
use crate::message::Seen;
use packhorse_client_core::codec::{Attach, AttachTarget, Role, SenderSettleMode, Source, Target};
use packhorse_client_core::{Client, Event as Told, Joiner, LinkId, SessionId, Verdict};
use packhorse_history::Event;

/// Credit of a link.
const CREDIT: u32 = 40;

/// See the module.
pub(crate) struct Browser {
    queue: Queue,
    draw: Draw,
    link: Option<LinkId>,
    /// Its end is asked for.
    ending: bool,
    number: u32,
    joiner: Joiner,
    /// When it ends its link, and when it attaches another one.
    next_at: u64,
    every_us: u64,
    lives: u64,
}

impl Browser {
    pub(crate) fn new(queue: Queue, mut draw: Draw) -> Browser {
        let every_us = draw.range(20_000, 500_000);
        let (link, joiner) = (None, Joiner::default());
        Browser { queue, draw, link, ending: false, number: 0, joiner, next_at: 0, every_us, lives: 0 }
    }

    fn wait(&mut self, around: &Around<'_>) {
        self.next_at = around.now_us + self.draw.range(self.every_us / 2, self.every_us * 2);
    }

    pub(super) fn on(&mut self, line: &mut Line, event: Told<'_>, around: &mut Around<'_>) -> Result<(), Lost> {
        match event {
            Told::Message(transfer) if !self.ending => {
                let (delivery, settled) = (transfer.delivery_id, transfer.settled);
                let Some(bytes) = self.joiner.push(&transfer) else { return Ok(()) };
                let Seen { id: message, whole: crc_ok, .. } = Seen::of(bytes);
                around.put(&Event::Browsed { message, consumer: self.number, crc_ok });
                let link = known(self.link)?;
                // Whatever it says of what it was shown: it is no concern of the queue's.
                if !settled {
                    let verdict = match self.draw.range(0, 4) {
                        0 => Verdict::Release,
                        1 => Verdict::Reject { condition: "packhorse:sim", description: "by the dice" },
                        2 => Verdict::Modify { failed: true, undeliverable_here: true },
                        _ => Verdict::Accept,
                    };
                    line.client.settle(link, delivery, verdict).map_err(misuse)?;
                }
                if line.client.credit(link) <= CREDIT / 2 {
                    line.client.grant(link, CREDIT).map_err(misuse)?;
                }
            }
            Told::LinkLost(lost) => {
                if !self.ending {
                    return Err(format!("the broker ended a browser's link: {}", lost.reason));
                }
                self.forget();
                self.wait(around);
            }
            Told::SessionLost { .. } => return Err("the broker ended a session".into()),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn act(&mut self, line: &mut Line, leaving: bool, around: &mut Around<'_>) -> Result<(), Lost> {
        if leaving {
            return line.close(around);
        }
        let Some(session) = line.session.filter(|_| around.now_us >= self.next_at && !self.ending) else {
            return Ok(());
        };
        if let Some(link) = self.link {
            self.ending = true;
            return line.client.detach(link).map_err(misuse);
        }
        self.wait(around);
        self.number = around.books.link();
        self.lives += 1;
        around.put(&Event::Browser { consumer: self.number, queue: &self.queue.full });
        let name = format!("browser-{}", self.lives);
        let settled = self.draw.chance(50);
        let link = show(&mut line.client, session, &self.queue, &name, settled, 0)?;
        line.client.grant(link, CREDIT).map_err(misuse)?;
        self.link = Some(link);
        Ok(())
    }

    fn forget(&mut self) {
        (self.link, self.ending, self.joiner) = (None, false, Joiner::default());
    }

    pub(super) fn lost(&mut self, around: &Around<'_>) {
        self.forget();
        self.wait(around);
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        (!self.ending).then_some(self.next_at)
    }
}

/// Attaches a browsing link, without credit.
pub(super) fn show(
    client: &mut Client,
    session: SessionId,
    queue: &Queue,
    name: &str,
    settled: bool,
    token: u64,
) -> Result<LinkId, Lost> {
    let source = Source { address: Some(&queue.name), distribution_mode: Some("copy"), ..Source::default() };
    let attach = Attach {
        name,
        role: Role::Receiver,
        snd_settle_mode: if settled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled },
        source: Some(source),
        target: Some(AttachTarget::Target(Target::default())),
        ..Attach::default()
    };
    client.attach(session, &attach, token).map_err(misuse)
}
