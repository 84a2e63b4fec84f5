//! The report in Prometheus' text format, for node_exporter's textfile collector.
//!
//! Names contain base units. Samples have no timestamps, since the collector refuses them; the time of the run is a
//! metric. There are series for the machine and its classes of pairs only.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::digest::{Caveat, ClassFigures, Digest, SEVERITIES};
use super::format::{Format, Style};
use super::gauges::{Labels, Metrics};
use super::host::Ways;
use super::load::PatternFigures;
use super::pair_figures::local_rates;
use super::partial;
use model::host::Pinning;
use model::report::Conclusion;

pub const FORMAT: Format =
    Format::new("prometheus", &["prom"], "For node_exporter's textfile collector", render);

/// Returns the report as metrics.
fn render(digest: &Digest<'_>, _: &Style) -> String {
    let mut metrics = Metrics(String::new());
    run(&mut metrics, digest);
    verdict(&mut metrics, digest);
    classes(&mut metrics, digest);
    within_gpus(&mut metrics, digest);
    with_host(&mut metrics, digest);
    under_load(&mut metrics, digest);
    metrics.0
}

fn run(metrics: &mut Metrics, digest: &Digest<'_>) {
    let report = digest.report;
    let profile = report.measurements.as_ref().map_or("", |measurements| &measurements.profile);
    let labels = vec![
        ("machine", report.machine.as_str().into()),
        ("profile", profile.into()),
        ("schema", report.schema.as_str().into()),
        ("version", report.tool.version.as_str().into()),
    ];
    metrics.gauge(
        "info",
        "Program and report schema, and the machine: live, or the name of a simulated one.",
        [(labels, 1.0)],
    );
    for caveat in Caveat::ALL {
        let help = match caveat {
            Caveat::Simulated => {
                "1 if the machine is a simulated one and no figure comes from hardware."
            }
            Caveat::Interrupted => "1 if the run was interrupted.",
            Caveat::Recovered => "1 if the run was killed and this was recovered from its journal.",
            Caveat::Partial => "1 if part of the machine or of the profile was left out.",
            Caveat::Silenced => "1 if a configuration switched rules off or lowered them.",
            Caveat::Pasted => "1 if everything was read from the output of other tools.",
        };
        metrics.plain(caveat.word(), help, digest.is(caveat));
    }
    let left_out =
        partial::left_out(report).into_iter().map(|what| (vec![("what", what.into())], 1.0));
    metrics.gauge("left_out", "1 for everything that was left out, in words.", left_out);
    let silenced = report.request.silenced.iter().map(|rule| {
        let severity = rule.severity.map_or("off".into(), |severity| severity.to_string());
        (vec![("code", (&*rule.code).into()), ("severity", severity.into())], 1.0)
    });
    metrics.gauge(
        "rule_silenced",
        "1 for every rule that is off or lowered, with its severity.",
        silenced,
    );
    let started = OffsetDateTime::parse(&report.started_at, &Rfc3339).ok();
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 stay far below 2^53")]
    let started = started.map(|started| (Labels::new(), started.unix_timestamp() as f64));
    metrics.gauge("run_timestamp_seconds", "Start of the run, seconds since 1970.", started);
    let timing = &report.timing;
    let stages = [
        ("discover", timing.discover),
        ("driver_start", timing.driver_start),
        ("driver_floor", timing.driver_floor),
        ("measure", timing.measure),
        ("diagnose", timing.diagnose),
        ("total", timing.total),
    ];
    metrics.gauge(
        "stage_duration_seconds",
        "Time that each stage of the run took; stages overlap.",
        stages.map(|(stage, seconds)| (vec![("stage", stage.into())], seconds)),
    );
    metrics.plain("gpus", "Number of GPUs in the report.", count(report.snapshot.gpus.len()));
}

