//! The fleet that `emberline demo` runs: real worker processes that do real work together.
//!
//! ```text
//! workers 0..N/2    compute group: a tall-skinny QR, blocks moved over TCP    qr
//! workers N/2..N    data group: files read, counted, exchanged over TCP       pipeline
//! worker N-1        serves documents to clients in worker 0                   service
//! ```
//!
//! [`fleet`] starts the processes and is the body of each; `wire` is their protocol. Minimal
//! programs to copy are in the package's `examples/` directory.

pub mod fleet;
mod pipeline;
mod qr;
mod service;
mod wire;
