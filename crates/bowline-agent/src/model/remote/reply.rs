//! Reading a reply: from a provider's events to those of a model.

use std::collections::HashSet;

use bowline_conversation::conversation::{ConversationMessage, TokenUsage};
use bowline_conversation::retry::{self, RequestFailure};
use bowline_conversation::tool_call_assembler::{ToolCallAssembler, ToolCallDelta};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::transport::EventStream;
use super::{anthropic, gemini, openai};
use crate::model::endpoint::EndpointError;
use crate::model::http_clients::Timeouts;
use crate::model::provider::Provider;
use crate::model::reply_sender::ReplySender;
use crate::model::tools_as_text::TextToolCalls;
use crate::model::{ModelInfo, ModelRequest, ReplyEvent, ReplyStop};

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
pub(super) fn string_at(event: &Value, pointer: &str) -> String {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A reply being read.
#[derive(Debug)]
pub(super) struct ReplyReader<'v> {
    provider: Provider,
    anthropic: anthropic::EventReader,
    calls: ToolCallAssembler,
    usage: Option<TokenUsage>,
    stop_reason: Option<String>,
    text_calls: TextToolCalls,
    // The ids of calls in the conversation.
    used_call_ids: HashSet<String>,
    sender: &'v mut ReplySender,
    /// Whether any of the reply was sent on.
    pub(super) has_output: bool,
}

impl<'v> ReplyReader<'v> {
    /// Prepares to read the reply to a request.
    pub(super) fn new(
        provider: Provider,
        info: &ModelInfo,
        request: &ModelRequest,
        sender: &'v mut ReplySender,
    ) -> Self {
        let used_call_ids =
            request.messages.iter().flat_map(ConversationMessage::tool_uses).map(|call| call.id.clone());
        Self {
            provider,
            anthropic: anthropic::EventReader::default(),
            calls: ToolCallAssembler::default(),
            usage: None,
            stop_reason: None,
            text_calls: TextToolCalls::new(provider, info, request),
            used_call_ids: used_call_ids.collect(),
            sender,
            has_output: false,
        }
    }

    /// Reads the reply to its end, with separate timeouts before and after its first piece.
    pub(super) async fn read(
        &mut self,
        events: &mut EventStream,
        first_timeouts: Timeouts,
        timeouts: Timeouts,
    ) -> Result<(), EndpointError> {
        let (mut limits, mut last) = (first_timeouts, Instant::now());
        loop {
            let Timeouts { idle, silence, .. } = limits;
            let timed_out = |_| {
                EndpointError::new(
                    RequestFailure::TimedOut,
                    format!("nothing of the reply came for {silence:?}"),
                )
            };
            let event = timeout_at(last + silence, events.next(idle)).await.map_err(timed_out)??;
            let pieces = match event {
                Some((kind, data)) => self.parse_event(kind.as_deref(), &data)?,
                None if self.provider == Provider::Anthropic => return Err(cut_short_error()),
                // Some servers omit the end marker, but send a reason.
                None => vec![ReplyPiece::End { has_open_calls: false }],
            };
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                (limits, last) = (timeouts, Instant::now());
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
                let event_type = event.get("type").and_then(Value::as_str);
                self.anthropic.read(event_type.or(kind).unwrap_or_default(), &event)
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
                let text = self.text_calls.push(text);
                self.has_output |= !text.is_empty();
                self.sender.send_text(text).await;
                return Ok(self.text_calls.is_finished().then_some(ReplyStop::Done));
            }
            ReplyPiece::Thought(text) => {
                self.sender.send(ReplyEvent::Thought { text, signature: None }).await
            }
            ReplyPiece::Signature(signature) => {
                let (text, signature) = (String::new(), Some(signature));
                self.sender.send(ReplyEvent::Thought { text, signature }).await;
            }
            ReplyPiece::Call(delta) => {
                let added = self.calls.add_delta(delta);
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
        let real_calls = std::mem::take(&mut self.calls).finish(&mut self.used_call_ids);
        let (text, calls) = self.text_calls.finish(real_calls, &mut self.used_call_ids);
        self.sender.send_text(text).await;
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
    let contains_any = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    match lower.as_str() {
        "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => Ok(ReplyStop::Length),
        "refusal" | "content_filter" | "blocklist" | "spii" | "language" | "error_toxic" => {
            Ok(ReplyStop::Refused)
        }
        _ if contains_any(&["safety", "recitation", "prohibited"]) => Ok(ReplyStop::Refused),
        _ if contains_any(&["error", "fail", "cancel", "malformed", "unexpected"]) => Err(
            EndpointError::new(RequestFailure::Unreadable, format!("the provider ended it with {reason}")),
        ),
        _ => Ok(ReplyStop::Done),
    }
}
