//! A client's prompt as parts that a model reads.
//!
//! The user's words come first, in one text, with what is attached named where it stood; then pictures; then what is
//! attached, each in marks of its own (see [`delimited`]), so that what a file says is not taken for what the user says.

mod attached;
mod delimited;
mod links;

use std::collections::HashSet;
use std::sync::Arc;

use bowline_state::conversation::Part;
use bowline_state::display;
use bowline_state::failure::Failure;
use bowline_state::schema::v1::{
    BlobResourceContents, ContentBlock, EmbeddedResourceResource, ImageContent, ResourceLink,
};
use bowline_workspace::files::Files;

use attached::{Attachment, Shelf};
use links::Target;

pub(crate) use bowline_state::display::is_hidden;
pub use delimited::{cut, delimited};

/// A prompt has at most this many blocks.
pub const MAX_BLOCKS: usize = 1000;

/// The user's own words have at most this many bytes: they are never cut, so there has to be an end.
pub const MAX_WORDS: usize = 1 << 20;

/// A picture has at most this many bytes in base64; providers take no more.
pub const MAX_IMAGE: usize = 7 << 20;

/// A prompt has at most this many pictures.
pub const MAX_IMAGES: usize = 20;

/// So many links are read; others are only named.
pub const MAX_LINKS: usize = 64;

/// A title has at most this many characters.
pub const MAX_TITLE: usize = 60;

/// Pictures that providers take.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// What holds for the session that is prompted.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The session's directory.
    pub cwd: &'a str,
    /// Whether the model can be shown pictures.
    pub images: bool,
    /// How much of what is attached is shown.
    pub caps: Caps,
}

/// How many bytes of what is attached are shown to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Of one file or resource.
    pub each: usize,
    /// Of all in a prompt.
    pub all: usize,
}

/// A prompt, ready for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// What the model reads.
    pub parts: Vec<Part>,
    /// Files that it is shown whole.
    pub shown: Vec<Shown>,
    /// What could not be shown, for the user to know. The model is told too.
    pub notes: Vec<String>,
}

/// A file that the model is shown whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The file.
    pub path: String,
    /// Its text.
    pub text: Arc<String>,
}

/// Why a prompt is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// It has a kind of block that this agent did not advertise.
    #[error("the prompt has a block of a kind that was not advertised: {0}")]
    NotAdvertised(&'static str),
    /// It is empty.
    #[error("the prompt is empty: say something, or attach something")]
    Empty,
    /// It has too many blocks.
    #[error("the prompt has {0} blocks, send at most {MAX_BLOCKS}")]
    TooManyBlocks(usize),
    /// The words are too many.
    #[error("the prompt's text has {0} bytes, send at most {MAX_WORDS}: attach long texts as files")]
    TooLong(usize),
    /// A picture is no picture.
    #[error("the data of a picture in the prompt is not base64")]
    NotBase64,
}

impl Caps {
    /// Returns the caps for a model's window, which has so many tokens: one file takes at most a quarter of it, all
    /// of them a half.
    #[must_use]
    pub fn of_window(tokens: u64) -> Self {
        let bytes = usize::try_from(tokens).unwrap_or(usize::MAX);
        Self { each: bytes.clamp(2 << 10, 256 << 10), all: bytes.saturating_mul(2).clamp(4 << 10, 1 << 20) }
    }
}

impl From<PromptError> for Failure {
    fn from(error: PromptError) -> Self {
        Self::InvalidParams { reason: error.to_string() }
    }
}

/// Reads a prompt for the model. Linked files are read through `files`, so that unsaved text is seen; nothing else is
/// fetched.
///
/// What cannot be read is noted, and the prompt goes on without it.
///
/// # Errors
/// Returns why the prompt is not taken. Nothing was read then.
pub async fn read<F: Files>(
    prompt: &[ContentBlock],
    files: &F,
    reading: Reading<'_>,
) -> Result<Prompt, PromptError> {
    check(prompt)?;
    let mut draft = Draft::new(reading);
    for block in prompt {
        draft.add(block)?;
    }
    if draft.is_empty() {
        return Err(PromptError::Empty);
    }
    Ok(draft.finish(files).await)
}

/// Returns a title for a session that begins with the prompt: the first line of the user's words, else the name of what
/// is attached.
#[must_use]
pub fn title(prompt: &[ContentBlock]) -> Option<String> {
    let lines = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => text.text.lines().map(tidy).find(|line| !line.is_empty()),
        _ => None,
    };
    let named = |block: &ContentBlock| match block {
        ContentBlock::ResourceLink(link) => Some(tidy(link.title.as_deref().unwrap_or(&link.name))),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => Some(last_name(&text.uri)),
            EmbeddedResourceResource::BlobResourceContents(blob) => Some(last_name(&blob.uri)),
            // A kind of resource that only newer peers know gives no title.
            _ => None,
        },
        _ => None,
    };
    let found = prompt.iter().find_map(lines).or_else(|| prompt.iter().find_map(named))?;
    (!found.is_empty()).then(|| at_a_word(&found))
}

