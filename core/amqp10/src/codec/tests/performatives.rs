//! Parts 2 to 5: composite types as vectors of bytes, their defaults, their errors; frames.

use super::*;
use alloc::string::ToString;
use alloc::vec;

/// `value` is written as `bytes`, and read from them.
fn vector<'a>(value: impl Into<Performative<'a>>, bytes: &'a [u8]) {
    let value = value.into();
    let mut out = Vec::new();
    value.encode(&mut out);
    assert_eq!(out, bytes, "{value:?}");
    assert_eq!(Performative::decode(bytes, &limits()), Ok(Some((value, &[][..]))));
}

fn error_of(body: &[u8]) -> DecodeError {
    Performative::decode(body, &limits()).expect_err("not a valid frame")
}

#[test]
fn part_2_7_1_open_drops_defaults_and_trailing_nulls() {
    vector(Open { container_id: "c", ..Open::default() }, &[0x00, 0x53, 0x10, 0xc0, 4, 1, 0xa1, 1, b'c']);
    vector(
        Open {
            container_id: "c",
            max_frame_size: 512,
            channel_max: 9,
            idle_time_out: Some(250),
            desired_capabilities: Symbols::from_slice(&["a", "b"]),
            ..Open::default()
        },
        &[
            0x00, 0x53, 0x10, 0xc0, 26, 9, 0xa1, 1, b'c', 0x40, 0x70, 0, 0, 2, 0, 0x60, 0, 9, 0x52, 250, 0x40, 0x40,
            0x40, 0xe0, 6, 2, 0xa3, 1, b'a', 1, b'b',
        ],
    );
    let (open, _) = Open::decode(&[0x00, 0x53, 0x10, 0xc0, 4, 1, 0xa1, 1, b'c'], &limits()).expect("an open");
    assert_eq!((open.max_frame_size, open.channel_max, open.idle_time_out), (u32::MAX, u16::MAX, None));
    // Null is the default too, and so is what is written out.
    let (open, _) =
        Open::decode(&[0x00, 0x53, 0x10, 0xc0, 11, 4, 0xa1, 1, b'c', 0x40, 0x70, 255, 255, 255, 255, 0x40], &limits())
            .expect("an open");
    assert_eq!((open.max_frame_size, open.channel_max), (u32::MAX, u16::MAX));
}

#[test]
fn part_2_7_2_begin() {
    vector(
        Begin {
            remote_channel: Some(1),
            next_outgoing_id: 0,
            incoming_window: 2048,
            outgoing_window: 7,
            ..Begin::default()
        },
        &[0x00, 0x53, 0x11, 0xc0, 12, 4, 0x60, 0, 1, 0x43, 0x70, 0, 0, 8, 0, 0x52, 7],
    );
}

#[test]
fn part_2_7_3_attach_with_both_termini() {
    let filter = [0xc1, 10, 2, 0xa3, 1, b'f', 0x00, 0x53, 4, 0xa1, 1, b'x'];
    let attach = Attach {
        name: "n",
        handle: 0,
        role: Role::Receiver,
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: Some(Source {
            address: Some("q"),
            durable: TerminusDurability::UnsettledState,
            expiry_policy: TerminusExpiryPolicy::Never,
            filter: Some(Map::from_encoded(&filter, &limits()).expect("a map")),
            default_outcome: Some(Outcome::Released),
            outcomes: Symbols::one(Accepted::SYMBOL),
            ..Source::default()
        }),
        target: Some(Target::default().into()),
        ..Attach::default()
    };
    let mut out = Vec::new();
    attach.encode(&mut out);
    let (back, rest) = Attach::decode(&out, &limits()).expect("an attach");
    assert_eq!((back, rest), (attach, &[][..]));
    assert_eq!(
        back.source.and_then(|s| s.filter).and_then(|f| f.get("f")).and_then(|v| v.as_described()).map(|d| d.0),
        Some(Descriptor::Code(4))
    );
    // A terminus that is null is not a terminus without an address.
    let refusal = Attach { name: "n", target: None, source: Some(Source::default()), ..attach };
    out.clear();
    refusal.encode(&mut out);
    let (back, _) = Attach::decode(&out, &limits()).expect("an attach");
    assert_eq!((back.target, back.source), (None, Some(Source::default())));
}

