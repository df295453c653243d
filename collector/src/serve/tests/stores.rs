//! A reader of several collectors' stores answers as one collector that received everything.

mod damage;
mod partitions;
mod split;

use std::path::Path;
use std::time::{Duration, Instant};

use profiler_core::wire::v1::{self, agent_message::Kind};
use profiler_core::{
    Direction, ExpectedTasks, Outcome, PhaseInterval, Resource, ResourceSample, RunId, RunMarker,
    State, TaskDetail, TaskId, TaskTotals, Telemetry, TransferEvent, TransferId,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::split::Extra;
use super::client::{Client, get, request, send};
use super::{
    ALL, ConnectionLimits, PATIENCE, Running, ServeOptions, attached, serve_as_given, serve_with,
};
use state::adoption::{Adoption, AdoptionOptions, StoreWatch, adopt};
use state::follow::FollowOptions;
use state::recovery::{DataError, StoreOptions};
use state::testing::{TestWorker, at};
use store::{Ack, Retention, StoreLocation, StorePlace};

/// Queries of each kind. `{all}` stands for the range.
const QUERIES: [&str; 50] = [
    "profile?{all}",
    "profile?{all}&by=line&outside=hidden",
    "profile?{all}&task=load&state=all",
    "profile?{all}&worker=w1&worker=w4",
    "profile?{all}&group=worker",
    "profile?{all}&group=host",
    "profile?{all}&group=label:zone&task=w2-only",
    "profile?{all}&group=phase",
    "profile?{all}&group=second",
    "profile?{all}&phase=fetch",
    "profile?{all}&thread=pool",
    "profile?{all}&format=columns&threads=all",
    "profile?{all}&invert=true&stacks=own",
    "timeline?{all}",
    "timeline?{all}&task=load&state=all&step=1s",
    "tasks?{all}",
    "tasks?{all}&sort=duration&limit=3",
    "tasks?{all}&outcome=running",
    "tasks?{all}&summary=true",
    "tasks?summary=true",
    "tasks?{all}&summary=true&worker=w2",
    "tasks?{all}&outcome=ok&key=load-1",
    "tasks/durations?{all}&task=load",
    "tasks/compare?before_from=1000000&before_to=1000004&from=1000004&to=1000012",
    "thread-time?{all}",
    "thread-time?{all}&worker=w3",
    "transfers?{all}",
    "transfers?{all}&summary=true",
    "resources?{all}&step=10s",
    "progress?{all}",
    "runs",
    "profile.collapsed?{all}",
    "profile.csv?{all}",
    "tasks.csv?{all}",
    "profile?{all}&label=zone=a&state=all",
    "profile?{all}&state=wait&by=line&threads=all",
    "profile?run=run%20of%20w1",
    "timeline?{all}&worker=w2&step=1s",
    "timeline.csv?{all}",
    "tasks?{all}&summary=true&label=zone=b",
    "tasks/durations?{all}&task=store",
    "transfers?{all}&peer=w2",
    "transfers?{all}&summary=true&peer=w1&peer=w3",
    "transfers?{all}&summary=true&type=Matrix",
    "transfers?{all}&summary=true&direction=incoming&worker=w2",
    "transfers?{all}&summary=true&task=load",
    "transfers.csv?{all}",
    "resources?{all}&step=10s&worker=w2",
    "resources.csv?{all}&step=10s",
    "workers/names",
];

/// Queries with a name that no store has: the answer names the nearest ones.
const MISTYPED: [&str; 2] = ["profile?{all}&task=lod", "tasks?{all}&worker=w33"];

/// A collector of a place.
/// With the default grace period: without one, the stop of a collector would end the lives of its agents.
async fn serve_at(place: &Path, name: &str) -> Running {
    let store = StoreOptions {
        place: StorePlace::Directory(place.to_owned()),
        name: name.parse().unwrap(),
        ack: Ack::Disk,
        cache_bytes: None,
    };
    let options = ServeOptions {
        store: Some(store),
        ..ServeOptions::default()
    };
    serve_as_given(options, ConnectionLimits::of_process()).await
}

pub(super) async fn seal(running: &Running) {
    let collector = running.collector.upgrade().unwrap();
    tokio::task::spawn_blocking(move || collector.sealer.seal().unwrap())
        .await
        .unwrap();
}

pub(super) async fn follow(place: &Path) -> Running {
    let place = StorePlace::Directory(place.to_owned());
    let follow = Some(FollowOptions {
        place,
        data: None,
        cache_bytes: None,
    });
    serve_with(ServeOptions {
        follow,
        ..ServeOptions::default()
    })
    .await
}

/// A worker that ships the same to two collectors.
pub(super) struct Twice {
    worker: TestWorker,
    clients: [Client; 2],
    second: i64,
}

impl Twice {
    async fn attach(id: &str, whole: &Running, part: &Running) -> Twice {
        let mut worker = TestWorker::new(id, 1);
        worker.host = format!("host-{}", &id[1..]);
        worker.zone = if id < "w3" {
            "a".to_owned()
        } else {
            "b".to_owned()
        };
        let clients = [
            Client::attach(whole.address, worker.hello()).await,
            Client::attach(part.address, worker.hello()).await,
        ];
        Twice {
            worker,
            clients,
            second: 0,
        }
    }

    /// Ships a second with samples, tasks and telemetry of each kind.
    pub(super) async fn ship(&mut self) {
        self.ship_with(&Extra::default()).await;
    }

    /// The same, and more.
    async fn ship_with(&mut self, extra: &Extra) {
        let second = self.second;
        self.second += 1;
        let id = self.worker.id.to_string();
        let number = u64::try_from(second).unwrap();
        let worker = &mut self.worker;
        extra.count(worker);
        // Each worker meets the stacks in another order.
        let stacks = [
            "load;main;parse:3",
            "load;@fetch;main;read",
            "store;main;write:9",
            "[no task];idle",
        ];
        let turn = usize::from(id.as_bytes()[1]) + usize::try_from(second).unwrap();
        for index in 0..3 {
            let stack = stacks[(turn + index) % stacks.len()];
            worker.count(stack, State::ALL[index * 2], 1_000 * (number + 1));
        }
        worker.count(&format!("{id}-only;main;f{}:1", second % 5), State::Cpu, 7);
        worker.count("[agent];sampler", State::Cpu, 1);
        worker.count_thread("load;pool#3", State::Cpu, 500);
        let detail = TaskDetail {
            phases: vec![PhaseInterval {
                name: "fetch".into(),
                start_ns: 0,
                duration_ns: 100_000_000,
                count: 2,
            }],
            ..TaskDetail::default()
        };
        let task = 10 * number;
        let mut tasks = extra.tasks(worker, second);
        tasks.extend([
            worker.task_with(task + 1, "load", (second, Some(second + 2)), Some(detail)),
            worker.task(task + 2, &format!("{id}-only"), (second, Some(second + 1))),
            worker.task(task + 3, "store", (second, None)),
        ]);
        let mut flush = worker.flush(second, tasks);
        let mut telemetry = telemetry(&id, second);
        extra.tell(&mut telemetry, second);
        worker.tell(&mut flush, telemetry);
        let dictionary = worker.dictionary();
        for client in &mut self.clients {
            if let Some(dictionary) = &dictionary {
                client.send(Kind::Dictionary(dictionary.clone())).await;
            }
            let answer = client.ask(Kind::Flush(flush.clone())).await;
            assert_eq!(answer, format!("ack {}", flush.seq));
        }
    }
}

fn telemetry(id: &str, second: i64) -> Telemetry {
    let number = u64::try_from(second).unwrap();
    let transfer = TransferEvent {
        id: TransferId(number + 1),
        direction: Direction::Incoming,
        // Each store meets the links in another order.
        peer: format!("w{}", (number + u64::from(id.as_bytes()[1])) % 4).into(),
        keys: vec!["x".into()],
        more_keys: 0,
        type_name: if id < "w3" {
            "Matrix".into()
        } else {
            "Table".into()
        },
        bytes: 3_000 + number,
        compressed_bytes: None,
        start: at(second),
        stop: at(second + 1),
        task: Some(TaskId(10 * number + 1)),
        thread_id: 12,
        outcome: Outcome::Ok,
        cause: "".into(),
    };
    let sample = ResourceSample {
        at: at(second).shifted(500_000_000),
        period_ns: 500_000_000,
        values: vec![
            (Resource::ProcessCpu, 250_000_000),
            (Resource::ProcessMemory, 10 + number),
        ],
    };
    let run = RunMarker {
        id: RunId(1),
        name: format!("run of {id}").into(),
        start: at(0),
        stop: (second == 9).then(|| at(9)),
    };
    let totals = TaskTotals {
        name: "short".into(),
        second: at(second),
        outcome: Outcome::Ok,
        duration_ns: 3_000,
        buckets: vec![(900, 3)],
        phases: Vec::new(),
    };
    Telemetry {
        totals: vec![totals],
        transfers: vec![transfer],
        resources: vec![sample],
        expected: vec![ExpectedTasks {
            name: "load".into(),
            total: 40,
            since: at(0),
        }],
        runs: if second == 0 || second == 9 {
            vec![run]
        } else {
            Vec::new()
        },
    }
}

/// Answers of a server to all queries, without the parts that depend on where the data is.
pub(super) async fn answers(running: &Running) -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    for query in QUERIES {
        let path = format!("/api/v1/{}", query.replace("{all}", ALL));
        let answer = get(running.address, &path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let body = serde_json::from_str(&answer.body).unwrap_or_else(|_| {
            let mut lines: Vec<&str> = answer.body.lines().collect();
            lines.sort_unstable();
            json!(lines)
        });
        all.push((query, sorted(body)));
    }
    for query in MISTYPED {
        let path = format!("/api/v1/{}", query.replace("{all}", ALL));
        let answer = get(running.address, &path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
        all.push((query, Value::String(answer.body)));
    }
    let workers = running.json("/api/v1/workers").await;
    all.push(("workers", workers["workers"].clone()));
    all
}

/// A value with its lists of objects in one order: that of rows with equal times, and of siblings, is not defined.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(values) => {
            let mut values: Vec<Value> = values.into_iter().map(sorted).collect();
            if values.iter().any(Value::is_object) {
                values.sort_by_cached_key(Value::to_string);
            }
            Value::Array(values)
        }
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (name, sorted(value)))
            .collect(),
        value => value,
    }
}

