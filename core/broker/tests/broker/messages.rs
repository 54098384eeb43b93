//! What of a message leaves as it came, and what is made anew (`spec/entry.md`, "Persistent and not"; `spec/amqp10.md`, "Outcomes,
//! termini, messages").

use crate::world::{Msg, World, each, number};
use packhorse_amqp10::codec::{
    Header, Properties, ValueWriter, put_descriptor, put_double, put_string, put_symbol, put_ubyte, put_uint, put_ulong,
};
use packhorse_amqp10::message::{write_annotations, write_data};

/// Sends one message and receives it.
fn through(world: &mut World, bytes: Vec<u8>, format: u32) -> crate::world::Got {
    let c = world.client("c");
    let s = world[c].sender("q");
    let r = world[c].receiver("q", 1);
    world.run();
    world[c].send_as(s, bytes, false, format);
    world.run();
    assert_eq!(world[c].confirmed(s), [0]);
    world[c].accept_all(r);
    world.run();
    let got = world[c].links[r].got.remove(0);
    world[c].close();
    world.run();
    got
}

fn annotations(out: &mut Vec<u8>, code: u64, pairs: &[(&str, &str)]) {
    put_descriptor(out, code);
    ValueWriter::map(out, |map| {
        for (key, value) in pairs {
            put_symbol(map.next(), key);
            put_string(map.next(), value);
        }
    });
}

#[test]
fn bare_message_footer_and_message_annotations_leave_as_the_same_bytes() {
    each(|world| {
        let mut rest = Vec::new();
        annotations(&mut rest, 0x72, &[("x-opt-color", "red"), ("unknown-key", "stays")]);
        let properties =
            Properties { subject: Some("s"), correlation_id: None, content_type: Some("t"), ..Properties::default() };
        properties.encode(&mut rest);
        put_descriptor(&mut rest, 0x74);
        // In wider encodings than needed, which must not be made narrower: {"k": 7}.
        rest.extend_from_slice(&[0xd1, 0, 0, 0, 15, 0, 0, 0, 2, 0xb1, 0, 0, 0, 1, b'k', 0x70, 0, 0, 0, 7]);
        put_descriptor(&mut rest, 0x76);
        ValueWriter::list(&mut rest, |items| {
            put_double(items.next(), 1.5);
            put_ulong(items.next(), 3);
        });
        annotations(&mut rest, 0x78, &[("x-opt-signature", "abc")]);
        let mut message = Vec::new();
        Header { durable: Some(true), ..Header::default() }.encode(&mut message);
        annotations(&mut message, 0x71, &[("x-opt-hop", "here")]);
        message.extend_from_slice(&rest);
        let got = through(world, message, 0);
        assert!(got.bytes.ends_with(&rest), "from the message annotations on, not a bit differs");
        assert!(got.view().delivery_annotations().is_none(), "delivery annotations live one hop");
        assert_eq!(got.header(), Header { durable: Some(true), ..Header::default() });
    });
}

#[test]
fn a_header_that_says_nothing_is_left_out() {
    each(|world| {
        let got = through(world, number(1), 0);
        assert_eq!(got.bytes, number(1));
        let mut first = Vec::new();
        Header { first_acquirer: Some(true), delivery_count: Some(7), ..Header::default() }.encode(&mut first);
        first.extend_from_slice(&number(2));
        let got = through(world, first, 0);
        assert_eq!(got.bytes, number(2), "first-acquirer and delivery-count are ours");
    });
}

#[test]
fn durable_goes_out_only_if_the_producer_said_so() {
    each(|world| {
        assert_eq!(through(world, Msg::new(1).durable(true).bytes(), 0).header().durable, Some(true));
        assert_eq!(through(world, Msg::new(1).durable(false).bytes(), 0).header().durable, None);
        assert_eq!(through(world, Msg::new(1).priority(3).bytes(), 0).header().durable, None);
    });
}

#[test]
fn ttl_goes_out_reduced_by_the_time_spent_here() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        world[c].send(s, Msg::new(1).ttl(60_000).bytes());
        world[c].send(s, Msg::new(2).ttl(0).bytes());
        world.run();
        world.pass(20_000);
        let r = world[c].receiver("q", 10);
        world.run();
        let ttls: Vec<_> = world[c].links[r].got.iter().map(|got| got.header().ttl).collect();
        assert_eq!(ttls, [Some(40_000), None], "0 means no expiry");
    });
}

