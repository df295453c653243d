//! Local diagnostics without a collector: the QR of a random 10,000 × 1,000 matrix in ten blocks and
//! the product Q·R, as in Dask's documentation. A bar shows how far it is; then there is a page
//! with the tasks, the resources and the cache of blocks:
//! `cargo run --release -p emberline-examples --example qr_diagnostics -- [FILE.html [SIDE]]`.

#[path = "../src/qr/factor.rs"]
mod factor;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use emberline_agent::task;
use emberline_diagnostics::{
    self, Cache, CacheProfiler, CachedValue, Profiler, ProgressBar, ResourceProfiler, visualize,
};
use ndarray::Array2;

const BLOCKS: usize = 10;
const THREADS: usize = 2;
/// Ten thousand times what rounding leaves.
const RESIDUAL_MAX: f64 = 1e-12;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments
        .next()
        .unwrap_or_else(|| "qr_diagnostics.html".into());
    let side = arguments.next().map_or(Ok(1_000), |side| side.parse())?;

    let profiler = Profiler::new();
    let resources = ResourceProfiler::new().interval(Duration::from_millis(50));
    let caches = CacheProfiler::bytes();
    let bar = ProgressBar::new();
    let scopes = (
        emberline_diagnostics::scope(profiler.clone()),
        emberline_diagnostics::scope(resources.clone()),
        emberline_diagnostics::scope(caches.clone()),
        emberline_diagnostics::scope(bar.clone()),
    );
    let run = emberline_diagnostics::run("qr")
        .expect("random", 10)
        .expect("qr", 10)
        .expect("stack-qr", 1);
    let residual = run
        .expect("dot", 10)
        .expect("check", 10)
        .during(|| tall_skinny_qr(side));
    drop(scopes);

    visualize(&[&profiler, &resources, &caches], &file)?;
    let tasks = profiler.results().len();
    let took = bar.last_duration();
    println!("{tasks} tasks in {took:.1?}, off by {residual:.1e} at most; see {file}");
    ensure!(residual < RESIDUAL_MAX, "the result is wrong");
    Ok(())
}

/// Returns the largest distance of Q·R from the matrix over all blocks.
fn tall_skinny_qr(side: usize) -> f64 {
    let cache = emberline_diagnostics::cache("blocks").sized_by(bytes);
    let blocks: Vec<_> = each_block(|block| make_and_factor(&cache, block, side));
    let (originals, factored): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();

    let stack_task = task("stack-qr").key("stack-qr").start();
    let rs: Vec<Array2<f64>> = factored.iter().map(|(_, r)| Array2::clone(r)).collect();
    let stacked = factor::householder_qr(&factor::stack_rows(&rs));
    let q2 = factor::form_q(&stacked, 0..side);
    let r = stacked.thin_r().clone();
    let q2: Vec<Mutex<Option<CachedValue<Array2<f64>>>>> = factor::split_rows(&[q2], side)
        .into_iter()
        .enumerate()
        .map(|(block, part)| Mutex::new(Some(cache.hold(format!("q2-{block}"), part))))
        .collect();
    drop(stack_task);

    let residuals = each_block(|block| {
        // Taken out, so that it leaves the cache when its product is done.
        let q2 = q2[block]
            .lock()
            .ok()
            .and_then(|mut part| part.take())
            .expect("each block is multiplied once");
        let dot_task = task("dot").key(format!("dot-{block}")).start();
        let q = factor::multiply(&factored[block].0, &q2);
        let product = cache.hold(format!("x-{block}"), factor::multiply(&q, &r));
        drop((q2, dot_task));
        let check_task = task("check").key(format!("check-{block}")).start();
        let residual = factor::relative_residual(&product, &originals[block]);
        if residual.is_nan() || residual > RESIDUAL_MAX {
            check_task.fail(format!("off by {residual:e}"));
        }
        residual
    });
    residuals.into_iter().fold(0.0, f64::max)
}

type Block = CachedValue<Array2<f64>>;

/// A block, and its Q and R.
fn make_and_factor(
    cache: &Cache<Array2<f64>>,
    block: usize,
    side: usize,
) -> (Block, (Block, Block)) {
    let random_task = task("random").key(format!("random-{block}")).start();
    let mut seed = block as u64;
    let original = factor::random_block(side, side, factor::split_mix(&mut seed));
    let original = cache.hold(format!("random-{block}"), original);
    drop(random_task);

    let _qr_task = task("qr").key(format!("qr-{block}")).start();
    let factored = factor::householder_qr(&original);
    let q = cache.hold(format!("q-{block}"), factor::form_q(&factored, 0..side));
    let r = cache.hold(format!("r-{block}"), factored.thin_r().clone());
    (original, (q, r))
}

fn bytes(matrix: &Array2<f64>) -> u64 {
    (matrix.len() * size_of::<f64>()) as u64
}

/// Does `work` for all blocks on a few threads; gives the results in the order of the blocks.
fn each_block<T: Send>(work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work_on = || {
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= BLOCKS {
                break;
            }
            let result = work(block);
            done.lock()
                .expect("no thread panics with the lock")
                .push((block, result));
        }
    };
    std::thread::scope(|scope| {
        for index in 0..THREADS {
            let thread = std::thread::Builder::new().name(format!("qr-{index}"));
            thread
                .spawn_scoped(scope, work_on)
                .expect("the system has a thread to give");
        }
    });
    let mut done = done.into_inner().expect("no thread panics with the lock");
    done.sort_by_key(|(block, _)| *block);
    done.into_iter().map(|(_, result)| result).collect()
}
