//! A program and its profiles, from a seed: pprof as a client of Pyroscope pushes it.

use std::collections::BTreeMap;

use anyhow::Result;
use simulation::random::{Random, Zipf};

use crate::ingest::pprof::{Pair, gzipped};

/// Functions of the program.
const FUNCTIONS: usize = 2_000;

/// Most functions that a function calls. How often it calls the first, the second and so on follows Zipf's law.
const CALLEES_MAX: usize = 6;
const CALLEES_EXPONENT: f64 = 1.6;

/// Fewest and most frames of a stack.
const DEPTHS: [usize; 2] = [8, 28];

/// Stacks that are drawn for a profile of ten seconds. Some are equal.
const DRAWN: usize = 95;

/// Time of a sample.
const SAMPLE_NS: u64 = 10_000_000;

const WORDS: [&str; 12] = [
    "handler", "service", "store", "codec", "client", "router", "cache", "queue", "index",
    "parser", "planner", "merge",
];

/// Functions that call each other.
pub(super) struct CallGraph {
    functions: Vec<Function>,
    choice: Zipf,
}

struct Function {
    name: String,
    file: String,
    callees: Vec<usize>,
}

/// A function at a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    function: usize,
    line: u32,
}

impl CallGraph {
    pub(super) fn new(random: &mut Random) -> CallGraph {
        let functions = (0..FUNCTIONS)
            .map(|number| {
                let mut word = || WORDS[random.below(WORDS.len())];
                let package = format!("example.com/shop/{}/{}", word(), word());
                let name = format!("{package}.(*{}).{}{number}", word(), word());
                let file = format!("/src/{package}/{}.go", word());
                let count = random.between(2, CALLEES_MAX);
                let callees = (0..count).map(|_| random.below(FUNCTIONS)).collect();
                Function {
                    name,
                    file,
                    callees,
                }
            })
            .collect();
        CallGraph {
            functions,
            choice: Zipf::new(CALLEES_MAX, CALLEES_EXPONENT),
        }
    }

    /// The gzip'ed pprof of ten seconds.
    pub(super) fn profile(&self, random: &mut Random) -> Result<Vec<u8>> {
        let mut samples: BTreeMap<Vec<Call>, u64> = BTreeMap::new();
        for _ in 0..DRAWN {
            *samples.entry(self.stack(random)).or_default() += random.between(1, 8) as u64;
        }
        let pairs: Vec<Pair<'_>> = samples
            .iter()
            .map(|(stack, count): (&Vec<Call>, &u64)| Pair {
                stack: stack.iter().rev().map(|call| self.text(*call)).collect(),
                state: None,
                weight_ns: count * SAMPLE_NS,
            })
            .collect();
        gzipped("cpu", &pairs)
    }

    /// A way from the program's start, outermost function first.
    fn stack(&self, random: &mut Random) -> Vec<Call> {
        let depth = random.between(DEPTHS[0], DEPTHS[1]);
        let mut stack = Vec::with_capacity(depth);
        let mut function = 0;
        for _ in 0..depth {
            let callees = &self.functions[function].callees;
            let choice = self.choice.draw(random) % callees.len();
            stack.push(Call {
                function,
                line: 10 * (choice as u32 + 1),
            });
            function = callees[choice];
        }
        stack
    }

    fn text(&self, call: Call) -> (&str, &str, u32) {
        let Function { name, file, .. } = &self.functions[call.function];
        (name, file, call.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_profiles_of_about_24_kilobytes() {
        let made = |seed: u64| {
            let mut random = Random(seed);
            let graph = CallGraph::new(&mut random);
            [(); 3].map(|()| graph.profile(&mut random).unwrap())
        };
        assert!(made(1) == made(1));
        assert!(made(1) != made(2));
        for profile in made(1) {
            assert!(
                (20_000..28_000).contains(&profile.len()),
                "{}",
                profile.len()
            );
        }
    }
}
