//! The benchmarks behind the published numbers.
//!
//! A benchmark's stdout passes through unchanged, because its last line is the result that readers compare.

use crate::RepoContext;
use crate::command::{cargo, run, run_as_progress};
use crate::peers::{Conductor, InstallScope, PeerSpeed, PublishedAgent, SdkPeer};
use crate::summary::StepOutcome;
use anyhow::bail;
use clap::ValueEnum;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A benchmark, the program `bench-NAME` of `bowline-benches`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Bench {
    /// Bowline's wire against the official SDKs' and against the floor
    Wire,
    /// The workspace engine against plain reads and writes of the same bytes
    Files,
    /// The host between an agent and the disk against the same wire with nothing between
    Host,
    /// The agent against one in Python that does the same
    Agent,
    /// The proxy against the official conductor and against nothing between
    Proxy,
    /// The server of remote sessions against the official Rust SDK's and against stdio
    Serve,
}

/// The duration of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Long enough for quotable numbers.
    Full,
    /// About a minute: enough to show that the benchmark works.
    Quick,
}

/// Builds a benchmark and the peers that it measures against, and runs it. The server keeps its sessions in `store`, if
/// there is one.
///
/// # Errors
/// Fails when a build or an installation fails, and when the benchmark fails.
pub fn run_bench(world: &RepoContext, bench: Bench, pace: Pace, store: Option<&str>) -> anyhow::Result<()> {
    if store.is_some() && bench != Bench::Serve {
        bail!("--store is for `cargo xtask bench serve`");
    }
    run_as_progress(&mut cargo(&world.root, &build_arguments(bench).split(' ').collect::<Vec<_>>()))?;
    let target = target_dir(&world.root);
    let programs = target.join(profile_folder(profile(bench)));
    let (program, arguments) = match bench {
        Bench::Wire => ("bench-wire", wire_arguments(&world.root, &programs, &install_sdk_peers(world)?)),
        Bench::Files => ("bench-files", data_arguments(&target, "bench-files")),
        Bench::Host => ("bench-host", data_arguments(&target, "bench-host")),
        Bench::Agent => {
            let mut arguments = data_arguments(&target, "bench-agent");
            arguments.extend(agent_arguments(&programs, &install_fast_agent(world)?));
            ("bench-agent", arguments)
        }
        Bench::Proxy => ("bench-proxy", proxy_arguments(&world.root, &programs, install_conductor(world)?)),
        Bench::Serve => {
            let mut arguments = data_arguments(&target, "bench-serve");
            arguments.extend(serve_arguments(&world.root, &programs, install_rust_peer(world)?));
            arguments.extend(store.into_iter().flat_map(|store| ["--store".to_owned(), store.to_owned()]));
            ("bench-serve", arguments)
        }
    };
    let mut command = Command::new(programs.join(program));
    command.current_dir(&world.root).args(arguments);
    if pace == Pace::Quick {
        command.arg("--quick");
    }
    run(&mut command)
}

/// Returns the cargo arguments that build only the programs of a benchmark, because linking one takes minutes.
fn build_arguments(bench: Bench) -> String {
    let (packages, programs) = match bench {
        Bench::Wire => (
            "bowline-benches bowline-tests",
            "bench-wire floor-agent floor-client bowline-peer-agent bowline-peer-client",
        ),
        Bench::Files => ("bowline-benches", "bench-files"),
        Bench::Host => ("bowline-benches", "bench-host"),
        Bench::Agent => ("bowline-benches bowline-cli", "bench-agent bowline"),
        Bench::Proxy => ("bowline-benches bowline-cli", "bench-proxy floor-agent floor-client bowline"),
        Bench::Serve => {
            ("bowline-benches bowline-cli bowline-tests", "bench-serve pace-agent bowline bowline-peer-agent")
        }
    };
    let packages = packages.split(' ').map(|package| format!(" --package {package}"));
    let programs = programs.split(' ').map(|program| format!(" --bin {program}"));
    let (packages, programs) = (packages.collect::<String>(), programs.collect::<String>());
    format!("build --profile {} --locked{packages}{programs}", profile(bench))
}

