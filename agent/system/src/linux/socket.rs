//! The socket to the collector.

use std::fs::File;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};

use super::descriptors;
use super::file::CheckedFile;

/// The socket's lowest number in the agent's own table. Code of the program that runs on the agent's
/// threads, such as a subscriber of `tracing`, may write to a descriptor of the program, which there
/// is closed or a file that is open for reading only; it must never be this socket.
const NUMBER_MIN: u64 = 512;

/// Starts to connect. The socket does not block; it is connected, or has an error, once it can be
/// written to.
///
/// # Errors
/// If there is no socket, or it cannot connect to such an address.
pub fn connect(address: &SocketAddr) -> io::Result<CheckedFile> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let socket = open(family)?;
    send_at_once(socket.unchecked())?;
    let result = match address {
        SocketAddr::V4(address) => {
            // SAFETY: all zeros are a valid `sockaddr_in`.
            let mut raw: libc::sockaddr_in = unsafe { mem::zeroed() };
            raw.sin_family = libc::AF_INET as libc::sa_family_t;
            raw.sin_port = address.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
            connect_raw(socket.unchecked(), &raw)
        }
        SocketAddr::V6(address) => {
            // SAFETY: all zeros are a valid `sockaddr_in6`.
            let mut raw: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            raw.sin6_port = address.port().to_be();
            raw.sin6_addr.s6_addr = address.ip().octets();
            raw.sin6_scope_id = address.scope_id();
            connect_raw(socket.unchecked(), &raw)
        }
    };
    match result {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Connects to a Unix socket, at once or not at all: `WouldBlock` if the listener has too many
/// connections that it has not accepted.
///
/// # Errors
/// If nobody listens at `path`, or this user may not use it.
pub fn connect_unix(path: &Path) -> io::Result<CheckedFile> {
    let socket = open(libc::AF_UNIX)?;
    // SAFETY: all zeros are a valid `sockaddr_un`.
    let mut raw: libc::sockaddr_un = unsafe { mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // One byte is left for the final 0.
    if bytes.len() >= raw.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (place, byte) in raw.sun_path.iter_mut().zip(bytes) {
        *place = libc::c_char::from_ne_bytes([*byte]);
    }
    connect_raw(socket.unchecked(), &raw)?;
    Ok(socket)
}

/// Opens a socket that does not block.
fn open(family: libc::c_int) -> io::Result<CheckedFile> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes plain numbers.
    let number = Errno::result(unsafe { libc::socket(family, kind, 0) })?;
    let number = with_high_number(number);
    // SAFETY: the descriptor was opened above and has no other owner.
    let socket = CheckedFile::new(unsafe { File::from_raw_fd(number) });
    socket.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
}

fn connect_raw<A>(socket: &File, address: &A) -> Result<(), Errno> {
    let length = mem::size_of::<A>() as libc::socklen_t;
    let address = std::ptr::from_ref(address).cast();
    // SAFETY: `address` is a socket address of `length` bytes, valid for the call.
    let result = unsafe { libc::connect(socket.as_raw_fd(), address, length) };
    Errno::result(result).map(drop)
}

/// Makes the kernel send each message at once instead of waiting for more.
fn send_at_once(socket: &File) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = mem::size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const on).cast();
    let number = socket.as_raw_fd();
    // SAFETY: `value` is one integer of `length` bytes, valid for the call.
    let result =
        unsafe { libc::setsockopt(number, libc::IPPROTO_TCP, libc::TCP_NODELAY, value, length) };
    Ok(Errno::result(result).map(drop)?)
}

/// Moves a socket to a number of at least [`NUMBER_MIN`], if the limit on descriptors leaves room
/// for it. Returns its number.
fn with_high_number(socket: libc::c_int) -> libc::c_int {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    if descriptors::are_shared() || limit <= NUMBER_MIN {
        return socket;
    }
    // SAFETY: takes plain numbers.
    let copy = unsafe { libc::fcntl(socket, libc::F_DUPFD_CLOEXEC, NUMBER_MIN as libc::c_int) };
    if copy < 0 {
        return socket;
    }
    // SAFETY: the agent's own table; nothing else uses this number.
    unsafe { libc::close(socket) };
    copy
}

