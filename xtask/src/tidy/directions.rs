//! The allowed dependencies between packages: the picture in ARCHITECTURE.md as a table, compared with the manifests.

use super::{Repo, RepoFile, TidyFinding};
use toml::{Table, Value};

/// The packages of the workspace that each package may depend on, without the prefix `bowline-`. Host, agent and proxy never
/// depend on each other.
const ALLOWED: &[(&str, &str)] = &[
    ("bowline-task", ""),
    ("file-lease", ""),
    ("bowline-text", ""),
    ("bowline-protocol", "text"),
    ("bowline-policy", "text protocol"),
    ("bowline-history", "text protocol policy"),
    ("bowline-conversation", "text protocol"),
    ("bowline-tools", "text history conversation"),
    ("bowline-wire", "protocol task"),
    ("bowline-sdk", "protocol wire"),
    ("bowline-remote", "text protocol"),
    ("bowline-storage", "text history"),
    ("bowline-postgres", ""),
    ("bowline-access", "text protocol policy history storage task"),
    ("bowline-workspace", "file-lease text protocol policy history storage task"),
    ("bowline-mcp", "text protocol policy history tools wire access workspace task"),
    ("bowline-host", "text protocol policy history wire storage access workspace task"),
    (
        "bowline-agent",
        "text protocol policy history conversation tools wire storage postgres access workspace mcp task",
    ),
    ("bowline-proxy", "text protocol policy history wire access workspace mcp task"),
    ("bowline-serve", "text protocol storage postgres task"),
    ("bowline-client", "text protocol policy history wire remote storage access workspace host task"),
    ("bowline-web", "text protocol policy history storage access workspace client serve task"),
    (
        "bowline-tui",
        "text protocol policy history conversation wire storage workspace host agent client task",
    ),
    ("bowline-cli", ANY),
    ("test-support", ANY),
    ("bowline-tests", ANY),
    ("bowline-benches", ANY),
    ("bowline-fuzz", ANY),
    ("xtask", ""),
];

/// Programs and tests may use every library.
const ANY: &str = "*";

/// The folder of the crates of decisions.
const PURE_DIR: &str = "crates/pure/";

/// The dependencies allowed in pure crates: data and text, nothing that does IO, reads a clock, locks or awaits.
const PURE_MAY_USE: &[&str] = &[
    "agent-client-protocol-schema", "base64", "chardetng", "encoding_rs", "globset",
    // Only its parser of dates is used: it takes a text and reads no clock.
    "httpdate", "indexmap", "memchr",
    // Only its hashes are used: the lints of pure crates forbid its random numbers.
    "ring", "serde", "serde_json", "similar", "thiserror",
];

/// A package for tests only: it must be a dev-dependency, except in packages that consist of tests.
const TEST_SUPPORT: &str = "test-support";
const TEST_PACKAGES: &[&str] = &["bowline-tests", "bowline-benches"];

/// Programs on the official SDKs. They prove interoperability only as long as they share no code with us.
const PEERS_DIR: &str = "tests/peers/";

/// Every dependency between packages of the workspace is in the table, and pure crates stay free of IO.
pub fn crates_depend_in_one_direction(repo: &Repo) -> Vec<TidyFinding> {
    let renames = repo.tree.file("Cargo.toml").map(renames).unwrap_or_default();
    let manifests = repo.tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests.flat_map(|file| check(file, &renames)).collect()
}

/// Returns whether a list of the table names a package.
fn allows(list: &str, name: &str) -> bool {
    let short = name.strip_prefix("bowline-").unwrap_or(name);
    list == ANY || list.split_whitespace().any(|allowed| allowed == short)
}

fn check(file: &RepoFile, renames: &[(String, String)]) -> Vec<TidyFinding> {
    let manifest: Table = match file.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![TidyFinding::new(&file.path, 1, format!("is not TOML: {error}"))],
    };
    let Some(package) =
        manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str)
    else {
        return Vec::new();
    };
    let allowed = ALLOWED.iter().find(|(name, _)| *name == package).map(|(_, allowed)| *allowed);
    let allowed = if file.path.starts_with(PEERS_DIR) { Some("") } else { allowed };
    let Some(allowed) = allowed else {
        let advice =
            format!("package `{package}` is not in the table of {}: say there what it may use", file!());
        return vec![TidyFinding::new(&file.path, 1, advice)];
    };
    let mut findings = Vec::new();
    for dependency in dependencies(&manifest, renames) {
        let name = dependency.name.as_str();
        let ours = name == TEST_SUPPORT || ALLOWED.iter().any(|(package, _)| *package == name);
        let advice = if name == TEST_SUPPORT && !file.path.starts_with(PEERS_DIR) {
            (!dependency.is_dev && !TEST_PACKAGES.contains(&package))
                .then(|| format!("`{name}` is for tests: make it a dev-dependency"))
        } else if ours {
            (!allows(allowed, name))
                .then(|| format!("`{package}` must not use `{name}`: see the picture in ARCHITECTURE.md"))
        } else if file.path.starts_with(PURE_DIR) && !dependency.is_dev {
            let advice =
                || format!("`{package}` decides and does no IO: `{name}` is not in the list of {}", file!());
            (!PURE_MAY_USE.contains(&name)).then(advice)
        } else {
            None
        };
        findings.extend(
            advice.map(|advice| TidyFinding::new(&file.path, find_line(&file.text, &dependency.key), advice)),
        );
    }
    findings
}

/// A dependency of a package: its key in the manifest, and the name of the package.
struct Dependency {
    key: String,
    name: String,
    is_dev: bool,
}

