//! Evidence in numbers, as people read it. Rules write the unit into the key (`achieved_gbps`).

use serde_json::Value;

use crate::model::finding::Finding;
use crate::model::placement::Pair;
use crate::model::rounding::short;
use crate::model::units::Bytes;

/// Key endings that are units, each glued to its number.
const UNITS: [(&str, &str); 10] = [
    ("gbps", "\u{a0}GB/s"),
    ("mbps", "\u{a0}MB/s"),
    ("percent", "%"),
    ("us", "\u{a0}us"),
    ("ms", "\u{a0}ms"),
    ("ns", "\u{a0}ns"),
    ("s", "\u{a0}s"),
    ("seconds", "\u{a0}s"),
    ("mhz", "\u{a0}MHz"),
    ("bytes", ""),
];

/// Elements of a list that are shown; the rest is counted. The JSON report has them all.
const SHOWN: usize = 12;

/// What the place of a finding says already, or stands on lines of its own.
const ELSEWHERE: [&str; 5] = ["device_address", "port_address", "slot", "bridges", EFFECTS];

/// Findings of other rules that were laid to this one.
const EFFECTS: &str = "effects";

/// All evidence of a finding in one line, without what [`ELSEWHERE`] lists.
pub(super) fn text(finding: &Finding) -> String {
    let here = finding.evidence.iter().filter(|(key, _)| !ELSEWHERE.contains(&key.as_str()));
    here.map(|(key, value)| item(key, value)).collect::<Vec<_>>().join("; ")
}

/// What this finding is the cause of.
pub(super) fn effects(finding: &Finding) -> Vec<&str> {
    let effects = finding.evidence.get(EFFECTS).and_then(Value::as_array);
    effects.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Pairs in short: `0→1, 1→0`, or `14 with GPU 5` where many have one GPU in common. None where
/// these are no pairs.
fn pairs(values: &[Value]) -> Option<String> {
    let pairs: Vec<Pair> = values.iter().map(|value| value.as_str()?.parse().ok()).collect::<Option<_>>()?;
    let first = pairs.first()?;
    let common = [first.source, first.destination]
        .into_iter()
        .find(|gpu| pairs.iter().all(|pair| pair.source == *gpu || pair.destination == *gpu));
    if let Some(gpu) = common.filter(|_| pairs.len() > SHOWN_PAIRS) {
        return Some(format!("{} with GPU {gpu}", pairs.len()));
    }
    let mut shown: Vec<_> =
        pairs.iter().take(SHOWN).map(|pair| format!("{}→{}", pair.source, pair.destination)).collect();
    if pairs.len() > SHOWN {
        shown.push(format!("and {} more", pairs.len() - SHOWN));
    }
    Some(shown.join(", "))
}

/// Pairs with one GPU in common that are listed; more of them are counted.
const SHOWN_PAIRS: usize = 4;

/// GPUs by index, so that nobody takes an index for a count: `GPU 5`. None where these are no indices.
fn gpus(key: &str, value: &Value) -> Option<String> {
    let values = value.as_array().filter(|values| !values.is_empty() && key.split('_').any(|word| word == "gpus"))?;
    let shown = values.iter().take(SHOWN).map(|value| Some(format!("GPU {}", value.as_u64()?)));
    let mut shown = shown.collect::<Option<Vec<_>>>()?;
    if values.len() > SHOWN {
        shown.push(format!("and {} more", values.len() - SHOWN));
    }
    Some(shown.join(", "))
}

/// `achieved 6.4 GB/s` from `achieved_gbps: 6.4`.
fn item(key: &str, value: &Value) -> String {
    if let Some(gpus) = gpus(key, value) {
        return if key == "gpus" { gpus } else { format!("{} {gpus}", key.replace('_', " ")) };
    }
    let (name, unit) = match key.rsplit_once('_') {
        Some((name, ending)) => match UNITS.iter().find(|(known, _)| *known == ending) {
            Some(&(known, unit)) => (name, Some((known, unit))),
            None => (key, None),
        },
        // A bare unit is its own name: `percent`, `bytes`.
        None => (key, UNITS.iter().find(|(known, _)| known.len() > 1 && *known == key).copied()),
    };
    let ending = unit.filter(|_| !value.is_null()).map_or("", |(_, unit)| unit);
    let is_bytes = unit.is_some_and(|(known, _)| known == "bytes");
    format!("{} {}{ending}", name.replace('_', " "), show(value, is_bytes))
}

fn show(value: &Value, is_bytes: bool) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) if is_bytes => Bytes(whole).to_string(),
            (None, Some(value)) if number.is_f64() => {
                let text = short(value);
                if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
            }
            _ => number.to_string(),
        },
        Value::Array(values) => {
            if let Some(pairs) = pairs(values) {
                return pairs;
            }
            let mut shown: Vec<_> = values.iter().take(SHOWN).map(|value| show(value, is_bytes)).collect();
            if values.len() > SHOWN {
                shown.push(format!("and {} more", values.len() - SHOWN));
            }
            if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
        }
        Value::Object(fields) => match serde_json::from_value::<Pair>(value.clone()) {
            Ok(pair) if fields.len() == 2 => format!("{}→{}", pair.source, pair.destination),
            _ => {
                let items: Vec<_> = fields.iter().map(|(key, value)| item(key, value)).collect();
                format!("({})", items.join(", "))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_become_names_and_units() {
        for (key, value, text) in [
            ("achieved_gbps", json!(6.4321), "achieved 6.43 GB/s"),
            ("theoretical_gbps", json!(450.0), "theoretical 450 GB/s"),
            ("percent", json!(41.0), "percent 41%"),
            ("lanes", json!(4), "lanes 4"),
            ("free_bytes", json!(1_073_741_824_u64), "free 1 GiB"),
            ("rows_pending", json!(true), "rows pending yes"),
            ("before_gbps", json!(null), "before unknown"),
            ("pairs", json!([{"source": 1, "destination": 3}, {"source": 3, "destination": 1}]), "pairs 1→3, 3→1"),
            ("hop", json!({"rate_gbps": 7.88, "at": "0000:40:03.1"}), "hop (at 0000:40:03.1, rate 7.88 GB/s)"),
            ("links", json!([]), "links none"),
            ("gpus_behind", json!([5]), "gpus behind GPU 5"),
            ("gpus", json!([0, 2]), "GPU 0, GPU 2"),
            ("gpus_with_nvswitch", json!(8), "gpus with nvswitch 8"),
        ] {
            assert_eq!(item(key, &value).replace(crate::report::page::GLUE, " "), text);
        }
        let strings: Vec<_> = (0..7).map(|gpu| format!("GPU {gpu} → GPU 7")).collect();
        assert_eq!(item("slowed_pairs", &json!(strings)), "slowed pairs 7 with GPU 7");
        assert_eq!(item("pairs", &json!(["GPU 1 → GPU 3", "GPU 3 → GPU 1"])), "pairs 1→3, 3→1");
        assert_eq!(item("bridges", &json!(["GPU 1", "GPU 2"])), "bridges GPU 1, GPU 2");
        let many: Vec<_> = (0..20).collect();
        assert!(item("gpus", &json!(many)).ends_with("11, and 8 more"));
    }
}
