//! Workloads with transactions.

use super::{Workload, create, enqueue, head, queue_of};
use crate::sim::Player;
use crate::sim::model::{Branch, Work, messages};
use bytes::Bytes;
use packhorse_model::{
    BrokerId, ClientSession, DuplicateId, LargeId, ProducerId, QueueId, Sequence, Token, TxnId, Xid,
};
use packhorse_store::{
    Ahead, Batch, Commit, Decide, Figures, Heuristic, HeuristicOutcome, Numbers, Op, Prepare, Redelivery, Stored,
    TxOps, TxnOp, TxnPart,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SHARDS: u16 = 2;

/// All of them. Checkpoints are taken between any two records, and segments are used again meanwhile.
pub(super) fn workloads(base: Workload) -> Vec<Workload> {
    let often = |every_bytes, slice_entries| super::Checkpoints { every_bytes, slice_entries, ..base.checkpoints };
    let base = Workload { shards: SHARDS, segment_bytes: 16 * 1024, turns: 26, ..base };
    vec![
        Workload { name: "local-commits", checkpoints: often(20 * 1024, 3), turn: local_commits, ..base },
        Workload { name: "work-ahead", checkpoints: often(10 * 1024, 2), slow: 2, turn: work_ahead, ..base },
        Workload { name: "rolled-back-work", checkpoints: often(10 * 1024, 2), slow: 2, turn: rolled_back, ..base },
        Workload { name: "branches", checkpoints: often(10 * 1024, 2), turn: branches, ..base },
        Workload {
            name: "held-and-back",
            checkpoints: often(10 * 1024, 1),
            earlier: 2,
            slow: 2,
            turns: 22,
            turn: held_and_back,
            ..base
        },
        Workload {
            name: "operators-decide",
            checkpoints: often(10 * 1024, 2),
            turns: 34,
            turn: operators_decide,
            ..base
        },
        Workload {
            name: "branches-of-earlier-lives",
            checkpoints: often(16 * 1024, 4),
            earlier: 3,
            turns: 24,
            turn: all_kinds,
            ..base
        },
        Workload {
            name: "large-ones-in-branches",
            checkpoints: often(12 * 1024, 1),
            turns: 18,
            turn: large_ones,
            ..base
        },
        Workload {
            name: "transactions-in-big-blocks",
            segment_bytes: 256 * 1024,
            slow: 8,
            turns: 6,
            turn: in_big_blocks,
            ..base
        },
    ]
}

/// Entries of a queue that nobody has: no branch holds them, no transaction is about to remove them.
fn free(player: &Player, queue: QueueId) -> Vec<Sequence> {
    let state = player.state();
    let ahead = state.transactions.ahead.iter().filter(|((_, id), _)| *id == queue);
    let taken: BTreeSet<Sequence> = ahead.flat_map(|(_, (_, works))| removed(works)).collect();
    state.sequences(queue).into_iter().filter(|sequence| !taken.contains(sequence)).collect()
}

fn removed(works: &[Work]) -> impl Iterator<Item = Sequence> + '_ {
    works.iter().filter_map(|work| match work {
        Work::Remove(sequence, ..) => Some(*sequence),
        Work::Add(..) | Work::Number(..) | Work::Id(_) => None,
    })
}

/// How many numbers the messages that are added need.
fn indexes(works: &[Work]) -> u32 {
    let indexes = works.iter().filter_map(|work| match work {
        Work::Add(index, ..) => Some(index + 1),
        Work::Remove(..) | Work::Number(..) | Work::Id(_) => None,
    });
    indexes.max().unwrap_or(0)
}

/// What a transaction does in one step in a queue.
#[derive(Clone, Copy)]
struct Step {
    adds: u64,
    bytes: usize,
    removes: u64,
}

/// What a commit makes of an entry, if it does not remove it: now and then it is on its way to the dead-letter queue then.
fn redelivery(player: &mut Player, sequence: Sequence) -> Option<Arc<Redelivery>> {
    let overlay = match player.below(6) {
        0 => None,
        1 => {
            let mut letter = super::letter(sequence);
            letter.dead_letter.iter_mut().for_each(|letter| letter.leaving = true);
            Some(letter)
        }
        _ => return None,
    };
    Some(Arc::new(Redelivery { deliveries: 9, attempts: player.below(3) as u32, overlay }))
}

