//! What operators and browsers do, and limits: the naive rules.

use super::*;

/// A browser: everything below these numbers, one for each level, has been passed.
#[derive(Debug, Default)]
pub(crate) struct Browser {
    limit: u64,
    given: u64,
    from: [u64; 10],
    pub(crate) quiet: bool,
}

impl Browser {
    pub(crate) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.given)
    }
}

/// A move under way.
#[derive(Debug)]
pub(crate) struct Mover {
    token: u64,
    below: u64,
    left: u64,
    under_way: u64,
    moved: u64,
    /// Those that have been ready ever since it was asked for. (What comes back later, while its last ones are under way, may stay.)
    waiting: BTreeSet<u64>,
}

impl World {
    // ---- moves ----

    pub(crate) fn begin_move(&mut self, a: u32, b: u32) {
        self.asked += 1;
        let token = self.asked;
        let limit = if b.is_multiple_of(3) { u64::MAX } else { u64::from(a % 5) };
        let left = limit.min(self.ready());
        let ready = self.entries.iter().filter(|(_, e)| e.state == Is::Ready);
        let waiting = ready.map(|(sequence, _)| *sequence).collect();
        self.moves.push_back(Mover { token, below: self.next, left, under_way: 0, moved: 0, waiting });
        self.handle(Input::Move { token, limit, strip_ttl: false });
    }

    /// Whether something was offered to another queue that may still refuse it.
    pub(crate) fn move_is_open(&self) -> bool {
        self.moves.iter().any(|m| m.under_way > 0)
    }

    fn mover(&mut self, token: u64) -> &mut Mover {
        self.moves.iter_mut().find(|m| m.token == token).expect("it is under way")
    }

    pub(crate) fn has_moved(&mut self, token: u64) {
        self.totals.moved += 1;
        let mover = self.mover(token);
        (mover.under_way, mover.moved) = (mover.under_way - 1, mover.moved + 1);
    }

    pub(crate) fn not_moved(&mut self, sequence: u64) {
        let entry = self.entries.get_mut(&sequence).unwrap();
        entry.state = Is::Ready;
        let token = entry.moved_by.take().expect("it was on its way");
        let mover = self.mover(token);
        (mover.under_way, mover.left) = (mover.under_way - 1, 0);
    }

    pub(crate) fn move_done(&mut self, token: u64, count: u64) {
        let mover = self.moves.pop_front().expect("a move was asked for");
        assert_eq!((mover.token, mover.moved, mover.under_way), (token, count, 0));
        let ready = |sequence: &u64| self.entries.get(sequence).is_some_and(|e| e.state == Is::Ready);
        assert!(mover.left == 0 || !mover.waiting.iter().any(ready), "it has moved all it could");
    }

    /// A turn is over: what was given to somebody is not waiting any more.
    pub(crate) fn still_waiting(&mut self) {
        for mover in &mut self.moves {
            let entries = &self.entries;
            mover.waiting.retain(|sequence| entries.get(sequence).is_some_and(|e| e.state == Is::Ready));
        }
    }

    fn oldest_ready(&self) -> Option<u64> {
        self.entries.iter().find(|(_, e)| e.state == Is::Ready).map(|(sequence, _)| *sequence)
    }

    // ---- what leaves ----

    /// Whether this offer is one of those that [`World::diverted`] looked at.
    pub(crate) fn is_fresh(&self, offer: &Relocation) -> bool {
        offer.token.is_some() || self.fresh.contains(&offer.key)
    }

    /// Entries that nobody held and that leave now: moved by an operator, or dropped; each is the oldest that is ready. How many.
    pub(crate) fn diverted(&mut self, effects: &[Effect], work: u32, returned: bool) -> u32 {
        self.fresh.clear();
        let mut count = 0;
        let mut moves = 0;
        for effect in effects {
            match effect {
                Effect::Moved { .. } => moves += 1,
                Effect::Relocate(offer) => {
                    let letter = offer.overlay.dead_letter.as_ref();
                    let sequence = offer.key.sequence;
                    let ready = self.entries.get(&sequence).is_some_and(|e| e.state == Is::Ready);
                    let overflows = letter.is_some_and(|l| l.reason == Reason::Overflow) && ready;
                    if offer.token.is_none() && !overflows {
                        continue;
                    }
                    assert_eq!(self.oldest_ready(), Some(sequence), "the oldest goes first");
                    assert!(!overflows || self.must_drop(), "only what is too much is dropped");
                    assert!(self.may_leave(sequence), "what goes unseen is marked, for a crash may bring it back");
                    if let Some(token) = offer.token {
                        let mover = &mut self.moves[moves];
                        assert!(
                            mover.token == token && mover.left > 0 && sequence < mover.below,
                            "{sequence} by {token}: {mover:?}"
                        );
                        (mover.left, mover.under_way) = (mover.left - 1, mover.under_way + 1);
                    }
                    let entry = self.entries.get_mut(&sequence).unwrap();
                    let told = letter.map_or(offer.deliveries, |l| l.deliveries);
                    assert_eq!((told, offer.stored), (entry.deliveries, entry.stored));
                    assert_eq!(offer.overlay.annotations.to_vec(), entry.overlay.clone().unwrap_or_default());
                    assert_eq!(offer.head.ttl_ms, if offer.token.is_some() { 5 } else { 0 });
                    entry.state = Is::Doomed { key: offer.key, scheduled: true, retry: None };
                    entry.moved_by = offer.token;
                    // Those that overflow had no last delivery either.
                    entry.quarantined |= overflows;
                    self.fresh.insert(offer.key);
                    count += 1;
                }
                _ => {}
            }
        }
        assert!(count <= work, "work is bounded");
        let purged = effects.iter().filter(|e| matches!(e, Effect::Purged { .. })).count();
        let oldest = self.oldest_ready();
        if returned
            && purged == self.purges.len()
            && let Some(mover) = self.moves.get_mut(moves)
            && oldest.is_none_or(|sequence| sequence >= mover.below)
        {
            // What comes later, while its last ones are under way, is none of its.
            mover.left = 0;
        }
        count
    }

