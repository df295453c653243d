//! A file of each format of a store that never changes: the same bytes each time, and in every release. And no
//! file of a range without data.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::run;
use crate::views::report_golden::{RANGE, UPDATE_VARIABLE, golden_collector};

const ENDED: [&str; 10] = [
    "--outcome",
    "ok",
    "--outcome",
    "failed",
    "--outcome",
    "cancelled",
    "--outcome",
    "panicked",
    "--outcome",
    "lost",
];

/// Commands, what they select, and the extensions of their files. Running tasks are left out, because they get
/// longer.
/// Documents of HTML are not here: they have the page's scripts, which change with the page.
const EXPORTS: [(&str, &[&str], &[&str]); 3] = [
    (
        "profile",
        &["--runnable", "--waiting"],
        &[
            "svg",
            "pb.gz",
            "speedscope.json",
            "firefox.json",
            "nested.json",
            "json",
            "collapsed",
            "csv",
            "parquet",
        ],
    ),
    (
        "tasks",
        &ENDED,
        &["csv", "parquet", "trace", "firefox.json", "json"],
    ),
    ("tasks", &[], &["hlog"]),
];

fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/system/golden/exports")
}

#[test]
fn a_file_of_each_format_is_its_golden_file() {
    let folder = tempfile::tempdir().unwrap();
    let collector = golden_collector(folder.path());
    let mut different = Vec::new();
    for (command, selection, extensions) in EXPORTS {
        for extension in extensions {
            let name = format!("{command}.{extension}");
            let write = |folder: PathBuf| {
                fs::create_dir_all(&folder).unwrap();
                let path = folder.join(&name);
                let file = path.to_str().unwrap();
                let url = collector.url();
                let options = [&[command, "--url", &url, "-o", file], selection, &RANGE].concat();
                let done = run(&options);
                assert!(
                    done.status.success(),
                    "{}",
                    String::from_utf8_lossy(&done.stderr)
                );
                fs::read(file).unwrap()
            };
            let found = write(folder.path().join("once"));
            assert!(
                found == write(folder.path().join("twice")),
                "{name} has other bytes each time"
            );
            let golden = golden_folder().join(&name);
            if env::var_os(UPDATE_VARIABLE).is_some() {
                fs::write(&golden, &found).unwrap();
            }
            if !fs::read(&golden).is_ok_and(|expected| expected == found) {
                different.push(golden);
            }
        }
    }
    assert!(
        different.is_empty(),
        "other bytes than in {different:#?}; if that is right, repeat with {UPDATE_VARIABLE}=1"
    );
}

#[test]
fn a_range_without_data_writes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let collector = golden_collector(folder.path());
    let url = collector.url();
    let files = folder.path().join("files");
    fs::create_dir_all(&files).unwrap();
    let before_all = [
        "--from",
        "2020-01-01T00:00:00Z",
        "--to",
        "2020-01-01T01:00:00Z",
    ];
    let rows = ("transfers", &["--rows"][..], &["csv", "parquet"][..]);
    let stream = ("tasks", &[][..], &["html"][..]);
    let series = ("resources", &[][..], &["parquet", "html"][..]);
    for (command, selection, extensions) in EXPORTS.into_iter().chain([rows, stream, series]) {
        // JSON of tasks is the collector's answer, which says that there are none.
        for extension in extensions
            .iter()
            .filter(|name| (command, **name) != ("tasks", "json"))
        {
            let path = files.join(format!("empty.{extension}"));
            let file = path.to_str().unwrap();
            let options = [
                &[command, "--url", &url, "-o", file],
                selection,
                &before_all,
            ]
            .concat();
            let done = run(&options);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(2), "{command} {extension}: {said}");
            assert!(
                said.contains("so nothing was written"),
                "{command} {extension}: {said}"
            );
        }
    }
    assert_eq!(fs::read_dir(&files).unwrap().count(), 0);
    for (command, format) in [
        ("profile", "collapsed"),
        ("profile", "json"),
        ("profile", "pprof"),
        ("tasks", "csv"),
    ] {
        let options = [
            &[command, "--url", &url, "--format", format][..],
            &before_all,
        ]
        .concat();
        let done = run(&options);
        assert_eq!(done.status.code(), Some(2), "{command} {format}: {done:?}");
        assert_eq!(done.stdout, b"", "{command} {format}");
    }
}
