//! The client side: serves a workspace to any ACP agent, asks the user, folds the session.
//!
//! A [`Host`] has a workspace, rules, an audit log and a [`FrontEnd`], which is how it reaches a person. It connects to
//! agents ([`Host::spawn`], [`Host::connect`]); on a [`Connection`] there are sessions, and a [`Session`] takes prompts.
//! What an agent asks of its client in between, the host does under the engine:
//!
//! ```text
//!  agent ─► wire ─► Face ─► Approvals (rules, grants, a person) ─► engine: files, journal, terminals
//!                     │                  └─► audit log, before the answer is sent
//!                     └─► accumulator ─► FrontEnd
//! ```

mod connection;
mod error;
mod face;
mod front_end;
mod host;
mod local;
mod operations;
mod process;
mod session;

pub use bowline_state as state;
pub use bowline_state::question::{Answer, Choice, Keep, Question, Reply};
pub use bowline_wire as wire;
pub use bowline_workspace as workspace;
pub use bowline_workspace::approvals::{BoxFuture, Person};
pub use connection::{Connection, SessionOptions};
pub use error::HostError;
pub use front_end::{Event, FrontEnd, Quiet};
pub use host::{Host, Offer, Places, Settings};
pub use local::{Act, Found, Judged, LocalSession};
pub use operations::permission::{NO_ALLOW_OPTION, ONLY_ALLOW_ALWAYS};
pub use session::{Session, TurnEnd};
