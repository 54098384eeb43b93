//! What operators want of transactions: lists, contents, decisions on branches in doubt, and queues that are to go although such
//! branches have work in them. All but lists of local transactions and contents are shard 0's, where branches are at home.

use super::REGISTRY;
use crate::admin::{
    By, Command, RefusalKind, Reply, TxAct, TxAdd, TxContents, TxCursor, TxLost, TxPage, TxPart, TxRemove, TxReport,
};
use crate::mail::Body;
use crate::queues::Queues;
use crate::topology::refused;
use packhorse_model::{ConnectionId, QueueId, ShardId, TxnId, Xid};
use packhorse_queue::PartItem;
use packhorse_txn::state::State;
use packhorse_txn::{Act, Code, Control, Input, ReplyTo, View};
use std::collections::BTreeMap;

/// Stands for operators where a home wants to know who asks; no connection has it.
const OPERATORS: ConnectionId = ConnectionId(u64::MAX);

/// Branches looked at in one step.
const PAGE: usize = 256;

/// Xids that an error names.
const NAMED: usize = 5;

/// What operators wait for.
#[derive(Debug, Default)]
pub(super) struct Operators {
    last_question: u32,
    /// By question to this shard's home.
    questions: BTreeMap<u32, Question>,
    /// Queues to be deleted by the commands' ids, when their parts are rolled back.
    forcing: BTreeMap<u64, Forcing>,
}

#[derive(Debug)]
enum Question {
    /// A branch is to be decided.
    Decide { id: u64, xid: Xid, act: TxAct },
    /// A part is to be rolled back, for this command.
    Force { id: u64, xid: Xid },
}

