//! Checks of Bowline's own installation: its versions, its directories, the user's rules, the workspace here.

use std::io::{ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use bowline_access::audit::{self, AuditLog};
use bowline_access::policy::PolicyFile;
use bowline_protocol::capabilities::version;
use bowline_workspace::journal::{self, JournalCondition};
use bowline_workspace::observer::file_watcher::{FileWatcher, FileWatcherError, FileWatcherOptions};
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::Workspace;
use file_lease::{Lease, LeaseError};

use super::report::ReportSection;
use bowline_client::agents::{self, ConfiguredAgentStatus};
use bowline_client::config::Config;
use bowline_client::environment::UserDirs;

/// The number of bytes written to check for free disk space.
const PROBE_BYTES: usize = 256 << 10;
/// The maximum number of audit log findings reported.
const MAX_FINDINGS: usize = 3;

/// Checks versions.
pub(super) fn check_versions() -> ReportSection {
    let mut section = ReportSection::new("Bowline");
    let program = std::env::current_exe().map_or_else(|_| "?".to_owned(), |path| path.display().to_string());
    section.add_ok(format!("bowline {}, {program}", env!("CARGO_PKG_VERSION")));
    let versions: Vec<String> = version::SUPPORTED.iter().map(ToString::to_string).collect();
    section.add_ok(format!(
        "speaks version {} of the Agent Client Protocol (its schema {})",
        versions.join(", "),
        schema_version()
    ));
    section
}

/// Returns the version of the protocol schema that this was built with, which the workspace manifest pins.
fn schema_version() -> &'static str {
    let manifest = include_str!("../../../../Cargo.toml");
    let line = manifest.lines().find(|line| line.starts_with("agent-client-protocol-schema = "));
    let version = line.and_then(|line| line.split("version = \"=").nth(1)?.split('"').next());
    version.unwrap_or("of unknown version")
}

/// Checks the user's directories.
pub(super) fn check_directories(dirs: &Result<UserDirs>, cwd: &Path) -> ReportSection {
    let mut section = ReportSection::new("Directories");
    let dirs = match dirs {
        Ok(dirs) => dirs,
        Err(error) => {
            section.add_broken("there is no place for what Bowline keeps", error.to_string());
            return section;
        }
    };
    let directories = [
        ("state", &dirs.state, "XDG_STATE_HOME", DirectoryContents::Texts),
        ("configuration", &dirs.config, "XDG_CONFIG_HOME", DirectoryContents::Settings),
        ("anchors", &dirs.anchors, "XDG_DATA_HOME", DirectoryContents::Settings),
    ];
    for (name, path, variable, contents) in directories {
        check_directory(&mut section, (name, variable, contents), path, cwd);
    }
    section.set_summary(format!("{} and {}", dirs.state.display(), dirs.config.display()));
    section
}

/// The contents of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryContents {
    /// Texts of users and agents: private.
    Texts,
    /// Settings: others may read them, but not change them.
    Settings,
}

fn check_directory(
    section: &mut ReportSection,
    (name, variable, contents): (&str, &str, DirectoryContents),
    path: &Path,
    cwd: &Path,
) {
    let shown = path.display();
    let resolved = path
        .ancestors()
        .find_map(|ancestor| Some(ancestor.canonicalize().ok()?.join(path.strip_prefix(ancestor).ok()?)));
    let workspace = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    if resolved.is_some_and(|resolved| resolved.starts_with(&workspace)) {
        section.add_broken(
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
            match probe_write(parent) {
                Ok(()) => section.add_ok(format!("{name}: {shown} is made when it is needed")),
                Err(error) => section.add_broken(
                    format!("{name}: {shown} cannot be made: {}: {error}", parent.display()),
                    advise_on_write_error(&error, parent, variable),
                ),
            };
            return;
        }
        Err(error) => {
            section.add_broken(
                format!("{name}: {shown}: {error}"),
                format!("set {variable} to a directory of yours"),
            );
            return;
        }
    };
    if !metadata.is_dir() {
        section.add_broken(format!("{name}: {shown} is no directory"), "move it out of the way");
        return;
    }
    if let Err(error) = probe_write(path) {
        section.add_broken(
            format!("{name}: {shown} cannot be written: {error}"),
            advise_on_write_error(&error, path, variable),
        );
        return;
    }
    let mode = metadata.permissions().mode();
    if mode & 0o022 != 0 {
        section
            .add_broken(format!("{name}: {shown} can be changed by others"), format!("chmod go-rwx {shown}"));
    } else if mode & 0o055 != 0 && contents == DirectoryContents::Texts {
        section
            .add_warning(format!("{name}: {shown} can be read by others"), format!("chmod go-rwx {shown}"));
    } else {
        section.add_ok(format!("{name}: {shown}"));
    }
}

