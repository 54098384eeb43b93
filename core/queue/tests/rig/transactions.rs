//! Transactions in a rig, played by hand: pieces of bodies, records, and what a start recovers.

use super::{Got, Q, Rig};
use bytes::Bytes;
use packhorse_model::{
    Content, ContentFormat, Head, HeadFlags, Identity, LargeId, Outcome, Purpose, QueueId, Resident, Resolution,
    ShardId, TxnId, Xid,
};
use packhorse_queue::{Answer, Gathered, IdBounds, Input, Known};
use packhorse_store::{Body, Commit, Decide, Figures, Numbers, Op, Prepare, Recovered, Stored, TxOps, TxnOp, TxnPart};
use std::collections::BTreeMap;

/// A transaction, by number.
pub(crate) fn txn(number: u64) -> TxnId {
    TxnId { run: 1, number, home: ShardId(0) }
}

fn xid(txn: TxnId) -> Xid {
    Xid::new(1, &txn.number.to_be_bytes(), &[]).unwrap()
}

/// A transaction's part in Q, as its home and the shard of the queue know it.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pieces: BTreeMap<u64, Bytes>,
    next_piece: u64,
    volatile_pieces: Vec<u64>,
    pub(crate) figures: Figures,
    pub(crate) ahead: Vec<u64>,
    pub(crate) gathered: Option<Gathered>,
    prepared: bool,
}

impl Side {
    fn operations(&self) -> u64 {
        self.figures.adds + self.figures.removes
    }
}

impl Rig {
    pub(crate) fn side(&mut self, id: TxnId) -> &mut Side {
        self.sides.entry(id).or_default()
    }

    fn head(&self, priority: u8, persistent: bool) -> Head {
        let flags = if persistent { HeadFlags::PERSISTENT } else { HeadFlags::default() };
        let (ttl_ms, message_format, format) = (60_000, 0, ContentFormat::Amqp10);
        Head { arrived_ms: self.now_us / 1_000, ttl_ms, message_format, priority, flags, format }
    }

    /// A transaction sends these bytes.
    pub(crate) fn stage(&mut self, id: TxnId, bytes: &[u8], priority: u8, persistent: bool) {
        self.stage_as(id, bytes, priority, persistent, None);
    }

    fn stage_as(&mut self, id: TxnId, bytes: &[u8], priority: u8, persistent: bool, identity: Option<&Identity>) {
        let head = self.head(priority, persistent);
        let side = self.side(id);
        let piece = side.next_piece;
        side.next_piece += 1;
        side.figures.adds += 1;
        side.figures.bytes += bytes.len() as u64;
        side.pieces.insert(piece, Bytes::copy_from_slice(bytes));
        if !persistent {
            side.volatile_pieces.push(piece);
        }
        let content = Content::Body(Resident { buffer: piece, offset: 0, length: bytes.len() as u32 });
        self.handle(Q, Input::StageEnqueue { txn: id, head, content, identity });
        self.run_effects(Q);
    }

    /// So many duplicate ids are known from now on.
    pub(crate) fn remember_ids(&mut self, bounds: IdBounds) {
        self.queues.get_mut(&Q).unwrap().remember_ids(bounds);
    }

    /// What is known of a message.
    pub(crate) fn look(&mut self, identity: Identity, txn: Option<TxnId>) -> Known {
        match self.handle(Q, Input::Look { identity, txn }) {
            Answer::Known(known) => known,
            other => panic!("{other:?}"),
        }
    }

    /// A producer sends a number under an identity.
    pub(crate) fn send_as(&mut self, identity: Identity, number: u64, persistent: bool) -> Known {
        let known = self.look(identity, None);
        if known == Known::New {
            self.send(Q, number, 4, persistent);
            self.handle(Q, Input::Identify { identity, persistent });
        }
        known
    }

    /// The same in a transaction, which is not to be committed if it is not known what to do.
    pub(crate) fn stage_identified(&mut self, id: TxnId, identity: Identity, number: u64, persistent: bool) -> Known {
        let known = self.look(identity, Some(id));
        let text = number.to_string();
        match known {
            Known::New => {
                self.stage_as(id, text.as_bytes(), 4, persistent, Some(&identity));
                return known;
            }
            Known::Stored => {
                let bytes = text.len() as u64;
                self.handle(Q, Input::StageDuplicate { txn: id, identity, bytes });
            }
            Known::Lost | Known::Undecided(_) => drop(self.handle(Q, Input::StageRefused { txn: id })),
        }
        self.side(id).figures.adds += 1;
        self.run_effects(Q);
        known
    }

