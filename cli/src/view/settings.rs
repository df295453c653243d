//! Settings of workers after a change.

use api::SettingsAnswer;
use flamegraph::text::duration;

use super::or_dash;
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// A row for each worker.
pub(crate) fn table(answer: &SettingsAnswer) -> String {
    let columns = [
        ("WORKER", Left),
        ("APPLIED", Left),
        ("INTERVAL", Right),
        ("STATES", Left),
    ];
    let mut grid = Grid::new(&columns);
    for worker in &answer.workers {
        let applied = match (worker.applied, worker.connected) {
            (true, _) => "yes",
            (false, true) => "no, not confirmed in time",
            (false, false) => "no, not connected: applies when it reconnects",
        };
        grid.push([
            worker.worker.clone(),
            applied.to_owned(),
            interval(worker.enabled, worker.interval_ns),
            or_dash(worker.states.as_ref(), |states| states.join(" ")),
        ]);
    }
    grid.text()
}

/// The sampling interval, or `off`.
pub(super) fn interval(enabled: Option<bool>, interval_ns: Option<u64>) -> String {
    if enabled == Some(false) {
        return "off".to_owned();
    }
    or_dash(interval_ns, duration)
}

#[cfg(test)]
mod tests {
    use api::WorkerSettings;
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_worker_shows_the_settings_it_applied() {
        let away = WorkerSettings {
            worker: "c".to_owned(),
            ..WorkerSettings::default()
        };
        let answer = SettingsAnswer {
            workers: vec![
                connected("a", true, true, &["cpu", "runnable"]),
                connected("b", false, false, &["cpu"]),
                away,
            ],
        };
        expect![[r#"
            WORKER  APPLIED                                        INTERVAL  STATES
            a       yes                                             20.0 ms  cpu runnable
            b       no, not confirmed in time                           off  cpu
            c       no, not connected: applies when it reconnects         -  -
        "#]]
        .assert_eq(&table(&answer));
    }

    fn connected(
        worker: &str,
        applied: bool,
        enabled: bool,
        states: &[&'static str],
    ) -> WorkerSettings {
        WorkerSettings {
            worker: worker.to_owned(),
            epoch: Some("0a".to_owned()),
            connected: true,
            applied,
            interval_ns: Some(20_000_000),
            enabled: Some(enabled),
            states: Some(states.iter().map(|state| (*state).into()).collect()),
        }
    }
}
