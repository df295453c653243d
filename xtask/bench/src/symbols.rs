//! `cargo xtask bench symbols`: the cost of names at the collector, next to the tools that everybody has.
//!
//! All three read the same addresses from standard input and print functions, files and lines with
//! inlined functions, each in a process of its own.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use object::{Object as _, ObjectSection as _};
use symbol_files::SymbolFile;

use super::stacks::Random;

/// How often a process's memory is read.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Executable or debug file. Default: the release build of `emberline`.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Number of addresses in its code.
    #[arg(long, default_value_t = 100_000)]
    addresses: usize,
    /// Runs of each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seed of the addresses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Looks up the addresses of standard input in a symbol file, as the other tools do.
#[derive(clap::Args)]
pub(crate) struct LookupOptions {
    file: PathBuf,
}

/// Cost of a process.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    memory_bytes: u64,
    output_bytes: u64,
}

/// Measures and prints a table.
///
/// # Errors
/// If the file has no code, or a tool fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let emberline = xtask::emberline()?;
    let file = options.file.clone().unwrap_or_else(|| emberline.clone());
    let folder = tempfile::tempdir()?;
    let made = folder.path().join("made.symbols");
    let addresses = folder.path().join("addresses");
    write_addresses(&file, &addresses, options)?;

    let mut reduce = Command::new(&emberline);
    reduce
        .args(["symbols", "reduce"])
        .arg(&file)
        .arg("--output")
        .arg(&made);
    let mut lookup = Command::new(std::env::current_exe()?);
    lookup.arg("symbol-lookup").arg(&made);
    let mut addr2line = Command::new("addr2line");
    addr2line
        .args(["--functions", "--inlines", "--demangle", "--exe"])
        .arg(&file);
    let mut llvm = Command::new("llvm-symbolizer");
    llvm.arg("--obj").arg(&file);

    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let source_bytes = fs::metadata(&file)?.len();
    println!(
        "## {} addresses in {:.0} MB\n",
        options.addresses,
        megabytes(source_bytes)
    );
    println!("| what | s | ratio | peak memory, MB | output, MB |\n|---|--:|--:|--:|--:|");
    let mut ours: Option<Duration> = None;
    for (name, command) in [
        ("`symbols reduce`, once a build", &mut reduce),
        ("lookup in the symbol file", &mut lookup),
        ("`llvm-symbolizer`", &mut llvm),
        ("`addr2line`", &mut addr2line),
    ] {
        if Command::new(command.get_program())
            .arg("--version")
            .output()
            .is_err()
        {
            println!("| {name} | not installed | | | |");
            continue;
        }
        let mut costs = Vec::new();
        for _ in 0..options.rounds {
            costs.push(cost(command, &addresses)?);
        }
        costs.sort_by_key(|cost| cost.wall);
        let Cost {
            wall,
            memory_bytes,
            output_bytes,
        } = costs[costs.len() / 2];
        let is_reduce = ours.is_none() && output_bytes < 1_000;
        let ratio = match ours {
            _ if is_reduce => String::new(),
            Some(ours) => format!("{:.1}", wall.as_secs_f64() / ours.as_secs_f64()),
            None => {
                ours = Some(wall);
                "1".to_owned()
            }
        };
        let output_bytes = if is_reduce {
            fs::metadata(&made)?.len()
        } else {
            output_bytes
        };
        println!(
            "| {name} | {:.2} | {ratio} | {:.0} | {:.1} |",
            wall.as_secs_f64(),
            megabytes(memory_bytes),
            megabytes(output_bytes),
        );
    }
    Ok(())
}

/// Writes addresses of the file's code, one a line.
fn write_addresses(file: &Path, to: &Path, options: &Options) -> Result<()> {
    let content = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let elf = object::File::parse(&*content).context("not an object file")?;
    let code = elf
        .section_by_name(".text")
        .context("the file has no code")?;
    ensure!(code.size() > 0, "the file has no code");
    let mut random = Random(options.seed);
    let mut output = BufWriter::new(File::create(to)?);
    for _ in 0..options.addresses {
        let address = code.address() + random.next() % code.size();
        writeln!(output, "{address:#x}")?;
    }
    output.flush()?;
    Ok(())
}

/// Runs a tool once.
fn cost(command: &mut Command, addresses: &Path) -> Result<Cost> {
    let output = tempfile::NamedTempFile::new()?;
    command
        .stdin(File::open(addresses)?)
        .stdout(output.reopen()?)
        .stderr(Stdio::null());
    let started = Instant::now();
    let mut child = command
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let status_path = format!("/proc/{}/status", child.id());
    let mut memory_bytes = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        memory_bytes = peak_memory(&status_path).unwrap_or(memory_bytes);
        std::thread::sleep(POLL_EVERY);
    };
    let wall = started.elapsed();
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(Cost {
        wall,
        memory_bytes,
        output_bytes: output.as_file().metadata()?.len(),
    })
}

fn peak_memory(status_path: &str) -> Option<u64> {
    let status = fs::read_to_string(status_path).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Prints functions, files and lines of the addresses of standard input.
///
/// # Errors
/// If an address is no number, or the symbol file is damaged.
pub(crate) fn lookup(options: &LookupOptions) -> Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let addresses: Vec<u64> = text
        .lines()
        .map(|line: &str| u64::from_str_radix(line.trim_start_matches("0x"), 16))
        .collect::<Result<_, _>>()?;
    let file = SymbolFile::open(File::open(&options.file)?)?;
    let names = file.lookup(addresses.iter().copied())?;
    let mut output = BufWriter::new(io::stdout().lock());
    for address in &addresses {
        // The innermost first, as the other tools print them.
        for frame in names.get(address).into_iter().flatten().rev() {
            writeln!(output, "{}\n{}:{}", frame.function, frame.file, frame.line)?;
        }
        writeln!(output)?;
    }
    output.flush()?;
    Ok(())
}
