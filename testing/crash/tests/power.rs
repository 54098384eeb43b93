//! A broker whose power is cut, and one whose disk fails: what was confirmed is there, whatever the page cache said.
//!
//! The data directory lies on [`Layer`], which forgets what was not synced. `PACKHORSE_CRASH_SEED` changes when the power goes and
//! what survives.

use packhorse_crash::power::{Cuts, Fault, Faulty, Layer, Moment, Options, Pages, Side};
use packhorse_crash::{Books, Broken, Broker, Consumer, Producer, Random, Receipt, serve};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long anything may take that must come at last.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker's data directory on a layer, and clients over many lives of the broker.
struct Stage {
    /// Before its folder: that can be removed when nothing is mounted in it.
    layer: Layer,
    dir: tempfile::TempDir,
    producers: Vec<Producer>,
    consumer: Consumer,
    confirmed: Arc<AtomicU64>,
    /// Lives that ended in order.
    orderly: Vec<u32>,
}

type Work<T> = JoinHandle<(T, Result<(), Broken>)>;

/// The clients at work.
struct Running {
    producers: Vec<Work<Producer>>,
    consumer: Work<Consumer>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
}

impl Stage {
    /// Nothing where layers cannot be mounted.
    fn new() -> Option<Stage> {
        let dir = tempfile::tempdir().unwrap();
        let layer = Layer::or_skip(&dir.path().join("disk"), Options::default())?;
        let producers = vec![
            Producer::new(1, "orders", 500, 200),
            Producer::new(2, "orders", 500, 2_000),
            Producer::new(3, "orders", 3, 1_200_000),
        ];
        let consumer = Consumer::new("orders", 300);
        Some(Stage { dir, layer, producers, consumer, confirmed: Arc::default(), orderly: Vec::new() })
    }

    /// Small segments and frequent checkpoints, so that many are begun, given back and written.
    fn command(&self) -> Command {
        let data = self.layer.path().join("data");
        let data = data.to_str().expect("a path of letters");
        let flags = ["--data", data, "--shards", "2", "--set", "data.segment_bytes=2097152"];
        serve(self.dir.path(), &[&flags[..], &["--set", "data.checkpoint_bytes=4194304"]].concat())
    }

    fn start(&self) -> Broker {
        Broker::from_command(self.dir.path(), self.command())
            .unwrap_or_else(|ended| panic!("the broker did not become ready: exit {:?}\n{}", ended.code, ended.log))
    }

    fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Relaxed)
    }

    fn run(&mut self, broker: &Broker) -> Running {
        let to = broker.amqp();
        let [stop, done] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let producers = self.producers.drain(..).map(|mut producer| {
            let (stop, confirmed) = (Arc::clone(&stop), Arc::clone(&self.confirmed));
            std::thread::spawn(move || {
                let end = producer.run(to, &stop, &confirmed);
                (producer, end)
            })
        });
        let producers = producers.collect();
        let mut consumer = std::mem::replace(&mut self.consumer, Consumer::new("orders", 0));
        let consumer = {
            let done = Arc::clone(&done);
            std::thread::spawn(move || {
                let end = consumer.run(to, &done, &AtomicU64::new(0));
                (consumer, end)
            })
        };
        Running { producers, consumer, stop, done }
    }

    /// Waits until there is something to lose.
    fn until_confirmed(&self, broker: &Broker, more: u64) {
        let before = self.confirmed();
        broker.until("confirms come", |_| self.confirmed() >= before + more);
    }

    /// The broker is gone, and the clients have seen it.
    fn broken(&mut self, running: Running) {
        for producer in running.producers {
            let (producer, end) = producer.join().expect("a producer does not panic");
            end.expect_err("the broker is gone");
            self.producers.push(producer);
        }
        let (mut consumer, end) = running.consumer.join().expect("the consumer does not panic");
        end.expect_err("the broker is gone");
        consumer.life += 1;
        self.consumer = consumer;
    }

    /// The layer is frozen: kills the broker and lets the layer forget.
    fn cut(&mut self, broker: Broker, random: Option<&mut Random>) -> Cuts {
        self.layer.freeze();
        broker.signal(Signal::KILL);
        let did = match random {
            Some(random) => self.layer.cut(random),
            None => self.layer.lose(),
        };
        broker.kill();
        did
    }

    /// A life in which more is confirmed, and a cut that loses all that was not synced.
    fn live_and_lose(&mut self) {
        let broker = self.start();
        let running = self.run(&broker);
        self.until_confirmed(&broker, 500);
        println!("{}", self.cut(broker, None));
        self.broken(running);
    }

    /// One more start; everything is taken out and judged.
    fn finish(mut self) {
        let broker = self.start();
        let running = self.run(&broker);
        running.stop.store(true, Ordering::Relaxed);
        for producer in running.producers {
            let (producer, end) = producer.join().expect("a producer does not panic");
            end.unwrap_or_else(|broken| panic!("{broken:?}\n{}", broker.log_tail()));
            self.producers.push(producer);
        }
        broker.until("the queue is empty", |broker| {
            broker.queue("orders")["depth"] == 0 || running.consumer.is_finished()
        });
        running.done.store(true, Ordering::Relaxed);
        let (consumer, end) = running.consumer.join().expect("the consumer does not panic");
        end.unwrap_or_else(|broken| panic!("{broken:?}\n{}", broker.log_tail()));
        let mut sent: BTreeMap<u32, Vec<bool>> =
            self.producers.into_iter().map(|producer| (producer.id, producer.sent)).collect();
        // After crash upon crash a message may be taken for the cause of them (decision 0010): it is set aside, and not lost.
        for dead in quarantined(&broker) {
            sent.get_mut(&dead.producer).expect("a producer of ours")[dead.number as usize] = false;
        }
        let books = Books { sent, received: consumer.received, orderly: self.orderly };
        println!("{} confirmed, {} received", books.confirmed(), books.received.len());
        let wrong = books.judge();
        assert!(wrong.is_empty(), "{} violations, the first: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    }
}

#[test]
fn power_cuts_under_load_lose_nothing_that_was_confirmed() {
    const LIVES: usize = 12;
    let (mut random, seed) = Random::from_environment(0x706f_7765);
    let Some(mut stage) = Stage::new() else { return };
    println!("PACKHORSE_CRASH_SEED={seed}");
    let mut cuts = Cuts::default();
    let mut came = 0;
    for _ in 0..LIVES {
        let broker = stage.start();
        let running = stage.run(&broker);
        stage.until_confirmed(&broker, 500);
        let moment = *random.pick(&[Moment::Write, Moment::Sync, Moment::Sync, Moment::Name]);
        let side = *random.pick(&[Side::Before, Side::After]);
        came += usize::from(stage.layer.freeze_at(moment, side, random.below(8) as u32, Duration::from_millis(300)));
        cuts += stage.cut(broker, Some(&mut random));
        stage.broken(running);
    }
    println!("{cuts}; {came} at a request that was chosen; {:?}", stage.layer.traffic());
    assert!(cuts.lossy > 0 && came > 0, "no cut lost anything: {cuts}");
    stage.finish();
}

/// Cuts the power at the n-th request of a start, for all n that a start has; whether one came.
fn cut_start(stage: &mut Stage, random: &mut Random, n: u32) -> bool {
    let moment = *random.pick(&[Moment::Write, Moment::Sync, Moment::Name]);
    let side = *random.pick(&[Side::Before, Side::After]);
    let mut child = stage.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The process has not begun to run when this is set. A start is soon over.
    let came = stage.layer.freeze_at(moment, side, n, Duration::from_millis(100));
    child.kill().unwrap();
    stage.layer.cut(random);
    child.wait().unwrap();
    came
}

#[test]
fn power_cuts_at_each_step_of_a_start_leave_a_store_that_starts() {
    let (mut random, seed) = Random::from_environment(0x7374_6172);
    println!("PACKHORSE_CRASH_SEED={seed}");
    let mut came = 0;
    // A new store that is being made: nothing was confirmed, and the next start makes it.
    for n in 0..16 {
        let Some(mut stage) = Stage::new() else { return };
        came += u32::from(cut_start(&mut stage, &mut random, n / 2));
        stage.start();
    }
    // And one that holds messages.
    let Some(mut stage) = Stage::new() else { return };
    stage.live_and_lose();
    for n in 0..24 {
        came += u32::from(cut_start(&mut stage, &mut random, n / 4));
    }
    println!("{came} of 40 at a request that was chosen");
    assert!(came > 10, "starts were not met: {came}");
    stage.finish();
}

#[test]
fn after_a_stop_in_order_the_power_may_go_at_once() {
    let Some(mut stage) = Stage::new() else { return };
    for life in 0..3 {
        let broker = stage.start();
        let running = stage.run(&broker);
        stage.until_confirmed(&broker, 500);
        broker.signal(Signal::TERM);
        let ended = broker.end();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        stage.broken(running);
        stage.orderly.push(life);
        println!("{}", stage.layer.lose());
    }
    stage.finish();
}

/// What is in the dead-letter queue, all of it because a crash was blamed on it.
fn quarantined(broker: &Broker) -> Vec<Receipt> {
    let Some(depth) = broker.queue("DLQ")["depth"].as_u64().filter(|depth| *depth > 0) else { return Vec::new() };
    let mut consumer = Consumer::new("DLQ", 100);
    let (done, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| consumer.run(broker.amqp(), &done, &count));
        broker.until("the dead letters are read", |broker| broker.queue("DLQ")["depth"] == 0 || reads.is_finished());
        done.store(true, Ordering::Relaxed);
        let end = reads.join().expect("the consumer does not panic");
        end.unwrap_or_else(|broken| panic!("{broken:?}\n{}", broker.log_tail()));
    });
    println!("{depth} quarantined");
    consumer.received
}

