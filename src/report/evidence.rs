//! The facts of a finding, written for people.

use std::collections::BTreeMap;

use super::declared::capital;
use super::figures::{arrow, count, ranges};
use super::page::GLUE;
use diagnose::phrases::{PHRASES, SAID};
use model::fact::{Fact, Facts};
use model::finding::Finding;
use model::placement::Pair;
use model::rounding::short;

/// Most elements of a list that are shown; the rest is counted. The JSON report contains all.
const SHOWN: usize = 12;

/// Most pairs with one GPU in common that are listed; if there are more, they are counted.
const SHOWN_PAIRS: usize = 4;

/// Returns the facts of a finding in one line, except those that its message has and those with lines of their own.
pub(super) fn text(finding: &Finding) -> String {
    sentences(finding).iter().map(|one| format!("{one}.")).collect::<Vec<_>>().join(" ")
}

/// Returns a sentence for each fact of a finding, without its full stop.
pub(super) fn sentences(finding: &Finding) -> Vec<String> {
    said(&finding.evidence, &finding.message).iter().map(|sentence| capital(sentence)).collect()
}

/// Returns true if a message has this fact, in the digits of either.
fn has(message: &str, fact: &Fact) -> bool {
    let rounded = match fact {
        Fact::Rate(rate) => rate.to_string(),
        Fact::Percent(share) | Fact::Figure(share) => format!("{share:.0}"),
        Fact::Gpus(gpus) => ranges(gpus),
        fact => bare(fact),
    };
    let is_part = |next: Option<char>| next.is_some_and(char::is_alphanumeric);
    let stands = |text: &String| {
        message.match_indices(text.as_str()).any(|(at, _)| {
            let after = message[at + text.len()..].trim_start_matches('.');
            let before = message[..at].trim_end_matches('.');
            !is_part(before.chars().next_back()) && !is_part(after.chars().next())
        })
    };
    // A single digit may be anything.
    [bare(fact), rounded].iter().any(|text| text.len() > 1 && stands(text))
}

/// Phrases the facts that the message does not have. A fact without a phrase appears by its name.
fn said(evidence: &Facts, message: &str) -> Vec<String> {
    let is_empty = |fact: &Fact| match fact {
        Fact::Gpus(gpus) => gpus.is_empty(),
        Fact::Pairs(pairs) => pairs.is_empty(),
        Fact::Addresses(all) => all.is_empty(),
        Fact::Texts(all) => all.is_empty(),
        Fact::Numbers(all) => all.is_empty(),
        Fact::Count(0) => true,
        _ => false,
    };
    let shown = |(key, fact): &(&String, &Fact)| {
        let is_said = SAID.contains(&fact.name(key)) || has(message, fact);
        !is_said && !matches!(fact, Fact::Effects(_)) && !is_empty(fact)
    };
    let mut left: BTreeMap<&str, (&str, &Fact)> = BTreeMap::new();
    for (key, fact) in evidence.into_iter().filter(shown) {
        // Two facts with one name and different units: the second is known by its whole key.
        let name = if left.contains_key(fact.name(key)) { key } else { fact.name(key) };
        left.insert(name, (key, fact));
    }
    let mut sentences = Vec::new();
    for phrase in PHRASES {
        let is_known =
            |name: &&str| left.get(name).is_some_and(|(_, fact)| !matches!(fact, Fact::Other(_)));
        let names = names(phrase);
        if names.iter().all(is_known) {
            sentences.push(filled(phrase, |name| left[name].1));
            left.retain(|name, _| !names.contains(name));
        }
    }
    sentences.extend(left.values().map(|(key, fact)| plain(key, fact)));
    sentences
}

/// Returns the names of the facts in a phrase.
pub(super) fn names(phrase: &'static str) -> Vec<&'static str> {
    let places = phrase.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    places.flat_map(|place| place.split("..")).collect()
}

fn filled<'a>(phrase: &str, fact: impl Fn(&str) -> &'a Fact) -> String {
    let fill = |(number, part): (usize, &str)| match part.split_once('}') {
        Some((place, after)) if number > 0 => {
            let text = match place.split_once("..") {
                Some((low, high)) => between(fact(low), fact(high)),
                None => named(place, fact(place)),
            };
            text + after
        }
        _ => part.to_owned(),
    };
    phrase.split('{').enumerate().map(fill).collect()
}

/// Returns `5.7 to 6.5 GB/s`, or one figure if both ends read the same.
fn between(low: &Fact, high: &Fact) -> String {
    let shown = show(high);
    match show(low) {
        low if low == shown => shown,
        // Write the unit once.
        _ if unit(low) == unit(high) => format!("{} to {shown}", bare(low)),
        low => format!("{low} to {shown}"),
    }
}

