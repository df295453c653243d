//! The output of a load.

use std::fmt::Display;

/// Prints one figure for the benchmark.
pub(crate) fn print_figure(name: &str, value: impl Display) {
    println!("{name} {value}");
}
