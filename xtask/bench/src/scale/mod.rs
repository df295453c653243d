//! The same sums over the same files by four engines: our merge, DataFusion, DuckDB, a Ballista cluster; a fleet that
//! grows ([`growth`]); and what a bucket costs ([`bucket`]). Each answer is compared with a plain sum over what the
//! generator sent.

mod bucket;
mod engines;
mod growth;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use simulation::ballista::BallistaCluster;
use simulation::pattern::Busyness;
use simulation::process::Serve;
use simulation::pypi;
use simulation::record::{Detail, Record};

use self::engines::{Api, Cost, Engine, PythonEngine, Sql};
use super::cluster::{Engines, ProgramOptions, Programs};
use super::contest::Timings;
use super::sampler::machine;
use super::store::{Contents, Fed, Feed, last_whole_hour};

/// The version of DuckDB, also read with by `cargo xtask test --only readers`.
const DUCKDB: &str = "duckdb==2.0.0";

/// DataFusion as its project builds it, without our views.
const DATAFUSION: &str = "datafusion==55.0.0";

/// Selection of the measurements, and their sizes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this part.
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// Sizes of the fleet that grows.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=200_000))]
    fleets: Vec<u32>,
    /// Days of that fleet, one second of each.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..=30))]
    days: u8,
    /// Keep that fleet's stores in this new folder, to look at them.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Workers of a collector whose requests to a bucket are counted.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    bucket_workers: Vec<u32>,
    /// Minutes of that.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=600))]
    minutes: u16,
    /// Workers of the engines' hour.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=200))]
    workers: u16,
    /// Seconds of data, from the start of an hour. Fewer make a quick run.
    #[arg(long, default_value_t = 3_600, value_parser = clap::value_parser!(u16).range(60..=3_600))]
    seconds: u16,
    /// Rounds, after one that does not count.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Without `emberline sql` and a Ballista cluster, whose programs take long to compile once.
    #[arg(long)]
    no_sql: bool,
    /// Without a Ballista cluster.
    #[arg(long)]
    no_ballista: bool,
    /// Seed of all contents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    programs: ProgramOptions,
}

/// The parts.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The same sums by four engines.
    Engines,
    /// Queries to a reader of a fleet's stores, at each size of the fleet.
    Growth,
    /// Requests to a bucket, and their price.
    Bucket,
}

/// A query in the language of each engine. The first text of an answer's row is a task.
struct Query {
    what: &'static str,
    /// Path of the API.
    api: String,
    /// For `emberline sql`.
    sql: String,
    /// For an engine that has nothing but the tables.
    plain: String,
}

/// Nanoseconds by task.
type Sums = BTreeMap<String, u64>;

/// Measures and prints.
///
/// # Errors
/// If a program is missing, or an answer is wrong.
pub(crate) fn run(options: &Options) -> Result<()> {
    let wants = |part| options.part.is_none_or(|only| only == part);
    let needed = match (options.no_sql, options.no_ballista) {
        _ if !wants(Part::Engines) && !wants(Part::Growth) => Engines::Collector,
        (true, _) => Engines::Collector,
        (false, true) => Engines::Sql,
        (false, false) => Engines::SqlAndBallista,
    };
    let programs = Programs::build(&options.programs, needed)?;
    if wants(Part::Engines) {
        engines(options, &programs)?;
    }
    if wants(Part::Growth) {
        growth::run(options, &programs)?;
    }
    if wants(Part::Bucket) {
        bucket::run(options, &programs)?;
    }
    Ok(())
}

