//! Entries of debug information that other entries refer to: in the same unit, in another one, or in the
//! file that several programs share.

use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, Reader, Result, Unit, UnitOffset, UnitRef};
use rustc_hash::FxHashMap;

use crate::debug_info::{Sections, UNITS_MAX, unit_offset};
use crate::functions::{Attributes, Location};

/// Most steps from an entry to the one that has its name.
const STEPS_MAX: usize = 16;
/// Most units that are kept; beyond, all are parsed again.
const UNITS_KEPT_MAX: usize = 2_048;

/// The units that entries refer to.
#[derive(Debug)]
pub struct Origins<R: Reader<Offset = usize>> {
    /// Where the units of each file begin; `None`: they are searched from the first on.
    starts: Option<Starts>,
    units: FxHashMap<UnitKey, Rc<Unit<R>>>,
}

/// Sorted offsets of units.
#[derive(Debug)]
struct Starts {
    own: Vec<usize>,
    shared: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct UnitKey {
    is_shared: bool,
    start: usize,
}

/// How an entry was reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    steps: usize,
    /// Whether it is in the shared file.
    is_shared: bool,
}

impl Reached {
    /// Without a reference.
    pub(crate) const DIRECTLY: Reached = Reached {
        steps: 0,
        is_shared: false,
    };
}

impl<R: Reader<Offset = usize>> Origins<R> {
    /// For a few entries.
    #[must_use]
    pub fn of_few() -> Origins<R> {
        Origins {
            starts: None,
            units: FxHashMap::default(),
        }
    }

    /// For all entries of a file. With common parts in units of their own, as by `dwz` and by optimization
    /// across units, nearly every function refers to another unit.
    #[must_use]
    pub fn of_all(sections: &Sections<R>) -> Origins<R> {
        let shared = sections.sup().map(starts_of).unwrap_or_default();
        let starts = Starts {
            own: starts_of(sections),
            shared,
        };
        Origins {
            starts: Some(starts),
            units: FxHashMap::default(),
        }
    }

    /// The names of the entry that `origin` refers to.
    pub(crate) fn names(
        &mut self,
        unit: UnitRef<'_, R>,
        origin: &AttributeValue<R>,
        reached: Reached,
    ) -> Result<Location> {
        if reached.steps == STEPS_MAX {
            return Ok(Location::default());
        }
        let reached = Reached {
            steps: reached.steps + 1,
            ..reached
        };
        match origin {
            AttributeValue::UnitRef(offset) => self.names_of_entry(unit, *offset, reached),
            AttributeValue::DebugInfoRef(offset) => {
                self.names_in_section(unit.dwarf, *offset, reached)
            }
            AttributeValue::DebugInfoRefSup(offset) => match unit.dwarf.sup() {
                Some(sections) => {
                    let reached = Reached {
                        is_shared: true,
                        ..reached
                    };
                    self.names_in_section(sections, *offset, reached)
                }
                None => Ok(Location::default()),
            },
            _ => Ok(Location::default()),
        }
    }

    fn names_of_entry(
        &mut self,
        unit: UnitRef<'_, R>,
        offset: UnitOffset,
        reached: Reached,
    ) -> Result<Location> {
        let mut entries = unit.entries_raw(Some(offset))?;
        let Some(abbreviation) = entries.read_abbreviation()? else {
            return Ok(Location::default());
        };
        Attributes::read(&mut entries, abbreviation)?.names(unit, self, reached)
    }

    fn names_in_section(
        &mut self,
        sections: &Sections<R>,
        DebugInfoOffset(offset): DebugInfoOffset,
        reached: Reached,
    ) -> Result<Location> {
        let Some(start) = self.unit_with(sections, offset, reached.is_shared)? else {
            return Ok(Location::default());
        };
        let key = UnitKey {
            is_shared: reached.is_shared,
            start,
        };
        let unit = match self.units.get(&key) {
            Some(unit) => unit.clone(),
            None => {
                let header = sections
                    .debug_info
                    .header_from_offset(DebugInfoOffset(start))?;
                let unit = Rc::new(sections.unit(header)?);
                if self.units.len() == UNITS_KEPT_MAX {
                    self.units.clear();
                }
                self.units.insert(key, unit.clone());
                unit
            }
        };
        if offset - start >= unit.header.length_including_self() {
            return Ok(Location::default());
        }
        self.names_of_entry(
            UnitRef::new(sections, &unit),
            UnitOffset(offset - start),
            reached,
        )
    }

    /// Where the unit with an entry begins. Entries name their unit only by lying within it.
    fn unit_with(
        &self,
        sections: &Sections<R>,
        offset: usize,
        is_shared: bool,
    ) -> Result<Option<usize>> {
        if let Some(Starts { own, shared }) = &self.starts {
            let starts = if is_shared { shared } else { own };
            let after = starts.partition_point(|start| *start <= offset);
            return Ok(after.checked_sub(1).map(|last| starts[last]));
        }
        let mut headers = sections.units();
        for _ in 0..UNITS_MAX {
            let Some(header) = headers.next()? else { break };
            let start = unit_offset(&header);
            let Some(within) = offset.checked_sub(start) else {
                break;
            };
            if within < header.length_including_self() {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }
}

/// Where the units of a file begin, up to a damaged one.
fn starts_of<R: Reader<Offset = usize>>(sections: &Sections<R>) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut headers = sections.units();
    while starts.len() < UNITS_MAX {
        let Ok(Some(header)) = headers.next() else {
            break;
        };
        starts.push(unit_offset(&header));
    }
    starts
}
