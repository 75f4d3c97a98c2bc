//! The benchmark data: files and a tree, generated once on a real disk and reused by later runs.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::BenchProgress;

/// Part of every file name, so that data of another version is not reused.
const DATA_VERSION: &str = "v2";

/// The number of files in a directory of the tree.
const FILES_PER_DIRECTORY: usize = 100;

/// The minimum disk space of a generated file.
const BLOCK_BYTES: u64 = 4 << 10;

/// The disk space for scratch files.
const SCRATCH_BYTES: u64 = 256 << 20;

/// The magic number of a file system in memory.
const TMPFS: i64 = 0x0102_1994;

/// A file of generated lines.
#[derive(Debug)]
pub(super) struct GeneratedFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// The generated files, and a temporary directory for the run.
#[derive(Debug)]
pub(super) struct BenchData {
    /// The workspace root of all files except the tree.
    pub(super) root: PathBuf,
    /// Files of 4 KiB, 1 MiB, 8 MiB and 64 MiB.
    pub(super) whole_files: [GeneratedFile; 4],
    pub(super) huge_file: GeneratedFile,
    pub(super) tree: PathBuf,
    pub(super) tree_files: usize,
    pub(super) scratch: PathBuf,
}

impl BenchData {
    /// Generates the data that does not exist yet.
    pub(super) fn prepare(
        place: &Path,
        huge: u64,
        tree: usize,
        progress: &mut BenchProgress<'_>,
    ) -> Result<Self> {
        fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
        let place = place.canonicalize()?;
        ensure!(
            rustix::fs::statfs(&place)?.f_type as i64 != TMPFS,
            "{} is in memory, where no write is durable; set CARGO_TARGET_DIR to a directory on a disk",
            place.display()
        );
        let root = place.join("files");
        fs::create_dir_all(&root)?;
        let lines =
            |bytes: u64| GeneratedFile { path: root.join(format!("{bytes}-{DATA_VERSION}.txt")), bytes };
        let wholes = [4 << 10, 1 << 20, 8 << 20, 64 << 20].map(lines);
        let huge = lines(huge);
        let scratch = place.join(format!("scratch-{}", std::process::id()));
        let tree_path = place.join(format!("tree-{tree}-{DATA_VERSION}"));
        let data = Self {
            root: root.clone(),
            whole_files: wholes,
            huge_file: huge,
            tree: tree_path,
            tree_files: tree,
            scratch,
        };
        data.check_free_space(&place)?;
        for file in data.whole_files.iter().chain([&data.huge_file]) {
            if !file.is_complete() {
                progress.report(&format!("make a file of {} KiB", file.bytes >> 10))?;
                make_atomically(&file.path, |part| make_lines(part, file.bytes))?;
            }
        }
        if !data.tree.exists() {
            progress.report(&format!("make a tree of {tree} files"))?;
            make_atomically(&data.tree, |part| make_tree(part, tree))?;
        }
        fs::create_dir_all(&data.scratch)?;
        Ok(data)
    }

    /// Returns a repository with as many committed and packed files, which is made if it does not exist yet.
    pub(super) fn prepare_repository(
        &self,
        files: usize,
        progress: &mut BenchProgress<'_>,
    ) -> Result<PathBuf> {
        let place = self.tree.parent().context("no directory")?;
        let path = place.join(format!("repository-{files}-{DATA_VERSION}"));
        if !path.exists() {
            progress.report(&format!("make a repository of {files} files"))?;
            check_free(place, files as u64 * BLOCK_BYTES * 2 + SCRATCH_BYTES)?;
            make_atomically(&path, |part| {
                make_tree(part, files)?;
                for arguments in [
                    &["init", "--quiet"][..],
                    &["add", "--all"],
                    &["-c", "user.name=bench", "-c", "user.email=bench@example.org", "commit", "-qm", "all"],
                    &["gc", "--quiet"],
                ] {
                    // Automatic maintenance would run in the background.
                    let mut git = Command::new("git");
                    git.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]).args(arguments);
                    let status = git.current_dir(part).status().context("cannot run git")?;
                    ensure!(status.success(), "git {arguments:?} ended with {status}");
                }
                Ok(())
            })?;
        }
        Ok(path)
    }

    fn check_free_space(&self, place: &Path) -> Result<()> {
        let files = self.whole_files.iter().chain([&self.huge_file]).filter(|file| !file.is_complete());
        let tree = if self.tree.exists() { 0 } else { self.tree_files as u64 * BLOCK_BYTES };
        let needed = files.map(|file| file.bytes).sum::<u64>() + tree + SCRATCH_BYTES;
        check_free(place, needed)
    }
}

