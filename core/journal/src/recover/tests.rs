//! Starts over logs of transactions of which something is missing or false: damage, told with its place.

use super::*;
use crate::sim::{CrashMode, Sim, SimDisk};
use packhorse_model::{ContentFormat, Head, HeadFlags, QueueId, QueueName, QueueSettings, ShardId, TxnId, Xid};
use packhorse_store::{
    Ahead, Batch, Commit, Decide, Figures, Numbers, Op, Prepare, Store, Stored, TxOps, TxnOp, TxnPart,
};

const QUEUE: QueueId = QueueId(1);
const TXN: TxnId = TxnId { run: 1, number: 5, home: ShardId(0) };

fn start(disk: SimDisk) -> Result<Sim, JournalError> {
    let options = Options { segment_bytes: 64 * 1024, ..Options::new(1, 3) };
    Sim::open(disk, &options, Now::default()).map(|(sim, _)| sim).map_err(|(error, _)| error)
}

fn xid(n: u8) -> Xid {
    Xid::new(1, &[n; 5], &[]).unwrap()
}

/// A log whose last block is a batch of these operations, behind two that went ahead.
fn log(ops: impl FnOnce(&mut Batch)) -> SimDisk {
    let sim = start(SimDisk::new(1)).unwrap();
    let mut handle = sim.handle(ShardId(0));
    let mut batch = Batch::default();
    let (name, settings) = (QueueName::new("orders").unwrap(), QueueSettings::default());
    batch.push(Op::QueueCreate { id: QUEUE, name, settings, reserved: RESERVE });
    let head = Head {
        arrived_ms: 1,
        ttl_ms: 0,
        message_format: 0,
        priority: 4,
        flags: HeadFlags::PERSISTENT,
        format: ContentFormat::Amqp10,
    };
    let add =
        |batch: &mut Batch, index| TxnOp::Enqueue { index, head, content: Stored::Body(batch.copy_body(b"body")) };
    let ops_ahead = vec![add(&mut batch, 0), add(&mut batch, 1)];
    batch.push(Op::TxOps(Box::new(TxOps { txn: TXN, queue: QUEUE, record: 0, ops: ops_ahead })));
    handle.submit(batch);
    sim.settle();
    let mut batch = Batch::default();
    ops(&mut batch);
    handle.submit(batch);
    sim.settle();
    sim.disk().crash(CrashMode::Kill, 0)
}

fn ahead() -> TxnPart {
    TxnPart { ahead: Ahead { records: 1, ops: 2, bytes: 8 }, ..TxnPart::default() }
}

fn commit() -> Op {
    let numbers = Some(Numbers { first: 7, count: 2 });
    let parts = vec![(QUEUE, TxnPart { numbers, ..ahead() })];
    Op::Commit(Box::new(Commit { txn: TXN, parts, token: None, xid: None, at_ms: 1 }))
}

fn prepare() -> Op {
    let parts = vec![(QUEUE, ahead(), Figures { adds: 2, removes: 0, bytes: 8 })];
    let (xid, client) = (xid(1), "client".into());
    Op::Prepare(Box::new(Prepare { txn: TXN, xid, client, parts, wall_ms: 0, at_ms: 1 }))
}

/// Changes the log's last block where its metadata holds `from`, as if it had been written so, and starts.
fn forged(mut disk: SimDisk, from: &[u8], to: &[u8]) -> (usize, JournalError) {
    let names = disk.names().filter(|name| matches!(name, FileName::Segment(_)));
    let used = names.filter(|name| disk.content(*name).is_some_and(|bytes| bytes[UNIT as usize] != 0));
    let name = used.max().unwrap();
    let bytes = disk.content(name).unwrap().to_vec();
    let HeaderState::Valid(segment) = SegmentHeader::decode(&bytes) else { panic!("a segment") };
    let (mut at, mut last) = (UNIT as usize, None);
    while let Some((header, _)) = BlockHeader::decode(&bytes[at..], segment.salt) {
        last = Some((at, header));
        at += header.padded() as usize;
    }
    let (at, header) = last.unwrap();
    let mut block = bytes[at..at + HEADER + header.meta as usize].to_vec();
    let places: Vec<usize> = (HEADER..=block.len() - from.len()).filter(|n| block[*n..].starts_with(from)).collect();
    assert_eq!(places.len(), 1, "the bytes stand there once");
    block[places[0]..places[0] + to.len()].copy_from_slice(to);
    block::finish(&mut block, &header, segment.salt);
    disk.damage(name, at, |bytes| bytes[..block.len()].copy_from_slice(&block));
    match start(disk) {
        Ok(_) => panic!("a log with a hole is started"),
        Err(error) => (at, error),
    }
}

