//! Processes that already run, profiled from outside until they end or somebody stops that.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use flamegraph::text::{duration, printable};
use outside::{
    Recorded, Recording, RecordingError, RecordingOptions, RunningSamples, RunningSource,
    SymbolPattern, Target,
};
use regex_lite::Regex;
use tokio::runtime::Runtime;

use crate::args::ProcessArgs;
use crate::exit::BadInput;
use crate::launch::TaskBy;
use crate::output::say;
use crate::signals::ProgramSignals;

/// Most processes that are profiled at the same time.
const PROCESSES_MAX: usize = 64;
/// Time between two looks at whether a recording has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time between two looks for further processes.
const FIND_EVERY: Duration = Duration::from_secs(1);
/// Longest time to name and send the last samples of a process.
const FINISH_MAX: Duration = Duration::from_secs(10);
/// Most bytes of a command line that are shown.
const COMMAND_LINE_BYTES_MAX: usize = 4096;

/// Where recordings go, and how they are named.
#[derive(Clone, Debug)]
pub(crate) struct AttachOptions {
    pub(crate) url: String,
    /// Begins the names of workers, in place of their commands.
    pub(crate) worker: Option<String>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) task_by: TaskBy,
}

/// The processes of one command.
pub(crate) struct Attached {
    /// Processes whose names match are added later.
    name: Option<Regex>,
    duration: Option<Duration>,
    source: RunningSource,
    options: AttachOptions,
    recordings: Vec<Attachment>,
    /// Ids of processes that were profiled, with the time of their start.
    seen: Vec<Target>,
}

struct Attachment {
    target: Target,
    recording: Recording,
    /// Whether the user knows that it runs Python.
    python_is_said: bool,
}

impl Attachment {
    /// Says once what is shown of a Python program, if that is not everything.
    fn say_python(&mut self) {
        let Some(python) = self.recording.python().filter(|_| !self.python_is_said) else {
            return;
        };
        self.python_is_said = true;
        let what = match python {
            Ok(()) if self.recording.samples == RunningSamples::Stops => return,
            Ok(()) => {
                "Python's functions are shown where its threads wait; with --ptrace also where they run".to_owned()
            }
            Err(unsupported) => format!("Python's functions are not shown: {unsupported}"),
        };
        say(&format!("process {}: {what}", self.target.process));
    }
}

impl Attached {
    /// Starts to profile processes that already run.
    ///
    /// # Errors
    /// If there is no such process, it cannot be profiled, or the system refuses what is needed; the text has the way on.
    pub(crate) fn start(args: &ProcessArgs, options: AttachOptions) -> anyhow::Result<Attached> {
        let mut targets = Vec::new();
        for process in &args.pid {
            targets.push(Target::find(*process).map_err(|error| BadInput(error.to_string()))?);
        }
        if let Some(name) = &args.name {
            let found = Target::find_by_name(|command| name.is_match(command), PROCESSES_MAX)
                .context("could not list processes")?;
            targets.extend(found);
            if targets.is_empty() {
                let text = format!(
                    "no process of this user has a name that matches {name}, or it cannot be profiled; see: ps -u $USER"
                );
                return Err(BadInput(text).into());
            }
        }
        targets.dedup();
        let source = if args.ptrace {
            RunningSource::Stops
        } else {
            RunningSource::Events
        };
        let mut attached = Attached {
            name: args.name.clone(),
            duration: args.duration,
            ..Attached::new(options, source)
        };
        for target in targets {
            attached.add_and_say(target)?;
        }
        Ok(attached)
    }

    /// Starts to profile a program that was started for this.
    ///
    /// # Errors
    /// If it has ended, or the system refuses what is needed; the text has the way on.
    pub(crate) fn to_program(process: u32, options: AttachOptions) -> anyhow::Result<Attached> {
        let target = Target::find(process)?;
        let mut attached = Attached::new(options, RunningSource::Events);
        attached.add(target)?;
        Ok(attached)
    }

