//! File reads and writes for an agent.

use std::sync::Arc;

use bowline_access::approvals::{ApprovalRequest, OperationApproval};
use bowline_history::changes::ChangeOrigin;
use bowline_policy::audit::{AuditAction, AuditDecision, AuditSubject};
use bowline_policy::claims::find_call_for_operation;
use bowline_policy::danger::Danger;
use bowline_policy::grants::ResolvedOperation;
use bowline_policy::operation::{Operation, OperationKind, OperationTarget};
use bowline_policy::paths::Access;
use bowline_policy::policy::Effect;
use bowline_policy::question::{Question, QuestionItem, TextChange};
use bowline_protocol::quirks::Quirk;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    Meta, ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_text::display::quote;
use bowline_text::hash::ContentHash;
use bowline_text::lines::LineWindow;
use bowline_wire::ClientContext;
use bowline_wire::service::CancelSignal;
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::AdmittedPath;
use bowline_workspace::workspace::{
    EditorWrite, KeptText, PRIVILEGES_DROPPED, ReadText, WriteAgreement, WriteOutcome, WritePreview,
};

use super::{AuditedOperation, OperationContext, PendingAuditEntry, authorize_operation, run_blocking};
use crate::front_end::HostEvent;
use crate::session::SessionInner;

/// Returns the request to approve a read.
pub(super) fn read_request(
    audited: &mut AuditedOperation,
    admitted: &AdmittedPath,
    title: String,
    agent: Option<String>,
) -> ApprovalRequest {
    let items = vec![QuestionItem::new(admitted.operation(OperationKind::Read))];
    let call = audited.entry_mut().call.clone();
    ApprovalRequest {
        question: Question { call, agent, ..Question::new(audited.holder(), title, items) },
        resolved_operations: vec![ResolvedOperation::Read {
            path: admitted.canonical().to_owned(),
            file: admitted.file_id(),
        }],
    }
}

/// Returns the warning before a write to a file with setuid or setgid.
pub(super) fn privilege_danger(drops_privileges: bool) -> Option<Danger> {
    let text = "the file has setuid or setgid, and runs as its owner or group: the write removes that";
    drops_privileges.then(|| Danger::serious(text))
}

/// How often a write is shown again because it differs by now from the one approved.
const MAX_ATTEMPTS: usize = 3;

pub(super) fn path_subject(admitted: &AdmittedPath) -> AuditSubject {
    let (requested, resolved) = (admitted.requested_path(), admitted.canonical());
    AuditSubject::Path {
        requested: requested.to_owned(),
        resolved: (requested != resolved).then(|| resolved.to_owned()),
    }
}

fn path_to_string(path: &std::path::Path) -> Result<String, RpcError> {
    let utf8 =
        path.to_str().ok_or_else(|| RpcError::InvalidParams { reason: "the path is not UTF-8".to_owned() });
    utf8.map(str::to_owned)
}

/// The result of an attempt under the rules alone.
enum RuledAttempt<T> {
    /// The rules allowed it; it was carried out and recorded.
    Done(T),
    /// The user has to be asked.
    NeedsApproval(Box<(AuditedOperation, AdmittedPath)>),
}

/// Serves `fs/read_text_file`. With the quirk, a missing file reads as empty.
pub(crate) async fn read(
    session: Arc<SessionInner>,
    agent: Option<String>,
    missing_file: Option<&'static Quirk>,
    request: ReadTextFileRequest,
    cx: ClientContext,
) -> Result<ReadTextFileResponse, RpcError> {
    let path = path_to_string(&request.path)?;
    let window = LineWindow { line: request.line, limit: request.limit };
    let call = find_call_for_operation(&session.snapshot(), Some(&[&path]));
    let context = OperationContext {
        agent,
        call,
        cancel: cx.cancel_signal().clone(),
        missing_file_quirk: missing_file,
    };
    match read_text(session, context, path, window).await {
        Ok(read) => Ok(ReadTextFileResponse::new(read.text.as_str()).meta(link_count_meta(&read))),
        // The ledger has recorded that the file is missing: a write creates it, and does not replace a file that has
        // appeared since.
        Err(RpcError::ResourceNotFound { .. }) if missing_file.is_some() => Ok(ReadTextFileResponse::new("")),
        Err(failure) => Err(failure),
    }
}

