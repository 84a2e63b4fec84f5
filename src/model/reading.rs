//! A fact that may be unknown, with the reason why.
//!
//! Unknown is a type here, never 0 or -1: a link width of 0 from a broken kernel must not become a finding about a
//! slot.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The reason why a fact is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Unknown {
    /// This device, driver or kernel has no such fact.
    Unsupported,
    /// The fact exists but may not be read; the text names who may.
    Denied(String),
    /// Reading it failed; the text contains the cause.
    Failed(String),
    /// A limit of the process, or of its container, prevented reading it; the text names the limit.
    Limited(String),
    /// It was deliberately not read; the text gives the reason, or when it is read. Mostly the same text for every
    /// pair of GPUs.
    NotRead(Cow<'static, str>),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("unsupported"),
            Self::Denied(why) => write!(f, "denied: {why}"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Limited(why) => write!(f, "limited: {why}"),
            Self::NotRead(why) => write!(f, "not read: {why}"),
        }
    }
}

impl From<Unknown> for String {
    fn from(unknown: Unknown) -> Self {
        unknown.to_string()
    }
}

impl FromStr for Unknown {
    type Err = std::convert::Infallible;

    /// Accepts any text as a reason. A text in none of the known forms came from a newer version.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "unsupported" {
            Self::Unsupported
        } else if let Some(why) = text.strip_prefix("denied: ") {
            Self::Denied(why.to_owned())
        } else if let Some(why) = text.strip_prefix("limited: ") {
            Self::Limited(why.to_owned())
        } else if let Some(why) = text.strip_prefix("not read: ") {
            Self::NotRead(why.to_owned().into())
        } else {
            Self::Failed(text.strip_prefix("failed: ").unwrap_or(text).to_owned())
        })
    }
}

impl From<String> for Unknown {
    fn from(text: String) -> Self {
        match text.parse() {
            Ok(unknown) => unknown,
        }
    }
}

/// A fact, or the reason why it is not known.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading<T> {
    /// The fact.
    Known(T),
    /// The reason for the missing fact.
    Unknown(Unknown),
}

impl<T> Reading<T> {
    /// Creates a reading that failed for this reason.
    pub fn failed(why: impl Into<String>) -> Self {
        Self::Unknown(Unknown::Failed(why.into()))
    }

    /// Creates a reading that this device, driver or kernel does not support.
    pub const fn unsupported() -> Self {
        Self::Unknown(Unknown::Unsupported)
    }

    /// Returns the fact, if it is known.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// Returns the reason, if the fact is not known.
    pub const fn unknown(&self) -> Option<&Unknown> {
        match self {
            Self::Known(_) => None,
            Self::Unknown(unknown) => Some(unknown),
        }
    }

    /// Converts the fact, if it is known.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Known(value) => Reading::Known(f(value)),
            Self::Unknown(unknown) => Reading::Unknown(unknown),
        }
    }
}

impl<T: Copy> Reading<T> {
    /// Returns the fact by value, if it is known.
    pub const fn get(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Unknown(_) => None,
        }
    }
}

impl<T> From<Result<T, Unknown>> for Reading<T> {
    fn from(result: Result<T, Unknown>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(unknown) => Self::Unknown(unknown),
        }
    }
}

/// The way in which a fact from one source was joined with that of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It was not known before.
    New,
    /// The same was known before.
    Same,
    /// Another value was known before and is kept. Both as a report has them.
    Other { kept: String, refused: String },
}

/// Takes a fact from another source, if it is known there. A fact that is known here stays.
pub(crate) fn take<T: PartialEq + Serialize>(
    here: &mut Reading<T>,
    there: Reading<T>,
) -> Option<Taken> {
    let Reading::Known(given) = there else {
        return None;
    };
    let written = |value: &T| {
        let text = serde_json::to_string(value).unwrap_or_default();
        text.trim_matches('"').to_owned()
    };
    Some(match here {
        Reading::Known(known) if *known == given => Taken::Same,
        Reading::Known(known) => Taken::Other { kept: written(known), refused: written(&given) },
        Reading::Unknown(_) => {
            *here = Reading::Known(given);
            Taken::New
        }
    })
}