#[test]
fn ttl_goes_on_counting_over_a_restart() {
    each(|world| {
        let c = world.client("c");
        let s = world[c].sender("q");
        world.run();
        world[c].send(s, Msg::new(1).ttl(60_000).bytes());
        world.run();
        world.pass(10_000);
        world.restart();
        world.pass(5_000);
        let c = world.client("c");
        let r = world[c].receiver("q", 10);
        world.run();
        let ttl = world[c].links[r].got[0].header().ttl.unwrap();
        assert!((44_000..=45_000).contains(&ttl), "{ttl}");
    });
}

/// Whether a message is there after an orderly restart.
fn survives(world: &mut World, bytes: Vec<u8>) -> bool {
    let c = world.client("c");
    let s = world[c].sender("q");
    world.run();
    world[c].send(s, bytes);
    world.run();
    assert_eq!(world[c].confirmed(s), [0]);
    world.restart();
    let c = world.client("c");
    let r = world[c].receiver("q", 10);
    world.run();
    let there = world[c].accept_all(r) == 1;
    world.run();
    world[c].close();
    world.run();
    there
}

#[test]
fn what_is_persistent() {
    each(|world| {
        let mut jms = Vec::new();
        write_annotations(&mut jms, |map| {
            put_symbol(map.next(), "x-opt-jms-msg-type");
            packhorse_amqp10::codec::put_byte(map.next(), 5);
        });
        assert!(survives(world, Msg::new(1).durable(true).bytes()));
        assert!(!survives(world, Msg::new(1).durable(false).bytes()));
        assert!(survives(world, number(1)), "without a header as the queue says");
        assert!(survives(world, Msg::new(1).priority(7).bytes()), "a header that does not say either");
        assert!(!survives(world, Msg::new(1).sections(&jms).bytes()), "JMS leaves the header out for not persistent");
        assert!(survives(world, Msg::new(1).durable(true).sections(&jms).bytes()));
    });
}

#[test]
fn a_queue_may_say_that_silence_is_not_durable() {
    each(|world| {
        let patch = packhorse_broker::QueuePatch { default_durable: Some(false), ..Default::default() };
        world.put("q", patch);
        assert!(!survives(world, number(1)));
        assert!(survives(world, Msg::new(1).durable(true).bytes()));
    });
}

#[test]
fn another_message_format_is_opaque_bytes() {
    each(|world| {
        let bytes = b"\x00\x01 not a message of the standard".to_vec();
        let got = through(world, bytes.clone(), 0x0100_0000);
        assert_eq!((got.bytes, got.format), (bytes, 0x0100_0000));
        let got = through(world, Vec::new(), 7);
        assert_eq!((got.bytes, got.format), (Vec::new(), 7));
    });
}

#[test]
fn every_size_around_the_frames_goes_through() {
    each(|world| {
        for length in [8, 100, 4_000, 4_096, 65_000, 65_536, 70_000, 262_000, 262_200, 300_000, 1_048_000] {
            let bytes = Msg::new(length).length(length as usize).bytes();
            let got = through(world, bytes.clone(), 0);
            assert_eq!(got.bytes.len(), bytes.len());
            assert!(got.bytes == bytes, "{length} bytes differ");
        }
    });
}

#[test]
fn a_message_without_a_body_passes() {
    each(|world| {
        let mut only_properties = Vec::new();
        Properties { subject: Some("alone"), ..Properties::default() }.encode(&mut only_properties);
        assert_eq!(through(world, only_properties.clone(), 0).bytes, only_properties);
    });
}

#[test]
fn application_properties_and_several_data_sections() {
    each(|world| {
        let mut bytes = Vec::new();
        put_descriptor(&mut bytes, 0x74);
        ValueWriter::map(&mut bytes, |map| {
            put_string(map.next(), "size");
            put_uint(map.next(), 3);
            put_string(map.next(), "level");
            put_ubyte(map.next(), 2);
        });
        for part in [&b"one"[..], b"", b"three"] {
            write_data(&mut bytes, part);
        }
        assert_eq!(through(world, bytes.clone(), 0).bytes, bytes);
    });
}
