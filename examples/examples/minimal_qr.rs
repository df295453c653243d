//! The QR of a matrix and its product Q·R, on two threads, for ten seconds.

#[path = "../src/qr/factor.rs"]
#[expect(dead_code, reason = "the fleet of the demo uses the rest")]
mod factor;

use std::time::{Duration, Instant};

use ndarray::Array2;

fn main() -> anyhow::Result<()> {
    let url = std::env::var("EMBERLINE_URL").unwrap_or("http://127.0.0.1:4747".into());
    let agent = emberline_agent::Agent::builder().collector(url);
    let _agent = agent.worker("qr").start()?;
    std::thread::scope(|scope| {
        (0..2).for_each(|thread| drop(scope.spawn(move || factor_for_ten_seconds(thread))));
    });
    Ok(())
}

fn factor_for_ten_seconds(thread: usize) {
    let begun = Instant::now();
    for round in (thread..).step_by(2) {
        if begun.elapsed() > Duration::from_secs(10) {
            break;
        }
        let begin = |name: &str| emberline_agent::task(name).key(format!("{name}-{round}"));
        let task = begin("fill").start();
        let matrix = wave_matrix(1_000 + round, 500);
        drop(task);
        let task = begin("qr").start();
        let factored = factor::householder_qr(&matrix);
        drop(task);
        let task = begin("dot").start();
        let q = factor::form_q(&factored, 0..matrix.ncols());
        let error = factor::relative_residual(&q.dot(factored.thin_r()), &matrix);
        if error > 1e-12 {
            task.fail(format!("off by {error:e}"));
        }
    }
}

fn wave_matrix(rows: usize, columns: usize) -> Array2<f64> {
    Array2::from_shape_fn((rows, columns), |(i, j)| ((i * i + 7 * j) as f64).sin())
}
