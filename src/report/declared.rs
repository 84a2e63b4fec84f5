//! Figures as the probes declare them: a table for each probe, with a row for each way in which it measured.

use std::collections::HashSet;

use super::figures::Spread;
use super::matrix::{Cell, Table, or_dash};
use super::page::{Page, Paint};
use super::pair_figures::healthy_percent;
use model::cell::{Figure, Measurement};
use model::flow::{Flow, Setup};
use model::measurement::{Measurements, Probe};
use model::placement::{Pair, Path};
use model::rounding::{percent, rate, short};

/// Axes that say where, not how: rows are over all of them.
pub(super) const PLACES: [&str; 9] =
    ["source", "destination", "gpu", "of_gpu", "numa_node", "synchronized", "owner", "user", "of"];

/// Share of the median below which a median hides the lowest figure. Chosen: more than healthy machines scatter.
const HIDDEN: f64 = 0.85;

/// What one probe measured.
pub(super) struct Group<'a> {
    pub(super) probe: Probe,
    /// How the first row was measured, if the others differ from it in parts.
    about: String,
    pub(super) rows: Vec<Row<'a>>,
}

/// The measurements of a probe that differ only in their place.
pub(super) struct Row<'a> {
    /// How they were measured.
    pub(super) name: String,
    pub(super) cells: Vec<&'a dyn Measurement>,
}

impl Row<'_> {
    fn sound(&self) -> impl Iterator<Item = &&dyn Measurement> {
        self.cells.iter().filter(|cell| cell.is_sound())
    }

    /// Returns the main figure of each cell with a valid one, and the flow that it belongs to.
    fn values(&self) -> Vec<(Flow, f64)> {
        let main = |cell: &&dyn Measurement| Some((cell.flow(), cell.figures().first()?.value?));
        self.sound().filter_map(main).collect()
    }

    /// Returns the figures as per cent of what a healthy machine reaches.
    fn share(&self) -> Option<Spread> {
        Spread::of(self.sound().filter_map(|cell| healthy_percent(&cell.figures())))
    }
}

/// Returns the figures of every probe that measured, in the order of their list.
pub(super) fn groups(measurements: &Measurements) -> Vec<Group<'_>> {
    let wrong: HashSet<(Pair, Path)> = measurements
        .peer
        .iter()
        .filter(|cell| cell.verified.is_wrong())
        .map(|cell| (cell.pair, cell.setup.path))
        .collect();
    // Where bytes do not arrive, the time of such copies means nothing.
    let means = |cell: &&dyn Measurement| {
        let pair = cell.flow().pair();
        pair.is_none_or(|pair| !wrong.contains(&(pair, cell.setup().path)))
    };
    let of = |probe: Probe| {
        let cells = measurements.each().filter(|one| one.probe() == probe).filter(means);
        group(probe, cells.collect())
    };
    Probe::ALL.iter().filter_map(|probe| of(*probe)).collect()
}

