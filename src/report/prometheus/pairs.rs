//! Series for every ordered pair and every GPU, on request.

use std::collections::BTreeMap;

use model::cell::Measurement;
use model::host::{HostCopy, HostWay};
use model::measurement::{Measurements, Shown};
use model::placement::Pair;
use model::report::Report;

use super::{bytes_per_second, count, ratio, seconds};
use crate::digest::Digest;
use crate::gauges::{Labels, Metrics, in_base_units};
use crate::pair_figures::sound_latencies;

pub(super) fn every_pair(metrics: &mut Metrics, digest: &Digest<'_>) {
    let report = digest.report;
    let labels = |pair: Pair, path: Option<&dyn std::fmt::Display>| {
        let mut labels: Labels<'_> = vec![
            ("source", pair.source.to_string().into()),
            ("destination", pair.destination.to_string().into()),
            ("class", digest.class(pair).to_string().into()),
        ];
        labels.extend(path.map(|path| ("path", path.to_string().into())));
        labels
    };
    let cells = digest.reference();
    metrics.gauge(
        "pair_bandwidth_bytes_per_second",
        "Bandwidth from the source to the destination GPU.",
        cells.iter().filter_map(|cell| {
            Some((
                labels(cell.pair, Some(&cell.setup.path)),
                bytes_per_second(cell.achieved_gbps?.0),
            ))
        }),
    );
    metrics.gauge(
        "pair_bandwidth_ratio",
        "Share of the theoretical bandwidth that the pair reaches.",
        cells.iter().filter_map(|cell| {
            Some((labels(cell.pair, Some(&cell.setup.path)), ratio(cell.percent?)))
        }),
    );
    metrics.gauge(
        "pair_theoretical_bytes_per_second",
        "Payload rate of the narrowest hop of the direct route.",
        report.topology.pairs.iter().filter_map(|route| {
            Some((labels(route.pair, None), bytes_per_second(route.theoretical_gbps?.0)))
        }),
    );
    metrics.gauge(
        "pair_latency_seconds",
        "Time of a small copy.",
        report.measurements.iter().flat_map(sound_latencies).filter_map(|cell| {
            Some((labels(cell.pair, Some(&cell.path)), seconds(cell.latency_us?)))
        }),
    );
    let local = report.measurements.iter().flat_map(|measurements| &measurements.local);
    metrics.gauge(
        "gpu_local_copy_bytes_per_second",
        "Bytes copied per second within the GPU, not read plus written.",
        local.filter(|local| local.cell().tested()).filter_map(|local| {
            Some((
                vec![("gpu", local.gpu.to_string().into())],
                bytes_per_second(local.achieved_gbps?.0),
            ))
        }),
    );
    let alone = |copy: &&HostCopy| copy.at_once == 1 && copy.engine == HostWay::PINNED.engine;
    let host = report.measurements.iter().flat_map(|measurements| &measurements.host).filter(alone);
    metrics.gauge(
        "gpu_host_copy_bytes_per_second",
        "Bandwidth between the host and the GPU by copy engine, one direction, by itself.",
        host.filter_map(|copy| {
            let node = copy.numa_node.map_or_else(|| "unknown".to_owned(), |node| node.to_string());
            let labels: Labels<'_> = vec![
                ("allocation", copy.allocation.to_string().into()),
                ("direction", copy.direction.to_string().into()),
                ("gpu", copy.gpu.to_string().into()),
                ("memory", copy.memory.to_string().into()),
                ("numa_node", node.into()),
            ];
            Some((labels, bytes_per_second(copy.rate()?.0)))
        }),
    );
    on_one_gpu(metrics, report);
    others(metrics, report);
    let mut states: BTreeMap<Pair, [usize; 2]> = BTreeMap::new();
    for cell in report.measurements.iter().flat_map(diagnose::cells) {
        let Some(pair) = cell.flow.pair() else {
            continue;
        };
        states.entry(pair).or_default()[usize::from(!cell.tested())] += 1;
    }
    metrics.gauge(
        "pair_measurements",
        "Requested measurements of the pair, with a result and without.",
        states.into_iter().flat_map(|(pair, numbers)| {
            ["tested", "untested"].into_iter().zip(numbers).map(move |(state, number)| {
                let mut labels = labels(pair, None);
                labels.push(("state", state.into()));
                (labels, count(number))
            })
        }),
    );
}

/// Writes pipelines and copy engines of each GPU.
fn on_one_gpu(metrics: &mut Metrics, report: &Report) {
    let pipelines = report.measurements.iter().flat_map(|measurements| &measurements.pipeline);
    metrics.gauge(
        "gpu_pipeline_speed_up",
        "How many times as fast a pipeline of copies and kernels is in several streams as in one.",
        pipelines.filter(|cell| cell.cell().tested()).filter_map(|cell| {
            let labels = vec![
                ("gpu", cell.gpu.to_string().into()),
                ("memory", cell.memory.to_string().into()),
                ("streams", cell.streams.to_string().into()),
            ];
            Some((labels, cell.speed_up?))
        }),
    );
    let engines = report.measurements.iter().flat_map(|measurements| &measurements.engines);
    metrics.gauge(
        "gpu_copy_engines",
        "Copy engines that the driver reports, and those that were at work at the same time.",
        engines.filter(|cell| cell.cell().tested()).flat_map(|cell| {
            let numbers = [("reported", cell.reported), ("observed", cell.observed)];
            numbers.into_iter().filter_map(|(state, number)| {
                Some((
                    vec![("gpu", cell.gpu.to_string().into()), ("state", state.into())],
                    f64::from(number?),
                ))
            })
        }),
    );
}

/// Writes every measured figure of all other probes, as their cells declare them.
fn others(metrics: &mut Metrics, report: &Report) {
    let mut series: BTreeMap<(String, &str), Vec<(Labels<'_>, f64)>> = BTreeMap::new();
    let cells = report.measurements.iter().flat_map(Measurements::each);
    for cell in cells.filter(|cell| cell.probe().shown() != Shown::ByHand && cell.is_sound()) {
        let axes = cell.axes().into_iter();
        let labels: Labels<'_> = axes
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, value.into()))
            .collect();
        for figure in cell.figures().iter().filter(|figure| !figure.is_given) {
            let Some(value) = figure.value else { continue };
            let (name, value) = in_base_units(figure.key, value);
            let probe = cell.probe().to_string().replace(' ', "_");
            let samples = series.entry((format!("{probe}_{name}"), figure.key));
            samples.or_default().push((labels.clone(), value));
        }
    }
    for ((name, key), samples) in series {
        let help = format!("The figure {key} of such a measurement.");
        metrics.gauge(&name, &help, samples);
    }
}
