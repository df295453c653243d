//! Access to routes by role.
//!
//! [`ROUTES`] is the only list of routes with what they need. A request that matches none of its
//! entries never reaches a handler.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use profiler_core::limits::bounded;
use tonic::Status;

use bridge::grafana;
use bridge::push::{self, Failure, Kind, OtlpTransport};
use front::auth::{Access, Denied, Role};
use front::error::ErrorAnswer;
use front::gate::{Caller, Credential, Gate, Schemes};
use front::{return_path, revocable};
use shares::identity::{Identity, Peer};

/// A route and what it needs.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    /// As the router has it.
    pub(super) path: &'static str,
    pub(super) access: Access,
}

const fn route(method: Method, path: &'static str, access: Access) -> Route {
    Route {
        method,
        path,
        access,
    }
}

/// Longest encoding of a body that an error repeats.
const ENCODING_BYTES_MAX: usize = 40;

/// The route of the agents' service.
const GRPC: &str = "/emberline.v1.Ingest/{*rest}";

/// All routes; HEAD needs what GET needs. `docs/SECURITY.md` has the same table.
pub(super) const ROUTES: &[Route] = &[
    route(Method::POST, GRPC, Access::Agent),
    // Like `/readyz`.
    route(Method::POST, super::health::HEALTH_ROUTE, Access::Open),
    route(Method::POST, push::INGEST_PATH, Access::Agent),
    route(Method::POST, push::PUSH_PATH, Access::Agent),
    route(Method::POST, push::OTLP_HTTP_PATH, Access::Agent),
    route(Method::POST, push::OTLP_GRPC_PATH, Access::Agent),
    // Tells only that the process runs.
    route(Method::GET, "/livez", Access::Open),
    // Tells only whether flushes are accepted.
    route(Method::GET, "/readyz", Access::Open),
    route(Method::GET, "/metrics", Access::Reader),
    route(Method::GET, "/login", Access::Open),
    route(Method::POST, "/login", Access::Open),
    route(Method::GET, "/login.css", Access::Open),
    route(Method::GET, "/login.js", Access::Open),
    // Ends only the session of its own cookie.
    route(Method::POST, "/logout", Access::Open),
    route(Method::GET, "/api/v1/session", Access::Reader),
    route(Method::GET, "/api/v1/openapi.json", Access::Reader),
    route(Method::GET, "/api/v1/profile", Access::Reader),
    route(Method::GET, "/api/v1/profile.svg", Access::Reader),
    route(Method::GET, "/api/v1/profile.json", Access::Reader),
    route(Method::GET, "/api/v1/profile.collapsed", Access::Reader),
    route(Method::GET, "/api/v1/profile.pb.gz", Access::Reader),
    route(
        Method::GET,
        "/api/v1/profile.speedscope.json",
        Access::Reader,
    ),
    route(Method::GET, "/api/v1/profile.firefox.json", Access::Reader),
    route(Method::GET, "/api/v1/profile.nested.json", Access::Reader),
    route(Method::GET, "/api/v1/profile.csv", Access::Reader),
    route(Method::GET, "/api/v1/profile.parquet", Access::Reader),
    route(Method::GET, "/api/v1/timeline.csv", Access::Reader),
    route(Method::GET, "/api/v1/timeline.parquet", Access::Reader),
    route(Method::GET, "/api/v1/tasks.csv", Access::Reader),
    route(Method::GET, "/api/v1/tasks.parquet", Access::Reader),
    route(Method::GET, "/api/v1/tasks.firefox.json", Access::Reader),
    route(Method::GET, "/api/v1/tasks.hlog", Access::Reader),
    route(Method::GET, "/api/v1/resources.csv", Access::Reader),
    route(Method::GET, "/api/v1/resources.parquet", Access::Reader),
    route(Method::GET, "/api/v1/transfers.csv", Access::Reader),
    route(Method::GET, "/api/v1/transfers.parquet", Access::Reader),
    route(Method::GET, "/debug/pprof/profile", Access::Reader),
    route(Method::POST, grafana::SERVICE_ROUTE, Access::Reader),
    route(Method::GET, grafana::RENDER_ROUTE, Access::Reader),
    route(Method::GET, grafana::RENDER_DIFF_ROUTE, Access::Reader),
    route(Method::GET, grafana::LABEL_VALUES_ROUTE, Access::Reader),
    route(Method::GET, "/api/v1/timeline", Access::Reader),
    route(Method::GET, "/api/v1/tasks", Access::Reader),
    route(Method::GET, "/api/v1/tasks/compare", Access::Reader),
    route(Method::GET, "/api/v1/tasks/durations", Access::Reader),
    route(Method::GET, "/api/v1/thread-time", Access::Reader),
    route(Method::GET, "/api/v1/workers", Access::Reader),
    route(Method::GET, "/api/v1/workers/names", Access::Reader),
    route(Method::PUT, "/api/v1/workers/settings", Access::Operator),
    route(Method::GET, "/api/v1/thread-dump", Access::Operator),
    route(Method::GET, "/api/v1/symbols", Access::Reader),
    // An upload decides which names everybody reads.
    route(Method::POST, "/api/v1/symbols", Access::Operator),
    route(Method::GET, "/api/v1/symbols/verify", Access::Operator),
    route(Method::POST, "/api/v1/symbols/gc", Access::Operator),
    route(Method::POST, "/api/v1/symbols/fetch", Access::Operator),
    // It reads everything, and takes more of the machine than any other query.
    route(Method::POST, "/api/v1/sql", Access::Operator),
    route(Method::GET, "/api/v1/updates", Access::Reader),
    route(Method::GET, "/api/v1/transfers", Access::Reader),
    route(Method::GET, "/api/v1/resources", Access::Reader),
    route(Method::GET, "/api/v1/progress", Access::Reader),
    route(Method::GET, "/api/v1/runs", Access::Reader),
    route(Method::POST, "/api/v1/runs", Access::Operator),
    route(Method::POST, "/api/v1/runs/stop", Access::Operator),
    route(Method::GET, "/api/v1/events", Access::Reader),
    route(Method::GET, "/api/v1/events/recent", Access::Reader),
    route(Method::GET, "/", Access::Reader),
    route(Method::GET, "/profile", Access::Reader),
    route(Method::GET, "/compare", Access::Reader),
    route(Method::GET, "/tasks", Access::Reader),
    route(Method::GET, "/tasks/{name}", Access::Reader),
    route(Method::GET, "/workers", Access::Reader),
    route(Method::GET, "/workers/{name}", Access::Reader),
    route(Method::GET, "/transfers", Access::Reader),
    route(Method::GET, "/resources", Access::Reader),
    route(Method::GET, "/events", Access::Reader),
    // Only its queries need an operator.
    route(Method::GET, "/sql", Access::Reader),
    route(Method::GET, "/licenses", Access::Reader),
    route(Method::GET, "/licenses.txt", Access::Reader),
    route(Method::GET, "/favicon.ico", Access::Reader),
    route(Method::GET, "/assets/{name}", Access::Reader),
];

