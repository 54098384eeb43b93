//! Records of transactions come back as they were, and what is none is refused.

use super::*;
use crate::record::tests::read_damaged;
use crate::record::{Encoded, Record, Records};
use packhorse_model::{ContentFormat, DeadLetter, HeadFlags, Overlay, ProducerId, QueueName, Reason};
use packhorse_store::{Batch, Commit, Prepare, TxOps};

const Q: QueueId = QueueId(0x0102_0304_0506_0708);

fn sample_head() -> Head {
    Head {
        arrived_ms: u64::MAX - 1,
        ttl_ms: 2,
        message_format: 3,
        priority: 255,
        flags: HeadFlags::PERSISTENT,
        format: ContentFormat::Amqp10,
    }
}

fn txn() -> TxnId {
    TxnId { run: 1 << 40, number: u64::MAX, home: ShardId(65_535) }
}

fn xid(global: usize, qualifier: usize) -> Xid {
    Xid::new(-7, &vec![3; global], &vec![4; qualifier]).unwrap()
}

fn part(ops: Vec<TxnOp>) -> TxnPart {
    TxnPart { ops, ..TxnPart::default() }
}

/// One of each operation, with all that may be in it and with nothing.
fn all() -> Batch {
    let mut batch = Batch::default();
    let head = sample_head();
    let add = |batch: &mut Batch, index: u32, body: &[u8]| {
        let content = Stored::Body(if index.is_multiple_of(2) {
            batch.copy_body(body)
        } else {
            batch.share_body(Bytes::copy_from_slice(body))
        });
        TxnOp::Enqueue { index, head, content }
    };
    let remove = TxnOp::Acknowledge { sequence: u64::MAX, deliveries: 1, attempts: u32::MAX, redelivery: None };
    let letter = DeadLetter {
        reason: Reason::Rejected,
        detail: "größer".into(),
        address: QueueName::new("orders").unwrap(),
        sequence: 5,
        deliveries: 4,
        leaving: true,
    };
    let overlay = Overlay { annotations: Bytes::from_static(b"noted"), dead_letter: Some(Box::new(letter)) };
    let returns = [None, Some(Box::new(overlay))].map(|overlay| TxnOp::Acknowledge {
        sequence: 5,
        deliveries: 4,
        attempts: 3,
        redelivery: Some(Arc::new(Redelivery { deliveries: 2, attempts: u32::MAX, overlay })),
    });
    let large = TxnOp::Enqueue { index: 9, head, content: Stored::Large { id: LargeId(77), length: 1 << 50 } };
    let number = TxnOp::Number { producer: ProducerId([5; 16]), number: u64::MAX, floor: 3 };
    let id = TxnOp::DuplicateId(DuplicateId([6; 16]));
    let [first, second] = [add(&mut batch, 0, b"first"), add(&mut batch, 1, b"second")];
    let ops = vec![first, number, id, remove.clone(), second, large.clone()];
    batch.push(Op::TxOps(Box::new(TxOps { txn: txn(), queue: Q, record: 3, ops })));
    batch.push(Op::TxDrop { txn: txn(), queue: Q });
    let full = TxnPart {
        ops: vec![add(&mut batch, 2, b"third"), remove.clone()],
        ahead: Ahead { records: 4, ops: 5, bytes: 6 },
        numbers: Some(Numbers { first: 7, count: 8 }),
        ..TxnPart::default()
    };
    let token = Token { broker: BrokerId([1; 16]), session: ClientSession([2; 16]), counter: 1 << 60 };
    let parts = vec![(QueueId(1), full.clone()), (Q, part(vec![remove]))];
    let commit = Commit { txn: txn(), parts, token: Some(token), xid: Some(xid(64, 64)), at_ms: 9 };
    batch.push(Op::Commit(Box::new(commit)));
    batch.push(Op::Commit(Box::new(Commit { txn: txn(), parts: Vec::new(), token: None, xid: None, at_ms: 0 })));
    let figures = Figures { adds: 1, removes: 2, bytes: 3 };
    let mut parts = vec![(QueueId(1), part(vec![add(&mut batch, 3, b""), large]), figures)];
    parts.push((Q, TxnPart { ahead: full.ahead, ..part(returns.to_vec()) }, Figures::default()));
    let prepare = Prepare { txn: txn(), xid: xid(1, 0), client: "größe".into(), parts, wall_ms: -1, at_ms: 2 };
    batch.push(Op::Prepare(Box::new(prepare)));
    let numbers = vec![(Q, Numbers { first: 5, count: 6 }), (QueueId(2), Numbers { first: u64::MAX, count: 0 })];
    for (commit, numbers) in [(true, numbers.clone()), (false, Vec::new())] {
        batch.push(Op::Decide(Box::new(Decide { xid: xid(0, 3), commit, numbers, at_ms: 4 })));
    }
    let outcomes = [
        HeuristicOutcome::Committed,
        HeuristicOutcome::RolledBack,
        HeuristicOutcome::Mixed,
        HeuristicOutcome::PartRolledBack(Q),
    ];
    for (outcome, commit) in outcomes.into_iter().zip([true, false, true, false]) {
        let (who, reason) = ("anna".into(), "stuck for days".into());
        let numbers = numbers.clone();
        let heuristic = Heuristic { xid: xid(2, 2), outcome, commit, numbers, who, reason, wall_ms: -5, at_ms: 6 };
        batch.push(Op::Heuristic(Box::new(heuristic)));
    }
    batch.push(Op::Forget { xid: xid(0, 0) });
    batch
}

