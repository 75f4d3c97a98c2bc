//! What came of the script, as a table for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::agents::Way;

/// A step of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    UnsavedRead,
    Edit,
    NewFile,
    Command,
    Cancel,
    Sessions,
    Leftovers,
}

impl Column {
    const ALL: [Self; 7] = [
        Self::UnsavedRead,
        Self::Edit,
        Self::NewFile,
        Self::Command,
        Self::Cancel,
        Self::Sessions,
        Self::Leftovers,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::UnsavedRead => "unsaved text is read",
            Self::Edit => "edit",
            Self::NewFile => "new file",
            Self::Command => "command",
            Self::Cancel => "cancel",
            Self::Sessions => "sessions",
            Self::Leftovers => "processes left",
        }
    }
}

/// How a step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// As it should.
    Good,
    /// Not, and the peer is the reason.
    Fault,
    /// Not, and the reason has to be looked for.
    Bad,
}

/// What came of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    mark: Mark,
    text: String,
}

impl Cell {
    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self { mark: Mark::Good, text: text.into() }
    }

    pub(crate) fn fault(text: impl Into<String>) -> Self {
        Self { mark: Mark::Fault, text: text.into() }
    }

    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self { mark: Mark::Bad, text: text.into() }
    }

    /// Adds something to the text.
    pub(crate) fn with(mut self, more: &str) -> Self {
        write!(self.text, ", {more}").ok();
        self
    }

    /// Says what is wrong with it all the same.
    pub(crate) fn but(self, what: &str) -> Self {
        Self { mark: Mark::Bad, text: format!("{}, but {what}", self.text) }
    }

    /// Says what the peer makes of it all the same.
    pub(crate) fn but_by_peer(self, what: &str) -> Self {
        Self { mark: self.mark.max(Mark::Fault), text: format!("{}, but {what}", self.text) }
    }

    /// Puts two into one.
    pub(crate) fn both(one: Self, other: Self) -> Self {
        Self { mark: one.mark.max(other.mark), text: format!("{}, {}", one.text, other.text) }
    }

    fn shown(&self) -> String {
        let mark = match self.mark {
            Mark::Good => "✓",
            Mark::Fault => "–",
            Mark::Bad => "**✗**",
        };
        format!("{mark} {}", self.text.replace('|', "/").replace('\n', " "))
    }
}

/// What came of the script for one peer.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    way: Way,
    pub(crate) version: String,
    cells: BTreeMap<Column, Cell>,
    note: Option<String>,
}

impl Row {
    pub(crate) fn new(name: String, way: Way) -> Self {
        Self { name, way, version: String::new(), cells: BTreeMap::new(), note: None }
    }

    pub(crate) fn set(&mut self, column: Column, cell: Cell) {
        self.cells.insert(column, cell);
    }

    /// Changes the cells of some steps.
    pub(crate) fn alter(&mut self, columns: &[Column], change: impl Fn(Cell) -> Cell) {
        for column in columns {
            if let Some(cell) = self.cells.remove(column) {
                self.cells.insert(*column, change(cell));
            }
        }
    }

    /// Says which version it is, where the peer itself gives that of a program of ours or none.
    pub(crate) fn pinned(&mut self, version: Option<String>) {
        if let Some(version) = version {
            self.version = version;
        }
    }

    /// Says why the script ended early, or what is wrong with the row as a whole.
    pub(crate) fn note(&mut self, why: String) {
        self.note = Some(why);
    }

    /// Returns how many steps went wrong for a reason that is not known to be the peer's.
    pub(crate) fn open_questions(&self) -> usize {
        let bad = self.cells.values().filter(|cell| cell.mark == Mark::Bad).count();
        bad + usize::from(self.note.is_some())
    }

    /// Returns its line; `direct` is what it is called where no proxy is between.
    pub(crate) fn shown(&self, direct: &str) -> String {
        let way = match self.way {
            Way::Direct => direct,
            Way::Proxy => "behind the proxy",
        };
        let mut line = format!("| {} {} | {way} |", self.name, self.version);
        for column in Column::ALL {
            let cell = self.cells.get(&column).map_or_else(|| "n/a".to_owned(), Cell::shown);
            write!(line, " {cell} |").ok();
        }
        if let Some(note) = &self.note {
            write!(line, " **✗** {} |", note.replace('|', "/").replace('\n', " ")).ok();
        }
        line
    }
}

/// Says how often the user was asked.
pub(crate) fn questions(count: usize) -> String {
    match count {
        1 => "1 question".to_owned(),
        count => format!("{count} questions"),
    }
}

/// Says how often an agent asked for permission, whether or not anybody was asked.
pub(crate) fn requests(count: usize) -> String {
    match count {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    }
}

/// Returns what an error says: SDKs put the reason where few look.
pub(crate) fn error_text(error: &Value) -> String {
    let details = error["data"]["details"].as_str();
    let text = details.or_else(|| error["message"].as_str()).unwrap_or("no message");
    text.lines().next().unwrap_or_default().chars().take(100).collect()
}

/// Returns a table of rows, with those that are not installed.
pub(crate) fn table(rows: &[Row], direct: &str, missing: &[String]) -> String {
    let mut text = String::from("| peer | way |");
    for column in Column::ALL {
        write!(text, " {} |", column.title()).ok();
    }
    text += "\n|---|---|";
    text += &"---|".repeat(Column::ALL.len());
    text.push('\n');
    for row in rows {
        text += &row.shown(direct);
        text.push('\n');
    }
    if !missing.is_empty() {
        write!(text, "\nNot installed: {}.\n", missing.join(", ")).ok();
    }
    text
}
