//! Tests of the user at the terminal: questions and forms in a real pseudo-terminal.

use expect_test::expect;
use test_support::TEST_TIMEOUT;
use test_support::wait::wait_until_async;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{fixture, scripted_agents};
use crate::fixture::{CliFixture, bowline, search_path};

/// A run in a terminal, and its user.
pub(crate) struct InteractiveRun {
    terminal: pty_process::Pty,
    child: tokio::process::Child,
    output: String,
}

impl InteractiveRun {
    pub(crate) fn start(scene: &CliFixture, arguments: &[&str]) -> Self {
        let (terminal, other) = pty_process::open().unwrap();
        terminal.resize(pty_process::Size::new(24, 200)).unwrap();
        let child = pty_process::Command::new(bowline())
            .args(arguments)
            .current_dir(scene.project())
            .env_clear()
            .env("HOME", scene.home())
            .env("PATH", search_path())
            .env("NO_COLOR", "1")
            .kill_on_drop(true)
            .spawn(other)
            .unwrap();
        Self { terminal, child, output: String::new() }
    }

    /// Waits until a text is shown after the last one.
    pub(crate) async fn wait_for_text(&mut self, text: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            if let Some(at) = self.output.find(text) {
                return self.output.drain(..at + text.len()).collect();
            }
            let read = tokio::time::timeout(TEST_TIMEOUT, self.terminal.read(&mut bytes)).await;
            match read.unwrap_or_else(|_| panic!("no {text} in {}", self.output)) {
                // On some systems, reading from a closed terminal is an error.
                Ok(0) | Err(_) => panic!("it ended without {text}: {}", self.output),
                Ok(read) => self.output += &String::from_utf8_lossy(&bytes[..read]).replace('\r', ""),
            }
        }
    }

    pub(crate) async fn type_text(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).await.unwrap();
    }

    /// Waits for its exit, and returns the output since, and the exit code.
    pub(crate) async fn wait_for_exit(mut self) -> String {
        let mut bytes = [0; 4096];
        while let Ok(Ok(read @ 1..)) =
            tokio::time::timeout(TEST_TIMEOUT, self.terminal.read(&mut bytes)).await
        {
            self.output += &String::from_utf8_lossy(&bytes[..read]).replace('\r', "");
        }
        let status = self.child.wait().await.unwrap();
        format!("{}--- {:?}\n", self.output, status.code())
    }
}

pub(super) const PERMISSION_PROMPT: &str = "Allow it? [y/s/p/n/N/r/?] ";

#[tokio::test]
async fn of_two_answers_for_once_a_plain_yes_selects_the_first() {
    let scene = fixture();
    let agent = scripted_agents::script_permission_request(
        &scene,
        &[("a", "allow_once"), ("b", "allow_once"), ("c", "reject_once"), ("d", "reject_once")],
    );
    for (typed, chosen) in [("y\n", "a"), ("2\n", "b"), ("n\n", "c"), ("4\n", "d")] {
        let mut seat = InteractiveRun::start(&scene, &["run", "--agent", &agent, "go"]);
        let asked = scene.normalize(&seat.wait_for_text("Allow it? [1-4/y/s/p/n/N/r/?] ").await);
        assert!(asked.contains("\n  1 Plan a (yes)\n") && asked.contains("\ny allow once (1) "), "{asked}");
        assert!(asked.contains(" n reject (3) "), "{asked}");
        seat.type_text(typed).await;
        seat.wait_for_text(&format!("Chosen: {chosen}")).await;
        seat.wait_for_exit().await;
    }
}

