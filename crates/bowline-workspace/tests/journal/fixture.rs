//! A journal driven by lines of text, and rendered as text.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bowline_history::changes::{
    Change, ChangeId, ChangeOrigin, ChangeOutcome, ChangeSource, FileState, Reversal,
};
use bowline_history::observation::{FileStamp, KnownFile};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use bowline_workspace::journal::{
    ApplyMethod, BaselineRow, ChangeDraft, ChangeFilter, DraftContent, DraftSide, Journal, JournalEntry,
    JournalError, JournalNotice, Retention,
};
use expect_test::Expect;
use tempfile::TempDir;

/// Retention that drops nothing.
pub(crate) const KEEP_EVERYTHING: Retention =
    Retention { max_bytes: u64::MAX, max_age_ms: i64::MAX, max_changes: u64::MAX };

/// Opens a journal that drops nothing.
pub(crate) fn open_journal(directory: &Path) -> (Journal, Vec<JournalNotice>) {
    Journal::open(directory, KEEP_EVERYTHING, Timestamp(0)).unwrap()
}

/// A change of a file from some bytes to others.
pub(crate) fn draft<'a>(
    origin: &'a ChangeOrigin,
    path: &'a str,
    before: Option<&'a [u8]>,
    after: Option<&'a [u8]>,
) -> ChangeDraft<'a> {
    let side = |bytes| DraftSide { content: DraftContent::Bytes(bytes), mode: 0o644 };
    ChangeDraft {
        origin,
        source: ChangeSource::Written,
        path,
        before: before.map(side),
        after: after.map(side),
        moved_from: None,
        reverses: &[],
        method: ApplyMethod::Rename { temp: ".temp".to_owned() },
    }
}

