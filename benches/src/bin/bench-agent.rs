//! `bench-agent`: measures the agent against one in Python, prints a table and a JSON summary.

use std::io::Write;

use anyhow::Result;
use bowline_benches::agent::{self, Options};

fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let report = agent::run(&options, &mut std::io::stderr())?;
    let mut stdout = std::io::stdout().lock();
    write!(stdout, "{}", report.table())?;
    writeln!(stdout, "{}", report.summary())?;
    Ok(())
}
