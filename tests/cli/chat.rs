//! Tests of `bowline chat` in a real terminal, with the offline model.

use expect_test::expect;
use test_support::own_server::OwnServer;
use test_support::wait::wait_until_async;

use crate::fixture::{CliFixture, bowline, write_script};
use crate::run::scripted_agents;
use crate::screen::{Screen, descendants, find_agent_descendant, is_running, wait_until_stopped};

const ENTER: &str = "\r";
const ESCAPE: &str = "\u{1b}";
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const CTRL_L: &str = "\u{c}";
const CTRL_Z: &str = "\u{1a}";
const CTRL_R: &str = "\u{12}";
const F1: &str = "\u{1b}OP";
const F2: &str = "\u{1b}OQ";
const F3: &str = "\u{1b}OR";
const F5: &str = "\u{1b}[15~";
const UP: &str = "\u{1b}[A";

/// Opens a conversation, and waits until it accepts a prompt.
async fn start_chat(scene: &CliFixture, arguments: &[&str]) -> Screen {
    let arguments: Vec<&str> = std::iter::once("chat").chain(arguments.iter().copied()).collect();
    let mut screen = Screen::start(scene, &arguments);
    screen.wait_for_text("● ready").await;
    screen
}

impl Screen {
    /// Sends a prompt to the agent.
    async fn send_prompt(&mut self, text: &str) {
        self.paste(text).await;
        self.send(ENTER).await;
    }

    /// Has the agent run an endless command, and waits until it is running.
    async fn start_endless_command(&mut self) {
        self.send_prompt("run echo started; sleep 1000").await;
        self.wait_for_text("◐ run").await;
        self.send("\t").await;
        self.wait_for_text("Tab back").await;
        self.send(ENTER).await;
        self.wait_for_text("  │ started").await;
        self.send("\t").await;
        self.wait_until_gone("Tab back").await;
    }

    /// Waits until a question can be answered, and returns the screen.
    async fn wait_for_question(&mut self) -> String {
        self.wait_until("a question", |screen| screen.contains("reject") && !screen.contains("a moment"))
            .await
    }

    /// Quits, and returns the screen.
    async fn quit(&mut self) -> String {
        let processes = descendants(self.process_id());
        self.send(CTRL_D).await;
        assert_eq!(self.wait_for_exit().await, Some(0));
        assert_eq!(processes.into_iter().filter(|id| is_running(*id)).count(), 0, "something still runs");
        assert!(self.is_restored(), "the terminal is not given back");
        self.text()
    }

    /// Returns whether the original screen is restored, with a cursor.
    fn is_restored(&self) -> bool {
        let written = String::from_utf8_lossy(&self.raw_output);
        let after = written.rsplit("\u{1b}[?1049h").next().unwrap_or_default();
        after.contains("\u{1b}[?1049l") && after.contains("\u{1b}[?25h") && after.contains("\u{1b}[?2004l")
    }
}

