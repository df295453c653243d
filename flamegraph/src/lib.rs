//! Pure functions from a [`Profile`](profiler_core::Profile) to text: the same input gives the same
//! bytes on every machine and in every build of the same version.
//!
//! | function | for |
//! |---|---|
//! | [`svg()`] | a flame graph that zooms and searches in a browser |
//! | [`collapsed()`] | other flame graph tools: `task;frame;frame nanoseconds` |
//! | [`json()`], [`nested_json()`] | programs: the table of nodes, or the tree |
//! | [`ProfileColumns`] | the page: each function once, nodes as numbers |
//! | [`ParsedProfile`] | programs that read that table back |
//! | [`table()`] | the terminal: functions by time |
//!
//! Names come from foreign programs and are never trusted: see [`text::printable`].
//!
//! ```
//! use emberline_flamegraph::{SvgOptions, collapsed, svg};
//! use profiler_core::{CallTrie, Filter, Frame, Profile, State, SymbolTable};
//!
//! let mut symbols = SymbolTable::new();
//! let path = [Frame::task("load"), Frame::function("main", "src/main.rs", 3)]
//!     .map(|frame| symbols.intern(&frame));
//! let mut trie = CallTrie::new(1_000);
//! let leaf = trie.insert_path(path).expect("two nodes are within the limit");
//! trie.add(leaf, State::Cpu, 10_000_000);
//! let delta = trie.take_delta();
//! let profile = Profile::collect(&symbols, &trie, [&delta], &Filter::default());
//!
//! assert_eq!(collapsed(&profile), "load;main 10000000\n");
//! assert!(svg(&profile, &SvgOptions::default())?.contains("main (10.0 ms, 100.00%"));
//! # Ok::<(), emberline_flamegraph::SvgError>(())
//! ```

mod collapsed;
mod columns;
mod json;
mod nested;
mod owner;
mod palette;
mod parse;
mod prune;
mod svg;
mod table;
pub mod text;

pub use collapsed::collapsed;
pub use columns::ProfileColumns;
pub use json::{ProfileJson, json};
pub use nested::nested_json;
pub use parse::ParsedProfile;
pub use svg::{SvgError, SvgOptions, svg};
pub use table::table;

#[cfg(test)]
mod testing;
