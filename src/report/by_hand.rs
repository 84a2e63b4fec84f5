//! The probes that the text does not show by hand: they are shown as their cells declare them.

use std::collections::BTreeMap;

use super::figures::Spread;
use super::page::{Page, Paint};
use super::pair_figures::Figures;
use super::tables::{spread_row, spreads};
use model::cell::Measurement;
use model::measurement::{Measurements, Probe, Shown};
use model::rounding::{range, rate, short};

/// The main figures of measurements that differ only in their flow.
struct Row {
    probe: Probe,
    what: String,
    unit: &'static str,
    figures: Figures,
}

impl Row {
    /// Returns the number of decimals that its unit has.
    fn text(&self) -> fn(f64) -> String {
        if self.unit == "GB/s" { rate } else { short }
    }
}

/// Returns the rows of the probes that have no text by hand, in the order of their list.
fn rows(measurements: &Measurements) -> Vec<Row> {
    rows_of(measurements, |probe| probe.shown() == Shown::AsDeclared)
}

fn rows_of(measurements: &Measurements, wanted: impl Fn(Probe) -> bool) -> Vec<Row> {
    let mut groups: BTreeMap<(Probe, String), Vec<&dyn Measurement>> = BTreeMap::new();
    for one in measurements.each().filter(|one| wanted(one.probe())) {
        let group = groups.entry((one.probe(), one.what()));
        group.or_default().push(one);
    }
    let row = |((probe, what), cells): ((Probe, String), Vec<&dyn Measurement>)| Row {
        probe,
        what,
        unit: cells[0].figures().first().map_or("", |figure| figure.unit()),
        figures: Figures::of(cells),
    };
    groups.into_iter().map(row).collect()
}

/// Writes a table of them.
pub(super) fn table(page: &mut Page, measurements: &Measurements) {
    write(page, rows(measurements));
}

fn write(page: &mut Page, rows: Vec<Row>) {
    if rows.is_empty() {
        return;
    }
    page.heading("Other measurements");
    let mut table = spreads("", "of them");
    for row in rows {
        let name = format!("{}, {}, {}", row.probe, row.what, row.unit);
        spread_row(&mut table, name, row.figures, row.text());
    }
    page.table(table);
}

/// Writes a line for each, with texts from the column `hang`.
pub(super) fn lines(page: &mut Page, measurements: &Measurements, hang: usize) {
    let rows = rows(measurements);
    if !rows.is_empty() {
        page.heading("Other measurements");
    }
    for row in rows {
        page.item(2, hang, &row.probe.to_string(), Paint::Faint, &line(&row));
    }
}

fn line(row: &Row) -> String {
    let text = |of: Spread| range(of.min, of.max, row.text(), " to ");
    let figures = row.figures.rates.map_or_else(|| "-".to_owned(), text);
    format!("{figures} {}, {}", row.unit, row.what)
}

#[cfg(test)]
mod tests {
    use super::super::format::Style;
    use super::*;
    use model::cell::Subject;
    use model::measurement::LocalCopy;
    use model::status::Status;
    use model::units::{Bytes, GbPerSecond};

    fn copies(gpu: u32, gbps: Option<f64>) -> LocalCopy {
        let mut cell = LocalCopy::blank(gpu, Bytes(4096));
        cell.achieved_gbps = gbps.map(GbPerSecond);
        if gbps.is_none() {
            cell.ending.status = Status::Failed;
        }
        cell
    }

    #[test]
    fn a_probe_without_text_by_hand_is_shown_as_its_cell_declares_it() {
        let measurements = Measurements {
            local: vec![copies(1, Some(20.0)), copies(2, Some(150.0)), copies(3, None)],
            ..Measurements::default()
        };
        let of_copies = || rows_of(&measurements, |probe| probe == Probe::Local);
        let lines: Vec<String> = of_copies().iter().map(line).collect();
        let what = measurements.local[0].what();
        assert_eq!(lines, [format!("20.0 to 150 GB/s, {what}")]);
        let mut page = Page::new(true);
        write(&mut page, of_copies());
        let text = super::super::text::lay_out(&page, &Style::PLAIN);
        assert!(text.contains("local"), "{text}");
        assert!(text.contains("2 of 3"), "{text}");
    }

    #[test]
    fn without_such_a_probe_nothing_is_shown() {
        let mut page = Page::new(true);
        table(&mut page, &sample::pcie_box().measurements.unwrap());
        lines(&mut page, &sample::pcie_box().measurements.unwrap(), 14);
        assert!(super::super::text::lay_out(&page, &Style::PLAIN).trim().is_empty());
    }
}
