//! Large messages stream in and out, and what stands behind them keeps its order (`architecture.md` §3).

use crate::world::{C, Msg, ReceiverTerms, SenderTerms, World, each, each_with, number};
use packhorse_amqp10::codec::{SenderSettleMode, Transfer};
use packhorse_broker::{Command, Reply};

const BIG: usize = 3 << 20;

fn big(number: u64) -> Vec<u8> {
    Msg::new(number).length(BIG + number as usize * 1000).bytes()
}

/// A client with a sender (link 0) on `q`.
fn sender(world: &mut World) -> C {
    let c = world.client("sender");
    world[c].sender("q");
    world.run();
    c
}

/// The first part of a message, and no more of it.
fn send_parts(world: &mut World, c: C, bytes: &[u8]) {
    world[c].begin_parts(0);
    for part in bytes.chunks(500_000) {
        world[c].send_part(0, part);
        world.run();
    }
}

fn received(world: &mut World) -> Vec<u64> {
    let c = world.client("receiver");
    let r = world[c].receiver("q", 100);
    world.run();
    let numbers = world[c].numbers(r);
    world[c].accept_all(r);
    world.run();
    world[c].close();
    world.run();
    numbers
}

#[test]
fn small_ones_behind_a_large_one_keep_their_order() {
    each(|world| {
        let c = sender(world);
        for n in 0..8 {
            let bytes = if n % 3 == 1 { big(n) } else { Msg::new(n).durable(n % 2 == 0).bytes() };
            world[c].send(0, bytes);
        }
        world.run();
        let mut confirmed = world[c].confirmed(0);
        confirmed.sort_unstable();
        assert_eq!(confirmed, (0..8).collect::<Vec<_>>());
        assert_eq!(received(world), (0..8).collect::<Vec<_>>());
        assert_eq!(world.queue("q").counters.depth, 0);
    });
}

#[test]
fn two_large_ones_on_one_connection_at_once() {
    each(|world| {
        let c = sender(world);
        let other = world[c].sender("p");
        let r = world[c].receiver("q", 10);
        let s = world[c].receiver("p", 10);
        world.run();
        world[c].send(0, big(1));
        world[c].send(other, big(2));
        world[c].send(0, number(3));
        world.run();
        assert_eq!(world[c].numbers(r), [1, 3]);
        assert_eq!(world[c].numbers(s), [2]);
    });
}

#[test]
fn a_large_one_does_not_stop_other_links_of_its_session() {
    each(|world| {
        let f = sender(world);
        world[f].send(0, big(1));
        let p = world[f].sender("p");
        world.run();
        for n in 0..50 {
            world[f].send(p, number(n));
        }
        world.run();
        let c = world.narrow_client("c", 8, 4096);
        let r = world[c].receiver("q", 10);
        let s = world[c].receiver("p", 100);
        for _ in 0..2000 {
            if world[c].numbers(s).len() == 50 {
                break;
            }
            world.turn();
        }
        assert_eq!(world[c].numbers(s).len(), 50, "the small ones are through");
        assert!(world[c].numbers(r).is_empty(), "while the large one is under way");
        world.run();
        assert_eq!(world[c].numbers(r), [1]);
    });
}

#[test]
fn a_large_one_survives_a_crash_once_confirmed() {
    for seed in 0..4 {
        each(|world| {
            let c = sender(world);
            world[c].send(0, big(1));
            world.run();
            world.hold_store();
            world[c].send(0, big(2));
            world[c].send(0, number(3));
            world.run();
            assert_eq!(world[c].confirmed(0), [0]);
            world.crash(seed);
            world.free_store();
            let numbers = received(world);
            assert!([&[1][..], &[1, 2], &[1, 2, 3]].contains(&&numbers[..]), "{numbers:?}");
        });
    }
}

#[test]
fn an_aborted_large_one_leaves_nothing() {
    each(|world| {
        let c = sender(world);
        send_parts(world, c, &big(1)[..2 << 20]);
        world[c].abort(0);
        world.run();
        world[c].send(0, number(2));
        world.run();
        assert_eq!(world[c].confirmed(0), [0]);
        assert_eq!(received(world), [2]);
    });
}