#[tokio::test]
async fn a_write_is_approved_seen_and_undone() {
    let scene = CliFixture::new();
    scene.write_file("notes.txt", "one\ntwo\nthree\n");
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("replace \"two\" with \"TWO\" in notes.txt").await;
    let question = screen.wait_for_question().await;
    expect![[r#"
         Bowline · replace "two" with "TWO" in notes.txt        $PROJECT
        ❯ replace "two" with "TWO" in notes.txt

        ▸ ○ edit   Edit notes.txt  +1 −1







        ────────────────────────────────────────────────────────────────────────────────
        Bowline asks: write $PROJECT/notes.txt
        Asked because no rule covers it, and preset ask asks before writes
        ────────────────────────────────────────────────────────────────────────────────
        write $PROJECT/notes.txt
        @@ -1,3 +1,3 @@
        1 1  one
        2   -two
          2 +TWO
        3 3  three
        y allow once  s this session  p this project  n reject  N always reject
        s, p and N hold for the file $PROJECT/notes.txt
        r reject, why…  m more…  e edit  v split  Ctrl-C cancel  ? help
    "#]]
    .assert_eq(&scene.normalize(&question));
    assert_eq!(scene.read_file("notes.txt"), "one\ntwo\nthree\n");
    // Keys that answer nothing.
    screen.send(ENTER).await;
    screen.send("a").await;
    screen.wait_for_text("a moment").await;
    screen.wait_for_question().await;
    screen.send("y").await;
    screen.wait_for_text("✓ edit").await;
    screen.wait_for_text("Changed 1 file: notes.txt +1 −1 · F2").await;
    screen.wait_for_text("● ready").await;
    assert_eq!(scene.read_file("notes.txt"), "one\nTWO\nthree\n");
    screen.send(F2).await;
    screen.wait_for_text("hunk 1 of 1").await;
    screen.send("u").await;
    screen.wait_for_text("· undone").await;
    assert_eq!(scene.read_file("notes.txt"), "one\ntwo\nthree\n");
    screen.send("r").await;
    screen.wait_for_text("redone in 1 file").await;
    screen.wait_until_gone("· undone").await;
    assert_eq!(scene.read_file("notes.txt"), "one\nTWO\nthree\n");
    screen.send(ESCAPE).await;
    screen.wait_for_text("● ready").await;
    let last = screen.quit().await;
    assert!(last.contains("To go on with this session: bowline chat --session"), "{last}");
}

#[tokio::test]
async fn several_files_are_written_with_one_question_and_undone_together() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\n");
    let script = scene.home().join("script");
    let steps = r#"
{"calls": [{"name": "read_text_file", "input": {"path": "a.txt"}}]}
{"expect": "one", "calls": [{"name": "write_files", "input": {"files": [{"path": "a.txt", "content": "1\ntwo\n"}, {"path": "docs/b.txt", "content": "b\n"}]}}]}
{"expect": "Created docs/b.txt", "text": "Both are written."}
"#;
    std::fs::write(&script, steps).unwrap();
    let agent = format!("{} agent --mode full --model script:{}", bowline().display(), script.display());
    let mut screen = start_chat(&scene, &["--agent", &agent]).await;
    screen.resize(100, 40);
    screen.send_prompt("go").await;
    screen.wait_for_question().await;
    let question = screen.wait_for_text("docs/b.txt").await;
    let asked = question.find("Bowline asks").unwrap();
    expect![[r#"
        Bowline asks: change files, 2 operations at once
        Asked because no rule covers it, and preset ask asks before writes
        ─ 2 operations, 1 looked at ────────────────────────────────────────────────────────────────────────
        write $PROJECT/a.txt                                                            +1 −1
        write $PROJECT/docs/b.txt                                                       +1 −0
        ─ 1 of 2 ───────────────────────────────────────────────────────────────────────────────────────────
        write $PROJECT/a.txt
        @@ -1,2 +1,2 @@
        1   -one
          1 +1
        2 2  two
        y allow all 2 once  s this session  p this project  n reject  N always reject
        s, p and N hold for the file $PROJECT/a.txt, the file $PROJECT/docs/b…
        r reject, why…  m more…  Tab next  v split  Ctrl-C cancel  ? help
    "#]]
    .assert_eq(&scene.normalize(&question[asked..]));
    // It is allowed once every file was in sight.
    screen.send("\t").await;
    screen.wait_for_text("─ 2 of 2 ─").await;
    screen.wait_for_text("1 +b").await;
    assert!(!scene.has_file("docs/b.txt"));
    assert_eq!(scene.read_file("a.txt"), "one\ntwo\n");
    screen.send("y").await;
    screen.wait_for_text("Both are written.").await;
    screen.wait_for_text("Changed 2 files").await;
    screen.wait_for_text("● ready").await;
    assert_eq!(
        (scene.read_file("a.txt").as_str(), scene.read_file("docs/b.txt").as_str()),
        ("1\ntwo\n", "b\n")
    );
    screen.send_prompt("/undo").await;
    screen.wait_for_text("undone: ").await;
    assert!(!scene.has_file("docs/b.txt"));
    assert_eq!(scene.read_file("a.txt"), "one\ntwo\n");
    screen.quit().await;
}

#[tokio::test]
async fn what_is_rejected_is_not_done() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("write new.txt: text").await;
    screen.wait_for_question().await;
    screen.send("n").await;
    screen.wait_for_text("✗ edit").await;
    screen.wait_for_text("● ready").await;
    assert!(!scene.has_file("new.txt"));
    screen.quit().await;
}

#[tokio::test]
async fn a_conversation_with_an_agent_on_a_server() {
    let scene = CliFixture::new();
    let server = OwnServer::start(&bowline(), &scene.home(), &scene.project(), "127.0.0.1:0", &[]).unwrap();
    let arguments = ["chat", "--connect", &format!("http://{}", server.address())];
    let mut screen = Screen::start_with(&scene, &arguments, &[("BOWLINE_TOKEN", server.token())]);
    screen.wait_for_text("● ready").await;
    screen.send_prompt("write new.txt: text").await;
    screen.wait_for_question().await;
    screen.send("y").await;
    screen.wait_for_text("✓ edit").await;
    screen.wait_for_text("● ready").await;
    assert_eq!(scene.read_file("new.txt").trim_end(), "text");
    screen.quit().await;
    assert!(server.terminate().unwrap());
}

#[tokio::test]
async fn a_part_of_a_write_is_left_out_and_the_rest_is_edited() {
    let scene = CliFixture::new();
    let before: String = (1..=20).map(|line| format!("line {line}\n")).collect();
    let after = before.replace("line 2\n", "line two\n").replace("line 18\n", "line eighteen\n");
    scene.write_file("notes.txt", &before);
    let editor =
        crate::fixture::write_script(&scene.home(), "editor", "#!/bin/sh\nsed -i s/eighteen/XVIII/ \"$1\"\n");
    let mut screen = Screen::start_with(&scene, &["chat"], &[("EDITOR", &editor)]);
    screen.wait_for_text("● ready").await;
    screen.resize(100, 40);
    screen.send_prompt(&format!("read notes.txt\nwrite notes.txt:\n```\n{after}```")).await;
    screen.wait_for_question().await;
    screen.wait_for_text("x leave out hunk 1 of 2").await;
    screen.send("x").await;
    screen.wait_until_gone("line two").await;
    screen.wait_for_question().await;
    screen.send("e").await;
    screen.wait_for_text("line XVIII").await;
    screen.wait_for_question().await;
    screen.send("y").await;
    screen.wait_for_text("you changed “write ").await;
    // The agent's tool call reports the edited text.
    screen.wait_for_text("+line XVIII").await;
    screen.wait_for_text("● ready").await;
    assert_eq!(scene.read_file("notes.txt"), before.replace("line 18\n", "line XVIII\n"));
    screen.quit().await;
}

#[tokio::test]
async fn what_may_be_the_users_own_is_not_undone_by_a_slip() {
    let scene = CliFixture::new();
    scene.write_file("notes.txt", "one\n");
    let mut screen = start_chat(&scene, &[]).await;
    screen.resize(160, 30);
    screen.send_prompt("replace \"one\" with \"two\" in notes.txt").await;
    screen.wait_for_question().await;
    // Saved by the user while the agent waits.
    scene.write_file("zz-mine.txt", "my own work\n");
    screen.send("y").await;
    screen.wait_for_text("Changed 1 file: notes.txt +1 −1 · F2").await;
    screen.wait_for_text("● ready").await;
    screen.send(F2).await;
    let listed = screen.wait_for_text("hunk 1 of 1").await;
    assert!(listed.contains("1 more may be yours: a") && !listed.contains("zz-mine.txt"), "{listed}");
    screen.send("a").await;
    let listed = screen.wait_for_text("zz-mine.txt (may be yours)").await;
    // The first recorded change is listed first.
    let row = |name: &str| listed.lines().position(|line| line.starts_with(&format!("  {name}")));
    let way = if row("zz-mine.txt") < row("notes.txt") { "\u{1b}[H" } else { "\u{1b}[F" };
    screen.send(way).await;
    screen.wait_for_text("my own work").await;
    screen.send("u").await;
    let asked = screen.wait_for_text("y undo zz-mine.txt").await;
    assert!(asked.contains("Undoing deletes zz-mine.txt."), "{asked}");
    screen.send(ENTER).await;
    screen.wait_for_text("not undone").await;
    assert_eq!(scene.read_file("zz-mine.txt"), "my own work\n");
    screen.send("u").await;
    screen.wait_for_text("y undo zz-mine.txt").await;
    screen.send("y").await;
    screen.wait_for_text("undone in 1 file").await;
    assert!(!scene.has_file("zz-mine.txt"));
    assert_eq!(scene.read_file("notes.txt"), "two\n");
    screen.send(ESCAPE).await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn an_answer_becomes_a_rule_that_is_shown_and_can_be_removed() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.resize(160, 60);
    screen.send_prompt("run touch one\nrun touch one").await;
    let question = screen.wait_for_question().await;
    assert!(question.contains("s, p and N hold for exactly the command `touch one`"), "{question}");
    screen.send("p").await;
    let told = screen.wait_for_text("to remove it: bowline policy forget 'touch one'").await;
    assert!(told.contains("rule saved in this project: allow execute: exactly touch one"), "{told}");
    screen.wait_for_text("● ready").await;
    screen.send_prompt("run touch two").await;
    screen.wait_for_question().await;
    screen.send("N").await;
    screen.wait_for_text("to remove it: bowline policy forget 'touch two'").await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
    assert!(scene.has_file("one") && !scene.has_file("two"));
    for command in ["touch one", "touch two"] {
        let told = scene.run(&["policy", "forget", command]);
        assert!(told.starts_with("forgotten: ") && told.ends_with("--- 0\n"), "{told}");
    }
}

#[tokio::test]
async fn what_is_asked_again_says_why_and_shows_what_changed() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\nthree\n");
    let agent = scripted_agents::late_writer_script(&scene);
    let mut screen = start_chat(&scene, &["--agent", &agent]).await;
    screen.resize(80, 40);
    screen.send_prompt("go").await;
    screen.wait_for_question().await;
    screen.send("y").await;
    screen.wait_for_text("asks again").await;
    let again = screen.wait_for_question().await;
    for text in
        ["! the file changed since you approved this:", "  4 +mine", "What it would do now:", "  1 +ONE"]
    {
        assert!(again.contains(text), "{text}:\n{again}");
    }
    // The same key would count as held.
    screen.send("s").await;
    screen.wait_for_text("● ready").await;
    assert_eq!(scene.read_file("a.txt"), "ONE\ntwo\nthree\nmine\n");
    screen.quit().await;
}

#[tokio::test]
async fn a_turn_is_taken_back_by_a_command() {
    let scene = CliFixture::new();
    scene.write_file("notes.txt", "one\n");
    let mut screen = start_chat(&scene, &["--approve", "edits"]).await;
    for (prompt, file) in
        [("replace \"one\" with \"two\" in notes.txt", "notes.txt"), ("write new.txt: text", "new.txt")]
    {
        screen.send_prompt(prompt).await;
        screen.wait_for_text(&format!("Changed 1 file: {file}")).await;
        screen.wait_for_text("● ready").await;
    }
    screen.send("/un").await;
    screen.wait_for_text("Takes back what the last turn changed").await;
    screen.send("\t").await;
    screen.wait_until_gone("Takes back what the last turn changed").await;
    screen.send(ENTER).await;
    screen.wait_for_text("undone: new.txt").await;
    assert!(!scene.has_file("new.txt"));
    assert_eq!(scene.read_file("notes.txt"), "two\n");
    screen.send_prompt("/undo").await;
    screen.wait_for_text("undone: notes.txt").await;
    assert_eq!(scene.read_file("notes.txt"), "one\n");
    screen.send_prompt("/undo").await;
    screen.wait_for_text("there is nothing to undo").await;
    screen.send_prompt("/changes").await;
    screen.wait_for_text("changes by agents").await;
    screen.send(ESCAPE).await;
    screen.wait_for_text("● ready").await;
    screen.send_prompt("/quit").await;
    assert_eq!(screen.wait_for_exit().await, Some(0));
}

#[tokio::test]
async fn the_start_screen_has_examples_that_work() {
    let scene = CliFixture::new();
    scene.write_file("README.md", "# Shop\n");
    scene.write_file("notes.txt", "an old hat\n");
    let mut screen = start_chat(&scene, &["--approve", "edits"]).await;
    let start = screen.text();
    let examples: Vec<&str> = start.lines().filter_map(|line| line.strip_prefix("  ❯ ")).collect();
    assert_eq!(examples, ["list", "read @README.md", "replace \"old\" with \"new\" in notes.txt"]);
    screen.resize(80, 60);
    for (example, seen) in examples.iter().zip(["README.md (7 bytes)", "# Shop", "Changed notes.txt"]) {
        screen.send_prompt(example).await;
        screen.wait_for_text(seen).await;
        screen.wait_for_text("● ready").await;
    }
    assert_eq!(scene.read_file("notes.txt"), "an new hat\n");
    screen.send_prompt("@README.md").await;
    screen.wait_until("two reads", |screen| screen.matches("Read README.md").count() == 2).await;
    screen.wait_for_text("● ready").await;
    screen.send_prompt("help").await;
    screen.wait_for_text("write PATH: TEXT").await;
    screen.quit().await;
}

#[tokio::test]
async fn a_command_of_ones_own_is_run_and_ended() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("!echo made by me > mine.txt; cat mine.txt; exit 3").await;
    screen.wait_for_text("  made by me\n  ended: 3").await;
    screen.send_prompt("!sleep 1000").await;
    screen.wait_for_text("Esc ends it").await;
    let running = descendants(screen.process_id());
    screen.send(ESCAPE).await;
    screen.wait_for_text("your command was ended").await;
    screen.wait_for_text("● ready").await;
    screen.send(F2).await;
    screen.wait_for_text("Nothing was changed here").await;
    screen.send(ESCAPE).await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
    assert_eq!(running.into_iter().filter(|id| is_running(*id)).count(), 0, "something still runs");
}

