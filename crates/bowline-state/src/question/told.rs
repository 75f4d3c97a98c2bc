//! What an agent tells of a tool call beside what would be done: its own text, and what the tool is given.

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource, ToolCallContent, ToolKind};

use crate::accumulator::ToolCallView;
use crate::display;

/// As much of either is kept: lines, and bytes. Of more the start and the end are, and that there was more is told.
const MAX_PART: (usize, usize) = (500, 64 << 10);

/// What an agent tells of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What sort of tool it is.
    pub kind: ToolKind,
    /// What it says.
    pub text: Part,
    /// What the tool is given.
    pub input: Part,
}

/// A text of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    // Invariant: within `MAX_PART`, but for the mark that something is missing.
    text: String,
    cut: bool,
}

impl Told {
    /// Returns what a call tells.
    #[must_use]
    pub fn of(call: &ToolCallView) -> Self {
        let texts: Vec<String> = call.content.iter().filter_map(text).collect();
        let input = call.raw_input.as_deref().map(|input| format!("{input:#}")).unwrap_or_default();
        Self { kind: call.kind, text: Part::new(&texts.join("\n")), input: Part::new(&input) }
    }

    /// Returns what it is, as a noun.
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
            // Also what a later protocol knows.
            _ => "a use of a tool",
        }
    }

    /// Says whether some of it is left out.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.text.cut || self.input.cut
    }

    /// Returns it line by line, safe on any terminal, each behind a bar: none looks as if it were not the agent's.
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

impl Part {
    fn new(text: &str) -> Self {
        let text = display::shortened(text.trim_end());
        let (max_lines, max_bytes) = MAX_PART;
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
        let cut = kept != text;
        Self { text: kept, cut }
    }

    /// Returns it line by line, safe on any terminal; none if there is nothing.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let lines = self.text.split('\n').filter(|_| !self.text.is_empty());
        lines.map(|line| display::line(line, usize::MAX))
    }
}

/// Returns the text of a part of a call's content; none for what is shown as what would be done.
fn text(content: &ToolCallContent) -> Option<String> {
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