/// Shows a fact; a count whose name is its unit gets that noun.
fn named(name: &str, fact: &Fact) -> String {
    match (fact, name) {
        (Fact::Count(number), "gpus") => count(*number, "GPU"),
        (Fact::Count(number), "pairs") => count(*number, "pair"),
        _ => show(fact),
    }
}

/// Ends of names that are a unit, and how it is written.
const UNITS: [(&str, &str); 3] = [("_us", " us"), ("_c", " °C"), ("_count", "")];

fn plain(key: &str, fact: &Fact) -> String {
    let name = fact.name(key);
    let unit = UNITS.iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, *unit)));
    let (name, unit) = unit.unwrap_or((name, ""));
    format!("{}: {}{unit}", words(name), show(fact))
}

/// Turns a key into words, with names such as CUDA in their usual form.
fn words(key: &str) -> String {
    const UPPER: &str = " acs bar1 crc cuda gpu id iommu ll ll128 numa nvml pci sm sxm uuid ";
    let word = |word: &str| match word {
        "gpus" => "GPUs".to_owned(),
        "pcie" => "PCIe".to_owned(),
        "xid" => "Xid".to_owned(),
        word if UPPER.contains(&format!(" {word} ")) => word.to_uppercase(),
        word => word.replace("nvlink", "NVLink").replace("nvswitch", "NVSwitch"),
    };
    key.split('_').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the facts of a table with their names.
fn items(facts: &Facts) -> String {
    let item = |(key, fact): (&String, &Fact)| {
        let gpu = key.strip_prefix("gpu").filter(|rest| rest.parse::<u32>().is_ok());
        let name = gpu.map_or_else(|| words(fact.name(key)), |gpu| format!("GPU {gpu}:"));
        match fact {
            Fact::Numbers(all) if gpu.is_some() => {
                let all: Vec<u32> = all.iter().filter_map(|one| u32::try_from(*one).ok()).collect();
                format!("{name} {}", ranges(&all))
            }
            fact => format!("{name} {}", show(fact)),
        }
    };
    facts.into_iter().map(item).collect::<Vec<_>>().join(", ")
}

/// Returns the unit behind a fact, empty if it has none or if that is part of the text.
const fn unit(fact: &Fact) -> &'static str {
    match fact {
        Fact::Rate(_) => "GB/s",
        Fact::Seconds(_) => "s",
        _ => "",
    }
}

fn show(fact: &Fact) -> String {
    match unit(fact) {
        "" => bare(fact),
        unit => format!("{}{GLUE}{unit}", bare(fact)),
    }
}

/// Shows a fact without its unit.
fn bare(fact: &Fact) -> String {
    match fact {
        Fact::Rate(rate) => number(rate.0),
        Fact::Seconds(time) => number(*time),
        Fact::Percent(share) => format!("{}%", number(*share)),
        Fact::Figure(figure) => number(*figure),
        Fact::Bytes(size) => size.to_string(),
        Fact::Lanes(lanes) => lanes.to_string(),
        Fact::Count(count) => count.to_string(),
        Fact::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Fact::Text(text) => text.clone(),
        Fact::Texts(texts) => list(texts),
        Fact::Address(address) => address.to_string(),
        Fact::Addresses(addresses) => list(addresses),
        Fact::Gpus(gpus) if gpus.is_empty() => "none".to_owned(),
        Fact::Gpus(gpus) => format!("GPU {}", ranges(gpus)),
        Fact::Pairs(pairs) => of_pairs(pairs),
        Fact::Numbers(numbers) => list(numbers),
        Fact::Effects(effects) => list(effects),
        Fact::Table(facts) => items(facts),
        Fact::Other(value) if value.is_null() => "unknown".to_owned(),
        Fact::Other(value) => value.to_string(),
    }
}

fn number(value: f64) -> String {
    match short(value) {
        text if text.contains('.') => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        text => text,
    }
}