/// Operations of a record, with their bodies, as they were handed in.
fn ops(works: &[Work<Where>], content: &[u8]) -> String {
    let body = |from: Where| match from {
        Where::Body { offset, length, crc: sum } => {
            let body = &content[offset as usize..(offset + length) as usize];
            assert_eq!(crc(0, body), sum);
            format!("{:?}", std::str::from_utf8(body).unwrap())
        }
        Where::Large { id, length } => format!("file {} {length}", id.0),
    };
    let each = works.iter().map(|work| match work.clone() {
        Work::Add { index, head, content } => {
            assert_eq!(head, sample_head());
            format!("add {index} {}", body(content))
        }
        Work::Remove { sequence, deliveries, attempts, redelivery: None } => {
            format!("remove {sequence} {deliveries} {attempts}")
        }
        Work::Remove { sequence, deliveries, attempts, redelivery: Some(back) } => {
            format!("return {sequence} {deliveries} {attempts} {back:?}")
        }
        Work::Number { producer, number, floor } => format!("number {number} {floor} of {}", producer.0[0]),
        Work::DuplicateId(id) => format!("id {}", id.0[0]),
    });
    each.collect::<Vec<_>>().join(", ")
}

#[test]
fn each_operation_of_a_transaction_comes_back_as_it_was() {
    let batch = all();
    let (expected, _) = batch.clone().into_parts();
    let encoded = Encoded::new(batch);
    assert_eq!(encoded.large, [LargeId(77), LargeId(77)]);
    let content: Vec<u8> = encoded.pieces.concat();
    let mut records = Records::new(&encoded.meta);
    assert!(matches!(records.next(), Ok(Some(Record::Batch { .. }))));
    let mut found = Vec::new();
    while let Some(record) = records.next().unwrap() {
        let Record::Transaction(record) = record else { panic!("another record: {record:?}") };
        found.push(record);
    }
    assert_eq!(found.len(), expected.len());
    let removes = |sequence| format!("remove {sequence} 1 {}", u32::MAX);
    for (record, op) in found.iter().zip(&expected) {
        match (&**record, op) {
            (Transactional::TxOps(found), Op::TxOps(told)) => {
                assert_eq!((found.txn, found.queue, found.record), (told.txn, told.queue, told.record));
                let expected = format!("{}, add 1 \"second\", add 9 file 77 {}", removes(u64::MAX), 1u64 << 50);
                let first = format!("add 0 \"first\", number {} 3 of 5, id 6", u64::MAX);
                assert_eq!(ops(&found.works, &content), format!("{first}, {expected}"));
            }
            (Transactional::TxDrop { txn, queue }, Op::TxDrop { txn: told, queue: of }) => {
                assert_eq!((txn, queue), (told, of));
            }
            (Transactional::Commit(found), Op::Commit(told)) => {
                assert_eq!((found.txn, found.token, &found.xid), (told.txn, told.token, &told.xid));
                assert_eq!(found.at_ms, told.at_ms);
                parts(found.parts.iter(), told.parts.iter().map(|(queue, part)| (*queue, part, Figures::default())));
                if let [first, second] = &found.parts[..] {
                    assert_eq!(ops(&first.works, &content), format!("add 2 \"third\", {}", removes(u64::MAX)));
                    assert_eq!(ops(&second.works, &content), removes(u64::MAX));
                }
            }
            (Transactional::Prepare(found), Op::Prepare(told)) => {
                assert_eq!((found.txn, &found.xid, &found.client), (told.txn, &told.xid, &told.client));
                assert_eq!((found.wall_ms, found.at_ms), (told.wall_ms, told.at_ms));
                parts(found.parts.iter(), told.parts.iter().map(|(queue, part, figures)| (*queue, part, *figures)));
                assert_eq!(ops(&found.parts[0].works, &content), format!("add 3 \"\", add 9 file 77 {}", 1u64 << 50));
                // All of them come back: the two lists would differ else.
                let returned = told.parts[1].1.ops.iter().filter_map(|op| match op {
                    TxnOp::Acknowledge { redelivery: Some(back), .. } => Some(format!("return 5 4 3 {back:?}")),
                    _ => None,
                });
                assert_eq!(ops(&found.parts[1].works, &content), returned.collect::<Vec<_>>().join(", "));
            }
            (Transactional::Decide(found), Op::Decide(told)) => assert_eq!(found, &**told),
            (Transactional::Heuristic(found), Op::Heuristic(told)) => assert_eq!(found, &**told),
            (Transactional::Forget { xid: found }, Op::Forget { xid: told }) => assert_eq!(found, told),
            other => panic!("another record: {other:?}"),
        }
    }
}

