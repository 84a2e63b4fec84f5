//! The facts of a finding, written for people.

use crate::model::fact::{Effect, Fact, Facts};
use crate::model::finding::Finding;
use crate::model::placement::Pair;
use crate::model::rounding::short;

/// Number of elements of a list that are shown; the rest is counted. The JSON report has them all.
const SHOWN: usize = 12;

/// Number of pairs with one GPU in common that are listed; if there are more, they are counted.
const SHOWN_PAIRS: usize = 4;

/// Facts that the place of a finding shows already.
const ELSEWHERE: [&str; 4] = ["device_address", "port_address", "slot", "bridges"];

/// All facts of a finding in one line, without those in [`ELSEWHERE`] and those with lines of their
/// own.
pub(super) fn text(finding: &Finding) -> String {
    let elsewhere = |key: &str, fact: &Fact| ELSEWHERE.contains(&key) || matches!(fact, Fact::Effects(_));
    items(&finding.evidence, |key, fact| !elsewhere(key, fact)).join("; ")
}

/// The facts of a finding, a sentence each without its full stop: ranges as ranges, what is of what beside it.
pub(super) fn sentences(finding: &Finding) -> Vec<String> {
    let facts: Vec<(&str, &Fact)> = finding.evidence.into_iter().map(|(key, fact)| (key.as_str(), fact)).collect();
    let find = |key: &str| facts.iter().find(|(known, _)| *known == key).map(|(_, fact)| *fact);
    let shown = |(key, fact): &(&str, &Fact)| !ELSEWHERE.contains(key) && !matches!(fact, Fact::Effects(_));
    facts.iter().filter(|fact| shown(fact)).filter_map(|(key, fact)| sentence(key, fact, &find)).collect()
}

/// A fact as a sentence; none where it is said with another.
fn sentence<'a>(key: &str, fact: &Fact, find: &impl Fn(&str) -> Option<&'a Fact>) -> Option<String> {
    let unit = key.rsplit_once('_').map_or("", |(_, unit)| unit);
    let with = |key: &str, other: &str| find(&format!("{key}_{other}_{unit}"));
    if let Some((stem, _)) = key.split_once("_highest_") {
        return with(stem, "lowest").is_none().then(|| plain(key, fact));
    }
    if let Some((stem, _)) = key.split_once("_lowest_")
        && let Some(highest) = with(stem, "highest")
    {
        let (low, high) = (show(fact), show(highest));
        let range = if low == high { high } else { format!("{low} to {high}") };
        let stem = if stem == "staged" { "staged copies" } else { stem };
        return Some(capital(&format!("{} reach {range}", words(stem))));
    }
    if let Some(stem) = key.strip_suffix("_possible").or_else(|| key.strip_suffix(&format!("_possible_{unit}"))) {
        let known = find(stem).or_else(|| find(&format!("{stem}_{unit}")));
        return known.is_none().then(|| plain(key, fact));
    }
    let stem = fact.name(key);
    if let Some(possible) = find(&format!("{stem}_possible")).or_else(|| with(stem, "possible")) {
        let (now, possible) = (show(fact), show(possible));
        let of = if now == possible { String::new() } else { format!(", possible {possible}") };
        return Some(capital(&format!("{}: {now}{of}", words(stem))));
    }
    Some(match (key, fact) {
        ("gpus", Fact::Gpus(_)) => format!("About {}", show(fact)),
        ("gpus_behind", Fact::Gpus(_)) => format!("Behind it: {}", show(fact)),
        ("pairs", Fact::Pairs(pairs)) => format!("{}: {}", if pairs.len() == 1 { "Pair" } else { "Pairs" }, show(fact)),
        _ => plain(key, fact),
    })
}

fn plain(key: &str, fact: &Fact) -> String {
    capital(&format!("{}: {}", words(fact.name(key)), show(fact)))
}

