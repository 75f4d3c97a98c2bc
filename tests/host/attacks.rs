//! What an agent might try to get more than was agreed to, or to keep what has ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_host::{Host, HostError, Places, Quiet, SessionOptions, Settings};
use bowline_state::question::{Question, Reply};
use bowline_wire::Grace;
use bowline_wire::schema::v1::StopReason;
use bowline_workspace::terminals::{self, Supervisor};
use expect_test::expect;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use super::SUPERVISOR;
use super::player::Player;
use super::stage::{Stage, check, options};

/// Lets a person sit down who says yes to everything, once told to.
fn slow(stage: &Stage) -> watch::Sender<bool> {
    let (say, said) = watch::channel(false);
    stage.lab.desk.answer_later(move |_| {
        let mut said = said.clone();
        Box::pin(async move {
            said.wait_for(|yes| *yes).await.unwrap();
            Reply::allow()
        })
    });
    say
}

/// Returns a tool call that would give a file of the project this text.
fn edit(name: &str, text: &str) -> Value {
    let diff = json!({"type": "diff", "path": format!("$ROOT/{name}"), "newText": text});
    json!({"toolCallId": "c1", "title": "Edit", "kind": "edit", "content": [diff]})
}

#[tokio::test]
async fn who_is_shown_a_merge_has_not_agreed_to_a_revert() {
    let stage = Stage::new().file("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n").answers(&["yes"]);
    // What the user changed meanwhile is merged as long as the agent has not seen it.
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
            ! -32030 permission denied: no rule allows it, and nobody is there to ask {"why":"no rule allows it, and nobody is there to ask"}
        "#]],
    )
    .await;
    assert_eq!(stage.lab.get("a.txt").unwrap(), "USER\n2\n3\n4\n5\n6\n7\n8\n9\n");
}

