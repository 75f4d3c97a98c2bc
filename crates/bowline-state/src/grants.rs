//! Approvals that were given and not used yet.
//!
//! An agent asks for permission first and acts afterwards. What lies between is a *grant*: bound to exactly what the
//! person was shown, good for one operation of the same session and turn, gone when the turn ends.

use crate::changes::ContentHash;
use crate::operation::Invocation;

/// As many grants are kept. Whoever collects more than that does not use them: the oldest go.
pub const MAX_GRANTS: usize = 256;

/// A file itself, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The device it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// One operation with all that it does, as it was shown or as it is about to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// A file is read.
    Read {
        /// Its own name.
        path: String,
        /// The file, if there is one.
        file: Option<FileId>,
    },
    /// A file is written.
    Write {
        /// Its own name.
        path: String,
        /// The file, if there is one already.
        file: Option<FileId>,
        /// What it held, if there was one.
        before: Option<ContentHash>,
        /// What the agent sends.
        content: ContentHash,
        /// What it holds then: not what was sent, if that is merged with what others changed.
        after: ContentHash,
    },
    /// A file is deleted.
    Delete {
        /// Its own name.
        path: String,
        /// The file.
        file: Option<FileId>,
    },
    /// A command is run.
    Run {
        /// The command, in its normal form.
        invocation: Invocation,
        /// Where.
        cwd: String,
        /// What its environment has beside what every command's has.
        env: Vec<(String, String)>,
    },
}

impl Deed {
    /// Says whether two deeds are done to the same file, or run the same command.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Run { invocation, .. }, Self::Run { invocation: its, .. }) => invocation == its,
            (Self::Read { path, .. }, Self::Read { path: its, .. })
            | (Self::Write { path, .. }, Self::Write { path: its, .. })
            | (Self::Delete { path, .. }, Self::Delete { path: its, .. }) => path == its,
            _ => false,
        }
    }
}

/// Whose grant it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The session.
    pub session: String,
    /// Its turn, if one was going on.
    pub turn: Option<u64>,
}

/// The number of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u64);

/// A grant that was used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub id: GrantId,
    /// The tool call that it was given for.
    pub call: Option<String>,
}

/// One approval for one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    id: GrantId,
    holder: Holder,
    // The tool call that asked, so that a new request for the same one takes the place of the old.
    call: Option<String>,
    deed: Deed,
}

/// The grants of all sessions.
#[derive(Debug, Default)]
pub struct Grants {
    // Invariant: at most `MAX_GRANTS`, oldest first.
    given: Vec<Grant>,
    next: u64,
}

impl Grants {
    /// Notes what a person approved for a tool call, one grant for each deed. What was approved for the same call before is
    /// void.
    pub fn give(
        &mut self,
        holder: &Holder,
        call: Option<&str>,
        deeds: impl IntoIterator<Item = Deed>,
    ) -> Vec<GrantId> {
        if let Some(call) = call {
            self.supersede(&holder.session, call);
        }
        let mut ids = Vec::new();
        for deed in deeds {
            self.next += 1;
            let id = GrantId(self.next);
            self.given.push(Grant { id, holder: holder.clone(), call: call.map(str::to_owned), deed });
            ids.push(id);
        }
        let surplus = self.given.len().saturating_sub(MAX_GRANTS);
        self.given.drain(..surplus);
        ids
    }

    /// Uses up the grant for what is about to be done, if there is one for exactly that.
    pub fn take(&mut self, holder: &Holder, act: &Deed) -> Option<Taken> {
        let at = self.given.iter().position(|grant| grant.holder == *holder && grant.deed == *act)?;
        let grant = self.given.remove(at);
        Some(Taken { id: grant.id, call: grant.call })
    }

    /// Says whether something like it was approved: the same file, or the same command, and yet not this.
    #[must_use]
    pub fn has_like(&self, holder: &Holder, act: &Deed) -> bool {
        self.given.iter().any(|grant| grant.holder == *holder && grant.deed.is_like(act))
    }

    /// Voids what was approved for a tool call that is asked about again.
    pub fn supersede(&mut self, session: &str, call: &str) {
        self.given.retain(|grant| grant.holder.session != session || grant.call.as_deref() != Some(call));
    }

    /// Voids everything of a turn that has ended or was cancelled. What was approved outside of any turn stays.
    pub fn end_turn(&mut self, holder: &Holder) {
        self.given.retain(|grant| grant.holder != *holder);
    }

    /// Voids everything of a session.
    pub fn end_session(&mut self, session: &str) {
        self.given.retain(|grant| grant.holder.session != session);
    }

    /// Returns how many are unused.
    #[must_use]
    pub fn len(&self) -> usize {
        self.given.len()
    }

    /// Says whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }
}

#[cfg(test)]
mod tests;
