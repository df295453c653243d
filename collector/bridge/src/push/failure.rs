//! Why a push is not stored, in the form of each protocol.

use std::time::Duration;

use api::Failure as Body;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use front::error::ErrorAnswer;
use import::ImportError;
use serde::Serialize;

use base::limits::RETRY_AFTER;
use state::ingest::{AttachError, StreamError};
use state::pushed::PushError;
use store::wal::NotLogged;

/// Meaning of a failure for its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Invalid,
    /// A content type or encoding that is not read.
    Unsupported,
    TooLarge,
    TooSlow,
    Unauthenticated,
    Denied,
    /// A limit or quota is reached; a later push may be stored.
    Exhausted,
    /// Ingestion is stopped.
    Unavailable,
    Internal,
}

impl Kind {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Kind::Invalid => StatusCode::BAD_REQUEST,
            Kind::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
            Kind::Denied => StatusCode::FORBIDDEN,
            Kind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The code of the Connect protocol.
    fn code(self) -> &'static str {
        match self {
            Kind::Invalid | Kind::TooLarge => "invalid_argument",
            Kind::Unsupported => "unimplemented",
            Kind::TooSlow => "deadline_exceeded",
            Kind::Unauthenticated => "unauthenticated",
            Kind::Denied => "permission_denied",
            Kind::Exhausted => "resource_exhausted",
            Kind::Unavailable => "unavailable",
            Kind::Internal => "internal",
        }
    }
}

/// A push that is not stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(super) retry_after: Option<Duration>,
}

/// The body of an error of the Connect protocol.
#[derive(Serialize)]
struct ConnectError {
    code: &'static str,
    message: String,
}

impl Failure {
    pub fn new(kind: Kind, text: impl Into<String>) -> Failure {
        let is_retried = matches!(kind, Kind::Exhausted | Kind::Unavailable);
        Failure {
            kind,
            text: text.into(),
            retry_after: is_retried.then_some(RETRY_AFTER),
        }
    }

    pub(super) fn invalid(text: impl Into<String>) -> Failure {
        Failure::new(Kind::Invalid, text)
    }

    /// The same for a profile of a worker, which the text names if the request has several.
    pub(super) fn of(self, worker: &str, profiles: usize) -> Failure {
        if profiles < 2 {
            return self;
        }
        let text = format!("a profile of {worker}: {}", self.text);
        Failure { text, ..self }
    }

    pub(super) fn after(self, retry_after: Duration) -> Failure {
        Failure {
            retry_after: Some(retry_after),
            ..self
        }
    }

    /// Whether the same request may succeed later.
    pub(super) fn is_retried(&self) -> bool {
        self.retry_after.is_some()
    }

    /// The answer of `/ingest`.
    pub fn http(self) -> Response {
        self.response(|text| {
            Json(Body {
                error: text,
                ..Body::default()
            })
            .into_response()
        })
    }

    /// The answer of a method of Connect.
    pub fn connect(self) -> Response {
        let code = self.kind.code();
        self.response(|message| Json(ConnectError { code, message }).into_response())
    }

    /// The answer with this body, which has the text.
    pub(super) fn response(self, body: impl FnOnce(String) -> Response) -> Response {
        let mut response = body(self.text);
        *response.status_mut() = self.kind.status();
        if let Some(delay) = self.retry_after {
            let delay = HeaderValue::from(delay.as_secs().max(1));
            response.headers_mut().insert(header::RETRY_AFTER, delay);
        }
        response
    }
}

impl From<Failure> for ErrorAnswer {
    fn from(failure: Failure) -> Self {
        ErrorAnswer::new(failure.kind.status(), failure.text)
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Failure {
        Failure::new(kind_of(&error), error.to_string())
    }
}

/// The kind of a profile that cannot be read.
pub(super) fn kind_of(error: &ImportError) -> Kind {
    match error {
        ImportError::TooMany { .. } => Kind::TooLarge,
        _ => Kind::Invalid,
    }
}

impl From<NotLogged> for Failure {
    fn from(error: NotLogged) -> Failure {
        let text = format!("{error}; the push is not stored and must be sent again");
        Failure::new(Kind::Unavailable, text)
    }
}

impl From<PushError> for Failure {
    fn from(error: PushError) -> Failure {
        let text = error.to_string();
        let kind = match error {
            PushError::Attach(AttachError::NotLogged(error))
            | PushError::Stream(StreamError::NotLogged(error)) => return error.into(),
            PushError::Attach(AttachError::Hello(_)) | PushError::Refused { .. } => Kind::Invalid,
            PushError::Attach(AttachError::NoRoom(_) | AttachError::Quota(_))
            | PushError::Stream(StreamError::Stale(_) | StreamError::NoRoomForImport(_))
            | PushError::TooManySeries => Kind::Exhausted,
            PushError::Stream(StreamError::OutOfOrder(_))
            | PushError::Random(_)
            | PushError::Panicked => Kind::Internal,
        };
        Failure::new(kind, text)
    }
}
