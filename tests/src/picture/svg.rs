//! A terminal's screen as SVG: a window with one `<text>` for each run of equal style, without symbols and wide gaps.

use std::ops::Range;

use avt::{Cell, Color, Rgb};

/// The size of a cell, which is that of a character in most monospace fonts.
const FONT_SIZE: f64 = 14.0;
const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: f64 = 18.0;

/// From the top of a cell to the line on which letters stand.
const BASELINE: f64 = 13.5;

/// The space around the cells, and the bar above them.
const PADDING: f64 = 14.0;
const TITLE_BAR: f64 = 34.0;

/// The radius of the window's corners.
const RADIUS: f64 = 10.0;

/// The first of these fonts that the reader has.
const FONTS: &str =
    "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace";

const FOREGROUND: Rgb = Rgb::new(0xd1, 0xd7, 0xe0);
const BACKGROUND: Rgb = Rgb::new(0x15, 0x1b, 0x23);
const BAR: Rgb = Rgb::new(0x21, 0x28, 0x30);
const FRAME: Rgb = Rgb::new(0x3d, 0x44, 0x4d);
const BUTTONS: [Rgb; 3] =
    [Rgb::new(0xff, 0x5f, 0x57), Rgb::new(0xfe, 0xbc, 0x2e), Rgb::new(0x28, 0xc8, 0x40)];

/// The sixteen colours that a terminal's palette defines, in the order of their numbers.
const PALETTE: [Rgb; 16] = [
    Rgb::new(0x2f, 0x37, 0x42),
    Rgb::new(0xff, 0x7b, 0x72),
    Rgb::new(0x56, 0xd3, 0x64),
    Rgb::new(0xe3, 0xb3, 0x41),
    Rgb::new(0x79, 0xc0, 0xff),
    Rgb::new(0xd2, 0xa8, 0xff),
    Rgb::new(0x56, 0xd4, 0xdd),
    Rgb::new(0xd1, 0xd7, 0xe0),
    Rgb::new(0x65, 0x6c, 0x76),
    Rgb::new(0xff, 0xa1, 0x98),
    Rgb::new(0x7e, 0xe7, 0x87),
    Rgb::new(0xf2, 0xcc, 0x60),
    Rgb::new(0xa5, 0xd6, 0xff),
    Rgb::new(0xe2, 0xc5, 0xff),
    Rgb::new(0xb3, 0xf0, 0xff),
    Rgb::new(0xff, 0xff, 0xff),
];

/// A cell of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenCell {
    /// Its character.
    pub character: char,
    style: CellStyle,
}

impl ScreenCell {
    /// Returns a cell of the same style with another character.
    #[must_use]
    pub fn with_character(self, character: char) -> Self {
        Self { character, ..self }
    }

    /// Returns whether many fonts lack the character: it is a line, a shape or a sign. Such a character would change the
    /// width, and with some readers the font, of the text that it stands in.
    fn is_symbol(self) -> bool {
        self.character >= '\u{2500}'
    }
}

impl From<&Cell> for ScreenCell {
    fn from(cell: &Cell) -> Self {
        let pen = cell.pen();
        let mut foreground = pen.foreground().map_or(FOREGROUND, to_rgb);
        let mut background = pen.background().map(to_rgb);
        if pen.is_inverse() {
            (foreground, background) = (background.unwrap_or(BACKGROUND), Some(foreground));
        }
        if pen.is_faint() {
            foreground = blend(foreground, background.unwrap_or(BACKGROUND));
        }
        let style = CellStyle {
            foreground,
            background,
            is_bold: pen.is_bold(),
            is_italic: pen.is_italic(),
            is_underlined: pen.is_underline(),
        };
        Self { character: cell.char(), style }
    }
}

/// The style of a cell, with its colours resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CellStyle {
    foreground: Rgb,
    background: Option<Rgb>,
    is_bold: bool,
    is_italic: bool,
    is_underlined: bool,
}

