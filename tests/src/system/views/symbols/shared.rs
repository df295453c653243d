//! Debug information that `dwz` has moved into a file for several programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{run, serve_files, symbols, text, upload};
use crate::harness::Collector;

const PROGRAM: &[u8] = include_bytes!("../../../../../symbols/file/src/reduce/dwz/linked.debug");
const SHARED: &[u8] = include_bytes!("../../../../../symbols/file/src/reduce/dwz/shared.debug");
/// The path in the program's link.
const LINK: &str = "shared.debug";
const PARTIAL: &str = ", lines without inlined functions, ";
const WHOLE: &str = ", lines, ";

/// Makes a symbol file as the collector's reader does. Returns what it prints.
fn reduce_limited(folder: &Path, from: &str) -> String {
    let made = folder.join("made.symbols");
    let done = run(&[
        "symbols",
        "reduce",
        "--limited",
        from,
        "-o",
        made.to_str().unwrap(),
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    text(&done.stdout)
}

/// The build id of the program, and the id in its link.
fn ids(folder: &Path, program: &Path) -> [String; 2] {
    let made = folder.join("made.symbols");
    let arguments = [
        "symbols",
        "reduce",
        program.to_str().unwrap(),
        "-o",
        made.to_str().unwrap(),
    ];
    let done = run(&arguments);
    let printed = text(&done.stdout);
    let warning = text(&done.stderr);
    [
        word_after(&printed, "build id "),
        word_after(&warning, "shared.debug with the id "),
    ]
}

fn word_after(text: &str, words: &str) -> String {
    let rest = text
        .split_once(words)
        .unwrap_or_else(|| panic!("no {words:?} in {text}"))
        .1;
    rest.split([',', ' ']).next().unwrap().to_owned()
}

/// Puts a file where packages put their debug files.
fn put(folder: &Path, id: &str, content: &[u8]) -> PathBuf {
    let path = folder
        .join(".build-id")
        .join(&id[..2])
        .join(format!("{}.debug", &id[2..]));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn shared_debug_information_is_found_by_its_link_and_by_its_id() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let program = folder.join("program.debug");
    fs::write(&program, PROGRAM).unwrap();
    let collector = Collector::start_with_data("127.0.0.1:0", &folder.join("data"));
    let partial = symbols(&collector, &["upload", program.to_str().unwrap()]);
    assert!(
        text(&partial.stdout).contains(PARTIAL),
        "{}",
        text(&partial.stdout)
    );
    let warning = text(&partial.stderr);
    assert!(
        warning.contains("shared.debug with the id ") && warning.contains("(dwz)"),
        "{warning}"
    );
    let [build_id, shared_id] = ids(folder, &program);

    // A reader of files of others does not follow the path.
    let files = folder.join("files");
    let found = put(&files, &build_id, PROGRAM);
    fs::write(found.with_file_name(LINK), SHARED).unwrap();
    assert!(reduce_limited(folder, found.to_str().unwrap()).contains(PARTIAL));
    put(&files, &shared_id, SHARED);
    assert!(reduce_limited(folder, found.to_str().unwrap()).contains(WHOLE));

    // By a server.
    let whole = [
        (debug_path(&build_id), PROGRAM.to_vec()),
        (debug_path(&shared_id), SHARED.to_vec()),
    ];
    let server = serve_files(BTreeMap::from(whole.clone()));
    assert!(reduce_limited(folder, &format!("{server}{}", debug_path(&build_id))).contains(WHOLE));
    let without = serve_files(BTreeMap::from([whole[0].clone()]));
    assert!(
        reduce_limited(folder, &format!("{without}{}", debug_path(&build_id))).contains(PARTIAL)
    );

    // It replaces what has less.
    fs::write(folder.join(LINK), SHARED).unwrap();
    assert!(upload(&collector, &program).contains(WHOLE));
    assert!(text(&symbols(&collector, &["list"]).stdout).contains("1 symbol file, "));
}

fn debug_path(id: &str) -> String {
    format!("/buildid/{id}/debuginfo")
}
