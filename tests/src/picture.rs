//! The picture in the README: `bowline chat` after an edit, while the agent runs a test.

pub mod svg;

use std::ops::Range;
use std::path::Path;

use crate::pty::{PtySession, terminal_command};
use svg::{ScreenCell, find_runs};

/// Where the picture is, from the root of the repository.
pub const PICTURE_PATH: &str = "docs/images/chat.svg";

const PROMPT: &str = "\
think The slice leaves out the last item.
replace \"items[:-1]\" with \"items\" in src/price.py
run python3 test.py";

const PRICE: &str = "\
def total(items):
    total = 0
    for item in items[:-1]:
        total += item.price
    return total
";

/// A test that still runs when the picture is taken, on any machine.
const TEST: &str = "import time\ntime.sleep(3600)\n";

/// The times in the picture: of the edit, of the command and of the turn.
const TIMES: [&str; 3] = ["0.1s", "1.3s", "3.2s"];
const SPINNER: char = '⠴';

const ENTER: &str = "\r";
const TAB: &str = "\t";
const UP: &str = "\u{1b}[A";
const CTRL_D: &str = "\u{4}";

/// Plays the scene with this `bowline`, and returns the picture as SVG. The same screen gives the same picture.
pub async fn draw_chat(bowline: &Path) -> String {
    let scratch = tempfile::tempdir().unwrap();
    // The home is the directory above the project, so that the title names the project as `~/shop`.
    let home = scratch.path().canonicalize().unwrap();
    let project = home.join("shop");
    std::fs::create_dir_all(project.join("src")).unwrap();
    std::fs::write(project.join("src/price.py"), PRICE).unwrap();
    std::fs::write(project.join("test.py"), TEST).unwrap();

    let arguments = ["chat", "--approve", "edits"];
    let mut session = PtySession::start(terminal_command(bowline, &project, &home).args(arguments));
    play(&mut session).await;
    let mut rows: Vec<Vec<ScreenCell>> =
        session.lines().map(|line| line.cells().iter().map(ScreenCell::from).collect()).collect();
    session.send(CTRL_D).await;
    session.wait_for_exit().await;

    fix_times(&mut rows, &TIMES);
    svg::draw_window(&rows, &format!("bowline {}", arguments.join(" ")))
}

/// Sends the prompt, allows the command, and opens the diff of the edit.
async fn play(session: &mut PtySession) {
    session.wait_for_text("● ready").await;
    session.paste(PROMPT).await;
    session.send(ENTER).await;
    let is_question = |screen: &str| screen.contains("y allow once") && !screen.contains("a moment");
    session.wait_until("a question", is_question).await;
    session.send("y").await;
    session.wait_for_text("◐ run").await;
    session.send(TAB).await;
    session.wait_for_text("Tab back").await;
    session.send(UP).await;
    session.send(ENTER).await;
    session.wait_for_text("for item in items:").await;
    session.send(TAB).await;
    let is_scene = |screen: &str| {
        screen.contains("◐ run") && screen.contains("working") && screen.contains("Esc cancel")
    };
    session.wait_until("a running command", is_scene).await;
}

/// Replaces the spinner, and the times in their order. Nothing else moves.
///
/// # Panics
/// If there are more or fewer times.
pub fn fix_times(rows: &mut [Vec<ScreenCell>], times: &[&str]) {
    let mut times = times.iter();
    for row in rows {
        for cell in row.iter_mut().filter(|cell| ('\u{2800}'..='\u{28ff}').contains(&cell.character)) {
            cell.character = SPINNER;
        }
        let words = find_runs(row, 0, |character| character != ' ');
        let is_time = |word: &Range<usize>| is_time(&row[word.clone()]);
        if let Some(word) = words.into_iter().find(is_time) {
            replace_word(row, word, times.next().expect("a time for each on the screen"));
        }
    }
    assert_eq!(times.next(), None, "there are fewer times on the screen");
}

/// Returns whether a word is a time such as `<0.1s`, `12s` or `1m05s`.
fn is_time(word: &[ScreenCell]) -> bool {
    let word: String = word.iter().map(|cell| cell.character).collect();
    let time = word.trim_start_matches('<');
    time.starts_with(|first: char| first.is_ascii_digit())
        && time.ends_with(['s', 'm'])
        && time.chars().all(|character| character.is_ascii_digit() || ".smh".contains(character))
}

/// Replaces a word, and grows or shrinks the widest gap of the row so that the row stays as long as it was.
fn replace_word(row: &mut Vec<ScreenCell>, word: Range<usize>, text: &str) {
    let (first, length) = (row[word.start], row.len());
    row.splice(word, text.chars().map(|character| first.with_character(character)));
    let gaps = find_runs(row, 0, |character| character == ' ');
    let gap = gaps.into_iter().max_by_key(ExactSizeIterator::len).expect("a gap between the columns");
    let (blank, width) = (row[gap.start], gap.len() + length - row.len());
    row.splice(gap, std::iter::repeat_n(blank, width));
}
