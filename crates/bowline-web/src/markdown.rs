//! Markdown as a tree of known elements, for a page that builds its elements from values.
//!
//! Whatever a model writes, the tree has only the elements and attributes of [`TAGS`] and [`ATTRIBUTES`]: HTML is shown
//! as text, links lead only to web pages and mail addresses, and an image becomes a link, so that nothing is loaded
//! from elsewhere. Each block says where it stands in the text: a page that streams sends only the text from the start
//! of its last block.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// The elements of a tree.
pub const TAGS: [&str; 25] = [
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong",
    "del", "a", "table", "thead", "tbody", "tr", "th", "td", "hr", "br",
];
/// The element of a task in a list, which has no content.
pub const TASK_TAG: &str = "input";
/// The attributes of a tree.
pub const ATTRIBUTES: [&str; 5] = ["href", "lang", "checked", "align", "start"];

/// The deepest nesting; what is deeper stands in the last element.
const MAX_DEPTH: usize = 32;
/// The longest name of a code block's language.
const MAX_LANGUAGE_CHARS: usize = 32;
/// The longest address of a link, in bytes.
const MAX_LINK_BYTES: usize = 4096;

/// A part of a tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Text.
    Text(String),
    /// An element.
    Element {
        /// Its name, one of [`TAGS`] or [`TASK_TAG`].
        tag: &'static str,
        /// Its attributes, of [`ATTRIBUTES`].
        attributes: Map<String, Value>,
        /// Its content.
        children: Vec<Node>,
    },
}

/// One block of a text.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Block {
    /// Where it starts in the text, in UTF-16 units.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Its content.
    pub node: Node,
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Element { tag, attributes, children } => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("t", tag)?;
                if !attributes.is_empty() {
                    map.serialize_entry("a", attributes)?;
                }
                if !children.is_empty() {
                    map.serialize_entry("c", children)?;
                }
                map.end()
            }
        }
    }
}

/// Parses a text.
#[must_use]
pub fn parse(text: &str) -> Vec<Block> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut tree = TreeBuilder::default();
    let mut blocks = Vec::new();
    let mut units = Utf16Offsets { text, byte: 0, units: 0 };
    let mut start = 0;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        if tree.is_at_top() {
            start = range.start;
        }
        tree.add(event);
        if tree.is_at_top() {
            let (start, end) = (units.at(start), units.at(range.end));
            blocks.extend(tree.take().into_iter().map(|node| Block { start, end, node }));
        }
    }
    blocks
}

/// Turns increasing offsets in bytes into offsets in UTF-16 units.
struct Utf16Offsets<'t> {
    text: &'t str,
    byte: usize,
    units: usize,
}

impl Utf16Offsets<'_> {
    fn at(&mut self, byte: usize) -> usize {
        let between = self.text.get(self.byte..byte).unwrap_or_default();
        self.units += between.encode_utf16().count();
        self.byte = self.byte.max(byte);
        self.units
    }
}

/// An element whose end has not come yet.
#[derive(Debug)]
struct OpenElement {
    // `None` for markup that has no element: its content belongs to the element around it.
    tag: Option<&'static str>,
    attributes: Map<String, Value>,
    children: Vec<Node>,
}

/// Builds the tree from the parser's events.
#[derive(Debug, Default)]
struct TreeBuilder {
    open: Vec<OpenElement>,
    done: Vec<Node>,
    alignments: Vec<Alignment>,
    column: usize,
    is_in_head: bool,
}

impl TreeBuilder {
    fn is_at_top(&self) -> bool {
        self.open.is_empty()
    }