/// How cells were measured: the kind of flow, and the axes that are no places.
type Way<'a> = (&'a str, Vec<(&'static str, String)>);

fn group(probe: Probe, cells: Vec<&dyn Measurement>) -> Option<Group<'_>> {
    let key = |cell: &dyn Measurement| {
        let mut axes = cell.axes();
        // Between GPUs, the size follows from the link.
        let is_place = |name: &str| {
            PLACES.contains(&name) || (name == "bytes" && cell.flow().pair().is_some())
        };
        axes.retain(|(name, _)| !is_place(name));
        (way(cell.flow()), axes)
    };
    let mut all: Vec<(Way<'_>, Vec<&dyn Measurement>)> = Vec::new();
    for cell in cells {
        let key = key(cell);
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, cells)) => cells.push(cell),
            None => all.push((key, vec![cell])),
        }
    }
    let names: Vec<String> = all.iter().map(|(_, cells)| parts(cells).join(", ")).collect();
    let named: Vec<String> =
        all.iter().zip(&names).map(|((way, _), name)| apart(way, name, &all, &names)).collect();
    let rows = all.into_iter().zip(named).map(|((_, cells), name)| Row { name, cells });
    let mut rows: Vec<Row<'_>> = rows.collect();
    let is_reference = |row: &Row<'_>| row.cells[0].setup().of_any_size() == Setup::REFERENCE;
    if let Some(reference) = rows.iter().position(is_reference) {
        rows[..=reference].rotate_right(1);
    }
    let about = rows.first()?.name.clone();
    let first: Vec<&str> = about.split(", ").collect();
    // Short names stay whole; of long ones, each row has only what is different.
    if rows.len() > 1 && first.len() < 3 {
        return Some(Group { probe, about: String::new(), rows });
    }
    for row in &mut rows {
        let own: Vec<&str> = row.name.split(", ").filter(|part| !first.contains(part)).collect();
        row.name = own.join(", ");
    }
    Some(Group { probe, about, rows })
}

