//! How a command is given to a client: as words where it is nothing else, and to a shell where only that understands it.
//!
//! Some clients hand `command` to a shell, some run it as a program. Words with their arguments apart, and `/bin/sh -c` with
//! a line, mean the same to all of them.

use bowline_state::policy::shell;

/// What a shell does itself: there may be no program of that name, and one would change nothing.
const BUILT_IN: &[&str] = &[
    ".", ":", "alias", "bg", "builtin", "cd", "command", "declare", "eval", "exec", "exit", "export", "fg",
    "getopts", "hash", "history", "jobs", "let", "local", "popd", "pushd", "read", "readonly", "return",
    "set", "shift", "shopt", "source", "times", "trap", "type", "typeset", "ulimit", "umask", "unalias",
    "unset", "wait",
];

/// Returns the program and its arguments.
pub(crate) fn given(command: &str, args: &[String]) -> (String, Vec<String>) {
    if !args.is_empty() {
        return (command.to_owned(), args.to_vec());
    }
    match words(command) {
        Some(mut words) if !words.is_empty() => {
            let program = words.remove(0);
            (program, words)
        }
        _ => ("/bin/sh".to_owned(), vec!["-c".to_owned(), command.to_owned()]),
    }
}

/// Returns the words of a line that is one program with literal arguments.
fn words(line: &str) -> Option<Vec<String>> {
    let mut commands = shell::parse(line).ok()?.commands;
    let only = commands.pop().filter(|_| commands.is_empty())?;
    // A command that is not all of its line has an `&` or the like behind it.
    let is_plain = only.text.trim() == line.trim()
        && only.assignments.is_empty()
        && only.redirections.is_empty()
        && only.words.iter().all(|word| word.is_literal)
        && only.words.first().is_some_and(|program| !BUILT_IN.contains(&program.text.as_str()));
    is_plain.then(|| only.words.into_iter().map(|word| word.text).collect())
}

#[cfg(test)]
mod tests;
