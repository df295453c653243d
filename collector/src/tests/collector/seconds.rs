//! Profiles by second and of threads cost by their answer: rows of other tasks, threads and periods are not in it.

use super::*;
use base::limits::PROFILE_SECONDS_MAX;
use query::Queries;

/// More than an answer may have.
const BUSY_S: i64 = PROFILE_SECONDS_MAX as i64 + 50;

/// The seconds of the rare task.
const RARE_S: [i64; 3] = [7, 300, BUSY_S - 1];

/// `busy` ran in each of [`BUSY_S`] seconds on `pool-1`, `rare` in three of them on `pool-2`.
fn shipped(sealed: bool) -> Collector {
    shipped_for(BUSY_S, sealed)
}

/// The same, with more seconds of `busy`.
fn shipped_for(busy_s: i64, sealed: bool) -> Collector {
    let collector = collector(1_000);
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    for second in 0..busy_s {
        worker.count("busy;main", State::Cpu, 3);
        worker.count_thread("busy;pool-1#1", State::Cpu, 3);
        if RARE_S.contains(&second) {
            worker.count("rare;main;parse", State::Cpu, 2);
            worker.count_thread("rare;pool-2#2", State::Cpu, 2);
            worker.count("busy;main", State::Cpu, 4);
            worker.count_thread("busy;pool-2#2", State::Cpu, 4);
        }
        let flush = worker.flush(second, vec![]);
        let expected = format!("ack {}", flush.seq);
        assert_eq!(
            send_at(1_000, &collector, &attachment, &mut worker, &flush),
            expected
        );
    }
    if sealed {
        seal(&collector);
    }
    collector
}

fn profile(collector: &Collector, parameters: &[(&str, &str)]) -> Result<Profile, QueryError> {
    profile_with(collector, parameters, &Cancel::default())
}

fn profile_with(
    collector: &Collector,
    parameters: &[(&str, &str)],
    cancel: &Cancel,
) -> Result<Profile, QueryError> {
    let all = [("from", "0"), ("to", "now")];
    let pairs: Vec<(String, String)> = all
        .iter()
        .chain(parameters)
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let query = ProfileQuery::parse(&pairs, &collector.state, at(6 * BUSY_S)).unwrap();
    Queries(&collector.state)
        .profile(&query, cancel)
        .map(|answer| answer.profile)
}

#[test]
fn seconds_of_other_tasks_count_to_no_answer() {
    for sealed in [false, true] {
        let collector = shipped(sealed);
        for (parameters, seconds, total_ns) in [
            (&[("task", "rare")][..], 3, 6),
            (&[("thread", "pool-2")], 3, 18),
            (&[("thread_id", "2"), ("task", "rare")], 3, 6),
            (&[("task", "rare"), ("threads", "all")], 3, 6),
        ] {
            let mut by_second = vec![("group", "second")];
            by_second.extend(parameters);
            let found = profile(&collector, &by_second).unwrap();
            let levels = found.top_level().count();
            assert_eq!(
                (levels, found.total().total_ns()),
                (seconds, total_ns),
                "{parameters:?} {sealed}"
            );
            let whole = profile(&collector, parameters).unwrap();
            assert_eq!(
                whole.total().total_ns(),
                total_ns,
                "{parameters:?} {sealed}"
            );
        }
    }
}

#[test]
fn an_answer_of_too_many_seconds_is_refused() {
    for sealed in [false, true] {
        let collector = shipped(sealed);
        let expected = format!(
            "the range has more than {PROFILE_SECONDS_MAX} seconds with samples, the most by second: ask for a \
             shorter range"
        );
        for parameters in [&[][..], &[("task", "busy")], &[("thread", "pool-1")]] {
            let mut by_second = vec![("group", "second")];
            by_second.extend(parameters);
            let error = profile(&collector, &by_second).unwrap_err();
            assert!(
                error.to_string().starts_with(&expected),
                "{error} {parameters:?}"
            );
        }
    }
}

/// By the rows that are read from tables. Six times the range adds what is looked at: coarse periods, and the end of the hour
/// whose seconds are one page. All its seconds have five times the rows.
#[test]
fn seconds_cost_by_the_answer_and_not_by_the_range() {
    const LOOKED_AT_ROWS: u64 = 1_000;
    let [short, long] = [BUSY_S, 6 * BUSY_S].map(|busy_s| shipped_for(busy_s, true));
    for parameters in [
        &[("group", "second"), ("task", "rare")][..],
        &[("group", "second"), ("task", "rare"), ("phase", "execute")],
        &[("group", "second"), ("thread", "pool-2")],
        &[("thread", "pool-2")],
    ] {
        let rows = |collector: &Collector| {
            let cancel = Cancel::default();
            assert!(
                !profile_with(collector, parameters, &cancel)
                    .unwrap()
                    .is_empty()
            );
            cancel.rows_read()
        };
        let [short_rows, long_rows] = [&short, &long].map(rows);
        assert!(
            0 < short_rows && long_rows < short_rows + LOOKED_AT_ROWS,
            "{parameters:?}: {short_rows} rows of {BUSY_S} s, {long_rows} of six times as many"
        );
    }
}
