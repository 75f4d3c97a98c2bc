//! Pseudo-random numbers, reproducible from a seed.

use std::time::Duration;

/// A pseudo-random number generator (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// Returns the generator of one actor: actors with the same seed get different numbers.
    pub(super) fn new(seed: u64, actor: &str) -> Self {
        let mixed = actor.bytes().fold(seed, |mixed, byte| {
            (mixed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3).rotate_left(17)
        });
        Self { state: mixed }
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below a bound; 0 if the bound is 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u64;
        usize::try_from(self.next_u64() % bound).unwrap_or(0)
    }

    /// Returns a number in a range, both ends included.
    pub(super) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// Returns `true` with the given probability in percent.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a duration in a range given in microseconds.
    pub(super) fn duration_micros(&mut self, least: usize, most: usize) -> Duration {
        Duration::from_micros(self.between(least, most) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_gives_the_same_numbers_and_actors_get_different_ones() {
        let numbers = |seed, actor| {
            let mut random = Random::new(seed, actor);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(numbers(1, "agent"), numbers(1, "agent"));
        assert_ne!(numbers(1, "agent"), numbers(1, "undo"));
        assert_ne!(numbers(1, "agent"), numbers(2, "agent"));
        let mut random = Random::new(3, "bounds");
        assert!((0..1000).all(|_| (5..=9).contains(&random.between(5, 9))));
        assert_eq!(random.below(0), 0);
    }
}
