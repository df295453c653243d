//! Requests to a collector over HTTP.

mod connect;
pub(crate) mod external;

use std::borrow::Cow;
use std::io::{self, Read};
use std::time::Duration;

use api::Failure;
use profiler_core::{Endpoint, Token};
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tls::{ClientOptions, TlsError};
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, TcpConnector};
use ureq::{Agent, RequestBuilder};

use self::connect::{TlsConnector, UnixConnector};
use crate::credentials;

/// Longest wait for a connection: collectors are on this machine or in the same network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a whole response; the collector itself rejects queries that wait for 10 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);
/// Largest response that is read: the nodes of a large fleet as JSON.
const RESPONSE_BYTES_MAX: u64 = 2 << 30;
/// Longest part of a failed response that is shown, in characters.
const ECHO_CHARS_MAX: usize = 300;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ClientError {
    /// The collector rejected the request as invalid.
    #[error("{0}")]
    Rejected(String),
    /// The collector needs a token, or one with another role.
    #[error("{0}")]
    Denied(String),
    /// No response.
    #[error(
        "no response from a collector at {url}\nstart one with `emberline serve` or `emberline demo`, \
         or set --url or EMBERLINE_URL"
    )]
    Unreachable {
        url: String,
        #[source]
        source: ureq::Error,
    },
    /// The URL is invalid.
    #[error(
        "invalid collector URL {url:?}: {reason}; expected http://HOST:PORT, such as \
         http://127.0.0.1:4747, https://HOST:PORT or unix:/PATH"
    )]
    Url { url: String, reason: String },
    /// TLS with the collector failed.
    #[error("no connection to {url}: {reason}")]
    Tls { url: String, reason: String },
    /// TLS cannot be set up.
    #[error(transparent)]
    Setup(#[from] TlsError),
    /// The collector failed to answer.
    #[error("the collector at {url} failed (HTTP {status}): {text}")]
    Failed {
        url: String,
        status: u16,
        text: String,
    },
    /// The body is not what the API defines.
    #[error("unexpected response from {url}: not an Emberline collector, or another version")]
    Unexpected {
        url: String,
        #[source]
        source: serde_json::Error,
    },
}

/// Requests to a Unix socket are addressed to this host, which is not looked up.
const SOCKET_HOST: &str = "http://127.0.0.1";

/// A URL with the scheme that `HOST:PORT` lacks.
pub(crate) fn with_scheme(url: &str) -> Cow<'_, str> {
    let port = url
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty() && !url.contains('/'));
    match port.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(_)) => format!("http://{url}").into(),
        _ => url.into(),
    }
}

/// One collector.
#[derive(Debug)]
pub(crate) struct Client {
    /// As the user wrote it.
    url: String,
    /// The start of the URLs of requests.
    base: String,
    agent: Agent,
    token: Option<Token>,
}

impl Client {
    /// A client of the collector at `url` with the token for it; connects at the first request.
    ///
    /// # Errors
    /// [`ClientError::Url`] if it is no URL of a collector, [`ClientError::Setup`] if TLS cannot be used,
    /// `BadInput` if the token is invalid.
    pub(crate) fn new(url: &str) -> anyhow::Result<Self> {
        let token = credentials::token(url)?;
        Ok(Client::with_token(url, token)?)
    }

