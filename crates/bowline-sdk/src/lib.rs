//! The one crate that an ACP agent or client needs.
//!
//! - [`schema`]: the protocol's types. [`Agent`] and [`Client`]: its two ends as traits. [`run_agent`] serves an agent
//!   on stdin and stdout; [`spawn_agent`] starts one as a child process.
//! - [`tracker`], [`builders`], [`permission`]: the state of tool calls and permission requests, for agents.
//! - [`accumulator`]: the state of a session from its updates, for clients.
//! - [`capabilities`], [`elicitation`], [`file_extension`], [`rpc_error`]: for both.
//!
//! An editor that also wants files, terminals, approvals and undo depends on `bowline-host` instead.
//!
//! ```no_run
//! use bowline_sdk::schema::v1::{
//!     Error, InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest,
//!     PromptResponse, StopReason,
//! };
//! use bowline_sdk::{Agent, AgentContext, run_agent};
//!
//! struct Silent;
//!
//! impl Agent for Silent {
//!     async fn initialize(&self, request: InitializeRequest, _: AgentContext) -> Result<InitializeResponse, Error> {
//!         Ok(InitializeResponse::new(request.protocol_version))
//!     }
//!
//!     async fn new_session(&self, _: NewSessionRequest, cx: AgentContext) -> Result<NewSessionResponse, Error> {
//!         Ok(NewSessionResponse::new(format!("session-{}", cx.request_id())))
//!     }
//!
//!     async fn prompt(&self, _: PromptRequest, _: AgentContext) -> Result<PromptResponse, Error> {
//!         Ok(PromptResponse::new(StopReason::EndTurn))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! run_agent(Silent).await
//! # }
//! ```

pub use bowline_protocol::{
    accumulator, builders, capabilities, elicitation, file_extension, permission, rpc_error, terminal,
    tracker,
};
pub use bowline_wire::*;