fn check(prompt: &[ContentBlock]) -> Result<(), PromptError> {
    if prompt.len() > MAX_BLOCKS {
        return Err(PromptError::TooManyBlocks(prompt.len()));
    }
    let words = prompt.iter().map(|block| match block {
        ContentBlock::Text(text) => text.text.len(),
        _ => 0,
    });
    let words = words.sum();
    if words > MAX_WORDS { Err(PromptError::TooLong(words)) } else { Ok(()) }
}

/// A prompt that is being read.
struct Draft<'a> {
    reading: Reading<'a>,
    words: String,
    images: Vec<Part>,
    attached: Vec<Attachment>,
    // What was linked: a file that is linked twice is shown once.
    links: HashSet<String>,
    notes: Vec<String>,
    // Whether the last block was one of words.
    after_words: bool,
}

impl<'a> Draft<'a> {
    fn new(reading: Reading<'a>) -> Self {
        Self {
            reading,
            words: String::new(),
            images: Vec::new(),
            attached: Vec::new(),
            links: HashSet::new(),
            notes: Vec::new(),
            after_words: false,
        }
    }

    fn add(&mut self, block: &ContentBlock) -> Result<(), PromptError> {
        match block {
            ContentBlock::Text(text) => self.say(&text.text),
            ContentBlock::Image(image) => self.image(image)?,
            ContentBlock::ResourceLink(link) => self.link(link),
            ContentBlock::Resource(resource) => match &resource.resource {
                EmbeddedResourceResource::TextResourceContents(text) => {
                    self.name_link(&text.uri);
                    let target = links::target(&text.uri, self.reading.cwd);
                    self.attached.push(Attachment::Given { target, text: text.text.clone() });
                }
                EmbeddedResourceResource::BlobResourceContents(blob) => self.blob(blob)?,
                _ => return Err(PromptError::NotAdvertised("a resource that is neither text nor blob")),
            },
            ContentBlock::Audio(_) => return Err(PromptError::NotAdvertised("audio")),
            _ => return Err(PromptError::NotAdvertised("one that this agent does not know")),
        }
        Ok(())
    }

    fn say(&mut self, text: &str) {
        let joined = self.words.is_empty()
            || self.words.ends_with(char::is_whitespace)
            || text.starts_with(|first: char| first.is_whitespace() || first.is_ascii_punctuation());
        if self.after_words && !self.words.ends_with('\n') && !text.starts_with('\n') {
            self.words.push('\n');
        } else if !joined {
            self.words.push(' ');
        }
        self.words.push_str(text);
        self.after_words = true;
    }

    /// Names what is attached, where it stands among the words.
    fn name(&mut self, name: &str) {
        if !self.words.is_empty() && !self.words.ends_with(char::is_whitespace) {
            self.words.push(' ');
        }
        self.words.push_str(name);
        self.after_words = false;
    }

    /// Names what a link leads to, unless the words mention it already, as `@PATH`.
    fn name_link(&mut self, uri: &str) {
        let mentions = |path: &str| self.mentions(path);
        let is_mentioned = match links::target(uri, self.reading.cwd) {
            Target::Files(files) => files.iter().any(|file| mentions(&file.path)),
            Target::Directory(path) => mentions(&path),
            Target::Other(_) => false,
        };
        if is_mentioned {
            self.after_words = false;
        } else {
            self.name(&self.label(uri));
        }
    }

