//! The editor's files and terminals as a place for an MCP server: what its tools do, the editor does.
//!
//! Texts are read and written by the editor, commands run in its terminals, and its user is asked before either changes
//! anything. Listing and searching, for which the protocol has no methods, are done on this machine's disk; files that the
//! session has read are searched as the editor has them.
//!
//! What the editor lacks the engine beside the session does, if it is there to serve; and where rules are applied, it is
//! asked before the editor, and lists and searches.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_mcp::server::{Place, Resources};
use bowline_state::failure::Failure;
use bowline_state::lines::{Window, slice};
use bowline_state::paths::Access;
use bowline_state::relay::servers::Serves;
use bowline_state::schema::v1::{
    CreateTerminalRequest, EnvVariable, KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest,
    SessionId, TerminalExitStatus, TerminalId, TerminalOutputRequest, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};
use bowline_state::terminal::Exit;
use bowline_wire::{CallError, ClientHandle};
use bowline_workspace::error::FilesError;
use bowline_workspace::files::{Asker, Files, TextRead, TextWritten};
use bowline_workspace::listing::{self, ListOptions, Listing};
use bowline_workspace::roots::{RootError, RootSpec, Roots};
use bowline_workspace::search::{self, SearchQuery, SearchResult, Unsaved};
use bowline_workspace::terminals::{Asked, Shown, Terminals};
use bowline_workspace::workspace::Served;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::engine::Act;
use crate::permission::{Wish, review};

mod here;
mod known;
mod shelf;
mod writing;

pub(crate) use known::Known;
use shelf::Shelf;

/// How long the editor may take for what needs no person.
const ANSWER: Duration = Duration::from_secs(60);

/// So many files that were read are searched as the editor has them; of later ones the disk counts.
const MAX_KNOWN: usize = 64;

/// The editor, for one session.
#[derive(Clone)]
pub(crate) struct Editor {
    pub(crate) client: ClientHandle,
    // What the ids of its tool calls begin with: that of the server, as a session may have had several.
    pub(crate) name: String,
    known: Known,
    // What the editor does itself.
    serves: Serves,
    roots: Arc<Roots>,
    // Files that were read through the editor. Invariant: at most `MAX_KNOWN`.
    read: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) allowed: Arc<Allowed>,
    // Terminals that no request has waited for yet, and how often the editor had cancelled when they were asked for. Invariant: each
    // goes when it is released, so there are no more than commands of the session.
    begun: Arc<Mutex<HashMap<TerminalId, u64>>>,
    shelf: Arc<Shelf>,
}

/// What the user has allowed for the rest of the session, how many questions there were, and when they are taken back.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    // How often the editor has cancelled what goes on.
    cancellations: watch::Sender<u64>,
    pub(crate) writing: AtomicBool,
    pub(crate) running: AtomicBool,
    pub(crate) asked: AtomicU64,
}

impl Allowed {
    /// Notes that the editor cancels what goes on.
    pub(crate) fn cancel(&self) {
        self.cancellations.send_modify(|count| *count += 1);
    }

    /// Returns how often the editor has cancelled so far.
    pub(crate) fn cancellations(&self) -> u64 {
        *self.cancellations.borrow()
    }

    /// Waits until the editor has cancelled more often than that.
    pub(crate) async fn cancelled_since(&self, count: u64) {
        // It cannot end: the task that waits has the sender.
        self.cancellations.subscribe().wait_for(|now| *now > count).await.map(drop).unwrap_or_default();
    }
}

impl Editor {
    /// Returns the editor for a session, which serves itself what `serves` says. To be called within a runtime.
    ///
    /// # Errors
    /// Fails if its directory cannot be used.
    pub(crate) fn new(
        client: ClientHandle,
        name: String,
        (known, serves): (Known, Serves),
        cwd: &str,
        more: &[String],
    ) -> Result<Self, RootError> {
        let more: Vec<RootSpec> = more.iter().map(RootSpec::writable).collect();
        let roots = Roots::open(&RootSpec::writable(cwd), &more)?;
        Ok(Self {
            client,
            name,
            serves,
            shelf: Arc::new(Shelf::new(known.clone())),
            known,
            roots: Arc::new(roots),
            read: Arc::default(),
            allowed: Arc::default(),
            begun: Arc::default(),
        })
    }

    /// Returns the session.
    pub(crate) async fn session(&self) -> Result<SessionId, Failure> {
        self.known.session().await
    }

