//! The workloads of the crash points: each stresses another part of the journal.

mod transactions;

use crate::checkpointer::Checkpoints;
use crate::sim::Player;
use crate::sim::model::Stuff;
use bytes::Bytes;
use packhorse_model::{
    ContentFormat, DeadLetter, DuplicateId, EntryKey, Head, HeadFlags, LargeId, OnFull, Overlay, ProducerId, QueueId,
    QueueLimits, QueueName, QueueSettings, Reason, Sequence,
};
use packhorse_store::{Batch, Load, Op, PASSED, RESERVE, Stored};

/// A workload: what happens in a turn, how many turns, on which store.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Its name, for the table and for replays.
    pub name: &'static str,
    /// Shards.
    pub shards: u16,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// How much slower than usual the disk is: the slower, the more happens during a flush.
    pub slow: u64,
    /// When checkpoints are taken.
    pub checkpoints: Checkpoints,
    /// Crashes before the play begins, after a few turns each.
    pub earlier: u64,
    /// Turns.
    pub turns: u64,
    /// One turn. Turns go on counting after a crash.
    pub turn: fn(&mut Player, u64),
}

/// All workloads.
pub fn workloads() -> Vec<Workload> {
    let checkpoints = Checkpoints::default();
    let base = Workload {
        name: "",
        shards: 1,
        segment_bytes: 64 * 1024,
        slow: 1,
        checkpoints,
        earlier: 0,
        turns: 24,
        turn: small_confirms,
    };
    // Slices so small that much happens between them.
    let often = |every_bytes, slice_entries| Checkpoints { every_bytes, slice_entries, ..checkpoints };
    let mut all = vec![
        Workload { name: "small-confirms", ..base },
        Workload { name: "group-commit", shards: 3, slow: 4, turn: group_commit, ..base },
        Workload { name: "large-messages", shards: 2, turns: 16, turn: large_messages, ..base },
        Workload { name: "queues-come-and-go", shards: 2, turn: queues_come_and_go, ..base },
        Workload { name: "relocations", shards: 2, turn: relocations, ..base },
        Workload { name: "segment-changes", segment_bytes: 16 * 1024, turns: 20, turn: segment_changes, ..base },
        Workload { name: "loads-during-flushes", shards: 2, slow: 3, turn: loads_during_flushes, ..base },
        Workload { name: "lazy-acknowledgements", turn: lazy_acknowledgements, ..base },
        Workload {
            name: "big-blocks-overlapping",
            segment_bytes: 1 << 20,
            slow: 8,
            turns: 5,
            turn: big_blocks,
            ..base
        },
        Workload {
            name: "segments-used-again",
            segment_bytes: 16 * 1024,
            checkpoints: often(20 * 1024, 2),
            turns: 50,
            turn: steady_flow,
            ..base
        },
        Workload {
            name: "checkpoints-during-changes",
            shards: 2,
            segment_bytes: 32 * 1024,
            slow: 2,
            checkpoints: often(12 * 1024, 16),
            turns: 50,
            turn: changes,
            ..base
        },
        Workload {
            name: "checkpoints-of-large-ones",
            shards: 2,
            segment_bytes: 16 * 1024,
            checkpoints: often(16 * 1024, 1),
            turns: 16,
            turn: large_messages,
            ..base
        },
        Workload {
            name: "checkpoints-of-everything",
            shards: 3,
            segment_bytes: 16 * 1024,
            slow: 2,
            checkpoints: often(24 * 1024, 2),
            turns: 30,
            turn: everything,
            ..base
        },
        Workload {
            name: "suspects",
            shards: 2,
            segment_bytes: 16 * 1024,
            slow: 2,
            checkpoints: often(8 * 1024, 2),
            earlier: 2,
            turns: 40,
            turn: suspects,
        },
        Workload {
            name: "numbered-producers",
            shards: 2,
            segment_bytes: 16 * 1024,
            checkpoints: often(8 * 1024, 1),
            earlier: 1,
            turns: 40,
            turn: numbered,
            ..base
        },
        Workload { name: "everything", shards: 3, segment_bytes: 32 * 1024, slow: 2, turn: everything, ..base },
    ];
    all.extend(transactions::workloads(base));
    all
}

/// Decides every branch that is in doubt.
pub(super) fn end_branches(player: &mut Player) {
    while let Some((xid, branch)) = transactions::in_doubt(player) {
        let commit = player.below(3) > 0;
        transactions::decide(player, xid, &branch, commit, 1);
    }
}