/// Bytes that do not compress, different for each seed.
pub(crate) fn random_bytes(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

/// Renders every change as a line: number, file, bytes after, outcome.
pub(crate) fn history(journal: &Journal) -> String {
    let mut out = String::new();
    let entries = match journal.changes(&ChangeFilter::default()) {
        Ok(entries) => entries,
        Err(error) => return format!("! {error}\n"),
    };
    for JournalEntry { change, outcome } in entries {
        let text = |state: Option<FileState>| match state.map(|state| journal.content(&state.hash)) {
            None => "-".to_owned(),
            Some(Ok(None)) => "?".to_owned(),
            Some(Ok(Some(bytes))) => String::from_utf8(bytes).unwrap(),
            Some(Err(error)) => format!("! {error}"),
        };
        writeln!(out, "{} {} {} {:?}", change.id, change.path, text(change.after), outcome.unwrap()).unwrap();
    }
    out
}

/// Lists the directory and every file in it, with permissions.
pub(crate) fn list_files(directory: &Path) -> String {
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let mut paths: Vec<PathBuf> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut out = format!("{:04o} .\n", mode(directory));
    for path in paths {
        writeln!(out, "{:04o} {}", mode(&path), path.file_name().unwrap().display()).unwrap();
    }
    out
}

/// Replaces the path of the directory in a text.
pub(crate) fn redact_directory(directory: &Path, text: impl ToString) -> String {
    let directory = directory.canonicalize().unwrap();
    text.to_string().replace(directory.to_str().unwrap(), "$DIR")
}

/// Runs steps against a new journal and compares their output.
///
/// `begin` and `record` take a path and two sides: `-` is no file, `#text` a file known only by its hash, `text*9` the
/// text nine times. A `;` separates the changes of one batch. A `key=value` applies to the whole step.
pub(crate) fn check(retention: Retention, steps: &str, expected: Expect) {
    let directory = TempDir::new().unwrap();
    let open = |now| Journal::open(directory.path(), retention, Timestamp(now)).unwrap();
    let mut journal = open(0).0;
    let mut texts = NamedTexts::default();
    let mut now = 0;
    let mut out = String::new();
    for line in steps.trim().lines() {
        let step = JournalStep::parse(line);
        match *step.words {
            ["at", moment] => now = moment.parse().unwrap(),
            ["reopen"] => {
                drop(journal);
                let notices;
                (journal, notices) = open(now);
                assert_eq!(notices, []);
            }
            _ => match step.run(&mut journal, &mut texts, Timestamp(now)) {
                Ok(text) => out.push_str(&text),
                Err(error) => writeln!(out, "! {}", redact_directory(directory.path(), error)).unwrap(),
            },
        }
    }
    expected.assert_eq(&out);
}

/// The texts named by steps, so that a hash can be shown as its text.
#[derive(Default)]
struct NamedTexts(Vec<(ContentHash, String)>);

impl NamedTexts {
    fn bytes(&mut self, text: &str) -> Vec<u8> {
        let bytes = match text.split_once('*') {
            Some((unit, times)) => unit.repeat(times.parse().unwrap()).into_bytes(),
            None => text.as_bytes().to_vec(),
        };
        self.0.push((ContentHash::digest(&bytes), text.to_owned()));
        bytes
    }

    fn name(&self, hash: &ContentHash) -> &str {
        self.0.iter().find(|(known, _)| known == hash).map_or("?", |(_, text)| text)
    }

    fn describe_state(&self, state: &Option<FileState>) -> String {
        match state {
            None => "-".to_owned(),
            Some(state) => format!("{}({} {:o})", self.name(&state.hash), state.size, state.mode),
        }
    }

    fn describe_change(&self, change: &Change) -> String {
        let Change { id, at, origin, source, path, before, after, reverses, moved_from: _ } = change;
        let mut line = format!(
            "{id} @{} {path} {} -> {}",
            at.0,
            self.describe_state(before),
            self.describe_state(after)
        );
        let ChangeOrigin { session, turn, call, command } = origin;
        let turn = turn.map(|turn| turn.to_string());
        for part in [session, &turn, call, command].into_iter().flatten() {
            write!(line, " {part}").unwrap();
        }
        if *source != ChangeSource::Written {
            write!(line, " {source:?}").unwrap();
        }
        for Reversal { change, hunks } in reverses {
            write!(line, " reverses {change} {hunks:?}").unwrap();
        }
        line
    }

    fn describe_entry(&self, entry: &JournalEntry) -> String {
        let outcome = entry.outcome.map_or("Pending".to_owned(), |outcome| format!("{outcome:?}"));
        format!("{} {outcome}\n", self.describe_change(&entry.change))
    }
}

struct JournalStep<'a> {
    words: Vec<&'a str>,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> JournalStep<'a> {
    fn parse(line: &'a str) -> Self {
        let (options, words) = line.split_whitespace().partition::<Vec<_>, _>(|word| word.contains('='));
        Self { words, options: options.iter().map(|option| option.split_once('=').unwrap()).collect() }
    }

    fn option(&self, key: &str) -> Option<&'a str> {
        self.options.iter().find(|(found, _)| *found == key).map(|(_, value)| *value)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.option(key).map(|number| number.parse().unwrap())
    }

    fn run(
        &self,
        journal: &mut Journal,
        texts: &mut NamedTexts,
        now: Timestamp,
    ) -> Result<String, JournalError> {
        let nothing = |()| String::new();
        match *self.words {
            ["begin" | "record", ref sides @ ..] => self.begin(sides, journal, texts, now),
            ["settle", ref pairs @ ..] => {
                let outcomes: Vec<_> =
                    pairs.chunks(2).map(|pair| (parse_id(pair[0]), parse_outcome(pair[1]))).collect();
                journal.settle(&outcomes).map(nothing)
            }
            ["pending"] => journal.pending_changes().map(|pending| {
                pending
                    .iter()
                    .map(|one| format!("{} {:?}\n", texts.describe_change(&one.change), one.method))
                    .collect()
            }),
            ["changes"] => {
                let filter = ChangeFilter {
                    session: self.option("session"),
                    turn: self.number("turn"),
                    call: self.option("call"),
                    path: self.option("path"),
                    after: self.option("after").map(parse_id),
                    before: self.option("before").map(parse_id),
                    limit: self.number("limit").map(|limit| limit as usize),
                };
                Ok(journal.changes(&filter)?.iter().map(|entry| texts.describe_entry(entry)).collect())
            }
            ["change", number] => Ok(match journal.change(parse_id(number))? {
                Some(entry) => texts.describe_entry(&entry),
                None => format!("no change {number}\n"),
            }),
            ["blob", text] => {
                let bytes = texts.bytes(text);
                Ok(match journal.content(&ContentHash::digest(&bytes))? {
                    Some(kept) => format!("{text} is kept: {}\n", kept == bytes),
                    None => format!("{text} is not kept\n"),
                })
            }
            ["keep", ref words @ ..] => {
                let contents: Vec<_> = words.iter().map(|word| texts.bytes(word)).collect();
                let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
                journal.store_contents(&contents).map(|_| String::new())
            }
            ["watch", path, text] => {
                let hash = (text != "-").then(|| ContentHash::digest(&texts.bytes(text)));
                journal.update_baseline(&[baseline_row(path, hash)], &[]).map(nothing)
            }
            ["forget", path] => journal.update_baseline(&[], &[path.to_owned()]).map(nothing),
            ["baseline"] => {
                let show = |row: &BaselineRow| {
                    format!("{} {}\n", row.path, row.known.hash.as_ref().map_or("-", |hash| texts.name(hash)))
                };
                Ok(journal.baseline()?.iter().map(show).collect())
            }
            ["prune"] => journal.prune(now).map(|pruned| format!("{pruned:?}\n")),
            ref other => panic!("no such step: {other:?}"),
        }
    }

    fn begin(
        &self,
        sides: &[&str],
        journal: &mut Journal,
        texts: &mut NamedTexts,
        now: Timestamp,
    ) -> Result<String, JournalError> {
        let origin = ChangeOrigin {
            session: self.option("session").map(str::to_owned),
            turn: self.number("turn"),
            call: self.option("call").map(str::to_owned),
            command: self.option("command").map(str::to_owned),
        };
        let reverses: Vec<_> = self
            .option("reverses")
            .into_iter()
            .flat_map(|text| text.split(';'))
            .map(parse_reversal)
            .collect();
        let found = self.words[0] == "record";
        let manner = match self.option("manner") {
            Some("in-place") => ApplyMethod::InPlace,
            None if found => ApplyMethod::AlreadyApplied,
            _ => ApplyMethod::Rename { temp: ".temp".to_owned() },
        };
        let source = match self.option("source") {
            Some("observed") => ChangeSource::Observed,
            Some("claimed") => ChangeSource::Claimed,
            _ => ChangeSource::Written,
        };
        let mut bytes = |word: &str| match word {
            "-" => None,
            word => Some((word.starts_with('#'), texts.bytes(word.trim_start_matches('#')))),
        };
        let changes: Vec<_> = sides
            .split(|word| *word == ";")
            .map(|words| (words[0], bytes(words[1]), bytes(words[2])))
            .collect();
        let drafts: Vec<_> = changes
            .iter()
            .map(|(path, before, after)| ChangeDraft {
                origin: &origin,
                source,
                path,
                before: before.as_ref().map(draft_side),
                after: after.as_ref().map(draft_side),
                moved_from: None,
                reverses: &reverses,
                method: manner.clone(),
            })
            .collect();
        let ids = if found { journal.record(&drafts, now)? } else { journal.begin(&drafts, now)? };
        Ok(ids.iter().map(|id| format!("[{id}]")).collect::<String>() + "\n")
    }
}

