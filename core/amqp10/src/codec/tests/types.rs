//! Part 1: every encoding of every type, and what is wrong in each.

use super::*;
use alloc::vec;

/// All of `bytes` is one value that holds `data`.
fn holds(bytes: &[u8], data: Data<'_>) {
    let value = Value::from_encoded(bytes, &limits()).unwrap_or_else(|e| panic!("{bytes:02x?}: {e}"));
    assert_eq!(value.data(), data, "{bytes:02x?}");
    assert_eq!(value.as_bytes(), bytes);
    // Each prefix is cut short, and says so.
    for len in 0..bytes.len() {
        assert!(
            matches!(Value::from_encoded(&bytes[..len], &limits()), Err(Fault::Truncated { .. })),
            "{:02x?}",
            &bytes[..len]
        );
    }
    // More bytes are more than one value.
    let mut more = bytes.to_vec();
    more.push(0x40);
    assert_eq!(Value::from_encoded(&more, &limits()), Err(Fault::SizeMismatch));
    let (first, rest) = Value::first(&more, &limits()).expect("a value");
    assert_eq!((first, rest), (value, &[0x40][..]));
}

/// `put` writes `bytes`, the shortest form, and that is read as `data`.
fn shortest(put: impl FnOnce(&mut Vec<u8>), bytes: &[u8], data: Data<'_>) {
    let mut out = Vec::new();
    put(&mut out);
    assert_eq!(out, bytes);
    holds(bytes, data);
}

#[test]
fn part_1_6_1_null() {
    shortest(put_null, &[0x40], Data::Null);
    assert!(Value::NULL.is_null());
}

#[test]
fn part_1_6_2_boolean() {
    shortest(|o| put_boolean(o, true), &[0x41], Data::Boolean(true));
    shortest(|o| put_boolean(o, false), &[0x42], Data::Boolean(false));
    holds(&[0x56, 0], Data::Boolean(false));
    holds(&[0x56, 1], Data::Boolean(true));
    assert_eq!(fault(&[0x56, 2]), Fault::BadBoolean(2));
}

#[test]
fn part_1_6_3_to_6_unsigned_of_all_widths() {
    shortest(|o| put_ubyte(o, 0xff), &[0x50, 0xff], Data::Ubyte(0xff));
    shortest(|o| put_ushort(o, 0x1234), &[0x60, 0x12, 0x34], Data::Ushort(0x1234));
    shortest(|o| put_uint(o, 0), &[0x43], Data::Uint(0));
    shortest(|o| put_uint(o, 0xff), &[0x52, 0xff], Data::Uint(0xff));
    shortest(|o| put_uint(o, 0x100), &[0x70, 0, 0, 1, 0], Data::Uint(0x100));
    holds(&[0x70, 0, 0, 0, 7], Data::Uint(7));
    holds(&[0x52, 0], Data::Uint(0));
    shortest(|o| put_ulong(o, 0), &[0x44], Data::Ulong(0));
    shortest(|o| put_ulong(o, 0xff), &[0x53, 0xff], Data::Ulong(0xff));
    shortest(|o| put_ulong(o, 0x100), &[0x80, 0, 0, 0, 0, 0, 0, 1, 0], Data::Ulong(0x100));
    holds(&[0x80, 0, 0, 0, 0, 0, 0, 0, 7], Data::Ulong(7));
}

