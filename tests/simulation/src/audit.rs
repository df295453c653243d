//! The oracle: queries the collector and compares each answer with the fleet's own record. Every
//! number must be exact. A flush that was sent and never acknowledged may be held or not; the
//! collector's own mark decides.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context as _, Result, bail};
use profiler_core::wire::v1;
use profiler_core::{NodeId, State};
use serde_json::Value;

use crate::api::Api;
use crate::program::Program;
use crate::record::{Life, Record, Sums, Violation};

/// Exact counts.
type Table = BTreeMap<String, u64>;

/// Most steps of a timeline query; the collector allows 4,000.
const STEPS_MAX: i64 = 3_900;
/// Most task rows that a collector returns.
const ROWS_MAX: u64 = 100_000;
const NO_LIST: &[Value] = &[];

/// One audit: the records of an idle fleet, over a span of seconds that contains all of it.
#[derive(Debug)]
pub struct Audit<'a> {
    api: &'a Api,
    program: &'a Program,
    span: Range<i64>,
    violations: Vec<Violation>,
}

impl<'a> Audit<'a> {
    /// Runs every query; returns the differences. `closer` are shorter spans that are also checked
    /// second by second.
    ///
    /// # Errors
    /// If the collector does not answer.
    pub fn run(
        api: &'a Api,
        program: &'a Program,
        records: &[Record],
        span: Range<i64>,
        closer: &[Range<i64>],
    ) -> Result<Vec<Violation>> {
        let mut audit = Audit {
            api,
            program,
            span,
            violations: Vec::new(),
        };
        let sessions = Sessions::ask(api)?;
        let mut all = Sums::default();
        let mut rows = Vec::new();
        for record in records {
            let sums = audit.lives(record, &sessions);
            let worker = &record.worker;
            let sum = total(&sums);
            audit.profile(&format!("&worker={worker}"), &sum)?;
            audit.timeline(worker, &sum, audit.span.clone())?;
            for span in closer {
                audit.timeline(worker, &sum, span.clone())?;
            }
            audit.tasks(record, &sums)?;
            add(&mut all, &sum);
            rows.extend(sums.into_iter().flat_map(|sums| sums.tasks.into_values()));
        }
        audit.profile("", &all)?;
        audit.summary(&rows)?;
        Ok(audit.violations)
    }

    /// Checks marks and accounts of a worker's lives; returns what is held of each.
    fn lives(&mut self, record: &Record, sessions: &Sessions) -> Vec<Sums> {
        let sum = |life: &Life| {
            let held = sessions.0.get(&life.name).copied().unwrap_or_default();
            if let Err(violation) = life.check(held.acked_seq, held.stored_ns) {
                self.violations.push(violation);
            }
            if !life.is_over && !held.balanced {
                self.violations.push(Violation::Answer {
                    subject: life.name.clone(),
                    what: "its account is not balanced".into(),
                });
            }
            life.sums(held.acked_seq, self.program)
        };
        record.lives.iter().map(sum).collect()
    }

    /// Every stack of the span, to the nanosecond.
    fn profile(&mut self, filter: &str, sum: &Sums) -> Result<()> {
        let Range { start, end } = self.span;
        let path = format!("profile?format=collapsed&threads=all&from={start}&to={end}{filter}");
        let got = stacks(&self.api.text(&path)?).with_context(|| path.clone())?;
        let mut expected = Table::new();
        for (node, weight_ns) in &sum.by_node {
            *expected
                .entry(self.program.path(*node).join(";"))
                .or_default() += weight_ns;
        }
        self.compare(&path, &expected, &got);
        Ok(())
    }

