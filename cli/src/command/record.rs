//! `emberline record`: a collector for one program, and a report or a profile of it.

mod hints;
mod made_code;
mod recorded_file;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use api::{ProfileAnswer, WorkersAnswer};
use collector::serve::SocketPeers;
use collector::{MadeCode, ServeOptions};
use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, geteuid};
use signal_hook::low_level::emulate_default_handler;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use self::recorded_file::{Outcome, RecordedFile};
use super::server::local_server::{self, LocalServer};
use crate::args::{RecordArgs, State, Threads, word};
use crate::attach::{AttachOptions, Attached};
use crate::client::{Client, Query};
use crate::exit::{self, BadInput, Reported};
use crate::launch::{self, Inherited, Journal, JournalCounts, LaunchOptions, Obstacle};
use crate::output::{print, say};
use crate::signals::ProgramSignals;

/// After this time without any agent, it is said.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// CPU time without a profile is said from this on, if it is more than a tenth.
const MISSING_MIN: Duration = Duration::from_millis(200);
const MISSING_PART: u32 = 10;

/// Time between two looks at what the program's processes do.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    let inherited = Inherited::read().context("could not read the signals of this process")?;
    inherited
        .expect_children()
        .context("could not wait for programs")?;
    // An agent starts this from a thread that blocks all signals.
    SigSet::empty()
        .thread_set_mask()
        .context("could not unblock signals")?;
    let file = RecordedFile::of(&args.output)?;
    // The program may take hours.
    file.check_writable()?;
    let runtime = local_server::runtime()?;
    let _inside = runtime.enter();
    let stop = ProgramSignals::listen(|signal| inherited.ignores(signal))
        .context("could not listen for signals")?;
    let made_code = Arc::new(MadeCode::default());
    let options = ServeOptions {
        socket_peers: SocketPeers {
            users: Vec::new(),
            // A program of root may become another user.
            allows_process: geteuid().is_root().then_some(launch::is_descendant),
        },
        made_code: Some(made_code.clone()),
        ..ServeOptions::default()
    };
    let server = LocalServer::start(&runtime, options)?;
    let recording = Recording {
        server: &server,
        runtime: &runtime,
        inherited,
        made_code: &made_code,
    };
    let recorded = record(&recording, args, &file, stop);
    let ended = server.end(&runtime);
    recorded.and(ended)
}

/// A collector, and what a program inherits from the command that runs it.
struct Recording<'a> {
    server: &'a LocalServer,
    runtime: &'a Runtime,
    inherited: Inherited,
    /// Read by the collector.
    made_code: &'a MadeCode,
}

/// Runs the program and writes the file.
fn record(
    recording: &Recording<'_>,
    args: &RecordArgs,
    file: &RecordedFile,
    stop: ProgramSignals,
) -> anyhow::Result<()> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let client = Client::with_token(&recording.server.url, None)?;
    let mut program = args.about.clone().or_else(|| command_line(&args.program));
    let Ran {
        status,
        cpu,
        counts,
    } = if args.processes.is_wanted() {
        let options = AttachOptions {
            url: recording.server.url.clone(),
            worker: None,
            labels: vec![launch::run_label(&["attached".into()])],
            task_by: args.task_by.clone(),
        };
        let attached = Attached::start(&args.processes, options)?;
        program.get_or_insert_with(|| attached.command_lines());
        attached.watch(recording.runtime, stop);
        Ran::default()
    } else if args.program.is_empty() {
        wait_for_others(&recording.server.url, recording.runtime, stop)?;
        Ran::default()
    } else {
        run_program(recording, args, &client, stop)?
    };
    let stopped = SystemTime::now().duration_since(UNIX_EPOCH)?;
    // Whole seconds, as profiles are stored: everything that the collector has.
    let range = Query::default()
        .with("from", started.as_secs().to_string())
        .with("to", (stopped.as_secs() + 1).to_string());
    // Names and hints are no reason to fail.
    let workers = Workers::of(&client).unwrap_or_default();
    let files = made_code::files(&workers.processes, started);
    recording.made_code.set(files);
    let outcome = file.write(&client, range.clone(), program.as_deref());
    if let Some(line) = counts.line() {
        say(&line);
    }
    // As above.
    if let Some(line) = missing_time(&client, &range, cpu).unwrap_or_default() {
        say(&line);
    }
    let written = outcome.and_then(|outcome| match outcome {
        Outcome::Written(line) => Ok(line),
        Outcome::NoAgent => Err(BadInput(no_agent(&counts)).into()),
    });
    let failure = status.filter(|status| !status.success());
    if let Some(status) = failure {
        say(&format!("the program failed: {status}"));
    }
    match written {
        Ok(line) => {
            say(&line);
            let commands = workers.commands.iter().map(String::as_str);
            let hints = hints::lines(&client, &range, commands).unwrap_or_default();
            hints.iter().for_each(|line| say(line));
        }
        Err(error) => match failure {
            Some(_) => say(exit::text(&error).trim_end()),
            None => return Err(error),
        },
    }
    match failure {
        Some(status) => Err(end_like(status).into()),
        None => Ok(()),
    }
}

