#![doc = include_str!("../README.md")]
//!
//! Files are opened for one batch of addresses and read in parts; what stays between batches are small indexes of where
//! things are. Names of compiled functions come from the table of symbols, names of inlined ones from debug information.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu",
    not(emberline_no_sampler)
))]

mod compressed;
mod elf;
mod file;
#[cfg(emberline_fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod made_code;
mod mapped;
mod module;
mod perf_map;
mod piece;
mod section;
mod subject;
mod vdso;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use gimli::{Dwarf, DwarfFileType, SectionId};
use profiler_core::limits::bounded_name;
use profiler_core::{Frame, FrameKind};
use rustc_hash::FxHashMap;
use symbols::{DebugInfo, LastUnit, Locations, SECTIONS, SymbolIndex, frames_of};

use self::elf::{Elf, SymbolSections};
use self::file::ChunkCache;
pub use self::file::FileIdentity;
use self::made_code::MadeCode;
use self::mapped::MappedCode;
pub use self::module::{CodeModule, build_id_in};
pub use self::piece::SymbolPiece;
use self::section::SectionReader;
pub use self::subject::Subject;
use system::pages::Pages;

/// Batches without an address of a module after which its indexes are freed.
const IDLE_BATCHES_MAX: u32 = 10;
/// Most modules with indexes; the one that was idle for longest makes room.
const INDEXED_MODULES_MAX: usize = 64;

/// The functions that are left to the collector, which can name them from symbol files of their build id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeftToCollector {
    /// None.
    #[default]
    None,
    /// Those of modules that are stripped: with neither debug information nor a full table of symbols.
    Stripped,
    /// Those of all modules with a build id.
    All,
}

/// An address to resolve.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// Where the code is in the memory of the process.
    pub address: u64,
    /// `None` outside every module.
    pub module: Option<&'a Arc<CodeModule>>,
}

/// Resolves addresses, and keeps indexes of the files that it used lately.
#[derive(Debug, Default)]
pub struct Resolver {
    left: LeftToCollector,
    /// By path and build id.
    indexes: FxHashMap<(Arc<str>, Arc<str>), ModuleIndex>,
    /// The process whose addresses they are.
    subject: Subject,
    made_code: MadeCode,
    /// The program's own file, if it is known.
    program: Option<PathBuf>,
    /// Memory into which the last batch read files, kept for the next one soon.
    memory: Option<Pages>,
    /// Addresses that have no name because there was no memory to find it.
    unnamed: u64,
    /// When to give up finding names, once that is known.
    names_until: Arc<OnceLock<Instant>>,
    /// By build id: modules whose code was sampled.
    sampled: FxHashMap<Arc<str>, Arc<CodeModule>>,
}

/// State of a module's files that is kept between batches.
#[derive(Debug)]
struct ModuleIndex {
    /// The files that it was made from.
    files: Vec<FileIdentity>,
    symbols: SymbolIndex,
    debug_info: DebugInfo,
    decompressed: compressed::Sections,
    supplementary: compressed::Sections,
    idle_batches: u32,
}

impl Resolver {
    /// Resolves addresses of the process in which it is.
    #[must_use]
    pub fn of_this_process(left: LeftToCollector) -> Resolver {
        Resolver::of(Subject::default(), left)
    }

    /// Resolves addresses of that process.
    #[must_use]
    pub fn of(subject: Subject, left: LeftToCollector) -> Resolver {
        Resolver {
            left,
            program: subject.program(),
            subject,
            ..Resolver::default()
        }
    }

    /// Stops finding names at that time, once it is set: addresses are then left to the collector.
    #[must_use]
    pub fn until(self, names_until: Arc<OnceLock<Instant>>) -> Resolver {
        Resolver {
            names_until,
            ..self
        }
    }

