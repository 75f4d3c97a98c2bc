//! Evaluation of commands: each part of a line by itself, and the commands that its parts run.

use std::collections::HashSet;

use super::environment::{EnvironmentRisk, assess_variable};
use super::executed_files::may_execute;
use super::shell::{self, ShellParseError, ShellWord, SimpleCommand};
use super::targets::{
    MAX_TARGETS, add_possible_directories, cd_target, guess_file_arguments, guess_redirections, is_cd,
    is_lexically_stable, lexical_path_in,
};
use super::visible_commands::{
    LooseTokens, MAX_DEPTH, VisibleCommands, has_literal_prefix, is_word_boundary, strip_quotes,
};
use super::wrappers::{InnerCommand, base_name, inner_command, is_login_shell, is_system_shell};
use super::{
    BuiltInRule, Effect, Policy, PolicyContext, PolicyReason, Preset, ReasonBasis, Rule, RuleMatcher,
    rule_reason,
};
use crate::operation::{CommandSpec, OperationKind, PathResolution};
use crate::paths;
use bowline_protocol::terminal::Invocation;

mod files;

/// Returns a canonical form; two commands with equal forms surely do the same. A single command of plain words
/// becomes its words, regardless of the shell it was wrapped in; any other line becomes its text, without a shell
/// that only reads it.
#[must_use]
pub fn canonical_invocation(invocation: &Invocation) -> Invocation {
    let mut current = invocation.clone();
    // Each iteration extracts a shorter text from a longer one, so the loop ends.
    loop {
        let words = match &current {
            Invocation::Argv(words) => literal_words(words),
            Invocation::Shell(line) => match parse_plain_command(line) {
                Some(words) => words,
                None => return Invocation::Shell(trim_line(line).to_owned()),
            },
        };
        match inner_command(&words) {
            InnerCommand::Text { text, is_shell: true, at }
                if at + 1 == words.len()
                    && is_system_shell(&words[0].text)
                    && is_transparent(&words[..at], &text) =>
            {
                current = Invocation::Shell(text);
            }
            _ => return Invocation::Argv(words.into_iter().map(|word| word.text).collect()),
        }
    }
}

/// Texts that refer to the directory before a `cd`.
const PREVIOUS_DIRECTORY_MARKERS: [&str; 3] = ["OLDPWD", "cd -", "~-"];

/// Returns the canonical form of a command run in a directory: without a leading `cd` to that directory, which
/// kimi-code adds to every command.
#[must_use]
pub fn canonical_invocation_in(invocation: &Invocation, cwd: &str) -> Invocation {
    let form = canonical_invocation(invocation);
    let rest = match &form {
        Invocation::Shell(line) if is_plain_path(cwd) => {
            let prefixes = [format!("cd '{cwd}' && "), format!("cd {cwd} && ")];
            prefixes.iter().find_map(|prefix| line.strip_prefix(prefix.as_str()))
        }
        _ => None,
    };
    let rest = rest.filter(|rest| !PREVIOUS_DIRECTORY_MARKERS.iter().any(|marker| rest.contains(marker)));
    rest.map(|rest| canonical_invocation(&Invocation::Shell(rest.to_owned()))).unwrap_or(form)
}

/// Returns whether a shell reads a path as itself, quoted or not.
fn is_plain_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@".contains(&byte);
    path.starts_with('/') && path.bytes().all(is_plain)
}

/// Returns whether a line does the same with and without the shell that these words run it in.
fn is_transparent(shell: &[ShellWord], line: &str) -> bool {
    // A single command of plain words cannot be cut short by `-e`, and every shell finds the same words in it.
    if parse_plain_command(line).is_some() {
        return true;
    }
    // A login shell reads the user's own files first, which no agent reaches; agents use one for most commands.
    let is_bare = matches!(shell, [_, option] if matches!(option.text.as_str(), "-c" | "-lc"));
    // Shells differ on patterns without a match and on everything the recogniser refuses.
    let is_common = || match base_name(&shell[0].text).as_str() {
        "sh" => true,
        "zsh" => false,
        _ => shell::parse(line).is_ok(),
    };
    is_bare && is_common()
}

