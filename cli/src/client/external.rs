//! Requests to servers that are not collectors: of debug information, and receivers of OTLP.

use std::io::{self, Read as _, Write};
use std::time::Duration;

use flamegraph::text::printable;
use profiler_core::endpoint::check_port;
use profiler_core::limits::bounded;
use tls::{ClientOptions, TlsError};
use ureq::Agent;
use ureq::http::Uri;

use super::{CONNECT_TIMEOUT, ClientError, tls_agent};

/// Longest time for a whole file: a collector waits no longer for its reader.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(240);
/// How much longer than its length a profile may take.
const PROFILE_MARGIN: Duration = Duration::from_secs(15);
/// Longest time for a message and its answer.
const POST_TIMEOUT: Duration = Duration::from_secs(30);
/// Most of an answer to a message that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Largest file.
const DOWNLOAD_BYTES_MAX: u64 = 4 << 30;
/// Takes the place of a secret.
const HIDDEN: &str = "[hidden]";
/// Most redirects of a file, all at its server: another address may be one that only this machine reaches.
const REDIRECTS_MAX: u32 = 3;
/// Longest location that an error repeats.
const LOCATION_BYTES_MAX: usize = 200;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ExternalError {
    /// The URL is invalid.
    #[error("invalid URL: {0}; expected http://HOST/PATH or https://HOST/PATH")]
    Url(String),
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    #[error(
        "the server redirects (HTTP status {0}), which is not followed; name the address that it \
         leads to"
    )]
    Redirect(u16),
    #[error("the server redirects to another one, which is not asked: {0}")]
    OtherServer(String),
    #[error("the server redirects more than {REDIRECTS_MAX} times")]
    Redirects,
    #[error("no answer: {0}")]
    Request(#[source] ureq::Error),
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    #[error("the answer ended early: {0}")]
    Body(#[source] io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// An agent for requests to `url` that take at most `timeout`.
fn agent_for(url: &str, timeout: Duration) -> Result<Agent, ExternalError> {
    let uri = server_uri(url)?;
    let host = uri.host().unwrap_or_default();
    let is_tls = uri.scheme_str() == Some("https");
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(timeout))
        // `download` follows those of its own server.
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("emberline/", env!("CARGO_PKG_VERSION")))
        .build();
    if !is_tls {
        return Ok(config.new_agent());
    }
    let options = ClientOptions::from_environment(None, |name| std::env::var_os(name))
        .map_err(|error: TlsError| ClientError::from(error))?;
    Ok(tls_agent(config, host, &options)?)
}

/// Parses the address of a server.
///
/// # Errors
/// [`ExternalError::Url`] if it has no host or an invalid port.
pub(crate) fn server_uri(url: &str) -> Result<Uri, ExternalError> {
    let uri: Uri = url.parse().map_err(|error| invalid_url(&error))?;
    let authority = uri
        .authority()
        .ok_or_else(|| invalid_url(&"it has no host"))?;
    let text = authority.as_str();
    let server = text.rsplit_once('@').map_or(text, |(_, server)| server);
    check_port(server).map_err(|error| invalid_url(&error))?;
    Ok(uri)
}

fn invalid_url(error: &dyn std::fmt::Display) -> ExternalError {
    ExternalError::Url(error.to_string())
}

/// Writes the file at `url` to `output`; at most [`DOWNLOAD_BYTES_MAX`]. Returns whether the server has it.
pub(crate) fn download(url: &str, output: &mut impl Write) -> Result<bool, ExternalError> {
    let agent = agent_for(url, DOWNLOAD_TIMEOUT)?;
    let mut at = url.to_owned();
    for _ in 0..=REDIRECTS_MAX {
        let response = agent.get(&at).call().map_err(ExternalError::Request)?;
        match response.status().as_u16() {
            200 => {
                let body = response
                    .into_body()
                    .into_with_config()
                    .limit(DOWNLOAD_BYTES_MAX);
                io::copy(&mut body.reader(), output).map_err(ExternalError::Body)?;
                return Ok(true);
            }
            404 => return Ok(false),
            301 | 302 | 303 | 307 | 308 => {
                let header = response.headers().get("location");
                let location = header.and_then(|value| value.to_str().ok());
                at = redirected(url, location.unwrap_or_default())?;
            }
            status => return Err(ExternalError::Status(status)),
        }
    }
    Err(ExternalError::Redirects)
}

