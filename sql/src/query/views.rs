//! Views with names instead of numbers. Each is a union over the stores.

use profiler_core::{Outcome, Resource, State};

use super::stacks::{NODE_NAMES, STORE_SHIFT};

/// Lengths of the periods of sums.
pub(super) const RESOLUTIONS: [&str; 5] = ["1s", "1m", "10m", "1h", "1d"];

/// The views that are used by name alone.
pub(super) const VIEWS: [&str; 7] = [
    "samples",
    "stacks",
    "tasks",
    "phases",
    "transfers",
    "resources",
    "workers",
];

/// The views that exist for each resolution.
pub(super) const BY_RESOLUTION: [&str; 2] = ["samples", "phases"];

/// The resolution of a view that is used without one.
const RESOLUTION_DEFAULT: &str = "1m";

/// The schema with a store's tables.
pub(super) fn schema_of(store: &str) -> String {
    match store {
        SINGLE => SINGLE.to_owned(),
        name => format!("store_{name}"),
    }
}

/// The name of a store that is a folder by itself.
pub(super) const SINGLE: &str = "store";

/// One store in the text of a view.
struct ViewedStore {
    /// The collector's name as a literal.
    collector: String,
    /// The quoted schema.
    schema: String,
    /// Offset that is added to the numbers of its nodes.
    first_node: u64,
}

/// Name and text of each view over these stores.
pub(super) fn all(stores: &[String]) -> Vec<(String, String)> {
    let viewed: Vec<ViewedStore> = stores
        .iter()
        .zip(0u64..)
        .map(|(name, number)| viewed_store(name, number))
        .collect();
    let union = |text: &dyn Fn(&ViewedStore) -> String| {
        viewed
            .iter()
            .map(text)
            .collect::<Vec<_>>()
            .join(" UNION ALL ")
    };
    let mut views = Vec::new();
    for resolution in RESOLUTIONS {
        views.push((
            format!("samples_{resolution}"),
            union(&|store| samples(store, resolution)),
        ));
        views.push((
            format!("phases_{resolution}"),
            union(&|store| phases(store, resolution)),
        ));
    }
    for name in BY_RESOLUTION {
        let text = format!("SELECT * FROM {name}_{RESOLUTION_DEFAULT}");
        views.push((name.to_owned(), text));
    }
    views.push(("stacks".to_owned(), union(&stacks)));
    views.push(("tasks".to_owned(), union(&tasks)));
    views.push(("transfers".to_owned(), union(&transfers)));
    views.push(("resources".to_owned(), union(&resources)));
    views.push(("workers".to_owned(), union(&workers)));
    views
}

fn viewed_store(name: &str, number: u64) -> ViewedStore {
    ViewedStore {
        // Names have no quotes; a text that had some would still be one literal.
        collector: format!("'{}'", name.replace('\'', "''")),
        schema: format!("\"{}\"", schema_of(name).replace('"', "\"\"")),
        first_node: number << STORE_SHIFT,
    }
}

/// The name of a number that stands for one of `names`.
fn name_of(column: &str, names: impl Iterator<Item = &'static str>) -> String {
    let cases = names
        .enumerate()
        .map(|(number, name)| format!(" WHEN {number} THEN '{name}'"));
    format!("CASE {column}{} END", cases.collect::<String>())
}

fn state(column: &str) -> String {
    name_of(column, State::ALL.into_iter().map(State::name))
}

fn outcome(column: &str) -> String {
    name_of(column, Outcome::ALL.into_iter().map(Outcome::name))
}

/// The number of a node among those of all stores.
fn node(store: &ViewedStore, column: &str) -> String {
    let cast = |text: &str| format!("CAST({text} AS BIGINT UNSIGNED)");
    format!(
        "({} + {})",
        cast(column),
        cast(&store.first_node.to_string())
    )
}