fn verdict(metrics: &mut Metrics, digest: &Digest<'_>) {
    let report = digest.report;
    let verdicts = [
        ("healthy", Conclusion::Healthy),
        ("faulty", Conclusion::Faulty),
        ("inconclusive", Conclusion::Inconclusive),
    ];
    metrics.gauge(
        "verdict",
        "1 for the verdict of the run, 0 for the others.",
        verdicts.map(|(name, verdict)| {
            (vec![("verdict", name.into())], (report.verdict.verdict == verdict).into())
        }),
    );
    metrics.plain(
        "exit_code",
        "Exit code of the run, by the chosen exit contract.",
        report.verdict.exit_code,
    );
    let measurements = [("tested", report.verdict.tested), ("untested", report.verdict.untested)];
    metrics.gauge(
        "measurements",
        "Requested measurements, with a result and without.",
        measurements.map(|(state, number)| (vec![("state", state.into())], number.into())),
    );
    let severities = SEVERITIES.map(|severity| {
        (vec![("severity", severity.to_string().into())], count(digest.count_of(severity)))
    });
    metrics.gauge("findings", "Findings by severity.", severities);
    // Every rule has its series, so that an alert need not handle a missing one.
    let mut rules: BTreeMap<&str, usize> =
        diagnose::RULES.iter().map(|rule| (&*rule.id, 0)).collect();
    for finding in &report.findings {
        *rules.entry(&finding.code).or_default() += 1;
    }
    metrics.gauge(
        "rule_findings",
        "Findings by the code of their rule; 'peerscope explain CODE' explains it.",
        rules.into_iter().map(|(code, number)| (vec![("code", code.into())], count(number))),
    );
}

/// Name, help and value of a metric by class.
type ClassSeries = (&'static str, &'static str, fn(&ClassFigures) -> Option<f64>);

fn classes(metrics: &mut Metrics, digest: &Digest<'_>) {
    let mut pairs: BTreeMap<_, usize> = BTreeMap::new();
    for route in &digest.report.topology.pairs {
        *pairs.entry(route.class).or_default() += 1;
    }
    metrics.gauge(
        "class_pairs",
        "Ordered pairs of GPUs by the class of their link, in nvidia-smi's words.",
        pairs
            .into_iter()
            .map(|(class, number)| (vec![("class", class.to_string().into())], count(number))),
    );
    let figures = digest.by_class();
    let series: [ClassSeries; 6] = [
        (
            "class_bandwidth_min_bytes_per_second",
            "Bandwidth of the slowest pair of a class, one direction.",
            |class| Some(bytes_per_second(class.copies.rates?.min)),
        ),
        (
            "class_bandwidth_median_bytes_per_second",
            "Median bandwidth of the pairs of a class, one direction.",
            |class| Some(bytes_per_second(class.copies.rates?.median)),
        ),
        (
            "class_bandwidth_min_ratio",
            "Least share of the theoretical bandwidth that a pair of a class reaches.",
            |class| Some(ratio(class.copies.percents?.min)),
        ),
        (
            "class_bandwidth_median_ratio",
            "Median share of the theoretical bandwidth that the pairs of a class reach.",
            |class| Some(ratio(class.copies.percents?.median)),
        ),
        (
            "class_latency_median_seconds",
            "Median time of a small copy, of the pairs of a class.",
            |class| Some(seconds(class.latencies?.median)),
        ),
        (
            "class_latency_max_seconds",
            "Longest time of a small copy, of the pairs of a class.",
            |class| Some(seconds(class.latencies?.max)),
        ),
    ];
    for (name, help, value) in series {
        let samples = figures.iter().filter_map(|class| {
            let labels = vec![
                ("class", class.class.to_string().into()),
                ("path", class.path.to_string().into()),
            ];
            Some((labels, value(class)?))
        });
        metrics.gauge(name, help, samples);
    }
}

/// Writes the rates of copies within GPUs.
fn within_gpus(metrics: &mut Metrics, digest: &Digest<'_>) {
    let rates = digest.report.measurements.as_ref().and_then(local_rates);
    let help = "Bytes copied per second within a GPU, not read plus written";
    for (name, of, rate) in [
        ("local_copy_min_bytes_per_second", "the slowest", rates.map(|rates| rates.min)),
        ("local_copy_median_bytes_per_second", "the median", rates.map(|rates| rates.median)),
    ] {
        metrics.gauge(
            name,
            &format!("{help}: {of}."),
            rate.map(|rate| (Labels::new(), bytes_per_second(rate))),
        );
    }
}

