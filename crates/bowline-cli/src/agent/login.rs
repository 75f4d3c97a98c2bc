//! `bowline agent --login`: asks for a provider and its key in the terminal, and stores the key.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result, bail};
use bowline_agent::keys::Keyring;
use bowline_agent::model::provider::Provider;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Asks for the key of a provider, and for the provider if none is named; and stores it.
pub(super) fn run(keys: &Keyring, provider: &str) -> Result<()> {
    let mut screen = std::io::stderr();
    let names = Provider::ALL.map(Provider::id);
    let name = match provider {
        "" => {
            write!(screen, "Provider ({}): ", names.join(", "))?;
            screen.flush()?;
            line()?
        }
        named => named.to_owned(),
    };
    let Some(provider) = Provider::of(name.trim()) else {
        bail!("there is no provider {name:?}: it is one of {}", names.join(", "));
    };
    write!(screen, "Key of {} (it is not shown): ", provider.title())?;
    screen.flush()?;
    let key = unseen()?;
    writeln!(screen)?;
    if key.trim().is_empty() {
        bail!("no key was given, nothing is stored");
    }
    keys.store(provider, key.trim()).context("the key could not be stored")?;
    writeln!(screen, "Stored. New sessions can use {} models.", provider.title())?;
    Ok(())
}

fn line() -> Result<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).context("cannot read the answer")?;
    if read == 0 {
        bail!("there was no answer");
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads a line that the terminal does not show. What is no terminal shows nothing anyway.
fn unseen() -> Result<String> {
    let Some(_silence) = Silence::begin()? else { return line() };
    let mut bytes = Vec::new();
    for byte in std::io::stdin().lock().bytes() {
        match byte.context("cannot read the key")? {
            b'\r' | b'\n' => break,
            INTERRUPT => bail!("interrupted, nothing is stored"),
            END if bytes.is_empty() => break,
            BACKSPACE | DELETE => drop(bytes.pop()),
            byte if bytes.len() < MAX_KEY => bytes.push(byte),
            _ => bail!("no key is that long, nothing is stored"),
        }
    }
    String::from_utf8(bytes).context("the key is not text")
}

/// As much is read of a key.
const MAX_KEY: usize = 8 << 10;

const INTERRUPT: u8 = 3;
const END: u8 = 4;
const BACKSPACE: u8 = 8;
const DELETE: u8 = 127;

/// A terminal that gives every key to the program and shows none, until this is dropped. Ctrl-C is a key then too: it could
/// not end the program and leave the terminal as it is.
struct Silence {
    before: Termios,
}

impl Silence {
    /// Begins; nothing if there is no terminal.
    fn begin() -> Result<Option<Self>> {
        let stdin = std::io::stdin();
        let Ok(before) = tcgetattr(stdin.as_fd()) else { return Ok(None) };
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(stdin.as_fd(), OptionalActions::Flush, &silent)
            .context("the terminal cannot hide the key")?;
        Ok(Some(Self { before }))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // Whoever took the terminal away has it the way they want it.
        tcsetattr(std::io::stdin().as_fd(), OptionalActions::Flush, &self.before).unwrap_or_default();
    }
}