    async fn read_text(&self, path: &str, window: Window) -> Result<String, Failure> {
        let request =
            ReadTextFileRequest::new(self.session().await?, path).line(window.line).limit(window.limit);
        let read = within(ANSWER, self.client.read_text_file(request)).await;
        match read {
            Ok(read) => Ok(read.content),
            // Not every editor says which error it is. Whether there is a file can be seen here.
            Err(failure @ (Failure::ResourceNotFound { .. } | Failure::Cancelled)) => Err(failure),
            Err(failure) => {
                let (roots, asked) = (self.roots.clone(), path.to_owned());
                let admitted = spawn_blocking(move || roots.admit(&asked, Access::Read)).await;
                match admitted {
                    Ok(Ok(found)) if !found.exists() => {
                        Err(Failure::ResourceNotFound { uri: Some(path.to_owned()) })
                    }
                    _ => Err(failure),
                }
            }
        }
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<TerminalId, u64>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files_read(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the texts that the editor has of files that were read.
    async fn texts(&self) -> Unsaved {
        let paths: Vec<String> = self.files_read().iter().cloned().collect();
        let mut texts = Unsaved::new();
        for path in paths {
            if let Ok(text) = self.read_text(&path, Window::default()).await {
                let (roots, asked) = (self.roots.clone(), path);
                let admitted = spawn_blocking(move || roots.admit(&asked, Access::Read)).await;
                if let Ok(Ok(admitted)) = admitted {
                    texts.insert(admitted.canonical().to_owned(), Arc::new(text));
                }
            }
        }
        texts
    }

    /// Says whether the engine lists and searches: where it serves files, and where rules say which may be read.
    fn is_looked_at_here(&self) -> bool {
        !self.serves.reading || self.known.options().rules
    }

    async fn blocking<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Roots) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, Failure> {
        let roots = self.roots.clone();
        let done = spawn_blocking(move || act(&roots)).await;
        let ended = |_| Failure::Internal { reason: "a file operation ended early".to_owned() };
        Ok(done.map_err(ended)??)
    }
}

/// Waits for a call so long, and returns what went wrong as what it is.
async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, CallError>>) -> Result<T, Failure> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(failure),
        Err(_) => Err(Failure::Internal { reason: "the editor does not answer".to_owned() }),
    }
}

/// Returns what a call that failed means.
pub(crate) fn failure(error: CallError) -> Failure {
    match error {
        CallError::Refused(error) => Failure::from_error(&error),
        CallError::NotAdvertised(missing) => missing.into(),
        CallError::Closed => Failure::Internal { reason: "the editor is gone".to_owned() },
        other => Failure::Internal { reason: other.to_string() },
    }
}

