//! A program that saves a file again and again, as editors and loggers do, and accounts for its lines.
//!
//! Before each save an editor takes the text on disk into its buffer, as editors do with a file that changed under them;
//! if the file is gone it keeps its buffer. Then it adds lines of its own, removes some that it sees, and saves. So a line
//! leaves the account only if the user removed it from a text that showed it. Every other line of a completed save is
//! owed to the user for ever: if the text on disk lacks it, another program took it away.

use super::random::Random;
use super::record::{Recorder, now};
use super::style::Style;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// So many own lines an editor keeps in the file before it begins to remove some.
const MOST_LINES: usize = 40;
/// So many saves are made while the agent leaves the file alone, before the program waits for it.
const SAVES_AHEAD: usize = 4;
/// How long it waits for the agent at most: Bowline may be on its way back from a kill, or wait for a program that writes.
const WAITS_FOR_AGENT: Duration = Duration::from_millis(20);
/// A program that only appends looks at the file after so many saves, for the time line of a loss.
const LOOKS_EVERY: usize = 16;

/// What a saving program does.
#[derive(Debug, Clone, clap::Args)]
pub struct SaverPlan {
    /// How it saves
    #[arg(long)]
    pub style: Style,
    /// The file
    #[arg(long)]
    pub file: PathBuf,
    /// The seed of the round
    #[arg(long)]
    pub seed: u64,
    /// How often it saves
    #[arg(long)]
    pub saves: usize,
    /// Where it records what it does
    #[arg(long)]
    pub record: PathBuf,
    /// Where it writes its account in the end
    #[arg(long)]
    pub account: PathBuf,
    /// What the agent records of this file, by which the program sees that the agent works
    #[arg(long)]
    pub agent_record: PathBuf,
    /// A file whose existence ends it early
    #[arg(long)]
    pub stop: PathBuf,
    /// A file that is locked during each save
    #[arg(long)]
    pub lock: Option<PathBuf>,
}

/// A line that the user saved and did not remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwedLine {
    pub(super) line: String,
    /// When the save was complete.
    pub(super) saved_at: u64,
    /// When the saving program last saw it on disk.
    pub(super) last_seen: Option<u64>,
    /// When it first did not, since it last did.
    pub(super) missing_since: Option<u64>,
}

/// What a saving program owes an account of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SaverAccount {
    pub(super) saves: usize,
    pub(super) owed: Vec<OwedLine>,
}

impl SaverAccount {
    fn write(&self, path: &Path) -> io::Result<()> {
        let time = |time: Option<u64>| time.unwrap_or(0);
        let mut text = format!("{}\n", self.saves);
        for OwedLine { line, saved_at, last_seen, missing_since } in &self.owed {
            text += &format!("{saved_at} {} {} {line}\n", time(*last_seen), time(*missing_since));
        }
        fs::write(path, text)
    }

    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("a saving program left no account at {}", path.display()))?;
        let mut lines = text.lines();
        let saves = lines.next().unwrap_or_default().parse().context("the account has no number of saves")?;
        let owed = lines.filter_map(|line| {
            let mut words = line.splitn(4, ' ');
            let mut time = || words.next()?.parse::<u64>().ok();
            let (saved_at, last_seen, missing_since) = (time()?, time()?, time()?);
            let some = |time: u64| (time > 0).then_some(time);
            let line = words.next()?.to_owned();
            Some(OwedLine { line, saved_at, last_seen: some(last_seen), missing_since: some(missing_since) })
        });
        Ok(Self { saves, owed: owed.collect() })
    }
}

/// Saves as often as the plan says, and writes the account.
///
/// # Errors
/// Fails when the disk does.
pub(super) fn run(plan: &SaverPlan) -> anyhow::Result<()> {
    let mut saver = Saver::new(plan)?;
    while saver.saves < plan.saves && !plan.stop.exists() {
        saver.wait_for_agent();
        saver.save().with_context(|| format!("cannot save {}", plan.file.display()))?;
        let pause = saver.random.micros(0, 6000);
        sleep(pause);
    }
    // What is open ends with the program, as a handle of any program does.
    saver.handle = None;
    let owed = saver.owed.into_values().collect();
    SaverAccount { saves: saver.saves, owed }.write(&plan.account).context("cannot write the account")
}

