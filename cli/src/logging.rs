//! The log on stderr.

use std::env::VarError;
use std::io::{IsTerminal as _, stderr};

use anyhow::Context as _;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LogFormat;
use crate::exit::BadInput;
use crate::output;

const VARIABLE: &str = "EMBERLINE_LOG";

/// Starts the log with the filter of `EMBERLINE_LOG`; without it, from level `default` on.
pub(crate) fn start(default: LevelFilter, format: LogFormat) -> anyhow::Result<()> {
    let wanted = match std::env::var(VARIABLE) {
        Ok(wanted) => wanted,
        Err(VarError::NotPresent) => String::new(),
        Err(error) => return Err(error).context(VARIABLE),
    };
    // `Targets` instead of `EnvFilter`: fields of spans need no filter here.
    let filter = if wanted.is_empty() {
        default_filter(default)
    } else {
        wanted
            .parse()
            .map_err(|error| BadInput(format!("invalid {VARIABLE}={wanted:?}: {error}")))?
    };
    let layer = tracing_subscriber::fmt::layer().with_writer(stderr);
    let registry = tracing_subscriber::registry();
    match format {
        LogFormat::Text => {
            let ansi = colors(stderr().is_terminal(), std::env::var_os("NO_COLOR"));
            registry
                .with(layer.with_ansi(ansi).with_filter(filter))
                .init();
        }
        LogFormat::Json => {
            registry
                .with(layer.json().flatten_event(true).with_filter(filter))
                .init();
            output::log_messages();
        }
    }
    Ok(())
}

/// From level `default` on. The client of S3 servers would log each retry as information: only its warnings are
/// news.
fn default_filter(default: LevelFilter) -> Targets {
    Targets::new()
        .with_default(default)
        .with_target("object_store", default.min(LevelFilter::WARN))
}

/// Whether to use colors: on terminals, unless `NO_COLOR` is set (<https://no-color.org>).
fn colors(is_terminal: bool, no_color: Option<std::ffi::OsString>) -> bool {
    is_terminal && no_color.is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn retries_of_the_s3_client_are_hidden_and_its_warnings_are_not() {
        const RETRY: &str = "object_store::client::retry";
        assert!(enables(LevelFilter::INFO, "collector::serve", Level::INFO));
        assert!(!enables(LevelFilter::INFO, RETRY, Level::INFO));
        assert!(enables(LevelFilter::INFO, RETRY, Level::WARN));
        assert!(!enables(LevelFilter::ERROR, RETRY, Level::WARN));
    }

    fn enables(default: LevelFilter, target: &str, level: Level) -> bool {
        default_filter(default).would_enable(target, &level)
    }

    #[test]
    fn colors_need_a_terminal_and_no_no_color() {
        assert!(colors(true, None) && colors(true, Some("".into())));
        assert!(!colors(true, Some("1".into())) && !colors(false, None));
    }
}
