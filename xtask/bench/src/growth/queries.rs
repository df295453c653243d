//! Nine queries, as Grafana asks them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use simulation::process::Process;

use super::{SERVICE, WINDOW_S};

/// Times that each query is asked, after a first time that does not count.
const ROUNDS: usize = 5;

/// Longest range of the queries that have a fixed one.
const FIVE_MINUTES_S: i64 = 300;

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

/// Cost of a query.
pub(super) struct Answered {
    pub(super) name: &'static str,
    /// Of one answer.
    pub(super) cpu: Duration,
    /// From the request to the end of the answer.
    pub(super) median: Duration,
}

/// Asks about what was pushed in a range.
pub(super) struct QueryLoad<'a> {
    pub(super) address: SocketAddr,
    pub(super) process: &'a Process,
    pub(super) start_s: i64,
    pub(super) end_s: i64,
}

impl QueryLoad<'_> {
    /// The cost of each query that the collector answers.
    pub(super) fn ask_all(&self) -> Result<Vec<Answered>> {
        let middle_s = (self.start_s + self.end_s) / 2;
        let fifth = "region=\"r0\"";
        let recent_s = self.start_s.max(self.end_s - FIVE_MINUTES_S);
        let halves = json!({
            "left": self.range("", self.start_s, middle_s),
            "right": self.range("", middle_s, self.end_s),
        });
        let values = json!({
            "name": "instance", "start": self.start_s * 1_000, "end": self.end_s * 1_000,
        });
        let stacks = "SelectMergeStacktraces";
        let queries = [
            ("all", stacks, self.all_time("")),
            ("one instance", stacks, self.all_time("instance=\"i-7\"")),
            (
                "a fifth, 5 minutes",
                stacks,
                self.range(fifth, recent_s, self.end_s),
            ),
            ("a fifth, all time", stacks, self.all_time(fifth)),
            ("series, total", "SelectSeries", self.series(&[])),
            (
                "series, by region",
                "SelectSeries",
                self.series(&["region"]),
            ),
            (
                "series, by instance",
                "SelectSeries",
                self.series(&["instance"]),
            ),
            ("difference of halves", "Diff", halves),
            ("values of a label", "LabelValues", values),
        ];
        let mut answers = Vec::new();
        for (name, method, body) in queries {
            match self.ask(name, method, &body)? {
                Some(answered) => answers.push(answered),
                None => eprintln!("{name}: refused"),
            }
        }
        Ok(answers)
    }

    fn all_time(&self, matcher: &str) -> Value {
        self.range(matcher, self.start_s, self.end_s)
    }

    fn range(&self, matcher: &str, from_s: i64, to_s: i64) -> Value {
        let both = [&format!("service_name=\"{SERVICE}\""), matcher]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(",");
        json!({
            "profileTypeID": CPU, "labelSelector": format!("{{{both}}}"),
            "start": from_s * 1_000, "end": to_s * 1_000,
        })
    }

    fn series(&self, by: &[&str]) -> Value {
        let mut body = self.range("", self.start_s, self.end_s);
        body["groupBy"] = json!(by);
        body["step"] = json!(1.5 * WINDOW_S as f64);
        body
    }

    /// `None` if the collector refuses the query.
    fn ask(&self, name: &'static str, method: &str, body: &Value) -> Result<Option<Answered>> {
        let url = format!("http://{}/querier.v1.QuerierService/{method}", self.address);
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        let text = body.to_string();
        if !is_answered(&agent, &url, &text)? {
            return Ok(None);
        }
        let before = self.process.usage()?.cpu;
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            is_answered(&agent, &url, &text)?;
            took.push(begin.elapsed());
        }
        let cpu = self.process.usage()?.cpu - before;
        took.sort_unstable();
        Ok(Some(Answered {
            name,
            cpu: cpu / ROUNDS as u32,
            median: took[ROUNDS / 2],
        }))
    }
}

/// Asks once and reads the whole answer. Returns whether it is no error.
fn is_answered(agent: &ureq::Agent, url: &str, text: &str) -> Result<bool> {
    let request = agent.post(url).header("content-type", "application/json");
    let mut answer = request.send(text)?;
    let body = answer.body_mut().with_config().limit(u64::MAX);
    body.read_to_vec()?;
    Ok(answer.status() == 200)
}
