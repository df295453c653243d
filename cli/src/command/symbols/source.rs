//! The files that a table of names is made from: a program or its debug file, and its split debug
//! information.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use symbols::file::{Reduced, SplitFiles, reduce_split};

use crate::output::say;

/// The extension of a package of split debug information. Debuggers look for `NAME.dwp` next to `NAME`.
const PACKAGE: &str = "dwp";
/// The extension of a file that `objcopy --only-keep-debug` writes.
const DEBUG: &str = "debug";

/// A program or a debug file, with its package of split debug information if it has one.
pub(super) struct Source {
    pub(super) path: PathBuf,
    file: File,
    package: Option<Package>,
}

struct Package {
    path: PathBuf,
    file: File,
    /// Whether it was named, and not found next to the program.
    is_named: bool,
}

impl Source {
    /// Opens a file. A package stands for the program next to it, because it has no addresses.
    pub(super) fn open(path: &Path) -> anyhow::Result<Source> {
        if path.extension().is_some_and(|extension| extension == PACKAGE) {
            let program = path.with_extension("");
            let found = [program.clone(), program.with_added_extension(DEBUG)];
            let Some(program) = found.into_iter().find(|candidate| candidate.is_file()) else {
                bail!(
                    "{} has no addresses: its program must be next to it, as {} or {1}.{DEBUG}",
                    path.display(),
                    program.display()
                );
            };
            let package = Package { path: path.to_owned(), file: open(path)?, is_named: true };
            return Ok(Source { file: open(&program)?, path: program, package: Some(package) });
        }
        let file = open(path)?;
        let mut candidates = vec![path.with_added_extension(PACKAGE)];
        if path.extension().is_some_and(|extension| extension == DEBUG) {
            candidates.push(path.with_extension(PACKAGE));
        }
        let package = candidates.into_iter().find(|candidate| candidate.is_file());
        let package = package.map(|path| {
            let file = open(&path)?;
            anyhow::Ok(Package { path, file, is_named: false })
        });
        Ok(Source { path: path.to_owned(), file, package: package.transpose()? })
    }

    /// A file that has nothing next to it.
    pub(super) fn alone(path: &Path, file: File) -> Source {
        Source { path: path.to_owned(), file, package: None }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Makes the table of names. `is_trusted`: whether files of units may be read where the program says
    /// that they are.
    pub(super) fn reduce(
        &self,
        is_trusted: bool,
        output: &mut impl Write,
    ) -> anyhow::Result<Reduced> {
        let path = self.path.display();
        let open_unit = |unit: &Path| if is_trusted { self.open_unit(unit) } else { None };
        let package = self.package.as_ref();
        let split =
            SplitFiles { package: package.map(|package| &package.file), open_unit: &open_unit };
        let reduced = reduce_split(&self.file, &split, output).with_context(|| match package {
            Some(package) => {
                format!("{path} with {} has no usable symbols", package.path.display())
            }
            None => format!("{path} has no usable symbols"),
        })?;
        if let Some(package) = package.filter(|package| package.is_named)
            && reduced.split_units == 0
        {
            bail!("{path} has no units in {}: was it stripped?", package.path.display());
        }
        if reduced.damaged_units > 0 {
            say(&format!("{path}: {} damaged units have no lines", reduced.damaged_units));
        }
        if reduced.missing_units > 0 {
            say(&format!(
                "{path}: the split debug information of {} of {} units is missing, so their inlined \
                 functions are; it is looked for in {path}.{PACKAGE} and in the .dwo files of the build",
                reduced.missing_units, reduced.split_units
            ));
        }
        Ok(reduced)
    }

    /// The file of a unit: where it was written, or in the program's folder.
    fn open_unit(&self, unit: &Path) -> Option<File> {
        let in_folder =
            self.path.parent().zip(unit.file_name()).map(|(folder, name)| folder.join(name));
        let mut candidates = [Some(unit.to_owned()), in_folder].into_iter().flatten();
        // Opening a pipe would wait for its other end.
        let is_file = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file());
        File::open(candidates.find(is_file)?).ok()
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}