#[tokio::test]
async fn a_prompt_is_written_in_an_editor() {
    let scene = CliFixture::new();
    let editor =
        write_script(&scene.home(), "editor", "#!/bin/sh\nprintf ' and more\\nsay the end\\n' >> \"$2\"\n");
    let editor = format!("{editor} --wait");
    let mut screen = Screen::start_with(&scene, &["chat"], &[("EDITOR", &editor)]);
    screen.wait_for_text("● ready").await;
    screen.send("say some").await;
    screen.wait_for_text("❯ say some").await;
    screen.send("\u{f}").await;
    screen.wait_for_text("❯ say some and more\n  say the end").await;
    screen.send(ENTER).await;
    screen.wait_for_text("\nsome and more").await;
    screen.wait_for_text("\nthe end").await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn prompts_wait_for_each_other() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &["--approve", "all"]).await;
    let fifo = scene.file_path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    screen.send_prompt("run cat fifo").await;
    screen.wait_for_text("◐ run").await;
    screen.send_prompt("say the second").await;
    screen.wait_for_text("next: say the second").await;
    screen.send_prompt("say the third").await;
    screen.wait_for_text("next: say the third").await;
    tokio::task::spawn_blocking(move || std::fs::write(fifo, "x\n").unwrap()).await.unwrap();
    screen.wait_for_text("\nthe second").await;
    screen.wait_for_text("\nthe third").await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn a_command_shows_its_output_while_it_runs() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &["--approve", "all"]).await;
    let fifo = scene.file_path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    screen.send_prompt("run echo first; cat fifo; exit 3").await;
    screen.wait_for_text("◐ run").await;
    screen.send("\t").await;
    screen.wait_for_text("Tab back").await;
    screen.send(ENTER).await;
    screen.wait_for_text("  │ first").await;
    // Opening the pipe blocks until the command reads it.
    tokio::task::spawn_blocking(move || std::fs::write(fifo, "second\n").unwrap()).await.unwrap();
    screen.wait_for_text("  │ second").await;
    screen.wait_for_text("ended: 3").await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn a_turn_is_cancelled_and_its_command_ends() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &["--approve", "all"]).await;
    screen.start_endless_command().await;
    screen.send(ESCAPE).await;
    screen.wait_for_text("cancelled after").await;
    screen.wait_for_text("● ready").await;
    screen.send_prompt("say still here").await;
    screen.wait_for_text("\nstill here").await;
    screen.quit().await;
}

