//! Asking the editor's user before something is changed or run, and showing what became of it.
//!
//! What is asked about is a tool call of its own, with the diff or the command, so that the editor shows it as it shows the
//! agent's own.

use std::sync::atomic::{AtomicBool, Ordering};

use bowline_state::display;
use bowline_state::failure::Failure;
use bowline_state::paths::{Access, LexicalPath, protected};
use bowline_state::schema::v1::{
    Diff, PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    SessionId, ToolCall, ToolCallContent, ToolCallId, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind,
};
use bowline_workspace::terminals::Asked;
use serde_json::json;

use crate::editor::{Allowed, Editor, failure};

const ONCE: &str = "allow";
const ALWAYS: &str = "allow-session";
const REJECT: &str = "reject";

/// The longest title, in bytes.
const MAX_TITLE: usize = 200;

/// Something that the user is asked about.
pub(crate) struct Wish {
    kind: ToolKind,
    title: String,
    content: Vec<ToolCallContent>,
    locations: Vec<ToolCallLocation>,
    input: serde_json::Value,
    // Whether it is asked about whatever was allowed for the session: a protected file.
    always_asks: bool,
}

impl Wish {
    /// A file that is to be written.
    pub(crate) fn write(path: &str, before: Option<String>, after: &str) -> Self {
        let diff = Diff::new(path, after).old_text(before);
        Self {
            kind: ToolKind::Edit,
            title: display::line(&format!("Write {path}"), MAX_TITLE),
            content: vec![diff.into()],
            locations: vec![ToolCallLocation::new(path)],
            input: json!({ "path": path }),
            always_asks: LexicalPath::parse(path).is_ok_and(|path| protected(&path, Access::Write).is_some()),
        }
    }

    /// A command that is to be run.
    pub(crate) fn run(asked: &Asked) -> Self {
        let words: Vec<&str> =
            std::iter::once(&asked.command).chain(&asked.args).map(String::as_str).collect();
        Self {
            kind: ToolKind::Execute,
            title: display::line(&format!("Run {}", words.join(" ")), MAX_TITLE),
            content: Vec::new(),
            locations: Vec::new(),
            input: json!({ "command": asked.command, "args": asked.args, "cwd": asked.cwd, "env": asked.env }),
            always_asks: false,
        }
    }

    fn remembered(&self, allowed: &Allowed) -> bool {
        !self.always_asks && self.flag(allowed).load(Ordering::Relaxed)
    }

    fn flag<'a>(&self, allowed: &'a Allowed) -> &'a AtomicBool {
        if self.kind == ToolKind::Execute { &allowed.running } else { &allowed.writing }
    }
}

/// Asks the user about something, does it if that is a yes, and shows what became of it.
pub(crate) async fn review<T>(
    editor: &Editor,
    wish: Wish,
    act: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let (session, cancellations) = (editor.session().await?, editor.allowed.cancellations());
    let number = editor.allowed.asked.fetch_add(1, Ordering::Relaxed) + 1;
    let id = ToolCallId::new(format!("{}-call-{number}", editor.name));
    let call = ToolCall::new(id.clone(), wish.title.clone())
        .kind(wish.kind)
        .status(ToolCallStatus::Pending)
        .content(wish.content.clone())
        .locations(wish.locations.clone())
        .raw_input(wish.input.clone());
    editor.client.update(session.clone(), call).await.map_err(failure)?;
    // Whatever ends this, the call is closed.
    let mut open = Open {
        editor: editor.clone(),
        session: session.clone(),
        id: id.clone(),
        status: Some(ToolCallStatus::Failed),
    };
    let done = async {
        if !wish.remembered(&editor.allowed) {
            ask(editor, &session, &id, &wish, cancellations).await?;
        }
        act.await
    }
    .await;
    let status = if done.is_ok() { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
    open.status = None;
    told(editor, &session, &id, status).await;
    done
}

async fn ask(
    editor: &Editor,
    session: &SessionId,
    id: &ToolCallId,
    wish: &Wish,
    cancellations: u64,
) -> Result<(), Failure> {
    let fields = ToolCallUpdateFields::new()
        .title(wish.title.clone())
        .kind(wish.kind)
        .content(wish.content.clone())
        .locations(wish.locations.clone())
        .raw_input(wish.input.clone());
    let options = vec![
        PermissionOption::new(ONCE, "Allow once", PermissionOptionKind::AllowOnce),
        PermissionOption::new(ALWAYS, "Allow for this session", PermissionOptionKind::AllowAlways),
        PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce),
    ];
    let update = ToolCallUpdate::new(id.clone(), fields);
    let request = RequestPermissionRequest::new(session.clone(), update, options);
    let answer = tokio::select! {
        biased;
        // A yes to a turn that is cancelled is late, and the editor need not ask any more.
        () = editor.allowed.cancelled_since(cancellations) => return Err(Failure::Cancelled),
        answer = editor.client.request_permission(request) => answer.map_err(failure)?,
    };
    match answer.outcome {
        RequestPermissionOutcome::Selected(selected) => match &*selected.option_id.0 {
            ONCE => Ok(()),
            ALWAYS => {
                wish.flag(&editor.allowed).store(true, Ordering::Relaxed);
                Ok(())
            }
            // Whatever is no yes is a no.
            _ => Err(Failure::Denied { why: "the user said no".to_owned() }),
        },
        RequestPermissionOutcome::Cancelled => Err(Failure::Cancelled),
        // An outcome of a later protocol is no yes.
        _ => Err(Failure::Denied { why: "the editor gave no answer that is known here".to_owned() }),
    }
}

/// Shows what became of a call. If the editor is gone, nobody looks.
async fn told(editor: &Editor, session: &SessionId, id: &ToolCallId, status: ToolCallStatus) {
    let update = ToolCallUpdate::new(id.clone(), ToolCallUpdateFields::new().status(status));
    editor.client.update(session.clone(), update).await.unwrap_or_default();
}

/// A call that is shown as open. If whoever asked for it goes away, it is shown as failed.
struct Open {
    editor: Editor,
    session: SessionId,
    id: ToolCallId,
    status: Option<ToolCallStatus>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(status) = self.status else { return };
        let (editor, session, id) = (self.editor.clone(), self.session.clone(), self.id.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { told(&editor, &session, &id, status).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_for_a_session_is_of_one_kind_and_no_protected_file() {
        let command = Asked { command: "make".to_owned(), ..Asked::default() };
        let (write, run) = (Wish::write("/w/a.txt", None, "a"), Wish::run(&command));
        let protected = Wish::write("/w/.git/hooks/pre-commit", None, "a");
        let allowed = Allowed::default();
        let remembered = |allowed: &Allowed| [&write, &protected, &run].map(|wish| wish.remembered(allowed));
        assert_eq!(remembered(&allowed), [false, false, false]);
        write.flag(&allowed).store(true, Ordering::Relaxed);
        assert_eq!(remembered(&allowed), [true, false, false]);
        let allowed = Allowed::default();
        run.flag(&allowed).store(true, Ordering::Relaxed);
        assert_eq!(remembered(&allowed), [false, false, true]);
    }
}
