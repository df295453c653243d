//! Where the collector listens: a port, or a Unix socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use profiler_core::Endpoint;
use profiler_core::endpoint::SOCKET_PATH_BYTES_MAX;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::SocketPeer;

/// Where a collector listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Listen {
    /// On a port.
    Network(SocketAddr),
    /// On a Unix socket, at this path.
    Unix(PathBuf),
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen::Network(address)
    }
}

/// A text that is not a place to listen.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected an address with a port, such as 127.0.0.1:4747, or unix:/PATH with at most {SOCKET_PATH_BYTES_MAX} bytes"
)]
pub struct ListenError;

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Listen, ListenError> {
        if text.starts_with("unix:") {
            return match Endpoint::parse(text) {
                Ok(Endpoint::Unix { path }) => Ok(Listen::Unix(path)),
                _ => Err(ListenError),
            };
        }
        text.parse().map(Listen::Network).map_err(|_| ListenError)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Network(address) => address.fmt(formatter),
            Listen::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// An open port or socket.
#[derive(Debug)]
pub enum Listener {
    Network(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A new connection.
#[derive(Debug)]
pub(super) enum Accepted {
    Network(TcpStream, SocketAddr),
    Unix(UnixStream, SocketPeer),
}

impl Listener {
    /// Opens a port or a socket. A socket's file is for its owner only, unless `is_shared`.
    ///
    /// # Errors
    /// `AddrInUse` if another process listens there; for a socket also `AlreadyExists` if the file is
    /// none.
    pub async fn bind(listen: &Listen, is_shared: bool) -> io::Result<Listener> {
        match listen {
            Listen::Network(address) => TcpListener::bind(address).await.map(Listener::Network),
            Listen::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                let file = SocketFile::of(path)?;
                // Until then, peers of other users are rejected by their credentials.
                let mode = if is_shared { 0o666 } else { 0o600 };
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
                Ok(Listener::Unix(listener, file))
            }
        }
    }

    /// Where it listens, with the selected port.
    pub fn address(&self) -> io::Result<Listen> {
        match self {
            Listener::Network(listener) => listener.local_addr().map(Listen::Network),
            Listener::Unix(_, file) => Ok(Listen::Unix(file.path.clone())),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Network(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(Accepted::Network(stream, address))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let credentials = stream.peer_cred()?;
                let process = credentials.pid().and_then(|id| u32::try_from(id).ok());
                let peer = SocketPeer {
                    user: credentials.uid(),
                    process: process.filter(|id| *id > 0),
                };
                Ok(Accepted::Unix(stream, peer))
            }
        }
    }
}

/// The file of a socket, which is removed with its listener.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        let inode = path.symlink_metadata()?.ino();
        Ok(SocketFile {
            path: path.to_owned(),
            inode,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another collector may have replaced it.
        let is_ours = self
            .path
            .symlink_metadata()
            .is_ok_and(|file| file.ino() == self.inode);
        if is_ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "the socket's file stays");
        }
    }
}

/// Removes a socket that nobody listens to any longer.
fn remove_stale(path: &Path) -> io::Result<()> {
    let file = match path.symlink_metadata() {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file is not a socket",
        ));
    }
    match BlockingUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        // Answered, or too busy to answer.
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}
