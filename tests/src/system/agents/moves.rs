//! Agents with several collectors move when theirs is gone, and come back. Each flush counts once, at one of
//! them.

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Collector, RESTARTABLE, Worker, number, wait_for};

/// A collector that can be killed and started again at its address.
struct Site {
    folder: TempDir,
    collector: Collector,
}

impl Site {
    fn start() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let collector = Collector::start_with_data(RESTARTABLE, folder.path());
        Site { folder, collector }
    }

    fn start_again(&mut self) {
        let address = self.collector.address.clone();
        self.collector = Collector::start_with_data(&address, self.folder.path());
    }

    /// Weight that all epochs have stored here.
    fn stored_ns(&self) -> u64 {
        let epochs = self.collector.epochs();
        epochs
            .iter()
            .map(|epoch| number(&epoch["account"], "stored_ns"))
            .sum()
    }

    /// Weight that a query finds here.
    fn found_ns(&self) -> u64 {
        let profile = self.collector.json("/api/v1/profile?from=-1h&threads=all");
        number(&profile["totals"], "total_ns")
    }

    /// All tasks, by outcome.
    fn tasks(&self, outcome: &str) -> Vec<Value> {
        let path = format!("/api/v1/tasks?from=-1h&limit=10000&outcome={outcome}");
        self.collector.json(&path)["tasks"]
            .as_array()
            .unwrap()
            .clone()
    }
}

fn list_of(sites: &[Site]) -> String {
    sites
        .iter()
        .map(|site| site.collector.url())
        .collect::<Vec<_>>()
        .join(",")
}

/// Waits until a site has stored more than before.
fn wait_for_more(site: &Site) {
    let before = site.stored_ns();
    wait_for("more samples", || (site.stored_ns() > before).then_some(()));
}

/// All weight and all tasks of the worker are at the sites, once.
fn check_sums(sites: &[Site], record: &Value) {
    let report = &record["report"];
    assert_eq!(number(report, "unacked_ns"), 0, "{report}");
    assert_eq!(number(report, "lost_by_collector_ns"), 0, "{report}");
    assert_eq!(
        number(report, "accepted_ns"),
        number(report, "stored_ns"),
        "{report}"
    );
    let stored: u64 = sites.iter().map(Site::stored_ns).sum();
    assert_eq!(stored, number(report, "stored_ns"), "{report}");
    let found: u64 = sites.iter().map(Site::found_ns).sum();
    assert_eq!(found, stored, "what counts as stored is found once");
    for site in sites {
        for epoch in site.collector.epochs() {
            assert!(epoch["account"]["balanced"].as_bool().unwrap(), "{epoch}");
        }
        for outcome in ["lost", "running"] {
            assert_eq!(site.tasks(outcome), Vec::<Value>::new());
        }
    }
    let ended: usize = sites.iter().map(|site| site.tasks("ok").len()).sum();
    assert_eq!(ended as u64, number(record, "tasks"));
}

#[test]
fn a_worker_moves_when_its_collector_is_killed_and_returns() {
    let mut sites = [Site::start(), Site::start()];
    let worker = Worker::start("steady", "moving-1", &list_of(&sites), &[]);
    let home = wait_for("samples", || {
        sites.iter().position(|site| site.stored_ns() > 0)
    });
    wait_for_more(&sites[home]);
    sites[home].collector.process.kill();
    wait_for_more(&sites[1 - home]);
    sites[home].start_again();
    let stays = || sites[home].collector.epochs().len();
    wait_for("its return", || (stays() == 2).then_some(()));
    wait_for_more(&sites[home]);
    check_sums(&sites, &worker.finish());
}

/// Half of the workers have the dead collector first.
#[test]
fn a_short_program_ships_to_a_collector_that_lives() {
    let mut sites = [Site::start(), Site::start()];
    let list = list_of(&sites);
    sites[0].collector.process.kill();
    let workers: Vec<Worker> = (0..8)
        .map(|number: u32| Worker::start("truth", &format!("short-{number}"), &list, &["0.3"]))
        .collect();
    let mut stored = 0;
    for worker in workers {
        let report = &worker.finish()["report"];
        assert_eq!(
            number(report, "accepted_ns"),
            number(report, "stored_ns"),
            "{report}"
        );
        stored += number(report, "stored_ns");
    }
    assert_eq!(sites[1].stored_ns(), stored);
}

/// The paused collector answers nobody for so long that its agent moves. Then it reads what is in its socket.
#[test]
fn a_collector_that_was_paused_keeps_what_it_has_and_its_agent_knows() {
    let sites = [Site::start(), Site::start()];
    let worker = Worker::start("steady", "moving-2", &list_of(&sites), &[]);
    let home = wait_for("samples", || {
        sites.iter().position(|site| site.stored_ns() > 0)
    });
    wait_for_more(&sites[home]);
    sites[home].collector.process.signal(Signal::SIGSTOP);
    wait_for_more(&sites[1 - home]);
    sites[home].collector.process.signal(Signal::SIGCONT);
    check_sums(&sites, &worker.finish());
}
