//! The command line against a real broker: what it does, prints, and exits with.

mod common;

use common::{Broker, packhorse, refused};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

#[test]
fn a_confirmed_message_survives_kill_9_in_order() {
    for shards in ["1", "2"] {
        let dir = tempfile::tempdir().unwrap();
        let broker = Broker::start(dir.path(), &["--shards", shards]);
        for n in 0..5 {
            broker.done(&["send", "orders", &format!("saddle {n}")]);
        }
        assert_eq!(broker.done(&["receive", "orders", "--count", "1"]), "saddle 0\n");
        // `receive` ends when its acknowledgement is on the disk: it does not come again.
        broker.kill();

        let broker = Broker::start(dir.path(), &["--shards", shards]);
        assert_eq!(broker.facts["messages"], 4);
        assert_eq!(broker.queue("orders")["ready"], 4);
        let left: String = (1..5).map(|n| format!("saddle {n}\n")).collect();
        assert_eq!(broker.done(&["receive", "orders"]), left);
        assert_eq!(broker.queue("orders")["depth"], 0);
        broker.signal(Signal::TERM);
        assert_eq!(broker.wait(), Some(0));
        let broker = Broker::start(dir.path(), &["--shards", shards]);
        assert_eq!(broker.facts["messages"], 0);
    }
}

#[test]
fn send_says_what_it_is_told_and_receive_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let said = broker.done(&[
        "send",
        "q",
        "grüße",
        "--property",
        "color=red",
        "--property",
        "k=a=b",
        "--priority",
        "7",
        "--ttl",
        "60000",
        "--durable=false",
        "--json",
    ]);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), json!({ "address": "q", "accepted": 1, "refused": 0 }));
    let shown: Value = serde_json::from_str(&broker.done(&["receive", "q", "--count", "1", "--json"])).unwrap();
    assert_eq!(shown["body"], "grüße");
    assert_eq!(shown["properties"], json!({ "color": "red", "k": "a=b" }));
    assert_eq!(
        (&shown["priority"], &shown["durable"], &shown["delivery_count"]),
        (&json!(7), &json!(false), &json!(0))
    );

    assert_eq!(broker.done(&["send", "q", "--size", "3000000", "--count", "3"]), "3 sent to q, confirmed\n");
    let large = broker.done(&["receive", "q"]);
    assert_eq!(large.len(), 3 * 3_000_001);

    let mut command = packhorse();
    command.args(["send", "q", "-", "--amqp", &broker.amqp()]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(broker.done(&["receive", "q"]), "from a pipe\n");
}

#[test]
fn many_messages_go_through_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    broker.done(&["send", "q", "x", "--count", "3000"]);
    assert_eq!(broker.queue("q")["ready"], 3000);
    assert_eq!(broker.done(&["receive", "q", "--count", "700"]).lines().count(), 700);
    // Without a count: all that is there, in several rounds of credit.
    assert_eq!(broker.done(&["receive", "q"]).lines().count(), 2300);
    assert_eq!(broker.queue("q")["acknowledged_total"], 3000);
}

#[test]
fn messages_that_are_not_acknowledged_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    broker.done(&["send", "q", "again", "--count", "3"]);
    assert_eq!(broker.done(&["receive", "q", "--no-ack"]), "again\n".repeat(3));
    assert_eq!(broker.done(&["receive", "q"]), "again\n".repeat(3));
    assert_eq!(broker.done(&["receive", "q"]), "", "nothing is left, and that is no refusal");
    let output = broker.run(&["receive", "q", "--count", "2", "--timeout", "50"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("0 of 2 messages came; then none for 50 ms"));
}

