//! Several flows at once: the rates of each pattern beside the expected ones, and the counters read around them.

use std::collections::BTreeSet;

use super::figures::{Spread, count};
use super::matrix::{Cell, Table};
use super::page::{Page, Paint};
use super::tables::{done_cell, median, or_dash, spread_cells};
use model::counted::{Counted, LinkShare};
use model::load::{LoadPattern, Pattern};
use model::measurement::{AroundLoad, Measurements};
use model::rounding::{percent, range, rate};
use model::units::Bytes;

/// Figures of all patterns of one kind.
pub(super) struct PatternFigures<'a> {
    /// The kind of pattern.
    pub(super) pattern: Pattern,
    /// The patterns, in the report's order.
    pub(super) all: Vec<&'a LoadPattern>,
    /// Their sums, GB/s.
    pub(super) rates: Option<Spread>,
}

impl<'a> PatternFigures<'a> {
    /// Returns all kinds of a report, in its order.
    pub(super) fn of(measurements: &'a Measurements) -> Vec<Self> {
        let mut kinds: Vec<Self> = Vec::new();
        for load in &measurements.load {
            match kinds.iter_mut().find(|kind| kind.pattern == load.pattern) {
                Some(kind) => kind.all.push(load),
                None => kinds.push(Self { pattern: load.pattern, all: vec![load], rates: None }),
            }
        }
        for kind in &mut kinds {
            kind.rates = Spread::of(kind.sound().filter_map(|load| Some(load.rate()?.0)));
        }
        kinds
    }

    /// Returns the patterns with a figure.
    fn sound(&self) -> impl Iterator<Item = &'a LoadPattern> {
        self.all.iter().copied().filter(|load| load.rate().is_some())
    }

    /// Returns the pattern with the lowest share of its expected rate.
    pub(super) fn worst(&self) -> Option<&'a LoadPattern> {
        let part = |load: &LoadPattern| load.expected_percent.unwrap_or(f64::INFINITY);
        self.sound().min_by(|one, other| part(one).total_cmp(&part(other)))
    }

    /// Returns the range of expected rates, GB/s.
    pub(super) fn expected(&self) -> Option<Spread> {
        Spread::of(self.sound().filter_map(|load| Some(load.expected_gbps?.0)))
    }

    /// Returns `399 GB/s in all, 101% of expected`, or the ranges over several patterns.
    pub(super) fn text(&self) -> Option<String> {
        let rates = self.rates?;
        let shares = Spread::of(self.sound().filter_map(|load| load.expected_percent));
        let of =
            shares.map(|of| format!(", {}% of expected", range(of.min, of.max, percent, " to ")));
        Some(format!(
            "{} GB/s in all{}",
            range(rates.min, rates.max, rate, " to "),
            of.unwrap_or_default()
        ))
    }
}

/// Writes all tables about several flows.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    patterns(page, measurements);
    counted(page, &measurements.counted);
    around(page, &measurements.around_load);
}

/// Writes a row for each kind of pattern; on request also one for each pattern.
pub(super) fn patterns(page: &mut Page, measurements: &Measurements) {
    let kinds = PatternFigures::of(measurements);
    if kinds.is_empty() {
        return;
    }
    page.heading("Several flows at once, all flows of a pattern together");
    let mut table = Table::of_figures(7);
    table.captions(["", "GB/s", "", "", "GB/s", "% of", ""]);
    table.captions(["pattern", "min", "median", "max", "expected", "that", "patterns"]);
    for kind in &kinds {
        let mut cells = vec![Cell::from(kind.pattern.to_string())];
        cells.extend(spread_cells(kind.rates, rate));
        cells.push(or_dash(kind.expected().map(|of| range(of.min, of.max, rate, "-"))));
        cells.push(median(
            Spread::of(kind.sound().filter_map(|load| load.expected_percent)),
            percent,
        ));
        cells.push(done_cell(kind.rates, kind.all.len()));
        table.row(cells);
        if page.verbose() && kind.all.len() > 1 {
            kind.all.iter().for_each(|load| table.row(of_pattern(load)));
        }
    }
    page.table(table);
    for kind in &kinds {
        let limit = kind.worst().and_then(|load| Some((load, load.limited_by.as_deref()?)));
        if let Some((load, by)) = limit {
            page.item(2, 11, "limit", Paint::Strong, &format!("{}: {by}", load.name()));
        }
    }
    for found in &measurements.all_reduce {
        let text = format!(
            "by {} over {}: about {} GB/s of bus bandwidth, since each sends {} in the pattern {}",
            found.algorithm,
            count(found.gpus as usize, "GPU"),
            found.bus_gbps,
            found.sent_gbps,
            found.pattern,
        );
        page.item(2, 13, "all-reduce", Paint::Strong, &text);
    }
    let note = "from the first start to the last end with all flows running; expected are max-min fair shares of what \
                healthy machines get through each hop as its link runs";
    page.note(Paint::Faint, note);
}

