//! Programs that run other programs: what a command runs beside its first word.

use super::hooks::hooked;
use super::shell::{Word, is_name};

/// What a command runs besides its own program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Runs {
    /// Nothing that is known of.
    Itself,
    /// The words from one on, perhaps with variables set.
    Words { at: usize, assignments: Vec<(String, Word)> },
    /// A text, as a shell line. A shell that does nothing else than read it is transparent.
    Text { at: usize, text: String, is_shell: bool },
    /// Something that cannot be looked into. A rule speaks of it only if it has at least so many words.
    Hidden { reach: usize },
}

/// No rule by words is long enough for it.
pub(super) const NEVER: Runs = Runs::Hidden { reach: usize::MAX };

/// How a wrapper's own arguments end and the command begins.
struct Wrapper {
    name: &'static str,
    // Options that stand alone. An option that is in neither list hides the rest.
    flags: &'static [&'static str],
    // Options whose value is the next word; with a long one also after `=`, with a short one also joined.
    valued: &'static [&'static str],
    // How many words stand before the command.
    positional: usize,
    // Whether `NAME=value` may stand before the command.
    assigns: bool,
}

const fn wrapper(
    name: &'static str,
    flags: &'static [&'static str],
    valued: &'static [&'static str],
    positional: usize,
    assigns: bool,
) -> Wrapper {
    Wrapper { name, flags, valued, positional, assigns }
}

const WRAPPERS: &[Wrapper] = &[
    // With less of the environment than every command has, git would trust any directory.
    wrapper("env", &["-0"], &[], 0, true),
    wrapper("sudo", &["-n", "-E", "-H", "-S", "-k", "-b", "--"], &["-u", "-g"], 0, true),
    wrapper("doas", &["-n", "--"], &["-u"], 0, false),
    wrapper("nice", &["--"], &["-n", "--adjustment"], 0, false),
    wrapper("ionice", &["-t", "--"], &["-c", "-n"], 0, false),
    wrapper("nohup", &["--"], &[], 0, false),
    wrapper("setsid", &["-w", "-c", "-f", "--wait", "--ctty", "--fork", "--"], &[], 0, false),
    wrapper("stdbuf", &["--"], &["-i", "-o", "-e", "--input", "--output", "--error"], 0, false),
    wrapper("time", &["-v", "-p", "-l", "--"], &["-f"], 0, false),
    wrapper(
        "timeout",
        &["--preserve-status", "--foreground", "-v", "--verbose", "--"],
        &["-s", "-k", "--signal", "--kill-after"],
        1,
        false,
    ),
    wrapper(
        "xargs",
        &["-0", "-r", "-t", "-x", "--null", "--"],
        &["-n", "-P", "-I", "-L", "-d", "-s"],
        0,
        false,
    ),
    wrapper("command", &["-p", "--"], &[], 0, false),
    wrapper("builtin", &["--"], &[], 0, false),
    wrapper("exec", &["-l", "--"], &["-a"], 0, false),
    wrapper("caffeinate", &["-d", "-i", "-m", "-s", "-u"], &["-t"], 0, false),
    wrapper("chroot", &[], &[], 1, false),
    wrapper("busybox", &[], &[], 0, false),
    wrapper("toybox", &[], &[], 0, false),
    wrapper("unbuffer", &["-p"], &[], 0, false),
];

