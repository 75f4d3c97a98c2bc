//! `bench-agent`: measures our agent against one in Python, and prints a table and a JSON summary.

use std::io::Write;

use anyhow::Result;
use bowline_benches::agent::{self, AgentBenchOptions};

fn main() -> Result<()> {
    let options = AgentBenchOptions::parse(std::env::args().skip(1))?;
    let report = agent::run(&options, &mut std::io::stderr())?;
    let mut stdout = std::io::stdout().lock();
    write!(stdout, "{}", report.table())?;
    writeln!(stdout, "{}", report.summary())?;
    Ok(())
}
