//! The plan that a model shows its user.

use bowline_state::schema::v1::{Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionUpdate};

use super::work::{Done, Stop, Work};

/// A plan has at most so many entries.
const MAX_ENTRIES: usize = 100;

/// Each has at most so many bytes.
const MAX_CONTENT: usize = 1000;

/// Reads the plan that a model gives. The client is told of it when [`send`] is called.
pub(crate) fn read(work: &Work<'_>) -> Result<Plan, Stop> {
    let entries = work.fields()?.objects("entries")?;
    if entries.len() > MAX_ENTRIES {
        return Err(format!("a plan has at most {MAX_ENTRIES} entries, these are {}", entries.len()).into());
    }
    let mut plan = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let at = |why: String| format!("entry {}: {why}", index + 1);
        let content = entry.text("content").map_err(at)?;
        let priority = match entry.some_text("priority").map_err(at)?.unwrap_or("medium") {
            "high" => PlanEntryPriority::High,
            "medium" => PlanEntryPriority::Medium,
            "low" => PlanEntryPriority::Low,
            other => {
                return Err(at(format!("`priority` has to be high, medium or low, and is {other:?}")).into());
            }
        };
        let status = match entry.some_text("status").map_err(at)?.unwrap_or("pending") {
            "pending" => PlanEntryStatus::Pending,
            "in_progress" => PlanEntryStatus::InProgress,
            "completed" => PlanEntryStatus::Completed,
            other => {
                let why = format!("`status` has to be pending, in_progress or completed, and is {other:?}");
                return Err(at(why).into());
            }
        };
        let content = &content[..content.floor_char_boundary(MAX_CONTENT)];
        plan.push(PlanEntry::new(content, priority, status));
    }
    Ok(Plan::new(plan))
}

/// Tells the client of a plan. It is no tool call: a client shows plans in a place of their own.
pub(crate) async fn send(work: &Work<'_>, plan: Plan) -> Done {
    let open = plan.entries.iter().filter(|entry| entry.status != PlanEntryStatus::Completed).count();
    let text = format!("The user sees the plan: {} entries, {open} of them open.", plan.entries.len());
    // A client that is gone sees nothing; the next call will say so.
    work.cx.reporter.update(SessionUpdate::Plan(plan)).await.ok();
    Done { text, ..Done::default() }
}
