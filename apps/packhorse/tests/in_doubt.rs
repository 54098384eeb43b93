//! The page `docs/operate/in-doubt.md`, walked: each command line in it is run against a real broker that dies in between, and
//! each block of text behind them is what they print.

mod common;

use common::{Broker, packhorse};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/in-doubt.md"));

/// A block of the page: what is typed, or what is printed.
enum Block {
    Typed(Vec<String>),
    Printed(String),
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let inside: Vec<String> = lines.by_ref().take_while(|line| *line != "```").map(str::to_string).collect();
        match language {
            "sh" => blocks.push(Block::Typed(inside)),
            "text" => blocks.push(Block::Printed(inside.join("\n"))),
            other => panic!("a block of {other}"),
        }
    }
    blocks
}

/// Words of a command line, as a shell splits them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(q)) if c == q => quote = None,
            (' ', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A text without what is another each time: ages, instants, the process's number, and the spaces of columns.
fn plain(text: &str) -> Vec<Vec<String>> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut out = Vec::new();
        for (n, word) in words.iter().enumerate() {
            let counts_time = words.get(n + 1).is_some_and(|unit| ["s", "min", "h"].contains(unit));
            let number = word.parse::<u64>().is_ok();
            if number && counts_time {
                out.push("AGE".to_string());
            } else if word.starts_with("packhorse-prepare-") {
                out.push("CLIENT".to_string());
            } else if word.len() == 20 && word.ends_with('Z') && word.contains("-") {
                out.push("INSTANT".to_string());
            } else {
                out.push(word.to_string());
            }
        }
        out
    };
    text.lines().map(line).filter(|words| !words.is_empty()).collect()
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    answer
}

fn walk(dir: &Path, shards: &str) {
    let mut broker = Broker::start(dir, &["--shards", shards]);
    let (mut printed, mut run) = (String::new(), 0);
    for block in blocks(PAGE) {
        match block {
            Block::Typed(lines) => {
                printed.clear();
                for line in lines {
                    run += 1;
                    if let Some(rest) = line.strip_prefix("packhorse ") {
                        let words = words(rest);
                        printed += &broker.done(&words.iter().map(String::as_str).collect::<Vec<_>>());
                    } else if line == "kill -9 $(pgrep -f 'packhorse serve')" {
                        broker.kill();
                        broker = Broker::start(dir, &["--shards", shards]);
                    } else if let Some(path) = line.strip_prefix("curl -s http://127.0.0.1:8672") {
                        printed += &get(&broker.http(), path);
                    } else {
                        panic!("the test cannot run this line: {line}");
                    }
                }
            }
            Block::Printed(text) => assert_eq!(plain(&printed), plain(&text), "with {shards} shards\n{printed}"),
        }
    }
    assert!(run >= 15, "the page has {run} command lines only");
    for (name, _) in PAGE.split("`packhorse_").skip(1).filter_map(|text| text.split_once(['`', '{'])) {
        let alarm = name == "alarm";
        assert!(alarm || printed.contains(&format!("\npackhorse_{name} ")), "no metric packhorse_{name}");
    }
}

#[test]
fn the_page_for_operators_is_true() {
    for shards in ["1", "2"] {
        walk(tempfile::tempdir().unwrap().path(), shards);
    }
}

#[test]
fn what_is_said_of_settings_is_so() {
    let output = packhorse().args(["config", "show", "--json"]).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let settings = shown["settings"].as_array().unwrap();
    let told: Vec<(String, String)> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `transactions.")?.split_once("` | "))
        .map(|(name, rest)| (format!("transactions.{name}"), rest.split(" |").next().unwrap().to_string()))
        .collect();
    let known: Vec<(String, String)> = settings
        .iter()
        .map(|setting| (setting["name"].as_str().unwrap().to_string(), setting["value"].to_string()))
        .filter(|(name, _)| name.starts_with("transactions."))
        .collect();
    let sorted = |mut list: Vec<(String, String)>| {
        list.sort();
        list
    };
    assert_eq!(sorted(told), sorted(known));
}

