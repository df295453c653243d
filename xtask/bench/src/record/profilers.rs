//! The profilers.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::cost::{Ran, run};
use super::hot::Profile;
use super::programs::{Kind, Program};

/// Time for the last names at the collector.
const NAMES_AFTER: Duration = Duration::from_secs(2);

/// A profiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Profiler {
    /// None.
    Alone,
    /// `emberline run`: the agent in the program, the collector elsewhere.
    Run,
    /// `emberline record`, with its collector and its report.
    Record,
    PerfFrames,
    PerfDwarf,
    /// With ten times as many samples: the reference of shares.
    PerfFine,
    Gperftools,
    PySpy,
    NodeCpuProf,
}

/// The profilers of a program that are on this machine, `Alone` first.
pub(super) fn of(program: &Program, tools: &Tools) -> Vec<Profiler> {
    let mut all = vec![Profiler::Alone, Profiler::Run];
    if !program.has_peers() {
        return all;
    }
    all.push(Profiler::Record);
    if tools.has_perf {
        all.extend([
            Profiler::PerfFrames,
            Profiler::PerfDwarf,
            Profiler::PerfFine,
        ]);
    }
    if tools.gperftools.exists() && program.kind() == Kind::Native {
        all.push(Profiler::Gperftools);
    }
    if tools.has_py_spy && program.kind() == Kind::Python {
        all.push(Profiler::PySpy);
    }
    if program.kind() == Kind::Node {
        all.push(Profiler::NodeCpuProf);
    }
    all
}

impl Profiler {
    pub(super) fn name(self) -> &'static str {
        match self {
            Profiler::Alone => "none",
            Profiler::Run => "`emberline run`",
            Profiler::Record => "`emberline record`",
            Profiler::PerfFrames => "`perf record -g`",
            Profiler::PerfDwarf => "`perf record --call-graph dwarf`",
            Profiler::PerfFine => "`perf record -F 999 -g`",
            Profiler::Gperftools => "gperftools",
            Profiler::PySpy => "`py-spy record`",
            Profiler::NodeCpuProf => "`node --cpu-prof`",
        }
    }

    /// Whether it shows where threads wait.
    pub(super) fn off_cpu(self) -> &'static str {
        match self {
            Profiler::Run | Profiler::Record => "by cause",
            Profiler::PySpy => "with `--idle`",
            _ => "no",
        }
    }

    /// Its file in the folder of a program.
    fn file(self) -> Option<&'static str> {
        match self {
            Profiler::Alone | Profiler::Run => None,
            Profiler::Record => Some("report.html"),
            Profiler::PerfFrames => Some("frames.data"),
            Profiler::PerfDwarf => Some("dwarf.data"),
            Profiler::PerfFine => Some("fine.data"),
            Profiler::Gperftools => Some("gperftools.prof"),
            Profiler::PySpy => Some("py-spy.txt"),
            Profiler::NodeCpuProf => Some("node.cpuprofile"),
        }
    }
}

/// The programs of profilers, and a collector.
pub(super) struct Tools {
    emberline: PathBuf,
    gperftools: PathBuf,
    py_spy: PathBuf,
    has_perf: bool,
    has_py_spy: bool,
    collector: Child,
    url: String,
    /// Runs so far: each has a label of its own.
    runs: Cell<u32>,
}

impl Drop for Tools {
    fn drop(&mut self) {
        // It has no data that matters.
        let _ = self.collector.kill();
        let _ = self.collector.wait();
    }
}

