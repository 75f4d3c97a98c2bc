//! Who is asked before an agent's operations, and how often.

use bowline_state::question::Reply;
use bowline_state::schema::v1::{
    CreateTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest, StopReason, TerminalOutputRequest,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use bowline_wire::schema::v1::Error;
use expect_test::expect;
use test_support::lab::Lab;

use super::SUPERVISOR;

#[tokio::test]
async fn an_agent_that_never_asks_is_asked_about() {
    let lab = Lab::open(SUPERVISOR, |_| {}).unwrap();
    lab.put("a.txt", "one\ntwo\n").unwrap();
    lab.desk.answer(|_| Reply::allow());
    let path = lab.path("a.txt");
    let stop = lab
        .turn(move |turn| async move {
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
    assert_eq!(lab.get("a.txt").unwrap(), "one\nTWO\n");
    let asked: String = lab.desk.asked().iter().map(|question| question.text()).collect();
    expect![[r#"
        puppet is about to act, and has not asked: write $BASE/project/a.txt
          write $BASE/project/a.txt
          lines: 1 added, 1 removed
          @@ -1,2 +1,2 @@
           one
          -two
          +TWO
        Asked because no rule covers it, and preset ask asks before writes
        puppet is about to act, and has not asked: run echo hello; exit 3
          run echo hello; exit 3
          in $BASE/project
        Asked because `echo hello`: no rule covers it, and preset ask asks before commands
    "#]]
    .assert_eq(&asked.replace(lab.base().to_str().unwrap(), "$BASE"));
}
