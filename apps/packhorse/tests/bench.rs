//! `packhorse bench` against a real broker: what it counts, what it finds wrong, how it ends.

mod common;

use common::{Broker, packhorse};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

fn figures(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap()
}

#[test]
fn both_sides_agree_on_every_message() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    for words in [
        "bench --count 3000 --queue a",
        "bench --count 3000 --queue b --queues 3 --connections 7 --consumers 5 --window 4",
        "bench --count 400 --queue c --rate 4000 --connections 2",
        "bench --count 300 --queue d --size 100000 --window 50",
        "bench --count 2000 --queue e --size 16 --durable=false --credit 3",
    ] {
        let mut all: Vec<&str> = words.split(' ').collect();
        all.extend(["--json", "--quiet"]);
        let said = figures(&broker.done(&all));
        let count: u64 = words.split(' ').nth(2).unwrap().parse().unwrap();
        assert_eq!((&said["producer"]["total"], &said["consumer"]["total"]), (&count.into(), &count.into()), "{words}");
        assert_eq!(said["violations"], 0, "{words}: {said}");
        assert_eq!(said["producer"]["confirm_us"]["count"], count, "{words}");
        assert_eq!(said["consumer"].get("end_to_end_us").is_some(), words.contains("--rate"), "{words}");
    }
    for queue in ["a", "b-0", "b-1", "b-2", "c", "d", "e"] {
        assert_eq!(broker.queue(queue)["depth"], 0, "{queue}");
    }
}

#[test]
fn a_span_counts_what_happens_within_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let said = broker.done(&["bench", "--time", "0.4", "--warmup", "0.2", "--rate", "1000", "--json", "--quiet"]);
    let said = figures(&said);
    // By their due times, whatever the machine is busy with.
    assert_eq!((&said["producer"]["counted"], &said["producer"]["total"]), (&400.into(), &600.into()), "{said}");
    assert_eq!(said["consumer"]["counted"], 400, "{said}");
    let text = broker.done(&["bench", "--count", "10"]);
    assert!(text.contains("10 confirmed in") && text.contains("p99.99"), "{text}");
    assert!(text.ends_with("every message once, in order, unchanged\n"), "{text}");
}

#[test]
fn a_message_that_comes_twice_is_a_violation_and_exit_1() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let side = |role: &str, count: &str| {
        broker.run(&["bench", "--role", role, "--run", "5", "--count", count, "--json", "--quiet"])
    };
    // A producer that begins again sends the same messages once more.
    assert!(side("producer", "5").status.success());
    assert!(side("producer", "10").status.success());
    let output = side("consumer", "10");
    assert_eq!(output.status.code(), Some(1));
    let said = figures(std::str::from_utf8(&output.stdout).unwrap());
    assert_eq!((&said["violations"], &said["consumer"]["violations"]["duplicated"]), (&5.into(), &5.into()), "{said}");
    assert_eq!(said["consumer"]["violations_told"][0], "message 0/0 came twice");
}

#[test]
fn what_is_not_of_this_run_is_left_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    broker.done(&["send", "q", "somebody's"]);
    let output = broker.run(&["bench", "--role", "consumer", "--queue", "q", "--count", "1", "--quiet"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("q holds messages that this run did not send"));
    assert_eq!(broker.done(&["receive", "q", "--count", "1"]), "somebody's\n");
}

#[test]
fn a_history_can_be_written_beside() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let folder = dir.path().join("history");
    broker.done(&["bench", "--count", "100", "--history", folder.to_str().unwrap(), "--quiet"]);
    for (side, kind) in [("producer", "sent_ok"), ("consumer", "recv")] {
        let text = std::fs::read_to_string(folder.join(format!("{side}.jsonl"))).unwrap();
        let events = text.lines().map(figures).filter(|event| event["event"] == kind).count();
        assert_eq!(events, 100, "{side}");
    }
}

