//! Reads, tokenizes, counts, compresses and hashes real files. Counts are exchanged over TCP so
//! that each worker of the data group owns some of the tokens and merges their counts.
//!
//! The workers keep in step: batch `n` is exchanged with a peer when both have finished it. A
//! worker whose peer is lost goes on with the others; tokens that the lost worker owned are no
//! longer counted.

mod corpus;
mod text;

use std::collections::HashSet;
use std::fmt;

use emberline_agent::Phase;

use crate::fleet::context::{Context, Interrupt, Step};
use crate::fleet::link::Link;
use crate::fleet::pool::Pool;
use crate::wire::{Message, WireError};
use corpus::Chunk;
use text::Counts;

const COMPUTE_THREADS: usize = 2;
/// Chunks between two exchanges: enough work to make the exchange a small part, little enough to
/// stop soon.
const CHUNKS_PER_BATCH: usize = 4;

/// Approximate memory of one counted token.
const TOKEN_BYTES: u64 = 64;

/// A worker's position in the data group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupMember {
    /// This worker's number in the group, from 0.
    pub(crate) member: usize,
    pub(crate) members: usize,
    /// Number in the fleet of the group's member 0.
    pub(crate) first_worker: usize,
}

/// Input of one worker of the group.
#[derive(Debug)]
pub(crate) struct Share {
    place: GroupMember,
    chunks: Vec<Chunk>,
}

impl Share {
    /// Finds the files. Takes seconds on a disk with a cold cache.
    ///
    /// # Errors
    /// If there are no files.
    pub(crate) fn find(place: GroupMember) -> anyhow::Result<Self> {
        Ok(Self {
            place,
            chunks: corpus::share_of(place.member, place.members)?,
        })
    }
}

/// The group's work, from the point of view of one worker.
struct Batches<'a> {
    context: &'a Context,
    place: GroupMember,
    pool: Pool,
    links: Vec<Link>,
    totals: Totals,
}

/// Tokens that this worker owns, and documents that it has seen.
#[derive(Debug, Default)]
struct Totals {
    batches: u64,
    counts: Counts,
    /// Hashes of compressed texts: a text seen before would take no more room in a store.
    distinct_chunks: HashSet<[u8; 32]>,
    text_bytes: u64,
    compressed_bytes: u64,
}

/// One processed chunk.
struct Digested {
    counts: Counts,
    hash: [u8; 32],
    text_bytes: u64,
    compressed_bytes: u64,
}

/// Processes this member's share of the files, over and over until the stop.
///
/// # Errors
/// If a step fails; the loss of a peer is not an error.
pub(crate) fn run(context: &Context, share: Share, links: Vec<Link>) -> anyhow::Result<()> {
    let mut batches = Batches::new(context, share.place, links)?;
    let mut chunks = share.chunks.into_iter().cycle();
    let ended = loop {
        match batches.run_one(chunks.by_ref().take(CHUNKS_PER_BATCH).collect()) {
            Ok(()) => {}
            Err(Interrupt::Failed(error)) => break Err(error),
            Err(Interrupt::Stopped | Interrupt::Lost { .. }) => break Ok(()),
        }
    };
    context.note(batches.totals.to_string());
    ended
}

impl<'a> Batches<'a> {
    fn new(context: &'a Context, place: GroupMember, links: Vec<Link>) -> anyhow::Result<Self> {
        let pool = Pool::new(context, "pipeline", COMPUTE_THREADS)?;
        Ok(Self {
            context,
            place,
            pool,
            links,
            totals: Totals::default(),
        })
    }

    fn run_one(&mut self, chunks: Vec<Chunk>) -> Step<()> {
        let batch = self.totals.batches;
        let context = self.context.clone();
        let chunks = chunks.into_iter().enumerate().collect();
        let digested = self
            .pool
            .map(chunks, move |(number, chunk)| {
                digest_chunk(&context, batch, number, &chunk)
            })?
            .into_iter()
            .collect::<Step<Vec<_>>>()?;

        let task = self.context.task("merge", format!("merge-{batch}-own"));
        let mut counts = Counts::new();
        for chunk in digested.into_iter().flatten() {
            self.totals.distinct_chunks.insert(chunk.hash);
            self.totals.text_bytes += chunk.text_bytes;
            self.totals.compressed_bytes += chunk.compressed_bytes;
            text::merge_counts(&mut counts, chunk.counts);
        }
        let mut parts = text::partition_counts(counts, self.place.members);
        let own = std::mem::take(&mut parts[self.place.member]);
        text::merge_counts(&mut self.totals.counts, own);
        // Managed memory, as the worker estimates it: a token of about eight bytes, its count, the
        // table.
        emberline_agent::report_memory(self.totals.counts.len() as u64 * TOKEN_BYTES, 0);
        drop(task);

        self.exchange_with_all(batch, parts)?;
        self.totals.batches += 1;
        Ok(())
    }

