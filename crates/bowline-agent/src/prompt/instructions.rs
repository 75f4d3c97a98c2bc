//! The instructions of the project and the user for every model: `AGENTS.md`, and files named at startup.
//!
//! Only those in the session's own directories are read; the model is told to look for deeper ones itself.

use std::sync::Arc;

use bowline_protocol::rpc_error::RpcError;
use bowline_text::lines::LineWindow;
use bowline_workspace::files::FileBackend;
use futures_util::future::join_all;

use crate::prompt::{is_hidden, truncate_at_line};

/// The name of a project's instruction file.
pub const INSTRUCTIONS_FILE: &str = "AGENTS.md";

/// The most bytes used of one file.
pub const MAX_FILE_BYTES: usize = 64 << 10;

/// The most files named at startup, and the most directories searched.
pub const MAX_FILES: usize = 16;

/// The number of lines read of a file that is too large to be read whole.
const FIRST_LINES: u32 = 500;

/// The instructions of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instructions {
    /// The files, the user's own before the project's.
    pub files: Vec<InstructionFile>,
    /// Notes for the user about unreadable files.
    pub notes: Vec<String>,
}

/// Instructions from one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionFile {
    /// The file.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// Reads the instructions of a session in these directories, with `cwd` first; `explicit_files` were given at startup.
///
/// Missing files are normal, and not reported.
pub async fn read_instructions<F: FileBackend>(
    files: &F,
    directories: &[String],
    explicit_files: &[(String, Arc<str>)],
) -> Instructions {
    let mut instructions = Instructions::default();
    for (file, text) in explicit_files.iter().take(MAX_FILES) {
        instructions.add_file(file, text);
    }
    let reads = directories.iter().take(MAX_FILES).map(|directory| async move {
        let path = format!("{}/{INSTRUCTIONS_FILE}", directory.trim_end_matches('/'));
        let read = read_instruction_file(files, &path).await;
        (path, read)
    });
    // Concurrently, so that a slow file does not delay the others.
    for (path, read) in join_all(reads).await {
        match read {
            Ok(text) => instructions.add_file(&path, &text),
            Err(RpcError::ResourceNotFound { .. }) => {}
            Err(error) => instructions.notes.push(format!("{path} could not be read: {error}.")),
        }
    }
    instructions
}

async fn read_instruction_file<F: FileBackend>(files: &F, path: &str) -> Result<Arc<String>, RpcError> {
    match files.read(path, LineWindow::default()).await {
        Err(RpcError::TooLarge { .. }) => {
            let window = LineWindow { line: None, limit: Some(FIRST_LINES) };
            files.read(path, window).await.map(|read| read.text)
        }
        read => read.map(|read| read.text),
    }
}

impl Instructions {
    fn add_file(&mut self, file: &str, text: &str) {
        let truncated = truncate_at_line(text, MAX_FILE_BYTES);
        if truncated.len() < text.len() {
            self.notes.push(format!(
                "Of {file} the model is told {} of {} bytes.",
                truncated.len(),
                text.len()
            ));
        }
        let text = strip_hidden_characters(truncated);
        let is_duplicate = self.files.iter().any(|known| known.text == text);
        if !text.is_empty() && !is_duplicate {
            self.files.push(InstructionFile { path: file.to_owned(), text });
        }
    }
}

/// Returns the text without characters that are invisible to a reviewer of the file.
fn strip_hidden_characters(text: &str) -> String {
    let is_visible = |character: &char| {
        matches!(character, '\n' | '\t') || !(character.is_control() || is_hidden(*character))
    };
    text.chars().filter(is_visible).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests;
