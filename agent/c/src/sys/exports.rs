//! The functions of `emberline.h`. Their comments are those of the header.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::sync::Once;

use agent::{Direction, TaskHandle};

use super::read::{self, Growing};
use crate::call::{self, EmberlineStatus, Failure};
use crate::lifecycle;
use crate::objects::{self, Kind, Object};
use crate::scopes;
use crate::settings::{self, Description, Settings};

/// A label: a key, and a value that may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EmberlineLabel {
    /// Not empty.
    pub key: *const c_char,
    /// NULL is empty.
    pub value: *const c_char,
}

/// Settings of an agent. Set the size, and leave the rest 0 for the defaults:
/// `emberline_settings settings = {.size = sizeof settings, .worker = "worker-1"};`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EmberlineSettings {
    /// `sizeof(emberline_settings)`.
    pub size: usize,
    /// The worker's id. Default: `HOST:PID`.
    pub worker: *const c_char,
    /// `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`; several of them separated by commas. Default: the
    /// environment variable `EMBERLINE_URL`, or else `http://127.0.0.1:4747`.
    pub collector: *const c_char,
    /// The file with the token for the collector. Default: by `EMBERLINE_TOKEN_FILE` or `EMBERLINE_TOKEN`.
    pub token_file: *const c_char,
    /// The task of threads that are in none. Only samples belong to it.
    pub default_task: *const c_char,
    /// Labels of the worker, at most 64.
    pub labels: *const EmberlineLabel,
    /// Number of the labels.
    pub labels_count: usize,
    /// Time between two samples of a thread, in seconds, from 0.001 to 1. Default: 0.01.
    pub interval_s: f64,
    /// Most CPU time for sampling, as a part of one processor, from 0.001 to 1. Default: 0.01.
    pub cpu_limit: f64,
    /// Longest wait of `emberline_stop`, in seconds. Default: 3.
    pub flush_timeout_s: f64,
}

/// Properties of a task at its start. Set the size, and leave the rest 0 for the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EmberlineTaskOptions {
    /// `sizeof(emberline_task_options)`.
    pub size: usize,
    /// Identifies the task within its name. It is cut to 4 KiB.
    pub key: *const c_char,
    /// Labels of the task, of which the first 16 are kept.
    pub labels: *const EmberlineLabel,
    /// Number of the labels.
    pub labels_count: usize,
    /// A running task. Default: the current task of the thread.
    pub parent: u64,
    /// How long the work has waited for its start, in seconds. It becomes the phase `queue`.
    pub queued_for_s: f64,
    /// The number of this attempt, from 1, for work that is repeated after a failure. Default: none.
    pub attempt: u32,
    /// If not 0, the thread does not enter the task: threads that work for it call `emberline_task_enter`.
    pub detached: u32,
}

/// The direction of a transfer, seen from this process.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EmberlineDirection {
    /// This process receives.
    Incoming = 0,
    /// This process sends.
    Outgoing = 1,
}

// SAFETY: the first field is a `usize`; numbers and pointers may have any bytes.
unsafe impl Growing for EmberlineSettings {
    const NAME: &'static str = "emberline_settings";
}

// SAFETY: as above.
unsafe impl Growing for EmberlineTaskOptions {
    const NAME: &'static str = "emberline_task_options";
}

thread_local! {
    /// The text that [`emberline_mode`] returned last.
    static MODE: RefCell<CString> = RefCell::default();
}

/// Starts the agent, which ends with the program at the latest.
fn start(settings: &Settings) -> Result<(), Failure> {
    static AT_EXIT: Once = Once::new();
    lifecycle::start(settings.builder()?)?;
    AT_EXIT.call_once(|| {
        // SAFETY: the function lives as long as this library: the C library calls it before the library is unloaded.
        let _ = unsafe { libc::atexit(stop_at_exit) };
    });
    Ok(())
}

/// Runs when the program returns from `main` or calls `exit`.
extern "C" fn stop_at_exit() {
    emberline_stop();
}

/// Starts the agent of this process with the worker's id and the collector's URL, each of which may be NULL for its
/// default. The program never waits for a collector. A forked child has no agent until it starts one. At the end of the
/// program, by `exit` or by the return from `main`, `emberline_stop` is called.
///
/// # Safety
/// Texts are NULL or end with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_start(
    worker: *const c_char,
    collector: *const c_char,
) -> EmberlineStatus {
    call::status(|| {
        // SAFETY: the same contract.
        let worker = unsafe { read::text(worker, "worker")? };
        // SAFETY: likewise.
        let collector = unsafe { read::text(collector, "collector")? };
        let settings = Settings {
            worker,
            collector,
            ..Settings::default()
        };
        start(&settings)
    })
}

