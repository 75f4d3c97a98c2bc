//! Rules for commands: every part of a line by itself, and what its parts run.

use std::collections::HashSet;

use super::environment::{EnvironmentRisk, environment};
use super::executed::executes;
use super::seen::{MAX_DEPTH, Seen, Tokens, is_boundary, is_prefix, texts, without_quotes};
use super::shell::{self, Simple, Unparsed, Word};
use super::targets::{
    MAX_FILES, destination, follow, guessed_arguments, is_steady, locate, moves, redirections,
};
use super::wrappers::{Runs, base_name, is_known_shell, is_login, runs};
use super::{Context, Effect, Ground, Law, Matcher, Policy, Preset, Reason, Rule, because};
use crate::operation::{Command, Invocation, Kind, Leads};
use crate::paths;

mod files;

/// Returns the form of a command in which two are equal if they surely do the same: a single command of plain words as its
/// words, whichever shell it was wrapped in; any other line as its text, without a shell that does nothing but read it.
#[must_use]
pub fn canonical(invocation: &Invocation) -> Invocation {
    let mut current = invocation.clone();
    // Each turn takes a shorter text out of a longer one.
    loop {
        let words = match &current {
            Invocation::Argv(words) => literal(words),
            Invocation::Shell(line) => match plain(line) {
                Some(words) => words,
                None => return Invocation::Shell(trim(line).to_owned()),
            },
        };
        match runs(&words) {
            Runs::Text { text, is_shell: true, at }
                if at + 1 == words.len()
                    && is_known_shell(&words[0].text)
                    && is_transparent(&words[..at], &text) =>
            {
                current = Invocation::Shell(text);
            }
            _ => return Invocation::Argv(words.into_iter().map(|word| word.text).collect()),
        }
    }
}

/// What tells a line where it was before a `cd`.
const PREVIOUS_DIRECTORY: [&str; 3] = ["OLDPWD", "cd -", "~-"];

/// Returns the same form of a command that is run in a directory: without a `cd` to that directory before the rest, which
/// kimi-code adds to whatever it runs.
#[must_use]
pub fn canonical_in(invocation: &Invocation, cwd: &str) -> Invocation {
    let form = canonical(invocation);
    let rest = match &form {
        Invocation::Shell(line) if is_plain_path(cwd) => {
            let moved = [format!("cd '{cwd}' && "), format!("cd {cwd} && ")];
            moved.iter().find_map(|moved| line.strip_prefix(moved.as_str()))
        }
        _ => None,
    };
    let rest = rest.filter(|rest| !PREVIOUS_DIRECTORY.iter().any(|told| rest.contains(told)));
    rest.map(|rest| canonical(&Invocation::Shell(rest.to_owned()))).unwrap_or(form)
}

/// Says whether a shell reads a path as itself, quoted or not.
fn is_plain_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@".contains(&byte);
    path.starts_with('/') && path.bytes().all(is_plain)
}

/// Says whether a line does the same with and without a shell that is given it after these words.
fn is_transparent(shell: &[Word], line: &str) -> bool {
    // One command of plain words is nothing that `-e` could cut short, and every shell finds the same words in it.
    if plain(line).is_some() {
        return true;
    }
    // A login shell reads the user's own files first, which no agent reaches; agents say it of most of what they run.
    let is_bare = matches!(shell, [_, option] if matches!(option.text.as_str(), "-c" | "-lc"));
    // Patterns without a match, and what the recogniser refuses, are read by each shell in its own way.
    let is_common = || match base_name(&shell[0].text).as_str() {
        "sh" => true,
        "zsh" => false,
        _ => shell::parse(line).is_ok(),
    };
    is_bare && is_common()
}

/// Returns a line without what surrounds it, but with a blank at its end that is escaped.
fn trim(line: &str) -> &str {
    let line = line.trim_start_matches([' ', '\t', '\n']);
    let end = line.trim_end_matches([' ', '\t', '\n']);
    if end.ends_with('\\') { line } else { end }
}

