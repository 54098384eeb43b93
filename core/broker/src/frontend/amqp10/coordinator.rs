//! Links to the coordinator of transactions: what they can do, requests that come on them, and the questions that go to homes.
//!
//! A request that ends work waits until what was posted before it is with its queue: a large message is staged when its file is
//! synced. Must not know what a transaction does. Answers are in `verdicts`, work in `transacted`.

use super::connection::{Connection, clip, generation, token};
use super::link::{Coordinator, Kind};
use super::open_txns::{Ask, Question};
use super::render::Refused;
use crate::io::Level;
use crate::queues::Queues;
use packhorse_amqp10::codec::{self, AttachTarget, DeliveryState, Error, Rejected, Symbols};
use packhorse_amqp10::engine::{AttachEvent, LinkReply, TransferEvent};
use packhorse_amqp10::message::MessageView;
use packhorse_amqp10::transaction::{self, Request, XaStart, flags};
use packhorse_model::{BrokerId, ClientSession, Token, Xid};
use packhorse_txn::state::Verb;
use packhorse_txn::{Code, Control, Input, ReplyTo, Scan, Start};
use std::sync::Arc;

/// What holds of every coordinator here.
const CAPABILITIES: [&str; 4] =
    ["amqp:local-transactions", "amqp:distributed-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn"];

/// Requests of one link that may be without an answer.
const CREDIT: u32 = 256;

/// The longest request, bytes; the largest that has a meaning has about 300.
const REQUEST_BYTES: u64 = 16 << 10;

/// Bytes of a disposition with a page of branches: those around it, and those of one branch at most.
const PAGE_OVERHEAD_BYTES: u32 = 128;
const BRANCH_BYTES: u32 = 160;

impl Connection {
    /// The peer attaches to the coordinator: nothing is looked up, no permission is needed, and no other link gives way, for
    /// transactions are their connection's.
    pub(super) fn attach_coordinator(&mut self, event: &AttachEvent<'_>) {
        let attach = event.frame.decode();
        let outcomes = attach.source.as_ref().map(|source| source.outcomes).unwrap_or_default();
        let rejects = outcomes.is_empty() || outcomes.contains("amqp:rejected:list");
        let kind = Kind::Coordinator(Box::new(Coordinator::new(rejects)));
        let token = self.insert(event.link, event.session, attach.name, kind);
        // The link is there: the engine just named it.
        let _ = self.engine.set_link_token(event.link, token);
        //= amqp10 4.5.7
        let capabilities = Symbols::from_slice(&CAPABILITIES);
        let reply = LinkReply {
            target: Some(AttachTarget::Coordinator(codec::Coordinator { capabilities })),
            max_message_size: REQUEST_BYTES,
            offered_capabilities: Symbols::from_slice(&[transaction::XA_CAPABILITY, transaction::STATUS_CAPABILITY]),
            empty_unsettled: true,
            ..LinkReply::default()
        };
        if self.engine.accept_link(event.link, &reply).is_ok() {
            self.renew_requests(token);
        }
    }

    /// Grants credit for as many requests as may be without an answer.
    fn renew_requests(&mut self, token: u64) {
        let Some(link) = self.link(token) else { return };
        if !matches!(link.kind, Kind::Coordinator(_)) {
            return;
        }
        let credit = CREDIT.saturating_sub(link.waiting);
        if self.engine.credit(link.id) <= credit / 2 {
            let _ = self.engine.grant(link.id, credit);
        }
    }

