//! Questions to a collector over HTTP.

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

/// For a connection; a collector is near or it is not there.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// For a whole answer: the collector itself gives up on a question after some 10 s of waiting.
const ANSWER_WAIT: Duration = Duration::from_secs(120);
/// Largest answer that is read: the nodes of a large fleet as JSON.
const ANSWER_BYTES_MAX: u64 = 2 << 30;
/// Longest text of a failure that is repeated, in characters.
const ECHO_CHARS_MAX: usize = 300;

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ClientError {
    /// The collector says that the question is wrong.
    #[error("{0}")]
    Refused(String),
    /// Nothing answers.
    #[error(
        "no collector answers at {url}\nstart one with `emberline serve` or `emberline demo`, or \
         say where one is with --url or EMBERLINE_URL"
    )]
    Unreachable {
        url: String,
        #[source]
        source: ureq::Error,
    },
    /// The address is none.
    #[error("{url:?} is no address of a collector; it looks like http://127.0.0.1:4747")]
    Url { url: String },
    /// It answers, but not with what was asked for.
    #[error("the collector at {url} could not answer (HTTP {status}): {text}")]
    Failed { url: String, status: u16, text: String },
    /// The answer is not what a collector says.
    #[error("what answers at {url} does not speak like a collector of this version")]
    Foreign {
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
    /// A client of the collector at `url`, which is not asked yet.
    ///
    /// # Errors
    /// [`ClientError::Url`] if it is no HTTP address.
    pub(crate) fn new(url: &str) -> Result<Self, ClientError> {
        let trimmed = url.trim_end_matches('/');
        let host = trimmed.strip_prefix("http://").unwrap_or_default();
        if host.is_empty() || host.contains(['/', '?', '#']) || host.contains(char::is_whitespace) {
            return Err(ClientError::Url { url: url.to_owned() });
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_WAIT))
            .timeout_global(Some(ANSWER_WAIT))
            .max_redirects(0)
            // A collector is on this machine or in the fleet's network, not behind a proxy.
            .proxy(None)
            .user_agent(concat!("emberline/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Client { url: trimmed.to_owned(), agent: config.new_agent() })
    }

    /// The answer to `GET /api/v1/{path}` with these parameters, which may repeat.
    ///
    /// # Errors
    /// [`ClientError`] if it is not reachable, refuses, or fails.
    pub(crate) fn get(&self, path: &str, query: &Query) -> Result<Answer, ClientError> {
        let request = self.agent.get(self.address(path)).query_pairs(query.pairs());
        self.answer(request.call())
    }

    /// The answer to `PUT /api/v1/{path}` with these parameters and this body.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub(crate) fn put(
        &self,
        path: &str,
        query: &Query,
        body: &Value,
    ) -> Result<Answer, ClientError> {
        let request = self.agent.put(self.address(path)).query_pairs(query.pairs());
        self.answer(request.send_json(body))
    }

    /// The answer to `POST /api/v1/{path}` with this body.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Answer, ClientError> {
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
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .map_err(unreachable)?;
        match status {
            200..300 => Ok(Answer { body, headers: response.headers().clone() }),
            400..500 => Err(self.refused(status, &body)),
            _ => Err(self.failed(status, &body)),
        }
    }

    /// The same, as JSON.
    pub(crate) fn get_json<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<T, ClientError> {
        let answer = self.get(path, query)?;
        self.parse(&answer.body)
    }

    /// An answer's body as JSON.
    pub(crate) fn parse<T: serde::de::DeserializeOwned>(
        &self,
        body: &[u8],
    ) -> Result<T, ClientError> {
        serde_json::from_slice(body)
            .map_err(|source| ClientError::Foreign { url: self.url.clone(), source })
    }

    fn refused(&self, status: u16, body: &[u8]) -> ClientError {
        match serde_json::from_slice(body).ok().and_then(refusal) {
            Some(text) => ClientError::Refused(text),
            // Something else listens there, or it is another version.
            None => self.failed(status, body),
        }
    }

    fn failed(&self, status: u16, body: &[u8]) -> ClientError {
        let text = String::from_utf8_lossy(body);
        let said = serde_json::from_slice::<Value>(body).ok();
        let said = said.as_ref().and_then(|value| value["error"].as_str());
        ClientError::Failed {
            url: self.url.clone(),
            status,
            text: said.unwrap_or(text.trim()).chars().take(ECHO_CHARS_MAX).collect(),
        }
    }
}

/// What a collector said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Vec<u8>,
    headers: ureq::http::HeaderMap,
}

impl Answer {
    /// A header's value, if it was given and is of type `T`.
    pub(crate) fn header<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }
}

/// Parameters of a question, in the order given.
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

/// The text of `{"error", "allowed", "nearest"}`; `None` if it is not of that form. What the error
/// already says is not said again.
fn refusal(body: Value) -> Option<String> {
    let error = body["error"].as_str()?;
    let mut text = error.to_owned();
    for (field, label) in [("nearest", "nearest"), ("allowed", "allowed")] {
        let said: Vec<&str> = match &body[field] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if said.iter().any(|word| !error.contains(word)) {
            text.push_str(&format!("\n{label}: {}", said.join(", ")));
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_says_what_is_allowed_once() {
        for (body, expected) in [
            (json!({"error": "no"}), Some("no")),
            (
                json!({"error": "no task is called \"laod\"", "nearest": ["load", "loud"]}),
                Some("no task is called \"laod\"\nnearest: load, loud"),
            ),
            (
                json!({"error": "by=\"x\" is not known; allowed are: function, line",
                    "allowed": ["function", "line"], "nearest": null}),
                Some("by=\"x\" is not known; allowed are: function, line"),
            ),
            (
                json!({"error": "no", "allowed": "1 to 10", "nearest": []}),
                Some("no\nallowed: 1 to 10"),
            ),
            (json!({"message": "not found"}), None),
            (json!([1]), None),
        ] {
            assert_eq!(refusal(body).as_deref(), expected);
        }
    }

    #[test]
    fn addresses_are_checked_before_anything_is_asked() {
        for url in ["http://127.0.0.1:4747", "http://[::1]:4747/", "http://host"] {
            assert!(Client::new(url).is_ok(), "{url}");
        }
        for url in ["", "127.0.0.1:4747", "https://host", "http://", "http://a b", "http://a/b"] {
            let error = Client::new(url).unwrap_err().to_string();
            assert!(error.contains("it looks like http://127.0.0.1:4747"), "{error}");
        }
    }

    #[test]
    fn nobody_there_says_how_to_start_a_collector() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = Client::new(&url).unwrap().get("workers", &Query::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&url) && error.contains("emberline serve"), "{error}");
        assert!(error.contains("EMBERLINE_URL"), "{error}");
    }
}
