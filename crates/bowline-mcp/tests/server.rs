//! Tests of a workspace as an MCP server, in one process with rmcp's client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline_access::approvals::BoxFuture;
use bowline_history::undo::ChangeSelection;
use bowline_mcp::server::{
    CHANGES_URI, DIAGNOSTICS_URI, McpServerOptions, McpWorkspaceServer, OfferedTools, ResourceProvider,
    WorkspaceBackend, WorkspaceResources, file_uri, serve,
};
use bowline_protocol::diagnostics::{Diagnostic, DiagnosticSeverity, TextRange};
use bowline_workspace::files::{FileBackend, LocalFiles};
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::{self, LocalTerminals, SupervisorProgram, TerminalBackend};
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
    fn root(&self) -> &str {
        &self.root
    }

    fn files(&self) -> &dyn FileBackend {
        &self.files
    }

    fn terminals(&self) -> &dyn TerminalBackend {
        &self.terminals
    }

    fn resources(&self) -> Option<&dyn ResourceProvider> {
        Some(&self.resources)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.terminals.release_all().await;
        })
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
        let open = move |_| -> BoxFuture<'static, Result<Box<dyn WorkspaceBackend>, String>> {
            let session = shared.session("s1");
            let supervisor = SupervisorProgram::new(env!("CARGO_BIN_EXE_mcp-peer"), ["supervise"]);
            let settings = terminals::TerminalOptions::new(supervisor);
            let terminals = LocalTerminals::new(session.clone(), settings);
            let files = LocalFiles::new(session);
            let resources =
                WorkspaceResources::new(shared.clone(), "s1", files.clone(), broadcast::Sender::new(16));
            let backend: Box<dyn WorkspaceBackend> =
                Box::new(LocalTestBackend { root: root_path.clone(), files, terminals, resources });
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
                let mut text =
                    format!("{failed}{}\n", result["content"][0]["text"].as_str().unwrap().trim_end());
                for attachment in result["content"].as_array().unwrap().iter().skip(1) {
                    text += &format!("+ {attachment}\n").replace(self.root.to_str().unwrap(), "$ROOT");
                }
                text
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
        !! Mcp error: -32602: execute is not offered here: the tools are read_text_file, write_text_file, edit_text_file, write_files, append_file, delete_file, move_file, list_directory, stat_file, search_text
    "#]].assert_eq(&text);
}

