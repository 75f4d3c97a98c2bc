//! The process above a supervisor, which does its work if the command kills it.
//!
//! It only waits. When the supervisor is killed, the command's
//! processes become its children, and it kills them all. A command has to find and kill both at once to leave any.

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

use super::{AGAIN, kill_all};

// How long a supervisor may take to end the command when the host is gone. It is told to go on so often meanwhile,
// should somebody stop it.
const LAST: Duration = Duration::from_secs(10);
const WAKE: Duration = Duration::from_millis(100);

/// Runs a supervisor, which gets `control` as its channel, and cleans up after it. The end of the keeper's own channel says that
/// the host is gone.
pub(super) fn keep(arguments: &[OsString], mut channel: UnixStream, control: OwnedFd) -> io::Result<()> {
    setsid()?;
    // The very program that runs, also if another has its name by now.
    let mut command = Command::new("/proc/self/exe");
    if let Some((name, rest)) = arguments.split_first() {
        command.arg0(name).args(rest);
    }
    let (_alive, theirs) = UnixStream::pair()?;
    command.env_clear().stdin(control).stdout(OwnedFd::from(theirs)).stderr(Stdio::null());
    let supervisor = command.spawn()?;
    // What it was given is its alone: the ends of the channels are seen by that.
    drop(command);
    let supervisor = i32::try_from(supervisor.id()).ok().and_then(Pid::from_raw);
    let supervisor = supervisor.ok_or(io::ErrorKind::NotFound)?;
    let handle = pidfd_open(supervisor, PidfdFlags::empty())?;
    thread::spawn(move || {
        // Nothing comes on it but its end.
        io::copy(&mut channel, &mut io::sink()).map_or_else(drop, drop);
        insist(&handle);
    });
    let status = loop {
        match waitpid(Some(supervisor), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status,
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    clean_up();
    match status.exit_status() {
        Some(0) => Ok(()),
        _ => Err(io::Error::other("the supervisor did not end well")),
    }
}

/// Has a supervisor end when its host is gone.
fn insist(supervisor: &OwnedFd) {
    let end = Instant::now() + LAST;
    while pidfd_send_signal(supervisor, Signal::CONT).is_ok() && Instant::now() < end {
        thread::sleep(WAKE);
    }
    pidfd_send_signal(supervisor, Signal::KILL).unwrap_or_default();
}

/// Kills whatever the supervisor left. With no child left there is no descendant, because orphans become children.
fn clean_up() {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                kill_all();
                thread::sleep(AGAIN);
            }
            Err(_) => return,
        }
    }
}
