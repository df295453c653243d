//! Where the data ends, by pushes of windows of every length: not a second after the newest window begins.

use serde_json::Value;

use super::super::stores::seal;
use super::{Running, serve};

/// When the collector's clock stands, in Unix seconds.
const NOW_S: i64 = 1_000_060;
const SECOND_NS: i64 = 1_000_000_000;

/// Pushes two adjacent windows of one busy core, of which the newer ends at `end_s`.
async fn push_core(running: &Running, name: &str, end_s: i64, length_s: i64) {
    for start_s in [end_s - 2 * length_s, end_s - length_s] {
        let until_s = start_s + length_s;
        let query =
            format!("name={name}&from={start_s}&until={until_s}&format=folded&sampleRate=1");
        let stacks = format!("main;burn {length_s}\n");
        running.ingest(&query, &[], stacks.as_bytes()).await;
    }
}

fn end_ns(answer: &Value) -> &Value {
    &answer["to_ns"]
}

/// The end of the data by every answer that has it.
async fn data_ends(running: &Running) -> Vec<i64> {
    let profile = running.json("/api/v1/profile").await;
    let timeline = running.json("/api/v1/timeline").await;
    let workers = running.json("/api/v1/workers").await;
    [
        end_ns(&profile["data"]),
        end_ns(&timeline["data"]),
        end_ns(&workers["retained"]["data"]),
    ]
    .map(|end| end.as_i64().unwrap() / SECOND_NS)
    .to_vec()
}

#[tokio::test]
async fn data_ends_where_the_newest_window_ends_sealed_or_not() {
    for length_s in [1, 10, 15, 60] {
        let running = serve().await;
        push_core(&running, "shop", NOW_S, length_s).await;
        assert_eq!(data_ends(&running).await, [NOW_S; 3], "{length_s}");
        seal(&running).await;
        assert_eq!(data_ends(&running).await, [NOW_S; 3], "sealed {length_s}");
    }
}

/// A core is a core: the time of a timeline, divided by the time with data.
#[tokio::test]
async fn a_busy_core_is_one_core_of_the_time_with_data() {
    for length_s in [1, 10, 15, 60] {
        let running = serve().await;
        push_core(&running, "shop", NOW_S, length_s).await;
        let timeline = running.json("/api/v1/timeline").await;
        let data = &timeline["data"];
        let length_ns = data["to_ns"].as_i64().unwrap() - data["from_ns"].as_i64().unwrap();
        let series = &timeline["series"][0];
        assert_eq!(series["totals"]["cpu_ns"], length_ns, "{length_s}");
    }
}

/// Pushes may be up to an hour ahead.
#[tokio::test]
async fn a_sender_whose_clock_is_ahead_does_not_move_the_end() {
    let running = serve().await;
    push_core(&running, "shop", NOW_S - 5, 10).await;
    push_core(&running, "skewed", NOW_S + 3_000, 10).await;
    assert_eq!(data_ends(&running).await, [NOW_S - 5; 3]);
    let fleet = running.json("/api/v1/workers").await;
    let ahead_ns = |number: usize| fleet["workers"][number]["epochs"][0]["data_ahead_ns"].clone();
    assert_eq!([ahead_ns(0), ahead_ns(1)], [0, 3_000 * SECOND_NS]);
    assert_eq!(fleet["counts"]["need_attention"], 1);
    seal(&running).await;
    assert_eq!(data_ends(&running).await, [NOW_S - 5; 3]);
}

/// Otherwise no range would show it.
#[tokio::test]
async fn data_that_is_only_ahead_ends_where_it_ends() {
    let running = serve().await;
    push_core(&running, "skewed", NOW_S + 3_000, 10).await;
    assert_eq!(data_ends(&running).await, [NOW_S + 3_000; 3]);
}
