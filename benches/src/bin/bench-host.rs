//! `bench-host`: measures the host between an agent's process and the disk, and prints a table and a JSON summary.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use bowline_benches::host::{self, HostBenchCommand};

fn main() -> Result<ExitCode> {
    match HostBenchCommand::parse(std::env::args().skip(1))? {
        HostBenchCommand::Measure(options) => {
            let report = host::run(&options, &mut std::io::stderr())?;
            let mut stdout = std::io::stdout().lock();
            write!(stdout, "{}", report.table())?;
            writeln!(stdout, "{}", report.summary())?;
        }
        HostBenchCommand::Serve(side) => host::serve_steps(&side)?,
        HostBenchCommand::Agent => host::run_step_agent()?,
        HostBenchCommand::Supervise => {
            return Ok(bowline_workspace::terminals::supervisor::main(std::env::args_os()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
