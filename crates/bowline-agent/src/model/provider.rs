//! The providers of models.

use serde::{Deserialize, Serialize};

/// A provider of models over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Anthropic.
    Anthropic,
    /// OpenAI.
    OpenAi,
    /// Google's Gemini.
    Gemini,
    /// Ollama, on this machine unless a base URL says otherwise.
    Ollama,
    /// Any OpenAI-compatible server. It has no default address: a base URL has to be given.
    Compatible,
}

impl Provider {
    /// Every provider, in the order of preference for the default model.
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::OpenAi, Self::Gemini, Self::Ollama, Self::Compatible];

    /// Returns the prefix of its models' names.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Compatible => "compatible",
        }
    }

    /// Returns the provider with this id.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.id() == id)
    }

    /// Returns its display name.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Anthropic => "Anthropic",
            Self::OpenAi => "OpenAI",
            Self::Gemini => "Gemini",
            Self::Ollama => "Ollama",
            Self::Compatible => "an OpenAI-compatible server",
        }
    }

    /// Returns the environment variable for its API key.
    #[must_use]
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Gemini => "GEMINI_API_KEY",
            Self::Ollama => "OLLAMA_API_KEY",
            Self::Compatible => "COMPATIBLE_API_KEY",
        }
    }

    /// Returns the environment variable for its base URL.
    #[must_use]
    pub fn url_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::OpenAi => "OPENAI_BASE_URL",
            Self::Gemini => "GEMINI_BASE_URL",
            Self::Ollama => "OLLAMA_HOST",
            Self::Compatible => "COMPATIBLE_BASE_URL",
        }
    }

    /// Returns its default base URL.
    #[must_use]
    pub fn default_base_url(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("https://api.anthropic.com/v1/"),
            Self::OpenAi => Some("https://api.openai.com/v1/"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta/"),
            Self::Ollama => Some("http://localhost:11434/"),
            Self::Compatible => None,
        }
    }

    /// Returns whether it requires an API key.
    #[must_use]
    pub fn needs_key(self) -> bool {
        match self {
            Self::Anthropic | Self::OpenAi | Self::Gemini => true,
            Self::Ollama | Self::Compatible => false,
        }
    }

    /// Returns whether its models may write tool calls as text.
    #[must_use]
    pub fn may_write_calls_as_text(self) -> bool {
        !self.needs_key()
    }
}
