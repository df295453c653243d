//! The login of browsers: a token is exchanged for a cookie once.
//!
//! The page works without scripts. Its script only reads a token from the fragment of a link.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Extension, Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use profiler_core::Token;
use zeroize::Zeroizing;

use super::cookie::CookieScope;
use super::gate::{Credential, Gate, LoggedIn, LoginError, Schemes};
use super::origin::is_from_other_site;
use super::return_path::{self, ReturnPath};
use crate::auth::{Denied, TokenRecord};
use base::limits::LOGIN_BODY_BYTES_MAX;
use base::log_limit::{Admitted, LineLimit};
use shares::identity::Identity;

const DOCUMENT: &str = include_str!("login/document.html");
const STYLE: &str = include_str!("login/login.css");
const SCRIPT: &str = include_str!("login/login.js");

/// Allows only this origin's style, script and form.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; \
     frame-ancestors 'none'; form-action 'self'",
);

/// The holder of a token can cause these lines.
static CHANGED: LineLimit = LineLimit::new();

pub fn router(gate: Arc<Gate>) -> Router {
    let file = |content_type: &'static str, text: &'static str| {
        get(async move || ([(header::CONTENT_TYPE, content_type)], text))
    };
    Router::new()
        .route("/login", get(show).post(log_in))
        .route("/logout", post(log_out))
        .layer(DefaultBodyLimit::max(LOGIN_BODY_BYTES_MAX))
        .route("/login.css", file("text/css; charset=utf-8", STYLE))
        .route("/login.js", file("text/javascript; charset=utf-8", SCRIPT))
        .layer(map_response(harden))
        .with_state(gate)
}

/// Adds the headers of every answer.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // With `no-referrer` a form's `Origin` is null, which is rejected.
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("same-origin"),
    );
    response
}

/// Content of the login's page.
enum Content<'a> {
    /// The form, with the reason why an attempt failed.
    Form {
        error: Option<&'a str>,
    },
    LoggedIn(&'a TokenRecord),
    /// The sender may read without a login.
    NotNeeded,
}

async fn show(
    State(gate): State<Arc<Gate>>,
    Extension(peer): Extension<Identity>,
    Query(parameters): Query<Vec<(String, String)>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let next = parameters
        .iter()
        .find(|(name, _)| name == return_path::PARAMETER)
        .and_then(|(_, path)| ReturnPath::parse(path));
    let scope = gate.cookie_scope(&uri, &headers);
    let is_foreign = is_from_other_site(&headers);
    match gate.authenticate(scope, &headers, &peer, Schemes::Bearer) {
        Ok(Credential::Token {
            record,
            session: Some(_),
        }) => {
            let content = Content::LoggedIn(&record);
            document(StatusCode::OK, &content, next.as_ref(), is_foreign)
        }
        Ok(_) => document(
            StatusCode::OK,
            &Content::NotNeeded,
            next.as_ref(),
            is_foreign,
        ),
        Err(_) => {
            let form = Content::Form { error: None };
            document(StatusCode::OK, &form, next.as_ref(), is_foreign)
        }
    }
}

/// The fields of the form.
struct Fields {
    token: Zeroizing<String>,
    next: Option<ReturnPath>,
}

impl Fields {
    fn parse(body: &[u8]) -> Fields {
        let mut fields = Fields {
            token: Zeroizing::default(),
            next: None,
        };
        for (name, value) in form_urlencoded::parse(body) {
            match &*name {
                "token" => fields.token = Zeroizing::new(value.into_owned()),
                return_path::PARAMETER => fields.next = ReturnPath::parse(&value),
                _ => {}
            }
        }
        fields
    }
}

async fn log_in(
    State(gate): State<Arc<Gate>>,
    Extension(peer): Extension<Identity>,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) => return (error.status(), error.body_text()).into_response(),
    };
    let Fields { token, next } = Fields::parse(&body);
    if token.trim_ascii().is_empty() {
        return rejected(StatusCode::BAD_REQUEST, "Enter a token.", next.as_ref());
    }
    let scope = gate.cookie_scope(&uri, &headers);
    let denied = |denied: Denied| {
        gate.report_denied(&peer, denied.reason(), &Method::POST, uri.path());
        let reason = match denied {
            Denied::Expired => "The token has expired.",
            _ => "The token is not valid.",
        };
        let mut response = rejected(StatusCode::UNAUTHORIZED, reason, next.as_ref());
        let scheme = HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, scheme);
        response
    };
    let Ok(token) = Token::parse(&token) else {
        return denied(Denied::Invalid);
    };
    match gate.log_in(&token) {
        Ok(LoggedIn { secret, record }) => {
            // The same browser's earlier session.
            gate.log_out(scope, &headers);
            report("logged in", &peer, &record);
            let next = next.unwrap_or_default();
            redirect(&next.location(), [scope.set(&secret)])
        }
        Err(LoginError::NotNeeded) => redirect(&next.unwrap_or_default().location(), []),
        Err(LoginError::Denied(reason)) => denied(reason),
        Err(LoginError::Role(role)) => {
            let error =
                format!("A token of role {role} cannot read. Use one of role reader or operator.");
            rejected(StatusCode::FORBIDDEN, &error, next.as_ref())
        }
        Err(LoginError::Random(error)) => {
            let error = format!("The system has no random bytes: {error}.");
            rejected(StatusCode::INTERNAL_SERVER_ERROR, &error, next.as_ref())
        }
    }
}

