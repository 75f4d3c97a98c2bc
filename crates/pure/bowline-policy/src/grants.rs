//! Unused approvals.
//!
//! An agent first asks for permission and then acts. In between stands a *grant*: bound to exactly what the person was
//! shown, valid for one operation in the same session and turn, and void when the turn ends.

use bowline_protocol::terminal::Invocation;
use bowline_text::hash::ContentHash;

/// The maximum number of grants. An agent that collects more does not use them: the oldest are dropped.
pub const MAX_GRANTS: usize = 256;

/// The identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Its device.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
}

/// One operation with all its effects, as shown or as about to be performed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedOperation {
    /// A file is read.
    Read {
        /// The canonical path.
        path: String,
        /// The file, if it exists.
        file: Option<FileId>,
    },
    /// A file is written.
    Write {
        /// The canonical path.
        path: String,
        /// The file, if it exists already.
        file: Option<FileId>,
        /// Its previous content, if it existed.
        before: Option<ContentHash>,
        /// The content that the agent sends.
        content: ContentHash,
        /// The resulting content, which differs from the sent one if concurrent changes are merged.
        after: ContentHash,
    },
    /// A file is deleted.
    Delete {
        /// The canonical path.
        path: String,
        /// The file.
        file: Option<FileId>,
    },
    /// A command is run.
    Run {
        /// The command, in normal form.
        invocation: Invocation,
        /// Its working directory.
        cwd: String,
        /// Its additional environment variables.
        env: Vec<(String, String)>,
    },
}

impl ResolvedOperation {
    /// Returns whether two operations affect the same file or run the same command.
    fn has_same_target(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Run { invocation, .. }, Self::Run { invocation: other_invocation, .. }) => {
                invocation == other_invocation
            }
            (Self::Read { path, .. }, Self::Read { path: other_path, .. })
            | (Self::Write { path, .. }, Self::Write { path: other_path, .. })
            | (Self::Delete { path, .. }, Self::Delete { path: other_path, .. }) => path == other_path,
            _ => false,
        }
    }
}

/// The holder of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantHolder {
    /// The session.
    pub session: String,
    /// Its turn, if one was active.
    pub turn: Option<u64>,
}

/// The id of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u64);

/// A consumed grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedGrant {
    /// Its id.
    pub id: GrantId,
    /// The tool call for which it was given.
    pub call: Option<String>,
}

/// One approval for one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    id: GrantId,
    holder: GrantHolder,
    // The tool call that asked: a new request for the same call replaces the old grant.
    call: Option<String>,
    operation: ResolvedOperation,
}

/// The grants of all sessions.
#[derive(Debug, Default)]
pub struct Grants {
    // Invariant: at most `MAX_GRANTS`, oldest first.
    grants: Vec<Grant>,
    last_id: u64,
}

impl Grants {
    /// Records a person's approval of a tool call, with one grant per operation. Earlier grants for the same call are
    /// revoked.
    pub fn add(
        &mut self,
        holder: &GrantHolder,
        call: Option<&str>,
        operations: impl IntoIterator<Item = ResolvedOperation>,
    ) -> Vec<GrantId> {
        if let Some(call) = call {
            self.revoke_call_grants(&holder.session, call);
        }
        let mut ids = Vec::new();
        for operation in operations {
            self.last_id += 1;
            let id = GrantId(self.last_id);
            self.grants.push(Grant { id, holder: holder.clone(), call: call.map(str::to_owned), operation });
            ids.push(id);
        }
        let surplus = self.grants.len().saturating_sub(MAX_GRANTS);
        self.grants.drain(..surplus);
        ids
    }

    /// Consumes the grant for exactly this operation, if one exists.
    pub fn take(&mut self, holder: &GrantHolder, operation: &ResolvedOperation) -> Option<UsedGrant> {
        let at =
            self.grants.iter().position(|grant| grant.holder == *holder && grant.operation == *operation)?;
        let grant = self.grants.remove(at);
        Some(UsedGrant { id: grant.id, call: grant.call })
    }

    /// Returns whether a similar operation was approved: one on the same file or with the same command.
    #[must_use]
    pub fn has_similar(&self, holder: &GrantHolder, operation: &ResolvedOperation) -> bool {
        self.grants.iter().any(|grant| grant.holder == *holder && grant.operation.has_same_target(operation))
    }

    /// Revokes the grants of a tool call that asks again.
    pub fn revoke_call_grants(&mut self, session: &str, call: &str) {
        self.grants.retain(|grant| grant.holder.session != session || grant.call.as_deref() != Some(call));
    }

    /// Revokes all grants of a turn that has ended or was cancelled. Grants given outside any turn remain.
    pub fn end_turn(&mut self, holder: &GrantHolder) {
        self.grants.retain(|grant| grant.holder != *holder);
    }

    /// Revokes all grants of a session.
    pub fn end_session(&mut self, session: &str) {
        self.grants.retain(|grant| grant.holder.session != session);
    }

    /// Returns the number of unused grants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// Returns whether there are no unused grants.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }
}

#[cfg(test)]
mod tests;