#[tokio::test]
async fn ctrl_c_twice_leaves_and_nothing_stays_running() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &["--approve", "all"]).await;
    screen.start_endless_command().await;
    let processes = descendants(screen.process_id());
    assert!(processes.len() >= 2, "the agent and the command run: {processes:?}");
    screen.send(CTRL_C).await;
    screen.send(CTRL_C).await;
    assert_eq!(screen.wait_for_exit().await, Some(0));
    assert_eq!(processes.into_iter().filter(|id| is_running(*id)).count(), 0, "something still runs");
}

#[tokio::test]
async fn a_dead_agent_is_started_again_with_its_session() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("say remember me").await;
    screen.wait_for_text("\nremember me").await;
    screen.wait_for_text("● ready").await;
    let agent = find_agent_descendant(screen.process_id()).expect("the agent runs");
    assert!(std::process::Command::new("kill").args(["-9", &agent.to_string()]).status().unwrap().success());
    let gone = screen.wait_for_text("The agent is gone").await;
    assert!(gone.contains("SIGKILL"), "{gone}");
    screen.send(CTRL_R).await;
    screen.wait_for_text("the agent was started again").await;
    let again = screen.wait_for_text("\nremember me").await;
    assert!(again.starts_with(" Bowline · say remember me"), "the title is still there: {again}");
    screen.send_prompt("say and now?").await;
    screen.wait_for_text("\nand now?").await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn the_screen_follows_the_size_of_the_terminal() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("say one two three four five six seven eight nine ten").await;
    screen.wait_for_text("\none two three four five six seven eight nine ten").await;
    screen.wait_for_text("● ready").await;
    screen.resize(30, 10);
    screen.wait_for_text("\none two three four five six\nseven eight nine ten").await;
    screen.resize(10, 3);
    screen.wait_for_text("too small").await;
    screen.resize(100, 30);
    screen.wait_for_text("\none two three four five six seven eight nine ten").await;
    screen.quit().await;
}

