//! What is dangerous in a command: programs with their options, redirections, the environment, the text itself.

use std::borrow::Cow;

use super::tables::{PROGRAMS, SHELLS, SUBCOMMANDS, WRAPPERS};
use super::words::{simple_commands, split};
use super::{Found, Severity, shown};
use crate::display::{foreign_letters, invocation, shortened};
use crate::operation::Command;
use crate::paths::{Access, LexicalPath, protected};
use crate::policy::{EnvironmentRisk, environment};
use crate::redaction::redact;

use Severity::{Grave, Mild, Serious};

/// So many words are looked at. A command with more says so.
const MAX_WORDS: usize = 5000;
/// So deep a shell's line may start another shell with a line.
const MAX_DEPTH: usize = 4;

/// Looks at a command with everything that belongs to it.
pub(super) fn scan(found: &mut Found<'_>, command: &Command) {
    for (name, value) in &command.env {
        variable(found, name, value);
    }
    let text = invocation(&command.invocation);
    let mut scan =
        Scan { found, cwd: &command.cwd, words: 0, downloads: false, decodes: false, bare_shell: false };
    scan.commands(&simple_commands(&command.invocation), 0);
    let (downloads, decodes, bare, words) = (scan.downloads, scan.decodes, scan.bare_shell, scan.words);
    if bare && downloads {
        found.add(Grave, "downloads something and runs it");
    }
    if bare && decodes {
        found.add(Grave, "decodes something and runs it");
    }
    if words > MAX_WORDS {
        found.add(Serious, "is too long to be looked at as a whole");
    }
    let packed: String =
        text.chars().filter(|character| !character.is_whitespace()).take(MAX_WORDS).collect();
    if packed.contains("(){") && packed.contains("|:&") {
        found.add(Grave, "starts itself until the machine stops (fork bomb)");
    }
    if matches!(redact(&text), Cow::Owned(_)) {
        found.add(Mild, "has a secret in its text, which other programs can see");
    }
    let values = command.env.iter().map(|(_, value)| value.as_str());
    if std::iter::once(&*text).chain(values).any(|text| matches!(shortened(text), Cow::Owned(_))) {
        found.add(Serious, "has many blanks or empty lines in a row: look at what comes after them");
    }
    found.looks(&text);
}

fn variable(found: &mut Found<'_>, name: &str, value: &str) {
    if let EnvironmentRisk::RunsCode(how) = environment(name, value) {
        found.add(Serious, format!("sets {}: {how}", shown(name)));
    }
}

struct Scan<'a, 'b> {
    found: &'a mut Found<'b>,
    cwd: &'a str,
    words: usize,
    /// Something is fetched from the network.
    downloads: bool,
    /// Something is decoded.
    decodes: bool,
    /// A shell or another interpreter runs what it is given.
    bare_shell: bool,
}

impl Scan<'_, '_> {
    fn commands(&mut self, commands: &[Vec<String>], depth: usize) {
        for command in commands {
            self.words += command.len();
            if self.words > MAX_WORDS {
                return;
            }
            self.command(command, depth);
        }
    }

    fn command(&mut self, words: &[String], depth: usize) {
        self.redirections(words);
        let mut words = words;
        loop {
            let Some((first, rest)) = words.split_first() else { return };
            let name = base(first);
            if let Some((variable_name, value)) = first.split_once('=').filter(|(name, _)| is_variable(name))
            {
                variable(self.found, variable_name, value);
                words = rest;
            } else if name == "sudo" || name == "doas" || WRAPPERS.contains(&name) {
                self.program(name, rest);
                let skipped = rest.iter().take_while(|word| {
                    word.starts_with('-') || word.bytes().all(|byte| byte.is_ascii_digit() || byte == b's')
                });
                words = &rest[skipped.count()..];
            } else {
                if let Some(warning) = foreign_letters(first) {
                    self.found.add(Serious, warning.to_string());
                }
                self.program(name, rest);
                self.named(name, rest);
                self.secrets(rest);
                self.shell(name, rest, depth);
                return;
            }
        }
    }

