//! What is attached to a prompt: read, cut to what there is room for, and marked.

use std::sync::Arc;

use bowline_state::display;
use bowline_state::failure::Failure;
use bowline_state::lines::{LineCounter, Window};
use bowline_workspace::files::Files;
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::walker::Kind;
use futures_util::StreamExt as _;
use futures_util::stream;

use super::delimited::{cut, delimited};
use super::links::{FileLink, Target};
use super::{Caps, Shown};

/// So many files are read at the same time.
const AT_ONCE: usize = 4;

/// Of a file that is too large to be read as a whole, so many lines are.
const FIRST_LINES: u32 = 400;

/// Of a directory so many entries are shown.
const ENTRIES: u64 = 200;

/// Something attached.
#[derive(Debug)]
pub(super) enum Attachment {
    /// A text that came with the prompt.
    Given { target: Target, text: String },
    /// What has to be read.
    Linked(Target),
    /// Words of our own about something that is not shown.
    Note(String),
}

/// What was read.
enum Found {
    Text { link: FileLink, text: Arc<String>, whole: bool },
    Listing { path: String, listing: Listing },
    Nothing { label: String, why: Failure },
    Given { target: Target, text: String },
    Note(String),
}

/// What is shown so far.
pub(super) struct Shelf {
    caps: Caps,
    left: usize,
    pub(super) texts: Vec<String>,
    pub(super) shown: Vec<Shown>,
    pub(super) notes: Vec<String>,
}

impl Shelf {
    pub(super) fn new(caps: Caps, notes: Vec<String>) -> Self {
        Self { caps, left: caps.all, texts: Vec::new(), shown: Vec::new(), notes }
    }

    /// Reads what is attached, several at once, and shows it in order.
    pub(super) async fn fill<F: Files>(&mut self, attached: Vec<Attachment>, files: &F) {
        let mut reads = Vec::new();
        for attachment in attached {
            reads.push(find(attachment, files));
        }
        let mut found = stream::iter(reads).buffered(AT_ONCE);
        while let Some(found) = found.next().await {
            self.show(found);
        }
    }

    fn show(&mut self, found: Found) {
        match found {
            Found::Text { link, text, whole } => {
                let all = self.file(&link, &text, whole);
                if all && whole && link.lines.is_none() {
                    self.shown.push(Shown { path: link.path, text });
                }
            }
            Found::Given { target: Target::Files(links), text } if !links.is_empty() => {
                self.file(&links[0], &text, true);
            }
            Found::Given { target: Target::Files(_), .. } => {}
            Found::Given { target: Target::Directory(uri) | Target::Other(uri), text } => {
                self.text("resource", &[("uri", &uri)], &text, "");
            }
            Found::Listing { path, listing } => self.listing(&path, &listing),
            Found::Nothing { label, why } => {
                self.note(format!("`{}` could not be shown: {why}.", display::line(&label, 500)));
            }
            Found::Note(note) => self.texts.push(format!("[{note}]")),
        }
    }

    /// Shows a file's text, or as much as there is room for, and says whether that was all.
    fn file(&mut self, link: &FileLink, text: &str, whole: bool) -> bool {
        let first = link.lines.map_or(1, |lines| u64::from(lines.first));
        let shown = self.room_for(text);
        let next = first + lines(shown);
        let all = shown.len() == text.len();
        let range = format!("{first}-{}", next.saturating_sub(1).max(first));
        let attributes = [("path", link.path.as_str()), ("lines", range.as_str())];
        let attributes =
            if all && whole && link.lines.is_none() { &attributes[..1] } else { &attributes[..] };
        // A line that was cut within is to be read again.
        let on = if shown.ends_with('\n') { next } else { next.saturating_sub(1).max(first) };
        let rest = match (all, whole) {
            (false, _) => format!("Only a part is shown. Read on from line {on} if it is needed."),
            (true, false) if link.lines.is_none() => format!("Read on from line {next} if it is needed."),
            (true, _) => String::new(),
        };
        self.text("file", attributes, text, &rest);
        all
    }

    fn listing(&mut self, path: &str, listing: &Listing) {
        let names = listing.entries.iter().map(|entry| {
            let slash = if entry.kind == Kind::Directory { "/" } else { "" };
            format!("{}{slash}\n", display::line(&entry.path, 500))
        });
        let rest = if listing.truncated { "There is more in it." } else { "" };
        self.text("directory", &[("path", path)], &names.collect::<String>(), rest);
    }

    /// Shows a text, or as much as there is room for, with words of ours after it.
    fn text(&mut self, kind: &str, attributes: &[(&str, &str)], text: &str, rest: &str) {
        let shown = self.room_for(text);
        let name = display::line(attributes.first().map_or("", |(_, value)| value), 500);
        if shown.is_empty() && !text.is_empty() {
            self.note(format!("`{name}` is not shown: so much is attached that there is no room for it."));
            return;
        }
        self.left -= shown.len();
        let mut marked = delimited(kind, attributes, shown);
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

    fn room_for<'a>(&self, text: &'a str) -> &'a str {
        cut(text, self.caps.each.min(self.left))
    }

    fn note(&mut self, note: String) {
        self.texts.push(format!("[{note}]"));
        self.notes.push(note);
    }
}

async fn find<F: Files>(attachment: Attachment, files: &F) -> Found {
    match attachment {
        Attachment::Given { target, text } => Found::Given { target, text },
        Attachment::Note(note) => Found::Note(note),
        Attachment::Linked(Target::Files(links)) => read(links, files).await,
        Attachment::Linked(Target::Directory(path) | Target::Other(path)) => {
            let options = ListOptions { max_entries: ENTRIES, ..ListOptions::default() };
            match files.list(path.trim_end_matches('/'), options).await {
                Ok(listing) => Found::Listing { path, listing },
                Err(why) => Found::Nothing { label: path, why },
            }
        }
    }
}

/// Reads the first of the files that exists.
async fn read<F: Files>(links: Vec<FileLink>, files: &F) -> Found {
    let mut missing = None;
    for link in links {
        match read_one(&link, files).await {
            Ok((text, whole)) => return Found::Text { link, text, whole },
            Err(why) => {
                let gone = matches!(why, Failure::ResourceNotFound { .. });
                // What is told is why the first of them, the name as it should be read, was not found.
                let (label, why) = missing.take().unwrap_or((link.label(), why));
                missing = Some((label, why));
                if !gone {
                    break;
                }
            }
        }
    }
    let (label, why) = missing.unwrap_or((String::new(), Failure::ResourceNotFound { uri: None }));
    Found::Nothing { label, why }
}

async fn read_one<F: Files>(link: &FileLink, files: &F) -> Result<(Arc<String>, bool), Failure> {
    let window = link.lines.map_or_else(Window::default, |lines| lines.window());
    match files.read(&link.path, window).await {
        Ok(read) => Ok((read.text, link.lines.is_some() || read.whole.unwrap_or(true))),
        Err(Failure::TooLarge { .. }) if link.lines.is_none() => {
            let window = Window { line: None, limit: Some(FIRST_LINES) };
            files.read(&link.path, window).await.map(|read| (read.text, false))
        }
        Err(why) => Err(why),
    }
}

fn lines(text: &str) -> u64 {
    let mut counter = LineCounter::default();
    counter.feed(text.as_bytes());
    counter.lines()
}
