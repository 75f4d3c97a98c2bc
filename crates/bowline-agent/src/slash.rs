//! Commands that a user gives by a slash, done.

use std::fmt::Write as _;
use std::time::Duration;

use bowline_state::failure::quote;
use bowline_state::policy::Preset;
use bowline_state::schema::v1::{ContentBlock, MessageId};
use bowline_state::slash::{self, Command, Servers, SlashError, Undo};
use bowline_state::turn::End;

use crate::model::offline;
use crate::options::Change;
use crate::reporter::Reporter;
use crate::session::{Session, Talk};
use crate::turn::{self, Halt};

/// What became of a command.
pub(crate) enum Done {
    /// It was done, and the turn is over.
    Over(End),
    /// It stands for a prompt, which the model is to answer.
    Prompt(Vec<ContentBlock>),
}

/// How long servers that are started anew are waited for.
const RESTART: Duration = Duration::from_secs(20);

/// What `/init` stands for.
const INIT: &str = "Look at this project (list it, read its README, manifests and build files) and write a short AGENTS.md \
in its root for coding agents that will work on it: what it is, how it is laid out, how to build, test and lint it, and the \
conventions that its code shows. Facts only, no more than 60 lines. If there is an AGENTS.md, improve it.";

/// Does a command.
pub(crate) async fn run(
    session: &Session,
    talk: &mut Talk,
    reporter: &Reporter,
    halt: &Halt<'_>,
    command: Result<Command, SlashError>,
) -> Done {
    let said = match command {
        Ok(Command::Init) => return init(session),
        Ok(command) => match halt.or(answer(session, talk, command)).await {
            Some(said) => said,
            None => return Done::Over(End::Cancelled),
        },
        Err(error) => format!("{error}\n\n{}", slash::help(session.toolbox().can_undo())),
    };
    let message = MessageId::new(format!("turn{}-1", talk.turn));
    match halt.or(reporter.text(&message, said)).await {
        Some(Ok(())) => Done::Over(End::Done),
        // The client is gone, or the user has cancelled.
        Some(Err(_)) | None => Done::Over(End::Cancelled),
    }
}

async fn answer(session: &Session, talk: &mut Talk, command: Command) -> String {
    match command {
        Command::Help | Command::Init => help(session),
        Command::Status => {
            let limit = session.toolbox().permissions().limit().await;
            status(session, talk, limit)
        }
        Command::Tools => tools(session),
        Command::Mcp(Servers::Show) => servers(session),
        Command::Mcp(Servers::Restart(name)) => {
            match (session.servers().restart(name.as_deref(), RESTART).await, name) {
                (0, Some(name)) => {
                    format!("There is no MCP server {}.\n\n{}", quote(&name), servers(session))
                }
                _ => servers(session),
            }
        }
        Command::Model(None) => models(session),
        Command::Model(Some(name)) => match session.choose(Change::Model(name)).await {
            Ok(()) => format!("The model is now {}.", session.choice().model.info().name),
            Err(failure) => format!("{failure}\n\n{}", models(session)),
        },
        Command::Mode(None) => modes(session),
        Command::Mode(Some(id)) => match session.choices(|choices| choices.choose_mode(&id)) {
            Ok(change) => match session.choose(change).await {
                Ok(()) => format!("The mode is now {}.", session.choice().mode.id()),
                Err(failure) => failure.to_string(),
            },
            Err(_) => format!("There is no mode {}.\n\n{}", quote(&id), modes(session)),
        },
        Command::Compact(focus) => {
            let before = talk.messages.len();
            let choice = session.choice();
            match turn::make_room(session, talk, &choice, focus.as_deref()).await {
                Some(_) => {
                    format!("The conversation is shorter: {before} messages are now {}.", talk.messages.len())
                }
                None => "There is too little to sum up yet.".to_owned(),
            }
        }
        Command::Undo(undo) => take_back(session, talk, undo).await,
    }
}

/// Returns the commands, and with the offline model what that one understands.
fn help(session: &Session) -> String {
    let commands = slash::help(session.toolbox().can_undo());
    match session.choice().model.info().name == offline::NAME {
        true => format!("{commands}\n{}", bowline_state::offline::HELP),
        false => commands,
    }
}

/// With the offline model, which writes nothing by itself, the file is a beginning for the user to go on with.
fn init(session: &Session) -> Done {
    let is_offline = session.choice().model.info().name == offline::NAME;
    let prompt = if is_offline { beginning(session) } else { INIT.to_owned() };
    Done::Prompt(vec![prompt.into()])
}

