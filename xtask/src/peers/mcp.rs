//! Clients on the official SDKs of MCP, which drive our MCP server in tests.

use super::{NODE, Places, has_node, install_requirements, install_typescript, is_current, missing_python};
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
