//! Targets without a collector: messages of the wire alone, and what the agent reads from a collector,
//! from a program's files and from its stacks.

#![no_main]

mod messages;
mod reduce;
mod symbols;
mod transport;
mod unwind;

use fuzz::Target;
use fuzz::target;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

static TARGETS: &[Target] = &[
    messages::MESSAGES,
    transport::REPLIES,
    transport::HTTP2,
    symbols::SYMBOLS,
    reduce::REDUCE,
    reduce::SPLIT,
    reduce::SYMBOL_FILES,
    unwind::UNWIND,
];

fuzz_target!(init: target::start(TARGETS, || false), |input: &[u8]| target::run(input));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    target::mutate(data, size, max_size, seed)
});
