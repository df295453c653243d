//! Imports: stored whole with their last flush, or not at all.

use super::*;

struct Import {
    worker: TestWorker,
    flushes: Vec<v1::Flush>,
}

/// An import of seconds of 7 ns each, from this one on. The last flush has the run.
fn import(epoch: u64, seconds: std::ops::Range<i64>) -> Import {
    let mut worker = TestWorker::new("import:cpu", epoch);
    let last = seconds.end - 1;
    let flush_of = |second: i64| {
        worker.count("load;main", State::Cpu, 7);
        let mut flush = worker.flush(second, vec![]);
        if second == last {
            flush.runs = vec![v1::RunMarker {
                id: 1,
                name: "cpu".to_owned(),
                start_ns: at(seconds.start).unix_ns(),
                stop_ns: at(seconds.end).unix_ns(),
            }];
        }
        flush
    };
    let flushes = seconds.clone().map(flush_of).collect();
    Import { worker, flushes }
}

impl Import {
    fn attach(&mut self, collector: &Collector) -> OpenStream {
        let open = attach(collector, &self.worker, 50);
        let v1::Welcome {
            strings,
            frames,
            nodes,
            ..
        } = open.welcome;
        self.worker.resume(strings, frames, nodes);
        open
    }

    /// Sends its flushes from a number on, at most this many. Returns the last answer.
    fn send(
        &mut self,
        collector: &Collector,
        stream: &OpenStream,
        from: usize,
        count: usize,
    ) -> String {
        let mut answer = String::new();
        for flush in self.flushes.clone().iter().skip(from).take(count) {
            answer = send(collector, &stream.attachment, &mut self.worker, flush);
        }
        answer
    }
}

#[test]
fn an_import_is_seen_with_its_last_flush_and_forgotten_when_its_stream_ends() {
    let collector = collector(50);
    let mut first = import(1, 10..14);
    let stream = first.attach(&collector);
    assert_eq!(first.send(&collector, &stream, 0, 3), "ack 3");
    assert_eq!(total_ns(&collector), 0);
    // Another stream takes over while the first is open, and goes on.
    let next = first.attach(&collector);
    assert_eq!(next.welcome.acked_seq, 3);
    collector
        .ingest
        .detach(&stream.attachment, DisconnectReason::Crashed, at(50));
    collector
        .ingest
        .detach(&next.attachment, DisconnectReason::Crashed, at(50));
    let again = first.attach(&collector);
    assert_eq!((again.welcome.acked_seq, total_ns(&collector)), (0, 0));
    assert_eq!(first.send(&collector, &again, 0, 4), "ack 4");
    assert_eq!(total_ns(&collector), 28);
    assert_eq!(first.attach(&collector).welcome.acked_seq, 4);
    assert_eq!(total_ns(&collector), 28);
}

#[test]
fn nothing_of_a_refused_import_is_stored_also_when_it_is_sent_again() {
    const SECOND: &str = "\"import:cpu\" has the profile \"cpu\" of that time";
    let collector = collector(50);
    let mut first = import(1, 14..16);
    let stream = first.attach(&collector);
    assert_eq!(first.send(&collector, &stream, 0, 2), "ack 2");
    for (epoch, seconds) in [(2, 12..17), (3, 13..15), (4, 15..19)] {
        let mut other = import(epoch, seconds);
        for _ in 0..2 {
            let stream = other.attach(&collector);
            assert_eq!(stream.welcome.acked_seq, 0);
            let answer = other.send(&collector, &stream, 0, usize::MAX);
            assert!(answer.contains(SECOND), "{answer}");
            assert_eq!(total_ns(&collector), 14);
        }
    }
    let runs = read(&collector.state.telemetry).runs().all().count();
    assert_eq!(runs, 1);
}

#[test]
fn of_two_imports_at_once_the_first_that_is_complete_is_stored() {
    let collector = collector(50);
    let mut imports = [import(1, 10..13), import(2, 11..14)];
    let streams = imports.each_mut().map(|import| import.attach(&collector));
    for (import, stream) in imports.iter_mut().zip(&streams) {
        assert_eq!(import.send(&collector, stream, 0, 2), "ack 2");
    }
    let [left, right] = &mut imports;
    assert_eq!(right.send(&collector, &streams[1], 2, 1), "ack 3");
    let answer = left.send(&collector, &streams[0], 2, 1);
    assert!(answer.starts_with("refused 3: "), "{answer}");
    assert_eq!(total_ns(&collector), 21);
}
