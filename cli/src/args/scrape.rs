//! `--scrape` of `emberline serve`.

use std::time::Duration;

use crate::client::external::{server_uri, split_query};

/// Length of a profile unless told otherwise.
const EVERY_DEFAULT: Duration = Duration::from_secs(15);
const EVERY_MIN: Duration = Duration::from_secs(1);
const EVERY_MAX: Duration = Duration::from_secs(300);

/// The path of pprof's endpoint.
const PATH: &str = "/debug/pprof/profile";

/// A service to scrape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScrapeArg {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) every: Duration,
}

/// Whether a part of a list of services is a URL, with which a service begins.
pub(crate) fn is_scraped_url(part: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| part.starts_with(scheme))
}

/// Parses `URL[,name=NAME][,every=TIME]`.
pub(super) fn scrape(text: &str) -> Result<ScrapeArg, String> {
    let mut parts = text.split(',');
    let url = parts.next().unwrap_or_default();
    if !is_scraped_url(url) {
        return Err("expected http://HOST:PORT or https://HOST:PORT, such as \
                    http://127.0.0.1:6060,name=shop,every=15s"
            .to_owned());
    }
    server_uri(url).map_err(|error| error.to_string())?;
    let mut name = None;
    let mut every = EVERY_DEFAULT;
    for part in parts {
        match part.split_once('=') {
            Some(("name", value)) if !value.is_empty() => name = Some(value.to_owned()),
            Some(("every", value)) => every = duration(value)?,
            _ => {
                return Err(format!(
                    "unknown option {part:?}; known: name=NAME, every=TIME"
                ));
            }
        }
    }
    let (host, url) = with_path(url);
    Ok(ScrapeArg {
        url,
        name: name.unwrap_or(host),
        every,
    })
}

/// The host with its port, and the address with the path of pprof unless it has another one.
fn with_path(url: &str) -> (String, String) {
    let (address, query) = split_query(url);
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let url = match path {
        "" => format!("{scheme}://{authority}{PATH}{query}"),
        _ => url.to_owned(),
    };
    (host.to_owned(), url)
}

/// Whole seconds, because that is what pprof's endpoint takes.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text
        .strip_suffix('s')
        .and_then(|seconds| seconds.parse().ok());
    let every = seconds
        .map(Duration::from_secs)
        .filter(|every| (EVERY_MIN..=EVERY_MAX).contains(every));
    every.ok_or_else(|| "every must be from 1s to 300s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_defaults_and_says_what_is_wrong() {
        let target = scrape("http://u:p@h:6060").unwrap();
        let expected = ScrapeArg {
            url: "http://u:p@h:6060/debug/pprof/profile".to_owned(),
            name: "h:6060".to_owned(),
            every: EVERY_DEFAULT,
        };
        assert_eq!(target, expected);
        let target = scrape("https://h/prof?x=1,name=shop,every=5s").unwrap();
        assert_eq!(
            (&*target.url, &*target.name),
            ("https://h/prof?x=1", "shop")
        );
        assert_eq!(target.every, Duration::from_secs(5));
        let target = scrape("http://h:6060?key=s3cret").unwrap();
        let expected = ("http://h:6060/debug/pprof/profile?key=s3cret", "h:6060");
        assert_eq!((&*target.url, &*target.name), expected);
        for (text, hint) in [
            ("h:6060", "expected http://HOST:PORT"),
            ("http://u:p@h:99999", "a number from 1 to 65535"),
            ("http://h,evry=5s", "unknown option \"evry=5s\""),
            ("http://h,name=", "known: name=NAME"),
            ("http://h,every=0s", "from 1s to 300s"),
            ("http://h,every=5m", "from 1s to 300s"),
        ] {
            let error = scrape(text).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
