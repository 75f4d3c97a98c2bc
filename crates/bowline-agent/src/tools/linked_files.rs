//! Files that are read without a call of the model: links in a prompt, and instructions.
//!
//! Their text goes to the model all the same, so they are subject to the same policy and audit log. Editors attach
//! files by themselves: a link does not mean that the user wants the file to be sent.

use std::collections::HashSet;
use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bowline_conversation::conversation::{ToolUse, ToolUseInput};
use bowline_policy::audit::AuditAction;
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::LexicalPath;
use bowline_policy::question::QuestionItem;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::ToolKind;
use bowline_text::lines::LineWindow;
use bowline_workspace::BoxFuture;
use bowline_workspace::files::{FileBackend, Requester, TextReadOutcome, TextWriteOutcome};
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::workspace::TextSource;
use serde_json::json;
use tokio::sync::Mutex;

use super::active_call::{ActiveCall, CallStop, ToolOutput, location};
use super::{CallContext, Toolbox};
use crate::permission::{Authorization, Denial, OperationOutcome, OperationRequest, RulesOutcome};
use crate::runtime::{Backend, SessionRuntime};

/// Files that are read without a call of the model.
pub struct LinkedFiles {
    toolbox: Toolbox,
    ask_policy: AskPolicy,
    // The files that the user has approved. Locked while a question is open, so that only one is open at a time.
    approved_paths: Mutex<HashSet<String>>,
    next_call: AtomicU64,
    is_cancelled: AtomicBool,
}

/// Whether to ask about reads that the policy leaves undecided.
enum AskPolicy {
    /// Ask the user, as about a call.
    User(CallContext),
    /// Do not ask, and do not read.
    Never,
}

impl std::fmt::Debug for LinkedFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Linked").finish_non_exhaustive()
    }
}

impl Toolbox {
    /// Returns the session's files for the links of a prompt. Reads that the policy leaves undecided are put to the
    /// user, as calls are.
    #[must_use]
    pub fn linked_files(&self, cx: CallContext) -> LinkedFiles {
        LinkedFiles::new(self, AskPolicy::User(cx))
    }

    /// Returns the session's files for reads that the user did not request. Only those that the policy allows are done;
    /// the user is not asked.
    #[must_use]
    pub fn files_by_rules(&self) -> LinkedFiles {
        LinkedFiles::new(self, AskPolicy::Never)
    }
}

/// An authorized read.
struct AllowedRead<'a> {
    authorization: Authorization,
    // The call shown to the client, if the user was asked.
    call: Option<ActiveCall<'a>>,
}

impl LinkedFiles {
    fn new(toolbox: &Toolbox, ask_policy: AskPolicy) -> Self {
        let (approved_paths, next_call, is_cancelled) =
            (Mutex::default(), AtomicU64::new(1), AtomicBool::new(false));
        Self { toolbox: toolbox.clone(), ask_policy, approved_paths, next_call, is_cancelled }
    }

