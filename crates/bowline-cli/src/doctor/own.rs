//! What is Bowline's own: its versions, its directories, the user's rules, the workspace here.

use std::io::{ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use bowline_state::version;
use bowline_workspace::audit::{self, AuditLog};
use bowline_workspace::journal::{self, Condition};
use bowline_workspace::policy::PolicyFile;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::watch::{Watch, WatchError, WatchOptions};
use bowline_workspace::workspace::Workspace;
use file_lease::{Lease, LeaseError};

use super::report::Section;
use crate::client::agents::{self, Known};
use crate::client::config::Config;
use crate::places::Places;

/// So many bytes are written to see whether a disk has room.
const PROBE: usize = 256 << 10;
/// As many findings of an audit log are told.
const MAX_FINDINGS: usize = 3;

/// Looks at versions.
pub(super) fn versions() -> Section {
    let mut section = Section::new("Bowline");
    let program = std::env::current_exe().map_or_else(|_| "?".to_owned(), |path| path.display().to_string());
    section.well(format!("bowline {}, {program}", env!("CARGO_PKG_VERSION")));
    let spoken: Vec<String> = version::SUPPORTED.iter().map(ToString::to_string).collect();
    section.well(format!(
        "speaks version {} of the Agent Client Protocol (its schema {})",
        spoken.join(", "),
        schema()
    ));
    section
}

/// Returns the version of the protocol's schema that this was built with, which the workspace's manifest fixes.
fn schema() -> &'static str {
    let manifest = include_str!("../../../../Cargo.toml");
    let line = manifest.lines().find(|line| line.starts_with("agent-client-protocol-schema = "));
    let version = line.and_then(|line| line.split("version = \"=").nth(1)?.split('"').next());
    version.unwrap_or("of unknown version")
}

/// Looks at the user's directories.
pub(super) fn directories(places: &Result<Places>, cwd: &Path) -> Section {
    let mut section = Section::new("Directories");
    let places = match places {
        Ok(places) => places,
        Err(error) => {
            section.broken("there is no place for what Bowline keeps", error.to_string());
            return section;
        }
    };
    let all = [
        ("state", &places.state, "XDG_STATE_HOME", Holds::Texts),
        ("configuration", &places.config, "XDG_CONFIG_HOME", Holds::Settings),
        ("anchors", &places.anchors, "XDG_DATA_HOME", Holds::Settings),
    ];
    for (name, path, variable, holds) in all {
        directory(&mut section, (name, variable, holds), path, cwd);
    }
    section.summary(format!("{} and {}", places.state.display(), places.config.display()));
    section
}

/// What a directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// What users and agents wrote: nobody else's business.
    Texts,
    /// What others may know, and may not change.
    Settings,
}

fn directory(section: &mut Section, (name, variable, holds): (&str, &str, Holds), path: &Path, cwd: &Path) {
    let shown = path.display();
    let own =
        path.ancestors().find_map(|part| Some(part.canonicalize().ok()?.join(path.strip_prefix(part).ok()?)));
    let workspace = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    if own.is_some_and(|own| own.starts_with(&workspace)) {
        section.broken(
            format!("{name}: {shown} lies inside the workspace, where an agent could change it"),
            format!(
                "work in a directory below {}, or set {variable} to one outside of it",
                workspace.display()
            ),
        );
        return;
    }
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = path.ancestors().skip(1).find(|parent| parent.exists()).unwrap_or(Path::new("/"));
            match try_to_write(parent) {
                Ok(()) => section.well(format!("{name}: {shown} is made when it is needed")),
                Err(error) => section.broken(
                    format!("{name}: {shown} cannot be made: {}: {error}", parent.display()),
                    writable(&error, parent, variable),
                ),
            };
            return;
        }
        Err(error) => {
            section.broken(
                format!("{name}: {shown}: {error}"),
                format!("set {variable} to a directory of yours"),
            );
            return;
        }
    };
    if !metadata.is_dir() {
        section.broken(format!("{name}: {shown} is no directory"), "move it out of the way");
        return;
    }
    if let Err(error) = try_to_write(path) {
        section
            .broken(format!("{name}: {shown} cannot be written: {error}"), writable(&error, path, variable));
        return;
    }
    let mode = metadata.permissions().mode();
    if mode & 0o022 != 0 {
        section.broken(format!("{name}: {shown} can be changed by others"), format!("chmod go-rwx {shown}"));
    } else if mode & 0o055 != 0 && holds == Holds::Texts {
        section.lacking(format!("{name}: {shown} can be read by others"), format!("chmod go-rwx {shown}"));
    } else {
        section.well(format!("{name}: {shown}"));
    }
}