/// Operations from an index on.
fn ops(player: &mut Player, batch: &mut Batch, queue: QueueId, first: u32, step: Step) -> Vec<TxnOp> {
    let mut ops = Vec::new();
    for n in 0..step.adds as u32 {
        let body: Vec<u8> = (0..step.bytes).map(|i| (i as u64 * 7 + u64::from(first + n)) as u8).collect();
        let body = if step.bytes < 2048 { batch.copy_body(&body) } else { batch.share_body(Bytes::from(body)) };
        let head = head([4, 4, 0, 200][player.below(4) as usize], true);
        ops.push(TxnOp::Enqueue { index: first + n, head, content: Stored::Body(body) });
        if player.below(3) == 0 {
            let producer = ProducerId([player.below(3) as u8; 16]);
            ops.push(TxnOp::Number { producer, number: player.below(40), floor: player.below(10) });
        } else if player.below(3) == 0 {
            ops.push(TxnOp::DuplicateId(DuplicateId([player.below(20) as u8; 16])));
        }
    }
    let mut free = free(player, queue);
    for _ in 0..step.removes.min(free.len() as u64) {
        let sequence = free.swap_remove(player.below(free.len() as u64) as usize);
        let (deliveries, attempts) = (1 + player.below(4) as u32, player.below(3) as u32);
        ops.push(TxnOp::Acknowledge { sequence, deliveries, attempts, redelivery: redelivery(player, sequence) });
    }
    ops
}

/// Some operations of a transaction go ahead, from the queue's shard.
fn ahead(player: &mut Player, txn: TxnId, queue: QueueId, step: Step) {
    let before = player.state().transactions.ahead.get(&(txn, queue)).cloned().unwrap_or_default();
    let mut batch = Batch::default();
    let ops = ops(player, &mut batch, queue, indexes(&before.1), step);
    batch.push(Op::TxOps(Box::new(TxOps { txn, queue, record: before.0, ops })));
    player.submit(queue.owner(SHARDS).0, batch);
}

/// All parts of a transaction that ends: what went ahead, and some more in some queues. Bodies are in the batch.
fn parts(
    player: &mut Player,
    batch: &mut Batch,
    txn: TxnId,
    more: &[QueueId],
    step: Step,
    commit: bool,
) -> Vec<(QueueId, TxnPart, Figures)> {
    let all = player.state().transactions.ahead.clone();
    let mut queues: BTreeSet<QueueId> = more.iter().copied().collect();
    queues.extend(all.keys().filter(|key| key.0 == txn).map(|key| key.1));
    let mut told = Vec::new();
    for queue in queues {
        let (records, before) = all.get(&(txn, queue)).cloned().unwrap_or_default();
        let bytes = before.iter().map(|work| match work {
            Work::Add(_, _, super::Stuff::Bytes(bytes)) => bytes.len() as u64,
            _ => 0,
        });
        let (ops_ahead, bytes) = (messages(&before), bytes.sum());
        let ops = if more.contains(&queue) { ops(player, batch, queue, indexes(&before), step) } else { Vec::new() };
        // Now and then there is a message that is not persistent.
        let added = ops.iter().filter(|op| matches!(op, TxnOp::Enqueue { .. })).count() as u32;
        let count = indexes(&before) + added + u32::from(player.below(4) == 0);
        let numbers = (commit && count > 0).then(|| numbers(player, queue, count));
        let acknowledges = ops.iter().filter(|op| matches!(op, TxnOp::Acknowledge { .. })).count();
        let removes = removed(&before).count() + acknowledges;
        let figures = Figures { adds: u64::from(count), removes: removes as u64, bytes: 0 };
        let ahead = Ahead { records, ops: ops_ahead, bytes };
        told.push((queue, TxnPart { ops, ahead, numbers, ..TxnPart::default() }, figures));
    }
    told
}

fn numbers(player: &mut Player, queue: QueueId, count: u32) -> Numbers {
    let first = player.draw_sequence(queue);
    for _ in 1..count {
        player.draw_sequence(queue);
    }
    Numbers { first, count }
}

fn commit(player: &mut Player, txn: TxnId, more: &[QueueId], step: Step, turn: u64) {
    let mut batch = Batch::default();
    let parts = parts(player, &mut batch, txn, more, step, true);
    let parts = parts.into_iter().map(|(queue, part, _)| (queue, part)).collect();
    let session = ClientSession([player.below(3) as u8; 16]);
    let counter = turn * 4 + player.below(8);
    let token = (player.below(2) == 0).then_some(Token { broker: BrokerId([1; 16]), session, counter });
    let xid = (player.below(4) == 0).then(|| xid(txn));
    batch.push(Op::Commit(Box::new(Commit { txn, parts, token, xid, at_ms: turn })));
    let shard = player.below(u64::from(SHARDS)) as u16;
    player.submit(shard, batch);
}

