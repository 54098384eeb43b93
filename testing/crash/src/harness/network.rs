//! Faults of the network between the clients of a run and its broker, one after the other, beside kills and pauses.
//!
//! Owns the proxy and `network.jsonl`. A fault is a hit only if its client had something in flight when it began and the proxy says that
//! it met the connection.

use super::clock::pause;
use super::diary::Diary;
use super::flow::Board;
use crate::Random;
use crate::proxy::{Fault, Kind, Proxy};
use packhorse_history::Event;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Times that a client with something in flight is looked for.
const LOOKS: usize = 50;
/// A kind that missed is tried so often again before others have their turn.
const AGAIN: usize = 3;
/// How long the proxy may take beyond a fault's own time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Faults made, and those that hit, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    made: [u64; Kind::ALL.len()],
    hit: [u64; Kind::ALL.len()],
}

impl Hits {
    /// Each kind with its hits.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Kind::ALL.iter().map(|kind| kind.name()).zip(self.hit)
    }

    /// All hits.
    pub fn sum(&self) -> u64 {
        self.hit.iter().sum()
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Hits) {
        self.made.iter_mut().zip(other.made).for_each(|(sum, made)| *sum += made);
        self.hit.iter_mut().zip(other.hit).for_each(|(sum, hit)| *sum += hit);
    }
}

impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> =
            self.each().zip(self.made).map(|((name, hit), made)| format!("{name} {hit} of {made}")).collect();
        write!(f, "{}", kinds.join(", "))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Network {
    proxy: Arc<Proxy>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Hits, String>>>,
    hits: Hits,
}

impl Network {
    /// A door for each of so many clients; nothing is done to anybody yet.
    pub(super) fn open(to: SocketAddr, clients: usize) -> Result<Network, String> {
        let proxy = Proxy::start(to, clients).map_err(|e| format!("no proxy: {e}"))?;
        Ok(Network { proxy: Arc::new(proxy), stop: Arc::default(), thread: None, hits: Hits::default() })
    }

    /// Where a client is to connect.
    pub(super) fn door(&self, client: usize) -> SocketAddr {
        self.proxy.door(client)
    }

    /// Faults begin. `names`: of the clients; `flow`: the figures that they show.
    pub(super) fn disturb(
        &mut self,
        dir: &Path,
        run: u64,
        seed: u64,
        names: Vec<String>,
        flow: &Path,
    ) -> Result<(), String> {
        let diary = Diary::begin(&dir.join("network.jsonl"), "network", run)?;
        let board = Board::open(flow, names.len()).map_err(|e| format!("{}: {e}", flow.display()))?;
        let (proxy, stop) = (Arc::clone(&self.proxy), Arc::clone(&self.stop));
        let disturber =
            Disturber { proxy, stop, diary, board, names, random: Random::new(seed), hits: Hits::default() };
        self.thread = Some(std::thread::spawn(move || disturber.work()));
        Ok(())
    }

    /// Faults end, and nothing of old connections is left. Answers what there was.
    /// Connections that stand are carried on.
    pub(super) fn calm(&mut self) -> Result<Hits, String> {
        self.stop.store(true, Ordering::Relaxed);
        // One that is under way is over then.
        self.proxy.calm();
        if let Some(thread) = self.thread.take() {
            self.hits = thread.join().unwrap_or_else(|_| Err("what disturbs the network panicked".into()))?;
            // And one that began just then.
            self.proxy.calm();
        }
        Ok(self.hits)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.calm();
    }
}

/// What happens in the thread.
struct Disturber {
    proxy: Arc<Proxy>,
    stop: Arc<AtomicBool>,
    diary: Diary,
    board: Board,
    names: Vec<String>,
    random: Random,
    hits: Hits,
}

impl Disturber {
    /// Until it is told to stop: all kinds in an order of the seed's, then a rest in which a broker that is stuck shows.
    fn work(mut self) -> Result<Hits, String> {
        while !self.stopped() {
            let mut kinds: Vec<usize> = (0..Kind::ALL.len()).collect();
            while !kinds.is_empty() && !self.stopped() {
                let kind = kinds.swap_remove(self.random.below(kinds.len()));
                for _ in 0..AGAIN {
                    self.rest(2, 40);
                    if self.stopped() || self.one(kind)? {
                        break;
                    }
                }
            }
            self.rest(1_200, 2_000);
        }
        self.diary.tell(&Event::End)?;
        Ok(self.hits)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn rest(&mut self, from_ms: u64, to_ms: u64) {
        const STEP: Duration = Duration::from_millis(20);
        let until = Instant::now() + Duration::from_millis(self.between(from_ms, to_ms));
        while !self.stopped() && Instant::now() < until {
            pause(STEP.min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.random.number() % (to - from)
    }

    /// One fault, from its beginning to its end. True: a hit.
    fn one(&mut self, which: usize) -> Result<bool, String> {
        let fault = self.draw(Kind::ALL[which]);
        let Some(client) = self.somebody_at_work()? else { return Ok(false) };
        let target = self.names[client].clone();
        let told = |start| Event::Fault { kind: fault.kind.name(), target: &target, start };
        self.diary.tell(&told(true))?;
        let felt = self.proxy.begin(client, fault).recv_timeout(fault.time + fault.late + PATIENCE);
        self.diary.tell(&told(false))?;
        let felt = felt.map_err(|_| format!("{} of {target} has no end", fault.kind.name()))?;
        self.hits.made[which] += 1;
        self.hits.hit[which] += u64::from(felt.done);
        Ok(felt.done)
    }

    fn draw(&mut self, kind: Kind) -> Fault {
        let time = match kind {
            Kind::Blackhole(_) => self.between(20, 300),
            Kind::HalfOpenClient | Kind::HalfOpenBroker => self.between(20, 400),
            Kind::OneByte => self.between(10, 60),
            Kind::Delay => self.between(30, 300),
            // How long it is waited for.
            Kind::OldAlive => 1_500,
            Kind::Cut(_) => 500,
            Kind::Reset => 0,
        };
        let late = match kind {
            Kind::OldAlive => self.between(3, 60),
            _ => self.between(1, 40),
        };
        let (at, rude) = (self.random.number() as u32, self.random.below(2) == 0);
        Fault { kind, time: Duration::from_millis(time), late: Duration::from_millis(late), at, rude }
    }

    /// A client with something in flight.
    fn somebody_at_work(&mut self) -> Result<Option<usize>, String> {
        for _ in 0..LOOKS {
            let figures = self.board.read().map_err(|e| format!("cannot read the clients' figures: {e}"))?;
            let working: Vec<usize> = (0..figures.len()).filter(|client| figures[*client].open > 0).collect();
            if !working.is_empty() {
                return Ok(Some(*self.random.pick(&working)));
            }
            self.rest(1, 10);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_summed_by_kind() {
        let mut sum = Hits::default();
        let mut one = Hits::default();
        (one.made[2], one.hit[2], one.made[9]) = (5, 4, 1);
        sum.add(&one);
        sum.add(&one);
        assert_eq!(sum.sum(), 8);
        assert_eq!(sum.each().nth(2), Some(("reset", 8)));
        let text = sum.to_string();
        assert!(text.contains("reset 8 of 10") && text.contains("cut in a frame to client 0 of 2"), "{text}");
    }
}
