//! Connects clients whose requests are counted.

use std::sync::atomic::Ordering;

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use super::{BucketOperation, COUNTS};

/// Makes the HTTP clients of `object_store`.
#[derive(Debug)]
pub(in crate::store::bucket) struct CountingConnector;

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
        let operation = BucketOperation::of(request.method().as_str(), query);
        let bytes = request.body().content_length() as u64;
        COUNTS.requests[operation as usize].fetch_add(1, Ordering::Relaxed);
        COUNTS.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        let response = self.0.execute(request).await?;
        let length = response.headers().get("content-length");
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        COUNTS.received_bytes.fetch_add(length.unwrap_or(0), Ordering::Relaxed);
        Ok(response)
    }
}

impl BucketOperation {
    fn of(method: &str, query: &str) -> BucketOperation {
        let has = |name: &str| {
            query.split('&').any(|part| part.split('=').next().unwrap_or_default() == name)
        };
        match method {
            "GET" | "HEAD" if has("list-type") => BucketOperation::List,
            "GET" | "HEAD" => BucketOperation::Get,
            "DELETE" => BucketOperation::Delete,
            "POST" if has("delete") => BucketOperation::Delete,
            _ => BucketOperation::Put,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_method_and_query() {
        for (method, query, expected) in [
            ("GET", "", BucketOperation::Get),
            ("HEAD", "", BucketOperation::Get),
            ("GET", "list-type=2&prefix=c1%2F", BucketOperation::List),
            ("GET", "prefix=list-type&list-type=2", BucketOperation::List),
            ("GET", "prefix=list-type", BucketOperation::Get),
            ("PUT", "", BucketOperation::Put),
            ("POST", "delete", BucketOperation::Delete),
            ("POST", "uploads", BucketOperation::Put),
            ("DELETE", "", BucketOperation::Delete),
        ] {
            assert_eq!(BucketOperation::of(method, query), expected, "{method} {query}");
        }
    }
}
