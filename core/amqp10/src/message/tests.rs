//! Messages as vectors: sections and their order, prefixes, headers, annotations, streamed bodies.

use super::*;
use crate::codec::{
    Symbols, ValueWriter, put_boolean, put_byte, put_descriptor, put_int, put_null, put_string, put_symbol,
    put_symbolic_descriptor, put_symbols, put_uint, put_ulong,
};
use alloc::string::ToString;
use alloc::vec;

fn limits() -> Limits {
    Limits::default()
}

fn parse(bytes: &[u8]) -> Result<MessageView<'_>, DecodeError> {
    MessageView::parse(bytes, &limits())
}

/// A section of one map or list by hand.
fn section(code: u8, value: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, code], value].concat()
}

/// One section of each kind, smallest form, in order; data as body.
fn all_sections() -> Vec<Vec<u8>> {
    vec![
        section(0x70, &[0x45]),
        section(0x71, &[0xc1, 5, 2, 0xa3, 1, b'd', 0x40]),
        section(0x72, &[0xc1, 5, 2, 0xa3, 1, b'm', 0x41]),
        section(0x73, &[0xc0, 4, 1, 0xa1, 1, b'i']),
        section(0x74, &[0xc1, 5, 2, 0xa1, 1, b'a', 0x42]),
        section(0x75, &[0xa0, 2, 1, 2]),
        section(0x78, &[0xc1, 5, 2, 0xa3, 1, b'f', 0x43]),
    ]
}

/// A message with everything in it.
fn rich() -> Vec<u8> {
    let mut out = Vec::new();
    write_header(&mut out, Some(true), Some(9), Some(5000), Some(false), Some(3));
    write_annotations(&mut out, |map| {
        put_symbol(map.next(), "x-opt-jms-msg-type");
        put_byte(map.next(), 5);
    });
    Properties {
        message_id: Some(MessageId::Ulong(1)),
        to: Some("orders"),
        reply_to: Some("answers"),
        correlation_id: Some(MessageId::String("1")),
        group_id: Some("g"),
        group_sequence: Some(7),
        absolute_expiry_time: Some(12345),
        ..Properties::default()
    }
    .encode(&mut out);
    put_descriptor(&mut out, 0x74);
    ValueWriter::map(&mut out, |map| {
        put_string(map.next(), "color");
        put_string(map.next(), "red");
    });
    write_data(&mut out, b"hello");
    out
}

#[test]
fn part_3_2_every_section_is_found() {
    let bytes = all_sections().concat();
    let view = parse(&bytes).expect("a message");
    assert_eq!(view.delivery_annotations().map(|m| m.len()), Some(1));
    assert_eq!(view.message_annotation("m").and_then(|v| v.as_bool()), Some(true));
    assert_eq!(view.properties().message_id, Some(MessageId::String("i")));
    assert_eq!(view.application_property("a").and_then(|v| v.as_bool()), Some(false));
    assert_eq!(view.body().collect::<Vec<_>>(), [BodySection::Data(&[1, 2])]);
    assert_eq!(view.footer().and_then(|m| m.get("f")).and_then(|v| v.as_u32()), Some(0));
    assert_eq!(view.layout().body_kind(), Some(Section::Data));
    assert!(view.layout().is_whole() && view.layout().has_header);
    let sections = all_sections();
    assert_eq!(view.message_annotations_bytes(), sections[2]);
    assert_eq!(view.bare(), sections[3..6].concat());
    assert_eq!(view.bare_and_footer(), sections[3..].concat());
    assert_eq!(view.layout().view(&bytes).bare(), view.bare());
    assert_eq!(&bytes[view.layout().content_start()..], sections[2..].concat());
    let without = [&sections[0][..], &sections[1], &sections[5]].concat();
    let start = parse(&without).expect("a message").layout().content_start();
    assert_eq!(&without[start..], sections[5]);
}

