//! Sums before names: a rule of the optimizer.
//!
//! A view joins each row of a counting table with names. A sum needs the names of its groups only, so it is taken
//! over the numbers first, and the few rows that are left are joined. A join with names that nothing uses is
//! dropped: names are unique, so it changes no row. Without stacks or workers, a smaller table has the same sums.
//!
//! ```text
//! sum(weight_ns) by task ◀─ names ◀─ names ◀─ rows
//! sum(weight_ns) by task ◀─ names ◀─ sum(weight_ns) by number ◀─ rows
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider as _;
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ExprSchema as _, JoinType, Result};
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, LogicalPlan, Projection, SubqueryAlias, TableScan,
    TableScanBuilder, Union,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::file_table::{FileTable, PERIOD};
use super::stacks::{NODE_NAMES, uses_stacks};

/// The columns of a counting table that make many groups. If all of them are needed, a first sum saves nothing.
const DIMENSIONS: [&str; 3] = [PERIOD, "worker", "node"];

/// Tables with one row for each value of a column.
const UNIQUE: [UniqueColumn; 2] = [
    UniqueColumn {
        table: NODE_NAMES,
        column: "node",
    },
    UniqueColumn {
        table: "workers",
        column: "number",
    },
];

struct UniqueColumn {
    table: &'static str,
    column: &'static str,
}

/// Sums numbers before they are joined with their names.
#[derive(Debug)]
pub(super) struct SumsFirst;

impl OptimizerRule for SumsFirst {
    fn name(&self) -> &str {
        "sums_first"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else {
            return Ok(Transformed::no(plan));
        };
        Ok(match rewritten(aggregate)? {
            Some(plan) => Transformed::yes(plan),
            None => Transformed::no(plan),
        })
    }
}

/// The columns that a node's parent uses.
#[derive(Clone, Default)]
struct Used {
    /// Those that are only summed.
    sums: HashSet<Column>,
    /// The others.
    keys: HashSet<Column>,
}

impl Used {
    /// Adds the columns of an expression; `false` if it uses one that may only be summed.
    fn add(&mut self, expr: &Expr) -> bool {
        self.keys.extend(expr.column_refs().into_iter().cloned());
        self.sums.is_disjoint(&self.keys)
    }

    /// The same columns under the names of another schema with the same order.
    fn renamed(&self, from: &DFSchema, to: &DFSchema) -> Used {
        let names = from.columns().into_iter().zip(to.columns());
        let mut renamed = Used::default();
        for (from, to) in names {
            if self.sums.contains(&from) {
                renamed.sums.insert(to);
            } else if self.keys.contains(&from) {
                renamed.keys.insert(to);
            }
        }
        renamed
    }
}

/// The same aggregate over fewer rows; `None` if it has to stay.
fn rewritten(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    if !is_over_join(&aggregate.input) {
        return Ok(None);
    }
    let Some(used) = used_by(aggregate) else {
        return Ok(None);
    };
    let Some(input) = summed(&aggregate.input, &used)? else {
        return Ok(None);
    };
    let [groups, sums] = [&aggregate.group_expr, &aggregate.aggr_expr].map(Clone::clone);
    Ok(Some(LogicalPlan::Aggregate(Aggregate::try_new(
        Arc::new(input),
        groups,
        sums,
    )?)))
}

/// Whether there is anything before which rows can be summed. So no sum is put before itself.
fn is_over_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(_) | LogicalPlan::Union(_) => true,
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. })
        | LogicalPlan::Filter(Filter { input, .. }) => is_over_join(input),
        _ => false,
    }
}

/// The columns of an aggregate that has nothing but sums of columns.
fn used_by(aggregate: &Aggregate) -> Option<Used> {
    let mut used = Used::default();
    let mut others: Vec<&Expr> = aggregate.group_expr.iter().collect();
    for expr in &aggregate.aggr_expr {
        let Expr::AggregateFunction(function) = without_alias(expr) else {
            return None;
        };
        let params = &function.params;
        let [Expr::Column(column)] = params.args.as_slice() else {
            return None;
        };
        let is_sum = function.func.name() == "sum" && !params.distinct;
        if !is_sum || !params.order_by.is_empty() || params.null_treatment.is_some() {
            return None;
        }
        used.sums.insert(column.clone());
        others.extend(params.filter.as_deref());
    }
    (!used.sums.is_empty() && others.into_iter().all(|expr| used.add(expr))).then_some(used)
}

fn without_alias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => without_alias(&alias.expr),
        expr => expr,
    }
}

/// The column of which an expression is the number, perhaps as a signed one. Views have sums so: the sum of signed
/// numbers is that of the numbers, as a signed one.
fn counter(expr: &Expr) -> Option<&Column> {
    match without_alias(expr) {
        Expr::Column(column) => Some(column),
        Expr::Cast(cast) if *cast.field.data_type() == DataType::Int64 => counter(&cast.expr),
        _ => None,
    }
}

