//! A transaction manager that commits in two phases. It has a log of its own, which survives it; it dies at each of its steps, and what
//! was prepared it decides later, from another connection, as its log says. Its branches it suspends now and then and resumes, here or
//! on the connection of its helper, who may also join one.

use super::controller::{self, Branch, Controller, Said, Tx};
use super::helper::{Board, Offer, Stage};
use super::work::Work;
use super::{Around, Line, Lost};
use crate::books::host_name;
use crate::draw::Draw;
use packhorse_client_core::transaction::{
    Request, XaCommit, XaEnd, XaForget, XaPrepare, XaRecover, XaRollback, XaStart, flags,
};
use packhorse_client_core::{Client, Event as Told};
use packhorse_history::{Event, XaVerb};
use std::collections::{BTreeMap, BTreeSet};

/// Percent of steps at which it dies.
const DEATHS: u64 = 5;

/// So many beats an offer that nobody takes stands.
const OFFERED: u64 = 12;

/// What its log says of a branch that it asked to prepare, until the branch is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// The outcome that it decided; none: to be rolled back.
    commit: Option<bool>,
    /// An operator was quicker: only to be forgotten.
    heuristic: bool,
}

/// What it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It has to ask what is in doubt, behind this branch; found so far.
    Recovering(Vec<Branch>),
    Idle,
    Starting,
    /// So many steps are left.
    Working(u64),
    /// So many are left when it is resumed.
    Suspending(u64),
    /// The same; so many beats the helper has time to take it.
    Suspended(u64, u64),
    Resuming(u64),
    /// Then prepare, or commit in one phase.
    Ending {
        one_phase: bool,
    },
    Preparing,
    /// The verb that is asked of this branch.
    Deciding(u64, XaVerb),
}

/// See the module.
pub(crate) struct Manager {
    work: Work,
    controller: Controller,
    draw: Draw,
    host: usize,
    /// Branches that are still to be.
    left: u64,
    log: BTreeMap<u64, Entry>,
    state: State,
    /// The branch it works in.
    tx: u64,
    /// Where it offers branches to its helper, if it has one.
    board: Option<Board>,
    /// Branches that were offered: another connection may be in them still.
    shared: BTreeSet<u64>,
    next_at: u64,
    beat_us: u64,
}

impl Manager {
    pub(crate) fn new(
        work: Work,
        host: usize,
        draw: Draw,
        branches: u64,
        beat_us: u64,
        board: Option<Board>,
    ) -> Manager {
        Manager {
            work,
            controller: Controller::default(),
            draw,
            host,
            left: branches,
            log: BTreeMap::new(),
            state: State::Recovering(Vec::new()),
            tx: 0,
            board,
            shared: BTreeSet::new(),
            next_at: 0,
            beat_us,
        }
    }

    pub(super) fn on(&mut self, line: &mut Line, event: Told<'_>, around: &mut Around<'_>) -> Result<(), Lost> {
        match event {
            Told::Opened(_) => {
                let Some(session) = line.session else { return Ok(()) };
                self.controller.attach(&mut line.client, session, true)?;
                self.work.attach(&mut line.client, session, around)
            }
            event => match self.controller.sort(&line.client, event, (&mut self.work, &mut self.draw), around)? {
                Some(said) => self.heard(said, around),
                None => Ok(()),
            },
        }
    }

    fn branch(&self, tx: u64) -> Branch {
        Branch::new(tx, self.host)
    }

    /// Tells the history of a verb, or of its answer.
    fn tell(&self, verb: XaVerb, tx: u64, code: Option<i32>, around: &mut Around<'_>) {
        around.put(&Event::Xa { verb, xid: &self.branch(tx).name(), code });
    }

