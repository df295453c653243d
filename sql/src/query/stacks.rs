//! The stacks of stores: a table of their nodes with names, and the function `stack`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, RecordBatch, StringViewBuilder, UInt32Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use datafusion::common::tree_node::TreeNode as _;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use profiler_core::Frame;
use store::SnapshotStacks;

/// The table of a store's nodes.
pub(super) const NODE_NAMES: &str = "node_names";

/// Nodes of different stores have different numbers in queries: the number of the store is in the upper half.
pub(super) const STORE_SHIFT: u32 = 32;

/// Nodes of a record batch.
const BATCH_NODES: usize = 1 << 14;

/// Frames of a stack that `stack` shows.
const FRAMES_MAX: usize = 512;

/// The table of a store's nodes. `task` is the name at the first level.
pub(super) fn node_table(stacks: &SnapshotStacks) -> Result<Vec<RecordBatch>> {
    let text = |name| Field::new(name, DataType::Utf8View, false);
    let number = |name| Field::new(name, DataType::UInt32, false);
    let schema = Arc::new(Schema::new(vec![
        number("node"),
        number("parent"),
        number("depth"),
        text("task"),
        text("kind"),
        text("function"),
        text("file"),
        number("line"),
        text("module"),
    ]));
    let count = stacks.len();
    // By node: the first-level node above it, and its depth. Parents come first.
    let mut tops = vec![0u32; count + 1];
    let mut depths = vec![0u32; count + 1];
    let mut batches = Vec::new();
    let numbers: Vec<u32> = (1..).take(count).collect();
    for nodes in numbers.chunks(BATCH_NODES) {
        let mut parents = Vec::new();
        let [mut tasks, mut kinds, mut functions, mut files, mut modules] =
            std::array::from_fn(|_| StringViewBuilder::new().with_deduplicate_strings());
        let mut lines = Vec::new();
        for &node in nodes {
            let parent = stacks.parent(node).unwrap_or(0);
            let index = node as usize;
            tops[index] = if parent == 0 {
                node
            } else {
                tops[parent as usize]
            };
            depths[index] = depths[parent as usize] + 1;
            parents.push(parent);
            tasks.append_value(label(stacks, tops[index]));
            let frame = stacks.functions(node).last();
            kinds.append_value(stacks.kind(node));
            functions.append_value(label(stacks, node));
            files.append_value(frame.map_or("", |frame| &frame.file));
            lines.push(frame.map_or(0, |frame| frame.line));
            modules.append_value(frame.map_or("", |frame| &frame.module));
        }
        let numbers = |values: Vec<u32>| -> ArrayRef { Arc::new(UInt32Array::from(values)) };
        let first = nodes[0] as usize;
        let columns: Vec<ArrayRef> = vec![
            numbers(nodes.to_vec()),
            numbers(parents),
            numbers(depths[first..first + nodes.len()].to_vec()),
            Arc::new(tasks.finish()),
            Arc::new(kinds.finish()),
            Arc::new(functions.finish()),
            Arc::new(files.finish()),
            numbers(lines),
            Arc::new(modules.finish()),
        ];
        batches.push(RecordBatch::try_new(schema.clone(), columns)?);
    }
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(schema));
    }
    Ok(batches)
}

/// The innermost function at a node.
fn label(stacks: &SnapshotStacks, node: u32) -> String {
    stacks
        .functions(node)
        .last()
        .map(Frame::label)
        .unwrap_or_default()
}

/// `stack(node)`: the functions from the task inwards, separated by `;`, as collapsed stacks have them.
#[derive(Debug)]
pub(super) struct StackFunction {
    /// By number of the store.
    stores: Vec<Arc<SnapshotStacks>>,
    signature: Signature,
}

impl StackFunction {
    pub(super) fn new(stores: Vec<Arc<SnapshotStacks>>) -> StackFunction {
        // Whole numbers in the text of a query are signed.
        let types = vec![DataType::UInt64, DataType::Int64];
        let signature = Signature::uniform(1, types, Volatility::Immutable);
        StackFunction { stores, signature }
    }

    fn stack(&self, node: u64) -> Option<String> {
        let stacks = self
            .stores
            .get(usize::try_from(node >> STORE_SHIFT).ok()?)?;
        let mut at = (node & u64::from(u32::MAX)) as u32;
        let mut labels = Vec::new();
        while at != 0 && labels.len() < FRAMES_MAX {
            let functions = stacks.functions(at);
            if functions.is_empty() {
                return None;
            }
            labels.extend(
                functions
                    .iter()
                    .rev()
                    .map(|frame| frame.label().replace(';', ":")),
            );
            at = stacks.parent(at)?;
        }
        labels.reverse();
        Some(labels.join(";"))
    }
}

/// Whether an expression calls `stack`.
pub(super) fn uses_stacks(expr: &Expr) -> bool {
    expr.exists(|expr| {
        Ok(match expr {
            Expr::ScalarFunction(call) => {
                call.func.inner().downcast_ref::<StackFunction>().is_some()
            }
            _ => false,
        })
    })
    .unwrap_or(true)
}

// There is one such function in a session.
impl PartialEq for StackFunction {
    fn eq(&self, other: &StackFunction) -> bool {
        self.stores.len() == other.stores.len()
    }
}

impl Eq for StackFunction {}

impl Hash for StackFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for StackFunction {
    fn name(&self) -> &str {
        "stack"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [nodes] = arrays.as_slice() else {
            return exec_err!("stack() needs one node, as in stack(node)");
        };
        let numbers = cast(nodes, &DataType::UInt64)?;
        let mut texts = StringViewBuilder::with_capacity(numbers.len());
        for node in numbers.as_primitive::<UInt64Type>() {
            texts.append_option(node.and_then(|node| self.stack(node)));
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish())))
    }
}
