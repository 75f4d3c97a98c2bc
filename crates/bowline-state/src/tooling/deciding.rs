//! What is written for a model, decided against what it knows. No file is touched here.

use std::collections::HashMap;
use std::sync::Arc;

use crate::changes::ContentHash;
use crate::edits::{self, Edit, EditFault, Likeness};
use crate::ledger::{self, Knowledge as Known, Ledger, Rejected, Situation, Unseen, Verdict, Version};

use super::telling::{conflict, small_diff};
use super::view::version;
const BOM: char = '\u{feff}';

/// So many files are remembered as told of; then none is, and some is told twice.
const MAX_TOLD: usize = 10_000;

/// Which texts of others' making the model was told of, though it may not build upon them.
#[derive(Debug, Default)]
pub struct Told {
    // Invariant: at most `MAX_TOLD`.
    texts: HashMap<String, Version>,
}

impl Told {
    fn tell(&mut self, key: &str, text: &str) {
        if self.texts.len() >= MAX_TOLD {
            self.texts.clear();
        }
        self.texts.insert(key.to_owned(), version(text));
    }
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Current {
    /// This text.
    Text(Arc<String>),
    /// There is no file.
    Missing,
    /// Nobody can say.
    Unknown,
}

impl Current {
    /// Returns the text, if there is one that is known.
    #[must_use]
    pub fn text(&self) -> Option<&Arc<String>> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Unknown => None,
        }
    }
}

/// What the model wants.
#[derive(Debug)]
pub enum Wanted {
    /// This text.
    Whole(String),
    /// These edits.
    Edits(Vec<Edit>),
}

/// What is to be written.
#[derive(Debug)]
pub struct Decided {
    /// The text.
    pub text: Arc<String>,
    /// What the model will know then, if that is less.
    pub known: Option<Arc<String>>,
    /// How it comes about.
    pub verdict: Option<Verdict>,
    /// In how many places.
    pub places: usize,
    /// What the model is told beside it.
    pub notes: Vec<String>,
}

/// Decides what is written to a file that the ledger knows by `key`, and people by `shown`.
///
/// # Errors
/// Returns why nothing is to be written, as a model reads it.
pub fn decide(
    (ledger, told): (&mut Ledger, &mut Told),
    key: &str,
    current: &Current,
    wanted: &Wanted,
    shown: &str,
) -> Result<Decided, String> {
    let now = current.text().map_or(Version(0), |text| version(text));
    let known = ledger.knowledge(key, now);
    // What others made of the text that the model knows.
    let news = match (&known, current.text()) {
        (Known::Whole(base), Some(text)) if base != text && told.texts.get(key) != Some(&now) => {
            told.tell(key, text);
            Some(small_diff(base, text).0)
        }
        _ => None,
    };
    match wanted {
        Wanted::Whole(content) => whole(known, current, now, content, shown, news),
        Wanted::Edits(list) => by_edits(current, list, shown, news),
    }
}

fn whole(
    known: Known,
    current: &Current,
    now: Version,
    content: &str,
    shown: &str,
    news: Option<String>,
) -> Result<Decided, String> {
    let has_mark = current.text().is_some_and(|text| text.starts_with(BOM));
    let marked = (has_mark && !content.starts_with(BOM)).then(|| format!("{BOM}{content}"));
    let content = marked.as_deref().unwrap_or(content);
    if *current == Current::Unknown {
        let text = Arc::new(content.to_owned());
        return Ok(Decided { text, known: None, verdict: None, places: 1, notes: Vec::new() });
    }
    let situation = Situation {
        knowledge: known,
        disk: current.text().map(|text| text.as_str()),
        version: now,
        document: None,
        content,
        unseen: Unseen::Overwrite,
    };
    let decision = ledger::decide(&situation).map_err(|rejected| {
        let hunks = match &rejected {
            Rejected::Conflict(found) | Rejected::DiskDiffers(found) => conflict(&found.hunks),
            Rejected::Stale | Rejected::Deleted | Rejected::PartlySeen(_) | Rejected::NotSeen => {
                String::new()
            }
        };
        format!("nothing was written: {shown}: {rejected}{hunks}")
    })?;
    let note = match (decision.verdict, news) {
        (Verdict::Merged, Some(diff)) => Some(format!(
            "Somebody changed the file since you read it; both changes are in it now. What came in:\n{diff}"
        )),
        (Verdict::Merged, None) => {
            Some("What others changed in the file is in it still, beside your text.".to_owned())
        }
        (Verdict::ReplacedUnseen, _) if current.text().is_some_and(|text| text.is_empty()) => None,
        (Verdict::ReplacedUnseen, _) => {
            Some("You had not read this file; other text was in it and has been replaced.".to_owned())
        }
        (Verdict::ReplacedPartlySeen, _) => {
            Some("You had read only a part of this file; the rest is as it was.".to_owned())
        }
        (Verdict::Created | Verdict::Replaced, _) => None,
    };
    let notes = note.into_iter().collect();
    let known = (decision.verdict == Verdict::Merged).then_some(decision.known);
    Ok(Decided { text: decision.text, known, verdict: Some(decision.verdict), places: 1, notes })
}

