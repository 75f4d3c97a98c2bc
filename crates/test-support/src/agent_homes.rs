//! What agents of others find in their homes and around them, so that they ask a model of the test and nobody else.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::model_server::MODEL;

/// The variables that an agent is started with.
pub type Variables = Vec<(&'static str, String)>;

/// Prepares a home for gemini-cli.
///
/// # Errors
/// Fails if it cannot be written.
pub fn gemini(home: &Path, model: &str) -> Result<Variables> {
    let settings =
        json!({"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": false}});
    put(&home.join(".gemini"), "settings.json", &settings.to_string())?;
    Ok(vec![("GEMINI_API_KEY", "x".to_owned()), ("GOOGLE_GEMINI_BASE_URL", model.to_owned())])
}

/// Prepares a home for opencode, which asks before it edits or runs anything.
///
/// # Errors
/// Fails if it cannot be written.
pub fn opencode(home: &Path, model: &str) -> Result<Variables> {
    let google = json!({"options": {"baseURL": format!("{model}/v1beta"), "apiKey": "x"}});
    let settings = json!({
        "model": "google/gemini-2.5-flash", "autoupdate": false, "share": "disabled",
        "permission": {"edit": "ask", "bash": "ask"},
        // Else it asks the model for a title beside the conversation.
        "agent": {"title": {"disable": true}},
        "provider": {"google": google},
    });
    put(&home.join(".config/opencode"), "opencode.json", &settings.to_string())?;
    let alone = ["OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD"];
    Ok(alone.map(|name| (name, "1".to_owned())).to_vec())
}

/// Returns the variables for claude-agent-acp, which needs nothing in its home.
#[must_use]
pub fn claude(model: &str) -> Variables {
    vec![
        ("ANTHROPIC_BASE_URL", model.to_owned()),
        ("ANTHROPIC_API_KEY", "x".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        // Else it refuses some of its modes to root, which tests in containers are run as.
        ("IS_SANDBOX", "1".to_owned()),
    ]
}

/// Prepares a home for codex-acp, which asks the user before it changes anything; by itself it asks a model.
///
/// # Errors
/// Fails if it cannot be written.
pub fn codex(home: &Path, model: &str) -> Result<Variables> {
    let settings = format!(
        "model = \"{MODEL}\"\nmodel_provider = \"test\"\n\n[model_providers.test]\nname = \"test\"\n\
         base_url = \"{model}/v1\"\nwire_api = \"responses\"\nenv_key = \"TEST_KEY\"\n"
    );
    put(&home.join(".codex"), "config.toml", &settings)?;
    Ok(vec![("TEST_KEY", "x".to_owned()), ("INITIAL_AGENT_MODE", "workspace-write".to_owned())])
}

/// Prepares a home for qwen-code.
///
/// # Errors
/// Fails if it cannot be written.
pub fn qwen(home: &Path, model: &str) -> Result<Variables> {
    let settings = json!({
        "security": {"auth": {"selectedType": "openai"}}, "telemetry": {"enabled": false},
        // Else it asks the model after a turn what to remember of it, and what the user might say next.
        "memory": {"enableManagedAutoMemory": false, "enableManagedAutoDream": false},
        "ui": {"enableFollowupSuggestions": false},
    });
    put(&home.join(".qwen"), "settings.json", &settings.to_string())?;
    Ok(vec![
        ("OPENAI_API_KEY", "x".to_owned()),
        ("OPENAI_BASE_URL", format!("{model}/v1")),
        ("OPENAI_MODEL", MODEL.to_owned()),
    ])
}

/// Returns the variables for kimi-code, which needs nothing in its home.
#[must_use]
pub fn kimi(model: &str) -> Variables {
    vec![
        ("KIMI_MODEL_NAME", MODEL.to_owned()),
        ("KIMI_MODEL_PROVIDER_TYPE", "openai".to_owned()),
        ("KIMI_MODEL_BASE_URL", format!("{model}/v1")),
        ("KIMI_MODEL_API_KEY", "x".to_owned()),
        ("KIMI_MODEL_MAX_CONTEXT_SIZE", "100000".to_owned()),
        ("KIMI_CODE_NO_AUTO_UPDATE", "1".to_owned()),
    ]
}

fn put(directory: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    Ok(std::fs::write(directory.join(name), text)?)
}
