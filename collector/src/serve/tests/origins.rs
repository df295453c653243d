//! Requests that browsers send on behalf of other sites' pages.

use std::fs;

use serde_json::Value;
use tls::CertificateFiles;

use super::client::{Answer, send_with};
use super::{Running, ServeOptions, TlsOptions, serve, serve_with};
use front::origin::PublicNames;
use front::port::Certificate;

const OFF: &str = r#"{"enabled":false}"#;

/// A request for the workers with these headers.
async fn workers(running: &Running, headers: &[(&str, &str)]) -> Answer {
    send_with(running.address, "GET /api/v1/workers", headers, "").await
}

fn error(answer: &Answer) -> String {
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    body["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn only_known_host_names_are_answered() {
    let public_names = vec!["Profiles.Example".to_owned()];
    let running = serve_with(ServeOptions {
        public_names,
        ..ServeOptions::default()
    })
    .await;
    for host in [
        "127.0.0.1",
        "127.0.0.1:4747",
        "[::1]:4747",
        "10.1.2.3",
        "localhost",
        "LocalHost.:80",
        "profiles.example",
        "profiles.example.:443",
    ] {
        assert_eq!(
            workers(&running, &[("host", host)]).await.status,
            200,
            "{host}"
        );
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:4747",
    ] {
        let answer = workers(&running, &[("host", host)]).await;
        assert_eq!(answer.status, 421, "{host}");
        let name = host.trim_end_matches(":4747");
        let expected = format!(
            "the collector does not answer as `{name}`; use its IP address or `localhost`, or start \
             it with `--public-name {name}`"
        );
        assert_eq!(error(&answer), expected);
    }
    for headers in [
        &[][..],
        &[("host", "")],
        &[("host", "a b")],
        &[("host", "::1"), ("host", "b")],
    ] {
        assert_eq!(workers(&running, headers).await.status, 400, "{headers:?}");
    }
}

#[test]
fn the_names_of_the_present_certificate_are_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let files = CertificateFiles {
        cert: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    let write = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        fs::write(&files.cert, made.cert.pem()).unwrap();
        fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    };
    write("Old.example");
    let options = TlsOptions {
        certificate: files.clone(),
        client_ca: None,
    };
    let certificate = Certificate::load(options).unwrap();
    let names = PublicNames::new(&["named.example".to_owned()], Some(certificate.names()));
    let allowed = || ["named.example", "old.example.", "new.example"].map(|name| names.allow(name));
    assert_eq!(allowed(), [true, true, false]);
    write("new.example");
    certificate.reload();
    assert_eq!(allowed(), [true, false, true]);
    fs::write(&files.cert, "damaged").unwrap();
    certificate.reload();
    assert_eq!(allowed(), [true, false, true]);
}

#[tokio::test]
async fn a_rebound_name_can_neither_read_nor_switch_sampling_off() {
    let running = serve().await;
    let headers = [
        ("host", "evil.example"),
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "same-origin"),
        ("content-type", "application/json"),
    ];
    for line in [
        "PUT /api/v1/workers/settings",
        "GET /api/v1/profile",
        "GET /",
        "POST /api/v1/runs",
    ] {
        let answer = send_with(running.address, line, &headers, OFF).await;
        assert_eq!(answer.status, 421, "{line}: {}", answer.body);
    }
}

/// A page can send these types without asking, over HTTP/2 too.
#[tokio::test]
async fn agents_need_the_content_type_of_grpc() {
    let running = serve().await;
    let stream = tokio::net::TcpStream::connect(running.address)
        .await
        .unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut status = async |content_type: &str| {
        let uri = format!("http://{}/emberline.v1.Ingest/Attach", running.address);
        let request = axum::http::Request::post(uri).header("content-type", content_type);
        let (response, _) = client
            .send_request(request.body(()).unwrap(), true)
            .unwrap();
        response.await.unwrap().status().as_u16()
    };
    for page in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        assert_eq!(status(page).await, 415, "{page}");
    }
    assert_eq!(status("application/grpc").await, 200);
}

#[tokio::test]
async fn pages_of_other_origins_are_rejected() {
    let running = serve().await;
    let own = running.address.to_string();
    let own_origin = format!("http://{own}");
    let status = async |name: &str, value: &str| {
        workers(&running, &[("host", &own), (name, value)])
            .await
            .status
    };
    assert_eq!(status("origin", &own_origin).await, 200);
    for origin in ["http://evil.example", "null", "http://localhost:23990", ""] {
        assert_eq!(status("origin", origin).await, 403, "{origin}");
    }
    assert_eq!(status("sec-fetch-site", "same-origin").await, 200);
    assert_eq!(status("sec-fetch-site", "none").await, 200);
    // Pages of other ports of this machine are of the same site.
    for site in ["same-site", "cross-site", "unknown"] {
        assert_eq!(status("sec-fetch-site", site).await, 403, "{site}");
    }
}

#[tokio::test]
async fn a_link_from_another_site_opens_the_page_and_nothing_else() {
    let running = serve().await;
    let host = running.address.to_string();
    let status = async |line: &str, mode: &str, dest: &str| {
        let headers = [
            ("host", &*host),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", mode),
            ("sec-fetch-dest", dest),
            ("content-type", "application/json"),
        ];
        send_with(running.address, line, &headers, OFF).await.status
    };
    assert_eq!(status("GET /profile", "navigate", "document").await, 200);
    assert_eq!(status("GET /profile", "navigate", "iframe").await, 403);
    assert_eq!(
        status("GET /api/v1/profile?format=svg", "no-cors", "image").await,
        403
    );
    assert_eq!(
        status("PUT /api/v1/workers/settings", "navigate", "document").await,
        403
    );
}

#[tokio::test]
async fn no_page_reaches_the_agents_service() {
    let running = serve().await;
    let host = running.address.to_string();
    let line = "POST /emberline.v1.Ingest/Attach";
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "application/grpc",
    ] {
        let headers = [("host", &*host), ("content-type", content_type)];
        let answer = send_with(running.address, line, &headers, "").await;
        assert_eq!(answer.status, 415, "HTTP/1.1 with `{content_type}`");
    }
    for name in ["origin", "sec-fetch-site"] {
        let headers = [
            ("host", &*host),
            ("content-type", "application/grpc"),
            (name, "none"),
        ];
        let answer = send_with(running.address, line, &headers, "").await;
        assert_eq!(answer.status, 403, "{name}");
    }
}

#[tokio::test]
async fn no_page_may_embed_an_answer() {
    let running = serve().await;
    let host = running.address.to_string();
    for path in ["/", "/livez", "/api/v1/profile?format=svg", "/no/such/path"] {
        let answer = send_with(
            running.address,
            &format!("GET {path}"),
            &[("host", &host)],
            "",
        )
        .await;
        for name in ["cross-origin-resource-policy", "cross-origin-opener-policy"] {
            assert_eq!(answer.header(name), Some("same-origin"), "{path}");
        }
    }
}
