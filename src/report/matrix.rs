//! Tables without borders. Comfy-table arranges them; they split into column blocks if the terminal is too narrow.
//! Colours are added last, so that escape codes never count as width.

use comfy_table::{CellAlignment, ContentArrangement, presets};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::escape::clean;
use super::paint::Paint;
use super::wrap::wrap;
use model::placement::Pair;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    pub paint: Paint,
    /// Share of the possible value, in per cent. Drawn as a shade if there are enough colours.
    pub share: Option<u8>,
    /// The whole text where `text` is cut; pages unfold it.
    pub whole: Option<String>,
}

impl Cell {
    pub fn new(text: impl AsRef<str>, paint: Paint) -> Self {
        Self { text: clean(text.as_ref()).into_owned(), paint, share: None, whole: None }
    }

    /// Returns a cell of a text, cut to this number of characters.
    pub fn cut(text: &str, most: usize) -> Self {
        let whole = Self::new(text, Paint::Plain);
        if whole.text.chars().count() <= most {
            return whole;
        }
        let short: String = whole.text.chars().take(most.saturating_sub(2)).collect();
        Self { text: format!("{short} …"), whole: Some(whole.text), ..Self::default() }
    }

    /// Returns the cell with its share of the possible value, in per cent.
    pub fn with_share(self, percent: Option<f64>) -> Self {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped; what is no number is 0"
        )]
        let share = percent.map(|percent| percent.clamp(0.0, 100.0) as u8);
        Self { share, ..self }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Paint::Plain)
    }
}

/// The alignment of a column's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A table. The first column repeats at the left of every block it is split into.
#[derive(Debug, Clone)]
pub struct Table {
    /// Number of caption rows at the top.
    pub head: usize,
    pub align: Vec<Align>,
    pub rows: Vec<Vec<Cell>>,
}

/// Least columns of a label that is cut into lines; chosen.
const SHORTEST_LABEL: usize = 16;

/// Columns between two columns of a table.
const GAP: usize = 2;

impl Table {
    /// Creates a table of words.
    pub fn of_words(columns: usize) -> Self {
        Self { head: 0, align: vec![Align::Left; columns], rows: Vec::new() }
    }

    /// Creates a table with `columns` columns: one of words, the others of figures.
    pub fn of_figures(columns: usize) -> Self {
        let mut table = Self::of_words(columns);
        table.align[1..].fill(Align::Right);
        table
    }