    /// Sends each peer its part and merges the part it sends. Each worker visits its peers in
    /// order, and the lower number of a pair sends first. The first unfinished pair then always
    /// finds both of its workers ready, so no cycle of waiting can form.
    fn exchange_with_all(&mut self, batch: u64, mut parts: Vec<Vec<(String, u64)>>) -> Step<()> {
        let mut lost = Vec::new();
        for link in &mut self.links {
            self.context.check_stop()?;
            let part = std::mem::take(&mut parts[link.peer - self.place.first_worker]);
            match exchange(self.context, link, batch, part) {
                Ok(received) => {
                    let key = format!("merge-{batch}-{}", link.peer);
                    let _task = self.context.task("merge", key);
                    text::merge_counts(&mut self.totals.counts, received);
                }
                Err(gone @ Interrupt::Lost { peer, .. }) => {
                    self.context
                        .note(format!("{gone}; its tokens are counted no more"));
                    lost.push(peer);
                }
                Err(other) => return Err(other),
            }
        }
        self.links.retain(|link| !lost.contains(&link.peer));
        Ok(())
    }
}

/// Runs one chunk through all steps; `None` if its files have gone.
fn digest_chunk(
    context: &Context,
    batch: u64,
    number: usize,
    chunk: &Chunk,
) -> Step<Option<Digested>> {
    let begin = |name| {
        context
            .check_stop()
            .map(|()| context.task(name, format!("{name}-{batch}-{number}")))
    };
    let task = begin("read")?;
    let read = {
        let _phase = context.phase(Phase::DiskRead);
        text::read_files(chunk)
    };
    let text = match read {
        Ok(text) => text,
        Err(error) => {
            task.fail(error);
            return Ok(None);
        }
    };
    drop(task);

    let task = begin("tokenize")?;
    let tokens = text::tokenize(&text);
    drop(task);

    let task = begin("count")?;
    let counts = text::count_tokens(&tokens);
    drop(task);

    let mut task = begin("compress")?;
    let compressed = match text::compress_text(&text) {
        Ok(compressed) => compressed,
        Err(error) => {
            task.fail(&error);
            return Err(Interrupt::Failed(error.into()));
        }
    };
    task.result(compressed.len() as u64, "zstd");
    drop(task);

    let _task = begin("hash")?;
    let hash = text::hash_content(&compressed);
    let text_bytes = text.len() as u64;
    let compressed_bytes = compressed.len() as u64;
    Ok(Some(Digested {
        counts,
        hash,
        text_bytes,
        compressed_bytes,
    }))
}

