//! What a writer finds at the end of a log that its anchor does not say, in words.

use bowline_state::changes::ContentHash;

/// What is on the disk beside what the anchor says.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Lines after the anchor that go on with the chain.
    pub(super) adopted: u64,
    /// Lines after the anchor that do not.
    pub(super) foreign: u64,
    /// What is left of a line with no end.
    pub(super) scrap: Option<(ContentHash, u64)>,
    /// The anchor says more than there is.
    pub(super) missing: bool,
    /// There was no anchor, or none that can be read.
    pub(super) unanchored: bool,
}

impl Found {
    /// Says in words what was found; none if it is as the anchor says.
    pub(super) fn told(&self) -> Option<String> {
        let mut told = Vec::new();
        if self.unanchored && (self.adopted > 0 || self.foreign > 0 || self.scrap.is_some() || self.missing) {
            told.push("the anchor was missing or unreadable".to_owned());
        } else if self.unanchored {
            told.push("the anchor was missing or unreadable, and was made anew from the log".to_owned());
        }
        if self.missing {
            told.push("the log ended before what its anchor says".to_owned());
        }
        if self.adopted > 0 {
            told.push(format!("{} at the end not in the anchor", entries(self.adopted)));
        }
        if self.foreign > 0 {
            told.push(format!("{} at the end that are not of the log", self.foreign));
        }
        if self.scrap.is_some() {
            told.push("the last line was torn".to_owned());
        }
        (!told.is_empty()).then(|| told.join("; "))
    }
}

fn entries(count: u64) -> String {
    if count == 1 { "1 entry was".to_owned() } else { format!("{count} entries were") }
}
