//! The files and directories that a shell line names, for the shell itself and for plain commands, so that the engine can
//! look where they lead.

use std::collections::HashSet;

use super::arguments::{arguments, is_known};
use super::commands::may_move;
use super::seen::{MAX_DEPTH, is_boundary, without_quotes};
use super::shell::{self, Word};
use super::wrappers::{Runs, runs};
use crate::operation::{Command, Invocation};
use crate::paths::{Access, LexicalPath};

/// So many are looked for in one line, at most.
pub(super) const MAX_FILES: usize = 1024;
/// As many directories are thought of that a command of a line may run in.
const MAX_DIRECTORIES: usize = 4;
/// Files that anybody may write, because nothing stays there.
pub(super) const SINKS: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr"];

/// A file or directory that a shell line names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Named {
    /// Its absolute name by the text alone.
    pub path: String,
    /// What for.
    pub access: Access,
}

/// Returns what the shell itself would open or change to for a command, and what plain commands are given to read and write:
/// at most 1,024 names, whatever the line is. Where they lead belongs into the command's `reaches` before it is judged.
#[must_use]
pub fn targets(command: &Command) -> Vec<Named> {
    let directories = vec![command.cwd.clone()];
    let mut found = Found { cwd: &command.cwd, directories, named: Vec::new(), known: HashSet::new() };
    match &command.invocation {
        Invocation::Argv(words) if words.len() > shell::MAX_WORDS => {}
        Invocation::Argv(words) => {
            let literal = |text: &String| Word { text: text.clone(), is_literal: true };
            found.words(&words.iter().map(literal).collect::<Vec<_>>(), 0);
        }
        Invocation::Shell(line) => found.line(line, 0),
    }
    found.named
}

/// Returns the file that a name means in a directory, by the text alone.
pub(super) fn locate(cwd: &str, name: &str) -> Option<LexicalPath> {
    let path = if name.starts_with('/') { name.to_owned() } else { format!("{cwd}/{name}") };
    LexicalPath::parse(path).ok()
}

/// Says whether a name means the same by its text and on the disk, as far as `..` goes: after a name, which may be a link, it
/// leads to wherever that is.
pub(super) fn is_steady(name: &str) -> bool {
    let mut parts = name.split('/').filter(|part| !matches!(*part, "" | "."));
    let is_relative = !name.starts_with('/');
    !parts.by_ref().skip_while(|part| is_relative && *part == "..").any(|part| part == "..")
}

/// Returns what looks like a redirection in a text that cannot be taken apart, without its quotes.
pub(super) fn redirections(line: &str) -> impl Iterator<Item = (Access, &str)> {
    line.match_indices(['<', '>']).filter_map(|(at, sign)| {
        let target = line[at + 1..].trim_start_matches(['<', '>', '|', '&', ' ', '\t']);
        let target = target.split(is_boundary).next().unwrap_or_default();
        let access = if sign == "<" { Access::Read } else { Access::Write };
        (!target.is_empty()).then_some((access, target))
    })
}

/// Returns what look like files that plain commands are given, in a text that cannot be taken apart, without its quotes.
pub(super) fn guessed_arguments(line: &str) -> impl Iterator<Item = (Access, String)> {
    let is_between =
        |character: char| matches!(character, ';' | '&' | '|' | '(' | ')' | '`' | '\n' | '{' | '}');
    line.split(is_between).flat_map(|part| {
        let word = |text: &str| Word { text: text.to_owned(), is_literal: true };
        let words: Vec<Word> = part.split_whitespace().map(word).collect();
        // What stands before the program may be anything.
        let start = words.iter().position(|word| is_known(&word.text)).unwrap_or(words.len());
        let found = arguments(&words[start..]).into_iter();
        found.map(|argument| (argument.access, argument.name.into_owned())).collect::<Vec<_>>()
    })
}

/// Returns the directory that a `cd` names, if it names one plainly.
pub(super) fn destination(words: &[Word]) -> Option<&Word> {
    let target = match words {
        [_, target] => target,
        [_, end, target] if end.text == "--" => target,
        _ => return None,
    };
    let is_plain = target.is_literal && !target.text.is_empty() && !target.text.starts_with('-');
    is_plain.then_some(target)
}

/// Says whether a program changes the directory of the shell.
pub(super) fn moves(program: &str) -> bool {
    matches!(program, "cd" | "chdir")
}

impl From<shell::Access> for Access {
    fn from(access: shell::Access) -> Self {
        match access {
            shell::Access::Read => Self::Read,
            shell::Access::Write => Self::Write,
        }
    }
}

/// Adds the directories that commands after this one may run in. A change of directory may fail, so those before stay; one
/// that cannot be told leads where no name is of the workspace.
pub(super) fn follow(directories: &mut Vec<String>, words: &[Word], may_move: bool) {
    if !may_move {
        return;
    }
    let target = words.first().filter(|program| moves(&program.text)).and_then(|_| destination(words));
    let Some(target) = target.filter(|_| directories.len() <= MAX_DIRECTORIES / 2) else {
        return directories.push("/".to_owned());
    };
    for at in 0..directories.len() {
        let entered = locate(&directories[at], &target.text);
        let entered = entered.map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned());
        if !directories.contains(&entered) {
            directories.push(entered);
        }
    }
}

struct Found<'c> {
    cwd: &'c str,
    // Where the command that is looked at may run.
    directories: Vec<String>,
    named: Vec<Named>,
    known: HashSet<Named>,
}

impl Found<'_> {
    fn line(&mut self, line: &str, depth: usize) {
        let Ok(parsed) = shell::parse(line) else {
            let line = without_quotes(line);
            redirections(&line).for_each(|(access, target)| self.add(target, access));
            return guessed_arguments(&line).for_each(|(access, target)| self.add(&target, access));
        };
        let before = self.directories.clone();
        for command in &parsed.commands {
            for redirection in &command.redirections {
                self.add(&redirection.target.text, redirection.access.into());
            }
            self.words(&command.words, depth);
            follow(&mut self.directories, &command.words, may_move(&command.words));
        }
        self.directories = before;
    }

    fn words(&mut self, words: &[Word], depth: usize) {
        if words.first().is_some_and(|word| moves(&word.text))
            && let Some(target) = destination(words)
        {
            self.add(&target.text, Access::Read);
        }
        for argument in arguments(words) {
            for directory in &self.directories.clone() {
                self.add_in(directory, &argument.name, argument.access);
            }
        }
        // One more than the judge looks into does no harm.
        match runs(words) {
            Runs::Words { at, .. } if depth <= MAX_DEPTH => self.words(&words[at..], depth + 1),
            Runs::Text { text, .. } if depth <= MAX_DEPTH => self.line(&text, depth + 1),
            _ => {}
        }
    }

    fn add(&mut self, name: &str, access: Access) {
        if SINKS.contains(&name) {
            return;
        }
        self.add_in(self.cwd, name, access);
    }

    fn add_in(&mut self, directory: &str, name: &str, access: Access) {
        if self.named.len() >= MAX_FILES {
            return;
        }
        let Some(path) = locate(directory, name) else { return };
        let named = Named { path: path.as_str().to_owned(), access };
        if self.known.insert(named.clone()) {
            self.named.push(named);
        }
    }
}