    fn heard(&mut self, said: Said, around: &mut Around<'_>) -> Result<(), Lost> {
        let tx = self.tx;
        let state = std::mem::replace(&mut self.state, State::Idle);
        match (state, said) {
            (State::Recovering(mut found), Said::Code(0, page, more)) => {
                found.extend(page);
                if more {
                    self.state = State::Recovering(found);
                    return Ok(());
                }
                self.recovered(&found, around);
            }
            (State::Starting, Said::Declared(id)) => {
                self.tell(XaVerb::Start, tx, Some(0), around);
                self.work.enter(Some(&Tx { number: tx, id }));
                self.state = State::Working(self.draw.range(0, 6));
            }
            (State::Starting, Said::Code(code, ..)) => self.tell(XaVerb::Start, tx, Some(code), around),
            (State::Suspending(left), Said::Code(code, ..)) => {
                self.tell(XaVerb::End, tx, Some(code), around);
                self.state = match code {
                    0 => State::Suspended(left, if self.offer(true) { OFFERED } else { 0 }),
                    _ => State::Deciding(tx, XaVerb::Rollback),
                };
            }
            (State::Resuming(left), Said::Declared(id)) => {
                self.tell(XaVerb::Start, tx, Some(0), around);
                self.work.enter(Some(&Tx { number: tx, id }));
                self.state = State::Working(left);
            }
            (State::Resuming(left), Said::Code(code, ..)) => {
                self.tell(XaVerb::Start, tx, Some(code), around);
                self.state = match code {
                    // The helper is in it still, or the broker believes so.
                    -6 if self.shared.contains(&tx) => State::Suspended(left, 0),
                    _ => State::Deciding(tx, XaVerb::Rollback),
                };
            }
            (State::Ending { one_phase }, Said::Code(code, ..)) => {
                self.tell(XaVerb::End, tx, Some(code), around);
                self.state = match (code, one_phase) {
                    (0, true) => State::Deciding(tx, XaVerb::Commit),
                    (0, false) => State::Preparing,
                    // The helper has ended it.
                    (-6, _) if self.shared.contains(&tx) => State::Preparing,
                    // It can only be rolled back.
                    _ => State::Deciding(tx, XaVerb::Rollback),
                };
            }
            (State::Preparing, Said::Code(code, ..)) => {
                self.tell(XaVerb::Prepare, tx, Some(code), around);
                if code == 0 {
                    let commit = self.draw.chance(65);
                    self.log.insert(tx, Entry { commit: Some(commit), heuristic: false });
                    self.state = State::Deciding(tx, if commit { XaVerb::Commit } else { XaVerb::Rollback });
                } else if matches!(code, 3 | -4 | 100..=107) {
                    self.log.remove(&tx);
                } else if code == -6 && self.shared.contains(&tx) {
                    // The helper is in it still, or the broker believes so.
                    self.log.remove(&tx);
                    self.state = State::Preparing;
                }
            }
            (State::Deciding(tx, verb), Said::Code(code, ..)) => {
                self.tell(verb, tx, Some(code), around);
                self.decided(tx, verb, code, around);
            }
            (state, said) => around.wrong.push(format!("a coordinator says {said:?} to {state:?}")),
        }
        self.wait(around);
        Ok(())
    }

    /// The list of branches in doubt is complete.
    fn recovered(&self, found: &[Branch], around: &mut Around<'_>) {
        let names: Vec<String> = found.iter().map(Branch::name).collect();
        let broker = host_name(self.host);
        around.put(&Event::RecoverList { xids: Some(&names.join(" ")), broker: Some(&broker) });
        // All that its log has is decided now, also what is not in the list: its prepare may still be on its way, on a connection that the
        // broker believes to be alive.
    }

    fn decided(&mut self, tx: u64, verb: XaVerb, code: i32, around: &mut Around<'_>) {
        match code {
            // Nothing was decided, or nobody knows: once more.
            4 | -7 => {}
            // The helper is in it still, or the broker believes so.
            -6 if self.shared.contains(&tx) => {
                if !self.log.contains_key(&tx) {
                    self.state = State::Deciding(tx, verb);
                }
            }
            // An operator has decided otherwise, or the same: that is to be forgotten.
            5..=8 if verb != XaVerb::Forget => {
                self.log.insert(tx, Entry { commit: None, heuristic: true });
            }
            0 | -4 | 100..=107 => {
                self.log.remove(&tx);
            }
            code => around.wrong.push(format!("{verb:?} of a branch was answered with {code}")),
        }
    }

