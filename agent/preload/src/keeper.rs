//! The thread that starts the agent and ends it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::Builder;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent::{Agent, TaskGuard};
use system::signals::BlockedSignals;
use system::{descriptors, file};

use crate::image::{self, Obstacle};
use crate::journal::{self, Entry};
use crate::lifecycle::keeper_side::{self, FirstStart};
use crate::sys::{process, variables};

/// Longest flush at the end of a program.
pub(crate) const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Time between two looks at whether the program's own threads have all ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// More than the start of an agent needs.
const STACK_BYTES: usize = 1 << 20;

/// Linux keeps 15 bytes of a thread's name. All threads of the agent begin like this.
const NAME: &str = "emberline-keep";
const THREAD_PREFIX: &str = "emberline-";

/// Names the worker in place of the command.
const WORKER_VARIABLE: &[u8] = b"EMBERLINE_WORKER";

/// The keeper's id: 0 for none, [`ABOUT_TO_RUN`] before it runs.
static KEEPER: AtomicI32 = AtomicI32::new(0);
const ABOUT_TO_RUN: i32 = -1;

/// Starts the keeper, which blocks all signals, because their handlers belong to the program's threads.
///
/// # Errors
/// If there is no thread for it.
pub(crate) fn spawn() -> io::Result<()> {
    let _blocked = BlockedSignals::block();
    KEEPER.store(ABOUT_TO_RUN, Ordering::Release);
    let started = Builder::new()
        .name(NAME.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(|| {
            KEEPER.store(process::thread_id(), Ordering::Release);
            // A panic ends the agent only.
            let _ = catch_unwind(AssertUnwindSafe(run));
            keeper_side::ended();
        });
    if started.is_err() {
        KEEPER.store(0, Ordering::Release);
    }
    started.map(drop)
}

/// Whether a keeper runs in this process.
pub(crate) fn exists() -> bool {
    match KEEPER.load(Ordering::Acquire) {
        0 => false,
        ABOUT_TO_RUN => true,
        id => process::has_thread(id),
    }
}

/// Starts the agent after a while, and flushes when the program ends.
fn run() {
    // The thread that started this one may be forbidden to.
    system::process::allow_clocks();
    system::process::leave_real_time();
    if !keeper_side::wait_for_start() {
        return;
    }
    // From here on files are opened, whose numbers the program's table must not have.
    if descriptors::leave_table().is_err() || !process::leave_standard_error() {
        return;
    }
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
        return;
    }
    let Some(Profiled { agent, task }) = start(&command) else {
        return;
    };
    let mut status = None;
    if keeper_side::started() {
        while status.is_none() && !keeper_side::must_finish(LOOK_EVERY) {
            status = status_of_ended_program();
        }
    }
    drop(task);
    agent.finish();
    if let Some(status) = status {
        keeper_side::ended();
        process::end_last_thread(status);
    }
}

/// The agent, and the task that the program is as a whole: all samples of the program belong to it.
struct Profiled {
    agent: Agent,
    task: TaskGuard,
}

fn start(command: &str) -> Option<Profiled> {
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
    let started = Agent::builder()
        .worker(&worker)
        .default_task(command)
        .label("command", command)
        .label("parent", std::os::unix::process::parent_id().to_string())
        .flush_timeout(FLUSH_MAX)
        .silent()
        .start();
    match started {
        Ok(agent) => {
            match keeper_side::first_start() {
                Some(FirstStart::OfProgram) => journal::add(Entry::Sampled, command),
                Some(FirstStart::OfChild) => journal::add(Entry::SampledChild, command),
                None => {}
            }
            let task = agent::task(command).key(worker).start();
            Some(Profiled { agent, task })
        }
        Err(_) => {
            journal::add(Entry::Refused(Obstacle::Unknown), command);
            None
        }
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
