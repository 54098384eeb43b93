//! Starts that succeed and starts that are refused, as real processes: facts, exit codes, sentences.

mod common;

use common::{Broker, packhorse, refused, serve};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};

/// The last sentence on standard error.
fn last(said: &str) -> &str {
    said.lines().last().unwrap_or("")
}

#[test]
fn a_ready_broker_tells_its_facts_and_stops_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0"]);
    let facts = &broker.facts;
    let amqp: Vec<_> = facts["amqp"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert_eq!(amqp.len(), 2);
    assert!(amqp[1].starts_with("127.0.0.2:") && !amqp[1].ends_with(":0"));
    for address in &amqp {
        TcpStream::connect(address).unwrap();
    }
    let http = facts["http"].as_str().unwrap();
    let data = dir.path().join("data").display().to_string();
    let ms = &facts["recovery_ms"];
    assert!(ms.is_u64());
    assert_eq!(
        broker.line,
        format!("ready amqp={} http={http} data={data} messages=0 recovery_ms={ms}\n", amqp.join(","))
    );
    assert_eq!(facts["messages"], 0);
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));

    let status: Value = serde_json::from_str(&broker.done(&["status", "--json"])).unwrap();
    assert_eq!(status["state"], "ready");
    assert_eq!(facts["data"], json!(data));
    let id = status["broker_id"].as_str().unwrap();
    assert_eq!((id.len(), id.matches('-').count()), (36, 4), "{id}");
    let file = broker.ready_file.clone();
    broker.signal(Signal::TERM);
    assert_eq!(broker.wait(), Some(0));
    assert!(!file.exists(), "a broker that has stopped is not ready");
    let again = Broker::start(dir.path(), &[]);
    let status: Value = serde_json::from_str(&again.done(&["status", "--json"])).unwrap();
    assert_eq!(status["broker_id"], id, "it is the data directory's");
}

#[test]
fn both_signals_stop_and_a_second_one_stops_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    broker.signal(Signal::INT);
    assert_eq!(broker.wait(), Some(0));
    let broker = Broker::start(dir.path(), &["--shards", "2"]);
    broker.signal(Signal::TERM);
    broker.signal(Signal::INT);
    assert_eq!(broker.wait(), Some(0));
}

#[test]
fn a_port_in_use_is_71_with_address_and_advice() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, what) in [("--listen", "AMQP"), ("--http", "HTTP")] {
        let dir = tempfile::tempdir().unwrap();
        let (code, said) = refused(serve(dir.path(), &[flag, &address]));
        assert_eq!(code, Some(71), "{said}");
        let sentence = format!("cannot listen on {address} for {what}: the port is in use; stop what listens there");
        assert!(last(&said).contains(&sentence), "{said}");
        assert!(!dir.path().join("data").exists(), "nothing was made before the ports were known to be free");
    }
}

#[test]
fn a_data_directory_in_use_is_66_with_directory_and_advice() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let (code, said) = refused(serve(dir.path(), &[]));
    assert_eq!(code, Some(66), "{said}");
    assert!(last(&said).contains(&dir.path().join("data").display().to_string()), "{said}");
    assert!(last(&said).contains("in use"), "{said}");
    // The first one is not disturbed.
    broker.done(&["status"]);
}

#[test]
fn a_data_directory_of_another_format_is_65_and_stays_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    broker.signal(Signal::TERM);
    broker.wait();
    let store = dir.path().join("data/STORE");
    let mut bytes = std::fs::read(&store).unwrap();
    bytes[8] = 99;
    std::fs::write(&store, &bytes).unwrap();
    let (code, said) = refused(serve(dir.path(), &[]));
    assert_eq!(code, Some(65), "{said}");
    assert!(last(&said).contains("format 99"), "{said}");
    assert_eq!(std::fs::read(&store).unwrap(), bytes);
}

#[test]
fn a_disk_that_refuses_is_70() {
    let mut command = packhorse();
    command.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", "/dev/null/data"]);
    let (code, said) = refused(command);
    assert_eq!(code, Some(70), "{said}");
    assert!(last(&said).contains("/dev/null/data"), "{said}");
}

/// A broker whose files may have `kib` KiB each; past that the system refuses to write.
fn with_small_files(dir: &std::path::Path, kib: u32) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    let dir = dir.display();
    // The signal of this limit is ignored, so that a write gets an error as it would from a full disk.
    command.arg("-c").arg(format!(
        "trap '' XFSZ; ulimit -f {}; exec {} serve --data {dir}/data --listen 127.0.0.1:0 --http 127.0.0.1:0 --ready-file {dir}/ready.json",
        kib * 2,
        common::BIN
    ));
    command
}

#[test]
fn no_room_for_a_start_is_70() {
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = refused(with_small_files(dir.path(), 16));
    assert_eq!(code, Some(70), "{said}");
    assert!(last(&said).contains("start again"), "{said}");
}

