//! Home directories and environments for third-party agents, set up so that the agents contact only the test's model
//! server.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::model_server::MODEL;

/// The environment variables that an agent is started with.
pub type EnvVars = Vec<(&'static str, String)>;

/// Prepares a home for gemini-cli.
///
/// # Errors
/// Fails if the home cannot be written.
pub fn prepare_gemini(home: &Path, model: &str) -> Result<EnvVars> {
    let settings =
        json!({"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": false}});
    write_file(&home.join(".gemini"), "settings.json", &settings.to_string())?;
    Ok(vec![("GEMINI_API_KEY", "x".to_owned()), ("GOOGLE_GEMINI_BASE_URL", model.to_owned())])
}

/// Prepares a home for opencode, configured to ask before it edits or runs anything.
///
/// # Errors
/// Fails if the home cannot be written.
pub fn prepare_opencode(home: &Path, model: &str) -> Result<EnvVars> {
    let google = json!({"options": {"baseURL": format!("{model}/v1beta"), "apiKey": "x"}});
    let settings = json!({
        "model": "google/gemini-2.5-flash", "autoupdate": false, "share": "disabled",
        "permission": {"edit": "ask", "bash": "ask"},
        // Otherwise it makes an extra request to the model for a title.
        "agent": {"title": {"disable": true}},
        "provider": {"google": google},
    });
    write_file(&home.join(".config/opencode"), "opencode.json", &settings.to_string())?;
    let alone = ["OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD"];
    Ok(alone.map(|name| (name, "1".to_owned())).to_vec())
}

/// Returns the variables for claude-agent-acp, which needs no files in its home.
#[must_use]
pub fn claude_env(model: &str) -> EnvVars {
    vec![
        ("ANTHROPIC_BASE_URL", model.to_owned()),
        ("ANTHROPIC_API_KEY", "x".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        // Otherwise it refuses some of its modes to root, and tests in containers run as root.
        ("IS_SANDBOX", "1".to_owned()),
    ]
}

/// Prepares a home for codex-acp, configured to ask the user before each change; by default it asks a model.
///
/// # Errors
/// Fails if the home cannot be written.
pub fn prepare_codex(home: &Path, model: &str) -> Result<EnvVars> {
    let settings = format!(
        "model = \"{MODEL}\"\nmodel_provider = \"test\"\n\n[model_providers.test]\nname = \"test\"\n\
         base_url = \"{model}/v1\"\nwire_api = \"responses\"\nenv_key = \"TEST_KEY\"\n"
    );
    write_file(&home.join(".codex"), "config.toml", &settings)?;
    Ok(vec![("TEST_KEY", "x".to_owned()), ("INITIAL_AGENT_MODE", "workspace-write".to_owned())])
}

/// Prepares a home for qwen-code.
///
/// # Errors
/// Fails if the home cannot be written.
pub fn prepare_qwen(home: &Path, model: &str) -> Result<EnvVars> {
    let settings = json!({
        "security": {"auth": {"selectedType": "openai"}}, "telemetry": {"enabled": false},
        // Otherwise it asks the model after each turn for memories and for follow-up suggestions.
        "memory": {"enableManagedAutoMemory": false, "enableManagedAutoDream": false},
        "ui": {"enableFollowupSuggestions": false},
    });
    write_file(&home.join(".qwen"), "settings.json", &settings.to_string())?;
    Ok(vec![
        ("OPENAI_API_KEY", "x".to_owned()),
        ("OPENAI_BASE_URL", format!("{model}/v1")),
        ("OPENAI_MODEL", MODEL.to_owned()),
    ])
}

/// Returns the variables for kimi-code, which needs no files in its home.
#[must_use]
pub fn kimi_env(model: &str) -> EnvVars {
    vec![
        ("KIMI_MODEL_NAME", MODEL.to_owned()),
        ("KIMI_MODEL_PROVIDER_TYPE", "openai".to_owned()),
        ("KIMI_MODEL_BASE_URL", format!("{model}/v1")),
        ("KIMI_MODEL_API_KEY", "x".to_owned()),
        ("KIMI_MODEL_MAX_CONTEXT_SIZE", "100000".to_owned()),
        ("KIMI_CODE_NO_AUTO_UPDATE", "1".to_owned()),
    ]
}

/// Prepares a home for vibe.
///
/// # Errors
/// Fails if the home cannot be written.
pub fn prepare_vibe(home: &Path, model: &str) -> Result<EnvVars> {
    let settings = format!(
        "active_model = \"{MODEL}\"\nenable_telemetry = false\nenable_update_checks = false\n\
         enable_auto_update = false\nenable_connectors = false\n\n[experiments]\nenable = false\n\n\
         # Otherwise it makes an extra request to the model for a title.\n\
         [session_logging]\ngenerate_titles = false\n\n\
         [[providers]]\nname = \"test\"\napi_base = \"{model}/v1\"\n\n\
         [[models]]\nname = \"{MODEL}\"\nprovider = \"test\"\nalias = \"{MODEL}\"\n"
    );
    write_file(&home.join(".vibe"), "config.toml", &settings)?;
    Ok(EnvVars::new())
}

fn write_file(directory: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    Ok(std::fs::write(directory.join(name), text)?)
}
