//! Processor time and memory as counted by the system: of a process, and of all other processes, which show how
//! reliable a rate is.

use std::time::Instant;

use anyhow::{Context, Result};

/// The unit in which Linux reports CPU time to programs, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// A point in time, and the CPU time that all processes and our children had used by then.
#[derive(Debug)]
pub(crate) struct CpuUsage {
    at: Instant,
    total_ticks: u64,
    own_ticks: u64,
}

impl CpuUsage {
    /// Takes a sample. A child counts once it has been waited for.
    pub(crate) fn now() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let everybody = busy_ticks(&read("/proc/stat")?).context("cannot understand /proc/stat")?;
        let ours =
            ticks_with_children(&read("/proc/self/stat")?).context("cannot understand /proc/self/stat")?;
        Ok(Self { at: Instant::now(), total_ticks: everybody, own_ticks: ours })
    }

    /// Returns the average number of cores that other processes have used since.
    pub(crate) fn other_cores_since(&self) -> Result<f64> {
        let now = Self::now()?;
        let ticks = (now.total_ticks - self.total_ticks) as f64 - (now.own_ticks - self.own_ticks) as f64;
        Ok((ticks / TICKS_PER_SECOND / (now.at - self.at).as_secs_f64()).max(0.0))
    }
}

/// Returns the ticks of `/proc/stat`'s first line that were neither idle nor waiting for a disk.
fn busy_ticks(stat: &str) -> Option<u64> {
    let mut fields =
        stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(|field| field.parse::<u64>());
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] =
        std::array::from_fn(|_| fields.next()?.ok());
    Some(user? + nice? + system? + irq? + softirq? + steal?)
}

/// Returns the microseconds of processor time that a running process has used, without its children.
pub(crate) fn cpu_us_of(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    cpu_us(&stat).with_context(|| format!("cannot understand {path}"))
}

/// Returns a size from the status of a running process, such as `VmRSS:`.
pub(crate) fn kib_of(process: u32, name: &str) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    kib.with_context(|| format!("{path} has no {name}"))
}

/// Returns the running children of a process.
pub(crate) fn child_pids(process: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").context("cannot read /proc")? {
        let Ok(id) = entry?.file_name().to_string_lossy().parse() else { continue };
        // A process that has ended meanwhile is not a running child.
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        if parent_pid(&stat) == Some(process) {
            children.push(id);
        }
    }
    Ok(children)
}

fn cpu_us(stat: &str) -> Option<f64> {
    let (_name, fields) = stat.rsplit_once(") ")?;
    let ticks: Option<u64> = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks? as f64 / TICKS_PER_SECOND * 1e6)
}

/// Returns the parent of a process, the 4th field of its `stat`.
fn parent_pid(stat: &str) -> Option<u32> {
    let (_name, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(1)?.parse().ok()
}

/// Returns the ticks of a process and of its children, the 14th to the 17th field of its `stat`.
fn ticks_with_children(stat: &str) -> Option<u64> {
    let (_name, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::{busy_ticks, child_pids, cpu_us, parent_pid, ticks_with_children};

    #[test]
    fn idle_and_disk_time_are_not_busy() {
        assert_eq!(
            busy_ticks("cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1"),
            Some(87_600_321)
        );
        assert_eq!(busy_ticks("cpu  1 2 3\n"), None);
    }

    #[test]
    fn a_name_with_spaces_and_brackets_shifts_no_field() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3000 400 20 0";
        assert_eq!(ticks_with_children(stat), Some(3520));
        assert_eq!(cpu_us(stat), Some(1_200_000.0));
        assert_eq!(parent_pid(stat), Some(1));
    }

    #[test]
    fn children_are_the_processes_that_were_started_and_not_their_own() {
        let mut child = Command::new("sh").args(["-c", "cat; exit"]).stdin(Stdio::piped()).spawn().unwrap();
        assert!(child_pids(std::process::id()).unwrap().contains(&child.id()));
        let parent = std::os::unix::process::parent_id();
        assert!(!child_pids(parent).unwrap().contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!child_pids(std::process::id()).unwrap().contains(&child.id()));
    }
}
