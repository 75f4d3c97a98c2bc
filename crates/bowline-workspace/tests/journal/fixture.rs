//! A journal driven by lines of text, and shown as text.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bowline_state::changes::{Change, ChangeId, ContentHash, FileState, Moment, Origin, Reversal, Source};
use bowline_workspace::journal::{
    BaselineRow, Draft, Entry, Filter, Journal, JournalError, Manner, Notice, Outcome, Retention, Side,
    SideContent,
};
use expect_test::Expect;
use tempfile::TempDir;

/// Retention that drops nothing.
pub(crate) const EVERYTHING: Retention =
    Retention { max_bytes: u64::MAX, max_age_ms: i64::MAX, max_changes: u64::MAX };

/// Opens a journal that drops nothing.
pub(crate) fn open(directory: &Path) -> (Journal, Vec<Notice>) {
    Journal::open(directory, EVERYTHING, Moment(0)).unwrap()
}

/// A change of a file from some bytes to others.
pub(crate) fn draft<'a>(
    origin: &'a Origin,
    path: &'a str,
    before: Option<&'a [u8]>,
    after: Option<&'a [u8]>,
) -> Draft<'a> {
    let side = |bytes| Side { content: SideContent::Bytes(bytes), mode: 0o644 };
    Draft {
        origin,
        source: Source::Written,
        path,
        before: before.map(side),
        after: after.map(side),
        reverses: &[],
        manner: Manner::Rename { temp: ".temp".to_owned() },
    }
}

/// Bytes that do not compress, different for each seed.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

/// Every change as a line: number, file, bytes after, outcome.
pub(crate) fn history(journal: &Journal) -> String {
    let mut out = String::new();
    let entries = match journal.changes(&Filter::default()) {
        Ok(entries) => entries,
        Err(error) => return format!("! {error}\n"),
    };
    for Entry { change, outcome } in entries {
        let text = |state: Option<FileState>| match state.map(|state| journal.blob(&state.hash)) {
            None => "-".to_owned(),
            Some(Ok(None)) => "?".to_owned(),
            Some(Ok(Some(bytes))) => String::from_utf8(bytes).unwrap(),
            Some(Err(error)) => format!("! {error}"),
        };
        writeln!(out, "{} {} {} {:?}", change.id, change.path, text(change.after), outcome.unwrap()).unwrap();
    }
    out
}

/// The directory and every file in it, with permissions.
pub(crate) fn files(directory: &Path) -> String {
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let mut paths: Vec<PathBuf> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut out = format!("{:04o} .\n", mode(directory));
    for path in paths {
        writeln!(out, "{:04o} {}", mode(&path), path.file_name().unwrap().display()).unwrap();
    }
    out
}

/// A text without the name of the directory.
pub(crate) fn without(directory: &Path, text: impl ToString) -> String {
    let directory = directory.canonicalize().unwrap();
    text.to_string().replace(directory.to_str().unwrap(), "$DIR")
}

/// Runs steps against a new journal and compares what they show.
///
/// `begin` and `record` take a path and two sides: `-` is no file, `#text` one of which only the hash is told, `text*9`
/// the text nine times. A `;` parts the changes of one batch. What is written `key=value` applies to the whole step.
pub(crate) fn check(retention: Retention, steps: &str, expected: Expect) {
    let directory = TempDir::new().unwrap();
    let open = |now| Journal::open(directory.path(), retention, Moment(now)).unwrap();
    let mut journal = open(0).0;
    let mut texts = Texts::default();
    let mut now = 0;
    let mut out = String::new();
    for line in steps.trim().lines() {
        let step = Step::parse(line);
        match *step.words {
            ["at", moment] => now = moment.parse().unwrap(),
            ["reopen"] => {
                drop(journal);
                let notices;
                (journal, notices) = open(now);
                assert_eq!(notices, []);
            }
            _ => match step.run(&mut journal, &mut texts, Moment(now)) {
                Ok(text) => out.push_str(&text),
                Err(error) => writeln!(out, "! {}", without(directory.path(), error)).unwrap(),
            },
        }
    }
    expected.assert_eq(&out);
}

/// The texts that steps named, so that a hash can be shown as the text it is of.
#[derive(Default)]
struct Texts(Vec<(ContentHash, String)>);

impl Texts {
    fn bytes(&mut self, text: &str) -> Vec<u8> {
        let bytes = match text.split_once('*') {
            Some((unit, times)) => unit.repeat(times.parse().unwrap()).into_bytes(),
            None => text.as_bytes().to_vec(),
        };
        self.0.push((ContentHash::of(&bytes), text.to_owned()));
        bytes
    }

    fn name(&self, hash: &ContentHash) -> &str {
        self.0.iter().find(|(known, _)| known == hash).map_or("?", |(_, text)| text)
    }

    fn state(&self, state: &Option<FileState>) -> String {
        match state {
            None => "-".to_owned(),
            Some(state) => format!("{}({} {:o})", self.name(&state.hash), state.size, state.mode),
        }
    }

    fn change(&self, change: &Change) -> String {
        let Change { id, at, origin, source, path, before, after, reverses } = change;
        let mut line = format!("{id} @{} {path} {} -> {}", at.0, self.state(before), self.state(after));
        let Origin { session, turn, call, command } = origin;
        let turn = turn.map(|turn| turn.to_string());
        for part in [session, &turn, call, command].into_iter().flatten() {
            write!(line, " {part}").unwrap();
        }
        if *source != Source::Written {
            write!(line, " {source:?}").unwrap();
        }
        for Reversal { change, hunks } in reverses {
            write!(line, " reverses {change} {hunks:?}").unwrap();
        }
        line
    }

