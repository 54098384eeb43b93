//! A fuzz target for the engine: any bytes from a peer, in any pieces, with a caller that commands at random. No input may
//! make it panic, hold more than it may, or write what a decoder does not take.
//!
//! The first byte chooses role and pieces, the rest is the peer's stream.

use alloc::vec;
use alloc::vec::Vec;

use super::{ClientConfig, Connection, Event, Input, LinkId, LinkReply, Piece, SendParams, ServerConfig, SessionId};
use crate::codec::{
    AttachTarget, DeliveryState, Error, FrameHeader, FrameKind, Open, PROTOCOL_HEADER, Performative, Role,
    SASL_PROTOCOL_HEADER, SaslCode, SaslPerformative, Source, Target,
};
use crate::limits::Limits;

/// The caller's side: what it knows, and dice.
struct Caller {
    dice: u64,
    links: Vec<LinkId>,
    sessions: Vec<SessionId>,
    deliveries: Vec<(LinkId, u32)>,
    /// What we wrote and did not check yet.
    written: Vec<u8>,
}

impl Caller {
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.dice >> 33) % sides
    }

    /// Answers an event, or leaves it.
    fn handle(&mut self, conn: &mut Connection, event: &Event<'_>) {
        let error = Error { condition: "amqp:not-found", description: Some("no"), info: None };
        let error = Some(&error).filter(|_| self.roll(2) == 0);
        match event {
            Event::SaslInit { .. } | Event::SaslResponse(_) => {
                let _ = match self.roll(4) {
                    0 => conn.sasl_challenge(b"more"),
                    1 => conn.sasl_outcome(SaslCode::Auth, None),
                    _ => conn.sasl_outcome(SaslCode::Ok, None),
                };
            }
            Event::SaslMechanisms(frame) => {
                let _ = frame.decode();
                let _ = conn.sasl_init("ANONYMOUS", None, None);
            }
            Event::SaslChallenge(_) => drop(conn.sasl_response(b"x")),
            Event::SaslOutcome { .. } | Event::Drained { .. } => {}
            Event::Opened(frame) => {
                let _ = frame.decode();
                let _ = conn.open(&Open { container_id: "us", ..Open::default() }, 0);
            }
            Event::SessionBegun { session, frame, .. } => {
                let _ = frame.decode();
                self.sessions.push(*session);
            }
            Event::SessionEnded { session, answered, .. } => {
                assert_eq!(conn.end(*session, error).is_ok(), !answered);
            }
            Event::SessionFailed { session, .. } => assert!(conn.end(*session, None).is_err()),
            Event::Attach(attach) => {
                let asked = attach.frame.decode();
                self.links.push(attach.link);
                if !attach.answer {
                    let reply = LinkReply {
                        source: asked.source.or(Some(Source::default())),
                        target: asked.target.or(Some(AttachTarget::Target(Target::default()))),
                        max_message_size: self.roll(3) * 1000,
                        empty_unsettled: true,
                        ..LinkReply::default()
                    };
                    let _ = match self.roll(8) {
                        0 => conn.refuse_link(
                            attach.link,
                            &Error { condition: "amqp:not-found", description: None, info: None },
                        ),
                        1 => Ok(()),
                        _ => conn.accept_link(attach.link, &reply),
                    };
                    let _ = conn.grant(attach.link, 100);
                }
            }
            Event::Detached { link, closed, answered, .. } => {
                if self.roll(8) > 0 {
                    assert_eq!(conn.detach(*link, *closed, error).is_ok(), !answered);
                }
            }
            Event::LinkFailed { link, .. } => assert!(conn.detach(*link, true, None).is_err()),
            Event::Credit { link, drain, frame, .. } => {
                let _ = frame.decode();
                for _ in 0..self.roll(4) {
                    self.send(conn, *link);
                }
                if *drain {
                    let _ = conn.drained(*link);
                }
            }
            Event::SenderFlow { frame, .. } | Event::SessionFlow { frame, .. } => drop(frame.decode()),
            Event::Transfer(transfer) => {
                assert!(transfer.tag.len() <= 32);
                assert!(transfer.first || transfer.tag.is_empty());
                assert!(!transfer.aborted || transfer.last && transfer.payload.is_empty());
                self.deliveries.push((transfer.link, transfer.delivery_id));
            }
            Event::Disposition { count, .. } => {
                let mut outcomes = Vec::new();
                conn.take_outcomes(&mut outcomes);
                assert_eq!(outcomes.len(), *count as usize);
                for outcome in outcomes.iter().filter(|outcome| !outcome.settled) {
                    if let Some(session) = conn.link_session(outcome.link) {
                        let _ = conn.settle_outgoing(session, outcome.delivery_id);
                    }
                }
            }
            Event::Closed { answered, .. } => assert_eq!(conn.close(error, 0).is_ok(), !answered),
        }
    }

    fn send(&mut self, conn: &mut Connection, link: LinkId) {
        let body = vec![7; self.roll(1500) as usize];
        let params = SendParams { settled: self.roll(2) == 0, ..SendParams::default() };
        match self.roll(3) {
            0 => drop(conn.begin_delivery(link, &params)),
            1 => drop(conn.send_chunk(link, Piece::Copy(&body), self.roll(2) == 0)),
            _ => {
                let ready = conn.sendable(link) && conn.fits(link, body.len());
                let sent = conn.send(link, &params, &[Piece::Copy(&body)]);
                assert!(ready || sent.is_err());
            }
        }
    }

    /// A command that nothing asked for.
    fn command(&mut self, conn: &mut Connection) {
        let pick = self.roll(1 << 20) as usize;
        let link = (!self.links.is_empty()).then(|| self.links[pick % self.links.len()]);
        let session = (!self.sessions.is_empty()).then(|| self.sessions[pick % self.sessions.len()]);
        match (self.roll(12), link, session) {
            (0..=3, ..) => {
                if let Some((link, id)) = self.deliveries.pop() {
                    let state = if id % 2 == 0 { DeliveryState::Accepted } else { DeliveryState::Released };
                    let _ = conn.settle_incoming(link, id, Some(&state), id % 3 > 0);
                }
            }
            (4, Some(link), _) => drop(conn.grant(link, 50)),
            (5, Some(link), _) => drop(conn.drain(link)),
            (6, Some(link), _) => self.send(conn, link),
            (7, Some(link), _) => drop(conn.abort_delivery(link)),
            (8, Some(link), _) if pick.is_multiple_of(16) => drop(conn.steal(link)),
            (9, _, Some(session)) if pick.is_multiple_of(16) => drop(conn.end(session, None)),
            (10, _, Some(session)) => drop(conn.probe(session)),
            _ => {}
        }
    }

    /// Takes what was written and checks it.
    fn take(&mut self, conn: &mut Connection) {
        conn.flush(0);
        let n = conn.output_len();
        assert_eq!(conn.output().map(<[u8]>::len).sum::<usize>(), n);
        self.written.extend(conn.output().flatten());
        conn.advance_output(n);
        let limits = Limits::default();
        let mut rest = &self.written[..];
        while !rest.is_empty() {
            if rest.starts_with(&PROTOCOL_HEADER) || rest.starts_with(&SASL_PROTOCOL_HEADER) {
                rest = &rest[8..];
                continue;
            }
            let sasl = rest[5] == 1;
            let kind = if sasl { FrameKind::Sasl } else { FrameKind::Amqp };
            let header = FrameHeader::parse(rest, u32::MAX, kind).expect("a frame").expect("whole");
            assert!(sasl || header.size <= conn.peer_max_frame_size().max(512));
            let (frame, behind) = rest.split_at(header.size as usize);
            rest = behind;
            if sasl {
                SaslPerformative::decode(header.body(frame), &limits).expect("a SASL frame of ours");
            } else {
                Performative::decode(header.body(frame), &limits).expect("a frame of ours");
            }
        }
        self.written.clear();
    }
}

