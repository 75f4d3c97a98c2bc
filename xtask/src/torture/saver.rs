//! A saving program: it saves a file again and again, as editors and loggers do, and accounts for its lines.
//!
//! Before each save an editor reloads the text on disk into its buffer, as editors do with a file that has changed; if
//! the file is gone, it keeps its buffer. Then it adds lines, removes some that it sees, and saves. A line therefore
//! leaves the account only if the user removed it from a text that showed it. Every other line of a completed save is
//! owed to the user for ever: if the text on disk lacks it, another program removed it.

use super::random::Random;
use super::record::{EventRecorder, now_micros};
use super::style::SaveStyle;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The number of its own lines that an editor keeps in the file before it starts to remove some.
const MAX_OWN_LINES: usize = 40;
/// The number of saves without a write by the agent, after which the program waits for the agent.
const SAVES_AHEAD: usize = 4;
/// The maximum time to wait for the agent: Bowline may be recovering from a kill, or waiting for a program that writes.
const AGENT_WAIT_TIMEOUT: Duration = Duration::from_millis(20);
/// A program that only appends reads the file after this many saves, for the timeline of a loss.
const CHECK_INTERVAL: usize = 16;

/// What a saving program does.
#[derive(Debug, Clone, clap::Args)]
pub struct SaverOptions {
    /// How it saves
    #[arg(long)]
    pub style: SaveStyle,
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
    /// When the save completed.
    pub(super) saved_at: u64,
    /// When the saving program last saw the line on disk.
    pub(super) last_seen: Option<u64>,
    /// When the saving program first missed the line, since it last saw it.
    pub(super) missing_since: Option<u64>,
}

/// The account of a saving program.
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

/// Makes the planned number of saves, and writes the account.
///
/// # Errors
/// Fails on a disk error.
pub(super) fn run(plan: &SaverOptions) -> anyhow::Result<()> {
    let mut saver = Saver::new(plan)?;
    while saver.saves < plan.saves && !plan.stop.exists() {
        saver.wait_for_agent();
        saver.save().with_context(|| format!("cannot save {}", plan.file.display()))?;
        let pause = saver.random.duration_micros(0, 6000);
        sleep(pause);
    }
    // Closes the open handle, as the end of a program does.
    saver.handle = None;
    let owed = saver.owed.into_values().collect();
    SaverAccount { saves: saver.saves, owed }.write(&plan.account).context("cannot write the account")
}

struct Saver<'p> {
    options: &'p SaverOptions,
    prefix: String,
    random: Random,
    record: EventRecorder,
    saves: usize,
    line_count: usize,
    buffer: String,
    handle: Option<File>,
    owed: BTreeMap<String, OwedLine>,
    // The size of the agent's record when last checked, and the number of saves since.
    agent_progress: (u64, usize),
}

impl<'p> Saver<'p> {
    fn new(plan: &'p SaverOptions) -> anyhow::Result<Self> {
        let handle = match plan.style {
            SaveStyle::Logger => Some(OpenOptions::new().append(true).create(true).open(&plan.file)?),
            SaveStyle::Held => Some(open_read_write(&plan.file)?),
            SaveStyle::InPlace
            | SaveStyle::Truncate
            | SaveStyle::Rename
            | SaveStyle::Backup
            | SaveStyle::Append => None,
        };
        Ok(Self {
            options: plan,
            prefix: plan.style.line_prefix(plan.seed),
            random: Random::new(plan.seed, plan.style.name()),
            record: EventRecorder::open(&plan.record)?,
            saves: 0,
            line_count: 0,
            buffer: String::new(),
            handle,
            owed: BTreeMap::new(),
            agent_progress: (0, 0),
        })
    }

    /// Waits if the agent has not touched the file for some saves: without the agent no line is at risk.
    fn wait_for_agent(&mut self) {
        let deadline = Instant::now() + AGENT_WAIT_TIMEOUT;
        loop {
            let done = fs::metadata(&self.options.agent_record).map_or(0, |found| found.len());
            if done != self.agent_progress.0 {
                self.agent_progress = (done, 0);
            }
            if self.agent_progress.1 < SAVES_AHEAD || Instant::now() >= deadline || self.options.stop.exists()
            {
                self.agent_progress.1 += 1;
                return;
            }
            sleep(Duration::from_micros(500));
        }
    }

