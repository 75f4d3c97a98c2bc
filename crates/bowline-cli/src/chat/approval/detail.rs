//! One operation of a question, with all there is to see of it.

use std::ops::Range;

use bowline_state::display;
use bowline_state::operation::{Command, Target};
use bowline_state::question::Item;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::chat::diff::{self, Layout};
use crate::chat::parts::{cells, theme};
use crate::client::Difference;

/// As many bytes of a command are shown, and as many of its environment. That there was more is told first.
const MAX_COMMAND: usize = 64 << 10;

/// As many variables of a command are shown.
const MAX_VARIABLES: usize = 200;

/// As many bytes of a name.
const MAX_NAME: usize = 4096;

/// Returns all there is to see of an operation, what is not shown told first; and the rows of each hunk of its change.
pub(super) fn lines(item: &Item, width: u16, layout: Layout) -> (Vec<Line<'static>>, Vec<Range<usize>>) {
    let cells = usize::from(width.max(2));
    let mut lines = match &item.operation.target {
        Target::Command(command) => command_lines(command, cells),
        _ => {
            let head = item.head();
            let rows = head.iter().flat_map(|text| cells::prose(text.trim_start(), cells));
            rows.map(|row| Line::styled(row, theme::title())).collect::<Vec<_>>()
        }
    };
    if let Some(told) = &item.told {
        if told.is_cut() {
            let warning = cells::prose("! a part of what the agent tells is not shown: too long", cells);
            lines.splice(0..0, warning.into_iter().map(|row| Line::styled(row, theme::danger())));
        }
        for (label, part) in [("says", &told.text), ("with", &told.input)] {
            let texts: Vec<String> = part.lines().collect();
            lines.extend(barred(label, texts.iter().map(String::as_str), cells, Style::new()));
        }
    }
    let change = item.change.as_ref().map(|change| {
        let before = change.before.as_ref().map(|before| before.as_str());
        diff::draw(before, Some(change.after.as_str()), width, layout)
    });
    let mut hunks = Vec::new();
    if let Some(change) = change {
        if change.unshown > 0 {
            let text = format!("! {} changed lines are not shown, or not whole", change.unshown);
            let warning = cells::prose(&text, cells).into_iter();
            lines.splice(0..0, warning.map(|row| Line::styled(row, theme::danger())));
        }
        hunks.extend(change.hunks.iter().map(|rows| rows.start + lines.len()..rows.end + lines.len()));
        lines.extend(change.lines);
    }
    (lines, hunks)
}

/// Returns what is not as it was approved, above what is asked about now.
pub(super) fn difference_lines(difference: &Difference, width: u16, layout: Layout) -> Vec<Line<'static>> {
    let head = cells::prose(&format!("! {}:", difference.what), usize::from(width.max(2)));
    let mut lines: Vec<_> = head.into_iter().map(|row| Line::styled(row, theme::danger())).collect();
    lines.extend(diff::draw(Some(&difference.then), Some(&difference.now), width, layout).lines);
    lines.push(Line::styled("What it would do now:", theme::title()));
    lines
}

fn command_lines(command: &Command, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let whole = display::invocation(&command.invocation);
    let text = display::shortened(&whole);
    let environment: usize = command.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    let is_long = [text.len(), environment].into_iter().any(|bytes| bytes > MAX_COMMAND);
    if is_long || command.env.len() > MAX_VARIABLES || command.cwd.len() > MAX_NAME {
        let warning = "! a part of the command or its environment is not shown: too long";
        let rows = cells::prose(warning, width).into_iter();
        lines.extend(rows.map(|row| Line::styled(row, theme::danger())));
    }
    let shown = match text.len() > MAX_COMMAND {
        true => display::line(&text, MAX_COMMAND),
        false => text.into_owned(),
    };
    lines.extend(barred("run", shown.split('\n'), width, theme::title()));
    lines.extend(barred("in", [display::line(&command.cwd, MAX_NAME).as_str()], width, Style::new()));
    let each = match environment > MAX_COMMAND {
        true => MAX_COMMAND / command.env.len().clamp(1, MAX_VARIABLES),
        false => MAX_COMMAND,
    };
    let variable = |(name, value): &(String, String)| {
        format!(
            "{}={}",
            display::line(name, each.min(MAX_NAME)),
            display::line(&display::shortened(value), each)
        )
    };
    let variables: Vec<String> = command.env.iter().take(MAX_VARIABLES).map(variable).collect();
    lines.extend(barred("with", variables.iter().map(String::as_str), width, Style::new()));
    lines
}

/// Returns texts behind a bar in every row, so that no part of them looks as if it were not the agent's.
fn barred<'a>(
    label: &str,
    texts: impl IntoIterator<Item = &'a str>,
    width: usize,
    style: Style,
) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for text in texts {
        let text = cells::expanded(text);
        for row in cells::wrap(&text, width.saturating_sub(BAR).max(2), cells::Break::Anywhere) {
            let label = if lines.is_empty() { label } else { "" };
            let bar = Span::styled(format!("{label:<4} │ "), theme::aside());
            lines.push(Line::from(vec![bar, Span::styled(text[row].to_owned(), style)]));
        }
    }
    lines
}

/// The width of a bar with its label.
const BAR: usize = 7;