#[test]
fn a_run_judges_its_own_history_and_says_how_much_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let folder = dir.path().join("history");
    let folder = folder.to_str().unwrap();
    let words = "bench --count 1000 --queues 2 --connections 3 --consumers 4 --credit 50 --json --quiet --history";
    let said = figures(&broker.done(&words.split(' ').chain([folder]).collect::<Vec<_>>()));
    let history = &said["history"];
    assert_eq!(history["violations_total"], 0, "{history}");
    // All that was confirmed was looked for in queues that were seen empty; somebody looked for what is stuck.
    for (invariant, count) in [("I1", 1000), ("I2", 1000), ("I5", 1000)] {
        assert_eq!(history["judged"][invariant], count, "{invariant}: {history}");
    }
    assert!(history["judged"]["I9"].as_u64() > Some(0), "{history}");
    let said = broker.done(&["bench", "--count", "10", "--quiet", "--queue", "other", "--history", folder]);
    assert!(said.contains("checker   judged I1 10, "), "{said}");
    // One side alone has half of a history.
    let words = "bench --role producer --run 3 --count 1 --json --quiet --queue half --history";
    let said = figures(&broker.done(&words.split(' ').chain([folder]).collect::<Vec<_>>()));
    assert!(said.get("history").is_none(), "{said}");
}

#[test]
fn a_message_that_is_missing_in_a_history_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let folder = dir.path().join("history");
    broker.done(&["bench", "--count", "100", "--history", folder.to_str().unwrap(), "--quiet"]);
    let [producer, consumer] = ["producer.jsonl", "consumer.jsonl"].map(|name| folder.join(name));
    let text = std::fs::read_to_string(&consumer).unwrap();
    let check = |without: &dyn Fn(&Value) -> bool| {
        let kept: Vec<&str> = text.lines().filter(|line| !without(&figures(line))).collect();
        std::fs::write(&consumer, kept.join("\n") + "\n").unwrap();
        let mut command = packhorse();
        let output = command.args(["checker", "--json"]).args([&producer, &consumer]).output().unwrap();
        (output.status.code(), figures(std::str::from_utf8(&output.stdout).unwrap()))
    };
    assert_eq!(check(&|_| false).0, Some(0));
    let (code, said) = check(&|event| event["sequence"] == 42);
    assert_eq!((code, &said["invariants"]["I1"], &said["violations_total"]), (Some(1), &1.into(), &1.into()), "{said}");
    // Nobody saw the queue empty: then nobody knows.
    let (code, said) = check(&|event| event["sequence"] == 42 || event["event"] == "drained");
    assert_eq!((code, &said["totals"]["not_judged_for_loss"]), (Some(0), &1.into()), "{said}");
}

