//! Rules in front of the editor (`--policy`): for permission requests, and for file and terminal requests of the agent.
//!
//! A permission request is judged for everything it names. If the rules leave it open, the editor's user decides, and a
//! yes becomes a grant for exactly that request. That also holds without `--policy` where the proxy serves files or
//! terminals (`--host`), so that the user is not asked again when the agent does what was approved. Reads, writes and commands that the agent requests from the editor are
//! judged as well, in the canonical form in which they are forwarded. Requests that the rules cannot evaluate are
//! refused: unreadable params, a session that is not open, a method or name that only resembles a known one.

use std::collections::HashMap;
use std::task::{Context, Waker};

use bowline_protocol::file_extension::{
    AbsolutePath, BATCH_METHOD, BatchError, BatchFilesRequest, FileCapabilities, FileError, FileLimits,
    FileOperation, LIST_METHOD, ListDirectoryRequest, READ_METHOD, ReadFileRequest, STAT_METHOD,
    StatFileRequest, WRITE_METHOD, WriteFileRequest,
};
use bowline_protocol::relay::{FileRead, Method, is_lookalike_member, parse_params, parse_result};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    CreateTerminalRequest, Error, RequestPermissionRequest, RequestPermissionResponse, SessionId, ToolCallId,
    WriteTextFileRequest,
};
use bowline_wire::message::canonical::canonicalize;
use bowline_wire::message::peek::{PeekedMessage, peek};
use bowline_workspace::terminals::CommandRequest;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::{EditorCapabilities, EngineInterceptor, MAX_READ_PATHS, MAX_SESSIONS, policy_unavailable};
use crate::engine::{PermissionRuling, RelayedOperation};
use crate::interceptor::{BoxFuture, Disposition, InterceptDecision, InterceptedMessage, MessageOrder};

