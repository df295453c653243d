//! The standard health check of gRPC, for load balancers and Kubernetes' probes: serving while flushes
//! are accepted, as `/readyz` says over HTTP.

use std::sync::Arc;

use axum::Router;
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use state::Collector;

/// Path of the service; each method is below it.
pub(super) const HEALTH_ROUTE: &str = "/grpc.health.v1.Health/{*rest}";

/// The names under which the health is known: the whole server, and the agents' service.
const SERVICES: [&str; 2] = ["", "emberline.v1.Ingest"];

/// Longest request, in bytes. It holds a name of a service.
const REQUEST_BYTES_MAX: usize = 1_024;

struct IngestHealth(Arc<Collector>);

pub(super) fn routes(collector: Arc<Collector>) -> Router {
    let service =
        HealthServer::new(IngestHealth(collector)).max_decoding_message_size(REQUEST_BYTES_MAX);
    Router::new().route_service(HEALTH_ROUTE, service)
}

#[tonic::async_trait]
impl Health for IngestHealth {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !SERVICES.contains(&&*request.get_ref().service) {
            return Err(Status::not_found(
                "services: `` (all) and `emberline.v1.Ingest`",
            ));
        }
        let collector = self.0.clone();
        let blocked = spawn_blocking(move || collector.ingest.blocked())
            .await
            .map_err(|error| Status::internal(error.to_string()))?;
        let status = match blocked {
            None => ServingStatus::Serving,
            Some(_) => ServingStatus::NotServing,
        };
        Ok(Response::new(HealthCheckResponse {
            status: status.into(),
        }))
    }

    type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

    /// A stranger could keep such streams open; probes do not use them.
    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("ask again with Check"))
    }
}
