//! One link by name: a second `attach` wins over the first (`spec/amqp10.md`, sequence 9).

use crate::world::{C, ReceiverTerms, SenderTerms, World, each, number};

fn terms(credit: u32) -> ReceiverTerms<'static> {
    ReceiverTerms { credit, ..ReceiverTerms::default() }
}

/// A client of this container with `count` messages of `q` in its hands on a receiver named `name`.
fn holder(world: &mut World, shard: usize, container: &str, user: Option<&str>, count: u64) -> C {
    let f = world.client("filler");
    let s = world[f].sender("q");
    world.run();
    for n in 1..=count {
        world[f].send(s, number(n));
    }
    world.run();
    let c = world.client_as(shard, container, user);
    world[c].receiver_with(0, "name", "q", terms(100));
    world.run();
    assert_eq!(world[c].links[0].got.len() as u64, count);
    c
}

#[test]
fn by_another_connection_of_the_same_container_on_the_same_or_another_shard() {
    for shard in [0, 1] {
        each(|world| {
            let old = holder(world, 0, "me", None, 3);
            world[old].accept(0, 1);
            let new = world.client_as(shard, "me", None);
            world[new].receiver_with(0, "name", "q", terms(100));
            world.run();
            assert_eq!(world[old].links[0].ended.as_deref(), Some("amqp:link:stolen"));
            assert!(world[new].links[0].attached);
            assert_eq!(world[new].numbers(0), [1, 3], "its deliveries came back first");
            let counts = world[new].links[0].got.iter().map(|got| got.deliveries()).collect::<Vec<_>>();
            assert_eq!(counts, [1, 1], "the application may have seen them");
            assert_eq!(world.queue("q").counters.consumers, 1);
            world[new].accept_all(0);
            world.run();
            assert_eq!(world.counts("q"), (0, 0, 3, 3));
        });
    }
}

#[test]
fn over_a_silent_socket() {
    each(|world| {
        let old = holder(world, 0, "me", None, 2);
        world.pipe_of(old).room = 0;
        for shard in [1, 0] {
            let new = world.client_as(shard, "me", None);
            world[new].receiver_with(0, "name", "q", terms(100));
            world.run();
            assert_eq!(world[new].numbers(0), [1, 2]);
        }
    });
}

#[test]
fn by_the_same_connection() {
    each(|world| {
        let p = world.peer_open("me");
        world[p].attach_receiver("name", 0, "q");
        world[p].flow(0, 0, 10, false);
        world.run();
        let f = world.client("f");
        let s = world[f].sender("q");
        world.run();
        world[f].send(s, number(1));
        world.run();
        world[p].said();
        world[p].attach_receiver("name", 1, "q");
        world[p].flow(1, 0, 10, false);
        world.run();
        let said = world[p].said();
        assert_eq!(said[0], "detach 0 closed amqp:link:stolen");
        assert_eq!(said[1], "attach name sender");
        assert!(said[2].starts_with("transfer"), "{said:?}");
        assert_eq!(world.queue("q").counters.consumers, 1);
    });
}

#[test]
fn not_by_another_user_nor_another_container_nor_in_the_other_direction() {
    each(|world| {
        let old = holder(world, 0, "me", Some("alice"), 2);
        let others = [
            world.client_as(0, "me", Some("bob")),
            world.client_as(1, "me", None),
            world.client_as(1, "you", Some("alice")),
        ];
        for c in others {
            world[c].receiver_with(0, "name", "q", terms(1));
        }
        let same = world.client_as(1, "me", Some("alice"));
        world[same].sender_with(0, "name", "q", SenderTerms::default());
        world.run();
        assert_eq!(world[old].links[0].ended, None);
        assert_eq!(world.queue("q").counters.consumers, 4);
        let thief = world.client_as(1, "me", Some("alice"));
        world[thief].receiver_with(0, "name", "q", terms(1));
        world.run();
        assert_eq!(world[old].links[0].ended.as_deref(), Some("amqp:link:stolen"));
        assert_eq!(world.queue("q").counters.consumers, 4);
    });
}

#[test]
fn a_producers_link_too_and_what_it_sent_counts() {
    each(|world| {
        let old = world.client_as(0, "me", None);
        let s = world[old].sender_with(0, "name", "q", SenderTerms::default());
        world.run();
        world.hold_store();
        world[old].send(s, number(1));
        world.run();
        let new = world.client_as(1, "me", None);
        let t = world[new].sender_with(0, "name", "q", SenderTerms::default());
        world.run();
        assert_eq!(world[old].links[s].ended.as_deref(), Some("amqp:link:stolen"));
        world[new].send(t, number(2));
        world.run();
        world.free_store();
        assert_eq!(world[new].confirmed(t), [0]);
        assert_eq!(world.queue("q").counters.ready, 2);
    });
}

#[test]
fn back_and_forth_many_times() {
    each(|world| {
        let f = world.client("filler");
        let s = world[f].sender("q");
        world.run();
        for n in 0..20 {
            world[f].send(s, number(n));
        }
        world.run();
        let mut links = Vec::new();
        for round in 0..10 {
            let c = world.client_as(round % 2, "me", None);
            links.push((c, world[c].receiver_with(0, "name", "q", terms(100))));
            // Not always is the answer waited for.
            if round % 3 == 0 {
                world.run();
            }
        }
        world.run();
        let attached: Vec<_> = links.iter().filter(|(c, link)| world[*c].links[*link].attached).collect();
        assert_eq!(attached.len(), 1, "one link is left");
        let (c, link) = *attached[0];
        assert_eq!(world.queue("q").counters.consumers, 1);
        assert_eq!(world[c].numbers(link).len(), 20);
        world[c].accept_all(link);
        world.run();
        assert_eq!(world.queue("q").counters.depth, 0);
    });
}

#[test]
fn stolen_and_killed_at_once() {
    each(|world| {
        let old = holder(world, 0, "me", None, 3);
        let new = world.client_as(1, "me", None);
        world[new].receiver_with(0, "name", "q", terms(100));
        world.kill(old);
        world.run();
        assert_eq!(world[new].links[0].got.len(), 3);
        world.kill(new);
        world.run();
        assert_eq!(world.counts("q"), (3, 0, 3, 0));
        assert_eq!(world.queue("q").counters.consumers, 0);
    });
}

#[test]
fn attached_on_two_shards_in_one_turn_exactly_one_stands() {
    each(|world| {
        for round in 0..4 {
            let clients = [world.client_as(round % 2, "me", None), world.client_as(1 - round % 2, "me", None)];
            for c in clients {
                world[c].receiver_with(0, "name", "q", terms(5));
                world[c].sender_with(0, "name", "q", SenderTerms::default());
            }
            world.run();
            for link in [0, 1] {
                let standing = clients.iter().filter(|c| world[**c].links[link].attached).count();
                assert_eq!(standing, 1, "link {link} in round {round}");
            }
            assert_eq!(world.queue("q").counters.consumers, 1);
        }
    });
}
