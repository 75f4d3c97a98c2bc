//! Every command in the README and the guides, run as written.

use std::process::Command;

use crate::programs::{run, transcript, without_package_variables, workspace_root};

/// The commands, each with its expected output.
const COMMANDS: &[(&str, ExpectedOutput)] = &[
    ("cargo run --release -- demo", ExpectedOutput::ChecksHold),
    ("cargo install --locked --path crates/bowline-cli", ExpectedOutput::Success),
    ("bowline run --model offline \"list\"", ExpectedOutput::Listing),
    ("bowline run --model offline --format result \"list\"", ExpectedOutput::Result),
    ("bowline changes", ExpectedOutput::Success),
    ("bowline doctor", ExpectedOutput::NextSteps),
    ("bowline doctor --all", ExpectedOutput::Machine),
    ("bowline setup zed", ExpectedOutput::Zed),
    ("bowline setup neovim", ExpectedOutput::Neovim),
    ("bowline policy", ExpectedOutput::Rules),
    ("bowline policy explain execute \"cargo test\"", ExpectedOutput::Ruling),
    ("bowline audit verify", ExpectedOutput::Success),
    ("bowline undo --help", ExpectedOutput::Usage),
    ("bowline agent --help", ExpectedOutput::Usage),
    ("bowline mcp --help", ExpectedOutput::Usage),
    ("bowline proxy --help", ExpectedOutput::Usage),
    ("bowline connect --help", ExpectedOutput::Usage),
    ("bowline serve token add laptop", ExpectedOutput::Token),
    ("bowline serve --help", ExpectedOutput::Usage),
    ("bowline web --help", ExpectedOutput::Usage),
    ("bowline trace --help", ExpectedOutput::Usage),
    ("cargo build --release --workspace --examples", ExpectedOutput::Success),
    ("target/release/examples/client target/release/examples/agent", ExpectedOutput::EndOfTurn),
    ("target/release/examples/workspace", ExpectedOutput::Undone),
    ("echo y | target/release/examples/embed_host target/release/examples/agent", ExpectedOutput::EndOfTurn),
    ("cargo xtask bench --help", ExpectedOutput::Usage),
];

/// The output that a command must have.
#[derive(Clone, Copy)]
enum ExpectedOutput {
    ChecksHold,
    Usage,
    Success,
    Listing,
    Result,
    NextSteps,
    Machine,
    Zed,
    Neovim,
    Rules,
    Ruling,
    Token,
    EndOfTurn,
    Undone,
}

#[test]
fn every_command_of_the_documentation_works() {
    let home = tempfile::tempdir().unwrap();
    let installed = home.path().join("installed");
    let path = std::env::var("PATH").unwrap();
    for (command, shows) in COMMANDS {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(workspace_root());
        // Keeps the state of these runs out of the tester's home. Cargo and rustup still need theirs.
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            shell.env(name, home.path().join(name));
        }
        shell
            .env("CARGO_INSTALL_ROOT", &installed)
            .env("PATH", format!("{}/bin:{path}", installed.display()));
        let output = run(without_package_variables(&mut shell));
        let text = transcript(&output);
        let sign = match shows {
            ExpectedOutput::ChecksHold => "checks hold.",
            ExpectedOutput::Usage => "Usage:",
            ExpectedOutput::Success => "exit status: 0",
            ExpectedOutput::Listing => "ARCHITECTURE.md",
            ExpectedOutput::Result => "\"stop_reason\"",
            ExpectedOutput::NextSteps => "Next",
            ExpectedOutput::Machine => "This machine",
            ExpectedOutput::Zed => "agent_servers",
            ExpectedOutput::Neovim => "codecompanion",
            ExpectedOutput::Rules => "preset",
            ExpectedOutput::Ruling => "cargo test",
            ExpectedOutput::Token => "bow_",
            ExpectedOutput::EndOfTurn => "EndTurn",
            ExpectedOutput::Undone => "undone, the file has",
        };
        assert!(output.status.success() && text.contains(sign), "{command}\n{text}");
    }
}
