//! Tables that all identities share and that never shrink: a stranger that fills one first takes no row of an
//! honest agent, in the same sealing or in one before.

use profiler_core::wire::v1::agent_message::Kind;
use profiler_core::{
    Direction, Outcome, PhaseInterval, TaskDetail, Telemetry, TransferEvent, TransferId,
};

use crate::serve::tests::limits::quotas::Shared;
use crate::serve::tests::stores::seal;
use crate::serve::tests::*;
use base::limits::{LEDGER_NAMES_MAX, LINKS_MAX, PHASES_MAX};

/// As many as a task may have.
const PHASES_OF_TASK: usize = 64;

/// An agent of one identity.
struct Agent {
    worker: TestWorker,
    client: Client,
    flushes: i64,
}

impl Agent {
    async fn attach(shared: &Shared, identity: usize, id: &str) -> Agent {
        let client = shared.attach(identity, id).await.unwrap();
        Agent {
            worker: TestWorker::new(id, 1),
            client,
            flushes: 0,
        }
    }

    async fn send(&mut self, tasks: Vec<v1::Task>, telemetry: Telemetry) {
        let mut flush = self.worker.flush(20 + self.flushes, tasks);
        self.worker.tell(&mut flush, telemetry);
        while let Some(dictionary) = self.worker.dictionary() {
            self.client.send(Kind::Dictionary(dictionary)).await;
        }
        self.flushes += 1;
        assert_eq!(
            self.client.ask(Kind::Flush(flush)).await,
            format!("ack {}", self.flushes)
        );
    }

    /// Sends a task of each name with as many phases, each of `duration_ns`.
    async fn send_tasks(&mut self, names: &[String], phases: &[String], duration_ns: u64) {
        for (number, names) in names.chunks(1_000).enumerate() {
            let phases: Vec<PhaseInterval> = phases
                .iter()
                .map(|name: &String| PhaseInterval {
                    name: name.as_str().into(),
                    start_ns: 0,
                    duration_ns,
                    count: 1,
                })
                .collect();
            let first_id = number as u64 * 1_000 + 1;
            let tasks = (first_id..)
                .zip(names)
                .map(|(id, name)| {
                    let detail = TaskDetail {
                        phases: phases.clone(),
                        ..TaskDetail::default()
                    };
                    self.worker
                        .task_with(id, name, (10, Some(12)), Some(detail))
                })
                .collect();
            self.send(tasks, Telemetry::default()).await;
        }
    }

    /// Sends a transfer from each peer, of so many seconds.
    async fn send_transfers(&mut self, peers: &[String], type_name: &str, seconds: i64) {
        for (number, peers) in peers.chunks(20_000).enumerate() {
            let first_id = number as u64 * 20_000 + 1;
            let transfers = (first_id..).zip(peers).map(|(id, peer)| TransferEvent {
                id: TransferId(id),
                direction: Direction::Incoming,
                peer: peer.as_str().into(),
                keys: Vec::new(),
                more_keys: 0,
                type_name: type_name.into(),
                bytes: 0,
                compressed_bytes: None,
                start: at(10),
                stop: at(10 + seconds),
                task: None,
                thread_id: 12,
                outcome: Outcome::Ok,
                cause: "".into(),
            });
            let telemetry = Telemetry {
                transfers: transfers.collect(),
                ..Telemetry::default()
            };
            self.send(Vec::new(), telemetry).await;
        }
    }
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}-{number}"))
        .collect()
}

/// A collector with two identities: the stranger's agent and the honest one.
async fn two_agents() -> (Shared, [Agent; 2]) {
    let shared = Shared::serve(&[&[], &[]], Limits::default()).await;
    let stranger = Agent::attach(&shared, 0, "stranger").await;
    let honest = Agent::attach(&shared, 1, "honest").await;
    (shared, [stranger, honest])
}

async fn json(shared: &Shared, path: &str) -> Value {
    let answer = shared.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

/// The rows of a list for which a field has that value.
fn rows<'a>(list: &'a Value, field: &str, value: &str) -> Vec<&'a Value> {
    list.as_array()
        .unwrap()
        .iter()
        .filter(|row| row[field] == value)
        .collect()
}