/// Paths of the HTTP API, listed in 404 answers.
pub(super) fn api_paths() -> Vec<&'static str> {
    let mut paths: Vec<_> = ROUTES
        .iter()
        .map(|route| route.path)
        .filter(|path| is_api(path))
        .collect();
    paths.dedup();
    paths
}

fn is_api(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz" | "/metrics")
        || path.starts_with("/api/")
        || path.starts_with("/debug/")
}

/// In which form a sender of data, or a reader that is not Emberline's own, wants to be refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Grpc,
    Http,
    Connect,
    Otlp(OtlpTransport),
}

impl Form {
    fn of(path: &str, headers: &HeaderMap) -> Form {
        if let Some(transport) = OtlpTransport::of(path, headers) {
            return Form::Otlp(transport);
        }
        match path {
            push::INGEST_PATH | push::OTLP_HTTP_PATH => Form::Http,
            push::PUSH_PATH => Form::Connect,
            path if path.starts_with(grafana::SERVICE_PREFIX) => Form::Connect,
            _ => Form::Grpc,
        }
    }

    fn schemes(self) -> Schemes {
        match self {
            Form::Grpc => Schemes::Bearer,
            Form::Http | Form::Connect | Form::Otlp(_) => Schemes::BearerAndBasic,
        }
    }

    fn place_of_token(self) -> &'static str {
        match self {
            Form::Grpc => "in EMBERLINE_TOKEN or in a file named by EMBERLINE_TOKEN_FILE",
            Form::Http | Form::Connect | Form::Otlp(_) => {
                "as a bearer token or as the password of basic authentication"
            }
        }
    }

    fn denied(self, kind: Kind, error: String) -> Response {
        match self {
            Form::Grpc if kind == Kind::Denied => Status::permission_denied(error).into_http(),
            Form::Grpc => Status::unauthenticated(error).into_http(),
            Form::Http => Failure::new(kind, error).http(),
            Form::Connect => Failure::new(kind, error).connect(),
            Form::Otlp(transport) => transport.failed(Failure::new(kind, error)),
        }
    }
}

