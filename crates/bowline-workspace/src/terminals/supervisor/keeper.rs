//! The keeper: the parent of a supervisor, which takes over if the command kills it.
//!
//! The keeper only waits. When the supervisor is killed, the command's processes become its children, and it kills them
//! all. To leave any behind, a command has to find and kill both at once.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, setsid, wait, waitpid,
};

use super::{RETRY_PAUSE, kill_all};

// How long a supervisor may take to kill the command when the host is gone. Meanwhile it is repeatedly continued, in
// case it was stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
const WAKE_INTERVAL: Duration = Duration::from_millis(100);

/// Runs a supervisor with `control` as its channel, and cleans up after it. The end of the keeper's own channel means
/// that the host is gone.
pub(super) fn run_keeper(
    arguments: &[OsString],
    mut channel: UnixStream,
    control: OwnedFd,
) -> io::Result<()> {
    setsid()?;
    // The running program itself, even if its path now names another one.
    let mut command = Command::new("/proc/self/exe");
    if let Some((name, rest)) = arguments.split_first() {
        command.arg0(name).args(rest);
    }
    let (_alive, theirs) = UnixStream::pair()?;
    command.env_clear().stdin(control).stdout(OwnedFd::from(theirs)).stderr(Stdio::null());
    let supervisor = command.spawn()?;
    // The supervisor alone holds its channels, so that their peers can detect its end.
    drop(command);
    let supervisor = i32::try_from(supervisor.id()).ok().and_then(Pid::from_raw);
    let supervisor = supervisor.ok_or(io::ErrorKind::NotFound)?;
    let handle = pidfd_open(supervisor, PidfdFlags::empty())?;
    thread::spawn(move || {
        // The channel carries no data; only its end matters.
        io::copy(&mut channel, &mut io::sink()).map_or_else(drop, drop);
        force_shutdown(&handle);
    });
    let status = loop {
        match waitpid(Some(supervisor), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status,
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    kill_leftovers();
    match status.exit_status() {
        Some(0) => Ok(()),
        _ => Err(io::Error::other("the supervisor did not end well")),
    }
}

/// Makes a supervisor exit when its host is gone.
fn force_shutdown(supervisor: &OwnedFd) {
    let end = Instant::now() + SHUTDOWN_TIMEOUT;
    while pidfd_send_signal(supervisor, Signal::CONT).is_ok() && Instant::now() < end {
        thread::sleep(WAKE_INTERVAL);
    }
    pidfd_send_signal(supervisor, Signal::KILL).unwrap_or_default();
}

/// Kills the processes that the supervisor left. Without children there are no descendants, because orphans become
/// children.
fn kill_leftovers() {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                kill_all();
                thread::sleep(RETRY_PAUSE);
            }
            Err(_) => return,
        }
    }
}
