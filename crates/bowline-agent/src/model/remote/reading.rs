//! Reading a reply: from what `genai` streams to what an agent is told.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_state::conversation::{Message, Part, Role, ToolUse, Usage};
use bowline_state::fenced::Sieve;
use bowline_state::retry::{self, Trouble};
use bowline_state::turn::BLANK;
use futures_util::StreamExt as _;
use genai::chat::{ChatFrameSink, ChatStream, ChatStreamEvent, FrameCtx, RawFrameRef, StopReason, StreamEnd};
use tokio::time::timeout;

use super::frames::{Frames, MAX_ARGUMENTS, Signed, fresh_id};
use super::gate::{Passing, message};
use super::{Failure, Shared, convert};
use crate::model::provider::Provider;
use crate::model::speak::Voice;
use crate::model::{Event, Request, Stop};

/// A reply as it is read.
pub(super) struct Reading {
    provider: Provider,
    frames: Shared<Frames>,
    // Holds back what may be a call, for models that write such as text.
    sieve: Option<Sieve>,
    by_words: bool,
    // The ids that calls of the conversation have.
    taken: HashSet<String>,
    // How long the first piece may take, and each of the others.
    first: Duration,
    silence: Duration,
}

/// Gives frames to the reading.
struct Sink(Shared<Frames>);

impl ChatFrameSink for Sink {
    fn on_frame(&self, _ctx: &FrameCtx, frame: RawFrameRef<'_>) {
        lock(&self.0).take(frame.data);
    }
}

impl Reading {
    /// Prepares to read the reply to a request.
    pub(super) fn new(provider: Provider, request: &Request, first: Duration, silence: Duration) -> Self {
        let known = || request.tools.iter().map(|tool| tool.name.clone()).collect();
        let weak = provider.may_write_calls_as_text() && !request.tools.is_empty();
        let taken = request.messages.iter().flat_map(Message::calls).map(|call| call.id.clone());
        Self {
            provider,
            frames: Arc::new(Mutex::new(Frames::new(provider))),
            sieve: weak.then(|| {
                let sieve = Sieve::new(known()).quoting(told(&request.messages));
                if request.by_words { sieve.by_words() } else { sieve }
            }),
            by_words: request.by_words,
            taken: taken.collect(),
            first,
            silence,
        }
    }

    /// Returns what `genai` is to give the frames to.
    pub(super) fn sink(&self) -> Arc<dyn ChatFrameSink> {
        Arc::new(Sink(self.frames.clone()))
    }

    /// Reads the reply to its end. `shown` becomes true with the first thing that was told.
    pub(super) async fn read(
        &mut self,
        mut stream: ChatStream,
        passing: &mut Passing,
        voice: &mut Voice,
        shown: &mut bool,
    ) -> Result<(), Failure> {
        // How the request passed, once it has.
        let mut passed = None;
        let end = loop {
            let next = self.next(&mut stream, passing, &mut passed).await?;
            for signed in self.signed() {
                *shown = true;
                voice.say(signed).await;
            }
            if lock(&self.frames).overflown {
                let why = format!("its calls have more than {MAX_ARGUMENTS} bytes");
                return Err(Failure::new(Trouble::Unusable, why));
            }
            match next {
                Some(Ok(ChatStreamEvent::Start | ChatStreamEvent::Heartbeat)) => (),
                Some(Ok(ChatStreamEvent::Chunk(chunk))) => {
                    let text = match &mut self.sieve {
                        Some(sieve) => sieve.push(&chunk.content),
                        None => chunk.content,
                    };
                    *shown |= !text.is_empty();
                    voice.text(text).await;
                    // Whoever goes on as if it had seen results may go on for minutes.
                    if self.by_words && self.sieve.as_ref().is_some_and(Sieve::is_over) {
                        break (Stop::Done, None);
                    }
                }
                Some(Ok(ChatStreamEvent::ReasoningChunk(chunk))) => {
                    *shown = true;
                    voice.say(Event::Thought { text: chunk.content, signature: None }).await;
                }
                Some(Ok(ChatStreamEvent::ThoughtSignatureChunk(chunk))) => {
                    // Anthropic's come in pieces, which the frames put together.
                    if self.provider == Provider::Gemini {
                        *shown = true;
                        let signature = Some(convert::tagged(self.provider, &chunk.content));
                        voice.say(Event::Thought { text: String::new(), signature }).await;
                    }
                }
                Some(Ok(ChatStreamEvent::ToolCallChunk(chunk))) => {
                    // These two send calls whole; of the others the frames know more.
                    if matches!(self.provider, Provider::Gemini | Provider::Ollama) {
                        let call = chunk.tool_call;
                        lock(&self.frames).whole(call.call_id, call.fn_name, &call.fn_arguments);
                    }
                }
                Some(Ok(ChatStreamEvent::End(end))) => break self.ended(end)?,
                Some(Err(error)) => match self.failed(&error, passed.take()) {
                    Some(failure) => return Err(failure),
                    None => break (Stop::Refused, None),
                },
                None => break self.stopped(passing, passed.take()).await?,
            }
        };
        self.finish(end, voice).await;
        Ok(())
    }