/// Returns the build profile of a benchmark. The host is built as an embedding application would ship it; with
/// `bowline` itself that takes too long.
fn profile(bench: Bench) -> &'static str {
    match bench {
        Bench::Host => "dist",
        Bench::Wire | Bench::Files | Bench::Agent | Bench::Proxy | Bench::Serve => "bench",
    }
}

/// Returns the folder of a profile's programs below the target folder.
fn profile_folder(profile: &str) -> &str {
    if profile == "bench" { "release" } else { profile }
}

/// Installs the SDK peers. Peers that cannot be installed here are left out of the measurement.
fn install_sdk_peers(world: &RepoContext) -> anyhow::Result<Vec<SdkPeer>> {
    let mut peers = Vec::new();
    for peer in SdkPeer::ALL {
        match peer.install(world, PeerSpeed::Optimised) {
            StepOutcome::Passed => peers.push(peer),
            StepOutcome::Skipped(why) => {
                eprintln!("SKIPPED: nothing is measured against the {} peer: {why}", peer.name())
            }
            StepOutcome::Failed(why) => bail!("the {} peer: {why}", peer.name()),
        }
    }
    Ok(peers)
}

/// Installs the peer on the Rust SDK, and returns whether it is available.
fn install_rust_peer(world: &RepoContext) -> anyhow::Result<bool> {
    match SdkPeer::Rust.install(world, PeerSpeed::Optimised) {
        StepOutcome::Passed => Ok(true),
        StepOutcome::Skipped(why) => {
            eprintln!("SKIPPED: nothing is measured against the Rust SDK: {why}");
            Ok(false)
        }
        StepOutcome::Failed(why) => bail!("the peer on the Rust SDK: {why}"),
    }
}

/// Returns the arguments of the server benchmark: our server and the Rust SDK's, each with its own agent.
fn serve_arguments(root: &Path, programs: &Path, has_peer: bool) -> Vec<String> {
    let own = |name: &str| programs.join(name).display().to_string();
    let list = |words: &[String]| format!("{words:?}");
    let mut arguments = vec!["--bowline".to_owned(), own("bowline")];
    arguments.extend(["--agent".to_owned(), list(&[own("bowline-peer-agent")])]);
    arguments.extend(["--pace".to_owned(), list(&[own("pace-agent")])]);
    if has_peer {
        arguments.extend(["--sdk".to_owned(), list(&SdkPeer::Rust.agent_command(root))]);
    }
    arguments
}

/// Installs the agent that ours is measured against, and returns its command.
fn install_fast_agent(world: &RepoContext) -> anyhow::Result<Vec<String>> {
    match PublishedAgent::FastAgent.install(world, InstallScope::Usual) {
        StepOutcome::Passed => Ok(PublishedAgent::FastAgent.command(&world.root)),
        StepOutcome::Skipped(why) | StepOutcome::Failed(why) => {
            bail!("there is nothing to measure against: {}: {why}", PublishedAgent::FastAgent.name())
        }
    }
}

/// Installs the conductor, and returns whether it is available.
fn install_conductor(world: &RepoContext) -> anyhow::Result<bool> {
    match Conductor::install(world, InstallScope::All) {
        StepOutcome::Passed => Ok(true),
        StepOutcome::Skipped(why) => {
            eprintln!("SKIPPED: nothing is measured against the conductor: {why}");
            Ok(false)
        }
        StepOutcome::Failed(why) => bail!("the conductor: {why}"),
    }
}

