//! A Rust file as lines, with those marked that only a test build compiles.

use super::mask::{MaskedSource, mask};
use super::{RepoFile, RepoTree};

/// One Rust file.
#[derive(Debug)]
pub struct RustSource {
    /// The path relative to the root of the repository.
    pub path: String,
    /// Every line.
    pub lines: Vec<SourceLine>,
}

/// One line of a Rust file, in several views.
#[derive(Debug)]
pub struct SourceLine {
    /// The line number, counted from 1.
    pub number: usize,
    /// The line as written.
    pub text: String,
    /// The line without comments and without the contents of literals.
    pub code: String,
    /// The line without comments.
    pub plain: String,
    /// Whether only a test build compiles this line.
    pub is_test: bool,
}

impl RustSource {
    /// Reads every Rust file of a tree.
    pub fn read_all(tree: &RepoTree) -> Vec<Self> {
        let rust = tree.files.iter().filter(|file| file.path.ends_with(".rs"));
        let (mut sources, modules): (Vec<_>, Vec<_>) = rust.map(Self::read).unzip();
        let modules: Vec<String> = modules.into_iter().flatten().collect();
        for source in &mut sources {
            let stem = source.path.trim_end_matches(".rs");
            let below = |module: &String| {
                stem.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if modules.iter().any(below) {
                source.lines.iter_mut().for_each(|line| line.is_test = true);
            }
        }
        sources
    }

    /// Returns the lines that a release build compiles.
    pub fn production_lines(&self) -> impl Iterator<Item = &SourceLine> {
        self.lines.iter().filter(|line| !line.is_test)
    }

    /// Reads one file. Also returns its test-only modules in separate files, as paths without `.rs`.
    fn read(file: &RepoFile) -> (Self, Vec<String>) {
        let masked = mask(&file.text);
        let regions = test_regions(&masked);
        let whole = is_test_path(&file.path);
        let folder = module_folder(&file.path);
        let modules = regions
            .iter()
            .filter_map(|region| Some(format!("{folder}{}", region.module.as_ref()?)))
            .collect();
        let views = file.text.lines().zip(masked.code.lines()).zip(masked.plain.lines());
        let lines = views.enumerate().map(|(index, ((text, code), plain))| SourceLine {
            number: index + 1,
            text: text.to_owned(),
            code: code.to_owned(),
            plain: plain.to_owned(),
            is_test: whole || regions.iter().any(|region| (region.first..=region.last).contains(&index)),
        });
        (Self { path: file.path.clone(), lines: lines.collect() }, modules)
    }
}

/// Returns whether a file's path makes it a test. The peers are programs that tests start.
fn is_test_path(path: &str) -> bool {
    !path.starts_with("tests/peers/") && path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// Returns the folder of a file's submodules, ending in `/`.
fn module_folder(path: &str) -> String {
    let stem = path.trim_end_matches(".rs");
    let parent = stem.rsplit_once('/').map_or("", |(parent, _)| parent);
    match stem.rsplit('/').next() {
        Some("lib" | "main" | "mod") if parent.is_empty() => String::new(),
        Some("lib" | "main" | "mod") => format!("{parent}/"),
        _ => format!("{stem}/"),
    }
}

/// An item under `#[cfg(test)]`, as line indices, and its name if it is a module in a separate file.
struct TestRegion {
    first: usize,
    last: usize,
    module: Option<String>,
}

fn test_regions(masked: &MaskedSource) -> Vec<TestRegion> {
    let code = &masked.code;
    let line_of = |position: usize| code[..position].matches('\n').count();
    let mut regions: Vec<TestRegion> = Vec::new();
    for marker in ["#[cfg(test)]", "#[cfg(all(test,"] {
        for (start, _) in code.match_indices(marker) {
            let item = code[start..].find(']').map_or(code.len(), |length| start + length + 1);
            let end = item_end(code, item);
            let words: Vec<_> = code[item..end].split_whitespace().collect();
            let module = match words[..] {
                [.., "mod", name] => name.strip_suffix(';').map(str::to_owned),
                _ => None,
            };
            regions.push(TestRegion { first: line_of(start), last: line_of(end.saturating_sub(1)), module });
        }
    }
    regions
}

/// Returns where the item at `start` ends: after its block or its `;`.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0;
    let mut braces = 0;
    for (offset, char) in code[start..].char_indices() {
        let end = start + offset + 1;
        match char {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces <= 0 {
                    return end;
                }
            }
            ';' if depth == 0 && braces == 0 => return end,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use crate::tidy::fixture::repo;
    use expect_test::{Expect, expect};

    /// Marks each line of each file with `T` if it belongs to a test.
    fn check(fixture: &str, expected: Expect) {
        let mut out = String::new();
        for source in repo(fixture).sources {
            for line in source.lines {
                let mark = if line.is_test { 'T' } else { ' ' };
                out.push_str(format!("{} {mark} {}", source.path, line.text).trim_end());
                out.push('\n');
            }
        }
        expected.assert_eq(&out);
    }

    #[test]
    fn a_test_module_ends_with_its_brace() {
        check(
            r#"
//- src/a.rs
fn a() {}
#[cfg(test)]
mod tests {
    const X: &str = "}";
    fn t() {}
}
fn b() {}
"#,
            expect![[r#"
                src/a.rs   fn a() {}
                src/a.rs T #[cfg(test)]
                src/a.rs T mod tests {
                src/a.rs T     const X: &str = "}";
                src/a.rs T     fn t() {}
                src/a.rs T }
                src/a.rs   fn b() {}
            "#]],
        );
    }

    #[test]
    fn a_test_module_may_have_files_of_its_own() {
        check(
            "
//- src/a.rs
#[cfg(test)]
mod props;
mod propeller;
//- src/a/propeller.rs
fn a() {}
//- src/a/props.rs
fn b() {}
//- src/a/props/deep.rs
fn c() {}
//- src/lib.rs
#[cfg(all(test, unix))]
pub(crate) mod fixture;
//- src/fixture.rs
fn d() {}
",
            expect![[r#"
                src/a.rs T #[cfg(test)]
                src/a.rs T mod props;
                src/a.rs   mod propeller;
                src/a/propeller.rs   fn a() {}
                src/a/props.rs T fn b() {}
                src/a/props/deep.rs T fn c() {}
                src/lib.rs T #[cfg(all(test, unix))]
                src/lib.rs T pub(crate) mod fixture;
                src/fixture.rs T fn d() {}
            "#]],
        );
    }

    #[test]
    fn where_a_file_stands_makes_it_a_test() {
        check(
            "
//- crates/a/src/x/tests.rs
fn a() {}
//- crates/a/tests/it.rs
fn b() {}
//- tests/e2e/main.rs
fn c() {}
//- tests/peers/rust/src/agent.rs
fn d() {}
//- crates/a/src/contests.rs
fn e() {}
",
            expect![[r#"
                crates/a/src/x/tests.rs T fn a() {}
                crates/a/tests/it.rs T fn b() {}
                tests/e2e/main.rs T fn c() {}
                tests/peers/rust/src/agent.rs   fn d() {}
                crates/a/src/contests.rs   fn e() {}
            "#]],
        );
    }

    #[test]
    fn a_test_only_item_without_a_block_ends_with_its_semicolon() {
        check(
            "
//- src/a.rs
#[cfg(test)]
const SIZES: [u8; 2] = [1, 2];
#[cfg(test)]
fn two() -> [u8; 2] {
    SIZES
}
fn three() {}
",
            expect![[r#"
                src/a.rs T #[cfg(test)]
                src/a.rs T const SIZES: [u8; 2] = [1, 2];
                src/a.rs T #[cfg(test)]
                src/a.rs T fn two() -> [u8; 2] {
                src/a.rs T     SIZES
                src/a.rs T }
                src/a.rs   fn three() {}
            "#]],
        );
    }
}