/// Like `emberline_start`, with all settings; NULL is all defaults.
///
/// # Safety
/// `settings` is NULL or has `size` bytes; its texts are NULL or end with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_start_with(
    settings: *const EmberlineSettings,
) -> EmberlineStatus {
    call::status(|| {
        // SAFETY: the same contract, as in the rest of this function.
        let given = unsafe { read::sized(settings)? };
        let settings = Settings {
            // SAFETY: as above.
            worker: unsafe { read::text(given.worker, "worker")? },
            // SAFETY: as above.
            collector: unsafe { read::text(given.collector, "collector")? },
            // SAFETY: as above.
            token_file: unsafe { read::text(given.token_file, "token_file")? },
            // SAFETY: as above.
            default_task: unsafe { read::text(given.default_task, "default_task")? },
            // SAFETY: as above.
            labels: unsafe { read::labels(given.labels, given.labels_count)? },
            interval_s: given.interval_s,
            cpu_limit: given.cpu_limit,
            flush_timeout_s: given.flush_timeout_s,
        };
        start(&settings)
    })
}

/// Waits until the collector has everything that was recorded before this call, at most for so many seconds. Usually
/// it takes some milliseconds, and up to a second if another flush was less than a second ago.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_flush(timeout_s: f64) -> EmberlineStatus {
    call::status(|| {
        lifecycle::flush(settings::seconds(timeout_s, "timeout_s")?.unwrap_or_default())
    })
}

/// Ends the agent after a last flush. Does nothing if no agent runs. It waits for flushes of other threads.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_stop() -> EmberlineStatus {
    call::status(lifecycle::stop)
}

/// How much of this process the sampler can see: `full`, `stopped` if no agent runs, or else what it cannot. The text
/// is valid until the thread's next call of this function.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_mode() -> *const c_char {
    let mut text = c"".as_ptr();
    call::status(|| {
        let mode = CString::new(lifecycle::mode()).unwrap_or_default();
        let kept = MODE.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            *kept = mode;
            kept.as_ptr()
        });
        text = kept.unwrap_or(text);
        Ok(())
    });
    text
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no 0"),
        };
    VERSION.as_ptr()
}

/// The status of this thread's last call of a function that returns a status or a handle.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_last_status() -> EmberlineStatus {
    call::last_status()
}

/// Says what was wrong with this thread's last call, and what is allowed; empty after a call without an error. The text is
/// valid until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_last_error() -> *const c_char {
    call::last_error()
}

/// Begins a task, which this thread enters. Profiles and totals are grouped by `name`: keep the number of names small.
/// `key` identifies the task within its name, and may be NULL. Returns its handle; 0 while no agent runs, and after an
/// error.
///
/// # Safety
/// Texts are NULL or end with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_task_begin(name: *const c_char, key: *const c_char) -> u64 {
    call::handle(|| {
        // SAFETY: the same contract.
        let name = unsafe { read::name(name, "name of a task")? };
        // SAFETY: likewise.
        let key = unsafe { read::text(key, "key of a task")? };
        let description = Description {
            name,
            key,
            attempt: 0,
            parent: None,
            labels: Vec::new(),
            queued_for_s: 0.0,
        };
        begin_task(&description, true)
    })
}

/// Like `emberline_task_begin`, with all properties; NULL is all defaults.
///
/// # Safety
/// `options` is NULL or has `size` bytes; texts are NULL or end with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_task_begin_with(
    name: *const c_char,
    options: *const EmberlineTaskOptions,
) -> u64 {
    call::handle(|| {
        // SAFETY: the same contract, as in the rest of this function.
        let name = unsafe { read::name(name, "name of a task")? };
        // SAFETY: as above.
        let options = unsafe { read::sized(options)? };
        let parent = (options.parent != 0).then(|| objects::task(options.parent));
        let description = Description {
            name,
            // SAFETY: as above.
            key: unsafe { read::text(options.key, "key of a task")? },
            attempt: options.attempt,
            parent: parent.transpose()?,
            // SAFETY: as above.
            labels: unsafe { read::labels(options.labels, options.labels_count)? },
            queued_for_s: options.queued_for_s,
        };
        begin_task(&description, options.detached == 0)
    })
}

