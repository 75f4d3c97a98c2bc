//! The tools for files and commands, carried out by a workspace server of the client.
//!
//! Such a server has the same tools, called in the same way: it knows what its model has seen, merges, and asks its own
//! rules. So a call is judged here as every other is, and goes there as it is, with paths that are absolute.

use bowline_mcp::client::McpError;
use bowline_state::audit::Action;
use bowline_state::conversation::Input;
use bowline_state::edits::Edit;
use bowline_state::ledger::{Knowledge, Version};
use bowline_state::lines::Window;
use bowline_state::mcp_tools::CallOutput;
use bowline_state::mcp_tools::workspace::{EDIT, KILL, LIST, OUTPUT, READ, RUN, SEARCH, WRITE};
use bowline_state::operation::{Kind, Operation, Target};
use bowline_state::paths::LexicalPath;
use bowline_state::question::Item;
use bowline_state::schema::v1::{ToolCallContent, ToolKind};
use bowline_state::tooling::input::Fields;
use bowline_state::{builders, display};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::mcp::shown_meanwhile;
use super::specs::Tool;
use super::work::{Done, Stop, Work, excerpt, location};
use super::{before, commands, writing};
use crate::permission::{Became, Wish};
use crate::runtime::beside::{Disk, is_same};
use crate::runtime::{Adopted, Choice, Server};

/// As much of what is looked for or run is told in a title, in bytes.
const MAX_LABEL: usize = 80;

/// Returns what a tool is called at a workspace server, if one serves it.
pub(crate) fn there(tool: Tool, choice: Choice) -> Option<&'static str> {
    let (name, by) = match tool {
        Tool::Read(_) => (READ, choice.read),
        Tool::List => (LIST, choice.read),
        Tool::Search => (SEARCH, choice.read),
        Tool::Write(_) => (WRITE, choice.write),
        Tool::Edit(_) => (EDIT, choice.write),
        Tool::Execute(_) => (RUN, choice.terminal),
        Tool::Output => (OUTPUT, choice.terminal),
        Tool::Kill => (KILL, choice.terminal),
        Tool::Plan => return None,
    };
    (by == Server::Workspace).then_some(name)
}

/// What a call is about.
struct About {
    title: String,
    kind: ToolKind,
    // Where it acts, if it acts on a file or directory.
    path: Option<LexicalPath>,
    // What the user sees before it is allowed.
    shown: Vec<ToolCallContent>,
    // What rules judge; nothing if there is nothing to allow.
    wish: Option<Wish>,
    arguments: Map<String, Value>,
}

/// Runs a tool at the workspace server, where it is called `name`.
pub(crate) async fn call(work: &Work<'_>, adopted: &Adopted, name: &'static str) -> Result<Done, Stop> {
    let about = about(work, name).await?;
    let About { title, kind, path, shown, wish, arguments } = about;
    let locations = path.iter().map(|path| location(path, None)).collect();
    let input = Value::Object(arguments.clone());
    work.start(&title, kind, |call| call.raw_input(input).locations(locations).content(shown.clone()))
        .await?;
    let mut pass = match wish {
        Some(wish) => {
            let pass = work.tools.permissions.clear(Server::Workspace, work.call, work.cx, wish).await;
            Some(pass.map_err(|no| Stop::from(no).showing(shown))?)
        }
        None => None,
    };
    if let (WRITE, Some(path)) = (name, &path) {
        seen_elsewhere(work, path).await?;
    }
    if let Some(pass) = pass.as_mut().filter(|_| kind != ToolKind::Read && kind != ToolKind::Search) {
        pass.begins().await?;
    }
    work.runs().await;
    if name == RUN {
        work.runtimes().note_command();
    }
    let answer = answered(work, adopted, name, arguments).await;
    let (text, failed) = match answer {
        Ok(output) => (output.text, output.is_error),
        Err(why) => (why.to_string(), true),
    };
    if let Some(pass) = pass {
        let why = failed.then(|| text.clone());
        pass.became(Became { bytes: Some(text.len()), failed: why, ..Became::default() }).await?;
    }
    let server = &adopted.server().name;
    let output = json!({ "servedBy": Server::Workspace.word(), "server": server, "text": text });
    // What was changed stays to be seen; what else a server says is of use where it did not.
    let content = if kind == ToolKind::Edit && !failed { None } else { Some(excerpt(&text)) };
    let text = format!("[{}, the MCP server {server:?}]\n{text}", Server::Workspace.through());
    Ok(Done { text, failed, content, output: Some(output), ..Done::default() })
}

/// Calls the server, and shows how far it is.
async fn answered(
    work: &Work<'_>,
    adopted: &Adopted,
    name: &'static str,
    arguments: Map<String, Value>,
) -> Result<CallOutput, McpError> {
    let (latest, told) = watch::channel(String::new());
    let progress = move |line: String| drop(latest.send_replace(line));
    shown_meanwhile(work, told, adopted.call(name, arguments, &progress)).await
}