    /// Offers its branch to its helper: to resume it, or to join it. False: not now.
    fn offer(&mut self, suspended: bool) -> bool {
        let (tx, percent) = (self.tx, if suspended { 60 } else { 40 });
        let Some(board) = self.board.as_ref().filter(|board| board.offer().is_none()) else { return false };
        let offers = self.draw.chance(percent);
        if offers {
            board.put(Some(Offer { tx, suspended, stage: Stage::Open }));
            self.shared.insert(tx);
        }
        offers
    }

    /// Takes back what nobody has taken. How far what is left of the offer is.
    fn withdraw(&self) -> Option<Stage> {
        let board = self.board.as_ref()?;
        let offer = board.offer()?;
        if offer.stage != Stage::Taken {
            board.put(None);
        }
        Some(offer.stage)
    }

    fn wait(&mut self, around: &Around<'_>) {
        // Now and then it takes its time, and its branch is in doubt for long.
        let most = if self.draw.chance(10) { self.beat_us * 40 } else { self.beat_us * 2 };
        self.next_at = around.now_us + self.draw.range(self.beat_us / 4, most);
    }

    pub(super) fn act(&mut self, line: &mut Line, leaving: bool, around: &mut Around<'_>) -> Result<(), Lost> {
        let done = leaving && self.state == State::Idle && self.log.is_empty();
        if !self.work.is_free(&self.controller, line, done, around)? || around.now_us < self.next_at {
            return Ok(());
        }
        self.wait(around);
        if !leaving && self.draw.chance(DEATHS) {
            return Err("the manager dies".into());
        }
        self.go(line, around)?;
        // What it asked for may arrive all the same.
        if !leaving && self.draw.chance(DEATHS) { Err("the manager dies".into()) } else { Ok(()) }
    }

    fn go(&mut self, line: &mut Line, around: &mut Around<'_>) -> Result<(), Lost> {
        let (tx, client) = (self.tx, &mut line.client);
        let branch = self.branch(tx);
        let (format_id, global_id, branch_qualifier) = branch.parts();
        match self.state.clone() {
            State::Recovering(found) => {
                if found.is_empty() {
                    let broker = host_name(self.host);
                    around.put(&Event::RecoverList { xids: None, broker: Some(&broker) });
                }
                let recover = XaRecover { after: found.last().map(Branch::xid), max: [1, 3, 100][self.draw.below(3)] };
                self.controller.ask(client, &Request::Recover(recover))
            }
            State::Idle => {
                if let Some((tx, entry)) = self.log.iter().next() {
                    let verb = match entry {
                        Entry { heuristic: true, .. } => XaVerb::Forget,
                        Entry { commit: Some(true), .. } => XaVerb::Commit,
                        Entry { .. } => XaVerb::Rollback,
                    };
                    return self.decide(*tx, verb, line, around);
                }
                if self.left == 0 {
                    return Ok(());
                }
                self.left -= 1;
                self.tx = around.books.tx();
                let branch = self.branch(self.tx);
                controller::begins(self.tx, Some(&branch), self.host, around);
                self.tell(XaVerb::Start, self.tx, None, around);
                self.state = State::Starting;
                let (format_id, global_id, branch_qualifier) = branch.parts();
                let timeout = if self.draw.chance(15) { self.draw.range(1, 200) } else { 0 };
                let start = XaStart { format_id, global_id, branch_qualifier, flags: flags::NONE, timeout };
                self.controller.ask(client, &Request::Start(start))
            }
            State::Working(left) if self.work.is_whole() && self.draw.chance(6) => {
                self.work.leaves(around);
                self.withdraw();
                self.tell(XaVerb::End, tx, None, around);
                self.state = State::Suspending(left);
                let end = XaEnd { format_id, global_id, branch_qualifier, flags: flags::SUSPEND };
                self.controller.ask(client, &Request::End(end))
            }
            State::Suspended(left, beats) => {
                let offer = self.board.as_ref().and_then(Board::offer);
                match offer.filter(|offer| offer.tx == tx && offer.suspended).map(|offer| offer.stage) {
                    Some(Stage::Taken) => Ok(()),
                    Some(Stage::Open) if beats > 0 => {
                        self.state = State::Suspended(left, beats - 1);
                        Ok(())
                    }
                    Some(Stage::Done) => {
                        self.withdraw();
                        self.end(client, flags::SUCCESS, around)
                    }
                    _ => {
                        self.withdraw();
                        if self.draw.chance(20) {
                            return self.end(client, flags::SUCCESS, around);
                        }
                        self.tell(XaVerb::Start, tx, None, around);
                        self.state = State::Resuming(left);
                        let start =
                            XaStart { format_id, global_id, branch_qualifier, flags: flags::RESUME, timeout: 0 };
                        self.controller.ask(client, &Request::Start(start))
                    }
                }
            }
            State::Working(0) if self.work.is_whole() => {
                self.work.leaves(around);
                let flags = if self.draw.chance(8) { flags::FAIL } else { flags::SUCCESS };
                self.end(client, flags, around)
            }
            State::Working(steps) => {
                self.offer(false);
                self.state = State::Working(steps.saturating_sub(1));
                self.work.step(client, &mut self.draw, around)
            }
            // Mostly it waits for its helper; now and then it is too quick.
            State::Preparing | State::Deciding(_, XaVerb::Commit)
                if self.withdraw() == Some(Stage::Taken) && !self.draw.chance(10) =>
            {
                Ok(())
            }
            State::Preparing => {
                // In the log before it is asked for: what is prepared is never forgotten.
                self.log.insert(tx, Entry::default());
                self.tell(XaVerb::Prepare, tx, None, around);
                self.controller.ask(client, &Request::Prepare(XaPrepare { format_id, global_id, branch_qualifier }))
            }
            State::Deciding(tx, verb) => self.decide(tx, verb, line, around),
            State::Starting | State::Suspending(_) | State::Resuming(_) | State::Ending { .. } => Ok(()),
        }
    }