#[test]
fn part_1_6_7_to_10_signed_of_all_widths() {
    shortest(|o| put_byte(o, -2), &[0x51, 0xfe], Data::Byte(-2));
    shortest(|o| put_short(o, -2), &[0x61, 0xff, 0xfe], Data::Short(-2));
    shortest(|o| put_int(o, -128), &[0x54, 0x80], Data::Int(-128));
    shortest(|o| put_int(o, 128), &[0x71, 0, 0, 0, 0x80], Data::Int(128));
    holds(&[0x71, 0xff, 0xff, 0xff, 0xff], Data::Int(-1));
    shortest(|o| put_long(o, -1), &[0x55, 0xff], Data::Long(-1));
    shortest(|o| put_long(o, 1 << 40), &[0x81, 0, 0, 1, 0, 0, 0, 0, 0], Data::Long(1 << 40));
    holds(&[0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Data::Long(-1));
}

#[test]
fn part_1_6_11_to_15_floats_and_decimals() {
    shortest(|o| put_float(o, 1.5), &[0x72, 0x3f, 0xc0, 0, 0], Data::Float(1.5));
    shortest(|o| put_double(o, -2.0), &[0x82, 0xc0, 0, 0, 0, 0, 0, 0, 0], Data::Double(-2.0));
    shortest(|o| put_decimal32(o, [1, 2, 3, 4]), &[0x74, 1, 2, 3, 4], Data::Decimal32([1, 2, 3, 4]));
    shortest(|o| put_decimal64(o, [9; 8]), &[0x84, 9, 9, 9, 9, 9, 9, 9, 9], Data::Decimal64([9; 8]));
    let mut bytes = vec![0x94];
    bytes.extend_from_slice(&[7; 16]);
    shortest(|o| put_decimal128(o, [7; 16]), &bytes, Data::Decimal128([7; 16]));
}

#[test]
fn part_1_6_16_char_is_a_scalar_value() {
    shortest(|o| put_char(o, 'é'), &[0x73, 0, 0, 0, 0xe9], Data::Char('é'));
    assert_eq!(fault(&[0x73, 0, 0, 0xd8, 0]), Fault::BadChar(0xd800), "a surrogate");
    assert_eq!(fault(&[0x73, 0, 0x11, 0, 0]), Fault::BadChar(0x11_0000), "past the last");
}

#[test]
fn part_1_6_17_timestamp_and_18_uuid() {
    shortest(|o| put_timestamp(o, -1), &[0x83, 255, 255, 255, 255, 255, 255, 255, 255], Data::Timestamp(-1));
    let mut bytes = vec![0x98];
    bytes.extend_from_slice(&[3; 16]);
    shortest(|o| put_uuid(o, [3; 16]), &bytes, Data::Uuid([3; 16]));
}

#[test]
fn part_1_6_19_to_21_binary_string_symbol_of_both_widths() {
    shortest(|o| put_binary(o, &[1, 2]), &[0xa0, 2, 1, 2], Data::Binary(&[1, 2]));
    holds(&[0xb0, 0, 0, 0, 1, 9], Data::Binary(&[9]));
    shortest(|o| put_string(o, "é"), &[0xa1, 2, 0xc3, 0xa9], Data::String("é"));
    holds(&[0xb1, 0, 0, 0, 0], Data::String(""));
    shortest(|o| put_symbol(o, "ab"), &[0xa3, 2, b'a', b'b'], Data::Symbol("ab"));
    holds(&[0xb3, 0, 0, 0, 1, b'z'], Data::Symbol("z"));
    let long = "x".repeat(256);
    let mut bytes = vec![0xb1, 0, 0, 1, 0];
    bytes.extend_from_slice(long.as_bytes());
    shortest(|o| put_string(o, &long), &bytes, Data::String(&long));
    assert_eq!(fault(&[0xa1, 1, 0xff]), Fault::BadUtf8);
    assert_eq!(fault(&[0xa1, 3, 0xed, 0xa0, 0x80]), Fault::BadUtf8, "a surrogate in UTF-8");
    assert_eq!(fault(&[0xa3, 2, 0xc3, 0xa9]), Fault::BadSymbol);
}

#[test]
fn part_1_6_22_list_of_all_widths() {
    for bytes in [&[0x45][..], &[0xc0, 1, 0], &[0xd0, 0, 0, 0, 4, 0, 0, 0, 0]] {
        let value = Value::from_encoded(bytes, &limits()).expect("a list");
        assert_eq!(value.as_list().map(|l| (l.len(), l.iter().count())), Some((0, 0)));
    }
    for bytes in [&[0xc0, 4, 2, 0x41, 0x52, 7][..], &[0xd0, 0, 0, 0, 7, 0, 0, 0, 2, 0x41, 0x52, 7]] {
        let list = Value::from_encoded(bytes, &limits()).expect("a list").as_list().expect("a list");
        let data: Vec<_> = list.iter().map(|v| v.data()).collect();
        assert_eq!(data, [Data::Boolean(true), Data::Uint(7)]);
    }
}

#[test]
fn part_1_6_22_list_sizes_must_add_up() {
    assert_eq!(fault(&[0xc0, 0]), Fault::SizeTooSmall { size: 0 });
    assert_eq!(fault(&[0xd0, 0, 0, 0, 3, 0, 0, 0]), Fault::SizeTooSmall { size: 3 });
    assert_eq!(fault(&[0xc0, 2, 2, 0x40]), Fault::CountTooLarge { count: 2, bytes: 1 });
    assert_eq!(fault(&[0xc0, 3, 1, 0x40, 0x40]), Fault::SizeMismatch);
    assert_eq!(fault(&[0xc0, 3, 0, 0x40, 0x40]), Fault::SizeMismatch);
    // An element that reaches past its list, into bytes that are there.
    assert!(matches!(fault(&[0xc0, 5, 2, 0xc0, 2, 1, 0x52, 7]), Fault::Truncated { .. }));
}

#[test]
fn part_1_6_23_map_is_pairs_in_order() {
    let mut bytes = Vec::new();
    ValueWriter::map(&mut bytes, |map| {
        put_symbol(map.next(), "b");
        put_uint(map.next(), 1);
        put_string(map.next(), "a");
        ValueWriter::list(map.next(), |list| put_null(list.next()));
    });
    let value = Value::from_encoded(&bytes, &limits()).expect("a map");
    let map = value.as_map().expect("a map");
    assert_eq!(map.len(), 2);
    let keys: Vec<_> = map.iter().map(|(k, _)| k.as_text()).collect();
    assert_eq!(keys, [Some("b"), Some("a")]);
    assert_eq!(map.get("b").and_then(|v| v.as_u32()), Some(1));
    assert_eq!(map.get("a").and_then(|v| v.as_list()).map(|l| l.len()), Some(1));
    assert_eq!(map.get("c"), None);
    let mut again = Vec::new();
    put_map(&mut again, &map);
    assert_eq!(again, bytes);
    assert_eq!(fault(&[0xc1, 2, 1, 0x40]), Fault::OddMap { count: 1 });
}

#[test]
fn part_1_6_24_array_has_one_constructor() {
    let bytes = [0xe0, 8, 3, 0x70, 0, 0, 0, 1, 0, 0];
    assert_eq!(fault(&bytes), Fault::CountTooLarge { count: 3, bytes: 6 });
    let bytes = [0xe0, 10, 2, 0x70, 0, 0, 0, 1, 0, 0, 0, 2];
    let array = Value::from_encoded(&bytes, &limits()).expect("an array").as_array().expect("an array");
    assert_eq!((array.len(), array.element_constructor(), array.descriptor()), (2, 0x70, None));
    assert_eq!(array.iter().collect::<Vec<_>>(), [Data::Uint(1), Data::Uint(2)]);
    assert_eq!(fault(&[0xe0, 11, 2, 0x70, 0, 0, 0, 1, 0, 0, 0, 2, 3]), Fault::SizeMismatch);
    // Contents of elements are checked as those of single values.
    assert_eq!(fault(&[0xe0, 3, 1, 0x56, 2]), Fault::BadBoolean(2));
    assert_eq!(fault(&[0xe0, 6, 1, 0x73, 0, 0, 0xdc, 0]), Fault::BadChar(0xdc00));
    assert_eq!(fault(&[0xe0, 4, 1, 0xa1, 1, 0xff]), Fault::BadUtf8);
    // Without elements some encoders leave the constructor out.
    for bytes in [&[0xe0, 1, 0][..], &[0xe0, 2, 0, 0x40], &[0xf0, 0, 0, 0, 5, 0, 0, 0, 0, 0xa3]] {
        let array = Value::from_encoded(bytes, &limits()).expect("an array").as_array().expect("an array");
        assert!(array.is_empty() && array.iter().next().is_none());
    }
}

#[test]
fn part_1_6_24_array_of_lists_maps_arrays_and_described() {
    // Two lists, one map, one array, each an element without its own constructor.
    let lists = [0xe0, 8, 2, 0xc0, 1, 0, 3, 1, 0x52, 9];
    let array = Value::from_encoded(&lists, &limits()).expect("an array").as_array().expect("an array");
    let sizes: Vec<_> = array
        .iter()
        .map(|data| match data {
            Data::List(list) => list.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sizes, [0, 1]);
    let arrays = [0xe0, 7, 1, 0xe0, 4, 2, 0x50, 1, 2];
    let array = Value::from_encoded(&arrays, &limits()).expect("an array").as_array().expect("an array");
    let inner = match array.iter().next() {
        Some(Data::Array(inner)) => inner.iter().collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(inner, [Data::Ubyte(1), Data::Ubyte(2)]);
    // One descriptor for all elements.
    let described = [0xe0, 7, 2, 0x00, 0x53, 0x2a, 0x50, 1, 2];
    let array = Value::from_encoded(&described, &limits()).expect("an array").as_array().expect("an array");
    assert_eq!(array.descriptor(), Some(Descriptor::Code(0x2a)));
    assert_eq!(array.iter().collect::<Vec<_>>(), [Data::Ubyte(1), Data::Ubyte(2)]);
}

#[test]
fn part_1_6_24_array_of_zero_width_elements_is_capped() {
    let mut bytes = vec![0xf0, 0, 0, 0, 5];
    bytes.extend_from_slice(&1024u32.to_be_bytes());
    bytes.push(0x41);
    let array = Value::from_encoded(&bytes, &limits()).expect("an array").as_array().expect("an array");
    assert_eq!(array.iter().filter(|d| *d == Data::Boolean(true)).count(), 1024);
    bytes[5..9].copy_from_slice(&1025u32.to_be_bytes());
    assert_eq!(fault(&bytes), Fault::ZeroWidthArray { count: 1025, limit: 1024 });
}

#[test]
fn part_1_2_described_value_has_a_ulong_or_a_symbol() {
    for (bytes, descriptor) in [
        (&[0x00, 0x53, 0x24, 0x45][..], Descriptor::Code(0x24)),
        (&[0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x24, 0x45], Descriptor::Code(0x24)),
        (&[0x00, 0x44, 0x45], Descriptor::Code(0)),
        (&[0x00, 0xa3, 1, b'x', 0x45], Descriptor::Symbol("x")),
        (&[0x00, 0xb3, 0, 0, 0, 1, b'x', 0x45], Descriptor::Symbol("x")),
    ] {
        let (d, value) = Value::from_encoded(bytes, &limits()).expect("a value").as_described().expect("described");
        assert_eq!(d, descriptor);
        assert!(value.as_list().expect("a list").is_empty());
    }
    assert_eq!(fault(&[0x00, 0xa1, 1, b'x', 0x45]), Fault::BadDescriptor { constructor: 0xa1 });
    assert_eq!(fault(&[0x00, 0x40, 0x45]), Fault::BadDescriptor { constructor: 0x40 });
}

#[test]
fn part_1_2_constructors_without_a_type_are_errors() {
    let known = [
        0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x60, 0x61, 0x70, 0x71, 0x72,
        0x73, 0x74, 0x80, 0x81, 0x82, 0x83, 0x84, 0x94, 0x98, 0xa0, 0xa1, 0xa3, 0xb0, 0xb1, 0xb3, 0xc0, 0xc1, 0xd0,
        0xd1, 0xe0, 0xf0,
    ];
    for code in 1..=0xffu8 {
        let mut bytes = [0; 40];
        bytes[0] = code;
        let unknown = Value::first(&bytes, &limits()) == Err(Fault::UnknownConstructor(code));
        assert_eq!(unknown, !known.contains(&code), "0x{code:02x}");
        let array = [0xe0, 4, 1, code, 0, 0];
        let unknown = Value::from_encoded(&array, &limits()) == Err(Fault::UnknownConstructor(code));
        assert_eq!(unknown, !known.contains(&code), "array of 0x{code:02x}");
    }
}

#[test]
fn part_1_4_multiple_is_null_one_value_or_an_array() {
    let of = |bytes: &[u8]| -> Result<Vec<alloc::string::String>, DecodeError> {
        let frame = composite(0x40, 1, bytes);
        let (mechanisms, _) = SaslMechanisms::decode(&frame, &limits())?;
        Ok(mechanisms.sasl_server_mechanisms.iter().map(Into::into).collect())
    };
    assert_eq!(of(&[0xa3, 1, b'a']).expect("one"), ["a"]);
    assert_eq!(of(&[0xe0, 6, 2, 0xa3, 1, b'a', 1, b'b']).expect("two"), ["a", "b"]);
    let wide = [0xf0, 0, 0, 0, 0x0b, 0, 0, 0, 1, 0xb3, 0, 0, 0, 2, b'a', b'b'];
    let wide = [&wide[..4], &[12], &wide[5..]].concat();
    assert!(matches!(of(&wide), Err(DecodeError::Field { fault: Fault::Truncated { .. }, .. })));
    let wide = [&wide[..4], &[11], &wide[5..]].concat();
    assert_eq!(of(&wide).expect("wide"), ["ab"]);
    // Null and an array without elements are the same: nothing, which this field may not be.
    for bytes in [&[0x40][..], &[0xe0, 2, 0, 0xa3]] {
        assert!(matches!(of(bytes), Err(DecodeError::Field { fault: Fault::Missing, .. })));
    }
    // An array of another type, a string.
    assert!(matches!(of(&[0xe0, 4, 1, 0xa1, 1, b'a']), Err(DecodeError::Field { fault: Fault::WrongType { .. }, .. })));
    assert!(matches!(of(&[0xa1, 1, b'a']), Err(DecodeError::Field { fault: Fault::WrongType { .. }, .. })));
}

#[test]
fn part_1_6_22_long_lists_and_maps_are_written_wide() {
    let mut bytes = Vec::new();
    ValueWriter::list(&mut bytes, |list| {
        for _ in 0..300 {
            put_null(list.next());
        }
    });
    assert_eq!(bytes[..9], [0xd0, 0, 0, 1, 48, 0, 0, 1, 44]);
    assert_eq!(Value::from_encoded(&bytes, &limits()).expect("a list").as_list().map(|l| l.len()), Some(300));
    let mut bytes = vec![0xaa];
    ValueWriter::map(&mut bytes, |map| {
        put_string(map.next(), "key");
        put_binary(map.next(), &[5; 255]);
    });
    assert_eq!(bytes[1], 0xd1);
    let map = Map::from_encoded(&bytes[1..], &limits()).expect("a map");
    assert_eq!(map.get("key").and_then(|v| v.as_binary()), Some(&[5u8; 255][..]));
}

#[test]
fn part_1_6_22_the_widest_short_list_is_short() {
    // Size 255 with its count: 254 bytes of elements.
    for (elements, code) in [(254, 0xc0), (255, 0xd0)] {
        let mut bytes = Vec::new();
        ValueWriter::list(&mut bytes, |list| (0..elements).for_each(|_| put_null(list.next())));
        assert_eq!(bytes[0], code, "{elements} elements");
        assert_eq!(Value::from_encoded(&bytes, &limits()).expect("a list").as_list().map(|l| l.len()), Some(elements));
    }
}

#[test]
fn integers_of_any_type_are_one_number() {
    for bytes in [&[0x50, 5][..], &[0x60, 0, 5], &[0x52, 5], &[0x53, 5], &[0x51, 5], &[0x61, 0, 5], &[0x54, 5]] {
        assert_eq!(Value::from_encoded(bytes, &limits()).expect("a value").as_integer(), Some(5));
    }
    let timestamp = [0x83, 0, 0, 0, 0, 0, 0, 0, 5];
    assert_eq!(Value::from_encoded(&timestamp, &limits()).expect("a value").as_integer(), Some(5));
    assert_eq!(Value::from_encoded(&[0xa1, 1, b'5'], &limits()).expect("a value").as_integer(), None);
}