/// Returns the response metadata for a file with other hard links.
fn link_count_meta(read: &ReadText) -> Option<Meta> {
    let meta = || Meta::from_iter([("bowline".to_owned(), serde_json::json!({ "links": read.link_count }))]);
    (read.link_count > 1).then(meta)
}

/// Returns the audit reason for a file with other hard links: one of them may be outside the session's directories.
fn link_count_reason(read: &ReadText) -> Option<String> {
    (read.link_count > 1).then(|| format!("the file has {} names (hard links)", read.link_count))
}

/// Reads a file, authorized and recorded.
pub(crate) async fn read_text(
    session: Arc<SessionInner>,
    context: OperationContext,
    path: String,
    window: LineWindow,
) -> Result<ReadText, RpcError> {
    let OperationContext { agent, call, cancel, missing_file_quirk: missing_file } = context;
    if window == LineWindow::default()
        && let Some((read, submitted)) = try_read_text(&session, call.as_deref(), &path)
    {
        submitted.wait().await?;
        return Ok(read);
    }
    let owned_session = session.clone();
    // If the rules alone decide, the read is evaluated, carried out and recorded in one blocking call.
    let attempt = run_blocking(move || {
        let mut audited = AuditedOperation::new(owned_session.clone(), AuditAction::Read, call)
            .with_subject(AuditSubject::Path { requested: path.clone(), resolved: None })
            .with_quirk(missing_file);
        let admitted = match owned_session.files.admit(&path, Access::Read) {
            Ok(admitted) => admitted,
            Err(error) => return Err(audited.record_failure(error.into())),
        };
        audited.entry_mut().subject = path_subject(&admitted);
        let ruling =
            owned_session.host.approvals.judge(&audited.holder(), &admitted.operation(OperationKind::Read));
        match ruling {
            Ok(ruling) if ruling.effect == Effect::Allow => {
                audited.entry_mut().decided_by = OperationApproval::from_ruling(&ruling).decision_source();
                finish_read(audited, &admitted, window).map(RuledAttempt::Done)
            }
            // Denials and policy errors are handled in one place, below.
            _ => Ok(RuledAttempt::NeedsApproval(Box::new((audited, admitted)))),
        }
    })
    .await??;
    let (mut audited, admitted) = match attempt {
        RuledAttempt::Done((read, submitted)) => {
            submitted.wait().await?;
            return Ok(read);
        }
        RuledAttempt::NeedsApproval(pending) => *pending,
    };
    let title = format!("read {}", admitted.requested_path());
    let request = read_request(&mut audited, &admitted, title, agent);
    let approval = authorize_operation(&mut audited, &request, &cancel).await;
    let (read, submitted) = run_blocking(move || match approval {
        Ok(_) => {
            audited.check_active().map_err(|failure| audited.record_failure(failure))?;
            // The approval covers that file, not another one that has its path by now.
            let readmitted = audited.session.files.admit(admitted.requested_path(), Access::Read);
            match readmitted {
                Ok(readmitted) if is_same_file(&readmitted, &admitted) => {
                    finish_read(audited, &readmitted, window)
                }
                Ok(_) => {
                    let path = quote(admitted.requested_path());
                    let reason = format!(
                        "{path} is another file than the one that was approved: nothing was read, ask again"
                    );
                    Err(audited.record_failure(RpcError::InvalidParams { reason }))
                }
                Err(error) => Err(audited.record_failure(error.into())),
            }
        }
        Err(failure) => Err(audited.record_failure(failure)),
    })
    .await??;
    submitted.wait().await?;
    Ok(read)
}

