//! Addresses that the collector names, and the symbols that it fetches for them.

use super::*;

#[test]
fn addresses_are_left_to_the_collector_once_the_time_for_names_is_over() {
    let program = fs::read_link("/proc/self/exe").unwrap();
    let module = module(&program);
    let addresses: Vec<u64> = code_of(&program).step_by(4_096).take(20).collect();
    let names_until = Arc::new(OnceLock::new());
    let named = |names_until: &Arc<OnceLock<Instant>>| {
        let resolver = Resolver::of_this_process(LeftToCollector::None).until(names_until.clone());
        let frames = resolved_by(resolver, &module, addresses.iter().copied());
        frames
            .iter()
            .filter(|frames| frames[0].kind == FrameKind::Function)
            .count()
    };
    assert!(named(&names_until) > 10, "the time is not limited yet");
    names_until.set(Instant::now()).unwrap();
    assert_eq!(named(&names_until), 0);
    let resolver = Resolver::of_this_process(LeftToCollector::None).until(names_until);
    let frames = resolved_by(resolver, &module, addresses.iter().copied());
    for (frames, address) in frames.iter().zip(&addresses) {
        let [frame] = &frames[..] else {
            panic!("{frames:?}")
        };
        let found = (frame.kind, frame.offset, &*frame.build_id);
        assert_eq!(found, (FrameKind::Unresolved, *address, &*module.build_id));
    }
}

/// The whole of a module's symbols, in pieces as a collector asks for them; each from another process.
fn fetched(library: &Path) -> Vec<u8> {
    let module = module(library);
    let mut whole = Vec::new();
    loop {
        let mut resolver = Resolver {
            left: LeftToCollector::All,
            ..Resolver::default()
        };
        resolver.resolve(
            &[Address {
                address: 1,
                module: Some(&module),
            }],
            |_, _| {},
        );
        let piece = resolver
            .symbol_piece(&module.build_id, whole.len() as u64)
            .unwrap();
        assert!(
            !piece.content.is_empty(),
            "{} of {} bytes",
            whole.len(),
            piece.bytes
        );
        whole.extend(piece.content);
        if whole.len() as u64 >= piece.bytes {
            assert_eq!(whole.len() as u64, piece.bytes);
            let end = resolver
                .symbol_piece(&module.build_id, piece.bytes)
                .unwrap();
            assert!(end.content.is_empty());
            return whole;
        }
    }
}

/// Also compressed, and with a table of symbols only.
#[test]
fn the_symbols_that_a_collector_fetches_name_what_the_file_names() {
    let forms: [&[&str]; 3] = [
        &["-Cdebuginfo=2"],
        &[
            "-Cdebuginfo=2",
            "-Clink-arg=-Wl,--compress-debug-sections=zlib",
        ],
        &["-Cdebuginfo=0"],
    ];
    let facts = |source: &Vec<u8>| {
        let mut file = Vec::new();
        let reduced = symbol_files::reduce(source, &mut file).unwrap();
        // All but the trailer, which has the size of the source.
        let content = file.len() - 128;
        (
            symbol_files::Facts {
                source_bytes: 0,
                ..reduced.facts
            },
            file[..content].to_vec(),
        )
    };
    for (number, options) in forms.iter().enumerate() {
        let library = compiled(&format!("fetched-{number}.so"), options);
        let whole = fs::read(&library).unwrap();
        let fetched = fetched(&library);
        assert!(fetched.len() < whole.len());
        assert_eq!(facts(&fetched), facts(&whole), "{options:?}");
        let cache = ChunkCache::new(None).unwrap();
        let elf = Elf::open(&library, &cache).unwrap();
        let code = &whole[elf.section(".text").unwrap().offset as usize..][..64];
        assert!(
            !fetched.windows(64).any(|part| part == code),
            "code is not sent"
        );
    }
    // The test itself: more than one piece, whose parts begin and end anywhere.
    let program = fs::read_link("/proc/self/exe").unwrap();
    assert!(self::fetched(&program).len() > 1 << 20);
}

#[test]
fn symbols_are_sent_of_sampled_modules_only_and_not_of_another_file_in_their_place() {
    let library = compiled("sampled.so", &["-Cdebuginfo=1"]);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.so");
    fs::copy(&library, &copy).unwrap();
    let module = module(&copy);
    let mut resolver = Resolver {
        left: LeftToCollector::All,
        ..Resolver::default()
    };
    let piece = |resolver: &mut Resolver| resolver.symbol_piece(&module.build_id, 0);
    let unknown = "no code of this build id was sampled";
    assert_eq!(piece(&mut resolver), Err(unknown));
    resolver.resolve(
        &[Address {
            address: 1,
            module: Some(&module),
        }],
        |_, _| {},
    );
    assert!(piece(&mut resolver).is_ok());
    assert_eq!(resolver.symbol_piece("", 0), Err(unknown));

    let stripped = folder.path().join("stripped.so");
    run("objcopy", &[&"--strip-all", &library, &stripped]);
    run(
        "objcopy",
        &[
            &"--remove-section=.dynsym",
            &"--remove-section=.gnu.hash",
            &stripped,
        ],
    );
    fs::rename(&stripped, &copy).unwrap();
    assert_eq!(
        piece(&mut resolver),
        Err("the file of the module has no symbols")
    );
    fs::copy(
        compiled("another.so", &["-Cdebuginfo=0", "-Copt-level=1"]),
        &copy,
    )
    .unwrap();
    let gone = "the file of the module is gone, or another one is in its place";
    assert_eq!(piece(&mut resolver), Err(gone));
    fs::remove_file(&copy).unwrap();
    assert_eq!(piece(&mut resolver), Err(gone));
}

#[test]
fn functions_are_left_to_the_collector_as_the_setting_says() {
    let full = compiled("setting.so", &["-Cdebuginfo=1"]);
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("stripped.so");
    run("objcopy", &[&"--strip-all", &full, &stripped]);
    let anonymous = folder.path().join("anonymous.so");
    run(
        "objcopy",
        &[&"--remove-section=.note.gnu.build-id", &full, &anonymous],
    );
    let named = |left, library: &Path| {
        let resolver = Resolver {
            left,
            ..Resolver::default()
        };
        let frames = resolved_by(resolver, &module(library), code_of(library));
        frames
            .iter()
            .flatten()
            .filter(|frame| frame.kind == FrameKind::Function)
            .count()
    };
    assert_eq!(named(LeftToCollector::All, &full), 0);
    assert_eq!(named(LeftToCollector::Stripped, &stripped), 0);
    assert_eq!(
        named(LeftToCollector::Stripped, &full),
        named(LeftToCollector::None, &full)
    );
    assert!(
        named(LeftToCollector::None, &stripped) > 0,
        "what the dynamic linker knows"
    );
    assert!(
        named(LeftToCollector::All, &anonymous) > 0,
        "nothing else identifies it"
    );
}