fn of_pattern(load: &LoadPattern) -> Vec<Cell> {
    let achieved = load.rate().map(|achieved| rate(achieved.0));
    vec![
        Cell::from(format!(
            "  {}",
            if load.of.is_empty() { load.pattern.to_string() } else { load.of.clone() }
        )),
        Cell::default(),
        or_dash(achieved),
        Cell::default(),
        or_dash(load.expected_gbps.map(|expected| rate(expected.0))),
        or_dash(load.expected_percent.map(percent)),
        Cell::default(),
    ]
}

/// Writes the counters over all GPUs; on request also of each GPU.
fn counted(page: &mut Page, counted: &[Counted]) {
    let summary = summary(counted);
    if counted.is_empty() || (summary.is_empty() && !page.verbose()) {
        return;
    }
    page.heading("Counters around known traffic");
    for line in summary {
        page.note(Paint::Plain, &line);
    }
    if page.verbose() {
        let mut table = Table::of_figures(6);
        table.captions(["", "copied", "over NVLink", "", "over PCIe, at least", ""]);
        table.captions(["GPU, pattern", "sent", "sent", "received", "sent", "received"]);
        for seen in counted {
            let size = |bytes: Option<Bytes>| or_dash(bytes.map(|bytes| bytes.to_string()));
            table.row([
                Cell::from(format!("GPU{}, {}", seen.gpu, seen.pattern)),
                Cell::from(seen.sent_bytes.to_string()),
                size(seen.nvlink_sent_bytes),
                size(seen.nvlink_received_bytes),
                size(seen.pcie_sent_bytes),
                size(seen.pcie_received_bytes),
            ]);
        }
        page.table(table);
    }
}