/// Returns a line without surrounding blanks, but keeps an escaped blank at its end.
fn trim_line(line: &str) -> &str {
    let line = line.trim_start_matches([' ', '\t', '\n']);
    let end = line.trim_end_matches([' ', '\t', '\n']);
    if end.ends_with('\\') { line } else { end }
}

/// Returns the words of a line that consists of one command of plain words.
fn parse_plain_command(line: &str) -> Option<Vec<ShellWord>> {
    let mut commands = shell::parse(line).ok()?.commands;
    let only = commands.pop().filter(|_| commands.is_empty())?;
    // A background command differs from the same words in the foreground.
    let ampersands = |text: &str| text.matches('&').count();
    let in_words: usize = only.words.iter().map(|word| ampersands(&word.text)).sum();
    let is_plain = ampersands(line) == in_words
        && only.assignments.is_empty()
        && only.redirections.is_empty()
        && !only.words.is_empty()
        && only.words.iter().all(|word| word.is_literal);
    is_plain.then_some(only.words)
}

fn literal_words(words: &[String]) -> Vec<ShellWord> {
    words.iter().map(|word| ShellWord { text: word.clone(), is_literal: true }).collect()
}

/// Evaluates a command.
pub(super) fn evaluate_command(
    policy: &Policy,
    kind: OperationKind,
    command: &CommandSpec,
    context: &PolicyContext,
) -> Vec<PolicyReason> {
    let evaluator = CommandEvaluator {
        policy,
        context,
        kind,
        command,
        canonical: canonical_invocation(&command.invocation),
        allows_arbitrary_code: policy.allows_arbitrary_code(kind, context),
        unreviewed_files: policy.unreviewed_for_command(command, context),
    };
    evaluator.evaluate()
}

impl Policy {
    /// Returns whether arbitrary code may run: by a catch-all rule, or by the preset.
    fn allows_arbitrary_code(&self, kind: OperationKind, context: &PolicyContext) -> bool {
        self.preset == Preset::Full
            || self.catch_all_reasons(kind, context).iter().any(|reason| reason.effect == Effect::Allow)
    }
}

struct CommandEvaluator<'p> {
    policy: &'p Policy,
    context: &'p PolicyContext,
    kind: OperationKind,
    command: &'p CommandSpec,
    canonical: Invocation,
    allows_arbitrary_code: bool,
    // Files that it must not execute without approval.
    unreviewed_files: Vec<String>,
}

/// The position of a part within a line.
#[derive(Clone, Copy, Default)]
struct CommandPosition<'d> {
    // The number of enclosing commands.
    depth: usize,
    // Whether an earlier part may have changed the directory.
    may_have_moved: bool,
    // The directories that it may run in; empty if that is only the command's own.
    directories: &'d [String],
}

impl CommandPosition<'_> {
    /// Returns the position of a command that this one runs. Its directory is assumed unknown.
    fn nested(self) -> Self {
        Self { depth: self.depth + 1, may_have_moved: true, ..self }
    }
}

