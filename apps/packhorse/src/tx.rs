//! Verbs about transactions: what they ask over HTTP, and the screens they show. No rule about branches is here.

mod prepare;

use crate::End;
use crate::cli::{Decision, Online, Tx};
use crate::online::{ask, escape, get, operator};
use crate::table::Table;
use hyper::Method;
use serde_json::{Value, json};

pub(crate) fn run(verb: &Tx) -> End {
    match verb {
        Tx::List { state, local, limit, after, online } => {
            list(state.as_deref(), *local, *limit, after.as_deref(), online)
        }
        Tx::Show { xid, queue, limit, after, online } => show(xid, queue.as_deref(), *limit, after.as_deref(), online),
        Tx::Prepare(args) => prepare::run(args),
        Tx::Commit(decision) => decide("commit", decision),
        Tx::Rollback(decision) => decide("rollback", decision),
        Tx::Forget { xid, who, online } => {
            let mut body = serde_json::Map::new();
            body.extend(who.clone().or_else(operator).map(|who| ("who".to_string(), json!(who))));
            ask(online, Method::POST, &path(xid, "/forget"), Value::Object(body).to_string(), |_, answer| {
                println!("branch {} forgotten", text(&answer["xid"]));
            })
        }
        Tx::NotYet(_) => End::Usage("there is no such verb; see `packhorse tx --help`".into()),
    }
}

fn path(xid: &str, rest: &str) -> String {
    format!("/api/v1/transactions/{}{rest}", escape(xid))
}

/// A query of those of these that are given.
fn query<const N: usize>(pairs: [(&str, Option<String>); N]) -> String {
    let given = pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", escape(&value?))));
    let joined = given.collect::<Vec<_>>().join("&");
    if joined.is_empty() { joined } else { format!("?{joined}") }
}

fn list(state: Option<&str>, local: bool, limit: Option<u32>, after: Option<&str>, online: &Online) -> End {
    let name = if local { "TRANSACTION" } else { "XID" };
    let mut table = Table::new(&[name, "STATE", "AGE", "CLIENT", "ADDS", "REMOVES", "DECIDED BY"]);
    let mut after = after.map(str::to_string);
    loop {
        let query = query([
            ("kind", local.then(|| "local".to_string())),
            ("state", state.map(str::to_string)),
            ("limit", limit.map(|n| n.to_string())),
            ("after", after.clone()),
        ]);
        let (mut next, mut more) = (None, false);
        let end = get(online, &format!("/api/v1/transactions{query}"), |page| {
            for tx in page["transactions"].as_array().into_iter().flatten() {
                table.row([
                    text(if local { &tx["id"] } else { &tx["xid"] }),
                    text(&tx["state"]),
                    age(tx["age_ms"].as_u64().unwrap_or(0)),
                    text(&tx["client"]),
                    tx["adds"].to_string(),
                    tx["removes"].to_string(),
                    if tx["decision"].is_null() { "-".into() } else { text(&tx["decision"]["who"]) },
                ]);
            }
            next = page["next"].as_str().map(str::to_string);
            more = page["more"] == true;
        });
        match end {
            // One page is what HTTP says; a person wants all.
            End::Done if !online.json && limit.is_none() && next.is_some() => after = next,
            End::Done => {
                if !online.json {
                    table.print();
                    match next {
                        Some(next) => println!("there are more: packhorse tx list --after {}", quoted(&next)),
                        None if more => println!("there are more: give a higher --limit"),
                        None => {}
                    }
                }
                return End::Done;
            }
            other => return other,
        }
    }
}

fn show(xid: &str, queue: Option<&str>, limit: Option<u32>, after: Option<&str>, online: &Online) -> End {
    let given = query([
        ("queue", queue.map(str::to_string)),
        ("limit", limit.map(|n| n.to_string())),
        ("after", after.map(str::to_string)),
    ]);
    get(online, &path(xid, &given), |tx| {
        facts(tx).print();
        let mut table = Table::new(&["QUEUE", "DOES", "SEQUENCE", "BYTES", "PRIORITY", "PERSISTENT"]);
        for contents in tx["contents"].as_array().into_iter().flatten() {
            for message in contents["messages"].as_array().into_iter().flatten() {
                table.row([
                    place(contents),
                    text(&message["does"]),
                    if message["sequence"].is_null() { "-".into() } else { text(&message["sequence"]) },
                    message["bytes"].to_string(),
                    message["priority"].to_string(),
                    if message["persistent"] == true { "yes".into() } else { "no".into() },
                ]);
            }
        }
        if !table.is_empty() {
            println!();
            table.print();
        }
        if let Some(next) = tx["next"].as_str() {
            let queue = queue.map_or(String::new(), |name| format!(" --queue {}", quoted(name)));
            println!("there are more: packhorse tx show {}{queue} --after {next}", quoted(&text(&tx["xid"])));
        }
    })
}

