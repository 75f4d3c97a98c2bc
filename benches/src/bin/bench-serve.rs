//! `bench-serve`: measures the server of remote sessions, and prints a table and a JSON summary.

use std::io::Write;

use anyhow::Result;
use bowline_benches::serve::{self, ServeBenchOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = ServeBenchOptions::parse(std::env::args().skip(1))?;
    let report = serve::run(&options, &mut std::io::stderr()).await?;
    let text = format!("{}{}\n", report.table(), report.summary());
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