fn head(priority: u8, persistent: bool) -> Head {
    Head {
        arrived_ms: 77,
        ttl_ms: 5,
        message_format: 0,
        priority,
        flags: if persistent { HeadFlags::PERSISTENT } else { HeadFlags::default() },
        format: ContentFormat::Amqp10,
    }
}

/// A queue of this shard; made first if there is none.
fn queue_of(player: &mut Player, batch: &mut Batch, shard: u16, shards: u16) -> QueueId {
    let own: Vec<QueueId> = player.state().queues().filter(|id| id.owner(shards).0 == shard).collect();
    match own.len() as u64 {
        0 => create(player, batch, shard, shards),
        n => own[player.below(n) as usize],
    }
}

fn create(player: &mut Player, batch: &mut Batch, shard: u16, shards: u16) -> QueueId {
    let first = player.state().next_queue().max(1);
    let id = (first..).map(QueueId).find(|id| id.owner(shards).0 == shard).expect("each shard owns some id");
    let name = QueueName::new(&format!("queue {}", id.0)).expect("a valid name");
    batch.push(Op::QueueCreate { id, name, settings: QueueSettings::default(), reserved: RESERVE });
    id
}

fn enqueue(player: &mut Player, batch: &mut Batch, queue: QueueId, bytes: usize, volatile: bool) {
    let sequence = player.draw_sequence(queue);
    let body: Vec<u8> = (0..bytes).map(|i| (i as u64 * 31 + sequence) as u8).collect();
    let body = if bytes < 4096 { batch.copy_body(&body) } else { batch.share_body(Bytes::from(body)) };
    let priority = [4, 4, 4, 0, 200][player.below(5) as usize];
    let head = head(priority, !volatile);
    batch.push(Op::Enqueue { queue, sequence, head, content: Stored::Body(body), volatile });
}

/// An entry of a queue that batches before this one have stored.
fn some_entry(player: &mut Player, queue: QueueId) -> Option<EntryKey> {
    let all = player.state().sequences(queue);
    let n = all.len() as u64;
    (n > 0).then(|| EntryKey { queue, sequence: all[player.below(n) as usize] })
}

fn small_confirms(player: &mut Player, turn: u64) {
    let mut batch = Batch::default();
    let queue = queue_of(player, &mut batch, 0, 1);
    let bytes = [0, 1, 200, 1024][player.below(4) as usize];
    enqueue(player, &mut batch, queue, bytes, false);
    if turn % 3 == 2
        && let Some(entry) = some_entry(player, queue)
    {
        batch.acknowledge(queue, entry.sequence);
    }
    player.submit(0, batch);
}

fn group_commit(player: &mut Player, _turn: u64) {
    for shard in 0..3 {
        for _ in 0..player.below(4) {
            let mut batch = Batch::default();
            let queue = queue_of(player, &mut batch, shard, 3);
            for _ in 0..player.below(5) + 1 {
                let bytes = player.below(900) as usize;
                enqueue(player, &mut batch, queue, bytes, false);
            }
            if let Some(entry) = some_entry(player, queue) {
                batch.acknowledge(queue, entry.sequence);
            }
            player.submit(shard, batch);
        }
    }
}

/// Messages with numbers, in some order, and producers that confirm them.
fn numbered(player: &mut Player, turn: u64) {
    let shard = (turn % 2) as u16;
    let mut batch = Batch::default();
    let queue = queue_of(player, &mut batch, shard, 2);
    for _ in 0..player.below(4) {
        let producer = ProducerId([player.below(3) as u8; 16]);
        let (floor, number) = (turn.saturating_sub(player.below(16)), turn + player.below(12));
        let stored = (player.below(4) > 0).then_some(number);
        if stored.is_some() {
            enqueue(player, &mut batch, queue, 50, false);
        }
        batch.push(Op::Producer { queue, producer, floor, stored, at_ms: turn });
        if player.below(3) == 0 {
            enqueue(player, &mut batch, queue, 40, false);
            let id = DuplicateId([player.below(20) as u8; 16]);
            batch.push(Op::DuplicateId { queue, id, at_ms: turn });
        }
    }
    if player.below(12) == 0 {
        batch.push(Op::QueueDelete { id: queue });
    } else if let Some(entry) = some_entry(player, queue) {
        batch.acknowledge(queue, entry.sequence);
    }
    player.submit(shard, batch);
}

