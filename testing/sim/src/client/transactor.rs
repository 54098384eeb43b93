//! A client with local transactions: consumes, sends on to several queues, and commits or rolls back what it did as one. Its connection
//! dies at every step; of a commit whose answer was lost it asks what became of it, if it had given it a name.

use super::controller::{self, Controller, Said, Tx};
use super::intake::Returned;
use super::work::Work;
use super::{Around, Line, Lost};
use crate::draw::Draw;
use packhorse_client_core::codec::Discharge;
use packhorse_client_core::transaction::{Request, TxCommit, TxOutcome, TxStatus};
use packhorse_client_core::{Commits, Event as Told, broker_id};
use packhorse_history::Event;

/// Percent of steps at which the connection dies, by the client's hand.
const DEATHS: u64 = 3;

/// What it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Declaring,
    /// So many steps are left.
    Working(u64),
    /// It has been asked for; under this number, if it has a name.
    Committing(Option<u64>),
    RollingBack,
    /// What became of this commit.
    Asking,
}

/// See the module.
pub(crate) struct Transactor {
    work: Work,
    controller: Controller,
    draw: Draw,
    host: usize,
    /// Transactions that are still to be.
    left: u64,
    state: State,
    /// The number of the transaction in the history.
    tx: u64,
    /// When it does something.
    next_at: u64,
    beat_us: u64,
    /// Its session over all connections, and the number of its next commit.
    session: [u8; 16],
    counter: u64,
    broker: Option<[u8; 16]>,
    /// What was given back or rejected in the transaction whose commit it waits for.
    returned: Vec<Returned>,
    /// Commits without an answer: transaction, number.
    unknown: Vec<(u64, u64)>,
}

