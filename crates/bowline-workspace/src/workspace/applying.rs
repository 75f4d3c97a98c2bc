//! Changing files, all or none: the journal first, then the disk, then the journal again.

use std::ops::Deref;
use std::sync::Arc;

use bowline_state::changes::{ChangeId, Moment, Origin, Reversal, Source};
use rustix::fs::{AtFlags, Stat};

use super::{Guard, Workspace, Writer};
use crate::disk;
use crate::error::FilesError;
use crate::journal::{Draft, Manner, Outcome, Side, SideContent};
use crate::replace::{self, Failed, Late, Old};
use crate::roots::{Admitted, Roots};
use crate::walker;
use crate::writers::{self, Purpose, WriterState};

pub(super) mod steps;

use steps::{Done, Halted, Job, NotPerformed, Steps};

/// When a share of what the journal may keep, one in so many, was put in, what need not be kept is dropped.
const PRUNE_SHARE: u64 = 8;

/// A file as it is on disk.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) stat: Stat,
    pub(super) bytes: Vec<u8>,
    pub(super) writers: WriterState,
}

impl Current {
    pub(super) fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    pub(super) fn old(&self) -> Old<'_> {
        Old { stat: &self.stat, bytes: &self.bytes }
    }
}

/// The bytes of a file that is to be written: those of most texts are the text's own.
#[derive(Debug)]
pub(super) enum Bytes {
    Own(Vec<u8>),
    Text(Arc<String>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Text(text) => text.as_bytes(),
        }
    }
}

/// A file as it is to be.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) bytes: Bytes,
    // None: as the old one has it, or the user's mask.
    pub(super) mode: Option<u32>,
}

/// One file to be changed.
#[derive(Debug)]
pub(super) struct Effect {
    pub(super) admitted: Admitted,
    pub(super) current: Option<Current>,
    // None: it is to be deleted.
    pub(super) new: Option<NewFile>,
    pub(super) reverses: Vec<Reversal>,
}

impl Effect {
    fn is_being_written(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.writers == WriterState::Busy)
    }
}

/// Files to be changed together, all or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) roots: &'a Roots,
    pub(super) origin: &'a Origin,
    pub(super) effects: &'a [Effect],
    pub(super) at: Moment,
    pub(super) tell: Telling<'a>,
}

/// Who is told how many of how many files are done.
#[derive(Clone, Copy, Default)]
pub(super) struct Telling<'a>(pub(super) Option<&'a dyn Fn(usize, usize)>);

impl std::fmt::Debug for Telling<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Telling").field(&self.0.is_some()).finish()
    }
}

/// What became of one.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) change: ChangeId,
    pub(super) stat: Option<Stat>,
}

/// Why none of them was changed.
#[derive(Debug)]
pub(super) enum NotApplied {
    /// Somebody changed one of the files meanwhile: decide anew.
    Raced,
    /// It cannot be.
    Failed(FilesError),
}

impl From<FilesError> for NotApplied {
    fn from(error: FilesError) -> Self {
        Self::Failed(error)
    }
}

impl Workspace {
    /// Reads what a path holds, to be replaced.
    pub(super) fn load(&self, roots: &Roots, admitted: &Admitted) -> Result<Option<Current>, FilesError> {
        if !admitted.exists() {
            return Ok(None);
        }
        let opened = roots.open_file(admitted)?;
        let (file, _) = opened.map_err(|special| FilesError::special(admitted.asked(), special))?;
        let cap = self.inner.settings.max_write;
        let writers = writers::wait(&file, Purpose::Write);
        let (bytes, stat) =
            disk::read_bytes(&file, cap).map_err(|fault| FilesError::read(admitted.asked(), fault))?;
        Ok(Some(Current { stat, bytes, writers: writers.state }))
    }

    /// Checks what the system would allow but nobody may mean.
    pub(super) fn check_guards(
        &self,
        roots: &Roots,
        admitted: &Admitted,
        current: &Current,
    ) -> Result<(), FilesError> {
        if current.stat.st_nlink > 1 && self.inner.settings.hard_links == Guard::Refuse {
            let path = admitted.asked().to_owned();
            return Err(FilesError::HardLinks { path, links: current.stat.st_nlink });
        }
        self.check_writable(roots, admitted, current)
    }

