//! The user's own editor, for long prompts and for texts that an agent wants to write.

use std::io::Write as _;

/// Opens a text in the editor that `$VISUAL` or `$EDITOR` names, and returns the edited text of at most `max_bytes`
/// bytes. The editor's file has a name that ends with `suffix`.
pub(crate) async fn edit_text(text: &str, suffix: &str, max_bytes: usize) -> Result<String, String> {
    let describe_error = |error: std::io::Error| format!("the text cannot be edited: {error}");
    let mut file =
        tempfile::Builder::new().prefix("bowline-").suffix(suffix).tempfile().map_err(describe_error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(describe_error)?;
    let path = file.into_temp_path();
    let candidates = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    let editor =
        candidates.into_iter().find(|editor| !editor.trim().is_empty()).unwrap_or_else(|| "vi".to_owned());
    // The variable may hold a command with options, as in `code --wait`.
    let mut command = tokio::process::Command::new("sh");
    command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(&path).kill_on_drop(true);
    let status = command.status().await.map_err(describe_error)?;
    if !status.success() {
        return Err(format!("the text is as it was: {editor} failed; set $EDITOR to another one"));
    }
    let edited = std::fs::read_to_string(&path).map_err(describe_error)?;
    match edited.len() > max_bytes {
        true => Err(format!("the text is as it was: it may have {max_bytes} bytes at most")),
        false => Ok(edited),
    }
}