#[test]
fn part_3_2_any_subset_of_sections_in_order_is_a_message() {
    let sections = all_sections();
    for subset in 1..1u32 << sections.len() {
        let chosen: Vec<_> = (0..sections.len()).filter(|i| subset & 1 << i != 0).collect();
        let bytes: Vec<u8> = chosen.iter().flat_map(|i| sections[*i].clone()).collect();
        let view = parse(&bytes).unwrap_or_else(|e| panic!("{chosen:?}: {e}"));
        assert_eq!(view.layout().has_header, chosen.contains(&0));
        assert_eq!(view.message_annotations().is_some(), chosen.contains(&2));
        assert_eq!(view.properties().message_id.is_some(), chosen.contains(&3));
        assert_eq!(view.application_properties().is_some(), chosen.contains(&4));
        assert_eq!(view.body().count(), usize::from(chosen.contains(&5)));
        assert_eq!(view.footer().is_some(), chosen.contains(&6));
        let bare: Vec<u8> = chosen.iter().filter(|i| (3..6).contains(*i)).flat_map(|i| sections[*i].clone()).collect();
        assert_eq!(view.bare(), bare);
        crate::fuzz::message(&bytes);
    }
}

#[test]
fn part_3_2_sections_out_of_order_or_twice_are_errors() {
    let mut sections = all_sections();
    sections.push(section(0x76, &[0x45]));
    sections.push(section(0x77, &[0x40]));
    let rank = |index: usize| match index {
        5 | 7 | 8 => 5,
        other => other,
    };
    for first in 0..sections.len() {
        for second in 0..sections.len() {
            let bytes = [sections[first].clone(), sections[second].clone()].concat();
            let repeats = first == second && (first == 5 || first == 7);
            let fits = rank(first) < rank(second) || repeats;
            match parse(&bytes) {
                Ok(_) => assert!(fits, "{first} {second}"),
                Err(error) => {
                    assert!(!fits, "{first} {second}: {error}");
                    assert!(matches!(error, DecodeError::SectionOrder { .. }), "{error}");
                    assert_eq!(error.condition(), "amqp:decode-error");
                }
            }
        }
    }
    let error = parse(&[all_sections()[3].clone(), all_sections()[0].clone()].concat()).expect_err("out of order");
    assert_eq!(error.to_string(), "message section header after properties");
}

#[test]
fn part_3_2_no_body_passes_but_no_bytes_do_not() {
    parse(&section(0x70, &[0x45])).expect("a header alone");
    assert_eq!(parse(&[]).err(), Some(DecodeError::EmptyMessage));
    assert_eq!(MessageView::parse_prefix(&[], Some(0), &limits()).err(), Some(DecodeError::EmptyMessage));
}

#[test]
fn part_3_2_what_is_no_section_is_an_error() {
    assert_eq!(parse(&section(0x79, &[0x45])).err(), Some(DecodeError::UnknownSection { code: Some(0x79) }));
    assert_eq!(parse(&section(0x24, &[0x45])).err(), Some(DecodeError::UnknownSection { code: Some(0x24) }));
    let mut symbolic = Vec::new();
    put_symbolic_descriptor(&mut symbolic, "amqp:nothing:list");
    symbolic.push(0x45);
    assert_eq!(parse(&symbolic).err(), Some(DecodeError::UnknownSection { code: None }));
    assert!(matches!(parse(b"text").err(), Some(DecodeError::Value { what: "message section", .. })));
    assert!(matches!(
        parse(&section(0x70, &[0xc1, 1, 0])).err(),
        Some(DecodeError::Value { what: "header", fault: Fault::WrongType { expected: "list", .. } })
    ));
    assert!(matches!(
        parse(&section(0x74, &[0x45])).err(),
        Some(DecodeError::Value { what: "application-properties", .. })
    ));
}

