//! Errors that become answers, without any protocol.

use std::fmt::Display;

/// An error that a client gets as an answer.
pub trait Refusal: Display {
    fn reason(&self) -> Reason;

    /// Names that exist and are like the one that does not.
    fn nearest(&self) -> Option<&[String]> {
        None
    }

    /// All values that are allowed.
    fn allowed(&self) -> Option<&[&str]> {
        None
    }
}

/// The kind of mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The request is wrong.
    Invalid,
    /// It names something that does not exist.
    UnknownName,
    /// A defect of the collector.
    Internal,
}
