//! Redaction of the proxy's own secrets from a trace: its reader must not gain access to the editor's files.

use std::sync::{Arc, Mutex, PoisonError};

use bowline_wire::{Direction, WireRecorder};
use memchr::memmem;

/// The replacement for a secret.
const REDACTED: &[u8] = b"[left out]";

/// The maximum number of secrets redacted; the newest are kept. Each session has one.
const MAX_SECRETS: usize = 1024;

/// The secrets to redact from the trace.
#[derive(Debug, Clone, Default)]
pub(super) struct TraceSecrets {
    // Invariant: none is empty; at most `MAX_SECRETS`.
    secrets: Arc<Mutex<Vec<String>>>,
}

impl TraceSecrets {
    /// Adds a secret; must be called before the secret is sent.
    pub(super) fn add(&self, secret: &str) {
        if secret.is_empty() {
            return;
        }
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        if secrets.len() >= MAX_SECRETS {
            secrets.remove(0);
        }
        secrets.push(secret.to_owned());
    }

    /// Returns a recorder that receives redacted messages.
    pub(super) fn redacting(&self, recorder: Arc<dyn WireRecorder>) -> Arc<dyn WireRecorder> {
        Arc::new(RedactingRecorder { secrets: self.clone(), recorder })
    }

    /// Returns the line without its secrets; `None` if it contains none.
    fn redact(&self, line: &[u8]) -> Option<Vec<u8>> {
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut redacted: Option<Vec<u8>> = None;
        for secret in secrets.iter() {
            let text = redacted.as_deref().unwrap_or(line);
            let offsets: Vec<usize> = memmem::find_iter(text, secret.as_bytes()).collect();
            if offsets.is_empty() {
                continue;
            }
            let mut clean = Vec::with_capacity(text.len());
            let mut start = 0;
            for offset in offsets {
                clean.extend_from_slice(&text[start..offset]);
                clean.extend_from_slice(REDACTED);
                start = offset + secret.len();
            }
            clean.extend_from_slice(&text[start..]);
            redacted = Some(clean);
        }
        redacted
    }
}

struct RedactingRecorder {
    secrets: TraceSecrets,
    recorder: Arc<dyn WireRecorder>,
}

impl WireRecorder for RedactingRecorder {
    fn record_line(&self, direction: Direction, line: &[u8]) {
        match self.secrets.redact(line) {
            Some(clean) => self.recorder.record_line(direction, &clean),
            None => self.recorder.record_line(direction, line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TraceSecrets;

    #[test]
    fn a_secret_is_blotted_out_wherever_it_stands() {
        let secrets = TraceSecrets::default();
        secrets.add("");
        assert_eq!(secrets.redact(b"nothing to hide"), None);
        secrets.add("abc123");
        secrets.add("xyz789");
        assert_eq!(secrets.redact(b"abc12 is another"), None);
        let redacted = secrets.redact(b"abc123, Bearer abc123 and xyz789\xff").unwrap();
        assert_eq!(redacted, b"[left out], Bearer [left out] and [left out]\xff");
    }
}
