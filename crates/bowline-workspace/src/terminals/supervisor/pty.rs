//! The pseudo-terminal of a command that requests one.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetpgrp, tcsetwinsize,
};

use super::super::protocol::PtySize;

// A program that reads from the terminal gets an end of input: each of these bytes is one.
const END_OF_INPUT: [u8; 32] = [0x04; 32];

/// The supervisor's side of a pseudo-terminal. Closing it makes the system hang up on the session leader, which is the
/// supervisor.
pub(super) struct Pty {
    controller: File,
    output: File,
}

impl Pty {
    /// Opens a pseudo-terminal, and also returns the command's side. It becomes the controlling terminal of this
    /// process, which has to be a session leader.
    pub(super) fn open(size: PtySize, output: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?;
        let other = open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let mut modes = tcgetattr(&other)?;
        // Line ends are passed unchanged, and the artificial input is not echoed.
        modes.output_modes.remove(OutputModes::OPOST);
        modes.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&other, OptionalActions::Now, &modes)?;
        tcsetwinsize(
            &other,
            Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 },
        )?;
        ioctl_tiocsctty(&other)?;
        let mut controller = File::from(controller);
        controller.write_all(&END_OF_INPUT)?;
        Ok((Self { controller, output: File::from(output) }, other))
    }

    /// Copies the command's output until the terminal is no longer open or the output has no reader.
    pub(super) fn copy_output(&mut self) {
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
                // The last process that had it open is gone.
                Err(_) => return,
            }
        }
    }
}

/// Makes the command the foreground process group of the terminal.
pub(super) fn set_foreground(terminal: &OwnedFd, command: Pid) {
    // The command may have exited already.
    tcsetpgrp(terminal.as_fd(), command).unwrap_or_default();
    // A command that used the terminal a moment too early was stopped.
    kill_process_group(command, Signal::CONT).unwrap_or_default();
}
