//! The unit that counts at each address.

use crate::debug_info::{CodeRange, DebugInfo, range_of};

/// Addresses from `start` to `end` that belong to the same unit, or to none.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The first address.
    pub start: u32,
    /// The address behind the last one.
    pub end: u32,
    /// The unit's offset.
    pub unit: Option<u32>,
}

/// A piece with the range that counts there.
struct RangePiece {
    start: u32,
    end: u32,
    range: Option<CodeRange>,
}

/// Divides the addresses from 0 to the last one into pieces.
#[must_use]
pub fn pieces(info: &DebugInfo) -> Vec<Piece> {
    let ranges = &info.units;
    let mut bounds: Vec<u32> = ranges
        .iter()
        .flat_map(|range| [range.start, range.start.saturating_add(range.bytes)])
        .chain([0])
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    let ends = bounds.iter().skip(1).copied().chain([u32::MAX]);
    let mut pieces: Vec<RangePiece> = Vec::new();
    for (&start, end) in bounds.iter().zip(ends) {
        let range = range_of(ranges, start.into());
        match pieces.last_mut() {
            Some(last) if last.range == range => last.end = end,
            _ => pieces.push(RangePiece { start, end, range }),
        }
    }
    let units = pieces.iter().map(|RangePiece { start, end, range }| Piece {
        start: *start,
        end: *end,
        unit: range.map(|range| range.target),
    });
    units.collect()
}
