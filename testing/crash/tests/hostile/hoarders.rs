//! Peers that want to make the broker hold much: before the login, by not reading, not settling, not ending.

use crate::{MAX_MESSAGE, Run, fill, text};
use packhorse_client_core::codec::{FrameHeader, FrameKind, Open, SASL_PROTOCOL_HEADER, Transfer};
use packhorse_crash::{OPEN, Peer};

pub(crate) fn memory_before_login(run: &Run) {
    const PEERS: usize = 1000;
    // The most that a peer can have us hold: an unfinished frame as large as a login may send.
    let mut most = SASL_PROTOCOL_HEADER.to_vec();
    most.extend_from_slice(&[0, 0, 0x40, 0, 2, 1, 0, 0]);
    most.resize(8 + (16 << 10) - 1, 0);
    let before = run.broker.resident_kib();
    let mut peers: Vec<Peer> = (0..PEERS)
        .map(|_| {
            let mut peer = Peer::connect(run.to);
            peer.say(&most).until("sasl-mechanisms");
            peer
        })
        .collect();
    // Another 16 KiB each would make the frame whole; it is no login, so it ends them.
    let grown = run.broker.resident_kib().saturating_sub(before);
    let there = run.broker.status()["connections"].as_u64().unwrap();
    println!("{there} peers before login: {grown} KiB more");
    assert!(grown <= 32 * PEERS as u64, "{grown} KiB for {PEERS} connections: at most 32 each");
    for peer in &mut peers {
        peer.say(&[0; 16 << 10]);
    }
    for peer in &mut peers {
        assert!(peer.ends());
    }
}

pub(crate) fn never_reads(run: &Run) {
    const COUNT: usize = 1000;
    fill(run, "unread", COUNT, 100 << 10);
    let before = run.broker.resident_kib();
    let mut peers: Vec<Peer> = ["a", "b", "c"]
        .map(|name| {
            let mut peer = Peer::connect(run.to);
            let open = Open { container_id: name, ..OPEN };
            peer.log_in().open(&open).begin(0).receiver(0, "unread").flow(0, 0, u32::MAX);
            peer
        })
        .into();
    // What its buffers hold is taken from the queue, and no more.
    let mut acquired = 0;
    let mut same = 0;
    run.broker.until("the queue stops giving", |broker| {
        let now = broker.queue("unread")["acquired"].as_u64().unwrap();
        same = if now == acquired && now > 0 { same + 1 } else { 0 };
        acquired = now;
        same > 20
    });
    let grown = run.broker.resident_kib().saturating_sub(before);
    println!("{acquired} of {COUNT} messages taken by three that do not read, {grown} KiB more");
    assert!(acquired < COUNT as u64 * 2 / 3);
    assert!(grown < 48 << 10, "{grown} KiB");
    run.pair.goes_on().unwrap();
    for peer in &mut peers {
        peer.hang_up();
    }
    drop(peers);
    run.broker.until("everything comes back", |broker| broker.queue("unread")["ready"] == COUNT);
}

pub(crate) fn never_settles(run: &Run) {
    const COUNT: usize = 20_000;
    fill(run, "hoard", COUNT, 24);
    let mut peer = Peer::begun(run.to);
    peer.receiver(0, "hoard").flow(0, 0, u32::MAX);
    for _ in 0..COUNT {
        peer.until("transfer");
    }
    assert_eq!(run.broker.queue("hoard")["acquired"], COUNT);
    run.pair.goes_on().unwrap();
    drop(peer);
    run.broker.until("everything comes back", |broker| broker.queue("hoard")["ready"] == COUNT);
}

