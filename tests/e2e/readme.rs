//! Every command that the README shows, run as it stands there.

use std::process::Command;

use crate::programs::{root, run, transcript};

/// The commands, each with a text that shows that it did its work.
const COMMANDS: &[(&str, Shows)] = &[
    ("cargo run --release -- demo", Shows::ChecksHold),
    ("cargo run --release -- --help", Shows::Usage),
    ("cargo run --release -- agent --help", Shows::Usage),
    ("cargo build -p bowline-wire --examples", Shows::Success),
    ("cargo run -p bowline-wire --example client -- target/debug/examples/agent", Shows::EndOfTurn),
    ("cargo run -p bowline-workspace --example workspace", Shows::Undone),
    (
        "echo y | cargo run -p bowline-host --example embed_host -- target/debug/examples/agent",
        Shows::EndOfTurn,
    ),
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
}

#[test]
fn every_command_of_the_readme_works() {
    for (command, shows) in COMMANDS {
        let output = run(Command::new("sh").args(["-c", command]).current_dir(root()));
        let text = transcript(&output);
        let sign = match shows {
            Shows::ChecksHold => "checks hold.",
            Shows::Usage => "Usage:",
            Shows::Success => "exit status: 0",
            Shows::EndOfTurn => "EndTurn",
            Shows::Undone => "undone, the file has",
        };
        assert!(output.status.success() && text.contains(sign), "{command}\n{text}");
    }
}
