//! Reading a reply: from a provider's events to those of a model.

use std::collections::HashSet;

use bowline_conversation::conversation::{ConversationMessage, TokenUsage, ToolUse, ToolUseInput};
use bowline_conversation::retry::{self, RequestFailure};
use bowline_conversation::text_tool_calls::{TextToolCall, ToolCallExtractor};
use bowline_conversation::tool_call_assembler::{ToolCallAssembler, ToolCallDelta, unique_call_id};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::transport::EventStream;
use super::{anthropic, gemini, openai};
use crate::model::endpoint::EndpointError;
use crate::model::http_clients::Timeouts;
use crate::model::provider::Provider;
use crate::model::reply_sender::ReplySender;
use crate::model::{ModelRequest, ReplyEvent, ReplyStop, tools_as_text};

/// The content of a provider's event, in any wire format.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReplyPiece {
    Text(String),
    Thought(String),
    /// The signature of the preceding thought, or the whole of a hidden one.
    Signature(String),
    Call(ToolCallDelta),
    Usage(TokenUsage),
    /// The provider's reason for the end of the reply.
    Stop(String),
    /// The reply is complete. In some formats calls can be left open.
    End {
        has_open_calls: bool,
    },
}

impl ReplyPiece {
    /// Returns whether it is empty text.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) | Self::Thought(text) if text.is_empty())
    }
}

/// Returns a string in an event, or an empty one.
pub(super) fn string_at(event: &Value, place: &str) -> String {
    event.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A reply being read.
#[derive(Debug)]
pub(super) struct ReplyReader<'v> {
    provider: Provider,
    anthropic: anthropic::EventReader,
    calls: ToolCallAssembler,
    usage: Option<TokenUsage>,
    stop_reason: Option<String>,
    // Holds back text that may be a call, for models that write calls as text.
    call_extractor: Option<ToolCallExtractor>,
    tools_as_text: bool,
    // The ids of calls in the conversation.
    used_call_ids: HashSet<String>,
    sender: &'v mut ReplySender,
    /// Whether any of the reply was sent on.
    pub(super) has_output: bool,
}

impl<'v> ReplyReader<'v> {
    /// Prepares to read the reply to a request.
    pub(super) fn new(provider: Provider, request: &ModelRequest, voice: &'v mut ReplySender) -> Self {
        let taken =
            request.messages.iter().flat_map(ConversationMessage::tool_uses).map(|call| call.id.clone());
        Self {
            provider,
            anthropic: anthropic::EventReader::default(),
            calls: ToolCallAssembler::default(),
            usage: None,
            stop_reason: None,
            call_extractor: tools_as_text::new_call_extractor(provider, request),
            tools_as_text: request.tools_as_text,
            used_call_ids: taken.collect(),
            sender: voice,
            has_output: false,
        }
    }

