//! A scripted model server on a local port. It implements the parts of the Gemini API, Anthropic's Messages API and
//! OpenAI's Responses and Chat Completions APIs that agents use.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::background_runtime::BackgroundRuntime;
use crate::scripted_http::HttpExchange;

mod replies;

/// The model's name, for agents that can be configured with one.
pub const MODEL: &str = "scripted";

/// The model's reply to one request.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelReply {
    /// A text, which ends the turn.
    Text(String),
    /// A tool call, whose result comes with the next request.
    Call {
        /// The tool. For OpenAI's Responses API, the part before a dot is the tool's namespace.
        name: String,
        /// The arguments.
        args: Value,
    },
}

impl ModelReply {
    /// Creates a text reply.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// Creates a tool call.
    #[must_use]
    pub fn call(name: &str, args: Value) -> Self {
        Self::Call { name: name.to_owned(), args }
    }
}

/// The server. It runs on a thread of its own, and ends when it is dropped.
#[derive(Debug)]
pub struct ModelServer {
    url: String,
    state: Arc<Mutex<State>>,
    _runtime: BackgroundRuntime,
}

#[derive(Debug)]
struct State {
    script: VecDeque<ModelReply>,
    requests: Vec<Value>,
}

impl ModelServer {
    /// Starts a server that answers one conversation with these replies in turn, and then with `done`.
    ///
    /// # Errors
    /// Fails if no port is available.
    pub async fn start(script: Vec<ModelReply>) -> Result<Self> {
        let runtime = BackgroundRuntime::start()?;
        let listener = runtime.spawn(TcpListener::bind(("127.0.0.1", 0))).await??;
        let url = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(Mutex::new(State { script: script.into(), requests: Vec::new() }));
        let shared_state = state.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared_state = shared_state.clone();
                tokio::spawn(async move {
                    // An agent may drop a connection that it does not need.
                    if let Err(error) = serve_request(stream, &shared_state).await
                        && !error.is::<std::io::Error>()
                    {
                        // The agent fails; the recorded error tells the test why.
                        lock(&shared_state).requests.push(json!({"error": error.to_string()}));
                    }
                });
            }
        });
        Ok(Self { url, state, _runtime: runtime })
    }

    /// Returns the server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Replaces the rest of the script.
    pub fn set_script(&self, script: Vec<ModelReply>) {
        lock(&self.state).script = script.into();
    }

    /// Returns every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        lock(&self.state).requests.clone()
    }

    /// Returns the tool results in the last request of the conversation, as `name: output`.
    #[must_use]
    pub fn tool_results(&self) -> Vec<String> {
        let state = lock(&self.state);
        let contents = state.requests.last().and_then(|request| request["contents"].as_array());
        let parts =
            contents.into_iter().flatten().filter_map(|content| content["parts"].as_array()).flatten();
        let results = parts.filter_map(|part| part.get("functionResponse"));
        let shown = |result: &Value| {
            let response = &result["response"];
            let output = response.get("output").or_else(|| response.get("error")).unwrap_or(response);
            let output = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
            format!("{}: {output}", result["name"].as_str().unwrap_or_default())
        };
        results.map(shown).collect()
    }

    /// Returns the tools offered to the model in the last request of the conversation.
    #[must_use]
    pub fn offered_tools(&self) -> Vec<String> {
        let state = lock(&self.state);
        let tools = state.requests.last().and_then(|request| request["tools"].as_array());
        let declared = tools.into_iter().flatten().flat_map(|tool| match &tool["functionDeclarations"] {
            Value::Array(tools) => tools.iter().collect(),
            _ => vec![tool],
        });
        let at_once = declared.filter(|tool| tool["defer_loading"] != true);
        let names = at_once.filter_map(|tool| tool["name"].as_str().or(tool["function"]["name"].as_str()));
        names.map(str::to_owned).collect()
    }
}

/// Serves one request of one connection.
async fn serve_request(stream: TcpStream, state: &Mutex<State>) -> Result<()> {
    let exchange = HttpExchange::read(stream).await?;
    let body = exchange.json().unwrap_or(Value::Null);
    let (kind, answer) = answer_request(&exchange.path, body, state);
    exchange.respond(200, &[("content-type", kind)], &answer).await
}

/// Returns a response and its content type. Only requests of the conversation consume the script; auxiliary requests,
/// such as which model suits the prompt, get an empty answer.
fn answer_request(path: &str, body: Value, state: &Mutex<State>) -> (&'static str, String) {
    let next = |body: Value| {
        let mut state = lock(state);
        state.requests.push(body);
        let reply = state.script.pop_front().unwrap_or_else(|| ModelReply::text("done"));
        (state.requests.len(), reply)
    };
    let side_reply = || (0, ModelReply::text("{}"));
    if path.contains(":countTokens") {
        ("application/json", json!({"totalTokens": 1}).to_string())
    } else if path.contains("enerateContent") {
        let (_, reply) = if path.contains(":streamGenerateContent") { next(body) } else { side_reply() };
        replies::gemini_reply(&reply, path.contains("alt=sse"))
    } else if path.contains("/messages/count_tokens") {
        ("application/json", json!({"input_tokens": 1}).to_string())
    } else if path.contains("/messages") {
        // A request without tools is for a title or a summary.
        let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let stream = body["stream"] == true;
        let (number, reply) = if has_tools { next(body) } else { side_reply() };
        replies::anthropic_reply(&reply, number, stream)
    } else if path.contains("/responses") {
        // Requests for a title, or for a judgement of the agent's next action, go to another model.
        let (number, reply) = if body["model"] == MODEL { next(body) } else { side_reply() };
        replies::responses_reply(&reply, number)
    } else if path.contains("/chat/completions") {
        let stream = body["stream"] == true;
        // qwen asks its model, instead of its user, whether to block a scripted call.
        let is_judge = body["tools"][0]["function"]["parameters"]["properties"]["shouldBlock"].is_object();
        let (number, reply) = match (stream, is_judge) {
            (true, _) => next(body),
            (false, true) => (0, ModelReply::call("respond_in_schema", json!({"shouldBlock": false}))),
            (false, false) => side_reply(),
        };
        replies::chat_reply(&reply, number, stream)
    } else if path.contains("/small/") {
        // The format of servers for small machines.
        let models = json!({"data": [{"id": MODEL, "meta": {"n_ctx": 8192}}]});
        ("application/json", models.to_string())
    } else {
        ("application/json", "{}".to_owned())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
