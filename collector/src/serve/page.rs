//! The page: the committed bundle, and one document for all of the page's own addresses.

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use import::decompressed;

use front::gzip::{accepts_gzip, add_encoding, add_vary};

/// A file of the bundle, in its compressed form.
struct File {
    path: &'static str,
    gzip: &'static [u8],
}

impl File {
    fn plain(&self) -> Vec<u8> {
        plain(self.gzip)
    }
}

/// Sorted by path. `cargo xtask page` writes the files, and the build script compresses them.
static FILES: &[File] = &include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// The document of a report.
const REPORT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page/report.html.gz"));

/// More than any file of the bundle has.
const FILE_BYTES_MAX: usize = 16 << 20;

fn plain(gzip: &[u8]) -> Vec<u8> {
    let plain = decompressed(gzip, FILE_BYTES_MAX);
    plain.expect("the build script compressed it").into_owned()
}

/// The document of a report: the page's views in one file that requests nothing. The collector's answers
/// replace the comment `<!-- answers -->`.
#[must_use]
pub fn report_document() -> String {
    String::from_utf8_lossy(&plain(REPORT)).into_owned()
}

/// Addresses that the page itself interprets. All are one level deep, so that the relative addresses of
/// the document work at each, also below the path of a proxy.
const VIEWS: [&str; 10] = [
    "/",
    "/profile",
    "/compare",
    "/tasks",
    "/workers",
    "/transfers",
    "/resources",
    "/events",
    "/sql",
    "/licenses",
];

/// Addresses of one task name and of one worker, two levels deep.
const NESTED_VIEWS: [&str; 2] = ["/tasks/{name}", "/workers/{name}"];

/// Most levels of an address that does not exist from which a link leads home.
const DEPTH_MAX: usize = 32;

/// Allows only resources and requests of this origin, and no frames.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
);

/// For files with a hash of their content in their name, which never change.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// For the other files, which name the newest of the former.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// The routes of the page.
pub(super) fn router() -> Router {
    let assets = Router::new().route(
        "/assets/{name}",
        get(async |Path(name): Path<String>, headers: HeaderMap| {
            answer(&format!("assets/{name}"), &headers)
        }),
    );
    let router = VIEWS.iter().fold(assets, |router, path| {
        router.route(
            path,
            get(async |headers: HeaderMap| answer("index.html", &headers)),
        )
    });
    NESTED_VIEWS
        .iter()
        .fold(router, |router, path| {
            router.route(path, get(async || nested_document()))
        })
        .route(
            "/licenses.txt",
            get(async |headers: HeaderMap| answer("licenses.txt", &headers)),
        )
        .route(
            "/favicon.ico",
            get(async |headers: HeaderMap| icon(&headers)),
        )
}

/// Whether the client is a browser that opens an address.
pub(super) fn wants_document(request: &Request) -> bool {
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let is_api = request.uri().path().starts_with("/api/");
    !is_api && accept.is_some_and(|accept| accept.contains("text/html"))
}

/// The answer to a browser at an address that does not exist. The link is relative, because a proxy may
/// serve the page below a path.
pub(super) fn not_found(request: &Request) -> Response {
    let depth = request.uri().path().matches('/').count().saturating_sub(1);
    let home = format!("./{}", "../".repeat(depth.min(DEPTH_MAX)));
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Not found · Emberline</title>\
         <h1>Page not found</h1><p>Emberline has no page at this address.</p>\
         <p><a href=\"{home}\">Go to the status page</a></p></html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, content_type("index.html")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    (StatusCode::NOT_FOUND, headers, text).into_response()
}

/// The icon, for browsers that ask for it without a document.
fn icon(headers: &HeaderMap) -> Response {
    let icon = FILES.iter().find(|file| file.path.ends_with(".png"));
    answer(icon.map_or("", |icon| icon.path), headers)
}

/// The document for an address two levels deep.
fn nested_document() -> Response {
    let (parts, _) = answer("index.html", &HeaderMap::new()).into_parts();
    let index = FILES.iter().find(|file| file.path == "index.html");
    let text = index.map_or(Vec::new(), File::plain);
    let text = String::from_utf8_lossy(&text);
    Response::from_parts(parts, text.replace("=\"./", "=\"../").into())
}

