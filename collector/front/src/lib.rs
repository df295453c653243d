//! The front of Emberline's collector: its port, TLS, tokens and roles, logins, origins, and the admission of requests.
//! Knows no profile.
//!
//! Reading order, as a request passes: [`port`] (its connection), [`origin`] (rejects what a stranger's page sends), [`gate`]
//! (its credentials, by [`auth`]; those of browsers by [`login`] and [`cookie`]), [`admission`] (its share; compresses
//! the answer, by [`gzip`]), [`revocable`] (ends the answer with the right to read it).

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

pub mod admission;
pub mod answer;
pub mod auth;
pub mod cookie;
pub mod error;
pub mod gate;
pub mod gzip;
pub mod login;
pub mod origin;
pub mod port;
pub mod return_path;
pub mod revocable;
