//! The sampler: a thread that looks at the threads of the process each tick and counts the stacks
//! that it finds. It knows no network and no names.
//!
//! Every thread has a timer on its CPU clock, whose signal makes it copy its own stack and announce
//! that it ran ([`sys::request`], [`sys::slots`]). A blocked thread is read from outside, through
//! `/proc` and checked copies of its memory ([`thread_probe`]). Neither makes a system call of the
//! program fail. A tick looks at the threads that ran; the others are visited now and then
//! ([`visits`]), and counted where they were last seen.
//!
//! How long a thread ran, waited for a processor and was blocked is known from the kernel's clocks;
//! samples only say where ([`thread`]).
//!
//! Reading order: [`tick`] (the loop), [`thread_list`] (who started and ended), [`thread_probe`]
//! (one thread in one tick), [`thread`] (its time), [`addresses`] and [`thread_frames`] (the tree), [`schedule`] (settings and thread dumps
//! while the sampler runs), [`overhead`] (what it costs, and the limit).

mod addresses;
mod audit;
mod cycles;
mod early;
mod files;
mod foreign;
mod memory;
mod mode;
mod options;
#[cfg(feature = "outside")]
#[allow(unreachable_pub, reason = "`crate::outside` is the door")]
pub(crate) mod outside;
mod overhead;
mod pages;
mod raw;
mod schedule;
mod stops;
mod sys;
mod task_words;
mod thread;
mod thread_frames;
mod thread_list;
mod thread_probe;
mod thread_table;
mod tick;
mod time_account;
mod unwind;
mod visits;
mod wait;

#[cfg(emberline_fuzzing)]
#[allow(unreachable_pub, reason = "`crate::fuzzing` is the door")]
pub use self::unwind::fuzzing;

pub(crate) use self::addresses::{AddressFrame, TreeDelta};
pub(crate) use self::audit::Difference;
pub(crate) use self::cycles::{CycleReceiver, cycles};
pub(crate) use self::options::SamplerOptions;
pub(crate) use self::overhead::OverheadCounters;
pub(crate) use self::pages::page_trie::RawDelta;
pub(crate) use self::raw::{RawCycle, RawThread, RawThreadDump};
pub(crate) use self::tick::Sampler;
