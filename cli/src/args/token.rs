//! Commands for the tokens of a collector.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use collector::auth::WorkerPattern;
use profiler_core::TokenId;

use super::RowFormat;
use super::quota::{QuotaArg, quota};
use super::retention::age;

/// `emberline token`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline token new --data /var/lib/emberline --role agent -o agent.token\n  \
    emberline token list --data /var/lib/emberline\n  \
    emberline token revoke 3f9a2c01 --data /var/lib/emberline\n\n\
    Agents and the other commands read their token from the file that EMBERLINE_TOKEN_FILE \
    names, or from EMBERLINE_TOKEN. As soon as there is one token, every request needs one. A \
    running collector notices changes within a second.")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    /// Create a token. Only its hash is stored, so it is shown once.
    #[command(after_help = "Examples:\n  \
        emberline token new --data DIR --role agent --worker 'etl-*' --expires 30d\n  \
        emberline token new --data DIR --role reader --note 'Ada, on call'\n  \
        emberline token new --data DIR --role operator -o ~/.emberline-token\n  \
        emberline token new --data DIR --role agent --quota sessions=100 -o test.token\n\n\
        To rotate a token, create another one, distribute it, and revoke the first.")]
    New(NewTokenArgs),
    /// List tokens by their ids, without their secrets.
    #[command(after_help = "Examples:\n  \
        emberline token list --data /var/lib/emberline\n  \
        emberline token list --tokens /etc/emberline/tokens.json --format json")]
    List(ListTokensArgs),
    /// Revoke a token. Its open connections end within a second.
    #[command(after_help = "Examples:\n  \
        emberline token revoke 3f9a2c01 --data /var/lib/emberline\n  \
        emberline token revoke 3f9a2c01 --tokens /etc/emberline/tokens.json")]
    Revoke(RevokeTokenArgs),
}

/// Where the tokens are.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct TokenPlaceArgs {
    /// Folder of the store: the one of `emberline serve --data`.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Token file: the one of `emberline serve --tokens`.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
}

/// `emberline token new`
#[derive(Args, Debug)]
// The generated line is longer than 80 columns.
#[command(
    override_usage = "emberline token new --role <ROLE> --data <DIR> [OPTIONS]\n       \
                            emberline token new --role <ROLE> --tokens <FILE> [OPTIONS]"
)]
pub(crate) struct NewTokenArgs {
    /// Permissions of its holder.
    #[arg(long, value_enum)]
    pub(crate) role: Role,

    /// Workers as which an agent may report, such as 'etl-*', where * stands for any text; may be
    /// repeated. Default: all.
    #[arg(long = "worker", value_name = "PATTERN", value_parser = pattern)]
    pub(crate) workers: Vec<WorkerPattern>,

    /// Time until it expires, such as 12h or 30d. Default: never.
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub(crate) expires: Option<std::time::Duration>,

    /// Its holder and purpose. Readers of the page see their own.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) note: String,

    /// Quota that its holders share, where it differs from `emberline serve --quota`; may be repeated.
    #[arg(long = "quota", value_name = "NAME=VALUE", value_parser = quota)]
    pub(crate) quotas: Vec<QuotaArg>,

    /// New file for the token, which only this user may read. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) place: TokenPlaceArgs,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,
}

/// `emberline token list`
#[derive(Args, Debug)]
pub(crate) struct ListTokensArgs {
    #[command(flatten)]
    pub(crate) place: TokenPlaceArgs,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,
}

/// `emberline token revoke`
#[derive(Args, Debug)]
pub(crate) struct RevokeTokenArgs {
    /// The 8 digits after `emb_`; never the whole token.
    #[arg(value_name = "ID", value_parser = id)]
    pub(crate) id: TokenId,

    #[command(flatten)]
    pub(crate) place: TokenPlaceArgs,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,
}

/// Role of a token: the permissions of its holder.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Send profiles as its workers, and nothing else.
    Agent,
    /// Read everything except thread dumps and SQL; change nothing.
    Reader,
    /// Read everything, change settings, mark runs, take thread dumps, ask in SQL.
    Operator,
}

impl From<Role> for collector::auth::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Agent => collector::auth::Role::Agent,
            Role::Reader => collector::auth::Role::Reader,
            Role::Operator => collector::auth::Role::Operator,
        }
    }
}

fn pattern(text: &str) -> Result<WorkerPattern, String> {
    WorkerPattern::parse(text).map_err(|error| error.to_string())
}

fn id(text: &str) -> Result<TokenId, String> {
    text.parse().map_err(|_| {
        "an id is the 8 hexadecimal digits that `emberline token list` shows".to_owned()
    })
}
