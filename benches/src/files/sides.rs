//! Two sides of a comparison, measured by turns: what slows one down for a while slows the other down too.

use std::time::Instant;

use anyhow::Result;

use crate::bench::median;

/// What both sides took, round by round, in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Sides {
    /// Bowline's times.
    pub ours: Vec<f64>,
    /// The times of what peers do.
    pub theirs: Vec<f64>,
}

impl Sides {
    /// Measures both sides so many times. Who goes first changes from round to round.
    pub(crate) fn by_turns(
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

    /// Returns the median of our times, `None` if there are none.
    pub fn our_ms(&self) -> Option<f64> {
        median(self.ours.iter().copied())
    }

    /// Returns the median of their times, `None` if there are none.
    pub fn their_ms(&self) -> Option<f64> {
        median(self.theirs.iter().copied())
    }

    /// Returns how many times as long they take: the median of the ratios within each round.
    pub fn times_faster(&self) -> Option<f64> {
        median(self.theirs.iter().zip(&self.ours).map(|(theirs, ours)| theirs / ours))
    }

    /// Returns how many times as long we take: the median of the ratios within each round.
    pub fn times_slower(&self) -> Option<f64> {
        median(self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs))
    }
}

/// Returns the milliseconds that one of `repeats` takes on average, and what the last gave.
pub(super) fn timed<T>(repeats: usize, mut act: impl FnMut() -> Result<T>) -> Result<(f64, T)> {
    let begun = Instant::now();
    for _ in 1..repeats {
        drop(act()?);
    }
    let last = act()?;
    Ok((begun.elapsed().as_secs_f64() * 1e3 / repeats.max(1) as f64, last))
}
