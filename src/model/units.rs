//! Quantities with their units: sizes, rates, PCI addresses and PCIe links.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::rounding;

/// 1 KiB in bytes.
pub const KIB: u64 = 1 << 10;
/// 1 MiB in bytes.
pub const MIB: u64 = 1 << 20;
/// 1 GiB in bytes.
pub const GIB: u64 = 1 << 30;

/// A size in bytes, written in binary units (`448 MiB`) and kept in reports as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            n if n >= GIB => (GIB, "GiB"),
            n if n >= MIB => (MIB, "MiB"),
            n if n >= KIB => (KIB, "KiB"),
            n => return f.pad(&format!("{n} B")),
        };
        let text = if self.0.is_multiple_of(unit) {
            format!("{} {name}", self.0 / unit)
        } else {
            #[allow(clippy::cast_precision_loss, reason = "one decimal place is shown")]
            let value = self.0 as f64 / unit as f64;
            format!("{value:.1} {name}")
        };
        f.pad(&text)
    }
}

/// Text that is not a size.
#[derive(Debug, Clone, thiserror::Error)]
#[error("'{0}' is not a size: write for example 64MiB, 1GiB or a number of bytes")]
pub struct NotASize(String);

impl FromStr for Bytes {
    type Err = NotASize;

    /// Reads `64MiB`, `64 MiB`, `1GiB`, `4096`; KB, MB and GB are decimal, a bare K, M or G is binary.
    fn from_str(text: &str) -> Result<Self, NotASize> {
        let wrong = || NotASize(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let scale = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "k" | "kib" => KIB,
            "m" | "mib" => MIB,
            "g" | "gib" => GIB,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number.checked_mul(scale).map(Self).ok_or_else(wrong)
    }
}

/// A rate in decimal gigabytes per second (10^9 bytes), in one direction.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct GbPerSecond(pub f64);

impl GbPerSecond {
    /// Returns the rate of `bytes` moved in `nanoseconds`. One byte per nanosecond is one GB/s.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    pub fn of(bytes: u64, nanoseconds: f64) -> Self {
        Self(bytes as f64 / nanoseconds)
    }

    /// Returns this rate as per cent of another.
    pub fn percent_of(self, whole: Self) -> f64 {
        100.0 * self.0 / whole.0
    }
}

impl fmt::Display for GbPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&rounding::rate(self.0))
    }
}

/// The address of a PCI function: domain, bus, device, function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain (segment). 32 bits, because virtual domains exceed 16.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl PciAddress {
    /// Returns true if both are functions of one device.
    pub fn is_same_device(self, other: Self) -> bool {
        (self.domain, self.bus, self.device) == (other.domain, other.bus, other.device)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

/// Text that is not a PCI address.
#[derive(Debug, Clone, thiserror::Error)]
#[error("'{0}' is not a PCI address such as 0000:3b:00.0")]
pub struct NotAPciAddress(String);

impl FromStr for PciAddress {
    type Err = NotAPciAddress;

    /// Reads `0000:3b:00.0`, NVML's `00000000:3B:00.0`, and `3b:00.0` in domain 0.
    fn from_str(text: &str) -> Result<Self, NotAPciAddress> {
        let parse = || {
            let (rest, function) = text.trim().rsplit_once('.')?;
            let mut parts = rest.rsplit(':');
            let device = parts.next()?;
            let bus = parts.next()?;
            let domain = parts.next().unwrap_or("0");
            if parts.next().is_some() {
                return None;
            }
            let address = Self {
                domain: u32::from_str_radix(domain, 16).ok()?,
                bus: u8::from_str_radix(bus, 16).ok()?,
                device: u8::from_str_radix(device, 16).ok()?,
                function: u8::from_str_radix(function, 16).ok()?,
            };
            (address.device < 32 && address.function < 8).then_some(address)
        };
        parse().ok_or_else(|| NotAPciAddress(text.to_owned()))
    }
}

/// Makes a type appear in reports as the text that it displays and parses.
macro_rules! held_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(from)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use held_as_text;

held_as_text!(PciAddress);

/// A PCIe generation, 1 to 6. The seventh was published in 2025, but no device has it yet. Neither the kernel's word
/// for it nor its payload rate is known here, so a 7 is a broken reading today.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub struct Generation(u8);

/// A number that is no PCIe generation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no PCIe generation {0}")]
pub struct NoSuchGeneration(u32);

/// Number of lanes of a PCIe link: one of the valid widths. Broken links and virtual machines report 0, 63 and 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub struct Lanes(u8);

/// A number of lanes that no PCIe link has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no PCIe link has {0} lanes")]
pub struct NoSuchLanes(u32);

impl Generation {
    /// 2.5 GT/s.
    pub(crate) const GEN1: Self = Self(1);
    /// The newest generation known here.
    pub(crate) const NEWEST: Self = Self(6);

    pub const fn number(self) -> u8 {
        self.0
    }
}

impl Lanes {
    /// Every valid number of lanes of a link. Source: PCI Express Base Specification, link capabilities register,
    /// maximum link width.
    pub const ALL: [Self; 7] = [Self(1), Self(2), Self::X4, Self(8), Self(12), Self::X16, Self(32)];
    /// Four lanes.
    pub(crate) const X4: Self = Self(4);
    /// Sixteen lanes, the most that a board uses.
    pub const X16: Self = Self(16);

    pub const fn number(self) -> u8 {
        self.0
    }
}

impl TryFrom<u32> for Generation {
    type Error = NoSuchGeneration;

    fn try_from(number: u32) -> Result<Self, NoSuchGeneration> {
        let generation = u8::try_from(number).ok().map(Self);
        generation
            .filter(|one| (Self::GEN1..=Self::NEWEST).contains(one))
            .ok_or(NoSuchGeneration(number))
    }
}

impl TryFrom<u32> for Lanes {
    type Error = NoSuchLanes;

    fn try_from(number: u32) -> Result<Self, NoSuchLanes> {
        Self::ALL.into_iter().find(|lanes| u32::from(lanes.0) == number).ok_or(NoSuchLanes(number))
    }
}

/// Conversions of both types, from and to the number in a report.
macro_rules! numbers {
    ($($type:ident: $error:ident),*) => {$(
        impl TryFrom<u8> for $type {
            type Error = $error;

            fn try_from(number: u8) -> Result<Self, $error> {
                u32::from(number).try_into()
            }
        }

        impl From<$type> for u8 {
            fn from(value: $type) -> Self {
                value.0
            }
        }

        impl From<$type> for u32 {
            fn from(value: $type) -> Self {
                value.0.into()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
numbers!(Generation: NoSuchGeneration, Lanes: NoSuchLanes);

/// The actual or possible shape of a PCIe link: generation and number of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PcieLink {
    /// PCIe generation.
    pub generation: Generation,
    /// Number of lanes.
    pub width: Lanes,
}

impl PcieLink {
    /// Takes the lower generation and the lower width separately: the link that two such ends train to.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self {
            generation: self.generation.min(other.generation),
            width: self.width.min(other.width),
        }
    }
}

impl fmt::Display for PcieLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("Gen{} x{}", self.generation, self.width))
    }
}

