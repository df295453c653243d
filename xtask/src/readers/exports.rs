//! Reads exported profiles with the tools that they are for, and compares the totals with our own.
//!
//! The profile is that of `flamegraph/examples/formats.rs`. A reader that is not installed is
//! skipped, and the reason names how to get it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use xtask::light;

use super::firefox::Session;
use crate::packages::{self, text_of};

/// Versions of npm's packages: speedscope with the schema of its files, a validator, a reader of Firefox
/// profiles, and what drives a browser.
const PACKAGES: [&str; 4] = [
    "speedscope@1.25.0",
    "ajv@8.20.0",
    "@firefox-devtools/profiler-cli@0.10.0",
    "playwright-core@1.65.1",
];

const SCRIPT: &str = include_str!("exports.cjs");

/// Totals in nanoseconds, as the example prints them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Totals {
    wall_ns: u64,
    cpu_ns: u64,
}

/// Writes the exports with the built example and reads them. Returns which readers are missing.
pub(super) fn run(folder: &Path) -> Result<Vec<String>> {
    let files = folder.join("exports");
    let example = light()?.join("examples/formats");
    let written = Command::new(&example)
        .arg(&files)
        .output()
        .with_context(|| format!("starting {}", example.display()))?;
    ensure!(written.status.success(), "{} failed", example.display());
    let totals = Totals::parse(&String::from_utf8_lossy(&written.stdout))
        .context("the example does not begin with its totals")?;
    let mut missing = Vec::new();
    missing.extend(go_pprof(&files, totals)?);
    missing.extend(speedscope(folder, &files, totals)?);
    firefox(folder, &files, totals)?;
    Ok(missing)
}

impl Totals {
    /// Parses the first line, `100010 nodes, wall 5 ns, cpu 3 ns`.
    fn parse(text: &str) -> Option<Totals> {
        Some(Totals {
            wall_ns: number_after(text, "wall ")?,
            cpu_ns: number_after(text, "cpu ")?,
        })
    }
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.lines().next()?.split_once(name)?;
    rest.split(' ').next()?.parse().ok()
}

fn go_pprof(files: &Path, totals: Totals) -> Result<Option<String>> {
    if Command::new("go").arg("version").output().is_err() {
        return Ok(Some("no go: apt-get install golang-go".to_owned()));
    }
    let file = files.join("large.pb.gz");
    let Totals { wall_ns, cpu_ns } = totals;
    // One of ten equal tasks; and the same profile twice, which leaves no difference.
    for (options, total_ns) in [
        (&[][..], wall_ns),
        (&["-sample_index=cpu"], cpu_ns),
        (&["-tagfocus=task:task-3$"], wall_ns / 10),
        (&["-tagfocus=state:disk"], wall_ns - cpu_ns),
    ] {
        let mut pprof = Command::new("go");
        pprof
            .args(["tool", "pprof", "-top", "-nodefraction=0", "-unit=ns"])
            .args(options);
        let text = text_of(pprof.arg(&file))?;
        // `Showing nodes accounting for 500ns, 100% of 500ns total`; of a part, what it accounts for.
        let expected = format!("accounting for {total_ns}ns,");
        ensure!(
            text.contains(&expected),
            "go tool pprof {options:?}: no {expected:?} in:\n{text}"
        );
    }
    let mut pprof = Command::new("go");
    pprof
        .args(["tool", "pprof", "-top", "-unit=ns", "-diff_base"])
        .arg(&file)
        .arg(&file);
    let text = text_of(&mut pprof)?;
    ensure!(
        text.contains("accounting for 0,"),
        "a profile differs from itself:\n{text}"
    );
    println!("go tool pprof agrees: wall {wall_ns} ns, cpu {cpu_ns} ns");
    Ok(None)
}

fn speedscope(folder: &Path, files: &Path, totals: Totals) -> Result<Option<String>> {
    let Some(packages) = npm_packages(folder)? else {
        return Ok(Some("no npm: apt-get install npm".to_owned()));
    };
    let mut node = Command::new("node");
    node.current_dir(&packages).args(["-e", SCRIPT]).arg(files);
    let read = text_of(&mut node)?;
    let Totals { wall_ns, cpu_ns } = totals;
    ensure!(
        read.lines()
            .any(|line| line == format!("speedscope {wall_ns} {cpu_ns}"))
            && read
                .lines()
                .any(|line| line == format!("firefox {wall_ns}"))
            && read.lines().any(|line| line == format!("nested {wall_ns}")),
        "expected the totals {totals:?}, and read:\n{read}"
    );
    println!("speedscope's schema accepts its file; the sums of three JSON formats agree");
    Ok(None)
}

/// Each task is a thread of the file. Without npm it does nothing, which is already said.
fn firefox(folder: &Path, files: &Path, totals: Totals) -> Result<()> {
    let Some(packages) = npm_packages(folder)? else {
        return Ok(());
    };
    let session = Session::load(packages, "profile", &files.join("large.firefox.json"))?;
    let threads = session.threads()?;
    let mut sampled_ns = 0;
    for thread in &threads {
        sampled_ns += session.sampled_ns(thread)?;
    }
    let Totals { wall_ns, .. } = totals;
    ensure!(
        sampled_ns == wall_ns,
        "profiler-cli has {sampled_ns} ns of samples, not {wall_ns}"
    );
    println!(
        "profiler-cli reads {sampled_ns} ns of {} threads",
        threads.len()
    );
    Ok(())
}

/// The directory of npm's packages, which is filled once; none without npm.
pub(super) fn npm_packages(folder: &Path) -> Result<Option<PathBuf>> {
    let directory = folder.join("npm");
    let is_there = packages::npm(&directory, &["--ignore-scripts"], &PACKAGES)?;
    Ok(is_there.then_some(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_from_the_first_line() {
        let totals = Totals::parse("100010 nodes, wall 5 ns, cpu 3 ns\nwall 1 ns, cpu 1 ns\n");
        assert_eq!(
            totals,
            Some(Totals {
                wall_ns: 5,
                cpu_ns: 3
            })
        );
        assert_eq!(Totals::parse("wall 5 ns"), None);
    }
}
