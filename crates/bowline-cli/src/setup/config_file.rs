//! Atomic replacement of an editor's file, with a backup beside it.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use bowline_text::diff::{DiffContent, DiffSide, FileDiff, format_unified_diff};

use super::jsonc::MAX_BYTES;

/// The maximum number of backups.
const MAX_BACKUPS: usize = 1_000;

/// A file as it was read.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// Its text.
    pub(super) text: String,
    // Its resolved path: a link to the file stays a link.
    path: PathBuf,
}

/// Reads a file, if there is one.
pub(super) fn read(path: &Path) -> Result<Option<ConfigFile>> {
    let resolved = match path.canonicalize() {
        Ok(resolved) => resolved,
        Err(error) if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => {
            return Ok(None);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("it is a link that leads nowhere"),
        Err(error) => return Err(error.into()),
    };
    if !resolved.metadata()?.is_file() {
        bail!("it is not a regular file");
    }
    let mut bytes = Vec::new();
    File::open(&resolved)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).ok().context("it is not UTF-8")?;
    Ok(Some(ConfigFile { text, path: resolved }))
}

/// Returns the diff of a replacement.
pub(super) fn diff(path: &Path, before: Option<&str>, after: &str) -> String {
    let name = path.display().to_string();
    let side = |text| DiffSide { content: DiffContent::Text(text), mode: 0o644 };
    let name = name.trim_start_matches('/');
    format_unified_diff(&FileDiff { path: name, before: before.map(side), after: Some(side(after)) }, 3)
}

/// Replaces the file that was read, and returns the path of its backup. On failure, the file is unchanged.
pub(super) fn replace(path: &Path, before: Option<&ConfigFile>, after: &str) -> Result<Option<PathBuf>> {
    let target = before.map_or(path, |before| &before.path);
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut new = tempfile::Builder::new().prefix(".bowline-setup-").tempfile_in(directory)?;
    new.write_all(after.as_bytes())?;
    if before.is_some() {
        copy_owner_and_mode(new.as_file(), target)?;
    }
    new.as_file().sync_all()?;
    let Some(before) = before else {
        // A file that was created meanwhile is not replaced.
        new.persist_noclobber(target).map_err(|error| error.error)?;
        return Ok(None);
    };
    let backup = back_up(before)?;
    let current = fs::read(target)?;
    if current != before.text.as_bytes() {
        bail!("it was changed meanwhile: try again");
    }
    new.persist(target).map_err(|error| error.error)?;
    File::open(directory)?.sync_all()?;
    Ok(Some(backup))
}

/// Copies the owner and permissions of another file: root may set up another user's editor.
fn copy_owner_and_mode(file: &File, other: &Path) -> Result<()> {
    let (metadata, reference) = (file.metadata()?, other.metadata()?);
    if (metadata.uid(), metadata.gid()) != (reference.uid(), reference.gid()) {
        fchown(file, Some(reference.uid()), Some(reference.gid())).context("it belongs to another user")?;
    }
    Ok(file.set_permissions(reference.permissions())?)
}

/// Backs the file up under an unused name, unless a backup with the same content exists.
fn back_up(before: &ConfigFile) -> Result<PathBuf> {
    for number in 1..=MAX_BACKUPS {
        let mut name = before.path.clone().into_os_string();
        name.push(if number == 1 {
            ".before-bowline".to_owned()
        } else {
            format!(".before-bowline-{number}")
        });
        let path = PathBuf::from(name);
        match File::create_new(&path) {
            Ok(mut file) => {
                copy_owner_and_mode(&file, &before.path)?;
                file.write_all(before.text.as_bytes())?;
                file.sync_all()?;
                return Ok(path);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if fs::read(&path).is_ok_and(|copy| copy == before.text.as_bytes()) {
                    return Ok(path);
                }
            }
            Err(error) => return Err(error).with_context(|| format!("cannot make {}", path.display())),
        }
    }
    bail!("there are {MAX_BACKUPS} copies of it already: remove some")
}
