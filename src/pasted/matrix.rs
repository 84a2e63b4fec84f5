//! Matrices as tools print them: rows and columns by the names or the numbers of GPUs. Lines may be wrapped or cut.

use super::lines::Line;

/// A word of the input.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Word<'a> {
    text: &'a str,
    /// Number of its line, and the place of that line among those given.
    line: u32,
    place: usize,
    /// True if it is the first one of its line.
    first: bool,
}

/// A cell: its text and its line.
pub(crate) type Cell<'a> = (&'a str, u32);

/// A matrix whose rows have names.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Named<'a> {
    pub columns: Vec<&'a str>,
    /// Name of each row, its cells, and the words behind them in its line.
    pub rows: Vec<(&'a str, Vec<Cell<'a>>, Vec<&'a str>)>,
    /// Number of lines.
    pub used: usize,
}

/// A matrix whose rows and columns have numbers from 0. A cell is `None` if it has no figure.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Numbered {
    pub columns: usize,
    pub rows: Vec<Vec<(Option<f64>, u32)>>,
    pub used: usize,
}

impl Numbered {
    /// Returns each figure with its row and column, and its line.
    pub(crate) fn figures(&self) -> impl Iterator<Item = ((usize, usize), f64, u32)> {
        self.rows.iter().enumerate().flat_map(|(row, cells)| {
            let cells = cells.iter().enumerate();
            cells.filter_map(move |(column, (value, line))| Some(((row, column), (*value)?, *line)))
        })
    }
}

/// Most rows and columns that are read.
const MOST: usize = 160;

/// Most lines of one matrix: each row of the largest one in two parts.
pub(crate) const MOST_LINES: usize = 4 * MOST;

fn words<'a>(lines: &'a [Line<'a>]) -> impl Iterator<Item = Word<'a>> {
    let lines = lines.iter().enumerate().take(MOST_LINES);
    lines.flat_map(|(place, line)| {
        let words = line.text.split_whitespace().enumerate();
        words.map(move |(at, text)| Word { text, line: line.number, place, first: at == 0 })
    })
}

/// Splits a word that is two cells without a space between them, such as `SYSPIX`.
fn parts<'a>(word: Word<'a>, is_cell: fn(&str) -> bool) -> impl Iterator<Item = Word<'a>> {
    let is_whole = word.text.len() > LONGEST_PART || is_cell(word.text);
    let both = (1..word.text.len()).filter(|_| !is_whole);
    let both = both.filter_map(|at| word.text.split_at_checked(at));
    let glued = both.into_iter().find(|(one, other)| is_cell(one) && is_cell(other));
    let (one, other) = glued.map_or((word.text, None), |(one, other)| (one, Some(other)));
    let other = other.map(|text| Word { text, first: false, ..word });
    [Some(Word { text: one, ..word }), other].into_iter().flatten()
}

/// Longest word that may be two cells.
const LONGEST_PART: usize = 12;

/// The name of a column that no row names.
pub(crate) const NAMELESS: &str = "?";

/// Returns the names of columns by the rows, whose own cells are X. The header was not given.
fn columns<'a>(
    lines: &'a [Line<'a>],
    is_name: fn(&str) -> bool,
    is_cell: fn(&str) -> bool,
) -> Option<Vec<&'a str>> {
    let mut columns = Vec::new();
    for line in lines.iter().take(MOST) {
        let mut row = words(std::slice::from_ref(line)).flat_map(|word| parts(word, is_cell));
        let Some(name) = row.next().filter(|word| is_name(word.text)) else {
            break;
        };
        let cells = row.take(MOST).take_while(|word| is_cell(word.text));
        let cells: Vec<&str> = cells.map(|word| word.text).collect();
        if columns.len() < cells.len() {
            columns.resize(cells.len(), NAMELESS);
        }
        let own = cells.iter().position(|cell| *cell == "X");
        if let Some(column) = own.and_then(|own| columns.get_mut(own)) {
            *column = name.text;
        }
    }
    (columns.len() > 1).then_some(columns)
}

