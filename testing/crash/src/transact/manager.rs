//! A client with a link to the coordinator: it starts, works in, prepares and decides branches, and commits local transactions. Each call
//! waits for its answer, so that a test says what happens in which order.
//!
//! Must not know: what should have been answered. Branches are known by their global id; format and qualifier are always the same.

use crate::books;
use crate::load::{misuse, read};
use crate::wire::{Broken, Wire};
use packhorse_client_core::codec::{
    Attach, AttachTarget, Discharge, ReceiverSettleMode, Role, Source, Symbols, Target, TerminusDurability,
};
use packhorse_client_core::transaction::{
    Request, TxCommit, TxOutcome, TxStatus, XaCommit, XaEnd, XaForget, XaPrepare, XaRecover, XaRollback, XaStart, XaXid,
};
use packhorse_client_core::{
    Body, Client, Commits, ControllerOptions, Decision, Draft, Event, Joiner, Limits, LinkId, Options, Piece,
    ReceiverOptions, SenderOptions, SenderSettleMode, SessionId, Verdict, broker_id, response,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a turn waits.
const TURN: Duration = Duration::from_millis(20);
const FORMAT: i32 = 1;
const QUALIFIER: &[u8] = b"b";
/// The producer in the bodies of a [`Manager`].
const PRODUCER: u32 = 7;
/// Bytes of these bodies.
const SIZE: usize = 100;

/// What a coordinator or a queue said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The id to work under.
    Declared(Vec<u8>),
    /// It is done.
    Accepted,
    /// It is not, for this condition.
    Rejected(String),
    /// In a transaction, it will be.
    Staged,
    /// A code of XA.
    Code(i32),
    /// What became of a commit.
    Status(TxOutcome),
    /// Nothing that is known here.
    Other,
}

/// A message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// The link that it came on.
    pub link: LinkId,
    /// Its delivery.
    pub delivery: u32,
    /// Its number.
    pub number: u64,
    /// Earlier deliveries, as its header says.
    pub deliveries: u32,
}

/// What has come and nobody has asked for yet.
#[derive(Debug, Default)]
struct Heap {
    answers: BTreeMap<u64, Answer>,
    /// Of the last page of `recover`.
    page: Vec<String>,
    more: bool,
    messages: Vec<Got>,
    joiners: BTreeMap<u64, Joiner>,
    /// Links that have no more, by token.
    drained: BTreeSet<u64>,
    settled: BTreeSet<u32>,
}

impl Heap {
    fn take(&mut self, client: &Client, event: Event<'_>) -> Result<(), Broken> {
        match event {
            Event::Outcomes { state } => {
                for outcome in client.outcomes().iter().filter(|outcome| !outcome.repeated) {
                    let answer = match outcome.state {
                        Decision::Transactional => Answer::Staged,
                        _ => self.read(response(state.as_ref())),
                    };
                    self.answers.insert(outcome.token, answer);
                }
            }
            Event::Message(transfer) => {
                let joiner = self.joiners.entry(transfer.token).or_default();
                if let Some(bytes) = joiner.push(&transfer) {
                    let (_, number, deliveries) = read(bytes).map_err(Broken::Refused)?;
                    self.messages.push(Got { link: transfer.link, delivery: transfer.delivery_id, number, deliveries });
                }
            }
            Event::Drained { token, .. } => {
                self.drained.insert(token);
            }
            Event::Confirmed => self.settled.extend(client.outcomes().iter().map(|outcome| outcome.delivery_id)),
            _ => {}
        }
        Ok(())
    }

    fn read(&mut self, response: packhorse_client_core::transaction::Response<'_>) -> Answer {
        use packhorse_client_core::transaction::Response as R;
        match response {
            R::Declared(id) => Answer::Declared(id.to_vec()),
            R::Accepted => Answer::Accepted,
            R::Rejected(error) => Answer::Rejected(error.map_or(String::new(), |error| error.condition.to_owned())),
            R::Result(result) => {
                self.more = result.more;
                for value in result.xids.iter().flat_map(|xids| xids.iter()) {
                    if let Ok((xid, _)) = XaXid::decode(value.as_bytes(), &Limits::default()) {
                        self.page.push(global_id(&xid));
                    }
                }
                Answer::Code(result.code)
            }
            R::Status(outcome) => Answer::Status(outcome),
            R::Other => Answer::Other,
        }
    }
}

