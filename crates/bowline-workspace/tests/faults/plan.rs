//! A plan of faults: one count of all calls, the writer's and SQLite's, and the fault for each call.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use bowline_storage::disk_calls::{DiskCall, DiskFaultInjector};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use test_support::faulty_sqlite::{SqliteCall, SqliteFault, SqliteGate};

/// A call, made by the writer or by SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordedCall {
    Writer(DiskCall),
    Sqlite(SqliteCall),
}

impl RecordedCall {
    /// Returns whether the call changes the disk. Dying before a call that only reads is the same as dying after the
    /// call before it.
    pub(crate) fn changes_the_disk(self) -> bool {
        self != Self::Sqlite(SqliteCall::Read)
    }

    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Writer(DiskCall::Write) | Self::Sqlite(SqliteCall::Write))
    }

    pub(crate) fn is_from_writer(self) -> bool {
        matches!(self, Self::Writer(_))
    }
}

impl fmt::Display for RecordedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writer(call) => write!(f, "{call:?}"),
            Self::Sqlite(call) => write!(f, "{call:?}"),
        }
    }
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultReason {
    Io,
    Full,
}

/// The fault at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultAction {
    /// This call fails.
    Fail(FaultReason),
    /// This call and all after it fail, as on a disk that is gone or full. No more calls reach the disk, so it is left
    /// as the death of the process would leave it.
    FailFromHere(FaultReason),
    /// Half of the bytes are written.
    Short,
    /// The process dies.
    Kill,
}

/// The faults by call; calls are counted from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FaultSchedule(pub(crate) Vec<(usize, FaultAction)>);

impl FaultSchedule {
    pub(crate) fn at(call: usize, action: FaultAction) -> Self {
        Self(vec![(call, action)])
    }

    pub(crate) fn then(mut self, call: usize, action: FaultAction) -> Self {
        self.0.push((call, action));
        self
    }
}

const ACTIONS: [(&str, FaultAction); 6] = [
    ("fails-io", FaultAction::Fail(FaultReason::Io)),
    ("fails-full", FaultAction::Fail(FaultReason::Full)),
    ("fails-on-io", FaultAction::FailFromHere(FaultReason::Io)),
    ("fails-on-full", FaultAction::FailFromHere(FaultReason::Full)),
    ("short", FaultAction::Short),
    ("killed", FaultAction::Kill),
];

impl fmt::Display for FaultSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (call, action)) in self.0.iter().enumerate() {
            let name = ACTIONS.iter().find(|(_, known)| known == action).map_or("?", |(name, _)| name);
            write!(f, "{}{call}={name}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for FaultSchedule {
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

/// The hook before all calls. It is disabled, and counts no calls, until it is armed.
#[derive(Debug)]
pub(crate) struct FaultPlan {
    faults: FaultSchedule,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    armed: bool,
    calls: Vec<RecordedCall>,
}

impl FaultPlan {
    pub(crate) fn new(faults: FaultSchedule) -> Self {
        Self { faults, state: Mutex::default() }
    }

    pub(crate) fn arm(&self, armed: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).armed = armed;
    }

    /// Returns the calls that were made, or attempted, while it was armed.
    pub(crate) fn recorded_calls(&self) -> Vec<RecordedCall> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).calls.clone()
    }

    fn next_call(&self, call: RecordedCall, bytes: usize) -> Result<usize, FaultReason> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.armed {
            return Ok(bytes);
        }
        state.calls.push(call);
        let now = state.calls.len();
        for &(at, action) in &self.faults.0 {
            match action {
                FaultAction::Fail(why) if at == now => return Err(why),
                FaultAction::FailFromHere(why) if at <= now => return Err(why),
                FaultAction::Short if at == now => return Ok(bytes.div_ceil(2)),
                FaultAction::Kill if at == now => {
                    kill_process(getpid(), Signal::KILL).expect("a process can end itself");
                    unreachable!("nothing runs after SIGKILL");
                }
                FaultAction::Fail(_)
                | FaultAction::FailFromHere(_)
                | FaultAction::Short
                | FaultAction::Kill => {}
            }
        }
        Ok(bytes)
    }
}

impl DiskFaultInjector for FaultPlan {
    fn before_call(&self, call: DiskCall, bytes: usize) -> io::Result<usize> {
        self.next_call(RecordedCall::Writer(call), bytes).map_err(|why| match why {
            FaultReason::Io => Errno::IO.into(),
            FaultReason::Full => Errno::NOSPC.into(),
        })
    }
}

impl SqliteGate for FaultPlan {
    fn check_call(&self, call: SqliteCall, bytes: usize) -> Result<usize, SqliteFault> {
        self.next_call(RecordedCall::Sqlite(call), bytes).map_err(|why| match why {
            FaultReason::Io => SqliteFault::Io,
            FaultReason::Full => SqliteFault::Full,
        })
    }
}
