//! CPU profiles of Chrome and Node.js: a tree of nodes, and the node of each sample. They are files of their own, or
//! parts of a trace.

mod trace;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use profiler_core::{Frame, NodeId, State};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::builder::{Builder, Sample, Times, frame_of_label};
use super::error::ImportError;
use super::json::{Table, nanoseconds};
use super::limits::FRAMES_MAX;
use super::model::{ImportFormat, ImportOptions, Imported};

const MICROSECOND_NS: f64 = 1e3;

/// A file: a CPU profile, or a trace.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(borrow)]
    nodes: Option<Table<Node<'a>>>,
    /// Microseconds of a clock that does not count from 1970.
    #[serde(default)]
    start_time: f64,
    #[serde(default)]
    end_time: f64,
    #[serde(default)]
    samples: NodeIds,
    #[serde(default)]
    time_deltas: Vec<f64>,
    #[serde(borrow)]
    trace_events: Option<trace::Events<'a>>,
    /// The root of a tree of nested nodes, which versions before 2016 wrote.
    head: Option<IgnoredAny>,
}

/// The nodes of samples. Traces of other programs have objects of that name, which are skipped.
#[derive(Default)]
struct NodeIds(Vec<u64>);

impl<'de> Deserialize<'de> for NodeIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NodeIds, D::Error> {
        deserializer.deserialize_seq(NodeIdsVisitor)
    }
}

struct NodeIdsVisitor;

impl<'de> Visitor<'de> for NodeIdsVisitor {
    type Value = NodeIds;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of ids of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NodeIds, A::Error> {
        let mut ids = Vec::new();
        while let Some(MaybeId(id)) = list.next_element()? {
            ids.extend(id);
        }
        Ok(NodeIds(ids))
    }
}

/// An id; `None` for an object.
struct MaybeId(Option<u64>);

impl<'de> Deserialize<'de> for MaybeId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MaybeId, D::Error> {
        deserializer.deserialize_any(MaybeIdVisitor)
    }
}

struct MaybeIdVisitor;

impl<'de> Visitor<'de> for MaybeIdVisitor {
    type Value = MaybeId;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the id of a node")
    }

    fn visit_u64<E>(self, id: u64) -> Result<MaybeId, E> {
        Ok(MaybeId(Some(id)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MaybeId, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(MaybeId(None))
    }
}

/// A CPU profile of one thread.
struct Profile<'a> {
    /// Whether nodes may be missing, because a trace can lose events.
    may_lack_nodes: bool,
    nodes: Vec<Node<'a>>,
    start_time: f64,
    end_time: f64,
    samples: Vec<u64>,
    /// Microseconds since the sample before; of the first one, since the start.
    time_deltas: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    id: u64,
    #[serde(borrow)]
    call_frame: CallFrame<'a>,
    #[serde(default)]
    hit_count: u64,
    #[serde(default)]
    children: Vec<u64>,
    /// Older files have it instead of children.
    #[serde(default)]
    parent: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallFrame<'a> {
    #[serde(borrow)]
    function_name: Cow<'a, str>,
    #[serde(borrow, default)]
    url: Cow<'a, str>,
    /// From 0; -1: not known.
    #[serde(default)]
    line_number: i64,
}

/// Parses a CPU profile, or the CPU profiles of a trace.
pub(super) fn parse(content: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    if content.trim_ascii_start().starts_with(b"[") {
        return trace::parse_array(content, options);
    }
    let file: File<'_> = super::json::parse(content, ImportFormat::Chrome)?;
    if let Some(events) = file.trace_events {
        return trace::parse(events, options);
    }
    let mut builder = Builder::new(ImportFormat::Chrome, options);
    let Some(nodes) = file.nodes else {
        return Err(match file.head {
            Some(_) => ImportError::OtherFormat {
                name: "a CPU profile of Chrome before version 58 or of Node.js before 12",
                instead: "open it in speedscope and import what that exports",
            },
            None => builder.invalid("missing field `nodes`"),
        });
    };
    let profile = Profile {
        may_lack_nodes: false,
        nodes: nodes.into_vec(),
        start_time: file.start_time,
        end_time: file.end_time,
        samples: file.samples.0,
        time_deltas: file.time_deltas,
    };
    let top = builder.top(None, None)?;
    let thread = builder.thread(top, "", 0)?;
    let mut parser = Parser::new(
        &mut builder,
        &profile,
        Lane {
            top,
            thread,
            start_ns: 0,
        },
    )?;
    let duration_ns = parser.duration_ns;
    if profile.samples.is_empty() && profile.time_deltas.is_empty() {
        parser.hits()?;
    } else {
        parser.samples()?;
    }
    builder.finish(Times {
        started_at: None,
        duration_ns: Some(duration_ns),
    })
}

