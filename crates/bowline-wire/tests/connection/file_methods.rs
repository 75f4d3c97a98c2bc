//! Tests of the file extension over a connection: typed calls, changes, and methods that were not advertised.

use std::fmt::Debug;
use std::sync::Arc;

use bowline_protocol::file_extension::{
    BatchFilesRequest, BatchFilesResponse, BatchResult, ChangeAuthor, ChangeKind, DirectoryEntry, Etag,
    FileCapabilities, FileChange, FileData, FileError, FileLimits, FileType, FilesChangedNotification,
    ListDirectoryRequest, ListDirectoryResponse, ReadFileRequest, ReadFileResponse, ReadParams, RemoveParams,
    StatFileRequest, StatFileResponse, UnwatchFilesRequest, UnwatchFilesResponse, WatchFilesRequest,
    WatchFilesResponse, WriteFileRequest, WriteFileResponse, WriteParams,
};
use bowline_wire::schema::ProtocolVersion;
use bowline_wire::schema::v1::{
    ClientCapabilities, Error, InitializeRequest, InitializeResponse, Meta, NewSessionRequest,
    NewSessionResponse, PromptRequest, PromptResponse, RequestPermissionRequest, RequestPermissionResponse,
    SessionNotification,
};
use bowline_wire::{
    Agent, AgentContext, AgentHandle, CallError, Client, ClientContext, ClientHandle, ConnectionLimits,
    connect_agent, connect_client,
};
use expect_test::{Expect, expect};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

/// A client with one file, `/a`, whose content is `text`.
struct FileClient;

impl Client for FileClient {
    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Err(Error::method_not_found())
    }

    async fn session_update(&self, _: SessionNotification, _: AgentHandle) {}

    async fn list_directory(
        &self,
        request: ListDirectoryRequest,
        _: ClientContext,
    ) -> Result<ListDirectoryResponse, Error> {
        let listing = request.into_operation(&FileLimits::DEFAULT)?;
        let name = format!("a of at most {}", listing.limit);
        let entry = DirectoryEntry { name, file_type: FileType::File, size: Some(4), modified_at_ms: None };
        Ok(ListDirectoryResponse { entries: vec![entry], next_cursor: None, truncated: false })
    }

    async fn stat_file(&self, request: StatFileRequest, _: ClientContext) -> Result<StatFileResponse, Error> {
        match request.into_operation()?.path.as_str() {
            "/a" => Ok(StatFileResponse::new(FileType::File, 4)),
            path => Err(FileError::NotFound { path: path.to_owned() }.into()),
        }
    }

    async fn read_file(&self, request: ReadFileRequest, _: ClientContext) -> Result<ReadFileResponse, Error> {
        let read = request.into_operation(&FileLimits::DEFAULT)?;
        let window = read.range.slice_bytes(b"text")?;
        let data = FileData::from(window.data.to_vec());
        Ok(ReadFileResponse::new(data, Etag::from("now"), 4).truncated(window.is_truncated))
    }

    async fn write_file(
        &self,
        request: WriteFileRequest,
        _: ClientContext,
    ) -> Result<WriteFileResponse, Error> {
        let write = request.into_operation(&FileLimits::DEFAULT)?;
        Err(FileError::Conflict {
            path: write.path.to_string(),
            reason: "the file has changed".to_owned(),
            etag: Some(Etag::from("now")),
            hunks: Vec::new(),
        }
        .into())
    }

    async fn batch_files(
        &self,
        request: BatchFilesRequest,
        _: ClientContext,
    ) -> Result<BatchFilesResponse, Error> {
        let operations = request.into_operations(&FileLimits::DEFAULT)?;
        Ok(BatchFilesResponse::new(operations.iter().map(|_| BatchResult::Remove {}).collect()))
    }

    async fn watch_files(
        &self,
        request: WatchFilesRequest,
        cx: ClientContext,
    ) -> Result<WatchFilesResponse, Error> {
        let watch = request.into_operation()?;
        let change = FileChange::new(watch.path.as_path(), ChangeKind::Modified, ChangeAuthor::User);
        tokio::spawn(async move {
            cx.answered().await;
            let changed = FilesChangedNotification::new("s", "w", vec![change]);
            cx.agent().notify_files_changed(&changed).await.expect("the agent is there");
        });
        Ok(WatchFilesResponse::new("w"))
    }

    async fn unwatch_files(
        &self,
        request: UnwatchFilesRequest,
        cx: ClientContext,
    ) -> Result<UnwatchFilesResponse, Error> {
        let last = FilesChangedNotification::new("s", request.watch_id, Vec::new()).overflow(true);
        cx.agent().notify_files_changed(&last).await?;
        Ok(UnwatchFilesResponse {})
    }
}

