//! A pseudo-terminal for a command that wants one.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetpgrp, tcsetwinsize,
};

use super::super::job::Size;

// A program that reads from the terminal finds that the person has nothing to say: each of these is an end of input.
const ENDS_OF_INPUT: [u8; 32] = [0x04; 32];

/// The side of a pseudo-terminal that is not the command's. When it is closed, the system hangs up on whoever leads the
/// session, and that is the supervisor.
pub(super) struct Pty {
    controller: File,
    output: File,
}

impl Pty {
    /// Opens a pseudo-terminal and returns the command's side too. It controls the session of this process, which has
    /// to lead one.
    pub(super) fn open(size: Size, output: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?;
        let other = open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let mut modes = tcgetattr(&other)?;
        // Lines end as the command ends them, and what nobody typed is not shown.
        modes.output_modes.remove(OutputModes::OPOST);
        modes.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&other, OptionalActions::Now, &modes)?;
        tcsetwinsize(
            &other,
            Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 },
        )?;
        ioctl_tiocsctty(&other)?;
        let mut controller = File::from(controller);
        controller.write_all(&ENDS_OF_INPUT)?;
        Ok((Self { controller, output: File::from(output) }, other))
    }

    /// Passes on what the command writes, until nobody holds the terminal open or nobody reads any more.
    pub(super) fn copy(&mut self) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.controller.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => {
                    if self.output.write_all(&buffer[..read]).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The last one who had it open is gone.
                Err(_) => return,
            }
        }
    }
}

/// Makes the command the one that the terminal is for.
pub(super) fn bring_to_front(terminal: &OwnedFd, command: Pid) {
    // It may have ended already.
    tcsetpgrp(terminal.as_fd(), command).unwrap_or_default();
    // One that used the terminal a moment too early was stopped.
    kill_process_group(command, Signal::CONT).unwrap_or_default();
}
