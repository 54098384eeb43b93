//! Clients with transactions around the reference broker that has them: local ones over several queues, a manager with a log of its own
//! that dies at every step and recovers, and clients without any. Connections break, processes and the broker die. A correct broker is
//! never blamed; one planted fault is always found, and for what it is.

use super::story::{begin, commit, commit_ok, commit_unknown, rollback_ok};
use super::transacted_reference::{Answer, Broker, QUEUES, Stage};
use packhorse_history::{
    BrokerChange, Event, Header, Invariant, JsonlWriter, MessageId, Options, Report, XaVerb, check_files,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const NAMES: [&str; QUEUES] = ["left", "right"];
const TRANSACTORS: usize = 2;
/// The process that commits in two phases.
const MANAGER: usize = TRANSACTORS;
const CLIENTS: usize = TRANSACTORS + 3;
/// The process that kills the broker and drains.
const HARNESS: usize = CLIENTS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A commit loses one of its messages.
    Half,
    /// A prepared branch is forgotten.
    Forget,
    /// What a prepared branch acknowledged is ready again.
    ReleaseRemove,
    /// What a prepared branch sent is there already.
    ShowStaged,
}

enum ToBroker {
    Begin(u64, bool),
    Send(Option<u64>, usize, MessageId, bool),
    Ack(Option<u64>, MessageId),
    Prepare(u64),
    Decide(u64, bool),
    Recover,
}

enum ToClient {
    Answer(Answer),
    Delivery(MessageId, u32),
    NotThere(u64, XaVerb),
    List(Vec<u64>),
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    Commit,
    Rollback,
    Prepare,
    List,
}

struct Client {
    writer: JsonlWriter<Vec<u8>>,
    incarnation: u32,
    /// Of the connection, its producing and its consuming link; 0: there is none.
    connection: u32,
    queue: usize,
    to_broker: VecDeque<ToBroker>,
    to_client: VecDeque<ToClient>,
    granted: u32,
    credit: u32,
    holds: Vec<MessageId>,
    /// The transaction, and what is waited for.
    tx: u64,
    wait: Wait,
}

struct World {
    random: u64,
    now_us: u64,
    fault: Fault,
    exercised: bool,
    broker: Broker,
    clients: Vec<Client>,
    finished: Vec<(String, Vec<u8>)>,
    next_connection: u32,
    next_sequence: u64,
    next_tx: u64,
    xids: BTreeMap<u64, String>,
    /// The manager's log: what it decided. It survives the manager.
    log: BTreeMap<u64, bool>,
    /// Known as prepared in a file, and nobody has asked to decide it.
    in_doubt: BTreeSet<u64>,
    /// Local ones of whose commit nobody knows.
    unknown: Vec<(usize, u64)>,
}

impl World {
    fn run(seed: u64, steps: usize, fault: Fault) -> (Vec<(String, Vec<u8>)>, bool) {
        let mut world = World {
            random: seed ^ 0x9e37_79b9_7f4a_7c15,
            now_us: 1_000,
            fault,
            exercised: false,
            broker: Broker::default(),
            clients: Vec::new(),
            finished: Vec::new(),
            next_connection: 1,
            next_sequence: 0,
            next_tx: 1,
            xids: BTreeMap::new(),
            log: BTreeMap::new(),
            in_doubt: BTreeSet::new(),
            unknown: Vec::new(),
        };
        world.broker.halve = (fault == Fault::Half).then_some(false);
        for client in 0..=HARNESS {
            let client = world.client(client, 0);
            world.clients.push(client);
        }
        for _ in 0..steps {
            world.step();
        }
        world.rest();
        for (index, client) in std::mem::take(&mut world.clients).into_iter().enumerate() {
            let name = format!("client-{index}-{}", client.incarnation);
            world.finished.push((name, client.writer.into_inner().expect("a vector takes everything")));
        }
        let exercised = world.exercised || world.broker.halve == Some(true);
        (world.finished, exercised)
    }

