//! The API over real sockets with shards that are played by a function.

#[path = "api/transactions.rs"]
mod transactions;

use packhorse_broker::{By, Command, Counters, Limit, ListPage, QueueReport, Refusal, RefusalKind, Reply, ShardReport};
use packhorse_http::{Gateway, HttpLimits, Node, Phase, Server};
use packhorse_model::{QueueId, QueueName, QueueSettings, ShardId};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A broker of two shards: `q0`, `q2`, … on shard 0, `q1`, `q3`, … on shard 1, ten in all.
fn play(shard: ShardId, command: Command) -> Reply {
    let report = |n: u64| QueueReport {
        id: QueueId(u64::MAX - n),
        name: format!("q{n}"),
        settings: QueueSettings { dead_letter: QueueName::new("dead").ok(), ..QueueSettings::default() },
        shard: shard.0,
        counters: Counters { ready: n, depth: n, ..Counters::default() },
        oldest_age_ms: Some(5),
        full: Some(Limit::Bytes),
    };
    let not_found = |name: &str| {
        Reply::Refused(Refusal {
            kind: RefusalKind::NotFound,
            code: "queue-not-found",
            detail: format!("there is no queue {name}"),
        })
    };
    match command {
        Command::Status => Reply::Shard(Box::new(ShardReport { connections: 1, queues: 5, ..ShardReport::default() })),
        Command::QueueList { after, limit } => {
            let mine = (0..10).filter(|n| n % 2 == u64::from(shard.0)).map(report);
            let mut rest: Vec<_> = mine.filter(|q| after.as_ref().is_none_or(|a| q.name > *a)).collect();
            let more = rest.len() > limit;
            rest.truncate(limit);
            Reply::Queues(ListPage { queues: rest, more })
        }
        Command::QueueGet { name } if name == "a/b ü" => Reply::Queue(Box::new(QueueReport { name, ..report(1) })),
        Command::QueueGet { name } => not_found(&name),
        Command::QueuePut { name, patch } if name == "there" => Reply::Refused(Refusal {
            kind: RefusalKind::Conflict,
            code: "queue-differs",
            detail: format!("max_deliveries is 10, not {:?}", patch.max_deliveries),
        }),
        Command::QueuePut { name, patch } => {
            let mut queue = QueueReport { name, ..report(1) };
            queue.settings.delivery_limit = patch.max_deliveries.unwrap_or(10);
            queue.settings.default_durable = patch.default_durable.unwrap_or(true);
            queue.settings.limits = patch.limits.unwrap_or_default();
            queue.settings.dead_letter = patch.dead_letter.and_then(|n| QueueName::new(&n).ok());
            Reply::Created { queue: Box::new(queue), new: true }
        }
        Command::QueueDelete { name, force: true, .. } if name == "q1" => Reply::Deleted { messages: 7 },
        // Its deletion needs a reason.
        Command::QueueDelete { by: Some(By { who, reason }), .. }
            if who == "local operator" && reason == "moved house" =>
        {
            Reply::Deleted { messages: 8 }
        }
        Command::QueueDelete { name, .. } => not_found(&name),
        Command::QueuePurge { name, by: None } if name == "q1" => Reply::Purged { messages: 5 },
        Command::QueuePurge { by: Some(By { who, reason }), .. } if who == "ann" && reason == "a flood" => {
            Reply::Purged { messages: 6 }
        }
        Command::QueuePurge { name, .. } => not_found(&name),
        other => transactions::play(shard, other),
    }
}

struct Broker {
    server: Server,
    node: Arc<Node>,
    address: SocketAddr,
}

fn start(limits: HttpLimits) -> Broker {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let node = Arc::new(Node::new(
        "test".into(),
        json!({ "settings": [{ "name": "a.b", "value": 1, "origin": "file", "from": "f:1", "help": "h" }] }),
    ));
    let cell: Arc<OnceLock<Arc<Gateway>>> = Arc::default();
    let back = Arc::clone(&cell);
    let gateway = Arc::new(Gateway::new(2, Duration::from_secs(60), move |shard, id, command| {
        back.get().unwrap().reply(id, play(shard, command));
    }));
    cell.set(Arc::clone(&gateway)).ok().unwrap();
    node.enter(Phase::Ready);
    let server = Server::start(listener, gateway, Arc::clone(&node), limits).unwrap();
    Broker { server, node, address }
}

