//! Dangers of a command: its programs and options, redirections, environment and text.

use std::borrow::Cow;

use super::shell_words::{simple_commands, split_commands};
use super::tables::{DANGEROUS_PROGRAMS, DANGEROUS_SUBCOMMANDS, SHELLS, WRAPPERS};
use super::{DangerScan, DangerSeverity, escape_name};
use crate::operation::CommandSpec;
use crate::paths::{Access, LexicalPath, find_protection};
use crate::policy::{EnvironmentRisk, assess_variable};
use crate::redaction::redact;
use bowline_protocol::terminal::format_invocation;
use bowline_text::display::{check_non_ascii, collapse_whitespace};

use DangerSeverity::{Grave, Mild, Serious};

/// The maximum number of words examined. A command with more is reported as such.
const MAX_WORDS: usize = 5000;
/// The maximum nesting depth of shells that are started with a command line.
const MAX_DEPTH: usize = 4;

/// Checks a command with its environment.
pub(super) fn scan_command(dangers: &mut DangerScan<'_>, command: &CommandSpec) {
    for (name, value) in &command.env {
        scan_variable(dangers, name, value);
    }
    let text = format_invocation(&command.invocation);
    let mut scan = CommandScan {
        dangers,
        cwd: &command.cwd,
        word_count: 0,
        has_download: false,
        has_decoding: false,
        has_bare_shell: false,
    };
    scan.scan_commands(&simple_commands(&command.invocation), 0);
    let (downloads, decodes, bare, words) =
        (scan.has_download, scan.has_decoding, scan.has_bare_shell, scan.word_count);
    if bare && downloads {
        dangers.add(Grave, "downloads something and runs it");
    }
    if bare && decodes {
        dangers.add(Grave, "decodes something and runs it");
    }
    if words > MAX_WORDS {
        dangers.add(Serious, "is too long to be looked at as a whole");
    }
    let packed: String =
        text.chars().filter(|character| !character.is_whitespace()).take(MAX_WORDS).collect();
    if packed.contains("(){") && packed.contains("|:&") {
        dangers.add(Grave, "starts itself until the machine stops (fork bomb)");
    }
    if matches!(redact(&text), Cow::Owned(_)) {
        dangers.add(Mild, "has a secret in its text, which other programs can see");
    }
    let values = command.env.iter().map(|(_, value)| value.as_str());
    if std::iter::once(&*text).chain(values).any(|text| matches!(collapse_whitespace(text), Cow::Owned(_))) {
        dangers.add(Serious, "has many blanks or empty lines in a row: look at what comes after them");
    }
    dangers.check_confusables(&text);
}

fn scan_variable(dangers: &mut DangerScan<'_>, name: &str, value: &str) {
    if let EnvironmentRisk::RunsCode(reason) = assess_variable(name, value) {
        dangers.add(Serious, format!("sets {}: {reason}", escape_name(name)));
    }
}

struct CommandScan<'a, 'b> {
    dangers: &'a mut DangerScan<'b>,
    cwd: &'a str,
    word_count: usize,
    /// The command downloads something.
    has_download: bool,
    /// The command decodes something.
    has_decoding: bool,
    /// A shell or another interpreter runs its input.
    has_bare_shell: bool,
}

impl CommandScan<'_, '_> {
    fn scan_commands(&mut self, commands: &[Vec<String>], depth: usize) {
        for command in commands {
            self.word_count += command.len();
            if self.word_count > MAX_WORDS {
                return;
            }
            self.scan_simple_command(command, depth);
        }
    }

    fn scan_simple_command(&mut self, words: &[String], depth: usize) {
        self.scan_redirections(words);
        let mut words = words;
        loop {
            let Some((first, rest)) = words.split_first() else { return };
            let name = base_name(first);
            if let Some((variable_name, value)) =
                first.split_once('=').filter(|(name, _)| is_variable_name(name))
            {
                scan_variable(self.dangers, variable_name, value);
                words = rest;
            } else if name == "sudo" || name == "doas" || WRAPPERS.contains(&name) {
                self.scan_program(name, rest);
                let skipped = rest.iter().take_while(|word| {
                    word.starts_with('-') || word.bytes().all(|byte| byte.is_ascii_digit() || byte == b's')
                });
                words = &rest[skipped.count()..];
            } else {
                if let Some(warning) = check_non_ascii(first) {
                    self.dangers.add(Serious, warning.to_string());
                }
                self.scan_program(name, rest);
                self.scan_options(name, rest);
                self.check_secret_paths(rest);
                self.scan_shell(name, rest, depth);
                return;
            }
        }
    }

