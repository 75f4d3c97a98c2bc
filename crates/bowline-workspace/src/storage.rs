//! Private state on disk: files and directories that only their owner can use, locks between processes, and SQLite
//! databases that survive damage.
//!
//! The journal, the audit log, the file of rules and the agent's stored sessions are kept with it.

mod database;
mod database_file;
mod error;
mod inspect;
mod lock;
mod private;

pub use database::{Database, DatabaseKind, Durability, Newer, SetAside};
pub use database_file::DatabaseFile;
pub use error::{DatabaseName, Fault, FileError, StorageError, Unusable, is_damage};
pub use lock::{FileLock, Sharing};
pub use private::{OpenMode, create_directory, replace_file};

pub(crate) use lock::lock_within;
pub(crate) use private::{open_private, restrict, sync_directory, with_suffix};
