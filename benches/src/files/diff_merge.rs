//! Diffs and merges of long texts.

use anyhow::{Context, Result, ensure};
use bowline_text::diff;
use bowline_text::merge;

use super::BenchProgress;
use super::comparison::time;
use super::data::TextGenerator;

/// The number of lines in the texts.
const LINES: usize = 100_000;

/// One line in this many is changed.
const EDIT_STRIDE: usize = 100;

/// Returns the milliseconds of diffs, and of merges.
pub(super) fn measure(rounds: usize, progress: &mut BenchProgress<'_>) -> Result<(Vec<f64>, Vec<f64>)> {
    let base = TextGenerator::new(1).next_lines(LINES);
    // The changes of the two sides do not touch.
    let (ours, theirs) = (edit_lines(&base, 10), edit_lines(&base, 60));
    let (mut diffs, mut merges) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        progress.report(&format!("diff and merge {round}/{rounds}"))?;
        let (took, hunks) = time(1, || Ok(diff::compute_hunks(&base, &ours)))?;
        ensure!(hunks.len() == LINES / EDIT_STRIDE, "{} hunks were found", hunks.len());
        diffs.push(took);
        let (took, merged) =
            time(1, || merge::merge(&base, &ours, &theirs).ok().context("the merge conflicts"))?;
        ensure!(merged.lines().count() == LINES, "the merge lost lines");
        merges.push(took);
    }
    Ok((diffs, merges))
}

/// Returns the text with every hundredth line changed, starting at `first`.
fn edit_lines(base: &str, first: usize) -> String {
    let mut text = String::with_capacity(base.len());
    for (number, line) in base.lines().enumerate() {
        text.push_str(line);
        if number % EDIT_STRIDE == first {
            text.push_str(&format!(" // edited {number} by {first}"));
        }
        text.push('\n');
    }
    text
}
