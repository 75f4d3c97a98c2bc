//! `eval`: gives small tasks to an agent with a model, and prints how many it solved.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use bowline_benches::eval::{self, EvalCommand};

fn main() -> Result<ExitCode> {
    match EvalCommand::parse(std::env::args().skip(1))? {
        EvalCommand::Evaluate(options) => {
            let report = eval::run(&options, &mut std::io::stderr())?;
            let mut stdout = std::io::stdout().lock();
            write!(stdout, "{}", report.table())?;
            writeln!(stdout, "{}", report.summary())?;
        }
        EvalCommand::Supervise => {
            return Ok(bowline_workspace::terminals::supervisor::main(std::env::args_os()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
