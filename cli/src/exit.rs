//! How a command ends: what is said on stderr, and the exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use collector::ServeError;
use collector::store::StoreError;
use flamegraph::text::printable;

use crate::client::ClientError;

/// Something that was typed is wrong; the text says what is allowed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadInput(pub(crate) String);

/// Says what failed and gives the code: 0 done, 2 bad input, 1 anything else.
pub(crate) fn code(done: anyhow::Result<()>) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    // Nobody can be told if stderr is closed.
    let _ = io::stderr().write_all(text(&error).as_bytes());
    ExitCode::from(if is_bad_input(&error) { 2 } else { 1 })
}

/// The reader of our output went away, as `head` does: it has what it wanted.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<crate::output::StdoutClosed>().is_some()
}

fn is_bad_input(error: &anyhow::Error) -> bool {
    let asked =
        matches!(error.downcast_ref(), Some(ClientError::Refused(_) | ClientError::Url { .. }));
    let listened = matches!(error.downcast_ref(), Some(ServeError::Insecure { .. }));
    let looked = matches!(error.downcast_ref(), Some(StoreError::NoStore { .. }));
    error.is::<BadInput>() || asked || listened || looked
}

/// The error and its causes, a line each; names in it may come from elsewhere.
fn text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for (number, cause) in error.chain().enumerate() {
        let cause = cause.to_string();
        let mut lines = cause.lines().map(printable);
        let first = lines.next().unwrap_or_default();
        text.push_str(if number == 0 { "error: " } else { "  because: " });
        text.push_str(&first);
        text.push('\n');
        for line in lines {
            text.push_str("  ");
            text.push_str(line.trim_start());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn causes_follow_and_escapes_are_shown() {
        let error = anyhow!("disk \u{1b}[31mfull").context("could not write\nuse -o");
        assert_eq!(
            text(&error),
            "error: could not write\n  use -o\n  because: disk \\u{1b}[31mfull\n"
        );
    }

    #[test]
    fn bad_input_is_told_from_failure() {
        assert!(is_bad_input(&BadInput("x".to_owned()).into()));
        assert!(!is_bad_input(&anyhow!("x")));
        let address = ([0, 0, 0, 0], 1).into();
        assert!(is_bad_input(&collector::ServeError::Insecure { address }.into()));
    }
}
