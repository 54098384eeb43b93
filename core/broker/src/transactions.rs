//! A shard's part in transactions: the home of those that began here, in shard 0 the table of client sessions, and the ways between
//! connections, homes and queues, which may all be in different shards (`docs/decisions/0012-home-of-a-transaction.md`).
//!
//! What a home decides is `packhorse_txn`'s, what a queue does with its part `packhorse_queue`'s; bodies of messages that wait are in
//! `queues/staged.rs`. Must not know protocols.

mod operators;
mod records;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod tests;

use crate::Config;
use crate::admin::{Alarm, TxFigures};
use crate::io::Level;
use crate::mail::{Body, Payload, Request, TxnAnswer};
use crate::queues::Queues;
use operators::Operators;
use packhorse_model::{BrokerId, ClientSession, ConnectionId, Head, Identity, Outcome, QueueId, ShardId, Token, TxnId};
use packhorse_queue::DeliveryKey;
use packhorse_store::{Ticket, TxnPart};
use packhorse_txn::{
    Control, Effect, Home, Input, NoWork, Part, ReplyTo, SessionEffect, SessionInput, Sessions, SessionsConfig, Turn,
    TxStatus, Work,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where all branches are at home, and the table of client sessions is.
pub(crate) const REGISTRY: ShardId = ShardId(0);

/// See the module.
#[derive(Debug)]
pub(crate) struct Transactions {
    home: Home<TxnPart>,
    /// In shard 0; empty elsewhere.
    sessions: Sessions,
    /// What the home has not taken in yet: what it wants may lead to more.
    inputs: VecDeque<Input<TxnPart>>,
    busy: bool,
    effects: Vec<Effect<TxnPart>>,
    /// The ticket of the latest record.
    written: Ticket,
    /// Work in transactions at home elsewhere, summed until something else is said to that home.
    works: Vec<Work>,
    /// Connections of this shard that have to do with transactions.
    involved: BTreeSet<ConnectionId>,
    operators: Operators,
    /// Shard 0: questions for a commit's outcome, until no other connection of their sessions is left.
    asking: BTreeMap<ReplyTo, Asking>,
}

/// A question for a commit's outcome.
#[derive(Debug)]
struct Asking {
    /// Shards that have not yet closed the session's other connections.
    shards: u16,
    /// The answer, once it is known.
    status: Option<TxStatus>,
}

impl Transactions {
    pub(crate) fn new(config: &Config, shard: ShardId, run: u64, broker: BrokerId) -> Transactions {
        Transactions {
            home: Home::new(config.transactions.home(shard, run, broker)),
            sessions: Sessions::new(SessionsConfig::new(broker)),
            inputs: VecDeque::new(),
            busy: false,
            effects: Vec::new(),
            written: Ticket(0),
            works: Vec::new(),
            involved: BTreeSet::new(),
            operators: Operators::default(),
            asking: BTreeMap::new(),
        }
    }
}

impl Queues {
    // ---- from connections ----

    /// Takes what a connection of this shard, or an operator, wants of a transaction to its home.
    pub(crate) fn transact(&mut self, input: Input<TxnPart>) {
        self.tell_works();
        if let Some(connection) = comes_from(&input) {
            self.transactions.involved.insert(connection);
        }
        match input {
            Input::ConnectionLost { connection } => {
                if self.shard != REGISTRY {
                    self.mail(REGISTRY, Body::Home(Box::new(Input::ConnectionLost { connection })));
                }
                self.home(Input::ConnectionLost { connection });
            }
            Input::ControlLost { control } => {
                if self.shard != REGISTRY {
                    self.mail(REGISTRY, Body::Home(Box::new(Input::ControlLost { control })));
                }
                self.home(Input::ControlLost { control });
            }
            input => self.tell_home(input),
        }
    }

    /// A connection is gone, in whatever way.
    pub(crate) fn connection_gone(&mut self, connection: ConnectionId) {
        if self.transactions.involved.remove(&connection) {
            self.transact(Input::ConnectionLost { connection });
        }
    }

    /// Adds a message in a transaction. Work that is refused is told at once if the transaction is at home here, else later by
    /// `Connection::on_txn_refused`; nothing else is answered.
    #[inline]
    pub(crate) fn stage_enqueue(
        &mut self,
        id: QueueId,
        txn: TxnId,
        control: Control,
        head: Head,
        payload: Payload<'_>,
        identity: Option<Box<Identity>>,
    ) -> Result<(), NoWork> {
        let part = Part { adds: 1, bytes: payload.length(), ..Part::default() };
        if let Err(why) = self.work(Work { txn, control, queue: id, part, sent: false }) {
            self.discard(&payload);
            return Err(why);
        }
        let owner = id.owner(self.config.shards);
        if owner == self.shard {
            self.on_stage_enqueue(id, txn, head, payload, identity.as_deref());
        } else {
            let payload = payload.into_owned();
            let request = Request::StageEnqueue { txn, head, payload, identity };
            self.mail(owner, Body::Request { queue: id, request });
        }
        Ok(())
    }

    /// A delivery ends in a transaction. Answered as [`Queues::stage_enqueue`] is; what is refused at once stays acquired.
    pub(crate) fn stage_settle(
        &mut self,
        id: QueueId,
        txn: TxnId,
        control: Control,
        key: DeliveryKey,
        outcome: Outcome,
    ) -> Result<(), NoWork> {
        let part = Part { removes: 1, ..Part::default() };
        self.work(Work { txn, control, queue: id, part, sent: false })?;
        self.request(id, Request::StageSettle { txn, key, outcome });
        Ok(())
    }

    /// [`Queues::stage_settle`] of many deliveries that are acknowledged.
    pub(crate) fn stage_accept(
        &mut self,
        id: QueueId,
        txn: TxnId,
        control: Control,
        keys: &[DeliveryKey],
    ) -> Result<(), NoWork> {
        let part = Part { removes: keys.len() as u64, ..Part::default() };
        self.work(Work { txn, control, queue: id, part, sent: false })?;
        let owner = id.owner(self.config.shards);
        if owner == self.shard {
            self.on_stage_accept(id, txn, keys);
        } else {
            let request = Request::StageAccept { txn, keys: keys.to_vec() };
            self.mail(owner, Body::Request { queue: id, request });
        }
        Ok(())
    }

    /// Asks what became of a commit. Answered by `Connection::on_tx_status`, when all other connections of its session are closed.
    pub(crate) fn tx_status(&mut self, to: ReplyTo, token: Token) {
        self.tell_sessions(SessionInput::Status { to, token });
    }

    /// A connection names its client's session, and the number that the session's next commit will have.
    pub(crate) fn open_session(&mut self, session: ClientSession, next: u64) {
        self.tell_sessions(SessionInput::Open { session, next });
    }

    /// Tells the home of work. An error: it was refused, and the queue is not to get it.
    #[inline]
    fn work(&mut self, work: Work) -> Result<(), NoWork> {
        let now = self.now();
        if self.home_of(work.txn) == self.shard && self.transactions.home.takes(&work, now.mono_us) {
            return Ok(());
        }
        self.tell_work(work)
    }

    /// The same, of work that is told elsewhere, or from which something follows.
    fn tell_work(&mut self, mut work: Work) -> Result<(), NoWork> {
        if self.home_of(work.txn) != self.shard {
            work.sent = true;
            let last = self.transactions.works.last_mut();
            match last.filter(|last| (last.txn, last.control, last.queue) == (work.txn, work.control, work.queue)) {
                Some(last) => last.part += work.part,
                None => self.transactions.works.push(work),
            }
            return Ok(());
        }
        let turn = self.txn_turn();
        let refused = |effect: &Effect<TxnPart>| matches!(effect, Effect::Refused { control, txn, .. } if (*control, *txn) == (work.control, work.txn));
        let mut effects = std::mem::take(&mut self.transactions.effects);
        self.transactions.home.handle(Input::Work(work), &turn, &mut effects);
        let refusal = effects.iter().position(refused).map(|at| effects.remove(at));
        self.carry_out(effects);
        match refusal {
            Some(Effect::Refused { why, .. }) => Err(why),
            _ => Ok(()),
        }
    }

    /// Tells homes elsewhere of work that they were not told of.
    pub(crate) fn tell_works(&mut self) {
        if self.transactions.works.is_empty() {
            return;
        }
        for work in std::mem::take(&mut self.transactions.works) {
            self.mail(self.home_of(work.txn), Body::Home(Box::new(Input::Work(work))));
        }
    }

    // ---- homes ----

    /// The shard where a transaction is at home. What no home of ours can have begun, any home does not know.
    fn home_of(&self, txn: TxnId) -> ShardId {
        if txn.home.0 < self.config.shards { txn.home } else { self.shard }
    }

    /// To the home of what the input is about.
    pub(crate) fn tell_home(&mut self, input: Input<TxnPart>) {
        let home = match &input {
            Input::Discharge { txn, .. }
            | Input::Failed { txn, .. }
            | Input::Gathered { txn, .. }
            | Input::Admitted { txn, .. }
            | Input::Work(Work { txn, .. }) => self.home_of(*txn),
            Input::Xa { .. } | Input::Recover { .. } | Input::Operate { .. } => REGISTRY,
            _ => self.shard,
        };
        if home == self.shard {
            self.home(input);
        } else {
            // Else a queue's answer could be there before the home knows of work that the queue has.
            self.tell_works();
            self.mail(home, Body::Home(Box::new(input)));
        }
    }

    /// Lets this shard's home handle an input and carries out what follows from it.
    pub(crate) fn home(&mut self, input: Input<TxnPart>) {
        self.transactions.inputs.push_back(input);
        if self.transactions.busy {
            return;
        }
        self.transactions.busy = true;
        while let Some(input) = self.transactions.inputs.pop_front() {
            let turn = self.txn_turn();
            let mut effects = std::mem::take(&mut self.transactions.effects);
            self.transactions.home.handle(input, &turn, &mut effects);
            self.carry_out(effects);
        }
        self.transactions.busy = false;
    }

    /// Records are durable: homes learn it before queues and links do, so that what is committed is seen before it is confirmed.
    pub(crate) fn transactions_durable(&mut self, before: Ticket, up_to: Ticket) {
        if self.transactions.written > before {
            self.home(Input::Durable { up_to });
        }
    }

    /// When a transaction's time is over, monotonic µs.
    pub(crate) fn transactions_deadline(&self) -> Option<u64> {
        self.transactions.home.next_deadline()
    }

    /// Transactions whose time is over are rolled back.
    pub(crate) fn tick_transactions(&mut self) {
        if self.transactions_deadline().is_some_and(|at| at <= self.now().mono_us) {
            self.home(Input::Tick);
        }
    }

    /// Figures of the transactions at home here.
    pub(crate) fn transaction_figures(&self) -> TxFigures {
        TxFigures(self.transactions.home.stats(self.broker_ms()))
    }

    /// What operators should look at in the transactions at home here.
    pub(crate) fn transaction_alarm(&self, figures: &TxFigures) -> Option<Alarm> {
        let (limit, age) = (self.config.transactions.in_doubt_alarm_ms, figures.0.in_doubt_age_ms);
        let text = || {
            format!(
                "in doubt: {} branches, the oldest for {} s; their transaction manager does not decide them; find out why, or decide \
                 them yourself (packhorse tx list --state in-doubt)",
                figures.0.in_doubt,
                age / 1000
            )
        };
        (limit > 0 && figures.0.in_doubt > 0 && age >= limit)
            .then(|| Alarm { code: "transactions-in-doubt", text: text() })
    }

    /// Something of transactions from before this start.
    pub(crate) fn recovered_transaction(&mut self, recovered: packhorse_store::Recovered) {
        match records::recovered(recovered) {
            Some(records::Recovered::ForHome(recovered)) => self.home(Input::Recovered(Box::new(recovered))),
            Some(records::Recovered::ForSessions(input)) => self.tell_sessions(input),
            None => {}
        }
    }

    fn txn_turn(&self) -> Turn {
        Turn { now: self.now(), broker_ms: self.broker_ms(), ticket: self.ticket }
    }

    fn carry_out(&mut self, mut effects: Vec<Effect<TxnPart>>) {
        for effect in effects.drain(..) {
            match effect {
                Effect::Reply { to, reply } => self.txn_answer(TxnAnswer::Reply { to, reply }),
                Effect::Refused { control, txn, why } => self.txn_answer(TxnAnswer::Refused { control, txn, why }),
                Effect::Gather { txn, queue, operations, purpose } => {
                    let owner = queue.owner(self.config.shards);
                    if owner == self.shard {
                        self.on_gather(txn, queue, operations, purpose);
                    } else {
                        self.mail(owner, Body::Gather { txn, queue, operations, purpose });
                    }
                }
                Effect::Apply { txn, queue, operations, resolution } => {
                    let owner = queue.owner(self.config.shards);
                    if owner == self.shard {
                        self.on_apply(txn, queue, operations, resolution);
                    } else {
                        self.mail(owner, Body::Apply { txn, queue, operations, resolution });
                    }
                }
                Effect::Drop { txn, queue, operations } => {
                    let owner = queue.owner(self.config.shards);
                    if owner == self.shard {
                        self.on_drop_refused(txn, queue, operations);
                    } else {
                        self.mail(owner, Body::DropRefused { txn, queue, operations });
                    }
                }
                Effect::Admit { txn, session, counter } => {
                    self.tell_sessions(SessionInput::Admit { txn, session, counter });
                }
                Effect::Ended { session, counter, committed } => {
                    self.tell_sessions(SessionInput::Ended { session, counter, committed });
                }
                Effect::Write(record) => {
                    self.transactions.written = self.ticket;
                    let op = records::operation(*record, &mut self.batch);
                    self.batch.push(op);
                }
                Effect::Audit(audit) => {
                    let text = self.told(&audit);
                    self.log(Level::Warn, None, text);
                }
                Effect::VolatileLost { xid, count } => {
                    let text = format!(
                        "transaction {xid} is committed without {count} of its operations: they were of messages that are not \
                         persistent, and the broker has died since it was prepared"
                    );
                    self.log(Level::Warn, None, text);
                }
            }
        }
        if self.transactions.effects.is_empty() {
            self.transactions.effects = effects;
        }
    }

    /// Tells a connection, here or elsewhere.
    pub(crate) fn txn_answer(&mut self, answer: TxnAnswer) {
        let control = answer.control();
        if let (TxnAnswer::Reply { to, reply }, true) = (&answer, operators::is_operators(control)) {
            self.operator_answered(to.question, reply);
            return;
        }
        let shard = control.shard;
        if shard == self.shard {
            self.txn_answers.push(answer);
        } else {
            self.mail(shard, Body::TxnAnswer(answer));
        }
    }

    // ---- client sessions ----

    /// To the table of client sessions.
    pub(crate) fn tell_sessions(&mut self, input: SessionInput) {
        if self.shard != REGISTRY {
            self.mail(REGISTRY, Body::Session(Box::new(input)));
            return;
        }
        let broker_ms = self.broker_ms();
        let mut effects = Vec::new();
        self.transactions.sessions.handle(input, broker_ms, &mut effects);
        for effect in effects {
            match effect {
                SessionEffect::Admitted { txn, granted } => self.tell_home(Input::Admitted { txn, granted }),
                SessionEffect::CloseOthers { session, but } => {
                    let asking = Asking { shards: self.config.shards, status: None };
                    self.transactions.asking.insert(but, asking);
                    self.mail_others(|| Body::CloseOthers { session, but });
                    self.taken_over.push((session, but));
                }
                SessionEffect::Status { to, status } => match self.transactions.asking.get_mut(&to) {
                    Some(asking) => {
                        asking.status = Some(status);
                        self.answer_asking(to);
                    }
                    None => self.txn_answer(TxnAnswer::Status { to, status }),
                },
            }
        }
    }

    /// A shard has closed the other connections of a session: to the question for which it did so.
    pub(crate) fn others_closed(&mut self, but: ReplyTo) {
        if self.shard != REGISTRY {
            self.mail(REGISTRY, Body::OthersClosed { but });
            return;
        }
        let Some(asking) = self.transactions.asking.get_mut(&but) else { return };
        asking.shards = asking.shards.saturating_sub(1);
        self.answer_asking(but);
    }

    fn answer_asking(&mut self, but: ReplyTo) {
        let Some(Asking { shards: 0, status: Some(status) }) = self.transactions.asking.get(&but) else { return };
        let status = *status;
        self.transactions.asking.remove(&but);
        self.txn_answer(TxnAnswer::Status { to: but, status });
    }
}

/// The connection that asks or works.
fn comes_from(input: &Input<TxnPart>) -> Option<ConnectionId> {
    match input {
        Input::Declare { to, .. } | Input::Xa { to, .. } | Input::Recover { to, .. } => Some(to.control.connection),
        _ => None,
    }
}
