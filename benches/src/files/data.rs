//! What is measured on: files and a tree, made once on a real disk and found again by the next run.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Progress;

/// Part of every name, so that data of another making is not taken for this.
const MAKING: &str = "v2";

/// How many files a directory of the tree has.
const PER_DIRECTORY: usize = 100;

/// A made file takes at least this much of the disk.
const BLOCK: u64 = 4 << 10;

/// What scratch files need.
const SCRATCH: u64 = 256 << 20;

/// A file system in memory, by its number.
const TMPFS: i64 = 0x0102_1994;

/// A file of made lines.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// The files, and a directory for what lasts no longer than the run.
#[derive(Debug)]
pub(super) struct Data {
    /// The root that all files but the tree are in.
    pub(super) root: PathBuf,
    /// Of 4 KiB, 1 MiB, 8 MiB and 64 MiB.
    pub(super) wholes: [Lines; 4],
    pub(super) huge: Lines,
    pub(super) tree: PathBuf,
    pub(super) tree_files: usize,
    pub(super) scratch: PathBuf,
}

impl Data {
    /// Makes what is not there yet.
    pub(super) fn prepare(place: &Path, huge: u64, tree: usize, progress: &mut Progress<'_>) -> Result<Self> {
        fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
        let place = place.canonicalize()?;
        ensure!(
            rustix::fs::statfs(&place)?.f_type as i64 != TMPFS,
            "{} is in memory, where no write is durable; set CARGO_TARGET_DIR to a directory on a disk",
            place.display()
        );
        let root = place.join("files");
        fs::create_dir_all(&root)?;
        let lines = |bytes: u64| Lines { path: root.join(format!("{bytes}-{MAKING}.txt")), bytes };
        let wholes = [4 << 10, 1 << 20, 8 << 20, 64 << 20].map(lines);
        let huge = lines(huge);
        let scratch = place.join(format!("scratch-{}", std::process::id()));
        let tree_path = place.join(format!("tree-{tree}-{MAKING}"));
        let data = Self { root: root.clone(), wholes, huge, tree: tree_path, tree_files: tree, scratch };
        data.check_room(&place)?;
        for file in data.wholes.iter().chain([&data.huge]) {
            if !file.is_there() {
                progress.tell(&format!("make a file of {} KiB", file.bytes >> 10))?;
                making(&file.path, |part| make_lines(part, file.bytes))?;
            }
        }
        if !data.tree.exists() {
            progress.tell(&format!("make a tree of {tree} files"))?;
            making(&data.tree, |part| make_tree(part, tree))?;
        }
        fs::create_dir_all(&data.scratch)?;
        Ok(data)
    }

    fn check_room(&self, place: &Path) -> Result<()> {
        let files = self.wholes.iter().chain([&self.huge]).filter(|file| !file.is_there());
        let tree = if self.tree.exists() { 0 } else { self.tree_files as u64 * BLOCK };
        let needed = files.map(|file| file.bytes).sum::<u64>() + tree + SCRATCH;
        let system = rustix::fs::statvfs(place)?;
        let free = system.f_bavail * system.f_frsize;
        ensure!(
            free >= needed,
            "{} has {} MiB free and needs {} MiB",
            place.display(),
            free >> 20,
            needed >> 20
        );
        Ok(())
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // What stays behind is found in the build directory, and harms nobody.
        fs::remove_dir_all(&self.scratch).ok();
    }
}

impl Lines {
    fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.len() == self.bytes)
    }

    /// Returns how many lines it has.
    pub(super) fn count(&self) -> Result<u32> {
        use std::io::Read;
        let mut file = File::open(&self.path)?;
        let mut buffer = vec![0; 1 << 20];
        let mut lines = 0;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok(lines);
            }
            lines += memchr::memchr_iter(b'\n', &buffer[..read]).count() as u32;
        }
    }
}

/// Makes something under another name first, so that nothing half made is found later.
fn making(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let part = path.with_extension("part");
    let remove = || if part.is_dir() { fs::remove_dir_all(&part) } else { fs::remove_file(&part) };
    if part.exists() {
        remove()?;
    }
    let made = make(&part).and_then(|()| Ok(fs::rename(&part, path)?));
    if made.is_err() {
        // The error that came first is the one to tell.
        remove().ok();
    }
    made.with_context(|| format!("cannot make {}", path.display()))
}

fn make_lines(path: &Path, bytes: u64) -> Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut text = Text::new(bytes);
    let mut left = bytes as usize;
    while left > 0 {
        let line = text.line();
        if line.len() + 1 > left {
            // The last line is filled up, so that the file has the bytes that it should have.
            file.write_all(&vec![b'.'; left - 1])?;
            file.write_all(b"\n")?;
            break;
        }
        file.write_all(line.as_bytes())?;
        file.write_all(b"\n")?;
        left -= line.len() + 1;
    }
    file.flush()?;
    Ok(file.get_ref().sync_all()?)
}

fn make_tree(path: &Path, files: usize) -> Result<()> {
    let mut text = Text::new(files as u64);
    for number in 0..files {
        let (package, module) = (number / PER_DIRECTORY / 20, number / PER_DIRECTORY % 20);
        let directory = path.join(format!("package-{package:03}/module-{module:02}"));
        if number % PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        let name = directory.join(format!("file-{:02}.rs", number % PER_DIRECTORY));
        let lines = 5 + text.below(60);
        fs::write(name, text.lines(lines))?;
    }
    // What is scanned should be on the disk, or writing it back goes on beside the measurement.
    File::open(path)?.sync_all()?;
    rustix::fs::sync();
    Ok(())
}

const WORDS: &[&str] = &[
    "let", "value", "=", "read(", "path", ")?;", "return", "self.", "count", "if", "else", "{", "}", "//",
    "the", "window", "of", "lines", "match", "Some(", "None", "=>", "index", "offset", "0x1f", "\"text\"",
    "fn", "pub", "struct", "impl", "for", "in", "..", "&mut", "buffer", "while", "loop", "break", "journal",
];

/// Text that looks like source code, the same in every run.
#[derive(Debug)]
pub(crate) struct Text {
    state: u64,
    line: String,
}

impl Text {
    /// Returns the text that belongs to a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed | 1, line: String::new() }
    }

    /// Returns a number below another (xorshift).
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % end.max(1)
    }

    /// Returns a line of some 10 to 120 bytes, without its end.
    pub(crate) fn line(&mut self) -> &str {
        let bytes = 10 + self.below(100);
        self.line.clear();
        for _ in 0..self.below(4) {
            self.line.push_str("    ");
        }
        // Most source code is ASCII, and a check for UTF-8 takes several times as long where it is not.
        if self.below(200) == 0 {
            self.line.push_str("// é → ü ");
        }
        while self.line.len() < bytes {
            let word = self.below(WORDS.len());
            self.line.push_str(WORDS[word]);
            self.line.push(' ');
        }
        self.line.truncate(self.line.trim_end().len());
        &self.line
    }

    /// Returns so many lines.
    pub(crate) fn lines(&mut self, count: usize) -> String {
        let mut text = String::new();
        for _ in 0..count {
            text.push_str(self.line());
            text.push('\n');
        }
        text
    }

    /// Returns lines of about so many bytes.
    pub(crate) fn of_bytes(&mut self, bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < bytes {
            text.push_str(self.line());
            text.push('\n');
        }
        text
    }
}
