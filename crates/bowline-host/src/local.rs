//! A session of somebody who works through this program itself instead of over ACP: an MCP client, for one.
//!
//! What it asks for is judged, recorded and done by the same code as what an ACP agent asks for.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_state::schema::v1::{SessionId, TerminalId};
use bowline_state::terminal::Exit;
use bowline_wire::service::CancelSignal;
use bowline_workspace::approvals::BoxFuture;
use bowline_workspace::files::{Asker, Files, TextRead, TextWritten};
use bowline_workspace::listing::{ListOptions, Listing};
use bowline_workspace::search::{SearchQuery, SearchResult};
use bowline_workspace::terminals::{Asked, LocalTerminals, Shown, Terminals};
use bowline_workspace::workspace as engine;

use crate::error::HostError;
use crate::front_end::Event;
use crate::host::{Host, Offer};
use crate::operations::{Asking, blocking, files, looking, terminals};
use crate::session::{Counted, Held};

mod passing;

pub use passing::{Act, Found, Judged};

/// A session without an agent at the other end of a wire. Clones are the same one; with the last of them it ends.
///
/// It is its [`Files`] and its [`Terminals`], under rules, approvals, journal and audit. An operation that nobody waits
/// for any more is cancelled, which is recorded; one that has begun to write is done to its end.
#[derive(Debug, Clone)]
pub struct LocalSession {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    held: Arc<Held>,
    offer: Offer,
    // How whoever works in it calls itself.
    agent: Mutex<Option<String>>,
    // The turn that is going on, if whoever works in it has such.
    turn: Mutex<Option<Counted>>,
    // What was asked for, and is for another client to answer.
    asked: Mutex<passing::Waiting>,
}

impl Host {
    /// Opens a session for somebody who works through this program itself. Journal, rules and log know it by `name`, or
    /// by that with a number behind it if there was one of that name before.
    ///
    /// # Errors
    /// Fails if the journal or the log cannot be used.
    pub async fn local_session(&self, name: &str, agent: Option<String>) -> Result<LocalSession, HostError> {
        let (shared, id) = (self.shared.clone(), SessionId::new(name));
        let its = id.clone();
        let name = blocking(move || shared.new_name(&its)).await??;
        self.local(id, name, agent).await
    }

    async fn local(
        &self,
        id: SessionId,
        name: String,
        agent: Option<String>,
    ) -> Result<LocalSession, HostError> {
        let files = self.shared.workspace.session(&name);
        let held = Arc::new(Held::new(id, self.shared.clone(), files));
        held.started().await?;
        held.show(Event::SessionOpened { session: &held.id, name: held.name() });
        let (agent, turn, asked) = (Mutex::new(agent), Mutex::default(), Mutex::default());
        Ok(LocalSession { inner: Arc::new(Inner { held, offer: self.offer(), agent, turn, asked }) })
    }
}

impl LocalSession {
    /// Returns the name that journal, rules and log know it by.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.held.name()
    }

    /// Returns the session's view of the files, without rules before it.
    #[must_use]
    pub fn files(&self) -> &engine::Session {
        &self.inner.held.files
    }

    /// Returns the session's terminals, to watch their output.
    #[must_use]
    pub fn terminals(&self) -> &LocalTerminals {
        &self.inner.held.terminals
    }

    /// Returns what it may ask for.
    #[must_use]
    pub fn offer(&self) -> Offer {
        self.inner.offer
    }

    /// Says how whoever works in it calls itself, for questions to a person.
    pub fn is_used_by(&self, agent: String) {
        *self.inner.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent);
    }

    /// Ends it: commands are killed, what waits is cancelled, what it saw is forgotten.
    pub async fn end(&self) {
        self.inner.held.end().await;
    }

    /// Records that an editor, which has approved it itself, is about to write a file, as
    /// [`engine::Session::editor_writes`] does, in the log, too. To be called before the editor is asked to.
    ///
    /// # Errors
    /// Returns why it could not be recorded. Then the editor should not be asked.
    pub async fn editor_writes(
        &self,
        path: &str,
        had: Option<String>,
        written: String,
        turn: Option<u64>,
        call: Option<&str>,
    ) -> Result<engine::EditorWrite, Failure> {
        let (path, origin) = (path.to_owned(), self.files().origin(turn, call));
        self.run(call, |held, asking| files::editor_writes(held, asking, path, had, written, origin)).await
    }

    /// Records that an editor did not write after all.
    ///
    /// # Errors
    /// Returns why it could not be recorded.
    pub async fn editor_did_not_write(
        &self,
        write: engine::EditorWrite,
        turn: Option<u64>,
        call: Option<&str>,
    ) -> Result<(), Failure> {
        let origin = self.files().origin(turn, call);
        self.run(call, |held, asking| files::editor_did_not_write(held, asking, write, origin)).await
    }

    /// Does something as long as somebody waits for it.
    fn run<T, F>(&self, call: Option<&str>, act: impl FnOnce(Arc<Held>, Asking) -> F) -> Finishing<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let cancel = CancelSignal::new();
        let agent = self.inner.agent.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let asking =
            Asking { agent, call: call.map(str::to_owned), cancel: cancel.clone(), missing_file: None };
        Finishing { operation: Some(Box::pin(act(self.inner.held.clone(), asking))), cancel }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let held = self.held.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { held.end().await });
        }
    }
}