pub(super) fn compare(whole: &[(&str, Value)], union: &[(&str, Value)]) -> Option<String> {
    let pairs = whole.iter().zip(union);
    let different = pairs.filter(|((_, one), (_, other))| one != other);
    let texts: Vec<String> = different
        .map(|((query, one), (_, other))| {
            format!(
                "{query}\n{}\n",
                first_difference(&one.to_string(), &other.to_string())
            )
        })
        .collect();
    (!texts.is_empty()).then(|| texts.concat())
}

fn first_difference(one: &str, other: &str) -> String {
    let same = one
        .bytes()
        .zip(other.bytes())
        .take_while(|(one, other)| one == other)
        .count();
    let around = |text: &str| {
        let bytes = &text.as_bytes()[same.saturating_sub(120)..text.len().min(same + 120)];
        String::from_utf8_lossy(bytes).into_owned()
    };
    format!("  whole: …{}…\n  union: …{}…", around(one), around(other))
}

/// Polls until the reader has what the collectors have.
async fn until_alike(whole: &Running, union: &Running) {
    let begin = Instant::now();
    let expected = answers(whole).await;
    loop {
        let Some(difference) = compare(&expected, &answers(union).await) else {
            return;
        };
        assert!(begin.elapsed() < PATIENCE, "{difference}");
    }
}

