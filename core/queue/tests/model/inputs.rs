//! What happens to the queue, and what the model makes of it.

use super::*;

impl World {
    pub(crate) fn new(start: u64, reserved: u64, dead_letters: bool, unstored: bool, limits: QueueLimits) -> World {
        let settings = QueueSettings { delivery_limit: LIMIT, limits, ..QueueSettings::default() };
        World {
            queue: Queue::new(ID, QueueName::new("q").unwrap(), settings, start, reserved, dead_letters),
            dead_letters,
            unstored,
            entries: BTreeMap::new(),
            consumers: BTreeMap::new(),
            leaving: VecDeque::new(),
            next_consumer: 1,
            next: start,
            keys: Vec::new(),
            loads: Vec::new(),
            totals: Totals::default(),
            now_us: 0,
            ticket: 1,
            durable: 0,
            volatile: 0,
            buffer: 1,
            oldest_resident: 1,
            reserved,
            reserving: None,
            marks: BTreeSet::new(),
            marking: Vec::new(),
            group: BTreeSet::new(),
            probation: BTreeMap::new(),
            until_us: 0,
            over: false,
            purges: VecDeque::new(),
            limits,
            jammed: false,
            moves: VecDeque::new(),
            asked: 0,
            fresh: BTreeSet::new(),
            browsers: BTreeMap::new(),
            parts: BTreeMap::new(),
            next_txn: 0,
            dead: BTreeMap::new(),
            ending: VecDeque::new(),
            batch: Batch::default(),
            out: Vec::new(),
            expected: Expected::default(),
        }
    }

    /// Entries of earlier runs, each told by a byte: suspects and others.
    pub(crate) fn recover(&mut self, before: &[u8]) {
        let first = self.next - before.len() as u64;
        for (sequence, what) in (first..).zip(before.iter().copied()) {
            let level = [4, 4, 9][usize::from(what) % 3];
            let crashes = [None, Some(0), Some(1), Some(1), Some(2), Some(3)][usize::from(what / 3) % 6];
            let suspect = crashes.map(|crashes| (crashes, [0, 0, 1, 2][usize::from(what / 54) % 4]));
            let deliveries = u32::from(what / 18 % 3) + crashes.map_or(0, |crashes| crashes + 1);
            self.add(sequence, level, true, Is::Ready, 5);
            // It was there before, and is in no buffer.
            self.totals.enqueued -= 1;
            let entry = self.entries.get_mut(&sequence).unwrap();
            (entry.buffer, entry.suspect, entry.deliveries) = (0, suspect, deliveries);
            let head = Head { arrived_ms: 1_000 + sequence, ..self.head(level, true) };
            self.handle(Input::Recovered(Box::new(RecoveredEntry {
                key: EntryKey { queue: ID, sequence },
                head,
                content: Content::Body(Resident { buffer: 0, offset: 0, length: 5 }),
                deliveries,
                attempts: 0,
                suspect: suspect.map(|(crashes, passed)| Blame(crashes | passed << 16)),
                overlay: None,
            })));
        }
    }