/// A client without any method of the extension.
struct BareClient;

impl Client for BareClient {
    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Err(Error::method_not_found())
    }

    async fn session_update(&self, _: SessionNotification, _: AgentHandle) {}
}

/// An agent that records the changes it is told of.
struct WatchingAgent(mpsc::UnboundedSender<FilesChangedNotification>);

impl Agent for WatchingAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        _: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        Ok(InitializeResponse::new(request.protocol_version))
    }

    async fn new_session(&self, _: NewSessionRequest, _: AgentContext) -> Result<NewSessionResponse, Error> {
        Err(Error::method_not_found())
    }

    async fn prompt(&self, _: PromptRequest, _: AgentContext) -> Result<PromptResponse, Error> {
        Err(Error::method_not_found())
    }

    async fn files_changed(&self, notification: FilesChangedNotification, _: ClientHandle) {
        self.0.send(notification).expect("the test listens");
    }
}

fn initialize_request(files: Option<&FileCapabilities>) -> InitializeRequest {
    let mut meta = Meta::new();
    if let Some(files) = files {
        files.insert_into(&mut meta);
    }
    InitializeRequest::new(ProtocolVersion::V1).client_capabilities(ClientCapabilities::new().meta(meta))
}

/// Connects a client to an agent, and returns the agent's view, the client's view, and the reported changes.
async fn connect(
    client: impl Client,
    files: Option<&FileCapabilities>,
) -> (ClientHandle, AgentHandle, mpsc::UnboundedReceiver<FilesChangedNotification>) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(ours);
    let (agent, serving) = connect_client(Arc::new(client), reader, writer, ConnectionLimits::DEFAULT);
    tokio::spawn(serving);
    let (reader, writer) = tokio::io::split(theirs);
    let (sender, changes) = mpsc::unbounded_channel();
    let (client, serving) =
        connect_agent(Arc::new(WatchingAgent(sender)), reader, writer, ConnectionLimits::DEFAULT);
    tokio::spawn(serving);
    agent.initialize(initialize_request(files)).await.expect("initialized");
    (client, agent, changes)
}

/// Shows an answer, or the failure as the agent reads it.
fn describe<T: Debug>(answer: Result<T, CallError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}\n"),
        Err(error) => match error.batch_error() {
            Some(failure) => format!("! {failure:?}\n"),
            None => format!("!! {error}\n"),
        },
    }
}

/// Calls every method and shows the answers.
async fn call_all(client: &ClientHandle) -> String {
    let mut seen = describe(client.list_directory(ListDirectoryRequest::new("s", "/").limit(9)).await);
    seen += &describe(client.stat_file(StatFileRequest::new("s", "/a")).await);
    seen += &describe(client.stat_file(StatFileRequest::new("s", "/b")).await);
    seen += &describe(
        client.read_file(ReadFileRequest::new("s", ReadParams::new("/a").offset(1).limit(2))).await,
    );
    seen += &describe(client.read_file(ReadFileRequest::new("s", ReadParams::new("/a").offset(5))).await);
    seen += &describe(client.write_file(WriteFileRequest::new("s", WriteParams::new("/a", "new"))).await);
    let batch = BatchFilesRequest::new("s").operation(RemoveParams::new("/a"));
    seen += &describe(client.batch_files(batch.clone()).await);
    seen += &describe(client.batch_files(batch.operation(RemoveParams::new("/a/b"))).await);
    seen += &describe(client.watch_files(WatchFilesRequest::new("s", "/a")).await);
    seen += &describe(client.unwatch_files(UnwatchFilesRequest::new("s", "w")).await);
    seen
}

