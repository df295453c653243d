//! Imports: a profile of a file becomes an agent whose only life is that profile. It goes through the agents'
//! stream, so it is checked, logged, counted and limited like any other data.

mod connect;
mod upload;
mod worker;

pub(crate) use upload::{UploadError, Uploaded, upload};
pub(crate) use worker::{ImportedWorker, Placement};