/// A plan with the same sums for each group of its keys; `None` if there is none with fewer rows. It has the used
/// columns only.
fn summed(plan: &LogicalPlan, used: &Used) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => summed_projection(projection, used),
        LogicalPlan::SubqueryAlias(alias) => {
            let used = used.renamed(&alias.schema, alias.input.schema());
            let Some(input) = summed(&alias.input, &used)? else {
                return Ok(None);
            };
            let alias = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?;
            Ok(Some(LogicalPlan::SubqueryAlias(alias)))
        }
        LogicalPlan::Filter(filter) => {
            if let LogicalPlan::TableScan(scan) = &*filter.input {
                return summed_scan(scan, Some(&filter.predicate), used);
            }
            let mut inner = used.clone();
            if !inner.add(&filter.predicate) {
                return Ok(None);
            }
            let Some(input) = summed(&filter.input, &inner)? else {
                return Ok(None);
            };
            let filter = Filter::try_new(filter.predicate.clone(), Arc::new(input))?;
            Ok(Some(LogicalPlan::Filter(filter)))
        }
        LogicalPlan::Join(join) => summed_join(join, used),
        LogicalPlan::Union(union) => summed_union(union, used),
        LogicalPlan::TableScan(scan) => summed_scan(scan, None, used),
        _ => Ok(None),
    }
}

fn summed_projection(projection: &Projection, used: &Used) -> Result<Option<LogicalPlan>> {
    let mut inner = Used::default();
    let mut others = Vec::new();
    let mut kept = Vec::new();
    for (column, expr) in projection
        .schema
        .columns()
        .into_iter()
        .zip(&projection.expr)
    {
        if used.sums.contains(&column) {
            let Some(source) = counter(expr) else {
                return Ok(None);
            };
            inner.sums.insert(source.clone());
        } else if used.keys.contains(&column) {
            others.push(expr);
        } else {
            continue;
        }
        kept.push(expr.clone());
    }
    if !others.into_iter().all(|expr| inner.add(expr)) {
        return Ok(None);
    }
    let Some(input) = summed(&projection.input, &inner)? else {
        return Ok(None);
    };
    Ok(Some(LogicalPlan::Projection(Projection::try_new(
        kept,
        Arc::new(input),
    )?)))
}

/// Rows with equal keys find the same partners, so they may be summed before.
fn summed_join(join: &Join, used: &Used) -> Result<Option<LogicalPlan>> {
    let columns =
        |plan: &LogicalPlan| -> HashSet<Column> { plan.schema().columns().into_iter().collect() };
    let [left, right] = [columns(&join.left), columns(&join.right)];
    let is_left = used.sums.is_subset(&left);
    if !is_left && !used.sums.is_subset(&right) {
        return Ok(None);
    }
    let (own, other) = if is_left {
        (&left, &right)
    } else {
        (&right, &left)
    };
    if join.join_type == JoinType::Left
        && is_left
        && used.keys.is_disjoint(other)
        && is_unique(join)
    {
        return summed(&join.left, used);
    }
    let is_supported = match join.join_type {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => true,
        JoinType::LeftSemi | JoinType::LeftAnti => is_left,
        JoinType::RightSemi | JoinType::RightAnti => !is_left,
        JoinType::LeftMark | JoinType::RightMark => false,
    };
    let mut inner = used.clone();
    let pairs = join.on.iter().flat_map(|(left, right)| [left, right]);
    if !is_supported || !pairs.chain(&join.filter).all(|expr| inner.add(expr)) {
        return Ok(None);
    }
    inner.keys.retain(|column| own.contains(column));
    let side = if is_left { &join.left } else { &join.right };
    let Some(side) = summed(side, &inner)?.map(Arc::new) else {
        return Ok(None);
    };
    let mut join = join.clone();
    if is_left {
        join.left = side;
    } else {
        join.right = side;
    }
    LogicalPlan::Join(join).recompute_schema().map(Some)
}

/// Whether each row on the left has at most one partner on the right.
fn is_unique(join: &Join) -> bool {
    let [(_, Expr::Column(key))] = join.on.as_slice() else {
        return false;
    };
    let Some(table) = scanned_table(&join.right) else {
        return false;
    };
    join.filter.is_none()
        && UNIQUE
            .iter()
            .any(|unique| unique.table == table && unique.column == key.name)
}

/// The table of a plan that drops rows and columns of it, and no more.
fn scanned_table(plan: &LogicalPlan) -> Option<&str> {
    match plan {
        LogicalPlan::TableScan(scan) => scan.table_name.schema().map(|_| scan.table_name.table()),
        LogicalPlan::Projection(Projection { input, expr, .. }) => {
            let are_columns = expr.iter().all(|expr| matches!(expr, Expr::Column(_)));
            are_columns.then(|| scanned_table(input))?
        }
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. })
        | LogicalPlan::Filter(Filter { input, .. }) => scanned_table(input),
        _ => None,
    }
}

/// All inputs of a union keep all their columns.
fn summed_union(union: &Union, used: &Used) -> Result<Option<LogicalPlan>> {
    let mut is_changed = false;
    let mut inputs = Vec::new();
    for input in &union.inputs {
        let mut inner = used.renamed(&union.schema, input.schema());
        let others = input.schema().columns().into_iter();
        inner
            .keys
            .extend(others.filter(|column| !inner.sums.contains(column)));
        let reduced = summed(input, &inner)?;
        is_changed |= reduced.is_some();
        inputs.push(reduced.map_or_else(|| input.clone(), Arc::new));
    }
    if !is_changed {
        return Ok(None);
    }
    Ok(Some(LogicalPlan::Union(Union::try_new(inputs)?)))
}

