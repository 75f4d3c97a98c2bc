//! `bowline chat` in a real terminal, with the agent that needs no network.

use expect_test::expect;

use crate::program::{Scene, script};
use crate::run::others;
use crate::screen::{Screen, agent_below, below, runs, until_stopped};

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

/// Opens a conversation, and waits until something can be said.
async fn chat(scene: &Scene, arguments: &[&str]) -> Screen {
    let arguments: Vec<&str> = std::iter::once("chat").chain(arguments.iter().copied()).collect();
    let mut screen = Screen::start(scene, &arguments);
    screen.shows("● ready").await;
    screen
}

impl Screen {
    /// Says something to the agent.
    async fn say(&mut self, text: &str) {
        // As a terminal pastes it: whole, however many lines it has.
        self.send(&format!("\u{1b}[200~{text}\u{1b}[201~")).await;
        self.send(ENTER).await;
    }

    /// Has the agent run a command that does not end, and waits until it runs.
    async fn start_endless_command(&mut self) {
        self.say("run echo started; sleep 1000").await;
        self.shows("◐ run").await;
        self.send("\t").await;
        self.shows("Tab back").await;
        self.send(ENTER).await;
        self.shows("  │ started").await;
        self.send("\t").await;
        self.hides("Tab back").await;
    }

    /// Waits until a question can be answered, and returns the screen.
    async fn asked(&mut self) -> String {
        self.until("a question", |screen| screen.contains("reject") && !screen.contains("a moment")).await
    }

    /// Leaves, and returns what is on the screen then.
    async fn quit(&mut self) -> String {
        let processes = below(self.id());
        self.send(CTRL_D).await;
        assert_eq!(self.end().await, Some(0));
        assert_eq!(processes.into_iter().filter(|id| runs(*id)).count(), 0, "something still runs");
        assert!(self.is_given_back(), "the terminal is not given back");
        self.text()
    }

    /// Says whether the screen of before is there again, with a cursor.
    fn is_given_back(&self) -> bool {
        let written = String::from_utf8_lossy(&self.written);
        let after = written.rsplit("\u{1b}[?1049h").next().unwrap_or_default();
        after.contains("\u{1b}[?1049l") && after.contains("\u{1b}[?25h") && after.contains("\u{1b}[?2004l")
    }
}

#[tokio::test]
async fn a_write_is_approved_seen_and_undone() {
    let scene = Scene::new();
    scene.put("notes.txt", "one\ntwo\nthree\n");
    let mut screen = chat(&scene, &[]).await;
    screen.say("replace \"two\" with \"TWO\" in notes.txt").await;
    let question = screen.asked().await;
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
    .assert_eq(&scene.clean(&question));
    assert_eq!(scene.get("notes.txt"), "one\ntwo\nthree\n");
    // What answers nothing.
    screen.send(ENTER).await;
    screen.send("a").await;
    screen.shows("a moment").await;
    screen.asked().await;
    screen.send("y").await;
    screen.shows("✓ edit").await;
    screen.shows("Changed 1 file: notes.txt +1 −1 · F2").await;
    screen.shows("● ready").await;
    assert_eq!(scene.get("notes.txt"), "one\nTWO\nthree\n");
    screen.send(F2).await;
    screen.shows("hunk 1 of 1").await;
    screen.send("u").await;
    screen.shows("· undone").await;
    assert_eq!(scene.get("notes.txt"), "one\ntwo\nthree\n");
    screen.send("r").await;
    screen.shows("redone in 1 file").await;
    screen.hides("· undone").await;
    assert_eq!(scene.get("notes.txt"), "one\nTWO\nthree\n");
    screen.send(ESCAPE).await;
    screen.shows("● ready").await;
    let last = screen.quit().await;
    assert!(last.contains("To go on with this session: bowline chat --session"), "{last}");
}

#[tokio::test]
async fn what_is_rejected_is_not_done() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("write new.txt: text").await;
    screen.asked().await;
    screen.send("n").await;
    screen.shows("✗ edit").await;
    screen.shows("● ready").await;
    assert!(!scene.has("new.txt"));
    screen.quit().await;
}

