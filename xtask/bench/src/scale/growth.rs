//! A fleet that grows. Collectors fill one place with the stores of up to 10,000 workers each, and a reader of all of
//! them is asked what people ask: of everything, of one task, one worker and one label, over an hour and a month.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use simulation::Api as Reader;
use simulation::ballista::BallistaCluster;
use simulation::pattern::Busyness;
use simulation::process::{Serve, folder_bytes};
use simulation::record::{Detail, Record};

use super::bucket::metric;
use super::engines::{Api, Engine, Sql};
use super::{Options, Query, Sums, compact, newest_files};
use crate::cluster::Programs;
use crate::contest::Timings;
use crate::sampler::machine;
use crate::store::{Contents, Feed, TEAM, ZONE, last_whole_hour, team, zone};

/// Workers of one collector: as many as it accepts.
const WORKERS_OF_COLLECTOR: usize = 10_000;

/// Workers that share a connection. A connection has at most 64 streams.
const WORKERS_PER_CONNECTION: usize = 20;

/// The task and the number of the worker that queries are about; the label is that worker's.
const TASK: &str = "task-0";
const WORKER: usize = 7;

/// Limit on waiting until a collector has sealed its data.
const SEAL_MAX: Duration = Duration::from_secs(300);

/// Seconds of an hour and a day.
const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;

/// A span of time with its name.
#[derive(Clone, Copy)]
struct Span {
    name: &'static str,
    from: i64,
    to: i64,
}

/// Subject of a query: all time, or that of a task, a worker or a label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    All,
    Task,
    Worker,
    Team,
    Label,
}

impl Subject {
    const EACH: [Subject; 5] = [
        Subject::All,
        Subject::Task,
        Subject::Worker,
        Subject::Team,
        Subject::Label,
    ];

    fn name(self) -> &'static str {
        match self {
            Subject::All => "all",
            Subject::Task => "one task",
            Subject::Worker => "one worker",
            Subject::Team => "one label of 10,000",
            Subject::Label => "one label of ten",
        }
    }

    /// The parameter of the API.
    fn parameter(self) -> String {
        match self {
            Subject::All => String::new(),
            Subject::Task => format!("&task={TASK}"),
            Subject::Worker => format!("&worker={}", worker(WORKER)),
            Subject::Team => label_parameter(TEAM, &team(WORKER)),
            Subject::Label => label_parameter(ZONE, &zone(WORKER)),
        }
    }

    /// The condition in SQL.
    fn condition(self) -> String {
        match self {
            Subject::All => String::new(),
            Subject::Task => format!(" AND task = '{TASK}'"),
            Subject::Worker => format!(" AND worker = '{}'", worker(WORKER)),
            Subject::Team => label_condition(TEAM, &team(WORKER)),
            Subject::Label => label_condition(ZONE, &zone(WORKER)),
        }
    }

    fn includes(self, number: usize, task: &str) -> bool {
        match self {
            Subject::All => true,
            Subject::Task => task == TASK,
            Subject::Worker => number == WORKER,
            Subject::Team => team(number) == team(WORKER),
            Subject::Label => zone(number) == zone(WORKER),
        }
    }
}

fn label_parameter(key: &str, value: &str) -> String {
    format!("&label={key}%3D{value}")
}

fn label_condition(key: &str, value: &str) -> String {
    format!(
        " AND worker IN (SELECT worker FROM workers WHERE labels LIKE '%\"{key}\":\"{value}\"%')"
    )
}

fn worker(number: usize) -> String {
    format!("fleet-{number}")
}

/// Sums that each query must find, by subject and number of the span.
type Expected = BTreeMap<(Subject, usize), Sums>;

