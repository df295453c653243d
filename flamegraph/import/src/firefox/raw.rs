//! The browser's own format, which profiler.firefox.com turns into the processed one: `perf script report gecko` writes
//! it too. Tables are lists of rows, and a frame is a text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::error::ImportError;
use super::super::json::Table;
use super::super::limits::TABLE_ENTRIES_MAX;
use super::super::model::ImportFormat;
use super::{
    File, FrameTable, FuncTable, Lib, Meta, ResourceTable, Samples, StackTable, Tables, Thread,
    ThreadId,
};

/// The members that tell the raw format.
#[derive(Deserialize)]
struct Kind {
    meta: KindMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KindMeta {
    preprocessed_profile_version: Option<IgnoredAny>,
    version: Option<IgnoredAny>,
}

/// A process; the first one has the others.
#[derive(Deserialize)]
struct Process<'a> {
    #[serde(borrow)]
    meta: Meta<'a>,
    #[serde(borrow, default)]
    libs: RawLibs<'a>,
    #[serde(borrow)]
    threads: Table<RawThread<'a>>,
    #[serde(borrow, default)]
    processes: Table<Process<'a>>,
}

/// Libraries: a list, or a text with the JSON of a list, as versions before 4 have them.
#[derive(Default)]
struct RawLibs<'a>(Vec<RawLib<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for RawLibs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawLibs<'a>, D::Error> {
        deserializer.deserialize_any(RawLibsVisitor)
    }
}

struct RawLibsVisitor;