impl EngineInterceptor {
    /// Judges a permission request. If the rules leave it open, it goes to the next interceptor and then to the editor.
    pub(super) fn judge_permission_request(
        &mut self,
        id: &SessionId,
        message: &InterceptedMessage<'_>,
    ) -> Option<InterceptDecision> {
        let session = self.sessions.get(id).filter(|_| self.judges_permissions())?;
        // Without `--policy` lines are forwarded as they are: the editor may read an ambiguous one otherwise, and its
        // user's yes would then grant something that was not shown.
        if !self.options.enforce_policy && canonicalize(message.line).is_none() {
            return None;
        }
        let request: RequestPermissionRequest = parse_params(message.line)?;
        let call = session.context.attribution().describe_call(&request.tool_call);
        let context = session.context.clone();
        let next = self.next_disposition(message);
        Some(InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                // Without an engine, the editor's user is asked, as would happen without the proxy.
                let Some(engine) = context.engine().await else { return Disposition::Pass };
                let id = call.id.clone();
                match engine.judge_permission(call, request.options).await {
                    Ok(PermissionRuling::AskUser) => {
                        let disposition = next.await;
                        if matches!(disposition, Disposition::Answer(Ok(_))) {
                            engine.defer_to_tool(id).await;
                        }
                        disposition
                    }
                    Ok(PermissionRuling::Decided(response)) => permission_answer(response),
                    Err(failure) => Disposition::Answer(Err(failure.into())),
                }
            }),
        ))
    }

    /// Returns whether permission requests are judged: rules apply to all requests, or the proxy serves some itself.
    fn judges_permissions(&self) -> bool {
        let EditorCapabilities { can_read, can_write, has_terminals, .. } = self.editor_capabilities;
        let is_host = self.options.serve_as_host && !(can_read && can_write && has_terminals);
        self.options.enforce_policy || is_host
    }

    /// Records the answer of the editor's user before the agent sees it and acts on it.
    pub(super) fn record_permission_outcome(
        &mut self,
        id: &SessionId,
        call: &ToolCallId,
        message: &InterceptedMessage<'_>,
    ) -> Option<InterceptDecision> {
        let session = self.sessions.get(id).filter(|_| self.judges_permissions())?;
        let response: RequestPermissionResponse = parse_result(message.line)?;
        let (context, call) = (session.context.clone(), call.clone());
        let next = self.next_disposition(message);
        Some(InterceptDecision::Later(
            MessageOrder::Keep,
            Box::pin(async move {
                if let Some(engine) = context.engine().await {
                    engine.record_permission_outcome(call, response).await;
                }
                next.await
            }),
        ))
    }

    /// Withdraws the pending questions of a cancelled turn.
    pub(super) fn cancel_turn(&self, id: &SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        let context = session.context.clone();
        let mut cancelling: BoxFuture<'static, ()> = Box::pin(async move {
            if let Some(engine) = context.engine().await {
                engine.cancel_turn().await;
            }
        });
        // Polled once here, so that it takes effect before the editor's next message: answers to the turn's questions
        // are then late.
        if cancelling.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            bowline_task::spawn(cancelling);
        }
    }

    /// Decides on a request for files or terminals. Where rules apply, a request that they cannot evaluate does not
    /// pass.
    pub(super) fn judge_client_request(
        &mut self,
        method: Method,
        id: Option<&SessionId>,
        read: Option<&FileRead>,
        line: &Bytes,
    ) -> Option<InterceptDecision> {
        let is_judged = self.options.enforce_policy && method.needs_policy();
        let is_served_here = self.options.serve_as_host && !self.editor_capabilities.supports(method);
        let decision = if is_judged && has_lookalikes(line) {
            return Some(refuse_with(unreadable_request()));
        } else if self.editor_capabilities.supports(method) || is_judged && !self.options.serve_as_host {
            id.and_then(|id| self.judge_forwarded_request(method, id, read, line))
        } else if is_served_here {
            id.and_then(|id| self.serve_request(method, id, line))
        } else {
            None
        };
        decision.or_else(|| is_judged.then(|| self.refuse_unjudged(id)))
    }

    /// Refuses a request that the rules cannot judge.
    pub(super) fn refuse_unjudged(&self, id: Option<&SessionId>) -> InterceptDecision {
        let failure = match id.filter(|id| !self.sessions.contains_key(id)) {
            Some(_) if self.sessions.len() >= MAX_SESSIONS => {
                let reason = format!(
                    "rules are to be applied, and the proxy has them for {MAX_SESSIONS} sessions only: close some"
                );
                RpcError::Denied { reason }
            }
            Some(id) => RpcError::SessionNotFound { session_id: id.clone() },
            None => unreadable_request(),
        };
        refuse_with(failure)
    }

    /// Decides on a request that the editor will answer. Returns `None` if it cannot be judged or needs no judgement.
    fn judge_forwarded_request(
        &mut self,
        method: Method,
        id: &SessionId,
        read: Option<&FileRead>,
        line: &Bytes,
    ) -> Option<InterceptDecision> {
        let operation = match method {
            Method::Read => {
                let FileRead { path, is_whole } = read?;
                let session = self.sessions.get_mut(id)?;
                if *is_whole
                    && session.read_paths.len() < MAX_READ_PATHS
                    && !session.read_paths.contains(path)
                {
                    session.read_paths.insert(path.clone());
                }
                // An editor that is Bowline itself does the same, and keeps track of missing files.
                if let Some(quirk) =
                    self.missing_file_quirk.filter(|_| !self.editor_capabilities.keeps_journal)
                {
                    return self.read_with_quirk(quirk, id, read?, line);
                }
                if !self.options.enforce_policy {
                    return None;
                }
                RelayedOperation::Read { path: path.clone() }
            }
            Method::Write => {
                return self.intercept_write(id, parse_params::<WriteTextFileRequest>(line)?, line);
            }
            Method::CreateTerminal => RelayedOperation::Run(command_from_request(parse_params(line)?)),
            Method::FileExtension if self.options.enforce_policy => {
                match describe_file_request(&self.editor_capabilities.file_extension, line)? {
                    Ok(operation) => operation,
                    Err(failure) => return Some(refuse_file_request(failure)),
                }
            }
            _ => return None,
        };
        let session = self.sessions.get(id).filter(|_| self.options.enforce_policy)?;
        let call = match &operation {
            RelayedOperation::Read { path } | RelayedOperation::Write { path, .. } => {
                session.context.attribution().call_for(Some(&[path]))
            }
            RelayedOperation::Files(operations) => {
                let effects = operations.iter().flat_map(FileOperation::effects);
                let paths: Vec<&str> = effects.filter_map(|effect| effect.path().to_str()).collect();
                session.context.attribution().call_for(Some(&paths))
            }
            RelayedOperation::Run(_) => session.context.attribution().call_for(None),
        };
        let context = session.context.clone();
        Some(InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                let Some(engine) = context.engine().await else {
                    return Disposition::Answer(Err(policy_unavailable().into()));
                };
                match engine.authorize(operation, call).await {
                    Ok(()) => Disposition::Pass,
                    Err(failure) if method == Method::FileExtension => {
                        Disposition::Answer(Err(FileError::from(failure).into()))
                    }
                    Err(failure) => Disposition::Answer(Err(failure.into())),
                }
            }),
        ))
    }
}