    fn new(options: AttachOptions, source: RunningSource) -> Attached {
        Attached {
            name: None,
            duration: None,
            source,
            options,
            recordings: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// The command lines of the processes.
    pub(crate) fn command_lines(&self) -> String {
        let lines = self.seen.iter().map(|target| {
            let file = format!("/proc/{}/cmdline", target.process);
            let mut bytes = fs::read(file).unwrap_or_default();
            bytes.truncate(COMMAND_LINE_BYTES_MAX);
            let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
            match text.trim_end() {
                "" => target.command.clone(),
                text => text.to_owned(),
            }
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    fn add_and_say(&mut self, target: Target) -> anyhow::Result<()> {
        let process = target.process;
        let command = target.command.clone();
        let how = match self.add(target)? {
            RunningSamples::Events => "",
            RunningSamples::UserEvents => {
                ", without the kernel's own work, which needs more rights"
            }
            RunningSamples::Stops => ", stopping running threads for a moment",
        };
        say(&format!(
            "profiling process {process} ({}) from outside{how}; Ctrl-C ends that",
            printable(&command)
        ));
        Ok(())
    }

    fn add(&mut self, target: Target) -> Result<RunningSamples, RecordingError> {
        let recording = Recording::start(RecordingOptions {
            target: target.clone(),
            url: self.options.url.clone(),
            worker: self.options.worker.clone(),
            labels: self.options.labels.clone(),
            tasks_by_thread: matches!(self.options.task_by, TaskBy::Thread),
            names_task: match &self.options.task_by {
                TaskBy::Symbol(expression) => {
                    let expression = expression.clone();
                    Some(SymbolPattern::new(move |name| expression.is_match(name)))
                }
                TaskBy::Process | TaskBy::Thread => None,
            },
            source: self.source,
        })?;
        let samples = recording.samples;
        self.seen.push(target.clone());
        self.recordings.push(Attachment {
            target,
            recording,
            python_is_said: false,
        });
        Ok(samples)
    }

    /// Profiles until all processes have ended, the time is over, or a stop is requested.
    pub(crate) fn watch(mut self, runtime: &Runtime, stop: ProgramSignals) {
        let stopped = runtime.spawn(stop.first());
        let begin = Instant::now();
        let mut found_at = begin;
        let limit = self.duration;
        let is_over = || {
            let is_late = |limit| begin.elapsed() >= limit;
            stopped.is_finished() || limit.is_some_and(is_late)
        };
        while !is_over() && !self.recordings.is_empty() {
            std::thread::sleep(LOOK_EVERY);
            self.recordings.iter_mut().for_each(Attachment::say_python);
            let (ended, running) = std::mem::take(&mut self.recordings)
                .into_iter()
                .partition(|attachment| attachment.recording.has_ended());
            self.recordings = running;
            finish(ended);
            if found_at.elapsed() >= FIND_EVERY {
                found_at = Instant::now();
                self.find_more();
            }
        }
        self.finish();
    }

    /// Ends all recordings and says what became of them.
    pub(crate) fn finish(self) {
        finish(self.recordings);
    }

    /// Adds processes of the wanted name that have started meanwhile.
    fn find_more(&mut self) {
        let Some(name) = self.name.clone() else {
            return;
        };
        let found = Target::find_by_name(|command| name.is_match(command), PROCESSES_MAX);
        for target in found.unwrap_or_default() {
            if self.recordings.len() < PROCESSES_MAX && !self.seen.contains(&target) {
                // It may have ended just now.
                let _ = self.add_and_say(target);
            }
        }
    }
}

/// Ends recordings and says what became of them.
fn finish(attachments: Vec<Attachment>) {
    for attachment in attachments {
        let Attachment {
            target, recording, ..
        } = attachment;
        let Recorded {
            report,
            lost_samples,
            refused_stops,
            ..
        } = recording.finish(FINISH_MAX);
        let lost_ns = report.accepted_ns - report.stored_ns.min(report.accepted_ns);
        let mut line = format!(
            "process {} ({}): {} of thread time, {} of it lost",
            target.process,
            printable(&target.command),
            duration(report.accepted_ns),
            duration(lost_ns)
        );
        if lost_samples > 0 {
            line.push_str(&format!(
                "; {lost_samples} stacks of running threads found no room"
            ));
        }
        if refused_stops {
            line.push_str("; the system refused to stop threads, so running ones have no stacks");
        }
        say(&line);
    }
}