/// Requirement of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    Access(Access),
    /// Any token: no route matches, and the answer names those that exist.
    AnyToken,
    /// Any token: the path's routes have other methods. No handler may get the request.
    OtherMethod(&'static str),
    /// A route that [`ROUTES`] lacks, which is a bug: nobody may use it.
    Unlisted,
}

/// Passes requests on that [`ROUTES`] and the tokens allow.
pub(super) async fn check(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    let need = need(&request);
    if need == Need::Access(Access::Open) {
        return next.run(request).await;
    }
    let peer = request
        .extensions()
        .get::<Identity>()
        .cloned()
        .expect("identify runs before");
    let scope = gate.cookie_scope(request.uri(), request.headers());
    let form = Form::of(request.uri().path(), request.headers());
    let credential = match gate.authenticate(scope, request.headers(), &peer, form.schemes()) {
        Ok(credential) => credential,
        Err(Denied::Missing) if opens_page(&request) => return to_login(request.uri()),
        Err(denied) => {
            gate.report_denied(
                &peer,
                denied.reason(),
                request.method(),
                request.uri().path(),
            );
            return unauthenticated(denied, need, form);
        }
    };
    let who = match &credential {
        Credential::Token { record, .. } => Identity::Token(record.id),
        _ => peer,
    };
    if let Need::Access(access) = need
        && !credential.allows(access)
    {
        let reason = format!("needs role {}", access.role());
        gate.report_denied(&who, &reason, request.method(), request.uri().path());
        return forbidden(access, &credential.holder(), form);
    }
    match need {
        Need::OtherMethod(path) => return not_allowed(request.method(), path).into_response(),
        Need::Unlisted => return not_found(&request).into_response(),
        Need::Access(_) | Need::AnyToken => {}
    }
    request.extensions_mut().insert(who.clone());
    let caller = Caller::new(gate, credential, who, request.uri().path());
    request.extensions_mut().insert(caller.clone());
    if need == Need::Access(Access::Agent) {
        // Its streams end with a status of their own.
        return next.run(request).await;
    }
    let mut revoked = Box::pin(async move { caller.revoked().await });
    let response = tokio::select! {
        // A request that ends its own session is answered.
        biased;
        response = next.run(request) => response,
        () = &mut revoked => return unauthenticated(Denied::Invalid, need, form),
    };
    revocable::until(response, revoked)
}

/// Refuses bodies with an encoding that nothing undoes.
pub(super) async fn refuse_encodings(request: Request, next: Next) -> Response {
    let encodings = request.headers().get_all(header::CONTENT_ENCODING);
    let other = encodings
        .iter()
        .find(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"));
    match other {
        Some(encoding) if !decodes_bodies(&request) => {
            let encoding = String::from_utf8_lossy(encoding.as_bytes());
            let encoding = bounded(&encoding, ENCODING_BYTES_MAX);
            let error =
                format!("content-encoding {encoding:?} is not read here; allowed: identity");
            ErrorAnswer::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error)
                .with_allowed(&["identity"])
                .into_response()
        }
        _ => next.run(request).await,
    }
}

/// Whether the handler of the route undoes encodings, and refuses those that it does not know.
fn decodes_bodies(request: &Request) -> bool {
    need(request) == Need::Access(Access::Agent)
        || request.uri().path().starts_with(grafana::SERVICE_PREFIX)
}

/// Whether a browser opens the address as a page of its own.
fn opens_page(request: &Request) -> bool {
    let accept = request.headers().get_all(header::ACCEPT).iter();
    let mut media_types = accept
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','));
    let accepts_html = media_types
        .any(|media_type| media_type.split(';').next().map(str::trim) == Some("text/html"));
    matches!(*request.method(), Method::GET | Method::HEAD) && accepts_html
}

/// Sends a browser to the login, which sends it back.
fn to_login(uri: &Uri) -> Response {
    let address = return_path::login_address(uri);
    let location = HeaderValue::from_str(&address).expect("a path and its query are ASCII");
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (
        StatusCode::SEE_OTHER,
        [(header::LOCATION, location), no_store],
    )
        .into_response()
}

