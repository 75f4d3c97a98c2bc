//! The supervisor of terminals, for the hosts that tests run in their own process.

use std::process::ExitCode;

fn main() -> ExitCode {
    bowline_workspace::terminals::supervisor::main(std::env::args_os())
}