    /// The same with this token.
    pub(crate) fn with_token(url: &str, token: Option<Token>) -> Result<Self, ClientError> {
        let full_url = with_scheme(url);
        let endpoint =
            Endpoint::parse(&full_url).map_err(|error| invalid_url(url, error.to_string()))?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(RESPONSE_TIMEOUT))
            .max_redirects(0)
            // A collector is on this machine or in the fleet's network, not behind a proxy.
            .proxy(None)
            .user_agent(concat!("emberline/", env!("CARGO_PKG_VERSION")))
            .build();
        let (scheme, authority, agent) = match endpoint {
            Endpoint::Plain { authority } => ("http://", authority, config.new_agent()),
            Endpoint::Tls { authority, pin } => {
                let options = ClientOptions::from_environment(pin, |name| std::env::var_os(name))?;
                let agent = tls_agent(config, &authority, &options)?;
                ("https://", authority, agent)
            }
            Endpoint::Unix { path } => {
                let connector = UnixConnector { path };
                let agent = Agent::with_parts(config, connector, DefaultResolver::default());
                return Ok(Client {
                    url: url.to_owned(),
                    base: SOCKET_HOST.to_owned(),
                    agent,
                    token,
                });
            }
        };
        let base = format!("{scheme}{authority}");
        let after = full_url[base.len()..].split('#').next().unwrap_or_default();
        if !after.chars().all(|character| character == '/') {
            return Err(invalid_url(url, format!("{after:?} follows the host")));
        }
        if authority.contains(char::is_whitespace) {
            return Err(invalid_url(url, "it contains a blank".to_owned()));
        }
        Ok(Client {
            url: url.trim_end_matches('/').to_owned(),
            base,
            agent,
            token,
        })
    }

    /// Sends `GET /api/v1/{path}` with these parameters, which may repeat.
    ///
    /// # Errors
    /// [`ClientError`] if it is not reachable, rejects the request, or fails.
    pub(crate) fn get(&self, path: &str, query: &Query) -> Result<Answer, ClientError> {
        let request = self
            .with_authorization(self.agent.get(self.address(path)))
            .query_pairs(query.pairs());
        self.answer(request.call())
    }

    /// Like [`Client::get`], but the body is read as it arrives.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub(crate) fn stream(&self, path: &str, query: &Query) -> Result<Stream, ClientError> {
        let request = self.with_authorization(self.agent.get(self.address(path)));
        let response = request.query_pairs(query.pairs()).call();
        if !response
            .as_ref()
            .is_ok_and(|response| response.status().is_success())
        {
            self.answer(response)?;
            return Err(ClientError::Failed {
                url: self.url.clone(),
                status: 0,
                text: format!("{path} has no body"),
            });
        }
        let response = response.map_err(|error| self.unreachable(error))?;
        let (parts, body) = response.into_parts();
        let body = body.into_with_config().limit(RESPONSE_BYTES_MAX).reader();
        Ok(Stream {
            body,
            headers: parts.headers,
        })
    }

    /// Sends `PUT /api/v1/{path}` with these parameters and this body.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub(crate) fn put(
        &self,
        path: &str,
        query: &Query,
        body: &impl Serialize,
    ) -> Result<Answer, ClientError> {
        let request = self
            .with_authorization(self.agent.put(self.address(path)))
            .query_pairs(query.pairs());
        self.answer(request.send_json(body))
    }

    /// Sends `POST /api/v1/{path}` with this body.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub(crate) fn post(&self, path: &str, body: &impl Serialize) -> Result<Answer, ClientError> {
        let request = self.with_authorization(self.agent.post(self.address(path)));
        self.answer(request.send_json(body))
    }

    /// Sends `POST /api/v1/{path}` with these parameters and bytes.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub(crate) fn post_bytes(
        &self,
        path: &str,
        query: &Query,
        body: &[u8],
    ) -> Result<Answer, ClientError> {
        let request = self
            .with_authorization(self.agent.post(self.address(path)))
            .query_pairs(query.pairs());
        self.answer(
            request
                .header("content-type", "application/octet-stream")
                .send(body),
        )
    }

    fn with_authorization<T>(&self, request: RequestBuilder<T>) -> RequestBuilder<T> {
        match &self.token {
            Some(token) => request.header("authorization", token.bearer().as_str()),
            None => request,
        }
    }

    fn address(&self, path: &str) -> String {
        format!("{}/api/v1/{path}", self.base)
    }

    fn answer(
        &self,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Answer, ClientError> {
        let unreachable = |source| self.unreachable(source);
        let mut response = response.map_err(|error| match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => ClientError::Url {
                url: self.url.clone(),
                reason: error.to_string(),
            },
            error => unreachable(error),
        })?;
        let status = response.status().as_u16();
        let body = response
            .body_mut()
            .with_config()
            .limit(RESPONSE_BYTES_MAX)
            .read_to_vec()
            .map_err(unreachable)?;
        match status {
            200..300 => Ok(Answer {
                body,
                headers: response.headers().clone(),
            }),
            400..500 => Err(self.rejected(status, &body)),
            _ => Err(self.failed(status, &body)),
        }
    }

    /// Sends `GET /api/v1/{path}` and parses the JSON body.
    pub(crate) fn get_json<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<T, ClientError> {
        let answer = self.get(path, query)?;
        self.parse(&answer.body)
    }

    /// Parses a JSON body.
    pub(crate) fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|source| ClientError::Unexpected {
            url: self.url.clone(),
            source,
        })
    }

    fn unreachable(&self, source: ureq::Error) -> ClientError {
        let url = self.url.clone();
        let explained = match &source {
            ureq::Error::Io(error) => tls::explain(error),
            _ => None,
        };
        match explained {
            Some(reason) => ClientError::Tls { url, reason },
            None => ClientError::Unreachable { url, source },
        }
    }

    fn rejected(&self, status: u16, body: &[u8]) -> ClientError {
        match serde_json::from_slice(body) {
            Ok(failure) if [401, 403].contains(&status) => {
                ClientError::Denied(failure_text(&failure))
            }
            Ok(failure) => ClientError::Rejected(failure_text(&failure)),
            // Another server, or another version.
            Err(_) => self.failed(status, body),
        }
    }

    fn failed(&self, status: u16, body: &[u8]) -> ClientError {
        let failure: Result<Failure, _> = serde_json::from_slice(body);
        let message = match failure {
            Ok(failure) => failure.error,
            Err(_) => String::from_utf8_lossy(body).into_owned(),
        };
        let text = message.trim().chars().take(ECHO_CHARS_MAX).collect();
        ClientError::Failed {
            url: self.url.clone(),
            status,
            text,
        }
    }
}