#[tokio::test]
async fn a_part_of_a_write_is_left_out_and_the_rest_is_edited() {
    let scene = Scene::new();
    let before: String = (1..=20).map(|line| format!("line {line}\n")).collect();
    let after = before.replace("line 2\n", "line two\n").replace("line 18\n", "line eighteen\n");
    scene.put("notes.txt", &before);
    let editor =
        crate::program::script(&scene.home(), "editor", "#!/bin/sh\nsed -i s/eighteen/XVIII/ \"$1\"\n");
    let mut screen = Screen::start_with(&scene, &["chat"], &[("EDITOR", &editor)]);
    screen.shows("● ready").await;
    screen.resize(100, 40);
    screen.say(&format!("read notes.txt\nwrite notes.txt:\n```\n{after}```")).await;
    screen.asked().await;
    screen.shows("x leave out hunk 1 of 2").await;
    screen.send("x").await;
    screen.hides("line two").await;
    screen.asked().await;
    screen.send("e").await;
    screen.shows("line XVIII").await;
    screen.asked().await;
    screen.send("y").await;
    screen.shows("you changed “write ").await;
    // The agent hears what became of its text.
    screen.shows("+line XVIII").await;
    screen.shows("● ready").await;
    assert_eq!(scene.get("notes.txt"), before.replace("line 18\n", "line XVIII\n"));
    screen.quit().await;
}

