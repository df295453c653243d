//! The CPython of the process: found by the symbols of its files, read from outside.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use agent::outside::{ModuleFile, ProcessSamples};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _, ReadCache};
use python_stacks::{Interpreter, InterpreterSlot, Search, Unsupported};

/// Part of the paths of libraries that contain the interpreter. A program may contain it, too.
const LIBRARY: &str = "/libpython3";
/// Largest file that is read; libpython with debug information has 30 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Beginnings of the names of its symbols.
const PREFIXES: [&str; 2] = ["Py", "_Py"];

/// The search for it.
pub(crate) struct PythonSearch {
    process: u32,
    /// It lives as long as this program, which names its frames until its own end.
    slot: &'static InterpreterSlot,
    search: Search,
    /// Files whose symbols were read.
    files: Vec<ModuleFile>,
    exports: Option<Exports>,
    result: Arc<OnceLock<Result<(), Unsupported>>>,
}

/// Symbols that a file exports.
struct Exports {
    path: String,
    ranges: HashMap<String, Range<u64>>,
}

impl PythonSearch {
    /// A search in that process; the result is set when there is one.
    pub(crate) fn new(
        process: u32,
        result: Arc<OnceLock<Result<(), Unsupported>>>,
    ) -> PythonSearch {
        PythonSearch {
            process,
            slot: Box::leak(Box::new(InterpreterSlot::new())),
            search: Search::default(),
            files: Vec::new(),
            exports: None,
            result,
        }
    }

    /// Searches again, unless that is over. `samples` show the functions of what is found.
    pub(crate) fn look(&mut self, samples: &mut ProcessSamples) {
        if self.result.get().is_some() {
            return;
        }
        self.read_files(samples);
        let PythonSearch {
            process,
            slot,
            search,
            exports,
            result,
            ..
        } = self;
        let looked = slot.look_by(search, || {
            let exports = exports.as_ref().ok_or(Unsupported::NoInterpreter)?;
            Interpreter::find_in(*process, exports.path.clone(), &|name| exports.range(name))
        });
        if looked == Ok(false) {
            return;
        }
        let found = looked.map(|_| samples.set_walker(*slot));
        // Nobody else sets it.
        let _ = result.set(found);
    }

    /// The walker of what was found.
    pub(crate) fn walker(&self) -> Option<&'static InterpreterSlot> {
        matches!(self.result.get(), Some(Ok(()))).then_some(self.slot)
    }

    /// Reads the symbols of the program and of Python's libraries, if others are loaded than before.
    fn read_files(&mut self, samples: &ProcessSamples) {
        let files: Vec<ModuleFile> = samples
            .module_files()
            .filter(|module| module.is_program || module.path.contains(LIBRARY))
            .collect();
        if files != self.files {
            self.exports = files.iter().find_map(Exports::read);
            self.files = files;
        }
    }
}

impl Exports {
    /// `None` if the file has no interpreter.
    fn read(module: &ModuleFile) -> Option<Exports> {
        let file = ReadCache::new(open(&module.file)?);
        let elf = ElfFile64::<Endianness, _>::parse(&file).ok()?;
        let mut exports = Exports {
            path: module.path.clone(),
            ranges: HashMap::new(),
        };
        for symbol in elf
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition())
        {
            let Ok(name) = symbol.name() else {
                continue;
            };
            if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                let start = module.base.wrapping_add(symbol.address());
                let range = start..start.saturating_add(symbol.size());
                exports.ranges.insert(name.to_owned(), range);
            }
        }
        exports.ranges.contains_key("_PyRuntime").then_some(exports)
    }

    fn range(&self, name: &CStr) -> Option<Range<u64>> {
        self.ranges.get(name.to_str().ok()?).cloned()
    }
}

/// Opens a file of another process, which may have put anything in its place: does not wait for it.
fn open(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).ok()?;
    let facts = file.metadata().ok()?;
    (facts.is_file() && facts.len() <= FILE_BYTES_MAX).then_some(file)
}
