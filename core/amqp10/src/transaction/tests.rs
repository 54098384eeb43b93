//! Requests and responses: there and back, what is refused, and the examples of `docs/formats/amqp-xa.md`.

use super::*;
use crate::codec::{Declared, Rejected, ValueWriter, put_binary, put_descriptor, put_int, put_string, put_symbol};
use crate::message::{write_data, write_sequence};
use alloc::string::{String, ToString};
use alloc::{format, vec};

const G: &[u8] = b"g";
const B: &[u8] = b"b";
const BROKER: [u8; 16] = [0xaa; 16];
const SESSION: [u8; 16] = [0xbb; 16];

fn requests() -> Vec<(&'static str, Request<'static>)> {
    let id = XaXid { format_id: 1, global_id: G, branch_qualifier: B };
    let start = XaStart { format_id: 1, global_id: G, branch_qualifier: B, flags: flags::NONE, timeout: 1000 };
    let end = XaEnd { format_id: 1, global_id: G, branch_qualifier: B, flags: flags::SUCCESS };
    vec![
        ("declare of a local transaction", Request::Declare),
        ("declare that starts the branch, timeout 1 s", Request::Start(start)),
        ("declare that joins it", Request::Start(XaStart { flags: flags::JOIN, timeout: 0, ..start })),
        ("declare that resumes it", Request::Start(XaStart { flags: flags::RESUME, timeout: 0, ..start })),
        ("discharge of txn-id 09", Request::Discharge(Discharge { txn_id: &[9], fail: false })),
        ("discharge of txn-id 09, fail", Request::Discharge(Discharge { txn_id: &[9], fail: true })),
        ("xa-end, success", Request::End(end)),
        ("xa-end, suspend", Request::End(XaEnd { flags: flags::SUSPEND, ..end })),
        ("xa-end, fail", Request::End(XaEnd { flags: flags::FAIL, ..end })),
        ("xa-prepare", Request::Prepare(XaPrepare { format_id: 1, global_id: G, branch_qualifier: B })),
        ("xa-commit", Request::Commit(XaCommit { format_id: 1, global_id: G, branch_qualifier: B, one_phase: false })),
        (
            "xa-commit, one-phase",
            Request::Commit(XaCommit { format_id: 1, global_id: G, branch_qualifier: B, one_phase: true }),
        ),
        ("xa-rollback", Request::Rollback(XaRollback { format_id: 1, global_id: G, branch_qualifier: B })),
        ("xa-forget", Request::Forget(XaForget { format_id: 1, global_id: G, branch_qualifier: B })),
        ("xa-recover, first page", Request::Recover(XaRecover { after: None, max: 100 })),
        ("xa-recover, behind the branch, at most 10", Request::Recover(XaRecover { after: Some(id), max: 10 })),
        (
            "tx-commit of txn-id 09, number 7",
            Request::TxCommit(TxCommit { txn_id: &[9], broker: BROKER, session: SESSION, counter: 7 }),
        ),
        ("tx-status of number 7", Request::TxStatus(TxStatus { broker: BROKER, session: SESSION, counter: 7 })),
    ]
}

