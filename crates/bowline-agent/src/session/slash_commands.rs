//! Running slash commands.

use std::fmt::Write as _;
use std::time::Duration;

use bowline_conversation::slash_command::{self, McpCommand, SlashCommand, SlashCommandError, UndoTarget};
use bowline_conversation::turn::TurnOutcome;
use bowline_policy::policy::Preset;
use bowline_protocol::schema::v1::{ContentBlock, MessageId};
use bowline_text::display::quote;

use crate::model::offline;
use crate::reporter::Reporter;
use crate::session::config_options::ConfigChange;
use crate::session::{AgentSession, SessionConversation};
use crate::turn::{self, TurnCancellation};

/// The outcome of a command.
pub(crate) enum SlashOutcome {
    /// The command is done, and the turn is over.
    Finished(TurnOutcome),
    /// The command stands for a prompt to the model.
    Prompt(Vec<ContentBlock>),
}

/// How long to wait for restarted servers.
const RESTART_TIMEOUT: Duration = Duration::from_secs(20);

/// The prompt of `/init`.
const INIT_PROMPT: &str = "Look at this project (list it, read its README, manifests and build files) and write a short AGENTS.md \
in its root for coding agents that will work on it: what it is, how it is laid out, how to build, test and lint it, and the \
conventions that its code shows. Facts only, no more than 60 lines. If there is an AGENTS.md, improve it.";

/// Runs a command.
pub(crate) async fn run_slash_command(
    session: &AgentSession,
    conversation: &mut SessionConversation,
    reporter: &Reporter,
    cancellation: &TurnCancellation<'_>,
    command: Result<SlashCommand, SlashCommandError>,
) -> SlashOutcome {
    let reply = match command {
        Ok(SlashCommand::Init) => return init_outcome(session),
        Ok(command) => {
            match cancellation.run_until_cancelled(execute_command(session, conversation, command)).await {
                Some(reply) => reply,
                None => return SlashOutcome::Finished(TurnOutcome::Cancelled),
            }
        }
        Err(error) => format!("{error}\n\n{}", slash_command::help_text(session.toolbox().can_undo())),
    };
    let message = MessageId::new(format!("turn{}-1", conversation.turn));
    match cancellation.run_until_cancelled(reporter.send_text(&message, reply)).await {
        Some(Ok(())) => SlashOutcome::Finished(TurnOutcome::Done),
        // The client has disconnected, or the user has cancelled.
        Some(Err(_)) | None => SlashOutcome::Finished(TurnOutcome::Cancelled),
    }
}

async fn execute_command(
    session: &AgentSession,
    conversation: &mut SessionConversation,
    command: SlashCommand,
) -> String {
    match command {
        SlashCommand::Help | SlashCommand::Init => describe_commands(session),
        SlashCommand::Status => {
            let limit = session.toolbox().permissions().stricter_preset().await;
            describe_status(session, conversation, limit)
        }
        SlashCommand::Tools => describe_tools(session),
        SlashCommand::Mcp(McpCommand::Show) => describe_servers(session),
        SlashCommand::Mcp(McpCommand::Restart(name)) => {
            match (session.mcp_servers().restart(name.as_deref(), RESTART_TIMEOUT).await, name) {
                (0, Some(name)) => {
                    format!("There is no MCP server {}.\n\n{}", quote(&name), describe_servers(session))
                }
                _ => describe_servers(session),
            }
        }
        SlashCommand::Model(None) => describe_models(session),
        SlashCommand::Model(Some(name)) => match session.apply_config_change(ConfigChange::Model(name)).await
        {
            Ok(()) => format!("The model is now {}.", session.config().model.info().name),
            Err(failure) => format!("{failure}\n\n{}", describe_models(session)),
        },
        SlashCommand::Mode(None) => describe_modes(session),
        SlashCommand::Mode(Some(id)) => match session.with_config_view(|view| view.parse_mode(&id)) {
            Ok(change) => match session.apply_config_change(change).await {
                Ok(()) => format!("The mode is now {}.", session.config().mode.id()),
                Err(failure) => failure.to_string(),
            },
            Err(_) => format!("There is no mode {}.\n\n{}", quote(&id), describe_modes(session)),
        },
        SlashCommand::Compact(focus) => {
            let before = conversation.messages.len();
            let config = session.config();
            match turn::compact_conversation(session, conversation, &config, focus.as_deref()).await {
                Some(_) => {
                    format!(
                        "The conversation is shorter: {before} messages are now {}.",
                        conversation.messages.len()
                    )
                }
                None => "There is too little to sum up yet.".to_owned(),
            }
        }
        SlashCommand::Undo(undo) => undo_changes(session, conversation, undo).await,
    }
}

/// Lists the commands, including those of the offline model if it is in use.
fn describe_commands(session: &AgentSession) -> String {
    let commands = slash_command::help_text(session.toolbox().can_undo());
    match session.config().model.info().name == offline::NAME {
        true => format!("{commands}\n{}", bowline_conversation::offline_commands::HELP_TEXT),
        false => commands,
    }
}

/// The offline model writes nothing by itself, so it creates a template for the user to complete.
fn init_outcome(session: &AgentSession) -> SlashOutcome {
    let is_offline = session.config().model.info().name == offline::NAME;
    let prompt = if is_offline { offline_init_prompt(session) } else { INIT_PROMPT.to_owned() };
    SlashOutcome::Prompt(vec![prompt.into()])
}

