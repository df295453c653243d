//! The parts of the format that exports use, as its version 55 has them. Tables are columns of equal
//! length. Readers convert older versions.

#![allow(missing_docs, reason = "names are those of the format's definition")]

use std::collections::HashMap;
use std::ops::Range;

use serde::Serialize;
use serde_json::Value;

use super::markers::{Marker, MarkerSchema, SCHEMAS};
use super::number_of;
use crate::text::printable;

/// Version of the format.
const VERSION: u32 = 55;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    pub meta: Meta,
    pub libs: Vec<Lib>,
    pub threads: Vec<Thread>,
    pages: [(); 0],
    profiler_overhead: [(); 0],
    pub counters: Vec<Counter>,
}

impl File {
    pub fn new(meta: Meta) -> File {
        let libs = Vec::new();
        let threads = Vec::new();
        File {
            meta,
            libs,
            threads,
            pages: [],
            profiler_overhead: [],
            counters: Vec::new(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    categories: &'static [CategoryMeta],
    debug: bool,
    extensions: Extensions,
    /// Milliseconds between two samples.
    interval: f64,
    preprocessed_profile_version: u32,
    process_type: u32,
    product: String,
    sample_units: SampleUnits,
    /// Milliseconds since 1970.
    start_time: f64,
    symbolicated: bool,
    paused_ranges: [(); 0],
    version: u32,
    uses_only_one_stack_type: bool,
    source_code_is_not_on_searchfox: bool,
    marker_schema: &'static [MarkerSchema],
}

impl Meta {
    /// Of a profile.
    pub fn new(title: &str, start_time: f64, interval_ns: u64) -> Meta {
        let title = printable(title);
        let product = if title.is_empty() {
            "Emberline".to_owned()
        } else {
            format!("Emberline: {title}")
        };
        Meta {
            categories: &FRAME_CATEGORIES,
            debug: false,
            extensions: Extensions::default(),
            interval: interval_ns as f64 / 1e6,
            preprocessed_profile_version: VERSION,
            process_type: 0,
            product,
            sample_units: SampleUnits {
                time: "ms",
                event_delay: "ms",
                cpu_delta: "µs",
            },
            start_time,
            symbolicated: true,
            paused_ranges: [],
            version: 24,
            uses_only_one_stack_type: true,
            source_code_is_not_on_searchfox: true,
            marker_schema: &[],
        }
    }

    /// Of a file with markers.
    pub fn of_markers(start_time: f64) -> Meta {
        Meta {
            categories: &MARKER_CATEGORIES,
            marker_schema: &SCHEMAS,
            ..Meta::new("", start_time, 1_000_000_000)
        }
    }
}

/// By [`Category`].
static FRAME_CATEGORIES: [CategoryMeta; 3] = [
    category("Other", "grey"),
    category("Task", "orange"),
    category("Function", "blue"),
];

/// By [`Marker::category`].
static MARKER_CATEGORIES: [CategoryMeta; 4] = [
    category("Other", "grey"),
    category("Task", "orange"),
    category("Phase", "yellow"),
    category("Transfer", "purple"),
];

const fn category(name: &'static str, color: &'static str) -> CategoryMeta {
    CategoryMeta {
        name,
        color,
        subcategories: ["Other"],
    }
}

/// Categories of frames.
#[derive(Clone, Copy)]
pub enum Category {
    Other,
    Task,
    Function,
}

#[derive(Serialize)]
struct CategoryMeta {
    name: &'static str,
    color: &'static str,
    subcategories: [&'static str; 1],
}

#[derive(Default, Serialize)]
struct Extensions {
    length: u32,
    #[serde(rename = "baseURL")]
    base_url: [(); 0],
    id: [(); 0],
    name: [(); 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleUnits {
    time: &'static str,
    event_delay: &'static str,
    #[serde(rename = "threadCPUDelta")]
    cpu_delta: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lib {
    arch: &'static str,
    name: String,
    path: String,
    debug_name: String,
    debug_path: String,
    breakpad_id: &'static str,
    /// The build id.
    code_id: Option<String>,
}

impl Lib {
    pub fn new(path: &str, build_id: &str) -> Lib {
        let name = path.rsplit('/').next().unwrap_or(path);
        Lib {
            arch: "",
            name: name.to_owned(),
            path: path.to_owned(),
            debug_name: name.to_owned(),
            debug_path: path.to_owned(),
            breakpad_id: "",
            code_id: (!build_id.is_empty()).then(|| build_id.to_owned()),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    pub name: String,
    pub is_main_thread: bool,
    pub pid: String,
    /// A number or a text.
    pub tid: Value,
    pub process_name: String,
    process_type: &'static str,
    process_startup_time: u32,
    process_shutdown_time: Option<u32>,
    register_time: u32,
    unregister_time: Option<u32>,
    paused_ranges: [(); 0],
    pub show_markers_in_timeline: bool,
    pub frame_table: FrameTable,
    pub func_table: FuncTable,
    pub markers: MarkerTable,
    native_symbols: NativeSymbols,
    pub resource_table: ResourceTable,
    pub samples: SampleTable,
    pub stack_table: StackTable,
    string_array: StringTable,
}

impl Thread {
    pub fn new(name: &str, tid: impl Into<Value>, weight_type: &'static str) -> Thread {
        Thread {
            name: printable(name).into_owned(),
            is_main_thread: false,
            pid: "1".to_owned(),
            tid: tid.into(),
            process_name: "Emberline".to_owned(),
            process_type: "default",
            process_startup_time: 0,
            process_shutdown_time: None,
            register_time: 0,
            unregister_time: None,
            paused_ranges: [],
            show_markers_in_timeline: false,
            frame_table: FrameTable::default(),
            func_table: FuncTable::default(),
            markers: MarkerTable::default(),
            native_symbols: NativeSymbols::default(),
            resource_table: ResourceTable::default(),
            samples: SampleTable {
                weight_type,
                ..SampleTable::default()
            },
            stack_table: StackTable::default(),
            string_array: StringTable::default(),
        }
    }

    /// The number of a text, which is made printable.
    pub fn string(&mut self, text: &str) -> u32 {
        let StringTable { list, numbers } = &mut self.string_array;
        let text = printable(text).into_owned();
        *numbers.entry(text).or_insert_with_key(|text| {
            list.push(text.clone());
            number_of(list.len() - 1)
        })
    }
}

/// Texts, each once.
#[derive(Default, Serialize)]
#[serde(transparent)]
struct StringTable {
    list: Vec<String>,
    #[serde(skip)]
    numbers: HashMap<String, u32>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FrameTable {
    length: u32,
    /// -1: not known.
    address: Vec<i32>,
    inline_depth: Vec<u32>,
    category: Vec<u32>,
    subcategory: Vec<u32>,
    func: Vec<u32>,
    native_symbol: Vec<Option<u32>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u32>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
}

impl FrameTable {
    pub fn push(&mut self, func: u32, category: Category, line: u32) -> u32 {
        self.address.push(-1);
        self.inline_depth.push(0);
        self.category.push(category as u32);
        self.subcategory.push(0);
        self.func.push(func);
        self.native_symbol.push(None);
        self.inner_window_id.push(0);
        self.line.push((line > 0).then_some(line));
        self.column.push(None);
        self.length += 1;
        self.length - 1
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FuncTable {
    length: u32,
    name: Vec<u32>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    /// -1: none.
    resource: Vec<i64>,
    file_name: Vec<Option<u32>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
}

impl FuncTable {
    pub fn push(&mut self, name: u32, file: Option<u32>, resource: Option<u32>) -> u32 {
        self.name.push(name);
        self.is_js.push(false);
        self.relevant_for_js.push(false);
        self.resource.push(resource.map_or(-1, i64::from));
        self.file_name.push(file);
        self.line_number.push(None);
        self.column_number.push(None);
        self.length += 1;
        self.length - 1
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MarkerTable {
    length: u32,
    category: Vec<u32>,
    data: Vec<Marker>,
    /// Milliseconds since the file's start.
    end_time: Vec<f64>,
    name: Vec<u32>,
    phase: Vec<u32>,
    /// Milliseconds since the file's start.
    start_time: Vec<f64>,
}

impl MarkerTable {
    pub fn push(&mut self, name: u32, times_ms: Range<f64>, marker: Marker) {
        /// An interval, in the reader's list of phases.
        const INTERVAL: u32 = 1;
        self.category.push(marker.category());
        self.data.push(marker);
        self.end_time.push(times_ms.end);
        self.name.push(name);
        self.phase.push(INTERVAL);
        self.start_time.push(times_ms.start);
        self.length += 1;
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NativeSymbols {
    length: u32,
    address: [(); 0],
    function_size: [(); 0],
    lib_index: [(); 0],
    name: [(); 0],
}

#[derive(Default, Serialize)]
pub struct ResourceTable {
    length: u32,
    lib: Vec<u32>,
    name: Vec<u32>,
    host: Vec<Option<u32>>,
    #[serde(rename = "type")]
    kind: Vec<u32>,
}

impl ResourceTable {
    pub fn push(&mut self, lib: u32, name: u32) -> u32 {
        /// A library, in the reader's list of kinds.
        const LIBRARY: u32 = 1;
        self.lib.push(lib);
        self.name.push(name);
        self.host.push(None);
        self.kind.push(LIBRARY);
        self.length += 1;
        self.length - 1
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SampleTable {
    length: u32,
    weight_type: &'static str,
    stack: Vec<Option<u32>>,
    /// Milliseconds since the sample before.
    time_deltas: Vec<f64>,
    weight: Vec<f64>,
    #[serde(rename = "threadCPUDelta")]
    cpu_delta: Vec<u64>,
}

impl SampleTable {
    /// Adds a sample at `delta_ms` after the one before.
    pub fn push(&mut self, stack: Option<u32>, delta_ms: f64, weight: f64, cpu_us: u64) {
        self.stack.push(stack);
        self.time_deltas.push(delta_ms);
        self.weight.push(weight);
        self.cpu_delta.push(cpu_us);
        self.length += 1;
    }
}

#[derive(Default, Serialize)]
pub struct StackTable {
    length: u32,
    prefix: Vec<Option<u32>>,
    frame: Vec<u32>,
}

impl StackTable {
    pub fn push(&mut self, prefix: Option<u32>, frame: u32) -> u32 {
        self.prefix.push(prefix);
        self.frame.push(frame);
        self.length += 1;
        self.length - 1
    }
}

/// A value over time of a process.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counter {
    pub category: &'static str,
    pub name: &'static str,
    pub description: &'static str,
    pub main_thread_index: usize,
    pub pid: String,
    pub samples: CounterSamples,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CounterSamples {
    length: u32,
    /// Growth since the sample before.
    count: Vec<f64>,
    number: Vec<u32>,
    /// Milliseconds since the sample before.
    time_deltas: Vec<f64>,
}

impl CounterSamples {
    pub fn push(&mut self, delta_ms: f64, growth: f64) {
        self.count.push(growth);
        self.number.push(0);
        self.time_deltas.push(delta_ms);
        self.length += 1;
    }
}