/// A node of the file in the tree.
#[derive(Clone, Copy)]
struct TreeNode {
    node: NodeId,
    is_idle: bool,
}

/// The edges between the nodes of a file, by index.
struct Edges {
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    /// Whether the parent of a node is missing.
    is_cut: Vec<bool>,
}

impl Edges {
    fn of(builder: &Builder<'_>, file: &Profile<'_>) -> Result<Edges, ImportError> {
        let count = file.nodes.len();
        let mut indexes = HashMap::with_capacity(count);
        for (index, node) in file.nodes.iter().enumerate() {
            if indexes.insert(node.id, index).is_some() {
                return Err(builder.invalid(format!("two nodes have the id {}", node.id)));
            }
        }
        let mut edges = Edges {
            parents: vec![None; count],
            children: vec![Vec::new(); count],
            is_cut: vec![false; count],
        };
        for (index, node) in file.nodes.iter().enumerate() {
            for id in &node.children {
                match indexes.get(id) {
                    Some(child) => edges.add(builder, file, index, *child)?,
                    None if file.may_lack_nodes => {}
                    None => return Err(builder.invalid(format!("node {id} does not exist"))),
                }
            }
            let Some(id) = node.parent else {
                continue;
            };
            match indexes.get(&id) {
                Some(parent) => edges.add(builder, file, *parent, index)?,
                None if file.may_lack_nodes => edges.is_cut[index] = true,
                None => return Err(builder.invalid(format!("node {id} does not exist"))),
            }
        }
        Ok(edges)
    }

    fn add(
        &mut self,
        builder: &Builder<'_>,
        file: &Profile<'_>,
        parent: usize,
        child: usize,
    ) -> Result<(), ImportError> {
        match self.parents[child].replace(parent) {
            Some(known) if known != parent => {
                let id = file.nodes[child].id;
                Err(builder.invalid(format!("node {id} has two parents")))
            }
            Some(_) => Ok(()),
            None => {
                self.children[parent].push(child);
                Ok(())
            }
        }
    }
}

/// The node of stacks whose outer frames, or all frames, are missing.
fn truncated_node(builder: &mut Builder<'_>, top: NodeId) -> Result<NodeId, ImportError> {
    builder.note("nodes that the trace lacks are [truncated]");
    let truncated = builder.frame(&Frame::truncated())?;
    Ok(builder.child(top, truncated))
}

/// The nodes of the tree by their ids in the file. Every node must be below one root.
fn nodes(
    builder: &mut Builder<'_>,
    file: &Profile<'_>,
    top: NodeId,
) -> Result<HashMap<u64, TreeNode>, ImportError> {
    let Edges {
        parents,
        children,
        is_cut,
    } = Edges::of(builder, file)?;
    let mut tree_nodes = HashMap::with_capacity(file.nodes.len());
    let mut open: Vec<(usize, NodeId, usize)> = Vec::new();
    for root in (0..file.nodes.len()).filter(|index| parents[*index].is_none()) {
        if is_cut[root] {
            open.push((root, truncated_node(builder, top)?, 1));
        } else {
            open.push((root, top, 0));
        }
    }
    while let Some((index, parent, depth)) = open.pop() {
        let call = &file.nodes[index].call_frame;
        let is_root = parents[index].is_none() && call.function_name == "(root)";
        let frame = match &*call.function_name {
            "" => "(anonymous)",
            name => name,
        };
        let line = match &*call.url {
            "" => 0,
            _ => u32::try_from(call.line_number.saturating_add(1)).unwrap_or(0),
        };
        let frame = builder.frame(&frame_of_label(
            Frame::function(frame, &call.url, line),
            builder.options,
        ))?;
        // Frames beyond the limit count for the deepest one.
        let is_own = !is_root && depth < FRAMES_MAX;
        let node = if is_own {
            builder.child(parent, frame)
        } else {
            parent
        };
        let is_idle = call.function_name == "(idle)";
        tree_nodes.insert(file.nodes[index].id, TreeNode { node, is_idle });
        let depth = depth + usize::from(is_own);
        open.extend(
            children[index]
                .iter()
                .rev()
                .map(|child| (*child, node, depth)),
        );
    }
    // A node that no root leads to is on a cycle, or below one.
    match file
        .nodes
        .iter()
        .find(|node| !tree_nodes.contains_key(&node.id))
    {
        Some(node) => Err(builder.invalid(format!("node {} is below itself", node.id))),
        None => Ok(tree_nodes),
    }
}

