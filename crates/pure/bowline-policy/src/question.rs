//! A question to a person: what an agent wants to do, with the facts that an answer should rest on.
//!
//! Agent-supplied text is stored as the agent sent it; [`Question::to_text`] and the functions of [`display`] make it
//! safe to show.

mod agent_options;
mod description;
mod permission_request;

use std::sync::Arc;

use agent_client_protocol_schema::v1::PermissionOptionId;

use crate::danger::Danger;
use crate::grants::GrantHolder;
use crate::operation::{Operation, OperationKind, OperationTarget};
use crate::policy::{
    Effect, Rule, RuleError, RuleLifetime, RuleSource, RuleSpec, RuleSuggestion, suggest_rules,
};
use bowline_protocol::terminal;
use bowline_text::diff::{self, DiffContent, DiffSide, FileDiff, format_unified_diff};
use bowline_text::display::{self, EscapedBlock};

pub use agent_options::{AgentOption, MAX_AGENT_OPTIONS};
pub use description::{DescriptionText, ToolCallDescription};

/// The maximum size of a diff shown as text, in lines and bytes. Truncation is marked.
const MAX_DIFF_SIZE: (usize, usize) = (400, 64 << 10);

/// The maximum length of a displayed name or title, in bytes; a longer one keeps its start and end.
const MAX_LINE_BYTES: usize = 4096;

/// The same for a command or a variable's value. A warning about the truncation precedes everything else.
const MAX_COMMAND_BYTES: usize = 64 << 10;

/// The maximum number of operation lines shown.
const MAX_OPERATION_LINES: usize = 2000;

/// The id of a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId(pub u64);

/// Why a question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionTrigger {
    /// The agent asks for permission before it acts by itself or through the host.
    PermissionRequest,
    /// The agent acts without having asked.
    UnrequestedOperation,
    /// The agent has permission for a similar operation, but this one differs: the operation or the file changed.
    ChangedOperation,
}

/// An operation of an agent that a person has to approve.
#[derive(Debug, Clone)]
pub struct Question {
    /// Its id.
    pub id: QuestionId,
    /// The session and turn.
    pub holder: GrantHolder,
    /// The tool call.
    pub call: Option<String>,
    /// The agent's name for itself.
    pub agent: Option<String>,
    /// Why it is asked.
    pub trigger: QuestionTrigger,
    /// A title in the agent's words.
    pub title: String,
    /// The operations.
    pub items: Vec<QuestionItem>,
    /// The dangers, worst first.
    pub dangers: Vec<Danger>,
    /// Why a person is asked.
    pub reason: String,
    /// The rules that "always" could create, from narrow to wide.
    pub suggestions: Vec<RuleSuggestion>,
    /// The agent's own options, if they offer more than yes and no.
    pub agent_options: Vec<AgentOption>,
}

/// One operation of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionItem {
    /// The operation.
    pub operation: Operation,
    /// The text that would change, if it is known.
    pub change: Option<TextChange>,
    /// The agent's description, if nothing else can be shown.
    pub description: Option<Arc<ToolCallDescription>>,
}

/// A change of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextChange {
    /// The text before; `None` for a new file.
    pub before: Option<Arc<String>>,
    /// The text after.
    pub after: Arc<String>,
}

