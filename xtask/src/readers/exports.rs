//! Reads exported profiles with the tools that they are for, and compares the totals with our own.
//!
//! The profile is that of `flamegraph/examples/formats.rs`. A reader that is not installed is
//! skipped, and the reason names how to get it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use xtask::root;

/// Versions of npm's packages: the schema of speedscope's files, its validator, and a reader of Firefox
/// profiles.
const PACKAGES: [&str; 3] =
    ["speedscope@1.25.0", "ajv@8.20.0", "@firefox-devtools/profiler-cli@0.10.0"];

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
    let example = root().join("target/release/examples/formats");
    let written = Command::new(&example).arg(&files).output();
    let written = written.with_context(|| format!("starting {}", example.display()))?;
    ensure!(written.status.success(), "{} failed", example.display());
    let totals = Totals::parse(&String::from_utf8_lossy(&written.stdout))
        .context("the example does not begin with its totals")?;
    let mut missing = Vec::new();
    missing.extend(go_pprof(&files, totals)?);
    missing.extend(speedscope(folder, &files, totals)?);
    Ok(missing)
}

impl Totals {
    /// Parses the first line, `100010 nodes, wall 5 ns, cpu 3 ns`.
    fn parse(text: &str) -> Option<Totals> {
        let number = |name: &str| {
            let (_, rest) = text.lines().next()?.split_once(name)?;
            rest.split(' ').next()?.parse().ok()
        };
        Some(Totals { wall_ns: number("wall ")?, cpu_ns: number("cpu ")? })
    }
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
        pprof.args(["tool", "pprof", "-top", "-nodefraction=0", "-unit=ns"]).args(options);
        let text = text_of(pprof.arg(&file).output(), "go tool pprof")?;
        // `Showing nodes accounting for 500ns, 100% of 500ns total`; of a part, what it accounts for.
        let expected = format!("accounting for {total_ns}ns,");
        ensure!(text.contains(&expected), "go tool pprof {options:?}: no {expected:?} in:\n{text}");
    }
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof", "-top", "-unit=ns", "-diff_base"]).arg(&file).arg(&file);
    let text = text_of(pprof.output(), "go tool pprof -diff_base")?;
    ensure!(text.contains("accounting for 0,"), "a profile differs from itself:\n{text}");
    println!("go tool pprof agrees: wall {wall_ns} ns, cpu {cpu_ns} ns");
    Ok(None)
}

fn speedscope(folder: &Path, files: &Path, totals: Totals) -> Result<Option<String>> {
    let Some(packages) = npm_packages(folder)? else {
        return Ok(Some("no npm: apt-get install npm".to_owned()));
    };
    let mut node = Command::new("node");
    node.current_dir(&packages).args(["-e", SCRIPT]).arg(files);
    let read = text_of(node.output(), "node")?;
    let Totals { wall_ns, cpu_ns } = totals;
    ensure!(
        read.lines().any(|line| line == format!("speedscope {wall_ns} {cpu_ns}"))
            && read.lines().any(|line| line == format!("firefox {wall_ns}"))
            && read.lines().any(|line| line == format!("nested {wall_ns}")),
        "expected the totals {totals:?}, and read:\n{read}"
    );
    println!("speedscope's schema accepts its file; the sums of three JSON formats agree");
    Ok(None)
}

/// The directory of npm's packages, which is filled once; none without npm.
pub(super) fn npm_packages(folder: &Path) -> Result<Option<PathBuf>> {
    if Command::new("npm").arg("--version").output().is_err() {
        return Ok(None);
    }
    let packages = folder.join("npm");
    fs::create_dir_all(&packages)?;
    let complete = packages.join("complete");
    if !fs::read_to_string(&complete).is_ok_and(|text| text == PACKAGES.join(" ")) {
        let mut install = Command::new("npm");
        install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
        text_of(install.arg(&packages).args(PACKAGES).output(), "npm install")?;
        fs::write(&complete, PACKAGES.join(" "))?;
    }
    Ok(Some(packages))
}

/// What a command printed, if it succeeded.
pub(super) fn text_of(output: std::io::Result<Output>, name: &str) -> Result<String> {
    let output = output.with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        bail!("{name} failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_from_the_first_line() {
        let totals = Totals::parse("100010 nodes, wall 5 ns, cpu 3 ns\nwall 1 ns, cpu 1 ns\n");
        assert_eq!(totals, Some(Totals { wall_ns: 5, cpu_ns: 3 }));
        assert_eq!(Totals::parse("wall 5 ns"), None);
    }
}