/// Reads a matrix whose header, or first row, starts in the first line. `is_name` recognises names of columns, `is_cell`
/// cells. Names may come in any order.
pub(crate) fn named<'a>(
    lines: &'a [Line<'a>],
    is_name: fn(&str) -> bool,
    is_cell: fn(&str) -> bool,
) -> Option<Named<'a>> {
    let all = || words(lines).flat_map(|word| parts(word, is_cell)).peekable();
    let mut words = all();
    let mut matrix = Named::default();
    let first = words.next_if(|word| is_name(word.text))?.text;
    if words.peek().is_some_and(|word| !word.first && is_cell(word.text)) {
        matrix.columns = columns(lines, is_name, is_cell)?;
        words = all();
    } else {
        matrix.columns.push(first);
    }
    // The header ends where its first name comes again, at the start of the first row.
    while let Some(word) = words.next_if(|word| word.text != first) {
        if word.place > 3 || matrix.columns.len() > MOST {
            return None;
        }
        if is_name(word.text) && !matrix.columns.contains(&word.text) {
            matrix.columns.push(word.text);
        }
    }
    while let Some(row) = words.next_if(|word| matrix.columns.contains(&word.text)) {
        let is_new = matrix.rows.iter().all(|(name, ..)| *name != row.text);
        if !is_new || matrix.rows.len() == matrix.columns.len() {
            break;
        }
        let (mut cells, mut more) = (Vec::new(), Vec::new());
        while cells.len() < matrix.columns.len() {
            let Some(word) = words.next_if(|word| is_cell(word.text)) else {
                break;
            };
            cells.push((word.text, word.line));
            matrix.used = word.place + 1;
        }
        // The input was cut: its last word may be a part of one.
        if cells.len() < matrix.columns.len() && words.peek().is_none() {
            cells.pop();
        }
        if cells.is_empty() {
            break;
        }
        let last = matrix.used;
        let is_more = |word: &Word<'_>| {
            !(matrix.columns.contains(&word.text) && word.first) && word.place <= last
        };
        while let Some(word) = words.next_if(is_more) {
            if word.text.contains("egend") {
                break;
            }
            more.push(word.text);
            if word.place + 1 > matrix.used && matrix.rows.len() + 1 < matrix.columns.len() {
                matrix.used = word.place + 1;
            }
        }
        matrix.rows.push((row.text, cells, more));
    }
    (!matrix.rows.is_empty()).then_some(matrix)
}

