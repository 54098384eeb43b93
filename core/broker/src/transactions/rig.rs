//! Shards, a store in memory and time, without connections: controls, producers and consumers are names, and what would be said to
//! them is kept. Must not judge: tests do.

use crate::mail::{Answer, LinkRef, Payload, Request, TxnAnswer, Unheard};
use crate::queues::Queues;
use crate::{Command, Config, Effect, Input, Level, Mail, QueuePatch, Reply, Shard};
use packhorse_model::{ConnectionId, ContentFormat, Head, HeadFlags, Now, Outcome, QueueId, Seed, ShardId, TxnId, Xid};
use packhorse_queue::{ConsumerId, DeliveryKey};
use packhorse_store::{LargeOp, Memory, MemoryStore, Store, TxnPart};
use packhorse_txn::state::Verb;
use packhorse_txn::{Code, Control, NoWork, ReplyTo, Start, TxStatus};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A delivery.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub(super) text: String,
    pub(super) key: DeliveryKey,
    pub(super) deliveries: u32,
}

pub(super) struct Rig {
    pub(super) memory: Memory,
    pub(super) shards: Vec<Shard<MemoryStore>>,
    pub(super) now: Now,
    config: Config,
    mail: Vec<VecDeque<Box<Mail>>>,
    commands: u64,
    questions: u32,
    controls: u32,
    links: u32,
    pub(super) admin: BTreeMap<u64, Reply>,
    pub(super) replies: BTreeMap<u32, packhorse_txn::Reply>,
    pub(super) statuses: BTreeMap<u32, TxStatus>,
    pub(super) refused: Vec<(Control, TxnId, NoWork)>,
    pub(super) logs: Vec<(Level, String)>,
    consumers: BTreeMap<u32, (QueueId, ConsumerId)>,
    got: BTreeMap<u32, Vec<Got>>,
    heard: u64,
    /// Mail from the one shard to the other is late.
    slow: Option<(usize, usize)>,
    late: VecDeque<Box<Mail>>,
}

impl Rig {
    pub(super) fn new(shards: u16) -> Rig {
        Rig::with(Config { shards, ..Config::default() })
    }

