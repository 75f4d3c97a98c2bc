//! The host benchmark: the cost of policy, journal and audit log between an agent and the disk, against an agent served
//! by the same wire alone, in one run.

mod agent;
mod mix;
mod options;
mod report;
mod server;

use std::fs;
use std::io::{BufRead as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bowline_access::audit::{self, AuditLog};
use bowline_policy::audit::{AuditAction, AuditEntry, AuditSubject};
use bowline_text::time::Timestamp;

use crate::files::data::TextGenerator;
use crate::files::{BenchProgress, Comparison};
use crate::wire::child::{ChildPipes, TimedChild};
use crate::wire::machine::CpuUsage;
use agent::AgentStep;
use mix::MixFile;
use server::StepReport;

pub use agent::run_step_agent;
pub use options::{HostBenchCommand, HostBenchOptions, ServerKind};
pub use report::{HostBenchReport, HostMeasurements, MixedReadComparison, ReadComparison};
pub use server::serve_steps;

/// The size of the file that is read.
const READ_BYTES: usize = 4 << 10;

/// The time after which a process counts as failed.
const TIME_LIMIT: Duration = Duration::from_secs(900);

/// The size of a run.
#[derive(Debug, Clone, Copy)]
struct HostBenchSize {
    rounds: usize,
    /// The target duration of one side's reads in one round.
    phase_time: Duration,
    writes: usize,
    commands: usize,
    /// The size of a command's output.
    output_bytes: u64,
    output_rounds: usize,
    entries: usize,
}

const FULL: HostBenchSize = HostBenchSize {
    rounds: 11,
    phase_time: Duration::from_millis(700),
    writes: 200,
    commands: 40,
    output_bytes: 2 << 30,
    output_rounds: 3,
    entries: 50_000,
};

const QUICK: HostBenchSize = HostBenchSize {
    rounds: 5,
    phase_time: Duration::from_millis(250),
    writes: 50,
    commands: 15,
    output_bytes: 256 << 20,
    output_rounds: 3,
    entries: 10_000,
};

/// Measures everything and returns the report; writes messages to `progress`.
///
/// # Errors
/// Fails if an operation fails.
pub fn run(options: &HostBenchOptions, progress: &mut dyn Write) -> Result<HostBenchReport> {
    let extent = if options.quick { QUICK } else { FULL };
    let mut progress = BenchProgress { started: Instant::now(), output: progress };
    let place = ScratchDir::make(&options.data)?;
    let project = place.0.join("project");
    fs::create_dir(&project)?;
    // Created before the host starts, so that the host's first scan is not measured.
    let commands = output_commands(&project, extent.output_bytes)?;
    let files = mix::make_files(&project)?;
    let usage = CpuUsage::now()?;
    let mut sides = BenchServer::start_all(&place.0)?;
    let mut measured = HostMeasurements::default();
    for reads in &mut measured.reads {
        progress.report(&format!("reads, {} in flight", reads.inflight))?;
        measure_reads(&mut sides, &project, reads, extent)?;
    }
    for mix in &mut measured.mixed_reads {
        progress.report(&format!("reads of many files, {} in flight", mix.inflight))?;
        mix.bare = measure_mixed_reads(&mut sides, &files, mix.inflight, extent)?;
    }
    progress.report("writes")?;
    measured.writes = measure_writes(&mut sides, &place.0, extent)?;
    progress.report("short commands")?;
    measured.command_starts = measure_command_starts(&mut sides, extent)?;
    for (name, line) in commands {
        progress.report(&format!("output: {name}"))?;
        let (output, grown) = measure_output(&mut sides, &line, extent)?;
        measured.outputs.push((name, output));
        measured.grown_mib = measured.grown_mib.max(grown);
    }
    measured.output_mib = extent.output_bytes >> 20;
    progress.report("audit log")?;
    measured.append_us = measure_appends(&place.0, extent)?;
    for side in sides.into_iter() {
        side.end()?;
    }
    measured.other_cores = usage.other_cores_since()?;
    progress.report("done")?;
    Ok(HostBenchReport::new(measured))
}

/// A directory for the duration of the run.
pub(crate) struct ScratchDir(pub(crate) PathBuf);

impl ScratchDir {
    pub(crate) fn make(data: &Path) -> Result<Self> {
        let place = data.join(format!("scratch-{}", std::process::id()));
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        Ok(Self(place.canonicalize()?))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Leftovers in the build directory do no harm.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A process that serves an agent.
struct BenchServer {
    child: TimedChild,
    pipes: ChildPipes,
}

impl BenchServer {
    /// Starts a host, the bare wire and the server that answers from memory.
    fn start_all(place: &Path) -> Result<[Self; 3]> {
        let [host, bare, memory] = [ServerKind::Host(place.to_owned()), ServerKind::Bare, ServerKind::Memory]
            .map(|side| Self::start(&side));
        Ok([host?, bare?, memory?])
    }

    fn start(side: &ServerKind) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let (child, pipes) =
            TimedChild::start(command.args(side.arguments()).stdin(Stdio::piped()), TIME_LIMIT)?;
        Ok(Self { child, pipes })
    }

    fn run_step(&mut self, step: &AgentStep) -> Result<StepReport> {
        let stdin = self.pipes.stdin.as_mut().context("no pipe to the process")?;
        stdin.write_all(format!("{}\n", serde_json::to_string(step)?).as_bytes())?;
        let mut line = String::new();
        if self.pipes.stdout.read_line(&mut line)? == 0 {
            return Err(self.child.early_end_error().context(format!("{step:?}")));
        }
        serde_json::from_str(&line).with_context(|| format!("cannot read the line {line}"))
    }

    /// Runs a step and returns the milliseconds of each of `count` operations; exactly `bytes` bytes must arrive.
    fn ms_each(&mut self, step: &AgentStep, count: usize, bytes: usize) -> Result<f64> {
        let done = self.run_step(step)?.done;
        ensure!(done.bytes == bytes, "{step:?} came to {} bytes instead of {bytes}", done.bytes);
        Ok(done.seconds * 1e3 / count as f64)
    }

    fn end(self) -> Result<()> {
        drop(self.pipes);
        self.child.end()
    }
}

fn measure_reads(
    sides: &mut [BenchServer; 3],
    project: &Path,
    reads: &mut ReadComparison,
    extent: HostBenchSize,
) -> Result<()> {
    let path = project.join("read.txt");
    let mut text = TextGenerator::new(1).next_bytes(READ_BYTES);
    text.truncate(text.floor_char_boundary(READ_BYTES - 1));
    text.extend(std::iter::repeat_n('.', READ_BYTES - 1 - text.len()));
    text.push('\n');
    fs::write(&path, text)?;
    let paths = vec![path.display().to_string()];
    let step = |count| AgentStep::Read { paths: paths.clone(), count, inflight: reads.inflight };
    // Enough for a first estimate of the count, and to warm up.
    let first = 2000;
    let mut count = usize::MAX;
    for side in &mut *sides {
        let each = side.ms_each(&step(first), first, first * READ_BYTES)?;
        count = count.min((extent.phase_time.as_secs_f64() * 1e3 / each) as usize);
    }
    let count = count.clamp(reads.inflight, 1_000_000);
    for round in 0..extent.rounds {
        let mut took = [0.0; 3];
        // The order alternates from round to round.
        let order = if round % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
        for at in order {
            took[at] = sides[at].ms_each(&step(count), count, count * READ_BYTES)?;
        }
        let [host, bare, memory] = took;
        reads.bare.ours.push(host);
        reads.bare.theirs.push(bare);
        reads.memory.ours.push(host);
        reads.memory.theirs.push(memory);
    }
    Ok(())
}

/// Measures reads of every file of the mix, as often as the duration of a phase allows.
fn measure_mixed_reads(
    [host, bare, _]: &mut [BenchServer; 3],
    files: &[MixFile],
    inflight: usize,
    extent: HostBenchSize,
) -> Result<Comparison> {
    let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let bytes: usize = files.iter().map(|file| file.bytes).sum();
    let read = |side: &mut BenchServer, times: usize| {
        let count = times * files.len();
        side.ms_each(&AgentStep::Read { paths: paths.clone(), count, inflight }, count, times * bytes)
    };
    // The first pass warms both up, and shows how many passes fit into the phase.
    let each = read(host, 1)?.max(read(bare, 1)?);
    let times = (extent.phase_time.as_secs_f64() * 1e3 / (each * files.len() as f64)) as usize;
    let times = times.clamp(1, 1000);
    Comparison::measure_alternately(extent.rounds, || read(host, times), || read(bare, times))
}

fn measure_writes(
    [host, bare, _]: &mut [BenchServer; 3],
    place: &Path,
    extent: HostBenchSize,
) -> Result<Comparison> {
    let count = extent.writes;
    let step = |name: &str| AgentStep::Write { path: place.join(name).display().to_string(), count };
    // The host's file is in its project; the other file is outside, where it is not watched.
    let (ours, theirs) = (step("project/written.txt"), step("written.txt"));
    let bytes = count * agent::WRITTEN_BYTES;
    Comparison::measure_alternately(
        extent.rounds,
        || host.ms_each(&ours, count, bytes),
        || bare.ms_each(&theirs, count, bytes),
    )
}

fn measure_command_starts([host, ..]: &mut [BenchServer; 3], extent: HostBenchSize) -> Result<Comparison> {
    let count = extent.commands;
    let step = AgentStep::Run { command: "echo".to_owned(), args: vec!["hello".to_owned()], count };
    Comparison::measure_alternately(
        extent.rounds,
        || host.ms_each(&step, count, count * "hello\n".len()),
        || {
            let begun = Instant::now();
            for _ in 0..count {
                let output = Command::new("echo").arg("hello").output()?;
                ensure!(output.stdout == b"hello\n", "echo said {output:?}");
            }
            Ok(begun.elapsed().as_secs_f64() * 1e3 / count as f64)
        },
    )
}

/// Returns shell commands whose output has this size.
fn output_commands(project: &Path, bytes: u64) -> Result<[(String, String); 2]> {
    let part: u64 = 8 << 20;
    let mut text = String::new();
    let mut lines = TextGenerator::new(3);
    while text.len() < part as usize - 256 {
        let number = text.len() % 7;
        text.push_str(&format!("\x1b[1;3{number}m{}\x1b[0m {}\n", "warning", lines.next_line()));
    }
    text.extend(std::iter::repeat_n('.', part as usize - text.len()));
    let path = project.join("colours.txt");
    fs::write(&path, text)?;
    let names = vec!["colours.txt"; (bytes / part) as usize].join(" ");
    let coloured = format!("cd {} && cat {names}", project.display());
    Ok([("yes".to_owned(), format!("yes | head -c {bytes}")), ("coloured".to_owned(), coloured)])
}

/// Measures the milliseconds per MiB, and the host's growth in MiB.
fn measure_output(
    [host, ..]: &mut [BenchServer; 3],
    line: &str,
    extent: HostBenchSize,
) -> Result<(Comparison, f64)> {
    let args = vec!["-c".to_owned(), line.to_owned()];
    let step = AgentStep::Run { command: "sh".to_owned(), args, count: 1 };
    let mib = (extent.output_bytes >> 20) as f64;
    let mut grown: u64 = 0;
    let sides = Comparison::measure_alternately(
        extent.output_rounds,
        || {
            let served = host.run_step(&step)?;
            ensure!(served.done.bytes > 0, "nothing was put out");
            grown = grown.max(served.grown_kib);
            Ok(served.done.seconds * 1e3 / mib)
        },
        || {
            let begun = Instant::now();
            let mut child = Command::new("sh").arg("-c").arg(line).stdout(Stdio::piped()).spawn()?;
            let mut pipe = child.stdout.take().context("no pipe")?;
            let mut buffer = vec![0; 64 << 10];
            let mut bytes = 0;
            loop {
                match pipe.read(&mut buffer)? {
                    0 => break,
                    read => bytes += read as u64,
                }
            }
            ensure!(child.wait()?.success() && bytes == extent.output_bytes, "{bytes} bytes came");
            Ok(begun.elapsed().as_secs_f64() * 1e3 / mib)
        },
    )?;
    Ok((sides, grown as f64 / 1024.0))
}

/// Returns the microseconds per entry, round by round.
fn measure_appends(place: &Path, extent: HostBenchSize) -> Result<Vec<f64>> {
    let log = AuditLog::open(&place.join("audit"), &place.join("anchor"), audit::AuditOptions::default())?;
    let mut entry = AuditEntry::new(Timestamp(1_700_000_000_000), AuditAction::Read);
    (entry.session, entry.turn) = (Some("bench".to_owned()), Some(1));
    entry.subject = AuditSubject::Path {
        requested: place.join("project/read.txt").display().to_string(),
        resolved: None,
    };
    (entry.latency_us, entry.bytes) = (Some(50), Some(READ_BYTES as u64));
    let each = extent.entries / extent.rounds;
    let round = || {
        let begun = Instant::now();
        for _ in 0..each {
            log.append(&entry)?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / each as f64)
    };
    (0..extent.rounds).map(|_| round()).collect()
}
