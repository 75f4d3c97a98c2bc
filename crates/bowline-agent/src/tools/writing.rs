//! Writing and editing files: on the text as it is now, with what the model knows of it, and looked at afterwards.
//!
//! Whoever serves the file, the way is the same. The current text is read; what is to be written is decided against what
//! the model has seen, so that nothing of the user's is lost; the difference is shown and allowed; the text is written,
//! and read again, because editors format and merge. What the model did not know by then it is told.

use std::sync::Arc;

use bowline_state::audit::Action;
use bowline_state::builders;
use bowline_state::changes::ContentHash;
use bowline_state::edits::{Edit, Which};
use bowline_state::failure::Failure;
use bowline_state::ledger::{Knowledge, Verdict, Version};
use bowline_state::lines::Window;
use bowline_state::operation::Kind;
use bowline_state::paths::LexicalPath;
use bowline_state::question::{Item, Shown};
use bowline_state::schema::v1::{ToolCallContent, ToolCallUpdateFields, ToolKind};
use bowline_state::tooling::deciding::{Current, Decided, Wanted, decide, remember};
use bowline_state::tooling::input::Fields;
use bowline_state::tooling::telling::{self, first_difference, lines_of, plural, small_diff};
use bowline_workspace::files::{Files, TextWritten};
use serde_json::{Value, json};

use super::Side;
use super::work::{Done, Stop, Work, location};
use crate::permission::{Became, Pass, Wish};
use crate::runtime::beside::{Disk, is_same, text_of};
use crate::runtime::{Fault, Missing, Server, Text, Truth};

/// How often a change is shown again because the file changed while the user looked at it.
const ATTEMPTS: usize = 3;

/// What a model is told where the disk has more than the editor.
const NOT_RELOADED: &str =
    "The file was changed on disk, and the editor had not reloaded it; what was changed there is in it now.";

/// Runs a tool that writes a whole file.
pub(crate) async fn write(work: &Work<'_>, side: Side) -> Result<Done, Stop> {
    let fields = work.fields()?;
    let path = work.resolve(fields.text("path")?)?;
    let content = fields.text("content")?.to_owned();
    let input = json!({ "path": path.as_str(), "content": content });
    change(work, side, &path, &Wanted::Whole(content), "Write", input).await
}

/// Runs a tool that edits a file by search and replace.
pub(crate) async fn edit(work: &Work<'_>, side: Side) -> Result<Done, Stop> {
    let fields = work.fields()?;
    let path = work.resolve(fields.text("path")?)?;
    let list = edits(fields)?;
    let shown: Vec<Value> = list
        .iter()
        .map(|edit| json!({ "old_text": edit.old, "new_text": edit.new, "replace_all": edit.which == Which::All }))
        .collect();
    let input = json!({ "path": path.as_str(), "edits": shown });
    change(work, side, &path, &Wanted::Edits(list), "Edit", input).await
}

/// Returns the edits that a call asks for.
pub(super) fn edits(fields: Fields<'_>) -> Result<Vec<Edit>, String> {
    // One edit may stand in the call itself.
    if fields.has_any(&OLD) {
        return edit_of(fields).map(|edit| vec![edit]);
    }
    // Weak models write the list as text.
    if let Ok(Some(text)) = fields.some_text("edits")
        && let Ok(list @ (Value::Array(_) | Value::Object(_))) = serde_json::from_str(text)
    {
        let again = serde_json::Map::from_iter([("edits".to_owned(), list)]);
        return edits(Fields::of_object(&again));
    }
    let listed = fields.objects("edits").map_err(|why| format!("{why}: {FORM}"))?;
    let each = listed.into_iter().enumerate();
    each.map(|(index, each)| edit_of(each).map_err(|why| format!("edit {}: {why}", index + 1))).collect()
}

fn edit_of(fields: Fields<'_>) -> Result<Edit, String> {
    let which = if fields.flag("replace_all")? { Which::All } else { Which::Only };
    let (old, new) = (fields.text_of(&OLD)?, fields.text_of(&NEW)?);
    Ok(Edit { old: old.to_owned(), new: new.to_owned(), which })
}

/// What the text to be replaced is called, and what takes its place; after the names here, those that other agents have for
/// them, which models have learned.
const OLD: [&str; 4] = ["old_text", "old_string", "old_str", "search"];
const NEW: [&str; 4] = ["new_text", "new_string", "new_str", "replace"];

const FORM: &str = r#"give [{"old_text": "…", "new_text": "…"}], or old_text and new_text for a single edit"#;

