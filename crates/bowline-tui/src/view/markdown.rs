//! Markdown as styled lines.
//!
//! An agent's text is shown in full: anything that is not Markdown is plain text, and markup without a rendering here
//! (HTML, images) is shown verbatim.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::wrap::{LineBreak, escape_line, escape_prose, wrap_spans};

/// The maximum indentation of lists and quotations, in levels: a text can nest them without end.
const MAX_INDENT: usize = 8;

/// Renders Markdown as lines of at most `width` columns, on top of a base style.
pub(crate) fn render_markdown(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut renderer = MarkdownRenderer::new(width, style);
    for event in Parser::new_ext(text, options) {
        renderer.handle_event(event);
    }
    renderer.finish()
}

/// The prefix of the lines of a list item or a quotation.
#[derive(Debug, Clone)]
enum BlockPrefix {
    Quote,
    /// An item: its marker, until it has been shown.
    ListItem {
        mark: Option<String>,
        width: usize,
    },
}

/// The state of a rendering.
struct MarkdownRenderer {
    width: usize,
    base: Style,
    lines: Vec<Line<'static>>,
    // The spans of the current paragraph.
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    prefixes: Vec<BlockPrefix>,
    // The open lists: the number of the next item, if they are ordered.
    lists: Vec<Option<u64>>,
    code: Option<String>,
    links: Vec<(String, usize)>,
    table: Option<MarkdownTable>,
    // Whether a blank line is needed before the next block.
    needs_gap: bool,
}

#[derive(Default)]
struct MarkdownTable {
    rows: Vec<Vec<Vec<Span<'static>>>>,
    header_rows: usize,
}

impl MarkdownRenderer {
    fn new(width: usize, base: Style) -> Self {
        Self {
            width: width.max(1),
            base,
            lines: Vec::new(),
            spans: Vec::new(),
            styles: Vec::new(),
            prefixes: Vec::new(),
            lists: Vec::new(),
            code: None,
            links: Vec::new(),
            table: None,
            needs_gap: false,
        }
    }

    fn current_style(&self) -> Style {
        self.styles.iter().fold(self.base, |style, next| style.patch(*next))
    }

