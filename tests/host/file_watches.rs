//! Watches of the file extension over the wire: who changed which file, what is kept from the agent, and their end.
//!
//! A script has these lines besides those of the fixture: `await ID PATH…` waits until a watch has reported all of these
//! paths and shows everything reported so far; `mkdir`, `mv`, `rm` and `rmdir` change the disk, `type` changes unsaved
//! text, and `other` writes as another session.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bowline_host::{Connection, HostSession, SessionOptions};
use bowline_policy::policy::Preset;
use bowline_protocol::file_extension::{FileChange, FilesChangedNotification, WatchFilesRequest};
use bowline_wire::schema::v1::{
    Error, InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse, PromptRequest,
    PromptResponse, StopReason,
};
use bowline_wire::{Agent, AgentContext, ClientHandle, ConnectionLimits, connect_agent};
use bowline_workspace::workspace::Workspace;
use expect_test::{Expect, expect};
use serde_json::json;
use test_support::host_harness::{PuppetAgent, TurnScript};
use tokio::sync::Notify;

use super::host_fixture::{AgentActor, HostFixture};

/// The notifications that an agent has received and a test has not looked at.
#[derive(Default)]
struct Received {
    notifications: Mutex<Vec<FilesChangedNotification>>,
    arrived: Notify,
    // While set, the agent does not read.
    is_stalled: Mutex<bool>,
    resumed: Notify,
}

impl Received {
    /// Waits until the notifications satisfy a condition, and takes them.
    async fn take_when(
        &self,
        condition: impl Fn(&[FilesChangedNotification]) -> bool,
    ) -> Vec<FilesChangedNotification> {
        let wait = async {
            loop {
                let arrived = self.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                {
                    let mut all = self.notifications.lock().unwrap();
                    if condition(&all) {
                        return std::mem::take(&mut *all);
                    }
                }
                arrived.await;
            }
        };
        tokio::time::timeout(test_support::TEST_TIMEOUT, wait).await.expect("the notification never came")
    }

    fn set_stalled(&self, is_stalled: bool) {
        *self.is_stalled.lock().unwrap() = is_stalled;
        self.resumed.notify_waiters();
    }
}

/// The harness's agent, with watches.
struct WatchingAgent {
    puppet: PuppetAgent,
    received: Arc<Received>,
}

impl Agent for WatchingAgent {
    async fn initialize(
        &self,
        request: InitializeRequest,
        cx: AgentContext,
    ) -> Result<InitializeResponse, Error> {
        self.puppet.initialize(request, cx).await
    }

    async fn new_session(
        &self,
        request: NewSessionRequest,
        cx: AgentContext,
    ) -> Result<NewSessionResponse, Error> {
        self.puppet.new_session(request, cx).await
    }

    async fn prompt(&self, request: PromptRequest, cx: AgentContext) -> Result<PromptResponse, Error> {
        self.puppet.prompt(request, cx).await
    }

    async fn files_changed(&self, notification: FilesChangedNotification, _: ClientHandle) {
        loop {
            let resumed = self.received.resumed.notified();
            if !*self.received.is_stalled.lock().unwrap() {
                break;
            }
            resumed.await;
        }
        self.received.notifications.lock().unwrap().push(notification);
        self.received.arrived.notify_waiters();
    }
}

/// A connected agent that can be called at any time, inside a turn or not.
struct Watching {
    received: Arc<Received>,
    client: ClientHandle,
    connection: Connection,
    session: HostSession,
}

async fn connect(stage: &HostFixture, scripts: Vec<TurnScript>, received: Arc<Received>) -> Watching {
    let agent = WatchingAgent { puppet: PuppetAgent::new(scripts), received: received.clone() };
    let (host_end, agent_end) = tokio::io::duplex(64 << 10);
    let (reader, writer) = tokio::io::split(agent_end);
    let (client, serving) = connect_agent(Arc::new(agent), reader, writer, ConnectionLimits::DEFAULT);
    tokio::spawn(serving);
    let (reader, writer) = tokio::io::split(host_end);
    let connection = stage.lab.host.connect(reader, writer).await.unwrap();
    let session = connection.new_session(SessionOptions::default()).await.unwrap();
    Watching { received, client, connection, session }
}

