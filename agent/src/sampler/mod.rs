//! The sampler: a thread that probes every thread of the process each tick and counts the stacks
//! that it finds. It knows no network and no names.
//!
//! A running thread is asked by a timer on its CPU clock, whose signal makes it copy its own stack
//! ([`sys::request`], [`sys::slots`]). A blocked thread is read from outside, through `/proc` and
//! checked copies of its memory ([`thread_probe`]). Neither makes a system call of the program
//! fail. A thread that has not run since it was last seen blocked is counted again without a probe.
//!
//! How long a thread ran, waited for a processor and was blocked is known from the kernel's clocks;
//! samples only say where ([`thread`]).
//!
//! Reading order: [`tick`] (the loop), [`thread_probe`] (one thread in one tick), [`thread`] (its
//! time), [`addresses`] and [`thread_frames`] (the tree), [`schedule`] (settings and thread dumps
//! while the sampler runs), [`overhead`] (what it costs, and the limit).

mod addresses;
mod files;
mod memory;
mod mode;
mod options;
mod overhead;
mod raw;
mod schedule;
mod sys;
mod thread;
mod thread_frames;
mod thread_probe;
mod tick;
mod unwind;
mod wait;

pub(crate) use self::addresses::{AddressFrame, CodeModule, TreeDelta};
pub(crate) use self::options::SamplerOptions;
pub(crate) use self::overhead::OverheadCounters;
pub(crate) use self::raw::{RawCycle, RawThread, RawThreadDump};
pub(crate) use self::thread_frames::OTHER_THREADS;
pub(crate) use self::tick::Sampler;
