//! A second connection of a program that manages branches: it works in branches that its manager offers, joining them or resuming what
//! the manager has suspended, and dies at each of its steps.

use super::controller::{self, Branch, Controller, Said, Tx};
use super::work::Work;
use super::{Around, Line, Lost};
use crate::draw::Draw;
use packhorse_client_core::Event as Told;
use packhorse_client_core::transaction::{Request, XaEnd, XaStart, flags};
use packhorse_history::{Event, XaVerb};
use std::cell::Cell;
use std::rc::Rc;

/// Percent of steps at which it dies.
const DEATHS: u64 = 4;

/// A branch that a manager offers to its helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) tx: u64,
    /// It is suspended; else it is to be joined.
    pub(super) suspended: bool,
    pub(super) stage: Stage,
}

/// How far an offer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nobody has seen it.
    Open,
    /// The helper is at it.
    Taken,
    /// It is no more, well or not.
    Done,
}

/// What the connections of one program have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board(Rc<Cell<Option<Offer>>>);

impl Board {
    pub(super) fn offer(&self) -> Option<Offer> {
        self.0.get()
    }

    pub(super) fn put(&self, offer: Option<Offer>) {
        self.0.set(offer);
    }

    fn set(&self, stage: Stage) {
        self.0.set(self.0.get().map(|offer| Offer { stage, ..offer }));
    }
}

/// What it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Entering,
    /// So many steps are left.
    Working(u64),
    Ending,
}

/// See the module.
pub(crate) struct Helper {
    work: Work,
    controller: Controller,
    draw: Draw,
    host: usize,
    board: Board,
    state: State,
    /// The branch it works in.
    tx: u64,
    next_at: u64,
    beat_us: u64,
}

impl Helper {
    pub(crate) fn new(work: Work, host: usize, draw: Draw, board: Board, beat_us: u64) -> Helper {
        let controller = Controller::default();
        Helper { work, controller, draw, host, board, state: State::Idle, tx: 0, next_at: 0, beat_us }
    }

    pub(super) fn on(&mut self, line: &mut Line, event: Told<'_>, around: &mut Around<'_>) -> Result<(), Lost> {
        match event {
            Told::Opened(_) => {
                let Some(session) = line.session else { return Ok(()) };
                self.controller.attach(&mut line.client, session, true)?;
                self.work.attach(&mut line.client, session, around)
            }
            Told::Outcomes { state } => {
                let outcomes = line.client.outcomes();
                match self.controller.hear(outcomes, state.as_ref()) {
                    Some(said) => {
                        self.heard(said, around);
                        Ok(())
                    }
                    None => {
                        self.work.outcomes(outcomes, state.as_ref(), around);
                        Ok(())
                    }
                }
            }
            Told::LinkLost(lost) if lost.token == controller::TOKEN => {
                Err(format!("the broker ended a link to the coordinator: {}", lost.reason))
            }
            event => self.work.on(event, &mut self.draw, around),
        }
    }

    fn tell(&self, verb: XaVerb, code: Option<i32>, around: &mut Around<'_>) {
        around.put(&Event::Xa { verb, xid: &Branch::new(self.tx, self.host).name(), code });
    }

    fn heard(&mut self, said: Said, around: &mut Around<'_>) {
        match (std::mem::replace(&mut self.state, State::Idle), said) {
            (State::Entering, Said::Declared(id)) => {
                self.tell(XaVerb::Start, Some(0), around);
                self.work.enter(Some(&Tx { number: self.tx, id }));
                self.state = State::Working(self.draw.range(0, 4));
            }
            // Its manager was quicker, or somebody died.
            (State::Entering, Said::Code(code, ..)) => {
                self.tell(XaVerb::Start, Some(code), around);
                self.board.set(Stage::Done);
            }
            (State::Ending, Said::Code(code, ..)) => {
                self.tell(XaVerb::End, Some(code), around);
                self.board.set(Stage::Done);
            }
            (state, said) => around.wrong.push(format!("a coordinator says {said:?} to a helper in {state:?}")),
        }
        self.wait(around);
    }

    fn wait(&mut self, around: &Around<'_>) {
        self.next_at = around.now_us + self.draw.range(self.beat_us / 4, self.beat_us * 2);
    }

    pub(super) fn act(&mut self, line: &mut Line, leaving: bool, around: &mut Around<'_>) -> Result<(), Lost> {
        let done = leaving && self.state == State::Idle;
        if !self.work.is_free(&self.controller, line, done, around)? || around.now_us < self.next_at {
            return Ok(());
        }
        self.wait(around);
        let dies = |draw: &mut Draw| !leaving && draw.chance(DEATHS);
        if self.state != State::Idle && dies(&mut self.draw) {
            return Err("the helper dies".into());
        }
        self.go(line, around)?;
        // What it asked for may arrive all the same.
        if self.state != State::Idle && dies(&mut self.draw) { Err("the helper dies".into()) } else { Ok(()) }
    }

    fn go(&mut self, line: &mut Line, around: &mut Around<'_>) -> Result<(), Lost> {
        let client = &mut line.client;
        match self.state {
            State::Idle => {
                let Some(offer) = self.board.offer().filter(|offer| offer.stage == Stage::Open) else { return Ok(()) };
                self.board.set(Stage::Taken);
                (self.tx, self.state) = (offer.tx, State::Entering);
                self.tell(XaVerb::Start, None, around);
                let branch = Branch::new(self.tx, self.host);
                let (format_id, global_id, branch_qualifier) = branch.parts();
                let flags = if offer.suspended { flags::RESUME } else { flags::JOIN };
                let start = XaStart { format_id, global_id, branch_qualifier, flags, timeout: 0 };
                self.controller.ask(client, &Request::Start(start))
            }
            State::Working(0) if self.work.is_whole() => {
                self.work.leaves(around);
                self.state = State::Ending;
                self.tell(XaVerb::End, None, around);
                let branch = Branch::new(self.tx, self.host);
                let (format_id, global_id, branch_qualifier) = branch.parts();
                let flags = if self.draw.chance(8) { flags::FAIL } else { flags::SUCCESS };
                self.controller.ask(client, &Request::End(XaEnd { format_id, global_id, branch_qualifier, flags }))
            }
            State::Working(steps) => {
                self.state = State::Working(steps.saturating_sub(1));
                self.work.step(client, &mut self.draw, around)
            }
            State::Entering | State::Ending => Ok(()),
        }
    }

    pub(super) fn lost(&mut self, around: &mut Around<'_>) {
        if self.state != State::Idle {
            self.board.set(Stage::Done);
        }
        self.state = State::Idle;
        self.controller.lost();
        self.work.lost(around);
        self.wait(around);
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        Some(self.next_at)
    }

    /// What waits for an answer.
    pub(super) fn open(&self) -> u64 {
        self.work.open() + u64::from(self.state != State::Idle)
    }

    /// It is in no branch.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Idle
    }
}
