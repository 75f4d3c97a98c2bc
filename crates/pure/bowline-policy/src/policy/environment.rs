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

const CODE_LOADING_NAMES: &[(&str, &str)] = &[
    ("PATH", LOOKUP),
    ("CDPATH", "a shell changes to directories there"),
    ("HOME", "programs read their settings there"),
    ("XDG_CONFIG_HOME", "programs read their settings there"),
    ("XDG_CONFIG_DIRS", "programs read their settings there"),
    ("SHELL", "programs run it as a shell"),
    ("ENV", STARTUP),
    ("BASH_ENV", STARTUP),
    ("ZDOTDIR", STARTUP),
    ("PROMPT_COMMAND", STARTUP),
    ("PS1", STARTUP),
    ("PS2", STARTUP),
    ("PS4", STARTUP),
    ("IFS", SHELL),
    ("SHELLOPTS", SHELL),
    ("BASHOPTS", SHELL),
    ("GLOBIGNORE", SHELL),
    ("POSIXLY_CORRECT", SHELL),
    ("GCONV_PATH", LOADER),
    ("LOCPATH", LOADER),
    ("NLSPATH", LOADER),
    ("PYTHONPATH", MODULES),
    ("PYTHONHOME", MODULES),
    ("PYTHONSTARTUP", MODULES),
    ("PYTHONINSPECT", OPTIONS),
    ("PYTHONWARNINGS", OPTIONS),
    ("PYTHONBREAKPOINT", OPTIONS),
    ("PYTEST_ADDOPTS", OPTIONS),
    ("PYTEST_PLUGINS", MODULES),
    ("NODE_OPTIONS", OPTIONS),
    ("NODE_PATH", MODULES),
    ("PERL5LIB", MODULES),
    ("PERL5OPT", OPTIONS),
    ("PERL5DB", OPTIONS),
    ("PERLLIB", MODULES),
    ("RUBYLIB", MODULES),
    ("RUBYOPT", OPTIONS),
    ("GEM_PATH", MODULES),
    ("GEM_HOME", MODULES),
    ("BUNDLE_GEMFILE", MODULES),
    ("PHPRC", OPTIONS),
    ("PHP_INI_SCAN_DIR", OPTIONS),
    ("LUA_INIT", OPTIONS),
    ("LUA_PATH", MODULES),
    ("LUA_CPATH", MODULES),
    ("CLASSPATH", MODULES),
    ("JAVA_TOOL_OPTIONS", OPTIONS),
    ("JDK_JAVA_OPTIONS", OPTIONS),
    ("_JAVA_OPTIONS", OPTIONS),
    ("JAVA_HOME", LOOKUP),
    ("MAVEN_OPTS", OPTIONS),
    ("GRADLE_OPTS", OPTIONS),
    ("SSH_ASKPASS", "ssh runs it"),
    ("SUDO_ASKPASS", "sudo runs it"),
    ("EDITOR", EDITOR),
    ("VISUAL", EDITOR),
    ("BROWSER", EDITOR),
    ("LESSOPEN", EDITOR),
    ("LESSCLOSE", EDITOR),
    ("LESS", EDITOR),
    ("FCEDIT", EDITOR),
    ("CC", BUILD),
    ("CXX", BUILD),
    ("LD", BUILD),
    ("CFLAGS", BUILD),
    ("CXXFLAGS", BUILD),
    ("LDFLAGS", BUILD),
    ("MAKEFLAGS", BUILD),
    ("MAKEFILES", BUILD),
    ("GOFLAGS", BUILD),
    ("GOROOT", BUILD),
    ("GOPATH", BUILD),
    ("RUSTC", BUILD),
    ("RUSTC_WRAPPER", BUILD),
    ("RUSTC_WORKSPACE_WRAPPER", BUILD),
    ("RUSTFLAGS", BUILD),
    ("RUSTDOCFLAGS", BUILD),
    ("RUSTUP_TOOLCHAIN", BUILD),
    ("CARGO_HOME", BUILD),
    ("DOCKER_HOST", "docker sends its commands there"),
    ("KUBECONFIG", "kubectl runs programs that it names"),
];

const CODE_LOADING_PREFIXES: &[(&str, &str)] = &[
    ("LD_", LOADER),
    ("DYLD_", LOADER),
    ("BASH_FUNC_", SHELL),
    ("GIT_", GIT),
    ("CARGO_TARGET_", BUILD),
    ("CARGO_BUILD_", BUILD),
    ("CARGO_ALIAS_", BUILD),
    ("NPM_CONFIG_", "npm reads it as a setting, and some name programs"),
    ("YARN_", "yarn reads it as a setting, and some name programs"),
    ("PIP_", "pip reads it as a setting, and takes packages from there"),
    ("UV_", "uv reads it as a setting, and takes packages from there"),
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
    let by_name = CODE_LOADING_NAMES.iter().find(|(known, _)| *known == upper);
    let by_prefix = || CODE_LOADING_PREFIXES.iter().find(|(prefix, _)| upper.starts_with(prefix));
    by_name
        .or_else(by_prefix)
        .map_or(EnvironmentRisk::Unknown, |(_, reason)| EnvironmentRisk::RunsCode(reason))
}

fn is_system_shell(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(directory, name)| {
        SHELL_DIRECTORIES.contains(&directory) && SYSTEM_SHELLS.contains(&name)
    })
}

fn is_harmless(name: &str) -> bool {
    HARMLESS_NAMES.contains(&name) || HARMLESS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