    /// Resolves `addresses` in an order of its own. Passes each one's index and its functions to
    /// `each`, the outermost first, followed by those inlined into it; at least one. For an address
    /// without a symbol this is one frame with its module and offset, named by the start of its function if that is known.
    pub fn resolve(
        &mut self,
        addresses: &[Address<'_>],
        mut each: impl FnMut(usize, &[Frame<String>]),
    ) {
        for index in self.indexes.values_mut() {
            index.idle_batches += 1;
        }
        self.indexes
            .retain(|_, index| index.idle_batches < IDLE_BATCHES_MAX);
        if addresses.is_empty() {
            if self.indexes.is_empty() {
                self.memory = None;
            }
            return;
        }
        let mapped = self.mapped_code(addresses);
        let module_of = |address: &Address<'_>| {
            let code = mapped
                .iter()
                .find(|code| code.range.contains(&address.address));
            code.map(|code| &code.module)
        };
        let addresses: Vec<Address<'_>> = addresses
            .iter()
            .map(|address| Address {
                module: address.module.or_else(|| module_of(address)),
                ..*address
            })
            .collect();
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        // By module, and by address so that each unit is parsed once.
        order.sort_unstable_by_key(|index| {
            let Address { address, module } = addresses[*index];
            (
                module.map(|module| (&module.path, &module.build_id)),
                address,
            )
        });
        let cache = ChunkCache::new(self.memory.take());
        let names_until = self.names_until.clone();
        for group in
            order.chunk_by(|a: &usize, b: &usize| addresses[*a].module == addresses[*b].module)
        {
            let module = addresses[group[0]].module;
            if module.is_none() && !is_late(&names_until) {
                self.name_made_code(group, &addresses, &mut each);
                continue;
            }
            self.note_sampled(module);
            let mut open = None;
            let mut has_names = false;
            match (module, &cache) {
                (Some(module), _) if self.leaves(module) || is_late(&names_until) => {}
                (Some(module), Some(cache)) => {
                    open = OpenModule::open(&self.subject, module, cache, self.is_program(module));
                    let may_leave =
                        self.left == LeftToCollector::Stripped && collector_may_know(module);
                    has_names =
                        !may_leave || open.as_ref().is_some_and(OpenModule::names_functions);
                }
                (Some(_), None) => self.unnamed += group.len() as u64,
                (None, _) => {}
            }
            let mut index = match (&mut open, module) {
                (Some(open), Some(module)) if has_names => Some(self.index_of(module, open)),
                _ => None,
            };
            let mut last = LastUnit::default();
            for number in group {
                let address = addresses[*number].address;
                let frames = match (&open, &mut index, module) {
                    (Some(open), Some(index), Some(module)) if !is_late(&names_until) => {
                        open.frames(index, &mut last, address.wrapping_sub(module.base))
                    }
                    _ => Vec::new(),
                };
                let mut frames = completed(frames, address, module);
                if let (Some(open), [frame]) = (&open, &mut frames[..]) {
                    open.name_by_start(frame);
                }
                each(*number, &frames);
            }
        }
        self.memory = cache.and_then(ChunkCache::into_memory);
    }

    /// The code of addresses outside of modules that is in files.
    fn mapped_code(&mut self, addresses: &[Address<'_>]) -> Vec<MappedCode> {
        let mut outside: Vec<u64> = addresses
            .iter()
            .filter(|address| address.module.is_none())
            .map(|address| address.address)
            .collect();
        if outside.is_empty() {
            return Vec::new();
        }
        outside.sort_unstable();
        let cache = ChunkCache::new(self.memory.take());
        let mapped = cache
            .as_ref()
            .map(|cache| mapped::code_at(&self.subject, &outside, cache));
        self.memory = cache.and_then(ChunkCache::into_memory);
        mapped.unwrap_or_default()
    }

    /// Names code outside of modules, which a runtime has made.
    fn name_made_code(
        &mut self,
        group: &[usize],
        addresses: &[Address<'_>],
        each: &mut impl FnMut(usize, &[Frame<String>]),
    ) {
        let made: Vec<u64> = group
            .iter()
            .map(|index| addresses[*index].address)
            .collect();
        let mut named: Vec<Option<Frame<String>>> = vec![None; group.len()];
        perf_map::name(&self.subject, &made, |index, frame| {
            named[index] = Some(frame)
        });
        for (index, frame) in named.into_iter().enumerate() {
            let frame = frame.unwrap_or_else(|| self.made_code.frame(&self.subject, made[index]));
            each(group[index], &[frame]);
        }
    }

    /// Whether the collector names the module's functions.
    fn leaves(&self, module: &CodeModule) -> bool {
        self.left == LeftToCollector::All && collector_may_know(module)
    }

    fn is_program(&self, module: &CodeModule) -> bool {
        self.program.as_deref() == Some(Path::new(&*module.path))
    }

    /// Returns and clears the number of addresses that have no name for want of memory.
    pub fn take_unnamed(&mut self) -> u64 {
        std::mem::take(&mut self.unnamed)
    }

    fn index_of(&mut self, module: &CodeModule, open: &mut OpenModule) -> &mut ModuleIndex {
        let key = (module.path.clone(), module.build_id.clone());
        let known = self
            .indexes
            .get(&key)
            .is_some_and(|index| index.files == open.files);
        if !known {
            if self.indexes.len() >= INDEXED_MODULES_MAX {
                let oldest = self
                    .indexes
                    .iter()
                    .max_by_key(|(_, index)| index.idle_batches);
                if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                    self.indexes.remove(&oldest);
                }
            }
            self.indexes.insert(key.clone(), ModuleIndex::empty(open));
        }
        let index = self
            .indexes
            .entry(key)
            .or_insert_with(|| ModuleIndex::empty(open));
        index.idle_batches = 0;
        open.load_sections(index);
        if !known {
            index.fill(open);
        }
        index
    }
}

impl ModuleIndex {
    fn empty(open: &OpenModule) -> ModuleIndex {
        ModuleIndex {
            files: open.files.clone(),
            symbols: SymbolIndex::default(),
            debug_info: DebugInfo::empty(),
            decompressed: compressed::Sections::default(),
            supplementary: compressed::Sections::default(),
            idle_batches: 0,
        }
    }

