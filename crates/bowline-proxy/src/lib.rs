//! A proxy between an editor and an agent that know nothing of it.
//!
//! ```text
//!            ┌────────────────────────── Proxy::run, one task ─────────────────────────┐
//!  editor ──►│ LineInput ─ peek ─► Relay::route ─► Forward ──────────────► OutputQueue │──► agent
//!         ◄──│ OutputQueue ◄──────────── Forward ◄─ Relay::route ◄─ peek ─ LineInput   │◄──
//!            │    ▲     a message of interest: Interceptor::intercept                  │
//!            │    │     (pass, replace, hold, answer, handle locally)                  │
//!            └────┼─────────────────────────┬──────────────────────────────────────────┘
//!                 └── the proxy's own calls ── own end: bowline-wire's Caller and Service
//! ```
//!
//! Where messages can be inspected, held, changed and answered:
//! - **Inspected**: implement [`Interceptor`]. [`Interceptor::intercept`] gets every message of interest
//!   ([`bowline_protocol::relay::Method`]) with its meaning ([`bowline_protocol::relay::RelayEvent`]) and its whole line, in
//!   the order in which messages pass. Other messages are not parsed; to see more, add a method there.
//! - **Held**: return [`InterceptDecision::Later`] with a future. With [`MessageOrder::Keep`] later messages of that
//!   side wait as well (a scan before the end of a turn is shown); with [`MessageOrder::Overtake`] they go on (a
//!   permission request).
//! - **Changed**: [`Disposition::Replace`] with the lines that take its place, or none.
//! - **Answered**: [`Disposition::Answer`]. The other side never sees the request. [`Disposition::AnswerAndSignal`] also
//!   says when the answer is queued.
//! - **Handled locally**: [`Disposition::HandleLocally`] gives it to the [`Service`] that [`Proxy::new`] was given.
//! - **Own calls and notifications** go to the editor, or to the agent if the method begins with `mcp/`, through the
//!   [`Caller`] that [`Proxy::new`] returns. A dropped call is cancelled at the other side; when the editor is gone,
//!   calls fail. On the wire their ids begin with `bowline-proxy-`; a peer's id with that prefix is replaced and
//!   restored.
//!
//! The parts that need the host (rules, journal, this machine's files) are provided by the program that composes them:
//! this crate depends on neither host nor agent.
//!
//! - [`EngineInterceptor`] has an [`Engine`] scan the disk, apply rules, record writes and serve what the editor lacks;
//!   its updates go to the editor through [`Proxy::with_editor_updates`], before any held message that is released
//!   after them, and to the agent through [`Proxy::with_agent_updates`], before any answer that is given after them.
//! - [`ServerInjector`] adds one MCP server to each session. It edits one entry of `mcpServers` and leaves every other
//!   byte. The server has a secret, socket or id that only this session knows. Tools wait until the session is known;
//!   the connection does not. A session that is loaded again has only the new server, once it is open.
//! - `EditorBackend` is the editor's workspace for that server: texts and commands are the editor's, and so are several
//!   changes at once if it has the file extension. A write that began is completed, whether or not its caller still
//!   waits.
//! - A held request is dropped when its sender cancels it (-32800), or after the agent has gone; dropping it withdraws
//!   its requests to the editor. No question is asked on behalf of an agent that has gone.
//!
//! [`Service`]: bowline_wire::service::Service
//! [`Caller`]: bowline_wire::Caller

mod editor_backend;
mod engine;
mod engine_interceptor;
mod inject;
mod interceptor;
mod line_io;
mod mcp_over_acp;
mod permission;
mod permission_dedup;
mod proxy;

pub use engine::{
    EditorWriteRequest, Engine, EngineSession, FollowedTerminal, JournalledWrite, PermissionRuling,
    RedoChange, RelayedOperation,
};
pub use engine_interceptor::{
    AgentUpdateSender, CallerSlot, EditorUpdateSender, EngineInterceptor, EngineInterceptorOptions,
    EngineSessions,
};
pub use inject::{InjectorHandle, InjectorOptions, ServerInjector};
pub use interceptor::{
    BoxFuture, Disposition, InterceptDecision, InterceptedMessage, Interceptor, MessageOrder,
};
pub use line_io::{BoxReader, BoxWriter};
pub use mcp_over_acp::McpOverAcpService;
pub use proxy::{PeerStreams, Proxy, ProxyEndReason, ProxyOptions};