/// A resize and keys that arrive at the same time.
#[tokio::test]
async fn keys_that_come_with_a_new_size_are_read() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    for turn in 0..40 {
        screen.resize(if turn % 2 == 0 { 90 } else { 80 }, 24);
        screen.send(&format!("word{turn}")).await;
        screen.wait_for_text(&format!("word{turn}")).await;
        screen.send("\u{15}").await;
        screen.wait_until_gone(&format!("word{turn}")).await;
    }
    screen.quit().await;
}

#[tokio::test]
async fn a_session_is_left_and_opened_again() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("say in the first").await;
    screen.wait_for_text("\nin the first").await;
    screen.wait_for_text("● ready").await;
    screen.send(F3).await;
    screen.wait_for_text("New session").await;
    screen.send(UP).await;
    screen.send(ENTER).await;
    screen.wait_until_gone("in the first").await;
    screen.wait_for_text("● ready").await;
    screen.send(F3).await;
    screen.wait_for_text("say in the first").await;
    screen.send("in the first").await;
    screen.send(ENTER).await;
    screen.wait_for_text("\nin the first").await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn modes_and_help_are_shown_and_chosen() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send(F1).await;
    screen.wait_for_text("take back the prompt that waits").await;
    screen.send(ESCAPE).await;
    screen.wait_until_gone("take back the prompt that waits").await;
    screen.send(F5).await;
    screen.wait_for_text("Read only").await;
    screen.send("read only").await;
    screen.send(ENTER).await;
    screen.wait_until("the mode", |text| text.lines().last().unwrap().contains("Read only")).await;
    screen.quit().await;
}