    /// Ends the work in its branch.
    fn end(&mut self, client: &mut Client, flags: u32, around: &mut Around<'_>) -> Result<(), Lost> {
        self.tell(XaVerb::End, self.tx, None, around);
        self.state = State::Ending { one_phase: self.draw.chance(15) };
        let branch = self.branch(self.tx);
        let (format_id, global_id, branch_qualifier) = branch.parts();
        self.controller.ask(client, &Request::End(XaEnd { format_id, global_id, branch_qualifier, flags }))
    }

    fn decide(&mut self, tx: u64, verb: XaVerb, line: &mut Line, around: &mut Around<'_>) -> Result<(), Lost> {
        let branch = self.branch(tx);
        let (format_id, global_id, branch_qualifier) = branch.parts();
        self.tell(verb, tx, None, around);
        let one_phase = !self.log.contains_key(&tx);
        self.state = State::Deciding(tx, verb);
        let request = match verb {
            XaVerb::Commit => Request::Commit(XaCommit { format_id, global_id, branch_qualifier, one_phase }),
            XaVerb::Forget => Request::Forget(XaForget { format_id, global_id, branch_qualifier }),
            _ => Request::Rollback(XaRollback { format_id, global_id, branch_qualifier }),
        };
        self.controller.ask(&mut line.client, &request)
    }

    pub(super) fn lost(&mut self, around: &mut Around<'_>) {
        self.state = State::Recovering(Vec::new());
        self.withdraw();
        self.controller.lost();
        self.work.lost(around);
        self.wait(around);
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        let busy = self.state != State::Idle || self.left > 0 || !self.log.is_empty();
        busy.then_some(self.next_at)
    }

    /// There are more to be.
    pub(crate) fn more(&mut self, branches: u64) {
        self.left += branches;
    }

    /// What waits for an answer.
    pub(super) fn open(&self) -> u64 {
        self.work.open() + u64::from(!matches!(self.state, State::Idle | State::Recovering(_)))
    }

    /// It has nothing to do, and nothing of its is in doubt.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.state == State::Idle && self.log.is_empty()
    }
}
