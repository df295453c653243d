//! `emberline token`

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use collector::auth::{NewToken, TokenFile};
use jiff::{SignedDuration, Timestamp};
use profiler_core::Token;
use zeroize::Zeroizing;

use crate::args::{
    ListTokensArgs, NewTokenArgs, RevokeTokenArgs, RowFormat, TokenArgs, TokenCommand,
    TokenPlaceArgs, quota_settings,
};
use crate::exit::BadInput;
use crate::output::{print, say};
use crate::view::token as view;

pub(crate) fn run(args: &TokenArgs) -> anyhow::Result<()> {
    match &args.command {
        TokenCommand::New(args) => create(args),
        TokenCommand::List(args) => list(args),
        TokenCommand::Revoke(args) => revoke(args),
    }
}

fn file(place: &TokenPlaceArgs) -> TokenFile {
    match (&place.tokens, &place.data) {
        (Some(tokens), _) => TokenFile::new(tokens),
        (None, data) => TokenFile::in_folder(data.as_deref().unwrap_or(Path::new("."))),
    }
}

fn create(args: &NewTokenArgs) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let expires = args
        .expires
        .map(|age| now.checked_add(SignedDuration::try_from(age)?));
    let new = NewToken {
        role: args.role.into(),
        workers: args.workers.clone(),
        expires: expires.transpose()?,
        note: args.note.clone(),
        quotas: quota_settings(&args.quotas)?,
    };
    // Created first: a token that cannot be written down would be lost.
    let output = args.output.as_deref().map(new_secret_file).transpose()?;
    let file = file(&args.place);
    let created = file.create(new, now);
    let (token, record) = match (created, &args.output) {
        (Ok(created), _) => created,
        (Err(error), Some(path)) => {
            // Empty, and of no use to anybody.
            let _ = std::fs::remove_file(path);
            return Err(error.into());
        }
        (Err(error), None) => return Err(error.into()),
    };
    let is_shown = output.is_none();
    if let (Some(mut output), Some(path)) = (output, &args.output) {
        let text = secret_line(&token);
        let written = output
            .write_all(text.as_bytes())
            .and_then(|()| output.sync_all());
        written.with_context(|| format!("could not write {}", path.display()))?;
    }
    match args.format {
        RowFormat::Json => {
            let secret = is_shown.then(|| token.expose());
            let text = Zeroizing::new(serde_json::to_string(&view::created(&record, secret))?);
            print(format!("{}\n", *text).as_bytes())?;
        }
        RowFormat::Table => {
            say(&view::created_line(&record, file.path()));
            match &args.output {
                Some(path) => say(&view::file_hint(path)),
                None => {
                    say("it is shown only now:");
                    print(secret_line(&token).as_bytes())?;
                }
            }
        }
    }
    Ok(())
}

fn secret_line(token: &Token) -> Zeroizing<String> {
    let mut line = Zeroizing::new(String::with_capacity(token.expose().len() + 1));
    line.push_str(token.expose());
    line.push('\n');
    line
}

fn new_secret_file(path: &Path) -> anyhow::Result<std::fs::File> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => BadInput(format!(
            "{} exists already; choose another file",
            path.display()
        ))
        .into(),
        _ => anyhow::Error::from(error).context(format!("could not create {}", path.display())),
    })
}

fn list(args: &ListTokensArgs) -> anyhow::Result<()> {
    let file = file(&args.place);
    let tokens = file.read()?;
    let now = Timestamp::now();
    if args.format == RowFormat::Json {
        let rows = view::rows(tokens.as_deref().unwrap_or_default(), now);
        return print((serde_json::to_string_pretty(&rows)? + "\n").as_bytes());
    }
    match tokens {
        None => say(&format!(
            "no tokens: there is no file {}, so the collector lets everyone in; create one with \
             `emberline token new`",
            file.path().display()
        )),
        Some(tokens) if tokens.is_empty() => say(&format!(
            "no tokens: {} is empty, so the collector lets nobody in; create one with `emberline \
             token new`, or remove the file",
            file.path().display()
        )),
        Some(tokens) => print(view::table(&tokens, now).as_bytes())?,
    }
    Ok(())
}

fn revoke(args: &RevokeTokenArgs) -> anyhow::Result<()> {
    let record = file(&args.place).revoke(args.id)?;
    match args.format {
        RowFormat::Json => {
            let row = view::row(&record, Timestamp::now());
            print((serde_json::to_string(&row)? + "\n").as_bytes())
        }
        RowFormat::Table => {
            say(&view::revoked_line(&record));
            Ok(())
        }
    }
}