impl Broker {
    /// Sends bytes, reads to the end.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A reset after the answer is as good an end as any.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let answer = self.raw(
            format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
                .as_bytes(),
        );
        let (head, body) =
            answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {method} {path}: {answer:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
        if status >= 400 {
            assert!(head.contains("content-type: application/problem+json"), "{head}");
            assert_eq!(body["status"], status);
        }
        (status, body)
    }

    /// An answer that is no JSON, with its head.
    fn text(&self, method: &str, path: &str) -> String {
        self.raw(format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").as_bytes())
    }

    fn refused(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (status, body) = self.ask(method, path, body);
        assert!(body["detail"].as_str().is_some_and(|d| d.len() > 10), "{body}");
        (status, body["code"].as_str().unwrap().to_string())
    }
}

fn problem(status: u16, code: &str) -> (u16, String) {
    (status, code.to_string())
}

#[test]
fn pages_are_merged_over_shards_in_the_order_of_names() {
    let broker = start(HttpLimits::default());
    let (mut after, mut names, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let (status, page) = broker.ask("GET", &format!("/api/v1/queues?limit=3&after={after}"), "");
        assert_eq!(status, 200);
        names.extend(page["queues"].as_array().unwrap().iter().map(|q| q["name"].as_str().unwrap().to_string()));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = next.to_string(),
            None => break,
        }
    }
    assert_eq!(names, (0..10).map(|n| format!("q{n}")).collect::<Vec<_>>());
    assert_eq!(pages, 4);
    assert_eq!(broker.ask("GET", "/api/v1/queues", "").1["queues"].as_array().unwrap().len(), 10);
    broker.server.stop();
}

#[test]
fn status_sums_shards() {
    let broker = start(HttpLimits::default());
    let (_, status) = broker.ask("GET", "/api/v1/status", "");
    assert_eq!(status["connections"], 2);
    assert_eq!(status["queues"], 10);
    assert_eq!(status["state"], "ready");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    broker.node.set_broker_id("b-1".into());
    broker.node.enter(Phase::Stopping);
    let (_, status) = broker.ask("GET", "/api/v1/status", "");
    assert_eq!((&status["state"], &status["broker_id"]), (&json!("stopping"), &json!("b-1")));
    broker.server.stop();
}

#[test]
fn queues_are_created_shown_and_deleted() {
    let broker = start(HttpLimits::default());
    let body = r#"{"max_deliveries": 3, "default_durable": false, "dead_letter": "graves", "max_messages": 7, "full": "reject"}"#;
    let (status, queue) = broker.ask("PUT", "/api/v1/queues/new", body);
    assert_eq!(status, 201);
    let settings = json!({
        "max_deliveries": 3, "default_durable": false, "dead_letter": "graves",
        "max_messages": 7, "max_bytes": null, "full": "reject",
    });
    assert_eq!(queue["settings"], settings);
    assert_eq!((&queue["full"], &queue["full_limit"]), (&json!(true), &json!("bytes")));
    assert_eq!(broker.ask("PUT", "/api/v1/queues/new", "").0, 201, "no body = defaults");
    // What a queue reports can be given back.
    assert_eq!(broker.ask("PUT", "/api/v1/queues/new", &queue["settings"].to_string()).0, 201);

    let (status, queue) = broker.ask("GET", "/api/v1/queues/a%2Fb%20%C3%BC", "");
    assert_eq!((status, &queue["name"]), (200, &json!("a/b ü")));
    assert_eq!(queue["id"], json!((u64::MAX - 1).to_string()), "ids are strings");

    assert_eq!(broker.refused("DELETE", "/api/v1/queues/q1", ""), problem(404, "queue-not-found"));
    assert_eq!(broker.ask("DELETE", "/api/v1/queues/q1?force", ""), (200, json!({ "name": "q1", "messages": 7 })));
    let (status, _) = broker.ask("DELETE", "/api/v1/queues/q2?force&reason=moved%20house", "");
    assert_eq!(status, 200, "who and why go to the shard");
    let purged = |query: &str| broker.ask("DELETE", &format!("/api/v1/queues/q1/messages{query}"), "");
    assert_eq!(purged(""), (200, json!({ "name": "q1", "messages": 5 })));
    assert_eq!(purged("?reason=a%20flood&who=ann").1["messages"], 5, "not forced");
    assert_eq!(purged("?force&reason=a%20flood&who=ann").1["messages"], 6);
    assert_eq!(broker.refused("DELETE", "/api/v1/queues/q2/messages", ""), problem(404, "queue-not-found"));
    broker.server.stop();
}

