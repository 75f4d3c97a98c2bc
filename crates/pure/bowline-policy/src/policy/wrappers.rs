//! Programs that run other programs: what a command runs besides its first word.

use super::exec_options::exec_option_command;
use super::shell::{ShellWord, is_variable_name};

/// What a command runs besides its own program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InnerCommand {
    /// Nothing known.
    None,
    /// The words from an index on, possibly with variables set.
    Words { at: usize, assignments: Vec<(String, ShellWord)> },
    /// A text, as a shell line. A shell that only reads it is transparent.
    Text { at: usize, text: String, is_shell: bool },
    /// A command that cannot be inspected. A rule covers it only if it has at least this many words.
    Hidden { min_prefix_len: usize },
}

/// No rule by words is long enough to cover it.
pub(super) const UNMATCHABLE: InnerCommand = InnerCommand::Hidden { min_prefix_len: usize::MAX };

/// Where a wrapper's own arguments end and the command begins.
struct Wrapper {
    name: &'static str,
    // Options without a value. An option in neither list hides the rest.
    flags: &'static [&'static str],
    // Options whose value is the next word; a long one also takes it after `=`, a short one also joined.
    valued_options: &'static [&'static str],
    // The number of operands before the command.
    positional: usize,
    // Whether `NAME=value` may stand before the command.
    takes_assignments: bool,
}

const fn wrapper(
    name: &'static str,
    flags: &'static [&'static str],
    valued_options: &'static [&'static str],
    positional: usize,
    takes_assignments: bool,
) -> Wrapper {
    Wrapper { name, flags, valued_options, positional, takes_assignments }
}

const WRAPPERS: &[Wrapper] = &[
    // With a smaller environment than every command has, git would trust any directory.
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

/// Shells whose lines `parse` reads correctly.
const SHELL_PROGRAMS: &[&str] = &["sh", "bash", "dash", "zsh", "ash", "ksh", "mksh"];
/// Programs that run code given to them, named by the first word that is not an option.
const INTERPRETERS: &[&str] = &[
    "python", "python2", "python3", "pypy", "pypy3", "node", "nodejs", "deno", "bun", "perl", "ruby", "php",
    "lua", "luajit", "tclsh", "expect", "rscript", "osascript", "pwsh", "powershell", "awk", "gawk", "mawk",
    "nawk", "groovy", "julia", "elixir", "erl", "escript", "runghc", "irb", "sqlite3", "sed", "gsed", "psql",
    "mysql", "gdb", "lldb", "npx", "bunx", "uvx", "pipx", "tsx", "ts-node", "fish", "csh", "tcsh", "source",
    ".",
];
/// Programs that run others in ways that are not analysed, and commands that change the shell for the rest of the
/// line.
const OPAQUE_PROGRAMS: &[&str] = &[
    "ssh", "su", "runuser", "script", "flock", "systemd-run", "parallel", "watch", "strace", "ltrace",
    "unshare", "nsenter", "bwrap", "firejail", "tmux", "screen", "at", "batch", "crontab", "entr", "socat",
    "nc", "ncat", "vi", "vim", "nvim", "emacs", "ed", "ex", "export", "declare", "typeset", "local",
    "readonly", "set", "shopt", "alias", "unalias", "trap", "enable", "hash", "bind", "complete", "compgen",
    "unset", "read", "mapfile", "readarray", "getopts", "let", "pushd", "popd", "dirs", "fc", "history",
    "setopt", "unsetopt", "autoload", "zmodload", "emulate", "umask", "ulimit", "disown", "coproc",
];
/// Returns the name of a program without its directory, in lower case.
pub(super) fn base_name(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.to_lowercase();
    name.strip_suffix(".exe").unwrap_or(&name).to_owned()
}

/// Returns whether a program runs others, so that rules should not lightly begin with it.
pub(super) fn runs_other_programs(program: &str) -> bool {
    let name = base_name(program);
    let known = |list: &[&str]| list.contains(&name.as_str());
    known(SHELL_PROGRAMS)
        || known(OPAQUE_PROGRAMS)
        || is_interpreter(&name)
        || matches!(name.as_str(), "eval" | "find" | "fd" | "fdfind")
        || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
}

/// Returns what a command runs besides its own program.
pub(super) fn inner_command(words: &[ShellWord]) -> InnerCommand {
    let Some(program) = words.first() else { return InnerCommand::None };
    let name = base_name(&program.text);
    if SHELL_PROGRAMS.contains(&name.as_str()) {
        return shell_command(words);
    }
    if name == "eval" {
        return eval_command(words);
    }
    if name == "find" {
        return find_command(words);
    }
    if name == "command" && words.get(1).is_some_and(|word| matches!(word.text.as_str(), "-v" | "-V")) {
        return InnerCommand::None;
    }
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        return wrapped_command(wrapper, words);
    }
    if OPAQUE_PROGRAMS.contains(&name.as_str()) {
        return UNMATCHABLE;
    }
    if is_interpreter(&name) {
        return interpreter_command(words);
    }
    exec_option_command(&name, words)
}

fn is_interpreter(name: &str) -> bool {
    let stem = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    INTERPRETERS.contains(&name) || (!stem.is_empty() && INTERPRETERS.contains(&stem))
}

