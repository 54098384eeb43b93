//! From the first byte to `open`: protocol headers, SASL, who is let in (`spec/amqp10.md`, "Connection"; `spec/operate.md`, "Start").

use crate::world::{each, each_with};
use packhorse_amqp10::codec::{Begin, Open, PROTOCOL_HEADER, SASL_PROTOCOL_HEADER};
use packhorse_broker::Command;
use packhorse_broker::Reply;

#[test]
fn anonymous_from_loopback() {
    each(|world| {
        let p = world.peer();
        world[p].raw(&SASL_PROTOCOL_HEADER);
        world.run();
        assert_eq!(world[p].said(), ["header 3", "mechanisms PLAIN ANONYMOUS"]);
        let init = packhorse_amqp10::codec::SaslInit { mechanism: "ANONYMOUS", initial_response: None, hostname: None };
        world[p].sasl(|out| init.encode(out));
        world.run();
        assert_eq!(world[p].said(), ["outcome ok"]);
    });
}

#[test]
fn plain_from_loopback_with_any_name() {
    each(|world| {
        let c = world.client_as(0, "c", Some("guest"));
        assert!(world[c].opened);
    });
}

#[test]
fn sequence_1_everything_in_one_write() {
    each(|world| {
        world.declare("q");
        let p = world.peer();
        world[p].hello("pipelining");
        world[p].attach_sender("s", 0, "q");
        world.run();
        let said = world[p].said();
        let before = ["header 3", "mechanisms PLAIN ANONYMOUS", "outcome ok", "header 0", "open", "begin"];
        assert_eq!(said[..6], before);
        assert_eq!(said[6..], ["attach s receiver", "flow 0 (0, 5000)"]);
    });
}

#[test]
fn a_bare_header_is_enough_from_loopback() {
    each(|world| {
        let p = world.peer();
        world[p].raw(&PROTOCOL_HEADER);
        world[p].frame(0, |out| Open { container_id: "bare", ..Open::default() }.encode(out));
        world.run();
        assert_eq!(world[p].said(), ["header 0", "open"]);
    });
}

#[test]
fn from_elsewhere_nobody_is_let_in() {
    each(|world| {
        for (header, mechanism) in [(false, "ANONYMOUS"), (false, "PLAIN"), (true, "")] {
            let p = world.peer_at(0, false);
            if header {
                world[p].raw(&PROTOCOL_HEADER);
                world.run();
                assert_eq!(world[p].said(), ["header 3"]);
            } else {
                world[p].login(mechanism, Some(b"\0guest\0guest"));
                world.run();
                let said = world[p].said();
                assert_eq!(said.last().map(String::as_str), Some("outcome auth"), "{said:?}");
            }
            assert!(world.peer_pipe(p).closed);
        }
    });
}

#[test]
fn an_unknown_mechanism_fails_in_sasl() {
    each(|world| {
        let p = world.peer();
        world[p].login("KERBEROS", Some(b"x"));
        world.run();
        assert_eq!(world[p].said(), ["header 3", "mechanisms PLAIN ANONYMOUS", "outcome auth"]);
        assert!(world.peer_pipe(p).closed);
        assert!(world.logged("mechanism \"KERBEROS\" is not offered"));
    });
}

#[test]
fn a_malformed_plain_response_fails_in_sasl() {
    each(|world| {
        for response in [&b""[..], b"guest", b"\0guest", b"\0\0secret", b"\0guest\0a\0b", b"\0\xff\0secret"] {
            let p = world.peer();
            world[p].login("PLAIN", Some(response));
            world.run();
            let said = world[p].said();
            assert_eq!(said.last().map(String::as_str), Some("outcome auth"), "{response:?}");
            assert!(world.peer_pipe(p).closed);
        }
    });
}

#[test]
fn a_foreign_header_is_answered_by_ours_and_the_end() {
    each(|world| {
        for header in [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"GET / HT", b"AMQP\x01\x01\x00\x0a"] {
            let p = world.peer();
            world[p].raw(header);
            world.run();
            assert_eq!(world[p].said(), ["header 3"], "{header:?}");
            assert!(world.peer_pipe(p).closed);
        }
    });
}

