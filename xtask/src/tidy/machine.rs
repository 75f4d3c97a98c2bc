//! Private details: no published file names the machine or the network that it was written on.

use super::{Repo, RustSource, TidyFinding};

/// The parent directories of home directories. Any user's home counts, except the placeholder's.
const HOMES: [&str; 2] = ["home", "Users"];

/// The user name in examples of the protocol's documentation.
const PLACEHOLDER_USER: &str = "user";

/// Hosts of package registries, which depend on the build environment. Each is split in two, so that this file passes
/// its own rule.
const REGISTRIES: [&str; 5] = [
    concat!("index", ".crates.io"),
    concat!("static", ".crates.io"),
    concat!("pypi", ".org"),
    concat!("files.python", "hosted.org"),
    concat!("registry", ".npmjs.org"),
];

/// No text file names a registry's host, and only test data names a home directory.
pub fn nothing_names_a_machine(repo: &Repo) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in &repo.tree.files {
        let source = repo.sources.iter().find(|source| source.path == file.path);
        for (index, line) in file.text.lines().enumerate() {
            if let Some(host) = REGISTRIES.iter().find(|host| line.contains(*host)) {
                let advice =
                    format!("`{host}` depends on who builds: leave the registry to the tool's configuration");
                findings.push(TidyFinding::new(&file.path, index + 1, advice));
            }
            if let Some(folder) = private_folder(line).filter(|_| !is_test_data(&file.path, source, index)) {
                let advice = format!(
                    "`{folder}` is a path on a specific machine: use a relative path or a temporary folder"
                );
                findings.push(TidyFinding::new(&file.path, index + 1, advice));
            }
        }
    }
    findings
}

fn is_test_data(path: &str, source: Option<&RustSource>, index: usize) -> bool {
    match source {
        Some(source) => source.lines[index].is_test,
        None => path.split('/').any(|part| part == "tests") && !path.starts_with("tests/peers/"),
    }
}

/// Returns the first absolute path in `line` that starts in a home directory, cut after the revealing part.
fn private_folder(line: &str) -> Option<&str> {
    line.match_indices('/').find_map(|(at, _)| {
        // A slash in the middle of a relative path or a URL does not start an absolute path.
        if line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-./~}".contains(c)) {
            return None;
        }
        let rest = &line[at + 1..];
        let (first, below) = rest.split_once('/')?;
        let (user, _) = below.split_once('/').filter(|_| HOMES.contains(&first))?;
        let named = user != PLACEHOLDER_USER
            && !user.is_empty()
            && user.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
        named.then(|| &line[at..at + first.len() + user.len() + 3])
    })
}

#[cfg(test)]
mod tests {
    use super::{REGISTRIES, nothing_names_a_machine};
    use crate::tidy::fixture::{check, repo};
    use expect_test::expect;

    #[test]
    fn a_home_path_is_found() {
        check(
            "
//- notes.md
run /home/me/bin/x and (/Users/me/x)
but src/home/a/b.rs, https://host/home/a/, $ROOT/home/a/, /home/user/project/, /home/<user>/ and /homes/a/b are fine
//- src/a.rs
const HERE: &str = \"/Users/me/x\";
#[cfg(test)]
mod tests {
    const THERE: &str = \"/home/me/x\";
}
//- tests/data/session.jsonl
{\"path\":\"/home/me/x\"}
//- tests/peers/python/agent.py
open('/home/me/log')
",
            nothing_names_a_machine,
            expect![[r#"
                notes.md:1: `/home/me/` is a path on a specific machine: use a relative path or a temporary folder
                src/a.rs:1: `/Users/me/` is a path on a specific machine: use a relative path or a temporary folder
                tests/peers/python/agent.py:1: `/home/me/` is a path on a specific machine: use a relative path or a temporary folder"#]],
        );
    }

    #[test]
    fn every_registry_is_found_even_in_test_data() {
        for host in REGISTRIES {
            let findings = nothing_names_a_machine(&repo(&format!("//- tests/x.lock\nhttps://{host}/x\n")));
            assert_eq!(findings.len(), 1, "{host}");
        }
    }
}