/// Reads a whole file and submits the entry, if the rules allow it and nothing has to be waited for. In every other case
/// nothing is recorded, and a blocking thread starts anew: handing over a cached file takes longer than reading it, but a
/// slow disk must not stall the connection.
fn try_read_text(
    session: &Arc<SessionInner>,
    call: Option<&str>,
    path: &str,
) -> Option<(ReadText, PendingAuditEntry)> {
    let mut audited = AuditedOperation::new(session.clone(), AuditAction::Read, call.map(str::to_owned));
    let admitted = session.files.try_admit(path)?;
    audited.entry_mut().subject = path_subject(&admitted);
    let operation = admitted.operation(OperationKind::Read);
    let ruling = session.host.approvals.judge(&audited.holder(), &operation).ok()?;
    if ruling.effect != Effect::Allow {
        return None;
    }
    audited.entry_mut().decided_by = OperationApproval::from_ruling(&ruling).decision_source();
    let read = session.files.try_read_admitted(&admitted)?;
    audited.entry_mut().bytes = Some(read.text.len() as u64);
    audited.entry_mut().reason = link_count_reason(&read);
    Some((read, audited.submit(AuditDecision::Allowed)))
}

pub(super) fn is_same_file(a: &AdmittedPath, b: &AdmittedPath) -> bool {
    (a.canonical(), a.file_id()) == (b.canonical(), b.file_id())
}

/// Reads a file. The text may be sent once the entry is recorded.
fn finish_read(
    mut audited: AuditedOperation,
    admitted: &AdmittedPath,
    window: LineWindow,
) -> Result<(ReadText, PendingAuditEntry), RpcError> {
    match audited.session.files.read_admitted(admitted, window) {
        Ok(read) => {
            audited.entry_mut().bytes = Some(read.text.len() as u64);
            audited.entry_mut().reason = link_count_reason(&read).or(audited.entry_mut().reason.take());
            Ok((read, audited.submit(AuditDecision::Allowed)))
        }
        Err(error) => Err(audited.record_failure(error.into())),
    }
}

/// Serves `fs/write_text_file`.
pub(crate) async fn write(
    session: Arc<SessionInner>,
    agent: Option<String>,
    request: WriteTextFileRequest,
    cx: ClientContext,
) -> Result<WriteTextFileResponse, RpcError> {
    let path = path_to_string(&request.path)?;
    let call = find_call_for_operation(&session.snapshot(), Some(&[&path]));
    let context =
        OperationContext { agent, call, cancel: cx.cancel_signal().clone(), missing_file_quirk: None };
    let written = write_text(session, context, path, request.content.into()).await?;
    Ok(WriteTextFileResponse::new().meta(written_meta(&written)))
}

/// Returns the response metadata of a write: notes, and texts kept in the journal.
fn written_meta(written: &WriteOutcome) -> Option<Meta> {
    let notes = written.notes();
    if notes.is_empty() {
        return None;
    }
    let describe = |text: &KeptText| {
        let restore = format!("bowline restore {}", text.change);
        serde_json::json!({ "path": text.path, "change": text.change.0, "restore": restore })
    };
    let kept: Vec<_> = written.kept_texts.iter().map(describe).collect();
    Some(Meta::from_iter([("bowline".to_owned(), serde_json::json!({ "notes": notes, "kept": kept }))]))
}

/// Writes a file, authorized and recorded.
pub(crate) async fn write_text(
    session: Arc<SessionInner>,
    context: OperationContext,
    path: String,
    content: Arc<str>,
) -> Result<WriteOutcome, RpcError> {
    let OperationContext { agent, call, cancel, .. } = context;
    let (owned_session, owned_path, owned_content) = (session.clone(), path.clone(), content.clone());
    let attempt = run_blocking(move || {
        let mut audited = AuditedOperation::new(owned_session.clone(), AuditAction::Write, call)
            .with_subject(AuditSubject::Path { requested: owned_path.clone(), resolved: None });
        let admitted = match owned_session.files.admit(&owned_path, Access::Write) {
            Ok(admitted) => admitted,
            Err(error) => return Err(audited.record_failure(error.into())),
        };
        audited.entry_mut().subject = path_subject(&admitted);
        match owned_session.host.approvals.judge(&audited.holder(), &admitted.operation(OperationKind::Write))
        {
            Ok(ruling) if ruling.effect == Effect::Allow => {
                audited.entry_mut().decided_by = OperationApproval::from_ruling(&ruling).decision_source();
                let agreement = WriteAgreement::Path(admitted.canonical());
                finish_write(&mut audited, &owned_path, &owned_content, agreement).map(RuledAttempt::Done)
            }
            _ => Ok(RuledAttempt::NeedsApproval(Box::new((audited, admitted)))),
        }
    })
    .await??;
    let written = match attempt {
        RuledAttempt::Done(written) => written,
        RuledAttempt::NeedsApproval(pending) => {
            write_with_approval(pending.0, agent, path, content, &cancel).await?
        }
    };
    let WriteOutcome { path, change, verdict, .. } = &written;
    session.show(HostEvent::FileWritten { session: &session.id, path, change: *change, verdict: *verdict });
    Ok(written)
}