    fn take(&mut self) -> Vec<Node> {
        std::mem::take(&mut self.done)
    }

    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(end),
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => self.push_text(&text),
            Event::Code(text) => {
                let children = vec![Node::Text(text.into_string())];
                self.push(Node::Element { tag: "code", attributes: Map::new(), children });
            }
            Event::SoftBreak => self.push_text("\n"),
            Event::HardBreak => self.push_empty("br"),
            Event::Rule => self.push_empty("hr"),
            Event::TaskListMarker(is_done) => {
                let attributes = attribute("checked", is_done);
                self.push(Node::Element { tag: TASK_TAG, attributes, children: Vec::new() });
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let plain = |tag| (Some(tag), Map::new());
        let (tag, attributes) = match tag {
            Tag::Paragraph | Tag::HtmlBlock => plain("p"),
            // The levels are numbered from 1.
            Tag::Heading { level, .. } => plain(TAGS.get(level as usize).copied().unwrap_or("h6")),
            Tag::BlockQuote(_) => plain("blockquote"),
            Tag::CodeBlock(kind) => (Some("pre"), language(&kind)),
            Tag::List(None) => plain("ul"),
            Tag::List(Some(first)) => (Some("ol"), attribute("start", first)),
            Tag::Item => plain("li"),
            Tag::Emphasis => plain("em"),
            Tag::Strong => plain("strong"),
            Tag::Strikethrough => plain("del"),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => link(&dest_url),
            Tag::Table(alignments) => {
                self.alignments = alignments;
                plain("table")
            }
            Tag::TableHead => {
                (self.is_in_head, self.column) = (true, 0);
                self.open("thead", Map::new());
                plain("tr")
            }
            Tag::TableRow => {
                self.column = 0;
                plain("tr")
            }
            Tag::TableCell => {
                let attributes = align(self.alignments.get(self.column));
                self.column += 1;
                (Some(if self.is_in_head { "th" } else { "td" }), attributes)
            }
            // Markup that is not enabled, or has no element here.
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => (None, Map::new()),
        };
        match tag.filter(|_| self.open.len() < MAX_DEPTH) {
            Some(tag) => self.open(tag, attributes),
            None => self.open.push(OpenElement { tag: None, attributes: Map::new(), children: Vec::new() }),
        }
    }

    fn open(&mut self, tag: &'static str, attributes: Map<String, Value>) {
        self.open.push(OpenElement { tag: Some(tag), attributes, children: Vec::new() });
    }

    fn end(&mut self, end: TagEnd) {
        if end == TagEnd::Table
            && let Some(table) = self.open.last_mut()
            && table.children.len() > 1
        {
            let children = table.children.split_off(1);
            table.children.push(Node::Element { tag: "tbody", attributes: Map::new(), children });
        }
        self.close();
        if end == TagEnd::TableHead {
            self.is_in_head = false;
            self.close();
        }
    }

    fn close(&mut self) {
        let Some(OpenElement { tag, attributes, children }) = self.open.pop() else { return };
        match tag {
            Some(tag) => self.push(Node::Element { tag, attributes, children }),
            None => children.into_iter().for_each(|child| self.push(child)),
        }
    }

    fn push(&mut self, node: Node) {
        match (self.open.last_mut(), node) {
            (Some(open), Node::Text(text)) => match open.children.last_mut() {
                Some(Node::Text(before)) => before.push_str(&text),
                _ => open.children.push(Node::Text(text)),
            },
            (Some(open), node) => open.children.push(node),
            (None, node) => self.done.push(node),
        }
    }

    fn push_text(&mut self, text: &str) {
        self.push(Node::Text(text.to_owned()));
    }

    fn push_empty(&mut self, tag: &'static str) {
        self.push(Node::Element { tag, attributes: Map::new(), children: Vec::new() });
    }
}

fn attribute(name: &str, value: impl Into<Value>) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value.into())])
}

fn align(alignment: Option<&Alignment>) -> Map<String, Value> {
    match alignment {
        None | Some(Alignment::None) => Map::new(),
        Some(Alignment::Left) => attribute("align", "left"),
        Some(Alignment::Center) => attribute("align", "center"),
        Some(Alignment::Right) => attribute("align", "right"),
    }
}

/// Returns the language of a code block, if it is a plain word.
fn language(kind: &CodeBlockKind<'_>) -> Map<String, Value> {
    let CodeBlockKind::Fenced(info) = kind else { return Map::new() };
    let word = info.split([' ', ',', '\t']).next().unwrap_or_default();
    let is_plain = |word: &str| {
        word.chars().count() <= MAX_LANGUAGE_CHARS
            && word.chars().all(|char| char.is_ascii_alphanumeric() || "+#._-".contains(char))
    };
    if word.is_empty() || !is_plain(word) { Map::new() } else { attribute("lang", word) }
}

/// Returns the element of a link; none if it does not lead to a web page or a mail address.
fn link(address: &str) -> (Option<&'static str>, Map<String, Value>) {
    let has_scheme =
        |scheme: &str| address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    let is_plain = address.len() <= MAX_LINK_BYTES
        && !address.chars().any(|char| char.is_control() || char.is_whitespace());
    if is_plain && ["https://", "http://", "mailto:"].iter().any(|scheme| has_scheme(scheme)) {
        (Some("a"), attribute("href", address))
    } else {
        (None, Map::new())
    }
}
