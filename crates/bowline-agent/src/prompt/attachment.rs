//! The attachments of a prompt: read, truncated to the limits, and delimited.

use std::sync::Arc;

use bowline_protocol::rpc_error::RpcError;
use bowline_text::display;
use bowline_text::lines::LineWindow;
use bowline_tools::tools::describe::count_lines;
use bowline_workspace::files::FileBackend;
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::walker::EntryKind;
use futures_util::StreamExt as _;
use futures_util::stream;

use super::delimit::{delimit, truncate_at_line};
use super::links::{FileLink, LinkTarget};
use super::{AttachmentLimits, ShownFile};

/// The most concurrent reads.
const MAX_CONCURRENT_READS: usize = 4;

/// The number of lines read of a file that is too large to be read whole.
const FIRST_LINES: u32 = 400;

/// The most entries shown of a directory.
const MAX_LISTED_ENTRIES: u64 = 200;

/// An attachment.
#[derive(Debug)]
pub(super) enum Attachment {
    /// A text embedded in the prompt.
    Embedded { target: LinkTarget, text: String },
    /// A link to be read.
    Linked(LinkTarget),
    /// A note of Bowline about something that is not shown.
    Note(String),
}

/// An attachment that was read.
enum ResolvedAttachment {
    Text { link: FileLink, text: Arc<String>, is_whole: bool },
    Listing { path: String, listing: Listing },
    Unreadable { label: String, reason: RpcError },
    Embedded { target: LinkTarget, text: String },
    Note(String),
}

/// The attachments rendered so far.
pub(super) struct AttachmentRenderer {
    limits: AttachmentLimits,
    remaining_bytes: usize,
    pub(super) texts: Vec<String>,
    pub(super) shown_files: Vec<ShownFile>,
    pub(super) notes: Vec<String>,
}

impl AttachmentRenderer {
    pub(super) fn new(limits: AttachmentLimits, notes: Vec<String>) -> Self {
        Self { limits, remaining_bytes: limits.total, texts: Vec::new(), shown_files: Vec::new(), notes }
    }

    /// Reads the attachments concurrently, and renders them in order.
    pub(super) async fn render_all<F: FileBackend>(&mut self, attachments: Vec<Attachment>, files: &F) {
        let mut reads = Vec::new();
        for attachment in attachments {
            reads.push(resolve_attachment(attachment, files));
        }
        let mut resolved = stream::iter(reads).buffered(MAX_CONCURRENT_READS);
        while let Some(attachment) = resolved.next().await {
            self.render(attachment);
        }
    }

    fn render(&mut self, attachment: ResolvedAttachment) {
        match attachment {
            ResolvedAttachment::Text { link, text, is_whole } => {
                let is_complete = self.render_file(&link, &text, is_whole);
                if is_complete && is_whole && link.lines.is_none() {
                    self.shown_files.push(ShownFile { path: link.path, text });
                }
            }
            ResolvedAttachment::Embedded { target: LinkTarget::Files(links), text } if !links.is_empty() => {
                self.render_file(&links[0], &text, true);
            }
            ResolvedAttachment::Embedded { target: LinkTarget::Files(_), .. } => {}
            ResolvedAttachment::Embedded {
                target: LinkTarget::Directory(uri) | LinkTarget::Other(uri),
                text,
            } => {
                self.render_text("resource", &[("uri", &uri)], &text, "");
            }
            ResolvedAttachment::Listing { path, listing } => self.render_listing(&path, &listing),
            ResolvedAttachment::Unreadable { label, reason } => {
                self.add_note(format!(
                    "`{}` could not be shown: {reason}.",
                    display::escape_line(&label, 500)
                ));
            }
            ResolvedAttachment::Note(note) => self.texts.push(format!("[{note}]")),
        }
    }

    /// Renders a file's text, truncated to the limits, and returns whether that was all.
    fn render_file(&mut self, link: &FileLink, text: &str, is_whole: bool) -> bool {
        let first = link.lines.map_or(1, |lines| u64::from(lines.first));
        let shown = self.truncate_to_room(text);
        let next = first + count_lines(shown);
        let is_complete = shown.len() == text.len();
        let range = format!("{first}-{}", next.saturating_sub(1).max(first));
        let attributes = [("path", link.path.as_str()), ("lines", range.as_str())];
        let attributes =
            if is_complete && is_whole && link.lines.is_none() { &attributes[..1] } else { &attributes[..] };
        // A line that was cut inside has to be read again.
        let continue_at = if shown.ends_with('\n') { next } else { next.saturating_sub(1).max(first) };
        let hint = match (is_complete, is_whole) {
            (false, _) => format!("Only a part is shown. Read on from line {continue_at} if it is needed."),
            (true, false) if link.lines.is_none() => format!("Read on from line {next} if it is needed."),
            (true, _) => String::new(),
        };
        self.render_text("file", attributes, text, &hint);
        is_complete
    }