    /// Reads the reply to its end, with separate timeouts before and after its first piece.
    pub(super) async fn read(
        &mut self,
        events: &mut EventStream,
        first: Timeouts,
        usual: Timeouts,
    ) -> Result<(), EndpointError> {
        let (mut limits, mut last) = (first, Instant::now());
        loop {
            let Timeouts { idle, silence, .. } = limits;
            let late = |_| {
                EndpointError::new(
                    RequestFailure::TimedOut,
                    format!("nothing of the reply came for {silence:?}"),
                )
            };
            let event = timeout_at(last + silence, events.next(idle)).await.map_err(late)??;
            let pieces = match event {
                Some((kind, data)) => self.parse_event(kind.as_deref(), &data)?,
                None if self.provider == Provider::Anthropic => return Err(cut_short_error()),
                // Some servers omit the end marker, but send a reason.
                None => vec![ReplyPiece::End { has_open_calls: false }],
            };
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                (limits, last) = (usual, Instant::now());
                if let Some(stop) = self.handle_piece(piece).await? {
                    self.finish(stop).await;
                    return Ok(());
                }
            }
        }
    }

    /// Parses an event.
    fn parse_event(&mut self, kind: Option<&str>, data: &str) -> Result<Vec<ReplyPiece>, EndpointError> {
        if data.trim() == openai::DONE_MARKER {
            return Ok(vec![ReplyPiece::End { has_open_calls: false }]);
        }
        let event: Value = match serde_json::from_str(data) {
            Ok(event) => event,
            Err(_) if kind == Some("error") => data.into(),
            Err(error) => return Err(EndpointError::new(RequestFailure::Unreadable, error.to_string())),
        };
        if kind == Some("error") || event.get("error").is_some_and(|error| !error.is_null()) {
            return Err(EndpointError::new(
                retry::classify_error_event(&event.to_string()),
                retry::error_message(data),
            ));
        }
        Ok(match self.provider {
            Provider::Anthropic => {
                let own = event.get("type").and_then(Value::as_str);
                self.anthropic.read(own.or(kind).unwrap_or_default(), &event)
            }
            Provider::Gemini => gemini::read_event(&event),
            Provider::OpenAi | Provider::Ollama | Provider::Compatible => openai::read_event(&event),
        })
    }

    /// Handles a piece; returns how the reply ended, if it did.
    async fn handle_piece(&mut self, piece: ReplyPiece) -> Result<Option<ReplyStop>, EndpointError> {
        self.has_output |= matches!(piece, ReplyPiece::Thought(_) | ReplyPiece::Signature(_));
        match piece {
            ReplyPiece::Text(text) => {
                let text = match &mut self.call_extractor {
                    Some(sieve) => sieve.push(&text),
                    None => text,
                };
                self.has_output |= !text.is_empty();
                self.sender.send_text(text).await;
                // A model that invents the results of its calls may continue for minutes.
                let is_over = self.tools_as_text
                    && self.call_extractor.as_ref().is_some_and(ToolCallExtractor::is_finished);
                return Ok(is_over.then_some(ReplyStop::Done));
            }
            ReplyPiece::Thought(text) => {
                self.sender.send(ReplyEvent::Thought { text, signature: None }).await
            }
            ReplyPiece::Signature(signature) => {
                let (text, signature) = (String::new(), Some(signature));
                self.sender.send(ReplyEvent::Thought { text, signature }).await;
            }
            ReplyPiece::Call(piece) => {
                let added = self.calls.add_delta(piece);
                added.map_err(|error| EndpointError::new(RequestFailure::Unusable, error.to_string()))?;
            }
            ReplyPiece::Usage(usage) => self.usage = Some(usage),
            ReplyPiece::Stop(reason) => self.stop_reason = Some(reason),
            ReplyPiece::End { has_open_calls } => {
                let stop = parse_stop(&self.stop_reason.take().ok_or_else(cut_short_error)?)?;
                if has_open_calls && stop == ReplyStop::Done {
                    return Err(EndpointError::new(
                        RequestFailure::Truncated,
                        "a call in it is not complete",
                    ));
                }
                return Ok(Some(stop));
            }
        }
        Ok(None)
    }

    /// Sends what is left at the end of a successful reply.
    async fn finish(&mut self, stop: ReplyStop) {
        let mut calls = std::mem::take(&mut self.calls).finish(&mut self.used_call_ids);
        if let Some(sieve) = self.call_extractor.take() {
            let ending = sieve.finish();
            self.sender.send_text(ending.text).await;
            if calls.is_empty() {
                let call = |TextToolCall { name, input }| {
                    let id = unique_call_id(String::new(), &mut self.used_call_ids);
                    ToolUse { id, name, input: ToolUseInput::Value(input) }
                };
                calls = ending.calls.into_iter().map(call).collect();
            } else {
                self.sender.send_text(ending.withheld).await;
            }
        }
        // The last call of a reply cut off by a limit may be incomplete, which cannot be detected. No call is run then,
        // but the model has to see them.
        if stop != ReplyStop::Refused {
            for call in calls {
                self.sender.send(ReplyEvent::Call(call)).await;
            }
        }
        if let Some(usage) = self.usage {
            self.sender.send(ReplyEvent::Usage(usage)).await;
        }
        self.sender.send(ReplyEvent::End(stop)).await;
    }
}

fn cut_short_error() -> EndpointError {
    EndpointError::new(RequestFailure::Truncated, "the stream ended before the reply did")
}

/// Converts the provider's reason for the end. An unknown reason counts as a normal end.
fn parse_stop(reason: &str) -> Result<ReplyStop, EndpointError> {
    let lower = reason.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    match lower.as_str() {
        "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => Ok(ReplyStop::Length),
        "refusal" | "content_filter" | "blocklist" | "spii" | "language" | "error_toxic" => {
            Ok(ReplyStop::Refused)
        }
        _ if has(&["safety", "recitation", "prohibited"]) => Ok(ReplyStop::Refused),
        _ if has(&["error", "fail", "cancel", "malformed", "unexpected"]) => Err(EndpointError::new(
            RequestFailure::Unreadable,
            format!("the provider ended it with {reason}"),
        )),
        _ => Ok(ReplyStop::Done),
    }
}
