//! Attacks: an agent's attempts to exceed its permissions, or to keep what has ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_host::{Host, HostError, HostOptions, HostPaths, QuietFrontEnd, SessionOptions};
use bowline_policy::question::{Question, QuestionReply};
use bowline_wire::ShutdownGrace;
use bowline_wire::schema::v1::StopReason;
use bowline_workspace::terminals::{self, SupervisorProgram};
use expect_test::expect;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use super::SUPERVISOR;
use super::host_fixture::{HostFixture, check, permission_options};
use super::session_agent::SessionAgent;

/// Makes the user approve everything, once the sender gives the signal.
fn approve_when_told(stage: &HostFixture) -> watch::Sender<bool> {
    let (say, said) = watch::channel(false);
    stage.lab.user.answer_with_async(move |_| {
        let mut said = said.clone();
        Box::pin(async move {
            said.wait_for(|yes| *yes).await.unwrap();
            QuestionReply::allow()
        })
    });
    say
}

/// Returns a tool call that would replace the text of a file in the project.
fn edit_call(name: &str, text: &str) -> Value {
    let diff = json!({"type": "diff", "path": format!("$ROOT/{name}"), "newText": text});
    json!({"toolCallId": "c1", "title": "Edit", "kind": "edit", "content": [diff]})
}

#[tokio::test]
async fn approval_of_a_merge_does_not_cover_a_revert() {
    let stage = HostFixture::new().with_file("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n").with_answers(&["yes"]);
    // The user's change is merged as long as the agent has not read it.
    check(
        &stage,
        r#"
        read a.txt
        put a.txt USER\n2\n3\n4\n5\n6\n7\n8\n9\n
        ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","newText":"1\n2\n3\n4\n5\n6\n7\n8\nAGENT\n"}]}
        read a.txt
        write a.txt 1\n2\n3\n4\n5\n6\n7\n8\nAGENT\n
        "#,
        expect![[r#"
            > read a.txt
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
            > put a.txt USER\n2\n3\n4\n5\n6\n7\n8\n9\n
            > ask {"toolCallId":"c1","kind":"edit","title":"Edit","content":[{"type":"diff","path":"$ROOT/a.txt","newText":"1\n2\n3\n4\n5\n6\n7\n8\nAGENT\n"}]}
              ? puppet asks: Edit
              ?   write $ROOT/a.txt
              ?   lines: 1 added, 1 removed
              ?   @@ -6,4 +6,4 @@
              ?    6
              ?    7
              ?    8
              ?   -9
              ?   +AGENT
              ? Asked because no rule covers it, and preset ask asks before writes
            selected once
            > read a.txt
            "USER\n2\n3\n4\n5\n6\n7\n8\n9\n"
            > write a.txt 1\n2\n3\n4\n5\n6\n7\n8\nAGENT\n
              ? puppet is about to act, and it is not what was approved: write $ROOT/a.txt
              ?   write $ROOT/a.txt
              ?   lines: 2 added, 2 removed
              ?   @@ -1,4 +1,4 @@
              ?   -USER
              ?   +1
              ?    2
              ?    3
              ?    4
              ?   @@ -6,4 +6,4 @@
              ?    6
              ?    7
              ?    8
              ?   -9
              ?   +AGENT
              ? Asked because no rule covers it, and preset ask asks before writes
            ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}
        "#]],
    )
    .await;
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "USER\n2\n3\n4\n5\n6\n7\n8\n9\n");
}

#[tokio::test]
async fn an_approval_after_its_turn_has_no_effect() {
    for how in ["cancelled", "dropped", "ended"] {
        let stage = HostFixture::new();
        let (yes, desk) = (approve_when_told(&stage), stage.lab.user.clone());
        let act = stage.custom_turn(move |actor| async move {
            let its = actor.clone();
            let writing = tokio::spawn(async move {
                let params = json!({"path": "$ROOT/made.txt", "content": "late"});
                its.record(&its.call_text("fs/write_text_file", params).await);
            });
            if how == "ended" {
                desk.wait_until(|asked, _| asked.len() == 1).await;
            } else {
                writing.await.unwrap();
            }
            StopReason::EndTurn
        });
        let (connection, session) = stage.open_session(vec![act]).await;
        {
            let asked = stage.lab.user.wait_until(|asked, _| asked.len() == 1);
            let prompting = session.prompt_text("go");
            tokio::pin!(prompting);
            tokio::select! {
                biased;
                () = asked, if how != "ended" => {}
                end = &mut prompting => assert!(how == "ended", "{end:?}"),
            }
            if how == "cancelled" {
                session.cancel();
                yes.send_replace(true);
                prompting.await.unwrap();
            }
        }
        yes.send_replace(true);
        stage.seen.wait_until(|seen| !seen.is_empty()).await;
        assert_eq!(stage.take_text(), "! -32800 Request cancelled\n", "{how}");
        assert!(stage.lab.read_file("made.txt").is_err(), "{how}");
        connection.close_session(&session).await.unwrap();
    }
}

