//! Decisions on a model's writes, based on its knowledge of the file. No file is touched here.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_history::ledger::{
    self, Knowledge as Known, Ledger, TextVersion, WriteContext, WriteRejectedError, WriteVerdict,
};
use bowline_text::edits::{self, EditError, SearchReplaceEdit, Similarity};
use bowline_text::hash::ContentHash;

use super::describe::{count_lines, count_noun, describe_conflicts, describe_diff};
use super::view::text_version;
const BOM: char = '\u{feff}';

/// The maximum number of files recorded as reported. At the limit all are forgotten, and some changes are reported
/// twice.
const MAX_REPORTED_TEXTS: usize = 10_000;

/// From how many bytes on a file is appended to without reading it.
const MIN_LARGE_BYTES: u64 = 1 << 20;

/// The texts by others that were reported to the model, although it has not read them.
#[derive(Debug, Default)]
pub struct ReportedTexts {
    // Invariant: at most `MAX_REPORTED_TEXTS`.
    texts: HashMap<String, TextVersion>,
}

impl ReportedTexts {
    fn record(&mut self, key: &str, text: &str) {
        if self.texts.len() >= MAX_REPORTED_TEXTS {
            self.texts.clear();
        }
        self.texts.insert(key.to_owned(), text_version(text));
    }
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CurrentText {
    /// This text.
    Text(Arc<String>),
    /// The file does not exist.
    Missing,
    /// The content cannot be determined.
    Unknown,
}

impl CurrentText {
    /// Returns the text, if it is known.
    #[must_use]
    pub fn text(&self) -> Option<&Arc<String>> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Unknown => None,
        }
    }
}

/// A model's requested write.
#[derive(Debug)]
pub enum RequestedWrite {
    /// This whole text.
    Whole(String),
    /// These edits.
    Edits(Vec<SearchReplaceEdit>),
    /// This text after the present one. A missing file is created.
    Append(String),
}

/// The decision on a write.
#[derive(Debug)]
pub struct WriteDecision {
    /// The text to write.
    pub text: Arc<String>,
    /// The text that the model knows afterwards, if it knows less.
    pub model_text: Option<Arc<String>>,
    /// The verdict of the ledger.
    pub verdict: Option<WriteVerdict>,
    /// The number of replaced places.
    pub place_count: usize,
    /// Notes for the model.
    pub notes: Vec<String>,
}

impl WriteDecision {
    /// Describes the write to a file that people know as `shown`, for the model.
    #[must_use]
    pub fn describe(&self, request: &RequestedWrite, shown: &str) -> String {
        let lines = |text: &str| count_noun(count_lines(text), "line");
        match (request, self.verdict) {
            (RequestedWrite::Edits(_), _) => {
                format!("Edited {shown} in {}", count_noun(self.place_count as u64, "place"))
            }
            (RequestedWrite::Append(addition), Some(WriteVerdict::Replaced)) => {
                format!("Appended {} to {shown}", lines(addition))
            }
            (_, Some(WriteVerdict::Created)) => format!("Created {shown} ({})", lines(&self.text)),
            _ => format!("Wrote {shown} ({})", lines(&self.text)),
        }
    }
}

/// Returns whether text is appended to a file of this size without reading it. If the model knows the whole text, it has
/// to be told what others changed.
#[must_use]
pub fn can_append_unread(ledger: &Ledger, key: &str, size: u64) -> bool {
    size >= MIN_LARGE_BYTES && !matches!(ledger.knowledge(key, TextVersion(0)), Known::Whole(_))
}

