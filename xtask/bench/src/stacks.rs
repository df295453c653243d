//! Seeded stacks like those of a sampler: shared prefixes, a few hot stacks and a long tail.

use std::sync::Arc;

/// The frame of a profiler without symbol tables.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PlainFrame {
    pub(super) function: Arc<str>,
    pub(super) file: Arc<str>,
    pub(super) line: u32,
}

/// A program: its frames and its distinct stacks as indices of frames, outermost first.
pub(super) struct Program {
    pub(super) frames: Vec<PlainFrame>,
    pub(super) stacks: Vec<Vec<u32>>,
}

/// Depths of stacks, including the task.
const DEPTH_MIN: usize = 8;
const DEPTH_MAX: usize = 40;
const TASKS: usize = 20;
/// Stacks that get nine samples of ten.
const HOT_STACKS: usize = 300;
/// Tree nodes per frame: a function is called from several places.
const NODES_PER_FRAME: usize = 10;

/// SplitMix64 (Steele, Lea and Flood 2014): five lines, and the same stream in every version.
#[derive(Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let product = u128::from(self.next()) * end as u128;
        usize::try_from(product >> 64).expect("it is below `end`")
    }

    /// A number from `low` to `high`.
    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// A number in [0, 1).
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Program {
    /// Grows stacks until their tree has about `nodes` nodes: each leaves an earlier one at some
    /// depth and goes on with frames of its own.
    pub(super) fn generate(nodes: usize, random: &mut Random) -> Program {
        let frame_count = (nodes / NODES_PER_FRAME).max(200);
        let frames: Vec<PlainFrame> = (0..frame_count).map(plain_frame).collect();
        let mut stacks: Vec<Vec<u32>> = Vec::new();
        let mut node_count = 0;
        while node_count < nodes {
            let (mut stack, shared, depth) = if stacks.len() < TASKS {
                let task = u32::try_from(stacks.len()).expect("there are few tasks");
                (vec![task], 0, random.between(DEPTH_MIN, DEPTH_MAX))
            } else {
                let earlier = &stacks[random.below(stacks.len())];
                // Most stacks part near their leaves: event loops and pools are shared.
                let shared = (0..3)
                    .map(|_| random.between(1, earlier.len()))
                    .max()
                    .expect("there are three draws")
                    .min(DEPTH_MAX - 1);
                let own = random.between(1, 8);
                let depth = (shared + own).clamp(DEPTH_MIN, DEPTH_MAX);
                (earlier[..shared].to_vec(), shared, depth)
            };
            while stack.len() < depth {
                let frame = random.between(TASKS, frame_count - 1);
                stack.push(u32::try_from(frame).expect("frames are fewer than nodes"));
            }
            node_count += stack.len() - shared;
            stacks.push(stack);
        }
        // Whether a stack is hot does not depend on when it first occurred.
        for last in (1..stacks.len()).rev() {
            stacks.swap(last, random.below(last + 1));
        }
        Program { frames, stacks }
    }

    /// `count` samples, each the index of a stack: nine of ten are spread over the hot stacks by
    /// Zipf's law, the rest evenly over all.
    pub(super) fn samples(&self, count: usize, random: &mut Random) -> Vec<usize> {
        let hot = HOT_STACKS.min(self.stacks.len());
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=hot)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        (0..count)
            .map(|_| {
                if random.fraction() < 0.9 {
                    let point = random.fraction() * sum;
                    sums.partition_point(|sum| *sum <= point).min(hot - 1)
                } else {
                    random.below(self.stacks.len())
                }
            })
            .collect()
    }
}

/// Names as long as those of real Rust programs.
fn plain_frame(index: usize) -> PlainFrame {
    let function = format!(
        "worker_{}::pipeline::stage_{}::<impl Transform for Block>::apply_{index}",
        index % 7,
        index % 61
    );
    let file = format!(
        "/home/build/src/worker_{}/stage_{}.rs",
        index % 7,
        index % 61
    );
    PlainFrame {
        function: function.into(),
        file: file.into(),
        line: u32::try_from(index % 900).expect("it is below 900") + 1,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_program_has_the_requested_nodes_depths_and_popularity() {
        let mut random = Random(7);
        let program = Program::generate(20_000, &mut random);
        let mut nodes = HashSet::new();
        for stack in &program.stacks {
            nodes.extend((1..=stack.len()).map(|length| stack[..length].to_vec()));
            assert!((8..=40).contains(&stack.len()), "{}", stack.len());
        }
        assert!((19_000..20_100).contains(&nodes.len()), "{}", nodes.len());

        let samples = program.samples(100_000, &mut random);
        let hot = samples.iter().filter(|stack| **stack < HOT_STACKS).count();
        assert!((90_000..94_000).contains(&hot), "{hot}");
    }

    #[test]
    fn a_seed_has_the_same_stream_in_every_version() {
        let mut random = Random(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
    }
}
