//! Rows on standard output, messages on standard error.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use flamegraph::text::wrapped_words;
use tokio::io::Interest;
use tokio::net::unix::pipe;

/// Width of messages without `--wide`.
const LINE_COLUMNS: usize = 80;

static WIDE: AtomicBool = AtomicBool::new(false);

/// The reader of standard output is gone.
#[derive(Debug, thiserror::Error)]
#[error("stdout was closed")]
pub(crate) struct StdoutClosed;

/// Selects messages of one line each, once, before anything is printed.
pub(crate) fn select_width(wide: bool) {
    WIDE.store(wide, Ordering::Relaxed);
}

/// Writes to standard output.
pub(crate) fn print(data: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(data).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        written => written.context("could not write to stdout"),
    }
}

/// Writes a line to standard error; errors are ignored.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes a sentence to standard error, in lines that fit a terminal.
pub(crate) fn say_wrapped(sentence: &str) {
    let columns = if WIDE.load(Ordering::Relaxed) {
        usize::MAX
    } else {
        LINE_COLUMNS
    };
    say(&wrapped_words(sentence, 2, columns));
}

/// Waits until nobody reads standard output. The reader may have been killed.
pub(crate) async fn reader_is_gone() {
    let output = io::stdout().as_fd().try_clone_to_owned();
    let watched = output.and_then(pipe::Sender::from_owned_fd_unchecked);
    // A file has no reader.
    let is_gone = match watched {
        Ok(output) => output.ready(Interest::ERROR).await.is_ok(),
        Err(_) => false,
    };
    if !is_gone {
        std::future::pending().await
    }
}
