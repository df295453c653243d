//! Questions to the collector, as a person asks them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// One collector's API, on one connection that is kept.
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
        Api { agent, url: format!("http://{address}/api/v1/") }
    }

    /// `GET path`, which must succeed.
    ///
    /// # Errors
    /// If it does not.
    pub fn text(&self, path: &str) -> Result<String> {
        text_of(&mut self.get(path)?)
    }

    /// `GET path`, as JSON.
    ///
    /// # Errors
    /// If it does not succeed, or is none.
    pub fn json(&self, path: &str) -> Result<Value> {
        let text = self.text(path)?;
        serde_json::from_str(&text).with_context(|| format!("{path} is no JSON"))
    }

    /// How long an answer took, read to its end.
    ///
    /// # Errors
    /// If it does not succeed.
    pub fn time(&self, path: &str) -> Result<Timed> {
        let begin = Instant::now();
        let mut response = self.get(path)?;
        let timing = response.headers().get("server-timing").and_then(|value| value.to_str().ok());
        let made_ms = timing.and_then(|text| {
            let text = text.split("answer;dur=").nth(1)?;
            text.split([',', ';']).next()?.trim().parse().ok()
        });
        let bytes = text_of(&mut response)?.len();
        Ok(Timed { took: begin.elapsed(), made_ms, bytes })
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
    Ok(response.body_mut().with_config().limit(u64::MAX).read_to_string()?)
}

/// What an answer took.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// From the question to the end of the answer's text.
    pub took: Duration,
    /// Of that, to make the answer before it was written, in milliseconds, if the collector tells.
    pub made_ms: Option<f64>,
    /// Length of the text.
    pub bytes: usize,
}
