//! The numbers behind a finding. Facts keep their kind until they are written: in JSON each is a plain value with the
//! unit at the end of its key. Reading a report turns these values back into facts, here and nowhere else.

use std::collections::BTreeMap;
use std::collections::btree_map::Iter;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::placement::Pair;
use super::rounding::four_places;
use super::rule_id::RuleId;
use super::units::{Bytes, GbPerSecond, Generation, Lanes, PciAddress};

/// One fact.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Fact {
    /// A rate; its key ends in `_gbps`.
    Rate(GbPerSecond),
    /// A share; its key ends in `_percent`.
    Percent(f64),
    /// A time; its key ends in `_seconds`.
    Seconds(f64),
    /// A size; its key ends in `_bytes`.
    Bytes(Bytes),
    /// Lanes of a PCIe link; its key ends in `_lanes`.
    Lanes(Lanes),
    /// A number of things, or a number that identifies something.
    Count(u64),
    /// A figure whose key names its meaning.
    Figure(f64),
    /// Yes or no.
    Flag(bool),
    /// A word or a sentence.
    Text(String),
    /// Several words or sentences.
    Texts(Vec<String>),
    /// A PCI function.
    Address(PciAddress),
    /// Several PCI functions.
    Addresses(Vec<PciAddress>),
    /// GPUs by index.
    Gpus(Vec<u32>),
    /// Ordered pairs of GPUs.
    #[serde(serialize_with = "pairs_as_texts")]
    Pairs(Vec<Pair>),
    /// Numbers that identify things: links, processes.
    Numbers(Vec<u64>),
    /// Findings of other rules that this one explains.
    Effects(Vec<Effect>),
    /// Facts by what they describe.
    Table(Facts),
    /// A value from another version that this one does not know, unchanged.
    Other(Value),
}

fn pairs_as_texts<S: Serializer>(pairs: &[Pair], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(pairs.iter().map(ToString::to_string))
}

fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

impl Fact {
    /// Returns a share, rounded to one decimal place.
    pub fn percent(value: f64) -> Self {
        Self::Percent(one_place(value))
    }

    /// Returns a figure, rounded to one decimal place.
    pub fn figure(value: f64) -> Self {
        Self::Figure(one_place(value))
    }

    /// Returns a time, rounded to one decimal place.
    pub fn seconds(value: f64) -> Self {
        Self::Seconds(one_place(value))
    }

    /// Returns numbers that identify things.
    pub fn numbers<N: Into<u64>>(numbers: impl IntoIterator<Item = N>) -> Self {
        Self::Numbers(numbers.into_iter().map(Into::into).collect())
    }

