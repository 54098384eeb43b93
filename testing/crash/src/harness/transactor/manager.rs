//! A manager of branches: it keeps several in doubt at a time, and a log of what it was told of each, which survives its connections. On
//! each new one it asks what is in doubt, compares that with its log, and decides what is open as it had decided before.

use super::super::options::ClientOptions;
use super::Work;
use super::station::{End, Open, Said, Station};
use crate::transact::{Heard, Ledger, Verb, request, xid_in_history};
use packhorse_client_core::transaction::{Request, XaRecover, flags};
use packhorse_history::{Event, XaVerb};
use std::collections::{BTreeMap, BTreeSet};

/// Most branches that it has in doubt.
const IN_DOUBT: usize = 6;
/// Codes of XA: read only; nothing was decided, once more; the broker is going down, and nobody knows; there is no such branch.
const READ_ONLY: i32 = 3;
const RETRY: i32 = 4;
const FAILED: i32 = -7;
const NOT_THERE: i32 = -4;

/// See the module.
pub(super) struct Manager {
    number: u32,
    ledger: Ledger,
    /// Branches that it has asked to prepare and that are not over: to be committed, or to be rolled back.
    open: BTreeMap<String, bool>,
}

fn rolled_back(code: i32) -> bool {
    (100..=107).contains(&code)
}

impl Manager {
    pub(super) fn new(options: &ClientOptions) -> Manager {
        Manager { number: options.number, ledger: Ledger::default(), open: BTreeMap::new() }
    }

    /// A branch's name, which is its global id.
    fn name(&self, tx: u64) -> String {
        format!("{}{tx}", self.prefix())
    }

    fn prefix(&self) -> String {
        format!("manager-{}-", self.number)
    }

    /// Asks a verb of XA, and records it. The code.
    fn ask(
        &mut self,
        station: &mut Station<'_>,
        open: &mut Open,
        branch: &str,
        (verb, asked): (XaVerb, Verb),
    ) -> Result<i32, End> {
        let xid = xid_in_history(branch);
        station.put(&Event::Xa { verb, xid: &xid, code: None }).map_err(End::Failed)?;
        match station.ask(open, &request(branch, asked))? {
            Said::Code(code, ..) => {
                station.put(&Event::Xa { verb, xid: &xid, code: Some(code) }).map_err(End::Failed)?;
                if code == FAILED { Err(End::Lost) } else { Ok(code) }
            }
            said => Err(End::Failed(format!("{said:?} to {asked:?} of {branch}"))),
        }
    }

    /// What is in doubt, compared with the log. Lists hold the branches of other managers too.
    fn recover(&mut self, station: &mut Station<'_>, open: &mut Open) -> Result<(), End> {
        station.put(&Event::RecoverList { xids: None, broker: None }).map_err(End::Failed)?;
        let max = [1, 3, 100][station.random.below(3)];
        let mut all: Vec<String> = Vec::new();
        loop {
            let after = all.last().cloned();
            let after = after.as_deref().map(crate::transact::xid);
            match station.ask(open, &Request::Recover(XaRecover { after, max }))? {
                Said::Code(0, page, more) => {
                    all.extend(page);
                    if !more {
                        break;
                    }
                }
                Said::Code(FAILED, ..) => return Err(End::Lost),
                said => return Err(End::Failed(format!("{said:?} to a recover"))),
            }
        }
        let xids: Vec<String> = all.iter().map(|branch| xid_in_history(branch)).collect();
        station.put(&Event::RecoverList { xids: Some(&xids.join(" ")), broker: None }).map_err(End::Failed)?;
        let prefix = self.prefix();
        let ours: BTreeSet<String> = all.into_iter().filter(|branch| branch.starts_with(&prefix)).collect();
        self.ledger.judge(&ours).into_iter().for_each(|wrong| station.found(wrong));
        Ok(())
    }

    /// Decides a branch as its log says.
    fn decide(&mut self, station: &mut Station<'_>, open: &mut Open, branch: &str) -> Result<(), End> {
        let commit = self.open.get(branch).copied().unwrap_or(false);
        let verb = match commit {
            true => (XaVerb::Commit, Verb::Commit { one_phase: false }),
            false => (XaVerb::Rollback, Verb::Rollback),
        };
        self.ledger.asks_to_decide(branch, commit);
        let code = self.ask(station, open, branch, verb)?;
        self.ledger.heard_of_decision(branch, commit, code);
        match code {
            RETRY => {}
            code if matches!(code, 0 | NOT_THERE) || rolled_back(code) => {
                self.open.remove(branch);
                station.is_over();
            }
            code => return Err(End::Failed(format!("{code} to {verb:?} of {branch}"))),
        }
        Ok(())
    }