/// Returns the offline model's command for `/init`: writing a template for the user to complete.
fn offline_init_prompt(session: &AgentSession) -> String {
    let name = session.directories().cwd.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| "This project".to_owned());
    format!(
        "write AGENTS.md:\n```\n# {name}\n\nWhat it is, in a sentence or two.\n\n## Layout\n\n- `src/`: …\n\n## Commands\n\n\
         - build: …\n- test: …\n\n## Conventions\n\n- …\n```"
    )
}

fn describe_status(
    session: &AgentSession,
    conversation: &SessionConversation,
    limit: Option<Preset>,
) -> String {
    let config = session.config();
    let info = config.model.info();
    let mut text = format!("**Session** `{}`, turn {}\n\n", session.id().0, conversation.turn);
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        writeln!(text, "- {name}: {value}").unwrap_or_default();
    };
    line("model", format!("{} ({})", info.name, info.title));
    line("mode", format!("{}: {}", config.mode.id(), config.mode.description()));
    if let Some(preset) = limit {
        line("held to", format!("the preset {preset} of the user's rules, which is stricter than the mode"));
    }
    line("directory", session.directories().cwd.display().to_string());
    for directory in &session.directories().additional_directories {
        line("and", directory.display().to_string());
    }
    for served in session.toolbox().runtime().describe() {
        line("served", served);
    }
    if let Some(usage) = &conversation.last_usage {
        let used = usage.input + usage.output;
        line(
            "context",
            format!(
                "{used} of {} tokens ({} %)",
                info.context_window,
                used * 100 / info.context_window.max(1)
            ),
        );
    }
    if let Some(cost) = conversation.wire_cost() {
        line("cost", format!("{:.4} {}", cost.amount, cost.currency));
    }
    text
}

fn describe_tools(session: &AgentSession) -> String {
    let mode = session.config().mode;
    let mut text = format!("Tools in mode {}:\n\n", mode.id());
    for tool in session.tool_specs(mode).iter() {
        let first = tool.description.lines().next().unwrap_or_default();
        writeln!(text, "- `{}`: {first}", tool.name).unwrap_or_default();
    }
    let withheld = session.toolbox().withheld_tools(mode);
    if !withheld.is_empty() {
        text.push_str("\nNot offered:\n\n");
    }
    for (tools, reason) in withheld {
        writeln!(text, "- {tools}: {reason}").unwrap_or_default();
    }
    text
}

fn describe_servers(session: &AgentSession) -> String {
    let statuses = session.mcp_servers().statuses();
    if statuses.is_empty() {
        return "There are no MCP servers in this session. A client names them when it opens one.".to_owned();
    }
    let workspace =
        session.toolbox().runtime().adopted_workspace().map(|workspace| workspace.server().name.clone());
    let mut text = String::new();
    for server in statuses {
        let (tools, state) = (server.tools, &server.state);
        let mut notes = Vec::new();
        if server.left_out > 0 {
            notes.push(format!(
                "{} more left out, as too many, nested too deep or without a proper name",
                server.left_out
            ));
        }
        if tools > 0 && !session.config().mode.can_change() {
            notes.push(format!("not offered in mode {}", session.config().mode.id()));
        }
        if workspace.as_ref() == Some(&server.name) {
            notes.push("it serves the session, by tools of the session's own".to_owned());
        }
        let notes: String = notes.into_iter().map(|note| format!("; {note}")).collect();
        writeln!(text, "- **{}**: {state}; {tools} tools{notes}", server.name).unwrap_or_default();
        for line in server.stderr.iter().rev().take(3).rev() {
            writeln!(text, "  - `{line}`").unwrap_or_default();
        }
    }
    text
}

fn describe_models(session: &AgentSession) -> String {
    let current = session.config().model.info().name.clone();
    let mut text = format!("The model is {current}. There are:\n\n");
    for info in session.resources().offered_models() {
        writeln!(text, "- `{}`: {}", info.name, info.title).unwrap_or_default();
    }
    text.push_str("\nSwitch with `/model NAME`.\n");
    text
}

fn describe_modes(session: &AgentSession) -> String {
    let current = session.config().mode;
    let mut text = format!("The mode is {}. There are:\n\n", current.id());
    for mode in session.with_config_view(|view| view.offered_modes().collect::<Vec<_>>()) {
        writeln!(text, "- `{}`: {}", mode.id(), mode.description()).unwrap_or_default();
    }
    text
}

async fn undo_changes(
    session: &AgentSession,
    conversation: &SessionConversation,
    undo: UndoTarget,
) -> String {
    // Undoing is writing, so it needs the same permission.
    let preset = match session.toolbox().permissions().stricter_preset().await {
        Some(stricter) => stricter,
        None => session.config().mode.preset(),
    };
    if matches!(preset, Preset::ReadOnly | Preset::Deny) {
        return format!(
            "Nothing was taken back: this session is held to {preset}. `bowline undo` in a terminal does it."
        );
    }
    match session.toolbox().undo(conversation.turn, undo).await {
        Ok(text) => text,
        Err(failure) => failure.to_string(),
    }
}
