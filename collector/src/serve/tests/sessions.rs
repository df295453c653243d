//! Logins of browsers, by requests as browsers send them.

use std::net::SocketAddr;

use profiler_core::Token;
use profiler_core::wire::v1::agent_message::Kind;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::access::Guarded;
use super::client::{Answer, send_with};
use super::*;
use base::limits::{
    LOGIN_BODY_BYTES_MAX, LOGIN_IDLE_MAX, LOGIN_MAX, RETURN_PATH_BYTES_MAX, nanoseconds,
};
use front::auth::{NewToken, Role};

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml;q=0.9");

/// A browser at the collector's own page.
struct Browser {
    address: SocketAddr,
    /// Name and value.
    cookie: Option<String>,
}

impl Browser {
    fn new(guarded: &Guarded) -> Browser {
        Browser {
            address: guarded.running.address,
            cookie: None,
        }
    }

    async fn send(&self, line: &str, more: &[(&str, &str)], body: &str) -> Answer {
        let host = self.address.to_string();
        let mut headers = vec![("host", &*host)];
        headers.extend(self.cookie.as_deref().map(|cookie| ("cookie", cookie)));
        headers.extend_from_slice(more);
        send_with(self.address, line, &headers, body).await
    }

    /// Opens an address as a page.
    async fn open(&self, path: &str) -> Answer {
        self.send(
            &format!("GET {path}"),
            &[HTML, ("sec-fetch-site", "none")],
            "",
        )
        .await
    }

    /// Requests an answer of the API from the page.
    async fn fetch(&self, line: &str) -> Answer {
        let headers = [
            ("accept", "application/json"),
            ("content-type", "application/json"),
            ("sec-fetch-site", "same-origin"),
        ];
        self.send(line, &headers, "{}").await
    }

    /// Sends a form from the collector's own page.
    async fn post(&mut self, path: &str, fields: &str) -> Answer {
        let origin = format!("http://{}", self.address);
        let headers = [
            HTML,
            ("content-type", "application/x-www-form-urlencoded"),
            ("origin", &*origin),
            ("sec-fetch-site", "same-origin"),
        ];
        let answer = self.send(&format!("POST {path}"), &headers, fields).await;
        if let Some(set) = answer.header("set-cookie") {
            self.cookie = set.split(';').next().map(str::to_owned);
        }
        answer
    }

    async fn log_in(guarded: &Guarded, token: &Token) -> Browser {
        let mut browser = Browser::new(guarded);
        let answer = browser
            .post("/login", &format!("token={}", token.expose()))
            .await;
        assert_eq!(answer.status, 303, "{}", answer.body);
        browser
    }

    /// Opens an answer that does not end by itself, and reads to the end of its head.
    async fn stream(&self, path: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let cookie = self.cookie.as_deref().unwrap();
        let host = self.address;
        let ask = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(
                in_time(stream.read_line(&mut head)).await.unwrap(),
                0,
                "{head}"
            );
        }
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        stream
    }
}

/// Reads until the answer is complete, in chunks: the last one is empty.
async fn read_to_end(mut stream: BufReader<TcpStream>) -> String {
    let mut text = String::new();
    // One deadline for all lines: a stream that goes on has a line now and then.
    let read = async {
        while !text.ends_with("0\r\n\r\n") {
            assert_ne!(stream.read_line(&mut text).await.unwrap(), 0, "{text}");
        }
    };
    in_time(read).await;
    text
}

async fn guarded(role: Role) -> (Guarded, Token) {
    let guarded = Guarded::serve().await;
    let note = "Ada <ada@example>".to_owned();
    let token = guarded.token(NewToken {
        note,
        ..NewToken::new(role)
    });
    guarded.until_valid(&token).await;
    (guarded, token)
}