/// Waits until the socket can be read, if `for_data`, or written, if `for_room`.
pub fn wait(socket: &File, for_data: bool, for_room: bool, limit: Duration) {
    let data = if for_data { libc::POLLIN } else { 0 };
    let room = if for_room { libc::POLLOUT } else { 0 };
    poll(socket, data | room, limit);
}

/// Whether the socket can be written to, or has an error.
pub fn is_writable(socket: &File) -> bool {
    poll(socket, libc::POLLOUT, Duration::ZERO) != 0
}

/// Returns the events that the socket is ready for.
fn poll(socket: &File, events: libc::c_short, limit: Duration) -> libc::c_short {
    let mut polled = libc::pollfd {
        fd: socket.as_raw_fd(),
        events,
        revents: 0,
    };
    // Rounded up, or short waits would become a busy loop.
    let milliseconds = limit.as_nanos().div_ceil(1_000_000);
    let milliseconds = libc::c_int::try_from(milliseconds).unwrap_or(libc::c_int::MAX);
    // SAFETY: `polled` is one entry, valid for the call.
    let ready = unsafe { libc::poll(&raw mut polled, 1, milliseconds) };
    if ready > 0 { polled.revents } else { 0 }
}

/// Returns the result of the attempt to connect.
///
/// # Errors
/// Why it failed.
pub fn take_error(socket: &File) -> io::Result<()> {
    let mut error: libc::c_int = 0;
    let mut length = mem::size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw mut error).cast();
    let number = socket.as_raw_fd();
    // SAFETY: `value` is one integer of `length` bytes, valid for the call.
    let result = unsafe {
        libc::getsockopt(
            number,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            value,
            &raw mut length,
        )
    };
    Errno::result(result)?;
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}

/// Sends bytes without waiting; returns how many.
///
/// # Errors
/// `WouldBlock` if there is no room; otherwise the connection is lost.
pub fn send(socket: &File, bytes: &[u8]) -> io::Result<usize> {
    let number = socket.as_raw_fd();
    // SAFETY: `bytes` is valid for the call.
    let sent = unsafe {
        libc::send(
            number,
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    Ok(Errno::result(sent)? as usize)
}

/// Receives bytes without waiting; returns how many, 0 at the end.
///
/// # Errors
/// `WouldBlock` if there are none; otherwise the connection is lost.
pub fn receive(socket: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let number = socket.as_raw_fd();
    // SAFETY: `buffer` is valid for the call and has this length.
    let received = unsafe {
        libc::recv(
            number,
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT,
        )
    };
    Ok(Errno::result(received)? as usize)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn check(address: &str) {
        let listener = TcpListener::bind(address).unwrap();
        let connected = connect(&listener.local_addr().unwrap()).unwrap();
        let socket = connected.unchecked();
        let (mut peer, _) = listener.accept().unwrap();
        wait(socket, false, true, Duration::from_secs(60));
        assert!(is_writable(socket));
        take_error(socket).unwrap();
        let mut buffer = [0; 8];
        let nothing = receive(socket, &mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(send(socket, b"there").unwrap(), 5);
        peer.read_exact(&mut buffer[..5]).unwrap();
        peer.write_all(b"back").unwrap();
        wait(socket, true, false, Duration::from_secs(60));
        assert_eq!(
            (receive(socket, &mut buffer).unwrap(), &buffer[..4]),
            (4, &b"back"[..])
        );
        drop(peer);
        wait(socket, true, false, Duration::from_secs(60));
        assert_eq!(receive(socket, &mut buffer).unwrap(), 0);
    }

    #[test]
    fn bytes_cross_a_connection_of_either_family() {
        check("127.0.0.1:0");
        check("[::1]:0");
    }

    #[test]
    fn bytes_cross_a_unix_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let missing = connect_unix(&path).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        let socket = connect_unix(&path).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        assert_eq!(send(socket.unchecked(), b"there").unwrap(), 5);
        let mut buffer = [0; 5];
        peer.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"there");
        let long = connect_unix(&directory.path().join("a".repeat(108))).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidFilename);
    }

    #[test]
    fn a_refused_connection_is_an_error() {
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let refused = match connect(&address) {
            Err(error) => error,
            Ok(socket) => {
                wait(socket.unchecked(), false, true, Duration::from_secs(60));
                take_error(socket.unchecked()).unwrap_err()
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
