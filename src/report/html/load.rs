//! Several flows at once as bars, each with its expected value and its limit; and counters read around known traffic,
//! by kind of link.

use std::collections::HashMap;

use maud::{Markup, html};

use super::super::digest::Digest;
use super::super::escape::clean;
use super::super::figures::Spread;
use super::super::load::PatternFigures;
use super::bar::bar;
use super::map_cells::LOW;
use model::counted::Counted;
use model::measurement::Measurements;
use model::report::Report;
use model::rounding::{percent, range, rate};
use model::topology::LinkClass;
use model::units::Bytes;

/// Value of a full bar, per cent of expected; above 100 so that there is room beyond the expected value.
const FULL: f64 = 120.0;

/// Captions of columns; on a narrow screen they precede each figure instead.
const PATTERN: [&str; 5] = ["% of expected", "GB/s", "expected", "lowest", "limited by"];
const COUNTED: [&str; 4] = ["% of copied", "counted", "copied", "GPUs"];

/// Renders both charts, if they have data.
pub(super) fn write(digest: &Digest<'_>, measurements: &Measurements) -> Markup {
    html! { (patterns(measurements)) (counted(digest.report, measurements)) }
}

/// Renders a row for each kind of pattern: the pattern that reaches the lowest share of what is expected.
fn patterns(measurements: &Measurements) -> Markup {
    let kinds = PatternFigures::of(measurements);
    html! {
        @if kinds.iter().any(|kind| kind.rates.is_some()) {
            section .load {
                h2 { "Several flows at once" }
                p .faint {
                    "All flows of a pattern together, the lowest pattern of its kind; the bar is the share of what the links \
                     allow as they are, the frame is 100%."
                }
                div .scroll tabindex="0" role="region" aria-label="Several flows at once" {
                    table .bars {
                        thead { tr {
                            th scope="col" { "pattern" }
                            @for caption in PATTERN { th scope="col" { (caption) } }
                        } }
                        tbody { @for kind in &kinds { (pattern(kind)) } }
                    }
                }
            }
        }
    }
}

fn pattern(kind: &PatternFigures<'_>) -> Markup {
    let name = match kind.all.len() {
        1 => kind.pattern.to_string(),
        many => format!("{} ({many})", kind.pattern),
    };
    let Some(worst) = kind.worst() else {
        let why = kind.all.iter().find_map(|load| load.ending.reason.as_deref());
        return html! { tr { th scope="row" { (name) } td .faint colspan="5" { "not measured" @if let Some(why) = why { ": " (clean(why)) } } } };
    };
    let rates = kind.rates.map(|rates| range(rates.min, rates.max, rate, " to "));
    let expected = kind.expected().map(|of| range(of.min, of.max, rate, " to "));
    html! {
        tr {
            th scope="row" { (name) }
            td data-label=(PATTERN[0]) { (of_expected(worst.expected_percent)) }
            td data-label=(PATTERN[1]) { (rates.unwrap_or_default()) }
            td data-label=(PATTERN[2]) { (expected.as_deref().unwrap_or("not known")) }
            td .faint.words data-label=(PATTERN[3]) { @if kind.all.len() > 1 { (clean(&worst.of)) } }
            td .faint.words data-label=(PATTERN[4]) { @if let Some(by) = &worst.limited_by { (clean(by)) } }
        }
    }
}

/// Draws a share of what is expected as a bar, with a sign if it is low.
fn of_expected(share: Option<f64>) -> Markup {
    let Some(share) = share.filter(|share| share.is_finite()) else {
        return html! { span .faint { "-" } };
    };
    let low = share < LOW;
    let frame = 100.0 * 100.0 / FULL;
    html! {
        (bar(100.0 * share / FULL, Some([frame; 2]), low)) " "
        @if low { span .sign { "▾" } }
        (percent(share))
    }
}

/// Bytes counted and bytes copied over one kind of link in one direction.
struct Class {
    name: &'static str,
    copied: Vec<Bytes>,
    counted: Vec<Bytes>,
    /// True if the counter wraps, so that the real value may be higher.
    at_least: bool,
}

/// Renders the counts of known traffic by kind of link, over all GPUs.
fn counted(report: &Report, measurements: &Measurements) -> Markup {
    let sound: Vec<&Counted> = measurements.counted.iter().filter(|seen| !seen.disturbed).collect();
    let classes: Vec<Class> =
        classes(report, &sound).into_iter().filter(|class| !class.counted.is_empty()).collect();
    html! {
        @if !classes.is_empty() {
            section .counters {
                h2 { "Counters around known traffic" }
                p .faint { "Bytes that counters saw, per cent of those that were copied; the frame is 100%." }
                div .scroll tabindex="0" role="region" aria-label="Counters around known traffic" {
                    table .bars {
                        thead { tr {
                            th scope="col" { "link" }
                            @for caption in COUNTED { th scope="col" { (caption) } }
                        } }
                        tbody { @for class in &classes { (class_row(class)) } }
                    }
                }
            }
        }
    }
}

