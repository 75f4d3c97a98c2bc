//! Markdown as styled lines.
//!
//! What an agent writes is shown in full: what is no markdown is text, and markup that has no look of its own here (HTML,
//! images) is shown as it was written.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::wrap::{Break, prose, safe, wrap};

/// Lists and quotations are indented so far at most, in levels: a text can nest them without end.
const MAX_INDENT: usize = 8;

/// Returns markdown as lines of at most `width` columns, on top of a style.
pub(crate) fn lines(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page::new(width, style);
    for event in Parser::new_ext(text, options) {
        page.take(event);
    }
    page.finish()
}

/// What begins the lines of a list item or a quotation.
#[derive(Debug, Clone)]
enum Level {
    Quote,
    /// An item: its mark, until it has been shown.
    Item {
        mark: Option<String>,
        width: usize,
    },
}

/// A page in the making.
struct Page {
    width: usize,
    base: Style,
    done: Vec<Line<'static>>,
    // What is being written: spans of one paragraph.
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    levels: Vec<Level>,
    // The lists that are open: the number of the next item, if they count.
    lists: Vec<Option<u64>>,
    code: Option<String>,
    links: Vec<(String, usize)>,
    table: Option<Table>,
    // Whether something is to be kept apart from what comes next.
    gap: bool,
}

#[derive(Default)]
struct Table {
    rows: Vec<Vec<Vec<Span<'static>>>>,
    heads: usize,
}

impl Page {
    fn new(width: usize, base: Style) -> Self {
        Self {
            width: width.max(1),
            base,
            done: Vec::new(),
            spans: Vec::new(),
            styles: Vec::new(),
            levels: Vec::new(),
            lists: Vec::new(),
            code: None,
            links: Vec::new(),
            table: None,
            gap: false,
        }
    }

