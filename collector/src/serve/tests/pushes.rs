//! Pushes of Pyroscope clients, over real sockets.

mod access;
mod columns;
mod connect;
mod data_end;
mod dropped;
mod fleet;
mod idle_names;
mod jfr;
mod names;
mod otlp;
mod pprof;
mod refused;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use profiler_core::Token;
use prost::Message as _;

use self::connect::PUSH;
use self::pprof::{Pprof, cpu_profile, gzip};

use super::access::Guarded;
use super::client::{Answer, send_bytes};
use super::*;
use base::limits::{
    LARGE_PUSH_BYTES, PUSH_BODY_BYTES_MAX, PUSH_CONTENT_BYTES_MAX, PUSHED_IDLE_MAX,
};
use front::auth::{NewToken, Role};
use shares::identity::Identity;
use shares::{Quota, QuotaSettings};

/// Headers of a request.
type Headers<'a> = &'a [(&'a str, &'a str)];

/// 20 s to 10 s before the collector's now.
const TIMES: &str = "from=1000040&until=1000050";

impl Running {
    async fn push_with(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let host = self.address.to_string();
        let headers = [&[("host", &*host)], headers].concat();
        send_bytes(self.address, &format!("POST {path}"), &headers, body).await
    }

    /// Pushes to `/ingest`; returns the answer's text.
    async fn ingest(&self, query: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
        let answer = self
            .push_with(&format!("/ingest?{query}"), headers, body)
            .await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.body);
        answer.body
    }

    /// All time, as collapsed stacks.
    async fn stacks(&self, filter: &str) -> Vec<String> {
        let path = format!("/api/v1/profile?format=collapsed&from=0{filter}");
        let answer = get(self.address, &path).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let mut stacks: Vec<String> = answer.body.lines().map(str::to_owned).collect();
        stacks.sort();
        stacks
    }

    async fn counts(&self) -> Value {
        self.json("/api/v1/workers").await["pushes"][0].clone()
    }
}

/// Folded stacks that are 1 MiB and a little, and some kilobytes once they are compressed.
fn large_push() -> Vec<u8> {
    gzip(&b"main;work 3\n".repeat(LARGE_PUSH_BYTES / 12 + 1))
}

/// A push of 23 KB may take a second and 200 MB.
#[tokio::test]
async fn pushes_that_expand_to_much_wait_for_each_other_and_others_do_not() {
    let running = serve().await;
    let collector = running.collector.upgrade().unwrap();
    let turns = collector.pushed.large_turns.clone();
    let account = |number| {
        let identity = Identity::Address([10, 0, 0, number].into());
        collector.accounts.of(&identity, None)
    };
    let mut held = Vec::new();
    while let Some(turn) = turns.try_take(&account(u8::try_from(held.len()).unwrap())) {
        held.push(turn);
    }
    assert_eq!(held.len(), 2, "one, and one of another identity");
    let query = format!("/ingest?name=large&{TIMES}&format=folded");
    let content = large_push();
    assert!(content.len() < 16 << 10, "{}", content.len());
    let large = async || running.push_with(&query, &[], &content).await;
    let mut waiting = std::pin::pin!(large());
    let small_query = format!("name=small&{TIMES}&format=folded");
    // It waits as long as small ones do not.
    for _ in 0..8 {
        let small = running.ingest(&small_query, &[], b"main 2\n");
        tokio::select! {
            biased;
            answer = &mut waiting => panic!("{}", answer.body),
            text = small => assert_eq!(text, "stored 0.020 s in 1 series\n"),
        }
    }
    drop(held);
    assert_eq!(in_time(waiting).await.status, 200);
    assert_eq!(turns.taken(), 0);
}

