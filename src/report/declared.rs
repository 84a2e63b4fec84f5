//! Figures as the probes declare them: a table for each probe, with a row for each way in which it measured.

use super::figures::{Figures, Spread, arrow, by_key, wrong_pairs};
use super::matrix::{Cell, Table, or_dash};
use super::page::{Page, Paint};
use model::cell::{Figure, Measurement};
use model::flow::{Flow, Setup};
use model::measurement::{Measurements, Probe};
use model::rounding::{percent, range, rate, short};

/// Axes that say where, not how: rows are over all of them.
pub(super) const PLACES: [&str; 11] = [
    "source",
    "destination",
    "source_link",
    "destination_link",
    "gpu",
    "of_gpu",
    "numa_node",
    "synchronized",
    "owner",
    "user",
    "of",
];

/// Share of the median below which a median hides the lowest figure. Chosen: more than healthy machines scatter.
const HIDDEN: f64 = 0.85;

/// What one probe measured.
pub(super) struct Series<'a> {
    pub probe: Probe,
    /// How the first row was measured, if the others differ from it in parts.
    about: String,
    pub rows: Vec<Row<'a>>,
}

/// The measurements of a probe that differ only in their place.
#[derive(Clone)]
pub(super) struct Row<'a> {
    /// How they were measured.
    name: String,
    pub cells: Vec<&'a dyn Measurement>,
}

impl Row<'_> {
    fn sound(&self) -> impl Iterator<Item = &&dyn Measurement> {
        self.cells.iter().filter(|cell| cell.is_sound())
    }

    /// Returns the figure that the probe declares first.
    pub(super) fn main(&self) -> Option<Figure> {
        self.cells[0].figures().first().copied()
    }

    /// Returns the main figure of each cell with a valid one, and the flow that it belongs to.
    fn values(&self) -> Vec<(Flow, f64)> {
        let main = |cell: &&dyn Measurement| Some((cell.flow(), cell.figures().first()?.value?));
        self.sound().filter_map(main).collect()
    }

    /// Returns the figures as per cent of what a healthy machine reaches.
    fn share(&self) -> Option<String> {
        let share = Figures::of(self.cells.iter().copied()).percents?;
        Some(range(share.min, share.max, percent, "-"))
    }

    /// Returns the flow of the lowest figure, if the median hides it.
    fn lowest(&self) -> Option<String> {
        let values = self.values();
        let median = Spread::of(values.iter().map(|(_, value)| *value))?.median;
        let (flow, least) = values.iter().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        (*least < HIDDEN * median).then(|| match (flow.pair(), flow.gpus().next()) {
            (Some(pair), _) => arrow(pair),
            (_, Some(gpu)) => format!("GPU {gpu}"),
            _ => flow.to_string(),
        })
    }

    /// Returns the number of cells with a figure, and of all if some have none.
    fn done(&self) -> Cell {
        match (self.values().len(), self.cells.len()) {
            _ if self.cells.iter().all(|cell| cell.ending().not_supported) => "not offered".into(),
            (done, planned) if done < planned => {
                Cell::new(format!("{done} of {planned}"), Paint::Warning)
            }
            (done, _) => Cell::from(done.to_string()),
        }
    }

    /// Returns its figures as they read; none if it has none.
    fn read(&self) -> Option<([Cell; 3], Option<String>, Option<String>)> {
        let values = Spread::of(self.values().into_iter().map(|(_, value)| value))?;
        Some((spread(Some(values), &self.main()?), self.share(), self.lowest()))
    }
}

impl<'a> Series<'a> {
    /// Returns what is different about a row. Short names stay whole.
    pub(super) fn apart(&self, row: &Row<'_>) -> String {
        let is_own = |part: &&str| !self.about.split(", ").any(|known| known == *part);
        row.name.split(", ").filter(is_own).collect::<Vec<_>>().join(", ")
    }

    /// Returns the rows, as one those whose figures read the same and whose names differ in one word. The first stays
    /// apart: the names of the others leave out what they share with it.
    fn joined(&self) -> Vec<Row<'a>> {
        let mut rows = self.rows.clone();
        loop {
            let mut joined: Vec<Row<'_>> = Vec::new();
            for row in &rows {
                let named = joined.iter().enumerate().skip(usize::from(!self.about.is_empty()));
                let mut alike = named
                    .filter(|(_, known)| row.read().is_some_and(|own| known.read() == Some(own)));
                match alike.find_map(|(at, known)| Some((at, either(&known.name, &row.name)?))) {
                    Some((at, name)) => {
                        joined[at].name = name;
                        joined[at].cells.extend(&row.cells);
                    }
                    None => joined.push(row.clone()),
                }
            }
            if joined.len() == rows.len() {
                return rows;
            }
            rows = joined;
        }
    }
}

