//! Transactions, local ones and branches of distributed ones: what was asked of each, by whom and when, and what was answered. From that
//! follows when it can have been committed, whether it was, and since when it is in doubt.
//!
//! Owns no judgment: what the work of a transaction shows is `atomic`, what `recover` and the verbs say is `prepared`.

use super::messages::{Answer, End, Messages, NONE, Place};
use crate::event::XaVerb;
use crate::report::Totals;
use packhorse_model::{Map, Seed};

/// A time, and where it stands.
pub(crate) type Moment = (u64, Place);

/// Codes of XA that matter here.
pub(crate) mod code {
    pub(crate) const OK: i32 = 0;
    pub(crate) const READ_ONLY: i32 = 3;
    pub(crate) const RETRY: i32 = 4;
    pub(crate) const MIXED: i32 = 5;
    pub(crate) const HEURISTIC_ROLLED_BACK: i32 = 6;
    pub(crate) const HEURISTIC_COMMITTED: i32 = 7;
    pub(crate) const HAZARD: i32 = 8;
    pub(crate) const NOT_THERE: i32 = -4;
    pub(crate) const INVALID: i32 = -5;
    pub(crate) const PROTOCOL: i32 = -6;

    /// Rolled back, for whatever reason.
    pub(crate) fn rolled_back(code: i32) -> bool {
        (100..=107).contains(&code)
    }
}

/// What was asked of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Prepare,
    Commit,
    Rollback,
    Forget,
    /// The same by an operator.
    Decide {
        commit: bool,
    },
    /// Start and end: they decide nothing.
    Other(XaVerb),
}

impl From<XaVerb> for Wish {
    fn from(verb: XaVerb) -> Wish {
        match verb {
            XaVerb::Prepare => Wish::Prepare,
            XaVerb::Commit => Wish::Commit,
            XaVerb::Rollback => Wish::Rollback,
            XaVerb::Forget => Wish::Forget,
            XaVerb::Start | XaVerb::End => Wish::Other(verb),
        }
    }
}

/// One thing that was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) wish: Wish,
    pub(crate) at: u64,
    pub(crate) place: Place,
    /// When and where the answer stands, and its code.
    pub(crate) answer: Option<(u64, Place, i32)>,
}

impl Asked {
    /// Whether it may be why the branch was committed.
    pub(crate) fn may_commit(&self) -> bool {
        match (self.wish, self.answer) {
            (Wish::Commit | Wish::Decide { commit: true }, None) => true,
            (Wish::Prepare, Some((_, _, code))) => code == code::READ_ONLY,
            (Wish::Commit, Some((_, _, code))) => may_have_acted(code) && !code::rolled_back(code),
            (Wish::Decide { commit: true }, Some((_, _, code))) => code == code::OK,
            _ => false,
        }
    }

    /// Whether it may be why the branch was rolled back after it was prepared.
    pub(crate) fn may_roll_back(&self) -> bool {
        match (self.wish, self.answer) {
            (Wish::Rollback | Wish::Decide { commit: false }, None) => true,
            (Wish::Rollback, Some((_, _, code))) => may_have_acted(code),
            (Wish::Decide { commit: false }, Some((_, _, code))) => code == code::OK,
            _ => false,
        }
    }

    /// Whether it may be an operator's decision, whatever the branch's manager wants.
    pub(crate) fn may_decide_for_others(&self) -> bool {
        matches!(self.wish, Wish::Decide { .. }) && (self.may_commit() || self.may_roll_back())
    }

    /// Whether it may be why nobody knows the branch any more.
    pub(crate) fn may_forget(&self) -> bool {
        self.wish == Wish::Forget && self.answer.is_none_or(|(_, _, code)| code == code::OK)
    }
}

/// An answer to commit or rollback after which it may have been this request that did it; of a mixed one the rest.
fn may_have_acted(code: i32) -> bool {
    let in_vain = matches!(
        code,
        code::RETRY
            | code::HEURISTIC_ROLLED_BACK
            | code::HEURISTIC_COMMITTED
            | code::NOT_THERE
            | code::INVALID
            | code::PROTOCOL
    );
    !in_vain
}

/// Whether it was committed, as far as anybody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Somebody was told so.
    Committed,
    /// Somebody was told so, or nobody ever asked for a commit.
    NotCommitted,
    /// Either.
    Unknown,
    /// Partly, by an operator's hand, or told as both: nothing follows from it.
    Mixed,
}

