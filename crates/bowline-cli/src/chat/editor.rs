//! The user's own editor, for long prompts and for texts that an agent wants to write.

use std::io::Write as _;

/// Opens a text in the editor that `$VISUAL` or `$EDITOR` names, and returns the edited text of at most `most` bytes.
/// The editor's file has a name that ends with `suffix`.
pub(super) async fn edit_text(text: &str, suffix: &str, most: usize) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("the text cannot be edited: {error}");
    let mut file = tempfile::Builder::new().prefix("bowline-").suffix(suffix).tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(failed)?;
    let path = file.into_temp_path();
    let named = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    let editor =
        named.into_iter().find(|editor| !editor.trim().is_empty()).unwrap_or_else(|| "vi".to_owned());
    // The variable may hold a command with options, as in `code --wait`.
    let mut command = tokio::process::Command::new("sh");
    command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(&path).kill_on_drop(true);
    let status = command.status().await.map_err(failed)?;
    if !status.success() {
        return Err(format!("the text is as it was: {editor} failed; set $EDITOR to another one"));
    }
    let edited = std::fs::read_to_string(&path).map_err(failed)?;
    match edited.len() > most {
        true => Err(format!("the text is as it was: it may have {most} bytes at most")),
        false => Ok(edited),
    }
}
