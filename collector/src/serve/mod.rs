//! One port for everything: gRPC for agents (`ingest`), HTTP for readers (`http`).
//!
//! ```text
//! front::port ─▶ front::origin ─▶ access (front::gate) ┬▶ ingest ─▶ state::ingest
//!                                                      └▶ front::admission ─▶ http ─▶ reader ─▶ query ─▶ answer
//! ```
//!
//! `docs/API.md` and `docs/openapi.json` document the HTTP API.

mod access;
mod adopt;
mod agents;
mod answer;
mod cluster;
mod file_paths;
#[cfg(any(test, emberline_fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod grafana;
mod health;
mod histogram_log;
mod http;
mod ingest;
mod live_profile;
mod long_query;
mod metrics;
mod openapi;
mod page;
mod profile;
mod reader;
mod session;
mod sql;
mod sse;
mod symbols;
mod tables;
mod tasks_firefox;
mod telemetry;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use import::TASK_LABEL_DEFAULT;
use profiler_core::Fingerprint;
use tls::TlsError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use self::adopt::AutoAdoption;
use self::adopt::{Adopting, adopt_stores};
pub use self::cluster::ClusterProgram;
pub use self::page::report_document;
use self::reader::Reader;
use self::sql::Sql;
pub use self::sql::SqlProgram;
use crate::Retention;
use base::clock::Clock;
use base::heartbeat::Pulse;
use base::limits::Limits;
use base::limits::{
    EXPOSED_WARNING_EVERY, FIND_SYMBOLS_EVERY, GRACE, SEAL_AT_END_MAX, SHUTDOWN_MAX, SWEEP_EVERY,
};
use bridge::forward::{ForwardOptions, Forwarding};
use bridge::push::ScrapeTarget;
use front::auth::{TokenFileError, TokenSource, Tokens};
use front::gate::Gate;
use front::origin::PublicNames;
use front::port::{Certificate, ConnectionLimits, Front, Listener};
pub use front::port::{
    Listen, ListenError, SocketPeers, TlsOptions, keep_files_private, raise_descriptor_limit,
};
use ingest::Ingest;
use naming::{MadeCode, Naming, SymbolSource};
use shares::QuotaSettings;
use state::follow::{FollowError, FollowOptions, Follower};
use state::recovery::{DataError, StoreOptions, no_folder};
use state::sealing::SealerThread;
use state::{Collector, Settings};
use store::SumCluster;
use symbols::symbol_fetch::fetch_symbols;

/// The default port of a collector.
pub const PORT_DEFAULT: u16 = 4747;