    fn handle_event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start_tag(tag),
            Event::End(tag) => self.end_tag(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.push_prose(&text),
            },
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.push_text(&text, self.current_style().fg(Color::Cyan));
            }
            Event::Html(text) | Event::InlineHtml(text) | Event::FootnoteReference(text) => {
                let style = self.current_style().add_modifier(Modifier::DIM);
                for (index, line) in text.split('\n').enumerate() {
                    if index > 0 {
                        self.end_paragraph();
                    }
                    if !line.is_empty() {
                        self.push_text(line, style);
                    }
                }
            }
            Event::SoftBreak => self.push_text(" ", self.current_style()),
            Event::HardBreak => self.end_paragraph(),
            Event::Rule => {
                self.begin_block();
                self.push_text(
                    &"─".repeat(self.available_width().min(40)),
                    self.base.add_modifier(Modifier::DIM),
                );
                self.end_paragraph();
                self.needs_gap = true;
            }
            Event::TaskListMarker(done) => {
                self.push_text(if done { "[x] " } else { "[ ] " }, self.current_style());
            }
        }
    }

    fn start_tag(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.begin_block();
                self.styles.push(heading_style(level));
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.prefixes.push(BlockPrefix::Quote);
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                self.code = Some(String::new());
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    self.push_text(&language, self.base.add_modifier(Modifier::DIM));
                    self.end_paragraph();
                }
            }
            Tag::List(number) => {
                // A nested list continues its item.
                if self.lists.is_empty() {
                    self.begin_block();
                } else {
                    self.end_paragraph();
                }
                self.lists.push(number);
            }
            Tag::Item => {
                self.end_paragraph();
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let mark = format!("{number}. ");
                        *number = number.saturating_add(1);
                        mark
                    }
                    _ => "• ".to_owned(),
                };
                self.needs_gap = false;
                let width = mark.chars().count();
                self.prefixes.push(BlockPrefix::ListItem { mark: Some(mark), width });
            }
            Tag::Table(_) => {
                self.begin_block();
                self.table = Some(MarkdownTable::default());
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
            Tag::Paragraph => self.begin_block(),
            // Blocks without a rendering of their own start a new paragraph.
            _ => self.end_paragraph(),
        }
    }

    fn end_tag(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.end_paragraph();
                self.styles.pop();
                self.needs_gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.end_paragraph();
                self.prefixes.pop();
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => {
                let code = self.code.take().unwrap_or_default();
                let style = self.base.fg(Color::Cyan);
                for line in code.strip_suffix('\n').unwrap_or(&code).split('\n') {
                    self.spans.push(Span::styled(escape_line(line), style));
                    self.write_paragraph(
                        LineBreak::Anywhere,
                        &[Span::styled("│ ", self.base.add_modifier(Modifier::DIM))],
                    );
                }
                self.needs_gap = true;
            }
            TagEnd::List(_) => {
                self.end_paragraph();
                self.lists.pop();
                self.needs_gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                if matches!(self.prefixes.last(), Some(BlockPrefix::ListItem { mark: Some(_), .. })) {
                    // An empty item.
                    self.write_paragraph(LineBreak::Words, &[]);
                } else {
                    self.end_paragraph();
                }
                self.prefixes.pop();
                self.needs_gap = false;
            }
            TagEnd::Table => self.write_table(),
            TagEnd::TableHead => {
                if let Some(table) = &mut self.table {
                    table.header_rows = table.rows.len();
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
                let label: String = self.spans.iter().skip(from).map(|span| span.content.as_ref()).collect();
                let plain = address.strip_prefix("mailto:").unwrap_or(&address);
                if !address.is_empty() && label != plain {
                    self.push_text(
                        &format!(" ({address})"),
                        self.current_style().add_modifier(Modifier::DIM),
                    );
                }
            }
            TagEnd::Paragraph => {
                self.end_paragraph();
                self.needs_gap = true;
            }
            _ => self.end_paragraph(),
        }
    }

    fn push_prose(&mut self, text: &str) {
        self.spans.push(Span::styled(escape_prose(&text.replace('\n', " ")), self.current_style()));
    }

    fn push_text(&mut self, text: &str, style: Style) {
        self.spans.push(Span::styled(escape_line(&text.replace('\n', " ")), style));
    }

    /// Begins a block: ends the current paragraph and separates it.
    fn begin_block(&mut self) {
        self.end_paragraph();
        if std::mem::take(&mut self.needs_gap) && !self.lines.is_empty() {
            let (_, rest) = self.line_prefixes();
            self.lines.push(Line::from(rest));
        }
    }

    /// Ends the current paragraph, unless it is empty.
    fn end_paragraph(&mut self) {
        if !self.spans.is_empty() {
            self.write_paragraph(LineBreak::Words, &[]);
        }
    }

    fn available_width(&self) -> usize {
        let (_, rest) = self.line_prefixes();
        let prefix_width: usize = rest.iter().map(Span::width).sum();
        self.width.saturating_sub(prefix_width).max(1)
    }

    fn line_prefixes(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        let skipped = self.prefixes.len().saturating_sub(MAX_INDENT);
        for prefix in self.prefixes.iter().skip(skipped) {
            match prefix {
                BlockPrefix::Quote => {
                    let bar = Span::styled("▌ ", self.base.add_modifier(Modifier::DIM));
                    first.push(bar.clone());
                    rest.push(bar);
                }
                BlockPrefix::ListItem { mark, width } => {
                    let indent = " ".repeat(*width);
                    first.push(Span::styled(mark.clone().unwrap_or_else(|| indent.clone()), self.base));
                    rest.push(Span::styled(indent, self.base));
                }
            }
        }
        (first, rest)
    }

    /// Writes the collected spans as one paragraph.
    fn write_paragraph(&mut self, breaks: LineBreak, prefix: &[Span<'static>]) {
        let (mut first, mut rest) = self.line_prefixes();
        first.extend_from_slice(prefix);
        rest.extend_from_slice(prefix);
        let spans = std::mem::take(&mut self.spans);
        self.lines.extend(wrap_spans(&spans, self.width, breaks, &first, &rest));
        for block_prefix in &mut self.prefixes {
            if let BlockPrefix::ListItem { mark, .. } = block_prefix {
                *mark = None;
            }
        }
    }

    /// Writes a table: in columns if it fits, otherwise row by row.
    fn write_table(&mut self) {
        let Some(table) = self.table.take() else { return };
        let width_of = |cell: &[Span<'_>]| cell.iter().map(Span::width).sum::<usize>();
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0);
        let column_width = |index: usize| {
            table.rows.iter().filter_map(|row| row.get(index)).map(|cell| width_of(cell)).max()
        };
        let widths: Vec<usize> = (0..columns).map(|index| column_width(index).unwrap_or(0)).collect();
        let fits = widths.iter().sum::<usize>() + 3 * columns.saturating_sub(1) <= self.available_width();
        let dim_style = self.base.add_modifier(Modifier::DIM);
        for (row_number, row) in table.rows.iter().enumerate() {
            for (index, cell) in row.iter().enumerate() {
                if index > 0 {
                    self.spans.push(Span::styled(" │ ", dim_style));
                }
                let modifier =
                    if row_number < table.header_rows { Modifier::BOLD } else { Modifier::empty() };
                self.spans.extend(cell.iter().cloned().map(|span| {
                    let style = span.style.add_modifier(modifier);
                    span.style(style)
                }));
                if fits && index + 1 < row.len() {
                    let padding = widths.get(index).map_or(0, |width| width - width_of(cell));
                    self.spans.push(Span::styled(" ".repeat(padding), self.base));
                }
            }
            self.write_paragraph(if fits { LineBreak::Anywhere } else { LineBreak::Words }, &[]);
            if fits && row_number + 1 == table.header_rows {
                let line: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                self.spans.push(Span::styled(line.join("─┼─"), dim_style));
                self.write_paragraph(LineBreak::Anywhere, &[]);
            }
        }
        self.needs_gap = true;
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        if let Some(code) = self.code.take() {
            self.push_text(&code, self.base);
        }
        self.end_paragraph();
        self.lines
    }
}

fn heading_style(level: HeadingLevel) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    match level {
        HeadingLevel::H1 => style.fg(Color::Magenta).add_modifier(Modifier::UNDERLINED),
        HeadingLevel::H2 => style.fg(Color::Magenta),
        _ => style,
    }
}

#[cfg(test)]
mod tests;