/// Exchanges parts with the peer in one task, where a late peer shows as waiting.
fn exchange(
    context: &Context,
    link: &mut Link,
    batch: u64,
    part: Vec<(String, u64)>,
) -> Step<Vec<(String, u64)>> {
    let task = context.task("exchange", format!("exchange-{batch}-{}", link.peer));
    let outgoing = Message::Counts {
        batch,
        counts: part,
    };
    let swapped = if context.index < link.peer {
        link.send(&outgoing).and_then(|()| link.receive())
    } else {
        link.receive()
            .and_then(|incoming| link.send(&outgoing).map(|()| incoming))
    };
    match swapped {
        Ok(Message::Counts { batch: of, counts }) if of == batch => Ok(counts),
        Ok(_) => Err(context.lost_in(
            task,
            link.peer,
            WireError::Malformed("a message out of turn"),
        )),
        Err(cause) => Err(context.lost_in(task, link.peer, cause)),
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} batches, {} MB of text in {} distinct chunks, compressed to {} MB, {} tokens owned",
            self.batches,
            self.text_bytes / 1_000_000,
            self.distinct_chunks.len(),
            self.compressed_bytes / 1_000_000,
            self.counts.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::fleet::link::pair;

    /// Three workers with two batches each over their own files: every token ends on one of them,
    /// and together they have the counts of a slow, direct count.
    #[test]
    fn merged_counts_equal_a_direct_count() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..6)
            .map(|number| write_text(folder.path(), number))
            .collect();
        let contexts = [2, 3, 4].map(|index| Context::new(index, 0));
        let workers: Vec<_> = mesh(&contexts)
            .into_iter()
            .zip(contexts)
            .enumerate()
            .map(|(member, at)| {
                let (links, context) = at;
                let own = [files[2 * member].clone(), files[2 * member + 1].clone()];
                std::thread::spawn(move || {
                    let place = GroupMember {
                        member,
                        members: 3,
                        first_worker: 2,
                    };
                    let mut batches = Batches::new(&context, place, links).unwrap();
                    own.into_iter()
                        .for_each(|file| batches.run_one(vec![vec![file]]).unwrap());
                    batches.totals.counts
                })
            })
            .collect();
        let mut merged = Counts::new();
        for worker in workers {
            for (token, count) in worker.join().unwrap() {
                assert!(
                    merged.insert(token.clone(), count).is_none(),
                    "{token} has two owners"
                );
            }
        }
        assert_eq!(merged, count_slowly(&files));
    }

    /// A worker whose peer has gone continues with the other; its part of that exchange has failed.
    #[test]
    fn the_loss_of_a_peer_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = write_text(folder.path(), 0);
        let contexts = [0, 1, 2].map(|index| Context::new(index, 0));
        let mut meshed = mesh(&contexts).into_iter();
        let first = meshed.next().unwrap();
        let second = meshed.next().unwrap();
        drop(meshed);
        let [first_context, second_context, _] = contexts;
        let first = start(first_context, first, file.clone());
        let second = start(second_context, second, file);
        for record in [first.join().unwrap(), second.join().unwrap()] {
            assert_eq!(
                (record.tasks["exchange"].ok, record.tasks["exchange"].failed),
                (2, 1)
            );
            assert!(
                record.notes[0].starts_with("worker-2 is gone"),
                "{:?}",
                record.notes
            );
        }
    }

    fn start(
        context: Context,
        links: Vec<Link>,
        file: PathBuf,
    ) -> std::thread::JoinHandle<crate::fleet::WorkerRecord> {
        std::thread::spawn(move || {
            let place = GroupMember {
                member: context.index,
                members: 3,
                first_worker: 0,
            };
            let mut batches = Batches::new(&context, place, links).unwrap();
            batches.run_one(vec![vec![file.clone()]]).unwrap();
            batches.run_one(vec![vec![file]]).unwrap();
            context.recorder.snapshot()
        })
    }

    /// Files that vanish after the search fail their `read` task and nothing else.
    #[test]
    fn a_missing_file_fails_its_read_only() {
        let context = Context::new(0, 0);
        let place = GroupMember {
            member: 0,
            members: 1,
            first_worker: 0,
        };
        let mut batches = Batches::new(&context, place, vec![]).unwrap();
        batches
            .run_one(vec![vec![PathBuf::from("/nowhere/gone.rs")]])
            .unwrap();
        let tasks = context.recorder.snapshot().tasks;
        assert_eq!(
            (tasks["read"].failed, tasks["merge"].ok, tasks.len()),
            (1, 1, 2)
        );
    }

    fn write_text(folder: &Path, number: u64) -> PathBuf {
        let words = (0..20_000u64).map(|n| format!("word_{}", n * (number + 3) % (n % 997 + 1)));
        let text: String = words.map(|word| word + " -> ").collect();
        let path = folder.join(format!("{number}.txt"));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Each worker's links to all others, in the order of the peers.
    fn mesh(contexts: &[Context; 3]) -> [Vec<Link>; 3] {
        let [a, b, c] = contexts;
        let (ab, ba) = pair(a, b);
        let (ac, ca) = pair(a, c);
        let (bc, cb) = pair(b, c);
        [vec![ab, ac], vec![ba, bc], vec![ca, cb]]
    }

    fn count_slowly(files: &[PathBuf]) -> HashMap<String, u64> {
        let mut counts = HashMap::new();
        for file in files {
            let mut word = String::new();
            for character in std::fs::read_to_string(file).unwrap().chars().chain([' ']) {
                if character.is_alphanumeric() || character == '_' {
                    word.push(character);
                } else if !word.is_empty() {
                    *counts.entry(std::mem::take(&mut word)).or_insert(0) += 1;
                }
            }
        }
        counts
    }
}
