//! Records are read back as they were written, and what is malformed is refused.

use super::*;
use crate::bytes_io::crc;

const Q: QueueId = QueueId(0x0102_0304_0506_0708);

fn sample_head() -> Head {
    Head {
        arrived_ms: u64::MAX - 1,
        ttl_ms: 2,
        message_format: 3,
        priority: 255,
        flags: HeadFlags::PERSISTENT.with(HeadFlags::DURABLE_SAID),
        format: ContentFormat::Amqp10,
    }
}

fn sample_overlay() -> Box<Overlay> {
    Box::new(Overlay {
        annotations: Bytes::from_static(b"\xc1\x01\x00"),
        dead_letter: Some(Box::new(DeadLetter {
            reason: Reason::DeliveryLimit,
            detail: "größer".into(),
            address: QueueName::new("orders").unwrap(),
            sequence: 77,
            deliveries: 11,
            leaving: true,
        })),
    })
}

/// One of each operation.
fn all() -> Batch {
    let mut batch = Batch::default();
    let shared = batch.share_body(Bytes::from_static(b"shared body"));
    let copied = batch.copy_body(b"copied body");
    let (id, length) = (LargeId(9), u64::MAX);
    let contents = [Stored::Body(copied), Stored::Body(shared), Stored::Large { id, length }];
    for (n, content) in contents.into_iter().enumerate() {
        let (sequence, volatile) = (n as u64, n == 1);
        batch.push(Op::Enqueue { queue: Q, sequence, head: sample_head(), content, volatile });
    }
    for (first, last) in [(5, 5), (7, 900), (0, u64::MAX), (3, 4)] {
        batch.push(Op::Acknowledge { queue: Q, first, last });
    }
    batch.push(Op::Acknowledge { queue: QueueId(1), first: 1, last: 1 });
    let entry = EntryKey { queue: Q, sequence: 4 };
    for overlay in [None, Some(sample_overlay()), Some(Box::default())] {
        batch.push(Op::Redeliver { entry, deliveries: 5, attempts: 6, overlay });
    }
    let to = EntryKey { queue: QueueId(3), sequence: 8 };
    let (head, overlay) = (sample_head(), sample_overlay());
    batch.push(Op::Relocate { from: entry, to, head, deliveries: 1, attempts: 2, overlay });
    batch.push(Op::DispatchMark { queue: Q, first: 256, count: 256 });
    let settings = QueueSettings {
        default_durable: false,
        delivery_limit: 3,
        dead_letter: Some(QueueName::new("graveyard").unwrap()),
        limits: QueueLimits::default(),
    };
    let name = QueueName::new("grüße/€").unwrap();
    batch.push(Op::QueueCreate { id: Q, name, settings: settings.clone(), reserved: 1 << 40 });
    let limits = QueueLimits { max_messages: Some(7), max_bytes: None, on_full: OnFull::DropOldest };
    batch.push(Op::QueueChange { id: Q, settings: QueueSettings { limits, ..settings } });
    batch.push(Op::QueueDelete { id: Q });
    batch.push(Op::Reserve { queue: Q, up_to: 1 << 41 });
    batch.push(Op::ExactMark { queue: Q, first: 7, last: 9, at_ms: 1 << 42 });
    for stored in [None, Some(u64::MAX)] {
        let producer = ProducerId([5; 16]);
        batch.push(Op::Producer { queue: Q, producer, floor: 1 << 43, stored, at_ms: 1 << 44 });
    }
    batch
}

