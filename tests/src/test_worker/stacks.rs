//! Many threads in stacks that are the same in every run: compiled functions, inlined ones, closures,
//! iterators, trait objects and generic functions in different orders, each call on a line of its own.

use std::hint::black_box;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Ways from one function to the next.
const CALLS: u32 = 7;
/// Functions between the thread's start and its wait.
const DEPTH: u32 = 4;
/// Ways to wait.
const WAITS: u32 = 5;
const THREADS: u32 = 64;
const STACKS_PER_THREAD: u32 = 4;
/// Longer than a few ticks, so that little time is between the stacks.
const STAY: Duration = Duration::from_millis(100);

/// Number of different stacks in which the threads wait.
pub(crate) const STACKS: u32 = THREADS * STACKS_PER_THREAD;

/// The rest of the calls that lead to a thread's wait.
#[derive(Clone, Copy)]
struct Route {
    digits: u32,
    depth: u32,
}

impl Route {
    /// Different for each number below [`STACKS`].
    fn of(number: u32) -> Route {
        // Spreads the numbers over all ways. The factor has no divisor in common with their number, so no
        // two numbers have the same route.
        Route {
            digits: number.wrapping_mul(0x9e37) % (CALLS.pow(DEPTH) * WAITS),
            depth: DEPTH,
        }
    }
}

/// Starts the threads, which wait in their stacks in turn until the process ends: it has no other work that
/// differs between two runs.
pub(crate) fn start() {
    for thread in 0..THREADS {
        thread::spawn(move || {
            let waits = Waits::new();
            let numbers = thread * STACKS_PER_THREAD..(thread + 1) * STACKS_PER_THREAD;
            for number in numbers.cycle() {
                black_box(next(&waits, Route::of(number)));
            }
        });
    }
}

/// Objects that a thread waits for. None of them is ever signaled.
struct Waits {
    lock: Mutex<()>,
    condition: Condvar,
    _sender: mpsc::Sender<()>,
    receiver: Receiver<()>,
}

impl Waits {
    fn new() -> Waits {
        let (_sender, receiver) = mpsc::channel();
        Waits {
            lock: Mutex::default(),
            condition: Condvar::new(),
            _sender,
            receiver,
        }
    }
}

/// Each call has its line. Code after a call keeps the frame.
#[inline(never)]
fn next(waits: &Waits, route: Route) -> u32 {
    if route.depth == 0 {
        return wait_by(waits, route.digits);
    }
    let rest = Route {
        digits: route.digits / CALLS,
        depth: route.depth - 1,
    };
    let found = match route.digits % CALLS {
        0 => by_function(waits, rest),
        1 => by_inlined_functions(waits, rest),
        2 => by_closure(|route| next(waits, route), rest),
        3 => by_iterator(waits, rest),
        4 => by_object(&Object(1), waits, rest),
        5 => by_generic(1_u8, waits, rest),
        _ => by_generic(1_u64, waits, rest),
    };
    black_box(found) + 1
}

#[inline(never)]
fn by_function(waits: &Waits, route: Route) -> u32 {
    black_box(next(waits, route)) + 2
}

#[inline(never)]
fn by_inlined_functions(waits: &Waits, route: Route) -> u32 {
    black_box(outer_inlined(waits, route)) + 3
}

#[inline(always)]
fn outer_inlined(waits: &Waits, route: Route) -> u32 {
    black_box(inner_inlined(waits, route)) + 4
}

#[inline(always)]
fn inner_inlined(waits: &Waits, route: Route) -> u32 {
    black_box(next(waits, route)) + 5
}

#[inline(never)]
fn by_closure(then: impl Fn(Route) -> u32, route: Route) -> u32 {
    black_box(then(route)) + 6
}

#[inline(never)]
fn by_iterator(waits: &Waits, route: Route) -> u32 {
    let found = [route]
        .iter()
        .map(|route| black_box(next(waits, *route)) + 7)
        .sum::<u32>();
    black_box(found) + 8
}

trait Follow {
    fn follow(&self, waits: &Waits, route: Route) -> u32;
}

struct Object(u32);

impl Follow for Object {
    #[inline(never)]
    fn follow(&self, waits: &Waits, route: Route) -> u32 {
        black_box(next(waits, route)) + self.0
    }
}

#[inline(never)]
fn by_object(object: &dyn Follow, waits: &Waits, route: Route) -> u32 {
    black_box(black_box(object).follow(waits, route)) + 9
}

#[inline(never)]
fn by_generic<N: Into<u64>>(number: N, waits: &Waits, route: Route) -> u32 {
    let more = black_box(next(waits, route));
    more + u32::try_from(number.into()).unwrap_or(0)
}

#[inline(never)]
fn wait_by(waits: &Waits, digits: u32) -> u32 {
    match digits % WAITS {
        0 => thread::sleep(STAY),
        1 => thread::park_timeout(STAY),
        2 => {
            let received = waits.receiver.recv_timeout(STAY);
            assert_eq!(received, Err(RecvTimeoutError::Timeout));
        }
        3 => {
            let guard = waits.lock.lock().expect("no thread panics");
            drop(waits.condition.wait_timeout(guard, STAY));
        }
        _ => {
            let guard = waits.lock.lock().expect("no thread panics");
            let waited = waits.condition.wait_timeout_while(guard, STAY, |()| true);
            drop(waited);
        }
    }
    black_box(digits)
}
