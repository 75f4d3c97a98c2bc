//! A plan of faults: one count of all calls, the writer's and SQLite's, and what is to happen at which.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use bowline_workspace::calls::{Call, Gate};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use test_support::faulty_sqlite::{SqliteCall, SqliteFault, SqliteGate};

/// A call, whoever makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Writer(Call),
    Sqlite(SqliteCall),
}

impl Made {
    /// Says whether the disk is another one after it. Dying before a call that only reads is dying after the one before.
    pub(crate) fn changes_the_disk(self) -> bool {
        self != Self::Sqlite(SqliteCall::Read)
    }

    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Writer(Call::Write) | Self::Sqlite(SqliteCall::Write))
    }

    pub(crate) fn is_writers(self) -> bool {
        matches!(self, Self::Writer(_))
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writer(call) => write!(f, "{call:?}"),
            Self::Sqlite(call) => write!(f, "{call:?}"),
        }
    }
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Io,
    Full,
}

/// What happens at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// This one fails.
    Fail(Why),
    /// This one and all after it fail, as on a disk that is gone or full. Nothing reaches the disk any more, so what is
    /// there is what the death of the process would leave.
    FailOn(Why),
    /// Half of the bytes are written.
    Short,
    /// The process dies.
    Kill,
}

/// What is to happen at which call; calls are counted from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Faults(pub(crate) Vec<(usize, Action)>);

impl Faults {
    pub(crate) fn at(call: usize, action: Action) -> Self {
        Self(vec![(call, action)])
    }

    pub(crate) fn then(mut self, call: usize, action: Action) -> Self {
        self.0.push((call, action));
        self
    }
}

const ACTIONS: [(&str, Action); 6] = [
    ("fails-io", Action::Fail(Why::Io)),
    ("fails-full", Action::Fail(Why::Full)),
    ("fails-on-io", Action::FailOn(Why::Io)),
    ("fails-on-full", Action::FailOn(Why::Full)),
    ("short", Action::Short),
    ("killed", Action::Kill),
];

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (call, action)) in self.0.iter().enumerate() {
            let name = ACTIONS.iter().find(|(_, known)| known == action).map_or("?", |(name, _)| name);
            write!(f, "{}{call}={name}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |part: &str| {
            let (call, name) = part.split_once('=')?;
            let action = ACTIONS.iter().find(|(known, _)| *known == name)?.1;
            Some((call.parse().ok()?, action))
        };
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(|part| one(part).ok_or_else(|| part.to_owned())).collect::<Result<_, _>>().map(Self)
    }
}

/// The gate before all calls. It is open, and counts nothing, until it is armed.
#[derive(Debug)]
pub(crate) struct Plan {
    faults: Faults,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    armed: bool,
    made: Vec<Made>,
}

impl Plan {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, state: Mutex::default() }
    }

    pub(crate) fn arm(&self, armed: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).armed = armed;
    }

    /// Returns the calls that were made, or tried, while it was armed.
    pub(crate) fn made(&self) -> Vec<Made> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).made.clone()
    }

    fn ask(&self, call: Made, bytes: usize) -> Result<usize, Why> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.armed {
            return Ok(bytes);
        }
        state.made.push(call);
        let now = state.made.len();
        for &(at, action) in &self.faults.0 {
            match action {
                Action::Fail(why) if at == now => return Err(why),
                Action::FailOn(why) if at <= now => return Err(why),
                Action::Short if at == now => return Ok(bytes.div_ceil(2)),
                Action::Kill if at == now => {
                    kill_process(getpid(), Signal::KILL).expect("a process can end itself");
                    unreachable!("nothing runs after SIGKILL");
                }
                Action::Fail(_) | Action::FailOn(_) | Action::Short | Action::Kill => {}
            }
        }
        Ok(bytes)
    }
}

impl Gate for Plan {
    fn pass(&self, call: Call, bytes: usize) -> io::Result<usize> {
        self.ask(Made::Writer(call), bytes).map_err(|why| match why {
            Why::Io => Errno::IO.into(),
            Why::Full => Errno::NOSPC.into(),
        })
    }
}

impl SqliteGate for Plan {
    fn pass(&self, call: SqliteCall, bytes: usize) -> Result<usize, SqliteFault> {
        self.ask(Made::Sqlite(call), bytes).map_err(|why| match why {
            Why::Io => SqliteFault::Io,
            Why::Full => SqliteFault::Full,
        })
    }
}
