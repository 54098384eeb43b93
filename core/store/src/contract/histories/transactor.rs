//! Random transactions: what goes ahead of them, how they end or do not, branches in doubt and who decides them.
//!
//! A record may name what another shard has written only when that is durable, as in a broker: so this keeps account of what is.

use super::super::ids::duplicate;
use super::super::producers::producer;
use super::super::remembered::session;
use super::super::transactions::{Do, Part, ahead, figures, messages, unnamed, xid};
use super::super::{Build, Found, dead_letter, overlay};
use super::{Dice, QUEUES, State};
use crate::{Ahead, Commit, Figures, Heuristic, HeuristicOutcome, Numbers, Op, RecoveredWork, Redelivery};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use packhorse_model::{BrokerId, EntryKey, QueueId, Sequence, ShardId, Token, TxnId, Xid};

/// A transaction's part in a queue.
#[derive(Clone, Debug, Default)]
struct Share {
    ahead: Ahead,
    figures: Figures,
    /// How many indexes it has used, and which of them are of persistent messages.
    adds: u32,
    stored: Vec<u32>,
    /// What it removes, and whether a commit brings that back.
    removes: Vec<(Sequence, bool)>,
}

/// A transaction of which nothing is decided.
#[derive(Debug)]
struct Open {
    txn: TxnId,
    shares: BTreeMap<QueueId, Share>,
    /// Shards that have written something ahead which may not be durable.
    unsettled: BTreeSet<usize>,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Transactor {
    run: u64,
    drawn: u64,
    now_ms: u64,
    open: Vec<Open>,
    doubt: Vec<(Xid, BTreeMap<QueueId, Share>, bool)>,
    /// Decided by an operator, or remembered.
    over: Vec<Xid>,
    /// Names that are free again.
    free: Vec<Xid>,
    /// What went ahead of rollbacks, and its shard has not dropped.
    dropping: Vec<(TxnId, QueueId)>,
}

fn shard_of(queue: QueueId) -> usize {
    QUEUES.iter().position(|ids| ids.contains(&queue)).expect("the history knows its queues")
}

impl Transactor {
    /// Broker time, ms.
    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }
}

impl State {
    fn slot(&mut self, queue: QueueId) -> &mut Vec<Sequence> {
        let shard = shard_of(queue);
        let at = QUEUES[shard].iter().position(|id| *id == queue).expect("it is one of these");
        &mut self.alive[shard][at]
    }

    fn draw(&mut self, queue: QueueId, count: u32) -> Sequence {
        let shard = shard_of(queue);
        let at = QUEUES[shard].iter().position(|id| *id == queue).expect("it is one of these");
        self.next[shard][at] += u64::from(count);
        self.next[shard][at] - u64::from(count)
    }

    /// An entry is there by a record of this shard.
    fn place(&mut self, shard: usize, queue: QueueId, sequence: Sequence) {
        let key = EntryKey { queue, sequence };
        if shard_of(queue) == shard {
            self.slot(queue).push(sequence);
            self.fresh.insert(key);
        } else {
            self.later.push(key);
        }
    }

    /// Everything is durable.
    pub(super) fn settled(&mut self) {
        self.fresh.clear();
        for key in core::mem::take(&mut self.later) {
            self.slot(key.queue).push(key.sequence);
        }
        self.transactor.open.iter_mut().for_each(|open| open.unsettled.clear());
    }
}

/// What a commit makes of an entry: perhaps with a new overlay, perhaps on its way to the dead-letter queue.
fn redelivery(dice: &mut Dice, deliveries: u32) -> Arc<Redelivery> {
    let overlay = match dice.below(3) {
        0 => None,
        1 => Some(overlay("returned")),
        _ => {
            let mut letter = dead_letter(u64::from(deliveries));
            letter.dead_letter.iter_mut().for_each(|letter| letter.leaving = true);
            Some(letter)
        }
    };
    Arc::new(Redelivery { deliveries: deliveries + 7, attempts: deliveries, overlay })
}