/// A number that may be subtracted, as a signed one. All real values fit; a greater one, which only a hostile agent
/// reports, becomes the greatest that does.
fn signed(column: &str) -> String {
    let most = i64::MAX;
    format!(
        "CASE WHEN {column} > CAST({most} AS BIGINT UNSIGNED) THEN {most} ELSE CAST({column} AS BIGINT) END"
    )
}

/// Rows of a counting table keep their weight even if a name is lost.
fn samples(store: &ViewedStore, resolution: &str) -> String {
    let ViewedStore {
        collector, schema, ..
    } = store;
    let state = state("s.state");
    let node = node(store, "s.node");
    format!(
        "SELECT s.ts, w.id AS worker, t.function AS task, {state} AS state, \
         k.function, k.file, k.line, k.module, {node} AS node, CAST(s.weight_ns AS BIGINT) AS weight_ns, \
         {collector} AS collector \
         FROM {schema}.samples_{resolution} s \
         LEFT JOIN {schema}.{NODE_NAMES} k ON k.node = s.node \
         LEFT JOIN (SELECT node, function FROM {schema}.{NODE_NAMES} WHERE parent = 0) t ON t.node = s.task \
         LEFT JOIN {schema}.workers w ON w.number = s.worker"
    )
}

/// Phases of tasks: how often tasks were in them, and for how long. The rest of the tasks' time is
/// `execute`.
fn phases(store: &ViewedStore, resolution: &str) -> String {
    let ViewedStore {
        collector, schema, ..
    } = store;
    let outcome = outcome("p.outcome");
    let zero = "CAST(0 AS BIGINT UNSIGNED)";
    let reported = format!(
        "SELECT p.ts, t.function AS task, k.function AS phase, {outcome} AS outcome, \
         CAST(sum(p.tasks) AS BIGINT) AS tasks, CAST(sum(p.duration_ns) AS BIGINT) AS duration_ns, \
         {collector} AS collector FROM (\
         SELECT ts, task, outcome, node, count AS tasks, {zero} AS duration_ns \
         FROM {schema}.phases_{resolution} UNION ALL \
         SELECT ts, task, outcome, node, {zero}, duration_ns FROM {schema}.phase_sums_{resolution}) p \
         JOIN {schema}.{NODE_NAMES} k ON k.node = p.node \
         JOIN {schema}.{NODE_NAMES} t ON t.node = p.task \
         WHERE k.kind = 'phase' GROUP BY p.ts, t.function, k.function, p.outcome"
    );
    // At the task itself, the sums are what the phases took.
    let rest = format!(
        "SELECT p.ts, t.function AS task, 'execute' AS phase, {outcome} AS outcome, \
         CAST(sum(p.tasks) AS BIGINT) AS tasks, \
         CAST(sum(p.duration_ns) AS BIGINT) - CAST(sum(p.inside_ns) AS BIGINT) AS duration_ns, \
         {collector} AS collector FROM (\
         SELECT ts, task, outcome, tasks, {zero} AS duration_ns, {zero} AS inside_ns \
         FROM {schema}.durations_{resolution} UNION ALL \
         SELECT ts, task, outcome, {zero} AS tasks, duration_ns, {zero} AS inside_ns FROM {schema}.duration_sums_{resolution} UNION ALL \
         SELECT ts, task, outcome, {zero} AS tasks, {zero} AS duration_ns, duration_ns AS inside_ns FROM {schema}.phase_sums_{resolution} \
         WHERE node = task) p \
         JOIN {schema}.{NODE_NAMES} t ON t.node = p.task GROUP BY p.ts, t.function, p.outcome"
    );
    format!("{reported} UNION ALL {rest}")
}

