//! Every command that the README and the guides show, run as it stands there.

use std::process::Command;

use crate::programs::{root, run, transcript};

/// The commands, each with a text that shows that it did its work.
const COMMANDS: &[(&str, Shows)] = &[
    ("cargo run --release -- demo", Shows::ChecksHold),
    ("cargo install --locked --path crates/bowline-cli", Shows::Success),
    ("bowline run --model offline \"list\"", Shows::Listing),
    ("bowline run --model offline --format result \"list\"", Shows::Result),
    ("bowline changes", Shows::Success),
    ("bowline doctor", Shows::NextSteps),
    ("bowline doctor --all", Shows::Machine),
    ("bowline setup zed", Shows::Zed),
    ("bowline setup neovim", Shows::Neovim),
    ("bowline policy", Shows::Rules),
    ("bowline policy explain execute \"cargo test\"", Shows::Ruling),
    ("bowline audit verify", Shows::Success),
    ("bowline undo --help", Shows::Usage),
    ("bowline agent --help", Shows::Usage),
    ("bowline mcp --help", Shows::Usage),
    ("bowline proxy --help", Shows::Usage),
    ("bowline trace --help", Shows::Usage),
    ("cargo build --workspace --examples", Shows::Success),
    ("target/debug/examples/client target/debug/examples/agent", Shows::EndOfTurn),
    ("target/debug/examples/workspace", Shows::Undone),
    ("echo y | target/debug/examples/embed_host target/debug/examples/agent", Shows::EndOfTurn),
    ("cargo xtask bench --help", Shows::Usage),
];

/// What a command must show.
#[derive(Clone, Copy)]
enum Shows {
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
        shell.args(["-c", command]).current_dir(root());
        // What a run keeps is not the business of whoever tests. Cargo and rustup have to find their own things.
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            shell.env(name, home.path().join(name));
        }
        shell
            .env("CARGO_INSTALL_ROOT", &installed)
            .env("PATH", format!("{}/bin:{path}", installed.display()));
        let output = run(&mut shell);
        let text = transcript(&output);
        let sign = match shows {
            Shows::ChecksHold => "checks hold.",
            Shows::Usage => "Usage:",
            Shows::Success => "exit status: 0",
            Shows::Listing => "ARCHITECTURE.md",
            Shows::Result => "\"stop_reason\"",
            Shows::NextSteps => "Next",
            Shows::Machine => "This machine",
            Shows::Zed => "agent_servers",
            Shows::Neovim => "codecompanion",
            Shows::Rules => "preset",
            Shows::Ruling => "cargo test",
            Shows::EndOfTurn => "EndTurn",
            Shows::Undone => "undone, the file has",
        };
        assert!(output.status.success() && text.contains(sign), "{command}\n{text}");
    }
}