/// A count u32 and a count u64.
fn counts(records: u32, ops: u64) -> Vec<u8> {
    [&records.to_le_bytes()[..], &ops.to_le_bytes()].concat()
}

#[test]
fn a_decision_whose_operations_are_missing_is_damage_at_its_place() {
    let from = counts(1, 2);
    for (op, what, to) in [
        (commit(), "commit", counts(2, 2)),
        (commit(), "commit", counts(1, 3)),
        (commit(), "commit", counts(0, 0)),
        (prepare(), "prepare", counts(2, 4)),
    ] {
        let (at, error) = forged(log(|batch| batch.push(op)), &from, &to);
        let JournalError::Damaged { segment, offset, what: said, queues } = &error else { panic!("{error}") };
        let (records, ops) = (u32::from_le_bytes(to[..4].try_into().unwrap()), to[4]);
        let expected = format!(
            "block 3: the {what} of transaction {TXN} says that {records} records with {ops} operations went ahead of \
             it in queue {QUEUE}; there are 1 with 2"
        );
        assert_eq!((said, *offset, &segment[..]), (&expected, at as u64, "journal/00000001.seg"));
        assert_eq!(queues[..], [QueueName::new("orders").unwrap()]);
        assert_eq!(error.exit_code(), 65);
    }
}

#[test]
fn a_commit_without_numbers_for_what_it_adds_is_damage() {
    let numbers = [&7u64.to_le_bytes()[..], &2u32.to_le_bytes()].concat();
    let fewer = [&7u64.to_le_bytes()[..], &1u32.to_le_bytes()].concat();
    let (_, error) = forged(log(|batch| batch.push(commit())), &numbers, &fewer);
    assert!(
        error.to_string().contains("block 3: a commit has no number for message 1 that it adds to queue 1"),
        "{error}"
    );
}

#[test]
fn a_decision_of_a_branch_that_is_not_there_is_damage() {
    let numbers = vec![(QUEUE, Numbers { first: 7, count: 2 })];
    let decide = Decide { xid: xid(1), commit: true, numbers, at_ms: 2 };
    // The log goes on in another segment.
    let sim = start(log(|batch| batch.push(prepare()))).unwrap();
    let mut batch = Batch::default();
    batch.push(Op::Decide(Box::new(decide)));
    sim.handle(ShardId(0)).submit(batch);
    sim.settle();
    let (_, error) = forged(sim.disk().crash(CrashMode::Kill, 0), &[1; 5], &[2; 5]);
    let what = "a decision names branch 1:0202020202:, and no branch of this name is in doubt";
    assert!(matches!(&error, JournalError::Damaged { what: said, .. } if said.ends_with(what)), "{error}");
}

#[test]
#[should_panic(expected = "went ahead of it in queue")]
fn what_would_be_damage_is_not_written() {
    let numbers = Some(Numbers { first: 7, count: 2 });
    let ahead = Ahead { records: 2, ops: 3, bytes: 8 };
    let parts = vec![(QUEUE, TxnPart { numbers, ahead, ..TxnPart::default() })];
    let commit = Commit { txn: TXN, parts, token: None, xid: None, at_ms: 1 };
    log(|batch| batch.push(Op::Commit(Box::new(commit))));
}
