//! `emberline profile`

use std::path::Path;

use flamegraph::ParsedProfile;
use serde::Deserialize;

use super::range_query;
use crate::args::{ProfileArgs, ProfileFormat, word};
use crate::client::{Client, Query};
use crate::format;
use crate::output::{print, say, write_file};
use crate::view::profile::Sampling;

/// Functions in a table.
pub(crate) const TABLE_ROWS: usize = 30;

/// The part of a profile's JSON that a table needs.
#[derive(Deserialize)]
pub(crate) struct Body {
    pub(crate) profile: ParsedProfile,
}

pub(crate) fn run(args: &ProfileArgs) -> anyhow::Result<()> {
    let file = args.output.as_deref().filter(|file| *file != Path::new("-"));
    let format = format::choose(args.format, file)?;
    let client = Client::new(&args.url.url)?;
    let answer = client.get("profile", &query(args, format))?;

    let line = Sampling::from_headers(&answer).line();
    let data = match format {
        ProfileFormat::Table => {
            let body: Body = client.parse(&answer.body)?;
            flamegraph::table(&body.profile.0, TABLE_ROWS).into_bytes()
        }
        ProfileFormat::Json => [&answer.body[..], b"\n"].concat(),
        ProfileFormat::Svg | ProfileFormat::Collapsed => answer.body,
    };
    let Some(file) = file else {
        say(&line);
        return print(&data);
    };
    write_file(file, &data)?;
    say(&format!("wrote {}: {line}", file.display()));
    Ok(())
}

fn query(args: &ProfileArgs, format: ProfileFormat) -> Query {
    let format = match format {
        // A table is made here, from the nodes.
        ProfileFormat::Table => ProfileFormat::Json,
        format => format,
    };
    range_query(&args.range)
        .with_each("task", &args.task)
        .with_each("state", args.state.iter().map(|state| word(*state)))
        .with_each("phase", &args.phase)
        .with_each("phases", args.phases.then_some("true"))
        .with_each("group", &args.group)
        .with("threads", word(args.threads))
        .with("format", word(format))
}