/// A queue that is to go.
#[derive(Debug)]
struct Forcing {
    owner: ShardId,
    name: String,
    by: By,
    /// Branches that have not been answered for.
    left: u64,
    /// Those whose part is rolled back.
    done: u64,
    /// The latest that was refused.
    failed: Option<(Xid, Code)>,
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
            Command::TxPart { txn, queue, after, limit } => {
                let reply = self.tx_contents(txn, queue, after, limit);
                self.reply(id, reply);
            }
            Command::TxDecide { xid, act, by } => self.decide(id, xid, act, by),
            _ => unreachable!("it is about transactions"),
        }
    }

    fn branches(&self, mut after: Option<Xid>, states: &[State], limit: usize) -> TxPage {
        let mut page = TxPage::default();
        loop {
            let views = self.transactions.home.branches(after.as_ref(), PAGE, self.broker_ms());
            let last = views.len() < PAGE;
            after = views.last().and_then(|view| view.xid.clone());
            for view in views.into_iter().filter(|view| states.is_empty() || states.contains(&view.state)) {
                if page.transactions.len() >= limit {
                    page.next = page.transactions.last().and_then(|report| report.view.xid.clone());
                    return page;
                }
                page.transactions.push(self.tx_report(view));
            }
            if last {
                return page;
            }
        }
    }

    fn tx_report(&self, view: View) -> TxReport {
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

    /// A page of a part, which may be long: looked for from its beginning.
    fn tx_contents(&self, txn: TxnId, id: QueueId, after: Option<TxCursor>, limit: usize) -> Reply {
        let Some(slot) = self.slot(id) else {
            let detail = format!("there is no queue with id {id}");
            return refused(RefusalKind::NotFound, "queue-not-found", detail);
        };
        let queue = &self.held[slot as usize].queue;
        if !queue.transactions().any(|known| known == txn) {
            let detail = format!("transaction {txn} has nothing in queue \"{}\"", queue.name());
            return refused(RefusalKind::NotFound, "transaction-not-found", detail);
        }
        let mut contents = TxContents::default();
        let (mut index, mut removes) = (0, Vec::new());
        for item in queue.part(txn, 0, usize::MAX) {
            match item {
                PartItem::Add { head, length } => {
                    let (priority, persistent) = (head.level(), head.persistent());
                    let add = TxAdd { index, length, priority, persistent };
                    index += 1;
                    if after < Some(TxCursor::Add(add.index)) || after.is_none() {
                        contents.adds.push(add);
                    }
                }
                PartItem::Remove { sequence, head, length } => {
                    let (priority, persistent) = (head.level(), head.persistent());
                    if after.is_none_or(|after| after < TxCursor::Remove(sequence)) {
                        removes.push(TxRemove { sequence, length, priority, persistent });
                    }
                }
            }
        }
        removes.sort_unstable_by_key(|remove| remove.sequence);
        contents.more = contents.adds.len() + removes.len() > limit;
        contents.adds.truncate(limit);
        removes.truncate(limit - contents.adds.len());
        contents.removes = removes;
        Reply::TxContents(contents)
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
                    code => not_decided(&xid, code, branch.map(|view| view.state)),
                };
                self.reply(id, reply);
            }
            Some(Question::Force { id, xid }) => {
                if let Some(forcing) = self.transactions.operators.forcing.get_mut(&id) {
                    forcing.left -= 1;
                    forcing.done += u64::from(code == Code::Ok);
                    if code != Code::Ok {
                        forcing.failed = Some((xid, code));
                    }
                }
                self.go_on_deleting(id);
            }
            None => {}
        }
    }

    // ---- queues that are to go ----

    /// Branches in doubt have work in a queue that an operator wants to delete: it is refused, or, with a name and a reason, their
    /// work there is rolled back.
    pub(crate) fn queue_in_doubt(&mut self, id: u64, queue: QueueId, name: String, by: Option<By>) {
        if self.shard != REGISTRY {
            self.mail(REGISTRY, Body::QueueInDoubt { id, queue, name, by });
            return;
        }
        let xids = self.in_doubt_with(queue);
        let by = by.filter(|by| !by.who.trim().is_empty() && !by.reason.trim().is_empty());
        let Some(by) = by.filter(|_| !xids.is_empty()) else {
            let named: Vec<String> = xids.iter().take(NAMED).map(Xid::to_string).collect();
            let more = if xids.len() > NAMED { ", …" } else { "" };
            let detail = format!(
                "queue \"{name}\" holds work of {} branches in doubt ({}{more}); decide them first, or delete with force, a name and \
                 a reason: their work in this queue is rolled back then",
                xids.len(),
                named.join(", ")
            );
            self.reply(id, refused(RefusalKind::Conflict, "queue-in-doubt", detail));
            return;
        };
        let owner = queue.owner(self.config.shards);
        let forcing = Forcing { owner, name, by: by.clone(), left: xids.len() as u64, done: 0, failed: None };
        self.transactions.operators.forcing.insert(id, forcing);
        for xid in xids {
            self.operate(
                Question::Force { id, xid: xid.clone() },
                xid,
                Act::Force(queue),
                by.who.clone(),
                by.reason.clone(),
            );
        }
    }

    /// Branches in doubt with a part in this queue.
    fn in_doubt_with(&self, queue: QueueId) -> Vec<Xid> {
        let mut found = Vec::new();
        let mut after: Option<Xid> = None;
        loop {
            let views = self.transactions.home.branches(after.as_ref(), PAGE, self.broker_ms());
            let last = views.len() < PAGE;
            after = views.last().and_then(|view| view.xid.clone());
            let in_doubt = |view: &View| matches!(view.state, State::Prepared | State::Deciding);
            let with = views.into_iter().filter(|view| in_doubt(view) && view.parts.iter().any(|(q, _)| *q == queue));
            found.extend(with.filter_map(|view| view.xid));
            if last {
                return found;
            }
        }
    }

    /// When all parts are rolled back, the queue is deleted.
    fn go_on_deleting(&mut self, id: u64) {
        let Some(Forcing { left: 0, .. }) = self.transactions.operators.forcing.get(&id) else { return };
        let Some(Forcing { owner, name, by, done, failed, .. }) = self.transactions.operators.forcing.remove(&id)
        else {
            return;
        };
        if done == 0
            && let Some((xid, code)) = failed
        {
            let detail = format!("queue \"{name}\": the work of branch {xid} in it could not be rolled back: {code}");
            self.reply(id, refused(RefusalKind::Conflict, "queue-in-doubt", detail));
            return;
        }
        // What the homes said to the queue is there before this.
        let command = Command::QueueDelete { name, force: true, by: Some(by) };
        if owner == self.shard {
            self.command(id, command);
        } else {
            self.mail(owner, Body::Admin { id, command });
        }
    }

    /// The broker is stopping: whoever waits is told.
    pub(crate) fn stop_operators(&mut self) {
        let operators = &mut self.transactions.operators;
        let deciding = std::mem::take(&mut operators.questions).into_values().filter_map(|question| match question {
            Question::Decide { id, .. } => Some(id),
            Question::Force { .. } => None,
        });
        let ids: Vec<u64> = deciding.chain(std::mem::take(&mut operators.forcing).into_keys()).collect();
        for id in ids {
            self.reply(id, stopping());
        }
    }
}

fn no_branch(xid: &Xid) -> Reply {
    refused(RefusalKind::NotFound, "transaction-not-found", format!("there is no branch {xid}"))
}

fn stopping() -> Reply {
    let detail = "the broker is stopping; ask again after its next start what became of it".to_string();
    refused(RefusalKind::Unavailable, "broker-stopping", detail)
}

/// Why a branch was not decided.
fn not_decided(xid: &Xid, code: Code, state: Option<State>) -> Reply {
    let is = state.map_or("gone", State::word);
    match code {
        Code::NotThere => no_branch(xid),
        Code::Invalid => {
            let detail = format!("branch {xid}: say who decides, and why");
            refused(RefusalKind::Invalid, "reason-missing", detail)
        }
        Code::ResourceError | Code::ResourceFailure | Code::Retry => {
            let detail = format!("branch {xid} is {is}: nothing can be decided now ({code}); try again later");
            refused(RefusalKind::Unavailable, "not-decided", detail)
        }
        code => {
            let detail = format!("branch {xid} is {is}: that cannot be done now ({code})");
            refused(RefusalKind::Conflict, "transaction-state", detail)
        }
    }
}
