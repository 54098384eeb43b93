//! Verbs that speak HTTP to a running broker, and the screens they show.

use crate::End;
use crate::cli::{Online, QueueSettings};
use crate::table::Table;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::Duration;

/// A request may take so long; the broker answers or refuses sooner.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn status(online: &Online) -> End {
    get(online, "/api/v1/status", |status| {
        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_string);
        let mut table = Table::new(&["STATUS", ""]);
        for name in [
            "version",
            "name",
            "broker_id",
            "state",
            "uptime_ms",
            "shards",
            "connections",
            "sessions",
            "links",
            "queues",
        ] {
            table.row([name.to_string(), text(&status[name])]);
        }
        for name in
            ["ready", "acquired", "depth", "bytes", "enqueued_total", "acknowledged_total", "dead_lettered_total"]
        {
            table.row([name.to_string(), text(&status["totals"][name])]);
        }
        table.row(["memory_bytes".into(), text(&status["memory_bytes"])]);
        for (name, value) in status["transactions"].as_object().into_iter().flatten() {
            table.row([format!("transactions.{name}"), text(value)]);
        }
        for (name, value) in status["store"].as_object().into_iter().flatten() {
            table.row([format!("store.{name}"), text(value)]);
        }
        for alarm in status["alarms"].as_array().into_iter().flatten() {
            table.row([format!("ALARM {}", text(&alarm["code"])), text(&alarm["text"])]);
        }
        table.print();
    })
}

pub(crate) fn queue_list(limit: Option<u32>, after: Option<&str>, online: &Online) -> End {
    let mut table =
        Table::new(&["QUEUE", "READY", "ACQUIRED", "DEPTH", "BYTES", "CONSUMERS", "ENQUEUED", "ACKNOWLEDGED"]);
    let mut after = after.map(str::to_string);
    loop {
        let limit_text = limit.map_or(String::new(), |n| format!("&limit={n}"));
        let after_text = after.as_deref().map_or(String::new(), |a| format!("&after={}", escape(a)));
        let query = format!("{limit_text}{after_text}");
        let path = format!("/api/v1/queues{}", query.replacen('&', "?", 1));
        let mut next = None;
        let end = get(online, &path, |page| {
            for queue in page["queues"].as_array().into_iter().flatten() {
                let number = |name: &str| queue[name].to_string();
                table.row([
                    queue["name"].as_str().unwrap_or("?").to_string(),
                    number("ready"),
                    number("acquired"),
                    number("depth"),
                    number("bytes"),
                    number("consumers"),
                    number("enqueued_total"),
                    number("acknowledged_total"),
                ]);
            }
            next = page["next"].as_str().map(str::to_string);
        });
        match end {
            // One page is what HTTP says; a person wants all.
            End::Done if !online.json && limit.is_none() && next.is_some() => after = next,
            End::Done => {
                if !online.json {
                    table.print();
                }
                return End::Done;
            }
            other => return other,
        }
    }
}

pub(crate) fn queue_show(name: &str, online: &Online) -> End {
    get(online, &queue_path(name), show)
}

fn show(queue: &Value) {
    let mut table = Table::new(&["QUEUE", queue["name"].as_str().unwrap_or("?")]);
    for (name, value) in queue.as_object().into_iter().flatten() {
        match value {
            Value::Object(settings) => {
                for (key, value) in settings {
                    table.row([format!("{name}.{key}"), value.to_string()]);
                }
            }
            _ if name == "name" => {}
            _ => table.row([name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_string)]),
        }
    }
    table.print();
}

pub(crate) fn queue_create(name: &str, settings: &QueueSettings, online: &Online) -> End {
    let mut body = serde_json::Map::new();
    let mut set = |key: &str, value: Option<Value>| value.map(|v| body.insert(key.to_string(), v));
    set("max_deliveries", settings.max_deliveries.map(|n| json!(n)));
    set("dead_letter", settings.dead_letter.as_ref().map(|n| json!(n)));
    set("default_durable", settings.default_durable.map(|b| json!(b)));
    set("max_messages", settings.max_messages.map(|n| json!(n)));
    set("max_bytes", settings.max_bytes.map(|n| json!(n)));
    set("full", settings.full.as_ref().map(|word| json!(word)));
    let body = Value::Object(body).to_string();
    ask(online, Method::PUT, &queue_path(name), body, |status, _| {
        println!("queue {name} {}", if status == 201 { "created" } else { "was there with these settings" });
    })
}