fn facts(tx: &Value) -> Table {
    let mut table = Table::new(&["BRANCH", &text(&tx["xid"])]);
    let mut row = |name: &str, value: String| table.row([name.to_string(), value]);
    row("as JDBC writes it", text(&tx["xid_base64"]));
    row("as SQL writes it", text(&tx["xid_sql"]));
    row("state", text(&tx["state"]));
    row("age", age(tx["age_ms"].as_u64().unwrap_or(0)));
    row("client", text(&tx["client"]));
    if !tx["cause"].is_null() {
        row("can only be rolled back", text(&tx["cause"]));
    }
    for part in tx["queues"].as_array().into_iter().flatten() {
        let what = format!("adds {} ({} bytes), removes {}", part["adds"], part["bytes"], part["removes"]);
        row(&format!("queue {}", place(part)), what);
    }
    if tx["volatile"].as_u64().unwrap_or(0) > 0 {
        row("not persistent", format!("{} of these: a crash takes them, or has taken them", tx["volatile"]));
    }
    for lost in tx["lost"].as_array().into_iter().flatten() {
        let what = format!("rolled back alone by {}: {}", text(&lost["who"]), text(&lost["reason"]));
        row(&format!("queue {}", place(lost)), what);
    }
    let decision = &tx["decision"];
    if !decision.is_null() {
        row(
            "decided",
            format!("{} by {}: {}", text(&decision["act"]), text(&decision["who"]), text(&decision["reason"])),
        );
        row("decided at", utc(decision["at_unix_ms"].as_i64().unwrap_or(0)));
    }
    table
}

fn decide(what: &str, decision: &Decision) -> End {
    let mut body = json!({ "reason": decision.reason });
    if let Some(who) = decision.who.clone().or_else(operator) {
        body["who"] = json!(who);
    }
    let path = path(&decision.xid, &format!("/{what}"));
    ask(&decision.online, Method::POST, &path, body.to_string(), |_, answer| {
        let (xid, state) = (text(&answer["xid"]), text(&answer["transaction"]["state"]));
        println!(
            "branch {xid} is {state}, durably; it stays listed until its transaction manager, or you, forgets it: packhorse tx forget {}",
            quoted(&xid)
        );
    })
}

/// A queue's name; of one that is gone its id.
fn place(part: &Value) -> String {
    part["queue"].as_str().map_or_else(|| format!("id {} (gone)", text(&part["queue_id"])), str::to_string)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:/=+".contains(c);
    if word.chars().all(plain) { word.to_string() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// A time span in its two largest units.
fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A wall clock, as ISO 8601 writes it.
fn utc(unix_ms: i64) -> String {
    let (days, ms) = (unix_ms.div_euclid(86_400_000), unix_ms.rem_euclid(86_400_000));
    // Years begin in March here, so that a leap day is the last one of its year; an era has 400 of them.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (400 * era + year, month + 3) } else { (400 * era + year + 1, month - 9) };
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_people_read_them() {
        let cases =
            [(0, "0 s"), (59_999, "59 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min"), (90_000_000, "1 d 1 h")];
        for (ms, said) in cases {
            assert_eq!(age(ms), said);
        }
        for (ms, said) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_000, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (-1_000, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(ms), said, "{ms}");
        }
    }

    #[test]
    fn what_is_to_be_typed_again_is_quoted() {
        assert_eq!(quoted("7:aa00:01"), "7:aa00:01");
        assert_eq!(quoted("X'aa',X'',7"), "'X'\\''aa'\\'',X'\\'''\\'',7'");
    }
}