#[test]
fn part_3_2_sections_by_their_symbols() {
    let mut bytes = Vec::new();
    for (symbol, value) in [
        ("amqp:header:list", &[0xc0, 2, 1, 0x41][..]),
        ("amqp:delivery-annotations:map", &[0xc1, 1, 0]),
        ("amqp:message-annotations:map", &[0xc1, 1, 0]),
        ("amqp:properties:list", &[0x45]),
        ("amqp:application-properties:map", &[0xc1, 1, 0]),
        ("amqp:amqp-value:*", &[0x41]),
        ("amqp:footer:map", &[0xc1, 1, 0]),
    ] {
        put_symbolic_descriptor(&mut bytes, symbol);
        bytes.extend_from_slice(value);
    }
    let view = parse(&bytes).expect("a message");
    assert_eq!(view.header().durable, Some(true));
    assert!(view.footer().is_some_and(|m| m.is_empty()));
    crate::fuzz::message(&bytes);
    for (symbol, value) in [("amqp:data:binary", &[0xa0, 0][..]), ("amqp:amqp-sequence:list", &[0x45])] {
        bytes.clear();
        put_symbolic_descriptor(&mut bytes, symbol);
        bytes.extend_from_slice(value);
        assert_eq!(parse(&bytes).map(|view| view.body().count()), Ok(1));
    }
}

#[test]
fn part_3_2_1_header_tells_what_was_left_out() {
    let view = |bytes: &'static [u8]| *parse(bytes).expect("a message").header();
    assert_eq!(view(&[0x00, 0x53, 0x70, 0x45]), Header::default());
    assert_eq!(view(&[0x00, 0x53, 0x70, 0xc0, 2, 1, 0x42]).durable, Some(false));
    let header = view(&[0x00, 0x53, 0x70, 0xc0, 12, 5, 0x41, 0x50, 9, 0x70, 0, 0, 0, 100, 0x40, 0x52, 7]);
    assert_eq!(
        header,
        Header {
            durable: Some(true),
            priority: Some(9),
            ttl: Some(100),
            first_acquirer: None,
            delivery_count: Some(7)
        }
    );
    assert!(matches!(
        parse(&[0x00, 0x53, 0x70, 0xc0, 3, 2, 0x40, 0x52]).err(),
        Some(DecodeError::Field { composite: "header", field: "priority", fault: Fault::WrongType { .. } })
    ));
}

#[test]
fn part_3_2_1_header_is_written_short() {
    let write = |durable, priority, ttl, first, count| {
        let mut out = Vec::new();
        write_header(&mut out, durable, priority, ttl, first, count);
        out
    };
    assert_eq!(write(None, None, None, None, None), []);
    assert_eq!(write(Some(true), None, None, None, None), [0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41]);
    assert_eq!(write(None, None, None, None, Some(1)), [0x00, 0x53, 0x70, 0xc0, 7, 5, 0x40, 0x40, 0x40, 0x40, 0x52, 1]);
    assert_eq!(
        write(Some(true), Some(4), Some(0), Some(true), Some(0)),
        [0x00, 0x53, 0x70, 0xc0, 7, 5, 0x41, 0x50, 4, 0x43, 0x41, 0x43]
    );
}

#[test]
fn part_3_2_4_properties_and_3_2_5_application_properties() {
    let bytes = rich();
    let view = parse(&bytes).expect("a message");
    let p = view.properties();
    assert_eq!((p.to, p.reply_to, p.group_id, p.group_sequence), (Some("orders"), Some("answers"), Some("g"), Some(7)));
    assert_eq!((p.absolute_expiry_time, p.creation_time, p.content_type), (Some(12345), None, None));
    assert_eq!(view.application_property("color").and_then(|v| v.as_str()), Some("red"));
    assert_eq!(view.application_property("colour"), None);
    assert_eq!(view.message_annotation("x-opt-jms-msg-type").and_then(|v| v.as_integer()), Some(5));
    assert_eq!(parse(&section(0x75, &[0xa0, 0])).expect("a message").properties(), Properties::default());
    assert!(matches!(
        parse(&section(0x73, &[0xc0, 3, 2, 0x40, 0x41])).err(),
        Some(DecodeError::Field { composite: "properties", field: "user-id", .. })
    ));
}

