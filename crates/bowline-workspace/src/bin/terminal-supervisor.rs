//! A supervisor of terminals as a program of its own, for tests and for hosts that cannot start themselves again.

use std::process::ExitCode;

fn main() -> ExitCode {
    bowline_workspace::terminals::supervisor::main(std::env::args_os())
}
