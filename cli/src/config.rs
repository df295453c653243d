//! Where the options of `emberline serve` come from: flags, then variables `EMBERLINE_SERVE_…`, then a
//! file. The last two become flags, so that each option is defined and checked in one place.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory as _, FromArgMatches as _};
use toml::de::{DeTable, DeValue};

use crate::args::{Cli, Command, is_scraped_url};
use crate::client::external::without_secrets;
use crate::exit::BadInput;
use crate::output::{json_text, print, say};

/// The command that has a configuration.
const SERVE: &str = "serve";

/// Start of the names of its variables.
const PREFIX: &str = "EMBERLINE_SERVE_";

/// The option that names the file.
const FILE: &str = "config";

/// The option whose values have commas: `URL,name=NAME`.
const SCRAPE: &str = "scrape";

/// Options of one call, which are in no file.
const NOT_CONFIGURED: [&str; 4] = [FILE, "print-config", "help", "version"];

/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Where a value comes from, if not from the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Origin {
    Variable(String),
    Line { file: PathBuf, line: usize },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Variable(name) => f.write_str(name),
            Origin::Line { file, line } => write!(f, "{}:{line}", file.display()),
        }
    }
}

/// The command line with what variables and the file add.
#[derive(Debug, Default)]
struct Merged {
    arguments: Vec<OsString>,
    /// Of the options that were added.
    origins: BTreeMap<String, Origin>,
}

/// Reads the command line, the variables and the file; exits with clap's text if an option is invalid.
/// `None` if only the configuration was to be printed.
pub(crate) fn parse() -> anyhow::Result<Option<Cli>> {
    let merged = merge(
        std::env::args_os().collect(),
        &std::env::vars_os().collect(),
    )?;
    let matches = Cli::command()
        .try_get_matches_from(&merged.arguments)
        .unwrap_or_else(|error| exit(&error, &merged.origins));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| exit(&error, &merged.origins));
    match &cli.command {
        Command::Serve(serve) if serve.print_config => {
            let matches = matches
                .subcommand_matches(SERVE)
                .expect("it is the command");
            print(shown(matches, &merged.origins).as_bytes())?;
            Ok(None)
        }
        _ => Ok(Some(cli)),
    }
}

/// Prints an error, and where the invalid value is if it is not on the command line.
fn exit(error: &clap::Error, origins: &BTreeMap<String, Origin>) -> ! {
    // There is no place to report a closed stderr.
    let _ = error.print();
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some(name) = option
            .strip_prefix("--")
            .and_then(|option| option.split(' ').next())
        && let Some(origin) = origins.get(name)
    {
        say(&format!("\n--{name} is set in {origin}"));
    }
    std::process::exit(error.exit_code())
}

/// The options that variables and files may set.
fn options(serve: &clap::Command) -> impl Iterator<Item = (&str, &Arg)> {
    let named = serve
        .get_arguments()
        .filter_map(|option| Some((option.get_long()?, option)));
    named.filter(|(name, _)| !NOT_CONFIGURED.contains(name))
}

/// Adds the options of `variables` and of the file that the command line does not have.
fn merge(
    mut arguments: Vec<OsString>,
    variables: &BTreeMap<OsString, OsString>,
) -> Result<Merged, BadInput> {
    let command = arguments.iter().skip(1).find(|argument| !is_flag(argument));
    if command.is_none_or(|command| command != SERVE) {
        return Ok(Merged {
            arguments,
            ..Merged::default()
        });
    }
    let cli = Cli::command();
    let serve = cli.find_subcommand(SERVE).expect("it is defined");
    let given = arguments.clone();
    let file =
        value_of(&given, FILE).or_else(|| variables.get(OsStr::new(&variable(FILE))).cloned());
    let mut in_file = match &file {
        Some(file) => read(Path::new(file), serve)?,
        None => BTreeMap::new(),
    };
    let mut origins = BTreeMap::new();
    for (name, option) in options(serve) {
        let line = in_file.remove(name);
        if is_given(&given, name) {
            continue;
        }
        let variable = variable(name);
        let (values, origin) = if let Some(value) = variables.get(OsStr::new(&variable)) {
            let values = split(option, value)
                .map_err(|wanted| BadInput(format!("{variable} must be {wanted}")))?;
            (values, Origin::Variable(variable))
        } else if option
            .get_env()
            .is_some_and(|name| variables.contains_key(name))
        {
            continue;
        } else if let Some(InFile { values, origin }) = line {
            (values, origin)
        } else {
            continue;
        };
        arguments.extend(values.iter().map(|value| flag(option, name, value)));
        origins.insert(name.to_owned(), origin);
    }
    warn_of_unknown(variables, serve);
    Ok(Merged { arguments, origins })
}