fn class_row(class: &Class) -> Markup {
    let shares = Spread::of(
        class.counted.iter().zip(&class.copied).filter_map(|(seen, known)| share(*seen, *known)),
    );
    let sum = |bytes: &[Bytes]| {
        Bytes(bytes.iter().fold(0, |sum, bytes| sum.saturating_add(bytes.0))).to_string()
    };
    html! {
        tr {
            th scope="row" { (class.name) @if class.at_least { ", at least" } }
            td data-label=(COUNTED[0]) {
                @match shares {
                    Some(of) => {
                        (bar(100.0 * of.median / FULL, Some([100.0 * 100.0 / FULL; 2]), false)) " "
                        (range(of.min, of.max, percent, " to "))
                    }
                    None => { span .faint { "nothing was copied over it" } }
                }
            }
            td data-label=(COUNTED[1]) { (sum(&class.counted)) }
            td data-label=(COUNTED[2]) { (sum(&class.copied)) }
            td data-label=(COUNTED[3]) { (class.counted.len()) }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
fn share(part: Bytes, whole: Bytes) -> Option<f64> {
    (whole.0 > 0).then(|| 100.0 * part.0 as f64 / whole.0 as f64)
}

/// Returns true for each GPU whose copies to others go over NVLink, false for PCIe. Omits GPUs with both kinds of
/// routes: their bytes cannot be told apart.
fn over_nvlink(report: &Report) -> HashMap<u32, bool> {
    let mut kinds: HashMap<u32, Option<bool>> = HashMap::new();
    for route in &report.topology.pairs {
        let is = matches!(route.class, LinkClass::NvLink(_));
        let kind = kinds.entry(route.pair.source).or_insert(Some(is));
        *kind = kind.filter(|kind| *kind == is);
    }
    kinds.into_iter().filter_map(|(gpu, kind)| Some((gpu, kind?))).collect()
}

fn classes(report: &Report, counted: &[&Counted]) -> Vec<Class> {
    let over_nvlink = over_nvlink(report);
    type Read = fn(&Counted) -> (Option<Bytes>, Bytes, Bytes);
    let nvlink: [(&str, Read); 2] = [
        ("NVLink, sent", |seen| (seen.nvlink_sent_bytes, seen.sent_bytes, Bytes(0))),
        ("NVLink, received", |seen| (seen.nvlink_received_bytes, seen.received_bytes, Bytes(0))),
    ];
    let pcie: [(&str, Read); 2] = [
        ("PCIe, sent", |seen| (seen.pcie_sent_bytes, seen.sent_bytes, seen.sent_to_host_bytes)),
        ("PCIe, received", |seen| {
            (seen.pcie_received_bytes, seen.received_bytes, seen.received_from_host_bytes)
        }),
    ];
    let of = |(name, read): (&'static str, Read), is_nvlink: bool| {
        let mut class =
            Class { name, copied: Vec::new(), counted: Vec::new(), at_least: !is_nvlink };
        for seen in counted {
            let (Some(bytes), peers, host) = read(seen) else {
                continue;
            };
            let Some(over_nvlink) = over_nvlink.get(&seen.gpu) else {
                continue;
            };
            let peers = if *over_nvlink == is_nvlink { peers.0 } else { 0 };
            class.counted.push(bytes);
            class.copied.push(Bytes(peers.saturating_add(host.0)));
        }
        // A class with no traffic and no counts means nothing.
        if class.counted.iter().chain(&class.copied).all(|bytes| bytes.0 == 0) {
            class.counted.clear();
        }
        class
    };
    nvlink.map(|one| of(one, true)).into_iter().chain(pcie.map(|one| of(one, false))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::cell::Measurement;
    use model::units::GbPerSecond;

    fn rows(report: &Report, section: &str) -> Vec<Vec<String>> {
        let markup =
            write(&Digest::of(report), report.measurements.as_ref().unwrap()).into_string();
        let page = scraper::Html::parse_fragment(&markup);
        let select = |query: &str| scraper::Selector::parse(query).unwrap();
        let row = |row: scraper::ElementRef<'_>| {
            row.select(&select("th, td")).map(|cell| cell.text().collect()).collect()
        };
        page.select(&select(&format!("section.{section} tbody tr"))).map(row).collect()
    }

    #[test]
    fn patterns_stand_beside_what_is_expected_with_what_limits_them() {
        let rows = rows(&sample::loaded(), "load");
        assert_eq!(rows[0][..4], ["all to one", " 101", "399", "396"], "{rows:?}");
        assert_eq!(rows[0][5], "18 x NVLink 4.0 of GPU 0, shared by 7 flows");
        assert_eq!(rows[1][0], "ring");
        assert_eq!(super::patterns(&Measurements::default()).into_string(), "");
    }

    #[test]
    fn a_low_pattern_has_a_sign_and_one_without_a_figure_its_reason() {
        let mut report = sample::loaded();
        let load = &mut report.measurements.as_mut().unwrap().load;
        (load[0].achieved_gbps, load[0].expected_percent) = (Some(GbPerSecond(198.0)), Some(50.0));
        load[1].forget();
        load[1].ending.reason = Some("no <time>".into());
        let rows = rows(&report, "load");
        assert_eq!(rows[0][1..3], [" ▾50", "198"], "{rows:?}");
        assert_eq!(rows[1], ["ring", "not measured: no <time>"]);
    }

    #[test]
    fn counted_bytes_stand_beside_those_that_were_copied() {
        let report = sample::loaded();
        let rows = rows(&report, "counters");
        let names: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names, ["NVLink, sent", "NVLink, received"], "{rows:?}");
        assert_eq!(rows[0][1..], [" 100", "144 GiB", "144 GiB", "8"]);
    }

    #[test]
    fn over_pcie_the_same_copies_are_counted_there() {
        let mut report = sample::pcie_box();
        let (sent, host) = (Bytes(1 << 30), Bytes(1 << 29));
        let mut seen = Counted::unread(0, model::load::Pattern::Ring, String::new(), None);
        (seen.sent_bytes, seen.sent_to_host_bytes) = (sent, host);
        seen.pcie_sent_bytes = Some(Bytes(3 << 28));
        report.measurements.as_mut().unwrap().counted.push(seen);
        let rows = rows(&report, "counters");
        assert_eq!(rows, [["PCIe, sent, at least", " 50", "768 MiB", "1.5 GiB", "1"]], "{rows:?}");
    }
}
