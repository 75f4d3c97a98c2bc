//! The benchmark of the host: what policy, journal and audit cost between an agent and the disk, against an agent that is
//! served by the same wire and nothing else, in one run.

mod agent;
mod mix;
mod options;
mod report;
mod serving;

use std::fs;
use std::io::{BufRead as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bowline_state::audit::{Action, Entry, Subject};
use bowline_state::changes::Moment;
use bowline_workspace::audit::{self, AuditLog};

use crate::bench::child::{Pipes, Watched};
use crate::bench::machine::Usage;
use crate::files::data::Text;
use crate::files::{Progress, Sides};
use agent::Step;
use mix::MixFile;
use serving::Served;

pub use agent::act;
pub use options::{Options, Side, Task};
pub use report::{Measured, MixedReads, Reads, Report};
pub use serving::serve;

/// The bytes of the file that is read.
const READ: usize = 4 << 10;

/// A process that takes longer is a failure.
const LIMIT: Duration = Duration::from_secs(900);

/// How much a run does.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    /// What the reads of one side in one round are to take.
    phase: Duration,
    writes: usize,
    commands: usize,
    /// The bytes that a command puts out.
    output: u64,
    output_rounds: usize,
    entries: usize,
}

const FULL: Extent = Extent {
    rounds: 11,
    phase: Duration::from_millis(700),
    writes: 200,
    commands: 40,
    output: 2 << 30,
    output_rounds: 3,
    entries: 50_000,
};

const QUICK: Extent = Extent {
    rounds: 5,
    phase: Duration::from_millis(250),
    writes: 50,
    commands: 15,
    output: 256 << 20,
    output_rounds: 3,
    entries: 10_000,
};

/// Measures everything and reports; `progress` is told what goes on.
///
/// # Errors
/// Fails if something cannot be done.
pub fn run(options: &Options, progress: &mut dyn Write) -> Result<Report> {
    let extent = if options.quick { QUICK } else { FULL };
    let mut progress = Progress { begun: Instant::now(), to: progress };
    let place = Scratch::make(&options.data)?;
    let project = place.0.join("project");
    fs::create_dir(&project)?;
    // What a host finds in a project at its first look is not part of what is measured.
    let commands = commands(&project, extent.output)?;
    let files = mix::make(&project)?;
    let usage = Usage::now()?;
    let mut sides = Running::all(&place.0)?;
    let mut measured = Measured::default();
    for reads in &mut measured.reads {
        progress.tell(&format!("reads, {} in flight", reads.inflight))?;
        measure_reads(&mut sides, &project, reads, extent)?;
    }
    for mix in &mut measured.mixes {
        progress.tell(&format!("reads of many files, {} in flight", mix.inflight))?;
        mix.bare = mixed_reads(&mut sides, &files, mix.inflight, extent)?;
    }
    progress.tell("writes")?;
    measured.writes = writes(&mut sides, &place.0, extent)?;
    progress.tell("short commands")?;
    measured.starts = starts(&mut sides, extent)?;
    for (name, line) in commands {
        progress.tell(&format!("output: {name}"))?;
        let (output, grown) = outputs(&mut sides, &line, extent)?;
        measured.outputs.push((name, output));
        measured.grown_mib = measured.grown_mib.max(grown);
    }
    measured.output_mib = extent.output >> 20;
    progress.tell("audit log")?;
    measured.append_us = appends(&place.0, extent)?;
    for side in sides.into_iter() {
        side.end()?;
    }
    measured.others = usage.others_since()?;
    progress.tell("done")?;
    Ok(Report::new(measured))
}

