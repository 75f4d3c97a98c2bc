//! Private state on disk: files and directories that only their owner can use, locks between processes, and SQLite
//! databases that survive damage.
//!
//! The journal, the audit log, the policy file and the agent's stored sessions use it. A [`DatabaseKind`] describes one
//! database: its schema, its format, and its name in errors. A new database is created under a temporary name and
//! renamed when it is complete. An unusable one is set aside as a whole and replaced by a new one with everything that
//! could be salvaged; if that is interrupted, the next process that opens it finishes.

mod database;
mod database_file;
mod error;
mod inspect;
mod lock;
mod private_file;

pub use database::{Database, DatabaseKind, Durability, NewerFormatPolicy, SetAsideDatabase};
pub use database_file::DatabaseFile;
pub use error::{DatabaseName, FileError, StorageError, TransactionError, UnusableReason, is_damage};
pub use lock::{FileLock, LockMode};
pub use private_file::{OpenMode, create_directory, replace_file};

pub(crate) use lock::lock_with_timeout;
pub(crate) use private_file::{make_private, open_private, sync_directory, with_suffix};
