//! Imports: a crash leaves the whole of one or nothing.

use super::*;

/// An import of three flushes, the last of which has the run.
fn import(agent: &mut AgentSide) -> VecDeque<ReceivedFlush> {
    let flush = |number: u64| {
        agent.worker.count("load;main", State::Cpu, number);
        let mut flush = agent.worker.flush(number as i64, vec![]);
        if number == 3 {
            flush.runs = vec![v1::RunMarker {
                id: 1,
                name: "cpu".to_owned(),
                start_ns: at(1).unix_ns(),
                stop_ns: at(4).unix_ns(),
            }];
        }
        ReceivedFlush {
            flush,
            at: at(50),
            charge: None,
            translation: None,
        }
    };
    (1..=3).map(flush).collect()
}

#[test]
fn a_crash_while_an_import_is_written_leaves_all_of_it_or_nothing() {
    let fleet = &mut Fleet::new(1);
    let agent = &mut fleet.agents[0];
    agent.worker = TestWorker::new("import:cpu", 7);
    let mut waiting = import(agent);
    assert!(agent.attach(&fleet.collector));
    let attachment = agent.attachment.clone().unwrap();
    fleet.collector.log().commit_waiting();
    let before = lock(&fleet.disk.0).operations.len();
    let ingest = &fleet.collector.ingest;
    let mut context = Context::from_waker(Waker::noop());
    let mut answers = Box::pin(ingest.receive_flushes(&attachment, &mut waiting));
    assert!(answers.as_mut().poll(&mut context).is_pending());
    fleet.collector.log().commit_waiting();
    assert_eq!(at_once(answers).map(|answers| answers.len()), Ok(3));
    assert_eq!(held(&fleet.collector).len(), 3);
    let operations = lock(&fleet.disk.0).operations.clone();
    let mut random = random(3);
    let mut found = BTreeSet::new();
    for end in before..=operations.len() {
        for crash in [Crash::Process, Crash::Forgets, Crash::Tears] {
            let image = crash_image(&Files::new(), &operations[..end], crash, &mut random);
            let collector = open(&SimDisk::of(image));
            let windows = held(&collector).len();
            let runs = read(&collector.state.telemetry).runs().all().count();
            found.insert((windows, runs));
        }
    }
    assert_eq!(found, [(0, 0), (3, 1)].into());
}