    // ---- limits ----

    pub(crate) fn other_limits(&mut self, a: u32, b: u32) {
        let limit = |n: u32| (!n.is_multiple_of(3)).then(|| u64::from(n));
        let on_full = [OnFull::Block, OnFull::Reject, OnFull::DropOldest][b as usize % 3];
        self.limits = QueueLimits { max_messages: limit(a % 16), max_bytes: limit(b), on_full };
        let settings = QueueSettings { delivery_limit: LIMIT, limits: self.limits, ..QueueSettings::default() };
        self.handle(Input::Settings(settings));
    }

    /// Most messages and bytes, as they hold.
    fn most(&self) -> (u64, u64) {
        let messages = self.limits.max_messages.filter(|_| !self.dead_letters);
        (messages.unwrap_or(u64::MAX), self.limits.max_bytes.unwrap_or(u64::MAX))
    }

    fn drops(&self) -> bool {
        self.limits.any() && self.limits.on_full == OnFull::DropOldest && !self.dead_letters
    }

    fn stuck(&self) -> bool {
        self.jammed && self.entries.values().any(|e| matches!(e.state, Is::Doomed { .. }))
    }

    fn must_drop(&self) -> bool {
        let stay = || self.entries.values().filter(|e| !matches!(e.state, Is::Doomed { .. }));
        let (messages, bytes) = self.most();
        let (staged, staged_bytes) = self.staged_in_parts();
        let too_much =
            stay().count() as u64 + staged > messages || stay().map(|e| e.length).sum::<u64>() + staged_bytes > bytes;
        self.drops() && !self.stuck() && too_much
    }

    pub(crate) fn check_limits(&self) {
        let (staged, staged_bytes) = self.staged_in_parts();
        let messages = self.entries.len() as u64 + staged;
        let bytes = self.entries.values().map(|e| e.length).sum::<u64>() + staged_bytes;
        let (most_messages, most_bytes) = self.most();
        let full_for = |length: u64| {
            if messages >= most_messages {
                Some(Limit::Messages)
            } else {
                (bytes + length > most_bytes).then_some(Limit::Bytes)
            }
        };
        assert_eq!(self.queue.limited(), most_messages != u64::MAX || most_bytes != u64::MAX);
        assert_eq!(self.queue.full(), full_for(1));
        for length in [1, 20, 300] {
            let rejects = self.limits.on_full == OnFull::Reject;
            assert_eq!(self.queue.refuses(length), full_for(length).filter(|_| rejects));
            let takes = full_for(length).is_none() || self.limits.on_full == OnFull::DropOldest && !self.dead_letters;
            assert_eq!(self.queue.takes(length), takes);
        }
        let share = self.queue.share(3, 10);
        let blocks = match self.limits.on_full {
            OnFull::Reject => false,
            OnFull::DropOldest if !self.dead_letters => self.stuck(),
            _ => true,
        };
        assert_eq!(share.is_none(), blocks && full_for(1).is_some());
        let shares = self.limits.on_full == OnFull::Block || blocks && self.dead_letters;
        if let Some(share) = share.filter(|_| shares) {
            let free =
                (most_messages - messages).min((most_bytes - bytes) / if most_bytes == u64::MAX { 1 } else { 10 });
            assert!(
                most_bytes == u64::MAX && most_messages == u64::MAX || share == (free / 3).max(1),
                "{share} of {free}"
            );
        }
    }

    // ---- browsers ----

    pub(crate) fn browse(&mut self, a: u32, b: u32) {
        if self.browsers.len() < 2 && !b.is_multiple_of(4) {
            let id = self.next_consumer;
            self.next_consumer += 1;
            self.browsers.insert(id, Browser::default());
            self.handle(Input::Browse { consumer: ConsumerId(id) });
            self.browser_credit(1, b);
        } else if let Some(id) = nth(self.browsers.keys().copied().collect(), a) {
            self.browsers.remove(&id);
            self.handle(Input::Unsubscribe { consumer: ConsumerId(id), lost: b.is_multiple_of(2) });
        }
    }

