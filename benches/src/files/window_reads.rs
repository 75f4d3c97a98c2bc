//! Windows of 200 lines in a huge file, against reading the whole file for them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use bowline_text::lines::LineWindow;
use bowline_workspace::workspace::{WorkspaceOptions, WorkspaceSession};

use super::comparison::{Comparison, time};
use super::data::BenchData;
use super::{BenchProgress, open_session, path_str};
use crate::wire::median;

/// The number of lines in a window.
pub(super) const WINDOW_LINES: u32 = 200;

/// The number of repeated requests for a window in a round.
const REPEATS: usize = 25;

/// The position of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowPosition {
    /// At line 1.
    Start,
    /// Half way.
    Middle,
    /// The last lines.
    End,
}

impl WindowPosition {
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

    /// Returns the window in a file with this many lines.
    pub(super) fn window(self, lines: u32) -> LineWindow {
        let line = match self {
            Self::Start => 1,
            Self::Middle => lines / 2,
            Self::End => lines.saturating_sub(WINDOW_LINES) + 1,
        };
        LineWindow { line: Some(line), limit: Some(WINDOW_LINES) }
    }
}

/// The times of a window at one position, each against reading the whole file in the same round.
#[derive(Debug, Clone, Default)]
pub struct WindowTimes {
    /// In a workspace that does not know the file.
    pub first: Comparison,
    /// In the same workspace again.
    pub repeat: Comparison,
}

/// Measures each position in every round.
pub(super) fn measure(
    data: &BenchData,
    rounds: usize,
    progress: &mut BenchProgress<'_>,
) -> Result<[WindowTimes; 3]> {
    let path = &data.huge_file.path;
    progress.report(&format!("count the lines of a file of {} MiB", data.huge_file.bytes >> 20))?;
    let lines = data.huge_file.count_lines()?;
    let mut spots = [const { Vec::new() }; 3];
    for round in 1..=rounds {
        progress.report(&format!("windows {round}/{rounds}"))?;
        for (position, spot) in WindowPosition::ALL.into_iter().zip(&mut spots) {
            let window = position.window(lines);
            let ours = || {
                let session =
                    open_session(&data.root, &data.scratch.join("windows"), WorkspaceOptions::default())?;
                time_window_read(&session, path, window)
            };
            let theirs = || time_whole_read(path, window);
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
        let sides = |ours: fn(&(f64, f64, f64)) -> f64| Comparison {
            ours: rounds.iter().map(ours).collect(),
            theirs: rounds.iter().map(|round| round.2).collect(),
        };
        WindowTimes { first: sides(|round| round.0), repeat: sides(|round| round.1) }
    }))
}

fn time_window_read(
    session: &WorkspaceSession,
    path: &Path,
    window: LineWindow,
) -> Result<(f64, f64, String)> {
    let path = path_str(path)?;
    let read = || session.read(path, window).context("cannot read the window");
    let (first, found) = time(1, read)?;
    let mut repeats = Vec::new();
    for _ in 0..REPEATS {
        let (took, again) = time(1, read)?;
        ensure!(again.text == found.text, "the second window is another than the first");
        repeats.push(took);
    }
    let repeat = median(repeats.into_iter()).context("no repeats")?;
    Ok((first, repeat, found.text.to_string()))
}

/// Reads the whole file and extracts the window, as other programs do.
fn time_whole_read(path: &Path, window: LineWindow) -> Result<(f64, String)> {
    let skip = window.line.unwrap_or(1).saturating_sub(1) as usize;
    time(1, || {
        let whole = std::fs::read_to_string(path)?;
        Ok(whole.lines().skip(skip).take(WINDOW_LINES as usize).collect::<Vec<_>>().join("\n"))
    })
}
