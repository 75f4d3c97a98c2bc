//! The model of a restored session that is no longer available: it fails with the reason.

use futures_util::stream;

use crate::model::{Model, ModelError, ModelInfo, ModelRequest, ReplyStream};

/// A model that is not available.
pub(super) struct UnavailableModel {
    info: ModelInfo,
    error: ModelError,
}

impl UnavailableModel {
    pub(super) fn new(name: String, error: ModelError) -> Self {
        let title = format!("{name} (not available)");
        let info = ModelInfo {
            name,
            title,
            context_window: 128_000,
            supports_images: false,
            supports_thinking: false,
            price: None,
        };
        Self { info, error }
    }
}

impl Model for UnavailableModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn stream_reply(&self, _: ModelRequest) -> ReplyStream {
        let error = self.error.clone();
        Box::pin(stream::once(async { Err(error) }))
    }
}