/// The stores that `union` reads, once it knows the clocks of all. A store whose newer version it has read
/// before that was listed has its clock at the next reading.
async fn stores_with_clocks(union: &Running) -> Value {
    let begin = Instant::now();
    loop {
        let stores = union.json("/api/v1/workers").await["stores"].take();
        if stores
            .as_array()
            .unwrap()
            .iter()
            .all(|store: &Value| !store["clock_ahead_ns"].is_null())
        {
            return stores;
        }
        assert!(begin.elapsed() < PATIENCE, "a clock is not known: {stores}");
    }
}

/// Two collectors of a place, one with all their data, and workers that ship to both.
pub(super) struct TwoStores {
    pub(super) whole: Running,
    pub(super) parts: [Running; 2],
    pub(super) workers: Vec<Twice>,
    pub(super) place: TempDir,
    /// Of the one with all data.
    pub(super) folder: TempDir,
}

impl TwoStores {
    pub(super) async fn start() -> TwoStores {
        let place = TempDir::new().unwrap();
        let folder = TempDir::new().unwrap();
        let data = Some(folder.path().to_owned());
        let whole = serve_with(ServeOptions {
            data,
            ..ServeOptions::default()
        })
        .await;
        let parts = [
            serve_at(place.path(), "c1").await,
            serve_at(place.path(), "c2").await,
        ];
        let mut workers = Vec::new();
        for (id, part) in [("w1", 0), ("w2", 1), ("w3", 0), ("w4", 1)] {
            workers.push(Twice::attach(id, &whole, &parts[part]).await);
        }
        TwoStores {
            whole,
            parts,
            workers,
            place,
            folder,
        }
    }
}

