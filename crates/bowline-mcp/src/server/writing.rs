//! Writing and editing files: decided on the text as it is now, against what the model has seen of it.
//!
//! The current text is read first, whoever serves it. What the user changed since the model saw the file is merged, or the
//! conflict is told and nothing is written. What the model did not know of the result by then it is told.

use std::sync::Arc;

use bowline_state::edits::{Edit, Which};
use bowline_state::failure::Failure;
use bowline_state::ledger::Verdict;
use bowline_state::lines::Window;
use bowline_state::paths::LexicalPath;
use bowline_state::tooling::deciding::{Current, Decided, Wanted, decide, remember};
use bowline_state::tooling::input::Fields;
use bowline_state::tooling::telling::{conflict, lines_of, plural, small_diff};
use bowline_workspace::files::{Asker, Files, TextWritten};
use serde_json::json;

use super::DeniedTool;
use super::Place;
use super::session::{Calling, Session};
use super::told::Done;

/// How often a change is decided anew because the file changed in that moment.
const ATTEMPTS: usize = 3;

/// Runs the tool that writes a whole file.
pub(crate) async fn write<P: Place>(
    session: &Session<P>,
    fields: Fields<'_>,
    calling: &Calling,
) -> Result<Done, String> {
    let path = session.resolve(fields.text("path")?)?;
    let content = fields.text("content")?.to_owned();
    change(session, &path, &Wanted::Whole(content), calling).await
}

/// Runs the tool that edits a file by search and replace.
pub(crate) async fn edit<P: Place>(
    session: &Session<P>,
    fields: Fields<'_>,
    calling: &Calling,
) -> Result<Done, String> {
    let path = session.resolve(fields.text("path")?)?;
    // One edit may stand in the call itself.
    let is_one = fields.some_text("old_text")?.is_some();
    let listed = if is_one { vec![fields] } else { fields.objects("edits")? };
    let edits: Result<Vec<Edit>, String> = listed
        .into_iter()
        .enumerate()
        .map(|(at, each)| {
            one_edit(each).map_err(|why| if is_one { why } else { format!("edit {}: {why}", at + 1) })
        })
        .collect();
    change(session, &path, &Wanted::Edits(edits?), calling).await
}

fn one_edit(fields: Fields<'_>) -> Result<Edit, String> {
    let which = if fields.flag("replace_all")? { Which::All } else { Which::Only };
    Ok(Edit { old: fields.text("old_text")?.to_owned(), new: fields.text("new_text")?.to_owned(), which })
}

async fn change<P: Place>(
    session: &Session<P>,
    path: &LexicalPath,
    wanted: &Wanted,
    calling: &Calling,
) -> Result<Done, String> {
    let (key, shown) = (path.as_str(), session.shown(path.as_str()));
    let _alone = session.alone(key).await;
    let asker = Asker { turn: None, call: Some(calling.id.clone()) };
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let current = current(session, key, shown).await?;
        let decided = session.knows(|ledger, heard| decide((ledger, heard), key, &current, wanted, shown))?;
        if current.text().is_some_and(|text| **text == *decided.text) {
            session.knows(|ledger, heard| {
                remember((ledger, heard), key, &current, wanted, &decided, current.text());
            });
            let text = format!("{shown} holds this text already; nothing was written.");
            return Ok(told(shown, "unchanged", text));
        }
        if is_blind(&current, decided.verdict) {
            return Err(format!(
                "nothing was written: {shown}: you have not read all of the text that would be replaced: read it first"
            ));
        }
        match session.place.files().write(key, decided.text.as_str().to_owned(), &asker).await {
            Ok(written) => return Ok(finish(session, key, wanted, &current, &decided, written).await),
            // Somebody was faster: what is there now is looked at again.
            Err(conflict @ Failure::Conflict { .. }) => last = Some(conflict),
            Err(failure) => {
                let why = session.told(&DeniedTool::Write { path: key }, shown, &failure);
                return Err(format!("nothing was written: {why}"));
            }
        }
    }
    let hunks = match &last {
        Some(Failure::Conflict { hunks, .. }) => conflict(hunks),
        _ => String::new(),
    };
    Err(format!("nothing was written: {shown} keeps changing: read it again, then write{hunks}"))
}

async fn current<P: Place>(session: &Session<P>, path: &str, shown: &str) -> Result<Current, String> {
    match session.place.files().read(path, Window::default()).await {
        Ok(read) => Ok(Current::Text(read.text)),
        Err(Failure::ResourceNotFound { .. }) => Ok(Current::Missing),
        Err(Failure::TooLarge { bytes, .. }) => Err(format!(
            "nothing was written: {shown} has {bytes} bytes, which is too large to be changed so: use a command"
        )),
        Err(failure) => {
            let why = session.told(&DeniedTool::Read { path }, shown, &failure);
            Err(format!("nothing was written: {why}"))
        }
    }
}

/// Says whether text would be replaced that the model has not seen.
fn is_blind(current: &Current, verdict: Option<Verdict>) -> bool {
    match (current, verdict) {
        (Current::Text(text), Some(Verdict::ReplacedPartlySeen | Verdict::ReplacedUnseen)) => {
            !text.is_empty()
        }
        _ => false,
    }
}

async fn finish<P: Place>(
    session: &Session<P>,
    key: &str,
    wanted: &Wanted,
    current: &Current,
    decided: &Decided,
    written: TextWritten,
) -> Done {
    let shown = session.shown(key);
    let after = match written.text {
        Some(text) => Ok(text),
        None => session.place.files().read(key, Window::default()).await.map(|read| read.text),
    };
    let lines = plural(lines_of(&decided.text), "line");
    let mut parts = vec![match (wanted, decided.verdict) {
        (Wanted::Edits(_), _) => format!("Edited {shown} in {}.", plural(decided.places as u64, "place")),
        (Wanted::Whole(_), Some(Verdict::Created)) => format!("Created {shown} ({lines})."),
        (Wanted::Whole(_), _) => format!("Wrote {shown} ({lines})."),
    }];
    parts.extend(decided.notes.iter().cloned().chain(written.notes));
    let mut seen: Option<&Arc<String>> = None;
    match &after {
        Ok(now) if *now == decided.text => seen = Some(now),
        Ok(now) => {
            let (diff, is_cut) = small_diff(&decided.text, now);
            parts.push(format!(
                "The file holds something else than what was written, by the editor or its user:\n{diff}"
            ));
            if is_cut {
                parts.push("There is more: read the file again before you edit it.".to_owned());
            } else {
                seen = Some(now);
            }
        }
        Err(why) => parts.push(format!("It could not be read again to see what became of it: {why}.")),
    }
    session.knows(|ledger, heard| remember((ledger, heard), key, current, wanted, decided, seen));
    let merged = written.verdict == Some(Verdict::Merged) || decided.verdict == Some(Verdict::Merged);
    let outcome = match decided.verdict {
        _ if merged => "merged",
        Some(Verdict::Created) => "created",
        _ => "replaced",
    };
    told(shown, outcome, parts.join("\n"))
}

fn told(path: &str, outcome: &str, text: String) -> Done {
    let structured = json!({ "path": path, "outcome": outcome, "message": text });
    Done { text, structured: Some(structured), failed: false }
}
