//! A link to the coordinator of a client that does as it is told: one question after the other, and everything that was answered.

use super::controller::{self, Branch, Controller, Said, Tx};
use super::{Around, Lost};
use crate::books::host_name;
use packhorse_client_core::codec::DeliveryState;
use packhorse_client_core::transaction::{
    Request, TxCommit, TxOutcome, TxStatus, XaCommit, XaEnd, XaForget, XaPrepare, XaRecover, XaRollback, XaStart,
};
use packhorse_client_core::{Client, DeliveryOutcome, SessionId};
use packhorse_history::{Event, XaVerb};

/// A branch as a script names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) name: Branch,
    /// Its number in the history; none: the history is told nothing of it.
    pub(crate) tx: Option<u64>,
}

/// What is asked of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Flags of XA, and the timeout: 0 for the broker's.
    Start {
        flags: u32,
        timeout_ms: u64,
    },
    /// Flags of XA.
    End(u32),
    Prepare,
    Commit {
        one_phase: bool,
    },
    Rollback,
    Forget,
}

impl Verb {
    fn told(self) -> XaVerb {
        match self {
            Verb::Start { .. } => XaVerb::Start,
            Verb::End(_) => XaVerb::End,
            Verb::Prepare => XaVerb::Prepare,
            Verb::Commit { .. } => XaVerb::Commit,
            Verb::Rollback => XaVerb::Rollback,
            Verb::Forget => XaVerb::Forget,
        }
    }
}

/// What is asked of a coordinator.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Branch(Subject, Verb),
    /// All that is in doubt, in pages of so many.
    Recover {
        page: u32,
    },
    /// A local transaction, by its number in the history.
    Declare(u64),
    /// Its commit under this number of the client's session.
    CommitAs(Tx, u64),
    /// What became of that.
    Status {
        tx: u64,
        counter: u64,
    },
}

/// Whose commits a client's are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) broker: [u8; 16],
    pub(crate) session: [u8; 16],
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    controller: Controller,
    asked: Option<Question>,
    found: Vec<Branch>,
    /// In order.
    pub(crate) answers: Vec<Said>,
    /// What was started or declared, in order.
    pub(crate) txs: Vec<Tx>,
}

impl Desk {
    pub(super) fn attach(nth: usize, client: &mut Client, session: SessionId) -> Result<Desk, Lost> {
        let mut desk = Desk::default();
        desk.controller.nth = nth as u64;
        desk.controller.attach(client, session, true)?;
        Ok(desk)
    }

    /// False: not yet.
    pub(super) fn ask(
        &mut self,
        question: Question,
        identity: Identity,
        client: &mut Client,
        around: &mut Around<'_>,
    ) -> Result<bool, Lost> {
        if !self.controller.is_free(client) {
            return Ok(false);
        }
        match &question {
            Question::Branch(subject, verb) => tell(subject, *verb, None, around),
            Question::Recover { .. } => {
                around.put(&Event::RecoverList { xids: None, broker: Some(&host_name(0)) });
            }
            Question::Declare(tx) => controller::begins(*tx, None, 0, around),
            Question::CommitAs(tx, _) => around.put(&Event::CommitSent { tx: tx.number }),
            Question::Status { .. } => {}
        }
        self.found.clear();
        self.put(&question, identity, client)?;
        self.asked = Some(question);
        Ok(true)
    }