fn large_messages(player: &mut Player, turn: u64) {
    let shard = (turn % 2) as u16;
    let mut batch = Batch::default();
    let queue = queue_of(player, &mut batch, shard, 2);
    for (id, length) in player.take_synced() {
        let sequence = player.draw_sequence(queue);
        let content = Stored::Large { id: LargeId(id), length };
        batch.push(Op::Enqueue { queue, sequence, head: head(4, true), content, volatile: false });
    }
    enqueue(player, &mut batch, queue, 100, false);
    if turn % 3 == 1
        && let Some(entry) = some_entry(player, queue)
    {
        batch.acknowledge(queue, entry.sequence);
        batch.require_flush();
    }
    player.submit(shard, batch);
    let length = [0, 10, 65_536, 65_537, 200_000][player.below(5) as usize];
    let abort = player.below(5) == 0;
    player.large(shard, length, abort);
}

fn queues_come_and_go(player: &mut Player, turn: u64) {
    let shard = (turn % 2) as u16;
    let mut batch = Batch::default();
    let queue = if turn.is_multiple_of(3) {
        create(player, &mut batch, shard, 2)
    } else {
        queue_of(player, &mut batch, shard, 2)
    };
    for _ in 0..3 {
        enqueue(player, &mut batch, queue, 300, false);
    }
    if turn % 4 == 1 {
        let settings = settings(turn);
        batch.push(Op::QueueChange { id: queue, settings });
    }
    if turn % 5 == 2 {
        batch.push(Op::Reserve { queue, up_to: (turn + 2) * RESERVE });
    }
    player.submit(shard, batch);
    if turn % 4 == 3 {
        let mut batch = Batch::default();
        batch.push(Op::QueueDelete { id: queue });
        player.submit(shard, batch);
    }
}

/// A dead letter, for the entry of this number.
fn letter(sequence: Sequence) -> Box<Overlay> {
    let dead_letter = Some(Box::new(DeadLetter {
        reason: Reason::Rejected,
        detail: "no such customer".into(),
        address: QueueName::new("orders").expect("a valid name"),
        sequence,
        deliveries: 3,
        leaving: false,
    }));
    Box::new(Overlay { annotations: Bytes::from_static(b"noted"), dead_letter })
}

fn relocate(player: &mut Player, batch: &mut Batch, from: EntryKey, to: QueueId) {
    let to = EntryKey { queue: to, sequence: player.draw_sequence(to) };
    let overlay = letter(from.sequence);
    let persistent = !player.state().entries[&from].volatile;
    batch.push(Op::Relocate { from, to, head: head(9, persistent), deliveries: 3, attempts: 2, overlay });
}

fn relocations(player: &mut Player, turn: u64) {
    for shard in 0..2 {
        let mut batch = Batch::default();
        let queue = queue_of(player, &mut batch, shard, 2);
        for _ in 0..2 {
            let volatile = player.below(5) == 0;
            enqueue(player, &mut batch, queue, 500, volatile);
        }
        player.submit(shard, batch);
    }
    let from_shard = (turn % 2) as u16;
    let mut batch = Batch::default();
    let from = queue_of(player, &mut batch, from_shard, 2);
    let to = queue_of(player, &mut batch, 1 - from_shard, 2);
    if let Some(entry) = some_entry(player, from) {
        relocate(player, &mut batch, entry, to);
    }
    player.submit(from_shard, batch);
}

fn segment_changes(player: &mut Player, turn: u64) {
    let mut batch = Batch::default();
    let queue = queue_of(player, &mut batch, 0, 1);
    // Now and then a block that no ordinary segment holds.
    let bytes = if turn % 7 == 6 { 30_000 } else { 3_000 };
    enqueue(player, &mut batch, queue, bytes, false);
    enqueue(player, &mut batch, queue, 10, false);
    player.submit(0, batch);
    if let Some(entry) = some_entry(player, queue) {
        let mut batch = Batch::default();
        batch.acknowledge(queue, entry.sequence);
        player.submit(0, batch);
    }
}

/// A steady flow through two queues; a few messages stay, so that segments between those in use become free.
fn steady_flow(player: &mut Player, turn: u64) {
    let mut batch = Batch::default();
    if turn < 2 {
        create(player, &mut batch, 0, 1);
    }
    let queue = queue_of(player, &mut batch, 0, 1);
    for _ in 0..3 {
        let volatile = player.below(8) == 0;
        enqueue(player, &mut batch, queue, 1_500, volatile);
    }
    player.submit(0, batch);
    let mut batch = Batch::default();
    let ids: Vec<QueueId> = player.state().queues().collect();
    for queue in ids {
        let all = player.state().sequences(queue);
        // The oldest go; every seventh number stays for a long time.
        let gone = all.iter().rev().skip(3).filter(|n| *n % 7 != 0 || turn % 20 == 19);
        gone.for_each(|sequence| batch.acknowledge(queue, *sequence));
    }
    player.submit(0, batch);
    if turn.is_multiple_of(5) {
        let ids: Vec<QueueId> = player.state().queues().collect();
        player.load(0, Load { queue: ids[0], level: 4, from: 0, count: 10, bytes: 100_000 });
    }
}

