//! One port for everything: gRPC for agents (`ingest`), HTTP for readers (`http`).
//!
//! `docs/API.md` documents the HTTP API.

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

/// The default port of a collector.
pub const PORT_DEFAULT: u16 = 4747;

/// How a collector is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address to listen on; port 0 selects a free one. Default: `127.0.0.1:4747`.
    pub listen: SocketAddr,
    /// Allows an address that other machines can reach. There are neither TLS nor tokens: anyone who can
    /// reach it can read and write everything.
    pub insecure_listen: bool,
    /// How long an agent may be away without a Goodbye before its running tasks end as lost.
    pub grace: Duration,
    /// Folder of the store, created if it does not exist. `None`: data is in memory only.
    pub data: Option<PathBuf>,
    /// Limits on memory and disk.
    pub limits: Limits,
    /// How long data is retained. Without [`ServeOptions::data`], tables take at most
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
    /// The address is in use.
    #[error(
        "{address} is in use, perhaps by another collector; choose another address with \
         `--listen`, such as `--listen 127.0.0.1:0` for any free port"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; choose another address with `--listen`")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Other machines could reach the address.
    #[error(
        "{address} can be reached from other machines, and there are neither TLS nor tokens yet: \
         anyone who can reach it can read and write everything. Listen on 127.0.0.1 and reach it \
         through a tunnel (`ssh -L`), or pass `--insecure-listen` if the network itself is trusted"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The listener failed while it served.
    #[error("serving failed")]
    Serve(#[source] io::Error),
}

/// A collector with an open port; it serves once [`Server::serve`] runs.
#[derive(Debug)]
pub struct Server {
    collector: Arc<Collector>,
    listener: TcpListener,
    address: SocketAddr,
}

impl Collector {
    /// Creates a collector, with the data in [`ServeOptions::data`] or empty, and opens its port.
    /// Connections from now on are served.
    ///
    /// # Errors
    /// [`ServeError`] if the address is in use, unavailable, or reachable from other machines without
    /// [`ServeOptions::insecure_listen`], or if the store cannot be used. Corrupt data is no error: it is
    /// reported, copied to `quarantine`, and the rest is served.
    pub async fn bind(options: ServeOptions) -> Result<Server, ServeError> {
        let ServeOptions {
            listen: address,
            insecure_listen,
            grace,
            data,
            limits,
            retention,
            clock,
        } = options;
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
                // May take seconds; agents that connect meanwhile wait.
                let open = move || Collector::open_folder(settings, &folder);
                tokio::task::spawn_blocking(open).await.expect("it does not panic")?
            }
        };
        Ok(Server { collector: Arc::new(collector), listener, address })
    }
}

impl Server {
    /// The address it listens on, with the selected port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stored data that could not be read, at this or an earlier start, a line for each place. All other
    /// data is served; copies of corrupt files are in the folder `quarantine`.
    #[must_use]
    pub fn damage(&self) -> Vec<String> {
        let lost = self.collector.state.tables.manifest();
        lost.all_lost().map(|(name, reason)| format!("{name}: {reason}")).collect()
    }

    /// Serves until `shutdown` resolves. Then ends the agents' streams, lets requests finish, and returns
    /// after at most [`SHUTDOWN_MAX`].
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
            // Agents wait for acks, which are small.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection without TCP_NODELAY");
            }
        });
        let served = self.collector.clone();
        // So all connections share its table; as a `Router`, each would have its own of 20 KB.
        let routes = router(Reader::new(self.collector.clone()), &stopping).into_make_service();
        let serving = axum::serve(listener, routes).with_graceful_shutdown(async move {
            shutdown.await;
            served.state.events.close();
            // Fails only if nothing is left to stop.
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
        // May write for a while.
        let collector = self.collector;
        let ended = tokio::task::spawn_blocking(move || collector.sealer.end(sealer)).await;
        if ended.is_err() {
            tracing::error!("closing the store panicked: a bug in Emberline");
        }
        result
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// All routes: the gRPC service, the HTTP API with its own 404 answer, and the page.
fn router(reader: Reader, stopping: &watch::Receiver<bool>) -> Router {
    let ingest = Ingest::new(reader.collector.clone(), stopping.clone());
    let ingest = IngestServer::new(ingest).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let grpc = tonic::service::Routes::new(ingest).into_axum_router().reset_fallback();
    grpc.merge(http::router(reader, stopping)).merge(page::router())
}

/// Applies changes that depend on time only.
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
