//! Differences and merges of long texts.

use anyhow::{Context, Result, ensure};
use bowline_state::{diff, merge};

use super::Progress;
use super::data::Text;
use super::sides::timed;

/// How many lines the texts have.
const LINES: usize = 100_000;

/// One line in so many is another.
const EDITED: usize = 100;

/// Returns the milliseconds of differences, and of merges.
pub(super) fn measure(rounds: usize, progress: &mut Progress<'_>) -> Result<(Vec<f64>, Vec<f64>)> {
    let base = Text::new(1).lines(LINES);
    // Neither side's lines touch the other's.
    let (ours, theirs) = (edited(&base, 10), edited(&base, 60));
    let (mut diffs, mut merges) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        progress.tell(&format!("diff and merge {round}/{rounds}"))?;
        let (took, hunks) = timed(1, || Ok(diff::hunks(&base, &ours)))?;
        ensure!(hunks.len() == LINES / EDITED, "{} hunks were found", hunks.len());
        diffs.push(took);
        let (took, merged) =
            timed(1, || merge::merge(&base, &ours, &theirs).ok().context("the merge conflicts"))?;
        ensure!(merged.text.lines().count() == LINES, "the merge lost lines");
        merges.push(took);
    }
    Ok((diffs, merges))
}

/// Returns the text with every hundredth line another, from `first` on.
fn edited(base: &str, first: usize) -> String {
    let mut text = String::with_capacity(base.len());
    for (number, line) in base.lines().enumerate() {
        text.push_str(line);
        if number % EDITED == first {
            text.push_str(&format!(" // edited {number} by {first}"));
        }
        text.push('\n');
    }
    text
}
