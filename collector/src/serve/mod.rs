//! One port for everything: gRPC for agents (`ingest`), HTTP for readers (`http`).
//!
//! What the HTTP API takes and answers is in `docs/API.md`.

mod agents;
mod answer;
mod codec;
mod error;
mod http;
mod ingest;
mod page;
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
mod server;
mod sse;
mod telemetry;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt as _;
use profiler_core::limits::MESSAGE_BYTES_MAX;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::http::Reader;
use self::ingest::Ingest;
use self::server::ingest_server::IngestServer;
use crate::clock::Clock;
use crate::collector::{Collector, Settings};
use crate::limits::{GRACE, SHUTDOWN_MAX, SWEEP_EVERY};
use crate::recovery::DataError;
use crate::sealing::SealerThread;
use crate::{Limits, Retention};

/// The port that agents and readers try first.
pub const PORT_DEFAULT: u16 = 4747;

/// How a collector is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 is any free one. Default: `127.0.0.1:4747`.
    pub listen: SocketAddr,
    /// Whether an address that other machines can reach is allowed, although there are neither TLS
    /// nor tokens: whoever reaches it can read everything and write anything.
    pub insecure_listen: bool,
    /// How long an agent that did not say Goodbye may be away before its running tasks end as lost.
    pub grace: Duration,
    /// Where acknowledged data is kept; made if it is not there. `None`: in memory only.
    pub data: Option<PathBuf>,
    /// How much is held.
    pub limits: Limits,
    /// How much of the past is kept. Without [`ServeOptions::data`], tables take at most
    /// [`MEMORY_TABLES_BYTES_MAX`](crate::limits::MEMORY_TABLES_BYTES_MAX).
    pub retention: Retention,
    /// The fleet's clock.
    pub clock: Clock,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            listen: (Ipv4Addr::LOCALHOST, PORT_DEFAULT).into(),
            insecure_listen: false,
            grace: GRACE,
            data: None,
            limits: Limits::default(),
            retention: Retention::default(),
            clock: Clock::default(),
        }
    }
}

/// Why a collector cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Something else listens there.
    #[error(
        "{address} is in use, perhaps by another collector; choose another address with \
         `--listen`, such as `--listen 127.0.0.1:0` for any free port"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; choose another address with `--listen`")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Other machines could reach the address.
    #[error(
        "{address} can be reached from other machines, and there are neither TLS nor tokens yet: \
         anyone who reaches it could read and write everything. Listen on 127.0.0.1 and reach it \
         through a tunnel (`ssh -L`), or say `--insecure-listen` if the network itself is trusted"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
    },
    /// Data cannot be kept where it was asked for.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The listener failed while it served.
    #[error("serving failed")]
    Serve(#[source] io::Error),
}

/// A collector with its port open; it answers once [`Server::serve`] runs.
#[derive(Debug)]
pub struct Server {
    collector: Arc<Collector>,
    listener: TcpListener,
    address: SocketAddr,
}

impl Collector {
    /// Makes a collector, with the data that [`ServeOptions::data`] holds or else empty, and opens its
    /// port, so that what connects from now on is served.
    ///
    /// # Errors
    /// [`ServeError`] if the address is taken, cannot be had, or is open to other machines without
    /// [`ServeOptions::insecure_listen`], or if the data cannot be used. Damaged data is no error: it
    /// is reported, copied to `quarantine`, and the rest is served.
    pub async fn bind(options: ServeOptions) -> Result<Server, ServeError> {
        let ServeOptions { listen: address, insecure_listen, grace, data, .. } = options;
        let ServeOptions { limits, retention, clock, .. } = options;
        if !address.ip().to_canonical().is_loopback() && !insecure_listen {
            return Err(ServeError::Insecure { address });
        }
        let listener = TcpListener::bind(address).await.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::InUse { address, source },
            _ => ServeError::Bind { address, source },
        })?;
        let address =
            listener.local_addr().map_err(|source| ServeError::Bind { address, source })?;
        let settings = Settings { clock, limits, retention, grace };
        let collector = match data {
            None => Collector::new(settings),
            Some(folder) => {
                // Reading back may take seconds; agents that connect meanwhile wait for their answer.
                let open = move || Collector::open_folder(settings, &folder);
                tokio::task::spawn_blocking(open).await.expect("it does not panic")?
            }
        };
        Ok(Server { collector: Arc::new(collector), listener, address })
    }
}