    /// Every task and state of a worker, step by step.
    fn timeline(&mut self, worker: &str, sum: &Sums, span: Range<i64>) -> Result<()> {
        let step = (span.end - span.start) / STEPS_MAX + 1;
        let start = span.start.div_euclid(step) * step;
        let end = span.end;
        let path =
            format!("timeline?threads=all&worker={worker}&from={start}&to={end}&step={step}s");
        let got = steps(&self.api.json(&path)?).with_context(|| path.clone())?;
        let mut expected = Table::new();
        let places = (start, NodeId::ROOT, State::Cpu)..(end, NodeId::ROOT, State::Cpu);
        for ((second, top, state), weight_ns) in sum.by_second.range(places) {
            let name = self.program.path(*top).concat();
            let index = (second - start) / step;
            *expected.entry(step_key(&name, *state, index)).or_default() += weight_ns;
        }
        self.compare(&path, &expected, &got);
        Ok(())
    }

    /// Every row of a worker's ledger.
    fn tasks(&mut self, record: &Record, sums: &[Sums]) -> Result<()> {
        let Range { start, end } = self.span;
        let worker = &record.worker;
        let path = format!("tasks?worker={worker}&from={start}&to={end}&limit={ROWS_MAX}");
        let answer = self.api.json(&path)?;
        if answer["truncated"] != false {
            bail!("{path}: {} rows exceed one answer", answer["total"]);
        }
        // For an ended life, the collector decides when its tasks count as lost.
        let over = |epoch: &str| {
            record
                .lives
                .iter()
                .any(|life| life.is_over && life.epoch.to_string() == epoch)
        };
        let mut got = Table::new();
        for row in answer["tasks"].as_array().map_or(NO_LIST, Vec::as_slice) {
            *got.entry(answered_row(row, over)).or_default() += 1;
        }
        let mut expected = Table::new();
        for (life, sums) in record.lives.iter().zip(sums) {
            for task in sums.tasks.values() {
                expected.insert(expected_row(life, task, self.program), 1);
            }
        }
        self.compare(&path, &expected, &got);
        Ok(())
    }

    /// Counts and durations of ended tasks, by name.
    fn summary(&mut self, rows: &[v1::Task]) -> Result<()> {
        let Range { start, end } = self.span;
        let path = format!("tasks?summary=true&from={start}&to={end}");
        let answer = self.api.json(&path)?;
        let mut got = Table::new();
        for line in answer["names"].as_array().map_or(NO_LIST, Vec::as_slice) {
            let name = line["name"].as_str().unwrap_or_default();
            for outcome in ["ok", "failed"] {
                let count = line["outcomes"][outcome].as_u64().unwrap_or(u64::MAX);
                got.insert(format!("{name} {outcome}"), count);
            }
            let total_ns = line["durations"]["total_ns"].as_u64().unwrap_or(0);
            got.insert(format!("{name} ns"), total_ns);
        }
        let mut expected = Table::new();
        for task in rows.iter().filter(|task| task.stop_ns != 0) {
            let name = &self.program.strings[task.name as usize];
            *expected
                .entry(format!("{name} {}", outcome(task)))
                .or_default() += 1;
            let took_ns = task.stop_ns.abs_diff(task.start_ns);
            *expected.entry(format!("{name} ns")).or_default() += took_ns;
        }
        self.compare(&path, &expected, &got);
        Ok(())
    }

    fn compare(&mut self, subject: &str, expected: &Table, got: &Table) {
        if let Some(what) = difference(expected, got) {
            self.violations.push(Violation::Answer {
                subject: subject.into(),
                what,
            });
        }
    }
}

/// The lives in `/api/v1/workers`, by name.
#[derive(Debug)]
struct Sessions(BTreeMap<String, HeldSession>);

#[derive(Clone, Copy, Default, Debug)]
struct HeldSession {
    acked_seq: u64,
    stored_ns: u64,
    balanced: bool,
}

impl Sessions {
    fn ask(api: &Api) -> Result<Sessions> {
        let answer = api.json("workers")?;
        let mut sessions = BTreeMap::new();
        for worker in answer["workers"].as_array().context("no list of workers")? {
            let name = worker["worker"]
                .as_str()
                .context("a worker without an id")?;
            for epoch in worker["epochs"]
                .as_array()
                .context("a worker without epochs")?
            {
                let id = epoch["epoch"].as_str().context("an epoch without an id")?;
                let held = HeldSession {
                    acked_seq: number(&epoch["acked_seq"])?,
                    stored_ns: number(&epoch["account"]["stored_ns"])?,
                    balanced: epoch["account"]["balanced"].as_bool().unwrap_or(false),
                };
                sessions.insert(format!("{name} {id}"), held);
            }
        }
        Ok(Sessions(sessions))
    }
}