async fn change(
    work: &Work<'_>,
    side: Side,
    path: &LexicalPath,
    wanted: &Wanted,
    verb: &str,
    input: Value,
) -> Result<Done, Stop> {
    let title = format!("{verb} {}", work.shown(path));
    work.start(&title, ToolKind::Edit, |call| call.raw_input(input).locations(vec![location(path, None)]))
        .await?;
    let operation = work.operation(Kind::Write, path).await?;
    let key = work.tools.key(side.read.unwrap_or(side.write), path.as_str());
    let _alone = work.tools.alone(path.as_str()).await;
    for _ in 0..ATTEMPTS {
        let (current, note) = current(work, side, path).await?;
        let shown = work.shown(path);
        let mut decided = work.tools.knows(|known| decide(known, &key, &current, wanted, shown))?;
        decided.notes.extend(note.map(str::to_owned));
        if current.text().is_some_and(|text| **text == *decided.text) {
            work.tools.knows(|known| remember(known, &key, &current, wanted, &decided, current.text()));
            let text = format!("{} holds this text already; nothing was written.", work.shown(path));
            return Ok(Done { text, ..Done::default() });
        }
        let before = current.text().map(|text| text.as_str());
        let diff = vec![builders::diff(path.as_str(), before, decided.text.as_str())];
        let line = first_difference(before.unwrap_or_default(), &decided.text);
        let fields = ToolCallUpdateFields::new().content(diff.clone());
        work.show(fields.locations(vec![location(path, Some(line))])).await;
        let change = Shown { before: current.text().cloned(), after: decided.text.clone() };
        let item = Item::changing(operation.clone(), change);
        let wish = Wish { action: Action::Write, title: title.clone(), item };
        let pass = work.tools.permissions.clear(side.write, work.call, work.cx, wish).await;
        let pass = pass.map_err(|no| Stop::from(no).showing(diff.clone()))?;
        // A person takes time, and has agreed to this and nothing else.
        if pass.is_bound() && self::current(work, side, path).await?.0 != current {
            continue;
        }
        // A client that decides knows what was read, and shows a person what would be replaced.
        let is_seen = pass.is_bound()
            || pass.is_for_client()
            || is_seen(work, path, &key, &current, decided.verdict).await;
        let writing = Writing { work, side, path, key: key.clone(), wanted, current, decided, diff };
        if !is_seen {
            return Err(writing.unseen(pass).await);
        }
        if let Some(done) = writing.carry_out(pass).await? {
            return Ok(done);
        }
    }
    Err(format!(
        "{} keeps changing while it is approved: nothing was written, read it again",
        work.shown(path)
    )
    .into())
}

/// Says whether nothing would be replaced that the model has not seen.
async fn is_seen(
    work: &Work<'_>,
    path: &LexicalPath,
    key: &str,
    current: &Current,
    verdict: Option<Verdict>,
) -> bool {
    match (current, verdict) {
        (Current::Text(text), Some(Verdict::ReplacedPartlySeen | Verdict::ReplacedUnseen)) => text.is_empty(),
        (Current::Text(_) | Current::Missing, _) => true,
        // Whoever writes it does not read it to us; what is on disk here is the best there is.
        (Current::Unknown, _) => match work.runtimes().glance(path.as_str()).await {
            Disk::Missing => true,
            Disk::File(bytes, _) => {
                let known = work.tools.ledger().knowledge(key, Version(0));
                matches!(known, Knowledge::Whole(text) if text_of(&bytes).is_some_and(|now| is_same(&now, &text)))
            }
            Disk::Unknown => false,
        },
    }
}

