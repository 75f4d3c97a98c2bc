//! `bench-wire`: measures pairs of agent and client on real pipes, and prints a table and a JSON summary.

use std::io::Write;

use anyhow::Result;
use bowline_benches::wire::{self, WireBenchOptions};

fn main() -> Result<()> {
    let options = WireBenchOptions::parse(std::env::args().skip(1))?;
    let report = wire::run(&options, &mut std::io::stderr())?;
    let mut stdout = std::io::stdout().lock();
    write!(stdout, "{}", report.table())?;
    writeln!(stdout, "{}", report.summary())?;
    Ok(())
}
