//! What operators want of transactions: lists, contents, decisions on branches in doubt. All but lists of local transactions and
//! contents are shard 0's, where branches are at home. Queues that are to go although such branches have work in them: `forced`.

mod forced;

use super::REGISTRY;
use crate::admin::{By, Command, RefusalKind, Reply, TxAct, TxContents, TxLost, TxMessage, TxPage, TxPart, TxReport};
use crate::mail::Body;
use crate::queues::Queues;
use crate::topology::refused;
use forced::Forced;
use packhorse_model::{ConnectionId, QueueId, TxnId, Xid};
use packhorse_queue::PartItem;
use packhorse_txn::state::State;
use packhorse_txn::{Act, Code, Control, Input, ReplyTo, View};
use std::collections::BTreeMap;

/// Stands for operators where a home wants to know who asks; no connection has it.
const OPERATORS: ConnectionId = ConnectionId(u64::MAX);

/// Branches looked at at a time, and for one page: those that are not in a wanted state take time too.
const PAGE: usize = 256;
const LOOKED_AT: usize = 16 * PAGE;

/// What operators wait for.
#[derive(Debug, Default)]
pub(super) struct Operators {
    last_question: u32,
    /// By question to this shard's home.
    questions: BTreeMap<u32, Question>,
    /// Commands about queues, by their ids, for which parts are rolled back first.
    forced: BTreeMap<u64, Forced>,
}

#[derive(Debug)]
enum Question {
    /// A branch is to be decided.
    Decide { id: u64, xid: Xid, act: TxAct },
    /// A part is to be rolled back, for this command.
    Force { id: u64, xid: Xid },
}

/// Whether an answer is for an operator.
pub(super) fn is_operators(to: Control) -> bool {
    to.connection == OPERATORS
}

impl Queues {
    /// Carries out a command about transactions, here or where it belongs.
    pub(crate) fn transaction_command(&mut self, id: u64, command: Command) {
        let home = match &command {
            Command::TxPart { queue, .. } => queue.owner(self.config.shards),
            Command::TxLocals { .. } => self.shard,
            _ => REGISTRY,
        };
        if home != self.shard {
            self.mail(home, Body::Admin { id, command });
            return;
        }
        let broker_ms = self.broker_ms();
        match command {
            Command::TxList { after, states, limit } => {
                let page = self.branches(after, &states, limit);
                self.reply(id, Reply::Transactions(page));
            }
            Command::TxLocals { limit } => {
                let views = self.transactions.home.locals(None, limit, broker_ms);
                let transactions = views.into_iter().map(|view| self.tx_report(view)).collect();
                self.reply(id, Reply::Transactions(TxPage { transactions, next: None }));
            }
            Command::TxShow { xid } => match self.transactions.home.branch(&xid, broker_ms) {
                Some(view) => {
                    let report = self.tx_report(view);
                    self.reply(id, Reply::Transaction(Box::new(report)));
                }
                None => self.reply(id, no_branch(&xid)),
            },
            Command::TxPart { txn, queue, from, limit } => {
                let reply = self.tx_contents(txn, queue, from, limit);
                self.reply(id, reply);
            }
            Command::TxDecide { xid, act, by } => self.decide(id, xid, act, by),
            _ => unreachable!("it is about transactions"),
        }
    }

    fn branches(&self, mut after: Option<Xid>, states: &[State], limit: usize) -> TxPage {
        let mut page = TxPage::default();
        for _ in 0..LOOKED_AT / PAGE {
            let views = self.transactions.home.branches(after.as_ref(), PAGE, self.broker_ms());
            let last = views.len() < PAGE;
            for view in views {
                let wanted = states.is_empty() || states.contains(&view.state);
                if wanted && page.transactions.len() >= limit {
                    page.next = after;
                    return page;
                }
                after = view.xid.clone();
                if wanted {
                    page.transactions.push(self.tx_report(view));
                }
            }
            if last {
                return page;
            }
        }
        page.next = after;
        page
    }

