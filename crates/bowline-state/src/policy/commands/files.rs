//! The files that a command names, judged as if the agent itself read and wrote them.

use super::{Judge, Place, is_guard};
use crate::operation::{Kind, Leads};
use crate::paths::{self, LexicalPath, Protection, Root, RootMode, Roots};
use crate::policy::arguments::{Argument, arguments, writes_unseen};
use crate::policy::rule::below;
use crate::policy::seen::{MAX_DEPTH, is_prefix, texts};
use crate::policy::shell::{Redirection, Word};
use crate::policy::targets::{SINKS, is_steady, locate};
use crate::policy::wrappers::{Runs, runs};
use crate::policy::{Effect, Ground, Law, Matcher, Reason};

impl Judge<'_> {
    /// Judges what a shell does to a file for a command, as if the agent did it.
    pub(super) fn redirection(&self, redirection: &Redirection, place: Place<'_>, reasons: &mut Vec<Reason>) {
        let target = &redirection.target;
        if target.is_literal && SINKS.contains(&target.text.as_str()) {
            return;
        }
        let is_certain = target.is_literal && (!place.has_moved || target.text.starts_with('/'));
        let mut file = self.file(&self.command.cwd, redirection.access.into(), &target.text);
        if self.is_free {
            // What may run arbitrary code may write files, but for those that a rule or their name guards.
            file.retain(is_guard);
        }
        reasons.extend(file.into_iter().map(|reason| reason.of(&target.text)));
        if !is_certain && !self.is_free {
            let effect = self.policy.preset.guarded(self.kind);
            reasons.push(Reason::law(effect, Law::UncertainTarget).of(&target.text));
        }
    }

    /// Judges what a plain command does to the files that it is given, as far as that needs more than the command's rule:
    /// where rules or laws speak of them. What a rule names word for word is allowed by it.
    pub(super) fn arguments(
        &self,
        words: &[Word],
        place: Place<'_>,
        is_allowed: bool,
        reasons: &mut Vec<Reason>,
    ) {
        let mut named = if is_allowed { usize::MAX } else { self.named_words(words) };
        let mut words = words;
        for _ in 0..=MAX_DEPTH {
            for argument in arguments(words) {
                self.argument(&argument, place, argument.at < named, reasons);
            }
            if writes_unseen(words) && !self.is_free && named < words.len() {
                let effect = self.policy.preset.guarded(self.kind);
                reasons.push(Reason::law(effect, Law::UnseenTargets).of(&texts(words).join(" ")));
            }
            let Runs::Words { at, .. } = runs(words) else { return };
            words = &words[at..];
            named = named.saturating_sub(at);
        }
    }

    /// Returns how many words of a command stand in the longest rule that allows it.
    fn named_words(&self, words: &[Word]) -> usize {
        let allowing = self.policy.live(self.kind, self.context).map(|(_, rule)| rule);
        let lengths =
            allowing.filter(|rule| rule.effect() == Effect::Allow).map(|rule| match &rule.spec().matcher {
                Matcher::Command(prefix) if is_prefix(prefix, words) => prefix.len(),
                _ => 0,
            });
        lengths.max().unwrap_or_default()
    }

    fn argument(&self, argument: &Argument<'_>, place: Place<'_>, is_named: bool, reasons: &mut Vec<Reason>) {
        let name = &*argument.name;
        let mut found = Vec::new();
        if !argument.is_literal && name.starts_with('~') {
            found.push(Reason::law(self.policy.preset.guarded(self.kind), Law::Outside));
        } else {
            let own = std::slice::from_ref(&self.command.cwd);
            let directories = if place.directories.is_empty() { own } else { place.directories };
            for directory in directories {
                found.extend(self.file(directory, argument.access, name));
            }
        }
        found.retain(|reason| {
            reason.effect != Effect::Allow && !matches!(reason.ground, Ground::Preset { .. })
        });
        if self.is_free {
            found.retain(is_guard);
        }
        if is_named {
            found.retain(|reason| matches!(reason.ground, Ground::Rule { .. }));
        }
        reasons.extend(found.into_iter().map(|reason| reason.of(name)));
    }

    /// Judges a file that a shell opens, or that a command is given, by where it leads.
    pub(super) fn file(&self, directory: &str, access: paths::Access, name: &str) -> Vec<Reason> {
        let guarded = self.policy.preset.guarded(self.kind);
        let kind = if access == paths::Access::Read { Kind::Read } else { Kind::Write };
        let uncertain = Reason::law(guarded, Law::UncertainTarget);
        let Some(path) = locate(directory, name) else { return vec![uncertain] };
        let by_text = |law: Law| {
            let mut reasons = self.policy.judge_elsewhere(kind, path.as_str(), self.context);
            // A command may write outside, if a person says so.
            reasons.retain(|reason| reason.ground != Ground::Law(Law::Outside));
            reasons.push(Reason::law(guarded, law));
            let protection = self.admit(&path, access).unwrap_or_else(|| paths::protected(&path, access));
            reasons.extend(protection.map(|protection| Reason::law(guarded, Law::Protected(protection))));
            reasons
        };
        let mut reasons = match self.leads(&path, access) {
            Some(Leads::Inside { resolved, protection }) => {
                self.policy.judge_file(kind, path.as_str(), resolved, *protection, self.context)
            }
            Some(Leads::ReadOnly) => by_text(Law::ReadOnly),
            Some(Leads::Elsewhere) => by_text(Law::Outside),
            None => by_text(Law::UncertainTarget),
        };
        if !is_steady(name) {
            reasons.push(uncertain);
        }
        reasons
    }

    /// Returns where a name leads, if somebody looked.
    pub(super) fn leads(&self, path: &LexicalPath, access: paths::Access) -> Option<&Leads> {
        let reaches = self.command.reaches.iter();
        let found = reaches.filter(|reached| reached.asked == path.as_str() && reached.access == access);
        found.map(|reached| &reached.leads).next()
    }

    pub(super) fn is_inside(&self, path: &str) -> bool {
        self.policy.roots.iter().any(|root| below(path, root).is_some())
    }

    /// Returns what protects a file of the workspace; nothing if it is none.
    fn admit(&self, path: &LexicalPath, access: paths::Access) -> Option<Option<Protection>> {
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
