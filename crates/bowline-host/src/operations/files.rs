//! Reading and writing files for an agent.

use std::sync::Arc;

use bowline_state::audit::{Action, Decision, Subject};
use bowline_state::changes::{ContentHash, Origin};
use bowline_state::claims::call_for;
use bowline_state::failure::{Failure, quote};
use bowline_state::grants::Deed;
use bowline_state::lines::Window;
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::paths::Access;
use bowline_state::policy::Effect;
use bowline_state::question::{Item, Occasion, Shown};
use bowline_state::quirks::Quirk;
use bowline_state::schema::v1::{
    Meta, ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_wire::ClientContext;
use bowline_wire::service::CancelSignal;
use bowline_workspace::approvals::{Cleared, Request};
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::Admitted;
use bowline_workspace::workspace::{
    Agreed, EditorWrite, KeptText, PRIVILEGES_DROPPED, Preview, ReadText, Written,
};

use super::{Asking, Operating, Submitted, blocking, clear};
use crate::front_end::Event;
use crate::session::Held;

/// What a person is told before a write to a file with these bits.
pub(super) const WILL_DROP_PRIVILEGES: &str =
    "the file has setuid or setgid, and runs as its owner or group: the write removes that";

/// How often a write is shown again because what it would do has changed since it was approved.
const ATTEMPTS: usize = 3;

pub(super) fn subject(admitted: &Admitted) -> Subject {
    let (asked, resolved) = (admitted.asked(), admitted.canonical());
    Subject::Path { asked: asked.to_owned(), resolved: (asked != resolved).then(|| resolved.to_owned()) }
}

fn text(path: &std::path::Path) -> Result<String, Failure> {
    let utf8 =
        path.to_str().ok_or_else(|| Failure::InvalidParams { reason: "the path is not UTF-8".to_owned() });
    utf8.map(str::to_owned)
}

/// What a first look came to.
enum Looked<T> {
    /// It was allowed by rules, done and recorded.
    Done(T),
    /// A person has to be asked.
    Ask(Box<(Operating, Admitted)>),
}

/// Serves `fs/read_text_file`. By the quirk, if there is one, a missing file is empty.
pub(crate) async fn read(
    held: Arc<Held>,
    agent: Option<String>,
    missing_file: Option<&'static Quirk>,
    request: ReadTextFileRequest,
    cx: ClientContext,
) -> Result<ReadTextFileResponse, Failure> {
    let path = text(&request.path)?;
    let window = Window { line: request.line, limit: request.limit };
    let call = call_for(&held.snapshot(), Some(&path));
    let asking = Asking { agent, call, cancel: cx.cancel().clone(), missing_file };
    match read_text(held, asking, path, window).await {
        Ok(read) => Ok(ReadTextFileResponse::new(read.text.as_str()).meta(links_meta(&read))),
        // The ledger knows that there is no file: a write creates it, and replaces none that has appeared since.
        Err(Failure::ResourceNotFound { .. }) if missing_file.is_some() => Ok(ReadTextFileResponse::new("")),
        Err(failure) => Err(failure),
    }
}

/// Returns what the answer to a read says of a file that has other names.
fn links_meta(read: &ReadText) -> Option<Meta> {
    let told = || Meta::from_iter([("bowline".to_owned(), serde_json::json!({ "links": read.link_count }))]);
    (read.link_count > 1).then(told)
}

/// Returns what the log says of a file that has other names: one may lie where the session has no business.
fn links_reason(read: &ReadText) -> Option<String> {
    (read.link_count > 1).then(|| format!("the file has {} names (hard links)", read.link_count))
}

/// Reads a file, for whoever asks.
pub(crate) async fn read_text(
    held: Arc<Held>,
    asking: Asking,
    path: String,
    window: Window,
) -> Result<ReadText, Failure> {
    let Asking { agent, call, cancel, missing_file } = asking;
    let its = held.clone();
    // Judged, read and recorded in one go where the rules alone decide.
    let looked = blocking(move || {
        let mut operating = Operating::new(its.clone(), Action::Read, call)
            .on(Subject::Path { asked: path.clone(), resolved: None })
            .with_quirk(missing_file);
        let admitted = match its.files.admit(&path, Access::Read) {
            Ok(admitted) => admitted,
            Err(error) => return Err(operating.fail(error.into())),
        };
        operating.entry().subject = subject(&admitted);
        let ruling = its.shared.approvals.judge(&operating.holder(), &admitted.operation(Kind::Read));
        match ruling {
            Ok(ruling) if ruling.effect == Effect::Allow => {
                operating.entry().by = Cleared::by_rules(&ruling).by();
                finish_read(&mut operating, &admitted, window).map(Looked::Done)
            }
            // Denials and broken rules are told in one place.
            _ => Ok(Looked::Ask(Box::new((operating, admitted)))),
        }
    })
    .await??;
    let (mut operating, admitted) = match looked {
        Looked::Done((read, submitted)) => {
            submitted.recorded().await?;
            return Ok(read);
        }
        Looked::Ask(asking) => *asking,
    };
    let request = Request {
        holder: operating.holder(),
        call: operating.entry().call.clone(),
        agent,
        occasion: Occasion::Act,
        title: format!("read {}", admitted.asked()),
        items: vec![Item::plain(admitted.operation(Kind::Read))],
        warnings: Vec::new(),
        offers: Vec::new(),
        deeds: vec![Deed::Read { path: admitted.canonical().to_owned(), file: admitted.file_id() }],
    };
    let cleared = clear(&mut operating, &request, &cancel).await;
    let (read, submitted) = blocking(move || match cleared {
        Ok(_) => {
            operating.wanted().map_err(|failure| operating.fail(failure))?;
            // What was agreed to is that file, and no other that has its name by now.
            let again = operating.held.files.admit(admitted.asked(), Access::Read);
            match again {
                Ok(again) if same(&again, &admitted) => finish_read(&mut operating, &again, window),
                Ok(_) => {
                    let path = quote(admitted.asked());
                    let reason = format!(
                        "{path} is another file than the one that was approved: nothing was read, ask again"
                    );
                    Err(operating.fail(Failure::InvalidParams { reason }))
                }
                Err(error) => Err(operating.fail(error.into())),
            }
        }
        Err(failure) => Err(operating.fail(failure)),
    })
    .await??;
    submitted.recorded().await?;
    Ok(read)
}

pub(super) fn same(one: &Admitted, other: &Admitted) -> bool {
    (one.canonical(), one.file_id()) == (other.canonical(), other.file_id())
}

/// Reads a file. The text may be told once it is recorded.
fn finish_read(
    operating: &mut Operating,
    admitted: &Admitted,
    window: Window,
) -> Result<(ReadText, Submitted), Failure> {
    match operating.held.files.read_admitted(admitted, window) {
        Ok(read) => {
            operating.entry().bytes = Some(read.text.len() as u64);
            operating.entry().reason = links_reason(&read).or(operating.entry().reason.take());
            Ok((read, operating.submit(Decision::Allowed)))
        }
        Err(error) => Err(operating.fail(error.into())),
    }
}

/// Serves `fs/write_text_file`.
pub(crate) async fn write(
    held: Arc<Held>,
    agent: Option<String>,
    request: WriteTextFileRequest,
    cx: ClientContext,
) -> Result<WriteTextFileResponse, Failure> {
    let path = text(&request.path)?;
    let call = call_for(&held.snapshot(), Some(&path));
    let asking = Asking { agent, call, cancel: cx.cancel().clone(), missing_file: None };
    let written = write_text(held, asking, path, request.content.into()).await?;
    Ok(WriteTextFileResponse::new().meta(written_meta(&written)))
}

/// Returns what the answer to a write says besides that it is done.
fn written_meta(written: &Written) -> Option<Meta> {
    let notes = written.notes();
    if notes.is_empty() {
        return None;
    }
    let told = |text: &KeptText| {
        let restore = format!("bowline restore {}", text.change);
        serde_json::json!({ "path": text.path, "change": text.change.0, "restore": restore })
    };
    let kept: Vec<_> = written.kept.iter().map(told).collect();
    Some(Meta::from_iter([("bowline".to_owned(), serde_json::json!({ "notes": notes, "kept": kept }))]))
}

/// Writes a file, for whoever asks.
pub(crate) async fn write_text(
    held: Arc<Held>,
    asking: Asking,
    path: String,
    content: Arc<str>,
) -> Result<Written, Failure> {
    let Asking { agent, call, cancel, .. } = asking;
    let (its, its_path, its_content) = (held.clone(), path.clone(), content.clone());
    let looked = blocking(move || {
        let mut operating = Operating::new(its.clone(), Action::Write, call)
            .on(Subject::Path { asked: its_path.clone(), resolved: None });
        let admitted = match its.files.admit(&its_path, Access::Write) {
            Ok(admitted) => admitted,
            Err(error) => return Err(operating.fail(error.into())),
        };
        operating.entry().subject = subject(&admitted);
        match its.shared.approvals.judge(&operating.holder(), &admitted.operation(Kind::Write)) {
            Ok(ruling) if ruling.effect == Effect::Allow => {
                operating.entry().by = Cleared::by_rules(&ruling).by();
                let agreed = Agreed::Path(admitted.canonical());
                finish_write(&mut operating, &its_path, &its_content, agreed).map(Looked::Done)
            }
            _ => Ok(Looked::Ask(Box::new((operating, admitted)))),
        }
    })
    .await??;
    let written = match looked {
        Looked::Done(written) => written,
        Looked::Ask(asking) => ask_to_write(asking.0, agent, path, content, &cancel).await?,
    };
    let Written { path, change, verdict, .. } = &written;
    held.show(Event::Written { session: &held.id, path, change: *change, verdict: *verdict });
    Ok(written)
}

/// Shows a write to a person, and does it as it was shown. If it would be something else by then, it is shown again.
async fn ask_to_write(
    mut operating: Operating,
    agent: Option<String>,
    path: String,
    content: Arc<str>,
    cancel: &CancelSignal,
) -> Result<Written, Failure> {
    let held = operating.held.clone();
    for _ in 0..ATTEMPTS {
        let (its, its_path, its_content) = (held.clone(), path.clone(), content.clone());
        let previewed = blocking(move || its.files.preview(&its_path, &its_content)).await?;
        let preview = match previewed {
            Ok(preview) => preview,
            Err(error) => return blocking(move || Err(operating.fail(error.into()))).await?,
        };
        let request = Request {
            holder: operating.holder(),
            call: operating.entry().call.clone(),
            agent: agent.clone(),
            occasion: Occasion::Act,
            title: format!("write {path}"),
            items: vec![written_item(&path, &preview)],
            warnings: preview.drops_privileges.then(|| WILL_DROP_PRIVILEGES.to_owned()).into_iter().collect(),
            offers: Vec::new(),
            deeds: vec![deed(&preview, &content)],
        };
        let cleared = clear(&mut operating, &request, cancel).await;
        let (its_path, its_content) = (path.clone(), content.clone());
        let (back, outcome) = blocking(move || {
            let outcome = cleared.map_err(|failure| operating.fail(failure)).and_then(|cleared| {
                let agreed = match &cleared {
                    Cleared::Person { text: Some(text), .. } => Agreed::Edited(&preview, text),
                    cleared if cleared.is_bound() => Agreed::Shown(&preview),
                    _ => Agreed::Path(&preview.path),
                };
                finish_write(&mut operating, &its_path, &its_content, agreed)
            });
            (operating, outcome)
        })
        .await?;
        operating = back;
        match outcome {
            Err(Failure::InvalidParams { .. }) if operating.changed_meanwhile() => {}
            outcome => return outcome,
        }
    }
    blocking(move || Err(operating.fail(FilesError::Unsteady(path).into()))).await?
}

/// Returns a write with all that a person should see of it.
pub(super) fn written_item(asked: &str, preview: &Preview) -> Item {
    let target = Target::File {
        asked: asked.to_owned(),
        resolved: preview.path.clone(),
        protection: preview.protection,
    };
    let change = Shown { before: preview.before.clone(), after: preview.after.clone() };
    Item::changing(Operation { kind: Kind::Write, target }, change)
}

/// Returns a write bound to the file, to what it holds, to what is sent and to what comes of it.
pub(super) fn deed(preview: &Preview, content: &str) -> Deed {
    Deed::Write {
        path: preview.path.clone(),
        file: preview.file,
        before: preview.before.as_ref().map(|before| ContentHash::of(before.as_bytes())),
        content: ContentHash::of(content.as_bytes()),
        after: ContentHash::of(preview.after.as_bytes()),
    }
}

/// Does a write that is allowed. That it is allowed is recorded before, what became of it after.
fn finish_write(
    operating: &mut Operating,
    path: &str,
    content: &str,
    agreed: Agreed<'_>,
) -> Result<Written, Failure> {
    let held = operating.held.clone();
    operating.wanted().map_err(|failure| operating.fail(failure))?;
    operating.entry().bytes = Some(content.len() as u64);
    operating.entry().reason = Some("begins".to_owned());
    operating.record(Decision::Allowed)?;
    operating.entry().reason = None;
    let origin = operating.origin();
    let written = held.files.write_as_agreed(path, content, &origin, Some(agreed));
    held.shared.tell_kept_texts();
    match written {
        Ok(written) => {
            if let Some(change) = written.change
                && let Ok(change) = held.shared.workspace.change(change)
            {
                operating.entry().before = change.before.map(|state| state.hash);
                operating.entry().after = change.after.map(|state| state.hash);
            }
            operating.entry().reason = written.drops_privileges.then(|| PRIVILEGES_DROPPED.to_owned());
            operating.record(Decision::Allowed)?;
            Ok(written)
        }
        Err(error) => {
            operating.changed(matches!(error, FilesError::NotAsAgreed(_)));
            Err(operating.fail(error.into()))
        }
    }
}

/// Records a write that an editor does itself.
pub(crate) async fn editor_writes(
    held: Arc<Held>,
    asking: Asking,
    path: String,
    had: Option<String>,
    written: String,
    origin: Origin,
) -> Result<EditorWrite, Failure> {
    blocking(move || {
        let mut operating = Operating::new(held.clone(), Action::Write, asking.call)
            .on(Subject::Path { asked: path.clone(), resolved: None });
        operating.entry().turn = origin.turn;
        operating.entry().bytes = Some(written.len() as u64);
        match held.files.editor_writes(&path, had.as_deref(), &written, &origin) {
            Ok(write) => {
                operating.entry().reason = Some("the editor writes".to_owned());
                operating.record(Decision::Allowed)?;
                Ok(write)
            }
            Err(error) => Err(operating.fail(error.into())),
        }
    })
    .await?
}

/// Records that an editor did not write after all.
pub(crate) async fn editor_did_not_write(
    held: Arc<Held>,
    asking: Asking,
    write: EditorWrite,
    origin: Origin,
) -> Result<(), Failure> {
    blocking(move || {
        let mut operating = Operating::new(held.clone(), Action::Write, asking.call)
            .on(Subject::Path { asked: write.path.clone(), resolved: None });
        operating.entry().turn = origin.turn;
        operating.entry().reason = Some("the editor did not write".to_owned());
        held.files.editor_did_not_write(&write, &origin).map_err(Failure::from)?;
        operating.record(Decision::Failed)
    })
    .await?
}

#[cfg(test)]
mod tests {
    use bowline_state::changes::ChangeId;

    use super::*;

    #[test]
    fn the_answer_to_a_write_names_texts_that_only_the_journal_has() {
        let mut written = Written {
            path: "/w/a.txt".to_owned(),
            verdict: None,
            change: None,
            text: Arc::default(),
            protection: None,
            drops_privileges: false,
            is_unguarded: false,
            is_edited: false,
            kept: Vec::new(),
        };
        assert_eq!(written_meta(&written), None);
        written.drops_privileges = true;
        written.kept.push(KeptText { change: ChangeId(7), path: "/w/a.txt".to_owned() });
        let answer = WriteTextFileResponse::new().meta(written_meta(&written));
        let expected = serde_json::json!({"_meta": {"bowline": {
            "notes": [PRIVILEGES_DROPPED, written.kept[0].to_string()],
            "kept": [{"path": "/w/a.txt", "change": 7, "restore": "bowline restore 7"}],
        }}});
        assert_eq!(serde_json::to_value(&answer).unwrap(), expected);
    }
}