#[test]
fn detach_right_behind_the_last_frame_waits_for_the_confirm() {
    for closed in [true, false] {
        each(|world| {
            let c = sender(world);
            world[c].send(0, big(1));
            world[c].send(0, number(2));
            while world[c].unsent(0) > 0 {
                world.turn();
            }
            world[c].detach(0, closed);
            world.run();
            assert_eq!(world[c].links[0].ended.as_deref(), Some(""));
            if !closed {
                assert_eq!(world[c].confirmed(0), [0, 1], "the confirms came first");
            }
            assert_eq!(received(world), [1, 2]);
        });
    }
}

#[test]
fn close_right_behind_the_last_frame_waits_for_the_confirm() {
    each(|world| {
        let c = sender(world);
        world[c].send(0, big(1));
        while world[c].unsent(0) > 0 {
            world.turn();
        }
        world[c].close();
        world.run();
        assert_eq!(world[c].closed.as_deref(), Some(""));
        assert_eq!(received(world), [1]);
    });
}

#[test]
fn detach_amid_a_large_one_aborts_it() {
    each(|world| {
        let c = sender(world);
        send_parts(world, c, &big(1)[..2 << 20]);
        world[c].detach(0, true);
        world.run();
        assert_eq!(world[c].links[0].ended.as_deref(), Some(""));
        assert!(received(world).is_empty());
    });
}

#[test]
fn a_connection_lost_amid_a_large_one_leaves_nothing_of_it() {
    each(|world| {
        let c = sender(world);
        world[c].send(0, number(1));
        world.run();
        send_parts(world, c, &big(2)[..2 << 20]);
        world.kill(c);
        world.run();
        assert_eq!(received(world), [1]);
    });
}

#[test]
fn a_reader_lost_amid_a_large_one_gives_it_back() {
    each(|world| {
        let f = sender(world);
        world[f].send(0, big(1));
        world.run();
        let c = world.client("slow");
        world.pipe_of(c).room = 500_000;
        world[c].receiver("q", 10);
        world.run();
        assert_eq!(world.counts("q"), (0, 1, 1, 0));
        world.kill(c);
        world.run();
        let c = world.client("slow");
        world.pipe_of(c).room = 500_000;
        let r = world[c].receiver("q", 10);
        world.run();
        world[c].detach(r, true);
        world.pipe_of(c).room = usize::MAX;
        world.run();
        assert_eq!(world[c].links[r].ended.as_deref(), Some(""));
        assert_eq!(received(world), [1]);
    });
}

/// Seeds 1478, 9214, 12104 and 15632 of d9a4e2c: a link ended while a part of a large message was being read for it, the next one got its place,
/// and the part came into another message.
#[test]
fn a_part_that_was_read_for_an_earlier_link_does_not_come_into_a_message_of_the_next() {
    each(|world| {
        world.fill("a", [7]);
        for (queue, number) in [("a", 1), ("b", 2)] {
            let f = world.client("sender");
            world[f].sender(queue);
            world.run();
            world[f].send(0, big(number));
            world.run();
        }
        world.memory.hold_parts(true);
        let c = world.client("reader");
        let first = world[c].receiver("a", 10);
        world.run();
        assert_eq!(world[c].numbers(first), [7], "a part of what is behind it is being read");
        world[c].detach(first, true);
        world.run();
        assert_eq!(world[c].links[first].ended.as_deref(), Some(""));
        let second = world[c].receiver("b", 10);
        world.run();
        world.memory.hold_parts(false);
        world.run();
        assert_eq!(world[c].numbers(second), [2]);
        let (got, sent) = (&world[c].links[second].got[0].bytes, big(2));
        assert!(got.len() >= sent.len() - 100 && sent.ends_with(&got[100..]), "what was sent is what came");
    });
}

#[test]
fn garbage_behind_the_first_mebibyte_is_rejected() {
    each(|world| {
        let c = sender(world);
        let mut bytes = big(1);
        // A second body section of another kind.
        bytes.extend_from_slice(&[0x00, 0x53, 0x77, 0x40]);
        world[c].send(0, bytes);
        world[c].send(0, number(2));
        world.run();
        assert_eq!(world[c].links[0].outcomes[0], (0, "rejected amqp:decode-error".into()));
        let mut cut = big(3);
        cut.truncate(cut.len() - 10);
        world[c].send(0, cut);
        world.run();
        assert_eq!(world[c].links[0].outcomes[2], (2, "rejected amqp:decode-error".into()));
        assert_eq!(received(world), [2]);
    });
}

