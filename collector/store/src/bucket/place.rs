//! Addresses of stores, and names of collectors.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use object_store::path::Path;

/// Longest name of a collector, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Where the stores of a fleet's collectors are. Each collector owns the part below its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StorePlace {
    /// A folder of this machine: `file:///FOLDER`.
    Directory(PathBuf),
    /// A bucket of an S3-compatible server: `s3://BUCKET/PREFIX`.
    Bucket {
        /// The bucket's name.
        bucket: String,
        /// Where in the bucket; may be empty.
        prefix: String,
    },
}

/// The name of a collector in a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreName(String);

/// An address or a name that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The text is not the address of a store.
    #[error("expected s3://BUCKET/PREFIX or file:///FOLDER")]
    Address,
    /// The path in the bucket has empty parts, or `.` or `..`.
    #[error(
        "the prefix {0:?} has an empty part, `.`, `..` or a character that object names cannot have"
    )]
    Prefix(String),
    /// The text is not a name.
    #[error(
        "a name has 1 to 64 letters, digits, `-`, `_` and `.`, and begins with a letter or digit"
    )]
    Name,
}

impl FromStr for StorePlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<StorePlace, PlaceError> {
        if let Some(folder) = text.strip_prefix("file://") {
            let folder = PathBuf::from(folder);
            return if folder.is_absolute() {
                Ok(StorePlace::Directory(folder))
            } else {
                Err(PlaceError::Address)
            };
        }
        let rest = text.strip_prefix("s3://").ok_or(PlaceError::Address)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty()
            || bucket.len() > 255
            || !bucket
                .bytes()
                .all(|byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        {
            return Err(PlaceError::Address);
        }
        let prefix = prefix.trim_end_matches('/');
        match Path::parse(prefix) {
            Ok(path) if path.as_ref() == prefix => {}
            _ => return Err(PlaceError::Prefix(prefix.to_owned())),
        }
        Ok(StorePlace::Bucket {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorePlace::Directory(folder) => write!(f, "file://{}", folder.display()),
            StorePlace::Bucket { bucket, prefix } if prefix.is_empty() => {
                write!(f, "s3://{bucket}")
            }
            StorePlace::Bucket { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

impl FromStr for StoreName {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<StoreName, PlaceError> {
        let begins = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins
            && text.len() <= NAME_BYTES_MAX
            && text
                .bytes()
                .all(|byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        {
            Ok(StoreName(text.to_owned()))
        } else {
            Err(PlaceError::Name)
        }
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "s3://b",
            "s3://bucket-1.x/a/b c",
            "file:///var/lib/emberline",
        ] {
            assert_eq!(text.parse::<StorePlace>().unwrap().to_string(), text);
        }
        assert_eq!(
            "s3://b/p/".parse::<StorePlace>().unwrap().to_string(),
            "s3://b/p"
        );
        for text in [
            "",
            "s3://",
            "s3:///p",
            "/var",
            "file://rel",
            "gs://b",
            "s3://b c/p",
            "s3://b@h",
        ] {
            assert_eq!(
                text.parse::<StorePlace>(),
                Err(PlaceError::Address),
                "{text}"
            );
        }
        for text in ["s3://b/a//b", "s3://b/../c", "s3://b/./c", "s3://b//c"] {
            let parsed = text.parse::<StorePlace>();
            assert!(
                matches!(parsed, Err(PlaceError::Prefix(_))),
                "{text} {parsed:?}"
            );
        }
    }

    #[test]
    fn names_are_one_part_of_a_path() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        for name in ["c1", "eu-west.1_b", &longest] {
            assert_eq!(name.parse::<StoreName>().unwrap().to_string(), name);
        }
        let too_long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in ["", ".", "..", ".a", "a/b", "a b", "é", "-a", &too_long] {
            assert_eq!(name.parse::<StoreName>(), Err(PlaceError::Name), "{name}");
        }
    }
}
