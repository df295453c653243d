//! TLS between the real agent, the real command line and the real collector.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::Signal;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Collector, TEST_WORKER, Worker, emberline, number, output, run, wait_for};

/// Files of a certificate.
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new(folder: &Path, name: &str, cert: &str, key: &str) -> Files {
        let files = Files {
            cert: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        };
        std::fs::write(&files.cert, cert).unwrap();
        std::fs::write(&files.key, key).unwrap();
        files
    }

    fn serve(&self, more: &[&str]) -> Collector {
        let own = [
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            text(&self.cert),
            "--tls-key",
            text(&self.key),
        ];
        Collector::start_with(&[&own, more].concat())
    }
}

/// An authority and the folder of its files.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
    file: PathBuf,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, cert.pem()).unwrap();
        Authority {
            issuer: Issuer::new(params, key),
            folder,
            file,
        }
    }

    /// Signs a certificate for these names that expires in this year.
    fn sign(&self, names: &[&str], year: i32) -> Files {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let file_name = format!("{}-{year}", names[0]);
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Files::new(
            self.folder.path(),
            &file_name,
            &cert.pem(),
            &key.serialize_pem(),
        )
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes a certificate with the command, and returns its files and fingerprint.
fn self_signed(folder: &Path) -> (Files, String) {
    let made = run(&[
        "tls",
        "self-signed",
        "--name",
        "collector.example",
        "-o",
        text(folder),
    ]);
    assert!(made.status.success(), "{made:?}");
    let said = String::from_utf8(made.stdout).unwrap();
    let fingerprint = said.lines().next().unwrap().to_owned();
    assert!(fingerprint.starts_with("sha256="), "{said}");
    (
        Files {
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        },
        fingerprint,
    )
}

/// `emberline workers` at this URL, with these variables.
fn workers(url: &str, variables: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(emberline());
    command
        .args(["workers", "--format", "json", "--url", url])
        .env("NO_COLOR", "1");
    output(command.envs(variables.iter().copied()))
}

fn acked(url: &str, variables: &[(&str, &Path)], worker: &str) -> u64 {
    let answer = workers(url, variables);
    assert!(answer.status.success(), "{answer:?}");
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let workers = answer["workers"].as_array().unwrap();
    let found = workers.iter().find(|known| known["worker"] == worker);
    found.map_or(0, |found| number(&found["epochs"][0], "acked_seq"))
}

fn check_error(answer: &Output, expected: &[&str]) {
    let error = String::from_utf8_lossy(&answer.stderr);
    assert!(!answer.status.success(), "{error}");
    for part in expected {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

fn worker(id: &str, url: &str, variables: &[(&str, &Path)]) -> Worker {
    let mut command = Command::new(TEST_WORKER);
    Worker::start_by(
        command
            .args(["steady", id, url])
            .envs(variables.iter().copied()),
    )
}

/// Runs a worker that finds no collector, and returns its log.
fn rejected(url: &str, variables: &[(&str, &Path)]) -> String {
    let (record, log) = worker("stranger", url, variables).finish_with_log();
    assert_eq!(number(&record["report"], "connects"), 0, "{record}");
    log
}

#[test]
fn a_pin_is_all_that_agent_and_command_line_need() {
    let folder = tempfile::tempdir().unwrap();
    let (files, pin) = self_signed(&folder.path().join("first"));
    let collector = files.serve(&[]);
    let url = format!("https://{}#{pin}", collector.address);
    let steady = worker("steady", &url, &[]);
    wait_for("the first flushes", || {
        (acked(&url, &[], "steady") > 1).then_some(())
    });

    // Another certificate in the same files, while the agent's stream is open.
    let (new, new_pin) = self_signed(&folder.path().join("second"));
    std::fs::rename(&new.key, &files.key).unwrap();
    std::fs::rename(&new.cert, &files.cert).unwrap();
    collector.process.signal(Signal::SIGHUP);
    let new_url = format!("https://{}#{new_pin}", collector.address);
    wait_for("the new certificate", || {
        workers(&new_url, &[]).status.success().then_some(())
    });
    check_error(
        &workers(&url, &[]),
        &[&pin, &new_pin, "another server answers"],
    );
    let before = acked(&new_url, &[], "steady");
    wait_for("more flushes", || {
        (acked(&new_url, &[], "steady") > before + 2).then_some(())
    });

    // Damaged files change nothing.
    std::fs::write(&files.cert, "damaged").unwrap();
    collector.process.signal(Signal::SIGHUP);
    wait_for("an error in the log", || {
        collector
            .log()
            .contains("the certificate stays as it was")
            .then_some(())
    });
    assert!(workers(&new_url, &[]).status.success());

    let log = rejected(&url, &[]);
    assert!(log.contains(&pin) && log.contains(&new_pin), "{log}");
    let (record, log) = steady.finish_with_log();
    assert_eq!(number(&record["report"], "connects"), 1, "{log}");
    assert_eq!(number(&record["report"], "unacked_ns"), 0, "{record}");
}

#[test]
fn an_authority_vouches_for_names_and_dates() {
    let authority = Authority::new();
    let trust = [("EMBERLINE_CA_FILE", &*authority.file)];
    let good = authority.sign(&["127.0.0.1", "localhost"], 2100).serve(&[]);
    let url = format!("https://{}", good.address);
    let steady = worker("steady", &url, &trust);
    wait_for("the first flushes", || {
        (acked(&url, &trust, "steady") > 1).then_some(())
    });
    let (record, _) = steady.finish_with_log();
    assert_eq!(number(&record["report"], "unacked_ns"), 0, "{record}");

    check_error(&workers(&url, &[]), &["EMBERLINE_CA_FILE", "#sha256="]);
    let log = rejected(&url, &[("EMBERLINE_CA_FILE", Path::new("/no/such/file"))]);
    assert!(log.contains("cannot read /no/such/file"), "{log}");

    let other = authority.sign(&["other.example"], 2100).serve(&[]);
    let url = format!("https://{}", other.address);
    check_error(
        &workers(&url, &trust),
        &["is not for 127.0.0.1", "other.example"],
    );
    let log = rejected(&url, &trust);
    assert!(log.contains("is not for 127.0.0.1"), "{log}");

    let expired = authority.sign(&["127.0.0.1"], 2021).serve(&[]);
    let url = format!("https://{}", expired.address);
    check_error(&workers(&url, &trust), &["expired", "days ago"]);
    let log = rejected(&url, &trust);
    assert!(log.contains("days ago"), "{log}");
}

#[test]
fn clients_may_have_certificates_of_an_authority() {
    let authority = Authority::new();
    let server = authority.sign(&["127.0.0.1"], 2100);
    let collector = server.serve(&["--client-ca", text(&authority.file)]);
    let url = format!("https://{}", collector.address);
    let client = authority.sign(&["worker-7.example"], 2100);
    let own = [
        ("EMBERLINE_CA_FILE", &*authority.file),
        ("EMBERLINE_CERT_FILE", &*client.cert),
        ("EMBERLINE_KEY_FILE", &*client.key),
    ];
    let steady = worker("worker-7", &url, &own);
    wait_for("the first flushes", || {
        (acked(&url, &own, "worker-7") > 1).then_some(())
    });
    let (record, log) = steady.finish_with_log();
    assert_eq!(number(&record["report"], "unacked_ns"), 0, "{log}");

    let foreign = Authority::new().sign(&["worker-7.example"], 2100);
    let foreign = [
        own[0],
        ("EMBERLINE_CERT_FILE", &*foreign.cert),
        ("EMBERLINE_KEY_FILE", &*foreign.key),
    ];
    let log = rejected(&url, &foreign);
    assert!(log.contains("collector unreachable"), "{log}");
    check_error(
        &workers(&url, &foreign[..2]),
        &["EMBERLINE_KEY_FILE is not"],
    );
    // Readers need none.
    assert!(workers(&url, &own[..1]).status.success());
}

#[test]
fn each_side_is_told_which_protocol_the_port_speaks() {
    let folder = tempfile::tempdir().unwrap();
    let (files, pin) = self_signed(folder.path());
    let collector = files.serve(&[]);
    let plain_url = format!("http://{}", collector.address);
    check_error(
        &workers(&plain_url, &[]),
        &["this port speaks TLS: use https://"],
    );
    let log = rejected(&plain_url, &[]);
    assert!(log.contains("use https://"), "{log}");
    let mut stream = TcpStream::connect(&collector.address).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("use https://"),
        "{answer}"
    );

    let plain = Collector::start();
    let url = format!("https://{}#{pin}", plain.address);
    check_error(&workers(&url, &[]), &["does not speak TLS; use http://"]);
    let log = rejected(&url, &[]);
    assert!(log.contains("does not speak TLS"), "{log}");
}

#[test]
fn files_of_certificates_are_private_and_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (files, _) = self_signed(&folder.path().join("tls"));
    assert_eq!(
        (mode(&files.key), mode(&folder.path().join("tls"))),
        (0o600, 0o700)
    );
    let key = std::fs::read(&files.key).unwrap();
    let again = run(&["tls", "self-signed", "-o", text(&folder.path().join("tls"))]);
    check_error(&again, &["could not create", "key.pem"]);
    assert_eq!(std::fs::read(&files.key).unwrap(), key);
    let wrong = run(&[
        "serve",
        "--tls-cert",
        text(&files.key),
        "--tls-key",
        text(&files.key),
    ]);
    check_error(&wrong, &["has no certificate in PEM form"]);
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// The secure start in the README, line by line, apart from the address and the worker's program.
#[test]
fn the_lines_of_the_readme_work() {
    let readme = include_str!("../../../../README.md");
    let mut blocks = readme.split("```sh\n");
    let block = blocks
        .find(|block| block.starts_with("emberline tls self-signed"))
        .unwrap();
    let lines: Vec<&str> = block.split("```").next().unwrap().lines().collect();
    let [certificate, serve, work] = lines[..] else {
        panic!("not three lines: {lines:?}")
    };
    let folder = tempfile::tempdir().unwrap();
    let programs = emberline()
        .with_file_name("")
        .into_os_string()
        .into_string()
        .unwrap();
    let made = output(&mut shell(folder.path(), &programs, certificate));
    assert!(made.status.success(), "{made:?}");
    let said = String::from_utf8(made.stdout).unwrap();
    let pin = said
        .lines()
        .find(|line| line.starts_with("sha256="))
        .unwrap();
    let operator = "emberline token new --data DIR --role operator";
    assert!(readme.contains(operator));
    let made = output(&mut shell(
        folder.path(),
        &programs,
        &format!("{operator} -o operator.token"),
    ));
    assert!(made.status.success(), "{made:?}");

    let listen = "--listen 0.0.0.0:4747";
    assert!(serve.contains(listen), "{serve}");
    let serve = serve.replace(listen, "--listen 0.0.0.0:0");
    let collector = Collector::start_by(&mut shell(
        folder.path(),
        &programs,
        &format!("exec {serve}"),
    ));
    let port = collector.address.rsplit(':').next().unwrap();
    let url = format!("https://127.0.0.1:{port}#{pin}");

    let script = folder.path().join("worker");
    let program = format!("#!/bin/sh\nexec {TEST_WORKER} steady readme \"$EMBERLINE_URL\"\n");
    std::fs::write(&script, program).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let shown = "https://collector.example:4747#sha256=…";
    assert!(work.contains(shown), "{work}");
    let steady = Worker::start_by(&mut shell(
        folder.path(),
        &programs,
        &work.replace(shown, &url),
    ));
    let token = folder.path().join("operator.token");
    let token = [("EMBERLINE_TOKEN_FILE", &*token)];
    wait_for("acknowledged flushes", || {
        (acked(&url, &token, "readme") > 1).then_some(())
    });
    let (record, log) = steady.finish_with_log();
    assert_eq!(number(&record["report"], "unacked_ns"), 0, "{log}");
}

fn shell(folder: &Path, programs: &str, line: &str) -> Command {
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(folder)
        .env("NO_COLOR", "1");
    command.env("PATH", format!("{programs}:{path}"));
    command
}