/// Returns changes as lines, by path.
fn show(stage: &HostFixture, notifications: &[FilesChangedNotification]) -> String {
    let mut lines = Vec::new();
    for FilesChangedNotification { watch_id, changes, overflow, .. } in notifications {
        for FileChange { path, kind, by, from } in changes {
            let from = from.as_ref().map(|from| format!(" from {}", from.display())).unwrap_or_default();
            let (kind, by) = (json!(kind), json!(by));
            let (kind, by) = (kind.as_str().unwrap(), by.as_str().unwrap());
            lines.push(format!("  {watch_id}: {kind} {}{from} by {by}", path.display()));
        }
        lines.extend(overflow.then(|| format!("  {watch_id}: overflow")));
    }
    lines.sort();
    stage.normalize(&lines.join("\n"))
}

/// Runs one line of a script.
async fn play_line(actor: &AgentActor, stage: &HostFixture, received: &Received, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let path = |at: usize| stage.lab.path(words[at]);
    let workspace: &Workspace = stage.lab.host.workspace();
    match words[0] {
        "await" => {
            let awaited: Vec<String> = words[2..].iter().map(|name| stage.lab.path(name)).collect();
            let is_reported = |notifications: &[FilesChangedNotification], path: &str| {
                let of_watch = notifications.iter().filter(|sent| sent.watch_id.as_str() == words[1]);
                of_watch.flat_map(|sent| &sent.changes).any(|change| change.path == Path::new(path))
            };
            let all = received.take_when(|sent| awaited.iter().all(|path| is_reported(sent, path))).await;
            actor.record(&show(stage, &all));
            return;
        }
        "mkdir" => fs::create_dir(path(1)).unwrap(),
        "mv" => fs::rename(path(1), path(2)).unwrap(),
        "rm" => fs::remove_file(path(1)).unwrap(),
        "rmdir" => fs::remove_dir_all(path(1)).unwrap(),
        "type" => {
            let revision = workspace.open_document(&path(1)).unwrap().revision;
            workspace.change_document(&path(1), words[2..].join(" "), revision).unwrap();
        }
        "other" => {
            let other = workspace.session("other");
            other.write(&path(1), &words[2..].join(" "), &other.origin(Some(1), None)).unwrap();
        }
        "undo" => {
            let session = workspace.session(&actor.turn.session.0);
            let selection = bowline_history::undo::ChangeSelection::turn(&actor.turn.session.0, 1);
            session.undo(&selection, &session.origin(Some(1), None)).unwrap();
        }
        _ => return actor.play_script(line).await,
    }
    actor.record(&format!("> {line}"));
}

/// Runs a script as one turn, and compares what the agent and the user saw.
async fn check(stage: HostFixture, script: &'static str, expected: Expect) -> Arc<HostFixture> {
    let (stage, received) = (Arc::new(stage), Arc::new(Received::default()));
    let (owned, owned_received) = (stage.clone(), received.clone());
    let turn = stage.custom_turn(move |actor| async move {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            play_line(&actor, &owned, &owned_received, line).await;
        }
        StopReason::EndTurn
    });
    let watching = connect(&stage, vec![turn], received).await;
    watching.session.prompt_text("go").await.unwrap();
    watching.connection.close_session(&watching.session).await.unwrap();
    expected.assert_eq(&stage.take_text());
    stage
}

fn open_stage() -> HostFixture {
    HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
        .with_file("a.txt", "one\n")
        .with_file("b.txt", "two\n")
        .with_file("src/main.rs", "fn main() {}\n")
        .with_file(".gitignore", "*.log\n")
}

