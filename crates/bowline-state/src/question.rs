//! A question to a person: what an agent wants to do, with all that an answer should rest on.
//!
//! Everything in it that comes from the agent is as the agent sent it; [`Question::text`] and the functions of
//! [`display`] make it safe to show.

mod editor;
mod offers;
mod told;

use std::sync::Arc;

use agent_client_protocol_schema::v1::PermissionOptionId;

use crate::danger::Danger;
use crate::diff::{self, Body, FileDiff, Side, unified};
use crate::display::{self, Block};
use crate::grants::Holder;
use crate::operation::{Kind, Operation, Target};
use crate::policy::{Effect, Lifetime, Rule, RuleFault, RuleSpec, Source, Suggestion, suggest};

pub use offers::{MAX_OFFERS, Offer};
pub use told::{Part, Told};

/// As much of one diff is shown as text: lines, and bytes. What is cut is said.
const MAX_DIFF: (usize, usize) = (400, 64 << 10);

/// As much of a name or a title is shown, in bytes; its start and its end.
const MAX_LINE: usize = 4096;

/// As much of a command or the value of a variable. That there was more is told before all else.
const MAX_COMMAND: usize = 64 << 10;

/// As many lines of operations are shown in all.
const MAX_LINES: usize = 2000;

/// The number of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId(pub u64);

/// Why there is a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// The agent asks for permission, before it does something by itself or through the host.
    Request,
    /// The agent is doing it, and has not asked.
    Act,
    /// The agent was allowed to do something like it, and what it is doing is not that: it changed, or the file did.
    Changed,
}

/// What an agent wants to do, to be answered by a person.
#[derive(Debug, Clone)]
pub struct Question {
    /// Its number.
    pub id: QuestionId,
    /// The session and turn.
    pub holder: Holder,
    /// The tool call.
    pub call: Option<String>,
    /// How the agent calls itself.
    pub agent: Option<String>,
    /// Why there is a question.
    pub occasion: Occasion,
    /// What it is about, in the agent's words.
    pub title: String,
    /// What would be done.
    pub items: Vec<Item>,
    /// What is dangerous about it, the worst first.
    pub dangers: Vec<Danger>,
    /// Why a person is asked.
    pub because: String,
    /// What "always" could mean, from narrow to wide.
    pub suggestions: Vec<Suggestion>,
    /// The agent's own answers, where there is more to choose than yes and no.
    pub offers: Vec<Offer>,
}

/// One operation of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The operation.
    pub operation: Operation,
    /// The text that would change, if it is known.
    pub change: Option<Shown>,
    /// What the agent tells of it, where that is all there is to see.
    pub told: Option<Arc<Told>>,
}

/// A change of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Before; none for a new file.
    pub before: Option<Arc<String>>,
    /// After.
    pub after: Arc<String>,
}

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Yes or no.
    Answered(Answer),
    /// There is nobody to say anything.
    Nobody,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Yes or no.
    pub choice: Choice,
    /// For how long it holds beyond this once.
    pub keep: Keep,
    /// What it holds for then. If nothing is chosen: the narrowest that each operation suggests.
    pub scope: Vec<Suggestion>,
    /// Why not, for the agent to read.
    pub reason: Option<String>,
    /// Which of the agent's own answers was chosen, if one was.
    pub option: Option<PermissionOptionId>,
    /// What is to be written in place of what the agent wants, if the person changed it. Only for a question that
    /// [can be edited](Question::can_be_edited).
    pub text: Option<Arc<String>>,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// It may be done.
    Allow,
    /// It may not.
    Deny,
}

/// How long an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// For this once.
    Once,
    /// For this turn.
    Turn,
    /// For this session.
    Session,
    /// For this workspace.
    Project,
    /// For every workspace.
    Always,
}

impl Reply {
    /// Returns a yes for this once.
    #[must_use]
    pub fn allow() -> Self {
        Self::answer(Choice::Allow, Keep::Once)
    }

    /// Returns a no for this once.
    #[must_use]
    pub fn deny() -> Self {
        Self::answer(Choice::Deny, Keep::Once)
    }

    /// Returns an answer with no scope of its own and no reason.
    #[must_use]
    pub fn answer(choice: Choice, keep: Keep) -> Self {
        Self::Answered(Answer { choice, keep, scope: Vec::new(), reason: None, option: None, text: None })
    }
}

impl Answer {
    /// Returns the answer that an agent offers, for this once as far as rules here are concerned.
    #[must_use]
    pub fn chosen(offer: &Offer) -> Self {
        let (keep, scope, option) = (Keep::Once, Vec::new(), Some(offer.id.clone()));
        Self { choice: offer.choice, keep, scope, reason: None, option, text: None }
    }
}

