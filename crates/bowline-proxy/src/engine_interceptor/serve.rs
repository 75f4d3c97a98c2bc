//! The agent's file and terminal requests that are not simply forwarded: the proxy reads and writes through the editor
//! on the agent's behalf, and serves the methods that the editor lacks with the engine (`--host`).
//!
//! With `--host`, `initialize` advertises files and terminals to the agent, and the engine's session answers the
//! requests that the editor cannot.
//!
//! Writes through the editor preserve text that the user typed and did not save. The editor is asked for its text
//! (1 s), the change is journalled against it, and then the editor writes. If the agent has not read the file through
//! the editor, its text is merged with what was typed. An editor that is Bowline itself merges and journals on its own,
//! so its writes pass.

use std::time::Duration;

use bowline_protocol::file_extension::{FileCapabilities, FileError, FileLimits, WATCH_METHOD};
use bowline_protocol::json_object::object_entry;
use bowline_protocol::quirks::{PeerRole, Quirk, Workaround};
use bowline_protocol::relay::{FileRead, Method, ProxySide, parse_params, parse_result};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    CLIENT_METHOD_NAMES, ClientCapabilities, Error, InitializeRequest, InitializeResponse,
    ReadTextFileRequest, ReadTextFileResponse, SessionId, WriteTextFileRequest,
};
use bowline_wire::message::body::JsonBody;
use bowline_wire::message::peek::{PeekedMessage, peek};
use bowline_wire::{CallError, Caller};
use bytes::Bytes;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::missing_file::{empty_read_response, is_missing_file_error};
use super::{EditorCapabilities, EngineInterceptor, MAX_SERVED_REQUESTS, policy_unavailable};
use crate::engine::{EditorWriteRequest, JournalledWrite, RelayedOperation};
use crate::interceptor::{Disposition, InterceptDecision, InterceptedMessage, MessageOrder};

/// The editor's deadline for returning its text while the agent waits.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

impl EngineInterceptor {
    /// Records the editor's capabilities. If a host serves here, the agent sees all of them as available.
    pub(super) fn handle_initialize(
        &mut self,
        capabilities: &ClientCapabilities,
        message: &InterceptedMessage<'_>,
    ) -> InterceptDecision {
        let InterceptedMessage { from, line, .. } = *message;
        if from != ProxySide::Editor {
            return self.next.intercept(*message);
        }
        let request: Option<InitializeRequest> = parse_params(line);
        let name = request.and_then(|request| request.client_info).map(|info| info.name);
        self.editor_capabilities = EditorCapabilities::new(capabilities, name.as_deref());
        let editor = self.editor_capabilities;
        let EditorCapabilities { can_read, can_write, has_terminals, .. } = editor;
        let change = CapabilityChange {
            adds_methods: self.options.serve_as_host && !(can_read && can_write && has_terminals),
            adds_extension: self.options.serve_as_host && !editor.has_files(),
            // The rules cannot judge the names of changed files, which the editor sends.
            withholds_watches: self.options.enforce_policy && editor.file_extension.watch.is_some(),
        };
        let replacement =
            (change != CapabilityChange::default()).then(|| change_capabilities(line, change)).flatten();
        let Some(replacement) = replacement else {
            return self.next.intercept(*message);
        };
        let replacement = Bytes::from(replacement);
        match self.next.intercept(InterceptedMessage { line: &replacement, ..*message }) {
            InterceptDecision::Now(Disposition::Pass) => {
                InterceptDecision::Now(Disposition::Replace(vec![replacement.to_vec()]))
            }
            decision => decision,
        }
    }

    /// Records the agent's identity.
    pub(super) fn record_agent_info(&mut self, line: &[u8]) {
        let agent = parse_result::<InitializeResponse>(line).and_then(|answer| answer.agent_info);
        let (mode, workaround) = (self.options.quirks, Workaround::EmptyTextForMissingFile);
        self.missing_file_quirk = Quirk::find(mode, PeerRole::Agent, agent.as_ref(), workaround);
    }

