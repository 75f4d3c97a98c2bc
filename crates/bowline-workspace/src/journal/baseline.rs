//! The observation's baseline: what each file looked like when it was last looked at.

use bowline_state::changes::ContentHash;
use rusqlite::{Connection, params};

use super::error::Fault;
use super::rows::Hash;

/// One file of the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineRow {
    /// The file.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// When its bytes changed last, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// When anything about it changed last, in nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Its number on its device.
    pub inode: u64,
    /// The device it is on.
    pub device: u64,
    /// Its type and permission bits.
    pub mode: u32,
    /// Its bytes, if they were read.
    pub hash: Option<ContentHash>,
    /// It changed so shortly before it was looked at that a later change might leave the same times.
    pub racy: bool,
}

/// Returns the baseline, by path.
pub(super) fn all(connection: &Connection) -> Result<Vec<BaselineRow>, Fault> {
    let mut statement = connection.prepare(
        "SELECT path, size, mtime_ns, ctime_ns, inode, device, mode, hash, racy FROM baseline ORDER BY path",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(BaselineRow {
            path: row.get(0)?,
            size: row.get::<_, i64>(1)?.cast_unsigned(),
            mtime_ns: row.get(2)?,
            ctime_ns: row.get(3)?,
            inode: row.get::<_, i64>(4)?.cast_unsigned(),
            device: row.get::<_, i64>(5)?.cast_unsigned(),
            mode: row.get(6)?,
            hash: row.get::<_, Option<Hash>>(7)?.map(|Hash(hash)| hash),
            racy: row.get(8)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Removes some files from the baseline, then puts others in.
pub(super) fn update(
    connection: &Connection,
    upsert: &[BaselineRow],
    remove: &[String],
) -> Result<(), Fault> {
    let mut statement = connection.prepare("DELETE FROM baseline WHERE path = ?1")?;
    for path in remove {
        statement.execute([path])?;
    }
    let mut statement = connection.prepare(
        "INSERT OR REPLACE INTO baseline (path, size, mtime_ns, ctime_ns, inode, device, mode, hash, racy) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for row in upsert {
        statement.execute(params![
            row.path,
            row.size.cast_signed(),
            row.mtime_ns,
            row.ctime_ns,
            row.inode.cast_signed(),
            row.device.cast_signed(),
            row.mode,
            row.hash.as_ref().map(ContentHash::as_bytes),
            row.racy,
        ])?;
    }
    Ok(())
}
