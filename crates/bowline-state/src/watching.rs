//! The tool calls of a session that passes by: when to look at the disk, whose doing it is what changed, and what the
//! editor is shown of it.
//!
//! An agent that edits files by itself tells of its tool calls, and not always of what they do. So whoever passes its
//! messages on looks at the disk when a call begins and when it ends, lays what has changed to a call, and shows it there.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::{
    Diff, Meta, SessionId, SessionNotification, ToolCallContent, ToolCallId, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind,
};
use serde_json::{Value, json};

use crate::accumulator::{Options, OtherSession, SessionAccumulator, ToolCallView};
use crate::changes::ChangeId;
use crate::claims::{self, NewText};

mod shown_diffs;

/// So many calls of a turn are known; what else changes is laid to the turn alone.
const MAX_CALLS: usize = 1024;

/// A text that is longer is not shown.
pub const MAX_TEXT: usize = 1 << 20;

/// The texts that are shown on one call have so many bytes in all.
pub const MAX_SHOWN: usize = 4 << 20;

/// So many files are shown on one call.
pub const MAX_FILES: usize = 100;

/// So many calls that something was shown on are remembered.
const MAX_REMEMBERED: usize = 256;

/// So many strings of a call's raw input are looked through for names of files, and so many bytes of each.
const MAX_STRINGS: usize = 64;
const MAX_STRING: usize = 16 << 10;

/// What a message about a call means for looking at the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// The call begins: what changed before is not its doing.
    Begins,
    /// The call has ended: what changed may be its doing.
    Ends,
    /// It goes on, or has ended before.
    Within,
}

/// A change that was found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// As the journal knows it.
    pub change: ChangeId,
    /// The file's own name.
    pub path: String,
    /// The call that it was laid to, if one was.
    pub call: Option<String>,
    /// The text before; none if there was no file, or none that can be shown.
    pub before: Option<String>,
    /// The text after, likewise.
    pub after: Option<String>,
}

/// Where a session is: the directory as the editor names it, and by its own name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// As the editor names it.
    pub asked: String,
    /// By its own name, with no link on the way.
    pub own: String,
}

impl Place {
    /// Returns a file as the editor names it.
    #[must_use]
    pub fn named(&self, path: &str) -> String {
        match below(path, &self.own) {
            Some(rest) if self.asked != self.own => format!("{}/{rest}", self.asked.trim_end_matches('/')),
            _ => path.to_owned(),
        }
    }
}

fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    path.strip_prefix(directory.trim_end_matches('/'))?.strip_prefix('/').filter(|rest| !rest.is_empty())
}

/// Whose doing a change is that is found now.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    // Newest first: each call with what it names.
    calls: Vec<(ToolCallId, Names)>,
    otherwise: Option<ToolCallId>,
    place: Place,
}

#[derive(Debug, Clone, Default)]
struct Names {
    paths: Vec<String>,
    texts: Vec<String>,
}

impl Owners {
    /// Returns the call that a change of a file is laid to: one that names it, else the one that has ended.
    #[must_use]
    pub fn of(&self, path: &str) -> Option<&ToolCallId> {
        let asked = self.place.named(path);
        let relative = below(path, &self.place.own).unwrap_or(path);
        let is_named = |names: &Names| {
            let mut paths = names.paths.iter();
            paths.any(|named| {
                let named = named.strip_prefix("./").unwrap_or(named);
                named == path || named == asked || named == relative
            }) || names
                .texts
                .iter()
                .any(|text| mentions(text, path) || mentions(text, &asked) || mentions(text, relative))
        };
        let named = self.calls.iter().find(|(_, names)| is_named(names)).map(|(id, _)| id);
        named.or(self.otherwise.as_ref())
    }
}

/// Says whether a text has a name in it as a word of its own.
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
pub struct Watching {
    accumulator: SessionAccumulator,
    place: Place,
    // The calls of the turn, oldest first. Invariant: at most `MAX_CALLS`, and of `fresh` as many.
    calls: Vec<ToolCallId>,
    // Those that have ended since the last look.
    fresh: Vec<ToolCallId>,
    // What was shown on calls. Invariant: at most `MAX_REMEMBERED`; each within `MAX_FILES` and `MAX_SHOWN`.
    shown: HashMap<ToolCallId, Vec<ShownDiff>>,
}

