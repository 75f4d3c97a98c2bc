//! What a server says of a model that nothing else is known of.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;
use tokio::time::timeout;

use super::Remote;
use crate::model::ModelInfo;
use crate::model::catalogue::DEFAULT_WINDOW;
use crate::model::provider::Provider;

/// How long a server may take. One that takes longer is asked again another time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most that it may say, in bytes.
const MAX_ANSWER: usize = 4 << 20;

/// Windows that are smaller are no windows, in tokens.
const MIN_WINDOW: u64 = 1024;

impl Remote {
    /// Returns what is known of the model, with the window that its server says it has, if nobody has said another.
    ///
    /// # Errors
    /// Fails if the server cannot be asked now.
    pub(super) async fn ask_window(&self) -> Result<ModelInfo, Unasked> {
        let info = self.info.clone();
        if self.provider != Provider::Compatible || info.window != DEFAULT_WINDOW {
            return Ok(info);
        }
        let said = timeout(PATIENCE, self.models()).await.map_err(|_| Unasked)??;
        Ok(match window(&said, &self.name) {
            Some(window) => ModelInfo { window, ..info },
            None => info,
        })
    }

    async fn models(&self) -> Result<Value, Unasked> {
        let mut request = self.client.get(self.base.join("models").map_err(|_| Unasked)?);
        if let Some((key, _)) = &self.key {
            request = request.bearer_auth(key.reveal());
        }
        let answer = request.send().await.map_err(|_| Unasked)?;
        if answer.status().is_server_error() {
            // It may still load the model.
            return Err(Unasked);
        }
        let said = body(answer).await.ok_or(Unasked)?;
        Ok(serde_json::from_slice(&said).unwrap_or_default())
    }
}

/// The server could not be asked.
pub(super) struct Unasked;

async fn body(mut answer: Response) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = answer.chunk().await.ok()? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_ANSWER {
            return None;
        }
    }
    Some(bytes)
}

/// Returns the window of a model, in tokens, as the servers that people run say it: llama.cpp, vLLM, LM Studio and others.
fn window(said: &Value, name: &str) -> Option<u64> {
    let models = said["data"].as_array()?;
    let is_it = |model: &&Value| {
        let aliases = model["aliases"].as_array().into_iter().flatten();
        aliases.chain([&model["id"]]).any(|id| id.as_str() == Some(name))
    };
    // Some serve one model, whatever it is asked for by.
    let only = || models.first().filter(|_| models.len() == 1);
    let model = models.iter().find(is_it).or_else(only)?;
    let places =
        ["/meta/n_ctx", "/max_model_len", "/loaded_context_length", "/context_window", "/context_length"];
    let mut told = places.iter().filter_map(|place| model.pointer(place)?.as_u64());
    told.find(|window| *window >= MIN_WINDOW)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::window;

    fn check(said: Value, expected: Option<u64>) {
        assert_eq!(window(&said, "mine"), expected, "{said}");
    }

    #[test]
    fn servers_say_the_window_in_their_own_ways() {
        let model = |model: Value| json!({ "data": [model] });
        check(model(json!({ "id": "mine", "meta": { "n_ctx": 16384, "n_ctx_train": 32768 } })), Some(16_384));
        check(model(json!({ "id": "mine", "max_model_len": 8192 })), Some(8192));
        check(
            model(json!({ "id": "mine", "loaded_context_length": 4096, "max_context_length": 9000 })),
            Some(4096),
        );
        check(model(json!({ "id": "mine", "context_window": 0, "context_length": 9000 })), Some(9000));
        // What it might have is not what it has.
        check(
            model(json!({ "id": "mine", "max_context_length": 9000, "meta": { "n_ctx_train": 9000 } })),
            None,
        );
        check(model(json!({ "id": "mine", "max_model_len": "8192" })), None);
    }

    #[test]
    fn a_model_is_found_by_its_names_or_because_there_is_no_other() {
        let other = json!({ "id": "other", "max_model_len": 4096 });
        check(json!({ "data": [other, { "id": "mine", "max_model_len": 8192 }] }), Some(8192));
        check(
            json!({ "data": [other, { "id": "x", "aliases": ["mine"], "max_model_len": 8192 }] }),
            Some(8192),
        );
        check(json!({ "data": [other] }), Some(4096));
        check(json!({ "data": [other, other] }), None);
        check(json!({ "data": [] }), None);
        check(json!({ "models": 1 }), None);
    }
}
