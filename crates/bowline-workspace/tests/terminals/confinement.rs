//! Tests of confined commands.

#![cfg(target_os = "linux")]

use std::fs;
use std::net::TcpListener;

use bowline_workspace::terminals::Confinement;
use bowline_workspace::terminals::supervisor::ConfinementSupport;

use super::fixture::{TerminalFixture, exit_code, exit_signal};

fn confined_fixture() -> TerminalFixture {
    let mut scratch = None;
    let lab = TerminalFixture::with_options(|settings| {
        scratch = Some(settings.temp_directory.clone());
        let project = settings.temp_directory.canonicalize().unwrap().join("project");
        settings.confinement = Some(Confinement { writable: vec![project] });
    });
    fs::write(scratch.unwrap().join("outside"), "kept").unwrap();
    lab
}

#[tokio::test]
async fn only_the_roots_can_be_written() {
    let lab = confined_fixture();
    let outside = lab.root.parent().unwrap().join("outside");
    let line = format!(
        "echo in > inside && cat inside; mkdir d && mv inside d/ && rm -r d && echo changed; \
         cat {0} && echo; \
         (echo x > {0}) 2>/dev/null || echo no write; (: >> {0}) 2>/dev/null || echo no append; \
         rm {0} 2>/dev/null || echo no remove; mv {0} taken 2>/dev/null || echo no move; \
         ln {0} linked 2>/dev/null || echo no link; truncate -s 0 {0} 2>/dev/null || echo no cut; \
         mkdir ../new 2>/dev/null || echo no directory; \
         echo t > $TMPDIR/t && cat $TMPDIR/t && echo null > /dev/null && echo $TMPDIR",
        outside.display()
    );
    let shown = lab.run(&line).await;
    let (text, temporary) = shown.text.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(
        text,
        "in\nchanged\nkept\nno write\nno append\nno remove\nno move\nno link\nno cut\nno directory\nt"
    );
    assert_eq!(fs::read_to_string(outside).unwrap(), "kept");
    assert!(temporary.contains("bowline-term-1-"), "{temporary}");
    assert!(!fs::exists(temporary).unwrap(), "{temporary}");
}

#[tokio::test]
async fn no_socket_can_be_opened_without_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let line =
        format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected' 2>/dev/null || echo refused");
    assert_eq!(confined_fixture().run(&line).await.text, "refused\n");
    assert_eq!(TerminalFixture::new().run(&line).await.text, "connected\n");
}

#[tokio::test]
async fn a_pair_of_sockets_is_no_network() {
    let lab = confined_fixture();
    let program = "import socket\na, b = socket.socketpair()\na.send(b'pair')\nprint(b.recv(9).decode())\n\
                   try:\n  socket.socket(socket.AF_UNIX)\nexcept PermissionError:\n  print('no socket')\n";
    fs::write(lab.root.join("pair.py"), program).unwrap();
    let shown = lab
        .run("command -v python3 >/dev/null || { printf 'pair\\nno socket\\n'; exit; }; python3 pair.py")
        .await;
    assert_eq!((shown.text.as_str(), shown.exit), ("pair\nno socket\n", exit_code(0)));
}

#[tokio::test]
async fn the_supervisor_is_out_of_reach() {
    let lab = confined_fixture();
    let thread = lab.create_process_pipe("hold");
    let id =
        lab.start("exec 9>hold; kill -9 $PPID 2>/dev/null || echo ready; setsid sleep 1000 & wait").await;
    lab.wait_for_output(&id, "ready").await;
    lab.terminals.kill(&id).await.unwrap();
    assert_eq!(Some(lab.wait(&id).await), exit_signal("SIGTERM"));
    thread.wait_until_closed().await;
}

#[tokio::test]
async fn what_cannot_be_confined_does_not_run() {
    let lab = TerminalFixture::with_options(|settings| {
        settings.confinement = Some(Confinement { writable: vec!["/no/where".into()] });
    });
    let refused = lab.start_error(super::fixture::shell_request("touch ran")).await;
    assert!(
        refused.starts_with("the command was not run because it cannot be confined: cannot open /no/where:"),
        "{refused}"
    );
    assert!(!lab.root.join("ran").exists());
}

#[test]
fn what_can_be_confined_is_known_without_being_confined() {
    let ConfinementSupport { files, network } = ConfinementSupport::detect();
    assert!(files.is_ok_and(|version| version >= 3));
    assert_eq!(network, Ok(()));
    // Only the thread that tried it is confined.
    drop(TcpListener::bind("127.0.0.1:0").unwrap());
    drop(tempfile::NamedTempFile::new().unwrap());
}
