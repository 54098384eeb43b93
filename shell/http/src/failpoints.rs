//! `/api/v1/failpoints`, in builds for tests only: what there is, arm one, disarm it. Knows nothing of what a point does.

use crate::api::App;
use crate::problem::Problem;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::Value;
use std::sync::Arc;

/// The failpoints of a process.
pub trait Failpoints: Send + Sync {
    /// All of them, as JSON.
    fn list(&self) -> Value;

    /// Arms one.
    ///
    /// # Errors
    /// A sentence: there is no such point, or no such action.
    fn arm(&self, name: &str, action: &str) -> Result<(), String>;

    /// Disarms one, and lets go who waits there.
    ///
    /// # Errors
    /// A sentence: there is no such point.
    fn disarm(&self, name: &str) -> Result<(), String>;
}

type Answer = Result<Json<Value>, Problem>;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route("/failpoints", get(list)).route("/failpoints/{name}", axum::routing::put(arm).delete(disarm))
}

fn points(app: &App) -> Result<Arc<dyn Failpoints>, Problem> {
    let none = || Problem::new(StatusCode::NOT_FOUND, "no-failpoints", "this process has no failpoints");
    app.node.failpoints().ok_or_else(none)
}

fn refused(why: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad-failpoint", why)
}

async fn list(State(app): State<Arc<App>>) -> Answer {
    Ok(Json(points(&app)?.list()))
}

async fn arm(State(app): State<Arc<App>>, Path(name): Path<String>, action: String) -> Answer {
    let points = points(&app)?;
    points.arm(&name, action.trim()).map_err(refused)?;
    Ok(Json(points.list()))
}

async fn disarm(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer {
    let points = points(&app)?;
    points.disarm(&name).map_err(refused)?;
    Ok(Json(points.list()))
}
