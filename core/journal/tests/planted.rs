//! What the fault planted in the journal does. One test, for the choice of a fault is the process's.

use packhorse_journal::sim::{CrashMode, Sim, SimDisk};
use packhorse_journal::{Checkpoints, Options};
use packhorse_model::{
    ContentFormat, Head, HeadFlags, Now, Planted, QueueId, QueueName, QueueSettings, ShardId, choose_planted,
};
use packhorse_store::{Batch, Event, Op, RESERVE, Recovered, Store, Stored, Ticket};

fn start(disk: SimDisk) -> Sim {
    let options = Options { segment_bytes: 64 * 1024, checkpoints: Checkpoints::never(), ..Options::new(1, 7) };
    Sim::open(disk, &options, Now { mono_us: 0, wall_ms: 1 }).map_err(|(error, _)| error).unwrap().0
}

#[test]
fn the_last_record_of_every_second_batch_of_several_is_confirmed_and_not_there_after_a_start() {
    let queue = QueueId(1);
    let sim = start(SimDisk::new(3));
    let mut handle = sim.handle(ShardId(0));
    choose_planted(Some(Planted::DropLastRecord), 2);
    let mut batch = Batch::default();
    // Alone, so it stays whatever happens.
    let name = QueueName::new("q").unwrap();
    batch.push(Op::QueueCreate { id: queue, name, settings: QueueSettings::default(), reserved: RESERVE });
    handle.submit(batch);
    for first in [0, 3, 6, 9] {
        let mut batch = Batch::default();
        for sequence in first..first + 3 {
            let head = Head {
                arrived_ms: 0,
                ttl_ms: 0,
                message_format: 0,
                priority: 4,
                flags: HeadFlags::PERSISTENT,
                format: ContentFormat::Amqp10,
            };
            let content = Stored::Body(batch.copy_body(b"body"));
            batch.push(Op::Enqueue { queue, sequence, head, content, volatile: false });
        }
        handle.submit(batch);
    }
    sim.settle();
    let mut events = Vec::new();
    handle.poll(&mut events);
    assert!(matches!(events.last(), Some(Event::Durable { up_to: Ticket(5) })), "{events:?}");
    choose_planted(None, 1);
    let sim = start(sim.disk().crash(CrashMode::Kill, 1));
    let mut all = Vec::new();
    while sim.handle(ShardId(0)).recover(100, &mut all) {}
    let entries: Vec<u64> = all
        .iter()
        .filter_map(|thing| match thing {
            Recovered::Entry(entry) => Some(entry.key.sequence),
            _ => None,
        })
        .collect();
    assert_eq!(entries, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]);
}