#[tokio::test]
async fn a_yes_that_comes_after_its_turn_does_nothing() {
    for how in ["cancelled", "dropped", "ended"] {
        let stage = Stage::new();
        let (yes, desk) = (slow(&stage), stage.lab.desk.clone());
        let act = stage.acting(move |actor| async move {
            let its = actor.clone();
            let writing = tokio::spawn(async move {
                let params = json!({"path": "$ROOT/made.txt", "content": "late"});
                its.says(&its.answer("fs/write_text_file", params).await);
            });
            if how == "ended" {
                desk.until(|asked, _| asked.len() == 1).await;
            } else {
                writing.await.unwrap();
            }
            StopReason::EndTurn
        });
        let (connection, session) = stage.session(vec![act]).await;
        {
            let asked = stage.lab.desk.until(|asked, _| asked.len() == 1);
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
        stage.seen.until(|seen| !seen.is_empty()).await;
        assert_eq!(stage.text(), "! -32800 Request cancelled\n", "{how}");
        assert!(stage.lab.get("made.txt").is_err(), "{how}");
        connection.close_session(&session).await.unwrap();
    }
}

#[tokio::test]
async fn two_sessions_of_one_id_never_share_a_grant() {
    let stage = Stage::new().answers(&["yes", "no"]);
    let (grant, granted) = oneshot::channel();
    let (finish, finished) = oneshot::channel();
    let first = stage.acting(|actor| async move {
        actor.says(&actor.ask(edit("a.txt", "new\n"), options()).await);
        grant.send(()).unwrap();
        finished.await.unwrap();
        StopReason::EndTurn
    });
    let second = stage.acting(|actor| async move {
        granted.await.unwrap();
        actor.play("write a.txt new\\n").await;
        finish.send(()).unwrap();
        StopReason::EndTurn
    });
    let one = Player::new(vec![first]).connect(&stage.lab.host).await;
    let other = Player::new(vec![second]).connect(&stage.lab.host).await;
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
    .assert_eq(&stage.text());
}

#[tokio::test]
async fn what_the_agent_is_told_was_denied_is_no_grant() {
    let stage = Stage::new().answers(&["yes", "no"]);
    let text = stage
        .turn(|actor| async move {
            let only_no = json!([{"optionId": "n", "name": "No", "kind": "reject_once"}]);
            actor.says(&actor.ask(edit("a.txt", "new\n"), only_no).await);
            actor.play("write a.txt new\\n").await;
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
    let stage = Stage::new().file("secret.txt", "x");
    let rule =
        "[[rules]]\neffect = \"deny\"\nkinds = [\"read\"]\npath = \"**/secret*\"\nnote = \"for my eyes\"\n";
    stage.lab.rules(rule).unwrap();
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

/// Returns the file without which nothing can be recorded, for a test that removes it.
fn anchor(stage: &mut Stage) -> PathBuf {
    stage.log_is_broken = true;
    stage.lab.audit().1
}

#[tokio::test]
async fn a_session_that_cannot_be_recorded_is_not_served() {
    let mut stage = Stage::new();
    let connection = stage.lab.connect(vec![]).await.unwrap();
    std::fs::remove_file(anchor(&mut stage)).unwrap();
    connection.new_session(SessionOptions::default()).await.unwrap_err();
    // This ends all sessions that are served.
    connection.shutdown(Grace::default()).await;
    assert_eq!(stage.lab.desk.shown(), Vec::<String>::new());
}

#[tokio::test]
async fn a_turn_ends_for_the_front_end_also_if_the_log_fails() {
    let mut stage = Stage::new();
    let its = anchor(&mut stage);
    let act = stage.acting(|_| async move {
        std::fs::remove_file(its).unwrap();
        StopReason::EndTurn
    });
    let (_connection, session) = stage.session(vec![act]).await;
    session.prompt_text("go").await.unwrap_err();
    let ended = { stage.lab.desk.shown().into_iter() }.filter(|event| event.starts_with("TurnEnded")).count();
    assert_eq!(ended, 1);
}

#[tokio::test]
async fn a_prompt_ends_with_its_session() {
    let stage = Stage::new();
    let act = stage.acting(|_| std::future::pending());
    let (connection, session) = stage.session(vec![act]).await;
    let closing = async {
        let has_begun = |event: &String| event.starts_with("TurnStarted");
        stage.lab.desk.until(|_, shown| shown.iter().any(has_begun)).await;
        connection.close_session(&session).await.unwrap();
    };
    let both = async { tokio::join!(session.prompt_text("go"), closing) };
    let (ended, ()) = tokio::time::timeout(test_support::PATIENCE, both).await.expect("the prompt ends");
    expect!["the session has ended: open another one"].assert_eq(&ended.unwrap_err().to_string());
}

#[tokio::test]
async fn a_load_that_nobody_waits_for_leaves_no_session() {
    let stage = Stage::new();
    let player = Player { stalls: true, ..Player::default() };
    let heard = player.heard.clone();
    let connection = player.connect(&stage.lab.host).await;
    for times in 1..=2 {
        // The second would be refused as the double of one that nobody has.
        tokio::select! {
            loaded = connection.load_session("old".into(), SessionOptions::default()) => panic!("{loaded:?}"),
            () = heard.until(|heard| heard.matches("session/load").count() == times) => {}
        }
    }
    let ended = |event: &&String| event.starts_with("SessionEnded");
    stage.lab.desk.until(|_, shown| shown.iter().filter(ended).count() == 2).await;
    connection.shutdown(Grace::default()).await;
    assert_eq!(stage.lab.desk.shown().iter().filter(ended).count(), 2);
}

/// Returns how many bytes of text a question has.
fn bytes(question: &Question) -> usize {
    let shown = question.items.iter().filter_map(|item| item.change.as_ref());
    shown.map(|change| change.after.len() + change.before.as_ref().map_or(0, |before| before.len())).sum()
}

#[tokio::test]
async fn a_small_request_makes_no_large_question() {
    let stage = Stage::with(|settings| settings.observe = false);
    stage.lab.put("big.txt", &"0123456789abcde\n".repeat(256 << 10)).unwrap();
    stage.lab.desk.answer(|_| Reply::deny());
    stage
        .turn(|actor| async move {
            let diff = json!({"type": "diff", "path": "$ROOT/big.txt", "newText": "x\n"});
            let content = vec![diff; 100];
            let call = json!({"toolCallId": "c1", "title": "Edit", "kind": "edit", "content": content});
            actor.says(&actor.ask(call, options()).await);
            StopReason::EndTurn
        })
        .await;
    let asked = stage.lab.desk.asked();
    let [question] = asked.as_slice() else { panic!("{} questions", asked.len()) };
    let texts = bytes(question);
    assert!((4 << 20..=32 << 20).contains(&texts), "{texts} bytes for 100 small diffs of a file of 4 MiB");
    // Whatever is not shown is still named.
    assert_eq!(question.items.len(), 100);
}

#[tokio::test]
async fn a_directory_that_left_the_workspace_is_not_run_in() {
    let stage = Stage::new().file("sub/a.txt", "a");
    let (from, to) = (stage.lab.path("sub"), stage.lab.base().join("outside"));
    let its = to.clone();
    let stage = stage.person(move |_| {
        std::fs::rename(&from, &its).unwrap();
        Reply::allow()
    });
    let text = stage
        .turn(|actor| async move {
            actor.says(&actor.run(json!({"command": "touch here", "cwd": "$ROOT/sub"})).await);
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

/// Makes a project, and returns where it is and where it seems to be, behind a link.
fn linked(base: &Path) -> (PathBuf, PathBuf) {
    let project = base.join("real/project");
    std::fs::create_dir_all(&project).unwrap();
    std::os::unix::fs::symlink(base.join("real"), base.join("link")).unwrap();
    (project, base.join("link/project"))
}

fn open(project: &Path, places: &Places) -> Result<Host, HostError> {
    let supervisor = Supervisor { program: SUPERVISOR.into(), args: Vec::new() };
    Host::open(project, places, Arc::new(Quiet), Settings::new(terminals::Settings::new(supervisor)))
}

#[tokio::test]
async fn what_is_the_users_own_may_not_lie_in_the_project_not_even_behind_a_link() {
    let base = tempfile::tempdir().unwrap();
    let (project, behind) = linked(base.path());
    let outside = Places::below(base.path());
    for places in [
        Places { state: project.join("own"), ..outside.clone() },
        Places { state: behind.join("own"), ..outside.clone() },
        Places { anchors: behind.join("own"), ..outside.clone() },
    ] {
        assert!(matches!(open(&project, &places), Err(HostError::InsideWorkspace(_))), "{places:?}");
    }
    open(&project, &outside).unwrap();
}

#[tokio::test]
async fn rules_that_would_come_to_lie_inside_the_project_behind_a_link_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let (project, behind) = linked(base.path());
    // There are none yet: an agent could be the first to write them.
    let places = Places { policy: behind.join("config/policy.toml"), ..Places::below(base.path()) };
    let refused = open(&project, &places).unwrap_err().to_string();
    expect!["the rules in $BASE/real/project lie inside the workspace $BASE/real/project, where an agent could change them: keep them elsewhere"].assert_eq(&refused.replace(base.path().to_str().unwrap(), "$BASE"));
}

#[tokio::test]
async fn what_takes_the_place_of_an_open_document_does_not_fail_turns() {
    let stage = Stage::new().file("a.txt", "one\n");
    let (connection, session) = stage.session(vec![]).await;
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
async fn who_is_not_shown_the_middle_of_a_command_is_told_so() {
    let stage = Stage::new().answers(&["no"]);
    let line = format!("true {}; ./deploy --wipe; true {}", "a".repeat(2500), "b".repeat(2500));
    stage.play(&[&format!("run {line}")]).await;
    let asked = stage.lab.desk.asked();
    let [question] = asked.as_slice() else { panic!("{} questions", asked.len()) };
    let text = question.text();
    assert!(text.contains("./deploy") || text.contains("a part of the command is not shown"), "{text}");
}