    /// Shows how many are in doubt.
    fn show(&self, station: &mut Station<'_>) -> Result<(), End> {
        let in_doubt = self.open.keys().filter(|branch| self.ledger.heard(branch) == Some(Heard::Prepared)).count();
        station.show(in_doubt as u64).map_err(End::Failed)
    }

    /// Decides one of those in doubt.
    fn decide_one(&mut self, station: &mut Station<'_>, open: &mut Open) -> Result<(), End> {
        let nth = station.random.below(self.open.len());
        let Some(branch) = self.open.keys().nth(nth).cloned() else { return Ok(()) };
        self.decide(station, open, &branch)
    }

    /// A branch from its start until it is prepared, or over.
    fn branch(&mut self, station: &mut Station<'_>, open: &mut Open) -> Result<(), End> {
        let tx = station.begins(|tx| Some(xid_in_history(&self.name(tx)))).map_err(End::Failed)?;
        let branch = self.name(tx);
        // Some run into their time, at work or before they are prepared.
        let timeout = if station.random.below(8) == 0 { 1 + station.random.below(200) as u64 } else { 0 };
        let start = Verb::Start { flags: flags::NONE, timeout };
        let xid = xid_in_history(&branch);
        station.put(&Event::Xa { verb: XaVerb::Start, xid: &xid, code: None }).map_err(End::Failed)?;
        let txn = match station.ask(open, &request(&branch, start))? {
            Said::Declared(txn) => txn,
            Said::Code(FAILED, ..) => return Err(End::Lost),
            said => return Err(End::Failed(format!("{said:?} to the start of {branch}"))),
        };
        station.put(&Event::Xa { verb: XaVerb::Start, xid: &xid, code: Some(0) }).map_err(End::Failed)?;
        station.work(open, &txn, tx)?;
        let fails = station.random.below(12) == 0;
        let end = Verb::End(if fails { flags::FAIL } else { flags::SUCCESS });
        let code = self.ask(station, open, &branch, (XaVerb::End, end))?;
        let dice = station.random.below(100);
        if code != 0 || dice < 8 {
            let code = self.ask(station, open, &branch, (XaVerb::Rollback, Verb::Rollback))?;
            if !matches!(code, 0 | NOT_THERE) && !rolled_back(code) {
                return Err(End::Failed(format!("{code} to the rollback of {branch}")));
            }
            station.is_over();
            return Ok(());
        }
        if dice < 20 {
            let code = self.ask(station, open, &branch, (XaVerb::Commit, Verb::Commit { one_phase: true }))?;
            if !matches!(code, 0 | NOT_THERE) && !rolled_back(code) {
                return Err(End::Failed(format!("{code} to the commit of {branch} in one phase")));
            }
            station.is_over();
            return Ok(());
        }
        self.prepare(station, open, branch)
    }

    fn prepare(&mut self, station: &mut Station<'_>, open: &mut Open, branch: String) -> Result<(), End> {
        // In the log before it is asked for: what is prepared is never forgotten.
        self.ledger.asks_to_prepare(&branch);
        self.open.insert(branch.clone(), false);
        let code = self.ask(station, open, &branch, (XaVerb::Prepare, Verb::Prepare))?;
        self.ledger.heard_of_prepare(&branch, code);
        match code {
            0 => {
                let commit = station.random.below(10) < 6;
                self.open.insert(branch, commit);
                Ok(())
            }
            code if matches!(code, READ_ONLY | NOT_THERE) || rolled_back(code) => {
                self.open.remove(&branch);
                station.is_over();
                Ok(())
            }
            code => Err(End::Failed(format!("{code} to the prepare of {branch}"))),
        }
    }
}

impl Work for Manager {
    fn connection(&mut self, station: &mut Station<'_>) -> Result<(), End> {
        let mut open = station.connect(None, true)?;
        self.recover(station, &mut open)?;
        // Also what is not listed: its prepare may still be on its way, on a connection that the broker believes to be alive.
        let mut asked_before: Vec<String> = self.open.keys().cloned().collect();
        while let Some(branch) = asked_before.pop() {
            // Most stay in doubt for longer than a life of the broker.
            if station.random.below(3) == 0 {
                self.decide(station, &mut open, &branch)?;
            }
        }
        while !station.is_told_to_end() {
            if self.open.len() >= IN_DOUBT || (!self.open.is_empty() && station.random.below(5) < 2) {
                self.decide_one(station, &mut open)?;
            } else {
                self.branch(station, &mut open)?;
            }
            if station.random.below(40) == 0 {
                self.recover(station, &mut open)?;
            }
            self.show(station)?;
            station.turn(&mut open)?;
        }
        while !self.open.is_empty() {
            self.decide_one(station, &mut open)?;
        }
        self.show(station)?;
        self.recover(station, &mut open)?;
        station.leave(&mut open)
    }

    fn lost(&mut self, _: &mut Station<'_>) -> Result<(), String> {
        // The log has what was asked for.
        Ok(())
    }
}