    /// A frame of a request.
    pub(super) fn on_request_frame(&mut self, queues: &mut Queues, transfer: &TransferEvent<'_>) {
        let (token, delivery) = (transfer.token, transfer.delivery_id);
        let Some(link) = self.link_mut(token) else { return };
        let Kind::Coordinator(coordinator) = &mut link.kind else { return };
        if transfer.aborted {
            coordinator.partial.clear();
            self.renew_requests(token);
            return;
        }
        if transfer.settled {
            //= amqp10 4.2 (^ what was sent settled can get no answer)
            let why = "a request to a coordinator must be sent unsettled: its outcome is its answer";
            self.fail_link(queues, token, &Refused::new("amqp:not-allowed", why));
            return;
        }
        if !(transfer.first && transfer.last) {
            coordinator.partial.extend_from_slice(transfer.payload);
        }
        if !transfer.last {
            return;
        }
        link.waiting += 1;
        if !coordinator.waiting.is_empty() {
            let mut message = std::mem::take(&mut coordinator.partial);
            if message.is_empty() {
                message.extend_from_slice(transfer.payload);
            }
            coordinator.waiting.push_back((delivery, message));
        } else if transfer.first {
            self.on_request(queues, token, delivery, transfer.payload);
        } else {
            let message = std::mem::take(&mut coordinator.partial);
            self.on_request(queues, token, delivery, &message);
        }
        self.renew_requests(token);
    }

    /// A whole request whose turn it is.
    fn on_request(&mut self, queues: &mut Queues, token: u64, delivery: u32, message: &[u8]) {
        if !self.try_request(queues, token, delivery, message)
            && let Some(Kind::Coordinator(coordinator)) = self.link_mut(token).map(|link| &mut link.kind)
        {
            coordinator.waiting.push_front((delivery, message.to_vec()));
        }
    }

    /// What requests waited for may have happened.
    pub(super) fn resume_requests(&mut self, queues: &mut Queues) {
        let waiting =
            self.links.iter().filter(|(_, link)| matches!(&link.kind, Kind::Coordinator(c) if !c.waiting.is_empty()));
        let tokens: Vec<u64> = waiting.map(|(i, link)| token(i as u32, link.generation)).collect();
        for token in tokens {
            while let Some(Kind::Coordinator(coordinator)) = self.link_mut(token).map(|link| &mut link.kind)
                && let Some((delivery, message)) = coordinator.waiting.pop_front()
            {
                if !self.try_request(queues, token, delivery, &message) {
                    if let Some(Kind::Coordinator(coordinator)) = self.link_mut(token).map(|link| &mut link.kind) {
                        coordinator.waiting.push_front((delivery, message));
                    }
                    break;
                }
            }
        }
    }

    /// Asks what the request says. False: not yet.
    fn try_request(&mut self, queues: &mut Queues, token: u64, delivery: u32, message: &[u8]) -> bool {
        let limits = self.limits;
        let view = match MessageView::parse(message, &limits) {
            Ok(view) => view,
            Err(error) => {
                let why = Refused::new(error.condition(), error.to_string());
                self.refuse_request(queues, token, delivery, &why);
                return true;
            }
        };
        let request = match Request::read(&view, &limits) {
            Ok(request) => request,
            Err(error) => {
                let why = Refused::new(error.condition(), error.to_string());
                self.refuse_request(queues, token, delivery, &why);
                return true;
            }
        };
        match request {
            Request::Declare => {
                let to = self.question(token, delivery, Ask::Declare);
                queues.transact(Input::Declare { to, client: Arc::from(self.container.as_str()) });
            }
            Request::Discharge(discharge) => {
                return self.discharge(queues, token, delivery, discharge.txn_id, discharge.fail, None);
            }
            Request::TxCommit(commit) => {
                let broker = BrokerId(commit.broker);
                if broker != queues.broker {
                    let why = "the commit is named after another broker: take the packhorse:broker of this one's open";
                    self.refuse_request(queues, token, delivery, &Refused::new("amqp:precondition-failed", why));
                    return true;
                }
                let name = Token { broker, session: ClientSession(commit.session), counter: commit.counter };
                return self.discharge(queues, token, delivery, commit.txn_id, false, Some(name));
            }
            Request::TxStatus(status) => {
                let to = self.question(token, delivery, Ask::Status);
                let (broker, session) = (BrokerId(status.broker), ClientSession(status.session));
                queues.tx_status(to, Token { broker, session, counter: status.counter });
            }
            Request::Recover(recover) => {
                let after = match recover.after.map(|x| Xid::new(x.format_id, x.global_id, x.branch_qualifier)) {
                    None => None,
                    Some(Ok(xid)) => Some(xid),
                    Some(Err(error)) => {
                        self.say_result(token, delivery, Code::Invalid, Some(&error.to_string()));
                        return true;
                    }
                };
                let fit = self.engine.peer_max_frame_size().saturating_sub(PAGE_OVERHEAD_BYTES) / BRANCH_BYTES;
                let max = recover.max.min(fit).max(1);
                let to = self.question(token, delivery, Ask::Recover);
                queues.transact(Input::Recover { to, scan: Scan::After(after), max });
            }
            Request::Start(start) => self.start(queues, token, delivery, &start),
            Request::End(end) => {
                let verb = match end.flags {
                    flags::SUCCESS => Verb::End,
                    flags::SUSPEND => Verb::Suspend,
                    flags::FAIL => Verb::Fail,
                    _ => {
                        self.bad_flags(token, delivery, end.flags);
                        return true;
                    }
                };
                return match self.xid(token, delivery, end.format_id, end.global_id, end.branch_qualifier) {
                    Some(xid) => self.end_work(queues, token, delivery, xid, verb),
                    None => true,
                };
            }
            Request::Prepare(x) => {
                let xid = self.xid(token, delivery, x.format_id, x.global_id, x.branch_qualifier);
                self.decide(queues, token, delivery, xid, Verb::Prepare);
            }
            Request::Commit(x) => {
                let xid = self.xid(token, delivery, x.format_id, x.global_id, x.branch_qualifier);
                let verb = if x.one_phase { Verb::CommitOnePhase } else { Verb::Commit };
                self.decide(queues, token, delivery, xid, verb);
            }
            Request::Rollback(x) => {
                let xid = self.xid(token, delivery, x.format_id, x.global_id, x.branch_qualifier);
                self.decide(queues, token, delivery, xid, Verb::Rollback);
            }
            Request::Forget(x) => {
                let xid = self.xid(token, delivery, x.format_id, x.global_id, x.branch_qualifier);
                self.decide(queues, token, delivery, xid, Verb::Forget);
            }
        }
        true
    }

