//! Answers of homes to a connection's questions, in the words of the standard or of XA.

use super::connection::Connection;
use super::link::Kind;
use super::open_txns::{Ask, Question};
use super::render::Refused;
use crate::io::Level;
use crate::queues::Queues;
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{Declared, DeliveryState, Value};
use packhorse_amqp10::transaction::{TxOutcome, TxStatusResult, XaResult, XaXid, as_state, write_xids};
use packhorse_model::{TxnId, Xid};
use packhorse_txn::state::Verb;
use packhorse_txn::{Cause, Code, NoWork, Page, Reply, TxStatus};

impl Connection {
    /// The home of a transaction answers a question.
    pub(crate) fn on_txn_reply(&mut self, queues: &mut Queues, question: u32, reply: Reply) {
        let Some(Question { link, delivery, ask }) = self.txns.answered(question) else { return };
        if reply == Reply::InDoubt && !matches!(ask, Ask::Decide { .. } | Ask::End { .. } | Ask::Start { .. }) {
            // The process ends. The standard has no words for it, and each that it has would be taken for an outcome: the end of
            // the connection tells the client that it does not know.
            return;
        }
        match ask {
            Ask::Declare => match reply {
                Reply::Declared(txn) => self.say_declared(link, delivery, txn, None),
                other => self.refuse_request(queues, link, delivery, &refused(&other)),
            },
            Ask::Start { xid } => match reply {
                Reply::Started(txn) => self.say_declared(link, delivery, txn, Some(xid)),
                other => self.say_reply(link, delivery, &other),
            },
            Ask::Discharge { epoch, fail } => {
                let held = self.txns.remove(epoch).map(|open| open.held).unwrap_or_default();
                let committed = reply.code() == Code::Ok && !fail;
                self.finish(queues, held, committed);
                // What has been rolled back already is rolled back.
                let undone = matches!(reply, Reply::RolledBack(_)) || is_rolled_back(reply.code());
                if reply.code() == Code::Ok || fail && undone {
                    self.say(link, delivery, &DeliveryState::Accepted);
                } else {
                    self.refuse_request(queues, link, delivery, &refused(&reply));
                }
            }
            Ask::End { xid, epoch } => {
                if let Some(open) = epoch.and_then(|epoch| self.txns.remove(epoch)) {
                    self.txns.wait_for(xid.clone(), open.held);
                }
                if is_rolled_back(reply.code()) {
                    let held = self.txns.take_ended(&xid);
                    self.finish(queues, held, false);
                }
                self.say_reply(link, delivery, &reply);
            }
            Ask::Decide { xid, verb } => {
                self.decided(queues, &xid, verb, reply.code());
                self.say_reply(link, delivery, &reply);
            }
            Ask::Recover => match reply {
                Reply::Xids(page) => self.say_page(link, delivery, &page),
                other => self.say_reply(link, delivery, &other),
            },
            // Not a home's to answer.
            Ask::Status => debug_assert!(false, "the table of client sessions answers"),
        }
    }

    /// What waited here for the outcome of a branch happens, or does not.
    fn decided(&mut self, queues: &mut Queues, xid: &Xid, verb: Verb, code: Code) {
        let committed = match (verb, code) {
            (Verb::Commit | Verb::CommitOnePhase, Code::Ok)
            | (Verb::Prepare, Code::ReadOnly)
            | (_, Code::HeuristicCommitted) => true,
            (Verb::Rollback, Code::Ok) | (_, Code::NotThere | Code::HeuristicRolledBack | Code::HeuristicMixed) => {
                false
            }
            (_, code) if is_rolled_back(code) => false,
            _ => return,
        };
        let held = self.txns.take_ended(xid);
        self.finish(queues, held, committed);
    }

    /// What became of a commit that was asked for. All other connections of its session are closed.
    pub(crate) fn on_tx_status(&mut self, question: u32, status: TxStatus) {
        let Some(Question { link, delivery, ask: Ask::Status }) = self.txns.answered(question) else { return };
        let outcome = match status {
            TxStatus::Committed => TxOutcome::Committed,
            TxStatus::RolledBack => TxOutcome::RolledBack,
            TxStatus::NotMine => TxOutcome::NotMine,
            TxStatus::Expired => TxOutcome::Expired,
        };
        let mut bytes = Vec::new();
        TxStatusResult { outcome }.encode(&mut bytes);
        self.say_ours(link, delivery, &bytes);
    }