#[tokio::test]
async fn what_may_be_the_users_own_is_not_undone_by_a_slip() {
    let scene = Scene::new();
    scene.put("notes.txt", "one\n");
    let mut screen = chat(&scene, &[]).await;
    screen.resize(160, 30);
    screen.say("replace \"one\" with \"two\" in notes.txt").await;
    screen.asked().await;
    // Saved by the user while the agent waits.
    scene.put("zz-mine.txt", "my own work\n");
    screen.send("y").await;
    screen.shows("Changed 1 file: notes.txt +1 −1 · F2").await;
    screen.shows("● ready").await;
    screen.send(F2).await;
    let listed = screen.shows("hunk 1 of 1").await;
    assert!(listed.contains("1 more may be yours: a") && !listed.contains("zz-mine.txt"), "{listed}");
    screen.send("a").await;
    let listed = screen.shows("zz-mine.txt (may be yours)").await;
    // Whichever was recorded first stands first.
    let row = |name: &str| listed.lines().position(|line| line.starts_with(&format!("  {name}")));
    let way = if row("zz-mine.txt") < row("notes.txt") { "\u{1b}[H" } else { "\u{1b}[F" };
    screen.send(way).await;
    screen.shows("my own work").await;
    screen.send("u").await;
    let asked = screen.shows("y undo zz-mine.txt").await;
    assert!(asked.contains("Undoing deletes zz-mine.txt."), "{asked}");
    screen.send(ENTER).await;
    screen.shows("not undone").await;
    assert_eq!(scene.get("zz-mine.txt"), "my own work\n");
    screen.send("u").await;
    screen.shows("y undo zz-mine.txt").await;
    screen.send("y").await;
    screen.shows("undone in 1 file").await;
    assert!(!scene.has("zz-mine.txt"));
    assert_eq!(scene.get("notes.txt"), "two\n");
    screen.send(ESCAPE).await;
    screen.shows("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn an_answer_becomes_a_rule_that_is_shown_and_can_be_removed() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.resize(160, 60);
    screen.say("run touch one\nrun touch one").await;
    let question = screen.asked().await;
    assert!(question.contains("s, p and N hold for exactly the command `touch one`"), "{question}");
    screen.send("p").await;
    let told = screen.shows("to remove it: bowline policy forget 'touch one'").await;
    assert!(told.contains("rule saved in this project: allow execute: exactly touch one"), "{told}");
    screen.shows("● ready").await;
    screen.say("run touch two").await;
    screen.asked().await;
    screen.send("N").await;
    screen.shows("to remove it: bowline policy forget 'touch two'").await;
    screen.shows("● ready").await;
    screen.quit().await;
    assert!(scene.has("one") && !scene.has("two"));
    for command in ["touch one", "touch two"] {
        let told = scene.run(&["policy", "forget", command]);
        assert!(told.starts_with("forgotten: ") && told.ends_with("--- 0\n"), "{told}");
    }
}

#[tokio::test]
async fn what_is_asked_again_says_why_and_shows_what_changed() {
    let scene = Scene::new();
    scene.put("a.txt", "one\ntwo\nthree\n");
    let agent = others::late_writer(&scene);
    let mut screen = chat(&scene, &["--agent", &agent]).await;
    screen.resize(80, 40);
    screen.say("go").await;
    screen.asked().await;
    screen.send("y").await;
    screen.shows("asks again").await;
    let again = screen.asked().await;
    for text in
        ["! the file changed since you approved this:", "  4 +mine", "What it would do now:", "  1 +ONE"]
    {
        assert!(again.contains(text), "{text}:\n{again}");
    }
    // The same key would be a held one.
    screen.send("s").await;
    screen.shows("● ready").await;
    assert_eq!(scene.get("a.txt"), "ONE\ntwo\nthree\nmine\n");
    screen.quit().await;
}

#[tokio::test]
async fn a_turn_is_taken_back_by_a_command() {
    let scene = Scene::new();
    scene.put("notes.txt", "one\n");
    let mut screen = chat(&scene, &["--approve", "edits"]).await;
    for (prompt, file) in
        [("replace \"one\" with \"two\" in notes.txt", "notes.txt"), ("write new.txt: text", "new.txt")]
    {
        screen.say(prompt).await;
        screen.shows(&format!("Changed 1 file: {file}")).await;
        screen.shows("● ready").await;
    }
    screen.send("/un").await;
    screen.shows("Takes back what the last turn changed").await;
    screen.send("\t").await;
    screen.hides("Takes back what the last turn changed").await;
    screen.send(ENTER).await;
    screen.shows("undone: new.txt").await;
    assert!(!scene.has("new.txt"));
    assert_eq!(scene.get("notes.txt"), "two\n");
    screen.say("/undo").await;
    screen.shows("undone: notes.txt").await;
    assert_eq!(scene.get("notes.txt"), "one\n");
    screen.say("/undo").await;
    screen.shows("there is nothing to undo").await;
    screen.say("/changes").await;
    screen.shows("changes by agents").await;
    screen.send(ESCAPE).await;
    screen.shows("● ready").await;
    screen.say("/quit").await;
    assert_eq!(screen.end().await, Some(0));
}

#[tokio::test]
async fn the_start_screen_has_examples_that_work() {
    let scene = Scene::new();
    scene.put("README.md", "# Shop\n");
    scene.put("notes.txt", "an old hat\n");
    let mut screen = chat(&scene, &["--approve", "edits"]).await;
    let start = screen.text();
    let examples: Vec<&str> = start.lines().filter_map(|line| line.strip_prefix("  ❯ ")).collect();
    assert_eq!(examples, ["list", "read @README.md", "replace \"old\" with \"new\" in notes.txt"]);
    screen.resize(80, 60);
    for (example, seen) in examples.iter().zip(["README.md (7 bytes)", "# Shop", "Changed notes.txt"]) {
        screen.say(example).await;
        screen.shows(seen).await;
        screen.shows("● ready").await;
    }
    assert_eq!(scene.get("notes.txt"), "an new hat\n");
    screen.say("@README.md").await;
    screen.until("two reads", |screen| screen.matches("Read README.md").count() == 2).await;
    screen.shows("● ready").await;
    screen.say("help").await;
    screen.shows("write PATH: TEXT").await;
    screen.quit().await;
}

#[tokio::test]
async fn a_command_of_ones_own_is_run_and_ended() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("!echo made by me > mine.txt; cat mine.txt; exit 3").await;
    screen.shows("  made by me\n  ended: 3").await;
    screen.say("!sleep 1000").await;
    screen.shows("Esc ends it").await;
    let running = below(screen.id());
    screen.send(ESCAPE).await;
    screen.shows("your command was ended").await;
    screen.shows("● ready").await;
    screen.send(F2).await;
    screen.shows("Nothing was changed here").await;
    screen.send(ESCAPE).await;
    screen.shows("● ready").await;
    screen.quit().await;
    assert_eq!(running.into_iter().filter(|id| runs(*id)).count(), 0, "something still runs");
}

