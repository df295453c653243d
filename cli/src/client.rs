//! Requests to a collector over HTTP.

use std::time::Duration;

use api::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::Agent;

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
        "invalid collector URL {url:?}; expected http://HOST:PORT, such as http://127.0.0.1:4747"
    )]
    Url { url: String },
    /// The collector failed to answer.
    #[error("the collector at {url} failed (HTTP {status}): {text}")]
    Failed { url: String, status: u16, text: String },
    /// The body is not what the API defines.
    #[error("unexpected response from {url}: not an Emberline collector, or another version")]
    Unexpected {
        url: String,
        #[source]
        source: serde_json::Error,
    },
}

/// One collector.
#[derive(Debug)]
pub(crate) struct Client {
    url: String,
    agent: Agent,
}

impl Client {
    /// A client of the collector at `url`; connects at the first request.
    ///
    /// # Errors
    /// [`ClientError::Url`] if it is no HTTP URL.
    pub(crate) fn new(url: &str) -> Result<Self, ClientError> {
        let trimmed = url.trim_end_matches('/');
        let host = trimmed.strip_prefix("http://").unwrap_or_default();
        if host.is_empty() || host.contains(['/', '?', '#']) || host.contains(char::is_whitespace) {
            return Err(ClientError::Url { url: url.to_owned() });
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(RESPONSE_TIMEOUT))
            .max_redirects(0)
            // A collector is on this machine or in the fleet's network, not behind a proxy.
            .proxy(None)
            .user_agent(concat!("emberline/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Client { url: trimmed.to_owned(), agent: config.new_agent() })
    }

    /// Sends `GET /api/v1/{path}` with these parameters, which may repeat.
    ///
    /// # Errors
    /// [`ClientError`] if it is not reachable, rejects the request, or fails.
    pub(crate) fn get(&self, path: &str, query: &Query) -> Result<Answer, ClientError> {
        let request = self.agent.get(self.address(path)).query_pairs(query.pairs());
        self.answer(request.call())
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
        let request = self.agent.put(self.address(path)).query_pairs(query.pairs());
        self.answer(request.send_json(body))
    }

    /// Sends `POST /api/v1/{path}` with this body.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub(crate) fn post(&self, path: &str, body: &impl Serialize) -> Result<Answer, ClientError> {
        self.answer(self.agent.post(self.address(path)).send_json(body))
    }

    fn address(&self, path: &str) -> String {
        format!("{}/api/v1/{path}", self.url)
    }

    fn answer(
        &self,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Answer, ClientError> {
        let unreachable = |source| ClientError::Unreachable { url: self.url.clone(), source };
        let mut response = response.map_err(|error| match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                ClientError::Url { url: self.url.clone() }
            }
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
            200..300 => Ok(Answer { body, headers: response.headers().clone() }),
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
        serde_json::from_slice(body)
            .map_err(|source| ClientError::Unexpected { url: self.url.clone(), source })
    }

    fn rejected(&self, status: u16, body: &[u8]) -> ClientError {
        match serde_json::from_slice(body) {
            Ok(failure) => ClientError::Rejected(failure_text(&failure)),
            // Another server, or another version.
            Err(_) => self.failed(status, body),
        }
    }

    fn failed(&self, status: u16, body: &[u8]) -> ClientError {
        let failure: Result<Failure, _> = serde_json::from_slice(body);
        let text = match failure {
            Ok(failure) => failure.error,
            Err(_) => String::from_utf8_lossy(body).into_owned(),
        };
        let text = text.trim().chars().take(ECHO_CHARS_MAX).collect();
        ClientError::Failed { url: self.url.clone(), status, text }
    }
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
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }
}

/// Parameters of a request, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
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
        values.into_iter().fold(self, |query, value| query.with(name, value))
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
        let words = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect());
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
            ("no", words(&["1 to 10"]), words(&[]), "no\nallowed: 1 to 10"),
        ] {
            let failure = Failure { error: error.to_owned(), allowed, nearest };
            assert_eq!(failure_text(&failure), expected);
        }
        for body in ["{\"message\": \"not found\"}", "[1]", "nginx"] {
            let client = Client::new("http://host").unwrap();
            let error = client.rejected(404, body.as_bytes());
            assert!(matches!(error, ClientError::Failed { .. }), "{error}");
        }
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for url in ["http://127.0.0.1:4747", "http://[::1]:4747/", "http://host"] {
            assert!(Client::new(url).is_ok(), "{url}");
        }
        for url in ["", "127.0.0.1:4747", "https://host", "http://", "http://a b", "http://a/b"] {
            let error = Client::new(url).unwrap_err().to_string();
            assert!(error.contains("such as http://127.0.0.1:4747"), "{error}");
        }
    }

    #[test]
    fn no_response_names_the_ways_to_start_a_collector() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = Client::new(&url).unwrap().get("workers", &Query::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&url) && error.contains("emberline serve"), "{error}");
        assert!(error.contains("EMBERLINE_URL"), "{error}");
    }
}
