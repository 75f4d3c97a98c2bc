//! The offline model: it does what plain commands say, with no network and no key.
//!
//! It keeps nothing between requests. Where it is follows from the conversation alone: so many calls as were made since
//! the user's last message, so many steps that need a tool are done. A session that is loaded again goes on where it was.

mod show;

use std::sync::Arc;

use bowline_state::conversation::{Input, Message, Part, Role, ToolResult, ToolSpec, ToolUse};
use bowline_state::offline::{HELP, Step, parse};
use serde_json::{Value, json};

use super::speak::{Voice, reply};
use super::{Event, Model, ModelError, ModelInfo, Reply, Request, Stop};

/// The name of the offline model.
pub const NAME: &str = "offline";

/// Does what plain commands say.
#[derive(Debug)]
pub struct Offline {
    info: ModelInfo,
}

impl Offline {
    /// Returns the offline model.
    #[must_use]
    pub fn new() -> Self {
        Self { info: info() }
    }
}

impl Default for Offline {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns what is known of the offline model.
#[must_use]
pub fn info() -> ModelInfo {
    ModelInfo {
        name: NAME.to_owned(),
        title: "Offline (plain commands)".to_owned(),
        window: 128_000,
        images: false,
        thinking: false,
        price: None,
    }
}

impl Model for Offline {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn ask(&self, request: Request) -> Reply {
        reply(move |voice| async move {
            let mut turn = Turn { voice, request, said: false };
            turn.speak().await;
            // It takes no tokens, so there is no usage to tell; some older clients end at such an update.
            turn.voice.say(Event::End(Stop::Done)).await;
            Ok::<(), ModelError>(())
        })
    }
}

/// One reply.
struct Turn {
    voice: Voice,
    request: Request,
    // Whether there is text already, so that the next paragraph needs a blank line before it.
    said: bool,
}

impl Turn {
    async fn speak(&mut self) {
        let messages: Arc<[Message]> = self.request.messages.clone();
        let Some(asked) = messages.iter().rposition(|message| message.role == Role::User) else {
            return self.paragraph(HELP).await;
        };
        let (asked, since) = (&messages[asked], &messages[asked + 1..]);
        let steps = match steps(asked) {
            Ok(steps) => steps,
            Err(unclear) => return self.paragraph(&unclear).await,
        };
        let done = since.iter().flat_map(Message::calls).count();
        let mut begin = 0;
        if done > 0 {
            // The step that the last call belongs to.
            let mut calls = steps.iter().enumerate().filter(|(_, step)| needs_tool(step));
            let Some((last, step)) = calls.nth(done - 1) else {
                return self.paragraph("All commands are done.").await;
            };
            begin = last + 1;
            let result = since.iter().rev().flat_map(|message| &message.parts).find_map(|part| match part {
                Part::Result(result) => Some(result),
                _ => None,
            });
            let left = steps.len() - begin;
            if let Some(result) = result
                && !self.tell(step, result, left).await
            {
                return;
            }
        }
        for (at, step) in steps.iter().enumerate().skip(begin) {
            if !self.take(step, steps.len() - at - 1).await {
                return;
            }
        }
    }

    /// Tells how a call went; says whether it goes on.
    async fn tell(&mut self, step: &Step, result: &ToolResult, left: usize) -> bool {
        self.paragraph(&show::result(step, result)).await;
        if result.failed && left > 0 {
            self.paragraph(&format!("I stop here; {} not done.", show::commands(left))).await;
        }
        !result.failed
    }

    /// Takes a step; says whether the next one can be taken in the same reply.
    async fn take(&mut self, step: &Step, left: usize) -> bool {
        match step {
            Step::Think(text) => {
                self.voice.say(Event::Thought { text: text.clone(), signature: None }).await;
            }
            Step::Say(text) => self.paragraph(text).await,
            Step::Wait(time) => {
                tokio::time::sleep(*time).await;
                self.paragraph(&format!("Waited {time:?}.")).await;
            }
            Step::Stream(count) => {
                self.paragraph("").await;
                for piece in 1..=*count {
                    self.text(&format!("{piece} ")).await;
                }
            }
            step => match call(step, &self.request.tools) {
                Ok((name, input)) => {
                    let id = fresh_id(&self.request.messages);
                    self.voice.say(Event::Call(ToolUse { id, name, input: Input::Value(input) })).await;
                    return false;
                }
                Err(missing) => {
                    let rest = if left > 0 {
                        format!(" I stop here; {} not done.", show::commands(left))
                    } else {
                        String::new()
                    };
                    self.paragraph(&format!("{missing}{rest}")).await;
                    return false;
                }
            },
        }
        true
    }