#[tokio::test]
async fn a_prompt_is_written_in_an_editor() {
    let scene = Scene::new();
    let editor =
        script(&scene.home(), "editor", "#!/bin/sh\nprintf ' and more\\nsay the end\\n' >> \"$2\"\n");
    let editor = format!("{editor} --wait");
    let mut screen = Screen::start_with(&scene, &["chat"], &[("EDITOR", &editor)]);
    screen.shows("● ready").await;
    screen.send("say some").await;
    screen.shows("❯ say some").await;
    screen.send("\u{f}").await;
    screen.shows("❯ say some and more\n  say the end").await;
    screen.send(ENTER).await;
    screen.shows("\nsome and more").await;
    screen.shows("\nthe end").await;
    screen.shows("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn prompts_wait_for_each_other() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &["--approve", "all"]).await;
    let fifo = scene.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    screen.say("run cat fifo").await;
    screen.shows("◐ run").await;
    screen.say("say the second").await;
    screen.shows("next: say the second").await;
    screen.say("say the third").await;
    screen.shows("next: say the third").await;
    tokio::task::spawn_blocking(move || std::fs::write(fifo, "x\n").unwrap()).await.unwrap();
    screen.shows("\nthe second").await;
    screen.shows("\nthe third").await;
    screen.shows("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn a_command_shows_its_output_while_it_runs() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &["--approve", "all"]).await;
    let fifo = scene.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    screen.say("run echo first; cat fifo; exit 3").await;
    screen.shows("◐ run").await;
    screen.send("\t").await;
    screen.shows("Tab back").await;
    screen.send(ENTER).await;
    screen.shows("  │ first").await;
    // Whoever opens the pipe waits until the command reads it.
    tokio::task::spawn_blocking(move || std::fs::write(fifo, "second\n").unwrap()).await.unwrap();
    screen.shows("  │ second").await;
    screen.shows("ended: 3").await;
    screen.shows("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn a_turn_is_cancelled_and_its_command_ends() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &["--approve", "all"]).await;
    screen.start_endless_command().await;
    screen.send(ESCAPE).await;
    screen.shows("cancelled after").await;
    screen.shows("● ready").await;
    screen.say("say still here").await;
    screen.shows("\nstill here").await;
    screen.quit().await;
}

#[tokio::test]
async fn ctrl_c_twice_leaves_and_nothing_stays_running() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &["--approve", "all"]).await;
    screen.start_endless_command().await;
    let processes = below(screen.id());
    assert!(processes.len() >= 2, "the agent and the command run: {processes:?}");
    screen.send(CTRL_C).await;
    screen.send(CTRL_C).await;
    assert_eq!(screen.end().await, Some(0));
    assert_eq!(processes.into_iter().filter(|id| runs(*id)).count(), 0, "something still runs");
}

#[tokio::test]
async fn a_dead_agent_is_started_again_with_its_session() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("say remember me").await;
    screen.shows("\nremember me").await;
    screen.shows("● ready").await;
    let agent = agent_below(screen.id()).expect("the agent runs");
    assert!(std::process::Command::new("kill").args(["-9", &agent.to_string()]).status().unwrap().success());
    let gone = screen.shows("The agent is gone").await;
    assert!(gone.contains("SIGKILL"), "{gone}");
    screen.send(CTRL_R).await;
    screen.shows("the agent was started again").await;
    let again = screen.shows("\nremember me").await;
    assert!(again.starts_with(" Bowline · say remember me"), "the title is still there: {again}");
    screen.say("say and now?").await;
    screen.shows("\nand now?").await;
    screen.shows("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn the_screen_follows_the_size_of_the_terminal() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("say one two three four five six seven eight nine ten").await;
    screen.shows("\none two three four five six seven eight nine ten").await;
    screen.shows("● ready").await;
    screen.resize(30, 10);
    screen.shows("\none two three four five six\nseven eight nine ten").await;
    screen.resize(10, 3);
    screen.shows("too small").await;
    screen.resize(100, 30);
    screen.shows("\none two three four five six seven eight nine ten").await;
    screen.quit().await;
}

/// What the terminal tells at the same moment: a new size and keys.
#[tokio::test]
async fn keys_that_come_with_a_new_size_are_read() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    for turn in 0..40 {
        screen.resize(if turn % 2 == 0 { 90 } else { 80 }, 24);
        screen.send(&format!("word{turn}")).await;
        screen.shows(&format!("word{turn}")).await;
        screen.send("\u{15}").await;
        screen.hides(&format!("word{turn}")).await;
    }
    screen.quit().await;
}

