//! `/api/v1/transactions`: branches in the words of XA, what they hold, and an operator's decisions on them. What a decision does is
//! the shards' business; here is who decides and why, for no decision goes without.

mod shapes;

use crate::api::{App, Parameters, ready, refusal};
use crate::problem::Problem;
use crate::server::Peer;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use packhorse_broker::{By, Command, Reply, TxAct, TxPage, TxReport, TxState};
use packhorse_model::{QueueId, ShardId, Xid};
pub(crate) use shapes::Figures;
use shapes::{Contents, Decided, Message, Shown, Transaction, TransactionPage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where branches are at home.
const HOME: ShardId = ShardId(0);

/// Transactions, or messages, on a page when the request does not say, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

/// Longest name of who decides, and longest reason, bytes.
const WHO_BYTES: usize = 256;
const REASON_BYTES: usize = 1024;

type Shared = State<Arc<App>>;
type PathXid = Result<Path<String>, PathRejection>;
type Body = Result<Bytes, BytesRejection>;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/transactions", get(list))
        .route("/transactions/{xid}", get(show))
        .route("/transactions/{xid}/{act}", post(decide))
}

async fn list(State(app): Shared, Query(query): Parameters) -> Result<Json<TransactionPage>, Problem> {
    crate::api::parameters(&query, &["limit", "after", "state", "kind"])?;
    let limit = limit(&query)?;
    let local = match query.get("kind").map(String::as_str) {
        None | Some("branch") => false,
        Some("local") => true,
        Some(other) => {
            return Err(Problem::bad("invalid-parameter", format!("kind={other}: must be branch or local")));
        }
    };
    let after = query.get("after").filter(|text| !text.is_empty());
    if local {
        if let Some(name) = ["after", "state"].into_iter().find(|name| query.contains_key(*name)) {
            let detail = format!("{name} is for branches: local transactions come on one page, as they are open now");
            return Err(Problem::bad("invalid-parameter", detail));
        }
        ready(&app)?;
        return locals(&app, limit).await.map(Json);
    }
    let after = after.map(|text| parse(text)).transpose()?;
    let states = query.get("state").map_or(Ok(Vec::new()), |text| states(text))?;
    ready(&app)?;
    match app.gateway.ask(HOME, Command::TxList { after, states, limit }).await? {
        Reply::Transactions(TxPage { transactions, next }) => Ok(Json(TransactionPage {
            transactions: transactions.into_iter().map(Transaction::from).collect(),
            more: next.is_some(),
            next: next.map(|xid| xid.to_string()),
        })),
        other => Err(refusal(other)),
    }
}

/// The first of all shards'.
async fn locals(app: &App, limit: usize) -> Result<TransactionPage, Problem> {
    let mut all: Vec<TxReport> = Vec::new();
    for reply in app.gateway.ask_each(Command::TxLocals { limit: limit + 1 }).await? {
        match reply {
            Reply::Transactions(page) => all.extend(page.transactions),
            other => return Err(refusal(other)),
        }
    }
    all.sort_by_key(|report| report.view.txn);
    let more = all.len() > limit;
    all.truncate(limit);
    Ok(TransactionPage { transactions: all.into_iter().map(Transaction::from).collect(), next: None, more })
}

/// A branch, and one page of what it holds. A place in there is a queue's id and a number in its part.
async fn show(State(app): Shared, path: PathXid, Query(query): Parameters) -> Result<Json<Shown>, Problem> {
    let xid = xid(path)?;
    crate::api::parameters(&query, &["limit", "after", "queue"])?;
    let limit = limit(&query)?;
    let after = query.get("after").filter(|text| !text.is_empty());
    let (first, mut from) = after.map_or(Ok((QueueId(0), 0)), |text| place(text))?;
    ready(&app)?;
    let report = match app.gateway.ask(HOME, Command::TxShow { xid }).await? {
        Reply::Transaction(report) => *report,
        other => return Err(refusal(other)),
    };
    let (mut contents, mut left, mut next) = (Vec::new(), limit, None);
    // Of what is decided only figures are left.
    let held = report.view.state.heuristic().is_none();
    for part in report.parts.iter().filter(|part| held && part.queue >= first) {
        if query.get("queue").is_some_and(|name| part.name.as_ref() != Some(name)) {
            continue;
        }
        if part.queue != first {
            from = 0;
        }
        if left == 0 {
            next = Some(format!("{}:0", part.queue));
            break;
        }
        let command = Command::TxPart { txn: report.view.txn, queue: part.queue, from, limit: left };
        let page = match app.gateway.ask(HOME, command).await? {
            Reply::TxContents(page) => page,
            // It was decided in this moment, or its queue went.
            Reply::Refused(_) => continue,
            other => return Err(refusal(other)),
        };
        let found = page.messages.len();
        left -= found.min(left);
        contents.push(Contents {
            queue: part.name.clone(),
            queue_id: part.queue.to_string(),
            messages: page.messages.into_iter().map(Message::from).collect(),
        });
        if page.more {
            next = Some(format!("{}:{}", part.queue, from + found as u64));
            break;
        }
    }
    Ok(Json(Shown { transaction: report.into(), contents, next }))
}