/// A directory for the time of the run.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn make(data: &Path) -> Result<Self> {
        let place = data.join(format!("scratch-{}", std::process::id()));
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        Ok(Self(place.canonicalize()?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind is found in the build directory, and harms nobody.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A process that serves an agent.
struct Running {
    child: Watched,
    pipes: Pipes,
}

impl Running {
    /// Starts a host, the bare wire and the answers from memory.
    fn all(place: &Path) -> Result<[Self; 3]> {
        let [host, bare, memory] =
            [Side::Host(place.to_owned()), Side::Bare, Side::Memory].map(|side| Self::start(&side));
        Ok([host?, bare?, memory?])
    }

    fn start(side: &Side) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let (child, pipes) = Watched::start(command.args(side.arguments()).stdin(Stdio::piped()), LIMIT)?;
        Ok(Self { child, pipes })
    }

    fn take(&mut self, step: &Step) -> Result<Served> {
        let stdin = self.pipes.stdin.as_mut().context("no pipe to the process")?;
        stdin.write_all(format!("{}\n", serde_json::to_string(step)?).as_bytes())?;
        let mut line = String::new();
        if self.pipes.stdout.read_line(&mut line)? == 0 {
            return Err(self.child.early_end().context(format!("{step:?}")));
        }
        serde_json::from_str(&line).with_context(|| format!("cannot read the line {line}"))
    }

    /// Takes a step and returns the milliseconds of each of `count`; `bytes` must have come.
    fn ms_each(&mut self, step: &Step, count: usize, bytes: usize) -> Result<f64> {
        let done = self.take(step)?.done;
        ensure!(done.bytes == bytes, "{step:?} came to {} bytes instead of {bytes}", done.bytes);
        Ok(done.seconds * 1e3 / count as f64)
    }

    fn end(self) -> Result<()> {
        drop(self.pipes);
        self.child.end()
    }
}

fn measure_reads(sides: &mut [Running; 3], project: &Path, reads: &mut Reads, extent: Extent) -> Result<()> {
    let path = project.join("read.txt");
    let mut text = Text::new(1).of_bytes(READ);
    text.truncate(text.floor_char_boundary(READ - 1));
    text.extend(std::iter::repeat_n('.', READ - 1 - text.len()));
    text.push('\n');
    fs::write(&path, text)?;
    let paths = vec![path.display().to_string()];
    let step = |count| Step::Read { paths: paths.clone(), count, inflight: reads.inflight };
    // Enough for a first idea of how many fit into the time, and to warm up.
    let first = 2000;
    let mut count = usize::MAX;
    for side in &mut *sides {
        let each = side.ms_each(&step(first), first, first * READ)?;
        count = count.min((extent.phase.as_secs_f64() * 1e3 / each) as usize);
    }
    let count = count.clamp(reads.inflight, 1_000_000);
    for round in 0..extent.rounds {
        let mut took = [0.0; 3];
        // Who goes first changes from round to round.
        let order = if round % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
        for at in order {
            took[at] = sides[at].ms_each(&step(count), count, count * READ)?;
        }
        let [host, bare, memory] = took;
        reads.bare.ours.push(host);
        reads.bare.theirs.push(bare);
        reads.memory.ours.push(host);
        reads.memory.theirs.push(memory);
    }
    Ok(())
}

/// Measures reads of every file of the mix, as often as the time of a phase allows.
fn mixed_reads(
    [host, bare, _]: &mut [Running; 3],
    files: &[MixFile],
    inflight: usize,
    extent: Extent,
) -> Result<Sides> {
    let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let bytes: usize = files.iter().map(|file| file.bytes).sum();
    let read = |side: &mut Running, times: usize| {
        let count = times * files.len();
        side.ms_each(&Step::Read { paths: paths.clone(), count, inflight }, count, times * bytes)
    };
    // The first time warms both up, and tells how often all files fit into the time.
    let each = read(host, 1)?.max(read(bare, 1)?);
    let times = (extent.phase.as_secs_f64() * 1e3 / (each * files.len() as f64)) as usize;
    let times = times.clamp(1, 1000);
    Sides::by_turns(extent.rounds, || read(host, times), || read(bare, times))
}

fn writes([host, bare, _]: &mut [Running; 3], place: &Path, extent: Extent) -> Result<Sides> {
    let count = extent.writes;
    let step = |name: &str| Step::Write { path: place.join(name).display().to_string(), count };
    // The host's file lies in its project; the other's beside it, where nobody watches.
    let (ours, theirs) = (step("project/written.txt"), step("written.txt"));
    let bytes = count * agent::WRITTEN;
    Sides::by_turns(
        extent.rounds,
        || host.ms_each(&ours, count, bytes),
        || bare.ms_each(&theirs, count, bytes),
    )
}

fn starts([host, ..]: &mut [Running; 3], extent: Extent) -> Result<Sides> {
    let count = extent.commands;
    let step = Step::Run { command: "echo".to_owned(), args: vec!["hello".to_owned()], count };
    Sides::by_turns(
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

/// Returns commands that put out so many bytes, for a shell.
fn commands(project: &Path, bytes: u64) -> Result<[(String, String); 2]> {
    let part: u64 = 8 << 20;
    let mut text = String::new();
    let mut lines = Text::new(3);
    while text.len() < part as usize - 256 {
        let number = text.len() % 7;
        text.push_str(&format!("\x1b[1;3{number}m{}\x1b[0m {}\n", "warning", lines.line()));
    }
    text.extend(std::iter::repeat_n('.', part as usize - text.len()));
    let path = project.join("colours.txt");
    fs::write(&path, text)?;
    let names = vec!["colours.txt"; (bytes / part) as usize].join(" ");
    let coloured = format!("cd {} && cat {names}", project.display());
    Ok([("yes".to_owned(), format!("yes | head -c {bytes}")), ("coloured".to_owned(), coloured)])
}

/// Measures milliseconds for each MiB, and by how many MiB the host grew.
fn outputs([host, ..]: &mut [Running; 3], line: &str, extent: Extent) -> Result<(Sides, f64)> {
    let args = vec!["-c".to_owned(), line.to_owned()];
    let step = Step::Run { command: "sh".to_owned(), args, count: 1 };
    let mib = (extent.output >> 20) as f64;
    let mut grown: u64 = 0;
    let sides = Sides::by_turns(
        extent.output_rounds,
        || {
            let served = host.take(&step)?;
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
            ensure!(child.wait()?.success() && bytes == extent.output, "{bytes} bytes came");
            Ok(begun.elapsed().as_secs_f64() * 1e3 / mib)
        },
    )?;
    Ok((sides, grown as f64 / 1024.0))
}

/// Returns the microseconds of an entry, round by round.
fn appends(place: &Path, extent: Extent) -> Result<Vec<f64>> {
    let log = AuditLog::open(&place.join("audit"), &place.join("anchor"), audit::Settings::default())?;
    let mut entry = Entry::new(Moment(1_700_000_000_000), Action::Read);
    (entry.session, entry.turn) = (Some("bench".to_owned()), Some(1));
    entry.subject =
        Subject::Path { asked: place.join("project/read.txt").display().to_string(), resolved: None };
    (entry.latency_us, entry.bytes) = (Some(50), Some(READ as u64));
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