    /// Returns the next event, while the request passes beside it.
    async fn next(
        &self,
        stream: &mut ChatStream,
        passing: &mut Passing,
        passed: &mut Option<Result<(), Failure>>,
    ) -> Result<Option<genai::Result<ChatStreamEvent>>, Failure> {
        let limit = if lock(&self.frames).unseen() { self.first } else { self.silence };
        let silent = tokio::time::sleep(limit);
        tokio::pin!(silent);
        loop {
            tokio::select! {
                biased;
                event = stream.next() => match event {
                    // Signs of life do not count as an answer.
                    Some(Ok(ChatStreamEvent::Start | ChatStreamEvent::Heartbeat)) => (),
                    event => return Ok(event),
                },
                outcome = &mut *passing, if passed.is_none() => *passed = Some(outcome),
                () = &mut silent => {
                    let why = format!("nothing of the reply came for {limit:?}");
                    return Err(Failure::new(Trouble::TimedOut, why));
                }
            }
            // A request that failed is told by its own words. Until the stream has ended too, there may be text in it.
            if let Some(Err(failure)) = passed
                && lock(&self.frames).unseen()
            {
                return Err(failure.clone());
            }
        }
    }

    /// Judges a reply that has its end.
    fn ended(&self, end: StreamEnd) -> Result<(Stop, Option<Usage>), Failure> {
        let usage = end.captured_usage.map(usage);
        let mut frames = lock(&self.frames);
        if let Some(error) = frames.error.take() {
            return Err(Failure::new(retry::judge_event(&error), error));
        }
        // Where there is none, `genai` made the end up.
        let Some(reason) = end.captured_stop_reason else {
            return Err(Failure::new(Trouble::CutShort, "the stream ended before the reply did"));
        };
        let stop = stop(&reason)?;
        if frames.has_open() && stop == Stop::Done {
            return Err(Failure::new(Trouble::CutShort, "a call in it is not complete"));
        }
        Ok((stop, usage.or(frames.usage)))
    }

    /// Judges a stream that stopped without an end. Some servers leave out the mark but say why the reply ended.
    async fn stopped(
        &self,
        passing: &mut Passing,
        passed: Option<Result<(), Failure>>,
    ) -> Result<(Stop, Option<Usage>), Failure> {
        let passed = match passed {
            Some(passed) => passed,
            None => timeout(Duration::from_secs(2), passing).await.unwrap_or(Ok(())),
        };
        passed?;
        let frames = lock(&self.frames);
        match &frames.finish {
            Some(reason) => Ok((stop(&StopReason::from(reason.clone()))?, frames.usage)),
            None => Err(Failure::new(Trouble::CutShort, "the stream ended before the reply did")),
        }
    }