async fn decide(
    State(app): Shared,
    peer: Option<Extension<Peer>>,
    path: Result<Path<(String, String)>, PathRejection>,
    Query(query): Parameters,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Decided>, Problem> {
    let Path((xid, act)) = path.map_err(|e| invalid_path(&e))?;
    let act = match act.as_str() {
        "commit" => TxAct::Commit,
        "rollback" => TxAct::Rollback,
        "forget" => TxAct::Forget,
        other => {
            let detail = format!("a transaction takes commit, rollback and forget, not {other}");
            return Err(Problem::new(StatusCode::NOT_FOUND, "unknown-path", detail));
        }
    };
    let xid = parse(&xid)?;
    crate::api::parameters(&query, &[])?;
    json_only(&headers)?;
    let Said { who, reason } = said(&crate::api::body(body)?)?;
    if reason.is_none() && act != TxAct::Forget {
        let detail = "a decision needs a reason: send {\"reason\": \"…\"}; it is kept with the branch, and in the log";
        return Err(Problem::bad("reason-missing", detail));
    }
    let by = By { who: who.unwrap_or_else(|| name(peer)), reason: reason.unwrap_or_default() };
    ready(&app)?;
    match app.gateway.ask(HOME, Command::TxDecide { xid: xid.clone(), act, by }).await? {
        Reply::Decided { branch } => {
            Ok(Json(Decided { xid: xid.to_string(), transaction: branch.map(|branch| Transaction::from(*branch)) }))
        }
        other => Err(refusal(other)),
    }
}

/// A page in a browser may send a POST of another type to any address without asking first; of this type it may not.
fn json_only(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    if kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let detail = format!("content-type {kind:?}: a decision is sent as application/json");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", detail))
}

/// Who asks, if the request does not say.
pub(crate) fn name(peer: Option<Extension<Peer>>) -> String {
    match peer {
        Some(Extension(Peer(address))) if !address.ip().to_canonical().is_loopback() => address.to_string(),
        _ => "local operator".into(),
    }
}

/// Who and why, as far as a request says it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) who: Option<String>,
    pub(crate) reason: Option<String>,
}

impl Said {
    /// Takes one of the two; a blank text says nothing.
    pub(crate) fn take(&mut self, key: &str, text: &str) -> Result<(), Problem> {
        let (place, most) = match key {
            "who" => (&mut self.who, WHO_BYTES),
            _ => (&mut self.reason, REASON_BYTES),
        };
        if text.len() > most {
            let detail = format!("{key} has {} bytes; the limit is {most}", text.len());
            return Err(Problem::bad("invalid-argument", detail));
        }
        if text.chars().any(char::is_control) {
            let detail = format!("{key} has control characters; it stands on one line of the log");
            return Err(Problem::bad("invalid-argument", detail));
        }
        *place = Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_string);
        Ok(())
    }
}

fn said(body: &[u8]) -> Result<Said, Problem> {
    let mut said = Said::default();
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(said);
    }
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body)
        .map_err(|e| Problem::bad("invalid-body", format!("the body is not a JSON object: {e}")))?;
    for (key, value) in object {
        if key != "who" && key != "reason" {
            let detail = format!("unknown argument {key}; a decision takes reason and who");
            return Err(Problem::bad("unknown-argument", detail));
        }
        let text = value
            .as_str()
            .ok_or_else(|| Problem::bad("invalid-argument", format!("{key} = {value}: must be a text")))?;
        said.take(&key, text)?;
    }
    Ok(said)
}

fn xid(path: PathXid) -> Result<Xid, Problem> {
    let Path(text) = path.map_err(|e| invalid_path(&e))?;
    parse(&text)
}

fn invalid_path(error: &PathRejection) -> Problem {
    Problem::bad("invalid-xid", format!("the xid in the path: {}", error.body_text()))
}

fn parse(text: &str) -> Result<Xid, Problem> {
    Xid::parse(text).map_err(|e| Problem::bad("invalid-xid", format!("{text:?}: {e}")))
}

fn limit(query: &BTreeMap<String, String>) -> Result<usize, Problem> {
    crate::api::limit(query, PAGE, PAGE_MAX)
}

/// A place in the contents of a branch, as [`show`] gives it.
fn place(text: &str) -> Result<(QueueId, u64), Problem> {
    let parts = text.split_once(':').and_then(|(queue, from)| Some((QueueId(queue.parse().ok()?), from.parse().ok()?)));
    parts
        .ok_or_else(|| Problem::bad("invalid-parameter", format!("after={text}: take it from next of the page before")))
}

/// States in one word each, or two words for several: `in-doubt` and `heuristic`.
fn states(text: &str) -> Result<Vec<TxState>, Problem> {
    let mut states = Vec::new();
    for word in text.split(',').map(str::trim) {
        match word {
            "in-doubt" => states.extend(IN_DOUBT),
            "heuristic" => states.extend(TxState::ALL.into_iter().filter(|state| state.heuristic().is_some())),
            word => match TxState::ALL.into_iter().find(|state| *state != TxState::None && state.word() == word) {
                Some(state) => states.push(state),
                None => {
                    let known = TxState::ALL.map(TxState::word)[1..].join(", ");
                    let detail = format!("state={word}: known are in-doubt, heuristic, {known}");
                    return Err(Problem::bad("invalid-parameter", detail));
                }
            },
        }
    }
    Ok(states)
}

/// Those that are prepared and have no outcome on the disk.
const IN_DOUBT: [TxState; 2] = [TxState::Prepared, TxState::Deciding];