/// A side of a run that a driver commands.
struct Side {
    child: Child,
    answers: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Side {
    fn start(broker: &Broker, role: &str) -> Side {
        let mut command = packhorse();
        command.args(["bench", "--control", "--json", "--quiet", "--time", "0.2", "--warmup", "0", "--role", role]);
        command.env("PACKHORSE_AMQP", broker.amqp()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(answers.next().unwrap().unwrap(), "ready");
        Side { child, answers }
    }

    fn order(&mut self, order: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    fn end(mut self) -> Value {
        let line = self.answers.next().unwrap().unwrap();
        assert!(self.child.wait().unwrap().success(), "{line}");
        figures(&line)
    }
}

#[test]
fn two_processes_run_as_one_when_they_are_told_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let (mut consumer, mut producer) = (Side::start(&broker, "consumer"), Side::start(&broker, "producer"));
    for side in [&mut consumer, &mut producer] {
        side.order("count");
        assert_eq!(side.answers.next().unwrap().unwrap(), "count 0");
    }
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let now: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let start = format!("start {}", ((now + 0.1) * 1e9) as u64);
    consumer.order(&start);
    producer.order(&start);
    let produced = producer.end();
    let total = produced["producer"]["total"].as_u64().unwrap();
    consumer.order(&format!("expect {total}"));
    let consumed = consumer.end();
    assert_eq!((&consumed["consumer"]["total"], &consumed["violations"]), (&total.into(), &0.into()), "{consumed}");
}

#[test]
fn what_workers_move_is_there_once_and_in_order_with_and_without_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    for (words, messages) in [
        ("bench --count 3000 --scenario transform --workers 4 --batch 20", 3000),
        // More than goes round, in transactions of which two sessions of a connection have one each.
        ("bench --count 101 --scenario local-tx --workers 4 --connections 2 --batch 40 --credit 50", 4040),
        ("bench --count 301 --scenario xa --workers 6 --connections 3 --credit 10", 301),
        ("bench --count 50 --scenario xa --workers 2 --batch 7 --credit 10 --size 40000", 350),
    ] {
        let mut all: Vec<&str> = words.split(' ').collect();
        all.extend(["--json", "--quiet"]);
        let said = figures(&broker.done(&all));
        let count: u64 = words.split(' ').nth(2).unwrap().parse().unwrap();
        assert_eq!(said["violations"], 0, "{words}: {said}");
        assert_eq!((&said["mover"]["total"], &said["mover"]["messages"]), (&count.into(), &messages.into()), "{words}");
        assert_eq!(said["mover"]["confirm_us"]["count"], count, "{words}");
        let workers = said["settings"]["workers"].as_u64().unwrap();
        for worker in 0..workers {
            assert_eq!(broker.queue(&format!("bench-{worker}"))["depth"], 0, "{words}");
        }
    }
    let words = "bench --scenario local-tx --time 0.3 --warmup 0.1 --workers 2 --batch 10 --credit 20";
    let text = broker.done(&words.split(' ').collect::<Vec<_>>());
    assert!(text.contains("messages moved") && text.contains("end to answer"), "{text}");
    assert!(text.ends_with("every message once, in order, unchanged\n"), "{text}");
}

#[test]
fn a_message_too_many_among_what_is_moved_is_a_violation_and_exit_1() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    // Left behind by a run of the same number: message 0 of producer 0, which then is there twice.
    broker.done(&["bench", "--role", "producer", "--run", "5", "--count", "1", "--queue", "bench-1", "--quiet"]);
    let words = "bench --scenario local-tx --run 5 --workers 2 --batch 3 --ring 10 --count 1 --json --quiet";
    let output = broker.run(&words.split(' ').collect::<Vec<_>>());
    let said = figures(std::str::from_utf8(&output.stdout).unwrap());
    assert_eq!((output.status.code(), &said["mover"]["violations"]["duplicated"]), (Some(1), &1.into()), "{said}");
    assert!(said["mover"]["violations"]["reordered"].as_u64() > Some(0), "{said}");
}

#[test]
fn branches_that_were_prepared_are_all_there_after_a_kill_and_a_wrong_log_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let log = dir.path().join("log");
    let words = |scenario: &str| -> Vec<String> {
        let words =
            "bench --workers 4 --connections 2 --batch 2 --credit 8 --count 250 --run 9 --json --quiet --scenario";
        let mut words: Vec<String> = words.split(' ').map(str::to_string).collect();
        words.extend([scenario.to_string(), "--log".to_string(), log.display().to_string()]);
        words
    };
    let run = |broker: &Broker, scenario: &str| {
        let words = words(scenario);
        let output = broker.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        (output.status.code(), figures(std::str::from_utf8(&output.stdout).unwrap()))
    };
    let (code, said) = run(&broker, "prepare");
    assert_eq!((code, &said["mover"]["total"]), (Some(0), &250.into()), "{said}");
    broker.kill();
    let broker = Broker::start(dir.path(), &[]);
    // A branch more in the log: one whose prepare was answered and that is lost.
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(text.lines().count(), 250);
    std::fs::write(&log, format!("{text}1:6c6f7374:31\n")).unwrap();
    let (code, said) = run(&broker, "recover");
    let recover = &said["recover"];
    assert_eq!((code, &recover["answered"], &recover["missing"]), (Some(1), &250.into(), &1.into()), "{said}");
    // All were committed, and each message was there once.
    assert_eq!((&said["violations"], &recover["violations"]["lost"]), (&1.into(), &0.into()), "{said}");
}