/// Shows a write to the user, and carries it out as shown. If it differs by then, it is shown again.
async fn write_with_approval(
    mut audited: AuditedOperation,
    agent: Option<String>,
    path: String,
    content: Arc<str>,
    cancel: &CancelSignal,
) -> Result<WriteOutcome, RpcError> {
    let session = audited.session.clone();
    for _ in 0..MAX_ATTEMPTS {
        let (owned_session, owned_path, owned_content) = (session.clone(), path.clone(), content.clone());
        let previewed =
            run_blocking(move || owned_session.files.preview_write(&owned_path, &owned_content)).await?;
        let preview = match previewed {
            Ok(preview) => preview,
            Err(error) => return run_blocking(move || Err(audited.record_failure(error.into()))).await?,
        };
        let items = vec![write_item(&path, &preview)];
        let question = Question {
            call: audited.entry_mut().call.clone(),
            agent: agent.clone(),
            dangers: privilege_danger(preview.drops_privileges).into_iter().collect(),
            ..Question::new(audited.holder(), format!("write {path}"), items)
        };
        let resolved_operations = vec![resolve_write(&preview, &content)];
        let request = ApprovalRequest { question, resolved_operations };
        let approval = authorize_operation(&mut audited, &request, cancel).await;
        let (owned_path, owned_content) = (path.clone(), content.clone());
        let (returned, outcome) = run_blocking(move || {
            let outcome = approval.map_err(|failure| audited.record_failure(failure)).and_then(|approval| {
                let agreement = match &approval {
                    OperationApproval::Person { text: Some(text), .. } => {
                        WriteAgreement::Edited(&preview, text)
                    }
                    approval if approval.is_bound_to_operation() => WriteAgreement::Preview(&preview),
                    _ => WriteAgreement::Path(&preview.path),
                };
                finish_write(&mut audited, &owned_path, &owned_content, agreement)
            });
            (audited, outcome)
        })
        .await?;
        audited = returned;
        match outcome {
            Err(RpcError::InvalidParams { .. }) if audited.take_changed() => {}
            outcome => return outcome,
        }
    }
    run_blocking(move || Err(audited.record_failure(FilesError::KeepsChanging(path).into()))).await?
}

/// Returns the question item of a write, with its text before and after.
pub(super) fn write_item(requested: &str, preview: &WritePreview) -> QuestionItem {
    let target = OperationTarget::File {
        requested: requested.to_owned(),
        resolved: preview.path.clone(),
        protection: preview.protection,
    };
    let change = TextChange { before: preview.before.clone(), after: preview.after.clone() };
    QuestionItem::with_change(Operation { kind: OperationKind::Write, target }, change)
}

/// Returns a write bound to its file, to the file's current content, to the text sent and to the result.
pub(super) fn resolve_write(preview: &WritePreview, content: &str) -> ResolvedOperation {
    ResolvedOperation::Write {
        path: preview.path.clone(),
        file: preview.file,
        before: preview.before.as_ref().map(|before| ContentHash::digest(before.as_bytes())),
        content: ContentHash::digest(content.as_bytes()),
        after: ContentHash::digest(preview.after.as_bytes()),
    }
}