fn list<T: ToString>(all: &[T]) -> String {
    let mut shown: Vec<_> = all.iter().take(SHOWN).map(ToString::to_string).collect();
    if all.len() > SHOWN {
        shown.push(format!("and {} more", all.len() - SHOWN));
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// Lists pairs in short: `pairs 0→1 and 1→0`, or `14 pairs with GPU 5` if many have one GPU in common.
fn of_pairs(pairs: &[Pair]) -> String {
    let mut ends = pairs.iter().take(1).flat_map(|first| first.gpus());
    let common = ends.find(|gpu| pairs.iter().all(|pair| pair.touches(*gpu)));
    match common.filter(|_| pairs.len() > SHOWN_PAIRS) {
        Some(gpu) => format!("{} pairs with GPU {gpu}", pairs.len()),
        None => {
            let noun = if pairs.len() == 1 { "pair" } else { "pairs" };
            format!("{noun} {}", list(&pairs.iter().copied().map(arrow).collect::<Vec<_>>()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Phrases the facts of a JSON report.
    fn read(evidence: serde_json::Value) -> String {
        said(&serde_json::from_value(evidence).unwrap(), "").join("; ").replace(GLUE, " ")
    }

    #[test]
    fn sentences_put_together_what_belongs_together() {
        let report = sample::pcie_box();
        let finding = report.findings.iter().find(|finding| finding.code == "pcie-narrow").unwrap();
        let all = sentences(finding).join(". ").replace(GLUE, " ");
        assert!(all.contains("Copies over it reach "), "{all}");
    }

    #[test]
    fn what_the_message_has_is_not_said_again() {
        let facts = json!({"achieved_gbps": 5.71, "percent": 26.3, "then_gbps": 31.0, "first": "no answer", "n": 7});
        let facts: Facts = serde_json::from_value(facts).unwrap();
        let all = said(&facts, "GPU 7 reaches 5.7 GB/s, 26% of the 126.0; no answer");
        assert_eq!(all.join("; ").replace(GLUE, " "), "n: 7; then: 31 GB/s");
    }

    #[test]
    fn facts_are_said_in_phrases_with_units() {
        let many: Vec<_> = (0..20).collect();
        let with_7: Vec<_> = (0..7).map(|gpu| format!("GPU {gpu} → GPU 7")).collect();
        for (evidence, text) in [
            (json!({"achieved_gbps": 6.4321}), "achieved: 6.43 GB/s"),
            (
                json!({"copies_over_it_lowest_gbps": 5.7, "copies_over_it_highest_gbps": 6.5}),
                "copies over it reach 5.7 to 6.5 GB/s",
            ),
            (
                json!({"staged_lowest_gbps": 12.6, "staged_highest_gbps": 12.6}),
                "staged copies reach 12.6 GB/s",
            ),
            (
                json!({"left_bytes": 1_073_741_824_u64, "asked_for_bytes": 7}),
                "asked for: 7 B; left: 1 GiB",
            ),
            (json!({"remapping_pending": true}), "remapping pending: yes"),
            (json!({"iommu_translating": false}), "IOMMU translating: no"),
            (json!({"first_temperature_c": 45.0}), "first temperature: 45 °C"),
            (json!({"gpus_behind": [5]}), "behind it: GPU 5"),
            (json!({"gpus": [0, 1, 10]}), "affected: GPU 0-1,10"),
            (json!({"gpus": 1}), "affected: 1 GPU"),
            (json!({"gpus": many}), "affected: GPU 0-19"),
            (json!({"gpus_with_nvswitch": 8}), "GPUs with NVSwitch: 8"),
            (json!({"pairs": ["GPU 1 → GPU 3", "GPU 3 → GPU 1"]}), "affected: pairs 1→3, 3→1"),
            (json!({"slowed_pairs": with_7}), "slowed pairs: 7 pairs with GPU 7"),
            (
                json!({"inactive_links": {"gpu2": [0, 1, 2, 3], "gpu3": [5]}}),
                "inactive links: GPU 2: 0-3, GPU 3: 5",
            ),
            (json!({"removed": {"A": "1"}}), "taken out of the environment of copies: A 1"),
            // Facts of a later version have no phrase.
            (json!({"before_gbps": null}), "before gbps: unknown"),
            (json!({"free_bytes": 1_073_741_824_u64}), "free: 1 GiB"),
            (
                json!({"hop": {"rate_gbps": 7.88, "at": "0000:40:03.1"}}),
                "hop: at 0000:40:03.1, rate 7.88 GB/s",
            ),
            (json!({"rate_gbps": "fast"}), "rate gbps: fast"),
            (json!({"width_lanes": 4000}), "width lanes: 4000"),
            (json!({"names": ["GPU 1", "GPU 2"]}), "names: GPU 1, GPU 2"),
        ] {
            assert_eq!(read(evidence), text);
        }
        let many: Vec<_> = (0..20).map(|number| format!("n{number}")).collect();
        assert!(read(json!({"names": many})).ends_with("n11, and 8 more"));
    }
}
