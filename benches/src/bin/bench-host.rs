//! `bench-host`: measures the host between an agent's process and the disk, prints a table and a JSON summary.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use bowline_benches::host::{self, Task};

fn main() -> Result<ExitCode> {
    match Task::parse(std::env::args().skip(1))? {
        Task::Measure(options) => {
            let report = host::run(&options, &mut std::io::stderr())?;
            let mut stdout = std::io::stdout().lock();
            write!(stdout, "{}", report.table())?;
            writeln!(stdout, "{}", report.summary())?;
        }
        Task::Serve(side) => host::serve(&side)?,
        Task::Agent => host::act()?,
        Task::Supervise => return Ok(bowline_workspace::terminals::supervisor::main(std::env::args_os())),
    }
    Ok(ExitCode::SUCCESS)
}