fn rejected(status: StatusCode, error: &str, next: Option<&ReturnPath>) -> Response {
    document(status, &Content::Form { error: Some(error) }, next, false)
}

async fn log_out(
    State(gate): State<Arc<Gate>>,
    Extension(peer): Extension<Identity>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let scope: CookieScope = gate.cookie_scope(&uri, &headers);
    if let Some(record) = gate.log_out(scope, &headers) {
        report("logged out", &peer, &record);
    }
    redirect("./login", scope.clear())
}

fn report(what: &str, peer: &Identity, record: &TokenRecord) {
    if let Some(Admitted { suppressed }) = CHANGED.admit() {
        let token = record.id;
        let role = record.role.name();
        tracing::info!(target: "audit", %peer, %token, role, suppressed, "{what}");
    }
}

/// Sends the browser on, with cookies.
fn redirect(location: &str, cookies: impl IntoIterator<Item = HeaderValue>) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    let location = HeaderValue::from_str(location).expect("a return path is ASCII");
    headers.insert(header::LOCATION, location);
    for cookie in cookies {
        headers.append(header::SET_COOKIE, cookie);
    }
    response
}

/// `is_foreign`: another site's link led here.
fn document(
    status: StatusCode,
    content: &Content<'_>,
    next: Option<&ReturnPath>,
    is_foreign: bool,
) -> Response {
    let is_retried = is_foreign && next.is_some() && matches!(content, Content::Form { .. });
    let next = next.cloned().unwrap_or_default();
    let address = escaped(&next.location());
    let mut meta = String::new();
    if is_foreign {
        meta += "<meta name=\"ask\">";
    }
    if is_retried {
        meta += &format!(
            "<meta name=\"retry\" content=\"{address}\">\n    <noscript><meta http-equiv=\"refresh\" \
             content=\"0; url={address}\"></noscript>"
        );
    }
    let content = match content {
        Content::Form { error } => {
            let command = "emberline token new --role reader";
            format!(
                "{}\n<p class=\"hint\">No token? Ask the collector's operator, or run on its \
                 machine:</p>\n<pre>{command}</pre>",
                form(*error, &next)
            )
        }
        Content::LoggedIn(record) => format!(
            "<p>Logged in with token <b>{}</b> of role <b>{}</b>{}.</p>\n\
             <a class=\"button\" href=\"{address}\">Open</a>\n\
             <form method=\"post\" action=\"logout\"><button class=\"quiet\">Log out</button></form>\n\
             <details><summary>Use another token</summary>{}</details>",
            record.id,
            record.role,
            note(record),
            form(None, &next)
        ),
        Content::NotNeeded => format!(
            "<p>You need no login here.</p>\n<a class=\"button\" href=\"{address}\">Open</a>"
        ),
    };
    let html = DOCUMENT
        .replace("{meta}", &meta)
        .replace("{content}", &content);
    (
        status,
        [(header::CONTENT_TYPE, "text/html; charset=utf-8")],
        html,
    )
        .into_response()
}

fn form(error: Option<&str>, next: &ReturnPath) -> String {
    let error = error.map_or(String::new(), |error| {
        format!(
            "<p class=\"error\" id=\"error\" role=\"alert\">{}</p>\n",
            escaped(error)
        )
    });
    let name = return_path::PARAMETER;
    let next = escaped(next.as_str());
    format!(
        "<form method=\"post\" action=\"login\">\n{error}<label for=\"token\">Token</label>\n\
         <input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"current-password\" \
         placeholder=\"emb_…\" required autofocus aria-describedby=\"error\">\n\
         <input name=\"{name}\" type=\"hidden\" value=\"{next}\">\n<button>Log in</button>\n</form>"
    )
}

fn note(record: &TokenRecord) -> String {
    if record.note.is_empty() {
        return String::new();
    }
    format!(" (<bdi>{}</bdi>)", escaped(&record.note))
}

/// Text as HTML, in elements and attributes.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            character if character.is_control() => html.push(' '),
            character => html.push(character),
        }
    }
    html
}