    fn scan_program(&mut self, name: &str, rest: &[String]) {
        let stem = name.split('.').next().unwrap_or(name);
        for (names, severity, text) in DANGEROUS_PROGRAMS {
            if names.contains(&stem) {
                self.dangers.add(*severity, format!("{text} ({})", escape_name(name)));
            }
        }
        for (_, subcommands, severity, text) in
            DANGEROUS_SUBCOMMANDS.iter().filter(|row| row.0.contains(&name))
        {
            // An option may appear anywhere, a subcommand only first.
            let first = rest.iter().find(|word| !word.starts_with('-'));
            let subcommand = rest.iter().find(|word| {
                subcommands.contains(&word.as_str()) && (word.starts_with('-') || first == Some(word))
            });
            if let Some(word) = subcommand {
                self.dangers.add(*severity, format!("{text} ({} {word})", escape_name(name)));
            } else if subcommands.is_empty() {
                self.dangers.add(*severity, format!("{text} ({})", escape_name(name)));
            }
        }
    }

    /// Checks programs that only certain options make dangerous.
    fn scan_options(&mut self, name: &str, rest: &[String]) {
        let has_any = |words: &[&str]| rest.iter().any(|word| words.contains(&word.as_str()));
        match name {
            "rm" | "unlink" | "rmdir" => self.scan_remove(rest),
            "find" if has_any(&["-delete"]) => {
                self.dangers.add(Serious, "removes every file that it finds (find -delete)")
            }
            "find" => {
                let at = rest.iter().position(|word| word.starts_with("-exec") || word.starts_with("-ok"));
                match at.and_then(|at| rest.get(at + 1)).map(|program| base_name(program)) {
                    Some("rm" | "unlink" | "shred" | "rmdir") => {
                        self.dangers.add(Serious, "removes every file that it finds (find -exec)");
                    }
                    Some(_) => {
                        self.dangers.add(Mild, "runs a command for every file that it finds (find -exec)")
                    }
                    None => {}
                }
            }
            "git" => self.scan_git(rest),
            "chmod" => self.scan_chmod(rest),
            "chown" | "chgrp" if has_flag(rest, 'R', "--recursive") => {
                self.dangers.add(
                    Serious,
                    format!("gives everything in {} to another owner", describe_operands(rest)),
                );
            }
            "dd" => {
                if let Some(device) = rest.iter().find_map(|word| word.strip_prefix("of=")) {
                    let severity = if is_device(device) { Grave } else { Mild };
                    self.dangers.add(severity, format!("overwrites {}", escape_name(device)));
                }
            }
            "kill" if rest.iter().skip(1).any(|word| word == "-1") => {
                self.dangers.add(Grave, "ends every process of the user (kill -1)");
            }
            "systemctl" if !has_any(&["status", "is-active", "is-enabled", "show", "list-units", "cat"]) => {
                self.dangers.add(Serious, "changes the services of this machine (systemctl)");
            }
            "init" if has_any(&["0", "6"]) => self.dangers.add(Grave, "ends this machine's work (init)"),
            "docker" | "podman" => self.scan_container(rest),
            "nc" | "ncat" | "netcat" if has_flag(rest, 'l', "--listen") => {
                self.dangers.add(Mild, "lets others connect to this machine")
            }
            "socat" if rest.iter().any(|word| word.to_ascii_uppercase().contains("LISTEN")) => {
                self.dangers.add(Mild, "lets others connect to this machine");
            }
            "curl" | "wget" | "http" | "fetch" => {
                self.has_download = true;
                let sends = has_flag(rest, 'T', "--upload-file")
                    || has_flag(rest, 'd', "--data")
                    || has_flag(rest, 'F', "--form");
                let sends = sends
                    || rest.iter().any(|word| word.starts_with("--data-") || word.starts_with("--post-"));
                self.dangers.add(
                    if sends { Serious } else { Mild },
                    if sends { "sends something to the network" } else { "reaches the network" },
                );
            }
            "base64" | "base32" | "openssl" | "xxd"
                if rest.iter().any(|word| {
                    word.starts_with("-d") || word == "-D" || word == "-r" || word == "--decode"
                }) =>
            {
                self.has_decoding = true;
            }
            "tee" | "cp" | "mv" | "ln" | "install" | "touch" | "truncate" => {
                let last = if matches!(name, "cp" | "mv" | "ln" | "install") {
                    rest.len().saturating_sub(1)
                } else {
                    0
                };
                rest[last..]
                    .iter()
                    .filter(|word| !word.starts_with('-'))
                    .for_each(|word| self.check_written_path(word));
            }
            "sed" | "perl"
                if rest.iter().any(|word| word.starts_with("-i") || word.starts_with("--in-place")) =>
            {
                rest.iter()
                    .filter(|word| !word.starts_with('-'))
                    .for_each(|word| self.check_written_path(word));
            }
            _ => {}
        }
    }