fn outcomes() -> Vec<(&'static str, Vec<u8>)> {
    let mut xids = Vec::new();
    write_xids(&mut xids, [XaXid { format_id: 1, global_id: G, branch_qualifier: B }]);
    let xids = Value::from_encoded(&xids, &Limits::default()).unwrap().as_list();
    let encoded = |result: XaResult<'_>| {
        let mut out = Vec::new();
        result.encode(&mut out);
        out
    };
    let mut status = Vec::new();
    TxStatusResult { outcome: TxOutcome::RolledBack }.encode(&mut status);
    let mut declared = Vec::new();
    Declared { txn_id: &[9] }.encode(&mut declared);
    let nothing = XaResult { code: 0, xids: None, more: false, description: None };
    vec![
        ("declared with txn-id 09", declared),
        ("xa-result, XA_OK", encoded(nothing)),
        (
            "xa-result, XAER_NOTA with a description",
            encoded(XaResult { code: -4, description: Some("none"), ..nothing }),
        ),
        ("xa-result with the branch, and there are more", encoded(XaResult { xids, more: true, ..nothing })),
        ("tx-status-result, rolled-back", status),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn read(message: &[u8]) -> Result<Request<'_>, BadRequest<'_>> {
    let view = MessageView::parse(message, &Limits::default()).unwrap();
    Request::read(&view, &Limits::default())
}

#[test]
fn the_examples_of_the_page_are_what_is_written_and_read() {
    let page = include_str!("../../../../docs/formats/amqp-xa.md");
    let mut missing = Vec::new();
    for (what, request) in requests() {
        let mut message = Vec::new();
        request.encode(&mut message);
        assert_eq!(read(&message), Ok(request), "{what}");
        let body = message.strip_prefix(&[0x00, 0x53, 0x77]).expect("an amqp-value section");
        missing.push(format!("| {what} | `{}` |", hex(body)));
    }
    missing.extend(outcomes().into_iter().map(|(what, bytes)| format!("| {what} | `{}` |", hex(&bytes))));
    missing.retain(|line| !page.lines().any(|l| l == line));
    assert!(missing.is_empty(), "examples that the page does not have:\n{}", missing.join("\n"));
}

#[test]
fn symbolic_descriptors_are_as_good() {
    let mut message = Vec::new();
    write_value(&mut message, |out| {
        crate::codec::put_symbolic_descriptor(out, "amqp:declare:list");
        ValueWriter::list(out, |declare| {
            let out = declare.next();
            crate::codec::put_symbolic_descriptor(out, "packhorse:xa-start:list");
            ValueWriter::list(out, |start| {
                put_int(start.next(), 70_000);
                put_binary(start.next(), G);
                put_binary(start.next(), &[]);
            });
        });
    });
    let start = XaStart { format_id: 70_000, global_id: G, branch_qualifier: &[], flags: 0, timeout: 0 };
    assert_eq!(read(&message), Ok(Request::Start(start)));
}

#[test]
fn fields_of_a_later_version_are_ignored() {
    let mut message = Vec::new();
    write_value(&mut message, |out| {
        put_descriptor(out, XaPrepare::CODE);
        ValueWriter::list(out, |list| {
            put_int(list.next(), -7);
            put_binary(list.next(), G);
            put_binary(list.next(), B);
            put_string(list.next(), "later");
        });
    });
    assert_eq!(read(&message), Ok(Request::Prepare(XaPrepare { format_id: -7, global_id: G, branch_qualifier: B })));
}

/// A message with this value as its body.
fn value(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = Vec::new();
    write_value(&mut message, put);
    message
}

#[test]
fn what_asks_for_nothing_known_is_named() {
    let mut header = Vec::new();
    crate::message::write_header(&mut header, Some(true), None, None, None, None);
    let mut data = Vec::new();
    write_data(&mut data, b"x");
    let mut twice = data.clone();
    write_data(&mut twice, b"y");
    let mut sequence = Vec::new();
    write_sequence(&mut sequence, |_| {});
    let odd = value(|out| {
        Declare { global_id: Value::from_encoded(&[0xa1, 1, b'x'], &Limits::default()).ok() }.encode(out);
    });
    let stranger = value(|out| {
        put_descriptor(out, Declare::CODE);
        ValueWriter::list(out, |list| {
            let out = list.next();
            crate::codec::put_symbolic_descriptor(out, "acme:xid:list");
            out.push(0x45);
        });
    });
    let list0 = |code: u64| {
        value(|out| {
            put_descriptor(out, code);
            out.push(0x45);
        })
    };
    let cases: Vec<(Vec<u8>, &str, &str)> = vec![
        (header, "amqp:decode-error", "a message without a body"),
        (data, "amqp:decode-error", "a body of section data"),
        (twice, "amqp:decode-error", "a body of section data"),
        (sequence, "amqp:decode-error", "a body of section amqp-sequence"),
        (value(|out| put_string(out, "begin")), "amqp:not-implemented", "without a descriptor"),
        (value(|out| out.push(0x40)), "amqp:not-implemented", "without a descriptor"),
        (value(|out| put_symbol(out, "amqp:declare:list")), "amqp:not-implemented", "without a descriptor"),
        (list0(0x24), "amqp:not-implemented", "descriptor 0x24"),
        (list0(0x5048_5253_0000_007f), "amqp:not-implemented", "descriptor 0x504852530000007f"),
        (odd, "amqp:not-implemented", "global-id of a declare: a value without"),
        (stranger, "amqp:not-implemented", "acme:xid:list"),
        (list0(Discharge::CODE), "amqp:decode-error", "discharge, field txn-id: mandatory"),
        (list0(XaEnd::CODE), "amqp:decode-error", "xa-end, field format-id: mandatory"),
        (list0(TxStatus::CODE), "amqp:decode-error", "tx-status, field broker: mandatory"),
        (
            value(|out| {
                put_descriptor(out, Discharge::CODE);
                put_string(out, "no list");
            }),
            "amqp:decode-error",
            "list is needed",
        ),
        (
            value(|out| {
                put_descriptor(out, XaForget::CODE);
                ValueWriter::list(out, |list| put_string(list.next(), "1"));
            }),
            "amqp:decode-error",
            "a value of type int is needed",
        ),
    ];
    for (message, condition, words) in cases {
        let error = read(&message).expect_err(words);
        assert_eq!(error.condition(), condition, "{error}");
        assert!(error.to_string().contains(words), "{error}: {words}");
    }
}

#[test]
fn no_byte_of_a_request_can_be_cut_off_or_changed_into_a_panic() {
    for (_, request) in requests() {
        let mut message = Vec::new();
        request.encode(&mut message);
        for at in 0..message.len() {
            let _ = MessageView::parse(&message[..at], &Limits::default()).map(|view| {
                assert!(Request::read(&view, &Limits::default()).is_err(), "cut at {at}: {}", hex(&message));
            });
            for byte in [0x00, 0x40, 0x45, 0x7f, 0x80, 0xff] {
                let mut changed = message.clone();
                changed[at] = byte;
                if let Ok(view) = MessageView::parse(&changed, &Limits::default()) {
                    let _ = Request::read(&view, &Limits::default()).map_err(|e| e.to_string());
                }
            }
        }
    }
}

#[test]
fn responses_are_read_by_their_descriptor() {
    let limits = Limits::default();
    let read = |state: &DeliveryState<'_>| format!("{:?}", Response::read(state, &limits));
    let mut seen = Vec::new();
    for (_, bytes) in outcomes() {
        let value = Value::from_encoded(&bytes, &limits).unwrap();
        let state = DeliveryState::from_value(value, &limits).unwrap();
        if let Ok(Response::Result(result)) = Response::read(&state, &limits) {
            let xids = result.xids(&limits).unwrap();
            seen.push(format!("{} {:?} {} {:?}", result.code, xids.len(), result.more, result.description));
        } else {
            seen.push(read(&state));
        }
    }
    assert_eq!(
        seen,
        ["Ok(Declared([9]))", "0 0 false None", "-4 0 false Some(\"none\")", "0 1 true None", "Ok(Status(RolledBack))"]
    );
    assert_eq!(read(&DeliveryState::Accepted), "Ok(Accepted)");
    assert_eq!(read(&DeliveryState::Rejected(Rejected::default())), "Ok(Rejected(None))");
    assert_eq!(read(&DeliveryState::Released), "Ok(Other)");
    // Of our type, and not one.
    let mut broken = Vec::new();
    put_descriptor(&mut broken, XaResult::CODE);
    broken.push(0x45);
    assert!(Response::read(&as_state(&broken, &limits).unwrap(), &limits).is_err());
    let mut stranger = Vec::new();
    put_descriptor(&mut stranger, 0x99);
    broken.push(0x45);
    stranger.push(0x45);
    assert_eq!(read(&as_state(&stranger, &limits).unwrap()), "Ok(Other)");
}

#[test]
fn a_result_whose_list_holds_something_else_is_an_error() {
    let mut list = Vec::new();
    ValueWriter::list(&mut list, |list| put_string(list.next(), "no xid"));
    let xids = Value::from_encoded(&list, &Limits::default()).unwrap().as_list();
    let result = XaResult { code: 0, xids, more: false, description: None };
    assert!(result.xids(&Limits::default()).is_err());
}
