//! Attribution of file changes to the tool calls of a relayed session: when to scan the disk, which call made a change,
//! and which diffs the editor sees.
//!
//! An agent that edits files itself reports its tool calls, but not always their effects. The proxy that relays its
//! messages therefore scans the disk when a call begins and when it ends, attributes each change to a call, and shows
//! it there.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::{
    Diff, Meta, SessionId, SessionNotification, ToolCallContent, ToolCallId, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind,
};
use serde_json::{Value, json};

use crate::changes::ChangeId;
use bowline_policy::claims::{self, TextReplacement};
use bowline_policy::paths::path_below;
use bowline_protocol::accumulator::{
    AccumulatorOptions, OtherSessionBehavior, SessionAccumulator, ToolCallView,
};

mod shown_diffs;

/// The maximum number of calls tracked per turn; further changes are attributed to the turn alone.
const MAX_CALLS: usize = 1024;

/// The maximum size of a displayed text; longer texts are not shown.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// The maximum total size of the texts displayed on one call.
pub const MAX_SHOWN_BYTES: usize = 4 << 20;

/// The maximum number of files displayed on one call.
pub const MAX_FILES: usize = 100;

/// The maximum number of calls whose displayed diffs are remembered.
const MAX_CALLS_WITH_DIFFS: usize = 256;

/// The maximum number of strings in a call's raw input that are searched for file names, and the maximum bytes of each.
const MAX_STRINGS: usize = 64;
const MAX_STRING_BYTES: usize = 16 << 10;

/// What a message about a call means for scanning the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallBoundary {
    /// The call begins: earlier changes are not attributed to it.
    Start,
    /// The call has ended: changes may be attributed to it.
    End,
    /// The call continues, or had already ended.
    Within,
}

/// A change found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributedChange {
    /// Its id in the journal.
    pub change: ChangeId,
    /// The canonical path of the file.
    pub path: String,
    /// The call to which the change was attributed, if any.
    pub call: Option<String>,
    /// The text before; `None` if the file did not exist or cannot be shown.
    pub before: Option<String>,
    /// The text after, likewise.
    pub after: Option<String>,
}

/// The directory of a session: the editor's path and the canonical one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionDirectory {
    /// The editor's path.
    pub editor_path: String,
    /// The canonical path, without symbolic links.
    pub canonical_path: String,
}

impl SessionDirectory {
    /// Returns the editor's path of a file.
    #[must_use]
    pub fn to_editor_path(&self, path: &str) -> String {
        match strip_directory(path, &self.canonical_path) {
            Some(rest) if self.editor_path != self.canonical_path => {
                format!("{}/{rest}", self.editor_path.trim_end_matches('/'))
            }
            _ => path.to_owned(),
        }
    }
}

fn strip_directory<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    path_below(path, directory).filter(|rest| !rest.is_empty())
}

/// Attributes the changes of one scan to calls.
#[derive(Debug, Clone, Default)]
pub struct ChangeAttribution {
    // Newest first: each call with the files that it mentions.
    calls: Vec<(ToolCallId, MentionedFiles)>,
    fallback: Option<ToolCallId>,
    directory: SessionDirectory,
}

#[derive(Debug, Clone, Default)]
struct MentionedFiles {
    paths: Vec<String>,
    texts: Vec<String>,
}

impl ChangeAttribution {
    /// Returns the call to which a change of a file is attributed: a call that mentions the file, otherwise the
    /// fallback of the scan.
    #[must_use]
    pub fn call_for_path(&self, path: &str) -> Option<&ToolCallId> {
        let editor_path = self.directory.to_editor_path(path);
        let relative = strip_directory(path, &self.directory.canonical_path).unwrap_or(path);
        let is_named = |names: &MentionedFiles| {
            let mut paths = names.paths.iter();
            paths.any(|named| {
                let named = named.strip_prefix("./").unwrap_or(named);
                named == path || named == editor_path || named == relative
            }) || names
                .texts
                .iter()
                .any(|text| mentions(text, path) || mentions(text, &editor_path) || mentions(text, relative))
        };
        let named = self.calls.iter().find(|(_, names)| is_named(names)).map(|(id, _)| id);
        named.or(self.fallback.as_ref())
    }
}