    /// Returns whether the user has cancelled the turn instead of answering a question.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    fn runtime(&self) -> &SessionRuntime {
        self.toolbox.runtime()
    }

    /// Carries out a read if it is authorized.
    async fn perform_read<T>(
        &self,
        (verb, backend): (&str, Backend),
        path: &LexicalPath,
        future: impl Future<Output = Result<T, RpcError>>,
        bytes: impl Fn(&T) -> Option<usize>,
    ) -> Result<T, RpcError> {
        let operation = self.runtime().file_operation(OperationKind::Read, path).await?;
        let title = format!("{verb} {}", self.runtime().display_path(path.as_str()));
        let request =
            OperationRequest { action: AuditAction::Read, title, items: vec![QuestionItem::new(operation)] };
        let call = match &self.ask_policy {
            AskPolicy::User(_) => {
                let id = format!("linked {}", self.next_call.fetch_add(1, Ordering::Relaxed));
                let input = ToolUseInput::Value(json!({ "path": path.as_str() }));
                Some(ToolUse { id, name: verb.to_lowercase(), input })
            }
            AskPolicy::Never => None,
        };
        let AllowedRead { authorization, call: active_call } =
            self.authorize_read(backend, path, request, call.as_ref()).await?;
        let result = future.await;
        let is_expected =
            matches!((&self.ask_policy, &result), (AskPolicy::Never, Err(RpcError::ResourceNotFound { .. })));
        if !is_expected {
            let failure = result.as_ref().err().map(ToString::to_string);
            let bytes = result.as_ref().ok().and_then(bytes);
            let recorded = authorization
                .record_outcome(OperationOutcome { bytes, failure, ..OperationOutcome::default() })
                .await;
            recorded.map_err(|reason| RpcError::Internal { reason })?;
        }
        if let Some(active_call) = active_call {
            let output = Some(json!({ "servedBy": backend.as_str() }));
            let outcome = match &result {
                Ok(_) => Ok(ToolOutput { raw_output: output, ..ToolOutput::default() }),
                Err(failure) => Err(CallStop::from(failure.to_string())),
            };
            active_call.finish(outcome).await;
        }
        result
    }

    async fn authorize_read<'a>(
        &'a self,
        backend: Backend,
        path: &LexicalPath,
        request: OperationRequest,
        call: Option<&'a ToolUse>,
    ) -> Result<AllowedRead<'a>, RpcError> {
        let toolbox = &*self.toolbox.inner;
        let (AskPolicy::User(cx), Some(call)) = (&self.ask_policy, call) else {
            return match toolbox
                .permissions
                .authorize_by_rules(backend, None, &request)
                .await
                .map_err(|denial| self.denial_failure(denial))?
            {
                RulesOutcome::Allowed(authorization) => Ok(AllowedRead { authorization, call: None }),
                RulesOutcome::Undecided(mut authorization) => {
                    let message = "the user would have to be asked, which is not done for this".to_owned();
                    Err(self.denial_failure(authorization.deny(message, None).await))
                }
            };
        };
        let mut authorization =
            match toolbox.permissions.authorize_by_rules(backend, Some(cx.turn), &request).await {
                Ok(RulesOutcome::Allowed(authorization)) => {
                    return Ok(AllowedRead { authorization, call: None });
                }
                Ok(RulesOutcome::Undecided(authorization)) => authorization,
                Err(denial) => return Err(self.denial_failure(denial)),
            };
        if let Some(message) = toolbox.explain_out_of_reach(backend, &request).await {
            return Err(self.denial_failure(authorization.deny(message, None).await));
        }
        // One question at a time: a prompt may have many links.
        let mut approved_paths = self.approved_paths.lock().await;
        let active_call = ActiveCall::new(toolbox, call, cx);
        let input = json!({ "path": path.as_str() });
        let locations = vec![location(path, None)];
        let title = request.title.clone();
        let started =
            active_call.announce(&title, ToolKind::Read, |call| call.raw_input(input).locations(locations));
        started
            .await
            .map_err(|_| RpcError::Internal { reason: "there is no telling the client".to_owned() })?;
        if approved_paths.contains(path.as_str()) {
            // An approved file is read again in parts: it was too large to be read whole.
            authorization.set_approved_by_client();
        } else {
            authorization = match toolbox.permissions.authorize(backend, call, cx, request).await {
                Ok(authorization) => authorization,
                Err(denial) => {
                    let failure = self.denial_failure(denial.clone());
                    active_call.finish(Err(denial.into())).await;
                    return Err(failure);
                }
            };
            approved_paths.insert(path.as_str().to_owned());
        }
        active_call.mark_running().await;
        Ok(AllowedRead { authorization, call: Some(active_call) })
    }

    fn denial_failure(&self, denial: Denial) -> RpcError {
        match denial {
            Denial::Cancelled => {
                self.is_cancelled.store(true, Ordering::Relaxed);
                RpcError::Cancelled
            }
            Denial::Denied { model_message, .. } => {
                let reason = model_message.strip_prefix("permission denied: ").unwrap_or(&model_message);
                RpcError::Denied { reason: reason.to_owned() }
            }
        }
    }
}

impl FileBackend for LinkedFiles {
    fn read<'a>(
        &'a self,
        path: &'a str,
        window: LineWindow,
    ) -> BoxFuture<'a, Result<TextReadOutcome, RpcError>> {
        Box::pin(async move {
            // The path that is authorized is the path that is read.
            let path = self.runtime().resolve_path(path)?;
            let backend = self.runtime().backend_choice().read;
            let read = async {
                let read = self.runtime().read(backend, path.as_str(), window).await;
                let read = read.map_err(|error| match error {
                    // Clients report a missing file in many ways.
                    error if error.is_file_missing() => {
                        RpcError::ResourceNotFound { uri: Some(path.as_str().to_owned()) }
                    }
                    error => error.into(),
                })?;
                let source = match backend {
                    Backend::Client | Backend::Workspace => TextSource::Document,
                    Backend::Local => TextSource::Disk,
                };
                Ok(TextReadOutcome { text: read.text, source, is_whole: read.whole })
            };
            self.perform_read(("Read", backend), &path, read, |read| Some(read.text.len())).await
        })
    }

    fn list<'a>(&'a self, path: &'a str, options: ListOptions) -> BoxFuture<'a, Result<Listing, RpcError>> {
        Box::pin(async move {
            let path = self.runtime().resolve_path(path)?;
            let list = async { Ok(self.runtime().list(path.as_str(), options).await?) };
            self.perform_read(("List", Backend::Local), &path, list, |_| None).await
        })
    }

    fn write<'a>(
        &'a self,
        _: &'a str,
        _: String,
        _: &'a Requester,
    ) -> BoxFuture<'a, Result<TextWriteOutcome, RpcError>> {
        Box::pin(ready(Err(RpcError::Denied { reason: "what is linked is only read".to_owned() })))
    }

    fn search(&self, _: SearchQuery, _: Option<String>) -> BoxFuture<'_, Result<SearchResult, RpcError>> {
        Box::pin(ready(Err(RpcError::Denied { reason: "what is linked is only read".to_owned() })))
    }
}
