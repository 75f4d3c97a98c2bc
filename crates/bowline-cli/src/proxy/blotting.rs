//! Keeping secrets of the proxy's own out of a trace: who reads it may not use the editor's files.

use std::sync::{Arc, Mutex, PoisonError};

use bowline_wire::{Direction, Tap};
use memchr::memmem;

/// What stands in the place of a secret.
const BLOT: &[u8] = b"[left out]";

/// So many secrets are blotted out, the newest; each session has one.
const MAX_SECRETS: usize = 1024;

/// The secrets that were made, for whoever writes down what passes.
#[derive(Debug, Clone, Default)]
pub(super) struct Secrets {
    // Invariant: none is empty; at most `MAX_SECRETS`.
    made: Arc<Mutex<Vec<String>>>,
}

impl Secrets {
    /// Notes a secret before anybody is told of it.
    pub(super) fn add(&self, secret: &str) {
        if secret.is_empty() {
            return;
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() >= MAX_SECRETS {
            made.remove(0);
        }
        made.push(secret.to_owned());
    }

    /// Returns a listener that hears no secret.
    pub(super) fn blotted(&self, tap: Arc<dyn Tap>) -> Arc<dyn Tap> {
        Arc::new(Blotted { secrets: self.clone(), tap })
    }

    /// Returns the line without the secrets, if there are any in it.
    fn blot(&self, line: &[u8]) -> Option<Vec<u8>> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let mut blotted: Option<Vec<u8>> = None;
        for secret in made.iter() {
            let text = blotted.as_deref().unwrap_or(line);
            let places: Vec<usize> = memmem::find_iter(text, secret.as_bytes()).collect();
            if places.is_empty() {
                continue;
            }
            let mut clean = Vec::with_capacity(text.len());
            let mut from = 0;
            for at in places {
                clean.extend_from_slice(&text[from..at]);
                clean.extend_from_slice(BLOT);
                from = at + secret.len();
            }
            clean.extend_from_slice(&text[from..]);
            blotted = Some(clean);
        }
        blotted
    }
}

struct Blotted {
    secrets: Secrets,
    tap: Arc<dyn Tap>,
}

impl Tap for Blotted {
    fn line(&self, direction: Direction, line: &[u8]) {
        match self.secrets.blot(line) {
            Some(clean) => self.tap.line(direction, &clean),
            None => self.tap.line(direction, line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Secrets;

    #[test]
    fn a_secret_is_blotted_out_wherever_it_stands() {
        let secrets = Secrets::default();
        secrets.add("");
        assert_eq!(secrets.blot(b"nothing to hide"), None);
        secrets.add("abc123");
        secrets.add("xyz789");
        assert_eq!(secrets.blot(b"abc12 is another"), None);
        let blotted = secrets.blot(b"abc123, Bearer abc123 and xyz789\xff").unwrap();
        assert_eq!(blotted, b"[left out], Bearer [left out] and [left out]\xff");
    }
}
