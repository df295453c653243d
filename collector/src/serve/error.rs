//! Answers that are no success.

use api::Failure;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::query::QueryError;

/// A status and its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ErrorAnswer {
    status: StatusCode,
    body: Failure,
}

impl ErrorAnswer {
    pub(crate) fn new(status: StatusCode, error: String) -> ErrorAnswer {
        ErrorAnswer { status, body: Failure { error, ..Failure::default() } }
    }

    pub(crate) fn with_allowed(mut self, allowed: &[&str]) -> ErrorAnswer {
        self.body.allowed = Some(allowed.iter().map(|&text| text.to_owned()).collect());
        self
    }

    /// As many queries run and wait as may.
    pub(crate) fn busy() -> ErrorAnswer {
        let error = "too many other queries are running; try again later".to_owned();
        ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// A defect of the collector.
    pub(crate) fn internal(error: &dyn std::error::Error) -> ErrorAnswer {
        tracing::error!(%error, "a query failed");
        ErrorAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<QueryError> for ErrorAnswer {
    fn from(error: QueryError) -> Self {
        let status = if error.is_unknown_name() {
            StatusCode::NOT_FOUND
        } else if error.is_ours() {
            StatusCode::INTERNAL_SERVER_ERROR
        } else {
            StatusCode::BAD_REQUEST
        };
        let mut answer = ErrorAnswer::new(status, error.to_string());
        answer.body.nearest = error.nearest().map(<[String]>::to_vec);
        match error.allowed() {
            Some(allowed) => answer.with_allowed(allowed),
            None => answer,
        }
    }
}

impl IntoResponse for ErrorAnswer {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}
