//! The MCP peers: clients on the official SDKs and the MCP project's test programs, which drive our MCP server in
//! tests.

use super::clients::{PublishedClient, acpx_node, npm_install_for_platform};
use super::{
    InstallScope, NODE_REQUIREMENT, PeerDirs, has_node, install_requirements, install_typescript, is_current,
    missing_python,
};
use crate::RepoContext;
use crate::summary::StepOutcome;
use std::path::Path;

/// A client on an official SDK of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpClient {
    /// The Python package `mcp`.
    Python,
    /// The npm package `@modelcontextprotocol/sdk`.
    TypeScript,
}

impl McpClient {
    /// Every client.
    pub const ALL: [Self; 2] = [Self::Python, Self::TypeScript];

    /// Returns the client's name, which is also the name of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "mcp-python",
            Self::TypeScript => "mcp-typescript",
        }
    }

    /// Returns the command that starts the client. Callers append the client's own arguments.
    pub fn command(self, root: &Path) -> Vec<String> {
        let PeerDirs { source, target } = self.dirs(root);
        let words = match self {
            Self::Python => vec![target.join("bin/python"), source.join("client.py")],
            Self::TypeScript => vec!["node".into(), target.join("client.mjs")],
        };
        words.iter().map(|word| word.display().to_string()).collect()
    }

    fn dirs(self, root: &Path) -> PeerDirs {
        PeerDirs::for_name(self.name(), root)
    }

    /// Installs the client, unless it is up to date.
    pub(super) fn install(self, world: &RepoContext) -> StepOutcome {
        let places = self.dirs(&world.root);
        let missing = match self {
            Self::Python => missing_python(),
            Self::TypeScript => (!has_node()).then_some(NODE_REQUIREMENT),
        };
        if let Some(missing) = missing {
            return StepOutcome::missing(format!("needs {missing}"), world.is_ci);
        }
        let requirements = places.source.join("requirements.txt");
        StepOutcome::from_result(match self {
            Self::Python => install_requirements("python3".as_ref(), &requirements, &places.target, &[]),
            Self::TypeScript => install_typescript(&places),
        })
    }

    /// Returns whether the client can be started, at the pinned version.
    pub(super) fn is_installed(self, root: &Path) -> bool {
        let places = self.dirs(root);
        match self {
            Self::Python => {
                is_current(&places, "requirements.txt") && places.target.join("bin/python").exists()
            }
            Self::TypeScript => {
                is_current(&places, "package-lock.json") && places.target.join("client.mjs").is_file()
            }
        }
    }
}

/// A test program for servers from the MCP project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpCheck {
    /// The npm package `@modelcontextprotocol/conformance`.
    Conformance,
    /// The command line of the npm package `@modelcontextprotocol/inspector`.
    Inspector,
}

impl McpCheck {
    /// Every test program.
    pub const ALL: [Self; 2] = [Self::Conformance, Self::Inspector];

    /// The name of their common folders.
    pub const NAME: &str = "mcp-checks";

    /// Returns the command that starts the program, on the Node that is installed with acpx. Callers append the
    /// program's own arguments.
    pub fn command(self, root: &Path) -> Vec<String> {
        let packages = Self::dirs(root).target.join("node_modules/@modelcontextprotocol");
        let program = packages.join(match self {
            Self::Conformance => "conformance/dist/index.js",
            Self::Inspector => "inspector/clients/launcher/build/index.js",
        });
        [acpx_node(root), program].iter().map(|word| word.display().to_string()).collect()
    }

    fn dirs(root: &Path) -> PeerDirs {
        PeerDirs::for_name(Self::NAME, root)
    }

    /// Installs all of them, unless they are up to date or too costly for `extent`.
    pub(super) fn install(world: &RepoContext, extent: InstallScope) -> StepOutcome {
        if extent == InstallScope::Usual && !Self::are_installed(&world.root) {
            return StepOutcome::Skipped("takes 110 MB: `cargo xtask peers --all` installs it".into());
        }
        if !has_node() {
            return StepOutcome::missing(format!("needs {NODE_REQUIREMENT}"), world.is_ci);
        }
        let program = "node_modules/@modelcontextprotocol/inspector/package.json";
        StepOutcome::from_result(npm_install_for_platform(
            &Self::dirs(&world.root),
            program,
            &["--omit=optional"],
        ))
    }

    /// Returns whether they can be started, at the pinned versions.
    pub(super) fn are_installed(root: &Path) -> bool {
        let are_there = Self::ALL
            .iter()
            .all(|check| check.command(root).iter().skip(1).all(|word| Path::new(word).is_file()));
        is_current(&Self::dirs(root), "package-lock.json")
            && are_there
            && PublishedClient::Acpx.is_installed(root)
    }
}

#[cfg(test)]
mod tests {
    use super::McpCheck;
    use crate::RepoContext;
    use crate::peers::{InstallScope, PeerDirs, write_stamp};
    use expect_test::expect;
    use std::fs;

    #[test]
    fn checks_are_installed_once_their_programs_packages_and_node_are_there() {
        let root = tempfile::tempdir().unwrap();
        let world = RepoContext { root: root.path().to_owned(), is_ci: true };
        expect![[r#"Skipped("takes 110 MB: `cargo xtask peers --all` installs it")"#]]
            .assert_eq(&format!("{:?}", McpCheck::install(&world, InstallScope::Usual)));
        for (name, programs) in [
            ("acpx", &["node_modules/acpx/dist/cli.js"][..]),
            (
                McpCheck::NAME,
                &[
                    "node_modules/@modelcontextprotocol/conformance/dist/index.js",
                    "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js",
                ],
            ),
        ] {
            let places = PeerDirs::for_name(name, root.path());
            fs::create_dir_all(&places.source).unwrap();
            fs::write(places.source.join("package-lock.json"), "{}").unwrap();
            assert!(!McpCheck::are_installed(root.path()), "{name} is not there");
            for program in programs {
                let program = places.target.join(program);
                fs::create_dir_all(program.parent().unwrap()).unwrap();
                fs::write(program, "").unwrap();
            }
            write_stamp(&places, "package-lock.json").unwrap();
        }
        assert!(McpCheck::are_installed(root.path()));
    }
}