/// How a collector is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 selects a free one. Default: `127.0.0.1:4747`.
    pub listen: Listen,
    /// Certificate and key; `None`: plain HTTP. A Unix socket has no use for them.
    pub tls: Option<TlsOptions>,
    /// Users and processes for which the Unix socket is, besides the collector's own user and root.
    pub socket_peers: SocketPeers,
    /// Allows an address that other machines can reach without TLS and tokens. A warning is logged each
    /// hour.
    pub insecure_listen: bool,
    /// Host names under which readers reach the collector, besides IP addresses and `localhost`: those of
    /// a proxy, for example. Requests to other names are rejected, because a stranger's page may have
    /// such a name.
    pub public_names: Vec<String>,
    /// How long an agent may be away without a Goodbye before its running tasks end as lost.
    pub grace: Duration,
    /// Folder of the store, created if it does not exist. `None`: data is in memory only.
    pub data: Option<PathBuf>,
    /// The store in a bucket, if any: then [`ServeOptions::data`] has the log and copies of tables at most.
    pub store: Option<StoreOptions>,
    /// Answers for the collectors of a place and accepts nothing; then [`ServeOptions::store`] is not used.
    pub follow: Option<FollowOptions>,
    /// Where the collector looks for files with debug information; needs [`ServeOptions::data`].
    pub symbols: Option<SymbolSource>,
    /// Names of code that the runtimes of programs have made, if somebody sets them.
    pub made_code: Option<Arc<MadeCode>>,
    /// Whether and when the stores of other collectors are adopted; needs [`ServeOptions::store`].
    pub adopt: Option<AutoAdoption>,
    /// The program that answers queries in SQL, if any.
    pub sql: Option<SqlProgram>,
    /// Sums large tables for profiles, if there is one: a [`ClusterProgram`].
    pub cluster: Option<Arc<dyn SumCluster>>,
    /// Limits on memory and disk.
    pub limits: Limits,
    /// Quotas of each identity without its own, where they differ from the defaults.
    pub quotas: QuotaSettings,
    /// How long data is retained. Without [`ServeOptions::data`], tables take at most
    /// [`MEMORY_TABLES_BYTES_MAX`](base::limits::MEMORY_TABLES_BYTES_MAX).
    pub retention: Retention,
    /// The fleet's clock.
    pub clock: Clock,
    /// Whom the collector lets in.
    pub tokens: TokenSource,
    /// The label with the task of samples that foreign profilers push.
    pub task_label: String,
    /// Services with pprof's HTTP endpoint that the collector scrapes.
    pub scrapes: Vec<ScrapeTarget>,
    /// Servers that receive what the collector has accepted.
    pub forward: ForwardOptions,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            listen: Listen::Network((Ipv4Addr::LOCALHOST, PORT_DEFAULT).into()),
            tls: None,
            socket_peers: SocketPeers::default(),
            insecure_listen: false,
            public_names: Vec::new(),
            grace: GRACE,
            data: None,
            store: None,
            follow: None,
            adopt: None,
            symbols: None,
            made_code: None,
            sql: None,
            cluster: None,
            limits: Limits::default(),
            quotas: QuotaSettings::default(),
            retention: Retention::default(),
            clock: Clock::default(),
            tokens: TokenSource::default(),
            task_label: TASK_LABEL_DEFAULT.to_owned(),
            scrapes: Vec::new(),
            forward: ForwardOptions::default(),
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
        address: Listen,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; choose another address with `--listen`")]
    Bind {
        /// The address.
        address: Listen,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Other machines could reach the address.
    #[error(
        "{address} can be reached from other machines, so it needs {missing}. Or listen on 127.0.0.1 \
         and reach it through a tunnel (`ssh -L`), or pass `--insecure-listen` if the network itself is \
         trusted"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
        /// The missing protection, and the commands that add it.
        missing: String,
    },
    /// The token file cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// The store cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The stores to answer for cannot be read.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A collector with an open port; it serves once [`Server::serve`] runs.
#[derive(Debug)]
pub struct Server {
    collector: Arc<Collector>,
    adoption: Option<Adopting>,
    listener: Listener,
    address: Listen,
    certificate: Option<Arc<Certificate>>,
    socket_peers: SocketPeers,
    public_names: PublicNames,
    connection_limits: ConnectionLimits,
    tokens: Arc<Tokens>,
    task_label: String,
    sql: Option<SqlProgram>,
    scrapes: Vec<ScrapeTarget>,
    forward: ForwardOptions,
    /// Whether other machines can reach it without TLS or without a token.
    is_exposed: bool,
}

impl Server {
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
            tls,
            socket_peers,
            insecure_listen,
            public_names,
            grace,
            data,
            store,
            follow,
            adopt,
            symbols,
            made_code,
            limits,
            quotas,
            retention,
            clock,
            tokens,
            task_label,
            sql,
            cluster,
            scrapes,
            forward,
        } = options;
        // First, because a failure would name the token file in it.
        data.as_deref().and_then(no_folder).map_or(Ok(()), Err)?;
        let tokens = Arc::new(Tokens::open(tokens)?);
        let mut is_exposed = false;
        if let Listen::Network(address) = address
            && !address.ip().to_canonical().is_loopback()
            && let Some(missing) = missing_protection(tls.is_some(), tokens.count() > 0)
        {
            if !insecure_listen {
                return Err(ServeError::Insecure { address, missing });
            }
            is_exposed = true;
        }
        let certificate = tls.map(Certificate::load).transpose()?.map(Arc::new);
        let certified = certificate.as_ref().map(|certificate| certificate.names());
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::InUse {
                address: address.clone(),
                source,
            },
            _ => ServeError::Bind {
                address: address.clone(),
                source,
            },
        };
        let listener = Listener::bind(&address, socket_peers.has_others())
            .await
            .map_err(failed)?;
        let address = listener.address().map_err(failed)?;
        let adoption =
            store
                .clone()
                .filter(|_| follow.is_none())
                .zip(adopt)
                .map(|(own, options)| Adopting {
                    own,
                    retention,
                    options,
                });
        let settings = Settings {
            clock,
            limits,
            quotas,
            retention,
            grace,
            ..Settings::default()
        };
        let of_files = match &data {
            Some(folder) => Naming::open(folder.join("symbols"), symbols),
            None => Naming::default(),
        };
        let naming = of_files.with_made_code(made_code);
        let settings = Settings { naming, ..settings };
        // May take seconds; agents that connect meanwhile wait.
        let open = move || -> Result<Collector, ServeError> {
            if let Some(options) = follow {
                return Ok(Collector::follow(settings, options)?);
            }
            Ok(match (store, data) {
                (Some(store), data) => Collector::open_store(settings, &store, data.as_deref())?,
                (None, Some(folder)) => Collector::open_folder(settings, &folder)?,
                (None, None) => Collector::new(settings),
            })
        };
        let collector = tokio::task::spawn_blocking(open)
            .await
            .expect("it does not panic")?;
        if let Some(cluster) = cluster {
            collector
                .state
                .cluster
                .set(cluster)
                .expect("it is set once");
        }
        Ok(Server {
            collector: Arc::new(collector),
            adoption,
            listener,
            address,
            public_names: PublicNames::new(&public_names, certified),
            certificate,
            socket_peers,
            connection_limits: ConnectionLimits::of_process(),
            tokens,
            task_label,
            sql,
            scrapes,
            forward,
            is_exposed,
        })
    }
}