#[test]
fn a_branch_that_is_in_doubt_for_too_long_raises_an_alarm_until_it_is_decided() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--set", "transactions.in_doubt_alarm_ms=1"]);
    let alarmed = |broker: &Broker| broker.done(&["status"]).contains("ALARM transactions-in-doubt");
    assert!(!alarmed(&broker));
    broker.done(&["tx", "prepare", "-5:01:02", "--send", "q=x"]);
    while !alarmed(&broker) {}
    let metrics = get(&broker.http(), "/metrics");
    assert!(metrics.contains("\npackhorse_alarm{code=\"transactions-in-doubt\"} 1\n"), "{metrics}");
    assert!(metrics.contains("\npackhorse_transactions_in_doubt 1\n"), "{metrics}");
    broker.done(&["tx", "rollback", "-5:01:02", "--reason", "enough"]);
    assert!(!alarmed(&broker));
}

#[test]
fn a_queue_is_purged_of_work_in_doubt_by_force_and_the_branch_remembers_who_did_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--shards", "2"]);
    for (address, text) in [("q", "one"), ("q", "two"), ("r", "three")] {
        broker.done(&["send", address, text]);
    }
    broker.done(&["tx", "prepare", "1:aa:", "--send", "q=new", "--receive", "q", "--receive", "r"]);
    let metrics = get(&broker.http(), "/metrics");
    for line in [
        r#"packhorse_queue_prepared_in{queue="q"} 1"#,
        r#"packhorse_queue_prepared_out{queue="q"} 1"#,
        r#"packhorse_queue_prepared_out{queue="r"} 1"#,
        "packhorse_queue_prepared_out 0",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }
    let purge = ["queue", "purge", "q", "--force", "--reason", "a flood", "--who", "ann"];
    assert_eq!(broker.done(&purge), "2 messages of queue q removed\n", "one was ready, and one came back");
    assert_eq!(broker.done(&["queue", "purge", "q"]), "0 messages of queue q removed\n");
    let metrics = get(&broker.http(), "/metrics");
    assert!(!metrics.contains(r#"{queue="q"}"#), "{metrics}");
    let shown = broker.done(&["tx", "show", "1:aa:"]);
    assert!(shown.contains("a flood") && shown.contains("ann") && shown.contains("prepared"), "{shown}");
    broker.done(&["tx", "commit", "1:aa:", "--reason", "sure"]);
    assert!(broker.done(&["tx", "list"]).contains("heuristically-mixed"));
}

#[test]
fn what_cannot_be_done_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--shards", "2"]);
    broker.done(&["tx", "prepare", "1:aa:", "--send", "q=x", "--send", "r=y"]);
    for (words, code, said) in [
        (vec!["tx", "commit", "1:aa:"], 2, "--reason"),
        (vec!["tx", "commit", "1:aa:", "--reason", " "], 1, "needs a reason"),
        (vec!["tx", "commit", "1:ab:", "--reason", "r"], 1, "there is no branch 1:ab:"),
        (vec!["tx", "show", "aa"], 1, "not an xid: known are"),
        (vec!["tx", "forget", "1:aa:"], 1, "commit it or roll it back first"),
        (vec!["tx", "list", "--state", "doubtful"], 1, "known are in-doubt, heuristic"),
        (vec!["tx", "prepare", "1:aa:", "--send", "q=x"], 1, "take another one, or see packhorse tx list"),
        (vec!["tx", "prepare", "1:ac:"], 2, "say what is in the branch"),
        (vec!["tx", "undo"], 2, "there is no verb `tx undo`"),
        (vec!["queue", "delete", "q"], 1, "branches in doubt (1:aa:)"),
        (vec!["queue", "delete", "q", "--force"], 1, "give a reason"),
        (vec!["queue", "delete", "q", "--reason", "r"], 2, "--force"),
        (vec!["queue", "purge", "q"], 1, "branches in doubt (1:aa:)"),
        (vec!["queue", "purge", "q", "--force"], 2, "--reason"),
    ] {
        let output = broker.run(&words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    }
    broker.done(&["tx", "commit", "1:aa:", "--reason", "sure", "--who", "ann"]);
    let output = broker.run(&["tx", "rollback", "1:aa:", "--reason", "r"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("heuristically-committed already by ann (sure)"), "{stderr}");
    // What the page says of --json: the HTTP body. Only the age goes on.
    let mut shown: serde_json::Value = serde_json::from_str(&broker.done(&["tx", "show", "1:aa:", "--json"])).unwrap();
    let mut body = common::get(&format!("http://{}", broker.http()), "/api/v1/transactions/1:aa:");
    assert!(shown["age_ms"].take().as_u64() <= body["age_ms"].take().as_u64());
    assert_eq!(shown, body);
    assert_eq!((&shown["decision"]["who"], &shown["decision"]["reason"]), (&"ann".into(), &"sure".into()));
}
