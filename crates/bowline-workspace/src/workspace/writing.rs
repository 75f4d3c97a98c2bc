//! Writing: decided against what the session knows, recorded in the journal, then done.

use std::borrow::Cow;
use std::sync::{Arc, MutexGuard};

use bowline_state::changes::{ChangeId, ContentHash, Origin};
use bowline_state::documents::{Truth, truth};
use bowline_state::grants::FileId;
use bowline_state::ledger::{Decision, Knowledge, Situation, Verdict, Version, decide, decide_deletion};
use bowline_state::paths::{Access, Protection};
use bowline_state::text::{self, Decoded, Encoding, Format, NotText};

use super::applying::{Bytes, Current, Effect, Group, NewFile, NotApplied, Telling};
use super::documents::{DocumentEvent, Documents};
use super::merged_writes::MergedWrite;
use super::reading::document_version;
use super::{KeptText, Session, Writer};
use crate::clock::now;
use crate::disk;
use crate::error::FilesError;
use crate::file_clock::now_ns;
use crate::roots::{Admitted, Denied};
use crate::writers::{self, Purpose, WriterState};

/// How often a write is decided anew because somebody changed the file meanwhile.
const ATTEMPTS: usize = 8;

/// The bits of a mode that let a program run as its owner, or its group.
const SETUID_SETGID: u32 = 0o6000;

/// What is said of a write to a file with these bits.
pub const PRIVILEGES_DROPPED: &str = "the file had setuid or setgid, which the write removed";

const EDITED: &str =
    "the user changed the text before it was written: read the file again to see what it holds";

const UNGUARDED: &str = "the file system grants no leases here: a program that was writing the file at the same moment may not \
    have been noticed, look at the file if you edited it elsewhere";

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The file's own name.
    pub path: String,
    /// How it came about; none if the file held the text already.
    pub verdict: Option<Verdict>,
    /// The change in the journal, if there was one.
    pub change: Option<ChangeId>,
    /// What the file holds now: not what was sent, if it was merged or its line endings were kept.
    pub text: Arc<String>,
    /// Why the path is protected from writing.
    pub protection: Option<Protection>,
    /// Whether the file had setuid or setgid, which it has lost by the write.
    pub drops_privileges: bool,
    /// Whether the system cannot tell if another program has the file open for writing.
    pub is_unguarded: bool,
    /// Whether a person changed the text before it was written.
    pub is_edited: bool,
    /// Texts that others wrote to the file meanwhile and that could not be merged into it: only the journal has them.
    pub kept: Vec<KeptText>,
}

impl Written {
    /// Returns what the writer should be told besides, each on a line.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_edited {
            notes.push(EDITED.to_owned());
        }
        if self.drops_privileges {
            notes.push(PRIVILEGES_DROPPED.to_owned());
        }
        if self.is_unguarded {
            notes.push(UNGUARDED.to_owned());
        }
        notes.extend(self.kept.iter().map(ToString::to_string));
        notes
    }
}

/// What a write would do, for whoever has to approve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The file's own name.
    pub path: String,
    /// The file, if there is one.
    pub file: Option<FileId>,
    /// What the file holds, or the open document shows; none if there is nothing.
    pub before: Option<Arc<String>>,
    /// What it would hold.
    pub after: Arc<String>,
    /// How it would come about; none if the file holds the text already.
    pub verdict: Option<Verdict>,
    /// Why the path is protected from writing.
    pub protection: Option<Protection>,
    /// Whether the file has setuid or setgid, which it would lose by the write.
    pub drops_privileges: bool,
}

/// A write that is decided and not done yet.
struct Decided {
    admitted: Admitted,
    current: Option<Current>,
    // What an open document has that its file does not have.
    unsaved: Option<Arc<String>>,
    // What to merge against once the document is saved, if nobody but the user has seen its text.
    base: Option<Arc<String>>,
    format: Format,
    decision: Decision,
}