#[test]
fn refusals_are_problem_documents_with_stable_codes() {
    let broker = start(HttpLimits::default());
    let large = format!("{{\"dead_letter\": \"{}\"}}", "x".repeat(70_000));
    for (method, path, body, expected) in [
        ("GET", "/api/v1/queues/none", "", problem(404, "queue-not-found")),
        ("PUT", "/api/v1/queues/there", "{\"max_deliveries\": 1}", problem(409, "queue-differs")),
        ("GET", "/nothing", "", problem(404, "unknown-path")),
        ("GET", "/api/v1/nothing", "", problem(404, "unknown-path")),
        ("GET", "/api/v1/queues/", "", problem(404, "unknown-path")),
        ("DELETE", "/api/v1/status", "", problem(405, "method-not-allowed")),
        ("POST", "/healthz", "", problem(405, "method-not-allowed")),
        ("GET", "/api/v1/queues?limit=0", "", problem(400, "invalid-parameter")),
        ("GET", "/api/v1/queues?limit=1001", "", problem(400, "invalid-parameter")),
        ("GET", "/api/v1/queues?limit=x", "", problem(400, "invalid-parameter")),
        ("GET", "/api/v1/queues?prefix=a", "", problem(400, "unknown-parameter")),
        ("GET", "/api/v1/queues/a?x=1", "", problem(400, "unknown-parameter")),
        ("DELETE", "/api/v1/queues/a?force=yes", "", problem(400, "invalid-parameter")),
        ("GET", "/api/v1/queues/%FF", "", problem(400, "invalid-name")),
        ("PUT", "/api/v1/queues/a", "[1]", problem(400, "invalid-body")),
        ("PUT", "/api/v1/queues/a", "{\"max_deliveries\": -1}", problem(400, "invalid-argument")),
        ("PUT", "/api/v1/queues/a", "{\"max_deliveries\": 4294967296}", problem(400, "invalid-argument")),
        ("PUT", "/api/v1/queues/a", "{\"colour\": 1}", problem(400, "unknown-argument")),
        ("PUT", "/api/v1/queues/a", "{\"max_messages\": -1}", problem(400, "invalid-argument")),
        ("PUT", "/api/v1/queues/a", "{\"full\": \"drop\"}", problem(400, "invalid-argument")),
        ("PUT", "/api/v1/queues/a", "{\"ttl_ms\": 1}", problem(501, "not-implemented")),
        ("PUT", "/api/v1/queues/a", &large, problem(413, "body-too-large")),
        ("GET", "/api/v1/queues/a/messages", "", problem(501, "not-implemented")),
        ("DELETE", "/api/v1/queues/a/messages?force=yes", "", problem(400, "invalid-parameter")),
        ("POST", "/api/v1/queues/a/messages", "", problem(405, "method-not-allowed")),
        ("POST", "/api/v1/queues/a/messages/move", "", problem(501, "not-implemented")),
        ("GET", "/api/v1/connections", "", problem(501, "not-implemented")),
        ("DELETE", "/api/v1/connections/7", "", problem(501, "not-implemented")),
        ("POST", "/api/v1/config/reload", "", problem(501, "not-implemented")),
    ] {
        assert_eq!(broker.refused(method, path, body), expected, "{method} {path}");
    }
    broker.server.stop();
}

#[test]
fn health_is_told_in_every_phase() {
    let broker = start(HttpLimits::default());
    broker.node.enter(Phase::Recovering);
    assert_eq!(broker.ask("GET", "/healthz", "").0, 200);
    assert_eq!(broker.refused("GET", "/readyz", ""), problem(503, "recovering"));
    assert_eq!(broker.refused("GET", "/api/v1/queues", ""), problem(503, "recovering"));
    assert_eq!(broker.ask("GET", "/api/v1/status", "").1["state"], "recovering");
    broker.node.enter(Phase::Ready);
    assert_eq!(broker.ask("GET", "/readyz", "").0, 200);
    broker.node.enter(Phase::Stopping);
    assert_eq!(broker.refused("GET", "/readyz", ""), problem(503, "stopping"));
    assert_eq!(broker.ask("GET", "/healthz", "").0, 200);
    broker.node.enter(Phase::Failed("fsync of 3.log: EIO".into()));
    let (status, body) = broker.ask("GET", "/healthz", "");
    assert_eq!((status, &body["code"]), (503, &json!("store-failed")));
    assert!(body["detail"].as_str().unwrap().contains("fsync of 3.log: EIO"));
    broker.server.stop();
}

