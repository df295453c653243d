//! The profilers of a load.

use std::time::Duration;

use agent::{AgentBuilder, LocalAgent, Recording};
use anyhow::{Context, Result, bail};
use profiler_core::{FrameKind, NodeId, Profile};

use crate::figure::print_figure;

/// A profiler of this binary, in addition to `none` and `emberline`.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its name on the command line.
    pub name: &'static str,
    /// Starts it at a rate in samples a second.
    pub start: fn(u32) -> Result<Box<dyn Running>>,
}

/// A running profiler.
pub trait Running {
    /// Prints its own figures while the load still runs.
    ///
    /// # Errors
    /// If it has no figures.
    fn report_costs(&self) -> Result<()> {
        Ok(())
    }

    /// Stops it and returns its result.
    ///
    /// # Errors
    /// If it has no result.
    fn finish(self: Box<Self>) -> Result<Totals>;
}

/// Totals of a profile in the profiler's own unit (samples or nanoseconds): only the ratio counts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Everything.
    pub total: u64,
    /// Stacks that reach the thread's outermost function.
    pub with_root: u64,
}

/// Starts the profiler called `name`.
pub(crate) fn start(name: &str, hertz: u32, peers: &[Peer]) -> Result<Box<dyn Running>> {
    match name {
        "none" => Ok(Box::new(Nothing)),
        "emberline" | "emberline-unlimited" => {
            let interval = Duration::from_secs(1) / hertz;
            let mut builder = AgentBuilder::default().interval(interval);
            if name == "emberline-unlimited" {
                builder = builder.cpu_limit(1.0);
            }
            Ok(Box::new(Emberline(builder.start_local()?)))
        }
        _ => match peers.iter().find(|peer| peer.name == name) {
            Some(peer) => (peer.start)(hertz).with_context(|| format!("starting {name}")),
            None => bail!("there is no profiler `{name}` in this binary"),
        },
    }
}

/// Stops the profiler and prints its totals.
pub(crate) fn finish(running: Box<dyn Running>) -> Result<()> {
    let found = running.finish()?;
    print_figure("found_total", found.total);
    print_figure("found_with_root", found.with_root);
    Ok(())
}

struct Nothing;

impl Running for Nothing {
    fn finish(self: Box<Self>) -> Result<Totals> {
        Ok(Totals::default())
    }
}

struct Emberline(LocalAgent);

impl Running for Emberline {
    fn report_costs(&self) -> Result<()> {
        let cost = self.0.overhead();
        print_figure("handler_p50_ns", cost.handler_p50_ns);
        print_figure("handler_p99_ns", cost.handler_p99_ns);
        print_figure("naming_cpu_ns", cost.naming_cpu_ns);
        print_figure("samples", cost.samples);
        print_figure("ticks_throttled", cost.ticks_throttled);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Totals> {
        let recording: Recording = self.0.finish();
        Ok(found_in(&recording.profile))
    }
}

/// The program's own threads, without the agent's.
fn found_in(profile: &Profile) -> Totals {
    let totals = profile.totals();
    let mut found = Totals::default();
    let mut cut_off = 0;
    // Below `[agent]` there may be `[truncated]` too; parents come before their children.
    let mut of_agent = vec![false; totals.len()];
    for (node, id) in profile.nodes().iter().zip(1..) {
        let kind = profile.frame(node.frame).kind;
        of_agent[id] = kind == FrameKind::Agent || of_agent[node.parent.index()];
        let weight = totals[id].total_ns();
        match kind {
            _ if of_agent[id] => {}
            FrameKind::Truncated => cut_off += weight,
            _ if node.parent == NodeId::ROOT => found.total += weight,
            _ => {}
        }
    }
    found.with_root = found.total - cut_off;
    found
}

#[cfg(test)]
mod tests {
    use profiler_core::{CallTrie, Filter, Frame, State, SymbolTable, ThreadKind};

    use super::*;

    #[test]
    fn only_the_programs_cut_off_stacks_miss_their_root() {
        let mut symbols = SymbolTable::new();
        let mut trie = CallTrie::new(100);
        let truncated = Frame::truncated();
        let work = Frame::function("work", "src/main.rs", 1);
        for (path, weight) in [
            (vec![Frame::no_task(), work.clone()], 70),
            (vec![Frame::no_task(), truncated.clone(), work.clone()], 20),
            (vec![Frame::task("load"), work.clone()], 10),
            (vec![Frame::agent(), truncated, work], 1_000),
        ] {
            let path: Vec<_> = path.iter().map(|frame| symbols.intern(frame)).collect();
            let leaf = trie.insert_path(path).unwrap();
            trie.add(leaf, State::Cpu, weight);
        }
        let delta = trie.take_delta();
        let all = Filter {
            threads: ThreadKind::All,
            ..Filter::default()
        };
        let profile = Profile::collect(&symbols, &trie, [&delta], &all);
        assert_eq!(
            found_in(&profile),
            Totals {
                total: 100,
                with_root: 80
            }
        );
    }

    #[test]
    fn an_unknown_profiler_is_named() {
        let error = start("gprof", 100, &[]).err().unwrap();
        assert_eq!(
            error.to_string(),
            "there is no profiler `gprof` in this binary"
        );
    }
}
