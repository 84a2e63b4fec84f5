//! Tests with reports whose every name is hostile: the output shows the names and no reader acts on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::{FORMATS, Level, Style, escape};
use model::report::Report;

/// A place, one of the pointers to it, and the name to put there.
type Named = (Index, Index, String);

/// A report with the places of all its free-form strings.
struct Base {
    report: Value,
    /// Pointers by place; a place is a pointer without the indices of list elements.
    places: BTreeMap<String, Vec<String>>,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let mut pcie = sample::hostile();
    if let Some(measurements) = &mut pcie.measurements {
        // Every row of the CSV repeats names of up to 20,000 characters.
        measurements.peer.retain(|peer| peer.pair.source < 2 && peer.pair.destination < 3);
        measurements.peer.truncate(20);
        measurements.host.truncate(12);
        measurements.driver.devices.truncate(3);
        measurements.overlap.truncate(16);
        measurements.latency.truncate(8);
        measurements.driver.failure = Some("no".into());
        measurements.driver.kernels_failure = Some("no".into());
    }
    pcie.topology.pairs.retain(|route| route.pair.source < 3 && route.pair.destination < 3);
    pcie.snapshot.gpus.truncate(3);
    let mut topo = pcie.clone();
    topo.measurements = None;
    [sample::healthy(2), pcie, topo, sample::unknown(2)].iter().map(Base::of).collect()
});

impl Base {
    fn of(report: &Report) -> Self {
        let report = serde_json::to_value(report).unwrap();
        let mut found = Vec::new();
        strings(&report, &mut String::new(), &mut found);
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pointer in found {
            let name = pointer
                .split('/')
                .filter(|part| part.parse::<u32>().is_err())
                .collect::<Vec<_>>()
                .join("/");
            places.entry(name).or_default().push(pointer);
        }
        // Enum words and addresses are not free-form: the report would not parse with other text there.
        places.retain(|_, pointers| {
            let mut tried = report.clone();
            *tried.pointer_mut(&pointers[0]).unwrap() = Value::String("no word of any list".into());
            serde_json::from_value::<Report>(tried).is_ok()
        });
        Self { report, places }
    }

    /// Returns the report with these names in their places.
    fn with(&self, names: &[Named]) -> Report {
        let mut report = self.report.clone();
        let places: Vec<_> = self.places.values().collect();
        for (place, which, name) in names {
            let pointers = places[place.index(places.len())];
            *report.pointer_mut(&pointers[which.index(pointers.len())]).unwrap() =
                Value::String(name.clone());
        }
        serde_json::from_value(report).unwrap()
    }
}

fn strings(value: &Value, pointer: &mut String, found: &mut Vec<String>) {
    let mut below = |key: &str, value: &Value| {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        strings(value, pointer, found);
        pointer.truncate(length);
    };
    match value {
        Value::Array(elements) => {
            elements.iter().enumerate().for_each(|(n, value)| below(&n.to_string(), value))
        }
        Value::Object(fields) => fields.iter().for_each(|(key, value)| below(key, value)),
        Value::String(_) => found.push(pointer.clone()),
        _ => {}
    }
}

/// Returns the same places with hostile names and with tame ones. Equal names stay equal, so that grouping by name
/// gives the same groups.
fn named(names: &[Named]) -> [Vec<Named>; 2] {
    let hostile = names
        .iter()
        .enumerate()
        .map(|(n, (place, which, name))| (*place, *which, format!("n{n}{name}")));
    let tame =
        names.iter().enumerate().map(|(n, (place, which, _))| (*place, *which, format!("n{n}")));
    [hostile.collect(), tame.collect()]
}

fn names() -> impl Strategy<Value = Vec<Named>> {
    prop::collection::vec((any::<Index>(), any::<Index>(), fuzz::evil()), 1..12)
}

fn style(color: bool) -> Style {
    Style { width: 80, color, level: Level::Every, ..Style::PLAIN }
}

fn render(report: &Report, format: &str) -> String {
    super::render(report, super::named(format).unwrap(), &style(false))
}

/// Checks that the text contains no acting character except newlines.
fn is_inert(text: &str) -> Result<(), String> {
    match text.chars().find(|&c| c != '\n' && escape::acts(c)) {
        Some(c) => Err(format!("{c:?} in {text:?}")),
        None => Ok(()),
    }
}

/// Removes this tool's own colours from the text.
fn without_colors(text: &str) -> String {
    const OWN: [&str; 6] = ["[0m", "[1m", "[2m", "[31m", "[32m", "[33m"];
    let mut parts = text.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match OWN.iter().find_map(|code| part.strip_prefix(code)) {
            Some(rest) => plain.push_str(rest),
            None => plain.push_str(&format!("\u{1b}{part}")),
        }
    }
    plain
}