#[tokio::test]
async fn every_method_has_its_answer() {
    let files = FileCapabilities::with_limits(&FileLimits::DEFAULT);
    let (client, _agent, mut changes) = connect(FileClient, Some(&files)).await;
    assert_eq!(client.gate().file_capabilities(), &files);
    let mut seen = call_all(&client).await;
    // The answer to `unwatch` comes after the changes before it.
    while let Ok(changed) = changes.try_recv() {
        seen += &format!("{changed:?}\n");
    }
    expect![[r#"
        ListDirectoryResponse { entries: [DirectoryEntry { name: "a of at most 9", file_type: File, size: Some(4), modified_at_ms: None }], next_cursor: None, truncated: false }
        StatFileResponse { file_type: File, size: 4, modified_at_ms: None, created_at_ms: None, mode: None, content_type: None, encoding: None, etag: None, dirty: false, read_only: false }
        ! BatchError { index: None, error: NotFound { path: "/b" } }
        ReadFileResponse { data: Some("ZXg="), encoding: Base64, etag: Etag(now), size: 4, truncated: true, dirty: false, not_modified: false }
        ! BatchError { index: None, error: OutOfRange { position: 5, size: 4 } }
        ! BatchError { index: None, error: Conflict { path: "/a", reason: "the file has changed", etag: Some(Etag(now)), hunks: [] } }
        BatchFilesResponse { results: [Remove] }
        ! BatchError { index: Some(1), error: Overlap { path: "/a/b", other: 0 } }
        WatchFilesResponse { watch_id: WatchId("w") }
        UnwatchFilesResponse
        FilesChangedNotification { session_id: SessionId("s"), watch_id: WatchId("w"), changes: [FileChange { path: "/a", kind: Modified, by: User, from: None }], overflow: false }
        FilesChangedNotification { session_id: SessionId("s"), watch_id: WatchId("w"), changes: [], overflow: true }
    "#]].assert_eq(&seen);
}

#[tokio::test]
async fn what_was_not_advertised_is_not_called() {
    let (client, agent, _changes) = connect(FileClient, None).await;
    let mut seen = call_all(&client).await;
    let changed = FilesChangedNotification::new("s", "w", Vec::new());
    seen += &describe(agent.notify_files_changed(&changed).await);
    let files = FileCapabilities { stat: Some(Default::default()), ..FileCapabilities::default() };
    let (client, ..) = connect(FileClient, Some(&files)).await;
    seen += "only stat:\n";
    seen += &describe(client.stat_file(StatFileRequest::new("s", "/a")).await);
    seen += &describe(client.read_file(ReadFileRequest::new("s", ReadParams::new("/a"))).await);
    expect![[r#"
        !! _bowline/fs/list needs clientCapabilities._meta.bowline.fs.list, which was not advertised
        !! _bowline/fs/stat needs clientCapabilities._meta.bowline.fs.stat, which was not advertised
        !! _bowline/fs/stat needs clientCapabilities._meta.bowline.fs.stat, which was not advertised
        !! _bowline/fs/read needs clientCapabilities._meta.bowline.fs.read, which was not advertised
        !! _bowline/fs/read needs clientCapabilities._meta.bowline.fs.read, which was not advertised
        !! _bowline/fs/write needs clientCapabilities._meta.bowline.fs.write, which was not advertised
        !! _bowline/fs/batch needs clientCapabilities._meta.bowline.fs.batch, which was not advertised
        !! _bowline/fs/batch needs clientCapabilities._meta.bowline.fs.batch, which was not advertised
        !! _bowline/fs/watch needs clientCapabilities._meta.bowline.fs.watch, which was not advertised
        !! _bowline/fs/unwatch needs clientCapabilities._meta.bowline.fs.watch, which was not advertised
        !! _bowline/fs/watch needs clientCapabilities._meta.bowline.fs.watch, which was not advertised
        only stat:
        StatFileResponse { file_type: File, size: 4, modified_at_ms: None, created_at_ms: None, mode: None, content_type: None, encoding: None, etag: None, dirty: false, read_only: false }
        !! _bowline/fs/read needs clientCapabilities._meta.bowline.fs.read, which was not advertised
    "#]].assert_eq(&seen);
}

#[tokio::test]
async fn a_client_that_implements_nothing_answers_unknown_method() {
    let files = FileCapabilities::with_limits(&FileLimits::DEFAULT);
    let (client, ..) = connect(BareClient, Some(&files)).await;
    expect![[r#"
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/list") }) }
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/stat") }) }
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/stat") }) }
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/read") }) }
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/read") }) }
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/write") }) }
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/batch") }) }
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/batch") }) }
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/watch") }) }
        ! BatchError { index: None, error: Rpc(UnknownMethod { method: Some("_bowline/fs/unwatch") }) }
    "#]]
    .assert_eq(&call_all(&client).await);
}

/// Sends requests to a client, and shows its answers.
async fn check_lines(files: &FileCapabilities, requests: &str, expected: Expect) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(ours);
    let (agent, serving) = connect_client(Arc::new(FileClient), reader, writer, ConnectionLimits::DEFAULT);
    tokio::spawn(serving);
    let (reader, mut writer) = tokio::io::split(theirs);
    let mut lines = BufReader::new(reader).lines();
    let request = initialize_request(Some(files));
    let initialize = tokio::spawn(async move { agent.initialize(request).await.map(drop) });
    lines.next_line().await.expect("text").expect("initialize");
    writer
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":1}}\n")
        .await
        .expect("open");
    initialize.await.expect("no panic").expect("initialized");
    let mut seen = String::new();
    for (id, request) in requests.lines().filter(|line| !line.is_empty()).enumerate() {
        let (method, params) = request.split_once(' ').expect("a method and params");
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"_bowline/fs/{method}","params":{params}}}"#);
        writer.write_all(format!("{line}\n").as_bytes()).await.expect("the client reads");
        seen += &format!("{}\n", lines.next_line().await.expect("text").expect("an answer"));
    }
    expected.assert_eq(&seen);
}

#[tokio::test]
async fn wrong_params_have_a_kind_and_are_not_quoted() {
    let files = FileCapabilities { watch: None, ..FileCapabilities::with_limits(&FileLimits::DEFAULT) };
    check_lines(
        &files,
        r#"
stat {"sessionId":"s","path":"/a"}
stat {"sessionId":"s"}
stat {"sessionId":"s","path":["token-1234"]}
stat {"sessionId":"s","path":"\ud800"}
stat null
stat "token-1234"
stat {"sessionId":"s","path":"a"}
read {"sessionId":"s","path":"/a","encoding":"token-1234"}
write {"sessionId":"s","path":"/a","data":"token-1234","encoding":"base64"}
batch {"sessionId":"s","operations":[{"op":"remove","path":"/a"},{"op":"token-1234"}]}
batch {"sessionId":"s","operations":[{"op":"remove","path":"\ud800"}]}
batch {"sessionId":"s","operations":{}}
watch {"sessionId":"s","path":"/a"}
other {"sessionId":"s"}
"#,
        expect![[r#"
            {"jsonrpc":"2.0","id":0,"result":{"type":"file","size":4,"dirty":false,"readOnly":false}}
            {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the params of _bowline/fs/stat are wrong: missing field `path` before column 17","data":{"kind":"badParams"}}}
            {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"the params of _bowline/fs/stat are wrong: expected path string at column 24","data":{"kind":"badParams"}}}
            {"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"the params of _bowline/fs/stat are wrong: not as the schema has it at column 32","data":{"kind":"badParams"}}}
            {"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"the params of _bowline/fs/stat are wrong: missing field `sessionId` before column 2","data":{"kind":"badParams"}}}
            {"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"the params of _bowline/fs/stat are wrong: expected struct StatFileRequest at column 12","data":{"kind":"badParams"}}}
            {"jsonrpc":"2.0","id":6,"error":{"code":-32602,"message":"a is a relative path, send an absolute path","data":{"kind":"badParams","reason":"relative","path":"a"}}}
            {"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"the params of _bowline/fs/read are wrong: expected one of `utf-8`, `utf8`, `base64` at column 53","data":{"kind":"badParams"}}}
            {"jsonrpc":"2.0","id":8,"error":{"code":-32602,"message":"the data is not base64: byte 5 is wrong","data":{"kind":"invalidEncoding","position":5}}}
            {"jsonrpc":"2.0","id":9,"error":{"code":-32602,"message":"operation 1: the operation is wrong: expected one of `read`, `write`, `move`, `copy`, `remove`, `mkdir` at column 18","data":{"kind":"badParams","index":1}}}
            {"jsonrpc":"2.0","id":10,"error":{"code":-32602,"message":"operation 0: the operation is wrong: not as the schema has it at column 30","data":{"kind":"badParams","index":0}}}
            {"jsonrpc":"2.0","id":11,"error":{"code":-32602,"message":"the params of _bowline/fs/batch are wrong: expected a sequence at column 30","data":{"kind":"badParams"}}}
            {"jsonrpc":"2.0","id":12,"error":{"code":-32601,"message":"_bowline/fs/watch needs clientCapabilities._meta.bowline.fs.watch, which was not advertised","data":{"method":"_bowline/fs/watch","capability":"clientCapabilities._meta.bowline.fs.watch"}}}
            {"jsonrpc":"2.0","id":13,"error":{"code":-32601,"message":"Method not found: _bowline/fs/other","data":{"method":"_bowline/fs/other"}}}
        "#]],
    )
    .await;
}
