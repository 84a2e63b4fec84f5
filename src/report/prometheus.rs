//! The report in Prometheus' text format, for node_exporter's textfile collector.
//!
//! Figures are `peerscope_PROBE_FIGURE_STATISTIC_UNIT`, as the cells declare them, in base units. Samples have no timestamps,
//! since the collector refuses them; the time of the run is a metric.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::declared::{self, PLACES};
use super::digest::{Caveat, Digest, SEVERITIES};
use super::figures::Spread;
use super::format::{Format, Style};
use super::gauges::{Labels, Metrics};
use super::partial;
use model::cell::{Figure, Measurement, Quantity};
use model::measurement::Scope;
use model::placement::Pair;
use model::report::Conclusion;

pub const FORMAT: Format =
    Format::new("prometheus", &["prom"], "For node_exporter's textfile collector", render);

/// Ends of keys, with the base unit that replaces each, and the factor.
const UNITS: [(&str, &str, f64); 5] = [
    ("gbps", "bytes_per_second", 1e9),
    ("percent", "ratio", 0.01),
    ("us", "seconds", 1e-6),
    ("ms_per_gib", "seconds_per_gib", 1e-3),
    ("bytes", "bytes", 1.0),
];

/// Returns the report as metrics.
fn render(digest: &Digest<'_>, _: &Style) -> String {
    let mut metrics = Metrics(String::new());
    run(&mut metrics, digest);
    verdict(&mut metrics, digest);
    figures(&mut metrics, digest);
    metrics.0
}

fn run(metrics: &mut Metrics, digest: &Digest<'_>) {
    let report = digest.report;
    let profile = report.measurements.as_ref().map_or("", |measurements| &measurements.profile);
    let labels = [
        ("machine", &*report.machine),
        ("profile", profile),
        ("schema", &report.schema),
        ("version", &report.tool.version),
    ];
    let labels = labels.map(|(name, value)| (name, value.into())).to_vec();
    metrics.gauge("info", "Program, and the machine: live or simulated.", [(labels, 1.0)]);
    for caveat in Caveat::ALL {
        let help = format!("1 if the report is {}.", caveat.word());
        metrics.plain(caveat.word(), &help, digest.is(caveat));
    }
    let left_out =
        partial::left_out(report).into_iter().map(|what| (vec![("what", what.into())], 1.0));
    metrics.gauge("left_out", "1 for everything that was left out, in words.", left_out);
    let silenced = report.request.silenced.iter().map(|rule| {
        let severity = rule.severity.map_or("off".into(), |severity| severity.to_string());
        (vec![("code", (&*rule.code).into()), ("severity", severity.into())], 1.0)
    });
    metrics.gauge("rule_silenced", "1 for every rule that is off or lowered.", silenced);
    let started = OffsetDateTime::parse(&report.started_at, &Rfc3339).ok();
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 stay far below 2^53")]
    let started = started.map(|started| (Labels::new(), started.unix_timestamp() as f64));
    metrics.gauge("run_timestamp_seconds", "Start of the run, seconds since 1970.", started);
    metrics.plain("run_duration_seconds", "Time that the run took.", report.timing.total);
    metrics.plain("gpus", "Number of GPUs in the report.", count(report.snapshot.gpus.len()));
}

fn verdict(metrics: &mut Metrics, digest: &Digest<'_>) {
    let (report, verdict) = (digest.report, &digest.report.verdict);
    let verdicts = [
        ("healthy", Conclusion::Healthy),
        ("faulty", Conclusion::Faulty),
        ("inconclusive", Conclusion::Inconclusive),
    ];
    let verdicts = verdicts
        .map(|(name, one)| (vec![("verdict", name.into())], (verdict.verdict == one).into()));
    metrics.gauge("verdict", "1 for the verdict of the run, 0 for the others.", verdicts);
    metrics.plain("exit_code", "Exit code of the run, by the chosen contract.", verdict.exit_code);
    let measurements = [("tested", verdict.tested), ("untested", verdict.untested)];
    let measurements =
        measurements.map(|(state, number)| (vec![("state", state.into())], number.into()));
    metrics.gauge("measurements", "Requested ones, with a result and without.", measurements);
    let severities = SEVERITIES.map(|severity| {
        (vec![("severity", severity.to_string().into())], count(digest.count_of(severity)))
    });
    metrics.gauge("findings", "Findings by severity.", severities);
    let mut rules: BTreeMap<_, usize> = BTreeMap::new();
    for finding in &report.findings {
        *rules.entry((&*finding.code, finding.severity)).or_default() += 1;
    }
    let rules = rules.into_iter().map(|((code, severity), number)| {
        (vec![("code", code.into()), ("severity", severity.to_string().into())], count(number))
    });
    metrics.gauge("rule_findings", "Findings by code: 'peerscope explain CODE'.", rules);
}

