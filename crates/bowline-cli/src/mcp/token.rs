//! The bearer token of a listening server.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use bowline_client::error::{CliError, failed};
use bowline_serve::token::random_hex;

/// The length limits of a server's own token, in bytes: long enough not to be guessed.
const OWN_TOKEN_BYTES: RangeInclusive<usize> = 16..=1024;

/// Returns the token in a file, or a new one, which is written to the file if one is named.
pub(super) fn load_or_create(file: Option<&Path>) -> Result<String, CliError> {
    let Some(file) = file else { return random_hex::<32>().map_err(failed) };
    match read_token(file, OWN_TOKEN_BYTES)? {
        Some(token) => Ok(token),
        None => {
            let token = random_hex::<32>().map_err(failed)?;
            write_token(file, &token).map_err(|error| {
                CliError::Usage(format!(
                    "--token-file {}: a new token cannot be written: {}",
                    file.display(),
                    error.kind()
                ))
            })?;
            Ok(token)
        }
    }
}

/// Returns the token in a file, if the file exists and is not empty. The token's length must be in the range.
pub(crate) fn read_token(path: &Path, lengths: RangeInclusive<usize>) -> Result<Option<String>, CliError> {
    let failed = |reason: String| CliError::Usage(format!("--token-file {}: {reason}", path.display()));
    // Opening a pipe would block until it has a writer.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.to_string())),
    };
    let metadata = file.metadata().map_err(|error| failed(error.to_string()))?;
    if !metadata.is_file() {
        return Err(failed("it is no regular file: name one, or one that is not there yet".to_owned()));
    }
    let mut bytes = Vec::new();
    let read = file.take(*lengths.end() as u64 + 2).read_to_end(&mut bytes);
    read.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&bytes);
    let token = text.trim();
    if token.is_empty() {
        return Ok(None);
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(failed("others can read it: make it yours alone with `chmod 600`".to_owned()));
    }
    let is_plain = token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain || !lengths.contains(&token.len()) {
        return Err(failed(format!(
            "a token has {} to {} letters and digits: empty the file for a new one",
            lengths.start(),
            lengths.end()
        )));
    }
    Ok(Some(token.to_owned()))
}

fn write_token(path: &Path, token: &str) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The file is never readable by others.
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.as_file().set_permissions(Permissions::from_mode(0o600))?;
    writeln!(file, "{token}")?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_new_private_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let token = load_or_create(Some(&file)).unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(load_or_create(Some(&file)).unwrap(), token);
        assert_ne!(load_or_create(None).unwrap(), token);
    }

    #[test]
    fn a_token_that_others_can_read_or_guess_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "a-token-that-is-long-enough\n").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(load_or_create(Some(&file)), Err(CliError::Usage(_))));
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(load_or_create(Some(&file)).unwrap(), "a-token-that-is-long-enough");
        std::fs::write(&file, "short").unwrap();
        assert!(matches!(load_or_create(Some(&file)), Err(CliError::Usage(_))));
    }
}
