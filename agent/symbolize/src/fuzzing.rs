//! The door of the target `symbols`.

use std::path::Path;
use std::sync::Arc;

use super::*;

/// Resolves addresses of the file at `path` as those of the program's own file. Returns the number of
/// functions that have names.
#[must_use]
pub fn symbols(path: &Path, addresses: &[u64]) -> usize {
    let module = Arc::new(CodeModule {
        path: path.to_string_lossy().into(),
        ..CodeModule::default()
    });
    let addresses: Vec<_> = addresses
        .iter()
        .map(|&address| Address {
            address,
            module: Some(&module),
        })
        .collect();
    let mut resolver = Resolver {
        program: Some(path.to_owned()),
        ..Resolver::default()
    };
    let mut named = 0;
    // Twice: the second batch uses the indexes of the first.
    for _ in 0..2 {
        named = 0;
        resolver.resolve(&addresses, |_, frames| {
            named += frames
                .iter()
                .filter(|frame| frame.kind == FrameKind::Function)
                .count();
        });
    }
    named
}
