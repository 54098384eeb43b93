//! Links come: queues are created on first use, names have rules, what is not there is refused (`spec/amqp10.md`, "Attach and
//! detach"; `spec/operate.md`, "Addresses over AMQP 1.0").

use crate::world::{P, World, each, each_with, number};
use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::{
    Attach, AttachTarget, Map, ReceiverSettleMode, Role, SenderSettleMode, Source, Symbols, Target, ValueWriter,
    put_descriptor, put_string, put_symbol, put_symbolic_descriptor,
};
use packhorse_broker::{Command, Reply};

#[test]
fn a_queue_is_created_on_first_use_and_the_answer_waits_for_its_record() {
    each(|world| {
        let c = world.client("c");
        world.hold_store();
        let s = world[c].sender("new");
        let r = world[c].receiver("new", 5);
        world.run();
        assert!(!world[c].links[s].attached && !world[c].links[r].attached);
        world.flush();
        assert!(world[c].links[s].attached && world[c].links[r].attached);
        assert_eq!(world.queue("new").counters.consumers, 1);
        world.free_store();
    });
}

#[test]
fn one_name_wanted_from_everywhere_at_once_is_one_queue() {
    each(|world| {
        world.hold_store();
        let clients: Vec<_> = (0..4).map(|n| world.client(&format!("c{n}"))).collect();
        for c in &clients {
            world[*c].sender("q");
            world[*c].receiver("queue://q", 1);
        }
        world.run();
        world.flush();
        for c in &clients {
            assert!(world[*c].links.iter().all(|link| link.attached));
        }
        assert_eq!(world.queue("q").counters.consumers, 4);
        world.free_store();
    });
}

#[test]
fn without_auto_create_an_unknown_queue_is_not_found() {
    each_with(
        |config| config.auto_create = false,
        |world| {
            let p = world.peer_open("c");
            world[p].attach_sender("s", 0, "nowhere");
            world.run();
            assert_eq!(world[p].said(), ["attach s receiver null", "detach 0 closed amqp:not-found"]);
        },
    );
}

#[test]
fn names_have_rules_and_a_refusal_says_which() {
    each(|world| {
        for (address, words) in [
            ("", "empty"),
            ("queue://", "empty"),
            (&"x".repeat(256)[..], "256 bytes"),
            ("a\nb", "control character"),
            ("/queues/a%2", "percent escape"),
        ] {
            let c = world.client("c");
            let link = world[c].sender(address);
            let other = world[c].receiver(address, 1);
            world.run();
            for link in [link, other] {
                let diary = &world[c].links[link];
                assert!(diary.refused);
                assert_eq!(diary.ended.as_deref(), Some("amqp:invalid-field"));
                assert!(diary.why.contains(words), "{address:?}: {}", diary.why);
            }
            world[c].close();
            world.run();
        }
    });
}

#[test]
fn one_queue_has_three_spellings() {
    each(|world| {
        let c = world.client("c");
        for address in ["or ders", "queue://or ders", "/queues/or%20ders"] {
            let link = world[c].sender(address);
            world.run();
            world[c].send(link, number(1));
            assert!(world[c].links[link].answer.contains(address), "the answer repeats the address asked for");
        }
        world.run();
        assert_eq!(world.queue("or ders").counters.ready, 3);
    });
}

fn refused(world: &mut World, p: P, attach: &Attach<'_>) -> Vec<String> {
    world[p].attach(attach);
    world.run();
    let said = world[p].said();
    let handle = attach.handle;
    world[p].detach(handle, true);
    world.run();
    assert!(world[p].said().is_empty(), "the peer's detach ends it");
    said
}

