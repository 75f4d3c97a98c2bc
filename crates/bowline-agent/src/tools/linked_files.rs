//! Files that are read without a call of the model: links in a prompt, and instructions.
//!
//! Their text goes to the model all the same, so they are subject to the same policy and audit log. Editors attach
//! files by themselves: a link does not mean that the user wants the file to be sent.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bowline_conversation::conversation::{ToolUse, ToolUseInput};
use bowline_policy::audit::AuditAction;
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::LexicalPath;
use bowline_policy::question::QuestionItem;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::ToolKind;
use bowline_text::lines::LineWindow;
use bowline_workspace::files::{FileBackend, Requester, TextReadOutcome, TextWriteOutcome};
use bowline_workspace::list::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
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
    Nobody,
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
        LinkedFiles::new(self, AskPolicy::Nobody)
    }
}

/// An authorized read.
struct AllowedRead<'a> {
    authorization: Authorization,
    // The call shown to the client, if the user was asked.
    call: Option<ActiveCall<'a>>,
}

impl LinkedFiles {
    fn new(tools: &Toolbox, asks: AskPolicy) -> Self {
        let (agreed, calls, cancelled) = (Mutex::default(), AtomicU64::new(1), AtomicBool::new(false));
        Self {
            toolbox: tools.clone(),
            ask_policy: asks,
            approved_paths: agreed,
            next_call: calls,
            is_cancelled: cancelled,
        }
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
        (verb, by): (&str, Backend),
        path: &LexicalPath,
        act: impl Future<Output = Result<T, RpcError>>,
        bytes: impl Fn(&T) -> Option<usize>,
    ) -> Result<T, RpcError> {
        let operation = self.runtime().file_operation(OperationKind::Read, path).await?;
        let title = format!("{verb} {}", self.runtime().display_path(path.as_str()));
        let wish = OperationRequest { action: AuditAction::Read, title, item: QuestionItem::new(operation) };
        let call = match &self.ask_policy {
            AskPolicy::User(_) => {
                let id = format!("linked {}", self.next_call.fetch_add(1, Ordering::Relaxed));
                let input = ToolUseInput::Value(json!({ "path": path.as_str() }));
                Some(ToolUse { id, name: verb.to_lowercase(), input })
            }
            AskPolicy::Nobody => None,
        };
        let AllowedRead { authorization: pass, call: work } =
            self.authorize_read(by, path, wish, call.as_ref()).await?;
        let done = act.await;
        let is_usual =
            matches!((&self.ask_policy, &done), (AskPolicy::Nobody, Err(RpcError::ResourceNotFound { .. })));
        if !is_usual {
            let failed = done.as_ref().err().map(ToString::to_string);
            let bytes = done.as_ref().ok().and_then(bytes);
            let recorded = pass
                .record_outcome(OperationOutcome { bytes, failure: failed, ..OperationOutcome::default() })
                .await;
            recorded.map_err(|reason| RpcError::Internal { reason })?;
        }
        if let Some(work) = work {
            let output = Some(json!({ "servedBy": by.as_str() }));
            let outcome = match &done {
                Ok(_) => Ok(ToolOutput { raw_output: output, ..ToolOutput::default() }),
                Err(failure) => Err(CallStop::from(failure.to_string())),
            };
            work.finish(outcome).await;
        }
        done
    }

    async fn authorize_read<'a>(
        &'a self,
        by: Backend,
        path: &LexicalPath,
        wish: OperationRequest,
        call: Option<&'a ToolUse>,
    ) -> Result<AllowedRead<'a>, RpcError> {
        let tools = &*self.toolbox.inner;
        let (AskPolicy::User(cx), Some(call)) = (&self.ask_policy, call) else {
            return match tools
                .permissions
                .authorize_by_rules(by, None, &wish)
                .await
                .map_err(|no| self.denial_failure(no))?
            {
                RulesOutcome::Allowed(pass) => Ok(AllowedRead { authorization: pass, call: None }),
                RulesOutcome::Undecided(mut pass) => {
                    let told = "the user would have to be asked, which is not done for this".to_owned();
                    Err(self.denial_failure(pass.deny(told, None).await))
                }
            };
        };
        let mut pass = match tools.permissions.authorize_by_rules(by, Some(cx.turn), &wish).await {
            Ok(RulesOutcome::Allowed(pass)) => return Ok(AllowedRead { authorization: pass, call: None }),
            Ok(RulesOutcome::Undecided(pass)) => pass,
            Err(no) => return Err(self.denial_failure(no)),
        };
        if let Some(told) = tools.explain_out_of_reach(by, &wish.item.operation).await {
            return Err(self.denial_failure(pass.deny(told, None).await));
        }
        // One question at a time: a prompt may have many links.
        let mut agreed = self.approved_paths.lock().await;
        let work = ActiveCall::new(tools, call, cx);
        let input = json!({ "path": path.as_str() });
        let locations = vec![location(path, None)];
        let title = wish.title.clone();
        let started =
            work.announce(&title, ToolKind::Read, |call| call.raw_input(input).locations(locations));
        started
            .await
            .map_err(|_| RpcError::Internal { reason: "there is no telling the client".to_owned() })?;
        if agreed.contains(path.as_str()) {
            // An approved file is read again in parts: it was too large to be read whole.
            pass.set_approved_by_client();
        } else {
            pass = match tools.permissions.authorize(by, call, cx, wish).await {
                Ok(pass) => pass,
                Err(no) => {
                    let failure = self.denial_failure(no.clone());
                    work.finish(Err(no.into())).await;
                    return Err(failure);
                }
            };
            agreed.insert(path.as_str().to_owned());
        }
        work.mark_running().await;
        Ok(AllowedRead { authorization: pass, call: Some(work) })
    }

    fn denial_failure(&self, no: Denial) -> RpcError {
        match no {
            Denial::Cancelled => {
                self.is_cancelled.store(true, Ordering::Relaxed);
                RpcError::Cancelled
            }
            Denial::Denied { model_message: told, .. } => {
                let why = told.strip_prefix("permission denied: ").unwrap_or(&told);
                RpcError::Denied { reason: why.to_owned() }
            }
        }
    }
}

impl FileBackend for LinkedFiles {
    async fn read(&self, path: &str, window: LineWindow) -> Result<TextReadOutcome, RpcError> {
        // The path that is authorized is the path that is read.
        let path = self.runtime().resolve_path(path)?;
        let read = FileBackend::read(self.runtime(), path.as_str(), window);
        let by = self.runtime().backend_choice().read;
        self.perform_read(("Read", by), &path, read, |read| Some(read.text.len())).await
    }

    async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, RpcError> {
        let path = self.runtime().resolve_path(path)?;
        let list = FileBackend::list(self.runtime(), path.as_str(), options);
        self.perform_read(("List", Backend::Local), &path, list, |_| None).await
    }

    async fn write(&self, _: &str, _: String, _: &Requester) -> Result<TextWriteOutcome, RpcError> {
        Err(RpcError::Denied { reason: "what is linked is only read".to_owned() })
    }

    async fn search(&self, _: SearchQuery, _: Option<String>) -> Result<SearchResult, RpcError> {
        Err(RpcError::Denied { reason: "what is linked is only read".to_owned() })
    }
}
