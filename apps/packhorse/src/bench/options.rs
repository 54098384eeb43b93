//! `packhorse bench` as it is typed, and what follows from it for both sides.

use super::clock::{self, Span};
use crate::End;
use crate::cli::Amqp;
use clap::{Args, ValueEnum};
use packhorse_history::body::LEAST_BYTES;
use std::path::PathBuf;

/// Which side to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Producers and consumers
    Both,
    /// Producers only
    Producer,
    /// Consumers only
    Consumer,
}

/// What happens to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Producers send them, consumers take them
    Pipe,
    /// Workers take them from one queue and send them to another, without transactions
    Transform,
    /// The same in local transactions
    LocalTx,
    /// The same in branches of XA: start, work, end, prepare, commit
    Xa,
    /// The same, and the branches stay prepared: --count of them, with a log of the answers
    Prepare,
    /// What `prepare` left is asked for, compared with its log, and committed
    Recover,
}

/// Loads a broker and measures it.
#[derive(Args, Clone)]
pub(crate) struct Bench {
    /// What happens to messages
    #[arg(long, value_enum, default_value_t = Scenario::Pipe)]
    pub(crate) scenario: Scenario,
    /// Which side of a pipe to play
    #[arg(long, value_enum, default_value_t = Role::Both)]
    pub(crate) role: Role,
    /// Address of the queue; may be repeated. They must be empty
    #[arg(long, value_name = "ADDRESS", default_value = "bench")]
    pub(crate) queue: Vec<String>,
    /// So many queues, named after the one of --queue with -0, -1 …
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) queues: Option<u32>,
    /// Producing connections, one link each, spread over the queues; those of the workers, which have a session each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) connections: u32,
    /// Consuming connections, spread over the queues [default: one per queue]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) consumers: Option<u32>,
    /// Unconfirmed messages of a producer at most
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) window: u32,
    /// Credit of a consumer
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) credit: u32,
    /// Messages a second of all producers together, sent on schedule; latency counts from the scheduled time. Without it
    /// producers send as fast as their window allows
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// Bytes of a body, at least 16
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub(crate) size: usize,
    /// End after so many messages; transactions, or branches, where there are any
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Workers that move messages, an even number; each takes from a queue of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub(crate) workers: u32,
    /// Messages that a worker moves in a transaction, or has without a confirm [default: 100, of branches 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) batch: Option<u32>,
    /// Messages that go round between two workers [default: four times the credit, or what is prepared]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub(crate) ring: Option<u64>,
    /// The file with the branches whose prepare was answered
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Measure for so many seconds [default: 10, unless --count is given]
    #[arg(long, value_name = "SECONDS", conflicts_with = "count")]
    pub(crate) time: Option<f64>,
    /// Seconds before that which do not count [default: 2, with --count 0]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) warmup: Option<f64>,
    /// Whether messages survive a crash of the broker
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) durable: bool,
    /// Tells the messages of this run from others; sides in processes of their own need the same [default: random for both]
    #[arg(long, value_name = "N")]
    pub(crate) run: Option<u64>,
    /// Also write what each side did and saw into this folder, for `packhorse checker`
    #[arg(long, value_name = "DIR")]
    pub(crate) history: Option<PathBuf>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress on standard error
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Go on for so many seconds after the measured ones.
    #[arg(long, hide = true, default_value_t = 0.0)]
    pub(crate) cooldown: f64,
    /// Take orders from standard input; see `control`.
    #[arg(long, hide = true)]
    pub(crate) control: bool,
    #[command(flatten)]
    pub(crate) amqp: Amqp,
}