impl Server {
    /// Where it listens, with the port that was found if any was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What could not be read back of the data that it began with, now or at an earlier start, a line
    /// for each place. All else is served; copies of damaged files are in the folder `quarantine`.
    #[must_use]
    pub fn damage(&self) -> Vec<String> {
        let lost = self.collector.state.tables.manifest();
        lost.all_lost().map(|(name, reason)| format!("{name}: {reason}")).collect()
    }

    /// Serves until `shutdown` resolves; then ends the agents' streams, lets requests finish, and
    /// returns after at most [`SHUTDOWN_MAX`].
    ///
    /// # Errors
    /// [`ServeError::Serve`] if the listener fails.
    pub async fn serve(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServeError> {
        self.serve_until(Box::pin(shutdown)).await
    }

    /// Like [`Server::serve`]. Not generic, so that the code of all connections is compiled in this
    /// crate, not in the caller's.
    fn serve_until(self, shutdown: BoxFuture<()>) -> BoxFuture<Result<(), ServeError>> {
        Box::pin(self.run_until(shutdown))
    }

    async fn run_until(self, shutdown: BoxFuture<()>) -> Result<(), ServeError> {
        let (stop, stopping) = watch::channel(false);
        let sealer = SealerThread::start(&self.collector.sealer).map_err(ServeError::Thread)?;
        let sweeper = tokio::spawn(sweep(self.collector.clone(), stopping.clone()));
        let listener = self.listener.tap_io(|stream| {
            // Acks are small and awaited.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection without TCP_NODELAY");
            }
        });
        let told = self.collector.clone();
        // All connections share its table; served by itself, a router gives each one of its own, 20 KB.
        let routes = router(Reader::new(self.collector.clone()), &stopping).into_make_service();
        let serving = axum::serve(listener, routes).with_graceful_shutdown(async move {
            shutdown.await;
            told.state.events.close();
            // Fails only if nobody listens any more, and then nobody need know.
            let _ = stop.send(true);
        });
        let result = tokio::select! {
            result = serving => result.map_err(ServeError::Serve),
            () = deadline(stopping) => {
                tracing::warn!("connections were still open {SHUTDOWN_MAX:?} after the stop");
                Ok(())
            }
        };
        sweeper.abort();
        // Both may write for a while.
        let collector = self.collector;
        let ended = tokio::task::spawn_blocking(move || collector.sealer.end(sealer)).await;
        if ended.is_err() {
            tracing::error!("ending the store failed by a panic: a bug of Emberline");
        }
        result
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// All routes: the gRPC service, and the HTTP API with its own answer to what does not exist.
fn router(reader: Reader, stopping: &watch::Receiver<bool>) -> Router {
    let ingest = Ingest::new(reader.collector.clone(), stopping.clone());
    let ingest = IngestServer::new(ingest).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let grpc = tonic::service::Routes::new(ingest).into_axum_router().reset_fallback();
    grpc.merge(http::router(reader, stopping)).merge(page::router())
}

/// Looks after what time alone changes.
async fn sweep(collector: Arc<Collector>, mut stopping: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                collector.ingest.sweep(collector.state.clock.now());
                collector.ingest.blocked();
            }
            _ = stopping.changed() => return,
        }
    }
}

/// Resolves [`SHUTDOWN_MAX`] after the stop.
async fn deadline(mut stopping: watch::Receiver<bool>) {
    // An error means that the server is gone, which is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
    tokio::time::sleep(SHUTDOWN_MAX).await;
}

#[cfg(test)]
mod tests;
