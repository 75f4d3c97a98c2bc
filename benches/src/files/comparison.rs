//! A comparison of two sides, measured alternately, so that a temporary slowdown affects both.

use std::time::Instant;

use anyhow::Result;

use crate::wire::median;

/// The times of both sides, round by round, in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// Bowline's times.
    pub ours: Vec<f64>,
    /// The times of the other side.
    pub theirs: Vec<f64>,
}

impl Comparison {
    /// Measures both sides in each of `rounds` rounds. The side that goes first alternates.
    pub(crate) fn measure_alternately(
        rounds: usize,
        mut ours: impl FnMut() -> Result<f64>,
        mut theirs: impl FnMut() -> Result<f64>,
    ) -> Result<Self> {
        let mut sides = Self::default();
        for round in 0..rounds {
            if round % 2 == 0 {
                sides.ours.push(ours()?);
                sides.theirs.push(theirs()?);
            } else {
                sides.theirs.push(theirs()?);
                sides.ours.push(ours()?);
            }
        }
        Ok(sides)
    }

    /// Adds the rounds of another measurement.
    pub(crate) fn extend(&mut self, other: Self) {
        self.ours.extend(other.ours);
        self.theirs.extend(other.theirs);
    }

    /// Returns the median of our times, or `None` without any.
    pub fn our_ms(&self) -> Option<f64> {
        median(self.ours.iter().copied())
    }

    /// Returns the median of their times, or `None` without any.
    pub fn their_ms(&self) -> Option<f64> {
        median(self.theirs.iter().copied())
    }

    /// Returns the ratio of their time to ours: the median of the ratios within each round.
    pub fn times_faster(&self) -> Option<f64> {
        median(self.theirs.iter().zip(&self.ours).map(|(theirs, ours)| theirs / ours))
    }

    /// Returns the ratio of our time to theirs: the median of the ratios within each round.
    pub fn times_slower(&self) -> Option<f64> {
        median(self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs))
    }
}

/// Returns the average milliseconds of `repeats` calls, and the result of the last one.
pub(super) fn time<T>(repeats: usize, mut act: impl FnMut() -> Result<T>) -> Result<(f64, T)> {
    let begun = Instant::now();
    for _ in 1..repeats {
        drop(act()?);
    }
    let last = act()?;
    Ok((begun.elapsed().as_secs_f64() * 1e3 / repeats.max(1) as f64, last))
}
