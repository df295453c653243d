//! Recursion with several inlined functions a level, as parsers and tree walks have in optimized code.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use crate::alpha;

/// How long each task works.
const WORK: Duration = Duration::from_millis(1_200);
/// Stack of a level without optimization is below this.
const LEVEL_BYTES: usize = 2 << 10;

/// Runs a task `shallow`, a task `deep` that works that many levels down and at a few levels above it, and a
/// task `after`, one after the other.
pub(crate) fn run(depth: usize) {
    work("shallow", 1);
    work("deep", depth);
    work("after", 1);
}

fn work(name: &'static str, depth: usize) {
    let run = move || {
        let _task = agent::task(name).start();
        level(depth, (depth / 4).max(1));
    };
    let thread = thread::Builder::new()
        .stack_size((1 << 20) + depth * LEVEL_BYTES)
        .spawn(run)
        .expect("the system starts a thread");
    thread.join().expect("it does not panic");
}

/// Works at the bottom, and at every `step`th level on the way back.
#[inline(never)]
fn level(depth: usize, step: usize) -> u64 {
    if depth == 0 {
        return black_box(alpha(WORK));
    }
    let below = first(depth - 1, step);
    if depth.is_multiple_of(step) {
        black_box(alpha(Duration::from_millis(50)));
    }
    black_box(below) + 1
}

#[inline(always)]
fn first(depth: usize, step: usize) -> u64 {
    black_box(second(depth, step)) + 2
}

#[inline(always)]
fn second(depth: usize, step: usize) -> u64 {
    black_box(third(depth, step)) + 3
}

#[inline(always)]
fn third(depth: usize, step: usize) -> u64 {
    black_box(level(depth, step)) + 4
}
