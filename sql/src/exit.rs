//! How the program ends: the error on standard error, and the exit code. Both are as in `emberline`.

use std::fmt::Write as _;
use std::process::ExitCode;

use flamegraph::text::printable;
use store::StoreError;

use crate::output::{StdoutClosed, say};

/// Invalid input; the text says what is expected.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadInput(pub(crate) String);

/// Prints the error and returns the code.
pub(crate) fn code(done: anyhow::Result<()>) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    if error.is::<StdoutClosed>() {
        return ExitCode::SUCCESS;
    }
    say(text(&error).trim_end());
    let is_bad_input = error.is::<BadInput>()
        || matches!(
            error.downcast_ref(),
            Some(StoreError::NoStore { .. } | StoreError::NoStoreInPlace { .. })
        );
    ExitCode::from(if is_bad_input { 2 } else { 1 })
}

/// The error and its causes, a line each. Control characters are escaped, because names in it may come from
/// other machines.
fn text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for (number, cause) in error.chain().enumerate() {
        let start = if number == 0 {
            "error: "
        } else {
            "  caused by: "
        };
        let cause = cause.to_string();
        let mut lines = cause
            .lines()
            .map(|line| printable(line.trim_start()).into_owned());
        let first = lines.next().unwrap_or_default();
        writeln!(text, "{start}{first}").expect("a text takes all");
        lines.for_each(|line| writeln!(text, "  {line}").expect("a text takes all"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_and_control_characters_are_escaped() {
        let error = anyhow::anyhow!("disk \u{1b}[31mfull").context("cannot read\nuse --data");
        let expected = "error: cannot read\n  use --data\n  caused by: disk \\u{1b}[31mfull\n";
        assert_eq!(text(&error), expected);
    }
}
