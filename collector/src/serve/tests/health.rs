//! The standard health check of gRPC.

use std::net::SocketAddr;

use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::client::send_with;
use super::*;

async fn client(address: SocketAddr) -> HealthClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

async fn check(address: SocketAddr, service: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = client(address)
        .await
        .check(request)
        .await
        .map_err(|status| status.code())?;
    Ok(answer.get_ref().status())
}

#[tokio::test]
async fn the_health_of_grpc_follows_ingest() {
    let running = serve().await;
    assert_eq!(check(running.address, "").await, Ok(ServingStatus::Serving));
    let ingest = check(running.address, "emberline.v1.Ingest").await;
    assert_eq!(ingest, Ok(ServingStatus::Serving));
    assert_eq!(check(running.address, "other").await, Err(Code::NotFound));
    assert_eq!(
        check(running.address, &"x".repeat(2_000)).await,
        Err(Code::OutOfRange)
    );

    let (full, _folder) = serve_full().await;
    assert_eq!(check(full.address, "").await, Ok(ServingStatus::NotServing));
}

#[tokio::test]
async fn health_has_no_streams_and_nothing_for_web_pages() {
    let running = serve().await;
    let request = HealthCheckRequest::default();
    let status = client(running.address)
        .await
        .watch(request)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let host = running.address.to_string();
    let headers = [("host", &*host), ("content-type", "application/grpc")];
    let answer = send_with(
        running.address,
        "POST /grpc.health.v1.Health/Check",
        &headers,
        "",
    )
    .await;
    assert_eq!(answer.status, 415, "HTTP/1.1: {}", answer.body);
}
