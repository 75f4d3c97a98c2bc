//! Who serves a session's files and commands: the client, a workspace server of the client's, or this machine.
//!
//! The choice is made once for a session, method by method, from what the client advertised. Where the client serves
//! something there is no second way to it: what it refuses is not done behind its back. What no client can serve,
//! looking around in directories, is done here, with the client's text of the files that the session has read from it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bowline_state::capabilities::{ClientGate, ClientMethod};
use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::paths::{self, Access, LexicalPath, PathFault, Refusal, Root, RootMode};
use bowline_state::schema::v1::SessionId;
use bowline_wire::ClientHandle;
use bowline_workspace::files::{Asker, Files, LocalFiles, TextWritten};
use bowline_workspace::roots::{Denied, RootSpec, Roots};
use bowline_workspace::terminals::LocalTerminals;
use bowline_workspace::workspace::{Served, Workspace};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

pub(crate) mod beside;
mod client;
mod commands;
mod fault;
mod files;
mod kept;
mod looking;
mod looks;
mod workspace;

pub use beside::Truth;
pub use client::{ClientFiles, ClientTerminals, Ending, Patience};
pub use commands::{Commands, Output};
pub use fault::{Fault, Missing};
pub use looking::Overlaid;
pub use workspace::Adopted;

use crate::settings::{Places, Settings};
use kept::Kept;
use looks::Looks;

/// Who serves something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    /// The client, on the user's machine.
    Client,
    /// A workspace server of the client's, over MCP.
    Workspace,
    /// This machine.
    Local,
}

impl Server {
    /// Returns what a model and a user call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "the editor",
            Self::Workspace => "the client's workspace server",
            Self::Local => "the agent's own machine",
        }
    }

    /// Returns how something was done by it.
    #[must_use]
    pub fn through(self) -> &'static str {
        match self {
            Self::Client => "through the editor",
            Self::Workspace => "through the client's workspace server",
            Self::Local => "on the agent's own machine",
        }
    }

    /// Returns the word for it in raw output and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Workspace => "workspace",
            Self::Local => "local",
        }
    }
}

/// Who serves what in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Reading files.
    pub read: Server,
    /// Writing files.
    pub write: Server,
    /// Running commands.
    pub terminal: Server,
}

impl Choice {
    /// Returns the choice for a client.
    #[must_use]
    pub fn of(client: &ClientHandle) -> Self {
        Self::by_gate(&client.gate())
    }

    /// Returns the choice for a client that serves what this gate lets pass.
    #[must_use]
    pub fn by_gate(client: &ClientGate) -> Self {
        let by = |method| if client.check(method).is_ok() { Server::Client } else { Server::Local };
        Self {
            read: by(ClientMethod::ReadTextFile),
            write: by(ClientMethod::WriteTextFile),
            terminal: by(ClientMethod::CreateTerminal),
        }
    }

    /// Says who serves what, and why: a line for each. Without `shell` nobody runs commands.
    #[must_use]
    pub fn describe(self, shell: bool) -> Vec<String> {
        let line = |what: &str, by: Server, capability: &str| match by {
            Server::Client => format!("{what}: the editor (it advertises {capability})"),
            Server::Workspace => format!(
                "{what}: the client's workspace server, over MCP (the editor does not advertise {capability})"
            ),
            Server::Local => {
                format!("{what}: the agent's own machine (the editor does not advertise {capability})")
            }
        };
        let looking = match self.read {
            Server::Workspace => "the client's workspace server, over MCP (it reads the files)",
            _ => "the agent's own machine (the protocol has no such method)",
        };
        let commands = if shell {
            line("commands", self.terminal, "terminal")
        } else {
            "commands: nobody (the agent was started without --shell, as --no-terminal has it)".to_owned()
        };
        vec![
            line("reading files", self.read, "fs.readTextFile"),
            line("writing files", self.write, "fs.writeTextFile"),
            commands,
            format!("listing and searching: {looking}"),
        ]
    }
}