/// Draws rows of equal length in a window with a title.
pub fn draw_window(rows: &[Vec<ScreenCell>], title: &str) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = (to_length(columns, CELL_WIDTH) + 2.0 * PADDING).round();
    let height = TITLE_BAR + to_length(rows.len(), CELL_HEIGHT) + 2.0 * PADDING;
    // The outline is half a pixel inside the picture, where its line is sharp and not cut off.
    let (right, bottom) = (width - 1.0, height - 1.0);
    let outline = format!(r#"<rect x="0.5" y="0.5" width="{right}" height="{bottom}" rx="{RADIUS}""#);
    let (middle, corner) = (TITLE_BAR / 2.0, width - 0.5 - RADIUS);
    let arc = format!("a{RADIUS} {RADIUS} 0 0 1 {RADIUS}");
    let (background, bar, frame) = (to_hex(BACKGROUND), to_hex(BAR), to_hex(FRAME));
    let title = escape(title);

    let mut lines = vec![
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">"#
        ),
        format!("<title>{title}</title>"),
        format!(r#"{outline} fill="{background}"/>"#),
        format!(
            r#"<path d="M0.5 {TITLE_BAR}V{}{arc} -{RADIUS}H{corner}{arc} {RADIUS}V{TITLE_BAR}z" fill="{bar}"/>"#,
            RADIUS + 0.5
        ),
    ];
    lines.extend(
        BUTTONS
            .iter()
            .zip([20, 40, 60])
            .map(|(color, x)| format!(r#"<circle cx="{x}" cy="{middle}" r="6" fill="{}"/>"#, to_hex(*color))),
    );
    lines.push(format!(r#"<g font-family="{FONTS}" font-size="{FONT_SIZE}">"#));
    lines.push(format!(
        r#"<text x="{}" y="{}" text-anchor="middle" fill="{}">{title}</text>"#,
        width / 2.0,
        middle + 5.0,
        to_hex(blend(FOREGROUND, BAR))
    ));
    for (at, row) in rows.iter().enumerate() {
        lines.extend(draw_row(row, TITLE_BAR + PADDING + to_length(at, CELL_HEIGHT)));
    }
    lines.push("</g>".to_owned());
    // Over the bar.
    lines.push(format!(r#"{outline} fill="none" stroke="{frame}"/>"#));
    lines.push("</svg>\n".to_owned());
    lines.join("\n")
}

/// Draws one row with its upper edge at `top`, and returns its elements.
pub fn draw_row(row: &[ScreenCell], top: f64) -> Vec<String> {
    let mut elements = Vec::new();
    let mut column = 0;
    for run in row.chunk_by(|one, next| one.style == next.style) {
        elements.extend(draw_background(run, column, top));
        for text in run.chunk_by(|one, next| one.is_symbol() == next.is_symbol()) {
            elements.extend(draw_text(text, column, top));
            column += text.len();
        }
    }
    elements
}

/// Draws the background of a run, unless it is that of the window.
fn draw_background(run: &[ScreenCell], column: usize, top: f64) -> Option<String> {
    let fill = to_hex(run[0].style.background?);
    let (x, width) = (to_x(column), to_length(run.len(), CELL_WIDTH));
    Some(format!(r#"<rect x="{x:.1}" y="{top}" width="{width:.1}" height="{CELL_HEIGHT}" fill="{fill}"/>"#))
}

/// Draws the text of a run, in pieces without wide gaps: not every reader keeps several spaces as they are.
fn draw_text(run: &[ScreenCell], column: usize, top: f64) -> Vec<String> {
    let CellStyle { foreground, is_bold, is_italic, is_underlined, .. } = run[0].style;
    let mut attributes = format!(r#"fill="{}""#, to_hex(foreground));
    for (is_set, attribute) in [
        (is_bold, r#" font-weight="bold""#),
        (is_italic, r#" font-style="italic""#),
        (is_underlined, r#" text-decoration="underline""#),
    ] {
        attributes += if is_set { attribute } else { "" };
    }
    let draw_piece = |piece: Range<usize>| {
        let (x, y) = (to_x(column + piece.start), top + BASELINE);
        // The length keeps columns in line where the font is wider or narrower, or a character comes from another font.
        let length = to_length(piece.len(), CELL_WIDTH);
        let text: String = run[piece].iter().map(|cell| cell.character).collect();
        let text = escape(&text);
        format!(
            r#"<text x="{x:.1}" y="{y}" textLength="{length:.1}" lengthAdjust="spacingAndGlyphs" {attributes}>{text}</text>"#
        )
    };
    find_runs(run, 1, |character| character != ' ').into_iter().map(draw_piece).collect()
}

/// Returns where characters are that meet a condition, with gaps between them of at most `max_gap` others.
pub(super) fn find_runs(
    cells: &[ScreenCell],
    max_gap: usize,
    is_part: impl Fn(char) -> bool,
) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in cells.iter().enumerate().filter(|(_, cell)| is_part(cell.character)) {
        match runs.last_mut() {
            Some(run) if at - run.end <= max_gap => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

fn to_x(column: usize) -> f64 {
    PADDING + to_length(column, CELL_WIDTH)
}

fn to_length(count: usize, size: f64) -> f64 {
    f64::from(u32::try_from(count).expect("a screen is small")) * size
}

/// Returns the colour that a terminal shows for a number of its palette: after the sixteen, a cube and shades of grey.
fn to_rgb(color: Color) -> Rgb {
    let index = match color {
        Color::RGB(rgb) => return rgb,
        Color::Indexed(index) => index,
    };
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    match index {
        0..16 => PALETTE[usize::from(index)],
        16..232 => {
            let index = index - 16;
            Rgb::new(level(index / 36), level(index / 6 % 6), level(index % 6))
        }
        232.. => {
            let grey = 8 + 10 * (index - 232);
            Rgb::new(grey, grey, grey)
        }
    }
}

/// Returns a dim colour: three parts of a colour, two of its background.
fn blend(foreground: Rgb, background: Rgb) -> Rgb {
    let mix = |one: u8, other: u8| {
        u8::try_from((u16::from(one) * 3 + u16::from(other) * 2) / 5).expect("between the two")
    };
    Rgb::new(
        mix(foreground.r, background.r),
        mix(foreground.g, background.g),
        mix(foreground.b, background.b),
    )
}

fn to_hex(color: Rgb) -> String {
    format!("#{:02x}{:02x}{:02x}", color.r, color.g, color.b)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
