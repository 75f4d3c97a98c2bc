//! The processes of a command, as listed by the system.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

// The maximum number of processes handled in one pass. A larger tree is killed in several.
const MAX_PROCESSES: usize = 100_000;

/// Returns all descendants of a process, parents before their children.
///
/// An orphan is reparented to its nearest subreaper, so no process can escape.
pub(super) fn descendants(of: Pid) -> Vec<Pid> {
    walk_tree(of, |_| {})
}

/// Stops all descendants of a process, and returns them. Each is stopped before its children are listed, so it cannot
/// start others.
pub(super) fn stop_descendants(of: Pid) -> Vec<Pid> {
    walk_tree(of, |pid| send_signal(&[pid], Signal::STOP))
}

fn walk_tree(of: Pid, visit: impl Fn(Pid)) -> Vec<Pid> {
    let mut found = child_processes(of);
    let mut seen: BTreeSet<i32> = found.iter().map(|pid| pid.as_raw_pid()).collect();
    let mut next = 0;
    while next < found.len() && found.len() < MAX_PROCESSES {
        visit(found[next]);
        let more = child_processes(found[next]);
        found.extend(more.into_iter().filter(|pid| seen.insert(pid.as_raw_pid())));
        next += 1;
    }
    found
}

/// Sends a signal to each process. Processes that have exited or belong to another user are skipped.
pub(super) fn send_signal(processes: &[Pid], signal: Signal) {
    for pid in processes {
        kill_process(*pid, signal).unwrap_or_default();
    }
}

/// Kills each process at once, with everything its process group forks meanwhile. The group of `spared` is left alone.
pub(super) fn kill_processes(processes: &[Pid], spared: Pid) {
    let groups: BTreeSet<i32> = processes.iter().filter_map(|pid| Some(process_stat(*pid)?.group)).collect();
    for group in groups.into_iter().filter(|group| *group != spared.as_raw_pid()).filter_map(Pid::from_raw) {
        kill_process_group(group, Signal::KILL).unwrap_or_default();
    }
    send_signal(processes, Signal::KILL);
}

/// Returns whether the inner supervisor is running: a process with its id in its keeper's Unix session.
pub(super) fn is_supervisor_running(inner: Pid, keeper: Pid) -> bool {
    process_stat(inner).is_some_and(|stat| !stat.is_dead && stat.session == keeper.as_raw_pid())
}

/// Returns every process, except `leader`, that is in the Unix session of `leader` or has `variable` in its environment.
///
/// This finds the processes left by a command whose supervisors were killed, which are no longer their descendants.
pub(super) fn find_leftovers(leader: Pid, variable: &str) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    let belongs = |pid: &Pid| {
        let Some(stat) = process_stat(*pid).filter(|stat| !stat.is_dead) else { return false };
        stat.session == leader.as_raw_pid() || has_variable(*pid, variable)
    };
    pids.filter(|pid| *pid != leader).filter(belongs).collect()
}

fn has_variable(pid: Pid, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

fn child_processes(of: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", of.as_raw_pid());
    let Ok(entries) = fs::read_dir(tasks) else { return Vec::new() };
    let lists = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("children")).ok());
    let parse = |list: String| {
        list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>()
    };
    lists.flat_map(parse).collect()
}

struct ProcessStat {
    is_dead: bool,
    group: i32,
    session: i32,
}

fn process_stat(pid: Pid) -> Option<ProcessStat> {
    let text = fs::read(Path::new("/proc").join(pid.as_raw_pid().to_string()).join("stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The program's name is in parentheses and may contain some itself.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X");
    let mut numbers = fields.skip(1).map(str::parse);
    Some(ProcessStat { is_dead: dead, group: numbers.next()?.ok()?, session: numbers.next()?.ok()? })
}
