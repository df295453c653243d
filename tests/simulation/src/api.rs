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
        let mut response = self.agent.get(format!("{}{path}", self.url)).call()?;
        let status = response.status();
        let text = response.body_mut().with_config().limit(u64::MAX).read_to_string()?;
        if !status.is_success() {
            bail!("{path}: {status}: {text}");
        }
        Ok(text)
    }

    /// `GET path`, as JSON.
    ///
    /// # Errors
    /// If it does not succeed, or is none.
    pub fn json(&self, path: &str) -> Result<Value> {
        let text = self.text(path)?;
        serde_json::from_str(&text).with_context(|| format!("{path} is no JSON"))
    }

    /// How long an answer took, read to its end, and its bytes.
    ///
    /// # Errors
    /// If it does not succeed.
    pub fn time(&self, path: &str) -> Result<(Duration, usize)> {
        let begin = Instant::now();
        let text = self.text(path)?;
        Ok((begin.elapsed(), text.len()))
    }
}
