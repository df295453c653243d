//! Libraries with and without debug information, and their symbol files, for tests.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;

use profiler_core::Timestamp;
use sha2::{Digest as _, Sha256};
use symbol_files::{build_id_of, reduce};
use tempfile::TempDir;

use crate::{Addresses, Functions, Naming, Piece, Received, SymbolSource, UploadError};

const SOURCE: &str = "
static inline __attribute__((always_inline)) long twice(long a) { return a * 2 ^ a >> 3; }
__attribute__((noinline)) long sum(const long *values, long count) {
    long total = 0;
    for (long i = 0; i < count; i++) total += twice(values[i]);
    return total;
}
";

/// A library in three forms: with debug information, stripped, and of another build.
#[derive(Debug)]
pub struct Libraries {
    pub folder: TempDir,
    pub build_id: String,
}

impl Libraries {
    pub fn compile() -> Libraries {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.c"), SOURCE).unwrap();
        fs::write(path("b.c"), SOURCE.replace('3', "5")).unwrap();
        for name in ["a", "b"] {
            let options = [
                "-O2",
                "-g",
                "-shared",
                "-fPIC",
                "-nostdlib",
                "-Wl,--build-id",
                "-o",
            ];
            run(Command::new("cc")
                .args(options)
                .arg(path(name))
                .arg(path(&format!("{name}.c"))));
        }
        run(Command::new("strip")
            .arg("-o")
            .arg(path("stripped"))
            .arg(path("a")));
        let build_id = build_id_of(&fs::read(path("a")).unwrap()).unwrap();
        Libraries { folder, build_id }
    }

    /// The symbol file of one of them.
    pub fn symbols(&self, name: &str) -> Vec<u8> {
        let library = fs::read(self.folder.path().join(name)).unwrap();
        let mut file = Vec::new();
        reduce(&library, &mut file).unwrap();
        file
    }

    /// The symbol file of the other build, with the build id of the first one.
    pub fn forged(&self) -> Vec<u8> {
        let mut library = fs::read(self.folder.path().join("b")).unwrap();
        let other = bytes_of(&build_id_of(&library).unwrap());
        let at = library
            .windows(other.len())
            .position(|part| part == other)
            .unwrap();
        library[at..at + other.len()].copy_from_slice(&bytes_of(&self.build_id));
        let mut file = Vec::new();
        reduce(&library, &mut file).unwrap();
        file
    }

    pub fn naming(&self, source: Option<SymbolSource>) -> Naming {
        Naming::open(self.folder.path().join("data/symbols"), source)
    }

    /// The names in the page of the code, as text.
    pub fn names(&self, naming: &Naming) -> BTreeSet<String> {
        let build: Arc<str> = self.build_id.as_str().into();
        let wanted = Addresses::from([(build.clone(), (0x1000..0x1100).collect())]);
        let names = naming.names(&wanted);
        let of_build = names.get(&build).cloned().unwrap_or_default();
        let chains = of_build.values().filter(|functions| !functions.is_empty());
        chains
            .map(|functions: &Functions| {
                let names = functions.iter().map(|frame| &*frame.function);
                names.collect::<Vec<_>>().join(" + ")
            })
            .collect()
    }
}

pub fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

pub fn bytes_of(hexadecimal: &str) -> Vec<u8> {
    let pairs = (0..hexadecimal.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap())
        .collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Uploads in pieces of `step` bytes.
pub fn upload(
    naming: &Naming,
    build_id: &str,
    file: &[u8],
    step: usize,
    replace: bool,
) -> Result<Received, UploadError> {
    let sha256 = sha256(file);
    let bytes = file.len() as u64;
    let send = |offset: usize, content: &[u8]| {
        let offset = offset as u64;
        naming.receive(&Piece {
            build_id,
            sha256: &sha256,
            bytes,
            offset,
            content,
            replace,
        })
    };
    let mut received = send(0, &[])?;
    while !received.is_stored {
        let start = received.bytes as usize;
        received = send(start, &file[start..file.len().min(start + step)])?;
    }
    Ok(received)
}

/// A program in place of `emberline`, by a script.
pub fn source(libraries: &Libraries, script: &str) -> SymbolSource {
    let program = libraries.folder.path().join("reader");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    SymbolSource {
        folder: Some(libraries.folder.path().to_owned()),
        debuginfod: Vec::new(),
        agents: false,
        program,
    }
}

/// The addresses of `sum`.
pub fn code(libraries: &Libraries) -> Vec<u64> {
    let build: Arc<str> = libraries.build_id.as_str().into();
    let naming = libraries.naming(None);
    upload(&naming, &build, &libraries.symbols("a"), 1 << 20, false).unwrap();
    let names = naming.names(&Addresses::from([(
        build.clone(),
        (0x1000..0x1100).collect(),
    )]));
    naming
        .remove_unused(Timestamp::from_unix_ns(i64::MAX))
        .unwrap();
    let named = names[&build]
        .iter()
        .filter(|(_, functions)| !functions.is_empty());
    named.map(|(address, _)| *address).take(16).collect()
}
