//! Every measured figure as a row of comma-separated values, for spreadsheets and databases (RFC 4180, with line feeds).
//!
//! A measurement without its main figure has a row with the reason. A report without measurements has one row, with what holds
//! for the whole report.

use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::format::{Format, Of, Style};
use model::axis::plain;
use model::cell::{Figure, Measurement};
use model::flow::Endpoint;
use model::measurement::Measurements;
use model::rounding::four_places;

pub(super) const FORMAT: Format = Format {
    of: Of::One,
    ..Format::new("csv", &["csv"], "Every measured figure, a row each", render)
};

/// Columns before those of what measurements are planned with.
const RUN: [&str; 4] = ["hostname", "machine", "started_at", "probe"];

/// Columns behind them, before those of the caveats.
const FIGURE: [&str; 9] = [
    "figure",
    "unit",
    "value",
    "expected",
    "theoretical",
    "status",
    "reason",
    "verified",
    "disturbed",
];

/// The known values of a row, by column.
type Row = Vec<(&'static str, String)>;

fn render(digest: &Digest<'_>, _: &Style) -> String {
    let report = digest.report;
    let caveats = Caveat::ALL.map(Caveat::word);
    let columns = [&RUN[..], &Measurements::axes(), &FIGURE, &caveats].concat();
    let mut run: Row =
        vec![("machine", report.machine.clone()), ("started_at", report.started_at.clone())];
    let hostname = report.snapshot.host.hostname.known();
    run.extend(hostname.map(|name| ("hostname", name.clone())));
    let caveats = digest.caveats.iter();
    run.extend(caveats.map(|(caveat, sentence)| (caveat.word(), sentence.clone())));
    let measured = report.measurements.iter().flat_map(Measurements::each);
    let mut rows: Vec<Row> = measured.flat_map(rows).collect();
    if rows.is_empty() {
        rows.push(Row::new());
    }
    let line = |row: &Row| {
        let value = |column: &&str| {
            let known = run.iter().chain(row).rfind(|(name, _)| name == column);
            known.map_or_else(String::new, |(_, text)| field(text))
        };
        columns.iter().map(value).collect::<Vec<_>>().join(",") + "\n"
    };
    columns.join(",") + "\n" + &rows.iter().map(line).collect::<String>()
}

/// Returns a row for each measured figure; the main one has a row even if it is not known.
fn rows(one: &dyn Measurement) -> Vec<Row> {
    let all = one.figures();
    let measured = all.iter().enumerate().filter(|(_, figure)| !figure.is_given);
    let shown = measured.filter(|(number, figure)| *number == 0 || figure.value.is_some());
    shown.map(|(_, figure)| row(one, figure, &all)).collect()
}

fn row(one: &dyn Measurement, figure: &Figure, all: &[Figure]) -> Row {
    let value = |figure: &Figure| Some(four_places(figure.value?).to_string());
    let given = |key: &str| {
        let is_rate = figure.key.ends_with("achieved_gbps");
        let mut others = all.iter().filter(|_| is_rate);
        let other = others.find(|other| other.flow == figure.flow && other.key.ends_with(key));
        other.and_then(value).unwrap_or_default()
    };
    let ending = one.ending();
    let mut row = one.axes();
    row.extend([
        ("probe", one.probe().to_string()),
        ("figure", figure.key.to_owned()),
        ("unit", figure.unit().to_owned()),
        ("value", value(figure).unwrap_or_default()),
        ("expected", given("expected_gbps")),
        ("theoretical", given("theoretical_gbps")),
        ("status", plain(ending.status)),
        ("reason", ending.reason.clone().unwrap_or_default()),
        ("verified", plain(one.verified())),
        ("disturbed", ending.disturbed.to_string()),
    ]);
    if let Some(number) = figure.flow {
        let name = |end: Endpoint| end.gpu().map_or_else(|| end.to_string(), plain);
        let [source, destination] = one.flow_of(number).ends().map(name);
        row.extend([("source", source), ("destination", destination)]);
    }
    row
}

/// Quotes a field where RFC 4180 wants it. A spreadsheet would run text that begins like a formula, so it gets an
/// apostrophe; no figure is negative.
fn field(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    let text = clean(text);
    match text.contains([',', '"']) {
        true => format!("\"{guard}{}\"", text.replace('"', "\"\"")),
        false => format!("{guard}{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::report::Report;

    /// Returns the rows, taken apart as RFC 4180 says.
    fn rows(report: &Report) -> Vec<Vec<String>> {
        let row = |line: &str| {
            let (mut cells, mut quoted) = (vec![String::new()], false);
            for c in line.chars() {
                match c {
                    '"' => quoted = !quoted,
                    ',' if !quoted => cells.push(String::new()),
                    c => cells.last_mut().unwrap().push(c),
                }
            }
            assert!(!quoted, "{line}");
            cells
        };
        let text = render(&Digest::of(report), &Style::PLAIN);
        text.lines().map(row).collect()
    }

    /// Returns the value of a column in the rows that have these values in others.
    fn found(rows: &[Vec<String>], column: &str, with: &[(&str, &str)]) -> Vec<String> {
        let at = |name: &str| rows[0].iter().position(|other| other == name).unwrap();
        let is_meant =
            |row: &&Vec<String>| with.iter().all(|(name, value)| row[at(name)] == *value);
        let meant = rows.iter().skip(1).filter(is_meant);
        meant.map(|row| row[at(column)].clone()).collect()
    }

    #[test]
    fn every_measured_figure_has_a_row() {
        let report = sample::loaded();
        let rows = rows(&report);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        let all = report.measurements.iter().flat_map(Measurements::each);
        let known = all
            .flat_map(Measurement::figures)
            .filter(|figure| !figure.is_given && figure.value.is_some());
        assert_eq!(rows.len(), 1 + known.count());
        let pair = [
            ("probe", "bandwidth"),
            ("source", "0"),
            ("destination", "1"),
            ("figure", "achieved_gbps"),
        ];
        let reference = [
            ("placement", "side/side/non-blocking"),
            ("issuer", "source"),
            ("engine", "copy"),
            ("direction", "one-way"),
            ("path", "direct"),
        ];
        let of = |column| found(&rows, column, &[pair.as_slice(), &reference].concat());
        let peer = &report.measurements.as_ref().unwrap().peer;
        let cell = peer
            .iter()
            .find(|cell| cell.setup.of_any_size() == model::flow::Setup::REFERENCE)
            .unwrap();
        assert_eq!(of("value"), [four_places(cell.achieved_gbps.unwrap().0).to_string()]);
        assert_eq!(of("theoretical"), [four_places(cell.theoretical_gbps.unwrap().0).to_string()]);
        assert_eq!(
            [of("unit"), of("status"), of("verified"), of("disturbed")].concat(),
            ["GB/s", "measured", "ok", "false"]
        );
        let flow = [
            ("probe", "load"),
            ("pattern", "ring"),
            ("figure", "flows[].achieved_gbps"),
            ("source", "7"),
        ];
        assert_eq!(found(&rows, "destination", &flow), ["0"]);
        assert_eq!(
            found(&rows, "expected", &flow).iter().filter(|expected| expected.is_empty()).count(),
            0
        );
    }

    #[test]
    fn without_a_figure_there_is_a_row_with_the_reason() {
        let rows = rows(&sample::pcie_box());
        let hung = [
            ("source", "4"),
            ("destination", "6"),
            ("status", "hung"),
            ("figure", "achieved_gbps"),
        ];
        let reasons = found(&rows, "reason", &hung);
        assert!(
            !reasons.is_empty()
                && reasons
                    .iter()
                    .all(|reason| reason == "no end within 10 s; the worker was replaced")
        );
        assert!(found(&rows, "value", &hung).iter().all(String::is_empty));
        assert!(
            found(&rows, "simulated", &[])
                .iter()
                .all(|note| note.starts_with("SIMULATED machine demo"))
        );
        let mut facts = sample::healthy(2);
        (facts.measurements, facts.machine) = (None, "demo".into());
        let rows = self::rows(&facts);
        assert_eq!(found(&rows, "simulated", &[("figure", "")]).len(), rows.len() - 1);
    }

    #[test]
    fn text_is_quoted_and_no_formula() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("a, \"b\""), "\"a, \"\"b\"\"\"");
        for evil in ["=1+1", "+1", "-1", "@now"] {
            assert_eq!(field(evil), format!("'{evil}"));
        }
        assert_eq!(field("=cmd|'/c calc',1"), "\"'=cmd|'/c calc',1\"");
        assert_eq!(field("two\nlines"), "two\\nlines");
    }
}
