//! Clients around the reference broker: processes that send, consume, are stopped and killed; connections that break with bytes in
//! them; each process writes its history as `docs/formats/history.md` demands. Everything follows from one seed.
//!
//! Must not know: what the checker makes of it.

use super::reference::{Answer, Broker, Fault, Outcome, State};
use packhorse_history::{BrokerChange, Counters, Event, Header, JsonlWriter, MessageId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const QUEUES: [&str; 2] = ["left", "right"];
const PRODUCERS: usize = 2;
const CONSUMERS: usize = 3;
/// The process that kills the broker, drains and reads counters.
const HARNESS: usize = PRODUCERS + CONSUMERS;

/// What became of a run.
pub(crate) struct Run {
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// The planted fault happened, and clients saw enough to know.
    pub(crate) exercised: bool,
}

enum ToBroker {
    Transfer { queue: usize, id: MessageId, priority: u8, persistent: bool },
    Settle(MessageId, Outcome),
    Credit(u32),
    Close,
}

enum ToClient {
    Answer(Answer),
    Refused(MessageId),
    Delivery { id: MessageId, count: u32, intact: bool },
}

struct Link {
    number: u32,
    process: usize,
    queue: usize,
    consumes: bool,
    /// As the broker sees it.
    connected: bool,
    credit: u32,
    to_broker: VecDeque<ToBroker>,
    to_client: VecDeque<ToClient>,
    /// As the client sees it: credit given and not used, deliveries held, sends without an answer.
    granted: u32,
    holds: Vec<MessageId>,
    unanswered: BTreeSet<MessageId>,
    closing: bool,
}

/// Something seen, for planting faults where clients can tell.
enum Note {
    Confirmed(MessageId),
    Acknowledged(usize, MessageId),
    Count(MessageId, u32),
}

struct Process {
    writer: JsonlWriter<Vec<u8>>,
    /// What it has seen since its file was flushed.
    notes: Vec<Note>,
    incarnation: u32,
    stopped: bool,
    links: Vec<Link>,
}

pub(crate) struct World {
    random: u64,
    now_us: u64,
    served_us: u64,
    fault: Fault,
    exercised: bool,
    broker: Broker,
    processes: Vec<Process>,
    finished: Vec<(String, Vec<u8>)>,
    next_link: u32,
    next_sequence: BTreeMap<u32, u64>,
    /// What clients have recorded, so that a fault is planted where it can be seen.
    confirmed: BTreeSet<MessageId>,
    acknowledged: Vec<(usize, MessageId)>,
    counts: BTreeMap<MessageId, Vec<u32>>,
    /// Given back unseen at least once.
    given_back: BTreeSet<MessageId>,
}

impl World {
    /// Runs `steps` random steps with the fault planted, then lets everything come to rest, drains, and closes the files.
    pub(crate) fn run(seed: u64, steps: usize, fault: Fault) -> Run {
        let mut world = World {
            random: seed ^ 0x9e37_79b9_7f4a_7c15,
            now_us: 1_000,
            served_us: 1_000,
            fault,
            exercised: false,
            broker: Broker::new(QUEUES.len()),
            processes: Vec::new(),
            finished: Vec::new(),
            next_link: 1,
            next_sequence: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            acknowledged: Vec::new(),
            counts: BTreeMap::new(),
            given_back: BTreeSet::new(),
        };
        for process in 0..=HARNESS {
            let process = world.process(process, 0);
            world.processes.push(process);
        }
        for _ in 0..steps {
            world.step();
        }
        world.rest();
        world.drain();
        for index in 0..world.processes.len() {
            world.act(index, Event::End);
        }
        for (index, process) in std::mem::take(&mut world.processes).into_iter().enumerate() {
            let name = format!("process-{index}-{}", process.incarnation);
            world.finished.push((name, process.writer.into_inner().expect("a vector takes everything")));
        }
        Run { files: world.finished, exercised: world.exercised }
    }

    fn process(&mut self, process: usize, incarnation: u32) -> Process {
        let header = Header {
            run: 1,
            process: format!("process-{process}"),
            pid: 1,
            incarnation,
            clock: "one".to_owned(),
            mono_ns: self.now_us * 1_000,
            wall_ns: 1,
        };
        let writer = JsonlWriter::new(Vec::new(), &header).expect("a vector takes everything");
        Process { writer, notes: Vec::new(), incarnation, stopped: false, links: Vec::new() }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % end.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// An observation: recorded, and lost if the process is killed before its next act. Its clock may have been read a little before.
    fn observe(&mut self, process: usize, event: Event<'_>) {
        let early_us = self.below(1_000);
        self.put(process, self.now_us.saturating_sub(early_us), event);
    }

    /// An act: in the file before it is done.
    fn act(&mut self, process: usize, event: Event<'_>) {
        self.put(process, self.now_us, event);
        self.flush_file(process);
    }

    fn put(&mut self, process: usize, at_us: u64, event: Event<'_>) {
        self.processes[process].writer.put(at_us * 1_000, &event).expect("a vector takes everything");
    }

    fn step(&mut self) {
        self.now_us += 50 + self.below(4_000);
        if self.now_us > self.served_us + 200_000 {
            self.serve();
        }
        match self.below(200) {
            0 => self.kill_broker(),
            1 => self.kill_client(),
            2 | 3 => self.cut(),
            4 => {
                let process = self.below(HARNESS as u64) as usize;
                self.processes[process].stopped ^= true;
            }
            5 => self.now_us += self.below(300_000),
            6..=50 => self.broker_reads(),
            51..=95 => self.broker_sends(),
            96..=110 => self.flush(),
            111..=120 => self.plant(),
            _ => {
                let process = self.below(HARNESS as u64) as usize;
                if !self.processes[process].stopped {
                    self.client(process);
                }
            }
        }
    }

    // --- the broker's side

    /// Everybody's turn: the broker owes a delivery within a second.
    fn serve(&mut self) {
        self.served_us = self.now_us;
        while self.any_link(|link| link.connected && !link.to_broker.is_empty()).is_some() {
            self.broker_reads();
        }
        self.flush();
        for process in 0..self.processes.len() {
            for link in 0..self.processes[process].links.len() {
                while self.processes[process].links[link].connected && self.deliver(process, link) {}
            }
        }
    }

    fn kill_broker(&mut self) {
        self.act(HARNESS, Event::Broker { change: BrokerChange::Kill });
        self.cut_all();
        self.broker.crash();
        self.now_us += 10_000 + self.below(100_000);
        self.observe(HARNESS, Event::Broker { change: BrokerChange::Start });
    }

    fn cut_all(&mut self) {
        for process in 0..self.processes.len() {
            for link in 0..self.processes[process].links.len() {
                self.break_link(process, link);
            }
        }
    }

    fn cut(&mut self) {
        if let Some((process, link)) = self.any_link(|link| link.connected) {
            let queue = self.processes[process].links[link].queue;
            let number = self.processes[process].links[link].number;
            self.break_link(process, link);
            self.broker.cut(queue, number);
        }
    }

    /// What was on its way to the broker is lost; what was on its way to the client may still be read, or a part of it.
    fn break_link(&mut self, process: usize, link: usize) {
        let keep = self.below(4) as usize;
        let link = &mut self.processes[process].links[link];
        link.connected = false;
        link.to_broker.clear();
        let length = link.to_client.len();
        link.to_client.truncate(if keep == 3 { length } else { length * keep / 3 });
    }

    fn any_link(&mut self, wanted: impl Fn(&Link) -> bool) -> Option<(usize, usize)> {
        let mut found = Vec::new();
        for (process, one) in self.processes.iter().enumerate() {
            found
                .extend(one.links.iter().enumerate().filter(|(_, link)| wanted(link)).map(|(link, _)| (process, link)));
        }
        if found.is_empty() {
            return None;
        }
        let index = self.below(found.len() as u64) as usize;
        Some(found[index])
    }

    fn broker_reads(&mut self) {
        let Some((process, index)) = self.any_link(|link| link.connected && !link.to_broker.is_empty()) else { return };
        for _ in 0..1 + self.below(5) {
            let refuse = self.one_in(20);
            let link = &mut self.processes[process].links[index];
            let Some(message) = link.to_broker.pop_front() else { return };
            match message {
                ToBroker::Transfer { id, .. } if refuse => link.to_client.push_back(ToClient::Refused(id)),
                ToBroker::Transfer { queue, id, priority, persistent } => {
                    if self.broker.enqueue(queue, link.number, id, priority, persistent) {
                        link.to_client.push_back(ToClient::Answer(Answer::Confirmed(id)));
                    }
                }
                ToBroker::Settle(id, outcome) => self.broker.settle(link.queue, link.number, id, outcome),
                ToBroker::Credit(credit) => link.credit = credit,
                ToBroker::Close => {
                    link.connected = false;
                    link.credit = 0;
                    self.broker.close(link.queue, link.number);
                }
            }
        }
    }

    fn broker_sends(&mut self) {
        if let Some((process, link)) = self.any_link(|link| link.connected && link.consumes && link.credit > 0) {
            for _ in 0..1 + self.below(4) {
                self.deliver(process, link);
            }
        }
    }

    fn deliver(&mut self, process: usize, link: usize) -> bool {
        let link = &mut self.processes[process].links[link];
        if link.credit == 0 {
            return false;
        }
        let Some(entry) = self.broker.dispatch(link.queue, link.number) else { return false };
        link.credit -= 1;
        link.to_client.push_back(ToClient::Delivery { id: entry.id, count: entry.deliveries, intact: true });
        true
    }

    fn flush(&mut self) {
        for (number, answer) in self.broker.flush() {
            let links = self.processes.iter_mut().flat_map(|process| &mut process.links);
            if let Some(link) = links.into_iter().find(|link| link.number == number && link.connected) {
                link.to_client.push_back(ToClient::Answer(answer));
            }
        }
    }

    // --- the clients' side

    fn kill_client(&mut self) {
        let process = self.below(HARNESS as u64) as usize;
        for link in 0..self.processes[process].links.len() {
            let (queue, number, up) = {
                let link = &self.processes[process].links[link];
                (link.queue, link.number, link.connected)
            };
            if up {
                self.broker.cut(queue, number);
            }
        }
        self.now_us += 1_000;
        let next = self.process(process, self.processes[process].incarnation + 1);
        let mut killed = std::mem::replace(&mut self.processes[process], next);
        // Not flushed: what it had observed since its last act is gone with it.
        let bytes = std::mem::take(killed.writer.get_mut());
        self.finished.push((format!("process-{process}-{}", killed.incarnation), bytes));
    }

    fn client(&mut self, process: usize) {
        if self.one_in(5) {
            self.read_everything(process);
            self.observe(process, Event::Tick);
            return;
        }
        if self.processes[process].links.len() < 2 && self.one_in(4) {
            self.open(process, process >= PRODUCERS);
            return;
        }
        let count = self.processes[process].links.len() as u64;
        if count == 0 {
            return;
        }
        let link = self.below(count) as usize;
        if self.below(3) > 0 {
            self.read(process, link, 1 + (self.random >> 40) as usize % 4);
        }
        if self.notices_the_end(process, link) {
            return;
        }
        if process < PRODUCERS { self.produce(process, link) } else { self.consume(process, link) }
    }

    fn open(&mut self, process: usize, consumes: bool) {
        let number = self.next_link;
        self.next_link += 1;
        let queue = self.below(QUEUES.len() as u64) as usize;
        self.link(process, consumes, number, queue);
    }

    fn link(&mut self, process: usize, consumes: bool, number: u32, queue: usize) {
        if consumes {
            let attach = Event::Attach { consumer: number, queue: QUEUES[queue], presettled: false, filtered: false };
            self.act(process, attach);
        }
        self.processes[process].links.push(Link {
            number,
            process,
            queue,
            consumes,
            connected: true,
            credit: 0,
            to_broker: VecDeque::new(),
            to_client: VecDeque::new(),
            granted: 0,
            holds: Vec::new(),
            unanswered: BTreeSet::new(),
            closing: false,
        });
    }

    /// A link that is gone, once everything that still came is read.
    fn notices_the_end(&mut self, process: usize, link: usize) -> bool {
        let one = &self.processes[process].links[link];
        if one.connected || !one.to_client.is_empty() {
            return false;
        }
        let one = self.processes[process].links.remove(link);
        if one.closing {
            return true;
        }
        if one.consumes {
            self.observe(process, Event::Detach { consumer: one.number, orderly: false, confirmed: false });
        }
        for message in one.unanswered {
            self.observe(process, Event::SentUnknown { message });
        }
        true
    }

    fn produce(&mut self, process: usize, link: usize) {
        for _ in 0..1 + self.below(4) {
            let queue = self.below(QUEUES.len() as u64) as usize;
            let priority = if self.one_in(4) { 9 } else { 4 };
            let persistent = !self.one_in(5);
            let number = self.processes[process].links[link].number;
            let next = self.next_sequence.entry(number).or_insert(0);
            let id = MessageId::new(number, *next);
            *next += 1;
            let send = Event::Send {
                message: id,
                queue: QUEUES[queue],
                size_bytes: 1,
                crc: 1,
                persistent,
                ttl_ms: 0,
                delay_ms: 0,
                priority,
                tx: None,
            };
            self.act(process, send);
            let link = &mut self.processes[process].links[link];
            link.unanswered.insert(id);
            if link.connected {
                link.to_broker.push_back(ToBroker::Transfer { queue, id, priority, persistent });
            }
        }
    }

    fn consume(&mut self, process: usize, link: usize) {
        let link_index = link;
        if self.processes[process].links[link].granted < 3 {
            let credit = 1 + self.below(8) as u32;
            self.grant(process, link, credit);
            return;
        }
        if self.one_in(40) {
            let number = self.processes[process].links[link].number;
            self.act(process, Event::Detach { consumer: number, orderly: true, confirmed: false });
            let held = std::mem::take(&mut self.processes[process].links[link].holds);
            self.given_back.extend(held);
            // The broker hears of it after what was sent before. The client reads on to its answer, or does not care.
            let reads_on = self.fault == Fault::Swap || self.one_in(2);
            let link = &mut self.processes[process].links[link];
            link.closing = true;
            // Of one that is broken already, which the client has not noticed, nobody answers the end.
            let reached = link.connected;
            link.to_broker.push_back(ToBroker::Close);
            while link.connected && !link.to_broker.is_empty() {
                match link.to_broker.pop_front() {
                    Some(ToBroker::Settle(id, outcome)) => self.broker.settle(link.queue, link.number, id, outcome),
                    Some(ToBroker::Close) => {
                        link.connected = false;
                        self.broker.close(link.queue, link.number);
                    }
                    _ => {}
                }
            }
            if reads_on {
                self.read(process, link_index, usize::MAX);
                let held = std::mem::take(&mut self.processes[process].links[link_index].holds);
                self.given_back.extend(held);
                if reached {
                    // In the file at once, for without it a swap may be explained.
                    self.act(process, Event::Detach { consumer: number, orderly: true, confirmed: true });
                }
            } else {
                link.to_client.clear();
            }
            return;
        }
        if let Some(id) = self.pick_held(process, link) {
            let outcome = match self.below(20) {
                0 | 1 => Outcome::Release,
                2 => Outcome::Decline,
                3 => Outcome::Fail,
                4 => Outcome::Reject,
                5..=11 => Outcome::Accept { reply: false },
                _ => Outcome::Accept { reply: true },
            };
            self.settle(process, link, id, outcome);
        }
    }

    fn grant(&mut self, process: usize, link: usize, credit: u32) {
        let consumer = self.processes[process].links[link].number;
        self.act(process, Event::Credit { consumer, credit });
        let link = &mut self.processes[process].links[link];
        link.granted = credit;
        // What the client has not read yet counts against it, as the link's delivery-count does.
        let unread = link.to_client.iter().filter(|one| matches!(one, ToClient::Delivery { .. })).count() as u32;
        let left = credit.saturating_sub(unread);
        if link.connected {
            link.to_broker.retain(|one| !matches!(one, ToBroker::Credit(_)));
            link.credit = 0;
            link.to_broker.push_back(ToBroker::Credit(left));
        }
    }

    fn pick_held(&mut self, process: usize, link: usize) -> Option<MessageId> {
        let holds = self.processes[process].links[link].holds.len() as u64;
        if holds == 0 {
            return None;
        }
        let index = self.below(holds) as usize;
        Some(self.processes[process].links[link].holds.remove(index))
    }

    fn settle(&mut self, process: usize, link: usize, message: MessageId, outcome: Outcome) {
        let consumer = self.processes[process].links[link].number;
        let event = match outcome {
            Outcome::Accept { .. } => Event::Ack { message, consumer, confirmed: false, tx: None },
            Outcome::Release => Event::Release { message, consumer, tx: None },
            Outcome::Decline => {
                Event::Modified { message, consumer, delivery_failed: false, undeliverable_here: true, tx: None }
            }
            Outcome::Fail => {
                Event::Modified { message, consumer, delivery_failed: true, undeliverable_here: false, tx: None }
            }
            Outcome::Reject => Event::Reject { message, consumer, tx: None },
        };
        self.act(process, event);
        if matches!(outcome, Outcome::Release | Outcome::Decline) {
            self.given_back.insert(message);
        }
        let link = &mut self.processes[process].links[link];
        if link.connected {
            link.to_broker.push_back(ToBroker::Settle(message, outcome));
        }
    }

    fn read_everything(&mut self, process: usize) {
        for link in (0..self.processes[process].links.len()).rev() {
            self.read(process, link, usize::MAX);
            self.notices_the_end(process, link);
        }
    }

    fn read(&mut self, process: usize, link: usize, most: usize) {
        for _ in 0..most {
            let one = &mut self.processes[process].links[link];
            let (consumer, queue) = (one.number, one.queue);
            let Some(message) = one.to_client.pop_front() else { return };
            match message {
                ToClient::Answer(Answer::Confirmed(id)) => {
                    one.unanswered.remove(&id);
                    self.processes[process].notes.push(Note::Confirmed(id));
                    self.observe(process, Event::SentOk { message: id });
                }
                ToClient::Refused(id) => {
                    one.unanswered.remove(&id);
                    self.observe(process, Event::SentRejected { message: id, reason: "full" });
                }
                ToClient::Answer(Answer::Acknowledged(id)) => {
                    self.processes[process].notes.push(Note::Acknowledged(queue, id));
                    self.observe(process, Event::Ack { message: id, consumer, confirmed: true, tx: None });
                }
                ToClient::Delivery { id, count, intact } => {
                    one.granted = one.granted.saturating_sub(1);
                    one.holds.push(id);
                    self.processes[process].notes.push(Note::Count(id, count));
                    let recv = Event::Recv {
                        message: id,
                        consumer,
                        queue: QUEUES[queue],
                        delivery_count: count,
                        redelivered: count > 0,
                        crc_ok: intact,
                        tx: None,
                    };
                    self.observe(process, recv);
                }
            }
        }
    }

    // --- the end

    /// Nobody acts any more; everything on its way arrives.
    fn rest(&mut self) {
        for process in 0..HARNESS {
            self.processes[process].stopped = false;
        }
        for _ in 0..3 {
            while self.any_link(|link| link.connected && !link.to_broker.is_empty()).is_some() {
                self.broker_reads();
            }
            self.flush();
            for process in 0..HARNESS {
                self.now_us += 3_000;
                self.read_everything(process);
                self.flush_file(process);
            }
        }
        self.now_us += 100_000;
        for queue in 0..QUEUES.len() {
            self.counters(queue, 0);
        }
        self.now_us += 100_000;
    }

    fn flush_file(&mut self, process: usize) {
        self.processes[process].writer.flush().expect("a vector takes everything");
        for note in std::mem::take(&mut self.processes[process].notes) {
            match note {
                Note::Confirmed(id) => {
                    self.confirmed.insert(id);
                }
                Note::Acknowledged(queue, id) => self.acknowledged.push((queue, id)),
                Note::Count(id, count) => self.counts.entry(id).or_default().push(count),
            }
        }
    }

    fn counters(&mut self, queue: usize, wrong_by: i64) {
        let depth = self.broker.queues[queue].len() as i64;
        let acquired = self.broker.held(queue) as i64;
        let counters = Counters {
            quiet: true,
            depth: Some(depth + wrong_by),
            ready: Some(depth - acquired),
            acquired: Some(acquired),
            enqueued: Some(self.broker.enqueued[queue]),
            acknowledged: Some(self.broker.acknowledged[queue]),
            dead_lettered: None,
        };
        self.observe(HARNESS, Event::Counters { queue: QUEUES[queue], counters });
    }

    /// The harness's own links take everything that is left; all others go.
    fn drain(&mut self) {
        for process in 0..HARNESS {
            while let Some(link) = self.processes[process].links.pop() {
                if !link.consumes {
                    continue;
                }
                let orderly = self.one_in(2);
                if orderly {
                    self.act(link.process, Event::Detach { consumer: link.number, orderly, confirmed: false });
                    self.given_back.extend(link.holds);
                    self.broker.close(link.queue, link.number);
                    self.observe(link.process, Event::Detach { consumer: link.number, orderly, confirmed: true });
                } else {
                    self.broker.cut(link.queue, link.number);
                    self.observe(link.process, Event::Detach { consumer: link.number, orderly, confirmed: false });
                }
            }
            self.flush_file(process);
        }
        self.flush();
        for queue in 0..QUEUES.len() {
            self.drain_queue(queue);
        }
        self.now_us += 10_000;
        for message in self.broker.dead.clone() {
            self.observe(HARNESS, Event::Dlq { message, reason: "attempts" });
        }
        self.now_us += 10_000;
        self.observe(HARNESS, Event::Drained { queue: "DLQ" });
    }

    fn drain_queue(&mut self, queue: usize) {
        self.now_us += 10_000;
        let number = self.next_link;
        self.next_link += 1;
        self.link(HARNESS, true, number, queue);
        let link = self.processes[HARNESS].links.len() - 1;
        self.grant(HARNESS, link, u32::MAX);
        self.processes[HARNESS].links[link].to_broker.clear();
        self.processes[HARNESS].links[link].credit = u32::MAX;
        self.plant_at_the_end(queue, link);
        while self.deliver(HARNESS, link) {
            self.now_us += 100;
            self.take_one(queue, link);
        }
        self.now_us += 5_000;
        self.observe(HARNESS, Event::Tick);
        self.act(HARNESS, Event::Detach { consumer: number, orderly: true, confirmed: false });
        self.now_us += 5_000;
        self.observe(HARNESS, Event::Drained { queue: QUEUES[queue] });
        self.now_us += 5_000;
        let wrong_by = i64::from(self.fault == Fault::Counter && !self.exercised);
        self.exercised |= wrong_by != 0;
        self.counters(queue, wrong_by);
    }

    fn take_one(&mut self, queue: usize, link: usize) {
        self.read(HARNESS, link, usize::MAX);
        while let Some(id) = self.processes[HARNESS].links[link].holds.pop() {
            self.settle(HARNESS, link, id, Outcome::Accept { reply: true });
            let number = self.processes[HARNESS].links[link].number;
            self.broker.settle(queue, number, id, Outcome::Accept { reply: true });
            self.processes[HARNESS].links[link].to_broker.clear();
        }
        self.flush();
        self.now_us += 1_000;
        self.read(HARNESS, link, usize::MAX);
    }

    // --- faults

    /// Faults that are planted while everything runs.
    fn plant(&mut self) {
        if self.exercised || self.fault == Fault::None {
            return;
        }
        match self.fault {
            Fault::Lose => {
                let confirmed = &self.confirmed;
                let seen = &self.counts;
                for queue in 0..QUEUES.len() {
                    let unseen = self.broker.queues[queue].iter().find(|entry| {
                        entry.persistent
                            && entry.state == State::Ready
                            && confirmed.contains(&entry.id)
                            && !seen.contains_key(&entry.id)
                            && entry.deliveries == 0
                    });
                    if let Some(id) = unseen.map(|entry| entry.id) {
                        self.broker.forget(queue, id);
                        self.exercised = true;
                        return;
                    }
                }
            }
            Fault::Duplicate => {
                if let Some((queue, id)) = self.acknowledged.pop() {
                    self.broker.revive(queue, id);
                    self.exercised = true;
                }
            }
            _ => {}
        }
    }

    /// Faults that are planted while the harness drains, so that it surely sees them.
    fn plant_at_the_end(&mut self, queue: usize, link: usize) {
        if self.exercised {
            return;
        }
        let entries = &mut self.broker.queues[queue];
        match self.fault {
            Fault::Unflagged => {
                let counts = &self.counts;
                let seen_once = |id| counts.get(&id).is_some_and(|seen| seen.contains(&0));
                // One that was never given back unseen.
                let back = entries
                    .iter_mut()
                    .find(|entry| entry.deliveries > 0 && seen_once(entry.id) && !self.given_back.contains(&entry.id));
                if let Some(entry) = back {
                    entry.deliveries = 0;
                    self.exercised = true;
                }
            }
            Fault::CountDown => {
                let counts = &self.counts;
                let highest = |id| counts.get(&id).and_then(|seen| seen.iter().copied().max());
                let back = entries.iter_mut().find(|entry| highest(entry.id).is_some_and(|count| count >= 2));
                if let Some(entry) = back {
                    entry.deliveries = highest(entry.id).unwrap_or(2) - 1;
                    self.exercised = true;
                }
            }
            Fault::Swap => {
                let fresh: Vec<usize> = (0..entries.len()).filter(|&index| entries[index].deliveries == 0).collect();
                let pair = fresh.windows(2).find(|pair| {
                    let (one, other) = (&entries[pair[0]], &entries[pair[1]]);
                    let same = one.id.producer == other.id.producer && one.priority == other.priority;
                    same && !self.counts.contains_key(&one.id) && one.state == other.state
                });
                if let Some(&[one, other]) = pair {
                    let order = entries[one].order;
                    entries[one].order = entries[other].order;
                    entries[other].order = order;
                    self.exercised = true;
                }
            }
            Fault::Phantom => {
                let id = MessageId::new(1_000_000, 1);
                self.processes[HARNESS].links[link].to_client.push_back(ToClient::Delivery {
                    id,
                    count: 0,
                    intact: true,
                });
                self.take_one(queue, link);
                self.exercised = true;
            }
            Fault::Body => {
                let number = self.processes[HARNESS].links[link].number;
                if let Some(entry) = self.broker.dispatch(queue, number) {
                    let delivery = ToClient::Delivery { id: entry.id, count: entry.deliveries, intact: false };
                    self.processes[HARNESS].links[link].to_client.push_back(delivery);
                    self.take_one(queue, link);
                    self.exercised = true;
                }
            }
            Fault::Silence => {
                let confirmed = &self.confirmed;
                let counts = &self.counts;
                let ready =
                    entries.iter().any(|entry| confirmed.contains(&entry.id) && !counts.contains_key(&entry.id));
                if ready {
                    for _ in 0..12 {
                        self.now_us += 100_000;
                        self.observe(HARNESS, Event::Tick);
                    }
                    self.exercised = true;
                }
            }
            Fault::None | Fault::Lose | Fault::Duplicate | Fault::Counter => {}
        }
    }
}
