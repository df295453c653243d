//! Output to stdout, or to a file that is replaced atomically.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use flamegraph::text::{printable_json, wrapped_words};
use serde::Serialize;
use tokio::io::Interest;
use tokio::net::unix::pipe;

use crate::grid::line_columns;

/// The reader of stdout is gone.
#[derive(Debug, thiserror::Error)]
#[error("stdout was closed")]
pub(crate) struct StdoutClosed;

/// Writes to stdout.
pub(crate) fn print(data: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(data).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        written => written.context("could not write to stdout"),
    }
}

/// Waits until nobody reads stdout.
pub(crate) async fn reader_is_gone() {
    let output = io::stdout().as_fd().try_clone_to_owned();
    let watched = output.and_then(pipe::Sender::from_owned_fd_unchecked);
    // A file has no reader.
    let is_gone = match watched {
        Ok(output) => output.ready(Interest::ERROR).await.is_ok(),
        Err(_) => false,
    };
    if !is_gone {
        std::future::pending().await
    }
}

/// Writes to the file as [`write_file`] does, and says so; without one, to stdout.
pub(crate) fn put(file: Option<&Path>, data: &[u8]) -> anyhow::Result<()> {
    let Some(file) = file else {
        return print(data);
    };
    write_file(file, data)?;
    say(&format!("wrote {}", file.display()));
    Ok(())
}

/// Writes JSON and a newline to stdout.
pub(crate) fn print_json(json: Vec<u8>) -> anyhow::Result<()> {
    print(&json_line(json))
}

/// JSON and a newline. Characters in names that would act on a terminal are escaped.
pub(crate) fn json_line(json: Vec<u8>) -> Vec<u8> {
    // JSON is UTF-8; anything else is left to the program that reads it.
    let escaped = str::from_utf8(&json)
        .ok()
        .and_then(|text| match printable_json(text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(escaped) => Some(escaped.into_bytes()),
        });
    let mut line = escaped.unwrap_or(json);
    line.push(b'\n');
    line
}

/// A value as JSON, with the same escapes.
pub(crate) fn json_text<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
    let json = serde_json::to_string(value)?;
    Ok(printable_json(&json).into_owned())
}