/// Reads what the file holds; with what the model is to be told of it.
async fn current(
    work: &Work<'_>,
    side: Side,
    path: &LexicalPath,
) -> Result<(Current, Option<&'static str>), Stop> {
    let Some(by) = side.read else { return Ok((Current::Unknown, None)) };
    let (runtimes, shown) = (work.runtimes(), work.shown(path));
    if !work.tools.book.names().is_empty() {
        // What runs in the background may have changed it just now.
        runtimes.note_command();
    }
    if (by, side.write) == (Server::Client, Server::Local)
        && let Ok(engine) = runtimes.engine().await
    {
        // So that the engine notices if the disk is changed from now on. What it holds is looked at in a moment.
        Files::read(&engine.files, path.as_str(), Window::default()).await.ok();
    }
    let nothing = |why: &str| Stop::from(format!("nothing was written: {shown}{why}"));
    match runtimes.read(by, path.as_str(), Window::default()).await {
        Ok(Text { text, truth: Truth::Served, .. }) => Ok((Current::Text(text), None)),
        Ok(Text { truth: Truth::Merged(text), .. }) => Ok((Current::Text(text), Some(NOT_RELOADED))),
        Ok(Text { truth: Truth::Stale, .. }) => Err(nothing(
            " was changed on disk, and the editor has not reloaded it: it has to be saved or reloaded in the editor, or \
             edited by a command",
        )),
        Ok(Text { truth: Truth::Deleted, .. }) => Err(nothing(
            " was deleted on disk, and the editor still has its text: it has to be saved or closed in the editor",
        )),
        Ok(Text { truth: Truth::Lossy, .. }) => Err(nothing(
            " is not text that the editor can read, and what it could not read would be lost: change it by a command",
        )),
        Err(fault) => {
            let is_missing = match fault.missing(path.as_str()) {
                Missing::Surely => true,
                Missing::Perhaps => runtimes.glance(path.as_str()).await == Disk::Missing,
                Missing::No => false,
            };
            if is_missing {
                return Ok((Current::Missing, None));
            }
            if fault.is_missing() {
                return Err(nothing(&format!(" cannot be read: {} says: {fault}", by.name())));
            }
            let advice = match &fault {
                Fault::Said(Failure::TooLarge { .. }) => ": it is too large to be edited so, use a command",
                _ => "",
            };
            Err(format!("nothing was written: {}{advice}", fault.told(by, shown)).into())
        }
    }
}

/// A change that is allowed.
struct Writing<'a, 'w> {
    work: &'a Work<'w>,
    side: Side,
    path: &'a LexicalPath,
    // What the ledger knows the file by.
    key: String,
    wanted: &'a Wanted,
    current: Current,
    decided: Decided,
    diff: Vec<ToolCallContent>,
}

/// What is known of a file after it was written.
enum After {
    /// It holds this.
    Holds(Arc<String>),
    /// It was not read again; why.
    Unread(String),
}

impl Writing<'_, '_> {
    /// Writes the text. Returns nothing if the file changed while the client decided: then it is to be decided anew.
    async fn carry_out(self, mut pass: Pass) -> Result<Option<Done>, Stop> {
        let Self { work, side, path, .. } = &self;
        pass.begins().await.map_err(|why| Stop::from(why).showing(self.diff.clone()))?;
        // A client that decides asks its user first.
        if !pass.is_for_client() {
            work.runs().await;
        }
        let (content, asker) = (self.decided.text.to_string(), work.asker());
        let written = work.runtimes().write(side.write, path.as_str(), content, &asker).await;
        let (after, doubt) = match &written {
            // One writes and another reads: what the writer made of it is the file.
            Ok(TextWritten { text: Some(text), .. })
                if side.read != Some(side.write) && *text != self.decided.text =>
            {
                (After::Holds(text.clone()), None)
            }
            Ok(_) => (self.read_again().await, None),
            // The connection stands: the file itself can tell.
            Err(fault @ (Fault::TimedOut { .. } | Fault::Unreadable { .. })) => {
                (self.read_again().await, Some(fault.to_string()))
            }
            Err(Fault::Said(Failure::Conflict { .. })) if pass.is_for_client() => return Ok(None),
            Err(fault) => return Err(self.failed(pass, fault).await),
        };
        if let (Some(doubt), false) =
            (&doubt, matches!(&after, After::Holds(text) if *text == self.decided.text))
        {
            let text = unknown_outcome(work.shown(path), doubt);
            self.recorded(pass, None, Some(text.clone())).await;
            return Err(Stop::from(text).showing(self.diff.clone()));
        }
        let now = match &after {
            After::Holds(text) => Some(text.clone()),
            After::Unread(_) => None,
        };
        self.recorded(pass, now.as_ref().or(Some(&self.decided.text)), None).await;
        let told = self.tell(&after, written.map(|written| written.notes).unwrap_or_default());
        let seen = now.as_ref().filter(|_| !told.is_cut);
        work.tools.knows(|known| {
            remember(known, &self.key, &self.current, self.wanted, &self.decided, seen);
        });
        let before = self.current.text().map(|text| text.as_str());
        let holds = now.as_deref().unwrap_or(&self.decided.text);
        let line = first_difference(before.unwrap_or_default(), holds);
        let output = json!({
            "servedBy": side.write.word(),
            "outcome": word(self.decided.verdict),
            "readBack": now.is_some(),
            "changedByEditor": told.changed,
            "lines": lines_of(holds),
        });
        Ok(Some(Done {
            text: told.text,
            content: Some(vec![builders::diff(path.as_str(), before, holds.as_str())]),
            locations: Some(vec![location(path, Some(line))]),
            output: Some(output),
            ..Done::default()
        }))
    }

