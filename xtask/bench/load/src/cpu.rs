//! A load that only computes: threads share a fixed number of units.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;

use crate::figure::print_figure;
use crate::own::{Watch, watch_work};
use crate::profiler::{self, Peer};
use crate::settings::Settings;
use crate::work;

/// Runs and prints.
pub(crate) fn run(settings: &Settings, peers: &[Peer]) -> Result<()> {
    let profiler = profiler::start(&settings.profiler, settings.hertz, peers)?;
    let watch = Watch::new()?;
    let warm_until = Instant::now() + settings.settle;
    let warmed = AtomicU64::new(0);
    let taken = AtomicU64::new(0);
    // All threads pause between the first two waits, and between the last two.
    let barrier = Barrier::new(settings.threads + 1);
    let body = || {
        while Instant::now() < warm_until {
            work::unit(1);
            warmed.fetch_add(1, Ordering::Relaxed);
        }
        barrier.wait();
        barrier.wait();
        loop {
            let unit = taken.fetch_add(1, Ordering::Relaxed);
            if unit >= settings.units {
                break;
            }
            std::hint::black_box(work::unit(unit));
        }
        barrier.wait();
        barrier.wait();
    };
    thread::scope(|scope| {
        for _ in 0..settings.threads {
            scope.spawn(body);
        }
        watch_work(&watch, &barrier, &*profiler)
    })?;
    print_figure(
        "units_done",
        warmed.load(Ordering::Relaxed) + settings.units,
    );
    profiler::finish(profiler)
}