impl<'de> Visitor<'de> for RawLibsVisitor {
    type Value = RawLibs<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of libraries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<RawLibs<'de>, A::Error> {
        let table: Table<RawLib<'de>> = Table::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(RawLibs(table.into_vec()))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RawLibs<'de>, E> {
        let table: Table<RawLib<'_>> = serde_json::from_str(text).map_err(E::custom)?;
        let libs = table.into_vec().into_iter().map(RawLib::into_owned);
        Ok(RawLibs(libs.collect()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLib<'a> {
    #[serde(default)]
    start: u64,
    #[serde(default)]
    end: u64,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    code_id: Option<Cow<'a, str>>,
}

impl<'a> RawLib<'a> {
    fn into_owned<'o>(self) -> RawLib<'o> {
        RawLib {
            start: self.start,
            end: self.end,
            name: Cow::Owned(self.name.into_owned()),
            path: Cow::Owned(self.path.into_owned()),
            code_id: self.code_id.map(|id| Cow::Owned(id.into_owned())),
        }
    }

    fn path(&self) -> &Cow<'a, str> {
        if self.path.is_empty() {
            &self.name
        } else {
            &self.path
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawThread<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    tid: ThreadId,
    #[serde(borrow)]
    samples: Rows<'a>,
    #[serde(borrow)]
    stack_table: Rows<'a>,
    #[serde(borrow)]
    frame_table: Rows<'a>,
    #[serde(borrow)]
    string_table: Table<Cow<'a, str>>,
}

/// A table of rows; the schema has the column of each name.
#[derive(Deserialize)]
struct Rows<'a> {
    #[serde(borrow)]
    schema: HashMap<Cow<'a, str>, usize>,
    data: Table<Vec<Cell>>,
}

impl Rows<'_> {
    /// A column; without numbers if there is none of that name.
    fn column(&self, name: &str) -> impl Iterator<Item = Option<f64>> {
        let at = self.schema.get(name).copied().unwrap_or(usize::MAX);
        self.data
            .iter()
            .map(move |row| row.get(at).and_then(|cell| cell.0))
    }

    /// A column of indexes.
    fn indexes(&self, name: &str) -> impl Iterator<Item = Option<u32>> {
        self.column(name)
            .map(|cell| cell.map(|number| number as u32))
    }
}

/// A number, or none.
struct Cell(Option<f64>);

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cell, D::Error> {
        deserializer.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = Cell;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Cell, E> {
        Ok(Cell(Some(number as f64)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Cell, E> {
        Ok(Cell(Some(number as f64)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Cell, E> {
        Ok(Cell(Some(number)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Cell, E> {
        Ok(Cell(None))
    }

    fn visit_str<E>(self, _: &str) -> Result<Cell, E> {
        Ok(Cell(None))
    }

    fn visit_unit<E>(self) -> Result<Cell, E> {
        Ok(Cell(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cell, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Cell(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Cell(None))
    }
}

/// The content in the processed format; `None` if it is not in the raw one.
pub(super) fn processed(content: &[u8]) -> Option<Result<File<'_>, ImportError>> {
    let Kind { meta } = serde_json::from_slice(content).ok()?;
    if meta.preprocessed_profile_version.is_some() || meta.version.is_none() {
        return None;
    }
    let process = super::super::json::parse::<Process<'_>>(content, ImportFormat::Firefox);
    Some(process.map(file).map_err(|error| match error {
        ImportError::Invalid { reason, .. } => ImportError::Invalid {
            format: ImportFormat::Firefox,
            reason: format!(
                "{reason}; it is of the browser's own format: open it in profiler.firefox.com and save it there"
            ),
        },
        other => other,
    }))
}

fn file(process: Process<'_>) -> File<'_> {
    let mut threads = Vec::new();
    let meta = add_threads(process, None, &mut threads);
    threads.truncate(TABLE_ENTRIES_MAX);
    File {
        meta,
        libs: Table::default(),
        shared: Tables::default(),
        threads: threads.into(),
    }
}

/// Adds the threads of a process and of those in it, with times since the start of the first.
fn add_threads<'a>(
    process: Process<'a>,
    first_start: Option<f64>,
    threads: &mut Vec<Thread<'a>>,
) -> Meta<'a> {
    let start = first_start.unwrap_or(process.meta.start_time);
    let shift = process.meta.start_time - start;
    for thread in process.threads.into_vec() {
        threads.push(thread.processed(&process.libs.0, shift));
    }
    for child in process.processes.into_vec() {
        add_threads(child, Some(start), threads);
    }
    process.meta
}

impl<'a> RawThread<'a> {
    fn processed(self, libs: &[RawLib<'a>], shift: f64) -> Thread<'a> {
        let mut functions = Functions {
            libs,
            used: HashMap::new(),
            strings: Vec::new(),
            table: FuncTable::default(),
            own_libs: Vec::new(),
        };
        let mut lines = Vec::new();
        let locations = self.frame_table.indexes("location");
        for (location, line) in locations.zip(self.frame_table.indexes("line")) {
            let text = location.and_then(|at| self.string_table.get(at as usize));
            let line_of_text = functions.add(text.map_or("", AsRef::as_ref));
            lines.push(line.or(line_of_text));
        }
        let count = functions.table.name.len() as u32;
        let time = self.samples.column("time");
        let has_cpu = self.samples.schema.contains_key("threadCPUDelta");
        let lib_count = functions.own_libs.len() as u32;
        Thread {
            name: self.name,
            tid: self.tid,
            process_startup_time: 0.0,
            samples: Samples {
                stack: self.samples.indexes("stack").collect(),
                time: Some(
                    time.map(|time| (time.unwrap_or(0.0) + shift).max(0.0))
                        .collect(),
                ),
                time_deltas: None,
                weight: None,
                weight_type: None,
                cpu_delta: has_cpu.then(|| self.samples.column("threadCPUDelta").collect()),
            },
            libs: functions.own_libs.into(),
            string_array: functions.strings.into(),
            frame_table: FrameTable {
                func: (0..count).collect(),
                line: lines,
                ..FrameTable::default()
            },
            func_table: functions.table,
            resource_table: ResourceTable {
                lib: (0..lib_count).map(Some).collect(),
            },
            stack_table: StackTable {
                prefix: self.stack_table.indexes("prefix").collect(),
                prefix_offset: None,
                // A frame that is missing is an index out of range.
                frame: self
                    .stack_table
                    .indexes("frame")
                    .map(|frame| frame.unwrap_or(u32::MAX))
                    .collect(),
            },
        }
    }
}

/// Functions of a thread, one for each frame.
struct Functions<'l, 'a> {
    libs: &'l [RawLib<'a>],
    /// By library of the process, that of the thread.
    used: HashMap<usize, i64>,
    strings: Vec<Cow<'a, str>>,
    table: FuncTable,
    own_libs: Vec<Lib<'a>>,
}

impl<'a> Functions<'_, 'a> {
    /// Adds the function of a location: an address, `name (file:line:column)`, or a name. Returns its line.
    fn add(&mut self, location: &str) -> Option<u32> {
        let address = location
            .strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let lib = address.and_then(|address| {
            self.libs
                .iter()
                .position(|lib| (lib.start..lib.end).contains(&address))
        });
        let source = Source::parse(location);
        let text = match (address, lib, &source) {
            (Some(address), Some(lib), _) => {
                let lib = &self.libs[lib];
                // The label of an address without a name.
                let base_name = lib.path().rsplit('/').next().unwrap_or_default();
                format!("{base_name}+{:#x}", address - lib.start)
            }
            (_, _, Some(source)) => source.function.to_owned(),
            _ => location.to_owned(),
        };
        let name = self.string(text);
        let file = source
            .as_ref()
            .map(|source| self.string(source.file.to_owned()));
        self.table.name.push(name);
        self.table.file_name.push(file);
        let resource = lib.map_or(-1, |lib| self.lib(lib));
        self.table.resource.push(resource);
        source.map(|source| source.line)
    }

    fn string(&mut self, text: String) -> u32 {
        self.strings.push(Cow::Owned(text));
        self.strings.len() as u32 - 1
    }

    fn lib(&mut self, index: usize) -> i64 {
        if let Some(known) = self.used.get(&index) {
            return *known;
        }
        let lib = &self.libs[index];
        self.own_libs.push(Lib {
            path: lib.path().clone(),
            code_id: lib.code_id.clone(),
        });
        let own = self.own_libs.len() as i64 - 1;
        self.used.insert(index, own);
        own
    }
}

/// `function (file:line:column)`, as JavaScript has it; other programs write `function (in library)`.
struct Source<'l> {
    function: &'l str,
    file: &'l str,
    line: u32,
}

impl<'l> Source<'l> {
    fn parse(location: &'l str) -> Option<Source<'l>> {
        let (function, place) = location.strip_suffix(')')?.rsplit_once(" (")?;
        let (place_of_line, last) = place.rsplit_once(':')?;
        let last = last.parse().ok()?;
        let with_column = place_of_line.rsplit_once(':').and_then(|(file, line)| {
            Some(Source {
                function,
                file,
                line: line.parse().ok()?,
            })
        });
        Some(with_column.unwrap_or(Source {
            function,
            file: place_of_line,
            line: last,
        }))
    }
}