/// See the module.
pub struct Manager {
    wire: Wire,
    session: SessionId,
    control: LinkId,
    broker: [u8; 16],
    commits: Option<Commits>,
    heap: Heap,
    next: u64,
    senders: BTreeMap<String, LinkId>,
    tokens: BTreeMap<LinkId, u64>,
}

impl Manager {
    /// Connects, and attaches a link to the coordinator.
    pub fn open(to: SocketAddr, name: &str) -> Result<Manager, Broken> {
        Manager::open_as(to, name, None)
    }

    /// As [`Manager::open`], with a name for its commits.
    pub fn open_as(to: SocketAddr, name: &str, commits: Option<Commits>) -> Result<Manager, Broken> {
        let options = Options { container_id: name.into(), commits, ..Options::default() };
        let mut broker = None;
        let (mut wire, session) = Wire::open_with(to, options, |open| broker = broker_id(open))?;
        let control = wire
            .client
            .controller(session, &ControllerOptions { name: "control", xa: true, token: 0 })
            .map_err(misuse)?;
        let broker = broker.ok_or_else(|| Broken::Refused("the broker does not say which one it is".into()))?;
        let (senders, tokens) = (BTreeMap::new(), BTreeMap::new());
        Ok(Manager { wire, session, control, broker, commits, heap: Heap::default(), next: 1, senders, tokens })
    }

    /// Another link to the coordinator, on which requests go from now on: a thread of control of its own.
    pub fn another_control(&mut self) -> Result<LinkId, Broken> {
        let token = self.token();
        let name = format!("control-{token}");
        let options = ControllerOptions { name: &name, xa: true, token };
        let link = self.wire.client.controller(self.session, &options).map_err(misuse)?;
        Ok(std::mem::replace(&mut self.control, link))
    }

    /// Requests go on this link to the coordinator from now on. The one before.
    pub fn control(&mut self, link: LinkId) -> LinkId {
        std::mem::replace(&mut self.control, link)
    }

    fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Writes what is to be written.
    pub fn write(&mut self) -> Result<(), Broken> {
        self.wire.write()
    }

    /// Ends the connection by a reset, without a word.
    pub fn reset(self) {
        self.wire.reset();
    }

