//! A reader of a place's stores in this process, for one command.

use anyhow::Context as _;
use collector::serve::Listen;
use collector::store::StorePlace;
use collector::{Collector, FollowOptions, ServeOptions};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::programs::{cluster_arguments, cluster_program};
use crate::args::ClusterArgs;
use crate::private_folder::PrivateFolder;

/// Threads that answer.
const THREADS: usize = 2;

/// Answers on a socket in a folder of this user, until it is dropped.
pub(super) struct LocalReader {
    pub(super) url: String,
    runtime: Runtime,
    end: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
    _folder: PrivateFolder,
}

impl LocalReader {
    /// Reads the stores, each up to its last acknowledged data.
    pub(super) fn start(place: &StorePlace, cluster: &ClusterArgs) -> anyhow::Result<LocalReader> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .build()
            .context("could not start the reader's threads")?;
        let folder = PrivateFolder::create().context("could not create a folder for a socket")?;
        let mut arguments = vec!["--store".into(), place.to_string().into()];
        arguments.extend(cluster_arguments(cluster));
        let server = runtime.block_on(Collector::bind(ServeOptions {
            listen: Listen::Unix(folder.path.join("socket")),
            follow: Some(FollowOptions { place: place.clone(), data: None, cache_bytes: None }),
            cluster: cluster_program(Some(arguments), cluster)?,
            ..ServeOptions::default()
        }))?;
        let url = server.url();
        let (end, ended) = oneshot::channel::<()>();
        let serving = runtime.spawn(async {
            let ended = async {
                // An error means that this command has ended, too.
                let _ = ended.await;
            };
            if let Err(error) = server.serve(ended).await {
                tracing::warn!(%error, "the reader of the stores failed");
            }
        });
        Ok(LocalReader { url, runtime, end: Some(end), serving: Some(serving), _folder: folder })
    }
}

impl Drop for LocalReader {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(serving) = self.serving.take() {
            // It ends within a time limit of its own.
            let _ = self.runtime.block_on(serving);
        }
    }
}