    /// A transaction known by its id is to end.
    fn discharge(
        &mut self,
        queues: &mut Queues,
        token: u64,
        delivery: u32,
        id: &[u8],
        fail: bool,
        name: Option<Token>,
    ) -> bool {
        let found = self.txns.resolve(id).and_then(|epoch| Some((epoch, self.txns.get(epoch)?)));
        let Some((epoch, open)) = found else {
            self.refuse_request(queues, token, delivery, &unknown_id(id));
            return true;
        };
        let (txn, control, branch) = (open.txn, self.control(open.control), open.xid.is_some());
        if branch && name.is_some() {
            let why = "tx-commit is for local transactions: a branch is committed by its xid";
            self.refuse_request(queues, token, delivery, &Refused::new("amqp:not-allowed", why));
            return true;
        }
        if !fail && self.amid_posting(epoch) {
            self.half_posted(queues, token);
            return true;
        }
        if self.awaits_posting(epoch) {
            return false;
        }
        self.txns.close(epoch);
        self.stop_acquiring(queues, epoch);
        let to = self.question(token, delivery, Ask::Discharge { epoch, fail });
        // It ends in the name of the link that began it.
        queues.transact(Input::Discharge { to: ReplyTo { control, ..to }, txn, fail, token: name });
        true
    }

    /// A posting of the transaction is not complete: neither all of it nor none of it can be committed.
    fn half_posted(&mut self, queues: &mut Queues, token: u64) {
        //= amqp10 4.4.1
        let why = "a delivery in the transaction is not complete: its end cannot be asked for before the last frame";
        self.fail_link(queues, token, &Refused::new("amqp:transaction:rollback", why));
    }

    fn start(&mut self, queues: &mut Queues, token: u64, delivery: u32, start: &XaStart<'_>) {
        let verb = match start.flags {
            flags::NONE => Verb::Start,
            flags::JOIN => Verb::Join,
            flags::RESUME => Verb::Resume,
            other => return self.bad_flags(token, delivery, other),
        };
        let Some(xid) = self.xid(token, delivery, start.format_id, start.global_id, start.branch_qualifier) else {
            return;
        };
        let start = Start {
            timeout_ms: start.timeout,
            local_work: self.txns.local_work(token),
            client: Arc::from(self.container.as_str()),
        };
        let to = self.question(token, delivery, Ask::Start { xid: xid.clone() });
        queues.transact(Input::Xa { to, xid, verb, start: Some(start) });
    }

