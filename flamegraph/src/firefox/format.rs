//! The parts of the format that exports use, as its version 55 has them. Tables are columns of equal
//! length. Readers convert older versions.

use serde::Serialize;

/// Version of the format.
const VERSION: u32 = 55;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct File {
    pub(super) meta: Meta,
    pub(super) libs: Vec<Lib>,
    pub(super) threads: Vec<Thread>,
    pub(super) pages: [(); 0],
    pub(super) profiler_overhead: [(); 0],
    pub(super) counters: [(); 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    categories: [CategoryMeta; 3],
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
    marker_schema: [(); 0],
}

impl Meta {
    pub(super) fn new(title: &str, start_time: f64, interval_ns: u64) -> Meta {
        let title = crate::text::printable(title);
        let product =
            if title.is_empty() { "Emberline".to_owned() } else { format!("Emberline: {title}") };
        Meta {
            categories: [
                CategoryMeta { name: "Other", color: "grey", subcategories: ["Other"] },
                CategoryMeta { name: "Task", color: "orange", subcategories: ["Other"] },
                CategoryMeta { name: "Function", color: "blue", subcategories: ["Other"] },
            ],
            debug: false,
            extensions: Extensions::default(),
            interval: interval_ns as f64 / 1e6,
            preprocessed_profile_version: VERSION,
            process_type: 0,
            product,
            sample_units: SampleUnits { time: "ms", event_delay: "ms", cpu_delta: "µs" },
            start_time,
            symbolicated: true,
            paused_ranges: [],
            version: 24,
            uses_only_one_stack_type: true,
            source_code_is_not_on_searchfox: true,
            marker_schema: [],
        }
    }
}

/// Categories of frames, by their number in [`Meta`].
#[derive(Clone, Copy)]
pub(super) enum Category {
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
pub(super) struct Lib {
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
    pub(super) fn new(path: &str, build_id: &str) -> Lib {
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
pub(super) struct Thread {
    name: String,
    is_main_thread: bool,
    pid: &'static str,
    tid: u32,
    process_name: &'static str,
    process_type: &'static str,
    process_startup_time: u32,
    process_shutdown_time: Option<u32>,
    register_time: u32,
    unregister_time: Option<u32>,
    paused_ranges: [(); 0],
    show_markers_in_timeline: bool,
    pub(super) frame_table: FrameTable,
    pub(super) func_table: FuncTable,
    markers: MarkerTable,
    native_symbols: NativeSymbols,
    pub(super) resource_table: ResourceTable,
    pub(super) samples: SampleTable,
    pub(super) stack_table: StackTable,
    pub(super) string_array: Vec<String>,
}

impl Thread {
    pub(super) fn new(name: String, tid: u32) -> Thread {
        Thread {
            name,
            is_main_thread: false,
            pid: "1",
            tid,
            process_name: "Emberline",
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
            samples: SampleTable { weight_type: "tracing-ms", ..SampleTable::default() },
            stack_table: StackTable::default(),
            string_array: Vec::new(),
        }
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FrameTable {
    pub(super) length: u32,
    /// -1: not known.
    pub(super) address: Vec<i32>,
    pub(super) inline_depth: Vec<u32>,
    pub(super) category: Vec<u32>,
    pub(super) subcategory: Vec<u32>,
    pub(super) func: Vec<u32>,
    pub(super) native_symbol: Vec<Option<u32>>,
    #[serde(rename = "innerWindowID")]
    pub(super) inner_window_id: Vec<u32>,
    pub(super) line: Vec<Option<u32>>,
    pub(super) column: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FuncTable {
    pub(super) length: u32,
    pub(super) name: Vec<u32>,
    #[serde(rename = "isJS")]
    pub(super) is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    pub(super) relevant_for_js: Vec<bool>,
    /// -1: none.
    pub(super) resource: Vec<i64>,
    pub(super) file_name: Vec<Option<u32>>,
    pub(super) line_number: Vec<Option<u32>>,
    pub(super) column_number: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct MarkerTable {
    length: u32,
    category: [(); 0],
    data: [(); 0],
    end_time: [(); 0],
    name: [(); 0],
    phase: [(); 0],
    start_time: [(); 0],
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
pub(super) struct ResourceTable {
    pub(super) length: u32,
    pub(super) lib: Vec<u32>,
    pub(super) name: Vec<u32>,
    pub(super) host: Vec<Option<u32>>,
    #[serde(rename = "type")]
    pub(super) kind: Vec<u32>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SampleTable {
    pub(super) length: u32,
    weight_type: &'static str,
    pub(super) stack: Vec<Option<u32>>,
    /// Milliseconds since the sample before.
    pub(super) time_deltas: Vec<f64>,
    pub(super) weight: Vec<f64>,
    #[serde(rename = "threadCPUDelta")]
    pub(super) cpu_delta: Vec<u64>,
}

#[derive(Default, Serialize)]
pub(super) struct StackTable {
    pub(super) length: u32,
    pub(super) prefix: Vec<Option<u32>>,
    pub(super) frame: Vec<u32>,
}
