//! What the project and the user want every model to know: `AGENTS.md` and files named at the start.
//!
//! Only those in the session's own directories are read; for deeper ones the model is told to look itself.

use std::sync::Arc;

use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_workspace::files::Files;
use futures_util::future::join_all;

use crate::prompting::{cut, is_hidden};

/// The name of the file that a project keeps its instructions in.
pub const FILE: &str = "AGENTS.md";

/// Of one file at most this many bytes are told.
pub const MAX_FILE: usize = 64 << 10;

/// Files named at the start and directories are looked at up to this many each.
pub const MAX_FILES: usize = 16;

/// Of a file that is too large to be read as a whole, so many lines are.
const FIRST_LINES: u32 = 500;

/// What a session's model is told beside the agent's own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instructions {
    /// The texts, the user's own before the project's.
    pub texts: Vec<Instruction>,
    /// What could not be read, for the user to know.
    pub notes: Vec<String>,
}

/// Instructions from one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The file.
    pub file: String,
    /// What it says.
    pub text: String,
}

/// Reads the instructions of a session in these directories, `cwd` being the first; `named` were given at the start.
///
/// That there are none is usual, and nothing is said about it.
pub async fn read<F: Files>(files: &F, directories: &[String], named: &[(String, Arc<str>)]) -> Instructions {
    let mut found = Instructions::default();
    for (file, text) in named.iter().take(MAX_FILES) {
        found.add(file, text);
    }
    let looks = directories.iter().take(MAX_FILES).map(|directory| async move {
        let path = format!("{}/{FILE}", directory.trim_end_matches('/'));
        let read = read_one(files, &path).await;
        (path, read)
    });
    // All at once: one that takes long does not make the others late.
    for (path, read) in join_all(looks).await {
        match read {
            Ok(text) => found.add(&path, &text),
            Err(Failure::ResourceNotFound { .. }) => {}
            Err(why) => found.notes.push(format!("{path} could not be read: {why}.")),
        }
    }
    found
}

async fn read_one<F: Files>(files: &F, path: &str) -> Result<Arc<String>, Failure> {
    match files.read(path, Window::default()).await {
        Err(Failure::TooLarge { .. }) => {
            let window = Window { line: None, limit: Some(FIRST_LINES) };
            files.read(path, window).await.map(|read| read.text)
        }
        read => read.map(|read| read.text),
    }
}

impl Instructions {
    fn add(&mut self, file: &str, text: &str) {
        let shown = cut(text, MAX_FILE);
        if shown.len() < text.len() {
            self.notes.push(format!("Of {file} the model is told {} of {} bytes.", shown.len(), text.len()));
        }
        let text = cleaned(shown);
        let again = self.texts.iter().any(|known| known.text == text);
        if !text.is_empty() && !again {
            self.texts.push(Instruction { file: file.to_owned(), text });
        }
    }
}

/// Returns the text without what a person who reviewed the file would not have seen.
fn cleaned(text: &str) -> String {
    let seen = |character: &char| {
        matches!(character, '\n' | '\t') || !(character.is_control() || is_hidden(*character))
    };
    text.chars().filter(seen).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests;
