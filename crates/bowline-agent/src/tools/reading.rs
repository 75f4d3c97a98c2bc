//! Reading a file for the model: as much at a time as is good for it.

use std::sync::Arc;

use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_state::schema::v1::ToolKind;
use bowline_state::tooling::telling::{plural, warning};
use bowline_state::tooling::view::{self, MAX_LINES, View, view};
use serde_json::json;

use super::work::{Done, Stop, Work, excerpt, location, without_nulls};
use crate::permission::Became;
use crate::runtime::{Fault, Server, Text, Truth};

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
    let pass = work.tools.permissions.clear(by, work.call, work.cx, wish).await?;
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
            let mut told = fault.told(by, shown);
            if fault.is_missing() {
                work.tools.ledger().saw_nothing(&work.tools.key(by, path.as_str()));
                told += &meant(work, path.as_str()).await;
            }
            return Err(told.into());
        }
    };
    if !fetched.whole && first > 1 && fetched.text.is_empty() {
        // Some clients give nothing where there is no such line.
        return Err(format!("{shown} has no line {first}: that is past the end").into());
    }
    let shown_of = view::Fetched { text: &fetched.text, whole: fetched.whole };
    let view = view(shown_of, first, limit);
    if let (true, Some(total)) = (view.past_end, view.total) {
        return Err(format!("{shown} has {}: line {first} is past the end", plural(total, "line")).into());
    }
    view.note(&mut work.tools.ledger(), &work.tools.key(by, path.as_str()), shown_of);
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

/// Returns which files may have been meant by one that is not there.
async fn meant(work: &Work<'_>, path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let near = work.runtimes().namesakes(name).await;
    if near.is_empty() { String::new() } else { format!("; there is {}", near.join(", ")) }
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

/// Returns the line above the text, so that nothing in it can pass for something that we say.
fn head(shown: &str, view: &View<'_>, by: Server, truth: &Truth) -> String {
    let by = by.through();
    let range = view.range();
    let cut = if view.cut_line { "; a line is longer than can be shown and is cut" } else { "" };
    let ends = if view.text.contains("\r\n") { "; its lines end in CRLF, and go on doing so" } else { "" };
    let beside = match truth {
        Truth::Served => "",
        Truth::Merged(_) | Truth::Stale => "; it was changed on disk, and the editor has not reloaded it",
        Truth::Deleted => "; it was deleted on disk, and the editor still has it",
        Truth::Lossy => "; it is not all text, and the editor could not read the rest",
    };
    let hidden = warning(view.text);
    format!("[{shown}: {range}, read {by}{cut}{ends}{beside}{hidden}]")
}