/// Measures the engines.
fn engines(options: &Options, programs: &Programs) -> Result<()> {
    let load = machine::load_average();
    let folder = tempfile::Builder::new()
        .prefix("emberline-bench-")
        .tempdir()?;
    let data = folder.path().join("data");
    let mut serve = Serve::new(&programs.emberline);
    let path = data.to_str().context("the folder's path is not UTF-8")?;
    serve
        .arguments
        .extend(["--data".to_owned(), path.to_owned()]);
    let fed = fill(options, &serve)?;
    let files = newest_files(&data)?;
    let expected = sums_of(&fed.records);
    let tables = folder.path().join("tables");
    link(&files, &tables)?;
    let queries = queries(&fed);

    let environments = xtask::root().join("target/engines");
    let python = |name, module, package| {
        let programs = pypi::install(&environments, package)?;
        anyhow::Ok(Box::new(PythonEngine::start(
            name, module, &programs, &tables,
        )?))
    };
    let mut engines: Vec<Box<dyn Engine>> = vec![
        Box::new(Api::new(serve.start()?)),
        python("DuckDB", "duckdb", DUCKDB)?,
        python("DataFusion", "datafusion", DATAFUSION)?,
    ];
    let place = format!("--data={path}");
    if !options.no_sql {
        engines.push(Box::new(Sql::new(programs, place.clone(), None)));
    }
    if let Some(ballista) = &programs.ballista {
        let cluster = BallistaCluster::start(ballista, folder.path(), &[])?;
        engines.push(Box::new(Sql::new(programs, place, Some(cluster))));
    }
    let mut rows = Vec::new();
    for query in &queries {
        rows.extend(measure(options, query, &mut engines, &expected)?);
    }
    let bytes: u64 = files.values().flatten().map(|file| file.bytes).sum();
    let samples: u64 = files["samples_1s"].iter().map(|file| file.bytes).sum();
    println!(
        "\n{}\n\nA store of {} workers × {} s: {:.1} M rows of seconds, {} nodes, {:.0} MB of tables, \
         {:.0} MB of them `samples_1s`. Every answer was right.\n",
        machine::describe(&load),
        options.workers,
        options.seconds,
        fed.pairs as f64 / 1e6,
        fed.nodes,
        bytes as f64 / 1e6,
        samples as f64 / 1e6
    );
    println!(
        "| query | engine | ms | ms of CPU | time, as multiple of our merge | CPU, as multiple |"
    );
    println!("|---|---|--:|--:|--:|--:|");
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// Fills the store, whose data is all in merged tables then.
fn fill(options: &Options, serve: &Serve) -> Result<Fed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let feed = Feed {
        name: "scale",
        first: 0,
        workers: options.workers.into(),
        workers_per_connection: 1,
        to: last_whole_hour(),
        step_s: 1,
        burst: 1,
        steps: options.seconds.into(),
        contents: Contents::Synthetic {
            tasks: 50,
            stacks_per_task: 100,
            busyness: Busyness {
                slots: 4,
                samples: 100,
                switch: 0.15,
                idle: true,
                noise_quanta: 0,
                prepared: 512,
            },
        },
        detail: Detail::Stacks,
    };
    let running = serve.start()?;
    let fed = runtime.block_on(feed.run(&running, options.seed))?;
    running.process.stop()?;
    let folder = serve
        .arguments
        .last()
        .context("the store's folder is the last argument")?;
    compact(&serve.program, Path::new(folder))?;
    Ok(fed)
}

/// Merges the tables of a store that no collector has open.
fn compact(emberline: &Path, store: &Path) -> Result<()> {
    let status = std::process::Command::new(emberline)
        .args(["store", "compact", "--data"])
        .arg(store)
        .stdout(std::process::Stdio::null())
        .status()?;
    ensure!(status.success(), "`emberline store compact` failed");
    Ok(())
}

/// The plain sum.
fn sums_of(records: &[Record]) -> Sums {
    let mut sums = Sums::new();
    for record in records {
        for life in &record.lives {
            for (node, weight_ns) in life.sums(life.made, record.program()).by_node {
                let task = record.program().path(record.program().top_of(node))[0].to_owned();
                *sums.entry(task).or_default() += weight_ns;
            }
        }
    }
    sums
}

/// A file of a table.
struct TableFile {
    path: PathBuf,
    bytes: u64,
}

/// The files of the newest version, by table.
fn newest_files(data: &Path) -> Result<BTreeMap<String, Vec<TableFile>>> {
    let versions = fs::read_dir(data.join("manifest"))?.flatten();
    let newest = versions
        .map(|entry| entry.path())
        .max()
        .context("a store without versions")?;
    let newest: serde_json::Value = serde_json::from_slice(&fs::read(newest)?)?;
    let mut tables: BTreeMap<String, Vec<TableFile>> = BTreeMap::new();
    for file in newest["body"]["files"]
        .as_array()
        .context("a version without files")?
    {
        let table = file["table"].as_str().context("a file without a table")?;
        let id = file["id"].as_u64().context("a file without an id")?;
        let bytes = file["bytes"].as_u64().context("a file without bytes")?;
        let path = data.join(format!("tables/{table}/{id:016x}.parquet"));
        tables
            .entry(table.to_owned())
            .or_default()
            .push(TableFile { path, bytes });
    }
    Ok(tables)
}

