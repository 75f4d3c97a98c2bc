//! The effect of a batch on one path, for display and questions.

use std::sync::Arc;

use bowline_policy::operation::Operation;
use bowline_policy::paths::LexicalPath;
use bowline_policy::question::{QuestionItem, TextChange};
use bowline_workspace::workspace::{FileContent, FilePreview};

/// A state of a file, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileSide {
    Absent,
    Text(Arc<String>),
    // A directory, or bytes that are not text.
    Opaque,
}

impl FileSide {
    pub(super) fn from_content(content: Option<&FileContent>) -> Self {
        match content {
            None => Self::Absent,
            // Of a large file only what is appended is shown.
            Some(FileContent::Text(text) | FileContent::Large { added: Some(text), .. }) => {
                Self::Text(text.clone())
            }
            Some(FileContent::Binary { .. } | FileContent::Large { added: None, .. }) => Self::Opaque,
        }
    }

    pub(super) fn text(&self) -> Option<&Arc<String>> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Opaque => None,
        }
    }
}

/// The effect of a batch on one path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AffectedFile {
    // As it was requested.
    pub(super) path: String,
    // Without symbolic links, where the engine knows it.
    pub(super) resolved: String,
    pub(super) before: FileSide,
    pub(super) after: FileSide,
    pub(super) moved_from: Option<String>,
}

impl AffectedFile {
    pub(super) fn new(path: &LexicalPath, before: FileSide, after: FileSide) -> Self {
        let path = path.as_str().to_owned();
        Self { resolved: path.clone(), path, before, after, moved_from: None }
    }

    pub(super) fn from_preview(file: &FilePreview) -> Self {
        let before = match &file.before {
            Some(FileContent::Large { .. }) => FileSide::Text(Arc::default()),
            before => FileSide::from_content(before.as_ref()),
        };
        Self {
            path: file.requested.clone(),
            resolved: file.path.clone(),
            before,
            after: FileSide::from_content(file.after.as_ref()),
            moved_from: file.moved_from.clone(),
        }
    }
}

/// Returns the operation as a person is asked about it, with its texts as far as both are text.
pub(super) fn to_item(operation: Operation, before: &FileSide, after: &FileSide) -> QuestionItem {
    let (before, after) = match (before, after) {
        (FileSide::Opaque, _) | (_, FileSide::Opaque) => return QuestionItem::new(operation),
        (before, after) => (before.text().cloned(), after.text().cloned()),
    };
    QuestionItem::with_change(operation, TextChange { before, after: after.unwrap_or_default() })
}
