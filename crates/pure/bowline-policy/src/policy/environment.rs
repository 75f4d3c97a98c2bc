//! The effects of variables in a command's environment.

/// The risk of setting a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvironmentRisk {
    /// It changes only how a program displays things.
    Harmless,
    /// Its effect is not known.
    Unknown,
    /// It makes programs run code, or find code elsewhere. The text says how.
    RunsCode(&'static str),
}

/// Variables that change only how programs display things.
const HARMLESS_NAMES: &[&str] = &[
    "CI", "TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "COLORTERM", "LANG", "LANGUAGE", "TZ",
    "RUST_BACKTRACE", "RUST_LOG", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "DEBIAN_FRONTEND",
    "CARGO_TERM_COLOR", "NODE_ENV", "NEXT_TELEMETRY_DISABLED", "DO_NOT_TRACK", "HOMEBREW_NO_AUTO_UPDATE",
    "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "SOURCE_DATE_EPOCH", "DEBUG", "VERBOSE",
];
const HARMLESS_PREFIXES: &[&str] = &["CLICOLOR", "LC_", "GIT_AUTHOR_", "GIT_COMMITTER_", "TERM_PROGRAM"];

/// The system's shells and their directories: naming one does no more than a terminal does.
const SYSTEM_SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "fish", "ksh"];
const SHELL_DIRECTORIES: &[&str] = &["/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];

/// Variables that name a pager.
const PAGER_VARIABLES: &[&str] = &["PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER"];
const LOADER: &str = "the system loads code from it into every program";
const STARTUP: &str = "a shell runs it when it starts";
const LOOKUP: &str = "programs are looked for there";
const MODULES: &str = "code is loaded from there";
const OPTIONS: &str = "it gives an interpreter options that load code";
const EDITOR: &str = "programs run it as an editor or pager";
const GIT: &str = "git runs it, or reads settings that name programs";
const BUILD: &str = "builds run it as a compiler, a linker or a wrapper";
const SHELL: &str = "it changes how a shell reads commands";

const CODE_LOADING_NAMES: &[(&str, &[&str])] = &[
    (LOOKUP, &["PATH", "JAVA_HOME"]),
    ("a shell changes to directories there", &["CDPATH"]),
    ("programs read their settings there", &["HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"]),
    ("programs run it as a shell", &["SHELL"]),
    (STARTUP, &["ENV", "BASH_ENV", "ZDOTDIR", "PROMPT_COMMAND", "PS1", "PS2", "PS4"]),
    (SHELL, &["IFS", "SHELLOPTS", "BASHOPTS", "GLOBIGNORE", "POSIXLY_CORRECT"]),
    (LOADER, &["GCONV_PATH", "LOCPATH", "NLSPATH"]),
    (
        MODULES,
        &[
            "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTEST_PLUGINS", "NODE_PATH", "PERL5LIB",
            "PERLLIB", "RUBYLIB", "GEM_PATH", "GEM_HOME", "BUNDLE_GEMFILE", "LUA_PATH", "LUA_CPATH",
            "CLASSPATH",
        ],
    ),
    (
        OPTIONS,
        &[
            "PYTHONINSPECT", "PYTHONWARNINGS", "PYTHONBREAKPOINT", "PYTEST_ADDOPTS", "NODE_OPTIONS",
            "PERL5OPT", "PERL5DB", "RUBYOPT", "PHPRC", "PHP_INI_SCAN_DIR", "LUA_INIT", "JAVA_TOOL_OPTIONS",
            "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS",
        ],
    ),
    ("ssh runs it", &["SSH_ASKPASS"]),
    ("sudo runs it", &["SUDO_ASKPASS"]),
    (EDITOR, &["EDITOR", "VISUAL", "BROWSER", "LESSOPEN", "LESSCLOSE", "LESS", "FCEDIT"]),
    (
        BUILD,
        &[
            "CC", "CXX", "LD", "CFLAGS", "CXXFLAGS", "LDFLAGS", "MAKEFLAGS", "MAKEFILES", "GOFLAGS",
            "GOROOT", "GOPATH", "RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS",
            "RUSTDOCFLAGS", "RUSTUP_TOOLCHAIN", "CARGO_HOME",
        ],
    ),
    ("docker sends its commands there", &["DOCKER_HOST"]),
    ("kubectl runs programs that it names", &["KUBECONFIG"]),
];

const CODE_LOADING_PREFIXES: &[(&str, &[&str])] = &[
    (LOADER, &["LD_", "DYLD_"]),
    (SHELL, &["BASH_FUNC_"]),
    (GIT, &["GIT_"]),
    (BUILD, &["CARGO_TARGET_", "CARGO_BUILD_", "CARGO_ALIAS_"]),
    ("npm reads it as a setting, and some name programs", &["NPM_CONFIG_"]),
    ("yarn reads it as a setting, and some name programs", &["YARN_"]),
    ("pip reads it as a setting, and takes packages from there", &["PIP_"]),
    ("uv reads it as a setting, and takes packages from there", &["UV_"]),
];

/// Returns the risk of setting a variable.
#[must_use]
pub fn assess_variable(name: &str, value: &str) -> EnvironmentRisk {
    // Variable names are case-sensitive, but some programs ignore case.
    let upper = name.to_ascii_uppercase();
    if name == upper && is_harmless(name) {
        return EnvironmentRisk::Harmless;
    }
    if name == "SHELL" && is_system_shell(value) {
        return EnvironmentRisk::Harmless;
    }
    if PAGER_VARIABLES.contains(&upper.as_str()) {
        return if matches!(value, "" | "cat") {
            EnvironmentRisk::Harmless
        } else {
            EnvironmentRisk::RunsCode(EDITOR)
        };
    }
    let by_name = CODE_LOADING_NAMES.iter().find(|(_, names)| names.contains(&upper.as_str()));
    let has_prefix = |prefixes: &[&str]| prefixes.iter().any(|prefix| upper.starts_with(prefix));
    let by_prefix = || CODE_LOADING_PREFIXES.iter().find(|(_, prefixes)| has_prefix(prefixes));
    by_name
        .or_else(by_prefix)
        .map_or(EnvironmentRisk::Unknown, |(reason, _)| EnvironmentRisk::RunsCode(reason))
}

fn is_system_shell(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(directory, name)| {
        SHELL_DIRECTORIES.contains(&directory) && SYSTEM_SHELLS.contains(&name)
    })
}

fn is_harmless(name: &str) -> bool {
    HARMLESS_NAMES.contains(&name) || HARMLESS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