/// Returns the words of a line that is one command of plain words and nothing else.
fn plain(line: &str) -> Option<Vec<Word>> {
    let mut commands = shell::parse(line).ok()?.commands;
    let only = commands.pop().filter(|_| commands.is_empty())?;
    // What runs in the background is another thing than the same words in front.
    let ampersands = |text: &str| text.matches('&').count();
    let in_words: usize = only.words.iter().map(|word| ampersands(&word.text)).sum();
    let is_plain = ampersands(line) == in_words
        && only.assignments.is_empty()
        && only.redirections.is_empty()
        && !only.words.is_empty()
        && only.words.iter().all(|word| word.is_literal);
    is_plain.then_some(only.words)
}

fn literal(words: &[String]) -> Vec<Word> {
    words.iter().map(|word| Word { text: word.clone(), is_literal: true }).collect()
}

/// Judges a command.
pub(super) fn judge(policy: &Policy, kind: Kind, command: &Command, context: &Context) -> Vec<Reason> {
    let judge = Judge {
        policy,
        context,
        kind,
        command,
        exact: canonical(&command.invocation),
        is_free: policy.is_free(kind, context),
        unreviewed: policy.unreviewed_by(command, context),
    };
    judge.whole()
}

impl Policy {
    /// Says whether arbitrary code may run: by a rule for everything, or by the preset.
    fn is_free(&self, kind: Kind, context: &Context) -> bool {
        self.preset == Preset::Full
            || self.for_everything(kind, context).iter().any(|reason| reason.effect == Effect::Allow)
    }
}

struct Judge<'p> {
    policy: &'p Policy,
    context: &'p Context,
    kind: Kind,
    command: &'p Command,
    exact: Invocation,
    is_free: bool,
    // Files that it must not execute unasked.
    unreviewed: Vec<String>,
}

/// Where in a line a part stands.
#[derive(Clone, Copy, Default)]
struct Place<'d> {
    // How many commands it is in.
    depth: usize,
    // Whether an earlier part may have changed the directory.
    has_moved: bool,
    // The directories that it may run in; none if that is only the command's own.
    directories: &'d [String],
}

impl Place<'_> {
    /// Returns the place of what a command here runs. Where that is done is not looked at.
    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, has_moved: true, ..self }
    }
}