/// Where a redirect leads, at the server of `url`.
fn redirected(url: &str, location: &str) -> Result<String, ExternalError> {
    let other = || {
        let shown = bounded(location, LOCATION_BYTES_MAX);
        ExternalError::OtherServer(printable(&without_secrets(&shown)).into_owned())
    };
    let asked: Uri = url.parse().map_err(|error| invalid_url(&error))?;
    let leads_to: Uri = location.parse().map_err(|_| other())?;
    let is_path = location.starts_with('/') && !location.starts_with("//");
    let is_same_server = leads_to.scheme() == asked.scheme()
        && leads_to.host() == asked.host()
        && leads_to.port_u16() == asked.port_u16();
    let path = leads_to.path_and_query().ok_or_else(other)?;
    match (asked.scheme_str(), asked.authority()) {
        // With the user and password that the server was named with.
        (Some(scheme), Some(server)) if is_path || is_same_server => {
            Ok(format!("{scheme}://{server}{path}"))
        }
        _ => Err(other()),
    }
}

/// The error of an answer that is no success.
fn unsuccessful(status: u16) -> ExternalError {
    match status {
        300..400 => ExternalError::Redirect(status),
        _ => ExternalError::Status(status),
    }
}

/// Fetches a profile over `length` from a service with pprof's endpoint; at most `bytes_max`.
pub(crate) fn fetch_profile(
    url: &str,
    length: Duration,
    bytes_max: usize,
) -> Result<Vec<u8>, ExternalError> {
    let agent = agent_for(url, length + PROFILE_MARGIN)?;
    let seconds = length.as_secs();
    let separator = if url.contains('?') { '&' } else { '?' };
    let request = agent.get(format!("{url}{separator}seconds={seconds}"));
    let response = request.call().map_err(ExternalError::Request)?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(unsuccessful(status));
    }
    let mut profile = Vec::new();
    let body = response
        .into_body()
        .into_with_config()
        .limit(u64::MAX)
        .reader();
    body.take(bytes_max as u64 + 1)
        .read_to_end(&mut profile)
        .map_err(ExternalError::Body)?;
    if profile.len() > bytes_max {
        return Err(ExternalError::TooLarge(bytes_max));
    }
    Ok(profile)
}

/// A URL without its query, and the query with its question mark.
pub(crate) fn split_query(url: &str) -> (&str, &str) {
    url.split_at(url.find('?').unwrap_or(url.len()))
}

/// A URL as it may be shown: without its user and password, and without the values of its query, of which any
/// may be a secret.
pub(crate) fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (address, query) = split_query(rest);
    let (authority, path) = address.split_at(address.find('/').unwrap_or(address.len()));
    let mut shown = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{path}"),
        None => format!("{scheme}://{address}"),
    };
    let parameters = query
        .strip_prefix('?')
        .map(|query| query.split('&'))
        .into_iter()
        .flatten();
    for (number, parameter) in parameters.enumerate() {
        shown.push(if number == 0 { '?' } else { '&' });
        if let Some((name, _)) = parameter.split_once('=') {
            shown += name;
            shown.push('=');
        }
        shown += HIDDEN;
    }
    shown
}

/// A server that receives messages.
#[derive(Debug)]
pub(crate) struct Receiver {
    agent: Agent,
    url: String,
    content_type: &'static str,
    headers: Vec<(String, String)>,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    /// The time after which the server wants to be asked again, if it says so.
    pub(crate) retry_after: Option<Duration>,
    /// At most [`ANSWER_BYTES_MAX`].
    pub(crate) body: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new(
        url: String,
        content_type: &'static str,
        headers: Vec<(String, String)>,
    ) -> Result<Receiver, ExternalError> {
        Ok(Receiver {
            agent: agent_for(&url, POST_TIMEOUT)?,
            url,
            content_type,
            headers,
        })
    }