pub(crate) fn queue_delete(name: &str, force: bool, reason: Option<&str>, who: Option<String>, online: &Online) -> End {
    let path = queue_path(name) + &forced(force, reason, who);
    ask(online, Method::DELETE, &path, String::new(), |_, answer| {
        println!("queue {name} deleted with {} messages", answer["messages"]);
    })
}

pub(crate) fn queue_purge(name: &str, force: bool, reason: Option<&str>, who: Option<String>, online: &Online) -> End {
    let path = queue_path(name) + "/messages" + &forced(force, reason, who);
    ask(online, Method::DELETE, &path, String::new(), |_, answer| {
        println!("{} messages of queue {name} removed", answer["messages"]);
    })
}

/// A query: whether it is forced, why, and by whom.
fn forced(force: bool, reason: Option<&str>, who: Option<String>) -> String {
    let mut query = String::from(if force { "?force=true" } else { "" });
    if let Some(reason) = reason {
        query += &format!("&reason={}", escape(reason));
        if let Some(who) = who.or_else(operator) {
            query += &format!("&who={}", escape(&who));
        }
    }
    query
}

/// Who runs this, as far as the environment says it.
pub(crate) fn operator() -> Option<String> {
    ["PACKHORSE_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|who| !who.is_empty()))
}

fn queue_path(name: &str) -> String {
    format!("/api/v1/queues/{}", escape(name))
}

/// Percent-encodes everything but what is unreserved in paths and queries.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

pub(crate) fn get(online: &Online, path: &str, screen: impl FnOnce(&Value)) -> End {
    ask(online, Method::GET, path, String::new(), |_, answer| screen(answer))
}

/// Asks, prints, and says how it went. A screen is shown only of what was done.
pub(crate) fn ask(online: &Online, method: Method, path: &str, body: String, screen: impl FnOnce(u16, &Value)) -> End {
    let (status, bytes) = match exchange(&online.url, method, path, body) {
        Ok(answer) => answer,
        Err(end) => return end,
    };
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let done = (200..300).contains(&status);
    if online.json {
        use std::io::Write;
        let mut out = std::io::stdout().lock();
        if let Err(e) = out.write_all(&bytes).and_then(|()| out.flush()) {
            return End::Refused(format!("cannot write to standard output: {e}"));
        }
    }
    if !done {
        let detail = answer["detail"].as_str().map_or_else(|| format!("HTTP status {status}"), str::to_string);
        return End::Refused(detail);
    }
    if !online.json {
        screen(status, &answer);
    }
    End::Done
}

fn exchange(url: &str, method: Method, path: &str, body: String) -> Result<(u16, Vec<u8>), End> {
    let authority = match url.split_once("://") {
        Some(("http", rest)) => rest.trim_end_matches('/'),
        Some(("https", _)) => return Err(End::Usage(format!("{url}: TLS is not implemented yet; use http://"))),
        _ => return Err(End::Usage(format!("{url}: must be http://HOST:PORT"))),
    };
    if authority.is_empty() || authority.contains('/') {
        return Err(End::Usage(format!("{url}: must be http://HOST:PORT")));
    }
    let port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let place = if port { authority.to_string() } else { format!("{authority}:80") };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", authority)
        .header("content-type", "application/json")
        .header("connection", "close")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| End::Usage(format!("{url}: {e}")))?;
    let unreachable = |e: &dyn std::fmt::Display| {
        End::Unreachable(format!(
            "no broker at {url}: {e}; start one with `packhorse serve`, or say where it is with --url"
        ))
    };
    let talk = async {
        let stream = tokio::net::TcpStream::connect(&place).await.map_err(|e| unreachable(&e))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(&e))?;
        // Its errors show in the answer.
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(|e| unreachable(&e))?;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.map_err(|e| unreachable(&e))?.to_bytes();
        Ok((status, bytes.to_vec()))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|e| End::Refused(format!("cannot start: {e}")))?;
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, talk).await.unwrap_or_else(|_| Err(unreachable(&"it does not answer")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_for_paths_and_queries() {
        assert_eq!(queue_path("a/b ü&c=%"), "/api/v1/queues/a%2Fb%20%C3%BC%26c%3D%25");
        assert_eq!(queue_path("plain-1._~"), "/api/v1/queues/plain-1._~");
    }

    #[test]
    fn urls_that_make_no_sense_are_usage() {
        for url in ["", "127.0.0.1:8672", "https://x", "http://", "http://a/b", "ftp://a"] {
            assert!(matches!(exchange(url, Method::GET, "/", String::new()), Err(End::Usage(_))), "{url}");
        }
    }
}
