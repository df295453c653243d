//! Input of a receiver of pushed profiles: exports of `flamegraph`, imported again.

use flamegraph::testing::{hostile_profiles, profile};
use flamegraph::{ExportOptions, OtlpRequest, collapsed, pprof, pushed_pprof};
use profiler_core::{Profile, TimeRange, Timestamp};
use proptest::prelude::*;

use crate::{ImportFormat, ImportOptions, OtlpEncoding, decompressed, import, otlp_profiles};

const START: Timestamp = Timestamp::from_unix_ns(1_700_000_000_000_000_000);

fn range() -> TimeRange {
    TimeRange::new(START, START.shifted(10_000_000_000)).unwrap()
}

fn message(request: OtlpRequest) -> Vec<u8> {
    decompressed(&request.gzip(), 1 << 28).unwrap().into_owned()
}

fn imported(pprof: &[u8]) -> Profile {
    let format = Some(ImportFormat::Pprof);
    let options = ImportOptions {
        format,
        ..ImportOptions::default()
    };
    import(pprof, &options).map_or_else(|_| Profile::default(), |imported| imported.profile())
}

/// Returns the profile that a receiver reads from a request with this one.
fn received(profile: &Profile) -> Profile {
    let mut request = OtlpRequest::new("test");
    request.add(
        [("service.name".to_owned(), "shop".to_owned())],
        profile,
        range(),
    );
    let received = otlp_profiles(&message(request), OtlpEncoding::Protobuf).unwrap();
    for profile in &received {
        assert_eq!(profile.attributes["service.name"], "shop");
        assert_eq!(profile.scope, "test");
    }
    let profiles = received.iter().map(|profile| imported(&profile.pprof));
    profiles.fold(Profile::default(), |sum, profile| sum.merge(&profile))
}

#[test]
fn receivers_read_tasks_stacks_and_both_states() {
    let sent = profile(
        "load;main:7;run cpu=3\nload;main:7 network=5\nload;main:7;run runnable=4\n\
         [no task];main:9 cpu=2\nload lock=6",
    );
    let expected = "[no task];main 00002\nload 00006\nload;main 00005\nload;main;run 00007\n";
    for read in [
        received(&sent),
        imported(&pushed_pprof(&sent, range()).gzip),
    ] {
        assert_eq!(collapsed(&read), expected);
        let cpu_ns = read.total().get(profiler_core::State::Cpu);
        assert_eq!((read.total().total_ns(), cpu_ns), (20, 5));
    }
}

#[test]
fn time_at_a_task_itself_comes_back() {
    let sent = profile("t cpu=5\nt lock=2\nt;f cpu=7\nu cpu=1");
    let options = ExportOptions {
        interval_ns: 10,
        ..ExportOptions::default()
    };
    let imported = import(&pprof(&sent, &options), &ImportOptions::default())
        .unwrap()
        .profile();
    assert_eq!(collapsed(&imported), collapsed(&sent));
}

#[test]
fn resources_share_tables() {
    let sent = profile("load;main:7;run cpu=3");
    let mut request = OtlpRequest::new("test");
    let sizes = ["a", "b"].map(|name| {
        request.add(
            [("service.name".to_owned(), name.to_owned())],
            &sent,
            range(),
        );
        request.bytes()
    });
    assert!(sizes[1] - sizes[0] < sizes[0] / 2, "{sizes:?}");
    assert_eq!(request.resources(), 2);
    assert_eq!(
        otlp_profiles(&message(request), OtlpEncoding::Protobuf)
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn the_size_of_a_request_has_a_long_task_twice() {
    let name = "x".repeat(10_000);
    let mut request = OtlpRequest::new("test");
    request.add([], &profile(&format!("{name} cpu=1")), range());
    let bytes = request.bytes();
    assert!((20_000..21_000).contains(&bytes), "{bytes}");
    assert!(bytes >= message(request).len());
}

proptest! {
    #[test]
    fn any_profile_arrives_with_its_time(sent in hostile_profiles()) {
        let sum = |profile: &Profile| {
            let total = profile.total();
            (total.total_ns(), total.get(profiler_core::State::Cpu))
        };
        let pushed = pushed_pprof(&sent, range());
        prop_assert_eq!(decompressed(&pushed.gzip, 1 << 28).unwrap().len(), pushed.bytes);
        prop_assert_eq!(sum(&imported(&pushed.gzip)), sum(&sent));
        prop_assert_eq!(sum(&received(&sent)), sum(&sent));
        let mut request = OtlpRequest::new("test");
        request.add([], &sent, range());
        let bytes = request.bytes();
        prop_assert!(bytes >= message(request).len());
    }
}