    /// Judges an error: nothing if it only says that the provider refuses.
    fn failed(&self, error: &genai::Error, passed: Option<Result<(), Failure>>) -> Option<Failure> {
        if let Some(Err(failure)) = passed {
            return Some(failure);
        }
        if lock(&self.frames).blocked.is_some() {
            return None;
        }
        Some(match error {
            genai::Error::ChatResponse { body, .. } => {
                let body = body.to_string();
                Failure::new(retry::judge_event(&body), message(&body))
            }
            // However often it is asked for, it is no text.
            genai::Error::WebStream { cause, .. } if cause.to_ascii_lowercase().contains("utf-8") => {
                Failure::new(Trouble::Unusable, format!("it is not text ({cause})"))
            }
            genai::Error::WebStream { cause, .. } => Failure::new(Trouble::CutShort, cause),
            error => Failure::new(Trouble::Unreadable, error.to_string()),
        })
    }

    /// Tells what is left at the end of a good reply.
    async fn finish(&mut self, (stop, usage): (Stop, Option<Usage>), voice: &mut Voice) {
        let mut calls = lock(&self.frames).calls(&mut self.taken);
        if let Some(sieve) = self.sieve.take() {
            let ending = sieve.finish();
            voice.text(ending.text).await;
            if calls.is_empty() {
                let call = |call: bowline_state::fenced::Call| ToolUse {
                    id: fresh_id(String::new(), &mut self.taken),
                    name: call.name,
                    input: bowline_state::conversation::Input::Value(call.input),
                };
                calls = ending.calls.into_iter().map(call).collect();
            } else {
                voice.text(ending.withheld).await;
            }
        }
        // The last call of a reply that was cut by a limit may be cut too, and nobody can tell. None is run then, but the
        // model has to hear of it.
        if stop != Stop::Refused {
            for call in calls {
                voice.say(Event::Call(call)).await;
            }
        }
        if let Some(usage) = usage {
            voice.say(Event::Usage(usage)).await;
        }
        voice.say(Event::End(stop)).await;
    }

    fn signed(&self) -> Vec<Event> {
        let signed = std::mem::take(&mut lock(&self.frames).signed);
        let event = |signed| {
            let signature = match signed {
                Signed::Told(signature) => convert::tagged(self.provider, &signature),
                Signed::Hidden(data) => convert::hidden(&data),
            };
            Event::Thought { text: String::new(), signature: Some(signature) }
        };
        signed.into_iter().map(event).collect()
    }
}

/// Returns what the model was told since the user spoke last.
fn told(messages: &[Message]) -> Vec<String> {
    // That it said nothing it is told by us.
    let speaks =
        |message: &Message| message.role == Role::User && *message != Message::text(Role::User, BLANK);
    let spoke = messages.iter().rposition(speaks).unwrap_or(0);
    let theirs = messages[spoke..].iter().filter(|message| message.role != Role::Assistant);
    let text = |part: &Part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::Result(result) => Some(result.text.clone()),
        Part::Image { .. } | Part::Thought { .. } | Part::Call(_) => None,
    };
    theirs.flat_map(|message| &message.parts).filter_map(text).collect()
}

fn stop(reason: &StopReason) -> Result<Stop, Failure> {
    match reason {
        StopReason::Completed(_) | StopReason::ToolCall(_) | StopReason::StopSequence(_) => Ok(Stop::Done),
        StopReason::MaxTokens(_) => Ok(Stop::Length),
        StopReason::ContentFilter(_) => Ok(Stop::Refused),
        StopReason::Other(other) => {
            let lower = other.to_ascii_lowercase();
            let bad = ["error", "fail", "cancel", "malformed", "unexpected"];
            if bad.iter().any(|word| lower.contains(word)) {
                return Err(Failure::new(Trouble::Unreadable, format!("the provider ended it with {other}")));
            }
            // A reason that we have not heard of still says that the reply is over.
            Ok(Stop::Done)
        }
    }
}

fn usage(usage: genai::chat::Usage) -> Usage {
    let count = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    let prompt = usage.prompt_tokens_details.unwrap_or_default();
    let completion = usage.completion_tokens_details.unwrap_or_default();
    Usage {
        input: count(usage.prompt_tokens),
        output: count(usage.completion_tokens),
        cache_read: count(prompt.cached_tokens),
        cache_write: count(prompt.cache_creation_tokens),
        thought: count(completion.reasoning_tokens),
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