fn draft_side((known, bytes): &(bool, Vec<u8>)) -> DraftSide<'_> {
    let content = match known {
        true => DraftContent::HashOnly { hash: ContentHash::digest(bytes), size: bytes.len() as u64 },
        false => DraftContent::Bytes(bytes),
    };
    DraftSide { content, mode: 0o644 }
}

/// Returns a baseline row with the largest possible numbers.
pub(crate) fn baseline_row(path: &str, hash: Option<ContentHash>) -> BaselineRow {
    let stamp = FileStamp {
        size: 7,
        mtime_ns: -1,
        ctime_ns: i64::MAX,
        inode: u64::MAX,
        device: u64::MAX,
        mode: 0o100_644,
    };
    BaselineRow { path: path.to_owned(), known: KnownFile { stamp, hash, is_racy: true }, git_object: None }
}

fn parse_id(text: &str) -> ChangeId {
    ChangeId(text.parse().unwrap())
}

fn parse_outcome(text: &str) -> ChangeOutcome {
    match text {
        "done" => ChangeOutcome::Done,
        "abandoned" => ChangeOutcome::Abandoned,
        "unknown" => ChangeOutcome::Unknown,
        other => panic!("no such outcome: {other}"),
    }
}

/// Parses `3` as the whole of change 3, and `3:0,2` as two hunks of it.
fn parse_reversal(text: &str) -> Reversal {
    let (change, hunks) = text.split_once(':').map_or((text, None), |(change, hunks)| (change, Some(hunks)));
    let hunks = hunks.map(|hunks| hunks.split_terminator(',').map(|hunk| hunk.parse().unwrap()).collect());
    Reversal { change: parse_id(change), hunks }
}
