//! Definition of slow tasks, and the order of names.

use profiler_core::Outcome;

use super::*;
use state::ledger::bucket;

#[test]
fn durations_are_cut_where_the_quantile_is_and_equal_ones_are_told_apart() {
    let check = |counts: &[(u32, u64)], quantile, expected| {
        assert_eq!(
            split_after(counts, quantile),
            expected,
            "{counts:?} {quantile}"
        );
    };
    let even: Vec<(u32, u64)> = (0..100).map(|bucket| (bucket, 3)).collect();
    check(&even, 0.5, Some(49));
    check(&even, 0.9, Some(89));
    check(&even, 0.99, Some(98));
    // Forty tasks of one duration before, sixty of another one after.
    check(&[(10, 40), (11, 60)], 0.5, Some(10));
    check(&[(10, 60), (11, 40)], 0.99, Some(10));
    check(&[(7, 1_000)], 0.5, None);
    check(&[], 0.5, None);
}

/// A name whose tasks take these many milliseconds, in twenty slices in turn.
fn name_tasks(before_ms: &[u64], after_ms: &[u64]) -> NameTasks {
    let second = |at: usize| Timestamp::from_unix_ns(at as i64 * 1_000_000_000);
    let range = TimeRange::new(second(0), second(COMPARED_SLICES)).unwrap();
    let name: Arc<str> = "load".into();
    let mut tasks = NameTasks::default();
    let each = |all_ms: &[u64], visit: &mut dyn FnMut(&EndedGroup<'_>)| {
        for (at, ms) in all_ms.iter().enumerate() {
            visit(&EndedGroup {
                name: &name,
                at: second(at % COMPARED_SLICES),
                outcome: Outcome::Ok,
                counts: &[(bucket(ms * 1_000_000), 1)],
            });
        }
    };
    each(before_ms, &mut |group| tasks.before.count(group));
    each(after_ms, &mut |group| tasks.after.count(group));
    tasks.split();
    let splits = tasks.splits;
    each(before_ms, &mut |group| {
        tasks.before.count_in_slice(group, range, &splits)
    });
    each(after_ms, &mut |group| {
        tasks.after.count_in_slice(group, range, &splits)
    });
    tasks
}

/// The verdicts about the name and its three quantiles, if it is the only one.
fn check_verdicts(before_ms: &[u64], after_ms: &[u64], expected: &str) {
    let mut names = ByName::<NameTasks>::new(10);
    *names.of(&"load".into(), 1) = name_tasks(before_ms, after_ms);
    let (_, rows) = judged(&names);
    let [row] = &rows[..] else {
        panic!("one name: {rows:?}")
    };
    let words = [
        &row.verdict,
        &row.p50.verdict,
        &row.p90.verdict,
        &row.p99.verdict,
    ];
    assert_eq!(words.map(|word| &**word).join(" "), expected, "{row:?}");
}

#[test]
fn verdicts_are_per_quantile_and_honest_about_few_tasks() {
    check_verdicts(
        &spread(400, 1),
        &spread(400, 2),
        "slower slower slower slower",
    );
    check_verdicts(
        &spread(400, 2),
        &spread(400, 1),
        "faster faster faster faster",
    );
    check_verdicts(
        &spread(400, 1),
        &spread(400, 1),
        "no_change no_change no_change no_change",
    );
    // Five tasks have a median, and nothing else.
    check_verdicts(
        &spread(5, 1),
        &spread(5, 3),
        "slower slower too_few too_few",
    );
    check_verdicts(
        &spread(5, 1),
        &spread(5, 1),
        "no_change no_change too_few too_few",
    );
    check_verdicts(
        &spread(2, 1),
        &spread(2, 9),
        "too_few too_few too_few too_few",
    );
    check_verdicts(&[5; 40], &[6; 60], "slower slower slower slower");
    check_verdicts(
        &[5; 400],
        &[5; 300],
        "no_change no_change no_change no_change",
    );
    check_verdicts(&[], &[5; 300], "only_after too_few too_few too_few");
    check_verdicts(&[5; 300], &[], "only_before too_few too_few too_few");
    // Only the slowest twentieth got slower.
    check_verdicts(&tail(1), &tail(3), "slower no_change no_change slower");
    // A significant difference that is too small to matter.
    check_verdicts(
        &near(100_000),
        &near(100_400),
        "no_change no_change no_change no_change",
    );
}

fn spread(count: u64, scale: u64) -> Vec<u64> {
    (0..count)
        .map(|at| scale * (1_000 + at * 7_919 % 1_000))
        .collect()
}

/// Durations whose slowest twentieth depends on `scale`.
fn tail(scale: u64) -> Vec<u64> {
    (0..2_000)
        .map(|at| {
            if at % 21 == 20 {
                scale * 9_000
            } else {
                1_000 + at % 100
            }
        })
        .collect::<Vec<_>>()
}

fn near(ms: u64) -> Vec<u64> {
    vec![ms; 10_000]
}
