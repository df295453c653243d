//! The arithmetic of a tall-skinny QR, free of threads and sockets: each step is one named function,
//! so that a flame graph reads like the algorithm.

use std::ops::Range;

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply_householder,
};
use faer::linalg::matmul::matmul;
use faer::linalg::solvers::Qr;
use faer::{Accum, Conj, Mat, MatRef, Par};

/// A block of uniform random numbers in [0, 1), the same for the same seed on every machine.
#[inline(never)]
pub(crate) fn random_block(rows: usize, columns: usize, seed: u64) -> Mat<f64> {
    let mut state = seed;
    Mat::from_fn(rows, columns, |_, _| uniform(split_mix(&mut state)))
}

/// Householder QR of a matrix at least as tall as it is wide. Q stays a product of reflections until
/// [`form_q`] is asked for some of its columns.
#[inline(never)]
pub(crate) fn householder_qr(matrix: MatRef<'_, f64>) -> Qr<f64> {
    matrix.qr()
}

/// The given columns of the thin Q: a part of them at a time, so that a stop need not wait for all.
#[inline(never)]
pub(crate) fn form_q(factored: &Qr<f64>, columns: Range<usize>) -> Mat<f64> {
    let (basis, coefficients) = (factored.Q_basis(), factored.Q_coeff());
    let mut q = Mat::from_fn(basis.nrows(), columns.len(), |row, column| {
        if row == columns.start + column { 1.0 } else { 0.0 }
    });
    let scratch = apply_scratch::<f64>(basis.nrows(), coefficients.nrows(), columns.len());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    apply_householder(basis, coefficients, Conj::No, q.as_mut(), Par::Seq, stack);
    q
}

/// The blocks one below the other; all must be equally wide.
#[inline(never)]
pub(crate) fn stack_rows(blocks: &[Mat<f64>]) -> Mat<f64> {
    let columns = blocks.first().map_or(0, Mat::ncols);
    let mut stacked = Mat::zeros(blocks.iter().map(Mat::nrows).sum(), columns);
    let mut top = 0;
    for block in blocks {
        stacked.as_mut().subrows_mut(top, block.nrows()).copy_from(block);
        top += block.nrows();
    }
    stacked
}

/// Cuts panels of adjacent columns, equally tall, into blocks of `block_rows` full rows.
#[inline(never)]
pub(crate) fn split_rows(panels: &[Mat<f64>], block_rows: usize) -> Vec<Mat<f64>> {
    let rows = panels.first().map_or(0, Mat::nrows);
    let columns = panels.iter().map(Mat::ncols).sum();
    let cut = |top: usize| {
        let mut block = Mat::zeros(block_rows, columns);
        let mut left = 0;
        for panel in panels {
            let part = block.as_mut().subcols_mut(left, panel.ncols());
            { part }.copy_from(panel.subrows(top, block_rows));
            left += panel.ncols();
        }
        block
    };
    (0..rows / block_rows).map(|index| cut(index * block_rows)).collect()
}

/// `left · right` on the calling thread alone: the fleet's parallelism is its workers, and a product
/// that spread over a hidden pool would be time outside the task that asked for it.
#[inline(never)]
pub(crate) fn multiply(left: MatRef<'_, f64>, right: MatRef<'_, f64>) -> Mat<f64> {
    let mut product = Mat::zeros(left.nrows(), right.ncols());
    matmul(product.as_mut(), Accum::Replace, left, right, 1.0, Par::Seq);
    product
}

/// ‖computed − original‖ / ‖original‖ in the Frobenius norm; not a number if anything went wrong.
#[inline(never)]
pub(crate) fn relative_residual(computed: MatRef<'_, f64>, original: MatRef<'_, f64>) -> f64 {
    (computed - original).norm_l2() / original.norm_l2()
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
    /// are orthonormal, and R is the R of a direct QR but for the signs of its rows.
    #[test]
    fn tall_skinny_qr_equals_the_direct_one() {
        check_tall_skinny_qr(10, 8, 8, 3);
        check_tall_skinny_qr(4, 30, 12, 5);
        check_tall_skinny_qr(1, 7, 7, 7);
        check_tall_skinny_qr(3, 40, 33, 32);
    }

    fn check_tall_skinny_qr(blocks: usize, rows: usize, columns: usize, panel: usize) {
        let originals: Vec<_> =
            (0..blocks as u64).map(|seed| random_block(rows, columns, seed)).collect();
        let factored: Vec<_> =
            originals.iter().map(|block| householder_qr(block.as_ref())).collect();
        let rs: Vec<_> = factored.iter().map(|factored| factored.thin_R().to_owned()).collect();
        let top = householder_qr(stack_rows(&rs).as_ref());
        let panels: Vec<_> = (0..columns)
            .step_by(panel)
            .map(|start| form_q(&top, start..columns.min(start + panel)))
            .collect();
        let q: Vec<_> = factored
            .iter()
            .zip(split_rows(&panels, columns))
            .map(|(factored, q2)| multiply(form_q(factored, 0..columns).as_ref(), q2.as_ref()))
            .collect();

        let (q, r) = (stack_rows(&q), top.thin_R());
        let original = stack_rows(&originals);
        let product = multiply(q.as_ref(), r);
        assert!(relative_residual(product.as_ref(), original.as_ref()) < 1e-14);
        let gram = multiply(q.transpose(), q.as_ref());
        assert!((gram - Mat::<f64>::identity(columns, columns)).norm_max() < 1e-13);
        let direct = original.qr();
        for row in 0..columns {
            for column in 0..columns {
                let difference = r[(row, column)].abs() - direct.thin_R()[(row, column)].abs();
                assert!(difference.abs() < 1e-11, "R differs at {row}, {column}: {difference}");
            }
        }
    }

    /// The residual notices one wrong number among a million right ones.
    #[test]
    fn the_residual_sees_one_wrong_number() {
        let original = random_block(1_000, 1_000, 1);
        let mut computed = original.clone();
        assert_eq!(relative_residual(computed.as_ref(), original.as_ref()), 0.0);
        computed[(500, 500)] += 1e-6;
        assert!(relative_residual(computed.as_ref(), original.as_ref()) > 1e-10);
    }
}