/// Returns one name for two that differ in one word of several: `synchronise stream|event, blocking`.
fn either(one: &str, other: &str) -> Option<String> {
    let words = |name| str::split_inclusive(name, [' ', '/']).collect::<Vec<_>>();
    let (mut one, other) = (words(one), words(other));
    let mut apart = (0..one.len()).filter(|at| one.get(*at) != other.get(*at));
    let (Some(at), None) = (apart.next(), apart.next()) else { return None };
    if one.len() != other.len() || one.len() < 2 {
        return None;
    }
    let word = format!("{}|{}", one[at].trim_end_matches([',', ' ', '/']), other[at]);
    one[at] = &word;
    Some(one.concat())
}

/// Returns the figures of every probe that measured, in the order of their list.
pub(super) fn groups(measurements: &Measurements) -> Vec<Series<'_>> {
    // Where bytes do not arrive, the time of such copies means nothing.
    let wrong = wrong_pairs(measurements);
    let means = |cell: &&dyn Measurement| {
        let pair = cell.flow().pair();
        pair.is_none_or(|pair| !wrong.contains(&(pair, cell.setup().path)))
    };
    let of = |probe: &Probe| {
        let cells = measurements.each().filter(|one| one.probe() == *probe).filter(means);
        group(*probe, cells)
    };
    Probe::ALL.iter().filter_map(of).collect()
}

/// How cells were measured: the kind of flow, and the axes that are no places.
type Way = (&'static str, Vec<(&'static str, String)>);

fn way(cell: &dyn Measurement) -> Way {
    let (flow, mut axes) = (cell.flow(), cell.axes());
    let kind = match (flow.pair(), flow.within()) {
        (Some(_), _) => "between GPUs",
        (_, Some(_)) => "within a GPU",
        _ => "with the host",
    };
    // Between GPUs, the size follows from the link.
    axes.retain(|(name, _)| !PLACES.contains(name) && (*name != "bytes" || flow.pair().is_none()));
    (kind, axes)
}

fn group<'a>(probe: Probe, cells: impl Iterator<Item = &'a dyn Measurement>) -> Option<Series<'a>> {
    let ways = by_key(cells.map(|cell| (way(cell), cell)));
    let names: Vec<String> = ways.iter().map(|(_, cells)| shared(cells)).collect();
    // Rows of one name add the axes in which they differ.
    let named = |((kind, axes), name): (&Way, &String)| {
        let alike =
            || ways.iter().zip(&names).filter(|(_, other)| *other == name).map(|((way, _), _)| way);
        let differs = |(axis, value): &&(&str, String)| {
            alike().any(|(_, axes)| axes.iter().any(|(other, of)| other == axis && of != value))
        };
        let differing = axes.iter().filter(differs).map(|(_, value)| value.as_str());
        let kind = alike().any(|(other, _)| other != kind).then_some(*kind);
        let parts = [name.as_str()].into_iter().chain(differing).chain(kind);
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let rows = ways.iter().zip(&names);
    let rows =
        rows.map(|((way, cells), name)| Row { name: named((way, name)), cells: cells.clone() });
    let mut rows: Vec<Row<'_>> = rows.collect();
    let is_reference = |row: &Row<'_>| row.cells[0].setup().of_any_size() == Setup::REFERENCE;
    if let Some(reference) = rows.iter().position(is_reference) {
        rows[..=reference].rotate_right(1);
    }
    let mut about = rows.first()?.name.clone();
    if rows.len() > 1 && about.split(", ").count() < 3 {
        about.clear();
    }
    Some(Series { probe, about, rows })
}

/// Returns the parts of the description that all these cells share.
fn shared(cells: &[&dyn Measurement]) -> String {
    let all: Vec<String> = cells.iter().map(|cell| cell.what()).collect();
    let is_shared = |part: &&str| all.iter().all(|own| own.split(", ").any(|own| own == *part));
    all[0].split(", ").filter(is_shared).collect::<Vec<_>>().join(", ")
}

