//! Reading a file for the model: as much at a time as is good for it.

use bowline_state::failure::Failure;
use bowline_state::lines::Window;
use bowline_state::tooling::input::Fields;
use bowline_state::tooling::telling::{plural, warning};
use bowline_state::tooling::view::{Fetched, MAX_LINES, view};
use bowline_workspace::files::{Files, TextRead};
use bowline_workspace::workspace::Served;

use super::DeniedTool;
use super::Place;
use super::session::Session;
use super::told::Done;

/// Runs the tool that reads a file.
pub(crate) async fn read<P: Place>(session: &Session<P>, fields: Fields<'_>) -> Result<Done, String> {
    let path = session.resolve(fields.text("path")?)?;
    let (first, limit) = (fields.number("line")?.unwrap_or(1).max(1), fields.number("limit")?);
    let shown = session.shown(path.as_str());
    let read = match fetch(session, path.as_str(), first, limit).await {
        Ok(read) => read,
        Err(failure) => {
            if matches!(failure, Failure::ResourceNotFound { .. }) {
                session.knows(|ledger, _| ledger.saw_nothing(path.as_str()));
            }
            let tool = DeniedTool::Read { path: path.as_str() };
            return Err(session.told(&tool, shown, &failure));
        }
    };
    let fetched = Fetched { text: &read.text, whole: read.whole == Some(true) };
    let view = view(fetched, first, limit);
    if let (true, Some(total)) = (view.past_end, view.total) {
        return Err(format!("{shown} has {}: line {first} is past the end", plural(total, "line")));
    }
    session.knows(|ledger, _| view.note(ledger, path.as_str(), fetched));
    // The line above the text is ours, so that nothing in the text can pass for something that we say.
    let cut = if view.cut_line { "; a line is longer than can be shown and is cut" } else { "" };
    let unsaved =
        if read.served != Served::Disk { "; as the editor has it, unsaved changes included" } else { "" };
    let ends = if view.text.contains("\r\n") { "; its lines end in CRLF, and go on doing so" } else { "" };
    let (range, hidden) = (view.range(), warning(view.text));
    let head = format!("[{shown}: {range}{unsaved}{cut}{ends}{hidden}]");
    // A model that sees `\r` repeats it here and there; writing gives each line the ending of the file.
    let plain = view.text.replace("\r\n", "\n");
    Ok(Done::text(match view.next {
        Some(next) => format!("{head}\n{}\n[continue with line={next}]", plain.trim_end_matches('\n')),
        None => format!("{head}\n{plain}"),
    }))
}

/// Reads what the model asks for. What can be given at once is read whole: then it is known how much there is.
async fn fetch<P: Place>(
    session: &Session<P>,
    path: &str,
    first: u32,
    limit: Option<u32>,
) -> Result<TextRead, Failure> {
    let files = session.place.files();
    match files.read(path, Window::default()).await {
        // Whoever was asked for all and does not say that it is less has given all.
        Ok(read) => Ok(TextRead { whole: Some(read.whole.unwrap_or(true)), ..read }),
        Err(Failure::TooLarge { .. }) => {
            let limit = limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
            let read = files.read(path, Window { line: Some(first), limit: Some(limit) }).await?;
            Ok(TextRead { whole: Some(false), ..read })
        }
        Err(failure) => Err(failure),
    }
}
