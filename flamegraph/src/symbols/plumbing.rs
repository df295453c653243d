//! Functions that say nothing about the program.

use super::{PARSED_MAX, word_end};

/// Whether a function says nothing about the program: how threads start, and how calls pass through the
/// language, iterators and runtimes.
#[must_use]
pub fn is_plumbing(name: &str) -> bool {
    name.len() <= PARSED_MAX
        && (is_thread_start(name) || is_language(name) || is_call(name) || is_runtime(name))
}

fn is_thread_start(name: &str) -> bool {
    const NAMES: [&str; 10] = [
        "_start",
        "main",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
        "thread_start",
        "__rust_try",
        "rust_try",
    ];
    /// Parts of paths.
    const PARTS: [&str; 5] = [
        "__rust_begin_short_backtrace",
        "__rust_end_short_backtrace",
        "lang_start",
        "lang_start_internal",
        "catch_unwind",
    ];
    const STARTING: [&str; 5] = [
        "thread_start",
        "spawn",
        "lifecycle",
        "Thread::new",
        "ThreadInit",
    ];
    let has_part = || {
        let starts = name.match_indices("::").map(|(at, _)| at + 2);
        std::iter::once(0)
            .chain(starts)
            .any(|at| PARTS.contains(&&name[at..word_end(name, at)]))
    };
    let of_threads = ["std::sys::", "std::thread::"];
    NAMES.contains(&name)
        || is_libc_start(name)
        || has_part()
        || (starts_with_any(name, &of_threads) && STARTING.iter().any(|part| name.contains(part)))
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
