//! Clients on the official SDKs of MCP, and the checks of its makers, which drive our MCP server in tests.

use super::clients::{OtherClient, install_for_this_machine, newer_node};
use super::{
    Extent, NODE, Places, has_node, install_requirements, install_typescript, is_current, missing_python,
};
use crate::World;
use crate::summary::Outcome;
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
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Python, Self::TypeScript];

    /// Returns its name, which is also that of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "mcp-python",
            Self::TypeScript => "mcp-typescript",
        }
    }

    /// Returns the command that starts it, to which its own arguments are added.
    pub fn command(self, root: &Path) -> Vec<String> {
        let Places { source, target } = self.places(root);
        let words = match self {
            Self::Python => vec![target.join("bin/python"), source.join("client.py")],
            Self::TypeScript => vec!["node".into(), target.join("client.mjs")],
        };
        words.iter().map(|word| word.display().to_string()).collect()
    }

    fn places(self, root: &Path) -> Places {
        Places::named(self.name(), root)
    }

    /// Installs it, unless that was done before.
    pub(super) fn install(self, world: &World) -> Outcome {
        let places = self.places(&world.root);
        let missing = match self {
            Self::Python => missing_python(),
            Self::TypeScript => (!has_node()).then_some(NODE),
        };
        if let Some(missing) = missing {
            return Outcome::missing(format!("needs {missing}"), world.ci);
        }
        let requirements = places.source.join("requirements.txt");
        Outcome::of(match self {
            Self::Python => install_requirements("python3".as_ref(), &requirements, &places.target, &[]),
            Self::TypeScript => install_typescript(&places),
        })
    }

    /// Whether it can be started, at the version that is pinned now.
    pub(super) fn is_installed(self, root: &Path) -> bool {
        let places = self.places(root);
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

/// A program by which the makers of MCP check servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpCheck {
    /// The npm package `@modelcontextprotocol/conformance`.
    Conformance,
    /// The npm package `@modelcontextprotocol/inspector`, by its command line.
    Inspector,
}

impl McpCheck {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Conformance, Self::Inspector];

    /// The name of the folders of all of them.
    pub const NAME: &str = "mcp-checks";

    /// Returns the command that starts it, to which its own arguments are added. It needs the Node that acpx brings.
    pub fn command(self, root: &Path) -> Vec<String> {
        let packages = Self::places(root).target.join("node_modules/@modelcontextprotocol");
        let program = packages.join(match self {
            Self::Conformance => "conformance/dist/index.js",
            Self::Inspector => "inspector/clients/launcher/build/index.js",
        });
        [newer_node(root), program].iter().map(|word| word.display().to_string()).collect()
    }

    fn places(root: &Path) -> Places {
        Places::named(Self::NAME, root)
    }

    /// Installs all of them, unless that was done before, or takes too much for what is to be installed.
    pub(super) fn install(world: &World, extent: Extent) -> Outcome {
        if extent == Extent::Usual && !Self::are_installed(&world.root) {
            return Outcome::Skipped("takes 110 MB: `cargo xtask peers --all` installs it".into());
        }
        if !has_node() {
            return Outcome::missing(format!("needs {NODE}"), world.ci);
        }
        let program = "node_modules/@modelcontextprotocol/inspector/package.json";
        Outcome::of(install_for_this_machine(&Self::places(&world.root), program, &["--omit=optional"]))
    }

    /// Whether they can be started, at the versions that are pinned now.
    pub(super) fn are_installed(root: &Path) -> bool {
        let are_there = Self::ALL
            .iter()
            .all(|check| check.command(root).iter().skip(1).all(|word| Path::new(word).is_file()));
        is_current(&Self::places(root), "package-lock.json")
            && are_there
            && OtherClient::Acpx.is_installed(root)
    }
}

#[cfg(test)]
mod tests {
    use super::McpCheck;
    use crate::World;
    use crate::peers::{Extent, Places, stamp};
    use expect_test::expect;
    use std::fs;

    #[test]
    fn checks_are_installed_once_their_programs_packages_and_node_are_there() {
        let root = tempfile::tempdir().unwrap();
        let world = World { root: root.path().to_owned(), ci: true };
        expect![[r#"Skipped("takes 110 MB: `cargo xtask peers --all` installs it")"#]]
            .assert_eq(&format!("{:?}", McpCheck::install(&world, Extent::Usual)));
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
            let places = Places::named(name, root.path());
            fs::create_dir_all(&places.source).unwrap();
            fs::write(places.source.join("package-lock.json"), "{}").unwrap();
            assert!(!McpCheck::are_installed(root.path()), "{name} is not there");
            for program in programs {
                let program = places.target.join(program);
                fs::create_dir_all(program.parent().unwrap()).unwrap();
                fs::write(program, "").unwrap();
            }
            stamp(&places, "package-lock.json").unwrap();
        }
        assert!(McpCheck::are_installed(root.path()));
    }
}