/// Shells whose lines are read as `parse` reads them.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ash", "ksh", "mksh"];
/// Programs that run code given to them: the first word that is no option names it.
const INTERPRETERS: &[&str] = &[
    "python",
    "python2",
    "python3",
    "pypy",
    "pypy3",
    "node",
    "nodejs",
    "deno",
    "bun",
    "perl",
    "ruby",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "expect",
    "rscript",
    "osascript",
    "pwsh",
    "powershell",
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "groovy",
    "julia",
    "elixir",
    "erl",
    "escript",
    "runghc",
    "irb",
    "sqlite3",
    "sed",
    "gsed",
    "psql",
    "mysql",
    "gdb",
    "lldb",
    "npx",
    "bunx",
    "uvx",
    "pipx",
    "tsx",
    "ts-node",
    "fish",
    "csh",
    "tcsh",
    "source",
    ".",
];
/// Programs that run others in ways that are not looked into, and commands that change the shell for what comes after
/// them in the line.
const OPAQUE: &[&str] = &[
    "ssh",
    "su",
    "runuser",
    "script",
    "flock",
    "systemd-run",
    "parallel",
    "watch",
    "strace",
    "ltrace",
    "unshare",
    "nsenter",
    "bwrap",
    "firejail",
    "tmux",
    "screen",
    "at",
    "batch",
    "crontab",
    "entr",
    "socat",
    "nc",
    "ncat",
    "vi",
    "vim",
    "nvim",
    "emacs",
    "ed",
    "ex",
    "export",
    "declare",
    "typeset",
    "local",
    "readonly",
    "set",
    "shopt",
    "alias",
    "unalias",
    "trap",
    "enable",
    "hash",
    "bind",
    "complete",
    "compgen",
    "unset",
    "read",
    "mapfile",
    "readarray",
    "getopts",
    "let",
    "pushd",
    "popd",
    "dirs",
    "fc",
    "history",
    "setopt",
    "unsetopt",
    "autoload",
    "zmodload",
    "emulate",
    "umask",
    "ulimit",
    "disown",
    "coproc",
];
/// Returns the name of a program without its directory, in lower case.
pub(super) fn base_name(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.to_lowercase();
    name.strip_suffix(".exe").unwrap_or(&name).to_owned()
}

/// Says whether a program is one of those that run others, so that no rule should begin with it lightly.
pub(super) fn is_special(program: &str) -> bool {
    let name = base_name(program);
    let known = |list: &[&str]| list.contains(&name.as_str());
    known(SHELLS)
        || known(OPAQUE)
        || is_interpreter(&name)
        || matches!(name.as_str(), "eval" | "find" | "fd" | "fdfind")
        || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
}

/// Returns what a command runs besides its own program.
pub(super) fn runs(words: &[Word]) -> Runs {
    let Some(program) = words.first() else { return Runs::Itself };
    let name = base_name(&program.text);
    if SHELLS.contains(&name.as_str()) {
        return shell(words);
    }
    if name == "eval" {
        return eval(words);
    }
    if name == "find" {
        return find(words);
    }
    if name == "command" && words.get(1).is_some_and(|word| matches!(word.text.as_str(), "-v" | "-V")) {
        return Runs::Itself;
    }
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        return wrapped(wrapper, words);
    }
    if OPAQUE.contains(&name.as_str()) {
        return NEVER;
    }
    if is_interpreter(&name) {
        return named_code(words);
    }
    hooked(&name, words)
}

fn is_interpreter(name: &str) -> bool {
    let stem = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    INTERPRETERS.contains(&name) || (!stem.is_empty() && INTERPRETERS.contains(&stem))
}

/// A shell: with `-c` it reads a text, else a script or what comes in.
fn shell(words: &[Word]) -> Runs {
    let mut reads_text = false;
    for (at, word) in words.iter().enumerate().skip(1) {
        let option = word.text.as_str();
        if !option.starts_with('-') || option == "-" {
            return match reads_text {
                true if word.is_literal => Runs::Text { at, text: option.to_owned(), is_shell: true },
                true => NEVER,
                false => Runs::Hidden { reach: at + 1 },
            };
        }
        match option {
            "--login" | "--norc" | "--noprofile" | "--posix" => {}
            _ if !option.starts_with("--") && option[1..].chars().all(|letter| "celuxv".contains(letter)) => {
                reads_text |= option.contains('c');
            }
            // `-i`, `-o name`, `--rcfile file`: what follows, or what is read first, is not what it seems.
            _ => return NEVER,
        }
    }
    NEVER
}

