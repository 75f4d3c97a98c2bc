//! Writes through the editor by a tool of the added server: recorded from what the editor had, and merged with what was
//! typed since the tool has read the file.

use bowline_state::failure::Failure;
use bowline_state::ledger::Verdict;
use bowline_state::lines::Window;
use bowline_state::merge::Conflict;
use bowline_state::schema::v1::WriteTextFileRequest;
use bowline_state::unsaved;
use bowline_workspace::files::TextWritten;
use tokio::sync::oneshot;

use super::{Editor, done, failure};
use crate::engine::{Act, EditorWrites};
use crate::permission::{Wish, review};

/// A write that the tool has decided on.
struct Write {
    path: String,
    /// What the editor had when it was decided on.
    before: Option<String>,
    wants: String,
    /// The agent's call that it belongs to.
    call: Option<String>,
}

/// Has the editor write, if rules or its user agree.
pub(super) async fn write(editor: &Editor, path: &str, wants: String) -> Result<TextWritten, Failure> {
    let before = has(editor, path).await?;
    let beside = editor.known.beside().await?;
    let call = beside.and_then(|beside| beside.call_naming(path));
    let wish = Wish::write(path, before.clone(), &wants);
    let write = Write { path: path.to_owned(), before, wants, call };
    if editor.known.options().rules {
        let act = Act::Write { path: write.path.clone(), content: write.wants.clone() };
        editor.known.lets(act, write.call.clone()).await?;
        return to_the_end(editor, write).await;
    }
    review(editor, wish, to_the_end(editor, write)).await
}

/// What is begun is done to its end, also if nobody waits for it any more: then the editor is told that it need not write,
/// and what it did all the same is known.
async fn to_the_end(editor: &Editor, write: Write) -> Result<TextWritten, Failure> {
    let (waits, gone) = oneshot::channel::<()>();
    let given_up = async { gone.await.map_or_else(drop, drop) };
    let editor = editor.clone();
    let writing = tokio::spawn(async move { recorded(&editor, write, given_up).await });
    let written = writing.await;
    drop(waits);
    written.unwrap_or_else(|ended| Err(Failure::Internal { reason: ended.to_string() }))
}

async fn recorded(
    editor: &Editor,
    write: Write,
    given_up: impl Future<Output = ()>,
) -> Result<TextWritten, Failure> {
    let Write { path, before, wants, call } = write;
    // To be asked takes a person time, in which more may have been typed.
    let had = has(editor, &path).await?;
    let text = match &had {
        Some(had) => {
            let merged = unsaved::merged(&before.unwrap_or_default(), had, &wants);
            merged.map_err(|conflict| conflicting(&path, conflict))?.text(wants.clone())
        }
        None => wants.clone(),
    };
    let engine = match editor.known.beside().await? {
        Some(beside) => beside.recorder().await,
        None => None,
    };
    let undone = match engine {
        Some(engine) => {
            let path = path.clone();
            let write = EditorWrites { path, had, wants: text.clone(), has_read: true, call };
            Some(engine.editor_writes(write).await?.undone)
        }
        None => None,
    };
    let verdict = (text != wants).then_some(Verdict::Merged);
    let request = WriteTextFileRequest::new(editor.session().await?, path, text);
    let answered = editor.client.caller().call_until(&request, given_up).await;
    let written = done(answered).map_err(failure);
    if let (Err(_), Some(undone)) = (&written, undone) {
        undone.await;
    }
    written.map(|()| TextWritten { verdict, ..TextWritten::default() })
}

/// Returns what the editor has of a file; none if there is no such file.
async fn has(editor: &Editor, path: &str) -> Result<Option<String>, Failure> {
    match editor.read_text(path, Window::default()).await {
        Ok(text) => Ok(Some(text)),
        Err(Failure::ResourceNotFound { .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn conflicting(path: &str, conflict: Conflict) -> Failure {
    let why = "the user has typed in the same lines meanwhile, and not saved: read the file again".to_owned();
    Failure::Conflict { path: path.to_owned(), why, hunks: conflict.hunks }
}