#[test]
fn part_3_2_11_message_ids_of_different_types_are_never_equal() {
    let ids = [
        MessageId::Ulong(1),
        MessageId::String("1"),
        MessageId::Binary(b"1"),
        MessageId::Uuid([0; 16]),
        MessageId::Binary(&[0; 16]),
    ];
    for (i, a) in ids.iter().enumerate() {
        for (j, b) in ids.iter().enumerate() {
            assert_eq!(a == b, i == j);
        }
        let mut out = Vec::new();
        Properties { message_id: Some(*a), correlation_id: Some(*a), ..Properties::default() }.encode(&mut out);
        let view = parse(&out).expect("a message");
        assert_eq!((view.properties().message_id, view.properties().correlation_id), (Some(*a), Some(*a)));
    }
    // Any other type is none.
    assert!(matches!(
        parse(&section(0x73, &[0xc0, 3, 1, 0x52, 1])).err(),
        Some(DecodeError::Field { field: "message-id", .. })
    ));
}

#[test]
fn part_3_2_10_annotation_keys_are_symbols_or_ulongs_and_distinct() {
    let map = |pairs: &[&[u8]]| {
        let items = pairs.concat();
        [&[0xc1, items.len() as u8 + 1, pairs.len() as u8][..], &items].concat()
    };
    let [symbol, wide, ulong, wide_ulong, string, null]: [&[u8]; 6] = [
        &[0xa3, 1, b'k'],
        &[0xb3, 0, 0, 0, 1, b'k'],
        &[0x53, 7],
        &[0x80, 0, 0, 0, 0, 0, 0, 0, 7],
        &[0xa1, 1, b'k'],
        &[0x40],
    ];
    for code in [0x71, 0x72, 0x78] {
        let name = match code {
            0x71 => "delivery-annotations",
            0x72 => "message-annotations",
            _ => "footer",
        };
        parse(&section(code, &map(&[symbol, null, ulong, null]))).expect("fine");
        let error = |value: &[u8]| parse(&section(code, value)).err();
        let bad = Some(DecodeError::Value { what: name, fault: Fault::BadKey { constructor: 0xa1 } });
        assert_eq!(error(&map(&[string, null])), bad);
        // Keys are the same in whatever width they are written.
        let twice = Some(DecodeError::Value { what: name, fault: Fault::DuplicateKey });
        assert_eq!(error(&map(&[symbol, null, wide, null])), twice);
        assert_eq!(error(&map(&[ulong, null, symbol, null, wide_ulong, null])), twice);
    }
    parse(&section(0x74, &map(&[string, null]))).expect("fine");
    for key in [symbol, ulong, null] {
        assert!(matches!(
            parse(&section(0x74, &map(&[key, null]))).err(),
            Some(DecodeError::Value { fault: Fault::BadKey { .. }, .. })
        ));
    }
}