#[test]
fn a_foreign_host_name_is_not_answered() {
    let broker = start(HttpLimits::default());
    let with = |host: &str| {
        broker.raw(format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())
    };
    for host in ["127.0.0.1:8672", "localhost", "LocalHost:1", "[::1]:8672", "packhorse.localhost:1"] {
        assert!(with(host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    for host in ["evil.example", "evil.example:8672", "localhost.evil.example"] {
        assert!(with(host).starts_with("HTTP/1.1 421 "), "{host}");
    }
    broker.server.stop();
}

#[test]
fn slow_and_greedy_requests_are_ended() {
    let limits =
        HttpLimits { head: Duration::from_millis(100), request: Duration::from_millis(100), ..HttpLimits::default() };
    let broker = start(limits);
    let slow_head = broker.raw(b"GET /healthz HTT");
    assert!(!slow_head.starts_with("HTTP/1.1 200"), "{slow_head}");
    let slow_body = broker.raw(b"PUT /api/v1/queues/a HTTP/1.1\r\nhost: [::1]\r\ncontent-length: 5\r\n\r\n{");
    assert!(slow_body.starts_with("HTTP/1.1 408 "), "{slow_body}");
    let large_head = broker.raw(format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(200_000)).as_bytes());
    assert!(large_head.starts_with("HTTP/1.1 431 "), "{large_head}");
    assert!(broker.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").starts_with("HTTP/1.1 400 "), "TLS");

    broker.server.stop();
}

#[test]
fn connections_above_the_cap_are_sent_away_until_there_is_room() {
    let broker = start(HttpLimits { connections: 4, ..HttpLimits::default() });
    let idle: Vec<_> = (0..4).map(|_| TcpStream::connect(broker.address).unwrap()).collect();
    // Accepted after the four, and told before it says anything.
    assert!(broker.raw(b"").starts_with("HTTP/1.1 503 "));
    drop(idle);
    let ask = || broker.raw(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!((0..1000).any(|_| ask().starts_with("HTTP/1.1 200 ")), "room again");
    broker.server.stop();
}

#[test]
fn stopping_ends_idle_connections() {
    let broker = start(HttpLimits::default());
    let mut idle = TcpStream::connect(broker.address).unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    broker.server.stop();
    idle.read_to_end(&mut Vec::new()).unwrap();
    assert!(TcpStream::connect(broker.address).is_err());
}

/// Names of an object schema's properties, those of `allOf` included.
fn properties(document: &Value, schema: &Value) -> BTreeSet<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let found = document.pointer(reference.strip_prefix('#').unwrap()).unwrap_or_else(|| panic!("{reference}"));
        return properties(document, found);
    }
    let mut names: BTreeSet<String> =
        schema["properties"].as_object().map(|p| p.keys().cloned().collect()).unwrap_or_default();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        names.extend(properties(document, part));
    }
    names
}

#[test]
fn the_document_describes_what_is_served() {
    let broker = start(HttpLimits::default());
    let (status, document) = broker.ask("GET", "/api/v1/openapi.json", "");
    assert_eq!((status, &document), (200, &packhorse_http::openapi()));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in ["get", "put", "delete", "post"] {
            let operation = &operations[method];
            let url = match method {
                "delete" if path.ends_with("{name}") => path.replace("{name}", "q1?force"),
                "delete" => path.replace("{name}", "q1"),
                _ => path.replace("{name}", "a%2Fb%20%C3%BC").replace("{xid}", transactions::XID),
            };
            if path == "/metrics" {
                let (kind, asked_for) = ("content-type: text/plain; version=0.0.4", !operation.is_null());
                assert_eq!(broker.text(&method.to_uppercase(), path).contains(kind), asked_for, "{method} {path}");
                asked += usize::from(asked_for);
                continue;
            }
            let body = if method == "post" && path.contains("/transactions/") { r#"{"reason": "r"}"# } else { "" };
            let (status, body) = broker.ask(&method.to_uppercase(), &url, body);
            if operation.is_null() {
                assert!([405, 501].contains(&status), "{method} {path} is served and not described");
                continue;
            }
            let schema = &operation["responses"][status.to_string()]["content"]["application/json"]["schema"];
            assert!(schema.is_object(), "{method} {path} gives {status}, which is not described");
            let described = properties(&document, schema);
            if !described.is_empty() {
                let given: BTreeSet<String> = body.as_object().unwrap().keys().cloned().collect();
                assert_eq!(given, described, "{method} {path}");
            }
            asked += 1;
        }
    }
    assert_eq!(asked, 16, "operations");
    let (_, body) = broker.ask("GET", "/nothing", "");
    let given: BTreeSet<String> = body.as_object().unwrap().keys().cloned().collect();
    assert_eq!(given, properties(&document, &document["components"]["schemas"]["Problem"]));
    let (_, status) = broker.ask("GET", "/api/v1/status", "");
    for (part, schema) in [("store", "Store"), ("totals", "Counts"), ("transactions", "TransactionFigures")] {
        let given: BTreeSet<String> = status[part].as_object().unwrap().keys().cloned().collect();
        assert_eq!(given, properties(&document, &document["components"]["schemas"][schema]), "{part}");
    }
    broker.server.stop();
}
