//! Writing down every message between a host and an agent.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bowline_state::failure::quote;
use bowline_wire::{Direction, Tap};

use crate::ending::Ending;

/// What a message that went to the agent stands behind, and one that came from there.
const MARKS: [&[u8; 2]; 2] = [b"> ", b"< "];

/// A file that has every message: one a line, as it was sent, behind `> ` if it went to the agent and `< ` if it came
/// from there.
#[derive(Debug)]
pub(super) struct Trace {
    // None once it could not be written: what is said of that is said once, when the file is opened.
    file: Mutex<Option<File>>,
}

impl Trace {
    /// Begins a file. It is for its owner alone: prompts and files are in it. In a directory of the workspace it would be
    /// taken for work of the agent, which could also have put a link there.
    pub(super) fn begin(path: &Path, roots: &[PathBuf]) -> Result<Self, Ending> {
        let shown = quote(&path.display().to_string());
        let cannot = |error: io::Error| Ending::Usage(format!("cannot write the trace {shown}: {error}"));
        let directory = path.parent().unwrap_or(Path::new("/")).canonicalize().map_err(cannot)?;
        if roots.iter().any(|root| directory.starts_with(root)) {
            return Err(Ending::Usage(format!(
                "the trace {shown} would lie inside the workspace, among the agent's work: name a file elsewhere"
            )));
        }
        let Some(name) = path.file_name() else {
            return Err(Ending::Usage(format!("cannot write the trace {shown}: name a file")));
        };
        let file = open(&directory.join(name)).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Ending::Usage(format!(
                "{shown} is there and is no trace: name another file, or remove this one"
            )),
            _ => cannot(error),
        })?;
        Ok(Self { file: Mutex::new(Some(file)) })
    }
}

/// Opens a new file, or an old one that is empty or a trace.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let link = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    options.custom_flags(i32::try_from(link.bits()).unwrap_or_default());
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        opened => return opened,
    }
    let taken = || io::Error::from(ErrorKind::AlreadyExists);
    // Also a link, a directory or a device.
    let mut file = options.open(path).map_err(|_| taken())?;
    if !file.metadata()?.is_file() {
        return Err(taken());
    }
    let mut begins = Vec::new();
    (&mut file).take(2).read_to_end(&mut begins)?;
    if !begins.is_empty() && !MARKS.iter().any(|mark| begins == **mark) {
        return Err(taken());
    }
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

impl Tap for Trace {
    fn line(&self, direction: Direction, line: &[u8]) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let [sent, received] = MARKS;
        let mark = match direction {
            Direction::Sent => sent,
            Direction::Received => received,
        };
        // A full disk ends the trace, not the work.
        if let Some(open) = &mut *file
            && open.write_all(&[mark.as_slice(), line, b"\n"].concat()).is_err()
        {
            *file = None;
        }
    }
}

/// Several who listen to the same connection.
pub(super) struct Taps(pub(super) Vec<Arc<dyn Tap>>);

impl Tap for Taps {
    fn line(&self, direction: Direction, line: &[u8]) {
        for tap in &self.0 {
            tap.line(direction, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_trace_replaces_traces_alone() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let root = base.join("project");
        std::fs::create_dir(&root).unwrap();
        let precious = base.join("precious");
        std::fs::write(&precious, "mine\n").unwrap();
        symlink(&precious, base.join("link")).unwrap();
        symlink(&root, base.join("way")).unwrap();
        std::fs::write(base.join("old"), "> {}\n< {}\n").unwrap();
        std::fs::write(base.join("empty"), "").unwrap();
        std::fs::set_permissions(base.join("old"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let begin = |name: &str| match Trace::begin(&base.join(name), std::slice::from_ref(&root)) {
            Ok(trace) => {
                trace.line(Direction::Sent, b"{}");
                let mode = base.join(name).metadata().unwrap().permissions().mode() & 0o777;
                format!("{:?} {mode:o}", std::fs::read_to_string(base.join(name)).unwrap())
            }
            Err(ending) => format!("{ending:?}").replace(&base.display().to_string(), "$BASE"),
        };
        let names =
            ["new", "old", "empty", "precious", "link", "project/t", "way/t", "project/../b", "none/t", "."];
        let told: String = names.iter().map(|name| format!("{name}: {}\n", begin(name))).collect();
        expect_test::expect![[r#"
            new: "> {}\n" 600
            old: "> {}\n" 600
            empty: "> {}\n" 600
            precious: Usage("$BASE/precious is there and is no trace: name another file, or remove this one")
            link: Usage("$BASE/link is there and is no trace: name another file, or remove this one")
            project/t: Usage("the trace $BASE/project/t would lie inside the workspace, among the agent's work: name a file elsewhere")
            way/t: Usage("the trace $BASE/way/t would lie inside the workspace, among the agent's work: name a file elsewhere")
            project/../b: "> {}\n" 600
            none/t: Usage("cannot write the trace $BASE/none/t: No such file or directory (os error 2)")
            .: Usage("$BASE/. is there and is no trace: name another file, or remove this one")
        "#]].assert_eq(&told);
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine\n");
    }
}
