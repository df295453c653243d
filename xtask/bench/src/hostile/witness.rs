//! Data of honest ones that must be found next to a stranger's names: a task and the operator's run.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// The honest agent's task.
pub(super) const TASK: &str = "honest-task";

/// The run that the operator marks.
pub(super) const OPERATOR_RUN: &str = "release-1";

/// Longest answer: a summary of 10,000 names.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The operator, before an attack.
pub(super) struct Witness {
    address: SocketAddr,
    /// The run as the collector answered.
    run: Value,
}

impl Witness {
    /// Marks the operator's run.
    pub(super) fn start(address: SocketAddr) -> Result<Witness> {
        let body = json!({"name": OPERATOR_RUN}).to_string();
        let mut run = Value::Null;
        for route in ["runs", "runs/stop"] {
            let request = ureq::post(format!("http://{address}/api/v1/{route}"))
                .header("content-type", "application/json");
            let text = request.send(&body)?.body_mut().read_to_string()?;
            run = serde_json::from_str(&text)?;
        }
        Ok(Witness { address, run })
    }

    /// Names the parts of the task and the run that are no longer found.
    pub(super) fn missing(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        let compare = "tasks/compare?before_from=-20m&before_to=-10m&from=-10m";
        for path in ["tasks?summary=true", compare] {
            let answer = self.get(path)?;
            let rows = answer["names"].as_array().context("no names")?;
            if !rows.iter().any(|row| row["name"] == TASK) {
                let route = path.split('?').next().unwrap_or(path);
                missing.push(format!("{TASK} in {route}"));
            }
        }
        // The runs that `run` means in other queries.
        let answer = self.get(&format!("runs?run={OPERATOR_RUN}"))?;
        let runs = answer["runs"].as_array().map_or(&[][..], |runs| runs);
        let is_meant = matches!(runs, [run] if ["id", "start_ns", "stop_ns", "worker"]
            .iter()
            .all(|field| run[*field] == self.run[*field]));
        if !is_meant {
            missing.push(format!("the operator's {OPERATOR_RUN}"));
        }
        Ok(missing)
    }

    fn get(&self, path: &str) -> Result<Value> {
        let url = format!("http://{}/api/v1/{path}", self.address);
        // A missing run is an answer too.
        let request = ureq::get(url).config().http_status_as_error(false).build();
        let mut answer = request.call()?;
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        Ok(serde_json::from_str(&body.read_to_string()?)?)
    }
}
