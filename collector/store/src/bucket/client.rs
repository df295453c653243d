//! The client of S3-compatible servers.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, RetryConfig};
use tokio::runtime::{Builder, Handle, Runtime};

use super::requests::{count_answer, count_request};
use super::{Bucket, Patience, StoreName, TableCache, settings};
use crate::error::StoreError;
use crate::objects::Objects;
use base::limits::{BUCKET_REQUEST_MAX, BUCKET_RETRIES_MAX, BUCKET_RETRY_MAX};
use base::sync::{Mutex, lock, rank};

/// Name of the thread that drives requests.
const THREAD_NAME: &str = "emberline-bucket";

/// Drives the requests of all stores of this process, until it ends.
static RUNTIME: Mutex<Option<Runtime>, rank::BucketRuntime> = Mutex::new(None);

fn runtime() -> Result<Handle, StoreError> {
    let mut runtime = lock(&RUNTIME);
    if let Some(runtime) = &*runtime {
        return Ok(runtime.handle().clone());
    }
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .thread_name(THREAD_NAME)
        .enable_all();
    let built = builder.build().map_err(|source| StoreError::Io {
        doing: "starting the thread for",
        path: THREAD_NAME.to_owned(),
        source,
    })?;
    Ok(runtime.insert(built).handle().clone())
}

/// Connects to the store of a collector, or to the place of all. Sends nothing yet.
pub(super) fn connect(
    bucket: &str,
    prefix: &str,
    name: Option<&StoreName>,
    cache: TableCache,
) -> Result<Objects, StoreError> {
    let name = name.map(ToString::to_string);
    let parts = [prefix, name.as_deref().unwrap_or_default()];
    let root = parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("/");
    let place = format!("s3://{bucket}/{root}");
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: BUCKET_RETRIES_MAX,
        retry_timeout: BUCKET_RETRY_MAX,
    };
    let mut client = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry)
        .with_http_connector(CountingConnector);
    if std::env::var_os("AWS_TIMEOUT").is_none() {
        let timeout = format!("{} seconds", BUCKET_REQUEST_MAX.as_secs());
        client = client.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), timeout);
    }
    let invalid = |reason| StoreError::BucketSettings {
        place: place.clone(),
        reason,
    };
    if let Some(defect) = settings::defect(&client) {
        return Err(invalid(defect));
    }
    let built = client
        .build()
        .map_err(|error| invalid(format!("{error}; check the variables AWS_*")));
    let store = PrefixStore::new(built?, Path::from(root.as_str()));
    let bucket = Bucket::new(place.clone(), Some(runtime()?), Patience::DEFAULT, cache);
    Ok(Objects::in_bucket(Arc::new(store), bucket))
}

/// Connects clients whose requests are counted.
#[derive(Debug)]
struct CountingConnector;

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(CountingService(client)))
    }
}

#[derive(Debug)]
struct CountingService(HttpClient);

#[async_trait::async_trait]
impl HttpService for CountingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let query = request.uri().query().unwrap_or_default();
        let bytes = request.body().content_length() as u64;
        count_request(request.method().as_str(), query, bytes);
        let response = self.0.execute(request).await?;
        let length = response
            .headers()
            .get("content-length")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        count_answer(length.unwrap_or(0));
        Ok(response)
    }
}