    /// Says that nobody has seen what would be replaced: neither the model, nor a person who agreed to that.
    async fn unseen(&self, pass: Pass) -> Stop {
        let why = match self.current {
            Current::Unknown => "the editor does not show what is in it now, which would be replaced",
            _ => {
                "you have not read all of the text that would be replaced, or not since this session was loaded"
            }
        };
        let advice = match self.current {
            Current::Unknown => "ask the user for the mode that asks before edits",
            _ => "read it first",
        };
        let text = format!("nothing was written: {}: {why}: {advice}", self.work.shown(self.path));
        self.recorded(pass, None, Some(text.clone())).await;
        Stop::from(text).showing(self.diff.clone())
    }

    async fn failed(&self, pass: Pass, fault: &Fault) -> Stop {
        let shown = self.work.shown(self.path);
        let text = if fault.is_open() {
            unknown_outcome(shown, &fault.to_string())
        } else {
            let hunks = match fault {
                Fault::Said(Failure::Conflict { hunks, .. }) => telling::conflict(hunks),
                _ => String::new(),
            };
            format!("nothing was written: {}{hunks}", fault.told(self.side.write, shown))
        };
        self.recorded(pass, None, Some(text.clone())).await;
        Stop::from(text).showing(self.diff.clone())
    }

    async fn recorded(&self, pass: Pass, after: Option<&Arc<String>>, failed: Option<String>) {
        let hash = |text: &Arc<String>| ContentHash::of(text.as_bytes());
        let became = Became {
            bytes: Some(self.decided.text.len()),
            before: self.current.text().map(hash),
            after: after.map(hash),
            failed,
            ..Became::default()
        };
        if let Err(why) = pass.became(became).await {
            self.work.runtimes().settings().log.line(why);
        }
    }

    async fn read_again(&self) -> After {
        let Some(by) = self.side.read else {
            return After::Unread("the editor does not offer reading".to_owned());
        };
        match self.work.runtimes().read(by, self.path.as_str(), Window::default()).await {
            // One writes and another reads, who may hear of it later. What an editor has that did not write it is its own.
            Ok(text)
                if by != self.side.write
                    && (self.current.text() == Some(&text.text)
                        || by == Server::Client && text.text != self.decided.text) =>
            {
                After::Unread(format!("{} does not have the new text yet", by.name()))
            }
            Ok(text) => After::Holds(text.text),
            Err(fault) => After::Unread(fault.to_string()),
        }
    }

    /// Says what was written and what the model does not know of it yet.
    fn tell(&self, after: &After, notes: Vec<String>) -> Told {
        let (shown, by) = (self.work.shown(self.path), self.side.write.through());
        let lines = plural(lines_of(&self.decided.text), "line");
        let mut parts = vec![match (self.wanted, self.decided.verdict) {
            (Wanted::Edits(_), _) => {
                let places = plural(self.decided.places as u64, "place");
                format!("Edited {shown} in {places}, {by}.")
            }
            (Wanted::Whole(_), Some(Verdict::Created)) => {
                format!("Created {shown} ({lines}), {by}.")
            }
            (Wanted::Whole(_), _) => format!("Wrote {shown} ({lines}), {by}."),
        }];
        parts.extend(self.decided.notes.iter().cloned().chain(notes));
        let mut told = Told { text: String::new(), is_cut: false, changed: false };
        match after {
            After::Holds(now) if *now != self.decided.text => {
                let (diff, is_cut) = small_diff(&self.decided.text, now);
                (told.changed, told.is_cut) = (true, is_cut);
                parts.push(format!(
                    "The file differs from what you sent, because its user or the editor's formatting changed it:\n{diff}"
                ));
                if is_cut {
                    parts.push("There is more: read the file again before you edit it.".to_owned());
                }
            }
            After::Holds(_) => {}
            After::Unread(why) => {
                parts.push(format!("It could not be read again to see what became of it: {why}."));
            }
        }
        told.text = parts.join("\n");
        told
    }
}

struct Told {
    text: String,
    is_cut: bool,
    changed: bool,
}

fn unknown_outcome(shown: &str, why: &str) -> String {
    format!(
        "it is not known whether {shown} was written: {why}. Read it and compare before you write it again; do not \
         simply repeat the call."
    )
}

fn word(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Created) => "created",
        Some(Verdict::Replaced) => "replaced",
        Some(Verdict::Merged) => "merged",
        Some(Verdict::ReplacedPartlySeen) => "replaced what was seen in part",
        Some(Verdict::ReplacedUnseen) => "replaced what was not seen",
        None => "written",
    }
}