    fn fill(&mut self, open: &OpenModule) {
        if let Some((elf, sections)) = open.symbols() {
            self.symbols = SymbolIndex::read(&elf.symbol_table(sections)).unwrap_or_default();
        }
        if let Some(sections) = &open.sections {
            self.debug_info = DebugInfo::read(sections);
        }
    }
}

/// The files of a module while a batch is resolved.
struct OpenModule {
    binary: Elf,
    /// The file with debug information, if it is another one.
    debug: Option<Elf>,
    supplementary: Option<Elf>,
    files: Vec<FileIdentity>,
    symbols: Option<SymbolSections>,
    sections: Option<Dwarf<SectionReader>>,
    /// Whether it is the program and not one of its libraries.
    is_program: bool,
}

fn is_late(until: &OnceLock<Instant>) -> bool {
    until.get().is_some_and(|until| Instant::now() >= *until)
}

/// Whether a collector can have names of the module: it needs a build id, and the vDSO has no file that somebody
/// would upload.
fn collector_may_know(module: &CodeModule) -> bool {
    !module.build_id.is_empty() && !vdso::is_vdso(module)
}

impl OpenModule {
    fn open(
        subject: &Subject,
        module: &CodeModule,
        cache: &ChunkCache,
        is_program: bool,
    ) -> Option<OpenModule> {
        let is_loaded = |elf: &Elf| {
            if module.build_id.is_empty() {
                !mapped::is_replaced(subject, &module.path)
                    && module.file.is_none_or(|file| file == elf.identity)
            } else {
                elf.build_id().as_deref() == Some(&*module.build_id)
            }
        };
        let found = if vdso::is_vdso(module) {
            vdso::open(subject.memory, module, cache)
        } else {
            Elf::open(&subject.path(&module.path), cache)
        };
        let binary = found.filter(is_loaded).or_else(|| {
            // The program's file was deleted or replaced.
            let own = Elf::open(&subject.executable(), cache)?;
            let is_own = if module.build_id.is_empty() {
                is_program
            } else {
                is_loaded(&own)
            };
            is_own.then_some(own)
        })?;
        let has_own = [".debug_info", ".zdebug_info"]
            .iter()
            .any(|name| binary.section(name).is_some());
        let debug = if has_own {
            None
        } else {
            binary.separate_debug_file(cache)
        };
        let with_info = debug.as_ref().unwrap_or(&binary);
        let supplementary = with_info.supplementary_file(cache);
        let files = [Some(&binary), debug.as_ref(), supplementary.as_ref()]
            .into_iter()
            .flatten()
            .map(|elf| elf.identity)
            .collect();
        let mut open = OpenModule {
            binary,
            debug,
            supplementary,
            files,
            symbols: None,
            sections: None,
            is_program,
        };
        open.symbols = open.symbol_file().symbols();
        Some(open)
    }

