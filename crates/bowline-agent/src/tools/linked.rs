//! Files that no call of a model's reads: what a prompt links to, and what instructs the model.
//!
//! They go to the model all the same, so the same rules stand before them, and the same log has them. Editors attach files
//! by themselves: that a file is linked does not say that its user wants it to be sent.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bowline_state::audit::Action;
use bowline_state::conversation::{Input, ToolUse};
use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_state::operation::Kind;
use bowline_state::paths::LexicalPath;
use bowline_state::question::Item;
use bowline_state::schema::v1::ToolKind;
use bowline_workspace::files::{Asker, Files, TextRead, TextWritten};
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use serde_json::json;
use tokio::sync::Mutex;

use super::work::{Done, Stop, Work, location};
use super::{Calling, Toolbox};
use crate::permission::{Became, ByRules, No, Pass, Wish};
use crate::runtime::{Runtimes, Server};

/// Files that no call of a model's reads.
pub struct Linked {
    tools: Toolbox,
    asks: Asks,
    // What the user has agreed to. Held while a question is open, so that there is one at a time.
    agreed: Mutex<HashSet<String>>,
    calls: AtomicU64,
    cancelled: AtomicBool,
}

/// Whether somebody is asked about what rules leave open.
enum Asks {
    /// The user is, as about a call.
    User(Calling),
    /// Nobody is, and it is not read.
    Nobody,
}

impl std::fmt::Debug for Linked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Linked").finish_non_exhaustive()
    }
}

impl Toolbox {
    /// Returns the session's files for what a prompt links to. What rules leave open the user is asked about, as about a
    /// call.
    #[must_use]
    pub fn linked(&self, cx: Calling) -> Linked {
        Linked::new(self, Asks::User(cx))
    }

    /// Returns the session's files for what nobody named. What rules do not allow is not read, and nobody is asked.
    #[must_use]
    pub fn unasked(&self) -> Linked {
        Linked::new(self, Asks::Nobody)
    }
}

/// A look at something that is allowed.
struct Allowed<'a> {
    pass: Pass,
    // The call that the client is told of, if the user was asked.
    work: Option<Work<'a>>,
}

impl Linked {
    fn new(tools: &Toolbox, asks: Asks) -> Self {
        let (agreed, calls, cancelled) = (Mutex::default(), AtomicU64::new(1), AtomicBool::new(false));
        Self { tools: tools.clone(), asks, agreed, calls, cancelled }
    }