impl Question {
    /// Says whether a person may have another text written than the agent wants: it is one write that the host does, not
    /// something that the agent will do by itself.
    #[must_use]
    pub fn can_be_edited(&self) -> bool {
        match self.items.as_slice() {
            [Item { operation, change: Some(_), .. }] => {
                self.occasion != Occasion::Request && operation.kind == Kind::Write
            }
            _ => false,
        }
    }

    /// Returns the rules that an answer makes; none if it is for this once. `roots` are the directories of the workspace.
    ///
    /// # Errors
    /// Returns what is wrong with a scope that was not suggested.
    pub fn rules(&self, answer: &Answer, roots: &[String]) -> Result<Vec<Rule>, RuleFault> {
        let Some(lifetime) = self.lifetime(answer.keep) else { return Ok(Vec::new()) };
        let scope = if answer.scope.is_empty() { self.narrowest(roots) } else { answer.scope.clone() };
        let effect = match answer.choice {
            Choice::Allow => Effect::Allow,
            Choice::Deny => Effect::Deny,
        };
        let rule = |suggestion: Suggestion| {
            Rule::new(RuleSpec {
                effect,
                kinds: suggestion.kinds,
                matcher: suggestion.matcher,
                lifetime: lifetime.clone(),
                expires: None,
                source: Source::Answer { session: self.holder.session.clone() },
                note: None,
            })
        };
        scope.into_iter().map(rule).collect()
    }

    fn lifetime(&self, keep: Keep) -> Option<Lifetime> {
        let session = self.holder.session.clone();
        match (keep, self.holder.turn) {
            // Outside of a turn there is none to hold for.
            (Keep::Once, _) | (Keep::Turn, None) => None,
            (Keep::Turn, Some(turn)) => Some(Lifetime::Turn { session, turn }),
            (Keep::Session, _) => Some(Lifetime::Session { session }),
            (Keep::Project, _) => Some(Lifetime::Project),
            (Keep::Always, _) => Some(Lifetime::Always),
        }
    }

    fn narrowest(&self, roots: &[String]) -> Vec<Suggestion> {
        let operations = self.items.iter().map(|item| &item.operation);
        operations.filter_map(|operation| suggest(operation, roots).into_iter().next()).collect()
    }

    /// Returns the number of the agent's own answer that a yes or a no alone selects, where it offers several for this
    /// once: the first, as [`answer`](crate::permission::answer) does.
    #[must_use]
    pub fn default_number(&self, choice: Choice) -> Option<usize> {
        let mut numbers = (1..).zip(&self.offers).filter(|(_, offer)| offer.choice == choice && !offer.lasts);
        let (number, _) = numbers.next()?;
        numbers.next().map(|_| number)
    }

    /// Returns the agent's own answers that can be chosen, by their numbers from 1 on.
    #[must_use]
    pub fn choices(&self) -> &[Offer] {
        &self.offers[..self.offers.len().min(MAX_OFFERS)]
    }

    /// Returns the whole question as text that is safe on any terminal: what, to what, how it looks, what is dangerous.
    #[must_use]
    pub fn text(&self) -> String {
        let agent = self.agent.as_deref().map_or("The agent".to_owned(), |agent| display::line(agent, 80));
        let does = match self.occasion {
            Occasion::Request => "asks",
            Occasion::Act => "asks",
            Occasion::Changed => "is about to act, and it is not what was approved",
        };
        let mut lines = vec![format!("{agent} {does}: {}", display::line(&self.title, MAX_LINE))];
        let warn = |text: &str| format!("! {}", display::line(text, MAX_LINE));
        let mut shown = Vec::new();
        let mut unshown: Vec<String> = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            let item_lines = item.lines();
            if shown.len() + item_lines.len() > MAX_LINES {
                unshown.push(format!("{} operations of it are not shown", self.items.len() - at));
                break;
            }
            shown.extend(item_lines);
            unshown.extend(item.unshown());
        }
        if self.offers.len() > MAX_OFFERS {
            unshown.push(format!(
                "{} more answers of the agent's are not shown",
                self.offers.len() - MAX_OFFERS
            ));
        }
        // Warnings first: what comes from the agent cannot push them out of sight.
        lines.extend(unshown.iter().map(|text| warn(text)));
        lines.extend(self.dangers.iter().map(|danger| warn(&danger.to_string())));
        lines.extend(shown);
        if !self.offers.is_empty() {
            lines.push("The agent offers".to_owned());
            let choices = self.choices().iter().zip(1..);
            lines.extend(choices.map(|(offer, number)| format!("  {number} {}", offer.text())));
        }
        lines.push(format!("Asked because {}", display::line(&self.because, MAX_LINE)));
        lines.join("\n") + "\n"
    }
}

