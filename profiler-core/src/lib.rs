//! The model of Emberline: plain values shared by the agent, the collector and every export.
//!
//! One idea carries the project: **a profile is a table of tree nodes (parent, frame, weight), with
//! every parent before its children, and merging is addition.** The same table is the agent's
//! [`CallTrie`], the flush on the wire, the answer to a query and the input of every export.
//!
//! Reading order: [`time`], [`weight`], [`symbol`] (frames and strings), [`trie`] (counting),
//! [`delta`] (what one second adds), [`profile`] (merged, read-only), [`task`] (rows of the
//! ledger), [`telemetry`] and [`resources`] (everything else a worker reports), [`bucket`]
//! (duration histograms), [`control`] (settings and thread dumps of a running agent), [`wire`]
//! (bytes between agent and collector), [`endpoint`] (where a collector listens), [`token`] (who may
//! connect), [`limits`].
//!
//! Nothing here reads a clock, opens a file or starts a thread.
//!
//! ```
//! use emberline_profiler_core::{CallTrie, Filter, Frame, FrameKind, Profile, State, SymbolTable};
//!
//! let mut symbols = SymbolTable::new();
//! let task = symbols.intern(&Frame::task("load"));
//! let main = symbols.intern(&Frame::function("main", "src/main.rs", 3));
//! let mut trie = CallTrie::new(1_000);
//! let leaf = trie.insert_path([task, main]).expect("two nodes are within the limit");
//! trie.add(leaf, State::Cpu, 10_000_000);
//! let delta = trie.take_delta();
//!
//! let profile = Profile::collect(&symbols, &trie, [&delta], &Filter::default());
//! assert_eq!(profile.total().get(State::Cpu), 10_000_000);
//! ```

pub mod bucket;
mod build_id;
pub mod control;
pub mod delta;
pub mod endpoint;
pub mod hash;
pub mod limits;
pub mod profile;
pub mod resources;
mod session_key;
pub mod symbol;
pub mod task;
pub mod telemetry;
pub mod ticks;
pub mod time;
pub mod token;
pub mod trie;
pub mod weight;
pub mod wire;

pub use build_id::{BUILD_ID_BYTES_MAX, valid_build_id};
pub use control::{Settings, SettingsChange, ThreadSnapshot};
pub use delta::{Delta, Window};
pub use endpoint::{Endpoint, Fingerprint};
pub use profile::{Filter, Profile, ProfileDiff, ThreadKind};
pub use resources::{Resource, ResourceSample};
pub use session_key::SessionKey;
pub use symbol::{CodePlace, Frame, FrameId, FrameKind, NoStack, StringId, SymbolTable};
pub use task::{Epoch, Outcome, PHASES, PhaseInterval, TaskDetail, TaskId, TaskRecord, WorkerId};
pub use telemetry::{
    Direction, ExpectedTasks, RunId, RunMarker, TaskTotals, Telemetry, TransferEvent, TransferId,
};
pub use ticks::Ticks;
pub use time::{TimeRange, Timestamp};
pub use token::{Token, TokenId};
pub use trie::{CallTrie, Full, NodeId};
pub use weight::{State, StateSet, Weight};