    fn render_listing(&mut self, path: &str, listing: &Listing) {
        let names = listing.entries.iter().map(|entry| {
            let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
            format!("{}{slash}\n", display::escape_line(&entry.path, 500))
        });
        let hint = if listing.truncated { "There is more in it." } else { "" };
        self.render_text("directory", &[("path", path)], &names.collect::<String>(), hint);
    }

    /// Renders a text, truncated to the limits, followed by a note.
    fn render_text(&mut self, kind: &str, attributes: &[(&str, &str)], text: &str, hint: &str) {
        let shown = self.truncate_to_room(text);
        let name = display::escape_line(attributes.first().map_or("", |(_, value)| value), 500);
        if shown.is_empty() && !text.is_empty() {
            self.add_note(format!(
                "`{name}` is not shown: so much is attached that there is no room for it."
            ));
            return;
        }
        self.remaining_bytes -= shown.len();
        let mut delimited = delimit(kind, attributes, shown);
        let hint = if hint.is_empty() && shown.len() < text.len() { "Only a part is shown." } else { hint };
        if !hint.is_empty() {
            delimited.push_str(&format!("\n[{hint}]"));
        }
        if shown.len() < text.len() {
            let (shown, total) = (shown.len(), text.len());
            self.notes.push(format!("Of `{name}` the model is shown {shown} of {total} bytes."));
        }
        self.texts.push(delimited);
    }

    fn truncate_to_room<'a>(&self, text: &'a str) -> &'a str {
        truncate_at_line(text, self.limits.per_file.min(self.remaining_bytes))
    }

    fn add_note(&mut self, note: String) {
        self.texts.push(format!("[{note}]"));
        self.notes.push(note);
    }
}

async fn resolve_attachment<F: FileBackend>(attachment: Attachment, files: &F) -> ResolvedAttachment {
    match attachment {
        Attachment::Embedded { target, text } => ResolvedAttachment::Embedded { target, text },
        Attachment::Note(note) => ResolvedAttachment::Note(note),
        Attachment::Linked(LinkTarget::Files(links)) => read_first_existing(links, files).await,
        Attachment::Linked(LinkTarget::Directory(path) | LinkTarget::Other(path)) => {
            let options = ListOptions { max_entries: MAX_LISTED_ENTRIES, ..ListOptions::default() };
            match files.list(path.trim_end_matches('/'), options).await {
                Ok(listing) => ResolvedAttachment::Listing { path, listing },
                Err(error) => ResolvedAttachment::Unreadable { label: path, reason: error },
            }
        }
    }
}

/// Reads the first file that exists.
async fn read_first_existing<F: FileBackend>(links: Vec<FileLink>, files: &F) -> ResolvedAttachment {
    let mut missing = None;
    for link in links {
        match read_linked_file(&link, files).await {
            Ok((text, is_whole)) => return ResolvedAttachment::Text { link, text, is_whole },
            Err(error) => {
                let is_missing = matches!(error, RpcError::ResourceNotFound { .. });
                // The error reported is that of the first candidate, the most likely name.
                let (label, error) = missing.take().unwrap_or((link.label(), error));
                missing = Some((label, error));
                if !is_missing {
                    break;
                }
            }
        }
    }
    let (label, error) = missing.unwrap_or((String::new(), RpcError::ResourceNotFound { uri: None }));
    ResolvedAttachment::Unreadable { label, reason: error }
}

async fn read_linked_file<F: FileBackend>(
    link: &FileLink,
    files: &F,
) -> Result<(Arc<String>, bool), RpcError> {
    let window = link.lines.map_or_else(LineWindow::default, |lines| lines.to_window());
    match files.read(&link.path, window).await {
        Ok(read) => Ok((read.text, link.lines.is_some() || read.is_whole.unwrap_or(true))),
        Err(RpcError::TooLarge { .. }) if link.lines.is_none() => {
            let window = LineWindow { line: None, limit: Some(FIRST_LINES) };
            files.read(&link.path, window).await.map(|read| (read.text, false))
        }
        Err(error) => Err(error),
    }
}