/// Some work of a transaction in a queue, for a record of this shard.
fn stage(dice: &mut Dice, state: &mut State, shard: usize, queue: QueueId, share: &mut Share) -> Vec<Do> {
    let mut work = Vec::new();
    for _ in 0..dice.below(4) {
        if dice.below(2) == 0 {
            let body = vec![dice.below(256) as u8; [0, 10, 900][dice.below(3) as usize]];
            let add = Do::Add(share.adds, [0, 4, 9][dice.below(3) as usize], body);
            share.adds += 1;
            if dice.below(6) == 0 {
                share.figures.adds += 1;
            } else {
                share.stored.push(share.adds - 1);
                work.push(add);
                if dice.below(3) == 0 {
                    work.push(Do::Number(producer(dice.below(3)), dice.below(24), dice.below(8)));
                } else if dice.below(3) == 0 {
                    work.push(Do::Id(duplicate(dice.below(40))));
                }
            }
        } else {
            let own = shard_of(queue) == shard;
            let fresh = state.fresh.clone();
            let alive = state.slot(queue);
            let may = |sequence: &Sequence| own || !fresh.contains(&EntryKey { queue, sequence: *sequence });
            let candidates: Vec<usize> = (0..alive.len()).filter(|at| may(&alive[*at])).collect();
            if !candidates.is_empty() {
                let sequence = alive.remove(candidates[dice.below(candidates.len() as u64) as usize]);
                let deliveries = 1 + dice.below(5) as u32;
                let returns = dice.below(3) == 0;
                share.removes.push((sequence, returns));
                work.push(match returns {
                    false => Do::Remove(sequence, deliveries, deliveries / 2),
                    true => Do::Return(sequence, deliveries, deliveries / 2, redelivery(dice, deliveries)),
                });
            }
        }
    }
    let Figures { adds, removes, bytes } = figures(&work);
    let f = &mut share.figures;
    (f.adds, f.removes, f.bytes) = (f.adds + adds, f.removes + removes, f.bytes + bytes);
    work
}

impl Transactor {
    /// A run begins, with what was found and nothing else.
    pub(super) fn new(found: &Found, run: u64, now_ms: u64, before: &Transactor) -> Transactor {
        let mut this =
            Transactor { run, drawn: before.drawn, now_ms: now_ms.max(before.now_ms), ..Transactor::default() };
        for (xid, branch) in &found.branches {
            if branch.decided.is_some() {
                this.over.push(xid.clone());
                continue;
            }
            let mut shares: BTreeMap<QueueId, Share> = BTreeMap::new();
            for (queue, _) in &branch.parts {
                let share = shares.entry(*queue).or_default();
                for work in &found.parts[&(branch.txn, *queue)] {
                    match work {
                        RecoveredWork::Enqueue { index, .. } => {
                            share.stored.push(*index);
                            share.adds = index + 1;
                        }
                        RecoveredWork::Acknowledge { sequence, redelivery, .. } => {
                            share.removes.push((*sequence, redelivery.is_some()));
                        }
                        RecoveredWork::Number { .. } | RecoveredWork::DuplicateId(_) => {}
                    }
                }
            }
            this.doubt.push((xid.clone(), shares, !branch.lost.is_empty()));
        }
        this.over.extend(found.completed.iter().map(|(xid, ..)| xid.clone()));
        this
    }

