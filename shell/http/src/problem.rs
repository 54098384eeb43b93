//! Problem documents (RFC 9457): each refusal has a status, a stable `code` and one sentence.

use crate::gateway::NoAnswer;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use packhorse_broker::{Refusal, RefusalKind};
use serde::Serialize;

/// A refusal as it goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) detail: String,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: &'a str,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, code, detail: detail.into() }
    }

    pub(crate) fn bad(code: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// What the specification has and this version has not.
    pub(crate) fn not_yet(what: &str) -> Problem {
        Problem::new(StatusCode::NOT_IMPLEMENTED, "not-implemented", format!("{what}: not implemented yet"))
    }

    pub(crate) fn unexpected_reply() -> Problem {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the shard answered another question; please report this",
        )
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let status = match refusal.kind {
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem::new(status, refusal.code, refusal.detail)
    }
}

impl From<NoAnswer> for Problem {
    fn from(no: NoAnswer) -> Problem {
        let detail =
            format!("the shard did not answer within {} ms; the command may still take effect", no.waited.as_millis());
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "no-answer", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
            r#type: format!("urn:packhorse:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Refused"),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
        };
        let mut body = serde_json::to_vec(&document).expect("a flat document of texts");
        body.push(b'\n');
        let kind = HeaderValue::from_static("application/problem+json");
        (self.status, [(header::CONTENT_TYPE, kind)], body).into_response()
    }
}