    /// Of what is decided only the decision is told: a start recovers no more.
    fn tx_report(&self, mut view: View) -> TxReport {
        if view.state.heuristic().is_some() {
            view.parts.clear();
        }
        let name = |queue: QueueId| self.directory.by_id(queue).map(|known| known.name.to_string());
        let parts = view.parts.iter().map(|(queue, part)| TxPart { queue: *queue, name: name(*queue), part: *part });
        let lost = view.lost.iter().map(|lost| TxLost {
            queue: lost.queue,
            name: name(lost.queue),
            by: By { who: lost.who.clone(), reason: lost.reason.clone() },
            wall_ms: lost.wall_ms,
        });
        TxReport { parts: parts.collect(), lost: lost.collect(), view }
    }

    /// A page of a part, which may be long.
    fn tx_contents(&self, txn: TxnId, id: QueueId, from: u64, limit: usize) -> Reply {
        let Some(slot) = self.slot(id) else {
            let detail = format!("there is no queue with id {id}: it was deleted");
            return refused(RefusalKind::NotFound, "queue-not-found", detail);
        };
        let queue = &self.held[slot as usize].queue;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let mut messages: Vec<TxMessage> =
            queue.part(txn, from, limit.saturating_add(1)).into_iter().map(message).collect();
        let more = messages.len() > limit;
        messages.truncate(limit);
        Reply::TxContents(TxContents { messages, more })
    }

    // ---- decisions ----

    fn decide(&mut self, id: u64, xid: Xid, act: TxAct, by: By) {
        if self.is_stopping() {
            self.reply(id, stopping());
            return;
        }
        let By { who, mut reason } = by;
        let act_of = match act {
            TxAct::Commit => Act::Commit,
            TxAct::Rollback => Act::Rollback,
            TxAct::Forget => Act::Forget,
        };
        if act == TxAct::Forget && reason.trim().is_empty() {
            reason = "no reason given".into();
        }
        self.operate(Question::Decide { id, xid: xid.clone(), act }, xid, act_of, who, reason);
    }

    fn operate(&mut self, question: Question, xid: Xid, act: Act, who: String, reason: String) {
        let operators = &mut self.transactions.operators;
        operators.last_question = operators.last_question.wrapping_add(1);
        let number = operators.last_question;
        operators.questions.insert(number, question);
        let control = Control { connection: OPERATORS, number: 0, shard: self.shard };
        let to = ReplyTo { control, question: number };
        self.home(Input::Operate { to, xid, act, who, reason });
    }

    /// The home has answered an operator's question.
    pub(super) fn operator_answered(&mut self, question: u32, reply: &packhorse_txn::Reply) {
        let code = reply.code();
        match self.transactions.operators.questions.remove(&question) {
            Some(Question::Decide { id, xid, act }) => {
                let branch = self.transactions.home.branch(&xid, self.broker_ms());
                let reply = match code {
                    Code::Ok => {
                        let report = branch.map(|view| Box::new(self.tx_report(view)));
                        Reply::Decided { branch: report.filter(|_| act != TxAct::Forget) }
                    }
                    code => not_decided(&xid, act, code, branch.as_ref()),
                };
                self.reply(id, reply);
            }
            Some(Question::Force { id, xid }) => self.forced_answered(id, xid, code),
            None => {}
        }
    }

    /// The broker is stopping: whoever waits is told.
    pub(crate) fn stop_operators(&mut self) {
        let operators = &mut self.transactions.operators;
        let deciding = std::mem::take(&mut operators.questions).into_values().filter_map(|question| match question {
            Question::Decide { id, .. } => Some(id),
            Question::Force { .. } => None,
        });
        let ids: Vec<u64> = deciding.chain(std::mem::take(&mut operators.forced).into_keys()).collect();
        for id in ids {
            self.reply(id, stopping());
        }
    }
}