impl Watching {
    /// Returns a session in which nothing was said yet.
    #[must_use]
    pub fn new(session: &SessionId, place: Place) -> Self {
        let options = Options { other_session: OtherSession::Refuse, ..Options::default() };
        let mut accumulator = SessionAccumulator::with_options(options);
        // The first session that an accumulator hears of is its own.
        accumulator.opened(session, None, None).ok();
        Self { accumulator, place, calls: Vec::new(), fresh: Vec::new(), shown: HashMap::new() }
    }

    /// Says where the session is, once that is known.
    pub fn is_at(&mut self, place: Place) {
        self.place = place;
    }

    /// A turn begins: calls of before have no part in it.
    pub fn turn_begins(&mut self) {
        self.calls.clear();
        self.fresh.clear();
        self.shown.clear();
        self.accumulator.turn_boundary();
    }

    /// Takes in what the agent tells of a call. What the protocol does not allow changes nothing.
    pub fn update(&mut self, id: &ToolCallId, notification: &SessionNotification) -> Boundary {
        let status = |watching: &Self| {
            watching.accumulator.snapshot().tool_call(id).map(|call| (call.status, call.is_finished()))
        };
        let before = status(self);
        if self.accumulator.apply(notification).is_err() {
            return Boundary::Within;
        }
        let after = status(self);
        if !self.calls.contains(id) && self.calls.len() < MAX_CALLS {
            self.calls.push(id.clone());
        }
        match (before, after) {
            (Some((_, true)), _) | (_, None) => Boundary::Within,
            (_, Some((_, true))) => {
                if self.fresh.len() < MAX_CALLS {
                    self.fresh.push(id.clone());
                }
                Boundary::Ends
            }
            (None, Some(_)) => Boundary::Begins,
            (Some((before, _)), Some((after, _))) if before != after => Boundary::Begins,
            (Some(_), Some(_)) => Boundary::Within,
        }
    }

    /// Returns all that is known of a call, with what a message says on top.
    #[must_use]
    pub fn described(&self, update: &ToolCallUpdate) -> ToolCallView {
        let snapshot = self.accumulator.snapshot();
        ToolCallView::described(snapshot.tool_call(&update.tool_call_id), update)
    }

    /// Returns the call that an operation on a file belongs to, or without one the call that runs a command.
    #[must_use]
    pub fn call_for(&self, path: Option<&str>) -> Option<String> {
        claims::call_for(&self.accumulator.snapshot(), path)
    }

    /// Returns the open call that a change of a file by a tool of ours belongs to: the newest that names it, wherever it
    /// does, else the only one there is.
    #[must_use]
    pub fn call_naming(&self, path: &str) -> Option<String> {
        let snapshot = self.accumulator.snapshot();
        let open = self.calls.iter().rev().filter_map(|id| {
            let call = snapshot.tool_call(id).filter(|call| !call.is_finished())?;
            Some((id.clone(), names(call)))
        });
        let calls: Vec<_> = open.collect();
        let otherwise = if let [(only, _)] = calls.as_slice() { Some(only.clone()) } else { None };
        let owners = Owners { calls, otherwise, place: self.place.clone() };
        owners.of(path).map(|call| call.0.to_string())
    }

    /// Returns how many calls there were, if none of them is open. While one is, the agent may be in the middle of a change.
    #[must_use]
    pub fn at_rest(&self) -> Option<usize> {
        let snapshot = self.accumulator.snapshot();
        let is_over = |id| snapshot.tool_call(id).is_none_or(|call| call.is_finished());
        self.calls.iter().all(is_over).then_some(self.calls.len())
    }

    /// Returns whose doing is what a look finds now: of calls that are open, or have ended since the last look. `boundary` is
    /// the one that it is because of. One that has just begun may have changed something already, unless it only reads.
    #[must_use]
    pub fn owners(&mut self, boundary: Option<&ToolCallId>) -> Owners {
        let snapshot = self.accumulator.snapshot();
        let fresh = std::mem::take(&mut self.fresh);
        let calls = self.calls.iter().rev().filter_map(|id| {
            let call = snapshot.tool_call(id)?;
            (!call.is_finished() || fresh.contains(id)).then(|| (id.clone(), names(call)))
        });
        let calls: Vec<_> = calls.collect();
        let may_change = |id: &&ToolCallId| {
            let reads =
                |kind| matches!(kind, ToolKind::Read | ToolKind::Search | ToolKind::Think | ToolKind::Fetch);
            snapshot.tool_call(id).is_some_and(|call| call.is_finished() || !reads(call.kind))
        };
        let otherwise = boundary.filter(may_change).or(fresh.last()).cloned();
        Owners { calls, otherwise, place: self.place.clone() }
    }

