//! FS-63: bytes on the disk that are not what was written there.

use crate::{Q, filled, numbers, restarted, worlds};
use packhorse_sim::{BatchKind, Death, Point, Shape};

#[test]
fn fs_63_a_torn_or_flipped_last_block_that_nobody_was_told_of_is_cut_off() {
    let hits = std::cell::Cell::new(0);
    worlds(6_300, 10, |script| {
        let who = script.client();
        let sender = script.producer(who, Q);
        script.send(sender, 20);
        script.rest();
        let told = script.durable_block();
        let point = [Point::AfterSync, Point::DuringSync][script.draw(0, 1) as usize];
        script.arm(BatchKind::Enqueue, point, 1, Death::Kill);
        let size = [100, 5_000, 60_000][script.draw(0, 2) as usize];
        script.send_shaped(sender, Shape { size, ..Shape::default() });
        script.until("the broker ends", |s| !s.is_armed());
        // As it is on the medium when a write was torn, or a sector is bad.
        let hit = if script.draw(0, 1) == 0 { script.flip_tail(told) } else { script.tear_tail(told) };
        assert!(hit, "there is a block above {told}");
        script.until("the broker runs", |s| s.is_running());
        assert_eq!(script.confirmed(sender).len(), 20);
        let all = script.drain(Q);
        assert!(all.iter().all(|got| got.whole));
        // A bit in what fills up the last unit harms nobody.
        assert!(all.len() == 20 || all.len() == 21);
        assert_eq!(numbers(&all), (0..all.len() as u64).collect::<Vec<_>>());
        hits.set(hits.get() + usize::from(all.len() == 20));
    });
    assert!(hits.get() >= 15, "{} of 20 were cut off", hits.get());
}

#[test]
fn fs_63_a_flip_in_a_header_or_in_metadata_refuses_the_start_with_a_report() {
    worlds(6_320, 10, |script| {
        filled(script, Q, 30);
        let starts = script.starts();
        assert!(script.flip_header());
        script.until("a start is refused", |s| s.starts() > starts);
        assert!(!script.is_running(), "it does not run on a log that has a hole");
        let report = script.notes().find(|note| note.contains("is refused")).expect("a report").to_owned();
        assert!(report.contains("is damaged at byte") && report.contains(".seg"), "{report}");
        // The operator brings back the file.
        script.until("the broker runs", |s| s.is_running());
        let all = script.drain(Q);
        assert_eq!(numbers(&all), (0..30).collect::<Vec<_>>());
    });
}

#[test]
fn fs_63_a_flip_in_a_body_damages_that_message_alone_and_is_never_silent() {
    worlds(6_340, 10, |script| {
        // Of several blocks, so that the later ones prove the others.
        let who = script.client();
        let sender = script.producer(who, Q);
        for _ in 0..5 {
            script.send(sender, 8);
            script.rest();
        }
        let (_, lost) = script.flip_body().expect("there are bodies");
        restarted(script);
        let who = script.client();
        let receiver = script.consumer(who, Q, 100);
        let came = script.receive(receiver, 0, 39);
        script.rest();
        assert_eq!(script.got(receiver).len(), 39);
        let expected: Vec<u64> = (0..40).filter(|number| *number != lost).collect();
        assert_eq!(numbers(&came), expected, "all others, in order");
        assert!(came.iter().all(|got| got.whole), "a damaged body is not given out");
        let counters = script.queue(Q).expect("it is there").counters;
        assert_eq!((counters.damaged, counters.depth, counters.acquired), (1, 40, 39));
        assert!(script.notes().any(|note| note.contains("is damaged: its body failed its checksum")));
        crate::decide(script, receiver, &came, packhorse_client_core::Verdict::Accept);
        script.rest();
    });
}