/// Makes a folder for each table, with links to its files.
fn link(files: &BTreeMap<String, Vec<TableFile>>, folder: &Path) -> Result<()> {
    for (table, files) in files {
        let folder = folder.join(table);
        fs::create_dir_all(&folder)?;
        for (number, file) in files.iter().enumerate() {
            symlink(&file.path, folder.join(format!("{number}.parquet")))?;
        }
    }
    Ok(())
}

fn queries(fed: &Fed) -> Vec<Query> {
    let range = format!("from={}&to={}&state=all&threads=all", fed.from, fed.to);
    // A row of an hour has the hour's start as its time.
    let first_hour = fed.from / 3_600 * 3_600;
    let when = format!(
        "ts >= to_timestamp({first_hour}) AND ts < to_timestamp({})",
        fed.to
    );
    let plain = |columns: &str, table: &str, names: &str, groups: &str| {
        format!(
            "SELECT t.function AS task, {columns} CAST(sum(s.weight_ns) AS BIGINT) AS weight_ns FROM {table} s \
             JOIN (SELECT n.id, f.function FROM nodes n JOIN frames f ON f.id = n.frame) t ON t.id = s.task \
             {names} WHERE {when} GROUP BY {groups}"
        )
    };
    let stack_names = "JOIN nodes n ON n.id = s.node JOIN frames f ON f.id = n.frame";
    let sql = |columns: &str, resolution: &str, groups: &str| {
        format!(
            "SELECT {columns}, sum(weight_ns) AS weight_ns FROM samples('{resolution}') WHERE {when} \
             GROUP BY {groups}"
        )
    };
    vec![
        Query {
            what: "all tasks, hour",
            api: format!("timeline?{range}&step=1h"),
            sql: sql("task", "1h", "1"),
            plain: plain("", "totals_1h", "", "1"),
        },
        Query {
            what: "all tasks, second by second",
            api: format!("timeline?{range}&step=1s"),
            sql: sql("task, ts", "1s", "1, 2"),
            plain: plain("s.ts,", "totals_1s", "", "1, 2"),
        },
        Query {
            what: "all stacks, hour",
            api: format!("profile?{range}"),
            sql: sql("task, node, function", "1h", "1, 2, 3"),
            plain: plain(
                "s.node, f.function,",
                "samples_1h_all",
                stack_names,
                "1, 2, 3",
            ),
        },
        Query {
            what: "all stacks, from the rows of seconds",
            api: format!("profile?{range}"),
            sql: sql("task, node, function", "1s", "1, 2, 3"),
            plain: plain("s.node, f.function,", "samples_1s", stack_names, "1, 2, 3"),
        },
    ]
}

/// Asks all engines in turns. Returns a row for each.
fn measure(
    options: &Options,
    query: &Query,
    engines: &mut [Box<dyn Engine>],
    expected: &Sums,
) -> Result<Vec<String>> {
    let mut costs: Vec<Vec<Cost>> = engines.iter().map(|_| Vec::new()).collect();
    for round in 0..=options.rounds {
        for (engine, costs) in engines.iter_mut().zip(&mut costs) {
            let (cost, found) = engine.ask(query)?;
            ensure!(
                found == *expected,
                "{}: {} found {found:?} instead of {expected:?}",
                query.what,
                engine.name()
            );
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    let timings =
        |costs: &[Cost], of: fn(&Cost) -> f64| Timings::new(costs.iter().map(of).collect());
    let mut rows = Vec::new();
    for (engine, own) in engines.iter().zip(&costs) {
        let [wall, cpu] = [|cost: &Cost| cost.wall_ms, |cost: &Cost| cost.cpu_ms]
            .map(|of| (timings(own, of), timings(&costs[0], of)));
        rows.push(format!(
            "| {} | {} | {} | {} | {} | {} |",
            query.what,
            engine.name(),
            wall.0.summary(),
            cpu.0.summary(),
            wall.0.over(&wall.1).summary(),
            cpu.0.over(&cpu.1).summary()
        ));
    }
    rows.iter().for_each(|row| eprintln!("{row}"));
    Ok(rows)
}
