//! One operation of a question, in full detail.

use std::ops::Range;

use bowline_policy::operation::{CommandSpec, OperationTarget};
use bowline_policy::question::QuestionItem;
use bowline_text::display;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::view::diff::{self, DiffLayout};
use crate::view::widgets::{cells, theme};
use crate::view::wrap::LineBreak;
use bowline_client::ApprovalDifference;

/// The maximum number of bytes shown of a command, and of its environment. If there was more, the first line says so.
const MAX_COMMAND: usize = 64 << 10;

/// The maximum number of environment variables shown.
const MAX_VARIABLES: usize = 200;

/// The maximum length of a name, in bytes.
const MAX_NAME: usize = 4096;

/// Returns the details of an operation, omissions first, and the rows of each hunk of its change.
pub(super) fn render_operation(
    item: &QuestionItem,
    width: u16,
    layout: DiffLayout,
) -> (Vec<Line<'static>>, Vec<Range<usize>>) {
    let columns = usize::from(width.max(2));
    let mut lines = match &item.operation.target {
        OperationTarget::Command(command) => command_lines(command, columns),
        _ => {
            let head = item.summary_lines();
            let rows = head.iter().flat_map(|text| cells::wrap_prose(text.trim_start(), columns));
            rows.map(|row| Line::styled(row, theme::title())).collect::<Vec<_>>()
        }
    };
    if let Some(description) = &item.description {
        if description.is_truncated() {
            let warning =
                cells::wrap_prose("! a part of what the agent tells is not shown: too long", columns);
            lines.splice(0..0, warning.into_iter().map(|row| Line::styled(row, theme::danger())));
        }
        for (label, part) in [("says", &description.text), ("with", &description.input)] {
            let texts: Vec<String> = part.lines().collect();
            lines.extend(render_barred(label, texts.iter().map(String::as_str), columns, Style::new()));
        }
    }
    let change = item.change.as_ref().map(|change| {
        let before = change.before.as_ref().map(|before| before.as_str());
        diff::render_diff(before, Some(change.after.as_str()), width, layout)
    });
    let mut hunks = Vec::new();
    if let Some(change) = change {
        if change.hidden_lines > 0 {
            let text = format!("! {} changed lines are not shown, or not whole", change.hidden_lines);
            let warning = cells::wrap_prose(&text, columns).into_iter();
            lines.splice(0..0, warning.map(|row| Line::styled(row, theme::danger())));
        }
        hunks.extend(change.hunks.iter().map(|rows| rows.start + lines.len()..rows.end + lines.len()));
        lines.extend(change.lines);
    }
    (lines, hunks)
}

/// Returns how the operation differs from what was approved, shown above the current request.
pub(super) fn difference_lines(
    difference: &ApprovalDifference,
    width: u16,
    layout: DiffLayout,
) -> Vec<Line<'static>> {
    let head = cells::wrap_prose(&format!("! {}:", difference.description), usize::from(width.max(2)));
    let mut lines: Vec<_> = head.into_iter().map(|row| Line::styled(row, theme::danger())).collect();
    lines.extend(
        diff::render_diff(Some(&difference.approved), Some(&difference.current), width, layout).lines,
    );
    lines.push(Line::styled("What it would do now:", theme::title()));
    lines
}

fn command_lines(command: &CommandSpec, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let line = bowline_protocol::terminal::format_invocation(&command.invocation);
    let text = display::collapse_whitespace(&line);
    let environment: usize = command.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    let is_long = [text.len(), environment].into_iter().any(|bytes| bytes > MAX_COMMAND);
    if is_long || command.env.len() > MAX_VARIABLES || command.cwd.len() > MAX_NAME {
        let warning = "! a part of the command or its environment is not shown: too long";
        let rows = cells::wrap_prose(warning, width).into_iter();
        lines.extend(rows.map(|row| Line::styled(row, theme::danger())));
    }
    let command_text = match text.len() > MAX_COMMAND {
        true => display::escape_line(&text, MAX_COMMAND),
        false => text.into_owned(),
    };
    lines.extend(render_barred("run", command_text.split('\n'), width, theme::title()));
    lines.extend(render_barred(
        "in",
        [display::escape_line(&command.cwd, MAX_NAME).as_str()],
        width,
        Style::new(),
    ));
    let max_value = match environment > MAX_COMMAND {
        true => MAX_COMMAND / command.env.len().clamp(1, MAX_VARIABLES),
        false => MAX_COMMAND,
    };
    let variable = |(name, value): &(String, String)| {
        format!(
            "{}={}",
            display::escape_line(name, max_value.min(MAX_NAME)),
            display::escape_line(&display::collapse_whitespace(value), max_value)
        )
    };
    let variables: Vec<String> = command.env.iter().take(MAX_VARIABLES).map(variable).collect();
    lines.extend(render_barred("with", variables.iter().map(String::as_str), width, Style::new()));
    lines
}

/// Returns texts with a bar in every row, so that no part of them passes for Bowline's own text.
fn render_barred<'a>(
    label: &str,
    texts: impl IntoIterator<Item = &'a str>,
    width: usize,
    style: Style,
) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for text in texts {
        let text = cells::expand_tabs(text);
        for row in cells::wrap_ranges(&text, width.saturating_sub(BAR_WIDTH).max(2), LineBreak::Anywhere) {
            let label = if lines.is_empty() { label } else { "" };
            let bar = Span::styled(format!("{label:<4} │ "), theme::secondary());
            lines.push(Line::from(vec![bar, Span::styled(text[row].to_owned(), style)]));
        }
    }
    lines
}

/// The width of a bar with its label.
const BAR_WIDTH: usize = 7;
