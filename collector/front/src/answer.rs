//! Answers in JSON.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::ErrorAnswer;

/// Answers with `body` as JSON.
pub fn json(body: &impl Serialize) -> Result<Response, ErrorAnswer> {
    let text = serde_json::to_vec(body).map_err(|error| ErrorAnswer::internal(&error))?;
    Ok(json_text(text))
}

/// Answers with a text that is JSON.
pub fn json_text(text: Vec<u8>) -> Response {
    let application_json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, application_json)], text).into_response()
}
