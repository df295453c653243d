//! The body of a change of settings.

use profiler_core::limits::{INTERVAL_MAX, INTERVAL_MIN};
use profiler_core::{SettingsChange, State, StateSet};

use crate::QueryError;
use crate::error::echo;
use crate::parameters::params::choose;

const ALLOWED: [&str; 3] = ["interval_ms", "enabled", "states"];

/// The change in a body. It changes at least one setting.
pub fn parse_change(body: &[u8]) -> Result<SettingsChange, QueryError> {
    let body: api::SettingsChange =
        serde_json::from_slice(body).map_err(|error| QueryError::Body {
            reason: echo(&error.to_string()),
            allowed: ALLOWED.to_vec(),
        })?;
    let change = SettingsChange {
        interval_ns: body.interval_ms.map(interval_ns).transpose()?,
        enabled: body.enabled,
        states: body.states.as_deref().map(state_set).transpose()?,
    };
    if change.is_empty() {
        return Err(QueryError::NothingToSet {
            allowed: ALLOWED.to_vec(),
        });
    }
    Ok(change)
}

fn interval_ns(value: f64) -> Result<u64, QueryError> {
    if !(milliseconds(INTERVAL_MIN)..=milliseconds(INTERVAL_MAX)).contains(&value) {
        return Err(QueryError::Interval { value });
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked above"
    )]
    let nanoseconds = (value * 1e6).round() as u64;
    Ok(nanoseconds)
}

fn milliseconds(bound: std::time::Duration) -> f64 {
    bound.as_secs_f64() * 1e3
}

fn state_set(names: &[String]) -> Result<StateSet, QueryError> {
    let states = State::ALL.map(|state| (state.name(), state));
    let chosen: Vec<State> = names
        .iter()
        .map(|name| choose("states", name, &states))
        .collect::<Result<_, _>>()?;
    if chosen.is_empty() {
        return Err(QueryError::NoStates {
            allowed: State::ALL.map(State::name).to_vec(),
        });
    }
    Ok(chosen.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_settings_change_and_others_stay() {
        let cpu: StateSet = [State::Cpu].into_iter().collect();
        let none = SettingsChange::default();
        for (body, expected) in [
            (
                r#"{"interval_ms": 1}"#,
                SettingsChange {
                    interval_ns: Some(1_000_000),
                    ..none
                },
            ),
            (
                r#"{"interval_ms": 1000}"#,
                SettingsChange {
                    interval_ns: Some(1_000_000_000),
                    ..none
                },
            ),
            (
                r#"{"interval_ms": 2.5}"#,
                SettingsChange {
                    interval_ns: Some(2_500_000),
                    ..none
                },
            ),
            (
                r#"{"enabled": false, "states": ["cpu", "cpu"]}"#,
                SettingsChange {
                    enabled: Some(false),
                    states: Some(cpu),
                    interval_ns: None,
                },
            ),
        ] {
            assert_eq!(parse_change(body.as_bytes()), Ok(expected), "{body}");
        }
    }

    #[test]
    fn an_invalid_setting_is_rejected_with_the_allowed_ones() {
        for (body, expected) in [
            (
                "{}",
                "nothing to set; give some of: interval_ms, enabled, states",
            ),
            (
                r#"{"interval_ms": 0}"#,
                "interval_ms is 0; it must be from 1 to 1000",
            ),
            (
                r#"{"interval_ms": 0.999}"#,
                "interval_ms is 0.999; it must be from 1 to 1000",
            ),
            (
                r#"{"interval_ms": 18000000}"#,
                "interval_ms is 18000000; it must be from 1 to 1000",
            ),
            (
                r#"{"interval_ms": -1}"#,
                "interval_ms is -1; it must be from 1 to 1000",
            ),
            (
                r#"{"states": []}"#,
                "states is empty; give some of: cpu, runnable, wait, or switch sampling off with \
                 enabled",
            ),
        ] {
            let error = parse_change(body.as_bytes()).unwrap_err().to_string();
            let states = State::ALL.map(State::name).join(", ");
            assert_eq!(
                error,
                expected.replace("cpu, runnable, wait", &states),
                "{body}"
            );
        }
        for (body, part) in [
            (
                r#"{"states": ["asleep"]}"#,
                "invalid states=\"asleep\"; allowed: cpu, ",
            ),
            (r#"{"interval": 5}"#, "unknown field `interval`"),
            (
                r#"{"enabled": "yes"}"#,
                "invalid type: string \"yes\", expected a boolean",
            ),
            (
                "interval=5",
                "invalid body: expected value at line 1 column 1",
            ),
            (
                "",
                "expected a JSON object with some of: interval_ms, enabled, states",
            ),
        ] {
            let error = parse_change(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
    }
}