fn is_flag(argument: &std::ffi::OsStr) -> bool {
    argument.as_encoded_bytes().starts_with(b"-")
}

/// The variable of an option.
fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_ascii_uppercase().replace('-', "_"))
}

/// Says which variables have no effect. Kubernetes makes such for a service of that name, so they are no
/// error.
fn warn_of_unknown(variables: &BTreeMap<OsString, OsString>, serve: &clap::Command) {
    for name in variables.keys().filter_map(|name| name.to_str()) {
        if name.starts_with(PREFIX)
            && !options(serve)
                .map(|(name, _)| name)
                .chain([FILE])
                .any(|option| variable(option) == name)
        {
            say(&format!(
                "warning: {name} is no option of `emberline serve`"
            ));
        }
    }
}

/// Whether the command line has the option.
fn is_given(arguments: &[OsString], name: &str) -> bool {
    let flag = format!("--{name}");
    let with_value = format!("{flag}=");
    arguments.iter().any(|argument| {
        argument == &*flag
            || argument
                .as_encoded_bytes()
                .starts_with(with_value.as_bytes())
    })
}

/// The value that the command line gives the option.
fn value_of(arguments: &[OsString], name: &str) -> Option<OsString> {
    let flag = format!("--{name}");
    let with_value = format!("{flag}=");
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == &*flag {
            return arguments.next().cloned();
        }
        if let Some(value) = argument
            .to_str()
            .and_then(|text| text.strip_prefix(&with_value))
        {
            return Some(value.into());
        }
    }
    None
}

fn is_switch(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}

fn is_list(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

/// The argument that gives the option this value.
fn flag(option: &Arg, name: &str, value: &OsStr) -> OsString {
    let mut flag = OsString::from(format!("--{name}"));
    if !is_switch(option) {
        flag.push("=");
        flag.push(value);
    }
    flag
}

/// The values in a variable; none for a switch that is off. The error says what it must be.
fn split(option: &Arg, value: &OsStr) -> Result<Vec<OsString>, &'static str> {
    if is_switch(option) {
        return match value.to_str() {
            Some("true" | "1") => Ok(vec![OsString::new()]),
            Some("false" | "0" | "") => Ok(Vec::new()),
            _ => Err("`true` or `false`"),
        };
    }
    if !is_list(option) {
        return Ok(vec![value.to_owned()]);
    }
    let text = value.to_str().ok_or("UTF-8")?;
    if option.get_long() == Some(SCRAPE) {
        return Ok(scrapes(text));
    }
    Ok(text.split(',').map(OsString::from).collect())
}

/// The scraped services in a list. Each begins with a URL; its options have the same separator.
fn scrapes(text: &str) -> Vec<OsString> {
    let mut values: Vec<OsString> = Vec::new();
    for part in text.split(',') {
        match values.last_mut() {
            Some(value) if !is_scraped_url(part) => {
                value.push(",");
                value.push(part);
            }
            _ => values.push(part.into()),
        }
    }
    values
}

