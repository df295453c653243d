//! Tokens and roles, by requests with each of them.

use std::collections::{BTreeSet, HashMap};

use profiler_core::wire::v1::agent_message;
use profiler_core::{SessionKey, Token};
use tempfile::TempDir;
use tonic::Code;

use super::super::access::{ROUTES, Route};
use super::client::{Answer, Client, send_with};
use super::*;
use front::auth::{Access, NewToken, Role, TokenFile, TokenSource, Tokens, WorkerPattern};
use front::gate::Gate;

/// The time of creation of the tests' tokens; their collectors' clock starts at 60 s after 1970-01-12.
const CREATED: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

/// A collector whose tokens are in a file.
pub(super) struct Guarded {
    pub(super) running: Running,
    pub(super) file: TokenFile,
    _folder: TempDir,
}

impl Guarded {
    pub(super) async fn serve() -> Guarded {
        Guarded::serve_with(ServeOptions::default()).await
    }

    pub(super) async fn serve_with(options: ServeOptions) -> Guarded {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::in_folder(folder.path());
        let tokens = TokenSource::File(file.clone());
        let running = serve_with(ServeOptions { tokens, ..options }).await;
        Guarded {
            running,
            file,
            _folder: folder,
        }
    }

    pub(super) fn token(&self, new: NewToken) -> Token {
        self.file.create(new, CREATED).unwrap().0
    }

    pub(super) fn agent(&self, pattern: &str) -> Token {
        let workers = vec![WorkerPattern::parse(pattern).unwrap()];
        self.token(NewToken {
            workers,
            ..NewToken::new(Role::Agent)
        })
    }

    pub(super) async fn answer(&self, line: &str, token: Option<&Token>) -> Answer {
        let host = self.running.address.to_string();
        let bearer = token.map(Token::bearer);
        let mut headers = vec![("host", &*host), ("content-type", "application/json")];
        headers.extend(
            bearer
                .as_ref()
                .map(|bearer| ("authorization", bearer.as_str())),
        );
        send_with(self.running.address, line, &headers, "{}").await
    }