struct Saver<'p> {
    plan: &'p SaverPlan,
    prefix: String,
    random: Random,
    record: Recorder,
    saves: usize,
    lines: usize,
    buffer: String,
    handle: Option<File>,
    owed: BTreeMap<String, OwedLine>,
    // How much the agent had recorded, and how often was saved since.
    agent: (u64, usize),
}

impl<'p> Saver<'p> {
    fn new(plan: &'p SaverPlan) -> anyhow::Result<Self> {
        let handle = match plan.style {
            Style::Logger => Some(OpenOptions::new().append(true).create(true).open(&plan.file)?),
            Style::Held => Some(open_whole(&plan.file)?),
            Style::InPlace | Style::Truncate | Style::Rename | Style::Backup | Style::Append => None,
        };
        Ok(Self {
            plan,
            prefix: plan.style.line_prefix(plan.seed),
            random: Random::new(plan.seed, plan.style.name()),
            record: Recorder::open(&plan.record)?,
            saves: 0,
            lines: 0,
            buffer: String::new(),
            handle,
            owed: BTreeMap::new(),
            agent: (0, 0),
        })
    }

    /// Waits if the agent has left the file alone for some saves: without it there is nothing to lose a line by.
    fn wait_for_agent(&mut self) {
        let deadline = Instant::now() + WAITS_FOR_AGENT;
        loop {
            let done = fs::metadata(&self.plan.agent_record).map_or(0, |found| found.len());
            if done != self.agent.0 {
                self.agent = (done, 0);
            }
            if self.agent.1 < SAVES_AHEAD || Instant::now() >= deadline || self.plan.stop.exists() {
                self.agent.1 += 1;
                return;
            }
            sleep(Duration::from_micros(500));
        }
    }

    fn save(&mut self) -> io::Result<()> {
        let lock = self.plan.lock.as_deref().map(File::create).transpose()?;
        if let Some(lock) = &lock {
            lock.lock()?;
        }
        let added = if self.plan.style.only_appends() { self.append()? } else { self.edit()? };
        drop(lock);
        let saved_at = now();
        for line in added {
            let owed = OwedLine { line: line.clone(), saved_at, last_seen: None, missing_since: None };
            self.owed.insert(line, owed);
        }
        self.saves += 1;
        Ok(())
    }

    /// Adds lines at the end of the file, and returns them.
    fn append(&mut self) -> io::Result<Vec<String>> {
        let added: Vec<String> = (0..self.random.between(1, 2)).map(|_| self.new_line()).collect();
        let text: String = added.iter().map(|line| format!("{line}\n")).collect();
        match &mut self.handle {
            Some(handle) => handle.write_all(text.as_bytes())?,
            None => {
                let mut file = OpenOptions::new().append(true).create(true).open(&self.plan.file)?;
                file.write_all(text.as_bytes())?;
            }
        }
        if self.saves.is_multiple_of(LOOKS_EVERY)
            && let Some(found) = read_text(&self.plan.file)?
        {
            self.look(&found);
        }
        self.note(&added, 0)?;
        Ok(added)
    }

    /// Takes the text on disk into the buffer, edits it and saves it. Returns the lines that are new.
    fn edit(&mut self) -> io::Result<Vec<String>> {
        let found = match &self.handle {
            Some(handle) => Some(read_handle(handle)?),
            None => read_text(&self.plan.file)?,
        };
        if let Some(found) = found {
            self.buffer = found;
            let seen = self.buffer.clone();
            self.look(&seen);
        }
        let mut lines: Vec<String> = self.buffer.lines().map(str::to_owned).collect();
        let removed = self.choose_removed(&lines);
        lines.retain(|line| !removed.contains(line));
        let added: Vec<String> = (0..self.random.between(1, 2)).map(|_| self.new_line()).collect();
        for line in &added {
            let at = if self.random.percent(70) { lines.len() } else { self.random.below(lines.len() + 1) };
            lines.insert(at, line.clone());
        }
        self.buffer = lines.into_iter().map(|line| line + "\n").collect();
        self.write_buffer()?;
        for line in &removed {
            self.owed.remove(line);
        }
        self.note(&added, removed.len())?;
        Ok(added)
    }