/// Values of an option in a file, and their origin.
#[derive(PartialEq, Eq, Debug)]
struct InFile {
    values: Vec<OsString>,
    origin: Origin,
}

/// Reads a file of lines `option = value`, in TOML.
fn read(file: &Path, serve: &clap::Command) -> Result<BTreeMap<String, InFile>, BadInput> {
    let name = file.display();
    let failed = |error: &io::Error| BadInput(format!("cannot read {name}: {error}"));
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| failed(&error))?;
    let metadata = opened.metadata().map_err(|error| failed(&error))?;
    let mode = metadata.mode() & 0o777;
    if metadata.is_file() && mode & 0o002 != 0 {
        return Err(BadInput(format!(
            "every user may write {name} (mode {mode:03o}), and so decide what the collector does; run: \
             chmod o-w {name}"
        )));
    }
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| failed(&error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let max = FILE_BYTES_MAX >> 10;
        return Err(BadInput(format!(
            "{name} is no configuration: it has more than {max} KiB"
        )));
    }
    let line_of = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let table = DeTable::parse(&text).map_err(|error| {
        let line = line_of(error.span().map_or(0, |span| span.start));
        BadInput(format!("{name}:{line}: {}", error.message()))
    })?;
    let mut in_file = BTreeMap::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let key = &**key.get_ref();
        let Some((_, option)) = options(serve).find(|(name, _)| *name == key) else {
            let shown = options(serve).filter(|(_, option)| !option.is_hide_set());
            let known = shown.map(|(name, _)| name).collect::<Vec<_>>().join(", ");
            return Err(BadInput(format!(
                "{name}:{line}: unknown option {key:?}\nknown: {known}"
            )));
        };
        let values = values(option, value.get_ref())
            .map_err(|wanted| BadInput(format!("{name}:{line}: {key} must be {wanted}")))?;
        let origin = Origin::Line {
            file: file.to_owned(),
            line,
        };
        in_file.insert(key.to_owned(), InFile { values, origin });
    }
    Ok(in_file)
}

/// The values in a file; none for a switch that is off. The error says what it must be.
fn values(option: &Arg, value: &DeValue<'_>) -> Result<Vec<OsString>, &'static str> {
    if is_switch(option) {
        let is_on = value.as_bool().ok_or("true or false, without quotes")?;
        return Ok(if is_on {
            vec![OsString::new()]
        } else {
            Vec::new()
        });
    }
    if !is_list(option) {
        return Ok(vec![single_value(value).ok_or("a string")?]);
    }
    let wanted = "a list of strings";
    let list = value.as_array().ok_or(wanted)?;
    list.iter()
        .map(|value| single_value(value.get_ref()).ok_or(wanted))
        .collect()
}

fn single_value(value: &DeValue<'_>) -> Option<OsString> {
    match value {
        DeValue::String(text) => Some(OsString::from(&**text)),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().into()),
        _ => None,
    }
}

/// The whole configuration with its origins, in the form of a file.
fn shown(matches: &ArgMatches, origins: &BTreeMap<String, Origin>) -> String {
    let mut text = String::new();
    let cli = Cli::command();
    let serve = cli.find_subcommand(SERVE).expect("it is defined");
    for (name, option) in options(serve).filter(|(_, option)| !option.is_hide_set()) {
        let id = option.get_id().as_str();
        let origin = match matches.value_source(id) {
            Some(ValueSource::CommandLine) => match origins.get(name) {
                Some(origin) => origin.to_string(),
                None => "command line".to_owned(),
            },
            Some(ValueSource::EnvVariable) => option
                .get_env()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            _ => "default".to_owned(),
        };
        let values = matches.get_raw(id).into_iter().flatten();
        let quoted: Vec<String> = values
            .map(|value| quoted(name, &value.to_string_lossy()))
            .collect();
        let written = if is_switch(option) {
            Some(matches.get_flag(id).to_string())
        } else if is_list(option) {
            Some(format!("[{}]", quoted.join(", ")))
        } else {
            quoted.into_iter().next()
        };
        // Writing to a string cannot fail.
        let _ = match written {
            Some(value) => writeln!(text, "{name} = {value}  # {origin}"),
            None => writeln!(text, "# {name} is not set"),
        };
    }
    text
}