/// Missing protection of an address that other machines can reach.
fn missing_protection(has_tls: bool, has_tokens: bool) -> Option<String> {
    let tls = "TLS (--tls-cert and --tls-key; run: emberline tls self-signed -o tls)";
    let tokens = "a token (run: emberline token new --role agent, with --data or --tokens as here)";
    match (has_tls, has_tokens) {
        (true, true) => None,
        (true, false) => Some(tokens.to_owned()),
        (false, true) => Some(tls.to_owned()),
        (false, false) => Some(format!("{tls} and {tokens}")),
    }
}

impl Server {
    /// The address it listens on, with the selected port; `None` on a Unix socket.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self.address {
            Listen::Network(address) => Some(address),
            Listen::Unix(_) => None,
        }
    }

    /// The URL for agents and readers. Host names work too, if the certificate has them.
    #[must_use]
    pub fn url(&self) -> String {
        match (&self.address, &self.certificate) {
            (Listen::Network(address), None) => format!("http://{address}"),
            (Listen::Network(address), Some(_)) => format!("https://{address}"),
            (socket, _) => socket.to_string(),
        }
    }

    /// The fingerprint of the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.certificate
            .as_ref()
            .map(|certificate| certificate.fingerprint())
    }

    /// Reloads files while the collector is served.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader {
            certificate: self.certificate.clone(),
            tokens: self.tokens.clone(),
        }
    }

    /// Stored data that could not be read, at this or an earlier start, a line for each place. All other
    /// data is served; copies of corrupt files are in the folder `quarantine`.
    #[must_use]
    pub fn damage(&self) -> Vec<String> {
        let lost = self.collector.state.tables.manifest();
        lost.all_lost()
            .map(|(name, reason)| format!("{name}: {reason}"))
            .collect()
    }

    /// Serves until `shutdown` resolves. Then ends the agents' streams, lets requests finish, and returns
    /// after at most [`SHUTDOWN_MAX`].
    ///
    /// # Errors
    /// [`ServeError::Thread`] if the store's thread cannot be started.
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
        let sealer = match self.collector.follower {
            Some(_) => None,
            None => Some(SealerThread::start(&self.collector.sealer).map_err(ServeError::Thread)?),
        };
        let sweeper = tokio::spawn(sweep(
            self.collector.clone(),
            self.tokens.clone(),
            self.is_exposed,
            stopping.clone(),
        ));
        let finder = tokio::spawn(find_symbols(self.collector.clone(), stopping.clone()));
        let fetcher = tokio::spawn(fetch_symbols(self.collector.clone(), stopping.clone()));
        let adopter = self.adoption.map(|adopting| {
            tokio::spawn(adopt_stores(
                self.collector.clone(),
                adopting,
                stopping.clone(),
            ))
        });
        for target in self.scrapes {
            let collector = self.collector.clone();
            let task_label = self.task_label.clone();
            tokio::spawn(bridge::push::scrape(
                collector,
                task_label,
                target,
                stopping.clone(),
            ));
        }
        let forwarding = Forwarding::start(&self.collector, self.forward);
        let served = self.collector.clone();
        // So all connections share its table; as a `Router`, each would have its own of 20 KB.
        let sql = Sql::new(self.sql);
        let reader = Reader {
            sql,
            ..Reader::new(self.collector.clone())
        };
        let gate = Gate::new(self.tokens, self.collector.state.clock.clone())
            .with_tls(self.certificate.is_some());
        let routes = router(reader, self.public_names, gate, &self.task_label, &stopping);
        let front = Front {
            listener: self.listener,
            certificate: self.certificate,
            socket_peers: self.socket_peers,
            routes,
            limits: self.connection_limits,
        };
        let serving = front.serve(async move {
            shutdown.await;
            served.state.events.close();
            // Fails only if nothing is left to stop.
            let _ = stop.send(true);
        });
        tokio::select! {
            () = serving => {}
            () = deadline(stopping) => {
                tracing::warn!("connections were still open {SHUTDOWN_MAX:?} after the stop");
            }
        };
        sweeper.abort();
        finder.abort();
        fetcher.abort();
        // Kills the process of an adoption. Another one begins where it was.
        adopter.iter().for_each(JoinHandle::abort);
        // May write for a while.
        let collector = self.collector;
        let sealing = tokio::task::spawn_blocking(move || {
            collector.follower.iter().for_each(Follower::end);
            sealer
                .into_iter()
                .for_each(|sealer| collector.sealer.end(sealer, SEAL_AT_END_MAX));
        });
        let (ended, ()) = tokio::join!(sealing, forwarding.end());
        // Otherwise the runtime ended first.
        if ended.is_err_and(|error| error.is_panic()) {
            tracing::error!("closing the store panicked: a bug in Emberline");
        }
        Ok(())
    }
}

