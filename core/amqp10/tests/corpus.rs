//! Replays the fuzzer's corpus: each file of `testing/fuzz/corpus/TARGET` once through the target of that name.
//! What a fuzzer finds is put there and stays.

use std::path::Path;

use packhorse_amqp10::fuzz;

/// Runs `target` on each file of its folder, on a stack of 2 MiB.
#[expect(clippy::disallowed_methods, reason = "a test that replays files")]
fn replay(name: &'static str, at_least: usize, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/fuzz/corpus").join(name);
    let replayed = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || {
            let mut files: Vec<_> = std::fs::read_dir(&folder)
                .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
                .map(|entry| entry.expect("an entry").path())
                .collect();
            files.sort();
            for file in &files {
                let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                // The name shows when the target panics: output of a failed test is printed.
                println!("{}", file.display());
                target(&bytes);
            }
            files.len()
        })
        .expect("a thread")
        .join()
        .expect("no file of the corpus makes its target panic");
    assert!(replayed >= at_least, "{name}: {replayed} files, at least {at_least} were there once");
}

#[test]
fn corpus_of_values() {
    replay("amqp10_value", 20, fuzz::value);
}

#[test]
fn corpus_of_frames() {
    replay("amqp10_frame", 17, fuzz::frame);
}

#[test]
fn corpus_of_performatives() {
    replay("amqp10_performative", 15, fuzz::performative);
}

#[test]
fn corpus_of_sasl_frames() {
    replay("amqp10_sasl", 5, fuzz::sasl);
}

#[test]
fn corpus_of_messages() {
    replay("amqp10_message", 27, fuzz::message);
}

#[test]
fn corpus_of_connections() {
    replay("amqp10_connection", 17, fuzz::connection);
}
