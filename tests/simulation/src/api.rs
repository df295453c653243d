//! Queries to the collector's HTTP API.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// One collector's API, over one persistent connection.
#[derive(Debug)]
pub struct Api {
    agent: ureq::Agent,
    url: String,
}

impl Api {
    /// The API at `address`.
    #[must_use]
    pub fn new(address: SocketAddr) -> Api {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build()
            .into();
        Api {
            agent,
            url: format!("http://{address}/api/v1/"),
        }
    }

    /// `GET path`; must succeed.
    ///
    /// # Errors
    /// If the request fails.
    pub fn text(&self, path: &str) -> Result<String> {
        text_of(&mut self.get(path)?)
    }

    /// `GET path`, as JSON.
    ///
    /// # Errors
    /// If the request fails or the answer is not JSON.
    pub fn json(&self, path: &str) -> Result<Value> {
        let text = self.text(path)?;
        serde_json::from_str(&text).with_context(|| format!("{path} is no JSON"))
    }

    /// Time of a query, read to its end.
    ///
    /// # Errors
    /// If the request fails.
    pub fn time(&self, path: &str) -> Result<Timed> {
        let begin = Instant::now();
        let mut response = self.get(path)?;
        let timing = response
            .headers()
            .get("server-timing")
            .and_then(|value| value.to_str().ok());
        let made_ms = timing.and_then(|text| {
            let text = text.split("answer;dur=").nth(1)?;
            text.split([',', ';']).next()?.trim().parse().ok()
        });
        let bytes = text_of(&mut response)?.len();
        Ok(Timed {
            took: begin.elapsed(),
            made_ms,
            bytes,
        })
    }

    fn get(&self, path: &str) -> Result<Response> {
        let mut response = self.agent.get(format!("{}{path}", self.url)).call()?;
        let status = response.status();
        if !status.is_success() {
            bail!("{path}: {status}: {}", text_of(&mut response)?);
        }
        Ok(response)
    }
}

type Response = ureq::http::Response<ureq::Body>;

fn text_of(response: &mut Response) -> Result<String> {
    Ok(response
        .body_mut()
        .with_config()
        .limit(u64::MAX)
        .read_to_string()?)
}

/// Cost of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// From the request to the end of the answer's body.
    pub took: Duration,
    /// Milliseconds to compute the answer before writing it, if the collector reports them.
    pub made_ms: Option<f64>,
    /// Length of the body.
    pub bytes: usize,
}
