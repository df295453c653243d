//! Access and its limits: sockets, TLS, tokens, logins, quotas, floods.

pub(crate) mod bad_input;
pub(crate) mod bombs;
pub(crate) mod connections;
pub(crate) mod floods;
pub(crate) mod login;
pub(crate) mod quotas;
pub(crate) mod sockets;
pub(crate) mod tls;
pub(crate) mod tokens;
