//! The processes of a command, as the system lists them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

// As many processes are looked at in one go. A tree with more is ended in several.
const MAX_LISTED: usize = 100_000;

/// Returns all descendants of a process, parents before their children.
///
/// A process whose parent ended belongs to the nearest ancestor that takes in such orphans, so none can leave.
pub(super) fn descendants(of: Pid) -> Vec<Pid> {
    walk(of, |_| {})
}

/// Stops all descendants of a process, and returns them. Each is stopped before its children are looked for, so it can
/// start no others.
pub(super) fn stop(of: Pid) -> Vec<Pid> {
    walk(of, |pid| signal(&[pid], Signal::STOP))
}

fn walk(of: Pid, visit: impl Fn(Pid)) -> Vec<Pid> {
    let mut found = children(of);
    let mut seen: BTreeSet<i32> = found.iter().map(|pid| pid.as_raw_pid()).collect();
    let mut next = 0;
    while next < found.len() && found.len() < MAX_LISTED {
        visit(found[next]);
        let more = children(found[next]);
        found.extend(more.into_iter().filter(|pid| seen.insert(pid.as_raw_pid())));
        next += 1;
    }
    found
}

/// Returns how many bytes of memory a process has in use.
pub(super) fn memory(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap_or_default();
    let used = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    used.and_then(|used| used.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// Sends a signal to each. One that is gone needs none, and one that is another user's gets none.
pub(super) fn signal(processes: &[Pid], signal: Signal) {
    for pid in processes {
        kill_process(*pid, signal).unwrap_or_default();
    }
}

/// Ends each at once, and whatever its process group forks meanwhile. The group of `spared` is left alone.
pub(super) fn kill(processes: &[Pid], spared: Pid) {
    let groups: BTreeSet<i32> = processes.iter().filter_map(|pid| Some(stat(*pid)?.group)).collect();
    for group in groups.into_iter().filter(|group| *group != spared.as_raw_pid()).filter_map(Pid::from_raw) {
        kill_process_group(group, Signal::KILL).unwrap_or_default();
    }
    signal(processes, Signal::KILL);
}

/// Returns whether the inner supervisor runs: a process with its id does, in a session that is its own or its keeper's.
pub(super) fn runs(inner: Pid, keeper: Pid) -> bool {
    let sessions = [inner.as_raw_pid(), keeper.as_raw_pid()];
    stat(inner).is_some_and(|stat| !stat.dead && sessions.contains(&stat.session))
}

/// Returns every process that runs in the session of `leader` or of the inner supervisor, or was given `variable` in its
/// environment, but `leader` itself.
///
/// It finds what is left of a command whose supervisors were killed, and so can no longer be found as their descendant.
pub(super) fn left_behind(leader: Pid, inner: Option<Pid>, variable: &str) -> Vec<Pid> {
    let sessions = [Some(leader), inner].map(|pid| pid.map(Pid::as_raw_pid));
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    let belongs = |pid: &Pid| {
        let Some(stat) = stat(*pid).filter(|stat| !stat.dead) else { return false };
        sessions.contains(&Some(stat.session)) || carries(*pid, variable)
    };
    pids.filter(|pid| *pid != leader).filter(belongs).collect()
}

fn carries(pid: Pid, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

fn children(of: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", of.as_raw_pid());
    let Ok(entries) = fs::read_dir(tasks) else { return Vec::new() };
    let lists = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("children")).ok());
    let parse = |list: String| {
        list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>()
    };
    lists.flat_map(parse).collect()
}

struct Stat {
    dead: bool,
    group: i32,
    session: i32,
}

fn stat(pid: Pid) -> Option<Stat> {
    let text = fs::read(Path::new("/proc").join(pid.as_raw_pid().to_string()).join("stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name of the program stands in brackets and may hold some itself.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X");
    let mut numbers = fields.skip(1).map(str::parse);
    Some(Stat { dead, group: numbers.next()?.ok()?, session: numbers.next()?.ok()? })
}
