//! Files as they are written and as they are found: every event comes back, version 1 stays readable, a killed writer is forgiven,
//! anything else is named with file and line.

use super::story::*;
use packhorse_history::{
    BrokerChange, Counters, Event, Header, HistoryError, JsonlWriter, MessageId, Options, Report, Source, XaVerb,
    check_files,
};

/// What the versions look like. Each must stay readable for as long as this crate reads it.
const VERSION_1: &str = include_str!("../fixtures/version-1.jsonl");
const VERSION_2: &str = include_str!("../fixtures/version-2.jsonl");
const VERSION_3: &str = include_str!("../fixtures/version-3.jsonl");
const VERSION_4: &str = include_str!("../fixtures/version-4.jsonl");

pub(crate) fn first_line() -> Header {
    Header {
        run: 0x00ab_cdef_0123_4567,
        process: "client-\"3\"".to_owned(),
        pid: 4711,
        incarnation: 2,
        clock: "9f3c".to_owned(),
        mono_ns: 1_000,
        wall_ns: 1_764_500_000_000_000_000,
    }
}

/// Events that came with version 2.
fn events_of_2() -> [Event<'static>; 10] {
    let message = MessageId::new(3, 17);
    [
        Event::Host { queue: "q", broker: "b" },
        Event::Node { broker: "b", change: BrokerChange::Start },
        Event::Node { broker: "b", change: BrokerChange::Kill },
        Event::Node { broker: "b", change: BrokerChange::Exit(Some(70)) },
        Event::Damaged { message },
        Event::Survey { start: true },
        Event::Present { message, queue: "q" },
        Event::Survey { start: false },
        Event::Gauge { kind: "memory", target: "b", value: u64::MAX, most: 0 },
        Event::Detached { consumer: 5 },
    ]
}

/// Events that came with version 3.
fn events_of_3() -> [Event<'static>; 8] {
    [
        Event::Purge { operation: 1, queue: "q", deletes: false, messages: None },
        Event::Purge { operation: 1, queue: "q", deletes: false, messages: Some(0) },
        Event::Purge { operation: u64::MAX, queue: "q", deletes: true, messages: None },
        Event::Move { operation: 2, queue: "q", target: "b", messages: None },
        Event::Move { operation: 2, queue: "q", target: "b", messages: Some(u64::MAX) },
        Event::Browser { consumer: 7, queue: "q" },
        Event::Browsed { message: MessageId::new(3, 17), consumer: 7, crc_ok: false },
        Event::Browsed { message: MessageId::NONE, consumer: 7, crc_ok: true },
    ]
}

/// Events that came with version 4.
fn events_of_4() -> [Event<'static>; 7] {
    [
        Event::TxBegin { tx: 2, xid: Some("1:aa:bb"), broker: None },
        Event::TxBegin { tx: u64::MAX, xid: Some(""), broker: Some("b") },
        Event::RecoverList { xids: None, broker: None },
        Event::RecoverList { xids: None, broker: Some("b") },
        Event::RecoverList { xids: Some(""), broker: Some("b") },
        Event::Decide { xid: "1:aa:bb", commit: true, code: None },
        Event::Decide { xid: "1:aa:bb", commit: false, code: Some(-6) },
    ]
}

pub(crate) fn every_event() -> Vec<Event<'static>> {
    let mut events = events_up_to_3();
    events.extend(events_of_4());
    events
}

pub(crate) fn events_up_to_3() -> Vec<Event<'static>> {
    let mut events = events_up_to_2();
    events.extend(events_of_3());
    events
}

pub(crate) fn events_up_to_2() -> Vec<Event<'static>> {
    let mut events = events_of_1();
    events.extend(events_of_2());
    events
}

