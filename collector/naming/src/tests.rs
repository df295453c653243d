//! Uploads, lookups and files that the collector finds.

use std::fs;
use std::process::Command;

use base::limits::SYMBOL_STORE_BYTES_MAX;
use expect_test::expect;

use super::testing::*;
use super::*;

#[test]
fn an_upload_in_pieces_names_addresses_and_is_kept_once() {
    let libraries = Libraries::compile();
    let naming = libraries.naming(None);
    let build = &libraries.build_id;
    assert!(libraries.names(&naming).is_empty());
    assert_eq!(naming.why_missing(build), Missing::NoFile);
    let file = libraries.symbols("a");
    let before = naming.revision();
    let received = upload(&naming, build, &file, 100, false).unwrap();
    assert!(received.is_stored && !received.was_known);
    assert!(
        naming.revision() > before,
        "cached answers have other names"
    );
    let names = libraries.names(&naming);
    assert!(
        names.contains("sum") && names.contains("sum + twice"),
        "{names:?}"
    );
    assert_eq!(naming.why_missing(build), Missing::NoFunction);

    let again = upload(&naming, build, &file, 100, false).unwrap();
    assert!(again.was_known);
    let list = naming.list();
    assert_eq!((list.len(), list[0].bytes), (1, file.len() as u64));
    assert!(naming.verify().is_empty());
    // As another collector finds them later.
    assert_eq!(libraries.names(&libraries.naming(None)), names);
}

#[test]
fn names_that_would_delay_an_answer_are_pending_until_the_next_query() {
    let libraries = Libraries::compile();
    let naming = libraries.naming(None);
    let build: Arc<str> = libraries.build_id.as_str().into();
    upload(&naming, &build, &libraries.symbols("a"), 1 << 20, false).unwrap();
    let wanted = Addresses::from([(build.clone(), (0x1000..0x1100).collect())]);
    let late = naming.names_until(&wanted, Instant::now());
    assert!(late[&build].is_empty(), "its time is over before it began");
    assert!(naming.is_unfinished());
    assert_eq!(naming.why_missing(&build), Missing::Pending);
    assert!(libraries.names(&naming).contains("sum + twice"));
    assert!(!naming.is_unfinished());
    assert_eq!(naming.why_missing(&build), Missing::NoFunction);
}

#[test]
fn an_upload_that_broke_off_continues_where_it_was() {
    let libraries = Libraries::compile();
    let file = libraries.symbols("a");
    let hash = sha256(&file);
    let send = |naming: &Naming, offset: usize, end: usize| {
        let piece = Piece {
            build_id: &libraries.build_id,
            sha256: &hash,
            bytes: file.len() as u64,
            offset: offset as u64,
            content: &file[offset..end],
            replace: false,
        };
        naming.receive(&piece).unwrap()
    };
    assert_eq!(send(&libraries.naming(None), 0, 100).bytes, 100);
    let naming = libraries.naming(None);
    // A part that is sent twice, or too far ahead, changes nothing.
    assert_eq!(send(&naming, 0, 100).bytes, 100);
    assert_eq!(send(&naming, 200, 300).bytes, 100);
    assert!(send(&naming, 100, file.len()).is_stored);
    assert!(!libraries.names(&naming).is_empty());
}

#[test]
fn a_better_file_replaces_a_worse_one_and_a_contradicting_one_is_rejected() {
    let libraries = Libraries::compile();
    let naming = libraries.naming(None);
    let build = &libraries.build_id;
    upload(
        &naming,
        build,
        &libraries.symbols("stripped"),
        1 << 20,
        false,
    )
    .unwrap();
    assert_eq!(libraries.names(&naming), BTreeSet::from(["sum".to_owned()]));
    upload(&naming, build, &libraries.symbols("a"), 1 << 20, false).unwrap();
    let full = libraries.names(&naming);
    assert!(full.contains("sum + twice"), "{full:?}");
    let error = upload(&naming, build, &libraries.forged(), 1 << 20, false).unwrap_err();
    assert!(matches!(error, UploadError::Conflict { .. }), "{error}");
    assert_eq!(libraries.names(&naming), full, "nothing changed");
    upload(&naming, build, &libraries.forged(), 1 << 20, true).unwrap();
    assert_eq!(naming.list().len(), 1);
}