/// What comes back from the records of a batch, as operations; bodies by their content.
fn decoded(encoded: &Encoded) -> Vec<String> {
    let content: Vec<u8> = encoded.pieces.concat();
    let mut records = Records::new(&encoded.meta);
    let mut out = Vec::new();
    while let Some(record) = records.next().unwrap() {
        out.push(match record {
            Record::Batch { content } => format!("batch {content}"),
            Record::Enqueue { queue, sequence, head, content: stored, volatile } => {
                let body = match stored {
                    Where::Body { offset, length, crc: sum } => {
                        let body = &content[offset as usize..(offset + length) as usize];
                        assert_eq!(crc(0, body), sum);
                        String::from_utf8(body.to_vec()).unwrap()
                    }
                    Where::Large { id, length } => format!("large {id:?} {length}"),
                };
                assert_eq!(head, sample_head());
                format!("enqueue {queue}/{sequence} {body} {volatile}")
            }
            Record::Acknowledge { queue, ranges } => {
                format!("acknowledge {queue} {:?}", ranges.collect::<Vec<_>>())
            }
            other => format!("{other:?}"),
        });
    }
    out
}

#[test]
fn each_operation_comes_back_as_it_was() {
    let q = Q.0;
    let overlay = sample_overlay();
    let expected = [
        "batch 22".to_string(),
        format!("enqueue {q}/0 copied body false"),
        format!("enqueue {q}/1 shared body true"),
        format!("enqueue {q}/2 large LargeId(9) {} false", u64::MAX),
        format!("acknowledge {q} [(5, 5), (7, 900), (0, {}), (3, 4)]", u64::MAX),
        "acknowledge 1 [(1, 1)]".to_string(),
        format!(
            "Redeliver {{ entry: EntryKey {{ queue: QueueId({q}), sequence: 4 }}, deliveries: 5, attempts: 6, overlay: None }}"
        ),
    ];
    let found = decoded(&Encoded::new(all()));
    assert_eq!(found[..expected.len()], expected);
    assert!(found[7].contains(&format!("{overlay:?}")), "{}", found[7]);
    assert!(found[8].contains("Some(Overlay { annotations: b\"\", dead_letter: None })"), "{}", found[8]);
    assert!(found[9].starts_with("Relocate") && found[9].contains(&format!("{overlay:?}")), "{}", found[9]);
    assert!(found[10].contains("first: 256, count: 256"), "{}", found[10]);
    for (at, words) in [
        (11, "grüße/€"),
        (11, "graveyard"),
        (11, "reserved: 1099511627776"),
        (11, "max_messages: None, max_bytes: None, on_full: Block"),
        (12, "delivery_limit: 3"),
        (12, "max_messages: Some(7), max_bytes: None, on_full: DropOldest"),
    ] {
        assert!(found[at].contains(words), "{words}: {}", found[at]);
    }
    assert_eq!(found[13], format!("QueueDelete {{ id: QueueId({q}) }}"));
    assert_eq!(found[14], format!("Reserve {{ queue: QueueId({q}), up_to: {} }}", 1u64 << 41));
    let mark = format!("ExactMark {{ queue: QueueId({q}), first: 7, last: 9, at_ms: {} }}", 1u64 << 42);
    assert_eq!(found[15], mark);
    for (at, stored) in [(16, "None"), (17, "Some(18446744073709551615)")] {
        let key = format!("(QueueId({q}), ProducerId({:?}))", [5; 16]);
        let numbers = format!("floor: {}, stored: {stored}, at_ms: {}", 1u64 << 43, 1u64 << 44);
        assert_eq!(found[at], format!("Producer(Numbering {{ key: {key}, {numbers} }})"));
    }
    assert_eq!(found.len(), 18);
}

#[test]
fn limits_come_back_and_settings_of_earlier_versions_have_none() {
    let limits = |max_messages, max_bytes, on_full| QueueLimits { max_messages, max_bytes, on_full };
    for limits in [
        QueueLimits::default(),
        limits(Some(0), None, OnFull::Block),
        limits(None, Some(1 << 40), OnFull::Reject),
        limits(Some(1), Some(2), OnFull::DropOldest),
        limits(None, None, OnFull::Reject),
    ] {
        for default_durable in [false, true] {
            let told = QueueSettings { default_durable, limits, ..QueueSettings::default() };
            let mut out = Vec::new();
            put_settings(&mut out, &told);
            let mut reader = Reader::new(&out);
            assert_eq!(settings(&mut reader).ok(), Some(told));
            assert!(reader.is_empty());
            assert_eq!(out.len() == 9, limits == QueueLimits::default(), "without limits they are as they were");
            // A bit that nobody knows, and a policy.
            out[0] |= 4;
            assert!(settings(&mut Reader::new(&out)).is_err());
            out[0] = LIMITED;
            if out.len() > 9 {
                *out.last_mut().unwrap() = 3;
                assert!(settings(&mut Reader::new(&out)).is_err());
            }
        }
    }
}

