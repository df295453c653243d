//! Tokens and certificates.

pub(crate) mod tls;
pub(crate) mod token;
