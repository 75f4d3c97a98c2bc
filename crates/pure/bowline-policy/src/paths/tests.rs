//! Tests of lexical paths: tables of parsing, admission and protection.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn path(text: &str) -> LexicalPath {
    LexicalPath::parse(text).unwrap()
}

fn root(text: &str, mode: RootMode) -> Root {
    Root { path: path(text), mode }
}

fn check_parse(paths: &[&str], expected: Expect) {
    let mut out = String::new();
    for requested in paths {
        match LexicalPath::parse(requested) {
            Ok(path) => writeln!(out, "{requested} -> {path}").unwrap(),
            Err(error) => writeln!(out, "! {error}").unwrap(),
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn an_absolute_path_is_brought_to_normal_form() {
    check_parse(
        &[
            "/", "/a", "/a/b/", "//a///b", "/./a/./b/.", "/a/../b", "/a/b/../../c", "/a/..", "/a/...",
            "/a/.b/..c", "/a/~", "/a/file:///b", "/a b/\u{e9}\n",
        ],
        expect![[r#"
            / -> /
            /a -> /a
            /a/b/ -> /a/b
            //a///b -> /a/b
            /./a/./b/. -> /a/b
            /a/../b -> /b
            /a/b/../../c -> /c
            /a/.. -> /
            /a/... -> /a/...
            /a/.b/..c -> /a/.b/..c
            /a/~ -> /a/~
            /a/file:///b -> /a/file:/b
            /a b/é
             -> /a b/é

        "#]],
    );
}

#[test]
fn what_is_no_absolute_path_is_refused_with_what_to_send() {
    check_parse(
        &[
            "", ".", "..", "a/b", "~", "~/a", "~root/a", "file:///a", "FILE:/a", "http://a", "C:\\a",
            "\\\\server\\a", "/a\0b", "/..", "/a/../..", "/a/../../a", "é", "filé",
        ],
        expect![[r#"
            ! the path is empty, send an absolute path
            ! . is relative, send an absolute path
            ! .. is relative, send an absolute path
            ! a/b is relative, send an absolute path
            ! ~ starts with ~, send an absolute path
            ! ~/a starts with ~, send an absolute path
            ! ~root/a starts with ~, send an absolute path
            ! file:///a is a URL, send an absolute path
            ! FILE:/a is a URL, send an absolute path
            ! http://a is relative, send an absolute path
            ! C:\a is relative, send an absolute path
            ! \\server\a is relative, send an absolute path
            ! the path "/a\0b" has a NUL character
            ! /.. is outside the session's directories
            ! /a/../.. is outside the session's directories
            ! /a/../../a is outside the session's directories
            ! é is relative, send an absolute path
            ! filé is relative, send an absolute path
        "#]],
    );
}

#[test]
fn a_path_is_capped_in_bytes_and_in_components() {
    let longest = format!("/{}", "a".repeat(MAX_PATH_BYTES - 1));
    let deepest = "/a".repeat(MAX_COMPONENTS);
    assert_eq!(path(&longest).as_str(), longest);
    assert_eq!(path(&deepest).as_str(), deepest);
    check_parse(
        &[
            &format!("{longest}a"),
            &"/".repeat(1 << 20),
            &format!("{deepest}/a"),
            &format!("{deepest}/."),
            &"/a/..".repeat(MAX_COMPONENTS),
        ],
        expect![[r#"
            ! the path is 4097 bytes long, at most 4096 are allowed
            ! the path is 1048576 bytes long, at most 4096 are allowed
            ! the path has 257 components, at most 256 are allowed
            ! the path has 257 components, at most 256 are allowed
            ! the path has 512 components, at most 256 are allowed
        "#]],
    );
}

#[cfg(unix)]
#[test]
fn a_path_that_no_message_can_hold_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let not_utf8 = Path::new(std::ffi::OsStr::from_bytes(b"/a\xff"));
    assert_eq!(LexicalPath::parse(not_utf8), Err(PathError::NotUtf8));
}

#[test]
fn a_path_knows_its_names_and_what_was_asked() {
    let path = path("/a/./b//c/../d");
    assert_eq!(path.components().collect::<Vec<_>>(), ["a", "b", "d"]);
    assert_eq!(path.requested(), "/a/./b//c/../d");
    assert_eq!(path.as_str(), "/a/b/d");
}

/// Roots as `<mode> <path>`, the cwd first; paths as `<access> <path>`.
fn check_admit(roots: &[&str], requests: &[&str], expected: Expect) {
    let mut roots = roots.iter().map(|line| match line.split_once(' ').unwrap() {
        ("rw", path) => root(path, RootMode::Writable),
        (_, path) => root(path, RootMode::ReadOnly),
    });
    let mut all = Roots::new(roots.next().unwrap());
    roots.for_each(|root| all.add(root).unwrap());
    let mut out = String::new();
    for line in requests {
        let (access, path) = line.split_once(' ').unwrap();
        let access = if access == "read" { Access::Read } else { Access::Write };
        let path = LexicalPath::parse(path).map_err(AdmissionError::from);
        match path.as_ref().map_err(Clone::clone).and_then(|path| all.admit(path, access)) {
            Ok(admitted) => writeln!(
                out,
                "{:?} {} = {} + {:?}",
                admitted.access(),
                admitted.path(),
                admitted.root().path,
                admitted.relative_path(),
            )
            .unwrap(),
            Err(refusal) => writeln!(out, "! {refusal}").unwrap(),
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn a_path_is_admitted_by_names_not_by_letters() {
    check_admit(
        &["rw /project", "ro /lib/"],
        &[
            "read /project",
            "write /project/a",
            "read /project/a/../b",
            "read /project/",
            "read /project-evil/a",
            "read /projec",
            "read /project/../secret",
            "write /project/a/../../secret",
            "read /",
            "read /Project/a",
            "read /lib/a",
            "write /lib/a",
            "write /lib",
            "read /../project",
            "read project/a",
        ],
        expect![[r#"
            Read /project = /project + ""
            Write /project/a = /project + "a"
            Read /project/b = /project + "b"
            Read /project = /project + ""
            ! /project-evil/a is outside the session's directories
            ! /projec is outside the session's directories
            ! /project/../secret is outside the session's directories
            ! /project/a/../../secret is outside the session's directories
            ! / is outside the session's directories
            ! /Project/a is outside the session's directories
            Read /lib/a = /lib + "a"
            ! /lib/a is in a directory that this session may only read
            ! /lib is in a directory that this session may only read
            ! /../project is outside the session's directories
            ! project/a is relative, send an absolute path
        "#]],
    );
}

#[test]
fn the_innermost_root_decides() {
    check_admit(
        &["rw /p", "ro /p/vendor", "rw /p/vendor/ours"],
        &["write /p/a", "write /p/vendor/a", "read /p/vendor/a", "write /p/vendor/ours/a/b"],
        expect![[r#"
            Write /p/a = /p + "a"
            ! /p/vendor/a is in a directory that this session may only read
            Read /p/vendor/a = /p/vendor + "a"
            Write /p/vendor/ours/a/b = /p/vendor/ours + "a/b"
        "#]],
    );
}

#[test]
fn a_root_given_twice_is_read_only_if_either_says_so() {
    check_admit(
        &["rw /p", "ro /p/.", "ro /q", "rw /q"],
        &["write /p/a", "write /q/a"],
        expect![[r#"
            ! /p/a is in a directory that this session may only read
            ! /q/a is in a directory that this session may only read
        "#]],
    );
    check_admit(
        &["rw /p", "rw /p"],
        &["write /p/a"],
        expect![[r#"
            Write /p/a = /p + "a"
        "#]],
    );
}

#[test]
fn everything_is_below_the_topmost_directory() {
    check_admit(
        &["ro /", "rw /tmp"],
        &["read /", "read /etc/passwd", "write /etc/passwd", "write /tmp/a"],
        expect![[r#"
            Read / = / + ""
            Read /etc/passwd = / + "etc/passwd"
            ! /etc/passwd is in a directory that this session may only read
            Write /tmp/a = /tmp + "a"
        "#]],
    );
}

#[test]
fn the_number_of_roots_is_capped() {
    let mut roots = Roots::new(root("/0", RootMode::Writable));
    for at in 1..MAX_ROOTS {
        roots.add(root(&format!("/{at}"), RootMode::Writable)).unwrap();
    }
    assert_eq!(roots.add(root("/more", RootMode::Writable)), Err(TooManyRootsError));
    assert_eq!(roots.add(root("/1", RootMode::ReadOnly)), Ok(()));
    assert_eq!(roots.iter().count(), MAX_ROOTS);
    assert_eq!(roots.iter().next().map(|cwd| cwd.path.as_str()), Some("/0"));
    assert_eq!(TooManyRootsError.to_string(), "a session has at most 64 directories");
}

fn check_protected(paths: &[&str], expected: Expect) {
    let mut out = String::new();
    for text in paths {
        let protection_for = |access| find_protection(&path(text), access);
        let (read, write) = (protection_for(Access::Read), protection_for(Access::Write));
        let text = text.escape_default();
        match (read, write) {
            (None, None) => writeln!(out, "{text}: -"),
            (None, Some(write)) => writeln!(out, "{text}: {write:?} (write)"),
            (Some(read), Some(write)) if read == write => writeln!(out, "{text}: {read:?}"),
            (read, write) => writeln!(out, "{text}: read {read:?}, write {write:?}"),
        }
        .unwrap();
    }
    expected.assert_eq(&out);
}

#[test]
fn what_runs_later_is_protected_from_writes_and_secrets_from_reads_too() {
    check_protected(
        &[
            "/w/.git/hooks/pre-commit",
            "/w/vendor/x/.git/config",
            "/w/.git",
            "/w/.hg/hgrc",
            "/w/.svn/entries",
            "/w/.vscode/tasks.json",
            "/w/.idea/workspace.xml",
            "/w/.zed/tasks.json",
            "/w/.cursor/mcp.json",
            "/w/.claude/settings.json",
            "/w/.codex/config.toml",
            "/w/.agents/skills/a",
            "/w/.mcp.json",
            "/w/.envrc",
            "/w/.devcontainer/devcontainer.json",
            "/w/.github/workflows/ci.yml",
            "/w/.husky/pre-commit",
            "/home/u/.bashrc",
            "/home/u/.zshenv",
            "/w/server.pem",
            "/w/tls/server.key",
            "/w/id_rsa",
            "/w/id_deploy",
            "/w/id_ed25519.bak",
            "/w/.env",
            "/w/.env.local",
            "/home/u/.aws/credentials",
            "/home/u/.ssh/config",
        ],
        expect![[r#"
            /w/.git/hooks/pre-commit: VcsHook (write)
            /w/vendor/x/.git/config: Repository (write)
            /w/.git: Repository (write)
            /w/.hg/hgrc: Repository (write)
            /w/.svn/entries: Repository (write)
            /w/.vscode/tasks.json: EditorSettings (write)
            /w/.idea/workspace.xml: EditorSettings (write)
            /w/.zed/tasks.json: EditorSettings (write)
            /w/.cursor/mcp.json: AgentSettings (write)
            /w/.claude/settings.json: AgentSettings (write)
            /w/.codex/config.toml: AgentSettings (write)
            /w/.agents/skills/a: AgentSettings (write)
            /w/.mcp.json: AgentSettings (write)
            /w/.envrc: DirectoryEnvironment
            /w/.devcontainer/devcontainer.json: DevContainer (write)
            /w/.github/workflows/ci.yml: CiWorkflow (write)
            /w/.husky/pre-commit: VcsHook (write)
            /home/u/.bashrc: ShellStartup (write)
            /home/u/.zshenv: ShellStartup (write)
            /w/server.pem: PrivateKey
            /w/tls/server.key: PrivateKey
            /w/id_rsa: PrivateKey
            /w/id_deploy: PrivateKey
            /w/id_ed25519.bak: PrivateKey
            /w/.env: Secrets
            /w/.env.local: Secrets
            /home/u/.aws/credentials: Secrets
            /home/u/.ssh/config: Secrets
        "#]],
    );
}

#[test]
fn settings_of_tools_agents_and_servers_are_protected() {
    check_protected(
        &[
            "/w/.npmrc",
            "/w/.pypirc",
            "/w/_netrc",
            "/home/u/.kube/config",
            "/home/u/.docker/config.json",
            "/w/credentials.json",
            "/w/credentials-prod.json",
            "/w/prod.env",
            "/w/.cargo/credentials.toml",
            "/w/.cargo/config.toml",
            "/w/rust-toolchain.toml",
            "/w/.yarnrc.yml",
            "/w/.gitattributes",
            "/w/.gitmodules",
            "/w/.pre-commit-config.yaml",
            "/w/.githooks/pre-commit",
            "/w/.gdbinit",
            "/w/.exrc",
            "/w/.nvim.lua",
            "/w/.dir-locals.el",
            "/w/a.code-workspace",
            "/w/.gemini/settings.json",
            "/w/.qwen/settings.json",
            "/w/.kimi/config.toml",
            "/w/opencode.json",
            "/w/AGENTS.md",
            "/w/sub/CLAUDE.md",
            "/w/GEMINI.md",
            "/w/.cursorrules",
            "/w/.github/copilot-instructions.md",
            "/w/.gitlab-ci.yml",
            "/w/evil/HEAD",
            "/w/evil/head",
            "/w/evil/HEAD. ",
            "/w/.docker/daemon.json",
            "/w/credentials.rs",
            "/w/HEAD/a.txt",
            "/w/src/head.rs",
            "/w/env",
            "/w/config",
            "/w/agents/md",
        ],
        expect![[r#"
            /w/.npmrc: Secrets
            /w/.pypirc: Secrets
            /w/_netrc: Secrets
            /home/u/.kube/config: Secrets
            /home/u/.docker/config.json: Secrets
            /w/credentials.json: Secrets
            /w/credentials-prod.json: Secrets
            /w/prod.env: Secrets
            /w/.cargo/credentials.toml: Secrets
            /w/.cargo/config.toml: ToolSettings (write)
            /w/rust-toolchain.toml: ToolSettings (write)
            /w/.yarnrc.yml: ToolSettings (write)
            /w/.gitattributes: Repository (write)
            /w/.gitmodules: Repository (write)
            /w/.pre-commit-config.yaml: VcsHook (write)
            /w/.githooks/pre-commit: VcsHook (write)
            /w/.gdbinit: ToolSettings (write)
            /w/.exrc: EditorSettings (write)
            /w/.nvim.lua: EditorSettings (write)
            /w/.dir-locals.el: EditorSettings (write)
            /w/a.code-workspace: EditorSettings (write)
            /w/.gemini/settings.json: AgentSettings (write)
            /w/.qwen/settings.json: AgentSettings (write)
            /w/.kimi/config.toml: AgentSettings (write)
            /w/opencode.json: AgentSettings (write)
            /w/AGENTS.md: AgentInstructions (write)
            /w/sub/CLAUDE.md: AgentInstructions (write)
            /w/GEMINI.md: AgentInstructions (write)
            /w/.cursorrules: AgentInstructions (write)
            /w/.github/copilot-instructions.md: AgentInstructions (write)
            /w/.gitlab-ci.yml: CiWorkflow (write)
            /w/evil/HEAD: GitHead (write)
            /w/evil/head: GitHead (write)
            /w/evil/HEAD. : GitHead (write)
            /w/.docker/daemon.json: -
            /w/credentials.rs: -
            /w/HEAD/a.txt: -
            /w/src/head.rs: -
            /w/env: -
            /w/config: -
            /w/agents/md: -
        "#]],
    );
}

#[test]
fn a_write_below_what_git_keeps_in_a_repository_names_the_directory() {
    let repositories = |path| find_possible_repositories(path).join(" ");
    assert_eq!(repositories("a/b/config"), "a/b");
    assert_eq!(repositories("config"), "");
    assert_eq!(find_possible_repositories("config"), [""]);
    assert_eq!(repositories("a/objects/ab/hooks"), "a a/objects/ab");
    assert_eq!(repositories("a/HOOKS/pre-commit"), "a");
    assert!(find_possible_repositories("a/b/c.txt").is_empty());
    assert!(find_possible_repositories("a/configs").is_empty());
}

#[test]
fn a_secret_inside_what_runs_later_is_still_a_secret() {
    check_protected(
        &["/w/.claude/.env", "/w/.ssh/.git"],
        expect![[r#"
            /w/.claude/.env: read Some(Secrets), write Some(AgentSettings)
            /w/.ssh/.git: Secrets
        "#]],
    );
}

#[test]
fn a_name_that_some_file_system_takes_for_a_protected_one_is_one() {
    check_protected(
        &[
            "/w/.GiT/config",
            "/w/.VSCODE/tasks.json",
            "/w/.git./config",
            "/w/.git /config",
            "/w/.git . ./config",
            "/w/.git::$INDEX_ALLOCATION/config",
            "/w/.git:x",
            "/w/GIT~1/config",
            "/w/git~12",
            "/w/GIT~1 ./hooks/pre-commit",
            "/w/MCP~1.JSO",
            "/w/DEVCON~1/devcontainer.json",
            "/w/GITHUB~2/workflows/ci.yml",
            "/w/.git\\config",
            "/w/a\\.env",
            "/w/.g\u{200c}it/config",
            "/w/.HUS\u{212a}Y/a",
            "/w/.v\u{17f}code/a",
            "/w/ID_RSA",
            "/w/SERVER.PEM.",
        ],
        expect![[r#"
            /w/.GiT/config: Repository (write)
            /w/.VSCODE/tasks.json: EditorSettings (write)
            /w/.git./config: Repository (write)
            /w/.git /config: Repository (write)
            /w/.git . ./config: Repository (write)
            /w/.git::$INDEX_ALLOCATION/config: Repository (write)
            /w/.git:x: Repository (write)
            /w/GIT~1/config: Repository (write)
            /w/git~12: Repository (write)
            /w/GIT~1 ./hooks/pre-commit: VcsHook (write)
            /w/MCP~1.JSO: AgentSettings (write)
            /w/DEVCON~1/devcontainer.json: DevContainer (write)
            /w/GITHUB~2/workflows/ci.yml: CiWorkflow (write)
            /w/.git\\config: Repository (write)
            /w/a\\.env: Secrets
            /w/.g\u{200c}it/config: Repository (write)
            /w/.HUS\u{212a}Y/a: VcsHook (write)
            /w/.v\u{17f}code/a: EditorSettings (write)
            /w/ID_RSA: PrivateKey
            /w/SERVER.PEM.: PrivateKey
        "#]],
    );
}

#[test]
fn an_ordinary_name_is_not_protected() {
    check_protected(
        &[
            "/w/src/main.rs",
            "/w/.gitignore",
            "/w/.github/CODEOWNERS",
            "/w/workflows/ci.yml",
            "/w/hooks/useState.ts",
            "/w/a/.github/x/workflows/ci.yml",
            "/w/git",
            "/w/git~",
            "/w/git~x",
            "/w/agit~1",
            "/w/id_map.rs",
            "/w/id_rsa.pub",
            "/w/idea",
            "/w/key",
            "/w/environment",
            "/w/keyboard.keys",
            "/w/mcp.json",
            "/w/NUL",
        ],
        expect![[r#"
            /w/src/main.rs: -
            /w/.gitignore: -
            /w/.github/CODEOWNERS: -
            /w/workflows/ci.yml: -
            /w/hooks/useState.ts: -
            /w/a/.github/x/workflows/ci.yml: -
            /w/git: -
            /w/git~: -
            /w/git~x: -
            /w/agit~1: -
            /w/id_map.rs: -
            /w/id_rsa.pub: -
            /w/idea: -
            /w/key: -
            /w/environment: -
            /w/keyboard.keys: -
            /w/mcp.json: -
            /w/NUL: -
        "#]],
    );
}

#[test]
fn an_admitted_path_is_judged_below_its_root() {
    let roots = Roots::new(root("/home/u/.claude/worktrees/x", RootMode::Writable));
    let protection = |below: &str, access| {
        let path = path(&format!("/home/u/.claude/worktrees/x/{below}"));
        roots.admit(&path, access).unwrap().protection()
    };
    assert_eq!(protection("src/main.rs", Access::Write), None);
    assert_eq!(protection(".git/hooks/a", Access::Write), Some(Protection::VcsHook));
    assert_eq!(protection(".git/hooks/a", Access::Read), None);
    assert_eq!(protection(".env", Access::Read), Some(Protection::Secrets));
}

#[test]
fn each_protection_says_why() {
    let mut out = String::new();
    for name in [
        ".git/hooks", ".git", "HEAD", ".zed", ".codex", "AGENTS.md", ".cargo", ".envrc", ".devcontainer",
        ".github/workflows", ".profile", "a.pem", ".env",
    ] {
        let protection = find_protection(&path(&format!("/{name}")), Access::Write).unwrap();
        writeln!(out, "{name} {}", protection.reason()).unwrap();
    }
    expect![[r#"
        .git/hooks writes a git hook: runs later
        .git writes into the repository's own files: they name commands that run later
        HEAD writes a git HEAD: git takes its directory for a repository and runs what its settings name
        .zed writes editor settings: they name tasks and programs that run later
        .codex writes an agent's settings: they grant it rights and name servers it starts
        AGENTS.md writes instructions that coding agents follow
        .cargo writes a tool's settings: they name programs that its ordinary commands run
        .envrc is an environment file: may hold secrets, and runs when the directory is entered
        .devcontainer writes a container's description: its commands run when it is built
        .github/workflows writes a workflow: runs on the build server
        .profile writes a shell's startup file: runs with the next shell
        a.pem is a private key
        .env holds secrets
    "#]]
    .assert_eq(&out);
}

fn any_path() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop::sample::select(vec!["a", "b", "a-b", ".", "..", "", ".git"]), 0..12)
        .prop_map(|names| format!("/{}", names.join("/")))
}

/// Resolves a path by another algorithm than the code's: one step at a time, from the whole text.
fn resolve(path: &str) -> Option<Vec<&str>> {
    let mut names = vec![];
    for name in path.split('/') {
        if name == ".." {
            names.pop()?;
        } else if name != "." && !name.is_empty() {
            names.push(name);
        }
    }
    Some(names)
}

proptest! {
    #[test]
    fn the_normal_form_is_its_own_normal_form(requested in any_path()) {
        match LexicalPath::parse(&requested) {
            Ok(path) => {
                prop_assert_eq!(path.components().collect::<Vec<_>>(), resolve(&requested).unwrap());
                let again = LexicalPath::parse(path.as_str()).unwrap();
                prop_assert_eq!(again.as_str(), path.as_str());
            }
            Err(error) => {
                prop_assert_eq!(resolve(&requested), None);
                prop_assert_eq!(error, PathError::AboveRoot(requested));
            }
        }
    }

    #[test]
    fn a_path_is_admitted_if_its_names_start_with_those_of_a_root(path in any_path(), root_path in any_path()) {
        let (Ok(path), Ok(root_path)) = (LexicalPath::parse(&path), LexicalPath::parse(&root_path)) else {
            return Ok(());
        };
        let names: Vec<_> = path.components().collect();
        let root_names: Vec<_> = root_path.components().collect();
        let roots = Roots::new(Root { path: root_path.clone(), mode: RootMode::Writable });
        let admitted = roots.admit(&path, Access::Write);
        prop_assert_eq!(admitted.is_ok(), names.starts_with(&root_names));
        if let Ok(admitted) = admitted {
            prop_assert_eq!(admitted.relative_path(), names[root_names.len()..].join("/"));
        }
    }

    #[test]
    fn case_never_lifts_a_protection(
        names in proptest::collection::vec(prop::sample::select(vec![".git", "hooks", ".env.a", "x", "git~1", "ſ"]), 1..5),
    ) {
        let lower = path(&format!("/{}", names.join("/")));
        let upper = path(&lower.as_str().to_ascii_uppercase());
        for access in [Access::Read, Access::Write] {
            prop_assert_eq!(find_protection(&lower, access), find_protection(&upper, access));
        }
    }

    #[test]
    fn no_text_is_too_odd(text in "[/.~:\\\\\\x00a-z\u{0}-\u{10ffff}]{0,40}") {
        if let Ok(path) = LexicalPath::parse(&text) {
            prop_assert_eq!(path.requested(), text);
            prop_assert_eq!(path.components().find(|name| matches!(*name, "" | "." | "..")), None);
            prop_assert_eq!(find_protection(&path, Access::Read).is_some_and(|kind| !kind.guards_against(Access::Write)), false);
        }
    }
}
