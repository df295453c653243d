//! `/api/v1/openapi.json`: the HTTP API as OpenAPI describes it. The document is committed as `docs/openapi.json`; tests
//! write it from the routes, from the tables that parse parameters, and from the types of the bodies.

#[cfg(test)]
pub(super) mod document;
#[cfg(test)]
pub(super) mod operations;

use axum::extract::Query;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use query::no_parameters;

use front::error::ErrorAnswer;

pub(super) const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");

/// Answers with the document.
pub(super) async fn answer(
    Query(pairs): Query<Vec<(String, String)>>,
) -> Result<Response, ErrorAnswer> {
    no_parameters(&pairs)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response())
}
