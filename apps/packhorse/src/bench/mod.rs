//! `packhorse bench`: loads a broker with messages that say whose they are, measures, and checks what came of them.
//!
//! Speaks AMQP 1.0 and nothing else to the broker, so that any other broker can be put in its place. Each side is one thread over
//! all its connections. Must not do: start or look into a broker; that is `testing/bench`.

mod clock;
mod consumer;
mod control;
mod diary;
mod figures;
mod intact;
mod moving;
mod options;
mod producer;
mod seen;
mod verdict;
mod wire;

pub(crate) use options::Bench;

use crate::End;
use clock::Span;
use consumer::Consumers;
use control::Shared;
use diary::Diary;
use figures::Side;
use moving::Movers;
use options::{Role, Scenario};
use producer::Producers;
use rustix::thread::set_current_timer_slack;
use serde_json::{Value, json};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often standard error hears of progress.
const PROGRESS: Duration = Duration::from_secs(1);
/// How often we look for the driver's order to begin.
const LOOK: Duration = Duration::from_millis(5);

pub(crate) fn run(args: &Bench) -> End {
    let document = args.clone().checked().and_then(|bench| {
        match bench.scenario {
            Scenario::Pipe => {}
            Scenario::Recover => return moving::recover(&bench),
            _ => return move_messages(&bench),
        }
        let sides = measure(&bench)?;
        // One role alone has half of the history; who starts both has it judged.
        let folder = bench.history.as_deref().filter(|_| bench.role == Role::Both);
        Ok(render(&bench, &sides, folder.map(verdict::judge).transpose()?))
    });
    let document = match document {
        Ok(document) => document,
        Err(end) => return end,
    };
    if args.json {
        println!("{document}");
    } else {
        figures::print(&document);
    }
    match document["violations"].as_u64() {
        Some(0) => End::Done,
        count => End::Refused(format!("{} violations", count.unwrap_or(0))),
    }
}

/// What each side measured, and in which span.
struct Sides {
    producer: Option<Side>,
    consumer: Option<Side>,
    span: Span,
}

fn measure(bench: &Bench) -> Result<Sides, End> {
    let run = bench.run.unwrap_or_else(|| match bench.role {
        Role::Both => clock::now_ns() ^ u64::from(std::process::id()) << 40,
        Role::Producer | Role::Consumer => 0,
    });
    let shared = Arc::new(Shared::new());
    let folder = bench.history.as_deref();
    let mut eating = Diary::new(folder.filter(|_| bench.role != Role::Producer), "consumer", run, &bench.queue)?;
    let sending = Diary::new(folder.filter(|_| bench.role != Role::Consumer), "producer", run, &bench.queue)?;
    // Consumers first: a queue that comes to be with its first use is then there, and empty.
    let consumers = (bench.role != Role::Producer).then(|| Consumers::attach(bench, &mut eating)).transpose()?;
    let producers = (bench.role != Role::Consumer).then(|| Producers::attach(bench, run)).transpose()?;
    if bench.control {
        obey(bench.role, &shared);
    }
    let start_ns = begin(bench, &shared)?;
    let span = bench.span(start_ns);
    if let (Some(count), Role::Consumer) = (bench.count, bench.role) {
        shared.expect.store(count, Ordering::Relaxed);
    }
    let shared = &*shared;
    std::thread::scope(|scope| {
        let (over, ended) = mpsc::channel::<()>();
        if !bench.quiet {
            scope.spawn(move || progress(bench, shared, span, &ended));
        }
        let receiving = consumers.map(|consumers| {
            scope.spawn(move || {
                precise();
                let side = consumers.run(bench, run, shared, span, eating);
                shared.abort.fetch_or(side.is_err(), Ordering::Relaxed);
                side
            })
        });
        let producer = producers.map(|producers| {
            precise();
            let side = producers.run(bench, shared, span, sending);
            shared.abort.fetch_or(side.is_err(), Ordering::Relaxed);
            side
        });
        if let (Some(Ok(side)), Role::Both) = (&producer, bench.role) {
            shared.expect.store(side.done, Ordering::Relaxed);
        }
        let consumer = receiving.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        drop(over);
        match (producer, consumer) {
            // Ended by the other side, which says why.
            (Some(Err(End::Code(_))), Some(Err(end))) => Err(end),
            (producer, consumer) => {
                Ok(Sides { producer: producer.transpose()?, consumer: consumer.transpose()?, span })
            }
        }
    })
}

