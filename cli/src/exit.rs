//! How a command ends: the error on stderr, and the exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use collector::NOT_FOUND_CODE;
use collector::ServeError;
use collector::auth::TokenFileError;
use collector::store::StoreError;
use flamegraph::text::printable;

use crate::client::ClientError;
use crate::import::UploadError;

/// Invalid input; the text says what is expected.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadInput(pub(crate) String);

/// A program that this one started has failed with this code, and has said why.
#[derive(Debug, thiserror::Error)]
#[error("exit code {0}")]
pub(crate) struct Reported(pub(crate) u8);

/// A file that a server does not have.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotFound(pub(crate) String);

/// Prints the error and returns the code: 0 success, 2 invalid input, 3 a file that a server does not
/// have, 1 any other error.
pub(crate) fn code(done: anyhow::Result<()>) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    if let Some(Reported(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    // There is no place to report a closed stderr.
    let _ = io::stderr().write_all(text(&error).as_bytes());
    ExitCode::from(match error.downcast_ref() {
        Some(NotFound(_)) => NOT_FOUND_CODE,
        _ if is_bad_input(&error) => 2,
        _ => 1,
    })
}

/// Whether the reader of stdout went away, as `head` does: that is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<crate::output::StdoutClosed>()
        .is_some()
}

fn is_bad_input(error: &anyhow::Error) -> bool {
    let client = error.downcast_ref();
    let tokens = error.downcast_ref();
    let uploaded = error.downcast_ref();
    error.is::<BadInput>()
        || matches!(
            client,
            Some(ClientError::Rejected(_) | ClientError::Denied(_) | ClientError::Url { .. })
        )
        || matches!(
            uploaded,
            Some(UploadError::Denied(_) | UploadError::Rejected(_))
        )
        || matches!(error.downcast_ref(), Some(ServeError::Insecure { .. }))
        || matches!(
            error.downcast_ref(),
            Some(StoreError::NoStore { .. } | StoreError::NoStoreInPlace { .. })
        )
        || matches!(
            tokens,
            Some(TokenFileError::Unknown { .. } | TokenFileError::Workers { .. })
        )
}

/// The error and its causes, a line each. Control characters are escaped, because names in it may
/// come from other machines.
pub(crate) fn text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for (number, cause) in error.chain().enumerate() {
        let cause = cause.to_string();
        let mut lines = cause.lines().map(printable);
        let first = lines.next().unwrap_or_default();
        text.push_str(if number == 0 {
            "error: "
        } else {
            "  caused by: "
        });
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
    fn causes_follow_and_control_characters_are_escaped() {
        let error = anyhow!("disk \u{1b}[31mfull").context("could not write\nuse -o");
        assert_eq!(
            text(&error),
            "error: could not write\n  use -o\n  caused by: disk \\u{1b}[31mfull\n"
        );
    }

    #[test]
    fn invalid_input_differs_from_failure() {
        assert!(is_bad_input(&BadInput("x".to_owned()).into()));
        assert!(!is_bad_input(&anyhow!("x")));
        let address = ([0, 0, 0, 0], 1).into();
        assert!(is_bad_input(
            &collector::ServeError::Insecure {
                address,
                missing: String::new()
            }
            .into()
        ));
    }
}