#[test]
fn part_4_5_1_attach_to_a_coordinator_and_to_a_stranger() {
    let mut out = Vec::new();
    let coordinator = Coordinator { capabilities: Symbols::one("amqp:local-transactions") };
    Attach { name: "t", target: Some(coordinator.into()), ..Attach::default() }.encode(&mut out);
    let (attach, _) = Attach::decode(&out, &limits()).expect("an attach");
    assert_eq!(attach.target, Some(AttachTarget::Coordinator(coordinator)));
    // Nulls up to the target, then a described list of a type nobody knows.
    let items = [0xa1, 1, b't', 0x43, 0x42, 0x40, 0x40, 0x40, 0x00, 0x53, 0x99, 0x45];
    let bytes = composite(0x12, 7, &items);
    let (attach, _) = Attach::decode(&bytes, &limits()).expect("an attach");
    let Some(AttachTarget::Other(value)) = attach.target else { panic!("{attach:?}") };
    assert_eq!(value.as_described().map(|d| d.0), Some(Descriptor::Code(0x99)));
}

#[test]
fn part_2_7_4_flow_of_a_session_has_no_link_fields() {
    vector(
        Flow {
            next_incoming_id: Some(0),
            incoming_window: 1,
            next_outgoing_id: 2,
            outgoing_window: 3,
            ..Flow::default()
        },
        &[0x00, 0x53, 0x13, 0xc0, 8, 4, 0x43, 0x52, 1, 0x52, 2, 0x52, 3],
    );
    vector(
        Flow {
            next_incoming_id: None,
            incoming_window: 0,
            next_outgoing_id: u32::MAX,
            outgoing_window: 0,
            handle: Some(0),
            delivery_count: Some(u32::MAX),
            link_credit: Some(10),
            drain: true,
            ..Flow::default()
        },
        &[
            0x00, 0x53, 0x13, 0xc0, 19, 9, 0x40, 0x43, 0x70, 255, 255, 255, 255, 0x43, 0x43, 0x70, 255, 255, 255, 255,
            0x52, 10, 0x40, 0x41,
        ],
    );
}

#[test]
fn part_2_7_5_transfer_and_its_payload() {
    let mut bytes = vec![0x00, 0x53, 0x14, 0xc0, 9, 5, 0x43, 0x52, 7, 0xa0, 1, 0x2a, 0x43, 0x41];
    let transfer = Transfer {
        handle: 0,
        delivery_id: Some(7),
        delivery_tag: Some(&[0x2a]),
        message_format: Some(0),
        settled: Some(true),
        ..Transfer::default()
    };
    vector(transfer, &bytes);
    bytes.extend_from_slice(b"payload");
    assert_eq!(Performative::decode(&bytes, &limits()), Ok(Some((transfer.into(), &b"payload"[..]))));
    // `settled` left out is not `settled` false.
    let (transfer, _) = Transfer::decode(&[0x00, 0x53, 0x14, 0xc0, 2, 1, 0x43], &limits()).expect("a transfer");
    assert_eq!(transfer.settled, None);
}

#[test]
fn part_2_7_6_disposition_of_each_state() {
    let error = Error { condition: "amqp:not-found", description: Some("no such queue"), info: None };
    let states = [
        DeliveryState::Received(Received { section_number: 1, section_offset: 1 << 33 }),
        DeliveryState::Accepted,
        DeliveryState::Rejected(Rejected { error: Some(error) }),
        DeliveryState::Rejected(Rejected::default()),
        DeliveryState::Released,
        DeliveryState::Modified(Modified { delivery_failed: true, ..Modified::default() }),
        DeliveryState::Declared(Declared { txn_id: &[1, 2] }),
        DeliveryState::Transactional(TransactionalState { txn_id: &[1], outcome: None }),
        DeliveryState::Transactional(TransactionalState { txn_id: &[1], outcome: Some(Outcome::Accepted) }),
        DeliveryState::Transactional(TransactionalState {
            txn_id: &[1],
            outcome: Some(Outcome::Rejected(Rejected { error: Some(error) })),
        }),
    ];
    for state in states {
        let disposition = Disposition {
            role: Role::Receiver,
            first: 1,
            last: Some(2),
            settled: true,
            state: Some(state),
            ..Disposition::default()
        };
        let mut out = Vec::new();
        disposition.encode(&mut out);
        assert_eq!(Performative::decode(&out, &limits()), Ok(Some((disposition.into(), &[][..]))));
        let mut alone = Vec::new();
        state.encode(&mut alone);
        let value = Value::from_encoded(&alone, &limits()).expect("a state");
        assert_eq!(DeliveryState::from_value(value, &limits()), Ok(state));
    }
    vector(
        Disposition {
            role: Role::Receiver,
            first: 0,
            settled: true,
            state: Some(DeliveryState::Accepted),
            ..Disposition::default()
        },
        &[0x00, 0x53, 0x15, 0xc0, 9, 5, 0x41, 0x43, 0x40, 0x41, 0x00, 0x53, 0x24, 0x45],
    );
}

