//! Values that are easier to read as text than as numbers, and words and lists of which few are possible.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

use model::snapshot::{THROTTLE_REASONS, throttle_reason};
use model::units::{Bytes, GIB, KIB, MIB, PcieLink};

/// Largest memory.
const MOST_MEMORY: Bytes = Bytes(65_536 * GIB);
/// The word for no value.
const NONE: &str = "none";
/// Number of symbols of a codeword up to which NVML has a counter (`NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15`).
pub(crate) const MOST_SYMBOLS: usize = 15;
/// Versions that NVML lists.
const NVLINK_VERSIONS: [&str; 8] = ["1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0", "6.0"];

/// A value that a description has as text.
pub(super) trait Written: Sized {
    fn read(text: &str) -> Result<Self, String>;
    fn written(&self) -> String;
}

/// Sizes: `143771MiB`, or a number of bytes.
impl Written for Bytes {
    fn read(text: &str) -> Result<Self, String> {
        let size: Self = parsed(text)?;
        if size > MOST_MEMORY {
            return Err(format!("{size} is more than {MOST_MEMORY}"));
        }
        Ok(size)
    }

    fn written(&self) -> String {
        let units = [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
        let unit = units.iter().find(|(unit, _)| self.0 != 0 && self.0.is_multiple_of(*unit));
        unit.map_or(self.0.to_string(), |(unit, name)| format!("{}{name}", self.0 / unit))
    }
}

/// PCIe links: `Gen4 x16`.
impl Written for PcieLink {
    fn read(text: &str) -> Result<Self, String> {
        parsed(text)
    }

    fn written(&self) -> String {
        self.to_string()
    }
}

/// Vendor and device id: `10de:2335`.
impl Written for (u16, u16) {
    fn read(text: &str) -> Result<Self, String> {
        let number = |text| u16::from_str_radix(text, 16).ok();
        let id = text
            .split_once(':')
            .and_then(|(vendor, device)| Some((number(vendor)?, number(device)?)));
        id.ok_or_else(|| format!("'{text}' is not a vendor and device id such as \"10de:2335\""))
    }

    fn written(&self) -> String {
        format!("{:04x}:{:04x}", self.0, self.1)
    }
}

/// Class codes: `030200`.
impl Written for u32 {
    fn read(text: &str) -> Result<Self, String> {
        let class = Self::from_str_radix(text, 16).ok().filter(|class| *class <= 0xff_ffff);
        class.ok_or_else(|| format!("'{text}' is not a class code such as \"030200\""))
    }

    fn written(&self) -> String {
        format!("{self:06x}")
    }
}

/// Values that may not be there: `none`.
impl<T: Written> Written for Option<T> {
    fn read(text: &str) -> Result<Self, String> {
        (text != NONE).then(|| T::read(text)).transpose()
    }

    fn written(&self) -> String {
        self.as_ref().map_or(NONE.into(), Written::written)
    }
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "text, or for a size such as \"64MiB\" a number of bytes")]
enum Either {
    Number(u64),
    Text(String),
}

pub(super) fn serialize<S: Serializer, T: Written>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.written())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>, T: Written>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = match Either::deserialize(deserializer)? {
        Either::Number(number) => number.to_string(),
        Either::Text(text) => text,
    };
    T::read(&text).map_err(Error::custom)
}

/// Reads throttle reasons: NVML's names (`HW_THERMAL_SLOWDOWN`), which become those of the report (`hw-thermal`). The
/// report's names are accepted too.
pub(super) fn throttle<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let known = |name: &String| {
        throttle_reason(name).map(str::to_owned).ok_or_else(|| {
            let nvml = |(name, _): &(&str, _)| name.to_uppercase().replace('-', "_");
            let names: Vec<_> = THROTTLE_REASONS.iter().map(nvml).collect();
            D::Error::custom(format!("'{name}' is no reason of NVML's: {}", names.join(", ")))
        })
    };
    Vec::<String>::deserialize(deserializer)?.iter().map(known).collect()
}

/// Reads the version of an NVLink.
pub(super) fn nvlink_version<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<String, D::Error> {
    let version = String::deserialize(deserializer)?;
    if NVLINK_VERSIONS.contains(&version.as_str()) {
        return Ok(version);
    }
    let all = NVLINK_VERSIONS.join(", ");
    Err(Error::custom(format!("there is no NVLink '{version}': choose {all}")))
}

/// Reads numbers of corrected symbols.
pub(super) fn symbols<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let counts = Vec::deserialize(deserializer)?;
    let most = MOST_SYMBOLS;
    if counts.len() <= most {
        return Ok(counts);
    }
    let number = counts.len();
    Err(Error::custom(format!("{number} counts are more than NVML has, which is {most}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn throttle_reasons_have_the_names_of_nvml_or_of_reports() {
        #[derive(serde::Deserialize)]
        struct Held {
            #[serde(deserialize_with = "super::throttle")]
            by: Vec<String>,
        }
        let read = |text: &str| toml::from_str::<Held>(text).map(|held| held.by);
        let both = read("by = ['HW_THERMAL_SLOWDOWN', 'hw-thermal', 'SW_POWER_CAP']").unwrap();
        assert_eq!(both, ["hw-thermal", "hw-thermal", "sw-power-cap"]);
        let wrong = read("by = ['HOT']").unwrap_err().to_string();
        assert!(wrong.contains("'HOT'") && wrong.contains("HW_POWER_BRAKE_SLOWDOWN"), "{wrong}");
    }
}