    fn program(&mut self, name: &str, rest: &[String]) {
        let stem = name.split('.').next().unwrap_or(name);
        for (names, severity, text) in PROGRAMS {
            if names.contains(&stem) {
                self.found.add(*severity, format!("{text} ({})", shown(name)));
            }
        }
        for (_, subcommands, severity, text) in SUBCOMMANDS.iter().filter(|row| row.0.contains(&name)) {
            // An option may stand anywhere, a word only first.
            let first = rest.iter().find(|word| !word.starts_with('-'));
            let given = rest.iter().find(|word| {
                subcommands.contains(&word.as_str()) && (word.starts_with('-') || first == Some(word))
            });
            if let Some(word) = given {
                self.found.add(*severity, format!("{text} ({} {word})", shown(name)));
            } else if subcommands.is_empty() {
                self.found.add(*severity, format!("{text} ({})", shown(name)));
            }
        }
    }

    /// Looks at programs whose options make the difference.
    fn named(&mut self, name: &str, rest: &[String]) {
        let has = |words: &[&str]| rest.iter().any(|word| words.contains(&word.as_str()));
        match name {
            "rm" | "unlink" | "rmdir" => self.remove(rest),
            "find" if has(&["-delete"]) => {
                self.found.add(Serious, "removes every file that it finds (find -delete)")
            }
            "find" => {
                let at = rest.iter().position(|word| word.starts_with("-exec") || word.starts_with("-ok"));
                match at.and_then(|at| rest.get(at + 1)).map(|program| base(program)) {
                    Some("rm" | "unlink" | "shred" | "rmdir") => {
                        self.found.add(Serious, "removes every file that it finds (find -exec)");
                    }
                    Some(_) => {
                        self.found.add(Mild, "runs a command for every file that it finds (find -exec)")
                    }
                    None => {}
                }
            }
            "git" => self.git(rest),
            "chmod" => self.chmod(rest),
            "chown" | "chgrp" if flag(rest, 'R', "--recursive") => {
                self.found.add(Serious, format!("gives everything in {} to another owner", operands(rest)));
            }
            "dd" => {
                if let Some(device) = rest.iter().find_map(|word| word.strip_prefix("of=")) {
                    let severity = if is_device(device) { Grave } else { Mild };
                    self.found.add(severity, format!("overwrites {}", shown(device)));
                }
            }
            "kill" if rest.iter().skip(1).any(|word| word == "-1") => {
                self.found.add(Grave, "ends every process of the user (kill -1)");
            }
            "systemctl" if !has(&["status", "is-active", "is-enabled", "show", "list-units", "cat"]) => {
                self.found.add(Serious, "changes the services of this machine (systemctl)");
            }
            "init" if has(&["0", "6"]) => self.found.add(Grave, "ends this machine's work (init)"),
            "docker" | "podman" => self.container(rest),
            "nc" | "ncat" | "netcat" if flag(rest, 'l', "--listen") => {
                self.found.add(Mild, "lets others connect to this machine")
            }
            "socat" if rest.iter().any(|word| word.to_ascii_uppercase().contains("LISTEN")) => {
                self.found.add(Mild, "lets others connect to this machine");
            }
            "curl" | "wget" | "http" | "fetch" => {
                self.downloads = true;
                let sends = flag(rest, 'T', "--upload-file")
                    || flag(rest, 'd', "--data")
                    || flag(rest, 'F', "--form");
                let sends = sends
                    || rest.iter().any(|word| word.starts_with("--data-") || word.starts_with("--post-"));
                self.found.add(
                    if sends { Serious } else { Mild },
                    if sends { "sends something to the network" } else { "reaches the network" },
                );
            }
            "base64" | "base32" | "openssl" | "xxd"
                if rest.iter().any(|word| {
                    word.starts_with("-d") || word == "-D" || word == "-r" || word == "--decode"
                }) =>
            {
                self.decodes = true;
            }
            "tee" | "cp" | "mv" | "ln" | "install" | "touch" | "truncate" => {
                let last = if matches!(name, "cp" | "mv" | "ln" | "install") {
                    rest.len().saturating_sub(1)
                } else {
                    0
                };
                rest[last..].iter().filter(|word| !word.starts_with('-')).for_each(|word| self.written(word));
            }
            "sed" | "perl"
                if rest.iter().any(|word| word.starts_with("-i") || word.starts_with("--in-place")) =>
            {
                rest.iter().filter(|word| !word.starts_with('-')).for_each(|word| self.written(word));
            }
            _ => {}
        }
    }