/// Counts each element and attribute of a page, and returns the errors that a browser's parser reports.
fn elements(page: &str) -> (BTreeMap<String, u32>, Vec<String>) {
    let parsed = scraper::Html::parse_document(page);
    let mut elements: BTreeMap<String, u32> = BTreeMap::new();
    for element in parsed.tree.values().filter_map(|node| node.as_element()) {
        *elements.entry(element.name().to_owned()).or_default() += 1;
        for (attribute, _) in element.attrs() {
            *elements.entry(format!("{} {attribute}", element.name())).or_default() += 1;
        }
    }
    (elements, parsed.errors.iter().map(ToString::to_string).collect())
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_names_in_every_format() {
    let strategy = (0..BASES.len(), names());
    fuzz::run("names, every format", 0.1, &strategy, |(base, names)| {
        let [hostile, tame] = named(&names).map(|names| BASES[base].with(&names));
        for format in FORMATS {
            is_inert(&super::render(&hostile, format, &style(false)))?;
            is_inert(&without_colors(&super::render(&hostile, format, &style(true))))?;
        }
        let json = render(&hostile, "json");
        is_inert(&json)?;
        let back: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        if texts(&back)
            != texts(&serde_json::to_value(&hostile).map_err(|error| error.to_string())?)
        {
            return Err("a name is another in the JSON".to_owned());
        }
        quick_junit::Report::deserialize_from_str(&render(&hostile, "junit"))
            .map_err(|error| error.to_string())?;
        let pages = [&hostile, &tame].map(|report| render(report, "html"));
        is_inert(&pages[0])?;
        let [(mut hostile_elements, errors), (tame_elements, _)] =
            pages.map(|page| elements(&page));
        // The card of a finding has no address where that of its rule's page may act.
        let acts = |url: &str| url.contains(':') && !url.starts_with("https://");
        let refused = hostile.findings.iter().filter(|finding| acts(&finding.help_url)).count();
        if let Some(links) = hostile_elements.get_mut("a href") {
            *links += u32::try_from(refused).unwrap();
        }
        if hostile_elements != tame_elements || !errors.is_empty() {
            return Err(format!(
                "{hostile_elements:?} where {tame_elements:?} should be; {errors:?}"
            ));
        }
        Ok(())
    });
}

/// Returns every string of a report with its place.
fn texts(report: &Value) -> Vec<(String, Option<&Value>)> {
    let mut found = Vec::new();
    strings(report, &mut String::new(), &mut found);
    found.into_iter().map(|pointer| (pointer.clone(), report.pointer(&pointer))).collect()
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_names_by_themselves() {
    fuzz::run("names, cleaned", 4.0, &fuzz::evil(), |name| {
        is_inert(&escape::clean(&name).replace('\n', ""))?;
        Ok(())
    });
}

#[test]
fn pages_are_valid() {
    for report in [
        sample::healthy(1),
        sample::healthy(8),
        sample::pcie_box(),
        sample::hostile(),
        sample::unknown(0),
        sample::nothing_measured(),
    ] {
        for level in [Level::Short, Level::Figures, Level::Every] {
            let page = super::render(
                &report,
                super::named("html").unwrap(),
                &Style { level, ..style(false) },
            );
            let (elements, errors) = elements(&page);
            assert!(errors.is_empty(), "{errors:?}");
            assert_eq!([elements["html"], elements["h1"], elements["main"]], [1; 3]);
            let scripts = ["script", "script id", "script type", "script src"]
                .map(|name| elements.get(name).copied());
            assert_eq!(
                scripts,
                [Some(2), Some(1), Some(1), None],
                "one script, and the report itself"
            );
            for forbidden in ["link", "img", "iframe", "form", "style src"] {
                assert!(!elements.contains_key(forbidden), "{forbidden}");
            }
            assert!(
                !page.contains("http:") && !page.contains("https:") && !page.contains("url("),
                "nothing is fetched"
            );
        }
    }
}

/// Number of groups into which the places of a report are dealt: one at a time takes minutes, and all at once would
/// hide a place whose neighbour decides whether it is shown.
const GROUPS: usize = 12;

/// Tests every place of a report, so that none is forgotten.
#[test]
fn no_place_of_a_report_is_shown_as_it_is() {
    let mut tried = BTreeSet::new();
    for base in BASES.iter() {
        for group in 0..GROUPS {
            let mut report = base.report.clone();
            for (place, pointers) in base.places.iter().skip(group).step_by(GROUPS) {
                tried.insert(place.clone());
                for pointer in pointers {
                    *report.pointer_mut(pointer).unwrap() =
                        Value::String(format!("{place}\u{1b}[31m\u{9b}2J\n\u{202e}<b>&"));
                }
            }
            let report: Report = serde_json::from_value(report).unwrap();
            for format in FORMATS {
                let text = super::render(&report, format, &style(false));
                is_inert(&text).unwrap_or_else(|why| panic!("{}: {why}", format.name));
                assert!(format.name != "html" || !text.contains("<b>"), "{text}");
            }
        }
    }
    assert!(tried.len() > 40, "{tried:?}");
    // Also test the strings of the command line and the configuration.
    for place in
        ["gpus", "only", "skip", "probes_left_out", "config", "silenced/code", "left_out_gpus/uuid"]
    {
        assert!(tried.contains(&format!("/request/{place}")), "{place}: {tried:?}");
    }
}
