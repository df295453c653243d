//! Progress of commands that take long.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on stderr that says what is done; nothing if stderr is no terminal.
pub(crate) fn bar(what: &str, length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}% {eta} left");
    bar.with_style(style.expect("a template").progress_chars("#> "))
        .with_prefix(what.to_owned())
}