/// Where and when the samples of a profile are.
#[derive(Clone, Copy)]
struct Lane {
    top: NodeId,
    thread: NodeId,
    /// Since the start of the earliest profile.
    start_ns: u64,
}

struct Parser<'b, 'a, 'f> {
    builder: &'b mut Builder<'a>,
    file: &'f Profile<'f>,
    nodes: HashMap<u64, TreeNode>,
    lane: Lane,
    duration_ns: u64,
}

impl<'b, 'a, 'f> Parser<'b, 'a, 'f> {
    fn new(
        builder: &'b mut Builder<'a>,
        file: &'f Profile<'f>,
        lane: Lane,
    ) -> Result<Parser<'b, 'a, 'f>, ImportError> {
        let nodes = nodes(builder, file, lane.top)?;
        let what = "the profile's length";
        let length = file.end_time - file.start_time;
        let duration_ns = nanoseconds(builder, what, length, MICROSECOND_NS)?;
        Ok(Parser {
            builder,
            file,
            nodes,
            lane,
            duration_ns,
        })
    }

    /// A sample is as long as the time until the next one.
    fn samples(&mut self) -> Result<(), ImportError> {
        let samples = self.file.samples.len();
        let deltas = self.file.time_deltas.len();
        if samples != deltas {
            let reason = format!("there are {samples} samples and {deltas} time deltas");
            return Err(self.builder.invalid(reason));
        }
        // Samples of different threads of V8 may be out of order by some microseconds.
        let mut at = 0.0_f64;
        let mut open: Option<(u64, u64)> = None;
        for (id, delta) in self.file.samples.iter().zip(&self.file.time_deltas) {
            at += delta;
            let at_ns = nanoseconds(
                self.builder,
                "the time of a sample",
                at.max(0.0),
                MICROSECOND_NS,
            )?;
            if let Some((last, last_ns)) = open {
                self.add(last, last_ns, at_ns.saturating_sub(last_ns))?;
                open = Some((*id, at_ns.max(last_ns)));
            } else {
                open = Some((*id, at_ns));
            }
        }
        if let Some((last, last_ns)) = open {
            self.add(last, last_ns, self.duration_ns.saturating_sub(last_ns))?;
        }
        Ok(())
    }

    /// Without samples, the counts of nodes share the time.
    fn hits(&mut self) -> Result<(), ImportError> {
        let hits = self
            .file
            .nodes
            .iter()
            .map(|node| u128::from(node.hit_count))
            .sum::<u128>();
        // Shares of sums, so that the shares sum to the whole.
        let share_ns = |sum: u128| {
            let share = u128::from(self.duration_ns).saturating_mul(sum) / hits.max(1);
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let mut sum = 0;
        let mut shares = Vec::with_capacity(self.file.nodes.len());
        for node in self.file.nodes.iter() {
            let before_ns = share_ns(sum);
            sum += u128::from(node.hit_count);
            shares.push((node.id, share_ns(sum) - before_ns));
        }
        shares
            .into_iter()
            .try_for_each(|(id, share_ns)| self.add(id, 0, share_ns))
    }

    fn add(&mut self, id: u64, at_ns: u64, weight: u64) -> Result<(), ImportError> {
        let TreeNode { node, is_idle } = match self.nodes.get(&id) {
            Some(known) => *known,
            None if self.file.may_lack_nodes => TreeNode {
                node: truncated_node(self.builder, self.lane.top)?,
                is_idle: false,
            },
            None => {
                return Err(self
                    .builder
                    .invalid(format!("a sample names node {id}, which does not exist")));
            }
        };
        let state = if is_idle {
            State::Sleep
        } else {
            self.builder.options.state()
        };
        self.builder.add(Sample {
            node,
            thread: self.lane.thread,
            state,
            weight,
            at_ns: self.lane.start_ns.saturating_add(at_ns),
        })
    }
}
