//! A folder for a socket.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;

/// Most names of folders that are tried.
const FOLDERS_MAX: u32 = 100;

/// A folder of this user alone, removed when it is dropped.
pub(crate) struct PrivateFolder {
    pub(crate) path: PathBuf,
}

impl PrivateFolder {
    pub(crate) fn create() -> io::Result<PrivateFolder> {
        let process = std::process::id();
        let mut result = Err(io::ErrorKind::AlreadyExists.into());
        for number in 0..FOLDERS_MAX {
            let path = std::env::temp_dir().join(format!("emberline-{process}-{number}"));
            // Fails if anything has that name, so nobody else can have prepared it.
            result = DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .map(|()| PrivateFolder { path });
            match &result {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                _ => break,
            }
        }
        result
    }
}

impl PrivateFolder {
    /// Lets processes of other users open files in it whose names they know.
    ///
    /// # Errors
    /// If the system refuses that.
    pub(crate) fn let_others_pass(&self) -> io::Result<()> {
        fs::set_permissions(&self.path, Permissions::from_mode(0o711))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // It holds nothing but a socket; what stays behind does no harm.
        let _ = fs::remove_dir_all(&self.path);
    }
}
