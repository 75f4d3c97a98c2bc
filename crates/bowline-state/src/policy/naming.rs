//! Which rules name a protected file, and do not just happen to match it.

use super::rule::{Rule, below};
use super::{Effect, Matcher};
use crate::paths::{Access, PatternName, protecting};

impl Rule {
    /// Says whether it allows a protected file by name: every name that protects it stands in the pattern. What is protected
    /// for another reason, as by the link that led there, is named by its whole path.
    pub(super) fn names_path(&self, path: &str, access: Access, roots: &[String]) -> bool {
        let Matcher::Path(pattern) = &self.spec().matcher else { return false };
        if self.effect() != Effect::Allow || !self.covers_path(path, roots) {
            return false;
        }
        let names = components(pattern);
        // What stands above a root was chosen by the user.
        let innermost = roots.iter().filter_map(|root| below(path, root)).min_by_key(|rest| rest.len());
        let mut protecting = protecting(innermost.unwrap_or(path), access).into_iter().peekable();
        if protecting.peek().is_none() {
            let whole = || pattern.strip_suffix('/').unwrap_or(pattern);
            let is_literal = names.iter().all(|name| name.end.is_none());
            let depth = if whole().starts_with('/') { path } else { innermost.unwrap_or(path) };
            return is_literal && names.len() == depth.split('/').filter(|name| !name.is_empty()).count();
        }
        let mut names = names.iter();
        protecting.all(|protected| names.any(|name| name.names(protected)))
    }
}

/// Returns the components of a glob. One that is in braces, or in part, counts as a wildcard: it may stand for another.
fn components(pattern: &str) -> Vec<PatternName> {
    let mut found = Vec::new();
    let mut name = PatternName::default();
    let mut braces = 0_usize;
    let mut in_class = false;
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let literal = match character {
            '\\' => characters.next(),
            '/' if braces == 0 && !in_class => {
                found.push(std::mem::take(&mut name));
                continue;
            }
            '[' | ']' => {
                in_class = character == '[';
                None
            }
            '{' => {
                braces += 1;
                None
            }
            '}' => {
                braces = braces.saturating_sub(1);
                None
            }
            '*' | '?' => None,
            literal => (braces == 0 && !in_class).then_some(literal),
        };
        match (literal, &mut name.end) {
            (Some(literal), Some(end)) => end.push(literal),
            (Some(literal), None) => name.start.push(literal),
            (None, end) => *end = Some(String::new()),
        }
    }
    found.push(name);
    found.retain(|name| name.end.is_some() || !name.start.is_empty());
    found
}
