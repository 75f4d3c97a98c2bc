//! The real program in pipes: a scratch project, a home of its own beside it, and everything that a run wrote as one text
//! in which nothing differs from run to run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::programs::program;

/// Returns the program, building it first if that has not been done.
pub(crate) fn bowline() -> PathBuf {
    static PROGRAM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    PROGRAM.get_or_init(|| program("bowline", &["build", "--quiet", "--package", "bowline-cli"])).clone()
}

/// A directory with a project in it, and the user's own places beside it.
pub(crate) struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["project", "home"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    /// Where project and home are.
    pub(crate) fn base(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.base().join("project")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.base().join("home")
    }

    /// The directory of `config.toml` and `policy.toml`, which is made if it is not there.
    pub(crate) fn config(&self) -> PathBuf {
        let config = self.home().join(".config/bowline");
        std::fs::create_dir_all(&config).unwrap();
        config
    }

    /// Returns the whole name of a file of the project.
    pub(crate) fn path(&self, name: &str) -> String {
        self.project().join(name).display().to_string()
    }

    /// Writes a file of the project.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.project().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Reads a file of the project.
    pub(crate) fn get(&self, name: &str) -> String {
        std::fs::read_to_string(self.project().join(name)).unwrap()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.project().join(name).exists()
    }

    /// Returns the program with these arguments, in the project, with nothing in its environment but a home and a path.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(bowline());
        command.args(arguments).current_dir(self.project()).env_clear();
        command.env("HOME", self.home()).env("PATH", search_path());
        command
    }

    /// Runs the program with nothing to read, and returns what it wrote and how it ended.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        self.run_with(arguments, "")
    }

    /// Runs the program with something to read.
    pub(crate) fn run_with(&self, arguments: &[&str], stdin: &str) -> String {
        let output = self.output(self.command(arguments), stdin);
        self.told(&output)
    }

    /// Runs a command to its end.
    pub(crate) fn output(&self, mut command: Command, stdin: &str) -> Output {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Who does not read it closes the pipe.
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
        child.wait_with_output().unwrap()
    }

    /// Everything that a program wrote, and how it ended.
    pub(crate) fn told(&self, output: &Output) -> String {
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
        self.clean(&(text + &end))
    }

    /// Returns text in which directories, ids of sessions and times are the same in every run.
    pub(crate) fn clean(&self, text: &str) -> String {
        let text = text
            .replace(&self.project().display().to_string(), "$PROJECT")
            .replace(&self.home().display().to_string(), "$HOME")
            .replace(&self.base().display().to_string(), "$BASE")
            .replace(&bowline().display().to_string(), "$BOWLINE")
            // As seen from the root.
            .replace(self.project().display().to_string().trim_start_matches('/'), "$PROJECT");
        // That something takes long is told on a busy machine only.
        let text: String = text.split_inclusive('\n').filter(|line| !line.starts_with("… ")).collect();
        times(&undos(&ids(&text)))
    }
}

/// Where a program of the tests finds others: as whoever runs the tests.
pub(crate) fn search_path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// Puts `$SESSION` in place of what looks like the id of a session, 32 hexadecimal digits, and `$SHORT` in place of the
/// beginning of one, 8 of them.
fn ids(text: &str) -> String {
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
            // The numbers of files have as many digits, and so have the beginnings of UUIDs.
            word if is_id(word, 8) && !cleaned.ends_with('-') && character != '-' => "$SHORT",
            word => word,
        };
        word.clear();
        cleaned.push(character);
    }
    cleaned.pop();
    cleaned
}

/// Puts `$SESSION` in place of the session in what takes a turn back: agents name theirs as they like.
fn undos(text: &str) -> String {
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

/// Puts `TIME` in place of durations such as `0.3 s`, `12 ms` or `1 min 5 s`.
fn times(text: &str) -> String {
    text.split_inclusive('\n').map(times_of_line).collect()
}

fn times_of_line(line: &str) -> String {
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

/// Writes a program of the tests, and returns its name.
pub(crate) fn script(directory: &Path, name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}
