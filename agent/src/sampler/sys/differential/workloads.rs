//! The workloads that the differential test interrupts: each loops in one kind of code.

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;
use std::{env, hint, mem, panic, thread};

/// A workload: its threads are asked in turn.
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) start: Box<dyn FnOnce() -> Running>,
}

/// A running workload, which ends when this is dropped.
pub(super) struct Running {
    pub(super) threads: Vec<u32>,
    stop: Arc<AtomicBool>,
    driver: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let driver = self.driver.take().expect("taken here only");
        assert!(
            driver.join().is_ok() || thread::panicking(),
            "the workload does not panic"
        );
    }
}

pub(super) fn all(helper: &Helper) -> Vec<Workload> {
    let from = vec![1u8; 1 << 20];
    let mut to = vec![0u8; 1 << 20];
    let Helper {
        exceptions,
        prologues,
        calls,
        lazy_calls,
        signals,
        ..
    } = *helper;
    let mut number = 1;
    let mut all = vec![
        looping("memcpy", move || to.copy_from_slice(hint::black_box(&from))),
        looping("malloc", allocate),
        looping("fmt", || {
            ignore(format!(
                "{:?} {:>9.3}",
                hint::black_box([7u8; 20]),
                hint::black_box(3.25f64)
            ))
        }),
        looping("qsort", sort_by_callback),
        looping("vdso", || ignore(Instant::now())),
        looping("panic", || {
            ignore(panic::catch_unwind(|| unwind(hint::black_box(8))))
        }),
        looping("c++", move || ignore(exceptions(8))),
        looping("prologues", move || number = prologues(number)),
        looping("plt", move || ignore(calls(1))),
        looping("handler", move || ignore(signals(1))),
        Workload {
            name: "tokio",
            start: Box::new(tokio_tasks),
        },
        Workload {
            name: "rayon",
            start: Box::new(rayon_tasks),
        },
    ];
    // libgcc crashes in the loader of aarch64, in three of four samples.
    if cfg!(target_arch = "x86_64") {
        all.push(looping("lazy plt", move || ignore(lazy_calls(1))));
    }
    all
}

/// Discards a result that must still be computed.
fn ignore<T>(result: T) {
    let _ = hint::black_box(result);
}

fn looping(name: &'static str, mut work: impl FnMut() + Send + 'static) -> Workload {
    let start = move || {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (started, start) = mpsc::channel();
        let driver = thread::spawn(move || {
            started.send(thread_id()).expect("the receiver waits");
            deep(12, &mut || {
                while !stopped.load(Ordering::Acquire) {
                    work();
                }
            });
        });
        let threads = vec![start.recv().expect("the thread starts")];
        Running {
            threads,
            stop,
            driver: Some(driver),
        }
    };
    Workload {
        name,
        start: Box::new(start),
    }
}

/// Adds frames below the work, as in a real program.
#[inline(never)]
fn deep(depth: usize, work: &mut dyn FnMut()) -> usize {
    if depth == 0 {
        work();
        return 0;
    }
    let room = hint::black_box([depth; 6]);
    deep(depth - 1, work) + hint::black_box(&room).len()
}

fn allocate() {
    let mut kept = Vec::new();
    for size in 0..400usize {
        kept.push(vec![0u8; size * 7_919 % 5_000 + 1]);
        if size % 3 == 0 {
            kept.swap_remove(0);
        }
    }
    hint::black_box(&kept);
}

fn sort_by_callback() {
    extern "C" fn order(left: *const c_void, right: *const c_void) -> c_int {
        // SAFETY: `qsort` passes pointers to elements of the array below.
        let left = unsafe { *left.cast::<u32>() };
        // SAFETY: as above.
        let right = unsafe { *right.cast::<u32>() };
        left.cmp(&right) as c_int
    }
    let mut numbers: Vec<u32> = (0..3_000u32)
        .map(|n| n.wrapping_mul(2_654_435_761))
        .collect();
    // SAFETY: the array has that many elements of 4 bytes, and `order` compares two of them.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, Some(order)) };
    hint::black_box(&numbers);
}

/// Unwinds through frames with destructors. No hook runs, so nothing is printed.
#[inline(never)]
fn unwind(depth: usize) -> usize {
    if depth == 0 {
        panic::resume_unwind(Box::new(1u8));
    }
    let room = hint::black_box(vec![depth]);
    unwind(depth - 1) + room[0]
}