    /// Says whether the words mention a file or a directory: `@` and its path, which a sentence may go on behind.
    fn mentions(&self, path: &str) -> bool {
        let is_meant = |name: &str| {
            links::absolute(name, self.reading.cwd).trim_end_matches('/') == path.trim_end_matches('/')
        };
        self.words.split('@').skip(1).any(|rest| match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().is_some_and(is_meant),
            None => {
                let word = rest.split(char::is_whitespace).next().unwrap_or_default();
                let bare = word.trim_end_matches(|last: char| last.is_ascii_punctuation() && last != '/');
                is_meant(word) || is_meant(bare)
            }
        })
    }

    /// Returns what is attached as it is named among the words. A name is not the user's word: it stays in its quotes.
    fn label(&self, uri: &str) -> String {
        let name = match links::target(uri, self.reading.cwd) {
            Target::Files(files) => files.first().map_or_else(|| uri.to_owned(), links::FileLink::label),
            Target::Directory(name) | Target::Other(name) => name,
        };
        format!("`{}`", display::line(&name, 300).replace('`', "'"))
    }

    fn note(&mut self, note: String) {
        self.attached.push(Attachment::Note(note.clone()));
        self.notes.push(note);
    }

    fn image(&mut self, image: &ImageContent) -> Result<(), PromptError> {
        let from = image.uri.as_deref().map(|uri| format!(" {}", self.label(uri))).unwrap_or_default();
        self.picture(&image.mime_type, &image.data, &from)
    }

    fn picture(&mut self, mime: &str, data: &str, from: &str) -> Result<(), PromptError> {
        let named = display::line(mime, 60);
        let refused = if data.is_empty() {
            Some("it has no data")
        } else if !PICTURES.contains(&mime) {
            Some("only PNG, JPEG, GIF and WebP can be shown")
        } else if !self.reading.images {
            Some("the model cannot be shown pictures")
        } else if data.len() > MAX_IMAGE {
            Some("it is too large")
        } else if self.images.len() == MAX_IMAGES {
            Some("there are too many")
        } else {
            None
        };
        if !is_base64(data) {
            return Err(PromptError::NotBase64);
        }
        match refused {
            Some(why) => {
                self.name(&format!("[a picture{from} that is not shown]"));
                self.note(format!("A picture{from} ({named}, {}) is not shown: {why}.", size(data)));
            }
            None => {
                self.name(&format!("[picture {}{from}]", self.images.len() + 1));
                self.images.push(Part::Image { mime: mime.to_owned(), data: Arc::from(data) });
            }
        }
        Ok(())
    }

    fn blob(&mut self, blob: &BlobResourceContents) -> Result<(), PromptError> {
        let label = self.label(&blob.uri);
        let mime = blob.mime_type.as_deref().unwrap_or("application/octet-stream");
        if mime.starts_with("image/") {
            return self.picture(mime, &blob.blob, &format!(" {label}"));
        }
        self.name(&label);
        let mime = display::line(mime, 60);
        self.note(format!("{label} ({mime}, {}) is not shown: it is not text.", size(&blob.blob)));
        Ok(())
    }

    fn link(&mut self, link: &ResourceLink) {
        let label = self.label(&link.uri);
        self.name_link(&link.uri);
        if !self.links.insert(link.uri.clone()) {
            return;
        }
        match links::target(&link.uri, self.reading.cwd) {
            Target::Other(_) => {
                let about = link.description.as_deref().or(link.title.as_deref()).unwrap_or(&link.name);
                let about = display::line(about, 500);
                self.attached
                    .push(Attachment::Note(format!("{label} is a link ({about}). It was not fetched.")));
            }
            _ if self.links.len() > MAX_LINKS => {
                self.note(format!("{label} is not shown: more than {MAX_LINKS} files are attached."));
            }
            target => self.attached.push(Attachment::Linked(target)),
        }
    }

    fn is_empty(&self) -> bool {
        self.words.trim().is_empty() && self.images.is_empty() && self.attached.is_empty()
    }

    async fn finish<F: Files>(self, files: &F) -> Prompt {
        let mut shelf = Shelf::new(self.reading.caps, self.notes);
        shelf.fill(self.attached, files).await;
        let mut parts = Vec::new();
        if !self.words.is_empty() {
            parts.push(Part::Text { text: self.words });
        }
        parts.extend(self.images);
        parts.extend(shelf.texts.into_iter().map(|text| Part::Text { text }));
        Prompt { parts, shown: shelf.shown, notes: shelf.notes }
    }
}

fn is_base64(data: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    data.trim_end_matches('=').bytes().all(is_digit) && data.len() % 4 != 1
}

fn size(base64: &str) -> String {
    format!("about {} bytes", base64.len() / 4 * 3)
}

/// Returns a line without marks of Markdown before it, without what cannot be seen, and with single blanks.
fn tidy(line: &str) -> String {
    let line = line
        .trim_start_matches(|first: char| first.is_whitespace() || matches!(first, '#' | '>' | '*' | '`'));
    let words = line.split(|character: char| character.is_whitespace() || character.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).take(MAX_TITLE).collect();
    let mut text = words.join(" ");
    text.retain(|character| !is_hidden(character));
    text
}

fn last_name(uri: &str) -> String {
    tidy(uri.trim_end_matches('/').rsplit('/').next().unwrap_or(uri))
}

fn at_a_word(text: &str) -> String {
    if text.chars().count() <= MAX_TITLE {
        return text.to_owned();
    }
    let cut: String = text.chars().take(MAX_TITLE - 1).collect();
    let end = match cut.rfind(' ') {
        // A first word that is very long is cut within.
        Some(end) if end > MAX_TITLE / 3 => end,
        _ => cut.len(),
    };
    format!("{}…", cut[..end].trim_end())
}

#[cfg(test)]
mod tests;
