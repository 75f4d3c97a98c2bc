//! Tests of `bowline doctor`: a healthy machine, and each possible problem.

mod agents;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bowline_access::audit::AuditLog;
use bowline_policy::audit::{AuditAction, AuditEntry};
use bowline_text::time::Timestamp;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Workspace, WorkspaceOptions};
use expect_test::{Expect, expect};

use crate::fixture::CliFixture;

/// Returns the output, with the numbers of this machine and this build replaced.
fn run_doctor(scene: &CliFixture, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    // Keeps a repository above the directory for temporary files from being found.
    scene.write_file(".git/HEAD", "");
    let mut command = scene.command(arguments);
    if !arguments.contains(&"--") {
        // Programs installed on this machine are not found.
        command.env("PATH", scene.home().join("bin"));
    }
    command.envs(variables.iter().copied());
    normalize_machine(&scene.describe_output(&scene.run_command(command, "")))
}

fn normalize_machine(text: &str) -> String {
    let mut same = String::new();
    for line in text.split_inclusive('\n') {
        let line = replace_number_after(line, "by Landlock ");
        let line = replace_number_after(&line, "(it has ");
        let line = replace_number_after(&line, "its schema ");
        let line = replace_number_after(&line, "bowline ");
        same += &replace_workspace_hash(&line);
    }
    same
}

fn replace_number_after(line: &str, words: &str) -> String {
    match line.split_once(words) {
        Some((before, after)) if after.starts_with(|c: char| c.is_ascii_digit()) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            format!("{before}{words}N{rest}")
        }
        _ => line.to_owned(),
    }
}

/// Replaces the hash that distinguishes workspaces of the same name.
fn replace_workspace_hash(line: &str) -> String {
    match line.split_once("/workspaces/project-") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_hexdigit());
            format!("{before}/workspaces/project-HASH{rest}")
        }
        None => line.to_owned(),
    }
}

/// Returns the problems, with their section titles.
fn only_problems(told: &str) -> String {
    let mut out = String::new();
    let (mut title, mut wrong) = ("", false);
    for line in told.lines() {
        let is_finding = line.starts_with("  ") && !line.starts_with("    ");
        if !line.starts_with(' ') {
            (title, wrong) = (line, line.starts_with("---") || line.starts_with("bowline:"));
        } else if is_finding {
            wrong = line.starts_with("  !") || line.starts_with("  ✗");
            // A missing key is expected here.
            wrong &= !line.contains("the offline model does plain commands");
            if wrong && !title.is_empty() {
                writeln!(out, "{title}").unwrap();
                title = "";
            }
        }
        if wrong {
            writeln!(out, "{line}").unwrap();
        }
    }
    out
}

fn check(prepare: impl FnOnce(&CliFixture), variables: &[(&str, &str)], expected: Expect) {
    let scene = CliFixture::new();
    prepare(&scene);
    expected.assert_eq(&only_problems(&run_doctor(&scene, &["doctor", "--all"], variables)));
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Creates a journal with a change, and an audit log; returns their directory.
fn make_journal_and_log(scene: &CliFixture) -> PathBuf {
    let roots = Roots::open(&RootSpec::writable(scene.project().display().to_string()), &[]).unwrap();
    let own = Workspace::journal_directory(&scene.home().join(".local/state/bowline"), &roots);
    let workspace = Workspace::open(roots, &own, WorkspaceOptions::default()).unwrap().workspace;
    let session = workspace.session("one");
    session.write(&scene.file_path("a.txt"), "text\n", &session.origin(Some(1), None)).unwrap();
    let anchor = scene.home().join(".local/share/bowline/anchors").join(own.file_name().unwrap());
    let log =
        AuditLog::open(&own.join("audit"), &anchor, bowline_access::audit::AuditOptions::default()).unwrap();
    for number in 1..=4 {
        log.append(&AuditEntry::new(Timestamp(number), AuditAction::Write)).unwrap();
    }
    own
}

/// Installs a program in the only directory of the search path.
fn install_program(scene: &CliFixture, name: &str) {
    let bin = scene.home().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join(name), "").unwrap();
    set_mode(&bin.join(name), 0o755);
}