/// Entries that are changed, moved, moved on and acknowledged while checkpoints are being taken.
fn changes(player: &mut Player, turn: u64) {
    let shard = (turn % 2) as u16;
    let mut batch = Batch::default();
    if turn < 4 || turn.is_multiple_of(16) {
        create(player, &mut batch, shard, 2);
    }
    let queue = queue_of(player, &mut batch, shard, 2);
    for _ in 0..4 {
        let volatile = player.below(10) == 0;
        enqueue(player, &mut batch, queue, 600, volatile);
    }
    player.submit(shard, batch);
    for _ in 0..3 {
        let mut batch = Batch::default();
        let ids: Vec<QueueId> = player.state().queues().collect();
        let queue = ids[player.below(ids.len() as u64) as usize];
        let Some(entry) = some_entry(player, queue) else { continue };
        match player.below(9) {
            0 | 1 => {
                let overlay = player.below(2) == 0;
                let annotations = Bytes::from(vec![turn as u8; 12]);
                let overlay = overlay.then(|| Box::new(Overlay { annotations, dead_letter: None }));
                batch.push(Op::Redeliver { entry, deliveries: turn as u32 + 1, attempts: 1, overlay });
            }
            2..=4 => {
                let to = ids[player.below(ids.len() as u64) as usize];
                relocate(player, &mut batch, entry, to);
            }
            5 => batch.push(Op::DispatchMark { queue, first: entry.sequence / 256 * 256, count: 256 }),
            6 if ids.len() > 2 && player.below(3) == 0 => batch.push(Op::QueueDelete { id: queue }),
            7 => {
                let settings = settings(turn);
                batch.push(Op::QueueChange { id: queue, settings });
            }
            _ => batch.acknowledge(queue, entry.sequence),
        }
        player.submit(shard, batch);
    }
}

/// Entries in marked ranges that earlier crashes made suspects: marked one by one, and everything else that can happen to them.
fn suspects(player: &mut Player, turn: u64) {
    let shard = (turn % 2) as u16;
    let mut batch = Batch::default();
    let queue = queue_of(player, &mut batch, shard, 2);
    for _ in 0..3 {
        let volatile = player.below(10) == 0;
        enqueue(player, &mut batch, queue, 400, volatile);
    }
    player.submit(shard, batch);
    for _ in 0..4 {
        let mut batch = Batch::default();
        let own: Vec<QueueId> = player.state().queues().filter(|id| id.owner(2).0 == shard).collect();
        let queue = own[player.below(own.len() as u64) as usize];
        let Some(entry) = some_entry(player, queue) else { continue };
        match player.below(10) {
            0..=4 => {
                // Young at whatever time the crash comes.
                let passed = if player.below(4) == 0 { PASSED } else { 0 };
                let (first, last, at_ms) = (entry.sequence, entry.sequence + player.below(3), (u64::MAX / 2) | passed);
                batch.push(Op::ExactMark { queue, first, last, at_ms });
            }
            5 => batch.push(Op::DispatchMark { queue, first: entry.sequence / 4 * 4, count: 4 }),
            6 => batch.push(Op::Redeliver { entry, deliveries: turn as u32 + 1, attempts: 1, overlay: None }),
            7 => relocate(player, &mut batch, entry, queue),
            8 if player.below(4) == 0 => drop(create(player, &mut batch, shard, 2)),
            _ => batch.acknowledge(queue, entry.sequence),
        }
        player.submit(shard, batch);
    }
}

fn loads_during_flushes(player: &mut Player, turn: u64) {
    group_of_two(player);
    let ids: Vec<QueueId> = player.state().queues().collect();
    for queue in ids {
        let from = player.below(40);
        let count = 1 + player.below(20) as u32;
        player.load(queue.owner(2).0, Load { queue, level: 4, from, count, bytes: 5_000 });
    }
    if turn % 2 == 1 {
        group_of_two(player);
    }
}

