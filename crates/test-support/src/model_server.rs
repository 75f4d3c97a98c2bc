//! A model that says what a test wants, on a port of this machine: behind as much of the Gemini API, of Anthropic's Messages
//! and of OpenAI's Responses and chat completions as agents call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

mod speech;

/// No request of a test is longer, in bytes; nor is a line of its head.
const MAX_BODY: u64 = 16 << 20;
const MAX_LINE: u64 = 64 << 10;

/// What it is called where an agent can be told.
pub const MODEL: &str = "scripted";

/// What the model says when it is asked once.
#[derive(Debug, Clone, PartialEq)]
pub enum Say {
    /// Some text, which ends the turn.
    Text(String),
    /// That a tool should be used; the result comes with the next request.
    Call {
        /// The tool. In OpenAI's Responses what is before a dot is the tool's namespace.
        name: String,
        /// What with.
        args: Value,
    },
}

impl Say {
    /// Returns text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// Returns the use of a tool.
    #[must_use]
    pub fn call(name: &str, args: Value) -> Self {
        Self::Call { name: name.to_owned(), args }
    }
}

/// The server. It ends when it is dropped.
#[derive(Debug)]
pub struct ModelServer {
    url: String,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    script: VecDeque<Say>,
    heard: Vec<Value>,
}

impl ModelServer {
    /// Starts a server that answers one conversation with these words in turn, and with `done` when there are none left.
    ///
    /// # Errors
    /// Fails if there is no port to be had.
    pub async fn start(script: Vec<Say>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(Mutex::new(State { script: script.into(), heard: Vec::new() }));
        let its = state.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let its = its.clone();
                tokio::spawn(async move {
                    // An agent may drop a connection that it does not need.
                    if let Err(error) = serve(stream, &its).await
                        && !error.is::<std::io::Error>()
                    {
                        // The agent fails by it; a test that wonders why finds it here.
                        lock(&its).heard.push(json!({"error": error.to_string()}));
                    }
                });
            }
        });
        Ok(Self { url, state, serving })
    }

    /// Returns where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Says these words from now on, in place of what is left of the script.
    pub fn go_on_with(&self, script: Vec<Say>) {
        lock(&self.state).script = script.into();
    }

    /// Returns every request so far.
    #[must_use]
    pub fn heard(&self) -> Vec<Value> {
        lock(&self.state).heard.clone()
    }

    /// Returns what the tools gave, as the model was told in the last request of the conversation: `name: output`.
    #[must_use]
    pub fn tool_results(&self) -> Vec<String> {
        let state = lock(&self.state);
        let contents = state.heard.last().and_then(|request| request["contents"].as_array());
        let parts =
            contents.into_iter().flatten().filter_map(|content| content["parts"].as_array()).flatten();
        let results = parts.filter_map(|part| part.get("functionResponse"));
        let shown = |result: &Value| {
            let response = &result["response"];
            let said = response.get("output").or_else(|| response.get("error")).unwrap_or(response);
            let said = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
            format!("{}: {said}", result["name"].as_str().unwrap_or_default())
        };
        results.map(shown).collect()
    }

    /// Returns the tools that the model could use at once, as it was told in the last request of the conversation.
    #[must_use]
    pub fn tools(&self) -> Vec<String> {
        let state = lock(&self.state);
        let tools = state.heard.last().and_then(|request| request["tools"].as_array());
        let declared = tools.into_iter().flatten().flat_map(|tool| match &tool["functionDeclarations"] {
            Value::Array(tools) => tools.iter().collect(),
            _ => vec![tool],
        });
        let at_once = declared.filter(|tool| tool["defer_loading"] != true);
        let names = at_once.filter_map(|tool| tool["name"].as_str().or(tool["function"]["name"].as_str()));
        names.map(str::to_owned).collect()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves one request of one connection.
async fn serve(stream: TcpStream, state: &Mutex<State>) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let request = line(&mut reader).await?;
    let path = request.split(' ').nth(1).context("no path")?.to_owned();
    let mut length = 0;
    loop {
        let header = line(&mut reader).await?;
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    ensure!(length <= MAX_BODY, "{length} bytes are too many");
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body).await?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (kind, answer) = answer(&path, body, state);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    writer.write_all(head.as_bytes()).await?;
    writer.write_all(answer.as_bytes()).await?;
    Ok(writer.shutdown().await?)
}

async fn line(reader: &mut (impl AsyncBufReadExt + Unpin)) -> Result<String> {
    let mut line = String::new();
    reader.take(MAX_LINE).read_line(&mut line).await?;
    ensure!(line.ends_with('\n'), "the request was cut");
    Ok(line.trim_end().to_owned())
}

/// Returns an answer with the type of its content. Only a conversation takes from the script; what agents ask beside it,
/// such as which model suits the prompt, is answered with nothing of use.
fn answer(path: &str, body: Value, state: &Mutex<State>) -> (&'static str, String) {
    let next = |body: Value| {
        let mut state = lock(state);
        state.heard.push(body);
        let said = state.script.pop_front().unwrap_or_else(|| Say::text("done"));
        (state.heard.len(), said)
    };
    let beside = || (0, Say::text("{}"));
    if path.contains(":countTokens") {
        ("application/json", json!({"totalTokens": 1}).to_string())
    } else if path.contains("enerateContent") {
        let (_, said) = if path.contains(":streamGenerateContent") { next(body) } else { beside() };
        speech::gemini(&said, path.contains("alt=sse"))
    } else if path.contains("/messages/count_tokens") {
        ("application/json", json!({"input_tokens": 1}).to_string())
    } else if path.contains("/messages") {
        // Without tools it is a title or a summary that is asked for.
        let talks = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let stream = body["stream"] == true;
        let (number, said) = if talks { next(body) } else { beside() };
        speech::anthropic(&said, number, stream)
    } else if path.contains("/responses") {
        // Another model is asked for a title, or what it thinks of what the agent is about to do.
        let (number, said) = if body["model"] == MODEL { next(body) } else { beside() };
        speech::openai(&said, number)
    } else if path.contains("/chat/completions") {
        let stream = body["stream"] == true;
        // qwen asks its model whether to block a call of the script, in the place of its user.
        let judges = body["tools"][0]["function"]["parameters"]["properties"]["shouldBlock"].is_object();
        let (number, said) = match (stream, judges) {
            (true, _) => next(body),
            (false, true) => (0, Say::call("respond_in_schema", json!({"shouldBlock": false}))),
            (false, false) => beside(),
        };
        speech::chat(&said, number, stream)
    } else if path.contains("/small/") {
        // What servers for small machines say of theirs.
        let models = json!({"data": [{"id": MODEL, "meta": {"n_ctx": 8192}}]});
        ("application/json", models.to_string())
    } else {
        ("application/json", "{}".to_owned())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