fn begin_task(description: &Description<'_>, enters: bool) -> Result<u64, Failure> {
    lifecycle::check_running()?;
    let builder = description.builder()?;
    let mut handle = TaskHandle::default();
    let number = objects::add(|| {
        let task = builder.detached();
        handle = task.handle();
        Object::Task(task)
    })?;
    if enters && let Err(failure) = scopes::begin(number, &handle) {
        objects::remove(number, Kind::Task)?;
        return Err(failure);
    }
    Ok(number)
}

/// Ends a task as `ok`, on any thread. The thread that began it leaves it, at its next call if that is another one.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_task_end(task: u64) -> EmberlineStatus {
    end(task, Kind::Task, |object| {
        if let Object::Task(task) = object {
            task.end();
        }
    })
}

/// Like `emberline_task_end`, as `failed`, with a cause that may be NULL. It is cut to 1 KiB.
///
/// # Safety
/// The text is NULL or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_task_fail(task: u64, cause: *const c_char) -> EmberlineStatus {
    // SAFETY: the same contract.
    let cause = unsafe { cause_of(cause) };
    end(task, Kind::Task, |object| {
        if let Object::Task(task) = object {
            task.fail(cause);
        }
    })
}

/// Like `emberline_task_end`, as `cancelled`.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_task_cancel(task: u64) -> EmberlineStatus {
    end(task, Kind::Task, |object| {
        if let Object::Task(task) = object {
            task.cancel();
        }
    })
}

/// The innermost task that this thread is in, to hand it to threads of a pool; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_current_task() -> u64 {
    call::handle(|| Ok(scopes::current()))
}

/// Makes this thread's samples belong to a task until `emberline_task_leave`. 0 puts the thread outside any task. A
/// task that has ended is an error, and needs its `emberline_task_leave` all the same.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_task_enter(task: u64) -> EmberlineStatus {
    call::status(|| {
        if task == 0 {
            return scopes::enter(task, &TaskHandle::default());
        }
        match objects::task(task) {
            Ok(handle) => scopes::enter(task, &handle),
            Err(failure) => {
                scopes::enter_nothing(task)?;
                Err(failure)
            }
        }
    })
}

/// Leaves the task that this thread has entered last under this number.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_task_leave(task: u64) -> EmberlineStatus {
    call::status(|| scopes::leave(task))
}

/// Sets the size of a running task's result, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_task_result_bytes(task: u64, bytes: u64) -> EmberlineStatus {
    call::status(|| {
        if task != 0 {
            objects::task(task)?.result_bytes(bytes);
        }
        Ok(())
    })
}

/// Sets the type of a running task's result. Keep the number of types small.
///
/// # Safety
/// The text is NULL or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_task_result_type(
    task: u64,
    type_name: *const c_char,
) -> EmberlineStatus {
    call::status(|| {
        // SAFETY: the same contract.
        let type_name = unsafe { read::name(type_name, "type of a result")? };
        if task != 0 {
            objects::task(task)?.result_type(type_name);
        }
        Ok(())
    })
}

/// Puts this thread's task into a phase until `emberline_phase_end` on this thread. Phases nest. Returns its handle; 0
/// while no agent runs, and after an error.
///
/// # Safety
/// The text is NULL or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_phase_begin(name: *const c_char) -> u64 {
    call::handle(|| {
        // SAFETY: the same contract.
        let name = unsafe { read::name(name, "name of a phase")? };
        lifecycle::check_running()?;
        scopes::begin_phase(name)
    })
}

/// Ends a phase, on the thread that began it.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_phase_end(phase: u64) -> EmberlineStatus {
    call::status(|| match phase {
        0 => Ok(()),
        phase => scopes::end_phase(phase),
    })
}

/// Begins a transfer of what `keys` name, in an `emberline_direction`. `peer` is the name of the other end. Keys and
/// `type_name` may be NULL. Returns its handle; 0 while no agent runs, and after an error.
///
/// # Safety
/// Texts are NULL or end with a 0, and `keys` is NULL or has `keys_count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_transfer_begin(
    direction: i32,
    peer: *const c_char,
    keys: *const *const c_char,
    keys_count: usize,
    type_name: *const c_char,
) -> u64 {
    call::handle(|| {
        // SAFETY: the same contract, as in the rest of this function.
        let peer = unsafe { read::name(peer, "peer of a transfer")? };
        // SAFETY: as above.
        let keys = unsafe { read::texts(keys, keys_count, "keys of a transfer")? };
        // SAFETY: as above.
        let type_name = unsafe { read::text(type_name, "type of a transfer")? };
        let direction = settings::direction(direction)?;
        lifecycle::check_running()?;
        begin_transfer(direction, peer, &keys, type_name)
    })
}

