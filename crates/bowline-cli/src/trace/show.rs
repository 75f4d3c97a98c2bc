//! A recorded wire as a sequence, one message per line.

use std::io::{self, BufWriter, IsTerminal as _, Write as _};

use bowline_protocol::trace::{
    AnswerOutcome, TraceEntry, TraceFilter, TraceMessageKind, TraceSequence, TraceSide, TraceStep,
    UnansweredRequest,
};
use bowline_text::display;

use super::{TraceShowArguments, file, page};
use bowline_client::common::console::{OutputStyle, TextStyle, escape_line, ignore_broken_pipe, pluralize};
use bowline_client::common::times::format_duration;
use bowline_client::error::CliError;

/// The number of characters shown of a session's id.
const SESSION_ID_CHARS: usize = 8;

/// Prints the trace.
pub(super) fn run(arguments: &TraceShowArguments) -> Result<(), CliError> {
    let filter = TraceFilter::new(arguments.session.as_deref(), arguments.method.as_deref())
        .map_err(|error| CliError::Usage(format!("--method cannot be understood: {error}")))?;
    if arguments.html && io::stdout().is_terminal() {
        return Err(CliError::Usage(
            "--html prints a page: write it to a file, such as > wire.html".to_owned(),
        ));
    }
    let mut sequence = TraceSequence::default();
    if arguments.html {
        let mut page = page::HtmlPage::default();
        let summary = file::read_trace(&arguments.file, |record| {
            match record {
                Ok(entry) => {
                    let step = sequence.add_entry(&entry);
                    if filter.matches_step(&step) {
                        page.add(&entry, &step);
                    }
                }
                Err(gap) => page.add_gap(gap),
            }
            Ok(())
        })?;
        let name = arguments.file.file_name().unwrap_or_default().to_string_lossy();
        let text = page.finish(&name, summary.began, &sequence);
        return ignore_broken_pipe(io::stdout().lock().write_all(text.as_bytes()));
    }
    let style = OutputStyle::for_stdout();
    let mut out = BufWriter::new(io::stdout().lock());
    let mut shown_count = 0_usize;
    // A closed pipe ends the output without an error.
    let mut is_closed = false;
    let mut write = |text: String| match out.write_all(text.as_bytes()) {
        Ok(()) => Ok(()),
        Err(error) => {
            is_closed = true;
            ignore_broken_pipe(Err(error)).and(Err(CliError::Interrupted))
        }
    };
    let result = file::read_trace(&arguments.file, |record| {
        let entry = match record {
            Ok(entry) => entry,
            Err(gap) => {
                return write(format!(
                    "{}\n",
                    style.paint(TextStyle::Bad, &format!("… {}", file::describe_gap(gap)))
                ));
            }
        };
        let step = sequence.add_entry(&entry);
        if !filter.matches_step(&step) {
            return Ok(());
        }
        shown_count += 1;
        let mut text = format_message(&entry, &step, style);
        if arguments.full {
            text += &format_full_message(&entry.bytes);
        }
        write(text)
    });
    let summary = match result {
        Err(CliError::Interrupted) if is_closed => return Ok(()),
        result => result?,
    };
    let open: Vec<&UnansweredRequest> =
        sequence.unanswered().filter(|open| filter.matches_unanswered(open)).collect();
    let mut footer = String::new();
    if !open.is_empty() {
        footer += &format!(
            "\n{}:\n",
            style.paint(TextStyle::Highlight, &pluralize(open.len(), "request", "requests"))
                + " without an answer"
        );
        for open in open {
            let direction = format_direction(open.from, open.to);
            let (time, method, id) =
                (format_time(open.elapsed_us), escape_line(&open.method), format_id(&open.id));
            footer += format!("{time:>10}  {direction}  {method} {id}  {}", open.summary).trim_end();
            footer += "\n";
        }
    }
    let total = pluralize(summary.messages, "message", "messages");
    footer += &match shown_count == summary.messages {
        true => format!("\n{total}\n"),
        false => format!("\n{shown_count} of {total}\n"),
    };
    ignore_broken_pipe(out.write_all(footer.as_bytes()).and_then(|()| out.flush()))
}

/// Formats a message on one line.
fn format_message(entry: &TraceEntry, step: &TraceStep, style: OutputStyle) -> String {
    let method = escape_line(step.kind.method().unwrap_or("?"));
    let id = step.kind.id().map(format_id).unwrap_or_default();
    let (mark, text_style, latency) = match &step.kind {
        TraceMessageKind::Request { .. } => ("?", TextStyle::Heading, None),
        TraceMessageKind::Notification { .. } => ("·", TextStyle::Faint, None),
        TraceMessageKind::Answer { outcome: AnswerOutcome::Result, took_us, .. } => {
            ("✓", TextStyle::Good, *took_us)
        }
        TraceMessageKind::Answer { outcome: AnswerOutcome::Error, took_us, .. } => {
            ("✗", TextStyle::Bad, *took_us)
        }
        TraceMessageKind::Other => ("!", TextStyle::Bad, None),
    };
    let session: String =
        step.session.as_deref().unwrap_or_default().chars().take(SESSION_ID_CHARS).collect();
    let label = style.paint(text_style, &format!("{mark} {method:<27} {id:<5}"));
    let summary = if text_style == TextStyle::Bad {
        style.paint(text_style, &step.summary)
    } else {
        step.summary.clone()
    };
    let latency = latency.map_or_else(String::new, |us| format!(" ({})", format_duration(us)));
    let text = format!(
        "{:>10}  {}  {label} {}  {summary}{}",
        style.paint(TextStyle::Faint, &format!("{:>10}", format_time(entry.elapsed_us))),
        format_direction(entry.from, entry.to),
        style.paint(TextStyle::Faint, &format!("{:<8}", escape_line(&session))),
        style.paint(TextStyle::Highlight, &latency),
    );
    text.trim_end().to_owned() + "\n"
}

/// Formats a whole message, indented if it is JSON, with escaped lines.
fn format_full_message(bytes: &[u8]) -> String {
    let text = match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(message) => format!("{message:#}"),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    };
    text.lines().map(|line| format!("    {}\n", display::escape_line(line, usize::MAX))).collect()
}

/// Formats two sides with an arrow between them, the one nearer to the client first.
fn format_direction(from: TraceSide, to: TraceSide) -> String {
    let rank = |side: TraceSide| match side {
        TraceSide::Client => 0,
        TraceSide::Proxy => 1,
        TraceSide::Agent => 2,
    };
    match rank(from) <= rank(to) {
        true => format!("{from:>6} → {to:<6}"),
        false => format!("{to:>6} ← {from:<6}"),
    }
}

fn format_time(us: u64) -> String {
    format!("{}.{:03}", us / 1_000_000, us / 1000 % 1000)
}

fn format_id(id: &str) -> String {
    format!("#{}", display::escape_line(id, 40))
}
