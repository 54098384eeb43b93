//! A transaction manager's log: what it asked about its branches and was answered. What a broker says is in doubt is compared with
//! this, and with nothing of the broker's.

use super::manager::Manager;
use crate::wire::Broken;
use std::collections::{BTreeMap, BTreeSet};

/// What a manager heard of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Prepare was asked for, and there is no answer.
    Asked,
    /// Prepare was answered with `XA_OK`.
    Prepared,
    /// And a decision was asked for (true: commit), which has no answer.
    Deciding(bool),
    /// That was answered (true: commit).
    Decided(bool),
    /// The broker has it no more, and it was not decided: answers of the families `XA_RB*` and `XAER_NOTA`.
    Gone,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    branches: BTreeMap<String, Heard>,
}

impl Ledger {
    /// What is known of a branch.
    pub fn heard(&self, branch: &str) -> Option<Heard> {
        self.branches.get(branch).copied()
    }

    /// All branches.
    pub fn branches(&self) -> impl Iterator<Item = (&str, Heard)> {
        self.branches.iter().map(|(name, heard)| (name.as_str(), *heard))
    }

    /// Prepare is about to be asked for.
    pub fn asks_to_prepare(&mut self, branch: &str) {
        self.branches.insert(branch.to_owned(), Heard::Asked);
    }

    /// A decision is about to be asked for.
    pub fn asks_to_decide(&mut self, branch: &str, commit: bool) {
        self.branches.insert(branch.to_owned(), Heard::Deciding(commit));
    }

    /// Asks to prepare a branch. The code.
    pub fn prepare(&mut self, manager: &mut Manager, branch: &str) -> Result<i32, Broken> {
        self.asks_to_prepare(branch);
        let code = manager.prepare(branch)?;
        self.heard_of_prepare(branch, code);
        Ok(code)
    }

    /// The answer to that.
    pub fn heard_of_prepare(&mut self, branch: &str, code: i32) {
        match code {
            0 => self.branches.insert(branch.to_owned(), Heard::Prepared),
            -4 | 100..=107 => self.branches.insert(branch.to_owned(), Heard::Gone),
            // The broker is going down: as good as no answer.
            -7 => None,
            // Read only, or an error that changes nothing.
            _ => self.branches.remove(branch),
        };
    }

    /// Asks to commit a branch, or to roll it back. The code.
    pub fn decide(&mut self, manager: &mut Manager, branch: &str, commit: bool) -> Result<i32, Broken> {
        self.asks_to_decide(branch, commit);
        let code = if commit { manager.commit(branch, false)? } else { manager.rollback(branch)? };
        self.heard_of_decision(branch, commit, code);
        Ok(code)
    }

    /// The answer to that.
    pub fn heard_of_decision(&mut self, branch: &str, commit: bool, code: i32) {
        match code {
            0 => self.branches.insert(branch.to_owned(), Heard::Decided(commit)),
            -4 | 100..=107 => self.branches.insert(branch.to_owned(), Heard::Gone),
            _ => None,
        };
    }

    /// Compares what a broker says is in doubt; a line for each difference. What had no answer may be there or not.
    pub fn judge(&self, recovered: &BTreeSet<String>) -> Vec<String> {
        let missing = self.branches().filter(|(name, heard)| *heard == Heard::Prepared && !recovered.contains(*name));
        let mut wrong: Vec<String> =
            missing.map(|(name, _)| format!("{name} was prepared, and is not listed")).collect();
        for name in recovered {
            match self.heard(name) {
                Some(Heard::Asked | Heard::Prepared | Heard::Deciding(_)) => {}
                Some(heard) => wrong.push(format!("{name} is listed, though it is {heard:?}")),
                None => wrong.push(format!("{name} is listed, and was never to be prepared")),
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(branches: &[(&str, Heard)]) -> Ledger {
        Ledger { branches: branches.iter().map(|(name, heard)| ((*name).to_owned(), *heard)).collect() }
    }

    #[test]
    fn an_answer_to_prepare_that_says_that_nobody_knows_is_none() {
        for (code, heard) in [(-7, Some(Heard::Asked)), (0, Some(Heard::Prepared)), (100, Some(Heard::Gone)), (3, None)]
        {
            let mut one = Ledger::default();
            one.asks_to_prepare("b");
            one.heard_of_prepare("b", code);
            assert_eq!(one.heard("b"), heard, "{code}");
        }
    }

    #[test]
    fn what_was_answered_decides_and_what_was_not_may_be_either() {
        let all = ledger(&[
            ("asked", Heard::Asked),
            ("prepared", Heard::Prepared),
            ("deciding", Heard::Deciding(true)),
            ("decided", Heard::Decided(false)),
            ("gone", Heard::Gone),
        ]);
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        for fine in [&["prepared"][..], &["asked", "deciding", "prepared"]] {
            assert_eq!(all.judge(&list(fine)), Vec::<String>::new());
        }
        let wrong = all.judge(&list(&["decided", "gone", "stranger"]));
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert!(wrong[0].contains("prepared was prepared"), "{wrong:?}");
    }
}