/// Carries out an allowed write. The permission is recorded before, and the outcome after.
fn finish_write(
    audited: &mut AuditedOperation,
    path: &str,
    content: &str,
    agreement: WriteAgreement<'_>,
) -> Result<WriteOutcome, RpcError> {
    let session = audited.session.clone();
    audited.check_active().map_err(|failure| audited.record_failure(failure))?;
    audited.entry_mut().bytes = Some(content.len() as u64);
    audited.entry_mut().reason = Some("begins".to_owned());
    audited.record(AuditDecision::Allowed)?;
    audited.entry_mut().reason = None;
    let origin = audited.origin();
    let written = session.files.write_with_agreement(path, content, &origin, Some(agreement));
    session.host.report_kept_texts();
    match written {
        Ok(written) => {
            if let Some(change) = written.change
                && let Ok(change) = session.host.workspace.change(change)
            {
                audited.entry_mut().before = change.before.map(|state| state.hash);
                audited.entry_mut().after = change.after.map(|state| state.hash);
            }
            audited.entry_mut().reason = written.drops_privileges.then(|| PRIVILEGES_DROPPED.to_owned());
            audited.record(AuditDecision::Allowed)?;
            Ok(written)
        }
        Err(error) => {
            audited.set_changed(matches!(error, FilesError::ChangedSinceApproval(_)));
            Err(audited.record_failure(error.into()))
        }
    }
}

/// Records a write that an editor carries out itself.
pub(crate) async fn record_editor_write(
    session: Arc<SessionInner>,
    context: OperationContext,
    path: String,
    editor_text: Option<String>,
    written: String,
    origin: ChangeOrigin,
) -> Result<EditorWrite, RpcError> {
    run_blocking(move || {
        let mut audited = AuditedOperation::new(session.clone(), AuditAction::Write, context.call)
            .with_subject(AuditSubject::Path { requested: path.clone(), resolved: None });
        audited.entry_mut().turn = origin.turn;
        audited.entry_mut().bytes = Some(written.len() as u64);
        match session.files.record_editor_write(&path, editor_text.as_deref(), &written, &origin) {
            Ok(write) => {
                audited.entry_mut().reason = Some("the editor writes".to_owned());
                audited.record(AuditDecision::Allowed)?;
                Ok(write)
            }
            Err(error) => Err(audited.record_failure(error.into())),
        }
    })
    .await?
}

/// Records that an editor did not write after all.
pub(crate) async fn cancel_editor_write(
    session: Arc<SessionInner>,
    context: OperationContext,
    write: EditorWrite,
    origin: ChangeOrigin,
) -> Result<(), RpcError> {
    run_blocking(move || {
        let mut audited = AuditedOperation::new(session.clone(), AuditAction::Write, context.call)
            .with_subject(AuditSubject::Path { requested: write.path.clone(), resolved: None });
        audited.entry_mut().turn = origin.turn;
        audited.entry_mut().reason = Some("the editor did not write".to_owned());
        session.files.cancel_editor_write(&write, &origin).map_err(RpcError::from)?;
        audited.record(AuditDecision::Failed)
    })
    .await?
}

#[cfg(test)]
mod tests {
    use bowline_history::changes::ChangeId;

    use super::*;

    #[test]
    fn the_answer_to_a_write_names_texts_that_only_the_journal_has() {
        let mut written = WriteOutcome {
            path: "/w/a.txt".to_owned(),
            verdict: None,
            change: None,
            text: Arc::default(),
            drops_privileges: false,
            is_unguarded: false,
            is_edited: false,
            kept_texts: Vec::new(),
        };
        assert_eq!(written_meta(&written), None);
        written.drops_privileges = true;
        written.kept_texts.push(KeptText { change: ChangeId(7), path: "/w/a.txt".to_owned() });
        let answer = WriteTextFileResponse::new().meta(written_meta(&written));
        let expected = serde_json::json!({"_meta": {"bowline": {
            "notes": [PRIVILEGES_DROPPED, written.kept_texts[0].to_string()],
            "kept": [{"path": "/w/a.txt", "change": 7, "restore": "bowline restore 7"}],
        }}});
        assert_eq!(serde_json::to_value(&answer).unwrap(), expected);
    }
}
