//! What the queue says of itself, and its rest.

use super::*;

impl World {
    /// What the queue says of itself is what the model sees.
    pub(crate) fn check(&self) {
        if let Err(broken) = self.queue.audit() {
            panic!("{broken}");
        }
        let count = |which: fn(&Is) -> bool| self.entries.values().filter(|e| which(&e.state)).count() as u64;
        let stats = self.queue.stats();
        let staged = count(|s| matches!(s, Is::Staged(_)));
        let acquired = count(|s| matches!(s, Is::Acquired(..) | Is::Doomed { scheduled: false, .. }));
        let scheduled = count(|s| matches!(s, Is::Doomed { scheduled: true, .. }));
        assert_eq!(
            (stats.ready, stats.staged, stats.acquired),
            (self.ready(), staged + self.staged_in_parts().0, acquired)
        );
        assert_eq!((stats.scheduled, stats.damaged), (scheduled, count(|s| *s == Is::Damaged)));
        assert_eq!((stats.removing, stats.moving), (count(|s| *s == Is::Removing), 0));
        assert_eq!((stats.prepared_in, stats.prepared_out), self.in_doubt());
        self.check_parts();
        let depth: Vec<&Entry> = self.entries.values().filter(|e| !matches!(e.state, Is::Staged(_))).collect();
        assert_eq!((stats.depth, stats.bytes), (depth.len() as u64, depth.iter().map(|e| e.length).sum()));
        let totals = Totals {
            enqueued: stats.enqueued_total,
            acknowledged: stats.acknowledged_total,
            redelivered: stats.redelivered_total,
            dead_lettered: stats.dead_lettered_total,
            purged: stats.purged_total,
            moved: stats.moved_total,
        };
        assert_eq!(totals, self.totals);
        let browsers: u64 = self.browsers.values().map(Browser::credit).sum();
        let consumers = (self.consumers.len() + self.browsers.len()) as u64;
        assert_eq!((stats.consumers, stats.credit), (consumers, self.credit() + browsers));
        self.check_limits();
        let first = |level| self.entries.values().find(|e| e.level == level && !matches!(e.state, Is::Staged(_)));
        let oldest = (0..10).filter_map(first).map(|e| e.arrived).min();
        assert_eq!(stats.oldest_arrived_ms, oldest);
        for (id, browser) in &self.browsers {
            let quiet = self.leaving.is_empty() && self.ending.is_empty() && (self.ready() == 0 || browser.quiet);
            assert_eq!(self.queue.quiet_for(ConsumerId(*id)), quiet, "quiet for the browser {id}");
            assert_eq!(self.queue.credit_of(ConsumerId(*id)), browser.credit());
        }
        for id in self.consumers.keys().copied().chain([u64::MAX]) {
            let nothing = if self.consumers.contains_key(&id) { self.candidate(id).is_none() } else { true };
            let quiet = self.leaving.is_empty() && self.ending.is_empty() && nothing;
            assert_eq!(self.queue.quiet_for(ConsumerId(id)), quiet, "quiet for {id}");
        }
        let staged = self.entries.values().filter_map(|e| match e.state {
            Is::Staged(until) => until,
            _ => e.held,
        });
        let waits = staged.chain(self.reserving.map(|(ticket, _)| ticket)).chain(self.marking.iter().map(|m| m.0));
        let waits = waits.min();
        assert!(
            waits.is_none_or(|ticket| self.queue.awaits().is_some_and(|a| a.0 <= ticket)),
            "it says what it awaits"
        );
        assert!(self.durable < self.ticket - 1 || self.queue.awaits().is_none(), "nothing is left to wait for");
        for (sequence, entry) in &self.entries {
            let overlay = self.queue.overlay(entry.level, *sequence).map(|o| o.annotations.to_vec());
            assert_eq!(overlay, entry.overlay);
        }
        let retry = self.entries.values().filter_map(|e| match e.state {
            Is::Doomed { retry, .. } => retry,
            _ => None,
        });
        let probation = (!self.probation.is_empty() && !self.over).then_some(self.until_us);
        assert_eq!(self.queue.next_deadline(), retry.chain(probation).min());
    }

    /// Lets everything come to rest: all durable, all loaded, one consumer with all credit takes what is left.
    pub(crate) fn come_to_rest(&mut self) {
        self.end_all_parts();
        let id = self.next_consumer;
        self.consumers.insert(id, Consumer { limit: 1_000, ..Consumer::default() });
        self.handle(Input::Subscribe { consumer: ConsumerId(id), pre_settled: false });
        self.handle(Input::Credit { consumer: ConsumerId(id), limit: 1_000 });
        for round in 0.. {
            assert!(round < 2_000, "a queue comes to rest");
            self.flush(u64::MAX / 2);
            // Second arguments that read every body: no damage on the way out.
            self.load_answer(0, 16 + 3);
            // Consumers wait for what other queues say of a move: they take it, and refuse it, by turns.
            while self.move_is_open() {
                self.relocation_answer(0, round % 2 * 2);
            }
            self.dispatch(1000);
            self.end_turn();
            self.check();
            // Nobody settles what is on probation.
            if !self.probation.is_empty() {
                self.now_us = self.now_us.max(self.until_us);
            }
            if self.ready() == 0 && self.durable == self.ticket - 1 && self.leaving.is_empty() && self.ending.is_empty()
            {
                break;
            }
        }
    }
}