/// Returns a shell's inner command: with `-c` it reads a text, otherwise a script or its input.
fn shell_command(words: &[ShellWord]) -> InnerCommand {
    let mut reads_text = false;
    for (at, word) in words.iter().enumerate().skip(1) {
        let option = word.text.as_str();
        if !option.starts_with('-') || option == "-" {
            return match reads_text {
                true if word.is_literal => InnerCommand::Text { at, text: option.to_owned(), is_shell: true },
                true => UNMATCHABLE,
                false => InnerCommand::Hidden { min_prefix_len: at + 1 },
            };
        }
        match option {
            "--login" | "--norc" | "--noprofile" | "--posix" => {}
            _ if !option.starts_with("--") && option[1..].chars().all(|letter| "celuxv".contains(letter)) => {
                reads_text |= option.contains('c');
            }
            // With `-i`, `-o name` or `--rcfile file`, the following words or the startup files are not what they
            // seem.
            _ => return UNMATCHABLE,
        }
    }
    UNMATCHABLE
}

/// Returns whether a shell is the system's own, by a name that no other program has.
pub(super) fn is_system_shell(program: &str) -> bool {
    let directories = ["/bin/", "/usr/bin/"];
    let name = directories.iter().find_map(|directory| program.strip_prefix(directory)).unwrap_or(program);
    !name.contains('/') && name == base_name(name)
}

/// Returns whether a shell, with these words before its line, reads its login files.
pub(super) fn is_login_shell(shell: &[ShellWord]) -> bool {
    shell.iter().skip(1).any(|word| match word.text.strip_prefix("--") {
        Some(long) => long == "login",
        None => word.text.starts_with('-') && word.text.contains('l'),
    })
}

fn eval_command(words: &[ShellWord]) -> InnerCommand {
    if words.iter().any(|word| !word.is_literal) {
        return UNMATCHABLE;
    }
    let rest: Vec<&str> = words.iter().skip(1).map(|word| word.text.as_str()).collect();
    match rest.as_slice() {
        [] => InnerCommand::None,
        [option, ..] if option.starts_with('-') => UNMATCHABLE,
        _ => InnerCommand::Text { at: words.len() - 1, text: rest.join(" "), is_shell: false },
    }
}

fn find_command(words: &[ShellWord]) -> InnerCommand {
    let executes = |word: &ShellWord| matches!(word.text.as_str(), "-exec" | "-execdir");
    let mut found = words.iter().enumerate().filter(|(_, word)| executes(word));
    match (found.next(), found.next()) {
        (None, _) => exec_option_command("find", words),
        // Words after the command's end belong to `find` again, not to another command.
        (Some((at, _)), None)
            if exec_option_command("find", words) == InnerCommand::None && at + 1 < words.len() =>
        {
            InnerCommand::Words { at: at + 1, assignments: Vec::new() }
        }
        _ => UNMATCHABLE,
    }
}

fn wrapped_command(wrapper: &Wrapper, words: &[ShellWord]) -> InnerCommand {
    let mut positional = wrapper.positional;
    let mut assignments = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if !word.is_literal {
            return UNMATCHABLE;
        }
        let text = word.text.as_str();
        if text.starts_with('-') {
            match option_word_count(wrapper, text) {
                Some(words) => at += words,
                None => return UNMATCHABLE,
            }
            continue;
        }
        match text.split_once('=') {
            Some((name, value)) if wrapper.takes_assignments => {
                // The wrapper accepts names that a shell would not.
                let value = ShellWord { text: value.to_owned(), is_literal: true };
                if !is_variable_name(name) {
                    return UNMATCHABLE;
                }
                assignments.push((name.to_owned(), value));
            }
            _ if positional > 0 => positional -= 1,
            _ => return InnerCommand::Words { at, assignments },
        }
        at += 1;
    }
    // Without a command `xargs` runs echo, `env` prints the environment and the others fail; some start a shell.
    if matches!(wrapper.name, "env" | "xargs" | "command" | "nice") && assignments.is_empty() {
        InnerCommand::None
    } else {
        UNMATCHABLE
    }
}

/// Returns the number of words that an option takes, including itself, if the wrapper knows it.
fn option_word_count(wrapper: &Wrapper, text: &str) -> Option<usize> {
    if wrapper.flags.contains(&text) {
        return Some(1);
    }
    if wrapper.name == "nice" && text[1..].bytes().all(|byte| byte.is_ascii_digit()) && text.len() > 1 {
        return Some(1);
    }
    wrapper.valued_options.iter().find_map(|valued| {
        let rest = text.strip_prefix(valued)?;
        let is_long = valued.starts_with("--");
        match rest {
            "" => Some(2),
            _ if is_long => rest.starts_with('=').then_some(1),
            _ => Some(1),
        }
    })
}

/// Returns an interpreter's inner command: the first word that is not an option names the code, so a rule has to
/// cover it.
fn interpreter_command(words: &[ShellWord]) -> InnerCommand {
    let named = words.iter().skip(1).position(|word| !word.text.starts_with('-'));
    named.map_or(UNMATCHABLE, |at| InnerCommand::Hidden { min_prefix_len: at + 2 })
}
