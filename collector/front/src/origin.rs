//! Rejects requests that a browser sends on behalf of a stranger's page.
//!
//! A page of another origin can send requests to loopback addresses. Three checks keep it out:
//! - **Host.** A name that a stranger controls can resolve to this address (DNS rebinding), and then
//!   the stranger's page has the collector's origin. So the host must be an IP address, `localhost` or
//!   a name that the operator listed.
//! - **Origin and `Sec-Fetch-Site`.** Browsers say which page a request comes from. Only the
//!   collector's own page may send one; links from elsewhere may open the page.
//! - **gRPC.** Agents speak HTTP/2 with `application/grpc`, which no page can send: any other content
//!   type needs no permission of the browser (a "simple" POST). Agents may use any host name, because
//!   a page that passes this check does not exist.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use profiler_core::limits::bounded;
use tokio::sync::watch;

use super::error::ErrorAnswer;
use shares::identity::CertificateNames;

/// The start of the paths of the agents' gRPC service.
pub const GRPC_PATH: &str = "/emberline.v1.";

/// The starts of the paths of other gRPC services: the health check and OTLP.
const OTHER_GRPC_PATHS: [&str; 2] = ["/grpc.health.v1.", "/opentelemetry.proto."];

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Most bytes of a header that an error repeats.
const SHOWN_BYTES_MAX: usize = 200;

/// Host names, besides IP addresses and `localhost`, under which readers may reach the collector.
#[derive(Clone, Default, Debug)]
pub struct PublicNames {
    named: Arc<[String]>,
    /// Those of the collector's present certificate. A stranger's page has no certificate for them.
    certified: Option<watch::Receiver<CertificateNames>>,
}

impl PublicNames {
    pub fn new(
        names: &[String],
        certified: Option<watch::Receiver<CertificateNames>>,
    ) -> PublicNames {
        PublicNames {
            named: names.iter().map(|name| normalized(name)).collect(),
            certified,
        }
    }

    pub fn allow(&self, host: &str) -> bool {
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        let host = normalized(host);
        literal.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || self.named.contains(&host)
            || self.is_certified(&host)
    }

    fn is_certified(&self, host: &str) -> bool {
        let names = self.certified.as_ref().map(watch::Receiver::borrow);
        names.is_some_and(|names| names.0.iter().any(|name| normalized(name) == host))
    }
}

/// Host names ignore case, and a final dot changes nothing.
fn normalized(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Answers requests that pass the checks; other pages may not embed the answers.
pub async fn check(State(names): State<PublicNames>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_other = OTHER_GRPC_PATHS.iter().any(|start| path.starts_with(start));
    let is_grpc = path.starts_with(GRPC_PATH) || is_other;
    let checked = if is_grpc {
        check_grpc(&request)
    } else {
        check_reader(&names, &request)
    };
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(answer) => answer.into_response(),
    };
    let same_origin = HeaderValue::from_static("same-origin");
    response
        .headers_mut()
        .insert(RESOURCE_POLICY, same_origin.clone());
    response.headers_mut().insert(OPENER_POLICY, same_origin);
    response
}

fn check_grpc(request: &Request) -> Result<(), ErrorAnswer> {
    let headers = request.headers();
    let from_page = headers.contains_key(header::ORIGIN) || headers.contains_key(SEC_FETCH_SITE);
    if from_page {
        return Err(forbidden(
            "agents only: this request comes from a web page".to_owned(),
        ));
    }
    let content_type = text(headers, header::CONTENT_TYPE);
    let is_grpc = content_type == "application/grpc" || content_type == "application/grpc+proto";
    if !is_grpc || request.version() != Version::HTTP_2 {
        let error = "agents only: gRPC needs HTTP/2 and the content type `application/grpc`";
        return Err(ErrorAnswer::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            error.to_owned(),
        ));
    }
    Ok(())
}

fn check_reader(names: &PublicNames, request: &Request) -> Result<(), ErrorAnswer> {
    let headers = request.headers();
    // In HTTP/2 the host is part of the address.
    let host = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => text(headers, header::HOST),
    };
    let Ok(authority) = host.parse::<Authority>() else {
        let error = "a request needs one valid `Host` header".to_owned();
        return Err(ErrorAnswer::new(StatusCode::BAD_REQUEST, error));
    };
    if !names.allow(authority.host()) {
        let name = bounded(authority.host(), SHOWN_BYTES_MAX);
        let error = format!(
            "the collector does not answer as `{name}`; use its IP address or `localhost`, or start \
             it with `--public-name {name}`"
        );
        return Err(ErrorAnswer::new(StatusCode::MISDIRECTED_REQUEST, error));
    }
    if headers.contains_key(header::ORIGIN) {
        let origin = text(headers, header::ORIGIN);
        let from = origin
            .split_once("://")
            .map_or("", |(_, authority)| authority);
        if !from.eq_ignore_ascii_case(authority.as_str()) {
            let origin = bounded(origin, SHOWN_BYTES_MAX);
            return Err(forbidden(format!(
                "pages of `{origin}` may not use the collector"
            )));
        }
    }
    if is_from_other_site(headers) && !is_followed_link(request) {
        return Err(forbidden(
            "other sites may link to the collector, not embed it".to_owned(),
        ));
    }
    Ok(())
}

/// Whether a browser follows a link of another site: it sends no cookie that is `SameSite=Strict` then.
pub fn is_from_other_site(headers: &HeaderMap) -> bool {
    !["", "none", "same-origin"].contains(&text(headers, SEC_FETCH_SITE))
}

/// Whether the browser opens this address as a page of its own.
fn is_followed_link(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && text(headers, SEC_FETCH_MODE) == "navigate"
        && text(headers, SEC_FETCH_DEST) == "document"
}

/// A header's text; empty if it is absent, repeated or not ASCII.
fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    let mut values = headers.get_all(name).iter();
    let first = values.next().and_then(|value| value.to_str().ok());
    match values.next() {
        None => first.unwrap_or(""),
        Some(_) => "",
    }
}

fn forbidden(error: String) -> ErrorAnswer {
    ErrorAnswer::new(StatusCode::FORBIDDEN, error)
}
