//! Prometheus' text format: metrics with their samples.

use std::fmt::Write;

use super::escape::clean;

/// Names and values of labels.
pub type Labels<'a> = Vec<(&'static str, std::borrow::Cow<'a, str>)>;

/// Text that grows by whole metrics, so that HELP and TYPE appear once, before all samples of a metric.
pub struct Metrics(pub String);

impl Metrics {
    /// Adds a metric without labels.
    pub fn plain(&mut self, name: &str, help: &str, value: impl Into<f64>) {
        self.gauge(name, help, [(Labels::new(), value.into())]);
    }

    /// Adds a metric with its samples, or nothing if there are none. Values of a report may fall as well as rise, so
    /// every metric is a gauge.
    pub fn gauge<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) {
        let mut samples = samples.into_iter().filter(|(_, value)| value.is_finite()).peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP peerscope_{name} {help}\n# TYPE peerscope_{name} gauge");
        for (labels, value) in samples {
            let labels: Vec<_> =
                labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
            let labels =
                if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(self.0, "peerscope_{name}{labels} {}", number(value));
        }
    }
}

/// Escapes a label's value: makes control characters visible, then escapes the characters that the format interprets.
fn escaped(value: &str) -> String {
    clean(value).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Rounds to nine decimal places (a nanosecond), and large values to none; drops trailing zeros.
pub fn number(value: f64) -> String {
    if value.abs() >= 1e6 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
