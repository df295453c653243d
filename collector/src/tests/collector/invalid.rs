//! Invalid messages are rejected whole, and the stream continues.

use super::*;

/// Sends a flush that `change` made invalid: it is rejected whole, and the next one is accepted.
fn check_refused(change: impl FnOnce(&mut v1::Flush), expected: &str) {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    worker.count("load;main", State::Cpu, 3);
    let tasks = vec![worker.task(1, "load", (10, None))];
    let mut flush = worker.flush(10, tasks);
    change(&mut flush);
    let seq = flush.seq;
    let answer = send(&collector, &attachment, &mut worker, &flush);
    assert_eq!(answer, format!("refused {seq}: {expected}"));
    assert_eq!(
        (total_ns(&collector), rows(&collector).len()),
        (0, 0),
        "{expected}"
    );
    let view = &fleet(&collector, &Default::default(), at(0)).epochs[0];
    assert_eq!(
        (view.rejected, view.last_rejection.as_deref()),
        (1, Some(expected))
    );
    assert_eq!(
        (view.acked_seq, view.stored_ns),
        (0, 0),
        "a refusal is no acknowledgment"
    );
    assert_eq!(
        view.unaccounted_ns(),
        0,
        "what it had counts as lost at once"
    );

    worker.note_refused(3);
    worker.count("load;main", State::Lock, 4);
    let next = worker.flush(11, vec![]);
    assert_eq!(send(&collector, &attachment, &mut worker, &next), "ack 2");
    let view = &fleet(&collector, &Default::default(), at(0)).epochs[0];
    assert_eq!(
        (total_ns(&collector), view.stored_ns, view.unaccounted_ns()),
        (4, 4, 0)
    );
}

#[test]
fn an_invalid_flush_is_rejected_whole_and_the_stream_continues() {
    fn cycle(flush: &mut v1::Flush) -> &mut v1::Cycle {
        flush.cycle.as_mut().unwrap()
    }
    check_refused(|f| f.clock = None, "the flush's clock is missing");
    check_refused(|f| f.account = None, "the flush's account is missing");
    check_refused(
        |f| cycle(f).samples[1] = 63,
        "node 9 is outside its table of 3",
    );
    check_refused(
        |f| cycle(f).samples_interpreter = vec![0, 9, 0],
        "the waits of node 1 for an interpreter exceed those for a lock",
    );
    check_refused(
        |f| cycle(f).stop_ns = cycle(f).start_ns - 1,
        "the cycle's stop - start is -1; it must be above 0",
    );
    check_refused(
        |f| cycle(f).quantum_ns = 0,
        "the cycle's quantum_ns is 0; it must be above 0",
    );
    check_refused(
        |f| f.tasks[0].name = 99,
        "the name of a task is string 99, which is not in the string table",
    );
    check_refused(
        |f| cycle(f).threads = cycle(f).samples.clone(),
        "node 2 of the time by thread is not a thread",
    );
    check_refused(
        |f| {
            f.tasks[0].phases = vec![v1::Phase {
                name: 99,
                ..Default::default()
            }]
        },
        "the name of a phase is string 99, which is not in the string table",
    );
    check_refused(
        |f| f.tasks[0].id = 0,
        "a task's id is 0; it must be above 0",
    );
    check_refused(
        |f| f.tasks = vec![f.tasks[0].clone(); 65_537],
        "the flush has 65537 tasks and sums of tasks; at most 65536 are allowed",
    );
    check_refused(
        |f| f.clock.as_mut().unwrap().offset_ns = 2 * 3_600 * SECOND_NS,
        "the cycle starts 7160000 ms after the collector's now; at most 3600000 ms are allowed: \
         the clock or its offset is wrong",
    );
    check_refused(
        |f| f.clock.as_mut().unwrap().offset_ns = i64::MAX,
        "the cycle's times and the clock's offset give a time that cannot be expressed",
    );
}