/// Writes to an unnamed file in a directory: on a full disk, creating a file may succeed while writing to it fails.
fn probe_write(directory: &Path) -> std::io::Result<()> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.write_all(&[0; PROBE_BYTES])?;
    file.sync_all()
}

/// Returns advice for a directory that cannot be written.
fn advise_on_write_error(error: &std::io::Error, path: &Path, variable: &str) -> String {
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

/// Checks the user's rules, as they apply here.
pub(super) fn check_rules(dirs: &UserDirs, cwd: &Path) -> ReportSection {
    let mut section = ReportSection::new("Rules");
    let path = dirs.policy_file();
    let root = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    let result =
        PolicyFile::open(&path, std::slice::from_ref(&root)).and_then(|file| file.policy_and_preset());
    match result {
        Ok((policy, stated_preset)) => {
            let count = match policy.rules.len() {
                0 => "no rules".to_owned(),
                1 => "one rule".to_owned(),
                many => format!("{many} rules"),
            };
            let preset = policy.preset;
            let suffix = if stated_preset.is_some() { "" } else { ", as nothing else is said" };
            let file =
                if path.exists() { path.display().to_string() } else { format!("no {}", path.display()) };
            section.add_ok(format!("{file}: {count} for this workspace, and preset {preset}{suffix}"));
            section.set_summary(format!("{count} for this workspace, and preset {preset}{suffix}"));
        }
        Err(error) => {
            section.add_broken(error.to_string(), "until that is put right agents may do nothing here");
        }
    }
    section
}

/// Checks the workspace, its journal and its audit log.
pub(super) fn check_workspace(dirs: &UserDirs, cwd: &Path) -> ReportSection {
    let mut section = ReportSection::new("This workspace");
    let roots = match Roots::open(&RootSpec::writable(cwd.to_string_lossy()), &[]) {
        Ok(roots) => roots,
        Err(error) => {
            section.add_broken(error.to_string(), "name another directory with --cwd");
            return section;
        }
    };
    section.add_ok(format!("directory: {}", roots.cwd()));
    let git = Path::new(roots.cwd()).ancestors().find(|directory| directory.join(".git").exists());
    section.add_ok(match git {
        Some(directory) => format!("git: yes, in {}", directory.display()),
        None => "git: none; changes are kept and undone without it".to_owned(),
    });
    let git = if git.is_some() { "in git" } else { "without git" };
    section.set_summary(format!("{}, {git}", roots.cwd()));
    let journal_dir = Workspace::journal_directory(&dirs.state, &roots);
    check_journal(&mut section, &journal_dir);
    let (log, anchor) = AuditLog::locate(&journal_dir, &dirs.anchors);
    check_audit_log(&mut section, &log, &anchor);
    check_watches(&mut section, &roots);
    check_leases(&mut section, Path::new(roots.cwd()));
    section
}

fn check_journal(section: &mut ReportSection, directory: &Path) {
    let shown = directory.display();
    match journal::examine(directory) {
        Ok(JournalCondition::Missing) => section.add_info("journal: none yet"),
        Ok(JournalCondition::Usable { changes: 1, .. }) => {
            section.add_ok(format!("journal: one change, in {shown}"))
        }
        Ok(JournalCondition::Usable { changes, .. }) => {
            section.add_ok(format!("journal: {changes} changes, in {shown}"))
        }
        Ok(JournalCondition::Unusable(reason)) => section.add_broken(
            format!("journal: {shown}: {reason}"),
            "its changes cannot be undone; the next program that opens it sets it aside and starts a new one",
        ),
        Err(error) => section.add_broken(format!("journal: {error}"), ""),
    };
}

fn check_audit_log(section: &mut ReportSection, directory: &Path, anchor: &Path) {
    let report = match audit::verify(directory, anchor) {
        Ok(report) => report,
        Err(error) => {
            section.add_broken(format!("audit log: {error}"), "");
            return;
        }
    };
    let entries = match report.entries {
        0 if report.is_intact() => {
            section.add_info("audit log: none yet");
            return;
        }
        1 => "one entry".to_owned(),
        many => format!("{many} entries"),
    };
    let finding = if report.is_intact() {
        section.add_ok(format!("audit log: {entries}, as they were written"))
    } else if report.has_only_crash_artifacts() {
        section.add_warning(
            format!("audit log: {entries}, and what a crash left"),
            "nothing is missing; the next entry says so too",
        )
    } else {
        section.add_broken(
            format!("audit log: {entries}, and not as they were written"),
            "the log was modified: `bowline audit verify` shows where",
        )
    };
    for audit_finding in report.findings.iter().take(MAX_FINDINGS) {
        finding.add_detail(audit_finding.to_string());
    }
}

fn check_watches(section: &mut ReportSection, roots: &Roots) {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let limit = limit.map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned());
    match FileWatcher::start(roots, FileWatcherOptions::default()) {
        Ok(_) => {
            section.add_ok(format!("watches: the system tells what changes here (it has {limit} in all)"))
        }
        Err(FileWatcherError::Limit) => section.add_warning(
            "watches: the system has none left, so all files are looked at after every command",
            format!("raise fs.inotify.max_user_watches, which is {limit}"),
        ),
        Err(error) => section.add_warning(
            format!("watches: {error}, so all files are looked at after every command"),
            "name a smaller directory with --cwd, or leave it so",
        ),
    };
}

