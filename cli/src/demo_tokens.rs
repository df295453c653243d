//! Tokens of a demo: they live as long as it does, in its memory. Files of this user have them too, so that
//! other commands work without any preparation.
//!
//! A file is locked while its demo runs. So the file that a killed demo left behind is never used, and
//! nobody gets the token of a running demo but the owner of the port in the file's name.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use collector::auth::{NewToken, Role, TokenFileError, TokenRecord};
use nix::libc::O_NOFOLLOW;
use nix::unistd::geteuid;
use profiler_core::{Endpoint, Token};

use crate::client::with_scheme;
use crate::credentials::read_token;

/// The tokens of a new demo.
#[derive(Debug)]
pub(crate) struct DemoTokens {
    pub(crate) agent: Token,
    pub(crate) operator: Token,
    /// For the collector.
    pub(crate) records: Vec<TokenRecord>,
}

impl DemoTokens {
    /// # Errors
    /// If the system has no random bytes.
    pub(crate) fn create() -> Result<DemoTokens, TokenFileError> {
        let now = jiff::Timestamp::now();
        let (agent, agent_record) = demo_token(Role::Agent).create(&[], now)?;
        let others = [agent_record.clone()];
        let (operator, operator_record) = demo_token(Role::Operator).create(&others, now)?;
        Ok(DemoTokens {
            agent,
            operator,
            records: vec![agent_record, operator_record],
        })
    }
}

fn demo_token(role: Role) -> NewToken {
    NewToken {
        note: "demo".to_owned(),
        ..NewToken::new(role)
    }
}

/// The files of a running demo; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct DemoTokenFiles {
    pub(crate) agent: LockedFile,
    _operator: LockedFile,
}

impl DemoTokenFiles {
    /// Writes the tokens of the demo at this address.
    ///
    /// # Errors
    /// If the user has no directory for such files, or it cannot be written.
    pub(crate) fn write(address: SocketAddr, tokens: &DemoTokens) -> io::Result<DemoTokenFiles> {
        let directory = directory(|name| std::env::var_os(name))
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "HOME is not set"))?;
        DemoTokenFiles::write_in(&directory, address, tokens)
    }

    fn write_in(
        directory: &Path,
        address: SocketAddr,
        tokens: &DemoTokens,
    ) -> io::Result<DemoTokenFiles> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let path = |role| path(directory, address, role);
        Ok(DemoTokenFiles {
            agent: LockedFile::write(path(Role::Agent), &tokens.agent)?,
            _operator: LockedFile::write(path(Role::Operator), &tokens.operator)?,
        })
    }
}

/// A file with a token that only this user can read, locked and removed by this process.
#[derive(Debug)]
pub(crate) struct LockedFile {
    pub(crate) path: PathBuf,
    /// Holds the lock.
    lock: File,
}

impl LockedFile {
    fn write(path: PathBuf, token: &Token) -> io::Result<LockedFile> {
        // Left behind by a demo that was killed.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let mut written = LockedFile { path, lock: file };
        written.lock.lock()?;
        written.lock.write_all(token.expose().as_bytes())?;
        Ok(written)
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Without its lock the file is of no use to anybody.
        let _ = fs::remove_file(&self.path);
    }
}

/// The operator's token of this user's demo at `url`, if one runs there. Only its exact address counts: a
/// host name may belong to somebody else.
pub(crate) fn find(url: &str) -> Option<Token> {
    let address = address_of(url)?;
    let directory = directory(|name| std::env::var_os(name))?;
    read_locked(&path(&directory, address, Role::Operator))
}

/// The address of a collector at a plain URL, if it needs no lookup.
fn address_of(url: &str) -> Option<SocketAddr> {
    let Ok(Endpoint::Plain { authority }) = Endpoint::parse(&with_scheme(url)) else {
        return None;
    };
    let local = authority
        .strip_prefix("localhost:")
        .map(|port| format!("127.0.0.1:{port}"));
    local.unwrap_or(authority).parse().ok()
}

/// The token in a file that a running process of this user has locked.
fn read_locked(path: &Path) -> Option<Token> {
    let own = geteuid().as_raw();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    if metadata.uid() != own || metadata.mode() & 0o077 != 0 || !metadata.is_file() {
        return None;
    }
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    read_token(&file).ok()
}

/// Where this user's programs keep such files, by the XDG base directory specification.
fn directory(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_RUNTIME_DIR")
        .or_else(|| absolute("XDG_STATE_HOME"))
        .or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(base.join("emberline"))
}

fn path(directory: &Path, address: SocketAddr, role: Role) -> PathBuf {
    directory.join(format!("demo-{}-{}.{role}", address.ip(), address.port()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_collectors_address_has_many_spellings() {
        let expected = "127.0.0.1:4747".parse().ok();
        for url in [
            "http://127.0.0.1:4747",
            "127.0.0.1:4747",
            "http://localhost:4747/",
        ] {
            assert_eq!(address_of(url), expected, "{url}");
        }
        for url in [
            "https://127.0.0.1:4747",
            "http://collector.example:4747",
            "unix:/socket",
        ] {
            assert_eq!(address_of(url), None, "{url}");
        }
    }

    #[test]
    fn a_file_is_used_only_while_its_demo_runs_and_only_by_its_owner() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("emberline");
        let address = "127.0.0.1:4747".parse().unwrap();
        let tokens = DemoTokens::create().unwrap();
        let operator = path(&directory, address, Role::Operator);
        assert_eq!(read_locked(&operator), None);

        let files = DemoTokenFiles::write_in(&directory, address, &tokens).unwrap();
        assert_eq!(read_locked(&operator), Some(tokens.operator.clone()));
        assert_eq!(read_locked(&files.agent.path), Some(tokens.agent.clone()));
        assert_eq!((mode(&directory), mode(&operator)), (0o700, 0o600));

        let link = directory.join("link");
        std::os::unix::fs::symlink(&operator, &link).unwrap();
        assert_eq!(
            read_locked(&link),
            None,
            "another user may own what a link names"
        );
        fs::set_permissions(&operator, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read_locked(&operator), None, "other users may read it");

        drop(files);
        assert!(!operator.exists());
        fs::write(&operator, tokens.operator.expose()).unwrap();
        fs::set_permissions(&operator, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_locked(&operator), None, "its demo was killed");
        let next = DemoTokens::create().unwrap();
        let _files = DemoTokenFiles::write_in(&directory, address, &next).unwrap();
        assert_eq!(read_locked(&operator), Some(next.operator));
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_the_exact_address_is_a_demo() {
        for url in [
            "http://localhost:4747",
            "https://127.0.0.1:4747",
            "unix:/x",
            "127.0.0.1",
            "",
        ] {
            assert_eq!(find(url), None, "{url}");
        }
    }

    #[test]
    fn the_directory_is_the_users_own() {
        let home = ("HOME", "/home/ada");
        assert_eq!(
            found(&[home]).as_deref(),
            Some("/home/ada/.local/state/emberline")
        );
        let state = ("XDG_STATE_HOME", "/state");
        assert_eq!(found(&[home, state]).as_deref(), Some("/state/emberline"));
        let runtime = ("XDG_RUNTIME_DIR", "/run/user/7");
        assert_eq!(
            found(&[home, state, runtime]).as_deref(),
            Some("/run/user/7/emberline")
        );
        assert_eq!(found(&[("HOME", "relative")]), None);
        assert_eq!(found(&[]), None);
    }

    fn found(set: &[(&str, &str)]) -> Option<String> {
        directory(|name: &str| {
            let found = set.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| OsString::from(value))
        })
        .map(|path| path.display().to_string())
    }
}