/// A person's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionReply {
    /// A person answered.
    Answered(QuestionAnswer),
    /// No user can answer.
    NoUser,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionAnswer {
    /// The choice.
    pub choice: AnswerChoice,
    /// How long it holds beyond this once.
    pub lifetime: AnswerLifetime,
    /// What it then applies to. If empty: the narrowest suggestion for each operation.
    pub scope: Vec<RuleSuggestion>,
    /// The reason for a denial, for the agent to read.
    pub reason: Option<String>,
    /// The agent's option that was selected, if any.
    pub option_id: Option<PermissionOptionId>,
    /// The text to write instead of the agent's, if the person edited it. Only for a question that [can be
    /// edited](Question::is_editable).
    pub edited_text: Option<Arc<String>>,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerChoice {
    /// The operation may proceed.
    Allow,
    /// The operation may not proceed.
    Deny,
}

/// How long an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerLifetime {
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

impl QuestionReply {
    /// Returns a yes for this once.
    #[must_use]
    pub fn allow() -> Self {
        Self::answer(AnswerChoice::Allow, AnswerLifetime::Once)
    }

    /// Returns a no for this once.
    #[must_use]
    pub fn deny() -> Self {
        Self::answer(AnswerChoice::Deny, AnswerLifetime::Once)
    }

    /// Returns an answer without a scope or a reason.
    #[must_use]
    pub fn answer(choice: AnswerChoice, lifetime: AnswerLifetime) -> Self {
        Self::Answered(QuestionAnswer::new(choice, lifetime))
    }

    /// Returns a denial for this once, with its reason.
    #[must_use]
    pub fn deny_because(reason: Option<String>) -> Self {
        Self::Answered(QuestionAnswer {
            reason,
            ..QuestionAnswer::new(AnswerChoice::Deny, AnswerLifetime::Once)
        })
    }
}

impl QuestionAnswer {
    /// Returns an answer without a scope or a reason.
    #[must_use]
    pub fn new(choice: AnswerChoice, lifetime: AnswerLifetime) -> Self {
        Self { choice, lifetime, scope: Vec::new(), reason: None, option_id: None, edited_text: None }
    }

    /// Returns the reply that selects an agent's option. It holds only this once for Bowline's rules.
    #[must_use]
    pub fn from_agent_option(offer: &AgentOption) -> Self {
        Self { option_id: Some(offer.id.clone()), ..Self::new(offer.choice, AnswerLifetime::Once) }
    }
}

impl Question {
    /// Creates a question about operations that an agent carries out without having asked. Its id, reason and
    /// suggestions are set when it is asked.
    #[must_use]
    pub fn new(holder: GrantHolder, title: impl Into<String>, items: Vec<QuestionItem>) -> Self {
        Self {
            id: QuestionId::default(),
            holder,
            call: None,
            agent: None,
            trigger: QuestionTrigger::UnrequestedOperation,
            title: title.into(),
            items,
            dangers: Vec::new(),
            reason: String::new(),
            suggestions: Vec::new(),
            agent_options: Vec::new(),
        }
    }

    /// Returns whether a person may replace the text to be written: the question is about a single write by the host,
    /// not an operation that the agent performs itself.
    #[must_use]
    pub fn is_editable(&self) -> bool {
        match self.items.as_slice() {
            [QuestionItem { operation, change: Some(_), .. }] => {
                self.trigger != QuestionTrigger::PermissionRequest && operation.kind == OperationKind::Write
            }
            _ => false,
        }
    }

    /// Returns the rules that an answer creates; none if it holds only this once. `roots` are the directories of the
    /// workspace.
    ///
    /// # Errors
    /// Returns what is wrong with a scope that was not suggested.
    pub fn rules(&self, answer: &QuestionAnswer, roots: &[String]) -> Result<Vec<Rule>, RuleError> {
        let Some(lifetime) = self.rule_lifetime(answer.lifetime) else { return Ok(Vec::new()) };
        let scope =
            if answer.scope.is_empty() { self.narrowest_suggestions(roots) } else { answer.scope.clone() };
        let effect = match answer.choice {
            AnswerChoice::Allow => Effect::Allow,
            AnswerChoice::Deny => Effect::Deny,
        };
        let rule = |suggestion: RuleSuggestion| {
            Rule::new(RuleSpec {
                effect,
                kinds: suggestion.kinds,
                matcher: suggestion.matcher,
                lifetime: lifetime.clone(),
                expires: None,
                source: RuleSource::UserAnswer { session: self.holder.session.clone() },
                note: None,
            })
        };
        scope.into_iter().map(rule).collect()
    }

    fn rule_lifetime(&self, lifetime: AnswerLifetime) -> Option<RuleLifetime> {
        let session = self.holder.session.clone();
        match (lifetime, self.holder.turn) {
            // Outside a turn there is no turn to hold for.
            (AnswerLifetime::Once, _) | (AnswerLifetime::Turn, None) => None,
            (AnswerLifetime::Turn, Some(turn)) => Some(RuleLifetime::Turn { session, turn }),
            (AnswerLifetime::Session, _) => Some(RuleLifetime::Session { session }),
            (AnswerLifetime::Project, _) => Some(RuleLifetime::Project),
            (AnswerLifetime::Always, _) => Some(RuleLifetime::Always),
        }
    }

    fn narrowest_suggestions(&self, roots: &[String]) -> Vec<RuleSuggestion> {
        let operations = self.items.iter().map(|item| &item.operation);
        operations.filter_map(|operation| suggest_rules(operation, roots).into_iter().next()).collect()
    }

    /// Returns the number of the agent's option that a plain yes or no selects, where several hold only this once:
    /// the first, as in [`choose_outcome`](bowline_protocol::permission::choose_outcome).
    #[must_use]
    pub fn default_option_number(&self, choice: AnswerChoice) -> Option<usize> {
        let mut numbers = (1..)
            .zip(&self.agent_options)
            .filter(|(_, offer)| offer.choice == choice && !offer.is_persistent);
        let (number, _) = numbers.next()?;
        numbers.next().map(|_| number)
    }

    /// Returns the agent's options that can be selected, numbered from 1.
    #[must_use]
    pub fn selectable_options(&self) -> &[AgentOption] {
        &self.agent_options[..self.agent_options.len().min(MAX_AGENT_OPTIONS)]
    }

    /// Returns the whole question as text that is safe on any terminal: the operations, their targets and texts, and
    /// the dangers.
    #[must_use]
    pub fn to_text(&self) -> String {
        let agent =
            self.agent.as_deref().map_or("The agent".to_owned(), |agent| display::escape_line(agent, 80));
        let does = match self.trigger {
            QuestionTrigger::PermissionRequest => "asks",
            QuestionTrigger::UnrequestedOperation => "asks",
            QuestionTrigger::ChangedOperation => "is about to act, and it is not what was approved",
        };
        let mut lines =
            vec![format!("{agent} {does}: {}", display::escape_line(&self.title, MAX_LINE_BYTES))];
        let warn = |text: &str| format!("! {}", display::escape_line(text, MAX_LINE_BYTES));
        let mut shown = Vec::new();
        let mut unshown: Vec<String> = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            let item_lines = item.lines();
            if shown.len() + item_lines.len() > MAX_OPERATION_LINES {
                unshown.push(format!("{} operations of it are not shown", self.items.len() - at));
                break;
            }
            shown.extend(item_lines);
            unshown.extend(item.describe_omission());
        }
        if self.agent_options.len() > MAX_AGENT_OPTIONS {
            unshown.push(format!(
                "{} more answers of the agent's are not shown",
                self.agent_options.len() - MAX_AGENT_OPTIONS
            ));
        }
        // Warnings come first, so that agent-supplied text cannot push them out of sight.
        lines.extend(unshown.iter().map(|text| warn(text)));
        lines.extend(self.dangers.iter().map(|danger| warn(&danger.to_string())));
        lines.extend(shown);
        if !self.agent_options.is_empty() {
            lines.push("The agent offers".to_owned());
            let choices = self.selectable_options().iter().zip(1..);
            lines.extend(choices.map(|(offer, number)| format!("  {number} {}", offer.label())));
        }
        lines.push(format!("Asked because {}", display::escape_line(&self.reason, MAX_LINE_BYTES)));
        lines.join("\n") + "\n"
    }
}