#[tokio::test]
async fn a_browser_is_sent_to_the_login_and_back() {
    let (guarded, token) = guarded(Role::Reader).await;
    let mut browser = Browser::new(&guarded);
    let sent = browser.open("/tasks/qr?from=-5m&worker=%3Cb%3E").await;
    assert_eq!(sent.status, 303);
    let next = "tasks%2Fqr%3Ffrom%3D-5m%26worker%3D%253Cb%253E";
    assert_eq!(
        sent.header("location"),
        Some(&*format!("../login?next={next}"))
    );
    assert_eq!(sent.header("cache-control"), Some("no-store"));
    assert_eq!(browser.fetch("GET /api/v1/session").await.status, 401);
    assert_eq!(browser.fetch("GET /assets/x").await.status, 401);

    let login = browser.open(&format!("/login?next={next}")).await;
    assert_eq!(login.status, 200);
    let field = "value=\"tasks/qr?from=-5m&amp;worker=%3Cb%3E\"";
    assert!(login.body.contains(field), "{}", login.body);
    let policy = login.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'"),
        "{policy}"
    );
    assert!(
        policy.contains("frame-ancestors 'none'; form-action 'self'"),
        "{policy}"
    );
    assert_eq!(login.header("referrer-policy"), Some("same-origin"));
    for file in ["login.css", "login.js"] {
        assert!(login.body.contains(&format!("\"{file}\"")));
        let answer = browser.open(&format!("/{file}")).await;
        assert_eq!(answer.status, 200, "{file}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }

    let fields = format!("token=+{}%0A&next={next}", token.expose());
    let done = browser.post("/login", &fields).await;
    assert_eq!(done.status, 303, "{}", done.body);
    assert_eq!(
        done.header("location"),
        Some("./tasks/qr?from=-5m&worker=%3Cb%3E")
    );
    let cookie = done.header("set-cookie").unwrap();
    let port = browser.address.port();
    let value = cookie.strip_prefix(&format!("emberline-{port}=")).unwrap();
    let (secret, attributes) = value.split_once("; ").unwrap();
    assert_eq!(secret.len(), 64);
    assert_eq!(
        attributes,
        "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"
    );
    assert!(!token.expose().contains(secret));
    assert_eq!(browser.open("/tasks/qr").await.status, 200);
    assert_eq!(browser.fetch("GET /api/v1/workers").await.status, 200);
    let again = browser.open("/login").await;
    assert!(
        again.body.contains("Ada &lt;ada@example&gt;"),
        "{}",
        again.body
    );
}

#[tokio::test]
async fn the_session_names_its_token_and_has_its_role() {
    let (guarded, token) = guarded(Role::Reader).await;
    let browser = Browser::log_in(&guarded, &token).await;
    let session = browser.fetch("GET /api/v1/session").await;
    let session: Value = serde_json::from_str(&session.body).unwrap();
    super::limits::bodies::check("/api/v1/session", &session);
    let expires_ns = at(60).unix_ns() + nanoseconds(LOGIN_MAX);
    let expected = json!({
        "role": "reader", "token": token.id().to_string(), "note": "Ada <ada@example>",
        "logged_in": true, "sql": false, "expires": "1970-01-13T01:47:40.000000000Z", "expires_ns": expires_ns,
    });
    assert_eq!(session, expected);
    assert_eq!(
        browser.fetch("PUT /api/v1/workers/settings").await.status,
        403
    );
    assert_eq!(browser.fetch("GET /api/v1/thread-dump").await.status, 403);

    let expires = jiff::Timestamp::from_nanosecond(at(90).unix_ns().into()).unwrap();
    let new = NewToken {
        expires: Some(expires),
        ..NewToken::new(Role::Operator)
    };
    let operator = guarded.token(new);
    guarded.until_status(Some(&operator), 200).await;
    let browser = Browser::log_in(&guarded, &operator).await;
    let session = browser.fetch("GET /api/v1/session").await;
    let session: Value = serde_json::from_str(&session.body).unwrap();
    assert_eq!(session["role"], "operator");
    assert_eq!(session["expires_ns"], at(90).unix_ns());
    // The empty body is rejected, not its sender.
    assert_eq!(
        browser.fetch("PUT /api/v1/workers/settings").await.status,
        400
    );

    let by_token = guarded.answer("GET /api/v1/session", Some(&operator)).await;
    let by_token: Value = serde_json::from_str(&by_token.body).unwrap();
    assert_eq!(
        (&by_token["logged_in"], &by_token["role"]),
        (&json!(false), &json!("operator"))
    );
    let open = serve().await.json("/api/v1/session").await;
    assert_eq!(
        (&open["role"], &open["token"]),
        (&json!("operator"), &json!(null))
    );
}

#[tokio::test]
async fn a_wrong_token_opens_no_session_and_says_so() {
    let (guarded, reader) = guarded(Role::Reader).await;
    let agent = guarded.agent("*");
    let expires = jiff::Timestamp::from_second(5).unwrap();
    let expired = NewToken {
        expires: Some(expires),
        ..NewToken::new(Role::Reader)
    };
    let expired = guarded.token(expired);
    guarded.until_status(Some(&agent), 403).await;
    let wrong = Token::new(reader.id(), &[7; 32]);
    let unknown = Token::new(profiler_core::TokenId(7), &[7; 32]);
    for (token, status, error) in [
        ("", 400, "Enter a token."),
        ("+", 400, "Enter a token."),
        ("emb_", 401, "The token is not valid."),
        (wrong.expose(), 401, "The token is not valid."),
        (unknown.expose(), 401, "The token is not valid."),
        (expired.expose(), 401, "The token has expired."),
        (
            agent.expose(),
            403,
            "A token of role agent cannot read. Use one of role reader or operator.",
        ),
    ] {
        let mut browser = Browser::new(&guarded);
        let answer = browser
            .post("/login", &format!("next=profile&token={token}"))
            .await;
        assert_eq!(answer.status, status, "{error}");
        assert!(
            answer.body.contains(&format!("role=\"alert\">{error}</p>")),
            "{}",
            answer.body
        );
        assert!(answer.body.contains("value=\"profile\""), "{}", answer.body);
        assert!(
            token.len() < 9 || !answer.body.contains(token),
            "{}",
            answer.body
        );
        assert_eq!(browser.cookie, None);
    }
    let mut browser = Browser::new(&guarded);
    let large = "x".repeat(LOGIN_BODY_BYTES_MAX + 1);
    assert_eq!(browser.post("/login", &large).await.status, 413);
    for cookie in [
        "x",
        &format!("emberline-{}={}", browser.address.port(), "0".repeat(64)),
    ] {
        browser.cookie = Some(cookie.to_owned());
        assert_eq!(browser.fetch("GET /api/v1/workers").await.status, 401);
        assert_eq!(browser.open("/").await.header("location"), Some("login"));
    }
}

#[tokio::test]
async fn the_login_leads_nowhere_else() {
    let (guarded, token) = guarded(Role::Reader).await;
    let long = "x".repeat(RETURN_PATH_BYTES_MAX + 1);
    for next in [
        "//evil.example",
        "https://evil.example",
        "%5C%5Cevil.example",
        "..%2Fx",
        &long,
    ] {
        let mut browser = Browser::new(&guarded);
        let shown = browser.open(&format!("/login?next={next}")).await;
        let expected = if next.starts_with("https") { next } else { "" };
        assert!(
            shown.body.contains(&format!("value=\"{expected}\"")),
            "{}",
            shown.body
        );
        let fields = format!("next={next}&token={}", token.expose());
        let done = browser.post("/login", &fields).await;
        // A path that begins with a dot has no host, whatever follows.
        assert_eq!(
            done.header("location"),
            Some(&*format!("./{expected}")),
            "{next}"
        );
    }
}

#[tokio::test]
async fn other_sites_neither_log_in_nor_out() {
    let (guarded, token) = guarded(Role::Operator).await;
    let browser = Browser::log_in(&guarded, &token).await;
    let fields = format!("token={}", token.expose());
    let form = ("content-type", "application/x-www-form-urlencoded");
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let headers = [form, (name, value), ("sec-fetch-mode", "navigate")];
        for path in ["/login", "/logout"] {
            let answer = browser
                .send(&format!("POST {path}"), &headers, &fields)
                .await;
            assert_eq!(answer.status, 403, "{path} {name}: {value}");
            assert_eq!(answer.header("set-cookie"), None);
        }
    }
    assert_eq!(browser.fetch("GET /api/v1/session").await.status, 200);
    for line in [
        "PUT /api/v1/workers/settings",
        "POST /api/v1/runs",
        "GET /api/v1/thread-dump",
    ] {
        let headers = [
            ("sec-fetch-site", "cross-site"),
            ("content-type", "application/json"),
        ];
        assert_eq!(
            browser.send(line, &headers, "{}").await.status,
            403,
            "{line}"
        );
    }
}

