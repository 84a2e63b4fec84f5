//! The last minute under load as metrics in Prometheus' text format.

use super::gauges::{Labels, Metrics};
use super::soak::bytes_of;
use model::soak::{MinuteOfGpu, Soak};

/// Returns the last minute as metrics in Prometheus' text format.
pub fn series(soak: &Soak) -> String {
    let mut metrics = Metrics(String::new());
    metrics.plain("soak_seconds", "Time under load so far.", soak.seconds);
    let asked = soak.requested_seconds;
    metrics.plain("soak_requested_seconds", "Time under load that was asked for.", asked);
    let events = [("1", true), ("0", false)].map(|(name, fault)| {
        let some = soak.events.iter().filter(|event| event.is_fault() == fault).count();
        (vec![("fault", name.into())], bytes_of(some as u64))
    });
    metrics.gauge("soak_events", "Events so far: faults, and others.", events);
    let Some(last) = soak.minutes.last() else { return metrics.0 };
    let mut of_gpus = |name, help, of: fn(&MinuteOfGpu) -> Option<f64>| {
        let known = last
            .gpus
            .iter()
            .filter_map(|own| Some((vec![("gpu", own.gpu.to_string().into())], of(own)?)));
        metrics.gauge(name, help, known);
    };
    let help = "Mean temperature of the chip in the last minute.";
    of_gpus("soak_temperature_celsius", help, |own| own.temperature_c);
    let help = "Mean clock of the multiprocessors in the last minute.";
    of_gpus("soak_sm_clock_hertz", help, |own| own.sm_clock_mhz.map(|clock| clock * 1e6));
    let rates = last.paths.iter().filter_map(|own| {
        let path = soak.paths.get(own.path as usize)?;
        let pattern = path.pattern.map_or("kernel".into(), |pattern| pattern.to_string().into());
        let labels: Labels<'_> = vec![
            ("from", path.from.to_string().into()),
            ("to", path.to.to_string().into()),
            ("pattern", pattern),
            ("of", path.of.as_str().into()),
        ];
        Some((labels, own.gbps * 1e9))
    });
    let help = "Median rate of each flow in the last minute.";
    metrics.gauge("soak_rate_bytes_per_second", help, rates);
    metrics.0
}
