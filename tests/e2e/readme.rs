//! Every command that the README shows, run as it stands there.

use std::process::Command;

use crate::programs::{root, run, transcript};

/// The commands, each with a text that shows that it did its work.
const COMMANDS: &[(&str, Shows)] = &[
    ("cargo run --release -- demo", Shows::ChecksHold),
    ("cargo install --locked --path crates/bowline-cli", Shows::Success),
    ("cargo run --release -- --help", Shows::Usage),
    ("cargo run --release -- run --model offline \"list\"", Shows::Listing),
    ("cargo run --release -- trace --help", Shows::Usage),
    ("cargo run --release -- undo --help", Shows::Usage),
    ("cargo run --release -- proxy --help", Shows::Usage),
    ("cargo run --release -- setup zed", Shows::Configuration),
    ("cargo run --release -- agent --help", Shows::Usage),
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
    EndOfTurn,
    Undone,
    Listing,
    Configuration,
}

#[test]
fn every_command_of_the_readme_works() {
    let home = tempfile::tempdir().unwrap();
    for (command, shows) in COMMANDS {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(root());
        // What a run keeps is not the business of whoever tests. Cargo and rustup have to find their own things.
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            shell.env(name, home.path().join(name));
        }
        shell.env("CARGO_INSTALL_ROOT", home.path().join("installed"));
        let output = run(&mut shell);
        let text = transcript(&output);
        let sign = match shows {
            Shows::ChecksHold => "checks hold.",
            Shows::Usage => "Usage:",
            Shows::Success => "exit status: 0",
            Shows::EndOfTurn => "EndTurn",
            Shows::Undone => "undone, the file has",
            Shows::Listing => "ARCHITECTURE.md",
            Shows::Configuration => "agent_servers",
        };
        assert!(output.status.success() && text.contains(sign), "{command}\n{text}");
    }
}
