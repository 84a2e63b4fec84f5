//! Writing TOML by way of JSON, for the reason that [`super::from_toml`] has.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// A value as TOML, keys in the order in which it has them; what is none is left out, and so is the value of a key that is
/// an infinite number or none at all (NaN), which JSON does not have.
///
/// # Errors
///
/// Why TOML cannot say it; such a number in a list is one.
pub fn to_toml(value: &impl Serialize) -> Result<String, String> {
    let json = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    toml::to_string(&value).map_err(|error| error.to_string())
}

/// What TOML and JSON both have.
enum Value {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Boolean(value) => to.serialize_bool(*value),
            Self::Integer(value) => to.serialize_i64(*value),
            Self::Float(value) => to.serialize_f64(*value),
            Self::Text(value) => to.serialize_str(value),
            Self::List(values) => to.collect_seq(values),
            Self::Table(entries) => to.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reading)
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value that TOML has too")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        i64::try_from(value)
            .map(Value::Integer)
            .map_err(|_| E::custom(format!("{value} is too large for TOML")))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut table = Vec::new();
        while let Some((key, value)) = entries.next_entry::<String, Option<Value>>()? {
            table.extend(value.map(|value| (key, value)));
        }
        Ok(Value::Table(table))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::model::from_toml::from_toml;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Thing {
        text: String,
        none: Option<u32>,
        rate: f64,
        parts: Vec<Part>,
        large: i64,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Part {
        Plain,
        WithName { name: String, on: bool },
    }

    #[test]
    fn what_is_written_reads_as_it_was_in_the_order_that_it_has() {
        let parts = vec![
            Part::Plain,
            Part::WithName {
                name: "a \"b\"\n".into(),
                on: true,
            },
        ];
        let thing = Thing {
            text: "x".into(),
            none: None,
            rate: 2.0,
            parts,
            large: i64::MIN,
        };
        let text = to_toml(&thing).unwrap();
        assert!(text.starts_with("text = \"x\"\nrate = 2.0\n"), "{text}");
        assert_eq!(text, toml::to_string(&thing).unwrap());
        assert_eq!(from_toml::<Thing>(&text).unwrap(), thing);
    }

    #[test]
    fn the_value_of_a_key_that_is_not_finite_is_left_out() {
        let table =
            std::collections::BTreeMap::from([("a", f64::INFINITY), ("b", 1.0), ("c", f64::NAN)]);
        assert_eq!(to_toml(&table).unwrap(), "b = 1.0\n");
    }

    #[test]
    fn what_toml_cannot_say_is_an_error() {
        assert!(to_toml(&[1]).is_err());
        assert!(to_toml(&std::collections::BTreeMap::from([("a", [1.0, f64::NAN])])).is_err());
        assert!(
            to_toml(&std::collections::BTreeMap::from([("a", u64::MAX)]))
                .unwrap_err()
                .contains("too large")
        );
    }
}
