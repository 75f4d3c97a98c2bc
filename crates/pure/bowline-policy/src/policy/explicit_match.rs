//! Rules that name a protected file, as opposed to those that just happen to match it.

use super::rule::Rule;
use super::{Effect, RuleMatcher};
use crate::paths::{Access, PatternComponent, find_protected_components, path_below};

impl Rule {
    /// Returns whether it allows a protected file by name: the pattern contains every name that protects the file. A
    /// file protected for another reason, such as the link that led there, has to be named by its whole path.
    pub(super) fn names_path_explicitly(&self, path: &str, access: Access, roots: &[String]) -> bool {
        let RuleMatcher::Path(pattern) = &self.spec().matcher else { return false };
        if self.effect() != Effect::Allow || !self.covers_path(path, roots) {
            return false;
        }
        let names = parse_components(pattern);
        // Names above a root were chosen by the user.
        let innermost = roots.iter().filter_map(|root| path_below(path, root)).min_by_key(|rest| rest.len());
        let mut protecting =
            find_protected_components(innermost.unwrap_or(path), access).into_iter().peekable();
        if protecting.peek().is_none() {
            let trimmed = || pattern.strip_suffix('/').unwrap_or(pattern);
            let is_literal = names.iter().all(|name| name.suffix.is_none());
            let depth = if trimmed().starts_with('/') { path } else { innermost.unwrap_or(path) };
            return is_literal && names.len() == depth.split('/').filter(|name| !name.is_empty()).count();
        }
        let mut names = names.iter();
        protecting.all(|protected| names.any(|name| name.names_explicitly(protected)))
    }
}

/// Returns the components of a glob. A component wholly or partly in braces counts as a wildcard, because it may
/// stand for another.
fn parse_components(pattern: &str) -> Vec<PatternComponent> {
    let mut found = Vec::new();
    let mut name = PatternComponent::default();
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
        match (literal, &mut name.suffix) {
            (Some(literal), Some(end)) => end.push(literal),
            (Some(literal), None) => name.prefix.push(literal),
            (None, end) => *end = Some(String::new()),
        }
    }
    found.push(name);
    found.retain(|name| name.suffix.is_some() || !name.prefix.is_empty());
    found
}
