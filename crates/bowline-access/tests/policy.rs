//! Tests of the policy file, and of the shell parser against a real shell.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};
use std::thread;

use bowline_access::policy::{MAX_POLICY_BYTES, PolicyError, PolicyFile, RuleScope};
use bowline_policy::operation::{CommandSpec, Operation, OperationKind, OperationTarget};
use bowline_policy::policy::{
    Effect, MAX_RULES, PolicyContext, Preset, Rule, RuleLifetime, RuleMatcher, RuleSource, RuleSpec, shell,
};
use bowline_protocol::terminal::Invocation;
use bowline_text::time::Timestamp;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use tempfile::TempDir;

/// A workspace, and a separate directory for the policy file.
struct PolicyFixture {
    scratch: TempDir,
    root: PathBuf,
    file: PathBuf,
}

impl PolicyFixture {
    fn new() -> Self {
        let scratch = TempDir::new().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let (root, file) = (base.join("project"), base.join("config/policy.toml"));
        fs::create_dir(&root).unwrap();
        Self { scratch, root, file }
    }

    /// Writes a policy file, in which `$ROOT` stands for the workspace.
    fn with_text(text: &str) -> Self {
        let world = Self::new();
        fs::create_dir(world.file.parent().unwrap()).unwrap();
        world.write(text);
        world
    }

    fn write(&self, text: &str) {
        fs::write(&self.file, text.replace("$ROOT", self.root.to_str().unwrap())).unwrap();
        self.set_mode(0o600);
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(&self.file, Permissions::from_mode(mode)).unwrap();
    }

    fn open(&self) -> Result<PolicyFile, PolicyError> {
        PolicyFile::open(&self.file, std::slice::from_ref(&self.root))
    }

    fn redact_paths(&self, text: &str) -> String {
        let base = self.scratch.path().canonicalize().unwrap();
        text.replace(self.root.to_str().unwrap(), "$ROOT").replace(base.to_str().unwrap(), "$BASE")
    }

    fn open_error(&self) -> String {
        self.redact_paths(&self.open().expect_err("the rules should be refused").to_string())
    }

    fn text(&self) -> String {
        self.redact_paths(&fs::read_to_string(&self.file).unwrap())
    }
}

fn rule(effect: Effect, kind: OperationKind, matcher: RuleMatcher) -> Rule {
    rule_until(effect, kind, matcher, None)
}

fn rule_until(effect: Effect, kind: OperationKind, matcher: RuleMatcher, expires: Option<Timestamp>) -> Rule {
    let source = RuleSource::UserAnswer { session: "s1".to_owned() };
    let lifetime = RuleLifetime::Project;
    Rule::new(RuleSpec { effect, kinds: kind.into(), matcher, lifetime, expires, source, note: None })
        .unwrap()
}

fn command_rule(line: &str) -> Rule {
    rule(
        Effect::Allow,
        OperationKind::Execute,
        RuleMatcher::Command(line.split(' ').map(ToOwned::to_owned).collect()),
    )
}

/// Shows the policy of a file for the workspace, or the error.
fn check(text: &str, expected: Expect) {
    let world = PolicyFixture::with_text(text);
    let mut out = String::new();
    match world.open() {
        Err(error) => writeln!(out, "! {error}").unwrap(),
        Ok(file) => {
            let policy = file.policy().unwrap();
            writeln!(out, "{}", policy.preset).unwrap();
            for rule in &policy.rules {
                writeln!(out, "{rule}").unwrap();
            }
        }
    }
    expected.assert_eq(&world.redact_paths(&out));
}

#[test]
fn rules_are_as_they_are_on_disk() {
    let world = PolicyFixture::with_text("");
    let file = world.open().unwrap();
    let stated = || file.policy_and_preset().map(|(policy, preset)| (preset, policy.rules.len()));
    assert_eq!(stated().unwrap(), (None, 0));
    world.write("preset = \"deny\"\n");
    assert_eq!(stated().unwrap(), (Some(Preset::Deny), 0));
    file.add_rule(&command_rule("ls"), RuleScope::Workspace).unwrap();
    assert_eq!(stated().unwrap(), (Some(Preset::Deny), 1));
    world.write("preset = 1\n");
    stated().unwrap_err();
    stated().expect_err("what cannot be used leaves nothing behind");
}

