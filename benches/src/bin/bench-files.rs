//! `bench-files`: measures the workspace engine on a real disk, and prints a table and a JSON summary.

use std::io::Write;

use anyhow::Result;
use bowline_benches::files::{self, FilesBenchCommand};

fn main() -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match FilesBenchCommand::parse(std::env::args().skip(1))? {
        FilesBenchCommand::Measure(options) => {
            let report = files::run(&options, &mut std::io::stderr())?;
            write!(stdout, "{}", report.table())?;
            writeln!(stdout, "{}", report.summary())?;
        }
        FilesBenchCommand::Grow(operation) => writeln!(stdout, "{}", operation.measure_growth_kib()?)?,
    }
    Ok(())
}