fn xid(txn: TxnId) -> Xid {
    Xid::new(1, &txn.to_bytes(), b"branch").expect("a valid name")
}

fn prepare(player: &mut Player, txn: TxnId, more: &[QueueId], step: Step, turn: u64) {
    let mut batch = Batch::default();
    let parts = parts(player, &mut batch, txn, more, step, false);
    // A name that was used before comes again.
    let again = over(player);
    let xid = again.filter(|_| player.below(6) == 0).unwrap_or_else(|| xid(txn));
    let (client, wall_ms) = (format!("client {turn}").into(), turn as i64 - 20);
    batch.push(Op::Prepare(Box::new(Prepare { txn, xid, client, parts, wall_ms, at_ms: turn })));
    player.submit(0, batch);
}

/// A completed branch that is remembered, and whose name is free.
fn over(player: &Player) -> Option<Xid> {
    let known = &player.state().transactions;
    let mut over = known.completed.iter().map(|(xid, ..)| xid).filter(|xid| !known.branches.contains_key(xid));
    over.next().cloned()
}

/// A branch in doubt, if there is one.
pub(super) fn in_doubt(player: &mut Player) -> Option<(Xid, Branch)> {
    let all = player.state().transactions.branches.iter().filter(|(_, branch)| branch.decided.is_none());
    let mut all: Vec<(Xid, Branch)> = all.map(|(xid, branch)| (xid.clone(), branch.clone())).collect();
    (!all.is_empty()).then(|| all.swap_remove(player.below(all.len() as u64) as usize))
}

fn numbers_of(player: &mut Player, parts: &BTreeMap<QueueId, Vec<Work>>) -> Vec<(QueueId, Numbers)> {
    let needed = parts.iter().map(|(queue, works)| (*queue, indexes(works))).filter(|(_, count)| *count > 0);
    needed.map(|(queue, count)| (queue, numbers(player, queue, count))).collect()
}

pub(super) fn decide(player: &mut Player, xid: Xid, branch: &Branch, commit: bool, turn: u64) {
    let mut batch = Batch::default();
    let numbers = if commit { numbers_of(player, &branch.parts) } else { Vec::new() };
    batch.push(Op::Decide(Box::new(Decide { xid, commit, numbers, at_ms: turn })));
    player.submit(0, batch);
}

/// Two queues, one of each shard.
fn queues(player: &mut Player) -> [QueueId; 2] {
    [0, 1].map(|shard| {
        let mut batch = Batch::default();
        let queue = queue_of(player, &mut batch, shard, SHARDS);
        player.submit(shard, batch);
        queue
    })
}

/// Traffic without transactions, of which little stays.
fn traffic(player: &mut Player, queues: &[QueueId], bytes: usize) {
    for queue in queues {
        let mut batch = Batch::default();
        for _ in 0..2 {
            let volatile = player.below(8) == 0;
            enqueue(player, &mut batch, *queue, bytes, volatile);
        }
        let free = free(player, *queue);
        for sequence in free.iter().take(free.len().saturating_sub(3)) {
            batch.acknowledge(*queue, *sequence);
        }
        player.submit(queue.owner(SHARDS).0, batch);
    }
}

/// A transaction with work ahead, or a new one.
fn some_open(player: &mut Player) -> TxnId {
    let open: BTreeSet<TxnId> = player.state().transactions.ahead.keys().map(|(txn, _)| *txn).collect();
    match open.len() as u64 {
        n @ 1.. if player.below(3) > 0 => *open.iter().nth(player.below(n) as usize).expect("a number below the count"),
        _ => player.draw_txn(),
    }
}

/// Transactions in one record, over queues of both shards.
fn local_commits(player: &mut Player, turn: u64) {
    let both = queues(player);
    let txn = player.draw_txn();
    let step = Step { adds: player.below(4), bytes: 300, removes: player.below(3) };
    let some = if player.below(3) == 0 { &both[..1] } else { &both[..] };
    commit(player, txn, some, step, turn);
    if turn % 3 == 1 {
        traffic(player, &both, 800);
    }
}