#[test]
fn a_program_and_its_debug_file_are_one_build_in_any_order() {
    let libraries = Libraries::compile();
    let path = |name: &str| libraries.folder.path().join(name);
    let program = path("a");
    let debug = path("debug");
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .args([&program, &debug]));
    let build = &libraries.build_id;
    for [first, second] in [["a", "debug"], ["debug", "a"], ["debug", "stripped"]] {
        let data = tempfile::tempdir().unwrap();
        let naming = Naming::open(data.path().to_owned(), None);
        upload(&naming, build, &libraries.symbols(first), 1 << 20, false).unwrap();
        let names = libraries.names(&naming);
        assert!(names.contains("sum + twice"), "{names:?}");
        let again = upload(&naming, build, &libraries.symbols(second), 1 << 20, false).unwrap();
        assert!(again.is_stored && again.was_known, "{second} after {first}");
        assert_eq!(libraries.names(&naming), names);
        let left = SymbolFiles::new(data.path().to_owned()).partials();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn each_piece_needs_room_not_only_the_first() {
    let libraries = Libraries::compile();
    let naming = libraries.naming(None);
    let send = |offset: u64, bytes: u64| {
        naming.receive(&Piece {
            build_id: &libraries.build_id,
            sha256: &sha256(b"never complete"),
            bytes,
            offset,
            content: &[0; 8],
            replace: false,
        })
    };
    assert_eq!(send(0, 16).unwrap().bytes, 8);
    // Files of no bytes on the disk, whose lengths count.
    let full = libraries.folder.path().join("data/symbols/partial/other");
    let other = fs::File::create(full).unwrap();
    other.set_len(SYMBOL_STORE_BYTES_MAX - 1_000).unwrap();
    assert_eq!(send(8, 1_000).unwrap().bytes, 16);
    let error = send(16, 1_001).unwrap_err().to_string();
    assert!(error.contains("and 1001 more are too many"), "{error}");
    naming.add_fetch(&libraries.build_id).unwrap();
    naming.next_fetch().unwrap();
    let mut piece = AgentPiece {
        build_id: &libraries.build_id,
        worker: "w",
        offset: 0,
        bytes: 984,
        content: &[0; 8],
    };
    assert!(!naming.add_fetched(&piece).unwrap());
    piece.offset = 8;
    other.set_len(SYMBOL_STORE_BYTES_MAX - 999).unwrap();
    let error = naming.add_fetched(&piece).unwrap_err().to_string();
    assert!(error.contains("and 984 more are too many"), "{error}");
}

#[test]
fn a_file_that_cannot_be_used_keeps_no_other_source_from_being_asked() {
    let libraries = Libraries::compile();
    let build = &libraries.build_id;
    let folder = libraries.folder.path();
    let debug = path_of(&folder.join(".build-id"), build, "debug");
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    fs::write(&debug, "of another build").unwrap();
    fs::write(folder.join("made"), libraries.symbols("a")).unwrap();
    // PROGRAM symbols reduce --limited FILE-OR-URL --output FILE
    let script = format!(
        "case $4 in http://good/*) cp {}/made $6;; *) echo broken >&2; exit 1;; esac",
        folder.display()
    );
    let naming_by = |server: &str, agents: bool| {
        libraries.naming(Some(SymbolSource {
            debuginfod: vec![server.to_owned()],
            agents,
            ..source(&libraries, &script)
        }))
    };
    let naming = naming_by("http://bad", true);
    libraries.names(&naming);
    assert!(naming.find_next());
    assert_eq!(naming.next_fetch().as_deref(), Some(&**build));
    naming.end_fetch(build, Err("no worker has it".to_owned()));
    let Missing::Unusable(reason) = naming.why_missing(build) else {
        panic!("a file is there");
    };
    assert!(reason.ends_with(".debug: broken"), "the first: {reason}");

    let naming = naming_by("http://good", false);
    libraries.names(&naming);
    assert!(naming.find_next());
    assert!(libraries.names(&naming).contains("sum + twice"));
}

#[test]
fn what_is_wrong_with_an_upload_is_said_and_nothing_is_kept() {
    let libraries = Libraries::compile();
    let naming = libraries.naming(None);
    let build = &libraries.build_id;
    let good = libraries.symbols("a");
    let mut damaged = good.clone();
    damaged[20] ^= 1;
    let zeros = "00".repeat(20);
    let errors = [
        upload_error(&naming, "../../etc", &good),
        upload_error(&naming, &zeros, &good).replace(&libraries.build_id, "OTHER"),
        upload_error(&naming, build, &damaged),
        upload_error(&naming, build, &good[..good.len() / 2]),
        upload_error(
            &naming,
            build,
            &fs::read(libraries.folder.path().join("a")).unwrap(),
        ),
        upload(&Naming::default(), build, &good, 1 << 20, false)
            .unwrap_err()
            .to_string(),
    ];
    expect![[r#"
        build_id="BUILD" is no build id: 8 to 128 digits of lowercase hexadecimal are expected
        the symbol file is rejected: it is of build id OTHER, not BUILD
        the symbol file is rejected: its starts are damaged: the checksum is wrong
        the symbol file is rejected: it is truncated: its last bytes are missing
        the symbol file is rejected: it is not a symbol file; `emberline symbols upload` makes one from an ELF file
        this collector keeps no symbols, because it keeps nothing: start it with --data DIR
    "#]]
    .assert_eq(&(errors.join("\n") + "\n"));
    let wrong = Piece {
        build_id: build,
        sha256: &sha256(b"other"),
        bytes: good.len() as u64,
        offset: 0,
        content: &good,
        replace: false,
    };
    assert!(matches!(
        naming.receive(&wrong),
        Err(UploadError::Damaged { .. })
    ));
    assert!(naming.list().is_empty() && libraries.names(&naming).is_empty());
    assert_eq!(
        SymbolFiles::new(libraries.folder.path().join("data/symbols")).bytes(),
        0
    );
}

fn upload_error(naming: &Naming, build: &str, file: &[u8]) -> String {
    let error = upload(naming, build, file, 1 << 20, false).unwrap_err();
    error.to_string().replace(build, "BUILD")
}

#[test]
fn unused_files_are_removed_and_damaged_ones_are_reported() {
    let libraries = Libraries::compile();
    let naming = libraries.naming(None);
    let build = &libraries.build_id;
    upload(&naming, build, &libraries.symbols("a"), 1 << 20, false).unwrap();
    let used_at = naming.list()[0].used_at;
    assert!(naming.remove_unused(used_at).unwrap().is_empty());

    let path = path_of(
        &libraries.folder.path().join("data/symbols"),
        build,
        "symbols",
    );
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, bytes).unwrap();
    let problems = libraries.naming(None).verify();
    assert_eq!(problems.len(), 1);
    assert_eq!(
        problems[0].1.to_string(),
        "its starts are damaged: the checksum is wrong"
    );

    let removed = naming
        .remove_unused(used_at.shifted(i64::from(u32::MAX) * 1_000))
        .unwrap();
    assert_eq!(removed.len(), 1);
    assert!(libraries.names(&naming).is_empty());
}

#[test]
fn a_reader_that_is_killed_costs_the_names_of_its_file_only() {
    let libraries = Libraries::compile();
    let build = &libraries.build_id;
    let debug = path_of(&libraries.folder.path().join(".build-id"), build, "debug");
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    fs::copy(libraries.folder.path().join("a"), &debug).unwrap();
    for (script, expected) in [
        ("kill -9 $$", "its reader ended by signal: 9"),
        (
            "echo 'section .debug_info claims too much' >&2; exit 1",
            "claims too much",
        ),
        ("exit 0", "No such file or directory"),
    ] {
        let naming = libraries.naming(Some(source(&libraries, script)));
        assert!(libraries.names(&naming).is_empty());
        assert_eq!(naming.why_missing(build), Missing::Pending);
        assert!(naming.find_next());
        let Missing::Unusable(reason) = naming.why_missing(build) else {
            panic!("{script}")
        };
        assert!(reason.contains(expected), "{reason}");
        // It is not read again for each query.
        assert!(libraries.names(&naming).is_empty() && !naming.find_next());
    }
}

#[test]
fn a_file_that_the_collector_finds_is_read_once() {
    let libraries = Libraries::compile();
    let build = &libraries.build_id;
    let made = libraries.folder.path().join("made");
    fs::write(&made, libraries.symbols("a")).unwrap();
    // PROGRAM symbols reduce --limited FILE --output FILE
    let naming = libraries.naming(Some(source(
        &libraries,
        &format!("cp {} $6", made.display()),
    )));
    libraries.names(&naming);
    assert!(naming.find_next());
    assert_eq!(
        naming.why_missing(build),
        Missing::NoFile,
        "there is no debug file"
    );
    let debug = path_of(&libraries.folder.path().join(".build-id"), build, "debug");
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    fs::write(&debug, "its reader does not look").unwrap();
    let starts = libraries.folder.path().join("starts");
    let script = format!(
        "echo start >> {}; cp {} $6",
        starts.display(),
        made.display()
    );
    let naming = libraries.naming(Some(source(&libraries, &script)));
    let before = naming.revision();
    for _ in 0..2 {
        assert!(libraries.names(&naming).is_empty());
    }
    assert!(naming.find_next());
    assert!(naming.revision() > before);
    for _ in 0..2 {
        assert!(libraries.names(&naming).contains("sum + twice"));
        assert!(!naming.find_next());
    }
    assert_eq!(fs::read_to_string(&starts).unwrap().lines().count(), 1);
}

#[test]
fn servers_are_asked_in_their_order_and_a_missing_file_is_no_failure() {
    let libraries = Libraries::compile();
    let build = &libraries.build_id;
    let folder = libraries.folder.path();
    let made = folder.join("made");
    fs::write(&made, libraries.symbols("a")).unwrap();
    let asked = folder.join("asked");
    // PROGRAM symbols reduce --limited URL --output FILE
    let script = format!(
        "echo $4 >> {}; case $4 in *//none/*) exit 3;; *bad/*) echo broken >&2; exit 1;; esac; cp {} $6",
        asked.display(),
        made.display()
    );
    let naming_by = |servers: &[&str]| {
        let debuginfod = servers.iter().map(|server| (*server).to_owned()).collect();
        libraries.naming(Some(SymbolSource {
            debuginfod,
            ..source(&libraries, &script)
        }))
    };
    let naming = naming_by(&["http://none/"]);
    libraries.names(&naming);
    assert!(naming.find_next());
    assert_eq!(naming.why_missing(build), Missing::NoFile);

    let naming = naming_by(&["http://user:secret@bad"]);
    libraries.names(&naming);
    assert!(naming.find_next());
    let Missing::Unusable(reason) = naming.why_missing(build) else {
        panic!()
    };
    // Without the password.
    assert_eq!(
        reason,
        format!("http://bad/buildid/{build}/debuginfo: broken")
    );

    fs::remove_file(&asked).unwrap();
    let naming = naming_by(&["http://none/", "http://bad", "http://good", "http://never"]);
    libraries.names(&naming);
    assert!(naming.find_next());
    assert!(libraries.names(&naming).contains("sum + twice"));
    let asked = fs::read_to_string(&asked).unwrap();
    let servers = asked.lines().map(|url| url.split('/').nth(2).unwrap());
    assert_eq!(servers.collect::<Vec<_>>(), ["none", "bad", "good"]);
}

/// Pieces of these sizes that a worker sends; the error is the last one's.
fn send_pieces(
    naming: &Naming,
    build_id: &str,
    content: &[u8],
    step: usize,
) -> Result<bool, String> {
    let mut is_complete = false;
    for piece in content.chunks(step) {
        let offset = naming.fetched_bytes(build_id).unwrap();
        let bytes = content.len() as u64;
        let piece = AgentPiece {
            build_id,
            worker: "w",
            offset,
            bytes,
            content: piece,
        };
        is_complete = naming
            .add_fetched(&piece)
            .map_err(|error| error.to_string())?;
    }
    Ok(is_complete)
}

#[test]
fn what_an_agent_sends_is_read_by_another_process_and_a_fetch_continues_where_it_was() {
    let libraries = Libraries::compile();
    let build = &libraries.build_id;
    let made = libraries.folder.path().join("made");
    fs::write(&made, libraries.symbols("a")).unwrap();
    // PROGRAM symbols reduce --limited FILE --output FILE
    let script = format!(
        "cmp -s $4 {0}/a || exit 1; cp {0}/made $6",
        libraries.folder.path().display()
    );
    let open = |agents| {
        let source = source(&libraries, &script);
        libraries.naming(Some(SymbolSource {
            folder: None,
            agents,
            ..source
        }))
    };
    let naming = open(false);
    assert!(libraries.names(&naming).is_empty() && !naming.find_next());
    assert_eq!(
        naming.why_missing(build),
        Missing::NoFile,
        "agents are not asked by themselves"
    );
    assert_eq!(naming.next_fetch(), None);

    let naming = open(true);
    assert!(libraries.names(&naming).is_empty() && naming.find_next());
    assert_eq!(naming.next_fetch().as_deref(), Some(&**build));
    assert_eq!(naming.why_missing(build), Missing::Pending);
    let whole = fs::read(libraries.folder.path().join("a")).unwrap();
    let half = whole.len() / 2;
    let part = AgentPiece {
        build_id: build,
        worker: "first",
        offset: 0,
        bytes: whole.len() as u64,
        content: &whole[..half],
    };
    assert!(!naming.add_fetched(&part).unwrap());
    let running = FetchProgress {
        worker: "first".to_owned(),
        received: half as u64,
        bytes: whole.len() as u64,
    };
    assert_eq!(naming.fetches()[0].state, FetchState::Running(running));

    // Another worker, and a collector that started again.
    let naming = open(true);
    naming.check_fetch(build).unwrap();
    naming.add_fetch(build).unwrap();
    naming.next_fetch().unwrap();
    assert_eq!(naming.fetched_bytes(build).unwrap(), half as u64);
    let rest = AgentPiece {
        offset: half as u64,
        content: &whole[half..],
        ..part
    };
    assert!(naming.add_fetched(&rest).unwrap());
    naming.store_fetched(build).unwrap();
    naming.end_fetch(build, Ok(()));
    assert!(libraries.names(&naming).contains("sum + twice"));
    assert!(naming.fetches().is_empty());
    assert_eq!(
        naming.fetched_bytes(build).unwrap(),
        0,
        "the pieces are removed"
    );
    let error = naming.check_fetch(build).unwrap_err().to_string();
    assert!(error.contains("functions and lines of build id"), "{error}");
}

#[test]
fn pieces_that_contradict_each_other_are_rejected_and_bounded() {
    let libraries = Libraries::compile();
    let build = &libraries.build_id;
    let source = source(&libraries, "echo damaged >&2; exit 1");
    let naming = libraries.naming(Some(SymbolSource {
        folder: None,
        ..source
    }));
    naming.add_fetch(build).unwrap();
    naming.next_fetch().unwrap();
    let piece = |offset, bytes, content| {
        let piece = AgentPiece {
            build_id: build,
            worker: "w",
            offset,
            bytes,
            content,
        };
        naming
            .add_fetched(&piece)
            .map_err(|error| error.to_string())
    };
    let errors = [
        piece(0, 1 << 40, b"abc").unwrap_err(),
        piece(0, 2, b"abc").unwrap_err(),
        piece(0, 9, b"").unwrap_err(),
        piece(0, 9, b"abc")
            .and_then(|_| piece(3, 8, b"def"))
            .unwrap_err(),
    ];
    expect![[r#"
        its symbols have 1099511627776 bytes; at most 1073741824 are fetched
        it sent 3 bytes from byte 0 of 2
        it sent 0 bytes from byte 0 of 9
        its symbols have 8 bytes, not 9 as at first: another file, so start again
    "#]]
    .assert_eq(&(errors.join("\n") + "\n"));
    assert_eq!(
        naming.fetched_bytes(build).unwrap(),
        0,
        "the next worker starts again"
    );

    assert!(send_pieces(&naming, build, b"no ELF file", 4).unwrap());
    let error = naming.store_fetched(build).unwrap_err();
    assert!(error.contains("damaged"), "{error}");
    naming.end_fetch(build, Err(error.clone()));
    assert_eq!(naming.fetches()[0].state, FetchState::Failed(error));
    assert_eq!(naming.why_missing(build), Missing::NoFile);
    assert!(naming.list().is_empty());
    assert_eq!(
        SymbolFiles::new(libraries.folder.path().join("data/symbols")).bytes(),
        0
    );

    assert!(
        naming
            .check_fetch("../../etc")
            .unwrap_err()
            .to_string()
            .contains("is no build id")
    );
    assert!(
        Naming::default()
            .check_fetch(build)
            .unwrap_err()
            .to_string()
            .contains("--data DIR")
    );
    for number in 0..SYMBOL_FETCHES_MAX {
        naming.add_fetch(&format!("{number:08x}")).unwrap();
    }
    assert!(naming.add_fetch("ffffffff").is_err());
    naming.add_fetch("00000000").unwrap();
}