fn number(value: &Value) -> Result<u64> {
    value.as_u64().context("an epoch without a number")
}

/// Sum of several lives, without their task rows.
fn total(sums: &[Sums]) -> Sums {
    let mut total = Sums::default();
    sums.iter().for_each(|sums| add(&mut total, sums));
    total
}

fn add(total: &mut Sums, sums: &Sums) {
    total.total_ns += sums.total_ns;
    for (key, weight_ns) in &sums.by_second {
        *total.by_second.entry(*key).or_default() += weight_ns;
    }
    for (node, weight_ns) in &sums.by_node {
        *total.by_node.entry(*node).or_default() += weight_ns;
    }
}

/// Collapsed stacks by stack.
fn stacks(text: &str) -> Result<Table> {
    let mut table = Table::new();
    for line in text.lines() {
        let (stack, weight) = line.rsplit_once(' ').context("a line without a weight")?;
        *table.entry(stack.to_owned()).or_default() += weight.parse::<u64>()?;
    }
    Ok(table)
}

/// Nonzero values of a timeline, by series, state and step.
fn steps(answer: &Value) -> Result<Table> {
    let mut table = Table::new();
    for series in answer["series"]
        .as_array()
        .context("a timeline without series")?
    {
        let name = series["name"].as_str().context("a series without a name")?;
        for state in State::ALL {
            let list = series[format!("{}_ns", state.name())].as_array();
            for (index, value) in list.map_or(NO_LIST, Vec::as_slice).iter().enumerate() {
                let weight_ns = value.as_u64().context("a step without a weight")?;
                if weight_ns > 0 {
                    let key = step_key(name, state, i64::try_from(index)?);
                    *table.entry(key).or_default() += weight_ns;
                }
            }
        }
    }
    Ok(table)
}

fn step_key(name: &str, state: State, index: i64) -> String {
    format!("{name}, {}, step {index}", state.name())
}

fn outcome(task: &v1::Task) -> &'static str {
    match task.outcome() {
        v1::Outcome::Running => "running",
        v1::Outcome::Ok => "ok",
        v1::Outcome::Failed => "failed",
        v1::Outcome::Cancelled => "cancelled",
        v1::Outcome::Panicked => "panicked",
        v1::Outcome::Lost => "lost",
    }
}

/// A row that may be lost or still missing.
const ENDLESS: &str = "endless";

fn expected_row(life: &Life, task: &v1::Task, program: &Program) -> String {
    let outcome = match outcome(task) {
        "running" if life.is_over => ENDLESS,
        outcome => outcome,
    };
    let row = Row {
        epoch: life.epoch.to_string(),
        id: task.id,
        name: &program.strings[task.name as usize],
        key: &task.key,
        start_ns: task.start_ns,
        stop_ns: task.stop_ns,
        outcome,
        cause: &task.cause,
    };
    row.text()
}

fn answered_row(answer: &Value, over: impl Fn(&str) -> bool) -> String {
    let (outcome, stop_ns) = match field_text(answer, "outcome") {
        "running" | "lost" if over(field_text(answer, "epoch")) => (ENDLESS, 0),
        outcome => (outcome, field_time(answer, "stop_ns")),
    };
    let row = Row {
        epoch: field_text(answer, "epoch").to_owned(),
        id: answer["id"].as_u64().unwrap_or(0),
        name: field_text(answer, "name"),
        key: field_text(answer, "key"),
        start_ns: field_time(answer, "start_ns"),
        stop_ns,
        outcome,
        cause: field_text(answer, "cause"),
    };
    row.text()
}

fn field_text<'a>(answer: &'a Value, field: &str) -> &'a str {
    answer[field].as_str().unwrap_or("?")
}

