//! Reading a file for the model: as much at a time as is good for it.

use std::sync::Arc;

use bowline_state::changes::ContentHash;
use bowline_state::failure::Failure;
use bowline_state::ledger::Version;
use bowline_state::lines::{Window, slice};
use bowline_state::schema::v1::ToolKind;
use serde_json::json;

use super::telling::{lines_of, plural};
use super::work::{Done, Stop, Work, excerpt, location, without_nulls};
use crate::permission::Became;
use crate::runtime::{Fault, Server, Text, Truth};

/// A model is shown so many lines of a file at a time.
pub(crate) const MAX_LINES: u32 = 2000;

/// And so many bytes.
pub(crate) const MAX_BYTES: usize = 64 << 10;

const BOM: char = '\u{feff}';

/// Runs a tool that reads a file.
pub(crate) async fn read(work: &Work<'_>, by: Server) -> Result<Done, Stop> {
    let fields = work.fields()?;
    let path = work.resolve(fields.text("path")?)?;
    let (line, limit) = (fields.number("line")?, fields.number("limit")?);
    let shown = work.shown(&path);
    let first = line.unwrap_or(1).max(1);
    let title = match (line, limit) {
        (None, None) => format!("Read {shown}"),
        (_, Some(limit)) => format!("Read {shown}, lines {first}-{}", first.saturating_add(limit.max(1)) - 1),
        (Some(_), None) => format!("Read {shown} from line {first}"),
    };
    let input = without_nulls(json!({ "path": path.as_str(), "line": line, "limit": limit }));
    let at = line.map(|_| u64::from(first));
    work.start(&title, ToolKind::Read, |call| call.raw_input(input).locations(vec![location(&path, at)]))
        .await?;
    let wish = work.looks(by, &path, &title).await?;
    let pass = work.tools.permissions.clear(work.call, work.cx, wish).await?;
    work.runs().await;
    let read = fetch(work, by, path.as_str(), first, limit).await;
    let became = match &read {
        Ok(fetched) => Became { bytes: Some(fetched.text.len()), ..Became::default() },
        Err(fault) => Became { failed: Some(fault.to_string()), ..Became::default() },
    };
    pass.became(became).await?;
    let fetched = match read {
        Ok(fetched) => fetched,
        Err(fault) => {
            if fault.is_missing() {
                work.tools.ledger().saw_nothing(&work.tools.key(by, path.as_str()));
            }
            return Err(fault.told(by, shown).into());
        }
    };
    if !fetched.whole && first > 1 && fetched.text.is_empty() {
        // Some clients give nothing where there is no such line.
        return Err(format!("{shown} has no line {first}: that is past the end").into());
    }
    let view = view(&fetched, first, limit);
    if let (true, Some(total)) = (view.past_end, view.total) {
        return Err(format!("{shown} has {}: line {first} is past the end", plural(total, "line")).into());
    }
    note(work, &work.tools.key(by, path.as_str()), &fetched, &view);
    let head = head(shown, &view, by, &fetched.truth);
    // A model that sees `\r` repeats it here and there; writing gives each line the ending of the file.
    let plain = view.text.replace("\r\n", "\n");
    let text = match view.next {
        Some(next) => format!("{head}\n{}\n[continue with line={next}]", plain.trim_end_matches('\n')),
        None => format!("{head}\n{plain}"),
    };
    let output = json!({
        "servedBy": by.word(),
        "firstLine": view.first,
        "lines": view.lines,
        "totalLines": view.total,
    });
    Ok(Done { content: Some(excerpt(&plain)), text, output: Some(output), ..Done::default() })
}

/// What was read: a whole text, or a part that begins somewhere.
struct Fetched {
    text: Arc<String>,
    whole: bool,
    truth: Truth,
}

/// Reads what the model asks for. What is small enough is read whole: then it is known how much there is.
async fn fetch(
    work: &Work<'_>,
    by: Server,
    path: &str,
    first: u32,
    limit: Option<u32>,
) -> Result<Fetched, Fault> {
    let runtimes = work.runtimes();
    let of = |Text { text, whole, truth, .. }: Text| Fetched { text, whole: whole == Some(true), truth };
    let wants_all = first == 1 && limit.is_none();
    if wants_all || work.tools.is_small(path) {
        match runtimes.read(by, path, Window::default()).await {
            Ok(text) => {
                work.tools.note_small(path);
                return Ok(of(text));
            }
            // It may be too large to be given at once.
            Err(Fault::Said(Failure::TooLarge { .. }) | Fault::Unreadable { .. }) => {}
            Err(fault) => return Err(fault),
        }
    }
    let limit = limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    runtimes.read(by, path, Window { line: Some(first), limit: Some(limit) }).await.map(of)
}

