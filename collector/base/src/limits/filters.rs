//! Limits on filters: parameters of the HTTP API, and matchers of Pyroscope's API.

/// Largest body of a request, in bytes.
pub const GRAFANA_BODY_BYTES_MAX: usize = 64 << 10;

/// Longest text of matchers, in bytes.
pub const MATCHERS_BYTES_MAX: usize = 8 << 10;

/// Most matchers of a query.
pub const MATCHERS_MAX: usize = 32;

/// Most bytes of a compiled pattern.
pub const MATCHER_PATTERN_BYTES_MAX: usize = 1 << 20;

/// Most lists of matchers in a request for labels.
pub const MATCHER_LISTS_MAX: usize = 16;

/// Most task names that matchers may select, unless they select all.
pub const MATCHED_TASKS_MAX: usize = 1_000;

/// Most labels to group series by.
pub const GROUP_LABELS_MAX: usize = 16;

/// Nodes of a flame graph without a limit in the query.
pub const FLAMEBEARER_NODES_DEFAULT: usize = 16_384;

/// Most nodes of a flame graph as levels of bars, whatever the query says.
pub const FLAMEBEARER_NODES_MAX: usize = 100_000;

/// Most values of one repeated parameter.
pub const FILTER_VALUES_MAX: usize = 100;

/// Most patterns of a parameter of a profile's view. A pattern is matched with every name.
pub const VIEW_PATTERNS_MAX: usize = 8;

/// Names of workers, and labels, in an answer for menus without a `limit` parameter.
pub const WORKER_NAMES_DEFAULT: usize = 200;

/// Most names of workers, and labels, in an answer for menus.
pub const WORKER_NAMES_MAX: usize = 1_000;

/// Most ids of workers in the answer with a profile, which has the number of all.
pub const PROFILE_WORKERS_MAX: usize = 1_000;

/// Most task names whose time is summed to choose those with totals of their own; past it, the half with
/// less time is forgotten.
pub const WEIGHED_NAMES_MAX: usize = 1 << 17;
