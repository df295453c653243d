//! Peers that take memory and do not go on.

use super::*;

/// How a stream over HTTP/2 by hand ended.
async fn status_of(response: h2::client::ResponseFuture) -> (String, Option<String>) {
    let response = response.await.unwrap();
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        let _ = body.flow_control().release_capacity(data.unwrap().len());
    }
    let trailers = body.trailers().await.unwrap().unwrap();
    let text = |name| trailers.get(name).map(|value| value.to_str().unwrap().to_owned());
    (text("grpc-status").unwrap(), text("grpc-retry-pushback-ms"))
}

/// Begins a message of the largest size on a stream of its own, and never ends it.
async fn send_half(address: SocketAddr) -> h2::client::ResponseFuture {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let uri = format!("http://{address}/emberline.v1.Ingest/Attach");
    let request =
        axum::http::Request::post(uri).header("content-type", "application/grpc").body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    let length = u32::try_from(profiler_core::limits::MESSAGE_BYTES_MAX).unwrap();
    let header = [&[0][..], &length.to_be_bytes()].concat();
    body.send_data(header.into(), false).unwrap();
    // h2 buffers it and sends it as the windows allow.
    body.send_data(vec![0; length as usize - 1].into(), false).unwrap();
    tokio::spawn(async move {
        let _kept_open = body;
        std::future::pending::<()>().await;
    });
    response
}

#[tokio::test]
async fn half_messages_give_way_to_others() {
    let running = serve().await;
    let (mut worker, mut honest) = attached(&running, "w").await;
    // Half as much again as half messages may take.
    let count = crate::limits::BEGUN_BYTES_MAX * 3 / 2 / profiler_core::limits::MESSAGE_BYTES_MAX;
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..count {
        streams.spawn(status_of(send_half(running.address).await));
    }
    let gave_way = ("8".to_owned(), Some("5000".to_owned()));
    for _ in 0..count / 3 {
        assert_eq!(in_time(streams.join_next()).await.unwrap().unwrap(), gave_way);
        worker.count("load;main", State::Cpu, 5);
        let flush = worker.flush(31, vec![]);
        let expected = format!("ack {}", flush.seq);
        assert_eq!(honest.ask(agent_message::Kind::Flush(flush)).await, expected);
    }
}
