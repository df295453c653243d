//! Debug information in other files. If it is split, a program has a skeleton of each unit, with its addresses and lines. The
//! functions are in a file of the unit (`.dwo`), or in a package of all of them (`.dwp`).

use std::fmt;
use std::path::{Path, PathBuf};

use gimli::{
    DebugCuIndex, Dwarf, DwoId, Reader as _, SectionId, Unit, UnitIndex, UnitRef, UnitType,
};
use symbols::text;
use symbols::whole::{UNIT_BYTES_MAX, UNITS_MAX};

use super::ReadAt;
use super::elf::{DebugSections, Elf, ElfError, SectionReader};
use super::reduce::{ReduceError, dwarf_of};

/// The files that have parts of a program's debug information.
pub struct SplitFiles<'f, S> {
    /// The package (`.dwp`), which counts first.
    pub package: Option<&'f S>,
    /// Opens the file of one unit (`.dwo`) by its path in the program's debug information.
    pub open_unit: &'f dyn Fn(&Path) -> Option<S>,
    /// The debug information that `dwz` has moved out of several programs:
    /// [`shared_file_of`](super::shared_file_of) names its file.
    pub shared: Option<&'f S>,
}

impl<S> SplitFiles<'_, S> {
    /// No files: a program with split debug information has lines without inlined functions.
    #[must_use]
    pub fn none() -> Self {
        SplitFiles {
            package: None,
            open_unit: &|_| None,
            shared: None,
        }
    }
}

impl<S> fmt::Debug for SplitFiles<'_, S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_package = self.package.is_some();
        let has_shared = self.shared.is_some();
        formatter
            .debug_struct("SplitFiles")
            .field("has_package", &has_package)
            .field("has_shared", &has_shared)
            .finish_non_exhaustive()
    }
}

/// The sections of a package or of a unit's file.
pub(super) fn split_sections<S: ReadAt>(source: &S) -> Result<DebugSections, ElfError> {
    Elf::open(source)?.split_sections()
}

/// An open package.
#[derive(Debug)]
pub(super) struct Package<'s> {
    sections: &'s DebugSections,
    index: UnitIndex<SectionReader<'s>>,
}

impl<'s> Package<'s> {
    pub(super) fn open(sections: &'s DebugSections) -> Result<Package<'s>, ReduceError> {
        let index = DebugCuIndex::from(sections.get(SectionId::DebugCuIndex)).index();
        Ok(Package {
            sections,
            index: index.map_err(ReduceError::PackageIndex)?,
        })
    }

    /// The sections of a unit, for [`unit_of`]; `None` if the package does not have it.
    pub(super) fn sections_of_unit(
        &self,
        id: DwoId,
        skeleton: UnitRef<'_, SectionReader<'s>>,
    ) -> gimli::Result<Option<Dwarf<SectionReader<'s>>>> {
        let Some(row) = self.index.find(id.0) else {
            return Ok(None);
        };
        let parts: Vec<_> = self.index.sections(row)?.collect();
        let mut dwarf = Dwarf::load(|id| {
            let mut content = self.sections.get(id);
            let part = parts.iter().find(|part| part.section.section_id() == id);
            // Sections that lead to no function were not read.
            if let Some(part) = part.filter(|_| !content.is_empty()) {
                content.skip(part.offset as usize)?;
                content.truncate(part.size as usize)?;
            }
            Ok::<_, gimli::Error>(content)
        })?;
        dwarf.make_dwo(skeleton.dwarf);
        Ok(Some(dwarf))
    }
}

/// The id by which a skeleton and its unit find each other; `None` if the unit is no skeleton.
pub(super) fn split_id(unit: UnitRef<'_, SectionReader<'_>>) -> Option<DwoId> {
    // Before version 5 a skeleton is a unit with an id.
    let may_be_skeleton = matches!(
        unit.header.type_(),
        UnitType::Skeleton(_) | UnitType::Compilation
    );
    unit.dwo_id.filter(|_| may_be_skeleton)
}

/// The path of the unit's file.
pub(super) fn unit_path(skeleton: UnitRef<'_, SectionReader<'_>>) -> Option<PathBuf> {
    let name = skeleton.dwo_name().ok()??;
    let name = text(&skeleton.attr_string(name).ok()?).ok()?;
    let folder = skeleton
        .comp_dir
        .as_ref()
        .and_then(|folder| text(folder).ok())
        .unwrap_or_default();
    Some(Path::new(&folder).join(name))
}

/// The sections of a unit's file, for [`unit_of`].
pub(super) fn sections_of_unit<'s>(
    sections: &'s DebugSections,
    skeleton: UnitRef<'_, SectionReader<'s>>,
) -> gimli::Result<Dwarf<SectionReader<'s>>> {
    let mut dwarf = dwarf_of(sections)?;
    dwarf.make_dwo(skeleton.dwarf);
    Ok(dwarf)
}

/// The unit of a skeleton, with the skeleton's addresses, files and lines; `None` if the file has only
/// other units.
pub(super) fn unit_of<'s>(
    dwarf: &mut Dwarf<SectionReader<'s>>,
    skeleton: UnitRef<'_, SectionReader<'s>>,
    id: DwoId,
) -> gimli::Result<Option<Unit<SectionReader<'s>>>> {
    // Names of the skeleton's files are there.
    dwarf.debug_line_str = skeleton.dwarf.debug_line_str.clone();
    let mut headers = dwarf.units();
    for _ in 0..UNITS_MAX {
        let Some(header) = headers.next()? else { break };
        if header.unit_length() > UNIT_BYTES_MAX {
            continue;
        }
        let mut unit = dwarf.unit(header)?;
        if unit.dwo_id != Some(id) {
            continue;
        }
        unit.copy_relocated_attributes(skeleton.unit);
        // The unit's own table of files, if it has one, has the same numbers.
        if skeleton.line_program.is_some() {
            unit.line_program.clone_from(&skeleton.line_program);
            unit.comp_dir.clone_from(&skeleton.comp_dir);
        }
        return Ok(Some(unit));
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
