//! The last minute under load as metrics in Prometheus' text format.

use super::gauges::{Labels, Metrics};
use super::soak::bytes_of;
use model::soak::{MinuteOfGpu, Soak};

/// Returns the last minute as metrics in Prometheus' text format.
pub fn series(soak: &Soak) -> String {
    let mut metrics = Metrics(String::new());
    metrics.plain("soak_seconds", "Time under load so far.", soak.seconds);
    metrics.plain(
        "soak_requested_seconds",
        "Time under load that was asked for.",
        soak.requested_seconds,
    );
    let events = |fault: bool| {
        let some = soak.events.iter().filter(|event| event.is_fault() == fault);
        (vec![("fault", if fault { "1" } else { "0" }.into())], bytes_of(some.count() as u64))
    };
    metrics.gauge(
        "soak_events",
        "Events so far: faults, and others.",
        [events(true), events(false)],
    );
    let Some(last) = soak.minutes.last() else {
        return metrics.0;
    };
    let of_gpu = |of: fn(&MinuteOfGpu) -> Option<f64>| {
        let known = last.gpus.iter().filter_map(move |own| Some((own.gpu, of(own)?)));
        known
            .map(|(gpu, value)| (vec![("gpu", gpu.to_string().into())] as Labels, value))
            .collect::<Vec<_>>()
    };
    metrics.gauge(
        "soak_temperature_celsius",
        "Mean temperature of the chip in the last minute.",
        of_gpu(|own| own.temperature_c),
    );
    metrics.gauge(
        "soak_sm_clock_hertz",
        "Mean clock of the multiprocessors in the last minute.",
        of_gpu(|own| own.sm_clock_mhz.map(|clock| clock * 1e6)),
    );
    let rates = last.paths.iter().filter_map(|own| {
        let path = soak.paths.get(own.path as usize)?;
        let labels: Labels = vec![
            ("from", path.from.to_string().into()),
            ("to", path.to.to_string().into()),
            ("pattern", path.pattern.map_or("kernel".into(), |pattern| pattern.to_string().into())),
            ("of", path.of.as_str().into()),
        ];
        Some((labels, own.gbps * 1e9))
    });
    metrics.gauge(
        "soak_rate_bytes_per_second",
        "Median rate of each flow in the last minute.",
        rates.collect::<Vec<_>>(),
    );
    metrics.0
}
