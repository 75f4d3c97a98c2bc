//! Module documentation: a file states its subject on the first line, and is not named `mod.rs`.

use super::{Repo, TidyFinding};

/// Every Rust file starts with a `//!` line.
pub fn every_file_starts_with_its_subject(repo: &Repo) -> Vec<TidyFinding> {
    let undocumented = repo.sources.iter().filter(|source| {
        let subject = source.lines.first().and_then(|line| line.text.strip_prefix("//!"));
        subject.is_none_or(|subject| subject.trim().is_empty())
    });
    undocumented
        .map(|s| TidyFinding::new(&s.path, 1, "start the file with its subject: `//! …` on line 1"))
        .collect()
}

/// A module's file is named after it.
pub fn no_mod_rs(repo: &Repo) -> Vec<TidyFinding> {
    let named_mod = repo.sources.iter().filter(|s| s.path == "mod.rs" || s.path.ends_with("/mod.rs"));
    named_mod
        .map(|s| {
            TidyFinding::new(&s.path, 1, "name the file after its module: `thing.rs`, not `thing/mod.rs`")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{every_file_starts_with_its_subject, no_mod_rs};
    use crate::tidy::fixture::check;
    use expect_test::expect;

    #[test]
    fn the_subject_is_on_the_first_line() {
        check(
            "
//- src/good.rs
//! The good.
//- src/late.rs

//! Too late.
//- src/outer.rs
/// Of the next item.
//- src/hollow.rs
//!
//- src/empty.rs
",
            every_file_starts_with_its_subject,
            expect![[r#"
                src/late.rs:1: start the file with its subject: `//! …` on line 1
                src/outer.rs:1: start the file with its subject: `//! …` on line 1
                src/hollow.rs:1: start the file with its subject: `//! …` on line 1
                src/empty.rs:1: start the file with its subject: `//! …` on line 1"#]],
        );
    }

    #[test]
    fn a_module_has_the_name_of_its_file() {
        check(
            "
//- src/thing/mod.rs
//- src/commod.rs
",
            no_mod_rs,
            expect!["src/thing/mod.rs:1: name the file after its module: `thing.rs`, not `thing/mod.rs`"],
        );
    }
}