#[tokio::test]
async fn a_session_is_left_and_opened_again() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("say in the first").await;
    screen.shows("\nin the first").await;
    screen.shows("● ready").await;
    screen.send(F3).await;
    screen.shows("New session").await;
    screen.send(UP).await;
    screen.send(ENTER).await;
    screen.hides("in the first").await;
    screen.shows("● ready").await;
    screen.send(F3).await;
    screen.shows("say in the first").await;
    screen.send("in the first").await;
    screen.send(ENTER).await;
    screen.shows("\nin the first").await;
    screen.shows("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn modes_and_help_are_shown_and_chosen() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.send(F1).await;
    screen.shows("take back the prompt that waits").await;
    screen.send(ESCAPE).await;
    screen.hides("take back the prompt that waits").await;
    screen.send(F5).await;
    screen.shows("Read only").await;
    screen.send("read only").await;
    screen.send(ENTER).await;
    screen.until("the mode", |text| text.lines().last().unwrap().contains("Read only")).await;
    screen.quit().await;
}

#[tokio::test]
async fn commands_and_files_are_completed() {
    let scene = Scene::new();
    scene.put("src/deep/needle.rs", "fn main() {}\n");
    scene.put(".gitignore", "hidden.rs\n");
    scene.put("hidden.rs", "");
    let mut screen = chat(&scene, &[]).await;
    screen.send("say @needl").await;
    let offered = screen.shows("@src/deep/needle.rs").await;
    assert!(!offered.contains("hidden.rs"));
    screen.send("\t").await;
    screen.shows("say @src/deep/needle.rs").await;
    screen.send(CTRL_C).await;
    screen.send("/com").await;
    screen.shows("/compact").await;
    screen.send(CTRL_C).await;
    screen.hides("/compact").await;
    screen.quit().await;
}

/// An agent that opens new sessions, and answers nothing else that takes work.
const STUBBORN: &str = r#"#!/bin/sh
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
    let scene = Scene::new();
    let agent = script(&scene.home(), "stubborn", STUBBORN);
    let mut screen = chat(&scene, &["--agent", &agent]).await;
    screen.send(F3).await;
    screen.shows("second").await;
    screen.send("second").await;
    screen.send(ENTER).await;
    screen.shows("Esc gives it up").await;
    screen.send(ESCAPE).await;
    screen.shows("it was given up").await;
    screen.shows("● ready").await;
    screen.say("hello").await;
    screen.shows("never done").await;
    screen.send(ESCAPE).await;
    screen.shows("Esc again ends the agent").await;
    screen.send(ESCAPE).await;
    screen.shows("The agent is gone").await;
    let last = screen.quit().await;
    let command = format!("bowline chat --agent {agent} --session first");
    assert!(last.replace('\n', "").contains(&command), "{last}");
}