#[test]
fn in_short_it_fits_a_small_terminal_and_says_what_to_do_next() {
    let scene = CliFixture::new();
    let short = run_doctor(&scene, &["doctor"], &[]);
    assert!(short.lines().count() <= 24, "{short}");
    expect![[r#"
        ✓ Bowline: bowline N, $BOWLINE
        ✓ Directories: $HOME/.local/state/bowline and $HOME/.config/bowline
        ✓ Rules: no rules for this workspace, and preset ask, as nothing else is said
        ✓ This workspace: $PROJECT, in git
        ! Models and keys: offline (there is no key, and it needs none)
            the offline model does plain commands, and writes nothing by itself
            → set a key such as ANTHROPIC_API_KEY, or choose a local model with --model ollama/NAME
        · Configuration: no $HOME/.config/bowline/config.toml: it can set the agent, the model and what is approved
        · Editors: none found that can start Bowline
        · Agents: none found beside Bowline's own
        ✓ This machine: commands can be kept from writing elsewhere, and from the network

        Next:
          bowline chat           talk to Bowline's agent here
          bowline doctor --all   all that was looked at
        --- 0
    "#]].assert_eq(&short);
    for program in ["zed", "emacs", "claude", "gemini", "opencode"] {
        install_program(&scene, program);
    }
    let short = run_doctor(&scene, &["doctor"], &[]);
    assert!(short.lines().count() <= 24, "{short}");
    expect![[r#"
        ✓ Bowline: bowline N, $BOWLINE
        ✓ Directories: $HOME/.local/state/bowline and $HOME/.config/bowline
        ✓ Rules: no rules for this workspace, and preset ask, as nothing else is said
        ✓ This workspace: $PROJECT, in git
        ! Models and keys: offline (there is no key, and it needs none)
            the offline model does plain commands, and writes nothing by itself
            → set a key such as ANTHROPIC_API_KEY, or choose a local model with --model ollama/NAME
        · Configuration: no $HOME/.config/bowline/config.toml: it can set the agent, the model and what is approved
        · Editors: Zed, Emacs, Claude Code
        ✓ Agents: gemini --acp, opencode acp
        ✓ This machine: commands can be kept from writing elsewhere, and from the network

        Next:
          bowline setup zed --write                          Bowline's agent in Zed
          bowline setup zed --proxy 'gemini --acp' --write   Bowline between Zed and gemini
          bowline setup claude-code --write                  this workspace for Claude Code
          bowline chat                                       talk to Bowline's agent here
          bowline doctor --all                               all that was looked at
        --- 0
    "#]].assert_eq(&short);
    // Once its advice is followed, it gives other advice.
    for arguments in [&["setup", "zed", "--write"][..], &["setup", "claude-code", "--write"]] {
        assert!(scene.run(arguments).ends_with("--- 0\n"));
    }
    expect![[r#"
        ✓ Bowline: bowline N, $BOWLINE
        ✓ Directories: $HOME/.local/state/bowline and $HOME/.config/bowline
        ✓ Rules: no rules for this workspace, and preset ask, as nothing else is said
        ✓ This workspace: $PROJECT, in git
        ! Models and keys: offline (there is no key, and it needs none)
            the offline model does plain commands, and writes nothing by itself
            → set a key such as ANTHROPIC_API_KEY, or choose a local model with --model ollama/NAME
        · Configuration: no $HOME/.config/bowline/config.toml: it can set the agent, the model and what is approved
        ✓ Editors: Zed (starts Bowline), Emacs, Claude Code (starts Bowline)
        ✓ Agents: gemini --acp, opencode acp
        ✓ This machine: commands can be kept from writing elsewhere, and from the network

        Next:
          bowline setup emacs                          Bowline's agent in Emacs
          bowline setup emacs --proxy 'gemini --acp'   Bowline between Emacs and gemini
          bowline chat                                 talk to Bowline's agent here
          bowline doctor --all                         all that was looked at
        --- 0
    "#]].assert_eq(&run_doctor(&scene, &["doctor"], &[]));
}

#[test]
fn in_short_what_is_broken_is_told_whole() {
    let scene = CliFixture::new();
    scene.write_file("../home/.config/bowline/config.toml", "agnet = 1\n");
    expect![[r#"
        ✓ Bowline: bowline N, $BOWLINE
        ✓ Directories: $HOME/.local/state/bowline and $HOME/.config/bowline
        ✓ Rules: no rules for this workspace, and preset ask, as nothing else is said
        ✓ This workspace: $PROJECT, in git
        ! Models and keys: offline (there is no key, and it needs none)
            the offline model does plain commands, and writes nothing by itself
            → set a key such as ANTHROPIC_API_KEY, or choose a local model with --model ollama/NAME
        ✗ Configuration:
            $HOME/.config/bowline/config.toml:1: unknown field `agnet`, expected one of `agent`, `model`, `approve`, `ignore-changes`, `agents`
            → repair it: until then neither run, chat nor agent starts
        · Editors: none found that can start Bowline
        · Agents: none found beside Bowline's own
        ✓ This machine: commands can be kept from writing elsewhere, and from the network

        Next:
          bowline doctor --all   all that was looked at
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]].assert_eq(&run_doctor(&scene, &["doctor"], &[]));
}

#[test]
fn where_all_is_well_it_says_so() {
    expect![[r#"
        Bowline
          ✓ bowline N, $BOWLINE
          ✓ speaks version 1 of the Agent Client Protocol (its schema N)

        Directories
          ✓ state: $HOME/.local/state/bowline is made when it is needed
          ✓ configuration: $HOME/.config/bowline is made when it is needed
          ✓ anchors: $HOME/.local/share/bowline/anchors is made when it is needed

        Rules
          ✓ no $HOME/.config/bowline/policy.toml: no rules for this workspace, and preset ask, as nothing else is said

        This workspace
          ✓ directory: $PROJECT
          ✓ git: yes, in $PROJECT
          · journal: none yet
          · audit log: none yet
          ✓ watches: the system tells what changes here (it has N in all)
          ✓ open writers: noticed before a file is replaced, by leases

        Models and keys
          ✓ without --model: offline (there is no key, and it needs none)
          ! the offline model does plain commands, and writes nothing by itself
            → set a key such as ANTHROPIC_API_KEY, or choose a local model with --model ollama/NAME
          · anthropic: no key; set ANTHROPIC_API_KEY or run `bowline agent --login anthropic`
          · openai: no key; set OPENAI_API_KEY or run `bowline agent --login openai`
          · gemini: no key; set GEMINI_API_KEY or run `bowline agent --login gemini`
          · ollama: needs no key
          · compatible: needs no key, but a place: set COMPATIBLE_BASE_URL

        Configuration
          · no $HOME/.config/bowline/config.toml: it can set the agent, the model and what is approved
          · MCP servers: those that an editor names for a session, or --mcp of run and chat; none are kept here

        Editors
          · none found that can start Bowline

        Agents
          · none found beside Bowline's own

        This machine
          ✓ paths: resolved by the kernel beneath the workspace (openat2)
          ✓ confinement: files, by Landlock N: commands can be kept from writing elsewhere
          ✓ confinement: network, by seccomp: commands can be kept from it
          ✓ shell: /bin/sh
          · terminal: none on stdout, so no colours, and no chat

        Who serves what
          · Bowline's agent (with --shell), in an editor that offers files and terminals:
              reading files: the editor (it advertises fs.readTextFile)
              writing files: the editor (it advertises fs.writeTextFile)
              commands: the editor (it advertises terminal)
              listing: the editor (it advertises _bowline/fs/list)
              searching: the agent's own machine (the protocol has no such method)
              file metadata: the editor (it advertises _bowline/fs/stat)
              moving, deleting, writing several files: the editor (it advertises _bowline/fs/batch)
          · the same, in an editor that offers neither:
              reading files: the agent's own machine (the editor does not advertise fs.readTextFile)
              writing files: the agent's own machine (the editor does not advertise fs.writeTextFile)
              commands: the agent's own machine (the editor does not advertise terminal)
              listing and searching: the agent's own machine (the protocol has no such method)
              file metadata: the agent's own machine (the editor does not advertise _bowline/fs/stat)
              moving, deleting, writing several files: the agent's own machine (the editor does not advertise _bowline/fs/batch)
          · the same, where a server over MCP has the tools of a workspace, as `bowline mcp` has:
              reading files: the client's workspace server, over MCP (the editor does not advertise fs.readTextFile)
              writing files: the client's workspace server, over MCP (the editor does not advertise fs.writeTextFile)
              commands: the client's workspace server, over MCP (the editor does not advertise terminal)
              listing and searching: the client's workspace server, over MCP (it reads the files)
              file metadata: the client's workspace server, over MCP (the editor does not advertise _bowline/fs/stat)
              moving, deleting, writing several files: the client's workspace server, over MCP (the editor does not advertise _bowline/fs/batch)
          · with --tools dual the model chooses the machine:
              the editor's, by ide_read_file, ide_write_file, ide_edit_file and ide_terminal, as far as it is offered
              the agent's own, by read_file, write_file, edit_file and bash
          · another agent, started by `bowline run` or `chat`, is offered:
              reading files, with unsaved text (fs/read_text_file)
              writing files, merged with your edits, undoable (fs/write_text_file)
              terminals, with the whole process tree ended after them (terminal/create)
              forms to ask you by (elicitation/create)
              pages to send you to (elicitation/create)

        If something is missing in an editor
          · a tool is not there:
              ask Bowline's agent `/tools` and `/status`: they show what is available, and who serves it
              commands take --shell, and changes another mode than read-only
              `bowline agent --log FILE` writes what the editor advertised, for every session
          · unsaved text is not seen:
              the editor has to advertise fs.readTextFile, and to have the file open in the project of the session
              some editors advertise it and read the disk all the same: compare with `bowline run --open FILE=TEXTFILE`
          · a file cannot be read or written:
              it has to lie in the session's directory, or in one that was added, after all links are followed
              paths in the protocol are absolute; an editor that opens sessions in `.` takes --allow-relative-cwd
              an editor may offer reading and not writing: `/status` tells the two apart
              what rules or a person denied: `bowline audit show`; which rule: `bowline policy explain`
          · nothing happens at all:
              `bowline doctor -- COMMAND`, with what the editor is set to start, as it is in its configuration
              an editor may have another PATH and other keys than this shell: `bowline setup` names the whole path, and `bowline agent --login` stores a key
        --- 0
    "#]].assert_eq(&run_doctor(&CliFixture::new(), &["doctor", "--all"], &[]));
}

#[test]
fn what_is_kept_is_counted() {
    let scene = CliFixture::new();
    make_journal_and_log(&scene);
    install_program(&scene, "sh");
    std::fs::write(
        scene.config_dir().join("policy.toml"),
        "preset = \"accept-edits\"\n\n[[rules]]\neffect = \"deny\"\ncommand = \"git push\"\n",
    )
    .unwrap();
    std::fs::write(
        scene.config_dir().join("config.toml"),
        "[agents.gemini]\ncommand = \"sh gemini --acp\"\n",
    )
    .unwrap();
    for directory in [".config/bowline", ".local/state/bowline", ".local/share/bowline/anchors"] {
        set_mode(&scene.home().join(directory), 0o700);
    }
    let told = run_doctor(
        &scene,
        &["doctor", "--all"],
        &[("ANTHROPIC_API_KEY", "sk-secret-1234567890"), ("OLLAMA_HOST", "box:1")],
    );
    assert!(!told.contains("secret"), "{told}");
    let shown: Vec<&str> = told.lines().skip_while(|line| *line != "Directories").collect();
    let until = shown.iter().position(|line| *line == "This machine").unwrap();
    expect![[r#"
        Directories
          ✓ state: $HOME/.local/state/bowline
          ✓ configuration: $HOME/.config/bowline
          ✓ anchors: $HOME/.local/share/bowline/anchors

        Rules
          ✓ $HOME/.config/bowline/policy.toml: one rule for this workspace, and preset accept-edits

        This workspace
          ✓ directory: $PROJECT
          ✓ git: yes, in $PROJECT
          ✓ journal: one change, in $HOME/.local/state/bowline/workspaces/project-HASH
          ✓ audit log: 4 entries, as they were written
          ✓ watches: the system tells what changes here (it has N in all)
          ✓ open writers: noticed before a file is replaced, by leases

        Models and keys
          ✓ without --model: anthropic/claude-sonnet-4-5 (the first that has a key, from ANTHROPIC_API_KEY)
          ✓ anthropic: key from ANTHROPIC_API_KEY
          · openai: no key; set OPENAI_API_KEY or run `bowline agent --login openai`
          · gemini: no key; set GEMINI_API_KEY or run `bowline agent --login gemini`
          · ollama: needs no key; at box:1 (from OLLAMA_HOST)
          · compatible: needs no key, but a place: set COMPATIBLE_BASE_URL

        Configuration
          ✓ $HOME/.config/bowline/config.toml names the agents gemini
          · MCP servers: those that an editor names for a session, or --mcp of run and chat; none are kept here

        Editors
          · none found that can start Bowline

        Agents
          · none found beside Bowline's own

    "#]].assert_eq(&(shown[..until].join("\n") + "\n"));
}

#[test]
fn directories_that_cannot_be_used_are_told() {
    check(
        |_| (),
        &[("HOME", "relative")],
        expect![[r#"
        Directories
          ✗ there is no place for what Bowline keeps
            → set HOME or XDG_STATE_HOME to an absolute path
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]],
    );
    check(
        |_| (),
        &[("XDG_STATE_HOME", "/proc/none")],
        expect![[r#"
            Directories
              ✗ state: /proc/none/bowline cannot be made: /proc: No such file or directory (os error 2)
                → make /proc writable (chmod u+rwx), or set XDG_STATE_HOME to a directory elsewhere
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        |_| (),
        &[("XDG_CONFIG_HOME", "/dev/null")],
        expect![[r#"
            Directories
              ✗ configuration: /dev/null/bowline: Not a directory (os error 20)
                → set XDG_CONFIG_HOME to a directory of yours
            Rules
              ✗ cannot look at /dev/null/bowline/policy.toml: Not a directory (os error 20)
                → until that is put right agents may do nothing here
            Models and keys
              ✗ no model can be chosen: cannot use /dev/null/bowline/keys.json: Not a directory (os error 20)
                → or name one with --model
            Configuration
              ✗ cannot read /dev/null/bowline/config.toml: Not a directory (os error 20)
                → repair it: until then neither run, chat nor agent starts
            --- stderr
            bowline: 4 things are broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        |scene| {
            let state = scene.home().join(".local/state/bowline");
            std::fs::create_dir_all(&state).unwrap();
            set_mode(&state, 0o755);
            set_mode(&scene.config_dir(), 0o777);
        },
        &[],
        expect![[r#"
            Directories
              ! state: $HOME/.local/state/bowline can be read by others
                → chmod go-rwx $HOME/.local/state/bowline
              ✗ configuration: $HOME/.config/bowline can be changed by others
                → chmod go-rwx $HOME/.config/bowline
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    let scene = CliFixture::new();
    expect![[r#"
        Directories
          ✗ state: $HOME/.local/state/bowline lies inside the workspace, where an agent could change it
            → work in a directory below $HOME, or set XDG_STATE_HOME to one outside of it
          ✗ configuration: $HOME/.config/bowline lies inside the workspace, where an agent could change it
            → work in a directory below $HOME, or set XDG_CONFIG_HOME to one outside of it
          ✗ anchors: $HOME/.local/share/bowline/anchors lies inside the workspace, where an agent could change it
            → work in a directory below $HOME, or set XDG_DATA_HOME to one outside of it
        Rules
          ✗ the rules in $HOME/.config/bowline/policy.toml lie inside the workspace $HOME, where an agent could change them: keep them elsewhere
            → until that is put right agents may do nothing here
        --- stderr
        bowline: 4 things are broken: see ✗ above
        --- 1
    "#]].assert_eq(&only_problems(&run_doctor(&scene, &["doctor", "--all", "--cwd", "../home"], &[])));
    expect![[r#"
        This workspace
          ✗ cannot open the directory $PROJECT/nowhere: No such file or directory (os error 2)
            → name another directory with --cwd
        --- stderr
        bowline: one thing is broken: see ✗ above
        --- 1
    "#]]
    .assert_eq(&only_problems(&run_doctor(&scene, &["doctor", "--all", "--cwd", "nowhere"], &[])));
}

#[test]
fn rules_that_are_not_understood_are_told() {
    let write = |text: &'static str| {
        move |scene: &CliFixture| {
            set_mode(&scene.config_dir(), 0o700);
            std::fs::write(scene.config_dir().join("policy.toml"), text).unwrap();
        }
    };
    check(
        write("preset = \"asks\"\n"),
        &[],
        expect![[r#"
            Rules
              ✗ $HOME/.config/bowline/policy.toml:1:10: asks is not one of ask, accept-edits, read-only, full, deny
                → until that is put right agents may do nothing here
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        |scene| {
            write("")(scene);
            set_mode(&scene.config_dir().join("policy.toml"), 0o666);
        },
        &[],
        expect![[r#"
            Rules
              ✗ $HOME/.config/bowline/policy.toml can be written by others: take that away (chmod go-w)
                → until that is put right agents may do nothing here
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        |scene| {
            set_mode(&scene.config_dir(), 0o700);
            std::fs::write(scene.config_dir().join("config.toml"), "[agents.gemini]\ncommand = gemini\n")
                .unwrap();
        },
        &[],
        expect![[r#"
            Configuration
              ✗ $HOME/.config/bowline/config.toml:2: string values must be quoted, expected literal string
                → repair it: until then neither run, chat nor agent starts
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
}

#[test]
fn agents_that_run_would_refuse_are_told() {
    let configured = |text: &'static str| {
        move |scene: &CliFixture| {
            set_mode(&scene.config_dir(), 0o700);
            std::fs::write(scene.config_dir().join("config.toml"), text).unwrap();
        }
    };
    for (text, expected) in [
        (
            "[agents]\ngemini = 3\n",
            expect![[r#"
                Configuration
                  ✗ $HOME/.config/bowline/config.toml:2: invalid type: integer `3`, expected a table with command, and args and env if it needs them
                    → repair it: until then neither run, chat nor agent starts
                --- stderr
                bowline: one thing is broken: see ✗ above
                --- 1
            "#]],
        ),
        (
            "[agents.gemini]\ncommand = \"sh\"\nargv = []\n",
            expect![[r#"
                Configuration
                  ✗ $HOME/.config/bowline/config.toml:3: unknown field `argv`, expected one of `command`, `args`, `env`
                    → repair it: until then neither run, chat nor agent starts
                --- stderr
                bowline: one thing is broken: see ✗ above
                --- 1
            "#]],
        ),
        (
            "[agents.a]\ncommand = \"no-such-agent --acp\"\n[agents.b]\ncommand = \"'\"\n",
            expect![[r#"
                Configuration
                  ! the agent a: there is no program no-such-agent
                    → install it, or change its command in $HOME/.config/bowline/config.toml
                  ! the agent b: its command is no command line: '
                    → install it, or change its command in $HOME/.config/bowline/config.toml
                --- 0
            "#]],
        ),
    ] {
        check(configured(text), &[], expected);
    }
}

#[test]
fn a_journal_and_a_log_that_were_spoilt_are_told() {
    let close = |scene: &CliFixture| set_mode(&scene.home().join(".local/state/bowline"), 0o700);
    let close = |scene: &CliFixture| {
        close(scene);
        set_mode(&scene.home().join(".local/share/bowline/anchors"), 0o700);
    };
    check(
        |scene| {
            let own = make_journal_and_log(scene);
            close(scene);
            std::fs::write(own.join("journal.sqlite"), "this is no database, but it is long enough to look")
                .unwrap();
        },
        &[],
        expect![[r#"
            This workspace
              ✗ journal: $HOME/.local/state/bowline/workspaces/project-HASH: it is damaged (file is not a database)
                → its changes cannot be undone; the next program that opens it sets it aside and starts a new one
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        |scene| {
            let own = make_journal_and_log(scene);
            close(scene);
            let log = own.join("audit/audit-00000001.jsonl");
            let text = std::fs::read_to_string(&log).unwrap();
            let kept: Vec<&str> =
                text.split_inclusive('\n').filter(|line| !line.contains("\"seq\":2")).collect();
            std::fs::write(log, kept.concat()).unwrap();
        },
        &[],
        expect![[r#"
            This workspace
              ✗ audit log: 3 entries, and not as they were written
                  audit-00000001.jsonl:2: entry 2 was removed before this line
                → the log was modified: `bowline audit verify` shows where
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    // The check has changed nothing: the damaged journal is still there to be set aside.
    let scene = CliFixture::new();
    let own = make_journal_and_log(&scene);
    let database = own.join("journal.sqlite");
    std::fs::write(&database, "spoilt").unwrap();
    run_doctor(&scene, &["doctor", "--all"], &[]);
    assert_eq!(std::fs::read_to_string(&database).unwrap(), "spoilt");
}

#[test]
fn keys_that_cannot_be_used_are_told_and_never_shown() {
    let keys = |mode: u32, text: &'static str| {
        move |scene: &CliFixture| {
            set_mode(&scene.config_dir(), 0o700);
            std::fs::write(scene.config_dir().join("keys.json"), text).unwrap();
            set_mode(&scene.config_dir().join("keys.json"), mode);
        }
    };
    check(
        keys(0o644, "{\"openai\":\"sk-secret\"}"),
        &[],
        expect![[r#"
            Models and keys
              ✗ no model can be chosen: $HOME/.config/bowline/keys.json can be read by others, so it is not used: run `chmod 600 $HOME/.config/bowline/keys.json` and replace the keys in it
                → or name one with --model
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        keys(0o600, "{\"openai\":\"sk-secret\", nonsense"),
        &[],
        expect![[r#"
            Models and keys
              ✗ no model can be chosen: $HOME/.config/bowline/keys.json is no file of keys: it is not as expected at line 1; repair or remove it
                → or name one with --model
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    check(
        |_| (),
        &[("GEMINI_API_KEY", "two words")],
        expect![[r#"
            Models and keys
              ✗ no model can be chosen: GEMINI_API_KEY is set, but holds no key: a key is printable and has no blanks; set it again or unset it
                → or name one with --model
            --- stderr
            bowline: one thing is broken: see ✗ above
            --- 1
        "#]],
    );
    let scene = CliFixture::new();
    keys(0o600, "{\"openai\":\"sk-secret-1234567890\"}")(&scene);
    let told = run_doctor(&scene, &["doctor", "--json"], &[("GEMINI_API_KEY", "secret-1234567890")]);
    assert!(!told.contains("secret"), "{told}");
    assert!(
        told.contains("without --model: openai/gpt-5 (the first that has a key, a stored one)"),
        "{told}"
    );
}

/// Answers every connection with one text.
fn start_server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = [0; 1024];
            assert!(stream.read(&mut asked).unwrap() > 0);
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    address
}

#[test]
fn the_network_is_asked_only_if_that_is_wanted() {
    let scene = CliFixture::new();
    let lines = |arguments: &[&str], host: &str| {
        let told = run_doctor(&scene, arguments, &[("OLLAMA_HOST", host)]);
        let lines: Vec<&str> = told.lines().skip_while(|line| !line.contains(" ollama: ")).collect();
        let until = lines.iter().position(|line| line.contains(" compatible: ")).unwrap();
        let lines: Vec<&str> = lines[..until].iter().map(|line| line.trim_start()).collect();
        lines.join("\n").replace(host, "$HOST") + "\n"
    };
    let there = start_server("HTTP/1.0 200 OK\r\n\r\n{\"version\":\"0.12.3\"}");
    expect![[r#"
          · ollama: needs no key; at $HOST (from OLLAMA_HOST)
    "#]]
    .assert_eq(&lines(&["doctor", "--all"], &there));
    expect![[r#"
          · ollama: needs no key; at $HOST (from OLLAMA_HOST)
          ✓ ollama: $HOST answers: Ollama 0.12.3
    "#]]
    .assert_eq(&lines(&["doctor", "--all", "--online"], &there));
    let other = start_server("220 mail.example ESMTP\r\n");
    expect![[r#"
        · ollama: needs no key; at $HOST (from OLLAMA_HOST)
        ! ollama: $HOST: something answers there that is no Ollama
        → start it with `ollama serve`, or set OLLAMA_HOST to where it is
    "#]]
    .assert_eq(&lines(&["doctor", "--all", "--online"], &format!("http://{other}/")));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    expect![[r#"
        · ollama: needs no key; at $HOST (from OLLAMA_HOST)
        ! ollama: $HOST: Connection refused (os error 111)
        → start it with `ollama serve`, or set OLLAMA_HOST to where it is
    "#]]
    .assert_eq(&lines(&["doctor", "--all", "--online"], &gone));
}

#[test]
fn programs_get_json() {
    let scene = CliFixture::new();
    let output = scene.run_command(scene.command(&["doctor", "--json", "--", "no-such-agent"]), "");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ok"], &report["broken"]), (&false.into(), &1.into()));
    let last = &report["sections"].as_array().unwrap().last().unwrap();
    expect![[r#"
        {
          "title": "The agent",
          "findings": [
            {
              "state": "broken",
              "text": "not found: no directory of PATH has a program no-such-agent",
              "advice": "install it, or name it by its whole path: editors may have another PATH than this shell"
            }
          ]
        }
    "#]].assert_eq(&format!("{last:#}\n"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "bowline: one thing is broken: see ✗ above\n");
}

#[test]
fn a_disk_that_takes_no_more_is_told() {
    let scene = CliFixture::new();
    std::fs::create_dir_all(scene.home().join(".local/state/bowline")).unwrap();
    set_mode(&scene.home().join(".local/state/bowline"), 0o700);
    // Files cannot grow, as on a full disk; the output is a pipe.
    let doctor = "trap '' XFSZ; ulimit -f 0; exec \"$0\" doctor --all";
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", doctor]).arg(crate::fixture::bowline());
    command.current_dir(scene.project()).env_clear();
    command.env("HOME", scene.home()).env("PATH", crate::fixture::search_path());
    expect![[r#"
        Directories
          ✗ state: $HOME/.local/state/bowline cannot be written: File too large (os error 27)
            → raise the limit on the size of files (ulimit -f), or set XDG_STATE_HOME to a directory elsewhere
          ✗ configuration: $HOME/.config/bowline cannot be made: $HOME: File too large (os error 27)
            → raise the limit on the size of files (ulimit -f), or set XDG_CONFIG_HOME to a directory elsewhere
          ✗ anchors: $HOME/.local/share/bowline/anchors cannot be made: $HOME/.local: File too large (os error 27)
            → raise the limit on the size of files (ulimit -f), or set XDG_DATA_HOME to a directory elsewhere
        --- stderr
        bowline: 3 things are broken: see ✗ above
        --- 1
    "#]].assert_eq(&only_problems(&normalize_machine(&scene.describe_output(&scene.run_command(command, "")))));
}