/// Writes to a file that has no name in a directory: on a full disk one can be made, and nothing written to it.
fn try_to_write(directory: &Path) -> std::io::Result<()> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.write_all(&[0; PROBE])?;
    file.sync_all()
}

/// Says what to do about a directory that cannot be written.
fn writable(error: &std::io::Error, path: &Path, variable: &str) -> String {
    let (shown, elsewhere) = (path.display(), format!("or set {variable} to a directory elsewhere"));
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
            "make room on the disk of {shown}, {elsewhere}: until then nothing is changed, as it could not be undone"
        ),
        ErrorKind::FileTooLarge => format!("raise the limit on the size of files (ulimit -f), {elsewhere}"),
        ErrorKind::ReadOnlyFilesystem => {
            format!("the disk of {shown} is mounted for reading only: mount it for writing, {elsewhere}")
        }
        _ => format!("make {shown} writable (chmod u+rwx), {elsewhere}"),
    }
}

/// Looks at the user's rules, as they hold here.
pub(super) fn rules(places: &Places, cwd: &Path) -> Section {
    let mut section = Section::new("Rules");
    let path = places.policy();
    let root = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    let stated = PolicyFile::open(&path, std::slice::from_ref(&root)).and_then(|file| file.stated());
    match stated {
        Ok((policy, stated)) => {
            let count = match policy.rules.len() {
                0 => "no rules".to_owned(),
                1 => "one rule".to_owned(),
                many => format!("{many} rules"),
            };
            let preset = policy.preset;
            let by = if stated.is_some() { "" } else { ", as nothing else is said" };
            let file =
                if path.exists() { path.display().to_string() } else { format!("no {}", path.display()) };
            section.well(format!("{file}: {count} for this workspace, and preset {preset}{by}"));
            section.summary(format!("{count} for this workspace, and preset {preset}{by}"));
        }
        Err(error) => {
            section.broken(error.to_string(), "until that is put right agents may do nothing here");
        }
    }
    section
}

/// Looks at the workspace, its journal and its audit log.
pub(super) fn workspace(places: &Places, cwd: &Path) -> Section {
    let mut section = Section::new("This workspace");
    let roots = match Roots::open(&RootSpec::writable(cwd.to_string_lossy()), &[]) {
        Ok(roots) => roots,
        Err(error) => {
            section.broken(error.to_string(), "name another directory with --cwd");
            return section;
        }
    };
    section.well(format!("directory: {}", roots.cwd()));
    let git = Path::new(roots.cwd()).ancestors().find(|directory| directory.join(".git").exists());
    section.well(match git {
        Some(directory) => format!("git: yes, in {}", directory.display()),
        None => "git: none; changes are kept and undone without it".to_owned(),
    });
    let git = if git.is_some() { "in git" } else { "without git" };
    section.summary(format!("{}, {git}", roots.cwd()));
    let own = Workspace::journal_directory(&places.state, &roots);
    look_at_journal(&mut section, &own);
    let (log, anchor) = AuditLog::locate(&own, &places.anchors);
    look_at_log(&mut section, &log, &anchor);
    look_at_watches(&mut section, &roots);
    look_at_leases(&mut section, Path::new(roots.cwd()));
    section
}

fn look_at_journal(section: &mut Section, directory: &Path) {
    let shown = directory.display();
    match journal::examine(directory) {
        Ok(Condition::Missing) => section.plain("journal: none yet"),
        Ok(Condition::Usable { changes: 1, .. }) => section.well(format!("journal: one change, in {shown}")),
        Ok(Condition::Usable { changes, .. }) => section.well(format!("journal: {changes} changes, in {shown}")),
        Ok(Condition::Unusable(why)) => section.broken(
            format!("journal: {shown}: {why}"),
            "what it tells of cannot be undone; whoever opens it next sets it aside whole and begins a new one",
        ),
        Err(error) => section.broken(format!("journal: {error}"), ""),
    };
}

fn look_at_log(section: &mut Section, directory: &Path, anchor: &Path) {
    let report = match audit::verify(directory, anchor) {
        Ok(report) => report,
        Err(error) => {
            section.broken(format!("audit log: {error}"), "");
            return;
        }
    };
    let entries = match report.entries {
        0 if report.is_intact() => {
            section.plain("audit log: none yet");
            return;
        }
        1 => "one entry".to_owned(),
        many => format!("{many} entries"),
    };
    let finding = if report.is_intact() {
        section.well(format!("audit log: {entries}, as they were written"))
    } else if report.is_unharmed() {
        section.lacking(
            format!("audit log: {entries}, and what a crash left"),
            "nothing is missing; the next entry says so too",
        )
    } else {
        section.broken(
            format!("audit log: {entries}, and not as they were written"),
            "somebody changed the log: `bowline audit verify` tells all of it",
        )
    };
    for found in report.findings.iter().take(MAX_FINDINGS) {
        finding.detail(found.to_string());
    }
}