    /// A transaction sends a number.
    pub(crate) fn stage_number(&mut self, id: TxnId, number: u64) {
        self.stage(id, number.to_string().as_bytes(), 4, true);
    }

    /// A transaction sends a large message, whose file is safe.
    pub(crate) fn stage_large(&mut self, id: TxnId, length: usize, persistent: bool) -> LargeId {
        let file = self.large_file(length);
        let head = self.head(4, persistent);
        self.side(id).figures.adds += 1;
        let content = Content::Large { id: file, length: length as u64 };
        self.handle(Q, Input::StageEnqueue { txn: id, head, content, identity: None });
        self.run_effects(Q);
        file
    }

    /// A transaction acknowledges a delivery.
    pub(crate) fn remove(&mut self, id: TxnId, got: &Got) -> bool {
        self.settle_in(id, got, Outcome::Acknowledge)
    }

    /// A delivery ends in a transaction.
    pub(crate) fn settle_in(&mut self, id: TxnId, got: &Got, outcome: Outcome) -> bool {
        self.side(id).figures.removes += 1;
        let done = self.handle(Q, Input::StageSettle { txn: id, key: got.key, outcome }).settled();
        self.run_effects(Q);
        done
    }

    /// The home asks for the part; true: the answer is there.
    pub(crate) fn gather(&mut self, id: TxnId, purpose: Purpose) -> bool {
        let operations = self.side(id).operations();
        self.handle(Q, Input::Gather { txn: id, operations, purpose });
        self.run_effects(Q);
        self.side(id).gathered.is_some()
    }

    /// The same, and what the answer waits for becomes durable.
    pub(crate) fn gathered(&mut self, id: TxnId, purpose: Purpose) -> Gathered {
        if self.side(id).gathered.is_none() && !self.gather(id, purpose) {
            self.flush();
        }
        self.side(id).gathered.take().expect("a part is handed over when all is durable")
    }

    /// The answer, which waits for nothing.
    pub(crate) fn gathered_at_once(&mut self, id: TxnId, purpose: Purpose) -> Gathered {
        assert!(self.gather(id, purpose));
        self.side(id).gathered.take().expect("just asserted")
    }

    /// Operations for a batch, with the bodies that the side keeps.
    fn hand_over(&mut self, id: TxnId, ops: Vec<TxnOp>) -> Vec<TxnOp> {
        let Rig { sides, batch, .. } = self;
        let pieces = &sides[&id].pieces;
        let over = |op: TxnOp| match op {
            TxnOp::Enqueue { index, head, content: Stored::Body(Body { piece, offset, length }) } => {
                let piece = batch.share_piece(pieces[&u64::from(piece)].clone());
                TxnOp::Enqueue { index, head, content: Stored::Body(Body { piece, offset, length }) }
            }
            op => op,
        };
        ops.into_iter().map(over).collect()
    }

    /// What a queue sends ahead.
    pub(super) fn go_ahead(&mut self, mut ops: TxOps) {
        let id = ops.txn;
        let named: Vec<u64> = ops
            .ops
            .iter()
            .filter_map(|op| match op {
                TxnOp::Enqueue { content: Stored::Body(body), .. } => Some(u64::from(body.piece)),
                _ => None,
            })
            .collect();
        self.side(id).ahead.push(ops.ops.len() as u64);
        ops.ops = self.hand_over(id, ops.ops);
        self.side(id).pieces.retain(|piece, _| !named.contains(piece));
        self.batch.push(Op::TxOps(Box::new(ops)));
    }

    /// Of which transactions the running turn drops what went ahead.
    pub(crate) fn dropped(&self) -> Vec<TxnId> {
        let each = self.batch.ops().iter().filter_map(|op| match op {
            Op::TxDrop { txn, queue } => {
                assert_eq!(*queue, Q);
                Some(*txn)
            }
            _ => None,
        });
        each.collect()
    }

    /// What the shard of the queue keeps of a transaction goes.
    pub(crate) fn forget_side(&mut self, id: TxnId) {
        self.sides.remove(&id);
    }