/// Returns the name of a row; where others have it too, with what tells it apart from them.
fn apart(
    (kind, axes): &Way<'_>,
    name: &str,
    all: &[(Way<'_>, Vec<&dyn Measurement>)],
    names: &[String],
) -> String {
    let alike =
        || all.iter().zip(names).filter(|(_, other)| *other == name).map(|((way, _), _)| way);
    let differing = axes.iter().filter(|(axis, value)| {
        alike().any(|(_, others)| others.iter().any(|(other, of)| other == axis && of != value))
    });
    let mut parts: Vec<&str> = vec![name];
    parts.extend(differing.map(|(_, value)| value.as_str()));
    if alike().any(|(other, _)| other != kind) {
        parts.push(kind);
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// Returns the parts of the description that all these cells share.
fn parts(cells: &[&dyn Measurement]) -> Vec<String> {
    let of = |cell: &dyn Measurement| -> Vec<String> {
        cell.what().split(", ").map(ToOwned::to_owned).collect()
    };
    let mut shared = of(cells[0]);
    for cell in &cells[1..] {
        let own = of(*cell);
        shared.retain(|part| own.contains(part));
    }
    shared
}

fn way(flow: Flow) -> &'static str {
    match (flow.pair(), flow.within()) {
        (Some(_), _) => "between GPUs",
        (_, Some(_)) => "within a GPU",
        _ => "with the host",
    }
}

/// Writes a table for each probe, and one for those that measured in one way: their main figures; on request also the
/// others, over all ways.
pub(super) fn write(page: &mut Page, groups: &[Group<'_>]) {
    let (single, several): (Vec<_>, Vec<_>) =
        groups.iter().partition(|group| group.rows.len() == 1 || group.about.is_empty());
    for group in several {
        let about = format!("{}: {}", capital(&group.probe.to_string()), group.about);
        let main = group.rows[0].cells[0].figures();
        table(page, &about, &main.first().map(words).unwrap_or_default(), &[group]);
    }
    table(page, "Other figures", "", &single);
}

fn table(page: &mut Page, heading: &str, caption: &str, groups: &[&Group<'_>]) {
    let rows = || groups.iter().flat_map(|group| &group.rows);
    if rows().next().is_none() {
        return;
    }
    page.heading(heading);
    let shares = rows().any(|row| row.share().is_some());
    let hidden = rows().any(|row| lowest(&row.values()).is_some());
    let optional = [("% of healthy", shares), ("lowest at", hidden)];
    let optional = optional.iter().filter(|(_, shown)| *shown).map(|(caption, _)| *caption);
    let captions: Vec<&str> =
        [caption, "lowest", "median", "highest", "n"].into_iter().chain(optional).collect();
    let mut table = Table::of_figures(captions.len());
    table.captions(captions);
    for group in groups {
        let probe = capital(&group.probe.to_string());
        for row in &group.rows {
            let Some(main) = row.cells[0].figures().first().copied() else { continue };
            let name = match row.name.as_str() {
                "" if caption.is_empty() => format!("{probe}: {}", words(&main)),
                name if caption.is_empty() && group.rows.len() > 1 => {
                    [&format!("{probe}: {name}"), main.unit()]
                        .into_iter()
                        .filter(|part| !part.is_empty())
                        .collect::<Vec<_>>()
                        .join(", ")
                }
                "" => "as above".to_owned(),
                name => name.to_owned(),
            };
            let values = row.values();
            let mut cells = vec![Cell::from(name)];
            cells.extend(spread(Spread::of(values.iter().map(|(_, value)| *value)), &main));
            cells.push(done(row, values.len()));
            if shares {
                let range = |of: Spread| model::rounding::range(of.min, of.max, percent, "-");
                cells.push(or_dash(row.share().map(range)));
            }
            cells.extend(lowest(&values).map(Cell::from));
            table.row(cells);
        }
        // Over several ways to measure, another figure means nothing.
        if page.verbose() && group.rows.len() == 1 {
            let sound: Vec<Vec<Figure>> =
                group.rows[0].sound().map(|cell| cell.figures()).collect();
            for figure in others(&sound) {
                let values = sound.iter().filter_map(|figures| value(figures, figure.key));
                let name = format!("{probe}: {}", words(&figure));
                let mut cells = vec![Cell::new(name, Paint::Faint)];
                cells.extend(spread(Spread::of(values), &figure));
                table.row(cells);
            }
        }
    }
    page.table(table);
}

/// Returns the measured figures of the main one's kind that say anything, one of each key.
fn others(sound: &[Vec<Figure>]) -> Vec<Figure> {
    let mut found: Vec<Figure> = Vec::new();
    let Some(main) = sound.iter().find_map(|figures| figures.first()) else { return found };
    let main = (main.quantity, main.unit());
    for figure in sound.iter().flat_map(|figures| figures.iter().skip(1)) {
        let says = !figure.is_given
            && (figure.quantity, figure.unit()) == main
            && figure.key != "spread_percent"
            && figure.flow.is_none()
            && figure.value.is_some_and(|value| value > 0.0);
        if says && found.iter().all(|known| known.key != figure.key) {
            found.push(*figure);
        }
    }
    found
}

fn value(figures: &[Figure], key: &str) -> Option<f64> {
    figures.iter().find(|figure| figure.key == key && figure.flow.is_none())?.value
}

/// Returns the flow of the lowest figure, if the median hides it.
fn lowest(values: &[(Flow, f64)]) -> Option<String> {
    let median = Spread::of(values.iter().map(|(_, value)| *value))?.median;
    let (flow, least) = values.iter().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (*least < HIDDEN * median).then(|| match (flow.pair(), flow.gpus().next()) {
        (Some(pair), _) => format!("{}→{}", pair.source, pair.destination),
        (_, Some(gpu)) => format!("GPU {gpu}"),
        _ => flow.to_string(),
    })
}

/// Returns the number of cells with a figure, and of all if some have none.
fn done(row: &Row<'_>, done: usize) -> Cell {
    match row.cells.len() {
        _ if row.cells.iter().all(|cell| cell.ending().not_supported) => "not offered".into(),
        planned if done < planned => Cell::new(format!("{done} of {planned}"), Paint::Warning),
        _ => Cell::from(done.to_string()),
    }
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
fn words(figure: &Figure) -> String {
    let unit = figure.unit();
    let ends = ["_gbps", "_percent", "_us", "_ms_per_gib"];
    let key = ends.iter().find_map(|end| figure.key.strip_suffix(end)).unwrap_or(figure.key);
    let key = key.replace('_', " ");
    if unit.is_empty() { key } else { format!("{key}, {unit}") }
}

/// Returns the words with a capital letter.
pub(super) fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
