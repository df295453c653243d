//! Answers by a path with an extension, which is the format: what a browser or `curl -O` saves has its name.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::uri::{PathAndQuery, Uri};
use axum::middleware::map_request;
use axum::routing::MethodRouter;

use front::error::ErrorAnswer;

/// A path, and the format of its answer.
pub(super) struct FilePath {
    pub(super) path: &'static str,
    pub(super) format: &'static str,
}

const fn file(path: &'static str, format: &'static str) -> FilePath {
    FilePath { path, format }
}

pub(super) const PROFILE: [FilePath; 9] = [
    file("/api/v1/profile.svg", "svg"),
    file("/api/v1/profile.json", "json"),
    file("/api/v1/profile.collapsed", "collapsed"),
    file("/api/v1/profile.pb.gz", "pprof"),
    file("/api/v1/profile.speedscope.json", "speedscope"),
    file("/api/v1/profile.firefox.json", "firefox"),
    file("/api/v1/profile.nested.json", "nested"),
    file("/api/v1/profile.csv", "csv"),
    file("/api/v1/profile.parquet", "parquet"),
];

pub(super) const TIMELINE: [FilePath; 2] = [
    file("/api/v1/timeline.csv", "csv"),
    file("/api/v1/timeline.parquet", "parquet"),
];

pub(super) const TASKS: [FilePath; 3] = [
    file("/api/v1/tasks.csv", "csv"),
    file("/api/v1/tasks.parquet", "parquet"),
    file("/api/v1/tasks.firefox.json", "firefox"),
];

pub(super) const DURATIONS: [FilePath; 1] = [file("/api/v1/tasks.hlog", "hlog")];

pub(super) const TRANSFERS: [FilePath; 2] = [
    file("/api/v1/transfers.csv", "csv"),
    file("/api/v1/transfers.parquet", "parquet"),
];

pub(super) const RESOURCES: [FilePath; 2] = [
    file("/api/v1/resources.csv", "csv"),
    file("/api/v1/resources.parquet", "parquet"),
];

/// Routes that call the handler with the parameter `format` of their path.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(
    paths: impl IntoIterator<Item = FilePath>,
    handler: &MethodRouter<S>,
) -> Router<S> {
    paths
        .into_iter()
        .fold(Router::new(), |routes, FilePath { path, format }| {
            let with_format = map_request(async move |request| with_format(request, format));
            routes.route(path, handler.clone().layer(with_format))
        })
}

fn with_format(mut request: Request, format: &str) -> Result<Request, ErrorAnswer> {
    let uri = request.uri();
    let others = uri
        .query()
        .map_or(String::new(), |query| format!("{query}&"));
    let changed: PathAndQuery = format!("{}?{others}format={format}", uri.path())
        .try_into()
        .map_err(|_| too_long())?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(changed);
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| too_long())?;
    Ok(request)
}

fn too_long() -> ErrorAnswer {
    ErrorAnswer::new(
        StatusCode::URI_TOO_LONG,
        "the address is too long".to_owned(),
    )
}