/// The cookie is not sent with the link, but with what the login's page opens.
#[tokio::test]
async fn a_link_from_another_site_is_retried_from_the_login() {
    let (guarded, _token) = guarded(Role::Reader).await;
    let browser = Browser::new(&guarded);
    let linked = [
        HTML,
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    let sent = browser.send("GET /profile?task=qr", &linked, "").await;
    let address = sent.header("location").unwrap();
    assert_eq!(address, "login?next=profile%3Ftask%3Dqr");
    let line = format!("GET /{address}");
    let retry = "<meta name=\"retry\" content=\"./profile?task=qr\">";
    // A token in the fragment of such a link is not used before the person agrees.
    let ask = "<meta name=\"ask\">";
    let page = browser.send(&line, &linked, "").await.body;
    assert!(page.contains(retry) && page.contains(ask), "{page}");
    let page = browser.send("GET /login", &linked, "").await.body;
    assert!(!page.contains("retry") && page.contains(ask), "{page}");
    let page = browser.open(&format!("/{address}")).await.body;
    assert!(!page.contains("retry"), "it would loop: {page}");
    assert!(!page.contains(ask), "{page}");
}

#[tokio::test]
async fn a_session_ends_by_logout_time_and_another_login() {
    let (guarded, token) = guarded(Role::Reader).await;
    let mut browser = Browser::log_in(&guarded, &token).await;
    let first = Browser {
        cookie: browser.cookie.clone(),
        ..Browser::new(&guarded)
    };
    browser
        .post("/login", &format!("token={}", token.expose()))
        .await;
    assert_ne!(browser.cookie, first.cookie);
    assert_eq!(status(&first).await, 401, "the browser has another session");
    assert_eq!(status(&browser).await, 200);

    let out = browser.post("/logout", "").await;
    assert_eq!((out.status, out.header("location")), (303, Some("./login")));
    let second = Browser {
        cookie: browser.cookie.clone(),
        ..Browser::new(&guarded)
    };
    assert_eq!(status(&second).await, 401);
    assert_eq!(browser.post("/logout", "").await.status, 303, "again");

    let browser = Browser::log_in(&guarded, &token).await;
    let now_ns = &guarded.running.now_ns;
    now_ns.fetch_add(nanoseconds(LOGIN_IDLE_MAX) - 1, Ordering::SeqCst);
    assert_eq!(status(&browser).await, 200);
    now_ns.fetch_add(nanoseconds(LOGIN_IDLE_MAX), Ordering::SeqCst);
    assert_eq!(status(&browser).await, 401);
}

async fn status(browser: &Browser) -> u16 {
    browser.fetch("GET /api/v1/session").await.status
}

#[tokio::test]
async fn streams_of_events_end_with_the_session() {
    let (guarded, token) = guarded(Role::Reader).await;
    let mut browser = Browser::log_in(&guarded, &token).await;
    let updates = browser.stream("/api/v1/updates").await;
    let events = browser.stream("/api/v1/events").await;
    let other = Browser::log_in(&guarded, &token).await;
    let mut others = other.stream("/api/v1/updates").await;
    browser.post("/logout", "").await;
    assert!(read_to_end(updates).await.contains("event: update"));
    read_to_end(events).await;
    let mut line = String::new();
    while !line.contains("data: ") {
        assert_ne!(in_time(others.read_line(&mut line)).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn streams_of_events_end_with_the_token() {
    let (guarded, revoked) = guarded(Role::Reader).await;
    let expires = jiff::Timestamp::from_nanosecond(at(61).unix_ns().into()).unwrap();
    let new = NewToken {
        expires: Some(expires),
        ..NewToken::new(Role::Reader)
    };
    let expiring = guarded.token(new);
    guarded.until_status(Some(&expiring), 200).await;
    let browser = Browser::log_in(&guarded, &revoked).await;
    let updates = browser.stream("/api/v1/updates").await;
    let events = browser.stream("/api/v1/events").await;
    guarded.file.revoke(revoked.id()).unwrap();
    assert!(read_to_end(updates).await.contains("event: update"));
    read_to_end(events).await;
    assert_eq!(browser.fetch("GET /api/v1/session").await.status, 401);

    let browser = Browser::log_in(&guarded, &expiring).await;
    let updates = browser.stream("/api/v1/updates").await;
    guarded
        .running
        .now_ns
        .store(at(61).unix_ns(), Ordering::SeqCst);
    assert!(read_to_end(updates).await.contains("event: update"));
    assert_eq!(browser.fetch("GET /api/v1/session").await.status, 401);
}

/// A reader who stops reading, until its token is revoked, does not get the rest.
#[tokio::test]
async fn a_large_answer_breaks_off_when_the_token_is_revoked() {
    let (guarded, token) = guarded(Role::Reader).await;
    let agent = guarded.agent("*");
    guarded.until_status(Some(&agent), 403).await;
    let mut worker = TestWorker::new("w", 1);
    let mut client = guarded.attach("w", Some(&agent)).await.unwrap();
    // Long names make an answer that is larger than what the system buffers for a connection.
    for seq in 1..=5 {
        for number in 0..800 {
            let name = format!("f{seq}-{number}-{}", "x".repeat(4_000));
            worker.count(&format!("load;{name}"), State::Cpu, 1);
        }
        let flush = worker.flush(29 + seq, vec![]);
        while let Some(dictionary) = worker.dictionary() {
            client.send(Kind::Dictionary(dictionary)).await;
        }
        assert_eq!(client.ask(Kind::Flush(flush)).await, format!("ack {seq}"));
    }
    let browser = Browser::log_in(&guarded, &token).await;
    let path = format!("/api/v1/profile?{ALL}&format=collapsed");
    let whole = browser.fetch(&format!("GET {path}")).await.body;
    assert!(whole.len() > 16_000_000, "{}", whole.len());
    let mut stream = browser.stream(&path).await;
    guarded.file.revoke(token.id()).unwrap();
    let start = Instant::now();
    while browser.fetch("GET /api/v1/session").await.status != 401 {
        assert!(
            start.elapsed() < PATIENCE,
            "waited in vain for the revocation"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut rest = Vec::new();
    // The connection is closed, or reset.
    let _ = in_time(stream.read_to_end(&mut rest)).await;
    assert!(
        rest.len() < whole.len(),
        "{} of {}",
        rest.len(),
        whole.len()
    );
}
