//! A workspace as an MCP server, in one process with the client that rmcp brings.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::path::PathBuf;
use std::sync::Arc;

use bowline_mcp::server::{Advice, Offer, Place, Server, Settings, serve};
use bowline_workspace::files::LocalFiles;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::terminals::{self, LocalTerminals, Supervisor};
use bowline_workspace::workspace::{self, Workspace};
use expect_test::expect;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService, serve_client};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A place of this machine without rules before it.
struct Bare {
    root: String,
    files: LocalFiles,
    terminals: LocalTerminals,
}

impl Place for Bare {
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

    async fn close(&self) {
        self.terminals.release_all().await;
    }
}

/// A client, and the project that it works in.
struct Lab {
    client: RunningService<RoleClient, ()>,
    root: PathBuf,
    _scratch: TempDir,
}

impl Lab {
    async fn new(offer: Offer) -> Self {
        let scratch = TempDir::new().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("project");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        let (own, state) = (root.to_str().unwrap().to_owned(), scratch.path().join("state"));
        let roots = Roots::open(&RootSpec::writable(own.clone()), &[]).unwrap();
        let opened = Workspace::open(roots, &state, workspace::Settings::default()).unwrap();
        let open = move |_| -> bowline_workspace::approvals::BoxFuture<'static, Result<Bare, String>> {
            let session = opened.workspace.session("s1");
            let supervisor = Supervisor::new(env!("CARGO_BIN_EXE_mcp-peer"), ["supervise"]);
            let settings = terminals::Settings::new(supervisor);
            let terminals = LocalTerminals::new(session.clone(), settings);
            let place = Bare { root: own.clone(), files: LocalFiles::new(session), terminals };
            Box::pin(std::future::ready(Ok(place)))
        };
        let settings = Settings {
            name: "bowline".to_owned(),
            version: "1".to_owned(),
            offer,
            advice: Advice::default(),
        };
        let server = Server::new(settings, Arc::new(open));
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(theirs);
        tokio::spawn(serve(server, reader, writer, std::future::pending()));
        let client = serve_client((), ours).await.unwrap();
        Self { client, root, _scratch: scratch }
    }

    async fn call(&self, name: &'static str, arguments: Value) -> String {
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
    let lab = Lab::new(Offer::Files).await;
    let file = lab.root.join("a.txt");
    let mut text = lab.call("write_text_file", json!({ "path": "a.txt", "content": "blind" })).await;
    text += &lab.call("read_text_file", json!({ "path": "a.txt" })).await;
    std::fs::write(&file, "ONE\ntwo\nthree\n").unwrap();
    text += &lab.call("write_text_file", json!({ "path": "a.txt", "content": "one\ntwo\n3\n" })).await;
    text += &std::fs::read_to_string(&file).unwrap();
    text += &lab.call("edit_text_file", json!({ "path": "a.txt", "old_text": "two", "new_text": "2" })).await;
    text += &lab.call("edit_text_file", json!({ "path": "a.txt", "old_text": "two", "new_text": "2" })).await;
    text += &lab.call("execute", json!({ "command": "echo" })).await;
    expect![[r#"
        ! nothing was written: a.txt: you have not read all of the text that would be replaced: read it first
        [a.txt: all of it, 3 lines]
        one
        two
        three
        Wrote a.txt (3 lines).
        Somebody changed the file since you read it; both changes are in it now. What came in:
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
async fn every_tool_says_what_it_does_to_the_world() {
    let lab = Lab::new(Offer::Everything).await;
    let mut text = String::new();
    for tool in lab.client.list_all_tools().await.unwrap() {
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
