//! The front of Emberline's collector: its port, TLS, tokens and roles, logins, origins, and the admission of requests.
//! Knows no profile.

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
