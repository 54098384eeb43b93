//! Damaged sessions from a seed, and connections that come and go.

use crate::Run;
use packhorse_crash::{OPEN, Peer, Random, mutate};

pub(crate) fn damaged_sessions(run: &Run) {
    const CASES: u64 = 10_000;
    let (_, seed) = Random::from_environment(0x5eed_0001);
    let one: Option<u64> = std::env::var("PACKHORSE_CRASH_CASE").ok().map(|text| text.parse().unwrap());
    for case in one.map_or(0..CASES, |case| case..case + 1) {
        let mut random = Random::new(seed ^ case.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let bytes = mutate::damaged(&mut random);
        let replay = format!(
            "replay: PACKHORSE_CRASH_ONLY=damaged_sessions PACKHORSE_CRASH_SEED={seed} PACKHORSE_CRASH_CASE={case} \
             cargo test -p packhorse-crash --test hostile -- --nocapture"
        );
        let to = run.to;
        let Ok(mut peer) = std::panic::catch_unwind(move || Peer::connect(to)) else {
            panic!("the broker is gone; {replay}\n{}", run.broker.log_tail());
        };
        // In one write or in three, and half of them go without a word.
        if random.below(4) == 0 {
            let (a, b) = bytes.split_at(random.below(bytes.len().max(1)));
            peer.say(a).say(b);
        } else {
            peer.say(&bytes);
        }
        if random.below(8) > 0 {
            assert!(peer.hang_up().ends(), "the connection does not end; {replay}");
        }
        if case % 500 == 499 {
            run.pair.goes_on().unwrap_or_else(|why| panic!("{why}; about {replay}\n{}", run.broker.log_tail()));
        }
    }
}

pub(crate) fn churn(run: &Run) {
    const ROUNDS: usize = 10;
    const EACH: usize = 800;
    let mut resident = Vec::new();
    let descriptors = run.broker.descriptors();
    for _ in 0..ROUNDS {
        for n in 0..EACH {
            let mut peer = Peer::connect(run.to);
            match n % 4 {
                0 => {}
                1 => drop(peer.log_in().open(&OPEN)),
                2 => drop(peer.log_in().open(&OPEN).begin(0).sender(0, "churn").hang_up().ends()),
                _ => drop(peer.log_in().open(&OPEN).begin(0).receiver(0, "churn").flow(0, 0, 10).until("begin")),
            }
        }
        run.broker.until("they are gone", |broker| broker.descriptors() <= descriptors + 8);
        resident.push(run.broker.resident_kib());
    }
    println!("resident after each {EACH} connections: {resident:?} KiB");
    // The lowest of three each: what the pair and the allocator add and give back meanwhile is not meant. What is meant is
    // 2 KiB a connection and more.
    let lowest = |rounds: &[u64]| rounds.iter().copied().min().unwrap_or(0);
    let (first, last) = (lowest(&resident[..3]), lowest(&resident[ROUNDS - 3..]));
    let most = 2 * (EACH * (ROUNDS - 3)) as u64;
    assert!(last <= first + most, "{resident:?} KiB: memory grows with connections that are gone");
}