    pub(crate) fn with<T>(&mut self, act: impl FnOnce(&mut Queue, &mut Turn<'_>, &mut Vec<Effect>) -> T) -> T {
        let mut turn = Turn {
            now: Now { mono_us: self.now_us, wall_ms: 0 },
            broker_ms: STARTED_MS + self.now_us / 1000,
            ticket: Ticket(self.ticket),
            batch: &mut self.batch,
            oldest_resident: self.oldest_resident,
            short: false,
        };
        act(&mut self.queue, &mut turn, &mut self.out)
    }

    pub(crate) fn handle(&mut self, input: Input<'_>) -> Answer {
        self.with(|queue, turn, out| queue.handle(input, turn, out))
    }

    /// One turn: an input, a dispatch, and the batch handed over.
    pub(crate) fn step(&mut self, choice: u32) {
        let [what, a, b, c] = choice.to_le_bytes().map(u32::from);
        self.input(what % 35, a, b);
        assert!(!self.out.iter().any(|e| matches!(e, Effect::Deliver(_))), "only dispatch delivers");
        self.dispatch([1, 2, 5, 1000, 1000, 1000][c as usize % 6]);
        self.still_waiting();
        self.end_turn();
        self.check();
    }

    pub(crate) fn input(&mut self, what: u32, a: u32, b: u32) {
        match what {
            0..=4 => self.enqueue([4, 4, 4, 9, 0, 12][a as usize % 6], !b.is_multiple_of(3), b),
            6 if a.is_multiple_of(3) => self.browser_credit(a / 3, b),
            5 | 6 => {
                if let Some(id) = nth(self.consumers.keys().copied().collect(), a) {
                    let consumer = self.consumers.get_mut(&id).unwrap();
                    consumer.limit = (consumer.given + u64::from(b % 8)).saturating_sub(1);
                    let limit = consumer.limit;
                    self.handle(Input::Credit { consumer: ConsumerId(id), limit });
                }
            }
            7 if self.consumers.len() < 4 => {
                let (id, pre_settled) = (self.next_consumer, a.is_multiple_of(5));
                self.next_consumer += 1;
                let limit = u64::from(b % 6);
                self.consumers.insert(id, Consumer { pre_settled, limit, ..Consumer::default() });
                self.handle(Input::Subscribe { consumer: ConsumerId(id), pre_settled });
                self.handle(Input::Credit { consumer: ConsumerId(id), limit });
            }
            8 => {
                if let Some(id) = nth(self.consumers.keys().copied().collect(), a) {
                    let Consumer { held, choosy, .. } = self.consumers.remove(&id).unwrap();
                    let lost = b.is_multiple_of(2);
                    if choosy || !held.is_empty() {
                        self.leaving.push_back(Leaving { id, lost, oldest_is_back: false, held, choosy });
                    }
                    self.handle(Input::Unsubscribe { consumer: ConsumerId(id), lost });
                }
            }
            9..=12 => {
                let acquired = self.entries.values().filter_map(|e| match e.state {
                    Is::Acquired(_, key) => Some(key),
                    _ => None,
                });
                if let Some(key) = nth(acquired.collect(), a) {
                    self.settle(key, b);
                }
            }
            13 => {
                if let Some(key) = nth(self.keys.clone(), a) {
                    self.settle(key, b);
                }
            }
            14 | 15 => self.flush(u64::from(a % 4) + 1),
            16 => self.evict(u64::from(a % 8)),
            17 => self.load_answer(a, b),
            18 => self.relocation_answer(a, b),
            19 => self.now_us += 400_000,
            20 => self.reservation(a, b),
            21 if b.is_multiple_of(8) && !self.unstored => {
                self.purges.push_back((u64::from(a), self.next, 0));
                self.handle(Input::Purge { token: u64::from(a) });
            }
            22 => self.begin_move(a, b),
            23 | 24 => self.browse(a, b),
            25 => self.browser_credit(a, b),
            26 => self.other_limits(a, b),
            27.. => self.transact(what - 27, a, b),
            _ => {}
        }
    }

    pub(crate) fn head(&self, priority: u8, persistent: bool) -> Head {
        let flags = if persistent { HeadFlags::PERSISTENT } else { HeadFlags::default() };
        // The time of arrival tells the number, so that the oldest can be checked.
        Head {
            arrived_ms: 1_000 + self.next,
            ttl_ms: 5,
            message_format: 0,
            priority,
            flags,
            format: ContentFormat::Amqp10,
        }
    }

    pub(crate) fn enqueue(&mut self, priority: u8, persistent: bool, length: u32) {
        let level = priority.min(9);
        let head = self.head(priority, persistent);
        let sequence = self.next;
        self.next += 1;
        let waits = self.entries.values().rev().filter(|e| e.level == level).find_map(|e| match e.state {
            Is::Staged(until) => until,
            _ => None,
        });
        let reservation = self.reserving.map_or(self.ticket, |(ticket, _)| ticket);
        let reservation = (sequence >= self.reserved).then_some(reservation);
        let until = if persistent { Some(self.ticket) } else { waits.max(reservation) };
        let state = if until.is_some() { Is::Staged(until) } else { Is::Ready };
        self.add(sequence, level, persistent, state, u64::from(length));
        let stored = persistent || !self.unstored || length.is_multiple_of(2);
        self.entries.get_mut(&sequence).unwrap().stored = stored;
        if stored {
            self.expected.enqueued.push((sequence, !persistent));
            self.volatile = if persistent { self.volatile } else { self.ticket };
        }
        let answer = self.handle(Input::Enqueue(Enqueue {
            head,
            content: Content::Body(Resident { buffer: self.buffer, offset: 0, length }),
            stored: stored.then_some(Stored::Body(Body { piece: 0, offset: 0, length })),
            overlay: None,
        }));
        assert_eq!(answer, Answer::Entered(sequence), "numbers are drawn one by one");
        self.buffer += 1;
    }

    pub(crate) fn add(&mut self, sequence: u64, level: u8, persistent: bool, state: Is, length: u64) {
        let entry = Entry {
            level,
            persistent,
            stored: true,
            state,
            buffer: self.buffer,
            length,
            arrived: 1_000 + sequence,
            deliveries: 0,
            attempts: 0,
            held: None,
            refused_by: BTreeSet::new(),
            overlay: None,
            suspect: None,
            marked_us: None,
            quarantined: false,
            moved_by: None,
        };
        self.totals.enqueued += u64::from(state == Is::Ready);
        self.entries.insert(sequence, entry);
    }

    /// The oldest buffers are wanted for something else: what is nowhere else is stored first.
    pub(crate) fn evict(&mut self, count: u64) {
        let oldest = (self.oldest_resident + count).min(self.buffer);
        for (sequence, entry) in &mut self.entries {
            let wanted = !entry.stored && entry.buffer < oldest;
            assert_eq!(self.queue.spill(entry.level, *sequence, entry.buffer + 1), None, "it is in another buffer");
            if entry.buffer >= oldest {
                continue;
            }
            let spilled = self.queue.spill(entry.level, *sequence, entry.buffer);
            assert_eq!(spilled.is_some(), wanted, "only what lives and is in memory only is spilled");
            assert_eq!(self.queue.spill(entry.level, *sequence, entry.buffer), None, "once");
            let Some((head, place)) = spilled else { continue };
            assert_eq!((head.arrived_ms, u64::from(place.length)), (entry.arrived, entry.length));
            let content = Stored::Body(Body { piece: 0, offset: 0, length: place.length });
            self.batch.push(Op::Enqueue { queue: ID, sequence: *sequence, head, content, volatile: true });
            self.expected.enqueued.push((*sequence, true));
            entry.stored = true;
        }
        self.spill_ending(oldest);
        for gone in &self.keys {
            if !self.entries.contains_key(&gone.sequence) {
                assert_eq!(self.queue.spill(gone.level, gone.sequence, 1), None, "what is gone is not spilled");
            }
        }
        self.oldest_resident = oldest;
    }

    pub(crate) fn reservation(&mut self, a: u32, b: u32) {
        let staged = self.entries.iter().filter(|(_, e)| e.state == Is::Staged(None));
        let staged: Vec<(u64, u8)> = staged.map(|(s, e)| (*s, e.level)).collect();
        let Some((sequence, level)) = nth(staged, a).filter(|_| !b.is_multiple_of(3)) else {
            let sequence = self.next;
            let (level, persistent) = ([4, 9][a as usize % 2], !a.is_multiple_of(3));
            let head = self.head(level, persistent);
            self.next += 1;
            self.add(sequence, level, persistent, Is::Staged(None), 7);
            let (deliveries, told) = (b % 4, !b.is_multiple_of(2));
            let entry = self.entries.get_mut(&sequence).unwrap();
            (entry.deliveries, entry.overlay) = (deliveries, told.then(|| b"there".to_vec()));
            let annotations = if told { Bytes::from_static(b"there") } else { Bytes::new() };
            let answer = self.handle(Input::Reserve {
                head,
                content: Content::Body(Resident { buffer: self.buffer, offset: 0, length: 7 }),
                stored: true,
                deliveries,
                overlay: Box::new(Overlay { annotations, dead_letter: None }),
            });
            assert_eq!(answer, Answer::Entered(sequence), "numbers are drawn one by one");
            self.buffer += 1;
            return;
        };
        if b % 3 == 1 {
            self.totals.enqueued += 1;
            self.entries.get_mut(&sequence).unwrap().state = Is::Ready;
            self.handle(Input::Arrived { level, sequence });
        } else {
            self.entries.remove(&sequence);
            self.handle(Input::Abandon { level, sequence });
        }
    }

    pub(crate) fn flush(&mut self, batches: u64) {
        self.durable = (self.durable + batches).min(self.ticket - 1);
        let durable = |ticket: u64| ticket <= self.durable;
        for entry in self.entries.values_mut() {
            if let Is::Staged(Some(until)) = entry.state
                && durable(until)
            {
                entry.state = Is::Ready;
                self.totals.enqueued += 1;
            }
            if entry.held.is_some_and(durable) {
                entry.held = None;
                entry.marked_us = Some(self.now_us);
            }
        }
        self.marks.extend(self.marking.iter().filter(|(ticket, _)| durable(*ticket)).map(|(_, range)| *range));
        self.marking.retain(|(ticket, _)| *ticket > self.durable);
        if let Some((ticket, up_to)) = self.reserving
            && durable(ticket)
        {
            (self.reserved, self.reserving) = (up_to, None);
        }
        let up_to = Ticket(self.durable);
        self.handle(Input::Durable { up_to });
        self.answers();
    }

    pub(crate) fn resident(&self, entry: &Entry) -> bool {
        entry.buffer >= self.oldest_resident
    }

    pub(crate) fn load_answer(&mut self, a: u32, b: u32) {
        let Some(load) = nth(self.loads.clone(), a) else { return };
        self.loads.retain(|l| *l != load);
        let there = self.entries.range(load.from..).filter(|(_, e)| e.level == load.level);
        let there = there.filter(|(_, e)| !matches!(e.state, Is::Staged(_))).map(|(s, _)| *s);
        let forgets_head = b % 16 == 15;
        let mut bodies: Vec<LoadedBody> = Vec::new();
        for sequence in there.take(1 + b as usize % 4) {
            if forgets_head && sequence == load.from {
                continue;
            }
            let unreadable = (b / 16 + bodies.len() as u32).is_multiple_of(8);
            bodies.push(LoadedBody { sequence, range: (!unreadable).then_some((0, self.length(sequence))) });
        }
        let buffer = self.buffer;
        self.buffer += 1;
        for body in &bodies {
            if self.resident(&self.entries[&body.sequence]) {
                continue;
            }
            let entry = self.entries.get_mut(&body.sequence).unwrap();
            if body.range.is_some() {
                entry.buffer = buffer;
            } else if entry.state == Is::Ready {
                entry.state = Is::Damaged;
                self.expected.damaged.push(body.sequence);
            }
        }
        if bodies.first().is_none_or(|body| body.sequence != load.from)
            && self.volatile <= self.durable
            && let Some(entry) = self.entries.get(&load.from)
            && (entry.state, self.resident(entry)) == (Is::Ready, false)
        {
            self.entries.get_mut(&load.from).unwrap().state = Is::Damaged;
            self.expected.damaged.push(load.from);
        }
        let loaded = Loaded { load, buffer: Bytes::new(), bodies };
        self.handle(Input::Loaded { buffer, loaded: &loaded });
    }

    pub(crate) fn length(&self, sequence: u64) -> u32 {
        self.entries[&sequence].length as u32
    }
}