    fn save(&mut self) -> io::Result<()> {
        let lock = self.options.lock.as_deref().map(File::create).transpose()?;
        if let Some(lock) = &lock {
            lock.lock()?;
        }
        let added = if self.options.style.only_appends() { self.append()? } else { self.edit()? };
        drop(lock);
        let saved_at = now_micros();
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
                let mut file = OpenOptions::new().append(true).create(true).open(&self.options.file)?;
                file.write_all(text.as_bytes())?;
            }
        }
        if self.saves.is_multiple_of(CHECK_INTERVAL)
            && let Some(found) = read_text(&self.options.file)?
        {
            self.note_present_lines(&found);
        }
        self.record_save(&added, 0)?;
        Ok(added)
    }

    /// Loads the text on disk into the buffer, edits it and saves it. Returns the new lines.
    fn edit(&mut self) -> io::Result<Vec<String>> {
        let found = match &self.handle {
            Some(handle) => Some(read_handle(handle)?),
            None => read_text(&self.options.file)?,
        };
        if let Some(found) = found {
            self.buffer = found;
            let seen = self.buffer.clone();
            self.note_present_lines(&seen);
        }
        let mut lines: Vec<String> = self.buffer.lines().map(str::to_owned).collect();
        let removed = self.choose_removed(&lines);
        lines.retain(|line| !removed.contains(line));
        let added: Vec<String> = (0..self.random.between(1, 2)).map(|_| self.new_line()).collect();
        for line in &added {
            let at = if self.random.chance(70) { lines.len() } else { self.random.below(lines.len() + 1) };
            lines.insert(at, line.clone());
        }
        self.buffer = lines.into_iter().map(|line| line + "\n").collect();
        self.write_buffer()?;
        for line in &removed {
            self.owed.remove(line);
        }
        self.record_save(&added, removed.len())?;
        Ok(added)
    }

    /// Chooses own lines of the buffer to remove, once there are many.
    fn choose_removed(&mut self, lines: &[String]) -> Vec<String> {
        let own: Vec<&String> = lines.iter().filter(|line| line.starts_with(&self.prefix)).collect();
        if own.len() <= MAX_OWN_LINES && !self.random.chance(10) {
            return Vec::new();
        }
        (0..self.random.between(1, 3))
            .filter_map(|_| own.get(self.random.below(own.len())).map(|line| (*line).clone()))
            .collect()
    }

    fn new_line(&mut self) -> String {
        const WORDS: [&str; 6] = ["the rabbit", "comes up", "out of", "the hole", "round", "the tree"];
        self.line_count += 1;
        let word = WORDS.get(self.random.below(WORDS.len())).copied().unwrap_or_default();
        format!("{}{:06} {word}", self.prefix, self.line_count)
    }

    /// Records which own lines a text on disk contains.
    fn note_present_lines(&mut self, text: &str) {
        let at = now_micros();
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

    fn record_save(&mut self, added: &[String], removed: usize) -> io::Result<()> {
        let numbers: Vec<&str> = added.iter().filter_map(|line| line.split(' ').next()).collect();
        let text = format!("save {}: added {}, removed {removed}", self.saves + 1, numbers.join(" "));
        self.record.record(self.options.style.name(), &text)
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let (path, text) = (self.options.file.as_path(), self.buffer.as_bytes());
        let random = &mut self.random;
        match self.options.style {
            SaveStyle::InPlace => {
                let mut file = open_read_write(path)?;
                file.write_all(text)?;
                maybe_sleep(random, 20, 300);
                file.set_len(text.len() as u64)
            }
            SaveStyle::Truncate => {
                let mut file = File::create(path)?;
                sleep(random.duration_micros(100, 2000));
                let (first, second) = text.split_at(random.below(text.len()));
                file.write_all(first)?;
                maybe_sleep(random, 50, 2000);
                file.write_all(second)
            }
            SaveStyle::Rename => {
                let new = path.with_extension("new");
                fs::write(&new, text)?;
                maybe_sleep(random, 20, 300);
                fs::rename(&new, path)
            }
            SaveStyle::Backup => {
                let backup = path.with_extension("txt~");
                match fs::rename(path, &backup) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                maybe_sleep(random, 50, 1000);
                fs::write(path, text)?;
                match fs::remove_file(&backup) {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                }
            }
            SaveStyle::Held => {
                let Some(handle) = &self.handle else { return Ok(()) };
                handle.write_all_at(text, 0)?;
                maybe_sleep(random, 20, 300);
                handle.set_len(text.len() as u64)
            }
            // These styles have no buffer.
            SaveStyle::Append | SaveStyle::Logger => Ok(()),
        }
    }
}

/// Sleeps in some cases, so that the other side interferes at every step.
fn maybe_sleep(random: &mut Random, percent: usize, most: usize) {
    if random.chance(percent) {
        sleep(random.duration_micros(20, most));
    }
}

fn open_read_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Returns the contents of a file, or `None` if it does not exist.
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
