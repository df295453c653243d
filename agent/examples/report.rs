//! A report of a piece of code: one HTML file, and JSON next to it. Needs the program `emberline` in `PATH`,
//! or its path in `EMBERLINE_PROGRAM`; without it the program says so and runs all the same.

use std::collections::BTreeMap;

use emberline_agent::{report, task};

fn main() {
    let file = std::env::temp_dir().join(format!("report-{}.html", std::process::id()));
    let guard = report(&file);
    let words = {
        let _task = task("write").start();
        text(200_000)
    };
    let counts = {
        let _task = task("count").start();
        count(&words)
    };
    println!("{} different words", counts.len());
    match guard.finish() {
        Ok(file) => println!("open {} in a browser", file.display()),
        Err(error) => println!("no report: {error}"),
    }
}

fn text(words: u32) -> String {
    (0..words)
        .map(|number| format!("w{} ", number.wrapping_mul(2_654_435_761) >> 20))
        .collect()
}

fn count(text: &str) -> BTreeMap<&str, u32> {
    let mut counts = BTreeMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_default() += 1;
    }
    counts
}
