//! The supervisor of terminals, for hosts that run inside a test process.

use std::process::ExitCode;

fn main() -> ExitCode {
    bowline_workspace::terminals::supervisor::main(std::env::args_os())
}
