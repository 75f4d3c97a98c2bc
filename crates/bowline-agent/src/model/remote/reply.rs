//! A reply: from the events of a provider to those of a model.

use std::collections::HashSet;

use bowline_state::call_assembler::{CallAssembler, CallPiece, fresh_id};
use bowline_state::conversation::{Input, Message, ToolUse, Usage};
use bowline_state::fenced::{Call, Sieve};
use bowline_state::retry::{self, Trouble};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::transport::EventStream;
use super::{anthropic, gemini, openai};
use crate::model::endpoint::Failure;
use crate::model::net::Timeouts;
use crate::model::provider::Provider;
use crate::model::speak::Voice;
use crate::model::{Event, Request, Stop, words};

/// What an event of a provider says, in any wire format.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Thought(String),
    /// The signature of the thought before it, or all there is of a hidden one.
    Signature(String),
    Call(CallPiece),
    Usage(Usage),
    /// Why the reply ends, in the provider's words.
    Stop(String),
    /// The reply is complete. In some formats calls can be left open.
    End {
        has_open_calls: bool,
    },
}

impl Piece {
    /// Says whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) | Self::Thought(text) if text.is_empty())
    }
}

/// Returns a text in an event; an empty one if there is none.
pub(super) fn text_at(event: &Value, place: &str) -> String {
    event.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A reply as it is read.
#[derive(Debug)]
pub(super) struct ReplyReader<'v> {
    provider: Provider,
    anthropic: anthropic::EventReader,
    calls: CallAssembler,
    usage: Option<Usage>,
    stop: Option<String>,
    // Holds back what may be a call, for models that write such as text.
    sieve: Option<Sieve>,
    by_words: bool,
    // The ids that calls of the conversation have.
    taken: HashSet<String>,
    voice: &'v mut Voice,
    /// Whether something of the reply was shown.
    pub(super) has_shown: bool,
}

impl<'v> ReplyReader<'v> {
    /// Prepares to read the reply to a request.
    pub(super) fn new(provider: Provider, request: &Request, voice: &'v mut Voice) -> Self {
        let taken = request.messages.iter().flat_map(Message::calls).map(|call| call.id.clone());
        Self {
            provider,
            anthropic: anthropic::EventReader::default(),
            calls: CallAssembler::default(),
            usage: None,
            stop: None,
            sieve: words::sieve(provider, request),
            by_words: request.by_words,
            taken: taken.collect(),
            voice,
            has_shown: false,
        }
    }