fn source(source: Source<'_>) -> Attach<'_> {
    Attach {
        name: "l",
        role: Role::Receiver,
        source: Some(source),
        target: Some(AttachTarget::Target(Target::default())),
        ..Attach::default()
    }
}

fn target(target: AttachTarget<'_>) -> Attach<'_> {
    Attach {
        name: "l",
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(target),
        initial_delivery_count: Some(0),
        ..Attach::default()
    }
}

#[test]
fn sequence_3_what_is_not_there_yet_is_not_implemented() {
    each(|world| {
        let p = world.peer_open("c");
        let senders = [
            AttachTarget::Target(Target { address: None, ..Target::default() }),
            AttachTarget::Target(Target { dynamic: true, ..Target::default() }),
            AttachTarget::Target(Target { address: Some("topic://t"), ..Target::default() }),
            AttachTarget::Target(Target {
                address: Some("t"),
                capabilities: Symbols::from_slice(&["topic"]),
                ..Target::default()
            }),
        ];
        for terminus in senders {
            let said = refused(world, p, &target(terminus));
            assert_eq!(said, ["attach l receiver null", "detach 0 closed amqp:not-implemented"], "{terminus:?}");
        }
        let receivers = [
            Source { dynamic: true, ..Source::default() },
            Source { address: Some("/topics/t"), ..Source::default() },
            Source { address: Some("t"), capabilities: Symbols::from_slice(&["temporary-topic"]), ..Source::default() },
        ];
        for terminus in receivers {
            let said = refused(world, p, &source(terminus));
            assert_eq!(said, ["attach l sender null", "detach 0 closed amqp:not-implemented"], "{terminus:?}");
        }
        assert!(world.logged("not implemented yet"));
    });
}

#[test]
fn a_selector_by_either_descriptor_is_refused_and_unknown_filters_are_left_out() {
    each(|world| {
        let p = world.peer_open("c");
        for (key, symbol, code) in [
            ("selector", "apache.org:selector-filter:string", 0),
            ("s", "", 0x0000_468C_0000_0004),
            ("no-local", "", 0x0000_468C_0000_0003),
        ] {
            let mut encoded = Vec::new();
            ValueWriter::map(&mut encoded, |map| {
                put_symbol(map.next(), key);
                let out = map.next();
                if code == 0 {
                    put_symbolic_descriptor(out, symbol);
                } else {
                    put_descriptor(out, code);
                }
                put_string(out, "color = 'red'");
            });
            let filter = Map::from_encoded(&encoded, &Limits::default()).unwrap();
            let said =
                refused(world, p, &source(Source { address: Some("q"), filter: Some(filter), ..Source::default() }));
            assert_eq!(said, ["attach l sender null", "detach 0 closed amqp:not-implemented"], "{key}");
        }
        let mut encoded = Vec::new();
        ValueWriter::map(&mut encoded, |map| {
            put_symbol(map.next(), "color");
            let out = map.next();
            put_symbolic_descriptor(out, "example.com:color:string");
            put_string(out, "red");
        });
        let filter = Map::from_encoded(&encoded, &Limits::default()).unwrap();
        let c = world.client("other");
        let attach = source(Source { address: Some("q"), filter: Some(filter), ..Source::default() });
        let link = world[c].attach(0, &attach);
        world.run();
        assert!(world[c].links[link].attached);
        assert!(!world[c].links[link].answer.contains("color"), "{}", world[c].links[link].answer);
    });
}

#[test]
fn a_missing_terminus_is_a_look_up_and_nothing_is_found() {
    each(|world| {
        let p = world.peer_open("c");
        let mut attach = source(Source::default());
        attach.source = None;
        assert_eq!(refused(world, p, &attach), ["attach l sender null", "detach 0 closed amqp:not-found"]);
        let mut attach = target(AttachTarget::Target(Target::default()));
        attach.target = None;
        assert_eq!(refused(world, p, &attach), ["attach l receiver null", "detach 0 closed amqp:not-found"]);
    });
}

#[test]
fn sequence_3_a_transfer_in_flight_on_a_refused_link_is_dropped() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_sender("s", 0, "topic://t");
        world[p].transfer(0, 0, &number(1));
        world.run();
        assert_eq!(world[p].said(), ["attach s receiver null", "detach 0 closed amqp:not-implemented"]);
        world[p].detach(0, true);
        world[p].attach_sender("s", 0, "q");
        world.run();
        assert_eq!(world[p].said(), ["attach s receiver", "flow 0 (0, 5000)"]);
    });
}