/// What serves a session. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Runtimes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: ClientHandle,
    session: SessionId,
    cwd: LexicalPath,
    more: Vec<LexicalPath>,
    // By what the client advertised.
    choice: Choice,
    workspace: OnceLock<Adopted>,
    settings: Arc<Settings>,
    roots: OnceCell<Roots>,
    engine: OnceCell<Engine>,
    kept: Mutex<Kept>,
    looks: Mutex<Looks>,
}

/// Files and terminals of this machine.
#[derive(Debug)]
pub struct Engine {
    /// The workspace, with its journal: changes, undo.
    pub workspace: Workspace,
    /// The session's files.
    pub files: LocalFiles,
    /// The session's terminals.
    pub terminals: LocalTerminals,
}

/// A text, and who served it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The lines that were asked for.
    pub text: Arc<String>,
    /// Whether it is all there is, if that is known.
    pub whole: Option<bool>,
    /// Who served it.
    pub by: Server,
    /// Whether it is the file's text, as far as a look at this machine's disk can tell.
    pub truth: Truth,
}

impl Runtimes {
    /// Returns what serves a session in these directories. Nothing is opened before it is needed.
    ///
    /// # Errors
    /// Returns what is wrong with the text of a directory.
    pub fn new(
        client: ClientHandle,
        session: SessionId,
        cwd: &str,
        more: &[String],
        settings: Arc<Settings>,
    ) -> Result<Self, PathFault> {
        let cwd = LexicalPath::parse(cwd)?;
        let more = more.iter().map(LexicalPath::parse).collect::<Result<_, _>>()?;
        let choice = Choice::of(&client);
        let inner = Inner {
            client,
            session,
            cwd,
            more,
            choice,
            workspace: OnceLock::new(),
            settings,
            roots: OnceCell::new(),
            engine: OnceCell::new(),
            kept: Mutex::default(),
            looks: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns who serves what.
    #[must_use]
    pub fn choice(&self) -> Choice {
        let (choice, shell) = (self.inner.choice, self.inner.settings.shell);
        self.workspace().map_or(choice, |adopted| choice.with_workspace(adopted.server().serves, shell))
    }

    /// Returns the session's directory.
    #[must_use]
    pub fn cwd(&self) -> &str {
        self.inner.cwd.as_str()
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.inner.session
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &ClientHandle {
        &self.inner.client
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Arc<Settings> {
        &self.inner.settings
    }

    /// Says who serves what, and why: a line for each.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let mut lines = self.choice().describe(self.inner.settings.shell);
        if let Some(adopted) = self.workspace() {
            let server = adopted.server();
            lines.push(format!(
                "the client's workspace server: the MCP server {:?} (its tools are those of one)",
                server.name
            ));
        }
        lines
    }

    /// Returns the absolute path that a model means: relative ones are below the session's directory.
    ///
    /// # Errors
    /// Returns what is wrong with the text.
    pub fn resolve(&self, path: &str) -> Result<LexicalPath, PathFault> {
        match LexicalPath::parse(path) {
            Err(PathFault::Relative(path)) => LexicalPath::parse(format!("{}/{path}", self.cwd())),
            parsed => parsed,
        }
    }

    /// Returns a path as a person in the session's directory would name it.
    #[must_use]
    pub fn shown<'p>(&self, path: &'p str) -> &'p str {
        let below = path.strip_prefix(self.cwd()).and_then(|rest| rest.strip_prefix('/'));
        below.filter(|rest| !rest.is_empty()).unwrap_or(path)
    }

    /// Reads a file, or some lines of it, by whom the caller chooses.
    ///
    /// # Errors
    /// Returns why there is no text.
    pub async fn read(&self, by: Server, path: &str, window: Window) -> Result<Text, Fault> {
        let asked_whole = window == Window::default();
        let (text, whole, truth) = match by {
            Server::Client => {
                let read = self.client_files().read(path, window).await;
                match &read {
                    Ok(text) if asked_whole => self.kept().keep(path, text.clone()),
                    Err(fault) if fault.is_missing() => self.kept().forget(path),
                    _ => {}
                }
                let text = read?;
                let truth = if asked_whole { self.beside(path, &text).await } else { Truth::Served };
                (text, asked_whole.then_some(true), truth)
            }
            Server::Workspace => {
                let (text, whole) = self.read_there(path, window).await?;
                (text, Some(whole), Truth::Served)
            }
            Server::Local => {
                let read = self.engine().await?.files.read(path, window).await?;
                if read.served == Served::DocumentBesideChangedFile {
                    self.inner.settings.log.line(format!("{path} was changed on disk beside its document"));
                }
                (read.text, read.whole, Truth::Served)
            }
        };
        Ok(Text { text, whole, by, truth })
    }

    /// Writes a file, by whom the caller chooses.
    ///
    /// # Errors
    /// Returns why it was not written, or that nobody knows.
    pub async fn write(
        &self,
        by: Server,
        path: &str,
        content: String,
        asker: &Asker,
    ) -> Result<TextWritten, Fault> {
        match by {
            Server::Client => {
                self.note_written(path);
                self.client_files().write(path, content).await?;
                Ok(TextWritten::default())
            }
            Server::Workspace => Err(by_its_tools()),
            Server::Local => Ok(self.engine().await?.files.write(path, content, asker).await?),
        }
    }

    /// Returns the terminals of whom the caller chooses.
    ///
    /// # Errors
    /// Returns why there are none.
    pub async fn commands(&self, by: Server) -> Result<Commands, Fault> {
        let Inner { client, session, settings, .. } = &*self.inner;
        Ok(match by {
            Server::Client => Commands::Client(ClientTerminals::new(
                client.clone(),
                session.clone(),
                Patience::of(settings, client),
            )),
            Server::Workspace => return Err(by_its_tools()),
            Server::Local => Commands::Local(self.engine().await?.terminals.clone()),
        })
    }

    /// Returns the files of the client, whether or not it serves them: it says so itself.
    #[must_use]
    pub fn client_files(&self) -> ClientFiles {
        let Inner { client, session, settings, .. } = &*self.inner;
        ClientFiles::new(client.clone(), session.clone(), settings)
    }

    /// Returns this machine's engine, opened at the first use.
    ///
    /// # Errors
    /// Returns why it cannot be used. The next use tries again.
    pub async fn engine(&self) -> Result<&Engine, Fault> {
        let roots = self.roots().await?.clone();
        let open = || async {
            let (settings, name) = (self.inner.settings.clone(), self.inner.session.0.to_string());
            let opened = spawn_blocking(move || {
                let journal = Workspace::journal_directory(&settings.places.state, &roots);
                let opened = Workspace::open(roots, &journal, settings.workspace.clone())
                    .map_err(|error| Fault::Unusable(error.to_string()))?;
                let told = opened.notices.iter().map(ToString::to_string);
                for line in told.chain(opened.recovered.iter().map(ToString::to_string)) {
                    settings.log.line(line);
                }
                let session = opened.workspace.session(&name);
                let terminals = LocalTerminals::new(session.clone(), settings.terminals.clone());
                Ok(Engine { workspace: opened.workspace, files: LocalFiles::new(session), terminals })
            });
            opened.await.map_err(|ended| Fault::Unusable(ended.to_string()))?
        };
        self.inner.engine.get_or_try_init(open).await
    }

    /// Returns the session's directories on this machine, opened at the first use.
    ///
    /// # Errors
    /// Returns why they cannot be: they may be on the user's machine alone.
    pub async fn roots(&self) -> Result<&Roots, Fault> {
        let open = || async {
            let cwd = RootSpec::writable(self.inner.cwd.as_str());
            let more: Vec<RootSpec> =
                self.inner.more.iter().map(|path| RootSpec::writable(path.as_str())).collect();
            let places = self.inner.settings.places.clone();
            let opened =
                spawn_blocking(move || Roots::open(&cwd, &more).map(|roots| guarded(roots, &places)));
            let opened = opened.await.map_err(|ended| Fault::Unusable(ended.to_string()))?;
            opened.map_err(|error| Fault::Unusable(error.to_string()))
        };
        self.inner.roots.get_or_try_init(open).await
    }

    /// Returns the names of the session's directories: their own where they are on this machine, else as they were given.
    pub async fn root_names(&self) -> Vec<String> {
        match self.roots().await {
            Ok(roots) => roots.iter().map(|(path, _)| path.to_owned()).collect(),
            Err(_) => {
                let given = std::iter::once(&self.inner.cwd).chain(&self.inner.more);
                given.map(|path| path.as_str().to_owned()).collect()
            }
        }
    }

    /// Returns what is to be done to a file, as rules judge it: whoever serves it, by where its name leads here, and where
    /// that cannot be told, by its text.
    ///
    /// # Errors
    /// Returns why nobody may do it.
    pub async fn operation(&self, kind: Kind, path: &LexicalPath) -> Result<Operation, Failure> {
        let access = if kind == Kind::Read { Access::Read } else { Access::Write };
        let elsewhere = || Operation { kind, target: Target::Elsewhere { asked: path.as_str().to_owned() } };
        if let Ok(roots) = self.roots().await {
            let (roots, asked) = (roots.clone(), path.as_str().to_owned());
            let looked =
                spawn_blocking(move || roots.admit(&asked, access).map(|found| found.operation(kind)));
            match looked.await.map_err(|ended| Failure::Internal { reason: ended.to_string() })? {
                Ok(operation) => return Ok(operation),
                Err(Denied::Refused(refusal @ Refusal::ReadOnly(_))) => return Err(refusal.into()),
                Err(own @ Denied::Own(_)) => return Err(Failure::Denied { why: own.to_string() }),
                Err(moved @ Denied::RootMoved(_)) => {
                    return Err(Failure::Internal { reason: moved.to_string() });
                }
                Err(Denied::Refused(_) | Denied::SystemFiles(_)) => return Ok(elsewhere()),
                // There may be something at the client that is not here.
                Err(_) => {}
            }
        }
        let root = |path: &LexicalPath| Root { path: path.clone(), mode: RootMode::Writable };
        let mut roots = paths::Roots::new(root(&self.inner.cwd));
        for path in &self.inner.more {
            roots.add(root(path)).map_err(|many| Failure::InvalidParams { reason: many.to_string() })?;
        }
        Ok(roots.admit(path, access).map_or_else(
            |_| elsewhere(),
            |admitted| Operation {
                kind,
                target: Target::File {
                    asked: path.as_str().to_owned(),
                    resolved: path.as_str().to_owned(),
                    protection: admitted.protection(),
                },
            },
        ))
    }

    /// Ends what this machine does for the session. The journal keeps what was done.
    pub async fn end(&self) {
        if let Some(engine) = self.inner.engine.get() {
            engine.terminals.release_all().await;
            let session = engine.files.session().clone();
            // What it saw is forgotten; if the thread cannot run, it is forgotten with the process.
            spawn_blocking(move || session.end()).await.ok();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A workspace server does more than this when its own tools are called, so nothing is done to it in another way.
fn by_its_tools() -> Fault {
    Fault::Unusable("the client's workspace server writes and runs by its own tools".to_owned())
}

/// Keeps what is Bowline's own out of reach.
fn guarded(roots: Roots, places: &Places) -> Roots {
    let Places { state, policy, anchors, keys } = places;
    let cwd = PathBuf::from(roots.cwd());
    // The directory of a file, unless the project lies in it: then the file alone.
    let around = |file: &Path| match file.parent() {
        Some(directory) if !cwd.starts_with(directory) => directory.to_owned(),
        _ => file.to_owned(),
    };
    let own = [state.clone(), anchors.clone(), around(policy), around(keys)];
    roots.keeping_out(own)
}
