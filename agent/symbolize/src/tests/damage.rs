//! Damaged files, and files of another kind.

use proptest::prelude::*;

use super::*;

/// A library with debug information that the cases below damage.
fn sound() -> &'static (Vec<u8>, std::ops::Range<u64>) {
    static SOUND: OnceLock<(Vec<u8>, std::ops::Range<u64>)> = OnceLock::new();
    SOUND.get_or_init(|| {
        let library = compiled("sound.so", &["-Cdebuginfo=2"]);
        (fs::read(&library).unwrap(), code_of(&library))
    })
}

/// The offset of a name is the section's plus its own: both are the file's.
#[test]
fn names_of_sections_past_every_offset_are_empty() {
    let (bytes, code) = sound();
    let mut bytes = bytes.clone();
    let table = usize::try_from(elf::word(&bytes, 40).unwrap()).unwrap();
    let names_index = usize::from(elf::short(&bytes, 62).unwrap());
    let offset_of_names = table + names_index * 64 + 24;
    bytes[offset_of_names..offset_of_names + 8].fill(0xff);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &bytes).unwrap();
    let path = file.path().to_str().unwrap().into();
    let module = Arc::new(CodeModule {
        path,
        ..CodeModule::default()
    });
    let frames = resolved_by(Resolver::default(), &module, code.start..code.start + 1);
    // The table of symbols is found by its kind, not by its name.
    assert_eq!(frames[0][0].kind, FrameKind::Function);
    assert!(
        Elf::open(file.path(), &ChunkCache::new(None).unwrap())
            .unwrap()
            .section(".text")
            .is_none()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Damage of any bytes, and any length of the file, costs names at most.
    #[test]
    fn a_damaged_file_costs_names_only(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        header in prop::collection::vec((0..64_usize, any::<u8>()), 0..2),
        kept in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let (bytes, code) = sound();
        let mut bytes = bytes.clone();
        for (at, value) in &damage {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        for (at, value) in header {
            bytes[at] = value;
        }
        if let Some(kept) = kept {
            bytes.truncate(kept.index(bytes.len()));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes).unwrap();
        let path = file.path().to_str().unwrap().into();
        let module = Arc::new(CodeModule { path, ..CodeModule::default() });
        let frames = resolved_by(Resolver::default(), &module, code.clone().step_by(7));
        for frames in frames {
            prop_assert!(!frames.is_empty());
            prop_assert!(frames.iter().all(|frame: &Frame<String>| frame.function.len() <= 4096 && frame.file.len() <= 4096));
        }
    }
}

#[test]
fn a_pipe_in_place_of_a_debug_file_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    assert!(Elf::open(&pipe, &ChunkCache::new(None).unwrap()).is_none());
}
