//! Frames that end the process of other brokers and clients. Each must be a clear protocol error here, on a small stack,
//! without a large allocation (there is none at all in decoding). The header of each case says what it does to others.

use super::*;
use crate::message::MessageView;
use alloc::string::ToString;
use alloc::vec;

/// A message whose body is one amqp-value section.
fn amqp_value(value: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, 0x77], value].concat()
}

fn message_error(bytes: &[u8]) -> DecodeError {
    MessageView::parse(bytes, &limits()).expect_err("not a valid message")
}

/// The error of an AMQP frame's body; its condition and sentence are looked at too.
fn frame_error(body: &[u8]) -> DecodeError {
    let error = Performative::decode(body, &limits()).expect_err("not a valid frame");
    assert_eq!(error.condition(), "amqp:decode-error");
    assert!(error.to_string().len() > 20, "{error}");
    error
}

/// `open` with `container-id` "c" and then `items` from the second field on.
fn open(count: u32, items: &[u8]) -> Vec<u8> {
    composite(0x10, count + 1, &[&[0xa1, 1, b'c'], items].concat())
}

/// `levels` of list32, each of one element, well formed.
fn nested_list32(levels: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for level in 0..levels {
        let inside = (levels - level - 1) * 9 + 1;
        bytes.push(0xd0);
        bytes.extend_from_slice(&(inside as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(&1u32.to_be_bytes());
    }
    bytes.push(0x40);
    bytes
}

// abort by stack: ntex-codec 3.0, serde_amqp 0.18
#[test]
fn case_20_000_nested_list8_with_inconsistent_sizes() {
    on_small_stack(|| {
        let nested = [0xc0, 0xff, 1].repeat(20_000);
        let error = message_error(&amqp_value(&nested));
        assert!(matches!(error, DecodeError::Value { what: "amqp-value", .. }), "{error}");
        assert_eq!(error.condition(), "amqp:decode-error");
    });
}

// abort by stack: ntex-codec 3.0, serde_amqp 0.18
#[test]
fn case_7_000_well_formed_nested_list32() {
    on_small_stack(|| {
        let error = message_error(&amqp_value(&nested_list32(7_000)));
        assert_eq!(error, DecodeError::Value { what: "amqp-value", fault: Fault::TooDeep { limit: 32 } });
        // The limit itself is fine: what is only passed on may nest 32 deep, what we look into 16.
        MessageView::parse(&amqp_value(&nested_list32(32)), &limits()).expect("32 levels");
        Value::from_encoded(&nested_list32(16), &limits()).expect("16 levels");
        assert_eq!(fault(&nested_list32(17)), Fault::TooDeep { limit: 16 });
    });
}

// abort by stack: ntex-codec 3.0, serde_amqp 0.18
#[test]
fn case_20_000_nested_described_values() {
    on_small_stack(|| {
        let mut nested = [0x00, 0x53, 0x01].repeat(20_000);
        nested.push(0x40);
        let error = message_error(&amqp_value(&nested));
        assert_eq!(error, DecodeError::Value { what: "amqp-value", fault: Fault::TooDeep { limit: 32 } });
        // The same as descriptors of descriptors.
        let error = message_error(&amqp_value(&vec![0x00; 20_000]));
        assert_eq!(error, DecodeError::Value { what: "amqp-value", fault: Fault::BadDescriptor { constructor: 0 } });
    });
}

// abort by stack: serde_amqp 0.18
#[test]
fn case_20_000_nested_arrays() {
    on_small_stack(|| {
        // An array of one array of one array …: each level is size, count, constructor.
        let mut nested = vec![0xf0];
        let levels = 20_000usize;
        for level in 0..levels {
            let inside = (levels - level - 1) * 9 + 1;
            nested.extend_from_slice(&(inside as u32 + 4 + 1).to_be_bytes());
            nested.extend_from_slice(&1u32.to_be_bytes());
            nested.push(if level + 1 == levels { 0x41 } else { 0xf0 });
        }
        nested.push(0);
        let error = message_error(&amqp_value(&nested));
        assert_eq!(error, DecodeError::Value { what: "amqp-value", fault: Fault::TooDeep { limit: 32 } });
        // Arrays whose constructor is described 20,000 times.
        let constructor = [0x00, 0x53, 0x01].repeat(20_000);
        let mut array = vec![0xf0];
        array.extend_from_slice(&(constructor.len() as u32 + 5).to_be_bytes());
        array.extend_from_slice(&1u32.to_be_bytes());
        array.extend_from_slice(&constructor);
        array.push(0x40);
        let error = message_error(&amqp_value(&array));
        assert_eq!(error, DecodeError::Value { what: "amqp-value", fault: Fault::TooDeep { limit: 32 } });
    });
}

// abort by an allocation of 274 GB: ntex-codec 3.0
#[test]
fn case_list32_of_count_4_g_in_16_bytes() {
    let list = [0xd0, 0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff, 0x40, 0x40, 0x40, 0x40];
    assert_eq!(fault(&list), Fault::CountTooLarge { count: u32::MAX, bytes: 4 });
    let error = message_error(&amqp_value(&list));
    assert_eq!(error.to_string(), "amqp-value: a compound value that says it has 4294967295 elements in 4 bytes");
}

// abort by allocation: ntex-codec 3.0
#[test]
fn case_map32_of_count_4_g_in_application_properties() {
    let bytes = [0x00, 0x53, 0x74, 0xd1, 0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0x40, 0x40, 0x40, 0x40];
    let error = message_error(&bytes);
    assert_eq!(
        error,
        DecodeError::Value {
            what: "application-properties",
            fault: Fault::CountTooLarge { count: u32::MAX - 1, bytes: 4 }
        }
    );
}

// abort by allocation: ntex-codec 3.0
#[test]
fn case_open_with_a_capabilities_array_of_count_4_g() {
    let nulls = [0x40; 6];
    let mut items = nulls.to_vec();
    items.extend_from_slice(&[0xf0, 0, 0, 0, 6, 0xff, 0xff, 0xff, 0xff, 0xa3, 0]);
    let error = frame_error(&open(7, &items));
    assert_eq!(
        error,
        DecodeError::Field {
            composite: "open",
            field: "offered-capabilities",
            fault: Fault::CountTooLarge { count: u32::MAX, bytes: 1 }
        }
    );
}

// abort by stack: ntex-codec 3.0, serde_amqp 0.18
#[test]
fn case_open_with_nested_properties() {
    on_small_stack(|| {
        let mut map = nested_list32(6_000);
        map.splice(..0, [0xa3, 1, b'k']);
        let mut items = vec![0x40; 8];
        items.push(0xd1);
        items.extend_from_slice(&(map.len() as u32 + 4).to_be_bytes());
        items.extend_from_slice(&2u32.to_be_bytes());
        items.extend_from_slice(&map);
        let error = frame_error(&open(9, &items));
        assert_eq!(
            error,
            DecodeError::Field { composite: "open", field: "properties", fault: Fault::TooDeep { limit: 16 } }
        );
    });
}

// abort, exit 134, of a live acceptor: fe2o3-amqp 0.18.4
#[test]
fn case_begin_of_60_059_bytes_with_nested_properties() {
    on_small_stack(|| {
        let nested = [0xc1, 0xff, 2, 0x40].repeat(15_000);
        let mut items = vec![0x40, 0x43, 0x52, 1, 0x52, 1, 0x40, 0x40, 0x40];
        items.extend_from_slice(&nested);
        let error = frame_error(&composite(0x11, 8, &items));
        assert!(matches!(error, DecodeError::Field { composite: "begin", field: "properties", .. }), "{error}");
    });
}

// accepted lazily: ntex-codec 3.0
#[test]
fn case_array32_of_4_g_zero_width_elements() {
    for element in [0x40, 0x41, 0x43, 0x44, 0x45] {
        let array = [0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, element];
        assert_eq!(fault(&array), Fault::ZeroWidthArray { count: u32::MAX, limit: 1024 });
        let error = message_error(&amqp_value(&array));
        assert!(matches!(error, DecodeError::Value { fault: Fault::ZeroWidthArray { .. }, .. }), "{error}");
    }
}

// wraps and is accepted, or panics: ntex-codec 3.0, serde_amqp 0.18
#[test]
fn case_compound_of_size_0() {
    for code in [0xc0, 0xc1, 0xe0] {
        assert_eq!(fault(&[code, 0, 0, 0]), Fault::SizeTooSmall { size: 0 });
    }
    for code in [0xd0, 0xd1, 0xf0] {
        for size in 0..4 {
            assert_eq!(fault(&[code, 0, 0, 0, size, 0, 0, 0, 0]), Fault::SizeTooSmall { size: size.into() });
        }
    }
    let error = frame_error(&[0x00, 0x53, 0x10, 0xd0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(error, DecodeError::Value { what: "open", fault: Fault::SizeTooSmall { size: 0 } });
    let error = message_error(&[0x00, 0x53, 0x70, 0xc0, 0, 0]);
    assert_eq!(error, DecodeError::Value { what: "header", fault: Fault::SizeTooSmall { size: 0 } });
}

// panic: ntex-codec 3.0
#[test]
fn case_map_as_a_map_key() {
    // A map of one pair whose key is a map: legal as a value, kept in order, equal only to itself.
    let bytes = [0xc1, 7, 2, 0xc1, 3, 2, 0x40, 0x40, 0x41];
    let map = Value::from_encoded(&bytes, &limits()).expect("a map").as_map().expect("a map");
    let (key, value) = map.iter().next().expect("a pair");
    assert_eq!((key.as_map().map(|m| m.len()), value.as_bool()), (Some(1), Some(true)));
    // As a key of application-properties it is refused.
    let error = message_error(&[&[0x00, 0x53, 0x74], &bytes[..]].concat());
    assert_eq!(
        error,
        DecodeError::Value { what: "application-properties", fault: Fault::BadKey { constructor: 0xc1 } }
    );
}

// panic of a task by 4 bytes before login: fe2o3-amqp
#[test]
fn case_frame_size_below_8() {
    for size in 0..8u32 {
        let error = FrameHeader::parse(&size.to_be_bytes(), 65_536, FrameKind::Sasl).expect_err("too small");
        assert_eq!(error, DecodeError::FrameTooSmall { size });
        assert_eq!(error.condition(), "amqp:connection:framing-error");
    }
    assert_eq!(DecodeError::FrameTooSmall { size: 4 }.to_string(), "frame of size 4: the header alone has 8 bytes");
}

// refused although legal: serde_amqp 0.18
#[test]
fn case_doff_3_is_an_extended_header_and_skipped() {
    let mut frame = vec![0, 0, 0, 0, 3, 0, 0, 7, 0xde, 0xad, 0xbe, 0xef];
    End::default().encode(&mut frame);
    FrameHeader::end(&mut frame, 0);
    let header = FrameHeader::parse(&frame, 512, FrameKind::Amqp).expect("legal").expect("complete");
    assert_eq!((header.doff, header.channel, header.size as usize), (3, 7, frame.len()));
    let (performative, payload) = Performative::decode(header.body(&frame), &limits()).expect("legal").expect("a body");
    assert_eq!((performative, payload), (End::default().into(), &[][..]));
}

// clean errors elsewhere too
#[test]
fn case_bad_utf8_surrogate_char_and_binary32_of_4_g() {
    let error = frame_error(&composite(0x10, 1, &[0xa1, 2, 0xc3, 0x28]));
    assert_eq!(error, DecodeError::Field { composite: "open", field: "container-id", fault: Fault::BadUtf8 });
    assert_eq!(fault(&[0x73, 0, 0, 0xdf, 0xff]), Fault::BadChar(0xdfff));
    let huge = [0xb0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3];
    assert_eq!(fault(&huge), Fault::Truncated { needed: u64::from(u32::MAX), left: 3 });
    let error = message_error(&[&[0x00, 0x53, 0x75], &huge[..]].concat());
    assert_eq!(
        error.to_string(),
        "data: cut short: 4294967295 bytes needed, 3 left",
        "the sentence names the section, what it says and what there is"
    );
}

#[test]
fn case_transactional_states_inside_each_other() {
    on_small_stack(|| {
        // A state inside a state inside a state …: each is a list32 of txn-id and outcome.
        let levels = 3_000usize;
        let mut state = Vec::new();
        for level in 0..levels {
            let inside = (levels - level - 1) * 15 + 1;
            state.extend_from_slice(&[0x00, 0x53, 0x34, 0xd0]);
            state.extend_from_slice(&(inside as u32 + 4 + 3).to_be_bytes());
            state.extend_from_slice(&2u32.to_be_bytes());
            state.extend_from_slice(&[0xa0, 1, 1]);
        }
        state.push(0x40);
        let mut items = vec![0x41, 0x43, 0x40, 0x41];
        items.extend_from_slice(&state);
        let error = Performative::decode(&composite(0x15, 5, &items), &limits()).expect_err("nested");
        assert_eq!(
            error,
            DecodeError::Value {
                what: "outcome",
                fault: Fault::UnknownDescriptor { expected: "an outcome", code: Some(0x34) }
            }
        );
    });
}

#[test]
fn case_a_map_full_of_keys_costs_no_square_of_them() {
    // 200,000 different keys in a map just below the limit of a head; with a comparison of each pair this takes minutes.
    let mut bytes = vec![0x00, 0x53, 0x72, 0xd1, 0, 0, 0, 0, 0, 0, 0, 0];
    let keys = 80_000u32;
    for key in 0..keys {
        put_ulong(&mut bytes, u64::from(key) + 0x100);
        put_null(&mut bytes);
    }
    let size = bytes.len() as u32 - 8;
    bytes[4..8].copy_from_slice(&size.to_be_bytes());
    bytes[8..12].copy_from_slice(&(keys * 2).to_be_bytes());
    let view = MessageView::parse(&bytes, &limits()).expect("legal");
    assert_eq!(view.message_annotations().map(|m| m.len()), Some(keys));
    // The last key again.
    let last = bytes.len() - 10;
    let again = bytes[last..].to_vec();
    bytes.extend_from_slice(&again);
    bytes[4..8].copy_from_slice(&(size + 10).to_be_bytes());
    bytes[8..12].copy_from_slice(&(keys * 2 + 2).to_be_bytes());
    let error = message_error(&bytes);
    assert_eq!(error, DecodeError::Value { what: "message-annotations", fault: Fault::DuplicateKey });
}