#[tokio::test]
async fn a_question_is_asked_with_all_that_it_rests_on() {
    let scene = fixture();
    let mut seat =
        InteractiveRun::start(&scene, &["run", "replace \"two\" with \"2\" in a.txt\nrun rm a.txt"]);
    expect![[r#"

        Bowline asks: write $PROJECT/a.txt
          write $PROJECT/a.txt
          lines: 1 added, 1 removed
          @@ -1,2 +1,2 @@
           one
          -two
          +2
        Asked because no rule covers it, and preset ask asks before writes
        y allow once   s this session   p this project   n reject   N always reject   r reject and say why
        s, p and N hold for the file $PROJECT/a.txt
        s2, p2 and N2 for files in $PROJECT and below
        Allow it? [y/s/p/n/N/r/?] "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_text(PERMISSION_PROMPT).await));
    seat.type_text("what?\n").await;
    expect![[r#"
        what?
        "what?" is no answer here.
        y  allow this once                       n  reject this once
        s  allow for this session                N  reject in this project from now on
        p  allow in this project from now on     r  reject and say why: r, or r REASON
        always     allow in every project from now on; written out, so that it is no slip
        s2, p2 …   for more than the narrowest, where that is offered
        1, 2, 3 …  what the agent offers, where there is more to choose than yes and no
        Allow it? [y/s/p/n/N/r/?] "#]]
    .assert_eq(&seat.wait_for_text(PERMISSION_PROMPT).await);
    seat.type_text("y\n").await;
    expect![[r#"
        y
        ✓ edit: Edit a.txt (TIME)
            @@ -1,2 +1,2 @@
             one
            -two
            +2

        Changed `a.txt`.

        Bowline asks: run rm a.txt
        ! removes a.txt
          run rm a.txt
          in $PROJECT
        Asked because `rm a.txt`: no rule covers it, and preset ask asks before commands
        y allow once   s this session   p this project   n reject   N always reject   r reject and say why
        s, p and N hold for exactly the command `rm a.txt`
        Allow it? [y/s/p/n/N/r/?] "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_text(PERMISSION_PROMPT).await));
    assert_eq!(scene.read_file("a.txt"), "one\n2\n");
    seat.type_text("r\n").await;
    seat.wait_for_text("Why not? ").await;
    seat.type_text("keep it\n").await;
    expect![[r#"
        keep it
        ✗ run: Run rm a.txt (TIME)
            `rm a.txt`: permission denied: the user said no: keep it

        Running `rm a.txt` did not work:

        ```
        `rm a.txt`: permission denied: the user said no: keep it
        ```

        Changed 1 file:
          a.txt  +1 −1
        To undo: bowline undo
        --- Some(0)
    "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_exit().await));
    assert!(scene.has_file("a.txt"));
}

#[tokio::test]
async fn an_answer_can_hold_for_longer() {
    let scene = fixture();
    let prompt = "run touch one\nrun touch one";
    let mut seat = InteractiveRun::start(&scene, &["run", "--format", "quiet", prompt]);
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("s\n").await;
    expect![[r#"
        s
        `touch one`:

        ```
        [`touch one` ended with exit code 0, through the editor, TIME]
        ```

        `touch one`:

        ```
        [`touch one` ended with exit code 0, through the editor, TIME]
        ```
        --- Some(0)
    "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_exit().await));
    let mut seat = InteractiveRun::start(&scene, &["run", "--format", "quiet", "run touch one"]);
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("p\n").await;
    expect![[r#"
        p
        bowline: rule saved in this project: allow execute: exactly touch one
        bowline: to remove it: bowline policy forget 'touch one'
        `touch one`:

        ```
        [`touch one` ended with exit code 0, through the editor, TIME]
        ```
        --- Some(0)
    "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_exit().await));
    expect![[r#"
        `touch one`:

        ```
        [`touch one` ended with exit code 0, through the editor, TIME]
        ```
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--format", "quiet", "run touch one"]));
    // The command that the message named.
    expect![[r#"
        forgotten: allow execute: exactly touch one  (this workspace)
        --- 0
    "#]]
    .assert_eq(&scene.run(&["policy", "forget", "touch one"]));
}

#[tokio::test]
async fn a_capital_n_rejects_from_now_on_and_no_letter_allows_everywhere() {
    let scene = fixture();
    let mut seat = InteractiveRun::start(&scene, &["run", "--format", "quiet", "write b.txt: x"]);
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("a\n").await;
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("\n").await;
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("N\n").await;
    expect![[r#"
        N
        bowline: rule saved in this project: deny write: $PROJECT/b.txt
        bowline: to remove it: bowline policy forget $PROJECT/b.txt
        Writing `b.txt` did not work:

        ```
        nothing was written: b.txt: permission denied: the user said no
        ```
        --- Some(0)
    "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_exit().await));
    assert!(!scene.has_file("b.txt"));
    expect![[r#"
        Writing `b.txt` did not work:

        ```
        nothing was written: b.txt: permission denied: a rule of the user's denies it
        ```
        --- stderr
        bowline: denied: write b.txt: by rule 1 of $HOME/.config/bowline/policy.toml for this workspace (deny write: path `b.txt`)
        --- 5
    "#]].assert_eq(&scene.run(&["run", "--format", "quiet", "write b.txt: x"]));
    expect![[r#"
        forgotten: deny write: $PROJECT/b.txt  (this workspace)
        --- 0
    "#]]
    .assert_eq(&scene.run(&["policy", "forget", &scene.file_path("b.txt")]));
}

#[tokio::test]
async fn what_is_asked_again_shows_what_changed() {
    let scene = fixture();
    scene.write_file("a.txt", "one\ntwo\nthree\n");
    let agent = scripted_agents::late_writer_script(&scene);
    let mut seat = InteractiveRun::start(&scene, &["run", "--agent", &agent, "go"]);
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("y\n").await;
    expect![[r#"
        y

        ! the file changed since you approved this:
          lines: 1 added, 0 removed
          @@ -1,3 +1,4 @@
           one
           two
           three
          +mine
        tiny is about to act, and it is not what was approved: write $PROJECT/a.txt
          write $PROJECT/a.txt
          lines: 1 added, 1 removed
          @@ -1,4 +1,4 @@
          -one
          +ONE
           two
           three
           mine
        Asked because no rule covers it, and preset ask asks before writes
        y allow once   s this session   p this project   n reject   N always reject   r reject and say why
        s, p and N hold for the file $PROJECT/a.txt
        s2, p2 and N2 for files in $PROJECT and below
        Allow it? [y/s/p/n/N/r/?] "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_text(PERMISSION_PROMPT).await));
    seat.type_text("y\n").await;
    seat.wait_for_text("Changed 1 file").await;
    assert_eq!(scene.read_file("a.txt"), "ONE\ntwo\nthree\nmine\n");
}

#[tokio::test]
async fn ctrl_c_at_a_question_cancels_the_turn() {
    let scene = fixture();
    let mut seat = InteractiveRun::start(&scene, &["run", "run touch made"]);
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("\x03").await;
    expect![[r#"
        ^C
        bowline: cancelling the turn; Ctrl-C again ends everything at once
        ✗ run: Run touch made (TIME)
            run touch made
            in $PROJECT
        bowline: interrupted
        --- Some(130)
    "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_exit().await));
    assert!(!scene.has_file("made"));
}

#[tokio::test]
async fn who_leaves_the_terminal_is_not_there() {
    let scene = fixture();
    let mut seat = InteractiveRun::start(&scene, &["run", "--format", "quiet", "run touch made"]);
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("\x04").await;
    expect![[r#"

        Running `touch made` did not work:

        ```
        `touch made`: permission denied: no rule allows it, and the user cannot be asked
        ```
        bowline: denied: run touch made: the user cannot be asked; --approve all would allow it
        --- Some(5)
    "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_exit().await));
    assert!(!scene.has_file("made"));
}

#[tokio::test]
async fn a_form_is_filled_in_line_by_line() {
    let scene = fixture();
    let turn = [
        "read -r line",
        r#"printf '%s\n' '{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"sessionId":"s1","mode":"form","message":"Who are you?","requestedSchema":{"type":"object","required":["name"],"properties":{"name":{"type":"string","title":"Your name"},"age":{"type":"integer","minimum":1,"default":30}}}}}'"#,
        "read -r answer",
        r#"printf '%s\n' "$answer" > answer.json"#,
        &scripted_agents::script_stop("end_turn"),
    ]
    .join("\n");
    let agent = scripted_agents::scripted_agent(&scene, &turn);
    let mut seat = InteractiveRun::start(&scene, &["run", "--agent", &agent, "go"]);
    expect![[r#"

        tiny asks: Who are you?
        An empty line keeps what stands in brackets, or leaves a field out; ! declines.
        Your name: "#]]
    .assert_eq(&seat.wait_for_text("Your name: ").await);
    seat.type_text("Ada\n").await;
    seat.wait_for_text("age number [30]: ").await;
    seat.type_text("0\n").await;
    seat.wait_for_text("Your name: ").await;
    seat.type_text("Ada\n").await;
    seat.wait_for_text("age number [30]: ").await;
    seat.type_text("\n").await;
    expect![[r#"


        Changed 1 file:
          answer.json  +1 −0 (new) (found on disk)
        To undo: bowline undo
        What was found may be your own work, saved meanwhile: it stays, unless you add --found
        --- Some(0)
    "#]]
    .assert_eq(&seat.wait_for_exit().await);
    let answer: serde_json::Value = serde_json::from_str(&scene.read_file("answer.json")).unwrap();
    expect![[r#"{"action":"accept","content":{"age":30,"name":"Ada"}}"#]]
        .assert_eq(&answer["result"].to_string());
}

#[tokio::test]
async fn what_happens_meanwhile_is_told_after_the_answer() {
    let scene = fixture();
    let path = scene.file_path("b.txt");
    let write = format!(
        r#"printf '%s\n' '{{"jsonrpc":"2.0","id":"w","method":"fs/write_text_file","params":{{"sessionId":"s1","path":"{path}","content":"x\n"}}}}'"#
    );
    let turn = [
        "read -r line",
        &scripted_agents::script_message("I write."),
        &write,
        "until [ -e go ]; do :; done",
        &scripted_agents::script_message(" And talk."),
        // Once this is answered, everything before it has been received.
        r#"printf '%s\n' '{"jsonrpc":"2.0","id":"r","method":"_nothing","params":{}}'"#,
        "read -r line; touch heard; read -r line",
        &scripted_agents::script_stop("end_turn"),
    ]
    .join("\n");
    let agent = scripted_agents::scripted_agent(&scene, &turn);
    let mut seat = InteractiveRun::start(&scene, &["run", "--agent", &agent, "go"]);
    seat.wait_for_text(PERMISSION_PROMPT).await;
    scene.write_file("go", "");
    wait_until_async("the agent's file", || scene.has_file("heard")).await;
    seat.type_text("y\n").await;
    expect![[r#"
        y

         And talk.

        Changed 3 files:
          b.txt  +1 −0 (new)
          go  +0 −0 (new) (found on disk)
          heard  +0 −0 (new) (found on disk)
        To undo: bowline undo
        What was found may be your own work, saved meanwhile: it stays, unless you add --found
        --- Some(0)
    "#]]
    .assert_eq(&scene.normalize(&seat.wait_for_exit().await));
}

#[tokio::test]
async fn what_was_typed_before_a_question_is_no_answer_to_it() {
    let scene = fixture();
    let turn = format!(
        "write b.txt: 1\nrun sh -c 'until [ -e {} ]; do sleep 0.01; done'\nwrite c.txt: 2",
        scene.file_path("go")
    );
    let mut seat = InteractiveRun::start(&scene, &["run", &turn]);
    for _ in ["write", "run"] {
        seat.wait_for_text(PERMISSION_PROMPT).await;
        seat.type_text("y\n").await;
        seat.wait_for_text("y\n").await;
    }
    // While the command runs, many lines are typed: the terminal echoes each.
    for _ in 0..40 {
        seat.type_text("y\n").await;
        seat.wait_for_text("y\n").await;
    }
    scene.write_file("go", "");
    seat.wait_for_text("write ").await;
    seat.wait_for_text(PERMISSION_PROMPT).await;
    seat.type_text("n\n").await;
    let told = seat.wait_for_exit().await;
    assert!(told.ends_with("--- Some(0)\n"), "{told}");
    assert!(scene.has_file("b.txt") && !scene.has_file("c.txt"));
}