/// Reloads files of a [`Server`] that runs already.
#[derive(Clone, Debug)]
pub struct Reloader {
    certificate: Option<Arc<Certificate>>,
    tokens: Arc<Tokens>,
}

impl Reloader {
    /// Reads the certificate and its key again, as a change of their files does within 10 s, and the
    /// tokens, as a change does within 1 s. If they cannot be used, the log says why, and the old ones
    /// stay.
    pub fn reload(&self) {
        if let Some(certificate) = &self.certificate {
            certificate.reload();
        }
        self.tokens.refresh();
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// All routes: the gRPC service, the HTTP API with its own 404 answer, the page and its login, and what
/// foreign profilers push. All reject
/// requests of other sites' pages and of senders without the role that the route needs.
fn router(
    reader: Reader,
    names: PublicNames,
    gate: Gate,
    task_label: &str,
    stopping: &watch::Receiver<bool>,
) -> Router {
    let collector = reader.collector.clone();
    let ingest = Ingest::new(collector.clone(), stopping.clone());
    let gate = Arc::new(gate);
    let health = health::routes(reader.collector.clone());
    let routes = ingest
        .routes()
        .merge(health)
        .merge(http::router(reader, stopping))
        .merge(page::router())
        .merge(front::login::router(gate.clone()));
    let place = collector
        .follower
        .as_ref()
        .map(|follower| follower.place.to_string());
    let mut routes = routes.merge(bridge::push::routes(collector, task_label));
    if let Some(place) = place {
        routes = routes.layer(from_fn_with_state(
            Arc::<str>::from(place),
            access::refuse_changes,
        ));
    }
    let routes = routes
        .layer(from_fn(access::refuse_encodings))
        .layer(from_fn_with_state(gate, access::check))
        .layer(from_fn(bridge::grafana::connect_errors))
        .layer(from_fn(access::identify));
    routes.layer(from_fn_with_state(names, front::origin::check))
}

/// Applies changes that depend on time only.
async fn sweep(
    collector: Arc<Collector>,
    tokens: Arc<Tokens>,
    is_exposed: bool,
    mut stopping: watch::Receiver<bool>,
) {
    let pulse = Pulse::of_runtime();
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut warnings = tokio::time::interval(EXPOSED_WARNING_EVERY);
    loop {
        pulse.beat();
        tokio::select! {
            // Agents whose streams the stop has ended are not gone: they find their tasks running after a restart.
            biased;
            _ = stopping.changed() => return,
            _ = warnings.tick(), if is_exposed => {
                tracing::warn!(
                    target: "audit",
                    "other machines can reach this collector without TLS or without a token"
                );
            }
            _ = ticks.tick() => {
                collector.sweep();
                let tokens = tokens.clone();
                // Fails only if reading panics; the tokens stay as they were.
                let _ = tokio::task::spawn_blocking(move || tokens.refresh()).await;
            }
        }
    }
}

/// Reads files with debug information that queries want, one at a time.
async fn find_symbols(collector: Arc<Collector>, mut stopping: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(FIND_SYMBOLS_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let collector = collector.clone();
                // Fails only if reading panics; the names stay as they were.
                let _ = tokio::task::spawn_blocking(move || collector.state.naming.find_next()).await;
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