fn parts<'a>(
    found: impl ExactSizeIterator<Item = &'a Part>,
    told: impl ExactSizeIterator<Item = (QueueId, &'a TxnPart, Figures)>,
) {
    assert_eq!(found.len(), told.len());
    for (found, (queue, told, figures)) in found.zip(told) {
        assert_eq!((found.queue, found.ahead, found.numbers), (queue, told.ahead, told.numbers));
        assert_eq!((found.figures, found.works.len()), (figures, told.ops.len()));
    }
}

#[test]
fn changed_bytes_of_transactions_never_make_the_reader_panic() {
    let mut read = 0;
    let refused = read_damaged(&Encoded::new(all()).meta, 2, |record| {
        if let Record::Transaction(record) = record {
            read += record.works().count() + record.removed(Q).count();
        }
    });
    assert!(refused > 5_000 && read > 5_000, "{refused} {read}");
}

#[test]
fn a_count_that_cannot_be_takes_no_memory_and_no_time() {
    let mut batch = Batch::default();
    batch.push(Op::TxOps(Box::new(TxOps { txn: txn(), queue: Q, record: 0, ops: Vec::new() })));
    let mut meta = Encoded::new(batch).meta;
    let at = meta.len() - 8;
    assert_eq!(meta[at..], [0; 8]);
    meta[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut records = Records::new(&meta);
    assert!(records.next().is_ok());
    assert!(records.next().is_err());
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |code: u8, fields: &[u8]| super::decode(code, 0, &mut Reader::new(fields)).is_err();
    let mut forget = Vec::new();
    put_xid(&mut forget, &xid(1, 1));
    assert!(!refused(code::FORGET, &forget));
    // No format, and a global id of 65 bytes.
    assert!(refused(code::FORGET, &[&[0xff; 4], &forget[4..]].concat()));
    let long = [&7u32.to_le_bytes()[..], &65u32.to_le_bytes(), &[1; 65], &0u32.to_le_bytes()].concat();
    assert!(refused(code::FORGET, &long));
    // A home above 16 bits, an operation of no kind, a part with an unknown bit.
    let mut ahead = Vec::new();
    put_txn(&mut ahead, txn());
    put_u64(&mut ahead, 1);
    put_u32(&mut ahead, 0);
    let none = [&ahead[..], &0u32.to_le_bytes()].concat();
    assert!(!refused(code::TX_OPS, &none));
    let mut bad = none.clone();
    bad[18] = 1;
    assert!(refused(code::TX_OPS, &bad));
    assert!(refused(code::TX_OPS, &[&ahead[..], &1u32.to_le_bytes(), &[9; 60]].concat()));
    let mut commit = Vec::new();
    put_txn(&mut commit, txn());
    put_u64(&mut commit, 1);
    put_u32(&mut commit, 1);
    put_u64(&mut commit, 1);
    assert!(!refused(code::COMMIT, &[&commit[..], &[0; 5]].concat()));
    assert!(refused(code::COMMIT, &[&commit[..], &[8, 0, 0, 0, 0]].concat()));
}

#[test]
#[should_panic(expected = "names bytes outside its batch")]
fn half_a_transaction_is_not_written() {
    let mut batch = Batch::default();
    let mut body = batch.copy_body(b"short");
    body.offset = 1;
    let ops = vec![TxnOp::Enqueue { index: 0, head: sample_head(), content: Stored::Body(body) }];
    batch.push(Op::TxOps(Box::new(TxOps { txn: txn(), queue: Q, record: 0, ops })));
    drop(Encoded::new(batch));
}