pub(crate) fn events_of_1() -> Vec<Event<'static>> {
    let message = MessageId::new(3, 17);
    let counters = Counters {
        quiet: true,
        depth: Some(5),
        ready: Some(-1),
        acquired: Some(0),
        enqueued: Some(i64::MAX),
        acknowledged: Some(i64::MIN),
        dead_lettered: None,
    };
    vec![
        Event::Send {
            message: MessageId::new(u32::MAX - 1, u64::MAX - 1),
            queue: "a\\b\"c\u{e9}\u{1f40e}\n\u{1}",
            size_bytes: u32::MAX,
            crc: 1,
            persistent: true,
            ttl_ms: 30_000,
            delay_ms: 5,
            priority: 9,
            tx: Some(8),
        },
        send(4),
        Event::SentOk { message },
        Event::SentRejected { message, reason: "amqp:resource-limit-exceeded" },
        Event::SentUnknown { message },
        Event::Attach { consumer: 5, queue: "q", presettled: true, filtered: true },
        attach(6),
        Event::Credit { consumer: 5, credit: 100 },
        Event::Recv {
            message,
            consumer: 5,
            queue: "q",
            delivery_count: 2,
            redelivered: true,
            crc_ok: false,
            tx: Some(1),
        },
        recv(4, 5, 0),
        Event::Ack { message, consumer: 5, confirmed: true, tx: Some(1) },
        ack(4, 5),
        Event::Release { message, consumer: 5, tx: None },
        Event::Reject { message, consumer: 5, tx: None },
        Event::Modified { message, consumer: 5, delivery_failed: true, undeliverable_here: true, tx: None },
        Event::Modified { message, consumer: 5, delivery_failed: false, undeliverable_here: false, tx: None },
        Event::Detach { consumer: 5, orderly: false, confirmed: false },
        Event::Detach { consumer: 5, orderly: true, confirmed: true },
        Event::Expired { message },
        Event::Dlq { message, reason: "rejected" },
        Event::Drained { queue: "q" },
        Event::Counters { queue: "q", counters },
        Event::Broker { change: BrokerChange::Start },
        Event::Broker { change: BrokerChange::Kill },
        Event::Broker { change: BrokerChange::Exit(Some(-6)) },
        Event::Broker { change: BrokerChange::Exit(None) },
        Event::Fault { kind: "pause", target: "broker", start: true },
        Event::Tick,
        Event::Clock { wall_ns: 5 },
        Event::TxBegin { tx: 1, xid: None, broker: None },
        Event::CommitSent { tx: 1 },
        Event::CommitOk { tx: 1 },
        Event::CommitUnknown { tx: 1 },
        Event::RollbackOk { tx: 1 },
        Event::Xa { verb: XaVerb::Start, xid: "1:aa:bb", code: None },
        Event::Xa { verb: XaVerb::End, xid: "1:aa:bb", code: Some(0) },
        Event::Xa { verb: XaVerb::Prepare, xid: "1:aa:bb", code: Some(3) },
        Event::Xa { verb: XaVerb::Commit, xid: "1:aa:bb", code: Some(-4) },
        Event::Xa { verb: XaVerb::Rollback, xid: "1:aa:bb", code: None },
        Event::Xa { verb: XaVerb::Forget, xid: "1:aa:bb", code: None },
        Event::RecoverList { xids: Some("1:aa:bb 2:cc:"), broker: None },
        Event::End,
    ]
}

fn written() -> Vec<u8> {
    let mut writer = JsonlWriter::new(Vec::new(), &first_line()).expect("a vector takes everything");
    for (index, event) in every_event().iter().enumerate() {
        writer.put(2_000 + index as u64, event).expect("a vector takes everything");
    }
    writer.into_inner().expect("a vector takes everything")
}

