//! Profiles: how much is measured. They are files under probes/profiles, built into the binary.

use std::str::FromStr;

use serde::Deserialize;

use super::Group;
use crate::model::units::{Bytes, MIB};

/// A profile's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// Every pair verified and measured in all eight placements.
    Quick,
    /// Quick, and overlap, latency, kernel copies, both ways, the staged path.
    Standard,
    /// Every combination of placement, issuer, engine and direction.
    Full,
}

impl Name {
    /// The name as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }
}

/// How much is measured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is for.
    pub summary: String,
    /// Bandwidth between GPUs.
    pub peers: Peers,
    /// Overlap of copies with kernels.
    pub overlap: Overlap,
    /// Small-copy latency.
    pub latency: Latency,
}

/// Bandwidth between GPUs. The eight placements are always measured for the copy engine, issued by
/// the source, one way.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// Timed copies per cell, after one that is not.
    pub samples: u32,
    /// How much of it also issued by the destination.
    #[serde(default)]
    pub issued_by_destination: Extent,
    /// How much of it also by kernel.
    #[serde(default)]
    pub kernel: Extent,
    /// How much of it also with both directions busy.
    #[serde(default)]
    pub both_ways: Extent,
    /// For which pairs the staged path is measured.
    #[serde(default)]
    pub staged: Staged,
}

/// How much of an axis is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// Nothing.
    #[default]
    None,
    /// In the reference placement.
    Reference,
    /// In every placement.
    EveryPlacement,
}

/// For which pairs the staged path is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Staged {
    /// Those that have no other.
    #[default]
    WithoutPeerAccess,
    /// All.
    All,
}

/// Overlap of copies with kernels.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlap {
    /// Samples per cell; 0 leaves the probe out.
    pub samples: u32,
    /// Bytes that are copied.
    #[serde(default = "overlap_bytes", deserialize_with = "bytes")]
    pub bytes: Bytes,
}

/// Small-copy latency.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Samples per cell; 0 leaves the probe out.
    pub samples: u32,
}

const fn overlap_bytes() -> Bytes {
    Bytes(256 * MIB)
}

fn bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    Bytes::from_str(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

impl Profile {
    /// Whether this profile has anything for a probe group.
    pub const fn has(&self, group: Group) -> bool {
        match group {
            Group::Peers => self.peers.samples > 0,
            Group::Overlap => self.overlap.samples > 0,
            Group::Latency => self.latency.samples > 0,
        }
    }

    /// The built-in profile of this name.
    ///
    /// # Errors
    ///
    /// The built-in file is wrong, which a test rules out.
    pub fn load(name: Name) -> Result<Self, String> {
        let text = match name {
            Name::Quick => include_str!("../../probes/profiles/quick.toml"),
            Name::Standard => include_str!("../../probes/profiles/standard.toml"),
            Name::Full => include_str!("../../probes/profiles/full.toml"),
        };
        Self::parse(text).map_err(|error| format!("built-in profile {}: {error}", name.as_str()))
    }

    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_readable() {
        for name in [Name::Quick, Name::Standard, Name::Full] {
            let profile = Profile::load(name).unwrap();
            assert!(profile.peers.samples > 0, "{}", name.as_str());
        }
    }

    #[test]
    fn fuzz_profiles() {
        let strategy = (0..3_usize, crate::fuzz::edits(5));
        crate::fuzz::run("profile", 4.0, &strategy, |(base, edits)| {
            let base = [
                include_str!("../../probes/profiles/quick.toml"),
                include_str!("../../probes/profiles/standard.toml"),
                include_str!("../../probes/profiles/full.toml"),
            ][base];
            let text = crate::fuzz::edited(base.as_bytes(), &edits);
            match Profile::parse(&String::from_utf8_lossy(&text)) {
                Ok(profile) => {
                    let groups = Group::ALL.map(|group| profile.has(group));
                    if groups[0] == (profile.peers.samples > 0) { Ok(()) } else { Err(format!("{profile:?}")) }
                }
                Err(error) => crate::fuzz::assert_is_sentence(&error.to_string()),
            }
        });
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = toml::from_str::<Profile>("summary = ''\nwarmup = 3\n").unwrap_err().to_string();
        assert!(error.contains("warmup"), "{error}");
    }
}
