//! Selections by name, translated to numbers: executors have no names.
//!
//! ```text
//! names of one worker ⋈ sum by worker ◀─ rows
//! names of one worker ⋈ sum by worker ◀─ rows whose worker is 7
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{JoinType, Result, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::push_down_filter::PushDownFilter;

use super::stacks::NODE_NAMES;

/// Tables of names, and of workers with their labels.
const TABLES: [&str; 3] = [NODE_NAMES, "workers", "sessions"];

/// Most numbers of a condition. A selection of more names drops no rows at the cluster.
const NUMBERS_MAX: usize = 10_000;

/// Whether a plan has nothing but names, and not all of a table.
fn selects_names(plan: &LogicalPlan) -> Result<bool> {
    let mut is_selection = false;
    let mut is_of_names = true;
    plan.apply(|node| {
        match node {
            LogicalPlan::TableScan(scan) => {
                is_of_names &= TABLES.contains(&scan.table_name.table());
            }
            LogicalPlan::Filter(_) => is_selection = true,
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {}
            LogicalPlan::Join(_) | LogicalPlan::Union(_) => {}
            _ => is_of_names = false,
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_selection && is_of_names)
}

/// The condition on `column` of rows that are joined with these names; `None` if the names are too many.
async fn condition(
    state: &SessionState,
    names: &LogicalPlan,
    number: &Expr,
    column: &Expr,
) -> Result<Option<Expr>> {
    let numbers = LogicalPlanBuilder::from(names.clone())
        .project([number.clone()])?
        .limit(0, Some(NUMBERS_MAX + 1))?
        .build()?;
    let mut list = Vec::new();
    for batch in DataFrame::new(state.clone(), numbers).collect().await? {
        for row in 0..batch.num_rows() {
            let number = ScalarValue::try_from_array(batch.column(0), row)?;
            list.push(Expr::Literal(number, None));
        }
    }
    Ok((list.len() <= NUMBERS_MAX).then(|| column.clone().in_list(list, false)))
}

/// The join with fewer rows on the side that has no names.
async fn restricted(state: &SessionState, join: &Join) -> Result<Option<LogicalPlan>> {
    let [(left, right)] = join.on.as_slice() else {
        return Ok(None);
    };
    if join.join_type != JoinType::Inner {
        return Ok(None);
    }
    let mut restricted = join.clone();
    let found = if selects_names(&join.left)? {
        let condition = condition(state, &join.left, left, right).await?;
        condition.map(|condition| (condition, &mut restricted.right))
    } else if selects_names(&join.right)? {
        let condition = condition(state, &join.right, right, left).await?;
        condition.map(|condition| (condition, &mut restricted.left))
    } else {
        None
    };
    let Some((condition, rows)) = found else {
        return Ok(None);
    };
    *rows = Arc::new(LogicalPlan::Filter(Filter::try_new(
        condition,
        rows.clone(),
    )?));
    Ok(Some(LogicalPlan::Join(restricted)))
}

/// A join, and the same over fewer rows.
struct Restricted {
    join: LogicalPlan,
    restricted: LogicalPlan,
}

/// The plan with conditions on numbers where rows are read. The names of each selection are read here.
pub(super) async fn with_numbers(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut joins = Vec::new();
    plan.apply(|node| {
        if let LogicalPlan::Join(join) = node {
            joins.push(join.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut changes = Vec::new();
    for join in joins {
        if let Some(restricted) = restricted(state, &join).await? {
            changes.push(Restricted {
                join: LogicalPlan::Join(join),
                restricted,
            });
        }
    }
    let plan = plan.transform_down(|node| {
        let change = changes.iter().find(|change| change.join == node);
        Ok(match change {
            Some(change) => Transformed::yes(change.restricted.clone()),
            None => Transformed::no(node),
        })
    })?;
    let rules = Optimizer::with_rules(vec![Arc::new(PushDownFilter::new())]);
    rules.optimize(plan.data, state, |_, _| {})
}