    /// Writes and reads for a moment.
    pub fn turn(&mut self, patience: Duration) -> Result<(), Broken> {
        let heap = &mut self.heap;
        self.wire.turn(patience, |client, event| heap.take(client, event))
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Manager) -> bool) -> Result<(), Broken> {
        let until = Instant::now() + PATIENCE;
        while !done(self) {
            if Instant::now() > until {
                return Err(Broken::Lost(format!("{what}: not after {} s", PATIENCE.as_secs())));
            }
            self.turn(TURN)?;
        }
        Ok(())
    }

    /// Sends a request, and does not wait. Its token.
    pub fn ask(&mut self, request: &Request<'_>) -> Result<u64, Broken> {
        let (control, token) = (self.control, self.token());
        self.until("credit of the coordinator", |manager| manager.wire.client.sendable(control))?;
        self.wire.client.request(control, token, request).map_err(misuse)?;
        self.wire.write()?;
        Ok(token)
    }

    /// The answer to a request.
    pub fn answer(&mut self, token: u64) -> Result<Answer, Broken> {
        self.until("an answer", |manager| manager.heap.answers.contains_key(&token))?;
        Ok(self.heap.answers.remove(&token).expect("it is there"))
    }

    /// Whether a request is answered already, after one look.
    pub fn is_answered(&mut self, token: u64) -> Result<bool, Broken> {
        self.turn(TURN)?;
        Ok(self.heap.answers.contains_key(&token))
    }

    fn request(&mut self, request: &Request<'_>) -> Result<Answer, Broken> {
        let token = self.ask(request)?;
        self.answer(token)
    }

    fn code(&mut self, request: &Request<'_>) -> Result<i32, Broken> {
        match self.request(request)? {
            Answer::Code(code) => Ok(code),
            other => Err(Broken::Refused(format!("{other:?} to {request:?}"))),
        }
    }

    /// Starts, joins or resumes a branch: the id to work under, or the code.
    pub fn start(&mut self, branch: &str, flags: u32, timeout: u64) -> Result<Result<Vec<u8>, i32>, Broken> {
        match self.request(&request(branch, Verb::Start { flags, timeout }))? {
            Answer::Declared(id) => Ok(Ok(id)),
            Answer::Code(code) => Ok(Err(code)),
            other => Err(Broken::Refused(format!("{other:?} to a start"))),
        }
    }

    /// Starts a branch that is new.
    pub fn begin(&mut self, branch: &str) -> Result<Vec<u8>, Broken> {
        self.start(branch, 0, 0)?.map_err(|code| Broken::Refused(format!("{branch} does not start: {code}")))
    }

    /// `xa_end`.
    pub fn end(&mut self, branch: &str, flags: u32) -> Result<i32, Broken> {
        self.code(&request(branch, Verb::End(flags)))
    }

    /// `xa_prepare`.
    pub fn prepare(&mut self, branch: &str) -> Result<i32, Broken> {
        self.code(&request(branch, Verb::Prepare))
    }

    /// `xa_commit`.
    pub fn commit(&mut self, branch: &str, one_phase: bool) -> Result<i32, Broken> {
        self.code(&request(branch, Verb::Commit { one_phase }))
    }

    /// `xa_rollback`.
    pub fn rollback(&mut self, branch: &str) -> Result<i32, Broken> {
        self.code(&request(branch, Verb::Rollback))
    }

    /// `xa_forget`.
    pub fn forget(&mut self, branch: &str) -> Result<i32, Broken> {
        self.code(&request(branch, Verb::Forget))
    }

    /// `xa_recover`, all pages.
    pub fn recover(&mut self) -> Result<BTreeSet<String>, Broken> {
        let mut all: Vec<String> = Vec::new();
        loop {
            let after = all.last().cloned();
            let after = after.as_deref().map(xid);
            let code = self.code(&Request::Recover(XaRecover { after, max: 100 }))?;
            if code != 0 {
                return Err(Broken::Refused(format!("recover answers {code}")));
            }
            all.append(&mut self.heap.page);
            if !self.heap.more {
                return Ok(all.into_iter().collect());
            }
        }
    }

    /// Begins a local transaction.
    pub fn declare(&mut self) -> Result<Vec<u8>, Broken> {
        match self.request(&Request::Declare)? {
            Answer::Declared(id) => Ok(id),
            other => Err(Broken::Refused(format!("{other:?} to a declare"))),
        }
    }

    /// Ends a transaction that is known by its id.
    pub fn discharge(&mut self, txn: &[u8], fail: bool) -> Result<Answer, Broken> {
        self.request(&Request::Discharge(Discharge { txn_id: txn, fail }))
    }

    /// Commits a local transaction under a number of this client's session.
    pub fn commit_as(&mut self, txn: &[u8], counter: u64) -> Result<Answer, Broken> {
        let token = self.ask_to_commit(txn, counter)?;
        self.answer(token)
    }

    /// The same without waiting. The request's token.
    pub fn ask_to_commit(&mut self, txn: &[u8], counter: u64) -> Result<u64, Broken> {
        let (broker, session) = (self.broker, self.commits.expect("opened with a name for its commits").session);
        self.ask(&Request::TxCommit(TxCommit { txn_id: txn, broker, session, counter }))
    }

    /// What became of such a commit.
    pub fn status(&mut self, counter: u64) -> Result<TxOutcome, Broken> {
        let (broker, session) = (self.broker, self.commits.expect("opened with a name for its commits").session);
        match self.request(&Request::TxStatus(TxStatus { broker, session, counter }))? {
            Answer::Status(outcome) => Ok(outcome),
            other => Err(Broken::Refused(format!("{other:?} to a question for a commit"))),
        }
    }

    /// Which broker it is, as its `open` says.
    pub fn broker(&self) -> [u8; 16] {
        self.broker
    }

    /// Sends a numbered message, in a transaction or in none, and waits for what is said of it.
    pub fn send(&mut self, txn: Option<&[u8]>, queue: &str, number: u64) -> Result<Answer, Broken> {
        self.send_as(txn, queue, number, true, SIZE)
    }

    /// As [`Manager::send`], persistent or not, with a body of so many bytes.
    pub fn send_as(
        &mut self,
        txn: Option<&[u8]>,
        queue: &str,
        number: u64,
        durable: bool,
        size: usize,
    ) -> Result<Answer, Broken> {
        let token = self.send_on(txn, queue, number, durable, size)?;
        self.answer(token)
    }

    /// As [`Manager::send_as`], without waiting. Its token.
    pub fn send_on(
        &mut self,
        txn: Option<&[u8]>,
        queue: &str,
        number: u64,
        durable: bool,
        size: usize,
    ) -> Result<u64, Broken> {
        let link = self.sender(queue)?;
        let mut message = Vec::new();
        let body = books::body(PRODUCER, number, size);
        Draft { durable: Some(durable), ..Draft::new(Body::Data(&body)) }.encode(&mut message);
        let token = self.token();
        self.until("credit of a queue", |manager| manager.wire.client.sendable(link))?;
        if self.wire.client.fits(link, message.len()) {
            match txn {
                Some(txn) => self.wire.client.send_in(txn, link, token, false, &[Piece::Copy(&message)]),
                None => self.wire.client.send(link, token, false, &[Piece::Copy(&message)]),
            }
            .map_err(misuse)?;
            return Ok(token);
        }
        match txn {
            Some(txn) => self.wire.client.begin_message_in(txn, link, token, false),
            None => self.wire.client.begin_message(link, token, false),
        }
        .map_err(misuse)?;
        let mut rest = &message[..];
        while !rest.is_empty() {
            let sent = self.wire.client.send_part(link, Piece::Copy(rest), true).map_err(misuse)?;
            rest = &rest[sent.consumed..];
            if !rest.is_empty() {
                self.turn(TURN)?;
            }
        }
        Ok(token)
    }

    /// The sender of a queue, attached when it is first asked for.
    fn sender(&mut self, queue: &str) -> Result<LinkId, Broken> {
        if let Some(link) = self.senders.get(queue) {
            return Ok(*link);
        }
        let (name, token) = (format!("out-{queue}"), self.token());
        let options = SenderOptions { name: &name, address: Some(queue), settle: SenderSettleMode::Unsettled, token };
        let link = self.wire.client.sender(self.session, &options).map_err(misuse)?;
        self.senders.insert(queue.to_owned(), link);
        Ok(link)
    }

    /// A receiver of a queue, with credit. It asks for an answer to what it settles.
    pub fn receiver(&mut self, queue: &str, credit: u32) -> Result<LinkId, Broken> {
        let token = self.token();
        let name = format!("in-{token}");
        let options = ReceiverOptions { name: &name, address: queue, presettled: false, credit, token };
        let link = self.wire.client.careful_receiver(self.session, &options).map_err(misuse)?;
        self.tokens.insert(link, token);
        Ok(link)
    }

    /// More credit.
    pub fn grant(&mut self, link: LinkId, credit: u32) -> Result<(), Broken> {
        self.wire.client.grant(link, credit).map_err(misuse)
    }

    /// Waits until so many messages have come on a link that were not taken yet, and takes them.
    pub fn receive(&mut self, link: LinkId, count: usize) -> Result<Vec<Got>, Broken> {
        let there =
            |manager: &mut Manager| manager.heap.messages.iter().filter(|got| got.link == link).count() >= count;
        self.until("messages", there)?;
        let mut left = count;
        let mut taken = |got: &mut Got| {
            let wanted = got.link == link && left > 0;
            left -= usize::from(wanted);
            wanted
        };
        Ok(self.heap.messages.extract_if(.., |got| taken(got)).collect())
    }

    /// All that a link has to give now, beside what was taken.
    pub fn drain(&mut self, link: LinkId) -> Result<Vec<Got>, Broken> {
        let token = self.tokens[&link];
        self.heap.drained.remove(&token);
        self.wire.client.drain(link).map_err(misuse)?;
        self.until("the answer to a drain", |manager| manager.heap.drained.contains(&token))?;
        Ok(self.heap.messages.extract_if(.., |got| got.link == link).collect())
    }

    /// Accepts a message, in a transaction or in none, and does not wait.
    pub fn accept(&mut self, txn: Option<&[u8]>, got: &Got) -> Result<(), Broken> {
        self.settle(txn, got, Verdict::Accept)
    }

    /// The same with any outcome.
    pub fn settle(&mut self, txn: Option<&[u8]>, got: &Got, verdict: Verdict<'_>) -> Result<(), Broken> {
        match txn {
            Some(txn) => self.wire.client.settle_in(txn, got.link, got.delivery, verdict),
            None => self.wire.client.decide(got.link, got.delivery, verdict),
        }
        .map_err(misuse)?;
        Ok(())
    }

    /// Accepts messages, and waits until that is safe.
    pub fn accept_all(&mut self, got: &[Got]) -> Result<(), Broken> {
        for one in got {
            self.heap.settled.remove(&one.delivery);
            self.accept(None, one)?;
        }
        let all = |manager: &mut Manager| got.iter().all(|one| manager.heap.settled.contains(&one.delivery));
        self.until("the answer to acknowledgements", all)
    }

    /// Numbers of what a browser of the queue sees.
    pub fn browse(&mut self, queue: &str) -> Result<Vec<u64>, Broken> {
        let token = self.token();
        let name = format!("browse-{token}");
        let source = Source {
            address: Some(queue),
            durable: TerminusDurability::None,
            distribution_mode: Some("copy"),
            outcomes: Symbols::from_slice(&["amqp:accepted:list"]),
            ..Source::default()
        };
        let attach = Attach {
            name: &name,
            role: Role::Receiver,
            rcv_settle_mode: ReceiverSettleMode::First,
            source: Some(source),
            target: Some(AttachTarget::Target(Target::default())),
            ..Attach::default()
        };
        let link = self.wire.client.attach(self.session, &attach, token).map_err(misuse)?;
        self.tokens.insert(link, token);
        self.grant(link, 1000)?;
        let got = self.drain(link)?;
        Ok(got.iter().map(|got| got.number).collect())
    }

    /// Takes everything from a queue; numbers and earlier deliveries.
    pub fn take(&mut self, queue: &str) -> Result<Vec<(u64, u32)>, Broken> {
        let link = self.receiver(queue, 1000)?;
        let mut all = Vec::new();
        loop {
            let got = self.drain(link)?;
            if got.is_empty() {
                return Ok(all);
            }
            self.accept_all(&got)?;
            all.extend(got.iter().map(|got| (got.number, got.deliveries)));
            self.grant(link, 1000)?;
        }
    }

    /// Closes in order.
    pub fn close(self) -> Result<(), Broken> {
        self.wire.close()
    }
}