#[test]
fn part_3_4_states_by_their_symbols_and_of_unknown_types() {
    for (symbol, state) in [(Accepted::SYMBOL, DeliveryState::Accepted), (Released::SYMBOL, DeliveryState::Released)] {
        let mut items = vec![0x41, 0x43, 0x40, 0x41];
        put_symbolic_descriptor(&mut items, symbol);
        items.push(0x45);
        let bytes = composite(0x15, 5, &items);
        let (disposition, _) = Disposition::decode(&bytes, &limits()).expect("a disposition");
        assert_eq!(disposition.state, Some(state));
    }
    let items = [0x41, 0x43, 0x40, 0x41, 0x00, 0x53, 0x99, 0xc0, 2, 1, 0x41];
    let bytes = composite(0x15, 5, &items);
    let (disposition, _) = Disposition::decode(&bytes, &limits()).expect("a disposition");
    let Some(DeliveryState::Other(value)) = disposition.state else { panic!("{disposition:?}") };
    assert_eq!(value.as_bytes(), &items[4..]);
    // `received` is a state but no outcome.
    let mut source = vec![0x40; 8];
    source.extend_from_slice(&[0x00, 0x53, 0x23, 0xc0, 3, 2, 0x43, 0x44]);
    let error = Source::decode(&composite(0x28, 9, &source), &limits()).expect_err("no outcome");
    assert_eq!(error.condition(), "amqp:not-implemented");
}

#[test]
fn part_2_7_7_to_9_detach_end_close() {
    vector(Detach { handle: 3, closed: true, error: None }, &[0x00, 0x53, 0x16, 0xc0, 4, 2, 0x52, 3, 0x41]);
    vector(End::default(), &[0x00, 0x53, 0x17, 0x45]);
    vector(
        Close { error: Some(Error { condition: "a:b", description: Some("x"), info: None }) },
        &[0x00, 0x53, 0x18, 0xc0, 15, 1, 0x00, 0x53, 0x1d, 0xc0, 9, 2, 0xa3, 3, b'a', b':', b'b', 0xa1, 1, b'x'],
    );
}

#[test]
fn part_5_3_3_sasl() {
    let frames: [SaslPerformative<'_>; 5] = [
        SaslMechanisms { sasl_server_mechanisms: Symbols::from_slice(&["PLAIN", "ANONYMOUS"]) }.into(),
        SaslInit { mechanism: "PLAIN", initial_response: Some(b"\0guest\0guest"), hostname: None }.into(),
        SaslChallenge { challenge: b"c" }.into(),
        SaslResponse { response: b"" }.into(),
        SaslOutcome { code: SaslCode::Auth, additional_data: None }.into(),
    ];
    for frame in frames {
        let mut out = Vec::new();
        frame.encode(&mut out);
        assert_eq!(SaslPerformative::decode(&out, &limits()), Ok(frame));
        out.push(0);
        assert!(matches!(SaslPerformative::decode(&out, &limits()), Err(DecodeError::TrailingBytes { bytes: 1, .. })));
    }
    assert_eq!(SaslPerformative::decode(&[], &limits()), Err(DecodeError::EmptyBody));
    // A performative of the other layer.
    assert_eq!(
        SaslPerformative::decode(&[0x00, 0x53, 0x17, 0x45], &limits()),
        Err(DecodeError::UnknownPerformative { code: Some(0x17) })
    );
    let unknown = SaslOutcome::decode(&composite(0x44, 1, &[0x50, 5]), &limits()).expect_err("code 5");
    assert_eq!(unknown.condition(), "amqp:invalid-field");
}

