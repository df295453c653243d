//! Resolves code addresses to functions, files and lines with the `backtrace` crate. This is slow
//! and takes much memory, so it runs on the symbolizer's thread only, once per address.
//!
//! That crate ignores symbols that are not marked as functions, as those of assembly often are.
//! They are looked up here, by name only.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use object::{Object as _, ObjectSymbol as _, ReadCache, SectionKind, SymbolKind};
use object::{ObjectSection as _, SymbolSection};
use profiler_core::limits::bounded_name;
use profiler_core::{Frame, FrameKind};

use crate::fork;
use crate::sampler::CodeModule;

/// Most inlined functions at one address; beyond, the outermost are omitted.
const INLINED_MAX: usize = 64;

/// Code further than this from the preceding unmarked symbol does not belong to it.
const UNSIZED_BYTES_MAX: u64 = 64 << 10;

/// Resolves addresses, and caches the symbols of files until [`Resolver::release`].
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    /// By path: the file's unmarked symbols; empty if there are none or it cannot be read.
    unmarked: HashMap<Arc<str>, Unmarked>,
}

impl Resolver {
    /// The functions at `address`, the outermost first, followed by those inlined into it. For an
    /// address without a symbol this is one frame with its module and offset.
    pub(crate) fn resolve(
        &mut self,
        address: u64,
        module: Option<&CodeModule>,
    ) -> Vec<Frame<String>> {
        let mut base = Frame {
            kind: FrameKind::Function,
            function: String::new(),
            file: String::new(),
            line: 0,
            module: String::new(),
            build_id: String::new(),
            offset: 0,
            inlined: false,
        };
        if let Some(module) = module {
            base.module = bounded_name(&module.path).into_owned();
            base.build_id = module.build_id.to_string();
        }
        let mut frames = marked(address, &base);
        if frames.is_empty() {
            let offset = address.wrapping_sub(module.map_or(0, |module| module.base));
            let name = module.and_then(|module| self.unmarked(&module.path).find(offset));
            frames.push(match name {
                Some(function) => Frame { function, ..base },
                None => Frame { kind: FrameKind::Unresolved, offset, ..base },
            });
        }
        frames
    }

    fn unmarked(&mut self, path: &Arc<str>) -> &Unmarked {
        self.unmarked
            .entry(path.clone())
            .or_insert_with(|| Unmarked::read(path).unwrap_or_default())
    }

    /// Frees the memory of all tables; the next address loads them again.
    pub(crate) fn release(&mut self) {
        self.unmarked = HashMap::new();
        fork::while_resolving(backtrace::clear_symbol_cache);
    }
}

/// The functions that the `backtrace` crate finds at an address, the outermost first.
fn marked(address: u64, base: &Frame<String>) -> Vec<Frame<String>> {
    let mut frames: Vec<Frame<String>> = Vec::new();
    // The resolver expects a return address and subtracts one.
    let Ok(pointer) = usize::try_from(address.wrapping_add(1)) else {
        return frames;
    };
    let mut take = |symbol: &backtrace::Symbol| {
        // A line without a name would be useful too, but frames are merged by name.
        let Some(name) = symbol.name() else { return };
        if frames.len() < INLINED_MAX {
            let file = symbol.filename().map(|file| file.to_string_lossy().into_owned());
            frames.push(Frame {
                function: bounded_name(&format!("{name:#}")).into_owned(),
                file: bounded_name(&file.unwrap_or_default()).into_owned(),
                line: symbol.lineno().unwrap_or(0),
                inlined: true,
                ..base.clone()
            });
        }
    };
    let pointer = std::ptr::without_provenance_mut(pointer);
    fork::while_resolving(|| backtrace::resolve(pointer, &mut take));
    frames.reverse();
    if let Some(outermost) = frames.first_mut() {
        outermost.inlined = false;
    }
    frames
}

/// The code symbols of a file, by address: the name of a symbol that is not marked as a function,
/// `None` for one that is.
#[derive(Debug, Default)]
struct Unmarked(Vec<(u64, Option<Box<str>>)>);

impl Unmarked {
    fn read(path: &str) -> Option<Unmarked> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let is_code = |section: SymbolSection| {
            let section = section.index().and_then(|index| file.section_by_index(index).ok());
            section.is_some_and(|section| section.kind() == SectionKind::Text)
        };
        let mut symbols: Vec<_> = file
            .symbols()
            .filter(|symbol| is_code(symbol.section()))
            .map(|symbol| {
                let marked = symbol.kind() == SymbolKind::Text && symbol.size() > 0;
                let name = if marked { None } else { symbol.name().ok().map(Box::from) };
                (symbol.address(), name)
            })
            .collect();
        // Of several symbols at one address, one with a name is last and so is found.
        symbols.sort_unstable();
        Some(Unmarked(symbols))
    }

    fn find(&self, offset: u64) -> Option<String> {
        let after = self.0.partition_point(|(address, _)| *address <= offset);
        let (address, name) = self.0.get(after.checked_sub(1)?)?;
        let name = name.as_deref().filter(|_| offset - address < UNSIZED_BYTES_MAX)?;
        let demangled = backtrace::SymbolName::new(name.as_bytes());
        Some(bounded_name(&format!("{demangled:#}")).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_to_find() -> u32 {
        std::hint::black_box(line!())
    }

    #[test]
    fn a_function_is_found_with_its_file_and_line() {
        let line = a_function_to_find();
        let address = a_function_to_find as *const () as u64;
        let frames = Resolver::default().resolve(address, None);
        assert!(frames[0].function.ends_with("a_function_to_find"), "{frames:?}");
        assert!(frames[0].file.ends_with("symbols.rs"));
        assert!(frames[0].line > 0 && frames[0].line.abs_diff(line) < 10, "{frames:?}");
    }

    #[test]
    fn an_address_without_a_symbol_keeps_module_and_offset() {
        let module = CodeModule { path: "/opt/x.so".into(), build_id: "ab".into(), base: 0x10 };
        let frames = Resolver::default().resolve(0x30, Some(&module));
        assert_eq!(frames.len(), 1);
        assert_eq!((frames[0].kind, frames[0].offset), (FrameKind::Unresolved, 0x20));
        assert_eq!((&*frames[0].module, &*frames[0].build_id), ("/opt/x.so", "ab"));
    }

    #[test]
    fn an_unmarked_symbol_ends_at_the_next_symbol() {
        let symbols = Unmarked(vec![
            (0x100, None),
            (0x200, Some("_ZN3asm6kernelE".into())),
            (0x300, None),
            (0x400, Some("last".into())),
        ]);
        assert_eq!(symbols.find(0x0ff), None);
        assert_eq!(symbols.find(0x1ff), None);
        assert_eq!(symbols.find(0x2ff).as_deref(), Some("asm::kernel"));
        assert_eq!(symbols.find(0x300), None);
        assert_eq!(symbols.find(0x400 + UNSIZED_BYTES_MAX), None);
    }
}
