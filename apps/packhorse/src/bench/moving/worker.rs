//! One worker: takes messages from its queue and sends them on to the other of its pair, alone, in local transactions or in branches.
//!
//! A link to the coordinator is a thread of control: it asks, and goes on when the answer is there, as a client's session and a
//! transaction manager do. Of local transactions the next is declared right behind the end of the one before. Must not know
//! sockets or what the others do.

use super::ring::Ring;
use crate::End;
use crate::bench::clock::{self, Span};
use crate::bench::figures::Side;
use crate::bench::intact::{Intact, not_empty};
use crate::bench::options::Bench;
use crate::bench::producer::misuse;
use packhorse_client_core::codec::{DeliveryState, Discharge, Outcome};
use packhorse_client_core::transaction::{Request, Response, XaCommit, XaEnd, XaPrepare, XaStart, flags};
use packhorse_client_core::{
    Client, Decision, DeliveryOutcome, Joiner, LinkId, Piece, TransferEvent, Verdict, response,
};
use packhorse_history::MessageId;
use packhorse_history::body::{Checked, Template};
use packhorse_model::Xid;
use std::collections::VecDeque;

/// Output of a connection above which its workers send nothing further: the rest goes out first.
const OUTPUT_BYTES: usize = 256 << 10;

/// The format of our branches' names.
const FORMAT_ID: i32 = 0x5048;

/// How messages are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Sent; acknowledged when that is confirmed.
    Alone,
    /// In local transactions.
    Local,
    /// In branches; which are committed, or left prepared.
    Branch { commit: bool },
}

/// What a request is about: the caller's number of its delivery.
const BEGIN: u64 = 0;
const END: u64 = 1;
const PREPARE: u64 = 2;
const COMMIT: u64 = 3;

/// Where a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between two transactions.
    Idle,
    /// A transaction is asked for.
    Beginning,
    /// Messages are moved.
    Working,
    /// An answer is waited for: `discharge`, or `xa-end`.
    Ending,
    Preparing,
    Committing,
    /// It does nothing further.
    Over,
}

/// What does not change during a run.
pub(super) struct Plan<'a> {
    pub(super) bench: &'a Bench,
    pub(super) run: u64,
    pub(super) mode: Mode,
    pub(super) batch: u32,
    pub(super) span: Span,
    /// A message before its body.
    pub(super) head: Vec<u8>,
    pub(super) intact: Intact,
}

/// What all workers measure together.
pub(super) struct Moved {
    /// Of transactions or branches, or of messages that are moved alone: from the request to end it, or the sending, to the last
    /// answer.
    pub(super) side: Side,
    /// The same from the beginning of a transaction on.
    pub(super) whole: Side,
    pub(super) ring: Ring,
    /// Messages moved, and those of them that count.
    pub(super) messages: u64,
    pub(super) counted: u64,
    /// Branches whose prepare was answered and that stay so.
    pub(super) prepared: Vec<Xid>,
}

/// Links of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) receiver: LinkId,
    pub(super) sender: LinkId,
    pub(super) controller: Option<LinkId>,
}

/// A message that is moved alone and has no confirm yet.
#[derive(Clone, Copy, Default)]
struct Slot {
    delivery: u32,
    at_ns: u64,
}