fn look_at_watches(section: &mut Section, roots: &Roots) {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let limit = limit.map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned());
    match Watch::start(roots, WatchOptions::default()) {
        Ok(_) => section.well(format!("watches: the system tells what changes here (it has {limit} in all)")),
        Err(WatchError::Limit) => section.lacking(
            "watches: the system has none left, so all files are looked at after every command",
            format!("raise fs.inotify.max_user_watches, which is {limit}"),
        ),
        Err(error) => section.lacking(
            format!("watches: {error}, so all files are looked at after every command"),
            "name a smaller directory with --cwd, or leave it so",
        ),
    };
}

/// Says whether programs that are writing a file are noticed before it is replaced.
fn look_at_leases(section: &mut Section, directory: &Path) {
    let try_lease = || -> std::io::Result<Option<LeaseError>> {
        // The lease needs a file that is not open for writing.
        let path = tempfile::Builder::new().prefix(".bowline-").tempfile_in(directory)?.into_temp_path();
        let file = std::fs::File::open(&path)?;
        Ok(Lease::try_shared(file.as_fd()).err())
    };
    match try_lease() {
        Err(_) => section.plain("open writers: not tried, the directory cannot be written"),
        Ok(None) => section.well("open writers: noticed before a file is replaced, by leases"),
        Ok(Some(error)) => section.lacking(
            format!("open writers: {error}"),
            "a program that saves a file at the moment that an agent writes it may go unnoticed: save before you prompt",
        ),
    };
}

/// Looks at the user's configuration, and returns it if it can be read.
pub(super) fn configuration(places: &Places) -> (Section, Option<Config>) {
    let mut section = Section::new("Configuration");
    let config = match Config::read(&places.config) {
        Ok(config) => config,
        Err(ending) => {
            section.broken(ending.to_string(), "repair it: until then neither run, chat nor agent starts");
            return (section, None);
        }
    };
    let shown = config.path.display();
    let names: Vec<&str> = config.agents.keys().map(String::as_str).collect();
    let is_there = config.path.exists();
    match (names.as_slice(), config.defaults()) {
        ([], None) if !is_there => {
            section.plain(format!("no {shown}: it can set the agent, the model and what is approved"));
        }
        ([], None) => {
            section.well(format!("{shown} sets nothing"));
        }
        (names, defaults) => {
            let agents = (!names.is_empty()).then(|| format!("names the agents {}", names.join(", ")));
            let defaults = defaults.map(|defaults| format!("sets {defaults}"));
            let told: Vec<String> = defaults.into_iter().chain(agents).collect();
            section.well(format!("{shown} {}", told.join(", and ")));
        }
    }
    for Known { name, trouble } in agents::known(&config, std::env::var_os("PATH").as_ref()) {
        if let Some(trouble) = trouble {
            section.lacking(
                format!("the agent {name}: {trouble}"),
                format!("install it, or change its command in {shown}"),
            );
        }
    }
    section.plain(
        "MCP servers: those that an editor names for a session, or --mcp of run and chat; none are kept here",
    );
    (section, Some(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_schema_is_known() {
        assert!(schema().starts_with(|c: char| c.is_ascii_digit()), "{}", schema());
    }

    #[test]
    fn what_to_do_depends_on_why_a_directory_cannot_be_written() {
        let kinds = [
            ErrorKind::StorageFull,
            ErrorKind::QuotaExceeded,
            ErrorKind::FileTooLarge,
            ErrorKind::ReadOnlyFilesystem,
            ErrorKind::PermissionDenied,
        ];
        let told = kinds.map(|kind| writable(&kind.into(), Path::new("/d"), "XDG_STATE_HOME") + "\n");
        expect![[r#"
            make room on the disk of /d, or set XDG_STATE_HOME to a directory elsewhere: until then nothing is changed, as it could not be undone
            make room on the disk of /d, or set XDG_STATE_HOME to a directory elsewhere: until then nothing is changed, as it could not be undone
            raise the limit on the size of files (ulimit -f), or set XDG_STATE_HOME to a directory elsewhere
            the disk of /d is mounted for reading only: mount it for writing, or set XDG_STATE_HOME to a directory elsewhere
            make /d writable (chmod u+rwx), or set XDG_STATE_HOME to a directory elsewhere
        "#]].assert_eq(&told.concat());
    }
}
