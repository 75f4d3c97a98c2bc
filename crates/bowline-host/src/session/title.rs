//! The title of a turn, taken from its prompt.

use bowline_protocol::schema::v1::ContentBlock;

use super::SessionInner;

impl SessionInner {
    /// Records the prompt as the title of a turn.
    pub(super) fn record_turn_title(&self, turn: u64, prompt: &[ContentBlock]) {
        let text = prompt.iter().find_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        if let Some(text) = text {
            self.host.workspace.record_turn_title(self.name(), turn, text);
        }
    }
}