    /// Sends a message.
    pub(crate) fn post(&self, body: &[u8]) -> Result<Received, ExternalError> {
        let mut request = self.agent.post(&self.url).content_type(self.content_type);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = request.send(body).map_err(ExternalError::Request)?;
        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        let mut body = Vec::new();
        let answer = response
            .into_body()
            .into_with_config()
            .limit(u64::MAX)
            .reader();
        answer
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut body)
            .map_err(ExternalError::Body)?;
        Ok(Received {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;

    /// A server that redirects `/N` to `/N-1` or to `elsewhere`, and has a file at `/0`. Returns its URL.
    fn redirecting(elsewhere: Option<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
                let first = head.next().unwrap().unwrap();
                head.find(|line| line.as_ref().is_ok_and(String::is_empty));
                let path = first.split(' ').nth(1).unwrap();
                let left: u32 = path[1..2].parse().unwrap();
                let location = match (left.checked_sub(1), &elsewhere) {
                    (None, _) => None,
                    (_, Some(url)) => Some(url.clone()),
                    (Some(left), None) if left % 2 == 0 => Some(format!("/{left}")),
                    (Some(left), None) => Some(format!("http://{address}/{left}?x=1")),
                };
                let answer = match location {
                    None => "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nfile".to_owned(),
                    Some(url) => format!(
                        "HTTP/1.1 302 Found\r\nlocation: {url}\r\nconnection: close\r\n\r\n"
                    ),
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        format!("http://{address}")
    }

    #[test]
    fn redirects_lead_to_no_other_server() {
        let server = redirecting(None);
        let mut file = Vec::new();
        assert!(download(&format!("{server}/3"), &mut file).unwrap());
        assert_eq!(file, b"file");
        let error = download(&format!("{server}/4"), &mut file).unwrap_err();
        assert!(error.to_string().contains("more than 3 times"), "{error}");

        // It would answer.
        let inside = redirecting(None);
        for location in [
            &*format!("{inside}/0"),
            inside.trim_start_matches("http:"),
            "0",
            "file:///etc/passwd",
            "",
        ] {
            let server = redirecting(Some(location.to_owned()));
            let error = download(&format!("{server}/1"), &mut file).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("to another one, which is not asked"),
                "{location}: {text}"
            );
        }
        assert_eq!(file, b"file", "nothing was added");

        let server = redirecting(Some(format!("{inside}/0")));
        let second = Duration::from_secs(1);
        let profile = fetch_profile(&format!("{server}/0"), second, 100).unwrap();
        assert_eq!(profile, b"file");
        let error = fetch_profile(&format!("{server}/1"), second, 100).unwrap_err();
        assert!(
            error.to_string().contains("302), which is not followed"),
            "{error}"
        );
    }

    #[test]
    fn users_passwords_and_values_of_the_query_are_hidden() {
        for (url, shown) in [
            ("http://h:4040", "http://h:4040"),
            ("https://h/a/b", "https://h/a/b"),
            ("http://u:p@h", "http://[hidden]@h"),
            ("http://u:p@q@h:1/a@b", "http://[hidden]@h:1/a@b"),
            (
                "http://h/x?key=s3cret&seconds=5",
                "http://h/x?key=[hidden]&seconds=[hidden]",
            ),
            ("http://u:p@h?s3cret", "http://[hidden]@h?[hidden]"),
            ("http://h?key=a@b/c=d", "http://h?key=[hidden]"),
            (
                "http://h?key=1&&s3cret",
                "http://h?key=[hidden]&[hidden]&[hidden]",
            ),
            ("h:4040?key=s3cret", "h:4040?key=s3cret"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
