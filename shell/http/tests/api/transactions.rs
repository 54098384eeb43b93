//! Transactions over HTTP, with shards that are played by a function.

use super::{problem, start};
use packhorse_broker::{
    Act, Audit, Command, Part, Refusal, RefusalKind, Reply, TxAct, TxContents, TxLost, TxMessage, TxPage, TxPart,
    TxReport, TxState, View,
};
use packhorse_http::HttpLimits;
use packhorse_model::{QueueId, ShardId, TxnId, Xid};
use serde_json::{Value, json};

/// The branch that everything can be asked of.
pub(crate) const XID: &str = "7:aa00:01";

fn xid(n: u8) -> Xid {
    Xid::new(7, &[0xaa, n], &[1]).unwrap()
}

fn report(n: u8, state: TxState) -> TxReport {
    let part = |queue: u64, adds, removes| (QueueId(queue), Part { adds, removes, bytes: 10 * adds });
    let parts = [part(4, 3, 2), part(9, 0, 150)];
    TxReport {
        view: View {
            txn: TxnId { run: 3, number: u64::from(n), home: ShardId(0) },
            xid: Some(xid(n)),
            state,
            age_ms: 5_000,
            wall_ms: 1_700_000_000_000,
            client: "till-7".into(),
            connections: Vec::new(),
            cause: None,
            parts: parts.to_vec(),
            lost: Vec::new(),
            volatile: 1,
            decided: None,
        },
        parts: parts
            .into_iter()
            .map(|(queue, part)| TxPart { queue, name: (queue.0 == 4).then(|| "orders".to_string()), part })
            .collect(),
        lost: vec![TxLost {
            queue: QueueId(2),
            name: None,
            by: packhorse_broker::By { who: "ann".into(), reason: "gone".into() },
            wall_ms: 6,
        }],
    }
}

/// Ten branches in shard 0, every second one in doubt; a local transaction in each shard.
pub(crate) fn play(shard: ShardId, command: Command) -> Reply {
    let refused = |kind, code| Reply::Refused(Refusal { kind, code, detail: "in some words".into() });
    match command {
        Command::TxLocals { limit } => {
            let local = |n: u64| {
                let mut report = report(0, TxState::Associated);
                report.view.xid = None;
                report.view.txn = TxnId { run: 3, number: n, home: shard };
                report
            };
            Reply::Transactions(TxPage { transactions: (1..=2).map(local).take(limit).collect(), next: None })
        }
        command if shard != ShardId(0) => panic!("{command:?} is for shard 0"),
        Command::TxList { after, states, limit } => {
            let state = |n| if n % 2 == 0 { TxState::Prepared } else { TxState::HeuristicMixed };
            let all = (0..10).filter(|n| after.as_ref().is_none_or(|after| xid(*n) > *after));
            let mut wanted: Vec<u8> = all.filter(|n| states.is_empty() || states.contains(&state(*n))).collect();
            let more = wanted.len() > limit;
            wanted.truncate(limit);
            let next = wanted.last().filter(|_| more).map(|n| xid(*n));
            Reply::Transactions(TxPage { transactions: wanted.iter().map(|n| report(*n, state(*n))).collect(), next })
        }
        Command::TxShow { xid: asked } if asked == xid(0) => Reply::Transaction(Box::new(report(0, TxState::Prepared))),
        Command::TxShow { xid: asked } if asked == xid(1) => {
            Reply::Transaction(Box::new(report(1, TxState::HeuristicCommitted)))
        }
        Command::TxShow { .. } => refused(RefusalKind::NotFound, "branch-not-found"),
        Command::TxPart { txn, queue, from, limit } => {
            assert_eq!(txn.number, 0, "nothing is asked of what is decided");
            let (adds, removes) = if queue == QueueId(4) { (3, 2) } else { (0, 150) };
            let message = |n: u64| TxMessage {
                removes: (n >= adds).then_some(1000 + n),
                length: 10 + n,
                priority: 4,
                persistent: n != 1,
            };
            let messages: Vec<_> = (from..adds + removes).take(limit).map(message).collect();
            let more = from + (messages.len() as u64) < adds + removes;
            Reply::TxContents(TxContents { messages, more })
        }
        Command::TxDecide { xid: asked, .. } if asked != xid(0) => {
            refused(RefusalKind::Conflict, "branch-not-in-doubt")
        }
        Command::TxDecide { act: TxAct::Forget, by, .. } => {
            assert_eq!(by.who, "local operator");
            Reply::Decided { branch: None }
        }
        Command::TxDecide { xid, act, by } => {
            let act = if act == TxAct::Commit { Act::Commit } else { Act::Rollback };
            let state = if act == Act::Commit { TxState::HeuristicCommitted } else { TxState::HeuristicRolledBack };
            let mut report = report(0, state);
            report.view.decided = Some(Audit { xid, act, who: by.who, reason: by.reason, wall_ms: 9 });
            Reply::Decided { branch: Some(Box::new(report)) }
        }
        other => panic!("nobody asks for {other:?} yet"),
    }
}