#[tokio::test]
async fn commands_and_files_are_completed() {
    let scene = CliFixture::new();
    scene.write_file("src/deep/needle.rs", "fn main() {}\n");
    scene.write_file(".gitignore", "hidden.rs\n");
    scene.write_file("hidden.rs", "");
    let mut screen = start_chat(&scene, &[]).await;
    screen.send("say @needl").await;
    let offered = screen.wait_for_text("@src/deep/needle.rs").await;
    assert!(!offered.contains("hidden.rs"));
    screen.send("\t").await;
    screen.wait_for_text("say @src/deep/needle.rs").await;
    screen.send(CTRL_C).await;
    screen.send("/com").await;
    screen.wait_for_text("/compact").await;
    screen.send(CTRL_C).await;
    screen.wait_until_gone("/compact").await;
    screen.quit().await;
}

/// An agent that opens new sessions, and answers no other request that takes work.
const STUBBORN_AGENT: &str = r#"#!/bin/sh
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"list":{}}}}' ;;
    *'"session/new"'*) result='{"sessionId":"first"}' ;;
    *'"session/list"'*) result='{"sessions":[{"sessionId":"second","cwd":"'$PWD'"}]}' ;;
    *'"session/prompt"'*)
        chunk='{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"never done"}}'
        echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"first","update":'$chunk'}}'
        continue
        ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'$id',"result":'$result'}'
done
"#;

#[tokio::test]
async fn an_agent_that_does_not_answer_is_given_up_and_ended() {
    let scene = CliFixture::new();
    let agent = write_script(&scene.home(), "stubborn", STUBBORN_AGENT);
    let mut screen = start_chat(&scene, &["--agent", &agent]).await;
    screen.send(F3).await;
    screen.wait_for_text("second").await;
    screen.send("second").await;
    screen.send(ENTER).await;
    screen.wait_for_text("Esc gives it up").await;
    screen.send(ESCAPE).await;
    screen.wait_for_text("it was given up").await;
    screen.wait_for_text("● ready").await;
    screen.send_prompt("hello").await;
    screen.wait_for_text("never done").await;
    screen.send(ESCAPE).await;
    screen.wait_for_text("Esc again ends the agent").await;
    screen.send(ESCAPE).await;
    screen.wait_for_text("The agent is gone").await;
    let last = screen.quit().await;
    let command = format!("bowline chat --agent {agent} --session first");
    assert!(last.replace('\n', "").contains(&command), "{last}");
}

#[tokio::test]
async fn a_file_with_a_blank_in_its_name_is_attached_and_told() {
    let scene = CliFixture::new();
    scene.write_file("my file.txt", "twelve bytes");
    let mut screen = start_chat(&scene, &[]).await;
    screen.send("say @my").await;
    screen.wait_for_text("@\"my file.txt\"").await;
    screen.send("\t").await;
    screen.wait_for_text("❯ say @\"my file.txt\"").await;
    screen.send(ENTER).await;
    screen.wait_for_text("· attached my file.txt, 12 bytes").await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn the_last_session_is_one_in_which_something_was_said() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("say remember me").await;
    screen.wait_for_text("\nremember me").await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
    start_chat(&scene, &[]).await.quit().await;
    let mut screen = start_chat(&scene, &["--session", "last"]).await;
    screen.wait_for_text("\nremember me").await;
    screen.quit().await;
}