/// A key as words, names of things as they are written.
fn words(key: &str) -> String {
    let word = |word| match word {
        "cuda" => "CUDA",
        "nvml" => "NVML",
        "gpu" => "GPU",
        "gpus" => "GPUs",
        "pcie" => "PCIe",
        word => word,
    };
    key.split('_').map(word).collect::<Vec<_>>().join(" ")
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

/// The symptoms that are attributed to this finding.
pub(super) fn effects(finding: &Finding) -> &[Effect] {
    finding.evidence.effects()
}

fn items(facts: &Facts, here: impl Fn(&str, &Fact) -> bool) -> Vec<String> {
    facts.into_iter().filter(|(key, fact)| here(key, fact)).map(|(key, fact)| item(key, fact)).collect()
}

/// `achieved 6.4 GB/s` from the rate at `achieved_gbps`.
fn item(key: &str, fact: &Fact) -> String {
    match fact {
        Fact::Gpus(gpus) if key == "gpus" && !gpus.is_empty() => show(fact),
        // The whole key, so that a width differs from a number of lanes.
        Fact::Lanes(_) => format!("{} {}", key.replace('_', " "), show(fact)),
        _ => format!("{} {}", fact.name(key).replace('_', " "), show(fact)),
    }
}

fn show(fact: &Fact) -> String {
    match fact {
        Fact::Rate(rate) => format!("{}\u{a0}GB/s", number(rate.0)),
        Fact::Percent(share) => format!("{}%", number(*share)),
        Fact::Figure(figure) => number(*figure),
        Fact::Seconds(time) => format!("{}\u{a0}s", number(*time)),
        Fact::Megahertz(clock) => format!("{clock}\u{a0}MHz"),
        Fact::Bytes(size) => size.to_string(),
        Fact::Lanes(lanes) => lanes.to_string(),
        Fact::Count(count) => count.to_string(),
        Fact::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Fact::Text(text) => text.clone(),
        Fact::Texts(texts) => list(texts),
        Fact::Address(address) => address.to_string(),
        Fact::Addresses(addresses) => list(addresses),
        Fact::Gpus(gpus) => list(&gpus.iter().map(|gpu| format!("GPU {gpu}")).collect::<Vec<_>>()),
        Fact::Pairs(pairs) => of_pairs(pairs),
        Fact::Numbers(numbers) => list(numbers),
        Fact::Effects(effects) => list(effects),
        Fact::Table(facts) => format!("({})", items(facts, |_, _| true).join(", ")),
        Fact::Other(value) if value.is_null() => "unknown".to_owned(),
        Fact::Other(value) => value.to_string(),
    }
}

fn number(value: f64) -> String {
    let text = short(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn list<T: ToString>(all: &[T]) -> String {
    let mut shown: Vec<_> = all.iter().take(SHOWN).map(ToString::to_string).collect();
    if all.len() > SHOWN {
        shown.push(format!("and {} more", all.len() - SHOWN));
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// Pairs in short: `0→1, 1→0`, or `14 with GPU 5` where many have one GPU in common.
fn of_pairs(pairs: &[Pair]) -> String {
    let ends = pairs.first().map(|first| [first.source, first.destination]).into_iter().flatten();
    let common = ends.into_iter().find(|gpu| pairs.iter().all(|pair| pair.touches(*gpu)));
    if let Some(gpu) = common.filter(|_| pairs.len() > SHOWN_PAIRS) {
        return format!("{} with GPU {gpu}", pairs.len());
    }
    list(&pairs.iter().map(|pair| format!("{}→{}", pair.source, pair.destination)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::page::GLUE;

    /// The text of what a report has in JSON.
    fn read(evidence: serde_json::Value) -> String {
        items(&serde_json::from_value(evidence).unwrap(), |_, _| true).join("; ").replace(GLUE, " ")
    }

    #[test]
    fn sentences_put_together_what_belongs_together() {
        let report = crate::report::sample::pcie_box();
        let finding = report.findings.iter().find(|finding| finding.code == "pcie-narrow").unwrap();
        let all = sentences(finding).join(". ").replace(GLUE, " ");
        assert!(all.contains("Copies over it reach "), "{all}");
        assert!(all.contains("Width: 4, possible 16"), "{all}");
        assert!(all.contains("Rate: 7.9 GB/s, possible 31.5 GB/s"), "{all}");
    }

    #[test]
    fn facts_have_names_and_units() {
        let many: Vec<_> = (0..20).collect();
        let with_7: Vec<_> = (0..7).map(|gpu| format!("GPU {gpu} → GPU 7")).collect();
        for (evidence, text) in [
            (json!({"achieved_gbps": 6.4321}), "achieved 6.43 GB/s"),
            (json!({"theoretical_gbps": 450.0}), "theoretical 450 GB/s"),
            (json!({"below_percent": 41.0}), "below 41%"),
            (json!({"width_lanes": 4}), "width lanes 4"),
            (json!({"free_bytes": 1_073_741_824_u64}), "free 1 GiB"),
            (json!({"rows_pending": true}), "rows pending yes"),
            (json!({"before_gbps": null}), "before gbps unknown"),
            (json!({"hop": {"rate_gbps": 7.88, "at": "0000:40:03.1"}}), "hop (at 0000:40:03.1, rate 7.88 GB/s)"),
            (json!({"links": []}), "links none"),
            (json!({"gpus_behind": [5]}), "gpus behind GPU 5"),
            (json!({"gpus": [0, 10]}), "GPU 0, GPU 10"),
            (json!({"gpus_with_nvswitch": 8}), "gpus with nvswitch 8"),
            (json!({"pairs": ["GPU 1 → GPU 3", "GPU 3 → GPU 1"]}), "pairs 1→3, 3→1"),
            (json!({"slowed_pairs": with_7}), "slowed pairs 7 with GPU 7"),
            (json!({"names": ["GPU 1", "GPU 2"]}), "names GPU 1, GPU 2"),
        ] {
            assert_eq!(read(evidence), text);
        }
        assert!(read(json!({"gpus": many})).ends_with("11, and 8 more"));
    }
}