/// An operation, for as long as somebody waits for it. If nobody does any more it is cancelled, and goes on by itself to
/// where that is recorded.
struct Finishing<T: 'static> {
    operation: Option<BoxFuture<'static, Result<T, Failure>>>,
    cancel: CancelSignal,
}

impl<T: 'static> Future for Finishing<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(operation) = &mut self.operation else { return Poll::Ready(Err(Failure::Cancelled)) };
        let done = operation.as_mut().poll(cx);
        if done.is_ready() {
            self.operation = None;
        }
        done
    }
}

impl<T: 'static> Drop for Finishing<T> {
    fn drop(&mut self) {
        let Some(operation) = self.operation.take() else { return };
        self.cancel.fire();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { operation.await.map_or_else(drop, drop) });
        }
    }
}

fn offered(offered: bool, what: &str) -> Result<(), Failure> {
    if offered { Ok(()) } else { Err(Failure::Denied { why: format!("{what} is not offered here") }) }
}

impl Files for LocalSession {
    async fn read(&self, path: &str, window: Window) -> Result<TextRead, Failure> {
        offered(self.inner.offer.read, "reading files")?;
        let path = path.to_owned();
        let read = self.run(None, |held, asking| files::read_text(held, asking, path, window)).await?;
        Ok(TextRead { text: read.text, served: read.served, whole: Some(read.whole) })
    }

    async fn write(&self, path: &str, content: String, asker: &Asker) -> Result<TextWritten, Failure> {
        offered(self.inner.offer.write, "writing files")?;
        let (path, content) = (path.to_owned(), Arc::from(content));
        let call = asker.call.as_deref();
        let written = self.run(call, |held, asking| files::write_text(held, asking, path, content)).await?;
        Ok(written.into())
    }

    async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, Failure> {
        offered(self.inner.offer.read, "reading files")?;
        let path = path.to_owned();
        self.run(None, |held, asking| looking::list(held, asking, path, options)).await
    }

    async fn search(&self, query: SearchQuery, below: Option<String>) -> Result<SearchResult, Failure> {
        offered(self.inner.offer.read, "reading files")?;
        // A search changes nothing: if nobody waits for it any more, it ends.
        let stop = query.stop.clone().unwrap_or_default();
        let query = SearchQuery { stop: Some(stop.clone()), ..query };
        let _end = OnDrop(move || stop.store(true, Ordering::Relaxed));
        self.run(None, |held, asking| looking::search(held, asking, query, below)).await
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Terminals for LocalSession {
    async fn create(&self, asked: Asked) -> Result<TerminalId, Failure> {
        offered(self.inner.offer.terminal, "running commands")?;
        self.run(None, |held, asking| async move {
            let cancel = asking.cancel.clone();
            let id = terminals::start(held.clone(), asking, asked).await?;
            if cancel.is_fired() {
                // Nobody will ever ask for it.
                terminals::forget(held, &id).await.ok();
                return Err(Failure::Cancelled);
            }
            Ok(id)
        })
        .await
    }

    async fn output(&self, id: &TerminalId) -> Result<Shown, Failure> {
        Ok(self.inner.held.terminals.output(id).await?)
    }

    async fn wait(&self, id: &TerminalId) -> Result<Exit, Failure> {
        Ok(self.inner.held.terminals.wait(id).await?)
    }

    async fn kill(&self, id: &TerminalId) -> Result<(), Failure> {
        let id = id.clone();
        self.run(None, |held, _| async move { terminals::end(held, &id).await }).await
    }

    async fn release(&self, id: &TerminalId) -> Result<(), Failure> {
        let id = id.clone();
        self.run(None, |held, _| async move { terminals::forget(held, &id).await }).await
    }
}
