//! Turns in the journal: the attribution of changes, and undo.

use std::fmt::Write as _;

use bowline_history::changes::ChangeSource;
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_host::SessionOptions;
use bowline_policy::policy::Preset;
use bowline_workspace::journal::Retention;
use expect_test::expect;

use super::host_fixture::HostFixture;

pub(crate) fn full_fixture() -> HostFixture {
    HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
}

/// Returns the journal as a table: the source of each change, the file, and the session.
pub(crate) fn journal_table(stage: &HostFixture) -> String {
    let mut text = String::new();
    for changed in stage.lab.host.workspace().changes(&ChangeSelection::default()).unwrap() {
        let change = changed.change;
        let origin = &change.origin;
        let or = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
        writeln!(
            text,
            "{:?} {} session {} turn {} call {} command {}",
            change.source,
            change.path,
            or(origin.session.clone()),
            or(origin.turn.map(|turn| turn.to_string())),
            or(origin.call.clone()),
            or(origin.command.clone()),
        )
        .unwrap();
    }
    stage.normalize(&text)
}

#[tokio::test]
async fn every_change_has_its_session_turn_call_and_command() {
    let stage = full_fixture().with_file("a.txt", "a\n").with_file("b.txt", "b\n");
    stage
        .play_turns(&[
            r#"
            update {"sessionUpdate":"tool_call","toolCallId":"c1","title":"Edit","kind":"edit","locations":[{"path":"$ROOT/a.txt"}]}
            read a.txt
            write a.txt a2\n
            write new.txt n\n
            "#,
            r#"
            update {"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}
            update {"sessionUpdate":"tool_call","toolCallId":"c2","title":"Run","kind":"execute"}
            run echo more >> b.txt
            write a.txt a3\n
            put direct.txt by the agent itself\n
            "#,
        ])
        .await;
    expect![[r#"
        Written $ROOT/a.txt session s1 turn 1 call c1 command -
        Written $ROOT/new.txt session s1 turn 1 call - command -
        Observed $ROOT/b.txt session s1 turn 2 call c2 command echo more >> b.txt
        Written $ROOT/a.txt session s1 turn 2 call - command -
        Observed $ROOT/direct.txt session s1 turn 2 call - command -
    "#]]
    .assert_eq(&journal_table(&stage));
}

#[tokio::test]
async fn a_turn_can_be_taken_back_after_its_session() {
    let stage = full_fixture().with_file("a.txt", "a\n").with_file("b.txt", "b\n");
    stage
        .play_turns(&["write a.txt first\\n", "write a.txt second\\n\nrun echo x > b.txt\nput c.txt c"])
        .await;
    let turn = ChangeSelection {
        owner: ChangeOwner::Turn { session: "s1".to_owned(), turn: 2 },
        ..ChangeSelection::default()
    };
    let back = stage.lab.host.workspace().undo(&turn).unwrap();
    assert_eq!((back.files.len(), back.skipped.len()), (3, 0));
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "first\n");
    assert_eq!(stage.lab.read_file("b.txt").unwrap(), "b\n");
    assert!(stage.lab.read_file("c.txt").is_err());
}

#[tokio::test]
async fn changes_between_turns_belong_to_no_session() {
    let stage = full_fixture().with_file("a.txt", "a\n");
    let (connection, session) = stage
        .open_session(vec![stage.scripted_turn("read a.txt"), stage.scripted_turn("put by-agent.txt x")])
        .await;
    session.prompt_text("go").await.unwrap();
    stage.lab.write_file("by-user.txt", "x").unwrap();
    let end = session.prompt_text("go").await.unwrap();
    assert_eq!((end.turn, end.observed_changes.len()), (2, 1));
    connection.close_session(&session).await.unwrap();
    expect![[r#"
        Observed $ROOT/by-user.txt session - turn - call - command -
        Observed $ROOT/by-agent.txt session s1 turn 2 call - command -
    "#]]
    .assert_eq(&journal_table(&stage));
}

/// Returns the files of a turn in three groups: written, changed by commands, observed.
fn turn_files_text(stage: &HostFixture, turn: u64) -> String {
    let [mut written, mut by_commands, mut observed] = [const { Vec::new() }; 3];
    for changed in stage.lab.host.workspace().changes(&ChangeSelection::turn("s1", turn)).unwrap() {
        let group = match (changed.change.source, &changed.change.origin.command) {
            (ChangeSource::Written, _) => &mut written,
            (_, Some(_)) => &mut by_commands,
            (_, None) => &mut observed,
        };
        group.push(changed.change.path);
    }
    stage.normalize(&format!("{written:?} {by_commands:?} {observed:?}"))
}

#[tokio::test]
async fn other_changes_are_the_users_if_the_agent_writes_only_through_the_host() {
    let stage = HostFixture::with_options(|settings| {
        settings.preset = Some(Preset::Full);
        settings.writes_through_host_only = true;
    });
    let stage = stage.with_file("a.txt", "a\n").with_file("saved.txt", "old\n");
    stage
        .play_turns(&[
            "write a.txt by the agent\\n\nput saved.txt by the user\\n",
            "put saved.txt again\\n\nrun echo x > made.txt",
        ])
        .await;
    expect![[r#"
        Written $ROOT/a.txt session s1 turn 1 call - command -
        Observed $ROOT/saved.txt session - turn - call - command -
        Observed $ROOT/saved.txt session - turn - call - command -
        Observed $ROOT/made.txt session s1 turn 2 call - command echo x > made.txt
    "#]]
    .assert_eq(&journal_table(&stage));
    expect![[r#"["$ROOT/a.txt"] [] []"#]].assert_eq(&turn_files_text(&stage, 1));
    expect![[r#"[] ["$ROOT/made.txt"] []"#]].assert_eq(&turn_files_text(&stage, 2));
    stage.lab.host.workspace().undo(&ChangeSelection::turn("s1", 1)).unwrap();
    stage.lab.host.workspace().undo(&ChangeSelection::turn("s1", 2)).unwrap();
    assert_eq!(stage.lab.read_file("saved.txt").unwrap(), "again\n");
    assert!(stage.lab.read_file("made.txt").is_err());
}

#[tokio::test]
async fn written_and_observed_changes_of_a_turn_are_listed_apart() {
    let stage = full_fixture().with_file("a.txt", "a\n");
    // In a separate turn, because the scan at the end of a command would attribute the file to that command.
    stage
        .play_turns(&["write a.txt by the agent\\n\nrun echo x > made.txt", "put found.txt by whomever\\n"])
        .await;
    expect![[r#"["$ROOT/a.txt"] ["$ROOT/made.txt"] []"#]].assert_eq(&turn_files_text(&stage, 1));
    expect![[r#"[] [] ["$ROOT/found.txt"]"#]].assert_eq(&turn_files_text(&stage, 2));
}

#[tokio::test]
async fn sessions_of_one_connection_have_their_own_turns_and_their_own_view() {
    let stage = full_fixture().with_file("a.txt", "1\n2\n3\n");
    // The second session has read the file before the first one changes it, so its write is merged on its own base.
    let acts = vec![
        stage.scripted_turn("read a.txt"),
        stage.scripted_turn("read a.txt\nwrite a.txt one\\n2\\n3\\n"),
        stage.scripted_turn("write a.txt 1\\n2\\nthree\\n\nread a.txt"),
    ];
    let (connection, first) = stage.open_session(acts).await;
    let second = connection.new_session(SessionOptions::default()).await.unwrap();
    assert_eq!((first.id().0.as_ref(), second.id().0.as_ref()), ("s1", "s2"));
    let ends = [
        second.prompt_text("go").await.unwrap().turn,
        first.prompt_text("go").await.unwrap().turn,
        second.prompt_text("go").await.unwrap().turn,
    ];
    assert_eq!(ends, [1, 1, 2]);
    connection.close_session(&first).await.unwrap();
    connection.close_session(&second).await.unwrap();
    expect![[r#"
        > read a.txt
        "1\n2\n3\n"
        > read a.txt
        "1\n2\n3\n"
        > write a.txt one\n2\n3\n
        ok
        > write a.txt 1\n2\nthree\n
        ok
        > read a.txt
        "one\n2\nthree\n"
    "#]]
    .assert_eq(&stage.take_text());
    expect![[r#"
        Written $ROOT/a.txt session s1 turn 1 call - command -
        Written $ROOT/a.txt session s2 turn 2 call - command -
    "#]]
    .assert_eq(&journal_table(&stage));
}

#[tokio::test]
async fn one_session_has_one_turn_at_a_time() {
    let stage = full_fixture();
    stage.lab.user.answer_with_async(|_| Box::pin(std::future::pending()));
    let (connection, session) =
        stage.open_session(vec![stage.scripted_turn("read .env"), stage.scripted_turn("read .env")]).await;
    stage.lab.write_file(".env", "x").unwrap();
    let desk = stage.lab.user.clone();
    let during = async {
        desk.wait_until(|asked, _| asked.len() == 1).await;
        let busy = session.prompt_text("go").await.unwrap_err().to_string();
        session.cancel();
        busy
    };
    let (end, busy) = tokio::join!(session.prompt_text("go"), during);
    end.unwrap();
    expect!["the session is busy with another turn: wait for it, or cancel it"].assert_eq(&busy);
    // An abandoned turn does not keep the session busy.
    tokio::select! {
        end = session.prompt_text("go") => panic!("{end:?}"),
        () = desk.wait_until(|asked, _| asked.len() == 2) => {}
    }
    assert_eq!(session.prompt_text("go").await.unwrap().turn, 3);
    connection.close_session(&session).await.unwrap();
}

/// Returns incompressible text, different for each seed.
fn incompressible_text(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[(state >> 58) as usize],
        )
    };
    (0..bytes).map(|_| next()).collect()
}

#[tokio::test]
async fn a_flood_of_writes_does_not_push_out_what_undo_needs() {
    let stage = HostFixture::with_options(|settings| {
        settings.preset = Some(Preset::Full);
        settings.workspace.retention = Retention { max_bytes: 256 << 10, ..Retention::default() };
    });
    let stage = stage.with_file("a.txt", "the original\n");
    let flood = |seed: u64| -> String {
        let writes = (0..16_u64)
            .map(|number| format!("write {number}.txt {}", incompressible_text(seed + number, 22 << 10)));
        let lines: Vec<String> = std::iter::once("write a.txt gone\\n".to_owned()).chain(writes).collect();
        lines.join("\n")
    };
    let (connection, session) =
        stage.open_session([1, 100, 200].map(|seed| stage.scripted_turn(&flood(seed))).into()).await;
    session.prompt_text("go").await.unwrap();
    let seen = stage.take_text();
    let refused = seen.lines().filter(|line| line.contains("needs all of it to undo this turn")).count();
    assert_eq!(refused, 5, "what does not fit is refused, with a reason:\n{seen}");
    assert!(
        stage.lab.read_file("10.txt").is_ok() && stage.lab.read_file("11.txt").is_err(),
        "before the disk is touched"
    );
    let workspace = stage.lab.host.workspace();
    let back = workspace.undo(&ChangeSelection::turn("s1", 1)).unwrap();
    assert_eq!((back.files.len(), back.skipped.len()), (12, 0));
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "the original\n");
    workspace.redo(&ChangeSelection::turn("s1", 1)).unwrap();

    // Later turns have room again; then the first is listed as pruned, and is not undone in part.
    session.prompt_text("go").await.unwrap();
    session.prompt_text("go").await.unwrap();
    let changes = workspace.changes(&ChangeSelection::turn("s1", 1)).unwrap();
    assert_eq!(changes.len(), 12, "all of them are listed");
    assert!(changes[0].change.is_pruned());
    let refused = workspace.undo(&ChangeSelection::turn("s1", 1)).unwrap_err().to_string();
    assert!(refused.contains("its text was pruned"), "{refused}");
    let back = workspace.undo(&ChangeSelection::turn("s1", 3)).unwrap();
    assert_eq!((back.files.len(), back.skipped.len()), (11, 0));
    connection.close_session(&session).await.unwrap();
}

/// Returns the files under a directory that contain a text.
fn files_containing(directory: &std::path::Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_containing(&entry.path(), text));
        } else if std::fs::read(entry.path()).unwrap().windows(text.len()).any(|part| part == text.as_bytes())
        {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

#[tokio::test]
async fn a_secret_is_in_no_file_of_the_journal_in_plain_text_and_comes_back() {
    let old = format!("KEY=OLDSECRET\n{}", "#\n".repeat(4000));
    let stage = HostFixture::new()
        .with_file(".env", &old)
        .with_file("a.txt", "a\n")
        .with_answers(&["yes", "yes", "yes", "yes", "yes"]);
    stage
        .play_turns(&[
            "write .env KEY=NEWSECRET\\n\nwrite a.txt PLAINTEXT",
            "run echo KEY=BYCOMMAND > .env\nwrite .npmrc token=OTHERSECRET\\n",
        ])
        .await;
    assert_eq!(stage.lab.read_file(".env").unwrap(), "KEY=BYCOMMAND\n");
    let state = stage.lab.paths().state;
    for secret in ["OLDSECRET", "NEWSECRET", "OTHERSECRET"] {
        assert_eq!(files_containing(&state, secret), Vec::<String>::new(), "{secret}");
    }
    assert!(!files_containing(&state, "PLAINTEXT").is_empty());
    let turn = |turn| ChangeSelection {
        owner: ChangeOwner::Turn { session: "s1".to_owned(), turn },
        ..ChangeSelection::default()
    };
    // A command's change of a secret is not recorded, so undo passes over it.
    stage.lab.write_file(".env", "KEY=NEWSECRET\n").unwrap();
    let back = stage.lab.host.workspace().undo(&turn(1)).unwrap();
    assert_eq!(back.skipped.len(), 0);
    assert_eq!(stage.lab.read_file(".env").unwrap(), old);
    for secret in ["OLDSECRET", "NEWSECRET", "OTHERSECRET"] {
        assert_eq!(files_containing(&state, secret), Vec::<String>::new(), "{secret}");
    }
    let key = find_file(&state, "secrets.key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(key).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

fn find_file(directory: &std::path::Path, name: &str) -> std::path::PathBuf {
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_name() == name {
                return entry.path();
            }
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    panic!("no {name}");
}

#[tokio::test]
async fn hard_links_are_reported_and_recorded_on_read() {
    let stage = full_fixture().with_file("a.txt", "a\n").with_file("b.txt", "b\n");
    std::fs::hard_link(stage.lab.path("a.txt"), stage.lab.base().join("elsewhere.txt")).unwrap();
    let script = r#"
        call fs/read_text_file {"path":"$ROOT/a.txt"}
        call fs/read_text_file {"path":"$ROOT/a.txt","line":1,"limit":1}
        call fs/read_text_file {"path":"$ROOT/b.txt"}
    "#;
    let seen = stage.play_turns(&[script]).await;
    let told: Vec<bool> = seen
        .lines()
        .filter(|line| line.contains("content"))
        .map(|line| line.contains(r#""links":2"#))
        .collect();
    assert_eq!(told, [true, true, false], "{seen}");
    let log = stage.audit_table();
    let reads: Vec<&str> = log.lines().filter(|line| line.contains(".txt")).collect();
    let recorded: Vec<bool> = reads.iter().map(|line| line.contains("the file has 2 names")).collect();
    assert_eq!(recorded, [true, true, false], "{log}");
}