    fn remove(&mut self, rest: &[String]) {
        let targets: Vec<&String> = rest.iter().filter(|word| !word.starts_with('-')).collect();
        let recursive = flag(rest, 'r', "--recursive") || flag(rest, 'R', "--recursive");
        let what = if recursive { " with everything in it" } else { "" };
        for target in targets.iter().take(super::MAX_DANGERS) {
            let place = self.place(target);
            let bare = target.trim_end_matches(['/', '*']);
            let all = ["", "~", "$HOME", "${HOME}", ".", ".."].contains(&bare) || bare.ends_with("/..");
            let severity = match (all || place == Place::Outside, recursive) {
                (true, _) => Grave,
                (false, true) => Serious,
                (false, false) => Mild,
            };
            let outside = if place == Place::Outside { ", outside the workspace" } else { "" };
            self.found.add(severity, format!("removes {}{what}{outside}", shown(target)));
        }
    }

    fn git(&mut self, rest: &[String]) {
        let has = |words: &[&str]| rest.iter().any(|word| words.contains(&word.as_str()));
        let rest_is = |word: &str| rest.iter().any(|it| it == word);
        if rest_is("push") {
            let forced = flag(rest, 'f', "--force") || has(&["--force-with-lease", "--mirror", "--delete"]);
            let forced =
                forced || rest.iter().any(|word| word.starts_with('+') || word.starts_with("--force"));
            let text = if forced {
                "overwrites what others have (git push --force)"
            } else {
                "publishes commits (git push)"
            };
            self.found.add(if forced { Serious } else { Mild }, text);
        }
        if rest_is("reset") && rest_is("--hard") {
            self.found.add(Serious, "throws away changes that are not committed (git reset --hard)");
        }
        if rest_is("clean") && flag(rest, 'f', "--force") {
            self.found.add(Serious, "removes files that git does not know (git clean)");
        }
        if (rest_is("checkout") || rest_is("restore")) && has(&["--", ".", "-f", "--force"]) {
            self.found.add(Serious, "throws away changes that are not committed (git checkout)");
        }
        if rest_is("stash") && has(&["drop", "clear"]) || rest_is("branch") && rest_is("-D") {
            self.found.add(Serious, "throws away work that git keeps (git stash or branch)");
        }
        if has(&["filter-branch", "filter-repo", "rebase"]) {
            self.found.add(Serious, "writes history anew (git)");
        }
        if rest_is("config") || rest_is("-c") || rest.iter().any(|word| word.starts_with("--exec-path=")) {
            self.found.add(Serious, "changes git's settings: they can name commands that run");
        }
    }

    fn chmod(&mut self, rest: &[String]) {
        let mode = rest.iter().find(|word| !word.starts_with('-')).map_or("", String::as_str);
        let recursive = flag(rest, 'R', "--recursive");
        let open = mode.ends_with("777")
            || mode.ends_with("666")
            || mode.contains("o+w")
            || mode.contains("a+w")
            || mode.contains("a+rwx");
        if mode.contains("+s") || (mode.len() == 4 && matches!(mode.as_bytes()[0], b'2' | b'4' | b'6')) {
            self.found.add(Grave, format!("lets everyone run {} with its owner's rights", operands(rest)));
        }
        if open {
            let what = if recursive { " and everything in it" } else { "" };
            self.found.add(
                Serious,
                format!("lets everyone change {}{what} (chmod {})", operands(rest), shown(mode)),
            );
        } else if recursive {
            self.found.add(Mild, format!("changes the rights of everything in {}", operands(rest)));
        }
    }

    fn container(&mut self, rest: &[String]) {
        let whole = |word: &String| {
            word.starts_with("/:")
                || word.contains("=/:")
                || word.contains("docker.sock")
                || word.contains("source=/,")
                || word.contains("src=/,")
        };
        let host = |word: &String| {
            matches!(word.as_str(), "--privileged" | "--pid=host" | "--cap-add=ALL" | "--userns=host")
                || whole(word)
        };
        if let Some(word) = rest.iter().find(|word| host(word)) {
            self.found.add(
                Grave,
                format!("starts a container that can do anything to this machine ({})", shown(word)),
            );
        }
        if rest.iter().any(|word| word == "prune") {
            self.found.add(Serious, "removes containers, images or volumes (prune)");
        }
    }

