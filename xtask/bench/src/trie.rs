//! `cargo xtask bench trie`: the cost of counting a stack and of merging counts, by profiler-core's
//! tree and by the obvious alternative, a `HashMap` from whole stacks to sums.
//!
//! Both run twice, for fairness: with frames known by id, as the agent counts (it looks an address up
//! once), and with frames as names, where the tree interns every frame of every sample and the map
//! hashes every name.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem::size_of;
use std::time::Duration;

use anyhow::Result;
use profiler_core::{CallTrie, Delta, Filter, Frame, FrameId, NodeId, Profile, State, SymbolTable};

use super::contest::{self, Contestant, time};
use super::stacks::{PlainFrame, Program, Random};

/// A small service and a large one.
const NODE_COUNTS: [usize; 2] = [2_000, 150_000];
const SAMPLES_PER_ROUND: usize = 100_000;
const SECONDS: usize = 60;
/// 32 threads, 100 times a second.
const SAMPLES_PER_SECOND: usize = 3_200;
const SAMPLE_NS: u64 = 10_000_000;

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds of each contestant.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(i64::from(contest::ROUNDS_MIN)..))]
    rounds: u32,
    /// Seed of the stacks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measures and prints.
///
/// # Errors
/// If a tree rejects a node.
pub(crate) fn run(options: &Options) -> Result<()> {
    for nodes in NODE_COUNTS {
        let mut random = Random(options.seed);
        let stream = Stream::new(nodes, &mut random)?;
        println!(
            "## {} distinct nodes, {} distinct stacks of {} frames, {:.1} frames a sample\n",
            stream.trie.node_count() - 1,
            stream.ids.len(),
            stream.program.frames.len(),
            stream.frames_per_sample(),
        );
        println!(
            "Counting, {SAMPLES_PER_ROUND} samples a round, {} rounds:\n",
            options.rounds
        );
        count(&stream, options.rounds);
        print_memory(&stream);
        println!("Merging {SECONDS} seconds of {SAMPLES_PER_SECOND} samples each:\n");
        merge(&stream, &mut random, options.rounds);
    }
    Ok(())
}

/// A program's stacks by id and by name, samples of them, and a tree that holds them all.
struct Stream {
    program: Program,
    /// By stack.
    ids: Vec<Vec<FrameId>>,
    /// By stack.
    names: Vec<Vec<PlainFrame>>,
    /// Indices of stacks.
    samples: Vec<usize>,
    symbols: SymbolTable,
    trie: CallTrie,
}

impl Stream {
    fn new(nodes: usize, random: &mut Random) -> Result<Stream> {
        let program = Program::generate(nodes, random);
        let samples = program.samples(SAMPLES_PER_ROUND, random);
        let names: Vec<Vec<PlainFrame>> = program
            .stacks
            .iter()
            .map(|stack| {
                stack
                    .iter()
                    .map(|index| program.frames[*index as usize].clone())
                    .collect()
            })
            .collect();
        let mut symbols = SymbolTable::new();
        let mut trie = CallTrie::new(2 * nodes);
        let mut ids = Vec::with_capacity(names.len());
        for stack in &names {
            let path: Vec<FrameId> = interned(stack, &mut symbols).collect();
            trie.insert_path(path.iter().copied())?;
            ids.push(path);
        }
        Ok(Stream {
            program,
            ids,
            names,
            samples,
            symbols,
            trie,
        })
    }

    fn frames_per_sample(&self) -> f64 {
        let frames: usize = self
            .samples
            .iter()
            .map(|stack| self.ids[*stack].len())
            .sum();
        frames as f64 / self.samples.len() as f64
    }
}

/// The ids of a stack's frames, the first of which is a task.
fn interned<'a>(
    stack: &'a [PlainFrame],
    symbols: &'a mut SymbolTable,
) -> impl Iterator<Item = FrameId> + 'a {
    stack.iter().enumerate().map(|(level, frame)| match level {
        0 => symbols.intern(&Frame::task(&frame.function)),
        _ => symbols.intern(&Frame::function(&frame.function, &frame.file, frame.line)),
    })
}

