//! The terminal supervisor as a separate program, for tests and for hosts that cannot re-execute themselves.

use std::process::ExitCode;

fn main() -> ExitCode {
    bowline_workspace::terminals::supervisor::main(std::env::args_os())
}