/// One transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// Its number, unless only the branch is known.
    pub(crate) id: Option<u64>,
    /// The branch; `None`: local.
    pub(crate) xid: Option<Box<str>>,
    pub(crate) broker: u32,
    pub(crate) begun: Option<Moment>,
    pub(crate) asked: Vec<Asked>,
    /// When its commit was first asked for, in a way that may have had an effect: before, it was not committed.
    pub(crate) commit_from: Option<Moment>,
    /// The same of a rollback.
    pub(crate) rollback_from: Option<u64>,
    /// When somebody first knew that it was committed.
    pub(crate) committed: Option<Moment>,
    /// The same of rolled back.
    pub(crate) rolled_back: Option<Moment>,
    /// When its manager first knew that it was prepared.
    pub(crate) prepared: Option<Moment>,
    /// When an operator first knew that his decision was carried out.
    pub(crate) decided: Option<u64>,
    mixed: bool,
}

impl Transaction {
    fn new(id: Option<u64>, xid: Option<&str>) -> Transaction {
        Transaction {
            id,
            xid: xid.map(Into::into),
            broker: super::brokers::Brokers::ALL,
            begun: None,
            asked: Vec::new(),
            commit_from: None,
            rollback_from: None,
            committed: None,
            rolled_back: None,
            prepared: None,
            decided: None,
            mixed: false,
        }
    }

    /// How a report calls it.
    pub(crate) fn name(&self) -> String {
        match (&self.xid, self.id) {
            (Some(xid), _) => format!("branch {xid}"),
            (None, Some(id)) => format!("transaction {id}"),
            (None, None) => "a transaction".to_owned(),
        }
    }

    pub(crate) fn is_told_as_both(&self) -> bool {
        self.committed.is_some() && self.rolled_back.is_some()
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match (self.committed, self.rolled_back) {
            _ if self.mixed => Outcome::Mixed,
            (Some(_), Some(_)) => Outcome::Mixed,
            (Some(_), None) => Outcome::Committed,
            (None, Some(_)) => Outcome::NotCommitted,
            (None, None) if self.commit_from.is_none() => Outcome::NotCommitted,
            (None, None) => Outcome::Unknown,
        }
    }

    /// The first time at which it can have been decided after it was prepared.
    pub(crate) fn decided_from(&self) -> u64 {
        self.commit_from.map_or(u64::MAX, |(at, _)| at).min(self.rollback_from.unwrap_or(u64::MAX))
    }

    /// Whether it was certainly prepared and not decided at `at`.
    pub(crate) fn in_doubt(&self, at: u64, slack: u64) -> bool {
        self.prepared.is_some_and(|(since, _)| since.saturating_add(slack) <= at) && self.undecided(at, slack)
    }

    /// Whether it was prepared at some time, and not decided before `at`.
    pub(crate) fn undecided(&self, at: u64, slack: u64) -> bool {
        self.prepared.is_some() && at.saturating_add(slack) < self.decided_from()
    }

    /// Whether it was certainly over, one way or the other, at `at`.
    pub(crate) fn over(&self, at: u64) -> bool {
        let known = |moment: Option<Moment>| moment.is_some_and(|(known, _)| known <= at);
        known(self.committed) || known(self.rolled_back)
    }

    /// From when on nothing is asked of it any more.
    pub(crate) fn last_asked(&self) -> u64 {
        let last = self.asked.iter().map(|asked| asked.at).max();
        last.or(self.commit_from.map(|(at, _)| at)).unwrap_or(0)
    }

    /// What follows from everything that was asked and answered. Of a local transaction that is known already.
    fn conclude(&mut self) {
        for index in 0..self.asked.len() {
            let asked = self.asked[index];
            let first = |slot: &mut Option<Moment>, moment: Moment| {
                if slot.is_none_or(|(at, _)| moment.0 < at) {
                    *slot = Some(moment);
                }
            };
            if asked.may_commit() {
                first(&mut self.commit_from, (asked.at, asked.place));
            }
            if asked.may_roll_back() {
                self.rollback_from = Some(self.rollback_from.unwrap_or(u64::MAX).min(asked.at));
            }
            let Some((at, place, code)) = asked.answer else { continue };
            let moment = (at, place);
            match (asked.wish, code) {
                (Wish::Prepare, code::OK) => first(&mut self.prepared, moment),
                (Wish::Prepare, code::READ_ONLY)
                | (Wish::Commit, code::OK)
                | (Wish::Commit | Wish::Rollback, code::HEURISTIC_COMMITTED) => first(&mut self.committed, moment),
                (Wish::Rollback, code::OK) | (Wish::Commit | Wish::Rollback, code::HEURISTIC_ROLLED_BACK) => {
                    first(&mut self.rolled_back, moment);
                }
                (Wish::Prepare | Wish::Commit | Wish::Rollback, code) if code::rolled_back(code) => {
                    first(&mut self.rolled_back, moment);
                }
                (Wish::Commit | Wish::Rollback, code::MIXED | code::HAZARD) => self.mixed = true,
                (Wish::Decide { commit }, code::OK) => {
                    first(if commit { &mut self.committed } else { &mut self.rolled_back }, moment);
                    self.decided = Some(self.decided.unwrap_or(u64::MAX).min(at));
                }
                _ => {}
            }
        }
        // Told as committed though nobody is known to have asked for it: nobody can say since when.
        if self.commit_from.is_none() && self.committed.is_some() {
            self.commit_from = Some((0, Place::default()));
        }
    }
}