impl Judge<'_> {
    fn whole(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for (name, value) in &self.command.env {
            self.variable(name, value, &mut reasons);
        }
        if !self.policy.roots.is_empty() && !self.is_inside(&self.command.cwd) {
            reasons.push(
                Reason::law(self.policy.preset.guarded(self.kind), Law::RunsOutside).of(&self.command.cwd),
            );
        }
        // A rule against this very command, or for all of it.
        let mut is_allowed = false;
        for (index, rule) in self.policy.live(self.kind, self.context) {
            if matches!(&rule.spec().matcher, Matcher::Exact(exact) if *exact == self.exact) {
                is_allowed |= rule.effect() == Effect::Allow;
                reasons.push(because(index, rule));
            }
        }
        match &self.command.invocation {
            Invocation::Argv(words) => {
                let text = words.join(" ");
                if words.len() > shell::MAX_WORDS {
                    let why = Unparsed::TooManyWords.to_string();
                    self.unparsed(&text, &why, is_allowed, &mut reasons);
                } else {
                    let part = Simple { words: literal(words), text, ..Simple::default() };
                    self.part(&part, Place::default(), is_allowed, &mut reasons);
                }
            }
            Invocation::Shell(line) => self.line(line, Place::default(), is_allowed, &mut reasons),
        }
        reasons
    }

    /// Judges a line, each command by itself.
    fn line(&self, line: &str, mut place: Place<'_>, is_allowed: bool, reasons: &mut Vec<Reason>) {
        let parsed = match shell::parse(line) {
            Ok(parsed) if place.depth < MAX_DEPTH => parsed,
            Ok(_) => return self.unparsed(line, "has commands in commands in commands", is_allowed, reasons),
            Err(why) => return self.unparsed(line, &why.to_string(), is_allowed, reasons),
        };
        let mut directories = place.directories.to_vec();
        if directories.is_empty() {
            directories.push(self.command.cwd.clone());
        }
        for command in &parsed.commands {
            self.part(command, Place { directories: &directories, ..place }, is_allowed, reasons);
            let moves = may_move(&command.words);
            follow(&mut directories, &command.words, moves);
            place.has_moved |= moves;
        }
    }

    /// Judges one command of a line.
    fn part(&self, part: &Simple, place: Place<'_>, is_allowed: bool, reasons: &mut Vec<Reason>) {
        for (name, value) in &part.assignments {
            self.variable(name, &value.text, reasons);
        }
        for redirection in &part.redirections {
            self.redirection(redirection, place, reasons);
        }
        // A shell that only reads a line is as good as the line.
        if let Runs::Text { text, is_shell: true, at } = runs(&part.words)
            && is_known_shell(&part.words[0].text)
        {
            let shell = Seen { commands: vec![texts(&part.words)], ..Seen::default() };
            self.against(&part.words, &shell, &part.text, reasons);
            // A login shell reads the user's own files first, which may go elsewhere.
            let has_moved = place.has_moved || is_login(&part.words[..at]);
            let inner = Place { depth: place.depth + 1, has_moved, ..place };
            return self.line(&text, inner, is_allowed, reasons);
        }
        self.inner_variables(&part.words, reasons);
        self.arguments(&part.words, place, is_allowed, reasons);
        let mut seen = Seen::default();
        seen.collect(&part.words, place.depth);
        self.executed(|is_it| seen.runs(is_it), &part.text, reasons);
        let is_ruled = self.against(&part.words, &seen, &part.text, reasons);
        if is_ruled || is_allowed {
            return;
        }
        let may_be_ruled = |rule: &Rule| match &rule.spec().matcher {
            Matcher::Command(prefix) => rule.effect() != Effect::Allow && seen.may_have(prefix),
            _ => false,
        };
        if self.policy.live(self.kind, self.context).any(|(_, rule)| may_be_ruled(rule)) {
            reasons.push(Reason::law(Effect::Ask, Law::Incomparable).of(&part.text));
        }
        let guarded = self.policy.preset.guarded(self.kind);
        let reason = match self.covering(&part.words, place) {
            Cover::By(reason) => reason,
            Cover::Moves => Reason::law(Effect::Allow, Law::Moves),
            Cover::Partly if self.is_free => self.policy.by_preset(self.kind),
            Cover::Partly if part.words.first().is_some_and(|word| moves(&word.text)) => {
                Reason::law(guarded, Law::RunsOutside)
            }
            Cover::Partly => Reason::law(guarded, Law::RunsOther),
            Cover::None => self.policy.by_preset(self.kind),
        };
        reasons.push(reason.of(&part.text));
    }

    /// Adds the files that a command may execute though an agent wrote them unasked. What may run arbitrary code may run
    /// these.
    fn executed(&self, runs: impl Fn(&dyn Fn(&str) -> bool) -> bool, text: &str, reasons: &mut Vec<Reason>) {
        if self.is_free {
            return;
        }
        let guarded = self.policy.preset.guarded(self.kind);
        for file in self.unreviewed.iter().filter(|file| runs(&|program: &str| executes(program, file))) {
            // Before all else that asks: it is what the person has to know.
            reasons.insert(0, Reason::law(guarded, Law::Unreviewed(file.clone())).of(text));
        }
    }

    /// Adds what denies or asks about a command, or about what it runs, and says whether a rule speaks of the command
    /// itself, so that the preset does not.
    fn against(&self, words: &[Word], seen: &Seen, text: &str, reasons: &mut Vec<Reason>) -> bool {
        let mut speaks = false;
        for (index, rule) in
            self.policy.live(self.kind, self.context).filter(|(_, rule)| rule.effect() != Effect::Allow)
        {
            let (hit, surely) = match &rule.spec().matcher {
                Matcher::Everything => (true, true),
                Matcher::Command(prefix) => (seen.has(prefix), is_prefix(prefix, words)),
                _ => (false, false),
            };
            if hit {
                speaks |= surely || rule.effect() == Effect::Deny;
                reasons.push(because(index, rule).of(text));
            }
        }
        speaks
    }

    /// Returns what allows a command.
    fn covering(&self, words: &[Word], place: Place<'_>) -> Cover {
        let reach = self.reach(words, place);
        // What the command runs is judged once, however many rules speak of the command.
        let mut is_inner_allowed = None;
        let mut partly = false;
        let allowing =
            self.policy.live(self.kind, self.context).filter(|(_, rule)| rule.effect() == Effect::Allow);
        for (index, rule) in allowing {
            match &rule.spec().matcher {
                Matcher::Everything => return Cover::By(because(index, rule)),
                Matcher::Command(prefix) if is_prefix(prefix, words) => {
                    let covers = prefix.len() >= reach
                        || *is_inner_allowed.get_or_insert_with(|| self.allows_inner(words, place));
                    if covers {
                        return Cover::By(because(index, rule));
                    }
                    partly = true;
                }
                _ => {}
            }
        }
        match self.change_of_directory(words, place) {
            _ if partly => Cover::Partly,
            Some(true) if self.policy.preset.effect(self.kind) != Effect::Deny => Cover::Moves,
            _ => Cover::None,
        }
    }

    /// Returns how many words a rule needs to speak of all that a command runs.
    fn reach(&self, words: &[Word], place: Place<'_>) -> usize {
        match (self.change_of_directory(words, place), runs(words)) {
            (Some(false), _) => usize::MAX,
            (Some(true), _) | (None, Runs::Itself) => 1,
            (None, Runs::Hidden { reach }) => reach,
            (None, Runs::Text { at, .. }) => at + 1,
            (None, Runs::Words { at, .. }) if place.depth < MAX_DEPTH => {
                at.saturating_add(self.reach(&words[at..], place.deeper()))
            }
            (None, Runs::Words { .. }) => usize::MAX,
        }
    }

    /// Says whether what a command runs is allowed by itself.
    fn allows_inner(&self, words: &[Word], place: Place<'_>) -> bool {
        let may_look = place.depth < MAX_DEPTH;
        match runs(words) {
            Runs::Words { at, .. } if may_look => {
                matches!(self.covering(&words[at..], place.deeper()), Cover::By(_) | Cover::Moves)
            }
            Runs::Text { text, .. } if may_look => self.allows_text(&text, place.deeper()),
            _ => false,
        }
    }

    fn allows_text(&self, text: &str, place: Place<'_>) -> bool {
        let mut reasons = Vec::new();
        self.line(text, place, false, &mut reasons);
        reasons.iter().all(|reason| reason.effect == Effect::Allow)
    }

    /// Says whether a command changes to a directory of the workspace; nothing if it is no change of directory.
    fn change_of_directory(&self, words: &[Word], place: Place<'_>) -> Option<bool> {
        if !moves(&words.first()?.text) {
            return None;
        }
        let Some(target) = destination(words) else { return Some(false) };
        let is_plain = !place.has_moved || target.text.starts_with('/');
        let path = locate(&self.command.cwd, &target.text).filter(|_| is_steady(&target.text));
        let leads = path.as_ref().and_then(|path| self.leads(path, paths::Access::Read));
        let is_inside = matches!(leads, Some(Leads::Inside { resolved, .. }) if self.is_inside(resolved));
        Some(is_plain && is_inside)
    }

    /// Adds the variables that the wrappers of a command set.
    fn inner_variables(&self, mut words: &[Word], reasons: &mut Vec<Reason>) {
        while let Runs::Words { at, assignments } = runs(words) {
            for (name, value) in &assignments {
                self.variable(name, &value.text, reasons);
            }
            words = &words[at..];
        }
    }

    /// Adds what is to be said of a variable: by rules that name it, or by what it does. No other rule allows it.
    fn variable(&self, name: &str, value: &str, reasons: &mut Vec<Reason>) {
        let rules = self.policy.live(self.kind, self.context);
        let mut is_allowed = false;
        for (index, rule) in rules.filter(|(_, rule)| rule.covers_variable(name)) {
            is_allowed |= rule.effect() == Effect::Allow;
            reasons.push(because(index, rule).of(name));
        }
        let guarded = self.policy.preset.guarded(self.kind);
        match environment(name, value) {
            _ if is_allowed => {}
            EnvironmentRisk::RunsCode(how) => reasons.push(Reason::law(guarded, Law::RunsCode(how)).of(name)),
            EnvironmentRisk::Unknown if !self.is_free => {
                reasons.push(Reason::law(guarded, Law::UnknownVariable).of(name));
            }
            EnvironmentRisk::Unknown | EnvironmentRisk::Harmless => {}
        }
    }

    /// Judges a line that cannot be taken apart.
    fn unparsed(&self, line: &str, why: &str, is_allowed: bool, reasons: &mut Vec<Reason>) {
        let policy = self.policy;
        let guarded = policy.preset.guarded(self.kind);
        let mut has_narrower = false;
        let tokens = Tokens::of(line);
        for (index, rule) in policy.live(self.kind, self.context) {
            match &rule.spec().matcher {
                Matcher::Command(prefix) if rule.effect() != Effect::Allow => {
                    has_narrower = true;
                    if tokens.mention(prefix) {
                        reasons.push(because(index, rule).of(line));
                    }
                }
                Matcher::Everything => reasons.push(because(index, rule).of(line)),
                _ => {}
            }
        }
        self.seen(line, reasons);
        self.executed(|is_it| tokens.runs(is_it), line, reasons);
        let law = |effect| Reason::law(effect, Law::Unparsed(why.to_owned())).of(line);
        match (is_allowed, self.is_free, has_narrower) {
            (true, ..) => {}
            (false, true, false) => reasons.push(law(Effect::Allow)),
            (false, true, true) => {
                reasons.push(Reason::law(Effect::Ask, Law::Incomparable).of(line));
                reasons.push(law(Effect::Ask));
            }
            (false, false, _) => reasons.push(law(guarded)),
        }
    }

    /// Adds what can be seen in a line that cannot be taken apart: variables that run code, writes to protected names.
    fn seen(&self, line: &str, reasons: &mut Vec<Reason>) {
        let line = without_quotes(line);
        for word in line.split(is_boundary) {
            let Some((name, value)) = word.split_once('=') else { continue };
            let name = name.trim_end_matches('+');
            let is_ruled = || self.policy.rules.iter().any(|rule| rule.covers_variable(name));
            // What is not known to run code is most often no variable at all.
            let is_known = matches!(environment(name, value), EnvironmentRisk::RunsCode(_)) || is_ruled();
            if is_known && shell::is_name(name) {
                self.variable(name, value, reasons);
            }
        }
        let mut files = HashSet::new();
        let redirected = redirections(&line).map(|(access, target)| (access, target.to_owned()));
        for (access, target) in redirected.chain(guessed_arguments(&line)) {
            if !files.insert((access, target.clone())) {
                continue;
            }
            let target = target.as_str();
            // Past the cap nothing is looked at, so that nothing that a rule denies gets lost in a crowd.
            if files.len() > MAX_FILES {
                let why = format!("names more than {MAX_FILES} files");
                reasons.push(Reason::law(Effect::Deny, Law::Unparsed(why)));
                return;
            }
            let mut found = self.file(&self.command.cwd, access, target);
            found.retain(|reason| reason.effect != Effect::Allow && is_guard(reason));
            reasons.extend(found.into_iter().map(|reason| reason.of(target)));
        }
    }
}

/// Says whether a reason is a rule, or a name that is guarded whatever runs.
fn is_guard(reason: &Reason) -> bool {
    matches!(reason.ground, Ground::Rule { .. } | Ground::Law(Law::Protected(_)))
}

/// What allows a command.
enum Cover {
    /// A rule, all of it.
    By(Reason),
    /// It only changes to a directory of the workspace.
    Moves,
    /// A rule, but not what it runs.
    Partly,
    /// Nothing.
    None,
}

/// Says whether a command may change the directory for those after it.
pub(super) fn may_move(mut words: &[Word]) -> bool {
    loop {
        match runs(words) {
            Runs::Itself => return words.first().is_some_and(|word| moves(&word.text)),
            Runs::Words { at, .. } => words = &words[at..],
            Runs::Text { is_shell, .. } => return !is_shell,
            Runs::Hidden { .. } => return true,
        }
    }
}