    /// The work of this link in a branch ends, rests or has failed. False: not yet.
    fn end_work(&mut self, queues: &mut Queues, token: u64, delivery: u32, xid: Xid, verb: Verb) -> bool {
        let epoch = self.txns.of_branch(token, &xid);
        if let Some(epoch) = epoch {
            if verb != Verb::Fail && self.amid_posting(epoch) {
                self.half_posted(queues, token);
                return true;
            }
            if self.awaits_posting(epoch) {
                return false;
            }
            self.txns.close(epoch);
            self.stop_acquiring(queues, epoch);
        }
        let to = self.question(token, delivery, Ask::End { xid: xid.clone(), epoch });
        queues.transact(Input::Xa { to, xid, verb, start: None });
        true
    }

    fn decide(&mut self, queues: &mut Queues, token: u64, delivery: u32, xid: Option<Xid>, verb: Verb) {
        let Some(xid) = xid else { return };
        let to = self.question(token, delivery, Ask::Decide { xid: xid.clone(), verb });
        queues.transact(Input::Xa { to, xid, verb, start: None });
    }

    /// The name of a branch; one that is none is answered.
    fn xid(&mut self, token: u64, delivery: u32, format: i32, global: &[u8], qualifier: &[u8]) -> Option<Xid> {
        match Xid::new(format, global, qualifier) {
            Ok(xid) => Some(xid),
            Err(error) => {
                self.say_result(token, delivery, Code::Invalid, Some(&error.to_string()));
                None
            }
        }
    }

    fn bad_flags(&mut self, token: u64, delivery: u32, flags: u32) {
        self.say_result(token, delivery, Code::Invalid, Some(&format!("flags 0x{flags:08x} say nothing here")));
    }

    fn question(&mut self, token: u64, delivery: u32, ask: Ask) -> ReplyTo {
        let question = self.txns.ask(Question { link: token, delivery, ask });
        ReplyTo { control: self.control(token), question }
    }

    /// A link to the coordinator, as homes know it.
    pub(super) fn control(&self, token: u64) -> Control {
        Control { connection: self.id, number: generation(token), shard: self.me.shard }
    }

    // ---- answers ----

    /// Says no to a request, by its outcome if the link has such a one, else by its end.
    pub(super) fn refuse_request(&mut self, queues: &mut Queues, token: u64, delivery: u32, why: &Refused) {
        //= amqp10 4.2, 4.3
        let Some(link) = self.link(token) else { return };
        if matches!(&link.kind, Kind::Coordinator(coordinator) if !coordinator.rejects) {
            self.fail_link(queues, token, why);
            return;
        }
        let text = format!("a request for a transaction was refused: {}: {}", why.condition, clip(&why.why));
        queues.log(Level::Info, Some(self.id), text);
        let error = Error { condition: why.condition, description: Some(&why.why), info: None };
        self.say(token, delivery, &DeliveryState::Rejected(Rejected { error: Some(error) }));
    }

    /// Answers a request.
    pub(super) fn say(&mut self, token: u64, delivery: u32, state: &DeliveryState<'_>) {
        self.settle(token, delivery, state);
        self.answered(token, 1);
        self.renew_requests(token);
    }

    // ---- the end ----

    /// A link to the coordinator is over: what it began and nobody has asked to end is rolled back.
    pub(super) fn coordinator_goes(&mut self, queues: &mut Queues, token: u64, coordinator: &Coordinator) {
        // What was not asked will not be, and gets no answer.
        self.answered(token, coordinator.waiting.len() as u32);
        queues.transact(Input::ControlLost { control: self.control(token) });
        for (epoch, open) in self.txns.lose(token) {
            self.stop_acquiring(queues, epoch);
            self.finish(queues, open.held, false);
        }
    }
}

pub(super) fn unknown_id(id: &[u8]) -> Refused {
    let hex: String = id.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    let why = format!("txn-id {hex} is of no transaction that takes work on this connection");
    Refused::new("amqp:transaction:unknown-id", why)
}
