//! Checks of the variables with which a client is made. The client itself panics at its first request if it
//! cannot write the request's URL.

use hyper::Uri;
use object_store::ClientConfigKey;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use url::Url;

/// Variables with the URL of a server.
const ENDPOINTS: [AmazonS3ConfigKey; 4] = [
    AmazonS3ConfigKey::Endpoint,
    AmazonS3ConfigKey::S3Endpoint,
    AmazonS3ConfigKey::StsEndpoint,
    AmazonS3ConfigKey::MetadataEndpoint,
];

/// Variables with a region, which becomes a part of a host's name.
const REGIONS: [AmazonS3ConfigKey; 2] =
    [AmazonS3ConfigKey::Region, AmazonS3ConfigKey::DefaultRegion];

/// Returns what is wrong with the settings of a client, and what is allowed.
pub(super) fn defect(client: &AmazonS3Builder) -> Option<String> {
    invalid(
        client,
        &ENDPOINTS,
        is_url,
        "http://HOST:PORT or https://HOST:PORT",
    )
    .or_else(|| {
        invalid(
            client,
            &REGIONS,
            is_region,
            "letters, digits and hyphens, such as eu-central-1",
        )
    })
    .or_else(|| unencrypted(client))
}

fn invalid(
    client: &AmazonS3Builder,
    keys: &[AmazonS3ConfigKey],
    is_valid: fn(&str) -> bool,
    expected: &str,
) -> Option<String> {
    keys.iter().find_map(|key| {
        let value = client.get_config_value(key)?;
        let name = key.as_ref().to_uppercase();
        (!is_valid(&value)).then(|| format!("invalid {name} {value:?}; expected {expected}"))
    })
}

/// Returns what is wrong if the endpoint is not encrypted and that is not allowed.
fn unencrypted(client: &AmazonS3Builder) -> Option<String> {
    use AmazonS3ConfigKey::{Client, Endpoint, S3Endpoint};
    let value_of = |key| client.get_config_value(&key);
    let endpoint = value_of(S3Endpoint).or_else(|| value_of(Endpoint))?;
    let allows_http = value_of(Client(ClientConfigKey::AllowHttp));
    let is_forbidden = endpoint.starts_with("http:") && allows_http.as_deref() == Some("false");
    is_forbidden.then(|| {
        format!(
            "{endpoint} is not encrypted; use https://, or set AWS_ALLOW_HTTP=true to accept that"
        )
    })
}

/// Whether both parsers of the client accept it.
fn is_url(text: &str) -> bool {
    let is_uri = text
        .parse::<Uri>()
        .is_ok_and(|uri| uri.scheme_str().is_some_and(is_known_scheme));
    is_uri && Url::parse(text).is_ok_and(|url| url.has_host() && is_known_scheme(url.scheme()))
}

fn is_known_scheme(scheme: &str) -> bool {
    matches!(scheme, "http" | "https")
}

fn is_region(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte: u8| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defect_of(key: AmazonS3ConfigKey, value: &str) -> Option<String> {
        let client = AmazonS3Builder::new().with_allow_http(true);
        defect(&client.with_config(key, value))
    }

    #[test]
    fn an_endpoint_needs_a_scheme_and_a_valid_host() {
        for url in [
            "http://127.0.0.1:9000",
            "https://s3.example.org/",
            "http://[::1]:9000",
        ] {
            assert_eq!(defect_of(AmazonS3ConfigKey::Endpoint, url), None);
        }
        for text in [
            "127.0.0.1:9000",
            "minio",
            "",
            "http://",
            "ftp://a",
            "http://a:99999",
            "http://1.2.3.999",
        ] {
            let expected = format!(
                "invalid AWS_ENDPOINT {text:?}; expected http://HOST:PORT or https://HOST:PORT"
            );
            assert_eq!(defect_of(AmazonS3ConfigKey::Endpoint, text), Some(expected));
        }
        let text = defect_of(AmazonS3ConfigKey::S3Endpoint, "x y").unwrap();
        assert!(
            text.starts_with("invalid AWS_ENDPOINT_URL_S3 \"x y\""),
            "{text}"
        );
    }

    #[test]
    fn a_region_is_a_part_of_a_hosts_name() {
        assert_eq!(defect_of(AmazonS3ConfigKey::Region, "eu-central-1"), None);
        for name in ["eu west", "eu\"west", "eu/west", ""] {
            let text = defect_of(AmazonS3ConfigKey::Region, name).unwrap();
            assert!(
                text.starts_with(&format!("invalid AWS_REGION {name:?}; expected")),
                "{text}"
            );
        }
    }

    #[test]
    fn an_unencrypted_endpoint_needs_to_be_allowed() {
        let client = AmazonS3Builder::new().with_endpoint("http://minio:9000");
        let text = defect(&client).unwrap();
        assert!(text.contains("set AWS_ALLOW_HTTP=true"), "{text}");
        assert_eq!(defect(&client.with_allow_http(true)), None);
    }
}
