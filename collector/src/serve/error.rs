//! What a reader is told who asked for what cannot be answered.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::query::QueryError;

/// An error's body: `{"error": …, "allowed"?: […], "nearest"?: […]}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct ErrorAnswer {
    #[serde(skip)]
    status: StatusCode,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest: Option<Vec<String>>,
}

impl ErrorAnswer {
    pub(crate) fn new(status: StatusCode, error: String) -> ErrorAnswer {
        ErrorAnswer { status, error, allowed: None, nearest: None }
    }

    pub(crate) fn with_allowed(mut self, allowed: &[&str]) -> ErrorAnswer {
        self.allowed = Some(allowed.iter().map(|&text| text.to_owned()).collect());
        self
    }

    /// As many questions as may be are being answered or wait.
    pub(crate) fn busy() -> ErrorAnswer {
        let error = "too many other questions are being answered; ask again in a while".to_owned();
        ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// A defect of ours.
    pub(crate) fn internal(error: &dyn std::error::Error) -> ErrorAnswer {
        tracing::error!(%error, "an answer failed");
        ErrorAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<QueryError> for ErrorAnswer {
    fn from(error: QueryError) -> Self {
        let status = match error.is_unknown_name() {
            true => StatusCode::NOT_FOUND,
            false if error.is_ours() => StatusCode::INTERNAL_SERVER_ERROR,
            false => StatusCode::BAD_REQUEST,
        };
        let mut answer = ErrorAnswer::new(status, error.to_string());
        answer.nearest = error.nearest().map(<[String]>::to_vec);
        match error.allowed() {
            Some(allowed) => answer.with_allowed(allowed),
            None => answer,
        }
    }
}

impl IntoResponse for ErrorAnswer {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}
