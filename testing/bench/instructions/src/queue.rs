//! A queue in a steady flow: messages in, a flush, deliveries out, acknowledgements back.

use packhorse_model::{
    Content, ContentFormat, Head, HeadFlags, Now, Outcome, QueueId, QueueName, QueueSettings, Resident,
};
use packhorse_queue::{ConsumerId, DeliveryKey, Effect, Enqueue, Input, Queue, Turn};
use packhorse_store::{Batch, Body, Stored, Ticket};

/// Messages of a round.
const ROUND: u64 = 32;
const CONSUMER: ConsumerId = ConsumerId(1);

/// Persistent messages through one queue with one consumer, three turns a round.
pub(crate) fn flow(messages: u64) {
    let name = QueueName::new("bench").expect("a valid name");
    let mut queue = Queue::new(QueueId(1), name, QueueSettings::default(), 0, 1 << 40, false);
    let mut out: Vec<Effect> = Vec::with_capacity(256);
    let mut held: Vec<DeliveryKey> = Vec::with_capacity(256);
    let mut ticket = 1;
    let mut given = 0;
    run(&mut queue, &mut ticket, |queue, turn| {
        queue.handle(Input::Subscribe { consumer: CONSUMER, pre_settled: false }, turn, &mut out);
    });
    for _ in 0..messages / ROUND {
        run(&mut queue, &mut ticket, |queue, turn| {
            for _ in 0..ROUND {
                let head = Head {
                    arrived_ms: 0,
                    ttl_ms: 0,
                    message_format: 0,
                    priority: 4,
                    flags: HeadFlags::PERSISTENT,
                    format: ContentFormat::Amqp10,
                };
                let content = Content::Body(Resident { buffer: turn.ticket.0, offset: 0, length: 1024 });
                let stored = Some(Stored::Body(Body { piece: 0, offset: 0, length: 1024 }));
                queue.handle(Input::Enqueue(Enqueue { head, content, stored, overlay: None }), turn, &mut out);
            }
        });
        let up_to = Ticket(ticket - 1);
        run(&mut queue, &mut ticket, |queue, turn| {
            queue.handle(Input::Durable { up_to }, turn, &mut out);
            queue.handle(Input::Credit { consumer: CONSUMER, limit: given + ROUND }, turn, &mut out);
            while queue.dispatch(turn, 64, &mut out) {}
        });
        // The first of a range waits for its dispatch mark.
        let up_to = Ticket(ticket - 1);
        run(&mut queue, &mut ticket, |queue, turn| {
            queue.handle(Input::Durable { up_to }, turn, &mut out);
            while queue.dispatch(turn, 64, &mut out) {}
        });
        held.extend(out.drain(..).filter_map(|effect| match effect {
            Effect::Deliver(deliver) => Some(deliver.key()),
            _ => None,
        }));
        given += held.len() as u64;
        run(&mut queue, &mut ticket, |queue, turn| {
            for key in held.drain(..) {
                let settle = Input::Settle { key, outcome: Outcome::Acknowledge };
                assert!(queue.handle(settle, turn, &mut out).settled());
            }
        });
    }
    assert_eq!(given, messages / ROUND * ROUND, "each message was delivered");
}

fn run(queue: &mut Queue, ticket: &mut u64, act: impl FnOnce(&mut Queue, &mut Turn<'_>)) {
    let mut batch = Batch::default();
    let now = Now { mono_us: *ticket * 100, wall_ms: 0 };
    act(
        queue,
        &mut Turn { now, broker_ms: 0, ticket: Ticket(*ticket), batch: &mut batch, oldest_resident: 1, short: false },
    );
    *ticket += 1;
}
