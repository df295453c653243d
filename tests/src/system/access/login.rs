//! A browser's login to the real collector, and its end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::harness::{Collector, run, wait_for};

/// Deadline of every read.
const PATIENCE: Duration = Duration::from_secs(60);

const HTML: (&str, &str) = ("accept", "text/html");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn browser() -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0);
    config.timeout_global(Some(PATIENCE)).build().into()
}

fn get(url: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let request = headers
        .iter()
        .fold(browser().get(url), |it, (name, value)| {
            it.header(*name, *value)
        });
    request.call().unwrap()
}

fn post(url: &str, headers: &[(&str, &str)], body: &str) -> Response<Body> {
    let request = headers
        .iter()
        .fold(browser().post(url), |it, (name, value)| {
            it.header(*name, *value)
        });
    request.send(body).unwrap()
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// Creates a token; returns its id and its text.
fn token(data: &str, role: &str) -> (String, String) {
    let created = run(&[
        "token", "new", "--data", data, "--role", role, "--note", "Ada", "--format", "json",
    ]);
    let row: Value = serde_json::from_slice(&created.stdout).unwrap();
    let text = |field: &str| row[field].as_str().unwrap().to_owned();
    (text("id"), text("token"))
}

#[test]
fn a_browser_logs_in_reads_and_is_logged_out_when_its_token_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let (id, token) = token(&data, "reader");
    let collector = Collector::start_with_data("127.0.0.1:0", Path::new(&data));
    let url = collector.url();
    let own = [
        HTML,
        FORM,
        ("origin", &*url),
        ("sec-fetch-site", "same-origin"),
    ];

    let sent = get(&format!("{url}/profile?task=qr"), &[HTML]);
    assert_eq!(sent.status(), 303);
    assert_eq!(header(&sent, "location"), "login?next=profile%3Ftask%3Dqr");
    assert_eq!(get(&format!("{url}/api/v1/workers"), &[]).status(), 401);

    let last = if token.ends_with('0') { "1" } else { "0" };
    let wrong = format!("token={}{last}", &token[..token.len() - 1]);
    let rejected = post(&format!("{url}/login"), &own, &wrong);
    assert_eq!(
        (rejected.status().as_u16(), header(&rejected, "set-cookie")),
        (401, "")
    );
    let fields = format!("token={token}&next=profile%3Ftask%3Dqr");
    let foreign = [
        HTML,
        FORM,
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ];
    let foreign = post(&format!("{url}/login"), &foreign, &fields);
    assert_eq!(
        (foreign.status().as_u16(), header(&foreign, "set-cookie")),
        (403, "")
    );

    let done = post(&format!("{url}/login"), &own, &fields);
    assert_eq!(
        (done.status().as_u16(), header(&done, "location")),
        (303, "./profile?task=qr")
    );
    let (cookie, attributes) = header(&done, "set-cookie").split_once("; ").unwrap();
    assert_eq!(
        attributes,
        "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"
    );
    let with_cookie = [HTML, ("cookie", cookie)];
    assert_eq!(
        get(&format!("{url}/profile?task=qr"), &with_cookie).status(),
        200
    );
    let session = get(&format!("{url}/api/v1/session"), &with_cookie)
        .into_body()
        .read_to_string();
    let session: Value = serde_json::from_str(&session.unwrap()).unwrap();
    assert_eq!(
        (&session["role"], &session["note"]),
        (&"reader".into(), &"Ada".into())
    );
    assert_eq!(
        (&session["token"], &session["logged_in"]),
        (&id.clone().into(), &true.into())
    );

    let mut updates = TcpStream::connect(&collector.address).unwrap();
    updates.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = &collector.address;
    let ask = format!("GET /api/v1/updates HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\n\r\n");
    updates.write_all(ask.as_bytes()).unwrap();
    let mut updates = BufReader::new(updates);
    let mut text = String::new();
    while !text.ends_with("event: update\n") {
        assert_ne!(updates.read_line(&mut text).unwrap(), 0, "{text}");
    }
    assert!(
        run(&["token", "revoke", &id, "--data", &data])
            .status
            .success()
    );
    // The last chunk is empty.
    while !text.ends_with("\r\n0\r\n\r\n") {
        assert_ne!(updates.read_line(&mut text).unwrap(), 0, "{text}");
    }
    assert_eq!(
        get(&format!("{url}/api/v1/session"), &[("cookie", cookie)]).status(),
        401
    );
    assert_eq!(get(&format!("{url}/profile"), &with_cookie).status(), 303);

    let secret = cookie.split_once('=').unwrap().1;
    let log = wait_for("the audit log", || {
        let log = collector.log();
        log.contains("logged in").then_some(log)
    });
    assert!(
        log.contains("the token is not valid") && log.contains(&id),
        "{log}"
    );
    assert!(!log.contains(&token) && !log.contains(secret), "{log}");
}
