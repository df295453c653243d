//! Semi joins before other joins: a rule of the optimizer.
//!
//! `worker IN (SELECT …)` keeps the rows of some workers. A view joins each row of a counting table with its
//! worker's name, so the names are selected first. The selected names then filter the rows while these are
//! read: the engine does that for each inner join.
//!
//! ```text
//! semi(names ⋈ rows, selected)  ▶  semi(names, selected) ⋈ rows
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::logical_expr::{Expr, Filter, Join, LogicalPlan, Projection, SubqueryAlias, Union};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Most inputs of a union that a semi join is moved into: its right side runs once for each.
const UNION_INPUTS_MAX: usize = 16;

/// Moves semi joins to the side of a join that has their column.
#[derive(Debug)]
pub(super) struct SemiJoinsFirst;

impl OptimizerRule for SemiJoinsFirst {
    fn name(&self) -> &str {
        "semi_joins_first"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let Some(semi) = SemiJoin::of(join) else {
            return Ok(Transformed::no(plan));
        };
        Ok(match semi.below_joins(&join.left, semi.column)? {
            Some(plan) => Transformed::yes(plan),
            None => Transformed::no(plan),
        })
    }
}

/// A semi join by one column.
struct SemiJoin<'a> {
    column: &'a Column,
    join: &'a Join,
}

impl<'a> SemiJoin<'a> {
    fn of(join: &'a Join) -> Option<SemiJoin<'a>> {
        let [(Expr::Column(column), _)] = join.on.as_slice() else {
            return None;
        };
        let is_plain = join.join_type == JoinType::LeftSemi
            && join.filter.is_none()
            && join.null_equality == NullEquality::NullEqualsNothing;
        is_plain.then_some(SemiJoin { column, join })
    }

    /// The selected rows of a plan whose `column` is compared, with the semi join below other joins; `None` if there is no
    /// join that it can move below.
    fn below_joins(&self, plan: &LogicalPlan, column: &Column) -> Result<Option<LogicalPlan>> {
        match plan {
            LogicalPlan::Projection(projection) => {
                let index = projection.schema.index_of_column(column)?;
                let Expr::Column(source) = projection.expr[index].clone().unalias() else {
                    return Ok(None);
                };
                let Some(input) = self.below_joins(&projection.input, &source)? else {
                    return Ok(None);
                };
                let expr = projection.expr.clone();
                let plan = Projection::try_new(expr, Arc::new(input))?;
                Ok(Some(LogicalPlan::Projection(plan)))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let index = alias.schema.index_of_column(column)?;
                let source = Column::from(alias.input.schema().qualified_field(index));
                let Some(input) = self.below_joins(&alias.input, &source)? else {
                    return Ok(None);
                };
                let plan = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?;
                Ok(Some(LogicalPlan::SubqueryAlias(plan)))
            }
            LogicalPlan::Filter(filter) => {
                let Some(input) = self.below_joins(&filter.input, column)? else {
                    return Ok(None);
                };
                let plan = Filter::try_new(filter.predicate.clone(), Arc::new(input))?;
                Ok(Some(LogicalPlan::Filter(plan)))
            }
            LogicalPlan::Union(union) => self.below_joins_of_union(union, column),
            LogicalPlan::Join(join) => self.below_join(join, column),
            _ => Ok(None),
        }
    }

    fn below_joins_of_union(&self, union: &Union, column: &Column) -> Result<Option<LogicalPlan>> {
        if union.inputs.len() > UNION_INPUTS_MAX {
            return Ok(None);
        }
        let index = union.schema.index_of_column(column)?;
        let mut inputs = Vec::new();
        for input in &union.inputs {
            let source = Column::from(input.schema().qualified_field(index));
            let Some(input) = self.below_joins(input, &source)? else {
                return Ok(None);
            };
            inputs.push(Arc::new(input));
        }
        Ok(Some(LogicalPlan::Union(Union::try_new(inputs)?)))
    }

    /// A row without a partner has no value to compare, so an outer join becomes an inner one.
    fn below_join(&self, join: &Join, column: &Column) -> Result<Option<LogicalPlan>> {
        let mut join = join.clone();
        let is_left = join.left.schema().has_column(column);
        join.join_type = match (join.join_type, is_left) {
            (JoinType::Inner, _) | (JoinType::Left, false) | (JoinType::Right, true) => {
                JoinType::Inner
            }
            (JoinType::Left, true) => JoinType::Left,
            (JoinType::Right, false) => JoinType::Right,
            _ => return Ok(None),
        };
        let side = if is_left {
            &mut join.left
        } else {
            &mut join.right
        };
        *side = Arc::new(match self.below_joins(side, column)? {
            Some(plan) => plan,
            None => self.above(side.as_ref().clone(), column)?,
        });
        LogicalPlan::Join(join).recompute_schema().map(Some)
    }

    /// The semi join with another left side.
    fn above(&self, left: LogicalPlan, column: &Column) -> Result<LogicalPlan> {
        let mut join = self.join.clone();
        join.left = Arc::new(left);
        join.on[0].0 = Expr::Column(column.clone());
        LogicalPlan::Join(join).recompute_schema()
    }
}
