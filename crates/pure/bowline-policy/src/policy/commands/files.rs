//! Evaluation of the files that a command names, as if the agent itself read and wrote them.

use super::{CommandEvaluator, CommandPosition, is_guard_reason};
use crate::operation::{OperationKind, PathResolution};
use crate::paths::{self, LexicalPath, Protection, Root, RootMode, Roots};
use crate::policy::arguments::{FileArgument, file_arguments, writes_unnamed_files};
use crate::policy::shell::{Redirection, ShellWord};
use crate::policy::targets::{SINK_DEVICES, is_lexically_stable, lexical_path_in};
use crate::policy::visible_commands::{MAX_DEPTH, has_literal_prefix, word_texts};
use crate::policy::wrappers::{InnerCommand, inner_command};
use crate::policy::{BuiltInRule, Effect, PolicyReason, ReasonBasis, RuleMatcher};

impl CommandEvaluator<'_> {
    /// Evaluates a redirection as if the agent accessed the file itself.
    pub(super) fn evaluate_redirection(
        &self,
        redirection: &Redirection,
        position: CommandPosition<'_>,
        reasons: &mut Vec<PolicyReason>,
    ) {
        let target = &redirection.target;
        if target.is_literal && SINK_DEVICES.contains(&target.text.as_str()) {
            return;
        }
        let is_certain = target.is_literal && (!position.may_have_moved || target.text.starts_with('/'));
        let mut file = self.evaluate_file_access(&self.command.cwd, redirection.access.into(), &target.text);
        if self.allows_arbitrary_code {
            // Permission for arbitrary code covers writes, except to files that a rule or their name guards.
            file.retain(is_guard_reason);
        }
        reasons.extend(file.into_iter().map(|reason| reason.with_subject(&target.text)));
        if !is_certain && !self.allows_arbitrary_code {
            let effect = self.policy.preset.guarded_effect(self.kind);
            reasons.push(
                PolicyReason::built_in(effect, BuiltInRule::UncertainTarget).with_subject(&target.text),
            );
        }
    }

    /// Evaluates the files given to a plain command where the command's rule is not enough: where rules or built-in
    /// guards apply to them. A file that a rule names word for word is allowed by it.
    pub(super) fn evaluate_arguments(
        &self,
        words: &[ShellWord],
        position: CommandPosition<'_>,
        is_allowed: bool,
        reasons: &mut Vec<PolicyReason>,
    ) {
        let mut named = if is_allowed { usize::MAX } else { self.allowed_prefix_len(words) };
        let mut words = words;
        for _ in 0..=MAX_DEPTH {
            for argument in file_arguments(words) {
                self.evaluate_argument(&argument, position, argument.word_index < named, reasons);
            }
            if writes_unnamed_files(words) && !self.allows_arbitrary_code && named < words.len() {
                let effect = self.policy.preset.guarded_effect(self.kind);
                reasons.push(
                    PolicyReason::built_in(effect, BuiltInRule::UnnamedTargets)
                        .with_subject(&word_texts(words).join(" ")),
                );
            }
            let InnerCommand::Words { at, .. } = inner_command(words) else { return };
            words = &words[at..];
            named = named.saturating_sub(at);
        }
    }

    /// Returns the number of words of a command that its longest allowing rule names.
    fn allowed_prefix_len(&self, words: &[ShellWord]) -> usize {
        let allowing = self.policy.active_rules(self.kind, self.context).map(|(_, rule)| rule);
        let lengths =
            allowing.filter(|rule| rule.effect() == Effect::Allow).map(|rule| match &rule.spec().matcher {
                RuleMatcher::Command(prefix) if has_literal_prefix(prefix, words) => prefix.len(),
                _ => 0,
            });
        lengths.max().unwrap_or_default()
    }

    fn evaluate_argument(
        &self,
        argument: &FileArgument<'_>,
        position: CommandPosition<'_>,
        is_named: bool,
        reasons: &mut Vec<PolicyReason>,
    ) {
        let name = &*argument.name;
        let mut found = Vec::new();
        if !argument.is_literal && name.starts_with('~') {
            found.push(PolicyReason::built_in(
                self.policy.preset.guarded_effect(self.kind),
                BuiltInRule::OutsideWorkspace,
            ));
        } else {
            let cwd = std::slice::from_ref(&self.command.cwd);
            let directories = if position.directories.is_empty() { cwd } else { position.directories };
            for directory in directories {
                found.extend(self.evaluate_file_access(directory, argument.access, name));
            }
        }
        found.retain(|reason| {
            reason.effect != Effect::Allow && !matches!(reason.basis, ReasonBasis::Preset { .. })
        });
        if self.allows_arbitrary_code {
            found.retain(is_guard_reason);
        }
        if is_named {
            found.retain(|reason| matches!(reason.basis, ReasonBasis::Rule { .. }));
        }
        reasons.extend(found.into_iter().map(|reason| reason.with_subject(name)));
    }

    /// Evaluates a file that a shell opens, or that is given to a command, by its resolved location.
    pub(super) fn evaluate_file_access(
        &self,
        directory: &str,
        access: paths::Access,
        name: &str,
    ) -> Vec<PolicyReason> {
        let guarded = self.policy.preset.guarded_effect(self.kind);
        let kind = if access == paths::Access::Read { OperationKind::Read } else { OperationKind::Write };
        let uncertain = PolicyReason::built_in(guarded, BuiltInRule::UncertainTarget);
        let Some(path) = lexical_path_in(directory, name) else { return vec![uncertain] };
        let by_text = |rule: BuiltInRule| {
            let mut reasons = self.policy.evaluate_outside_path(kind, path.as_str(), self.context);
            // A command may write outside the workspace with a person's approval.
            reasons.retain(|reason| reason.basis != ReasonBasis::BuiltIn(BuiltInRule::OutsideWorkspace));
            reasons.push(PolicyReason::built_in(guarded, rule));
            let protection =
                self.find_protection(&path, access).unwrap_or_else(|| paths::find_protection(&path, access));
            reasons.extend(
                protection.map(|protection| {
                    PolicyReason::built_in(guarded, BuiltInRule::ProtectedPath(protection))
                }),
            );
            reasons
        };
        let mut reasons = match self.find_resolution(&path, access) {
            Some(PathResolution::InsideRoot { resolved, protection }) => {
                self.policy.evaluate_file(kind, path.as_str(), resolved, *protection, self.context)
            }
            Some(PathResolution::ReadOnlyRoot) => by_text(BuiltInRule::ReadOnlyRoot),
            Some(PathResolution::OutsideRoots) => by_text(BuiltInRule::OutsideWorkspace),
            None => by_text(BuiltInRule::UncertainTarget),
        };
        if !is_lexically_stable(name) {
            reasons.push(uncertain);
        }
        reasons
    }

    /// Returns the resolution of a name, if the engine looked it up.
    pub(super) fn find_resolution(
        &self,
        path: &LexicalPath,
        access: paths::Access,
    ) -> Option<&PathResolution> {
        let reaches = self.command.named_paths.iter();
        let found = reaches.filter(|reached| reached.requested == path.as_str() && reached.access == access);
        found.map(|reached| &reached.resolution).next()
    }

    pub(super) fn is_inside_roots(&self, path: &str) -> bool {
        self.policy.roots.iter().any(|root| paths::path_below(path, root).is_some())
    }

    /// Returns the protection of a file of the workspace; the outer `None` means that the file lies outside.
    fn find_protection(&self, path: &LexicalPath, access: paths::Access) -> Option<Option<Protection>> {
        let root =
            |root: &String| LexicalPath::parse(root).ok().map(|path| Root { path, mode: RootMode::Writable });
        let mut parsed = self.policy.roots.iter().filter_map(root);
        let mut roots = Roots::new(parsed.next()?);
        for root in parsed {
            roots.add(root).ok()?;
        }
        roots.admit(path, access).ok().map(|admitted| admitted.protection())
    }
}