    /// Checks that the file itself may be written, whatever its directory allows.
    pub(super) fn check_writable(
        &self,
        roots: &Roots,
        admitted: &Admitted,
        current: &Current,
    ) -> Result<(), FilesError> {
        if self.inner.settings.read_only_files == Guard::Refuse {
            // A rename asks only the directory's leave. The file's own is asked here, and its mode is, too: the
            // superuser has every leave.
            let forbidden = current.stat.st_mode & 0o222 == 0
                || roots.place(admitted)?.is_some_and(|place| {
                    let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
                    let access = rustix::fs::Access::WRITE_OK;
                    rustix::fs::accessat(place.directory(), place.leaf(), access, flags)
                        == Err(rustix::io::Errno::ACCESS)
                });
            if forbidden {
                return Err(FilesError::ReadOnlyFile(admitted.asked().to_owned()));
            }
        }
        Ok(())
    }

    /// Changes files, all or none: journal first, then the disk, then the journal again.
    pub(super) fn apply(&self, writer: &mut Writer, group: &Group<'_>) -> Result<Vec<Applied>, NotApplied> {
        let mut late = Vec::new();
        let applied = self.apply_either_way(writer, group, &mut late);
        for (index, late) in late {
            self.bring_in(writer, group.roots, &group.effects[index].admitted, late)?;
        }
        applied
    }

    /// Does so, and tells of texts that came late to the file of an effect.
    pub(super) fn apply_either_way(
        &self,
        writer: &mut Writer,
        group: &Group<'_>,
        late: &mut Vec<(usize, Late)>,
    ) -> Result<Vec<Applied>, NotApplied> {
        let effects = group.effects;
        if let Some(effect) = effects.iter().find(|effect| effect.is_being_written()) {
            return Err(FilesError::BeingWritten(effect.admitted.asked().to_owned()).into());
        }
        let in_place: Vec<bool> = effects.iter().map(needs_in_place).collect();
        match self.apply_as(writer, group, &in_place, late) {
            // What cannot be given to a new file stays with the old one.
            Err(Stopped::Metadata(which)) if can_be_in_place(&effects[which]) && !in_place[which] => {
                let in_place: Vec<bool> =
                    in_place.iter().enumerate().map(|(index, chosen)| *chosen || index == which).collect();
                self.apply_as(writer, group, &in_place, late).map_err(|stopped| stopped.reason(effects))
            }
            applied => applied.map_err(|stopped| stopped.reason(effects)),
        }
    }

    fn apply_as(
        &self,
        writer: &mut Writer,
        group: &Group<'_>,
        in_place: &[bool],
        late: &mut Vec<(usize, Late)>,
    ) -> Result<Vec<Applied>, Stopped> {
        let Group { roots, origin, effects, at, tell } = *group;
        let calls = &self.inner.calls;
        let temps = effects.iter().map(|effect| {
            replace::temp_name().map_err(FilesError::system(effect.admitted.asked())).map_err(Stopped::Failed)
        });
        let temps = temps.collect::<Result<Vec<_>, _>>()?;
        let drafts = effects.iter().zip(&temps).zip(in_place);
        let drafts: Vec<_> =
            drafts.map(|((effect, temp), in_place)| draft(effect, temp, *in_place, origin)).collect();
        let changes = writer.journal.begin(&drafts, at).map_err(|error| Stopped::Failed(error.into()))?;
        let sizes = effects.iter().filter_map(|effect| effect.new.as_ref()).map(|new| new.bytes.len() as u64);
        writer.put_since_prune += sizes.sum::<u64>();
        let jobs: Vec<_> = (effects.iter().zip(&temps).zip(in_place))
            .map(|((effect, temp), in_place)| Job { effect, temp, in_place: *in_place })
            .collect();
        let place = (roots, self.inner.journal.as_path());
        let done = match Steps::new(place, calls, &jobs, tell, late).run() {
            Ok(done) => done,
            Err(halted) => return Err(self.stop(writer, halted, effects, &changes)),
        };
        let mut applied = Vec::new();
        let mut outcomes = Vec::new();
        for (Done { stat, is_clean }, change) in done.into_iter().zip(changes) {
            // What is left lying about is removed when it is put right, which needs the intent.
            writer.interrupted |= !is_clean;
            outcomes.extend(is_clean.then_some((change, Outcome::Done)));
            applied.push(Applied { change, stat });
        }
        // If this fails the intents stand, with both texts, and their outcome can be read off the disk.
        writer.interrupted |= writer.journal.settle(&outcomes).is_err();
        let room = self.inner.settings.retention.max_bytes / PRUNE_SHARE;
        // If it cannot be done now, it is tried again with the next write.
        if writer.put_since_prune > room && writer.journal.prune(at).is_ok() {
            writer.put_since_prune = 0;
        }
        for (effect, applied) in effects.iter().zip(&applied) {
            let bytes = effect.new.as_ref().map_or(&[][..], |new| &*new.bytes);
            let file = applied.stat.as_ref().map(|stat| (walker::stamp(stat), bytes));
            writer.lookout.expect(effect.admitted.canonical(), file);
        }
        self.start_reaper();
        self.outdate(effects.iter().map(|effect| effect.admitted.canonical()));
        Ok(applied)
    }