fn by_edits(current: &Current, list: &[Edit], shown: &str, news: Option<String>) -> Result<Decided, String> {
    let text = match current {
        Current::Text(text) => text,
        Current::Missing => {
            return Err(format!("{shown} does not exist: nothing was edited; write the file instead"));
        }
        Current::Unknown => return Err(format!("{shown} cannot be read, so it cannot be edited")),
    };
    let news = news.map(|diff| format!("Somebody else had changed the file since you last saw it:\n{diff}"));
    let edited = edits::apply(text, list).map_err(|fault| {
        let told = [Some(format!("nothing was edited in {shown}: {fault}")), hint(&fault), news.clone()];
        told.into_iter().flatten().collect::<Vec<_>>().join("\n")
    })?;
    let (verdict, notes) = (Some(Verdict::Replaced), news.into_iter().collect());
    Ok(Decided { text: Arc::new(edited.text), known: None, verdict, places: edited.places, notes })
}

/// Shows what is there in place of what was looked for.
fn hint(fault: &EditFault) -> Option<String> {
    let EditFault::NotFound { nearest: Some(nearest), .. } = fault else { return None };
    let likeness = match nearest.likeness {
        Likeness::Blanks => {
            "There is the same text with other blanks at the start or end of its lines".to_owned()
        }
        Likeness::Lines(equal, of) => format!("The most similar place has {equal} of its {of} lines"),
        Likeness::Words => "The most similar place has some of its words".to_owned(),
    };
    Some(format!(
        "{likeness}, at line {}. The file holds, from line {}:\n{}",
        nearest.line, nearest.shown_from, nearest.shown
    ))
}

/// Keeps what the model knows after a change: what it was told of, and no more. `now` is what the file holds, if that was
/// read and told in full.
pub fn remember(
    (ledger, told): (&mut Ledger, &mut Told),
    key: &str,
    current: &Current,
    wanted: &Wanted,
    decided: &Decided,
    now: Option<&Arc<String>>,
) {
    let before = current.text().map(|text| (text, version(text)));
    let known = ledger.knowledge(key, before.map_or(Version(0), |(_, version)| version));
    let knows_all = |ledger: &mut Ledger| match now {
        Some(now) => ledger.saw(key, now.clone(), version(now)),
        None => ledger.wrote(key, decided.text.clone()),
    };
    match (wanted, &decided.known) {
        // What others put in is not the model's to take out again.
        (Wanted::Whole(_), Some(known)) => ledger.wrote(key, known.clone()),
        (Wanted::Whole(_), None) => knows_all(ledger),
        (Wanted::Edits(list), _) => match (known, before) {
            (Known::Whole(base), Some((text, _))) if base == *text => knows_all(ledger),
            (Known::Whole(base), _) => {
                if let Ok(edited) = edits::apply(&base, list) {
                    ledger.wrote(key, Arc::new(edited.text));
                }
            }
            (Known::Windows(seen), Some((_, version))) if seen == version => knows_all(ledger),
            (Known::Hashed(hash), Some((text, _))) if hash == ContentHash::of(text.as_bytes()) => {
                knows_all(ledger);
            }
            // It still knows only a part.
            _ => {}
        },
    }
    // What came of it is told of as well.
    if let Some(now) = now {
        told.tell(key, now);
    }
}