impl CommandEvaluator<'_> {
    fn evaluate(&self) -> Vec<PolicyReason> {
        let mut reasons = Vec::new();
        for (name, value) in &self.command.env {
            self.evaluate_variable(name, value, &mut reasons);
        }
        if !self.policy.roots.is_empty() && !self.is_inside_roots(&self.command.cwd) {
            reasons.push(
                PolicyReason::built_in(
                    self.policy.preset.guarded_effect(self.kind),
                    BuiltInRule::RunsOutsideWorkspace,
                )
                .with_subject(&self.command.cwd),
            );
        }
        // A rule against exactly this command, or for the whole of it.
        let mut is_allowed = false;
        for (index, rule) in self.policy.active_rules(self.kind, self.context) {
            if matches!(&rule.spec().matcher, RuleMatcher::Exact(exact) if *exact == self.canonical) {
                is_allowed |= rule.effect() == Effect::Allow;
                reasons.push(rule_reason(index, rule));
            }
        }
        match &self.command.invocation {
            Invocation::Argv(words) => {
                let text = words.join(" ");
                if words.len() > shell::MAX_WORDS {
                    let error = ShellParseError::TooManyWords.to_string();
                    self.evaluate_unparsed(&text, &error, is_allowed, &mut reasons);
                } else {
                    let part =
                        SimpleCommand { words: literal_words(words), text, ..SimpleCommand::default() };
                    self.evaluate_simple_command(&part, CommandPosition::default(), is_allowed, &mut reasons);
                }
            }
            Invocation::Shell(line) => {
                self.evaluate_line(line, CommandPosition::default(), is_allowed, &mut reasons)
            }
        }
        reasons
    }

    /// Evaluates a line, each command by itself.
    fn evaluate_line(
        &self,
        line: &str,
        mut position: CommandPosition<'_>,
        is_allowed: bool,
        reasons: &mut Vec<PolicyReason>,
    ) {
        let parsed = match shell::parse(line) {
            Ok(parsed) if position.depth < MAX_DEPTH => parsed,
            Ok(_) => {
                return self.evaluate_unparsed(
                    line,
                    "has commands in commands in commands",
                    is_allowed,
                    reasons,
                );
            }
            Err(error) => return self.evaluate_unparsed(line, &error.to_string(), is_allowed, reasons),
        };
        let mut directories = position.directories.to_vec();
        if directories.is_empty() {
            directories.push(self.command.cwd.clone());
        }
        for command in &parsed.commands {
            self.evaluate_simple_command(
                command,
                CommandPosition { directories: &directories, ..position },
                is_allowed,
                reasons,
            );
            let moves = may_change_directory(&command.words);
            add_possible_directories(&mut directories, &command.words, moves);
            position.may_have_moved |= moves;
        }
    }

    /// Evaluates one command of a line.
    fn evaluate_simple_command(
        &self,
        part: &SimpleCommand,
        position: CommandPosition<'_>,
        is_allowed: bool,
        reasons: &mut Vec<PolicyReason>,
    ) {
        for (name, value) in &part.assignments {
            self.evaluate_variable(name, &value.text, reasons);
        }
        for redirection in &part.redirections {
            self.evaluate_redirection(redirection, position, reasons);
        }
        // A shell that only reads a line is equivalent to the line.
        if let InnerCommand::Text { text, is_shell: true, at } = inner_command(&part.words)
            && is_system_shell(&part.words[0].text)
        {
            let shell = VisibleCommands { commands: vec![part.words.clone()], ..VisibleCommands::default() };
            self.add_restrictions(&part.words, &shell, &part.text, reasons);
            // A login shell reads the user's own files first, which may change the directory.
            let may_have_moved = position.may_have_moved || is_login_shell(&part.words[..at]);
            let inner = CommandPosition { depth: position.depth + 1, may_have_moved, ..position };
            return self.evaluate_line(&text, inner, is_allowed, reasons);
        }
        self.evaluate_wrapper_variables(&part.words, reasons);
        self.evaluate_arguments(&part.words, position, is_allowed, reasons);
        let mut visible = VisibleCommands::default();
        visible.collect(&part.words, position.depth);
        self.add_unreviewed_files(|is_program| visible.runs_program(is_program), &part.text, reasons);
        let is_ruled = self.add_restrictions(&part.words, &visible, &part.text, reasons);
        if is_ruled || is_allowed {
            return;
        }
        let may_be_ruled = |rule: &Rule| match &rule.spec().matcher {
            RuleMatcher::Command(prefix) => {
                rule.effect() != Effect::Allow && visible.may_match_prefix(prefix)
            }
            _ => false,
        };
        if self.policy.active_rules(self.kind, self.context).any(|(_, rule)| may_be_ruled(rule)) {
            reasons.push(
                PolicyReason::built_in(Effect::Ask, BuiltInRule::Incomparable).with_subject(&part.text),
            );
        }
        let guarded = self.policy.preset.guarded_effect(self.kind);
        let reason = match self.find_coverage(&part.words, position) {
            RuleCoverage::Full(reason) => reason,
            RuleCoverage::DirectoryChange => {
                PolicyReason::built_in(Effect::Allow, BuiltInRule::ChangesDirectory)
            }
            RuleCoverage::Partial if self.allows_arbitrary_code => self.policy.preset_reason(self.kind),
            RuleCoverage::Partial if part.words.first().is_some_and(|word| is_cd(&word.text)) => {
                PolicyReason::built_in(guarded, BuiltInRule::RunsOutsideWorkspace)
            }
            RuleCoverage::Partial => PolicyReason::built_in(guarded, BuiltInRule::RunsUncoveredCommand),
            RuleCoverage::None => self.policy.preset_reason(self.kind),
        };
        reasons.push(reason.with_subject(&part.text));
    }

    /// Adds the files that a command may execute although an agent wrote them without approval. Permission for
    /// arbitrary code covers them.
    fn add_unreviewed_files(
        &self,
        runs_program: impl Fn(&dyn Fn(&str) -> bool) -> bool,
        text: &str,
        reasons: &mut Vec<PolicyReason>,
    ) {
        if self.allows_arbitrary_code {
            return;
        }
        let guarded = self.policy.preset.guarded_effect(self.kind);
        for file in self
            .unreviewed_files
            .iter()
            .filter(|file| runs_program(&|program: &str| may_execute(program, file)))
        {
            // It goes before all other reasons to ask, because it is what the person needs to know.
            reasons.insert(
                0,
                PolicyReason::built_in(guarded, BuiltInRule::ExecutesUnreviewedFile(file.clone()))
                    .with_subject(text),
            );
        }
    }

    /// Adds the reasons that deny or ask about a command, or about what it runs. Returns whether a rule matches the
    /// command itself, so that the preset does not apply.
    fn add_restrictions(
        &self,
        words: &[ShellWord],
        visible: &VisibleCommands,
        text: &str,
        reasons: &mut Vec<PolicyReason>,
    ) -> bool {
        let mut is_ruled = false;
        for (index, rule) in self
            .policy
            .active_rules(self.kind, self.context)
            .filter(|(_, rule)| rule.effect() != Effect::Allow)
        {
            let (matches, is_certain) = match &rule.spec().matcher {
                RuleMatcher::Everything => (true, true),
                RuleMatcher::Command(prefix) => {
                    (visible.matches_prefix(prefix), has_literal_prefix(prefix, words))
                }
                _ => (false, false),
            };
            if matches {
                is_ruled |= is_certain || rule.effect() == Effect::Deny;
                reasons.push(rule_reason(index, rule).with_subject(text));
            }
        }
        is_ruled
    }

    /// Returns how far rules allow a command.
    fn find_coverage(&self, words: &[ShellWord], position: CommandPosition<'_>) -> RuleCoverage {
        let required_len = self.required_prefix_len(words, position);
        // The inner command is evaluated once, however many rules match the outer one.
        let mut is_inner_allowed = None;
        let mut is_partial = false;
        let allowing = self
            .policy
            .active_rules(self.kind, self.context)
            .filter(|(_, rule)| rule.effect() == Effect::Allow);
        for (index, rule) in allowing {
            match &rule.spec().matcher {
                RuleMatcher::Everything => return RuleCoverage::Full(rule_reason(index, rule)),
                RuleMatcher::Command(prefix) if has_literal_prefix(prefix, words) => {
                    let covers = prefix.len() >= required_len
                        || *is_inner_allowed
                            .get_or_insert_with(|| self.allows_inner_command(words, position));
                    if covers {
                        return RuleCoverage::Full(rule_reason(index, rule));
                    }
                    is_partial = true;
                }
                _ => {}
            }
        }
        match self.is_directory_change_inside(words, position) {
            _ if is_partial => RuleCoverage::Partial,
            Some(true) if self.policy.preset.effect(self.kind) != Effect::Deny => {
                RuleCoverage::DirectoryChange
            }
            _ => RuleCoverage::None,
        }
    }

    /// Returns the number of words that a rule needs to cover everything a command runs.
    fn required_prefix_len(&self, words: &[ShellWord], position: CommandPosition<'_>) -> usize {
        match (self.is_directory_change_inside(words, position), inner_command(words)) {
            (Some(false), _) => usize::MAX,
            (Some(true), _) | (None, InnerCommand::None) => 1,
            (None, InnerCommand::Hidden { min_prefix_len }) => min_prefix_len,
            (None, InnerCommand::Text { at, .. }) => at + 1,
            (None, InnerCommand::Words { at, .. }) if position.depth < MAX_DEPTH => {
                at.saturating_add(self.required_prefix_len(&words[at..], position.nested()))
            }
            (None, InnerCommand::Words { .. }) => usize::MAX,
        }
    }

    /// Returns whether the inner command is allowed by itself.
    fn allows_inner_command(&self, words: &[ShellWord], position: CommandPosition<'_>) -> bool {
        let may_descend = position.depth < MAX_DEPTH;
        match inner_command(words) {
            InnerCommand::Words { at, .. } if may_descend => {
                matches!(
                    self.find_coverage(&words[at..], position.nested()),
                    RuleCoverage::Full(_) | RuleCoverage::DirectoryChange
                )
            }
            InnerCommand::Text { text, .. } if may_descend => self.allows_text(&text, position.nested()),
            _ => false,
        }
    }

    fn allows_text(&self, text: &str, position: CommandPosition<'_>) -> bool {
        let mut reasons = Vec::new();
        self.evaluate_line(text, position, false, &mut reasons);
        reasons.iter().all(|reason| reason.effect == Effect::Allow)
    }

    /// Returns whether a command changes to a directory of the workspace; `None` if it does not change the directory.
    fn is_directory_change_inside(&self, words: &[ShellWord], position: CommandPosition<'_>) -> Option<bool> {
        if !is_cd(&words.first()?.text) {
            return None;
        }
        let Some(target) = cd_target(words) else { return Some(false) };
        let is_plain = !position.may_have_moved || target.text.starts_with('/');
        let path =
            lexical_path_in(&self.command.cwd, &target.text).filter(|_| is_lexically_stable(&target.text));
        let resolution = path.as_ref().and_then(|path| self.find_resolution(path, paths::Access::Read));
        let is_inside = matches!(resolution, Some(PathResolution::InsideRoot { resolved, .. }) if self.is_inside_roots(resolved));
        Some(is_plain && is_inside)
    }

    /// Adds the reasons about variables that a command's wrappers set.
    fn evaluate_wrapper_variables(&self, mut words: &[ShellWord], reasons: &mut Vec<PolicyReason>) {
        while let InnerCommand::Words { at, assignments } = inner_command(words) {
            for (name, value) in &assignments {
                self.evaluate_variable(name, &value.text, reasons);
            }
            words = &words[at..];
        }
    }

    /// Adds the reasons about a variable: from rules that name it, or from its known effect. No other rule allows it.
    fn evaluate_variable(&self, name: &str, value: &str, reasons: &mut Vec<PolicyReason>) {
        let rules = self.policy.active_rules(self.kind, self.context);
        let mut is_allowed = false;
        for (index, rule) in rules.filter(|(_, rule)| rule.covers_variable(name)) {
            is_allowed |= rule.effect() == Effect::Allow;
            reasons.push(rule_reason(index, rule).with_subject(name));
        }
        let guarded = self.policy.preset.guarded_effect(self.kind);
        match assess_variable(name, value) {
            _ if is_allowed => {}
            EnvironmentRisk::RunsCode(reason) => reasons.push(
                PolicyReason::built_in(guarded, BuiltInRule::CodeLoadingVariable(reason)).with_subject(name),
            ),
            EnvironmentRisk::Unknown if !self.allows_arbitrary_code => {
                reasons
                    .push(PolicyReason::built_in(guarded, BuiltInRule::UnknownVariable).with_subject(name));
            }
            EnvironmentRisk::Unknown | EnvironmentRisk::Harmless => {}
        }
    }

    /// Evaluates a line that cannot be parsed.
    fn evaluate_unparsed(&self, line: &str, reason: &str, is_allowed: bool, reasons: &mut Vec<PolicyReason>) {
        let policy = self.policy;
        let guarded = policy.preset.guarded_effect(self.kind);
        let mut has_narrower = false;
        let tokens = LooseTokens::from_text(line);
        for (index, rule) in policy.active_rules(self.kind, self.context) {
            match &rule.spec().matcher {
                RuleMatcher::Command(prefix) if rule.effect() != Effect::Allow => {
                    has_narrower = true;
                    if tokens.mention_prefix(prefix) {
                        reasons.push(rule_reason(index, rule).with_subject(line));
                    }
                }
                RuleMatcher::Everything => reasons.push(rule_reason(index, rule).with_subject(line)),
                _ => {}
            }
        }
        self.evaluate_visible_parts(line, reasons);
        self.add_unreviewed_files(|is_program| tokens.may_run_program(is_program), line, reasons);
        let unparsed = |effect| {
            PolicyReason::built_in(effect, BuiltInRule::UnparsedCommand(reason.to_owned())).with_subject(line)
        };
        match (is_allowed, self.allows_arbitrary_code, has_narrower) {
            (true, ..) => {}
            (false, true, false) => reasons.push(unparsed(Effect::Allow)),
            (false, true, true) => {
                reasons
                    .push(PolicyReason::built_in(Effect::Ask, BuiltInRule::Incomparable).with_subject(line));
                reasons.push(unparsed(Effect::Ask));
            }
            (false, false, _) => reasons.push(unparsed(guarded)),
        }
    }

    /// Adds the reasons visible in a line that cannot be parsed: variables that run code, writes to protected names.
    fn evaluate_visible_parts(&self, line: &str, reasons: &mut Vec<PolicyReason>) {
        let line = strip_quotes(line);
        for word in line.split(is_word_boundary) {
            let Some((name, value)) = word.split_once('=') else { continue };
            let name = name.trim_end_matches('+');
            let is_ruled = || self.policy.rules.iter().any(|rule| rule.covers_variable(name));
            // A name that is not known to run code is usually no variable at all.
            let is_known = matches!(assess_variable(name, value), EnvironmentRisk::RunsCode(_)) || is_ruled();
            if is_known && shell::is_variable_name(name) {
                self.evaluate_variable(name, value, reasons);
            }
        }
        let mut files = HashSet::new();
        let redirected = guess_redirections(&line).map(|(access, target)| (access, target.to_owned()));
        for (access, target) in redirected.chain(guess_file_arguments(&line)) {
            if !files.insert((access, target.clone())) {
                continue;
            }
            let target = target.as_str();
            // Past the cap the line is denied, so that a file that a rule denies cannot hide in a crowd.
            if files.len() > MAX_TARGETS {
                let reason = format!("names more than {MAX_TARGETS} files");
                reasons.push(PolicyReason::built_in(Effect::Deny, BuiltInRule::UnparsedCommand(reason)));
                return;
            }
            let mut found = self.evaluate_file_access(&self.command.cwd, access, target);
            found.retain(|reason| reason.effect != Effect::Allow && is_guard_reason(reason));
            reasons.extend(found.into_iter().map(|reason| reason.with_subject(target)));
        }
    }
}

/// Returns whether a reason is a rule or a protected path, which apply even where arbitrary code is allowed.
fn is_guard_reason(reason: &PolicyReason) -> bool {
    matches!(reason.basis, ReasonBasis::Rule { .. } | ReasonBasis::BuiltIn(BuiltInRule::ProtectedPath(_)))
}

/// How far rules allow a command.
enum RuleCoverage {
    /// A rule covers all of it.
    Full(PolicyReason),
    /// It only changes to a directory of the workspace.
    DirectoryChange,
    /// A rule covers the command, but not what it runs.
    Partial,
    /// No rule covers it.
    None,
}

/// Returns whether a command may change the directory for those after it.
pub(super) fn may_change_directory(mut words: &[ShellWord]) -> bool {
    loop {
        match inner_command(words) {
            InnerCommand::None => return words.first().is_some_and(|word| is_cd(&word.text)),
            InnerCommand::Words { at, .. } => words = &words[at..],
            InnerCommand::Text { is_shell, .. } => return !is_shell,
            InnerCommand::Hidden { .. } => return true,
        }
    }
}
