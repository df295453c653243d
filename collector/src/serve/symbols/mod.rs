//! Symbol files: uploads, the list, and what removes them.

pub(crate) mod symbol_fetch;

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};

use crate::audit;
use crate::serve::agents::json_request;
use crate::serve::answer;
use crate::serve::reader::{Pairs, Reader, blocking, pairs_of};
use base::limits::{BODY_BYTES_MAX, SYMBOL_PIECE_BYTES_MAX, nanoseconds};
use front::error::ErrorAnswer;
use naming::{FetchError, Piece, RoomError, UploadError};
use query::{SymbolUpload, no_parameters};
use shares::identity::Identity;

pub(crate) fn routes() -> Router<Reader> {
    let pieces = Router::new()
        .route("/api/v1/symbols", post(upload).get(list))
        .layer(DefaultBodyLimit::max(SYMBOL_PIECE_BYTES_MAX));
    let others = Router::new()
        .route("/api/v1/symbols/verify", get(verify))
        .route("/api/v1/symbols/gc", post(remove_unused))
        .route("/api/v1/symbols/fetch", post(fetch))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    pieces.merge(others)
}

async fn list(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        no_parameters(asking.pairs)?;
        let naming = &asking.collector.state.naming;
        // In this order: a fetch that ends in between is among the files.
        let fetches = naming.fetches();
        answer::json(&answer::symbols(naming.list(), fetches))
    });
    answer.await
}

async fn verify(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        no_parameters(asking.pairs)?;
        let naming = &asking.collector.state.naming;
        answer::json(&answer::symbols_verified(
            naming.list().len(),
            naming.verify(),
        ))
    });
    answer.await
}

/// Takes one piece of a symbol file.
async fn upload(
    State(reader): State<Reader>,
    Extension(identity): Extension<Identity>,
    pairs: Pairs,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    // A page of another site may not send this type without a preflight request, which is never
    // granted.
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    if content_type != Some("application/octet-stream") {
        let error =
            "a piece of a symbol file needs the header content-type: application/octet-stream";
        return Err(ErrorAnswer::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            error.to_owned(),
        ));
    }
    let content = body.map_err(|error| ErrorAnswer::new(error.status(), error.body_text()))?;
    let pairs = pairs_of(pairs)?;
    let state = reader.collector.state.clone();
    blocking(move || {
        let asked = SymbolUpload::parse(&pairs)?;
        let piece = Piece {
            build_id: &asked.build_id,
            sha256: &asked.sha256,
            bytes: asked.bytes,
            offset: asked.offset,
            content: &content,
            replace: asked.replace,
        };
        let received = state.naming.receive(&piece).map_err(not_uploaded)?;
        if received.is_stored && !received.was_known {
            audit::symbols_stored(&identity, &asked.build_id, received.bytes);
        }
        answer::json(&answer::symbols_received(received))
    })
    .await
}

async fn remove_unused(
    State(reader): State<Reader>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let asked: api::SymbolsGcRequest = json_request(&headers, body)?;
    let state = reader.collector.state.clone();
    blocking(move || {
        let age = nanoseconds(Duration::from_secs(asked.unused_seconds));
        let since = state.clock.now().shifted(age.saturating_neg());
        let removed = state
            .naming
            .remove_unused(since)
            .map_err(|error| ErrorAnswer::internal(&error))?;
        audit::symbols_removed(&identity, removed.len());
        answer::json(&answer::symbols_removed(removed))
    })
    .await
}

/// Asks an agent for the symbols of a build.
async fn fetch(
    State(reader): State<Reader>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let asked: api::SymbolsFetchRequest = json_request(&headers, body)?;
    let collector = reader.collector.clone();
    blocking(move || {
        let build = asked.build_id;
        let naming = &collector.state.naming;
        naming.check_fetch(&build).map_err(not_fetched)?;
        let agents = collector.ingest.agents_with_build(&build).len();
        if agents == 0 {
            return Err(not_fetched(FetchError::NoAgent(build)));
        }
        audit::symbols_requested(&identity, &build);
        naming.add_fetch(&build).map_err(not_fetched)?;
        answer::json(&api::SymbolsFetchAnswer { agents })
    })
    .await
}

fn not_fetched(error: FetchError) -> ErrorAnswer {
    let status = match error {
        FetchError::NoFolder | FetchError::NoReader | FetchError::Known(_) => StatusCode::CONFLICT,
        FetchError::BuildId(_) => StatusCode::BAD_REQUEST,
        FetchError::NoAgent(_) => StatusCode::NOT_FOUND,
        FetchError::TooMany => StatusCode::TOO_MANY_REQUESTS,
    };
    ErrorAnswer::new(status, error.to_string())
}

fn not_uploaded(error: UploadError) -> ErrorAnswer {
    let status = match error {
        UploadError::NoFolder | UploadError::Conflict { .. } => StatusCode::CONFLICT,
        UploadError::NoRoom(RoomError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        UploadError::NoRoom(_) | UploadError::TooManyUploads => StatusCode::TOO_MANY_REQUESTS,
        UploadError::BuildId(_)
        | UploadError::Sha256(_)
        | UploadError::PastEnd { .. }
        | UploadError::Damaged { .. }
        | UploadError::File(_) => StatusCode::BAD_REQUEST,
    };
    ErrorAnswer::new(status, error.to_string())
}