fn group_of_two(player: &mut Player) {
    for shard in 0..2 {
        let mut batch = Batch::default();
        let queue = queue_of(player, &mut batch, shard, 2);
        for _ in 0..4 {
            enqueue(player, &mut batch, queue, 700, false);
        }
        if let Some(entry) = some_entry(player, queue) {
            batch.acknowledge(queue, entry.sequence);
        }
        player.submit(shard, batch);
    }
}

fn lazy_acknowledgements(player: &mut Player, turn: u64) {
    let mut batch = Batch::default();
    let queue = queue_of(player, &mut batch, 0, 1);
    if turn.is_multiple_of(6) {
        for _ in 0..12 {
            enqueue(player, &mut batch, queue, 50, false);
        }
    }
    player.submit(0, batch);
    let mut batch = Batch::default();
    if let Some(entry) = some_entry(player, queue) {
        match turn % 3 {
            0 => batch.push(Op::DispatchMark { queue, first: entry.sequence / 256 * 256, count: 256 }),
            1 => {
                let overlay = turn.is_multiple_of(2).then(|| {
                    let annotations = Bytes::from(vec![turn as u8; 20]);
                    Box::new(Overlay { annotations, dead_letter: None })
                });
                batch.push(Op::Redeliver { entry, deliveries: turn as u32, attempts: 1, overlay });
            }
            _ => batch.push(Op::Acknowledge { queue, first: entry.sequence, last: entry.sequence + 2 }),
        }
    }
    player.submit(0, batch);
}

fn big_blocks(player: &mut Player, _turn: u64) {
    for _ in 0..6 {
        let mut batch = Batch::default();
        let queue = queue_of(player, &mut batch, 0, 1);
        for _ in 0..3 {
            enqueue(player, &mut batch, queue, 30_000, false);
        }
        player.submit(0, batch);
    }
    let mut batch = Batch::default();
    let queue = queue_of(player, &mut batch, 0, 1);
    let all = player.state().sequences(queue);
    for sequence in all.iter().take(12) {
        batch.acknowledge(queue, *sequence);
    }
    player.submit(0, batch);
}

fn everything(player: &mut Player, turn: u64) {
    for shard in 0..3 {
        for _ in 0..player.below(3) {
            let mut batch = Batch::default();
            let queue = match player.below(10) {
                0 => create(player, &mut batch, shard, 3),
                _ => queue_of(player, &mut batch, shard, 3),
            };
            for _ in 0..player.below(4) {
                let (bytes, volatile) = (player.below(2_000) as usize, player.below(6) == 0);
                enqueue(player, &mut batch, queue, bytes, volatile);
            }
            if let Some(entry) = some_entry(player, queue) {
                match player.below(8) {
                    0 => batch.push(Op::DispatchMark { queue, first: entry.sequence / 256 * 256, count: 256 }),
                    1 => batch.push(Op::Redeliver { entry, deliveries: 2, attempts: 1, overlay: None }),
                    2 => {
                        let to = queue_of(player, &mut batch, shard, 3);
                        relocate(player, &mut batch, entry, to);
                    }
                    3 => batch.push(Op::QueueDelete { id: queue }),
                    4..=6 => batch.acknowledge(queue, entry.sequence),
                    _ => {}
                }
            }
            player.submit(shard, batch);
        }
    }
    let synced = player.take_synced();
    if !synced.is_empty() {
        let mut batch = Batch::default();
        let queue = queue_of(player, &mut batch, 0, 3);
        for (id, length) in synced {
            let sequence = player.draw_sequence(queue);
            let content = Stored::Large { id: LargeId(id), length };
            batch.push(Op::Enqueue { queue, sequence, head: head(0, true), content, volatile: false });
        }
        player.submit(0, batch);
    }
    if turn.is_multiple_of(4) {
        player.large(0, 70_000, false);
    }
    let large = player.state().entries.values().filter(|e| matches!(e.content, Stuff::Large(..))).count();
    let ids: Vec<QueueId> = player.state().queues().collect();
    if large > 0
        && let Some(queue) = ids.first()
    {
        player.load(0, Load { queue: *queue, level: 4, from: 0, count: 100, bytes: 100_000 });
    }
}

/// Settings that tell the turn, every other time with limits.
fn settings(turn: u64) -> QueueSettings {
    let limits = QueueLimits { max_messages: Some(turn), max_bytes: None, on_full: OnFull::DropOldest };
    let limits = if turn.is_multiple_of(2) { limits } else { QueueLimits::default() };
    QueueSettings { delivery_limit: turn as u32, limits, ..QueueSettings::default() }
}
