//! Functions that say nothing about the program.

use profiler_core::{Frame, FrameKind};

use super::{PARSED_MAX, word_end};

/// Whether a function says nothing about the program wherever it is called: how calls pass through the language,
/// iterators and runtimes.
#[must_use]
pub fn is_plumbing(name: &str) -> bool {
    name.len() <= PARSED_MAX
        && (is_rust_start(name) || is_language(name) || is_call(name) || is_runtime(name))
}

/// Whether a function starts a program or a thread, where all of its callers do. Elsewhere it is a function of the
/// program that has such a name.
#[must_use]
pub fn is_start(name: &str) -> bool {
    const NAMES: [&str; 6] = [
        "_start",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
    ];
    NAMES.contains(&name) || is_libc_start(name)
}

/// Whether a function is `main` as C calls it: the program's own, unless it [starts Rust](starts_rust).
#[must_use]
pub fn is_main(name: &str) -> bool {
    name == "main"
}

/// Whether a function is the first of Rust's runtime, which calls the `main` of Rust.
#[must_use]
pub fn starts_rust(name: &str) -> bool {
    has_part(name, &["lang_start", "lang_start_internal"])
}

/// Whether each frame of a stack, innermost first, says nothing about the program.
#[must_use]
pub fn plumbing_of_stack<T: AsRef<str>>(stack: &[Frame<T>]) -> Vec<bool> {
    let mut is_outermost = true;
    let mut marks = vec![false; stack.len()];
    for (index, frame) in stack.iter().enumerate().rev() {
        let name = frame.function.as_ref();
        let callee = index.checked_sub(1).map(|index| &stack[index].function);
        let calls_rust = callee.is_some_and(|callee| starts_rust(callee.as_ref()));
        let is_shim = is_start(name) || is_main(name) && calls_rust;
        let is_function = frame.kind == FrameKind::Function;
        marks[index] = is_function && (is_plumbing(name) || is_outermost && is_shim);
        is_outermost &= marks[index] || !is_function;
    }
    marks
}

/// How threads of Rust start.
fn is_rust_start(name: &str) -> bool {
    const NAMES: [&str; 2] = ["__rust_try", "rust_try"];
    /// Parts of paths.
    const PARTS: [&str; 3] = [
        "__rust_begin_short_backtrace",
        "__rust_end_short_backtrace",
        "catch_unwind",
    ];
    const STARTING: [&str; 5] = [
        "thread_start",
        "spawn",
        "lifecycle",
        "Thread::new",
        "ThreadInit",
    ];
    let of_threads = ["std::sys::", "std::thread::"];
    NAMES.contains(&name)
        || starts_rust(name)
        || has_part(name, &PARTS)
        || (starts_with_any(name, &of_threads) && STARTING.iter().any(|part| name.contains(part)))
}

/// Whether a path has one of these parts.
fn has_part(name: &str, parts: &[&str]) -> bool {
    let starts = name.match_indices("::").map(|(at, _)| at + 2);
    std::iter::once(0)
        .chain(starts)
        .any(|at| parts.contains(&&name[at..word_end(name, at)]))
}

fn is_libc_start(name: &str) -> bool {
    let rest = name.strip_prefix("__libc_start_");
    rest.is_some_and(|rest| word_end(rest, 0) == rest.len())
}

fn is_language(name: &str) -> bool {
    const STARTS: [&str; 12] = [
        "std::panicking::",
        "std::panic::",
        "std::rt::",
        "std::sys::backtrace::",
        "core::ops::function::",
        "core::iter::",
        "core::panic::unwind_safe::",
        "core::array::",
        "<core::iter::",
        "<core::panic::",
        "<core::ops::",
        "<core::array::",
    ];
    starts_with_any(name, &STARTS)
}

/// A call through `Fn` and its siblings.
fn is_call(name: &str) -> bool {
    const TRAIT: &str = " as core::ops::function::";
    let Some(inside) = name.strip_prefix('<') else {
        return false;
    };
    let boxed = inside.strip_prefix("alloc::boxed::Box<");
    boxed.is_some_and(|inside| inside.contains(TRAIT))
        || inside.match_indices(TRAIT).any(|(at, _)| {
            let method = &inside[at + TRAIT.len()..];
            method.starts_with("Fn") && method.contains(">::call")
        })
}

fn is_runtime(name: &str) -> bool {
    const STARTS: [&str; 6] = [
        "std::thread::local::",
        "tokio::runtime::",
        "tokio::task::",
        "tracing::instrument::",
        "rayon_core::",
        "rayon::iter::",
    ];
    starts_with_any(name.strip_prefix('<').unwrap_or(name), &STARTS)
}

fn starts_with_any(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| name.starts_with(start))
}