#[tokio::test]
async fn changes_arrive_with_their_author() {
    check(
        open_stage(),
        r#"
        call _bowline/fs/watch {"path":"$ROOT","recursive":true}
        put a.txt user
        await w1 a.txt
        type b.txt typed
        await w1 b.txt
        call _bowline/fs/write {"path":"$ROOT/new.txt","data":"agent\n"}
        await w1 new.txt
        write new.txt agent again
        await w1 new.txt
        call _bowline/fs/batch {"operations":[{"op":"mkdir","path":"$ROOT/docs"},{"op":"move","from":"$ROOT/new.txt","to":"$ROOT/docs/new.txt"},{"op":"copy","from":"$ROOT/a.txt","to":"$ROOT/docs/a.txt"},{"op":"remove","path":"$ROOT/src","recursive":true}]}
        await w1 docs docs/new.txt docs/a.txt src
        undo
        await w1 src/main.rs
        run echo built > built.txt
        await w1 built.txt
        run mv built.txt moved.txt
        await w1 moved.txt
        other other.txt text
        await w1 other.txt
        put gone 1
        rm gone
        put x.log ignored
        mv a.txt renamed.txt
        await w1 renamed.txt
        "#,
        expect![[r#"
            > call _bowline/fs/watch {"path":"$ROOT","recursive":true}
            {"watchId":"w1"}
            > put a.txt user
              w1: modified $ROOT/a.txt by user
            > type b.txt typed
              w1: modified $ROOT/b.txt by user
            > call _bowline/fs/write {"path":"$ROOT/new.txt","data":"agent\n"}
            {"etag":"sha256:d20bc21bb3c7736d8d03ade3ddb4c68b665cdfbca6f6df0f7fdd192f37f59060","merged":false,"formatted":false}
              w1: created $ROOT/new.txt by agent
            > write new.txt agent again
            ok
              w1: modified $ROOT/new.txt by agent
            > call _bowline/fs/batch {"operations":[{"op":"mkdir","path":"$ROOT/docs"},{"op":"move","from":"$ROOT/new.txt","to":"$ROOT/docs/new.txt"},{"op":"copy","from":"$ROOT/a.txt","to":"$ROOT/docs/a.txt"},{"op"
            {"results":[{"op":"mkdir"},{"op":"move"},{"op":"copy"},{"op":"remove"}]}
              w1: created $ROOT/docs by agent
              w1: created $ROOT/docs/a.txt by agent
              w1: removed $ROOT/src by agent
              w1: removed $ROOT/src/main.rs by agent
              w1: renamed $ROOT/docs/new.txt from $ROOT/new.txt by agent
            > undo
              w1: created $ROOT/src by agent
              w1: created $ROOT/src/main.rs by agent
              w1: removed $ROOT/docs by agent
              w1: removed $ROOT/docs/a.txt by agent
              w1: removed $ROOT/docs/new.txt by agent
            > run echo built > built.txt
            "" exit 0
              w1: created $ROOT/built.txt by command
            > run mv built.txt moved.txt
            "" exit 0
              w1: renamed $ROOT/moved.txt from $ROOT/built.txt by command
            > other other.txt text
              w1: created $ROOT/other.txt by session
            > put gone 1
            > rm gone
            > put x.log ignored
            > mv a.txt renamed.txt
              w1: renamed $ROOT/renamed.txt from $ROOT/a.txt by user
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_the_agent_may_not_read_is_kept_from_it() {
    let stage = HostFixture::new().with_file("a.txt", "a\n").with_file(".env", "KEY=1\n");
    stage
        .lab
        .write_rules("[[rules]]\neffect = \"deny\"\nkinds = [\"read\"]\npath = \"private/**\"\n")
        .unwrap();
    fs::create_dir(stage.lab.path("private")).unwrap();
    fs::write(stage.lab.base().join("outside"), "1").unwrap();
    let stage = check(
        stage,
        r#"
        link out $BASE/outside
        call _bowline/fs/watch {"path":"$ROOT","recursive":true}
        call _bowline/fs/watch {"path":"$BASE"}
        call _bowline/fs/watch {"path":"$ROOT/out"}
        call _bowline/fs/watch {"path":"$ROOT/private"}
        call _bowline/fs/watch {"path":"$ROOT/.env"}
        put .env KEY=2
        put private/plan secret
        put $BASE/outside 2
        link more $BASE/outside
        mv a.txt private/a.txt
        put seen 1
        await w1 seen
        mv private/a.txt back.txt
        await w1 back.txt
        rmdir private
        await w2 private
        "#,
        expect![[r#"
            > link out $BASE/outside
            > call _bowline/fs/watch {"path":"$ROOT","recursive":true}
            {"watchId":"w1"}
            > call _bowline/fs/watch {"path":"$BASE"}
            ! -32602 $BASE is outside the session's directories {"kind":"outsideRoots","path":"$BASE","reason":"outside"}
            > call _bowline/fs/watch {"path":"$ROOT/out"}
            ! -32602 $ROOT/out is outside the session's directories {"kind":"outsideRoots","path":"$ROOT/out","reason":"outside"}
            > call _bowline/fs/watch {"path":"$ROOT/private"}
            {"watchId":"w2"}
            > call _bowline/fs/watch {"path":"$ROOT/.env"}
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"kind":"permissionDenied","why":"no rule allows it, and the user cannot be asked"}
            > put .env KEY=2
            > put private/plan secret
            > put $BASE/outside 2
            > link more $BASE/outside
            > mv a.txt private/a.txt
            > put seen 1
              w1: created $ROOT/seen by user
              w1: removed $ROOT/a.txt by user
            > mv private/a.txt back.txt
              w1: created $ROOT/back.txt by user
            > rmdir private
              w1: removed $ROOT/private by user
              w2: removed $ROOT/private by user
        "#]],
    )
    .await;
    expect![[r#"
        session/start: allowed by nobody
        turn/start turn 1: allowed by nobody
        fs/read $ROOT turn 1: allowed by preset: ask
        fs/read $BASE turn 1: denied by nobody ($BASE is outside the session's directories)
        fs/read $ROOT/out turn 1: denied by nobody ($ROOT/out is outside the session's directories)
        fs/read $ROOT/private turn 1: allowed by preset: ask
        fs/read $ROOT/.env turn 1: denied by nobody (permission denied: no rule allows it, and the user cannot be asked)
        observed $ROOT/.env turn 1: allowed by nobody
        observed $ROOT/a.txt turn 1: allowed by nobody
        observed $ROOT/back.txt turn 1: allowed by nobody
        observed $ROOT/seen turn 1: allowed by nobody
        turn/end turn 1: allowed by nobody (EndTurn)
        session/end: allowed by nobody
    "#]].assert_eq(&stage.audit_table());
}

#[tokio::test]
async fn a_watch_reports_after_its_answer_and_not_after_its_end() {
    check(
        open_stage(),
        r#"
        call _bowline/fs/watch {"path":"$ROOT"}
        call _bowline/fs/watch {"path":"$ROOT","glob":"*.md"}
        call _bowline/fs/watch {"path":"$ROOT/a.txt"}
        put notes.md 1
        await w2 notes.md
        call _bowline/fs/unwatch {"watchId":"w1"}
        call _bowline/fs/unwatch {"watchId":"w1"}
        put a.txt 1
        await w3 a.txt
        put more.md 1
        await w2 more.md
        call _bowline/fs/unwatch {"watchId":"w2"}
        call _bowline/fs/unwatch {"watchId":"w9"}
        call _bowline/fs/unwatch {}
        put more.md 2
        put a.txt 2
        await w3 a.txt
        call _bowline/fs/watch {"path":"$ROOT/missing"}
        call _bowline/fs/watch {"path":"relative"}
        call _bowline/fs/watch {"path":"$ROOT","glob":"["}
        call _bowline/fs/watch {"path":"$ROOT","recursive":"yes"}
        call _bowline/fs/watch {"path":"$ROOT","sessionId":"other"}
        "#,
        expect![[r#"
            > call _bowline/fs/watch {"path":"$ROOT"}
            {"watchId":"w1"}
            > call _bowline/fs/watch {"path":"$ROOT","glob":"*.md"}
            {"watchId":"w2"}
            > call _bowline/fs/watch {"path":"$ROOT/a.txt"}
            {"watchId":"w3"}
            > put notes.md 1
              w1: created $ROOT/notes.md by user
              w2: created $ROOT/notes.md by user
            > call _bowline/fs/unwatch {"watchId":"w1"}
            ok
            > call _bowline/fs/unwatch {"watchId":"w1"}
            ! -32602 no watch w1 {"kind":"unknownWatch","watchId":"w1"}
            > put a.txt 1
              w3: modified $ROOT/a.txt by user
            > put more.md 1
              w2: created $ROOT/more.md by user
            > call _bowline/fs/unwatch {"watchId":"w2"}
            ok
            > call _bowline/fs/unwatch {"watchId":"w9"}
            ! -32602 no watch w9 {"kind":"unknownWatch","watchId":"w9"}
            > call _bowline/fs/unwatch {}
            ! -32602 the params of _bowline/fs/unwatch are wrong: missing field `watchId` before column 18 {"kind":"badParams"}
            > put more.md 2
            > put a.txt 2
              w3: modified $ROOT/a.txt by user
            > call _bowline/fs/watch {"path":"$ROOT/missing"}
            ! -32002 Resource not found: $ROOT/missing {"kind":"notFound","path":"$ROOT/missing","uri":"$ROOT/missing"}
            > call _bowline/fs/watch {"path":"relative"}
            ! -32602 relative is a relative path, send an absolute path {"kind":"badParams","reason":"relative","path":"relative"}
            > call _bowline/fs/watch {"path":"$ROOT","glob":"["}
            ! -32602 invalid glob: unclosed character class; missing ']' {"kind":"badParams"}
            > call _bowline/fs/watch {"path":"$ROOT","recursive":"yes"}
            ! -32602 the params of _bowline/fs/watch are wrong: expected a boolean at column 51 {"kind":"badParams"}
            > call _bowline/fs/watch {"path":"$ROOT","sessionId":"other"}
            ! -32002 Resource not found: session other {"kind":"unknownSession","sessionId":"other"}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn watches_and_directories_are_limited() {
    let stage = HostFixture::with_options(|settings| {
        (settings.preset, settings.observe) = (Some(Preset::Full), false);
    });
    // The engine's tests have small limits. To reach the host's takes half a minute.
    let is_full_run = test_support::is_full_run();
    for number in 0..if is_full_run { 33_000 } else { 1 } {
        fs::create_dir(stage.lab.path(&number.to_string())).unwrap();
    }
    let Watching { client, connection, session, received } =
        connect(&stage, Vec::new(), Arc::default()).await;
    let request = |recursive: bool| {
        let request = WatchFilesRequest::new(session.id().clone(), stage.lab.path(""));
        if recursive { request.recursive() } else { request }
    };
    let show_error = |error: bowline_wire::CallError| format!("{:?}", error.file_error());
    if is_full_run {
        let text = show_error(client.watch_files(request(true)).await.unwrap_err());
        expect![[r#"Some(TooMany { items: "directories", limit: 32768 })"#]].assert_eq(&text);
    }
    // Nothing of the failed watch is left over.
    for _ in 0..5 {
        client.watch_files(request(false)).await.unwrap();
    }
    let on_first = || WatchFilesRequest::new(session.id().clone(), stage.lab.path("0"));
    for _ in 5..64 {
        client.watch_files(on_first()).await.unwrap();
    }
    let text = show_error(client.watch_files(on_first()).await.unwrap_err());
    expect![[r#"Some(TooMany { items: "watches", limit: 64 })"#]].assert_eq(&text);
    fs::write(stage.lab.path("0/x"), "1").unwrap();
    let sent = received.take_when(|sent| sent.len() >= 59).await;
    assert!(sent.iter().all(|sent| sent.changes.len() == 1 && !sent.overflow), "{sent:?}");
    connection.close_session(&session).await.unwrap();
}

#[tokio::test]
async fn a_flood_overflows_and_blocks_nothing() {
    let stage = open_stage();
    let watching = connect(&stage, Vec::new(), Arc::default()).await;
    let request = WatchFilesRequest::new(watching.session.id().clone(), stage.lab.path(""));
    watching.client.watch_files(request).await.unwrap();
    watching.received.set_stalled(true);
    for number in 0..10_000 {
        fs::write(stage.lab.path(&number.to_string()), "1").unwrap();
    }
    // The engine still works, and so does the agent.
    stage.lab.host.workspace().session("other").read(&stage.lab.path("9999"), Default::default()).unwrap();
    let path = stage.lab.path("written.txt");
    let params = json!({"sessionId": watching.session.id(), "path": path, "data": "agent"});
    let write = serde_json::from_value(params).unwrap();
    watching.client.write_file(write).await.unwrap();
    watching.received.set_stalled(false);
    let sent = watching.received.take_when(|sent| sent.iter().any(|sent| sent.overflow)).await;
    assert!(sent.iter().all(|sent| sent.changes.len() <= 256));
    fs::write(stage.lab.path("last"), "1").unwrap();
    let last = stage.lab.path("last");
    let is_last = |change: &FileChange| change.path == Path::new(&last);
    watching.received.take_when(|sent| sent.iter().flat_map(|sent| &sent.changes).any(is_last)).await;
    watching.connection.close_session(&watching.session).await.unwrap();
}

/// Returns how many descriptors watch a directory, and how many tasks there are.
fn count_resources(directory: &str) -> (usize, usize) {
    // Other tests may run in this process, and have watches of their own.
    let watch = format!(" ino:{:x} ", fs::metadata(directory).unwrap().ino());
    let descriptors = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let described = descriptors.filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok());
    let watching = described.filter(|text| text.contains("inotify") && text.contains(&watch)).count();
    (watching, tokio::runtime::Handle::current().metrics().num_alive_tasks())
}

#[tokio::test]
async fn watches_end_with_their_session() {
    let stage = HostFixture::with_options(|settings| {
        (settings.preset, settings.observe) = (Some(Preset::Full), false);
    });
    let ended = |events: &[String]| events.iter().filter(|event| event.starts_with("SessionEnded")).count();
    for (number, way) in ["close", "drop", "agent gone"].into_iter().enumerate() {
        let watching = connect(&stage, Vec::new(), Arc::default()).await;
        let Watching { received, client, connection, session } = watching;
        let before = count_resources(&stage.lab.path(""));
        let request = WatchFilesRequest::new(session.id().clone(), stage.lab.path("")).recursive();
        client.watch_files(request.clone()).await.unwrap();
        client.watch_files(request).await.unwrap();
        fs::write(stage.lab.path("x"), way).unwrap();
        received.take_when(|sent| sent.len() == 2).await;
        let during = count_resources(&stage.lab.path(""));
        // The queue and the handle by which it is waited for.
        assert_eq!((before.0, during.0), (0, 2), "{way}");
        let mut kept = None;
        match way {
            "close" => connection.close_session(&session).await.unwrap(),
            "drop" => drop(connection),
            _ => {
                client.caller().close();
                kept = Some(connection);
            }
        }
        stage.lab.user.wait_until(|_, events| ended(events) == number + 1).await;
        let after = count_resources(&stage.lab.path(""));
        assert_eq!(after.0, 0, "{way}");
        // Otherwise the connection is still ending.
        if way == "close" {
            assert!(during.1 > before.1 && after.1 <= before.1, "{before:?} {during:?} {after:?}");
        }
        drop(kept);
    }
}
