//! The chat's own slash commands. They are handled here; all others go to the agent.

use bowline_conversation::slash_command::UndoTarget;
use bowline_protocol::schema::v1::{AvailableCommand, AvailableCommandInput, UnstructuredCommandInput};

/// A command that the chat handles itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChatCommand {
    /// Opens a new session.
    New,
    /// Shows the sessions.
    Sessions,
    /// Shows the changes made here.
    Changes,
    /// Undoes the session's changes.
    Undo(UndoTarget),
    /// Quits.
    Quit,
}

/// Every command: its name, its description, its argument.
const COMMANDS: [(&str, &str, Option<&str>); 5] = [
    ("undo", "Takes back what the last turn changed", Some("number of turns, a file, or all")),
    ("changes", "Shows what agents changed here, to undo and redo (F2)", None),
    ("new", "Begins a new session", None),
    ("sessions", "Shows the sessions, to open another (F3)", None),
    ("quit", "Leaves; the session can be opened again", None),
];

impl ChatCommand {
    /// Parses a prompt as a command; `None` if it is for the agent. A command without an argument must stand alone.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().strip_prefix('/')?;
        let (name, input) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let input = input.trim();
        match name {
            "undo" => Some(Self::Undo(match input {
                "" => UndoTarget::Turns(1),
                "all" => UndoTarget::Session,
                input => match input.parse() {
                    Ok(turns) => UndoTarget::Turns(turns),
                    Err(_) => UndoTarget::File(strip_mention(input).to_owned()),
                },
            })),
            "new" if input.is_empty() => Some(Self::New),
            "sessions" if input.is_empty() => Some(Self::Sessions),
            "changes" if input.is_empty() => Some(Self::Changes),
            "quit" | "exit" if input.is_empty() => Some(Self::Quit),
            _ => None,
        }
    }
}

/// Lists the chat's own commands, for a user who asks the agent for help.
pub(crate) fn describe_chat_commands() -> String {
    let names: Vec<String> = COMMANDS.iter().map(|(name, ..)| format!("/{name}")).collect();
    format!("this terminal adds {}; F1 shows the keys", names.join(", "))
}

/// Returns the path of a mentioned file, without the `@` and the quotes.
fn strip_mention(input: &str) -> &str {
    let name = input.strip_prefix('@').unwrap_or(input);
    name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name)
}

/// Returns all commands: the chat's own, and the agent's that have other names.
pub(crate) fn all_commands(agent_commands: &[AvailableCommand]) -> Vec<AvailableCommand> {
    let chat_commands = COMMANDS.iter().map(|(name, description, input)| {
        let hint = |hint: &&str| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(*hint));
        AvailableCommand::new(*name, *description).input(input.as_ref().map(hint))
    });
    let is_agents_own = |command: &&AvailableCommand| COMMANDS.iter().all(|(name, ..)| *name != command.name);
    chat_commands.chain(agent_commands.iter().filter(is_agents_own).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_command_whole_is_done_here() {
        let parse = |text| ChatCommand::parse(text);
        assert_eq!(parse(" /undo "), Some(ChatCommand::Undo(UndoTarget::Turns(1))));
        assert_eq!(parse("/undo 3"), Some(ChatCommand::Undo(UndoTarget::Turns(3))));
        assert_eq!(parse("/undo all"), Some(ChatCommand::Undo(UndoTarget::Session)));
        assert_eq!(
            parse("/undo @\"my file\""),
            Some(ChatCommand::Undo(UndoTarget::File("my file".to_owned())))
        );
        assert_eq!(parse("/undo src/a.rs"), Some(ChatCommand::Undo(UndoTarget::File("src/a.rs".to_owned()))));
        assert_eq!(parse("/exit"), Some(ChatCommand::Quit));
        for text in ["undo", "/undoing", "/new york is large", "/compact", "//new", "say /new", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_command_of_the_same_name_is_the_conversations_own() {
        let agent = [AvailableCommand::new("undo", "of the agent"), AvailableCommand::new("compact", "x")];
        let names: Vec<String> = all_commands(&agent).into_iter().map(|command| command.name).collect();
        assert_eq!(names, ["undo", "changes", "new", "sessions", "quit", "compact"]);
    }
}