    fn scan_remove(&mut self, rest: &[String]) {
        let targets: Vec<&String> = rest.iter().filter(|word| !word.starts_with('-')).collect();
        let recursive = has_flag(rest, 'r', "--recursive") || has_flag(rest, 'R', "--recursive");
        let suffix = if recursive { " with everything in it" } else { "" };
        for target in targets.iter().take(super::MAX_DANGERS) {
            let location = self.locate_path(target);
            let bare = target.trim_end_matches(['/', '*']);
            let all = ["", "~", "$HOME", "${HOME}", ".", ".."].contains(&bare) || bare.ends_with("/..");
            let severity = match (all || location == PathLocation::Outside, recursive) {
                (true, _) => Grave,
                (false, true) => Serious,
                (false, false) => Mild,
            };
            let outside = if location == PathLocation::Outside { ", outside the workspace" } else { "" };
            self.dangers.add(severity, format!("removes {}{suffix}{outside}", escape_name(target)));
        }
    }

    fn scan_git(&mut self, rest: &[String]) {
        let has_any = |words: &[&str]| rest.iter().any(|word| words.contains(&word.as_str()));
        let has_word = |word: &str| rest.iter().any(|argument| argument == word);
        if has_word("push") {
            let forced =
                has_flag(rest, 'f', "--force") || has_any(&["--force-with-lease", "--mirror", "--delete"]);
            let forced =
                forced || rest.iter().any(|word| word.starts_with('+') || word.starts_with("--force"));
            let text = if forced {
                "overwrites what others have (git push --force)"
            } else {
                "publishes commits (git push)"
            };
            self.dangers.add(if forced { Serious } else { Mild }, text);
        }
        if has_word("reset") && has_word("--hard") {
            self.dangers.add(Serious, "throws away changes that are not committed (git reset --hard)");
        }
        if has_word("clean") && has_flag(rest, 'f', "--force") {
            self.dangers.add(Serious, "removes files that git does not know (git clean)");
        }
        if (has_word("checkout") || has_word("restore")) && has_any(&["--", ".", "-f", "--force"]) {
            self.dangers.add(Serious, "throws away changes that are not committed (git checkout)");
        }
        if has_word("stash") && has_any(&["drop", "clear"]) || has_word("branch") && has_word("-D") {
            self.dangers.add(Serious, "throws away work that git keeps (git stash or branch)");
        }
        if has_any(&["filter-branch", "filter-repo", "rebase"]) {
            self.dangers.add(Serious, "writes history anew (git)");
        }
        if changes_git_settings(rest) {
            self.dangers.add(Serious, "changes git's settings: they can name commands that run");
        }
    }

