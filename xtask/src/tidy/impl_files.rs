//! Where a type's methods stand: in few files, so that a reader finds them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Repo, TidyFinding};

/// The maximum number of files of a crate with inherent `impl` blocks of one type.
const MAX_FILES: usize = 3;

/// No type has inherent `impl` blocks in more than three files of its crate.
pub fn methods_stand_together(repo: &Repo) -> Vec<TidyFinding> {
    let mut files: BTreeMap<(&str, &str), BTreeSet<(&str, usize)>> = BTreeMap::new();
    for source in &repo.sources {
        let Some((package, _)) = source.path.split_once("/src/") else { continue };
        for line in source.production_lines() {
            let Some(name) = inherent_impl(&line.code) else { continue };
            let found = files.entry((package, name)).or_default();
            if !found.iter().any(|(path, _)| *path == source.path) {
                found.insert((&source.path, line.number));
            }
        }
    }
    let scattered = files.into_iter().filter(|(_, found)| found.len() > MAX_FILES);
    let findings = scattered.filter_map(|((_, name), found)| {
        let (path, line) = *found.last()?;
        let count = found.len();
        Some(TidyFinding::new(
            path,
            line,
            format!(
                "`{name}` has methods in {count} files, at most {MAX_FILES}: join them, or give the type a part of its own"
            ),
        ))
    });
    findings.collect()
}

/// Returns the type of a line that starts an inherent `impl` block.
fn inherent_impl(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(parameters) => after_parameters(parameters)?,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let end = rest.find(|char: char| !(char.is_alphanumeric() || char == '_')).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    (!name.is_empty() && !rest.starts_with("::") && !rest.contains(" for ")).then_some(name)
}

/// Returns what follows the `>` that closes a parameter list.
fn after_parameters(text: &str) -> Option<&str> {
    let mut depth = 1;
    for (at, char) in text.char_indices() {
        match char {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text.get(at + 1..);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{inherent_impl, methods_stand_together};
    use crate::tidy::fixture::check;
    use expect_test::expect;

    #[test]
    fn only_inherent_blocks_count() {
        let lines = [
            ("impl Engine {", Some("Engine")),
            ("impl<'a, T: Into<Vec<u8>>> Engine<'a, T> {", Some("Engine")),
            ("impl Engine", Some("Engine")),
            ("impl Drop for Engine {", None),
            ("impl<T> From<T> for Engine {", None),
            ("implement(Engine)", None),
            ("    impl Engine {", None),
        ];
        for (line, expected) in lines {
            assert_eq!(inherent_impl(line), expected, "{line}");
        }
    }

    #[test]
    fn four_files_are_too_many_in_one_crate() {
        check(
            "
//- crates/a/src/one.rs
impl Engine {}
impl Engine {}
impl Other {}
//- crates/a/src/two.rs
impl Engine {}
impl Other {}
//- crates/a/src/three.rs
impl<T> Engine<T> {}
impl Other {}
//- crates/a/src/four.rs

impl Engine {}
impl Clone for Other {}
//- crates/a/src/tests.rs
impl Other {}
//- crates/b/src/lib.rs
impl Other {}
",
            methods_stand_together,
            expect![[
                "crates/a/src/two.rs:1: `Engine` has methods in 4 files, at most 3: join them, or give the type a part of its own"
            ]],
        );
    }
}