impl QuestionItem {
    /// Creates an item without a text to show.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self { operation, change: None, description: None }
    }

    /// Creates an item that changes a text.
    #[must_use]
    pub fn with_change(operation: Operation, change: TextChange) -> Self {
        Self { operation, change: Some(change), description: None }
    }

    /// Returns whether a person would see only its name: neither a changed text nor a command.
    #[must_use]
    pub fn shows_only_name(&self) -> bool {
        self.change.is_none() && !matches!(self.operation.target, OperationTarget::Command(_))
    }

    /// Returns everything to show about it, line by line, safe on any terminal.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.summary_lines();
        lines.extend(self.description.iter().flat_map(|description| description.lines()));
        lines.extend(self.change.iter().flat_map(TextChange::lines));
        lines
    }

    /// Returns the operation and its target, line by line, safe on any terminal.
    #[must_use]
    pub fn summary_lines(&self) -> Vec<String> {
        let kind = self.operation.kind.as_str();
        let line = |text: &str| display::escape_line(text, MAX_LINE_BYTES);
        let command_line =
            |text: &str| display::escape_line(&display::collapse_whitespace(text), MAX_COMMAND_BYTES);
        match &self.operation.target {
            OperationTarget::File { requested, resolved, .. } if requested != resolved => {
                vec![format!("  {kind} {} (leads to {})", line(requested), line(resolved))]
            }
            OperationTarget::File { requested, .. } => vec![format!("  {kind} {}", line(requested))],
            OperationTarget::OutsideRoots { requested } => {
                vec![format!("  {kind} {} (outside the workspace)", line(requested))]
            }
            OperationTarget::Command(command) => {
                let mut lines = vec![
                    format!("  run {}", command_line(&terminal::format_typed_command(&command.invocation))),
                    format!("  in {}", line(&command.cwd)),
                ];
                let variable = |(name, value): &(String, String)| {
                    format!("  with {}={}", line(name), command_line(value))
                };
                lines.extend(command.env.iter().map(variable));
                lines
            }
            OperationTarget::Url(url) => vec![format!("  {kind} {}", line(url))],
            OperationTarget::Described(title) => {
                let noun = self
                    .description
                    .as_ref()
                    .map_or(operation_noun(self.operation.kind), |description| description.noun());
                vec![format!("  {noun} in its own words: {}", line(title))]
            }
        }
    }

    /// Describes what [`QuestionItem::lines`] leaves out, if anything: a person who approves it has not seen that
    /// part.
    #[must_use]
    pub fn describe_omission(&self) -> Option<String> {
        if self.description.as_ref().is_some_and(|description| description.is_truncated()) {
            return Some("a part of what the agent tells of it is not shown: it is too long".to_owned());
        }
        let cut = |text: &str| {
            let text = display::collapse_whitespace(text);
            display::escape_line(&text, MAX_COMMAND_BYTES) != display::escape_line(&text, usize::MAX)
        };
        match (&self.operation.target, &self.change) {
            (OperationTarget::Command(command), _)
                if cut(&terminal::format_invocation(&command.invocation)) =>
            {
                Some("a part of the command is not shown: it is too long".to_owned())
            }
            (OperationTarget::Command(command), _) if command.env.iter().any(|(_, value)| cut(value)) => {
                Some("a part of the environment is not shown: it is too long".to_owned())
            }
            (
                OperationTarget::File { requested, .. } | OperationTarget::OutsideRoots { requested },
                Some(change),
            ) => {
                let cut = change.diff_block().omitted_lines;
                (cut > 0).then(|| format!("{cut} lines of the change of {requested} are not shown"))
            }
            _ => None,
        }
    }
}