impl Transactor {
    pub(crate) fn new(work: Work, host: usize, mut draw: Draw, transactions: u64, beat_us: u64) -> Transactor {
        let mut session = [0; 16];
        session[..8].copy_from_slice(&draw.next().to_be_bytes());
        session[8..].copy_from_slice(&draw.next().to_be_bytes());
        Transactor {
            work,
            controller: Controller::default(),
            draw,
            host,
            left: transactions,
            state: State::Idle,
            tx: 0,
            next_at: 0,
            beat_us,
            session,
            counter: 1,
            broker: None,
            returned: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// What its `open` says of its commits.
    pub(super) fn commits(&self) -> Commits {
        Commits { session: self.session, next: self.counter }
    }

    pub(super) fn on(&mut self, line: &mut Line, event: Told<'_>, around: &mut Around<'_>) -> Result<(), Lost> {
        match event {
            Told::Opened(frame) => {
                self.broker = broker_id(&frame);
                let Some(session) = line.session else { return Ok(()) };
                self.controller.attach(&mut line.client, session, false)?;
                self.work.attach(&mut line.client, session, around)
            }
            event => match self.controller.sort(&line.client, event, (&mut self.work, &mut self.draw), around)? {
                Some(said) => self.heard(said, around),
                None => Ok(()),
            },
        }
    }

    fn heard(&mut self, said: Said, around: &mut Around<'_>) -> Result<(), Lost> {
        let tx = self.tx;
        let state = std::mem::replace(&mut self.state, State::Idle);
        match (state, said) {
            (State::Declaring, Said::Declared(id)) => {
                self.work.enter(Some(&Tx { number: tx, id }));
                self.state = State::Working(self.draw.range(0, 6));
            }
            // The broker's limits.
            (State::Declaring, Said::Refused(_)) => {}
            (State::Committing(_), Said::Done) => {
                around.put(&Event::CommitOk { tx });
                self.returned.iter().for_each(|one| one.happened(around));
            }
            (State::RollingBack, Said::Done) => around.put(&Event::RollbackOk { tx }),
            (State::Committing(_) | State::RollingBack, Said::Refused(condition)) => {
                around.put(&Event::RollbackOk { tx });
                if !condition.starts_with("amqp:transaction:") {
                    return Err(format!("the end of a transaction was refused: {condition}"));
                }
            }
            (State::Asking, Said::Became(outcome)) => {
                if let Some((tx, _)) = self.unknown.pop() {
                    match outcome {
                        TxOutcome::Committed => around.put(&Event::CommitOk { tx }),
                        TxOutcome::RolledBack => around.put(&Event::RollbackOk { tx }),
                        TxOutcome::NotMine | TxOutcome::Expired => {}
                    }
                }
            }
            (state, said) => around.wrong.push(format!("a coordinator says {said:?} to {state:?}")),
        }
        self.wait(around);
        Ok(())
    }

    fn wait(&mut self, around: &Around<'_>) {
        self.next_at = around.now_us + self.draw.range(self.beat_us / 4, self.beat_us * 2);
    }

    pub(super) fn act(&mut self, line: &mut Line, leaving: bool, around: &mut Around<'_>) -> Result<(), Lost> {
        let done = leaving && self.state == State::Idle && self.unknown.is_empty();
        if !self.work.is_free(&self.controller, line, done, around)? || around.now_us < self.next_at {
            return Ok(());
        }
        self.wait(around);
        if !leaving && self.draw.chance(DEATHS) {
            return Err("its client dies".into());
        }
        match self.state {
            State::Idle => match (self.unknown.last(), self.broker) {
                (Some(&(_, counter)), Some(broker)) => {
                    self.state = State::Asking;
                    let status = TxStatus { broker, session: self.session, counter };
                    self.controller.ask(&mut line.client, &Request::TxStatus(status))
                }
                _ if self.left > 0 => {
                    self.left -= 1;
                    self.tx = around.books.tx();
                    self.state = State::Declaring;
                    controller::begins(self.tx, None, self.host, around);
                    self.controller.ask(&mut line.client, &Request::Declare)
                }
                _ => Ok(()),
            },
            State::Working(0) if self.work.is_whole() => self.end(line, leaving, around),
            State::Working(steps) => {
                self.state = State::Working(steps.saturating_sub(1));
                self.work.step(&mut line.client, &mut self.draw, around)
            }
            State::Declaring | State::Committing(_) | State::RollingBack | State::Asking => Ok(()),
        }
    }

    fn end(&mut self, line: &mut Line, leaving: bool, around: &mut Around<'_>) -> Result<(), Lost> {
        let id = self.work.tx_id();
        let dice = if leaving { 0 } else { self.draw.range(0, 99) };
        match dice {
            0..=69 => {
                around.put(&Event::CommitSent { tx: self.tx });
                self.returned = self.work.returned();
                self.returned.iter().for_each(|one| one.may_happen(around));
                let named = self.broker.filter(|_| self.draw.chance(70));
                match named {
                    Some(broker) => {
                        let counter = self.counter;
                        self.counter += 1;
                        self.state = State::Committing(Some(counter));
                        let commit = TxCommit { txn_id: &id, broker, session: self.session, counter };
                        self.controller.ask(&mut line.client, &Request::TxCommit(commit))?;
                    }
                    None => {
                        self.state = State::Committing(None);
                        let discharge = Discharge { txn_id: &id, fail: false };
                        self.controller.ask(&mut line.client, &Request::Discharge(discharge))?;
                    }
                }
                self.work.enter(None);
                // What it asked for may arrive all the same.
                if !leaving && self.draw.chance(8) { Err("its client dies".into()) } else { Ok(()) }
            }
            70..=91 => {
                self.state = State::RollingBack;
                drop(self.work.returned());
                let discharge = Discharge { txn_id: &id, fail: true };
                self.controller.ask(&mut line.client, &Request::Discharge(discharge))?;
                self.work.enter(None);
                Ok(())
            }
            92..=95 => {
                // The end of everything is a rollback.
                drop(self.work.returned());
                self.state = State::Idle;
                self.work.enter(None);
                self.work.close(line, around)
            }
            _ => Err("its client dies".into()),
        }
    }

    pub(super) fn lost(&mut self, around: &mut Around<'_>) {
        if let State::Committing(counter) = self.state {
            around.put(&Event::CommitUnknown { tx: self.tx });
            self.unknown.extend(counter.map(|counter| (self.tx, counter)));
        }
        self.state = State::Idle;
        self.controller.lost();
        self.work.lost(around);
        self.wait(around);
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        let busy = !matches!(self.state, State::Idle) || self.left > 0 || !self.unknown.is_empty();
        busy.then_some(self.next_at)
    }

    /// There are more to be.
    pub(crate) fn more(&mut self, transactions: u64) {
        self.left += transactions;
    }

    /// What waits for an answer.
    pub(super) fn open(&self) -> u64 {
        self.work.open() + u64::from(self.state != State::Idle)
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.state == State::Idle && self.unknown.is_empty()
    }
}