    fn client(&self, index: usize, incarnation: u32) -> Client {
        let header = Header {
            run: 1,
            process: format!("client-{index}"),
            pid: 1,
            incarnation,
            clock: "one".to_owned(),
            mono_ns: self.now_us * 1_000,
            wall_ns: 1,
        };
        Client {
            writer: JsonlWriter::new(Vec::new(), &header).expect("a vector takes everything"),
            incarnation,
            connection: 0,
            queue: 0,
            to_broker: VecDeque::new(),
            to_client: VecDeque::new(),
            granted: 0,
            credit: 0,
            holds: Vec::new(),
            tx: 0,
            wait: Wait::Nothing,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) as usize % end.max(1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn put(&mut self, client: usize, at_us: u64, event: Event<'_>) {
        self.clients[client].writer.put(at_us * 1_000, &event).expect("a vector takes everything");
    }

    /// An observation: lost if the process is killed before its next act. Its clock may have been read a little before.
    fn observe(&mut self, client: usize, event: Event<'_>) {
        let early_us = self.below(1_000) as u64;
        self.put(client, self.now_us - early_us, event);
    }

    /// An act: in the file before it is done.
    fn act(&mut self, client: usize, event: Event<'_>) {
        self.put(client, self.now_us, event);
        self.clients[client].writer.flush().expect("a vector takes everything");
    }

    fn xa(&mut self, client: usize, verb: XaVerb, tx: u64, code: Option<i32>) {
        let xid = self.xids[&tx].clone();
        let event = Event::Xa { verb, xid: &xid, code };
        if code.is_some() { self.observe(client, event) } else { self.act(client, event) }
    }

    fn step(&mut self) {
        self.now_us += 50 + self.below(3_000) as u64;
        match self.below(250) {
            0 => self.kill_broker(),
            1 => {
                let client = self.below(CLIENTS);
                self.kill(client);
            }
            2 | 3 => {
                let client = self.below(CLIENTS);
                self.cut(client);
            }
            4 => self.kill(MANAGER),
            5..=60 => {
                let client = self.below(CLIENTS);
                self.broker_reads(client, 1);
            }
            61..=100 => {
                let client = self.below(CLIENTS);
                self.deliver(client);
            }
            101..=125 => self.flush(),
            126..=130 => self.plant(),
            _ => {
                let client = self.below(CLIENTS);
                self.work(client);
            }
        }
    }

    // --- the broker's side

    fn broker_reads(&mut self, client: usize, most: usize) {
        for _ in 0..most {
            let one = &mut self.clients[client];
            let (connection, queue) = (one.connection, one.queue);
            let Some(message) = one.to_broker.pop_front() else { return };
            let broker = &mut self.broker;
            match message {
                ToBroker::Begin(tx, branch) => broker.begin(connection, tx, branch),
                ToBroker::Send(None, to, id, persistent) => broker.enqueue(connection, to, id, persistent),
                ToBroker::Send(Some(tx), to, id, persistent) => broker.send_in(connection, tx, to, id, persistent),
                ToBroker::Ack(None, id) => broker.acknowledge(connection, queue, id),
                ToBroker::Ack(Some(tx), id) => broker.acknowledge_in(connection, tx, queue, id),
                ToBroker::Prepare(tx) => {
                    if !broker.prepare(connection, tx) {
                        one.to_client.push_back(ToClient::NotThere(tx, XaVerb::Prepare));
                    }
                }
                ToBroker::Decide(tx, commit) => {
                    if !broker.decide(connection, tx, commit) && self.xids.contains_key(&tx) {
                        let answer = match broker.decided.get(&tx) {
                            Some(same) if *same == commit => ToClient::Answer(Answer::Decided(tx, commit)),
                            _ => ToClient::NotThere(tx, if commit { XaVerb::Commit } else { XaVerb::Rollback }),
                        };
                        // While its decision is on its way nobody is answered.
                        if broker.transactions.get(&tx).is_none_or(|one| one.stage != Stage::OnItsWay) {
                            one.to_client.push_back(answer);
                        }
                    }
                }
                ToBroker::Recover => one.to_client.push_back(ToClient::List(broker.prepared())),
            }
        }
    }

    fn flush(&mut self) {
        for (connection, answer) in self.broker.flush() {
            let told = self.clients.iter_mut().find(|client| client.connection == connection);
            if let Some(client) = told {
                client.to_client.push_back(ToClient::Answer(answer));
            }
        }
    }

    fn deliver(&mut self, client: usize) -> bool {
        let one = &mut self.clients[client];
        if one.connection == 0 || one.credit == 0 {
            return false;
        }
        let Some((id, count)) = self.broker.dispatch(one.queue, one.connection) else { return false };
        one.credit -= 1;
        one.to_client.push_back(ToClient::Delivery(id, count));
        true
    }

    fn kill_broker(&mut self) {
        self.act(HARNESS, Event::Broker { change: BrokerChange::Kill });
        for client in 0..CLIENTS {
            self.lose(client);
        }
        self.broker.crash();
        self.now_us += 20_000;
        self.observe(HARNESS, Event::Broker { change: BrokerChange::Start });
    }

    // --- the clients' side

    /// The connection breaks: what was on its way to the broker is lost, the client reads nothing more.
    fn cut(&mut self, client: usize) {
        let connection = self.clients[client].connection;
        if connection != 0 {
            self.broker.cut(connection);
            self.lose(client);
        }
    }

    fn lose(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let (connection, tx, wait) = (one.connection, one.tx, one.wait);
        one.to_broker.clear();
        one.to_client.clear();
        one.holds.clear();
        (one.connection, one.tx, one.wait) = (0, 0, Wait::Nothing);
        if connection == 0 {
            return;
        }
        self.observe(client, Event::Detach { consumer: connection, orderly: false, confirmed: false });
        if wait == Wait::Commit && client < TRANSACTORS {
            self.observe(client, commit_unknown(tx));
            self.unknown.push((client, tx));
        }
    }

    fn kill(&mut self, client: usize) {
        if self.clients[client].connection != 0 {
            self.broker.cut(self.clients[client].connection);
        }
        self.now_us += 1_000;
        let next = self.client(client, self.clients[client].incarnation + 1);
        let mut killed = std::mem::replace(&mut self.clients[client], next);
        // Not flushed: what it had observed since its last act is gone with it.
        let bytes = std::mem::take(killed.writer.get_mut());
        self.finished.push((format!("client-{client}-{}", killed.incarnation), bytes));
        self.unknown.retain(|(of, _)| *of != client);
    }

    fn work(&mut self, client: usize) {
        if self.clients[client].connection == 0 {
            return self.connect(client);
        }
        let most = self.below(4);
        self.read(client, most);
        if self.clients[client].connection == 0 || self.clients[client].wait != Wait::Nothing {
            return;
        }
        if self.clients[client].granted < 5 {
            let consumer = self.clients[client].connection;
            self.act(client, Event::Credit { consumer, credit: 12 });
            let one = &mut self.clients[client];
            let unread = one.to_client.iter().filter(|one| matches!(one, ToClient::Delivery(..))).count() as u32;
            (one.granted, one.credit) = (12, 12 - unread);
        }
        let plain = client > MANAGER;
        if !plain && self.clients[client].tx == 0 {
            return self.begin(client);
        }
        let tx = (!plain).then_some(self.clients[client].tx);
        match self.below(10) {
            0..=3 => self.send(client, tx),
            4..=7 if !self.clients[client].holds.is_empty() => {
                let at = self.below(self.clients[client].holds.len());
                let message = self.clients[client].holds.remove(at);
                let consumer = self.clients[client].connection;
                self.act(client, Event::Ack { message, consumer, confirmed: false, tx });
                self.clients[client].to_broker.push_back(ToBroker::Ack(tx, message));
            }
            8 | 9 if client == MANAGER => {
                self.xa(client, XaVerb::Prepare, self.clients[client].tx, None);
                let one = &mut self.clients[client];
                one.wait = Wait::Prepare;
                one.to_broker.push_back(ToBroker::Prepare(one.tx));
            }
            8 | 9 if !plain => {
                let ok = !self.one_in(3);
                let tx = self.clients[client].tx;
                if ok {
                    self.act(client, commit(tx));
                }
                let one = &mut self.clients[client];
                one.wait = if ok { Wait::Commit } else { Wait::Rollback };
                one.to_broker.push_back(ToBroker::Decide(tx, ok));
            }
            _ => {}
        }
    }

    fn connect(&mut self, client: usize) {
        let (consumer, queue) = (self.next_connection, self.below(QUEUES));
        self.next_connection += 1;
        let attach = Event::Attach { consumer, queue: NAMES[queue], presettled: false, filtered: false };
        self.act(client, attach);
        let one = &mut self.clients[client];
        (one.connection, one.queue, one.granted, one.credit) = (consumer, queue, 0, 0);
        // What became of a commit is asked for now and then; the broker ends what is on its way first.
        while let Some(at) = self.unknown.iter().position(|(of, _)| *of == client) {
            let (_, tx) = self.unknown.remove(at);
            if self.one_in(2) {
                self.flush();
                let committed = self.broker.decided.get(&tx) == Some(&true);
                self.observe(client, if committed { commit_ok(tx) } else { rollback_ok(tx) });
            }
        }
        if client == MANAGER {
            self.act(client, Event::RecoverList { xids: None, broker: None });
            self.clients[client].wait = Wait::List;
            self.clients[client].to_broker.push_back(ToBroker::Recover);
        }
    }

    fn begin(&mut self, client: usize) {
        let tx = self.next_tx;
        self.next_tx += 1;
        self.clients[client].tx = tx;
        if client == MANAGER {
            let xid = format!("1:{tx:x}:");
            self.act(client, Event::TxBegin { tx, xid: Some(&xid), broker: None });
            self.xids.insert(tx, xid);
        } else {
            self.act(client, begin(tx));
        }
        self.clients[client].to_broker.push_back(ToBroker::Begin(tx, client == MANAGER));
    }

    fn send(&mut self, client: usize, tx: Option<u64>) {
        let message = MessageId::new(self.clients[client].connection, self.next_sequence);
        self.next_sequence += 1;
        let (queue, persistent) = (self.below(QUEUES), !self.one_in(6));
        let send = Event::Send {
            message,
            queue: NAMES[queue],
            size_bytes: 1,
            crc: 1,
            persistent,
            ttl_ms: 0,
            delay_ms: 0,
            priority: 4,
            tx,
        };
        self.act(client, send);
        self.clients[client].to_broker.push_back(ToBroker::Send(tx, queue, message, persistent));
    }

    fn read(&mut self, client: usize, most: usize) {
        for _ in 0..most {
            let one = &mut self.clients[client];
            let (consumer, queue) = (one.connection, one.queue);
            let Some(message) = one.to_client.pop_front() else { return };
            match message {
                ToClient::Delivery(message, delivery_count) => {
                    one.granted = one.granted.saturating_sub(1);
                    one.holds.push(message);
                    let redelivered = delivery_count > 0;
                    let (queue, crc_ok, tx) = (NAMES[queue], true, None);
                    let recv = Event::Recv { message, consumer, queue, delivery_count, redelivered, crc_ok, tx };
                    self.observe(client, recv);
                }
                ToClient::Answer(Answer::Confirmed(message)) => self.observe(client, Event::SentOk { message }),
                ToClient::Answer(Answer::Acknowledged(message)) => {
                    self.observe(client, Event::Ack { message, consumer, confirmed: true, tx: None });
                }
                ToClient::Answer(Answer::Decided(tx, committed)) if self.xids.contains_key(&tx) => {
                    let verb = if committed { XaVerb::Commit } else { XaVerb::Rollback };
                    self.xa(client, verb, tx, Some(0));
                    self.decided(client, tx);
                }
                ToClient::Answer(Answer::Decided(tx, committed)) => {
                    self.observe(client, if committed { commit_ok(tx) } else { rollback_ok(tx) });
                    (self.clients[client].tx, self.clients[client].wait) = (0, Wait::Nothing);
                }
                ToClient::Answer(Answer::Prepared(tx)) => {
                    self.xa(client, XaVerb::Prepare, tx, Some(0));
                    self.clients[client].writer.flush().expect("a vector takes everything");
                    self.in_doubt.insert(tx);
                    // In the log before it is done; sometimes the manager thinks for long.
                    let commit = !self.one_in(3);
                    self.log.insert(tx, commit);
                    if self.one_in(3) { self.cut(client) } else { self.decide(client, tx, commit) }
                }
                ToClient::NotThere(gone, verb) => {
                    self.xa(client, verb, gone, Some(-4));
                    self.decided(client, gone);
                }
                ToClient::List(listed) => {
                    let xids: Vec<&str> = listed.iter().map(|tx| self.xids[tx].as_str()).collect();
                    let xids = xids.join(" ");
                    self.observe(client, Event::RecoverList { xids: Some(&xids), broker: None });
                    self.clients[client].wait = Wait::Nothing;
                    // Not all at once.
                    for tx in listed {
                        if !self.one_in(4) {
                            let commit = self.log.get(&tx).copied().unwrap_or(false);
                            self.decide(client, tx, commit);
                        }
                    }
                }
            }
        }
    }

    fn decide(&mut self, client: usize, tx: u64, commit: bool) {
        self.xa(client, if commit { XaVerb::Commit } else { XaVerb::Rollback }, tx, None);
        self.in_doubt.remove(&tx);
        let one = &mut self.clients[client];
        if one.tx == tx {
            one.wait = Wait::Commit;
        }
        one.to_broker.push_back(ToBroker::Decide(tx, commit));
    }

    fn decided(&mut self, client: usize, tx: u64) {
        let one = &mut self.clients[client];
        if one.tx == tx {
            (one.tx, one.wait) = (0, Wait::Nothing);
        }
    }

    // --- faults

    fn plant(&mut self) {
        if self.exercised {
            return;
        }
        let Some(tx) = self.in_doubt.first().copied() else { return };
        if self.fault == Fault::Forget && self.broker.prepared().contains(&tx) {
            self.broker.forget(tx);
            self.exercised = true;
        }
    }

    fn plant_at_the_end(&mut self) {
        for tx in self.in_doubt.clone() {
            let known = self.broker.prepared().contains(&tx) && !self.exercised;
            match self.fault {
                Fault::ReleaseRemove if known => self.exercised = self.broker.expose(tx, false),
                Fault::ShowStaged if known => self.exercised = self.broker.expose(tx, true),
                _ => {}
            }
        }
    }

    // --- the end

    /// Nobody acts any more; everything on its way arrives, or connections break.
    fn rest(&mut self) {
        if matches!(self.fault, Fault::ReleaseRemove | Fault::ShowStaged) {
            self.leave_one_in_doubt();
        }
        for client in 0..CLIENTS {
            self.broker_reads(client, usize::MAX);
            self.flush();
            self.now_us += 3_000;
            self.read(client, usize::MAX);
            self.cut(client);
            self.clients[client].writer.flush().expect("a vector takes everything");
        }
        self.flush();
        self.now_us += 100_000;
        self.plant_at_the_end();
        // What is there while branches are in doubt, and when they are decided.
        self.drain(false);
        self.resolve();
        self.now_us += 100_000;
        self.drain(true);
        for client in 0..=HARNESS {
            self.act(client, Event::End);
        }
    }

    /// So that there is one, with work of both kinds.
    fn leave_one_in_doubt(&mut self) {
        for _ in 0..400 {
            self.now_us += 1_000;
            let one = &self.clients[MANAGER];
            if one.connection == 0 || one.wait == Wait::List || one.tx == 0 {
                self.work(MANAGER);
                self.broker_reads(MANAGER, usize::MAX);
                continue;
            }
            while self.deliver(MANAGER) {}
            self.read(MANAGER, usize::MAX);
            if self.clients[MANAGER].wait == Wait::Nothing && self.clients[MANAGER].tx != 0 {
                self.work(MANAGER);
                self.broker_reads(MANAGER, usize::MAX);
            }
            if self.clients[MANAGER].wait == Wait::Prepare {
                self.flush();
                self.read(MANAGER, usize::MAX);
                if !self.in_doubt.is_empty() {
                    return;
                }
                self.broker_reads(MANAGER, usize::MAX);
                self.flush();
            }
        }
    }

    /// The manager decides all that is left.
    fn resolve(&mut self) {
        for _ in 0..40 {
            self.now_us += 5_000;
            if self.clients[MANAGER].connection == 0 {
                self.connect(MANAGER);
            }
            self.broker_reads(MANAGER, usize::MAX);
            self.flush();
            self.now_us += 5_000;
            self.read(MANAGER, usize::MAX);
            self.broker_reads(MANAGER, usize::MAX);
            self.flush();
            self.now_us += 5_000;
            self.read(MANAGER, usize::MAX);
            self.cut(MANAGER);
            let done = self.broker.prepared().is_empty();
            if done && self.one_in(2) {
                break;
            }
        }
        self.clients[MANAGER].writer.flush().expect("a vector takes everything");
    }

    fn drain(&mut self, last: bool) {
        for (queue, name) in NAMES.into_iter().enumerate() {
            self.now_us += 10_000;
            let consumer = self.next_connection;
            self.next_connection += 1;
            let attach = Event::Attach { consumer, queue: name, presettled: false, filtered: false };
            self.act(HARNESS, attach);
            self.act(HARNESS, Event::Credit { consumer, credit: u32::MAX });
            while let Some((message, delivery_count)) = self.broker.dispatch(queue, consumer) {
                self.now_us += 100;
                let (redelivered, crc_ok, tx) = (delivery_count > 0, true, None);
                let recv = Event::Recv { message, consumer, queue: name, delivery_count, redelivered, crc_ok, tx };
                self.act(HARNESS, recv);
                self.act(HARNESS, Event::Ack { message, consumer, confirmed: false, tx });
                self.broker.acknowledge(consumer, queue, message);
                self.broker.flush();
                self.now_us += 3_000;
                self.act(HARNESS, Event::Ack { message, consumer, confirmed: true, tx });
            }
            self.act(HARNESS, Event::Detach { consumer, orderly: true, confirmed: false });
            self.act(HARNESS, Event::Detach { consumer, orderly: true, confirmed: true });
            self.now_us += 5_000;
            if last && self.broker.queues[queue].is_empty() {
                self.act(HARNESS, Event::Drained { queue: name });
            }
        }
        self.now_us += 5_000;
        if last {
            self.act(HARNESS, Event::Drained { queue: "DLQ" });
        }
    }
}

fn check(seed: u64, steps: usize, fault: Fault) -> (Report, bool) {
    let (files, exercised) = World::run(seed, steps, fault);
    let sources = files.iter().map(|(name, bytes)| (name.clone(), bytes.as_slice()));
    let report = check_files(sources, &Options::default()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    (report, exercised)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_correct_broker_is_never_blamed(seed in any::<u64>(), steps in 1usize..4_000) {
        let (report, _) = check(seed, steps, Fault::None);
        prop_assert!(report.is_clean(), "{report}");
        prop_assert_eq!(report.totals.not_judged_for_loss, 0, "everything was drained: {}", report);
    }
}

#[test]
fn a_world_has_transactions_of_every_fate() {
    let mut totals = (0, 0, 0, 0, 0);
    for seed in 0..20 {
        let (report, _) = check(seed, 3_000, Fault::None);
        totals.0 += report.totals.transactions_committed;
        totals.1 += report.totals.transactions_unknown;
        totals.2 +=
            report.totals.transactions - report.totals.transactions_committed - report.totals.transactions_unknown;
        totals.3 += report.judged(Invariant::Atomicity);
        totals.4 += report.judged(Invariant::Prepared);
    }
    let (committed, unknown, rolled_back, judged, prepared) = totals;
    let all = [committed, unknown, rolled_back, judged, prepared];
    assert!(all.iter().all(|count| *count >= 100), "{all:?}");
}

/// Runs seeds until the fault happened `wanted` times, and demands that each time it was found, and no invariant but these.
fn caught(fault: Fault, invariant: Invariant, also: &[Invariant], wanted: u32) {
    let mut exercised = 0;
    for seed in 0..400 {
        let (report, happened) = check(seed, 1_500, fault);
        if !happened {
            assert!(report.is_clean(), "seed {seed}: {report}");
            continue;
        }
        exercised += 1;
        assert!(report.count(invariant) > 0, "seed {seed}: {fault:?} was not found\n{report}");
        let others =
            report.violations().iter().filter(|one| one.invariant != invariant && !also.contains(&one.invariant));
        assert_eq!(others.count(), 0, "seed {seed}: {fault:?}\n{report}");
        if exercised == wanted {
            return;
        }
    }
    panic!("{fault:?} happened {exercised} times in 400 runs");
}

#[test]
fn half_a_commit_is_found() {
    caught(Fault::Half, Invariant::Atomicity, &[], 20);
}

#[test]
fn a_forgotten_branch_is_found() {
    // What it acknowledged comes again, and it may be told as committed by its manager all the same.
    caught(Fault::Forget, Invariant::Prepared, &[], 20);
}

#[test]
fn a_message_that_a_branch_in_doubt_acknowledged_and_that_is_ready_again_is_found() {
    caught(
        Fault::ReleaseRemove,
        Invariant::Prepared,
        &[Invariant::Duplicate, Invariant::Lost, Invariant::Atomicity],
        20,
    );
}

#[test]
fn a_message_that_a_branch_in_doubt_sent_and_that_is_there_already_is_found() {
    caught(
        Fault::ShowStaged,
        Invariant::Prepared,
        &[Invariant::Atomicity, Invariant::Phantom, Invariant::SilentDuplicate, Invariant::Duplicate],
        20,
    );
}