/// Checks whether programs that are writing a file are detected before it is replaced.
fn check_leases(section: &mut ReportSection, directory: &Path) {
    let try_lease = || -> std::io::Result<Option<LeaseError>> {
        // The lease needs a file that is not open for writing.
        let path = tempfile::Builder::new().prefix(".bowline-").tempfile_in(directory)?.into_temp_path();
        let file = std::fs::File::open(&path)?;
        Ok(Lease::try_shared(file.as_fd()).err())
    };
    match try_lease() {
        Err(_) => section.add_info("open writers: not tried, the directory cannot be written"),
        Ok(None) => section.add_ok("open writers: noticed before a file is replaced, by leases"),
        Ok(Some(error)) => section.add_warning(
            format!("open writers: {error}"),
            "a program that saves a file at the moment that an agent writes it may go unnoticed: save before you prompt",
        ),
    };
}

/// Checks the user's configuration, and returns it if it can be read.
pub(super) fn check_configuration(dirs: &UserDirs) -> (ReportSection, Option<Config>) {
    let mut section = ReportSection::new("Configuration");
    let config = match Config::read(&dirs.config) {
        Ok(config) => config,
        Err(error) => {
            section.add_broken(error.to_string(), "repair it: until then neither run, chat nor agent starts");
            return (section, None);
        }
    };
    let shown = config.path.display();
    let names: Vec<&str> = config.agents.keys().map(String::as_str).collect();
    let exists = config.path.exists();
    match (names.as_slice(), config.describe_defaults()) {
        ([], None) if !exists => {
            section.add_info(format!("no {shown}: it can set the agent, the model and what is approved"));
        }
        ([], None) => {
            section.add_ok(format!("{shown} sets nothing"));
        }
        (names, defaults) => {
            let agents = (!names.is_empty()).then(|| format!("names the agents {}", names.join(", ")));
            let defaults = defaults.map(|defaults| format!("sets {defaults}"));
            let parts: Vec<String> = defaults.into_iter().chain(agents).collect();
            section.add_ok(format!("{shown} {}", parts.join(", and ")));
        }
    }
    for ConfiguredAgentStatus { name, problem } in
        agents::check_configured_agents(&config, std::env::var_os("PATH").as_ref())
    {
        if let Some(problem) = problem {
            section.add_warning(
                format!("the agent {name}: {problem}"),
                format!("install it, or change its command in {shown}"),
            );
        }
    }
    section.add_info(
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
        assert!(schema_version().starts_with(|c: char| c.is_ascii_digit()), "{}", schema_version());
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
        let output =
            kinds.map(|kind| advise_on_write_error(&kind.into(), Path::new("/d"), "XDG_STATE_HOME") + "\n");
        expect![[r#"
            make room on the disk of /d, or set XDG_STATE_HOME to a directory elsewhere: until then nothing is changed, as it could not be undone
            make room on the disk of /d, or set XDG_STATE_HOME to a directory elsewhere: until then nothing is changed, as it could not be undone
            raise the limit on the size of files (ulimit -f), or set XDG_STATE_HOME to a directory elsewhere
            the disk of /d is mounted for reading only: mount it for writing, or set XDG_STATE_HOME to a directory elsewhere
            make /d writable (chmod u+rwx), or set XDG_STATE_HOME to a directory elsewhere
        "#]].assert_eq(&output.concat());
    }
}