#[test]
fn queues_are_created_listed_shown_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--shards", "2"]);
    let created = broker.done(&["queue", "create", "a/b ü", "--max-deliveries", "3", "--dead-letter", "graves"]);
    assert_eq!(created, "queue a/b ü created\n");
    let again = broker.done(&["queue", "create", "a/b ü", "--max-deliveries", "3", "--dead-letter", "graves"]);
    assert_eq!(again, "queue a/b ü was there with these settings\n");
    assert_eq!(broker.queue("a/b ü")["settings"]["max_deliveries"], 3);
    let output = broker.run(&["queue", "create", "a/b ü", "--max-deliveries", "4"]);
    assert_eq!(output.status.code(), Some(1));

    for n in 0..5 {
        broker.done(&["queue", "create", &format!("q{n}")]);
    }
    let listed = broker.done(&["queue", "list"]);
    let names: Vec<_> = listed.lines().skip(1).map(|l| l.split("  ").next().unwrap()).collect();
    assert_eq!(names, ["a/b ü", "q0", "q1", "q2", "q3", "q4"]);
    // --json is the HTTP body, byte for byte.
    let page: Value = serde_json::from_str(&broker.done(&["queue", "list", "--json", "--limit", "2"])).unwrap();
    assert_eq!(page["next"], "q0");
    assert_eq!(page, common::get(&format!("http://{}", broker.http()), "/api/v1/queues?limit=2"));

    broker.done(&["send", "q1", "in the way"]);
    let output = broker.run(&["queue", "delete", "q1"]);
    assert_eq!(output.status.code(), Some(1), "it holds a message");
    assert_eq!(broker.done(&["queue", "delete", "q1", "--force"]), "queue q1 deleted with 1 messages\n");
    let output = broker.run(&["queue", "show", "q1", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let problem: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(problem["status"], 404);
}

#[test]
fn refusals_of_the_broker_are_told_with_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--set", "limits.max_message_bytes=10000"]);
    for (words, said) in [
        (vec!["send", "topic://prices", "x"], "amqp:not-implemented"),
        (vec!["send", "q", "--size", "20000"], "larger"),
        (vec!["receive", "topic://prices"], "amqp:not-implemented"),
        (vec!["queue", "delete", "none"], "none"),
    ] {
        let output = broker.run(&words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {stderr}");
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    }
    let long = "n".repeat(256);
    let output = broker.run(&["send", &long, "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("256 bytes"));
}

#[test]
fn no_broker_is_3_and_nonsense_is_2() {
    // Bound and not listening: nobody can be there.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let url = format!("http://{nobody}");
    for words in [
        vec!["status", "--url", &url],
        vec!["queue", "list", "--url", &url],
        vec!["tx", "list", "--url", &url],
        vec!["tx", "prepare", "1:aa:", "--send", "q=x", "--amqp", &nobody],
        vec!["send", "q", "x", "--amqp", &nobody],
        vec!["receive", "q", "--amqp", &nobody],
    ] {
        let mut command = packhorse();
        command.args(&words);
        let (code, said) = refused(command);
        assert_eq!(code, Some(3), "{words:?}: {said}");
        assert!(said.contains(&nobody) && said.contains("packhorse serve"), "{said}");
    }
    for words in [
        "send q",
        "send q --size 1 text",
        "send q x --priority 10",
        "send q x --property novalue",
        "send q x --delay 5",
        "receive q --selector x",
        "queue purge q --force",
        "queue purge q --reason r",
        "queue move a b",
        "tx nonsense",
        "tx commit 1:aa:",
        "tx list --local --state idle",
        "tx prepare 1:aa: --send q",
        "journal verify d",
        "bench --size 1",
        "bench --role consumer",
        "user add x",
        "message explain q 1",
        "nonsense",
        "queue nonsense",
        "queue create q --max-messages -5",
        "queue create q --full drop",
        "status --url https://x",
        "status --url x",
    ] {
        let mut command = packhorse();
        command.args(words.split(' '));
        let (code, said) = refused(command);
        assert_eq!(code, Some(2), "{words}: {said}");
        assert!(!said.is_empty());
    }
    let mut later = packhorse();
    later.args(["queue", "move", "a", "b"]);
    assert_eq!(refused(later).1, "packhorse: `packhorse queue move` is not implemented yet\n");
}

#[test]
fn version_and_completions_need_no_broker() {
    let out = |words: &[&str]| String::from_utf8(packhorse().args(words).output().unwrap().stdout).unwrap();
    assert_eq!(out(&["version"]), format!("packhorse {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(
        serde_json::from_str::<Value>(&out(&["version", "--json"])).unwrap()["version"],
        env!("CARGO_PKG_VERSION")
    );
    for shell in ["bash", "zsh", "fish"] {
        assert!(out(&["completions", shell]).contains("receive"), "{shell}");
    }
}

#[test]
fn both_loopbacks_serve_the_same_queues() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--listen", "[::1]:0"]);
    let six =
        broker.facts["amqp"].as_array().unwrap().iter().filter_map(Value::as_str).find(|a| a.starts_with("[::1]:"));
    let six = six.expect("the ready file names the IPv6 listener");
    let over_six = |arguments: &[&str]| {
        let output = packhorse().args(arguments).args(["--amqp", six]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    over_six(&["send", "orders", "by six"]);
    assert_eq!(broker.done(&["receive", "orders"]), "by six\n");
    broker.done(&["send", "orders", "by four"]);
    assert_eq!(over_six(&["receive", "orders"]), "by four\n");
}