    /// Polls until a request has this status: the collector looks for a changed file each second.
    pub(super) async fn until_status(&self, token: Option<&Token>, status: u16) {
        let start = Instant::now();
        while self.answer("GET /api/v1/workers", token).await.status != status {
            assert!(start.elapsed() < PATIENCE, "waited in vain for {status}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a reader's token is needed and this one is valid.
    pub(super) async fn until_valid(&self, reader: &Token) {
        // Before the file is read, nobody needs a token.
        self.until_status(None, 401).await;
        self.until_status(Some(reader), 200).await;
    }

    pub(super) async fn attach(
        &self,
        worker: &str,
        token: Option<&Token>,
    ) -> Result<Client, tonic::Status> {
        let hello = TestWorker::new(worker, 1).hello();
        Client::attach_with(self.running.address, hello, token).await
    }
}

fn error(answer: &Answer) -> String {
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    body["error"].as_str().unwrap().to_owned()
}

/// The paths and methods of the served router, as its `Debug` lists them: axum has no other way to ask
/// for them.
fn served_routes() -> BTreeSet<String> {
    let collector = Arc::new(Collector::new(state::Settings::default()));
    let (_stop, stopping) = watch::channel(false);
    let gate = Gate::new(
        Arc::new(Tokens::open(TokenSource::None).unwrap()),
        Clock::default(),
    );
    let routes = router(
        Reader::new(collector),
        PublicNames::default(),
        gate,
        TASK_LABEL_DEFAULT,
        &stopping,
    );
    let text = format!("{routes:#?}");
    let (text, _) = text.split_once("fallback_router:").unwrap();
    let mut methods: HashMap<u32, Vec<String>> = HashMap::new();
    let mut served = BTreeSet::new();
    let mut id = 0;
    for line in text.lines().map(str::trim) {
        if let Ok(number) = line.trim_end_matches(',').parse() {
            id = number;
        } else if line == "): Route(" {
            // A service, which gets every method: gRPC has only one.
            methods.insert(id, vec!["POST".to_owned()]);
        } else if let Some(path) = line.strip_prefix("): \"") {
            let path = path.trim_end_matches("\",");
            served.extend(methods[&id].iter().map(|method| format!("{method} {path}")));
        } else if let Some((method, handler)) = line.split_once(": ") {
            let is_method = [
                "get", "head", "put", "post", "delete", "options", "patch", "trace", "connect",
            ]
            .contains(&method);
            if is_method && handler != "None," {
                methods.entry(id).or_default().push(method.to_uppercase());
            }
        }
    }
    served
}

/// The rows of the table of routes in `docs/SECURITY.md`.
fn documented_routes() -> Vec<String> {
    let document = include_str!("../../../../docs/SECURITY.md");
    let (_, table) = document
        .split_once("| route | role |\n|---|---|\n")
        .unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    rows.map(str::to_owned).collect()
}

#[test]
fn the_documented_routes_are_the_served_ones() {
    assert_eq!(
        documented_routes(),
        ROUTES
            .iter()
            .map(|route: &Route| {
                let role = match route.access {
                    Access::Open => "nothing",
                    access => access.role().name(),
                };
                format!("| `{} {}` | {role} |", route.method, route.path)
            })
            .collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn every_route_has_a_role() {
    let listed: BTreeSet<String> = ROUTES
        .iter()
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    assert_eq!(listed.len(), ROUTES.len(), "no route is listed twice");
    assert_eq!(served_routes(), listed);
}

/// The path of a request that matches a route.
fn example(path: &str) -> String {
    let path = path.replace("{name}", "x").replace("{*rest}", "Attach");
    // A valid number of seconds would be waited for.
    path.replace("/debug/pprof/profile", "/debug/pprof/profile?seconds=0")
}

#[tokio::test]
async fn each_role_may_use_its_routes_and_no_other() {
    let guarded = Guarded::serve().await;
    let reader = guarded.token(NewToken::new(Role::Reader));
    let operator = guarded.token(NewToken::new(Role::Operator));
    let agent = guarded.agent("*");
    guarded.until_valid(&reader).await;
    let mut unknown = reader.expose().to_owned();
    unknown.replace_range(
        unknown.len() - 1..,
        if unknown.ends_with('0') { "1" } else { "0" },
    );
    let unknown = Token::parse(&unknown).unwrap();
    let roles = [
        (Some(&reader), Some(Role::Reader)),
        (Some(&operator), Some(Role::Operator)),
        (Some(&agent), Some(Role::Agent)),
        (Some(&unknown), None),
        (None, None),
    ];
    for route in ROUTES.iter().filter(|route| is_tried(route.path)) {
        let line = format!("{} {}", route.method, example(route.path));
        for (token, role) in roles {
            let status = guarded.answer(&line, token).await.status;
            let name = role.map_or("nobody", Role::name);
            match (route.access, role) {
                (Access::Open, _)
                | (Access::Reader, Some(Role::Reader | Role::Operator))
                | (Access::Operator, Some(Role::Operator))
                | (Access::Agent, Some(Role::Agent)) => {
                    assert!(
                        ![401, 403, 405].contains(&status),
                        "{name} {line}: {status}"
                    );
                }
                (_, Some(_)) => assert_eq!(status, 403, "{name} {line}"),
                (_, None) => assert_eq!(status, 401, "{name} {line}"),
            }
        }
    }
    for path in ["/no/such/path", "/api/v1/nothing"] {
        assert_eq!(
            guarded.answer(&format!("GET {path}"), None).await.status,
            401,
            "{path}"
        );
        assert_eq!(
            guarded
                .answer(&format!("GET {path}"), Some(&agent))
                .await
                .status,
            404,
            "{path}"
        );
    }
    assert_eq!(
        guarded.answer("DELETE /api/v1/runs", None).await.status,
        401
    );
    let deleted = guarded.answer("DELETE /api/v1/runs", Some(&operator)).await;
    assert_eq!(deleted.status, 405);
    assert!(
        deleted.body.contains(r#""allowed":["GET","HEAD","POST"]"#),
        "{}",
        deleted.body
    );
    assert_eq!(
        guarded.answer("HEAD /api/v1/workers", None).await.status,
        401
    );
}

/// Streams never end, and gRPC needs HTTP/2.
fn is_tried(path: &str) -> bool {
    let services = ["Ingest", "grpc.health", "opentelemetry.proto"];
    let is_grpc = services.iter().any(|service| path.contains(service));
    !["/api/v1/updates", "/api/v1/events"].contains(&path) && !is_grpc
}

#[tokio::test]
async fn a_rejection_says_what_to_run_and_not_which_tokens_exist() {
    let guarded = Guarded::serve().await;
    let expires = jiff::Timestamp::from_second(5).unwrap();
    let expired = NewToken {
        expires: Some(expires),
        ..NewToken::new(Role::Reader)
    };
    let expired = guarded.token(expired);
    let reader = guarded.token(NewToken::new(Role::Reader));
    guarded.until_valid(&reader).await;
    let missing = guarded.answer("GET /api/v1/workers", None).await;
    assert_eq!(missing.header("www-authenticate"), Some("Bearer"));
    assert_eq!(
        error(&missing),
        format!("this collector needs a token{}", hint("reader"))
    );
    // The id of a token that exists, and one that does not.
    for id in [reader.id(), profiler_core::TokenId(7)] {
        let wrong = Token::new(id, &[7; 32]);
        let answer = guarded
            .answer("PUT /api/v1/workers/settings", Some(&wrong))
            .await;
        assert_eq!(
            error(&answer),
            format!("the token is not valid{}", hint("operator"))
        );
    }
    let answer = guarded.answer("GET /api/v1/workers", Some(&expired)).await;
    assert_eq!(
        error(&answer),
        format!("the token has expired{}", hint("reader"))
    );
    let forbidden = guarded
        .answer("PUT /api/v1/workers/settings", Some(&reader))
        .await;
    let expected = "a token of role reader may not do this; it needs role operator; run: emberline \
                    token new --role operator";
    assert_eq!(error(&forbidden), expected);
    let status = guarded.attach("w", None).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(
        status.message(),
        format!("this collector needs a token{}", hint("agent"))
    );
    let status = guarded.attach("w", Some(&reader)).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

fn hint(role: &str) -> String {
    format!(
        "; pass one in EMBERLINE_TOKEN or in a file named by EMBERLINE_TOKEN_FILE; for a new \
             one, run: emberline token new --role {role}"
    )
}

#[tokio::test]
async fn an_agent_reports_as_its_workers_only() {
    let guarded = Guarded::serve().await;
    let agent = guarded.agent("etl-*");
    let reader = guarded.token(NewToken::new(Role::Reader));
    guarded.until_valid(&reader).await;
    guarded.attach("etl-1", Some(&agent)).await.unwrap();
    let other = guarded.agent("db-*");
    guarded.until_status(Some(&other), 403).await;
    guarded.attach("db-1", Some(&other)).await.unwrap();
    let mut texts = BTreeSet::new();
    for worker in ["web-1", "db-1", "db-2"] {
        let status = guarded.attach(worker, Some(&agent)).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        texts.insert(status.message().to_owned());
    }
    assert_eq!(
        texts.len(),
        1,
        "they tell whether a worker exists: {texts:?}"
    );
    let workers = guarded
        .answer("GET /api/v1/workers", Some(&reader))
        .await
        .body;
    assert!(
        workers.contains("etl-1") && !workers.contains("web-1"),
        "{workers}"
    );
}

#[tokio::test]
async fn an_agent_continues_its_epoch_with_a_new_token() {
    let guarded = Guarded::serve().await;
    let first = guarded.agent("*");
    let second = guarded.agent("*");
    guarded.until_status(Some(&second), 403).await;
    let key = SessionKey::new([5; SessionKey::BYTES]);
    let mut worker = TestWorker::new("w", key.epoch().0);
    let hello = v1::Hello {
        session_key: key.as_bytes().to_vec(),
        ..worker.hello()
    };
    let address = guarded.running.address;
    let mut stream = Client::attach_with(address, hello.clone(), Some(&first))
        .await
        .unwrap();
    worker.count("main", State::Cpu, 1);
    let flush = worker.flush(30, vec![]);
    stream
        .send(agent_message::Kind::Dictionary(
            worker.dictionary().unwrap(),
        ))
        .await;
    assert_eq!(stream.ask(agent_message::Kind::Flush(flush)).await, "ack 1");
    let next = Client::attach_with(address, hello, Some(&second))
        .await
        .unwrap();
    assert_eq!(next.welcome.acked_seq, 1);
    assert_eq!(stream.status().await.code(), Code::Aborted);
}

#[tokio::test]
async fn a_revoked_token_ends_its_stream() {
    let guarded = Guarded::serve().await;
    let agent = guarded.agent("*");
    let reader = guarded.token(NewToken::new(Role::Reader));
    guarded.until_valid(&reader).await;
    let mut revoked = guarded.attach("w", Some(&agent)).await.unwrap();
    guarded.file.revoke(agent.id()).unwrap();
    let status = revoked.status().await;
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(status.message(), "the token is no longer valid");
}

#[tokio::test]
async fn an_expired_token_ends_its_stream() {
    let guarded = Guarded::serve().await;
    let expires = jiff::Timestamp::from_nanosecond(at(61).unix_ns().into()).unwrap();
    let workers = vec![WorkerPattern::parse("*").unwrap()];
    let new = NewToken {
        workers,
        expires: Some(expires),
        ..NewToken::new(Role::Agent)
    };
    let agent = guarded.token(new);
    guarded.until_status(Some(&agent), 403).await;
    let mut expired = guarded.attach("w", Some(&agent)).await.unwrap();
    guarded
        .running
        .now_ns
        .store(at(61).unix_ns(), Ordering::SeqCst);
    let status = expired.status().await;
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(status.message(), "the token is no longer valid");
    let status = guarded.attach("w", Some(&agent)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn the_first_token_closes_an_open_collector_and_its_loss_does_not_open_it() {
    let guarded = Guarded::serve().await;
    assert_eq!(
        guarded.answer("GET /api/v1/workers", None).await.status,
        200
    );
    let mut open = guarded.attach("w", None).await.unwrap();
    let reader = guarded.token(NewToken::new(Role::Reader));
    guarded.until_status(None, 401).await;
    assert_eq!(open.status().await.code(), Code::Unauthenticated);
    guarded.file.revoke(reader.id()).unwrap();
    guarded.until_status(Some(&reader), 401).await;
    assert_eq!(
        guarded.answer("GET /api/v1/workers", None).await.status,
        401
    );
    std::fs::write(guarded.file.path(), "{}").unwrap();
    let agent = guarded.file.create(NewToken::new(Role::Agent), CREATED);
    assert!(agent.is_err(), "an invalid file is not replaced");
    std::fs::remove_file(guarded.file.path()).unwrap();
    // Created again, and seen: whatever was in between was seen or skipped.
    let again = guarded.token(NewToken::new(Role::Reader));
    guarded.until_status(Some(&again), 200).await;
    assert_eq!(
        guarded.answer("GET /api/v1/workers", None).await.status,
        401
    );
}

#[tokio::test]
async fn an_unusable_token_file_stops_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::new(folder.path().join("tokens.json"));
    file.create(NewToken::new(Role::Agent), CREATED).unwrap();
    let bind = async || {
        let listen = "127.0.0.1:0".parse().unwrap();
        let tokens = TokenSource::File(file.clone());
        Server::bind(ServeOptions {
            listen,
            tokens,
            ..ServeOptions::default()
        })
        .await
    };
    let mode = file.path().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    bind().await.unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o620)).unwrap();
    let error = bind().await.unwrap_err().to_string();
    assert!(error.contains("(mode 620); run: chmod 600 "), "{error}");
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    set_mode(folder.path(), 0o703);
    let error = bind().await.unwrap_err().to_string();
    assert!(error.contains("(mode 703); run: chmod go-w "), "{error}");
    // Only the owner of a file can replace it there.
    set_mode(folder.path(), 0o1777);
    bind().await.unwrap();
    set_mode(folder.path(), 0o700);
    std::fs::write(
        file.path(),
        r#"{"version": 1, "tokens": [], "networks": []}"#,
    )
    .unwrap();
    let error = bind().await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.starts_with("unknown field `networks`"),
        "{error} {cause}"
    );
}

/// A proxy in front of a port of loopback would let everybody in.
#[tokio::test]
async fn a_lost_token_file_lets_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    let bind = async |file: &TokenFile| {
        let bound = Server::bind(ServeOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            tokens: TokenSource::File(file.clone()),
            ..ServeOptions::default()
        });
        bound.await.map(drop).map_err(|error| error.to_string())
    };
    let named = TokenFile::new(folder.path().join("named.json"));
    let error = bind(&named).await.unwrap_err();
    assert!(
        error.contains("named.json does not exist; run: "),
        "{error}"
    );
    named.create(NewToken::new(Role::Agent), CREATED).unwrap();
    bind(&named).await.unwrap();

    let file = TokenFile::in_folder(folder.path());
    bind(&file).await.unwrap();
    file.create(NewToken::new(Role::Agent), CREATED).unwrap();
    bind(&file).await.unwrap();
    std::fs::remove_file(file.path()).unwrap();
    let error = bind(&file).await.unwrap_err();
    assert!(
        error.contains("tokens.json is gone, and without it"),
        "{error}"
    );
    let mark = folder.path().join("tokens.required");
    assert!(
        error.ends_with(&format!("remove {}", mark.display())),
        "{error}"
    );
    std::fs::remove_file(mark).unwrap();
    bind(&file).await.unwrap();

    // It appears while a collector runs.
    let tokens = Tokens::open(TokenSource::File(file.clone())).unwrap();
    file.create(NewToken::new(Role::Agent), CREATED).unwrap();
    tokens.refresh();
    assert!(tokens.are_required());
    std::fs::remove_file(file.path()).unwrap();
    bind(&file).await.unwrap_err();
}

/// A link out of an open folder, a group of others, and files of others.
#[test]
fn nobody_else_may_change_or_replace_a_token_file() {
    use std::os::unix::fs::{MetadataExt as _, chown, symlink};
    let folder = tempfile::tempdir().unwrap();
    let [open, private] = ["open", "private"].map(|name| folder.path().join(name));
    for folder in [&open, &private] {
        std::fs::create_dir(folder).unwrap();
        set_mode(folder, 0o700);
    }
    let target = TokenFile::new(open.join("target.json"));
    target.create(NewToken::new(Role::Agent), CREATED).unwrap();
    let linked = TokenFile::new(private.join("tokens.json"));
    symlink(target.path(), linked.path()).unwrap();
    let error = |file: &TokenFile| file.read().unwrap_err().to_string();
    assert!(linked.read().unwrap().is_some());
    set_mode(&open, 0o707);
    assert!(error(&linked).contains("(mode 707)"), "{}", error(&linked));
    set_mode(&open, 0o700);

    // Members of the own group are trusted.
    set_mode(&open, 0o770);
    assert!(linked.read().unwrap().is_some());
    let user = folder.path().metadata().unwrap().uid();
    // Only root can give files to others.
    if user == 0 {
        chown(&open, None, Some(4_321)).unwrap();
        assert!(error(&linked).contains("(mode 770)"), "{}", error(&linked));
        set_mode(&open, 0o700);
        chown(target.path(), Some(4_321), None).unwrap();
        let text = error(&target);
        assert!(text.contains("target.json belongs to user 4321"), "{text}");
        assert_eq!(error(&linked), text);
    }
}

fn set_mode(folder: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
}