    fn scan_chmod(&mut self, rest: &[String]) {
        let mode = rest.iter().find(|word| !word.starts_with('-')).map_or("", String::as_str);
        let recursive = has_flag(rest, 'R', "--recursive");
        let is_open = mode.ends_with("777")
            || mode.ends_with("666")
            || mode.contains("o+w")
            || mode.contains("a+w")
            || mode.contains("a+rwx");
        // The first of four octal digits has setuid (4) and setgid (2).
        let special = mode.trim_start_matches('0').as_bytes();
        let sets_id = special.len() == 4 && matches!(special[0], b'2'..=b'7');
        let adds_id = mode.split(',').filter_map(|part| part.split_once(['+', '=']));
        if sets_id || adds_id.into_iter().any(|(_, rights)| rights.contains('s')) {
            self.dangers
                .add(Grave, format!("lets everyone run {} with its owner's rights", describe_operands(rest)));
        }
        if is_open {
            let suffix = if recursive { " and everything in it" } else { "" };
            self.dangers.add(
                Serious,
                format!(
                    "lets everyone change {}{suffix} (chmod {})",
                    describe_operands(rest),
                    escape_name(mode)
                ),
            );
        } else if recursive {
            self.dangers
                .add(Mild, format!("changes the rights of everything in {}", describe_operands(rest)));
        }
    }

    fn scan_container(&mut self, rest: &[String]) {
        let mounts_root = |word: &String| {
            word.starts_with("/:")
                || word.contains("=/:")
                || word.contains("docker.sock")
                || word.contains("source=/,")
                || word.contains("src=/,")
        };
        // An option's value follows `=` or is the next word.
        let is_unconfined = |(at, word): &(usize, &String)| {
            let (name, value) =
                word.split_once('=').unwrap_or((word, rest.get(at + 1).map_or("", String::as_str)));
            let opens = match name {
                "--privileged" => !word.contains('=') || value != "false",
                "--pid" | "--userns" | "--ipc" | "--uts" => value == "host",
                "--cap-add" => value.eq_ignore_ascii_case("all"),
                _ => false,
            };
            opens || mounts_root(word)
        };
        if let Some((_, word)) = rest.iter().enumerate().find(is_unconfined) {
            self.dangers.add(
                Grave,
                format!("starts a container that can do anything to this machine ({})", escape_name(word)),
            );
        }
        if rest.iter().any(|word| word == "prune") {
            self.dangers.add(Serious, "removes containers, images or volumes (prune)");
        }
    }

    /// Checks the arguments of a shell or another interpreter.
    fn scan_shell(&mut self, name: &str, rest: &[String], depth: usize) {
        let is_interpreter =
            ["python", "python3", "perl", "ruby", "node", "deno", "php", "lua"].contains(&name);
        if is_interpreter {
            if rest.iter().any(|word| matches!(word.as_str(), "-c" | "-e" | "--eval" | "-r" | "eval")) {
                self.dangers.add(Mild, format!("runs code that is given on the command line ({name})"));
            }
            if rest.iter().any(|word| word == "http.server" || word == "SimpleHTTPServer") {
                self.dangers.add(Mild, "lets others connect to this machine");
            }
            self.has_bare_shell |= rest.iter().all(|word| word == "-");
        }
        if name == "source" || name == "." || name == "eval" {
            self.has_bare_shell = true;
        }
        if name == "eval" && depth < MAX_DEPTH {
            self.scan_commands(&split_commands(&rest.join(" ")), depth + 1);
        }
        if !SHELLS.contains(&name) {
            return;
        }
        let option = rest
            .iter()
            .position(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('c'));
        match option.and_then(|at| rest.get(at + 1)) {
            Some(line) if depth < MAX_DEPTH => {
                let commands = split_commands(line);
                // `sh -c "$(curl …)"` runs the output of the substitution.
                let line_start = line.trim_start();
                self.has_bare_shell |= line_start.is_empty() || line_start.starts_with(['$', '`']);
                self.scan_commands(&commands, depth + 1);
            }
            Some(_) => self.dangers.add(Serious, "starts shells within shells, too deep to look at"),
            None => {
                self.has_bare_shell |= rest.iter().all(|word| word.starts_with(['-', '<', '>']))
                    || rest.iter().any(|word| word == "-s")
            }
        }
    }