#[test]
fn an_opaque_large_message_comes_out_as_it_came() {
    each(|world| {
        let c = sender(world);
        let bytes: Vec<u8> = (0..BIG).map(|n| ((n * 7) >> 3) as u8).collect();
        world[c].send_as(0, bytes.clone(), false, 99);
        world.run();
        let r = world[c].receiver("q", 10);
        world.run();
        let got = &world[c].links[r].got[0];
        assert_eq!(got.format, 99);
        assert!(got.bytes == bytes);
    });
}

#[test]
fn the_message_limit_is_checked_as_bytes_arrive() {
    each_with(
        |config| config.max_message_bytes = 2 << 20,
        |world| {
            let p = world.peer_open("p");
            world[p].attach_sender("s", 0, "q");
            world.run();
            world[p].said();
            let bytes = big(1);
            let mut parts = bytes.chunks(500_000);
            let first = Transfer {
                handle: 0,
                delivery_id: Some(0),
                delivery_tag: Some(b"t"),
                more: true,
                ..Transfer::default()
            };
            world[p].transfer_as(&first, parts.next().unwrap());
            for part in parts.by_ref().take(3) {
                world[p].transfer_as(&Transfer { handle: 0, more: true, ..Transfer::default() }, part);
            }
            world.run();
            assert_eq!(world[p].said(), [""; 0], "2,000,000 bytes are within the limit");
            world[p].transfer_as(&Transfer { handle: 0, more: true, ..Transfer::default() }, parts.next().unwrap());
            world.run();
            assert_eq!(world[p].said(), ["detach 0 closed amqp:link:message-size-exceeded"]);
            assert!(world.logged("2500000") && world.logged("2097152"), "thing, limit and value");
            assert!(received(world).is_empty());
        },
    );
}

#[test]
fn a_settled_large_message_is_there() {
    each(|world| {
        let c = sender(world);
        world[c].send_as(0, big(1), true, 0);
        world[c].send_as(0, number(2), true, 0);
        world.run();
        assert_eq!(received(world), [1, 2]);
    });
}

#[test]
fn one_that_grew_large_is_given_back_with_changed_annotations() {
    each(|world| {
        let c = sender(world);
        world[c].send(0, big(1));
        world.run();
        let r = world[c].receiver("q", 1);
        world.run();
        world[c].modify(r, 0, true, false, &[("x-opt-note", "seen")]);
        world[c].credit(r, 1);
        world.run();
        let got = &world[c].links[r].got[1];
        assert_eq!((got.number(), got.deliveries()), (1, 1));
        assert_eq!(got.annotation("x-opt-note").as_deref(), Some("seen"));
    });
}

#[test]
fn whole_ones_count_although_the_connection_is_lost_before_their_files_are_safe() {
    each(|world| {
        let c = sender(world);
        world.hold_store();
        world[c].send_as(0, big(1), true, 0);
        world[c].send(0, number(2));
        world[c].send_as(0, big(3), true, 0);
        world[c].send_as(0, number(4), true, 0);
        world.run();
        world.kill(c);
        world.run();
        world.free_store();
        world.run();
        assert_eq!(received(world), [1, 2, 3, 4]);
        assert_eq!(world.queue("q").counters.depth, 0);
    });
}

#[test]
fn whole_ones_count_although_their_link_is_over_before_their_files_are_safe() {
    for how in 0..4 {
        each(|world| {
            world.errors_expected = true;
            let c = world.client_as(0, "me", None);
            world[c].sender_with(0, "name", "q", SenderTerms::default());
            world.run();
            world.hold_store();
            world[c].send_as(0, big(1), true, 0);
            world[c].send_as(0, number(2), true, 0);
            world.run();
            match how {
                0 => world[c].detach(0, true),
                1 => world[c].end(0),
                2 => world[c].close(),
                // Ended by the broker, and that is answered at once.
                _ => {
                    let thief = world.client_as(0, "me", None);
                    world[thief].sender_with(0, "name", "q", SenderTerms::default());
                }
            }
            world.run();
            assert_eq!(world[c].links[0].ended.is_some(), how == 3);
            world.free_store();
            world.run();
            assert_eq!(received(world), [1, 2], "way {how}");
            assert_eq!(world.memory.large_files(), 0);
        });
    }
}

