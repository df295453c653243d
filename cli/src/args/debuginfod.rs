//! Addresses of debuginfod servers, as `DEBUGINFOD_URLS` has them.

use crate::client::external::server_uri;

/// URLs in the order in which they are asked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct DebuginfodUrls(pub(crate) Vec<String>);

/// Parses `DEBUGINFOD_URLS`. Policies for signatures (`ima:…`), which distributions put between the URLs,
/// are ignored.
pub(crate) fn debuginfod_urls(text: &str) -> Result<DebuginfodUrls, String> {
    let words = text
        .split_whitespace()
        .filter(|word| !word.starts_with("ima:"));
    let urls: Vec<String> = words.map(str::to_owned).collect();
    if let Some(other) = urls.iter().find(|url| !is_url(url)) {
        return Err(format!(
            "{other:?} is no URL: expected http://HOST or https://HOST"
        ));
    }
    for url in &urls {
        server_uri(url).map_err(|error| error.to_string())?;
    }
    Ok(DebuginfodUrls(urls))
}

fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_separated_by_blanks_and_policies_are_ignored() {
        let urls = debuginfod_urls(" ima:enforcing https://a/ ima:ignore  http://b:8002 ").unwrap();
        assert_eq!(urls.0, ["https://a/", "http://b:8002"]);
        assert_eq!(debuginfod_urls("").unwrap().0, Vec::<String>::new());
        let error = debuginfod_urls("http://a ftp://b").unwrap_err();
        assert_eq!(
            error,
            "\"ftp://b\" is no URL: expected http://HOST or https://HOST"
        );
        let error = debuginfod_urls("http://a http://b:99999").unwrap_err();
        assert!(error.contains("a number from 1 to 65535"), "{error}");
    }
}
