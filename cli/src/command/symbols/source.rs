//! The files that a table of names is made from: a program or its debug file, its split debug information,
//! and what it shares with other programs.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use symbol_files::{Reduced, SharedFile, SplitFiles, reduce_split, shared_file_of};

use crate::output::say;

/// The extension of a package of split debug information. Debuggers look for `NAME.dwp` next to `NAME`.
const PACKAGE: &str = "dwp";
/// The extension of a file that `objcopy --only-keep-debug` writes.
const DEBUG: &str = "debug";

/// Where packages put their debug files.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// A program or a debug file, with its package of split debug information if it has one.
pub(super) struct Source {
    pub(super) path: PathBuf,
    file: File,
    package: Option<Package>,
    /// Debug information shared with other programs, if it is supplied instead of looked for.
    shared: Option<File>,
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
        if path
            .extension()
            .is_some_and(|extension| extension == PACKAGE)
        {
            let program = path.with_extension("");
            let found = [program.clone(), program.with_added_extension(DEBUG)];
            let Some(program) = found.into_iter().find(|candidate| candidate.is_file()) else {
                bail!(
                    "{} has no addresses: its program must be next to it, as {} or {1}.{DEBUG}",
                    path.display(),
                    program.display()
                );
            };
            let package = Package {
                path: path.to_owned(),
                file: open(path)?,
                is_named: true,
            };
            let file = open(&program)?;
            return Ok(Source {
                file,
                path: program,
                package: Some(package),
                shared: None,
            });
        }
        let file = open(path)?;
        let mut candidates = vec![path.with_added_extension(PACKAGE)];
        if path.extension().is_some_and(|extension| extension == DEBUG) {
            candidates.push(path.with_extension(PACKAGE));
        }
        let package = candidates
            .into_iter()
            .find(|candidate| candidate.is_file())
            .map(|path| {
                let file = open(&path)?;
                anyhow::Ok(Package {
                    path,
                    file,
                    is_named: false,
                })
            });
        Ok(Source {
            path: path.to_owned(),
            file,
            package: package.transpose()?,
            shared: None,
        })
    }

    /// A file that has nothing next to it but what it shares with others.
    pub(super) fn alone(path: &Path, file: File, shared: Option<File>) -> Source {
        Source {
            path: path.to_owned(),
            file,
            package: None,
            shared,
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Makes the table of names. `is_trusted`: whether other files may be read where the program says that
    /// they are.
    pub(super) fn reduce(
        &self,
        is_trusted: bool,
        output: &mut impl Write,
    ) -> anyhow::Result<Reduced> {
        let path = self.path.display();
        let open_unit = |unit: &Path| {
            if is_trusted {
                self.open_unit(unit)
            } else {
                None
            }
        };
        let package = self.package.as_ref();
        let found = self.open_shared(is_trusted);
        let split = SplitFiles {
            package: package.map(|package| &package.file),
            open_unit: &open_unit,
            shared: self.shared.as_ref().or(found.as_ref()),
        };
        let reduced = reduce_split(&self.file, &split, output).with_context(|| match package {
            Some(package) => {
                format!(
                    "{path} with {} has no usable symbols",
                    package.path.display()
                )
            }
            None => format!("{path} has no usable symbols"),
        })?;
        if let Some(package) = package.filter(|package| package.is_named)
            && reduced.split_units == 0
        {
            bail!(
                "{path} has no units in {}: was it stripped?",
                package.path.display()
            );
        }
        if reduced.damaged_units > 0 {
            say(&format!(
                "{path}: {} damaged units have no lines",
                reduced.damaged_units
            ));
        }
        if reduced.missing_units > 0 {
            say(&format!(
                "{path}: the split debug information of {} of {} units is missing, so their inlined \
                 functions have no names; it is looked for in {path}.{PACKAGE} and in the .dwo files of the build",
                reduced.missing_units, reduced.split_units
            ));
        }
        if let Some(SharedFile { path: shared, id }) = &reduced.missing_shared {
            say(&format!(
                "{path}: the debug information that it shares (dwz) is missing, so inlined functions have no \
                 names: {} with the id {id}, which is looked for there and in {DEBUG_FILES}",
                shared.display()
            ));
        }
        Ok(reduced)
    }

    /// The file that this one shares debug information with: where its link says, or by its build id in the
    /// folder of debug files that this one is in.
    fn open_shared(&self, is_trusted: bool) -> Option<File> {
        // A link that is damaged is reported when the file is read.
        let linked = shared_file_of(&self.file).ok()??;
        let folder = self.path.parent()?;
        let by_id = |folders: &Path| {
            let (first, rest) = linked.id.split_at(2);
            folders.join(first).join(rest).with_added_extension(DEBUG)
        };
        let mut candidates: Vec<PathBuf> = folder.parent().map(by_id).into_iter().collect();
        if is_trusted {
            candidates.extend([folder.join(&linked.path), by_id(Path::new(DEBUG_FILES))]);
        }
        let files = candidates
            .into_iter()
            .filter(is_file)
            .filter_map(|path| File::open(path).ok());
        files
            .into_iter()
            .find(|file: &File| linked.is(file).unwrap_or(false))
    }

    /// The file of a unit: where it was written, or in the program's folder.
    fn open_unit(&self, unit: &Path) -> Option<File> {
        let in_folder = self
            .path
            .parent()
            .zip(unit.file_name())
            .map(|(folder, name)| folder.join(name));
        let mut candidates = [Some(unit.to_owned()), in_folder].into_iter().flatten();
        File::open(candidates.find(is_file)?).ok()
    }
}

/// Whether it is a file. Opening a pipe would wait for its other end.
fn is_file(path: &PathBuf) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file())
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}