    fn put(&mut self, question: &Question, identity: Identity, client: &mut Client) -> Result<(), Lost> {
        let Identity { broker, session } = identity;
        let request = match question {
            Question::Branch(subject, verb) => {
                let (format_id, global_id, branch_qualifier) = subject.name.parts();
                match *verb {
                    Verb::Start { flags, timeout_ms: timeout } => {
                        Request::Start(XaStart { format_id, global_id, branch_qualifier, flags, timeout })
                    }
                    Verb::End(flags) => Request::End(XaEnd { format_id, global_id, branch_qualifier, flags }),
                    Verb::Prepare => Request::Prepare(XaPrepare { format_id, global_id, branch_qualifier }),
                    Verb::Commit { one_phase } => {
                        Request::Commit(XaCommit { format_id, global_id, branch_qualifier, one_phase })
                    }
                    Verb::Rollback => Request::Rollback(XaRollback { format_id, global_id, branch_qualifier }),
                    Verb::Forget => Request::Forget(XaForget { format_id, global_id, branch_qualifier }),
                }
            }
            Question::Recover { page } => {
                Request::Recover(XaRecover { after: self.found.last().map(Branch::xid), max: *page })
            }
            Question::Declare(_) => Request::Declare,
            Question::CommitAs(tx, counter) => {
                Request::TxCommit(TxCommit { txn_id: &tx.id, broker, session, counter: *counter })
            }
            Question::Status { counter, .. } => Request::TxStatus(TxStatus { broker, session, counter: *counter }),
        };
        self.controller.ask(client, &request)
    }

    /// True: one of these outcomes was for this link.
    pub(super) fn hear(&mut self, outcomes: &[DeliveryOutcome], state: Option<&DeliveryState<'_>>) -> Option<Said> {
        self.controller.hear(outcomes, state)
    }

    /// An answer came.
    pub(super) fn heard(
        &mut self,
        said: Said,
        identity: Identity,
        client: &mut Client,
        around: &mut Around<'_>,
    ) -> Result<(), Lost> {
        let Some(question) = self.asked.take() else { return Ok(()) };
        match (&question, &said) {
            (Question::Recover { .. }, Said::Code(0, page, more)) => {
                self.found.extend_from_slice(page);
                if *more {
                    self.put(&question, identity, client)?;
                    self.asked = Some(question);
                    return Ok(());
                }
                let names: Vec<String> = self.found.iter().map(Branch::name).collect();
                let event = Event::RecoverList { xids: Some(&names.join(" ")), broker: Some(&host_name(0)) };
                around.put(&event);
                self.answers.push(Said::Code(0, std::mem::take(&mut self.found), false));
                return Ok(());
            }
            (Question::Branch(subject, verb), Said::Declared(id)) => {
                tell(subject, *verb, Some(0), around);
                self.txs.push(Tx { number: subject.tx.unwrap_or(0), id: id.clone() });
            }
            (Question::Branch(subject, verb), Said::Code(code, ..)) => tell(subject, *verb, Some(*code), around),
            (Question::Declare(tx), Said::Declared(id)) => self.txs.push(Tx { number: *tx, id: id.clone() }),
            (Question::CommitAs(tx, _), Said::Done) => around.put(&Event::CommitOk { tx: tx.number }),
            (Question::CommitAs(tx, _), Said::Refused(_)) => around.put(&Event::RollbackOk { tx: tx.number }),
            (Question::Status { tx, .. }, Said::Became(TxOutcome::Committed)) => {
                around.put(&Event::CommitOk { tx: *tx });
            }
            (Question::Status { tx, .. }, Said::Became(TxOutcome::RolledBack)) => {
                around.put(&Event::RollbackOk { tx: *tx });
            }
            _ => {}
        }
        self.answers.push(said);
        Ok(())
    }

    /// The connection is gone, or its session.
    pub(super) fn lost(&mut self, around: &mut Around<'_>) {
        if let Some(Question::CommitAs(tx, _)) = self.asked.take() {
            around.put(&Event::CommitUnknown { tx: tx.number });
        }
        self.controller.lost();
    }

    /// Nothing is asked that has no answer.
    pub(super) fn is_answered(&self) -> bool {
        self.asked.is_none()
    }
}

/// Tells the history of a verb, or of its answer.
fn tell(subject: &Subject, verb: Verb, code: Option<i32>, around: &mut Around<'_>) {
    if subject.tx.is_some() {
        around.put(&Event::Xa { verb: verb.told(), xid: &subject.name.name(), code });
    }
}
