//! Tests of `bowline policy`: the user's rules and presets, and their effects.

use expect_test::expect;

use crate::fixture::CliFixture;

#[test]
fn rules_are_added_listed_explained_and_forgotten() {
    let scene = CliFixture::new();
    let told = scene.run_all(&[
        &["policy", "show"],
        &["policy", "allow", "execute", "cargo test"],
        &["policy", "deny", "read", "**/*.pem", "--always", "--note", "keys"],
        &["policy", "ask", "execute", "--", "git", "push", "--force"],
        &["policy", "allow", "write,delete", "target/**", "--expires", "3000-01-01"],
        &["policy", "allow", "fetch", "*.docs.rs"],
        &["policy", "allow", "execute", "make all | tee log", "--exact"],
        &["policy", "show"],
        &["policy", "explain", "execute", "cargo test && git push --force origin; rm x > y"],
        &["policy", "explain", "execute", "--", "git", "push", "--force"],
        &["policy", "explain", "execute", "make all | tee log"],
        &["policy", "explain", "write", "target/debug/x"],
        &["policy", "explain", "write", "../x"],
        &["policy", "explain", "read", "/etc/passwd"],
        &["policy", "explain", "read", "key.pem"],
        &["policy", "explain", "fetch", "https://a.docs.rs/x"],
        &["policy", "explain", "read", ".env", "--json"],
        &["policy", "forget", "cargo test"],
        &["policy", "forget", "1"],
        &["policy", "show", "--json"],
    ]);
    expect![[r#"
        $ bowline policy show
        workspace $PROJECT
        rules in  $HOME/.config/bowline/policy.toml (not there yet)
        preset    ask: the usual one; your file states none

        no rules: `bowline policy allow`, `ask` and `deny` add some
        --- 0
        $ bowline policy allow execute cargo test
        1  allow execute: cargo test …  (this workspace)
        holds for the workspace $PROJECT
        --- 0
        $ bowline policy deny read **/*.pem --always --note keys
        1  deny read: **/*.pem  (every workspace; keys)
        holds for every workspace
        --- 0
        $ bowline policy ask execute -- git push --force
        3  ask execute: git push --force …  (this workspace)
        holds for the workspace $PROJECT
        --- 0
        $ bowline policy allow write,delete target/** --expires 3000-01-01
        4  allow write, delete: target/**  (this workspace; until WHEN)
        holds for the workspace $PROJECT
        --- 0
        $ bowline policy allow fetch *.docs.rs
        5  allow fetch: *.docs.rs  (this workspace)
        holds for the workspace $PROJECT
        --- 0
        $ bowline policy allow execute make all | tee log --exact
        6  allow execute: exactly make all | tee log  (this workspace)
        holds for the workspace $PROJECT
        --- 0
        $ bowline policy show
        workspace $PROJECT
        rules in  $HOME/.config/bowline/policy.toml
        preset    ask: the usual one; your file states none

        1  deny read: **/*.pem  (every workspace; keys)
        2  allow execute: cargo test …  (this workspace)
        3  ask execute: git push --force …  (this workspace)
        4  allow write, delete: target/**  (this workspace; until WHEN)
        5  allow fetch: *.docs.rs  (this workspace)
        6  allow execute: exactly make all | tee log  (this workspace)
        --- 0
        $ bowline policy explain execute cargo test && git push --force origin; rm x > y
        asked about: cargo test && git push --force origin; rm x > y
          ask: `git push --force origin`: rule 3, ask execute: git push --force …  (this workspace)
          ask: `y`: no rule covers it, and preset ask asks before writes
          ask: `rm x > y`: no rule covers it, and preset ask asks before commands
          allow: `cargo test`: rule 2, allow execute: cargo test …  (this workspace)
        --- 0
        $ bowline policy explain execute -- git push --force
        asked about: git push --force
          ask: `git push --force`: rule 3, ask execute: git push --force …  (this workspace)
        --- 0
        $ bowline policy explain execute make all | tee log
        allowed: make all | tee log
          allow: rule 6, allow execute: exactly make all | tee log  (this workspace)
        --- 0
        $ bowline policy explain write target/debug/x
        allowed: target/debug/x
          allow: rule 4, allow write, delete: target/**  (this workspace; until WHEN)
        --- 0
        $ bowline policy explain write ../x
        denied: $BASE/x
          deny: it lies outside the workspace
        --- 0
        $ bowline policy explain read /etc/passwd
        denied: /etc/passwd
          deny: it lies outside the workspace
        if an agent asks for permission to use its own tools: asked about
        --- 0
        $ bowline policy explain read key.pem
        denied: key.pem
          deny: rule 1, deny read: **/*.pem  (every workspace; keys)
          ask: it is a private key; only a rule that names it allows it
        --- 0
        $ bowline policy explain fetch https://a.docs.rs/x
        allowed: https://a.docs.rs/x
          allow: rule 5, allow fetch: *.docs.rs  (this workspace)
        --- 0
        $ bowline policy explain read .env --json
        {"workspace":"$PROJECT","preset":"ask","what":".env","effect":"ask","because":[{"effect":"ask","subject":null,"text":"ask: it holds secrets; only a rule that names it allows it"}],"run_and_chat":"ask","own_tools":null}
        --- 0
        $ bowline policy forget cargo test
        forgotten: allow execute: cargo test …  (this workspace)
        --- 0
        $ bowline policy forget 1
        forgotten: deny read: **/*.pem  (every workspace; keys)
        --- 0
        $ bowline policy show --json
        {"workspace":"$PROJECT","file":"$HOME/.config/bowline/policy.toml","exists":true,"preset":"ask","preset_of_workspace":null,"preset_of_all":null,"rules":[{"number":1,"effect":"ask","kinds":["execute"],"command":["git","push","--force"],"scope":"project","expires":null,"note":null},{"number":2,"effect":"allow","kinds":["write","delete"],"path":"target/**","scope":"project","expires":"WHEN","note":null},{"number":3,"effect":"allow","kinds":["fetch"],"host":"*.docs.rs","scope":"project","expires":null,"note":null},{"number":4,"effect":"allow","kinds":["execute"],"exact":"make all | tee log","scope":"project","expires":null,"note":null}]}
        --- 0
    "#]].assert_eq(&told);
}

#[test]
fn a_preset_is_for_a_workspace_or_for_all() {
    let scene = CliFixture::new();
    let told = scene.run_all(&[
        &["policy", "preset", "accept-edits"],
        &["policy", "preset", "read-only", "--always"],
        &["policy", "preset", "read-only", "--always"],
        &["policy", "explain", "write", "a.txt"],
        &["policy", "preset", "none"],
        &["policy", "explain", "write", "a.txt"],
        &["policy", "preset", "everything"],
    ]);
    expect![[r#"
        $ bowline policy preset accept-edits
        the workspace $PROJECT has the preset accept-edits
        --- 0
        $ bowline policy preset read-only --always
        every workspace has the preset read-only
        --- 0
        $ bowline policy preset read-only --always
        every workspace already has the preset read-only
        --- 0
        $ bowline policy explain write a.txt
        allowed: a.txt
          allow: no rule covers it, and preset accept-edits allows writes
        --- 0
        $ bowline policy preset none
        the workspace $PROJECT has no own preset
        --- 0
        $ bowline policy explain write a.txt
        denied: a.txt
          deny: no rule covers it, and preset read-only denies writes
        --- 0
        $ bowline policy preset everything
        --- stderr
        bowline: everything is not one of ask, accept-edits, read-only, full, deny, none
        --- 2
    "#]]
    .assert_eq(&told);
}

#[test]
fn what_cannot_be_a_rule_is_told_and_changes_nothing() {
    let scene = CliFixture::new();
    let told = scene.run_all(&[
        &["policy", "allow", "execute", "a && b"],
        &["policy", "allow", "read", "["],
        &["policy", "allow", "read", "~/x"],
        &["policy", "allow", "read", "../x"],
        &["policy", "allow", "read", ""],
        &["policy", "allow", "read", "a", "b"],
        &["policy", "allow", "read,execute", "a"],
        &["policy", "allow", "read", "a", "--exact"],
        &["policy", "allow", "fetch", "https://docs.rs/"],
        &["policy", "allow", "fly", "a"],
        &["policy", "allow", "read", "a", "--expires", "2000-01-01"],
        &["policy", "allow", "read", "a", "--expires", "soon"],
        &["policy", "allow", "read", "a", "--project", "--always"],
        &["policy", "forget", "1"],
        &["policy", "explain", "write", "a", "b"],
        &["policy", "explain", "execute", ""],
    ]);
    expect![[r#"
        $ bowline policy allow execute a && b
        --- stderr
        bowline: a && b is more than the words of one command: name each command in a rule of its own, or use --exact
        --- 2
        $ bowline policy allow read [
        --- stderr
        bowline: the path [ is no glob: unclosed character class; missing ']'
        --- 2
        $ bowline policy allow read ~/x
        --- stderr
        bowline: the path ~/x starts with ~: write the directory's whole name
        --- 2
        $ bowline policy allow read ../x
        --- stderr
        bowline: the path ../x has an empty part, . or .. in it: no file is named so
        --- 2
        $ bowline policy allow read 
        --- stderr
        bowline: the path is empty
        --- 2
        $ bowline policy allow read a b
        --- stderr
        bowline: there are 2 patterns, a rule has one: write a glob in quotes, one rule each
        --- 2
        $ bowline policy allow read,execute a
        --- stderr
        bowline: files, commands and hosts have patterns of their own: make a rule for each
        --- 2
        $ bowline policy allow read a --exact
        --- stderr
        bowline: --exact is for execute alone
        --- 2
        $ bowline policy allow fetch https://docs.rs/
        --- stderr
        bowline: the host https://docs.rs/ is none: write a name such as example.org, *.example.org for those below it, or *
        --- 2
        $ bowline policy allow fly a
        --- stderr
        bowline: invalid value 'fly' for '<KIND>': "fly" is not one of read, write, delete, execute, fetch (see --help)
        --- 2
        $ bowline policy allow read a --expires 2000-01-01
        --- stderr
        bowline: --expires is in the past: the rule would never hold
        --- 2
        $ bowline policy allow read a --expires soon
        --- stderr
        bowline: "soon" is no time: write a date such as 2027-01-31 or 2027-01-31T12:00:00Z, or a span such as 30m, 2h, 7d
        --- 2
        $ bowline policy allow read a --project --always
        --- stderr
        bowline: the argument '--project' cannot be used with '--always' (see --help)
        --- 2
        $ bowline policy forget 1
        --- stderr
        bowline: there is no rule 1 here, there are 0 rules: `bowline policy show` lists them
        --- 1
        $ bowline policy explain write a b
        --- stderr
        bowline: name one thing to write, there are 2
        --- 2
        $ bowline policy explain execute 
        --- stderr
        bowline: the command is empty: name a program, or give a shell line
        --- 2
    "#]].assert_eq(&told);
    assert!(!scene.home().join(".config/bowline/policy.toml").exists());
}

#[test]
fn rules_hold_for_agents_that_are_served() {
    let scene = CliFixture::new();
    scene.run(&["policy", "deny", "write", "secret/**"]);
    scene.run(&["policy", "allow", "execute", "echo"]);
    scene.run(&[
        "run",
        "--approve",
        "edits",
        "--format",
        "quiet",
        "write b: 1\nrun echo hi\nwrite secret/a: 1",
    ]);
    assert!(!scene.has_file("secret/a") && scene.has_file("b"));
    expect![[r#"
        "fs/write" "denied" "rule: rule 1 of $HOME/.config/bowline/policy.toml for this workspace (deny write: path `secret/**`)"
        "terminal/create" "allowed" "rule: `echo hi`: rule 2 of $HOME/.config/bowline/policy.toml for this workspace (allow execute: command `echo`)"
        "terminal/exit" "allowed" "rule: `echo hi`: rule 2 of $HOME/.config/bowline/policy.toml for this workspace (allow execute: command `echo`)"
    "#]].assert_eq(&rules_in_log(&scene));
}

/// Returns the decisions made by rules.
fn rules_in_log(scene: &CliFixture) -> String {
    let told = scene.run(&["audit", "show", "--json"]);
    let entries = told.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let by_rules = entries.filter(|entry| entry["by"].as_str().is_some_and(|by| by.starts_with("rule")));
    let mut lines: Vec<String> =
        by_rules.map(|entry| format!("{} {} {}\n", entry["kind"], entry["decision"], entry["by"])).collect();
    // The host and the agent write to the same log, in any order.
    lines.sort();
    lines.dedup();
    lines.concat()
}

#[test]
fn nothing_in_a_workspace_is_a_rule_and_a_file_that_is_none_is_told() {
    let scene = CliFixture::new();
    scene.write_file(".bowline/policy.toml", "preset = \"full\"\n");
    scene.write_file("policy.toml", "preset = \"full\"\n");
    assert!(scene.run(&["policy", "show"]).contains("preset    ask: the usual one"));
    let mut told = String::new();
    // No agent can work in the directory that contains the rules.
    for arguments in [&["policy", "show"][..], &["policy", "preset", "ask", "--always"]] {
        let mut command = scene.command(arguments);
        command.current_dir(scene.home());
        told += &scene.describe_output(&scene.run_command(command, ""));
    }
    std::fs::write(scene.config_dir().join("policy.toml"), "[[rules]]\neffect = \"perhaps\"\n").unwrap();
    told += &scene.run_all(&[&["policy", "show"], &["policy", "allow", "read", "a"]]);
    std::fs::write(scene.config_dir().join("policy.toml"), "").unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(scene.config_dir().join("policy.toml"), open).unwrap();
    told += &scene.run_all(&[&["policy", "show"]]);
    expect![[r#"
        --- stderr
        bowline: no agent can work in $HOME, because your rules lie in it: name a project with --cwd
        --- 1
        every workspace has the preset ask
        --- 0
        $ bowline policy show
        --- stderr
        bowline: $HOME/.config/bowline/policy.toml:2:10: perhaps is not one of allow, ask, deny
        --- 1
        $ bowline policy allow read a
        --- stderr
        bowline: $HOME/.config/bowline/policy.toml:2:10: perhaps is not one of allow, ask, deny
        --- 1
        $ bowline policy show
        --- stderr
        bowline: $HOME/.config/bowline/policy.toml can be written by others: take that away (chmod go-w)
        --- 1
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_rule_holds_for_the_directory_that_agents_are_run_in() {
    let scene = CliFixture::new();
    scene.write_file("sub/a.txt", "one\n");
    // Agents worked in a parent directory, which makes no difference here.
    scene.run(&["run", "--model", "offline", "read sub/a.txt"]);
    let sub = scene.file_path("sub");
    let told = scene.run_all(&[
        &["policy", "deny", "execute", "id", "--cwd", &sub],
        &["policy", "explain", "execute", "id", "--cwd", &sub],
        &["policy", "explain", "execute", "id"],
    ]);
    expect![[r#"
        $ bowline policy deny execute id --cwd $PROJECT/sub
        1  deny execute: id …  (this workspace)
        holds for the workspace $PROJECT/sub
        --- 0
        $ bowline policy explain execute id --cwd $PROJECT/sub
        denied: id
          deny: `id`: rule 1, deny execute: id …  (this workspace)
        --- 0
        $ bowline policy explain execute id
        asked about: id
          ask: `id`: no rule covers it, and preset ask asks before commands
        --- 0
    "#]]
    .assert_eq(&told);
    let ran = scene.run(&["run", "--model", "offline", "--approve", "all", "--cwd", &sub, "run id"]);
    assert!(ran.contains("denied: run id"), "{ran}");
}

#[test]
fn a_refusal_names_a_rule_by_the_number_that_show_and_forget_take() {
    let scene = CliFixture::new();
    for always in ["xxx", "yyy"] {
        scene.run(&["policy", "deny", "execute", always, "--always"]);
    }
    scene.run(&["policy", "deny", "execute", "whoami"]);
    let shown = scene.run(&["policy", "show"]);
    let told = scene.run(&["run", "--format", "quiet", "--approve", "all", "run whoami"]);
    let line =
        |text: &str, of: &str| text.lines().find(|line| line.contains(of)).unwrap_or_default().to_owned();
    expect![[r#"
        3  deny execute: whoami …  (this workspace)
        bowline: denied: run whoami: by `whoami`: rule 3 of $HOME/.config/bowline/policy.toml for this workspace (deny execute: command `whoami`)
    "#]].assert_eq(&format!("{}\n{}\n", line(&shown, "whoami"), line(&told, "denied: run")));
}

#[test]
fn what_is_empty_is_said_to_be_and_a_host_is_an_address() {
    let scene = CliFixture::new();
    scene.run(&["policy", "allow", "fetch", "docs.rs"]);
    let told = scene.run_all(&[
        &["policy", "deny", "execute", ""],
        &["policy", "explain", "write", ""],
        &["policy", "explain", "fetch", " "],
        &["policy", "explain", "fetch", "docs.rs"],
        &["policy", "explain", "fetch", "http://docs.rs/x"],
        &["policy", "explain", "fetch", "example.org"],
    ]);
    expect![[r#"
        $ bowline policy deny execute 
        --- stderr
        bowline: the command is empty: write its first words
        --- 2
        $ bowline policy explain write 
        --- stderr
        bowline: name something to write
        --- 2
        $ bowline policy explain fetch  
        --- stderr
        bowline: name something to fetch
        --- 2
        $ bowline policy explain fetch docs.rs
        allowed: https://docs.rs/
          allow: rule 1, allow fetch: docs.rs  (this workspace)
        --- 0
        $ bowline policy explain fetch http://docs.rs/x
        allowed: http://docs.rs/x
          allow: rule 1, allow fetch: docs.rs  (this workspace)
        --- 0
        $ bowline policy explain fetch example.org
        asked about: https://example.org/
          ask: no rule covers it, and preset ask asks before fetches
        --- 0
    "#]]
    .assert_eq(&told);
}

#[test]
fn an_explanation_names_what_the_configuration_approves() {
    let scene = CliFixture::new();
    scene.write_file("../home/.config/bowline/config.toml", "approve = \"edits\"\n");
    expect![[r#"
        $ bowline policy explain write a.txt
        asked about: a.txt
          ask: no rule covers it, and preset ask asks before writes
        in run and chat: allowed, because of `approve` in your config.toml
        --- 0
        $ bowline policy explain read a.txt
        allowed: a.txt
          allow: no rule covers it, and preset ask allows reads
        --- 0
        $ bowline policy explain write a.txt --json
        {"workspace":"$PROJECT","preset":"ask","what":"a.txt","effect":"ask","because":[{"effect":"ask","subject":null,"text":"ask: no rule covers it, and preset ask asks before writes"}],"run_and_chat":"allow","own_tools":null}
        --- 0
    "#]].assert_eq(&scene.run_all(&[
        &["policy", "explain", "write", "a.txt"],
        &["policy", "explain", "read", "a.txt"],
        &["policy", "explain", "write", "a.txt", "--json"],
    ]));
}
