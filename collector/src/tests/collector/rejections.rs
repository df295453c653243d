//! An invalid part of a message costs that part only, and the collector counts it at once.

use profiler_core::limits::DEPTH_MAX;

use super::*;
use query::fleet;

fn view(collector: &Collector) -> query::EpochView {
    fleet(collector, &Default::default(), at(0)).epochs[0].clone()
}

/// As agents before `[truncated]` names sent it: all but the deep stack is stored where it belongs, and its
/// time below its task.
#[test]
fn a_stack_that_is_too_deep_costs_its_inner_functions_only() {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    worker.count("before;main", State::Cpu, 1);
    let first = worker.flush(10, vec![]);
    worker.count(&deep(DEPTH_MAX - 1), State::Cpu, 2);
    worker.count(&deep(1_500), State::Cpu, 4);
    worker.count(&deep(4_000), State::Lock, 8);
    worker.count("shallow;main", State::Cpu, 16);
    let second = worker.flush(11, vec![]);
    worker.count("after;main", State::Cpu, 32);
    let third = worker.flush(12, vec![]);
    for (flush, answer) in [(first, "ack 1"), (second, "ack 2"), (third, "ack 3")] {
        assert_eq!(send(&collector, &attachment, &mut worker, &flush), answer);
    }
    let profile = ask(&collector, TimeRange::ALL, Filter::default())
        .profile
        .by_function();
    let stacks = flamegraph::collapsed(&profile);
    let cut = deep(DEPTH_MAX - 2) + ";[truncated] 00012";
    let whole = deep(DEPTH_MAX - 1) + " 00002";
    let mut expected = [
        "after;main 00032",
        "before;main 00001",
        &cut,
        &whole,
        "shallow;main 00016",
    ];
    let mut found: Vec<_> = stacks.lines().collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    let view = view(&collector);
    let reason = format!(
        "{} entries of a dictionary, stored as [truncated] or [overflow]: the depth of a stack is {}; at most \
         {DEPTH_MAX} is allowed",
        4_001 - DEPTH_MAX,
        DEPTH_MAX + 1
    );
    assert_eq!(
        (view.rejected, view.last_rejection.as_deref()),
        (1, Some(&*reason))
    );
    assert_eq!((view.stored_ns, view.unaccounted_ns()), (63, 0));
}

fn deep(functions: u32) -> String {
    let names = (1..=functions).map(|level| format!(";f{level}"));
    "deep".to_owned() + &names.collect::<String>()
}

/// A simulated agent's account of one flush.
#[derive(Clone, Copy, Debug)]
enum Step {
    Good,
    Refused,
    /// The answer to it is lost with its stream.
    RefusedUnheard,
}

/// Whatever the agent knows of its refused flushes, the collector's account balances after each flush.
#[test]
fn refused_time_is_counted_at_once_and_once() {
    use Step::{Good, Refused, RefusedUnheard};
    check_account(&[Refused]);
    check_account(&[Good, Refused, Refused, Good, Refused]);
    check_account(&[
        RefusedUnheard,
        Good,
        Refused,
        RefusedUnheard,
        RefusedUnheard,
        Good,
    ]);
    // Each number below is a sequence of steps.
    for number in 0..3usize.pow(6) {
        check_account(
            &[0, 1, 2, 3, 4, 5]
                .map(|place: u32| [Good, Refused, RefusedUnheard][number / 3usize.pow(place) % 3]),
        );
    }
}

fn check_account(steps: &[Step]) {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    let mut attachment = attach(&collector, &worker, 0).attachment;
    let mut lost_ns = 0;
    let mut stored_ns = 0;
    for (step, seq) in steps.iter().zip(1u64..) {
        let weight_ns = 1 << seq;
        worker.count("load;main", State::Cpu, weight_ns);
        let mut flush = worker.flush(10, vec![]);
        if matches!(step, Step::Good) {
            stored_ns += weight_ns;
        } else {
            lost_ns += weight_ns;
            flush.clock = None;
        }
        let answer = send(&collector, &attachment, &mut worker, &flush);
        assert_eq!(
            answer.starts_with("ack"),
            matches!(step, Step::Good),
            "{answer}"
        );
        if matches!(step, Step::RefusedUnheard) {
            collector
                .ingest
                .detach(&attachment, DisconnectReason::Crashed, at(20));
            let hello = v1::Hello {
                answered_seq: seq - 1,
                ..worker.hello()
            };
            let account = state::testing::account();
            let open = at_once(collector.ingest.attach(&account, hello, at(21))).unwrap();
            attachment = open.attachment;
            let answer = send(&collector, &attachment, &mut worker, &flush);
            assert!(answer.starts_with("refused"), "{answer}");
        }
        if !matches!(step, Step::Good) {
            worker.note_refused(weight_ns);
        }
        let view = view(&collector);
        assert_eq!(view.account.lost_rejected_ns, lost_ns, "{steps:?} {seq}");
        assert_eq!(
            (view.stored_ns, view.unaccounted_ns()),
            (stored_ns, 0),
            "{steps:?} {seq}"
        );
    }
}