/// The same where workers move messages.
fn move_messages(bench: &Bench) -> Result<Value, End> {
    let run = bench.run.unwrap_or_else(|| clock::now_ns() ^ u64::from(std::process::id()) << 40);
    let shared = Arc::new(Shared::new());
    let movers = Movers::attach(bench, run)?;
    if bench.control {
        obey(bench.role, &shared);
    }
    let span = bench.span(begin(bench, &shared)?);
    let shared = &*shared;
    precise();
    std::thread::scope(|scope| {
        let (over, ended) = mpsc::channel::<()>();
        if !bench.quiet {
            scope.spawn(move || progress(bench, shared, span, &ended));
        }
        let moved = movers.run(bench, shared, span);
        drop(over);
        moved
    })
}

/// Follows the driver's orders on a thread that ends with the process: standard input cannot be woken from.
fn obey(role: Role, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let counter = if role == Role::Consumer { &shared.received } else { &shared.confirmed };
        shared.obey(std::io::stdin().lock(), counter, std::io::stdout());
    });
}

/// Says that we are ready, and learns when to begin.
fn begin(bench: &Bench, shared: &Shared) -> Result<u64, End> {
    if !bench.control {
        return Ok(clock::now_ns());
    }
    println!("ready");
    loop {
        match shared.start_ns.load(Ordering::Relaxed) {
            0 if shared.abort.load(Ordering::Relaxed) => return Err(End::Code(1)),
            0 => look(),
            at => return Ok(at),
        }
    }
}

fn look() {
    #[expect(
        clippy::disallowed_methods,
        reason = "orders come on a thread that knows no one to wake; this is before any measuring"
    )]
    std::thread::sleep(LOOK);
}

/// A schedule of 5,000 messages a second has 200 µs between two; by default the system wakes us up to 50 µs late.
fn precise() {
    // Only a matter of precision.
    let _ = set_current_timer_slack(NonZeroU64::new(1000));
}

/// A line a second, until the other end of `ended` is dropped.
fn progress(bench: &Bench, shared: &Shared, span: Span, ended: &mpsc::Receiver<()>) {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut before = (0, 0);
    while ended.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
        let now = clock::now_ns();
        let (sent, confirmed, received) = (load(&shared.sent), load(&shared.confirmed), load(&shared.received));
        let phase = match now {
            now if now < span.from_ns => " (warm-up)",
            now if now < span.to_ns => "",
            _ => " (after)",
        };
        let mut line = format!("{:>5.0} s{phase}", now.saturating_sub(span.start_ns) as f64 / 1e9);
        if bench.scenario != Scenario::Pipe {
            eprintln!("{line}  moved {confirmed} ({}/s)", confirmed - before.0);
            before = (confirmed, received);
            continue;
        }
        if bench.role != Role::Consumer {
            line += &format!("  confirmed {confirmed} ({}/s), {} in flight", confirmed - before.0, sent - confirmed);
        }
        if bench.role != Role::Producer {
            line += &format!("  received {received} ({}/s)", received - before.1);
        }
        before = (confirmed, received);
        eprintln!("{line}");
    }
}

/// `history`: what the checker says of it, if there is one.
fn render(bench: &Bench, sides: &Sides, history: Option<Value>) -> Value {
    let Span { from_ns, to_ns, .. } = sides.span;
    let seconds = (to_ns != u64::MAX).then(|| (to_ns - from_ns) as f64 / 1e9);
    let mut document = json!({
        "settings": {
            "queues": bench.queue.len(), "connections": bench.connections, "consumers": bench.consumers,
            "window": bench.window, "credit": bench.credit, "size": bench.size, "durable": bench.durable,
            "rate": bench.rate, "count": bench.count,
        },
    });
    let mut violations = 0;
    if let Some(side) = &sides.producer {
        document["producer"] = side.to_json(seconds, Some("confirm_us"));
        violations += side.violations.total();
    }
    if let Some(side) = &sides.consumer {
        // Without a schedule nobody knows here when a message was sent.
        document["consumer"] = side.to_json(seconds, bench.rate.map(|_| "end_to_end_us"));
        violations += side.violations.total();
    }
    if let Some(history) = history {
        // The same things, seen by another: not more of them.
        violations = violations.max(history["violations_total"].as_u64().unwrap_or(1));
        document["history"] = history;
    }
    document["violations"] = json!(violations);
    document
}