    /// Settles a group that was stopped at one effect.
    fn stop(
        &self,
        writer: &mut Writer,
        Halted { at, why, is_back }: Halted,
        effects: &[Effect],
        changes: &[ChangeId],
    ) -> Stopped {
        let path = effects[at].admitted.asked();
        if !is_back || matches!(why, NotPerformed::Failed(Failed::Interrupted(_))) {
            // Some of them may be changed. None of the group is settled, so that it is put right as one.
            writer.interrupted = true;
            let why = why.to_string();
            return Stopped::Failed(FilesError::Interrupted { path: path.to_owned(), why });
        }
        let outcomes: Vec<_> = changes.iter().map(|change| (*change, Outcome::Abandoned)).collect();
        writer.interrupted |= writer.journal.settle(&outcomes).is_err();
        match why {
            NotPerformed::Denied(denied) => Stopped::Failed(denied.into()),
            NotPerformed::Failed(Failed::Raced) => Stopped::Raced,
            NotPerformed::Failed(Failed::Metadata(_)) => Stopped::Metadata(at),
            NotPerformed::Failed(Failed::Undone(why) | Failed::Interrupted(why)) => {
                Stopped::Failed(FilesError::system(path)(why))
            }
        }
    }
}

/// Why a group of changes was stopped. All files are as they were.
enum Stopped {
    Raced,
    // The file's owner or attributes cannot be given to another one.
    Metadata(usize),
    Failed(FilesError),
}

impl Stopped {
    fn reason(self, effects: &[Effect]) -> NotApplied {
        match self {
            Self::Raced => NotApplied::Raced,
            Self::Metadata(at) => {
                let why = std::io::Error::other("the file's owner or attributes cannot be kept");
                NotApplied::Failed(FilesError::system(effects[at].admitted.asked())(why))
            }
            Self::Failed(error) => NotApplied::Failed(error),
        }
    }
}

fn can_be_in_place(effect: &Effect) -> bool {
    effect.current.is_some() && effect.new.is_some()
}

/// A file with several names, of another owner, or that a program keeps open for writing, keeps its identity.
fn needs_in_place(effect: &Effect) -> bool {
    let (Some(current), true) = (&effect.current, can_be_in_place(effect)) else { return false };
    let user = rustix::process::geteuid();
    let foreign = !user.is_root() && current.stat.st_uid != user.as_raw();
    current.stat.st_nlink > 1 || foreign || current.writers == WriterState::Idle
}

fn draft<'a>(effect: &'a Effect, temp: &str, in_place: bool, origin: &'a Origin) -> Draft<'a> {
    let before = effect
        .current
        .as_ref()
        .map(|current| Side { content: SideContent::Bytes(&current.bytes), mode: current.mode() });
    let after = effect.new.as_ref().map(|new| {
        let mode = new.mode.or(effect.current.as_ref().map(Current::mode)).unwrap_or_else(default_mode);
        Side { content: SideContent::Bytes(&new.bytes), mode }
    });
    let manner = if in_place { Manner::InPlace } else { Manner::Rename { temp: temp.to_owned() } };
    Draft {
        origin,
        source: Source::Written,
        path: effect.admitted.canonical(),
        before,
        after,
        reverses: &effect.reverses,
        manner,
    }
}

/// Returns the mode that a new file gets, as far as it can be known without changing the process's mask.
pub(super) fn default_mode() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022);
    0o666 & !mask
}
