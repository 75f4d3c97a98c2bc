//! The prompt for an agent: text, with the files that the user mentions in it as `@FILE`.
//!
//! Typed text expresses the user's intent; piped text may come from anyone. So only typed text can attach files, and
//! each attachment is checked by the rules, reported and recorded.

use std::fmt::Write as _;
use std::path::Path;

use bowline_access::approvals::{Approvals, describe_ruling};
use bowline_policy::audit::{AuditAction, AuditEntry, AuditSubject, DecisionSource};
use bowline_policy::grants::GrantHolder;
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::Access;
use bowline_policy::policy::{Effect, Preset};
use bowline_protocol::schema::v1::{
    ContentBlock, EmbeddedResource, EmbeddedResourceResource, PromptCapabilities, ResourceLink,
    TextResourceContents,
};
use bowline_text::display::quote;
use bowline_text::lines::LineWindow;
use bowline_workspace::roots::AdmittedPath;
use bowline_workspace::workspace::{ReadText, WorkspaceSession as Files};

/// The maximum size of a file that is embedded; a larger one is linked.
const MAX_EMBEDDED: u64 = 256 << 10;
/// The maximum number of bytes embedded in one prompt.
const MAX_EMBEDDED_TOTAL: u64 = 1 << 20;
/// The maximum number of files attached to one prompt; later mentions stay text.
const MAX_ATTACHED: usize = 100;

/// The maximum number of mentions examined in one prompt.
const MAX_MENTIONS: usize = 1000;

/// The header before text that was read from a file or pipe and that an agent would take for a command.
const READ_TEXT_HEADER: &str = "What follows was read from a file or a pipe:";

/// A part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptPart {
    /// Text that the user typed.
    Typed(String),
    /// Text that was read from elsewhere. Its mentions are ignored.
    Read(String),
}

/// A prompt, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedPrompt {
    /// The text as given, then the mentioned files.
    pub blocks: Vec<ContentBlock>,
    /// The files whose text is embedded.
    pub attachments: Vec<String>,
    /// Warnings for the user: mentions that were not found, or that may not be sent.
    pub warnings: Vec<String>,
}

/// Builds a prompt. `files` are those of the session: unsaved documents are sent as the editor shows them.
pub fn build_prompt(
    prompt_parts: &[PromptPart],
    files: &Files,
    approvals: &Approvals,
    capabilities: &PromptCapabilities,
) -> PreparedPrompt {
    let mut parts = prompt_parts.iter().filter(|part| !part.text().is_empty()).peekable();
    // Text that was not typed is never a command of the agent, however it begins.
    let is_command =
        |part: &&PromptPart| matches!(part, PromptPart::Read(text) if text.trim_start().starts_with('/'));
    let head = parts.peek().is_some_and(is_command).then_some(READ_TEXT_HEADER);
    let texts: Vec<&str> = head.into_iter().chain(parts.map(PromptPart::text)).collect();
    let block = ContentBlock::from(texts.join("\n\n"));
    let mut prompt = PreparedPrompt { blocks: vec![block], attachments: Vec::new(), warnings: Vec::new() };
    let mut seen: Vec<String> = Vec::new();
    let mut room = MAX_EMBEDDED_TOTAL;
    let typed = prompt_parts.iter().filter_map(|part| match part {
        PromptPart::Typed(text) => Some(text.as_str()),
        PromptPart::Read(_) => None,
    });
    for mention in typed.flat_map(find_mentions).take(MAX_MENTIONS) {
        let file = mention.names.iter().find_map(|name| find_mentioned_file(name, files));
        let Some(file) = file else {
            if mention.is_explicit {
                let name = mention.names.first().copied().unwrap_or_default();
                prompt.warnings.push(format!("there is no file {}: it stays text", quote(name)));
            }
            continue;
        };
        if seen.contains(&file.path) {
            continue;
        }
        if seen.len() == MAX_ATTACHED {
            prompt.warnings.push(format!("only {MAX_ATTACHED} files are attached to a prompt"));
            break;
        }
        seen.push(file.path.clone());
        let fits = |size: u64| capabilities.embedded_context && size <= MAX_EMBEDDED.min(room);
        let text = match &file.admitted {
            Some(admitted) if file.size.is_some_and(fits) => {
                match read_attachment(admitted, files, approvals) {
                    Ok(text) => text,
                    Err(error) => {
                        let (AttachError::Denied(reason) | AttachError::NotApproved(reason)) = &error;
                        prompt.warnings.push(format!("{} is not attached: {reason}", quote(&file.name)));
                        if matches!(error, AttachError::Denied(_)) {
                            continue;
                        }
                        None
                    }
                }
            }
            _ => None,
        };
        prompt.blocks.push(match text {
            Some(read) => {
                room = room.saturating_sub(read.text.len() as u64);
                prompt.attachments.push(format!("attached {}, {} bytes", quote(&file.name), read.text.len()));
                let contents = TextResourceContents::new(read.text.as_str(), file_uri(&file.path));
                let resource = EmbeddedResourceResource::TextResourceContents(contents);
                ContentBlock::Resource(EmbeddedResource::new(resource))
            }
            None => {
                let link = ResourceLink::new(file.name.clone(), file_uri(&file.path));
                ContentBlock::ResourceLink(link.size(file.size.and_then(|size| i64::try_from(size).ok())))
            }
        });
    }
    prompt
}