/// Name, help and value of a metric by kind of host copy.
type WaySeries = (&'static str, &'static str, fn(&Ways) -> Option<f64>);

/// Writes the rates of host copies, and the cost of page-locking host memory.
fn with_host(metrics: &mut Metrics, digest: &Digest<'_>) {
    let measurements = digest.report.measurements.as_ref();
    let ways = measurements.map(Ways::of).unwrap_or_default();
    let labels = |way: &Ways| -> Labels<'_> {
        vec![
            ("allocation", way.way.allocation.to_string().into()),
            ("direction", way.way.direction.to_string().into()),
            ("engine", way.way.engine.to_string().into()),
            ("gpus_at_once", way.at_once.to_string().into()),
            ("memory", way.way.memory.to_string().into()),
        ]
    };
    let help = "Bandwidth between the host and a GPU, one direction";
    let series: [WaySeries; 3] = [
        ("host_copy_min_bytes_per_second", "the slowest GPU", |way| Some(way.rates?.min)),
        ("host_copy_median_bytes_per_second", "the median GPU", |way| Some(way.rates?.median)),
        ("host_copy_sum_bytes_per_second", "the sum over all GPUs that were measured so", |way| {
            way.sum
        }),
    ];
    for (name, of, rate) in series {
        let samples =
            ways.iter().filter_map(|way| Some((labels(way), bytes_per_second(rate(way)?))));
        metrics.gauge(name, &format!("{help}: {of}."), samples);
    }
    let of_node = |node: &'_ Pinning| {
        let name = node.numa_node.map_or_else(|| "unknown".to_owned(), |node| node.to_string());
        let times = [
            ("allocate", node.allocate_ms_per_gib),
            ("free", node.free_ms_per_gib),
            ("register", node.register_ms_per_gib),
            ("unregister", node.unregister_ms_per_gib),
        ];
        let sample = move |(call, ms): (&'static str, Option<f64>)| {
            Some((vec![("call", call.into()), ("numa_node", name.clone().into())], ms? / 1e3))
        };
        times.into_iter().filter_map(sample).collect::<Vec<_>>()
    };
    metrics.gauge(
        "pinning_seconds_per_gib",
        "Time to page-lock or unlock a GiB of the host's memory.",
        measurements.into_iter().flat_map(|measurements| &measurements.pinning).flat_map(of_node),
    );
}

/// Writes the rates of several flows at once, and the counters read around them.
fn under_load(metrics: &mut Metrics, digest: &Digest<'_>) {
    let measurements = digest.report.measurements.as_ref();
    let kinds = measurements.map(PatternFigures::of).unwrap_or_default();
    let labels = |kind: &PatternFigures<'_>| -> Labels<'_> {
        vec![("pattern", kind.pattern.to_string().into())]
    };
    metrics.gauge(
        "load_min_bytes_per_second",
        "Rate of all flows of a pattern together, of the slowest pattern of its kind.",
        kinds.iter().filter_map(|kind| Some((labels(kind), bytes_per_second(kind.rates?.min)))),
    );
    let expected = |kind: &PatternFigures<'_>| kind.worst()?.expected_percent;
    metrics.gauge(
        "load_min_expected_ratio",
        "Least share of what a pattern of several flows should reach.",
        kinds.iter().filter_map(|kind| Some((labels(kind), ratio(expected(kind)?)))),
    );
}

fn bytes_per_second(gbps: f64) -> f64 {
    (gbps * 1e9).round()
}

fn ratio(percent: f64) -> f64 {
    percent / 100.0
}

fn seconds(microseconds: f64) -> f64 {
    microseconds / 1e6
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub const fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
#[path = "prometheus_tests.rs"]
mod tests;