#[test]
fn a_tls_hello_is_named_in_the_log() {
    each(|world| {
        let p = world.peer();
        world[p].raw(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03]);
        world.run();
        assert!(world.peer_pipe(p).closed);
        assert!(world.logged("speaks TLS to a port without TLS"), "{:?}", world.logs);
    });
}

#[test]
fn another_first_frame_than_open_is_an_illegal_state() {
    each(|world| {
        let p = world.peer();
        world[p].login("ANONYMOUS", None);
        world[p].raw(&PROTOCOL_HEADER);
        world[p].frame(0, |out| Begin::default().encode(out));
        world.run();
        let said = world[p].said();
        assert_eq!(said[said.len() - 2..], ["open", "close amqp:illegal-state"]);
    });
}

#[test]
fn a_frame_over_the_limit_is_a_framing_error_with_thing_limit_and_value() {
    each(|world| {
        let p = world.peer_open("big");
        world[p].raw(&(2u32 << 20).to_be_bytes());
        world[p].raw(&[2, 0, 0, 0]);
        world.run();
        assert_eq!(world[p].said(), ["close amqp:connection:framing-error"]);
        assert!(world.logged("2097152") && world.logged("1048576"), "{:?}", world.logs);
    });
}

#[test]
fn who_says_nothing_is_cut_after_the_deadline_of_the_first_byte() {
    each(|world| {
        let p = world.peer();
        world.run();
        world.pass(4_900);
        assert!(!world.peer_pipe(p).closed);
        world.pass(200);
        assert!(world.peer_pipe(p).closed);
    });
}

#[test]
fn who_does_not_log_in_is_cut_after_the_deadline_of_the_login() {
    each(|world| {
        let p = world.peer();
        world[p].raw(&SASL_PROTOCOL_HEADER);
        world.run();
        world.pass(10_100);
        assert!(world.peer_pipe(p).closed);
    });
}

#[test]
fn a_silent_peer_is_cut_at_twice_our_idle_time_out_and_its_messages_come_back() {
    each_with(
        |config| config.idle_timeout_ms = 30_000,
        |world| {
            let s = world.client("sender");
            let link = world[s].sender("q");
            world[s].send(link, crate::world::number(1));
            world.run();
            world[s].close();
            world.run();
            let p = world.peer_open("silent");
            world[p].attach_receiver("r", 0, "q");
            world[p].flow(0, 0, 10, false);
            world.run();
            assert_eq!(world.counts("q"), (0, 1, 1, 0));
            world.pass(59_000);
            assert_eq!(world.counts("q"), (0, 1, 1, 0));
            world.pass(2_000);
            let said = world[p].said();
            assert!(said.contains(&"close amqp:resource-limit-exceeded".to_string()), "{said:?}");
            assert_eq!(world.counts("q"), (1, 0, 1, 0));
        },
    );
}

#[test]
fn connections_sessions_and_links_are_counted() {
    each(|world| {
        let a = world.client("a");
        let b = world.client("b");
        world[a].sender("q");
        world[b].receiver("q", 1);
        world[b].begin();
        world.run();
        let mut sums = (0, 0, 0);
        let mut look = |world: &mut crate::world::World| {
            sums = (0, 0, 0);
            for shard in 0..usize::from(world.kind.shards) {
                let Reply::Shard(report) = world.ask_at(shard, Command::Status) else { panic!("a report") };
                sums = (sums.0 + report.connections, sums.1 + report.sessions, sums.2 + report.links);
            }
            sums
        };
        assert_eq!(look(world), (2, 3, 2));
        world[b].end(1);
        world[b].detach(0, true);
        world.run();
        assert_eq!(look(world), (2, 2, 1));
        world[a].close();
        world.kill(b);
        world.run();
        assert_eq!(look(world), (0, 0, 0));
    });
}