    /// Chooses own lines of the buffer to remove, once there are many.
    fn choose_removed(&mut self, lines: &[String]) -> Vec<String> {
        let own: Vec<&String> = lines.iter().filter(|line| line.starts_with(&self.prefix)).collect();
        if own.len() <= MOST_LINES && !self.random.percent(10) {
            return Vec::new();
        }
        (0..self.random.between(1, 3))
            .filter_map(|_| own.get(self.random.below(own.len())).map(|line| (*line).clone()))
            .collect()
    }

    fn new_line(&mut self) -> String {
        const WORDS: [&str; 6] = ["the rabbit", "comes up", "out of", "the hole", "round", "the tree"];
        self.lines += 1;
        let word = WORDS.get(self.random.below(WORDS.len())).copied().unwrap_or_default();
        format!("{}{:06} {word}", self.prefix, self.lines)
    }

    /// Notes which own lines a text on disk has.
    fn look(&mut self, text: &str) {
        let at = now();
        let own: std::collections::BTreeSet<&str> =
            text.lines().filter(|line| line.starts_with(&self.prefix)).collect();
        for owed in self.owed.values_mut() {
            if own.contains(owed.line.as_str()) {
                owed.last_seen = Some(at);
                owed.missing_since = None;
            } else if owed.missing_since.is_none() {
                owed.missing_since = Some(at);
            }
        }
    }

    fn note(&mut self, added: &[String], removed: usize) -> io::Result<()> {
        let numbers: Vec<&str> = added.iter().filter_map(|line| line.split(' ').next()).collect();
        let text = format!("save {}: added {}, removed {removed}", self.saves + 1, numbers.join(" "));
        self.record.record(self.plan.style.name(), &text)
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let (path, text) = (self.plan.file.as_path(), self.buffer.as_bytes());
        let random = &mut self.random;
        match self.plan.style {
            Style::InPlace => {
                let mut file = open_whole(path)?;
                file.write_all(text)?;
                pause(random, 20, 300);
                file.set_len(text.len() as u64)
            }
            Style::Truncate => {
                let mut file = File::create(path)?;
                sleep(random.micros(100, 2000));
                let (first, second) = text.split_at(random.below(text.len()));
                file.write_all(first)?;
                pause(random, 50, 2000);
                file.write_all(second)
            }
            Style::Rename => {
                let new = path.with_extension("new");
                fs::write(&new, text)?;
                pause(random, 20, 300);
                fs::rename(&new, path)
            }
            Style::Backup => {
                let backup = path.with_extension("txt~");
                match fs::rename(path, &backup) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                pause(random, 50, 1000);
                fs::write(path, text)?;
                match fs::remove_file(&backup) {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                }
            }
            Style::Held => {
                let Some(handle) = &self.handle else { return Ok(()) };
                handle.write_all_at(text, 0)?;
                pause(random, 20, 300);
                handle.set_len(text.len() as u64)
            }
            // They have no buffer.
            Style::Append | Style::Logger => Ok(()),
        }
    }
}

/// Waits in some of the cases, so that the other side is met at every step.
fn pause(random: &mut Random, percent: usize, most: usize) {
    if random.percent(percent) {
        sleep(random.micros(20, most));
    }
}

fn open_whole(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Returns what a file holds; nothing if it is not there.
fn read_text(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_handle(handle: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1 << 14];
    loop {
        match handle.read_at(&mut piece, bytes.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            count => bytes.extend_from_slice(piece.get(..count).unwrap_or_default()),
        }
    }
}