/// A family of metrics: its name without the statistic, its unit, its key in the report, and the statistic beside the median.
type Family = (String, String, &'static str, &'static str);

/// Writes the worst and the median of each figure, over the places where it was measured in the same way. Amounts that only
/// describe a measurement, such as its spread, are left to CSV.
fn figures(metrics: &mut Metrics, digest: &Digest<'_>) {
    let mut all: BTreeMap<Family, BTreeMap<Labels<'_>, Vec<f64>>> = BTreeMap::new();
    let groups = digest.report.measurements.iter().flat_map(declared::groups);
    let cells = groups.flat_map(|group| group.rows).flat_map(|row| row.cells);
    for one in cells.filter(|one| one.is_sound()) {
        let labels = labels(digest, one);
        for (number, figure) in one.figures().iter().enumerate().filter(|(_, of)| !of.is_given) {
            let is_aside = number > 0 && figure.quantity == Quantity::Amount;
            if let Some(value) = figure.value.filter(|_| !is_aside) {
                let (metric, factor) = metric(one, figure);
                let series = all.entry(metric).or_default().entry(labels.clone());
                series.or_default().push(value * factor);
            }
        }
    }
    for ((name, unit, key, worst), series) in all {
        for (statistic, words) in [(worst, "the worst"), ("median", "the median")] {
            let name = format!("{name}_{statistic}{unit}");
            let samples = series.iter().filter_map(|(labels, values)| {
                let spread = Spread::of(values.iter().copied())?;
                let value = match statistic {
                    "min" => spread.min,
                    "max" => spread.max,
                    _ => spread.median,
                };
                Some((labels.clone(), value))
            });
            metrics.gauge(&name, &format!("{key} in the report: {words} of all places."), samples);
        }
    }
}

fn metric(one: &dyn Measurement, figure: &Figure) -> (Family, f64) {
    let known = UNITS.into_iter().find(|(end, ..)| figure.key.ends_with(end));
    let (end, unit, factor) = known.unwrap_or(("", "", 1.0));
    let stem = figure.key.strip_suffix(end).unwrap_or(figure.key).replace("[].", "_");
    let name = format!("{}_{stem}", one.probe()).replace(' ', "_");
    let worst = if unit.starts_with("seconds") { "max" } else { "min" };
    let unit = if unit.is_empty() { String::new() } else { format!("_{unit}") };
    ((name.trim_end_matches('_').to_owned(), unit, figure.key, worst), factor)
}

/// Returns how it was measured, with the class of the link between two GPUs. A series covers all places, and all sizes, which
/// follow from the link, so that the number of GPUs adds none.
fn labels(digest: &Digest<'_>, one: &dyn Measurement) -> Labels<'static> {
    let axes = one.axes().into_iter();
    let mut labels: Labels<'_> = axes
        .filter(|(name, value)| !PLACES.contains(name) && *name != "bytes" && !value.is_empty())
        .map(|(name, value)| (name, value.into()))
        .collect();
    let ends = one.flow().ends().map(|end| end.gpu());
    let is_of_one_flow = one.probe().scope() != Scope::Flows;
    if let [Some(source), Some(destination)] = ends
        && is_of_one_flow
        && source != destination
    {
        let class = digest.class(Pair { source, destination });
        labels.push(("class", class.to_string().into()));
    }
    labels
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub const fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
#[path = "prometheus_tests.rs"]
mod tests;
