//! Object files that are uploaded or found, as `emberline symbols reduce` and `upload` read them.

use fuzz::Target;
use fuzz::mutation::Shape;
use symbols::file::{SymbolFile, reduce};

use crate::symbols::libraries;

/// Where the code of small libraries is.
const CODE: std::ops::Range<u64> = 0x1000..0x1200;

/// An object file. What is made of it must be a symbol file without contradictions.
pub(crate) const REDUCE: Target = Target {
    name: "reduce",
    shape: Shape::Bytes,
    run: |input| {
        let mut made = Vec::new();
        if reduce(&input.to_vec(), &mut made).is_ok() {
            let file = SymbolFile::open(made).expect("it was just made");
            file.verify().expect("it was just made");
            file.lookup(CODE).expect("it was verified");
        }
    },
    seeds: libraries,
};

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
        let reduced = |(name, library): (String, Vec<u8>)| {
            let mut made = Vec::new();
            reduce(&library, &mut made).expect("a library of the compiler has symbols");
            (name, made)
        };
        libraries().into_iter().map(reduced).collect()
    },
};