fn stacks(store: &ViewedStore) -> String {
    let ViewedStore {
        collector, schema, ..
    } = store;
    let node_number = node(store, "k.node");
    // The root is 0 in all stores.
    let parent = format!(
        "CASE k.parent WHEN 0 THEN CAST(0 AS BIGINT UNSIGNED) ELSE {} END",
        node(store, "k.parent")
    );
    format!(
        "SELECT {node_number} AS node, {parent} AS parent, CAST(k.depth AS BIGINT) AS depth, k.task, k.kind, \
         k.function, k.file, k.line, k.module, stack({node_number}) AS stack, {collector} AS collector FROM {schema}.{NODE_NAMES} k"
    )
}

/// A task may have several rows, of which the newest counts; few have.
fn tasks(store: &ViewedStore) -> String {
    let ViewedStore {
        collector, schema, ..
    } = store;
    let result_bytes = signed("t.result_bytes");
    let columns = format!(
        "t.name AS task, t.key, t.worker, t.thread_name AS thread, \
         t.thread_id, t.parent, t.start, t.stop, CAST(t.stop AS BIGINT) - CAST(t.start AS BIGINT) AS duration_ns, \
         t.outcome, t.cause, CAST(t.attempt AS BIGINT) AS attempt, {result_bytes} AS result_bytes, t.type_name AS type, t.labels, t.phases, \
         t.epoch, t.id, {collector} AS collector"
    );
    format!(
        "SELECT {columns} FROM {schema}.tasks t LEFT ANTI JOIN (\
         SELECT worker, epoch, id, max(version) AS version FROM {schema}.tasks GROUP BY worker, epoch, id \
         HAVING count(*) > 1) newest ON newest.worker = t.worker AND newest.epoch = t.epoch \
         AND newest.id = t.id AND newest.version > t.version \
         UNION ALL SELECT {columns} FROM {schema}.running t"
    )
}

fn transfers(store: &ViewedStore) -> String {
    let ViewedStore {
        collector, schema, ..
    } = store;
    let [more_keys, bytes, compressed_bytes] =
        ["t.more_keys", "t.bytes", "t.compressed_bytes"].map(signed);
    format!(
        "SELECT t.worker, t.direction, t.peer, t.keys, {more_keys} AS more_keys, \
         t.type_name AS type, {bytes} AS bytes, {compressed_bytes} AS compressed_bytes, t.start, t.stop, \
         CAST(t.stop AS BIGINT) - CAST(t.start AS BIGINT) AS duration_ns, t.task_id, t.thread_id, t.outcome, \
         t.cause, t.epoch, t.id, {collector} AS collector FROM {schema}.transfers t"
    )
}

fn resources(store: &ViewedStore) -> String {
    let ViewedStore {
        collector, schema, ..
    } = store;
    let measures: String = ["period_ns"]
        .into_iter()
        .chain(Resource::ALL.map(Resource::name))
        .map(|name| signed_column("r", name))
        .collect();
    format!(
        "SELECT r.worker, r.epoch, r.sampled_at, {measures}{collector} AS collector FROM {schema}.resources r"
    )
}

/// A column of a table as [`signed`], with a comma.
fn signed_column(table: &str, name: &str) -> String {
    format!("{} AS {name}, ", signed(&format!("{table}.{name}")))
}

fn workers(store: &ViewedStore) -> String {
    const COUNTS: [&str; 10] = [
        "interval_ns",
        "ticks_made",
        "ticks_expected",
        "ticks_throttled",
        "stored_ns",
        "accepted_ns",
        "lost_refused_ns",
        "lost_by_collector_ns",
        "lost_queue_ns",
        "lost_tasks",
    ];
    let ViewedStore {
        collector, schema, ..
    } = store;
    let counts: String = COUNTS.map(|name| signed_column("s", name)).concat();
    format!(
        "SELECT s.worker, s.host, s.pid, s.epoch, s.labels, s.started_at, s.first_seen, \
         s.last_seen, s.disconnect, s.disconnected_at, s.agent_version, s.sampler_mode, \
         {counts}{collector} AS collector FROM {schema}.sessions s"
    )
}
