//! An agent's description of a tool call: its own text and the tool's input.

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource, ToolCallContent, ToolKind};

use bowline_protocol::accumulator::ToolCallView;
use bowline_text::display;

/// The maximum size of either text, in lines and bytes. A longer one keeps its start and end, and the gap is marked.
const MAX_TEXT_SIZE: (usize, usize) = (500, 64 << 10);

/// An agent's description of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallDescription {
    /// The kind of tool.
    pub kind: ToolKind,
    /// The agent's text.
    pub text: DescriptionText,
    /// The tool's input.
    pub input: DescriptionText,
}

/// A text from an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DescriptionText {
    // Invariant: within `MAX_TEXT_SIZE`, apart from the truncation mark.
    text: String,
    is_truncated: bool,
}

impl ToolCallDescription {
    /// Extracts the description from a tool call.
    #[must_use]
    pub fn from_tool_call(call: &ToolCallView) -> Self {
        let texts: Vec<String> = call.content.iter().filter_map(content_text).collect();
        let input = call.raw_input.as_deref().map(|input| format!("{input:#}")).unwrap_or_default();
        Self {
            kind: call.kind,
            text: DescriptionText::new(&texts.join("\n")),
            input: DescriptionText::new(&input),
        }
    }

    /// Returns a noun phrase for the kind of tool.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self.kind {
            ToolKind::Read => "a look",
            ToolKind::Search => "a search",
            ToolKind::Edit => "a change",
            ToolKind::Delete => "a deletion",
            ToolKind::Move => "a move",
            ToolKind::Execute => "a command",
            ToolKind::Think => "a thought",
            ToolKind::Fetch => "a download",
            ToolKind::SwitchMode => "a change of its mode",
            // Also covers kinds of a later protocol.
            _ => "a use of a tool",
        }
    }

    /// Returns whether some of it is left out.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.text.is_truncated || self.input.is_truncated
    }

    /// Returns it line by line, safe on any terminal, each line behind a bar that marks it as the agent's.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (label, part) in [("says", &self.text), ("with", &self.input)] {
            for (at, line) in part.lines().enumerate() {
                lines.push(format!("  {:<4} │ {line}", if at == 0 { label } else { "" }));
            }
        }
        lines
    }
}

impl DescriptionText {
    fn new(text: &str) -> Self {
        let text = display::collapse_whitespace(text.trim_end());
        let (max_lines, max_bytes) = MAX_TEXT_SIZE;
        let mut kept = text.clone().into_owned();
        if kept.len() > max_bytes {
            let start = kept.floor_char_boundary(max_bytes / 2);
            let end = kept.ceil_char_boundary(kept.len() - max_bytes / 2);
            kept = format!("{}\n…[{} more bytes]…\n{}", &kept[..start], end - start, &kept[end..]);
        }
        let lines: Vec<&str> = kept.split('\n').collect();
        if lines.len() > max_lines {
            let (start, end) = (max_lines / 2, lines.len() - max_lines / 2);
            let mark = format!("…[{} more lines]…", end - start);
            kept = [&lines[..start], &[mark.as_str()], &lines[end..]].concat().join("\n");
        }
        let is_truncated = kept != text;
        Self { text: kept, is_truncated }
    }

    /// Returns it line by line, safe on any terminal; no lines if it is empty.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let lines = self.text.split('\n').filter(|_| !self.text.is_empty());
        lines.map(|line| display::escape_line(line, usize::MAX))
    }
}

/// Returns the text of a content block; `None` for content that is shown as an operation.
fn content_text(content: &ToolCallContent) -> Option<String> {
    let ToolCallContent::Content(content) = content else { return None };
    Some(match &content.content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(_) => "[an image]".to_owned(),
        ContentBlock::Audio(_) => "[a sound]".to_owned(),
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => format!("{}:\n{}", text.uri, text.text),
            EmbeddedResourceResource::BlobResourceContents(blob) => format!("[{}]", blob.uri),
            _ => "[something that is not known here]".to_owned(),
        },
        _ => "[something that is not known here]".to_owned(),
    })
}
