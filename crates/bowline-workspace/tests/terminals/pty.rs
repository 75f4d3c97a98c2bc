//! Tests of commands with a pseudo-terminal.

use bowline_workspace::terminals::PtySize;

use super::fixture::{TerminalFixture, exit_code, exit_signal};

fn pty_fixture() -> TerminalFixture {
    TerminalFixture::with_options(|settings| settings.pty = Some(PtySize { columns: 132, rows: 40 }))
}

#[tokio::test]
async fn a_command_has_a_terminal_of_its_size() {
    let shown = pty_fixture()
        .run("tty | sed s/[0-9]*$//; stty size; test -t 0 && test -t 1 && test -t 2; exit $?")
        .await;
    assert_eq!((shown.text.as_str(), shown.exit), ("/dev/pts/\n40 132\n", exit_code(0)));
}

#[tokio::test]
async fn a_command_is_the_foreground_process() {
    // A background process that uses the terminal would be stopped.
    let shown = pty_fixture()
        .run("stty -echo; echo set; sh -c 'stty sane -opost; echo inner'; set -m; sleep 0 & wait; echo end")
        .await;
    assert_eq!((shown.text.as_str(), shown.exit), ("set\ninner\nend\n", exit_code(0)));
}

#[tokio::test]
async fn stdin_of_a_pty_is_empty() {
    let shown = pty_fixture().run("cat; cat; echo read: $?; sh -c 'read line; echo $?'").await;
    assert_eq!((shown.text.as_str(), shown.exit), ("read: 0\n1\n", exit_code(0)));
}

#[tokio::test]
async fn all_of_a_long_output_comes() {
    let shown = pty_fixture().run("seq 1 20000; printf '\\033[31mred\\033[m\\n'; exit 5").await;
    let lines: Vec<_> = shown.text.lines().collect();
    assert_eq!((lines.len(), lines[19_999], lines[20_000]), (20_001, "20000", "red"));
    assert_eq!(shown.exit, exit_code(5));
}

#[tokio::test]
async fn killing_a_pty_command_ends_its_process_tree() {
    let lab = pty_fixture();
    let thread = lab.create_process_pipe("hold");
    let id = lab.start("exec 9>hold; trap '' HUP TERM; setsid sleep 1000 & nohup sleep 1000 & echo ready; sleep 1000; sleep 1000").await;
    lab.wait_for_output(&id, "ready").await;
    lab.terminals.kill(&id).await.unwrap();
    assert_eq!(Some(lab.wait(&id).await), exit_signal("SIGKILL"));
    thread.wait_until_closed().await;
}

#[tokio::test]
async fn a_background_that_holds_it_does_not_delay_the_exit() {
    let lab = pty_fixture();
    let id = lab.start("sleep 1000 & echo done").await;
    assert_eq!(Some(lab.wait(&id).await), exit_code(0));
    assert_eq!(lab.terminals.output(&id).await.unwrap().text, "done\n");
    lab.terminals.release(&id).await.unwrap();
}