/// The same of a queue that is deleted, where nothing comes of them (simulator, seed 5574 of d9a4e2c: its file stayed).
#[test]
fn one_whose_link_is_over_because_its_queue_is_deleted_leaves_no_file() {
    for settled in [false, true] {
        each(|world| {
            world.errors_expected = true;
            let c = sender(world);
            let shard = usize::from(world.queue("q").shard);
            world.memory.hold_files(true);
            world[c].send_as(0, big(1), settled, 0);
            world.run();
            let delete = world.command(shard, Command::QueueDelete { name: "q".into(), force: true, by: None });
            world.run();
            assert!(matches!(world.reply(delete), Some(Reply::Deleted { .. })));
            assert_eq!(world[c].links[0].ended.as_deref(), Some("amqp:resource-deleted"));
            assert_eq!(world.memory.large_files(), 1);
            world.memory.hold_files(false);
            world.run();
            assert_eq!(world.memory.large_files(), 0, "settled: {settled}");
        });
    }
}

/// Its file would stay until the next start (simulator, seed 942 of 6879ad7).
#[test]
fn one_whose_queue_is_deleted_before_it_is_safe_leaves_no_file() {
    for settled in [false, true] {
        each(|world| {
            world.errors_expected = true;
            let c = sender(world);
            world.hold_store();
            world[c].send_as(0, big(1), settled, 0);
            world.run();
            assert_eq!(world.memory.large_files(), 1);
            let shard = usize::from(world.queue("q").shard);
            let delete = world.command(shard, Command::QueueDelete { name: "q".into(), force: true, by: None });
            world.run();
            world.free_store();
            world.run();
            assert!(matches!(world.reply(delete), Some(Reply::Deleted { .. })));
            assert_eq!(world.memory.large_files(), 0, "settled: {settled}");
        });
    }
}

/// The file of a large message is cut to `left` bytes: it is set aside, its consumer is told that the transfer is aborted, and gets
/// what is behind it.
fn file_cut_to(left: usize, aborted: bool) {
    each(|world| {
        world.errors_expected = true;
        let c = sender(world);
        world[c].send(0, big(1));
        world[c].send(0, number(2));
        world.run();
        world.memory.cut_large_files(left);
        let c = world.client("receiver");
        let r = world[c].receiver("q", 1);
        world.run();
        if aborted {
            // What was begun has used its credit.
            assert_eq!(world[c].links[r].got.iter().map(|got| got.aborted).collect::<Vec<_>>(), [true]);
            world[c].credit(r, 1);
            world.run();
        }
        assert_eq!(world[c].numbers(r), [2]);
        assert!(world[c].links[r].ended.is_none(), "its link lives on");
        assert_eq!(world.queue("q").counters.damaged, 1);
        assert!(world.logged("is damaged: its body failed its checksum or could not be read"));
        assert!(world.alarms().contains(&"damaged"), "an operator sees it");
        world[c].accept_all(r);
        world[c].close();
        world.run();
        assert!(received(world).is_empty(), "nobody is offered it again");
        assert_eq!((world.queue("q").counters.depth, world.queue("q").counters.damaged), (1, 1));
    });
}

#[test]
fn one_whose_file_is_gone_is_set_aside() {
    file_cut_to(0, false);
}

#[test]
fn one_whose_file_is_short_is_set_aside_amid_its_transfer() {
    file_cut_to(2_500_000, true);
}

#[test]
fn one_over_the_links_limit_is_passed_over() {
    each(|world| {
        let f = sender(world);
        world[f].send(0, big(1));
        world[f].send(0, number(2));
        world.run();
        let c = world.client("c");
        let terms = ReceiverTerms { max_message_size: Some(1_000_000), ..ReceiverTerms::default() };
        let r = world[c].receiver_with(0, "small", "q", terms);
        world.run();
        assert_eq!(world[c].numbers(r), [2]);
        assert!(world[c].links[r].ended.is_none());
        assert_eq!(received(world), [1]);
    });
}

#[test]
fn one_that_is_sent_settled_is_sent_whole_before_its_file_goes() {
    for crash in [false, true] {
        each(|world| {
            let f = sender(world);
            world[f].send(0, big(1));
            world[f].send(0, number(2));
            world.run();
            let c = world.client("c");
            let terms = ReceiverTerms { snd: SenderSettleMode::Settled, ..ReceiverTerms::default() };
            if crash {
                world.pipe_of(c).room = 1_000_000;
            }
            let r = world[c].receiver_with(0, "settled", "q", terms);
            world.run();
            if crash {
                world.kill(c);
                world.run();
                assert_eq!(received(world), [1], "not all of it was sent");
                return;
            }
            assert_eq!(world[c].numbers(r), [1, 2]);
            assert!(world[c].links[r].got.iter().all(|got| got.settled));
            assert_eq!(world.counts("q"), (0, 0, 2, 2));
        });
    }
}
