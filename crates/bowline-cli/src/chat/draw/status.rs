//! The lines around a conversation: who it is with, how far things are, the plan.

use bowline_state::policy::Preset;
use bowline_state::schema::v1::{PlanEntry, PlanEntryStatus};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::faint;
use crate::chat::app::{App, Focus, Stage};
use crate::chat::entry::took;
use crate::chat::event::Allowed;
use crate::chat::wrap::{cut, cut_front};

/// The moving mark of work that goes on.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Returns the first line: the agent, the session's title, the directory.
pub(super) fn head(app: &App, width: usize) -> Line<'static> {
    let title = app.title.as_deref().unwrap_or_default();
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let cwd = cut_front(&app.cwd, width / 2);
    let left = match title.trim() {
        "" => format!(" {}", app.agent),
        title => format!(" {} · {title}", app.agent),
    };
    let room = width.saturating_sub(Span::raw(cwd.as_str()).width() + 2);
    let left = cut(&left, room);
    let gap = width.saturating_sub(Span::raw(left.as_str()).width() + Span::raw(cwd.as_str()).width() + 1);
    Line::styled(format!("{left}{}{cwd} ", " ".repeat(gap)), style)
}

/// Returns the last line: what goes on, model and mode, usage, keys.
pub(super) fn line(app: &App, width: usize) -> Line<'static> {
    let (state, style) = state(app);
    let hints = match app.focus {
        Focus::Conversation => "Enter open · Tab back · F1 help",
        Focus::Input if app.turn.is_some() => "Esc cancel · F1 help",
        Focus::Input => "F1 help",
    };
    let mut middle: Vec<String> = Vec::new();
    if app.is_own {
        middle.push(level(app.allowed));
        middle.extend(app.model_name());
    } else {
        middle.extend(allowed(app.allowed));
        middle.extend(app.model_name());
        middle.extend(app.mode_name());
    }
    middle.extend(usage(app));
    let state = cut(&state, width);
    let mut room = width.saturating_sub(Span::raw(state.as_str()).width());
    let length = hints.chars().count();
    let (hints, length) = if room > length + 2 { (hints, length) } else { ("", 0) };
    room = room.saturating_sub(length + 1);
    let middle = cut(&format!("  {}", middle.join(" · ")), room);
    let gap = room.saturating_sub(Span::raw(middle.as_str()).width());
    Line::from(vec![
        Span::styled(state, style),
        Span::raw(middle),
        Span::raw(" ".repeat(gap)),
        Span::styled(format!("{hints} "), faint()),
    ])
}

fn state(app: &App) -> (String, Style) {
    let turning = || SPINNER[usize::try_from(app.now.as_millis() / 100 % 10).unwrap_or(0)];
    if let Some(text) = app.flashing() {
        return (format!(" {}", text.replace('\n', " ")), Style::new().fg(Color::Yellow));
    }
    match (&app.stage, app.turn) {
        (Stage::Opening(what), _) => {
            let time = took(app.opening_for());
            let out = if app.session().is_some() { " · Esc gives it up" } else { "" };
            (format!(" {} {what} {time}{out}", turning()), Style::new().fg(Color::Blue))
        }
        (Stage::Dead(_), _) => (" ✗ the agent is gone".to_owned(), Style::new().fg(Color::Red)),
        (_, None) if app.shell.is_some() => {
            let (line, since) = app.shell.as_ref().map_or(("", app.now), |(line, since)| (line, *since));
            let line = cut(&line.replace('\n', " "), 30);
            let time = took(app.now.saturating_sub(since));
            (format!(" {} !{line} {time} · Esc ends it", turning()), Style::new().fg(Color::Blue))
        }
        (Stage::Ready, None) => (" ● ready".to_owned(), Style::new().fg(Color::Green)),
        (Stage::Ready, Some(turn)) => {
            let what = if turn.cancelled.is_some() { "cancelling" } else { "working" };
            let time = took(app.now.saturating_sub(turn.since));
            let out = if app.is_stubborn() { " · Esc again ends the agent" } else { "" };
            (format!(" {} {what} {time}{out}", turning()), Style::new().fg(Color::Blue))
        }
    }
}

/// Returns what Bowline's own agent may do, in the word that chooses it, and how many rules say more.
fn level(allowed: Allowed) -> String {
    let word = match allowed.preset {
        _ if allowed.read_only => "Read only",
        Preset::Ask => "Ask",
        Preset::AcceptEdits => "Accept edits",
        Preset::ReadOnly => "Read only",
        Preset::Full => "Full access",
        Preset::Deny => "Nothing allowed",
    };
    match allowed.rules {
        0 => word.to_owned(),
        1 => format!("{word} +1 rule"),
        count => format!("{word} +{count} rules"),
    }
}

