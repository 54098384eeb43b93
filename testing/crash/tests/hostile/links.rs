//! Sessions, links, flows, dispositions and transfers beyond what was agreed, and storms of them.

use crate::{CREDIT, Run, fill, text};
use packhorse_client_core::codec::{
    Attach, AttachTarget, Begin, DeliveryState, Detach, Disposition, End, Flow, FrameHeader, FrameKind, Role, Source,
    Symbols, Target, Transfer,
};
use packhorse_crash::{OPEN, Peer};
use std::time::Instant;

fn attach(peer: &mut Peer, channel: u16, name: &str, handle: u32) {
    let attach = Attach {
        name,
        handle,
        role: Role::Receiver,
        source: Some(Source { address: Some("hostile-links"), ..Source::default() }),
        target: Some(AttachTarget::Target(Default::default())),
        ..Attach::default()
    };
    peer.frame(channel, |out| attach.encode(out));
}

pub(crate) fn too_many_sessions(run: &Run) {
    let mut peer = Peer::opened(run.to);
    for channel in 0..1024 {
        peer.begin(channel);
    }
    for _ in 0..1024 {
        peer.until("begin");
    }
    assert!(run.broker.status()["sessions"].as_u64().unwrap() >= 1024);
    let all = peer.begin(1024).hang_up().rest();
    assert_eq!(all.last().unwrap().condition(), "amqp:connection:framing-error", "{all:?}");
    // The same channel again and again.
    let mut peer = Peer::opened(run.to);
    let all = peer.begin(7).begin(7).hang_up().rest();
    assert_eq!(all.last().unwrap().condition(), "amqp:illegal-state", "{all:?}");
    // Begun and ended without rest: places are free again.
    let mut peer = Peer::opened(run.to);
    let mut bytes = Vec::new();
    for channel in 0..64 {
        FrameHeader::encode(&mut bytes, FrameKind::Amqp, channel, |out| {
            Begin { incoming_window: 1, outgoing_window: 1, ..Begin::default() }.encode(out)
        });
        FrameHeader::encode(&mut bytes, FrameKind::Amqp, channel, |out| End { error: None }.encode(out));
    }
    for _ in 0..100 {
        peer.say(&bytes);
        for _ in 0..64 {
            peer.until("end");
        }
    }
}

pub(crate) fn too_many_links(run: &Run) {
    let mut peer = Peer::begun(run.to);
    // The highest handle is served, the next one is not there.
    peer.sender(65_535, "hostile").until_credit();
    let all = peer.sender(65_536, "hostile").hang_up().rest();
    assert_eq!(all.last().unwrap().condition(), "amqp:connection:framing-error", "{all:?}");
    // Links of one connection, over several sessions.
    let begin = Instant::now();
    let mut peer = Peer::opened(run.to);
    const SESSIONS: u16 = 4;
    const LINKS: u32 = 16_384;
    for channel in 0..SESSIONS {
        peer.begin(channel).until("begin");
        for handle in 0..LINKS {
            let name = format!("link-{channel}-{handle}");
            attach(&mut peer, channel, &name, handle);
            // So that neither side stops for want of reading.
            if handle % 512 == 511 {
                for _ in 0..512 {
                    peer.until("attach");
                }
            }
        }
    }
    assert!(run.broker.status()["links"].as_u64().unwrap() >= 65_536);
    peer.begin(SESSIONS).until("begin");
    attach(&mut peer, SESSIONS, "one too many", 0);
    let told = peer.until_any(&["detach", "end", "close"]);
    assert_eq!(told.condition(), "amqp:resource-limit-exceeded", "{told:?}");
    run.pair.goes_on().unwrap();
    println!("{:.2} s to attach them", begin.elapsed().as_secs_f64());
    // All at once: the connection goes.
    drop(peer);
    run.broker.until("links go", |broker| broker.status()["links"].as_u64().unwrap() < 100);
}

/// Peers that ask for answers without end and read none: the broker stops reading before its output grows without bound.
pub(crate) fn storms_unread(run: &Run) {
    // Long enough, so that no turn of the broker sees a channel or handle for the second time before it is free.
    let (mut sessions, mut links) = (Vec::new(), Vec::new());
    let padding = ["x"; 100];
    for channel in 1..1000 {
        let begin = Begin {
            incoming_window: 1,
            outgoing_window: 1,
            desired_capabilities: Symbols::from_slice(&padding),
            ..Begin::default()
        };
        FrameHeader::encode(&mut sessions, FrameKind::Amqp, channel, |out| begin.encode(out));
        FrameHeader::encode(&mut sessions, FrameKind::Amqp, channel, |out| End { error: None }.encode(out));
    }
    for handle in 0..30_000 {
        let name = format!("storm-{handle}");
        let target = Target { address: Some("hostile"), ..Target::default() };
        let attach = Attach {
            name: &name,
            handle,
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(AttachTarget::Target(target)),
            initial_delivery_count: Some(0),
            ..Attach::default()
        };
        let detach = Detach { handle, closed: true, error: None };
        FrameHeader::encode(&mut links, FrameKind::Amqp, 0, |out| attach.encode(out));
        FrameHeader::encode(&mut links, FrameKind::Amqp, 0, |out| detach.encode(out));
    }
    let mut echoes = Vec::new();
    FrameHeader::encode(&mut echoes, FrameKind::Amqp, 0, |out| {
        Flow { next_incoming_id: Some(0), incoming_window: 10, outgoing_window: 10, echo: true, ..Flow::default() }
            .encode(out);
    });
    for (name, storm) in [("sessions", sessions), ("links", links), ("echoes", echoes.repeat(1000))] {
        let before = run.broker.resident_kib();
        let mut peer = Peer::begun(run.to);
        // 64 MiB of questions, or less if the broker has had enough.
        let taken = peer.flood(&storm, (64 << 20) / storm.len());
        let grown = run.broker.resident_kib().saturating_sub(before);
        println!("{name}: {} KiB taken, {grown} KiB more", taken >> 10);
        assert!(grown < 24 << 10, "{name} without reading: {grown} KiB more for {} KiB", taken >> 10);
        // It was served until then, not thrown out.
        let heard: Vec<_> = (0..100).map_while(|_| peer.hear()).filter(|heard| heard.what == "close").collect();
        assert!(heard.is_empty(), "{name}: {heard:?}");
        run.pair.goes_on().unwrap();
    }
}