#[test]
fn part_3_2_6_to_8_bodies() {
    let mut data = Vec::new();
    write_data(&mut data, b"ab");
    write_data(&mut data, b"");
    let view = parse(&data).expect("a message");
    assert_eq!(view.body().collect::<Vec<_>>(), [BodySection::Data(b"ab"), BodySection::Data(b"")]);
    let mut sequence = Vec::new();
    write_sequence(&mut sequence, |list| put_int(list.next(), -3));
    write_sequence(&mut sequence, |_| {});
    let lens: Vec<_> = parse(&sequence)
        .expect("a message")
        .body()
        .map(|body| match body {
            BodySection::Sequence(list) => list.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lens, [1, 0]);
    let mut value = Vec::new();
    write_value(&mut value, |out| put_string(out, "text"));
    let texts: Vec<_> = parse(&value)
        .expect("a message")
        .body()
        .map(|body| match body {
            BodySection::Value(value) => value.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, [Some("text")]);
    // The constructor of each section is its own.
    for (code, value, expected) in [
        (0x75, &[0xa1, 1, b'x'][..], "binary"),
        (0x75, &[0x45], "binary"),
        (0x76, &[0xc1, 1, 0], "list"),
        (0x76, &[0xa0, 0], "list"),
        (0x78, &[0xc0, 1, 0], "map"),
    ] {
        let bytes = section(code, value);
        let fault = Fault::WrongType { expected, constructor: value[0] };
        assert!(matches!(parse(&bytes).err(), Some(DecodeError::Value { fault: f, .. }) if f == fault));
        let header = section(0x70, &[0x45]);
        let mut scan = parse(&header).expect("a header").body_scan(&limits());
        assert!(matches!(scan.push(&bytes).err(), Some(DecodeError::Value { fault: f, .. }) if f == fault));
    }
    // Cut short, and with bytes that are no section behind it.
    assert!(matches!(
        parse(&section(0x75, &[0xa0, 3, 1, 2])).err(),
        Some(DecodeError::Value { what: "data", fault: Fault::Truncated { needed: 3, left: 2 } })
    ));
    assert!(parse(&[section(0x75, &[0xa0, 0]), vec![1]].concat()).is_err());
    assert!(parse(&[section(0x78, &[0xc1, 1, 0]), vec![1]].concat()).is_err());
}

#[test]
fn a_prefix_says_when_it_needs_more() {
    let bytes = rich();
    let whole = parse(&bytes).expect("a message");
    let body = whole.layout().body_start();
    let total = Some(bytes.len() as u64);
    for len in 0..bytes.len() {
        for total in [total, None] {
            let view = MessageView::parse_prefix(&bytes[..len], total, &limits()).expect("no error in it");
            // The descriptor of the body, three bytes, shows that the sections before it are complete.
            assert_eq!(view.is_some(), len >= body + 3, "{len}");
            let Some(view) = view else { continue };
            assert_eq!((view.header(), view.properties()), (whole.header(), whole.properties()));
            assert_eq!(view.application_property("color").and_then(|v| v.as_str()), Some("red"));
            assert_eq!(view.layout().body_kind(), Some(Section::Data));
            assert!(!view.layout().is_whole());
            assert_eq!(view.body().count(), 0, "not complete");
            assert_eq!(view.bare(), &bytes[whole.layout().bare_start()..len]);
        }
    }
    // All bytes are here, but nobody knows: more may follow.
    let view = MessageView::parse_prefix(&bytes, None, &limits()).expect("fine").expect("a view");
    assert!(!view.layout().is_whole());
    // The message ends earlier than its sections say.
    let mut complete = 0;
    for len in 1..bytes.len() {
        match MessageView::parse_prefix(&bytes[..len], Some(len as u64), &limits()) {
            Ok(view) => {
                assert!(view.is_some_and(|v| v.layout().is_whole()), "{len}");
                complete += 1;
            }
            Err(error) => assert_eq!(error.condition(), "amqp:decode-error", "{len}: {error}"),
        }
    }
    assert_eq!(complete, 4, "the ends of the four sections before the body");
}

#[test]
fn a_prefix_is_no_reason_to_hold_more_than_a_head() {
    let small = Limits { message_head_bytes: 100, ..limits() };
    let error = DecodeError::HeadTooLarge { limit: 100 };
    let too_large = Err(error);
    // The size alone tells, long before the bytes are there.
    let bytes = section(0x74, &[0xd1, 0, 0, 1, 0]);
    assert_eq!(MessageView::parse_prefix(&bytes, None, &small).map(|_| ()), too_large);
    let bytes = [section(0x70, &[0x45]), section(0x72, &[0xc1, 95])].concat();
    assert_eq!(MessageView::parse_prefix(&bytes, None, &small).map(|_| ()), too_large);
    assert_eq!(error.condition(), "amqp:resource-limit-exceeded");
    assert_eq!(error.to_string(), "message sections before the body: more than 100 bytes");
    // A body is as large as it likes.
    let mut body = Vec::new();
    write_data(&mut body, &[0; 1000]);
    MessageView::parse(&body, &small).expect("fine");
    MessageView::parse_prefix(&body[..4], None, &small).expect("fine").expect("a view");
}

#[test]
fn a_streamed_body_is_checked_in_any_pieces() {
    let mut bytes = rich();
    let body = parse(&bytes).expect("a message").layout().body_start();
    write_data(&mut bytes, &vec![7; 70_000]);
    let footer = bytes.len();
    bytes.extend_from_slice(&section(0x78, &[0xc1, 5, 2, 0xa3, 1, b'f', 0x43]));
    let view = MessageView::parse_prefix(&bytes[..body + 10], None, &limits()).expect("fine").expect("a view");
    for size in [1, 2, 3, 5, 64, 1000, 65_536, bytes.len()] {
        let mut scan = view.body_scan(&limits());
        for chunk in bytes[body..].chunks(size) {
            scan.push(chunk).expect("fine");
        }
        assert_eq!(scan.finish(), Ok(footer as u64), "chunks of {size}");
        // From the first byte on, without a view.
        let mut scan = BodyScan::new(&limits());
        for chunk in bytes.chunks(size) {
            scan.push(chunk).expect("fine");
        }
        assert_eq!(scan.finish(), Ok(footer as u64), "chunks of {size}");
    }
    assert_eq!(BodyScan::new(&limits()).finish(), Err(DecodeError::EmptyMessage));
    let error = BodyScan::new(&limits()).push(&section(0x73, &[0xc1, 1, 0])).expect_err("a map");
    let fault = Fault::WrongType { expected: "list", constructor: 0xc1 };
    assert_eq!(error, DecodeError::Value { what: "properties", fault });
    // Cut anywhere but between sections it is cut short.
    for cut in [body + 1, body + 3, body + 4, body + 9, footer - 1, footer + 2, bytes.len() - 1] {
        let mut scan = view.body_scan(&limits());
        scan.push(&bytes[body..cut]).expect("fine so far");
        assert!(matches!(scan.finish(), Err(DecodeError::Value { fault: Fault::Truncated { .. }, .. })), "{cut}");
    }
    // The section order holds on from what stands before the body.
    let mut scan = view.body_scan(&limits());
    let error = scan.push(&section(0x73, &[0x45])).expect_err("properties again");
    assert_eq!(error, DecodeError::SectionOrder { section: "properties", after: "application-properties" });
    // A message of a header and nothing else.
    let header = section(0x70, &[0x45]);
    let scan = parse(&header).expect("a message").body_scan(&limits());
    assert_eq!(scan.finish(), Ok(4));
}

#[test]
fn a_streamed_body_of_any_value() {
    let mut values: Vec<Vec<u8>> = Vec::new();
    let mut value = Vec::new();
    write_value(&mut value, |out| {
        put_symbolic_descriptor(out, &"long-descriptor".repeat(20));
        put_descriptor(out, 1 << 40);
        ValueWriter::map(out, |map| {
            put_string(map.next(), "k");
            put_symbols(map.next(), &Symbols::from_slice(&["a"]));
        });
    });
    values.push(value);
    for scalar in [&[0x40][..], &[0x41], &[0x80, 0, 0, 0, 0, 0, 0, 0, 1], &[0xe0, 4, 1, 0xa3, 1, b'x']] {
        values.push(section(0x77, scalar));
    }
    let header = section(0x70, &[0x45]);
    for value in values {
        parse(&value).expect("a message");
        for size in [1, 2, 7, 1000] {
            let mut scan = parse(&header).expect("a header").body_scan(&limits());
            for chunk in value.chunks(size) {
                scan.push(chunk).expect("fine");
            }
            assert_eq!(scan.finish(), Ok(4 + value.len() as u64));
        }
        crate::fuzz::message(&value);
    }
    // The faults that sizes show.
    for (bytes, fault) in [
        (&[0xd0, 0, 0, 0, 2][..], Fault::SizeTooSmall { size: 2 }),
        (&[0xc0, 2, 9], Fault::CountTooLarge { count: 9, bytes: 1 }),
        (&[0xc1, 4, 3], Fault::OddMap { count: 3 }),
        (&[0x01], Fault::UnknownConstructor(1)),
        (&[0x00, 0xa1], Fault::BadDescriptor { constructor: 0xa1 }),
    ] {
        let mut scan = parse(&header).expect("a header").body_scan(&limits());
        let error = scan.push(&section(0x77, bytes)).expect_err("a fault");
        assert_eq!(error, DecodeError::Value { what: "amqp-value", fault });
    }
    let mut scan = parse(&header).expect("a header").body_scan(&limits());
    let error = scan.push(&section(0x77, &[0x00, 0x53, 1].repeat(33))).expect_err("too deep");
    assert_eq!(error, DecodeError::Value { what: "amqp-value", fault: Fault::TooDeep { limit: 32 } });
    // Something that never becomes a section is told after 64 bytes at the latest.
    let mut scan = parse(&header).expect("a header").body_scan(&limits());
    let junk = [&[0x00, 0xb3, 0, 1, 0, 0][..], &[b'x'; 100]].concat();
    assert_eq!(scan.push(&junk), Err(DecodeError::UnknownSection { code: None }));
}

#[test]
fn part_3_4_5_modified_annotations_merge() {
    let section = |fill: &dyn Fn(&mut ValueWriter<'_>)| {
        let mut out = Vec::new();
        write_annotations(&mut out, fill);
        out
    };
    let current = section(&|map| {
        put_symbol(map.next(), "a");
        put_uint(map.next(), 1);
        put_symbol(map.next(), "b");
        put_uint(map.next(), 2);
        put_ulong(map.next(), 3);
        put_null(map.next());
    });
    // "b" again in the wide form of a symbol; the number 3 as a ulong of eight bytes.
    let changes = section(&|map| {
        put_symbol(map.next(), "z");
        put_boolean(map.next(), true);
        map.next().extend_from_slice(&[0xb3, 0, 0, 0, 1, b'b']);
        put_string(map.next(), "new");
        map.next().extend_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 0, 3]);
        put_boolean(map.next(), false);
        put_symbol(map.next(), "y");
        put_null(map.next());
    });
    let expected = section(&|map| {
        put_symbol(map.next(), "a");
        put_uint(map.next(), 1);
        put_symbol(map.next(), "b");
        put_string(map.next(), "new");
        put_ulong(map.next(), 3);
        put_boolean(map.next(), false);
        put_symbol(map.next(), "z");
        put_boolean(map.next(), true);
        put_symbol(map.next(), "y");
        put_null(map.next());
    });
    let map_of = |bytes: &'static [u8]| parse(bytes).expect("a message").message_annotations().expect("annotations");
    let (current, changes) = (map_of(current.leak()), map_of(changes.leak()));
    let mut merged = Vec::new();
    merge_annotations(&mut merged, Some(current), &changes);
    assert_eq!(merged, expected);
    // Without annotations before, the changes are all there is.
    merged.clear();
    merge_annotations(&mut merged, None, &changes);
    assert_eq!(parse(&merged).expect("a message").message_annotations(), Some(changes));
    // Changed again by the same, nothing changes.
    let before = expected.clone();
    merged.clear();
    merge_annotations(&mut merged, parse(&before).expect("a message").message_annotations(), &changes);
    assert_eq!(merged, before);
}