/// Operations go ahead, much happens, and then they are committed, prepared, given up or forgotten.
fn work_ahead(player: &mut Player, turn: u64) {
    let both = queues(player);
    let txn = some_open(player);
    for queue in both {
        if player.below(3) > 0 {
            let removes = player.below(2);
            ahead(player, txn, queue, Step { adds: 2, bytes: 500, removes });
        }
    }
    traffic(player, &both, 700);
    match turn % 5 {
        0 | 2 => {
            let txn = some_open(player);
            let more = &both[..player.below(2) as usize];
            commit(player, txn, more, Step { adds: 1, bytes: 100, removes: 1 }, turn);
        }
        3 => {
            let txn = some_open(player);
            prepare(player, txn, &both[..1], Step { adds: 1, bytes: 100, removes: 1 }, turn);
        }
        4 if player.below(2) == 0 => {
            let txn = some_open(player);
            let mut batch = Batch::default();
            let commit = Commit { txn, parts: Vec::new(), token: None, xid: None, at_ms: turn };
            batch.push(Op::Commit(Box::new(commit)));
            player.submit(0, batch);
        }
        _ => {}
    }
    if turn % 7 == 6
        && let Some((xid, branch)) = in_doubt(player)
    {
        decide(player, xid, &branch, turn.is_multiple_of(2), turn);
    }
}

/// Transactions of which much goes ahead are rolled back, in each queue by its shard, at once or later; some begin again, or go on in
/// the other queue.
fn rolled_back(player: &mut Player, turn: u64) {
    let both = queues(player);
    let txn = some_open(player);
    for queue in both {
        let removes = player.below(2);
        ahead(player, txn, queue, Step { adds: 3, bytes: 900, removes });
    }
    traffic(player, &both, 300);
    let txn = some_open(player);
    for queue in both {
        if player.below(4) > 0 {
            drop_ahead(player, txn, queue);
        }
    }
    match turn % 4 {
        1 => ahead(player, txn, both[0], Step { adds: 1, bytes: 700, removes: 1 }),
        2 => commit(player, txn, &both[..1], Step { adds: 1, bytes: 100, removes: 1 }, turn),
        _ => {}
    }
}

fn drop_ahead(player: &mut Player, txn: TxnId, queue: QueueId) {
    let mut batch = Batch::default();
    batch.push(Op::TxDrop { txn, queue });
    player.submit(queue.owner(SHARDS).0, batch);
}

/// Branches stay in doubt for some turns while much happens.
fn branches(player: &mut Player, turn: u64) {
    let both = queues(player);
    traffic(player, &both, 900);
    if turn.is_multiple_of(2) {
        let txn = player.draw_txn();
        if turn.is_multiple_of(4) {
            ahead(player, txn, both[0], Step { adds: 2, bytes: 600, removes: 1 });
        }
        prepare(player, txn, &both, Step { adds: 1, bytes: 400, removes: 1 }, turn);
    }
    if turn % 3 == 2
        && let Some((xid, branch)) = in_doubt(player)
    {
        let commit = player.below(2) == 0;
        decide(player, xid, &branch, commit, turn);
    }
}

/// What is removed is marked before and after, held, and comes back.
fn held_and_back(player: &mut Player, turn: u64) {
    let both = queues(player);
    traffic(player, &both, 600);
    let queue = both[(turn % 2) as usize];
    let mut batch = Batch::default();
    let all = player.state().sequences(queue);
    if let Some(first) = all.first() {
        batch.push(Op::DispatchMark { queue, first: first / 4 * 4, count: 8 });
        let (last, at_ms) = (first + 6, u64::MAX / 2);
        batch.push(Op::ExactMark { queue, first: *first, last, at_ms });
    }
    player.submit(queue.owner(SHARDS).0, batch);
    if turn.is_multiple_of(3) {
        let txn = player.draw_txn();
        let adds = player.below(2);
        prepare(player, txn, &both, Step { adds, bytes: 50, removes: 2 }, turn);
    }
    if turn % 4 == 3
        && let Some((xid, branch)) = in_doubt(player)
    {
        let commit = player.below(4) == 0;
        decide(player, xid, &branch, commit, turn);
    }
}

