//! Peers that mean harm: streams of legal frames, damaged; a peer that never reads; one that fills tables.

use packhorse_amqp10::Limits;
use packhorse_amqp10::codec::*;
use packhorse_amqp10::engine::{ServerConfig, fuzz};
use proptest::prelude::*;

use crate::kit::*;

const IN_TRANSACTION: DeliveryState<'static> =
    DeliveryState::Transactional(TransactionalState { txn_id: b"t", outcome: Some(Outcome::Accepted) });

/// The frames that streams are made of. Most follow the rules.
fn frames() -> Vec<Vec<u8>> {
    let big = Box::leak(vec![b'n'; 900].into_boxed_slice());
    let mut frames = vec![
        perform(0, Open { container_id: "peer", max_frame_size: 700, ..Open::default() }),
        perform(0, Open { container_id: "peer", idle_time_out: Some(4000), channel_max: 3, ..Open::default() }),
        perform(0, Close::default()),
        frame(0, |_| {}),
    ];
    for channel in 0..3 {
        frames.push(perform(channel, begin()));
        frames.push(perform(channel, Begin { remote_channel: Some(0), handle_max: 5, ..begin() }));
        frames.push(perform(channel, End::default()));
        for handle in 0..3 {
            for name in ["r", "s", "t"] {
                frames.push(perform(channel, sender(name, handle)));
                frames.push(perform(channel, receiver(name, handle)));
            }
            frames.push(perform(channel, Attach { snd_settle_mode: SenderSettleMode::Settled, ..sender("u", handle) }));
            frames.push(perform(channel, Detach { handle, closed: handle == 1, error: None }));
            let coordinator = Coordinator { capabilities: Symbols::one("amqp:local-transactions") };
            frames.push(perform(channel, Attach { target: Some(coordinator.into()), ..sender("c", handle) }));
            let posted = Transfer { state: Some(IN_TRANSACTION), ..first(handle, 4) };
            frames.push(with_payload(channel, posted, b"payload"));
            frames.push(with_payload(channel, more(posted), b"payload"));
            frames.push(with_payload(channel, Transfer { state: Some(IN_TRANSACTION), ..next(handle) }, b"end"));
            for credit in [0, 5, u32::MAX] {
                frames.push(perform(channel, link_flow(handle, 0, credit)));
                frames.push(perform(
                    channel,
                    Flow { drain: true, echo: true, incoming_window: 4, ..link_flow(handle, 3, credit) },
                ));
            }
            for id in [0, 1, 2, 3, u32::MAX] {
                frames.push(with_payload(channel, first(handle, id), b"payload"));
                frames.push(with_payload(channel, more(first(handle, id)), big));
            }
            frames.push(with_payload(channel, next(handle), b"end"));
            frames.push(with_payload(channel, more(settled(next(handle))), b"more"));
            frames.push(with_payload(channel, Transfer { aborted: true, ..next(handle) }, b""));
        }
        frames.push(perform(channel, Flow { next_incoming_id: Some(0), incoming_window: 100, ..Flow::default() }));
        for role in [Role::Sender, Role::Receiver] {
            for settled in [false, true] {
                frames.push(perform(channel, disposition(role, 0, 9, settled, Some(DeliveryState::Accepted))));
                frames.push(perform(channel, disposition(role, u32::MAX, 2, settled, None)));
                frames.push(perform(channel, disposition(role, 0, 9, settled, Some(IN_TRANSACTION))));
            }
        }
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_stream_of_frames_whole_or_damaged_makes_the_engine_panic(
        how in any::<u8>(),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0u8..10), 1..120),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        damaged in any::<bool>(),
    ) {
        let frames = frames();
        let mut stream = PROTOCOL_HEADER.to_vec();
        stream.extend_from_slice(&frames[0]);
        if how & 1 == 0 {
            stream.extend(perform(0, begin()));
        } else {
            stream.extend(perform(0, Begin { remote_channel: Some(0), ..begin() }));
        }
        // Two links that stand, so that deliveries get somewhere.
        for attach in [sender("s", 0), receiver("r", 1)] {
            stream.extend(perform(0, attach));
        }
        let mut id = 0;
        for (pick, kind) in &picks {
            match kind {
                0..=2 => {
                    stream.extend(with_payload(0, first(0, id), b"payload"));
                    id += 1;
                }
                3 | 4 => stream.extend(perform(0, Flow { drain: *kind == 3, ..link_flow(1, 0, id + 5) })),
                5 => {
                    let settled = id % 2 == 0;
                    stream.extend(perform(0, disposition(Role::Receiver, 0, id, settled, Some(DeliveryState::Accepted))));
                }
                6 => stream.extend(perform(0, disposition(Role::Sender, 0, id, true, Some(DeliveryState::Accepted)))),
                _ => stream.extend_from_slice(&frames[pick.index(frames.len())]),
            }
        }
        if damaged {
            for (at, byte) in &damage {
                let at = at.index(stream.len());
                stream[at] = *byte;
            }
        }
        // A client that logs in would not get past its first header.
        let mut data = vec![if how & 1 == 1 { how | 2 } else { how }];
        data.extend_from_slice(&stream);
        fuzz::connection(&data);
    }
}

#[test]
fn a_peer_that_never_reads_costs_a_bounded_buffer() {
    let limits = Limits { output_bytes: 10_000, ..Limits::default() };
    let mut rig = Rig::server_with(ServerConfig { limits, ..config() }, Open { container_id: "p", ..Open::default() });
    rig.send(receiver("out", 0));
    rig.send(link_flow(0, 0, u32::MAX));
    let mut turns = 0;
    // Reads go on as long as the engine wants them; nothing is ever written.
    while rig.conn.wants_read() {
        for _ in 0..100 {
            rig.send(Flow { echo: true, ..link_flow(0, 0, u32::MAX) });
            rig.conn.flush(0);
        }
        turns += 1;
        assert!(turns < 100);
    }
    assert!(rig.conn.output_len() < 30_000, "{}", rig.conn.output_len());
    rig.bytes();
    assert!(rig.conn.wants_read());
}

#[test]
fn a_peer_that_attaches_and_never_detaches_reaches_a_limit() {
    let limits = Limits { links: 50, ..Limits::default() };
    let mut rig = Rig::server_with(ServerConfig { limits, ..config() }, Open { container_id: "p", ..Open::default() });
    rig.on_attach = OnAttach::Refuse;
    for handle in 0..60 {
        rig.send(sender("same", handle));
    }
    assert_eq!(rig.out().last().unwrap(), "end(amqp:resource-limit-exceeded)");
}