/// Returns that something was done, also where the answer says so in a way of its own.
fn done<T>(answered: Result<T, CallError>) -> Result<(), CallError> {
    match answered {
        Ok(_) | Err(CallError::Unreadable { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Files for Editor {
    async fn read(&self, path: &str, window: Window) -> Result<TextRead, Failure> {
        let whole = (window == Window::default()).then_some(true);
        if !self.serves.reading {
            let request =
                ReadTextFileRequest::new(self.session().await?, path).line(window.line).limit(window.limit);
            let read = self.here(&request, None).await?;
            return Ok(TextRead { text: Arc::new(read.content), served: Served::Disk, whole });
        }
        self.known.lets(Act::Read { path: path.to_owned() }, None).await?;
        let text = self.read_text(path, window).await?;
        {
            let mut read = self.files_read();
            if read.len() < MAX_KNOWN {
                read.insert(path.to_owned());
            }
        }
        let is_longer = window.limit.is_some_and(|limit| text.lines().count() as u64 > u64::from(limit));
        // One that gives more lines than it was asked for has taken no notice of the window.
        let text = if is_longer { slice(&text, window).map_err(Failure::from)?.to_owned() } else { text };
        Ok(TextRead { text: Arc::new(text), served: Served::Document, whole })
    }

    async fn write(&self, path: &str, content: String, _: &Asker) -> Result<TextWritten, Failure> {
        if self.serves.writing {
            return writing::write(self, path, content).await;
        }
        let request = WriteTextFileRequest::new(self.session().await?, path, content);
        self.here(&request, Some(path)).await?;
        Ok(TextWritten::default())
    }

    async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, Failure> {
        let path = path.to_owned();
        if self.is_looked_at_here() {
            return self.known.engine().await?.lists(path, options).await;
        }
        self.blocking(move |roots| {
            let directory = roots.admit(&path, Access::Read)?;
            Ok(listing::list(roots, &directory, &options)?)
        })
        .await
    }

    async fn search(&self, query: SearchQuery, below: Option<String>) -> Result<SearchResult, Failure> {
        if self.is_looked_at_here() {
            return self.known.engine().await?.searches(query, below).await;
        }
        let texts = self.texts().await;
        self.blocking(move |roots| {
            let under = below.map(|path| roots.admit(&path, Access::Read)).transpose()?;
            Ok(search::search(roots, &query, under.as_ref(), &texts)?)
        })
        .await
    }
}

impl Terminals for Editor {
    async fn create(&self, asked: Asked) -> Result<TerminalId, Failure> {
        let wish = Wish::run(&asked);
        let its = asked.clone();
        let env = asked.env.into_iter().map(|(name, value)| EnvVariable::new(name, value)).collect();
        let request = CreateTerminalRequest::new(self.session().await?, asked.command)
            .args(asked.args)
            .env(env)
            .cwd(asked.cwd.map(Into::into))
            .output_byte_limit(asked.output_limit);
        if !self.serves.running {
            return Ok(self.here(&request, None).await?.terminal_id);
        }
        let cancellations = self.allowed.cancellations();
        let create = async { self.client.create_terminal(request).await.map_err(failure) };
        let created = if self.known.options().rules {
            self.known.lets(Act::Run(its), None).await?;
            create.await?
        } else {
            review(self, wish, create).await?
        };
        if self.allowed.cancellations() > cancellations {
            // That it cannot be released is the editor's to tell; the command is given up in any case.
            self.release(&created.terminal_id).await.unwrap_or_default();
            return Err(Failure::Cancelled);
        }
        self.begun().insert(created.terminal_id.clone(), cancellations);
        Ok(created.terminal_id)
    }

    async fn output(&self, id: &TerminalId) -> Result<Shown, Failure> {
        let request = TerminalOutputRequest::new(self.session().await?, id.clone());
        let shown = match self.serves.running {
            true => within(ANSWER, self.client.terminal_output(request)).await?,
            false => self.here(&request, None).await?,
        };
        let exit = shown.exit_status.as_ref().map(exit);
        Ok(Shown { text: shown.output, truncated: shown.truncated, exit })
    }

    async fn wait(&self, id: &TerminalId) -> Result<Exit, Failure> {
        let begun = self.begun().remove(id).unwrap_or_else(|| self.allowed.cancellations());
        let request = WaitForTerminalExitRequest::new(self.session().await?, id.clone());
        let waiting = async {
            match self.serves.running {
                true => self.client.wait_for_terminal_exit(request).await.map_err(failure),
                false => self.here(&request, None).await,
            }
        };
        tokio::select! {
            biased;
            // Not every agent tells its servers that a call is given up with its turn: gemini does not.
            () = self.allowed.cancelled_since(begun) => Err(Failure::Cancelled),
            waited = waiting => Ok(exit(&waited?.exit_status)),
        }
    }

    async fn kill(&self, id: &TerminalId) -> Result<(), Failure> {
        let request = KillTerminalRequest::new(self.session().await?, id.clone());
        if !self.serves.running {
            return self.here(&request, None).await.map(drop);
        }
        within(ANSWER, async { done(self.client.kill_terminal(request).await) }).await
    }

    async fn release(&self, id: &TerminalId) -> Result<(), Failure> {
        self.begun().remove(id);
        let request = ReleaseTerminalRequest::new(self.session().await?, id.clone());
        if !self.serves.running {
            return self.here(&request, None).await.map(drop);
        }
        within(ANSWER, async { done(self.client.release_terminal(request).await) }).await
    }
}

/// Returns how a command ended. An editor that does not say how means that it did.
fn exit(status: &TerminalExitStatus) -> Exit {
    match (&status.signal, status.exit_code) {
        (Some(signal), _) => Exit::Signal(signal.clone()),
        (None, code) => Exit::Code(code.and_then(|code| i32::try_from(code).ok()).unwrap_or_default()),
    }
}

impl Place for Editor {
    type Files = Self;
    type Terminals = Self;

    fn root(&self) -> &str {
        self.roots.cwd()
    }

    fn files(&self) -> &Self {
        self
    }

    fn terminals(&self) -> &Self {
        self
    }

    fn resources(&self) -> Option<&dyn Resources> {
        Some(&*self.shelf)
    }

    async fn close(&self) {}
}
