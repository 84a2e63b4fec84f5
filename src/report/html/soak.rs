//! Hours under load as charts over time: rates of each arrangement of flows, temperatures and clocks of each GPU, and what
//! happened when. All have one axis of time.

use maud::{Markup, html};

use super::super::escape::clean;
use super::super::soak::{alike, duration, summary};
use super::blocks::NEW_LINE;
use model::measurement::Measurements;
use model::rounding::rate;
use model::soak::{MinuteOfGpu, Soak, SoakEvent};

/// Width of a chart, its left edge, and its height, in its own units: about pixels.
const WIDTH: f64 = 640.0;
const LEFT: f64 = 52.0;
const HEIGHT: f64 = 120.0;
/// Line of times below a chart, and room above it.
const TIMES: f64 = 18.0;
const ABOVE: f64 = 8.0;
/// Height of a line of text.
const LETTERS: f64 = 13.0;
/// Most points of a line: a page must stay small. A longer soak has means of several minutes.
const MOST_POINTS: usize = 240;
/// Most lines of a chart.
const MOST_LINES: usize = 16;
/// Most events that are marked and listed.
const MOST_EVENTS: usize = 200;

/// A line of a chart.
struct Line {
    name: String,
    /// Seconds and values.
    points: Vec<(f64, f64)>,
}

/// Renders the charts, or nothing without hours under load.
pub(super) fn write(measurements: &Measurements) -> Markup {
    let soak = measurements.soak.as_deref();
    let soak = soak.filter(|soak| !soak.minutes.is_empty());
    html! {
        @if let Some(soak) = soak {
            (NEW_LINE) section .soak {
                h2 { "Hours under load" }
                @for sentence in summary(soak) { p { (clean(&sentence)) } }
                (rates(soak))
                (of_gpus(soak, "Temperature, °C", |own| own.temperature_c))
                (of_gpus(soak, "Clock of the multiprocessors, MHz", |own| own.sm_clock_mhz))
                (events(soak))
            }
        }
    }
}

/// Draws the lowest flow of each arrangement, each as its share of its own highest rate, so that all are on one scale.
fn rates(soak: &Soak) -> Markup {
    let mut lines: Vec<Line> = Vec::new();
    let mut seen = Vec::new();
    for path in &soak.paths {
        let key = (path.pattern, path.of.clone());
        if seen.contains(&key) {
            continue;
        }
        seen.push(key.clone());
        let own: Vec<u32> = soak
            .numbered()
            .filter(|(_, other)| (other.pattern, other.of.clone()) == key)
            .map(|(number, _)| number)
            .collect();
        let points: Vec<(f64, f64)> = soak
            .minutes
            .iter()
            .filter_map(|minute| {
                let rates = minute.paths.iter().filter(|path| own.contains(&path.path));
                let lowest = rates.map(|path| path.gbps).reduce(f64::min)?;
                Some((minute.until_s, lowest))
            })
            .collect();
        let most = points.iter().map(|(_, gbps)| *gbps).fold(0.0, f64::max);
        if most <= 0.0 {
            continue;
        }
        let pattern = path.pattern.map_or("by kernel".to_owned(), |pattern| pattern.to_string());
        lines.push(Line {
            name: format!("{pattern} {} (highest {} GB/s)", path.of, rate(most)),
            points: points.into_iter().map(|(at, gbps)| (at, 100.0 * gbps / most)).collect(),
        });
    }
    chart(soak, "Lowest flow of each arrangement, per cent of its highest minute", lines)
}

fn of_gpus(soak: &Soak, title: &str, figure: fn(&MinuteOfGpu) -> Option<f64>) -> Markup {
    let lines = soak.gpus().into_iter().map(|gpu| Line {
        name: format!("GPU {gpu}"),
        points: soak.of_gpu(gpu).filter_map(|(until, own)| Some((until, figure(own)?))).collect(),
    });
    chart(soak, title, lines.collect())
}