/// The value of an option as a string of TOML, without the secrets of URLs.
fn quoted(name: &str, value: &str) -> String {
    // Everywhere else, a comma is a part of the URL.
    let end = value
        .find(',')
        .filter(|_| name == SCRAPE)
        .unwrap_or(value.len());
    let (urls, options) = value.split_at(end);
    let words = urls.split(' ').map(without_secrets);
    let value = words.collect::<Vec<_>>().join(" ") + options;
    json_text(&value).expect("a string is JSON")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn merged(given: &str, pairs: &[(&str, &str)]) -> Result<Merged, String> {
        let given = given.split(' ').map(OsString::from).collect();
        merge(given, &variables(pairs)).map_err(|error| error.to_string())
    }

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.toml");
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (folder, path)
    }

    #[test]
    fn a_file_that_every_user_may_write_configures_nothing() {
        let (_folder, path) = file("listen = \"127.0.0.1:0\"");
        let line = format!("emberline serve --config {path}");
        for (mode, is_right) in [(0o600, true), (0o664, true), (0o666, false), (0o602, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let merged = merged(&line, &[]);
            assert_eq!(merged.is_ok(), is_right, "{mode:o} {merged:?}");
        }
    }

    fn arguments(merged: &Merged) -> Vec<&str> {
        merged
            .arguments
            .iter()
            .map(|argument| argument.to_str().unwrap())
            .collect()
    }

    fn printed(merged: &Merged) -> String {
        let matches = Cli::command()
            .try_get_matches_from(&merged.arguments)
            .unwrap();
        shown(matches.subcommand_matches(SERVE).unwrap(), &merged.origins)
    }

    #[test]
    fn flags_win_over_variables_and_variables_over_the_file() {
        let (_folder, path) = file(
            "listen = \"127.0.0.1:1\"\ndata = '/file'\nretention-size = \"1GB\"\n\
             insecure-listen = true\npublic-name = [\"a\", \"b\"]\n",
        );
        let pairs = [
            ("EMBERLINE_SERVE_DATA", "/variable"),
            ("EMBERLINE_SERVE_LISTEN", "127.0.0.1:2"),
            ("EMBERLINE_SERVE_CONFIG", &*path),
        ];
        let merged = merged("emberline serve --listen 127.0.0.1:3", &pairs).unwrap();
        let mut added = arguments(&merged).split_off(4);
        added.sort_unstable();
        let expected = [
            "--data=/variable",
            "--insecure-listen",
            "--public-name=a",
            "--public-name=b",
            "--retention-size=1GB",
        ];
        assert_eq!(added, expected);
        let text = printed(&merged);
        for line in [
            "listen = \"127.0.0.1:3\"  # command line\n",
            "data = \"/variable\"  # EMBERLINE_SERVE_DATA\n",
            &*format!("public-name = [\"a\", \"b\"]  # {path}:5\n"),
            "retention-tasks = \"30d\"  # default\n",
            "# tokens is not set\n",
        ] {
            assert!(text.contains(line), "no {line:?} in {text}");
        }
    }

    #[test]
    fn what_is_printed_is_a_file_with_the_same_configuration() {
        let first = merged(
            "emberline serve --quota queries=3 --quota nodes=7 --data d",
            &[],
        );
        let first = printed(&first.unwrap());
        let (_folder, path) = file(&first);
        let second = printed(&merged(&format!("emberline serve --config {path}"), &[]).unwrap());
        assert_eq!(without_comments(&first), without_comments(&second));
    }

    fn without_comments(text: &str) -> Vec<String> {
        text.lines()
            .map(|line| line.split("  #").next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn other_commands_have_no_configuration() {
        let pairs = [
            ("EMBERLINE_SERVE_DATA", "/d"),
            ("EMBERLINE_SERVE_CONFIG", "/no/such/file"),
        ];
        let merged = merged("emberline --utc tasks serve", &pairs).unwrap();
        assert_eq!(arguments(&merged), ["emberline", "--utc", "tasks", "serve"]);
    }

    #[test]
    fn an_error_names_the_line_and_what_is_allowed() {
        for (text, expected) in [
            (
                "\nlisen = 'x'",
                ":2: unknown option \"lisen\"\nknown: listen, tls-cert, ",
            ),
            ("data = ", ":1: "),
            ("data = ['a']", ":1: data must be a string"),
            (
                "public-name = 'a'",
                ":1: public-name must be a list of strings",
            ),
            (
                "insecure-listen = 'yes'",
                ":1: insecure-listen must be true or false",
            ),
            ("config = 'other'", ":1: unknown option \"config\""),
            ("[serve]\ndata = 'x'", ":1: unknown option \"serve\""),
        ] {
            let (_folder, path) = file(text);
            let error = merged(&format!("emberline serve --config={path}"), &[]).unwrap_err();
            let rest = error.strip_prefix(&path).unwrap_or_default();
            assert!(rest.starts_with(expected), "{text:?}: {error}");
        }
        let error = merged("emberline serve --config /no/such/file", &[]).unwrap_err();
        assert!(
            error.starts_with("cannot read /no/such/file: No such file"),
            "{error}"
        );
        let pairs = [("EMBERLINE_SERVE_INSECURE_LISTEN", "maybe")];
        let error = merged("emberline serve", &pairs).unwrap_err();
        assert_eq!(
            error,
            "EMBERLINE_SERVE_INSECURE_LISTEN must be `true` or `false`"
        );
        let (_folder, path) = file(&"#".repeat(FILE_BYTES_MAX as usize + 1));
        let error = merged(&format!("emberline serve --config {path}"), &[]).unwrap_err();
        assert!(error.ends_with("it has more than 256 KiB"), "{error}");
    }

    #[test]
    fn a_variable_has_several_scraped_services_with_their_options() {
        let list = "http://a:1,name=x,every=5s,https://u:p@b/prof?key=s3cret,name=y,http://c";
        let merged = merged("emberline serve", &[("EMBERLINE_SERVE_SCRAPE", list)]).unwrap();
        let expected = [
            "--scrape=http://a:1,name=x,every=5s",
            "--scrape=https://u:p@b/prof?key=s3cret,name=y",
            "--scrape=http://c",
        ];
        assert_eq!(arguments(&merged)[2..], expected);
        let line = "scrape = [\"http://a:1,name=x,every=5s\", \
                    \"https://[hidden]@b/prof?key=[hidden],name=y\", \"http://c\"]  \
                    # EMBERLINE_SERVE_SCRAPE\n";
        assert!(printed(&merged).contains(line), "{}", printed(&merged));
        // A key without a URL before it is an error of the option itself.
        assert_eq!(scrapes("name=x,http://a"), ["name=x", "http://a"]);
    }

    #[test]
    fn secrets_of_urls_are_hidden() {
        let pairs = [(
            "DEBUGINFOD_URLS",
            "https://u:p@a.example/x https://b.example?key=s",
        )];
        let merged = merged("emberline serve --data d", &pairs).unwrap();
        assert_eq!(arguments(&merged).len(), 4, "clap reads this variable");
        let shown = "\"https://[hidden]@a.example/x https://b.example?key=[hidden]\"";
        assert_eq!(quoted("debuginfod", pairs[0].1), shown);
        // The comma and what follows it are a part of the query.
        let url = "http://h/x?keys=a,name=s3cret";
        assert_eq!(quoted("forward", url), "\"http://h/x?keys=[hidden]\"");
    }
}
