//! The fixture of the CLI tests: the real program in pipes, in a scratch project with its own home, with output
//! normalised to be the same in every run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) use bowline_tests::pty::search_path;

use crate::programs::build_program;

/// Returns the program, building it first if necessary.
pub(crate) fn bowline() -> PathBuf {
    static PROGRAM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    PROGRAM
        .get_or_init(|| build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]))
        .clone()
}

/// A directory with a project, and the user's directories beside it.
pub(crate) struct CliFixture {
    directory: tempfile::TempDir,
}

impl CliFixture {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["project", "home"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    /// The directory of the project and the home.
    pub(crate) fn base(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.base().join("project")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.base().join("home")
    }

    /// The directory of `config.toml` and `policy.toml`, created if missing.
    pub(crate) fn config_dir(&self) -> PathBuf {
        let config = self.home().join(".config/bowline");
        std::fs::create_dir_all(&config).unwrap();
        config
    }

    /// Returns the absolute path of a file of the project.
    pub(crate) fn file_path(&self, name: &str) -> String {
        self.project().join(name).display().to_string()
    }

    /// Writes a file of the project.
    pub(crate) fn write_file(&self, name: &str, text: &str) {
        let path = self.project().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Reads a file of the project.
    pub(crate) fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.project().join(name)).unwrap()
    }

    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.project().join(name).exists()
    }

    /// Returns the program with these arguments, in the project, with only a home and a PATH in its environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(bowline());
        command.args(arguments).current_dir(self.project()).env_clear();
        command.env("HOME", self.home()).env("PATH", search_path());
        command
    }

    /// Runs the program without stdin, and returns its output and exit status.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        self.run_with_stdin(arguments, "")
    }

    /// Runs the program with stdin.
    pub(crate) fn run_with_stdin(&self, arguments: &[&str], stdin: &str) -> String {
        let output = self.run_command(self.command(arguments), stdin);
        self.describe_output(&output)
    }

    /// Runs a command to its end.
    pub(crate) fn run_command(&self, mut command: Command, stdin: &str) -> Output {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that does not read stdin closes the pipe.
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
        child.wait_with_output().unwrap()
    }

    /// Returns a program's output and exit status as one text.
    pub(crate) fn describe_output(&self, output: &Output) -> String {
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text += "(no newline)\n";
        }
        if !output.stderr.is_empty() {
            text += &format!("--- stderr\n{}", String::from_utf8_lossy(&output.stderr));
        }
        let end = match output.status.code() {
            Some(code) => format!("--- {code}\n"),
            None => format!("--- {}\n", output.status),
        };
        self.normalize(&(text + &end))
    }

    /// Normalises directories, session ids and times.
    pub(crate) fn normalize(&self, text: &str) -> String {
        let text = text
            .replace(&self.project().display().to_string(), "$PROJECT")
            .replace(&self.home().display().to_string(), "$HOME")
            .replace(&self.base().display().to_string(), "$BASE")
            .replace(&bowline().display().to_string(), "$BOWLINE")
            // Paths relative to the root.
            .replace(self.project().display().to_string().trim_start_matches('/'), "$PROJECT");
        // Slow calls are reported on a busy machine only.
        let text: String = text.split_inclusive('\n').filter(|line| !line.starts_with("… ")).collect();
        normalize_durations(&normalize_undo_commands(&normalize_ids(&text)))
    }
}

/// Replaces session ids, 32 hexadecimal digits, by `$SESSION`, and their prefixes of 8 digits by `$SHORT`.
fn normalize_ids(text: &str) -> String {
    let mut cleaned = String::new();
    let mut word = String::new();
    let is_id =
        |word: &str, length| word.len() == length && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    for character in text.chars().chain(std::iter::once('\0')) {
        if character.is_ascii_alphanumeric() {
            word.push(character);
            continue;
        }
        cleaned += match &word {
            word if is_id(word, 32) => "$SESSION",
            // File numbers have as many digits, and so do the prefixes of UUIDs.
            word if is_id(word, 8) && !cleaned.ends_with('-') && character != '-' => "$SHORT",
            word => word,
        };
        word.clear();
        cleaned.push(character);
    }
    cleaned.pop();
    cleaned
}

/// Replaces the session in undo commands by `$SESSION`: agents choose the names of their sessions.
fn normalize_undo_commands(text: &str) -> String {
    let clean = |line: &str| match line.split_once("bowline undo") {
        Some((before, after)) if after.contains(" --session ") => {
            let (options, rest) = after.split_once(" --session ").unwrap_or_default();
            let rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
            format!("{before}bowline undo{options} --session $SESSION {rest}")
        }
        _ => line.to_owned(),
    };
    text.split_inclusive('\n').map(clean).collect()
}

/// Replaces durations such as `0.3 s`, `12 ms` or `1 min 5 s` by `TIME`.
fn normalize_durations(text: &str) -> String {
    text.split_inclusive('\n').map(normalize_durations_in_line).collect()
}

fn normalize_durations_in_line(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_number = |word: &str| {
        let digits = word.trim_start_matches(['(', '+', '~']);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let unit = |word: &str| ["ms", "s", "min"].contains(&word.trim_end_matches([')', ']', ',', '\n', ';']));
    let mut cleaned: Vec<String> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        if at + 1 < words.len() && is_number(words[at]) && unit(words[at + 1]) {
            let open = if words[at].starts_with('(') { "(" } else { "" };
            let unit = words[at + 1];
            let rest = &unit[unit.trim_end_matches([')', ']', ',', '\n', ';']).len()..];
            if cleaned.last().is_none_or(|last| last != "TIME") {
                cleaned.push(format!("{open}TIME{rest}"));
            }
            at += 2;
        } else {
            cleaned.push(words[at].to_owned());
            at += 1;
        }
    }
    cleaned.join(" ")
}

/// Writes an executable script, and returns its path.
pub(crate) fn write_script(directory: &Path, name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}
