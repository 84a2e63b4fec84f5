//! Numbers of a description. Each type has the values that make sense; what else is written is refused where it is read.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, de};

/// Declares numbers, each with the values that it may have and their words.
macro_rules! numbers {
    ($($(#[$meta:meta])* $name:ident($of:ty): $range:expr, $allowed:literal;)*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
            pub struct $name(pub(crate) $of);

            impl TryFrom<$of> for $name {
                type Error = String;

                fn try_from(value: $of) -> Result<Self, String> {
                    if ($range).contains(&value) {
                        return Ok(Self(value));
                    }
                    Err(format!(concat!("{:?} is not ", $allowed), value))
                }
            }

            impl Deref for $name {
                type Target = $of;

                fn deref(&self) -> &$of {
                    &self.0
                }
            }

            impl<'de> Deserialize<'de> for $name {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    <$of>::deserialize(deserializer)?.try_into().map_err(de::Error::custom)
                }
            }
        )*
    };
}

/// Above 0. NaN is in no range.
const ABOVE_0: f64 = f64::MIN_POSITIVE;

numbers! {
    /// A rate, GB/s. What moves at rate 0 never ends.
    Rate(f64): ABOVE_0..=1e6, "above 0 and up to 1000000 GB/s";
    /// Traffic of other programs, GB/s.
    #[derive(Default)]
    Traffic(f64): 0.0..=1e6, "between 0 and 1000000 GB/s";
    /// A share of a rate.
    Ratio(f64): ABOVE_0..=1.0, "above 0 and up to 1";
    /// Additional time, per cent.
    #[derive(Default)]
    Percent(f64): 0.0..=1000.0, "between 0 and 1000 per cent";
    /// A loss that leaves something, per cent.
    Loss(f64): ABOVE_0..100.0, "above 0 and below 100 per cent";
    /// A loss for each degree of heat, per cent.
    #[derive(Default)]
    LossPerDegree(f64): 0.0..=100.0, "between 0 and 100 per cent";
    /// Counted traffic relative to what passed, or to that of other links.
    Counted(f64): 0.0..=1000.0, "between 0 and 1000";
    /// The factor by which a copy is late.
    Times(f64): 1.0..=1e6, "between 1 and 1000000";
    /// The factor by which a flag is late.
    FlagTimes(f64): 1.0..=1000.0, "between 1 and 1000";
    /// The cost of a call or a copy, microseconds.
    Micros(f64): 0.0..=1e6, "between 0 and 1000000 us";
    /// A time of at most a day, milliseconds.
    Millis(f64): 0.0..=8.64e7, "between 0 and 86400000 ms";
    /// A moment of the first week, minutes from its start.
    #[derive(Default)]
    Minute(f64): 0.0..=10_080.0, "between 0 and 10080 minutes";
    /// A duration, minutes.
    Minutes(f64): ABOVE_0..=10_080.0, "above 0 and up to 10080 minutes";
    /// A temperature, degrees Celsius.
    Celsius(f64): 0.0..=200.0, "between 0 and 200 degrees Celsius";
    /// Bits for an error.
    Bits(f64): 1.0..=1e30, "between 1 and 1e30 bits";
    /// Codewords a minute.
    Codewords(f64): 0.0..=1e30, "between 0 and 1e30 codewords";
    /// Copy engines of a GPU. Without one no copy ends.
    Engines(u32): 1..=64, "between 1 and 64 engines";
    /// The largest payload of a packet, bytes.
    Payload(u16): [128, 256, 512, 1024, 2048, 4096], "128, 256, 512, 1024, 2048 or 4096 bytes";
    /// The utilization of a GPU, per cent.
    #[derive(Default)]
    Utilization(u8): 0..=100, "between 0 and 100 per cent";
}

/// Reads a number that must not be 0.
pub(super) fn positive<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default + PartialEq>(
    deserializer: D,
) -> Result<T, D::Error> {
    not_0(deserializer, "0 means nothing here: give 1 or more")
}

/// Reads a code of CUDA's for an error.
pub(super) fn error_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    not_0(deserializer, "0 is CUDA's code for success")
}

fn not_0<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default + PartialEq>(
    deserializer: D,
    why: &str,
) -> Result<T, D::Error> {
    let number = T::deserialize(deserializer)?;
    if number == T::default() { Err(de::Error::custom(why)) } else { Ok(number) }
}
