//! The workers of a file, in its footer, so that a query for others needs no other byte of it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader};

use super::super::manifest::FileEntry;
use super::super::objects::Objects;
use super::bytes::FileBytes;
use super::decode_checked;
use crate::sums::row::WorkerNumber;
use base::id_set::IdSet;

/// The fact in the footer: a checksum, because nothing else of the file is checked, and ranges of numbers.
const WORKERS_FACT: &str = "emberline.workers";

/// Most ranges of a file. Past it, those with the smallest gaps between them are joined.
const RANGES_MAX: usize = 1_024;

/// Numbers of workers. A file has rows of no others, and perhaps not of all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct WorkerRanges {
    /// Rising, with gaps between them.
    ranges: Vec<RangeInclusive<u32>>,
}

impl WorkerRanges {
    pub(super) fn of(workers: &IdSet) -> WorkerRanges {
        let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
        for worker in workers.iter() {
            match ranges.last_mut().filter(|last| worker - *last.end() == 1) {
                Some(last) => *last = *last.start()..=worker,
                None => ranges.push(worker..=worker),
            }
        }
        let mut found = WorkerRanges { ranges };
        found.join_nearest();
        found
    }

    fn join_nearest(&mut self) {
        if self.ranges.len() <= RANGES_MAX {
            return;
        }
        let gaps = self
            .ranges
            .windows(2)
            .map(|pair| pair[1].start() - pair[0].end());
        let mut widest: Vec<(u32, usize)> = gaps.zip(1..).collect();
        // The gaps that stay.
        widest.select_nth_unstable_by(RANGES_MAX - 1, |a, b| b.cmp(a));
        let mut starts: Vec<usize> = widest[..RANGES_MAX - 1].iter().map(|(_, at)| *at).collect();
        starts.sort_unstable();
        let firsts = [0].into_iter().chain(starts.iter().copied());
        let lasts = starts.iter().copied().chain([self.ranges.len()]);
        let joined = firsts
            .zip(lasts)
            .map(|(first, end)| *self.ranges[first].start()..=*self.ranges[end - 1].end());
        self.ranges = joined.collect();
    }

    /// Those of the workers of which the file may have rows.
    pub(crate) fn among(&self, asked: &[WorkerNumber]) -> Vec<WorkerNumber> {
        let may_have = |worker: &&WorkerNumber| {
            let at = self.ranges.partition_point(|range| *range.end() < worker.0);
            self.ranges
                .get(at)
                .is_some_and(|range| range.contains(&worker.0))
        };
        asked.iter().filter(may_have).copied().collect()
    }

    /// Memory of the ranges.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<WorkerRanges>() + size_of_val(&self.ranges[..])
    }

    /// As a fact of a footer.
    pub(super) fn fact(&self) -> KeyValue {
        let ranges = self
            .ranges
            .iter()
            .map(|range| match (range.start(), range.end()) {
                (start, end) if start == end => start.to_string(),
                (start, end) => format!("{start}-{end}"),
            });
        let text = ranges.collect::<Vec<_>>().join(",");
        KeyValue {
            key: WORKERS_FACT.to_owned(),
            value: Some(format!("{:08x} {text}", crc32fast::hash(text.as_bytes()))),
        }
    }

    /// `None` without an intact fact.
    fn of_footer(footer: &ParquetMetaData) -> Option<WorkerRanges> {
        let facts = footer.file_metadata().key_value_metadata()?;
        let fact = facts.iter().find(|fact| fact.key == WORKERS_FACT)?;
        let (crc32, text) = fact.value.as_deref()?.split_once(' ')?;
        if u32::from_str_radix(crc32, 16) != Ok(crc32fast::hash(text.as_bytes())) {
            return None;
        }
        let ranges = text.split(',').map(|range| {
            let (start, end) = range.split_once('-').unwrap_or((range, range));
            Some(start.parse().ok()?..=end.parse().ok()?)
        });
        Some(WorkerRanges {
            ranges: ranges.collect::<Option<_>>()?,
        })
    }

    /// Reads only the footer of a file; `None` if it does not tell its workers, or is not readable. It is then opened
    /// as usual, and its damage reported.
    pub(crate) fn read(objects: &Objects, entry: &FileEntry) -> Option<WorkerRanges> {
        let path = entry.path();
        let object = Arc::new(objects.open(&path).ok()?);
        let footer = decode_checked(&path, || {
            ParquetMetaDataReader::new().parse_and_finish(&FileBytes(object))
        });
        WorkerRanges::of_footer(&footer.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(workers: impl IntoIterator<Item = u32>) -> WorkerRanges {
        WorkerRanges::of(&workers.into_iter().collect())
    }

    #[test]
    fn few_ranges_have_exactly_the_workers() {
        let found = ranges([1, 2, 3, 7, 9, 10]);
        assert!(found.fact().value.unwrap().ends_with(" 1-3,7,9-10"));
        let numbers = |numbers: &[u32]| -> Vec<WorkerNumber> {
            numbers.iter().copied().map(WorkerNumber).collect()
        };
        let all = numbers(&(0..12).collect::<Vec<_>>());
        assert_eq!(found.among(&all), numbers(&[1, 2, 3, 7, 9, 10]));
        assert_eq!(found.among(&numbers(&[4, 9])), numbers(&[9]));
        assert_eq!(found.among(&[]), []);
    }

    #[test]
    fn of_many_ranges_those_with_small_gaps_are_joined() {
        let workers = || (0..5_000).map(|n| 3 * n).chain([100_000]);
        let found = ranges(workers());
        assert_eq!(found.ranges.len(), RANGES_MAX);
        let all: Vec<WorkerNumber> = workers().map(WorkerNumber).collect();
        assert_eq!(found.among(&all), all);
        assert_eq!(found.among(&[WorkerNumber(50_000)]), []);
    }
}