#[tokio::test]
async fn nothing_is_said_of_a_session_in_which_nothing_was() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    let last = screen.quit().await;
    assert!(!last.contains("To go on"), "{last}");
}

#[tokio::test]
async fn what_is_allowed_unasked_is_on_the_screen() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &["--approve", "edits"]).await;
    let shown = screen.wait_for_text("Accept edits").await;
    assert!(shown.contains("without a question"), "{shown}");
    screen.quit().await;
}

#[tokio::test]
async fn without_a_terminal_it_says_so() {
    let scene = CliFixture::new();
    expect![[r#"
        --- stderr
        bowline: chat needs a terminal that can move its cursor: start it in one, or use `bowline run`, also in scripts and pipes
        --- 2
    "#]]
    .assert_eq(&scene.run(&["chat"]));
}

#[tokio::test]
async fn a_session_that_is_not_there_is_said_on_the_screen_of_before() {
    let scene = CliFixture::new();
    let mut screen = Screen::start(&scene, &["chat", "--session", "nosuch"]);
    assert_eq!(screen.wait_for_exit().await, Some(4));
    let last = screen.text();
    assert!(last.contains("bowline: ") && last.contains("nosuch"), "{last}");
}

#[tokio::test]
async fn an_agent_that_does_not_start_is_said_with_its_last_words() {
    let scene = CliFixture::new();
    let mut screen = Screen::start(&scene, &["chat", "--agent", "sh -c 'echo out of tea >&2; exit 3'"]);
    assert_eq!(screen.wait_for_exit().await, Some(1));
    let last = screen.text();
    assert!(last.contains("bowline: ") && last.contains("out of tea"), "{last}");
    assert!(screen.is_restored(), "the terminal is not given back");
}

#[tokio::test]
async fn a_model_that_there_is_not_is_said_on_the_screen_of_before() {
    let scene = CliFixture::new();
    let mut screen = Screen::start(&scene, &["chat", "--model", "nonsense/x"]);
    let code = screen.wait_for_exit().await;
    let last = screen.text();
    assert!(matches!(code, Some(1 | 2)) && last.contains("bowline: ") && last.contains("nonsense"), "{last}");
}

#[tokio::test]
async fn a_terminal_that_cannot_move_its_cursor_is_refused() {
    let scene = CliFixture::new();
    for kind in ["dumb", ""] {
        let mut screen = Screen::start_with(&scene, &["chat"], &[("TERM", kind)]);
        assert_eq!(screen.wait_for_exit().await, Some(2), "{kind:?}");
        assert!(screen.text().contains("bowline run"), "{}", screen.text());
    }
}

#[tokio::test]
async fn who_ends_it_from_outside_leaves_nothing_behind() {
    for name in ["-TERM", "-QUIT"] {
        let scene = CliFixture::new();
        let mut screen = start_chat(&scene, &["--approve", "all"]).await;
        screen.start_endless_command().await;
        let processes = descendants(screen.process_id());
        send_signal(name, screen.process_id());
        assert_eq!(screen.wait_for_exit().await, Some(130), "{name}");
        assert_eq!(
            processes.into_iter().filter(|id| is_running(*id)).count(),
            0,
            "something still runs: {name}"
        );
        assert!(screen.is_restored(), "the terminal is not given back: {name}");
    }
}

#[tokio::test]
async fn it_ends_when_its_terminal_is_gone_even_without_a_signal() {
    let scene = CliFixture::new();
    let mut screen = Screen::start_below_shell(&scene, &["chat"]);
    screen.wait_for_text("● ready").await;
    // Drawing would fail, and end it, too: once this is shown, there is nothing left to draw.
    screen.send("a draft").await;
    screen.wait_for_text("a draft").await;
    let programs = descendants(screen.process_id());
    let _shell = screen.hang_up();
    wait_until_async("the end of the chat", || !programs.iter().any(|id| is_running(*id))).await;
}

#[tokio::test]
async fn who_stops_it_has_the_terminal_back_until_it_goes_on() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("say still here").await;
    screen.wait_for_text("\nstill here").await;
    screen.wait_for_text("● ready").await;
    // No shell started it that would continue it.
    screen.send(CTRL_Z).await;
    screen.send_prompt("say and still").await;
    screen.wait_for_text("\nand still").await;
    screen.wait_for_text("● ready").await;
    send_signal("-TSTP", screen.process_id());
    screen.wait_until_gone("still here").await;
    assert!(screen.is_restored(), "the terminal is not given back");
    wait_until_stopped(screen.process_id()).await;
    send_signal("-CONT", screen.process_id());
    screen.wait_for_text("\nstill here").await;
    screen.quit().await;
}

#[tokio::test]
async fn everything_is_drawn_anew_at_a_key() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.draw_over("\u{1b}[5;5Hstray");
    screen.wait_for_text("stray").await;
    screen.send(CTRL_L).await;
    screen.wait_until_gone("stray").await;
    screen.quit().await;
}