/// Writes a table for each probe, and one for those that measured in one way: their main figures; on request also the
/// others, over all ways.
pub(super) fn write(page: &mut Page, groups: &[Series<'_>]) {
    let (single, several): (Vec<_>, Vec<_>) =
        groups.iter().partition(|group| group.rows.len() == 1 || group.about.is_empty());
    for group in several {
        let about = format!("{}: {}", capital(&group.probe.to_string()), group.about);
        let main = group.rows[0].main();
        table(page, &about, &main.as_ref().map(words).unwrap_or_default(), &[group]);
    }
    table(page, "Other figures", "", &single);
}

fn table(page: &mut Page, heading: &str, caption: &str, groups: &[&Series<'_>]) {
    let rows =
        groups.iter().flat_map(|group| group.joined().into_iter().map(move |row| (group, row)));
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    page.heading(heading);
    let shares = rows.iter().any(|(_, row)| row.share().is_some());
    let hidden = rows.iter().any(|(_, row)| row.lowest().is_some());
    let optional = [("% of healthy", shares), ("lowest at", hidden)];
    let optional = optional.iter().filter(|(_, shown)| *shown).map(|(caption, _)| *caption);
    let captions: Vec<&str> =
        [caption, "lowest", "median", "highest", "n"].into_iter().chain(optional).collect();
    let mut table = Table::of_figures(captions.len());
    table.captions(captions);
    for (group, row) in &rows {
        let Some(main) = row.main() else { continue };
        let probe = capital(&group.probe.to_string());
        let name = match group.apart(row) {
            none if none.is_empty() && caption.is_empty() => format!("{probe}: {}", words(&main)),
            none if none.is_empty() => "as above".to_owned(),
            name if !caption.is_empty() => name,
            name if main.unit().is_empty() => format!("{probe}: {name}"),
            name if main.unit() == "%" => format!("{probe}: {name}, {}", words(&main)),
            name => format!("{probe}: {name}, {}", main.unit()),
        };
        let mut cells = vec![Cell::from(name)];
        cells.extend(spread(Spread::of(row.values().into_iter().map(|(_, value)| value)), &main));
        cells.push(row.done());
        if shares {
            cells.push(or_dash(row.share()));
        }
        cells.extend(row.lowest().map(Cell::from));
        table.row(cells);
        // Over several ways to measure, another figure means nothing.
        if page.verbose() && group.rows.len() == 1 {
            for (_, all) in others(row, &main) {
                let values = Spread::of(all.iter().filter_map(|figure| figure.value));
                let name = Cell::new(format!("{probe}: {}", words(&all[0])), Paint::Faint);
                table.row([name].into_iter().chain(spread(values, &all[0])));
            }
        }
    }
    page.table(table);
}

/// Returns the other measured figures of the main one's kind that say anything, by their keys.
fn others(row: &Row<'_>, main: &Figure) -> Vec<(&'static str, Vec<Figure>)> {
    let all = row.sound().flat_map(|cell| cell.figures().into_iter().skip(1));
    let meant = all.filter(|figure| {
        (figure.quantity, figure.unit()) == (main.quantity, main.unit())
            && !figure.is_given
            && figure.key != "spread_percent"
            && figure.flow.is_none()
    });
    let mut found = by_key(meant.map(|figure| (figure.key, figure)));
    let says = |figure: &Figure| figure.value.is_some_and(|value| value > 0.0);
    found.retain(|(_, all)| all.iter().any(says));
    found
}

/// Returns the text of a value of this figure, with as many digits as its unit has.
pub(super) fn text_of(figure: &Figure) -> fn(f64) -> String {
    match figure.unit() {
        _ if figure.key == "works" => |value| if value > 0.0 { "yes" } else { "no" }.to_owned(),
        "GB/s" => rate,
        "%" => percent,
        _ => short,
    }
}

fn spread(spread: Option<Spread>, figure: &Figure) -> [Cell; 3] {
    let values = spread.map_or([None; 3], |of| [of.min, of.median, of.max].map(Some));
    values.map(|value| or_dash(value.map(text_of(figure))))
}

/// Returns a key as words with its unit: `host blocked, us`.
pub(super) fn words(figure: &Figure) -> String {
    let unit = figure.unit();
    let ends = ["_gbps", "_percent", "_us", "_ns", "_ms_per_gib", "_bytes"];
    let key = ends.iter().find_map(|end| figure.key.strip_suffix(end)).unwrap_or(figure.key);
    let key = key.replace('_', " ");
    if unit.is_empty() { key } else { format!("{key}, {unit}") }
}

/// Returns the words with a capital letter.
pub(super) fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_one_word_of_several_are_one_name() {
        for (one, other, both) in [
            (
                "synchronise stream, blocking",
                "synchronise event, blocking",
                Some("synchronise stream|event, blocking"),
            ),
            ("pinned, to device", "pinned, to host", Some("pinned, to device|host")),
            ("side/side/blocking", "default/side/blocking", Some("side|default/side/blocking")),
            ("side/side/blocking", "default/default/blocking", None),
            ("pinned, to device", "pinned, to device, blocking", None),
            ("ring", "shift", None),
            ("ring by kernels", "ring by kernels", None),
        ] {
            assert_eq!(either(one, other).as_deref(), both);
        }
    }

    #[test]
    fn only_rows_that_read_the_same_are_one_row_and_none_is_lost() {
        let report = sample::healthy(8);
        let measurements = report.measurements.as_ref().unwrap();
        for group in groups(measurements) {
            let joined = group.joined();
            let count = |rows: &[Row<'_>]| rows.iter().map(|row| row.cells.len()).sum::<usize>();
            assert_eq!(count(&joined), count(&group.rows), "{}", group.probe);
            for row in &group.rows {
                let is_in = |other: &&Row<'_>| {
                    other.cells.iter().any(|cell| std::ptr::addr_eq(*cell, row.cells[0]))
                };
                let known = joined.iter().find(is_in).unwrap();
                assert!(row.read() == known.read(), "{}: {}", known.name, row.name);
            }
        }
    }
}
