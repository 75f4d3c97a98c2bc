//! The lines around a conversation: title, status and plan.

use bowline_policy::policy::Preset;
use bowline_protocol::schema::v1::{PlanEntry, PlanEntryStatus};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::app::{AgentStatus, App, KeyFocus};
use crate::event::PermissionSummary;
use crate::view::item_lines::format_elapsed;
use crate::view::widgets::theme;
use crate::view::wrap::{truncate_end, truncate_start};

/// The frames of the activity spinner.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Returns the first line: the agent, the session's title, the directory.
pub(super) fn title_line(app: &App, width: usize) -> Line<'static> {
    let title = app.title.as_deref().unwrap_or_default();
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let cwd = truncate_start(&app.cwd, width / 2);
    let left = match title.trim() {
        "" => format!(" {}", app.agent),
        title => format!(" {} · {title}", app.agent),
    };
    let room = width.saturating_sub(Span::raw(cwd.as_str()).width() + 2);
    let left = truncate_end(&left, room);
    let gap = width.saturating_sub(Span::raw(left.as_str()).width() + Span::raw(cwd.as_str()).width() + 1);
    Line::styled(format!("{left}{}{cwd} ", " ".repeat(gap)), style)
}

/// Returns the last line: activity, model and mode, usage, keys.
pub(super) fn status_line(app: &App, width: usize) -> Line<'static> {
    let (state, style) = activity(app);
    let hints = match app.focus {
        KeyFocus::Conversation => "Enter open · Tab back · F1 help",
        KeyFocus::Input if app.turn.is_some() => "Esc cancel · F1 help",
        KeyFocus::Input => "F1 help",
    };
    let mut middle: Vec<String> = Vec::new();
    if app.is_own_agent {
        middle.push(own_agent_level(app.permissions));
        middle.extend(app.model_name());
    } else {
        middle.extend(permission_label(app.permissions));
        middle.extend(app.model_name());
        middle.extend(app.mode_name());
    }
    middle.extend(usage_label(app));
    let state = truncate_end(&state, width);
    let mut room = width.saturating_sub(Span::raw(state.as_str()).width());
    let length = hints.chars().count();
    let (hints, length) = if room > length + 2 { (hints, length) } else { ("", 0) };
    room = room.saturating_sub(length + 1);
    let middle = truncate_end(&format!("  {}", middle.join(" · ")), room);
    let gap = room.saturating_sub(Span::raw(middle.as_str()).width());
    Line::from(vec![
        Span::styled(state, style),
        Span::raw(middle),
        Span::raw(" ".repeat(gap)),
        Span::styled(format!("{hints} "), theme::secondary()),
    ])
}

fn activity(app: &App) -> (String, Style) {
    let spinner = || SPINNER[usize::try_from(app.now.as_millis() / 100 % 10).unwrap_or(0)];
    if let Some(text) = app.flash_text() {
        return (format!(" {}", text.replace('\n', " ")), Style::new().fg(Color::Yellow));
    }
    match (&app.status, app.turn) {
        (AgentStatus::Opening(description), _) => {
            let time = format_elapsed(app.opening_duration());
            let hint = if app.session().is_some() { " · Esc gives it up" } else { "" };
            (format!(" {} {description} {time}{hint}", spinner()), Style::new().fg(Color::Blue))
        }
        (AgentStatus::Exited(_), _) => (" ✗ the agent is gone".to_owned(), Style::new().fg(Color::Red)),
        (_, None) if app.shell_command.is_some() => {
            let (line, since) =
                app.shell_command.as_ref().map_or(("", app.now), |(line, since)| (line, *since));
            let line = truncate_end(&line.replace('\n', " "), 30);
            let time = format_elapsed(app.now.saturating_sub(since));
            (format!(" {} !{line} {time} · Esc ends it", spinner()), Style::new().fg(Color::Blue))
        }
        (AgentStatus::Ready, None) => (" ● ready".to_owned(), Style::new().fg(Color::Green)),
        (AgentStatus::Ready, Some(turn)) => {
            let description = if turn.cancelled_at.is_some() { "cancelling" } else { "working" };
            let time = format_elapsed(app.now.saturating_sub(turn.started_at));
            let hint = if app.is_agent_unresponsive() { " · Esc again ends the agent" } else { "" };
            (format!(" {} {description} {time}{hint}", spinner()), Style::new().fg(Color::Blue))
        }
    }
}

/// Returns the permission level of Bowline's own agent, as the option names it, and the number of additional rules.
fn own_agent_level(permissions: PermissionSummary) -> String {
    let level = match permissions.preset {
        _ if permissions.is_read_only => "Read only",
        Preset::Ask => "Ask",
        Preset::AcceptEdits => "Accept edits",
        Preset::ReadOnly => "Read only",
        Preset::Full => "Full access",
        Preset::Deny => "Nothing allowed",
    };
    match permissions.rule_count {
        0 => level.to_owned(),
        1 => format!("{level} +1 rule"),
        count => format!("{level} +{count} rules"),
    }
}