impl Tools {
    /// Starts a collector.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn start(emberline: PathBuf, gperftools: PathBuf, py_spy: PathBuf) -> Result<Tools> {
        let mut collector = Command::new(&emberline)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", emberline.display()))?;
        let output = collector
            .stderr
            .take()
            .context("the collector's messages")?;
        let mut lines = BufReader::new(output).lines();
        let url = lines.by_ref().find_map(|line| {
            let line = line.ok()?;
            let start = line.find("http://")?;
            let url = line[start..].split_whitespace().next()?;
            Some(url.trim_end_matches(['/', '.', ',']).to_owned())
        });
        // It must not wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let can_run = |program: &Path, arguments: &[&str]| {
            let done = Command::new(program).args(arguments).output();
            done.is_ok_and(|done| done.status.success())
        };
        let probe = ["record", "-g", "-o", "/dev/null", "--", "true"];
        Ok(Tools {
            has_perf: can_run(Path::new("perf"), &probe),
            has_py_spy: can_run(&py_spy, &["--version"]),
            emberline,
            gperftools,
            py_spy,
            collector,
            url: url.context("the collector said no address")?,
            runs: Cell::new(0),
        })
    }

    /// Runs a program once. `None` if the profiler failed, which is printed.
    ///
    /// # Errors
    /// If the shell cannot be started, or the program fails without a profiler.
    pub(super) fn run(
        &self,
        profiler: Profiler,
        program: &Program,
        work: &Path,
    ) -> Result<Option<Ran>> {
        if profiler == Profiler::Run {
            self.runs.set(self.runs.get() + 1);
        }
        let mut command = Command::new("sh");
        command
            .args(["-c", program.script])
            .env("ROOT", xtask::root())
            .env("NODE_FLAGS", "");
        let under = self.under(profiler, program, work);
        let variable = if program.kind() == Kind::Outside {
            "ATTACH"
        } else {
            "UNDER"
        };
        command.env(variable, under);
        if profiler == Profiler::NodeCpuProf {
            let flags = format!(
                "--cpu-prof --cpu-prof-interval 10000 --cpu-prof-name {}",
                work.join("node.cpuprofile").display()
            );
            command.env("NODE_FLAGS", flags);
        }
        let ran = run(&mut command, work)?;
        if ran.code == 0 {
            return Ok(Some(ran));
        }
        let said = fs::read_to_string(work.join("messages")).unwrap_or_default();
        if profiler == Profiler::Alone {
            bail!("it ended with code {}: {said}", ran.code);
        }
        eprintln!("{} of {} failed: {said}", profiler.name(), program.name);
        Ok(None)
    }

    /// The words before the program, or those that attach to it.
    fn under(&self, profiler: Profiler, program: &Program, work: &Path) -> String {
        let file = profiler
            .file()
            .map(|name| work.join(name).display().to_string())
            .unwrap_or_default();
        match profiler {
            Profiler::Alone | Profiler::NodeCpuProf => String::new(),
            Profiler::Run => {
                let end = if program.kind() == Kind::Outside {
                    ""
                } else {
                    " --"
                };
                format!(
                    "{} run --collector {} --label bench={}{end}",
                    self.emberline.display(),
                    self.url,
                    self.runs.get()
                )
            }
            Profiler::Record => format!("{} record -o {file} --", self.emberline.display()),
            Profiler::PerfFrames => format!("perf record -q -F 100 -g -o {file} --"),
            Profiler::PerfDwarf => format!("perf record -q -F 100 --call-graph dwarf -o {file} --"),
            Profiler::PerfFine => format!("perf record -q -F 999 -g -o {file} --"),
            Profiler::Gperftools => format!(
                "env LD_PRELOAD={} CPUPROFILE={file} CPUPROFILE_FREQUENCY=100",
                self.gperftools.display()
            ),
            Profiler::PySpy => format!(
                "{} record -r 100 -f raw -o {file} --",
                self.py_spy.display()
            ),
        }
    }

    /// The profile of the last run. `None` for profilers whose files are not read here.
    ///
    /// # Errors
    /// If the file or the collector cannot be read.
    pub(super) fn profile(&self, profiler: Profiler, work: &Path) -> Result<Option<Profile>> {
        match profiler {
            Profiler::Run => {
                std::thread::sleep(NAMES_AFTER);
                let label = format!("bench={}", self.runs.get());
                let mut command = Command::new(&self.emberline);
                command.args(["profile", "--url", &self.url, "--from", "-1h", "--outside"]);
                command.args([
                    "--stacks",
                    "full",
                    "--format",
                    "collapsed",
                    "--label",
                    &label,
                ]);
                Ok(Some(Profile::of_collapsed(&output(&mut command)?)))
            }
            Profiler::PerfFrames | Profiler::PerfDwarf | Profiler::PerfFine => {
                let file = work.join(profiler.file().unwrap_or_default());
                let mut command = Command::new("perf");
                command.args(["script", "--no-inline", "-F", "ip,sym,dso", "-i"]);
                Ok(Some(Profile::of_perf_script(&output(command.arg(file))?)))
            }
            _ => Ok(None),
        }
    }

    /// Size of the file of the last run.
    pub(super) fn file_bytes(&self, profiler: Profiler, work: &Path) -> Option<u64> {
        let file = work.join(profiler.file()?);
        fs::metadata(file).ok().map(|facts| facts.len())
    }
}

/// The output of a command that must succeed.
fn output(command: &mut Command) -> Result<String> {
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    if !done.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
