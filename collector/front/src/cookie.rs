//! The cookie of a browser's session.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use zeroize::Zeroizing;

use crate::auth::SessionSecret;
use base::limits::LOGIN_MAX;

/// The name, without the port. Cookies of one host are shared by its ports, so that two collectors on
/// one machine need two names.
const NAME: &str = "emberline";

/// Browsers accept a cookie with this prefix only if it is `Secure`, without `Domain`, and for all
/// paths: no other host, and nobody between, can set it.
const SECURE_PREFIX: &str = "__Host-";

/// Basis of the cookie's name and attributes: how a browser reaches the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CookieScope {
    /// The port in the address that the browser shows.
    port: Option<u16>,
    /// Whether the collector itself speaks TLS.
    is_tls: bool,
    /// Whether the browser speaks TLS, perhaps with a proxy: a form's `Origin` has its scheme.
    is_https: bool,
}

impl CookieScope {
    pub fn of(uri: &Uri, headers: &HeaderMap, is_tls: bool) -> CookieScope {
        let text = |name| {
            headers
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        // In HTTP/2 the host is part of the address.
        let authority = uri
            .authority()
            .cloned()
            .or_else(|| text(header::HOST).and_then(|host| host.parse::<Authority>().ok()));
        let is_https = text(header::ORIGIN).is_some_and(|origin| origin.starts_with("https://"));
        let port = authority.and_then(|authority| authority.port_u16());
        CookieScope {
            port,
            is_tls,
            is_https: is_tls || is_https,
        }
    }

    fn name(self, is_secure: bool) -> String {
        let prefix = if is_secure { SECURE_PREFIX } else { "" };
        match self.port {
            Some(port) => format!("{prefix}{NAME}-{port}"),
            None => format!("{prefix}{NAME}"),
        }
    }

    /// The secret in the cookie of a request.
    pub fn secret(self, headers: &HeaderMap) -> Option<SessionSecret> {
        let secure = cookie(headers, &self.name(true));
        // With TLS, the other name may have been set by anybody between.
        secure.or_else(|| cookie(headers, &self.name(false)).filter(|_| !self.is_tls))
    }

    /// The header that gives a browser its secret.
    pub fn set(self, secret: &SessionSecret) -> HeaderValue {
        self.header(self.is_https, secret.expose(), LOGIN_MAX.as_secs())
    }

    /// The headers that remove the cookie, with either name.
    pub fn clear(self) -> [HeaderValue; 2] {
        [true, false].map(|is_secure| self.header(is_secure, "", 0))
    }

    fn header(self, is_secure: bool, secret: &str, seconds: u64) -> HeaderValue {
        let name = self.name(is_secure);
        let secure = if is_secure { "; Secure" } else { "" };
        let text = Zeroizing::new(format!(
            "{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        ));
        let mut value = HeaderValue::from_str(&text).expect("it is ASCII");
        value.set_sensitive(true);
        value
    }
}

/// The secret in the cookie of this name.
fn cookie(headers: &HeaderMap, name: &str) -> Option<SessionSecret> {
    let values = headers.get_all(header::COOKIE).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut pairs = texts
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(found, secret)| SessionSecret::parse(secret).filter(|_| found == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn scope(is_tls: bool, fields: &[(&'static str, &str)]) -> CookieScope {
        CookieScope::of(&Uri::from_static("/login"), &headers(fields), is_tls)
    }

    #[test]
    fn attributes_follow_the_scheme_of_the_browser() {
        let secret = SessionSecret::parse(SECRET).unwrap();
        let plain = [
            ("host", "127.0.0.1:4747"),
            ("origin", "http://127.0.0.1:4747"),
        ];
        let proxied = [
            ("host", "profiles.example"),
            ("origin", "https://profiles.example"),
        ];
        let rest = "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict";
        for (is_tls, fields, expected) in [
            (false, plain, format!("emberline-4747={SECRET}; {rest}")),
            (
                true,
                plain,
                format!("__Host-emberline-4747={SECRET}; {rest}; Secure"),
            ),
            (
                false,
                proxied,
                format!("__Host-emberline={SECRET}; {rest}; Secure"),
            ),
        ] {
            let set = scope(is_tls, &fields).set(&secret);
            assert_eq!(set.to_str().unwrap(), expected);
            assert!(set.is_sensitive());
        }
        let cleared = scope(false, &plain).clear();
        let expected = "emberline-4747=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict";
        assert_eq!(cleared[1], expected);
        assert_eq!(cleared[0], format!("__Host-{expected}; Secure"));
    }

    #[test]
    fn the_cookie_is_found_by_port_and_not_by_its_plain_name_with_tls() {
        let plain = format!("emberline-4747={SECRET}");
        let secure = format!("__Host-{plain}");
        let other = format!("emberline-4748={SECRET}");
        let both = format!("a=b; {plain};emberline=x");
        assert_eq!(found(false, &[&both]).as_deref(), Some(SECRET));
        assert_eq!(found(false, &["a=b", &secure]).as_deref(), Some(SECRET));
        assert_eq!(found(true, &[&secure]).as_deref(), Some(SECRET));
        assert_eq!(found(true, &[&plain]), None);
        for cookies in [
            &[][..],
            &[&*other],
            &["emberline-4747=x"],
            &["emberline-4747"],
        ] {
            assert_eq!(found(false, cookies), None, "{cookies:?}");
        }
    }

    fn found(is_tls: bool, cookies: &[&str]) -> Option<String> {
        let mut fields = vec![("host", "localhost:4747")];
        fields.extend(cookies.iter().map(|cookie| ("cookie", *cookie)));
        let secret = scope(is_tls, &fields).secret(&headers(&fields));
        secret.map(|secret| secret.expose().to_owned())
    }
}