#[test]
fn part_1_3_4_mandatory_fields_are_named_when_null_or_left_out() {
    for (bytes, composite, field) in [
        (&[0x00, 0x53, 0x10, 0x45][..], "open", "container-id"),
        (&[0x00, 0x53, 0x10, 0xc0, 2, 1, 0x40], "open", "container-id"),
        (&[0x00, 0x53, 0x11, 0xc0, 4, 3, 0x40, 0x43, 0x43], "begin", "outgoing-window"),
        (&[0x00, 0x53, 0x13, 0x45], "flow", "incoming-window"),
        (&[0x00, 0x53, 0x14, 0x45], "transfer", "handle"),
        (&[0x00, 0x53, 0x15, 0xc0, 2, 1, 0x41], "disposition", "first"),
        (&[0x00, 0x53, 0x16, 0x45], "detach", "handle"),
        (&[0x00, 0x53, 0x17, 0xc0, 5, 1, 0x00, 0x53, 0x1d, 0x45], "error", "condition"),
    ] {
        let error = error_of(bytes);
        assert_eq!(error, DecodeError::Field { composite, field, fault: Fault::Missing });
        assert_eq!(error.to_string(), alloc::format!("{composite}, field {field}: mandatory, but null or left out"));
        assert_eq!(error.condition(), "amqp:decode-error");
    }
}

#[test]
fn part_1_3_4_fields_behind_those_we_know_are_ignored() {
    let end = composite(0x17, 3, &[0x40, 0xa1, 1, b'x', 0xc0, 2, 1, 0x41]);
    assert_eq!(Performative::decode(&end, &limits()), Ok(Some((End::default().into(), &[][..]))));
    // Yet they must be values, and fill the list.
    let end = composite(0x17, 2, &[0x40, 0x01]);
    assert_eq!(error_of(&end), DecodeError::Value { what: "end", fault: Fault::UnknownConstructor(1) });
    let end = composite(0x17, 1, &[0x40, 0x40]);
    assert_eq!(error_of(&end), DecodeError::Value { what: "end", fault: Fault::SizeMismatch });
}

#[test]
fn part_1_3_4_any_width_of_a_type_but_no_other_type() {
    for handle in [&[0x52, 0][..], &[0x43], &[0x70, 0, 0, 0, 0]] {
        let bytes = composite(0x14, 1, handle);
        assert_eq!(Transfer::decode(&bytes, &limits()).expect("a transfer").0.handle, 0);
    }
    for (handle, constructor) in [(&[0x50, 0][..], 0x50), (&[0x60, 0, 0], 0x60), (&[0x44], 0x44), (&[0x54, 0], 0x54)] {
        let error = error_of(&composite(0x14, 1, handle));
        let fault = Fault::WrongType { expected: "uint", constructor };
        assert_eq!(error, DecodeError::Field { composite: "transfer", field: "handle", fault });
    }
    // A composite is a list, of any width, and nothing else.
    assert_eq!(
        error_of(&[0x00, 0x53, 0x17, 0xc1, 1, 0]),
        DecodeError::Value { what: "end", fault: Fault::WrongType { expected: "list", constructor: 0xc1 } }
    );
}

#[test]
fn part_1_3_4_descriptors_are_numbers_or_symbols() {
    let mut bytes = Vec::new();
    put_symbolic_descriptor(&mut bytes, End::SYMBOL);
    bytes.push(0x45);
    assert_eq!(Performative::decode(&bytes, &limits()), Ok(Some((End::default().into(), &[][..]))));
    let wide = [0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x17, 0x45];
    assert_eq!(Performative::decode(&wide, &limits()), Ok(Some((End::default().into(), &[][..]))));
    let error = error_of(&[0x00, 0x53, 0x19, 0x45]);
    assert_eq!(error, DecodeError::UnknownPerformative { code: Some(0x19) });
    assert_eq!(error.condition(), "amqp:not-implemented");
    // Another domain is another type.
    assert!(matches!(
        error_of(&[0x00, 0x80, 0, 0, 0, 1, 0, 0, 0, 0x17, 0x45]),
        DecodeError::UnknownPerformative { code: Some(_) }
    ));
    assert_eq!(
        error_of(&[0x45]),
        DecodeError::Value {
            what: "frame body",
            fault: Fault::WrongType { expected: "performative", constructor: 0x45 }
        }
    );
}

