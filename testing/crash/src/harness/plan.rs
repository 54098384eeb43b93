//! What one run is to be: everything that is drawn from its seed.

use crate::Random;
use std::path::PathBuf;
use std::process::Command;

/// Producing processes.
pub(super) const PRODUCERS: usize = 8;
/// Consuming processes.
pub(super) const CONSUMERS: usize = 8;
/// Processes with local transactions.
pub(super) const TRANSACTORS: usize = 2;
/// Processes that manage branches.
pub(super) const MANAGERS: usize = 2;
/// All client processes: producers first, then consumers, and so on.
pub(super) const CLIENTS: usize = PRODUCERS + CONSUMERS + TRANSACTORS + MANAGERS;
/// Queues that a process with transactions sends to; it receives from the first.
const SPREAD: usize = 3;
/// Links of a client.
const LINKS: usize = 2;
/// One run in so many has foreign clients.
const FOREIGN_EACH: u64 = 4;

/// Which producers and consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// This program's.
    Ours,
    /// A program with its first arguments that takes the same verbs and flags. Work in transactions has our own.
    Foreign(Vec<String>),
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Kills in it.
    pub kills: u32,
    /// Its number in bodies and histories.
    pub run: u64,
    /// The queues.
    pub queues: Vec<String>,
    /// A queue for pre-settled links on both sides.
    pub once: Option<String>,
    /// The broker's settings, `section.key=value`.
    pub settings: Vec<String>,
    /// Its shards: each start takes one of these.
    pub shards: Vec<u16>,
    /// Milliseconds that the broker lives once enough is in flight: from, to.
    pub life_ms: (u64, u64),
    /// Clients work through a proxy that disturbs their connections.
    pub faults: bool,
    /// This program: its verbs are the clients.
    program: PathBuf,
    clients: Clients,
}

/// Whether the run of this seed is one with foreign clients.
pub fn is_foreign(seed: u64) -> bool {
    seed % FOREIGN_EACH == FOREIGN_EACH - 1
}

impl Plan {
    /// The run of this seed.
    pub fn new(seed: u64, kills: u32, program: PathBuf, clients: Clients) -> Plan {
        let mut random = Random::new(seed);
        let queues = 8 + random.below(9);
        let shards = [vec![1], vec![2], vec![1, 2, 3]][random.below(3)].clone();
        let mut settings = Vec::new();
        // Small files in most runs, so that kills meet checkpoints and segments that are used again.
        if random.below(4) > 0 {
            let mib = 1 + random.below(4);
            settings.push(format!("data.segment_bytes={}", mib << 20));
            settings.push(format!("data.checkpoint_bytes={}", (256 << 10) << random.below(4)));
            settings.push(format!("data.checkpoint_interval_ms={}", 50 + random.below(500)));
        }
        settings.push(format!("queues.delivery_limit={}", [2, 4, 10][random.below(3)]));
        Plan {
            seed,
            kills,
            run: random.number(),
            queues: (0..queues).map(|queue| format!("queue-{queue}")).collect(),
            once: (random.below(2) == 0).then(|| "once".to_owned()),
            settings,
            shards,
            life_ms: (50, 2_000),
            faults: false,
            program,
            clients,
        }
    }

    /// All queues that clients use.
    pub fn all_queues(&self) -> impl Iterator<Item = &String> {
        self.queues.iter().chain(&self.once)
    }

    /// The queues of the n-th producer, and of the n-th consumer. With eight queues each has two of both, with sixteen one.
    pub fn queues_of(&self, nth: usize) -> Vec<String> {
        (0..LINKS).map(|link| self.queues[(nth + link * PRODUCERS) % self.queues.len()].clone()).collect()
    }

    /// The queues of the n-th process with transactions: it receives from the first, and sends to all.
    pub fn queues_of_transactions(&self, nth: usize) -> Vec<String> {
        (0..SPREAD).map(|link| self.queues[(nth * SPREAD + link) % self.queues.len()].clone()).collect()
    }

    /// What a client draws from.
    pub fn client_seed(&self, number: usize) -> u64 {
        Random::new(self.seed ^ ((number as u64 + 1) << 32)).number()
    }

    /// The command line of a client, up to its flags.
    pub fn client(&self, role: &str) -> Command {
        let mut command = match &self.clients {
            Clients::Foreign(words) if matches!(role, "producer" | "consumer") => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                command
            }
            _ => Command::new(&self.program),
        };
        command.arg(role);
        command
    }

    /// Whether the clients are foreign ones.
    pub fn foreign(&self) -> bool {
        matches!(self.clients, Clients::Foreign(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_is_a_plan_and_every_queue_has_clients() {
        for seed in 0..50 {
            let [one, two] = [(); 2].map(|()| Plan::new(seed, 5, "x".into(), Clients::Ours));
            assert_eq!((one.run, &one.settings, &one.queues), (two.run, &two.settings, &two.queues));
            let used: BTreeSet<String> = (0..PRODUCERS).flat_map(|nth| one.queues_of(nth)).collect();
            assert_eq!(used.len(), one.queues.len(), "seed {seed}");
            assert!((8..=16).contains(&one.queues.len()));
            for nth in 0..TRANSACTORS + MANAGERS {
                let queues: BTreeSet<String> = one.queues_of_transactions(nth).into_iter().collect();
                assert_eq!(queues.len(), SPREAD, "seed {seed}");
            }
        }
    }

    #[test]
    fn foreign_clients_produce_and_consume_and_no_more() {
        let plan = Plan::new(1, 5, "ours".into(), Clients::Foreign(vec!["python".into(), "client.py".into()]));
        for (role, program) in
            [("producer", "python"), ("consumer", "python"), ("transactor", "ours"), ("manager", "ours")]
        {
            assert_eq!(plan.client(role).get_program(), program, "{role}");
        }
    }

    #[test]
    fn one_run_in_four_is_foreign_wherever_a_campaign_begins() {
        for first in 0..10 {
            assert_eq!((first..first + 4).filter(|seed| is_foreign(*seed)).count(), 1);
        }
    }
}