fn xids(page: &Value) -> Vec<String> {
    page["transactions"].as_array().unwrap().iter().map(|t| t["xid"].as_str().unwrap().to_string()).collect()
}

#[test]
fn branches_are_listed_in_pages_and_by_state() {
    let broker = start(HttpLimits::default());
    let (mut after, mut found) = (String::new(), Vec::new());
    loop {
        let (status, page) = broker.ask("GET", &format!("/api/v1/transactions?limit=4&after={after}"), "");
        assert_eq!(status, 200);
        found.extend(xids(&page));
        assert_eq!(page["more"], !page["next"].is_null());
        match page["next"].as_str() {
            Some(next) => after = next.into(),
            None => break,
        }
    }
    assert_eq!(found, (0..10).map(|n| xid(n).to_string()).collect::<Vec<_>>());

    let (_, page) = broker.ask("GET", "/api/v1/transactions?state=in-doubt", "");
    assert_eq!(xids(&page).len(), 5);
    let first = &page["transactions"][0];
    assert_eq!((&first["xid"], &first["xid_base64"]), (&json!(XID), &json!(xid(0).base64())));
    assert_eq!(first["xid_sql"], "X'aa00',X'01',7");
    assert_eq!(
        (&first["state"], &first["in_doubt"], &first["kind"]),
        (&json!("prepared"), &json!(true), &json!("branch"))
    );
    assert_eq!((&first["adds"], &first["removes"], &first["bytes"]), (&json!(3), &json!(152), &json!(30)));
    assert_eq!((&first["age_ms"], &first["client"]), (&json!(5_000), &json!("till-7")));
    assert_eq!(first["queues"][0]["queue"], "orders");
    assert_eq!(first["queues"][1], json!({ "queue": null, "queue_id": "9", "adds": 0, "removes": 150, "bytes": 0 }));
    assert_eq!(first["lost"][0]["reason"], "gone");

    let (_, page) = broker.ask("GET", "/api/v1/transactions?state=heuristic,prepared", "");
    assert_eq!(xids(&page).len(), 10);
    // Any notation says where the page begins.
    let after = "X%27aa08%27,X%2701%27,7";
    let (_, page) = broker.ask("GET", &format!("/api/v1/transactions?after={after}"), "");
    assert_eq!(xids(&page), [xid(9).to_string()]);

    let (_, page) = broker.ask("GET", "/api/v1/transactions?kind=local&limit=3", "");
    let locals = page["transactions"].as_array().unwrap();
    assert_eq!((locals.len(), &page["more"], &page["next"]), (3, &json!(true), &Value::Null));
    assert_eq!(
        (&locals[0]["kind"], &locals[0]["xid"], &locals[0]["in_doubt"]),
        (&json!("local"), &Value::Null, &json!(false))
    );
    broker.server.stop();
}

#[test]
fn what_a_branch_holds_is_shown_by_queue_in_pages() {
    let broker = start(HttpLimits::default());
    let (mut after, mut orders, mut other, mut pages) = (String::new(), Vec::new(), 0, 0);
    loop {
        let (status, shown) = broker.ask("GET", &format!("/api/v1/transactions/{XID}?limit=4&after={after}"), "");
        assert_eq!((status, &shown["xid"]), (200, &json!(XID)));
        for contents in shown["contents"].as_array().unwrap() {
            let messages = contents["messages"].as_array().unwrap();
            match contents["queue"].as_str() {
                Some(name) => {
                    assert_eq!((name, &contents["queue_id"]), ("orders", &json!("4")));
                    orders.extend(messages.clone());
                }
                None => other += messages.len(),
            }
        }
        pages += 1;
        match shown["next"].as_str() {
            Some(next) => after = next.into(),
            None => break,
        }
    }
    assert_eq!((orders.len(), other, pages), (5, 150, 39));
    let add = json!({ "does": "add", "sequence": null, "bytes": 11, "priority": 4, "persistent": false });
    assert_eq!(orders[1], add);
    assert_eq!((&orders[3]["does"], &orders[3]["sequence"]), (&json!("remove"), &json!("1003")));

    let (_, shown) = broker.ask("GET", &format!("/api/v1/transactions/{XID}?queue=orders"), "");
    assert_eq!((shown["contents"].as_array().unwrap().len(), &shown["next"]), (1, &Value::Null));
    // Of what is decided the figures are left.
    let (_, shown) = broker.ask("GET", "/api/v1/transactions/7:aa01:01", "");
    assert_eq!((&shown["contents"], &shown["adds"]), (&json!([]), &json!(3)));
    broker.server.stop();
}