impl Bench {
    /// Refuses what makes no sense; fills in what was left open.
    pub(super) fn checked(mut self) -> Result<Bench, End> {
        if self.size < LEAST_BYTES {
            let size = self.size;
            return Err(End::Usage(format!(
                "--size {size}: a body says whose it is, and that takes at least {LEAST_BYTES} bytes"
            )));
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e7)) {
            return Err(End::Usage("--rate is messages a second, above 0 and up to 10 million".into()));
        }
        for (name, value) in [("time", self.time), ("warmup", self.warmup), ("cooldown", Some(self.cooldown))] {
            if value.is_some_and(|seconds| !(0.0..=1e6).contains(&seconds)) {
                return Err(End::Usage(format!("--{name} is seconds, from 0 to a million")));
            }
        }
        if self.scenario != Scenario::Pipe {
            return self.checked_moving();
        }
        if let Some(queues) = self.queues {
            let [base] = self.queue.as_slice() else {
                return Err(End::Usage("--queues takes one --queue and numbers it; leave one of both out".into()));
            };
            self.queue = (0..queues).map(|n| format!("{base}-{n}")).collect();
        }
        let queues = self.queue.len() as u32;
        let consumers = *self.consumers.get_or_insert(queues);
        if self.role != Role::Producer && consumers < queues {
            return Err(End::Usage(format!("--consumers {consumers}: {queues} queues need one each at least")));
        }
        if self.role != Role::Consumer && self.connections < queues {
            let connections = self.connections;
            return Err(End::Usage(format!("--connections {connections}: {queues} queues need one each at least")));
        }
        if self.role == Role::Consumer && self.count.is_none() && !self.control {
            return Err(End::Usage("a consumer alone needs --count, or it would not know when all is there".into()));
        }
        Ok(self)
    }

    /// The same where workers move messages.
    fn checked_moving(mut self) -> Result<Bench, End> {
        let usage = |why: &str| Err(End::Usage(why.into()));
        if self.role != Role::Both || self.rate.is_some() || self.history.is_some() {
            return usage("--role, --rate and --history are for the scenario `pipe`");
        }
        if !self.workers.is_multiple_of(2) {
            return usage("--workers is even: two of them move the same messages to and fro");
        }
        if let [base] = self.queue.as_slice() {
            self.queue = (0..self.workers).map(|n| format!("{base}-{n}")).collect();
        }
        if self.queue.len() != self.workers as usize {
            return usage("--queue is given once, or once for each worker");
        }
        self.connections = self.connections.min(self.workers);
        let of_branches = matches!(self.scenario, Scenario::Xa | Scenario::Prepare | Scenario::Recover);
        let batch = *self.batch.get_or_insert(if of_branches { 1 } else { 100 });
        let leaves = matches!(self.scenario, Scenario::Prepare | Scenario::Recover);
        let mut ring = 4 * u64::from(self.credit.max(batch));
        if leaves {
            let Some(count) = self.count else { return usage("`prepare` and `recover` need --count and --log") };
            if self.log.is_none() {
                return usage("`prepare` and `recover` need --count and --log");
            }
            ring = 2 * count.div_ceil(u64::from(self.workers)) * u64::from(batch);
        }
        let ring = *self.ring.get_or_insert(ring.max(2));
        if ring / 2 < u64::from(batch) {
            return usage("--ring: half of it is what a worker finds, and that must be a --batch at least");
        }
        Ok(self)
    }

    /// When this run does what, if it begins at `start_ns`.
    pub(super) fn span(&self, start_ns: u64) -> Span {
        match self.count {
            Some(_) => {
                let from_ns = start_ns + clock::ns(self.warmup.unwrap_or(0.0));
                Span { start_ns, from_ns, to_ns: u64::MAX, stop_ns: u64::MAX }
            }
            None => {
                let from_ns = start_ns + clock::ns(self.warmup.unwrap_or(2.0));
                let to_ns = from_ns + clock::ns(self.time.unwrap_or(10.0));
                Span { start_ns, from_ns, to_ns, stop_ns: to_ns + clock::ns(self.cooldown) }
            }
        }
    }

    /// Which queue the producer or consumer of this number uses.
    pub(super) fn queue_of(&self, number: u32) -> usize {
        number as usize % self.queue.len()
    }

    /// When the message of this sequence is due on the link of this number, if there is a schedule.
    pub(super) fn due_ns(&self, start_ns: u64, link: u32, sequence: u64) -> Option<u64> {
        let rate = self.rate?;
        let place = sequence * u64::from(self.connections) + u64::from(link);
        Some(start_ns + (place as f64 * 1e9 / rate) as u64)
    }

    /// How many messages the link of this number sends in a run by count.
    pub(super) fn quota(&self, link: u32) -> u64 {
        self.part(link, self.connections)
    }

    /// How much of a run by count is the part of this one of so many.
    pub(super) fn part(&self, link: u32, links: u32) -> u64 {
        let links = u64::from(links);
        self.count.map_or(u64::MAX, |count| count / links + u64::from(u64::from(link) < count % links))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn parse(line: &str) -> Result<Bench, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        let bench = Line::try_parse_from(words).map_err(|e| e.to_string())?.bench;
        bench.checked().map_err(|end| match end {
            End::Usage(why) => why,
            _ => "something else".into(),
        })
    }

    #[test]
    fn queues_are_numbered_and_links_spread_over_them() {
        let bench = parse("--queue q --queues 3 --connections 7").unwrap();
        assert_eq!(bench.queue, ["q-0", "q-1", "q-2"]);
        assert_eq!((bench.queue_of(0), bench.queue_of(5), bench.consumers), (0, 2, Some(3)));
    }

    #[test]
    fn a_count_is_shared_out_to_the_last_message() {
        let bench = parse("--connections 3 --count 10").unwrap();
        assert_eq!((0..3).map(|link| bench.quota(link)).collect::<Vec<_>>(), [4, 3, 3]);
    }

    #[test]
    fn a_schedule_interleaves_the_links() {
        let bench = parse("--connections 2 --rate 1000").unwrap();
        let due: Vec<_> = [(0, 0), (1, 0), (0, 1)].map(|(link, seq)| bench.due_ns(5, link, seq)).into();
        assert_eq!(due, [Some(5), Some(1_000_005), Some(2_000_005)]);
    }

    #[test]
    fn a_span_has_a_warm_up_a_window_and_a_rest() {
        let bench = parse("--time 3 --warmup 1 --cooldown 0.5").unwrap();
        let span = bench.span(0);
        assert_eq!((span.from_ns, span.to_ns, span.stop_ns), (1_000_000_000, 4_000_000_000, 4_500_000_000));
        assert!(!span.counts(999_999_999) && span.counts(1_000_000_000) && !span.counts(4_000_000_000));
        assert_eq!(
            parse("--count 5").unwrap().span(7),
            Span { start_ns: 7, from_ns: 7, to_ns: u64::MAX, stop_ns: u64::MAX }
        );
    }

    #[test]
    fn each_worker_has_a_queue_and_a_ring_has_enough_for_all_that_is_prepared() {
        let bench = parse("--scenario local-tx --queue q --workers 4").unwrap();
        assert_eq!((bench.queue.len(), bench.batch, bench.ring), (4, Some(100), Some(4000)));
        let bench = parse("--scenario prepare --workers 4 --count 10 --batch 3 --log x").unwrap();
        assert_eq!((bench.ring, bench.part(0, 4), bench.part(3, 4)), (Some(18), 3, 2));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "--size 15",
            "--rate 0",
            "--rate -5",
            "--queue a --queue b --queues 2 --connections 2",
            "--queues 3",
            "--queues 3 --connections 3 --consumers 2",
            "--role consumer",
            "--time -1",
            "--count 5 --time 5",
            "--scenario xa --workers 3",
            "--scenario xa --role producer",
            "--scenario xa --rate 5",
            "--scenario local-tx --queue a --queue b",
            "--scenario local-tx --ring 100",
            "--scenario prepare --count 5",
            "--scenario recover --log x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