#[test]
fn an_invalid_dictionary_is_refused_with_the_held_size() {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    worker.count("load;main", State::Cpu, 3);
    let right = worker.dictionary().unwrap();
    let wrong = v1::Dictionary {
        node_base: 7,
        ..right.clone()
    };
    let answer = collector
        .ingest
        .receive_dictionary(&attachment, &wrong, at(1))
        .unwrap();
    let Some(Kind::Refusal(refusal)) = answer else {
        panic!("{answer:?}")
    };
    let reason = "the dictionary's nodes start at 7, but the receiver holds only 1";
    assert_eq!((refusal.seq, refusal.reason.as_str()), (0, reason));
    worker.resume(refusal.strings, refusal.frames, refusal.nodes);
    let flush = worker.flush(10, vec![]);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    assert_eq!(total_ns(&collector), 3);
}

#[test]
fn past_the_symbol_limit_new_names_overflow_and_totals_stay_exact() {
    let limits = Limits {
        symbol_bytes_max: 300,
        ..Limits::default()
    };
    let collector = Collector::new(Settings {
        limits,
        ..Settings::default()
    });
    assert_eq!(ship(&collector, "a", &["load;main", "store;main"]), "ack 1");
    // Another worker of the same program is not concerned; new names are.
    assert_eq!(
        ship(&collector, "b", &["load;main", "new;more", "load;other"]),
        "ack 1"
    );
    let profile = ask(&collector, TimeRange::ALL, Filter::default())
        .profile
        .by_function();
    let tops = profile
        .top_level()
        .map(|(frame, weight)| (frame.label(), weight.total_ns()));
    let expected = [("[overflow]", 1), ("load", 3), ("store", 1)];
    assert_eq!(
        tops.collect::<Vec<_>>(),
        expected.map(|(name, ns)| (name.to_owned(), ns))
    );
    let paths = flamegraph::collapsed(&profile);
    assert!(
        paths.contains("load;main 00002\nload;[overflow] 00001\n")
            || paths.contains("load;[overflow] 00001\nload;main 00002\n"),
        "{paths}"
    );

    // Frames of known names, differently put together, still take memory.
    for n in 0..20 {
        ship(
            &collector,
            &n.to_string(),
            &["main;load;store;main", "store;load"],
        );
    }
    let refused = ship(&collector, "last", &["main;load;store;main", "store;load"]);
    assert!(
        refused.starts_with("refused 0: the collector's names and frames take "),
        "{refused}"
    );
}

fn ship(collector: &Collector, id: &str, stacks: &[&str]) -> String {
    let mut worker = TestWorker::new(id, 1);
    let attachment = attach(collector, &worker, 0).attachment;
    stacks
        .iter()
        .for_each(|stack| worker.count(stack, State::Cpu, 1));
    let flush = worker.flush(10, vec![]);
    let dictionary = worker.dictionary().unwrap();
    match collector
        .ingest
        .receive_dictionary(&attachment, &dictionary, at(1))
        .unwrap()
    {
        None => {
            let answer = at_once(collector.ingest.receive_flush(&attachment, &flush, at(1)));
            words(answer.map_err(|error| error.to_string()))
        }
        Some(refusal) => words(Ok(refusal)),
    }
}

#[test]
fn an_invalid_hello_is_rejected() {
    fn check(change: impl FnOnce(&mut v1::Hello), expected: &str) {
        let mut hello = TestWorker::new("w", 1).hello();
        change(&mut hello);
        let error = at_once(
            collector(0)
                .ingest
                .attach(&state::testing::account(), hello, at(0)),
        )
        .unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    check(
        |h| h.protocol = 2,
        "the agent speaks protocol 2; this collector speaks protocol 1 only",
    );
    check(
        |h| h.worker.clear(),
        "the worker's id has 0 bytes; it must have 1 to 256",
    );
    check(
        |h| h.worker = "w".repeat(257),
        "the worker's id has 257 bytes; it must have 1 to 256",
    );
    check(
        |h| h.host = "h".repeat(4_097),
        "the host's name has 4097 bytes; at most 4096 are allowed",
    );
    check(
        |h| h.labels = (0..65).map(|n| (n.to_string(), String::new())).collect(),
        "the worker has 65 labels; at most 64 are allowed",
    );
    check(
        |h| h.labels = [("k".to_owned(), "v".repeat(4_097))].into(),
        "a label's value has 4097 bytes; at most 4096 are allowed",
    );
}