/// Operators decide branches, whole or a part, and forget them.
fn operators_decide(player: &mut Player, turn: u64) {
    let both = queues(player);
    traffic(player, &both, 500);
    let txn = player.draw_txn();
    prepare(player, txn, &both, Step { adds: 1, bytes: 700, removes: 1 }, turn);
    if let Some((xid, branch)) = in_doubt(player) {
        let (commit, part) = (player.below(2) == 0, branch.parts.keys().next().copied());
        let (outcome, commit) = match (player.below(4), part) {
            (0 | 1, Some(queue)) => (HeuristicOutcome::PartRolledBack(queue), false),
            (2, _) => (HeuristicOutcome::Mixed, commit),
            _ if commit => (HeuristicOutcome::Committed, true),
            _ => (HeuristicOutcome::RolledBack, false),
        };
        let numbers = if commit { numbers_of(player, &branch.parts) } else { Vec::new() };
        let (who, reason, wall_ms) = ("anna".into(), format!("stuck in turn {turn}"), turn as i64);
        let mut batch = Batch::default();
        let heuristic = Heuristic { xid, outcome, commit, numbers, who, reason, wall_ms, at_ms: turn };
        batch.push(Op::Heuristic(Box::new(heuristic)));
        player.submit(0, batch);
    }
    let known = &player.state().transactions;
    let decided = known.branches.iter().find(|(_, branch)| branch.decided.is_some()).map(|(xid, _)| xid.clone());
    if turn % 3 == 2
        && let Some(xid) = decided.or_else(|| over(player))
    {
        let mut batch = Batch::default();
        batch.push(Op::Forget { xid });
        player.submit(0, batch);
    }
    if turn % 5 == 4
        && let Some((xid, branch)) = in_doubt(player)
    {
        decide(player, xid, &branch, true, turn);
    }
}

/// All that there is, with queues that come and go.
fn all_kinds(player: &mut Player, turn: u64) {
    match player.below(6) {
        5 => rolled_back(player, turn),
        0 => local_commits(player, turn),
        1 => work_ahead(player, turn),
        2 => branches(player, turn),
        3 => operators_decide(player, turn),
        _ => held_and_back(player, turn),
    }
    let shard = (turn % 2) as u16;
    let mut batch = Batch::default();
    let own: Vec<QueueId> = player.state().queues().filter(|id| id.owner(SHARDS).0 == shard).collect();
    match player.below(6) {
        0 => drop(create(player, &mut batch, shard, SHARDS)),
        1 if own.len() > 1 => batch.push(Op::QueueDelete { id: own[0] }),
        _ => {}
    }
    player.submit(shard, batch);
}

/// Large messages, ahead, in branches and in commits.
fn large_ones(player: &mut Player, turn: u64) {
    let both = queues(player);
    traffic(player, &both, 1200);
    let synced = player.take_synced();
    let txn = player.draw_txn();
    let mut batch = Batch::default();
    let ops: Vec<TxnOp> = synced
        .into_iter()
        .zip(0..)
        .map(|((id, length), index)| {
            let content = Stored::Large { id: LargeId(id), length };
            TxnOp::Enqueue { index, head: head(4, true), content }
        })
        .collect();
    if !ops.is_empty() {
        batch.push(Op::TxOps(Box::new(TxOps { txn, queue: both[0], record: 0, ops })));
        player.submit(both[0].owner(SHARDS).0, batch);
    }
    match turn % 4 {
        0 | 1 => prepare(player, txn, &both, Step { adds: 1, bytes: 10, removes: 2 }, turn),
        2 => commit(player, txn, &both, Step { adds: 1, bytes: 10, removes: 2 }, turn),
        _ => {}
    }
    if turn % 3 == 2
        && let Some((xid, branch)) = in_doubt(player)
    {
        let commit = player.below(2) == 0;
        decide(player, xid, &branch, commit, turn);
    }
    let (abort, length) = (player.below(6) == 0, [0, 10, 70_000][player.below(3) as usize]);
    player.large((turn % 2) as u16, length, abort);
}

/// Big transactions in blocks whose flushes overlap.
fn in_big_blocks(player: &mut Player, turn: u64) {
    let both = queues(player);
    for _ in 0..3 {
        let txn = player.draw_txn();
        for queue in both {
            ahead(player, txn, queue, Step { adds: 2, bytes: 20_000, removes: 1 });
        }
        let step = Step { adds: 1, bytes: 30_000, removes: 2 };
        if player.below(2) == 0 {
            commit(player, txn, &both, step, turn);
        } else {
            prepare(player, txn, &both, step, turn);
        }
    }
    while let Some((xid, branch)) = in_doubt(player).filter(|_| player.below(3) > 0) {
        let commit = player.below(2) == 0;
        decide(player, xid, &branch, commit, turn);
    }
}