#[tokio::test]
async fn stores_are_answered_for_as_one_collector_with_all_their_data() {
    let TwoStores {
        whole,
        parts,
        mut workers,
        place,
        folder: _folder,
    } = TwoStores::start().await;
    let mut reader = None;
    for second in 0..12 {
        for worker in &mut workers {
            worker.ship().await;
        }
        // Each is sealed at other times, so the union has data of the same seconds in tables and logs.
        if second == 3 || second == 7 {
            seal(&parts[0]).await;
        }
        if second == 5 {
            seal(&parts[1]).await;
            seal(&whole).await;
            let reader = reader.insert(follow(place.path()).await);
            assert_eq!(
                compare(&answers(&whole).await, &answers(reader).await),
                None
            );
        }
    }
    let reader = reader.unwrap();
    until_alike(&whole, &reader).await;
    let [one, other] = parts;
    seal(&one).await;
    seal(&other).await;
    seal(&whole).await;
    until_alike(&whole, &reader).await;

    // Answers still include a stopped collector.
    one.end().await;
    until_alike(&whole, &reader).await;
    let stores = stores_with_clocks(&reader).await;
    let names: Vec<&Value> = stores
        .as_array()
        .unwrap()
        .iter()
        .map(|store| &store["name"])
        .collect();
    assert_eq!(names, [&json!("c1"), &json!("c2")]);
    // The clocks of tests stand still in 1970, that of the file system does not.
    for store in stores.as_array().unwrap() {
        let ahead_ns = store["clock_ahead_ns"].as_i64().unwrap();
        let seconds = ahead_ns.unsigned_abs() as f64 / 1e9;
        assert!(ahead_ns < 0 && seconds > 1e9, "{store}");
        let warning = format!(
            "the clock of its collector is {seconds:.0} s behind that of the store's server"
        );
        assert!(
            store["clock_warning"]
                .as_str()
                .unwrap()
                .starts_with(&warning),
            "{store}"
        );
    }
    assert!(
        stores
            .as_array()
            .unwrap()
            .iter()
            .all(|store| store["incomplete"].is_null()),
        "{stores}"
    );
}

/// The clock stands still, so that no agent becomes away by its silence.
#[tokio::test]
async fn a_reader_sees_that_an_agent_has_said_goodbye() {
    let place = tempfile::tempdir().unwrap();
    let running = serve_at(place.path(), "c1").await;
    let (_, mut client) = attached(&running, "w").await;
    let reader = follow(place.path()).await;
    let connected = "/workers/0/epochs/0/connected";
    let until = |is_connected| reader.until("/api/v1/workers", connected, json!(is_connected));
    until(true).await;
    client.send(Kind::Goodbye(v1::Goodbye::default())).await;
    until(false).await;
    let workers = reader.json("/api/v1/workers").await;
    assert_eq!(workers["counts"]["gone"], 1, "{workers:#}");
}

#[tokio::test]
async fn a_reader_names_a_store_that_it_cannot_read_and_finds_new_ones() {
    let place = TempDir::new().unwrap();
    let none = crate::Server::bind(ServeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        follow: Some(FollowOptions {
            place: StorePlace::Directory(place.path().to_owned()),
            data: None,
            cache_bytes: None,
        }),
        ..ServeOptions::default()
    });
    let error = none.await.unwrap_err().to_string();
    assert!(error.starts_with("there is no store in file://"), "{error}");

    let c1 = serve_at(place.path(), "c1").await;
    let c2 = serve_at(place.path(), "c2").await;
    let mut worker = Twice::attach("w1", &c1, &c2).await;
    worker.ship().await;
    c2.end().await;
    for entry in std::fs::read_dir(place.path().join("c2/manifest")).unwrap() {
        std::fs::write(entry.unwrap().path(), "{").unwrap();
    }
    let reader = follow(place.path()).await;
    let answer = reader.json("/api/v1/workers").await;
    let stores = answer["stores"].as_array().unwrap();
    assert_eq!(stores[0]["incomplete"], Value::Null, "{answer}");
    let reason = stores[1]["incomplete"].as_str().unwrap();
    assert!(reason.contains("manifest"), "{reason}");
    let profile = reader.json(&format!("/api/v1/profile?{ALL}")).await;
    assert_eq!(profile["corrupt_files"], json!(["c2/wal"]));
    let whole = c1.json(&format!("/api/v1/profile?{ALL}")).await;
    assert_eq!(profile["totals"], whole["totals"]);
}

/// Its folders would count as stores without data.
#[tokio::test]
async fn a_reader_of_one_collectors_folder_says_where_the_stores_are() {
    let place = TempDir::new().unwrap();
    let c1 = serve_at(place.path(), "c1").await;
    seal(&c1).await;
    c1.end().await;
    let reader = crate::Server::bind(ServeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        follow: Some(FollowOptions {
            place: StorePlace::Directory(place.path().join("c1")),
            data: None,
            cache_bytes: None,
        }),
        ..ServeOptions::default()
    });
    let error = reader.await.unwrap_err().to_string();
    let hint = "/c1 is the store of one collector: leave out the last part of the path";
    assert!(error.ends_with(hint), "{error}");
}