/// A verb of XA about a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `xa_start`.
    Start {
        /// 0, or join or resume.
        flags: u32,
        /// Milliseconds; 0: the broker's default.
        timeout: u64,
    },
    /// `xa_end`, with its flags.
    End(u32),
    /// `xa_prepare`.
    Prepare,
    /// `xa_commit`.
    Commit {
        /// Without a prepare.
        one_phase: bool,
    },
    /// `xa_rollback`.
    Rollback,
    /// `xa_forget`.
    Forget,
}

/// The request of a verb, for [`Manager::ask`].
pub fn request(branch: &str, verb: Verb) -> Request<'_> {
    let (format_id, global_id, branch_qualifier) = parts(branch);
    match verb {
        Verb::Start { flags, timeout } => {
            Request::Start(XaStart { format_id, global_id, branch_qualifier, flags, timeout })
        }
        Verb::End(flags) => Request::End(XaEnd { format_id, global_id, branch_qualifier, flags }),
        Verb::Prepare => Request::Prepare(XaPrepare { format_id, global_id, branch_qualifier }),
        Verb::Commit { one_phase } => Request::Commit(XaCommit { format_id, global_id, branch_qualifier, one_phase }),
        Verb::Rollback => Request::Rollback(XaRollback { format_id, global_id, branch_qualifier }),
        Verb::Forget => Request::Forget(XaForget { format_id, global_id, branch_qualifier }),
    }
}

fn parts(branch: &str) -> (i32, &[u8], &[u8]) {
    (FORMAT, branch.as_bytes(), QUALIFIER)
}

/// A branch as `recover` names it.
pub fn xid(branch: &str) -> XaXid<'_> {
    let (format_id, global_id, branch_qualifier) = parts(branch);
    XaXid { format_id, global_id, branch_qualifier }
}

/// The branch of that name.
pub fn global_id(xid: &XaXid<'_>) -> String {
    String::from_utf8_lossy(xid.global_id).into_owned()
}

/// A branch as histories name it: format id, global id and qualifier, in hexadecimal.
pub fn xid_in_history(branch: &str) -> String {
    let (format, global, qualifier) = parts(branch);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{format:x}:{}:{}", hex(global), hex(qualifier))
}