    /// Looks at what a shell, or another program that runs text, is given.
    fn shell(&mut self, name: &str, rest: &[String], depth: usize) {
        let interpreter = ["python", "python3", "perl", "ruby", "node", "deno", "php", "lua"].contains(&name);
        if interpreter {
            if rest.iter().any(|word| matches!(word.as_str(), "-c" | "-e" | "--eval" | "-r" | "eval")) {
                self.found.add(Mild, format!("runs code that is given on the command line ({name})"));
            }
            if rest.iter().any(|word| word == "http.server" || word == "SimpleHTTPServer") {
                self.found.add(Mild, "lets others connect to this machine");
            }
            self.bare_shell |= rest.iter().all(|word| word == "-");
        }
        if name == "source" || name == "." || name == "eval" {
            self.bare_shell = true;
        }
        if name == "eval" && depth < MAX_DEPTH {
            self.commands(&split(&rest.join(" ")), depth + 1);
        }
        if !SHELLS.contains(&name) {
            return;
        }
        let given = rest
            .iter()
            .position(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('c'));
        match given.and_then(|at| rest.get(at + 1)) {
            Some(line) if depth < MAX_DEPTH => {
                let commands = split(line);
                // `sh -c "$(curl …)"` runs what it gets.
                let line_start = line.trim_start();
                self.bare_shell |= line_start.is_empty() || line_start.starts_with(['$', '`']);
                self.commands(&commands, depth + 1);
            }
            Some(_) => self.found.add(Serious, "starts shells within shells, too deep to look at"),
            None => {
                self.bare_shell |= rest.iter().all(|word| word.starts_with(['-', '<', '>']))
                    || rest.iter().any(|word| word == "-s")
            }
        }
    }

    fn redirections(&mut self, words: &[String]) {
        for pair in words.windows(2) {
            if pair[0].starts_with('>') || pair[0].ends_with('>') && pair[0].len() <= 3 {
                self.written(&pair[1]);
            }
        }
    }

    /// Looks at a file that is written.
    fn written(&mut self, name: &str) {
        if is_device(name) {
            self.found.add(Grave, format!("overwrites {}", shown(name)));
            return;
        }
        if let Some(protection) = self.path(name).and_then(|path| protected(&path, Access::Write)) {
            self.found.add(Serious, format!("{} ({})", protection.reason(), shown(name)));
        }
        if self.place(name) == Place::Outside {
            self.found.add(Grave, format!("writes outside the workspace: {}", shown(name)));
        }
    }

    /// Looks for files of secrets among the words.
    fn secrets(&mut self, words: &[String]) {
        for word in words.iter().filter(|word| word.contains(['.', '/', '_'])) {
            let name = word.rsplit_once(['=', '@', ':']).map_or(word.as_str(), |(_, name)| name);
            if let Some(protection) = self.path(name).and_then(|path| protected(&path, Access::Read)) {
                self.found.add(Serious, format!("{} ({})", protection.reason(), shown(word)));
            }
        }
    }

    fn path(&self, name: &str) -> Option<LexicalPath> {
        let absolute = if name.starts_with('/') {
            name.to_owned()
        } else {
            format!("{}/{name}", self.cwd.trim_end_matches('/'))
        };
        LexicalPath::parse(&absolute).ok()
    }

    fn place(&self, name: &str) -> Place {
        if name.starts_with("/dev/") && !is_device(name) {
            return Place::Inside;
        }
        if name.starts_with(['~', '$']) {
            return if name.starts_with("~") || name.starts_with("$HOME") {
                Place::Outside
            } else {
                Place::Unknown
            };
        }
        let name = name.trim_end_matches('*');
        match self.path(if name.is_empty() { "." } else { name }) {
            Some(path) if self.found.is_inside(path.as_str()) => Place::Inside,
            _ => Place::Outside,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Inside,
    Outside,
    Unknown,
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Says whether an option is given, by its letter alone or among others, or by its name.
fn flag(words: &[String], letter: char, name: &str) -> bool {
    words.iter().any(|word| {
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        word == name || letters.is_some_and(|letters| letters.contains(letter))
    })
}

/// Says whether a name is that of a device whose content matters.
fn is_device(name: &str) -> bool {
    let harmless = ["null", "zero", "tty", "stdin", "stdout", "stderr", "full"];
    name.strip_prefix("/dev/").is_some_and(|rest| {
        !harmless.contains(&rest)
            && !["fd/", "shm/", "pts/", "tcp/", "udp/"].iter().any(|start| rest.starts_with(start))
    })
}

/// Returns the files that a change of rights or owners is for, fit to be shown: the words that are no options, but for
/// the first, which says to what they change.
fn operands(words: &[String]) -> String {
    let names: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).skip(1).collect();
    if names.is_empty() { "a file".to_owned() } else { shown(&names.join(" ")) }
}