#[tokio::test]
async fn a_reader_accepts_nothing() {
    let place = TempDir::new().unwrap();
    let c1 = serve_at(place.path(), "c1").await;
    seal(&c1).await;
    let reader = follow(place.path()).await;
    let hello = profiler_core::wire::v1::AgentMessage {
        kind: Some(Kind::Hello(TestWorker::new("w", 1).hello())),
    };
    let status = Client::refused(reader.address, vec![hello]).await;
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status:?}");
    assert!(
        status.message().contains("send to one of their collectors"),
        "{status:?}"
    );
    let posted = send(
        reader.address,
        "POST /api/v1/runs",
        "application/json",
        r#"{"name": "late"}"#,
    )
    .await;
    assert_eq!(posted.status, 409, "{}", posted.body);
    assert!(
        posted.body.contains("only reads the stores in file://"),
        "{}",
        posted.body
    );
    let pushed = request(reader.address, "POST", "/ingest?name=x").await;
    assert_eq!(pushed.status, 403, "{}", pushed.body);
    let dump = request(reader.address, "GET", "/api/v1/thread-dump").await;
    assert_eq!(dump.status, 409, "{}", dump.body);
}

/// Copies a folder with all folders in it.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// On a thread that may block: a program that adopts has no runtime on its thread either.
async fn adopt_c1(place: &Path) -> Result<Adoption, DataError> {
    let place = StorePlace::Directory(place.to_owned());
    let location = StoreLocation::Named(place, "c1".parse().unwrap());
    tokio::task::spawn_blocking(move || adopt(&location, &AdoptionOptions::default()))
        .await
        .unwrap()
}

/// The store is that of a machine that was lost: a copy of its folder.
#[tokio::test]
async fn a_reader_answers_the_same_before_and_after_an_adoption() {
    let [place, left, folder] = [(); 3].map(|()| TempDir::new().unwrap());
    let data = Some(folder.path().to_owned());
    let whole = serve_with(ServeOptions {
        data,
        ..ServeOptions::default()
    })
    .await;
    let part = serve_at(place.path(), "c1").await;
    let mut workers = Vec::new();
    for id in ["w1", "w2", "w3", "w4"] {
        workers.push(Twice::attach(id, &whole, &part).await);
    }
    for second in 0..8 {
        for worker in &mut workers {
            worker.ship().await;
        }
        if second == 4 {
            seal(&part).await;
        }
    }
    let in_use = adopt_c1(place.path()).await.unwrap_err();
    assert!(matches!(in_use, DataError::InUse { .. }), "{in_use}");
    copy_folder(&place.path().join("c1"), &left.path().join("c1"));
    let reader = follow(left.path()).await;
    until_alike(&whole, &reader).await;

    const AFTER: Duration = Duration::from_secs(60);
    let name = "c1".parse().unwrap();
    let c2 = "c2".parse().unwrap();
    let of = StorePlace::Directory(left.path().to_owned());
    let mut watch = StoreWatch::new(of, c2, AFTER, Retention::default());
    assert_eq!(watch.names().unwrap(), std::slice::from_ref(&name));
    let start = Instant::now();
    let mut look = |seconds| {
        watch
            .look(&name, start + Duration::from_secs(seconds), at(60))
            .unwrap()
    };
    assert_eq!([look(0), look(59), look(60)], [false, false, true]);
    let adoption = adopt_c1(left.path()).await.unwrap();
    assert!(
        adoption.records > 0 && adoption.sessions == 4,
        "{adoption:?}"
    );
    // It has changed, and then there is nothing more to do.
    assert_eq!([look(61), look(121), look(122)], [false; 3]);
    // All is in tables on both sides, and tasks may end after the last sample.
    seal(&whole).await;
    until_alike(&whole, &reader).await;
    let stores = &reader.json("/api/v1/workers").await["stores"];
    assert_eq!(stores[0]["incomplete"], Value::Null, "{stores}");
    assert_eq!(adopt_c1(left.path()).await.unwrap().records, 0);
    until_alike(&whole, &reader).await;

    // Its next life answers the same.
    let next = serve_at(left.path(), "c1").await;
    until_alike(&whole, &reader).await;
    let profile = format!("/api/v1/profile?{ALL}");
    assert_eq!(
        next.json(&profile).await["totals"],
        whole.json(&profile).await["totals"]
    );
}
