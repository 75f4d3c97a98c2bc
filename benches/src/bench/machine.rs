//! Processor time by the system's count: of a process, and of all others, without which no rate can be judged.

use std::time::Instant;

use anyhow::{Context, Result};

/// The ticks of a second in which Linux counts CPU time, on every architecture that it tells to programs.
const TICKS: f64 = 100.0;

/// A moment, and the CPU time that everybody and that our children had used until then.
#[derive(Debug)]
pub(crate) struct Usage {
    at: Instant,
    everybody: u64,
    ours: u64,
}

impl Usage {
    /// Looks at the machine now. A child counts once it is waited for.
    pub(crate) fn now() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let everybody = busy(&read("/proc/stat")?).context("cannot understand /proc/stat")?;
        let ours = with_children(&read("/proc/self/stat")?).context("cannot understand /proc/self/stat")?;
        Ok(Self { at: Instant::now(), everybody, ours })
    }

    /// Returns how many cores others have used since, on average.
    pub(crate) fn others_since(&self) -> Result<f64> {
        let now = Self::now()?;
        let ticks = (now.everybody - self.everybody) as f64 - (now.ours - self.ours) as f64;
        Ok((ticks / TICKS / (now.at - self.at).as_secs_f64()).max(0.0))
    }
}

/// Returns the ticks of `/proc/stat`'s first line that were neither idle nor waiting for a disk.
fn busy(stat: &str) -> Option<u64> {
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

/// Returns the running processes that a process started itself.
pub(crate) fn children(process: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").context("cannot read /proc")? {
        let Ok(id) = entry?.file_name().to_string_lossy().parse() else { continue };
        // A process that ended meanwhile is no running child.
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        if parent(&stat) == Some(process) {
            children.push(id);
        }
    }
    Ok(children)
}

fn cpu_us(stat: &str) -> Option<f64> {
    let (_name, fields) = stat.rsplit_once(") ")?;
    let ticks: Option<u64> = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks? as f64 / TICKS * 1e6)
}

/// Returns the process that started this one, the 4th field of its `stat`.
fn parent(stat: &str) -> Option<u32> {
    let (_name, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(1)?.parse().ok()
}

/// Returns the ticks of a process and of its children, the 14th to the 17th field of its `stat`.
fn with_children(stat: &str) -> Option<u64> {
    let (_name, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::{busy, children, cpu_us, parent, with_children};

    #[test]
    fn idle_and_disk_time_are_not_busy() {
        assert_eq!(busy("cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1"), Some(87_600_321));
        assert_eq!(busy("cpu  1 2 3\n"), None);
    }

    #[test]
    fn a_name_with_spaces_and_brackets_shifts_no_field() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3000 400 20 0";
        assert_eq!(with_children(stat), Some(3520));
        assert_eq!(cpu_us(stat), Some(1_200_000.0));
        assert_eq!(parent(stat), Some(1));
    }

    #[test]
    fn children_are_the_processes_that_were_started_and_not_their_own() {
        let mut child = Command::new("sh").args(["-c", "cat; exit"]).stdin(Stdio::piped()).spawn().unwrap();
        assert!(children(std::process::id()).unwrap().contains(&child.id()));
        let parent = std::os::unix::process::parent_id();
        assert!(!children(parent).unwrap().contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!children(std::process::id()).unwrap().contains(&child.id()));
    }
}