/// Returns a short label for what Bowline decides without asking.
fn permission_label(permissions: PermissionSummary) -> Option<String> {
    let preset = match permissions.preset {
        _ if permissions.is_read_only => "read only",
        Preset::Ask => "",
        Preset::AcceptEdits => "edits allowed",
        Preset::ReadOnly => "only reading allowed",
        Preset::Full => "everything allowed",
        Preset::Deny => "nothing allowed",
    };
    match (preset, permissions.rule_count) {
        ("", 0) => None,
        (preset, 0) => Some(preset.to_owned()),
        ("", 1) => Some("1 rule".to_owned()),
        ("", count) => Some(format!("{count} rules")),
        (preset, count) => Some(format!("{preset} +{count} rules")),
    }
}

/// Describes in sentences what Bowline allows an agent to do.
pub(super) fn describe_permissions(permissions: PermissionSummary) -> String {
    let preset = match permissions.preset {
        _ if permissions.is_read_only => "It may read; what changes something is denied.",
        Preset::Ask => "What it wants to change or run and your rules do not allow, you are asked about.",
        Preset::AcceptEdits => {
            "It changes files of the workspace without a question; about commands you are asked."
        }
        Preset::ReadOnly => "It may read; what else your rules do not allow is denied.",
        Preset::Full => "It changes files and runs commands without a question.",
        Preset::Deny => "What your rules do not allow is denied.",
    };
    match permissions.rule_count {
        0 => preset.to_owned(),
        1 => format!("{preset} You have 1 rule: bowline policy show."),
        count => format!("{preset} You have {count} rules: bowline policy show."),
    }
}

fn usage_label(app: &App) -> Option<String> {
    let usage = app.conversation.snapshot()?.usage()?;
    let percent = match usage.size {
        0 => String::new(),
        size => format!(" {}%", u128::from(usage.used) * 100 / u128::from(size)),
    };
    let limit = if usage.size > 0 { format!("/{}", format_tokens(usage.size)) } else { String::new() };
    let cost = usage.cost.as_ref().map(|cost| match cost.currency.as_str() {
        "USD" => format!(" ${:.2}", cost.amount),
        currency => format!(" {:.2} {currency}", cost.amount),
    });
    Some(format!("{}{limit}{percent}{}", format_tokens(usage.used), cost.unwrap_or_default()))
}

/// Formats a number of tokens briefly.
fn format_tokens(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..10_000 => format!("{}.{}k", count / 1000, count / 100 % 10),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}.{}M", count / 1_000_000, count / 100_000 % 10),
    }
}

/// Returns the plan: one line of it, or all that fits if requested.
pub(super) fn plan_lines(app: &App, width: usize, max_rows: usize) -> Vec<Line<'static>> {
    let plan = app.conversation.snapshot().map_or(&[][..], |snapshot| snapshot.plan());
    if plan.is_empty() {
        return Vec::new();
    }
    let done = plan.iter().filter(|entry| entry.status == PlanEntryStatus::Completed).count();
    let current = plan.iter().position(|entry| entry.status != PlanEntryStatus::Completed);
    let mut lines = Vec::new();
    if !app.shows_whole_plan || max_rows == 1 {
        // A finished plan is hidden after the turn.
        if app.turn.is_none() && done == plan.len() {
            return Vec::new();
        }
        let head = format!("Plan {done}/{}  ", plan.len());
        let step = current.and_then(|current| plan.get(current));
        let room = width.saturating_sub(head.len());
        let mut line = Line::styled(head, Style::new().fg(Color::Magenta));
        line.extend(step.map(|entry| plan_entry_spans(entry, room)).unwrap_or_default());
        return vec![line];
    }
    lines.push(Line::styled(format!("Plan {done}/{}", plan.len()), Style::new().fg(Color::Magenta)));
    let room = max_rows.saturating_sub(1);
    let first = current.unwrap_or(0).min(plan.len().saturating_sub(room));
    lines.extend(plan.iter().skip(first).take(room).map(|entry| {
        let mut line = Line::raw("  ");
        line.extend(plan_entry_spans(entry, width.saturating_sub(2)));
        line
    }));
    lines
}

fn plan_entry_spans(entry: &PlanEntry, width: usize) -> Vec<Span<'static>> {
    let (mark, style) = match entry.status {
        PlanEntryStatus::Completed => ("✓ ", Style::new().fg(Color::Green)),
        PlanEntryStatus::InProgress => ("◐ ", Style::new().fg(Color::Blue)),
        // Pending entries, and states of a later protocol version.
        _ => ("○ ", theme::secondary()),
    };
    let text = truncate_end(&entry.content.replace('\n', " "), width.saturating_sub(2));
    vec![Span::styled(mark, style), Span::raw(text)]
}
