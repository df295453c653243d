//! The symbols of a module in pieces, as a collector requests them.

use std::sync::Arc;

use super::file::ChunkCache;
use super::module::CodeModule;
use super::{OpenModule, Resolver, Subject};

/// Most bytes of a piece.
const PIECE_BYTES_MAX: usize = 128 << 10;
/// Most modules that a collector can ask for.
const MODULES_MAX: usize = 1_024;

/// A piece of the symbols of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolPiece {
    /// Size of the whole.
    pub bytes: u64,
    /// The piece.
    pub content: Vec<u8>,
}

impl Resolver {
    /// A collector may ask for the symbols of this module from now on.
    pub(super) fn note_sampled(&mut self, module: Option<&Arc<CodeModule>>) {
        let Some(module) = module.filter(|module| !module.build_id.is_empty()) else {
            return;
        };
        if self.sampled.len() < MODULES_MAX && !self.sampled.contains_key(&module.build_id) {
            self.sampled.insert(module.build_id.clone(), module.clone());
        }
    }

    /// The piece from `offset` on of the symbols of a module; empty at their end. The file is opened for
    /// each piece, so that no descriptor stays open.
    ///
    /// # Errors
    /// If the module was not sampled, or if its file is gone, replaced, unreadable or without symbols. The text is for
    /// people.
    pub fn symbol_piece(
        &mut self,
        build_id: &str,
        offset: u64,
    ) -> Result<SymbolPiece, &'static str> {
        let module = self
            .sampled
            .get(build_id)
            .ok_or("no code of this build id was sampled")?;
        let cache = ChunkCache::new(self.memory.take()).ok_or("there is no memory to read them")?;
        let piece = read(&self.subject, module, &cache, offset);
        self.memory = cache.into_memory();
        piece
    }
}

fn read(
    subject: &Subject,
    module: &CodeModule,
    cache: &ChunkCache,
    offset: u64,
) -> Result<SymbolPiece, &'static str> {
    let open = OpenModule::open(subject, module, cache, false)
        .ok_or("the file of the module is gone, or another one is in its place")?;
    let elf = open.debug.as_ref().unwrap_or(&open.binary);
    let extract = elf
        .extract()
        .ok_or("the file of the module has no symbols")?;
    let content = extract
        .read(offset, PIECE_BYTES_MAX)
        .map_err(|_| "the file of the module cannot be read")?;
    Ok(SymbolPiece {
        bytes: extract.bytes(),
        content,
    })
}
