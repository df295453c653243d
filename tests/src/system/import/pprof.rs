//! Profiles of pprof as Go and others write them: without a duration, with numbers as labels, with mangled names.

use prost::encoding::{WireType, encode_key, encode_varint, int64};

use super::{Files, import, rejected, stacks, sum, text};
use crate::harness::{Collector, run};

/// An encoded message that grows field by field.
#[derive(Clone, Default)]
struct Encoded(Vec<u8>);

impl Encoded {
    fn number(mut self, tag: u32, number: i64) -> Encoded {
        int64::encode(tag, &number, &mut self.0);
        self
    }

    fn bytes(mut self, tag: u32, content: &[u8]) -> Encoded {
        encode_key(tag, WireType::LengthDelimited, &mut self.0);
        encode_varint(content.len() as u64, &mut self.0);
        self.0.extend_from_slice(content);
        self
    }
}

/// A profile of delays: one sample of one function, whose fields are given.
fn profile(delay_ns: i64, function: Encoded, label: Option<Encoded>) -> Encoded {
    let kind = Encoded::default().number(1, 1).number(2, 2);
    let line = Encoded::default().number(1, 1).number(2, 7);
    let location = Encoded::default().number(1, 1).bytes(4, &line.0);
    let sample = Encoded::default().number(1, 1).number(2, delay_ns);
    let sample = match label {
        Some(label) => sample.bytes(3, &label.0),
        None => sample,
    };
    let texts = [
        "",
        "delay",
        "nanoseconds",
        "sync.lock",
        "task",
        "state",
        "SLEEP",
    ];
    let profile = Encoded::default()
        .bytes(1, &kind.0)
        .bytes(2, &sample.0)
        .bytes(4, &location.0)
        .bytes(5, &function.number(1, 1).0);
    texts
        .iter()
        .fold(profile, |profile, text| profile.bytes(6, text.as_bytes()))
}

fn named() -> Encoded {
    Encoded::default().number(2, 3)
}

fn now_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_secs()).unwrap()
}

/// Delays add up over all threads, and the time of the file is that at which it was written.
#[test]
fn delays_of_any_size_end_when_the_profile_was_written() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    for (run, delay_ns) in [
        ("short", HOUR_NS / 60 * 54),
        ("long", 2 * HOUR_NS),
        ("days", 200 * HOUR_NS),
        ("years", i64::MAX),
    ] {
        let written_s = now_s() - 10;
        let content = profile(delay_ns, named(), None).number(9, written_s * 1_000_000_000);
        let path = files.write(run, &content.0);
        import(&url, &[&path, "--run", run]);
        let found = stacks(&collector, &format!("run={run}"));
        assert_eq!(sum(&found), delay_ns.unsigned_abs(), "{found}");
        let runs = collector.json(&format!("/api/v1/runs?name={run}"));
        let stop_ns = runs["runs"][0]["stop_ns"].as_i64().unwrap();
        assert!(
            stop_ns <= (written_s + 1) * 1_000_000_000,
            "{run}: {runs}, written at {written_s}"
        );
    }
}

#[test]
fn a_name_is_the_systems_if_there_is_no_other() {
    let files = Files::new();
    let collector = Collector::start();
    let content = profile(50_000, Encoded::default().number(3, 3), None);
    let path = files.write("system", &content.0);
    import(&collector.url(), &[&path]);
    assert_eq!(
        stacks(&collector, "run=system"),
        "imported;sync.lock 50000\n"
    );
}

#[test]
fn labels_that_are_dropped_are_noted() {
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    let label = |key: i64| Encoded::default().number(1, key);
    for (name, label, note) in [
        ("number", label(4).number(3, 7), "values are numbers"),
        (
            "state",
            label(5).number(2, 6),
            "labels state that are none of cpu",
        ),
    ] {
        let content = profile(50_000, named(), Some(label));
        let path = files.write(name, &content.0);
        let output = run(&["import", "--url", &url, &path]);
        let error = text(&output.stderr);
        let words: Vec<&str> = error.split_whitespace().collect();
        assert!(
            output.status.success() && words.join(" ").contains(note),
            "{error}"
        );
        let found = stacks(&collector, &format!("run={name}"));
        assert_eq!(found, "imported;sync.lock 50000\n");
    }
}

#[test]
fn threads_whose_names_end_with_numbers_are_read_with_their_processes() {
    let files = Files::new();
    let collector = Collector::start();
    let sample =
        "pool 7 25196/25198 28635.253110:    3333333 cpu-clock:ppp:\n\t1f work+0x1 (/opt/app)\n\n";
    let path = files.write("named.txt", sample);
    import(&collector.url(), &[&path]);
    assert_eq!(stacks(&collector, "run=named"), "imported;work 3333333\n");
}

#[test]
fn an_interval_says_that_weights_are_samples() {
    let files = Files::new();
    let collector = Collector::start();
    let path = files.write("long.txt", "main;f1 10000\nmain;f2 20000\n");
    import(&collector.url(), &[&path, "--interval", "10ms"]);
    assert_eq!(
        stacks(&collector, "run=long"),
        "imported;main;f1 100000000000\nimported;main;f2 200000000000\n"
    );
}

#[test]
fn more_time_than_exports_can_say_is_refused() {
    let files = Files::new();
    let collector = Collector::start();
    let path = files.write("big.txt", "main;a 18446744073709551615\n");
    for _ in 0..2 {
        let error = rejected(&collector.url(), &[&path]);
        assert!(error.contains("its thread time is 584 years"), "{error}");
    }
}

/// The range of a run has whole seconds, so it is longer than the profile.
#[test]
fn a_run_of_seven_days_comes_back() {
    const WEEK_NS: i64 = 7 * 86_400 * 1_000_000_000;
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    let content = profile(50_000, named(), None).number(10, WEEK_NS);
    let path = files.write("week-0", &content.0);
    import(&url, &[&path]);
    for again in 1..3 {
        let file = files.path(&format!("week-{again}.pb.gz"));
        let path = file.to_str().unwrap();
        let before = format!("week-{}", again - 1);
        let exported = run(&[
            "profile",
            "--url",
            &url,
            "--run",
            &before,
            "--waiting",
            "-o",
            path,
        ]);
        assert!(exported.status.success(), "{}", text(&exported.stderr));
        import(&url, &[path]);
        assert_eq!(
            sum(&stacks(&collector, &format!("run=week-{again}"))),
            50_000
        );
    }
}
