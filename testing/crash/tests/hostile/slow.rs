//! Peers that say too little, or say it too slowly: each meets a deadline.

use packhorse_client_core::codec::{FrameHeader, FrameKind, PROTOCOL_HEADER, SASL_PROTOCOL_HEADER, SaslInit};
use packhorse_crash::{OPEN, Peer};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Peers that say too little, each in a thread of its own while the rest goes on.
pub(crate) struct Slow(Vec<(&'static str, std::thread::JoinHandle<Result<Duration, String>>)>);

impl Slow {
    pub(crate) fn start(to: SocketAddr) -> Slow {
        let mut login = SASL_PROTOCOL_HEADER.to_vec();
        FrameHeader::encode(&mut login, FrameKind::Sasl, 0, |out| {
            SaslInit { mechanism: "ANONYMOUS", initial_response: None, hostname: None }.encode(out);
        });
        let half_login = login[..login.len() - 5].to_vec();
        let logged_in = [&login[..], &PROTOCOL_HEADER].concat();
        let mut half_open = logged_in.clone();
        FrameHeader::encode(&mut half_open, FrameKind::Amqp, 0, |out| OPEN.encode(out));
        half_open.pop();
        let silent: Vec<(&'static str, Vec<u8>)> = vec![
            ("nothing", Vec::new()),
            ("half a header", b"AMQ".to_vec()),
            ("a header alone", SASL_PROTOCOL_HEADER.to_vec()),
            ("half a login", half_login),
            ("a login alone", login.clone()),
            ("no open", logged_in.clone()),
            ("half an open", half_open.clone()),
            ("a header without SASL", PROTOCOL_HEADER.to_vec()),
            ("empty frames instead of open", [&logged_in[..], &[0, 0, 0, 8, 2, 0, 0, 0].repeat(10)].concat()),
        ];
        let mut all: Vec<_> = silent
            .into_iter()
            .map(|(name, bytes)| {
                let wait = move || {
                    let begin = Instant::now();
                    let mut peer = Peer::connect(to);
                    if peer.say(&bytes).ends() { Ok(begin.elapsed()) } else { Err("it was not ended".to_string()) }
                };
                (name, std::thread::spawn(wait))
            })
            .collect();
        // A byte at a time: each comes well before a deadline, the whole never.
        for (name, bytes, from) in [("slow loris in the login", login, 9), ("slow loris in open", half_open, 50)] {
            let drip = move || {
                let begin = Instant::now();
                let mut peer = Peer::connect(to);
                peer.say(&bytes[..from]);
                for byte in &bytes[from..] {
                    drip_pause();
                    if peer.is_ended() {
                        return Ok(begin.elapsed());
                    }
                    peer.say(&[*byte]);
                }
                if peer.ends() { Ok(begin.elapsed()) } else { Err("it was not ended".to_string()) }
            };
            all.push((name, std::thread::spawn(drip)));
        }
        Slow(all)
    }

    pub(crate) fn check(self) {
        for (name, thread) in self.0 {
            let took = thread.join().unwrap_or_else(|_| panic!("{name}: its thread panicked"));
            let took = took.unwrap_or_else(|why| panic!("{name}: {why}"));
            println!("{name:<32} ended after {:>5} ms", took.as_millis());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a slow peer is slow")]
pub(crate) fn drip_pause() {
    std::thread::sleep(Duration::from_millis(250));
}
