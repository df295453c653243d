//! The thread that runs the agent. It has a descriptor table of its own.

use std::thread::Builder;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent::{Agent, AgentBuilder, StartError, TaskGuard};
use python_stacks::{InterpreterSlot, Search};
use regex_lite::Regex;
use system::process::leave_real_time;
use system::{descriptors, file, probe};

use crate::image::{self, Obstacle};
use crate::journal::{self, Entry};
use crate::lifecycle::keeper_side::{self, FirstStart};
use crate::sys::start::watch_exit;
use crate::sys::{functions, process, variables};

/// Time between two looks at whether the program's own threads have all ended, and whether it runs Python.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// More than the start of an agent needs.
const STACK_BYTES: usize = 1 << 20;

/// Linux keeps 15 bytes of a thread's name. All threads of the agent begin like this.
const NAME: &str = "emberline-run";
const THREAD_PREFIX: &str = "emberline-";

/// Names the worker in place of the command.
const WORKER_VARIABLE: &[u8] = b"EMBERLINE_WORKER";

/// `thread` makes the names of threads tasks, in place of the command; `symbol:REGEX` the functions that match.
const TASK_BY_VARIABLE: &[u8] = b"EMBERLINE_PRELOAD_TASK_BY";

/// The program's Python, if it has one.
static PYTHON: InterpreterSlot = InterpreterSlot::new();

/// How long an agent ran.
pub(crate) enum Profiled {
    /// There was none.
    Never,
    /// Until a call of the program that ends it.
    UntilCall,
    /// Until the program's last thread ended. `status` is that of its first one, as `wait` returns it.
    UntilEnd { status: i32 },
}

/// Runs an agent on a thread of its own, and waits for its end.
pub(crate) fn run() -> Profiled {
    if functions::are_replaced() {
        keeper_side::disable();
        journal::add(Entry::Refused(Obstacle::Replaced), &command());
        return Profiled::Never;
    }
    let thread = Builder::new()
        .name(NAME.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(profile);
    // A panic ends the agent only.
    let ended = thread.ok().and_then(|thread| thread.join().ok());
    ended.unwrap_or(Profiled::Never)
}

fn profile() -> Profiled {
    // From here on files are opened, whose numbers the program's table must not have.
    if descriptors::leave_table().is_err() || !process::leave_standard_error() {
        return Profiled::Never;
    }
    let _ = probe::allowed(leave_real_time);
    // Messages of panics would go to the program's standard error.
    std::panic::set_hook(Box::new(|_| {}));
    let command = command();
    if let Some(obstacle) = image::obstacle_of_own() {
        keeper_side::disable();
        let entry = match obstacle {
            // It reports by itself.
            Obstacle::HasAgent => Entry::Sampled,
            _ => Entry::Refused(obstacle),
        };
        journal::add(entry, &command);
        return Profiled::Never;
    }
    let Some(Running { agent, task }) = start(&command) else {
        return Profiled::Never;
    };
    let mut status = None;
    if keeper_side::started() {
        watch_exit();
        let mut search = Search::default();
        while status.is_none() {
            // A version that is unknown has native stacks only.
            let _ = PYTHON.look(&mut search);
            if keeper_side::must_finish(LOOK_EVERY) {
                break;
            }
            status = status_of_ended_program();
        }
    }
    match keeper_side::failure() {
        Some(failure) => task.fail(format_args!("exit status {failure}")),
        None => drop(task),
    }
    agent.finish_within(keeper_side::flush_max());
    status.map_or(Profiled::UntilCall, |status| Profiled::UntilEnd { status })
}

/// The agent, and the task that the program is as a whole: all samples of the program belong to it.
struct Running {
    agent: Agent,
    task: TaskGuard,
}

fn start(command: &str) -> Option<Running> {
    let process = std::process::id();
    let given = variables::copied(WORKER_VARIABLE)
        .and_then(|name| name.to_str().ok())
        .filter(|name| !name.is_empty());
    let base = given.unwrap_or(command);
    // A process that becomes another program keeps its id, and ids are used again.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let started_ms = since_epoch.map_or(0, |time| time.as_millis());
    let worker = format!("{base}-{process}-{started_ms}");
    agent::mark_agent_thread();
    agent::foreign::set_walker(&PYTHON);
    let started = tasks_by(Agent::builder())
        .worker(&worker)
        .default_task(command)
        .label("command", command)
        .label("parent", std::os::unix::process::parent_id().to_string())
        .silent()
        .without_log()
        .alone()
        .start();
    match started {
        Ok(agent) => {
            match keeper_side::first_start() {
                Some(FirstStart::OfProgram) => journal::add(Entry::Sampled, command),
                Some(FirstStart::OfChild) => journal::add(Entry::SampledChild, command),
                None => {}
            }
            let task = agent::task(command).key(worker).start();
            Some(Running { agent, task })
        }
        Err(error) => {
            let entry = match error {
                // The program was faster, and reports by itself.
                StartError::AlreadyRunning => Entry::Sampled,
                _ => Entry::Refused(Obstacle::Unknown),
            };
            journal::add(entry, command);
            None
        }
    }
}

/// With the tasks that the command wants. It has checked the words.
fn tasks_by(builder: AgentBuilder) -> AgentBuilder {
    let copied = variables::copied(TASK_BY_VARIABLE);
    let words = copied
        .and_then(|words| words.to_str().ok())
        .unwrap_or_default();
    let pattern = words.strip_prefix("symbol:").map(Regex::new);
    match pattern {
        Some(Ok(pattern)) => builder.tasks_by_symbol(move |name| pattern.is_match(name)),
        _ => builder.tasks_by_thread(words == "thread"),
    }
}

/// The name of this process, which the kernel has from its program's file or script.
fn command() -> String {
    let mut name = [0; 64];
    let bytes = file::read_start("/proc/self/comm", &mut name).unwrap_or(0);
    match name[..bytes].trim_ascii() {
        [] => "unknown".to_owned(),
        name => String::from_utf8_lossy(name).into_owned(),
    }
}

/// The exit status of the first thread, if only threads of the agent are left: the program ended its last thread
/// instead of the process.
fn status_of_ended_program() -> Option<i32> {
    let process = std::process::id();
    let stat = file::read_text(&format!("/proc/self/task/{process}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    if fields.next() != Some("Z") {
        return None;
    }
    let is_ours = |id: u32| {
        let name = file::read_text(&format!("/proc/self/task/{id}/comm"));
        name.is_ok_and(|name| name.starts_with(THREAD_PREFIX))
    };
    let threads = system::task_list::thread_ids().ok()?;
    let are_ours = threads.iter().all(|id| *id == process || is_ours(*id));
    // As `wait` returns it, in the last field.
    let status: i32 = fields.next_back()?.parse().ok()?;
    are_ours.then_some(status)
}