    /// The queue is deleted.
    pub(crate) fn delete_queue(&mut self) {
        self.handle(Q, Input::Delete);
        self.run_effects(Q);
        self.queues.remove(&Q);
        self.end_turn();
    }

    fn record(&mut self, gathered: Gathered) -> TxnPart {
        let ops = self.hand_over(gathered.txn, gathered.part.ops.clone());
        TxnPart { ops, ..gathered.part }
    }

    /// Tells the queue, with the buffers of the pieces that go into the ring.
    pub(crate) fn apply(&mut self, id: TxnId, resolution: Resolution) {
        let side = self.sides.entry(id).or_default();
        let operations = side.operations();
        let keep = |piece: &u64| resolution == Resolution::Prepared && side.volatile_pieces.contains(piece);
        let mut pieces = std::mem::take(&mut side.pieces);
        let left = pieces.extract_if(.., |piece, _| !keep(piece)).map(|(_, bytes)| bytes).collect::<Vec<_>>();
        side.pieces = pieces;
        let mut buffers = Vec::new();
        for bytes in left.into_iter().filter(|_| resolution != Resolution::Rollback) {
            self.ring.insert(self.next_buffer, bytes);
            buffers.push(self.next_buffer);
            self.next_buffer += 1;
        }
        self.handle(Q, Input::Apply { txn: id, operations, resolution, buffers: &buffers });
        if resolution == Resolution::Prepared {
            self.side(id).prepared = true;
        } else {
            self.sides.remove(&id);
        }
    }

    /// A local transaction, or a branch in one phase, is committed; the record is written and not durable.
    pub(crate) fn write_commit(&mut self, id: TxnId) {
        let gathered = self.gathered(id, Purpose::Commit);
        let part = self.record(gathered);
        let (parts, at_ms) = (vec![(Q, part)], self.broker_ms());
        self.batch.push(Op::Commit(Box::new(Commit { txn: id, parts, token: None, xid: None, at_ms })));
        self.end_turn();
    }

    pub(crate) fn commit(&mut self, id: TxnId) {
        self.write_commit(id);
        self.flush();
        self.apply(id, Resolution::Commit);
        self.turns();
    }

    pub(crate) fn prepare(&mut self, id: TxnId) {
        let gathered = self.gathered(id, Purpose::Prepare);
        let part = self.record(gathered);
        let figures = self.side(id).figures;
        let figures = Figures { adds: figures.adds - part.duplicates.adds, ..figures };
        let at_ms = self.broker_ms();
        self.batch.push(Op::Prepare(Box::new(Prepare {
            txn: id,
            xid: xid(id),
            client: "client".into(),
            parts: vec![(Q, part, figures)],
            wall_ms: 0,
            at_ms,
        })));
        self.end_turn();
        self.flush();
        self.apply(id, Resolution::Prepared);
    }

    /// What is prepared is decided.
    pub(crate) fn decide(&mut self, id: TxnId, commit: bool) {
        self.write_decision(id, commit);
        self.flush();
        self.apply(id, if commit { Resolution::Commit } else { Resolution::Rollback });
        self.turns();
    }

    /// The record of a decision is written and not durable.
    pub(crate) fn write_decision(&mut self, id: TxnId, commit: bool) {
        let numbers: Vec<(QueueId, Numbers)> = if commit {
            self.gathered(id, Purpose::Decide).part.numbers.map(|numbers| (Q, numbers)).into_iter().collect()
        } else {
            Vec::new()
        };
        let at_ms = self.broker_ms();
        self.batch.push(Op::Decide(Box::new(Decide { xid: xid(id), commit, numbers, at_ms })));
        self.end_turn();
    }

    /// What is not prepared is rolled back.
    pub(crate) fn roll_back(&mut self, id: TxnId) {
        self.apply(id, Resolution::Rollback);
        self.turns();
    }

    pub(super) fn recovered_of_transactions(&mut self, thing: Recovered) {
        match thing {
            Recovered::BranchOp(op) => drop(self.handle(op.queue, Input::RecoveredOp(op))),
            Recovered::Branch(branch) if branch.decided.is_none() => {
                let side = self.side(branch.txn);
                side.prepared = true;
                side.figures = branch.parts.first().map(|(_, figures)| *figures).unwrap_or_default();
            }
            _ => {}
        }
    }
}