    /// Serves a request that the editor cannot.
    pub(super) fn serve_request(
        &self,
        method: Method,
        id: &SessionId,
        line: &Bytes,
    ) -> Option<InterceptDecision> {
        let PeekedMessage::Request { method: name, .. } = peek(line) else { return None };
        let (name, params) = (name.into_owned(), parse_params::<Box<RawValue>>(line)?);
        let refuse = |failure: RpcError| {
            let error = match method {
                Method::FileExtension => FileError::from(failure).into(),
                _ => failure.into(),
            };
            Some(InterceptDecision::Now(Disposition::Answer(Err(error))))
        };
        let Some(session) = self.sessions.get(id) else {
            return refuse(RpcError::SessionNotFound { session_id: id.clone() });
        };
        let call = match method {
            Method::CreateTerminal => session.context.attribution().call_for(None),
            Method::Read | Method::Write | Method::FileExtension => {
                let params = serde_json::from_str::<Value>(params.get()).ok()?;
                let operations = params["operations"].as_array().into_iter().flatten();
                let named = std::iter::once(&params).chain(operations);
                let paths = named.flat_map(|fields| ["path", "from", "to"].map(|name| fields[name].as_str()));
                session.context.attribution().call_for(Some(&paths.flatten().collect::<Vec<_>>()))
            }
            _ => None,
        };
        let (context, logger) = (session.context.clone(), self.engine.clone());
        let quirk = self.missing_file_quirk.filter(|_| method == Method::Read);
        let watch_updates = (name == WATCH_METHOD).then(|| self.agent_updates.clone());
        let permit = self.serve_permits.clone().try_acquire_owned().ok();
        let is_quick = method == Method::Terminal && name != CLIENT_METHOD_NAMES.terminal_wait_for_exit;
        if permit.is_none() && !is_quick {
            return refuse(RpcError::Busy { limit: MAX_SERVED_REQUESTS as u64 });
        }
        Some(InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                let _permit = permit;
                match context.engine().await {
                    Some(engine) => {
                        if let Some(updates) = watch_updates {
                            let (signal, answered) = oneshot::channel();
                            let answer = engine.watch(params, updates, answered).await;
                            return Disposition::AnswerAndSignal(answer, signal);
                        }
                        match (engine.serve(name, params, call).await, quirk) {
                            // The engine keeps track of the missing file.
                            (Err(error), Some(quirk)) if is_missing_file_error(&error) => {
                                logger.log(&quirk.log_line(&error.message));
                                Disposition::Answer(empty_read_response())
                            }
                            (answer, _) => Disposition::Answer(answer),
                        }
                    }
                    None => Disposition::Answer(Err(Error::from(workspace_unavailable()))),
                }
            }),
        ))
    }

    /// Reads a file through the editor, and answers with empty text if it does not exist.
    pub(super) fn read_with_quirk(
        &self,
        quirk: &'static Quirk,
        id: &SessionId,
        read: &FileRead,
        line: &Bytes,
    ) -> Option<InterceptDecision> {
        let (caller, params) = (self.caller.caller().cloned()?, parse_params::<Box<RawValue>>(line)?);
        let session = self.sessions.get(id)?;
        let call = session.context.attribution().call_for(Some(&[&read.path]));
        let (context, engine, rules) =
            (session.context.clone(), self.engine.clone(), self.options.enforce_policy);
        let path = read.path.clone();
        Some(InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                if rules {
                    let Some(engine) = context.engine().await else {
                        return Disposition::Answer(Err(policy_unavailable().into()));
                    };
                    if let Err(failure) =
                        engine.authorize(RelayedOperation::Read { path: path.clone() }, call).await
                    {
                        return Disposition::Answer(Err(failure.into()));
                    }
                }
                let answer =
                    caller.call_raw(CLIENT_METHOD_NAMES.fs_read_text_file, JsonBody::from_raw(&params)).await;
                let answer = match answer {
                    Ok(answer) => to_raw_value(&answer).map_err(|_| Error::internal_error()),
                    Err(CallError::ErrorResponse(error)) => Err(error),
                    Err(other) => {
                        let reason = format!("the editor did not read: {other}");
                        Err(RpcError::Internal { reason }.into())
                    }
                };
                let is_missing = answer.as_ref().is_err_and(is_missing_file_error);
                context.missing_files().record_read(&path, is_missing);
                if is_missing {
                    engine.log(&quirk.log_line(&path));
                }
                Disposition::Answer(if is_missing { empty_read_response() } else { answer })
            }),
        ))
    }

    /// Holds a write until the rules have judged it and the editor's text is known.
    pub(super) fn intercept_write(
        &self,
        id: &SessionId,
        request: WriteTextFileRequest,
        line: &Bytes,
    ) -> Option<InterceptDecision> {
        let session = self.sessions.get(id)?;
        let path = request.path.to_str()?.to_owned();
        let call = session.context.attribution().call_for(Some(&[&path]));
        let agent_has_read =
            session.read_paths.contains(&path) && !session.context.missing_files().contains(&path);
        let (context, rules, reads) =
            (session.context.clone(), self.options.enforce_policy, self.editor_capabilities.can_read);
        let (caller, params) = (self.caller.caller().cloned(), parse_params::<Box<RawValue>>(line)?);
        Some(InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                let engine = context.engine().await;
                let engine = match engine {
                    Some(engine) => engine,
                    None if rules => return Disposition::Answer(Err(policy_unavailable().into())),
                    None => return Disposition::Pass,
                };
                if rules {
                    let operation =
                        RelayedOperation::Write { path: path.clone(), content: request.content.clone() };
                    if let Err(failure) = engine.authorize(operation, call.clone()).await {
                        return Disposition::Answer(Err(failure.into()));
                    }
                }
                let Some(caller) = caller.filter(|_| reads && !context.editor_keeps_journal) else {
                    return Disposition::Pass;
                };
                let Some(editor_text) = read_from_editor(&caller, &request, READ_TIMEOUT).await else {
                    return Disposition::Pass;
                };
                if let Some(conflict) = context.missing_files().check_conflict(&path, editor_text.as_deref())
                {
                    return Disposition::Answer(Err(conflict.into()));
                }
                let new_text = request.content;
                let write = EditorWriteRequest {
                    path,
                    editor_text,
                    new_text: new_text.clone(),
                    agent_has_read,
                    call,
                };
                // A journalled write is completed or rolled back even if the request is cancelled.
                let writing = tokio::spawn(async move {
                    let journalled = engine.journal_editor_write(write).await?;
                    write_through_editor(&caller, journalled, &new_text, &params).await
                });
                Disposition::Answer(writing.await.unwrap_or_else(|_| Err(Error::internal_error())))
            }),
        ))
    }
}