/// Describes a request of the file extension, if the editor serves it and rules apply to it. Returns `None` if it cannot
/// be read.
fn describe_file_request(
    served: &FileCapabilities,
    line: &Bytes,
) -> Option<Result<RelayedOperation, BatchError>> {
    let PeekedMessage::Request { method, .. } = peek(line) else { return None };
    // The editor applies its own.
    let limits = &FileLimits::UNLIMITED;
    let read = |path: AbsolutePath| RelayedOperation::Read { path: path.as_str().to_owned() };
    let described = match &*method {
        LIST_METHOD if served.list.is_some() => {
            parse_params::<ListDirectoryRequest>(line)?.into_operation(limits).map(|list| read(list.path))
        }
        STAT_METHOD if served.stat.is_some() => {
            parse_params::<StatFileRequest>(line)?.into_operation().map(|stat| read(stat.path))
        }
        READ_METHOD if served.read.is_some() => {
            parse_params::<ReadFileRequest>(line)?.into_operation(limits).map(|file| read(file.path))
        }
        WRITE_METHOD if served.write.is_some() => {
            let write = parse_params::<WriteFileRequest>(line)?.into_operation(limits);
            write.map(|write| RelayedOperation::Files(vec![FileOperation::Write(write)]))
        }
        BATCH_METHOD if served.batch.is_some() => {
            let batch = parse_params::<BatchFilesRequest>(line)?.into_operations(limits);
            return Some(batch.map(RelayedOperation::Files));
        }
        _ => Err(RpcError::UnknownMethod { method: None }.into()),
    };
    Some(described.map_err(BatchError::from))
}

fn refuse_file_request(failure: BatchError) -> InterceptDecision {
    InterceptDecision::Now(Disposition::Answer(Err(failure.into())))
}

/// Returns the proxy's own answer to a permission request, marked as such for readers of the wire.
pub(crate) fn permission_answer(mut response: RequestPermissionResponse) -> Disposition {
    let bowline_meta = response.meta.get_or_insert_default().entry("bowline").or_insert_with(|| json!({}));
    if let Some(bowline_meta) = bowline_meta.as_object_mut() {
        bowline_meta.insert("by".to_owned(), json!("proxy"));
    }
    Disposition::Answer(to_raw_value(&response).map_err(|_| Error::internal_error()))
}

pub(super) fn refuse_with(failure: RpcError) -> InterceptDecision {
    InterceptDecision::Now(Disposition::Answer(Err(failure.into())))
}

fn unreadable_request() -> RpcError {
    let reason = "rules are to be applied to this request, and it cannot be read".to_owned();
    RpcError::InvalidParams { reason }
}

type Members = HashMap<String, IgnoredAny>;

/// Returns whether the params, or one of their operations, have a member that some parsers take for one that is judged.
fn has_lookalikes(line: &[u8]) -> bool {
    const NAMES: [&str; 20] = [
        "sessionId", "path", "content", "command", "args", "env", "cwd", "operations", "op", "from", "to",
        "data", "encoding", "mode", "position", "createOnly", "createParents", "overwrite", "recursive",
        "parents",
    ];
    #[derive(Deserialize)]
    struct Batch {
        operations: Vec<Members>,
    }
    let has_lookalike = |members: &Members| members.keys().any(|name| is_lookalike_member(name, &NAMES));
    parse_params::<Members>(line).is_some_and(|params| has_lookalike(&params))
        || parse_params::<Batch>(line).is_some_and(|batch| batch.operations.iter().any(has_lookalike))
}

fn command_from_request(request: CreateTerminalRequest) -> CommandRequest {
    CommandRequest {
        command: request.command,
        args: request.args,
        env: request.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        cwd: request.cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
        output_limit: request.output_byte_limit,
    }
}