/// The sum over a counting table's rows, or over a smaller table with the same sums.
fn summed_scan(
    scan: &TableScan,
    predicate: Option<&Expr>,
    used: &Used,
) -> Result<Option<LogicalPlan>> {
    let provider = source_as_provider(&scan.source)?;
    let Some(table) = provider.downcast_ref::<FileTable>() else {
        return Ok(None);
    };
    let schema = &scan.projected_schema;
    let is_counter = |column: &Column| {
        let field = schema.field_from_column(column);
        field.is_ok_and(|field| *field.data_type() == DataType::UInt64)
    };
    if scan.fetch.is_some() || !used.sums.iter().all(is_counter) {
        return Ok(None);
    }
    // A condition on stacks is tried once for each stack, after the sum.
    let conditions = predicate.map(split_conjunction).unwrap_or_default();
    let (late, early): (Vec<&Expr>, Vec<&Expr>) =
        conditions.into_iter().partition(|expr| uses_stacks(expr));
    let mut kept = used.clone();
    let mut read = used.clone();
    if !late.iter().all(|expr| kept.add(expr)) || !early.iter().all(|expr| read.add(expr)) {
        return Ok(None);
    }
    read.keys.extend(kept.keys.iter().cloned());
    let source = match table.summary(read.keys.iter().chain(&read.sums)) {
        Some(summary) => provider_as_source(summary),
        None if saves_rows(table, &kept) => scan.source.clone(),
        None => return Ok(None),
    };
    let columns = schema
        .columns()
        .into_iter()
        .filter(|column| read.sums.contains(column) || read.keys.contains(column))
        .map(|column| source.schema().index_of(&column.name));
    let projection = columns.collect::<std::result::Result<Vec<usize>, _>>()?;
    let filters = early.iter().map(|expr| (*expr).clone()).collect();
    let scan = TableScanBuilder::new(scan.table_name.clone(), source)
        .with_projection(Some(projection))
        .with_filters(filters)
        .build()?;
    let sums = summed_rows(scan, conjunction(early.into_iter().cloned()), &kept)?;
    let Some(late) = conjunction(late.into_iter().cloned()) else {
        return Ok(Some(sums));
    };
    // A group always has a sum. A condition that names it is not moved back below the sum.
    let sum = sums
        .schema()
        .columns()
        .into_iter()
        .find(|column| kept.sums.contains(column));
    let sum = Expr::Column(sum.expect("there is a sum"));
    let late = late.or(sum.is_null());
    Ok(Some(LogicalPlan::Filter(Filter::try_new(
        late,
        Arc::new(sums),
    )?)))
}

/// Whether rows of a counting table become fewer if only these keys are kept.
fn saves_rows(table: &FileTable, kept: &Used) -> bool {
    let is_counting = table.schema().index_of(PERIOD).is_ok();
    is_counting
        && !DIMENSIONS
            .into_iter()
            .all(|name: &str| kept.keys.iter().any(|column| column.name == name))
}

/// The sums of a scan by the kept keys, in the order of its columns, because a union goes by the order.
fn summed_rows(scan: TableScan, condition: Option<Expr>, kept: &Used) -> Result<LogicalPlan> {
    let columns: Vec<Column> = scan
        .projected_schema
        .columns()
        .into_iter()
        .filter(|column| kept.sums.contains(column) || kept.keys.contains(column))
        .collect();
    let mut input = LogicalPlan::TableScan(scan);
    if let Some(condition) = condition {
        input = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(input))?);
    }
    let (sums, keys): (Vec<Column>, Vec<Column>) = columns
        .iter()
        .cloned()
        .partition(|column| kept.sums.contains(column));
    let key_count = keys.len();
    let groups = keys.into_iter().map(Expr::Column).collect();
    let totals = sums
        .into_iter()
        .map(|column| sum(Expr::Column(column)))
        .collect();
    let aggregate = Aggregate::try_new(Arc::new(input), groups, totals)?;
    let mut totals = aggregate.schema.columns().split_off(key_count).into_iter();
    let output = columns
        .into_iter()
        .map(|column| {
            if !kept.sums.contains(&column) {
                return Expr::Column(column);
            }
            let total = totals.next().expect("each sum has a column");
            Expr::Column(total).alias_qualified(column.relation, column.name)
        })
        .collect();
    let is_one_row = key_count == 0;
    let mut plan = LogicalPlan::Aggregate(aggregate);
    if is_one_row {
        // Without keys there is a row even if no row was read.
        let sums = plan.schema().columns().into_iter();
        let condition =
            conjunction(sums.map(|sum| Expr::Column(sum).is_not_null())).expect("there is a sum");
        plan = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?);
    }
    Ok(LogicalPlan::Projection(Projection::try_new(
        output,
        Arc::new(plan),
    )?))
}