pub(crate) fn read_back(name: &str, bytes: &[u8], events: &[Event<'_>]) {
    let mut source = Source::open(name.to_owned(), bytes).expect("it is a history").expect("it is not empty");
    assert_eq!(*source.header(), first_line());
    for (index, event) in events.iter().enumerate() {
        assert!(source.advance().expect("the line is whole"), "{name}: event {index} is missing");
        assert_eq!(source.at_ns(), 2_000 + index as u64);
        assert_eq!(source.event().expect("it is an event"), *event, "{name}: event {index}");
    }
    assert!(!source.advance().expect("the end is an end"));
    assert!(!source.is_cut());
}

#[test]
fn every_event_comes_back() {
    read_back("written", &written(), &every_event());
}

#[test]
fn version_1_is_still_read() {
    read_back("the fixture of version 1", VERSION_1.as_bytes(), &events_of_1());
}

#[test]
fn version_2_is_still_read() {
    read_back("the fixture of version 2", VERSION_2.as_bytes(), &events_up_to_2());
}

#[test]
fn version_3_is_still_read() {
    read_back("the fixture of version 3", VERSION_3.as_bytes(), &events_up_to_3());
}

#[test]
fn version_4_is_read_and_written() {
    read_back("the fixture of version 4", VERSION_4.as_bytes(), &every_event());
    assert_eq!(String::from_utf8(written()).expect("JSON is UTF-8"), VERSION_4);
}

#[test]
fn json_of_others_is_read_too() {
    let text = " { \"wall_ns\":2,\"mono_ns\":1,\"clock\":\"c\",\"incarnation\":0,\"pid\":1,\"process\":\"p\",\
                \"run\":\"7\",\t\"packhorse_history\" : 1 }\r\n\
                {\"event\":\"drained\",\"queue\":\"\\u0061\\u00e9\\ud83d\\udc0e\\/\\b\\f\\r\\t\",\"at\":5}\n";
    let mut source = Source::open("other".to_owned(), text.as_bytes()).expect("it is a history").expect("not empty");
    assert!(source.advance().expect("a line"));
    let queue = "aé\u{1f40e}/\u{8}\u{c}\r\t";
    assert_eq!(source.event(), Ok(Event::Drained { queue }));
}

pub(crate) fn check(files: &[(&str, &[u8])]) -> Result<Report, HistoryError> {
    check_files(files.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)), &Options::default())
}

const HEADER: &str = "{\"packhorse_history\":1,\"run\":\"7\",\"process\":\"p\",\"pid\":1,\"incarnation\":0,\
                      \"clock\":\"c\",\"mono_ns\":1,\"wall_ns\":1}\n";

#[test]
fn a_killed_writer_is_forgiven_at_every_byte() {
    let whole = Story::of(1).confirmed(10, 0..2).at(20, 0, recv(0, 1, 0)).files().remove(0).1;
    for length in 0..whole.len() {
        let cut = &whole[..length];
        let report = check(&[("cut", cut)]).unwrap_or_else(|error| panic!("cut after {length} bytes: {error}"));
        let lines = cut.iter().filter(|byte| **byte == b'\n').count() as u64;
        assert_eq!(report.totals.events, lines.saturating_sub(1), "cut after {length} bytes");
        let at_a_line = cut.last().is_none_or(|last| *last == b'\n');
        let noted = report.notes().iter().any(|note| note.contains("incomplete"));
        assert_eq!(noted, lines > 0 && !at_a_line, "cut after {length} bytes: {report}");
    }
}