/// What somebody agreed to: a write does no more than that, whatever changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreed<'a> {
    /// To write the file of that name, found by no link, with whatever comes of it.
    Path(&'a str),
    /// To exactly what was shown.
    Shown(&'a Preview),
    /// To another text, that a person made of exactly what was shown.
    Edited(&'a Preview, &'a Arc<String>),
}

impl Session {
    /// Writes a file: replaces what the session knew, merges with what others changed, or refuses.
    ///
    /// # Errors
    /// Returns why nothing was written.
    pub fn write(&self, path: &str, content: &str, origin: &Origin) -> Result<Written, FilesError> {
        self.write_as_agreed(path, content, origin, None)
    }

    /// Writes a file, if that still is what was agreed to: looked at when nothing can come between any more.
    ///
    /// # Errors
    /// Returns why nothing was written; [`FilesError::NotAsAgreed`] if it would be something else by now.
    pub fn write_as_agreed(
        &self,
        path: &str,
        content: &str,
        origin: &Origin,
        agreed: Option<Agreed<'_>>,
    ) -> Result<Written, FilesError> {
        let workspace = &self.workspace;
        self.wait_for_writers(path);
        let mut writer = workspace.writer();
        writer.kept.clear();
        workspace.recover_interrupted(&mut writer, &self.roots)?;
        let _lock = writer.journal.lock()?;
        for _ in 0..ATTEMPTS {
            match self.attempt(&mut writer, path, content, origin, agreed) {
                Ok(written) => return Ok(Written { kept: std::mem::take(&mut writer.kept), ..written }),
                Err(NotApplied::Raced) => {}
                Err(NotApplied::Failed(error)) => return Err(error),
            }
        }
        Err(FilesError::Unsteady(path.to_owned()))
    }

    /// Waits for a program that is saving a file while no lock is held. Whether it is done is looked at again under the
    /// lock, and what fails here fails again there.
    fn wait_for_writers(&self, path: &str) {
        if let Ok(admitted) = self.roots.admit(path, Access::Write)
            && let Ok(Ok((file, _))) = self.roots.open_file(&admitted)
        {
            drop(writers::wait(&file, Purpose::Read));
        }
    }

    fn attempt(
        &self,
        writer: &mut Writer,
        path: &str,
        content: &str,
        origin: &Origin,
        agreed: Option<Agreed<'_>>,
    ) -> Result<Written, NotApplied> {
        self.workspace.restore_merged(writer, &self.roots, path, origin)?;
        let mut documents = self.workspace.documents();
        let mut decided = self.decide(path, content, &documents)?;
        if let Some(agreed) = agreed
            && !agreed.to(&decided)?
        {
            return Err(NotApplied::Failed(FilesError::NotAsAgreed(path.to_owned())));
        }
        if decided.unsaved.is_some() {
            // Nothing is saved for the sake of a write that cannot be.
            encode(&decided.decision.text, decided.format, path)?;
            let on_disk = (decided.admitted.canonical(), decided.current.as_ref());
            self.workspace.adopt_repeated(writer, on_disk, content, origin)?;
            // What the user typed is the user's change: it is saved first, so that to undo the agent's keeps it.
            let saved = self.workspace.save_open(writer, &mut documents, &self.roots, path)?.text;
            let canonical = decided.admitted.canonical();
            writer.lookout.merged.note(canonical, decided.merged_write(content, origin));
            if let Some(base) = decided.base.take() {
                self.with_ledger(|ledger| ledger.wrote(canonical, base));
            }
            decided = self.decide(path, content, &documents)?;
            if *saved != *content && decided.holds(content) {
                // The agent's own copy came meanwhile: the next attempt begins with what the user typed.
                return Err(NotApplied::Raced);
            }
        }
        let edited = match agreed {
            Some(Agreed::Edited(_, text)) => Some(text.clone()),
            _ => None,
        };
        let is_edited = edited.is_some();
        // What the session knows stays what it sent: its next write is merged with what the person made of this one.
        decided.decision.text = edited.unwrap_or(decided.decision.text);
        let (open, merged) = (documents.find(&decided.admitted), decided.merged_write(content, origin));
        // Where no document is open, nobody has to wait for the disk.
        let mut documents = open.map(|open| (documents, open));
        let written = self.carry_out(writer, decided, documents.as_mut(), origin)?;
        writer.lookout.merged.note(&written.path, merged);
        Ok(Written { is_edited, ..written })
    }

    /// Says what a write would do, and does nothing.
    ///
    /// # Errors
    /// Returns why it would not be done.
    pub fn preview(&self, path: &str, content: &str) -> Result<Preview, FilesError> {
        self.wait_for_writers(path);
        let documents = self.workspace.documents();
        let decided = self.decide(path, content, &documents)?;
        let bytes = encode(&decided.decision.text, decided.format, path)?;
        let held = decided.unsaved.is_none()
            && decided.current.as_ref().is_some_and(|current| current.bytes == bytes);
        Ok(Preview {
            path: decided.admitted.canonical().to_owned(),
            file: decided.admitted.file_id(),
            before: decided.before()?,
            after: decided.decision.text,
            verdict: (!held).then_some(decided.decision.verdict),
            protection: decided.admitted.protection(),
            drops_privileges: !held && unprivileged_mode(decided.current.as_ref()).is_some(),
        })
    }

    /// Deletes a file, if it is what the session knows.
    ///
    /// # Errors
    /// Returns why it was not deleted: there is nothing, or it was changed since the session read it.
    pub fn delete(&self, path: &str, origin: &Origin) -> Result<Option<ChangeId>, FilesError> {
        let workspace = &self.workspace;
        let mut writer = workspace.writer();
        workspace.recover_interrupted(&mut writer, &self.roots)?;
        let _lock = writer.journal.lock()?;
        for _ in 0..ATTEMPTS {
            let admitted = self.roots.admit(path, Access::Write)?;
            let mut documents = workspace.documents();
            let Some(current) = workspace.load(&self.roots, &admitted)? else {
                return Err(Denied::NotFound(path.to_owned()).into());
            };
            workspace.check_writable(&self.roots, &admitted, &current)?;
            self.check_deletion(&admitted, &current, &documents)?;
            let known_by = documents.find(&admitted);
            let canonical = admitted.canonical().to_owned();
            let effect = Effect { admitted, current: Some(current), new: None, reverses: Vec::new() };
            let group =
                Group { roots: &self.roots, origin, effects: &[effect], at: now(), tell: Telling(None) };
            match workspace.apply(&mut writer, &group) {
                Ok(applied) => {
                    if let Some(path) = known_by {
                        documents.tell(&DocumentEvent::FileGone { path });
                    }
                    self.with_ledger(|ledger| ledger.saw_nothing(&canonical));
                    return Ok(applied.first().map(|applied| applied.change));
                }
                Err(NotApplied::Raced) => {}
                Err(NotApplied::Failed(error)) => return Err(error),
            }
        }
        Err(FilesError::Unsteady(path.to_owned()))
    }

    /// What others changed since the session looked, or have not saved, is not deleted.
    fn check_deletion(
        &self,
        admitted: &Admitted,
        current: &Current,
        documents: &Documents,
    ) -> Result<(), FilesError> {
        let document = documents.find(admitted).and_then(|path| documents.get(&path));
        let version = disk::version(&current.stat);
        // What is not text has no text that a session could know.
        let disk = text::decode(current.bytes.clone()).ok().map(|decoded| decoded.text);
        let situation = Situation {
            knowledge: self.with_ledger(|ledger| ledger.knowledge(admitted.canonical(), version)),
            disk: disk.as_deref(),
            version,
            document,
            content: "",
            unseen: self.workspace.inner.settings.unseen,
        };
        decide_deletion(&situation)
            .map_err(|why| FilesError::Rejected { path: admitted.asked().to_owned(), why })
    }

    /// Decides a write against what the session knows.
    fn decide(&self, path: &str, content: &str, documents: &Documents) -> Result<Decided, FilesError> {
        let workspace = &self.workspace;
        let settings = &workspace.inner.settings;
        let admitted = self.roots.admit(path, Access::Write)?;
        let size = content.len() as u64;
        if size > settings.max_write {
            return Err(FilesError::ContentTooLarge { path: path.to_owned(), size, cap: settings.max_write });
        }
        let current = workspace.load(&self.roots, &admitted)?;
        if let Some(current) = &current {
            if current.writers == WriterState::Busy {
                return Err(FilesError::BeingWritten(path.to_owned()));
            }
            workspace.check_guards(&self.roots, &admitted, current)?;
        }
        let mut format = Format::default();
        let mut disk = None;
        if let Some(current) = &current {
            let (found, text) = decode(&current.bytes, path)?;
            (format, disk) = (found, Some(text));
        }
        // The mark before the text of a new file is the format's, as it is when the file is read.
        let mut content = content;
        if disk.as_ref().is_none_or(|disk| disk.is_empty())
            && let Some(rest) = content.strip_prefix('\u{feff}')
        {
            format.bom = true;
            content = rest;
        }
        let known_by = documents.find(&admitted);
        let document = known_by.as_ref().and_then(|path| documents.get(path));
        let dirty = document.filter(|document| document.is_dirty());
        let on_disk = current.as_ref().map(|current| disk::version(&current.stat));
        let version = match (&known_by, document) {
            // As a read of the same text has it.
            (Some(path), Some(shown)) if dirty.is_some() || truth(document, on_disk) == Truth::Document => {
                document_version(path, shown.revision())
            }
            _ => on_disk.unwrap_or(Version(0)),
        };
        let knowledge = self.with_ledger(|ledger| ledger.knowledge(admitted.canonical(), version));
        let unseen = match &knowledge {
            Knowledge::Whole(_) | Knowledge::Hashed(_) | Knowledge::Absent => false,
            Knowledge::Windows(seen) => *seen != version,
            Knowledge::Part(_) | Knowledge::Nothing => true,
        };
        let situation = Situation {
            knowledge,
            disk: disk.as_deref(),
            version,
            document,
            content,
            unseen: settings.unseen,
        };
        let decision =
            decide(&situation).map_err(|why| FilesError::Rejected { path: path.to_owned(), why })?;
        let unsaved = dirty.map(|document| document.text().clone());
        let base = (unsaved.is_some() && unseen).then(|| Arc::new(disk.unwrap_or_default().into_owned()));
        Ok(Decided { admitted, current, unsaved, base, format, decision })
    }

    fn carry_out(
        &self,
        writer: &mut Writer,
        decided: Decided,
        documents: Option<&mut (MutexGuard<'_, Documents>, String)>,
        origin: &Origin,
    ) -> Result<Written, NotApplied> {
        let Decided { admitted, current, format, decision, .. } = decided;
        let text = decision.text;
        let bytes = if format == Format::default() && memchr::memchr(0, text.as_bytes()).is_none() {
            Bytes::Text(text.clone())
        } else {
            Bytes::Own(encode(&text, format, admitted.asked())?)
        };
        let path = admitted.canonical().to_owned();
        let protection = admitted.protection();
        let held = current.as_ref().is_some_and(|current| *current.bytes == *bytes);
        let mut change = None;
        let mut stat = current.as_ref().map(|current| current.stat);
        let mode = unprivileged_mode(current.as_ref()).filter(|_| !held);
        let is_unguarded = current.as_ref().is_some_and(|current| current.writers == WriterState::Unknown);
        if !held {
            let new = Some(NewFile { bytes, mode });
            let effect = Effect { admitted, current, new, reverses: Vec::new() };
            let group =
                Group { roots: &self.roots, origin, effects: &[effect], at: now(), tell: Telling(None) };
            let applied = self.workspace.apply(writer, &group)?;
            for applied in applied {
                change = Some(applied.change);
                stat = applied.stat;
            }
        } else if let Some(current) = &current {
            let Writer { journal, lookout, .. } = writer;
            change = lookout.adopt(journal, &self.workspace.inner.roots, (&path, &current.bytes), origin)?;
        }
        if let Some((documents, known_by)) = documents {
            documents.settle(known_by, &text, stat.as_ref());
        }
        self.with_ledger(|ledger| ledger.wrote(&path, decision.known));
        // Also if nothing is left of what was sent after the merge.
        let is_change = !held || change.is_some();
        let verdict = (is_change || decision.verdict == Verdict::Merged).then_some(decision.verdict);
        let (drops_privileges, kept) = (mode.is_some(), Vec::new());
        Ok(Written {
            path,
            verdict,
            change,
            text,
            protection,
            drops_privileges,
            is_unguarded,
            is_edited: false,
            kept,
        })
    }
}

/// Returns the mode of a file without setuid and setgid, if it has them: what an agent writes does not run as another
/// user.
fn unprivileged_mode(current: Option<&Current>) -> Option<u32> {
    let mode = current?.mode();
    (mode & SETUID_SETGID != 0).then_some(mode & !SETUID_SETGID)
}

/// Reads the bytes of a file. The text of most files is the very bytes.
fn decode<'a>(bytes: &'a [u8], path: &str) -> Result<(Format, Cow<'a, str>), FilesError> {
    if let Some(text) = text::plain(bytes) {
        return Ok((Format::default(), Cow::Borrowed(text)));
    }
    let decoded =
        text::decode(bytes.to_owned()).map_err(|why| FilesError::NotText { path: path.to_owned(), why })?;
    Ok((decoded.format, Cow::Owned(decoded.text)))
}

impl Decided {
    /// Returns what the agent may overwrite, if the file is to hold something else than what was sent.
    fn merged_write(&self, content: &str, origin: &Origin) -> Option<MergedWrite> {
        let Decision { known, text, .. } = &self.decision;
        let encoded = |text: &str| encode(text, self.format, self.admitted.asked()).ok();
        let merged = (known != text).then(|| encoded(text))??;
        let sent = [content.as_bytes(), &encoded(known)?].map(ContentHash::of);
        Some(MergedWrite { sent, merged, origin: origin.clone(), at_ns: now_ns() })
    }

    /// Says whether the file holds just this text.
    fn holds(&self, content: &str) -> bool {
        self.current.as_ref().is_some_and(|current| current.bytes == content.as_bytes())
    }

    /// Returns what there is to be replaced.
    fn before(&self) -> Result<Option<Arc<String>>, FilesError> {
        Ok(match (&self.unsaved, &self.current) {
            (Some(unsaved), _) => Some(unsaved.clone()),
            (None, Some(current)) => {
                Some(Arc::new(decode(&current.bytes, self.admitted.asked())?.1.into_owned()))
            }
            (None, None) => None,
        })
    }
}

impl Agreed<'_> {
    fn to(self, decided: &Decided) -> Result<bool, FilesError> {
        let path = decided.admitted.canonical();
        Ok(match self {
            Self::Path(agreed) => path == agreed,
            Self::Shown(shown) | Self::Edited(shown, _) => {
                (path, decided.admitted.file_id()) == (shown.path.as_str(), shown.file)
                    && *decided.decision.text == *shown.after
                    && decided.before()? == shown.before
            }
        })
    }
}

/// Makes bytes of a text in its file's format, which has to be read back as the same text.
pub(super) fn encode(text: &str, format: Format, path: &str) -> Result<Vec<u8>, FilesError> {
    let bytes =
        text::encode(text, format).map_err(|why| FilesError::Unencodable { path: path.to_owned(), why })?;
    let not_text = |why| FilesError::NotText { path: path.to_owned(), why };
    // There is no other way to read these, and no NUL in them.
    if format.encoding == Encoding::Utf8 {
        return Ok(bytes);
    }
    // An encoding is only guessed: with other text the guess may be another.
    match text::decode(bytes.clone()) {
        Ok(Decoded { text: back, .. }) if back == text => Ok(bytes),
        Ok(_) => Err(not_text(NotText::Unfaithful)),
        Err(why) => Err(not_text(why)),
    }
}