    /// Reads the reply to its end, with other limits before its first piece than after it.
    pub(super) async fn read(
        &mut self,
        events: &mut EventStream,
        first: Timeouts,
        usual: Timeouts,
    ) -> Result<(), Failure> {
        let (mut limits, mut last) = (first, Instant::now());
        loop {
            let Timeouts { idle, silence, .. } = limits;
            let late =
                |_| Failure::new(Trouble::TimedOut, format!("nothing of the reply came for {silence:?}"));
            let event = timeout_at(last + silence, events.next(idle)).await.map_err(late)??;
            let pieces = match event {
                Some((kind, data)) => self.pieces(kind.as_deref(), &data)?,
                None if self.provider == Provider::Anthropic => return Err(cut_short()),
                // Some servers leave out the mark but say why the reply ended.
                None => vec![Piece::End { has_open_calls: false }],
            };
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                (limits, last) = (usual, Instant::now());
                if let Some(stop) = self.take(piece).await? {
                    self.finish(stop).await;
                    return Ok(());
                }
            }
        }
    }

    /// Returns what an event says.
    fn pieces(&mut self, kind: Option<&str>, data: &str) -> Result<Vec<Piece>, Failure> {
        if data.trim() == openai::DONE {
            return Ok(vec![Piece::End { has_open_calls: false }]);
        }
        let event: Value = match serde_json::from_str(data) {
            Ok(event) => event,
            Err(_) if kind == Some("error") => data.into(),
            Err(error) => return Err(Failure::new(Trouble::Unreadable, error.to_string())),
        };
        if kind == Some("error") || event.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Failure::new(retry::judge_event(&event.to_string()), retry::error_message(data)));
        }
        Ok(match self.provider {
            Provider::Anthropic => {
                let own = event.get("type").and_then(Value::as_str);
                self.anthropic.read(own.or(kind).unwrap_or_default(), &event)
            }
            Provider::Gemini => gemini::read(&event),
            Provider::OpenAi | Provider::Ollama | Provider::Compatible => openai::read(&event),
        })
    }

    /// Takes a piece; returns how the reply ended, if it did.
    async fn take(&mut self, piece: Piece) -> Result<Option<Stop>, Failure> {
        self.has_shown |= matches!(piece, Piece::Thought(_) | Piece::Signature(_));
        match piece {
            Piece::Text(text) => {
                let text = match &mut self.sieve {
                    Some(sieve) => sieve.push(&text),
                    None => text,
                };
                self.has_shown |= !text.is_empty();
                self.voice.text(text).await;
                // A model that goes on as if it had seen results may go on for minutes.
                let is_over = self.by_words && self.sieve.as_ref().is_some_and(Sieve::is_over);
                return Ok(is_over.then_some(Stop::Done));
            }
            Piece::Thought(text) => self.voice.say(Event::Thought { text, signature: None }).await,
            Piece::Signature(signature) => {
                let (text, signature) = (String::new(), Some(signature));
                self.voice.say(Event::Thought { text, signature }).await;
            }
            Piece::Call(piece) => {
                let added = self.calls.add(piece);
                added.map_err(|error| Failure::new(Trouble::Unusable, error.to_string()))?;
            }
            Piece::Usage(usage) => self.usage = Some(usage),
            Piece::Stop(reason) => self.stop = Some(reason),
            Piece::End { has_open_calls } => {
                let stop = parse_stop(&self.stop.take().ok_or_else(cut_short)?)?;
                if has_open_calls && stop == Stop::Done {
                    return Err(Failure::new(Trouble::CutShort, "a call in it is not complete"));
                }
                return Ok(Some(stop));
            }
        }
        Ok(None)
    }

    /// Tells what is left at the end of a good reply.
    async fn finish(&mut self, stop: Stop) {
        let mut calls = std::mem::take(&mut self.calls).finish(&mut self.taken);
        if let Some(sieve) = self.sieve.take() {
            let ending = sieve.finish();
            self.voice.text(ending.text).await;
            if calls.is_empty() {
                let call = |Call { name, input }| {
                    let id = fresh_id(String::new(), &mut self.taken);
                    ToolUse { id, name, input: Input::Value(input) }
                };
                calls = ending.calls.into_iter().map(call).collect();
            } else {
                self.voice.text(ending.withheld).await;
            }
        }
        // The last call of a reply that was cut by a limit may be cut too, which cannot be told. None is run then, but the
        // model has to hear of it.
        if stop != Stop::Refused {
            for call in calls {
                self.voice.say(Event::Call(call)).await;
            }
        }
        if let Some(usage) = self.usage {
            self.voice.say(Event::Usage(usage)).await;
        }
        self.voice.say(Event::End(stop)).await;
    }
}

fn cut_short() -> Failure {
    Failure::new(Trouble::CutShort, "the stream ended before the reply did")
}

/// Returns how a reply ended by the provider's reason. A reason that we have not heard of still says that it is over.
fn parse_stop(reason: &str) -> Result<Stop, Failure> {
    let lower = reason.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    match lower.as_str() {
        "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => Ok(Stop::Length),
        "refusal" | "content_filter" | "blocklist" | "spii" | "language" | "error_toxic" => Ok(Stop::Refused),
        _ if has(&["safety", "recitation", "prohibited"]) => Ok(Stop::Refused),
        _ if has(&["error", "fail", "cancel", "malformed", "unexpected"]) => {
            Err(Failure::new(Trouble::Unreadable, format!("the provider ended it with {reason}")))
        }
        _ => Ok(Stop::Done),
    }
}
