//! Commands of the conversation's own, given by a slash. They are done here; all others go to the agent.

use bowline_state::schema::v1::{AvailableCommand, AvailableCommandInput, UnstructuredCommandInput};
use bowline_state::slash::Undo;

/// A command of the conversation's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Opens a new session.
    New,
    /// Shows the sessions.
    Sessions,
    /// Shows what was changed here.
    Changes,
    /// Takes back what the session changed.
    Undo(Undo),
    /// Leaves.
    Quit,
}

/// Every command: its name, what it does, what can be said to it.
const TABLE: [(&str, &str, Option<&str>); 5] = [
    ("undo", "Takes back what the last turn changed", Some("number of turns, a file, or all")),
    ("changes", "Shows what agents changed here, to undo and redo (F2)", None),
    ("new", "Begins a new session", None),
    ("sessions", "Shows the sessions, to open another (F3)", None),
    ("quit", "Leaves; the session can be opened again", None),
];

impl Command {
    /// Reads a prompt as a command; none if it is for the agent. A command that takes nothing is one only by itself.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().strip_prefix('/')?;
        let (name, input) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let input = input.trim();
        match name {
            "undo" => Some(Self::Undo(match input {
                "" => Undo::Turns(1),
                "all" => Undo::Session,
                input => match input.parse() {
                    Ok(turns) => Undo::Turns(turns),
                    Err(_) => Undo::File(mentioned(input).to_owned()),
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

/// Names the conversation's own commands, for a user who asks the agent for help.
pub(crate) fn own() -> String {
    let names: Vec<String> = TABLE.iter().map(|(name, ..)| format!("/{name}")).collect();
    format!("this terminal adds {}; F1 shows the keys", names.join(", "))
}

/// Returns a file as it was mentioned: without the `@` and the quotes.
fn mentioned(input: &str) -> &str {
    let name = input.strip_prefix('@').unwrap_or(input);
    name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name)
}

/// Returns all commands there are: the conversation's own, and those of the agent that have other names.
pub(crate) fn all(of_agent: &[AvailableCommand]) -> Vec<AvailableCommand> {
    let own = TABLE.iter().map(|(name, about, input)| {
        let hint = |hint: &&str| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(*hint));
        AvailableCommand::new(*name, *about).input(input.as_ref().map(hint))
    });
    let is_other = |command: &&AvailableCommand| TABLE.iter().all(|(name, ..)| *name != command.name);
    own.chain(of_agent.iter().filter(is_other).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_command_whole_is_done_here() {
        let parse = |text| Command::parse(text);
        assert_eq!(parse(" /undo "), Some(Command::Undo(Undo::Turns(1))));
        assert_eq!(parse("/undo 3"), Some(Command::Undo(Undo::Turns(3))));
        assert_eq!(parse("/undo all"), Some(Command::Undo(Undo::Session)));
        assert_eq!(parse("/undo @\"my file\""), Some(Command::Undo(Undo::File("my file".to_owned()))));
        assert_eq!(parse("/undo src/a.rs"), Some(Command::Undo(Undo::File("src/a.rs".to_owned()))));
        assert_eq!(parse("/exit"), Some(Command::Quit));
        for text in ["undo", "/undoing", "/new york is large", "/compact", "//new", "say /new", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_command_of_the_same_name_is_the_conversations_own() {
        let agent = [AvailableCommand::new("undo", "of the agent"), AvailableCommand::new("compact", "x")];
        let names: Vec<String> = all(&agent).into_iter().map(|command| command.name).collect();
        assert_eq!(names, ["undo", "changes", "new", "sessions", "quit", "compact"]);
    }
}