    /// Adds a row of captions or figures; missing cells stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<_> = cells.into_iter().take(self.align.len()).collect();
        row.resize_with(self.align.len(), Cell::default);
        self.rows.push(row);
    }

    /// Adds a row of captions, above all others.
    pub fn head_row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.row(cells);
        self.head += 1;
    }

    /// Adds a row of captions in words, above all others.
    pub fn captions<'a>(&mut self, captions: impl IntoIterator<Item = &'a str>) {
        self.head_row(captions.into_iter().map(|caption| Cell::new(caption, Paint::Faint)));
    }

    fn column_width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row[column].text.width()).max().unwrap_or(0)
    }

    /// Returns the table in blocks of lines. Each block is at most `width` columns wide if a label and one column fit
    /// at all.
    pub fn render(&self, width: usize, color: bool) -> Vec<Vec<String>> {
        let widths: Vec<_> =
            (0..self.align.len()).map(|column| self.column_width(column)).collect();
        let blocks = |gap| self.blocks(&widths, gap, width);
        // A tighter table in one piece reads better than a loose one in two.
        let (gap, blocks) = match blocks(GAP) {
            loose if loose.len() == 1 => (GAP, loose),
            loose => match blocks(1) {
                tight if tight.len() == 1 => (1, tight),
                _ => match self.with_shorter_labels(&widths, width) {
                    Some(shorter) if shorter.column_width(0) < widths[0] => {
                        return shorter.render(width, color);
                    }
                    _ => (GAP, loose),
                },
            },
        };
        blocks.iter().map(|columns| self.block(columns, &widths, gap, color)).collect()
    }

    /// Returns the table with its labels in several lines, so that no column of figures goes to another block. Returns
    /// `None` if the labels cannot give enough room.
    fn with_shorter_labels(&self, widths: &[usize], width: usize) -> Option<Self> {
        let figures: usize = widths.get(1..)?.iter().map(|width| width + 1).sum();
        // If not all columns fit beside a short label, the widest must.
        let widest = widths.iter().skip(1).max().map_or(0, |width| width + GAP);
        let rooms = [figures, widest].map(|beside| width.saturating_sub(beside));
        let is_enough = |room: &usize| (SHORTEST_LABEL..widths[0]).contains(room);
        let all_fit = Some(rooms[0]).filter(is_enough);
        let room = all_fit.or_else(|| Some(rooms[1]).filter(is_enough))?;
        let mut shorter = Self { rows: Vec::new(), ..self.clone() };
        for (number, row) in self.rows.iter().enumerate() {
            let label = &row[0];
            let indent = label.text.len() - label.text.trim_start().len();
            for (line, text) in
                wrap(label.text.trim_start(), room, indent, indent + 2).into_iter().enumerate()
            {
                let cells = row.iter().skip(1).filter(|_| line == 0).cloned();
                shorter.row([Cell { text, ..label.clone() }].into_iter().chain(cells));
                shorter.head += usize::from(line > 0 && number < self.head);
            }
        }
        Some(shorter)
    }

    /// Returns the columns of each block, spread evenly.
    fn blocks(&self, widths: &[usize], gap: usize, width: usize) -> Vec<Vec<usize>> {
        let room = width.saturating_sub(widths[0]);
        let split = |most: usize| {
            let mut blocks: Vec<Vec<usize>> = Vec::new();
            let mut used = usize::MAX;
            for (column, column_width) in widths.iter().enumerate().skip(1) {
                let needed = column_width + gap;
                match blocks.last_mut() {
                    Some(block) if used + needed <= room && block.len() < most => {
                        block.push(column);
                        used += needed;
                    }
                    _ => {
                        blocks.push(vec![column]);
                        used = needed;
                    }
                }
            }
            blocks
        };
        let fewest = split(usize::MAX);
        // Prefer 8 + 8 columns to 12 + 4.
        let even = split((self.align.len() - 1).div_ceil(fewest.len().max(1)));
        let chosen = if even.len() == fewest.len() { even } else { fewest };
        chosen.into_iter().map(|block| [0].into_iter().chain(block).collect()).collect()
    }

    fn block(&self, columns: &[usize], widths: &[usize], gap: usize, color: bool) -> Vec<String> {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        for row in &self.rows {
            table.add_row(columns.iter().map(|&column| comfy_table::Cell::new(&row[column].text)));
        }
        #[allow(clippy::cast_possible_truncation, reason = "a gap of one or two")]
        for (place, layout) in table.column_iter_mut().enumerate() {
            layout.set_padding((if place == 0 { 0 } else { gap as u16 }, 0));
            layout.set_cell_alignment(match self.align[columns[place]] {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        let painted =
            |(line, row): (String, &Vec<Cell>)| paint_line(&line, columns, row, widths, gap, color);
        table.lines().zip(&self.rows).map(painted).collect()
    }
}

/// Colours the cells of a finished line by their columns.
fn paint_line(
    line: &str,
    columns: &[usize],
    row: &[Cell],
    widths: &[usize],
    gap: usize,
    color: bool,
) -> String {
    let mut rest = line;
    let mut painted = String::with_capacity(line.len());
    for (place, &column) in columns.iter().enumerate() {
        let span = widths[column] + if place == 0 { 0 } else { gap };
        let (here, after) = split_columns(rest, span);
        rest = after;
        let text = here.trim();
        let lead = here.len() - here.trim_start().len();
        painted.push_str(&here[..lead]);
        painted.push_str(&row[column].paint.apply(text, color));
        painted.push_str(&here[lead + text.len()..]);
    }
    painted.trim_end().to_owned()
}

/// Returns a cell with this text, or a dash.
pub(crate) fn or_dash(text: Option<String>) -> Cell {
    text.map_or_else(|| Cell::new("-", Paint::Faint), Cell::from)
}

/// Splits the text after its first `columns` columns.
fn split_columns(text: &str, columns: usize) -> (&str, &str) {
    let mut used = 0;
    let at = text.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > columns
    });
    text.split_at(at.map_or(text.len(), |(at, _)| at))
}

