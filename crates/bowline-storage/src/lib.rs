//! Private state on disk: files and directories that only their owner can use, locks between processes, and SQLite
//! databases that survive damage.
//!
//! The journal, the audit log, the policy file and the agent's stored sessions use it. A [`DatabaseKind`] describes one
//! database: its schema, its format, and its name in errors. A new database is created under a temporary name and
//! renamed when it is complete. An unusable one is set aside as a whole and replaced by a new one with everything that
//! could be salvaged; if that is interrupted, the next process that opens it finishes.
//!
//! [`disk_calls`] is the gate before every call that changes the disk, through which tests inject failures.
//! [`clock`] and [`file_clock`] are the two clocks.

pub mod clock;
mod database;
mod database_file;
pub mod disk_calls;
mod error;
pub mod file_clock;
mod inspect;
mod lock;
mod private_file;

pub use database::{Database, DatabaseKind, Durability, NewerFormatPolicy, SetAsideDatabase};
pub use database_file::DatabaseFile;
pub use error::{DatabaseName, FileError, StorageError, TransactionError, UnusableReason, is_damage};
pub use lock::{FileLock, LockMode, lock_with_timeout};
pub use private_file::{
    OpenMode, create_directory, make_private, open_private, replace_file, sync_directory, with_suffix,
};