fn field_time(answer: &Value, field: &str) -> i64 {
    answer[field].as_i64().unwrap_or(0)
}

/// A task as both sides describe it.
struct Row<'a> {
    epoch: String,
    id: u64,
    name: &'a str,
    key: &'a str,
    start_ns: i64,
    stop_ns: i64,
    outcome: &'a str,
    cause: &'a str,
}

impl Row<'_> {
    fn text(&self) -> String {
        let Row {
            epoch,
            id,
            name,
            key,
            start_ns,
            stop_ns,
            outcome,
            cause,
        } = self;
        format!("{epoch} {id}: {name} {key} [{start_ns}, {stop_ns}) {outcome} {cause:?}")
    }
}

/// Describes how two tables differ: number of differing entries, total difference, and the first of
/// them.
fn difference(expected: &Table, got: &Table) -> Option<String> {
    let keys = expected
        .keys()
        .chain(got.keys().filter(|key| !expected.contains_key(*key)));
    let different: Vec<_> = keys
        .filter(|key: &&String| value(expected, key) != value(got, key))
        .collect();
    let first = different.first()?;
    Some(format!(
        "{} of {} entries differ, the first: {first}: {} where {} was due; the sum is off by {}",
        different.len(),
        expected.len(),
        value(got, first),
        value(expected, first),
        sum(got) - sum(expected),
    ))
}

fn value(table: &Table, key: &String) -> u64 {
    table.get(key).copied().unwrap_or(0)
}

fn sum(table: &Table) -> i128 {
    table.values().map(|value| i128::from(*value)).sum::<i128>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(entries: &[(&str, u64)]) -> Table {
        entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), *value))
            .collect()
    }

    fn check_difference(expected: &[(&str, u64)], got: &[(&str, u64)], said: Option<&str>) {
        let difference = difference(&table(expected), &table(got));
        assert_eq!(difference.as_deref(), said);
    }

    #[test]
    fn every_difference_is_reported() {
        check_difference(&[("a", 1), ("b", 2)], &[("a", 1), ("b", 2)], None);
        // Zero values may be missing.
        check_difference(&[("a", 1)], &[("a", 1), ("b", 0)], None);
        check_difference(
            &[("a", 1), ("b", 2)],
            &[("b", 2)],
            Some("1 of 2 entries differ, the first: a: 0 where 1 was due; the sum is off by -1"),
        );
        check_difference(
            &[("a", 1)],
            &[("a", 2), ("c", 2)],
            Some("2 of 1 entries differ, the first: a: 2 where 1 was due; the sum is off by 3"),
        );
    }

    #[test]
    fn answers_are_parsed_exactly() {
        assert_eq!(
            stacks("a;b c 3\na 4\n").unwrap(),
            table(&[("a;b c", 3), ("a", 4)])
        );
        assert!(stacks("a;b").is_err());
        let answer = json!({"series": [
            {"name": "a", "cpu_ns": [0, 7], "runnable_ns": [0, 0], "wait_ns": [5, 0], "disk_ns": [5, 0]},
        ]});
        let expected = table(&[("a, cpu, step 1", 7), ("a, disk, step 0", 5)]);
        assert_eq!(steps(&answer).unwrap(), expected);
    }

    #[test]
    fn a_task_of_an_ended_life_may_be_lost_or_missing() {
        let read = |row: &Value, is_over: bool| answered_row(row, |_| is_over);
        assert_eq!(read(&row("lost", 9), true), read(&row("running", 0), true));
        assert_ne!(
            read(&row("lost", 9), false),
            read(&row("running", 0), false)
        );
        assert_ne!(read(&row("ok", 9), true), read(&row("running", 0), true));
        assert_ne!(read(&row("ok", 9), true), read(&row("ok", 8), true));
    }

    fn row(outcome: &str, stop: i64) -> Value {
        json!({"epoch": "00000000000000a1", "id": 3, "name": "load", "key": "k",
                   "start_ns": 5, "stop_ns": stop, "outcome": outcome, "cause": ""})
    }
}