fn invalid_url(url: &str, reason: String) -> ClientError {
    ClientError::Url {
        url: url.to_owned(),
        reason,
    }
}

/// An agent that speaks TLS with the host of this authority.
fn tls_agent(
    config: Config,
    authority: &str,
    options: &ClientOptions,
) -> Result<Agent, ClientError> {
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host)
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name = ServerName::try_from(host.clone()).map_err(|_| TlsError::Host { host })?;
    let connector = TlsConnector {
        config: options.config(&[b"http/1.1"])?,
        host: name,
    };
    let connector = TcpConnector::default().chain(connector);
    Ok(Agent::with_parts(
        config,
        connector,
        DefaultResolver::default(),
    ))
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Vec<u8>,
    headers: ureq::http::HeaderMap,
}

impl Answer {
    /// The value of a header, if it is present and of type `T`.
    pub(crate) fn header<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        parsed(&self.headers, name)
    }

    /// The number in a header, 0 if it is not there.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.header(name).unwrap_or(0)
    }
}

/// A response whose body is read as it arrives.
pub(crate) struct Stream {
    body: ureq::BodyReader<'static>,
    headers: ureq::http::HeaderMap,
}

impl Stream {
    /// The value of a header, if it is present and of type `T`.
    pub(crate) fn header<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        parsed(&self.headers, name)
    }

    /// The number in a header, 0 if it is not there.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.header(name).unwrap_or(0)
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.body.read(into)
    }
}

fn parsed<T: std::str::FromStr>(headers: &ureq::http::HeaderMap, name: &str) -> Option<T> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Parameters of a request, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// With the parameters of another one.
    #[must_use]
    pub(crate) fn and(mut self, other: Query) -> Self {
        self.0.extend(other.0);
        self
    }

    /// With one more parameter.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    /// With one more parameter for each value.
    #[must_use]
    pub(crate) fn with_each<S: Into<String>>(
        self,
        name: &'static str,
        values: impl IntoIterator<Item = S>,
    ) -> Self {
        values
            .into_iter()
            .fold(self, |query, value| query.with(name, value))
    }
}

/// The error, with the allowed and nearest words that it does not contain itself.
fn failure_text(failure: &Failure) -> String {
    let mut text = failure.error.clone();
    for (label, words) in [("nearest", &failure.nearest), ("allowed", &failure.allowed)] {
        let words = words.as_deref().unwrap_or_default();
        if words.iter().any(|word| !failure.error.contains(word)) {
            text.push_str(&format!("\n{label}: {}", words.join(", ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_lists_allowed_words_once() {
        let invalid = "invalid by=\"x\"; expected function, line";
        for (error, allowed, nearest, expected) in [
            ("no", None, None, "no"),
            ("no", None, words(&[]), "no"),
            (
                "unknown task \"laod\"",
                None,
                words(&["load", "loud"]),
                "unknown task \"laod\"\nnearest: load, loud",
            ),
            (invalid, words(&["function", "line"]), None, invalid),
            (
                "no",
                words(&["1 to 10"]),
                words(&[]),
                "no\nallowed: 1 to 10",
            ),
        ] {
            let failure = Failure {
                error: error.to_owned(),
                allowed,
                nearest,
            };
            assert_eq!(failure_text(&failure), expected);
        }
        for body in ["{\"message\": \"not found\"}", "[1]", "nginx"] {
            let client = Client::with_token("http://host", None).unwrap();
            let error = client.rejected(404, body.as_bytes());
            assert!(matches!(error, ClientError::Failed { .. }), "{error}");
        }
    }

    fn words(words: &[&str]) -> Option<Vec<String>> {
        Some(words.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn invalid_urls_are_rejected() {
        let pinned = format!("https://host:4747#sha256={}", "0".repeat(64));
        let valid = [
            "http://127.0.0.1:4747",
            "http://[::1]:4747/",
            "http://host",
            "unix:/run/e.sock",
            "127.0.0.1:4747",
            "localhost:4747",
            "[::1]:4747",
        ];
        for url in valid.into_iter().chain([&*pinned]) {
            assert!(Client::with_token(url, None).is_ok(), "{url}");
        }
        for url in [
            "",
            "4747",
            "a/b",
            "ftp://host",
            "http://",
            "http://a b",
            "http://a/b",
            "http://a:99999",
        ] {
            let error = Client::with_token(url, None).unwrap_err().to_string();
            assert!(error.contains("such as http://127.0.0.1:4747"), "{error}");
        }
    }

    #[test]
    fn no_response_names_the_ways_to_start_a_collector() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = Client::with_token(&url, None)
            .unwrap()
            .get("workers", &Query::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&url) && error.contains("emberline serve"),
            "{error}"
        );
        assert!(error.contains("EMBERLINE_URL"), "{error}");
    }
}