#[tokio::test]
async fn a_file_that_is_too_large_to_read_is_appended_to() {
    let harness = McpServerHarness::new(OfferedTools::Files).await;
    let text = "a line\n".repeat(5 << 20);
    std::fs::write(harness.root.join("log"), &text).unwrap();
    let answer = harness.call_tool("append_file", json!({ "path": "log", "content": "one more\n" })).await;
    expect![[r#"
        Appended 1 line to log.
    "#]]
    .assert_eq(&answer);
    let now = std::fs::read_to_string(harness.root.join("log")).unwrap();
    assert!(now.strip_prefix(&text) == Some("one more\n"));
    harness.workspace.undo(&ChangeSelection::default()).unwrap();
    assert!(std::fs::read_to_string(harness.root.join("log")).unwrap() == text);
}

#[tokio::test]
async fn several_files_change_at_once() {
    let harness = McpServerHarness::new(OfferedTools::Files).await;
    let write = |path: &str, content: &str| json!({ "path": path, "content": content });
    std::fs::write(harness.root.join("b.txt"), "bee\n").unwrap();
    let mut text = String::new();
    for (name, arguments) in [
        ("read_text_file", json!({ "path": "a.txt" })),
        ("write_files", json!({ "files": [write("a.txt", "1\ntwo\nthree\n"), write("new/c.txt", "c\n")] })),
        ("write_files", json!({ "files": [write("d.txt", "d\n"), write("b.txt", "blind\n")] })),
        ("write_files", json!({ "files": [write("a.txt", "1\ntwo\nthree\n")] })),
        ("append_file", json!({ "path": "b.txt", "content": "more\n" })),
        ("move_file", json!({ "from": "a.txt", "to": "b.txt" })),
        ("move_file", json!({ "from": "a.txt", "to": "e.txt" })),
        // The model knows it by its new path.
        ("write_files", json!({ "files": [write("e.txt", "e\n")] })),
        ("delete_file", json!({ "path": "new" })),
        ("delete_file", json!({ "path": "new", "recursive": true })),
        ("delete_file", json!({ "path": "missing" })),
        ("write_files", json!({ "files": [] })),
        ("write_files", json!({ "files": [write("x", ""), write("./x", "")] })),
        ("write_files", json!({ "files": vec![write("x", ""); 101] })),
        ("write_files", json!({ "files": [write("x", ""), write("x/y", "")] })),
        ("stat_file", json!({ "path": "missing" })),
    ] {
        text += &harness.call_tool(name, arguments).await;
    }
    expect![[r#"
        [a.txt: all of it, 3 lines]
        one
        two
        three
        2 files:
        - Wrote a.txt (3 lines)
        - Created new/c.txt (1 line)
        ! nothing was written: b.txt: you have not read all of the text that would be replaced: read it first
        1 file:
        - a.txt holds this text already
        Appended 1 line to b.txt.
        ! nothing was changed: b.txt exists already: replace it with `overwrite`, or choose another path
        Moved a.txt to e.txt.
        1 file:
        - Wrote e.txt (1 line)
        ! nothing was changed: new is not empty: set `recursive` to delete all that is in it
        Deleted new.
        ! nothing was changed: missing does not exist: list the directory to see what is there
        ! `files` has 0 files, and a call writes 1 to 100
        ! file 2: x is given twice
        ! `files` has 101 files, and a call writes 1 to 100
        ! nothing was changed: x/y and file 1 cannot both be written
        ! missing does not exist: list the directory to see what is there
    "#]]
    .assert_eq(&text);
    let stat = harness.call_tool("stat_file", json!({ "path": "e.txt" })).await;
    assert!(stat.starts_with("e.txt is a file of 2 bytes, text in UTF-8, mode "), "{stat}");
    assert!(!harness.root.join("d.txt").exists() && !harness.root.join("x").exists());
    // Each call is a change of its own, and can be undone.
    harness.workspace.undo(&ChangeSelection::default()).unwrap();
    assert_eq!(std::fs::read_to_string(harness.root.join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    assert!(!harness.root.join("e.txt").exists());
}

#[tokio::test]
async fn changes_of_others_are_kept_by_all_tools() {
    let harness = McpServerHarness::new(OfferedTools::Files).await;
    let file = harness.root.join("a.txt");
    harness.call_tool("read_text_file", json!({ "path": "a.txt" })).await;
    std::fs::write(&file, "one\ntwo\nTHREE\n").unwrap();
    let mut text = harness.call_tool("delete_file", json!({ "path": "a.txt" })).await;
    let files = |content: &str| json!({ "files": [{ "path": "a.txt", "content": content }] });
    text += &harness.call_tool("write_files", files("1\ntwo\nthree\n")).await;
    text += &harness.call_tool("write_files", files("1\ntwo\n3\n")).await;
    expect![[r#"
        ! nothing was changed: a.txt: the text was changed since this session read it: read it again
        1 file:
        - Wrote a.txt (3 lines)
        Another program changed the file since you read it; both changes are in it now. What came in:
        @@ -2,2 +2,2 @@
         two
        -three
        +THREE
        ! nothing was written: a.txt: the text was changed since this session read it, and both changes touch the same lines: read it again
        At line 3:
        --- you saw
        three
        --- the file has now
        THREE
        --- you would write
        3
    "#]].assert_eq(&text);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "1\ntwo\nTHREE\n");
}

#[tokio::test]
async fn bytes_are_images_or_blobs() {
    let harness = McpServerHarness::new(OfferedTools::ReadOnly).await;
    for (name, bytes) in [
        ("logo.png", &b"\x89PNG\r\n\x1a\n\x00\x01"[..]),
        ("named.txt", b"GIF89a\x00\xff\xfe"),
        ("a b.bin", b"\x00\x9f\x92\x96"),
    ] {
        std::fs::write(harness.root.join(name), bytes).unwrap();
    }
    std::fs::write(harness.root.join("large.bin"), vec![0; (4 << 20) + 1]).unwrap();
    let mut text = String::new();
    for path in ["logo.png", "named.txt", "a b.bin", "large.bin"] {
        text += &harness.call_tool("read_text_file", json!({ "path": path })).await;
    }
    let root = harness.root.to_str().unwrap();
    for name in ["logo.png", "a b.bin", "a.txt", "large.bin", "missing", "../outside", ""] {
        let uri = file_uri(&format!("{root}/{name}"));
        let read = harness.client.read_resource(ReadResourceRequestParams::new(uri)).await;
        let read = match read {
            Ok(read) => serde_json::to_value(read).unwrap()["contents"][0].to_string(),
            Err(error) => format!("! {error}"),
        };
        text += &format!("{}\n", read.replace(root, "$ROOT"));
    }
    // A server that only runs commands reads no files.
    let harness = McpServerHarness::new(OfferedTools::Commands).await;
    let uri = file_uri(harness.root.join("a.txt").to_str().unwrap());
    assert!(harness.client.read_resource(ReadResourceRequestParams::new(uri)).await.is_err());
    expect![[r#"
        [logo.png: image/png, 10 bytes]
        + {"type":"image","data":"iVBORw0KGgoAAQ==","mimeType":"image/png"}
        [named.txt: image/gif, 9 bytes]
        + {"type":"image","data":"R0lGODlhAP/+","mimeType":"image/gif"}
        [a b.bin: not text, 4 bytes]
        + {"type":"resource","resource":{"uri":"file://$ROOT/a%20b.bin","mimeType":"application/octet-stream","blob":"AJ+Slg=="}}
        ! large.bin has 4194305 bytes, and the limit is 4194304: use a command
        {"uri":"file://$ROOT/logo.png","mimeType":"image/png","blob":"iVBORw0KGgoAAQ=="}
        {"uri":"file://$ROOT/a%20b.bin","mimeType":"application/octet-stream","blob":"AJ+Slg=="}
        {"uri":"file://$ROOT/a.txt","mimeType":"text/plain","text":"one\ntwo\nthree\n"}
        ! Mcp error: -32603: large.bin has 4194305 bytes, and the limit is 4194304: use a command
        ! Mcp error: -32002: there is no resource file://$ROOT/missing: list the resources to see which there are({"uri":"file://$ROOT/missing"})
        ! Mcp error: -32603: ../outside is outside the directories of this session
        ! Mcp error: -32002: there is no resource file://$ROOT/: list the resources to see which there are({"uri":"file://$ROOT/"})
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
        write_files {"title":"Write files","readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}
        append_file {"title":"Append to file","readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}
        delete_file {"title":"Delete file","readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":false}
        move_file {"title":"Move file","readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":false}
        list_directory {"title":"List directory","readOnlyHint":true,"openWorldHint":false}
        stat_file {"title":"Describe file","readOnlyHint":true,"openWorldHint":false}
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