/// Decides on a write to the file that the ledger knows as `key` and people as `shown`.
///
/// # Errors
/// Returns why nothing is written, in words for the model.
pub fn decide_write(
    (ledger, reported): (&mut Ledger, &mut ReportedTexts),
    key: &str,
    current: &CurrentText,
    request: &RequestedWrite,
    shown: &str,
) -> Result<WriteDecision, String> {
    let now = current.text().map_or(TextVersion(0), |text| text_version(text));
    let known = ledger.knowledge(key, now);
    // Changes by others to the text that the model knows.
    let outside_change = match (&known, current.text()) {
        (Known::Whole(base), Some(text)) if base != text && reported.texts.get(key) != Some(&now) => {
            reported.record(key, text);
            Some(describe_diff(base, text).0)
        }
        _ => None,
    };
    match request {
        RequestedWrite::Whole(content) => decide_whole(known, current, now, content, shown, outside_change),
        RequestedWrite::Edits(list) => decide_edits(current, list, shown, outside_change),
        RequestedWrite::Append(addition) => {
            decide_append(&known, current, now, (addition, shown), outside_change)
        }
    }
}

fn decide_whole(
    knowledge: Known,
    current: &CurrentText,
    now: TextVersion,
    content: &str,
    shown: &str,
    outside_change: Option<String>,
) -> Result<WriteDecision, String> {
    let has_mark = current.text().is_some_and(|text| text.starts_with(BOM));
    let marked = (has_mark && !content.starts_with(BOM)).then(|| format!("{BOM}{content}"));
    let content = marked.as_deref().unwrap_or(content);
    if *current == CurrentText::Unknown {
        let text = Arc::new(content.to_owned());
        return Ok(WriteDecision {
            text,
            model_text: None,
            verdict: None,
            place_count: 1,
            notes: Vec::new(),
        });
    }
    let context = WriteContext {
        knowledge,
        disk_text: current.text().map(|text| text.as_str()),
        version: now,
        document: None,
        content,
    };
    let decision = ledger::decide_write(&context).map_err(|rejected| {
        let hunks = match &rejected {
            WriteRejectedError::Conflict(found) | WriteRejectedError::DiskConflict(found) => {
                describe_conflicts(&found.hunks)
            }
            WriteRejectedError::Stale | WriteRejectedError::Deleted | WriteRejectedError::UnreadLines(_) => {
                String::new()
            }
        };
        format!("nothing was written: {shown}: {rejected}{hunks}")
    })?;
    let note = match (decision.verdict, outside_change) {
        (WriteVerdict::Merged, Some(diff)) => Some(format!(
            "Another program changed the file since you read it; both changes are in it now. What came in:\n{diff}"
        )),
        (WriteVerdict::Merged, None) => {
            Some("What others changed in the file is in it still, beside your text.".to_owned())
        }
        (WriteVerdict::ReplacedUnseen, _) if current.text().is_some_and(|text| text.is_empty()) => None,
        (WriteVerdict::ReplacedUnseen, _) => {
            Some("You had not read this file; other text was in it and has been replaced.".to_owned())
        }
        (WriteVerdict::ReplacedPartlySeen, _) => {
            Some("You had read only a part of this file; the rest is as it was.".to_owned())
        }
        (WriteVerdict::Created | WriteVerdict::Replaced, _) => None,
    };
    let notes = note.into_iter().collect();
    let model_text = (decision.verdict == WriteVerdict::Merged).then_some(decision.known_text);
    Ok(WriteDecision {
        text: decision.text,
        model_text,
        verdict: Some(decision.verdict),
        place_count: 1,
        notes,
    })
}