/// Lets the server see a file that the model has read through the editor, so that it does not refuse to replace what its
/// model has not seen. If it has another text than the editor had, the model has not seen it either.
async fn seen_elsewhere(work: &Work<'_>, path: &LexicalPath) -> Result<(), Stop> {
    let by = work.runtimes().choice().read;
    let key = work.tools.key(by, path.as_str());
    let known = work.tools.ledger().knowledge(&key, Version(0));
    let (Server::Client, Knowledge::Whole(seen)) = (by, known) else { return Ok(()) };
    match work.runtimes().read(Server::Workspace, path.as_str(), Window::default()).await {
        Ok(now) if !is_same(&now.text, &seen) => Err(format!(
            "nothing was written: {} is not as it was read through the editor: edit it instead, or read it again",
            work.shown(path)
        )
        .into()),
        // That there is none, or that it cannot be read, the server says of the write itself.
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn about(work: &Work<'_>, name: &'static str) -> Result<About, Stop> {
    let fields = work.fields()?;
    let Input::Value(Value::Object(arguments)) = &work.call.input else {
        return Err("the input is not JSON".to_owned().into());
    };
    let mut about = About {
        title: name.replace('_', " "),
        kind: ToolKind::Execute,
        path: None,
        shown: Vec::new(),
        wish: None,
        arguments: arguments.clone(),
    };
    match name {
        RUN => runs(work, fields, &mut about).await?,
        WRITE | EDIT => {
            let path = work.resolve(fields.text("path")?)?;
            let verb = if name == WRITE { "Write" } else { "Edit" };
            about.title = format!("{verb} {}", work.shown(&path));
            about.kind = ToolKind::Edit;
            about.shown = changes(work, fields, name, &path).await?;
            let item = Item::plain(work.operation(Kind::Write, &path).await?);
            about.wish = Some(Wish { action: Action::Write, title: about.title.clone(), item });
            about.at(path);
        }
        READ | LIST | SEARCH => {
            let path = work.resolve(fields.some_text("path")?.unwrap_or("."))?;
            let shown = if path.as_str() == work.runtimes().cwd() { "." } else { work.shown(&path) };
            (about.title, about.kind) = match name {
                READ => (format!("Read {shown}"), ToolKind::Read),
                LIST => (format!("List {shown}"), ToolKind::Read),
                _ => {
                    let pattern = display::line(fields.text("pattern")?, MAX_LABEL);
                    (format!("Search for {pattern} in {shown}"), ToolKind::Search)
                }
            };
            about.wish = Some(work.looks(Server::Workspace, &path, &about.title).await?);
            about.at(path);
        }
        // Looking at a command of one's own, and ending it, may always be done.
        _ => about.title = format!("{}: {}", about.title, display::line(fields.text("id")?, MAX_LABEL)),
    }
    Ok(about)
}

/// Returns what a call would change, as far as its arguments tell. The file is not read for that: a server that was
/// asked for a text takes it for seen by the model, and lets it replace what it has not seen.
async fn changes(
    work: &Work<'_>,
    fields: Fields<'_>,
    name: &'static str,
    path: &LexicalPath,
) -> Result<Vec<ToolCallContent>, Stop> {
    if name == EDIT {
        let edits = writing::edits(fields)?;
        let diff = |edit: Edit| builders::diff(path.as_str(), Some(edit.old.as_str()), edit.new.as_str());
        return Ok(edits.into_iter().map(diff).collect());
    }
    let content = fields.text("content")?;
    Ok(match work.runtimes().glance(path.as_str()).await {
        Disk::Missing => vec![builders::diff(path.as_str(), None, content)],
        Disk::File(..) | Disk::Unknown => before::replacing(work.shown(path), content),
    })
}

impl About {
    fn at(&mut self, path: LexicalPath) {
        self.arguments.insert("path".to_owned(), path.as_str().into());
        self.path = Some(path);
    }
}

async fn runs(work: &Work<'_>, fields: Fields<'_>, about: &mut About) -> Result<(), Stop> {
    let cwd = work.resolve(fields.some_text("cwd")?.unwrap_or("."))?;
    let (given, label) = commands::given(&fields, &cwd)?;
    about.title = format!("Run {label}");
    about.shown = before::command(given.clone());
    let target = Target::Command(commands::judged(work, given).await);
    let item = Item::plain(Operation { kind: Kind::Execute, target });
    about.wish = Some(Wish { action: Action::TerminalCreate, title: about.title.clone(), item });
    about.arguments.insert("cwd".to_owned(), cwd.as_str().into());
    Ok(())
}