impl PromptPart {
    /// Returns its text.
    pub fn text(&self) -> &str {
        match self {
            Self::Typed(text) | Self::Read(text) => text,
        }
    }
}

/// Why a mentioned file is not attached.
enum AttachError {
    /// It is denied, and stays text.
    Denied(String),
    /// It was not approved. The agent may request it itself.
    NotApproved(String),
}

/// Reads a file that the user mentions, and records the read. Returns `None` for a file that is not text, which the
/// agent can examine itself.
///
/// The mention overrides the preset, but not a rule, nor the protection of secret file names: a user who types a name
/// quickly may not think of the file's content.
fn read_attachment(
    admitted: &AdmittedPath,
    files: &Files,
    approvals: &Approvals,
) -> Result<Option<ReadText>, AttachError> {
    let holder = GrantHolder { session: files.id().to_owned(), turn: None };
    let operation = admitted.operation(OperationKind::Read);
    let ruling = approvals
        .judge_with_preset(Preset::Ask, &holder, &operation)
        .map_err(|error| AttachError::Denied(error.to_string()))?;
    let reason = || describe_ruling(&ruling);
    match ruling.effect {
        Effect::Allow => {}
        Effect::Ask => return Err(AttachError::NotApproved(reason())),
        Effect::Deny => return Err(AttachError::Denied(reason())),
    }
    let Ok(read) = files.read_admitted(admitted, LineWindow::default()) else { return Ok(None) };
    let mut entry = AuditEntry::new(bowline_storage::clock::now(), AuditAction::Read);
    let (requested, resolved) = (admitted.requested_path(), admitted.canonical());
    entry.subject = AuditSubject::Path {
        requested: requested.to_owned(),
        resolved: (requested != resolved).then(|| resolved.to_owned()),
    };
    (entry.session, entry.decided_by, entry.bytes) =
        (Some(holder.session), DecisionSource::User, Some(read.text.len() as u64));
    entry.reason = Some("mentioned in a prompt".to_owned());
    approvals.record(&entry).map_err(|error| AttachError::Denied(error.to_string()))?;
    Ok(Some(read))
}

/// A possible mention of a file in a text.
#[derive(Debug, PartialEq, Eq)]
struct Mention<'a> {
    /// The candidate names: trailing punctuation may look like part of the name.
    names: Vec<&'a str>,
    /// Whether it can hardly be anything else.
    is_explicit: bool,
}

/// Finds possible mentions in a text: `@` at the start of a word, followed by a quoted name or by text up to a space.
fn find_mentions(text: &str) -> Vec<Mention<'_>> {
    let mut mentions = Vec::new();
    let mut previous = None;
    let mut chars = text.char_indices();
    while let Some((index, character)) = chars.next() {
        let starts_word = previous.is_none_or(|c: char| c.is_whitespace() || "([{<\"'`,;:".contains(c));
        previous = Some(character);
        if character != '@' || !starts_word {
            continue;
        }
        let rest = &text[index + 1..];
        let quoted = rest.strip_prefix('"').and_then(|inner| Some(&inner[..inner.find(['"', '\n'])?]));
        let (mention, length) = match quoted {
            Some(name) => (Mention { names: vec![name], is_explicit: true }, name.len() + 2),
            None => {
                let word = &rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())];
                (
                    Mention {
                        names: strip_punctuation(word),
                        is_explicit: word.contains('/') || has_extension(word),
                    },
                    word.len(),
                )
            }
        };
        if mention.names.iter().all(|name| name.is_empty()) {
            continue;
        }
        mentions.push(mention);
        let end = index + 1 + length;
        while chars.offset() < end && chars.next().is_some() {}
        previous = Some(' ');
    }
    mentions
}

/// Returns a word, and the word without trailing punctuation.
fn strip_punctuation(word: &str) -> Vec<&str> {
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

fn has_extension(word: &str) -> bool {
    let word = word.trim_end_matches(|c: char| !c.is_alphanumeric());
    word.rsplit_once('.').is_some_and(|(name, extension)| {
        !name.is_empty() && !extension.is_empty() && extension.chars().all(char::is_alphanumeric)
    })
}

/// A file or directory that exists.
struct MentionedFile {
    name: String,
    path: String,
    /// `None` for a path outside the workspace: only the agent may want to read it.
    admitted: Option<AdmittedPath>,
    /// `None` outside the workspace, too, and for anything but a regular file.
    size: Option<u64>,
}

fn find_mentioned_file(name: &str, files: &Files) -> Option<MentionedFile> {
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
    Some(MentionedFile { name: name.to_owned(), path: text, admitted, size })
}

/// Returns the URI of a file.
fn file_uri(path: &str) -> String {
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