fn decide_edits(
    current: &CurrentText,
    list: &[SearchReplaceEdit],
    shown: &str,
    outside_change: Option<String>,
) -> Result<WriteDecision, String> {
    let text = match current {
        CurrentText::Text(text) => text,
        CurrentText::Missing => {
            return Err(format!("{shown} does not exist: nothing was edited; write the file instead"));
        }
        CurrentText::Unknown => return Err(format!("{shown} cannot be read, so it cannot be edited")),
    };
    let outside_change = describe_outside_change(outside_change);
    let edited = edits::apply_search_replace(text, list).map_err(|error| {
        let parts = [
            Some(format!("nothing was edited in {shown}: {error}")),
            describe_nearest(&error),
            outside_change.clone(),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    })?;
    let (verdict, notes) = (Some(WriteVerdict::Replaced), outside_change.into_iter().collect());
    Ok(WriteDecision {
        text: Arc::new(edited.text),
        model_text: None,
        verdict,
        place_count: edited.replacements,
        notes,
    })
}

fn describe_outside_change(diff: Option<String>) -> Option<String> {
    diff.map(|diff| format!("Another program changed the file since you last saw it:\n{diff}"))
}

/// Appending replaces nothing, so the model need not have seen the text.
fn decide_append(
    knowledge: &Known,
    current: &CurrentText,
    now: TextVersion,
    (addition, shown): (&str, &str),
    outside_change: Option<String>,
) -> Result<WriteDecision, String> {
    if *current == CurrentText::Unknown {
        return Err(format!("{shown} cannot be read, so nothing can be appended"));
    }
    let text = current.text().map(|text| text.as_str());
    let appended = ledger::decide_insertion(knowledge, now, text, text.map_or(0, str::len), addition);
    let verdict = if text.is_some() { WriteVerdict::Replaced } else { WriteVerdict::Created };
    let model_text = appended.known_text.filter(|known| *known != appended.text);
    let notes = describe_outside_change(outside_change).into_iter().collect();
    Ok(WriteDecision { text: appended.text, model_text, verdict: Some(verdict), place_count: 1, notes })
}

/// Describes the text most similar to the one that was not found.
fn describe_nearest(error: &EditError) -> Option<String> {
    let EditError::NotFound { nearest: Some(nearest), .. } = error else { return None };
    let similarity = match nearest.similarity {
        Similarity::WhitespaceOnly => {
            "There is the same text with other blanks at the start or end of its lines".to_owned()
        }
        Similarity::Lines(equal, total) => format!("The most similar place has {equal} of its {total} lines"),
        Similarity::Words => "The most similar place has some of its words".to_owned(),
    };
    Some(format!(
        "{similarity}, at line {}. The file holds, from line {}:\n{}",
        nearest.line, nearest.excerpt_start, nearest.excerpt
    ))
}

/// Records what the model knows after a write: what was reported to it, and no more. `now` is the content of the
/// file, if it was read and reported in full.
pub fn record_write(
    (ledger, reported): (&mut Ledger, &mut ReportedTexts),
    key: &str,
    current: &CurrentText,
    request: &RequestedWrite,
    decided: &WriteDecision,
    now: Option<&Arc<String>>,
) {
    let before = current.text().map(|text| (text, text_version(text)));
    let known = ledger.knowledge(key, before.map_or(TextVersion(0), |(_, version)| version));
    let record_all = |ledger: &mut Ledger| match now {
        Some(now) => ledger.record_read(key, now.clone(), text_version(now)),
        None => ledger.record_write(key, decided.text.clone()),
    };
    match (request, &decided.model_text) {
        // Changes by others are not the model's to remove.
        (RequestedWrite::Whole(_) | RequestedWrite::Append(_), Some(known)) => {
            ledger.record_write(key, known.clone());
        }
        (RequestedWrite::Whole(_), None) => record_all(ledger),
        (RequestedWrite::Append(_), None) => match (known, before) {
            (Known::Whole(_), _) | (_, None) => record_all(ledger),
            (Known::Windows(seen), Some((_, version))) if seen == version => record_all(ledger),
            (Known::Hashed(hash), Some((text, _))) if hash == ContentHash::digest(text.as_bytes()) => {
                record_all(ledger);
            }
            // The model still knows only a part.
            _ => {}
        },
        (RequestedWrite::Edits(list), _) => match (known, before) {
            (Known::Whole(base), Some((text, _))) if base == *text => record_all(ledger),
            (Known::Whole(base), _) => {
                if let Ok(edited) = edits::apply_search_replace(&base, list) {
                    ledger.record_write(key, Arc::new(edited.text));
                }
            }
            (Known::Windows(seen), Some((_, version))) if seen == version => record_all(ledger),
            (Known::Hashed(hash), Some((text, _))) if hash == ContentHash::digest(text.as_bytes()) => {
                record_all(ledger);
            }
            // The model still knows only a part.
            _ => {}
        },
    }
    // The resulting text is reported as well.
    if let Some(now) = now {
        reported.record(key, now);
    }
}
