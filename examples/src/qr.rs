//! The tall-skinny QR of Dask's documentation: a random 10,000 × 1,000 matrix in ten blocks, its QR,
//! and Q·R.
//!
//! ```text
//! every worker   A_i random        Q1_i, R_i = qr(A_i)         Q_i = Q1_i · Q2_i    x_i = Q_i · R
//! the leader                   └─ R_i ─▶ Q2, R = qr(stack(R_i)) ─ Q2_i, R ─▶┘       └─ ‖x_i − A_i‖
//! ```
//!
//! The leader (worker 0) assigns the blocks again in each round, so a lost worker's share goes to
//! the others; without its leader a worker idles.

mod factor;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use ndarray::Array2;

use crate::fleet::context::{Context, Interrupt, Step};
use crate::fleet::link::Link;
use crate::fleet::pool::Pool;
use crate::wire::{Message, Part, WireError};

const BLOCKS: u32 = 10;
/// Rows and columns of a block.
const SIDE: usize = 1_000;
/// Panels of columns in which Q2 is formed. Each takes at most 0.3 s of CPU time; forming all at once
/// would outlast a stop.
const PANELS: usize = 8;
const COMPUTE_THREADS: usize = 2;
/// Ten thousand times what rounding leaves: 1e-15 was measured for blocks of this size.
const RESIDUAL_MAX: f64 = 1e-12;

/// The group's work, as one of its workers sees it.
struct Rounds<'a> {
    context: &'a Context,
    pool: Pool,
    /// Rows and columns of a block: [`SIDE`], less in tests.
    side: usize,
}

/// A block whose QR is known and that waits for its rows of Q2.
struct Factored {
    block: u32,
    original: Array2<f64>,
    q1: Array2<f64>,
}

/// The QR of the stacked Rs.
struct Stacked {
    /// Of the whole matrix.
    r: Arc<Array2<f64>>,
    /// Cut into the blocks' rows.
    q2: Vec<Array2<f64>>,
}