pub(crate) fn endless_message(run: &Run) {
    let mut peer = Peer::begun(run.to);
    peer.sender(0, "endless").until_credit();
    let mut first = Vec::new();
    let mut next = Vec::new();
    FrameHeader::encode(&mut first, FrameKind::Amqp, 0, |out| {
        Transfer { handle: 0, delivery_id: Some(0), delivery_tag: Some(b"e"), more: true, ..Transfer::default() }
            .encode(out);
        out.extend_from_slice(&[0x00, 0x53, 0x75, 0xb0, 0x7f, 0xff, 0xff, 0xff]);
    });
    FrameHeader::encode(&mut next, FrameKind::Amqp, 0, |out| {
        Transfer { handle: 0, more: true, ..Transfer::default() }.encode(out);
        out.extend_from_slice(&[7; 16 << 10]);
    });
    peer.say(&first);
    for _ in 0..2 * MAX_MESSAGE / (16 << 10) {
        peer.say(&next);
    }
    let told = peer.until_any(&["detach", "end", "close"]);
    assert_eq!((told.what, told.condition()), ("detach", "amqp:link:message-size-exceeded"));
    let (_, sentence) = told.error.unwrap();
    assert!(sentence.contains(&MAX_MESSAGE.to_string()), "the limit is named: {sentence}");
    // The session lives; what was half there is gone.
    peer.sender(1, "endless").until_credit();
    peer.transfer(1, 1, &text());
    assert_eq!(peer.until("disposition").state, "accepted");
    assert_eq!(run.broker.queue("endless")["depth"], 1);
    // A message that never ends and stays below the limit costs what it holds, and goes with its connection.
    let mut peers: Vec<Peer> = (0..4).map(|_| Peer::begun(run.to)).collect();
    for peer in &mut peers {
        peer.sender(0, "endless").until_credit();
        peer.say(&first);
        for _ in 0..MAX_MESSAGE / (16 << 10) - 1 {
            peer.say(&next);
        }
    }
    run.pair.goes_on().unwrap();
    run.broker.until("they are on disk, not in memory", |broker| broker.large_files() == 4);
    drop(peers);
    run.broker.until("files of what never came whole are gone", |broker| broker.large_files() == 0);
    assert_eq!(run.broker.queue("endless")["depth"], 1);
}

pub(crate) fn aborted_floods(run: &Run) {
    let mut peer = Peer::begun(run.to);
    peer.sender(0, "aborted").until_credit();
    let mut id = 0u32;
    for _ in 0..100 {
        let mut bytes = Vec::new();
        // Less than half of the credit, which is what is left at least.
        for _ in 0..200 {
            let tag = id.to_be_bytes();
            let first = Transfer {
                handle: 0,
                delivery_id: Some(id),
                delivery_tag: Some(&tag),
                more: true,
                ..Transfer::default()
            };
            FrameHeader::encode(&mut bytes, FrameKind::Amqp, 0, |out| {
                first.encode(out);
                out.extend_from_slice(&text());
            });
            FrameHeader::encode(&mut bytes, FrameKind::Amqp, 0, |out| {
                Transfer { handle: 0, aborted: true, ..Transfer::default() }.encode(out);
            });
            id += 1;
        }
        peer.say(&bytes);
        // They take credit, which comes back.
        peer.transfer(0, id, &text());
        let told = peer.until_any(&["disposition", "detach", "end", "close"]);
        assert_eq!((told.what, told.delivery), ("disposition", Some(id)), "{told:?}");
        id += 1;
    }
    assert_eq!(run.broker.queue("aborted")["ready"], 100);
    // Large ones, which are on their way to a file.
    for _ in 0..20 {
        let tag = id.to_be_bytes();
        for part in 0..2 {
            peer.frame(0, |out| {
                let (delivery_id, delivery_tag) = if part == 0 { (Some(id), Some(&tag[..])) } else { (None, None) };
                Transfer { handle: 0, delivery_id, delivery_tag, more: true, ..Transfer::default() }.encode(out);
                let head = [0x00, 0x53, 0x75, 0xb0, 0x7f, 0xff, 0xff, 0xff];
                out.extend_from_slice(if part == 0 { &head } else { &[] });
                out.extend_from_slice(&[7; 1_000_000]);
            });
        }
        peer.frame(0, |out| Transfer { handle: 0, aborted: true, ..Transfer::default() }.encode(out));
        id += 1;
        peer.transfer(0, id, &text());
        let told = peer.until_any(&["disposition", "detach", "end", "close"]);
        assert_eq!((told.what, told.delivery), ("disposition", Some(id)), "{told:?}");
        id += 1;
    }
    assert_eq!(run.broker.queue("aborted")["ready"], 120);
    run.broker.until("files of what was taken back are gone", |broker| broker.large_files() == 0);
}
