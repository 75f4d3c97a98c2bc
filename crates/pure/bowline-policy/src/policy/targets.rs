//! The files and directories that a shell line names, for the shell itself and for plain commands, so that the engine
//! can resolve them.

use std::collections::HashSet;

use super::arguments::{file_arguments, is_known_program};
use super::commands::may_change_directory;
use super::shell::{self, ShellWord};
use super::visible_commands::{MAX_DEPTH, is_word_boundary, strip_quotes};
use super::wrappers::{InnerCommand, inner_command};
use crate::operation::CommandSpec;
use crate::paths::{Access, LexicalPath};
use bowline_protocol::terminal::Invocation;

/// The maximum number of targets in one line.
pub(super) const MAX_TARGETS: usize = 1024;
/// The maximum number of directories that a command of a line may run in.
const MAX_DIRECTORIES: usize = 4;
/// Files that any command may write, because nothing is stored there.
pub(super) const SINK_DEVICES: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr"];

/// A file or directory that a shell line names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileTarget {
    /// Its absolute path, by the text alone.
    pub path: String,
    /// The access.
    pub access: Access,
}

/// Returns the files and directories that the shell itself would open or change to for a command, and those that
/// plain commands would read and write: at most 1,024 names for any line. Their resolutions belong in the command's
/// `named_paths` before it is evaluated.
#[must_use]
pub fn file_targets(command: &CommandSpec) -> Vec<FileTarget> {
    let directories = vec![command.cwd.clone()];
    let mut collector =
        TargetCollector { cwd: &command.cwd, directories, targets: Vec::new(), seen: HashSet::new() };
    match &command.invocation {
        Invocation::Argv(words) if words.len() > shell::MAX_WORDS => {}
        Invocation::Argv(words) => {
            let literal = |text: &String| ShellWord { text: text.clone(), is_literal: true };
            collector.collect_words(&words.iter().map(literal).collect::<Vec<_>>(), 0);
        }
        Invocation::Shell(line) => collector.collect_line(line, 0),
    }
    collector.targets
}

/// Returns the file that a name denotes in a directory, by the text alone.
pub(super) fn lexical_path_in(cwd: &str, name: &str) -> Option<LexicalPath> {
    let path = if name.starts_with('/') { name.to_owned() } else { format!("{cwd}/{name}") };
    LexicalPath::parse(path).ok()
}

/// Returns whether a name denotes the same file lexically and on disk, as far as `..` goes: after a component that
/// may be a link, `..` leads to the parent of the link's target.
pub(super) fn is_lexically_stable(name: &str) -> bool {
    let mut parts = name.split('/').filter(|part| !matches!(*part, "" | "."));
    let is_relative = !name.starts_with('/');
    !parts.by_ref().skip_while(|part| is_relative && *part == "..").any(|part| part == "..")
}

/// Returns apparent redirections in a text that cannot be parsed, without its quotes.
pub(super) fn guess_redirections(line: &str) -> impl Iterator<Item = (Access, &str)> {
    line.match_indices(['<', '>']).filter_map(|(at, sign)| {
        let target = line[at + 1..].trim_start_matches(['<', '>', '|', '&', ' ', '\t']);
        let target = target.split(is_word_boundary).next().unwrap_or_default();
        let access = if sign == "<" { Access::Read } else { Access::Write };
        (!target.is_empty()).then_some((access, target))
    })
}

/// Returns apparent file arguments of plain commands in a text that cannot be parsed, without its quotes.
pub(super) fn guess_file_arguments(line: &str) -> impl Iterator<Item = (Access, String)> {
    let is_between =
        |character: char| matches!(character, ';' | '&' | '|' | '(' | ')' | '`' | '\n' | '{' | '}');
    line.split(is_between).flat_map(|part| {
        let word = |text: &str| ShellWord { text: text.to_owned(), is_literal: true };
        let words: Vec<ShellWord> = part.split_whitespace().map(word).collect();
        // Any words may stand before the program.
        let start = words.iter().position(|word| is_known_program(&word.text)).unwrap_or(words.len());
        let found = file_arguments(&words[start..]).into_iter();
        found.map(|argument| (argument.access, argument.name.into_owned())).collect::<Vec<_>>()
    })
}

