//! Routes of Grafana's data source. Its queries take the turns of all readers.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};

use super::reader::{Pairs, Reader};
use bridge::grafana::{self, Call};
use front::error::ErrorAnswer;
use query::Asking;

/// The routes; all of them are queries.
pub(super) fn routes() -> Router<Reader> {
    Router::new()
        .route(grafana::SERVICE_ROUTE, post(call))
        .route(grafana::RENDER_ROUTE, get(render))
        .route(grafana::RENDER_DIFF_ROUTE, get(render_diff))
        .route(grafana::LABEL_VALUES_ROUTE, get(label_values))
}

async fn call(
    State(reader): State<Reader>,
    Path(method): Path<String>,
    pairs: Pairs,
    request: Request,
) -> Result<Response, ErrorAnswer> {
    let call = Call::read(method, request).await?;
    reader
        .answer(pairs, move |asking: &Asking<'_>| call.respond(asking))
        .await
}

async fn render(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    reader.answer(pairs, grafana::render).await
}

async fn render_diff(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    reader.answer(pairs, grafana::render_diff).await
}

async fn label_values(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    reader.answer(pairs, grafana::render_label_values).await
}