/// Counts the samples in structures that already contain all stacks, as in a program that has run
/// for a while.
fn count(stream: &Stream, rounds: u32) {
    let operations = SAMPLES_PER_ROUND;
    let mut by_id = stream.trie.clone();
    let mut by_name = stream.trie.clone();
    let mut symbols = stream.symbols.clone();
    let mut map_by_id = warm(&stream.program.stacks);
    let mut map_by_name = warm(&stream.names);
    let mut map_by_owned_name = warm(&stream.names);
    let mut contestants = [
        Contestant::new("tree by id", || {
            let took = time(|| {
                for stack in &stream.samples {
                    let path = stream.ids[*stack].iter().copied();
                    let node = by_id.insert_path(path).expect("every node is there");
                    by_id.add(node, State::Cpu, SAMPLE_NS);
                }
            });
            by_id.take_delta();
            (took, operations)
        }),
        Contestant::new("map by id", || {
            (
                count_in_map(&mut map_by_id, &stream.program.stacks, &stream.samples),
                operations,
            )
        }),
        Contestant::new("tree by name", || {
            let took = time(|| {
                for stack in &stream.samples {
                    let path = interned(&stream.names[*stack], &mut symbols);
                    let node = by_name.insert_path(path).expect("every node is there");
                    by_name.add(node, State::Cpu, SAMPLE_NS);
                }
            });
            by_name.take_delta();
            (took, operations)
        }),
        Contestant::new("map by name", || {
            (
                count_in_map(&mut map_by_name, &stream.names, &stream.samples),
                operations,
            )
        }),
        Contestant::new("map by name, a new key a sample", || {
            let took = time(|| {
                for stack in &stream.samples {
                    let key = stream.names[*stack].clone();
                    *map_by_owned_name.entry(key).or_default() += SAMPLE_NS;
                }
            });
            (took, operations)
        }),
    ];
    let took = contest::run(&mut contestants, rounds);
    contest::print(&contestants, &took, "insert", &[0, 2]);
}

fn warm<T: Clone + Eq + Hash>(stacks: &[Vec<T>]) -> HashMap<Vec<T>, u64> {
    stacks.iter().map(|stack| (stack.clone(), 0)).collect()
}

/// The map at its best: a key is copied only when it is new. By id its frames are plain integers,
/// which the standard library hashes as one slice.
fn count_in_map<T: Clone + Eq + Hash>(
    map: &mut HashMap<Vec<T>, u64>,
    stacks: &[Vec<T>],
    samples: &[usize],
) -> Duration {
    time(|| {
        for stack in samples {
            add(map, &stacks[*stack], SAMPLE_NS);
        }
    })
}

fn add<T: Clone + Eq + Hash>(map: &mut HashMap<Vec<T>, u64>, stack: &[T], weight: u64) {
    match map.get_mut(stack) {
        Some(sum) => *sum += weight,
        None => drop(map.insert(stack.to_vec(), weight)),
    }
}

