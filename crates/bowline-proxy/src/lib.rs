//! A proxy between an editor and an agent that know nothing of it.
//!
//! ```text
//!            ┌──────────────────────── Proxy::run, one task ───────────────────────┐
//!  editor ──►│ Input ─ peek ─► Relay::see ─► On ─────────────────────────► Output   │──► agent
//!         ◄──│ Output ◄──────────── On ◄─ Relay::see ◄─ peek ─ Input               │◄──
//!            │    ▲       a message that matters: Between::look                    │
//!            │    │       (pass, change, hold, answer, take)                       │
//!            └────┼─────────────────────────┬───────────────────────────────────────┘
//!                 └── calls of our own ── own end: bowline-wire's Caller and Service
//! ```
//!
//! Where messages can be seen, held, changed and answered:
//! - **Seen**: implement [`Between`]. [`Between::look`] is given every message that matters
//!   ([`bowline_state::relay::Method`]), with what it says ([`bowline_state::relay::Fact`]) and its whole line, in the
//!   order in which they pass. What does not matter is not parsed; to see more, add a method there.
//! - **Held**: return [`Decision::Later`] with a future. With [`Order::Keep`] that side's later messages wait as well (for
//!   looking at the disk before a tool call is told as done); with [`Order::Overtake`] they go on (for asking rules or a
//!   person about a permission request).
//! - **Changed**: [`Deed::Instead`] with the lines that go on in its place: its own text changed, with others before or
//!   after it, or none.
//! - **Answered**: [`Deed::Answer`]. The other side never hears of the request.
//! - **Taken**: [`Deed::Take`] gives it to the proxy's own end; the [`Service`] that [`Proxy::new`] was given answers.
//! - **Calls and notifications of our own**, to the editor or, with methods that begin with `mcp/`, to the agent: the
//!   [`Caller`] that [`Proxy::new`] returns; a [`bowline_wire::ClientHandle`] over it has the typed methods. A dropped call
//!   is cancelled at the other side; when the editor is gone, calls fail.
//! - **Beside**: [`Beside`] has an [`Engine`] look at the disk, apply rules, record writes and serve what the editor cannot;
//!   its updates go to the editor through [`Proxy::telling`].
//!
//! Several stand one behind the other in a [`Chain`]. What needs the host (rules, journal, this machine's files) is made by
//! whoever composes them: this crate knows no host and no agent.
//!
//! [`Service`]: bowline_wire::service::Service
//! [`Caller`]: bowline_wire::Caller

mod beside;
mod between;
mod editor;
mod engine;
mod inject;
mod lane;
mod once;
mod over_acp;
mod permission;
mod proxy;

pub use beside::{Beside, Line, Options, Sessions, Telling};
pub use between::{Between, BoxFuture, Chain, Decision, Deed, Order, Passing};
pub use engine::{Act, Again, EditorWrites, Engine, EngineSession, Judged, Recorded};
pub use inject::{Inject, InjectSettings, Link};
pub use lane::{Reader, Writer};
pub use over_acp::OverAcp;
pub use proxy::{Ended, Ends, Proxy, Settings};
