//! `bowline agent --login`: asks for a provider and its key in the terminal, and stores the key.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result, bail};
use bowline_agent::model::keys::Keyring;
use bowline_agent::model::provider::Provider;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Asks for a provider's key, and for the provider if none is named, and stores the key.
pub(super) fn run(keys: &Keyring, provider: &str) -> Result<()> {
    let mut stderr = std::io::stderr();
    let names = Provider::ALL.map(Provider::id);
    let name = match provider {
        "" => {
            write!(stderr, "Provider ({}): ", names.join(", "))?;
            stderr.flush()?;
            read_line()?
        }
        named => named.to_owned(),
    };
    let Some(provider) = Provider::from_id(name.trim()) else {
        bail!("there is no provider {name:?}: it is one of {}", names.join(", "));
    };
    write!(stderr, "Key of {} (it is not shown): ", provider.title())?;
    stderr.flush()?;
    let key = read_hidden_line()?;
    writeln!(stderr)?;
    if key.trim().is_empty() {
        bail!("no key was given, nothing is stored");
    }
    keys.store_key(provider, key.trim()).context("the key could not be stored")?;
    writeln!(stderr, "Stored. New sessions can use {} models.", provider.title())?;
    Ok(())
}

fn read_line() -> Result<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).context("cannot read the answer")?;
    if read == 0 {
        bail!("there was no answer");
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads a line without echo. Input that is not a terminal is never echoed.
fn read_hidden_line() -> Result<String> {
    let Some(_echo_guard) = EchoGuard::disable_echo()? else { return read_line() };
    let mut bytes = Vec::new();
    for byte in std::io::stdin().lock().bytes() {
        match byte.context("cannot read the key")? {
            b'\r' | b'\n' => break,
            CTRL_C => bail!("interrupted, nothing is stored"),
            CTRL_D if bytes.is_empty() => break,
            BACKSPACE | DELETE => drop(bytes.pop()),
            byte if bytes.len() < MAX_KEY_BYTES => bytes.push(byte),
            _ => bail!("no key is that long, nothing is stored"),
        }
    }
    String::from_utf8(bytes).context("the key is not text")
}

/// The maximum length of a key that is read, in bytes.
const MAX_KEY_BYTES: usize = 8 << 10;

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const DELETE: u8 = 127;

/// A terminal in raw mode without echo until this is dropped. Ctrl-C is read as a key, because a signal would end the
/// program and leave the terminal without echo.
struct EchoGuard {
    saved_modes: Termios,
}

impl EchoGuard {
    /// Turns echo off; returns `None` if stdin is not a terminal.
    fn disable_echo() -> Result<Option<Self>> {
        let stdin = std::io::stdin();
        let Ok(saved_modes) = tcgetattr(stdin.as_fd()) else { return Ok(None) };
        let mut modes = saved_modes.clone();
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(stdin.as_fd(), OptionalActions::Flush, &modes)
            .context("the terminal cannot hide the key")?;
        Ok(Some(Self { saved_modes }))
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        tcsetattr(std::io::stdin().as_fd(), OptionalActions::Flush, &self.saved_modes).unwrap_or_default();
    }
}
