//! The context window of a model, as reported by self-hosted servers.

use std::time::Duration;

use serde_json::{Value, json};

use super::ModelInfo;
use super::catalogue::{DEFAULT_WINDOW, OLLAMA_WINDOW};
use super::provider::Provider;

/// The timeout of the query. A slower server is asked again later.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Smaller values are not plausible, in tokens.
const MIN_WINDOW: u64 = 1024;

/// The server cannot report the window yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WindowUnknown;

/// Returns the path of the query for a model's window, below the base URL; `None` if the window is known.
pub(super) fn query_path(provider: Provider, info: &ModelInfo) -> Option<&'static str> {
    match provider {
        Provider::Compatible => (info.context_window == DEFAULT_WINDOW).then_some("models"),
        // Chat completions cannot set a window for Ollama: it uses its own.
        Provider::Ollama => (info.context_window == OLLAMA_WINDOW).then_some("api/ps"),
        Provider::Anthropic | Provider::OpenAi | Provider::Gemini => None,
    }
}

/// Returns the path and the body of a request that loads a model, for a server that knows the window only then. The
/// first request of a conversation would load it anyway.
pub(super) fn load_request(provider: Provider, name: &str) -> Option<(&'static str, Value)> {
    (provider == Provider::Ollama).then(|| ("api/generate", json!({ "model": name })))
}

/// Returns the context window in a server's answer, in tokens. `None` if the answer does not contain it.
pub(super) fn parse_window(
    provider: Provider,
    answer: &Value,
    name: &str,
) -> Result<Option<u64>, WindowUnknown> {
    match provider {
        Provider::Ollama => parse_ollama_window(answer, name),
        _ => Ok(parse_listed_window(answer, name)),
    }
}

/// Finds the window in Ollama's answer, which covers only loaded models.
fn parse_ollama_window(answer: &Value, name: &str) -> Result<Option<u64>, WindowUnknown> {
    let models = answer["models"].as_array().ok_or(WindowUnknown)?;
    let is_model = |model: &&Value| {
        let full_name = model["name"].as_str().unwrap_or_default();
        full_name == name || full_name.strip_suffix(":latest") == Some(name)
    };
    let model = models.iter().find(is_model).ok_or(WindowUnknown)?;
    Ok(model["context_length"].as_u64().filter(|window| *window >= MIN_WINDOW))
}

/// Finds the window in the answer of llama.cpp, vLLM, LM Studio and others.
fn parse_listed_window(answer: &Value, name: &str) -> Option<u64> {
    let models = answer["data"].as_array()?;
    let is_model = |model: &&Value| {
        let aliases = model["aliases"].as_array().into_iter().flatten();
        aliases.chain([&model["id"]]).any(|id| id.as_str() == Some(name))
    };
    // Some servers have one model, and serve it under any name.
    let only = || models.first().filter(|_| models.len() == 1);
    let model = models.iter().find(is_model).or_else(only)?;
    let pointers =
        ["/meta/n_ctx", "/max_model_len", "/loaded_context_length", "/context_window", "/context_length"];
    let mut windows = pointers.iter().filter_map(|pointer| model.pointer(pointer)?.as_u64());
    windows.find(|window| *window >= MIN_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: Value, expected: Option<u64>) {
        assert_eq!(parse_window(Provider::Compatible, &answer, "mine"), Ok(expected), "{answer}");
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
        // A model's possible window is not its actual one.
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

    #[test]
    fn ollama_says_the_window_of_models_that_are_loaded() {
        let loaded =
            |name: &str, window: Value| json!({ "models": [{ "name": name, "context_length": window }] });
        for (answer, expected) in [
            (loaded("mine", json!(4096)), Ok(Some(4096))),
            (loaded("mine:latest", json!(32_768)), Ok(Some(32_768))),
            (loaded("mine:8b", json!(4096)), Err(WindowUnknown)),
            // Versions that do not report it.
            (loaded("mine", Value::Null), Ok(None)),
            (json!({ "models": [] }), Err(WindowUnknown)),
            (json!("no"), Err(WindowUnknown)),
        ] {
            assert_eq!(parse_window(Provider::Ollama, &answer, "mine"), expected, "{answer}");
        }
    }
}