    async fn paragraph(&mut self, text: &str) {
        if self.said {
            self.text("\n\n").await;
        }
        self.text(text).await;
    }

    async fn text(&mut self, text: &str) {
        self.said |= !text.is_empty();
        self.voice.text(text).await;
    }
}

/// Returns the steps that a message asks for, or what to say instead. A prompt has parts beside what was typed (files, a
/// reminder): a part that is no command is left out if another one is.
fn steps(asked: &Message) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut unclear = None;
    for part in &asked.parts {
        let Part::Text { text } = part else { continue };
        match parse(text) {
            Ok(found) => steps.extend(found),
            Err(_) if asks_for_help(text) => return Err(HELP.to_owned()),
            Err(why) => unclear = unclear.or(Some(why)),
        }
    }
    if !steps.is_empty() {
        return Ok(steps);
    }
    // What the user wrote is one part; pictures and files are others.
    let attached = match asked.parts.len().saturating_sub(1) {
        0 => String::new(),
        _ => "I see what is attached, but I do not know what to do with it: `read PATH` shows a file, and pictures I \
              cannot look at.\n\n"
            .to_owned(),
    };
    Err(unclear.map_or_else(|| HELP.to_owned(), |why| format!("I did nothing: {why}.\n\n{attached}{HELP}")))
}

fn asks_for_help(text: &str) -> bool {
    let word = text.trim().trim_matches(['?', '!', '.', '/']);
    word.is_empty() && text.contains('?') || word.eq_ignore_ascii_case("help")
}

fn needs_tool(step: &Step) -> bool {
    match step {
        Step::Think(_) | Step::Say(_) | Step::Wait(_) | Step::Stream(_) => false,
        Step::Read { .. }
        | Step::Write { .. }
        | Step::Replace { .. }
        | Step::Run(_)
        | Step::List(_)
        | Step::Find(_)
        | Step::Plan(_)
        | Step::Call { .. } => true,
    }
}

/// Returns the call that a step needs, or why it cannot be made.
fn call(step: &Step, offered: &[ToolSpec]) -> Result<(String, Value), String> {
    let has = |name: &&str| offered.iter().any(|tool| tool.name == *name);
    let (names, input): (&[&str], Value) = match step {
        Step::Read { path, lines } => {
            let mut input = json!({"path": path});
            if let Some((line, limit)) = lines {
                input["line"] = json!(line);
                input["limit"] = json!(limit);
            }
            (&["read_text_file", "ide_read_file", "read_file"], input)
        }
        Step::Write { path, text } => {
            (&["write_text_file", "ide_write_file", "write_file"], json!({"path": path, "content": text}))
        }
        Step::Replace { path, old, new, all } => {
            let mut edit = json!({"old_text": old, "new_text": new});
            if *all {
                edit["replace_all"] = json!(true);
            }
            (&["edit_text_file", "ide_edit_file", "edit_file"], json!({"path": path, "edits": [edit]}))
        }
        Step::Run(command) => (&["execute", "ide_terminal", "bash"], json!({"command": command})),
        Step::List(directory) => (&["list_directory"], json!({"path": directory.as_deref().unwrap_or(".")})),
        Step::Find(text) => (&["search_text"], json!({"pattern": text})),
        Step::Plan(entries) => {
            let entry =
                |content: &String| json!({"content": content, "priority": "medium", "status": "pending"});
            (&["update_plan"], json!({"entries": entries.iter().map(entry).collect::<Vec<_>>()}))
        }
        // As it is, so that the answer to an unknown tool can be seen too.
        Step::Call { tool, input } => return Ok((tool.clone(), input.clone())),
        Step::Think(_) | Step::Say(_) | Step::Wait(_) | Step::Stream(_) => (&[], Value::Null),
    };
    match names.iter().find(|name| has(name)) {
        Some(name) => Ok(((*name).to_owned(), input)),
        None => Err(show::missing(step, names)),
    }
}

/// Returns an id that no call of the conversation has.
fn fresh_id(messages: &[Message]) -> String {
    let taken: std::collections::HashSet<&str> =
        messages.iter().flat_map(Message::calls).map(|call| call.id.as_str()).collect();
    let ids = (taken.len() + 1..).map(|number| format!("offline_{number}"));
    ids.into_iter().find(|id| !taken.contains(id.as_str())).unwrap_or_default()
}

#[cfg(test)]
mod tests;