pub(crate) fn dispositions_over_everything(run: &Run) {
    fill(run, "ranges", 100, 24);
    let mut peer = Peer::begun(run.to);
    peer.receiver(0, "ranges").flow(0, 0, 50);
    for _ in 0..50 {
        peer.until("transfer");
    }
    // All ids from 0 on that are not "before" it, over and over: 50 of them mean something, once.
    let mut bytes = Vec::new();
    for round in 0..20_000u32 {
        FrameHeader::encode(&mut bytes, FrameKind::Amqp, 0, |out| {
            Disposition {
                role: Role::Receiver,
                first: 0,
                last: Some((u32::MAX >> 1) - round % 7),
                settled: true,
                state: Some(DeliveryState::Accepted),
                batchable: false,
            }
            .encode(out);
        });
    }
    peer.say(&bytes).flow(0, 50, 1).until("transfer");
    run.broker.until("50 are acknowledged", |broker| broker.queue("ranges")["acknowledged_total"] == 50);
    // Backwards.
    let all = peer.settle(10, 9, DeliveryState::Accepted).hang_up().rest();
    assert!(all.iter().any(|heard| heard.what == "end" && heard.condition() == "amqp:invalid-field"), "{all:?}");
    run.broker.until("the rest is there", |broker| broker.queue("ranges")["ready"] == 50);
}

pub(crate) fn flow_storms(run: &Run) {
    let mut peer = Peer::begun(run.to);
    peer.receiver(0, "hostile-flows").until("attach");
    let mut bytes = Vec::new();
    for round in 0..50_000u32 {
        // Credit up and down, with drain, with echo, stale, from the far side of the wrap.
        let flow = Flow {
            next_incoming_id: Some(round.wrapping_mul(0x9e37_79b9)),
            incoming_window: round % 3,
            next_outgoing_id: round,
            outgoing_window: u32::MAX,
            handle: Some(0),
            delivery_count: Some(round.wrapping_mul(0x85eb_ca6b)),
            link_credit: Some(if round % 2 == 0 { u32::MAX } else { 0 }),
            drain: round % 5 == 0,
            echo: round % 64 == 0,
            ..Flow::default()
        };
        FrameHeader::encode(&mut bytes, FrameKind::Amqp, 0, |out| flow.encode(out));
        if round % 5_000 == 0 {
            peer.say(&bytes).until("flow");
            bytes.clear();
        }
    }
    let end = End { error: None };
    peer.say(&bytes).frame(0, |out| end.encode(out)).until("end");
    // A flow for a link that is not there ends the session, not the connection.
    let mut peer = Peer::begun(run.to);
    let told = peer.flow(9, 0, 1).until("end");
    assert_eq!(told.condition(), "amqp:session:unattached-handle");
    peer.begin(1).until("begin");
}

pub(crate) fn transfers_without_credit(run: &Run) {
    let mut peer = Peer::begun(run.to);
    assert_eq!(peer.sender(0, "no-credit").until_credit(), CREDIT);
    // More than is ever given, in one write, so that much of it is read at once.
    let mut bytes = Vec::new();
    for id in 0..20 * CREDIT {
        let tag = id.to_be_bytes();
        FrameHeader::encode(&mut bytes, FrameKind::Amqp, 0, |out| {
            Transfer { handle: 0, delivery_id: Some(id), delivery_tag: Some(&tag), ..Transfer::default() }.encode(out);
            out.extend_from_slice(&text());
        });
    }
    let told = peer.say(&bytes).until_any(&["detach", "end"]);
    assert!(
        ["amqp:link:transfer-limit-exceeded", "amqp:session:window-violation"].contains(&told.condition()),
        "{told:?}"
    );
    // On a link that was refused, and on none at all.
    let mut peer = Peer::begun(run.to);
    let told = peer.sender(0, &"n".repeat(256)).until("detach");
    assert_eq!(told.condition(), "amqp:invalid-field", "{told:?}");
    let told = peer.transfer(5, 0, &text()).until("end");
    assert_eq!(told.condition(), "amqp:session:unattached-handle");
}

/// Many connections of one container, all with the same link: at any time one of them may have it, and in the end one has.
pub(crate) fn one_name_for_many(run: &Run) {
    const PEERS: usize = 12;
    for round in 0..20 {
        let mut peers: Vec<Peer> = (0..PEERS)
            .map(|_| {
                let mut peer = Peer::connect(run.to);
                peer.log_in().open(&OPEN).begin(0).until("begin");
                peer
            })
            .collect();
        for peer in &mut peers {
            peer.receiver(0, "contested").flow(0, 0, 1);
        }
        // Each is told: it has the link, or it lost it.
        for peer in &mut peers {
            peer.until("attach");
        }
        run.broker.until(&format!("round {round}: one of {PEERS} has the link"), |broker| {
            broker.queue("contested")["consumers"] == 1
        });
        drop(peers);
        run.broker.until("nobody has it", |broker| broker.queue("contested")["consumers"] == 0);
    }
}