    /// Names a frame without a symbol by the start of its function, so that all addresses of one have one name.
    fn name_by_start(&self, frame: &mut Frame<String>) {
        if frame.kind != FrameKind::Unresolved {
            return;
        }
        if let Some(offset) = self.binary.function_start(frame.offset) {
            let start = Frame {
                offset,
                ..frame.clone()
            };
            frame.function = start.label();
        }
    }

    /// Whether its files name more functions than the dynamic linker needs.
    fn names_functions(&self) -> bool {
        let has_info = |elf: &Elf| elf.section(".debug_info").is_some();
        self.symbol_file().has_full_symbols()
            || has_info(self.debug.as_ref().unwrap_or(&self.binary))
    }

    /// The file with the better table of symbols.
    fn symbol_file(&self) -> &Elf {
        let full = self.debug.as_ref().filter(|debug| debug.has_full_symbols());
        full.unwrap_or(&self.binary)
    }

    fn symbols(&self) -> Option<(&Elf, &SymbolSections)> {
        Some((self.symbol_file(), self.symbols.as_ref()?))
    }

    fn load_sections(&mut self, index: &mut ModuleIndex) {
        let load = |elf: &Elf, decompressed: &mut compressed::Sections| {
            Dwarf::load(|id: SectionId| {
                let needed = SECTIONS.contains(&id);
                let reader = needed.then(|| elf.debug_section(id.name(), decompressed));
                Ok::<_, gimli::Error>(reader.unwrap_or_else(SectionReader::missing))
            })
            .ok()
        };
        let with_info = self.debug.as_ref().unwrap_or(&self.binary);
        // Decompressed sections take megabytes and tens of milliseconds, again and again. Of
        // libraries, such as the C library with its debug package, symbols are enough.
        if !self.is_program && with_info.has_compressed_info() {
            return;
        }
        let mut sections = load(with_info, &mut index.decompressed);
        let shared = self
            .supplementary
            .as_ref()
            .and_then(|elf| load(elf, &mut index.supplementary));
        if let (Some(sections), Some(mut shared)) = (&mut sections, shared) {
            shared.file_type = DwarfFileType::Main;
            sections.set_sup(shared);
        }
        self.sections = sections;
    }

    /// Whether a function without a symbol starts between an address and the symbol of no size before it. Assembly has such
    /// symbols, and the dynamic linker's table lacks those of functions that are not exported.
    fn starts_after_symbol(&self, index: &ModuleIndex, address: u64) -> bool {
        let symbol = u32::try_from(address)
            .ok()
            .and_then(|address| index.symbols.find(address))
            .filter(|symbol| symbol.bytes == 0);
        symbol.is_some_and(|symbol| {
            let start = self.binary.function_start(address);
            start.is_some_and(|start| start > symbol.start.into())
        })
    }

    /// The functions at an address of the file, without their module; empty if none is known.
    fn frames(
        &self,
        index: &mut ModuleIndex,
        last: &mut LastUnit<SectionReader>,
        address: u64,
    ) -> Vec<Frame<String>> {
        let symbol = self.symbols().and_then(|(elf, sections)| {
            let is_known = elf.has_full_symbols() || !self.starts_after_symbol(index, address);
            is_known
                .then(|| index.symbols.name_of(address, &elf.symbol_table(sections)))
                .flatten()
        });
        let found = match &self.sections {
            // Damaged debug information leaves the symbol.
            Some(sections) if !index.debug_info.is_empty() => index
                .debug_info
                .locate(sections, last, address)
                .unwrap_or_default(),
            _ => Locations::default(),
        };
        frames_of(&found, symbol.as_deref())
    }
}

/// Adds the module, and the offset if there is no function.
fn completed(
    mut frames: Vec<Frame<String>>,
    address: u64,
    module: Option<&Arc<CodeModule>>,
) -> Vec<Frame<String>> {
    if frames.is_empty() {
        frames.push(Frame {
            kind: FrameKind::Unresolved,
            offset: address.wrapping_sub(module.map_or(0, |module| module.base)),
            ..Frame::function("", "", 0).map(str::to_owned)
        });
    }
    if let Some(module) = module {
        for frame in &mut frames {
            frame.module = bounded_name(&module.path).into_owned();
            frame.build_id = module.build_id.to_string();
        }
    }
    frames
}

#[cfg(test)]
mod tests;