    /// Returns the end of its key if that is its unit.
    const fn unit(&self) -> Option<&'static str> {
        match self {
            Self::Rate(_) => Some("_gbps"),
            Self::Percent(_) => Some("_percent"),
            Self::Seconds(_) => Some("_seconds"),
            Self::Bytes(_) => Some("_bytes"),
            Self::Lanes(_) => Some("_lanes"),
            _ => None,
        }
    }

    /// Returns the name in a key: the key without the unit.
    pub fn name<'a>(&self, key: &'a str) -> &'a str {
        self.unit().and_then(|unit| key.strip_suffix(unit)).unwrap_or(key)
    }

    /// Reads the fact of a value in a report. A value that would be written differently stays as it is.
    fn read(key: &str, value: Value) -> Self {
        let fact = Self::guess(key, &value);
        let same = |fact: &Self| serde_json::to_value(fact).is_ok_and(|again| again == value);
        fact.filter(same).unwrap_or(Self::Other(value))
    }

    fn guess(key: &str, value: &Value) -> Option<Self> {
        let is_of = |thing: &str| key.split('_').any(|word| word == thing);
        Some(match value {
            Value::Null => return None,
            Value::Bool(flag) => Self::Flag(*flag),
            Value::Number(number) => match key.rsplit_once('_').map_or("", |(_, unit)| unit) {
                "gbps" => Self::Rate(GbPerSecond(number.as_f64()?)),
                "percent" => Self::Percent(number.as_f64()?),
                "seconds" => Self::Seconds(number.as_f64()?),
                "bytes" => Self::Bytes(Bytes(number.as_u64()?)),
                "lanes" => Self::Lanes(u8::try_from(number.as_u64()?).ok()?.try_into().ok()?),
                _ => number.as_u64().map(Self::Count).or(number.as_f64().map(Self::Figure))?,
            },
            Value::String(text) => match text.parse::<PciAddress>() {
                Ok(address) if address.to_string() == *text => Self::Address(address),
                _ => Self::Text(text.clone()),
            },
            Value::Array(list)
                if list.iter().all(Value::is_u64) && (!list.is_empty() || is_of("gpus")) =>
            {
                if is_of("gpus") { Self::Gpus(read(value)?) } else { Self::Numbers(read(value)?) }
            }
            Value::Array(_) => {
                let texts: Vec<String> = read(value)?;
                if key == EFFECTS {
                    return texts
                        .iter()
                        .map(|text| Effect::parse(text))
                        .collect::<Option<_>>()
                        .map(Self::Effects);
                }
                let pairs: Option<Vec<Pair>> = texts.iter().map(|text| text.parse().ok()).collect();
                match pairs {
                    Some(pairs) if !pairs.is_empty() || is_of("pairs") => Self::Pairs(pairs),
                    _ => Self::Texts(texts),
                }
            }
            Value::Object(_) => Self::Table(read(value)?),
        })
    }
}

/// Rounds to one decimal place.
fn one_place(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Key of the findings that a finding explains.
const EFFECTS: &str = "effects";

/// Facts by their keys in JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(transparent))]
pub struct Facts(
    #[cfg_attr(any(test, feature = "testing"), schemars(with = "BTreeMap<String, Value>"))]
    BTreeMap<String, Fact>,
);

impl Facts {
    /// Adds a fact; its unit becomes the end of its key.
    pub fn add(&mut self, name: &str, fact: impl IntoFact) {
        if let Some(fact) = fact.into_fact() {
            self.0.insert(format!("{name}{}", fact.unit().unwrap_or_default()), fact);
        }
    }

    /// Adds a finding that is explained, with the findings that it explains itself.
    pub fn add_effect(&mut self, effect: Effect, its_own: &[Effect]) {
        if let Fact::Effects(effects) =
            self.0.entry(EFFECTS.into()).or_insert(Fact::Effects(Vec::new()))
        {
            effects.push(effect);
            effects.extend_from_slice(its_own);
        }
    }

    /// Returns the findings that are explained.
    pub fn effects(&self) -> &[Effect] {
        match self.0.get(EFFECTS) {
            Some(Fact::Effects(effects)) => effects,
            _ => &[],
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Facts {
    type Item = (&'a String, &'a Fact);
    type IntoIter = Iter<'a, String, Fact>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<K: ToString, F: IntoFact> FromIterator<(K, F)> for Facts {
    fn from_iter<I: IntoIterator<Item = (K, F)>>(facts: I) -> Self {
        Self(
            facts
                .into_iter()
                .filter_map(|(key, fact)| Some((key.to_string(), fact.into_fact()?)))
                .collect(),
        )
    }
}

impl<'de> Deserialize<'de> for Facts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = BTreeMap::<String, Value>::deserialize(from)?;
        Ok(Self(
            read.into_iter()
                .map(|(key, value)| {
                    let fact = Fact::read(&key, value);
                    (key, fact)
                })
                .collect(),
        ))
    }
}

/// A finding of another rule that is explained by this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Effect {
    pub rule: RuleId,
    /// Message of that finding.
    pub message: String,
}

impl Effect {
    fn parse(text: &str) -> Option<Self> {
        let (rule, message) = text.split_once(": ")?;
        Some(Self { rule: rule.to_owned().into(), message: message.to_owned() })
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.message)
    }
}

impl From<Effect> for String {
    fn from(effect: Effect) -> Self {
        effect.to_string()
    }
}