/// Fills and asks at each size, and prints tables.
///
/// # Errors
/// If a program fails, or one of our answers is wrong.
pub(super) fn run(options: &Options, programs: &Programs) -> Result<()> {
    let load = machine::load_average();
    let scratch = tempfile::Builder::new()
        .prefix("emberline-bench-")
        .tempdir()?;
    let root = options.keep.as_deref().unwrap_or(scratch.path());
    let mut stores = Vec::new();
    let mut answers = Vec::new();
    for workers in &options.fleets {
        let folder = root.join(workers.to_string());
        fs::create_dir_all(&folder)?;
        let fleet = Fleet {
            options,
            programs,
            folder: &folder,
            workers: *workers as usize,
        };
        let measured = fleet.measure()?;
        stores.push(measured.store);
        answers.extend(measured.answers);
        if options.keep.is_none() {
            fs::remove_dir_all(&folder)?;
        }
    }
    println!("\n{}\n", machine::describe(&load));
    println!(
        "| workers | collectors | flushes | pairs | filling | tables | files | reader's start | its memory, and peak | \
         first page of workers |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    stores.iter().for_each(|row| println!("{row}"));
    println!(
        "\n| workers | range | of | engine | ms | ms of CPU | the first: ms; of CPU |\n\
         |--:|---|---|---|--:|--:|--:|"
    );
    answers.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// A fleet of one size.
struct Fleet<'a> {
    options: &'a Options,
    programs: &'a Programs,
    /// With a store for each collector.
    folder: &'a Path,
    workers: usize,
}

struct Measured {
    store: String,
    answers: Vec<String>,
}

impl Fleet<'_> {
    fn measure(&self) -> Result<Measured> {
        let place = format!("file://{}", self.folder.display());
        let begin = Instant::now();
        let to = last_whole_hour();
        let days = i64::from(self.options.days);
        let spans = [
            Span {
                name: "1 h",
                from: to - HOUR_S,
                to,
            },
            Span {
                name: "30 d",
                from: to - days * DAY_S,
                to,
            },
        ];
        let filled = self.fill(&place, &spans)?;
        let filling = begin.elapsed();
        let mut bytes = 0;
        let mut files = 0;
        for number in 0..filled.collectors {
            let tables = newest_files(&self.folder.join(name(number)))?;
            files += tables.values().map(Vec::len).sum::<usize>();
            bytes += tables
                .values()
                .flatten()
                .map(|file| file.bytes)
                .sum::<u64>();
        }
        eprintln!(
            "{} workers: filled in {:.0} s, {:.0} MB of files in all",
            self.workers,
            filling.as_secs_f64(),
            folder_bytes(self.folder)? as f64 / 1e6
        );
        let mut serve = Serve::new(&self.programs.emberline);
        serve
            .arguments
            .extend(["--read-only", "--store", &place].map(str::to_owned));
        let running = serve.start()?;
        let took = running.took;
        let memory = running.process.usage()?.memory_bytes;
        let first_page = Reader::new(running.address).time("workers")?;
        let mut reader = Api::new(running);
        let mut answers = self.ask(&mut reader, &spans, &filled.expected)?;
        let usage = reader.usage()?;
        drop(reader);
        if !self.options.no_sql {
            let place = format!("--store={place}");
            let mut sql = Sql::new(self.programs, place.clone(), None);
            answers.extend(self.ask(&mut sql, &spans, &filled.expected)?);
            if let Some(ballista) = &self.programs.ballista {
                let logs = tempfile::tempdir()?;
                let cluster = BallistaCluster::start(ballista, logs.path(), &[])?;
                let mut sql = Sql::new(self.programs, place, Some(cluster));
                answers.extend(self.ask(&mut sql, &spans, &filled.expected)?);
            }
        }
        let store = format!(
            "| {} | {} | {:.1} M | {:.0} M | {:.0} s | {:.0} MB | {files} | {:.1} s | {:.0} MB, {:.0} MB | {:.0} ms, {:.0} kB |",
            self.workers,
            filled.collectors,
            filled.flushes as f64 / 1e6,
            filled.pairs as f64 / 1e6,
            filling.as_secs_f64(),
            bytes as f64 / 1e6,
            took.as_secs_f64(),
            memory as f64 / 1e6,
            usage.memory_peak_bytes as f64 / 1e6,
            first_page.took.as_secs_f64() * 1e3,
            first_page.bytes as f64 / 1e3
        );
        eprintln!("{store}");
        Ok(Measured { store, answers })
    }

    /// Fills one store after the other, each with a second of each day for its part of the workers.
    fn fill(&self, place: &str, spans: &[Span; 2]) -> Result<Filled> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let mut filled = Filled::default();
        for first in (0..self.workers).step_by(WORKERS_OF_COLLECTOR) {
            let name = name(filled.collectors);
            let mut serve = Serve::new(&self.programs.emberline);
            serve
                .arguments
                .extend(["--store", place, "--name", &name].map(str::to_owned));
            let feed = Feed {
                name: "fleet",
                first,
                workers: WORKERS_OF_COLLECTOR.min(self.workers - first),
                workers_per_connection: WORKERS_PER_CONNECTION,
                // The last day's second is in the last hour.
                to: spans[0].from + DAY_S,
                step_s: DAY_S,
                burst: 1,
                steps: self.options.days.into(),
                contents: Contents::Synthetic {
                    tasks: 50,
                    stacks_per_task: 100,
                    busyness: Busyness {
                        slots: 5,
                        samples: 100,
                        ..Busyness::default()
                    },
                },
                detail: Detail::Full,
            };
            let running = serve.start()?;
            let fed = runtime.block_on(feed.run(&running, self.options.seed))?;
            running.process.stop()?;
            Self::seal(serve)?;
            compact(&self.programs.emberline, &self.folder.join(&name))?;
            filled.collectors += 1;
            filled.flushes += fed.flushes;
            filled.pairs += fed.pairs;
            for (number, record) in (first..).zip(&fed.records) {
                add(record, number, spans, &mut filled.expected);
            }
        }
        Ok(filled)
    }

    /// Waits until all data is in tables: a stop leaves to the next start what takes longer than its time limit.
    fn seal(mut serve: Serve) -> Result<()> {
        serve
            .arguments
            .extend(["--seal-every", "1s"].map(str::to_owned));
        let running = serve.start()?;
        let deadline = Instant::now() + SEAL_MAX;
        while metric(&running, "emberline_unsealed_windows")? > 0.0 {
            ensure!(
                Instant::now() < deadline,
                "the collector does not seal its data"
            );
            std::thread::park_timeout(Duration::from_millis(100));
        }
        running.process.stop()?;
        Ok(())
    }

    /// Asks everything. Returns a row for each query.
    fn ask(
        &self,
        engine: &mut dyn Engine,
        spans: &[Span; 2],
        expected: &Expected,
    ) -> Result<Vec<String>> {
        let mut rows = Vec::new();
        for (number, span) in spans.iter().enumerate() {
            for subject in Subject::EACH {
                let query = query(*span, subject);
                let measured = self.rounds(engine, &query, &expected[&(subject, number)]);
                let row = format!(
                    "| {} | {} | {} | {} | {} |",
                    self.workers,
                    span.name,
                    subject.name(),
                    engine.name(),
                    measured.unwrap_or_else(|error| format!("{error:#} | – | –"))
                );
                eprintln!("{row}");
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// Asks a query in rounds. Returns the cells with its wall and CPU time, and those of the first round.
    fn rounds(&self, engine: &mut dyn Engine, query: &Query, expected: &Sums) -> Result<String> {
        let mut walls = Vec::new();
        let mut cpus = Vec::new();
        let mut first = String::new();
        for round in 0..=self.options.rounds {
            let (cost, found) = engine.ask(query)?;
            ensure!(
                found == *expected,
                "WRONG: {found:?} instead of {expected:?}"
            );
            if round == 0 {
                first = format!("{:.1}; {:.1}", cost.wall_ms, cost.cpu_ms);
            } else {
                walls.push(cost.wall_ms);
                cpus.push(cost.cpu_ms);
            }
            // A minute of rounds is enough.
            if walls.iter().sum::<f64>() > Duration::from_secs(60).as_secs_f64() * 1e3 {
                break;
            }
        }
        Ok(format!(
            "{} | {} | {first}",
            Timings::new(walls).summary(),
            Timings::new(cpus).summary()
        ))
    }
}

/// The stores of a fleet.
#[derive(Default)]
struct Filled {
    collectors: usize,
    flushes: u64,
    pairs: u64,
    expected: Expected,
}

/// The name of a collector.
fn name(number: usize) -> String {
    format!("c{}", number + 1)
}

/// Adds what a worker sent to the sums that contain it.
fn add(record: &Record, number: usize, spans: &[Span; 2], expected: &mut Expected) {
    let program = record.program();
    for life in &record.lives {
        for ((second, top, _), weight_ns) in life.sums(life.made, program).by_second {
            let task = program.path(top)[0].to_owned();
            for (index, span) in spans.iter().enumerate() {
                for subject in Subject::EACH {
                    if (span.from..span.to).contains(&second) && subject.includes(number, &task) {
                        let sums = expected.entry((subject, index)).or_default();
                        *sums.entry(task.clone()).or_default() += weight_ns;
                    }
                }
            }
        }
    }
}

fn query(span: Span, subject: Subject) -> Query {
    let Span { from, to, .. } = span;
    let parameter = subject.parameter();
    Query {
        what: subject.name(),
        api: format!("profile?from={from}&to={to}&state=all&threads=all{parameter}"),
        sql: format!(
            "SELECT task, node, function, sum(weight_ns) AS weight_ns FROM samples('1h') \
             WHERE ts >= to_timestamp({from}) AND ts < to_timestamp({to}){} GROUP BY 1, 2, 3",
            subject.condition()
        ),
        plain: String::new(),
    }
}