#[test]
fn a_decision_says_who_and_why() {
    let broker = start(HttpLimits::default());
    // In each notation.
    let notations = [XID.to_string(), xid(0).base64().replace('=', "%3D"), "X%27aa00%27,X%2701%27,7".to_string()];
    for name in &notations {
        let path = format!("/api/v1/transactions/{name}/commit");
        let (status, answer) = broker.ask("POST", &path, r#"{"reason": " the bank said so ", "who": "ann"}"#);
        assert_eq!((status, &answer["xid"]), (200, &json!(XID)), "{name}");
        let decision = json!({ "act": "commit", "who": "ann", "reason": "the bank said so", "at_unix_ms": 9 });
        assert_eq!(answer["transaction"]["decision"], decision);
        assert_eq!(answer["transaction"]["state"], "heuristically-committed");
    }
    let path = format!("/api/v1/transactions/{XID}/rollback");
    let (_, answer) = broker.ask("POST", &path, r#"{"reason": "lost"}"#);
    assert_eq!(answer["transaction"]["decision"]["who"], "local operator");
    let (status, answer) = broker.ask("POST", &format!("/api/v1/transactions/{XID}/forget"), "");
    assert_eq!((status, answer), (200, json!({ "xid": XID, "transaction": null })));

    let long = format!("{{\"reason\": \"{}\"}}", "x".repeat(1025));
    for (what, body, expected) in [
        ("commit", "", problem(400, "reason-missing")),
        ("commit", "{}", problem(400, "reason-missing")),
        ("rollback", r#"{"who": "ann"}"#, problem(400, "reason-missing")),
        ("rollback", r#"{"reason": "  "}"#, problem(400, "reason-missing")),
        ("rollback", r#"{"reason": 7}"#, problem(400, "invalid-argument")),
        ("rollback", &long, problem(400, "invalid-argument")),
        ("rollback", r#"{"reason": "a\nb"}"#, problem(400, "invalid-argument")),
        ("forget", r#"{"why": "x"}"#, problem(400, "unknown-argument")),
        ("forget", "[]", problem(400, "invalid-body")),
        ("undo", "{}", problem(404, "unknown-path")),
    ] {
        let path = format!("/api/v1/transactions/{XID}/{what}");
        assert_eq!(broker.refused("POST", &path, body), expected, "{what} {body}");
    }
    let reason = r#"{"reason": "r"}"#;
    // As a form, or a script of a foreign page, sends it: without asking first.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let path = format!("/api/v1/transactions/{XID}/forget");
        let head = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: {kind}\r\n");
        let answer = broker.raw(format!("{head}content-length: 0\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 415 ") && answer.contains("not-json"), "{answer}");
    }
    for (method, path, body, expected) in [
        ("POST", "7:aa01:01/commit", reason, problem(409, "branch-not-in-doubt")),
        ("POST", "7:aa00:01/commit?force", reason, problem(400, "unknown-parameter")),
        ("POST", "7:zz:01/commit", reason, problem(400, "invalid-xid")),
        ("GET", "7:ff:01", "", problem(404, "branch-not-found")),
        ("GET", "nonsense", "", problem(400, "invalid-xid")),
        ("GET", "7:aa00:01?after=x", "", problem(400, "invalid-parameter")),
        ("DELETE", "7:aa00:01", "", problem(405, "method-not-allowed")),
        ("GET", "?state=done", "", problem(400, "invalid-parameter")),
        ("GET", "?state=none", "", problem(400, "invalid-parameter")),
        ("GET", "?after=x", "", problem(400, "invalid-xid")),
        ("GET", "?kind=xa", "", problem(400, "invalid-parameter")),
        ("GET", "?kind=local&state=prepared", "", problem(400, "invalid-parameter")),
    ] {
        let slash = if path.starts_with('?') { "" } else { "/" };
        let path = format!("/api/v1/transactions{slash}{path}");
        assert_eq!(broker.refused(method, &path, body), expected, "{method} {path}");
    }
    broker.server.stop();
}
