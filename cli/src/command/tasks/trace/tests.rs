use proptest::prelude::*;

use super::*;
use crate::trace::end_ns;

fn task(id: u64, start_ns: i64, duration_ns: u64) -> Task {
    api::testing::task(id, 1, start_ns, duration_ns)
}

/// The response of a collector with these tasks and that limit to a piece of 100 to 200 ns.
fn answer(tasks: &[Task], limit: usize, piece: Option<Range<i64>>) -> Page<Task> {
    let Range { start, end } = piece.unwrap_or(100..200);
    assert!(
        (100..200).contains(&start) && start < end && end <= 200,
        "{start}..{end}"
    );
    let mut tasks: Vec<Task> = tasks
        .iter()
        .filter(|task: &&Task| task.start_ns < end && end_ns(task) >= start)
        .cloned()
        .collect();
    tasks.sort_by_key(|task| std::cmp::Reverse((task.start_ns, task.id)));
    let total = tasks.len() as u64;
    tasks.truncate(limit);
    let range = api::TimeRange {
        from: start.to_string(),
        to: end.to_string(),
        from_ns: start,
        to_ns: end,
    };
    let corrupt_files = vec![format!("file-{}", start / 50)];
    Page {
        range,
        total,
        aggregated: 7,
        corrupt_files,
        rows: tasks,
    }
}

/// The same for transfers, of which a response lists those that stopped last.
fn transfers(all: &[Transfer], limit: usize, piece: Option<Range<i64>>) -> Page<Transfer> {
    let Range { start, end } = piece.unwrap_or(100..200);
    let mut rows: Vec<Transfer> = all
        .iter()
        .filter(|one: &&Transfer| one.start_ns < end && one.stop_ns >= start)
        .cloned()
        .collect();
    rows.sort_by_key(|one| std::cmp::Reverse((one.stop_ns, one.id)));
    let total = rows.len() as u64;
    rows.truncate(limit);
    let range = api::TimeRange {
        from: start.to_string(),
        to: end.to_string(),
        from_ns: start,
        to_ns: end,
    };
    Page {
        range,
        total,
        aggregated: 0,
        corrupt_files: Vec::new(),
        rows,
    }
}

proptest! {
    /// However many tasks there are and however few a response holds: each comes once, in the order of
    /// starts, or is counted as omitted, and only tasks that no request can reach are omitted.
    #[test]
    fn every_task_of_the_range_is_written_once(
        spans in prop::collection::vec((0i64..220, 0u64..150), 0..120),
        limit in 1usize..40,
    ) {
        let tasks: Vec<Task> = (1u64..)
            .zip(spans)
            .map(|(id, (start_ns, duration_ns))| task(id, start_ns, duration_ns))
            .collect();
        let mut taken: Vec<Task> = Vec::new();
        let mut take = |piece: Vec<Task>| {
            let first = piece.iter().map(|task| task.start_ns).min();
            let last = taken.iter().map(|task| task.start_ns).max();
            assert!(first.zip(last).is_none_or(|(first, last)| last < first), "in order");
            taken.extend(piece);
            Ok(())
        };
        let about = all(&mut |piece| Ok(answer(&tasks, limit, piece)), &mut take).unwrap();
        let whole = answer(&tasks, usize::MAX, None);
        let mut ids: Vec<u64> = taken.iter().map(|task| task.id).collect();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), taken.len(), "none twice");
        prop_assert_eq!(about.rows, ids.len() as u64);
        prop_assert_eq!(about.rows + about.omitted, whole.total);
        prop_assert_eq!(about.aggregated, 7);
        // A request for one nanosecond returns the tasks that start in it, and at the range's start all
        // that run: more than the limit of these are out of reach.
        let starts = |ns: i64| whole.rows.iter().filter(|task| task.start_ns == ns).count();
        let at_start = whole.rows.iter().filter(|task| task.start_ns <= 100).count();
        if at_start <= limit && (101..200).all(|ns| starts(ns) <= limit) {
            prop_assert_eq!(about.omitted, 0);
        }
    }

    /// The same for transfers, which are not listed by their starts.
    #[test]
    fn every_transfer_of_the_range_is_written_once(
        spans in prop::collection::vec((0i64..220, 0i64..150), 0..120),
        limit in 1usize..40,
    ) {
        let all_transfers: Vec<Transfer> = (1u64..)
            .zip(spans)
            .map(|(id, (start_ns, length_ns))| {
                let stop_ns = start_ns + length_ns;
                Transfer { id, start_ns, stop_ns, ..Transfer::default() }
            })
            .collect();
        let mut ids = Vec::new();
        let mut take = |piece: Vec<Transfer>| {
            ids.extend(piece.iter().map(|one| one.id));
            Ok(())
        };
        let about =
            all(&mut |piece| Ok(transfers(&all_transfers, limit, piece)), &mut take).unwrap();
        let whole = transfers(&all_transfers, usize::MAX, None);
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), count, "none twice");
        prop_assert_eq!(about.rows, count as u64);
        prop_assert_eq!(about.rows + about.omitted, whole.total);
        let runs = |ns: i64| whole.rows.iter().filter(move |one| one.start_ns <= ns && one.stop_ns >= ns);
        if (100..200).all(|ns| runs(ns).count() <= limit) {
            prop_assert_eq!(about.omitted, 0);
        }
    }
}

#[test]
fn damaged_files_of_all_answers_are_told_once() {
    let tasks: Vec<Task> = (0..100).map(|at| task(at, 100 + at as i64, 0)).collect();
    let about = all(&mut |piece| Ok(answer(&tasks, 10, piece)), &mut |_| Ok(())).unwrap();
    assert_eq!((about.rows, about.omitted), (100, 0));
    assert_eq!(about.corrupt_files, ["file-2", "file-3"]);
}

#[test]
fn a_limit_gives_the_newest_and_says_how_many_others_there_are() {
    let tasks: Vec<Task> = (0..100).map(|at| task(at, 100 + at as i64, 0)).collect();
    let mut taken = Vec::new();
    let about = newest(
        &mut |piece| Ok(answer(&tasks, 3, piece)),
        &mut |tasks: Vec<Task>| {
            taken.extend(tasks.iter().map(|task| task.id));
            Ok(())
        },
    )
    .unwrap();
    assert_eq!((about.rows, about.omitted), (3, 97));
    assert_eq!(taken, [99, 98, 97]);
    assert_eq!(
        notes(&about.into()),
        [
            "97 tasks are left out".to_owned(),
            crate::view::aggregated(7).unwrap(),
            crate::view::corrupt_files(&["file-2".to_owned()]).unwrap(),
        ]
    );
}