    fn style(&self) -> Style {
        self.styles.iter().fold(self.base, |style, more| style.patch(*more))
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.prose(&text),
            },
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.text(&text, self.style().fg(Color::Cyan));
            }
            Event::Html(text) | Event::InlineHtml(text) | Event::FootnoteReference(text) => {
                let style = self.style().add_modifier(Modifier::DIM);
                for (at, line) in text.split('\n').enumerate() {
                    if at > 0 {
                        self.paragraph();
                    }
                    if !line.is_empty() {
                        self.text(line, style);
                    }
                }
            }
            Event::SoftBreak => self.text(" ", self.style()),
            Event::HardBreak => self.paragraph(),
            Event::Rule => {
                self.block();
                self.text(&"─".repeat(self.room().min(40)), self.base.add_modifier(Modifier::DIM));
                self.paragraph();
                self.gap = true;
            }
            Event::TaskListMarker(done) => {
                self.text(if done { "[x] " } else { "[ ] " }, self.style());
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.block();
                self.styles.push(heading(level));
            }
            Tag::BlockQuote(_) => {
                self.block();
                self.levels.push(Level::Quote);
            }
            Tag::CodeBlock(kind) => {
                self.block();
                self.code = Some(String::new());
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    self.text(&language, self.base.add_modifier(Modifier::DIM));
                    self.paragraph();
                }
            }
            Tag::List(number) => {
                // A list in an item goes on with it.
                if self.lists.is_empty() {
                    self.block();
                } else {
                    self.paragraph();
                }
                self.lists.push(number);
            }
            Tag::Item => {
                self.paragraph();
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let mark = format!("{number}. ");
                        *number = number.saturating_add(1);
                        mark
                    }
                    _ => "• ".to_owned(),
                };
                self.gap = false;
                let width = mark.chars().count();
                self.levels.push(Level::Item { mark: Some(mark), width });
            }
            Tag::Table(_) => {
                self.block();
                self.table = Some(Table::default());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::Emphasis => self.styles.push(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(Style::new().add_modifier(Modifier::BOLD)),
            Tag::Strikethrough => self.styles.push(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.to_string(), self.spans.len()));
                self.styles.push(Style::new().fg(Color::Blue).add_modifier(Modifier::UNDERLINED));
            }
            Tag::Paragraph => self.block(),
            // What has no look of its own begins anew.
            _ => self.paragraph(),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.paragraph();
                self.styles.pop();
                self.gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.paragraph();
                self.levels.pop();
                self.gap = true;
            }
            TagEnd::CodeBlock => {
                let code = self.code.take().unwrap_or_default();
                let style = self.base.fg(Color::Cyan);
                for line in code.strip_suffix('\n').unwrap_or(&code).split('\n') {
                    self.spans.push(Span::styled(safe(line), style));
                    self.write(Break::Anywhere, &[Span::styled("│ ", self.base.add_modifier(Modifier::DIM))]);
                }
                self.gap = true;
            }
            TagEnd::List(_) => {
                self.paragraph();
                self.lists.pop();
                self.gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                if matches!(self.levels.last(), Some(Level::Item { mark: Some(_), .. })) {
                    // An item with nothing in it.
                    self.write(Break::Words, &[]);
                } else {
                    self.paragraph();
                }
                self.levels.pop();
                self.gap = false;
            }
            TagEnd::Table => self.end_table(),
            TagEnd::TableHead => {
                if let Some(table) = &mut self.table {
                    table.heads = table.rows.len();
                }
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                let Some((address, from)) = self.links.pop() else { return };
                let shown: String = self.spans.iter().skip(from).map(|span| span.content.as_ref()).collect();
                let plain = address.strip_prefix("mailto:").unwrap_or(&address);
                if !address.is_empty() && shown != plain {
                    self.text(&format!(" ({address})"), self.style().add_modifier(Modifier::DIM));
                }
            }
            TagEnd::Paragraph => {
                self.paragraph();
                self.gap = true;
            }
            _ => self.paragraph(),
        }
    }

    fn prose(&mut self, text: &str) {
        self.spans.push(Span::styled(prose(&text.replace('\n', " ")), self.style()));
    }

    fn text(&mut self, text: &str, style: Style) {
        self.spans.push(Span::styled(safe(&text.replace('\n', " ")), style));
    }

    /// Begins a block: what was written ends, and is kept apart from it.
    fn block(&mut self) {
        self.paragraph();
        if std::mem::take(&mut self.gap) && !self.done.is_empty() {
            let (_, rest) = self.prefixes();
            self.done.push(Line::from(rest));
        }
    }

    /// Ends what is written, if it is anything.
    fn paragraph(&mut self) {
        if !self.spans.is_empty() {
            self.write(Break::Words, &[]);
        }
    }

    fn room(&self) -> usize {
        let (_, rest) = self.prefixes();
        let taken: usize = rest.iter().map(Span::width).sum();
        self.width.saturating_sub(taken).max(1)
    }

    fn prefixes(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        let skipped = self.levels.len().saturating_sub(MAX_INDENT);
        for level in self.levels.iter().skip(skipped) {
            match level {
                Level::Quote => {
                    let bar = Span::styled("▌ ", self.base.add_modifier(Modifier::DIM));
                    first.push(bar.clone());
                    rest.push(bar);
                }
                Level::Item { mark, width } => {
                    let blank = " ".repeat(*width);
                    first.push(Span::styled(mark.clone().unwrap_or_else(|| blank.clone()), self.base));
                    rest.push(Span::styled(blank, self.base));
                }
            }
        }
        (first, rest)
    }

    /// Writes what is gathered as one paragraph.
    fn write(&mut self, breaks: Break, before: &[Span<'static>]) {
        let (mut first, mut rest) = self.prefixes();
        first.extend_from_slice(before);
        rest.extend_from_slice(before);
        let spans = std::mem::take(&mut self.spans);
        self.done.extend(wrap(&spans, self.width, breaks, &first, &rest));
        for level in &mut self.levels {
            if let Level::Item { mark, .. } = level {
                *mark = None;
            }
        }
    }

    /// Writes a table: in columns if it fits, and row by row if it does not.
    fn end_table(&mut self) {
        let Some(table) = self.table.take() else { return };
        let width_of = |cell: &[Span<'_>]| cell.iter().map(Span::width).sum::<usize>();
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0);
        let column =
            |at: usize| table.rows.iter().filter_map(|row| row.get(at)).map(|cell| width_of(cell)).max();
        let widths: Vec<usize> = (0..columns).map(|at| column(at).unwrap_or(0)).collect();
        let fits = widths.iter().sum::<usize>() + 3 * columns.saturating_sub(1) <= self.room();
        let faint = self.base.add_modifier(Modifier::DIM);
        for (number, row) in table.rows.iter().enumerate() {
            for (at, cell) in row.iter().enumerate() {
                if at > 0 {
                    self.spans.push(Span::styled(" │ ", faint));
                }
                let head = if number < table.heads { Modifier::BOLD } else { Modifier::empty() };
                self.spans.extend(cell.iter().cloned().map(|span| {
                    let style = span.style.add_modifier(head);
                    span.style(style)
                }));
                if fits && at + 1 < row.len() {
                    let padding = widths.get(at).map_or(0, |width| width - width_of(cell));
                    self.spans.push(Span::styled(" ".repeat(padding), self.base));
                }
            }
            self.write(if fits { Break::Anywhere } else { Break::Words }, &[]);
            if fits && number + 1 == table.heads {
                let line: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                self.spans.push(Span::styled(line.join("─┼─"), faint));
                self.write(Break::Anywhere, &[]);
            }
        }
        self.gap = true;
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        if let Some(code) = self.code.take() {
            self.text(&code, self.base);
        }
        self.paragraph();
        self.done
    }
}

fn heading(level: HeadingLevel) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    match level {
        HeadingLevel::H1 => style.fg(Color::Magenta).add_modifier(Modifier::UNDERLINED),
        HeadingLevel::H2 => style.fg(Color::Magenta),
        _ => style,
    }
}

#[cfg(test)]
mod tests;