/// Writes to the file at `path` as [`write_file`] does; without a path, to stdout as it is produced.
pub(crate) fn write_to<T>(
    path: Option<&Path>,
    make: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(path) = path else {
        let made = make(&mut BufWriter::new(io::stdout().lock()));
        return made.map_err(|error| {
            if is_closed_pipe(&error) {
                StdoutClosed.into()
            } else {
                error
            }
        });
    };
    replace_with(path, |file| {
        let mut file = BufWriter::new(file);
        let failed = || format!("could not write {}", path.display());
        let made = make(&mut file).map_err(|error| {
            // With a context it is about something else.
            let is_of_file = error.is::<io::Error>() && error.chain().len() == 1;
            if is_of_file {
                error.context(failed())
            } else {
                error
            }
        })?;
        file.flush().with_context(failed)?;
        Ok(made)
    })
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether messages are events of the log, because another program reads stderr.
static MESSAGES_ARE_LOGGED: AtomicBool = AtomicBool::new(false);

/// Sends the lines of [`say`] to the log from now on.
pub(crate) fn log_messages() {
    MESSAGES_ARE_LOGGED.store(true, Ordering::Relaxed);
}

/// Writes a line to stderr; errors are ignored.
pub(crate) fn say(line: &str) {
    if MESSAGES_ARE_LOGGED.load(Ordering::Relaxed) {
        tracing::info!("{line}");
        return;
    }
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes a sentence to stderr, in lines that fit the terminal.
pub(crate) fn say_wrapped(sentence: &str) {
    say(&wrapped_words(sentence, 2, line_columns()));
}

/// Replaces the file at `path` atomically: a reader sees the old or the new content, and a failure
/// leaves the old one. Anything but a regular file, such as /dev/null, is written to directly.
pub(crate) fn write_file(path: &Path, data: &[u8]) -> anyhow::Result<()> {
    write_to(Some(path), |file| Ok(file.write_all(data)?))
}

/// Checks that a file can be written at `path` later, before work whose result would be lost otherwise.
pub(crate) fn check_writable(path: &Path) -> anyhow::Result<()> {
    let failed = || format!("could not write {}", path.display());
    if path.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(failed);
    }
    // A pipe would be opened, and its reader would see its end.
    if is_written_directly(path) {
        return Ok(());
    }
    let Replacement { part, .. } = Replacement::of(path).with_context(failed)?;
    create_private(&part)
        .and_then(|_| fs::remove_file(&part))
        .with_context(failed)
}

fn replace_with<T>(path: &Path, make: impl FnOnce(File) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let failed = || format!("could not write {}", path.display());
    if is_written_directly(path) {
        return make(
            File::options()
                .write(true)
                .open(path)
                .with_context(failed)?,
        );
    }
    let Replacement { target, part } = Replacement::of(path).with_context(failed)?;
    let file = create_private(&part).with_context(failed)?;
    // A replaced file stays readable for those whom its owner let read it.
    if let Ok(known) = fs::metadata(&target) {
        file.set_permissions(known.permissions())
            .with_context(failed)?;
    }
    let made = make(file).and_then(|made| {
        fs::rename(&part, &target)
            .with_context(failed)
            .map(|()| made)
    });
    if made.is_err() {
        // The first failure matters more than a partial file that stays behind.
        let _ = fs::remove_file(&part);
    }
    made
}

/// A new file for its owner alone: it may have stacks, names and keys of tasks.
fn create_private(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Whether anything but a regular file is there.
fn is_written_directly(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|known| !known.is_file())
}

/// A file that takes the place of another one when it is complete.
struct Replacement {
    target: PathBuf,
    /// Next to the target, so on the same file system, with a name that no other run uses.
    part: PathBuf,
}

impl Replacement {
    fn of(path: &Path) -> io::Result<Replacement> {
        // The target of a link is replaced, not the link.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = target
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
        let mut part = std::ffi::OsString::from(".");
        part.push(name);
        part.push(format!(".{}.part", std::process::id()));
        Ok(Replacement {
            part: target.with_file_name(part),
            target,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_is_replaced_atomically_and_nothing_stays_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.svg");
        write_file(&path, b"old").unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_is_its_owners_and_a_replaced_one_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.svg");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write_file(&path, b"old").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(mode(), 0o644);
    }

    #[test]
    fn links_are_followed_and_devices_are_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let link = folder.path().join("link");
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_file(&link, b"new").unwrap();
        assert!(link.is_symlink() && fs::read(&file).unwrap() == b"new");
        write_file(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!Path::new("/dev/null").is_file());
    }

    #[test]
    fn names_in_json_cannot_act_on_a_terminal() {
        let json = "[\"\u{202e}gnp\u{7f}\"]".as_bytes().to_vec();
        assert_eq!(json_line(json), b"[\"\\u202egnp\\u007f\"]\n");
        assert_eq!(
            json_line(b"[\"\xff\"]".to_vec()),
            b"[\"\xff\"]\n",
            "no UTF-8, no JSON"
        );
        assert_eq!(json_text("\u{202e}").unwrap(), "\"\\u202e\"");
    }

    #[test]
    fn a_failure_names_the_path() {
        let error = write_file(Path::new("/no/such/folder/p.svg"), b"").unwrap_err();
        assert_eq!(error.to_string(), "could not write /no/such/folder/p.svg");
        assert!(write_file(Path::new("/"), b"").is_err());
        let error = write_file(Path::new("/dev/full"), &[0; 1 << 20]).unwrap_err();
        assert_eq!(error.to_string(), "could not write /dev/full");
    }

    #[test]
    fn a_check_does_not_open_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let (sender, checked) = mpsc::channel();
        thread::spawn(move || sender.send(check_writable(&pipe).is_ok()));
        assert_eq!(checked.recv_timeout(Duration::from_secs(20)), Ok(true));
    }

    #[test]
    fn a_check_fails_as_the_write_would_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.svg");
        check_writable(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(&path, "old").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        check_writable(Path::new("/dev/null")).unwrap();
        for impossible in ["/no/such/folder/p.svg", "/", "/tmp"] {
            let path = Path::new(impossible);
            let error = check_writable(path).unwrap_err();
            assert_eq!(
                error.to_string(),
                write_file(path, b"").unwrap_err().to_string()
            );
        }
    }
}