    /// Work in a transaction was refused, after it was answered: the answer to the transaction's end tells.
    pub(crate) fn on_txn_refused(&mut self, queues: &mut Queues, txn: TxnId, why: &NoWork) {
        let why = no_work(why);
        queues.log(Level::Info, Some(self.id), format!("work in transaction {txn} was refused: {}", why.why));
    }

    fn say_declared(&mut self, link: u64, delivery: u32, txn: TxnId, xid: Option<Xid>) {
        if !matches!(self.link(link).map(|link| &link.kind), Some(Kind::Coordinator(_))) {
            // The link has gone meanwhile, and its transactions with it.
            self.answered(link, 1);
            return;
        }
        let id = self.txns.insert(txn, link, xid);
        self.say(link, delivery, &DeliveryState::Declared(Declared { txn_id: &id }));
    }

    /// Any answer as a code of XA.
    fn say_reply(&mut self, link: u64, delivery: u32, reply: &Reply) {
        let code = reply.code();
        let words = match reply {
            Reply::Refused(refusal) => Some(refusal.to_string()),
            _ if code == Code::Ok => None,
            _ => Some(code.name().to_string()),
        };
        self.say_result(link, delivery, code, words.as_deref());
    }

    /// A code of XA.
    pub(super) fn say_result(&mut self, link: u64, delivery: u32, code: Code, description: Option<&str>) {
        let mut bytes = Vec::new();
        XaResult { code: code.wire(), xids: None, more: false, description }.encode(&mut bytes);
        self.say_ours(link, delivery, &bytes);
    }

    fn say_page(&mut self, link: u64, delivery: u32, page: &Page) {
        let names = page.xids.iter().map(|xid| XaXid {
            format_id: xid.format_id(),
            global_id: xid.global(),
            branch_qualifier: xid.qualifier(),
        });
        let (mut list, mut bytes) = (Vec::new(), Vec::new());
        write_xids(&mut list, names);
        let xids = Value::from_encoded(&list, &Limits::default()).ok().and_then(|list| list.as_list());
        debug_assert!(xids.is_some(), "what was just encoded is a list");
        XaResult { code: Code::Ok.wire(), xids, more: page.more, description: None }.encode(&mut bytes);
        self.say_ours(link, delivery, &bytes);
    }

    fn say_ours(&mut self, link: u64, delivery: u32, bytes: &[u8]) {
        match as_state(bytes, &Limits::default()) {
            Ok(state) => self.say(link, delivery, &state),
            Err(fault) => debug_assert!(false, "what was just encoded is a value: {fault}"),
        }
    }
}

fn is_rolled_back(code: Code) -> bool {
    (100..=107).contains(&code.wire())
}

/// An answer in the standard's words. Only for those that are no success.
fn refused(reply: &Reply) -> Refused {
    match reply {
        Reply::Refused(refusal) => Refused::new("amqp:resource-limit-exceeded", refusal.to_string()),
        Reply::Unknown => Refused::new("amqp:transaction:unknown-id", "there is no such transaction"),
        Reply::RolledBack(cause) => rolled_back(*cause),
        Reply::Code(Code::RolledBackTimeout) => rolled_back(Cause::Timeout),
        Reply::Code(Code::NotThere) => Refused::new("amqp:transaction:unknown-id", "there is no such branch"),
        reply => {
            let why = format!("the transaction was not committed: {}", reply.code());
            Refused::new("amqp:transaction:rollback", why)
        }
    }
}

fn rolled_back(cause: Cause) -> Refused {
    //= amqp10 4.5.9
    let condition = if cause == Cause::Timeout { "amqp:transaction:timeout" } else { "amqp:transaction:rollback" };
    Refused::new(condition, format!("the transaction was rolled back: {cause}"))
}

/// Why work is not taken, in the standard's words.
pub(super) fn no_work(why: &NoWork) -> Refused {
    match why {
        NoWork::Unknown => Refused::new("amqp:transaction:unknown-id", "there is no such transaction"),
        NoWork::RolledBack(cause) => rolled_back(*cause),
        NoWork::Limit(refusal) => Refused::new("amqp:resource-limit-exceeded", refusal.to_string()),
    }
}