impl Item {
    /// Returns an operation that has no text to show.
    #[must_use]
    pub fn plain(operation: Operation) -> Self {
        Self { operation, change: None, told: None }
    }

    /// Returns an operation that changes a text.
    #[must_use]
    pub fn changing(operation: Operation, change: Shown) -> Self {
        Self { operation, change: Some(change), told: None }
    }

    /// Says whether a person would see no more of it than a name: neither a text that changes nor a command.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.change.is_none() && !matches!(self.operation.target, Target::Command(_))
    }

    /// Returns what a person should see of it, line by line, safe on any terminal.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.head();
        lines.extend(self.told.iter().flat_map(|told| told.lines()));
        lines.extend(self.change.iter().flat_map(Shown::lines));
        lines
    }

    /// Returns what is done to what, line by line, safe on any terminal.
    #[must_use]
    pub fn head(&self) -> Vec<String> {
        let kind = self.operation.kind.word();
        let line = |text: &str| display::line(text, MAX_LINE);
        let command_line = |text: &str| display::line(&display::shortened(text), MAX_COMMAND);
        match &self.operation.target {
            Target::File { asked, resolved, .. } if asked != resolved => {
                vec![format!("  {kind} {} (leads to {})", line(asked), line(resolved))]
            }
            Target::File { asked, .. } => vec![format!("  {kind} {}", line(asked))],
            Target::Elsewhere { asked } => vec![format!("  {kind} {} (outside the workspace)", line(asked))],
            Target::Command(command) => {
                let mut lines = vec![
                    format!("  run {}", command_line(&display::typed(&command.invocation))),
                    format!("  in {}", line(&command.cwd)),
                ];
                let variable = |(name, value): &(String, String)| {
                    format!("  with {}={}", line(name), command_line(value))
                };
                lines.extend(command.env.iter().map(variable));
                lines
            }
            Target::Url(url) => vec![format!("  {kind} {}", line(url))],
            Target::Described(title) => {
                let noun = self.told.as_ref().map_or(noun(self.operation.kind), |told| told.noun());
                vec![format!("  {noun} in its own words: {}", line(title))]
            }
        }
    }

    /// Says what of it [`Item::lines`] leaves out, if it does: a person who says yes to that has not seen it.
    #[must_use]
    pub fn unshown(&self) -> Option<String> {
        if self.told.as_ref().is_some_and(|told| told.is_cut()) {
            return Some("a part of what the agent tells of it is not shown: it is too long".to_owned());
        }
        let cut = |text: &str| {
            let text = display::shortened(text);
            display::line(&text, MAX_COMMAND) != display::line(&text, usize::MAX)
        };
        match (&self.operation.target, &self.change) {
            (Target::Command(command), _) if cut(&display::invocation(&command.invocation)) => {
                Some("a part of the command is not shown: it is too long".to_owned())
            }
            (Target::Command(command), _) if command.env.iter().any(|(_, value)| cut(value)) => {
                Some("a part of the environment is not shown: it is too long".to_owned())
            }
            (Target::File { asked, .. } | Target::Elsewhere { asked }, Some(change)) => {
                let cut = change.block().cut;
                (cut > 0).then(|| format!("{cut} lines of the change of {asked} are not shown"))
            }
            _ => None,
        }
    }
}

impl Shown {
    /// Returns the change as a patch that is safe to show, without its head.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let before = self.before.as_deref().map_or("", String::as_str);
        let stat = diff::stat(before, &self.after);
        let head = match &self.before {
            None => format!("  new file, lines: {}", stat.added),
            Some(_) => format!("  lines: {} added, {} removed", stat.added, stat.removed),
        };
        std::iter::once(head).chain(self.block().text.lines().map(|line| format!("  {line}"))).collect()
    }

    fn block(&self) -> Block {
        let before = self.before.as_deref().map_or("", String::as_str);
        let side = |text| Some(Side { body: Body::Text(text), mode: 0o644 });
        let patch = unified(&FileDiff { path: "", before: side(before), after: side(&self.after) }, 3);
        let start = patch.find("@@").unwrap_or(patch.len());
        display::block(&patch[start..], MAX_DIFF.0, MAX_DIFF.1)
    }
}

fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "a look",
        Kind::Write => "a change",
        Kind::Delete => "a deletion",
        Kind::Execute => "something that it does by itself,",
        Kind::Fetch => "a download",
    }
}

#[cfg(test)]
mod tests;