/// What the model is shown.
struct View<'t> {
    text: &'t str,
    // Where it is in what was fetched.
    start: usize,
    first: u64,
    lines: u64,
    // How many lines there are in all, if that is known.
    total: Option<u64>,
    // The line to go on with, if there is more or may be.
    next: Option<u64>,
    past_end: bool,
    cut_line: bool,
}

fn view(fetched: &Fetched, first: u32, limit: Option<u32>) -> View<'_> {
    let all = fetched.text.as_str();
    let asked = limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    let total = fetched.whole.then(|| lines_of(all));
    let window = if fetched.whole {
        slice(all, Window { line: Some(first), limit: Some(asked) })
    } else {
        slice(all, Window { line: None, limit: Some(asked) })
    };
    let past_end = window.is_err();
    let window = window.unwrap_or_default();
    let start = if past_end { 0 } else { window.as_ptr() as usize - all.as_ptr() as usize };
    // The byte order mark is the file's; a model would repeat it or not.
    let window = if start == 0 { window.strip_prefix(BOM).unwrap_or(window) } else { window };
    let clipped = clip(window);
    let lines = lines_of(clipped);
    let cut_line = clipped.len() < window.len() && !clipped.ends_with('\n');
    let end = u64::from(first) + lines;
    let has_more = match total {
        Some(total) => end <= total,
        None => clipped.len() < window.len() || lines >= u64::from(asked),
    };
    View {
        text: clipped,
        start,
        first: first.into(),
        lines,
        total,
        next: (has_more && !past_end).then_some(end),
        past_end,
        cut_line,
    }
}

/// Returns as many whole lines as may be shown; of a first line that is too long, its start.
fn clip(text: &str) -> &str {
    if text.len() <= MAX_BYTES {
        return text;
    }
    let room = &text[..text.floor_char_boundary(MAX_BYTES)];
    match room.rfind('\n') {
        Some(end) => &room[..=end],
        None => room,
    }
}

/// Returns the line above the text, so that nothing in it can pass for something that we say.
fn head(shown: &str, view: &View<'_>, by: Server, truth: &Truth) -> String {
    let by = by.through();
    let range = match (view.lines, view.total) {
        (0, _) => "empty".to_owned(),
        (lines, Some(total)) if view.first == 1 && lines == total => {
            format!("all of it, {}", plural(total, "line"))
        }
        (lines, total) => {
            let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
            format!("lines {}-{}{of}", view.first, view.first + lines - 1)
        }
    };
    let cut = if view.cut_line { "; a line is longer than can be shown and is cut" } else { "" };
    let ends = if view.text.contains("\r\n") { "; its lines end in CRLF, and go on doing so" } else { "" };
    let beside = match truth {
        Truth::Served => "",
        Truth::Merged(_) | Truth::Stale => "; it was changed on disk, and the editor has not reloaded it",
        Truth::Deleted => "; it was deleted on disk, and the editor still has it",
        Truth::Lossy => "; it is not all text, and the editor could not read the rest",
    };
    format!("[{shown}: {range}, read {by}{cut}{ends}{beside}]")
}

/// Notes what the model has seen.
fn note(work: &Work<'_>, key: &str, fetched: &Fetched, view: &View<'_>) {
    let (mut ledger, all) = (work.tools.ledger(), &fetched.text);
    let version = version(all);
    // A byte order mark that is not shown counts as seen.
    let shown = view.start..view.start + view.text.len() + if view.start == 0 { mark(all) } else { 0 };
    if fetched.whole && !view.past_end && shown == (0..all.len()) {
        ledger.saw(key, all.clone(), version);
    } else if fetched.whole {
        ledger.saw_window(key, version, shown.start as u64..shown.end as u64, all.len() as u64);
    } else {
        // How much there is nobody knows: it is a part.
        ledger.saw_window(key, version, 0..view.text.len() as u64, u64::MAX);
    }
}

fn mark(text: &str) -> usize {
    if text.starts_with(BOM) { BOM.len_utf8() } else { 0 }
}

/// Returns which text it is.
pub(crate) fn version(text: &str) -> Version {
    let hash = *ContentHash::of(text.as_bytes()).as_bytes();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    Version(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}