/// Returns the arguments of the proxy benchmark: the two floor programs connected directly, through our proxy and
/// through the conductor.
fn proxy_arguments(root: &Path, programs: &Path, has_conductor: bool) -> Vec<String> {
    let own = |name: &str| programs.join(name).display().to_string();
    let agent = vec![own("floor-agent")];
    let proxy = vec![own("bowline"), "proxy".to_owned(), "--".to_owned(), own("floor-agent")];
    let list = |words: &[String]| format!("{words:?}");
    let mut arguments = vec!["--client".to_owned(), list(&[own("floor-client")])];
    arguments.extend(["--none".to_owned(), list(&agent)]);
    arguments.extend(["--between".to_owned(), "bowline".to_owned(), list(&proxy)]);
    if has_conductor {
        let conductor = list(&Conductor::command(root, &agent));
        arguments.extend(["--between".to_owned(), Conductor::NAME.to_owned(), conductor]);
    }
    arguments
}

/// Returns cargo's target directory of this workspace.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Returns the argument that names the data directory: under cargo's target directory, which is on a disk and ignored
/// by git.
fn data_arguments(target: &Path, name: &str) -> Vec<String> {
    vec!["--data".to_owned(), target.join(name).display().to_string()]
}

/// Returns the arguments of the agent benchmark: both agents, each set up to run one command without asking for
/// permission.
fn agent_arguments(programs: &Path, other: &[String]) -> Vec<String> {
    let bowline = programs.join("bowline").display().to_string();
    let ours = [bowline.as_str(), "agent", "--model", "offline", "--shell", "--mode", "full"];
    let other = [other, &["--no-permissions".to_owned()]].concat();
    let (ours, other) = (format!("{ours:?}"), format!("{other:?}"));
    let theirs = r#"***CALL_TOOL execute {"command":"echo hi"}"#;
    let name = PublishedAgent::FastAgent.name();
    let words = ["--agent", "bowline", &ours, "run echo hi", "--agent", name, &other, theirs];
    words.map(str::to_owned).to_vec()
}

/// Returns the arguments of the wire benchmark: Bowline's own peers, the floor programs and the installed peers.
fn wire_arguments(root: &Path, programs: &Path, peers: &[SdkPeer]) -> Vec<String> {
    let own = |name: &str| vec![programs.join(name).display().to_string()];
    let mut pairs = vec![("bowline", own("bowline-peer-agent"), own("bowline-peer-client"))];
    pairs.extend(peers.iter().map(|peer| (peer.name(), peer.agent_command(root), peer.client_command(root))));
    pairs.push(("floor", own("floor-agent"), own("floor-client")));
    let arguments = pairs.into_iter().flat_map(|(name, agent, client)| {
        // Rust's debug output of a list is valid JSON, which keeps a path with spaces in one piece.
        let [agent, client] = [agent, client].map(|words| format!("{words:?}"));
        ["--peer".to_owned(), name.to_owned(), "--agent".to_owned(), agent, "--client".to_owned(), client]
    });
    arguments.collect()
}

#[cfg(test)]
mod tests {
    use super::{
        Bench, agent_arguments, build_arguments, data_arguments, proxy_arguments, serve_arguments,
        wire_arguments,
    };
    use crate::peers::{PublishedAgent, SdkPeer};
    use clap::ValueEnum as _;
    use expect_test::expect;
    use std::path::Path;