    pub(crate) fn browser_credit(&mut self, a: u32, b: u32) {
        if let Some(id) = nth(self.browsers.keys().copied().collect(), a) {
            let browser = self.browsers.get_mut(&id).unwrap();
            browser.limit = (browser.given + u64::from(b % 16)).saturating_sub(1);
            let limit = browser.limit;
            self.handle(Input::Credit { consumer: ConsumerId(id), limit });
        }
    }

    /// What each browser was shown, and what it was to be shown. `work`: what was left for other things that come first.
    pub(crate) fn browsed(&mut self, effects: &[Effect], work: u32) {
        let purged = effects.iter().filter(|e| matches!(e, Effect::Purged { .. })).count();
        let more_to_purge = self.purges.get(purged).is_some_and(|(_, below, _)| {
            self.oldest_ready().filter(|sequence| sequence < below).is_none_or(|sequence| self.may_leave(sequence))
        });
        let comes_first = more_to_purge || self.more_to_divert(effects);
        let mut shown: BTreeMap<u64, Vec<(u64, u32, bool)>> = BTreeMap::new();
        for effect in effects {
            if let Effect::Deliver(d) = effect
                && self.browsers.contains_key(&d.consumer.0)
            {
                assert!(!self.keys.contains(&d.key()), "what is shown has a key of its own");
                self.keys.push(d.key());
                shown.entry(d.consumer.0).or_default().push((d.sequence, d.deliveries, d.has_overlay()));
            }
        }
        if work == 0 && comes_first {
            assert!(shown.is_empty(), "browsers come last");
            return;
        }
        let mut browsers = std::mem::take(&mut self.browsers);
        for (id, browser) in &mut browsers {
            let mut expected = Vec::new();
            while browser.credit() > 0 {
                match self.next_for(browser) {
                    Some(sequence) if self.resident(&self.entries[&sequence]) => {
                        let entry = &self.entries[&sequence];
                        expected.push((sequence, entry.deliveries, entry.overlay.is_some()));
                        browser.given += 1;
                        browser.from[usize::from(entry.level)] = sequence + 1;
                    }
                    other => {
                        browser.quiet = other.is_none();
                        break;
                    }
                }
            }
            assert_eq!(shown.remove(id).unwrap_or_default(), expected, "browser {id}");
        }
        assert!(shown.is_empty());
        self.browsers = browsers;
    }

    /// The first visible entry of the highest level that has one; what is neither visible nor to come is passed.
    fn next_for(&self, browser: &mut Browser) -> Option<u64> {
        let drawn = self.drawn();
        for level in (0..10u8).rev() {
            let from = &mut browser.from[usize::from(level)];
            for (sequence, entry) in self.entries.range(*from..).filter(|(_, e)| e.level == level) {
                match entry.state {
                    _ if *sequence >= drawn => break,
                    Is::Ready => return Some(*sequence),
                    Is::Staged(_) => break,
                    _ => *from = sequence + 1,
                }
            }
        }
        None
    }

    /// Whether something was left to be moved or dropped.
    fn more_to_divert(&self, effects: &[Effect]) -> bool {
        let done = effects.iter().filter(|e| matches!(e, Effect::Moved { .. })).count();
        let oldest = self.oldest_ready();
        let oldest = oldest.filter(|sequence| self.may_leave(*sequence));
        let moves = self.moves.get(done).is_some_and(|m| m.left > 0 && oldest.is_some_and(|s| s < m.below));
        moves || self.must_drop() && oldest.is_some()
    }

    /// Whether this entry, if a crash brings it back after it was taken out, is marked as what was given out is.
    pub(crate) fn may_leave(&self, sequence: u64) -> bool {
        let entry = &self.entries[&sequence];
        !entry.persistent || entry.deliveries > 0 || self.marks.contains(&(sequence / 256))
    }

    /// Whether the oldest one can only be taken out when it is marked, which is on its way.
    fn waits_for_mark(&self) -> bool {
        let Some(sequence) = self.oldest_ready().filter(|sequence| !self.may_leave(*sequence)) else { return false };
        let ticket = self.marking_of(sequence).expect("what is not marked is being marked");
        assert!(ticket < self.ticket || self.batch.urgent(), "whoever waits for a mark has it flushed");
        true
    }

    pub(crate) fn no_errand_is_left_undone(&self) {
        assert!(self.purges.is_empty() || self.waits_for_mark(), "a purge waits only for marks");
        if let Some(mover) = self.moves.front() {
            assert!(mover.under_way > 0 || self.waits_for_mark(), "a move waits only for answers, and for marks");
        }
        assert!(
            !self.must_drop() || self.oldest_ready().is_none() || self.waits_for_mark(),
            "what is too much is dropped"
        );
        for (id, browser) in &self.browsers {
            if browser.credit() > 0 {
                let mut looks = Browser { from: browser.from, ..Browser::default() };
                let Some(sequence) = self.next_for(&mut looks) else { continue };
                // A consumer may have been given what stood before it since.
                let entry = &self.entries[&sequence];
                let loads = self.loads.iter().any(|l| l.level == entry.level);
                assert!(!self.resident(entry) && loads, "browser {id} should have seen {sequence}");
            }
        }
    }
}