    pub(super) fn with(config: Config) -> Rig {
        let memory = Memory::new(config.shards, true);
        Rig::over(config, memory, Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 })
    }

    fn over(config: Config, memory: Memory, now: Now) -> Rig {
        let shared = Arc::new(config.clone());
        let shards = (0..config.shards).map(|index| {
            let mut shard = Shard::new(shared.clone(), ShardId(index), Seed::fixed(3), memory.handle(ShardId(index)));
            while !shard.recover_step(now).done {}
            shard
        });
        Rig {
            shards: shards.collect(),
            memory,
            now,
            mail: (0..config.shards).map(|_| VecDeque::new()).collect(),
            config,
            commands: 0,
            questions: 0,
            controls: 0,
            links: 0,
            admin: BTreeMap::new(),
            replies: BTreeMap::new(),
            statuses: BTreeMap::new(),
            refused: Vec::new(),
            logs: Vec::new(),
            consumers: BTreeMap::new(),
            got: BTreeMap::new(),
            heard: 0,
            slow: None,
            late: VecDeque::new(),
        }
    }

    /// The process dies; each shard keeps what is durable and some prefix of the rest. Started again, with a free store.
    pub(super) fn crash(&mut self, seed: u64) {
        self.stamp();
        self.replace(self.memory.crash(self.config.shards, seed));
    }

    pub(super) fn restart(&mut self) {
        self.stamp();
        self.replace(self.memory.restart(self.config.shards));
    }

    fn stamp(&self) {
        let started_at_ms = self.memory.handle(ShardId(0)).started_at_ms();
        self.memory.set_broker_time_ms(started_at_ms + self.now.mono_ms());
    }

    fn replace(&mut self, memory: Memory) {
        memory.set_auto(true);
        let (commands, questions) = (self.commands, self.questions);
        *self = Rig::over(self.config.clone(), memory, Now { mono_us: 0, ..self.now });
        (self.commands, self.questions) = (commands, questions);
        self.run();
    }

    // ---- turns ----

    pub(super) fn queues(&mut self, shard: usize) -> &mut Queues {
        let queues = &mut self.shards[shard].queues;
        queues.set_now(self.now);
        queues
    }

    /// One turn of each shard, with the mail that it has.
    pub(super) fn turn(&mut self) {
        for shard in 0..self.shards.len() {
            let mut effects = Vec::new();
            for mail in std::mem::take(&mut self.mail[shard]) {
                self.shards[shard].handle(Input::Mail(mail), self.now, &mut effects);
            }
            self.shards[shard].end_turn(self.now, &mut effects);
            self.take_in(shard, effects);
            for unheard in std::mem::take(&mut self.shards[shard].queues.unheard) {
                self.hear(unheard);
            }
        }
        for shard in &self.shards {
            shard.audit().unwrap_or_else(|why| panic!("{why}"));
        }
    }

    fn take_in(&mut self, from: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Mail { to, mail } if self.slow == Some((from, usize::from(to.0))) => self.late.push_back(mail),
                Effect::Mail { to, mail } => self.mail[usize::from(to.0)].push_back(mail),
                Effect::AdminReply { id, reply } => {
                    let before = self.admin.insert(id, *reply);
                    assert!(before.is_none(), "a command is answered once");
                }
                Effect::Log { level, text, .. } => self.logs.push((level, text)),
                _ => {}
            }
        }
    }

    /// From now on mail from the one shard to the other is late; what was late before arrives.
    pub(super) fn slow(&mut self, pair: Option<(usize, usize)>) {
        if let Some((_, to)) = std::mem::replace(&mut self.slow, pair) {
            self.mail[to].extend(self.late.drain(..));
        }
    }

    fn hear(&mut self, unheard: Unheard) {
        self.heard += 1;
        match unheard {
            Unheard::Txn(TxnAnswer::Reply { to, reply }) => {
                let before = self.replies.insert(to.question, reply);
                assert!(before.is_none(), "a question is answered once");
            }
            Unheard::Txn(TxnAnswer::Refused { control, txn, why }) => self.refused.push((control, txn, why)),
            Unheard::Txn(TxnAnswer::Status { to, status }) => drop(self.statuses.insert(to.question, status)),
            Unheard::Link(link, Answer::Subscribed { queue, consumer }, _) => {
                self.consumers.insert(link.link, (queue, consumer));
            }
            Unheard::Link(link, Answer::Deliver(deliver), body) => {
                let bytes = deliver.body.or(body).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let got = Got { text, key: deliver.key, deliveries: deliver.deliveries };
                self.got.entry(link.link).or_default().push(got);
            }
            Unheard::Link(..) => {}
        }
    }

    fn busy(&self) -> bool {
        self.mail.iter().any(|mail| !mail.is_empty()) || self.shards.iter().any(|s| s.next_deadline() == Some(0))
    }

    /// Turns until nothing happens any more.
    pub(super) fn run(&mut self) {
        let mut quiet = 0;
        for _ in 0..10_000 {
            let before = self.heard;
            self.turn();
            // The store's word comes without a call; a transaction over two shards takes a few of them.
            quiet = if self.busy() || self.heard > before { 0 } else { quiet + 1 };
            if quiet == 4 {
                return;
            }
        }
        panic!("it never ends");
    }

    pub(super) fn later(&mut self, ms: u64) {
        self.now.mono_us += ms * 1000;
        self.now.wall_ms += ms as i64;
        self.run();
    }

    // ---- operators ----

    pub(super) fn command(&mut self, shard: usize, command: Command) -> u64 {
        self.commands += 1;
        let mut effects = Vec::new();
        let id = self.commands;
        self.shards[shard].handle(Input::Admin { id, command }, self.now, &mut effects);
        self.take_in(shard, effects);
        id
    }

    pub(super) fn ask(&mut self, command: Command) -> Reply {
        let id = self.command(0, command);
        self.run();
        self.admin.remove(&id).expect("the command is answered")
    }

    pub(super) fn declare(&mut self, name: &str) -> QueueId {
        self.declare_with(name, QueuePatch::default())
    }

    pub(super) fn declare_with(&mut self, name: &str, patch: QueuePatch) -> QueueId {
        match self.ask(Command::QueuePut { name: name.into(), patch }) {
            Reply::Created { queue, .. } => queue.id,
            other => panic!("{other:?}"),
        }
    }

    // ---- links ----

    fn link(&mut self) -> LinkRef {
        self.links += 1;
        let connection = ConnectionId(1_000_000 + u64::from(self.links));
        LinkRef { shard: ShardId(0), slot: u32::MAX, connection, link: self.links, generation: 0 }
    }

    pub(super) fn send(&mut self, queue: QueueId, text: &str) {
        let from = self.link();
        self.queues(0).enqueue(queue, from, 0, true, head(true), Payload::Slice(text.as_bytes()));
        self.run();
    }

    /// A consumer with much credit; its name.
    pub(super) fn consumer(&mut self, queue: QueueId) -> u32 {
        let from = self.link();
        self.queues(0).request(queue, Request::Subscribe { from, pre_settled: false, browses: false });
        self.run();
        let (queue, consumer) = self.consumers[&from.link];
        self.queues(0).request(queue, Request::Credit { consumer, limit: 1_000_000, drain: false });
        self.run();
        from.link
    }

    pub(super) fn leave(&mut self, consumer: u32) {
        let (queue, consumer) = self.consumers[&consumer];
        self.queues(0).request(queue, Request::Unsubscribe { consumer, lost: false });
        self.run();
    }

    pub(super) fn acknowledge(&mut self, queue: QueueId, key: DeliveryKey) {
        self.queues(0).request(queue, Request::Settle { key, outcome: Outcome::Acknowledge, reply: None });
        self.run();
    }

    /// What the consumer got since it was asked the last time.
    pub(super) fn got(&mut self, consumer: u32) -> Vec<Got> {
        self.got.remove(&consumer).unwrap_or_default()
    }

    /// What the queue holds that is ready, oldest first, with the numbers of earlier deliveries.
    pub(super) fn ready(&mut self, queue: QueueId) -> Vec<(String, u32)> {
        let consumer = self.consumer(queue);
        let got = self.got(consumer);
        self.leave(consumer);
        got.into_iter().map(|got| (got.text, got.deliveries)).collect()
    }

    pub(super) fn texts(&mut self, queue: QueueId) -> Vec<String> {
        self.ready(queue).into_iter().map(|(text, _)| text).collect()
    }

    // ---- transactions ----

    /// A control on a connection of its own, of this shard.
    pub(super) fn control(&mut self, shard: usize) -> Control {
        self.controls += 1;
        Control { connection: ConnectionId(u64::from(self.controls)), number: 1, shard: ShardId(shard as u16) }
    }

    pub(super) fn question(&mut self, control: Control) -> ReplyTo {
        self.questions += 1;
        ReplyTo { control, question: self.questions }
    }

    pub(super) fn transact(
        &mut self,
        control: Control,
        input: impl FnOnce(ReplyTo) -> packhorse_txn::Input<TxnPart>,
    ) -> u32 {
        let to = self.question(control);
        self.queues(usize::from(control.shard.0)).transact(input(to));
        to.question
    }

    pub(super) fn begin(&mut self, control: Control) -> TxnId {
        let question = self.transact(control, |to| packhorse_txn::Input::Declare { to, client: "c".into() });
        self.run();
        match self.replies.remove(&question) {
            Some(packhorse_txn::Reply::Declared(txn)) => txn,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn xa(&mut self, control: Control, xid: &Xid, verb: Verb) -> u32 {
        let starts = matches!(verb, Verb::Start | Verb::Join | Verb::Resume);
        let start = starts.then(|| Start { timeout_ms: 0, local_work: false, client: "c".into() });
        self.transact(control, |to| packhorse_txn::Input::Xa { to, xid: xid.clone(), verb, start })
    }

    pub(super) fn start(&mut self, control: Control, xid: &Xid) -> TxnId {
        let question = self.xa(control, xid, Verb::Start);
        self.run();
        match self.replies.remove(&question) {
            Some(packhorse_txn::Reply::Started(txn)) => txn,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn code(&mut self, control: Control, xid: &Xid, verb: Verb) -> Code {
        let question = self.xa(control, xid, verb);
        self.run();
        self.replies.remove(&question).expect("a verb is answered").code()
    }

    /// Ends the work in the branch and prepares it.
    pub(super) fn prepare(&mut self, control: Control, xid: &Xid) {
        assert_eq!([self.code(control, xid, Verb::End), self.code(control, xid, Verb::Prepare)], [Code::Ok; 2]);
    }

    pub(super) fn discharge(&mut self, control: Control, txn: TxnId, fail: bool) -> u32 {
        self.transact(control, |to| packhorse_txn::Input::Discharge { to, txn, fail, token: None })
    }

    pub(super) fn commit(&mut self, control: Control, txn: TxnId) -> packhorse_txn::Reply {
        let question = self.discharge(control, txn, false);
        self.run();
        self.replies.remove(&question).expect("a discharge is answered")
    }

    pub(super) fn add(&mut self, control: Control, txn: TxnId, queue: QueueId, text: &str) {
        self.add_as(control, txn, queue, text, true).expect("the work is taken");
    }

    pub(super) fn add_as(
        &mut self,
        control: Control,
        txn: TxnId,
        queue: QueueId,
        text: &str,
        persistent: bool,
    ) -> Result<(), NoWork> {
        let payload = Payload::Slice(text.as_bytes());
        self.queues(usize::from(control.shard.0)).stage_enqueue(queue, txn, control, head(persistent), payload, None)
    }

    /// Adds a message whose content is in a file.
    pub(super) fn add_large(&mut self, control: Control, txn: TxnId, queue: QueueId, persistent: bool) {
        let queues = self.queues(usize::from(control.shard.0));
        let id = queues.new_large();
        let bytes = bytes::Bytes::from_static(b"a large message");
        let length = bytes.len() as u64;
        queues.large_ops.extend([LargeOp::Begin { id }, LargeOp::Chunk { id, bytes }, LargeOp::End { id }]);
        self.run();
        let payload = Payload::Large { id, length };
        let queues = self.queues(usize::from(control.shard.0));
        queues.stage_enqueue(queue, txn, control, head(persistent), payload, None).expect("the work is taken");
    }

    pub(super) fn remove(&mut self, control: Control, txn: TxnId, queue: QueueId, key: DeliveryKey) {
        self.queues(usize::from(control.shard.0))
            .stage_settle(queue, txn, control, key, packhorse_model::Outcome::Acknowledge)
            .expect("the work is taken");
    }

    pub(super) fn lose(&mut self, control: Control) {
        self.queues(usize::from(control.shard.0)).connection_gone(control.connection);
        self.run();
    }

    /// Memory of bodies, all shards.
    pub(super) fn pinned(&self) -> u64 {
        self.shards.iter().map(|shard| shard.queues.ring.pinned()).sum()
    }
}

pub(super) fn head(persistent: bool) -> Head {
    Head {
        arrived_ms: 1,
        ttl_ms: 0,
        message_format: 0,
        priority: 4,
        flags: if persistent { HeadFlags::PERSISTENT } else { HeadFlags::default() },
        format: ContentFormat::Amqp10,
    }
}

pub(super) fn xid(name: &str) -> Xid {
    Xid::new(1, name.as_bytes(), b"b").expect("a short name")
}