/// The programs that were profiled.
#[derive(Default)]
struct Workers {
    commands: BTreeSet<String>,
    processes: BTreeSet<u32>,
}

impl Workers {
    fn of(client: &Client) -> anyhow::Result<Workers> {
        let answer: WorkersAnswer = client.get_json("workers", &Query::default())?;
        let epochs = answer.workers.iter().flat_map(|worker| &worker.epochs);
        let mut workers = Workers::default();
        for epoch in epochs {
            workers.processes.insert(epoch.pid);
            workers
                .commands
                .extend(epoch.labels.get("command").cloned());
        }
        Ok(workers)
    }
}

/// Result of a program and its children.
#[derive(Default)]
struct Ran {
    /// `None` without a program.
    status: Option<ExitStatus>,
    /// CPU time of the program and of all processes that were waited for.
    cpu: Duration,
    counts: JournalCounts,
}

/// The CPU time of children that were waited for, and of theirs.
///
/// # Errors
/// If the system does not tell.
fn cpu_of_children() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let parts = [usage.user_time(), usage.system_time()];
    let micros: i64 = parts.iter().map(TimeValLike::num_microseconds).sum();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

/// A line about CPU time that no agent has seen; `None` if that is little.
///
/// # Errors
/// If the collector does not answer.
fn missing_time(client: &Client, range: &Query, used: Duration) -> anyhow::Result<Option<String>> {
    let query = range
        .clone()
        .with("threads", word(Threads::All))
        .with("state", word(State::Cpu));
    let answer: ProfileAnswer = client.get_json("profile", &query)?;
    let seen = Duration::from_nanos(answer.totals.cpu_ns);
    let missing = used.saturating_sub(seen);
    let is_much = missing > MISSING_MIN && missing > used / MISSING_PART;
    Ok(is_much.then(|| {
        let [missing, used] = [missing, used].map(|time| time.as_secs_f64());
        format!(
            "{missing:.1} s of {used:.1} s of CPU time is not in the report: the first 50 ms of each program, programs \
             that are not profiled, and children that are made by a bare clone"
        )
    }))
}

/// Why there is no report, and what to do.
fn no_agent(counts: &JournalCounts) -> String {
    let advice = match counts.short() {
        0 => {
            "no program with the profiler's library or with an agent has run; an agent reports to EMBERLINE_URL, and \
             `emberline doctor PROGRAM` says what a program lacks"
        }
        _ => {
            "a program is profiled from its first 50 ms on; let it do more work, or profile it with --name if it runs on in \
             the background"
        }
    };
    format!("no agent reported, so no report was written: {advice}")
}

