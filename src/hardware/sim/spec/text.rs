//! Values that are easier to read as text than as numbers.

/// Sizes: `143771MiB`, or a number of bytes.
pub(super) mod size {
    use serde::{Deserialize, Deserializer, Serializer};

    use model::units::{Bytes, GIB, KIB, MIB};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size such as \"64MiB\", or a number of bytes")]
    enum Either {
        Number(u64),
        Text(String),
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
    pub(crate) fn serialize<S: Serializer>(
        bytes: &Bytes,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        for (unit, name) in [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
            if bytes.0 != 0 && bytes.0.is_multiple_of(unit) {
                return serializer.collect_str(&format_args!("{}{name}", bytes.0 / unit));
            }
        }
        serializer.collect_str(&bytes.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Bytes, D::Error> {
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(Bytes(number)),
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// A size that may be missing.
pub(super) mod optional_size {
    use serde::{Deserialize, Deserializer, Serializer};

    use model::units::Bytes;

    #[derive(Deserialize)]
    struct Size(#[serde(with = "super::size")] Bytes);

    #[allow(clippy::ref_option, reason = "serde's form")]
    pub(crate) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => super::size::serialize(bytes, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Size>::deserialize(deserializer)?.map(|Size(bytes)| bytes))
    }
}

/// Vendor and device id: `10de:2335`.
pub(super) mod pci_id {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        (vendor, device): &(u16, u16),
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{vendor:04x}:{device:04x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<(u16, u16), D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = |text| u16::from_str_radix(text, 16).ok();
        let id = text
            .split_once(':')
            .and_then(|(vendor, device)| Some((number(vendor)?, number(device)?)));
        id.ok_or_else(|| {
            serde::de::Error::custom(format_args!(
                "'{text}' is not a vendor and device id such as \"10de:2335\""
            ))
        })
    }
}

/// A PCIe link that may be missing: `Gen4 x16`.
pub(super) mod link {
    use serde::{Deserialize, Deserializer, Serializer};

    use model::units::PcieLink;

    #[allow(clippy::ref_option, reason = "serde's form")]
    pub(crate) fn serialize<S: Serializer>(
        link: &Option<PcieLink>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match link {
            Some(link) => serializer.collect_str(link),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PcieLink>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

/// Class code: `030200`.
pub(super) mod class {
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
    pub(crate) fn serialize<S: Serializer>(class: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{class:06x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        let class = u32::from_str_radix(&text, 16).ok().filter(|class| *class <= 0xff_ffff);
        class.ok_or_else(|| {
            serde::de::Error::custom(format_args!(
                "'{text}' is not a class code such as \"030200\""
            ))
        })
    }
}

/// Throttle reasons: NVML's names (`HW_THERMAL_SLOWDOWN`), which become those of the report (`hw-thermal`). The
/// report's names are accepted too.
pub(super) mod throttle {
    use serde::{Deserialize, Deserializer};

    use model::snapshot::{THROTTLE_REASONS, throttle_reason};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<String>, D::Error> {
        Vec::<String>::deserialize(deserializer)?.iter().map(|name| known(name)).collect()
    }

    fn known<E: serde::de::Error>(name: &str) -> Result<String, E> {
        throttle_reason(name).map(str::to_owned).ok_or_else(|| {
            let names: Vec<_> = THROTTLE_REASONS
                .iter()
                .map(|(nvml, _)| nvml.to_uppercase().replace('-', "_"))
                .collect();
            E::custom(format_args!("'{name}' is no reason of NVML's: {}", names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn throttle_reasons_have_the_names_of_nvml_or_of_reports() {
        #[derive(serde::Deserialize)]
        struct Held {
            #[serde(deserialize_with = "super::throttle::deserialize")]
            by: Vec<String>,
        }
        let read = |text: &str| toml::from_str::<Held>(text).map(|held| held.by);
        let both = read("by = ['HW_THERMAL_SLOWDOWN', 'hw-thermal', 'SW_POWER_CAP']").unwrap();
        assert_eq!(both, ["hw-thermal", "hw-thermal", "sw-power-cap"]);
        let wrong = read("by = ['HOT']").unwrap_err().to_string();
        assert!(wrong.contains("'HOT'") && wrong.contains("HW_POWER_BRAKE_SLOWDOWN"), "{wrong}");
    }
}
