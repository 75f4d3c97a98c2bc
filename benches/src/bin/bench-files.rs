//! `bench-files`: measures the workspace engine on a real disk, prints a table and a JSON summary.

use std::io::Write;

use anyhow::Result;
use bowline_benches::files::{self, Task};

fn main() -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match Task::parse(std::env::args().skip(1))? {
        Task::Measure(options) => {
            let report = files::run(&options, &mut std::io::stderr())?;
            write!(stdout, "{}", report.table())?;
            writeln!(stdout, "{}", report.summary())?;
        }
        Task::Grow(operation) => writeln!(stdout, "{}", operation.grown_kib()?)?,
    }
    Ok(())
}