    fn scan_redirections(&mut self, words: &[String]) {
        for pair in words.windows(2) {
            if pair[0].starts_with('>') || pair[0].ends_with('>') && pair[0].len() <= 3 {
                self.check_written_path(&pair[1]);
            }
        }
    }

    /// Checks a file that the command writes.
    fn check_written_path(&mut self, name: &str) {
        if is_device(name) {
            self.dangers.add(Grave, format!("overwrites {}", escape_name(name)));
            return;
        }
        if let Some(protection) =
            self.resolve_path(name).and_then(|path| find_protection(&path, Access::Write))
        {
            self.dangers.add(Serious, format!("{} ({})", protection.reason(), escape_name(name)));
        }
        if self.locate_path(name) == PathLocation::Outside {
            self.dangers.add(Grave, format!("writes outside the workspace: {}", escape_name(name)));
        }
    }

    /// Checks the words for the paths of secret files.
    fn check_secret_paths(&mut self, words: &[String]) {
        for word in words.iter().filter(|word| word.contains(['.', '/', '_'])) {
            let name = word.rsplit_once(['=', '@', ':']).map_or(word.as_str(), |(_, name)| name);
            if let Some(protection) =
                self.resolve_path(name).and_then(|path| find_protection(&path, Access::Read))
            {
                self.dangers.add(Serious, format!("{} ({})", protection.reason(), escape_name(word)));
            }
        }
    }

    fn resolve_path(&self, name: &str) -> Option<LexicalPath> {
        let absolute = if name.starts_with('/') {
            name.to_owned()
        } else {
            format!("{}/{name}", self.cwd.trim_end_matches('/'))
        };
        LexicalPath::parse(&absolute).ok()
    }

    fn locate_path(&self, name: &str) -> PathLocation {
        if name.starts_with("/dev/") && !is_device(name) {
            return PathLocation::Inside;
        }
        if name.starts_with(['~', '$']) {
            return if name.starts_with("~") || name.starts_with("$HOME") {
                PathLocation::Outside
            } else {
                PathLocation::Unknown
            };
        }
        let name = name.trim_end_matches('*');
        match self.resolve_path(if name.is_empty() { "." } else { name }) {
            Some(path) if self.dangers.is_inside_roots(path.as_str()) => PathLocation::Inside,
            _ => PathLocation::Outside,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathLocation {
    Inside,
    Outside,
    Unknown,
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns whether an option is present: by its letter, alone or combined with others, or by its name.
fn has_flag(words: &[String], letter: char, name: &str) -> bool {
    words.iter().any(|word| {
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        word == name || letters.is_some_and(|letters| letters.contains(letter))
    })
}

/// Returns whether a name is that of a device whose content matters.
fn is_device(name: &str) -> bool {
    let harmless = ["null", "zero", "tty", "stdin", "stdout", "stderr", "full"];
    name.strip_prefix("/dev/").is_some_and(|rest| {
        !harmless.contains(&rest)
            && !["fd/", "shm/", "pts/", "tcp/", "udp/"].iter().any(|start| rest.starts_with(start))
    })
}

/// Returns the files whose permissions or owner change, escaped for display: the non-option words except the first,
/// which is the new mode or owner.
fn describe_operands(words: &[String]) -> String {
    let names: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).skip(1).collect();
    if names.is_empty() { "a file".to_owned() } else { escape_name(&names.join(" ")) }
}

/// Returns whether git runs with other settings or changes them. Before the command's name, `-c` sets a value; after it,
/// `-c` is an option of the command.
fn changes_git_settings(rest: &[String]) -> bool {
    let mut words = rest.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-c" => return true,
            "-C" | "--git-dir" | "--work-tree" | "--namespace" => drop(words.next()),
            _ if word.starts_with("--config-env") || word.starts_with("--exec-path=") => return true,
            _ if word.starts_with('-') => {}
            _ => return word == "config",
        }
    }
    false
}
