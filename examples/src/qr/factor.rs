//! The arithmetic of a tall-skinny QR, free of threads and sockets: each step is one named function,
//! so that a flame graph reads like the algorithm.
//!
//! The factorization is LAPACK's blocked Householder QR: a panel of columns is reduced by itself,
//! and its reflections are applied to the other columns at once, as `I − V·T·Vᵀ`, so that nearly all
//! work is multiplication of matrices.

use std::ops::Range;

use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, ShapeBuilder as _, concatenate, s};

/// Columns that are reduced before their reflections are applied to the others.
const PANEL_COLUMNS: usize = 32;

/// A QR whose Q is still a product of reflections.
pub(crate) struct Factored {
    rows: usize,
    panels: Vec<Panel>,
    r: Array2<f64>,
}

/// The product of one panel's reflections, `I − V·T·Vᵀ`, on the rows from `top` on.
struct Panel {
    top: usize,
    v: Array2<f64>,
    t: Array2<f64>,
}

/// A block of uniform random numbers in [0, 1), the same for the same seed on every machine.
#[inline(never)]
pub(crate) fn random_block(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let mut state = seed;
    Array2::from_shape_simple_fn((rows, columns), || uniform(split_mix(&mut state)))
}

/// Householder QR of a matrix at least as tall as it is wide. Q stays a product of reflections
/// until [`form_q`] computes some of its columns.
#[inline(never)]
pub(crate) fn householder_qr(matrix: &Array2<f64>) -> Factored {
    let (rows, columns) = matrix.dim();
    // Column by column, because a reflection reads whole columns.
    let mut rest = Array2::zeros((rows, columns).f());
    rest.assign(matrix);
    let mut panels = Vec::new();
    for top in (0..columns).step_by(PANEL_COLUMNS) {
        let width = PANEL_COLUMNS.min(columns - top);
        let below = rest.slice_mut(s![top.., top..]);
        let (reduced, others) = below.split_at(Axis(1), width);
        let panel = reduce_panel(reduced, top);
        panel.apply(others, Order::Transposed);
        panels.push(panel);
    }
    let r = Array2::from_shape_fn((columns, columns), |(row, column)| {
        if row <= column {
            rest[(row, column)]
        } else {
            0.0
        }
    });
    Factored { rows, panels, r }
}

/// Reduces the columns of a panel to its triangle of R, and returns its reflections.
#[inline(never)]
fn reduce_panel(mut columns: ArrayViewMut2<'_, f64>, top: usize) -> Panel {
    let (rows, width) = columns.dim();
    let mut v = Array2::zeros((rows, width).f());
    let mut t = Array2::zeros((width, width));
    for j in 0..width {
        let (mut own, mut later) = columns.slice_mut(s![j.., j..]).split_at(Axis(1), 1);
        let mut own = own.column_mut(0);
        let norm = own.dot(&own).sqrt();
        let diagonal = -norm.copysign(own[0]);
        // A column of zeros needs no reflection: `tau` stays zero.
        let mut tau = 0.0;
        let mut reflection = v.slice_mut(s![j.., j]);
        reflection[0] = 1.0;
        if norm > 0.0 {
            tau = (diagonal - own[0]) / diagonal;
            let scale = 1.0 / (own[0] - diagonal);
            reflection.slice_mut(s![1..]).assign(&own.slice(s![1..]));
            reflection
                .slice_mut(s![1..])
                .map_inplace(|value| *value *= scale);
        }
        own.fill(0.0);
        own[0] = diagonal;
        for mut column in later.columns_mut() {
            let projection = tau * reflection.dot(&column);
            column.scaled_add(-projection, &reflection);
        }
        // T grows by a column: −tau · T · (Vᵀ·v), and tau on the diagonal.
        let products: Array1<f64> = v.slice(s![j.., ..j]).t().dot(&v.slice(s![j.., j]));
        let above = t.slice(s![..j, ..j]).dot(&products) * -tau;
        t.slice_mut(s![..j, j]).assign(&above);
        t[(j, j)] = tau;
    }
    Panel { top, v, t }
}

/// Whether a product of reflections is applied as it is or transposed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Straight,
    Transposed,
}

impl Panel {
    /// Applies the reflections to `matrix`, whose first row is row `top` of the whole.
    #[inline(never)]
    fn apply(&self, mut matrix: ArrayViewMut2<'_, f64>, order: Order) {
        let projected = self.v.t().dot(&matrix);
        let combined = match order {
            Order::Straight => self.t.dot(&projected),
            Order::Transposed => self.t.t().dot(&projected),
        };
        general_mat_mul(-1.0, &self.v, &combined, 1.0, &mut matrix);
    }
}

impl Factored {
    /// The square upper triangle.
    pub(crate) fn thin_r(&self) -> &Array2<f64> {
        &self.r
    }
}

/// The given columns of the thin Q: a part of them at a time, so that a stop need not wait for all.
#[inline(never)]
pub(crate) fn form_q(factored: &Factored, columns: Range<usize>) -> Array2<f64> {
    let mut q = Array2::zeros((factored.rows, columns.len()));
    for (index, column) in columns.clone().enumerate() {
        q[(column, index)] = 1.0;
    }
    for panel in factored.panels.iter().rev() {
        // Columns left of the panel's are still zero in the rows that it changes.
        let first = panel.top.saturating_sub(columns.start);
        if first < columns.len() {
            panel.apply(q.slice_mut(s![panel.top.., first..]), Order::Straight);
        }
    }
    q
}