    /// Returns what the editor is told of changes of a call: what the agent has shown on it, and then these. None if there
    /// is nothing that it does not show already.
    #[must_use]
    pub fn report(&mut self, call: &ToolCallId, found: &[&Found]) -> Option<ToolCallUpdate> {
        let snapshot = self.accumulator.snapshot();
        let view = snapshot.tool_call(call)?;
        let mut shown = self.shown.remove(call).unwrap_or_default();
        let mut is_new = false;
        for found in found {
            let Some(diff) = self.diff(found) else { continue };
            if diff.is_in(&view.content) {
                continue;
            }
            let room = MAX_SHOWN.saturating_sub(shown.iter().map(ShownDiff::size).sum());
            if diff.size() > room {
                continue;
            }
            match shown.iter().position(|known| known.own_path == diff.own_path) {
                // The same file again: from what it was at first to what it is now.
                Some(at) => shown[at].diff.new_text = diff.diff.new_text,
                None if shown.len() < MAX_FILES => shown.push(diff),
                None => continue,
            }
            is_new = true;
        }
        let update = is_new.then(|| with(view, &shown));
        if !shown.is_empty() && self.shown.len() < MAX_REMEMBERED {
            self.shown.insert(call.clone(), shown);
        }
        update
    }

    /// Returns a message of the agent about a call with the diffs that were shown on it, behind the content that the message
    /// gives: that replaces what was there. `None` if the message gives no content, or shows all of them itself.
    #[must_use]
    pub fn keep_shown(&self, call: &ToolCallId, line: &[u8]) -> Option<Vec<u8>> {
        shown_diffs::with_diffs(line, self.shown.get(call)?)
    }

    fn diff(&self, found: &Found) -> Option<ShownDiff> {
        if found.before == found.after {
            // What cannot be shown, or only its mode changed.
            return None;
        }
        let new = found.after.clone().unwrap_or_default();
        let diff = Diff::new(self.place.named(&found.path), new).old_text(found.before.clone());
        (diff.new_text.len() <= MAX_TEXT && diff.old_text.as_ref().is_none_or(|old| old.len() <= MAX_TEXT))
            .then_some(ShownDiff { own_path: found.path.clone(), diff })
    }
}

/// A diff that the proxy shows on a call.
#[derive(Debug)]
struct ShownDiff {
    // The file's own name; the diff has the editor's name for it.
    own_path: String,
    diff: Diff,
}

impl ShownDiff {
    fn size(&self) -> usize {
        self.diff.new_text.len() + self.diff.old_text.as_ref().map_or(0, String::len)
    }

    /// Says whether the agent shows the change itself: whole, or the part that changes.
    fn is_in(&self, content: &[ToolCallContent]) -> bool {
        content.iter().any(|content| {
            let ToolCallContent::Diff(told) = content else { return false };
            if told.path != self.diff.path && told.path.as_os_str() != self.own_path.as_str() {
                return false;
            }
            let text = NewText { old: told.old_text.clone(), new: told.new_text.clone() };
            text.whole(self.diff.old_text.as_deref()).as_deref() == Some(self.diff.new_text.as_str())
        })
    }
}

fn with(view: &ToolCallView, shown: &[ShownDiff]) -> ToolCallUpdate {
    let content = view.content.iter().cloned();
    let shown_too = shown.iter().map(|shown| ToolCallContent::Diff(shown.diff.clone()));
    let content = content.chain(shown_too).collect::<Vec<_>>();
    let mut meta = Meta::new();
    meta.insert("bowline".to_owned(), json!({ "observed": shown.len() }));
    ToolCallUpdate::new(view.id.clone(), ToolCallUpdateFields::new().content(content)).meta(meta)
}

fn names(call: &ToolCallView) -> Names {
    let mut paths: Vec<String> =
        call.locations.iter().map(|location| location.path.to_string_lossy().into_owned()).collect();
    paths.extend(call.content.iter().filter_map(|content| match content {
        ToolCallContent::Diff(diff) => Some(diff.path.to_string_lossy().into_owned()),
        _ => None,
    }));
    let mut texts = Vec::new();
    if let Some(input) = &call.raw_input {
        strings(input, 4, &mut texts);
    }
    Names { paths, texts }
}

fn strings(value: &Value, depth: usize, into: &mut Vec<String>) {
    if into.len() >= MAX_STRINGS || depth == 0 {
        return;
    }
    match value {
        Value::String(text) if text.len() <= MAX_STRING => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, depth - 1, into)),
        Value::Object(fields) => fields.values().for_each(|field| strings(field, depth - 1, into)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
