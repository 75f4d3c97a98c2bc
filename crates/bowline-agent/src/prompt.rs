//! A client's prompt, converted to message parts for a model.
//!
//! The user's text comes first, as one part, with attachments named where they stood; then images; then the
//! attachments, each delimited (see [`delimit`]), so that a file's text is not taken for the user's.

mod attachment;
mod delimit;
mod links;

use std::collections::HashSet;
use std::sync::Arc;

use bowline_conversation::conversation::MessagePart;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    BlobResourceContents, ContentBlock, EmbeddedResourceResource, ImageContent, ResourceLink,
};
use bowline_text::display;
use bowline_workspace::files::FileBackend;

use attachment::{Attachment, AttachmentRenderer};
use links::LinkTarget;

pub(crate) use bowline_text::display::is_hidden;
pub use delimit::{delimit, truncate_at_line};

/// The most blocks of a prompt.
pub const MAX_BLOCKS: usize = 1000;

/// The longest text of the user, in bytes: it is never truncated, so it needs a limit.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// The largest image, in bytes of base64; providers accept no more.
pub const MAX_IMAGE_BYTES: usize = 7 << 20;

/// The most images of a prompt.
pub const MAX_IMAGES: usize = 20;

/// The most links that are read; further ones are only named.
pub const MAX_LINKS: usize = 64;

/// The longest title, in characters.
pub const MAX_TITLE_CHARS: usize = 60;

/// The image types that providers accept.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The properties of the prompted session.
#[derive(Debug, Clone, Copy)]
pub struct PromptContext<'a> {
    /// The session's directory.
    pub cwd: &'a str,
    /// Whether the model accepts images.
    pub supports_images: bool,
    /// How much of the attachments is shown.
    pub limits: AttachmentLimits,
}

/// The most bytes of attachments shown to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachmentLimits {
    /// For one file or resource.
    pub per_file: usize,
    /// For all in a prompt.
    pub total: usize,
}

/// A prompt, ready for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPrompt {
    /// The parts for the model.
    pub parts: Vec<MessagePart>,
    /// The files that it is shown whole.
    pub shown_files: Vec<ShownFile>,
    /// What could not be shown, for the user. The model is told too.
    pub notes: Vec<String>,
}

/// A file that the model is shown whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownFile {
    /// The file.
    pub path: String,
    /// Its text.
    pub text: Arc<String>,
}

/// Why a prompt is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// It has a block of a kind that this agent did not advertise.
    #[error("the prompt has a block of a kind that was not advertised: {0}")]
    NotAdvertised(&'static str),
    /// It is empty.
    #[error("the prompt is empty: say something, or attach something")]
    Empty,
    /// It has too many blocks.
    #[error("the prompt has {0} blocks, send at most {MAX_BLOCKS}")]
    TooManyBlocks(usize),
    /// The text is too long.
    #[error("the prompt's text has {0} bytes, send at most {MAX_TEXT_BYTES}: attach long texts as files")]
    TooLong(usize),
    /// The data of an image is invalid.
    #[error("the data of a picture in the prompt is not base64")]
    NotBase64,
}

impl AttachmentLimits {
    /// Returns the limits for a model's context window, in tokens: one file takes at most a quarter of it, all of them
    /// at most half.
    #[must_use]
    pub fn for_window(tokens: u64) -> Self {
        let bytes = usize::try_from(tokens).unwrap_or(usize::MAX);
        Self {
            per_file: bytes.clamp(2 << 10, 256 << 10),
            total: bytes.saturating_mul(2).clamp(4 << 10, 1 << 20),
        }
    }
}

impl From<PromptError> for RpcError {
    fn from(error: PromptError) -> Self {
        Self::InvalidParams { reason: error.to_string() }
    }
}

/// Reads a prompt for the model. Linked files are read through `files`, so that unsaved text is seen; nothing else is
/// fetched.
///
/// Unreadable attachments are noted, and the prompt continues without them.
///
/// # Errors
/// Fails if the prompt is rejected. Nothing was read then.
pub async fn read_prompt<F: FileBackend>(
    prompt: &[ContentBlock],
    files: &F,
    context: PromptContext<'_>,
) -> Result<ModelPrompt, PromptError> {
    check_size(prompt)?;
    let mut draft = PromptDraft::new(context);
    for block in prompt {
        draft.add_block(block)?;
    }
    if draft.is_empty() {
        return Err(PromptError::Empty);
    }
    Ok(draft.finish(files).await)
}

/// Returns a title for a session that begins with the prompt: the first line of the user's text, else the name of an
/// attachment.
#[must_use]
pub fn session_title(prompt: &[ContentBlock]) -> Option<String> {
    let first_line = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => text.text.lines().map(tidy_line).find(|line| !line.is_empty()),
        _ => None,
    };
    let resource_name = |block: &ContentBlock| match block {
        ContentBlock::ResourceLink(link) => Some(tidy_line(link.title.as_deref().unwrap_or(&link.name))),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => Some(uri_file_name(&text.uri)),
            EmbeddedResourceResource::BlobResourceContents(blob) => Some(uri_file_name(&blob.uri)),
            // Unknown kinds of resources give no title.
            _ => None,
        },
        _ => None,
    };
    let title = prompt.iter().find_map(first_line).or_else(|| prompt.iter().find_map(resource_name))?;
    (!title.is_empty()).then(|| truncate_title(&title))
}

