//! The compact form: the same events in fewer bytes, forgiven and refused like the other.

use super::format::{check, events_of_1, events_up_to_2, events_up_to_3, every_event, first_line, read_back};
use super::story::*;
use packhorse_history::{BinaryWriter, Event, Header, JsonlWriter, Source};

/// What the versions look like. Each must stay readable for as long as this crate reads it.
const VERSION_1: &[u8] = include_bytes!("../fixtures/version-1.bin");
const VERSION_2: &[u8] = include_bytes!("../fixtures/version-2.bin");
const VERSION_3: &[u8] = include_bytes!("../fixtures/version-3.bin");
const VERSION_4: &[u8] = include_bytes!("../fixtures/version-4.bin");

fn written(header: &Header, events: &[Event<'_>]) -> Vec<u8> {
    let mut writer = BinaryWriter::new(Vec::new(), header).expect("a vector takes everything");
    for (index, event) in events.iter().enumerate() {
        writer.put(2_000 + index as u64, event).expect("a vector takes everything");
    }
    writer.into_inner().expect("a vector takes everything")
}

#[test]
fn every_event_comes_back() {
    read_back("written", &written(&first_line(), &every_event()), &every_event());
}

#[test]
fn version_1_is_still_read() {
    read_back("the fixture of version 1", VERSION_1, &events_of_1());
}

#[test]
fn version_2_is_still_read() {
    read_back("the fixture of version 2", VERSION_2, &events_up_to_2());
}

#[test]
fn version_3_is_still_read() {
    read_back("the fixture of version 3", VERSION_3, &events_up_to_3());
}

#[test]
fn version_4_is_read_and_written() {
    read_back("the fixture of version 4", VERSION_4, &every_event());
    assert_eq!(written(&first_line(), &every_event()), VERSION_4);
}

#[test]
fn times_that_go_back_and_names_that_come_again() {
    let mut writer = BinaryWriter::new(Vec::new(), &header(0, 0, 5)).expect("a vector takes everything");
    let named = [(u64::MAX, "a"), (0, "b"), (7, "a"), (6, ""), (9, "b"), (9, ""), (10, "a")];
    for (at, queue) in named {
        writer.put(at, &Event::Drained { queue }).expect("a vector takes everything");
    }
    let bytes = writer.into_inner().expect("a vector takes everything");
    let mut source = Source::open("b".to_owned(), bytes.as_slice()).expect("it is a history").expect("not empty");
    for (at, queue) in named {
        assert!(source.advance().expect("a record"));
        assert_eq!((source.at_ns(), source.event()), (at, Ok(Event::Drained { queue })));
    }
    assert!(!source.advance().expect("the end"));
}

/// A short life of message 0: sent, confirmed, received, acknowledged.
fn short_life() -> [Event<'static>; 5] {
    [send(0), sent_ok(0), recv(0, 1, 0), ack(0, 1), ack_ok(0, 1)]
}

#[test]
fn it_takes_a_fifth_of_the_bytes() {
    let events: Vec<_> = (0..100).flat_map(|n| [send(n), sent_ok(n), recv(n, 1, 0), ack(n, 1), ack_ok(n, 1)]).collect();
    let mut writer = JsonlWriter::new(Vec::new(), &header(0, 0, 0)).expect("a vector takes everything");
    for event in &events {
        writer.put(2_000_000_000, event).expect("a vector takes everything");
    }
    let json = writer.into_inner().expect("a vector takes everything").len();
    let binary = written(&header(0, 0, 0), &events).len();
    assert!(binary * 5 < json, "{binary} bytes against {json}");
}

#[test]
fn files_of_both_forms_are_judged_together_and_records_are_counted_like_lines() {
    let binary = written(&header(1, 0, 0), &short_life());
    let again = [attach(2), recv(0, 2, 1)];
    let mut writer = JsonlWriter::new(Vec::new(), &header(2, 0, 0)).expect("a vector takes everything");
    for event in &again {
        writer.put(9_000_000, event).expect("a vector takes everything");
    }
    let json = writer.into_inner().expect("a vector takes everything");
    let report = check(&[("binary", &binary), ("json", &json)]).expect("both are histories");
    let events: Vec<_> = report.violations()[0].events.iter().map(|one| (one.file.as_str(), one.line)).collect();
    assert_eq!(events, [("binary", 4), ("binary", 5), ("binary", 6), ("json", 3)], "{report}");
}

#[test]
fn a_killed_writer_is_forgiven_at_every_byte() {
    let whole = written(&header(0, 0, 0), &short_life());
    let mut ends = vec![written(&header(0, 0, 0), &[]).len()];
    for count in 1..=5 {
        ends.push(written(&header(0, 0, 0), &short_life()[..count]).len());
    }
    for length in 0..=whole.len() {
        let report = check(&[("cut", &whole[..length])]).unwrap_or_else(|error| panic!("cut after {length}: {error}"));
        let records = ends.iter().filter(|end| **end <= length).count() as u64;
        assert_eq!(report.totals.events, records.saturating_sub(1), "cut after {length} bytes");
        let noted = report.notes().iter().any(|note| note.contains("incomplete"));
        assert_eq!(noted, records > 0 && !ends.contains(&length), "cut after {length} bytes: {report}");
    }
}

/// A record of these bytes behind a good header and one good record.
fn with(record: &[u8]) -> Vec<u8> {
    let mut file = written(&header(0, 0, 0), &[Event::Tick]);
    file.push(record.len() as u8);
    file.extend_from_slice(record);
    file
}

#[test]
fn what_is_wrong_is_named_with_file_and_record() {
    let tick = 18;
    for (record, what) in [
        (&[][..], "an empty record"),
        (&[200, 0], "unknown kind of event, number 200"),
        (&[tick], "ends in a number"),
        (&[tick, 0x80], "ends in a number"),
        (&[tick, 0, 0x7f], "unknown field, number 127"),
        (&[tick, 0, 10, 5], "unknown field `producer`"),
        (&[tick, 0, 10 | 0x80], "field `producer` is no flag"),
        (&[14, 0, 12, 3], "queue number 3 has no name yet"),
        (&[14, 0, 12, 0, 9, b'a'], "ends in a text"),
        (&[14, 0, 12, 0, 1, 0xff], "field `queue` is not UTF-8"),
        (&[tick, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "above 2^64"),
    ] {
        let error = check(&[("wrong", &with(record))]).expect_err(what);
        assert_eq!((error.file.as_str(), error.line), ("wrong", 3), "{what}: {error}");
        assert!(error.what.contains(what), "{what}: {error}");
    }
    assert!(check(&[("right", &with(&[tick, 0]))]).expect("a tick").is_clean());
}

#[test]
fn other_files_are_refused() {
    for bytes in [&b"phHIST2\nxxx"[..], b"packhorse", b"phHIST1\n\xff\xff\xff"] {
        assert!(check(&[("other", bytes)]).is_err());
    }
}

#[test]
fn changed_bytes_never_panic() {
    let whole = written(&first_line(), &every_event());
    let mut refused = 0;
    for at in 0..whole.len() {
        for change in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            refused += u32::from(check(&[("changed", &bytes)]).is_err());
        }
    }
    assert!(refused > 100, "{refused}");
}