/// Returns the error for a request that cannot be served.
pub(crate) fn workspace_unavailable() -> RpcError {
    RpcError::Internal { reason: "the workspace cannot be served: the proxy's stderr says why".to_owned() }
}

/// What differs between the editor's capabilities and those that the agent sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CapabilityChange {
    // Files and terminals are added.
    adds_methods: bool,
    adds_extension: bool,
    withholds_watches: bool,
}

/// Returns the editor's `initialize` request with changed capabilities.
fn change_capabilities(line: &[u8], change: CapabilityChange) -> Option<Vec<u8>> {
    let mut message: Value = serde_json::from_slice(line).ok()?;
    let params = message.get_mut("params")?.as_object_mut()?;
    let capabilities = object_entry(params, "clientCapabilities")?;
    if change.withholds_watches {
        let methods = object_entry(object_entry(object_entry(capabilities, "_meta")?, "bowline")?, "fs")?;
        methods.remove("watch");
    }
    if change.adds_extension {
        let files = FileCapabilities::with_limits(&FileLimits::DEFAULT);
        files.insert_into(object_entry(capabilities, "_meta")?);
    }
    if change.adds_methods {
        let fs = object_entry(capabilities, "fs")?;
        fs.insert("readTextFile".to_owned(), json!(true));
        fs.insert("writeTextFile".to_owned(), json!(true));
        capabilities.insert("terminal".to_owned(), json!(true));
    }
    Some(message.to_string().into_bytes())
}

/// Asks the editor for its text of a file. Returns `None` if the editor does not answer, `Some(None)` if the file is
/// missing.
pub(super) async fn read_from_editor(
    caller: &Caller,
    request: &WriteTextFileRequest,
    limit: Duration,
) -> Option<Option<String>> {
    let read = ReadTextFileRequest::new(request.session_id.clone(), request.path.clone());
    let answer: Result<ReadTextFileResponse, CallError> = timeout(limit, caller.call(&read)).await.ok()?;
    match answer {
        Ok(read) => Some(Some(read.content)),
        // Any other error leaves the editor's text unknown.
        Err(CallError::ErrorResponse(error)) => {
            let is_missing = matches!(RpcError::from_error(&error), RpcError::ResourceNotFound { .. });
            is_missing.then_some(None)
        }
        Err(_) => None,
    }
}

/// Writes through the editor, and returns its answer.
pub(super) async fn write_through_editor(
    caller: &Caller,
    journalled: JournalledWrite,
    new_text: &str,
    params: &RawValue,
) -> Result<Box<RawValue>, Error> {
    let JournalledWrite { text, rollback } = journalled;
    let body =
        if text == new_text { Some(JsonBody::from_raw(params)) } else { replace_content(params, text) };
    let Some(body) = body else {
        rollback.await;
        return Err(Error::internal_error());
    };
    match caller.call_raw(CLIENT_METHOD_NAMES.fs_write_text_file, body).await {
        Ok(answer) => to_raw_value(&answer).map_err(|_| Error::internal_error()),
        Err(error) => {
            rollback.await;
            Err(match error {
                CallError::ErrorResponse(error) => error,
                other => RpcError::Internal { reason: format!("the editor did not write: {other}") }.into(),
            })
        }
    }
}

/// Returns the params with the text replaced.
fn replace_content(raw_params: &RawValue, text: String) -> Option<JsonBody> {
    let mut params: Value = serde_json::from_str(raw_params.get()).ok()?;
    *params.get_mut("content")? = Value::String(text);
    let params = to_raw_value(&params).ok()?;
    Some(JsonBody::from_raw(&params))
}