/// Returns whether a text contains a name as a separate word.
fn mentions(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let before = match text[..at].strip_suffix("./") {
            Some(rest) => rest.chars().next_back(),
            None => before.filter(|c| *c != '.'),
        };
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// The tool calls of one session.
#[derive(Debug)]
pub struct AttributionTracker {
    accumulator: SessionAccumulator,
    directory: SessionDirectory,
    // The calls of the turn, oldest first. Invariant: at most `MAX_CALLS`, and likewise `recently_ended`.
    calls: Vec<ToolCallId>,
    // The calls that have ended since the last scan.
    recently_ended: Vec<ToolCallId>,
    // The diffs shown on calls. Invariant: at most `MAX_CALLS_WITH_DIFFS`; each within `MAX_FILES` and
    // `MAX_SHOWN_BYTES`.
    shown_diffs: HashMap<ToolCallId, Vec<ShownDiff>>,
}

impl AttributionTracker {
    /// Returns a tracker for a session without messages.
    #[must_use]
    pub fn new(session: &SessionId, directory: SessionDirectory) -> Self {
        let options = AccumulatorOptions {
            other_session: OtherSessionBehavior::Refuse,
            ..AccumulatorOptions::default()
        };
        let mut accumulator = SessionAccumulator::with_options(options);
        // An accumulator adopts the first session that it sees.
        accumulator.apply_session_setup(session, None, None).ok();
        Self {
            accumulator,
            directory,
            calls: Vec::new(),
            recently_ended: Vec::new(),
            shown_diffs: HashMap::new(),
        }
    }

    /// Sets the directory of the session, once it is known.
    pub fn set_directory(&mut self, directory: SessionDirectory) {
        self.directory = directory;
    }

    /// Starts a turn: earlier calls have no part in it.
    pub fn start_turn(&mut self) {
        self.calls.clear();
        self.recently_ended.clear();
        self.shown_diffs.clear();
        self.accumulator.mark_turn_boundary();
    }

    /// Applies an agent's message about a call. Protocol violations change nothing.
    pub fn update(&mut self, id: &ToolCallId, notification: &SessionNotification) -> CallBoundary {
        let status = |tracker: &Self| {
            tracker.accumulator.snapshot().tool_call(id).map(|call| (call.status, call.is_finished()))
        };
        let before = status(self);
        if self.accumulator.apply(notification).is_err() {
            return CallBoundary::Within;
        }
        let after = status(self);
        if !self.calls.contains(id) && self.calls.len() < MAX_CALLS {
            self.calls.push(id.clone());
        }
        match (before, after) {
            (Some((_, true)), _) | (_, None) => CallBoundary::Within,
            (_, Some((_, true))) => {
                if self.recently_ended.len() < MAX_CALLS {
                    self.recently_ended.push(id.clone());
                }
                CallBoundary::End
            }
            (None, Some(_)) => CallBoundary::Start,
            (Some((before, _)), Some((after, _))) if before != after => CallBoundary::Start,
            (Some(_), Some(_)) => CallBoundary::Within,
        }
    }

    /// Returns everything known about a call, overlaid with an update.
    #[must_use]
    pub fn describe_call(&self, update: &ToolCallUpdate) -> ToolCallView {
        let snapshot = self.accumulator.snapshot();
        ToolCallView::from_update(snapshot.tool_call(&update.tool_call_id), update)
    }

    /// Returns the call to which an operation on files belongs, or without paths the call that runs a command.
    #[must_use]
    pub fn call_for(&self, paths: Option<&[&str]>) -> Option<String> {
        claims::find_call_for_operation(&self.accumulator.snapshot(), paths)
    }

    /// Returns the open call to which a file change by one of Bowline's tools belongs: the newest that mentions the
    /// file anywhere, otherwise the only open call.
    #[must_use]
    pub fn open_call_naming(&self, path: &str) -> Option<String> {
        let snapshot = self.accumulator.snapshot();
        let open = self.calls.iter().rev().filter_map(|id| {
            let call = snapshot.tool_call(id).filter(|call| !call.is_finished())?;
            Some((id.clone(), mentioned_files(call)))
        });
        let calls: Vec<_> = open.collect();
        let fallback = if let [(only, _)] = calls.as_slice() { Some(only.clone()) } else { None };
        let owners = ChangeAttribution { calls, fallback, directory: self.directory.clone() };
        owners.call_for_path(path).map(|call| call.0.to_string())
    }

    /// Returns the number of calls if none is open. While one is open, the agent may be in the middle of a change.
    #[must_use]
    pub fn idle_call_count(&self) -> Option<usize> {
        let snapshot = self.accumulator.snapshot();
        let is_over = |id| snapshot.tool_call(id).is_none_or(|call| call.is_finished());
        self.calls.iter().all(is_over).then_some(self.calls.len())
    }

    /// Returns the attribution for a scan made now: its candidates are the calls that are open or have ended since the
    /// last scan. `boundary` is the call that triggered the scan, and the fallback for files that no candidate
    /// mentions. If it is still open and only reads, the fallback is the last call that ended.
    #[must_use]
    pub fn take_attribution(&mut self, boundary: Option<&ToolCallId>) -> ChangeAttribution {
        let snapshot = self.accumulator.snapshot();
        let fresh = std::mem::take(&mut self.recently_ended);
        let calls = self.calls.iter().rev().filter_map(|id| {
            let call = snapshot.tool_call(id)?;
            (!call.is_finished() || fresh.contains(id)).then(|| (id.clone(), mentioned_files(call)))
        });
        let calls: Vec<_> = calls.collect();
        let may_change = |id: &&ToolCallId| {
            let is_read_only =
                |kind| matches!(kind, ToolKind::Read | ToolKind::Search | ToolKind::Think | ToolKind::Fetch);
            snapshot.tool_call(id).is_some_and(|call| call.is_finished() || !is_read_only(call.kind))
        };
        let fallback = boundary.filter(may_change).or(fresh.last()).cloned();
        ChangeAttribution { calls, fallback, directory: self.directory.clone() }
    }

    /// Returns the update that shows changes on a call: the agent's content followed by the diffs. Returns `None` if
    /// there is nothing new to show.
    #[must_use]
    pub fn report_changes(
        &mut self,
        call: &ToolCallId,
        found: &[&AttributedChange],
    ) -> Option<ToolCallUpdate> {
        let snapshot = self.accumulator.snapshot();
        let view = snapshot.tool_call(call)?;
        let mut shown = self.shown_diffs.remove(call).unwrap_or_default();
        let mut is_new = false;
        for found in found {
            let Some(diff) = self.shown_diff(found) else { continue };
            if diff.is_shown_in(&view.content) {
                continue;
            }
            let room = MAX_SHOWN_BYTES.saturating_sub(shown.iter().map(ShownDiff::size).sum());
            if diff.size() > room {
                continue;
            }
            match shown.iter().position(|known| known.canonical_path == diff.canonical_path) {
                // The same file again: the diff spans from its first old text to its latest new one.
                Some(at) => shown[at].diff.new_text = diff.diff.new_text,
                None if shown.len() < MAX_FILES => shown.push(diff),
                None => continue,
            }
            is_new = true;
        }
        let update = is_new.then(|| update_with_diffs(view, &shown));
        if !shown.is_empty() && self.shown_diffs.len() < MAX_CALLS_WITH_DIFFS {
            self.shown_diffs.insert(call.clone(), shown);
        }
        update
    }

    /// Returns an agent's message about a call with the shown diffs appended to its content, because that content
    /// replaces the earlier one. Returns `None` if the message has no content or shows all the diffs itself.
    #[must_use]
    pub fn with_shown_diffs(&self, call: &ToolCallId, line: &[u8]) -> Option<Vec<u8>> {
        shown_diffs::append_diffs(line, self.shown_diffs.get(call)?)
    }

    fn shown_diff(&self, found: &AttributedChange) -> Option<ShownDiff> {
        if found.before == found.after {
            // The text cannot be shown, or only the mode changed.
            return None;
        }
        let new = found.after.clone().unwrap_or_default();
        let diff = Diff::new(self.directory.to_editor_path(&found.path), new).old_text(found.before.clone());
        (diff.new_text.len() <= MAX_TEXT_BYTES
            && diff.old_text.as_ref().is_none_or(|old| old.len() <= MAX_TEXT_BYTES))
        .then_some(ShownDiff { canonical_path: found.path.clone(), diff })
    }
}

/// A diff that the proxy shows on a call.
#[derive(Debug)]
struct ShownDiff {
    // The canonical path; the diff has the editor's path.
    canonical_path: String,
    diff: Diff,
}

impl ShownDiff {
    fn size(&self) -> usize {
        self.diff.new_text.len() + self.diff.old_text.as_ref().map_or(0, String::len)
    }

    /// Returns whether the agent shows the change itself: whole, or only the changed part.
    fn is_shown_in(&self, content: &[ToolCallContent]) -> bool {
        content.iter().any(|content| {
            let ToolCallContent::Diff(diff) = content else { return false };
            if diff.path != self.diff.path && diff.path.as_os_str() != self.canonical_path.as_str() {
                return false;
            }
            let text = TextReplacement { old: diff.old_text.clone(), new: diff.new_text.clone() };
            text.apply_to(self.diff.old_text.as_deref()).as_deref() == Some(self.diff.new_text.as_str())
        })
    }
}

fn update_with_diffs(view: &ToolCallView, shown: &[ShownDiff]) -> ToolCallUpdate {
    let content = view.content.iter().cloned();
    let shown_too = shown.iter().map(|shown| ToolCallContent::Diff(shown.diff.clone()));
    let content = content.chain(shown_too).collect::<Vec<_>>();
    let mut meta = Meta::new();
    meta.insert("bowline".to_owned(), json!({ "observed": shown.len() }));
    ToolCallUpdate::new(view.id.clone(), ToolCallUpdateFields::new().content(content)).meta(meta)
}

fn mentioned_files(call: &ToolCallView) -> MentionedFiles {
    let mut paths: Vec<String> =
        call.locations.iter().map(|location| location.path.to_string_lossy().into_owned()).collect();
    paths.extend(call.content.iter().filter_map(|content| match content {
        ToolCallContent::Diff(diff) => Some(diff.path.to_string_lossy().into_owned()),
        _ => None,
    }));
    let mut texts = Vec::new();
    if let Some(input) = &call.raw_input {
        collect_strings(input, 4, &mut texts);
    }
    MentionedFiles { paths, texts }
}

fn collect_strings(value: &Value, depth: usize, into: &mut Vec<String>) {
    if into.len() >= MAX_STRINGS || depth == 0 {
        return;
    }
    match value {
        Value::String(text) if text.len() <= MAX_STRING_BYTES => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_strings(item, depth - 1, into)),
        Value::Object(fields) => fields.values().for_each(|field| collect_strings(field, depth - 1, into)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
