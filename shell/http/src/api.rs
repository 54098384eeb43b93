//! Routes and handlers. A handler reads the request, asks shards, renders; it decides nothing about queues.

use crate::metrics::{self, About};
use crate::problem::Problem;
use crate::render::{self, Queue, QueuePage, Removed, Status};
use crate::server::Peer;
use crate::transactions::{self, Said};
use crate::{Gateway, Node, Phase};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use packhorse_broker::{By, Command, OnFull, QueuePatch, Refusal, Reply, ShardReport};
use packhorse_model::ShardId;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Largest body of a request, bytes.
const BODY_BYTES: usize = 64 << 10;
/// Queues on a page when the request does not say, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

/// What handlers need.
pub(crate) struct App {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) node: Arc<Node>,
}

type Shared = State<Arc<App>>;
pub(crate) type Parameters = Query<BTreeMap<String, String>>;

/// Resources of `spec/operate.md` that this version has not, below `/api/v1`.
pub(crate) const NOT_YET: &[&str] = &[
    "/queues/{name}/messages/{*rest}",
    "/topics",
    "/topics/{*rest}",
    "/subscriptions",
    "/subscriptions/{*rest}",
    "/connections",
    "/connections/{*rest}",
    "/sessions",
    "/sessions/{*rest}",
    "/links",
    "/links/{*rest}",
    "/bridges",
    "/bridges/{*rest}",
    "/lanes",
    "/lanes/{*rest}",
    "/cluster",
    "/cluster/{*rest}",
    "/users",
    "/users/{*rest}",
    "/permissions",
    "/permissions/{*rest}",
    "/config/reload",
];

/// The whole API. A request has `patience`, from its head to its answer.
pub(crate) fn router(app: Arc<App>, patience: Duration) -> Router {
    let mut v1 = Router::new()
        .route("/status", get(status))
        .route("/queues", get(queues))
        .route("/queues/{name}", get(queue).put(put_queue).delete(delete_queue))
        .route("/queues/{name}/messages", get(not_yet).delete(purge_queue))
        .route("/config", get(config))
        .route("/openapi.json", get(openapi))
        .merge(crate::transactions::routes());
    #[cfg(feature = "failpoints")]
    {
        v1 = v1.merge(crate::failpoints::routes());
    }
    for path in NOT_YET {
        v1 = v1.route(path, axum::routing::any(not_yet));
    }
    Router::new()
        .nest("/api/v1", v1)
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(from_fn(move |request: Request, next: Next| guard(request, next, patience)))
        .with_state(app)
}

/// Before every handler: who may ask, and how long it may take.
async fn guard(request: Request, next: Next, patience: Duration) -> Response {
    if let Err(problem) = check_host(&request) {
        return problem.into_response();
    }
    match tokio::time::timeout(patience, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("the request was not complete within {} ms", patience.as_millis());
            let mut response = Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", detail).into_response();
            // The rest of its body may still come: this connection is of no further use.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
    }
}

/// While there is no login, a page in a browser of this machine must not reach the API under a name of its own (DNS
/// rebinding): the host is an address or `localhost`.
fn check_host(request: &Request) -> Result<(), Problem> {
    let Some(host) = request.headers().get(header::HOST) else { return Ok(()) };
    let text = host.to_str().unwrap_or("?");
    let name = match text.strip_prefix('[').and_then(|t| t.split_once(']')) {
        Some((v6, _)) => v6,
        None => text.rsplit_once(':').map_or(text, |(name, _)| name),
    };
    let local = name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    if local || name.is_empty() || name.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let detail = format!("host {text:?}: without users the API answers to addresses and localhost only");
    Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host-not-allowed", detail))
}

async fn healthz(State(app): Shared) -> Response {
    match app.node.phase() {
        Phase::Failed(what) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store-failed", format!("the store has failed: {what}"))
                .into_response()
        }
        _ => Json(json!({ "status": "ok" })).into_response(),
    }
}

async fn readyz(State(app): Shared) -> Result<Response, Problem> {
    match app.node.phase() {
        Phase::Stopping => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the broker is stopping")),
        _ => {
            ready(&app)?;
            Ok(Json(json!({ "status": "ready" })).into_response())
        }
    }
}

/// Commands reach shards only when these run.
pub(crate) fn ready(app: &App) -> Result<(), Problem> {
    let unavailable = |code, detail: String| Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail));
    match app.node.phase() {
        Phase::Ready | Phase::Stopping => Ok(()),
        Phase::Recovering => {
            unavailable("recovering", "the broker is still reading its journal; try again soon".into())
        }
        Phase::Failed(what) => unavailable("store-failed", format!("the store has failed: {what}")),
    }
}