/// Leads the compute group over `links` until the stop.
///
/// # Errors
/// If a result is wrong; the loss of a peer is not an error.
pub(crate) fn lead(context: &Context, mut links: Vec<Link>) -> anyhow::Result<()> {
    let rounds = Rounds::new(context, SIDE)?;
    for round in 0u64.. {
        let _run = emberline_agent::mark_run(format!("qr-round-{round}"));
        match rounds.lead(&mut links, round) {
            Ok(()) => {}
            Err(Interrupt::Stopped) => break,
            Err(Interrupt::Lost { peer, cause }) => {
                context.note(format!(
                    "worker-{peer} is gone ({cause}); others take its blocks"
                ));
                links.retain(|link| link.peer != peer);
            }
            Err(Interrupt::Failed(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Computes what the leader at the other end of `link` asks for, until the stop.
///
/// # Errors
/// If a result is wrong; the loss of the leader is not an error.
pub(crate) fn follow(context: &Context, link: Option<Link>) -> anyhow::Result<()> {
    let rounds = Rounds::new(context, SIDE)?;
    let ended = link.map_or(Ok(()), |mut leader| rounds.follow(&mut leader));
    match ended {
        Err(Interrupt::Failed(error)) => return Err(error),
        Err(lost @ Interrupt::Lost { .. }) => context.note(format!("{lost}; no more rounds")),
        Ok(()) | Err(Interrupt::Stopped) => {}
    }
    context.stop.wait();
    Ok(())
}

impl<'a> Rounds<'a> {
    fn new(context: &'a Context, side: usize) -> anyhow::Result<Self> {
        Ok(Self {
            context,
            pool: Pool::new(context, "qr", COMPUTE_THREADS)?,
            side,
        })
    }

    fn lead(&self, links: &mut [Link], round: u64) -> Step<()> {
        self.context.check_stop()?;
        let shares = deal(round, links.len() + 1);
        let own_share = &shares[0];
        let others = &shares[1..];
        for (link, blocks) in links.iter_mut().zip(others) {
            self.send(
                link,
                &Message::Round {
                    round,
                    blocks: blocks.clone(),
                },
            )?;
        }
        let (own, own_rs) = self.factor_blocks(round, own_share)?;
        let mut rs: Vec<(u32, Array2<f64>)> = own_share.iter().copied().zip(own_rs).collect();
        for (link, blocks) in links.iter_mut().zip(others) {
            rs.extend(self.gather(link, round, blocks)?);
        }
        rs.sort_by_key(|(block, _)| *block);

        let rs = rs.into_iter().map(|(_, r)| r).collect();
        let Stacked { r, q2 } = self.stack_qr(round, rs)?;
        for (link, blocks) in links.iter_mut().zip(others) {
            self.send_matrix(link, round, 0, Part::FinalR, Array2::clone(&r))?;
            for &block in blocks {
                let rows = q2[block as usize].clone();
                self.send_matrix(link, round, block, Part::StackedQ, rows)?;
            }
        }
        let own = own.into_iter().map(|factored| {
            let rows = q2[factored.block as usize].clone();
            (factored, rows)
        });
        let mut residuals = self.apply_blocks(round, own.collect(), r)?;
        for (link, blocks) in links.iter_mut().zip(others) {
            for _ in blocks {
                match self.receive(link)? {
                    Message::Verdict {
                        round: of,
                        block,
                        residual,
                    } if of == round => {
                        residuals.push((block, residual));
                    }
                    _ => return Err(self.out_of_turn(link)),
                }
            }
        }
        Ok(judge(round, &residuals)?)
    }

    fn follow(&self, leader: &mut Link) -> Step<()> {
        let mut current = 0;
        let mut kept: Vec<Factored> = Vec::new();
        let mut pairs = Vec::new();
        let mut final_r = None;
        loop {
            match self.receive(leader)? {
                Message::Round { round, blocks } => {
                    // The rest of an earlier round is void: the leader lost a worker in it.
                    current = round;
                    final_r = None;
                    pairs.clear();
                    let (factored, rs) = self.factor_blocks(round, &blocks)?;
                    kept = factored;
                    for (block, r) in blocks.into_iter().zip(rs) {
                        self.send_matrix(leader, round, block, Part::BlockR, r)?;
                    }
                }
                Message::Block {
                    part: Part::FinalR,
                    matrix,
                    ..
                } => {
                    final_r = Some(Arc::new(matrix));
                }
                Message::Block {
                    part: Part::StackedQ,
                    block,
                    matrix,
                    ..
                } => {
                    let Some(at) = kept.iter().position(|factored| factored.block == block) else {
                        return Err(self.out_of_turn(leader));
                    };
                    pairs.push((kept.swap_remove(at), matrix));
                    let Some(r) = final_r.take_if(|_| kept.is_empty()) else {
                        continue;
                    };
                    let residuals = self.apply_blocks(current, std::mem::take(&mut pairs), r)?;
                    for &(block, residual) in &residuals {
                        self.send(
                            leader,
                            &Message::Verdict {
                                round: current,
                                block,
                                residual,
                            },
                        )?;
                    }
                    judge(current, &residuals)?;
                }
                _ => return Err(self.out_of_turn(leader)),
            }
        }
    }

    /// Makes the blocks of this round and their QRs; the Rs come back in the order of `blocks`.
    fn factor_blocks(&self, round: u64, blocks: &[u32]) -> Step<(Vec<Factored>, Vec<Array2<f64>>)> {
        let context = self.context.clone();
        let side = self.side;
        emberline_agent::expect_tasks("qr", blocks.len() as u64);
        let queued = Instant::now();
        let factor_block = move |block: u32| -> Step<(Factored, Array2<f64>)> {
            context.check_stop()?;
            let key = format!("random-{round}-{block}");
            let task = context.queued_task("random", key, queued);
            let mut seed = context.seed ^ (round << 8 | u64::from(block));
            let original = factor::random_block(side, side, factor::split_mix(&mut seed));
            drop(task);

            context.check_stop()?;
            let mut task = context.task("qr", format!("qr-{round}-{block}"));
            let factored = factor::householder_qr(&original);
            let q1 = factor::form_q(&factored, 0..side);
            task.result((side * side * 8) as u64, "Array2<f64>");
            Ok((
                Factored {
                    block,
                    original,
                    q1,
                },
                factored.thin_r().clone(),
            ))
        };
        let factored = self.pool.map(blocks.to_vec(), factor_block)?;
        Ok(factored
            .into_iter()
            .collect::<Step<Vec<_>>>()?
            .into_iter()
            .unzip())
    }

    /// QR of all Rs, one below the other.
    fn stack_qr(&self, round: u64, rs: Vec<Array2<f64>>) -> Step<Stacked> {
        self.context.check_stop()?;
        let task = self.context.task("stack-qr", format!("stack-qr-{round}-r"));
        let stacked = factor::stack_rows(&rs);
        let factored = Arc::new(factor::householder_qr(&stacked));
        drop(task);

        let form_panel = {
            let context = self.context.clone();
            let factored = Arc::clone(&factored);
            move |columns: Range<usize>| -> Step<Array2<f64>> {
                context.check_stop()?;
                let key = format!("stack-qr-{round}-q-{}", columns.start);
                let _task = context.task("stack-qr", key);
                Ok(factor::form_q(&factored, columns))
            }
        };
        let width = self.side.div_ceil(PANELS);
        let starts = (0..self.side).step_by(width);
        let panels = starts
            .map(|start| start..self.side.min(start + width))
            .collect();
        let panels = self
            .pool
            .map(panels, form_panel)?
            .into_iter()
            .collect::<Step<Vec<_>>>()?;
        let _task = self
            .context
            .task("stack-qr", format!("stack-qr-{round}-split"));
        let r = Arc::new(factored.thin_r().clone());
        Ok(Stacked {
            r,
            q2: factor::split_rows(&panels, self.side),
        })
    }

    /// Q_i = Q1_i · Q2_i and x_i = Q_i · R; returns how far each x_i is from its original.
    fn apply_blocks(
        &self,
        round: u64,
        pairs: Vec<(Factored, Array2<f64>)>,
        r: Arc<Array2<f64>>,
    ) -> Step<Vec<(u32, f64)>> {
        let context = self.context.clone();
        let apply_block = move |(
            Factored {
                block,
                original,
                q1,
            },
            q2,
        ): (Factored, Array2<f64>)| {
            context.check_stop()?;
            let task = context.task("dot", format!("dot-{round}-{block}"));
            let q = factor::multiply(&q1, &q2);
            let x = factor::multiply(&q, &r);
            drop(task);

            let task = context.task("check", format!("check-{round}-{block}"));
            let residual = factor::relative_residual(&x, &original);
            if let Err(wrong) = judge(round, &[(block, residual)]) {
                task.fail(wrong);
            }
            Ok((block, residual))
        };
        self.pool.map(pairs, apply_block)?.into_iter().collect()
    }

    /// Receives the Rs of `blocks`, skipping messages of an abandoned round.
    fn gather(&self, link: &mut Link, round: u64, blocks: &[u32]) -> Step<Vec<(u32, Array2<f64>)>> {
        let mut rs = Vec::new();
        while rs.len() < blocks.len() {
            match self.receive(link)? {
                Message::Block {
                    round: of,
                    block,
                    part: Part::BlockR,
                    matrix,
                } if of == round => {
                    rs.push((block, matrix));
                }
                Message::Block { round: of, .. } | Message::Verdict { round: of, .. }
                    if of < round => {}
                _ => return Err(self.out_of_turn(link)),
            }
        }
        if rs.iter().map(|(block, _)| block).eq(blocks) {
            Ok(rs)
        } else {
            Err(self.out_of_turn(link))
        }
    }

    fn send(&self, link: &mut Link, message: &Message) -> Step<()> {
        link.send(message)
            .map_err(|cause| self.context.lost(link.peer, cause))
    }

    fn send_matrix(
        &self,
        link: &mut Link,
        round: u64,
        block: u32,
        part: Part,
        matrix: Array2<f64>,
    ) -> Step<()> {
        self.context.check_stop()?;
        self.send(link, &Message::Announce { round, block, part })?;
        let key = format!("send-{}-{round}-{block}-to-{}", name_of(part), link.peer);
        let task = self.context.task("transfer", key);
        link.send(&Message::Block {
            round,
            block,
            part,
            matrix,
        })
        .map_err(|cause| self.context.lost_in(task, link.peer, cause))
    }

    /// Waits for the next message; for an announced matrix, the matrix itself.
    fn receive(&self, link: &mut Link) -> Step<Message> {
        let message = link
            .receive()
            .map_err(|cause| self.context.lost(link.peer, cause))?;
        let Message::Announce { round, block, part } = message else {
            return Ok(message);
        };
        let key = format!(
            "receive-{}-{round}-{block}-from-{}",
            name_of(part),
            link.peer
        );
        let task = self.context.task("transfer", key);
        link.receive()
            .map_err(|cause| self.context.lost_in(task, link.peer, cause))
    }

    fn out_of_turn(&self, link: &Link) -> Interrupt {
        self.context
            .lost(link.peer, WireError::Malformed("a message out of turn"))
    }
}

/// Assigns the blocks of `round`. The first member changes each round, so that in a group with more
/// members than blocks everyone has work at times.
fn deal(round: u64, members: usize) -> Vec<Vec<u32>> {
    let mut shares = vec![Vec::new(); members];
    let members = members as u64;
    for block in 0..BLOCKS {
        let turn = round % members * u64::from(BLOCKS) + u64::from(block);
        shares[(turn % members) as usize].push(block);
    }
    shares
}

fn judge(round: u64, residuals: &[(u32, f64)]) -> anyhow::Result<()> {
    for (block, residual) in residuals {
        if residual.is_nan() || *residual > RESIDUAL_MAX {
            bail!(
                "wrong result: block {block} of round {round} is off by {residual:e}, more than \
                 {RESIDUAL_MAX:e}"
            );
        }
    }
    Ok(())
}

fn name_of(part: Part) -> &'static str {
    match part {
        Part::BlockR => "r",
        Part::StackedQ => "q2",
        Part::FinalR => "final-r",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::link::pair;

    /// A round over real sockets: all ten blocks are checked on the worker that made them, and the
    /// matrices of the other's share cross the wire both ways.
    #[test]
    fn a_round_over_tcp_ends_in_ten_good_checks() {
        let leading = Context::new(0, 7);
        let following = Context::new(1, 7);
        let (to_follower, mut to_leader) = pair(&leading, &following);
        let follower = std::thread::spawn(move || {
            let rounds = Rounds::new(&following, 24).unwrap();
            let ended = rounds.follow(&mut to_leader);
            assert!(
                matches!(ended, Err(Interrupt::Lost { peer: 0, .. })),
                "{ended:?}"
            );
            following.recorder.snapshot()
        });
        Rounds::new(&leading, 24)
            .unwrap()
            .lead(&mut [to_follower], 0)
            .unwrap();
        let led = leading.recorder.snapshot();
        let followed = follower.join().unwrap();
        assert_eq!((led.tasks["check"].ok, followed.tasks["check"].ok), (5, 5));
        assert_eq!(
            (led.tasks["stack-qr"].ok, led.tasks["transfer"].ok),
            (1 + 8 + 1, 5 + 5 + 1)
        );
        assert_eq!(led.bytes_sent, followed.bytes_received);
        assert!(led.bytes_sent > 6 * 24 * 24 * 8 && led.bytes_received > 5 * 24 * 24 * 8);
    }

    /// A worker that goes away in the middle of a round is named as lost; the next round runs on
    /// the others, whose messages of the failed round are skipped.
    #[test]
    fn a_lost_worker_costs_one_round() {
        let contexts = [0, 1, 2].map(|index| Context::new(index, 7));
        let (to_dying, mut dying) = pair(&contexts[0], &contexts[1]);
        let (to_survivor, mut survivor) = pair(&contexts[0], &contexts[2]);
        let surviving = contexts[2].clone();
        let survivor = std::thread::spawn(move || {
            drop(Rounds::new(&surviving, 24).unwrap().follow(&mut survivor));
        });
        let dying = std::thread::spawn(move || {
            assert!(matches!(dying.receive(), Ok(Message::Round { .. })));
        });
        let rounds = Rounds::new(&contexts[0], 24).unwrap();
        let mut links = vec![to_dying, to_survivor];
        let lost = rounds.lead(&mut links, 0);
        assert!(
            matches!(lost, Err(Interrupt::Lost { peer: 1, .. })),
            "{lost:?}"
        );
        links.remove(0);
        rounds.lead(&mut links, 1).unwrap();
        drop(links);
        survivor.join().unwrap();
        dying.join().unwrap();
        let checks = |index: usize| contexts[index].recorder.snapshot().tasks["check"].ok;
        assert_eq!((checks(0), checks(2)), (5, 5));
    }

    /// After a stop no new block is begun.
    #[test]
    fn a_stop_ends_a_round_between_blocks() {
        let context = Context::new(0, 7);
        context.stop.set();
        let rounds = Rounds::new(&context, 24).unwrap();
        assert!(matches!(
            rounds.factor_blocks(0, &[0, 1]),
            Err(Interrupt::Stopped)
        ));
        assert!(context.recorder.snapshot().tasks.is_empty());
    }

    /// Every block is dealt once, and over some rounds every member of any group gets one.
    #[test]
    fn blocks_are_dealt_once_and_to_everyone() {
        for members in 1..=32 {
            let mut worked = vec![false; members];
            for round in 0..32 {
                let shares = deal(round, members);
                let mut dealt = shares.concat();
                dealt.sort_unstable();
                assert_eq!(dealt, (0..BLOCKS).collect::<Vec<_>>());
                shares
                    .iter()
                    .zip(&mut worked)
                    .for_each(|(share, at)| *at |= !share.is_empty());
            }
            assert!(
                worked.iter().all(|worked| *worked),
                "{members} members: {worked:?}"
            );
        }
    }

    /// A wrong block is an error, and so is one that is not a number.
    #[test]
    fn a_wrong_result_is_an_error() {
        assert!(judge(3, &[(0, 1e-15), (1, 1e-13)]).is_ok());
        let error = judge(3, &[(0, 1e-15), (4, 1e-9)]).unwrap_err().to_string();
        assert!(
            error.contains("block 4 of round 3 is off by 1e-9"),
            "{error}"
        );
        assert!(judge(3, &[(0, f64::NAN)]).is_err());
    }
}