/// A value that can be added to facts. `None` is no fact.
pub trait IntoFact {
    /// Returns the fact, if there is one.
    fn into_fact(self) -> Option<Fact>;
}

impl<T: IntoFact> IntoFact for Option<T> {
    fn into_fact(self) -> Option<Fact> {
        self.and_then(IntoFact::into_fact)
    }
}

macro_rules! into_fact {
    ($($type:ty, $value:ident => $fact:expr;)*) => {
        $(impl IntoFact for $type {
            fn into_fact(self) -> Option<Fact> {
                let $value = self;
                Some($fact)
            }
        })*
    };
}

into_fact! {
    Fact, fact => fact;
    Generation, generation => Fact::Count(u8::from(generation).into());
    Lanes, lanes => Fact::Lanes(lanes);
    GbPerSecond, rate => Fact::Rate(GbPerSecond(four_places(rate.0)));
    Bytes, size => Fact::Bytes(size);
    u8, number => Fact::Count(number.into());
    u32, number => Fact::Count(number.into());
    u64, number => Fact::Count(number);
    usize, number => Fact::Count(number as u64);
    bool, flag => Fact::Flag(flag);
    &str, text => Fact::Text(text.to_owned());
    &String, text => Fact::Text(text.clone());
    String, text => Fact::Text(text);
    Vec<String>, texts => Fact::Texts(texts);
    PciAddress, address => Fact::Address(address);
    Vec<PciAddress>, addresses => Fact::Addresses(addresses);
    Vec<Pair>, pairs => Fact::Pairs(pairs);
    Facts, table => Fact::Table(table);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_fact_is_read_as_it_was_written() {
        let pair = Pair { source: 0, destination: 10 };
        let mut facts = Facts::default();
        facts.add("rate", GbPerSecond(6.4));
        facts.add("below", Fact::percent(12.34));
        facts.add("start", Fact::seconds(3.0));
        facts.add("held", Bytes(1024));
        facts.add("width", Fact::Lanes(Lanes::X16));
        facts.add("percent_of_expected", Fact::figure(41.0));
        facts.add("tested", 3_u32);
        facts.add("refused", true);
        facts.add("cuda", "no");
        facts.add("parts", vec!["one".to_owned()]);
        facts.add("port", "0000:3b:00.0".parse::<PciAddress>().unwrap());
        facts.add("gpus_behind", Fact::Gpus(vec![1, 10]));
        facts.add("links", Fact::Numbers(vec![4, 5]));
        facts.add("pairs", vec![pair]);
        facts.add("broken_pairs", Vec::<Pair>::new());
        facts.add("by_gpu", [("gpu0", Fact::Numbers(vec![7]))].into_iter().collect::<Facts>());
        facts.add("unknown", None::<u32>);
        facts.add_effect(
            Effect { rule: RuleId::new("staged-slow"), message: "slow: very".into() },
            &[],
        );
        let written = serde_json::to_value(&facts).unwrap();
        assert_eq!(written["rate_gbps"], json!(6.4));
        assert_eq!(
            (&written["below_percent"], &written["width_lanes"]),
            (&json!(12.3), &json!(16))
        );
        assert_eq!(written["pairs"], json!(["GPU 0 → GPU 10"]));
        assert_eq!(written["effects"], json!(["staged-slow: slow: very"]));
        assert!(written.get("unknown").is_none());
        assert_eq!(serde_json::from_value::<Facts>(written).unwrap(), facts);
    }

    #[test]
    fn what_another_version_wrote_is_kept_as_it_is() {
        for value in [
            json!({"x_gbps": "fast", "gpus": [-1], "lanes": 1.5, "width_lanes": 4000, "none": null}),
            json!({"pairs": [{"source": 0, "destination": 1}], "effects": ["no code"], "port": "3b:00.0"}),
            json!({"rate_gbps": 7, "deep": {"deeper": [[1], {"a": null}]}, "mixed": [1, "a"], "": []}),
        ] {
            let facts: Facts = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_value(&facts).unwrap(), value);
        }
    }
}