/// Draws lines over time, with a mark for each event.
fn chart(soak: &Soak, title: &str, mut lines: Vec<Line>) -> Markup {
    for line in &mut lines {
        // The last entry of a soak may have no length.
        line.points.dedup_by(|later, earlier| later.0 <= earlier.0);
    }
    lines.retain(|line| !line.points.is_empty());
    let left_out = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    let values = || lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let (Some(least), Some(most)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
        return html! {};
    };
    // Some room, so that a steady line is not drawn as noise.
    let room = ((most - least) * 0.1).max(most.abs() * 0.02).max(1e-6);
    let (low, high) = (least - room, most + room);
    let end = soak.seconds.max(1.0);
    let x = |at: f64| LEFT + (WIDTH - LEFT - 8.0) * (at / end).clamp(0.0, 1.0);
    let y = |value: f64| ABOVE + HEIGHT * (1.0 - (value - low) / (high - low));
    let bottom = ABOVE + HEIGHT;
    // Values that are close together have figures that differ, apart from each other.
    let differ = most - least >= 0.05;
    let digits = usize::from(differ && most - least < 2.0);
    let apart = ((LETTERS - (y(least) - y(most))) / 2.0).max(0.0);
    let labels = match differ {
        true => vec![(least, apart), (most, -apart)],
        false => vec![(least, 0.0)],
    };
    let view = format!("0 0 {WIDTH} {}", bottom + TIMES);
    let marks = soak.events.iter().filter(|event| event.is_fault()).take(MOST_EVENTS);
    html! {
        h3 { (title) }
        svg .over-time viewBox=(view) role="img" aria-label=(title) {
            rect .track x=(LEFT) y=(ABOVE) width=(WIDTH - LEFT - 8.0) height=(HEIGHT) {}
            @for (value, moved) in labels {
                line .grid x1=(LEFT) x2=(WIDTH - 8.0) y1=(place(y(value))) y2=(place(y(value))) {}
                text .end x=(LEFT - 4.0) y=(place(y(value) + 4.0 + moved)) { (format!("{value:.digits$}")) }
            }
            @for part in 0..=4 {
                @let at = end * f64::from(part) / 4.0;
                text .(if part == 4 { "end" } else { "mid" }) x=(place(x(at))) y=(bottom + 14.0) { (duration(if end > 600.0 { (at / 60.0).round() * 60.0 } else { at })) }
            }
            @for event in marks {
                line .mark x1=(place(x(event.at_s))) x2=(place(x(event.at_s))) y1=(ABOVE) y2=(bottom) { title { (clean(&words(event))) } }
            }
            @for (number, line) in lines.iter().enumerate() {
                polyline .(format!("line{}", number % 8)) points=(points(&line.points, &x, &y)) { title { (clean(&line.name)) } }
            }
        }
        p .legend {
            @for (number, line) in lines.iter().enumerate() {
                span .key.(format!("line{}", number % 8)) { (clean(&line.name)) } " "
            }
            @if left_out > 0 { "and " (left_out) " more in the report" }
        }
    }
}

/// Returns the points of a line, as means of several minutes if there are many.
fn points(all: &[(f64, f64)], x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) -> String {
    let each = all.len().div_ceil(MOST_POINTS).max(1);
    let point = |some: &[(f64, f64)]| {
        let of = |value: fn(&(f64, f64)) -> f64| model::soak::mean(some.iter().map(value));
        Some(format!("{},{}", place(x(of(|(at, _)| *at)?)), place(y(of(|(_, value)| *value)?))))
    };
    let points: Vec<String> = all.chunks(each).filter_map(point).collect();
    points.join(" ")
}

/// Returns a place with one decimal.
fn place(value: f64) -> String {
    format!("{value:.1}")
}

fn words(event: &SoakEvent) -> String {
    format!("after {}: {}", duration(event.at_s), event.what)
}

/// Lists the events.
fn events(soak: &Soak) -> Markup {
    let all = alike(soak);
    let left_out = all.len().saturating_sub(MOST_EVENTS) as u64 + soak.events_left_out;
    html! {
        h3 { "Events" }
        @if soak.events.is_empty() { p .faint { "None." } }
        @else {
            dl {
                @for alike in all.iter().take(MOST_EVENTS) {
                    (NEW_LINE) dt .warning[alike.first.is_fault()] { (duration(alike.first.at_s)) } dd { (clean(&alike.words())) }
                }
            }
            @if left_out > 0 { p .faint { "and " (left_out) " more" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::soak::{EventKind, Minute, MinuteOfPath, SoakPath};

    #[test]
    fn a_day_is_drawn_with_few_points_and_events_are_escaped() {
        let minute = |number: u32| Minute {
            until_s: 60.0 * f64::from(number),
            gpus: vec![MinuteOfGpu {
                gpu: 0,
                temperature_c: Some(60.0 + f64::from(number % 3)),
                ..MinuteOfGpu::default()
            }],
            paths: vec![MinuteOfPath {
                gbps: 390.0,
                lowest_gbps: 389.0,
                ..MinuteOfPath::default()
            }],
        };
        let flow = model::flow::Flow::inside(0);
        let soak = Soak {
            seconds: 86400.0,
            paths: vec![SoakPath {
                pattern: None,
                of: String::new(),
                from: flow.from,
                to: flow.to,
            }],
            minutes: (1..=1440).map(minute).collect(),
            events: vec![SoakEvent {
                at_s: 5.0,
                kind: EventKind::Hung,
                gpu: None,
                path: None,
                function: None,
                xid: None,
                what: "<script>\u{1b}[2J".into(),
            }],
            ..Soak::default()
        };
        let measurements = Measurements { soak: Some(Box::new(soak)), ..Measurements::default() };
        let page = write(&measurements).into_string();
        assert!(!page.contains("<script>") && !page.contains('\u{1b}'), "{page}");
        let longest = page
            .split("points=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().split(' ').count());
        assert!(longest.max().unwrap() <= MOST_POINTS);
        assert!(page.len() < 30_000, "{}", page.len());
        assert_eq!(write(&Measurements::default()).into_string(), "");
    }
}
