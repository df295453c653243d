//! Tables as files.

use std::sync::Arc;

use expect_test::expect;
use profiler_core::Timestamp;

use super::csv::text_cell;
use super::{Table, resources, task_names, tasks, timeline, transfers};
use store::encode_columns;
use store::kinds::{
    Flag, Fraction, Number32, Number64, OptionalNumber64, OptionalSigned64, OptionalTime, Text,
    Time,
};

fn text(table: &Table) -> String {
    String::from_utf8(table.csv()).unwrap()
}

fn task() -> api::Task {
    api::Task {
        worker: "w-1".to_owned(),
        epoch: "a1".to_owned(),
        id: u64::MAX,
        name: "=SUM(A1:A9)".to_owned(),
        key: "k,\"1\"".to_owned(),
        start_ns: 1_700_000_000_000_000_001,
        duration_ns: 5,
        outcome: "running".into(),
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        phases: vec![api::Phase {
            name: "read".to_owned(),
            start_ns: 1,
            duration_ns: 2,
            count: 1,
        }],
        ..api::Task::default()
    }
}

#[test]
fn every_kind_of_value_is_a_cell() {
    let table = Table::new("kinds", 2)
        .with::<Text>("text", [Arc::from("a\u{1b}"), Arc::from("b")].into_iter())
        .with::<Flag>("flag", [true, false].into_iter())
        .with::<Number32>("small", [u32::MAX, 0].into_iter())
        .with::<Number64>("large", [u64::MAX, 0].into_iter())
        .with::<Time>("time", [0, -1].into_iter().map(Timestamp::from_unix_ns))
        .with::<OptionalTime>("stop", [Some(Timestamp::from_unix_ns(1)), None].into_iter())
        .with::<OptionalNumber64>("attempt", [None, Some(2)].into_iter())
        .with::<OptionalSigned64>("offset", [Some(-5), None].into_iter())
        .with::<Fraction>("mean", [0.25, -1e9].into_iter());
    expect![[r#"
        text,flag,small,large,time,stop,attempt,offset,mean
        a\u{1b},true,4294967295,18446744073709551615,1970-01-01T00:00:00.000000000Z,1970-01-01T00:00:00.000000001Z,,-5,0.25
        b,false,0,0,1969-12-31T23:59:59.999999999Z,,2,,-1000000000
    "#]]
    .assert_eq(&text(&table));
    let file = encode_columns(table.name, &table.columns);
    assert_eq!(
        (&file[..4], &file[file.len() - 4..]),
        (&b"PAR1"[..], &b"PAR1"[..])
    );
    assert_eq!(
        file,
        encode_columns(table.name, &table.columns),
        "same rows, same bytes"
    );
}

#[test]
fn a_name_cannot_be_a_formula() {
    for (name, cell) in [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-x", "'-x"),
        ("@import", "'@import"),
        ("\t=1", "\\t=1"),
        ("a=1", "a=1"),
        ("", ""),
    ] {
        assert_eq!(text_cell(name), cell, "{name:?}");
    }
}

#[test]
fn a_task_is_a_row() {
    let answer = api::TasksAnswer {
        total: 3,
        tasks: vec![task()],
        ..Default::default()
    };
    expect![[r#"
        name,key,outcome,start,stop,duration_ns,worker,epoch,id,parent,thread_id,thread_name,cause,attempt,result_bytes,type_name,labels,phases
        '=SUM(A1:A9),"k,""1""",running,2023-11-14T22:13:20.000000001Z,,5,w-1,a1,18446744073709551615,,0,,,,,,"{""zone"":""a""}","[{""name"":""read"",""start_ns"":1,""duration_ns"":2,""count"":1}]"
    "#]]
    .assert_eq(&text(&tasks(&answer)));
    assert!(tasks(&answer).facts.contains(&("x-emberline-total", 3)));
}

#[test]
fn a_transfer_is_a_row() {
    let transfer = api::Transfer {
        worker: "w-1".to_owned(),
        epoch: "a1".to_owned(),
        id: 4,
        direction: "incoming".into(),
        peer: "-2".to_owned(),
        keys: vec!["k".to_owned()],
        bytes: 1_000,
        compressed_bytes: Some(250),
        start_ns: 1_000_000_000,
        stop_ns: 1_500_000_000,
        duration_ns: 500_000_000,
        bandwidth: Some(500),
        outcome: "ok".into(),
        ..Default::default()
    };
    let answer = api::TransfersAnswer {
        total: 9,
        transfers: vec![transfer],
        ..Default::default()
    };
    expect![[r#"
        worker,epoch,id,direction,peer,keys,more_keys,type_name,bytes,compressed_bytes,start,stop,duration_ns,bandwidth,task_id,thread_id,outcome,cause
        w-1,a1,4,incoming,'-2,"[""k""]",0,,1000,250,1970-01-01T00:00:01.000000000Z,1970-01-01T00:00:01.500000000Z,500000000,500,,0,ok,
    "#]]
    .assert_eq(&text(&transfers(&answer)));
    assert!(transfers(&answer).facts.contains(&("x-emberline-total", 9)));
}

#[test]
fn a_name_without_durations_has_empty_cells() {
    let durations = api::Durations {
        count: 2,
        total_ns: 8,
        mean_ns: 4,
        ..Default::default()
    };
    let names = vec![task_name("a", Some(durations)), task_name("b", None)];
    let answer = api::TaskSummaryAnswer {
        names,
        ..Default::default()
    };
    expect![[r#"
        name,running,ok,failed,cancelled,panicked,lost,count,min_ns,p50_ns,p90_ns,p99_ns,max_ns,mean_ns,total_ns
        a,1,2,0,0,0,0,2,0,0,0,0,0,4,8
        b,1,2,0,0,0,0,,,,,,,,
    "#]]
    .assert_eq(&text(&task_names(&answer)));
}

fn task_name(name: &str, durations: Option<api::Durations>) -> api::TaskName {
    api::TaskName {
        name: name.to_owned(),
        running: 1,
        outcomes: [("ok".into(), 2)].into(),
        durations,
        phases: Vec::new(),
    }
}

#[test]
fn series_are_rows_of_points() {
    let series = api::ResourceSeries {
        worker: "w".to_owned(),
        host: "h".to_owned(),
        measure: "process_memory".into(),
        unit: "bytes".into(),
        points: vec![
            (1_000_000_000, 1.5, 2.0, 1.0),
            (2_000_000_000, 3.0, 3.0, 3.0),
        ],
        ..Default::default()
    };
    let answer = api::ResourcesAnswer {
        series: vec![series],
        ..Default::default()
    };
    expect![[r#"
        worker,host,run,measure,unit,cumulative,time,mean,max,min
        w,h,,process_memory,bytes,false,1970-01-01T00:00:01.000000000Z,1.5,2,1
        w,h,,process_memory,bytes,false,1970-01-01T00:00:02.000000000Z,3,3,3
    "#]]
    .assert_eq(&text(&resources(&answer)));
    let aligned = text(&resources(&api::ResourcesAnswer {
        align: true,
        ..answer
    }));
    assert!(
        aligned.contains("offset_ns") && aligned.contains(",1000000000,1.5,2,1"),
        "{aligned}"
    );

    let series = api::Series {
        kind: "task".into(),
        name: "load".to_owned(),
        cpu_ns: vec![1, 2],
        runnable_ns: vec![0, 0],
        disk_ns: Some(vec![4, 0]),
        wait_ns: vec![4, 0],
        ..Default::default()
    };
    let series = vec![series];
    let answer = api::TimelineAnswer {
        step_ns: 500,
        steps: 2,
        series,
        ..Default::default()
    };
    expect![[r#"
        kind,name,start,cpu_ns,runnable_ns,wait_ns,lock_ns,interpreter_ns,sleep_ns,network_ns,disk_ns,other_ns
        task,load,1970-01-01T00:00:00.000000000Z,1,0,4,0,0,0,0,4,0
        task,load,1970-01-01T00:00:00.000000500Z,2,0,0,0,0,0,0,0,0
    "#]]
    .assert_eq(&text(&timeline(&answer)));
}