/// Reasons by field name, as written beside the fields in a report.
pub type Reasons = BTreeMap<String, Unknown>;

/// Splits a reading into the parts that a report contains: the value or null, and the reason beside it.
pub fn split<'a, T>(name: &str, reading: &'a Reading<T>, reasons: &mut Reasons) -> Option<&'a T> {
    if let Reading::Unknown(unknown) = reading {
        reasons.insert(name.to_owned(), unknown.clone());
    }
    reading.known()
}

/// Rebuilds a reading from a value or null and the reasons. An impossible value becomes unknown.
pub fn join<T, F: TryInto<T, Error: fmt::Display>>(
    name: &str,
    found: Option<F>,
    reasons: &mut Reasons,
) -> Reading<T> {
    match (found.map(TryInto::try_into), reasons.remove(name)) {
        (Some(Ok(value)), _) => Reading::Known(value),
        (Some(Err(why)), _) => Reading::failed(why.to_string()),
        (None, Some(unknown)) => Reading::Unknown(unknown),
        (None, None) => Reading::failed("not in this report"),
    }
}

/// Declares a struct whose `readings` are written as the value or null. Each null has its reason in a map `unknown`
/// beside the fields, as the report contract requires.
///
/// The fields before `=> readings` are plain: always present. The schema requires only these, because a report of an
/// earlier version may lack any reading that was added later. Such a reading is unknown. A reading
/// `width: Lanes as u8` is read from a report as that number, and is unknown if no such value exists.
macro_rules! facts {
    (
        $(#[$meta:meta])*
        $visible:vis struct $name:ident {
            $( $(#[$plain_meta:meta])* $plain:ident : $plain_type:ty, )*
            => readings {
                $( $(#[$field_meta:meta])* $field:ident : $type:ty $(as $number:ty)?, )*
            }
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        $visible struct $name {
            $( $(#[$plain_meta])* $visible $plain: $plain_type, )*
            $( $(#[$field_meta])* $visible $field: $crate::reading::Reading<$type>, )*
        }

        impl $name {
            /// Creates facts whose readings are all unknown for one reason, with these plain fields.
            #[allow(dead_code, reason = "not every struct of facts is ever unread as a whole")]
            #[allow(clippy::too_many_arguments, reason = "one argument per plain field")]
            $visible fn unread($($plain: $plain_type,)* why: &$crate::reading::Unknown) -> Self {
                Self {
                    $( $plain, )*
                    $( $field: $crate::reading::Reading::Unknown(why.clone()), )*
                }
            }

            /// Takes every fact that is known in the other one and not known here. Calls `taken` with the key of each known
            /// fact.
            #[allow(dead_code, reason = "not every struct of facts is joined from parts")]
            #[allow(unused_mut, unused_variables, reason = "a struct may have no readings")]
            $visible fn take(
                &mut self,
                other: Self,
                mut taken: impl FnMut(&'static str, $crate::reading::Taken),
            ) {
                $(
                    if let Some(how) = $crate::reading::take(&mut self.$field, other.$field) {
                        taken(stringify!($field), how);
                    }
                )*
            }
        }

        const _: () = {
            use $crate::reading::{Reasons, join, split};

            #[derive(serde::Serialize)]
            struct Written<'a> {
                $( $plain: &'a $plain_type, )*
                $( $field: Option<&'a $type>, )*
                #[serde(skip_serializing_if = "Reasons::is_empty")]
                unknown: Reasons,
            }

            #[derive(serde::Deserialize)]
            struct Read {
                $( $plain: $plain_type, )*
                $( #[serde(default = "none")] $field: Option<$crate::reading::number!($type $(as $number)?)>, )*
                #[serde(default)]
                unknown: Reasons,
            }

            #[allow(dead_code, reason = "a struct may have no readings")]
            const fn none<T>() -> Option<T> {
                None
            }

            #[cfg(any(test, feature = "testing"))]
            impl schemars::JsonSchema for $name {
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                    // The written form with owned fields: `Written` borrows, which the derive cannot describe.
                    $(#[$meta])*
                    #[derive(schemars::JsonSchema)]
                    #[schemars(rename_all = "snake_case")]
                    #[allow(dead_code, reason = "only its schema is used")]
                    struct Described {
                        $( $(#[$plain_meta])* $plain: $plain_type, )*
                        // A default for reading, as in `Read`: any fact may have been added later.
                        $( $(#[$field_meta])* #[serde(default)] $field: Option<$type>, )*
                        /// Reasons for the fields that are null.
                        #[serde(skip_serializing_if = "Option::is_none")]
                        unknown: Option<Reasons>,
                    }
                    Described::json_schema(generator)
                }
            }

            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    let mut unknown = Reasons::new();
                    let written = Written {
                        $( $plain: &self.$plain, )*
                        $( $field: split(stringify!($field), &self.$field, &mut unknown), )*
                        unknown: Reasons::new(),
                    };
                    Written { unknown, ..written }.serialize(to)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    let mut read = Read::deserialize(from)?;
                    Ok(Self {
                        $( $plain: read.$plain, )*
                        $( $field: join(stringify!($field), read.$field, &mut read.unknown), )*
                    })
                }
            }
        };
    };
}
pub(crate) use facts;

/// The type in which a report contains a fact: a number that has to be checked, or the fact itself.
macro_rules! number {
    ($type:ty) => {
        $type
    };
    ($type:ty as $number:ty) => {
        $number
    };
}
pub(crate) use number;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Lanes;

    facts! {
        /// A thing.
        struct Thing {
            /// Its number.
            number: u32,
            => readings {
                /// Its width.
                width: Lanes as u8,
                /// Its colours.
                colours: Vec<String>,
            }
        }
    }

    #[test]
    fn an_unknown_fact_is_null_with_its_reason_beside_it() {
        let thing = Thing {
            number: 3,
            width: Reading::unsupported(),
            colours: Reading::Known(vec!["red".into()]),
        };
        let json = serde_json::to_value(&thing).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"number": 3, "width": null, "colours": ["red"], "unknown": {"width": "unsupported"}})
        );
        assert_eq!(serde_json::from_value::<Thing>(json).unwrap(), thing);
    }

    #[test]
    fn facts_of_two_sources_are_joined_and_what_contradicts_is_named() {
        let unread = Unknown::NotRead("not in the input".into());
        let mut thing = Thing::unread(3, &unread);
        let wide = Thing { width: Reading::Known(Lanes::X16), ..Thing::unread(3, &unread) };
        let narrow = Thing {
            width: Reading::Known(Lanes::X4),
            colours: Reading::Known(vec!["red".into()]),
            ..Thing::unread(3, &unread)
        };
        let mut how = Vec::new();
        for other in [wide.clone(), wide.clone(), narrow] {
            thing.take(other, |key, taken| how.push((key, taken)));
        }
        let other = Taken::Other { kept: "16".into(), refused: "4".into() };
        assert_eq!(
            how,
            [
                ("width", Taken::New),
                ("width", Taken::Same),
                ("width", other),
                ("colours", Taken::New)
            ]
        );
        assert_eq!(thing.width, wide.width);
    }

    #[test]
    fn a_fact_that_an_older_report_lacks_says_so() {
        let thing: Thing = serde_json::from_str(r#"{"number": 1, "width": 4}"#).unwrap();
        assert_eq!(thing.width, Reading::Known(Lanes::X4));
        assert_eq!(thing.colours, Reading::failed("not in this report"));
    }

    #[test]
    fn a_number_that_cannot_be_is_unknown_with_that_reason() {
        let thing: Thing =
            serde_json::from_str(r#"{"number": 1, "width": 63, "colours": []}"#).unwrap();
        assert_eq!(thing.width, Reading::failed("no PCIe link has 63 lanes"));
    }

    #[test]
    fn every_reason_survives_its_text() {
        for unknown in [
            Unknown::Unsupported,
            Unknown::Denied("root only".into()),
            Unknown::Limited("the limit of open files (ulimit -n) is 24".into()),
            Unknown::Failed("NVML error 999".into()),
            Unknown::NotRead("by check only".into()),
        ] {
            assert_eq!(Unknown::from(unknown.to_string()), unknown);
        }
    }
}
