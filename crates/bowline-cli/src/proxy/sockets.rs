//! The socket directory of one proxy: created when the first socket is needed, and removed at exit. A killed program
//! leaves its directory, with dead sockets, to the system that cleans up temporary files.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::TempDir;

/// The prefix of directory names.
const DIR_PREFIX: &str = "bowline-proxy-";

/// The socket directory of this program, once created.
pub(super) struct SocketDir {
    base: PathBuf,
    created: Arc<Mutex<Option<TempDir>>>,
}

impl SocketDir {
    /// Returns a directory that is not created yet.
    pub(super) fn new_in(base: PathBuf) -> Self {
        Self { base, created: Arc::default() }
    }

    /// Returns a function that creates the directory, for the user alone, at its first use. The directory is removed
    /// with `self`.
    pub(super) fn create_on_demand(&self) -> Box<dyn Fn() -> io::Result<PathBuf> + Send> {
        let (base, created) = (self.base.clone(), Arc::downgrade(&self.created));
        Box::new(move || {
            let shutdown_error = || io::Error::other("the program ends");
            let created = created.upgrade().ok_or_else(shutdown_error)?;
            let mut created = created.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(created) = &*created {
                return Ok(created.path().to_owned());
            }
            let permissions = Permissions::from_mode(0o700);
            let new =
                tempfile::Builder::new().prefix(DIR_PREFIX).permissions(permissions).tempdir_in(&base)?;
            Ok(created.insert(new).path().to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_the_users_alone_and_goes_with_the_program() {
        let base = tempfile::tempdir().unwrap();
        let sockets = SocketDir::new_in(base.path().to_owned());
        let create = sockets.create_on_demand();
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
        let path = create().unwrap();
        assert_eq!(create().unwrap(), path);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("1.sock"), "").unwrap();
        drop(sockets);
        assert!(!path.exists());
        create().unwrap_err();
    }
}
