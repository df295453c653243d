//! Names of code that runtimes made, from the files in which they list it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock};

use symbol_files::perf_map;

use crate::Functions;

/// Those files, for programs that have ended: a runtime may write its file at its end, when agents have sent its addresses.
/// They are read for each query and never kept in memory.
#[derive(Debug, Default)]
pub struct MadeCode {
    /// By the process.
    files: OnceLock<BTreeMap<u32, File>>,
}

impl MadeCode {
    /// Sets the files, by process. Later calls change nothing.
    pub fn set(&self, files: BTreeMap<u32, File>) {
        let _ = self.files.set(files);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.files.get().is_some()
    }

    /// The names of addresses of a module; `None` if it is no process with a file.
    pub(crate) fn names(
        &self,
        module: &str,
        addresses: &BTreeSet<u64>,
    ) -> Option<BTreeMap<u64, Functions>> {
        let process = perf_map::process_of(module)?;
        let file = self.files.get()?.get(&process)?;
        let addresses: Vec<u64> = addresses.iter().copied().collect();
        let mut names = BTreeMap::new();
        perf_map::name(FromStart { file, at: 0 }, &addresses, |index, frame| {
            let frame = frame.map(Arc::from);
            names.insert(addresses[index], Arc::from([frame]));
        });
        Some(names)
    }
}

/// Whether the module stands for code that a runtime made.
pub fn is_made_code(module: &str) -> bool {
    perf_map::process_of(module).is_some()
}

/// Reads a file whose position others use too.
struct FromStart<'f> {
    file: &'f File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::{Addresses, Naming};

    #[test]
    fn code_of_a_process_is_named_from_its_file_once_that_is_there() {
        let made_code = Arc::new(MadeCode::default());
        let naming = Naming::default().with_made_code(Some(made_code.clone()));
        let wanted: Addresses = [
            ("perf-7.map", 0x1008),
            ("perf-8.map", 0x1008),
            ("abcd", 0x1008),
        ]
        .map(|(module, address)| (Arc::from(module), [address, 9].into()))
        .into();
        assert!(naming.names(&wanted).is_empty());
        let before = naming.revision();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"1000 10 long Main.hash(long)\n").unwrap();
        made_code.set([(7, file)].into());
        assert_ne!(naming.revision(), before);
        // Twice, because the file has one position.
        for _ in 0..2 {
            let names = naming.names(&wanted);
            let of_seven = &names["perf-7.map"];
            assert_eq!((names.len(), of_seven.len()), (1, 1));
            assert_eq!(&*of_seven[&0x1008][0].function, "Main.hash");
        }
    }
}
