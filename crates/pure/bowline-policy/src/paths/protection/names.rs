//! The tables of protected names, all in their folded form.

use super::Protection;
use Protection::{
    AgentInstructions, AgentSettings, CiWorkflow, DevContainer, DirectoryEnvironment, EditorSettings,
    PrivateKey, Repository, Secrets, ShellStartup, ToolSettings, VcsHook,
};

/// Names that are protected at any depth.
pub(super) const PROTECTED_NAMES: &[(Protection, &[&str])] = &[
    (
        VcsHook,
        &[
            ".husky", ".githooks", ".pre-commit-config.yaml", ".pre-commit-config.yml", ".overcommit.yml",
            "lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook.json", ".lefthook.yml",
            ".lefthook.yaml", ".lefthook.toml", ".lefthook.json", "lefthook-local.yml",
            ".lefthook-local.yml", ".lefthook",
        ],
    ),
    (
        Repository,
        &[".git", ".gitconfig", ".gitattributes", ".gitmodules", ".hg", ".svn", ".jj", ".sl", ".bzr"],
    ),
    (
        EditorSettings,
        &[
            ".vscode", ".vs", ".idea", ".zed", ".fleet", ".helix", ".exrc", ".vimrc", ".lvimrc", ".nvimrc",
            ".nvim.lua", ".dir-locals.el", ".dir-locals-2.el",
        ],
    ),
    (
        AgentSettings,
        &[
            ".cursor", ".claude", ".claude.json", ".codex", ".agents", ".gemini", ".qwen", ".kimi", ".vibe",
            ".opencode", "opencode.json", "opencode.jsonc", ".crush", ".crush.json", "crush.json", ".goose",
            ".aider.conf.yml", ".continue", ".windsurf", ".roo", ".roomodes", ".cline", ".kilocode",
            ".factory", ".augment", ".amazonq", ".kiro", ".junie", ".trae", ".copilot",
            "fastagent.config.yaml", ".mcp.json",
        ],
    ),
    (Secrets, &["fastagent.secrets.yaml"]),
    (
        AgentInstructions,
        &[
            "agents.md", "agents.override.md", "agent.md", "claude.md", "claude.local.md", "gemini.md",
            "qwen.md", "kimi.md", "crush.md", ".rules", ".cursorrules", ".windsurfrules", ".clinerules",
            ".roorules", ".goosehints",
        ],
    ),
    (DirectoryEnvironment, &[".envrc"]),
    (
        ToolSettings,
        &[
            ".mise.toml", "mise.toml", ".mise", ".tool-versions", ".cargo", "rust-toolchain",
            "rust-toolchain.toml", ".yarnrc", ".yarnrc.yml", ".yarn", ".pnpmfile.cjs", ".pnpmfile.js",
            ".pnpmfile.mjs", "bunfig.toml", ".bundle", ".mvn", ".bazelrc", ".bazeliskrc", ".buckconfig",
            ".gdbinit", ".lldbinit", ".pdbrc", ".irbrc", ".pryrc", ".rprofile", ".psqlrc", ".curlrc",
            ".wgetrc", ".tmux.conf", ".screenrc", "sitecustomize.py", "usercustomize.py",
        ],
    ),
    (DevContainer, &[".devcontainer", ".devcontainer.json"]),
    (CiWorkflow, &[".gitlab-ci.yml", ".circleci", ".travis.yml", ".buildkite"]),
    (
        ShellStartup,
        &[
            ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc",
            ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login",
            ".inputrc", "config.fish",
        ],
    ),
    (
        Secrets,
        &[
            ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass",
            ".my.cnf", ".dockercfg", ".vault-token", ".htpasswd", ".git-credentials",
        ],
    ),
];

/// Pairs of names, parent and child, that are protected together.
pub(super) const PROTECTED_PAIRS: &[(&str, &str, Protection)] = &[
    (".git", "hooks", VcsHook),
    (".cargo", "credentials", Secrets),
    (".cargo", "credentials.toml", Secrets),
    (".docker", "config.json", Secrets),
    (".github", "workflows", CiWorkflow),
    (".github", "actions", CiWorkflow),
    (".gitea", "workflows", CiWorkflow),
    (".forgejo", "workflows", CiWorkflow),
    (".github", "copilot-instructions.md", AgentInstructions),
    (".github", "instructions", AgentInstructions),
    (".github", "prompts", AgentInstructions),
    (".github", "agents", AgentInstructions),
];

/// Prefixes and suffixes of protected names. An empty string matches anything.
pub(super) const PROTECTED_AFFIXES: &[(&str, &str, Protection)] = &[
    ("", ".pem", PrivateKey),
    ("", ".key", PrivateKey),
    ("", ".p12", PrivateKey),
    ("", ".pfx", PrivateKey),
    ("", ".jks", PrivateKey),
    ("", ".keystore", PrivateKey),
    (".env", "", Secrets),
    ("", ".env", Secrets),
    ("credentials", ".json", Secrets),
    ("client_secret", ".json", Secrets),
    ("", ".kdbx", Secrets),
    ("", ".code-workspace", EditorSettings),
    ("", ".sublime-project", EditorSettings),
];

/// The stems of the private keys that OpenSSH makes.
pub(super) const PRIVATE_KEY_STEMS: &[&str] =
    &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "id_xmss"];

/// The entries of a git repository, besides the `HEAD` that identifies one.
pub(super) const GIT_REPOSITORY_ENTRIES: &[&str] = &[
    "branches", "commondir", "config", "config.worktree", "gitdir", "hooks", "index", "info", "logs",
    "modules", "objects", "packed-refs", "refs", "reftable", "shallow", "worktrees",
];