fn sum<'a>(rows: impl Iterator<Item = &'a Value>, field: &str) -> u64 {
    rows.map(|row| row[field].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn task_names_of_a_stranger_take_no_row_of_an_honest_one() {
    for is_sealed_before in [false, true] {
        let (shared, [mut stranger, mut honest]) = two_agents().await;
        let names = numbered("z", LEDGER_NAMES_MAX + 500);
        stranger.send_tasks(&names, &[], 0).await;
        if is_sealed_before {
            seal(&shared.running).await;
        }
        honest.send_tasks(&["honest-task".to_owned()], &[], 0).await;
        seal(&shared.running).await;

        let summary = json(&shared, "/api/v1/tasks?summary=true").await;
        let own = rows(&summary["names"], "name", "honest-task");
        assert_eq!(own.len(), 1, "sealed before: {is_sealed_before}");
        assert_eq!(rows(&summary["names"], "name", "[overflow]").len(), 1);
        let ended = summary["names"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row["outcomes"]);
        assert_eq!(sum(ended, "ok"), names.len() as u64 + 1);
    }
}

#[tokio::test]
async fn phases_of_a_stranger_take_no_row_of_an_honest_one() {
    for is_sealed_before in [false, true] {
        let (shared, [mut stranger, mut honest]) = two_agents().await;
        let names = numbered("z", PHASES_MAX / PHASES_OF_TASK + 32);
        stranger
            .send_tasks(&names, &numbered("p", PHASES_OF_TASK), 1)
            .await;
        if is_sealed_before {
            seal(&shared.running).await;
        }
        honest
            .send_tasks(
                &["honest-task".to_owned()],
                &["fetch".to_owned()],
                500_000_000,
            )
            .await;
        seal(&shared.running).await;

        let summary = json(&shared, "/api/v1/tasks?summary=true").await;
        let [own] = rows(&summary["names"], "name", "honest-task")[..] else {
            panic!("one row")
        };
        let fetch = rows(&own["phases"], "name", "fetch");
        assert_eq!(fetch.len(), 1, "sealed before: {is_sealed_before}: {own}");
        assert_eq!(fetch[0]["duration_ns"], 500_000_000);
        let all = summary["names"].as_array().unwrap().iter();
        let phases: Vec<&Value> = all
            .flat_map(|row| row["phases"].as_array().unwrap())
            .collect();
        let counted = phases
            .iter()
            .copied()
            .filter(|phase| phase["name"] != "execute");
        assert_eq!(
            sum(counted, "tasks"),
            (names.len() * PHASES_OF_TASK) as u64 + 1
        );
        assert!(phases.iter().any(|phase| phase["name"] == "[overflow]"));
    }
}

#[tokio::test]
async fn links_of_a_stranger_take_no_row_of_an_honest_one() {
    let (shared, [mut stranger, mut honest]) = two_agents().await;
    let peers = numbered("z", LINKS_MAX + 1_500);
    stranger.send_transfers(&peers, "T", 0).await;
    honest
        .send_transfers(&["w-2".to_owned()], "Matrix", 2)
        .await;
    for is_sealed in [false, true] {
        if is_sealed {
            seal(&shared.running).await;
        }
        let path = format!("/api/v1/transfers?{ALL}&summary=true");
        let summary = json(&shared, &path).await;
        let [own] = rows(&summary["links"], "worker", "honest")[..] else {
            panic!("one link, sealed: {is_sealed}")
        };
        assert_eq!(
            (&own["peer"], &own["count"]),
            (&Value::from("w-2"), &Value::from(1))
        );
        let links = summary["links"].as_array().unwrap().iter();
        assert_eq!(
            sum(links, "count"),
            peers.len() as u64 + 1,
            "sealed: {is_sealed}"
        );
        assert_eq!(rows(&summary["types"], "type_name", "Matrix").len(), 1);
    }
}
