//! Sessions and their turns: identity, numbering, cancellation and forking, and the initialisation of agents.

use std::path::Path;
use std::sync::Arc;

use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_host::{
    Host, HostCapabilities, HostError, HostOptions, HostPaths, QuietFrontEnd, SessionOptions,
};
use bowline_policy::paths::Access;
use bowline_wire::schema::v1::StopReason;
use bowline_workspace::terminals::{self, SupervisorProgram};
use expect_test::expect;
use serde_json::json;
use tokio::sync::oneshot;

use super::SUPERVISOR;
use super::host_fixture::{HostFixture, SeenLog};
use super::journal::{full_fixture, journal_table};
use super::session_agent::SessionAgent;

#[tokio::test]
async fn a_loaded_session_goes_on_counting_its_turns() {
    let stage = full_fixture().with_file("a.txt", "a\n");
    let before =
        SessionAgent::new(vec![stage.scripted_turn("write a.txt before\\n")]).connect(&stage.lab.host).await;
    let session = before.new_session(SessionOptions::default()).await.unwrap();
    assert_eq!(session.prompt_text("go").await.unwrap().turn, 1);
    before.close_session(&session).await.unwrap();
    let after =
        SessionAgent::new(vec![stage.scripted_turn("write b.txt after\\n")]).connect(&stage.lab.host).await;
    let session = after.load_session("s1".into(), SessionOptions::default()).await.unwrap();
    assert_eq!(session.prompt_text("go").await.unwrap().turn, 2);
    after.close_session(&session).await.unwrap();
    expect![[r#"
        Written $ROOT/a.txt session s1 turn 1 call - command -
        Written $ROOT/b.txt session s1 turn 2 call - command -
    "#]]
    .assert_eq(&journal_table(&stage));
    let turn = ChangeSelection {
        owner: ChangeOwner::Turn { session: "s1".to_owned(), turn: 1 },
        ..ChangeSelection::default()
    };
    stage.lab.host.workspace().undo(&turn).unwrap();
    assert_eq!(stage.lab.read_file("a.txt").unwrap(), "a\n");
    assert_eq!(stage.lab.read_file("b.txt").unwrap(), "after\n");
}

#[tokio::test]
async fn a_project_that_was_moved_or_replaced_is_noticed_and_nothing_is_done() {
    let stage = full_fixture().with_file("a.txt", "a\n");
    let project = stage.lab.base().join("project");
    let moved = stage.lab.base().join("moved");
    let (from, to) = (project.clone(), moved.clone());
    let turn = stage.custom_turn(|actor| async move {
        actor.play_script("read a.txt\nwrite b.txt b\\n").await;
        std::fs::rename(&from, &to).unwrap();
        let script = "read a.txt\nread new.txt\nwrite b.txt changed\\n\nwrite c.txt c\\n\nrun touch d.txt";
        actor.play_script(script).await;
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("a.txt"), "another\n").unwrap();
        actor.play_script(script).await;
        StopReason::EndTurn
    });
    let (_connection, session) = stage.open_session(vec![turn]).await;
    session.prompt_text("go").await.unwrap();
    let seen = stage.take_text();
    let again = session.prompt_text("go").await.unwrap_err();
    let names = |directory: &Path| {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        format!("{names:?}")
    };
    expect![[r#"
        > read a.txt
        "a\n"
        > write b.txt b\n
        ok
        > read a.txt
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        > read new.txt
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        > write b.txt changed\n
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        > write c.txt c\n
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        > run touch d.txt
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        > read a.txt
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        > read new.txt
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        > write b.txt changed\n
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        > write c.txt c\n
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        > run touch d.txt
        ! -32603 the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now
        the project directory $BASE/project was moved, deleted, replaced or unmounted: restart Bowline where it is now
        moved: ["a.txt", "b.txt"], b is "b\n"
        replaced: ["a.txt"]
    "#]].assert_eq(&format!(
        "{seen}{}\nmoved: {}, b is {:?}\nreplaced: {}\n",
        again.to_string().replace(&stage.lab.base().display().to_string(), "$BASE"),
        names(&moved),
        std::fs::read_to_string(moved.join("b.txt")).unwrap(),
        names(&project),
    ));
    // Moved back, it is the same directory.
    std::fs::remove_dir_all(&project).unwrap();
    std::fs::rename(&moved, &project).unwrap();
    session.prompt_text("go").await.unwrap();
}

/// Returns the turn-related methods that an agent received.
fn turn_methods(heard: &SeenLog) -> Vec<String> {
    let all = heard.take();
    let is_of_turns = |line: &&str| matches!(*line, "session/prompt" | "session/cancel");
    all.lines().filter(is_of_turns).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_prompt_that_is_cancelled_before_it_is_sent_is_not_sent() {
    let stage = HostFixture::new();
    let player = SessionAgent::default();
    let heard = player.received_methods.clone();
    let connection = player.connect(&stage.lab.host).await;
    let session = connection.new_session(SessionOptions::default()).await.unwrap();
    let prompting = session.prompt_text("go");
    tokio::pin!(prompting);
    // The turn has begun, and is not recorded yet.
    tokio::select! {
        biased;
        end = &mut prompting => panic!("{end:?}"),
        () = std::future::ready(()) => session.cancel(),
    }
    let end = prompting.await.unwrap();
    assert_eq!((end.turn, end.stop_reason), (1, StopReason::Cancelled));
    // The agent receives only the next turn.
    assert_eq!(session.prompt_text("go").await.unwrap().turn, 2);
    connection.close_session(&session).await.unwrap();
    assert_eq!(turn_methods(&heard), ["session/prompt"]);
}

#[tokio::test]
async fn a_cancel_never_overtakes_its_prompt() {
    let stage = HostFixture::with_options(|settings| settings.observe = false);
    for patience in 0..40 {
        let player = SessionAgent::new(vec![stage.custom_turn(|actor| async move {
            actor.turn.cx.cancelled().await;
            StopReason::Cancelled
        })]);
        let heard = player.received_methods.clone();
        let connection = player.connect(&stage.lab.host).await;
        let session = connection.new_session(SessionOptions::default()).await.unwrap();
        let cancel = async {
            let has_begun =
                |shown: &[String]| shown.iter().filter(|event| event.starts_with("TurnStarted")).count();
            if patience % 2 == 1 {
                stage.lab.user.wait_until(|_, shown| has_begun(shown) > patience).await;
            }
            for _ in 0..patience / 2 {
                tokio::task::yield_now().await;
            }
            session.cancel();
        };
        let (end, ()) = tokio::join!(session.prompt_text("go"), cancel);
        assert_eq!(end.unwrap().stop_reason, StopReason::Cancelled);
        connection.close_session(&session).await.unwrap();
        let heard = turn_methods(&heard);
        assert!(heard.is_empty() || heard == ["session/prompt", "session/cancel"], "{patience}: {heard:?}");
    }
}

#[tokio::test]
async fn cancelling_a_turn_kills_its_commands_and_leaves_those_of_earlier_ones() {
    let stage = full_fixture();
    let (tell, told) = oneshot::channel();
    let first = stage.custom_turn(|actor| async move {
        // The end of a turn does not end its commands.
        tell.send(actor.create_terminal(json!({"command": "sleep 1000"})).await.unwrap()).unwrap();
        StopReason::EndTurn
    });
    let (start, started) = oneshot::channel();
    let second = stage.custom_turn(|actor| async move {
        let terminal = actor.create_terminal(json!({"command": "sleep 1000"})).await.unwrap();
        start.send(()).unwrap();
        let exit = actor.call_text("terminal/wait_for_exit", json!({"terminalId": terminal})).await;
        actor.record(&format!("its own: {exit}"));
        StopReason::Cancelled
    });
    let third = stage.custom_turn(|actor| async move {
        let output = actor.call("terminal/output", json!({"terminalId": told.await.unwrap()})).await.unwrap();
        actor.record(&format!("the earlier one: {}", output["exitStatus"]));
        StopReason::EndTurn
    });
    let (connection, session) = stage.open_session(vec![first, second, third]).await;
    session.prompt_text("go").await.unwrap();
    let cancel = async {
        started.await.unwrap();
        session.cancel();
    };
    let (end, ()) = tokio::join!(session.prompt_text("go"), cancel);
    end.unwrap();
    session.prompt_text("go").await.unwrap();
    connection.close_session(&session).await.unwrap();
    expect![[r#"
        its own: {"signal":"SIGTERM"}
        the earlier one: null
    "#]]
    .assert_eq(&stage.take_text());
}

#[tokio::test]
async fn direct_writes_are_attributed_even_if_another_turn_begins() {
    let stage = full_fixture();
    let (write, written) = oneshot::channel();
    let (begin, begun) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let first = stage.custom_turn(|actor| async move {
        actor.play_script("put direct.txt by the agent itself").await;
        write.send(()).unwrap();
        begun.await.unwrap();
        StopReason::EndTurn
    });
    let second = stage.custom_turn(|_| async move {
        begin.send(()).unwrap();
        ended.await.unwrap();
        StopReason::EndTurn
    });
    let (connection, one) = stage.open_session(vec![first, second]).await;
    let other = connection.new_session(SessionOptions::default()).await.unwrap();
    let beside = async {
        written.await.unwrap();
        other.prompt_text("go").await.unwrap()
    };
    let its = async {
        let its = one.prompt_text("go").await.unwrap();
        end.send(()).unwrap();
        its
    };
    let (its, beside) = tokio::join!(its, beside);
    assert_eq!((its.observed_changes.len(), beside.observed_changes.len()), (1, 0));
    connection.close_session(&one).await.unwrap();
    connection.close_session(&other).await.unwrap();
    expect![[r#"
        Observed $ROOT/direct.txt session s1 turn 1 call - command -
    "#]]
    .assert_eq(&journal_table(&stage));
}

#[tokio::test]
async fn one_agent_can_be_offered_less_and_both_share_the_journal() {
    let stage = full_fixture();
    let script = |name: &str| stage.scripted_turn(&format!("write {name} x\nrun true"));
    let less =
        stage.lab.host.with_capabilities(HostCapabilities { terminal: false, ..HostCapabilities::default() });
    let one = SessionAgent::new(vec![script("one.txt")]).connect(&stage.lab.host).await;
    let other = SessionAgent::new(vec![script("other.txt")]).connect(&less).await;
    let a = one.new_session(SessionOptions::default()).await.unwrap();
    let b = other.new_session(SessionOptions::default()).await.unwrap();
    // Both agents have given their session the same id.
    assert_eq!((a.id(), b.id()), (&"s1".into(), &"s1".into()));
    a.prompt_text("go").await.unwrap();
    b.prompt_text("go").await.unwrap();
    one.close_session(&a).await.unwrap();
    other.close_session(&b).await.unwrap();
    expect![[r#"
        > write one.txt x
        ok
        > run true
        "" exit 0
        > write other.txt x
        ok
        > run true
        ! -32601 terminal/create needs clientCapabilities.terminal, which was not advertised {"method":"terminal/create","capability":"clientCapabilities.terminal"}
    "#]].assert_eq(&stage.take_text());
    expect![[r#"
        Written $ROOT/one.txt session s1 turn 1 call - command -
        Written $ROOT/other.txt session s1~2 turn 1 call - command -
    "#]]
    .assert_eq(&journal_table(&stage));
}

#[tokio::test]
async fn only_offered_login_methods_are_used() {
    let stage = HostFixture::new();
    let player = SessionAgent::default();
    let heard = player.received_methods.clone();
    let connection = player.connect(&stage.lab.host).await;
    let mut text = String::new();
    for method in ["other", "tty", "key"] {
        let said = connection.authenticate(&method.into()).await;
        text += &format!("{method}: {}\n", said.map_or_else(|error| error.to_string(), |()| "ok".to_owned()));
    }
    expect![[r#"
        other: the agent does not offer to log in by other: use one of those that it offers
        tty: to log in by tty is for the user, in a terminal: run the agent's program for it, then connect again
        key: ok
    "#]].assert_eq(&text);
    expect![[r#"
        initialize
        authenticate
    "#]]
    .assert_eq(&heard.take());
}

#[tokio::test]
async fn a_fork_has_nothing_of_what_its_session_was_allowed() {
    let stage = HostFixture::new().with_answers(&["yes session", "no"]);
    let acts = ["write a.txt 1", "write a.txt 2", "write a.txt 3"].map(|script| stage.scripted_turn(script));
    let connection = SessionAgent::new(acts.into()).connect(&stage.lab.host).await;
    let session = connection.new_session(SessionOptions::default()).await.unwrap();
    session.prompt_text("go").await.unwrap();
    let fork = connection.fork_session(&session).await.unwrap();
    assert_eq!((fork.name(), fork.files().roots().cwd()), ("f1", session.files().roots().cwd()));
    assert_eq!(session.prompt_text("go").await.unwrap().turn, 2);
    assert_eq!(fork.prompt_text("go").await.unwrap().turn, 1);
    connection.close_session(&session).await.unwrap();
    connection.close_session(&fork).await.unwrap();
    expect![[r#"
        > write a.txt 1
          ? The agent asks: write $ROOT/a.txt
          ?   write $ROOT/a.txt
          ?   new file, lines: 1
          ?   @@ -0,0 +1 @@
          ?   +1
          ?   \ No newline at end of file
          ? Asked because no rule covers it, and preset ask asks before writes
        ok
        > write a.txt 2
        ok
        > write a.txt 3
          ? The agent asks: write $ROOT/a.txt
          ?   write $ROOT/a.txt
          ?   lines: 1 added, 1 removed
          ?   @@ -1 +1 @@
          ?   -2
          ?   \ No newline at end of file
          ?   +3
          ?   \ No newline at end of file
          ? Asked because no rule covers it, and preset ask asks before writes
        ! -32030 permission denied: the user said no {"why":"the user said no"}
    "#]]
    .assert_eq(&stage.take_text());
}

#[tokio::test]
async fn an_agent_that_cannot_fork_is_not_asked_to() {
    let stage = HostFixture::new();
    let (connection, session) = stage.open_session(vec![]).await;
    let refused = connection.fork_session(&session).await.unwrap_err();
    expect!["session/fork needs agentCapabilities.sessionCapabilities.fork, which was not advertised"]
        .assert_eq(&refused.to_string());
    connection.close_session(&session).await.unwrap();
}

#[tokio::test]
async fn rules_that_lie_beside_the_project_do_not_keep_it_out() {
    let base = tempfile::tempdir().unwrap();
    let project = base.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let policy = base.path().join("policy.toml");
    std::fs::write(&policy, "preset = \"full\"\n").unwrap();
    let places = HostPaths { policy: policy.clone(), ..HostPaths::in_directory(base.path()) };
    let supervisor = SupervisorProgram { program: SUPERVISOR.into(), args: Vec::new() };
    let settings = HostOptions::new(terminals::TerminalOptions::new(supervisor));
    let host = Host::open(&project, &places, Arc::new(QuietFrontEnd), settings).unwrap();
    let session = host.workspace().session("x");
    let admit = |path: std::path::PathBuf| session.admit(&path.display().to_string(), Access::Write);
    admit(project.join("a.txt")).unwrap();
    admit(policy).unwrap_err();
}

#[tokio::test]
async fn an_agent_that_dies_before_it_is_met_has_last_words() {
    let stage = HostFixture::new();
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", "echo broken >&2; exit 3"]);
    let error = stage.lab.host.spawn(command).await.unwrap_err();
    let HostError::HandshakeFailed { exit, .. } = &error else { panic!("{error:?}") };
    expect![[r#"
        the agent ended: exit status: 3; its last words:
        broken"#]]
    .assert_eq(&exit.to_string());
    assert!(error.to_string().ends_with(&exit.to_string()), "{error}");
}

#[tokio::test]
async fn an_agent_that_does_not_answer_is_not_waited_for() {
    let lab = test_support::host_harness::HostHarness::open(SUPERVISOR, |settings| {
        settings.initialize_timeout = Some(std::time::Duration::from_millis(1));
    });
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", "echo what now >&2; cat > /dev/null; exit 0"]);
    let error = lab.unwrap().host.spawn(command).await.unwrap_err();
    let HostError::InitializeTimeout { exit: Some(_), .. } = &error else { panic!("{error:?}") };
    let expected = "the agent did not answer within 0 s: does it speak ACP? the agent ended: exit status: 0";
    assert!(error.to_string().starts_with(expected), "{error}");
}