/// Merges one-second tables; an operation is an entry of such a table.
fn merge(stream: &Stream, random: &mut Random, rounds: u32) {
    let seconds: Vec<Vec<usize>> = (0..SECONDS)
        .map(|_| stream.program.samples(SAMPLES_PER_SECOND, random))
        .collect();
    let nodes: Vec<NodeId> = leaves(stream);
    let mut trie = stream.trie.clone();
    let mut take = |second: &Vec<usize>| {
        second
            .iter()
            .for_each(|stack| trie.add(nodes[*stack], State::Cpu, SAMPLE_NS));
        let mut delta = Delta::default();
        let took = time(|| delta = trie.take_delta());
        (delta, took)
    };
    let deltas: Vec<Delta> = seconds.iter().map(|second| take(second).0).collect();
    let maps_by_id = maps(&stream.program.stacks, &seconds);
    let maps_by_name = maps(&stream.names, &seconds);
    let operations = deltas.iter().map(|delta| delta.entries().len()).sum();
    let collect = || Profile::collect(&stream.symbols, &stream.trie, &deltas, &Filter::default());
    println!(
        "({operations} entries in all; the sum has {} entries, its profile {} nodes)\n",
        sum_of_pairs(&deltas).entries().len(),
        collect().nodes().len(),
    );
    let mut contestants = [
        Contestant::new("CallTrie::take_delta", || {
            (
                seconds.iter().map(|second| take(second).1).sum(),
                operations,
            )
        }),
        Contestant::new("Delta::merge, one after another", || {
            (
                time(|| {
                    deltas
                        .iter()
                        .fold(Delta::default(), |sum, delta| sum.merge(delta))
                }),
                operations,
            )
        }),
        Contestant::new("Delta of all pairs", || {
            (time(|| sum_of_pairs(&deltas)), operations)
        }),
        Contestant::new("Profile::collect", || (time(collect), operations)),
        Contestant::new("map by id", || (time(|| merged(&maps_by_id)), operations)),
        Contestant::new("map by name", || {
            (time(|| merged(&maps_by_name)), operations)
        }),
    ];
    let took = contest::run(&mut contestants, rounds);
    contest::print(&contestants, &took, "entry", &[1, 3]);
}

/// The node of each stack.
fn leaves(stream: &Stream) -> Vec<NodeId> {
    let mut trie = stream.trie.clone();
    stream
        .ids
        .iter()
        .map(|path: &Vec<FrameId>| {
            trie.insert_path(path.iter().copied())
                .expect("every node is there")
        })
        .collect()
}

fn sum_of_pairs(deltas: &[Delta]) -> Delta {
    deltas.iter().flat_map(Delta::entries).copied().collect()
}

/// One map a second.
fn maps<T: Clone + Eq + Hash>(
    stacks: &[Vec<T>],
    seconds: &[Vec<usize>],
) -> Vec<HashMap<Vec<T>, u64>> {
    seconds
        .iter()
        .map(|second| {
            let mut map = HashMap::new();
            second
                .iter()
                .for_each(|stack| add(&mut map, &stacks[*stack], SAMPLE_NS));
            map
        })
        .collect()
}

fn merged<T: Clone + Eq + Hash>(maps: &[HashMap<Vec<T>, u64>]) -> HashMap<Vec<T>, u64> {
    let mut sum = HashMap::new();
    for (stack, weight) in maps.iter().flatten() {
        add(&mut sum, stack, *weight);
    }
    sum
}

/// Prints bytes per node of the tree, computed from lengths and sizes: entries of vectors and all
/// slots of hash tables, without the names, which both share, and without the allocator's overhead.
/// The `u32` is a node's position among those counted in this cycle.
fn print_memory(stream: &Stream) {
    let nodes = stream.trie.node_count() as usize;
    let tree = nodes * (size_of::<(NodeId, FrameId)>() + size_of::<u32>())
        + table_bytes(nodes, size_of::<((NodeId, FrameId), NodeId)>());
    let frames: usize = stream.ids.iter().map(Vec::len).sum();
    let map_bytes = |frame: usize| {
        let entry = size_of::<(Vec<PlainFrame>, u64)>();
        (table_bytes(stream.ids.len(), entry) + frames * frame) as f64 / nodes as f64
    };
    println!(
        "Memory in bytes for each node of the tree: tree {:.0}, map by id {:.0}, map by name {:.0}.\n",
        tree as f64 / nodes as f64,
        map_bytes(size_of::<FrameId>()),
        map_bytes(size_of::<PlainFrame>()),
    );
}

/// Bytes of a hash table of the standard library's kind: a power of two of slots, at most seven
/// eighths of them used, and a byte of control for each.
fn table_bytes(entries: usize, entry_bytes: usize) -> usize {
    (entries * 8 / 7).next_power_of_two() * (entry_bytes + 1)
}
