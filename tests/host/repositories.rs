//! Repositories: the effect of files that an agent wrote on git and other tools that the agent may run.

use std::sync::Arc;

use bowline_host::{Host, HostOptions, QuietFrontEnd};
use bowline_policy::grants::GrantHolder;
use bowline_policy::operation::{CommandSpec, Operation, OperationKind, OperationTarget};
use bowline_policy::policy::{Effect, Preset};
use bowline_policy::question::QuestionReply;
use bowline_protocol::terminal::Invocation;
use bowline_workspace::terminals::{self, SupervisorProgram};
use expect_test::expect;
use serde_json::{Value, json};

use super::SUPERVISOR;
use super::host_fixture::{AgentActor, HostFixture};

const ALLOW_GIT: &str = "[[rules]]\neffect = \"allow\"\ncommand = \"git status\"\n\
     [[rules]]\neffect = \"allow\"\ncommand = \"mkdir\"\n\
     [[rules]]\neffect = \"allow\"\ncommand = \"env git status\"\n";

fn accept_edits_fixture(rules: &str) -> HostFixture {
    let stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::AcceptEdits));
    stage.lab.write_rules(rules).unwrap();
    stage
}

fn run_git(directory: &std::path::Path, words: &[&str]) {
    let mut command = std::process::Command::new("git");
    command.current_dir(directory).args(words).env("HOME", directory);
    command.env_remove("GIT_DIR").env("GIT_CONFIG_NOSYSTEM", "1");
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

async fn try_write_file(actor: &AgentActor, name: &str, text: &str) -> bool {
    let params = json!({"path": format!("$ROOT/{name}"), "content": text});
    actor.call("fs/write_text_file", params).await.is_ok()
}

/// Returns git settings that start a program in every way that `git status` can.
fn malicious_git_config(program: &str) -> String {
    format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {program}\n\
         [filter \"x\"]\n\tclean = {program}\n\tprocess = {program}\n"
    )
}

/// Writes files as an agent does, in several orders, each time in a fresh project, and runs `git status` in a
/// directory. Returns how often the program was started.
async fn count_program_starts(
    files: &[(&str, &str)],
    orders: &[&[usize]],
    cwd: &str,
    commands: &[&str],
) -> usize {
    let mut started = 0;
    for order in orders {
        let stage = accept_edits_fixture(ALLOW_GIT);
        // The user is present, and denies every request.
        let stage = stage.with_person(|_| QuestionReply::deny());
        let program = stage.lab.base().join("program");
        let mark = stage.lab.base().join("mark");
        std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let settings = malicious_git_config(program.to_str().unwrap());
        let files: Vec<(String, String)> = order
            .iter()
            .map(|at| (files[*at].0.to_owned(), files[*at].1.replace("$SETTINGS", &settings)))
            .collect();
        let (cwd, commands): (String, Vec<String>) =
            (cwd.to_owned(), commands.iter().map(|&command| command.to_owned()).collect());
        stage
            .play_custom_turn(move |actor| async move {
                for (name, text) in &files {
                    try_write_file(&actor, name, text).await;
                }
                for command in commands {
                    actor.run_command(json!({"command": command, "cwd": format!("$ROOT/{cwd}")})).await;
                }
                bowline_protocol::schema::v1::StopReason::EndTurn
            })
            .await;
        started += usize::from(mark.exists());
    }
    started
}

#[tokio::test]
async fn a_bare_repository_that_an_agent_wrote_is_none_to_git() {
    let files = [
        ("evil/HEAD", "ref: refs/heads/main\n"),
        ("evil/config", "$SETTINGS"),
        ("evil/objects/x", ""),
        ("evil/refs/x", ""),
        ("evil/.gitattributes", "* filter=x\n"),
    ];
    let orders: &[&[usize]] = &[&[0, 1, 2, 3, 4], &[1, 2, 3, 4, 0], &[3, 0, 2, 4, 1], &[4, 3, 2, 1, 0]];
    assert_eq!(count_program_starts(&files, orders, "evil", &["git status"]).await, 0);
    // The same if the directories come from a command, or the environment is removed.
    let commands: &[&str] = &[
        "mkdir -p objects refs",
        "git status",
        "env -i git status",
        "exec -c git status",
        "env -u GIT_CONFIG_COUNT git status",
    ];
    assert_eq!(count_program_starts(&files, &[&[0, 1], &[1, 0]], "evil", commands).await, 0);
}

#[tokio::test]
async fn what_a_git_file_points_to_is_protected() {
    let files = [
        ("sub/.git", "gitdir: ../meta\n"),
        ("meta/HEAD", "ref: refs/heads/main\n"),
        ("meta/config", "$SETTINGS"),
        ("meta/objects/x", ""),
        ("meta/refs/x", ""),
    ];
    assert_eq!(
        count_program_starts(&files, &[&[0, 1, 2, 3, 4], &[4, 3, 2, 1, 0]], "sub", &["git status"]).await,
        0
    );
    let files = [
        ("sub/.git", "gitdir: ../tree\n"),
        ("tree/HEAD", "ref: refs/heads/main\n"),
        ("tree/commondir", "../meta\n"),
        ("meta/config", "$SETTINGS"),
        ("meta/objects/x", ""),
        ("meta/refs/x", ""),
    ];
    assert_eq!(
        count_program_starts(&files, &[&[0, 1, 2, 3, 4, 5], &[5, 4, 3, 2, 1, 0]], "sub", &["git status"])
            .await,
        0
    );
    assert_eq!(count_program_starts(&files[1..], &[&[4, 3, 2, 1, 0]], "tree", &["git status"]).await, 0);
}

#[tokio::test]
async fn a_repository_of_the_users_is_protected_wherever_it_keeps_its_files() {
    // A working tree with its repository next to it, a bare repository, and one whose hooks are part of the project.
    let stage = accept_edits_fixture(ALLOW_GIT).with_answers(&[]);
    let root = std::path::PathBuf::from(stage.lab.path(""));
    run_git(&root, &["init", "-q", "."]);
    run_git(&root, &["config", "core.hooksPath", "tools/hooks"]);
    run_git(&root, &["init", "-q", "--separate-git-dir=meta", "sub"]);
    run_git(&root, &["init", "-q", "--bare", "bare"]);
    let (connection, session) = stage
        .open_session(vec![stage.custom_turn(|actor| async move {
            for name in [
                "meta/config", "meta/hooks/pre-commit", "meta/info/attributes", "meta/config.worktree",
                "bare/config", "bare/commondir", "bare/HEAD", "BARE/HEAD", "other/Head",
                "tools/hooks/pre-commit", "config/index", "bare/readme.md", "tools/other", "docs/HEAD.md",
            ] {
                let allowed = if try_write_file(&actor, name, "x\n").await { "written" } else { "refused" };
                actor.record(&format!("{name}: {allowed}"));
            }
            bowline_protocol::schema::v1::StopReason::EndTurn
        })])
        .await;
    session.prompt_text("go").await.unwrap();
    connection.close_session(&session).await.unwrap();
    let seen: Vec<String> =
        stage.take_text().lines().filter(|line| !line.starts_with("  ?")).map(str::to_owned).collect();
    expect![[r#"
        meta/config: refused
        meta/hooks/pre-commit: refused
        meta/info/attributes: refused
        meta/config.worktree: refused
        bare/config: refused
        bare/commondir: refused
        bare/HEAD: refused
        BARE/HEAD: refused
        other/Head: refused
        tools/hooks/pre-commit: refused
        config/index: written
        bare/readme.md: written
        tools/other: written
        docs/HEAD.md: written"#]]
    .assert_eq(&seen.join("\n"));
}

#[tokio::test]
async fn git_still_works_in_a_repository_of_the_users() {
    let stage = accept_edits_fixture("[[rules]]\neffect = \"allow\"\ncommand = \"git\"\n").with_answers(&[]);
    let root = std::path::PathBuf::from(stage.lab.path(""));
    run_git(&root, &["init", "-q", "."]);
    run_git(&root, &["config", "user.email", "a@b"]);
    run_git(&root, &["config", "user.name", "a"]);
    std::fs::write(root.join(".git/hooks/pre-commit"), "#!/bin/sh\necho hooked >&2\n").unwrap();
    std::fs::set_permissions(
        root.join(".git/hooks/pre-commit"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let seen = stage
        .play_turns(&["write a.txt a\nrun git add a.txt && git commit -q -m first\nrun git status --short\nrun git config core.fsmonitor x"])
        .await;
    let seen: Vec<&str> = seen.lines().filter(|line| !line.starts_with("  ?")).collect();
    // The user's own hooks run, because only the user could have written them.
    expect![[r#"
        > write a.txt a
        ok
        > run git add a.txt && git commit -q -m first
        "hooked\n" exit 0
        > run git status --short
        "" exit 0
        > run git config core.fsmonitor x
        ! -32030 permission denied: no rule allows it, and the user cannot be asked {"why":"no rule allows it, and the user cannot be asked"}"#]]
    .assert_eq(&seen.join("\n"));
}

#[tokio::test]
async fn what_an_agent_wrote_unasked_is_not_executed_unasked() {
    let rules = "[[rules]]\neffect = \"allow\"\ncommand = \"make\"\n\
        [[rules]]\neffect = \"allow\"\ncommand = \"echo\"\n";
    let stage = accept_edits_fixture(rules)
        .with_file("Makefile", "all: ; @echo ours\n")
        .with_answers(&["yes", "no", "no", "yes"]);
    let script = "run make\nwrite src/a.c int a;\nrun make\nwrite Makefile all: ; @echo theirs\nrun make\nrun make\n\
        write Makefile all: ; @echo others\nrun make\nrun echo x > more.mk && make\nrun make";
    let seen = stage.play_turns(&[script]).await;
    expect![[r#"
        > run make
        "ours\n" exit 0
        > write src/a.c int a;
        ok
        > run make
        "ours\n" exit 0
        > write Makefile all: ; @echo theirs
        ok
        > run make
          ? puppet asks: run make
          ? ! may execute $ROOT/Makefile, which an agent changed without your approval
          ?   run make
          ?   in $ROOT
          ? Asked because `make`: it may execute $ROOT/Makefile, which an agent changed without your approval
        "theirs\n" exit 0
        > run make
        "theirs\n" exit 0
        > write Makefile all: ; @echo others
        ok
        > run make
          ? puppet asks: run make
          ? ! may execute $ROOT/Makefile, which an agent changed without your approval
          ?   run make
          ?   in $ROOT
          ? Asked because `make`: it may execute $ROOT/Makefile, which an agent changed without your approval
        ! -32030 permission denied: the user said no {"why":"the user said no"}
        > run echo x > more.mk && make
          ? puppet asks: run echo x > more.mk && make
          ? ! may execute $ROOT/Makefile, which an agent changed without your approval
          ? ! may execute $ROOT/more.mk, which an agent changed without your approval
          ?   run echo x > more.mk && make
          ?   in $ROOT
          ? Asked because `make`: it may execute $ROOT/Makefile, which an agent changed without your approval
        ! -32030 permission denied: the user said no {"why":"the user said no"}
        > run make
          ? puppet asks: run make
          ? ! may execute $ROOT/Makefile, which an agent changed without your approval
          ?   run make
          ?   in $ROOT
          ? Asked because `make`: it may execute $ROOT/Makefile, which an agent changed without your approval
        "others\n" exit 0
    "#]]
    .assert_eq(&seen);
}

#[tokio::test]
async fn an_approval_is_not_for_what_was_written_after_it() {
    let rules = "[[rules]]\neffect = \"allow\"\ncommand = \"make\"\n";
    let stage =
        accept_edits_fixture(rules).with_file("Makefile", "all: ; @echo ours\n").with_answers(&["yes", "no"]);
    let call: Value =
        json!({"toolCallId":"c1","title":"Make","kind":"execute","rawInput":{"command":"make"}});
    let script =
        format!("write Makefile all: ; @echo one\nask {call}\nwrite Makefile all: ; @echo two\nrun make");
    let seen = stage.play_turns(&[&script]).await;
    let seen: Vec<&str> = seen.lines().filter(|line| !line.starts_with("  ?   ")).collect();
    expect![[r#"
        > write Makefile all: ; @echo one
        ok
        > ask {"toolCallId":"c1","title":"Make","kind":"execute","rawInput":{"command":"make"}}
          ? puppet asks: Make
          ? ! may execute $ROOT/Makefile, which an agent changed without your approval
          ? Asked because `make`: it may execute $ROOT/Makefile, which an agent changed without your approval
        selected once
        > write Makefile all: ; @echo two
        ok
        > run make
          ? puppet is about to act, and it is not what was approved: run make
          ? ! may execute $ROOT/Makefile, which an agent changed without your approval
          ? Asked because `make`: it may execute $ROOT/Makefile, which an agent changed without your approval
        ! -32030 permission denied: the user said no {"why":"the user said no"}"#]]
    .assert_eq(&seen.join("\n"));
}

#[tokio::test]
async fn a_rule_that_names_a_file_approves_what_is_written_there() {
    let rules = "[[rules]]\neffect = \"allow\"\ncommand = \"make\"\n\
        [[rules]]\neffect = \"allow\"\nkinds = [\"write\"]\npath = \"Makefile\"\n";
    let stage = accept_edits_fixture(rules).with_answers(&[]);
    let seen = stage.play_turns(&["write Makefile all: ; @echo fine\nrun make"]).await;
    expect![[r#"
        > write Makefile all: ; @echo fine
        ok
        > run make
        "fine\n" exit 0
    "#]]
    .assert_eq(&seen);
}

#[tokio::test]
async fn what_was_written_unasked_is_remembered_by_the_next_host() {
    let rules = "[[rules]]\neffect = \"allow\"\ncommand = \"make\"\n";
    let stage = accept_edits_fixture(rules).with_answers(&[]);
    stage.play_turns(&["write Makefile all: ; @echo theirs"]).await;
    let root = stage.lab.path("").trim_end_matches('/').to_owned();
    let (holder, operation) = (
        GrantHolder { session: "later".to_owned(), turn: Some(1) },
        Operation {
            kind: OperationKind::Execute,
            target: OperationTarget::Command(CommandSpec {
                invocation: Invocation::Shell("make".to_owned()),
                cwd: root.clone(),
                env: Vec::new(),
                named_paths: Vec::new(),
            }),
        },
    );
    let places = stage.lab.paths();
    let supervisor = SupervisorProgram { program: SUPERVISOR.into(), args: Vec::new() };
    let settings = || HostOptions::new(terminals::TerminalOptions::new(supervisor.clone()));
    let judged = |host: &Host| host.approvals().judge(&holder, &operation).unwrap().effect;
    assert_eq!(judged(&stage.lab.host), Effect::Ask);
    let next = Host::open(std::path::Path::new(&root), &places, Arc::new(QuietFrontEnd), settings()).unwrap();
    assert_eq!(judged(&next), Effect::Ask);
}