/// Returns what Bowline itself does beside asking, shortly.
fn allowed(allowed: Allowed) -> Option<String> {
    let preset = match allowed.preset {
        _ if allowed.read_only => "read only",
        Preset::Ask => "",
        Preset::AcceptEdits => "edits allowed",
        Preset::ReadOnly => "only reading allowed",
        Preset::Full => "everything allowed",
        Preset::Deny => "nothing allowed",
    };
    match (preset, allowed.rules) {
        ("", 0) => None,
        (preset, 0) => Some(preset.to_owned()),
        ("", 1) => Some("1 rule".to_owned()),
        ("", count) => Some(format!("{count} rules")),
        (preset, count) => Some(format!("{preset} +{count} rules")),
    }
}

/// Returns what Bowline itself lets an agent do, in sentences.
pub(super) fn allowed_in_words(allowed: Allowed) -> String {
    let preset = match allowed.preset {
        _ if allowed.read_only => "It may read; what changes something is denied.",
        Preset::Ask => "What it wants to change or run and your rules do not allow, you are asked about.",
        Preset::AcceptEdits => {
            "It changes files of the workspace without a question; about commands you are asked."
        }
        Preset::ReadOnly => "It may read; what else your rules do not allow is denied.",
        Preset::Full => "It changes files and runs commands without a question.",
        Preset::Deny => "What your rules do not allow is denied.",
    };
    match allowed.rules {
        0 => preset.to_owned(),
        1 => format!("{preset} You have 1 rule: bowline policy show."),
        count => format!("{preset} You have {count} rules: bowline policy show."),
    }
}

fn usage(app: &App) -> Option<String> {
    let usage = app.conversation.snapshot()?.usage()?;
    let percent = match usage.size {
        0 => String::new(),
        size => format!(" {}%", u128::from(usage.used) * 100 / u128::from(size)),
    };
    let of = if usage.size > 0 { format!("/{}", tokens(usage.size)) } else { String::new() };
    let cost = usage.cost.as_ref().map(|cost| match cost.currency.as_str() {
        "USD" => format!(" ${:.2}", cost.amount),
        other => format!(" {:.2} {other}", cost.amount),
    });
    Some(format!("{}{of}{percent}{}", tokens(usage.used), cost.unwrap_or_default()))
}

/// Returns a count of tokens shortly.
fn tokens(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..10_000 => format!("{}.{}k", count / 1000, count / 100 % 10),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}.{}M", count / 1_000_000, count / 100_000 % 10),
    }
}

/// Returns the plan: a line of it, or all if that is wanted, as far as there is room.
pub(super) fn plan(app: &App, width: usize, most: usize) -> Vec<Line<'static>> {
    let plan = app.conversation.snapshot().map_or(&[][..], |snapshot| snapshot.plan());
    if plan.is_empty() {
        return Vec::new();
    }
    let done = plan.iter().filter(|entry| entry.status == PlanEntryStatus::Completed).count();
    let at = plan.iter().position(|entry| entry.status != PlanEntryStatus::Completed);
    let mut lines = Vec::new();
    if !app.whole_plan || most == 1 {
        // What has been done need not be looked at for ever.
        if app.turn.is_none() && done == plan.len() {
            return Vec::new();
        }
        let head = format!("Plan {done}/{}  ", plan.len());
        let step = at.and_then(|at| plan.get(at));
        let room = width.saturating_sub(head.len());
        let mut line = Line::styled(head, Style::new().fg(Color::Magenta));
        line.extend(step.map(|entry| entry_line(entry, room)).unwrap_or_default());
        return vec![line];
    }
    lines.push(Line::styled(format!("Plan {done}/{}", plan.len()), Style::new().fg(Color::Magenta)));
    let room = most.saturating_sub(1);
    let from = at.unwrap_or(0).min(plan.len().saturating_sub(room));
    lines.extend(plan.iter().skip(from).take(room).map(|entry| {
        let mut line = Line::raw("  ");
        line.extend(entry_line(entry, width.saturating_sub(2)));
        line
    }));
    lines
}

fn entry_line(entry: &PlanEntry, width: usize) -> Vec<Span<'static>> {
    let (mark, style) = match entry.status {
        PlanEntryStatus::Completed => ("✓ ", Style::new().fg(Color::Green)),
        PlanEntryStatus::InProgress => ("◐ ", Style::new().fg(Color::Blue)),
        // What is pending, and states of a later protocol.
        _ => ("○ ", faint()),
    };
    let text = cut(&entry.content.replace('\n', " "), width.saturating_sub(2));
    vec![Span::styled(mark, style), Span::raw(text)]
}
