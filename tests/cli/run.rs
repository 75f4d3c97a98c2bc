//! Tests of `bowline run` in pipes: output, questions, changes and exit codes.

pub(crate) mod interrupt;
mod limits;
mod observed;
pub(crate) mod permission;
pub(crate) mod scripted_agents;

use crate::fixture::CliFixture;
use expect_test::expect;
use test_support::model_server::{ModelReply, ModelServer};

fn fixture() -> CliFixture {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\n");
    scene
}

/// Returns the params of the traced messages with a method that one side sent.
fn traced_params(scene: &CliFixture, from: &str, method: &str) -> Vec<serde_json::Value> {
    let trace = std::fs::read_to_string(scene.base().join("trace")).unwrap();
    let lines = trace.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let messages = lines.filter(|line| line["from"] == from).map(|line| line["message"].clone());
    messages.filter(|message| message["method"] == method).map(|message| message["params"].clone()).collect()
}

#[test]
fn a_turn_is_told_as_it_happens() {
    let scene = fixture();
    let prompt = "think hm\nplan: one; two\nread a.txt\nwrite new.txt: hello\\n\n\
                  replace \"two\" with \"2\" in a.txt\nrun seq 20; echo x > made.txt\nsay done";
    expect![[r#"
        ┊ hm

        Plan
          ☐ one
          ☐ two

        The plan has 2 steps.

        ✓ read: Read a.txt (TIME)

        `a.txt`:

        ```txt
        [a.txt: all of it, 2 lines, read through the editor]
        one
        two
        ```

        ✓ edit: Write new.txt (TIME)
            @@ -0,0 +1 @@
            +hello

        Wrote `new.txt`.

        ✓ edit: Edit a.txt (TIME)
            @@ -1,2 +1,2 @@
             one
            -two
            +2

        Changed `a.txt`.

        ✓ run: Run seq 20; echo x > made.txt (TIME)
            … 8 lines before
            9
            10
            11
            12
            13
            14
            15
            16
            17
            18
            19
            20

        `seq 20; echo x > made.txt`:

        ```
        [`seq 20; echo x > made.txt` ended with exit code 0, through the editor, TIME]
        1
        2
        3
        4
        5
        6
        7
        8
        9
        10
        11
        12
        13
        14
        15
        16
        17
        18
        19
        20
        ```

        done

        Changed 3 files:
          a.txt  +1 −1
          made.txt  +1 −0 (new) (after a command)
          new.txt  +1 −0 (new)
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--approve", "all", prompt]));
    assert_eq!(scene.read_file("a.txt"), "one\n2\n");
    assert_eq!(scene.read_file("new.txt"), "hello\n");
}

#[tokio::test]
async fn the_server_of_a_model_is_an_option() {
    let server = ModelServer::start(vec![ModelReply::text("Hello from the server.")]).await.unwrap();
    let url = format!("{}/v1", server.url());
    let told = tokio::task::spawn_blocking(move || {
        let scene = fixture();
        let model = ["--model", "compatible/test", "--base-url", &url, "--window", "32000"];
        let mut told = scene.run(&[&["run"], &model[..], &["hello"]].concat());
        told += &scene.run(&["run", "--base-url", &url, "hello"]);
        told += &scene.run(&[&["run", "--agent", "cat"], &model[..], &["hello"]].concat());
        told.replace(&url, "$URL")
    });
    expect![[r#"
        Hello from the server.
        --- 0
        --- stderr
        bowline: the following required arguments were not provided: --model <NAME> (see --help)
        --- 2
        --- stderr
        bowline: --base-url and --window are for Bowline's own agent: leave out --agent, or tell the other agent in its own way
        --- 2
    "#]].assert_eq(&told.await.unwrap());
    assert_eq!(server.requests().len(), 1, "a window that is given is not asked for");
}

#[test]
fn without_a_person_what_no_rule_allows_is_denied() {
    let scene = fixture();
    expect![[r#"
        ✗ edit: Write new.txt (TIME)
            nothing was written: new.txt: permission denied: no rule allows it, and the user cannot be asked

        Writing `new.txt` did not work:

        ```
        nothing was written: new.txt: permission denied: no rule allows it, and the user cannot be asked
        ```
        --- stderr
        bowline: denied: write new.txt: the user cannot be asked; --approve edits would allow it
        --- 5
    "#]]
    .assert_eq(&scene.run(&["run", "write new.txt: x"]));
    expect![[r#"
        Running `touch made` did not work:

        ```
        `touch made`: permission denied: no rule allows it, and the user cannot be asked
        ```
        --- stderr
        bowline: denied: run touch made: the user cannot be asked; --approve all would allow it
        --- 5
    "#]]
    .assert_eq(&scene.run(&["run", "--format", "quiet", "--approve", "edits", "run touch made"]));
    expect![[r#"
        ✗ edit: Write new.txt (TIME)
            nothing was written: new.txt: permission denied: the user's settings deny it

        Writing `new.txt` did not work:

        ```
        nothing was written: new.txt: permission denied: the user's settings deny it
        ```
        --- stderr
        bowline: denied: write new.txt: by the preset read-only; --approve edits would allow it
        --- 5
    "#]]
    .assert_eq(&scene.run(&["run", "--approve", "reads", "write new.txt: x"]));
    expect![[r#"
        ✗ read: Read a.txt (TIME)
            a.txt: permission denied: the user's settings deny it

        Reading `a.txt` did not work:

        ```
        a.txt: permission denied: the user's settings deny it
        ```
        --- stderr
        bowline: denied: read a.txt: by the preset deny; --approve reads would allow it
        --- 5
    "#]]
    .assert_eq(&scene.run(&["run", "--approve", "none", "read a.txt"]));
    expect![[r#"
        ✗ edit: Write .env (TIME)
            nothing was written: .env: permission denied: no rule allows it, and the user cannot be asked

        Writing `.env` did not work:

        ```
        nothing was written: .env: permission denied: no rule allows it, and the user cannot be asked
        ```
        --- stderr
        bowline: denied: read .env: the user cannot be asked; no flag allows it, but `bowline policy allow read .env` does; to change it takes `bowline policy allow write .env` as well
        --- 5
    "#]].assert_eq(&scene.run(&["run", "--approve", "all", "write .env: KEY=x"]));
    assert!(!scene.has_file("new.txt") && !scene.has_file("made") && !scene.has_file(".env"));
}

#[test]
fn the_users_rules_hold_whatever_is_approved() {
    let scene = fixture();
    let rules = "[[rules]]\neffect = \"deny\"\nkinds = [\"write\"]\npath = \"a.txt\"\n";
    std::fs::write(scene.config_dir().join("policy.toml"), rules).unwrap();
    expect![[r#"
        ✗ edit: Write a.txt (TIME)
            nothing was written: a.txt: permission denied: a rule of the user's denies it

        Writing `a.txt` did not work:

        ```
        nothing was written: a.txt: permission denied: a rule of the user's denies it
        ```
        --- stderr
        bowline: denied: write a.txt: by rule 1 of $HOME/.config/bowline/policy.toml (deny write: path `a.txt`)
        --- 5
    "#]].assert_eq(&scene.run(&["run", "--approve", "all", "write a.txt: x"]));
    let other = scene.base().join("other.toml");
    std::fs::write(&other, "preset = \"accept-edits\"\n").unwrap();
    let told =
        scene.run(&["run", "--format", "quiet", "--policy", other.to_str().unwrap(), "write a.txt: x"]);
    expect![[r#"
        Wrote `a.txt`.

        ```
        Wrote a.txt (1 line), through the editor.
        You had not read this file; other text was in it and has been replaced.
        ```
        --- 0
    "#]]
    .assert_eq(&told);
    scene.write_file("policy.toml", "preset = \"full\"\n");
    expect![[r#"
        --- stderr
        bowline: the rules in $PROJECT/policy.toml lie inside the workspace $PROJECT, where an agent could change them: keep them elsewhere
        --- 2
    "#]].assert_eq(&scene.run(&["run", "--policy", "policy.toml", "say x"]));
    expect![[r#"
        --- stderr
        bowline: cannot read the rules $PROJECT/missing.toml: No such file or directory (os error 2)
        --- 2
    "#]]
    .assert_eq(&scene.run(&["run", "--policy", "missing.toml", "say x"]));
}

#[test]
fn the_prompt_comes_from_arguments_stdin_or_a_file() {
    let scene = fixture();
    scene.write_file("task.md", "say from a file");
    let quiet = |arguments: &[&str], stdin: &str| {
        scene.run_with_stdin(&[&["run", "--format", "quiet"], arguments].concat(), stdin)
    };
    expect![[r#"
        from arguments
        --- 0
    "#]]
    .assert_eq(&quiet(&["say", "from", "arguments"], ""));
    expect![[r#"
        from stdin
        --- 0
    "#]]
    .assert_eq(&quiet(&["-"], "say from stdin"));
    expect![[r#"
        from stdin alone
        --- 0
    "#]]
    .assert_eq(&quiet(&[], "say from stdin alone"));
    expect![[r#"
        first

        between

        last
        --- 0
    "#]]
    .assert_eq(&quiet(&["say first", "-", "say last"], "say between"));
    expect![[r#"
        from a file
        --- 0
    "#]]
    .assert_eq(&quiet(&["--file", "task.md"], ""));
    expect![[r#"
        from stdin by -f
        --- 0
    "#]]
    .assert_eq(&quiet(&["-f", "-"], "say from stdin by -f"));
    expect![[r#"
        --- stderr
        bowline: cannot read the prompt missing.md: No such file or directory (os error 2)
        --- 2
    "#]]
    .assert_eq(&quiet(&["-f", "missing.md"], ""));
    expect![[r#"
        --- stderr
        bowline: the prompt is empty: say what the agent should do
        --- 2
    "#]]
    .assert_eq(&quiet(&[], ""));
    expect![[r#"
        --- stderr
        bowline: stdin can be read once: give one - only
        --- 2
    "#]]
    .assert_eq(&quiet(&["-", "-"], "x"));
}

#[test]
fn json_is_every_message_and_nothing_else() {
    let scene = fixture();
    let output = scene.run_command(scene.command(&["run", "--format", "json", "read a.txt"]), "");
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    // The agent may send its commands at any time.
    let commands = "session/update available_commands_update\n";
    let mut told = String::new();
    for line in stdout.lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap();
        let update = message["params"]["update"]["sessionUpdate"].as_str();
        told += &match message["method"].as_str() {
            Some(method) => format!("{method} {}\n", update.unwrap_or_default()).replace(" \n", "\n"),
            None => format!("answer to {}\n", message["id"]),
        };
    }
    assert!(told.contains(commands), "{told}");
    expect![[r#"
        initialize
        answer to 0
        session/new
        answer to 1
        session/prompt
        session/update session_info_update
        session/update tool_call
        session/update tool_call_update
        fs/read_text_file
        answer to 0
        session/update tool_call_update
        session/update agent_message_chunk
        answer to 2
    "#]]
    .assert_eq(&told.replacen(commands, "", 1));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn what_is_open_and_not_saved_is_what_the_agent_reads() {
    let scene = fixture();
    scene.write_file("shown.txt", "one\ntwo\nunsaved\n");
    let told = scene.run(&["run", "--format", "quiet", "--open", "a.txt=shown.txt", "read a.txt"]);
    expect![[r#"
        `a.txt`:

        ```txt
        [a.txt: all of it, 3 lines, read through the editor]
        one
        two
        unsaved
        ```
        --- 0
    "#]]
    .assert_eq(&told);
    // The file contains both the agent's change and the unsaved text.
    let told = scene.run(&[
        "run",
        "--approve",
        "edits",
        "--open",
        "a.txt=shown.txt",
        "replace \"one\" with \"1\" in a.txt",
    ]);
    expect![[r#"
        ✓ edit: Edit a.txt (TIME)
            @@ -1,3 +1,3 @@
            -one
            +1
             two
             unsaved

        Changed `a.txt`.

        Changed 1 file:
          a.txt  +1 −1
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "1\ntwo\nunsaved\n");
    expect![[r#"
        --- stderr
        bowline: cannot read $PROJECT/missing: No such file or directory (os error 2)
        --- 2
    "#]]
    .assert_eq(&scene.run(&["run", "--open", "a.txt=missing", "say x"]));
    expect![[r#"
        --- stderr
        bowline: cannot open $PROJECT/../home/x: $PROJECT/../home/x is outside the session's directories
        --- 2
    "#]]
    .assert_eq(&scene.run(&["run", "--open", "../home/x", "say x"]));
}

#[test]
fn files_that_are_mentioned_are_attached() {
    let scene = fixture();
    let trace = scene.base().join("trace");
    scene.write_file("shown.txt", "unsaved\n");
    let told = scene.run(&[
        "run",
        "--trace",
        trace.to_str().unwrap(),
        "--open",
        "a.txt=shown.txt",
        "say @a.txt and @missing.txt",
    ]);
    expect![[r#"
        @a.txt and @missing.txt
        --- stderr
        bowline: attached a.txt, 8 bytes
        bowline: there is no file missing.txt: it stays text
        --- 0
    "#]]
    .assert_eq(&told);
    let prompt = &traced_params(&scene, "client", "session/prompt")[0]["prompt"];
    expect![[r#"
        [
          {
            "type": "text",
            "text": "say @a.txt and @missing.txt"
          },
          {
            "type": "resource",
            "resource": {
              "text": "unsaved\n",
              "uri": "file://$PROJECT/a.txt"
            }
          }
        ]
    "#]]
    .assert_eq(&scene.normalize(&format!("{prompt:#}\n")));
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(trace.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_is_offered_is_what_the_options_leave() {
    let scene = fixture();
    let trace = scene.base().join("trace");
    let mut told = String::new();
    for options in [&[][..], &["--no-fs"], &["--no-terminal"], &["--read-only"]] {
        scene.run(&[&["run", "--trace", trace.to_str().unwrap(), "say x"], options].concat());
        let capabilities = &traced_params(&scene, "client", "initialize")[0]["clientCapabilities"];
        told += &format!("{options:?} {} {}\n", capabilities["fs"], capabilities["terminal"]);
    }
    expect![[r#"
        [] {"readTextFile":true,"writeTextFile":true} true
        ["--no-fs"] {"readTextFile":false,"writeTextFile":false} true
        ["--no-terminal"] {"readTextFile":true,"writeTextFile":true} false
        ["--read-only"] {"readTextFile":true,"writeTextFile":false} false
    "#]]
    .assert_eq(&told);
    expect![[r#"
        Running `touch made` needs `execute` or `ide_terminal` or `bash`, which is not offered: the session may be read-only, or the agent was started without `--shell`, as `--no-terminal` has it.
        --- 0
    "#]].assert_eq(&scene.run(&["run", "--read-only", "--approve", "all", "run touch made"]));
    assert!(!scene.has_file("made"));
}

#[test]
fn more_directories_can_be_used() {
    let scene = fixture();
    for name in ["more", "fixed"] {
        std::fs::create_dir(scene.base().join(name)).unwrap();
        std::fs::write(scene.base().join(name).join("x.txt"), "x\n").unwrap();
    }
    let prompt = "read $BASE/fixed/x.txt\nwrite $BASE/more/y.txt: y\nwrite $BASE/fixed/y.txt: y"
        .replace("$BASE", scene.base().to_str().unwrap());
    let told =
        scene.run(&["run", "--approve", "all", "--add-dir", "../more", "--add-dir", "../fixed:ro", &prompt]);
    expect![[r#"
        ✓ read: Read $BASE/fixed/x.txt (TIME)

        `$BASE/fixed/x.txt`:

        ```txt
        [$BASE/fixed/x.txt: all of it, 1 line, read through the editor]
        x
        ```

        ✓ edit: Write $BASE/more/y.txt (TIME)
            @@ -0,0 +1 @@
            +y
            \ No newline at end of file

        Wrote `$BASE/more/y.txt`.

        ✗ edit: Write $BASE/fixed/y.txt (TIME)
            nothing was written: $BASE/fixed/y.txt: the editor says: $BASE/fixed/y.txt is in a directory that this session may only read

        Writing `$BASE/fixed/y.txt` did not work:

        ```
        nothing was written: $BASE/fixed/y.txt: the editor says: $BASE/fixed/y.txt is in a directory that this session may only read
        ```

        Changed 1 file:
          $BASE/more/y.txt  +1 −0 (new)
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(&told);
    assert!(scene.base().join("more/y.txt").exists() && !scene.base().join("fixed/y.txt").exists());
    expect![[r#"
        --- stderr
        bowline: cannot open the directory $PROJECT/../missing: No such file or directory (os error 2)
        --- 2
    "#]]
    .assert_eq(&scene.run(&["run", "--add-dir", "../missing", "say x"]));
    expect![[r#"
        --- stderr
        bowline: cannot use the directory $PROJECT/../missing: No such file or directory (os error 2)
        --- 2
    "#]]
    .assert_eq(&scene.run(&["run", "--cwd", "../missing", "say x"]));
}

#[test]
fn a_workspace_elsewhere_is_named_in_the_undo() {
    let scene = fixture();
    let mut command = scene.command(&["run", "--cwd", "project", "--approve", "edits", "write b.txt: x\\n"]);
    command.current_dir(scene.base());
    let output = scene.run_command(command, "");
    expect![[r#"
        ✓ edit: Write b.txt (TIME)
            @@ -0,0 +1 @@
            +x

        Wrote `b.txt`.

        Changed 1 file:
          b.txt  +1 −0 (new)
        To undo: bowline undo --cwd $PROJECT
        --- 0
    "#]]
    .assert_eq(&scene.describe_output(&output));
}

#[test]
fn a_session_goes_on() {
    let scene = fixture();
    expect![[r#"
        --- stderr
        bowline: there is no session here yet: leave out --session
        --- 4
    "#]]
    .assert_eq(&scene.run(&["run", "--session", "last", "say x"]));
    scene.run(&["run", "say one"]);
    expect![[r#"
        two
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--session", "last", "say two"]));
    expect![[r#"
        ✓ edit: Write b.txt (TIME)
            @@ -0,0 +1 @@
            +x
            \ No newline at end of file

        Wrote `b.txt`.

        Changed 1 file:
          b.txt  +1 −0 (new)
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--session", "last", "--approve", "edits", "write b.txt: x"]));
    expect![[r#"
        --- stderr
        bowline: there is no session 0123: the agent says Resource not found: session 0123
        --- 4
    "#]]
    .assert_eq(&scene.run(&["run", "--session", "0123", "say x"]));
}

#[test]
fn what_only_reads_writes_in_no_mode() {
    let scene = fixture();
    // The resumed session was in a mode that allows everything without asking.
    scene.run(&["run", "--mode", "full", "--approve", "all", "say x"]);
    for options in [
        &["--read-only", "--mode", "full"][..],
        &["--read-only", "--mode", "accept-edits"],
        &["--read-only", "--session", "last"],
        &["--no-fs", "--approve", "reads", "--mode", "full"],
        &["--no-fs", "--approve", "reads", "--session", "last"],
    ] {
        scene.run(&[&["run", "write ro.txt: x"], options].concat());
        assert!(!scene.has_file("ro.txt"), "{options:?}");
    }
    // A prompt cannot widen the mode either, nor make the agent change anything by itself.
    for prompt in ["/mode full", "/mode ask"] {
        let told = scene.run(&["run", "--read-only", prompt]);
        assert!(told.contains("There is no mode"), "{told}");
    }
    scene.run(&["run", "--approve", "edits", "write ro.txt: x"]);
    scene.run(&["run", "--session", "last", "--read-only", "/undo"]);
    assert!(scene.has_file("ro.txt"));
    expect![[r#"
        --- stderr
        bowline: --read-only and --mode full contradict each other: leave one of them out
        --- 2
    "#]]
    .assert_eq(&scene.run(&["run", "--read-only", "--mode", "full", "write ro.txt: x"]));
}

#[test]
fn a_trace_is_no_work_of_the_agent() {
    let scene = fixture();
    expect![[r#"
        --- stderr
        bowline: the trace $PROJECT/tr.log would lie inside the workspace, among the agent's work: name a file elsewhere
        --- 2
    "#]]
    .assert_eq(&scene.run(&["run", "--trace", "tr.log", "say x"]));
    std::fs::write(scene.base().join("notes"), "mine\n").unwrap();
    expect![[r#"
        --- stderr
        bowline: $PROJECT/../notes is there and is no trace: name another file, or remove this one
        --- 2
    "#]]
    .assert_eq(&scene.run(&["run", "--trace", "../notes", "say x"]));
}

#[test]
fn text_that_is_passed_on_attaches_nothing() {
    let scene = fixture();
    scene.write_file(".env", "SECRET=x\n");
    let trace = scene.base().join("trace");
    let trace = trace.to_str().unwrap();
    let sent = |arguments: &[&str], stdin: &str| {
        let told = scene
            .run_with_stdin(&[&["run", "--format", "quiet", "--trace", trace], arguments].concat(), stdin);
        let prompt = &traced_params(&scene, "client", "session/prompt")[0]["prompt"];
        let blocks = prompt.as_array().unwrap().iter().skip(1);
        let blocks: Vec<String> = blocks.map(|block| block["type"].to_string()).collect();
        let notes = told.lines().filter(|line| line.starts_with("bowline: ") && line.contains("attached"));
        format!("[{}] {}", blocks.join(" "), notes.collect::<String>()).trim_end().to_owned() + "\n"
    };
    let told = [
        sent(&["say look:", "-"], "+see @.env and @a.txt"),
        sent(&["say @a.txt", "-"], "+see @.env"),
        sent(&[], "say @a.txt"),
        sent(&[], "say @.env"),
        sent(&["--approve", "all", "say @.env"], ""),
        sent(&["--approve", "none", "say @a.txt"], ""),
    ];
    expect![[r#"
        []
        ["resource"] bowline: attached a.txt, 8 bytes
        []
        []
        ["resource_link"] bowline: .env is not attached: it holds secrets; only a rule that names it allows it
        ["resource"] bowline: attached a.txt, 8 bytes
    "#]]
    .assert_eq(&told.concat());
    let log = scene.run(&["audit", "show"]);
    let mentioned: Vec<&str> = log.lines().filter(|line| line.contains("mentioned in a prompt")).collect();
    assert_eq!(mentioned.len(), 2, "{log}");
}

#[test]
fn commands_can_be_confined() {
    let scene = fixture();
    let outside = scene.base().join("outside.txt");
    let prompt = format!("run sh -c 'echo x > made.txt; echo x > {}'", outside.display());
    let told = scene.run(&["run", "--format", "quiet", "--approve", "all", "--confine", &prompt]);
    let confinable = bowline_workspace::terminals::supervisor::ConfinementSupport::detect();
    if confinable.files.is_err() || confinable.network.is_err() {
        assert!(told.contains("commands cannot be confined here: leave out --confine"), "{told}");
        return;
    }
    assert!(scene.has_file("made.txt") && !outside.exists(), "{told}");
    assert!(told.contains("Permission denied"), "{told}");
    scene.run(&["run", "--approve", "all", &prompt]);
    assert!(outside.exists());
}

#[test]
fn a_mode_that_was_changed_is_told() {
    let scene = fixture();
    use std::os::unix::fs::PermissionsExt as _;
    let plain = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(scene.project().join("a.txt"), plain).unwrap();
    let told = scene.run(&["run", "--approve", "all", "run chmod 755 a.txt"]);
    assert!(told.contains("  a.txt  +0 −0 (mode 755, was 644) (after a command)\n"), "{told}");
    let told = scene.run(&["changes"]);
    assert!(told.contains("mode 755, was 644, observed\n"), "{told}");
}

#[test]
fn a_directory_that_no_message_can_name_is_refused() {
    use std::os::unix::ffi::OsStringExt as _;
    let scene = fixture();
    let name = std::ffi::OsString::from_vec(b"d\xff".to_vec());
    std::fs::create_dir(scene.project().join(&name)).unwrap();
    let mut command = scene.command(&["run", "say x", "--cwd"]);
    command.arg(&name);
    let output = scene.run_command(command, "");
    expect![[r#"
        --- stderr
        bowline: $PROJECT/d� is not named in UTF-8, so no agent can work there: rename it
        --- 2
    "#]]
    .assert_eq(&scene.describe_output(&output));
}