/// Gives a peer's stream to a fresh connection.
pub fn connection(data: &[u8]) {
    let Some((&first, mut stream)) = data.split_first() else { return };
    let limits = Limits { sessions: 8, links: 16, channel_max: 20, handle_max: 40, unsettled: 64, ..Limits::default() };
    let mut conn = if first & 1 == 0 {
        let mut conn = Connection::server(
            ServerConfig { limits, allow_bare: true, incoming_window: 100, seed: 3, ..ServerConfig::default() },
            0,
        );
        conn.sasl_mechanisms(&["ANONYMOUS"]);
        conn
    } else {
        let sasl = first & 2 == 0;
        let mut conn = Connection::client(
            ClientConfig { limits, sasl, incoming_window: 100, seed: 3, ..ClientConfig::default() },
            0,
        );
        if !sasl {
            let _ = conn.open(&Open { container_id: "us", ..Open::default() }, 0);
            if let Ok(session) = conn.begin(0) {
                for (name, role) in [("r", Role::Receiver), ("s", Role::Sender)] {
                    let source = Some(Source::default());
                    let target = Some(AttachTarget::Target(Target::default()));
                    let attach = crate::codec::Attach { name, role, source, target, ..Default::default() };
                    let link = conn.attach(session, &attach, 0).expect("a first link");
                    let _ = conn.grant(link, 10);
                }
            }
        }
        conn
    };
    let mut caller = Caller {
        dice: u64::from(first),
        links: Vec::new(),
        sessions: Vec::new(),
        deliveries: Vec::new(),
        written: Vec::new(),
    };
    let mut partial = Vec::new();
    let mut again = 0;
    while !stream.is_empty() || again < 3 {
        let piece = match first >> 2 & 3 {
            0 => stream.len(),
            1 => 1,
            _ => 1 + caller.roll(200) as usize,
        };
        let (fresh, rest) = stream.split_at(piece.min(stream.len()));
        stream = rest;
        again += u8::from(stream.is_empty());
        let mut input = Input { partial: &mut partial, fresh };
        loop {
            match conn.next(&mut input, 0) {
                Ok(Some(event)) => caller.handle(&mut conn, &event),
                Ok(None) => break,
                Err(fault) => assert!(!fault.sentence.is_empty()),
            }
        }
        assert!(input.fresh.is_empty());
        assert!(partial.len() <= limits.frame_bytes.max(limits.held_bytes as u32) as usize);
        caller.command(&mut conn);
        caller.take(&mut conn);
    }
}