#[test]
fn part_1_3_4_choices_outside_the_standard_are_invalid_fields() {
    let attach = |items: &[u8]| composite(0x12, 4, &[&[0xa1, 1, b'n', 0x43, 0x41], items].concat());
    let error = error_of(&attach(&[0x50, 3]));
    assert_eq!(error.condition(), "amqp:invalid-field");
    assert_eq!(error.to_string(), "attach, field snd-settle-mode: not one of the values of sender-settle-mode");
}

#[test]
fn part_2_3_2_payload_only_behind_a_transfer() {
    let error = error_of(&[0x00, 0x53, 0x17, 0x45, 1, 2]);
    assert_eq!(error, DecodeError::TrailingBytes { composite: "end", bytes: 2 });
    assert_eq!(error.condition(), "amqp:decode-error");
}

#[test]
fn part_2_3_1_frame_header_limits_are_told_from_its_first_bytes() {
    let parse = |bytes: &[u8]| FrameHeader::parse(bytes, 1000, FrameKind::Amqp);
    assert_eq!(parse(&[]), Ok(None));
    assert_eq!(parse(&[0, 0, 3]), Ok(None));
    assert_eq!(parse(&[0, 0, 3, 0xe8]), Ok(None));
    assert_eq!(parse(&[0, 0, 3, 0xe9]), Err(DecodeError::FrameTooLarge { size: 1001, limit: 1000 }));
    assert_eq!(parse(&[0, 0, 0, 8, 2, 0, 0]), Ok(None));
    assert_eq!(parse(&[0, 0, 0, 8, 2, 0, 1, 2]), Ok(Some(FrameHeader { size: 8, doff: 2, kind: 0, channel: 0x102 })));
    for doff in [0, 1] {
        assert_eq!(parse(&[0, 0, 0, 8, doff, 0, 0, 0]), Err(DecodeError::BadDataOffset { doff, size: 8 }));
    }
    assert_eq!(parse(&[0, 0, 0, 11, 3, 0, 0, 0]), Err(DecodeError::BadDataOffset { doff: 3, size: 11 }));
    assert_eq!(parse(&[0, 0, 0, 8, 2, 1, 0, 0]), Err(DecodeError::WrongFrameType { kind: 1, expected: 0 }));
    for error in [
        parse(&[0, 0, 3, 0xe9]).expect_err("too large"),
        parse(&[0, 0, 0, 8, 1, 0, 0, 0]).expect_err("doff"),
        parse(&[0, 0, 0, 8, 2, 9, 0, 0]).expect_err("type"),
    ] {
        assert_eq!(error.condition(), "amqp:connection:framing-error");
    }
}

#[test]
fn part_2_4_5_an_empty_frame_is_a_sign_of_life() {
    let mut out = Vec::new();
    FrameHeader::encode(&mut out, FrameKind::Amqp, 0, |_| {});
    assert_eq!(out, [0, 0, 0, 8, 2, 0, 0, 0]);
    let header = FrameHeader::parse(&out, 512, FrameKind::Amqp).expect("legal").expect("complete");
    assert_eq!(Performative::decode(header.body(&out), &limits()), Ok(None));
}

#[test]
fn part_2_8_14_error_with_info() {
    let mut info = Vec::new();
    ValueWriter::map(&mut info, |map| {
        put_symbol(map.next(), "invalid-field");
        put_symbol(map.next(), "container-id");
    });
    let error = Error {
        condition: "amqp:invalid-field",
        description: None,
        info: Some(Map::from_encoded(&info, &limits()).expect("a map")),
    };
    let mut out = Vec::new();
    Close { error: Some(error) }.encode(&mut out);
    let (close, _) = Close::decode(&out, &limits()).expect("a close");
    let info = close.error.and_then(|e| e.info).expect("info");
    assert_eq!(info.get("invalid-field").and_then(|v| v.as_symbol()), Some("container-id"));
}

#[test]
fn part_4_5_declare_and_discharge() {
    let mut out = Vec::new();
    Declare::default().encode(&mut out);
    assert_eq!(out, [0x00, 0x53, 0x31, 0x45]);
    assert_eq!(Declare::decode(&out, &limits()), Ok((Declare { global_id: None }, &[][..])));
    out.clear();
    let discharge = Discharge { txn_id: &[9], fail: true };
    discharge.encode(&mut out);
    assert_eq!(out, [0x00, 0x53, 0x32, 0xc0, 5, 2, 0xa0, 1, 9, 0x41]);
    assert_eq!(Discharge::decode(&out, &limits()), Ok((discharge, &[][..])));
}
