//! One measurement: a process of its own, its output and its CPU time.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Time of a process beyond its load's own, on a slow machine; one that takes longer hangs.
const EXTRA_TIME_MAX: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The output of a load: names and numbers.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// Reads lines of a name and a number.
    pub(super) fn parse(text: &str) -> Result<Figures> {
        let figure = |line: &str| -> Result<(String, f64)> {
            let (name, number) = line
                .split_once(' ')
                .context("a line is a name and a number")?;
            Ok((name.to_owned(), number.parse()?))
        };
        Ok(Figures(
            text.lines()
                .map(|line| figure(line).with_context(|| format!("the load printed `{line}`")))
                .collect::<Result<_>>()?,
        ))
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    pub(super) fn with(mut self, name: &str, number: f64) -> Figures {
        self.0.insert(name.into(), number);
        self
    }

    /// One figure over another; `None` if one is missing or there is nothing to divide by.
    pub(super) fn ratio(&self, part: &str, whole: &str) -> Option<f64> {
        let whole = self.get(whole).filter(|whole| *whole > 0.0)?;
        Some(self.get(part)? / whole)
    }
}

/// Runs a load to its end, which is about `time` away.
///
/// Adds the figure `whole_cpu_ns`: the kernel's CPU time of the process and of its waited-for
/// children, from start to end.
///
/// # Errors
/// If it cannot be started, fails, dies, or does not end in time; then it is killed.
pub(super) fn run(command: &mut Command, time: Duration) -> Result<Figures> {
    let before = children_cpu_ns()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let ended =
        wait(&mut child, time + EXTRA_TIME_MAX).with_context(|| format!("running {command:?}"));
    if ended.is_err() {
        // It may have ended just now.
        let _ = child.kill();
        child.wait()?;
    }
    ended?;
    let mut text = String::new();
    child
        .stdout
        .take()
        .context("its output is piped")?
        .read_to_string(&mut text)?;
    Ok(Figures::parse(&text)?.with("whole_cpu_ns", children_cpu_ns()? - before))
}

/// Waits for the end of a load. It prints less than a pipe's capacity, so it never waits for us.
fn wait(child: &mut Child, time_max: Duration) -> Result<()> {
    let started = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                let mut stderr = String::new();
                let mut pipe = child.stderr.take().context("its standard error is piped")?;
                pipe.read_to_string(&mut stderr)?;
                bail!("it ended with {status}: {}", stderr.trim());
            }
            None if started.elapsed() > time_max => bail!("it did not end within {time_max:?}"),
            None => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Like [`run`], but prints an error and returns `None`: a peer may die, which loses a round.
pub(super) fn try_run(command: &mut Command, time: Duration) -> Option<Figures> {
    run(command, time)
        .map_err(|error| eprintln!("    lost: {error:#}"))
        .ok()
}

fn children_cpu_ns() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu_us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(cpu_us as f64 * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_names_and_numbers() {
        let figures = Figures::parse("cpu_ns 1500\nticks 3\nzero 0\n").unwrap();
        assert_eq!(figures.ratio("cpu_ns", "ticks"), Some(500.0));
        assert_eq!(figures.ratio("cpu_ns", "zero"), None);
        assert_eq!(figures.ratio("wakes", "ticks"), None);
        let error = Figures::parse("cpu_ns many").unwrap_err().to_string();
        assert_eq!(error, "the load printed `cpu_ns many`");
    }

    #[test]
    fn a_child_that_fails_says_why() {
        let mut command = Command::new("sh");
        let error = run(
            command.args(["-c", "echo broken >&2; exit 3"]),
            Duration::ZERO,
        )
        .unwrap_err();
        assert!(
            format!("{error:#}").ends_with("it ended with exit status: 3: broken"),
            "{error:#}"
        );
    }

    #[test]
    fn a_childs_cpu_time_is_counted_to_its_end() {
        let mut command = Command::new("sh");
        let counting = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo count $i";
        let figures = run(command.args(["-c", counting]), Duration::ZERO).unwrap();
        assert_eq!(figures.get("count"), Some(20_000.0));
        assert!(figures.get("whole_cpu_ns").unwrap() > 0.0);
    }
}
