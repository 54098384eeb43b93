//! FS-63 on the real process: bytes of its files that are not what it wrote. The last block that nobody was told of needs a failpoint
//! and is in `failpoints.rs`.

use packhorse_client_core::Verdict;
use packhorse_crash::{Broker, Producer, Read, Reader, Segments, serve};
use rustix::process::Signal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};

const QUEUE: &str = "orders";
const MESSAGES: usize = 30;

/// Stores messages, each in a block of its own, and kills the broker.
fn filled(dir: &Path) -> Segments {
    let broker = Broker::start(dir, &[]);
    let mut producer = Producer { most: MESSAGES, window: 1, ..Producer::new(1, QUEUE, 1, 200) };
    producer.run(broker.amqp(), &AtomicBool::new(false), &AtomicU64::new(0)).expect("the broker takes them");
    broker.kill();
    Segments::of(&dir.join("data"))
}

fn numbers(read: &[Read]) -> Vec<u64> {
    read.iter().map(|one| one.number).collect()
}

#[test]
fn fs_63_a_flip_in_a_body_damages_that_message_alone_and_is_never_silent() {
    for number in [0, 7, 20] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let segments = filled(dir.path());
        let (file, at) = segments.body(number).expect("it is in the log");
        Segments::flip(&file, at + 100);
        let broker = Broker::start(dir.path(), &[]);
        let mut reader = Reader::open(&broker, QUEUE, 100).expect("the broker lives");
        let came = reader.take(MESSAGES - 1).expect("the others come");
        assert_eq!(numbers(&came), (0..MESSAGES as u64).filter(|n| *n != number).collect::<Vec<_>>());
        came.iter().for_each(|one| reader.decide(one, Verdict::Accept).expect("ours"));
        reader.answered().expect("the broker answers");
        let queue = broker.queue(QUEUE);
        assert_eq!((&queue["damaged"], &queue["depth"]), (&1.into(), &1.into()), "{queue}");
        broker.signal(Signal::TERM);
        let ended = broker.end();
        let told = ended.log.lines().filter(|line| line.contains("is damaged: its body failed its checksum")).count();
        assert_eq!(told, 1, "{}", ended.log);
    }
}

#[test]
fn fs_63_a_flip_in_a_header_or_in_metadata_refuses_the_start_with_a_report() {
    // Its mark, number, lengths, and the operations behind it.
    for place in [0, 9, 41, 45, 70, 90] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let segments = filled(dir.path());
        let blocks = segments.blocks();
        assert!(blocks.len() > MESSAGES, "each has a block of its own");
        let (file, at) = blocks[blocks.len() / 2].clone();
        let whole = std::fs::read(&file).expect("it can be read");
        Segments::flip(&file, at + place);
        let ended = Broker::from_command(dir.path(), serve(dir.path(), &[])).err();
        let ended = ended.unwrap_or_else(|| panic!("a start on a log with a hole, byte {place}"));
        assert_eq!(ended.code, Some(65), "byte {place}: {}", ended.log);
        let last = ended.last();
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(last.contains("is damaged at byte") && last.contains(name), "byte {place}: {last}");
        // The operator brings back the file.
        std::fs::write(&file, whole).expect("it can be written");
        let broker = Broker::start(dir.path(), &[]);
        let came = Reader::open(&broker, QUEUE, 100).and_then(|mut reader| reader.take(MESSAGES)).expect("all come");
        assert_eq!(numbers(&came), (0..MESSAGES as u64).collect::<Vec<_>>());
    }
}