#[test]
fn a_half_line_in_the_middle_is_an_error() {
    let text = format!("{HEADER}{{\"at\":5,\"event\":\"ti\n{{\"at\":6,\"event\":\"tick\"}}\n");
    let error = check(&[("middle", text.as_bytes())]).expect_err("that is no event");
    assert_eq!((error.file.as_str(), error.line), ("middle", 2), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_file_and_line() {
    for (line, what) in [
        ("{\"at\":5,\"event\":\"teleport\"}", "unknown kind of event `teleport`"),
        ("{\"at\":5,\"event\":\"tick\",\"color\":3}", "unknown field `color`"),
        ("{\"at\":5,\"at\":5,\"event\":\"tick\"}", "unknown field `at`"),
        ("{\"at\":5}", "field `event` is missing"),
        ("{\"event\":\"tick\"}", "field `at` is missing"),
        ("{\"at\":-5,\"event\":\"tick\"}", "field `at` is not a number from 0"),
        ("{\"at\":5,\"event\":\"credit\",\"consumer\":1}", "field `credit` is missing"),
        ("{\"at\":5,\"event\":\"credit\",\"consumer\":\"x\",\"credit\":1}", "field `consumer` is not a number"),
        ("{\"at\":5,\"event\":\"credit\",\"consumer\":4294967296,\"credit\":1}", "above 2^32"),
        ("{\"at\":99999999999999999999,\"event\":\"tick\"}", "above 2^64"),
        ("{\"at\":5.5,\"event\":\"tick\"}", "a whole number expected"),
        ("{\"at\":5,\"event\":\"tick\"} x", "something follows"),
        ("{\"at\":5,\"event\":\"tick\"", "`,` or `}` expected"),
        ("{\"at\":5,\"event\":\"tick", "the end of a string expected"),
        ("{\"at\":5,\"event\":\"\\ud800x\"}", "second half of a pair"),
        ("{\"at\":5,\"event\":\"\\q\"}", "an escape expected"),
        ("{\"at\":5,\"event\":null}", "a number, a string, true or false expected"),
        ("tick", "`{` expected"),
        ("", "`{` expected"),
        ("{}", "field `at` is missing"),
        ("{\"at\":5,\"event\":\"broker\",\"change\":\"dance\"}", "none of start, kill, exit"),
        ("{\"at\":5,\"event\":\"sent_ok\",\"producer\":1,\"sequence\":1}", "has not been sent"),
        ("{\"at\":5,\"event\":\"release\",\"producer\":1,\"sequence\":1,\"consumer\":1}", "which it does not hold"),
        ("{\"at\":5,\"event\":\"credit\",\"consumer\":1,\"credit\":1}", "has neither attached nor received"),
    ] {
        let text = format!("{HEADER}{{\"at\":4,\"event\":\"tick\"}}\n{line}\n");
        let error = check(&[("wrong", text.as_bytes())]).expect_err(line);
        assert_eq!((error.file.as_str(), error.line), ("wrong", 3), "{line}: {error}");
        assert!(error.what.contains(what), "{line}: {error}");
        assert!(error.to_string().starts_with("wrong:3: "), "{error}");
    }
}

#[test]
fn lines_of_noise_never_panic() {
    let mut seed = 1u64;
    let alphabet = b"{}\":,\\u0019-truefalse.evnta\x00\xff ";
    for _ in 0..20_000 {
        let mut line = HEADER.as_bytes().to_vec();
        for _ in 0..(seed >> 7) % 40 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            line.push(alphabet[(seed >> 33) as usize % alphabet.len()]);
        }
        seed = seed.wrapping_add(1 << 7);
        line.push(b'\n');
        assert!(check(&[("noise", &line)]).is_err(), "{:?}", String::from_utf8_lossy(&line));
    }
}

#[test]
fn other_files_are_refused() {
    for (text, what) in [
        ("hello\n", "`{` expected"),
        ("hello", "no first line"),
        ("{\"at\":1,\"event\":\"tick\"}\n", "not a history"),
        ("{\"packhorse_history\":0,\"run\":\"7\"}\n", "version 0"),
        ("{\"packhorse_history\":5,\"run\":\"7\"}\n", "version 5"),
        (&HEADER.replace("\"7\"", "\"x\""), "not a number in hexadecimal"),
    ] {
        let error = check(&[("other", text.as_bytes())]).expect_err(text);
        assert_eq!((error.file.as_str(), error.line), ("other", 1));
        assert!(error.what.contains(what), "{error}");
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    for (other, what) in [
        (HEADER.replace("\"7\"", "\"8\""), "another run"),
        (HEADER.replace("\"c\"", "\"d\""), "another clock"),
        (HEADER.to_owned(), "already began its life 0"),
    ] {
        let error = check(&[("one", HEADER.as_bytes()), ("two", other.as_bytes())]).expect_err(what);
        assert_eq!((error.file.as_str(), error.line), ("two", 1));
        assert!(error.what.contains(what), "{error}");
    }
}

#[test]
fn a_history_that_contradicts_itself_is_refused() {
    let stories = [
        (Story::of(1).at(1, 0, send(5)).at(2, 0, send(5)), "sequences ascend"),
        (Story::of(1).at(1, 0, send(5)).at(2, 0, sent_ok(5)).at(3, 0, sent_ok(5)), "a second answer"),
        (Story::of(1).at(1, 0, attach(1)).at(2, 0, attach(1)), "attaches again"),
        (Story::of(2).at(1, 0, attach(1)).at(2, 1, credit(1, 1)), "is also in file-0"),
        (Story::of(1).at(1, 0, attach(1)).at(2, 0, detach(1)).at(3, 0, lost(1)), "detached before"),
        (Story::of(1).at(1, 0, attach(1)).at(2, 0, lost(1)).at(3, 0, detached(1)), "has not asked for its end"),
        (
            Story::of(1).at(1, 0, attach(1)).at(2, 0, lost(1)).at(3, 0, Event::Detached { consumer: 1 }),
            "has not asked for its end",
        ),
        (Story::of(1).at(1, 0, recv(1, 1, 0)).at(2, 0, ack(1, 1)).at(3, 0, ack(1, 1)), "does not hold"),
        (Story::of(1).at(1, 0, recv(1, 1, 0)).at(2, 0, ack_ok(1, 1)), "has not acknowledged"),
        (Story::of(1).at(1, 0, begin(1)).at(2, 0, begin(1)), "begins again"),
        (Story::of(1).at(1, 0, branch(1, "x")).at(2, 0, branch(2, "x")), "begins again"),
        (Story::of(1).at(1, 0, begin(1)).at(2, 0, commit_ok(1)), "was not asked for"),
        (Story::of(1).at(1, 0, commit(1)).at(2, 0, commit(1)), "is asked for again"),
        (Story::of(1).at(1, 0, branch(1, "x")).at(2, 0, commit(1)), "is a branch"),
        (Story::of(1).at(1, 0, commit(1)).at(2, 0, commit_ok(1)).at(3, 0, rollback_ok(1)), "a second answer"),
        (Story::of(2).at(1, 0, xa(XaVerb::Commit, "x")).at(2, 1, answer(XaVerb::Commit, "x", 0)), "nothing like it"),
        (Story::of(1).at(1, 0, xa(XaVerb::Commit, "x")).at(2, 0, answer(XaVerb::Prepare, "x", 0)), "nothing like it"),
        (Story::of(2).at(1, 0, recover()).at(2, 1, listed("x")), "was not asked for"),
        (Story::of(1).at(1, 0, Event::Damaged { message: message(1) }), "has not been sent"),
        (Story::of(1).at(1, 0, Event::Survey { start: false }), "has not begun"),
        (Story::of(1).at(1, 0, Event::Present { message: message(1), queue: "q" }), "there is no survey"),
    ];
    for (story, what) in stories {
        let files = story.files();
        let sources: Vec<_> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let error = check(&sources).expect_err(what);
        assert!(error.what.contains(what), "{error}");
    }
}

#[test]
fn the_report_names_invariant_message_queue_and_events() {
    let story = Story::of(2).confirmed(10, 0..1).at(20, 1, recv(0, 1, 0)).at(21, 1, ack(0, 1)).at(25, 1, ack_ok(0, 1));
    let report = story.at(40, 1, recv(0, 1, 1)).at(50, 0, Event::End).check();
    let text = report.to_string();
    for part in [
        "1  I3  duplicate after a confirmed acknowledgement",
        "I3 duplicate after a confirmed acknowledgement: message 1/0, queue orders: its acknowledgement was confirmed, and it was received again",
        "received file-1:2",
        "acknowledged file-1:3",
        "confirmed file-1:4",
        "again file-1:5",
        "1 of 2 files have no `end`",
        "1 VIOLATION",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let json = report.to_json();
    for part in [
        "{\"violations_total\":1,\"invariants\":{\"I1\":0,\"I2\":0,\"I3\":1,",
        "\"totals\":{\"files\":2,\"events\":7,\"sent\":1,\"confirmed\":1,",
        "\"violations\":[{\"invariant\":\"I3\",\"producer\":1,\"sequence\":0,\"queue\":\"orders\",\"sentence\":\"its ",
        "\"events\":[{\"what\":\"received\",\"file\":\"file-1\",\"line\":2},",
        "\"notes\":[\"1 of 2 files",
    ] {
        assert!(json.contains(part), "no `{part}` in\n{json}");
    }
}

#[test]
fn many_violations_are_counted_and_some_are_shown() {
    let files = Story::of(2).confirmed(10, 0..300).at(50, 1, drained()).files();
    let sources: Vec<_> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let report = check(&sources).expect("it is a history");
    assert_eq!((report.violation_count(), report.violations().len()), (300, 100));
    assert!(report.to_string().contains("… and 200 more"));
}