/// Text that is not a PCIe link.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "'{0}' is not a PCIe link such as \"Gen4 x16\": generations are 1 to 6, lanes are 1, 2, 4, 8, 12, 16 or 32"
)]
pub struct NotAPcieLink(String);

impl FromStr for PcieLink {
    type Err = NotAPcieLink;

    /// Reads `Gen4 x16`, in any case.
    fn from_str(text: &str) -> Result<Self, NotAPcieLink> {
        let parse = || {
            let text = text.trim().to_ascii_lowercase();
            let (generation, width) = text.strip_prefix("gen")?.split_once('x')?;
            let generation = generation.trim().parse::<u8>().ok()?.try_into().ok()?;
            Some(Self { generation, width: width.parse::<u8>().ok()?.try_into().ok()? })
        };
        parse().ok_or_else(|| NotAPcieLink(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcie_links_are_read_as_they_are_written() {
        let link = PcieLink { generation: Generation(4), width: Lanes::X16 };
        for text in ["Gen4 x16", "gen4x16", " GEN4 X16 "] {
            assert_eq!(text.parse::<PcieLink>().unwrap(), link, "{text}");
        }
        assert_eq!(link.to_string().parse::<PcieLink>().unwrap(), link);
        for text in [
            "",
            "Gen4",
            "x16",
            "4 x16",
            "Gen0 x16",
            "Gen7 x16",
            "Gen4 x3",
            "Gen4 x0",
            "Gen4 x-1",
            "Gen4 x16 x",
        ] {
            assert!(text.parse::<PcieLink>().is_err(), "{text}");
        }
    }

    #[test]
    fn generations_and_lanes_that_do_not_exist_are_no_values() {
        for number in [0, 7, 255, u32::MAX] {
            assert!(Generation::try_from(number).is_err(), "{number}");
        }
        for number in [0_u32, 3, 63, 255, 272] {
            assert_eq!(
                Lanes::try_from(number).unwrap_err().to_string(),
                format!("no PCIe link has {number} lanes")
            );
        }
        assert_eq!(serde_json::to_string(&(Generation(5), Lanes::X16)).unwrap(), "[5,16]");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64MiB", 64 * MIB),
            ("64 mib", 64 * MIB),
            ("1G", GIB),
            (" 2K ", 2 * KIB),
            ("1 GB", 1_000_000_000),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
        for text in
            ["", "MiB", "-1", "1.5GiB", "1TB", "99999999999999999999", "18446744073709551615GiB"]
        {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!(Bytes(448 * MIB).to_string(), "448 MiB");
        assert_eq!(Bytes(GIB + GIB / 2).to_string(), "1.5 GiB");
    }

    #[test]
    fn pci_addresses_of_every_origin_agree() {
        let address: PciAddress = "0000:3b:00.0".parse().unwrap();
        assert_eq!("00000000:3B:00.0".parse::<PciAddress>().unwrap(), address);
        assert_eq!("3b:00.0".parse::<PciAddress>().unwrap(), address);
        assert_eq!(address.to_string(), "0000:3b:00.0");
        for text in
            ["", "3b", "3b:00", "0000:3b:20.0", "0000:3b:00.8", "a:b:c:d.0", "FFFFFFF:FF:FF.0"]
        {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_byte_per_nanosecond_is_a_gigabyte_per_second() {
        assert!((GbPerSecond::of(GIB, 2.7e6).0 - 397.682).abs() < 0.001);
    }
}