/// Reads a matrix whose header of numbers starts in the first of these lines, after `label` if there is one. If rows are
/// not whole, a terminal may have broken them.
pub(crate) fn numbered(lines: &[Line<'_>], label: Option<&str>) -> Option<Numbered> {
    let plain = one(lines, label);
    let cells = |matrix: &Numbered| matrix.rows.iter().map(Vec::len).sum::<usize>();
    if plain.as_ref().is_some_and(|matrix| cells(matrix) == matrix.columns * matrix.columns) {
        return plain;
    }
    let mut filled = lines.iter().take(MOST_LINES);
    let end = filled.position(|line| line.text.is_empty()).unwrap_or(lines.len());
    let rejoined = joined(&lines[..end]);
    let Some(matrix) = one(&rejoined, label) else {
        return plain;
    };
    let is_whole = matrix.rows.iter().all(|row| row.len() == matrix.columns);
    if !is_whole || plain.as_ref().is_some_and(|plain| cells(plain) >= cells(&matrix)) {
        return plain;
    }
    // The number of lines of the input, not of what was joined.
    let behind = rejoined.get(matrix.used).map(|line| line.number);
    let used = behind.and_then(|behind| lines.iter().position(|line| line.number == behind));
    Some(Numbered { used: used.unwrap_or(end), ..matrix })
}

fn one(lines: &[Line<'_>], label: Option<&str>) -> Option<Numbered> {
    let mut words = words(lines).peekable();
    if let Some(label) = label {
        words.next_if(|word| word.text.ends_with(label))?;
    }
    let mut columns = 0;
    while columns < MOST
        && words.next_if(|word| word.place < 4 && word.text.parse() == Ok(columns)).is_some()
    {
        columns += 1;
    }
    if columns == 0 {
        return None;
    }
    let mut matrix = Numbered { columns, ..Numbered::default() };
    while matrix.rows.len() < MOST {
        let number = matrix.rows.len();
        let Some(row) = words.next_if(|word| word.first && word.text.parse() == Ok(number)) else {
            break;
        };
        let mut cells: Vec<(Option<f64>, u32)> = Vec::new();
        let mut used = row.place + 1;
        while cells.len() < columns {
            let is_cell = |word: &Word<'_>| {
                (word.place == row.place || !word.first || word.text.contains('.'))
                    && value(word.text).is_some()
            };
            let Some(word) = words.next_if(is_cell) else {
                break;
            };
            cells.push((value(word.text).flatten(), word.line));
            used = word.place + 1;
        }
        if cells.len() < columns && words.peek().is_none() {
            cells.pop();
        }
        if cells.is_empty() {
            break;
        }
        matrix.used = used;
        matrix.rows.push(cells);
    }
    (!matrix.rows.is_empty()).then_some(matrix)
}

/// Returns the value of a cell; the inner `None` if it has none.
fn value(text: &str) -> Option<Option<f64>> {
    if matches!(text, "N/A" | "-" | "nan" | "-nan" | "inf") {
        return Some(None);
    }
    text.parse::<f64>().ok().map(|_| super::told::number(text))
}

/// Joins lines that a terminal broke at its width: a line as long as the longest one goes on in the next.
pub(crate) fn joined<'a>(lines: &[Line<'a>]) -> Vec<Line<'a>> {
    let lines = &lines[..lines.len().min(MOST_LINES)];
    let width = |line: &Line<'_>| line.text.chars().count();
    let widest = lines.iter().map(width).max().unwrap_or(0);
    let mut joined: Vec<Line<'a>> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        match joined.last_mut().filter(|_| goes_on) {
            Some(before) => before.text.to_mut().push_str(&line.text),
            None => joined.push(line.clone()),
        }
        goes_on = width(line) == widest;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::super::lines::lines;
    use super::*;

    fn names(text: &str) -> Option<(usize, Vec<usize>)> {
        let lines = lines(text);
        let is_name = |word: &str| word.starts_with("GPU") && word.len() > 3;
        let is_cell = |word: &str| word == "X" || word == "PIX" || word.starts_with("NV");
        let matrix = named(&lines, is_name, is_cell)?;
        let cells = matrix.rows.iter().map(|(_, cells, _)| cells.len());
        Some((matrix.columns.len(), cells.collect()))
    }

    #[test]
    fn rows_are_read_whole_wrapped_and_cut() {
        let whole = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV4\t0-15\nGPU1\tNV4\tX\t0-15\n";
        let wrapped = " GPU0 GPU1 CPU\nAffinity\nGPU0 X\nNV4 0-15\nGPU1 NV4\nX 0-15\n";
        let cut = " GPU0 GPU1 GPU2\nGPU0 X NV4 NV4\nGPU1 NV4 X NV1";
        let torn = " GPU0 GPU1 GPU2\nGPU0 X NV4 NV4\nGPU1 NV4 NV1";
        assert_eq!(names(whole), Some((2, vec![2, 2])));
        assert_eq!(names(wrapped), Some((2, vec![2, 2])));
        assert_eq!(names(cut), Some((3, vec![3, 3])));
        assert_eq!(names(torn), Some((3, vec![3, 1])));
        assert_eq!(names("GPU0 is hot"), None);
    }

    #[test]
    fn numbers_are_read_up_to_where_they_end() {
        let text = "   D\\D     0      1\n     0 900.10  12.50\n     1  12.40\n 900.00\nend";
        let lines = lines(text);
        let matrix = numbered(&lines, Some("D\\D")).unwrap();
        assert_eq!((matrix.columns, matrix.used), (2, 4));
        assert_eq!(matrix.rows[1], [(Some(12.4), 3), (Some(900.0), 4)]);
        assert_eq!(numbered(&lines[1..], None), None);
    }

    #[test]
    fn lines_that_a_terminal_broke_are_joined() {
        let lines = lines("GPU0 X NV1\n8 NV18\nGPU1 NV18 \n X NV18\n");
        let texts: Vec<_> = joined(&lines).iter().map(|line| line.text.to_string()).collect();
        assert_eq!(texts[0], "GPU0 X NV18 NV18");
    }
}