    /// Says whether the user has cancelled the turn instead of answering a question.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn runtimes(&self) -> &Runtimes {
        self.tools.runtimes()
    }

    /// Does something that only looks, if it is allowed.
    async fn look<T>(
        &self,
        (verb, by): (&str, Server),
        path: &LexicalPath,
        act: impl Future<Output = Result<T, Failure>>,
        bytes: impl Fn(&T) -> Option<usize>,
    ) -> Result<T, Failure> {
        let operation = self.runtimes().operation(Kind::Read, path).await?;
        let title = format!("{verb} {}", self.runtimes().shown(path.as_str()));
        let wish = Wish { action: Action::Read, title, item: Item::plain(operation) };
        let call = match &self.asks {
            Asks::User(_) => {
                let id = format!("linked {}", self.calls.fetch_add(1, Ordering::Relaxed));
                let input = Input::Value(json!({ "path": path.as_str() }));
                Some(ToolUse { id, name: verb.to_lowercase(), input })
            }
            Asks::Nobody => None,
        };
        let Allowed { pass, work } = self.clear(by, path, wish, call.as_ref()).await?;
        let done = act.await;
        let is_usual = matches!((&self.asks, &done), (Asks::Nobody, Err(Failure::ResourceNotFound { .. })));
        if !is_usual {
            let failed = done.as_ref().err().map(ToString::to_string);
            let bytes = done.as_ref().ok().and_then(bytes);
            let recorded = pass.became(Became { bytes, failed, ..Became::default() }).await;
            recorded.map_err(|reason| Failure::Internal { reason })?;
        }
        if let Some(work) = work {
            let output = Some(json!({ "servedBy": by.word() }));
            let outcome = match &done {
                Ok(_) => Ok(Done { output, ..Done::default() }),
                Err(failure) => Err(Stop::from(failure.to_string())),
            };
            work.finish(outcome).await;
        }
        done
    }

    async fn clear<'a>(
        &'a self,
        by: Server,
        path: &LexicalPath,
        wish: Wish,
        call: Option<&'a ToolUse>,
    ) -> Result<Allowed<'a>, Failure> {
        let tools = &*self.tools.inner;
        let (Asks::User(cx), Some(call)) = (&self.asks, call) else {
            return match tools.permissions.by_rules(by, None, &wish).await.map_err(|no| self.refused(no))? {
                ByRules::Allowed(pass) => Ok(Allowed { pass, work: None }),
                ByRules::Open(mut pass) => {
                    let told = "the user would have to be asked, which is not done for this".to_owned();
                    Err(self.refused(pass.denied(told, None).await))
                }
            };
        };
        let mut pass = match tools.permissions.by_rules(by, Some(cx.turn), &wish).await {
            Ok(ByRules::Allowed(pass)) => return Ok(Allowed { pass, work: None }),
            Ok(ByRules::Open(pass)) => pass,
            Err(no) => return Err(self.refused(no)),
        };
        if let Some(told) = tools.out_of_reach(by, &wish.item.operation).await {
            return Err(self.refused(pass.denied(told, None).await));
        }
        // One question at a time: there may be many links.
        let mut agreed = self.agreed.lock().await;
        let work = Work::new(tools, call, cx);
        let input = json!({ "path": path.as_str() });
        let locations = vec![location(path, None)];
        let title = wish.title.clone();
        let started = work.start(&title, ToolKind::Read, |call| call.raw_input(input).locations(locations));
        started
            .await
            .map_err(|_| Failure::Internal { reason: "there is no telling the client".to_owned() })?;
        if agreed.contains(path.as_str()) {
            // The same file in another way: whole, it was too large.
            pass.by_client();
        } else {
            pass = match tools.permissions.clear(by, call, cx, wish).await {
                Ok(pass) => pass,
                Err(no) => {
                    let failure = self.refused(no.clone());
                    work.finish(Err(no.into())).await;
                    return Err(failure);
                }
            };
            agreed.insert(path.as_str().to_owned());
        }
        work.runs().await;
        Ok(Allowed { pass, work: Some(work) })
    }

    fn refused(&self, no: No) -> Failure {
        match no {
            No::Cancelled => {
                self.cancelled.store(true, Ordering::Relaxed);
                Failure::Cancelled
            }
            No::Denied { told, .. } => {
                let why = told.strip_prefix("permission denied: ").unwrap_or(&told);
                Failure::Denied { why: why.to_owned() }
            }
        }
    }
}

impl Files for Linked {
    async fn read(&self, path: &str, window: Window) -> Result<TextRead, Failure> {
        // What is judged is read, and not where the same name leads by another way.
        let path = self.runtimes().resolve(path)?;
        let read = Files::read(self.runtimes(), path.as_str(), window);
        let by = self.runtimes().choice().read;
        self.look(("Read", by), &path, read, |read| Some(read.text.len())).await
    }

    async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, Failure> {
        let path = self.runtimes().resolve(path)?;
        let list = Files::list(self.runtimes(), path.as_str(), options);
        self.look(("List", Server::Local), &path, list, |_| None).await
    }

    async fn write(&self, _: &str, _: String, _: &Asker) -> Result<TextWritten, Failure> {
        Err(Failure::Denied { why: "what is linked is only read".to_owned() })
    }

    async fn search(&self, _: SearchQuery, _: Option<String>) -> Result<SearchResult, Failure> {
        Err(Failure::Denied { why: "what is linked is only read".to_owned() })
    }
}
