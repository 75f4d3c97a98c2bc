//! `bench-proxy`: measures a proxy between a client and an agent, and prints a table and a JSON summary.

use std::io::Write;

use anyhow::Result;
use bowline_benches::proxy::{self, ProxyBenchOptions};

fn main() -> Result<()> {
    let report = proxy::run(&ProxyBenchOptions::parse(std::env::args().skip(1))?, &mut std::io::stderr())?;
    let text = format!("{}{}\n", report.table(), report.summary());
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