/// Returns the directory that a `cd` names, if it is literal.
pub(super) fn cd_target(words: &[ShellWord]) -> Option<&ShellWord> {
    let target = match words {
        [_, target] => target,
        [_, end, target] if end.text == "--" => target,
        _ => return None,
    };
    let is_plain = target.is_literal && !target.text.is_empty() && !target.text.starts_with('-');
    is_plain.then_some(target)
}

/// Returns whether a program changes the directory of the shell.
pub(super) fn is_cd(program: &str) -> bool {
    matches!(program, "cd" | "chdir")
}

impl From<shell::RedirectionAccess> for Access {
    fn from(access: shell::RedirectionAccess) -> Self {
        match access {
            shell::RedirectionAccess::Read => Self::Read,
            shell::RedirectionAccess::Write => Self::Write,
        }
    }
}

/// Adds the directories that commands after this one may run in. A change of directory may fail, so the earlier ones
/// remain; an unknown target becomes `/`, from where no relative name is in the workspace.
pub(super) fn add_possible_directories(directories: &mut Vec<String>, words: &[ShellWord], may_move: bool) {
    if !may_move {
        return;
    }
    let target = words.first().filter(|program| is_cd(&program.text)).and_then(|_| cd_target(words));
    let Some(target) = target.filter(|_| directories.len() <= MAX_DIRECTORIES / 2) else {
        return directories.push("/".to_owned());
    };
    for at in 0..directories.len() {
        let entered = lexical_path_in(&directories[at], &target.text);
        let entered = entered.map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned());
        if !directories.contains(&entered) {
            directories.push(entered);
        }
    }
}

struct TargetCollector<'c> {
    cwd: &'c str,
    // The directories that the current command may run in.
    directories: Vec<String>,
    targets: Vec<FileTarget>,
    seen: HashSet<FileTarget>,
}

impl TargetCollector<'_> {
    fn collect_line(&mut self, line: &str, depth: usize) {
        let Ok(parsed) = shell::parse(line) else {
            let line = strip_quotes(line);
            guess_redirections(&line).for_each(|(access, target)| self.add(target, access));
            return guess_file_arguments(&line).for_each(|(access, target)| self.add(&target, access));
        };
        let before = self.directories.clone();
        for command in &parsed.commands {
            for redirection in &command.redirections {
                self.add(&redirection.target.text, redirection.access.into());
            }
            self.collect_words(&command.words, depth);
            add_possible_directories(
                &mut self.directories,
                &command.words,
                may_change_directory(&command.words),
            );
        }
        self.directories = before;
    }

    fn collect_words(&mut self, words: &[ShellWord], depth: usize) {
        if words.first().is_some_and(|word| is_cd(&word.text))
            && let Some(target) = cd_target(words)
        {
            self.add(&target.text, Access::Read);
        }
        for argument in file_arguments(words) {
            for directory in &self.directories.clone() {
                self.add_in(directory, &argument.name, argument.access);
            }
        }
        // Going one level deeper than the evaluation does no harm.
        match inner_command(words) {
            InnerCommand::Words { at, .. } if depth <= MAX_DEPTH => {
                self.collect_words(&words[at..], depth + 1)
            }
            InnerCommand::Text { text, .. } if depth <= MAX_DEPTH => self.collect_line(&text, depth + 1),
            _ => {}
        }
    }

    fn add(&mut self, name: &str, access: Access) {
        if SINK_DEVICES.contains(&name) {
            return;
        }
        self.add_in(self.cwd, name, access);
    }

    fn add_in(&mut self, directory: &str, name: &str, access: Access) {
        if self.targets.len() >= MAX_TARGETS {
            return;
        }
        let Some(path) = lexical_path_in(directory, name) else { return };
        let named = FileTarget { path: path.as_str().to_owned(), access };
        if self.seen.insert(named.clone()) {
            self.targets.push(named);
        }
    }
}