fn check_free(place: &Path, needed: u64) -> Result<()> {
    let system = rustix::fs::statvfs(place)?;
    let free = system.f_bavail * system.f_frsize;
    ensure!(free >= needed, "{} has {} MiB free and needs {} MiB", place.display(), free >> 20, needed >> 20);
    Ok(())
}

impl Drop for BenchData {
    fn drop(&mut self) {
        // Leftovers in the build directory do no harm.
        fs::remove_dir_all(&self.scratch).ok();
    }
}

impl GeneratedFile {
    fn is_complete(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.len() == self.bytes)
    }

    /// Returns the number of lines.
    pub(super) fn count_lines(&self) -> Result<u32> {
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

/// Creates a file or directory under another name first, so that a later run never finds it half complete.
fn make_atomically(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let part = path.with_extension("part");
    let remove = || if part.is_dir() { fs::remove_dir_all(&part) } else { fs::remove_file(&part) };
    if part.exists() {
        remove()?;
    }
    let made = make(&part).and_then(|()| Ok(fs::rename(&part, path)?));
    if made.is_err() {
        // The first error is the one to report.
        remove().ok();
    }
    made.with_context(|| format!("cannot make {}", path.display()))
}

fn make_lines(path: &Path, bytes: u64) -> Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut text = TextGenerator::new(bytes);
    let mut left = bytes as usize;
    while left > 0 {
        let line = text.next_line();
        if line.len() + 1 > left {
            // Pads the last line, so that the file has exactly the requested size.
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
    let mut text = TextGenerator::new(files as u64);
    for number in 0..files {
        let (package, module) = (number / FILES_PER_DIRECTORY / 20, number / FILES_PER_DIRECTORY % 20);
        let directory = path.join(format!("package-{package:03}/module-{module:02}"));
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        let name = directory.join(format!("file-{:02}.rs", number % FILES_PER_DIRECTORY));
        let lines = 5 + text.next_below(60);
        fs::write(name, text.next_lines(lines))?;
    }
    // Flushes the tree to disk, because write-back would disturb the measurement.
    File::open(path)?.sync_all()?;
    rustix::fs::sync();
    Ok(())
}

const WORDS: &[&str] = &[
    "let", "value", "=", "read(", "path", ")?;", "return", "self.", "count", "if", "else", "{", "}", "//",
    "the", "window", "of", "lines", "match", "Some(", "None", "=>", "index", "offset", "0x1f", "\"text\"",
    "fn", "pub", "struct", "impl", "for", "in", "..", "&mut", "buffer", "while", "loop", "break", "journal",
];

/// A generator of text that resembles source code and is the same in every run.
#[derive(Debug)]
pub(crate) struct TextGenerator {
    state: u64,
    line: String,
}

impl TextGenerator {
    /// Creates the generator for a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed | 1, line: String::new() }
    }

    /// Returns a number below `end` (xorshift).
    pub(crate) fn next_below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % end.max(1)
    }

    /// Returns a line of some 10 to 120 bytes, without its line ending.
    pub(crate) fn next_line(&mut self) -> &str {
        let bytes = 10 + self.next_below(100);
        self.line.clear();
        for _ in 0..self.next_below(4) {
            self.line.push_str("    ");
        }
        // Most source code is ASCII, and validating UTF-8 takes several times as long where it is not.
        if self.next_below(200) == 0 {
            self.line.push_str("// é → ü ");
        }
        while self.line.len() < bytes {
            let word = self.next_below(WORDS.len());
            self.line.push_str(WORDS[word]);
            self.line.push(' ');
        }
        self.line.truncate(self.line.trim_end().len());
        &self.line
    }

    /// Returns `count` lines.
    pub(crate) fn next_lines(&mut self, count: usize) -> String {
        let mut text = String::new();
        for _ in 0..count {
            text.push_str(self.next_line());
            text.push('\n');
        }
        text
    }

    /// Returns lines with about `bytes` bytes in total.
    pub(crate) fn next_bytes(&mut self, bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < bytes {
            text.push_str(self.next_line());
            text.push('\n');
        }
        text
    }
}