/// A list of branches in doubt.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) asked_at: u64,
    pub(crate) at: u64,
    pub(crate) place: Place,
    pub(crate) broker: u32,
    pub(crate) xids: Vec<Box<str>>,
}

/// All transactions.
#[derive(Debug)]
pub(crate) struct Transactions {
    pub(crate) all: Vec<Transaction>,
    pub(crate) lists: Vec<List>,
    by_id: Map<u64, u32>,
    by_xid: Map<Box<str>, u32>,
    /// By file: a list that was asked for, when and of which broker.
    asking: Map<usize, (u64, u32)>,
}

impl Transactions {
    pub(crate) fn new() -> Transactions {
        Transactions {
            all: Vec::new(),
            lists: Vec::new(),
            by_id: Seed::fixed(8).map(),
            by_xid: Seed::fixed(9).map(),
            asking: Seed::fixed(10).map(),
        }
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Transaction> {
        self.all.get(index as usize)
    }

    /// The index of the transaction with this number. Work of another process may be read before the transaction's beginning.
    pub(crate) fn index(&mut self, id: u64) -> u32 {
        if let Some(index) = self.by_id.get(&id) {
            return *index;
        }
        let index = self.all.len() as u32;
        self.all.push(Transaction::new(Some(id), None));
        self.by_id.insert(id, index);
        index
    }

    fn branch(&mut self, xid: &str) -> &mut Transaction {
        let index = match self.by_xid.get(xid) {
            Some(index) => *index,
            None => {
                let index = self.all.len() as u32;
                self.all.push(Transaction::new(None, Some(xid)));
                self.by_xid.insert(xid.into(), index);
                index
            }
        };
        &mut self.all[index as usize]
    }

    /// The branch of that name, if anybody spoke of it.
    pub(crate) fn find(&self, xid: &str) -> Option<&Transaction> {
        self.by_xid.get(xid).map(|index| &self.all[*index as usize])
    }

    /// A transaction begins. Err: it has begun before, or the branch is another's.
    pub(crate) fn begin(&mut self, id: u64, xid: Option<&str>, broker: u32, moment: Moment) -> Result<(), String> {
        let index = self.index(id);
        if let Some(xid) = xid {
            match self.by_xid.get(xid) {
                Some(other) if self.all[*other as usize].id.is_some() => {
                    return Err(format!("branch {xid} begins again; each transaction has a branch of its own"));
                }
                // Verbs of other processes were read before.
                Some(other) => self.all[index as usize].asked = std::mem::take(&mut self.all[*other as usize].asked),
                None => {}
            }
            self.by_xid.insert(xid.into(), index);
        }
        let transaction = &mut self.all[index as usize];
        if transaction.begun.is_some() {
            return Err(format!("transaction {id} begins again; each has a number of its own"));
        }
        (transaction.begun, transaction.broker) = (Some(moment), broker);
        transaction.xid = xid.map(Into::into);
        Ok(())
    }

    /// Commit of a local one is asked for.
    pub(crate) fn commit_sent(&mut self, id: u64, moment: Moment) -> Result<(), String> {
        let index = self.index(id);
        let transaction = &mut self.all[index as usize];
        match transaction.commit_from {
            _ if transaction.xid.is_some() => Err(format!("transaction {id} is a branch: its verbs are those of XA")),
            Some(_) => Err(format!("the commit of transaction {id} is asked for again")),
            None => {
                transaction.commit_from = Some(moment);
                Ok(())
            }
        }
    }

    /// It was told as committed, as rolled back (`Some(false)`), or nobody knows (`None`).
    pub(crate) fn answered(&mut self, id: u64, committed: Option<bool>, moment: Moment) -> Result<(), String> {
        let index = self.index(id);
        let transaction = &mut self.all[index as usize];
        if transaction.xid.is_some() {
            return Err(format!("transaction {id} is a branch: its verbs are those of XA"));
        }
        if committed != Some(false) && transaction.commit_from.is_none() {
            return Err(format!("an answer to the commit of transaction {id}, which was not asked for"));
        }
        if transaction.committed.is_some() || transaction.rolled_back.is_some() {
            return Err(format!("a second answer for transaction {id}"));
        }
        match committed {
            Some(true) => transaction.committed = Some(moment),
            Some(false) => transaction.rolled_back = Some(moment),
            None => {}
        }
        Ok(())
    }

    /// Something is asked of a branch, or answered in the same file. Err: an answer to nothing.
    pub(crate) fn xa(&mut self, xid: &str, wish: Wish, code: Option<i32>, moment: Moment) -> Result<(), String> {
        let (at, place) = moment;
        let branch = self.branch(xid);
        let Some(code) = code else {
            branch.asked.push(Asked { wish, at, place, answer: None });
            return Ok(());
        };
        let mut open = branch.asked.iter_mut().rev().filter(|asked| asked.answer.is_none());
        let asked = open.find(|asked| asked.wish == wish && asked.place.file() == place.file());
        let Some(asked) = asked else {
            return Err(format!("an answer for branch {xid}, of which nothing like it was asked"));
        };
        asked.answer = Some((at, place, code));
        Ok(())
    }

    /// The branches in doubt are asked for, or told in the same file. Err: told and not asked for.
    pub(crate) fn list(&mut self, xids: Option<&str>, broker: u32, moment: Moment) -> Result<(), String> {
        let (at, place) = moment;
        let Some(xids) = xids else {
            self.asking.insert(place.file(), (at, broker));
            return Ok(());
        };
        let Some((asked_at, broker)) = self.asking.remove(&place.file()).filter(|(_, asked)| *asked == broker) else {
            return Err("a list of branches that was not asked for".to_owned());
        };
        let xids = xids.split(' ').filter(|xid| !xid.is_empty()).map(Into::into).collect();
        self.lists.push(List { asked_at, at, place, broker, xids });
        Ok(())
    }

    /// Everything is read: what follows for transactions, and from them for their messages and acknowledgements.
    pub(crate) fn finish(&mut self, messages: &mut Messages, totals: &mut Totals, slack: u64) {
        if self.all.is_empty() {
            return;
        }
        for transaction in &mut self.all {
            transaction.conclude();
            let outcome = transaction.outcome();
            totals.transactions_committed += u64::from(outcome == Outcome::Committed);
            totals.transactions_unknown += u64::from(matches!(outcome, Outcome::Unknown | Outcome::Mixed));
        }
        let late = |transaction: &Transaction, at: u64, place: Place| {
            transaction.commit_from.is_some_and(|(commit_at, commit)| match place.file() == commit.file() {
                true => place > commit,
                false => at > commit_at.saturating_add(slack),
            })
        };
        for sent in messages.producers.iter_mut().flat_map(|producer| &mut producer.sent) {
            let Some(transaction) = self.get(sent.tx).filter(|_| sent.answer != Answer::Refused) else { continue };
            let outcome = match transaction.outcome() {
                Outcome::Mixed => Outcome::Unknown,
                // Work that comes after the commit is not in it.
                _ if late(transaction, sent.at, sent.place) => Outcome::NotCommitted,
                outcome => outcome,
            };
            // An answer to the send itself said no more than that the transaction has it.
            let (answer, (at, place)) = match outcome {
                Outcome::Committed => (Answer::Confirmed, transaction.committed.unwrap_or_default()),
                Outcome::NotCommitted => (Answer::RolledBack, transaction.rolled_back.unwrap_or_default()),
                Outcome::Unknown | Outcome::Mixed => (Answer::Unknown, Moment::default()),
            };
            (sent.answer, sent.answer_at, sent.answer_place) = (answer, at, place);
            totals.confirmed += u64::from(answer == Answer::Confirmed);
            totals.rolled_back += u64::from(answer == Answer::RolledBack);
        }
        for receipt in messages.receipts.iter_mut().filter(|receipt| receipt.returned_in != NONE) {
            let Some(transaction) = self.get(receipt.returned_in) else { continue };
            let late = late(transaction, receipt.end_at, receipt.end_place);
            let outcome = if late { Outcome::NotCommitted } else { transaction.outcome() };
            receipt.not_here &= outcome == Outcome::Committed;
            receipt.end = match (outcome, receipt.end) {
                // As after any rollback: it came back as seen.
                (Outcome::NotCommitted, _) => End::Failed,
                // At a time that nobody knows: so nobody can say since when it is ready.
                (_, End::GivenBack) => End::Declined,
                (_, end) => end,
            };
        }
        for receipt in messages.receipts.iter_mut().filter(|receipt| receipt.tx != NONE) {
            let Some(transaction) = self.get(receipt.tx).filter(|_| receipt.end == End::AcknowledgedInTx) else {
                continue;
            };
            (receipt.confirm_at, receipt.confirm_place) = Moment::default();
            match transaction.outcome() {
                Outcome::Unknown | Outcome::Mixed => {}
                _ if late(transaction, receipt.end_at, receipt.end_place) => receipt.end = End::RolledBack,
                Outcome::NotCommitted => receipt.end = End::RolledBack,
                Outcome::Committed => {
                    receipt.end = End::Acknowledged;
                    totals.acknowledged_confirmed += 1;
                    (receipt.confirm_at, receipt.confirm_place) = transaction.committed.unwrap_or_default();
                }
            }
        }
    }
}
