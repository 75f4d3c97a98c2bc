//! Tests of a workspace as an MCP server, in one process with rmcp's client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline_history::undo::ChangeSelection;
use bowline_mcp::server::{
    CHANGES_URI, DIAGNOSTICS_URI, McpServerOptions, McpWorkspaceServer, OfferedTools, ResourceProvider,
    WorkspaceBackend, WorkspaceResources, file_uri, serve,
};
use bowline_protocol::diagnostics::{Diagnostic, DiagnosticSeverity, TextRange};
use bowline_workspace::files::LocalFiles;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::{self, LocalTerminals, SupervisorProgram};
use bowline_workspace::workspace::{self, Workspace};
use expect_test::expect;
use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, ReadResourceRequestParams, ResourceUpdatedNotificationParam,
    SubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RoleClient, RunningService, serve_client};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{broadcast, mpsc};
use tokio::time::timeout;

/// A backend on this machine, without rules.
struct LocalTestBackend {
    root: String,
    files: LocalFiles,
    terminals: LocalTerminals,
    resources: WorkspaceResources<LocalFiles>,
}

impl WorkspaceBackend for LocalTestBackend {
    type Files = LocalFiles;
    type Terminals = LocalTerminals;

    fn root(&self) -> &str {
        &self.root
    }

    fn files(&self) -> &LocalFiles {
        &self.files
    }

    fn terminals(&self) -> &LocalTerminals {
        &self.terminals
    }

    fn resources(&self) -> Option<&dyn ResourceProvider> {
        Some(&self.resources)
    }

    async fn close(&self) {
        self.terminals.release_all().await;
    }
}

/// Receives a client's resource notifications.
struct ResourceListener(mpsc::UnboundedSender<String>);

impl ClientHandler for ResourceListener {
    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.send(params.uri).unwrap();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.send("list".to_owned()).unwrap();
    }
}

/// A client and its project.
struct McpServerHarness {
    client: RunningService<RoleClient, ResourceListener>,
    events: mpsc::UnboundedReceiver<String>,
    workspace: Workspace,
    root: PathBuf,
    _scratch: TempDir,
}

impl McpServerHarness {
    async fn new(offered_tools: OfferedTools) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("project");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        let (root_path, state) = (root.to_str().unwrap().to_owned(), scratch.path().join("state"));
        let roots = Roots::open(&RootSpec::writable(root_path.clone()), &[]).unwrap();
        let workspace =
            Workspace::open(roots, &state, workspace::WorkspaceOptions::default()).unwrap().workspace;
        let shared = workspace.clone();
        let open =
            move |_| -> bowline_access::approvals::BoxFuture<'static, Result<LocalTestBackend, String>> {
                let session = shared.session("s1");
                let supervisor = SupervisorProgram::new(env!("CARGO_BIN_EXE_mcp-peer"), ["supervise"]);
                let settings = terminals::TerminalOptions::new(supervisor);
                let terminals = LocalTerminals::new(session.clone(), settings);
                let files = LocalFiles::new(session);
                let resources =
                    WorkspaceResources::new(shared.clone(), "s1", files.clone(), broadcast::Sender::new(16));
                let backend = LocalTestBackend { root: root_path.clone(), files, terminals, resources };
                Box::pin(std::future::ready(Ok(backend)))
            };
        let settings = McpServerOptions {
            name: "bowline".to_owned(),
            version: "1".to_owned(),
            offered_tools,
            advise_denial: None,
        };
        let server = McpWorkspaceServer::new(settings, Arc::new(open));
        let (client_stream, server_stream) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(server_stream);
        tokio::spawn(serve(server, reader, writer, std::future::pending()));
        let (event_sender, events) = mpsc::unbounded_channel();
        let client = serve_client(ResourceListener(event_sender), client_stream).await.unwrap();
        Self { client, events, workspace, root, _scratch: scratch }
    }

    /// Waits for the next notification to the client.
    async fn next_event(&mut self) -> String {
        let event = timeout(Duration::from_secs(60), self.events.recv()).await.expect("nothing is heard");
        event.unwrap().replace(self.root.to_str().unwrap(), "$ROOT")
    }

    async fn read_resource(&self, uri: &str) -> String {
        let read = self.client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
        let read = serde_json::to_value(read).unwrap();
        read["contents"][0]["text"].as_str().unwrap().replace(self.root.to_str().unwrap(), "$ROOT")
    }

    async fn call_tool(&self, name: &'static str, arguments: Value) -> String {
        let mut params = CallToolRequestParams::new(name);
        params.arguments = arguments.as_object().cloned();
        match self.client.call_tool(params).await {
            Ok(result) => {
                let result = serde_json::to_value(result).unwrap();
                let failed = if result["isError"] == true { "! " } else { "" };
                format!("{failed}{}\n", result["content"][0]["text"].as_str().unwrap().trim_end())
            }
            Err(error) => format!("!! {error}\n"),
        }
    }
}