fn begin_transfer(
    direction: Direction,
    peer: &str,
    keys: &[&str],
    type_name: Option<&str>,
) -> Result<u64, Failure> {
    objects::add(|| {
        let mut builder = agent::transfer(direction, peer);
        for key in keys {
            builder = builder.key(key);
        }
        if let Some(type_name) = type_name {
            builder = builder.type_name(type_name);
        }
        Object::Transfer(builder.start())
    })
}

/// Adds bytes to a transfer, as the program sees them.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_transfer_add_bytes(transfer: u64, bytes: u64) -> EmberlineStatus {
    call::status(|| match transfer {
        0 => Ok(()),
        number => objects::with_transfer(number, |transfer| transfer.add_bytes(bytes)),
    })
}

/// Adds bytes to a transfer as they crossed the link, if compression makes that another number.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_transfer_add_compressed_bytes(
    transfer: u64,
    bytes: u64,
) -> EmberlineStatus {
    call::status(|| match transfer {
        0 => Ok(()),
        number => objects::with_transfer(number, |transfer| transfer.add_compressed_bytes(bytes)),
    })
}

/// Ends a transfer as `ok`, on any thread.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_transfer_end(transfer: u64) -> EmberlineStatus {
    end(transfer, Kind::Transfer, drop)
}

/// Like `emberline_transfer_end`, as `failed`, with a cause that may be NULL.
///
/// # Safety
/// The text is NULL or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_transfer_fail(
    transfer: u64,
    cause: *const c_char,
) -> EmberlineStatus {
    // SAFETY: the same contract.
    let cause = unsafe { cause_of(cause) };
    end(transfer, Kind::Transfer, |object| {
        if let Object::Transfer(transfer) = object {
            transfer.fail(cause);
        }
    })
}

/// Like `emberline_transfer_end`, as `cancelled`.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_transfer_cancel(transfer: u64) -> EmberlineStatus {
    end(transfer, Kind::Transfer, |object| {
        if let Object::Transfer(transfer) = object {
            transfer.cancel();
        }
    })
}

/// Announces further tasks of a name, so that the collector shows how far the fleet is.
///
/// # Safety
/// The text is NULL or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_expect_tasks(
    name: *const c_char,
    tasks: u64,
) -> EmberlineStatus {
    call::status(|| {
        // SAFETY: the same contract.
        let name = unsafe { read::name(name, "name of a task")? };
        lifecycle::check_running()?;
        agent::expect_tasks(name, tasks);
        Ok(())
    })
}

/// Reports how much memory the program manages and has spilled, in bytes, by its own account.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_report_memory(
    managed_bytes: u64,
    spilled_bytes: u64,
) -> EmberlineStatus {
    call::status(|| {
        lifecycle::check_running()?;
        agent::report_memory(managed_bytes, spilled_bytes);
        Ok(())
    })
}

/// Names the period until `emberline_run_end`, by which profiles of the whole fleet are selected. Returns its handle;
/// 0 while no agent runs, and after an error.
///
/// # Safety
/// The text is NULL or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emberline_mark_run(name: *const c_char) -> u64 {
    call::handle(|| {
        // SAFETY: the same contract.
        let name = unsafe { read::name(name, "name of a run")? };
        lifecycle::check_running()?;
        objects::add(|| Object::Run(agent::mark_run(name)))
    })
}

/// Ends a named period, on any thread.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_run_end(run: u64) -> EmberlineStatus {
    end(run, Kind::Run, drop)
}

/// Returns the text of a cause: one that is not UTF-8 still ends what has failed.
///
/// # Safety
/// The text is NULL or ends with a 0.
unsafe fn cause_of(cause: *const c_char) -> String {
    if cause.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, so by the contract it ends with a 0.
    let cause = unsafe { CStr::from_ptr(cause) };
    cause.to_string_lossy().into_owned()
}

/// Ends an object of this kind by `end`, and the scope in which this thread began it.
fn end(number: u64, kind: Kind, end: impl FnOnce(Object)) -> EmberlineStatus {
    call::status(|| {
        if number == 0 {
            return Ok(());
        }
        end(objects::remove(number, kind)?);
        scopes::end(number);
        Ok(())
    })
}
