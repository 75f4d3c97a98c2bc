//! Tools of MCP servers, called like all others: reported, and allowed first.

use std::sync::Arc;
use std::time::Duration;

use bowline_mcp::client::{McpError, WorkspaceServer};
use bowline_state::audit::Action;
use bowline_state::conversation::{Input, ToolSpec};
use bowline_state::mcp_tools::CallOutput;
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::question::Item;
use bowline_state::schema::v1::{ToolCallUpdateFields, ToolKind};
use bowline_workspace::approvals::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::before;
use super::work::{Done, Stop, Work, excerpt};
use crate::permission::{Became, Wish};

/// How far a call is, is shown this often at most: a server may say it as often as it likes.
const EVERY: Duration = Duration::from_millis(200);

/// What the names of such tools begin with.
pub const PREFIX: &str = "mcp__";

/// Whoever has the MCP servers of a session.
pub trait McpSource: Send + Sync + 'static {
    /// Returns the tools that there are now, by the names that a model calls them; each begins with [`PREFIX`].
    fn specs(&self) -> Vec<ToolSpec>;

    /// Calls a tool, and tells how far it is, in lines. Dropping the future cancels the call.
    fn call<'a>(
        &'a self,
        name: &'a str,
        input: &'a Value,
        progress: &'a (dyn Fn(String) + Send + Sync),
    ) -> BoxFuture<'a, McpAnswer>;

    /// Returns the server that is a workspace, if there is one now.
    fn workspace(&self) -> Option<WorkspaceServer> {
        None
    }

    /// Calls a tool of such a server by its own name for it. Dropping the future cancels the call.
    fn call_workspace<'a>(
        &'a self,
        server: &'a WorkspaceServer,
        tool: &'a str,
        _: Map<String, Value>,
        _: &'a (dyn Fn(String) + Send + Sync),
    ) -> BoxFuture<'a, Result<CallOutput, McpError>> {
        let why = format!("it has no tool {tool}");
        let server = server.name.clone();
        Box::pin(std::future::ready(Err(McpError::NotReady { server, why })))
    }
}

/// What a tool of an MCP server answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpAnswer {
    /// What the model reads.
    pub text: String,
    /// Pictures: media type and base64.
    pub images: Vec<(String, Arc<str>)>,
    /// Whether the call failed.
    pub failed: bool,
}

/// Runs a tool of an MCP server. An approval holds for the tool as its server describes it at that moment.
pub(crate) async fn call(work: &Work<'_>, source: &dyn McpSource, spec: &ToolSpec) -> Result<Done, Stop> {
    // Whether the fields are right is for the server to say, but they have to be fields.
    work.fields()?;
    let Input::Value(input) = &work.call.input else { return Err("the input is not JSON".to_owned().into()) };
    let name = &work.call.name;
    let title = format!("Call {}", name.strip_prefix(PREFIX).unwrap_or(name).replace("__", ": "));
    let shown = before::arguments(input);
    work.start(&title, ToolKind::Other, |call| call.raw_input(input.clone()).content(shown.clone())).await?;
    let operation = Operation { kind: Kind::Execute, target: Target::Described(name.clone()) };
    let wish = Wish { action: Action::from("mcp/call"), title, item: Item::plain(operation) };
    let definition = spec.definition_hash();
    let pass = work.tools.permissions.clear_tool(work.call, work.cx, wish, definition).await;
    let mut pass = pass.map_err(|no| Stop::from(no).showing(shown.clone()))?;
    let is_same = |other: &ToolSpec| other.name == *name && other.definition_hash() == definition;
    if !source.specs().iter().any(is_same) {
        let told =
            "the tool's server changed or removed it while permission was asked for; look at the tools again";
        return Err(Stop::from(pass.denied(told.to_owned(), None).await).showing(shown));
    }
    pass.begins().await?;
    work.runs().await;
    let McpAnswer { text, images, failed } = answered(work, source, input).await;
    let why = failed.then(|| text.clone());
    if let Err(why) = pass.became(Became { bytes: Some(text.len()), failed: why, ..Became::default() }).await
    {
        work.runtimes().settings().log.line(why);
    }
    let output = json!({ "text": text, "images": images.len() });
    Ok(Done { content: Some(excerpt(&text)), text, failed, images, output: Some(output), ..Done::default() })
}

/// Calls a tool, and shows how far it is meanwhile.
async fn answered(work: &Work<'_>, source: &dyn McpSource, input: &Value) -> McpAnswer {
    let (latest, told) = watch::channel(String::new());
    let progress = move |line: String| drop(latest.send_replace(line));
    shown_meanwhile(work, told, source.call(&work.call.name, input, &progress)).await
}

/// Waits for an answer, and shows how far it is meanwhile.
pub(crate) async fn shown_meanwhile<T>(
    work: &Work<'_>,
    mut told: watch::Receiver<String>,
    mut answer: BoxFuture<'_, T>,
) -> T {
    loop {
        let shown = async {
            told.changed().await.ok();
            let line = told.borrow_and_update().clone();
            work.show(ToolCallUpdateFields::new().content(excerpt(&line))).await;
            sleep(EVERY).await;
        };
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = shown => {}
        }
    }
}