fn tokio_tasks() -> Running {
    let (started, start) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let driver = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .on_thread_start(move || started.send(thread_id()).expect("the receiver waits"))
            .build()
            .expect("the machine has two threads");
        let tasks: Vec<_> = (0..8)
            .map(|seed| runtime.spawn(spin(seed, stopped.clone())))
            .collect();
        for task in tasks {
            runtime.block_on(task).expect("it does not panic");
        }
    });
    let threads = start.iter().take(2).collect();
    Running {
        threads,
        stop,
        driver: Some(driver),
    }
}

async fn spin(seed: u64, stop: Arc<AtomicBool>) {
    let mut sum = seed;
    while !stop.load(Ordering::Acquire) {
        for step in 0..1_000 {
            sum = hint::black_box(sum.wrapping_mul(31) + step);
        }
        tokio::task::yield_now().await;
    }
}

fn rayon_tasks() -> Running {
    use rayon::iter::{IntoParallelIterator, ParallelIterator};
    let (started, start) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let driver = thread::spawn(move || {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(2)
            .start_handler(move |_| started.send(thread_id()).expect("the receiver waits"))
            .build()
            .expect("the machine has two threads");
        while !stopped.load(Ordering::Acquire) {
            let squares = || {
                (0..20_000u64)
                    .into_par_iter()
                    .map(|n| n * n)
                    .filter(|n| n % 3 == 0)
            };
            hint::black_box(pool.install(|| squares().sum::<u64>()));
        }
    });
    let threads = start.iter().take(2).collect();
    Running {
        threads,
        stop,
        driver: Some(driver),
    }
}

fn thread_id() -> u32 {
    nix::unistd::gettid().as_raw().unsigned_abs()
}

/// The functions of `helper.cpp`.
pub(super) struct Helper {
    /// Calls a function. Returns 1 if it crashed.
    pub(super) guarded: extern "C" fn(extern "C" fn()) -> c_int,
    exceptions: extern "C" fn(c_int) -> c_int,
    prologues: extern "C" fn(u64) -> u64,
    calls: extern "C" fn(u64) -> u64,
    lazy_calls: extern "C" fn(u64) -> u64,
    signals: extern "C" fn(u64) -> u64,
}

impl Helper {
    /// Compiles the helper with the system's compiler and loads it with lazy binding.
    pub(super) fn load() -> Helper {
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let library = directory.path().join("libhelper.so");
        compile(directory.path(), &library);
        let path =
            CString::new(library.to_str().expect("a UTF-8 path")).expect("a path without NUL");
        // SAFETY: the helper's constructor only copies its own table.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "loading {}", library.display());
        let find = |name: &CStr| {
            // SAFETY: `handle` is a loaded library, which is never unloaded.
            let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!function.is_null(), "the helper has no {name:?}");
            function
        };
        type Step = extern "C" fn(u64) -> u64;
        // SAFETY: `helper.cpp` defines the function with this type.
        let step = |name| unsafe { mem::transmute::<*mut c_void, Step>(find(name)) };
        let exceptions = find(c"helper_exceptions");
        let guarded = find(c"helper_guarded");
        Helper {
            // SAFETY: `helper.cpp` defines the function with this type.
            guarded: unsafe {
                mem::transmute::<*mut c_void, extern "C" fn(extern "C" fn()) -> c_int>(guarded)
            },
            // SAFETY: `helper.cpp` defines the function with this type.
            exceptions: unsafe {
                mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(exceptions)
            },
            prologues: step(c"helper_prologues"),
            calls: step(c"helper_calls"),
            lazy_calls: step(c"helper_lazy_calls"),
            signals: step(c"helper_signals"),
        }
    }
}

fn compile(directory: &Path, library: &Path) {
    let source = directory.join("helper.cpp");
    std::fs::write(&source, include_str!("helper.cpp")).expect("writing a temporary file");
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let compiler = cc::Build::new()
        .cpp(true)
        .target(&target)
        .host(&target)
        .out_dir(directory)
        .opt_level(2)
        .cargo_metadata(false)
        .get_compiler();
    let status = compiler
        .to_command()
        .args(["-shared", "-fPIC", "-Wl,-z,lazy,-z,norelro"])
        // Signed return addresses.
        .args(cfg!(target_arch = "aarch64").then_some("-mbranch-protection=pac-ret"))
        .arg("-o")
        .args([library, &source])
        .status()
        .expect("starting the C++ compiler, which the tests need (on Debian: `apt install g++`)");
    assert!(status.success(), "compiling helper.cpp: {status}");
}
