//! Questions about workers, and what is done with them.

pub(crate) mod doctor;
pub(crate) mod resources;
pub(crate) mod runs;
pub(crate) mod thread_dump;
pub(crate) mod time;
pub(crate) mod transfers;
pub(crate) mod watch;
pub(crate) mod workers;