#[tokio::test]
async fn a_model_works_on_what_it_has_seen() {
    let harness = McpServerHarness::new(OfferedTools::Files).await;
    let file = harness.root.join("a.txt");
    let mut text = harness.call_tool("write_text_file", json!({ "path": "a.txt", "content": "blind" })).await;
    text += &harness.call_tool("read_text_file", json!({ "path": "a.txt" })).await;
    std::fs::write(&file, "ONE\ntwo\nthree\n").unwrap();
    text +=
        &harness.call_tool("write_text_file", json!({ "path": "a.txt", "content": "one\ntwo\n3\n" })).await;
    text += &std::fs::read_to_string(&file).unwrap();
    text += &harness
        .call_tool("edit_text_file", json!({ "path": "a.txt", "old_text": "two", "new_text": "2" }))
        .await;
    text += &harness
        .call_tool("edit_text_file", json!({ "path": "a.txt", "old_text": "two", "new_text": "2" }))
        .await;
    text += &harness.call_tool("execute", json!({ "command": "echo" })).await;
    expect![[r#"
        ! nothing was written: a.txt: you have not read all of the text that would be replaced: read it first
        [a.txt: all of it, 3 lines]
        one
        two
        three
        Wrote a.txt (3 lines).
        Another program changed the file since you read it; both changes are in it now. What came in:
        @@ -1,2 +1,2 @@
        -one
        +ONE
         two
        ONE
        two
        3
        Edited a.txt in 1 place.
        ! nothing was edited in a.txt: old_text of edit 1 is not in the file
        !! Mcp error: -32602: execute is not offered here: the tools are read_text_file, write_text_file, edit_text_file, list_directory, search_text
    "#]].assert_eq(&text);
}

#[tokio::test]
async fn every_tool_asks_to_be_shown_to_the_model_from_the_beginning() {
    let harness = McpServerHarness::new(OfferedTools::Everything).await;
    for tool in harness.client.list_all_tools().await.unwrap() {
        let value = serde_json::to_value(&tool).unwrap();
        assert_eq!(value["_meta"], serde_json::json!({ "anthropic/alwaysLoad": true }), "{}", tool.name);
    }
}

#[tokio::test]
async fn every_tool_says_what_it_does_to_the_world() {
    let harness = McpServerHarness::new(OfferedTools::Everything).await;
    let mut text = String::new();
    for tool in harness.client.list_all_tools().await.unwrap() {
        let hints = serde_json::to_value(tool.annotations.unwrap()).unwrap();
        text += &format!("{} {hints}\n", tool.name);
        assert!(tool.input_schema.contains_key("properties"));
    }
    expect![[r#"
        read_text_file {"title":"Read file","readOnlyHint":true,"openWorldHint":false}
        write_text_file {"title":"Write file","readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}
        edit_text_file {"title":"Edit file","readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":false}
        list_directory {"title":"List directory","readOnlyHint":true,"openWorldHint":false}
        search_text {"title":"Search text","readOnlyHint":true,"openWorldHint":false}
        execute {"title":"Run command","readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}
        terminal_output {"title":"Output of a command","readOnlyHint":true,"openWorldHint":false}
        kill_terminal {"title":"End a command","readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}
    "#]].assert_eq(&text);
}

#[tokio::test]
#[allow(deprecated, reason = "the revisions that are spoken here subscribe so")]
async fn what_an_editor_does_and_knows_is_heard_and_read() {
    let mut harness = McpServerHarness::new(OfferedTools::Files).await;
    let path = harness.root.join("a.txt").to_str().unwrap().to_owned();
    let diagnostics = |message: &str| {
        let (range, severity) = (TextRange::default(), DiagnosticSeverity::Error);
        vec![Diagnostic { range, severity, message: message.to_owned(), source: None, code: None }]
    };
    let opened = harness.workspace.open_document(&path).unwrap();
    assert_eq!(harness.next_event().await, "list");
    for uri in [DIAGNOSTICS_URI, &file_uri(&path)] {
        harness.client.subscribe(SubscribeRequestParams::new(uri)).await.unwrap();
    }
    harness.workspace.change_document(&path, "typed\n".to_owned(), opened.revision).unwrap();
    // Simultaneous notifications may arrive in any order.
    let mut events = [harness.next_event().await, harness.next_event().await];
    events.sort();
    let mut text = format!("{}\n", events.join(" "));
    text += &harness.read_resource(&file_uri(&path)).await;
    harness.workspace.share_diagnostics(&path, diagnostics("no such name")).unwrap();
    harness
        .workspace
        .share_diagnostics(harness.root.join(".env").to_str().unwrap(), diagnostics("secret"))
        .unwrap();
    text += &format!(
        "{} {}\n{}\n",
        harness.next_event().await,
        harness.next_event().await,
        harness.read_resource(DIAGNOSTICS_URI).await
    );
    harness.call_tool("read_text_file", json!({ "path": "a.txt" })).await;
    text += &harness.call_tool("write_text_file", json!({ "path": "a.txt", "content": "written\n" })).await;
    let mut events = [harness.next_event().await, harness.next_event().await, harness.next_event().await];
    events.sort();
    text += &format!("{events:?}\n{}\n", harness.read_resource(DIAGNOSTICS_URI).await);
    harness.workspace.close_document(&path).unwrap();
    text += &harness.next_event().await;
    expect![[r#"
        file://$ROOT/a.txt list
        typed
        bowline://diagnostics bowline://diagnostics
        {"files":[{"path":"$ROOT/a.txt","uri":"file://$ROOT/a.txt","stale":false,"diagnostics":[{"range":{"start":{"line":0,"character":0},"end":{"line":0,"character":0}},"severity":"error","message":"no such name"}],"leftOut":0}],"filesLeftOut":0}
        Wrote a.txt (1 line).
        ["bowline://diagnostics", "file://$ROOT/a.txt", "list"]
        {"files":[{"path":"$ROOT/a.txt","uri":"file://$ROOT/a.txt","stale":true,"diagnostics":[{"range":{"start":{"line":0,"character":0},"end":{"line":0,"character":0}},"severity":"error","message":"no such name"}],"leftOut":0}],"filesLeftOut":0}
        list"#]].assert_eq(&text);
}

#[tokio::test]
#[allow(deprecated, reason = "the revisions that are spoken here subscribe so")]
async fn what_is_taken_back_is_heard_of() {
    let mut harness = McpServerHarness::new(OfferedTools::Files).await;
    harness.client.subscribe(SubscribeRequestParams::new(CHANGES_URI)).await.unwrap();
    harness.call_tool("write_text_file", json!({ "path": "b.txt", "content": "new\n" })).await;
    let changed = harness.read_resource(CHANGES_URI).await;
    assert!(changed.contains("+new"), "{changed}");
    harness.workspace.undo(&ChangeSelection::default()).unwrap();
    assert_eq!(
        (harness.next_event().await.as_str(), harness.read_resource(CHANGES_URI).await.as_str()),
        (CHANGES_URI, "")
    );
}
