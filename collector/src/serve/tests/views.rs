//! A view of a profile is the same in every format, and says what it hides.

use std::io;

use flate2::read::GzDecoder;
use profiler_core::State;
use profiler_core::wire::v1::agent_message;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{Client, get};
use super::{ALL, Running, serve};
use base::limits::PROFILE_WORKERS_MAX;
use state::testing::TestWorker;

/// Default view of the page and the command line.
const DEFAULT_VIEW: &str = "state=cpu&outside=hidden&stacks=simple";

/// A worker with time in two tasks, in each state and outside of tasks.
async fn busy(running: &Running) -> Client {
    let mut worker = TestWorker::new("w", 1);
    let mut client = Client::attach(running.address, worker.hello()).await;
    for (stack, state, nanoseconds) in [
        ("load;app::main;core::iter::fold;app::parse", State::Cpu, 50),
        ("load;app::main;app::parse", State::Cpu, 20),
        ("load;app::main;app::parse;app::parse", State::Runnable, 7),
        ("load;app::main;read", State::Disk, 11),
        ("store;app::main;app::parse", State::Cpu, 5),
        ("store;app::main;app::wait", State::Lock, 13),
        ("[no task];app::idle", State::Sleep, 1_000),
        ("[no task];app::idle", State::Cpu, 3),
    ] {
        worker.count(stack, state, nanoseconds);
    }
    let flush = worker.flush(30, Vec::new());
    client
        .send(agent_message::Kind::Dictionary(
            worker.dictionary().unwrap(),
        ))
        .await;
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 1");
    client
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// The time of a view, which is the same in all formats and in their headers.
async fn shown_ns(running: &Running, view: &str) -> u64 {
    let path = |format: &str| format!("/api/v1/profile?{ALL}&{view}&format={format}");
    let json = running.json(&path("json")).await;
    let total_ns = number(&json["totals"]["total_ns"]);
    let nodes = json["profile"]["nodes"].as_array().unwrap().iter();
    let own =
        nodes.map(|node| ["cpu", "runnable", "wait"].map(|state| number(&node["self"][state])));
    assert_eq!(own.flatten().sum::<u64>(), total_ns, "the nodes of {view}");

    let columns = running.json(&path("columns")).await;
    assert_eq!(columns["totals"], json["totals"], "{view}");
    assert_eq!(columns["hidden"], json["hidden"], "{view}");
    let states = columns["profile"]["self"].as_object().unwrap().values();
    let weights = states.flat_map(|state| state["ns"].as_array().unwrap());
    assert_eq!(
        weights.map(number).sum::<u64>(),
        total_ns,
        "the columns of {view}"
    );

    let collapsed = get(running.address, &path("collapsed")).await;
    let weights = collapsed
        .body
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1)
        .map(|weight| weight.parse::<u64>().unwrap());
    assert_eq!(weights.sum::<u64>(), total_ns, "the stacks of {view}");

    let svg = get(running.address, &path("svg")).await;
    let of_picture = format!(r#"total_samples="{total_ns}""#);
    assert_eq!(
        svg.body.contains(&of_picture),
        total_ns > 0,
        "the picture of {view}"
    );
    for answer in [&collapsed, &svg] {
        let header = |name| answer.header(name).unwrap().parse::<u64>().unwrap();
        assert_eq!(header("x-emberline-total-ns"), total_ns, "{view}");
        let reasons = ["outside", "cpu", "runnable", "wait", "functions", "zoom"];
        let hidden = reasons.map(|reason| format!("x-emberline-hidden-{reason}-ns"));
        let hidden_ns: u64 = hidden.iter().map(|name| header(name)).sum();
        assert_eq!(hidden_ns, number(&json["hidden"]["total_ns"]), "{view}");
        assert_eq!(total_ns + hidden_ns, 1_109, "the whole of {view}");
    }
    total_ns
}

#[tokio::test]
async fn every_format_of_a_view_has_the_same_total() {
    let running = serve().await;
    let _client = busy(&running).await;
    for (view, expected_ns) in [
        ("", 1_109),
        ("outside=hidden", 106),
        ("state=all&outside=hidden", 106),
        (DEFAULT_VIEW, 75),
        ("state=cpu&state=wait&outside=hidden", 99),
        ("focus=app::parse", 82),
        ("state=cpu&focus=app::parse&hide=core::iter::fold", 25),
        ("hide=app::main", 1_003),
        ("merge=app::main&recursion=true", 1_109),
        ("stacks=own&outside=hidden", 106),
        ("group=worker&state=cpu&outside=hidden", 75),
        ("phases=true&state=cpu&outside=hidden", 75),
        ("focus=nothing", 0),
        ("invert=true", 1_109),
        (
            "invert=true&state=cpu&focus=app::parse&hide=core::iter::fold",
            25,
        ),
        ("hide=crate:core", 1_059),
        ("focus=re:PARSE$", 82),
        ("stacks=simple&outside=hidden&invert=true&group=worker", 106),
    ] {
        assert_eq!(shown_ns(&running, view).await, expected_ns, "{view}");
    }
}

#[tokio::test]
async fn hidden_time_is_reported_by_reason() {
    let running = serve().await;
    let _client = busy(&running).await;
    let view = format!("{ALL}&{DEFAULT_VIEW}&hide=core::iter::fold&focus=app::parse&task=load");
    let profile = running.json(&format!("/api/v1/profile?{view}")).await;
    let hidden = &profile["hidden"];
    let states = &hidden["states"];
    assert_eq!(
        (&states["runnable_ns"], &states["disk_ns"]),
        (&json!(7), &json!(11))
    );
    assert_eq!(
        (&hidden["outside_ns"], &hidden["total_ns"]),
        (&json!(0), &json!(18))
    );
    // Plumbing was folded before it could be hidden.
    assert_eq!(
        (&hidden["functions_ns"], &profile["folded"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(profile["totals"]["total_ns"], 70);
    assert_eq!(profile["filter"]["states"], json!(["cpu"]));
}

#[tokio::test]
async fn a_picture_says_what_it_shows_and_hides() {
    let running = serve().await;
    let _client = busy(&running).await;
    let path = format!("/api/v1/profile?{ALL}&{DEFAULT_VIEW}&task=load&hide=read&format=svg");
    let svg = get(running.address, &path).await.body;
    assert!(svg.contains(">load on w (host-1), on CPU<"), "{svg}");
    let range = "1 min from 1970-01-12 13:46:40 to 13:47:40 UTC";
    let hidden = "hidden: 7 ns runnable, 11 ns waiting; without read; simplified stacks";
    for part in [range, "70 ns of thread time", hidden] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
    // The hidden time has room next to any range.
    let range = "from=1000000.5&to=1000061.25";
    let path = format!("/api/v1/profile?{range}&{DEFAULT_VIEW}&focus=app::wait&format=svg");
    let svg = get(running.address, &path).await.body;
    let line = "13:46:40.500 to 13:47:41.250 UTC; 0 s of thread time; hidden: 1";
    assert!(svg.contains(line), "{svg}");
}

/// A worker whose tasks ran on two threads: together in one second, and apart in the next.
async fn two_threads(running: &Running) -> Client {
    let mut worker = TestWorker::new("w", 1);
    let mut client = Client::attach(running.address, worker.hello()).await;
    worker.count("load;app::main;app::parse", State::Cpu, 5);
    worker.count("load;app::main;read", State::Disk, 4);
    worker.count("[no task];app::idle", State::Sleep, 9);
    worker.count_thread("load;pool-1#11", State::Cpu, 3);
    worker.count_thread("load;pool-2#12", State::Cpu, 2);
    worker.count_thread("load;pool-2#12", State::Disk, 4);
    worker.count_thread("[no task];pool-1#11", State::Sleep, 9);
    let together = worker.flush(30, Vec::new());
    worker.count("load;app::main;app::parse", State::Cpu, 7);
    worker.count("load;@transfer;app::send", State::Cpu, 6);
    worker.count_thread("load;pool-1#11", State::Cpu, 7);
    worker.count_thread("load;@transfer;pool-2#12", State::Cpu, 6);
    let apart = worker.flush(31, Vec::new());
    client
        .send(agent_message::Kind::Dictionary(
            worker.dictionary().unwrap(),
        ))
        .await;
    assert_eq!(
        client.ask(agent_message::Kind::Flush(together)).await,
        "ack 1"
    );
    assert_eq!(client.ask(agent_message::Kind::Flush(apart)).await, "ack 2");
    client
}

#[tokio::test]
async fn a_profile_of_a_thread_has_its_stacks_where_it_was_alone() {
    let running = serve().await;
    let _client = two_threads(&running).await;
    let apart = "load;[threads not told apart]";
    for (parameters, expected) in [
        (
            "thread=pool-1",
            format!("[no task];app::idle 00009\n{apart} 00003\nload;app::main;app::parse 00007\n"),
        ),
        (
            "thread_id=11&outside=hidden",
            format!("{apart} 00003\nload;app::main;app::parse 00007\n"),
        ),
        (
            "thread=pool-2",
            format!("{apart} 00002\nload;app::main;read 00004\nload;app::send 00006\n"),
        ),
        (
            "thread=pool-2&state=disk",
            "load;app::main;read 00004\n".to_owned(),
        ),
        (
            "thread=pool-2&phase=transfer",
            "load;app::send 00006\n".to_owned(),
        ),
        (
            "thread=pool-2&phases=true&state=cpu",
            format!("{apart} 00002\nload;transfer;app::send 00006\n"),
        ),
        ("thread=pool-1&thread_id=12", String::new()),
        (
            "thread=pool-1&thread=pool-2&state=cpu",
            "load;app::main;app::parse 00012\nload;app::send 00006\n".to_owned(),
        ),
    ] {
        let path = format!("/api/v1/profile?{ALL}&format=collapsed&{parameters}");
        let answer = get(running.address, &path).await;
        assert_eq!(
            (answer.status, answer.body),
            (200, expected),
            "{parameters}"
        );
    }
    let path = format!("/api/v1/profile?{ALL}&thread=pool-1&group=worker");
    let rejected = get(running.address, &path).await;
    assert_eq!(rejected.status, 400);
    assert!(
        rejected
            .body
            .contains("thread and group cannot be combined"),
        "{}",
        rejected.body
    );
}

#[tokio::test]
async fn a_profile_by_second_has_the_seconds_in_order() {
    let running = serve().await;
    let _client = two_threads(&running).await;
    let first = "1970-01-12T13:47:10.000000000Z";
    let second = "1970-01-12T13:47:11.000000000Z";
    let apart = "load;[threads not told apart]";
    for (parameters, expected) in [
        (
            "outside=hidden",
            format!(
                "{first};load;app::main;app::parse 00005\n{first};load;app::main;read 00004\n\
                 {second};load;app::main;app::parse 00007\n{second};load;app::send 00006\n"
            ),
        ),
        (
            "outside=hidden&thread=pool-1",
            format!("{first};{apart} 00003\n{second};load;app::main;app::parse 00007\n"),
        ),
        (
            "outside=hidden&thread=pool-2&state=cpu",
            format!("{first};{apart} 00002\n{second};load;app::send 00006\n"),
        ),
        ("thread=pool-9", String::new()),
    ] {
        let path = format!("/api/v1/profile?{ALL}&group=second&format=collapsed&{parameters}");
        let answer = get(running.address, &path).await;
        assert_eq!(
            (answer.status, answer.body),
            (200, expected),
            "{parameters}"
        );
    }
}

#[tokio::test]
async fn an_inverted_tree_starts_with_the_functions_that_ran() {
    let running = serve().await;
    let _client = busy(&running).await;
    let view = format!("{ALL}&{DEFAULT_VIEW}&invert=true");
    let collapsed = get(
        running.address,
        &format!("/api/v1/profile?{view}&format=collapsed"),
    )
    .await;
    let expected = "app::parse;app::main;load 00070\napp::parse;app::main;store 00005\n";
    assert_eq!((collapsed.status, collapsed.body.as_str()), (200, expected));
    let svg = get(running.address, &format!("/api/v1/profile.svg?{view}")).await;
    assert!(
        svg.body.contains("; inverted; simplified stacks"),
        "{}",
        svg.body
    );
    for format in ["pprof", "firefox"] {
        let path = format!("/api/v1/profile?{view}&format={format}");
        let error = format!(
            "format={format} has no inverted trees, because its readers invert by themselves; omit \
             invert, or use format=json, columns, svg, collapsed, speedscope or nested"
        );
        running.check(&path, 400, &error, Value::Null).await;
    }
}

#[tokio::test]
async fn patterns_are_checked_and_limited() {
    let running = serve().await;
    let error = "hide: invalid regular expression \"a(b\": unclosed group; allowed: a name or label, \
                 crate:NAME, re:PATTERN, file:PATTERN";
    running
        .check("/api/v1/profile?hide=re:a(b", 400, error, Value::Null)
        .await;
    let error =
        "the parameter focus has 9 patterns; at most 8 are allowed: join them as re:one|two";
    let patterns = "focus=re:a&".repeat(9);
    running
        .check(
            &format!("/api/v1/profile?{patterns}"),
            400,
            error,
            Value::Null,
        )
        .await;
}

#[tokio::test]
async fn a_zoom_that_is_no_id_is_rejected() {
    let running = serve().await;
    let answer = get(running.address, "/api/v1/profile?zoom=load;main").await;
    assert_eq!(answer.status, 400);
    assert!(
        answer.body.contains("the id of a node's path"),
        "{}",
        answer.body
    );
}

/// The head and the body of an answer to a client that accepts gzip.
async fn compressed(running: &Running, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept-encoding: gzip, br\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .unwrap();
    let body = answer.split_off(end + 4);
    (String::from_utf8(answer).unwrap(), body)
}

#[tokio::test]
async fn answers_are_compressed_for_clients_that_accept_it() {
    let running = serve().await;
    let _client = busy(&running).await;
    for format in ["svg", "json"] {
        let path = format!("/api/v1/profile?{ALL}&format={format}");
        let plain = get(running.address, &path).await;
        assert_eq!(plain.header("vary"), Some("accept-encoding"), "{format}");
        assert_eq!(plain.header("content-encoding"), None, "{format}");
        let (head, body) = compressed(&running, &path).await;
        assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"));
        assert!(
            body.len() < plain.body.len() / 2,
            "{} of {}",
            body.len(),
            plain.body.len()
        );
        let answer = io::read_to_string(GzDecoder::new(&*body)).unwrap();
        assert_eq!(answer, plain.body, "{format}");
    }
}

#[tokio::test]
async fn small_answers_are_sent_as_they_are() {
    let running = serve().await;
    let (head, body) = compressed(&running, "/api/v1/runs").await;
    assert!(!head.contains("content-encoding"), "{head}");
    assert!(serde_json::from_slice::<Value>(&body).is_ok());
    let (head, body) = compressed(&running, "/livez").await;
    assert!(
        !head.contains("content-encoding") && body == b"ok",
        "{head}"
    );
}

#[tokio::test]
async fn a_profile_of_a_large_fleet_lists_its_first_thousand_workers() {
    let running = serve().await;
    let fleet = PROFILE_WORKERS_MAX + 1;
    for number in 0..fleet {
        let mut worker = TestWorker::new(&format!("w{number:04}"), 1);
        worker.count("load;main", State::Cpu, 2);
        let mut client = Client::attach(running.address, worker.hello()).await;
        let flush = worker.flush(30, Vec::new());
        client
            .send(agent_message::Kind::Dictionary(
                worker.dictionary().unwrap(),
            ))
            .await;
        assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 1");
    }
    let answer = running.json(&format!("/api/v1/profile?{ALL}")).await;
    let listed = answer["workers"].as_array().unwrap();
    assert_eq!(listed.len(), PROFILE_WORKERS_MAX);
    assert_eq!(
        (&listed[0], &listed[999]),
        (&json!("w0000"), &json!("w0999"))
    );
    assert_eq!(answer["worker_count"], json!(fleet));
    assert_eq!(answer["totals"]["cpu_ns"], json!(2 * fleet));
}
