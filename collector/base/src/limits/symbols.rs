//! Limits on symbol files and on names of functions.

use std::time::Duration;

/// Longest time by which names of functions may delay an answer.
pub const NAMING_WAIT_MAX: Duration = Duration::from_millis(200);

/// Longest time to look up all names of a store's functions for a query in SQL.
pub const NAMING_ALL_MAX: Duration = Duration::from_secs(10);

/// Addresses that are looked up at once, between two looks at the clock.
pub const LOOKUP_ADDRESSES: usize = 2_048;

/// Most addresses whose names are kept between queries, at about 200 bytes each.
pub const NAMED_ADDRESSES_MAX: usize = 256 << 10;

/// Most open symbol files.
pub const SYMBOL_FILES_OPEN_MAX: usize = 64;

/// Most bytes of a symbol file: ten times that of a debug file of 500 MB.
pub const SYMBOL_FILE_BYTES_MAX: u64 = 1 << 30;

/// Most bytes of all symbol files.
pub const SYMBOL_STORE_BYTES_MAX: u64 = 16 << 30;

/// Most uploads of symbol files that are not complete.
pub const SYMBOL_UPLOADS_MAX: usize = 8;

/// Most bytes of a piece of a symbol file.
pub const SYMBOL_PIECE_BYTES_MAX: usize = 2 << 20;

/// How often the collector looks for files that queries want.
pub const FIND_SYMBOLS_EVERY: Duration = Duration::from_millis(200);

/// Longest time to read a file with debug information.
pub const REDUCE_MAX: Duration = Duration::from_secs(300);

/// Most builds that wait for their files to be read.
pub const WANTED_BUILDS_MAX: usize = 256;

/// Most bytes of the symbols that an agent sends of one module: at its 1 MiB a second, 17 minutes.
pub const AGENT_SYMBOLS_BYTES_MAX: u64 = 1 << 30;

/// Longest time in which an agent sends a piece of symbols.
pub const SYMBOL_PIECE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Most agents from which the symbols of one build are requested, one after the other.
pub const SYMBOL_AGENTS_MAX: usize = 4;

/// Most builds whose symbols are to be fetched from agents.
pub const SYMBOL_FETCHES_MAX: usize = 256;

/// Most builds of which it is known why they have no names.
pub const FINDINGS_MAX: usize = 4_096;

/// Most modules without names in an answer; those with the most time.
pub const UNNAMED_MODULES_MAX: usize = 20;
