//! Approvals: when the user is asked about an agent's operations, and how often.

use bowline_access::approvals::MAX_TRANSIENT_RULES;
use bowline_policy::grants::GrantHolder;
use bowline_policy::operation::{CommandSpec, Operation, OperationKind, OperationTarget};
use bowline_policy::policy::{Effect, Rule, RuleLifetime, RuleMatcher, RuleSource, RuleSpec};
use bowline_policy::question::QuestionReply;
use bowline_protocol::schema::v1::{
    CreateTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest, StopReason, TerminalOutputRequest,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use bowline_protocol::terminal::Invocation;
use bowline_wire::schema::v1::Error;
use expect_test::expect;
use test_support::host_harness::HostHarness;

use super::SUPERVISOR;
use super::host_fixture::HostFixture;

#[tokio::test]
async fn an_agent_that_never_asks_is_asked_about() {
    let lab = HostHarness::open(SUPERVISOR, |_| {}).unwrap();
    lab.write_file("a.txt", "one\ntwo\n").unwrap();
    lab.user.answer_with(|_| QuestionReply::allow());
    let path = lab.path("a.txt");
    let stop = lab
        .run_turn(move |turn| async move {
            let session = turn.session.clone();
            let read = turn.client.read_text_file(ReadTextFileRequest::new(session.clone(), &path)).await?;
            assert_eq!(read.content, "one\ntwo\n");
            turn.client
                .write_text_file(WriteTextFileRequest::new(session.clone(), &path, "one\nTWO\n"))
                .await?;
            let terminal = turn
                .client
                .create_terminal(CreateTerminalRequest::new(session.clone(), "echo hello; exit 3"))
                .await?;
            let id = terminal.terminal_id;
            let exit = turn
                .client
                .wait_for_terminal_exit(WaitForTerminalExitRequest::new(session.clone(), id.clone()))
                .await?;
            assert_eq!(exit.exit_status.exit_code, Some(3));
            let output =
                turn.client.terminal_output(TerminalOutputRequest::new(session.clone(), id.clone())).await?;
            assert_eq!((output.output.as_str(), output.truncated), ("hello\n", false));
            turn.client.release_terminal(ReleaseTerminalRequest::new(session, id)).await?;
            Ok::<_, Error>(StopReason::EndTurn)
        })
        .await
        .unwrap();
    assert_eq!(stop, StopReason::EndTurn);
    assert_eq!(lab.read_file("a.txt").unwrap(), "one\nTWO\n");
    let asked: String = lab.user.questions().iter().map(|question| question.to_text()).collect();
    expect![[r#"
        puppet asks: write $BASE/project/a.txt
          write $BASE/project/a.txt
          lines: 1 added, 1 removed
          @@ -1,2 +1,2 @@
           one
          -two
          +TWO
        Asked because no rule covers it, and preset ask asks before writes
        puppet asks: run echo hello; exit 3
          run echo hello; exit 3
          in $BASE/project
        Asked because `echo hello`: no rule covers it, and preset ask asks before commands
    "#]]
    .assert_eq(&asked.replace(lab.base().to_str().unwrap(), "$BASE"));
}

#[tokio::test]
async fn an_approval_from_between_turns_is_void_once_a_turn_begins() {
    let stage = HostFixture::new().with_file("a.txt", "a").with_answers(&["yes", "yes", "no"]);
    let (send, receive) = tokio::sync::oneshot::channel();
    let first = stage.custom_turn(|actor| async move {
        send.send(actor).ok();
        StopReason::EndTurn
    });
    let (connection, session) = stage.open_session(vec![first, stage.scripted_turn("read a.txt")]).await;
    session.prompt_text("go").await.unwrap();
    let actor = receive.await.unwrap();
    let ask =
        r#"ask {"toolCallId":"c1","title":"Echo","kind":"execute","rawInput":{"command":["echo","hi"]}}"#;
    let run = r#"argv ["echo","hi"]"#;
    // Without a turn between, the approval is used.
    actor.play_script(&format!("{ask}\n{run}\n{ask}")).await;
    session.prompt_text("go").await.unwrap();
    actor.play_script(run).await;
    connection.close_session(&session).await.unwrap();
    expect![[r#"
        > ask {"toolCallId":"c1","title":"Echo","kind":"execute","rawInput":{"command":["echo","hi"]}}
          ? puppet asks: Echo
          ?   run echo hi
          ?   in $ROOT
          ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
        selected once
        > argv ["echo","hi"]
        "hi\n" exit 0
        > ask {"toolCallId":"c1","title":"Echo","kind":"execute","rawInput":{"command":["echo","hi"]}}
          ? puppet asks: Echo
          ?   run echo hi
          ?   in $ROOT
          ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
        selected once
        > read a.txt
        "a"
        > argv ["echo","hi"]
          ? puppet asks: run echo hi
          ?   run echo hi
          ?   in $ROOT
          ? Asked because `echo hi`: no rule covers it, and preset ask asks before commands
        ! -32030 permission denied: the user said no {"why":"the user said no"}
    "#]]
    .assert_eq(&stage.take_text());
}

#[tokio::test]
async fn a_full_list_of_rules_keeps_those_that_deny() {
    let lab = HostHarness::open(SUPERVISOR, |_| {}).unwrap();
    let approvals = lab.host.approvals();
    let rule = |effect, word: String| {
        let matcher = RuleMatcher::Command(vec![word]);
        let lifetime = RuleLifetime::Session { session: "s".to_owned() };
        let source = RuleSource::UserAnswer { session: "s".to_owned() };
        let kinds = OperationKind::Execute.into();
        Rule::new(RuleSpec { effect, kinds, matcher, lifetime, expires: None, source, note: None }).unwrap()
    };
    let effect = |word: &str| {
        let invocation = Invocation::Argv(vec![word.to_owned()]);
        let cwd = lab.path("").trim_end_matches('/').to_owned();
        let command = CommandSpec { invocation, cwd, env: Vec::new(), named_paths: Vec::new() };
        let operation = Operation { kind: OperationKind::Execute, target: OperationTarget::Command(command) };
        let holder = GrantHolder { session: "s".to_owned(), turn: Some(1) };
        approvals.judge(&holder, &operation).unwrap().effect
    };
    approvals.add_transient_rule(rule(Effect::Deny, "denied".to_owned()));
    for number in 0..=MAX_TRANSIENT_RULES {
        approvals.add_transient_rule(rule(Effect::Allow, format!("allowed{number}")));
    }
    assert_eq!(effect("denied"), Effect::Deny);
    assert_eq!(effect("allowed0"), Effect::Ask, "the oldest made room");
    assert_eq!(effect(&format!("allowed{MAX_TRANSIENT_RULES}")), Effect::Allow);
    for number in 0..=MAX_TRANSIENT_RULES {
        approvals.add_transient_rule(rule(Effect::Deny, format!("denied{number}")));
    }
    approvals.add_transient_rule(rule(Effect::Allow, "late".to_owned()));
    assert_eq!(effect("late"), Effect::Ask);
    assert_eq!(effect("denied"), Effect::Deny);
    for number in [0, 1, MAX_TRANSIENT_RULES - 1, MAX_TRANSIENT_RULES] {
        assert_eq!(effect(&format!("denied{number}")), Effect::Deny);
    }
}
