//! A model that a session had and that cannot be used now: it says why when it is asked.

use futures_util::stream;

use crate::model::{Model, ModelError, ModelInfo, Reply, Request};

/// A model that cannot be used.
pub(super) struct Unavailable {
    info: ModelInfo,
    why: ModelError,
}

impl Unavailable {
    pub(super) fn new(name: String, why: ModelError) -> Self {
        let title = format!("{name} (not available)");
        let info = ModelInfo { name, title, window: 128_000, images: false, thinking: false, price: None };
        Self { info, why }
    }
}

impl Model for Unavailable {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn ask(&self, _: Request) -> Reply {
        let why = self.why.clone();
        Box::pin(stream::once(async { Err(why) }))
    }
}