#[tokio::test]
async fn a_file_with_a_blank_in_its_name_is_attached_and_told() {
    let scene = Scene::new();
    scene.put("my file.txt", "twelve bytes");
    let mut screen = chat(&scene, &[]).await;
    screen.send("say @my").await;
    screen.shows("@\"my file.txt\"").await;
    screen.send("\t").await;
    screen.shows("❯ say @\"my file.txt\"").await;
    screen.send(ENTER).await;
    screen.shows("· attached my file.txt, 12 bytes").await;
    screen.shows("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn the_last_session_is_one_in_which_something_was_said() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("say remember me").await;
    screen.shows("\nremember me").await;
    screen.shows("● ready").await;
    screen.quit().await;
    chat(&scene, &[]).await.quit().await;
    let mut screen = chat(&scene, &["--session", "last"]).await;
    screen.shows("\nremember me").await;
    screen.quit().await;
}

#[tokio::test]
async fn nothing_is_said_of_a_session_in_which_nothing_was() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    let last = screen.quit().await;
    assert!(!last.contains("To go on"), "{last}");
}

#[tokio::test]
async fn what_is_allowed_unasked_is_on_the_screen() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &["--approve", "edits"]).await;
    let shown = screen.shows("Accept edits").await;
    assert!(shown.contains("without a question"), "{shown}");
    screen.quit().await;
}

#[tokio::test]
async fn without_a_terminal_it_says_so() {
    let scene = Scene::new();
    expect![[r#"
        --- stderr
        bowline: chat needs a terminal that can move its cursor: start it in one, or use `bowline run`, also in scripts and pipes
        --- 2
    "#]]
    .assert_eq(&scene.run(&["chat"]));
}

#[tokio::test]
async fn a_session_that_is_not_there_is_said_on_the_screen_of_before() {
    let scene = Scene::new();
    let mut screen = Screen::start(&scene, &["chat", "--session", "nosuch"]);
    assert_eq!(screen.end().await, Some(4));
    let last = screen.text();
    assert!(last.contains("bowline: ") && last.contains("nosuch"), "{last}");
}

#[tokio::test]
async fn an_agent_that_does_not_start_is_said_with_its_last_words() {
    let scene = Scene::new();
    let mut screen = Screen::start(&scene, &["chat", "--agent", "sh -c 'echo out of tea >&2; exit 3'"]);
    assert_eq!(screen.end().await, Some(1));
    let last = screen.text();
    assert!(last.contains("bowline: ") && last.contains("out of tea"), "{last}");
    assert!(screen.is_given_back(), "the terminal is not given back");
}

#[tokio::test]
async fn a_model_that_there_is_not_is_said_on_the_screen_of_before() {
    let scene = Scene::new();
    let mut screen = Screen::start(&scene, &["chat", "--model", "nonsense/x"]);
    let code = screen.end().await;
    let last = screen.text();
    assert!(matches!(code, Some(1 | 2)) && last.contains("bowline: ") && last.contains("nonsense"), "{last}");
}

#[tokio::test]
async fn a_terminal_that_cannot_move_its_cursor_is_refused() {
    let scene = Scene::new();
    for kind in ["dumb", ""] {
        let mut screen = Screen::start_with(&scene, &["chat"], &[("TERM", kind)]);
        assert_eq!(screen.end().await, Some(2), "{kind:?}");
        assert!(screen.text().contains("bowline run"), "{}", screen.text());
    }
}

#[tokio::test]
async fn who_ends_it_from_outside_leaves_nothing_behind() {
    for name in ["-TERM", "-QUIT"] {
        let scene = Scene::new();
        let mut screen = chat(&scene, &["--approve", "all"]).await;
        screen.start_endless_command().await;
        let processes = below(screen.id());
        signal(name, screen.id());
        assert_eq!(screen.end().await, Some(130), "{name}");
        assert_eq!(processes.into_iter().filter(|id| runs(*id)).count(), 0, "something still runs: {name}");
        assert!(screen.is_given_back(), "the terminal is not given back: {name}");
    }
}

#[tokio::test]
async fn who_stops_it_has_the_terminal_back_until_it_goes_on() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("say still here").await;
    screen.shows("\nstill here").await;
    screen.shows("● ready").await;
    // No shell started it that would have it go on.
    screen.send(CTRL_Z).await;
    screen.say("say and still").await;
    screen.shows("\nand still").await;
    screen.shows("● ready").await;
    signal("-TSTP", screen.id());
    screen.hides("still here").await;
    assert!(screen.is_given_back(), "the terminal is not given back");
    until_stopped(screen.id()).await;
    signal("-CONT", screen.id());
    screen.shows("\nstill here").await;
    screen.quit().await;
}

#[tokio::test]
async fn everything_is_drawn_anew_at_a_key() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.scribble("\u{1b}[5;5Hstray");
    screen.shows("stray").await;
    screen.send(CTRL_L).await;
    screen.hides("stray").await;
    screen.quit().await;
}