/// Writes heat, clocks and counters of each GPU before, while and after several flows ran. Only on request.
fn around(page: &mut Page, around: &[AroundLoad]) {
    if around.is_empty() || !page.verbose() {
        return;
    }
    page.heading("Around several flows at once: before, during, after");
    let mut table = Table::of_figures(7);
    table.captions(["", "°C", "", "", "SM MHz", "errors of", ""]);
    table.captions(["", "before", "during", "after", "during", "NVLinks", "PCIe"]);
    for seen in around {
        let span = |of: Option<[u32; 2]>| {
            or_dash(of.map(|[low, high]| range(low.into(), high.into(), whole, "-")))
        };
        let errors = seen.nvlink_errors.as_ref().map(|links| {
            links
                .iter()
                .flat_map(|errors| [errors.crc, errors.replay, errors.recovery])
                .fold(0, u64::saturating_add)
                .to_string()
        });
        let pcie = seen.pcie_errors_added.map(|errors| {
            let all = [
                errors.correctable,
                errors.non_fatal,
                errors.fatal,
                seen.replays_added.unwrap_or(0),
            ];
            all.into_iter().fold(0, u64::saturating_add).to_string()
        });
        table.row([
            Cell::from(format!("GPU{}", seen.gpu)),
            span(seen.before.temperature_c),
            span(seen.during.temperature_c),
            span(seen.after.temperature_c),
            span(seen.during.sm_clock_mhz),
            or_dash(errors),
            or_dash(pcie),
        ]);
    }
    page.table(table);
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// Summarizes the counts, a sentence each.
pub(super) fn summary(counted: &[Counted]) -> Vec<String> {
    let sound = || counted.iter().filter(|seen| !seen.disturbed);
    let part = |counted: Option<Bytes>, known: Bytes| {
        (known.0 > 0).then(|| counted.map(|bytes| of(bytes, known)))?
    };
    let parts = sound().flat_map(|seen| {
        let received = part(seen.nvlink_received_bytes, seen.received_bytes);
        [part(seen.nvlink_sent_bytes, seen.sent_bytes), received]
    });
    let gpus = |is_meant: fn(&Counted) -> bool| {
        // There is one row for each GPU of each pattern.
        let gpus: BTreeSet<u32> =
            sound().filter(|seen| is_meant(seen)).map(|seen| seen.gpu).collect();
        count(gpus.len(), "GPU")
    };
    let nvlink = Spread::of(parts.flatten()).map(|of| {
        let gpus = gpus(|seen| seen.nvlink_sent_bytes.is_some());
        format!(
            "NVLinks counted {}% of what was copied between GPUs ({gpus})",
            range(of.min, of.max, tenth, " to ")
        )
    });
    let directions =
        [|link: &LinkShare| link.sent_percent, |link: &LinkShare| link.received_percent];
    let links = sound()
        .flat_map(|seen| directions.map(|direction| even(&seen.links, direction)))
        .flatten()
        .flatten();
    let links = Spread::of(links).map(|of| {
        format!("each link carried {}% of an equal part", range(of.min, of.max, tenth, " to "))
    });
    let mut unread: Vec<&str> = counted.iter().filter_map(|seen| seen.reason.as_deref()).collect();
    unread.sort_unstable();
    unread.dedup();
    let unread = (!unread.is_empty()).then(|| format!("not counted: {}", unread.join("; ")));
    nvlink.into_iter().chain(links).chain(unread).collect()
}

/// Returns the share of each link as per cent of an equal share. It applies if all links lead to the switches: then all
/// carry traffic.
#[allow(clippy::cast_precision_loss, reason = "a number of links")]
fn even(links: &[LinkShare], direction: fn(&LinkShare) -> Option<f64>) -> Option<Vec<f64>> {
    let shares: Option<Vec<f64>> = links.iter().map(direction).collect();
    shares.map(|shares| shares.iter().map(|share| share * shares.len() as f64).collect())
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn of(part: Bytes, whole: Bytes) -> f64 {
    100.0 * part.0 as f64 / whole.0 as f64
}

fn tenth(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Style;
    use crate::text;

    fn shown(measurements: &Measurements, verbose: bool) -> String {
        let mut page = Page::new(verbose);
        write(&mut page, measurements);
        text::lay_out(&page, &Style { width: 100, ..Style::PLAIN })
    }

    #[test]
    fn patterns_their_limits_and_counters_are_shown() {
        let measurements = sample::loaded().measurements.unwrap();
        let text = shown(&measurements, false).split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "all to one 399 399 399 396 101",
            "limit all to one, GPU 0: 18 x NVLink 4.0 of GPU 0, shared by 7 flows",
            "all-reduce by ring over 8 GPUs: about 390 GB/s of bus bandwidth, since each sends 390 in the pattern ring",
            "all-reduce by tree over 8 GPUs: about 341 GB/s",
            "NVLinks counted 100.0% of what was copied between GPUs (8 GPUs)",
            "each link carried 100.0% of an equal part",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(shown(&measurements, true).contains("GPU7, ring"));
        let of_two_patterns = [measurements.counted.clone(), measurements.counted].concat();
        assert!(
            summary(&of_two_patterns)[0].ends_with("(8 GPUs)"),
            "{:?}",
            summary(&of_two_patterns)
        );
        assert_eq!(shown(&Measurements::default(), true), "");
    }
}
