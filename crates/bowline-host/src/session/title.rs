//! The title of a turn: what it was asked to do.

use bowline_state::schema::v1::ContentBlock;

use super::Held;

impl Held {
    /// Keeps what a turn is asked to do as its title.
    pub(super) fn title_turn(&self, turn: u64, prompt: &[ContentBlock]) {
        let text = prompt.iter().find_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        if let Some(text) = text {
            self.shared.workspace.record_turn_title(self.name(), turn, text);
        }
    }
}