#[test]
fn the_answer_says_what_is_held() {
    each(|world| {
        let p = world.peer_open("c");
        let mut attach = source(Source {
            address: Some("q"),
            durable: packhorse_amqp10::codec::TerminusDurability::UnsettledState,
            expiry_policy: packhorse_amqp10::codec::TerminusExpiryPolicy::Never,
            outcomes: Symbols::from_slice(&["amqp:accepted:list", "amqp:released:list", "example:other:list"]),
            default_outcome: Some(packhorse_amqp10::codec::Outcome::Accepted),
            capabilities: Symbols::from_slice(&["queue", "shared"]),
            ..Source::default()
        });
        attach.snd_settle_mode = SenderSettleMode::Settled;
        attach.rcv_settle_mode = ReceiverSettleMode::Second;
        world[p].attach(&attach);
        world.run();
        let limits = Limits::default();
        let frames = world[p].frames.clone();
        let (answer, _) = Attach::decode(&frames.last().unwrap()[8..], &limits).unwrap();
        let source = answer.source.unwrap();
        assert_eq!(source.address, Some("q"));
        assert_eq!(source.durable, packhorse_amqp10::codec::TerminusDurability::default());
        assert_eq!(source.expiry_policy, packhorse_amqp10::codec::TerminusExpiryPolicy::default());
        assert_eq!(source.outcomes.iter().collect::<Vec<_>>(), ["amqp:accepted:list", "amqp:released:list"]);
        assert_eq!(source.default_outcome, Some(packhorse_amqp10::codec::Outcome::Accepted));
        assert_eq!(source.capabilities.iter().collect::<Vec<_>>(), ["queue"]);
        assert_eq!(answer.snd_settle_mode, SenderSettleMode::Settled);
        assert_eq!(answer.rcv_settle_mode, ReceiverSettleMode::Second);
        assert_eq!(answer.initial_delivery_count, Some(0));
    });
}

#[test]
fn the_peer_leaves_while_its_queue_is_being_created() {
    each(|world| {
        let p = world.peer_open("c");
        world.hold_store();
        world[p].attach_receiver("r", 0, "slow");
        world[p].flow(0, 0, 10, false);
        world.run();
        world[p].detach(0, true);
        world.run();
        world.flush();
        let said = world[p].said();
        assert_eq!(said.last().map(String::as_str), Some("detach 0 closed"), "{said:?}");
        assert_eq!(world.queue("slow").counters.consumers, 0);
        let c = world.client("gone");
        world[c].receiver("slower", 1);
        world.run();
        world.kill(c);
        world.run();
        world.free_store();
        assert_eq!(world.queue("slower").counters.consumers, 0);
    });
}

#[test]
fn names_differ_by_role() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_sender("same", 0, "q");
        world[p].attach_receiver("same", 1, "q");
        world.run();
        let said = world[p].said();
        assert!(
            said.contains(&"attach same receiver".into()) && said.contains(&"attach same sender".into()),
            "{said:?}"
        );
        assert!(!said.iter().any(|s| s.starts_with("detach")), "{said:?}");
    });
}

#[test]
fn a_queue_created_by_an_attach_stays() {
    each(|world| {
        let c = world.client("c");
        world[c].sender("kept");
        world.run();
        world[c].close();
        world.run();
        world.restart();
        let reply = world.ask(Command::QueueGet { name: "kept".into() });
        assert!(matches!(reply, Reply::Queue(_)), "{reply:?}");
    });
}

#[test]
fn a_link_name_that_is_too_long_is_refused_and_hurts_no_other_link() {
    each(|world| {
        let p = world.peer_open("c");
        world[p].attach_sender("good", 0, "q");
        world.run();
        world[p].said();
        world[p].attach_sender(&"n".repeat(2000), 1, "q");
        world.run();
        let said = world[p].said();
        assert!(said.last().is_some_and(|s| s.starts_with("detach 1 closed amqp:")), "{said:?}");
        world[p].detach(1, true);
        world[p].transfer(0, 0, &number(1));
        world.run();
        assert_eq!(world[p].said(), ["disp(0, accepted, settled)"]);
    });
}
