//! The parameters of an upload of symbols.

use crate::QueryError;
use crate::error::echo;
use crate::parameters::params::Params;

/// Parameters of an uploaded piece of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolUpload {
    pub build_id: String,
    /// SHA-256 of the whole file, in hexadecimal.
    pub sha256: String,
    /// Bytes of the whole file.
    pub bytes: u64,
    /// Where the piece begins.
    pub offset: u64,
    pub replace: bool,
}

impl SymbolUpload {
    pub fn parse(pairs: &[(String, String)]) -> Result<SymbolUpload, QueryError> {
        let params = Params::new(pairs, &["build_id", "sha256", "bytes", "offset", "replace"])?;
        let number = |name| -> Result<u64, QueryError> {
            let text = params.one(name)?.unwrap_or_default();
            let allowed = vec!["a number of bytes"];
            text.parse().map_err(|_| QueryError::Form { name, value: echo(text), allowed })
        };
        Ok(SymbolUpload {
            build_id: params.one("build_id")?.unwrap_or_default().to_owned(),
            sha256: params.one("sha256")?.unwrap_or_default().to_owned(),
            bytes: number("bytes")?,
            offset: number("offset")?,
            replace: params.choice("replace", &[("false", false), ("true", true)])?,
        })
    }
}

/// Checks that there are no parameters.
pub fn no_parameters(pairs: &[(String, String)]) -> Result<(), QueryError> {
    Params::new(pairs, &[]).map(|_| ())
}
