//! The results of the script, as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::agents::ToolRoute;

/// A step of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MatrixColumn {
    UnsavedRead,
    Edit,
    NewFile,
    Command,
    Cancel,
    Sessions,
    Leftovers,
}

impl MatrixColumn {
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

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CellMark {
    /// As expected.
    Good,
    /// Failed because of the peer.
    PeerFault,
    /// Failed for an unknown reason.
    Unexplained,
}

/// The cell of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MatrixCell {
    mark: CellMark,
    text: String,
}

impl MatrixCell {
    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self { mark: CellMark::Good, text: text.into() }
    }

    pub(crate) fn peer_fault(text: impl Into<String>) -> Self {
        Self { mark: CellMark::PeerFault, text: text.into() }
    }

    pub(crate) fn unexplained(text: impl Into<String>) -> Self {
        Self { mark: CellMark::Unexplained, text: text.into() }
    }

    /// Appends a detail to the text.
    pub(crate) fn with_detail(mut self, more: &str) -> Self {
        write!(self.text, ", {more}").ok();
        self
    }

    /// Appends a problem of unknown cause.
    pub(crate) fn with_problem(self, what: &str) -> Self {
        Self { mark: CellMark::Unexplained, text: format!("{}, but {what}", self.text) }
    }

    /// Appends a problem caused by the peer.
    pub(crate) fn with_peer_fault(self, what: &str) -> Self {
        Self { mark: self.mark.max(CellMark::PeerFault), text: format!("{}, but {what}", self.text) }
    }

    /// Names the peer's fault that explains a failure, if this is one.
    pub(crate) fn explain_failure(self, fault: &str) -> Self {
        match self.mark {
            CellMark::Unexplained => Self::peer_fault(format!("{}: {fault}", self.text)),
            CellMark::Good | CellMark::PeerFault => self,
        }
    }

    /// Combines two cells.
    pub(crate) fn combine(one: Self, other: Self) -> Self {
        Self { mark: one.mark.max(other.mark), text: format!("{}, {}", one.text, other.text) }
    }

    fn to_text(&self) -> String {
        let mark = match self.mark {
            CellMark::Good => "✓",
            CellMark::PeerFault => "–",
            CellMark::Unexplained => "**✗**",
        };
        format!("{mark} {}", self.text.replace('|', "/").replace('\n', " "))
    }
}

/// The row of one peer.
#[derive(Debug)]
pub(crate) struct MatrixRow {
    pub(crate) name: String,
    route: ToolRoute,
    pub(crate) version: String,
    cells: BTreeMap<MatrixColumn, MatrixCell>,
    note: Option<String>,
}

impl MatrixRow {
    pub(crate) fn new(name: String, way: ToolRoute) -> Self {
        Self { name, route: way, version: String::new(), cells: BTreeMap::new(), note: None }
    }

    pub(crate) fn set_cell(&mut self, column: MatrixColumn, cell: MatrixCell) {
        self.cells.insert(column, cell);
    }

    /// Changes the cells of some steps.
    pub(crate) fn map_cells(&mut self, columns: &[MatrixColumn], change: impl Fn(MatrixCell) -> MatrixCell) {
        for column in columns {
            if let Some(cell) = self.cells.remove(column) {
                self.cells.insert(*column, change(cell));
            }
        }
    }

    /// Sets the version, for peers that report none, or that of a program of ours.
    pub(crate) fn set_pinned_version(&mut self, version: Option<String>) {
        if let Some(version) = version {
            self.version = version;
        }
    }

    /// Sets the reason why the script ended early, or a problem of the whole row.
    pub(crate) fn set_note(&mut self, why: String) {
        self.note = Some(why);
    }

    /// Returns the number of steps that failed for a reason not known to be the peer's.
    pub(crate) fn unexplained_count(&self) -> usize {
        let bad = self.cells.values().filter(|cell| cell.mark == CellMark::Unexplained).count();
        bad + usize::from(self.note.is_some())
    }

    /// Formats the row; `direct` is the route's name without a proxy.
    pub(crate) fn to_line(&self, direct: &str) -> String {
        let way = match self.route {
            ToolRoute::Direct => direct,
            ToolRoute::Proxy => "behind the proxy",
        };
        let mut line = format!("| {} {} | {way} |", self.name, self.version);
        for column in MatrixColumn::ALL {
            let cell = self.cells.get(&column).map_or_else(|| "n/a".to_owned(), MatrixCell::to_text);
            write!(line, " {cell} |").ok();
        }
        if let Some(note) = &self.note {
            write!(line, " **✗** {} |", note.replace('|', "/").replace('\n', " ")).ok();
        }
        line
    }
}

/// Formats the number of questions to the user.
pub(crate) fn format_questions(count: usize) -> String {
    match count {
        1 => "1 question".to_owned(),
        count => format!("{count} questions"),
    }
}

/// Formats the number of an agent's permission requests, including those that reached no user.
pub(crate) fn format_requests(count: usize) -> String {
    match count {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    }
}

/// Returns the message of an error. SDKs put the reason into `data.details`.
pub(crate) fn error_text(error: &Value) -> String {
    let details = error["data"]["details"].as_str();
    let text = details.or_else(|| error["message"].as_str()).unwrap_or("no message");
    text.lines().next().unwrap_or_default().chars().take(100).collect()
}

/// Formats a table of rows, followed by the peers that did not run.
pub(crate) fn format_table(rows: &[MatrixRow], direct: &str, missing: &[String]) -> String {
    let mut text = String::from("| peer | way |");
    for column in MatrixColumn::ALL {
        write!(text, " {} |", column.title()).ok();
    }
    text += "\n|---|---|";
    text += &"---|".repeat(MatrixColumn::ALL.len());
    text.push('\n');
    for row in rows {
        text += &row.to_line(direct);
        text.push('\n');
    }
    if !missing.is_empty() {
        write!(text, "\nNot run: {}.\n", missing.join("; ")).ok();
    }
    text
}
