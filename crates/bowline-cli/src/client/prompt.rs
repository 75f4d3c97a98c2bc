//! What is said to an agent: text, with the files that a person mentions in it as `@FILE`.
//!
//! What a person types is the person's own will; what is piped in is anybody's. So only what was typed can attach files,
//! and what it attaches is judged by the rules, told and recorded.

use std::fmt::Write as _;
use std::path::Path;

use bowline_state::audit::{Action, By, Entry, Subject};
use bowline_state::failure::quote;
use bowline_state::grants::Holder;
use bowline_state::lines::Window;
use bowline_state::operation::Kind;
use bowline_state::paths::Access;
use bowline_state::policy::{Effect, Preset};
use bowline_state::schema::v1::{
    ContentBlock, EmbeddedResource, EmbeddedResourceResource, PromptCapabilities, ResourceLink,
    TextResourceContents,
};
use bowline_workspace::approvals::{Approvals, because};
use bowline_workspace::roots::Admitted;
use bowline_workspace::workspace::{ReadText, Session as Files};

/// A file of at most this many bytes is sent along; of a larger one, only where it is.
const MAX_EMBEDDED: u64 = 256 << 10;
/// So many bytes of files are sent along with one prompt.
const MAX_EMBEDDED_IN_ALL: u64 = 1 << 20;
/// So many files are attached to one prompt; what is mentioned after them stays text.
const MAX_ATTACHED: usize = 100;

/// So many mentions of one prompt are looked at.
const MAX_MENTIONS: usize = 1000;

/// What stands before a text that was read from somewhere, where an agent would take it for a command.
const HEAD: &str = "What follows was read from a file or a pipe:";

/// A part of what is said to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// What a person typed.
    Typed(String),
    /// What was read from somewhere else. It mentions nothing.
    Read(String),
}

/// A prompt, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prompt {
    /// The text as it was given, then what it mentions.
    pub(crate) blocks: Vec<ContentBlock>,
    /// The files whose text goes along.
    pub(crate) attached: Vec<String>,
    /// What the person should know: mentions that nothing was found for, or that may not be sent.
    pub(crate) notes: Vec<String>,
}

/// Makes a prompt of what is said. `files` are those of the session: what is open and not saved is sent as it is shown.
pub(crate) fn prompt(
    said: &[Part],
    files: &Files,
    approvals: &Approvals,
    takes: &PromptCapabilities,
) -> Prompt {
    let mut parts = said.iter().filter(|part| !part.text().is_empty()).peekable();
    // What was not typed is no command of the agent's, however it begins.
    let is_command = |part: &&Part| matches!(part, Part::Read(text) if text.trim_start().starts_with('/'));
    let head = parts.peek().is_some_and(is_command).then_some(HEAD);
    let texts: Vec<&str> = head.into_iter().chain(parts.map(Part::text)).collect();
    let block = ContentBlock::from(texts.join("\n\n"));
    let mut prompt = Prompt { blocks: vec![block], attached: Vec::new(), notes: Vec::new() };
    let mut seen: Vec<String> = Vec::new();
    let mut room = MAX_EMBEDDED_IN_ALL;
    let typed = said.iter().filter_map(|part| match part {
        Part::Typed(text) => Some(text.as_str()),
        Part::Read(_) => None,
    });
    for mention in typed.flat_map(mentions).take(MAX_MENTIONS) {
        let found = mention.names.iter().find_map(|name| look(name, files));
        let Some(found) = found else {
            if mention.is_meant {
                let name = mention.names.first().copied().unwrap_or_default();
                prompt.notes.push(format!("there is no file {}: it stays text", quote(name)));
            }
            continue;
        };
        if seen.contains(&found.path) {
            continue;
        }
        if seen.len() == MAX_ATTACHED {
            prompt.notes.push(format!("only {MAX_ATTACHED} files are attached to a prompt"));
            break;
        }
        seen.push(found.path.clone());
        let fits = |size: u64| takes.embedded_context && size <= MAX_EMBEDDED.min(room);
        let text = match &found.admitted {
            Some(admitted) if found.size.is_some_and(fits) => match attach(admitted, files, approvals) {
                Ok(text) => text,
                Err(unsent) => {
                    let (Unsent::Denied(why) | Unsent::Asked(why)) = &unsent;
                    prompt.notes.push(format!("{} is not attached: {why}", quote(&found.name)));
                    if matches!(unsent, Unsent::Denied(_)) {
                        continue;
                    }
                    None
                }
            },
            _ => None,
        };
        prompt.blocks.push(match text {
            Some(read) => {
                room = room.saturating_sub(read.text.len() as u64);
                prompt.attached.push(format!("attached {}, {} bytes", quote(&found.name), read.text.len()));
                let contents = TextResourceContents::new(read.text.as_str(), uri(&found.path));
                let resource = EmbeddedResourceResource::TextResourceContents(contents);
                ContentBlock::Resource(EmbeddedResource::new(resource))
            }
            None => {
                let link = ResourceLink::new(found.name.clone(), uri(&found.path));
                ContentBlock::ResourceLink(link.size(found.size.and_then(|size| i64::try_from(size).ok())))
            }
        });
    }
    prompt
}

impl Part {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Typed(text) | Self::Read(text) => text,
        }
    }
}