impl TextChange {
    /// Returns a summary and the patch without its header, safe on any terminal.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let before = self.before.as_deref().map_or("", String::as_str);
        let stat = diff::compute_stat(before, &self.after);
        let head = match &self.before {
            None => format!("  new file, lines: {}", stat.added),
            Some(_) => format!("  lines: {} added, {} removed", stat.added, stat.removed),
        };
        std::iter::once(head).chain(self.diff_block().text.lines().map(|line| format!("  {line}"))).collect()
    }

    fn diff_block(&self) -> EscapedBlock {
        let before = self.before.as_deref().map_or("", String::as_str);
        let side = |text| Some(DiffSide { content: DiffContent::Text(text), mode: 0o644 });
        let patch =
            format_unified_diff(&FileDiff { path: "", before: side(before), after: side(&self.after) }, 3);
        let start = patch.find("@@").unwrap_or(patch.len());
        display::escape_block(&patch[start..], MAX_DIFF_SIZE.0, MAX_DIFF_SIZE.1)
    }
}

fn operation_noun(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Read => "a look",
        OperationKind::Write => "a change",
        OperationKind::Delete => "a deletion",
        OperationKind::Execute => "something that it does by itself,",
        OperationKind::Fetch => "a download",
    }
}

#[cfg(test)]
mod tests;
