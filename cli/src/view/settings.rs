//! What workers work by after a change of their settings.

use flamegraph::text::duration;
use serde::Deserialize;

use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// The workers that were to change.
#[derive(Deserialize, Debug)]
pub(crate) struct Settings {
    workers: Vec<Worker>,
}

#[derive(Deserialize, Debug)]
struct Worker {
    worker: String,
    connected: bool,
    applied: bool,
    interval_ns: Option<u64>,
    enabled: Option<bool>,
    states: Option<Vec<String>>,
}

impl Settings {
    /// Whether no worker was there.
    pub(crate) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.workers.len()
    }

    /// How many have not applied the change.
    pub(crate) fn missing(&self) -> usize {
        self.workers.iter().filter(|worker| !worker.applied).count()
    }

    /// A row for each worker.
    pub(crate) fn table(&self) -> String {
        let columns = [("WORKER", Left), ("APPLIED", Left), ("EVERY", Right), ("STATES", Left)];
        let mut grid = Grid::new(&columns);
        for worker in &self.workers {
            let applied = match (worker.applied, worker.connected) {
                (true, _) => "yes",
                (false, true) => "no, it has not said so in time",
                (false, false) => "no, it is away: when it is back",
            };
            let states = worker.states.as_ref().map_or("-".to_owned(), |states| states.join(" "));
            let every = every(worker.enabled, worker.interval_ns);
            grid.push([worker.worker.clone(), applied.to_owned(), every, states]);
        }
        grid.text()
    }
}

/// The interval, or that there is none.
pub(super) fn every(enabled: Option<bool>, interval_ns: Option<u64>) -> String {
    match (enabled, interval_ns) {
        (Some(false), _) => "off".to_owned(),
        (_, Some(interval_ns)) => duration(interval_ns),
        (_, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_worker_says_what_it_applied() {
        let settings: Settings = serde_json::from_value(json!({"workers": [
            {"worker": "a", "epoch": "0a", "connected": true, "applied": true,
                "interval_ns": 20_000_000, "enabled": true, "states": ["cpu", "runnable"]},
            {"worker": "b", "epoch": "0a", "connected": true, "applied": false,
                "interval_ns": 20_000_000, "enabled": false, "states": ["cpu"]},
            {"worker": "c", "epoch": null, "connected": false, "applied": false,
                "interval_ns": null, "enabled": null, "states": null},
        ]}))
        .unwrap();
        assert_eq!((settings.count(), settings.missing(), settings.is_empty()), (3, 2, false));
        expect![[r#"
            WORKER  APPLIED                            EVERY  STATES
            a       yes                              20.0 ms  cpu runnable
            b       no, it has not said so in time       off  cpu
            c       no, it is away: when it is back        -  -
        "#]]
        .assert_eq(&settings.table());
    }
}