/// A file, compressed if the client accepts gzip.
fn answer(path: &str, request: &HeaderMap) -> Response {
    let Ok(index) = FILES.binary_search_by_key(&path, |file| file.path) else {
        return (StatusCode::NOT_FOUND, "no such file; reload the page").into_response();
    };
    let file = &FILES[index];
    let is_compressed = accepts_gzip(request);
    let mut response = if is_compressed {
        file.gzip.into_response()
    } else {
        file.plain().into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type(path));
    let caching = if path.starts_with("assets/") {
        IMMUTABLE
    } else {
        REVALIDATE
    };
    headers.insert(header::CACHE_CONTROL, caching);
    add_vary(headers);
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    if is_compressed {
        add_encoding(headers);
    }
    response
}

fn content_type(path: &str) -> HeaderValue {
    HeaderValue::from_static(
        match path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("png") => "image/png",
            Some("txt") => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        },
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Most compressed bytes of scripts that one view needs: those of all views and its own.
    const SCRIPTS_BYTES_MAX: usize = 60_000;

    /// Views with a flame graph. Others must not load its script.
    const GRAPH_VIEWS: [&str; 4] = [
        "assets/page-graph-",
        "assets/page-compare-",
        "assets/page-task-",
        "assets/page-worker-",
    ];

    /// Most compressed bytes of all scripts.
    const ALL_SCRIPTS_BYTES_MAX: usize = 115_000;

    fn accepting(encodings: &'static str) -> HeaderMap {
        let value = HeaderValue::from_static(encodings);
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, value)])
    }

    fn header_of(response: &Response, name: header::HeaderName) -> Option<&str> {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    }

    #[test]
    fn the_document_loads_nothing_from_elsewhere_and_nothing_inline() {
        let index = FILES.iter().find(|file| file.path == "index.html").unwrap();
        let text = String::from_utf8(index.plain()).unwrap();
        for attribute in ["src=\"", "href=\""] {
            for part in text.split(attribute).skip(1) {
                assert!(part.starts_with("./assets/"), "{part}");
                let path = part[2..].split('"').next().unwrap();
                assert!(FILES.iter().any(|file| file.path == path), "{path}");
            }
        }
        assert!(
            !text.contains("<style") && !text.contains("style="),
            "{text}"
        );
        assert!(
            text.split("<script")
                .skip(1)
                .all(|script| script.contains("></script>")),
            "{text}"
        );
    }

    #[test]
    fn every_file_has_a_content_type_and_only_hashed_ones_are_immutable() {
        assert!(FILES.is_sorted_by_key(|file| file.path));
        for file in FILES.iter() {
            let response = answer(file.path, &HeaderMap::new());
            let kind = header_of(&response, header::CONTENT_TYPE);
            assert_ne!(kind, Some("application/octet-stream"), "{}", file.path);
            assert_eq!(
                header_of(&response, header::X_CONTENT_TYPE_OPTIONS),
                Some("nosniff")
            );
            let policy = header_of(&response, header::CONTENT_SECURITY_POLICY).unwrap();
            assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
            let is_immutable = header_of(&response, header::CACHE_CONTROL)
                .unwrap()
                .contains("immutable");
            assert_eq!(
                is_immutable,
                file.path.starts_with("assets/"),
                "{}",
                file.path
            );
        }
        let response = answer("assets/../index.html", &HeaderMap::new());
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn the_nested_document_names_the_same_files() {
        let response = nested_document();
        assert_eq!(
            header_of(&response, header::CONTENT_TYPE),
            Some("text/html; charset=utf-8")
        );
        let body = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .unwrap();
        let text = std::str::from_utf8(&body).unwrap();
        assert!(
            text.contains("src=\"../assets/") && !text.contains("\"./"),
            "{text}"
        );
    }

    #[test]
    fn files_are_compressed_for_clients_that_accept_gzip() {
        check_encoding("gzip", Some("gzip"));
        check_encoding("br, GZIP;q=0.5, deflate", Some("gzip"));
        check_encoding("gzip;q=0", None);
        check_encoding("gzip; q=0.0", None);
        check_encoding("identity", None);
        check_encoding("", None);
    }

    fn check_encoding(encodings: &'static str, expected: Option<&str>) {
        let response = answer("index.html", &accepting(encodings));
        assert_eq!(
            header_of(&response, header::CONTENT_ENCODING),
            expected,
            "{encodings}"
        );
    }

    fn file_text(file: &File) -> String {
        String::from_utf8_lossy(&file.plain()).into_owned()
    }

    fn name(file: &File) -> &str {
        file.path.trim_start_matches("assets/")
    }

    /// How a script imports another when a view needs it.
    fn lazy_import(file: &File) -> String {
        format!("import(`./{}`)", name(file))
    }

    fn imports(text: &str, file: &File) -> bool {
        ['"', '`', '\''].iter().any(|quote| {
            ["from", "import"]
                .iter()
                .any(|word| text.contains(&format!("{word}{quote}./{}{quote}", name(file))))
        })
    }

    /// Whether a script starts this file as a web worker.
    fn starts(text: &str, file: &File) -> bool {
        name(file).starts_with("worker-") && text.contains(name(file))
    }

    #[test]
    fn scripts_stay_small_and_name_no_machine() {
        let scripts: Vec<_> = FILES
            .iter()
            .filter(|file| file.path.ends_with(".js"))
            .map(|file| (file, file_text(file)))
            .collect();
        let compressed_bytes = |names: &BTreeSet<&str>| -> usize {
            let files = scripts.iter().filter(|(file, _)| names.contains(file.path));
            files.map(|(file, _)| file.gzip.len()).sum()
        };
        let document = FILES
            .iter()
            .find(|file| file.path == "index.html")
            .map(file_text)
            .unwrap();
        let is_entry = |file: &File| document.contains(file.path);
        let (entry, text) = scripts.iter().find(|(file, _)| is_entry(file)).unwrap();
        let views: Vec<_> = scripts
            .iter()
            .filter(|(file, _)| text.contains(&lazy_import(file)))
            .collect();
        assert!(views.len() >= 8, "{}", views.len());
        for (view, _) in views {
            // Transitively, the scripts that it imports.
            let mut loaded = BTreeSet::from([entry.path, view.path]);
            loop {
                let texts: Vec<_> = scripts
                    .iter()
                    .filter(|(file, _)| loaded.contains(file.path))
                    .map(|(_, text)| text)
                    .collect();
                let more: BTreeSet<_> = scripts
                    .iter()
                    .filter(|(file, _)| {
                        texts
                            .iter()
                            .any(|text| imports(text, file) || starts(text, file))
                    })
                    .map(|(file, _)| file.path)
                    .collect();
                if more.is_subset(&loaded) {
                    break;
                }
                loaded.extend(more);
            }
            let has_graph = loaded
                .iter()
                .any(|path| path.starts_with("assets/page-graph-"));
            let may_have = GRAPH_VIEWS.iter().any(|name| view.path.starts_with(name));
            assert!(
                !has_graph || may_have,
                "{} loads the flame graph",
                view.path
            );
            let bytes = compressed_bytes(&loaded);
            assert!(
                bytes <= SCRIPTS_BYTES_MAX,
                "{}: {bytes} of {loaded:?}",
                view.path
            );
        }
        let all = compressed_bytes(&scripts.iter().map(|(file, _)| file.path).collect());
        assert!(all <= ALL_SCRIPTS_BYTES_MAX, "{all}");
        for file in FILES.iter() {
            let text = file_text(file);
            assert!(!text.contains(env!("CARGO_MANIFEST_DIR")), "{}", file.path);
        }
    }

    #[test]
    fn the_licenses_of_bundled_packages_are_included() {
        let licenses = FILES
            .iter()
            .find(|file| file.path == "licenses.txt")
            .unwrap();
        let text = file_text(licenses);
        for part in ["preact\n", "uplot\n", "MIT License", "CDDL-1.0"] {
            assert!(text.contains(part), "{part}");
        }
    }
}