/// A broker under load meets the fault, and ends as it must. Its clients have seen that it is gone.
fn meet(stage: &mut Stage, fault: Fault) {
    let errors = |log: &str| log.lines().filter(|line| line.contains(" ERROR ")).count();
    let broker = stage.start();
    let before = errors(&broker.log());
    let running = stage.run(&broker);
    stage.until_confirmed(&broker, 1000);
    stage.layer.fail(fault);
    let since = stage.layer.until_failed(PATIENCE).expect("the fault strikes under load");
    let then = stage.confirmed();
    let ended = broker.end();
    println!(
        "{} confirmed at the failure, {} after it, ended after {:?}",
        then,
        stage.confirmed() - then,
        since.elapsed()
    );
    stage.broken(running);
    assert_eq!(ended.code, Some(70), "{}", ended.log);
    let last = ended.last();
    assert!(last.contains("the storage failed") && last.contains("start again"), "{last}");
    assert_eq!(errors(&ended.log), before + 1, "one line: {}", ended.log);
    stage.layer.heal();
}

fn fault(op: Faulty, path: &str, times: u64, pages: Pages) -> Fault {
    Fault { op, path: path.into(), after: 2, times, pages }
}

#[test]
fn after_a_failed_flush_nothing_is_confirmed_that_the_medium_does_not_have() {
    let Some(mut stage) = Stage::new() else { return };
    // Those that fail once would succeed at the next attempt, as systems do.
    for times in [1, u64::MAX, 1, u64::MAX] {
        for pages in [Pages::Dirty, Pages::Dropped] {
            meet(&mut stage, fault(Faulty::Sync, "journal/", times, pages));
            stage.layer.lose();
        }
    }
    stage.finish();
}

#[test]
fn a_start_after_a_failed_flush_does_not_trust_the_page_cache() {
    let Some(mut stage) = Stage::new() else { return };
    for (times, pages) in [(u64::MAX, Pages::Dropped), (1, Pages::Dropped), (1, Pages::Dirty)] {
        meet(&mut stage, fault(Faulty::Sync, "journal/", times, pages));
        // The page cache still shows what the medium does not have.
        stage.live_and_lose();
    }
    stage.finish();
}

#[test]
fn whatever_fails_ends_the_process_and_a_start_finds_everything() {
    let Some(mut stage) = Stage::new() else { return };
    for (op, path) in [
        (Faulty::Write, "journal/"),
        (Faulty::Sync, "ckpt."),
        (Faulty::Write, "ckpt."),
        (Faulty::SyncFolder, "journal"),
        (Faulty::Name, "journal"),
        (Faulty::Name, "pool"),
        (Faulty::Sync, "pool/"),
        (Faulty::Sync, "large/"),
        (Faulty::Write, "large/"),
        (Faulty::SyncFolder, "large"),
    ] {
        println!("{op:?} {path}");
        meet(&mut stage, fault(op, path, u64::MAX, Pages::Dropped));
        stage.live_and_lose();
    }
    stage.finish();
}

#[test]
fn a_start_on_a_disk_that_fails_is_70_and_changes_nothing() {
    let Some(mut stage) = Stage::new() else { return };
    meet(&mut stage, fault(Faulty::Sync, "journal/", u64::MAX, Pages::Dropped));
    for (op, path) in [(Faulty::Sync, ""), (Faulty::SyncFolder, ""), (Faulty::Write, ""), (Faulty::Name, "")] {
        stage.layer.fail(Fault { op, path: path.into(), after: 0, times: u64::MAX, pages: Pages::Dropped });
        let ended = Broker::from_command(stage.dir.path(), stage.command()).err().expect("no disk, no broker");
        assert_eq!(ended.code, Some(70), "{op:?}: {}", ended.log);
        stage.layer.heal();
    }
    stage.live_and_lose();
    stage.finish();
}
