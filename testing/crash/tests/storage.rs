//! Storage that fails or has no room, under load: nothing is confirmed that is not safe, the process says what is wrong, and a
//! start afterwards finds everything that was confirmed.
//!
//! A write that fails without load and a start without room are in `apps/packhorse/tests/start.rs`.

use packhorse_crash::{Books, Broken, Broker, Consumer, Producer, serve};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file system of its own, in memory, of a few MiB.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Nothing where this user may not mount: a person is told so, in CI it is a failure, as with any missing part.
    fn new(at: &Path, mib: u32) -> Option<SmallDisk> {
        std::fs::create_dir_all(at).unwrap();
        let size = std::ffi::CString::new(format!("size={mib}m")).unwrap();
        match mount("tmpfs", at, "tmpfs", MountFlags::empty(), Some(size.as_c_str())) {
            Ok(()) => Some(SmallDisk(at.into())),
            Err(e) => {
                let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
                assert!(!ci, "no file system can be mounted on {} ({e}); CI runs as root", at.display());
                println!("SKIPPED: no file system can be mounted on {} ({e}); run as root", at.display());
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

type Worker = std::thread::JoinHandle<(Producer, Result<(), Broken>)>;

/// A producer in a thread of its own.
fn produce(broker: &Broker, most: usize) -> (Worker, Arc<AtomicU64>) {
    let confirmed = Arc::new(AtomicU64::new(0));
    let (to, counter) = (broker.amqp(), Arc::clone(&confirmed));
    let worker = std::thread::spawn(move || {
        let mut producer = Producer { most, ..Producer::new(1, "orders", 500, 2_000) };
        let end = producer.run(to, &AtomicBool::new(false), &counter);
        (producer, end)
    });
    (worker, confirmed)
}

/// Takes everything that is in the queue, and judges.
fn take_all_and_judge(broker: &Broker, producer: Producer) {
    let done = Arc::new(AtomicBool::new(false));
    let (to, stop) = (broker.amqp(), Arc::clone(&done));
    let consumer = std::thread::spawn(move || {
        let mut consumer = Consumer::new("orders", 300);
        let end = consumer.run(to, &stop, &AtomicU64::new(0));
        (consumer, end)
    });
    broker.until("the queue is empty", |broker| broker.queue("orders")["depth"] == 0 || consumer.is_finished());
    done.store(true, Ordering::Relaxed);
    let (consumer, end) = consumer.join().unwrap();
    end.unwrap_or_else(|broken| panic!("{broken:?}\n{}", broker.log_tail()));
    let books = Books { sent: [(1, producer.sent)].into(), received: consumer.received, orderly: Vec::new() };
    assert_eq!(books.judge(), Vec::<String>::new());
    println!("{} confirmed, {} received", books.confirmed(), books.received.len());
}

#[test]
fn a_write_that_fails_under_load_ends_the_process_with_70_and_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--set", "data.segment_bytes=1048576"]);
    let (worker, confirmed) = produce(&broker, usize::MAX);
    broker.until("confirms come", |_| confirmed.load(Ordering::Relaxed) > 1000);
    let pid = broker.facts()["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
    // Writes past this limit get an error, as from a broken disk (and a signal, which does not end the broker).
    let none = Rlimit { current: Some(4096), maximum: Some(4096) };
    prlimit(pid, Resource::Fsize, none).unwrap();
    let ended = broker.end();
    assert_eq!(ended.code, Some(70), "{}", ended.log);
    assert!(ended.last().contains("the storage failed") && ended.last().contains("start again"), "{}", ended.last());
    let errors = ended.log.lines().filter(|line| line.contains("ERROR")).count();
    assert_eq!(errors, 1, "one line: {}", ended.log);
    let (producer, end) = worker.join().unwrap();
    assert!(matches!(end, Err(Broken::Lost(_) | Broken::Closed { .. })), "{end:?}");

    let broker = Broker::start(dir.path(), &[]);
    take_all_and_judge(&broker, producer);
}

#[test]
fn a_full_disk_confirms_nothing_and_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(_disk) = SmallDisk::new(&data, 32) else { return };
    let filler = data.join("filler");
    std::fs::write(&filler, vec![1; 16 << 20]).unwrap();
    let flags = ["--set", "data.segment_bytes=1048576"];
    let broker = Broker::start(dir.path(), &flags);
    // More than the 16 MiB that are left, less than there are without the filler.
    let (worker, confirmed) = produce(&broker, 9_000);
    let mut seen = 0;
    let mut same = 0;
    broker.until("the disk is full", |_| {
        let now = confirmed.load(Ordering::Relaxed);
        same = if now == seen && now > 0 { same + 1 } else { 0 };
        seen = now;
        same > 50
    });
    assert!(seen < 9_000, "it all went onto a disk that is smaller");
    assert_eq!(broker.get("/healthz").0, 200, "waiting is not failing");
    println!("full at {seen} of 9,000");
    let alarms = broker.status()["alarms"].clone();
    assert_eq!(alarms[0]["code"], "disk-full", "{alarms}");
    let told = |broker: &Broker, text: &str| broker.log().lines().filter(|line| line.contains(text)).count();
    broker.until("the operator is told", |broker| told(broker, "WARN the disk of the data directory is full") == 1);
    std::fs::remove_file(&filler).unwrap();
    broker.until("it goes on", |_| confirmed.load(Ordering::Relaxed) == 9_000);
    let (producer, end) = worker.join().unwrap();
    end.unwrap();
    broker.until("the operator is told", |broker| told(broker, "there is room again") == 1);
    assert_eq!(broker.status()["alarms"].as_array().map(Vec::len), Some(0));
    assert_eq!(told(&broker, "directory is full"), 1, "once, not at each attempt");
    broker.kill();
    let broker = Broker::start(dir.path(), &flags);
    take_all_and_judge(&broker, producer);
}

#[test]
fn a_full_disk_at_the_start_is_70_with_what_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(_disk) = SmallDisk::new(&data, 2) else { return };
    let ended =
        Broker::from_command(dir.path(), serve(dir.path(), &[])).err().expect("2 MiB are no room for a segment");
    assert_eq!(ended.code, Some(70), "{}", ended.log);
    let last = ended.last();
    assert!(
        last.contains("no space") && last.contains(&data.display().to_string()) && last.contains("bytes"),
        "{last}"
    );
}