#[test]
fn a_write_that_fails_later_is_70_and_what_was_confirmed_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    // Segments fit, the file of a large message does not.
    let broker = Broker::spawn(&mut with_small_files(dir.path(), 70 << 10), &dir.path().join("ready.json"));
    broker.done(&["send", "q", "kept"]);
    let output = broker.run(&["send", "q", "--size", "100000000"]);
    assert!(matches!(output.status.code(), Some(1 | 3)), "{output:?}");
    assert_eq!(broker.wait(), Some(70));
    let broker = Broker::start(dir.path(), &[]);
    assert_eq!(broker.done(&["receive", "q"]), "kept\n");
}

#[test]
fn a_wrong_configuration_is_64_with_place_and_rule() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    std::fs::write(&file, "[limits]\nmax_link = 1\n").unwrap();
    let with_file = ["--config", file.to_str().unwrap()];
    for (flags, sentence) in [
        (
            &with_file[..],
            format!("{}:2: unknown setting limits.max_link; did you mean limits.max_links?", file.display()),
        ),
        (
            &["--listen", "0.0.0.0:0"],
            "listening beyond loopback needs a configured user, and this version has no users yet".into(),
        ),
        (&["--http", "[::]:0"], "listening beyond loopback".into()),
        (&["--listen", "localhost:5672"], "must be a list of ADDRESS:PORT".into()),
        (&["--shards", "65"], "flag --shards 65: broker.shards = 65: must be 1 to 64".into()),
        (&["--set", "nonsense"], "write --set SECTION.KEY=VALUE".into()),
        (&["--config", "/nowhere.toml"], "cannot read the configuration file /nowhere.toml".into()),
        (&["--log-format", "xml"], "must be one of human, json".into()),
    ] {
        let (code, said) = refused(serve(dir.path(), flags));
        assert_eq!(code, Some(64), "{flags:?}: {said}");
        assert!(said.contains(&sentence), "{flags:?}: {said}");
        assert_eq!(said.lines().count(), 1, "one line: {said}");
    }
    let mut command = serve(dir.path(), &[]);
    command.env("PACKHORSE_BROKER__SHARD", "1");
    let (code, said) = refused(command);
    assert_eq!(code, Some(64));
    assert!(
        said.contains("environment PACKHORSE_BROKER__SHARD: unknown setting broker.shard; did you mean broker.shards?")
    );
    let (code, said) = refused(serve(dir.path(), &["--ready-file", "/nowhere/ready.json"]));
    assert_eq!(code, Some(64), "{said}");
    assert!(last(&said).contains("/nowhere/ready.json"));
}

#[test]
fn flags_that_are_unknown_are_usage() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(refused(serve(dir.path(), &["--lisen", "x"])).0, Some(2));
    let mut nothing = packhorse();
    nothing.args::<_, &str>([]);
    assert_eq!(refused(nothing).0, Some(2));
}

#[test]
fn json_logs_are_json_to_the_last_line() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = refused(serve(dir.path(), &["--log-format", "json", "--http", &address]));
    assert_eq!(code, Some(71));
    let lines: Vec<Value> =
        said.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    let last = lines.last().unwrap();
    assert_eq!((&last["level"], &last["exit_code"]), (&json!("ERROR"), &json!(71)));
    assert!(last["message"].as_str().unwrap().contains("cannot listen"));
}

#[test]
fn the_effective_configuration_is_shown_with_origins_offline_and_online() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    std::fs::write(&file, "[limits]\nmax_links = 7\nmax_sessions = 8\n[broker]\nname = \"mule\"\n").unwrap();
    let mut show = packhorse();
    show.args(["config", "show", "--json", "--shards", "2", "--config"])
        .arg(&file)
        .env("PACKHORSE_LIMITS__MAX_SESSIONS", "9");
    let offline: Value = serde_json::from_slice(&show.output().unwrap().stdout).unwrap();
    let of = |document: &Value, name: &str| {
        let all = document["settings"].as_array().unwrap();
        let one = all.iter().find(|s| s["name"] == name).unwrap();
        (one["value"].clone(), one["origin"].as_str().unwrap().to_string())
    };
    assert_eq!(of(&offline, "limits.max_links"), (json!(7), "file".into()));
    assert_eq!(of(&offline, "limits.max_sessions"), (json!(9), "environment".into()));
    assert_eq!(of(&offline, "broker.shards"), (json!(2), "flag".into()));
    assert_eq!(of(&offline, "queues.delivery_limit"), (json!(10), "default".into()));

    let broker = Broker::start(dir.path(), &["--config", file.to_str().unwrap()]);
    let url = format!("http://{}", broker.http());
    let online = common::get(&url, "/api/v1/config");
    assert_eq!(of(&online, "limits.max_links"), (json!(7), "file".into()));
    let status: Value = serde_json::from_str(&broker.done(&["status", "--json"])).unwrap();
    assert_eq!(status["name"], "mule");

    let mut check = packhorse();
    check.args(["config", "check"]).arg(&file);
    assert_eq!(refused(check).0, Some(0));
    std::fs::write(&file, "[limits]\nmax_links = 0\n").unwrap();
    let mut check = packhorse();
    check.args(["config", "check"]).arg(&file);
    let (code, said) = refused(check);
    assert_eq!(code, Some(64));
    assert!(said.contains(":2: limits.max_links = 0: must be 1 to"), "{said}");
}