/// Returns a matrix of GPUs: sources in rows, destinations in columns, `X` on the diagonal as in nvidia-smi. `label`
/// makes the labels, `cell` the cells.
pub(crate) fn pair_matrix(
    gpus: &[u32],
    label: impl Fn(u32) -> Cell,
    cell: impl Fn(Pair) -> Cell,
) -> Table {
    let mut table = Table::of_figures(gpus.len() + 1);
    table.head_row([Cell::default()].into_iter().chain(gpus.iter().map(|&gpu| label(gpu))));
    for &source in gpus {
        let cells = gpus.iter().map(|&destination| match source == destination {
            true => Cell::new("X", Paint::Faint),
            false => cell(Pair { source, destination }),
        });
        table.row([label(source)].into_iter().chain(cells));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(gpus: u32) -> Table {
        let gpus: Vec<_> = (0..gpus).collect();
        pair_matrix(
            &gpus,
            |gpu| format!("GPU{gpu}").into(),
            |pair| format!("{}", pair.source * 100).into(),
        )
    }

    #[test]
    fn columns_align_to_the_right() {
        let blocks = numbers(3).render(80, false);
        insta::assert_snapshot!(blocks[0].join("\n"), @r"
              GPU0  GPU1  GPU2
        GPU0     X     0     0
        GPU1   100     X   100
        GPU2   200   200     X
        ");
    }

    #[test]
    fn wide_tables_are_split_evenly_with_their_labels() {
        let blocks = numbers(16).render(80, false);
        assert_eq!(blocks.len(), 2);
        for block in &blocks {
            assert_eq!(block.len(), 17);
            assert!(block[1].starts_with("GPU0 "), "{block:?}");
            assert_eq!(block[0].split_whitespace().count(), 8);
        }
        let narrowest = numbers(16).render(12, false);
        assert_eq!(narrowest.len(), 16);
        assert!(narrowest.iter().flatten().all(|line| line.width() <= 12));
    }

    #[test]
    fn a_tighter_gap_saves_a_split() {
        let loose = numbers(8).render(52, false);
        let tight = numbers(8).render(51, false);
        assert_eq!((loose.len(), tight.len()), (1, 1));
        assert_eq!((loose[0][0].width(), tight[0][0].width()), (52, 44));
    }

    #[test]
    fn labels_shrink_before_figures_go_to_another_block() {
        let mut table = Table::of_figures(5);
        table.captions(["", "min", "median", "max", "pairs"]);
        table.row(["copy engine, issued by destination, both ways"].map(Cell::from));
        let figures = ["  side/default/non-blocking", "394", "395", "396", "56"];
        table.row(figures.map(Cell::from));
        let blocks = table.render(52, false);
        insta::assert_snapshot!(blocks.iter().map(|block| block.join("\n")).collect::<Vec<_>>().join("\n---\n"), @r"
                                     min  median  max  pairs
        copy engine, issued by
          destination, both ways
          side/default/non-blocking  394     395  396     56
        ");
        assert!(blocks.iter().flatten().all(|line| line.width() <= 52));
        // Without room for labels, the table splits into blocks.
        assert!(table.render(30, false).len() > 1);
    }

    #[test]
    fn colour_changes_no_column() {
        let mut table =
            Table { align: vec![Align::Left, Align::Right, Align::Left], ..Table::of_words(3) };
        table.row([Cell::from("a"), Cell::new("12", Paint::Error), Cell::new("日本", Paint::Good)]);
        table.row([Cell::from("long"), Cell::new("1234", Paint::Faint), Cell::from("b\u{1b}[0m")]);
        let plain = table.render(80, false);
        assert_eq!(plain, [["a       12  日本", "long  1234  b\\u{1b}[0m"]]);
        let colored = table.render(80, true)[0].join("\n");
        assert!(colored.contains("\u{1b}[1m\u{1b}[31m12\u{1b}[0m"), "{colored:?}");
        assert!(!colored.contains("b\u{1b}"), "{colored:?}");
    }
}