/// The quota is of bytes as they are parsed.
#[tokio::test]
async fn a_quota_counts_what_a_push_expands_to() {
    let mut quotas = QuotaSettings::default();
    quotas.set(Quota::BytesPerSecond, 4 << 10).unwrap();
    let running = serve_with(ServeOptions {
        quotas,
        ..ServeOptions::default()
    })
    .await;
    let query = format!("/ingest?name=large&{TIMES}&format=folded");
    let answer = running.push_with(&query, &[], &large_push()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = running.push_with(&query, &[], b"main 2\n").await;
    assert_eq!(answer.status, 429, "{}", answer.body);
    assert!(answer.body.contains("bytes_per_second"), "{}", answer.body);
}

#[tokio::test]
async fn a_profile_that_is_compressed_twice_is_not_expanded_twice() {
    let running = serve().await;
    let query = format!("/ingest?name=bomb&{TIMES}&format=folded");
    let twice = gzip(&large_push());
    let answer = running.push_with(&query, &[], &twice).await;
    assert_eq!(answer.status, 413, "{}", answer.body);
}

#[tokio::test]
async fn folded_stacks_become_time_of_a_worker_with_dotted_labels() {
    let running = serve().await;
    let query = format!(
        "name=shop%7Ba.b%3Dc%2Cregion%3Deu%7D&{TIMES}&sampleRate=100&spyName=rbspy&format=folded"
    );
    let text = running.ingest(&query, &[], b"main;work 3\nmain 2\n").await;
    assert_eq!(text, "stored 0.050 s in 1 series\n");
    let expected = ["shop;main 20000000", "shop;main;work 30000000"];
    assert_eq!(running.stacks("").await, expected);
    assert_eq!(
        running
            .stacks("&label=a.b%3Dc&label=source%3Dpyroscope")
            .await,
        expected
    );
    assert_eq!(running.stacks("&label=a.b%3Dd").await, [""; 0]);
    let workers = running.json("/api/v1/workers").await;
    let worker = &workers["workers"][0];
    assert_eq!(worker["worker"], "pyroscope:shop{a.b=c,region=eu}");
    let labels = json!({
        "a.b": "c", "region": "eu", "service_name": "shop", "source": "pyroscope"
    });
    let epoch = &worker["epochs"][0];
    assert_eq!(epoch["labels"], labels);
    assert_eq!(epoch["sampler_mode"], "pushed by rbspy as folded");
    assert_eq!(epoch["account"]["balanced"], true);
}

#[tokio::test]
async fn a_push_keeps_its_own_window() {
    let running = serve().await;
    running
        .ingest(&format!("name=w&{TIMES}"), &[], b"main 5")
        .await;
    let of = async |from: i64, to: i64| {
        let path = format!("/api/v1/profile?from={from}&to={to}");
        running.json(&path).await["total_ns"].clone()
    };
    let start = at(40).unix_ns() / 1_000_000_000;
    assert_eq!(of(start, start + 1).await, of(start - 5, start + 20).await);
}

#[tokio::test]
async fn every_format_and_compression_is_read() {
    let running = serve().await;
    let pprof = cpu_profile().encode_to_vec();
    let encoded = ("content-encoding", "gzip");
    let multipart = ("content-type", "multipart/form-data; boundary=x");
    let cases: [(&str, Headers<'_>, Vec<u8>); 7] = [
        ("pprof", &[], pprof.clone()),
        ("pprof", &[], gzip(&pprof)),
        ("pprof", &[encoded], gzip(&pprof)),
        ("pprof", &[encoded], gzip(&gzip(&pprof))),
        ("pprof", &[multipart], form(&pprof)),
        ("", &[multipart], form(&gzip(&pprof))),
        ("pprof", &[multipart, encoded], gzip(&form(&pprof))),
    ];
    for (number, (format, headers, body)) in cases.into_iter().enumerate() {
        let query = format!("name=p{number}&{TIMES}&format={format}");
        let text = running.ingest(&query, headers, &body).await;
        assert_eq!(text, "stored 0.030 s in 1 series\n", "case {number}");
        let stacks = running
            .stacks(&format!("&worker=pyroscope:p{number}"))
            .await;
        assert_eq!(
            stacks,
            ["load;work 10000000", &format!("p{number};idle 20000000")]
        );
    }
    let query = format!("name=lines&{TIMES}&format=lines&sampleRate=50");
    running
        .ingest(&query, &[], b"main;work\nmain;work\n\nmain\n")
        .await;
    let stacks = running.stacks("&worker=pyroscope:lines").await;
    assert_eq!(stacks, ["lines;main 20000000", "lines;main;work 40000000"]);
    let speedscope = br#"{"$schema":"https://www.speedscope.app/file-format-schema.json",
        "shared":{"frames":[{"name":"f"}]},"profiles":[{"type":"sampled","name":"t","unit":"milliseconds",
        "startValue":0,"endValue":5,"samples":[[0]],"weights":[5]}]}"#;
    let query = format!("name=speedscope&{TIMES}&format=speedscope");
    assert_eq!(
        running.ingest(&query, &[], speedscope).await,
        "stored 0.005 s in 1 series\n"
    );
}

fn form(content: &[u8]) -> Vec<u8> {
    let head = b"--x\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"a\"\r\n\r\n";
    [head, content, b"\r\n--x--\r\n"].concat()
}

#[tokio::test]
async fn two_pushes_with_equal_labels_and_times_both_count() {
    let running = serve().await;
    for _ in 0..2 {
        running
            .ingest(&format!("name=twice&{TIMES}"), &[], b"main 5")
            .await;
    }
    assert_eq!(running.stacks("").await, ["twice;main 100000000"]);
    assert_eq!(running.counts().await["stored"], 2);
    let workers = running.json("/api/v1/workers").await;
    assert_eq!(workers["workers"][0]["epochs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn pushes_are_counted_by_outcome_for_prometheus() {
    let running = serve().await;
    running
        .ingest(&format!("name=a&{TIMES}"), &[], b"main 1")
        .await;
    running.ingest(&format!("name=a&{TIMES}"), &[], b"").await;
    assert_eq!(running.push_with("/ingest", &[], b"").await.status, 400);
    let metrics = get(running.address, "/metrics").await.body;
    for line in [
        "emberline_pushes_total{source=\"pyroscope\",outcome=\"stored\"} 1",
        "emberline_pushes_total{source=\"pyroscope\",outcome=\"empty\"} 1",
        "emberline_pushes_total{source=\"pyroscope\",outcome=\"rejected\"} 1",
        "emberline_pushed_series{source=\"pyroscope\"} 1",
    ] {
        assert!(
            metrics.lines().any(|known| known == line),
            "{line} in {metrics}"
        );
    }
}

#[tokio::test]
async fn another_label_can_name_the_task() {
    let options = ServeOptions {
        task_label: "job".to_owned(),
        ..ServeOptions::default()
    };
    let running = serve_with(options).await;
    let pprof = Pprof::new(&[("cpu", "nanoseconds")]).with(
        "work",
        &[10],
        &[("job", "load"), ("task", "kept")],
    );
    let query = format!("name=shop&{TIMES}&format=pprof");
    running.ingest(&query, &[], &pprof.encode_to_vec()).await;
    assert_eq!(
        running.stacks("&label=task%3Dkept").await,
        ["load;work 00010"]
    );
    running
        .ingest(&format!("name=s%7Bjob%3Dnight%7D&{TIMES}"), &[], b"main 1")
        .await;
    assert_eq!(
        running.stacks("&worker=pyroscope:s").await,
        ["night;main 10000000"]
    );
}

#[tokio::test]
async fn rows_of_zeros_are_dropped_and_all_cpu_time_of_node_counts() {
    let running = serve().await;
    let types = [
        ("sample", "count"),
        ("wall", "nanoseconds"),
        ("cpu", "nanoseconds"),
    ];
    let pprof = Pprof::new(&types)
        .with("zero", &[0, 0, 0], &[("region", "none")])
        .with("threads", &[0, 0, 7], &[])
        .with("idle", &[3, 90, 0], &[])
        .with("work", &[2, 50, 30], &[]);
    let query = format!("name=node&{TIMES}&format=pprof");
    let text = running.ingest(&query, &[], &pprof.encode_to_vec()).await;
    assert_eq!(text, "stored 0.000 s in 1 series\n");
    let expected = ["node;idle 00090", "node;threads 00007", "node;work 00050"];
    assert_eq!(running.stacks("").await, expected);
    let cpu = get(
        running.address,
        "/api/v1/profile?format=collapsed&state=cpu&from=0",
    )
    .await;
    assert_eq!(cpu.body, "node;threads 00007\nnode;work 00030\n");
}

#[tokio::test]
async fn an_earlier_profile_is_subtracted_from_one_that_counts_on() {
    let running = serve().await;
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    let earlier = Pprof::new(&types)
        .with("a", &[1, 30], &[])
        .with("b", &[1, 5], &[]);
    let later = Pprof::new(&types)
        .with("b", &[1, 5], &[])
        .with("a", &[2, 100], &[])
        .with("c", &[1, 1], &[]);
    let [earlier, later] = [earlier, later].map(|pprof| pprof.encode_to_vec());
    let body = |cumulative: bool| {
        let config = format!("{{\"delay\":{{\"units\":\"ns\",\"cumulative\":{cumulative}}}}}");
        let parts = [
            part("prev_profile", &earlier),
            part("profile", &later),
            part("sample_type_config", config.as_bytes()),
        ];
        [parts.concat(), b"--x--\r\n".to_vec()].concat()
    };
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    running
        .ingest(&format!("name=go&{TIMES}"), &headers, &body(true))
        .await;
    assert_eq!(running.stacks("").await, ["go;a 00070", "go;c 00001"]);
    running
        .ingest(&format!("name=plain&{TIMES}"), &headers, &body(false))
        .await;
    let plain = running.stacks("&worker=pyroscope:plain").await;
    assert_eq!(plain, ["plain;a 00100", "plain;b 00005", "plain;c 00001"]);
}

fn part(name: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

/// All types are in each push of .NET, whichever of them were measured.
#[tokio::test]
async fn cpu_and_lock_time_of_one_profile_are_stored_and_other_values_are_named() {
    let running = serve().await;
    let types = [
        ("cpu", "nanoseconds"),
        ("exception", "count"),
        ("alloc_size", "bytes"),
        ("lock_time", "nanoseconds"),
    ];
    let all =
        Pprof::new(&types)
            .with("Work", &[50, 1, 9, 0], &[])
            .with("Wait", &[0, 0, 0, 20], &[]);
    let query = format!("name=net&{TIMES}&format=pprof");
    let text = running.ingest(&query, &[], &all.encode_to_vec()).await;
    assert_eq!(text, "stored 0.000 s in 1 series\n");
    assert_eq!(running.stacks("&state=cpu").await, ["net;Work 00050"]);
    assert_eq!(running.stacks("&state=lock").await, ["net;Wait 00020"]);
    let without = Pprof::new(&types)
        .with("Work", &[0, 1, 9, 0], &[])
        .encode_to_vec();
    let text = running.ingest(&query, &[], &without).await;
    let values = "only values of exception/count, alloc_size/bytes";
    assert!(
        text.ends_with(&format!("the pprof profile has {values}\n")),
        "{text}"
    );
    let counts = running.counts().await;
    assert_eq!(
        [&counts["stored"], &counts["without_time"]],
        [&json!(1), &json!(1)]
    );
}

/// Go's client has a rate of 0 for what it does not sample; its own server takes any text.
#[tokio::test]
async fn a_rate_that_pyroscope_ignores_is_ignored() {
    let running = serve().await;
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    let delay = Pprof::new(&types)
        .with("lock", &[1, 30], &[])
        .encode_to_vec();
    for (number, rate) in ["0", "-1", "x", "99999999999999999999", "1.5"]
        .iter()
        .enumerate()
    {
        let query = format!("{TIMES}&sampleRate={rate}");
        running
            .ingest(
                &format!("name=go{number}&{query}&format=pprof"),
                &[],
                &delay,
            )
            .await;
        running
            .ingest(&format!("name=text{number}&{query}"), &[], b"main 2")
            .await;
        let worker = |name: &str| format!("&worker=pyroscope:{name}{number}");
        let found = running.stacks(&(worker("go") + "&state=lock")).await;
        assert_eq!(found, [format!("go{number};lock 00030")], "{rate}");
        // 100 samples a second.
        let found = running.stacks(&worker("text")).await;
        assert_eq!(found, [format!("text{number};main 20000000")], "{rate}");
    }
}

/// As Pyroscope's server, which reads the rate for texts only.
#[tokio::test]
async fn a_profiles_own_period_wins_over_the_rate_of_the_query() {
    let running = serve().await;
    let profile = || Pprof::new(&[("samples", "count")]).with("work", &[3], &[]);
    for (name, profile, expected) in [
        ("own", profile().with_period(5, "milliseconds"), 15_000_000),
        ("none", profile(), 3_000_000),
        ("zero", profile().with_period(0, "milliseconds"), 3_000_000),
        ("other", profile().with_period(5, "bytes"), 3_000_000),
    ] {
        let query = format!("name={name}&{TIMES}&sampleRate=1000&format=pprof");
        running.ingest(&query, &[], &profile.encode_to_vec()).await;
        let found = running.stacks(&format!("&worker=pyroscope:{name}")).await;
        assert_eq!(found, [format!("{name};work {expected:05}")]);
    }
    let push = |name: &str, rate: &str| {
        let query = format!("name={name}&{TIMES}{rate}&format=pprof");
        let body = profile().encode_to_vec();
        let running = &running;
        async move { running.ingest(&query, &[], &body).await }
    };
    push("absent", "").await;
    let found = running.stacks("&worker=pyroscope:absent").await;
    assert_eq!(found, ["absent;work 30000000"]);
    // Go's client says so of profiles that are not sampled.
    let answer = push("not", "&sampleRate=0").await;
    assert!(
        answer.contains("dropped: no type of sample is time"),
        "{answer}"
    );
}

#[tokio::test]
async fn empty_profiles_are_accepted_and_profiles_without_time_are_dropped() {
    let running = serve().await;
    let heap = Pprof::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")])
        .with("a", &[1, 1_024], &[])
        .encode_to_vec();
    let zeros = Pprof::new(&[("cpu", "nanoseconds")])
        .with("a", &[0], &[])
        .encode_to_vec();
    for (format, name, body) in [
        ("pprof", "pprof", &b""[..]),
        ("folded", "collapsed", b""),
        ("pprof", "pprof", &zeros),
    ] {
        let text = running
            .ingest(&format!("name=e&{TIMES}&format={format}"), &[], body)
            .await;
        let reason = format!("empty: the {name} profile has no samples with time");
        assert_eq!(text, format!("stored 0.000 s in 0 series\n{reason}\n"));
    }
    let text = running
        .ingest(&format!("name=e&{TIMES}&format=pprof"), &[], &heap)
        .await;
    assert!(
        text.contains("dropped: no type of sample is time"),
        "{text}"
    );
    let text = running
        .ingest(&format!("name=e&{TIMES}&units=bytes"), &[], b"a 1")
        .await;
    assert!(
        text.contains("dropped: only units=samples is time"),
        "{text}"
    );
    assert_eq!(running.stacks("").await, [""; 0]);
    let counts = running.counts().await;
    assert_eq!(
        [&counts["empty"], &counts["without_time"]],
        [&json!(3), &json!(2)]
    );
    assert_eq!(running.json("/api/v1/workers").await["workers"], json!([]));
}

#[tokio::test]
async fn bad_pushes_are_refused_with_what_is_wrong_and_store_nothing() {
    let running = serve().await;
    let name = format!("name=bad&{TIMES}");
    let pprof = cpu_profile().encode_to_vec();
    let bomb = gzip(&vec![0; PUSH_CONTENT_BYTES_MAX + 1]);
    let large = vec![b'a'; PUSH_BODY_BYTES_MAX + 1];
    let many = (0..70)
        .map(|number| format!("k{number}=v"))
        .collect::<Vec<_>>()
        .join(",");
    let form = [("content-type", "multipart/form-data; boundary=x")];
    let trie = [("content-type", "binary/octet-stream+trie")];
    let gzipped = [("content-encoding", "gzip")];
    let cases: Vec<(String, Headers<'_>, &[u8], u16, &str)> = vec![
        (TIMES.to_owned(), &[], b"a 1", 400, "the query has no name"),
        (
            format!("name=&{TIMES}"),
            &[],
            b"a 1",
            400,
            "the query has no name",
        ),
        (
            format!("name=a%7Bb%3Dc&{TIMES}"),
            &[],
            b"a 1",
            400,
            "no closing brace",
        ),
        (
            format!("name=a%7Bb%7D&{TIMES}"),
            &[],
            b"a 1",
            400,
            "a label of the name has no value",
        ),
        (
            format!("name=a%00&{TIMES}"),
            &[],
            b"a 1",
            400,
            "control characters",
        ),
        (
            format!("name={}&{TIMES}", "x".repeat(5_000)),
            &[],
            b"a 1",
            400,
            "5000 bytes",
        ),
        (
            format!("name=a%7B{many}%7D&{TIMES}"),
            &[],
            b"a 1",
            400,
            "70 labels; at most 62",
        ),
        (
            "name=a&from=x".to_owned(),
            &[],
            b"a 1",
            400,
            "from must be a Unix time",
        ),
        (
            "name=a&from=9&until=8".to_owned(),
            &[],
            b"a 1",
            400,
            "until is before from",
        ),
        (
            "name=a&from=1000000&until=1009999".to_owned(),
            &[],
            b"a 1",
            400,
            "more than 3600 s",
        ),
        (
            "name=a&from=9000000&until=9000010".to_owned(),
            &[],
            b"a 1",
            400,
            "after the collector's now",
        ),
        (
            "name=a&from=18446744073709551615".to_owned(),
            &[],
            b"a 1",
            400,
            "from must be a Unix time",
        ),
        (
            format!("{name}&format=trie"),
            &[],
            b"a 1",
            415,
            "format \"trie\" is not read; allowed: pprof",
        ),
        (
            format!("{name}&format=jfr"),
            &[],
            b"a 1",
            400,
            "invalid jfr: byte 0: a chunk must begin with `FLR`",
        ),
        (
            name.clone(),
            &trie,
            b"a 1",
            415,
            "allowed are the formats pprof",
        ),
        (
            name.clone(),
            &[("content-encoding", "br")],
            b"a 1",
            415,
            "allowed: gzip, identity",
        ),
        (name.clone(), &gzipped, b"a 1", 400, "not gzip"),
        (name.clone(), &gzipped, &bomb[..20], 400, "invalid gzip"),
        (name.clone(), &gzipped, &bomb, 413, "at most 16777216"),
        (name.clone(), &[], &bomb, 413, "at most 16777216"),
        (name.clone(), &[], &large, 413, "more than 4194304 bytes"),
        (
            name.clone(),
            &[],
            b"main;work",
            400,
            "line 1 is not `frame;frame number`",
        ),
        (
            name.clone(),
            &[],
            b"main 18446744073709551615",
            400,
            "64 bits",
        ),
        (
            name.clone(),
            &[],
            b"main 900000000000",
            400,
            "no process has that many threads",
        ),
        (
            format!("{name}&format=pprof"),
            &[],
            &pprof[..20],
            400,
            "truncated",
        ),
        (
            format!("{name}&format=pprof"),
            &[],
            b"main 1",
            400,
            "invalid pprof",
        ),
        (
            name.clone(),
            &[("content-type", "multipart/form-data")],
            b"a",
            400,
            "invalid form",
        ),
        (
            name.clone(),
            &form,
            b"--x--\r\n",
            400,
            "the form has no part `profile`",
        ),
        (
            name.clone(),
            &form,
            b"--x\r\nContent-Dis",
            400,
            "invalid form",
        ),
    ];
    let count = cases.len();
    for (query, headers, body, status, text) in cases {
        let answer = running
            .push_with(&format!("/ingest?{query}"), headers, body)
            .await;
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
        let rejection: Value = serde_json::from_str(&answer.body).unwrap();
        let error = rejection["error"].as_str().unwrap();
        assert!(error.contains(text), "{query}: {error}");
    }
    assert_eq!(running.stacks("").await, [""; 0]);
    let counts = running.counts().await;
    assert_eq!(counts["rejected"], count);
    assert_eq!(counts["stored"], 0);
    let workers = running.json("/api/v1/workers").await;
    assert_eq!(workers["workers"], json!([]), "a refused push is no worker");
    running.ingest(&name, &[], b"main 1").await;
    assert_eq!(running.stacks("").await, ["bad;main 10000000"]);
}
