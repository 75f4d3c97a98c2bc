//! Windows of 200 lines out of a huge file, against reading the whole file to get them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use bowline_state::lines::Window;
use bowline_workspace::workspace::{Session, Settings};

use super::data::Data;
use super::sides::{Sides, timed};
use super::{Progress, session, text};
use crate::bench::median;

/// How many lines a window has.
pub(super) const LINES: u32 = 200;

/// How often a window is asked for again in a round.
const REPEATS: usize = 25;

/// Where a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// At line 1.
    Start,
    /// Half way.
    Middle,
    /// The last lines.
    End,
}

impl Position {
    /// Every position, in the order in which they are measured.
    pub const ALL: [Self; 3] = [Self::Start, Self::Middle, Self::End];

    /// Returns the name in the table and in the summary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }

    /// Returns the window in a file of so many lines.
    pub(super) fn window(self, lines: u32) -> Window {
        let line = match self {
            Self::Start => 1,
            Self::Middle => lines / 2,
            Self::End => lines.saturating_sub(LINES) + 1,
        };
        Window { line: Some(line), limit: Some(LINES) }
    }
}

/// What a window at one position took, each against reading the whole file in the same round.
#[derive(Debug, Clone, Default)]
pub struct Spot {
    /// By a workspace that knows nothing of the file.
    pub first: Sides,
    /// By the same workspace again.
    pub repeat: Sides,
}

/// Measures each position in every round.
pub(super) fn measure(data: &Data, rounds: usize, progress: &mut Progress<'_>) -> Result<[Spot; 3]> {
    let path = &data.huge.path;
    progress.tell(&format!("count the lines of a file of {} MiB", data.huge.bytes >> 20))?;
    let lines = data.huge.count()?;
    let mut spots = [const { Vec::new() }; 3];
    for round in 1..=rounds {
        progress.tell(&format!("windows {round}/{rounds}"))?;
        for (position, spot) in Position::ALL.into_iter().zip(&mut spots) {
            let window = position.window(lines);
            let ours = || {
                let session = session(&data.root, &data.scratch.join("windows"), Settings::default())?;
                ours(&session, path, window)
            };
            let theirs = || theirs(path, window);
            let ((first, repeat, our_text), (whole, their_text)) = if round % 2 == 0 {
                let theirs = theirs()?;
                (ours()?, theirs)
            } else {
                (ours()?, theirs()?)
            };
            ensure!(
                our_text.lines().eq(their_text.lines()),
                "the window at the {} is another",
                position.name()
            );
            spot.push((first, repeat, whole));
        }
    }
    Ok(spots.map(|rounds| {
        let sides = |ours: fn(&(f64, f64, f64)) -> f64| Sides {
            ours: rounds.iter().map(ours).collect(),
            theirs: rounds.iter().map(|round| round.2).collect(),
        };
        Spot { first: sides(|round| round.0), repeat: sides(|round| round.1) }
    }))
}

fn ours(session: &Session, path: &Path, window: Window) -> Result<(f64, f64, String)> {
    let path = text(path)?;
    let read = || session.read(path, window).context("cannot read the window");
    let (first, found) = timed(1, read)?;
    let mut repeats = Vec::new();
    for _ in 0..REPEATS {
        let (took, again) = timed(1, read)?;
        ensure!(again.text == found.text, "the second window is another than the first");
        repeats.push(took);
    }
    let repeat = median(repeats.into_iter()).context("no repeats")?;
    Ok((first, repeat, found.text.to_string()))
}

/// Reads the whole file and takes the window out of it, as peers do.
fn theirs(path: &Path, window: Window) -> Result<(f64, String)> {
    let skip = window.line.unwrap_or(1).saturating_sub(1) as usize;
    timed(1, || {
        let whole = std::fs::read_to_string(path)?;
        Ok(whole.lines().skip(skip).take(LINES as usize).collect::<Vec<_>>().join("\n"))
    })
}