#[tokio::test]
async fn the_wheel_scrolls_unless_the_mouse_selects() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("stream 2000").await;
    screen.wait_for_text("2000").await;
    screen.wait_for_text("● ready").await;
    screen.send("\u{1b}[<64;10;10M").await;
    screen.wait_for_text("more below").await;
    for _ in 0..2 {
        screen.send("\u{1b}[<65;10;10M").await;
    }
    screen.wait_until_gone("more below").await;
    screen.send("\u{1b}[19~").await;
    screen.wait_for_text("the mouse selects text").await;
    assert!(String::from_utf8_lossy(&screen.raw_output).contains("\u{1b}[?1000l"));
    screen.quit().await;
}

#[tokio::test]
async fn a_text_is_found_in_the_conversation() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("say hay").await;
    screen.wait_for_text("\nhay").await;
    screen.wait_for_text("● ready").await;
    screen.send_prompt("say the needle\nstream 2000").await;
    screen.wait_for_text("2000").await;
    screen.wait_for_text("● ready").await;
    assert!(!screen.text().contains("the needle"));
    screen.send("\u{6}").await;
    screen.wait_for_text("Enter older").await;
    screen.send("NEEDLE").await;
    screen.send(ENTER).await;
    screen.wait_for_text("the needle").await;
    screen.send(ESCAPE).await;
    screen.wait_for_text("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn the_wheel_does_not_recall_what_was_said() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    let has = |screen: &Screen, text: &str| String::from_utf8_lossy(&screen.raw_output).contains(text);
    assert!(has(&screen, "\u{1b}[?1007l") && !has(&screen, "\u{1b}[?1007h"));
    screen.quit().await;
    assert!(has(&screen, "\u{1b}[?1007h"));
}

/// Sends a signal to a process.
fn send_signal(name: &str, process: u32) {
    let arguments = [name, &process.to_string()];
    assert!(std::process::Command::new("kill").args(arguments).status().unwrap().success());
}

#[tokio::test]
async fn an_agent_that_dies_at_work_takes_nothing_along() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &["--approve", "all"]).await;
    screen.start_endless_command().await;
    screen.send("half a thought").await;
    let agent = find_agent_descendant(screen.process_id()).expect("the agent runs");
    assert!(std::process::Command::new("kill").args(["-9", &agent.to_string()]).status().unwrap().success());
    screen.wait_for_text("The agent is gone").await;
    screen.send(CTRL_R).await;
    screen.wait_for_text("the agent was started again").await;
    screen.wait_for_text("❯ half a thought").await;
    screen.send(CTRL_C).await;
    screen.wait_until_gone("half a thought").await;
    screen.quit().await;
}

#[tokio::test]
async fn a_flood_does_not_keep_a_person_from_typing() {
    let scene = CliFixture::new();
    let mut screen = start_chat(&scene, &[]).await;
    screen.send_prompt("stream 100000").await;
    screen.wait_for_text("working").await;
    screen.send("am I heard?").await;
    let heard = screen.wait_for_text("❯ am I heard?").await;
    assert!(heard.contains("working"), "the flood was over before: {heard}");
    screen.send(ESCAPE).await;
    screen.wait_for_text("cancelled after").await;
    screen.send(CTRL_C).await;
    screen.wait_until_gone("am I heard?").await;
    screen.quit().await;
}

#[tokio::test]
async fn colours_are_left_out_where_they_are_not_wanted() {
    let scene = CliFixture::new();
    let coloured = |screen: &Screen| String::from_utf8_lossy(&screen.raw_output).contains("38;5;");
    for (variables, wanted) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let mut screen = Screen::start_with(&scene, &["chat"], variables);
        screen.wait_for_text("● ready").await;
        assert_eq!(coloured(&screen), wanted, "{variables:?}");
        screen.quit().await;
    }
}
