//! The observer's baseline: the state of each file at the last scan.

use bowline_history::observation::{FileStamp, KnownFile};
use bowline_text::hash::ContentHash;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::JournalTransactionError;
use super::rows::HashColumn;
use crate::git_objects::GitObjectId;

/// One file of the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineRow {
    /// The file.
    pub path: String,
    /// Its state.
    pub known: KnownFile,
    /// The object in a git repository that has its bytes, if the journal does not store them for that reason.
    pub git_object: Option<GitObjectId>,
}

/// Passes on the baseline, by path.
pub(super) fn visit_baseline(
    connection: &Connection,
    mut visit: impl FnMut(BaselineRow),
) -> Result<(), JournalTransactionError> {
    let mut statement = connection.prepare(
        "SELECT path, size, mtime_ns, ctime_ns, inode, device, mode, hash, racy, git_object FROM baseline \
         ORDER BY path",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let stamp = FileStamp {
            size: row.get::<_, i64>(1)?.cast_unsigned(),
            mtime_ns: row.get(2)?,
            ctime_ns: row.get(3)?,
            inode: row.get::<_, i64>(4)?.cast_unsigned(),
            device: row.get::<_, i64>(5)?.cast_unsigned(),
            mode: row.get(6)?,
        };
        let hash = row.get::<_, Option<HashColumn>>(7)?.map(|HashColumn(hash)| hash);
        visit(BaselineRow {
            path: row.get(0)?,
            known: KnownFile { stamp, hash, is_racy: row.get(8)? },
            git_object: row.get::<_, Option<[u8; 20]>>(9)?.map(GitObjectId::from),
        });
    }
    Ok(())
}

/// How many texts that left the baseline are still found in git.
const MAX_FORMER_TEXTS: i64 = 200_000;

/// Returns the git object that has a text which is or was in the baseline.
pub(super) fn find_git_object(
    connection: &Connection,
    path: &str,
    hash: &ContentHash,
) -> Result<Option<GitObjectId>, JournalTransactionError> {
    let sql = "SELECT git_object FROM baseline WHERE path = ?1 AND hash = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let object = statement.query_row(params![path, hash.as_bytes()], |row| row.get::<_, Option<[u8; 20]>>(0));
    if let Some(object) = object.optional()?.flatten() {
        return Ok(Some(object.into()));
    }
    let mut statement = connection.prepare_cached("SELECT git_object FROM git_texts WHERE hash = ?1")?;
    let object = statement.query_row([hash.as_bytes()], |row| row.get::<_, [u8; 20]>(0));
    Ok(object.optional()?.map(GitObjectId::from))
}

/// Returns the packs that have the git objects of the baseline.
pub(super) fn read_git_packs(connection: &Connection) -> Result<Vec<String>, JournalTransactionError> {
    let mut statement = connection.prepare("SELECT path FROM git_packs ORDER BY path")?;
    Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// Adds packs that have git objects of the baseline.
pub(super) fn add_git_packs(
    connection: &Connection,
    paths: &[String],
) -> Result<(), JournalTransactionError> {
    let mut statement = connection.prepare_cached("INSERT OR IGNORE INTO git_packs (path) VALUES (?1)")?;
    for path in paths {
        statement.execute([path])?;
    }
    Ok(())
}

/// Removes some files from the baseline, then inserts others.
pub(super) fn update_baseline(
    connection: &Connection,
    upsert: &[BaselineRow],
    remove: &[String],
) -> Result<(), JournalTransactionError> {
    let mut keep_text = connection.prepare_cached(
        "INSERT OR IGNORE INTO git_texts (hash, git_object) SELECT hash, git_object FROM baseline \
         WHERE path = ?1 AND git_object IS NOT NULL AND hash IS NOT NULL AND hash IS NOT ?2",
    )?;
    let mut statement = connection.prepare_cached("DELETE FROM baseline WHERE path = ?1")?;
    let mut kept = 0;
    for path in remove {
        kept += keep_text.execute(params![path, None::<&[u8]>])?;
        statement.execute([path])?;
    }
    let mut statement = connection.prepare_cached(
        "INSERT INTO baseline (path, size, mtime_ns, ctime_ns, inode, device, mode, hash, racy, git_object) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
         ON CONFLICT (path) DO UPDATE SET size = ?2, mtime_ns = ?3, ctime_ns = ?4, inode = ?5, device = ?6, mode = ?7, \
         git_object = coalesce(?10, iif(hash = ?8, git_object, NULL)), hash = ?8, racy = ?9",
    )?;
    for row in upsert {
        let KnownFile { stamp, hash, is_racy } = &row.known;
        let hash = hash.as_ref().map(ContentHash::as_bytes);
        kept += keep_text.execute(params![row.path, hash])?;
        statement.execute(params![
            row.path,
            stamp.size.cast_signed(),
            stamp.mtime_ns,
            stamp.ctime_ns,
            stamp.inode.cast_signed(),
            stamp.device.cast_signed(),
            stamp.mode,
            hash,
            is_racy,
            row.git_object.as_ref().map(GitObjectId::as_bytes),
        ])?;
    }
    if kept > 0 {
        let sql = "DELETE FROM git_texts WHERE number <= (SELECT max(number) FROM git_texts) - ?1";
        connection.execute(sql, [MAX_FORMER_TEXTS])?;
    }
    Ok(())
}
