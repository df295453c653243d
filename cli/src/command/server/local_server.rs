//! A server in this process, for one command.

use std::path::Path;

use anyhow::Context as _;
use collector::serve::Listen;
use collector::store::StorePlace;
use collector::{FollowOptions, ServeError, ServeOptions, Server};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::programs::{cluster_arguments, cluster_program};
use crate::args::ClusterArgs;
use crate::private_folder::PrivateFolder;

/// Threads of the server; the program needs the CPUs more.
const THREADS: usize = 2;

/// The threads of a [`LocalServer`].
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("could not start the collector's threads")
}

/// Answers on a socket in a folder of this user.
pub(crate) struct LocalServer {
    pub(crate) url: String,
    end: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ServeError>>,
    folder: PrivateFolder,
}

impl LocalServer {
    pub(crate) fn start(runtime: &Runtime, options: ServeOptions) -> anyhow::Result<LocalServer> {
        let folder = PrivateFolder::create().context("could not create a folder for a socket")?;
        if options.socket_peers.has_others() {
            folder
                .let_others_pass()
                .context("could not open the folder to other users")?;
        }
        let listen = Listen::Unix(folder.path.join("socket"));
        let server = runtime.block_on(Server::bind(ServeOptions { listen, ..options }))?;
        let url = server.url();
        let (end, ended) = oneshot::channel::<()>();
        let serving = runtime.spawn(server.serve(async {
            // An error means that this command has failed, which is an end too.
            let _ = ended.await;
        }));
        Ok(LocalServer {
            url,
            end,
            serving,
            folder,
        })
    }

    /// The folder of its socket, of this user alone. It exists as long as the server.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// Ends it, within a time limit of its own.
    pub(crate) fn end(self, runtime: &Runtime) -> anyhow::Result<()> {
        // Fails only if the server ended before; its own result reports that.
        let _ = self.end.send(());
        Ok(runtime
            .block_on(self.serving)
            .context("the collector panicked")??)
    }
}

/// A reader of a place's stores. Dropped, it ends.
pub(crate) struct LocalReader {
    runtime: Runtime,
    /// `Some` until it is dropped.
    server: Option<LocalServer>,
}

impl LocalReader {
    /// Reads the stores, each up to its last acknowledged data.
    pub(crate) fn start(place: &StorePlace, cluster: &ClusterArgs) -> anyhow::Result<LocalReader> {
        let mut arguments = vec!["--store".into(), place.to_string().into()];
        arguments.extend(cluster_arguments(cluster));
        let options = ServeOptions {
            follow: Some(FollowOptions {
                place: place.clone(),
                data: None,
                cache_bytes: None,
            }),
            cluster: cluster_program(Some(arguments), cluster)?,
            ..ServeOptions::default()
        };
        let runtime = runtime()?;
        let server = Some(LocalServer::start(&runtime, options)?);
        Ok(LocalReader { runtime, server })
    }

    pub(crate) fn url(&self) -> &str {
        self.server.as_ref().map_or("", |server| &server.url)
    }
}

impl Drop for LocalReader {
    fn drop(&mut self) {
        let ended = self.server.take().map(|server| server.end(&self.runtime));
        if let Some(Err(error)) = ended {
            tracing::warn!(%error, "the reader of the stores failed");
        }
    }
}
