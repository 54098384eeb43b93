//! Long transactions: no dispatch does more than it was allowed to, and nobody sees half of one.

use packhorse_model::{
    Content, ContentFormat, Head, HeadFlags, Now, Purpose, QueueId, QueueName, QueueSettings, Resident, Resolution,
};
use packhorse_queue::{ConsumerId, DeliveryKey, Effect, Enqueue, Input, Queue, Stats, Turn};
use packhorse_store::{Batch, RESERVE, Ticket};

use super::txn;

const ALL: u64 = 1_000_000;
const BUDGET: u32 = 256;

struct Slices {
    queue: Queue,
    out: Vec<Effect>,
    batch: Batch,
}

impl Slices {
    fn new() -> Slices {
        let settings = QueueSettings { delivery_limit: 10, ..QueueSettings::default() };
        let queue = Queue::new(QueueId(1), QueueName::new("q").unwrap(), settings, 0, 4 * RESERVE, false);
        Slices { queue, out: Vec::new(), batch: Batch::default() }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Queue, &mut Turn<'_>, &mut Vec<Effect>) -> T) -> T {
        let now = Now { mono_us: 0, wall_ms: 0 };
        let (ticket, batch) = (Ticket(1), &mut self.batch);
        act(
            &mut self.queue,
            &mut Turn { now, broker_ms: 0, ticket, batch, oldest_resident: 1, short: false },
            &mut self.out,
        )
    }

    fn handle(&mut self, input: Input<'_>) -> bool {
        self.with(|queue, turn, out| queue.handle(input, turn, out)).settled()
    }

    fn dispatch(&mut self) -> bool {
        self.with(|queue, turn, out| queue.dispatch(turn, BUDGET, out))
    }

    /// Carries out the end of a transaction; each slice is looked at.
    fn end(&mut self, resolution: Resolution, moved: fn(&Stats) -> u64) {
        let operations = ALL;
        self.handle(Input::Apply { txn: txn(1), operations, resolution, buffers: &[1] });
        let before = self.queue.stats();
        let mut left = moved(&before);
        assert_eq!(left, ALL, "an input carries out nothing");
        let mut slices = 0;
        self.handle(Input::Purge { token: 1 });
        while left > 0 {
            assert!(self.dispatch(), "there is more to do");
            assert!(self.out.is_empty(), "nothing is given, shown or purged before all is done");
            let stats = self.queue.stats();
            let now = moved(&stats);
            assert!(left - now <= u64::from(BUDGET), "{} in one slice", left - now);
            (left, slices) = (now, slices + 1);
        }
        assert!(slices >= ALL / u64::from(BUDGET));
        assert_eq!(self.queue.audit(), Ok(()));
    }
}

fn head() -> Head {
    let flags = HeadFlags::default();
    Head { arrived_ms: 0, ttl_ms: 0, message_format: 0, priority: 4, flags, format: ContentFormat::Amqp10 }
}

fn content(buffer: u64) -> Content {
    Content::Body(Resident { buffer, offset: 0, length: 1 })
}

#[test]
fn a_million_removes_come_back_in_slices() {
    let mut slices = Slices::new();
    let consumer = ConsumerId(1);
    for _ in 0..ALL {
        let (head, content) = (head(), content(1));
        slices.handle(Input::Enqueue(Enqueue { head, content, stored: None, overlay: None }));
    }
    slices.handle(Input::Subscribe { consumer, pre_settled: false });
    slices.handle(Input::Credit { consumer, limit: ALL });
    let mut keys: Vec<DeliveryKey> = Vec::new();
    while (keys.len() as u64) < ALL {
        slices.dispatch();
        keys.extend(slices.out.drain(..).filter_map(|effect| match effect {
            Effect::Deliver(deliver) => Some(deliver.key()),
            _ => None,
        }));
    }
    for key in keys {
        assert!(slices.handle(Input::StageSettle { txn: txn(1), key, outcome: packhorse_model::Outcome::Acknowledge }));
    }
    assert!(slices.out.is_empty(), "what does not survive a crash needs no operation");
    slices.handle(Input::Browse { consumer: ConsumerId(2) });
    slices.handle(Input::Credit { consumer: ConsumerId(2), limit: 1 });
    slices.handle(Input::Credit { consumer, limit: ALL + 1 });
    slices.end(Resolution::Rollback, |stats| stats.removing);
}

#[test]
fn a_million_adds_appear_in_slices_among_others() {
    let mut slices = Slices::new();
    for _ in 0..ALL {
        slices.handle(Input::StageEnqueue { txn: txn(1), head: head(), content: content(0), identity: None });
    }
    slices.handle(Input::Gather { txn: txn(1), operations: ALL, purpose: Purpose::Commit });
    assert!(matches!(slices.out.pop(), Some(Effect::Gathered(_))));
    let consumer = ConsumerId(1);
    for _ in 0..1000 {
        let (head, content) = (head(), content(1));
        slices.handle(Input::Enqueue(Enqueue { head, content, stored: None, overlay: None }));
    }
    slices.handle(Input::Subscribe { consumer, pre_settled: false });
    slices.handle(Input::Credit { consumer, limit: 500 });
    while slices.dispatch() {}
    assert_eq!(slices.out.drain(..).count(), 500);
    slices.handle(Input::Credit { consumer, limit: 501 });
    slices.end(Resolution::Commit, |stats| stats.staged);
    // The purge removes one after the other; whoever comes later gets what is left, the consumer nothing of what is gone.
    while slices.dispatch() {}
    let purged: Vec<u64> = slices
        .out
        .iter()
        .filter_map(|effect| match effect {
            Effect::Purged { count, .. } => Some(*count),
            _ => None,
        })
        .collect();
    assert_eq!(purged, [ALL + 500]);
    assert_eq!(slices.queue.audit(), Ok(()));
}
