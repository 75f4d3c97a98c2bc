//! The plan that a model shows to the user.

use bowline_protocol::schema::v1::{Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionUpdate};

use super::active_call::{ActiveCall, CallStop, ToolOutput};

/// The most entries of a plan.
const MAX_ENTRIES: usize = 100;

/// The longest entry, in bytes.
const MAX_ENTRY_BYTES: usize = 1000;

/// Parses the plan that a model gives. [`send_plan`] sends it to the client.
pub(crate) fn read_plan(active_call: &ActiveCall<'_>) -> Result<Plan, CallStop> {
    let entries = active_call.fields()?.objects("entries")?;
    if entries.len() > MAX_ENTRIES {
        return Err(format!("a plan has at most {MAX_ENTRIES} entries, these are {}", entries.len()).into());
    }
    let mut plan = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let entry_error = |reason: String| format!("entry {}: {reason}", index + 1);
        let content = entry.required_text("content").map_err(entry_error)?;
        let priority = match entry.optional_text("priority").map_err(entry_error)?.unwrap_or("medium") {
            "high" => PlanEntryPriority::High,
            "medium" => PlanEntryPriority::Medium,
            "low" => PlanEntryPriority::Low,
            other => {
                return Err(entry_error(format!(
                    "`priority` has to be high, medium or low, and is {other:?}"
                ))
                .into());
            }
        };
        let status = match entry.optional_text("status").map_err(entry_error)?.unwrap_or("pending") {
            "pending" => PlanEntryStatus::Pending,
            "in_progress" => PlanEntryStatus::InProgress,
            "completed" => PlanEntryStatus::Completed,
            other => {
                let reason =
                    format!("`status` has to be pending, in_progress or completed, and is {other:?}");
                return Err(entry_error(reason).into());
            }
        };
        let content = &content[..content.floor_char_boundary(MAX_ENTRY_BYTES)];
        plan.push(PlanEntry::new(content, priority, status));
    }
    Ok(Plan::new(plan))
}

/// Sends a plan to the client. It is not shown as a tool call: clients display plans separately.
pub(crate) async fn send_plan(active_call: &ActiveCall<'_>, plan: Plan) -> ToolOutput {
    let open_count = plan.entries.iter().filter(|entry| entry.status != PlanEntryStatus::Completed).count();
    let text = format!("The user sees the plan: {} entries, {open_count} of them open.", plan.entries.len());
    // A disconnected client sees nothing; the next call will fail.
    active_call.cx.reporter.send_update(SessionUpdate::Plan(plan)).await.ok();
    ToolOutput { text, ..ToolOutput::default() }
}