    fn number(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn name(&mut self) -> Xid {
        self.free.pop().unwrap_or_else(|| xid(self.number()))
    }

    fn now(&mut self, dice: &mut Dice) -> u64 {
        self.now_ms += if dice.below(20) == 0 { 200_000 } else { dice.below(3) };
        self.now_ms
    }
}

/// What transactions do in a batch of this shard. Branches are at home in shard 0.
pub(super) fn transact(dice: &mut Dice, state: &mut State, shard: usize, mut build: Build) -> Build {
    if dice.below(3) > 0 {
        let own = state.transactor.dropping.extract_if(.., |(_, queue)| shard_of(*queue) == shard);
        build = own.fold(build, |build, (txn, queue)| build.drop_ahead(txn, queue));
    }
    match dice.below(if shard == 0 { 9 } else { 5 }) {
        0 => write_ahead(dice, state, shard, build),
        1..=3 => write_record(dice, state, shard, build),
        4 => roll_back(dice, state, shard, build),
        5 | 6 => decide(dice, state, build),
        7 => operate(dice, state, build),
        _ => forget(dice, state, build),
    }
}

/// An open transaction that this shard may name, or a new one.
fn take_open(dice: &mut Dice, state: &mut State, shard: usize) -> Open {
    let open = &mut state.transactor.open;
    let may: Vec<usize> = (0..open.len()).filter(|at| open[*at].unsettled.iter().all(|s| *s == shard)).collect();
    match may.len() as u64 {
        n if n > 0 && dice.below(4) > 0 => open.remove(may[dice.below(n) as usize]),
        _ => {
            let number = state.transactor.number();
            let txn = TxnId { run: state.transactor.run, number, home: ShardId(shard as u16) };
            Open { txn, shares: BTreeMap::new(), unsettled: BTreeSet::new() }
        }
    }
}

fn write_ahead(dice: &mut Dice, state: &mut State, shard: usize, mut build: Build) -> Build {
    let mut open = take_open(dice, state, shard);
    for _ in 0..=dice.below(2) {
        let queue = QUEUES[shard][dice.below(2) as usize];
        let share = open.shares.entry(queue).or_default();
        let work = stage(dice, state, shard, queue, share);
        build = build.ahead(open.txn, queue, share.ahead.records, &work);
        share.ahead.records += 1;
        share.ahead.ops += messages(&work);
        share.ahead.bytes += ahead(&work).bytes;
        open.unsettled.insert(shard);
    }
    state.transactor.open.push(open);
    build
}

/// A commit, or in shard 0 a prepare.
fn write_record(dice: &mut Dice, state: &mut State, shard: usize, build: Build) -> Build {
    let Open { txn, mut shares, .. } = take_open(dice, state, shard);
    let mut parts: BTreeMap<QueueId, Vec<Do>> = shares.keys().map(|queue| (*queue, Vec::new())).collect();
    for queue in QUEUES.iter().flat_map(|ids| &ids[..2]) {
        if dice.below(2) == 0 {
            let share = shares.entry(*queue).or_default();
            parts.insert(*queue, stage(dice, state, shard, *queue, share));
        }
    }
    let prepares = shard == 0 && dice.below(2) == 0;
    let numbers = if prepares { BTreeMap::new() } else { draw(state, &shares) };
    let parts: Vec<(QueueId, Part)> = parts
        .into_iter()
        .map(|(queue, work)| {
            let Share { ahead, figures, .. } = shares[&queue];
            (queue, Part { ahead, work, numbers: numbers.get(&queue).copied(), figures })
        })
        .collect();
    let at_ms = state.transactor.now(dice);
    if prepares {
        let xid = state.transactor.name();
        state.transactor.doubt.push((xid.clone(), shares, false));
        return build.prepare(txn, xid, &parts, at_ms);
    }
    happen(state, shard, &shares, &numbers);
    let mut commit = unnamed(at_ms);
    match dice.below(3) {
        0 if shard == 0 => {
            let xid = state.transactor.name();
            state.transactor.over.push(xid.clone());
            commit.xid = Some(xid);
        }
        1 if shard == 0 => {
            // Few sessions with many numbers, and many sessions.
            let many = dice.below(2) == 0;
            let session = session(dice.below(if many { 60 } else { 2 }));
            let counter = (state.transactor.drawn + 3).saturating_sub(dice.below(9));
            commit.token = Some(Token { broker: BrokerId([3; 16]), session, counter });
        }
        _ => {}
    }
    build.commit(txn, &parts, Commit { txn, ..commit })
}

/// Numbers for what is added.
fn draw(state: &mut State, shares: &BTreeMap<QueueId, Share>) -> BTreeMap<QueueId, Numbers> {
    let with_adds = shares.iter().filter(|(_, share)| share.adds > 0);
    with_adds.map(|(queue, s)| (*queue, Numbers { first: state.draw(*queue, s.adds), count: s.adds })).collect()
}

fn happen(state: &mut State, shard: usize, shares: &BTreeMap<QueueId, Share>, numbers: &BTreeMap<QueueId, Numbers>) {
    for (queue, share) in shares {
        for index in &share.stored {
            state.place(shard, *queue, numbers[queue].first + u64::from(*index));
        }
        for (sequence, _) in share.removes.iter().filter(|(_, returns)| *returns) {
            state.place(shard, *queue, *sequence);
        }
    }
}

fn undo(state: &mut State, shard: usize, shares: &BTreeMap<QueueId, Share>) {
    for (queue, share) in shares {
        for (sequence, _) in &share.removes {
            state.place(shard, *queue, *sequence);
        }
    }
}

/// What was not prepared is rolled back: each shard drops what went ahead in its queues, now or later. Then it may begin again.
fn roll_back(dice: &mut Dice, state: &mut State, shard: usize, mut build: Build) -> Build {
    let count = state.transactor.open.len() as u64;
    if count == 0 {
        return build;
    }
    let mut open = state.transactor.open.remove(dice.below(count) as usize);
    let mut later = false;
    for (queue, share) in core::mem::take(&mut open.shares) {
        state.slot(queue).extend(share.removes.iter().map(|(sequence, _)| sequence));
        if shard_of(queue) == shard {
            build = build.drop_ahead(open.txn, queue);
        } else if share.ahead.records > 0 {
            later = true;
            state.transactor.dropping.push((open.txn, queue));
        }
    }
    if !later && dice.below(2) == 0 {
        open.unsettled.insert(shard);
        state.transactor.open.push(open);
    }
    build
}

fn decide(dice: &mut Dice, state: &mut State, build: Build) -> Build {
    let may: Vec<usize> = (0..state.transactor.doubt.len()).filter(|at| !state.transactor.doubt[*at].2).collect();
    if may.is_empty() {
        return build;
    }
    let (xid, shares, _) = state.transactor.doubt.remove(may[dice.below(may.len() as u64) as usize]);
    let at_ms = state.transactor.now(dice);
    let commit = dice.below(2) == 0;
    let numbers = end(state, &shares, commit);
    state.transactor.over.push(xid.clone());
    build.decide(xid, commit, &numbers, at_ms)
}

/// All parts of a branch end, by a record of shard 0.
fn end(state: &mut State, shares: &BTreeMap<QueueId, Share>, commit: bool) -> Vec<(QueueId, Numbers)> {
    if !commit {
        undo(state, 0, shares);
        return Vec::new();
    }
    let numbers = draw(state, shares);
    happen(state, 0, shares, &numbers);
    numbers.into_iter().collect()
}

/// An operator decides, a part or the whole.
fn operate(dice: &mut Dice, state: &mut State, build: Build) -> Build {
    let count = state.transactor.doubt.len() as u64;
    if count == 0 {
        return build;
    }
    let at = dice.below(count) as usize;
    let at_ms = state.transactor.now(dice);
    let (who, reason, wall_ms) = (String::from("op"), String::new(), at_ms as i64);
    let (xid, mut shares, lost) = state.transactor.doubt.remove(at);
    let queues: Vec<QueueId> = shares.keys().copied().collect();
    if !queues.is_empty() && dice.below(2) == 0 {
        let queue = queues[dice.below(queues.len() as u64) as usize];
        let gone = shares.remove(&queue).unwrap_or_default();
        undo(state, 0, &BTreeMap::from([(queue, gone)]));
        state.transactor.doubt.push((xid.clone(), shares, true));
        let outcome = HeuristicOutcome::PartRolledBack(queue);
        return build.heuristic(&Heuristic {
            xid,
            outcome,
            commit: false,
            numbers: Vec::new(),
            who,
            reason,
            wall_ms,
            at_ms,
        });
    }
    let commit = dice.below(2) == 0;
    let numbers = end(state, &shares, commit);
    let outcome = match (lost, commit) {
        (true, _) => HeuristicOutcome::Mixed,
        (false, true) => HeuristicOutcome::Committed,
        (false, false) => HeuristicOutcome::RolledBack,
    };
    state.transactor.over.push(xid.clone());
    build.heuristic(&Heuristic { xid, outcome, commit, numbers, who, reason, wall_ms, at_ms })
}

fn forget(dice: &mut Dice, state: &mut State, build: Build) -> Build {
    let count = state.transactor.over.len() as u64;
    if count == 0 {
        return build;
    }
    let xid = state.transactor.over.remove(dice.below(count) as usize);
    state.transactor.free.push(xid.clone());
    build.op(Op::Forget { xid })
}