fn dependencies(manifest: &Table, renames: &[(String, String)]) -> Vec<Dependency> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let scopes = std::iter::once(manifest).chain(targets.filter_map(|(_, target)| target.as_table()));
    let mut found = Vec::new();
    for scope in scopes {
        for (section, dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            for (key, value) in scope.get(section).and_then(Value::as_table).into_iter().flatten() {
                let inherited = renames.iter().find(|(alias, _)| alias == key).map(|(_, name)| name.as_str());
                let name = value.get("package").and_then(Value::as_str).or(inherited).unwrap_or(key);
                found.push(Dependency { key: key.clone(), name: name.to_owned(), is_dev: dev });
            }
        }
    }
    found
}

/// Returns the dependencies that the workspace's manifest renames: the new name, and the package.
fn renames(root: &RepoFile) -> Vec<(String, String)> {
    let manifest: Table = root.text.parse().unwrap_or_default();
    let shared = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(Value::as_table);
    let renamed = shared.into_iter().flatten().filter_map(|(key, value)| {
        let package = value.get("package")?.as_str()?;
        Some((key.clone(), package.to_owned()))
    });
    renamed.collect()
}

fn find_line(text: &str, key: &str) -> usize {
    let names_key = |line: &str| {
        let line = line.trim().rsplit_once("dependencies.").map_or(line.trim(), |(_, rest)| rest);
        line.strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', ' ', '=', ']']))
    };
    text.lines().position(names_key).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::crates_depend_in_one_direction;
    use crate::tidy::fixture::check;
    use expect_test::expect;

    #[test]
    fn an_edge_that_is_not_in_the_picture_is_found() {
        check(
            r#"
//- crates/bowline-host/Cargo.toml
[package]
name = "bowline-host"
[dependencies]
bowline-wire.workspace = true
tokio = "1"
[dev-dependencies]
bowline-agent.workspace = true
//- crates/bowline-wire/Cargo.toml
[package]
name = "bowline-wire"
[target.'cfg(unix)'.dependencies.bowline-workspace]
workspace = true
//- crates/bowline-cli/Cargo.toml
[package]
name = "bowline-cli"
[dependencies]
bowline-host.workspace = true
bowline-agent.workspace = true
"#,
            crates_depend_in_one_direction,
            expect![[r#"
                crates/bowline-host/Cargo.toml:7: `bowline-host` must not use `bowline-agent`: see the picture in ARCHITECTURE.md
                crates/bowline-wire/Cargo.toml:3: `bowline-wire` must not use `bowline-workspace`: see the picture in ARCHITECTURE.md"#]],
        );
    }

    #[test]
    fn another_name_hides_no_edge() {
        check(
            r#"
//- Cargo.toml
[workspace.dependencies]
brain = { package = "bowline-agent", path = "crates/bowline-agent" }
//- crates/bowline-proxy/Cargo.toml
[package]
name = "bowline-proxy"
[dependencies]
brain.workspace = true
face = { package = "bowline-host", path = "../bowline-host" }
"#,
            crates_depend_in_one_direction,
            expect![[r#"
                crates/bowline-proxy/Cargo.toml:4: `bowline-proxy` must not use `bowline-agent`: see the picture in ARCHITECTURE.md
                crates/bowline-proxy/Cargo.toml:5: `bowline-proxy` must not use `bowline-host`: see the picture in ARCHITECTURE.md"#]],
        );
    }

    #[test]
    fn test_support_is_for_tests() {
        check(
            r#"
//- benches/Cargo.toml
[package]
name = "bowline-benches"
[dependencies]
test-support.workspace = true
//- crates/bowline-cli/Cargo.toml
[package]
name = "bowline-cli"
[dependencies]
test-support.workspace = true
//- crates/bowline-wire/Cargo.toml
[package]
name = "bowline-wire"
[dev-dependencies]
test-support.workspace = true
"#,
            crates_depend_in_one_direction,
            expect!["crates/bowline-cli/Cargo.toml:4: `test-support` is for tests: make it a dev-dependency"],
        );
    }

    #[test]
    fn the_state_uses_only_what_its_list_names() {
        check(
            r#"
//- crates/pure/bowline-text/Cargo.toml
[package]
name = "bowline-text"
[dependencies]
thiserror.workspace = true
tokio = { workspace = true }
[dev-dependencies]
proptest.workspace = true
"#,
            crates_depend_in_one_direction,
            expect![
                "crates/pure/bowline-text/Cargo.toml:5: `bowline-text` decides and does no IO: `tokio` is not in the list of xtask/src/tidy/directions.rs"
            ],
        );
    }

    #[test]
    fn a_new_crate_and_a_peer_are_looked_at_too() {
        check(
            r#"
//- crates/bowline-utils/Cargo.toml
[package]
name = "bowline-utils"
//- tests/peers/rust/Cargo.toml
[package]
name = "peer-rust"
[dependencies]
bowline-wire = { path = "../../../crates/bowline-wire" }
test-support = { path = "../../../crates/test-support" }
//- crates/broken/Cargo.toml
[package
"#,
            |repo| {
                let mut findings = crates_depend_in_one_direction(repo);
                findings.iter_mut().for_each(|f| f.advice = f.advice.lines().next().unwrap_or("").to_owned());
                findings
            },
            expect![[r#"
                crates/bowline-utils/Cargo.toml:1: package `bowline-utils` is not in the table of xtask/src/tidy/directions.rs: say there what it may use
                tests/peers/rust/Cargo.toml:4: `peer-rust` must not use `bowline-wire`: see the picture in ARCHITECTURE.md
                tests/peers/rust/Cargo.toml:5: `peer-rust` must not use `test-support`: see the picture in ARCHITECTURE.md
                crates/broken/Cargo.toml:1: is not TOML: TOML parse error at line 1, column 9"#]],
        );
    }
}
