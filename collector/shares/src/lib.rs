//! Fair shares: what each peer may take of what all peers share.
//!
//! A peer is an [`Identity`](identity::Identity). A fleet may share one address or token, so by default no honest fleet
//! reaches a [`Quota`]: an identity may take nearly all of a pool while nobody else wants it. Rules that
//! keep the others safe:
//! - the last part of a pool is left to identities that hold less than half of it ([`SlotPool`],
//!   [`UnsealedShares`]);
//! - identities take turns, however often one of them asks ([`Turns`], [`RoundRobin`]);
//! - large messages never take the room of small ones ([`DecodeBudget`]);
//! - memory that a peer holds without progress is taken back when others need it ([`MemoryPool`]).
//!
//! An [`Account`] counts what its identity was refused.

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

mod account;
mod decode_budget;
pub mod identity;
mod memory_pool;
mod quotas;
mod rate;
mod round_robin;
mod slots;
mod turns;
mod unsealed;

pub use self::quotas::{Quota, QuotaError, QuotaSettings};

pub use self::account::{
    Account, Accounts, QuotaExceeded, QuotaUse, RetainedPart, SessionSlot, SharedTable,
};
pub use self::decode_budget::{Charge, DecodeBudget};
pub use self::memory_pool::{Full, MemoryPool, Reservation};
pub use self::quotas::Quotas;
pub use self::rate::TooFast;
pub use self::round_robin::RoundRobin;
pub use self::slots::{NoSlot, RevocableSlot, Slot, SlotPool};
pub use self::turns::{Turn, Turns};
pub use self::unsealed::UnsealedShares;
