//! Where a browser returns after a login.

use axum::http::Uri;

use base::limits::RETURN_PATH_BYTES_MAX;

/// The parameter of the login's address.
pub const PARAMETER: &str = "next";

/// A path of this collector with its query, relative to the start page; empty: the start page itself.
/// It cannot leave the origin, nor the path below which a proxy may serve the collector.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReturnPath(String);

impl ReturnPath {
    /// The path in a parameter; `None` if it could lead elsewhere, or back to the login.
    pub fn parse(text: &str) -> Option<ReturnPath> {
        let path = text.split(['?', '#']).next().unwrap_or_default();
        // Browsers resolve these even if they are escaped.
        let is_allowed = text.len() <= RETURN_PATH_BYTES_MAX
            && text
                .bytes()
                .all(|byte: u8| byte.is_ascii_graphic() && !b"\\\"<>#".contains(&byte))
            && !path.starts_with('/')
            && !path.split('/').any(|segment: &str| {
                let segment = segment.to_ascii_lowercase().replace("%2e", ".");
                segment == "." || segment == ".."
            })
            && !["login", "logout"].contains(&path);
        is_allowed.then(|| ReturnPath(text.to_owned()))
    }

    /// The path and query of a request; the start page if a browser cannot return there.
    fn of(uri: &Uri) -> ReturnPath {
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let relative = path.strip_prefix('/').unwrap_or(path);
        ReturnPath::parse(relative).unwrap_or_default()
    }

    /// As a parameter.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address, relative to that of the login.
    pub fn location(&self) -> String {
        format!("./{}", self.0)
    }
}

/// The address of the login, relative to the address of a request: below the path of a proxy, the
/// collector does not know the whole address.
pub fn login_address(uri: &Uri) -> String {
    let depth = uri.path().matches('/').count().saturating_sub(1);
    let mut address = "../".repeat(depth) + "login";
    let path = ReturnPath::of(uri);
    if path != ReturnPath::default() {
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        address.push('?');
        address.push_str(&pairs.append_pair(PARAMETER, path.as_str()).finish());
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_the_collector() {
        for allowed in [
            "",
            "profile",
            "tasks/qr?from=-5m&to=now",
            "workers/~?name=%3Cb%3E",
            "api/v1/profile?format=svg",
            "tasks/a:b",
            "?from=/..",
        ] {
            let path = ReturnPath::parse(allowed).map(|path| path.location());
            assert_eq!(path, Some(format!("./{allowed}")));
        }
        let long = "x".repeat(RETURN_PATH_BYTES_MAX + 1);
        for other in [
            "/",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "..",
            "../x",
            "tasks/../..",
            "tasks/%2e%2E/x",
            "./x",
            "a b",
            "a\tb",
            "a\nb",
            "é",
            "x#y",
            "\"><script>",
            "login",
            "login?next=login",
            "logout",
            &long,
        ] {
            assert_eq!(ReturnPath::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_login_is_found_from_every_depth() {
        for (path, expected) in [
            ("/", "login"),
            ("/?from=-5m", "login?next=%3Ffrom%3D-5m"),
            ("/profile?task=a%20b", "login?next=profile%3Ftask%3Da%2520b"),
            ("/tasks/qr", "../login?next=tasks%2Fqr"),
            ("/api/v1/profile", "../../login?next=api%2Fv1%2Fprofile"),
            ("//evil.example", "../login"),
            ("/a/../../x", "../../../login"),
        ] {
            assert_eq!(login_address(&path.parse().unwrap()), expected, "{path}");
        }
    }
}