/// Why a file that is mentioned is not sent along.
enum Unsent {
    /// It may not be: it stays text.
    Denied(String),
    /// Nobody said yes to it. The agent may want to ask for it itself.
    Asked(String),
}

/// Reads a file for a person who mentions it, and records that. None for what is no text, which is for the agent to look
/// at itself.
///
/// The person's own word counts for more than what holds where no rule matches, and for less than a rule, or than the
/// protection that names of secrets have: who types a name quickly may not think of what is in the file.
fn attach(admitted: &Admitted, files: &Files, approvals: &Approvals) -> Result<Option<ReadText>, Unsent> {
    let holder = Holder { session: files.id().to_owned(), turn: None };
    let operation = admitted.operation(Kind::Read);
    let ruling = approvals
        .judge_under(Preset::Ask, &holder, &operation)
        .map_err(|error| Unsent::Denied(error.to_string()))?;
    let why = || because(&ruling);
    match ruling.effect {
        Effect::Allow => {}
        Effect::Ask => return Err(Unsent::Asked(why())),
        Effect::Deny => return Err(Unsent::Denied(why())),
    }
    let Ok(read) = files.read_admitted(admitted, Window::default()) else { return Ok(None) };
    let mut entry = Entry::new(bowline_workspace::clock::now(), Action::Read);
    let (asked, resolved) = (admitted.asked(), admitted.canonical());
    entry.subject =
        Subject::Path { asked: asked.to_owned(), resolved: (asked != resolved).then(|| resolved.to_owned()) };
    (entry.session, entry.by, entry.bytes) = (Some(holder.session), By::User, Some(read.text.len() as u64));
    entry.reason = Some("mentioned in a prompt".to_owned());
    approvals.record(&entry).map_err(|error| Unsent::Denied(error.to_string()))?;
    Ok(Some(read))
}

/// Something that a text may mention.
#[derive(Debug, PartialEq, Eq)]
struct Mention<'a> {
    /// How it may be named: what a sentence goes on with may look like part of it.
    names: Vec<&'a str>,
    /// Whether it can hardly be anything else.
    is_meant: bool,
}

/// Finds what a text may mention: `@` where a word could begin, and what comes after it, in quotes or up to a blank.
fn mentions(text: &str) -> Vec<Mention<'_>> {
    let mut found = Vec::new();
    let mut before = None;
    let mut places = text.char_indices();
    while let Some((at, character)) = places.next() {
        let begins = before.is_none_or(|it: char| it.is_whitespace() || "([{<\"'`,;:".contains(it));
        before = Some(character);
        if character != '@' || !begins {
            continue;
        }
        let rest = &text[at + 1..];
        let quoted = rest.strip_prefix('"').and_then(|inner| Some(&inner[..inner.find(['"', '\n'])?]));
        let (mention, length) = match quoted {
            Some(name) => (Mention { names: vec![name], is_meant: true }, name.len() + 2),
            None => {
                let word = &rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())];
                (
                    Mention { names: shorter(word), is_meant: word.contains('/') || has_ending(word) },
                    word.len(),
                )
            }
        };
        if mention.names.iter().all(|name| name.is_empty()) {
            continue;
        }
        found.push(mention);
        let end = at + 1 + length;
        while places.offset() < end && places.next().is_some() {}
        before = Some(' ');
    }
    found
}

/// Returns a word, and what is left of it when what a sentence puts behind words is taken away.
fn shorter(word: &str) -> Vec<&str> {
    let mut names = vec![word];
    let mut left = word;
    while let Some(shorter) =
        left.strip_suffix(['.', ',', ';', ':', '!', '?', ')', ']', '}', '>', '"', '\'', '`', '…'])
    {
        left = shorter;
        if !left.is_empty() && names.len() < 16 {
            names.push(left);
        }
    }
    names
}

fn has_ending(word: &str) -> bool {
    let word = word.trim_end_matches(|it: char| !it.is_alphanumeric());
    word.rsplit_once('.').is_some_and(|(name, ending)| {
        !name.is_empty() && !ending.is_empty() && ending.chars().all(char::is_alphanumeric)
    })
}

/// A file or directory that is there.
struct Found {
    name: String,
    path: String,
    /// None for what lies outside the workspace: only the agent may want to read it.
    admitted: Option<Admitted>,
    /// None for that too, and for what is no regular file.
    size: Option<u64>,
}

fn look(name: &str, files: &Files) -> Option<Found> {
    let path = Path::new(files.roots().cwd()).join(name);
    let path = path.components().collect::<std::path::PathBuf>();
    let text = path.to_str()?.to_owned();
    let open = files.workspace().document(&text).ok().flatten();
    let on_disk = std::fs::metadata(&path).ok();
    if open.is_none() && on_disk.is_none() {
        return None;
    }
    let admitted = files.admit(&text, Access::Read).ok();
    let size = match (&open, &on_disk) {
        (Some(open), _) => Some(open.text.len() as u64),
        (None, Some(file)) if file.is_file() => Some(file.len()),
        _ => None,
    };
    let size = size.filter(|_| admitted.is_some());
    Some(Found { name: name.to_owned(), path: text, admitted, size })
}

/// Returns the address of a file.
fn uri(path: &str) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests;
