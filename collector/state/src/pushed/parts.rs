//! The flushes of a pushed profile.

use import::ImportedSample;
use profiler_core::wire::{encode_cycle, v1, with_threads};
use profiler_core::{Delta, NodeId, TimeRange};

/// Most samples of one flush: at most half of the largest message, at up to 15 bytes each in two lists.
const FLUSH_SAMPLES_MAX: usize = 1 << 15;

/// The samples of `range`. Those of a large profile are divided over it.
pub(super) fn parts(samples: &[ImportedSample], range: TimeRange) -> Vec<Part> {
    let chunks = samples.chunks(FLUSH_SAMPLES_MAX);
    let count = chunks.len() as u64;
    let at = |number: u64| {
        let offset_ns = u128::from(range.length_ns()) * u128::from(number) / u128::from(count);
        range
            .start()
            .shifted(i64::try_from(offset_ns).unwrap_or(i64::MAX))
    };
    chunks
        .zip(0..)
        .map(|(chunk, number): (&[ImportedSample], u64)| {
            let range = TimeRange::new(at(number), at(number + 1)).unwrap_or(range);
            let weight_ns = chunk.iter().map(|sample| sample.nanoseconds).sum();
            Part {
                cycle: cycle(chunk, range),
                weight_ns,
                samples: chunk.len(),
            }
        })
        .collect()
}

/// The part of the samples that one flush carries.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) cycle: v1::Cycle,
    pub(super) weight_ns: u64,
    pub(super) samples: usize,
}

fn cycle(samples: &[ImportedSample], range: TimeRange) -> v1::Cycle {
    let quantum_ns = samples
        .iter()
        .map(|sample| sample.nanoseconds)
        .fold(0, greatest_divisor);
    let cycle = encode_cycle(&sums(samples, |sample| sample.node), range, quantum_ns);
    with_threads(cycle, &sums(samples, |sample| sample.thread))
}

fn sums(samples: &[ImportedSample], node: fn(&ImportedSample) -> NodeId) -> Delta {
    samples
        .iter()
        .map(|sample: &ImportedSample| (node(sample), sample.state, sample.nanoseconds))
        .collect()
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    let [mut a, mut b] = [a, b];
    while b > 0 {
        [a, b] = [b, a % b];
    }
    a
}
