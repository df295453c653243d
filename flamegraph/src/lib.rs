//! Pure functions from a [`Profile`](profiler_core::Profile) to bytes and back: the same input gives the same
//! bytes on every machine and in every build of the same version.
//!
//! | function | for |
//! |---|---|
//! | [`svg()`] | a flame graph that zooms and searches in a browser |
//! | [`diff_svg()`] | a flame graph of the difference of two profiles |
//! | [`collapsed()`] | other flame graph tools: `task;frame;frame nanoseconds` |
//! | [`pprof()`] | `go tool pprof` and everything else that reads its format |
//! | [`pushed_pprof()`], [`OtlpRequest`] | receivers of pushed profiles, such as Pyroscope |
//! | [`speedscope()`], [`firefox()`] | the viewers of these names |
//! | [`flamebearer()`], [`diff_flamebearer()`] | Grafana and Pyroscope's API: levels of bars |
//! | [`json()`], [`nested_json()`] | programs: the table of nodes, or the tree |
//! | [`ProfileColumns`] | the page: each function once, nodes as numbers |
//! | [`ParsedProfile`], [`ParsedColumns`] | programs that read these back |
//! | [`table()`] | the terminal: functions by time |
//! | [`function_times()`] | tables of functions |
//!
//! The crate `emberline-import` goes the other way: from files of other profilers to samples.
//!
//! A [`View`] selects the part of a profile that they write. [`symbols`] has the rules for names.
//!
//! Names come from foreign programs and are never trusted: see [`text::printable`].
//!
//! ```
//! use emberline_flamegraph::{SvgOptions, collapsed, svg};
//! use profiler_core::{CallTrie, Filter, Frame, Profile, State, SymbolTable};
//!
//! let mut symbols = SymbolTable::new();
//! let path = [Frame::task("load"), Frame::function("app::main", "src/main.rs", 3)]
//!     .map(|frame| symbols.intern(&frame));
//! let mut trie = CallTrie::new(1_000);
//! let leaf = trie.insert_path(path).expect("two nodes are within the limit");
//! trie.add(leaf, State::Cpu, 10_000_000);
//! let delta = trie.take_delta();
//! let profile = Profile::collect(&symbols, &trie, [&delta], &Filter::default());
//!
//! assert_eq!(collapsed(&profile), "load;app::main 10000000\n");
//! assert!(svg(&profile, &SvgOptions::default())?.contains("app::main (10.0 ms, 100%"));
//! # Ok::<(), emberline_flamegraph::SvgError>(())
//! ```

mod collapsed;
mod columns;
mod export;
#[doc(hidden)]
pub mod firefox;
mod flamebearer;
mod functions;
mod json;
#[doc(hidden)]
pub mod messages;
mod nested;
mod otlp;
mod palette;
mod parse;
mod parse_columns;
mod pprof;
mod prune;
mod speedscope;
mod svg;
pub mod symbols;
mod table;
pub mod text;
mod view;

pub use collapsed::{WEIGHT_DIGITS_MIN, collapsed};
pub use columns::ProfileColumns;
pub use export::ExportOptions;
pub use firefox::firefox;
pub use flamebearer::{Flamebearer, diff_flamebearer, flamebearer};
pub use functions::{FunctionTime, function_times};
pub use json::{ProfileJson, json};
pub use nested::nested_json;
pub use otlp::OtlpRequest;
pub use parse::ParsedProfile;
pub use parse_columns::ParsedColumns;
pub use pprof::{PushedPprof, pprof, pushed_pprof};
pub use speedscope::speedscope;
pub use svg::{SUBTITLE_CHARS_MAX, SvgError, SvgOptions, diff_svg, svg};
pub use table::{TableOptions, TableOrder, table};
pub use view::{Hidden, PathId, Selector, SelectorError, Stacks, Unmatched, View, ViewedProfile};

#[cfg(test)]
mod build_paths;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
