//! Object files that are uploaded or found, as `emberline symbols reduce` and `upload` read them.

use fuzz::Target;
use fuzz::mutation::Shape;
use fuzz::parts;
use symbol_files::{SplitFiles, SymbolFile, reduce, reduce_split};

use crate::symbols::{libraries, split_libraries};

/// Where the code of small libraries is.
const CODE: std::ops::Range<u64> = 0x1000..0x1200;

/// An object file. The symbol file made of it must have no contradictions.
pub(crate) const REDUCE: Target = Target {
    name: "reduce",
    shape: Shape::Bytes,
    run: |input| {
        let mut made = Vec::new();
        if reduce(&input.to_vec(), &mut made).is_ok() {
            check(made);
        }
    },
    seeds: libraries,
};

/// An object file, the file of its units, a package of them, and what it shares with other files; the last two may
/// be empty.
pub(crate) const SPLIT: Target = Target {
    name: "split",
    shape: Shape::Bytes,
    run: |input| {
        let mut parts = parts::split(input).into_iter().map(<[u8]>::to_vec);
        let [program, unit, package, shared] = [(); 4].map(|()| parts.next().unwrap_or_default());
        let package = (!package.is_empty()).then_some(&package);
        let shared = (!shared.is_empty()).then_some(&shared);
        let split = SplitFiles {
            package,
            open_unit: &|_| Some(unit.clone()),
            shared,
        };
        let mut made = Vec::new();
        if reduce_split(&program, &split, &mut made).is_ok() {
            check(made);
        }
    },
    seeds: split_libraries,
};

/// A symbol file that was just made has no contradictions.
fn check(made: Vec<u8>) {
    let file = SymbolFile::open(made).expect("it was just made");
    file.verify().expect("it was just made");
    file.lookup(CODE).expect("it was verified");
}

/// A symbol file, as a collector receives it. One that passes the check answers every lookup.
pub(crate) const SYMBOL_FILES: Target = Target {
    name: "symbol-files",
    shape: Shape::Bytes,
    run: |input| {
        if let Ok(file) = SymbolFile::open(input.to_vec()) {
            let is_sound = file.verify().is_ok();
            let found = file.lookup(CODE);
            assert!(found.is_ok() || !is_sound, "{found:?}");
        }
    },
    seeds: || {
        libraries()
            .into_iter()
            .map(|(name, library): (String, Vec<u8>)| {
                let mut made = Vec::new();
                reduce(&library, &mut made).expect("a library of the compiler has symbols");
                (name, made)
            })
            .collect()
    },
};
