//! Names, numbers and wording for tasks, drawn from a seed.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Names, numbers and wording, all derived from one seed.
#[derive(Debug, Clone, Copy)]
pub(in crate::eval) struct SeededWords {
    seed: u64,
}

impl SeededWords {
    pub(in crate::eval) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Picks one of the values. Picks for different purposes are independent.
    pub(super) fn pick<T: Copy>(&self, purpose: &str, of: &[T]) -> T {
        of[(self.draw(purpose) % of.len() as u64) as usize]
    }

    /// Draws a number from a range.
    pub(super) fn number(&self, purpose: &str, from: u64, to: u64) -> u64 {
        from + self.draw(purpose) % (to - from)
    }

    /// Draws a first name.
    pub(super) fn person(&self, purpose: &str) -> &'static str {
        self.pick(purpose, &["Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances", "Tony", "Radia"])
    }

    /// Draws a common noun.
    pub(super) fn noun(&self, purpose: &str) -> &'static str {
        self.pick(
            purpose,
            &["harbour", "lantern", "meadow", "orchard", "granite", "thistle", "copper", "ferry"],
        )
    }

    /// Draws a folder.
    pub(super) fn folder(&self, purpose: &str) -> &'static str {
        self.pick(purpose, &["src", "lib", "app", "core", "tools", "pkg"])
    }

    fn draw(&self, purpose: &str) -> u64 {
        // Stable within one version of the standard library, which is as long as scores are compared.
        let mut hasher = DefaultHasher::new();
        (self.seed, purpose).hash(&mut hasher);
        hasher.finish()
    }
}