/// See the module.
pub(super) struct Worker {
    pub(super) number: u32,
    pub(super) links: Links,
    /// What is to be filled in before the run: numbers of messages of its target.
    pub(super) filling: std::ops::Range<u64>,
    joiner: Joiner,
    template: Template,
    /// Messages that came and are not moved yet: delivery and sequence.
    held: VecDeque<(u32, u64)>,
    phase: Phase,
    txn: Vec<u8>,
    /// The transaction after this one: whether it is asked for, and its id when it is there.
    declaring: bool,
    next_txn: Option<Vec<u8>>,
    /// Messages of the present transaction.
    taken: u32,
    /// Messages sent and not answered.
    open: u32,
    begun_ns: u64,
    ended_ns: u64,
    /// Transactions begun; messages sent alone.
    begun: u64,
    quota: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Worker {
    pub(super) fn new(plan: &Plan<'_>, number: u32, links: Links) -> Result<Worker, End> {
        let batch = plan.batch;
        Ok(Worker {
            number,
            links,
            filling: Ring::filled(number as usize ^ 1, plan.bench.ring.unwrap_or(0)),
            joiner: Joiner::default(),
            template: Template::new(plan.run, plan.bench.size).map_err(|e| End::Usage(e.to_string()))?,
            held: VecDeque::new(),
            phase: Phase::Idle,
            txn: Vec::new(),
            declaring: false,
            next_txn: None,
            taken: 0,
            open: 0,
            begun_ns: 0,
            ended_ns: 0,
            begun: 0,
            quota: plan.bench.part(number, plan.bench.workers),
            slots: vec![Slot::default(); batch as usize],
            free: (0..batch).rev().collect(),
        })
    }

    /// Whether nothing is left to do or to wait for.
    pub(super) fn over(&self) -> bool {
        self.phase == Phase::Over && self.open == 0
    }

    /// The pair whose messages it moves.
    fn pair(&self) -> u32 {
        self.number / 2
    }

    // ---- out ----

    /// Fills the queue that it sends to. True: all is sent, and confirmed.
    pub(super) fn fill(&mut self, client: &mut Client, plan: &Plan<'_>) -> Result<bool, End> {
        while !self.filling.is_empty() && self.may_send(client, plan) {
            self.send(client, plan, self.filling.start, 0)?;
            self.filling.start += 1;
        }
        Ok(self.filling.is_empty() && self.open == 0)
    }

    fn may_send(&self, client: &Client, plan: &Plan<'_>) -> bool {
        let sender = self.links.sender;
        client.sendable(sender)
            && client.output_len() <= OUTPUT_BYTES
            && client.fits(sender, plan.head.len() + plan.bench.size)
    }

    /// Sends a message, in the present transaction if there is one.
    fn send(&mut self, client: &mut Client, plan: &Plan<'_>, sequence: u64, token: u64) -> Result<(), End> {
        let message = MessageId::new(self.pair(), sequence);
        let (body, _) = self.template.stamp(message).map_err(|e| End::Usage(e.to_string()))?;
        let pieces = [Piece::Copy(&plan.head), Piece::Copy(body)];
        if self.phase == Phase::Working && plan.mode != Mode::Alone {
            client.send_in(&self.txn, self.links.sender, token, false, &pieces).map_err(misuse)?;
        } else {
            client.send(self.links.sender, token, false, &pieces).map_err(misuse)?;
        }
        self.open += 1;
        Ok(())
    }

    /// Does what can be done.
    pub(super) fn pump(&mut self, client: &mut Client, plan: &Plan<'_>) -> Result<(), End> {
        let now = clock::now_ns();
        let stopping = now >= plan.span.stop_ns;
        if self.phase == Phase::Idle {
            if stopping || self.begun >= self.quota {
                self.phase = Phase::Over;
            } else if now >= plan.span.start_ns && !self.held.is_empty() {
                self.begin(client, plan)?;
            }
        }
        if self.phase != Phase::Working {
            return Ok(());
        }
        if plan.mode == Mode::Alone {
            return self.pump_alone(client, plan, stopping);
        }
        while self.taken < plan.batch && self.may_send(client, plan) {
            let Some((delivery, sequence)) = self.held.pop_front() else { break };
            if self.taken == 0 && plan.mode == Mode::Local {
                self.begun_ns = clock::now_ns();
            }
            self.send(client, plan, sequence, 0)?;
            client.settle_in(&self.txn, self.links.receiver, delivery, Verdict::Accept).map_err(misuse)?;
            self.taken += 1;
        }
        if self.taken == plan.batch || (stopping && self.taken > 0) {
            self.end(client, plan, stopping)?;
        } else if stopping {
            // Its end rolls back what is empty.
            self.phase = Phase::Over;
        }
        Ok(())
    }

    fn pump_alone(&mut self, client: &mut Client, plan: &Plan<'_>, stopping: bool) -> Result<(), End> {
        while !stopping
            && self.begun < self.quota
            && self.may_send(client, plan)
            && let Some(&slot) = self.free.last()
            && let Some((delivery, sequence)) = self.held.pop_front()
        {
            self.free.pop();
            self.slots[slot as usize] = Slot { delivery, at_ns: clock::now_ns() };
            self.send(client, plan, sequence, u64::from(slot))?;
            self.begun += 1;
        }
        if stopping || self.begun >= self.quota {
            self.phase = Phase::Over;
        }
        Ok(())
    }

    fn ask(&self, client: &mut Client, token: u64, request: &Request<'_>) -> Result<(), End> {
        let Some(controller) = self.links.controller else { return Ok(()) };
        client.request(controller, token, request).map_err(misuse)?;
        Ok(())
    }

    fn begin(&mut self, client: &mut Client, plan: &Plan<'_>) -> Result<(), End> {
        self.taken = 0;
        self.phase = Phase::Beginning;
        match plan.mode {
            Mode::Alone => self.phase = Phase::Working,
            Mode::Local => self.declare(client)?,
            Mode::Branch { .. } => {
                self.begun += 1;
                self.begun_ns = clock::now_ns();
                let xid = self.xid(plan);
                let start = XaStart {
                    format_id: FORMAT_ID,
                    global_id: &xid,
                    branch_qualifier: b"1",
                    flags: flags::NONE,
                    timeout: 0,
                };
                self.ask(client, BEGIN, &Request::Start(start))?;
            }
        }
        Ok(())
    }

    fn declare(&mut self, client: &mut Client) -> Result<(), End> {
        self.begun += 1;
        self.declaring = true;
        self.ask(client, BEGIN, &Request::Declare)
    }

    fn end(&mut self, client: &mut Client, plan: &Plan<'_>, stopping: bool) -> Result<(), End> {
        self.phase = Phase::Ending;
        self.ended_ns = clock::now_ns();
        if plan.mode == Mode::Local {
            self.ask(client, END, &Request::Discharge(Discharge { txn_id: &self.txn, fail: false }))?;
            if !stopping && self.begun < self.quota {
                self.declare(client)?;
            }
            return Ok(());
        }
        let xid = self.xid(plan);
        let (format_id, global_id, branch_qualifier) = (FORMAT_ID, &xid[..], &b"1"[..]);
        self.ask(client, END, &Request::End(XaEnd { format_id, global_id, branch_qualifier, flags: flags::SUCCESS }))
    }

    /// The global id of the present branch: run, worker, number. Ordered as they are begun.
    fn xid(&self, plan: &Plan<'_>) -> [u8; 20] {
        let mut id = [0; 20];
        id[..8].copy_from_slice(&plan.run.to_be_bytes());
        id[8..12].copy_from_slice(&self.number.to_be_bytes());
        id[12..].copy_from_slice(&self.begun.to_be_bytes());
        id
    }

    // ---- in ----

    /// A frame of a message that came.
    pub(super) fn on_message(
        &mut self,
        plan: &Plan<'_>,
        moved: &mut Moved,
        transfer: &TransferEvent<'_>,
    ) -> Result<(), End> {
        let delivery = transfer.delivery_id;
        let Some(bytes) = self.joiner.push(transfer) else { return Ok(()) };
        let queue = self.number as usize;
        let message = match plan.intact.check(bytes) {
            Checked::Intact(message) => message,
            Checked::Corrupt(message) => {
                moved.ring.corrupt(message);
                message
            }
            Checked::Unreadable | Checked::OtherRun(_) => return Err(not_empty(&plan.bench.queue[queue])),
        };
        moved.ring.came(queue, message);
        self.held.push_back((delivery, message.sequence));
        Ok(())
    }

    /// Credit for as many messages as it may hold.
    pub(super) fn grant(&self, client: &mut Client, plan: &Plan<'_>) -> Result<(), End> {
        if client.credit(self.links.receiver) <= plan.bench.credit / 2 && self.held.len() <= plan.bench.credit as usize
        {
            client.grant(self.links.receiver, plan.bench.credit).map_err(misuse)?;
        }
        Ok(())
    }

    /// What became of a message that it sent.
    pub(super) fn on_sent(
        &mut self,
        client: &mut Client,
        plan: &Plan<'_>,
        moved: &mut Moved,
        outcome: &DeliveryOutcome,
        state: Option<&DeliveryState<'_>>,
        now: u64,
    ) -> Result<(), End> {
        if outcome.repeated || outcome.state == Decision::Received {
            return Ok(());
        }
        self.open -= 1;
        let accepted = match state {
            Some(DeliveryState::Transactional(state)) => matches!(state.outcome, Some(Outcome::Accepted)),
            _ => outcome.state == Decision::Accepted,
        };
        if !accepted {
            moved.ring.violations.refused += 1;
            moved.ring.tell(|| format!("a message of worker {} was not accepted: {state:?}", self.number));
        }
        // Before the run messages are only filled in.
        if plan.mode == Mode::Alone && self.phase != Phase::Idle {
            let slot = self.slots[outcome.token as usize];
            self.free.push(outcome.token as u32);
            let verdict = if accepted { Verdict::Accept } else { Verdict::Release };
            client.settle(self.links.receiver, slot.delivery, verdict).map_err(misuse)?;
            self.taken = 1;
            self.done(plan, moved, slot.at_ns, slot.at_ns, now);
        }
        Ok(())
    }

    /// What the coordinator said.
    pub(super) fn on_answer(
        &mut self,
        client: &mut Client,
        plan: &Plan<'_>,
        moved: &mut Moved,
        outcome: &DeliveryOutcome,
        state: Option<&DeliveryState<'_>>,
        now: u64,
    ) -> Result<(), End> {
        if outcome.repeated {
            return Ok(());
        }
        let answer = response(state);
        match (outcome.token, answer) {
            (BEGIN, Response::Declared(id)) => {
                self.declaring = false;
                if self.phase == Phase::Ending {
                    self.next_txn = Some(id.to_vec());
                } else {
                    self.work_in(id);
                }
                return Ok(());
            }
            (END, Response::Accepted) if plan.mode == Mode::Local => {
                self.done(plan, moved, self.ended_ns, self.begun_ns, now);
                self.phase = if self.declaring { Phase::Beginning } else { Phase::Idle };
                if let Some(id) = self.next_txn.take() {
                    self.work_in(&id);
                }
                return Ok(());
            }
            (END | PREPARE | COMMIT, Response::Result(result)) if result.code == 0 => {}
            (_, answer) => {
                return Err(End::Refused(format!("the coordinator says to request {}: {answer:?}", outcome.token)));
            }
        }
        let Mode::Branch { commit } = plan.mode else {
            return Err(End::Refused("the coordinator answers in words of XA".into()));
        };
        let xid = self.xid(plan);
        let (format_id, global_id, branch_qualifier) = (FORMAT_ID, &xid[..], &b"1"[..]);
        match outcome.token {
            END => {
                self.phase = Phase::Preparing;
                let prepare = XaPrepare { format_id, global_id, branch_qualifier };
                self.ask(client, PREPARE, &Request::Prepare(prepare))
            }
            PREPARE if commit => {
                self.phase = Phase::Committing;
                let commit = XaCommit { format_id, global_id, branch_qualifier, one_phase: false };
                self.ask(client, COMMIT, &Request::Commit(commit))
            }
            _ => {
                if !commit {
                    let xid = Xid::new(format_id, global_id, branch_qualifier);
                    moved.prepared.push(xid.map_err(|e| End::Refused(e.to_string()))?);
                }
                self.done(plan, moved, self.ended_ns, self.begun_ns, now);
                self.phase = Phase::Idle;
                Ok(())
            }
        }
    }

    fn work_in(&mut self, id: &[u8]) {
        self.txn.clear();
        self.txn.extend_from_slice(id);
        self.taken = 0;
        self.phase = Phase::Working;
    }

    /// What was taken is moved.
    fn done(&mut self, plan: &Plan<'_>, moved: &mut Moved, ended_ns: u64, begun_ns: u64, now: u64) {
        let counts = plan.span.counts(now);
        moved.side.begun(begun_ns);
        moved.side.happened(now, counts.then(|| now.saturating_sub(ended_ns)));
        moved.whole.happened(now, counts.then(|| now.saturating_sub(begun_ns)));
        moved.messages += u64::from(self.taken);
        moved.counted += if counts { u64::from(self.taken) } else { 0 };
    }
}