fn need(request: &Request) -> Need {
    let Some(path) = request.extensions().get::<MatchedPath>() else {
        return Need::AnyToken;
    };
    let method = match request.method() {
        &Method::HEAD => &Method::GET,
        method => method,
    };
    let mut routes = ROUTES
        .iter()
        .filter(|route| route.path == path.as_str())
        .peekable();
    let Some(first) = routes.peek().map(|route| route.path) else {
        return Need::Unlisted;
    };
    let listed = routes.find(|route| route.method == method);
    listed.map_or(Need::OtherMethod(first), |route| Need::Access(route.access))
}

/// Answers a request whose sender is unknown.
fn unauthenticated(denied: Denied, need: Need, form: Form) -> Response {
    let role = match need {
        Need::Access(access) => access.role(),
        _ => Role::Reader,
    };
    let error = format!(
        "{}; pass one {}; for a new one, run: emberline token new --role {role}",
        denied.reason(),
        form.place_of_token()
    );
    if need == Need::Access(Access::Agent) {
        return form.denied(Kind::Unauthenticated, error);
    }
    let mut response = ErrorAnswer::new(StatusCode::UNAUTHORIZED, error).into_response();
    let scheme = HeaderValue::from_static("Bearer");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, scheme);
    response
}

/// Answers a request that the sender's role does not allow.
fn forbidden(access: Access, holder: &str, form: Form) -> Response {
    let needed = access.role();
    let error = format!(
        "{holder} may not do this; it needs role {needed}; run: emberline token new \
         --role {needed}"
    );
    match access {
        Access::Agent => form.denied(Kind::Denied, error),
        _ => ErrorAnswer::new(StatusCode::FORBIDDEN, error).into_response(),
    }
}

/// Routes besides those of senders that need a collector: agents are connected to it, or it keeps what they set.
const NEED_COLLECTOR: [(Method, &str); 5] = [
    (Method::PUT, "/api/v1/workers/settings"),
    (Method::GET, "/api/v1/thread-dump"),
    (Method::POST, "/api/v1/symbols/fetch"),
    (Method::POST, "/api/v1/runs"),
    (Method::POST, "/api/v1/runs/stop"),
];

/// Refuses what only a collector can do. The state is the place whose stores are read.
pub(super) async fn refuse_changes(
    State(place): State<Arc<str>>,
    request: Request,
    next: Next,
) -> Response {
    if need(&request) == Need::Access(Access::Agent) {
        let error = format!(
            "this server only reads the stores in {place}: send to one of their collectors"
        );
        let form = Form::of(request.uri().path(), request.headers());
        return match form {
            Form::Grpc => Status::failed_precondition(error).into_http(),
            Form::Http | Form::Connect | Form::Otlp(_) => form.denied(Kind::Denied, error),
        };
    }
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map(MatchedPath::as_str);
    if NEED_COLLECTOR
        .iter()
        .any(|(method, route): &(Method, &str)| path == Some(*route) && method == request.method())
    {
        let error = format!(
            "this server only reads the stores in {place}: ask the collector to which the workers report"
        );
        return ErrorAnswer::new(StatusCode::CONFLICT, error).into_response();
    }
    next.run(request).await
}

/// Answers a request to a path that does not exist.
pub(super) fn not_found(request: &Request) -> ErrorAnswer {
    let path = bounded(request.uri().path(), 200).into_owned();
    let error = format!("no such path: {path}");
    ErrorAnswer::new(StatusCode::NOT_FOUND, error).with_allowed(&api_paths())
}

fn not_allowed(method: &Method, path: &str) -> ErrorAnswer {
    let mut allowed = Vec::new();
    for route in ROUTES.iter().filter(|route| route.path == path) {
        allowed.push(route.method.as_str());
        if route.method == Method::GET {
            allowed.push(Method::HEAD.as_str());
        }
    }
    let error = format!("method not allowed: {method}");
    ErrorAnswer::new(StatusCode::METHOD_NOT_ALLOWED, error).with_allowed(&allowed)
}

/// Adds the [`Identity`] to the request's extensions.
pub(super) async fn identify(mut request: Request, next: Next) -> Response {
    let identity = match request.extensions().get::<Peer>() {
        Some(peer) => Identity::of(peer),
        // Only tests call the routes without a connection.
        None => Identity::Address(Ipv4Addr::LOCALHOST.into()),
    };
    request.extensions_mut().insert(identity);
    next.run(request).await
}