/// The blocks one below the other; all must be equally wide.
#[inline(never)]
pub(crate) fn stack_rows(blocks: &[Array2<f64>]) -> Array2<f64> {
    let views: Vec<ArrayView2<'_, f64>> = blocks.iter().map(|block| block.view()).collect();
    concatenate(Axis(0), &views).expect("the blocks are equally wide")
}

/// Cuts panels of adjacent columns, equally tall, into blocks of `block_rows` full rows.
#[inline(never)]
pub(crate) fn split_rows(panels: &[Array2<f64>], block_rows: usize) -> Vec<Array2<f64>> {
    let rows = panels.first().map_or(0, Array2::nrows);
    let cut = |top: usize| {
        let rows = s![top..top + block_rows, ..];
        let parts: Vec<ArrayView2<'_, f64>> =
            panels.iter().map(|panel| panel.slice(rows)).collect();
        concatenate(Axis(1), &parts).expect("the panels are equally tall")
    };
    (0..rows / block_rows)
        .map(|index| cut(index * block_rows))
        .collect()
}

/// `left · right` on the calling thread alone: the fleet's parallelism is its workers, and a
/// product that spread over a hidden pool would be time outside the task that requested it.
#[inline(never)]
pub(crate) fn multiply(left: &Array2<f64>, right: &Array2<f64>) -> Array2<f64> {
    left.dot(right)
}

/// ‖computed − original‖ / ‖original‖ in the Frobenius norm; not a number if anything went wrong.
#[inline(never)]
pub(crate) fn relative_residual(computed: &Array2<f64>, original: &Array2<f64>) -> f64 {
    norm(&(computed - original)) / norm(original)
}

fn norm(matrix: &Array2<f64>) -> f64 {
    matrix.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// Steele, Lea and Flood's SplitMix64: an addition and a mix for each number, good enough here.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The upper 53 bits as a fraction: each value is exact in an f64.
fn uniform(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distributed algorithm, done in one place on small blocks: Q·R is the matrix, Q's columns
    /// are orthonormal, and R is the R of a direct QR, except for the signs of its rows.
    #[test]
    fn tall_skinny_qr_equals_the_direct_one() {
        check_tall_skinny_qr(10, 8, 8, 3);
        check_tall_skinny_qr(4, 30, 12, 5);
        check_tall_skinny_qr(1, 7, 7, 7);
        check_tall_skinny_qr(3, 40, 33, 32);
        check_tall_skinny_qr(2, 100, 70, 64);
    }

    fn check_tall_skinny_qr(blocks: usize, rows: usize, columns: usize, panel: usize) {
        let originals: Vec<_> = (0..blocks as u64)
            .map(|seed| random_block(rows, columns, seed))
            .collect();
        let factored: Vec<_> = originals.iter().map(householder_qr).collect();
        let rs: Vec<_> = factored
            .iter()
            .map(|factored| factored.thin_r().clone())
            .collect();
        let top = householder_qr(&stack_rows(&rs));
        let panels: Vec<_> = (0..columns)
            .step_by(panel)
            .map(|start| form_q(&top, start..columns.min(start + panel)))
            .collect();
        let q: Vec<_> = factored
            .iter()
            .zip(split_rows(&panels, columns))
            .map(|(factored, q2)| multiply(&form_q(factored, 0..columns), &q2))
            .collect();

        let q = stack_rows(&q);
        let r = top.thin_r();
        let original = stack_rows(&originals);
        assert!(relative_residual(&multiply(&q, r), &original) < 1e-14);
        let gram = q.t().dot(&q) - Array2::<f64>::eye(columns);
        assert!(gram.iter().all(|value| value.abs() < 1e-13), "{gram}");
        let direct = gram_schmidt_r(&original);
        for ((row, column), value) in r.indexed_iter() {
            let difference = value.abs() - direct[(row, column)].abs();
            assert!(
                difference.abs() < 1e-11,
                "R differs at {row}, {column}: {difference}"
            );
        }
    }

    /// R by another method: modified Gram–Schmidt.
    fn gram_schmidt_r(matrix: &Array2<f64>) -> Array2<f64> {
        let columns = matrix.ncols();
        let mut rest = matrix.clone();
        let mut r = Array2::zeros((columns, columns));
        for j in 0..columns {
            let length = rest.column(j).dot(&rest.column(j)).sqrt();
            let unit = &rest.column(j) / length;
            r[(j, j)] = length;
            for k in j + 1..columns {
                r[(j, k)] = unit.dot(&rest.column(k));
                rest.column_mut(k).scaled_add(-r[(j, k)], &unit);
            }
        }
        r
    }

    /// A column that is zero below the diagonal has no reflection, and a matrix of zeros none at all.
    #[test]
    fn a_matrix_of_zeros_has_a_zero_r() {
        let factored = householder_qr(&Array2::zeros((5, 3)));
        assert_eq!(factored.thin_r(), &Array2::<f64>::zeros((3, 3)));
        assert_eq!(
            form_q(&factored, 0..3),
            Array2::from_shape_fn((5, 3), |(i, j)| f64::from(i == j))
        );
    }

    /// The residual detects one wrong number among a million right ones.
    #[test]
    fn the_residual_sees_one_wrong_number() {
        let original = random_block(1_000, 1_000, 1);
        let mut computed = original.clone();
        assert_eq!(relative_residual(&computed, &original), 0.0);
        computed[(500, 500)] += 1e-6;
        assert!(relative_residual(&computed, &original) > 1e-10);
    }
}
