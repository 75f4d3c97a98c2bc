//! The client side of ACP: serves a workspace to any agent, asks the user, folds session updates.
//!
//! A [`Host`] has a workspace, rules, an audit log and a [`FrontEnd`], which is how it reaches the user. It connects
//! to agents ([`Host::spawn`], [`Host::connect`]); a [`Connection`] opens sessions, and a [`HostSession`] takes
//! prompts. The host serves an agent's client requests in between with the engine:
//!
//! ```text
//!  agent ─► wire ─► ClientService ─► Approvals (rules, grants, the user) ─► engine: files, journal, terminals
//!                     │                  └─► audit log, before the answer is sent
//!                     └─► accumulator ─► FrontEnd
//! ```
//!
//! Every operation takes the same steps (`operations`): describe it as an `Operation`, authorize it, record it,
//! perform it, record the outcome, answer. Rules evaluate the `Operation`, `danger` warns about it, `question` shows
//! it, `audit` records it. Reading a terminal's output is not recorded, because agents poll it.
//!
//! Changes on disk are attributed by turn. Before a turn begins, a scan finds changes that belong to no one (unless
//! other turns are running); the scan at its end attributes changes to the turn, and the scan after a command to the
//! command. If the agent can write only through the host (`HostOptions::writes_through_host_only`), all changes found
//! while no command runs are the user's. For other agents this is unknown.
//!
//! A [`LocalSession`] works in this process instead of over ACP: for an MCP client, or, relayed, for a proxy whose
//! editor carries out the operations that the host authorizes and records.

mod client_service;
mod connection;
mod error;
mod front_end;
mod host;
mod local_session;
mod operations;
mod process;
mod session;

pub use bowline_access::approvals::{Approver, BoxFuture};
pub use bowline_history as history;
pub use bowline_policy as policy;
pub use bowline_policy::question::{AnswerChoice, AnswerLifetime, Question, QuestionAnswer, QuestionReply};
pub use bowline_protocol as protocol;
pub use bowline_text as text;
pub use bowline_wire as wire;
pub use bowline_workspace as workspace;
pub use connection::{Connection, SessionOptions};
pub use error::HostError;
pub use front_end::{FrontEnd, HostEvent, QuietFrontEnd};
pub use host::{Host, HostCapabilities, HostOptions, HostPaths};
pub use local_session::{AttributedChange, LocalSession, PermissionRuling, RelayedOperation};
pub use operations::file_extension::watch::FilesChangedSender;
pub use operations::permission::{NO_ALLOW_OPTION, ONLY_ALLOW_ALWAYS};
pub use session::{HostSession, PromptOutcome};
