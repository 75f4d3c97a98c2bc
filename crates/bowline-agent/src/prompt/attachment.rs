//! The attachments of a prompt: read, truncated to the limits, and delimited.

use std::sync::Arc;

use bowline_protocol::rpc_error::RpcError;
use bowline_text::display;
use bowline_text::lines::{LineCounter, LineWindow};
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
    pub(super) fn new(caps: AttachmentLimits, notes: Vec<String>) -> Self {
        Self { limits: caps, remaining_bytes: caps.total, texts: Vec::new(), shown_files: Vec::new(), notes }
    }

    /// Reads the attachments concurrently, and renders them in order.
    pub(super) async fn render_all<F: FileBackend>(&mut self, attached: Vec<Attachment>, files: &F) {
        let mut reads = Vec::new();
        for attachment in attached {
            reads.push(resolve_attachment(attachment, files));
        }
        let mut found = stream::iter(reads).buffered(MAX_CONCURRENT_READS);
        while let Some(found) = found.next().await {
            self.render(found);
        }
    }

    fn render(&mut self, found: ResolvedAttachment) {
        match found {
            ResolvedAttachment::Text { link, text, is_whole: whole } => {
                let all = self.render_file(&link, &text, whole);
                if all && whole && link.lines.is_none() {
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
            ResolvedAttachment::Unreadable { label, reason: why } => {
                self.add_note(format!("`{}` could not be shown: {why}.", display::escape_line(&label, 500)));
            }
            ResolvedAttachment::Note(note) => self.texts.push(format!("[{note}]")),
        }
    }

    /// Renders a file's text, truncated to the limits, and returns whether that was all.
    fn render_file(&mut self, link: &FileLink, text: &str, whole: bool) -> bool {
        let first = link.lines.map_or(1, |lines| u64::from(lines.first));
        let shown = self.truncate_to_room(text);
        let next = first + count_lines(shown);
        let all = shown.len() == text.len();
        let range = format!("{first}-{}", next.saturating_sub(1).max(first));
        let attributes = [("path", link.path.as_str()), ("lines", range.as_str())];
        let attributes =
            if all && whole && link.lines.is_none() { &attributes[..1] } else { &attributes[..] };
        // A line that was cut inside has to be read again.
        let on = if shown.ends_with('\n') { next } else { next.saturating_sub(1).max(first) };
        let rest = match (all, whole) {
            (false, _) => format!("Only a part is shown. Read on from line {on} if it is needed."),
            (true, false) if link.lines.is_none() => format!("Read on from line {next} if it is needed."),
            (true, _) => String::new(),
        };
        self.render_text("file", attributes, text, &rest);
        all
    }

    fn render_listing(&mut self, path: &str, listing: &Listing) {
        let names = listing.entries.iter().map(|entry| {
            let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
            format!("{}{slash}\n", display::escape_line(&entry.path, 500))
        });
        let rest = if listing.truncated { "There is more in it." } else { "" };
        self.render_text("directory", &[("path", path)], &names.collect::<String>(), rest);
    }

    /// Renders a text, truncated to the limits, followed by a note.
    fn render_text(&mut self, kind: &str, attributes: &[(&str, &str)], text: &str, rest: &str) {
        let shown = self.truncate_to_room(text);
        let name = display::escape_line(attributes.first().map_or("", |(_, value)| value), 500);
        if shown.is_empty() && !text.is_empty() {
            self.add_note(format!(
                "`{name}` is not shown: so much is attached that there is no room for it."
            ));
            return;
        }
        self.remaining_bytes -= shown.len();
        let mut marked = delimit(kind, attributes, shown);
        let rest = if rest.is_empty() && shown.len() < text.len() { "Only a part is shown." } else { rest };
        if !rest.is_empty() {
            marked.push_str(&format!("\n[{rest}]"));
        }
        if shown.len() < text.len() {
            let (shown, all) = (shown.len(), text.len());
            self.notes.push(format!("Of `{name}` the model is shown {shown} of {all} bytes."));
        }
        self.texts.push(marked);
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
                Err(why) => ResolvedAttachment::Unreadable { label: path, reason: why },
            }
        }
    }
}

/// Reads the first file that exists.
async fn read_first_existing<F: FileBackend>(links: Vec<FileLink>, files: &F) -> ResolvedAttachment {
    let mut missing = None;
    for link in links {
        match read_linked_file(&link, files).await {
            Ok((text, whole)) => return ResolvedAttachment::Text { link, text, is_whole: whole },
            Err(why) => {
                let gone = matches!(why, RpcError::ResourceNotFound { .. });
                // The error reported is that of the first candidate, the most likely name.
                let (label, why) = missing.take().unwrap_or((link.label(), why));
                missing = Some((label, why));
                if !gone {
                    break;
                }
            }
        }
    }
    let (label, why) = missing.unwrap_or((String::new(), RpcError::ResourceNotFound { uri: None }));
    ResolvedAttachment::Unreadable { label, reason: why }
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
        Err(why) => Err(why),
    }
}

fn count_lines(text: &str) -> u64 {
    let mut counter = LineCounter::default();
    counter.feed(text.as_bytes());
    counter.lines()
}
