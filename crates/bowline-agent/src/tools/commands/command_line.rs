//! The form of a command for a client: words where it is a plain command, otherwise a shell with a line.
//!
//! Some clients pass `command` to a shell, others run it as a program. All of them agree on a program with separate
//! arguments, and on `/bin/sh -c` with a line.

use bowline_policy::policy::shell;

/// Commands built into the shell: a program of that name may not exist, or would have no effect.
const SHELL_BUILTINS: &[&str] = &[
    ".", ":", "alias", "bg", "builtin", "cd", "command", "declare", "eval", "exec", "exit", "export", "fg",
    "getopts", "hash", "history", "jobs", "let", "local", "popd", "pushd", "read", "readonly", "return",
    "set", "shift", "shopt", "source", "times", "trap", "type", "typeset", "ulimit", "umask", "unalias",
    "unset", "wait",
];

/// Returns the program and its arguments.
pub(crate) fn split_command_line(command: &str, args: &[String]) -> (String, Vec<String>) {
    if !args.is_empty() {
        return (command.to_owned(), args.to_vec());
    }
    match literal_words(command) {
        Some(mut words) if !words.is_empty() => {
            let program = words.remove(0);
            (program, words)
        }
        _ => ("/bin/sh".to_owned(), vec!["-c".to_owned(), command.to_owned()]),
    }
}

/// Returns the words of a line that is a single program with literal arguments.
fn literal_words(line: &str) -> Option<Vec<String>> {
    let mut commands = shell::parse(line).ok()?.commands;
    let command = commands.pop().filter(|_| commands.is_empty())?;
    // A command that is not the whole line is followed by an `&` or the like.
    let is_plain = command.text.trim() == line.trim()
        && command.assignments.is_empty()
        && command.redirections.is_empty()
        && command.words.iter().all(|word| word.is_literal)
        && command.words.first().is_some_and(|program| !SHELL_BUILTINS.contains(&program.text.as_str()));
    is_plain.then(|| command.words.into_iter().map(|word| word.text).collect())
}

#[cfg(test)]
mod tests;
