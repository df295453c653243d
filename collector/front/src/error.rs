//! Answers that are no success.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use base::limits::RETRY_AFTER;
use base::log_limit::{Admitted, LineLimit};
use base::refusal::{Reason, Refusal};
use shares::NoSlot;

/// Any reader can cause these lines.
static FAILED: LineLimit = LineLimit::new();

/// A status and its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorAnswer {
    status: StatusCode,
    body: api::Failure,
}

impl ErrorAnswer {
    pub fn new(status: StatusCode, error: String) -> ErrorAnswer {
        ErrorAnswer {
            status,
            body: api::Failure {
                error,
                ..api::Failure::default()
            },
        }
    }

    pub fn with_allowed(mut self, allowed: &[&str]) -> ErrorAnswer {
        self.body.allowed = Some(allowed.iter().map(|&text| text.to_owned()).collect());
        self
    }

    /// As many queries run and wait as may.
    pub fn busy() -> ErrorAnswer {
        let error = "too many other queries are running; try again later".to_owned();
        ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// As many requests of one identity run and wait as may.
    pub fn too_many() -> ErrorAnswer {
        let error =
            "too many requests of this token or address at once; try again later".to_owned();
        ErrorAnswer::new(StatusCode::TOO_MANY_REQUESTS, error)
    }

    /// Answers that nobody reads take all memory of answers.
    pub fn unread() -> ErrorAnswer {
        let error = "too many large answers are being read; try again later, or ask for less";
        ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, error.to_owned())
    }

    pub fn into_text(self) -> String {
        self.body.error
    }

    /// The body in the form of the Connect protocol.
    pub fn connect(&self) -> Vec<u8> {
        let code = match self.status {
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::UNAUTHORIZED => "unauthenticated",
            StatusCode::FORBIDDEN => "permission_denied",
            StatusCode::TOO_MANY_REQUESTS => "resource_exhausted",
            StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED => "unimplemented",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable",
            status if status.is_server_error() => "internal",
            _ => "invalid_argument",
        };
        let body = serde_json::json!({ "code": code, "message": self.body.error });
        body.to_string().into_bytes()
    }

    /// A request that gets no place among those that run and wait.
    pub fn without_slot(reason: NoSlot) -> ErrorAnswer {
        match reason {
            NoSlot::OwnShare => ErrorAnswer::too_many(),
            NoSlot::AllUsed => ErrorAnswer::busy(),
        }
    }

    /// A defect of the collector.
    pub fn internal(error: &dyn std::error::Error) -> ErrorAnswer {
        if let Some(Admitted { suppressed }) = FAILED.admit() {
            tracing::error!(%error, suppressed, "a query failed");
        }
        ErrorAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl<E: Refusal> From<E> for ErrorAnswer {
    fn from(error: E) -> Self {
        let status = match error.reason() {
            Reason::Invalid => StatusCode::BAD_REQUEST,
            Reason::UnknownName => StatusCode::NOT_FOUND,
            Reason::Internal => StatusCode::INTERNAL_SERVER_ERROR,
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
        let mut response = (self.status, Json(&self.body)).into_response();
        let is_retried = [
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        if is_retried.contains(&self.status) {
            let delay = HeaderValue::from(RETRY_AFTER.as_secs());
            response.headers_mut().insert(header::RETRY_AFTER, delay);
        }
        // For protocols that have their own form.
        response.extensions_mut().insert(self);
        response
    }
}
