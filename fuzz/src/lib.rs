//! Common code of all fuzz targets: inputs of several parts, their mutation, and the limits of a run.

pub mod mutation;
pub mod parts;
pub mod streams;
pub mod target;

pub use target::Target;