/// Returns what the offline model is told for `/init`: to write a beginning that the user goes on with.
fn beginning(session: &Session) -> String {
    let name = session.place().cwd.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| "This project".to_owned());
    format!(
        "write AGENTS.md:\n```\n# {name}\n\nWhat it is, in a sentence or two.\n\n## Layout\n\n- `src/`: …\n\n## Commands\n\n\
         - build: …\n- test: …\n\n## Conventions\n\n- …\n```"
    )
}

fn status(session: &Session, talk: &Talk, limit: Option<Preset>) -> String {
    let choice = session.choice();
    let info = choice.model.info();
    let mut text = format!("**Session** `{}`, turn {}\n\n", session.id().0, talk.turn);
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        writeln!(text, "- {name}: {value}").unwrap_or_default();
    };
    line("model", format!("{} ({})", info.name, info.title));
    line("mode", format!("{}: {}", choice.mode.id(), choice.mode.description()));
    if let Some(preset) = limit {
        line("held to", format!("the preset {preset} of the user's rules, which is stricter than the mode"));
    }
    line("directory", session.place().cwd.display().to_string());
    for directory in &session.place().additional {
        line("and", directory.display().to_string());
    }
    for served in session.toolbox().runtimes().describe() {
        line("served", served);
    }
    if let Some(usage) = &talk.last_usage {
        let used = usage.input + usage.output;
        line("context", format!("{used} of {} tokens ({} %)", info.window, used * 100 / info.window.max(1)));
    }
    if let Some(cost) = talk.cost_told() {
        line("cost", format!("{:.4} {}", cost.amount, cost.currency));
    }
    text
}

fn tools(session: &Session) -> String {
    let mode = session.choice().mode;
    let mut text = format!("Tools in mode {}:\n\n", mode.id());
    for tool in session.tools(mode).iter() {
        let first = tool.description.lines().next().unwrap_or_default();
        writeln!(text, "- `{}`: {first}", tool.name).unwrap_or_default();
    }
    let withheld = session.toolbox().withheld(mode);
    if !withheld.is_empty() {
        text.push_str("\nNot offered:\n\n");
    }
    for (what, why) in withheld {
        writeln!(text, "- {what}: {why}").unwrap_or_default();
    }
    text
}

fn servers(session: &Session) -> String {
    let status = session.servers().status();
    if status.is_empty() {
        return "There are no MCP servers in this session. A client names them when it opens one.".to_owned();
    }
    let workspace = session.toolbox().runtimes().workspace().map(|adopted| adopted.server().name.clone());
    let mut text = String::new();
    for server in status {
        let (tools, state) = (server.tools, &server.state);
        let mut notes = Vec::new();
        if server.left_out > 0 {
            notes.push(format!(
                "{} more left out, as too many, nested too deep or without a proper name",
                server.left_out
            ));
        }
        if tools > 0 && !session.choice().mode.may_change() {
            notes.push(format!("not offered in mode {}", session.choice().mode.id()));
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

fn models(session: &Session) -> String {
    let now = session.choice().model.info().name.clone();
    let mut text = format!("The model is {now}. There are:\n\n");
    for info in session.shared().offered() {
        writeln!(text, "- `{}`: {}", info.name, info.title).unwrap_or_default();
    }
    text.push_str("\nSwitch with `/model NAME`.\n");
    text
}

fn modes(session: &Session) -> String {
    let now = session.choice().mode;
    let mut text = format!("The mode is {}. There are:\n\n", now.id());
    for mode in session.choices(|choices| choices.offered().collect::<Vec<_>>()) {
        writeln!(text, "- `{}`: {}", mode.id(), mode.description()).unwrap_or_default();
    }
    text
}

async fn take_back(session: &Session, talk: &Talk, undo: Undo) -> String {
    // Taking back is writing, and whoever may not write does not take back either.
    let preset = match session.toolbox().permissions().limit().await {
        Some(stricter) => stricter,
        None => session.choice().mode.preset(),
    };
    if matches!(preset, Preset::ReadOnly | Preset::Deny) {
        return format!(
            "Nothing was taken back: this session is held to {preset}. `bowline undo` in a terminal does it."
        );
    }
    match session.toolbox().undo(talk.turn, undo).await {
        Ok(done) => done,
        Err(failure) => failure.to_string(),
    }
}