#[tokio::test]
async fn the_wheel_scrolls_unless_the_mouse_selects() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("stream 2000").await;
    screen.shows("2000").await;
    screen.shows("● ready").await;
    screen.send("\u{1b}[<64;10;10M").await;
    screen.shows("more below").await;
    for _ in 0..2 {
        screen.send("\u{1b}[<65;10;10M").await;
    }
    screen.hides("more below").await;
    screen.send("\u{1b}[19~").await;
    screen.shows("the mouse selects text").await;
    assert!(String::from_utf8_lossy(&screen.written).contains("\u{1b}[?1000l"));
    screen.quit().await;
}

#[tokio::test]
async fn a_text_is_found_in_the_conversation() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("say hay").await;
    screen.shows("\nhay").await;
    screen.shows("● ready").await;
    screen.say("say the needle\nstream 2000").await;
    screen.shows("2000").await;
    screen.shows("● ready").await;
    assert!(!screen.text().contains("the needle"));
    screen.send("\u{6}").await;
    screen.shows("Enter older").await;
    screen.send("NEEDLE").await;
    screen.send(ENTER).await;
    screen.shows("the needle").await;
    screen.send(ESCAPE).await;
    screen.shows("● ready").await;
    screen.quit().await;
}

#[tokio::test]
async fn the_wheel_does_not_recall_what_was_said() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    let has = |screen: &Screen, text: &str| String::from_utf8_lossy(&screen.written).contains(text);
    assert!(has(&screen, "\u{1b}[?1007l") && !has(&screen, "\u{1b}[?1007h"));
    screen.quit().await;
    assert!(has(&screen, "\u{1b}[?1007h"));
}

/// Sends a signal to a process.
fn signal(name: &str, process: u32) {
    let arguments = [name, &process.to_string()];
    assert!(std::process::Command::new("kill").args(arguments).status().unwrap().success());
}

#[tokio::test]
async fn an_agent_that_dies_at_work_takes_nothing_along() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &["--approve", "all"]).await;
    screen.start_endless_command().await;
    screen.send("half a thought").await;
    let agent = agent_below(screen.id()).expect("the agent runs");
    assert!(std::process::Command::new("kill").args(["-9", &agent.to_string()]).status().unwrap().success());
    screen.shows("The agent is gone").await;
    screen.send(CTRL_R).await;
    screen.shows("the agent was started again").await;
    screen.shows("❯ half a thought").await;
    screen.send(CTRL_C).await;
    screen.hides("half a thought").await;
    screen.quit().await;
}

#[tokio::test]
async fn a_flood_does_not_keep_a_person_from_typing() {
    let scene = Scene::new();
    let mut screen = chat(&scene, &[]).await;
    screen.say("stream 100000").await;
    screen.shows("working").await;
    screen.send("am I heard?").await;
    let heard = screen.shows("❯ am I heard?").await;
    assert!(heard.contains("working"), "the flood was over before: {heard}");
    screen.send(ESCAPE).await;
    screen.shows("cancelled after").await;
    screen.send(CTRL_C).await;
    screen.hides("am I heard?").await;
    screen.quit().await;
}

#[tokio::test]
async fn colours_are_left_out_where_they_are_not_wanted() {
    let scene = Scene::new();
    let coloured = |screen: &Screen| String::from_utf8_lossy(&screen.written).contains("38;5;");
    for (variables, wanted) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let mut screen = Screen::start_with(&scene, &["chat"], variables);
        screen.shows("● ready").await;
        assert_eq!(coloured(&screen), wanted, "{variables:?}");
        screen.quit().await;
    }
}
