//! The benchmark of the server of remote sessions: the same client, and the same tasks, over stdio, over Bowline's
//! server and over the official Rust SDK's, in one run; then many sessions at once, and a stream that is opened again.

mod client;
mod options;
mod report;
mod sessions;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use test_support::own_server::OwnServer;
use test_support::peer_server::PeerServer;

use crate::files::BenchProgress;
use crate::wire::BenchPhase;
use crate::wire::machine::CpuUsage;
use client::{BenchClient, Endpoint};

pub use options::ServeBenchOptions;
pub use report::{RouteRates, ServeBenchReport, ServeMeasurements, SessionTimes};

/// The size of a run.
#[derive(Debug, Clone, Copy)]
struct ServeBenchSize {
    rounds: usize,
    updates: usize,
    reads: usize,
    /// The sessions that work at once, and for how long.
    connections: usize,
    sessions_each: usize,
    seconds: u64,
    reconnects: usize,
}

const FULL: ServeBenchSize = ServeBenchSize {
    rounds: 5,
    updates: 100_000,
    reads: 20_000,
    connections: 50,
    sessions_each: 20,
    seconds: 30,
    reconnects: 100,
};

const QUICK: ServeBenchSize = ServeBenchSize {
    rounds: 2,
    updates: 10_000,
    reads: 2_000,
    connections: 10,
    sessions_each: 10,
    seconds: 3,
    reconnects: 10,
};

/// How many updates each session sends in a second.
const UPDATES_PER_SECOND: u64 = 10;
/// How many updates a client has missed when it comes back.
const MISSED_UPDATES: usize = 1000;

/// Measures everything and returns the report; writes messages to `progress`.
///
/// # Errors
/// Fails if a program does not start, or if a message does not arrive.
pub async fn run(options: &ServeBenchOptions, progress: &mut dyn Write) -> Result<ServeBenchReport> {
    // It fails if a provider was installed before.
    rustls::crypto::ring::default_provider().install_default().ok();
    let size = if options.quick { QUICK } else { FULL };
    let mut progress = BenchProgress { started: Instant::now(), output: progress };
    let usage = CpuUsage::now()?;
    let home = options.data.join(format!("home-{}", std::process::id()));
    // Beside Bowline's own files, as usual.
    let workspace = home.join("workspace");
    std::fs::create_dir_all(&workspace).with_context(|| format!("cannot create {}", workspace.display()))?;
    let measured = measure(options, size, &home, &workspace, &mut progress).await;
    if let Err(error) = std::fs::remove_dir_all(&home) {
        // The last agents may still write: what was measured counts all the same.
        progress.report(&format!("cannot remove {}: {error}", home.display()))?;
    }
    let measured = ServeMeasurements { other_cores: usage.other_cores_since()?, ..measured? };
    Ok(ServeBenchReport::new(measured))
}

async fn measure(
    options: &ServeBenchOptions,
    size: ServeBenchSize,
    home: &Path,
    workspace: &Path,
    progress: &mut BenchProgress<'_>,
) -> Result<ServeMeasurements> {
    let start = |agent: &[String]| {
        let (listen, store) = (["--listen", "127.0.0.1:0"], options.store.as_deref());
        OwnServer::start_on(&options.bowline, home, workspace, &listen, agent, store)
    };
    let own = start(&options.agent)?;
    let theirs = options.sdk.as_ref().map(|sdk| PeerServer::start(sdk)).transpose()?;
    let ours = |scheme: &str| Endpoint::new(scheme, own.address(), Some(own.token()));
    // What the server starts.
    let proxy = [
        &[options.bowline.display().to_string()],
        &["proxy", "--host", "--"].map(str::to_owned)[..],
        &options.agent,
    ];
    let stdio = |command: Vec<String>| Endpoint::Stdio { command, home: home.to_owned() };
    let mut routes = vec![
        ("stdio", stdio(options.agent.clone())),
        ("stdio_proxy", stdio(proxy.concat())),
        ("bowline_sse", ours("http")),
        ("bowline_ws", ours("ws")),
    ];
    if let Some(theirs) = &theirs {
        routes.push(("sdk_sse", Endpoint::new("http", theirs.address(), None)));
        routes.push(("sdk_ws", Endpoint::new("ws", theirs.address(), None)));
    }
    let mut rates: Vec<RouteRates> = routes.iter().map(|(name, _)| RouteRates::new(name)).collect();
    for round in 1..=size.rounds {
        for ((name, endpoint), rates) in routes.iter().zip(&mut rates) {
            progress.report(&format!("round {round}/{} {name}", size.rounds))?;
            let mut client = BenchClient::connect(endpoint, workspace).await?;
            rates.updates.push(measure_phase(&mut client, BenchPhase::Stream, size.updates).await?);
            rates.reads.push(measure_phase(&mut client, BenchPhase::Inflight64, size.reads).await?);
        }
    }
    progress.report("streams that are opened again")?;
    let mut client = BenchClient::connect(&ours("http"), workspace).await?;
    let mut reconnect_ms = Vec::new();
    client.run_turn(&BenchPhase::Stream.prompt(MISSED_UPDATES)).await?;
    for _ in 0..size.reconnects {
        let took = client.reconnect().await?;
        reconnect_ms.push(took.as_secs_f64() * 1e3);
    }
    drop(client);
    drop(own);
    progress.report(&format!("{} sessions at once", size.connections * size.sessions_each))?;
    let own = start(&options.pace)?;
    let endpoint = Endpoint::new("ws", own.address(), Some(own.token()));
    let task = json!({ "count": UPDATES_PER_SECOND * size.seconds, "perSecond": UPDATES_PER_SECOND });
    let sessions = sessions::measure(&endpoint, own.process_id(), size, workspace, &task).await?;
    Ok(ServeMeasurements { routes: rates, reconnect_ms, sessions, other_cores: 0.0 })
}

/// Runs one phase, and returns its rate.
async fn measure_phase(client: &mut BenchClient, phase: BenchPhase, count: usize) -> Result<f64> {
    let started = Instant::now();
    let updates = client.run_turn(&phase.prompt(count)).await?;
    ensure!(updates >= phase.chunks(count), "{updates} of {count} updates arrived");
    Ok(phase.rate(count, started.elapsed().as_secs_f64()))
}
