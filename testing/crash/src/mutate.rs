//! Valid sessions, damaged at random: what a broken or clever client might send.

use crate::peer::{OPEN, begin, close, detach, end, flow, frame, log_in, receiver, sender, transfer};
use crate::random::Random;
use packhorse_client_core::codec::{DeliveryState, Disposition, Role, Transfer};
use packhorse_client_core::{Body, Draft};

/// Bytes that mean something where constructors, sizes and descriptors stand.
const TELLING: &[u8] = &[
    0x00, 0x01, 0x02, 0x07, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x40, 0x41, 0x43, 0x45, 0x52, 0x53,
    0x70, 0x7f, 0x80, 0xa0, 0xa1, 0xa3, 0xb0, 0xc0, 0xc1, 0xd0, 0xd1, 0xe0, 0xf0, 0xfe, 0xff,
];

/// A whole life of a client, header by header and frame by frame: logs in, sends, receives, settles, goes.
fn session() -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    Draft { application: &[("key", "value")], priority: Some(5), ..Draft::new(Body::Text("mutation")) }
        .encode(&mut message);
    let part = |aborted: bool, more: bool, id: u32| {
        frame(0, |out| {
            Transfer {
                handle: 0,
                delivery_id: Some(id),
                delivery_tag: Some(b"part"),
                more,
                aborted,
                ..Transfer::default()
            }
            .encode(out);
            out.extend_from_slice(&message);
        })
    };
    let settle = |first: u32, last: u32, state| {
        let disposition =
            Disposition { role: Role::Receiver, first, last: Some(last), settled: true, state, batchable: true };
        frame(0, |out| disposition.encode(out))
    };
    vec![
        log_in(),
        frame(0, |out| OPEN.encode(out)),
        frame(0, |out| begin().encode(out)),
        frame(0, |out| sender("mutant-out", 0, "mutants").encode(out)),
        frame(0, |out| receiver("mutant-in", 1, "mutants").encode(out)),
        frame(0, |out| flow(1, 0, 10).encode(out)),
        transfer(0, 0, &message),
        transfer(0, 1, &message),
        part(false, true, 2),
        part(false, false, 2),
        part(true, true, 3),
        settle(0, 1, Some(DeliveryState::Accepted)),
        settle(2, 9, Some(DeliveryState::Released)),
        settle(0, u32::MAX >> 1, None),
        frame(0, |out| packhorse_client_core::codec::Flow { drain: true, echo: true, ..flow(1, 3, 5) }.encode(out)),
        detach(0),
        detach(1),
        end(0),
        close(),
    ]
}

/// One damaged session.
pub fn damaged(random: &mut Random) -> Vec<u8> {
    let mut units = session();
    for _ in 0..1 + random.below(4) {
        damage(&mut units, random);
    }
    units.concat()
}

fn damage(units: &mut Vec<Vec<u8>>, random: &mut Random) {
    // Mostly behind the login, where there is most to reach.
    let low = if units.len() > 1 && random.below(8) > 0 { 1 } else { 0 };
    let at = low + random.below(units.len() - low);
    let other = random.below(units.len());
    let length = units[at].len();
    let place = random.below(length.max(1));
    match random.below(10) {
        0 | 1 if length > 0 => units[at][place] ^= 1 << random.below(8),
        2 | 3 if length > 0 => units[at][place] = *random.pick(TELLING),
        4 => units[at].truncate(place),
        5 => {
            let again = units[at].clone();
            units.insert(other, again);
        }
        6 if units.len() > 2 => drop(units.remove(at)),
        7 => units.swap(at, other),
        8 => {
            let bytes: Vec<u8> = (0..1 + random.below(12)).map(|_| random.byte()).collect();
            units[at].splice(place..place, bytes);
            // Half of them with a size that fits, so that the damage is inside the frame.
            if random.below(2) == 0 && units[at].len() >= 8 && !units[at].starts_with(b"AMQP") {
                let size = units[at].len() as u32;
                units[at][..4].copy_from_slice(&size.to_be_bytes());
            }
        }
        9 if length >= 8 => {
            let size = *random.pick(&[0, 4, 7, 8, 9, length as u32 - 1, length as u32 + 1, 0x7fff_ffff, u32::MAX]);
            units[at][..4].copy_from_slice(&size.to_be_bytes());
        }
        _ => {
            let tail = units[other].split_at(random.below(units[other].len().max(1))).1.to_vec();
            units[at].splice(place.min(length).., tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_damage_and_another_one_another() {
        let of = |seed| damaged(&mut Random::new(seed));
        assert_eq!(of(1), of(1));
        assert!((1..100).any(|seed| of(seed) != of(0)));
        // Nothing here panics for want of a unit or a byte.
        for seed in 0..20_000 {
            of(seed);
        }
    }
}