/// Ends this process as the program ended, if that was by a signal; otherwise the code of the program.
fn end_like(status: ExitStatus) -> Reported {
    if let Some(signal) = status.signal() {
        // The core file is the program's.
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        // It returns only for signals that end nothing.
        let _ = emulate_default_handler(signal);
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Reported(code.unwrap_or(1))
}

/// The program with its arguments, if there is one.
fn command_line(program: &[OsString]) -> Option<String> {
    let parts: Vec<_> = program.iter().map(|part| part.to_string_lossy()).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Runs the program to its end. Names each program that cannot be profiled at once.
fn run_program(
    recording: &Recording<'_>,
    args: &RecordArgs,
    client: &Client,
    stop: ProgramSignals,
) -> anyhow::Result<Ran> {
    let server = recording.server;
    let journal = Journal::create(server.folder()).context("could not create the journal")?;
    let options = LaunchOptions {
        url: &server.url,
        worker: None,
        labels: &[launch::run_label(&args.program)],
        task_by: args.task_by.clone(),
        journal: Some(&journal),
        inherited: recording.inherited,
    };
    let mut launch = launch::prepare(&args.program, &options)?;
    let name = args.program[0].display();
    let mut child = launch
        .command
        .spawn()
        .with_context(|| format!("could not start {name}"))?;
    let attached = launch.obstacle.and_then(|obstacle| {
        let options = AttachOptions {
            url: server.url.clone(),
            worker: None,
            labels: options.labels.to_vec(),
            task_by: args.task_by.clone(),
        };
        attach(child.id(), &name.to_string(), obstacle, options)
    });
    // A terminal sends Ctrl-C to the program too. The report is about what it did until then.
    let forwarded = recording
        .runtime
        .spawn(stop.forward(Pid::from_raw(child.id().cast_signed())));
    let process = child.id();
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait()));
    let begin = Instant::now();
    let mut counts = JournalCounts::new(attached.is_some().then_some(process));
    let mut silence_is_said = false;
    let status = loop {
        let waited = ended.recv_timeout(LOOK_EVERY);
        journal.read(&mut counts).iter().for_each(|line| say(line));
        match waited {
            Ok(status) => break status.context("could not wait for the program")?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("could not wait for the program"),
        }
        if !silence_is_said && begin.elapsed() >= SILENT_AFTER {
            silence_is_said = true;
            if !has_workers(client) {
                say(&format!(
                    "{name} runs for {} s and no agent has reported yet; see `emberline doctor {name}`",
                    SILENT_AFTER.as_secs()
                ));
            }
        }
    };
    forwarded.abort();
    if let Some(attached) = attached {
        attached.finish();
    }
    Ok(Ran {
        status: Some(status),
        cpu: cpu_of_children()?,
        counts,
    })
}

/// Profiles a program from outside that the library cannot. Says that, or why it is not profiled.
fn attach(
    process: u32,
    name: &str,
    obstacle: Obstacle,
    options: AttachOptions,
) -> Option<Attached> {
    if !obstacle.leaves_outside() {
        say(&format!("{name} is not profiled: {obstacle}"));
        return None;
    }
    let reason = obstacle.reason();
    match Attached::to_program(process, options) {
        Ok(attached) => {
            say(&format!("{name} is profiled from outside: {reason}"));
            Some(attached)
        }
        Err(error) => {
            say(&format!(
                "{name} is not profiled: {reason}; from outside: {error:#}"
            ));
            None
        }
    }
}

fn has_workers(client: &Client) -> bool {
    let workers = client.get_json::<WorkersAnswer>("workers", &Query::default());
    workers.is_ok_and(|answer| !answer.workers.is_empty())
}

/// Waits until standard input ends or a stop is requested.
fn wait_for_others(url: &str, runtime: &Runtime, stop: ProgramSignals) -> anyhow::Result<()> {
    print(format!("{url}\n").as_bytes())?;
    runtime.block_on(async {
        tokio::select! {
            () = end_of_input() => {}
            () = stop.first() => {}
        }
    });
    Ok(())
}

/// Resolves when standard input ends. The thread that reads it ends with the process.
async fn end_of_input() {
    let (sender, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut piece = [0; 64];
        let mut stdin = io::stdin().lock();
        while matches!(stdin.read(&mut piece), Ok(1..)) {}
        drop(sender);
    });
    // Nothing is sent: it ends when the sender is dropped.
    let _ = ended.await;
}