/// Says whether a shell is the system's own, by a name that nobody else's program has.
pub(super) fn is_known_shell(program: &str) -> bool {
    let places = ["/bin/", "/usr/bin/"];
    let name = places.iter().find_map(|place| program.strip_prefix(place)).unwrap_or(program);
    !name.contains('/') && name == base_name(name)
}

/// Says whether a shell with these words before its line reads the files that it reads at a login.
pub(super) fn is_login(shell: &[Word]) -> bool {
    shell.iter().skip(1).any(|word| match word.text.strip_prefix("--") {
        Some(long) => long == "login",
        None => word.text.starts_with('-') && word.text.contains('l'),
    })
}

fn eval(words: &[Word]) -> Runs {
    if words.iter().any(|word| !word.is_literal) {
        return NEVER;
    }
    let rest: Vec<&str> = words.iter().skip(1).map(|word| word.text.as_str()).collect();
    match rest.as_slice() {
        [] => Runs::Itself,
        [option, ..] if option.starts_with('-') => NEVER,
        _ => Runs::Text { at: words.len() - 1, text: rest.join(" "), is_shell: false },
    }
}

fn find(words: &[Word]) -> Runs {
    let executes = |word: &Word| matches!(word.text.as_str(), "-exec" | "-execdir");
    let mut found = words.iter().enumerate().filter(|(_, word)| executes(word));
    match (found.next(), found.next()) {
        (None, _) => hooked("find", words),
        // What comes after the command's end is the search's again, and belongs to no other command.
        (Some((at, _)), None) if hooked("find", words) == Runs::Itself && at + 1 < words.len() => {
            Runs::Words { at: at + 1, assignments: Vec::new() }
        }
        _ => NEVER,
    }
}

fn wrapped(wrapper: &Wrapper, words: &[Word]) -> Runs {
    let mut positional = wrapper.positional;
    let mut assignments = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if !word.is_literal {
            return NEVER;
        }
        let text = word.text.as_str();
        if text.starts_with('-') {
            match option(wrapper, text) {
                Some(words) => at += words,
                None => return NEVER,
            }
            continue;
        }
        match text.split_once('=') {
            Some((name, value)) if wrapper.assigns => {
                // The wrapper takes names that a shell would not.
                let value = Word { text: value.to_owned(), is_literal: true };
                if !is_name(name) {
                    return NEVER;
                }
                assignments.push((name.to_owned(), value));
            }
            _ if positional > 0 => positional -= 1,
            _ => return Runs::Words { at, assignments },
        }
        at += 1;
    }
    // Without a command `xargs` runs echo, `env` shows what there is, the others complain; a shell is what some start.
    if matches!(wrapper.name, "env" | "xargs" | "command" | "nice") && assignments.is_empty() {
        Runs::Itself
    } else {
        NEVER
    }
}

/// Returns how many words an option takes, itself among them, if it is one that the wrapper has.
fn option(wrapper: &Wrapper, text: &str) -> Option<usize> {
    if wrapper.flags.contains(&text) {
        return Some(1);
    }
    if wrapper.name == "nice" && text[1..].bytes().all(|byte| byte.is_ascii_digit()) && text.len() > 1 {
        return Some(1);
    }
    wrapper.valued.iter().find_map(|valued| {
        let rest = text.strip_prefix(valued)?;
        let is_long = valued.starts_with("--");
        match rest {
            "" => Some(2),
            _ if is_long => rest.starts_with('=').then_some(1),
            _ => Some(1),
        }
    })
}

/// An interpreter: the first word that is no option names the code, so a rule has to reach it.
fn named_code(words: &[Word]) -> Runs {
    let named = words.iter().skip(1).position(|word| !word.text.starts_with('-'));
    named.map_or(NEVER, |at| Runs::Hidden { reach: at + 2 })
}
