//! The engines: each answers a query and says what it cost.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::{Value, json};
use simulation::ballista::BallistaCluster;
use simulation::process::{Running, Usage};

use super::{Query, Sums};
use crate::cluster::Programs;

/// Reads queries, a line each, and answers with its cost and the sums by task.
const PYTHON_PROGRAM: &str = include_str!("engine.py");

/// Cost of an answer.
pub(super) struct Cost {
    /// Until the answer was read to its end.
    pub(super) wall_ms: f64,
    /// Of all processes of the engine.
    pub(super) cpu_ms: f64,
}

pub(super) trait Engine {
    fn name(&self) -> &'static str;

    /// # Errors
    /// If the engine ends, fails, or returns something else than rows.
    fn ask(&mut self, query: &Query) -> Result<(Cost, Sums)>;
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Our merge: the collector's API.
pub(super) struct Api {
    collector: Running,
    api: simulation::Api,
}

impl Api {
    pub(super) fn new(collector: Running) -> Api {
        let api = simulation::Api::new(collector.address);
        Api { collector, api }
    }

    /// Returns the resources that the collector has used so far.
    pub(super) fn usage(&self) -> Result<Usage> {
        self.collector.process.usage()
    }
}

impl Engine for Api {
    fn name(&self) -> &'static str {
        "our merge"
    }

    fn ask(&mut self, query: &Query) -> Result<(Cost, Sums)> {
        let before = self.collector.process.usage()?.cpu;
        let begin = Instant::now();
        let text = self.api.text(&query.api)?;
        let wall_ms = milliseconds(begin.elapsed());
        let cpu_ms = milliseconds(self.collector.process.usage()?.cpu - before);
        let answer: Value = serde_json::from_str(&text)?;
        let sums = match answer["series"].as_array() {
            Some(series) => series.iter().map(of_series).collect::<Result<_>>()?,
            None => {
                let nodes = answer["profile"]["nodes"].as_array().context("no nodes")?;
                nodes
                    .iter()
                    .filter(|node| node["parent"] == 0)
                    .map(of_node)
                    .collect::<Result<_>>()?
            }
        };
        Ok((Cost { wall_ms, cpu_ms }, sums))
    }
}

fn of_series(series: &Value) -> Result<(String, u64)> {
    let name = series["name"].as_str().context("a series without a name")?;
    let total = series["totals"]["total_ns"]
        .as_u64()
        .context("a series without a total")?;
    Ok((name.to_owned(), total))
}

fn of_node(node: &Value) -> Result<(String, u64)> {
    let name = node["name"].as_str().context("a node without a name")?;
    let states = node["total"].as_object().context("a node without sums")?;
    // `lock`, `sleep` and such are parts of `wait`.
    let sums = ["cpu", "runnable", "wait"].map(|state| states.get(state).and_then(Value::as_u64));
    Ok((name.to_owned(), sums.into_iter().flatten().sum()))
}

/// `emberline sql`, a process for each query; on a cluster, if there is one.
pub(super) struct Sql {
    program: PathBuf,
    /// The argument that names the stores.
    place: String,
    cluster: Option<BallistaCluster>,
}

impl Sql {
    /// `place` is the argument that names the stores.
    pub(super) fn new(programs: &Programs, place: String, cluster: Option<BallistaCluster>) -> Sql {
        Sql {
            program: programs.emberline.clone(),
            place,
            cluster,
        }
    }

    /// CPU time of the children that have ended, and of the cluster.
    fn cpu(&self) -> Result<Duration> {
        let children = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let own =
            children.user_time().num_microseconds() + children.system_time().num_microseconds();
        let cluster = match &self.cluster {
            Some(cluster) => cluster.usage()?.iter().map(|usage| usage.cpu).sum(),
            None => Duration::ZERO,
        };
        Ok(Duration::from_micros(own.unsigned_abs()) + cluster)
    }
}

impl Engine for Sql {
    fn name(&self) -> &'static str {
        match self.cluster {
            None => "`emberline sql`",
            Some(_) => "`emberline sql` with Ballista",
        }
    }

    fn ask(&mut self, query: &Query) -> Result<(Cost, Sums)> {
        let mut command = Command::new(&self.program);
        command.args(["sql", "--format", "json", "--rows", "1000000", &self.place]);
        if let Some(cluster) = &self.cluster {
            command.args([
                "--scheduler",
                &cluster.scheduler,
                "--distribute-over",
                "0MB",
            ]);
        }
        let before = self.cpu()?;
        let begin = Instant::now();
        let output = command.arg(&query.sql).stdin(Stdio::null()).output()?;
        let wall_ms = milliseconds(begin.elapsed());
        let cpu_ms = milliseconds(self.cpu()?.saturating_sub(before));
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && said.is_empty(),
            "{}: {said}",
            query.sql
        );
        let answer: Value = serde_json::from_slice(&output.stdout)?;
        let mut sums = Sums::new();
        for row in answer["rows"].as_array().context("no rows")? {
            let row = row.as_array().context("a row is no list")?;
            let weight = row
                .last()
                .and_then(Value::as_u64)
                .context("a row without a weight")?;
            let task = row[0].as_str().context("a row without a task")?;
            *sums.entry(task.to_owned()).or_default() += weight;
        }
        Ok((Cost { wall_ms, cpu_ms }, sums))
    }
}

/// An engine with bindings for Python, in a process that stays.
pub(super) struct PythonEngine {
    name: &'static str,
    process: Child,
    queries: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl PythonEngine {
    /// `programs` is the folder of a Python environment's programs, `tables` that of the tables' folders.
    pub(super) fn start(
        name: &'static str,
        module: &str,
        programs: &Path,
        tables: &Path,
    ) -> Result<PythonEngine> {
        let mut process = Command::new(programs.join("python"))
            .args(["-c", PYTHON_PROGRAM, module])
            .arg(tables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let queries = process
            .stdin
            .take()
            .context("its standard input is piped")?;
        let answers = BufReader::new(
            process
                .stdout
                .take()
                .context("its standard output is piped")?,
        );
        Ok(PythonEngine {
            name,
            process,
            queries,
            answers,
        })
    }
}

impl Engine for PythonEngine {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ask(&mut self, query: &Query) -> Result<(Cost, Sums)> {
        writeln!(self.queries, "{}", json!(query.plain))?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let answer: Value =
            serde_json::from_str(&line).with_context(|| format!("{} ended", self.name))?;
        let number = |name: &str| answer[name].as_f64().with_context(|| format!("no {name}"));
        let cost = Cost {
            wall_ms: number("wall_ms")?,
            cpu_ms: number("cpu_ms")?,
        };
        let sums = answer["sums"].as_object().context("no sums")?;
        Ok((
            cost,
            sums.iter()
                .filter_map(|(task, sum): (&String, &Value)| Some((task.clone(), sum.as_u64()?)))
                .collect(),
        ))
    }
}

impl Drop for PythonEngine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