fn check_size(prompt: &[ContentBlock]) -> Result<(), PromptError> {
    if prompt.len() > MAX_BLOCKS {
        return Err(PromptError::TooManyBlocks(prompt.len()));
    }
    let text_bytes = prompt.iter().map(|block| match block {
        ContentBlock::Text(text) => text.text.len(),
        _ => 0,
    });
    let text_bytes = text_bytes.sum();
    if text_bytes > MAX_TEXT_BYTES { Err(PromptError::TooLong(text_bytes)) } else { Ok(()) }
}

/// A prompt being read.
struct PromptDraft<'a> {
    context: PromptContext<'a>,
    text: String,
    images: Vec<MessagePart>,
    attachments: Vec<Attachment>,
    // The links so far: a file that is linked twice is shown once.
    linked_uris: HashSet<String>,
    notes: Vec<String>,
    // Whether the last block was text.
    is_after_text: bool,
}

impl<'a> PromptDraft<'a> {
    fn new(context: PromptContext<'a>) -> Self {
        Self {
            context,
            text: String::new(),
            images: Vec::new(),
            attachments: Vec::new(),
            linked_uris: HashSet::new(),
            notes: Vec::new(),
            is_after_text: false,
        }
    }

    fn add_block(&mut self, block: &ContentBlock) -> Result<(), PromptError> {
        match block {
            ContentBlock::Text(text) => self.push_text(&text.text),
            ContentBlock::Image(image) => self.add_image(image)?,
            ContentBlock::ResourceLink(link) => self.add_link(link),
            ContentBlock::Resource(resource) => match &resource.resource {
                EmbeddedResourceResource::TextResourceContents(text) => {
                    self.push_link_name(&text.uri);
                    let target = links::parse_link(&text.uri, self.context.cwd);
                    self.attachments.push(Attachment::Embedded { target, text: text.text.clone() });
                }
                EmbeddedResourceResource::BlobResourceContents(blob) => self.add_blob(blob)?,
                _ => return Err(PromptError::NotAdvertised("a resource that is neither text nor blob")),
            },
            ContentBlock::Audio(_) => return Err(PromptError::NotAdvertised("audio")),
            _ => return Err(PromptError::NotAdvertised("one that this agent does not know")),
        }
        Ok(())
    }

    fn push_text(&mut self, text: &str) {
        let joined = self.text.is_empty()
            || self.text.ends_with(char::is_whitespace)
            || text.starts_with(|first: char| first.is_whitespace() || first.is_ascii_punctuation());
        if self.is_after_text && !self.text.ends_with('\n') && !text.starts_with('\n') {
            self.text.push('\n');
        } else if !joined {
            self.text.push(' ');
        }
        self.text.push_str(text);
        self.is_after_text = true;
    }

    /// Inserts an attachment's name into the text.
    fn push_name(&mut self, name: &str) {
        if !self.text.is_empty() && !self.text.ends_with(char::is_whitespace) {
            self.text.push(' ');
        }
        self.text.push_str(name);
        self.is_after_text = false;
    }

    /// Inserts the name of a link's target, unless the text already mentions it as `@PATH`.
    fn push_link_name(&mut self, uri: &str) {
        let mentions = |path: &str| self.mentions(path);
        let is_mentioned = match links::parse_link(uri, self.context.cwd) {
            LinkTarget::Files(files) => files.iter().any(|file| mentions(&file.path)),
            LinkTarget::Directory(path) => mentions(&path),
            LinkTarget::Other(_) => false,
        };
        if is_mentioned {
            self.is_after_text = false;
        } else {
            self.push_name(&self.attachment_label(uri));
        }
    }

