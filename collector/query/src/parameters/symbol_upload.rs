//! The parameters of an upload of symbols.

use crate::QueryError;
use crate::error::echo;
use crate::parameters::parameter::{FLAG, Parameter, Parameters};
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
    pub const PARAMETERS: Parameters = &[&[
        Parameter::text(
            "build_id",
            "59fd0cb5",
            "Build id of the module, in hexadecimal.",
        ),
        Parameter::text(
            "sha256",
            "9f86d081…",
            "SHA-256 of the whole file, in hexadecimal.",
        ),
        Parameter::integer(
            "bytes",
            0..=usize::MAX,
            None,
            "1048576",
            "Length of the whole file.",
        )
        .required(),
        Parameter::integer(
            "offset",
            0..=usize::MAX,
            None,
            "0",
            "Where the piece in the body begins.",
        )
        .required(),
        Parameter::flag(
            "replace",
            "Whether a file that is there already is replaced.",
        ),
    ]];

    pub fn parse(pairs: &[(String, String)]) -> Result<SymbolUpload, QueryError> {
        let params = Params::of(pairs, SymbolUpload::PARAMETERS)?;
        Ok(SymbolUpload {
            build_id: params.one("build_id")?.unwrap_or_default().to_owned(),
            sha256: params.one("sha256")?.unwrap_or_default().to_owned(),
            bytes: number(&params, "bytes")?,
            offset: number(&params, "offset")?,
            replace: params.choice("replace", &FLAG)?,
        })
    }
}

fn number(params: &Params<'_>, name: &'static str) -> Result<u64, QueryError> {
    let text = params.one(name)?.unwrap_or_default();
    let allowed = vec!["a number of bytes"];
    text.parse().map_err(|_| QueryError::Form {
        name,
        value: echo(text),
        allowed,
    })
}

/// Checks that there are no parameters.
pub fn no_parameters(pairs: &[(String, String)]) -> Result<(), QueryError> {
    Params::of(pairs, &[]).map(|_| ())
}