#[tokio::test]
async fn two_sessions_of_one_id_never_share_a_grant() {
    let stage = HostFixture::new().with_answers(&["yes", "no"]);
    let (grant, granted) = oneshot::channel();
    let (finish, finished) = oneshot::channel();
    let first = stage.custom_turn(|actor| async move {
        actor.record(&actor.request_permission(edit_call("a.txt", "new\n"), permission_options()).await);
        grant.send(()).unwrap();
        finished.await.unwrap();
        StopReason::EndTurn
    });
    let second = stage.custom_turn(|actor| async move {
        granted.await.unwrap();
        actor.play_script("write a.txt new\\n").await;
        finish.send(()).unwrap();
        StopReason::EndTurn
    });
    let one = SessionAgent::new(vec![first]).connect(&stage.lab.host).await;
    let other = SessionAgent::new(vec![second]).connect(&stage.lab.host).await;
    let a = one.new_session(SessionOptions::default()).await.unwrap();
    let b = other.load_session("s1".into(), SessionOptions::default()).await.unwrap();
    let (first, second) = tokio::join!(a.prompt_text("go"), b.prompt_text("go"));
    first.unwrap();
    second.unwrap();
    one.close_session(&a).await.unwrap();
    other.close_session(&b).await.unwrap();
    assert_eq!((a.name(), b.name()), ("s1", "s1~2"));
    expect![[r#"
          ? The agent asks: Edit
          ?   write $ROOT/a.txt
          ?   new file, lines: 1
          ?   @@ -0,0 +1 @@
          ?   +new
          ? Asked because no rule covers it, and preset ask asks before writes
        selected once
        > write a.txt new\n
          ? The agent asks: write $ROOT/a.txt
          ?   write $ROOT/a.txt
          ?   new file, lines: 1
          ?   @@ -0,0 +1 @@
          ?   +new
          ? Asked because no rule covers it, and preset ask asks before writes
        ! -32030 permission denied: the user said no {"why":"the user said no"}
    "#]]
    .assert_eq(&stage.take_text());
}

#[tokio::test]
async fn a_request_answered_with_a_denial_gives_no_grant() {
    let stage = HostFixture::new().with_answers(&["yes", "no"]);
    let text = stage
        .play_custom_turn(|actor| async move {
            let only_no = json!([{"optionId": "n", "name": "No", "kind": "reject_once"}]);
            actor.record(&actor.request_permission(edit_call("a.txt", "new\n"), only_no).await);
            actor.play_script("write a.txt new\\n").await;
            StopReason::EndTurn
        })
        .await;
    expect![[r#"
          ? puppet asks: Edit
          ? ! the agent offers no yes: whatever is answered, it is told no
          ?   write $ROOT/a.txt
          ?   new file, lines: 1
          ?   @@ -0,0 +1 @@
          ?   +new
          ? Asked because no rule covers it, and preset ask asks before writes
        selected n
        > write a.txt new\n
          ? puppet asks: write $ROOT/a.txt
          ?   write $ROOT/a.txt
          ?   new file, lines: 1
          ?   @@ -0,0 +1 @@
          ?   +new
          ? Asked because no rule covers it, and preset ask asks before writes
        ! -32030 permission denied: the user said no {"why":"the user said no"}
    "#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn a_denial_does_not_tell_where_the_rules_are() {
    let stage = HostFixture::new().with_file("secret.txt", "x");
    let rule =
        "[[rules]]\neffect = \"deny\"\nkinds = [\"read\"]\npath = \"**/secret*\"\nnote = \"for my eyes\"\n";
    stage.lab.write_rules(rule).unwrap();
    check(
        &stage,
        "read secret.txt",
        expect![[r#"
        > read secret.txt
        ! -32030 permission denied: a rule of the user's denies it {"why":"a rule of the user's denies it"}
    "#]],
    )
    .await;
}

/// Marks the audit log as broken, and returns the file whose removal breaks it.
fn mark_log_broken(stage: &mut HostFixture) -> PathBuf {
    stage.log_is_broken = true;
    stage.lab.audit_paths().1
}

#[tokio::test]
async fn a_session_that_cannot_be_recorded_is_not_served() {
    let mut stage = HostFixture::new();
    let connection = stage.lab.connect(vec![]).await.unwrap();
    std::fs::remove_file(mark_log_broken(&mut stage)).unwrap();
    connection.new_session(SessionOptions::default()).await.unwrap_err();
    // Shutting down ends all sessions that are served.
    connection.shutdown(ShutdownGrace::default()).await;
    assert_eq!(stage.lab.user.events(), Vec::<String>::new());
}

#[tokio::test]
async fn a_turn_ends_for_the_front_end_also_if_the_log_fails() {
    let mut stage = HostFixture::new();
    let its = mark_log_broken(&mut stage);
    let act = stage.custom_turn(|_| async move {
        std::fs::remove_file(its).unwrap();
        StopReason::EndTurn
    });
    let (_connection, session) = stage.open_session(vec![act]).await;
    session.prompt_text("go").await.unwrap_err();
    let ended =
        { stage.lab.user.events().into_iter() }.filter(|event| event.starts_with("TurnEnded")).count();
    assert_eq!(ended, 1);
}

#[tokio::test]
async fn a_prompt_ends_with_its_session() {
    let stage = HostFixture::new();
    let act = stage.custom_turn(|_| std::future::pending());
    let (connection, session) = stage.open_session(vec![act]).await;
    let closing = async {
        let has_begun = |event: &String| event.starts_with("TurnStarted");
        stage.lab.user.wait_until(|_, shown| shown.iter().any(has_begun)).await;
        connection.close_session(&session).await.unwrap();
    };
    let both = async { tokio::join!(session.prompt_text("go"), closing) };
    let (ended, ()) = tokio::time::timeout(test_support::TEST_TIMEOUT, both).await.expect("the prompt ends");
    expect!["the session has ended: open another one"].assert_eq(&ended.unwrap_err().to_string());
}

#[tokio::test]
async fn a_dropped_load_leaves_no_session() {
    let stage = HostFixture::new();
    let player = SessionAgent { stalls_on_load: true, ..SessionAgent::default() };
    let heard = player.received_methods.clone();
    let connection = player.connect(&stage.lab.host).await;
    for times in 1..=2 {
        // The second load would be refused as a duplicate if the first had left a session.
        tokio::select! {
            loaded = connection.load_session("old".into(), SessionOptions::default()) => panic!("{loaded:?}"),
            () = heard.wait_until(|heard| heard.matches("session/load").count() == times) => {}
        }
    }
    let ended = |event: &&String| event.starts_with("SessionEnded");
    stage.lab.user.wait_until(|_, shown| shown.iter().filter(ended).count() == 2).await;
    connection.shutdown(ShutdownGrace::default()).await;
    assert_eq!(stage.lab.user.events().iter().filter(ended).count(), 2);
}

/// Returns the number of bytes of text in a question.
fn question_bytes(question: &Question) -> usize {
    let shown = question.items.iter().filter_map(|item| item.change.as_ref());
    shown.map(|change| change.after.len() + change.before.as_ref().map_or(0, |before| before.len())).sum()
}

#[tokio::test]
async fn a_small_request_makes_no_large_question() {
    let stage = HostFixture::with_options(|settings| settings.observe = false);
    stage.lab.write_file("big.txt", &"0123456789abcde\n".repeat(256 << 10)).unwrap();
    stage.lab.user.answer_with(|_| QuestionReply::deny());
    stage
        .play_custom_turn(|actor| async move {
            let diff = json!({"type": "diff", "path": "$ROOT/big.txt", "newText": "x\n"});
            let content = vec![diff; 100];
            let call = json!({"toolCallId": "c1", "title": "Edit", "kind": "edit", "content": content});
            actor.record(&actor.request_permission(call, permission_options()).await);
            StopReason::EndTurn
        })
        .await;
    let asked = stage.lab.user.questions();
    let [question] = asked.as_slice() else { panic!("{} questions", asked.len()) };
    let texts = question_bytes(question);
    assert!((4 << 20..=32 << 20).contains(&texts), "{texts} bytes for 100 small diffs of a file of 4 MiB");
    // Items without their text are still listed.
    assert_eq!(question.items.len(), 100);
}

#[tokio::test]
async fn a_directory_that_left_the_workspace_is_not_run_in() {
    let stage = HostFixture::new().with_file("sub/a.txt", "a");
    let (from, to) = (stage.lab.path("sub"), stage.lab.base().join("outside"));
    let its = to.clone();
    let stage = stage.with_person(move |_| {
        std::fs::rename(&from, &its).unwrap();
        QuestionReply::allow()
    });
    let text = stage
        .play_custom_turn(|actor| async move {
            actor.record(&actor.run_command(json!({"command": "touch here", "cwd": "$ROOT/sub"})).await);
            StopReason::EndTurn
        })
        .await;
    expect![[r#"
          ? puppet asks: run touch here
          ?   run touch here
          ?   in $ROOT/sub
          ? Asked because `touch here`: no rule covers it, and preset ask asks before commands
        ! -32602 $ROOT/sub is another directory by now: ask again
    "#]]
    .assert_eq(&text);
    assert!(!to.join("here").exists());
}

/// Creates a project, and returns its real path and one through a link.
fn linked_project(base: &Path) -> (PathBuf, PathBuf) {
    let project = base.join("real/project");
    std::fs::create_dir_all(&project).unwrap();
    std::os::unix::fs::symlink(base.join("real"), base.join("link")).unwrap();
    (project, base.join("link/project"))
}

fn open_host(project: &Path, places: &HostPaths) -> Result<Host, HostError> {
    let supervisor = SupervisorProgram { program: SUPERVISOR.into(), args: Vec::new() };
    Host::open(
        project,
        places,
        Arc::new(QuietFrontEnd),
        HostOptions::new(terminals::TerminalOptions::new(supervisor)),
    )
}

#[tokio::test]
async fn host_paths_inside_the_project_are_refused_even_behind_a_link() {
    let base = tempfile::tempdir().unwrap();
    let (project, behind) = linked_project(base.path());
    let outside = HostPaths::in_directory(base.path());
    for places in [
        HostPaths { state: project.join("own"), ..outside.clone() },
        HostPaths { state: behind.join("own"), ..outside.clone() },
        HostPaths { anchors: behind.join("own"), ..outside.clone() },
    ] {
        assert!(matches!(open_host(&project, &places), Err(HostError::InsideWorkspace(_))), "{places:?}");
    }
    open_host(&project, &outside).unwrap();
}

#[tokio::test]
async fn a_policy_path_inside_the_project_behind_a_link_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let (project, behind) = linked_project(base.path());
    // The rules do not exist yet, so an agent could create them.
    let places =
        HostPaths { policy: behind.join("config/policy.toml"), ..HostPaths::in_directory(base.path()) };
    let refused = open_host(&project, &places).unwrap_err().to_string();
    expect!["the rules in $BASE/real/project lie inside the workspace $BASE/real/project, where an agent could change them: keep them elsewhere"].assert_eq(&refused.replace(base.path().to_str().unwrap(), "$BASE"));
}

#[tokio::test]
async fn replacing_an_open_document_does_not_fail_turns() {
    let stage = HostFixture::new().with_file("a.txt", "one\n");
    let (connection, session) = stage.open_session(vec![]).await;
    session.prompt_text("go").await.unwrap();
    let path = stage.lab.path("a.txt");
    stage.lab.host.workspace().open_document(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    session.prompt_text("go").await.unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    session.prompt_text("go").await.unwrap();
    connection.close_session(&session).await.unwrap();
}

#[tokio::test]
async fn an_omitted_part_of_a_command_is_mentioned() {
    let stage = HostFixture::new().with_answers(&["no"]);
    let line = format!("true {}; ./deploy --wipe; true {}", "a".repeat(2500), "b".repeat(2500));
    stage.play_turns(&[&format!("run {line}")]).await;
    let asked = stage.lab.user.questions();
    let [question] = asked.as_slice() else { panic!("{} questions", asked.len()) };
    let text = question.to_text();
    assert!(text.contains("./deploy") || text.contains("a part of the command is not shown"), "{text}");
}