    fn entry(&self, entry: &Entry) -> String {
        let outcome = entry.outcome.map_or("Pending".to_owned(), |outcome| format!("{outcome:?}"));
        format!("{} {outcome}\n", self.change(&entry.change))
    }
}

struct Step<'a> {
    words: Vec<&'a str>,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Step<'a> {
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

    fn run(&self, journal: &mut Journal, texts: &mut Texts, now: Moment) -> Result<String, JournalError> {
        let nothing = |()| String::new();
        match *self.words {
            ["begin" | "record", ref sides @ ..] => self.begin(sides, journal, texts, now),
            ["settle", ref pairs @ ..] => {
                let outcomes: Vec<_> = pairs.chunks(2).map(|pair| (id(pair[0]), outcome(pair[1]))).collect();
                journal.settle(&outcomes).map(nothing)
            }
            ["pending"] => journal.pending().map(|pending| {
                pending
                    .iter()
                    .map(|one| format!("{} {:?}\n", texts.change(&one.change), one.manner))
                    .collect()
            }),
            ["changes"] => {
                let filter = Filter {
                    session: self.option("session"),
                    turn: self.number("turn"),
                    call: self.option("call"),
                    path: self.option("path"),
                    after: self.option("after").map(id),
                    before: self.option("before").map(id),
                    limit: self.number("limit").map(|limit| limit as usize),
                };
                Ok(journal.changes(&filter)?.iter().map(|entry| texts.entry(entry)).collect())
            }
            ["change", number] => Ok(match journal.change(id(number))? {
                Some(entry) => texts.entry(&entry),
                None => format!("no change {number}\n"),
            }),
            ["blob", text] => {
                let bytes = texts.bytes(text);
                Ok(match journal.blob(&ContentHash::of(&bytes))? {
                    Some(kept) => format!("{text} is kept: {}\n", kept == bytes),
                    None => format!("{text} is not kept\n"),
                })
            }
            ["keep", ref words @ ..] => {
                let contents: Vec<_> = words.iter().map(|word| texts.bytes(word)).collect();
                let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
                journal.keep(&contents).map(|_| String::new())
            }
            ["watch", path, text] => {
                let hash = (text != "-").then(|| ContentHash::of(&texts.bytes(text)));
                journal.update_baseline(&[row(path, hash)], &[]).map(nothing)
            }
            ["forget", path] => journal.update_baseline(&[], &[path.to_owned()]).map(nothing),
            ["baseline"] => {
                let show = |row: &BaselineRow| {
                    format!("{} {}\n", row.path, row.hash.as_ref().map_or("-", |hash| texts.name(hash)))
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
        texts: &mut Texts,
        now: Moment,
    ) -> Result<String, JournalError> {
        let origin = Origin {
            session: self.option("session").map(str::to_owned),
            turn: self.number("turn"),
            call: self.option("call").map(str::to_owned),
            command: self.option("command").map(str::to_owned),
        };
        let reverses: Vec<_> =
            self.option("reverses").into_iter().flat_map(|text| text.split(';')).map(reversal).collect();
        let found = self.words[0] == "record";
        let manner = match self.option("manner") {
            Some("in-place") => Manner::InPlace,
            None if found => Manner::Found,
            _ => Manner::Rename { temp: ".temp".to_owned() },
        };
        let source = match self.option("source") {
            Some("observed") => Source::Observed,
            Some("claimed") => Source::Claimed,
            _ => Source::Written,
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
            .map(|(path, before, after)| Draft {
                origin: &origin,
                source,
                path,
                before: before.as_ref().map(side),
                after: after.as_ref().map(side),
                reverses: &reverses,
                manner: manner.clone(),
            })
            .collect();
        let ids = if found { journal.record(&drafts, now)? } else { journal.begin(&drafts, now)? };
        Ok(ids.iter().map(|id| format!("[{id}]")).collect::<String>() + "\n")
    }
}

fn side((known, bytes): &(bool, Vec<u8>)) -> Side<'_> {
    let content = match known {
        true => SideContent::Known { hash: ContentHash::of(bytes), size: bytes.len() as u64 },
        false => SideContent::Bytes(bytes),
    };
    Side { content, mode: 0o644 }
}

/// A file of the baseline whose numbers are as large as they can be.
pub(crate) fn row(path: &str, hash: Option<ContentHash>) -> BaselineRow {
    BaselineRow {
        path: path.to_owned(),
        size: 7,
        mtime_ns: -1,
        ctime_ns: i64::MAX,
        inode: u64::MAX,
        device: u64::MAX,
        mode: 0o100_644,
        hash,
        racy: true,
    }
}

fn id(text: &str) -> ChangeId {
    ChangeId(text.parse().unwrap())
}

fn outcome(text: &str) -> Outcome {
    match text {
        "done" => Outcome::Done,
        "abandoned" => Outcome::Abandoned,
        "unknown" => Outcome::Unknown,
        other => panic!("no such outcome: {other}"),
    }
}

/// Reads `3` as the whole of change 3 and `3:0,2` as two hunks of it.
fn reversal(text: &str) -> Reversal {
    let (change, hunks) = text.split_once(':').map_or((text, None), |(change, hunks)| (change, Some(hunks)));
    let hunks = hunks.map(|hunks| hunks.split_terminator(',').map(|hunk| hunk.parse().unwrap()).collect());
    Reversal { change: id(change), hunks }
}