    /// Returns whether the text mentions a file or directory as `@PATH`, possibly followed by punctuation.
    fn mentions(&self, path: &str) -> bool {
        let is_same_path = |name: &str| {
            links::to_absolute(name, self.context.cwd).trim_end_matches('/') == path.trim_end_matches('/')
        };
        self.text.split('@').skip(1).any(|rest| match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().is_some_and(is_same_path),
            None => {
                let word = rest.split(char::is_whitespace).next().unwrap_or_default();
                let trimmed = word.trim_end_matches(|last: char| last.is_ascii_punctuation() && last != '/');
                is_same_path(word) || is_same_path(trimmed)
            }
        })
    }

    /// Returns an attachment's name for the text. It is not the user's text, so it stays in quotes.
    fn attachment_label(&self, uri: &str) -> String {
        let name = match links::parse_link(uri, self.context.cwd) {
            LinkTarget::Files(files) => files.first().map_or_else(|| uri.to_owned(), links::FileLink::label),
            LinkTarget::Directory(name) | LinkTarget::Other(name) => name,
        };
        format!("`{}`", display::escape_line(&name, 300).replace('`', "'"))
    }

    fn add_note(&mut self, note: String) {
        self.attachments.push(Attachment::Note(note.clone()));
        self.notes.push(note);
    }

    fn add_image(&mut self, image: &ImageContent) -> Result<(), PromptError> {
        let origin =
            image.uri.as_deref().map(|uri| format!(" {}", self.attachment_label(uri))).unwrap_or_default();
        self.add_image_data(&image.mime_type, &image.data, &origin)
    }

    fn add_image_data(&mut self, mime: &str, data: &str, origin: &str) -> Result<(), PromptError> {
        let mime_name = display::escape_line(mime, 60);
        let refusal = if data.is_empty() {
            Some("it has no data")
        } else if !IMAGE_TYPES.contains(&mime) {
            Some("only PNG, JPEG, GIF and WebP can be shown")
        } else if !self.context.supports_images {
            Some("the model cannot be shown pictures")
        } else if data.len() > MAX_IMAGE_BYTES {
            Some("it is too large")
        } else if self.images.len() == MAX_IMAGES {
            Some("there are too many")
        } else {
            None
        };
        if !is_base64(data) {
            return Err(PromptError::NotBase64);
        }
        match refusal {
            Some(reason) => {
                self.push_name(&format!("[a picture{origin} that is not shown]"));
                self.add_note(format!(
                    "A picture{origin} ({mime_name}, {}) is not shown: {reason}.",
                    describe_size(data)
                ));
            }
            None => {
                self.push_name(&format!("[picture {}{origin}]", self.images.len() + 1));
                self.images.push(MessagePart::Image { mime: mime.to_owned(), data: Arc::from(data) });
            }
        }
        Ok(())
    }

    fn add_blob(&mut self, blob: &BlobResourceContents) -> Result<(), PromptError> {
        let label = self.attachment_label(&blob.uri);
        let mime = blob.mime_type.as_deref().unwrap_or("application/octet-stream");
        if mime.starts_with("image/") {
            return self.add_image_data(mime, &blob.blob, &format!(" {label}"));
        }
        self.push_name(&label);
        let mime = display::escape_line(mime, 60);
        self.add_note(format!(
            "{label} ({mime}, {}) is not shown: it is not text.",
            describe_size(&blob.blob)
        ));
        Ok(())
    }

    fn add_link(&mut self, link: &ResourceLink) {
        let label = self.attachment_label(&link.uri);
        self.push_link_name(&link.uri);
        if !self.linked_uris.insert(link.uri.clone()) {
            return;
        }
        match links::parse_link(&link.uri, self.context.cwd) {
            LinkTarget::Other(_) => {
                let description = link.description.as_deref().or(link.title.as_deref()).unwrap_or(&link.name);
                let description = display::escape_line(description, 500);
                self.attachments.push(Attachment::Note(format!(
                    "{label} is a link ({description}). It was not fetched."
                )));
            }
            _ if self.linked_uris.len() > MAX_LINKS => {
                self.add_note(format!("{label} is not shown: more than {MAX_LINKS} files are attached."));
            }
            target => self.attachments.push(Attachment::Linked(target)),
        }
    }

    fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.images.is_empty() && self.attachments.is_empty()
    }

    async fn finish<F: FileBackend>(self, files: &F) -> ModelPrompt {
        let mut renderer = AttachmentRenderer::new(self.context.limits, self.notes);
        renderer.render_all(self.attachments, files).await;
        let mut parts = Vec::new();
        if !self.text.is_empty() {
            parts.push(MessagePart::Text { text: self.text });
        }
        parts.extend(self.images);
        parts.extend(renderer.texts.into_iter().map(|text| MessagePart::Text { text }));
        ModelPrompt { parts, shown_files: renderer.shown_files, notes: renderer.notes }
    }
}

fn is_base64(data: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    data.trim_end_matches('=').bytes().all(is_digit) && data.len() % 4 != 1
}

fn describe_size(base64: &str) -> String {
    format!("about {} bytes", base64.len() / 4 * 3)
}

/// Returns a line without leading Markdown markers and invisible characters, and with single blanks.
fn tidy_line(line: &str) -> String {
    let line = line
        .trim_start_matches(|first: char| first.is_whitespace() || matches!(first, '#' | '>' | '*' | '`'));
    let words = line.split(|character: char| character.is_whitespace() || character.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).take(MAX_TITLE_CHARS).collect();
    let mut text = words.join(" ");
    text.retain(|character| !is_hidden(character));
    text
}

fn uri_file_name(uri: &str) -> String {
    tidy_line(uri.trim_end_matches('/').rsplit('/').next().unwrap_or(uri))
}

fn truncate_title(text: &str) -> String {
    if text.chars().count() <= MAX_TITLE_CHARS {
        return text.to_owned();
    }
    let cut: String = text.chars().take(MAX_TITLE_CHARS - 1).collect();
    let end = match cut.rfind(' ') {
        // A very long first word is cut inside.
        Some(end) if end > MAX_TITLE_CHARS / 3 => end,
        _ => cut.len(),
    };
    format!("{}…", cut[..end].trim_end())
}

pub mod instructions;
pub mod system;
#[cfg(test)]
mod tests;