#[test]
fn starts_and_stops_come_back_and_a_start_of_version_1_follows_a_crash() {
    fn read(meta: &[u8]) -> Option<Record<'_>> {
        let mut records = Records::new(meta);
        let mut last = None;
        while let Some(record) = records.next().unwrap() {
            last = Some(record);
        }
        last
    }
    assert!(matches!(read(&stop_meta()), Some(Record::Stop)));
    for end in [End::Stop, End::Crash(0), End::Crash(u64::MAX)] {
        let meta = start_meta(7, 8, end);
        assert!(matches!(read(&meta), Some(Record::Start { jump: 8, before }) if before == end), "{end:?}");
    }
    let mut old = start_meta(7, 8, End::Stop);
    old.truncate(old.len() - 16);
    let at = old.len() - 20;
    old[at..at + 4].copy_from_slice(&24u32.to_le_bytes());
    assert!(matches!(read(&old), Some(Record::Start { jump: 8, before: End::Crash(0) })));
}

#[test]
fn acknowledgements_cost_a_few_bytes_each() {
    let mut batch = Batch::default();
    for sequence in 0..1000 {
        // Two queues' worth of gaps: no two of them make a range.
        batch.acknowledge(Q, 1_000_000_000 + sequence * 3);
    }
    let encoded = Encoded::new(batch);
    assert!(encoded.meta.len() < 2_100, "{} bytes for 1,000", encoded.meta.len());
    assert!(encoded.meta.len().is_multiple_of(8));
}

/// Reads records of which bytes were changed, and an end cut off, again and again; how often they were refused.
pub(super) fn read_damaged(whole: &[u8], seed: u64, mut seen: impl FnMut(Record<'_>)) -> u32 {
    let mut draw = crate::bytes_io::Draw::new(seed);
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut bad = whole.to_vec();
        for _ in 0..=draw.next() % 4 {
            let at = (draw.next() % bad.len() as u64) as usize;
            bad[at] = draw.next() as u8;
        }
        bad.truncate((draw.next() % (2 * bad.len() as u64)) as usize);
        let mut records = Records::new(&bad);
        loop {
            match records.next() {
                Ok(Some(record)) => seen(record),
                Ok(None) => break,
                Err(Malformed) => {
                    refused += 1;
                    break;
                }
            }
        }
    }
    refused
}

#[test]
fn changed_bytes_never_make_the_reader_panic() {
    let refused = read_damaged(&Encoded::new(all()).meta, 1, |record| {
        if let Record::Acknowledge { ranges, .. } = record {
            let _ = ranges.take(2000).count();
        }
    });
    assert!(refused > 5_000, "{refused}");
}

#[test]
fn reserved_codes_are_of_another_version() {
    for code in [4, 6, 14, 15, 23, 25, 63, 65, 255] {
        let mut record = vec![0; 16];
        record[0] = code;
        record[4] = 16;
        assert!(Records::new(&record).next().is_err(), "{code}");
    }
}

#[test]
#[should_panic(expected = "names bytes outside its batch")]
fn half_a_batch_is_not_written() {
    let mut batch = Batch::default();
    let mut body = batch.copy_body(b"short");
    body.length = 6;
    let content = Stored::Body(body);
    batch.push(Op::Enqueue { queue: Q, sequence: 1, head: sample_head(), content, volatile: false });
    drop(Encoded::new(batch));
}
