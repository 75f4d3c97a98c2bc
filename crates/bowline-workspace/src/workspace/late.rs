//! Bringing in what somebody wrote into a file at the very moment that it was replaced.

use bowline_state::changes::{ContentHash, Origin, Source};
use bowline_state::merge::merge;
use bowline_state::paths::Access;
use bowline_state::text;

use super::applying::{Bytes, Current, Effect, Group, NewFile, NotApplied, Telling};
use super::{Workspace, Writer};
use crate::clock::now;
use crate::error::FilesError;
use crate::journal::{Draft, Manner, Side, SideContent};
use crate::replace::Late;
use crate::roots::{Admitted, Roots};

/// How often it is tried because the file is changed again and again.
const ATTEMPTS: usize = 8;

impl Workspace {
    /// Merges a late text into its file, as the user's change. Where that cannot be, the journal keeps it: as what the
    /// file held before what it holds now.
    pub(super) fn bring_in(
        &self,
        writer: &mut Writer,
        roots: &Roots,
        admitted: &Admitted,
        late: Late,
    ) -> Result<(), NotApplied> {
        let mut waiting = vec![late];
        let mut attempts = 0;
        while let Some(late) = waiting.pop() {
            // An agent's own copy of what it had the engine write is no change of the user's.
            if writer.lookout.merged.is_sent(admitted.canonical(), ContentHash::of(&late.bytes)) {
                continue;
            }
            if late.is_back {
                let mode = admitted.found().map_or(0o644, |found| found.stat.st_mode & 0o7777);
                record(writer, admitted, Some((&late.base, mode)), Some((&late.bytes, mode)))?;
                continue;
            }
            attempts += 1;
            let admitted = roots.admit(admitted.canonical(), Access::Write).map_err(FilesError::from)?;
            let current = self.load(roots, &admitted)?;
            let Some(new) = current.as_ref().and_then(|current| together(current, &late)) else {
                self.keep_late(writer, &admitted, current.as_ref(), &late)?;
                continue;
            };
            if current.as_ref().is_some_and(|current| current.bytes == new) {
                continue;
            }
            if attempts > ATTEMPTS {
                self.keep_late(writer, &admitted, current.as_ref(), &late)?;
                continue;
            }
            let new = Some(NewFile { bytes: Bytes::Own(new), mode: None });
            let effect = Effect { admitted, current, new, reverses: Vec::new() };
            let mut again = Vec::new();
            let group = Group {
                roots,
                origin: &Origin::default(),
                effects: &[effect],
                at: now(),
                tell: Telling(None),
            };
            let applied = self.apply_either_way(writer, &group, &mut again);
            waiting.extend(again.into_iter().map(|(_, late)| late));
            match applied {
                Ok(_) => {}
                Err(NotApplied::Raced) => waiting.push(late),
                Err(failed) => return Err(failed),
            }
        }
        Ok(())
    }

    /// Keeps a late text in the journal, as what the file held before what it holds now.
    fn keep_late(
        &self,
        writer: &mut Writer,
        admitted: &Admitted,
        current: Option<&Current>,
        late: &Late,
    ) -> Result<(), FilesError> {
        let mode = current.map_or(0o644, Current::mode);
        let now = current.map(|current| current.bytes.as_slice());
        self.keep_text(writer, admitted.canonical(), (&late.bytes, mode), now)
    }
}

/// Returns the file with the late text merged in, if that can be.
fn together(current: &Current, late: &Late) -> Option<Vec<u8>> {
    let now = text::decode(current.bytes.clone()).ok()?;
    let read = |bytes: &[u8]| text::decode_as(bytes.to_owned(), now.format).ok();
    let merged = merge(&read(&late.base)?, &now.text, &read(&late.bytes)?).ok()?;
    text::encode(&merged.text, now.format).ok()
}

fn record(
    writer: &mut Writer,
    admitted: &Admitted,
    before: Option<(&[u8], u32)>,
    after: Option<(&[u8], u32)>,
) -> Result<(), FilesError> {
    fn side((bytes, mode): (&[u8], u32)) -> Side<'_> {
        Side { content: SideContent::Bytes(bytes), mode }
    }
    let draft = Draft {
        origin: &Origin::default(),
        source: Source::Observed,
        path: admitted.canonical(),
        before: before.map(side),
        after: after.map(side),
        reverses: &[],
        manner: Manner::Found,
    };
    writer.journal.record(&[draft], now())?;
    Ok(())
}
