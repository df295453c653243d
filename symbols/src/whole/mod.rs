//! All addresses of a file at once. Each unit is parsed once, and queried wherever a unit, a function, an inlined
//! function, a line or a symbol begins or ends: the frames only change there.
//!
//! Only `emberline-symbol-files` uses it, which writes what it finds.

mod compiled;
mod pieces;
mod unit;

pub use crate::debug_info::{UNIT_BYTES_MAX, UNITS_MAX};
pub use crate::origins::Origins;
pub use crate::symbol_index::Symbol;
pub use pieces::{Piece, pieces};
pub use unit::{AddressInfo, FunctionsKey, LINE_OF_ADDRESS, WholeUnit};