#[test]
fn a_file_has_rules_for_all_workspaces_and_for_each() {
    check(
        r#"
preset = "read-only"
[[rules]]
effect = "deny"
command = "git push"
note = "by hand"
[[rules]]
effect = "ask"
kinds = "fetch"
everything = true
[workspaces."$ROOT"]
preset = "accept-edits"
[[workspaces."$ROOT".rules]]
effect = "allow"
kinds = ["write", "delete"]
path = "target/**"
expires = 2027-01-01T00:00:00Z
[[workspaces."$ROOT".rules]]
effect = "allow"
command = ["cargo", "test"]
[[workspaces."$ROOT".rules]]
effect = "allow"
exact = "ls | wc -l"
[workspaces."/other"]
preset = "full"
[[workspaces."/other".rules]]
effect = "allow"
host = "*.example.org"
"#,
        expect![[r#"
            accept-edits
            rule 1 of $BASE/config/policy.toml (deny execute: command `git push`), noted: by hand
            rule 2 of $BASE/config/policy.toml (ask fetch: everything)
            rule 3 of $BASE/config/policy.toml for this workspace (allow write, delete: path `target/**`)
            rule 4 of $BASE/config/policy.toml for this workspace (allow execute: command `cargo test`)
            rule 5 of $BASE/config/policy.toml for this workspace (allow execute: exactly `ls | wc -l`)
        "#]],
    );
}

#[test]
fn rules_for_a_directory_are_not_for_those_below_it() {
    let world = PolicyFixture::with_text(
        "[workspaces.\"$ROOT\"]\npreset = \"full\"\n[[workspaces.\"$ROOT\".rules]]\neffect = \"allow\"\ncommand = \"ls\"\n",
    );
    let below = world.root.join("below");
    fs::create_dir(&below).unwrap();
    let policy = PolicyFile::open(&world.file, &[below]).unwrap().policy().unwrap();
    assert_eq!((policy.preset, policy.rules.len()), (Preset::Ask, 0));
    assert_eq!(world.open().unwrap().policy().unwrap().preset, Preset::Full);
}

#[test]
fn what_is_not_understood_is_an_error_with_its_place() {
    let rule = |rest: &str| format!("[[rules]]\n{rest}\n");
    let mut out = String::new();
    for text in [
        "preset = ask".to_owned(),
        "preset = \"asks\"".to_owned(),
        "preset = 1".to_owned(),
        "presets = \"ask\"".to_owned(),
        "preset = \"ask\"\npreset = \"full\"".to_owned(),
        "[rules]\neffect = \"deny\"".to_owned(),
        "rules = []".to_owned(),
        "workspaces = 1".to_owned(),
        "[workspaces.project]\npreset = \"full\"".to_owned(),
        "[workspaces.\"/a/\"]\npreset = \"full\"".to_owned(),
        "[workspaces.\"/a\"]\npresets = \"full\"".to_owned(),
        "[workspaces]\n\"/a\" = { preset = \"full\" }".to_owned(),
        rule(""),
        rule("effect = \"deny\""),
        rule("effect = \"deny\"\ncommand = \"rm\"\npath = \"x\""),
        rule("effect = \"deny\"\ncomand = \"rm\""),
        rule("effect = \"Deny\"\ncommand = \"rm\""),
        rule("command = \"rm\""),
        rule("effect = \"deny\"\ncommand = \"rm $x\""),
        rule("effect = \"deny\"\ncommand = \"rm; ls\""),
        rule("effect = \"deny\"\ncommand = \"rm # x\""),
        rule("effect = \"deny\"\ncommand = \"\""),
        rule("effect = \"deny\"\ncommand = []"),
        rule("effect = \"deny\"\ncommand = [1]"),
        rule("effect = \"deny\"\npath = \"x\""),
        rule("effect = \"deny\"\nkinds = [\"wirte\"]\npath = \"x\""),
        rule("effect = \"deny\"\nkinds = []\npath = \"x\""),
        rule("effect = \"deny\"\nkinds = [\"execute\"]\npath = \"x\""),
        rule("effect = \"deny\"\nkinds = [\"write\"]\npath = \"[\""),
        rule("effect = \"deny\"\nkinds = [\"write\"]\neverything = false"),
        rule("effect = \"deny\"\ncommand = \"rm\"\nexpires = 2027-01-01"),
        rule("effect = \"deny\"\ncommand = \"rm\"\nexpires = \"soon\""),
        rule("effect = \"deny\"\ncommand = \"rm\"\nnote = 1"),
        "[[workspaces.\"/a\".rules]]\neffect = \"deny\"\nhost = \"a b\"".to_owned(),
    ] {
        let error = PolicyFixture::with_text(&text).open_error();
        writeln!(
            out,
            "{}\n    {}",
            text.trim().replace('\n', " ⏎ "),
            error.replace("$BASE/config/policy.toml", "")
        )
        .unwrap();
    }
    expect![[r#"
        preset = ask
            :1:10: string values must be quoted, expected literal string
        preset = "asks"
            :1:10: asks is not one of ask, accept-edits, read-only, full, deny
        preset = 1
            :1:10: preset is a text: put it in quotes
        presets = "ask"
            :1:1: "presets" is not known here, only preset, rules, workspaces are
        preset = "ask" ⏎ preset = "full"
            :2:1: duplicate key
        [rules] ⏎ effect = "deny"
            :1:1: write each rule on lines of its own, after [[rules]]
        rules = []
            :1:9: write each rule on lines of its own, after [[rules]]
        workspaces = 1
            :1:14: write [workspaces."/the/directory"] on a line of its own
        [workspaces.project] ⏎ preset = "full"
            :1:13: "project" is not the name of a directory: write an absolute path, with no / at its end
        [workspaces."/a/"] ⏎ preset = "full"
            :1:13: "/a/" is not the name of a directory: write an absolute path, with no / at its end
        [workspaces."/a"] ⏎ presets = "full"
            :2:1: "presets" is not known here, only preset, rules are
        [workspaces] ⏎ "/a" = { preset = "full" }
            :2:1: write [workspaces."/a"] on a line of its own
        [[rules]]
            :1:1: the rule has no effect: add effect = "deny", "ask" or "allow"
        [[rules]] ⏎ effect = "deny"
            :1:1: the rule speaks of nothing: add one of path, command, exact, host, variable, everything
        [[rules]] ⏎ effect = "deny" ⏎ command = "rm" ⏎ path = "x"
            :4:8: a rule has one of path, command, exact, host, variable, everything: make it two rules
        [[rules]] ⏎ effect = "deny" ⏎ comand = "rm"
            :3:1: "comand" is not known here, only effect, kinds, path, command, exact, host, variable, everything, expires, note are
        [[rules]] ⏎ effect = "Deny" ⏎ command = "rm"
            :2:10: Deny is not one of allow, ask, deny
        [[rules]] ⏎ command = "rm"
            :1:1: the rule has no effect: add effect = "deny", "ask" or "allow"
        [[rules]] ⏎ effect = "deny" ⏎ command = "rm $x"
            :3:11: command is plain words, as in a shell: quote the others, or write a list of words
        [[rules]] ⏎ effect = "deny" ⏎ command = "rm; ls"
            :3:11: command is plain words, as in a shell: quote the others, or write a list of words
        [[rules]] ⏎ effect = "deny" ⏎ command = "rm # x"
            :3:11: command is plain words, as in a shell: quote the others, or write a list of words
        [[rules]] ⏎ effect = "deny" ⏎ command = ""
            :3:11: command is plain words, as in a shell: quote the others, or write a list of words
        [[rules]] ⏎ effect = "deny" ⏎ command = []
            :1:1: the command is empty
        [[rules]] ⏎ effect = "deny" ⏎ command = [1]
            :3:12: command is a list of texts: put each in quotes
        [[rules]] ⏎ effect = "deny" ⏎ path = "x"
            :1:1: the rule has no kinds: add kinds = ["write"], or others of read, write, delete, execute, fetch
        [[rules]] ⏎ effect = "deny" ⏎ kinds = ["wirte"] ⏎ path = "x"
            :3:9: "wirte" is not one of read, write, delete, execute, fetch
        [[rules]] ⏎ effect = "deny" ⏎ kinds = [] ⏎ path = "x"
            :1:1: the rule holds for no kind: name one of read, write, delete, execute, fetch
        [[rules]] ⏎ effect = "deny" ⏎ kinds = ["execute"] ⏎ path = "x"
            :1:1: a rule by path cannot hold for execute: leave that kind out
        [[rules]] ⏎ effect = "deny" ⏎ kinds = ["write"] ⏎ path = "["
            :1:1: the path [ is no glob: unclosed character class; missing ']'
        [[rules]] ⏎ effect = "deny" ⏎ kinds = ["write"] ⏎ everything = false
            :4:14: write everything = true, or leave it out
        [[rules]] ⏎ effect = "deny" ⏎ command = "rm" ⏎ expires = 2027-01-01
            :4:11: expires is a date with time and zone, such as 2027-01-01T00:00:00Z
        [[rules]] ⏎ effect = "deny" ⏎ command = "rm" ⏎ expires = "soon"
            :4:11: expires is a date with time and zone, such as 2027-01-01T00:00:00Z
        [[rules]] ⏎ effect = "deny" ⏎ command = "rm" ⏎ note = 1
            :4:8: note is a text: put it in quotes
        [[workspaces."/a".rules]] ⏎ effect = "deny" ⏎ host = "a b"
            :1:1: the host a b is none: write a name such as example.org, *.example.org for those below it, or *
    "#]].assert_eq(&out);
}

#[test]
fn a_file_that_an_agent_or_another_user_could_change_is_refused() {
    let mut out = String::new();
    let mut say = |what: &str, error: String| writeln!(out, "{what}: {error}").unwrap();

    let mut world = PolicyFixture::new();
    world.file = world.root.join("policy.toml");
    say("in the workspace, not there yet", world.open_error());
    fs::create_dir(world.root.join("sub")).unwrap();
    symlink(world.root.join("sub"), world.scratch.path().join("link")).unwrap();
    world.file = world.scratch.path().canonicalize().unwrap().join("link/policy.toml");
    say("through a link to a directory", world.open_error());
    let world = PolicyFixture::with_text("");
    fs::write(world.root.join("p.toml"), "").unwrap();
    fs::remove_file(&world.file).unwrap();
    symlink(world.root.join("p.toml"), &world.file).unwrap();
    say("a link into the workspace", world.open_error());
    fs::remove_file(world.root.join("p.toml")).unwrap();
    say("a link that leads nowhere", world.open_error());

    let world = PolicyFixture::with_text("");
    world.set_mode(0o620);
    say("writable by the group", world.open_error());
    world.set_mode(0o602);
    say("writable by all", world.open_error());
    world.set_mode(0o600);
    fs::set_permissions(world.file.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
    say("in a directory writable by all", world.open_error());

    let world = PolicyFixture::with_text("");
    fs::remove_file(&world.file).unwrap();
    fs::create_dir(&world.file).unwrap();
    say("a directory", world.open_error());
    fs::remove_dir(&world.file).unwrap();
    assert!(Process::new("mkfifo").arg(&world.file).status().unwrap().success());
    world.set_mode(0o600);
    say("a pipe", world.open_error());
    let world = PolicyFixture::with_text(&"#".repeat(usize::try_from(MAX_POLICY_BYTES).unwrap() + 1));
    say("too large", world.open_error());
    let world = PolicyFixture::with_text("");
    fs::write(&world.file, b"\xff").unwrap();
    say("not UTF-8", world.open_error());
    let world = PolicyFixture::with_text(&"[[rules]]\neffect=\"ask\"\ncommand=\"a\"\n".repeat(MAX_RULES + 1));
    say("too many rules", world.open_error());
    let relative = PolicyFile::open("policy.toml".as_ref(), std::slice::from_ref(&world.root)).unwrap_err();
    say("relative", relative.to_string());
    let no_root = PolicyFile::open(&world.file, &[]).is_err();
    assert!(no_root);

    expect![[r#"
        in the workspace, not there yet: the rules in $ROOT/policy.toml lie inside the workspace $ROOT, where an agent could change them: keep them elsewhere
        through a link to a directory: the rules in $ROOT/sub lie inside the workspace $ROOT, where an agent could change them: keep them elsewhere
        a link into the workspace: the rules in $ROOT/p.toml lie inside the workspace $ROOT, where an agent could change them: keep them elsewhere
        a link that leads nowhere: cannot look at $BASE/config/policy.toml: No such file or directory (os error 2)
        writable by the group: $BASE/config/policy.toml can be written by others: take that away (chmod go-w)
        writable by all: $BASE/config/policy.toml can be written by others: take that away (chmod go-w)
        in a directory writable by all: $BASE/config can be written by others: take that away (chmod go-w)
        a directory: $BASE/config/policy.toml is not a regular file
        a pipe: $BASE/config/policy.toml is not a regular file
        too large: $BASE/config/policy.toml has 1048577 bytes, a file of rules has at most 1048576
        not UTF-8: $BASE/config/policy.toml is not UTF-8
        too many rules: $BASE/config/policy.toml has 2000 rules, which is the most there can be: remove some
        relative: policy.toml is not an absolute path in UTF-8
    "#]].assert_eq(&out);
}

#[test]
fn no_file_means_to_ask_and_a_broken_one_to_refuse() {
    let world = PolicyFixture::new();
    let file = world.open().unwrap();
    assert_eq!(file.policy().unwrap().preset, Preset::Ask);
    fs::create_dir(world.file.parent().unwrap()).unwrap();
    world.write("preset = \"full\"");
    assert_eq!(file.policy().unwrap().preset, Preset::Full);
    world.write("preset = \"deny\"");
    assert_eq!(file.policy().unwrap().preset, Preset::Deny);
    world.write("preset = \"full");
    assert!(matches!(file.policy(), Err(PolicyError::Syntax { line: 1, .. })));
    assert!(file.policy().is_err());
    assert!(file.add_rule(&command_rule("ls"), RuleScope::Workspace).is_err());
    world.write("preset = \"read-only\"");
    assert_eq!(file.policy().unwrap().preset, Preset::ReadOnly);
    world.set_mode(0o666);
    assert!(matches!(file.policy(), Err(PolicyError::WritableByOthers(_))));
    world.set_mode(0o600);
    fs::remove_file(&world.file).unwrap();
    assert_eq!(file.policy().unwrap().preset, Preset::Ask);
}

#[test]
fn a_rule_is_added_and_all_else_stays() {
    let world = PolicyFixture::with_text(
        "# mine\npreset = \"ask\" # really\n\n[[rules]]\neffect = \"deny\"\ncommand = \"rm\"   # never\n\n\
         [workspaces.\"/other\"] # elsewhere\npreset = \"full\"\n# the end\n",
    );
    let file = world.open().unwrap();
    file.add_rule(&command_rule("cargo test"), RuleScope::Workspace).unwrap();
    file.add_rule(&command_rule("cargo test"), RuleScope::Workspace).unwrap();
    file.add_rule(&command_rule("ls"), RuleScope::Global).unwrap();
    let odd = RuleMatcher::Command(vec!["a b".to_owned(), "c$d".to_owned()]);
    let end = Some(Timestamp(1_800_000_000_123));
    file.add_rule(&rule_until(Effect::Ask, OperationKind::Execute, odd, end), RuleScope::Workspace).unwrap();
    let line = RuleMatcher::Exact(Invocation::Shell("a \"b\" | c".to_owned()));
    file.add_rule(&rule(Effect::Allow, OperationKind::Execute, line), RuleScope::Workspace).unwrap();
    let path = RuleMatcher::Path("src/\u{e9}/**".to_owned());
    file.add_rule(&rule(Effect::Allow, OperationKind::Write, path), RuleScope::Workspace).unwrap();
    let variable = RuleMatcher::Variable("NODE_OPTIONS".to_owned());
    file.add_rule(&rule(Effect::Allow, OperationKind::Execute, variable), RuleScope::Workspace).unwrap();
    expect![[r##"
        # mine
        preset = "ask" # really

        [[rules]]
        effect = "deny"
        command = "rm"   # never

        [[rules]]
        effect = "allow"
        kinds = ["execute"]
        command = "ls"

        [workspaces."/other"] # elsewhere
        preset = "full"

        [[workspaces."$ROOT".rules]]
        effect = "allow"
        kinds = ["execute"]
        command = "cargo test"

        [[workspaces."$ROOT".rules]]
        effect = "ask"
        kinds = ["execute"]
        command = ["a b", "c$d"]
        expires = 2027-01-15T08:00:00.123Z

        [[workspaces."$ROOT".rules]]
        effect = "allow"
        kinds = ["execute"]
        exact = 'a "b" | c'

        [[workspaces."$ROOT".rules]]
        effect = "allow"
        kinds = ["write"]
        path = "src/é/**"

        [[workspaces."$ROOT".rules]]
        effect = "allow"
        kinds = ["execute"]
        variable = "NODE_OPTIONS"
        # the end
    "##]]
    .assert_eq(&world.text());
    let shown: Vec<String> =
        file.rules().unwrap().iter().map(|rule| world.redact_paths(&rule.to_string())).collect();
    expect![[r#"
        rule 1 of $BASE/config/policy.toml (deny execute: command `rm`)
        rule 2 of $BASE/config/policy.toml (allow execute: command `ls`)
        rule 3 of $BASE/config/policy.toml for this workspace (allow execute: command `cargo test`)
        rule 4 of $BASE/config/policy.toml for this workspace (ask execute: command `a b c$d`)
        rule 5 of $BASE/config/policy.toml for this workspace (allow execute: exactly `a "b" | c`)
        rule 6 of $BASE/config/policy.toml for this workspace (allow write: path `src/é/**`)
        rule 7 of $BASE/config/policy.toml for this workspace (allow execute: variable `NODE_OPTIONS`)"#]]
    .assert_eq(&shown.join("\n"));

    assert!(file.remove_rule(&command_rule("cargo test"), RuleScope::Workspace).unwrap());
    assert!(!file.remove_rule(&command_rule("cargo test"), RuleScope::Workspace).unwrap());
    assert!(!file.remove_rule(&command_rule("ls"), RuleScope::Workspace).unwrap());
    assert!(file.remove_rule(&command_rule("ls"), RuleScope::Global).unwrap());
    assert_eq!(file.rules().unwrap().len(), 5);
    assert!(world.text().contains("# never") && world.text().contains("# the end"));
    let turn = RuleLifetime::Session { session: "s1".to_owned() };
    let short = Rule::new(RuleSpec { lifetime: turn, ..command_rule("ls").spec().clone() }).unwrap();
    assert!(matches!(file.add_rule(&short, RuleScope::Workspace), Err(PolicyError::NotPersistent)));
}

#[test]
fn a_new_file_is_private() {
    let world = PolicyFixture::new();
    world.open().unwrap().add_rule(&command_rule("ls"), RuleScope::Global).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&world.file), mode(world.file.parent().unwrap())), (0o600, 0o700));
    expect![[r#"
        [[rules]]
        effect = "allow"
        kinds = ["execute"]
        command = "ls"
    "#]]
    .assert_eq(&world.text());
}

#[test]
fn a_link_to_the_file_stays_a_link() {
    let world = PolicyFixture::with_text("");
    let real = world.file.with_file_name("dotfiles.toml");
    fs::rename(&world.file, &real).unwrap();
    symlink(&real, &world.file).unwrap();
    let file = world.open().unwrap();
    file.add_rule(&command_rule("ls"), RuleScope::Global).unwrap();
    assert!(fs::symlink_metadata(&world.file).unwrap().is_symlink());
    assert_eq!(file.rules().unwrap().len(), 1);
}

#[test]
fn forms_that_cannot_be_added_to_are_left_alone() {
    let text = "workspaces.\"$ROOT\".preset = \"full\"\n";
    let world = PolicyFixture::with_text(text);
    let file = world.open().unwrap();
    match file.add_rule(&command_rule("ls"), RuleScope::Workspace) {
        Ok(()) => assert_eq!(file.rules().unwrap().len(), 1),
        Err(error) => {
            assert!(matches!(error, PolicyError::CannotEdit(_) | PolicyError::Syntax { .. }), "{error}");
            assert_eq!(world.text(), text);
        }
    }
    assert_eq!(file.policy().unwrap().preset, Preset::Full);
}

#[test]
fn those_who_edit_at_once_lose_nothing() {
    let world = PolicyFixture::new();
    thread::scope(|scope| {
        for who in 0..4 {
            let world = &world;
            scope.spawn(move || {
                let file = world.open().unwrap();
                for number in 0..8 {
                    file.add_rule(&command_rule(&format!("c{who} {number}")), RuleScope::Workspace).unwrap();
                    file.policy().unwrap();
                }
            });
        }
    });
    assert_eq!(world.open().unwrap().rules().unwrap().len(), 32);
}

#[test]
fn a_rule_from_the_file_says_so_when_it_decides() {
    let world =
        PolicyFixture::with_text("[[workspaces.\"$ROOT\".rules]]\neffect = \"deny\"\ncommand = \"rm\"\n");
    let policy = world.open().unwrap().policy().unwrap();
    let invocation = Invocation::Shell("ls && rm -rf build".to_owned());
    let command = CommandSpec {
        invocation,
        cwd: world.root.to_str().unwrap().to_owned(),
        env: Vec::new(),
        named_paths: Vec::new(),
    };
    let operation = Operation { kind: OperationKind::Execute, target: OperationTarget::Command(command) };
    let context = PolicyContext { session: "s1".to_owned(), turn: Some(1), now: Timestamp(0) };
    let ruling = world.redact_paths(&policy.evaluate(&operation, &context).to_string());
    expect![[r#"
        deny: `rm -rf build`: rule 1 of $BASE/config/policy.toml for this workspace (deny execute: command `rm`)
        ask: `ls`: no rule covers it, and preset ask asks before commands
        ask: `build`: which file this is depends on the shell"#]]
    .assert_eq(&ruling);
}

/// Runs a line in a shell in which every program is a function that logs its words, each followed by a mark, and then
/// another mark. The programs are `a` to `e`.
fn run_in_shell(shell: &str, line: &str) -> Vec<u8> {
    let scratch = TempDir::new().unwrap();
    let log = scratch.path().join("log");
    let work = scratch.path().join("work");
    fs::create_dir(&work).unwrap();
    let mut script = String::new();
    for name in ["a", "b", "c", "d", "e"] {
        // Descriptor 9 is the log, which no redirection of the line affects. Concurrent commands must each write in one
        // call, so the output has no line ends, at which a shell flushes.
        writeln!(script, "{name}() {{ printf '%s\\001' {name} \"$@\" '\u{2}' >&9; }}").unwrap();
    }
    writeln!(script, "{line}\nwait").unwrap();
    let mut process = Process::new(shell);
    process.arg("-c").arg("exec 9>>\"$LOG\"\neval \"$LINE\"");
    process
        .env_clear()
        .env("LOG", &log)
        .env("LINE", &script)
        .env("PATH", "/nowhere")
        .env("LC_ALL", "C.UTF-8");
    process.current_dir(&work).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    process.status().unwrap();
    fs::read(&log).unwrap_or_default()
}

/// Returns the log expected of a line, according to the parser: one element per command.
fn expected_words(line: &shell::ShellLine) -> Vec<Vec<u8>> {
    let each = |command: &shell::SimpleCommand| {
        let mut out = Vec::new();
        for word in &command.words {
            out.extend_from_slice(word.text.as_bytes());
            out.push(1);
        }
        out
    };
    line.commands.iter().filter(|command| !command.words.is_empty()).map(each).collect()
}

/// Checks that a shell runs a line as the parser reads it. Concurrent commands may write in any order.
fn check_shell_agrees(shell: &str, line: &str) -> Result<(), TestCaseError> {
    let Ok(parsed) = shell::parse(line) else { return Ok(()) };
    // Redirections stay within the directory of the test.
    let is_safe = |found: &shell::Redirection| {
        found.access == shell::RedirectionAccess::Write
            && found.target.is_literal
            && !found.target.text.contains('/')
    };
    let known = |command: &shell::SimpleCommand| {
        command.words.first().is_none_or(|word| ["a", "b", "c", "d", "e"].contains(&word.text.as_str()))
            && command.words.iter().all(|word| word.is_literal && !word.text.contains('\n'))
            && command.redirections.iter().all(is_safe)
    };
    if !parsed.commands.iter().all(known) {
        return Ok(());
    }
    let log = run_in_shell(shell, line);
    let mut ran: Vec<Vec<u8>> = log.split(|byte| *byte == 2).map(<[u8]>::to_vec).collect();
    // Each command ends with its own mark and that of a word.
    ran.pop();
    for command in ran.iter_mut().skip(1) {
        command.remove(0);
    }
    let mut read = expected_words(&parsed);
    // Every command that ran must be one that was parsed. After `||` and failures, some do not run.
    let certain = !line.contains("||") && !line.contains('>');
    ran.sort();
    read.sort();
    if certain {
        prop_assert_eq!(&ran, &read, "{} in {}", line, shell);
    } else {
        for command in &ran {
            prop_assert!(read.contains(command), "{} ran {:?}", line, String::from_utf8_lossy(command));
        }
    }
    Ok(())
}

#[test]
fn lines_are_read_as_real_shells_read_them() {
    for shell in ["/bin/bash", "/bin/sh"] {
        for line in [
            "a b c",
            "a 'b  c' \"d e\" f\\ g",
            r#"a "x\"y\\z\q\$w" '\\' \\ \' \""#,
            "a;b&&c||d|e&a",
            "a \\\n b",
            "\\\n a",
            "a x#y #z\nb # ; c\nd",
            "a && # why\n\n b",
            "X=1 a Y=2",
            "X=1 Y='2 3' a",
            "a > out b",
            ">out a b 2>&1 c",
            "a 2>out 1>&2",
            "a 2",
            "a {} HEAD~1 HEAD^ a=b = %x ]",
            "\\a 'b'",
            "'a' b; \"b\" c",
            "a ''\"\" ''",
            "a é",
            "a 'é'",
            "a '\t'",
            "a\tb",
            "a =",
            "a 1 >out",
            "a b|c|d",
            "a &\nb &",
            "a \"a\\\\\"",
            "a -n -- --x=y",
        ] {
            check_shell_agrees(shell, line).unwrap();
        }
    }
}

/// A mostly valid line, so that most are accepted.
fn any_line() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "x", "y-z", "'q r'", "\"s t\"", "\\ ", "\\\"", "\\\\", "''", "\"\\\"\"", "'\\'", "\"\\u\"", "1", "=",
        "#", "~", "^", "'é'", "'$v'", "\"\\$w\"", "'`'", "%", ":", "'&'", "\\;", "\\>", "'\t'", "'#'",
        "'{a,b}'", "\\*", "'!'", "-e",
    ]);
    let word = prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat());
    let extra = prop::sample::select(vec![
        "", "", "", "", ">o ", "2>&1 ", "X=1 ", "2>>o ", ">|o ", "\\\n", "1", "2>",
    ]);
    let command = (
        extra.clone(),
        prop::sample::select(vec!["a", "b", "'c'", "\\d", "\"e\""]),
        prop::collection::vec((prop::sample::select(vec![" ", "  ", "\t", " \\\n"]), extra, word), 0..4),
    );
    let command = command.prop_map(|(before, program, words)| {
        let mut line = format!("{before}{program}");
        for (blank, extra, word) in words {
            line.extend([blank, extra, &word]);
        }
        line
    });
    let joint =
        prop::sample::select(vec![";", " ; ", "&&", " || ", "|", " & ", "\n", " # x\n", " |& ", "\n\n"]);
    prop::collection::vec((command, joint), 1..4)
        .prop_map(|parts| {
            parts.iter().map(|(command, joint)| format!("{command}{joint}")).collect::<String>()
        })
        .prop_map(|line| line.trim_end_matches(['&', '|', ' ']).to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(250) })]

    #[test]
    fn accepted_lines_run_as_they_are_read(
        line in prop::collection::vec(
            prop::sample::select(vec![
                "a", "b", "c", "d", "e", " ", " ", " ", "  ", "\t", "\n", "'", "\"", "\\", ";", "&", "|", "&&", "||",
                "#", "=", "X=", ">", ">o", "2", "2>", "&1", "{}", "~", "^", "%", "x", "'x y'", "\"x y\"", "\\ ", "é", "-",
                "]", ":", ",", "+", "@", "/", ".",
            ]),
            1..14,
        ),
    ) {
        check_shell_agrees("/bin/bash", &line.concat())?;
    }

    #[test]
    fn orderly_lines_run_as_they_are_read(line in any_line()) {
        check_shell_agrees("/bin/bash", &line)?;
        // Other shells have no `|&`, and reject the whole line.
        check_shell_agrees("/bin/sh", &line.replace("|&", "|"))?;
    }
}

#[test]
fn a_preset_is_stated_and_taken_out_with_all_else_as_it_was() {
    let world = PolicyFixture::with_text("# mine\n[[rules]] # never\neffect = \"deny\"\ncommand = \"rm\"\n");
    let file = world.open().unwrap();
    assert!(file.set_preset(Some(Preset::AcceptEdits), RuleScope::Workspace).unwrap());
    assert!(!file.set_preset(Some(Preset::AcceptEdits), RuleScope::Workspace).unwrap());
    assert!(file.set_preset(Some(Preset::ReadOnly), RuleScope::Global).unwrap());
    assert_eq!(file.policy().unwrap().preset, Preset::AcceptEdits);
    file.add_rule(&command_rule("ls"), RuleScope::Workspace).unwrap();
    expect![[r#"
        preset = "read-only"
        # mine
        [[rules]] # never
        effect = "deny"
        command = "rm"

        [workspaces."$ROOT"]
        preset = "accept-edits"

        [[workspaces."$ROOT".rules]]
        effect = "allow"
        kinds = ["execute"]
        command = "ls"
    "#]]
    .assert_eq(&world.text());
    assert!(file.set_preset(None, RuleScope::Workspace).unwrap());
    assert!(!file.set_preset(None, RuleScope::Workspace).unwrap());
    assert_eq!(file.preset(RuleScope::Workspace).unwrap(), None);
    assert_eq!(file.preset(RuleScope::Global).unwrap(), Some(Preset::ReadOnly));
    assert_eq!(file.policy().unwrap().preset, Preset::ReadOnly);
    assert_eq!(file.rules().unwrap().len(), 2);
    let inline = PolicyFixture::with_text("workspaces = { }\n");
    assert!(inline.open().is_err());
}

#[test]
fn dates_are_read_as_people_write_them() {
    let read = |text: &str| bowline_access::policy::parse_timestamp(text).map(|Timestamp(at)| at);
    assert_eq!(read("1970-01-02"), Some(86_400_000));
    assert_eq!(read("1970-01-01T01:00:00Z"), Some(3_600_000));
    assert_eq!(read("1970-01-01 01:00:00+01:00"), Some(0));
    for none in ["", "12:00:00", "tomorrow", "1970-13-01", "2027"] {
        assert_eq!(read(none), None, "{none}");
    }
}