    #[test]
    fn only_what_a_benchmark_runs_is_built() {
        let built: Vec<_> = Bench::value_variants().iter().map(|bench| build_arguments(*bench)).collect();
        expect![[r#"
            build --profile bench --locked --package bowline-benches --package bowline-tests --bin bench-wire --bin floor-agent --bin floor-client --bin bowline-peer-agent --bin bowline-peer-client
            build --profile bench --locked --package bowline-benches --bin bench-files
            build --profile dist --locked --package bowline-benches --bin bench-host
            build --profile bench --locked --package bowline-benches --package bowline-cli --bin bench-agent --bin bowline
            build --profile bench --locked --package bowline-benches --package bowline-cli --bin bench-proxy --bin floor-agent --bin floor-client --bin bowline
            build --profile bench --locked --package bowline-benches --package bowline-cli --package bowline-tests --bin bench-serve --bin pace-agent --bin bowline --bin bowline-peer-agent"#]]
        .assert_eq(&built.join("\n"));
    }

    #[test]
    fn bowline_and_the_floor_are_measured_beside_every_peer() {
        let arguments = wire_arguments(Path::new("/my repo"), Path::new("/out/release"), &SdkPeer::ALL);
        let pairs: Vec<_> = arguments.chunks(6).map(|pair| pair.join(" ")).collect();
        expect![[r#"
            --peer bowline --agent ["/out/release/bowline-peer-agent"] --client ["/out/release/bowline-peer-client"]
            --peer rust --agent ["/my repo/target/peers/rust/release/peer-rust-agent"] --client ["/my repo/target/peers/rust/release/peer-rust-client"]
            --peer python --agent ["/my repo/target/peers/python/bin/python", "/my repo/tests/peers/python/agent.py"] --client ["/my repo/target/peers/python/bin/python", "/my repo/tests/peers/python/client.py"]
            --peer typescript --agent ["node", "/my repo/target/peers/typescript/agent.mjs"] --client ["node", "/my repo/target/peers/typescript/client.mjs"]
            --peer floor --agent ["/out/release/floor-agent"] --client ["/out/release/floor-client"]"#]].assert_eq(&pairs.join("\n"));
    }

    #[test]
    fn the_same_ends_are_measured_with_nothing_ours_and_the_conductor_between() {
        let arguments = proxy_arguments(Path::new("/my repo"), Path::new("/out/release"), true);
        expect![[r#"
            --client
            ["/out/release/floor-client"]
            --none
            ["/out/release/floor-agent"]
            --between
            bowline
            ["/out/release/bowline", "proxy", "--", "/out/release/floor-agent"]
            --between
            conductor
            ["/my repo/target/peers/conductor/bin/agent-client-protocol-conductor", "agent", "/out/release/floor-agent"]"#]]
        .assert_eq(&arguments.join("\n"));
        assert_eq!(proxy_arguments(Path::new("/r"), Path::new("/o"), false).len(), 7);
    }

    #[test]
    fn our_server_is_measured_beside_the_sdks() {
        let arguments = serve_arguments(Path::new("/my repo"), Path::new("/out/release"), true);
        expect![[r#"
            --bowline
            /out/release/bowline
            --agent
            ["/out/release/bowline-peer-agent"]
            --pace
            ["/out/release/pace-agent"]
            --sdk
            ["/my repo/target/peers/rust/release/peer-rust-agent"]"#]]
        .assert_eq(&arguments.join("\n"));
        assert_eq!(serve_arguments(Path::new("/r"), Path::new("/o"), false).len(), 6);
    }

    #[test]
    fn files_are_measured_beside_what_cargo_makes() {
        let arguments = data_arguments(Path::new("/my repo/target"), "bench-files");
        expect!["--data /my repo/target/bench-files"].assert_eq(&arguments.join(" "));
    }

    #[test]
    fn both_agents_are_told_to_run_one_command_without_asking() {
        let other = PublishedAgent::FastAgent.command(Path::new("/my repo"));
        let arguments = agent_arguments(Path::new("/out/release"), &other);
        let agents: Vec<_> = arguments.chunks(4).map(|agent| agent.join(" ")).collect();
        expect![[r#"
            --agent bowline ["/out/release/bowline", "agent", "--model", "offline", "--shell", "--mode", "full"] run echo hi
            --agent fast-agent ["/my repo/target/peers/fast-agent/bin/fast-agent-acp", "--model", "passthrough", "--shell", "--no-permissions"] ***CALL_TOOL execute {"command":"echo hi"}"#]].assert_eq(&agents.join("\n"));
    }
}