fn message(item: PartItem) -> TxMessage {
    let (removes, head, length) = match item {
        PartItem::Add { head, length } => (None, head, length),
        PartItem::Remove { sequence, head, length } => (Some(sequence), head, length),
    };
    TxMessage { removes, length, priority: head.level(), persistent: head.persistent() }
}

fn no_branch(xid: &Xid) -> Reply {
    let detail = format!(
        "there is no branch {xid}: it was completed or forgotten, or never begun; the list of transactions has all that there are"
    );
    refused(RefusalKind::NotFound, "branch-not-found", detail)
}

fn stopping() -> Reply {
    let detail = "the broker is stopping; look after its next start what became of it".to_string();
    refused(RefusalKind::Unavailable, "broker-stopping", detail)
}

/// Why a branch was not decided, and what to do.
fn not_decided(xid: &Xid, act: TxAct, code: Code, branch: Option<&View>) -> Reply {
    let Some(branch) = branch.filter(|_| code != Code::NotThere) else { return no_branch(xid) };
    let is = branch.state.word();
    let (kind, code, detail) = match code {
        Code::Invalid => {
            let detail = format!("branch {xid}: a decision needs a name and a reason: say who decides, and why");
            (RefusalKind::Invalid, "reason-missing", detail)
        }
        Code::ResourceFailure => {
            let detail = format!(
                "branch {xid}: the store has failed, and whether this was decided is not known; look after the next start of the broker"
            );
            (RefusalKind::Unavailable, "store-failed", detail)
        }
        Code::ResourceError | Code::Retry => {
            let detail = format!("branch {xid} is {is}, and nothing can be decided now ({code}); try again soon");
            (RefusalKind::Unavailable, "branch-busy", detail)
        }
        _ if branch.state.heuristic().is_some() => {
            let by = branch.decided.as_ref();
            let by = by.map_or(String::new(), |audit| format!(" by {} ({})", audit.who, audit.reason));
            let detail = format!(
                "branch {xid} is {is} already{by}; a decision is made once; forget it when its transaction manager knows"
            );
            (RefusalKind::Conflict, "branch-decided", detail)
        }
        _ if branch.state == State::Prepared && act == TxAct::Forget => {
            let detail = format!(
                "branch {xid} is in doubt, and only what is decided can be forgotten; commit it or roll it back first"
            );
            (RefusalKind::Conflict, "branch-in-doubt", detail)
        }
        _ => {
            let detail = format!(
                "branch {xid} is {is}: only a prepared one can be decided by an operator; others end with their transaction manager, with their timeout, \
                 or with their connection"
            );
            (RefusalKind::Conflict, "branch-not-in-doubt", detail)
        }
    };
    refused(kind, code, detail)
}

impl Queues {
    /// An operator's decision as the log has it.
    pub(super) fn told(&self, audit: &packhorse_txn::Audit) -> String {
        let named = |id| match self.directory.by_id(id) {
            Some(known) => format!("queue \"{}\"", known.name),
            None => format!("the queue with id {id}"),
        };
        let view = self.transactions.home.branch(&audit.xid, self.broker_ms());
        let parts = view.map_or(Vec::new(), |view| view.parts);
        let sum = |figure: fn(&packhorse_txn::Part) -> u64| parts.iter().map(|(_, part)| figure(part)).sum::<u64>();
        let (adds, removes, queues) = (sum(|part| part.adds), sum(|part| part.removes), parts.len());
        let work = format!("{adds} messages added and {removes} removed in {queues} queues");
        let what = match audit.act {
            Act::Commit => format!("committed, with {work},"),
            Act::Rollback => format!("rolled back, with {work},"),
            Act::Forget => "forgotten".to_string(),
            Act::Force(id) => format!("rolled back in {} alone", named(id)),
        };
        format!("transaction {} {what} by operator {:?}: {:?}", audit.xid, audit.who, audit.reason)
    }
}