async fn status(State(app): Shared) -> Result<Response, Problem> {
    let node = &app.node;
    let (state, report) = match node.phase() {
        // Answered from here, so that a person sees that it is not stuck.
        Phase::Recovering => ("recovering", ShardReport::default()),
        Phase::Failed(_) => return Err(ready(&app).err().unwrap_or_else(Problem::unexpected_reply)),
        Phase::Ready => ("ready", gathered(&app).await?),
        Phase::Stopping => ("stopping", gathered(&app).await?),
    };
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        name: node.name.clone(),
        broker_id: node.broker_id(),
        state,
        uptime_ms: uptime_ms(node),
        shards: app.gateway.shards(),
        connections: report.connections,
        sessions: report.sessions,
        links: report.links,
        queues: report.queues,
        totals: render::counts(report.totals),
        memory_bytes: report.memory_bytes,
        store: report.store.into(),
        transactions: report.transactions.into(),
        alarms: report.alarms.into_iter().map(Into::into).collect(),
    };
    Ok(Json(status).into_response())
}

fn uptime_ms(node: &Node) -> u64 {
    u64::try_from(node.started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn metrics(State(app): Shared) -> Result<Response, Problem> {
    ready(&app)?;
    let report = gathered(&app).await?;
    let about =
        About { version: env!("CARGO_PKG_VERSION"), uptime_ms: uptime_ms(&app.node), shards: app.gateway.shards() };
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    Ok(([(header::CONTENT_TYPE, kind)], metrics::render(&about, &report)).into_response())
}

async fn gathered(app: &App) -> Result<ShardReport, Problem> {
    let mut reports = Vec::new();
    for reply in app.gateway.ask_each(Command::Status).await? {
        match reply {
            Reply::Shard(report) => reports.push(*report),
            other => return Err(refusal(other)),
        }
    }
    Ok(render::sum(reports))
}

/// A page over all shards: each gives its first `limit` names after the cursor, the lowest `limit` of all are the page.
async fn queues(State(app): Shared, Query(query): Parameters) -> Result<Json<QueuePage>, Problem> {
    parameters(&query, &["limit", "after"])?;
    let limit = limit(&query, PAGE, PAGE_MAX)?;
    ready(&app)?;
    let after = query.get("after").filter(|a| !a.is_empty()).cloned();
    let (mut reports, mut more) = (Vec::new(), false);
    for reply in app.gateway.ask_each(Command::QueueList { after, limit }).await? {
        match reply {
            Reply::Queues(page) => {
                more |= page.more;
                reports.extend(page.queues);
            }
            other => return Err(refusal(other)),
        }
    }
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    more |= reports.len() > limit;
    reports.truncate(limit);
    let next = reports.last().filter(|_| more).map(|last| last.name.clone());
    Ok(Json(QueuePage { queues: reports.into_iter().map(Queue::from).collect(), next }))
}

/// How many things a page has at most.
pub(crate) fn limit(query: &BTreeMap<String, String>, default: usize, most: usize) -> Result<usize, Problem> {
    let Some(text) = query.get("limit") else { return Ok(default) };
    let limit = text.parse().ok().filter(|n| (1..=most).contains(n));
    limit.ok_or_else(|| Problem::bad("invalid-parameter", format!("limit={text}: must be 1 to {most}")))
}

/// The body of a request.
pub(crate) fn body(body: Result<Bytes, BytesRejection>) -> Result<Bytes, Problem> {
    body.map_err(|e| {
        let detail = format!("the body: {}; a body has at most {BODY_BYTES} bytes", e.body_text());
        Problem::new(e.status(), "body-too-large", detail)
    })
}

type Name = Result<Path<String>, PathRejection>;

fn name(path: Name) -> Result<String, Problem> {
    path.map(|Path(name)| name)
        .map_err(|e| Problem::bad("invalid-name", format!("the name in the path: {}", e.body_text())))
}

async fn queue(State(app): Shared, path: Name, Query(query): Parameters) -> Result<Json<Queue>, Problem> {
    let name = name(path)?;
    parameters(&query, &[])?;
    ready(&app)?;
    match app.gateway.ask(ShardId(0), Command::QueueGet { name }).await? {
        Reply::Queue(report) => Ok(Json(Queue::from(*report))),
        other => Err(refusal(other)),
    }
}

async fn put_queue(
    State(app): Shared,
    path: Name,
    Query(query): Parameters,
    content: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let name = name(path)?;
    parameters(&query, &[])?;
    let patch = patch(&body(content)?)?;
    ready(&app)?;
    match app.gateway.ask(ShardId(0), Command::QueuePut { name, patch }).await? {
        Reply::Created { queue, new } => {
            let status = if new { StatusCode::CREATED } else { StatusCode::OK };
            Ok((status, Json(Queue::from(*queue))).into_response())
        }
        other => Err(refusal(other)),
    }
}

async fn delete_queue(
    State(app): Shared,
    peer: Option<Extension<Peer>>,
    path: Name,
    Query(query): Parameters,
) -> Result<Json<Removed>, Problem> {
    let name = name(path)?;
    let (force, by) = forced(&query, peer)?;
    ready(&app)?;
    match app.gateway.ask(ShardId(0), Command::QueueDelete { name: name.clone(), force, by }).await? {
        Reply::Deleted { messages } => Ok(Json(Removed { name, messages })),
        other => Err(refusal(other)),
    }
}

/// Removes what nobody holds; with force also what branches in doubt hold.
async fn purge_queue(
    State(app): Shared,
    peer: Option<Extension<Peer>>,
    path: Name,
    Query(query): Parameters,
) -> Result<Json<Removed>, Problem> {
    let name = name(path)?;
    let (force, by) = forced(&query, peer)?;
    ready(&app)?;
    match app.gateway.ask(ShardId(0), Command::QueuePurge { name: name.clone(), by: by.filter(|_| force) }).await? {
        Reply::Purged { messages } => Ok(Json(Removed { name, messages })),
        other => Err(refusal(other)),
    }
}

/// Whether it is forced, and who does so and why: needed only where branches in doubt have work in the queue, which the shards know.
fn forced(query: &BTreeMap<String, String>, peer: Option<Extension<Peer>>) -> Result<(bool, Option<By>), Problem> {
    parameters(query, &["force", "reason", "who"])?;
    let mut said = Said::default();
    for key in ["who", "reason"] {
        query.get(key).map_or(Ok(()), |text| said.take(key, text))?;
    }
    let force = match query.get("force").map(String::as_str) {
        None | Some("false") => false,
        Some("" | "true") => true,
        Some(other) => return Err(Problem::bad("invalid-parameter", format!("force={other}: must be true or false"))),
    };
    let who = said.who.unwrap_or_else(|| transactions::name(peer));
    Ok((force, said.reason.map(|reason| By { who, reason })))
}

async fn config(State(app): Shared) -> Json<serde_json::Value> {
    Json(app.node.config.clone())
}

async fn openapi() -> Json<serde_json::Value> {
    Json(crate::openapi())
}

async fn not_yet(method: Method, uri: Uri) -> Problem {
    Problem::not_yet(&format!("{method} {}", uri.path()))
}

async fn no_route(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}; see /api/v1/openapi.json", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "unknown-path", detail)
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", format!("{} does not take {method}", uri.path()))
}

pub(crate) fn refusal(reply: Reply) -> Problem {
    match reply {
        Reply::Refused(refusal) => Refusal::into(refusal),
        _ => Problem::unexpected_reply(),
    }
}

/// A parameter that is not known is an error: ignored, it would look like a filter that matches everything.
pub(crate) fn parameters(query: &BTreeMap<String, String>, known: &[&str]) -> Result<(), Problem> {
    match query.keys().find(|k| !known.contains(&k.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            Err(Problem::bad("unknown-parameter", format!("unknown parameter {unknown}; this resource takes {known}")))
        }
    }
}

/// Arguments of a queue that the specification has and this version has not.
const ARGUMENTS_NOT_YET: &[&str] = &["expiry", "ttl_ms"];

fn patch(body: &[u8]) -> Result<QueuePatch, Problem> {
    let mut patch = QueuePatch::default();
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(patch);
    }
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body)
        .map_err(|e| Problem::bad("invalid-body", format!("the body is not a JSON object: {e}")))?;
    for (key, value) in object {
        let wrong = |rule: &str| Problem::bad("invalid-argument", format!("{key} = {value}: must be {rule}"));
        match key.as_str() {
            "default_durable" => {
                patch.default_durable = Some(value.as_bool().ok_or_else(|| wrong("true or false"))?);
            }
            "max_deliveries" => {
                let limit = value.as_u64().and_then(|n| u32::try_from(n).ok());
                patch.max_deliveries = Some(limit.ok_or_else(|| wrong("a whole number from 0 to 4294967295"))?);
            }
            // As a queue reports what it has not, or has as the broker's default.
            "dead_letter" | "max_messages" | "max_bytes" if value.is_null() => {}
            "max_messages" | "max_bytes" => {
                let limit = Some(value.as_u64().ok_or_else(|| wrong("a whole number"))?);
                let limits = patch.limits.get_or_insert_default();
                *if key == "max_messages" { &mut limits.max_messages } else { &mut limits.max_bytes } = limit;
            }
            "full" => {
                let on_full = value.as_str().and_then(OnFull::parse);
                patch.limits.get_or_insert_default().on_full =
                    on_full.ok_or_else(|| wrong("block, reject or drop-oldest"))?;
            }
            "dead_letter" => {
                patch.dead_letter = Some(value.as_str().ok_or_else(|| wrong("the name of a queue"))?.to_string());
            }
            other if ARGUMENTS_NOT_YET.contains(&other) => return Err(Problem::not_yet(&format!("argument {other}"))),
            _ => {
                let detail = format!(
                    "unknown argument {key}; a queue takes default_durable, max_deliveries, dead_letter, max_messages, \
                     max_bytes, full"
                );
                return Err(Problem::bad("unknown-argument", detail));
            }
        }
    }
    Ok(patch)
}
